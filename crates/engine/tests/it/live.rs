//! Ports captured while frames cross them and while things happen to them, in a network of the test's own.

use crate::common;

use base::{Cause, Note};
use capture::auto::SourceKind;
use common::{Ended, PATIENCE, frame, frames, plan, port, start, stop, until, until_offered};
use netgrain_engine::{Capture, InterfacePlan, Plan, SourcePlan};
use std::time::Instant;
use testkit::{Port, RawSender, Sandbox, TempDir, VethOptions};

const KINDS: [SourceKind; 2] = [SourceKind::AfXdp, SourceKind::Tpacket];

fn live(interface: InterfacePlan, store: &TempDir, kind: SourceKind) -> Plan {
    plan(SourcePlan::Interface(interface), &store.join(format!("{kind:?}")))
}

fn bytes(ended: &Ended) -> Vec<Vec<u8>> {
    ended.packets().map(|p| p.bytes.clone()).collect()
}

/// Sends and waits until all of it has been taken.
fn send(capture: &Capture, wire: &RawSender, frames: &[Vec<u8>]) {
    let before = capture.report().counts.offered;
    wire.send(frames);
    until_offered(capture, before + frames.len() as u64);
}

/// Sends one frame again and again until one is taken: a port that has just come back takes a moment.
fn send_until_taken(capture: &Capture, wire: &RawSender, frame: &[u8]) {
    let before = capture.report().counts.stored;
    until("the port takes frames again", || {
        let _ = wire.try_send(&[frame]);
        std::thread::sleep(std::time::Duration::from_millis(20));
        capture.report().counts.stored > before
    });
}

#[test]
fn frames_of_every_length_and_with_tags_lie_on_disk_byte_for_byte() {
    let test = "frames_of_every_length_and_with_tags_lie_on_disk_byte_for_byte";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let store = TempDir::new(test);
    for (i, kind) in KINDS.into_iter().enumerate() {
        let (a, b) = sandbox.veth(&format!("a{i}"), &format!("b{i}"));
        let plan = live(port(&b.name, kind), &store, kind);
        let capture = start(&plan);
        let mut sent: Vec<_> = (60..=1514).map(|len| frame(len as u32, len, &[])).collect();
        // A tag, a service tag with a customer tag, and three in a row.
        for tags in [&[(0x8100, 5)][..], &[(0x88a8, 100), (0x8100, 7)], &[(0x8100, 1), (0x8100, 2), (0x8100, 3)]] {
            sent.extend([64, 594, 1500].map(|len| frame(len as u32, len, tags)));
        }
        // The shortest that the kernel lets through: a header alone, and a tagged one with two bytes.
        sent.extend([frame(1, 14, &[]), frame(2, 15, &[]), frame(3, 20, &[(0x8100, 5)])]);
        send(&capture, &RawSender::new(&a), &sent);
        let ended = stop(capture, &plan);
        assert!(ended.outcome.is_ok() && ended.report.counts.lost_total == 0, "{:?}", ended.report);
        assert!(bytes(&ended) == sent, "{kind:?}: other bytes on disk");
        assert!(ended.packets().all(|p| p.wire_len as usize == p.bytes.len()));
    }
}

#[test]
fn jumbo_frames_lie_on_disk_whole() {
    let test = "jumbo_frames_lie_on_disk_whole";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let store = TempDir::new(test);
    for (i, kind) in KINDS.into_iter().enumerate() {
        let options = VethOptions { mtu: 9000, ..VethOptions::default() };
        let (a, b) = sandbox.veth_with(&format!("a{i}"), &format!("b{i}"), options);
        let plan = live(port(&b.name, kind), &store, kind);
        let capture = start(&plan);
        let sent: Vec<_> =
            (0..200).map(|n| frame(n, 60 + (n as usize * 997) % 8955, &[])).chain([frame(200, 9014, &[])]).collect();
        send(&capture, &RawSender::new(&a), &sent);
        let ended = stop(capture, &plan);
        assert_eq!(ended.report.counts.lost_total, 0);
        assert!(bytes(&ended) == sent, "{kind:?}: other bytes on disk");
    }
}

