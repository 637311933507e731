//! The flow key of a packet, and a keyed hash of it that is the same in both directions.
//!
//! Ports are 0 if the protocol has none, if they were not captured, and for *all* fragments (also for the first
//! fragment, which has ports), so that all fragments of a datagram have the same hash. The hash function orders the two
//! endpoints of the flow and combines them with [`base::hash::mix64`]. It uses only 64-bit add, multiply, xor, rotate
//! and shift, so that an eBPF program computes the same number.
//!
//! ```text
//! IPv4   end = address << 16 | port
//!        state = mix(mix(key ^ lesser end) + (greater end | protocol << 48))
//! IPv6   end = (address, port), compared in this order; fold(k, a) = mix(mix(k ^ a >> 64) + a)
//!        ends = fold(key, lesser address) + rotate_left(fold(key + 1, greater address), 32)
//!        state = mix(ends + (lesser port | greater port << 16 | protocol << 32))
//! else   state = mix(mix((key + 2) ^ (lesser MAC | ethertype << 48)) + greater MAC)         (Ethernet only)
//! hash   the upper 32 bits of state; 1 instead of 0, because 0 stands for "no flow"
//! ```
//! All numbers are read as big-endian. Which flows collide depends on the secret key, so an attacker cannot direct a
//! flood of flows at one bucket. The hash is not a message authentication code.

use crate::bytes::{be16, be32, chunk};
use crate::{Family, Fragment, Headers, IpProtocol, Port, ethernet, ipv4, ipv6};
use base::hash::mix64;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Addresses, ports and protocol of a packet, in the packet's direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    /// Source address.
    pub src: IpAddr,
    /// Destination address, of the same family as `src`.
    pub dst: IpAddr,
    /// Source port; 0 if there is none.
    pub src_port: Port,
    /// Destination port; 0 if there is none.
    pub dst_port: Port,
    /// The protocol above IP.
    pub protocol: IpProtocol,
}

impl FlowKey {
    /// The key of a frame; `None` if the frame is not IP.
    pub fn of(frame: &[u8], headers: &Headers) -> Option<Self> {
        let ends = Endpoints::of(frame, headers)?;
        let (src, dst) = match ends.addresses {
            Addresses::V4(src, dst) => (Ipv4Addr::from(src).into(), Ipv4Addr::from(dst).into()),
            Addresses::V6(src, dst) => (Ipv6Addr::from(src).into(), Ipv6Addr::from(dst).into()),
        };
        let (src_port, dst_port) = (Port(ends.src_port), Port(ends.dst_port));
        Some(Self { src, dst, src_port, dst_port, protocol: ends.protocol })
    }

    /// The key of a packet in the other direction.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self { src: self.dst, dst: self.src, src_port: self.dst_port, dst_port: self.src_port, protocol: self.protocol }
    }

    /// The same key for both directions: the source is the lesser endpoint (address, then port). The second result is
    /// true if source and destination were exchanged.
    #[must_use]
    pub fn canonical(self) -> (Self, bool) {
        let turn = (self.src, self.src_port) > (self.dst, self.dst_port);
        (if turn { self.reversed() } else { self }, turn)
    }
}

/// `10.0.0.1:5353 > [2001:db8::1]:53 udp`; without ports if both are 0.
impl fmt::Display for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if (self.src_port.0, self.dst_port.0) == (0, 0) {
            return write!(f, "{} > {} {}", self.src, self.dst, self.protocol);
        }
        let (src, dst) = (SocketAddr::new(self.src, self.src_port.0), SocketAddr::new(self.dst, self.dst_port.0));
        write!(f, "{src} > {dst} {}", self.protocol)
    }
}

/// The hash function with its secret key.
#[derive(Clone, Copy)]
pub struct FlowHasher {
    key: u64,
}

/// Omits the secret key, so that logs do not contain it.
impl fmt::Debug for FlowHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FlowHasher")
    }
}

impl FlowHasher {
    /// A hasher with this key; equal keys give equal hashes on every platform.
    pub const fn new(key: u64) -> Self {
        Self { key }
    }

    // PERF: one hash takes 5.2 ns for IPv4 and 9.5 ns for IPv6; together with `Headers::of` it takes 7.4 and 11.4 ns,
    // since the two overlap. Minimum of 400 runs over 1024 frames in cache, on two cores shared with other builds.
    /// The hash of a frame: for IP the hash of its flow key, which is never 0; for other Ethernet frames the hash of
    /// MAC addresses and ethertype; for other frames 0.
    #[inline]
    pub fn hash(&self, frame: &[u8], headers: &Headers) -> u32 {
        match Endpoints::of(frame, headers) {
            Some(ends) => self.of_ends(&ends),
            None => self.of_link(frame, headers),
        }
    }

