//! Frames for the tests of the example programs: generated frames, and frames from capture files.

use super::plain::Plain;
use super::trial::To;
use base::Prng;
use std::collections::HashMap;
use std::path::Path;
use wire::build::Frame;
use wire::{EtherType, IpProtocol, link, tcp_flags as flags};

/// A frame that the test parser has parsed.
pub struct ParsedFrame {
    pub bytes: Vec<u8>,
    /// The timestamp in nanoseconds.
    pub time: u64,
    pub plain: Plain,
}

/// Computes the expected steering targets of fragmented datagrams, for one steering function. All fragments get the
/// target of the fragment that arrived first, which is normally the first fragment.
#[derive(Default)]
pub struct FragmentTargets(HashMap<(u128, u128, u64), Datagram>);

struct Datagram {
    to: To,
    /// The steering target that the headers of the first fragment give; `None` until the first fragment arrives.
    first: Option<To>,
    since: u64,
}

impl FragmentTargets {
    /// Returns the expected steering target of a packet; `own` is the target that the packet would have without
    /// fragment tracking.
    pub fn target(&mut self, k: &ParsedFrame, own: To) -> To {
        let Some(ip) = k.plain.ip.as_ref() else { return own };
        let Some(is_later) = ip.fragment else { return own };
        let key = (ip.src, ip.dst, ip.id);
        let known = self.0.get_mut(&key).filter(|d| k.time - d.since <= 30_000_000_000);
        match known {
            Some(d) if is_later => return d.to.clone(),
            Some(d) if own != To::None && d.first.as_ref().is_none_or(|first| *first == own) => {
                d.first = Some(own);
                return d.to.clone();
            }
            _ => _ = self.0.remove(&key),
        }
        if own != To::None {
            let first = (!is_later).then(|| own.clone());
            self.0.insert(key, Datagram { to: own.clone(), first, since: k.time });
        }
        own
    }
}

/// Computes the expected ports of fragmented datagrams. They are the ports of the first fragment; if a later fragment
/// arrived before the first fragment, they are 0.
#[derive(Default)]
pub struct Ports(HashMap<(u128, u128, u64), DatagramPorts>);

struct DatagramPorts {
    all: [u16; 2],
    /// The ports of the first fragment; `None` until the first fragment arrives.
    first: Option<[u16; 2]>,
    since: u64,
}

impl Ports {
    /// The ports of the datagram to which a packet belongs. Tests must call this for each packet whose ports the
    /// program reads.
    pub fn of(&mut self, k: &ParsedFrame) -> [u16; 2] {
        let Some(ip) = k.plain.ip.as_ref() else { return [0; 2] };
        let own = ip.ports().unwrap_or_default();
        let Some(is_later) = ip.fragment else { return own };
        let key = (ip.src, ip.dst, ip.id);
        match self.0.get_mut(&key).filter(|d| k.time - d.since <= 30_000_000_000) {
            Some(d) if is_later => return d.all,
            Some(d) if d.first.is_none_or(|first| first == own) => {
                // The first fragment may belong to another datagram with the same identification and the same ports.
                d.since = if d.first.is_some() { k.time } else { d.since };
                d.first = Some(own);
                return d.all;
            }
            _ => {}
        }
        self.0.insert(key, DatagramPorts { all: own, first: (!is_later).then_some(own), since: k.time });
        own
    }
}

/// Addresses of hosts inside and outside of the networks that the example programs use.
const HOSTS: [[u8; 4]; 14] = [
    [131, 114, 9, 1],
    [131, 114, 9, 77],
    [131, 114, 10, 1],
    [10, 1, 0, 5],
    [10, 2, 255, 1],
    [10, 3, 7, 7],
    [10, 4, 0, 1],
    [192, 0, 2, 10],
    [192, 0, 2, 11],
    [192, 0, 3, 10],
    [8, 8, 8, 8],
    [255, 255, 255, 255],
    [172, 16, 0, 1],
    [172, 16, 0, 2],
];
const PORTS: [u16; 20] = [
    22, 53, 80, 443, 999, 4000, 4001, 4002, 4003, 5000, 5060, 5061, 5123, 5999, 6000, 6234, 7345, 8456, 40_000, 40_001,
];

fn pick<T: Copy>(prng: &mut Prng, of: &[T]) -> T {
    of[prng.below(of.len() as u64) as usize]
}

