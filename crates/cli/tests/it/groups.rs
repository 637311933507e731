//! Groups that the configuration defines; members that the engine serves itself: files, interfaces and the host; and
//! the permissions of a user who did not start the engine.

use crate::common;

use common::{
    Output, PublicDir, Running, WAIT_MAX, arg, netgrain, objects, run, run_command, signal, until, until_filtered,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command};
use std::time::Duration;
use sys::netlink::Address;
use testkit::{Port, RawReader, RawSender, Sandbox, TempDir};
use wire::build::Frame;

const NOBODY: u32 = 65_534;

const FLOWS: u16 = 40;

/// Frames of [`FLOWS`] flows. In each frame, the number of its flow follows the headers.
fn frames(rounds: u32) -> Vec<Vec<u8>> {
    let frame = |n: u32| {
        let flow = (n % u32::from(FLOWS)) as u16;
        let mut bytes = vec![0; 64];
        Frame::udp4([10, 0, (flow >> 8) as u8, flow as u8], 1000 + flow, [192, 168, 0, 1], 53).fill(&mut bytes);
        bytes[50..52].copy_from_slice(&flow.to_be_bytes());
        bytes
    };
    (0..rounds * u32::from(FLOWS)).map(frame).collect()
}

/// The number of frames of each flow in a pcap file.
fn flows(path: &Path) -> BTreeMap<u16, u32> {
    let mut out = BTreeMap::new();
    let file = std::fs::read(path).unwrap_or_default();
    let mut at = 24;
    while at + 16 <= file.len() {
        let caplen = u32::from_le_bytes(file[at + 8..at + 12].try_into().expect("four")) as usize;
        let frame = &file[at + 16..at + 16 + caplen];
        *out.entry(u16::from_be_bytes([frame[50], frame[51]])).or_default() += 1;
        at += 16 + caplen;
    }
    out
}

fn sum(flows: &BTreeMap<u16, u32>) -> u32 {
    flows.values().sum()
}

/// An engine that captures an interface, with a ring socket.
struct Engine {
    running: Running,
    err: BufReader<ChildStderr>,
    groups: PathBuf,
}

impl Engine {
    fn start(port: &Port, dir: &Path, more: &[&str]) -> Self {
        let (store, socket) = (dir.join("store"), dir.join("s.sock"));
        let listen = format!("listen.socket={}", arg(&socket));
        let args =
            ["run", "-i", &port.name, "--store", arg(&store), "-q", "--set", "capture.ring=8MiB", "--set", &listen];
        let (running, err) = Running::start(&mut netgrain(&[&args[..], more].concat()));
        let groups = dir.join("s.groups");
        until("the control socket exists", || groups.exists());
        until_filtered(&running.0);
        Self { running, err, groups }
    }

    fn group(&self, verb: &str, more: &[&str]) -> Output {
        run(&[&["group", verb, "--socket", arg(&self.groups)], more].concat())
    }

    fn stats(&self, group: &str) -> serde_json::Value {
        let output = self.group("stats", &["--json", group]);
        let stats = objects(&output.out).pop().unwrap_or_else(|| panic!("no statistics: {output:?}"));
        assert_eq!(stats["accounting_errors"], serde_json::json!([]), "{stats}");
        stats
    }

    /// Reads the messages of the engine until a line contains `part`.
    fn message(&mut self, part: &str) -> String {
        let mut line = String::new();
        while !line.contains(part) {
            line.clear();
            assert!(
                self.err.read_line(&mut line).expect("text") > 0,
                "the engine ended without a message with {part:?}"
            );
        }
        line
    }
}

