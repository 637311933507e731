//! The counters of a second for which no row was made yet. Each of its two directions takes 16 KiB, which are allocated
//! with the first packet of the direction.
//!
//! ```text
//! bins          1000 × (bytes u32, packets u32)   one per millisecond; peaks are read from them      8 000 B
//! sources, destinations   4096 registers each     distinct addresses                                 8 192 B
//! volumes       traffic class × IP version        totals, classes and IPv6 are sums of these
//! sizes         size class
//! duplicate     volume of the packets that are marked as copies
//! tcp           combinations of FIN, SYN, RST, (PSH), ACK, 32 counters
//! ```
//!
//! A packet changes one entry of each table except `duplicate`; a marked copy changes only `duplicate`. All tables
//! merge exactly (sums and maxima), so the result does not depend on the distribution of packets among several meters.

use crate::{Direction, Distinct, Peak, Row, SIZE_BOUNDS, SIZES, TimestampCounters, TrafficClass, Volume};
use base::Tally;
use std::ops::AddAssign;

/// Number of bins of a second; a bin is a millisecond.
const BINS: usize = 1000;
/// Nanoseconds in a bin.
const BIN_NANOS: u64 = 1_000_000;

/// The bits of the TCP flags in the TCP header.
mod tcp {
    pub const FIN: usize = 0x01;
    pub const SYN: usize = 0x02;
    pub const RST: usize = 0x04;
    pub const ACK: usize = 0x10;
    /// The flags that are counted.
    pub const MASK: u8 = 0x17;
    pub const COMBINATIONS: usize = 0x20;
}

/// The fields of a packet that the time series count.
#[derive(Clone, Copy)]
pub(crate) struct PacketFields {
    pub wire_len: u32,
    pub kind: TrafficClass,
    pub is_v6: bool,
    pub tcp_flags: u8,
    pub src_hash: u64,
    pub dst_hash: u64,
}

/// The counters of one second.
#[derive(Clone, Debug, Default)]
pub(crate) struct Second {
    pub second: u64,
    pub directions: [Option<Box<DirectionSecond>>; 2],
    pub flows_active: u64,
    pub flows_new: u64,
    pub flows_ended: u64,
    /// The number of tunnel sequence numbers that arrived, that are missing, and that arrived late.
    pub tunnels: [u64; 3],
    pub ledger: Tally,
    pub timestamps: TimestampCounters,
}

impl Second {
    pub fn new(second: u64) -> Self {
        Self { second, ..Self::default() }
    }

    /// Adds the counters of another meter for the same second.
    pub fn absorb(&mut self, other: Self) {
        for (own, others) in self.directions.iter_mut().zip(other.directions) {
            match (own.as_mut(), others) {
                (Some(own), Some(others)) => own.absorb(&others),
                (None, others) => *own = others,
                (Some(_), None) => {}
            }
        }
        self.flows_active += other.flows_active;
        self.flows_new += other.flows_new;
        self.flows_ended += other.flows_ended;
        add(&mut self.tunnels, &other.tunnels);
        self.ledger += &other.ledger;
        self.timestamps.merge(&other.timestamps);
    }

    /// The row of one direction.
    pub fn row(&self, interface: u16, direction: Direction) -> Row {
        let mut row = Row { second: self.second, interface, direction, ..Row::default() };
        if direction == Direction::In {
            row.flows_active = self.flows_active;
            row.flows_new = self.flows_new;
            row.flows_ended = self.flows_ended;
            [row.tunnel_numbered, row.tunnel_missing, row.tunnel_late] = self.tunnels;
            row.ledger = self.ledger;
            row.timestamps = self.timestamps;
        }
        if let Some(counters) = &self.directions[direction as usize] {
            counters.write_counts(&mut row);
        }
        row
    }
}

/// Bytes and packets of one millisecond. Both counters saturate. The limit of 4 GiB in a millisecond corresponds to 34
/// Tb/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bin {
    bytes: u32,
    packets: u32,
}

/// The counters of one direction of one second.
#[derive(Clone, Debug)]
pub(crate) struct DirectionSecond {
    volumes: [[Volume; 2]; TrafficClass::COUNT],
    sizes: [u64; SIZES],
    tcp: [u64; tcp::COMBINATIONS],
    bins: [Bin; BINS],
    sources: Distinct,
    destinations: Distinct,
    duplicate: Volume,
}

impl DirectionSecond {
    pub fn new() -> Box<Self> {
        Box::new(Self {
            volumes: [[Volume { packets: 0, bytes: 0 }; 2]; TrafficClass::COUNT],
            sizes: [0; SIZES],
            tcp: [0; tcp::COMBINATIONS],
            bins: [Bin { bytes: 0, packets: 0 }; BINS],
            sources: Distinct::EMPTY,
            destinations: Distinct::EMPTY,
            duplicate: Volume { packets: 0, bytes: 0 },
        })
    }

    /// Counts a packet that is marked as a copy of an earlier packet.
    pub fn duplicate(&mut self, wire_len: u32) {
        self.duplicate += &Volume { packets: 1, bytes: wire_len.into() };
    }

