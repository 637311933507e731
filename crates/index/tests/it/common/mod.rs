//! Random frames, filters that often match them, and blocks of such frames.
#![allow(dead_code, reason = "each test program uses its part")]

use base::{ClockState, ClockSteps, Prng, Row, Tally, Timestamp, TimestampMethod, TimestampQuality};
use netgrain_index::{BlockKeys, Content, Entry, Header, SUB_BLOCK, SUB_BLOCKS, SubBlocks};
use std::num::NonZeroU32;
pub use testkit::random_frame;
use wire::link;

/// All supported link types, and one unsupported link type.
pub const LINKS: [u16; 7] =
    [link::ETHERNET, link::RAW_IP, link::RAW_IPV4, link::RAW_IPV6, link::LINUX_SLL, link::LINUX_SLL2, 147];

pub fn random_filter(prng: &mut Prng, depth: u64) -> String {
    let mut pick = |words: &[&str]| words[prng.below(words.len() as u64) as usize].to_owned();
    let direction = pick(&["", "", "src ", "dst ", "src and dst "]);
    let test = match pick(&["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]).as_str() {
        "0" | "1" => {
            format!("{direction}host {}", pick(&["10.0.0.1", "10.0.0.2", "10.0.1.1", "0.0.0.0", "2001:db8::1", "::"]))
        }
        "2" => {
            let net = pick(&[
                "10.0.0.0/24",
                "10.0.0.0/30",
                "10.0.0.0/22",
                "10.0.0.0/13",
                "10.0.0.0/9",
                "8.0.0.0/5",
                "0.0.0.0/0",
                "::/0",
                "2001:db8::/32",
                "2001:d80::/29",
                "2001:db8::/46",
                "2001:db8::/64",
                "2001:db8::/126",
                "10.0.0.0 mask 255.0.255.0",
            ]);
            format!("{direction}net {net}")
        }
        "3" | "4" => format!("{}{direction}port {}", pick(&["", "tcp ", "udp ", "sctp "]), pick(&["1", "2", "3", "0"])),
        "5" => format!("{direction}portrange {}", pick(&["1-2", "2-70", "0-65535"])),
        "6" => {
            pick(&["ip", "ip6", "arp", "tcp", "udp", "icmp", "icmp6", "proto 44", "ip6 proto 0", "ether proto 0x8847"])
        }
        "7" => pick(&["vlan", "vlan 5", "vlan 6", "vlan 0"]),
        "8" => {
            pick(&["tcp", "udp", "ip host 10.0.0.1", "arp host 10.0.0.1", "arp net 10.0.0.0/8", "arp net 0.0.0.0/0"])
        }
        _ => pick(&["less 60", "greater 61", "ether host 02:00:00:00:00:01"]),
    };
    match prng.below(6) {
        _ if depth == 0 => test,
        0 => format!("not ({})", random_filter(prng, depth - 1)),
        1..=3 => format!("({}) and ({})", random_filter(prng, depth - 1), random_filter(prng, depth - 1)),
        4 => format!("({}) or ({})", random_filter(prng, depth - 1), random_filter(prng, depth - 1)),
        _ => test,
    }
}

/// The packet with the encapsulation of another link type.
pub fn relinked(frame: Vec<u8>, link_type: u16) -> Vec<u8> {
    let Some((head, rest)) = frame.split_at_checked(14) else { return frame };
    let of = |front: &[u8]| [front, rest].concat();
    match link_type {
        link::RAW_IP | link::RAW_IPV4 | link::RAW_IPV6 => rest.to_vec(),
        link::LINUX_SLL => of(&[&[0; 14], &head[12..]].concat()),
        link::LINUX_SLL2 => of(&[&head[12..], &[0; 18][..]].concat()),
        _ => frame,
    }
}

pub fn header() -> Header {
    Header {
        interface: "eth1".into(),
        queue: 3,
        link_type: 1,
        snaplen: 65_535,
        timestamp_source: "tsc".into(),
        timestamp_error: 700,
        filter: "host ä".into(),
        first_pos: 1 << 33,
        start: Timestamp::from_nanos(5),
        content: Content::Recorded,
    }
}

/// The number of the sub-block in which packet `i` of `of` packets begins; the packets are spread evenly over the
/// block.
pub fn part_of_packet(i: usize, of: usize) -> usize {
    i * SUB_BLOCKS / of
}

/// The index entry of a block that contains these packets.
pub fn entry(block: u32, bytes: u32, packets: &[(Vec<u8>, u32, u16)]) -> Entry {
    let (mut keys, mut parts) = (BlockKeys::default(), SubBlocks::NONE);
    for (i, (frame, wire_len, link_type)) in packets.iter().enumerate() {
        let part = part_of_packet(i, packets.len());
        keys.enter(part);
        parts.begin(part as u32 * SUB_BLOCK + 24, part as u32);
        keys.add(frame, *wire_len, *link_type);
    }
    let stored = packets.len() as u64;
    let second = 1_795_290_000 + u64::from(block);
    Entry {
        block,
        bytes,
        first_record: (stored > 0).then_some(24),
        crc: block.wrapping_mul(77),
        sub_blocks: parts,
        first: Timestamp::from_secs_nanos(second, 1),
        last: Timestamp::from_secs_nanos(second, 999),
        timestamps: quality(block),
        rows: [Row { second, tally: Tally { stored, offered: stored, ..Tally::default() } }].into_iter().collect(),
        sets: keys.sets(),
    }
}

/// A quality of timestamps that differs from block to block.
pub fn quality(block: u32) -> TimestampQuality {
    let method = TimestampMethod::ALL[block as usize % TimestampMethod::COUNT];
    let clock = ClockState {
        synchronised: block.is_multiple_of(3),
        maximum_error_micros: 16 * block,
        frequency_ppb: 100 - block as i32,
    };
    TimestampQuality {
        methods: [method].into_iter().collect(),
        deviation_nanos: NonZeroU32::new(block * 7 % 50),
        clock: (!block.is_multiple_of(5)).then_some(clock),
        steps: if block.is_multiple_of(4) { ClockSteps::one(i64::from(block) - 8) } else { ClockSteps::default() },
    }
}
