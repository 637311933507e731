//! Builds a new index for the kept records of a packet file, and copies the kept records to a new file.

use super::{BLOCK, Findings, Layout, Window};
use base::{Tally, Timestamp, TimestampQuality};
use index::{BlockKeys, Builder, Entry, Header, Rows, SubBlocks, sub_block_of};
use std::io;
use store::device::Device;

/// The index of a packet file before it is encoded.
#[derive(Clone, Debug)]
pub struct Rebuilt {
    /// The entries, block by block.
    pub entries: Vec<Entry>,
    /// Length of the packet file.
    pub bytes: u64,
    /// The time at which the packet file ends: its latest timestamp, or a later second of its ledger.
    pub end: Timestamp,
}

impl Rebuilt {
    /// The bytes of the sealed index.
    ///
    /// # Errors
    /// The packet file has more blocks than an index can describe.
    pub fn encode(self, header: &Header) -> io::Result<Vec<u8>> {
        let mut builder = Builder::new(header.clone());
        self.entries.into_iter().for_each(|entry| builder.push(entry));
        let mut bytes = Vec::new();
        builder.finish(self.bytes, self.end, &[], &mut bytes)?;
        Ok(bytes)
    }
}

/// Builds the index of a file that consists of the file header `head` and the kept records. Passes each range of bytes
/// to `copy`, the header first.
///
/// # Errors
/// Any error that the device or `copy` returns.
pub fn rebuild<D: Device>(
    window: &mut Window<'_, D>,
    layout: Layout,
    header: &Header,
    findings: &Findings,
    head: &[u8],
    mut copy: impl FnMut(&mut D, u64, &[u8]) -> io::Result<()>,
) -> io::Result<Rebuilt> {
    let mut out = Output::default();
    let mut rest = findings.rest.iter();
    let mut waiting = rest.next();
    copy(window.device(), 0, head)?;
    out.bytes(head);
    for kept in &findings.kept {
        let mut at = kept.start.max(layout.file_header());
        while at < kept.end {
            // Unverified records need no test of their order, because the scan that found them required increasing
            // timestamps.
            let Some(record) = layout.next(window, at, Timestamp::ZERO)? else {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("byte {at} was changed during the repair"),
                ));
            };
            while let Some((from, rows)) = waiting.filter(|(from, _)| *from <= record.at) {
                debug_assert!(*from <= record.at);
                out.rest(rows);
                waiting = rest.next();
            }
            let whole = window.get(record.at, (record.end - record.at) as usize)?.to_vec();
            if !record.padding {
                let data = &whole[layout.record_header()..];
                out.packet(data, record.ts, record.wire_len, header.link_type as u16);
            }
            copy(window.device(), out.len, &whole)?;
            out.bytes(&whole);
            at = record.end;
        }
    }
    while let Some((_, rows)) = waiting {
        out.rest(rows);
        waiting = rest.next();
    }
    Ok(out.finish(header.start))
}

/// The state of the index while the output is being built.
#[derive(Default)]
struct Output {
    len: u64,
    entries: Vec<Entry>,
    crc: u32,
    first_record: Option<u32>,
    parts: SubBlocks,
    stamps: Option<(Timestamp, Timestamp)>,
    rows: Rows,
    keys: BlockKeys,
    end: Timestamp,
}

impl Output {
    fn packet(&mut self, data: &[u8], ts: Timestamp, wire_len: u32, link_type: u16) {
        let offset = (self.len % BLOCK) as u32;
        self.first_record.get_or_insert(offset);
        self.parts.begin(offset, self.crc);
        self.keys.enter(sub_block_of(offset));
        self.stamps = Some(self.stamps.map_or((ts, ts), |(a, b)| (a.min(ts), b.max(ts))));
        self.keys.add(data, wire_len, link_type);
        let tally = Tally { offered: 1, stored: 1, stored_bytes: u64::from(wire_len), ..Tally::default() };
        self.rows.add(ts.secs(), &tally);
        self.end = self.end.max(ts);
    }

    fn rest(&mut self, rows: &Rows) {
        self.rows.merge(rows);
        if let Some(last) = rows.runs().next_back() {
            self.end = self.end.max(Timestamp::from_secs_nanos(last.second + last.seconds - 1, 0));
        }
    }

    fn bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = (BLOCK - self.len % BLOCK) as usize;
            let (here, later) = bytes.split_at(room.min(bytes.len()));
            self.crc = crc32c::crc32c_append(self.crc, here);
            self.len += here.len() as u64;
            if self.len.is_multiple_of(BLOCK) {
                self.entry(BLOCK as u32);
            }
            bytes = later;
        }
    }

    fn entry(&mut self, bytes: u32) {
        let (first, last) = self.stamps.take().unwrap_or_default();
        let rows = std::mem::take(&mut self.rows);
        self.entries.push(Entry {
            block: self.entries.len() as u32,
            bytes,
            first_record: self.first_record.take(),
            crc: std::mem::take(&mut self.crc),
            sub_blocks: std::mem::take(&mut self.parts),
            first,
            last,
            timestamps: TimestampQuality::UNKNOWN,
            rows,
            sets: self.keys.sets(),
        });
        self.keys.clear();
    }

    fn finish(mut self, start: Timestamp) -> Rebuilt {
        let open = (self.len % BLOCK) as u32;
        if open > 0 || !self.rows.is_empty() {
            self.entry(open);
        }
        Rebuilt { entries: self.entries, bytes: self.len, end: self.end.max(start) }
    }
}
