//! Tests of packet language programs on a live interface, in the kernel and in the engine thread, and of swaps while
//! packets arrive.

use crate::common;

use bpf::{Asm, Frames, Helper, Program, Reg};
use capture::auto::SourceKind;
use common::{WAIT_MAX, end, plan, port, start, stop, until, until_offered};
use interface_program::{ProgramPlan, ProgramReport};
use netgrain_engine::{Capture, EngineError, Plan, SocketPlan, SourcePlan};
use ring::{Desc, Listener, Mode};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testkit::{ChildTest, Port, RawReader, RawSender, Sandbox, TempDir, VethOptions};
use wire::EtherType;
use wire::build::Frame;

const QUIET: Duration = Duration::from_millis(300);

fn text(text: &str) -> ProgramPlan {
    ProgramPlan { name: "test".into(), text: text.into() }
}

fn live(b: &Port, kind: SourceKind, program: &str, dir: &Path) -> Plan {
    let socket = SocketPlan {
        path: dir.join("s"),
        mode: 0o600,
        uid: None,
        gid: None,
        allow_lossless: false,
        forward: Vec::new(),
    };
    let source = SourcePlan::Interface(port(&b.name, kind));
    Plan { program: Some(text(program)), socket: Some(socket), ..plan(source, &dir.join(format!("{kind:?}"))) }
}

fn udp(host: u8, port: u16) -> Vec<u8> {
    let mut bytes = [0; 60];
    Frame::udp4([10, 0, 0, host], 1000, [10, 0, 1, 1], port).fill(&mut bytes).to_vec()
}

fn program_of(capture: &Capture) -> ProgramReport {
    capture.report().program.expect("a program")
}

/// Appends to `all` the descriptors of the packets that have arrived at the listeners.
fn descs(listeners: &mut [Listener], all: &mut Vec<Desc>) {
    let mut batch = Vec::new();
    for listener in listeners {
        loop {
            listener.next(1024, &mut batch);
            if batch.is_empty() {
                break;
            }
            all.extend(batch.iter().filter(|d| d.is_packet()).copied());
        }
    }
}

/// Creates a veth pair `c`–`d` in which `c` accepts redirected XDP frames.
fn egress_pair(sandbox: &Sandbox) -> (Port, Port) {
    let (c, d) = sandbox.veth("c", "d");
    sys::ethtool::Offload::Gro.set(&d.name, true).expect("GRO");
    (c, d)
}

const EACH: &str = "main = when (has_port 1) drop >-> when (has_port 2) (forward \"c\" >-> drop) \
                    >-> when (has_port 3) (kernel >-> drop) >-> mark 42 >-> steer_flow";

