//! Compares the packets of a file with its index while it reads the file once, as fast as the file can be read.
//!
//! If blocks of a recorded file are damaged, a second pass scans the undamaged blocks. After a damaged block, it begins
//! at the first record that the index gives for the next block. So findings name only the damaged blocks, and not all
//! blocks after them.

use super::samples::Samples;
use super::{FindingKind, Verify};
use crate::packet_file::{BLOCK, DeviceFile, IndexedBlock, Layout, VerifiedIndex, Window};
use crate::verify::Finding;
use base::Timestamp;
use base::units::show_count;
use filter::KeyCondition;
use index::{Reader, SubBlockMask, SubBlocks, sub_block_of};
use pcap::{Direction, Error};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::Path;
use store::device::{Device, FileId};
use wire::{FlowKey, Headers};

/// Bytes of one read.
const AHEAD: usize = 1 << 20;

/// The number of packets that the scan found in a block, with the properties that are compared with the index.
#[derive(Clone, Debug, Default)]
struct BlockCounts {
    packets: u64,
    first_record: Option<u32>,
    /// Offsets of the first records of the sub-blocks. The checksums of the sub-blocks are not set.
    parts: SubBlocks,
    stamps: Option<(Timestamp, Timestamp)>,
}

/// The checksums of a block.
#[derive(Clone, Copy)]
struct Sum {
    crc: u32,
    /// True if the sub-block checksums match the index.
    parts: bool,
}

/// Reads a file once: passes the bytes to the packet reader and computes the checksum of each block.
struct Stream<'d, D> {
    device: &'d mut D,
    file: FileId,
    at: u64,
    limit: u64,
    buffer: Vec<u8>,
    used: usize,
    /// The checksum of each block, computed from the bytes that exist and that the index covers.
    sums: Vec<Sum>,
    verified: Option<&'d VerifiedIndex>,
}

impl<D: Device> Stream<'_, D> {
    fn fill(&mut self) -> io::Result<bool> {
        // Blocks begin at multiples of the read size, so each read is within one block.
        let want = (self.limit - self.at).min(AHEAD as u64) as usize;
        self.buffer.resize(want, 0);
        let got = self.device.read(self.file, self.at, &mut self.buffer)?;
        self.buffer.truncate(got);
        (self.at, self.used) = (self.at + got as u64, 0);
        if got > 0 {
            // In a capture that was damaged when it was indexed, the index covers only the bytes before the damage.
            let number = self.sums.len();
            let indexed = self.verified.and_then(|v| v.blocks.get(number)).filter(|p| p.number as usize == number);
            let bytes = indexed.map_or(got, |p| got.min(p.bytes as usize));
            let bytes = &self.buffer[..bytes];
            let parts = indexed.is_none_or(|p| p.parts.sum(bytes));
            self.sums.push(Sum { crc: crc32c::crc32c(bytes), parts });
        }
        Ok(got > 0)
    }

    /// Reads the source to its end, to complete the checksums.
    fn drain(&mut self) -> io::Result<()> {
        while self.fill()? {}
        Ok(())
    }
}

impl<D: Device> Read for Stream<'_, D> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.used == self.buffer.len() && !self.fill()? {
            return Ok(0);
        }
        let len = out.len().min(self.buffer.len() - self.used);
        out[..len].copy_from_slice(&self.buffer[self.used..self.used + len]);
        self.used += len;
        Ok(len)
    }
}

/// The packets of a file, as found without its index.
#[derive(Default)]
struct Content {
    blocks: Vec<BlockCounts>,
    seconds: BTreeMap<u64, u64>,
    packets: u64,
    /// Number of packets whose timestamp is earlier than a preceding timestamp, and the offset of the first such
    /// packet.
    decreases: u64,
    first_decrease: Option<u64>,
    /// Number of packets whose wire length is less than their caplen, and the offset of the first such packet.
    wire_raised: u64,
    first_raised: Option<u64>,
    /// Keys of sampled packets, with the block and sub-block of each packet.
    samples: Samples<((usize, usize), Vec<KeyCondition>)>,
}

