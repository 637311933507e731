//! What a port's program says of itself: its counters to the last packet, what its maps refused, what it took over, and
//! what it did not send on because this host had sent it.

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
fn the_last_report_has_all_that_was_counted_by_programs_that_came_and_went() {
    let test = "the_last_report_has_all_that_was_counted_by_programs_that_came_and_went";
    let Some(sandbox) = Sandbox::new(test) else { return };
    for kind in [SourceKind::AfXdp, SourceKind::Tpacket] {
        let dir = TempDir::new(&format!("books-{kind:?}"));
        let (a, b) = sandbox.veth(&format!("a{kind:?}"), &format!("b{kind:?}"));
        let plan = live(&b, kind, "main = inc 3", dir.path());
        let capture = start(&plan);
        let wire = RawSender::new(&a);
        wire.send(&hosts(10));
        until_offered(&capture, 10);
        // It counts nothing, and the kernel keeps no map for it.
        capture.swap_program(&text("main = when (has_port 1) drop")).expect("sound").expect("another");
        wire.send(&hosts(10));
        until_offered(&capture, 20);
        capture.swap_program(&text("main = inc 3 >-> mark 1")).expect("sound").expect("another");
        wire.send(&hosts(10));
        until_offered(&capture, 30);
        let ended = stop(capture, &plan);
        let program = ended.report.program.as_ref().expect("a program");
        assert_eq!(program.in_kernel > 0, kind == SourceKind::AfXdp);
        assert_eq!(program.counters.get(&3), Some(&20), "{kind:?}: {program:?}");
    }
}

#[test]
fn what_a_program_before_has_counted_is_told_though_the_one_in_force_does_not_name_it() {
    let test = "what_a_program_before_has_counted_is_told_though_the_one_in_force_does_not_name_it";
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
            .expect("sound")
            .expect("another");
        RawSender::new(&a).send(&hosts(4));
        until_offered(&capture, 14);
        let ended = stop(capture, &plan);
        let program = ended.report.program.as_ref().expect("a program");
        let counters: Vec<(u8, u64)> = program.counters.iter().map(|(counter, n)| (*counter, *n)).collect();
        assert_eq!(counters, [(1, 10), (2, 6), (4, 4), (5, 0)], "{kind:?}");
    }
}

/// Packets that both halves took out of the stream, whatever became of them.
fn filtered(program: &ProgramReport) -> u64 {
    let (kernel, user) = (&program.kernel, &program.user);
    let kernel = kernel.dropped + kernel.forwarded + kernel.to_host + kernel.unsent;
    kernel + user.dropped + user.forwarded + user.to_host + user.unsent
}

/// Whoever is to get a packet, it becomes one thing; a copy that a port did not take is counted beside that.
#[test]
fn a_packet_has_one_fate_however_many_ports_it_is_for_and_its_missing_copies_are_counted_beside() {
    let test = "a_packet_has_one_fate_however_many_ports_it_is_for_and_its_missing_copies_are_counted_beside";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (c, _d) = sandbox.veth("c", "d");
    let (e, _f) = sandbox.veth("e", "f");
    for (round, (program, before, after)) in [
        // By both ports, by one of them, by none: in turn forwarded, copies that did not leave, not sent.
        ("main = forward \"c\" >-> forward \"e\" >-> drop", [3, 0, 0, 0], [3, 0, 3, 0]),
        // The host has them anyway.
        ("main = forward \"e\" >-> kernel >-> drop", [3, 0, 0, 0], [0, 3, 3, 0]),
        ("main = forward \"e\" >-> drop", [3, 0, 0, 0], [0, 0, 0, 3]),
        // They are stored.
        ("main = forward \"e\" >-> mark 1", [0, 0, 0, 0], [0, 0, 3, 0]),
    ]
    .into_iter()
    .enumerate()
    {
        let (a, b) = sandbox.veth(&format!("a{round}"), &format!("b{round}"));
        for (up, expected) in [(true, before), (false, after)] {
            let dir = TempDir::new(&format!("fates-{round}-{up}"));
            let plan = live(&b, SourceKind::Tpacket, program, dir.path());
            sandbox.netlink().set_up(e.index, up).expect("the port");
            let capture = start(&plan);
            RawSender::new(&a).send(&hosts(3));
            until_offered(&capture, 3);
            let ended = stop(capture, &plan);
            let program = ended.report.program.as_ref().expect("a program");
            let user = &program.user;
            let fates = [user.forwarded, user.to_host, user.copies_unsent, user.unsent];
            assert_eq!(fates, expected, "{round}, {}", if up { "both are up" } else { "one is down" });
            assert_eq!(filtered(program), ended.report.counts.filtered, "{round}: {program:?}");
        }
    }
    sandbox.netlink().delete_link(c.index).expect("the pair goes");
}