#[test]
fn every_verdict_is_executed_and_counted_in_kernel_and_user_space() {
    let test = "every_verdict_is_executed_and_counted_in_kernel_and_user_space";
    let Some(sandbox) = Sandbox::new(test) else { return };
    for (kind, in_kernel) in [(SourceKind::AfXdp, true), (SourceKind::Tpacket, false)] {
        let dir = TempDir::new(&format!("xdp-{kind:?}"));
        let (a, b) = sandbox.veth(&format!("a{kind:?}"), &format!("b{kind:?}"));
        let (c, d) = if in_kernel {
            egress_pair(&sandbox)
        } else {
            (
                Port { name: "c".into(), index: 0 },
                Port { name: "d".into(), index: sandbox.netlink().link("d").expect("d").index },
            )
        };
        assert_eq!(c.name, "c");
        let plan = live(&b, kind, EACH, dir.path());
        let (mut host, mut out) = (RawReader::new(&b), RawReader::new(&d));
        let capture = start(&plan);
        assert_eq!(program_of(&capture).in_kernel > 0, in_kernel, "{:?}", program_of(&capture));
        let mut listeners = ring::attach(&dir.join("s"), Mode::Lossy, "test").expect("attach");
        let sent: Vec<_> = (0..40u8).map(|n| udp(n, u16::from(n % 5))).collect();
        RawSender::new(&a).send(&sent);
        until_offered(&capture, 40);
        let mut seen = Vec::new();
        until("sixteen packets are in the ring", || {
            descs(&mut listeners, &mut seen);
            seen.len() >= 16
        });
        assert!(seen.iter().all(|d| d.mark == 42), "{seen:?}");
        let hashes: std::collections::BTreeSet<u32> = seen.iter().map(|d| d.hash).collect();
        assert_eq!(hashes.len(), 16, "each flow has its own hash");
        let of = |rest: u8| sent.iter().skip(rest.into()).step_by(5).cloned().collect::<Vec<_>>();
        assert_eq!(out.at_least(8, QUIET, |_| true), of(2), "{kind:?}: frames of the egress interface");
        let for_host = if in_kernel { of(3) } else { sent.clone() };
        assert_eq!(host.at_least(for_host.len(), QUIET, |_| true), for_host, "{kind:?}: frames to the host");
        let ended = stop(capture, &plan);
        let counts = &ended.report.counts;
        assert_eq!((counts.stored, counts.filtered, counts.lost_total), (16, 24, 0), "{:?}", ended.report);
        let program = ended.report.program.as_ref().expect("a program");
        let (kernel, user) = (&program.kernel, &program.user);
        let in_kernel_part = [kernel.dropped, kernel.forwarded, kernel.to_host, kernel.unsent];
        let in_user_part = [user.dropped, user.forwarded, user.to_host, user.unsent];
        assert_eq!(
            if in_kernel { (in_kernel_part, in_user_part) } else { (in_user_part, in_kernel_part) },
            ([8, 8, 8, 0], [0; 4]),
            "{program:?}"
        );
        assert!(ended.report.is_healthy(), "{:?}", ended.report);
    }
}

/// The kernel part does not decide packets with three VLAN tags or with the port of VXLAN, which may contain another
/// packet.
#[test]
fn undecided_packets_get_the_same_verdict_in_user_space() {
    let test = "undecided_packets_get_the_same_verdict_in_user_space";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (dir, (a, b)) = (TempDir::new("xdp"), sandbox.veth("a", "b"));
    let (_c, d) = egress_pair(&sandbox);
    let plan = live(&b, SourceKind::AfXdp, EACH, dir.path());
    let mut out = RawReader::new(&d);
    let capture = start(&plan);
    let tagged = |port: u16| {
        let mut bytes = [0; 72];
        let frame = Frame::udp4([10, 0, 0, 9], 1000, [10, 0, 1, 1], port);
        frame.tag(EtherType(0x8100), 1).tag(EtherType(0x8100), 2).tag(EtherType(0x8100), 3).fill(&mut bytes).to_vec()
    };
    let sent = [tagged(1), tagged(2), tagged(9), udp(1, 4789), udp(1, 1)];
    RawSender::new(&a).send(&sent);
    until_offered(&capture, 5);
    // The kernel removes the outermost tag of a frame before the reader receives it.
    let expected = tagged(2);
    assert_eq!(out.at_least(1, QUIET, |_| true), [[&expected[..12], &expected[16..]].concat()]);
    let ended = stop(capture, &plan);
    let program = ended.report.program.as_ref().expect("a program");
    assert_eq!((program.undecided, program.user.dropped, program.user.forwarded), (4, 1, 1), "{program:?}");
    assert_eq!((program.kernel.dropped, ended.report.counts.stored), (1, 2));
    assert!(ended.report.is_healthy(), "{:?}", ended.report);
}

