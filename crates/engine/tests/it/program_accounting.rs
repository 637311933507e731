//! Tests of the report of an interface's program: its counters, the refused insertions into its maps, its state
//! transfer, and the packets of this host that it did not forward.

use crate::common;

use capture::auto::SourceKind;
use common::{plan, port, start, stop, until, until_offered};
use interface_program::{ProgramPlan, ProgramReport};
use netgrain_engine::{Capture, Plan, SourcePlan, exposition};
use std::path::Path;
use std::time::Duration;
use testkit::{Port, RawReader, RawSender, Sandbox, TempDir};
use wire::build::Frame;

const QUIET: Duration = Duration::from_millis(300);

fn text(text: &str) -> ProgramPlan {
    ProgramPlan { name: "test".into(), text: text.into() }
}

fn live(b: &Port, kind: SourceKind, program: &str, dir: &Path) -> Plan {
    let source = SourcePlan::Interface(port(&b.name, kind));
    Plan { program: Some(text(program)), ..plan(source, dir) }
}

fn udp(host: u8) -> Vec<u8> {
    let mut bytes = [0; 60];
    Frame::udp4([10, 0, 0, host], 1000, [10, 0, 1, 1], 53).fill(&mut bytes).to_vec()
}

fn hosts(n: u8) -> Vec<Vec<u8>> {
    (1..=n).map(udp).collect()
}

fn program_of(capture: &Capture) -> ProgramReport {
    capture.report().program.expect("a program")
}

#[test]
fn the_final_report_contains_the_counters_of_all_programs() {
    let test = "the_final_report_contains_the_counters_of_all_programs";
    let Some(sandbox) = Sandbox::new(test) else { return };
    for kind in [SourceKind::AfXdp, SourceKind::Tpacket] {
        let dir = TempDir::new(&format!("counters-{kind:?}"));
        let (a, b) = sandbox.veth(&format!("a{kind:?}"), &format!("b{kind:?}"));
        let plan = live(&b, kind, "main = inc 3", dir.path());
        let capture = start(&plan);
        let wire = RawSender::new(&a);
        wire.send(&hosts(10));
        until_offered(&capture, 10);
        // This program counts nothing, and the kernel has no counter map for it.
        capture.swap_program(&text("main = when (has_port 1) drop")).expect("a valid program").expect("a new program");
        wire.send(&hosts(10));
        until_offered(&capture, 20);
        capture.swap_program(&text("main = inc 3 >-> mark 1")).expect("a valid program").expect("a new program");
        wire.send(&hosts(10));
        until_offered(&capture, 30);
        let ended = stop(capture, &plan);
        let program = ended.report.program.as_ref().expect("a program");
        assert_eq!(program.in_kernel > 0, kind == SourceKind::AfXdp);
        assert_eq!(program.counters.get(&3), Some(&20), "{kind:?}: {program:?}");
    }
}

#[test]
fn counters_that_only_earlier_programs_use_are_reported() {
    let test = "counters_that_only_earlier_programs_use_are_reported";
    let Some(sandbox) = Sandbox::new(test) else { return };
    for kind in [SourceKind::AfXdp, SourceKind::Tpacket] {
        let dir = TempDir::new(&format!("kept-{kind:?}"));
        let (a, b) = sandbox.veth(&format!("a{kind:?}"), &format!("b{kind:?}"));
        let plan = live(&b, kind, "main = inc 1 >-> inc 2", dir.path());
        let capture = start(&plan);
        RawSender::new(&a).send(&hosts(10));
        until_offered(&capture, 10);
        capture
            .swap_program(&text("main = dec 2 >-> inc 5 >-> dec 5 >-> inc 4 >-> drop"))
            .expect("a valid program")
            .expect("a new program");
        RawSender::new(&a).send(&hosts(4));
        until_offered(&capture, 14);
        let ended = stop(capture, &plan);
        let program = ended.report.program.as_ref().expect("a program");
        let counters: Vec<(u8, u64)> = program.counters.iter().map(|(counter, n)| (*counter, *n)).collect();
        assert_eq!(counters, [(1, 10), (2, 6), (4, 4), (5, 0)], "{kind:?}");
    }
}

