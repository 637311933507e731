//! Traffic of the tests.

use base::Prng;
use difftest::naive_duplicates::OwnedPacket;
use netgrain_duplicates::{Detector, Duplicate, Settings};
use testkit::copies::Planted;
use wire::build::{Frame, tunnel};
use wire::{EtherType, IpProtocol};

/// Runs a detector over packets; in batches of random length if `prng` is given.
pub fn detect(
    settings: &Settings,
    packets: &[OwnedPacket],
    prng: Option<&mut Prng>,
) -> (Vec<Option<Duplicate>>, Detector) {
    let mut detector = Detector::new(settings.clone(), 7).expect("valid settings");
    let mut results = Vec::new();
    let Some(prng) = prng else {
        results.extend(packets.iter().map(|packet| detector.inspect(&packet.packet())));
        return (results, detector);
    };
    let mut rest = packets;
    while !rest.is_empty() {
        let (batch, after) = rest.split_at(rest.len().min(1 + prng.below(100) as usize));
        let batch: Vec<_> = batch.iter().map(OwnedPacket::packet).collect();
        let first = results.len();
        detector.inspect_batch(&batch, |i, duplicate| {
            assert_eq!(results.len(), first + i);
            results.push(duplicate);
        });
        rest = after;
    }
    (results, detector)
}

pub fn owned(planted: &[Planted]) -> Vec<OwnedPacket> {
    let owned = |frame: &Planted| OwnedPacket {
        nanos: frame.nanos,
        data: frame.bytes.clone(),
        wire_len: frame.wire_len,
        interface: 0,
    };
    planted.iter().map(owned).collect()
}

/// A mix of unique packets: TCP and UDP over IPv4 and IPv6, with tags, labels and tunnels, some of them truncated. The
/// IPv4 packets have identifications that differ within 60 000 packets; each packet has its number in the payload.
pub fn mix(count: u32, prng: &mut Prng) -> Vec<(Vec<u8>, u32)> {
    (0..count).map(|number| unique(number, prng)).collect()
}

/// A packet that differs from the packets with other numbers.
pub fn unique(number: u32, prng: &mut Prng) -> (Vec<u8>, u32) {
    let bytes = plain(number, prng);
    let frame = match prng.below(12) {
        0 => under_labels(&bytes),
        1 => in_vxlan(&bytes, number),
        2 => in_gre(&bytes, number),
        _ => bytes,
    };
    let wire_len = frame.len() as u32;
    match prng.below(10) {
        0 => (frame[..frame.len().min(96)].to_vec(), wire_len),
        _ => (frame, wire_len),
    }
}

/// A packet outside of tunnels.
pub fn plain(number: u32, prng: &mut Prng) -> Vec<u8> {
    let mut payload = vec![0x55; [4, 20, 100, 700, 1400][prng.below(5) as usize]];
    payload[..4].copy_from_slice(&number.to_be_bytes());
    // Few flows, so that each has many packets.
    let (a, b) = (1 + prng.below(2) as u8, 1);
    let (p, q) = (1000 + prng.below(2) as u16, [53, 5004][prng.below(2) as usize]);
    let (v4, w4) = ([10, 0, 0, a], [10, 0, 1, b]);
    let (v6, w6) = ([0x2001, 0xdb8, 0, 0, 0, 0, 0, a.into()], [0x2001, 0xdb8, 0, 0, 0, 0, 1, b.into()]);
    let id = (number % 60_000) as u16 + 1;
    let frame = match prng.below(5) {
        0 => Frame::tcp6(v6, p, w6, q).tcp(16, number, number ^ 0xabcd),
        1 => Frame::udp6(v6, p, w6, q),
        2 => Frame::udp4(v4, p, w4, q).fragment(id, 0, false),
        3 => Frame::tcp4(v4, p, w4, q).fragment(id, 0, false).tcp(24, number, number ^ 0x1234),
        _ => Frame::icmp4(v4, w4, 8, 0, number.to_be_bytes()).fragment(id, 0, false),
    };
    let mut frame = frame.payload(&payload).hops(60 + prng.below(4) as u8);
    for _ in 0..prng.below(3) {
        frame = frame.tag(EtherType::VLAN, 10 + prng.below(5) as u16);
    }
    let mut bytes = vec![0; 2000];
    frame.write(&mut bytes).expect("room").to_vec()
}

/// The frame with an MPLS label before its network header.
pub fn under_labels(frame: &[u8]) -> Vec<u8> {
    let at = ethertype(frame);
    let label = [0, 0x10, 0x01, 63];
    [&frame[..at], &[0x88, 0x47], &label, &frame[at + 2..]].concat()
}

pub fn in_vxlan(frame: &[u8], number: u32) -> Vec<u8> {
    let payload = [&tunnel::vxlan(5)[..], frame].concat();
    let outer = Frame::udp4([192, 0, 2, 1], 40_000, [192, 0, 2, 2], 4789).fragment(number as u16 | 1, 0, false);
    let mut bytes = vec![0; 2200];
    outer.payload(&payload).write(&mut bytes).expect("room").to_vec()
}

pub fn in_gre(frame: &[u8], number: u32) -> Vec<u8> {
    let at = ethertype(frame);
    let ethertype = EtherType(u16::from_be_bytes([frame[at], frame[at + 1]]));
    let payload = [&tunnel::gre(ethertype, None, Some(7), None)[..], &frame[at + 2..]].concat();
    let outer = Frame::ip4([192, 0, 2, 1], [192, 0, 2, 2], IpProtocol::GRE).fragment(number as u16 | 1, 0, false);
    let mut bytes = vec![0; 2200];
    outer.payload(&payload).write(&mut bytes).expect("room").to_vec()
}

/// Offset of the ethertype after the VLAN tags.
fn ethertype(frame: &[u8]) -> usize {
    let mut at = 12;
    while frame[at..at + 2] == [0x81, 0] {
        at += 4;
    }
    at
}

/// The bytes of a frame without padding.
pub fn bytes(frame: &Frame<'_>) -> Vec<u8> {
    let mut buffer = [0; 2200];
    frame.write(&mut buffer).expect("room").to_vec()
}
