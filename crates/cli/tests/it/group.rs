//! `netgrain group` on a live port: several processes share what arrives, come, go, are killed, and the books close.

use crate::common;

use common::{Running, arg, ignores_hangup, netgrain, objects, run, signal, until, until_filtered};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use testkit::{Port, RawReader, RawSender, Sandbox, TempDir};
use wire::build::Frame;

const FLOWS: u16 = 200;

/// An engine that records a port.
struct Engine {
    running: Running,
    /// Kept open, so that it can say what it wants.
    _err: BufReader<std::process::ChildStderr>,
    groups: PathBuf,
}

impl Engine {
    fn start(port: &Port, dir: &TempDir, more: &[&str]) -> Self {
        let (store, socket) = (dir.join("store"), dir.join("s.sock"));
        let args = ["record", "-i", &port.name, "--store", arg(&store), "--socket", arg(&socket), "--ring", "32MiB"];
        let groups = dir.join("s.groups");
        // One before it may have been killed.
        let _ = std::fs::remove_file(&groups);
        let (running, err) = Running::start(&mut netgrain(&[&args[..], more].concat()));
        until("the door of its groups", || groups.exists());
        until_filtered(&running.0);
        Self { running, _err: err, groups }
    }

    fn group(&self, verb: &str, more: &[&str]) -> common::Said {
        run(&[&["group", verb, "--socket", arg(&self.groups)], more].concat())
    }

    fn books(&self, group: &str) -> serde_json::Value {
        let said = self.group("stats", &["--json", group]);
        let books = objects(&said.out).pop().unwrap_or_else(|| panic!("no books: {said:?}"));
        assert_eq!(books["accounting_errors"], serde_json::json!([]), "{books}");
        books
    }

    fn members(&self, group: &str) -> usize {
        self.books(group)["members"].as_array().map_or(0, Vec::len)
    }
}

/// A member that writes what it gets into a file.
struct Worker {
    running: Running,
    path: PathBuf,
}

impl Worker {
    fn join(engine: &Engine, group: &str, path: PathBuf) -> Self {
        let args = ["group", "join", "--socket", arg(&engine.groups), group, "-w", arg(&path)];
        let mut child = netgrain(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stderr.as_mut().expect("caught")).read_line(&mut line).expect("text");
        assert!(line.contains("place"), "{line}");
        until_filtered(&child);
        Self { running: Running(child), path }
    }

    /// Ends it, and returns what it got: the numbers of packets, by flow.
    fn end(mut self) -> BTreeMap<u16, Vec<u32>> {
        signal(&self.running.0, "INT");
        let status = self.running.0.wait().expect("it ends");
        assert_eq!(status.code(), Some(0), "it missed nothing");
        packets(&self.path)
    }
}

/// Frames by flow; each has its number and flow behind the headers.
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

/// So many packets of each flow, in both directions in turn, numbered from `first`.
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
fn a_port_is_split_over_four_processes_flow_by_flow_in_both_directions() {
    let test = "a_port_is_split_over_four_processes_flow_by_flow_in_both_directions";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("va", "vb");
    let dir = TempDir::new("split");
    let engine = Engine::start(&b, &dir, &["--source-kind", "tpacket"]);
    let said = engine.group("create", &["web", "steer udp"]);
    assert_eq!(said.status, Some(0), "{said:?}");
    let workers: Vec<_> = (0..4).map(|i| Worker::join(&engine, "web", dir.join(format!("{i}.pcap")))).collect();
    RawSender::new(&a).send(&frames(0, 10));
    let total = u64::from(FLOWS) * 10;
    until("all are judged", || engine.books("web")["passed"] == total);
    let parts: Vec<_> = workers.into_iter().map(Worker::end).collect();
    let mut owner = BTreeMap::new();
    let mut seen: BTreeSet<u32> = BTreeSet::new();
    for (i, part) in parts.iter().enumerate() {
        assert!(part.len() > 10, "worker {i} has {} flows", part.len());
        for (flow, numbers) in part {
            assert_eq!(owner.insert(*flow, i), None, "flow {flow} is with two");
            assert!(numbers.is_sorted(), "in order within a flow");
            seen.extend(numbers);
        }
    }
    assert_eq!((owner.len(), seen.len() as u64), (usize::from(FLOWS), total), "every packet is with somebody, once");
    until("they have left", || engine.members("web") == 0);
    let books = engine.books("web");
    assert_eq!(books["departed"]["delivered"], total, "{books}");
    assert_eq!(books["departed"]["seen"], total, "{books}");
}