/// Returns the number of packets that the kernel part and the user part removed from the stream.
fn filtered(program: &ProgramReport) -> u64 {
    let (kernel, user) = (&program.kernel, &program.user);
    let kernel = kernel.dropped + kernel.forwarded + kernel.to_host + kernel.unsent;
    kernel + user.dropped + user.forwarded + user.to_host + user.unsent
}

/// Each packet is counted in exactly one of the outcomes. A copy of the packet that an egress interface did not send is
/// counted in addition.
#[test]
fn a_packet_has_one_outcome_and_unsent_copies_are_counted_separately() {
    let test = "a_packet_has_one_outcome_and_unsent_copies_are_counted_separately";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (c, _d) = sandbox.veth("c", "d");
    let (e, _f) = sandbox.veth("e", "f");
    for (round, (program, before, after)) in [
        // The four numbers of each array count forwarded packets, packets to the host, unsent copies, and unsent
        // packets.
        ("main = forward \"c\" >-> forward \"e\" >-> drop", [3, 0, 0, 0], [3, 0, 3, 0]),
        // The host receives all packets of a shared interface, whatever the program decides.
        ("main = forward \"e\" >-> kernel >-> drop", [3, 0, 0, 0], [0, 3, 3, 0]),
        ("main = forward \"e\" >-> drop", [3, 0, 0, 0], [0, 0, 0, 3]),
        // The packets are stored.
        ("main = forward \"e\" >-> mark 1", [0, 0, 0, 0], [0, 0, 3, 0]),
    ]
    .into_iter()
    .enumerate()
    {
        let (a, b) = sandbox.veth(&format!("a{round}"), &format!("b{round}"));
        for (up, expected) in [(true, before), (false, after)] {
            let dir = TempDir::new(&format!("outcomes-{round}-{up}"));
            let plan = live(&b, SourceKind::Tpacket, program, dir.path());
            sandbox.netlink().set_up(e.index, up).expect("the interface");
            let capture = start(&plan);
            RawSender::new(&a).send(&hosts(3));
            until_offered(&capture, 3);
            let ended = stop(capture, &plan);
            let program = ended.report.program.as_ref().expect("a program");
            let user = &program.user;
            let outcomes = [user.forwarded, user.to_host, user.copies_unsent, user.unsent];
            assert_eq!(
                outcomes,
                expected,
                "{round}, {}",
                if up { "both interfaces are up" } else { "one interface is down" }
            );
            assert_eq!(filtered(program), ended.report.counts.filtered, "{round}: {program:?}");
        }
    }
    sandbox.netlink().delete_link(c.index).expect("the deletion of the pair");
}

