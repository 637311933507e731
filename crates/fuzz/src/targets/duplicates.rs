//! The target gives a sequence of packets to the detector of duplicates and to the naive detector, which compares all
//! bytes. As long as the index of the table evicted no entry of the window, both must give the same results, also if
//! the table is divided into shards.
//!
//! ```text
//! settings: classes u8 · window u8 · repeat window u8 · flags u8
//! packet:   way u8 · gap u8 · argument u16 · length u8, and that number of bytes
//! ```
//! The way selects new bytes, or a copy of an earlier packet as devices on the path make it, of which one byte may be
//! changed.

use crate::Target;
use base::Prng;
use difftest::naive_duplicates::{Naive, OwnedPacket};
use duplicates::{Class, Classes, Detector, Settings};
use std::time::Duration;
use testkit::copies::Copied;
use wire::build::Frame;

pub const TARGET: Target = Target { name: "duplicates", run, seeds, rounds: 5_000, memory: 16 << 20 };

/// Packets of an input that are compared; the naive detector needs time in proportion to the square.
const PACKETS_MAX: usize = 120;

const SETTINGS: usize = 4;
const HEAD: usize = 5;

/// The bits of the flags.
mod flag {
    pub const MIRRORED: u8 = 1;
    pub const UNORDERED: u8 = 2;
    pub const FEW_RECORDS: u8 = 4;
    pub const FEW_PACKETS: u8 = 8;
}

fn settings(&[classes, window, repeat_window, flags]: &[u8; SETTINGS]) -> Settings {
    let classes: Classes = Class::ALL.into_iter().filter(|class| classes >> class.index() & 1 == 1).collect();
    let has = |bit: u8| flags & bit != 0;
    Settings {
        classes: if classes.is_empty() { Classes::ALL } else { classes },
        window: Duration::from_micros(1 + 4 * u64::from(window)),
        repeat_window: Duration::from_micros(repeat_window.into()),
        mirrored_interfaces: has(flag::MIRRORED),
        unordered_interfaces: has(flag::UNORDERED),
        records: if has(flag::FEW_RECORDS) { 7 } else { PACKETS_MAX },
        window_packets: if has(flag::FEW_PACKETS) { 5 } else { u64::MAX },
        // All records of an input are copies of one packet at most.
        copies_max: u8::MAX,
        ..Settings::default()
    }
}

/// The packets that an input describes.
fn packets(mut rest: &[u8]) -> Vec<OwnedPacket> {
    let mut packets: Vec<OwnedPacket> = Vec::new();
    let mut nanos = 1_000_000;
    while let Some((&[way, gap, low, high, len], after)) = rest.split_first_chunk::<HEAD>() {
        let (bytes, after) = after.split_at(after.len().min(len.into()));
        rest = after;
        nanos += u64::from(gap) * 100;
        let argument = usize::from(u16::from_le_bytes([low, high]));
        let earlier = packets.len().checked_sub(1).map(|last| &packets[last - argument % packets.len()].data);
        let copy = earlier.and_then(|earlier| {
            let way = Copied::ALL.get(usize::from(way >> 1 & 7))?;
            way.of(earlier, &mut Prng::new(u64::from(high))).into_iter().next()
        });
        let mut data = copy.unwrap_or_else(|| bytes.to_vec());
        if let Some([at, bits, ..]) = (way & 0x80 != 0).then_some(bytes) {
            let at = usize::from(*at) % data.len().max(1);
            data.get_mut(at).into_iter().for_each(|byte| *byte ^= bits);
        }
        packets.push(OwnedPacket { nanos, wire_len: data.len() as u32, data, interface: u16::from(way & 1) });
        if packets.len() == PACKETS_MAX {
            break;
        }
    }
    packets
}

fn run(bytes: &[u8]) {
    let Some((head, rest)) = bytes.split_first_chunk::<SETTINGS>() else { return };
    let (settings, packets) = (settings(head), packets(rest));
    let new = || Detector::new(settings.clone(), 7).expect("valid settings");
    let (mut detector, mut naive) = (new(), Naive::new(settings.clone()));
    let shard = |_| (new(), Naive::new(settings.clone()));
    let mut shards: Vec<(Detector, Naive)> = (0..settings.shards()).map(shard).collect();
    let mut preparer = detector.preparer();
    for (number, owned) in packets.iter().enumerate() {
        let packet = owned.packet();
        let found = detector.inspect(&packet).map(|duplicate| duplicate.class);
        let expected = naive.inspect(owned);
        assert!(
            !is_exact(&detector) || found == expected,
            "packet {number}: {found:?}, not {expected:?}, {settings:?}"
        );
        let prepared = preparer.prepare(&packet);
        // A shard is compared with a naive detector of its own, because windows in packets count the packets of the
        // shard.
        let (shard, naive) = &mut shards[prepared.shard(settings.shards())];
        let in_shard = shard.inspect_prepared(&packet, &prepared).map(|duplicate| duplicate.class);
        let expected = naive.inspect(owned);
        assert!(!is_exact(shard) || in_shard == expected, "packet {number} in a shard, {settings:?}");
    }
}

/// True if the detector has forgotten no packet within the window.
fn is_exact(detector: &Detector) -> bool {
    let counts = detector.counts();
    counts.evicted + counts.crowded + counts.bindings_replaced == 0
}

fn seeds() -> Vec<Vec<u8>> {
    let frame = |frame: Frame<'_>| {
        let mut buffer = [0; 250];
        frame.write(&mut buffer).map(<[u8]>::to_vec).unwrap_or_default()
    };
    let (source, destination) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let frames = [
        frame(Frame::udp4(source, 4000, destination, 53).fragment(7, 0, false).payload(b"question")),
        frame(Frame::udp4(source, 4000, destination, 53).payload(b"without identification")),
        frame(Frame::tcp4(source, 4000, destination, 80).tcp(16, 5, 6).payload(b"get")),
        frame(Frame::tcp6([1; 8], 4000, [2; 8], 80)),
        frame(Frame::ethernet(wire::EtherType::ARP)),
    ];
    let packet = |way: u8, argument: u16, bytes: &[u8]| {
        let [low, high] = argument.to_le_bytes();
        [&[way, 10, low, high, bytes.len() as u8], bytes].concat()
    };
    let mut seeds = Vec::new();
    for (classes, flags) in [(0x1f, 0), (3, flag::MIRRORED), (7, flag::UNORDERED), (0x1f, flag::FEW_RECORDS)] {
        let mut seed = vec![classes, 100, 0, flags];
        for frame in &frames {
            seed.extend(packet(0x0e, 0, frame));
            for way in 0..Copied::ALL.len() as u8 {
                seed.extend(packet(way << 1, way.into(), &[]));
            }
            seed.extend(packet(0x81, 2, &[30, 1]));
        }
        seeds.push(seed);
    }
    seeds
}
