//! `netgrain group` on a live interface: several processes share its packets, join, leave and are killed, and the
//! accounting balances.

use crate::common;

use common::{Running, arg, ignores_hangup, netgrain, objects, run, signal, until, until_filtered};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use testkit::{Port, RawReader, RawSender, Sandbox, TempDir};
use wire::build::Frame;

const FLOWS: u16 = 200;

/// An engine that records an interface.
struct Engine {
    running: Running,
    /// The standard error of the engine is kept open, so that the engine can write messages.
    _err: BufReader<std::process::ChildStderr>,
    groups: PathBuf,
}

impl Engine {
    fn start(port: &Port, dir: &TempDir, more: &[&str]) -> Self {
        let (store, socket) = (dir.join("store"), dir.join("s.sock"));
        let args = ["record", "-i", &port.name, "--store", arg(&store), "--socket", arg(&socket), "--ring", "32MiB"];
        let groups = dir.join("s.groups");
        // A killed engine may have left its socket file.
        let _ = std::fs::remove_file(&groups);
        let (running, err) = Running::start(&mut netgrain(&[&args[..], more].concat()));
        until("the control socket exists", || groups.exists());
        until_filtered(&running.0);
        Self { running, _err: err, groups }
    }

    fn group(&self, verb: &str, more: &[&str]) -> common::Output {
        run(&[&["group", verb, "--socket", arg(&self.groups)], more].concat())
    }

    fn stats(&self, group: &str) -> serde_json::Value {
        let output = self.group("stats", &["--json", group]);
        let stats = objects(&output.out).pop().unwrap_or_else(|| panic!("no statistics: {output:?}"));
        assert_eq!(stats["accounting_errors"], serde_json::json!([]), "{stats}");
        stats
    }

    fn members(&self, group: &str) -> usize {
        self.stats(group)["members"].as_array().map_or(0, Vec::len)
    }
}

/// A member that writes its packets to a file.
struct Worker {
    running: Running,
    path: PathBuf,
}

impl Worker {
    fn join(engine: &Engine, group: &str, path: PathBuf) -> Self {
        let args = ["group", "join", "--socket", arg(&engine.groups), group, "-w", arg(&path)];
        let mut child =
            netgrain(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the process starts");
        let mut line = String::new();
        BufReader::new(child.stderr.as_mut().expect("a pipe")).read_line(&mut line).expect("text");
        assert!(line.contains("slot"), "{line}");
        until_filtered(&child);
        Self { running: Running(child), path }
    }

    /// Ends the member and returns, for each flow, the sequence numbers of the packets that the member received.
    fn end(mut self) -> BTreeMap<u16, Vec<u32>> {
        signal(&self.running.0, "INT");
        let status = self.running.0.wait().expect("the process ends");
        assert_eq!(status.code(), Some(0), "the member missed packets");
        packets(&self.path)
    }
}

/// The sequence numbers of the packets in a capture, by flow. In each frame, the sequence number and the number of the
/// flow follow the headers.
fn packets(path: &Path) -> BTreeMap<u16, Vec<u32>> {
    let mut out: BTreeMap<u16, Vec<u32>> = BTreeMap::new();
    let file = std::fs::read(path).expect("a file");
    let mut at = 24;
    while at + 16 <= file.len() {
        let caplen = u32::from_le_bytes(file[at + 8..at + 12].try_into().expect("four")) as usize;
        let frame = &file[at + 16..at + 16 + caplen];
        let number = u32::from_be_bytes(frame[46..50].try_into().expect("four"));
        let flow = u16::from_be_bytes(frame[50..52].try_into().expect("two"));
        out.entry(flow).or_default().push(number);
        at += 16 + caplen;
    }
    out
}

/// `rounds` packets of each flow, alternating between both directions, numbered from `first`.
fn frames(first: u32, rounds: u32) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for round in 0..rounds {
        for flow in 0..FLOWS {
            let (host, peer) = ([10, 0, (flow >> 8) as u8, flow as u8], [192, 168, 0, 1]);
            let mut bytes = vec![0; 64];
            if round % 2 == 0 {
                Frame::udp4(host, 1000 + flow, peer, 53).fill(&mut bytes);
            } else {
                Frame::udp4(peer, 53, host, 1000 + flow).fill(&mut bytes);
            }
            bytes[46..50].copy_from_slice(&(first + round * u32::from(FLOWS) + u32::from(flow)).to_be_bytes());
            bytes[50..52].copy_from_slice(&flow.to_be_bytes());
            out.push(bytes);
        }
    }
    out
}