#[test]
fn broadcast_reaches_all_and_a_killed_member_a_swap_and_a_newcomer_disturb_nobody() {
    let test = "broadcast_reaches_all_and_a_killed_member_a_swap_and_a_newcomer_disturb_nobody";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("va", "vb");
    let dir = TempDir::new("broadcast");
    let engine = Engine::start(&b, &dir, &["--source-kind", "af-xdp", "--dedicated"]);
    assert_eq!(engine.group("create", &["all", "copy"]).status, Some(0));
    assert_eq!(engine.group("create", &["one", "steer"]).status, Some(0));
    let wire = RawSender::new(&a);
    let judged = |n: u64| {
        until("all are judged", || engine.books("one")["received"] == n && engine.books("all")["received"] == n)
    };
    let all: Vec<_> = (0..2).map(|i| Worker::join(&engine, "all", dir.join(format!("all{i}.pcap")))).collect();
    let mut one: Vec<_> = (0..3).map(|i| Worker::join(&engine, "one", dir.join(format!("one{i}.pcap")))).collect();
    let round = u64::from(FLOWS) * 2;
    wire.send(&frames(0, 2));
    judged(round);
    // Killed, not ended: its place is free as soon as the kernel has closed its connection.
    drop(one.remove(1));
    until("the dead one is out", || engine.members("one") == 2);
    wire.send(&frames(1_000, 2));
    judged(2 * round);
    let swapped = engine.group("swap", &["one", "steer udp port 53", "--json"]);
    assert_eq!(objects(&swapped.out)[0]["generation"], 2, "{swapped:?}");
    let broken = engine.group("swap", &["one", "steer prot 5"]);
    assert_eq!(broken.status, Some(2), "{broken:?}");
    assert_eq!(broken.err.lines().count(), 1, "{broken:?}");
    wire.send(&frames(2_000, 2));
    judged(3 * round);
    one.push(Worker::join(&engine, "one", dir.join("one3.pcap")));
    wire.send(&frames(3_000, 2));
    judged(4 * round);
    for part in all.into_iter().map(Worker::end) {
        let numbers: BTreeSet<u32> = part.into_values().flatten().collect();
        assert_eq!(numbers.len() as u64, 4 * round, "everybody has everything");
    }
    let parts: Vec<_> = one.into_iter().map(Worker::end).collect();
    // Who stayed keeps its flows through all of it; what the dead one had is with others in between, and with whoever
    // took its place afterwards.
    let owners = |numbers: std::ops::Range<u32>| {
        let mut owners: BTreeMap<u16, usize> = BTreeMap::new();
        for (i, part) in parts.iter().enumerate() {
            for (flow, all) in part {
                if all.iter().any(|n| numbers.contains(n)) {
                    assert_eq!(owners.insert(*flow, i), None, "flow {flow} is with two");
                }
            }
        }
        owners
    };
    let (first, second, third, fourth) = (owners(0..1000), owners(1000..2000), owners(2000..3000), owners(3000..4000));
    assert!(first.len() < usize::from(FLOWS), "the dead one had some");
    assert_eq!((second.len(), fourth.len()), (usize::from(FLOWS), usize::from(FLOWS)));
    assert_eq!(second, third, "a swap moves nothing");
    assert!(first.iter().all(|(flow, owner)| second[flow] == *owner), "who stayed keeps its flows");
    let taken: BTreeSet<u16> = fourth.iter().filter(|(_, owner)| **owner == 2).map(|(flow, _)| *flow).collect();
    let dead: BTreeSet<u16> = (0..FLOWS).filter(|flow| !first.contains_key(flow)).collect();
    assert_eq!(taken, dead, "who takes the place of the dead gets its flows, and no others");
}

