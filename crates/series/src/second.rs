//! What is counted of one second while it is open: two directions of 16 KiB each, made when the first packet comes.
//!
//! ```text
//! bins          1000 × (bytes u32, packets u32)   one per millisecond; peaks are read from them      8 000 B
//! sources, destinations   4096 registers each     distinct addresses                                 8 192 B
//! volumes       kind × IP version                 totals, protocols and IPv6 are sums of these
//! sizes         size class
//! tcp           FIN, SYN, RST, (PSH), ACK as they come together, 32 combinations
//! ```
//!
//! A packet touches one place of each. All of it merges exactly (sums and maxima), so that it does not matter which of
//! several counters saw which packet.

use crate::{Direction, Distinct, Peak, Row, SIZE_BOUNDS, SIZES, TrafficClass, Volume};
use base::Tally;
use std::ops::AddAssign;

/// Milliseconds in a second, nanoseconds in a millisecond.
const BINS: usize = 1000;
const BIN_NANOS: u64 = 1_000_000;

/// TCP's flags as they lie in the header.
mod tcp {
    pub const FIN: usize = 0x01;
    pub const SYN: usize = 0x02;
    pub const RST: usize = 0x04;
    pub const ACK: usize = 0x10;
    /// Those that are told apart.
    pub const MASK: u8 = 0x17;
    pub const COMBINATIONS: usize = 0x20;
}

/// One packet, as the series see it.
#[derive(Clone, Copy)]
pub(crate) struct PacketFields {
    pub wire_len: u32,
    pub kind: TrafficClass,
    pub is_v6: bool,
    pub tcp_flags: u8,
    pub src_hash: u64,
    pub dst_hash: u64,
}

/// One second.
#[derive(Clone, Debug, Default)]
pub(crate) struct Second {
    pub second: u64,
    pub directions: [Option<Box<DirectionSecond>>; 2],
    pub flows_active: u64,
    pub flows_new: u64,
    pub flows_ended: u64,
    /// Numbers of tunnels: seen, missing, late.
    pub tunnels: [u64; 3],
    pub ledger: Tally,
}

impl Second {
    pub fn new(second: u64) -> Self {
        Self { second, ..Self::default() }
    }

    /// Takes everything from another of the same second.
    pub fn absorb(&mut self, other: Self) {
        for (mine, theirs) in self.directions.iter_mut().zip(other.directions) {
            match (mine.as_mut(), theirs) {
                (Some(mine), Some(theirs)) => mine.absorb(&theirs),
                (None, theirs) => *mine = theirs,
                (Some(_), None) => {}
            }
        }
        self.flows_active += other.flows_active;
        self.flows_new += other.flows_new;
        self.flows_ended += other.flows_ended;
        add(&mut self.tunnels, &other.tunnels);
        self.ledger += &other.ledger;
    }

    /// What is told of it.
    pub fn row(&self, interface: u16, direction: Direction) -> Row {
        let mut row = Row { second: self.second, interface, direction, ..Row::default() };
        if direction == Direction::In {
            row.flows_active = self.flows_active;
            row.flows_new = self.flows_new;
            row.flows_ended = self.flows_ended;
            [row.tunnel_numbered, row.tunnel_missing, row.tunnel_late] = self.tunnels;
            row.ledger = self.ledger;
        }
        if let Some(side) = &self.directions[direction as usize] {
            side.tell(&mut row);
        }
        row
    }
}

/// What passed in a millisecond. Both stop at their greatest: 4 GiB in a millisecond are 34 Tb/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bin {
    bytes: u32,
    packets: u32,
}

/// One direction of one second.
#[derive(Clone, Debug)]
pub(crate) struct DirectionSecond {
    volumes: [[Volume; 2]; TrafficClass::COUNT],
    sizes: [u64; SIZES],
    tcp: [u64; tcp::COMBINATIONS],
    bins: [Bin; BINS],
    sources: Distinct,
    destinations: Distinct,
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
        })
    }

    /// One packet, so many nanoseconds after the beginning of the second.
    #[inline]
    pub fn packet(&mut self, after: u64, seen: PacketFields) {
        let bin = &mut self.bins[(after / BIN_NANOS) as usize % BINS];
        bin.bytes = bin.bytes.saturating_add(seen.wire_len);
        bin.packets = bin.packets.saturating_add(1);
        let volume = &mut self.volumes[seen.kind as usize][usize::from(seen.is_v6)];
        volume.packets += 1;
        volume.bytes += u64::from(seen.wire_len);
        self.sizes[size_class(seen.wire_len)] += 1;
        self.tcp[usize::from(seen.tcp_flags & tcp::MASK)] += 1;
        if seen.src_hash != 0 {
            self.sources.insert(seen.src_hash);
        }
        if seen.dst_hash != 0 {
            self.destinations.insert(seen.dst_hash);
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
        self.sources.merge(&other.sources);
        self.destinations.merge(&other.destinations);
    }

    fn tell(&self, row: &mut Row) {
        for (kind, by_version) in row.classes.iter_mut().zip(self.volumes) {
            for (version, volume) in by_version.iter().enumerate() {
                *kind += volume;
                row.total += volume;
                if version == 1 {
                    row.ipv6 += volume;
                }
            }
        }
        row.sizes = self.sizes;
        let with = |bits: usize, of: usize| (0..self.tcp.len()).filter(|c| c & of == bits).map(|c| self.tcp[c]).sum();
        row.syn = with(tcp::SYN, tcp::SYN | tcp::ACK);
        row.syn_ack = with(tcp::SYN | tcp::ACK, tcp::SYN | tcp::ACK);
        row.fin = with(tcp::FIN, tcp::FIN);
        row.rst = with(tcp::RST, tcp::RST);
        row.sources = self.sources.estimate();
        row.destinations = self.destinations.estimate();
        row.peak_1ms = self.peak(1);
        row.peak_10ms = self.peak(10);
    }

    fn peak(&self, bins: usize) -> Peak {
        let together = |part: &[Bin], of: fn(&Bin) -> u32| part.iter().map(|bin| u64::from(of(bin))).sum();
        self.bins.chunks(bins).fold(Peak::default(), |peak, part| Peak {
            bytes: peak.bytes.max(together(part, |bin| bin.bytes)),
            packets: peak.packets.max(together(part, |bin| bin.packets)),
        })
    }
}

impl AddAssign<&Volume> for Volume {
    fn add_assign(&mut self, other: &Volume) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// Which of the size classes a frame is in.
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
    fn a_bound_belongs_to_the_class_below_it() {
        for (class, bound) in SIZE_BOUNDS.into_iter().enumerate() {
            assert_eq!((size_class(bound), size_class(bound + 1)), (class, class + 1));
        }
        assert_eq!((size_class(0), size_class(u32::MAX)), (0, SIZES - 1));
    }

    /// Foreign files may say 4 GiB of every packet.
    #[test]
    fn a_bin_stops_at_its_greatest_and_the_volume_goes_on() {
        let mut side = DirectionSecond::new();
        let seen = PacketFields {
            wire_len: u32::MAX,
            kind: TrafficClass::Other,
            is_v6: false,
            tcp_flags: 0,
            src_hash: 0,
            dst_hash: 0,
        };
        (0..3).for_each(|_| side.packet(999_999_999, seen));
        let mut row = Row::default();
        side.tell(&mut row);
        assert_eq!(row.total, Volume { packets: 3, bytes: 3 * u64::from(u32::MAX) });
        assert_eq!(row.peak_10ms, Peak { packets: 3, bytes: u32::MAX.into() });
        assert_eq!((row.sources, row.destinations), (0, 0));
    }
}