#[test]
fn the_longest_frame_of_the_loopback_port_is_stored_once_and_whole() {
    let test = "the_longest_frame_of_the_loopback_port_is_stored_once_and_whole";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let store = TempDir::new(test);
    let lo = sandbox.netlink().link("lo").expect("the loopback port").index;
    sandbox.netlink().set_mtu(lo, 65_521).expect("its largest payload");
    let plan = live(port("lo", SourceKind::Tpacket), &store, SourceKind::Tpacket);
    let capture = start(&plan);
    let sent = [frame(0, 65_535, &[]), frame(1, 65_534, &[]), frame(2, 60, &[])];
    send(&capture, &RawSender::new(&Port { name: "lo".to_owned(), index: lo }), &sent);
    let ended = stop(capture, &plan);
    assert!(bytes(&ended) == sent, "{:?}", ended.report);
}

#[test]
fn what_the_filter_refuses_and_snaplen_cuts_is_counted() {
    let test = "what_the_filter_refuses_and_snaplen_cuts_is_counted";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let store = TempDir::new(test);
    for (i, kind) in KINDS.into_iter().enumerate() {
        let (a, b) = sandbox.veth(&format!("a{i}"), &format!("b{i}"));
        let filter = Some("not vlan 7".to_owned());
        let plan = Plan { filter, snaplen: 100, ..live(port(&b.name, kind), &store, kind) };
        let capture = start(&plan);
        let tagged = |tag: u16| (0..50u32).map(move |n| frame(n, 60 + n as usize * 10, &[(0x8100, tag)]));
        let sent: Vec<_> = tagged(7).zip(tagged(8)).flat_map(|(x, y)| [x, y]).collect();
        send(&capture, &RawSender::new(&a), &sent);
        let ended = stop(capture, &plan);
        assert_eq!((ended.report.counts.filtered, ended.report.counts.stored), (50, 50), "{kind:?}");
        let longer = tagged(8).filter(|f| f.len() > 100).count() as u64;
        assert_eq!(ended.noted(Note::Truncated), longer, "{kind:?}");
        for (packet, whole) in ended.packets().zip(tagged(8)) {
            assert_eq!((packet.wire_len as usize, &packet.bytes[..]), (whole.len(), &whole[..whole.len().min(100)]));
        }
    }
}

#[test]
fn two_queues_record_into_files_of_their_own_and_share_one_ledger() {
    let test = "two_queues_record_into_files_of_their_own_and_share_one_ledger";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let store = TempDir::new(test);
    for (i, kind) in KINDS.into_iter().enumerate() {
        let options = VethOptions { queues: 2, ..VethOptions::default() };
        let (a, b) = sandbox.veth_with(&format!("a{i}"), &format!("b{i}"), options);
        let plan = live(InterfacePlan { queues: Some(2), ..port(&b.name, kind) }, &store, kind);
        let capture = start(&plan);
        // Flows enough that neither queue stays without any.
        let mut traffic = r#gen::Traffic::new(&"imix,flows=200,seed=7,truth".parse().expect("a specification"));
        let mut buffer = vec![0; traffic.max_len()];
        let sent: Vec<_> = (0..2000)
            .map(|_| {
                let len = traffic.fill(&mut buffer, sys::clock::realtime());
                buffer[..len].to_vec()
            })
            .collect();
        send(&capture, &RawSender::new(&a), &sent);
        let ended = stop(capture, &plan);
        assert_eq!(ended.report.counts.stored, 2000, "{kind:?}: {:?}", ended.report);
        assert_eq!(ended.report.queues.len(), 2);
        if kind == SourceKind::Tpacket {
            assert!(ended.report.queues.iter().all(|q| q.counts.stored > 0), "{:?}", ended.report.queues);
        }
        for stored in &ended.files {
            let queue = stored.index.header.queue;
            assert!(stored.path.to_string_lossy().contains(&format!("-q{queue}")), "{}", stored.path.display());
        }
        let (mut came, mut went) = (bytes(&ended), sent);
        came.sort();
        went.sort();
        assert!(came == went, "{kind:?}: other bytes on disk");
    }
}

#[test]
fn what_the_host_sends_is_stored_once_and_marked_as_outgoing() {
    let test = "what_the_host_sends_is_stored_once_and_marked_as_outgoing";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (store, (a, b)) = (TempDir::new(test), sandbox.veth("a", "b"));
    let plan = live(port(&b.name, SourceKind::Tpacket), &store, SourceKind::Tpacket);
    let capture = start(&plan);
    send(&capture, &RawSender::new(&a), &frames(0..30, 100));
    send(&capture, &RawSender::new(&b), &frames(30..50, 100));
    let ended = stop(capture, &plan);
    assert_eq!((ended.report.counts.stored, ended.noted(Note::Outgoing)), (50, 20));
    assert!(bytes(&ended) == frames(0..50, 100));
}

