//! The binary on live interfaces in a network namespace of the test: recording, listeners, and the demo.

use crate::common;

use common::{Output, Running, arg, netgrain, objects, run, run_command, signal, until, walk};
use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::sync::Barrier;
use testkit::{Port, RawSender, Sandbox, TempDir};

/// A running `netgrain record` that captures an interface and admits listeners.
struct Recorder {
    running: Running,
    err: std::io::BufReader<std::process::ChildStderr>,
}

impl Recorder {
    fn start(port: &Port, store: &Path, socket: &Path, more: &[&str]) -> Self {
        let args = ["record", "-i", &port.name, "--store", arg(store), "--socket", arg(socket), "--ring", "8MiB"];
        let (running, err) = Running::start(&mut netgrain(&[&args[..], more].concat()));
        until("the ring socket exists", || socket.exists());
        Self { running, err }
    }

    fn interrupt(self) -> Output {
        signal(&self.running.0, "INT");
        self.running.end(self.err)
    }
}

fn frames(count: u32) -> Vec<Vec<u8>> {
    let frame = |n: u32| {
        let mut bytes = vec![0x5a; 60 + n as usize % 1400];
        bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
        bytes[14..18].copy_from_slice(&n.to_be_bytes());
        bytes
    };
    (0..count).map(frame).collect()
}