/// The packets are stored as before, so nothing else says that they did not leave.
#[test]
fn copies_for_a_port_that_went_away_are_counted_and_told_of() {
    let test = "copies_for_a_port_that_went_away_are_counted_and_told_of";
    let Some(sandbox) = Sandbox::new(test) else { return };
    for (kind, program, each) in [
        (SourceKind::AfXdp, "main = when is_udp (forward \"c\")", 3),
        (SourceKind::Tpacket, "main = when is_udp (forward \"c\")", 3),
        // All of them leave; the others are not stored.
        (SourceKind::AfXdp, "main = tee \"c\" is_udp", 5),
        (SourceKind::Tpacket, "main = tee \"c\" is_udp", 5),
    ] {
        let name = format!("{kind:?}{each}");
        let dir = TempDir::new(&format!("away-{name}"));
        let (a, b) = sandbox.veth(&format!("a{name}"), &format!("b{name}"));
        let way_out = || {
            let (c, d) = sandbox.veth("c", "d");
            sys::ethtool::Offload::Gro.set(&d.name, true).expect("GRO");
            c
        };
        let c = way_out();
        let plan = live(&b, kind, program, dir.path());
        let capture = start(&plan);
        let wire = RawSender::new(&a);
        let mut sent = hosts(3);
        let mut bytes = [0; 60];
        sent.extend(
            [1, 2].map(|host| Frame::tcp4([10, 0, 0, host], 1000, [10, 0, 1, 1], 53).fill(&mut bytes).to_vec()),
        );
        // What left, and what did not.
        let books = |report: &ProgramReport| {
            let (kernel, user) = (&report.kernel, &report.user);
            (user.copies + user.forwarded + kernel.forwarded, user.copies_unsent + user.unsent + kernel.unsent)
        };
        let reported = |what: &str| capture.report().warnings.iter().filter(|text| text.contains(what)).count();
        wire.send(&sent);
        until("all have left", || books(&program_of(&capture)) == (each, 0));
        sandbox.netlink().delete_link(c.index).expect("the pair goes");
        wire.send(&sent);
        until("none has left", || books(&program_of(&capture)) == (each, each));
        assert_eq!((reported("interface c is "), reported("interface c takes packets again")), (1, 0), "{name}");
        let c = way_out();
        let mut rounds = 2;
        until("they leave again", || {
            wire.send(&sent);
            rounds += 1;
            until_offered(&capture, rounds * sent.len() as u64);
            books(&program_of(&capture)).0 > each
        });
        until("it is told", || reported("interface c takes packets again") == 1);
        assert_eq!((reported("interface c is "), reported("interface c does not")), (1, 0), "it was told once");
        let ended = stop(capture, &plan);
        let program = ended.report.program.as_ref().expect("a program");
        let (left, unsent) = books(program);
        assert_eq!(left + unsent, rounds * each, "{name}: each is in one number");
        assert_eq!(filtered(program), ended.report.counts.filtered, "{name}: and each packet that is not stored");
        let samples = exposition(&ended.report);
        let samples =
            samples.lines().filter(|line| ["program_unsent_", "copies_unsent_"].iter().any(|it| line.contains(it)));
        let reported: f64 = samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
        assert_eq!(reported, unsent as f64, "{name}");
        sandbox.netlink().delete_link(c.index).expect("the pair goes");
    }
}