/// The packets are stored whether or not their copies are sent, so only the counter of unsent copies shows the failure.
#[test]
fn copies_for_a_deleted_interface_are_counted_and_reported() {
    let test = "copies_for_a_deleted_interface_are_counted_and_reported";
    let Some(sandbox) = Sandbox::new(test) else { return };
    for (kind, program, each) in [
        (SourceKind::AfXdp, "main = when is_udp (forward \"c\")", 3),
        (SourceKind::Tpacket, "main = when is_udp (forward \"c\")", 3),
        // All packets are forwarded; packets other than UDP are not stored.
        (SourceKind::AfXdp, "main = tee \"c\" is_udp", 5),
        (SourceKind::Tpacket, "main = tee \"c\" is_udp", 5),
    ] {
        let name = format!("{kind:?}{each}");
        let dir = TempDir::new(&format!("away-{name}"));
        let (a, b) = sandbox.veth(&format!("a{name}"), &format!("b{name}"));
        let egress = || {
            let (c, d) = sandbox.veth("c", "d");
            sys::ethtool::Offload::Gro.set(&d.name, true).expect("GRO");
            c
        };
        let c = egress();
        let plan = live(&b, kind, program, dir.path());
        let capture = start(&plan);
        let wire = RawSender::new(&a);
        let mut sent = hosts(3);
        let mut bytes = [0; 60];
        sent.extend(
            [1, 2].map(|host| Frame::tcp4([10, 0, 0, host], 1000, [10, 0, 1, 1], 53).fill(&mut bytes).to_vec()),
        );
        // Returns the number of frames that were sent, and the number of frames that could not be sent.
        let sent_and_unsent = |report: &ProgramReport| {
            let (kernel, user) = (&report.kernel, &report.user);
            (user.copies + user.forwarded + kernel.forwarded, user.copies_unsent + user.unsent + kernel.unsent)
        };
        let warnings = |text: &str| capture.report().warnings.iter().filter(|warning| warning.contains(text)).count();
        wire.send(&sent);
        until("all frames are sent", || sent_and_unsent(&program_of(&capture)) == (each, 0));
        sandbox.netlink().delete_link(c.index).expect("the deletion of the pair");
        wire.send(&sent);
        until("all frames are counted as unsent", || sent_and_unsent(&program_of(&capture)) == (each, each));
        assert_eq!((warnings("interface c is "), warnings("interface c accepts packets again")), (1, 0), "{name}");
        let c = egress();
        let mut rounds = 2;
        until("frames are sent again", || {
            wire.send(&sent);
            rounds += 1;
            until_offered(&capture, rounds * sent.len() as u64);
            sent_and_unsent(&program_of(&capture)).0 > each
        });
        until("the recovery is reported", || warnings("interface c accepts packets again") == 1);
        assert_eq!(
            (warnings("interface c is "), warnings("interface c refuses")),
            (1, 0),
            "the missing interface is reported once, and no refused packet"
        );
        let ended = stop(capture, &plan);
        let program = ended.report.program.as_ref().expect("a program");
        let (forwarded, unsent) = sent_and_unsent(program);
        assert_eq!(forwarded + unsent, rounds * each, "{name}: each frame is counted once as sent or unsent");
        assert_eq!(
            filtered(program),
            ended.report.counts.filtered,
            "{name}: each packet that is not stored is filtered"
        );
        let samples = exposition(&ended.report);
        let samples =
            samples.lines().filter(|line| ["program_unsent_", "copies_unsent_"].iter().any(|part| line.contains(part)));
        let reported: f64 = samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
        assert_eq!(reported, unsent as f64, "{name}");
        sandbox.netlink().delete_link(c.index).expect("the deletion of the pair");
    }
}

#[test]
fn a_full_map_is_reported_during_the_run_and_at_its_end() {
    let test = "a_full_map_is_reported_during_the_run_and_at_its_end";
    let Some(sandbox) = Sandbox::new(test) else { return };
    for kind in [SourceKind::AfXdp, SourceKind::Tpacket] {
        let dir = TempDir::new(&format!("full-{kind:?}"));
        let (a, b) = sandbox.veth(&format!("a{kind:?}"), &format!("b{kind:?}"));
        let of = |mark: u32| {
            format!(
                "m = up_to 3 (flow_map 0 key_ip_src)\n\
                 main = incr_fstate m >-> filter (get_fstate m .<= 10) >-> mark {mark}"
            )
        };
        let plan = live(&b, kind, &of(1), dir.path());
        let capture = start(&plan);
        let wire = RawSender::new(&a);
        let reported = |report: &ProgramReport| {
            let map = &report.maps[0];
            let usage = map.kernel.unwrap_or(map.user);
            assert_eq!((map.map.as_str(), map.kernel.is_some(), usage.capacity), ("m", kind == SourceKind::AfXdp, 3));
            (usage.used, usage.refused)
        };
        wire.send(&hosts(5));
        until_offered(&capture, 5);
        until("the fourth and the fifth host are refused", || reported(&program_of(&capture)) == (Some(3), 2));
        // The swap transfers the map and its counters to the next program.
        capture.swap_program(&text(&of(2))).expect("a valid program").expect("a new program");
        wire.send(&hosts(5));
        until_offered(&capture, 10);
        let ended = stop(capture, &plan);
        assert_eq!(reported(ended.report.program.as_ref().expect("a program")), (Some(3), 4), "{kind:?}");
        let part = if kind == SourceKind::AfXdp { "kernel" } else { "user" };
        let sample = format!("refused_total{{interface=\"{}\",map=\"m\",part=\"{part}\"}} 4\n", b.name);
        assert!(exposition(&ended.report).contains(&sample), "{sample}");
    }
}