/// Each program marks packets with its own number, which increases with each swap. Packets arrive in order, so the
/// marks never decrease. Some programs put their generation into every packet in the kernel, some only until the queue
/// has acknowledged the generation, and some do not run in the kernel.
#[test]
fn swaps_under_traffic_count_every_packet_and_are_in_order() {
    const SWAPS: u32 = 150;
    let test = "swaps_under_traffic_count_every_packet_and_are_in_order";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let _out = sandbox.veth("out", "far");
    for (kind, rest) in
        [(SourceKind::AfXdp, "steer_flow"), (SourceKind::AfXdp, "steer_rrobin"), (SourceKind::Tpacket, "steer_flow")]
    {
        let dir = TempDir::new(&format!("xdp-{}", rest.len()));
        let (a, b) = sandbox.veth(&format!("a{kind:?}{}", rest.len()), &format!("b{kind:?}{}", rest.len()));
        // Most of these programs drop the packets of one UDP port in the kernel. If the user part dropped a packet, the
        // parts of two programs would have been mixed.
        let numbered = |n: u32| {
            let first = match n % 6 {
                2 => "inc 1".to_owned(),
                5 => "forward \"out\"".to_owned(),
                _ => format!("when (has_port {}) drop", 5 + n % 4),
            };
            format!("main = {first} >-> mark {n} >-> {rest}")
        };
        let plan = live(&b, kind, &numbered(1), dir.path());
        let capture = start(&plan);
        let mut listeners = ring::attach(&dir.join("s"), Mode::Lossy, "test").expect("attach");
        let stop_sending = AtomicBool::new(false);
        let (mut seen, mut sent) = (Vec::new(), 0u64);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let wire = RawSender::new(&a);
                let frames: Vec<_> = (0..64u8).map(|n| udp(n, 5 + u16::from(n % 4))).collect();
                let mut sent = 0;
                while !stop_sending.load(Ordering::Relaxed) {
                    wire.send(&frames);
                    sent += frames.len() as u64;
                    // The frames are sent slowly enough that neither the receive ring nor the listener's ring
                    // overflows.
                    std::thread::sleep(Duration::from_micros(500));
                }
                sent
            });
            for n in 2..=SWAPS + 1 {
                let report =
                    capture.swap_program(&text(&numbered(n))).expect("a valid program").expect("a new program");
                let is_user_only = n % 6 == 5 || kind == SourceKind::Tpacket;
                assert_eq!((report.generation, report.in_kernel == 0), (n, is_user_only), "{report:?}");
                descs(&mut listeners, &mut seen);
            }
            std::thread::sleep(Duration::from_millis(20));
            stop_sending.store(true, Ordering::Relaxed);
            sent = sender.join().expect("a sender");
        });
        until_offered(&capture, sent);
        descs(&mut listeners, &mut seen);
        let ended = stop(capture, &plan);
        let counts = &ended.report.counts;
        // On a busy machine, packets may be lost because a ring is full. Lost packets are counted in `offered` too.
        assert_eq!(counts.offered, sent, "{kind:?} {rest}: {:?}", ended.report);
        assert!(counts.filtered > 0 && counts.stored > 0, "{counts:?}");
        assert!(ended.report.faults.is_empty(), "{:?}", ended.report.faults);
        let (kernel, user) =
            ended.report.program.as_ref().map(|p| (p.kernel.dropped, p.user.dropped)).expect("a program");
        assert_eq!(
            (kernel > 0, user > 0),
            (kind == SourceKind::AfXdp, kind != SourceKind::AfXdp),
            "{kind:?} {rest}: {kernel}, {user}"
        );
        assert!(seen.is_sorted_by_key(|d| d.mark), "{kind:?} {rest}: marks decrease");
        assert!(seen.last().is_some_and(|d| d.mark == SWAPS + 1), "{:?}", seen.last());
        assert!(seen.first().is_some_and(|d| d.mark < SWAPS), "{:?}", seen.first());
    }
}

/// Some drivers give XDP programs no metadata space before a frame. In this test, the sender of the frames has already
/// used that space.
#[test]
fn without_metadata_packets_get_the_verdict_of_the_next_program() {
    let test = "without_metadata_packets_get_the_verdict_of_the_next_program";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (dir, (a, b)) = (TempDir::new("xdp"), sandbox.veth("a", "b"));
    let mut sender = Asm::new();
    sender.mov(Reg::R2, -216);
    sender.call(Helper::XdpAdjustMeta);
    sender.mov(Reg::R1, a.index as i32);
    sender.mov(Reg::R2, 0);
    sender.call(Helper::Redirect);
    sender.exit();
    let sender = Program::load("sender", &sender.finish().expect("no labels"), Frames::Linear).expect("a program");
    let numbered = |n: u32| format!("main = when (has_port 7) drop >-> mark {n} >-> steer_flow");
    let plan = live(&b, SourceKind::AfXdp, &numbered(1), dir.path());
    let capture = start(&plan);
    let mut listeners = ring::attach(&dir.join("s"), Mode::Lossy, "test").expect("attach");
    let mut seen = Vec::new();
    for n in 1..=3u32 {
        if n > 1 {
            capture.swap_program(&text(&numbered(n))).expect("a valid program").expect("a new program");
        }
        sender.run_live(&udp(1, 9), 0, 10, 1).expect("frames without a socket");
        until_offered(&capture, u64::from(n) * 10);
        until("ten more packets are in the ring", || {
            descs(&mut listeners, &mut seen);
            seen.len() == n as usize * 10
        });
    }
    let marks: Vec<u32> = seen.iter().map(|d| d.mark).collect();
    assert_eq!(marks, [[1; 10], [2; 10], [3; 10]].concat());
    let ended = stop(capture, &plan);
    let program = ended.report.program.as_ref().expect("a program");
    // The only metadata of this program would be the generation, so the kernel part can decide the packets without
    // metadata.
    assert_eq!((program.undecided, program.in_kernel > 0), (0, true), "{program:?}");
    assert!(ended.report.is_healthy(), "{:?}", ended.report);
}

