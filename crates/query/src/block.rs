//! The matching packets of one block of a packet file, in order of time.
//!
//! The block contains packets as records of nanosecond pcap, so that consecutive packets can be returned as one slice.

use crate::FoundPacket;
use base::Timestamp;
use pcap::{Packet, record_header_ns};

/// The matching packets of one block, and a cursor on them.
#[derive(Debug, Default)]
pub struct Block {
    /// Number of the block in the file: of packets with equal timestamps, those of the earlier block are returned
    /// first.
    pub number: u32,
    records: Vec<u8>,
    items: Vec<Item>,
    next: usize,
    /// For each origin, the number of lost packets that no packet reports yet: `push` stores the number in the next
    /// packet of this origin.
    pending: Vec<(usize, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Item {
    ts: Timestamp,
    at: u32,
    caplen: u32,
    wire_len: u32,
    origin: u32,
    link_type: u16,
    lost: u64,
    position: Option<u64>,
}

const HEADER: usize = pcap::classic::RECORD_HEADER;

/// The timestamp of a packet; zero for packets without a timestamp (the simple packets of pcapng).
pub fn stamp(packet: &Packet<'_>) -> Timestamp {
    packet.ts.unwrap_or(Timestamp::ZERO)
}

impl Block {
    /// Empties the block and gives it a new number.
    pub fn begin(&mut self, number: u32) {
        self.number = number;
        self.records.clear();
        self.items.clear();
        self.pending.clear();
        self.next = 0;
    }

    /// Registers that packets of this origin were lost after the last added packet.
    pub fn lose(&mut self, origin: usize, packets: u64) {
        match self.pending.iter_mut().find(|(o, _)| *o == origin) {
            Some((_, lost)) => *lost = lost.saturating_add(packets),
            None => self.pending.push((origin, packets)),
        }
    }

    /// Appends a matching packet.
    pub fn push(&mut self, packet: &Packet<'_>, origin: usize) {
        let lost = match self.pending.iter_mut().find(|(o, _)| *o == origin) {
            Some((_, lost)) => std::mem::take(lost),
            None => 0,
        };
        let Packet { data, wire_len, link_type, .. } = *packet;
        let position = None;
        self.push_found(&FoundPacket { ts: stamp(packet), wire_len, data, link_type, origin, lost, position });
    }

    /// Appends a packet together with the number of packets lost before it.
    pub fn push_found(&mut self, found: &FoundPacket<'_>) {
        let FoundPacket { ts, wire_len, data, link_type, origin, lost, position } = *found;
        // The records of a block have at most 1 MiB plus the length of the record that crosses the end of the block, so
        // offsets fit into u32.
        let (at, caplen) = (self.records.len() as u32, data.len() as u32);
        self.records.extend(record_header_ns(ts, caplen, wire_len));
        self.records.extend(data);
        self.items.push(Item { ts, at, caplen, wire_len, origin: origin as u32, link_type, lost, position });
    }

    /// Sorts the packets by time; returns the number of packets lost after the last packet, for each origin.
    pub fn finish(&mut self) -> &[(usize, u64)] {
        if !self.items.is_sorted_by_key(|i| i.ts) {
            self.items.sort_by_key(|i| i.ts);
        }
        &self.pending
    }

    /// The timestamp of the current packet of the block. After sorting, the current packet is the first packet.
    pub fn stamp(&self) -> Option<Timestamp> {
        self.items.get(self.next).map(|i| i.ts)
    }

    /// Moves to the next packet.
    pub fn step(&mut self) {
        self.next += 1;
    }

    /// The current packet.
    pub fn packet(&self) -> Option<FoundPacket<'_>> {
        let i = self.items.get(self.next)?;
        let from = i.at as usize + HEADER;
        Some(FoundPacket {
            ts: i.ts,
            wire_len: i.wire_len,
            data: &self.records[from..from + i.caplen as usize],
            link_type: i.link_type,
            origin: i.origin as usize,
            lost: i.lost,
            position: i.position,
        })
    }

    /// Moves from the current packet to the last of the following packets that are contiguous in the records and for
    /// which `allows` returns true. Returns the byte range and the number of these packets; `None` if the timestamp of
    /// the first packet does not fit into a pcap record.
    pub fn extend(&mut self, allows: impl Fn(Timestamp) -> bool) -> Option<(std::ops::Range<usize>, u64)> {
        let first = *self.items.get(self.next)?;
        // A pcap record cannot store timestamps after the year 2106.
        let fits = |i: &Item| i.ts.secs() <= u64::from(u32::MAX);
        if !fits(&first) {
            return None;
        }
        let (begun, mut last) = (self.next, first);
        while let Some(i) = self.items.get(self.next + 1) {
            let behind = i.at == last.at + HEADER as u32 + last.caplen;
            if !behind || i.origin != first.origin || i.lost > 0 || !fits(i) || !allows(i.ts) {
                break;
            }
            last = *i;
            self.next += 1;
        }
        let range = first.at as usize..last.at as usize + HEADER + last.caplen as usize;
        Some((range, (self.next - begun + 1) as u64))
    }

    /// The bytes of the pcap records in this byte range of the block's memory.
    pub fn records(&self, range: std::ops::Range<usize>) -> &[u8] {
        self.records.get(range).unwrap_or(&[])
    }

    /// Number of bytes of memory that the block holds.
    pub fn memory(&self) -> usize {
        self.records.capacity() + self.items.capacity() * size_of::<Item>()
    }
}