#[test]
fn an_interface_is_split_by_biflow_over_four_processes() {
    let test = "an_interface_is_split_by_biflow_over_four_processes";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("va", "vb");
    let dir = TempDir::new("split");
    let engine = Engine::start(&b, &dir, &["--source-kind", "tpacket"]);
    let output = engine.group("create", &["web", "steer udp"]);
    assert_eq!(output.status, Some(0), "{output:?}");
    let workers: Vec<_> = (0..4).map(|i| Worker::join(&engine, "web", dir.join(format!("{i}.pcap")))).collect();
    RawSender::new(&a).send(&frames(0, 10));
    let total = u64::from(FLOWS) * 10;
    until("the group has processed all packets", || engine.stats("web")["passed"] == total);
    let parts: Vec<_> = workers.into_iter().map(Worker::end).collect();
    let mut owner = BTreeMap::new();
    let mut seen: BTreeSet<u32> = BTreeSet::new();
    for (i, part) in parts.iter().enumerate() {
        assert!(part.len() > 10, "worker {i} has {} flows", part.len());
        for (flow, numbers) in part {
            assert_eq!(owner.insert(*flow, i), None, "flow {flow} has two members");
            assert!(numbers.is_sorted(), "packets of flow {flow} are out of order");
            seen.extend(numbers);
        }
    }
    assert_eq!((owner.len(), seen.len() as u64), (usize::from(FLOWS), total), "each packet is delivered to one member");
    until("the members have left", || engine.members("web") == 0);
    let stats = engine.stats("web");
    assert_eq!(stats["departed"]["delivered"], total, "{stats}");
    assert_eq!(stats["departed"]["seen"], total, "{stats}");
}

#[test]
fn joins_swaps_and_kills_of_members_do_not_affect_other_members() {
    let test = "joins_swaps_and_kills_of_members_do_not_affect_other_members";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("va", "vb");
    let dir = TempDir::new("broadcast");
    let engine = Engine::start(&b, &dir, &["--source-kind", "af-xdp", "--dedicated"]);
    assert_eq!(engine.group("create", &["all", "copy"]).status, Some(0));
    assert_eq!(engine.group("create", &["one", "steer"]).status, Some(0));
    let wire = RawSender::new(&a);
    let wait_for_packets = |n: u64| {
        until("the group has processed all packets", || {
            engine.stats("one")["received"] == n && engine.stats("all")["received"] == n
        })
    };
    let all: Vec<_> = (0..2).map(|i| Worker::join(&engine, "all", dir.join(format!("all{i}.pcap")))).collect();
    let mut one: Vec<_> = (0..3).map(|i| Worker::join(&engine, "one", dir.join(format!("one{i}.pcap")))).collect();
    let round = u64::from(FLOWS) * 2;
    wire.send(&frames(0, 2));
    wait_for_packets(round);
    // SIGKILL: the member slot is free as soon as the kernel has closed the connection.
    drop(one.remove(1));
    until("the killed member is removed", || engine.members("one") == 2);
    wire.send(&frames(1_000, 2));
    wait_for_packets(2 * round);
    let swapped = engine.group("swap", &["one", "steer udp port 53", "--json"]);
    assert_eq!(objects(&swapped.out)[0]["generation"], 2, "{swapped:?}");
    let broken = engine.group("swap", &["one", "steer prot 5"]);
    assert_eq!(broken.status, Some(2), "{broken:?}");
    assert_eq!(broken.err.lines().count(), 1, "{broken:?}");
    wire.send(&frames(2_000, 2));
    wait_for_packets(3 * round);
    one.push(Worker::join(&engine, "one", dir.join("one3.pcap")));
    wire.send(&frames(3_000, 2));
    wait_for_packets(4 * round);
    for part in all.into_iter().map(Worker::end) {
        let numbers: BTreeSet<u32> = part.into_values().flatten().collect();
        assert_eq!(numbers.len() as u64, 4 * round, "every member of a broadcast has every packet");
    }
    let parts: Vec<_> = one.into_iter().map(Worker::end).collect();
    // Members that stay in the group keep their flows throughout. The flows of the killed member are assigned to the
    // other members, and later to the member that takes the free slot.
    let owners = |numbers: std::ops::Range<u32>| {
        let mut owners: BTreeMap<u16, usize> = BTreeMap::new();
        for (i, part) in parts.iter().enumerate() {
            for (flow, all) in part {
                if all.iter().any(|n| numbers.contains(n)) {
                    assert_eq!(owners.insert(*flow, i), None, "flow {flow} has two members");
                }
            }
        }
        owners
    };
    let (first, second, third, fourth) = (owners(0..1000), owners(1000..2000), owners(2000..3000), owners(3000..4000));
    assert!(first.len() < usize::from(FLOWS), "the killed member had flows");
    assert_eq!((second.len(), fourth.len()), (usize::from(FLOWS), usize::from(FLOWS)));
    assert_eq!(second, third, "a swap moves no flow");
    assert!(first.iter().all(|(flow, owner)| second[flow] == *owner), "members that stay keep their flows");
    let of_new: BTreeSet<u16> = fourth.iter().filter(|(_, owner)| **owner == 2).map(|(flow, _)| *flow).collect();
    let of_killed: BTreeSet<u16> = (0..FLOWS).filter(|flow| !first.contains_key(flow)).collect();
    assert_eq!(of_new, of_killed, "the member in the freed slot gets exactly the flows of the killed one");
}

