//! Captures of live interfaces in a network namespace of the test, also while interfaces are set down, removed and
//! created again.

use crate::common;

use base::{Cause, Note};
use capture::auto::SourceKind;
use common::{Ended, WAIT_MAX, frame, frames, plan, port, start, stop, until, until_offered};
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

/// Sends frames and waits until all of them were offered.
fn send(capture: &Capture, wire: &RawSender, frames: &[Vec<u8>]) {
    let before = capture.report().counts.offered;
    wire.send(frames);
    until_offered(capture, before + frames.len() as u64);
}

/// Sends a frame repeatedly until it is stored once, because an interface that was created again is not ready
/// immediately.
fn send_until_stored(capture: &Capture, wire: &RawSender, frame: &[u8]) {
    let before = capture.report().counts.stored;
    until("a frame is stored", || {
        let _ = wire.try_send(&[frame]);
        std::thread::sleep(std::time::Duration::from_millis(20));
        capture.report().counts.stored > before
    });
}

#[test]
fn frames_of_every_length_and_with_tags_are_stored_unchanged() {
    let test = "frames_of_every_length_and_with_tags_are_stored_unchanged";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let store = TempDir::new(test);
    for (i, kind) in KINDS.into_iter().enumerate() {
        let (a, b) = sandbox.veth(&format!("a{i}"), &format!("b{i}"));
        let plan = live(port(&b.name, kind), &store, kind);
        let capture = start(&plan);
        let mut sent: Vec<_> = (60..=1514).map(|len| frame(len as u32, len, &[])).collect();
        // Frames with one VLAN tag, with a service tag and a customer tag, and with three tags.
        for tags in [&[(0x8100, 5)][..], &[(0x88a8, 100), (0x8100, 7)], &[(0x8100, 1), (0x8100, 2), (0x8100, 3)]] {
            sent.extend([64, 594, 1500].map(|len| frame(len as u32, len, tags)));
        }
        // The shortest frames that the kernel sends: only an Ethernet header, and a tagged frame with two bytes.
        sent.extend([frame(1, 14, &[]), frame(2, 15, &[]), frame(3, 20, &[(0x8100, 5)])]);
        send(&capture, &RawSender::new(&a), &sent);
        let ended = stop(capture, &plan);
        assert!(ended.outcome.is_ok() && ended.report.counts.lost_total == 0, "{:?}", ended.report);
        assert!(bytes(&ended) == sent, "{kind:?}: the stored bytes differ from the sent bytes");
        assert!(ended.packets().all(|p| p.wire_len as usize == p.bytes.len()));
    }
}

#[test]
fn jumbo_frames_are_stored_complete() {
    let test = "jumbo_frames_are_stored_complete";
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
        assert!(bytes(&ended) == sent, "{kind:?}: the stored bytes differ from the sent bytes");
    }
}

#[test]
fn the_longest_loopback_frame_is_stored_once_and_complete() {
    let test = "the_longest_loopback_frame_is_stored_once_and_complete";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let store = TempDir::new(test);
    let lo = sandbox.netlink().link("lo").expect("the loopback interface").index;
    sandbox.netlink().set_mtu(lo, 65_521).expect("the largest MTU");
    let plan = live(port("lo", SourceKind::Tpacket), &store, SourceKind::Tpacket);
    let capture = start(&plan);
    let sent = [frame(0, 65_535, &[]), frame(1, 65_534, &[]), frame(2, 60, &[])];
    send(&capture, &RawSender::new(&Port { name: "lo".to_owned(), index: lo }), &sent);
    let ended = stop(capture, &plan);
    assert!(bytes(&ended) == sent, "{:?}", ended.report);
}

#[test]
fn filtered_and_truncated_packets_are_counted() {
    let test = "filtered_and_truncated_packets_are_counted";
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
        assert_eq!(ended.note_count(Note::Truncated), longer, "{kind:?}");
        for (packet, whole) in ended.packets().zip(tagged(8)) {
            assert_eq!((packet.wire_len as usize, &packet.bytes[..]), (whole.len(), &whole[..whole.len().min(100)]));
        }
    }
}