impl Content {
    fn take(&mut self, packet: &pcap::Packet<'_>, latest: &mut Timestamp) {
        let number = (packet.offset / BLOCK) as usize;
        if self.blocks.len() <= number {
            self.blocks.resize(number + 1, BlockCounts::default());
        }
        let block = &mut self.blocks[number];
        let offset = (packet.offset % BLOCK) as u32;
        block.packets += 1;
        block.parts.begin(offset, 0);
        self.packets += 1;
        if block.first_record.is_none() {
            block.first_record = Some(offset);
            self.sample(number, packet);
        }
        // A packet without timestamp (a Simple Packet Block of pcapng) is counted at time zero, as in the index.
        let ts = packet.ts.unwrap_or(Timestamp::ZERO);
        let block = &mut self.blocks[number];
        block.stamps = Some(block.stamps.map_or((ts, ts), |(a, b)| (a.min(ts), b.max(ts))));
        *self.seconds.entry(ts.secs()).or_default() += 1;
        if packet.ts.is_some() && ts < *latest {
            self.decreases += 1;
            self.first_decrease.get_or_insert(packet.offset);
        }
        *latest = ts.max(*latest);
        if packet.wire_raised {
            self.wire_raised += 1;
            self.first_raised.get_or_insert(packet.offset);
        }
    }

    /// Counts a record that begins at this offset and whose content is unknown.
    fn begins(&mut self, at: u64) {
        let number = (at / BLOCK) as usize;
        if self.blocks.len() <= number {
            self.blocks.resize(number + 1, BlockCounts::default());
        }
        let block = &mut self.blocks[number];
        block.packets += 1;
        let offset = (at % BLOCK) as u32;
        block.first_record.get_or_insert(offset);
        block.parts.begin(offset, 0);
        block.stamps = None;
    }

    /// Offers a packet's keys to the samples.
    fn sample(&mut self, block: usize, packet: &pcap::Packet<'_>) {
        let headers = Headers::of(packet.data, packet.wire_len, packet.link_type);
        let Some(key) = FlowKey::of(packet.data, &headers) else { return };
        let mut needs: Vec<KeyCondition> = [key.src, key.dst].map(|host: IpAddr| KeyCondition::Host(host)).into();
        needs.push(KeyCondition::Protocol(key.protocol.0));
        let part = sub_block_of((packet.offset % BLOCK) as u32);
        self.samples.offer(((block, part), needs));
    }
}