/// The driver of an interface that is not ready would discard the frames without counting them.
#[test]
fn frames_of_the_kernel_part_for_an_unready_egress_are_counted_as_unsent() {
    let test = "frames_of_the_kernel_part_for_an_unready_egress_are_counted_as_unsent";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (dir, (a, b)) = (TempDir::new("xdp"), sandbox.veth("a", "b"));
    let (c, d) = egress_pair(&sandbox);
    let plan = live(&b, SourceKind::AfXdp, "main = forward \"c\" >-> drop", dir.path());
    let capture = start(&plan);
    let wire = RawSender::new(&a);
    let counts = || {
        let kernel = program_of(&capture).kernel;
        (kernel.forwarded, kernel.unsent)
    };
    // There are several conditions under which the interface can send no frame. The test creates and then ends one
    // condition after the other.
    let set_carrier = |up: bool| sandbox.netlink().set_up(d.index, up).expect("the peer interface");
    let set_up = |up: bool| sandbox.netlink().set_up(c.index, up).expect("the interface");
    let set_gro = |up: bool| sys::ethtool::Offload::Gro.set(&d.name, up).expect("GRO");
    for (nth, set) in (1..).zip([&set_carrier as &dyn Fn(bool), &set_up, &set_gro]) {
        set(false);
        let before = counts().1;
        until("a frame is counted as unsent", || {
            wire.send(&[udp(1, nth)]);
            std::thread::sleep(Duration::from_millis(20));
            counts().1 > before
        });
        set(true);
        let before = counts().0;
        until("a frame is forwarded again", || {
            wire.send(&[udp(1, nth)]);
            std::thread::sleep(Duration::from_millis(20));
            counts().0 > before
        });
    }
    let ended = stop(capture, &plan);
    assert_eq!(ended.report.counts.stored, 0, "{:?}", ended.report);
}

#[test]
fn a_rejected_program_replaces_nothing() {
    let test = "a_rejected_program_replaces_nothing";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (dir, (a, b)) = (TempDir::new("xdp"), sandbox.veth("a", "b"));
    sandbox.veth("e", "f");
    let plan = live(&b, SourceKind::AfXdp, "main = when (has_port 1) drop", dir.path());
    let capture = start(&plan);
    for (program, reason) in [
        ("main = when (has_port", "test, line 1"),
        ("main = forward \"nowhere\" >-> drop", "there is no interface nowhere"),
        ("main = log_msg \"x\"", "cannot write log lines"),
        // The peer of this interface accepts no XDP frames.
        ("main = forward \"e\" >-> drop", "interface e: its driver does not accept XDP frames"),
        // The program is rejected, because only the engine thread computes the member to which a packet is steered, and
        // the engine thread cannot pass packets to the host.
        ("main = steer_rrobin >-> detour", "cannot pass packets to the host"),
        // With these programs, one packet would have two verdicts: for the host and for the capture or an egress
        // interface.
        ("main = when (has_port 80) kernel", "is dedicated to capture"),
        ("main = conditional is_udp (mark 42) kernel >-> steer_flow", "is dedicated to capture"),
        ("main = kernel >-> forward \"lo\" >-> drop", "is dedicated to capture"),
        ("main = when is_udp (forward \"lo\") >-> detour", "is dedicated to capture"),
    ] {
        match capture.swap_program(&text(program)) {
            Err(EngineError::Program(error)) => assert!(error.to_string().contains(reason), "{program}: {error}"),
            other => panic!("{program}: {other:?}"),
        }
    }
    assert!(
        capture.swap_program(&text("main = when (has_port 1) drop")).expect("a valid program").is_none(),
        "a swap to the same program does nothing"
    );
    RawSender::new(&a).send(&[udp(1, 1), udp(1, 2)]);
    until_offered(&capture, 2);
    let ended = stop(capture, &plan);
    let program = ended.report.program.as_ref().expect("a program");
    assert_eq!((program.generation, program.kernel.dropped, ended.report.counts.stored), (1, 1, 1));
}