#[test]
fn a_replay_through_configured_groups_writes_every_packet() {
    let dir = TempDir::new("a_replay_through_configured_groups");
    let frames = frames(25);
    let (capture, config) = (dir.join("in.pcap"), dir.join("c.toml"));
    let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0];
    for (n, frame) in frames.iter().enumerate() {
        let header = [1_700_000_000 + n as u32 / 100, 0, frame.len() as u32, frame.len() as u32];
        header.iter().for_each(|word| file.extend(word.to_le_bytes()));
        file.extend(frame);
    }
    std::fs::write(&capture, file).expect("written");
    std::fs::write(dir.join("some.ng"), "main = filter (has_src_port 1003) >-> inc 2").expect("written");
    std::fs::write(
        &config,
        "[[group]]\nname = \"all\"\nmembers = [\"file:all.pcap\"]\n\
         [[group]]\nname = \"two\"\nprogram = \"main = ip >-> steer_flow\"\n\
         members = [\"file:a.pcap\", \"file:b.pcap\"]\n\
         [[group]]\nname = \"some\"\nfile = \"some.ng\"\nmembers = [\"file:some.pcap,max_size=1000\"]\n",
    )
    .expect("written");
    let checked = run(&["config", "--check", arg(&config)]);
    assert_eq!(checked.status, Some(0), "{checked:?}");
    let output = run(&["run", "-r", arg(&capture), "--config", arg(&config), "--set", "capture.ring=8MiB", "--json"]);
    assert_eq!(output.status, Some(0), "{output:?}");
    let last = objects(&output.out).pop().expect("a report");
    let groups = last["groups"].as_array().expect("the groups");
    let group = |name: &str| groups.iter().find(|g| g["group"] == name).unwrap_or_else(|| panic!("{groups:?}"));
    for g in groups {
        assert_eq!((&g["received"], &g["skipped"]), (&1000.into(), &0.into()), "from the first packet on: {g}");
        assert_eq!(g["accounting_errors"], serde_json::json!([]));
    }
    assert_eq!(sum(&flows(&dir.join("all.pcap"))), 1000);
    let (a, b) = (flows(&dir.join("a.pcap")), flows(&dir.join("b.pcap")));
    assert_eq!(sum(&a) + sum(&b), 1000);
    assert!(!a.is_empty() && !b.is_empty() && a.keys().all(|flow| !b.contains_key(flow)), "each flow is in one file");
    // A pcap file of at most 1000 bytes holds 12 packets: the header has 24 bytes, each record has 80 bytes.
    assert_eq!(flows(&dir.join("some.pcap")), BTreeMap::from([(3, 12)]));
    let some = group("some");
    let sink = &some["members"][0]["sink"];
    assert_eq!((&sink["sent"], &sink["failed"]), (&12.into(), &13.into()), "{some}");
    assert_eq!(some["counters"]["2"], 25);
    // A new run leaves the member files of an earlier run unchanged, and writes to new names in the same directory.
    let again = run(&["run", "-r", arg(&capture), "--config", arg(&config), "--set", "capture.ring=8MiB"]);
    assert!(again.status == Some(0) && again.out.contains("all.pcap exists already"), "{again:?}");
    assert_eq!((sum(&flows(&dir.join("all.pcap"))), sum(&flows(&dir.join("all-2.pcap")))), (1000, 1000));
}

#[test]
fn sighup_swaps_changed_programs_and_leaves_the_others() {
    let test = "sighup_swaps_changed_programs_and_leaves_the_others";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (_a, b) = sandbox.veth("va", "vb");
    let dir = TempDir::new("hangup");
    let config = dir.join("c.toml");
    let write = |text: &str| std::fs::write(&config, text).expect("written");
    write("[[group]]\nname = \"web\"\nprogram = \"steer tcp\"\n[[group]]\nname = \"old\"\n[[group]]\nname = \"dns\"\n");
    let mut engine = Engine::start(&b, dir.path(), &["--config", arg(&config)]);
    write("[[group]]\nname = \"web\"\nprogram = \"main = tcpp\"\n");
    signal(&engine.running.0, "HUP");
    let line = engine.message("nothing is changed");
    assert!(line.contains("line 3: group.program"), "{line}");
    write(
        "[[group]]\nname = \"web\"\nprogram = \"main = tcp >-> steer_flow\"\n[[group]]\nname = \
         \"dns\"\n[[group]]\nname = \"new\"\n",
    );
    signal(&engine.running.0, "HUP");
    engine.message("configuration reloaded: changed group");
    let output = engine.group("list", &["--json"]);
    let generations: BTreeMap<String, u64> = objects(&output.out)
        .iter()
        .map(|g| (g["group"].as_str().expect("a name").to_owned(), g["generation"].as_u64().expect("a number")))
        .collect();
    let expected = [("dns", 1), ("new", 1), ("web", 2)].map(|(name, n)| (name.to_owned(), n));
    assert_eq!(generations, BTreeMap::from(expected));
    // A changed list of members takes effect only at the next start of `run`; the message says that the reload changes
    // nothing.
    write(
        "[[group]]\nname = \"web\"\nprogram = \"main = tcp >-> steer_flow\"\nmembers = [\"interface:va\"]\n\
         [[group]]\nname = \"dns\"\n[[group]]\nname = \"new\"\n",
    );
    signal(&engine.running.0, "HUP");
    let line = engine.message("\n");
    let expected = "configuration reloaded: nothing changes; a restart is needed to change members of group web";
    assert!(line.contains(expected), "{line}");
    let web = engine.stats("web");
    assert!(web["execution"] == "native" || web["reason"].is_string(), "{web}");
}