impl<D: Device, F: FnMut(&Finding, &super::Totals)> Verify<D, F> {
    pub(super) fn content(
        &mut self,
        path: &Path,
        file: FileId,
        limit: u64,
        index: Option<&Path>,
        verified: Option<&VerifiedIndex>,
        open: bool,
    ) -> io::Result<()> {
        let mut content = Content::default();
        let device = &mut self.device;
        let stream = Stream { device, file, at: 0, limit, buffer: Vec::new(), used: 0, sums: Vec::new(), verified };
        let (mut stopped, sums) = read(stream, path, &mut content)?;
        let sum = |indexed: &IndexedBlock| sums.get(indexed.number as usize);
        let good = |indexed: &IndexedBlock| sum(indexed).is_some_and(|sum| sum.crc == indexed.crc);
        let parts = |indexed: &IndexedBlock| sum(indexed).is_some_and(|sum| sum.parts);
        let differs = |v: &&VerifiedIndex| v.blocks.iter().find(|p| p.bytes > 0 && !good(p)).map(|p| p.number);
        let damaged = verified.as_ref().and_then(differs);
        let verified = match (verified, damaged) {
            (Some(v), damaged) if v.is_foreign() && (damaged.is_some() || v.file_bytes() != limit) => {
                let what = damaged.map_or("the length".to_owned(), |number| format!("block {number}"));
                let text = format!(
                    "{what} differs from the indexed capture: the file was changed or replaced after it was indexed"
                );
                self.find(path, FindingKind::Stale, damaged.map(|number| u64::from(number) * BLOCK), text);
                None
            }
            (verified, _) => verified,
        };
        let mut damaged = damaged.is_some();
        let advice = match verified.filter(|verified| damaged && !open && !verified.is_foreign()) {
            Some(verified) => self.advice_on_blocks(path, file, verified),
            None => String::new(),
        };
        let mut broken = None;
        if damaged
            && let Some(verified) = verified
            && let Some(layout) = layout(path)
        {
            let mut window = Window::new(&mut self.device, file, limit)?;
            (content, broken) = scan_undamaged(&mut window, layout, verified, good, open)?;
            stopped = None;
        } else {
            damaged = false;
        }
        self.totals.packets += content.packets;
        // The indexed part of a growing file may end within a record; the record is counted in the block in which it
        // begins.
        let cut = stopped.as_ref().filter(|e| open && matches!(e, Error::Truncated { .. })).map(Error::offset);
        match stopped {
            Some(_) if cut.is_some() => {}
            Some(Error::NotACapture { .. }) if verified.is_none() => {
                self.find(path, FindingKind::Foreign, None, "not a capture");
            }
            // Without an index, only the unsupported version is reported, and not damage: no netgrain program has read
            // the file before, so it may be intact.
            Some(error @ Error::Version { .. }) if verified.is_none() => {
                self.find(path, FindingKind::Version, Some(error.offset()), error.reason());
            }
            Some(error) => self.find(path, FindingKind::Chain, Some(error.offset()), error.reason()),
            None => {}
        }
        if broken.is_some() {
            let text = "no valid record begins at this offset";
            self.find_with(path, FindingKind::Chain, broken, text, &advice);
        }
        if let Some(at) = content.first_decrease {
            let decreases = content.decreases;
            let what = if decreases == 1 { "1 timestamp is".to_owned() } else { format!("{decreases} timestamps are") };
            let text = match verified.is_some_and(|v| !v.is_foreign()) {
                true => format!(
                    "{what} earlier than a preceding timestamp, in the order of recording; queries use the timestamps"
                ),
                false => {
                    format!("{what} earlier than a preceding timestamp; netgrain convert --sort writes a sorted copy")
                }
            };
            self.find(path, FindingKind::Order, Some(at), text);
        }
        if let Some(at) = content.first_raised {
            let what = if content.wire_raised == 1 { "1 packet has" } else { "packets have" };
            let many = if content.wire_raised == 1 { String::new() } else { show_count(content.wire_raised) + " " };
            let text = format!("{many}{what} a wire length below the captured length");
            self.find(path, FindingKind::WireLength, Some(at), text);
        }
        let Some(verified) = verified else { return Ok(()) };
        if let Some(at) = cut {
            content.begins(at);
        }
        self.blocks(path, &content, limit, (good, parts), verified, &advice);
        if !damaged {
            // The ledger is not compared if blocks are damaged: the seconds of their packets are unknown, and the other
            // blocks were already checked.
            self.seconds(path, content.seconds.clone(), verified, cut.is_some());
        }
        match index {
            Some(index) => self.keys(path, index, &content),
            None => Ok(()),
        }
    }