#[test]
fn a_swap_transfers_counters_and_flow_state_to_the_next_program() {
    let test = "a_swap_transfers_counters_and_flow_state_to_the_next_program";
    let Some(sandbox) = Sandbox::new(test) else { return };
    for kind in [SourceKind::AfXdp, SourceKind::Tpacket] {
        let dir = TempDir::new(&format!("xdp-{kind:?}"));
        let (a, b) = sandbox.veth(&format!("a{kind:?}"), &format!("b{kind:?}"));
        // The program drops the first three packets of each flow, and the fourth and later packets are stored.
        let counting = |mark: u32| {
            format!(
                "flows = flow_map 0 key_5tuple\n\
                 main = inc 3 >-> incr_fstate flows >-> when (get_fstate flows .< 4) drop >-> mark {mark}"
            )
        };
        let plan = live(&b, kind, &counting(1), dir.path());
        let capture = start(&plan);
        let wire = RawSender::new(&a);
        wire.send(&[udp(1, 9), udp(1, 9), udp(2, 9)]);
        until_offered(&capture, 3);
        let report = capture.swap_program(&text(&counting(2))).expect("a valid program").expect("a new program");
        assert_eq!(report.state_transfer.to_string(), "keeps flows", "{report:?}");
        wire.send(&[udp(1, 9), udp(1, 9), udp(2, 9)]);
        until_offered(&capture, 6);
        until("all packets are counted", || program_of(&capture).counters.get(&3) == Some(&6));
        let ended = stop(capture, &plan);
        assert_eq!((ended.report.counts.stored, ended.report.counts.filtered), (1, 5), "{kind:?} {:?}", ended.report);
    }
}

#[test]
fn one_program_handles_two_queues() {
    let test = "one_program_handles_two_queues";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let dir = TempDir::new("xdp");
    let (a, b) = sandbox.veth_with("a", "b", VethOptions { queues: 2, ..VethOptions::default() });
    let mut plan = live(&b, SourceKind::AfXdp, "main = inc 1 >-> when (has_port 1) drop", dir.path());
    let capture = start(&plan);
    RawSender::new(&a).send(&(0..100u8).map(|n| udp(n, u16::from(n % 2))).collect::<Vec<_>>());
    until_offered(&capture, 100);
    until("all packets are counted", || program_of(&capture).counters.get(&1) == Some(&100));
    let ended = stop(capture, &plan);
    assert_eq!((ended.report.counts.stored, ended.report.counts.filtered), (50, 50), "{:?}", ended.report);
    let SourcePlan::Interface(interface) = &mut plan.source else { unreachable!("a live interface") };
    interface.queues = Some(1);
    match Capture::start(&plan) {
        Err(EngineError::Program(error)) => assert!(error.to_string().contains("omit --queues"), "{error}"),
        other => panic!("{:?}", other.err()),
    }
}