#[test]
fn attached_interfaces_share_the_load_until_they_are_detached() {
    let test = "attached_interfaces_share_the_load_until_they_are_detached";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("va", "vb");
    let (_, d) = sandbox.veth("vc", "vd");
    let (_, f) = sandbox.veth("ve", "vf");
    let dir = TempDir::new("balance");
    let engine = Engine::start(&b, dir.path(), &["--set", "capture.source=tpacket"]);
    assert_eq!(engine.group("create", &["lb", "main = udp >-> steer_flow"]).status, Some(0));
    for (port, more) in [("vc", &[][..]), ("ve", &["--filter", "udp"])] {
        let output = engine.group("attach", &[&["lb", "--out-interface", port], more].concat());
        assert_eq!(output.status, Some(0), "{output:?}");
    }
    let nowhere = engine.group("attach", &["lb", "--out-interface", "nosuch0"]);
    assert!(nowhere.status == Some(2) && nowhere.err.contains("no interface nosuch0"), "{nowhere:?}");
    let mut readers = [&d, &f].map(RawReader::new);
    RawSender::new(&a).send(&frames(10));
    let sent_by_all = |stats: &serde_json::Value| -> u64 {
        stats["members"].as_array().into_iter().flatten().filter_map(|m| m["sink"]["sent"].as_u64()).sum()
    };
    until("all packets are sent", || sent_by_all(&engine.stats("lb")) == 400);
    let stats = engine.stats("lb");
    let members = stats["members"].as_array().expect("members");
    let received: Vec<BTreeSet<u16>> = readers
        .iter_mut()
        .zip(members)
        .map(|(reader, member)| {
            let sent = member["sink"]["sent"].as_u64().expect("a number") as usize;
            let all = reader.at_least(sent, Duration::from_millis(300), |frame| frame.len() == 64);
            assert_eq!(all.len(), sent, "{stats}");
            all.iter().map(|f| u16::from_be_bytes([f[50], f[51]])).collect()
        })
        .collect();
    assert!(received.iter().all(|flows| flows.len() > 5), "{received:?}");
    assert!(received[0].is_disjoint(&received[1]) && received[0].len() + received[1].len() == usize::from(FLOWS));
    assert_eq!(engine.group("detach", &["lb", "1"]).status, Some(0));
    assert_eq!(engine.group("detach", &["lb", "1"]).status, Some(2));
    let sent_before = received[0].len() as u64 * 10;
    RawSender::new(&a).send(&frames(1));
    until("the first interface gets all flows", || sent_by_all(&engine.stats("lb")) == u64::from(FLOWS) + sent_before);
}

#[test]
fn a_full_file_is_reported_once_and_stays_in_the_statistics() {
    let test = "a_full_file_is_reported_once_and_stays_in_the_statistics";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("va", "vb");
    let dir = TempDir::new("full");
    let config = dir.join("c.toml");
    let group = "[[group]]\nname = \"g\"\nprogram = \"main = filter (has_src_port 1003)\"\n";
    std::fs::write(&config, format!("{group}members = [\"file:full.pcap,max_size=1000\"]\n")).expect("written");
    let more = ["--set", "capture.source=tpacket", "--config", arg(&config)];
    let mut engine = Engine::start(&b, dir.path(), &more);
    assert_eq!(engine.group("stats", &["g"]).status, Some(0));
    RawSender::new(&a).send(&frames(20));
    // A pcap file of at most 1000 bytes holds 12 packets: the header has 24 bytes, each record has 80 bytes.
    let of = |stats: &serde_json::Value| [&stats["sent"], &stats["failed"]].map(|n| n.as_u64().expect("a number"));
    until("all packets are written or failed", || of(&engine.stats("g")["members"][0]["sink"]) == [12, 8]);
    assert_eq!(
        sum(&flows(&dir.join("full.pcap"))),
        12,
        "the file has the packets that the statistics count while the member is attached"
    );
    let line = engine.message("the file is full");
    assert!(line.contains("full.pcap"), "{line}");
    assert_eq!(engine.group("stats", &["g"]).status, Some(1), "packets that are not written are unhealthy");
    assert_eq!(engine.group("detach", &["g", "0"]).status, Some(0));
    let output = engine.group("stats", &["g"]);
    assert_eq!(output.status, Some(1), "{output:?}");
    assert!(output.out.contains("closed interfaces and files: sent 12, failed 8"), "{output:?}");
    assert_eq!(of(&engine.stats("g")["departed"]), [12, 8]);
    signal(&engine.running.0, "INT");
    let Engine { running, err, .. } = engine;
    assert!(!running.end(err).err.contains("is full"), "the message is printed again");
}