#[test]
fn a_packet_language_program_forwards_to_an_interface_and_steers() {
    let test = "a_packet_language_program_forwards_to_an_interface_and_steers";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("va", "vb");
    let (_c, d) = sandbox.veth("vc", "vd");
    let dir = TempDir::new("language");
    let engine = Engine::start(&b, &dir, &["--source-kind", "tpacket"]);
    let program = "main = udp >-> inc 5 >-> mark 42 >-> forward \"vc\" >-> steer_flow";
    let output = engine.group("create", &["tee", program]);
    assert_eq!(output.status, Some(0), "{output:?}");
    let nowhere = engine.group("create", &["x", "main = forward \"nosuch0\""]);
    assert!(nowhere.status == Some(2) && nowhere.err.contains("no interface nosuch0"), "{nowhere:?}");
    let wrong = engine.group("swap", &["tee", "main = udp >-> steer_flo"]);
    assert!(wrong.status == Some(2) && wrong.err.contains("line 1, column 16"), "{wrong:?}");
    let workers: Vec<_> = (0..2).map(|i| Worker::join(&engine, "tee", dir.join(format!("{i}.pcap")))).collect();
    let mut far = RawReader::new(&d);
    let sent = frames(0, 4);
    RawSender::new(&a).send(&sent);
    let total = u64::from(FLOWS) * 4;
    until("all packets are forwarded", || engine.stats("tee")["interfaces"][0]["sent"] == total);
    let stats = engine.stats("tee");
    assert_eq!(
        (&stats["passed"], &stats["forwarded"], &stats["counters"]["5"]),
        (&total.into(), &total.into(), &total.into())
    );
    let received = far.at_least(sent.len(), std::time::Duration::from_millis(300), |frame| frame.len() == 64);
    assert_eq!(received.len(), sent.len());
    assert!(received == sent, "the same bytes in the same order");
    let parts: Vec<_> = workers.into_iter().map(Worker::end).collect();
    let flows: Vec<_> = parts.iter().flat_map(BTreeMap::keys).collect();
    assert_eq!((flows.len(), flows.iter().collect::<BTreeSet<_>>().len()), (usize::from(FLOWS), usize::from(FLOWS)));
    assert_eq!(engine.group("program", &["tee"]).out.trim_end(), program);
}

/// A running `netgrain group` command, whose messages and exit status the test reads.
struct Client {
    running: Running,
    err: BufReader<std::process::ChildStderr>,
}

impl Client {
    fn join(engine: &Engine, group: &str) -> Self {
        let mut client = Self::start(&["group", "join", "--socket", arg(&engine.groups), group]);
        let mut line = String::new();
        client.err.read_line(&mut line).expect("text");
        assert!(line.contains("slot"), "{line}");
        client
    }

