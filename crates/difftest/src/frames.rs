//! Generates packets that take different paths through a random program. The packets are built by [`wire::build`]; some
//! are encapsulated in others, and some are then corrupted or truncated. Also reads packets from capture files.

use crate::case::Packet;
use crate::values::{HOSTS, HOSTS_6, MACS, PORTS, VLANS, pick};
use base::Prng;
use ir::Facts;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use wire::build::{Frame, tunnel};
use wire::{EtherType, IpProtocol, MacAddr, link, tcp_flags};

/// Maximum difference in nanoseconds between the timestamps of two consecutive generated packets.
pub(crate) const GAP: u64 = 2_000_000;

/// Generates a sequence of packets. If `back` is true, some packets have an earlier timestamp than the previous packet.
pub fn packets(prng: &mut Prng, link_type: u16, count: u64, back: bool) -> Vec<Packet> {
    let mut time = 1_000_000_000;
    let mut packets = Vec::new();
    // Some frames are generated again with a later timestamp, so that flows have more than one packet.
    let mut known: Vec<Vec<u8>> = Vec::new();
    for _ in 0..count {
        time += prng.below(GAP);
        let bytes = match prng.below(3) {
            0 if !known.is_empty() => known[prng.below(known.len() as u64) as usize].clone(),
            _ => frame(prng, link_type),
        };
        known.push(bytes.clone());
        let earlier = if back && prng.below(8) == 0 { prng.below(3 * GAP) } else { 0 };
        packets.push(Packet { facts: source(prng, time - earlier, bytes.len()), bytes });
    }
    packets
}

/// Generates the facts that a capture source supplies with a packet, such as time, wire length, mark and queue.
fn source(prng: &mut Prng, time: u64, len: usize) -> Facts {
    Facts {
        time,
        // Some packets have a wire length greater than their captured length, as if a snaplen had truncated them.
        wire_len: (len as u64 + if prng.below(5) == 0 { prng.below(1500) } else { 0 }) as u32,
        rss: prng.next_u64() as u32,
        mark: pick(prng, &[0, 0, 42, 65_537]),
        port: prng.below(3) as u16,
        duplicate: prng.below(6) as u8,
        queue: prng.below(8) as u16,
        ingress: prng.below(3) as u16,
        outgoing: prng.below(2) as u8,
        ..Facts::default()
    }
}

/// The link types for which frames are generated.
pub const LINKS: [u16; 6] = [link::ETHERNET, link::RAW_IP, link::NULL, link::LOOP, link::LINUX_SLL, link::LINUX_SLL2];

/// Generates a frame of this link type: intact, truncated, or corrupted.
pub fn frame(prng: &mut Prng, link_type: u16) -> Vec<u8> {
    let mut bytes = match link_type {
        link::ETHERNET => ethernet(prng, 0),
        other => {
            let (ethertype, packet) = ip(prng, 0);
            let family = if ethertype == EtherType::IPV4 { 2 } else { pick(prng, &[10, 24, 28, 30]) };
            let mut head = match other {
                link::NULL => vec![family, 0, 0, 0],
                link::LOOP => vec![0, 0, 0, family],
                link::LINUX_SLL => [&[0; 14][..], &ethertype.0.to_be_bytes()].concat(),
                link::LINUX_SLL2 => [&ethertype.0.to_be_bytes()[..], &[0; 18]].concat(),
                _ => vec![],
            };
            head.extend(packet);
            head
        }
    };
    // Ethernet pads short frames.
    if prng.below(3) == 0 && bytes.len() < 60 {
        bytes.resize(60, 0);
    }
    match prng.below(8) {
        _ if bytes.is_empty() => (),
        0 => bytes.truncate(prng.below(bytes.len() as u64 + 1) as usize),
        1 => {
            for _ in 0..1 + prng.below(3) {
                let at = prng.below(bytes.len() as u64) as usize;
                bytes[at] = prng.next_u64() as u8;
            }
        }
        _ => (),
    }
    bytes
}