    /// The hash of packets with this key. A key whose two addresses are of different families, which no packet has, is
    /// hashed as IPv6.
    pub fn hash_key(&self, key: &FlowKey) -> u32 {
        let wide = |a: IpAddr| match a {
            IpAddr::V4(a) => u128::from(a.to_ipv6_mapped()),
            IpAddr::V6(a) => u128::from(a),
        };
        let addresses = match (key.src, key.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Addresses::V4(src.into(), dst.into()),
            (src, dst) => Addresses::V6(wide(src), wide(dst)),
        };
        let (src_port, dst_port) = (key.src_port.0, key.dst_port.0);
        self.of_ends(&Endpoints { addresses, src_port, dst_port, protocol: key.protocol })
    }

    #[inline(always)]
    fn of_ends(&self, ends: &Endpoints) -> u32 {
        let protocol = u64::from(ends.protocol.0);
        shorten(match ends.addresses {
            Addresses::V4(src, dst) => {
                let src = u64::from(src) << 16 | u64::from(ends.src_port);
                let dst = u64::from(dst) << 16 | u64::from(ends.dst_port);
                fold(self.key, src.min(dst), src.max(dst) | protocol << 48)
            }
            Addresses::V6(src, dst) => self.of_v6((src, ends.src_port), (dst, ends.dst_port), protocol),
        })
    }

    #[inline]
    fn of_v6(&self, src: (u128, u16), dst: (u128, u16), protocol: u64) -> u64 {
        let (low, high) = if src <= dst { (src, dst) } else { (dst, src) };
        // The words of the two endpoints are combined in parallel, with half the latency of one long chain of
        // operations.
        let low_end = fold(self.key, (low.0 >> 64) as u64, low.0 as u64);
        let high_end = fold(self.key.wrapping_add(1), (high.0 >> 64) as u64, high.0 as u64);
        let ends = low_end.wrapping_add(high_end.rotate_left(32));
        mix64(ends.wrapping_add(u64::from(low.1) | u64::from(high.1) << 16 | protocol << 32))
    }

    #[inline(never)]
    fn of_link(&self, frame: &[u8], headers: &Headers) -> u32 {
        let Some(head) = frame.first_chunk::<{ ethernet::at::END }>().filter(|_| headers.is_ethernet()) else {
            return 0;
        };
        let mac = |at| u64::from(be16(head, at)) << 32 | u64::from(be32(head, at + 2));
        let (dst, src) = (mac(ethernet::at::DST), mac(ethernet::at::SRC));
        let first = src.min(dst) | u64::from(headers.ethertype().0) << 48;
        shorten(fold(self.key.wrapping_add(2), first, src.max(dst)))
    }
}

/// Combines two words under a key. The second word is added to the mix of the key and the first word, which is unknown
/// without the key; therefore two pairs of words collide under some keys only.
#[inline(always)]
const fn fold(key: u64, first: u64, second: u64) -> u64 {
    mix64(mix64(key ^ first).wrapping_add(second))
}

#[inline(always)]
const fn shorten(state: u64) -> u32 {
    let hash = (state >> 32) as u32;
    if hash == 0 { 1 } else { hash }
}

/// The fields of the flow key as numbers, from which key and hash are made.
struct Endpoints {
    addresses: Addresses,
    src_port: u16,
    dst_port: u16,
    protocol: IpProtocol,
}

enum Addresses {
    V4(u32, u32),
    V6(u128, u128),
}

impl Endpoints {
    #[inline(always)]
    fn of(frame: &[u8], headers: &Headers) -> Option<Self> {
        let l3 = usize::from(headers.l3());
        let addresses = match headers.family() {
            Family::V4 => {
                let b: &[u8; 8] = chunk(frame, l3 + ipv4::at::SRC)?;
                Addresses::V4(be32(b, 0), be32(b, ipv4::at::DST - ipv4::at::SRC))
            }
            Family::V6 => {
                let src: &[u8; 16] = chunk(frame, l3 + ipv6::at::SRC)?;
                let dst: &[u8; 16] = chunk(frame, l3 + ipv6::at::DST)?;
                Addresses::V6(u128::from_be_bytes(*src), u128::from_be_bytes(*dst))
            }
            Family::Other => return None,
        };
        let ports = match headers.fragment() {
            Fragment::Whole => headers.port_word(frame).unwrap_or(0),
            Fragment::First | Fragment::Later => 0,
        };
        let protocol = headers.protocol()?;
        Some(Self { addresses, src_port: (ports >> 16) as u16, dst_port: ports as u16, protocol })
    }
}
