//! Generates random frames. They use few hosts, ports and tags, so that random filters match some of the frames and not
//! others.

use base::Prng;
use wire::EtherType;
use wire::build::Frame;

/// A frame between two of `10.0.0.1`, `10.0.0.2`, `10.0.1.1`, `10.0.1.2`, `2001:db8::1` and `2001:db8::2` with ports 1
/// to 3 and VLAN ids 5 and 6; often malformed.
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
        // The frame contains ARP instead of IP, after the same number of VLAN tags.
        0 => {
            let at = (12..bytes.len() - 1).find(|i| matches!(bytes[*i..*i + 2], [8, 0] | [0x86, 0xdd])).unwrap_or(12);
            bytes.truncate(at);
            bytes.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0]);
            bytes.extend([prng.below(2) as u8, 2]);
        }
        // MPLS before the network header.
        1 => {
            let at = bytes.len().min(14);
            bytes.splice(12..at, [0x88, 0x47, 0, 1, 0, 64, 0, 2, 1, 64]);
        }
        // Changes bytes so that the packet may become a fragment or have an extension header.
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
