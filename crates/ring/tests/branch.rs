//! Tests of branches: delivered packets are complete and in order, writer and reader count lost packets exactly, and no
//! reader causes losses of another reader.
#![cfg(not(loom))]

mod support;

use base::{Cause, DuplicateClass, Prng, Timestamp, TimestampMethod};
use netgrain_ring::{
    Annotations, AttachError, BRANCH_DESCS_MIN, Branch, BranchWriter, Config, Control, Desc, Listener, OfferedRing,
    Packet, Producer,
};
use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use support::{config, frame, number, socket_path, until};
use sys::unix::{Connection, Listener as Socket};

const START: Timestamp = Timestamp::from_secs_nanos(1_700_000_000, 0);

fn branch_of(p: &Producer) -> (BranchWriter, Branch) {
    Branch::grow(p.memory(), &OfferedRing::of(p).shape, "test/group", BRANCH_DESCS_MIN).expect("memory")
}

/// Writes packet `n` into the ring and returns its descriptor.
fn push(p: &mut Producer, n: u64, buffer: &mut Vec<u8>) -> Desc {
    frame(n, buffer);
    let ts = Timestamp::from_nanos(START.nanos() + n);
    let annotations = Annotations::new(TimestampMethod::Kernel, Some(DuplicateClass::Nat));
    let packet = Packet { hash: n as u32, annotations, ..Packet::whole(buffer, ts) };
    p.push(&packet).expect("no lossless reader limits the producer");
    p.publish();
    let (head, memory) = (p.memory().control.positions().head(), p.memory());
    // SAFETY: the descriptor is published, and this function borrows the only producer.
    unsafe { memory.held_descs(head - 1, head)[0] }
}

/// A connected pair of sockets.
fn socket_pair(test: &str) -> (Connection, Connection) {
    let listener = Socket::bind(&socket_path(test), 0o600, None, None).expect("a socket");
    let client = Connection::connect(listener.path()).expect("connected");
    (listener.accept().expect("accepted"), client)
}