    /// Counts a packet, `after` nanoseconds after the beginning of the second.
    #[inline]
    pub fn packet(&mut self, after: u64, fields: PacketFields) {
        let bin = &mut self.bins[(after / BIN_NANOS) as usize % BINS];
        bin.bytes = bin.bytes.saturating_add(fields.wire_len);
        bin.packets = bin.packets.saturating_add(1);
        let volume = &mut self.volumes[fields.kind as usize][usize::from(fields.is_v6)];
        volume.packets += 1;
        volume.bytes += u64::from(fields.wire_len);
        self.sizes[size_class(fields.wire_len)] += 1;
        self.tcp[usize::from(fields.tcp_flags & tcp::MASK)] += 1;
        if fields.src_hash != 0 {
            self.sources.insert(fields.src_hash);
        }
        if fields.dst_hash != 0 {
            self.destinations.insert(fields.dst_hash);
        }
    }

    fn absorb(&mut self, other: &Self) {
        for (a, b) in self.volumes.as_flattened_mut().iter_mut().zip(other.volumes.as_flattened()) {
            a.packets += b.packets;
            a.bytes += b.bytes;
        }
        add(&mut self.sizes, &other.sizes);
        add(&mut self.tcp, &other.tcp);
        for (a, b) in self.bins.iter_mut().zip(other.bins) {
            a.bytes = a.bytes.saturating_add(b.bytes);
            a.packets = a.packets.saturating_add(b.packets);
        }
        self.duplicate += &other.duplicate;
        self.sources.merge(&other.sources);
        self.destinations.merge(&other.destinations);
    }

    fn write_counts(&self, row: &mut Row) {
        for (kind, by_version) in row.classes.iter_mut().zip(self.volumes) {
            for (version, volume) in by_version.iter().enumerate() {
                *kind += volume;
                row.total += volume;
                if version == 1 {
                    row.ipv6 += volume;
                }
            }
        }
        row.duplicate = self.duplicate;
        row.sizes = self.sizes;
        let with = |bits: usize, of: usize| (0..self.tcp.len()).filter(|c| c & of == bits).map(|c| self.tcp[c]).sum();
        row.syn = with(tcp::SYN, tcp::SYN | tcp::ACK);
        row.syn_ack = with(tcp::SYN | tcp::ACK, tcp::SYN | tcp::ACK);
        row.fin = with(tcp::FIN, tcp::FIN);
        row.rst = with(tcp::RST, tcp::RST);
        // Each packet has at most one address of each kind, but an estimate may be above the number of packets.
        row.sources = self.sources.estimate().min(row.total.packets);
        row.destinations = self.destinations.estimate().min(row.total.packets);
        row.peak_1ms = self.peak(1);
        row.peak_10ms = self.peak(10);
    }

    fn peak(&self, bins: usize) -> Peak {
        let sum = |part: &[Bin], of: fn(&Bin) -> u32| part.iter().map(|bin| u64::from(of(bin))).sum();
        self.bins.chunks(bins).fold(Peak::default(), |peak, part| Peak {
            bytes: peak.bytes.max(sum(part, |bin| bin.bytes)),
            packets: peak.packets.max(sum(part, |bin| bin.packets)),
        })
    }
}

impl AddAssign<&Volume> for Volume {
    fn add_assign(&mut self, other: &Volume) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// The size class of a frame.
#[inline]
fn size_class(wire_len: u32) -> usize {
    SIZE_BOUNDS.iter().map(|bound| usize::from(wire_len > *bound)).sum()
}

fn add(to: &mut [u64], from: &[u64]) {
    for (a, b) in to.iter_mut().zip(from) {
        *a += b;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_bounds_are_inclusive() {
        for (class, bound) in SIZE_BOUNDS.into_iter().enumerate() {
            assert_eq!((size_class(bound), size_class(bound + 1)), (class, class + 1));
        }
        assert_eq!((size_class(0), size_class(u32::MAX)), (0, SIZES - 1));
    }

    #[test]
    fn there_are_not_more_addresses_than_packets() {
        let mut counters = DirectionSecond::new();
        let mut prng = base::Prng::new(1);
        let mut above = 0;
        for packets in 1..2000 {
            let [src_hash, dst_hash] = [prng.next_u64(), prng.next_u64()];
            let kind = TrafficClass::Other;
            counters.packet(0, PacketFields { wire_len: 60, kind, is_v6: false, tcp_flags: 0, src_hash, dst_hash });
            above += u64::from(counters.sources.estimate() > packets);
            let mut row = Row::default();
            counters.write_counts(&mut row);
            assert!(row.sources <= packets && row.destinations <= packets, "{packets} packets, {row:?}");
        }
        assert!(above > 0, "no estimate was above the number of packets");
    }

    /// The test counts packets with a wire length of 4 GiB, because a capture file may state this length for every
    /// packet.
    #[test]
    fn a_bin_saturates_and_the_volume_does_not() {
        let mut counters = DirectionSecond::new();
        let fields = PacketFields {
            wire_len: u32::MAX,
            kind: TrafficClass::Other,
            is_v6: false,
            tcp_flags: 0,
            src_hash: 0,
            dst_hash: 0,
        };
        (0..3).for_each(|_| counters.packet(999_999_999, fields));
        let mut row = Row::default();
        counters.write_counts(&mut row);
        assert_eq!(row.total, Volume { packets: 3, bytes: 3 * u64::from(u32::MAX) });
        assert_eq!(row.peak_10ms, Peak { packets: 3, bytes: u32::MAX.into() });
        assert_eq!((row.sources, row.destinations), (0, 0));
    }
}