/// Interface names that no other test has, since the sockets of all engines are in one directory.
fn own_names() -> [String; 4] {
    ["a", "b", "c", "d"].map(|end| format!("gl{}{end}", std::process::id()))
}

#[test]
fn group_commands_query_each_interface_and_name_the_one_without_an_engine() {
    let test = "group_commands_query_each_interface_and_name_the_one_without_an_engine";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let [a, b, c, d] = own_names();
    let (dir, (_, b), (_, d)) = (TempDir::new("two-doors"), sandbox.veth(&a, &b), sandbox.veth(&c, &d));
    let start = |port: &Port| {
        let store = dir.join(&port.name);
        let args =
            ["record", "-i", &port.name, "--store", arg(&store), "--source-kind", "tpacket", "--ring", "8MiB", "-q"];
        let (running, err) = Running::start(&mut netgrain(&args));
        let namespace = std::fs::metadata("/proc/thread-self/ns/net").expect("proc").ino();
        let control = Path::new("/run/netgrain").join(format!("{}.netns-{namespace}.groups", port.name));
        until("the control socket exists", || control.exists());
        (running, err)
    };
    let engines = [start(&b), start(&d)];
    let group = |verb: &str, ports: &str, more: &[&str]| run(&[&["group", verb, "-i", ports], more].concat());
    let both = format!("{},{}", b.name, d.name);
    assert_eq!(group("create", &b.name, &["one"]).status, Some(0));
    assert_eq!(group("create", &d.name, &["two"]).status, Some(0));
    for verb in ["list", "stats"] {
        let output = group(verb, &both, &["--json"]);
        let names: Vec<String> =
            objects(&output.out).iter().map(|g| g["group"].as_str().unwrap_or_default().to_owned()).collect();
        assert_eq!(
            (output.status, names),
            (Some(0), vec!["one".to_owned(), "two".to_owned()]),
            "{verb}: {}",
            output.err
        );
        let output = group(verb, &format!("{},nosuch0", b.name), &[]);
        assert!(output.status == Some(2) && output.err.contains("nosuch0.netns-"), "{verb}: {output:?}");
    }
    let output = group("stats", &both, &["one"]);
    assert!(
        output.status == Some(2) && output.err.contains(".groups: no group") && output.err.contains(&d.name),
        "{output:?}"
    );
    let output = group("delete", &both, &["one"]);
    assert!(output.status == Some(2) && output.err.contains(&format!("not from {}", d.name)), "{output:?}");
    for (running, err) in engines {
        signal(&running.0, "INT");
        running.end(err);
    }
}