#[test]
fn a_map_that_is_full_is_told_of_while_the_program_runs_and_at_its_end() {
    let test = "a_map_that_is_full_is_told_of_while_the_program_runs_and_at_its_end";
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
            let filling = map.kernel.unwrap_or(map.user);
            assert_eq!((map.map.as_str(), map.kernel.is_some(), filling.capacity), ("m", kind == SourceKind::AfXdp, 3));
            (filling.used, filling.refused)
        };
        wire.send(&hosts(5));
        until_offered(&capture, 5);
        until("the fourth and the fifth are refused", || reported(&program_of(&capture)) == (Some(3), 2));
        // The map goes on, and with it what is said of it.
        capture.swap_program(&text(&of(2))).expect("sound").expect("another");
        wire.send(&hosts(5));
        until_offered(&capture, 10);
        let ended = stop(capture, &plan);
        assert_eq!(reported(ended.report.program.as_ref().expect("a program")), (Some(3), 4), "{kind:?}");
        let place = if kind == SourceKind::AfXdp { "kernel" } else { "user" };
        let sample = format!("refused_total{{interface=\"{}\",map=\"m\",place=\"{place}\"}} 4\n", b.name);
        assert!(exposition(&ended.report).contains(&sample), "{sample}");
    }
}

#[test]
fn an_exchange_says_which_map_goes_on_and_which_begins_anew() {
    let test = "an_exchange_says_which_map_goes_on_and_which_begins_anew";
    let Some(sandbox) = Sandbox::new(test) else { return };
    for kind in [SourceKind::AfXdp, SourceKind::Tpacket] {
        let dir = TempDir::new(&format!("anew-{kind:?}"));
        let (_a, b) = sandbox.veth(&format!("a{kind:?}"), &format!("b{kind:?}"));
        let of = |most: u32| {
            format!(
                "a = flow_map 0 key_5tuple\nm = up_to {most} (flow_map 0 key_ip_src)\n\
                 main = incr_fstate a >-> incr_fstate m >-> when (get_fstate m .> {most}) drop"
            )
        };
        let plan = live(&b, kind, &of(1000), dir.path());
        let capture = start(&plan);
        let report = capture.swap_program(&text(&of(1200))).expect("sound").expect("another");
        assert_eq!(report.state_transfer.to_string(), "keeps a; m begins anew (up_to 1200, not 1000)", "{kind:?}");
        let report = capture.swap_program(&text("main = drop")).expect("sound").expect("another");
        assert_eq!(report.state_transfer.to_string(), "forgets a, m", "{kind:?}");
        stop(capture, &plan);
    }
}

#[test]
fn two_programs_that_mirror_each_others_port_send_a_frame_once() {
    let test = "two_programs_that_mirror_each_others_port_send_a_frame_once";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let dir = TempDir::new("mirror");
    let ((a, b), (c, d)) = (sandbox.veth("a", "b"), sandbox.veth("c", "d"));
    let there = live(&b, SourceKind::Tpacket, "main = forward \"c\"", &dir.join("there"));
    let back = live(&c, SourceKind::Tpacket, "main = forward \"b\"", &dir.join("back"));
    let (mut near, mut far) = (RawReader::new(&a), RawReader::new(&d));
    let (one, other) = (start(&there), start(&back));
    RawSender::new(&a).send(&hosts(1));
    until_offered(&one, 1);
    until_offered(&other, 1);
    // No more than a few, because a frame that circles never ends.
    let heard = |reader: &mut RawReader| {
        let first = reader.at_least(1, Duration::ZERO, |frame| frame == udp(1)).len();
        first + (0..3).filter_map(|_| reader.next(QUIET)).filter(|f| *f == udp(1)).count()
    };
    assert_eq!((heard(&mut far), heard(&mut near)), (1, 1), "near it is heard as it leaves, and does not come back");
    let of = |capture: Capture, plan: &Plan| stop(capture, plan).report.program.expect("a program").user;
    let (one, other) = (of(one, &there), of(other, &back));
    assert_eq!((one.copies, one.forward_own, other.copies, other.forward_own), (1, 0, 0, 1));
}

#[test]
fn a_program_that_asks_which_way_packets_go_forwards_what_this_host_sends() {
    let test = "a_program_that_asks_which_way_packets_go_forwards_what_this_host_sends";
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