#[test]
fn super_frames_of_the_kernel_are_stored_and_called_so() {
    let test = "super_frames_of_the_kernel_are_stored_and_called_so";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (store, lo) = (TempDir::new(test), sandbox.netlink().link("lo").expect("the loopback port"));
    // Segmentation is left to a port that need not do any: what the host's own connection sends comes in one piece.
    sandbox.netlink().set_mtu(lo.index, 1500).expect("an MTU as on a wire");
    let plan = live(port("lo", SourceKind::Tpacket), &store, SourceKind::Tpacket);
    let capture = start(&plan);
    let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    let mut client = std::net::TcpStream::connect(server.local_addr().expect("its address")).expect("a connection");
    let (mut peer, _) = server.accept().expect("the other end");
    let reader = std::thread::spawn(move || std::io::copy(&mut peer, &mut std::io::sink()));
    std::io::Write::write_all(&mut client, &vec![0; 1 << 20]).expect("a megabyte");
    drop(client);
    assert_eq!(reader.join().expect("a reader").expect("all of it"), 1 << 20);
    until("a super-frame", || capture.report().counts.notes.contains_key(Note::SuperFrame.name()));
    let ended = stop(capture, &plan);
    assert!(ended.outcome.is_ok());
    let long = ended.packets().filter(|p| p.wire_len > 1514).count() as u64;
    assert_eq!(ended.noted(Note::SuperFrame), long);
}

#[test]
fn a_port_that_goes_down_and_comes_up_is_silent_in_between() {
    let test = "a_port_that_goes_down_and_comes_up_is_silent_in_between";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let store = TempDir::new(test);
    for (i, kind) in KINDS.into_iter().enumerate() {
        let (a, b) = sandbox.veth(&format!("a{i}"), &format!("b{i}"));
        let plan = live(port(&b.name, kind), &store, kind);
        let (capture, wire) = (start(&plan), RawSender::new(&a));
        send(&capture, &wire, &frames(0..20, 100));
        sandbox.set_up(&b, false);
        sandbox.set_up(&b, true);
        sandbox.wait_until_running(&b);
        sandbox.wait_until_running(&a);
        send(&capture, &wire, &frames(20..40, 100));
        let ended = stop(capture, &plan);
        assert!(ended.outcome.is_ok());
        assert!(bytes(&ended) == frames(0..40, 100), "{kind:?}: {:?}", ended.report);
    }
}

#[test]
fn a_port_with_a_new_name_is_captured_on() {
    let test = "a_port_with_a_new_name_is_captured_on";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let store = TempDir::new(test);
    for (i, kind) in KINDS.into_iter().enumerate() {
        let (a, b) = sandbox.veth(&format!("a{i}"), &format!("b{i}"));
        let plan = live(port(&b.name, kind), &store, kind);
        let (capture, wire) = (start(&plan), RawSender::new(&a));
        send(&capture, &wire, &frames(0..20, 100));
        sandbox.netlink().rename(b.index, &format!("c{i}")).expect("a new name");
        send(&capture, &wire, &frames(20..40, 100));
        let ended = stop(capture, &plan);
        assert!(ended.outcome.is_ok());
        assert!(bytes(&ended) == frames(0..40, 100), "{kind:?}: {:?}", ended.report);
    }
}

#[test]
fn a_port_that_moves_to_another_namespace_is_captured_again_when_it_returns() {
    let test = "a_port_that_moves_to_another_namespace_is_captured_again_when_it_returns";
    for kind in KINDS {
        // Made first, so that the thread ends up in the second.
        let Some(elsewhere) = Sandbox::new(test) else { return };
        let Some(sandbox) = Sandbox::new(test) else { return };
        let (store, (a, b)) = (TempDir::new(test), sandbox.veth("a", "b"));
        let plan = live(port(&b.name, kind), &store, kind);
        let (capture, wire) = (start(&plan), RawSender::new(&a));
        send(&capture, &wire, &frames(0..20, 100));
        sandbox.netlink().move_to(b.index, std::os::fd::AsFd::as_fd(elsewhere.namespace())).expect("away");
        until_remark(&capture, "b went away");
        elsewhere.namespace().enter().expect("there");
        let index = elsewhere.netlink().link("b").expect("it is there").index;
        elsewhere.netlink().move_to(index, std::os::fd::AsFd::as_fd(sandbox.namespace())).expect("and back");
        sandbox.namespace().enter().expect("here");
        let back = Port { name: b.name.clone(), index: sandbox.netlink().link("b").expect("it is back").index };
        sandbox.set_up(&back, true);
        until_remark(&capture, "b is back");
        send_until_taken(&capture, &wire, &frame(99, 100, &[]));
        sandbox.wait_until_running(&a);
        send(&capture, &wire, &frames(20..40, 100));
        let ended = stop(capture, &plan);
        assert_gone_and_back(&ended, kind);
        // The inner sandbox is left before the outer one.
        drop(sandbox);
        drop(elsewhere);
    }
}