#[test]
fn a_program_of_the_language_forwards_through_a_port_and_steers() {
    let test = "a_program_of_the_language_forwards_through_a_port_and_steers";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("va", "vb");
    let (_c, d) = sandbox.veth("vc", "vd");
    let dir = TempDir::new("language");
    let engine = Engine::start(&b, &dir, &["--source-kind", "tpacket"]);
    let program = "main = udp >-> inc 5 >-> mark 42 >-> forward \"vc\" >-> steer_flow";
    let said = engine.group("create", &["tee", program]);
    assert_eq!(said.status, Some(0), "{said:?}");
    let nowhere = engine.group("create", &["x", "main = forward \"nosuch0\""]);
    assert!(nowhere.status == Some(2) && nowhere.err.contains("no interface nosuch0"), "{nowhere:?}");
    let wrong = engine.group("swap", &["tee", "main = udp >-> steer_flo"]);
    assert!(wrong.status == Some(2) && wrong.err.contains("line 1, column 16"), "{wrong:?}");
    let workers: Vec<_> = (0..2).map(|i| Worker::join(&engine, "tee", dir.join(format!("{i}.pcap")))).collect();
    let mut far = RawReader::new(&d);
    let sent = frames(0, 4);
    RawSender::new(&a).send(&sent);
    let total = u64::from(FLOWS) * 4;
    until("all are through", || engine.books("tee")["interfaces"][0]["sent"] == total);
    let books = engine.books("tee");
    assert_eq!(
        (&books["passed"], &books["forwarded"], &books["counters"]["5"]),
        (&total.into(), &total.into(), &total.into())
    );
    let heard = far.at_least(sent.len(), std::time::Duration::from_millis(300), |frame| frame.len() == 64);
    assert_eq!(heard.len(), sent.len());
    assert!(heard == sent, "byte for byte, in order");
    let parts: Vec<_> = workers.into_iter().map(Worker::end).collect();
    let flows: Vec<_> = parts.iter().flat_map(BTreeMap::keys).collect();
    assert_eq!((flows.len(), flows.iter().collect::<BTreeSet<_>>().len()), (usize::from(FLOWS), usize::from(FLOWS)));
    assert_eq!(engine.group("program", &["tee"]).out.trim_end(), program);
}

/// Somebody beside an engine whose last words matter.
struct ListenSession {
    running: Running,
    err: BufReader<std::process::ChildStderr>,
}

impl ListenSession {
    fn join(engine: &Engine, group: &str) -> Self {
        let mut ear = Self::start(&["group", "join", "--socket", arg(&engine.groups), group]);
        let mut line = String::new();
        ear.err.read_line(&mut line).expect("text");
        assert!(line.contains("place"), "{line}");
        ear
    }

    fn start(args: &[&str]) -> Self {
        let mut child = netgrain(args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
        let err = BufReader::new(child.stderr.take().expect("caught"));
        Self { running: Running(child), err }
    }

    /// Its exit status, and what it said since.
    fn end(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.err.read_to_string(&mut said).expect("text");
        (self.running.0.wait().expect("it ends").code(), said)
    }
}

#[test]
fn who_has_a_terminal_no_more_ends_in_good_order() {
    let test = "who_has_a_terminal_no_more_ends_in_good_order";
    if ignores_hangup() {
        return testkit::skip(test, "SIGHUP is ignored here");
    }
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (_a, b) = sandbox.veth("va", "vb");
    let dir = TempDir::new("hangup");
    let engine = Engine::start(&b, &dir, &["--source-kind", "tpacket"]);
    assert_eq!(engine.group("create", &["g", "copy"]).status, Some(0));
    let member = ListenSession::join(&engine, "g");
    let listener = ListenSession::start(&["listen", "--socket", arg(&dir.join("s.sock"))]);
    // It does not say when it has begun; its handlers are there before it asks to be let in.
    let status = format!("/proc/{}/status", listener.running.0.id());
    until("it handles SIGHUP", || {
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).map(str::trim);
        caught.and_then(|mask| u64::from_str_radix(mask, 16).ok()).is_some_and(|mask| mask & 1 == 1)
    });
    for ear in [member, listener] {
        signal(&ear.running.0, "HUP");
        let (status, said) = ear.end();
        assert!(status == Some(0) && said.contains("0 missed"), "{status:?}: {said}");
    }
    until("the member has left", || engine.members("g") == 0);
}