/// Generates `count` random frames at intervals of half a millisecond.
pub fn generated(prng: &mut Prng, count: u64) -> Vec<ParsedFrame> {
    let mut out = Vec::new();
    while (out.len() as u64) < count {
        let bytes = one(prng);
        let time = 1_000_000_000 + out.len() as u64 * 500_000;
        let plain =
            Plain::read(&bytes).unwrap_or_else(|| panic!("the test parser declines a generated frame: {bytes:02x?}"));
        out.push(ParsedFrame { bytes, time, plain });
    }
    out
}

fn one(prng: &mut Prng) -> Vec<u8> {
    let (a, b) = (pick(prng, &HOSTS), pick(prng, &HOSTS));
    let (p, q) = (pick(prng, &PORTS), pick(prng, &PORTS));
    let six = |n: [u8; 4]| [0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(n[3])];
    // First payload bytes of RTP packets, RTCP packets and other packets.
    let mut payload = [0_u8; 24];
    payload[0] = pick(prng, &[0x80, 0x80, 0x90, 0x40, 0]);
    payload[1] = pick(prng, &[0, 8, 34, 40, 96, 127, 200, 201, 205, 0x80 | 8]);
    let tcp = pick(prng, &[flags::SYN, flags::SYN, flags::ACK, flags::SYN | flags::ACK, flags::RST, flags::FIN]);
    let mut frame = match prng.below(12) {
        0..=3 => Frame::udp4(a, p, b, q),
        4..=7 => Frame::tcp4(a, p, b, q).tcp(tcp, 1, 1),
        8 => Frame::udp6(six(a), p, six(b), q),
        9 => Frame::tcp6(six(a), p, six(b), q).tcp(tcp, 1, 1),
        10 => Frame::icmp4(a, b, 8, 0, [0; 4]),
        _ => Frame::ethernet(EtherType::ARP),
    };
    frame = frame.payload(&payload);
    match prng.below(12) {
        0 => frame = frame.fragment(7, 0, true),
        1 => frame = frame.fragment(7, 1480, false),
        2 => frame = frame.tag(EtherType::VLAN, 5),
        3 => frame = frame.tag(EtherType::QINQ, 5).tag(EtherType::VLAN, 6),
        4 => frame = frame.extensions(&[(IpProtocol(60), &[0; 6])]),
        5 => frame = frame.extensions(&[(IpProtocol(44), &[0, 1, 0, 0, 0, 9])]),
        6 => frame = frame.extensions(&[(IpProtocol(44), &[5, 200, 0, 0, 0, 9])]),
        _ => (),
    }
    let mut out = vec![0; frame.header_len() + payload.len()];
    frame.write(&mut out).expect("there is room").to_vec()
}

/// Reads the capture files below `directory` and returns the frames that the test parser accepts, at most `most` from
/// each file, with ascending timestamps.
pub fn captured(directory: &Path, most: usize) -> Vec<ParsedFrame> {
    let mut out = Vec::new();
    captured_into(directory, most, &mut out);
    out
}

fn captured_into(path: &Path, most: usize, out: &mut Vec<ParsedFrame>) {
    if path.is_dir() {
        let mut paths: Vec<_> =
            std::fs::read_dir(path).expect("a directory").map(|e| e.expect("an entry").path()).collect();
        paths.sort();
        paths.iter().for_each(|p| captured_into(p, most, out));
        return;
    }
    let Ok(file) = std::fs::File::open(path) else { return };
    let Ok(mut reader) = pcap::Reader::open(std::io::BufReader::new(file)) else { return };
    let from = out.last().map_or(0, |k| k.time);
    let mut begun = None;
    for _ in 0..most {
        let Ok(Some(packet)) = reader.next() else { return };
        if packet.link_type != link::ETHERNET || packet.wire_len as usize != packet.data.len() {
            continue;
        }
        let Some(plain) = Plain::read(packet.data) else { continue };
        // The timestamps of the frames of each capture file begin after those of the previous file.
        let ts = packet.ts.map_or(0, base::Timestamp::nanos);
        let time = from + ts.saturating_sub(*begun.get_or_insert(ts));
        let time = out.last().map_or(time, |k| k.time.max(time));
        out.push(ParsedFrame { bytes: packet.data.to_vec(), time, plain });
    }
}