#[test]
fn sent_frames_are_recorded_and_a_listener_pipes_them_to_tcpdump() {
    let test = "sent_frames_are_recorded_and_a_listener_pipes_them_to_tcpdump";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let Some(mut tcpdump) = testkit::tool(test, "tcpdump") else { return };
    let (a, b) = sandbox.veth("va", "vb");
    let dir = TempDir::new("pipe_tcpdump");
    let (store, socket) = (dir.join("store"), dir.join("s"));
    for kind in ["af-xdp", "tpacket"] {
        let recorder = Recorder::start(&b, &store.join(kind), &socket, &["--source-kind", kind]);
        let args = ["listen", "--socket", arg(&socket), "-w", "-", "--format", "pcap", "-c", "500", "--lossless"];
        let mut listener =
            netgrain(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the process starts");
        let mut out = listener.stdout.take().expect("a pipe");
        // The listener writes the file header when it has attached.
        let mut header = [0; 24];
        out.read_exact(&mut header).expect("a header");
        RawSender::new(&a).send(&frames(500));
        let mut listener = Running(listener);
        let mut file = header.to_vec();
        out.read_to_end(&mut file).expect("the packets");
        assert_eq!(listener.0.wait().expect("the process ends").code(), Some(0));
        let output = recorder.interrupt();
        assert_eq!(output.status, Some(0), "{output:?}");
        // The capture that the listener writes equals the stored file.
        let stored = walk(&store.join(kind)).into_iter().find(|p| p.extension().is_some_and(|e| e == "pcap"));
        assert!(
            std::fs::read(stored.expect("a file")).expect("the file") == file,
            "{kind}: the listener wrote other bytes"
        );
        let path = dir.join("received.pcap");
        std::fs::write(&path, &file).expect("a file");
        let counted = run_command(tcpdump.args(["-nn", "--count", "-r"]).arg(&path));
        assert!(counted.out.starts_with("500 packets"), "{counted:?}");
        tcpdump = std::process::Command::new("tcpdump");
    }
}

/// The length of a capture of `count` frames without its file header.
fn bytes_of(count: u32) -> usize {
    frames(count).iter().map(|frame| 16 + frame.len()).sum()
}

#[test]
fn interfaces_of_one_name_in_two_namespaces_are_captured_separately() {
    let test = "interfaces_of_one_name_in_two_namespaces_are_captured_separately";
    if Sandbox::new(test).is_none() {
        return;
    }
    let both = Barrier::new(2);
    let received = std::thread::scope(|scope| {
        let start = |count: u32| {
            let both = &both;
            scope.spawn(move || {
                let sandbox = Sandbox::new(test).expect("a second sandbox");
                let (a, _b) = sandbox.veth("va", "vb");
                let dir = TempDir::new("namesakes");
                let args = ["record", "-i", "vb", "--source-kind", "tpacket", "--ring", "8MiB", "--store"];
                let (running, err) = Running::start(netgrain(&args).arg(dir.join("store")));
                both.wait();
                let mut listen = netgrain(&["listen", "-i", "vb", "-w", "-", "--format", "pcap", "--lossless"]);
                let mut listener = Running(listen.stdout(Stdio::piped()).spawn().expect("the process starts"));
                let mut out = listener.0.stdout.take().expect("a pipe");
                out.read_exact(&mut [0; 24]).expect("a header");
                RawSender::new(&a).send(&frames(count));
                let mut first = vec![0; bytes_of(count)];
                out.read_exact(&mut first).expect("the packets");
                both.wait();
                signal(&running.0, "INT");
                let output = running.end(err);
                assert_eq!(output.status, Some(0), "{output:?}");
                let mut rest = Vec::new();
                out.read_to_end(&mut rest).expect("no other packets");
                rest.len() + first.len()
            })
        };
        [1, 3].map(start).map(|thread| thread.join().expect("no panic"))
    });
    assert_eq!(received, [bytes_of(1), bytes_of(3)], "each listener receives the packets of its own namespace");
}

#[test]
fn listeners_succeed_when_their_pipe_closes_or_the_engine_ends() {
    let test = "listeners_succeed_when_their_pipe_closes_or_the_engine_ends";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("va", "vb");
    let dir = TempDir::new("enough");
    let socket = dir.join("s");
    let recorder = Recorder::start(&b, &dir.join("store"), &socket, &[]);
    let start = |more: &[&str]| {
        let mut command = netgrain(&[&["listen", "--socket", arg(&socket)], more].concat());
        Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the process starts"))
    };
    let (mut piped, mut counts) = (start(&["-w", "-"]), start(&["--json"]));
    let mut header = [0; 24];
    let mut out = piped.0.stdout.take().expect("a pipe");
    out.read_exact(&mut header).expect("a header");
    drop(out);
    let wire = RawSender::new(&a);
    until("the listener ends", || {
        wire.send(&frames(10));
        piped.0.try_wait().expect("a child").is_some()
    });
    assert_eq!(piped.0.wait().expect("the process ends").code(), Some(0));
    let output = recorder.interrupt();
    assert_eq!(output.status, Some(0), "{output:?}");
    assert!(!socket.exists(), "the socket still exists");
    let mut text = String::new();
    counts.0.stdout.take().expect("a pipe").read_to_string(&mut text).expect("text");
    assert_eq!(counts.0.wait().expect("the process ends").code(), Some(0));
    assert!(objects(&text).last().expect("a report")["report"]["missed"] == 0, "{text}");
}

#[test]
fn generator_recorder_and_checker_agree_on_a_live_interface() {
    let test = "generator_recorder_and_checker_agree_on_a_live_interface";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("va", "vb");
    for port in [&a, &b] {
        // With a queueing discipline on the veth interfaces, the sender waits instead of dropping frames.
        sandbox.netlink().add_fifo(port.index, 1000).expect("a queue");
    }
    let dir = TempDir::new("wire");
    let store = dir.join("store");
    let mut recorder = Recorder::start(&b, &store, &dir.join("s"), &["--json", "--dedicated", "--filter", "udp"]);
    let generated = run(&["gen", "-i", "va", "imix,flows=1k", "--packets", "20k", "--rate", "40kpps", "--json"]);
    assert_eq!(generated.status, Some(0), "{generated:?}");
    recorder.running.read_reports_until("all frames are counted", |live| live["offered"] == 20_000);
    let output = recorder.interrupt();
    let objects = objects(&output.out);
    let report = &objects.last().expect("a report")["report"];
    let checked = run(&["check", arg(&store), "--sent", "20k", "--json"]);
    let verdict = &common::objects(&checked.out)[0];
    let lost = report["lost_total"].as_u64().expect("a number");
    assert_eq!((report["residue"].as_i64(), report["offered"].as_u64()), (Some(0), Some(20_000)), "{report}");
    assert_eq!((verdict["missing"].as_u64(), &verdict["frames"]), (Some(lost), &report["stored"]));
    assert_eq!((output.status, checked.status), (Some(i32::from(lost > 0)), Some(i32::from(lost > 0))));
}

#[test]
fn the_live_demo_is_complete_and_removes_its_files() {
    let test = "the_live_demo_is_complete_and_removes_its_files";
    // The test is skipped if this user may not create network namespaces. The demo creates its own namespace.
    let Some(sandbox) = Sandbox::new(test) else { return };
    let dir = TempDir::new("demo");
    let sockets = || walk(Path::new("/run/netgrain")).into_iter().filter(|p| arg(p).contains("ng-demo")).count();
    let before = sockets();
    // On a busy machine the demo may lose packets: it counts them and fails, and the test repeats it.
    let is_complete = (0..5).any(|_| {
        let mut command = netgrain(&["demo", "--duration", "3s", "--rate", "5kpps", "--json"]);
        let output = run_command(command.env("TMPDIR", dir.path()));
        let demo = &objects(&output.out)[0];
        let report = &demo["report"];
        assert_eq!(report["interface"], "ng-demo1");
        assert!(walk(dir.path()).is_empty() && sockets() == before);
        let number = |value: &serde_json::Value| value.as_u64().unwrap_or_else(|| panic!("no number: {output:?}"));
        let (sent, lost) = (number(&demo["sent"]["sent"]) + number(&demo["scanned"]), number(&report["lost_total"]));
        if lost == 0 {
            assert_eq!(output.status, Some(0), "{output:?}");
            common::assert_demo_is_complete(demo);
            return true;
        }
        assert_eq!((output.status, number(&report["offered"])), (Some(1), sent), "{output:?}");
        assert_eq!((number(&report["stored"]) + lost, &report["residue"]), (sent, &0.into()), "{output:?}");
        false
    });
    if !is_complete {
        testkit::skip(test, "this machine is so busy that each of five demos lost packets");
    }
    assert!(sandbox.netlink().link("ng-demo0").is_err(), "the demo interface is not in this namespace");
}

#[test]
fn an_interface_from_which_another_program_captures_is_shared() {
    let test = "an_interface_from_which_another_program_captures_is_shared";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (_, b) = sandbox.veth("va", "vb");
    let dir = TempDir::new("another-program");
    let record = |more: &[&str]| {
        let args = ["record", "-i", "vb", "--store", arg(dir.path()), "--ring", "8MiB", "--socket", "none", "-q"];
        let output = run(&[&args[..], &["--duration", "100ms"], more].concat());
        assert_eq!(output.status, Some(0), "{output:?}");
        output.err
    };
    // For the processes that this test starts, the socket of the test is the socket of another program.
    let socket = sys::packet::PacketSocket::open().expect("a packet socket");
    socket.bind(b.index, Some(3)).expect("the interface");
    let shared = record(&[]);
    assert!(
        shared.contains("vb: TPACKET_V3, because other programs receive from this interface (1 packet"),
        "{shared}"
    );
    for more in [&["--dedicated"][..], &["--source-kind", "af-xdp"]] {
        let taken = record(more);
        assert!(taken.contains("they receive nothing from it while AF_XDP captures it"), "{more:?}: {taken}");
    }
    drop(socket);
    let free = record(&[]);
    assert!(free.contains("vb: AF_XDP, because the host does not use this interface"), "{free}");
}

#[test]
fn a_capture_of_an_interface_that_is_down_begins_with_a_warning() {
    let test = "a_capture_of_an_interface_that_is_down_begins_with_a_warning";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("va", "vb");
    let dir = TempDir::new("down");
    let more = ["--duration", "100ms", "--socket", "none", "-q"];
    let capture = |verb| {
        let output = run(&[&[verb, "-i", "vb", "--store", arg(dir.path())][..], &more].concat());
        assert_eq!(output.status, Some(0), "{output:?}");
        output.err
    };
    assert!(!capture("record").contains("no packets arrive"));
    sandbox.netlink().set_up(a.index, false).expect("the peer is down");
    assert!(capture("record").contains("netgrain: vb: the interface has no carrier"));
    sandbox.netlink().set_up(b.index, false).expect("the interface is down");
    for verb in ["record", "run"] {
        let err = capture(verb);
        assert!(err.contains("netgrain: vb: the interface is down") && err.contains("ip link set vb up"), "{err}");
    }
}