#[test]
fn an_engine_that_stands_still_or_was_killed_is_no_success() {
    let test = "an_engine_that_stands_still_or_was_killed_is_no_success";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (_a, b) = sandbox.veth("va", "vb");
    let dir = TempDir::new("still");
    let mut engine = Engine::start(&b, &dir, &["--source-kind", "tpacket"]);
    assert_eq!(engine.group("create", &["g", "copy"]).status, Some(0));
    let member = ListenSession::join(&engine, "g");
    signal(&engine.running.0, "STOP");
    let asked = engine.group("stats", &["g"]);
    assert!(asked.status == Some(2) && asked.err.contains("has not responded for 10 s"), "{asked:?}");
    signal(&engine.running.0, "CONT");
    assert_eq!(engine.group("stats", &["g"]).status, Some(0), "it goes on");
    engine.running.0.kill().expect("it runs");
    let (status, said) = member.end();
    assert!(status == Some(1) && said.contains("gone without an end"), "{status:?}: {said}");
}

#[test]
fn what_is_to_be_attached_is_asked_for_with_both_that_are_possible() {
    let said = run(&["group", "attach", "-i", "nosuch0", "g"]);
    assert!(said.status == Some(2) && said.err.contains("--out-interface") && said.err.contains("--write"), "{said:?}");
    let both = run(&["group", "attach", "-i", "nosuch0", "g", "--out-interface", "eth1", "-w", "x.pcap"]);
    assert!(both.status == Some(2) && both.err.contains("cannot be used with"), "{both:?}");
}

#[test]
fn members_of_a_deleted_group_hear_that_and_not_that_the_engine_has_ended() {
    let test = "members_of_a_deleted_group_hear_that_and_not_that_the_engine_has_ended";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (_a, b) = sandbox.veth("va", "vb");
    let dir = TempDir::new("deleted");
    let engine = Engine::start(&b, &dir, &["--source-kind", "tpacket"]);
    for group in ["g", "h"] {
        assert_eq!(engine.group("create", &[group, "copy"]).status, Some(0));
    }
    let (deleted, other) = (ListenSession::join(&engine, "g"), ListenSession::join(&engine, "h"));
    assert_eq!(engine.group("delete", &["g"]).status, Some(0));
    let (status, said) = deleted.end();
    assert!(status == Some(0) && said.contains("the group was deleted") && !said.contains("has ended"), "{said}");
    signal(&engine.running.0, "INT");
    let (_, said) = other.end();
    assert!(said.contains("the engine has ended") && !said.contains("deleted"), "{said}");
}