fn ethernet(prng: &mut Prng, depth: u32) -> Vec<u8> {
    let (src, dst) = if prng.below(3) == 0 { (pick(prng, &MACS), pick(prng, &MACS)) } else { (MACS[0], MACS[1]) };
    let mut bytes = [dst, src].concat();
    for _ in 0..pick(prng, &[0, 0, 0, 0, 1, 1, 2, 3]) {
        bytes.extend(pick(prng, &[0x8100_u16, 0x8100, 0x88a8, 0x9100]).to_be_bytes());
        bytes.extend((pick(prng, &VLANS) | 0x6000).to_be_bytes());
    }
    let (ethertype, packet) = match prng.below(14) {
        0 => (EtherType::ARP, [&[0, 1, 8, 0, 6, 4, 0, 1][..], &[0; 20]].concat()),
        1 => (EtherType(pick(prng, &[0x88cc, 0x9000, 0x0200, 0x8137, 0x0026])), vec![7; 30]),
        _ => ip(prng, depth),
    };
    match prng.below(16) {
        0 => {
            bytes.extend(EtherType::MPLS.0.to_be_bytes());
            bytes.extend([0, 1, 1, 64]);
        }
        1 => {
            let ppp = if ethertype == EtherType::IPV6 { 0x57 } else { 0x21 };
            bytes.extend(EtherType::PPPOE.0.to_be_bytes());
            bytes.extend(tunnel::pppoe(9, ppp, packet.len()));
        }
        2 => {
            bytes.extend((packet.len() as u16 + 8).to_be_bytes());
            bytes.extend(tunnel::snap(ethertype));
        }
        _ => bytes.extend(ethertype.0.to_be_bytes()),
    }
    bytes.extend(packet);
    bytes
}

fn written(frame: Frame<'_>) -> Vec<u8> {
    let mut room = vec![0; 4096];
    frame.raw().write(&mut room).expect("room").to_vec()
}

/// An IP packet.
fn ip(prng: &mut Prng, depth: u32) -> (EtherType, Vec<u8>) {
    let six = prng.below(3) == 0;
    // Fragments have only a few different addresses, so that often several of the generated fragments belong to the
    // same datagram.
    let part = prng.below(12);
    let (hosts, hosts_6) = if part < 3 { (&HOSTS[..2], &HOSTS_6[..2]) } else { (&HOSTS[..], &HOSTS_6[..]) };
    let (a, b) = (pick(prng, hosts), pick(prng, hosts));
    let wide = |(first, last): (u16, u16)| [first, if first == 0x2001 { 0xdb8 } else { 0 }, 0, 0, 0, 0, 0, last];
    let (c, d) = (wide(pick(prng, hosts_6)), wide(pick(prng, hosts_6)));
    let (p, q) = (pick(prng, &PORTS), pick(prng, &PORTS));
    let around = |protocol| if six { Frame::ip6(c, d, protocol) } else { Frame::ip4(a, b, protocol) };
    let udp = |p, q| if six { Frame::udp6(c, p, d, q) } else { Frame::udp4(a, p, b, q) };
    let mut payload = vec![0; prng.below(24) as usize];
    prng.fill(&mut payload);
    let options = [1; 8];
    let mut frame = match prng.below(if depth < 3 { 13 } else { 8 }) {
        0 | 1 => {
            payload.resize(payload.len().max(10), 0);
            payload[0] = pick(prng, &[0x80, 0x90, 0x40, 0x30]);
            payload[1] = pick(prng, &[0, 18, 19, 34, 96, 0x80 | 8, 200, 204, 205, 255]);
            let q = if prng.below(2) == 0 { p ^ 1 } else { q };
            udp(p, q)
        }
        2..=4 => {
            let tcp = if six { Frame::tcp6(c, p, d, q) } else { Frame::tcp4(a, p, b, q) };
            let tcp = tcp.tcp(pick(prng, &[tcp_flags::SYN, tcp_flags::ACK, tcp_flags::FIN | tcp_flags::ACK]), 1, 1);
            if prng.below(4) == 0 { tcp.tcp_options(&options) } else { tcp }
        }
        5 => {
            let (kind, code) = (pick(prng, &[0, 3, 8, 128, 135]), prng.below(4) as u8);
            if six { Frame::icmp6(c, d, kind, code, [0; 4]) } else { Frame::icmp4(a, b, kind, code, [0; 4]) }
        }
        6 => {
            payload.splice(0..0, [p.to_be_bytes(), q.to_be_bytes()].concat());
            around(IpProtocol(pick(prng, &[132, 33, 136, 47, 50, 59, 200])))
        }
        7 => udp(p, q),
        8 => {
            payload = ip(prng, depth + 1).1;
            let inner = payload.first().map_or(0, |b| b >> 4);
            around(if inner == 6 { IpProtocol::IPV6 } else { IpProtocol::IPV4 })
        }
        9 => {
            let (ethertype, inner) = ip(prng, depth + 1);
            payload = [tunnel::gre(ethertype, None, (prng.below(2) == 0).then_some(7), None), inner].concat();
            around(IpProtocol::GRE)
        }
        10 => {
            payload = [&tunnel::vxlan(7)[..], &ethernet(prng, depth + 1)].concat();
            udp(p, 4789)
        }
        11 => {
            let (ethertype, inner) = ip(prng, depth + 1);
            payload = [tunnel::geneve(ethertype, 7, &[]), inner].concat();
            udp(p, 6081)
        }
        _ => {
            let inner = ip(prng, depth + 1).1;
            let extensions: &[(u8, &[u8])] = if prng.below(2) == 0 { &[] } else { &[(0x85, &[0; 2])] };
            let sequence = (prng.below(2) == 0).then_some(9);
            payload = [tunnel::gtp_u(5, sequence, extensions, inner.len()), inner].concat();
            udp(p, 2152)
        }
    };
    frame = frame.payload(&payload).hops(pick(prng, &[1, 64, 255]));
    if !six && prng.below(8) == 0 {
        frame = frame.ip_options(&options);
    }
    let id = 7 + prng.below(2) as u16;
    let (first, later) = ([0, 1, 0, 0, 0, id as u8], [5, 200, 0, 0, 0, id as u8]);
    let (first, later) = ([(IpProtocol::FRAGMENT, &first[..])], [(IpProtocol::FRAGMENT, &later[..])]);
    // Some extension headers are so long that the transport header is beyond the part of the frame that the parser
    // reads.
    let (short, long) = ([0; 6], [0; 126]);
    let body = if prng.below(3) == 0 { &long[..] } else { &short[..] };
    let (hop, options_6) = ([(IpProtocol::HOP_BY_HOP, body)], [(IpProtocol::DEST_OPTIONS, body); 4]);
    let count = 1 + prng.below(4) as usize;
    frame = match (part, six) {
        (0, false) => frame.fragment(id, 0, true),
        (1, false) => frame.fragment(id, 1480, false),
        (2, false) => frame.fragment(id, 1480, true),
        (0, true) => frame.extensions(&first),
        (1, true) => frame.extensions(&later),
        (3, true) => frame.extensions(&hop),
        (4, true) => frame.extensions(&options_6[..count]),
        _ => frame,
    };
    (if six { EtherType::IPV6 } else { EtherType::IPV4 }, written(frame.macs(MacAddr(MACS[0]), MacAddr(MACS[1]))))
}