#[test]
fn lines_of_members_and_logs_have_queue_class_mark_and_group() {
    let test = "lines_of_members_and_logs_have_queue_class_mark_and_group";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (dir, (a, b)) = (TempDir::new("lines"), sandbox.veth("va", "vb"));
    let mut engine = Engine::start(&b, dir.path(), &["--set", "capture.source=tpacket"]);
    for (group, program) in [("d", "main = classify 3 >-> mark 77 >-> log_packet"), ("e", "main = udp >-> mark 5")] {
        assert_eq!(engine.group("create", &[group, program]).status, Some(0));
        // The queue byte of a descriptor also contains the generation of the program.
        assert_eq!(engine.group("swap", &[group, &format!("{program} >-> inc 1")]).status, Some(0));
    }
    for (group, class, reported) in [("d", "3", "class 3 mark 77"), ("e", "default", "class default mark 5")] {
        let args = ["group", "join", "--socket", arg(&engine.groups), group, "--class", class, "--print", "-c", "2"];
        let mut command = netgrain(&args);
        let member = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn();
        let mut member = Running(member.expect("the process starts"));
        let mut line = String::new();
        BufReader::new(member.0.stderr.as_mut().expect("a pipe")).read_line(&mut line).expect("text");
        assert!(line.contains("slot"), "{line}");
        RawSender::new(&a).send(&frames(1));
        let mut out = String::new();
        member.0.stdout.as_mut().expect("a pipe").read_to_string(&mut out).expect("text");
        assert_eq!(out.lines().count(), 2, "{out}");
        assert!(out.lines().all(|line| line.contains(" q0 ") && line.ends_with(reported)), "{out}");
        member.0.wait().expect("the process ends");
    }
    let line = engine.message("group d at vb: ");
    assert!(line.contains("10.0.0."), "{line}");
    signal(&engine.running.0, "INT");
    let Engine { running, err, .. } = engine;
    running.end(err);
}

#[test]
fn a_full_map_is_counted_and_a_swap_reports_maps_that_begin_empty() {
    let test = "a_full_map_is_counted_and_a_swap_reports_maps_that_begin_empty";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("va", "vb");
    let dir = TempDir::new("map");
    let config = dir.join("c.toml");
    let write = |program: &str| {
        let text = format!("[[group]]\nname = \"g\"\nprogram = \"\"\"{program}\"\"\"\n");
        std::fs::write(&config, text).expect("written");
    };
    let with_map_of = |capacity: u32| format!("m = up_to {capacity} (flow_map 0 key_ip_src)\nmain = incr_fstate m");
    write(&with_map_of(3));
    let more = ["--set", "capture.source=tpacket", "--config", arg(&config)];
    let mut engine = Engine::start(&b, dir.path(), &more);
    RawSender::new(&a).send(&frames(2));
    let sent = u64::from(FLOWS) * 2;
    until("the group has processed all packets", || engine.stats("g")["received"].as_u64() >= Some(sent));
    let map = serde_json::json!({"map": "m", "used": 3, "capacity": 3, "refused": sent - 6});
    assert_eq!(engine.stats("g")["maps"], serde_json::json!([map]));
    let output = engine.group("stats", &["g"]);
    assert!(output.out.contains("map m: 3 of 3 entries, refused 74"), "{output:?}");
    let output = engine.group("swap", &["g", &with_map_of(5)]);
    assert!(output.err.contains("m starts empty (up_to 5 instead of 3)"), "{output:?}");
    let output = engine.group("swap", &["g", &(with_map_of(5) + " >-> mark 1")]);
    assert!(output.err.contains("keeps m"), "{output:?}");
    write(&with_map_of(7));
    signal(&engine.running.0, "HUP");
    let line = engine.message("generation 4");
    assert!(line.contains("m starts empty (up_to 7 instead of 5)"), "{line}");
}