#[test]
fn an_interface_that_is_created_again_gets_its_program_again() {
    let test = "an_interface_that_is_created_again_gets_its_program_again";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (dir, (a, b)) = (TempDir::new("xdp"), sandbox.veth("a", "b"));
    let plan = live(&b, SourceKind::AfXdp, "main = when (has_port 1) drop", dir.path());
    let capture = start(&plan);
    RawSender::new(&a).send(&[udp(1, 1), udp(1, 2)]);
    until_offered(&capture, 2);
    sandbox.netlink().delete_link(b.index).expect("the deletion of the pair");
    until("the missing interface is reported", || capture.report().warnings.iter().any(|r| r.contains("was removed")));
    let (a, _b) = sandbox.veth("a", "b");
    let (wire, before) = (RawSender::new(&a), program_of(&capture).kernel.dropped);
    until("the program processes packets again", || {
        let _ = wire.try_send(&[udp(1, 1)]);
        std::thread::sleep(Duration::from_millis(20));
        program_of(&capture).kernel.dropped > before
    });
    let ended = stop(capture, &plan);
    assert_eq!(ended.report.counts.stored, 1, "{:?}", ended.report);
}

/// No packet arrived between the swap and the deletion of the interface, so the queue still has the old program.
#[test]
fn an_interface_that_is_created_again_gets_the_newest_program() {
    let test = "an_interface_that_is_created_again_gets_the_newest_program";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let _out = sandbox.veth("out", "far");
    for (nth, newest) in ["main = mark 2 >-> steer_flow", "main = forward \"out\" >-> mark 2"].into_iter().enumerate() {
        let dir = TempDir::new("xdp");
        let names = [format!("a{nth}"), format!("b{nth}")];
        let (a, b) = sandbox.veth(&names[0], &names[1]);
        let plan = live(&b, SourceKind::AfXdp, "main = mark 1 >-> steer_flow", dir.path());
        let capture = start(&plan);
        let mut listeners = ring::attach(&dir.join("s"), Mode::Lossy, "test").expect("attach");
        RawSender::new(&a).send(&[udp(1, 1), udp(1, 2)]);
        until_offered(&capture, 2);
        capture.swap_program(&text(newest)).expect("a valid program").expect("a new program");
        sandbox.netlink().delete_link(b.index).expect("the deletion of the pair");
        until("the missing interface is reported", || {
            capture.report().warnings.iter().any(|r| r.contains("was removed"))
        });
        let (a, _b) = sandbox.veth(&names[0], &names[1]);
        let (wire, mut seen) = (RawSender::new(&a), Vec::new());
        until("the program processes packets again", || {
            let _ = wire.try_send(&[udp(1, 1)]);
            std::thread::sleep(Duration::from_millis(20));
            descs(&mut listeners, &mut seen);
            seen.len() > 4
        });
        let marks: Vec<u32> = seen.iter().map(|d| d.mark).collect();
        assert_eq!((&marks[..2], marks[2..].iter().all(|m| *m == 2)), (&[1, 1][..], true), "{newest}: {marks:?}");
        let ended = stop(capture, &plan);
        assert!(ended.report.faults.is_empty(), "{:?}", ended.report.faults);
    }
}