#[test]
fn two_queues_record_into_separate_files_and_share_one_ledger() {
    let test = "two_queues_record_into_separate_files_and_share_one_ledger";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let store = TempDir::new(test);
    for (i, kind) in KINDS.into_iter().enumerate() {
        let options = VethOptions { queues: 2, ..VethOptions::default() };
        let (a, b) = sandbox.veth_with(&format!("a{i}"), &format!("b{i}"), options);
        let plan = live(InterfacePlan { queues: Some(2), ..port(&b.name, kind) }, &store, kind);
        let capture = start(&plan);
        // There are enough flows that each queue gets some.
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
        let (mut stored_bytes, mut sent_bytes) = (bytes(&ended), sent);
        stored_bytes.sort();
        sent_bytes.sort();
        assert!(stored_bytes == sent_bytes, "{kind:?}: the stored bytes differ from the sent bytes");
    }
}

#[test]
fn outgoing_packets_are_stored_once_and_noted() {
    let test = "outgoing_packets_are_stored_once_and_noted";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (store, (a, b)) = (TempDir::new(test), sandbox.veth("a", "b"));
    let plan = live(port(&b.name, SourceKind::Tpacket), &store, SourceKind::Tpacket);
    let capture = start(&plan);
    send(&capture, &RawSender::new(&a), &frames(0..30, 100));
    send(&capture, &RawSender::new(&b), &frames(30..50, 100));
    let ended = stop(capture, &plan);
    assert_eq!((ended.report.counts.stored, ended.note_count(Note::Outgoing)), (50, 20));
    assert!(bytes(&ended) == frames(0..50, 100));
}

#[test]
fn super_frames_of_the_kernel_are_stored_and_noted() {
    let test = "super_frames_of_the_kernel_are_stored_and_noted";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (store, lo) = (TempDir::new(test), sandbox.netlink().link("lo").expect("the loopback interface"));
    // The kernel leaves segmentation to the interface, and loopback does not segment, so TCP data of the host is
    // captured unsegmented.
    sandbox.netlink().set_mtu(lo.index, 1500).expect("the MTU of Ethernet");
    let plan = live(port("lo", SourceKind::Tpacket), &store, SourceKind::Tpacket);
    let capture = start(&plan);
    let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    let mut client = std::net::TcpStream::connect(server.local_addr().expect("an address")).expect("a connection");
    let (mut peer, _) = server.accept().expect("the accepted connection");
    let reader = std::thread::spawn(move || std::io::copy(&mut peer, &mut std::io::sink()));
    std::io::Write::write_all(&mut client, &vec![0; 1 << 20]).expect("a megabyte");
    drop(client);
    assert_eq!(reader.join().expect("a reader").expect("the data of the connection"), 1 << 20);
    until("a super-frame", || capture.report().counts.notes.contains_key(Note::SuperFrame.name()));
    let ended = stop(capture, &plan);
    assert!(ended.outcome.is_ok());
    let long = ended.packets().filter(|p| p.wire_len > 1514).count() as u64;
    assert_eq!(ended.note_count(Note::SuperFrame), long);
}