#[test]
fn a_branch_agrees_with_a_queue_of_numbers_on_a_random_walk() {
    let mut random = Prng::new(testkit::seed("a_branch_agrees_with_a_queue_of_numbers_on_a_random_walk"));
    let mut p = Producer::new(config()).expect("memory");
    let (mut writer, branch) = branch_of(&p);
    let mut reader = branch.listen();
    // The expected results: `Ok` is the number of a delivered packet, `Err` is a number of lost packets.
    let mut model: VecDeque<Result<u64, u64>> = VecDeque::new();
    let (mut buffer, mut descs, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    let (mut n, mut delivered, mut lost, mut seen, mut unread) = (0, 0u64, 0u64, 0u64, 0u64);
    let mut generation = 0;
    for _ in 0..600 {
        match random.below(10) {
            0 => {
                generation += 1;
                writer.set_generation(generation);
            }
            1..=5 => {
                for _ in 0..random.below(3_000) {
                    let desc = push(&mut p, n, &mut buffer).evaluated_by(7, generation, n as u32 ^ 0xffff);
                    if writer.push(desc) {
                        model.push_back(Ok(n));
                        (delivered, unread) = (delivered + 1, unread + 1);
                    } else {
                        // The reader releases the descriptors of its last read only with its next read.
                        let held = unread + descs.len() as u64;
                        assert!(held > BRANCH_DESCS_MIN - 700, "the branch holds only {held} descriptors");
                        lost += 1;
                        match model.back_mut() {
                            Some(Err(packets)) => *packets += 1,
                            _ => model.push_back(Err(1)),
                        }
                    }
                    n += 1;
                }
                writer.publish();
            }
            _ => {
                let most = if random.below(20) == 0 { 60_000 } else { 2_000 };
                reader.next(random.below(most) as usize, &mut descs);
                for d in &descs {
                    if let Some(value) = d.as_program() {
                        assert!(value <= generation);
                    } else if let Some(Control::Lost { cause: Cause::RingFull, packets, .. }) = d.as_control() {
                        assert_eq!(
                            model.pop_front(),
                            Some(Err(packets)),
                            "the loss is reported at its position in the stream"
                        );
                    } else {
                        let expected = model.pop_front().and_then(Result::ok).expect("an expected packet");
                        assert_eq!((d.hash, d.mark, d.class()), (expected as u32, expected as u32 ^ 0xffff, 7));
                        let annotations = (d.timestamp_method(), d.duplicate_class());
                        assert_eq!(annotations, (TimestampMethod::Kernel, Some(DuplicateClass::Nat)));
                        if let Some(bytes) = reader.packet(d, &mut bytes) {
                            assert_eq!(number(bytes), expected);
                        }
                        (seen, unread) = (seen + 1, unread - 1);
                    }
                }
            }
        }
        assert_eq!((writer.delivered(), writer.lost()), (delivered, lost));
        assert_eq!(writer.tally().residue(), 0);
    }
    assert!(lost > 100 && seen > 10_000, "the walk must have losses and deliveries: {lost} lost, {seen} seen");
    drop(writer);
    while !reader.ended() {
        reader.next(1000, &mut descs);
        seen += descs.iter().filter(|d| d.is_packet()).count() as u64;
    }
    let counts = reader.counts();
    assert_eq!((seen, counts.published, counts.seen, counts.missed), (delivered, delivered, delivered, 0));
    assert_eq!(reader.tally().lost[Cause::RingFull as usize], lost, "the reader receives the count of all losses");
}

#[test]
fn packets_that_the_ring_has_overwritten_are_counted_and_never_returned() {
    let mut p = Producer::new(config()).expect("memory");
    let (mut writer, branch) = branch_of(&p);
    let mut reader = branch.listen();
    let mut buffer = Vec::new();
    for n in 0..2_000 {
        let desc = push(&mut p, n, &mut buffer);
        assert!(writer.push(desc));
    }
    writer.publish();
    // The producer writes, while no reader reads, until about half of the packets are overwritten.
    let capacity = p.memory().byte_capacity();
    let mut n = 2_000;
    while p.memory().control.positions().oldest_pos(capacity) < 600_000 {
        push(&mut p, n, &mut buffer);
        n += 1;
    }
    let (mut descs, mut bytes, mut whole) = (Vec::new(), Vec::new(), 0);
    reader.next(4_000, &mut descs);
    let packets: Vec<&Desc> = descs.iter().filter(|d| d.is_packet()).collect();
    for (i, d) in packets.iter().enumerate() {
        if let Some(bytes) = reader.packet(d, &mut bytes) {
            assert_eq!(number(bytes), i as u64);
            whole += 1;
        }
    }
    assert_eq!(packets.len(), 2_000);
    assert_eq!(whole + reader.torn(), 2_000);
    assert!((500..1_500).contains(&whole), "{whole} whole");
    reader.report();
    assert_eq!(branch.reported(), (2_000, reader.torn()));
}

#[test]
fn a_dead_reader_of_a_branch_causes_no_loss_in_other_branches() {
    let mut p = Producer::new(config()).expect("memory");
    let (mut slow, _dead) = branch_of(&p);
    let (mut quick, branch) = branch_of(&p);
    let mut reader = branch.listen();
    let (mut buffer, mut descs, mut seen) = (Vec::new(), Vec::new(), 0);
    for n in 0..100_000 {
        let desc = push(&mut p, n, &mut buffer);
        slow.push(desc);
        assert!(quick.push(desc), "packet {n}");
        if n % 100 == 99 {
            slow.publish();
            quick.publish();
            reader.next(1_000, &mut descs);
            seen += descs.iter().filter(|d| d.is_packet()).count();
        }
    }
    assert_eq!(seen, 100_000);
    assert_eq!(slow.delivered() + slow.lost(), 100_000);
    assert!((BRANCH_DESCS_MIN - 8..=BRANCH_DESCS_MIN).contains(&slow.delivered()), "{}", slow.delivered());
    assert!(slow.fill() > 0.99 && quick.fill() < 0.1);
}

/// Reads a branch to its end; returns the packets read and the packets reported as lost.
fn read(mut l: Listener) -> (u64, u64) {
    let (mut descs, mut bytes, mut last) = (Vec::new(), Vec::new(), None);
    let mut lost = 0;
    while !l.ended() {
        l.next(500, &mut descs);
        for d in &descs {
            if let Some(Control::Lost { packets, .. }) = d.as_control() {
                lost += packets;
            }
            if d.is_packet()
                && let Some(n) = l.packet(d, &mut bytes).map(number)
            {
                assert!(last < Some(n), "packet {n} after {last:?}");
                assert_eq!(d.hash, n as u32, "descriptor and bytes are of one packet");
                last = Some(n);
            }
        }
        if descs.is_empty() {
            std::thread::yield_now();
        }
    }
    let counts = l.counts();
    assert_eq!((counts.seen, counts.missed, counts.waiting), (counts.published, 0, 0));
    (counts.seen, lost)
}

#[test]
fn readers_of_branches_sent_through_sockets_get_complete_packets() {
    const PACKETS: u64 = 200_000;
    let mut p = Producer::new(config()).expect("memory");
    let mut writers = Vec::new();
    let readers: Vec<_> = (0..3)
        .map(|i| {
            let (writer, branch) = branch_of(&p);
            writers.push(writer);
            let (ours, theirs) = socket_pair(&format!("travel{i}"));
            branch.send(&ours).expect("sent");
            let listener = Branch::receive(&Arc::new(theirs)).expect("a branch");
            assert_eq!((listener.shape().name.as_str(), listener.shape().descs), ("test/group", BRANCH_DESCS_MIN));
            // The engine's end of the connection stays open, as in the control server.
            (std::thread::spawn(move || read(listener)), ours)
        })
        .collect();
    let mut buffer = Vec::new();
    for n in 0..PACKETS {
        let desc = push(&mut p, n, &mut buffer);
        writers.iter_mut().for_each(|w| _ = w.push(desc));
        if n % 64 == 0 {
            writers.iter_mut().for_each(BranchWriter::publish);
        }
    }
    let counts: Vec<(u64, u64)> = writers.iter().map(|w| (w.delivered(), w.lost())).collect();
    drop(writers);
    for ((reader, _open), (delivered, lost)) in readers.into_iter().zip(counts) {
        let (seen, result) = reader.join().expect("no panic");
        assert_eq!((seen, delivered + lost), (delivered, PACKETS));
        assert!(result <= lost, "{result} of {lost} reported: the last report may have found no free space");
    }
}

#[test]
fn a_reader_that_stores_a_false_cursor_cannot_corrupt_packets() {
    let mut random = Prng::new(testkit::seed("a_reader_that_stores_a_false_cursor_cannot_corrupt_packets"));
    let mut p = Producer::new(config()).expect("memory");
    let (mut writer, branch) = branch_of(&p);
    let (ours, theirs) = socket_pair("liar");
    branch.send(&ours).expect("sent");
    let mut message = [0; 64];
    let (_, fds) = theirs.receive(&mut message).expect("the branch");
    let cursor = fds.into_iter().nth(4).expect("five descriptors");
    let cursor = sys::memory::SharedMemory::attach_read_write(cursor, 4096).expect("its own page");
    // SAFETY: the page is mapped for as long as `cursor` lives, and words are aligned.
    let word = |i: usize| unsafe { &*cursor.base().cast::<AtomicU64>().add(i) };
    let mut honest = branch.listen();
    let (mut buffer, mut n, mut descs) = (Vec::new(), 0, Vec::new());
    for _ in 0..2_000 {
        for _ in 0..random.below(50) {
            let desc = push(&mut p, n, &mut buffer);
            writer.push(desc);
            n += 1;
        }
        writer.publish();
        let head = writer.tally().stored;
        let value = match random.below(5) {
            0 => 0,
            1 => u64::MAX,
            2 => head.wrapping_add(random.below(100)),
            3 => head.saturating_sub(random.below(5_000)),
            _ => random.next_u64(),
        };
        word(0).store(value, Ordering::Release);
        word(1).store(random.next_u64(), Ordering::Release);
        assert_eq!(writer.delivered() + writer.lost(), n);
        assert!((0.0..=1.0).contains(&writer.fill()));
        // A second reader of this branch may be overtaken because of the false cursor. It still never gets a wrong
        // packet.
        honest.next(100, &mut descs);
        let mut bytes = Vec::new();
        for d in descs.iter().filter(|d| d.is_packet()) {
            if let Some(bytes) = honest.packet(d, &mut bytes) {
                assert_eq!(number(bytes) as u32, d.hash);
            }
        }
    }
}

#[test]
fn a_full_branch_still_reports_its_end_and_a_closed_connection_is_detected() {
    let mut p = Producer::new(config()).expect("memory");
    let (mut writer, branch) = branch_of(&p);
    let (ours, theirs) = socket_pair("end");
    branch.send(&ours).expect("sent");
    let mut l = Branch::receive(&Arc::new(theirs)).expect("a branch");
    let mut buffer = Vec::new();
    for n in 0..BRANCH_DESCS_MIN * 2 {
        let desc = push(&mut p, n, &mut buffer);
        writer.push(desc);
    }
    let (delivered, lost) = (writer.delivered(), writer.lost());
    drop(writer);
    let (mut descs, mut seen) = (Vec::new(), 0);
    while !l.ended() {
        l.next(1_000, &mut descs);
        seen += descs.iter().filter(|d| d.is_packet()).count() as u64;
    }
    assert_eq!((seen, l.tally().lost[Cause::RingFull as usize]), (delivered, lost));
    assert!(l.connected());
    drop(ours);
    until("the listener detects the closed connection", || !l.connected());
}

#[test]
fn a_malformed_branch_message_is_rejected_with_its_reason() {
    let p = Producer::new(Config { start: 1 << 40, ..config() }).expect("memory");
    let other = Producer::new(Config { bytes: 16 << 20, ..config() }).expect("memory");
    let (_writer, branch) = branch_of(&p);
    let (_other_writer, other_branch) = branch_of(&other);
    let null = File::open("/dev/null").expect("/dev/null");
    let parts = |b: &Branch| {
        let (ours, theirs) = socket_pair("parts");
        b.send(&ours).expect("sent");
        let mut message = [0; 64];
        let (n, fds) = theirs.receive(&mut message).expect("the branch");
        (message[..n].to_vec(), fds)
    };
    let (message, fds) = parts(&branch);
    let (_, foreign) = parts(&other_branch);
    let refused = |message: &[u8], fds: &[std::os::fd::BorrowedFd<'_>]| {
        let (ours, theirs) = socket_pair("refused");
        ours.send(message, fds).expect("sent");
        drop(ours);
        match Branch::receive(&Arc::new(theirs)) {
            Err(e @ (AttachError::Protocol(_) | AttachError::Memory(_) | AttachError::Unreachable(_))) => e.to_string(),
            other => panic!("the branch was accepted: {other:?}"),
        }
    };
    let all: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    assert!(refused(&message, &all[..4]).contains("five file descriptors"));
    assert!(refused(&message[..16], &all).contains("malformed"));
    refused(&[message.as_slice(), &[0]].concat(), &all);
    let mut swapped = all.clone();
    swapped[3] = foreign[3].as_fd();
    assert!(refused(&message, &swapped).contains("another ring"));
    let mut wrong = message.clone();
    wrong[9] ^= 1;
    assert!(refused(&wrong, &all).contains("sizes of the branch"));
    for i in 0..5 {
        let mut holed = all.clone();
        holed[i] = null.as_fd();
        refused(&message, &holed);
    }
}