#[test]
fn a_port_that_is_deleted_and_made_again_is_captured_again() {
    let test = "a_port_that_is_deleted_and_made_again_is_captured_again";
    for kind in KINDS {
        let Some((sandbox, _store, plan, capture)) = deleted(test, kind) else { return };
        let (a, _) = sandbox.veth("a", "b");
        until_remark(&capture, "b is back");
        let wire = RawSender::new(&a);
        send_until_taken(&capture, &wire, &frame(99, 100, &[]));
        send(&capture, &wire, &frames(20..40, 100));
        assert_gone_and_back(&stop(capture, &plan), kind);
    }
}

#[test]
fn a_port_with_two_queues_comes_back_with_both() {
    let test = "a_port_with_two_queues_comes_back_with_both";
    for kind in KINDS {
        let Some(sandbox) = Sandbox::new(test) else { return };
        let options = VethOptions { queues: 2, ..VethOptions::default() };
        let (store, (a, b)) = (TempDir::new(test), sandbox.veth_with("a", "b", options));
        let plan = live(InterfacePlan { queues: Some(2), ..port(&b.name, kind) }, &store, kind);
        let capture = start(&plan);
        send(&capture, &RawSender::new(&a), &frames(0..20, 100));
        sandbox.netlink().delete_link(b.index).expect("delete");
        let said = |text: &str| capture.report().warnings.iter().filter(|r| r.contains(text)).count();
        until("both queues miss it", || said("b went away") == 2);
        let (a, _) = sandbox.veth_with("a", "b", options);
        until("both queues have it back", || said("b is back") == 2);
        let wire = RawSender::new(&a);
        send_until_taken(&capture, &wire, &frame(99, 100, &[]));
        send(&capture, &wire, &frames(20..40, 100));
        let ended = stop(capture, &plan);
        let again = frame(99, 100, &[]);
        let (mut came, mut went) = (bytes(&ended), frames(0..40, 100));
        came.retain(|f| *f != again);
        came.sort();
        went.sort();
        assert!(came == went, "{kind:?}: {:?}", ended.report);
    }
}

#[test]
fn a_capture_whose_port_never_returns_ends_when_told() {
    let test = "a_capture_whose_port_never_returns_ends_when_told";
    for kind in KINDS {
        let Some((_sandbox, _store, plan, capture)) = deleted(test, kind) else { return };
        let ended = stop(capture, &plan);
        assert!(ended.outcome.is_ok(), "{:?}", ended.outcome);
        assert!(bytes(&ended) == frames(0..20, 100), "{kind:?}: {:?}", ended.report);
    }
}

/// A capture of which 20 frames are taken, and whose port is deleted then.
fn deleted(test: &str, kind: SourceKind) -> Option<(Sandbox, TempDir, Plan, Capture)> {
    let sandbox = Sandbox::new(test)?;
    let (store, (a, b)) = (TempDir::new(test), sandbox.veth("a", "b"));
    let plan = live(port(&b.name, kind), &store, kind);
    let capture = start(&plan);
    send(&capture, &RawSender::new(&a), &frames(0..20, 100));
    sandbox.netlink().delete_link(b.index).expect("delete");
    until_remark(&capture, "b went away");
    Some((sandbox, store, plan, capture))
}

fn until_remark(capture: &Capture, text: &str) {
    let begun = Instant::now();
    while !capture.report().warnings.iter().any(|r| r.contains(text)) {
        assert!(begun.elapsed() < PATIENCE, "nobody says {text:?}: {:#?}", capture.report());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// What was sent while the port was there is stored, in order; frame 99 as often as it took.
fn assert_gone_and_back(ended: &Ended, kind: SourceKind) {
    assert!(ended.outcome.is_ok(), "{kind:?}: {:?}", ended.outcome);
    let again = frame(99, 100, &[]);
    let rest: Vec<_> = bytes(ended).into_iter().filter(|f| *f != again).collect();
    assert!(rest == frames(0..40, 100), "{kind:?}: {:?}", ended.report);
    assert!(ended.remarks("b went away") && ended.remarks("b is back"));
    assert_eq!(ended.lost(Cause::Source), 0);
}
