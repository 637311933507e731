//! Random valid frames, random changes of frames, and the number of rounds.
#![allow(dead_code, reason = "each test program uses a part of this module")]

use base::Prng;
use netgrain_wire::build::Frame;
use netgrain_wire::{Decoded, EtherType, IpProtocol, link};

/// The rounds of a random test: `normal`, multiplied by `NETGRAIN_FUZZ_ITERS` if it is set.
pub fn rounds(normal: usize) -> usize {
    std::env::var("NETGRAIN_FUZZ_ITERS").ok().and_then(|t| t.parse().ok()).map_or(normal, |n: usize| normal * n)
}

/// The bytes of a frame.
pub fn built(frame: Frame<'_>) -> Vec<u8> {
    let mut buffer = [0; 4000];
    frame.write(&mut buffer).unwrap().to_vec()
}

/// Decodes an Ethernet frame that was not truncated.
pub fn decoded(frame: &[u8]) -> Decoded {
    Decoded::of(frame, frame.len() as u32, link::ETHERNET)
}

/// A random frame and its parameters.
#[derive(Debug)]
pub struct Made {
    pub bytes: Vec<u8>,
    pub link_type: u16,
    pub tags: Vec<u16>,
    pub src_port: u16,
    pub dst_port: u16,
}

/// A frame of any kind that the builder supports, with correct lengths.
pub fn frame(prng: &mut Prng) -> Made {
    let mut body = vec![0; prng.below(40) as usize];
    prng.fill(&mut body);
    let mut options = vec![0; prng.below(41) as usize];
    prng.fill(&mut options);
    let extension_bodies: Vec<Vec<u8>> = (0..prng.below(4)).map(|_| vec![0; prng.below(30) as usize]).collect();
    let kinds =
        [IpProtocol::HOP_BY_HOP, IpProtocol::ROUTING, IpProtocol::DEST_OPTIONS, IpProtocol::AH, IpProtocol::MOBILITY];
    let extensions: Vec<(IpProtocol, &[u8])> =
        extension_bodies.iter().map(|b| (kinds[prng.below(5) as usize], &b[..])).collect();

    let (a4, b4) = (prng.next_u64() as u32, prng.next_u64() as u32);
    let mut v6 = || u128::from(prng.next_u64()) << 64 | u128::from(prng.next_u64());
    let (a6, b6) = (v6(), v6());
    let (src_port, dst_port) = (prng.next_u64() as u16, prng.next_u64() as u16);
    let mut frame = match prng.below(9) {
        0 => Frame::udp4(a4, src_port, b4, dst_port),
        1 => Frame::tcp4(a4, src_port, b4, dst_port),
        2 => Frame::udp6(a6, src_port, b6, dst_port),
        3 => Frame::tcp6(a6, src_port, b6, dst_port),
        4 => Frame::icmp4(a4, b4, 8, 0, [0; 4]),
        5 => Frame::icmp6(a6, b6, 128, 0, [0; 4]),
        6 => Frame::ip4(a4, b4, IpProtocol::GRE),
        7 => Frame::ip4(a4, b4, IpProtocol::UDP).fragment(7, 8 * (1 + prng.below(100) as u16), prng.below(2) == 0),
        _ => Frame::ethernet(EtherType::ARP),
    };
    frame = frame.payload(&body);
    if prng.below(3) == 0 {
        frame = frame.ip_options(&options).tcp_options(&options).extensions(&extensions);
    }
    let mut tags = Vec::new();
    let mut link_type = link::ETHERNET;
    let arp = frame.header_len() == 14;
    match prng.below(6) {
        0 if !arp => {
            link_type = link::RAW_IP;
            frame = frame.raw();
        }
        1 => {
            for _ in 0..1 + prng.below(3) {
                let tpid = [EtherType::VLAN, EtherType::QINQ, EtherType::QINQ_OLD][prng.below(3) as usize];
                let tci = prng.next_u64() as u16;
                tags.push(tci & 0xfff);
                frame = frame.tag(tpid, tci);
            }
        }
        2 if !arp => {
            for _ in 0..1 + prng.below(3) {
                frame = frame.label(prng.below(1 << 20) as u32);
            }
        }
        _ => (),
    }
    let mut bytes = vec![0; frame.header_len() + body.len()];
    frame.fill(&mut bytes);
    Made { bytes, link_type, tags, src_port, dst_port }
}

/// Changes a few bytes, mostly in the headers.
pub fn damage(prng: &mut Prng, bytes: &mut [u8]) {
    for _ in 0..=prng.below(3) {
        let reach = if prng.below(4) == 0 { bytes.len() } else { bytes.len().min(60) };
        if let Some(b) = bytes.get_mut(prng.below(reach as u64) as usize) {
            *b = prng.next_u64() as u8;
        }
    }
}