    fn start(args: &[&str]) -> Self {
        let mut child =
            netgrain(args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the process starts");
        let err = BufReader::new(child.stderr.take().expect("a pipe"));
        Self { running: Running(child), err }
    }

    /// The exit status, and the messages since the last read.
    fn end(mut self) -> (Option<i32>, String) {
        let mut output = String::new();
        self.err.read_to_string(&mut output).expect("text");
        (self.running.0.wait().expect("the process ends").code(), output)
    }
}

#[test]
fn hangup_ends_members_and_listeners_cleanly() {
    let test = "hangup_ends_members_and_listeners_cleanly";
    if ignores_hangup() {
        return testkit::skip(test, "SIGHUP is ignored here");
    }
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (_a, b) = sandbox.veth("va", "vb");
    let dir = TempDir::new("hangup");
    let engine = Engine::start(&b, &dir, &["--source-kind", "tpacket"]);
    assert_eq!(engine.group("create", &["g", "copy"]).status, Some(0));
    let member = Client::join(&engine, "g");
    let listener = Client::start(&["listen", "--socket", arg(&dir.join("s.sock"))]);
    // The listener prints no message at its start; it installs its signal handlers before it connects.
    let status = format!("/proc/{}/status", listener.running.0.id());
    until("the listener handles SIGHUP", || {
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).map(str::trim);
        caught.and_then(|mask| u64::from_str_radix(mask, 16).ok()).is_some_and(|mask| mask & 1 == 1)
    });
    for client in [member, listener] {
        signal(&client.running.0, "HUP");
        let (status, output) = client.end();
        assert!(status == Some(0) && output.contains("0 missed"), "{status:?}: {output}");
    }
    until("the member has left", || engine.members("g") == 0);
}

#[test]
fn a_stopped_or_killed_engine_is_an_error_of_its_clients() {
    let test = "a_stopped_or_killed_engine_is_an_error_of_its_clients";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (_a, b) = sandbox.veth("va", "vb");
    let dir = TempDir::new("still");
    let mut engine = Engine::start(&b, &dir, &["--source-kind", "tpacket"]);
    assert_eq!(engine.group("create", &["g", "copy"]).status, Some(0));
    let member = Client::join(&engine, "g");
    signal(&engine.running.0, "STOP");
    let stopped = engine.group("stats", &["g"]);
    assert!(stopped.status == Some(2) && stopped.err.contains("has not responded for 10 s"), "{stopped:?}");
    signal(&engine.running.0, "CONT");
    assert_eq!(engine.group("stats", &["g"]).status, Some(0), "the engine continues");
    engine.running.0.kill().expect("the engine runs");
    let (status, output) = member.end();
    assert!(status == Some(1) && output.contains("without an end descriptor"), "{status:?}: {output}");
}

#[test]
fn group_attach_requires_exactly_one_of_interface_and_file() {
    let output = run(&["group", "attach", "-i", "nosuch0", "g"]);
    assert!(
        output.status == Some(2) && output.err.contains("--out-interface") && output.err.contains("--write"),
        "{output:?}"
    );
    let both = run(&["group", "attach", "-i", "nosuch0", "g", "--out-interface", "eth1", "-w", "x.pcap"]);
    assert!(both.status == Some(2) && both.err.contains("cannot be used with"), "{both:?}");
}

#[test]
fn members_of_a_deleted_group_report_its_deletion_not_the_engines_end() {
    let test = "members_of_a_deleted_group_report_its_deletion_not_the_engines_end";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (_a, b) = sandbox.veth("va", "vb");
    let dir = TempDir::new("deleted");
    let engine = Engine::start(&b, &dir, &["--source-kind", "tpacket"]);
    for group in ["g", "h"] {
        assert_eq!(engine.group("create", &[group, "copy"]).status, Some(0));
    }
    let (deleted, other) = (Client::join(&engine, "g"), Client::join(&engine, "h"));
    assert_eq!(engine.group("delete", &["g"]).status, Some(0));
    let (status, output) = deleted.end();
    assert!(status == Some(0) && output.contains("the group was deleted") && !output.contains("has ended"), "{output}");
    signal(&engine.running.0, "INT");
    let (_, output) = other.end();
    assert!(output.contains("the engine has ended") && !output.contains("deleted"), "{output}");
}

#[test]
fn a_failed_join_changes_no_file_and_a_failed_open_joins_no_group() {
    let test = "a_failed_join_changes_no_file_and_a_failed_open_joins_no_group";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (_a, b) = sandbox.veth("va", "vb");
    let dir = TempDir::new("target");
    let engine = Engine::start(&b, &dir, &["--source-kind", "tpacket"]);
    assert_eq!(engine.group("create", &["g", "copy"]).status, Some(0));
    let nowhere = engine.group("join", &["g", "-w", "/nonexist/x.pcap"]);
    assert!(nowhere.status == Some(2) && nowhere.err.contains("/nonexist/x.pcap"), "{nowhere:?}");
    assert!(!nowhere.err.contains("slot"), "{nowhere:?}");
    let (old, new) = (dir.join("old.pcap"), dir.join("new.pcap"));
    std::fs::write(&old, "a capture").expect("written");
    for path in [&old, &new] {
        assert_eq!(engine.group("join", &["nosuch", "-w", arg(path), "--force"]).status, Some(2));
    }
    assert_eq!(std::fs::read_to_string(&old).expect("the old file"), "a capture");
    assert!(!new.exists());
    let kept = engine.group("join", &["g", "-w", arg(&old), "--duration", "10ms"]);
    assert!(kept.status == Some(2) && kept.err.contains("old.pcap exists: --force replaces it"), "{kept:?}");
    assert_eq!(std::fs::read_to_string(&old).expect("the old file"), "a capture");
    let joined = engine.group("join", &["g", "-w", arg(&old), "--duration", "10ms", "--force"]);
    assert_eq!(joined.status, Some(0), "{joined:?}");
    assert_eq!(std::fs::read(&old).expect("written").len(), 24, "a header, and none of the old contents");
}