#[test]
fn a_file_that_cannot_be_written_costs_no_seat_and_a_refused_seat_costs_no_file() {
    let test = "a_file_that_cannot_be_written_costs_no_seat_and_a_refused_seat_costs_no_file";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (_a, b) = sandbox.veth("va", "vb");
    let dir = TempDir::new("target");
    let engine = Engine::start(&b, &dir, &["--source-kind", "tpacket"]);
    assert_eq!(engine.group("create", &["g", "copy"]).status, Some(0));
    let nowhere = engine.group("join", &["g", "-w", "/nonexist/x.pcap"]);
    assert!(nowhere.status == Some(2) && nowhere.err.contains("/nonexist/x.pcap"), "{nowhere:?}");
    assert!(!nowhere.err.contains("place"), "{nowhere:?}");
    let (old, new) = (dir.join("old.pcap"), dir.join("new.pcap"));
    std::fs::write(&old, "a capture").expect("written");
    for path in [&old, &new] {
        assert_eq!(engine.group("join", &["nosuch", "-w", arg(path), "--force"]).status, Some(2));
    }
    assert_eq!(std::fs::read_to_string(&old).expect("still there"), "a capture");
    assert!(!new.exists());
    let kept = engine.group("join", &["g", "-w", arg(&old), "--duration", "10ms"]);
    assert!(kept.status == Some(2) && kept.err.contains("old.pcap exists: --force replaces it"), "{kept:?}");
    assert_eq!(std::fs::read_to_string(&old).expect("still there"), "a capture");
    let heard = engine.group("join", &["g", "-w", arg(&old), "--duration", "10ms", "--force"]);
    assert_eq!(heard.status, Some(0), "{heard:?}");
    assert_eq!(std::fs::read(&old).expect("written").len(), 24, "a header, and nothing of what was there");
}

#[test]
fn a_line_about_a_program_shows_code_and_not_its_comments() {
    let test = "a_line_about_a_program_shows_code_and_not_its_comments";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (_a, b) = sandbox.veth("va", "vb");
    let dir = TempDir::new("headline");
    let engine = Engine::start(&b, &dir, &["--source-kind", "tpacket"]);
    // Longer than what is sent of a program in a list.
    let program = format!("-- {}\n{{- and\n more -}}\nmain = udp -- all of it\n", "words ".repeat(200));
    let file = dir.join("g.ng");
    std::fs::write(&file, program).expect("written");
    assert_eq!(engine.group("create", &["g", "-f", arg(&file)]).status, Some(0));
    for verb in ["list", "stats"] {
        let said = engine.group(verb, &[]);
        assert!(said.out.contains("main = udp") && !said.out.contains("words"), "{said:?}");
    }
}

#[test]
fn the_host_of_a_shared_port_has_its_packets_anyway_and_gets_no_device() {
    let test = "the_host_of_a_shared_port_has_its_packets_anyway_and_gets_no_device";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("va", "vb");
    let dir = TempDir::new("shared");
    let engine = Engine::start(&b, &dir, &["--source-kind", "tpacket"]);
    let said = engine.group("create", &["g", "main = udp >-> kernel"]);
    assert_eq!(said.status, Some(0), "{said:?}");
    // The group has what comes after its dispatcher has joined the ring, a moment after it was made.
    until("packets are judged", || {
        RawSender::new(&a).send(&frames(0, 1));
        engine.books("g")["to_host"].as_u64() > Some(0)
    });
    assert_eq!(engine.books("g")["interfaces"], serde_json::json!([]));
    assert!(sandbox.netlink().link(&format!("ng{}", b.index)).is_err(), "no device is made");
}

#[test]
fn what_cannot_be_done_is_said_in_one_line() {
    let test = "what_cannot_be_done_is_said_in_one_line";
    let nobody = run(&["group", "list", "--socket", "/nowhere/at/all.groups"]);
    assert_eq!((nobody.status, nobody.err.lines().count()), (Some(2), 1), "{nobody:?}");
    assert!(nobody.err.contains("/nowhere/at/all.groups") && nobody.err.contains("netgrain run"), "{nobody:?}");
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
        let said = engine.group(verb, args);
        assert_eq!((said.status, said.err.lines().count()), (Some(2), 1), "{verb} {args:?}: {said:?}");
        assert!(said.err.contains(word), "{verb} {args:?}: {said:?}");
    }
    let program = engine.group("program", &["g"]);
    assert_eq!(program.out, "copy\n");
    assert_eq!(engine.group("delete", &["g"]).status, Some(0));
    assert_eq!(engine.group("list", &[]).status, Some(1));
}