#[test]
fn a_dedicated_interface_passes_packets_to_the_host_and_sends_its_replies() {
    let test = "a_dedicated_interface_passes_packets_to_the_host_and_sends_its_replies";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("va", "vb");
    let dir = TempDir::new("host");
    let engine = Engine::start(&b, dir.path(), &["--dedicated", "--set", "capture.source=af-xdp"]);
    let output = engine.group("create", &["fw", "main = when (has_dst_port 5300) kernel >-> drop"]);
    assert_eq!(output.status, Some(0), "{output:?}");
    let device = format!("ng{}", b.index);
    let mut netlink = sandbox.netlink();
    let link = netlink.link(&device).expect("the host interface").index;
    let port = netlink.link(&b.name).expect("the port");
    let ip = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));
    netlink.add_address(&Address { link, ip, prefix: 24 }).expect("an address");
    let host = UdpSocket::bind((ip, 5300)).expect("a socket");
    host.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
    host.set_broadcast(true).expect("SO_BROADCAST");
    let mut far = RawReader::new(&a);
    let datagram = |from: u16, to: u16| {
        let mut udp = vec![0; 60];
        Frame::udp4([10, 77, 0, 2], from, [10, 77, 0, 1], to).fill(&mut udp);
        udp[..6].copy_from_slice(&port.mac.expect("Ethernet"));
        udp
    };
    let (udp, other) = (datagram(4000, 5300), datagram(4000, 5301));
    // The group receives the packets that arrive after its dispatcher has joined the ring, shortly after its creation.
    let wire = RawSender::new(&a);
    let mut received = 0;
    until("the host receives a packet", || {
        wire.send(&[&other, &udp]);
        received += u64::from(host.recv_from(&mut [0; 100]).is_ok());
        received > 0
    });
    host.set_read_timeout(Some(WAIT_MAX)).expect("a timeout");
    // Sends both datagrams, waits until the host has received the second, and returns the statistics that count it. On
    // a busy machine packets of earlier rounds may arrive in between; they are received and counted first.
    let mut send_both = |port: u16| {
        wire.send(&[&other, &datagram(port, 5300)]);
        while {
            received += 1;
            host.recv_from(&mut [0; 100]).expect("a datagram").1.port() != port
        } {}
        until("the statistics count the packet", || engine.stats("fw")["to_host"].as_u64() >= Some(received));
        engine.stats("fw")
    };
    let (before, stats) = (send_both(4001), send_both(4002));
    let more = |key: &str| stats[key].as_u64().zip(before[key].as_u64()).map(|(now, then)| now - then);
    assert_eq!(
        (more("to_host"), more("dropped")),
        (Some(1), Some(2)),
        "one packet to the host, the others dropped: {stats}"
    );
    let port = &stats["interfaces"][0];
    assert_eq!((&port["sent"], &port["interface"]), (&stats["to_host"], &device.as_str().into()), "{stats}");
    // The host replies through this interface, and the reply arrives at the other end of the wire.
    host.send_to(b"an answer", ("10.77.0.255", 4000)).expect("sent");
    let replies = far.at_least(1, Duration::ZERO, |frame| frame.ends_with(b"an answer"));
    assert_eq!(replies.len(), 1, "the captured interface sends the reply");
    signal(&engine.running.0, "INT");
    let Engine { running, err, .. } = engine;
    running.end(err);
    assert!(sandbox.netlink().link(&device).is_err(), "the host interface is removed with the engine");
}

/// This test also checks that the engine, under its filter of system calls, may determine whether the earlier process
/// has ended.
#[test]
fn the_host_interface_of_a_killed_engine_is_replaced() {
    let test = "the_host_interface_of_a_killed_engine_is_replaced";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (_a, b) = sandbox.veth("va", "vb");
    let dir = TempDir::new("killed");
    let engine = Engine::start(&b, dir.path(), &["--dedicated", "--set", "capture.source=af-xdp"]);
    let mut killed = Command::new("true").spawn().expect("a process");
    killed.wait().expect("the process ends");
    let this = sys::process::Process::this().expect("/proc");
    let killed = sys::process::Process { id: killed.id(), ..this };
    let device = format!("ng{}", b.index);
    let (stale, _) = sandbox.veth(&device, &format!("{device}e"));
    sandbox.netlink().set_alias(stale.index, &format!("netgrain host {killed}")).expect("an alias");
    let output = engine.group("create", &["fw", "main = when (has_dst_port 5300) kernel >-> drop"]);
    assert_eq!(output.status, Some(0), "{output:?}");
    assert_ne!(sandbox.netlink().link(&device).expect("the new pair").index, stale.index);
    signal(&engine.running.0, "INT");
    let Engine { running, err, .. } = engine;
    assert_eq!(running.end(err).status, Some(0));
}