#[test]
fn list_and_stats_show_the_code_of_a_program_without_its_comments() {
    let test = "list_and_stats_show_the_code_of_a_program_without_its_comments";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (_a, b) = sandbox.veth("va", "vb");
    let dir = TempDir::new("headline");
    let engine = Engine::start(&b, &dir, &["--source-kind", "tpacket"]);
    // The comment is longer than the part of a program that a list of groups contains.
    let program = format!("-- {}\n{{- and\n more -}}\nmain = udp -- all of it\n", "words ".repeat(200));
    let file = dir.join("g.ng");
    std::fs::write(&file, program).expect("written");
    assert_eq!(engine.group("create", &["g", "-f", arg(&file)]).status, Some(0));
    for verb in ["list", "stats"] {
        let output = engine.group(verb, &[]);
        assert!(output.out.contains("main = udp") && !output.out.contains("words"), "{output:?}");
    }
}

#[test]
fn kernel_on_a_shared_interface_creates_no_host_interface() {
    let test = "kernel_on_a_shared_interface_creates_no_host_interface";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("va", "vb");
    let dir = TempDir::new("shared");
    let engine = Engine::start(&b, &dir, &["--source-kind", "tpacket"]);
    let output = engine.group("create", &["g", "main = udp >-> kernel"]);
    assert_eq!(output.status, Some(0), "{output:?}");
    // The dispatcher of a group joins the ring shortly after the group is created. The group receives only packets that
    // arrive after that.
    until("packets are counted", || {
        RawSender::new(&a).send(&frames(0, 1));
        engine.stats("g")["to_host"].as_u64() > Some(0)
    });
    assert_eq!(engine.stats("g")["interfaces"], serde_json::json!([]));
    assert!(sandbox.netlink().link(&format!("ng{}", b.index)).is_err(), "no host interface is created");
}

#[test]
fn invalid_group_commands_print_a_one_line_error() {
    let test = "invalid_group_commands_print_a_one_line_error";
    let no_engine = run(&["group", "list", "--socket", "/nowhere/at/all.groups"]);
    assert_eq!((no_engine.status, no_engine.err.lines().count()), (Some(2), 1), "{no_engine:?}");
    assert!(
        no_engine.err.contains("/nowhere/at/all.groups") && no_engine.err.contains("netgrain run"),
        "{no_engine:?}"
    );
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (_a, b) = sandbox.veth("va", "vb");
    let dir = TempDir::new("oneline");
    let engine = Engine::start(&b, &dir, &[]);
    let list = engine.group("list", &[]);
    assert_eq!((list.status, list.out.as_str()), (Some(1), ""), "{list:?}");
    assert_eq!(engine.group("create", &["g"]).status, Some(0));
    for (verb, args, word) in [
        ("create", &["g"][..], "already"),
        ("create", &["h", "--queues", "9"], "queue 9"),
        ("create", &["a/b"], "letters"),
        ("join", &["x"], "the engine has g"),
        ("join", &["g", "--class", "nosuch"], "not a class"),
        ("join", &["g", "--filter", "prot 5"], "filter"),
        ("set-weight", &["g", "5", "2"], "has no member"),
        ("delete", &["x"], "no group"),
    ] {
        let output = engine.group(verb, args);
        assert_eq!((output.status, output.err.lines().count()), (Some(2), 1), "{verb} {args:?}: {output:?}");
        assert!(output.err.contains(word), "{verb} {args:?}: {output:?}");
    }
    let program = engine.group("program", &["g"]);
    assert_eq!(program.out, "copy\n");
    assert_eq!(engine.group("delete", &["g"]).status, Some(0));
    assert_eq!(engine.group("list", &[]).status, Some(1));
}