#[test]
fn capture_continues_after_an_interface_was_down() {
    let test = "capture_continues_after_an_interface_was_down";
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
fn capture_continues_after_an_interface_is_renamed() {
    let test = "capture_continues_after_an_interface_is_renamed";
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
fn an_interface_that_returns_from_another_namespace_is_captured_again() {
    let test = "an_interface_that_returns_from_another_namespace_is_captured_again";
    for kind in KINDS {
        // The calling thread remains in the network namespace that was created last.
        let Some(other) = Sandbox::new(test) else { return };
        let Some(sandbox) = Sandbox::new(test) else { return };
        let (store, (a, b)) = (TempDir::new(test), sandbox.veth("a", "b"));
        let plan = live(port(&b.name, kind), &store, kind);
        let (capture, wire) = (start(&plan), RawSender::new(&a));
        send(&capture, &wire, &frames(0..20, 100));
        sandbox.netlink().move_to(b.index, std::os::fd::AsFd::as_fd(other.namespace())).expect("move");
        until_warning(&capture, "b was removed");
        other.namespace().enter().expect("enter the other namespace");
        let index = other.netlink().link("b").expect("the interface").index;
        other.netlink().move_to(index, std::os::fd::AsFd::as_fd(sandbox.namespace())).expect("move back");
        sandbox.namespace().enter().expect("enter the first namespace");
        let back = Port { name: b.name.clone(), index: sandbox.netlink().link("b").expect("the interface").index };
        sandbox.set_up(&back, true);
        until_warning(&capture, "b exists again");
        send_until_stored(&capture, &wire, &frame(99, 100, &[]));
        sandbox.wait_until_running(&a);
        send(&capture, &wire, &frames(20..40, 100));
        let ended = stop(capture, &plan);
        assert_removed_and_created_again(&ended, kind);
        // The inner sandbox must be dropped before the outer one.
        drop(sandbox);
        drop(other);
    }
}

#[test]
fn an_interface_that_is_deleted_and_created_again_is_captured_again() {
    let test = "an_interface_that_is_deleted_and_created_again_is_captured_again";
    for kind in KINDS {
        let Some((sandbox, _store, plan, capture)) = capture_of_a_deleted_interface(test, kind) else { return };
        let (a, _) = sandbox.veth("a", "b");
        until_warning(&capture, "b exists again");
        let wire = RawSender::new(&a);
        send_until_stored(&capture, &wire, &frame(99, 100, &[]));
        send(&capture, &wire, &frames(20..40, 100));
        assert_removed_and_created_again(&stop(capture, &plan), kind);
    }
}

#[test]
fn an_interface_with_two_queues_returns_with_both() {
    let test = "an_interface_with_two_queues_returns_with_both";
    for kind in KINDS {
        let Some(sandbox) = Sandbox::new(test) else { return };
        let options = VethOptions { queues: 2, ..VethOptions::default() };
        let (store, (a, b)) = (TempDir::new(test), sandbox.veth_with("a", "b", options));
        let plan = live(InterfacePlan { queues: Some(2), ..port(&b.name, kind) }, &store, kind);
        let capture = start(&plan);
        send(&capture, &RawSender::new(&a), &frames(0..20, 100));
        sandbox.netlink().delete_link(b.index).expect("delete");
        let warnings = |text: &str| capture.report().warnings.iter().filter(|r| r.contains(text)).count();
        until("both queues report the missing interface", || warnings("b was removed") == 2);
        let (a, _) = sandbox.veth_with("a", "b", options);
        until("both queues report the new interface", || warnings("b exists again") == 2);
        let wire = RawSender::new(&a);
        send_until_stored(&capture, &wire, &frame(99, 100, &[]));
        send(&capture, &wire, &frames(20..40, 100));
        let ended = stop(capture, &plan);
        let again = frame(99, 100, &[]);
        let (mut stored_bytes, mut sent_bytes) = (bytes(&ended), frames(0..40, 100));
        stored_bytes.retain(|f| *f != again);
        stored_bytes.sort();
        sent_bytes.sort();
        assert!(stored_bytes == sent_bytes, "{kind:?}: {:?}", ended.report);
    }
}

#[test]
fn a_capture_of_a_deleted_interface_can_be_stopped() {
    let test = "a_capture_of_a_deleted_interface_can_be_stopped";
    for kind in KINDS {
        let Some((_sandbox, _store, plan, capture)) = capture_of_a_deleted_interface(test, kind) else { return };
        let ended = stop(capture, &plan);
        assert!(ended.outcome.is_ok(), "{:?}", ended.outcome);
        assert!(bytes(&ended) == frames(0..20, 100), "{kind:?}: {:?}", ended.report);
    }
}

/// Captures 20 frames of an interface, and then deletes the interface.
fn capture_of_a_deleted_interface(test: &str, kind: SourceKind) -> Option<(Sandbox, TempDir, Plan, Capture)> {
    let sandbox = Sandbox::new(test)?;
    let (store, (a, b)) = (TempDir::new(test), sandbox.veth("a", "b"));
    let plan = live(port(&b.name, kind), &store, kind);
    let capture = start(&plan);
    send(&capture, &RawSender::new(&a), &frames(0..20, 100));
    sandbox.netlink().delete_link(b.index).expect("delete");
    until_warning(&capture, "b was removed");
    Some((sandbox, store, plan, capture))
}

fn until_warning(capture: &Capture, text: &str) {
    let begun = Instant::now();
    while !capture.report().warnings.iter().any(|r| r.contains(text)) {
        assert!(begun.elapsed() < WAIT_MAX, "no warning with {text:?}: {:#?}", capture.report());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Asserts that the frames sent while the interface existed are stored in order. Frame 99 may be stored any number of
/// times, because it is sent repeatedly to find out when the new interface is ready.
fn assert_removed_and_created_again(ended: &Ended, kind: SourceKind) {
    assert!(ended.outcome.is_ok(), "{kind:?}: {:?}", ended.outcome);
    let again = frame(99, 100, &[]);
    let rest: Vec<_> = bytes(ended).into_iter().filter(|f| *f != again).collect();
    assert!(rest == frames(0..40, 100), "{kind:?}: {:?}", ended.report);
    assert!(ended.has_warning("b was removed") && ended.has_warning("b exists again"));
    assert_eq!(ended.lost(Cause::Source), 0);
}
