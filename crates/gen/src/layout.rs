//! Byte offsets of the fields of a frame, and its headers (RFC 791, RFC 768). This module encodes the headers without
//! the crate that decodes them, because the generator shares no code with the programs that it tests.

use base::Prng;
use base::hash::mix64;

/// The number 0x6e67, "ng": the first two bytes of the payload of a frame with signature.
pub const MAGIC: u16 = 0x6e67;

/// Length of the shortest frame, without frame check sequence: 42 bytes of headers, 14 of signature, 4 of CRC.
pub const MIN_FRAME: usize = 60;

/// Length of the longest frame, without frame check sequence: 14 bytes of Ethernet header, and an MTU of 9000.
pub const MAX_FRAME: usize = 9014;

/// Byte ranges of the fields; the crate's documentation has the layout.
pub(crate) mod at {
    use std::ops::Range;
    pub const DST_MAC: Range<usize> = 0..6;
    pub const SRC_MAC: Range<usize> = 6..12;
    pub const ETHERTYPE: Range<usize> = 12..14;
    pub const IP: Range<usize> = 14..34;
    pub const IP_LEN: Range<usize> = 16..18;
    pub const IP_FLAGS: usize = 20;
    pub const IP_TTL: usize = 22;
    pub const IP_PROTOCOL: usize = 23;
    pub const UDP_LEN: Range<usize> = 38..40;
    pub const MAGIC: Range<usize> = 42..44;
    pub const PADDING: usize = 56;
    /// The range of the bytes that depend on the flow: checksum, addresses and ports.
    pub const FLOW: Range<usize> = 24..38;
    /// The range of the bytes that depend on the frame: sequence number and departure time.
    pub const STAMP: Range<usize> = 44..56;
}

const SIGNED_MAC: [u8; 5] = [0x02, 0x6e, 0x67, 0, 0];
const UNSIGNED_MAC: [u8; 5] = [0x02, 0, 0, 0, 0];

/// A frame of `len` bytes with zeros at [`at::FLOW`] and [`at::STAMP`], no CRC, and filling that depends on `seed` and
/// `len`.
pub(crate) fn template(len: usize, truth: bool, seed: u64) -> Vec<u8> {
    let mut f = vec![0; len];
    Prng::new(seed ^ (len as u64) << 32).fill(&mut f[at::PADDING..]);
    for (range, last) in [(at::DST_MAC, 2), (at::SRC_MAC, 1)] {
        f[range.start..range.end - 1].copy_from_slice(if truth { &SIGNED_MAC } else { &UNSIGNED_MAC });
        f[range.end - 1] = last;
    }
    f[at::ETHERTYPE].copy_from_slice(&0x0800u16.to_be_bytes());
    f[at::IP.start] = 0x45;
    f[at::IP_LEN].copy_from_slice(&((len - at::IP.start) as u16).to_be_bytes());
    f[at::IP_FLAGS] = 0x40; // do not fragment, so that an identification of 0 is right (RFC 6864)
    f[at::IP_TTL] = 64;
    f[at::IP_PROTOCOL] = 17;
    f[at::UDP_LEN].copy_from_slice(&((len - at::IP.end) as u16).to_be_bytes());
    if truth {
        f[at::MAGIC].copy_from_slice(&MAGIC.to_be_bytes());
    }
    f
}

/// The sum of a template's IPv4 header words, not yet folded.
pub(crate) fn header_sum(template: &[u8]) -> u32 {
    template[at::IP].chunks_exact(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum()
}

/// Addresses and ports of a flow.
///
/// The source address is 10.0.0.0/8 plus the low 24 bits of the flow id. The destination address is in 198.18.0.0/15,
/// which RFC 2544 reserves for measurements. Source ports are 32768-49151 and destination ports 20480-24575: no
/// registered tunnel uses these ports, so decoders do not parse the filling as a tunnel. Ids below 2^50 give distinct
/// 5-tuples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// IPv4 source address.
    pub src: u32,
    /// IPv4 destination address.
    pub dst: u32,
    /// UDP source port.
    pub src_port: u16,
    /// UDP destination port.
    pub dst_port: u16,
}

impl Flow {
    /// The flow with this id; only the low 50 bits of the id are used.
    #[inline]
    pub const fn of(id: u64) -> Self {
        let low = id & 0xff_ffff;
        let mixed = mix64(low);
        // For a fixed source address, distinct high bits of the id give distinct values of these 26 bits, so all
        // 5-tuples are distinct.
        let ports = (mixed >> 32).wrapping_add(id >> 24);
        Self {
            src: 10 << 24 | low as u32,
            dst: 198 << 24 | 18 << 16 | (mixed as u32 & 0x1_ffff),
            src_port: 0x8000 | (ports & 0x3fff) as u16,
            dst_port: 0x5000 | (ports >> 14 & 0xfff) as u16,
        }
    }

    /// The header checksum, addresses and ports, which are written at [`at::FLOW`]. `header_sum` is the sum of all
    /// other words of the IPv4 header.
    #[inline]
    pub(crate) fn bytes(self, header_sum: u32) -> [u8; 14] {
        let sum = header_sum + (self.src >> 16) + (self.src & 0xffff) + (self.dst >> 16) + (self.dst & 0xffff);
        let folded = (sum & 0xffff) + (sum >> 16);
        let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
        let word = u128::from(checksum) << 96
            | u128::from(self.src) << 64
            | u128::from(self.dst) << 32
            | u128::from(self.src_port) << 16
            | u128::from(self.dst_port);
        let mut out = [0; 14];
        out.copy_from_slice(&word.to_be_bytes()[2..]);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn flows_are_distinct_and_within_their_address_and_port_ranges() {
        let ids = (0..100_000).chain((0..1 << 26).step_by(997).map(|high: u64| high << 24 | 5));
        let mut seen = HashSet::new();
        for id in ids {
            let f = Flow::of(id);
            assert!(seen.insert(f) || id == 5, "flow {id} occurred twice");
            assert_eq!(f.src & 0xff_ffff, (id & 0xff_ffff) as u32);
            assert!((32768..=49151).contains(&f.src_port) && (20480..=24575).contains(&f.dst_port));
            assert!(matches!(f.dst >> 16, 0xc612 | 0xc613));
        }
    }

    #[test]
    fn the_ipv4_header_with_its_checksum_sums_to_all_ones() {
        for (len, id) in [(60, 0), (61, 0xff_ffff), (1514, 77), (MAX_FRAME, 1 << 49)] {
            let mut frame = template(len, true, 1);
            let bytes = Flow::of(id).bytes(header_sum(&frame));
            frame[at::FLOW].copy_from_slice(&bytes);
            let mut sum = header_sum(&frame);
            while sum > 0xffff {
                sum = (sum & 0xffff) + (sum >> 16);
            }
            assert_eq!(sum, 0xffff, "length {len}, flow {id}");
        }
    }
}