/// Reads packets of the capture files below a directory and returns them by link type. Only files smaller than 4 MiB
/// are read, and at most `most` packets of each.
pub fn real(directory: &Path, most: usize) -> Vec<(u16, Vec<Packet>)> {
    let mut files = Vec::new();
    collect(directory, &mut files);
    files.sort();
    let mut all = BTreeMap::<u16, Vec<Packet>>::new();
    for (link_type, packets) in files.iter().filter_map(|path| read(path, most)) {
        all.entry(link_type).or_default().extend(packets);
    }
    all.into_iter().filter(|(_, packets)| !packets.is_empty()).collect()
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for path in std::fs::read_dir(directory).into_iter().flatten().flatten().map(|e| e.path()) {
        if path.is_dir() {
            collect(&path, files);
        } else if path.metadata().is_ok_and(|m| m.len() < 4 << 20) {
            files.push(path);
        }
    }
}

fn read(path: &Path, most: usize) -> Option<(u16, Vec<Packet>)> {
    let file = std::fs::File::open(path).ok()?;
    let mut reader = pcap::Reader::open(std::io::BufReader::new(file)).ok()?;
    let (mut link_type, mut packets) = (None, Vec::new());
    while packets.len() < most
        && let Ok(Some(packet)) = reader.next()
    {
        if packet.link_type != *link_type.get_or_insert(packet.link_type) {
            break;
        }
        let facts = Facts { wire_len: packet.wire_len.max(packet.data.len() as u32), ..Facts::default() };
        packets.push(Packet { bytes: packet.data.to_vec(), facts });
    }
    Some((link_type?, packets))
}