    /// `advice` is the remedy for a wrong checksum. Bytes after `limit` are not reported again, because the finding
    /// about the length of the file covers them.
    fn blocks(
        &mut self,
        path: &Path,
        content: &Content,
        limit: u64,
        (good, parts): (impl Fn(&IndexedBlock) -> bool, impl Fn(&IndexedBlock) -> bool),
        verified: &VerifiedIndex,
        advice: &str,
    ) {
        for indexed in verified.blocks.iter().filter(|p| p.bytes > 0 && p.start() < limit) {
            let number = indexed.number as usize;
            let at = Some(indexed.start());
            let expected = indexed.rows.total().stored;
            if !good(indexed) {
                let packets = show_count(expected);
                let text = format!("block {number}, with {packets} packets, does not match its checksum (CRC32C)");
                self.find_with(path, FindingKind::Checksum, at, text, advice);
                continue;
            }
            let none = BlockCounts::default();
            let found = content.blocks.get(number).unwrap_or(&none);
            if expected != found.packets {
                let text = format!("block {number} has {} packets, its index entry {expected} packets", found.packets);
                self.find(path, FindingKind::Index, at, text);
            } else if indexed.first_record != found.first_record {
                let text = format!("the first record of block {number} is not at the offset in the index");
                self.find(path, FindingKind::Index, at, text);
            } else if !(indexed.parts.is_unknown() || parts(indexed) && indexed.parts.begin_as(&found.parts)) {
                let text =
                    format!("the offsets or checksums of the sub-blocks of block {number} differ from the index");
                self.find(path, FindingKind::Index, at, text);
            } else if found.stamps.is_some_and(|stamps| stamps != (indexed.first, indexed.last)) {
                let text = format!("the timestamps of block {number} differ from the index");
                self.find(path, FindingKind::Index, at, text);
            }
        }
    }

    /// Compares the packets of each second with the ledger. `cut` is true if the file ends within a record of unknown
    /// timestamp.
    fn seconds(&mut self, path: &Path, mut found: BTreeMap<u64, u64>, verified: &VerifiedIndex, cut: bool) {
        let mut expected: BTreeMap<u64, u64> = BTreeMap::new();
        for run in verified.blocks.iter().flat_map(|p| p.rows.runs()).filter(|r| r.tally.stored > 0) {
            *expected.entry(run.second).or_default() += run.tally.stored;
        }
        let count = |map: &BTreeMap<u64, u64>, second| map.get(&second).copied().unwrap_or(0);
        if cut && let Some(second) = expected.keys().copied().find(|s| count(&expected, *s) > count(&found, *s)) {
            *found.entry(second).or_default() += 1;
        }
        let all = expected.keys().chain(found.keys()).copied();
        if let Some(second) = all.filter(|s| count(&expected, *s) != count(&found, *s)).min() {
            let text = format!(
                "in second {second} the ledger has {} packets, the file {}; this is the first difference",
                count(&expected, second),
                count(&found, second)
            );
            self.find(path, FindingKind::Ledger, None, text);
        }
    }

    fn keys(&mut self, path: &Path, index: &Path, content: &Content) -> io::Result<()> {
        let file = self.device.open(index)?;
        let excluded_sample = {
            let source = DeviceFile::new(&mut self.device, file);
            excluded_sample(&source, content)
        };
        self.device.close(file);
        if let Some((block, need)) = excluded_sample? {
            let text = format!("the key sets of block {block} exclude {need:?}, although the block contains it");
            self.find(path, FindingKind::Keys, Some(block as u64 * BLOCK), text);
        }
        Ok(())
    }
}

/// The first sample that the key sets exclude.
fn excluded_sample<D: Device>(
    source: &DeviceFile<'_, D>,
    content: &Content,
) -> io::Result<Option<(usize, KeyCondition)>> {
    let mut reader = Reader::open(source)?;
    for ((block, part), needs) in content.samples.items() {
        for need in needs {
            let spots = reader.sub_block_mask(source, need)?;
            let at = reader.blocks().iter().position(|b| b.number as usize == *block);
            let Some(at) = at else { continue };
            let known = reader.sub_blocks(source, at..at + 1)?.first().is_some_and(|parts| !parts.is_unknown());
            let is_denied = |spots: &SubBlockMask| if known { !spots.has(*part) } else { !spots.is_somewhere() };
            if spots.get(at).is_some_and(is_denied) {
                return Ok(Some((*block, need.clone())));
            }
        }
    }
    Ok(None)
}

