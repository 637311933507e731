//! The frames that are made of packets, and their counters.

use crate::support::{numbered, plain};
use base::{Prng, Timestamp};
use filter::Filter;
use netgrain_replay::prepare::Block;
use netgrain_replay::rewrite::VlanEdit;
use netgrain_replay::{CapturedPacket, Preparation, Preparer, Rewrite, Rewriter, SecondInterface, Truncated};
use pcap::Direction;

fn packet(bytes: &[u8]) -> CapturedPacket<'_> {
    CapturedPacket {
        ts: Some(Timestamp::from_nanos(5)),
        wire_len: bytes.len() as u32,
        bytes,
        link_type: 1,
        direction: Direction::Unknown,
        input: 0,
    }
}

fn made(preparation: Preparation, rewrite: Rewrite, packets: &[CapturedPacket<'_>]) -> Block {
    let mut preparer = Preparer::new(preparation, Rewriter::new(rewrite));
    let mut block = Block::default();
    for packet in packets {
        assert!(preparer.take(packet, 0, &mut block));
    }
    assert_eq!(block.counts.residue(), 0, "{:?}", block.counts);
    block
}

#[test]
fn each_packet_that_cannot_be_sent_is_counted_by_its_reason() {
    let long = numbered(1, 1515);
    let frame = numbered(2, 100);
    let packets = [
        packet(&long),
        packet(&frame[..13]),
        CapturedPacket { link_type: 113, ..packet(&frame) },
        CapturedPacket { wire_len: 101, ..packet(&frame) },
        packet(&frame),
    ];
    let block = made(plain(), Rewrite::default(), &packets);
    let counts = block.counts;
    assert_eq!((counts.over_mtu, counts.too_short, counts.other_link, counts.truncated), (1, 1, 1, 1));
    assert_eq!((counts.read, counts.replayed, counts.skipped()), (5, 1, 4));
    assert_eq!((block.frames.len(), block.frame(0)), (1, &frame[..]));
}

#[test]
fn truncated_packets_are_padded_or_sent_on_request() {
    let frame = numbered(2, 100);
    let truncated = CapturedPacket { wire_len: 300, ..packet(&frame) };
    let with = |truncated| Preparation { truncated, ..plain() };
    let sent = made(with(Truncated::Send), Rewrite::default(), &[truncated]);
    assert_eq!((sent.frame(0), sent.counts.sent_truncated), (&frame[..], 1));
    let padded = made(with(Truncated::Pad), Rewrite::default(), &[truncated]);
    assert_eq!((&padded.frame(0)[..100], padded.frame(0).len(), padded.counts.padded), (&frame[..], 300, 1));
    assert!(padded.frame(0)[100..].iter().all(|byte| *byte == 0));
    let copied = made(with(Truncated::Pad), Rewrite { copies: 2, ..Rewrite::default() }, &[truncated]);
    assert_eq!((copied.frames.len(), copied.frame(1)), (2, padded.frame(0)));
    // The length on the wire counts against the MTU only if the packet is sent with this length.
    let huge = CapturedPacket { wire_len: 9000, ..packet(&frame) };
    assert_eq!(made(with(Truncated::Pad), Rewrite::default(), &[huge]).counts.over_mtu, 1);
    assert_eq!(made(with(Truncated::Send), Rewrite::default(), &[huge]).counts.sent_truncated, 1);
}

#[test]
fn a_tag_may_exceed_the_mtu() {
    let mut tagged = numbered(1, 1518);
    tagged[12..14].copy_from_slice(&[0x81, 0]);
    assert_eq!(made(plain(), Rewrite::default(), &[packet(&tagged)]).counts.replayed, 1);
    let longer = [&tagged[..], &[0]].concat();
    assert_eq!(made(plain(), Rewrite::default(), &[packet(&longer)]).counts.over_mtu, 1);
    let vlan = |vlan| Rewrite { vlan: Some(vlan), ..Rewrite::default() };
    let full = numbered(1, 1514);
    assert_eq!(made(plain(), vlan(VlanEdit::Add(7)), &[packet(&full)]).frame(0).len(), 1518);
    assert_eq!(made(plain(), vlan(VlanEdit::Remove), &[packet(&tagged)]).frame(0).len(), 1514);
    assert_eq!(made(plain(), vlan(VlanEdit::Add(7)), &[packet(&longer)]).counts.over_mtu, 1);
}

#[test]
fn the_second_interface_gets_the_packets_of_its_rule() {
    let mut buffer = [0; 100];
    let frame = |port, buffer: &mut [u8]| {
        wire::build::Frame::udp4([10, 0, 0, 1], port, [10, 0, 0, 2], 53).write(buffer).unwrap().to_vec()
    };
    let (a, b) = (frame(1000, &mut buffer), frame(2000, &mut buffer));
    let packets = [
        CapturedPacket { input: 1, direction: Direction::Outbound, ..packet(&a) },
        CapturedPacket { input: 0, direction: Direction::Inbound, ..packet(&b) },
        CapturedPacket { input: 2, ..packet(&b) },
    ];
    let outputs = |second| {
        let preparation = Preparation { second: Some(second), ..plain() };
        let block = made(preparation, Rewrite::default(), &packets);
        block.frames.iter().map(|frame| frame.output).collect::<Vec<_>>()
    };
    assert_eq!(outputs(SecondInterface::Outbound), [1, 0, 0]);
    assert_eq!(outputs(SecondInterface::OtherInputs), [1, 0, 1], "the first packet need not be of the first input");
    assert_eq!(outputs(SecondInterface::Matching(Filter::parse("src port 2000").unwrap())), [0, 1, 1]);
    let filter = Filter::parse("src port 1000").unwrap();
    let block = made(Preparation { filter, ..plain() }, Rewrite::default(), &packets);
    assert_eq!((block.counts.filtered, block.counts.replayed), (2, 1));
}

#[test]
fn copies_continue_in_the_next_block_in_their_order() {
    let mut prng = Prng::new(1);
    let rewrite = Rewrite { copies: 300, ..Rewrite::default() };
    let mut preparer = Preparer::new(plain(), Rewriter::new(rewrite));
    let (mut block, mut lens) = (Block::default(), Vec::new());
    let mut blocks = Vec::new();
    for number in 0..20 {
        let len = 60 + prng.below(1400) as usize;
        lens.push(len);
        let bytes = numbered(number, len);
        let mut is_complete = preparer.take(&packet(&bytes), 0, &mut block);
        while !is_complete {
            blocks.push(std::mem::take(&mut block));
            is_complete = preparer.more(&mut block);
        }
    }
    blocks.push(block);
    assert!(
        blocks.len() > 5 && blocks.iter().all(|block| block.bytes.len() < netgrain_replay::prepare::BLOCK_BYTES + 1500)
    );
    let all: Vec<(usize, bool)> =
        blocks.iter().flat_map(|block| block.frames.iter().map(|frame| (frame.len as usize, frame.is_copy))).collect();
    let expected = lens.iter().flat_map(|len| (0..300).map(move |copy| (*len, copy > 0)));
    assert!(all.into_iter().eq(expected));
}