#[test]
fn another_user_may_do_only_what_the_group_policy_permits() {
    let test = "another_user_may_do_only_what_the_group_policy_permits";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (_a, b) = sandbox.veth("va", "vb");
    let dir = PublicDir::new("policy");
    let binary = dir.join("netgrain");
    let engine = Engine::start(&b, &dir.0, &["--set", "listen.owner=nobody"]);
    let as_nobody = |verb: &str, more: &[&str]| {
        let mut command = Command::new(&binary);
        command.args(["group", verb, "--socket", arg(&engine.groups)]).args(more);
        run_command(command.uid(NOBODY).gid(NOBODY))
    };
    let count = ["--duration", "10ms"];
    assert_eq!(engine.group("create", &["ours"]).status, Some(0));
    assert_eq!(engine.group("create", &["all", "--policy", "shared"]).status, Some(0));
    for (verb, more) in
        [("join", &["ours", "--duration", "10ms"][..]), ("swap", &["ours", "drop"]), ("delete", &["ours"])]
    {
        let output = as_nobody(verb, more);
        assert!(output.status == Some(2) && output.err.contains("restricted to user 0"), "{verb}: {output:?}");
    }
    let joined = as_nobody("join", &[&["all"], &count[..]].concat());
    assert!(joined.err.contains("slot 0"), "{joined:?}");
    assert_eq!(as_nobody("swap", &["all", "drop udp"]).status, Some(0));
    let file = dir.join("stolen.pcap");
    let output = as_nobody("attach", &["all", "-w", arg(&file)]);
    assert!(output.status == Some(2) && output.err.contains("only root"), "{output:?}");
    assert!(!file.exists());
    assert_eq!(as_nobody("create", &["theirs"]).status, Some(0));
    assert_eq!(engine.group("swap", &["theirs", "copy"]).status, Some(0), "root may use every group");
    // A user that is neither the owner nor in the group of the socket cannot connect.
    let mut command = Command::new(&binary);
    command.args(["group", "list", "--socket", arg(&engine.groups)]);
    let other_user = run_command(command.uid(NOBODY - 1).gid(NOBODY - 1));
    assert!(other_user.status == Some(2) && other_user.err.contains("ermission"), "{other_user:?}");
    let mut rest = String::new();
    let Engine { mut running, mut err, .. } = engine;
    signal(&running.0, "INT");
    running.0.wait().expect("the process ends");
    err.read_to_string(&mut rest).expect("text");
}

#[test]
fn a_group_of_two_interfaces_sends_both_directions_to_one_member() {
    let test = "a_group_of_two_interfaces_sends_both_directions_to_one_member";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("va", "vb");
    let (c, d) = sandbox.veth("vc", "vd");
    let dir = TempDir::new("two-ports");
    let config = dir.join("c.toml");
    // The group has one state for each flow, even if the packets of the flow arrive on several of its interfaces. A
    // missing member interface does not affect the other members and groups.
    std::fs::write(
        &config,
        "[[group]]\nname = \"tap\"\n\
         program = \"flows = flow_map 0 key_ip_proto\\nmain = udp >-> incr_fstate flows >-> steer_flow\"\n\
         members = [\"file:one.pcap\", \"file:two.pcap\"]\n\
         [[group]]\nname = \"left\"\ninterfaces = [\"vb\"]\nprogram = \"main = udp\"\n\
         [[group]]\nname = \"lost\"\nmembers = [\"interface:nosuch0\"]\n",
    )
    .expect("written");
    let args = ["run", "-i", &b.name, "-i", &d.name, "--config", arg(&config), "--json"];
    let more = [
        "--set",
        "capture.ring=8MiB",
        "--set",
        "capture.source=tpacket",
        "--set",
        "listen.socket=none",
        "--metrics",
        "127.0.0.1:19644",
    ];
    let (running, err) = Running::start(&mut netgrain(&[&args[..], &more].concat()));
    // The number of packets that the group has passed; `None` until both interfaces are captured.
    let passed = || -> Option<u64> {
        let text = page("127.0.0.1:19644").ok()?;
        let of_both =
            ["vb", "vd"].iter().all(|i| text.contains(&format!("netgrain_offered_packets_total{{interface=\"{i}\"")));
        let lines = text
            .lines()
            .filter(|l| l.starts_with("netgrain_group_passed_packets_total{") && l.contains("group=\"tap\""));
        let numbers: Vec<u64> = lines.map(|l| l.rsplit(' ').next()?.parse().ok()).collect::<Option<_>>()?;
        (of_both && !numbers.is_empty()).then(|| numbers.iter().sum())
    };
    until("both interfaces are captured", || passed().is_some());
    let forward = frames(5);
    // The reply frames: source and destination are exchanged.
    let reverse: Vec<Vec<u8>> = forward
        .iter()
        .map(|frame| {
            let mut bytes = frame.clone();
            bytes[26..30].copy_from_slice(&frame[30..34]);
            bytes[30..34].copy_from_slice(&frame[26..30]);
            bytes[34..36].copy_from_slice(&frame[36..38]);
            bytes[36..38].copy_from_slice(&frame[34..36]);
            bytes
        })
        .collect();
    RawSender::new(&a).send(&forward);
    RawSender::new(&c).send(&reverse);
    until("the group has passed all packets", || passed().is_some_and(|n| n >= 10 * u64::from(FLOWS)));
    signal(&running.0, "INT");
    let output = running.end(err);
    assert!(output.out.contains("group lost: there is no interface nosuch0"), "{output:?}");
    let (one, two) = (flows(&dir.join("one.pcap")), flows(&dir.join("two.pcap")));
    assert_eq!(one.len() + two.len(), usize::from(FLOWS), "no flow is in both: {one:?} {two:?}");
    assert!(one.len() > 5 && two.len() > 5, "{one:?} {two:?}");
    assert!(one.values().chain(two.values()).all(|n| *n == 10), "five packets in each direction: {one:?} {two:?}");
    let groups: Vec<serde_json::Value> =
        objects(&output.out).iter().filter_map(|o| o["groups"].as_array().cloned()).flatten().collect();
    let group = |name: &str| groups.iter().find(|g| g["group"] == name).unwrap_or_else(|| panic!("{output:?}"));
    assert_eq!(groups.len(), 3, "each group once: {groups:?}");
    let maps = group("tap")["maps"].as_array().expect("a list");
    assert!(maps.len() == 1 && maps[0]["used"] == 1, "one map for both interfaces: {maps:?}");
    assert_eq!(group("left")["sources"], serde_json::json!(["vb"]));
    let received = |name: &str| group(name)["received"].as_u64().expect("a number");
    assert!(received("left") < received("tap") && received("left") >= 200);
}