#[test]
fn kernel_and_user_part_use_an_egress_interface_that_is_created_again() {
    let test = "kernel_and_user_part_use_an_egress_interface_that_is_created_again";
    // The calling thread remains in the network namespace that was created last.
    let Some(other) = Sandbox::new(test) else { return };
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (dir, (a, b)) = (TempDir::new("xdp"), sandbox.veth("a", "b"));
    let (c, _) = egress_pair(&sandbox);
    let plan = live(&b, SourceKind::AfXdp, EACH, dir.path());
    let capture = start(&plan);
    // The kernel part does not parse the headers of the second frame, so the user part forwards it.
    let mut tags = [0; 72];
    let frame = Frame::udp4([10, 0, 0, 9], 1000, [10, 0, 1, 1], 2);
    frame.tag(EtherType(0x8100), 1).tag(EtherType(0x8100), 2).tag(EtherType(0x8100), 3).fill(&mut tags);
    let (wire, sent) = (RawSender::new(&a), [udp(1, 2), tags.to_vec()]);
    let by_both = || {
        let program = program_of(&capture);
        (program.kernel.forwarded, program.user.forwarded)
    };
    wire.send(&sent);
    until("kernel and user part forward a frame", || by_both() == (1, 1));
    sandbox.netlink().delete_link(c.index).expect("the deletion of the pair");
    wire.send(&sent);
    until("kernel and user part count a frame as unsent", || {
        let program = program_of(&capture);
        program.kernel.unsent + program.user.unsent == 2
    });
    let (c, d) = egress_pair(&sandbox);
    let mut out = RawReader::new(&d);
    let forwarded_again = |before: (u64, u64)| {
        until("kernel and user part forward frames again", || {
            wire.send(&sent);
            std::thread::sleep(Duration::from_millis(20));
            let (kernel, user) = by_both();
            kernel > before.0 && user > before.1
        });
    };
    forwarded_again((1, 1));
    assert!(
        !out.at_least(1, QUIET, |frame| frame == sent[0]).is_empty(),
        "the frames are sent through the new interface"
    );
    // The interface moves to another network namespace and back. It has the same interface index afterwards.
    sandbox.netlink().move_to(c.index, other.namespace().as_fd()).expect("move");
    let unsent = |of: ProgramReport| of.kernel.unsent + of.user.unsent;
    let before = unsent(program_of(&capture));
    wire.send(&sent);
    until("kernel and user part count a frame as unsent", || unsent(program_of(&capture)) == before + 2);
    other.namespace().enter().expect("enter the other namespace");
    let index = other.netlink().link(&c.name).expect("the interface").index;
    other.netlink().move_to(index, sandbox.namespace().as_fd()).expect("move back");
    sandbox.namespace().enter().expect("enter the first namespace");
    assert_eq!(sandbox.netlink().link(&c.name).expect("the interface").index, c.index);
    sandbox.set_up(&c, true);
    forwarded_again(by_both());
    let ended = stop(capture, &plan);
    assert_eq!(ended.report.counts.stored, 0, "{:?}", ended.report);
    // The inner sandbox is dropped before the outer one.
    drop(sandbox);
    drop(other);
}

#[test]
fn a_program_can_filter_replayed_packets_and_cannot_forward_them() {
    let dir = TempDir::new("xdp");
    let source = || common::sim("60,flows=10,packets=1000,seed=7");
    let dropping = Plan { program: Some(text("main = drop")), ..plan(source(), &dir.join("store")) };
    let capture = start(&dropping);
    let ended = end(capture, &dropping);
    assert_eq!((ended.report.counts.stored, ended.report.counts.filtered), (0, 1000), "{:?}", ended.report);
    let forwarding = Plan { program: Some(text("main = forward \"lo\"")), ..plan(source(), &dir.join("other")) };
    match Capture::start(&forwarding) {
        Err(EngineError::Program(error)) => assert!(error.to_string().contains("replayed or simulated"), "{error}"),
        other => panic!("{:?}", other.err()),
    }
}

const DIRECTORY: &str = "NETGRAIN_TEST_PROGRAM";

/// The body of the child process that is killed below; without the environment variable [`DIRECTORY`] this test does
/// nothing.
#[test]
fn child_process_with_a_program() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let b = Port { name: "b".into(), index: 0 };
    let plan = live(&b, SourceKind::AfXdp, "main = drop", Path::new(&directory));
    let _capture = start(&plan);
    let begun = Instant::now();
    while begun.elapsed() < WAIT_MAX {
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn no_program_remains_attached_after_an_end_or_a_kill() {
    let test = "no_program_remains_attached_after_an_end_or_a_kill";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (dir, (_a, b)) = (TempDir::new("xdp"), sandbox.veth("a", "b"));
    let is_busy = |plan: &Plan| match Capture::start(plan) {
        Ok(_) => false,
        Err(e) if e.to_string().contains("the interface is busy") => true,
        Err(e) => panic!("{e}"),
    };
    let plan = live(&b, SourceKind::AfXdp, "main = drop", dir.path());
    let capture = start(&plan);
    let other = live(&b, SourceKind::AfXdp, "main = drop", &dir.join("o"));
    assert!(is_busy(&other), "a program is attached");
    stop(capture, &plan);
    assert!(!is_busy(&other), "the capture detaches its program");
    let directory = dir.join("k");
    let mut process = ChildTest::start(module_path!(), "child_process_with_a_program", DIRECTORY, &directory);
    // The child process creates the ring socket after it has attached its program.
    until("the child process has attached its program", || directory.join("s").exists());
    assert!(is_busy(&other), "the program of the child process is attached");
    process.kill();
    until("the kernel detaches the program", || !is_busy(&other));
}