/// The format of a packet file of the store, by its hidden or published name.
fn layout(path: &Path) -> Option<Layout> {
    let name = path.file_name()?.to_str()?;
    let name = name.strip_suffix(store::names::PARTIAL).and_then(|n| n.strip_suffix('.')).unwrap_or(name);
    Layout::of(name.rsplit_once('.')?.1)
}

/// Scans the undamaged blocks. Returns their packets, and the first offset at which no valid record begins although one
/// must begin there. If the last record of an undamaged block continues in a damaged block, it is counted as a record
/// that begins in its block, but not as a packet.
fn scan_undamaged<D: Device>(
    window: &mut Window<'_, D>,
    layout: Layout,
    verified: &VerifiedIndex,
    good: impl Fn(&IndexedBlock) -> bool,
    open: bool,
) -> io::Result<(Content, Option<u64>)> {
    let (mut content, mut broken, mut latest) = (Content::default(), None, Timestamp::ZERO);
    let indexed_blocks: Vec<&IndexedBlock> = verified.blocks.iter().filter(|p| p.bytes > 0).collect();
    let stretches = indexed_blocks.chunk_by(|a, b| good(a) && good(b) && b.number == a.number + 1);
    for stretch in stretches.filter(|stretch| good(stretch[0])) {
        let end = stretch.last().map_or(0, |p| p.end());
        let runs_on = open || indexed_blocks.last().is_some_and(|last| last.end() > end);
        let first = stretch.iter().find_map(|p| p.first_record.map(|first| p.start() + u64::from(first)));
        let mut at = first.unwrap_or(end);
        while at < end {
            let record = layout.record(at, window.get(at, layout.record_header())?, Timestamp::ZERO);
            let whole = at + layout.record_header() as u64 <= end && record.is_none_or(|record| record.end <= end);
            let record = match record {
                Some(record) if whole => record,
                _ if !whole && runs_on => {
                    content.begins(at);
                    break;
                }
                _ => {
                    broken.get_or_insert(at);
                    break;
                }
            };
            if !record.padding {
                let bytes = window.get(at, (record.end - at) as usize)?;
                let packet = pcap::Packet {
                    ts: Some(record.ts),
                    wire_len: record.wire_len,
                    wire_raised: false,
                    data: bytes.get(layout.record_header()..).unwrap_or_default(),
                    interface: 0,
                    link_type: verified.header.link_type as u16,
                    direction: Direction::default(),
                    drops: 0,
                    fcs: 0,
                    offset: at,
                };
                content.take(&packet, &mut latest);
            }
            at = record.end;
        }
    }
    Ok((content, broken))
}

/// Reads all packets, and then the rest of the file. Returns the error at which the reading of packets ended, if there
/// was one, and the checksums of the blocks.
fn read<D: Device>(stream: Stream<'_, D>, path: &Path, content: &mut Content) -> io::Result<(Option<Error>, Vec<Sum>)> {
    let raw = path.file_name().is_some_and(|n| n.to_string_lossy().trim_end_matches(".partial").ends_with(".raw"));
    // The reader gets only a reference to the stream, because it drops its source if it cannot read the file header.
    let mut stream = stream;
    let stopped = {
        let opened = match raw {
            true => pcap::Reader::open_as(&mut stream, pcap::Format::Raw),
            false => pcap::Reader::open(&mut stream),
        };
        match opened {
            Ok(mut reader) => {
                let mut latest = Timestamp::ZERO;
                loop {
                    match reader.next() {
                        Ok(Some(packet)) => content.take(&packet, &mut latest),
                        Ok(None) => break None,
                        Err(Error::Io { error, .. }) => return Err(error),
                        Err(error) => break Some(error),
                    }
                }
            }
            // A file that a recorder has just created is empty; this is no error.
            Err(Error::NotACapture { have: 0, .. }) => None,
            Err(Error::Io { error, .. }) => return Err(error),
            Err(error) => Some(error),
        }
    };
    stream.drain()?;
    Ok((stopped, stream.sums))
}