/// The page `/metrics`.
fn metrics(address: &str) -> String {
    page(address).expect("the metrics page")
}

fn page(address: &str) -> std::io::Result<String> {
    use std::io::Write;
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

#[test]
fn the_metrics_have_the_statistics_of_groups() {
    let test = "the_metrics_have_the_statistics_of_groups";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("va", "vb");
    let dir = TempDir::new("metered-groups");
    let address = "127.0.0.1:19643";
    let more = ["--set", "capture.source=tpacket", "--metrics", address];
    let engine = Engine::start(&b, dir.path(), &more);
    assert_eq!(engine.group("create", &["web", "main = udp >-> steer_flow"]).status, Some(0));
    assert_eq!(engine.group("attach", &["web", "-w", arg(&dir.join("web.pcap"))]).status, Some(0));
    RawSender::new(&a).send(&frames(2));
    until("all packets are delivered", || engine.stats("web")["passed"].as_u64() == Some(2 * u64::from(FLOWS)));
    let text = metrics(address);
    for line in [
        "netgrain_group_passed_packets_total{interface=\"vb\",group=\"web\"} 80",
        "netgrain_group_members{interface=\"vb\",group=\"web\"} 1",
        "netgrain_group_class_packets_total{interface=\"vb\",group=\"web\",class=\"default\"} 80",
        "# TYPE netgrain_group_member_fill_ratio gauge",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}: {text}");
    }
    assert_eq!(testkit::exposition_problems(&text), [""; 0]);
    assert_eq!(testkit::promtool_problems(test, &text), "");
    let delivered = "netgrain_group_member_delivered_packets_total{interface=\"vb\",group=\"web\",slot=\"0\"";
    assert!(text.lines().any(|l| l.starts_with(delivered) && l.ends_with(" 80")), "{text}");
}

#[test]
fn closed_standard_error_stops_neither_recording_nor_groups() {
    let test = "closed_standard_error_stops_neither_recording_nor_groups";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("va", "vb");
    let dir = TempDir::new("deaf");
    let engine = Engine::start(&b, dir.path(), &["--set", "capture.source=tpacket"]);
    assert_eq!(engine.group("create", &["loud", "main = log_msg \"a\\nb\""]).status, Some(0));
    // Closes the read end of the engine's standard error.
    let Engine { running, err, groups } = engine;
    drop(err);
    let stats =
        || objects(&run(&["group", "stats", "--json", "--socket", arg(&groups)]).out).pop().expect("the statistics");
    for round in 1..=2u64 {
        RawSender::new(&a).send(&frames(1));
        until("the group has processed all packets", || stats()["received"].as_u64() >= Some(round * u64::from(FLOWS)));
    }
    // SIGHUP makes the engine itself write a message.
    signal(&running.0, "HUP");
    RawSender::new(&a).send(&frames(1));
    until("the group has processed all packets", || stats()["received"].as_u64() >= Some(3 * u64::from(FLOWS)));
    assert!(stats()["counters"]["logged"].as_u64() >= Some(100));
}
