//! Frames and filters that meet, and blocks of such frames.
#![allow(dead_code, reason = "each test program uses its part")]

use base::{Prng, Row, Tally, Timestamp};
use netgrain_index::{Content, Entry, Header, Keys};
use wire::build::Frame;
use wire::{EtherType, link};

/// Link types with a meaning, and one without.
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

/// A frame with the hosts, ports and tags of those filters, often with something wrong in it.
pub fn random_frame(prng: &mut Prng) -> Vec<u8> {
    let v4 = |prng: &mut Prng| [10, 0, prng.below(2) as u8, 1 + prng.below(2) as u8];
    let v6 = |prng: &mut Prng| [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1 + prng.below(2) as u16];
    let (p, q) = (1 + prng.below(3) as u16, 1 + prng.below(3) as u16);
    let mut frame = match prng.below(4) {
        0 => Frame::tcp4(v4(prng), p, v4(prng), q),
        1 => Frame::udp4(v4(prng), p, v4(prng), q),
        2 => Frame::tcp6(v6(prng), p, v6(prng), q),
        _ => Frame::udp6(v6(prng), p, v6(prng), q),
    };
    for _ in 0..prng.below(4) {
        frame = frame.tag(if prng.below(2) == 0 { EtherType::VLAN } else { EtherType::QINQ }, 5 + prng.below(2) as u16);
    }
    let mut bytes = vec![0; frame.header_len() + prng.below(20) as usize];
    frame.fill(&mut bytes);
    match prng.below(8) {
        // ARP in its place, under as many tags.
        0 => {
            let at = (12..bytes.len() - 1).find(|i| matches!(bytes[*i..*i + 2], [8, 0] | [0x86, 0xdd])).unwrap_or(12);
            bytes.truncate(at);
            bytes.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0]);
            bytes.extend([prng.below(2) as u8, 2]);
        }
        // MPLS above the network header.
        1 => {
            let at = bytes.len().min(14);
            bytes.splice(12..at, [0x88, 0x47, 0, 1, 0, 64, 0, 2, 1, 64]);
        }
        // A fragment, or an extension header.
        2 if bytes.len() > 40 => {
            let byte = [20, 21][prng.below(2) as usize];
            bytes[byte] = prng.next_u64() as u8;
            bytes[20] = [bytes[20], 0, 43, 44, 51, 60][prng.below(6) as usize];
        }
        _ => {}
    }
    for _ in 0..prng.below(3) {
        let at = prng.below(bytes.len() as u64) as usize;
        bytes[at] = prng.next_u64() as u8;
    }
    if prng.below(5) == 0 {
        bytes.truncate(prng.below(bytes.len() as u64 + 1) as usize);
    }
    bytes
}

/// The same packet as another link type would carry it.
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
        stamps: "tsc".into(),
        stamp_error: 700,
        filter: "host ä".into(),
        first_pos: 1 << 33,
        start: Timestamp::from_nanos(5),
        content: Content::Recorded,
    }
}

/// The entry of a block of these packets.
pub fn entry(block: u32, bytes: u32, packets: &[(Vec<u8>, u32, u16)]) -> Entry {
    let mut keys = Keys::default();
    packets.iter().for_each(|(frame, wire_len, link_type)| keys.add(frame, *wire_len, *link_type));
    let stored = packets.len() as u64;
    let second = 1_795_290_000 + u64::from(block);
    Entry {
        block,
        bytes,
        first_record: (stored > 0).then_some(24),
        crc: block.wrapping_mul(77),
        first: Timestamp::from_secs_nanos(second, 1),
        last: Timestamp::from_secs_nanos(second, 999),
        rows: [Row { second, tally: Tally { stored, offered: stored, ..Tally::default() } }].into_iter().collect(),
        sets: keys.sets(),
    }
}