#[test]
fn a_swap_reports_which_maps_are_transferred_and_which_begin_empty() {
    let test = "a_swap_reports_which_maps_are_transferred_and_which_begin_empty";
    let Some(sandbox) = Sandbox::new(test) else { return };
    for kind in [SourceKind::AfXdp, SourceKind::Tpacket] {
        let dir = TempDir::new(&format!("anew-{kind:?}"));
        let (_a, b) = sandbox.veth(&format!("a{kind:?}"), &format!("b{kind:?}"));
        let of = |capacity: u32| {
            format!(
                "a = flow_map 0 key_5tuple\nm = up_to {capacity} (flow_map 0 key_ip_src)\n\
                 main = incr_fstate a >-> incr_fstate m >-> when (get_fstate m .> {capacity}) drop"
            )
        };
        let plan = live(&b, kind, &of(1000), dir.path());
        let capture = start(&plan);
        let report = capture.swap_program(&text(&of(1200))).expect("a valid program").expect("a new program");
        let transfer = report.state_transfer.to_string();
        assert_eq!(transfer, "keeps a; m starts empty (up_to 1200 instead of 1000)", "{kind:?}");
        let report = capture.swap_program(&text("main = drop")).expect("a valid program").expect("a new program");
        assert_eq!(report.state_transfer.to_string(), "forgets a, m", "{kind:?}");
        stop(capture, &plan);
    }
}

#[test]
fn two_programs_that_mirror_each_others_interface_send_a_frame_once() {
    let test = "two_programs_that_mirror_each_others_interface_send_a_frame_once";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let dir = TempDir::new("mirror");
    let ((a, b), (c, d)) = (sandbox.veth("a", "b"), sandbox.veth("c", "d"));
    let forward = live(&b, SourceKind::Tpacket, "main = forward \"c\"", &dir.join("forward"));
    let reverse = live(&c, SourceKind::Tpacket, "main = forward \"b\"", &dir.join("reverse"));
    let (mut near, mut far) = (RawReader::new(&a), RawReader::new(&d));
    let (one, other) = (start(&forward), start(&reverse));
    RawSender::new(&a).send(&hosts(1));
    until_offered(&one, 1);
    until_offered(&other, 1);
    // Reads a limited number of frames, because a frame in a loop would be forwarded endlessly.
    let received = |reader: &mut RawReader| {
        let first = reader.at_least(1, Duration::ZERO, |frame| frame == udp(1)).len();
        first + (0..3).filter_map(|_| reader.next(QUIET)).filter(|f| *f == udp(1)).count()
    };
    assert_eq!(
        (received(&mut far), received(&mut near)),
        (1, 1),
        "the near reader receives the frame once, as it is sent"
    );
    let of = |capture: Capture, plan: &Plan| stop(capture, plan).report.program.expect("a program").user;
    let (one, other) = (of(one, &forward), of(other, &reverse));
    assert_eq!((one.copies, one.forward_own, other.copies, other.forward_own), (1, 0, 0, 1));
}

#[test]
fn a_program_with_is_outgoing_forwards_packets_of_this_host() {
    let test = "a_program_with_is_outgoing_forwards_packets_of_this_host";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let dir = TempDir::new("outgoing");
    let ((_a, b), (_c, d)) = (sandbox.veth("a", "b"), sandbox.veth("c", "d"));
    let plan = live(&b, SourceKind::Tpacket, "main = when is_outgoing (forward \"c\")", dir.path());
    let mut far = RawReader::new(&d);
    let capture = start(&plan);
    RawSender::new(&b).send(&hosts(1));
    until_offered(&capture, 1);
    assert_eq!(far.at_least(1, QUIET, |_| true), [udp(1)]);
    let user = stop(capture, &plan).report.program.expect("a program").user;
    assert_eq!((user.copies, user.forward_own), (1, 0));
}
