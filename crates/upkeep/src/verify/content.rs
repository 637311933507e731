//! The packets of one file against what its index says: one pass over the bytes, at the speed at which they can be read.

use super::{Kind, Verify};
use crate::mend::{BLOCK, DeviceFile, Vouched};
use crate::verify::Finding;
use base::Timestamp;
use index::Reader;
use pcap::Error;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::Path;
use store::device::{Device, FileId};
use wire::filter::Need;
use wire::{FlowKey, Headers};

/// Packets of each file for which the key sets are asked.
const SAMPLES: usize = 64;

/// Bytes fetched at once.
const AHEAD: usize = 1 << 20;

/// What was found in one block.
#[derive(Clone, Debug, Default)]
struct Found {
    packets: u64,
    first_record: Option<u32>,
    stamps: Option<(Timestamp, Timestamp)>,
}

/// A file that is read once: whoever reads it gets its bytes, and the checksums of its blocks remain.
struct Stream<'d, D> {
    device: &'d mut D,
    file: FileId,
    at: u64,
    limit: u64,
    buffer: Vec<u8>,
    used: usize,
    /// Of each block, or of as much of it as there is.
    crcs: Vec<u32>,
}

impl<D: Device> Stream<'_, D> {
    fn fill(&mut self) -> io::Result<bool> {
        // Blocks begin at a multiple of what is fetched, so each fetch is of one block.
        let want = (self.limit - self.at).min(AHEAD as u64) as usize;
        self.buffer.resize(want, 0);
        let got = self.device.read(self.file, self.at, &mut self.buffer)?;
        self.buffer.truncate(got);
        (self.at, self.used) = (self.at + got as u64, 0);
        if got > 0 {
            self.crcs.push(crc32c::crc32c(&self.buffer));
        }
        Ok(got > 0)
    }

    /// To the end, for the checksums.
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

/// What the packets of a file are, whatever its index says.
#[derive(Default)]
struct Content {
    blocks: Vec<Found>,
    seconds: BTreeMap<u64, u64>,
    packets: u64,
    /// Stamps that fall, and where the first of them is.
    falls: u64,
    first_fall: Option<u64>,
    samples: Vec<(usize, Vec<Need>)>,
}

impl Content {
    fn take(&mut self, packet: &pcap::Packet<'_>, latest: &mut Timestamp) {
        let number = (packet.offset / BLOCK) as usize;
        if self.blocks.len() <= number {
            self.blocks.resize(number + 1, Found::default());
        }
        let block = &mut self.blocks[number];
        block.packets += 1;
        self.packets += 1;
        if block.first_record.is_none() {
            block.first_record = Some((packet.offset % BLOCK) as u32);
            self.sample(number, packet);
        }
        let Some(ts) = packet.ts else { return };
        let block = &mut self.blocks[number];
        block.stamps = Some(block.stamps.map_or((ts, ts), |(a, b)| (a.min(ts), b.max(ts))));
        *self.seconds.entry(ts.secs()).or_default() += 1;
        if ts < *latest {
            self.falls += 1;
            self.first_fall.get_or_insert(packet.offset);
        }
        *latest = ts.max(*latest);
    }

    /// A record that begins there, and of which nothing more is known.
    fn begins(&mut self, at: u64) {
        let number = (at / BLOCK) as usize;
        if self.blocks.len() <= number {
            self.blocks.resize(number + 1, Found::default());
        }
        let block = &mut self.blocks[number];
        block.packets += 1;
        block.first_record.get_or_insert((at % BLOCK) as u32);
        block.stamps = None;
    }

    /// Remembers what must be admitted because of this packet; of many blocks, every so many.
    fn sample(&mut self, block: usize, packet: &pcap::Packet<'_>) {
        if self.samples.len() == SAMPLES {
            let mut keep = [true, false].into_iter().cycle();
            self.samples.retain(|_| keep.next().unwrap_or(true));
        }
        let headers = Headers::of(packet.data, packet.wire_len, packet.link_type);
        let Some(key) = FlowKey::of(packet.data, &headers) else { return };
        let mut needs: Vec<Need> = [key.src, key.dst].map(|host: IpAddr| Need::Host(host)).into();
        needs.push(Need::Protocol(key.protocol.0));
        self.samples.push((block, needs));
    }
}

impl<D: Device, F: FnMut(&Finding, &super::Totals)> Verify<D, F> {
    pub(super) fn content(
        &mut self,
        path: &Path,
        file: FileId,
        limit: u64,
        index: Option<&Path>,
        vouched: Option<&Vouched>,
        open: bool,
    ) -> io::Result<()> {
        let mut content = Content::default();
        let stream =
            Stream { device: &mut self.device, file, at: 0, limit, buffer: Vec::new(), used: 0, crcs: Vec::new() };
        let (stopped, crcs) = read(stream, path, &mut content)?;
        self.totals.packets += content.packets;
        // What is vouched for of an open file may end within a record, which is counted where it begins.
        let cut = stopped.as_ref().filter(|e| open && matches!(e, Error::Truncated { .. })).map(Error::offset);
        match stopped {
            Some(_) if cut.is_some() => {}
            Some(Error::NotACapture { .. }) if vouched.is_none() => {
                self.find(path, Kind::Foreign, None, "not a capture");
            }
            Some(error) => self.find(path, Kind::Chain, Some(error.offset()), error.reason()),
            None => {}
        }
        if let Some(at) = content.first_fall {
            let text = format!("{} stamps are earlier than one before them", content.falls);
            self.find(path, Kind::Order, Some(at), text);
        }
        let Some(vouched) = vouched else { return Ok(()) };
        if let Some(at) = cut {
            content.begins(at);
        }
        self.blocks(path, &content, &crcs, vouched);
        self.seconds(path, content.seconds.clone(), vouched, cut.is_some());
        match index {
            Some(index) => self.keys(path, index, &content),
            None => Ok(()),
        }
    }

    fn blocks(&mut self, path: &Path, content: &Content, crcs: &[u32], vouched: &Vouched) {
        for promise in vouched.promises.iter().filter(|p| p.bytes > 0) {
            let number = promise.number as usize;
            let at = Some(promise.start());
            if crcs.get(number) != Some(&promise.crc) {
                let text = format!("block {number} is not as it was written (CRC32C)");
                self.find(path, Kind::Checksum, at, text);
                continue;
            }
            let none = Found::default();
            let found = content.blocks.get(number).unwrap_or(&none);
            let promised = promise.rows.total().stored;
            if promised != found.packets {
                let text = format!("block {number} holds {} packets, its index says {promised}", found.packets);
                self.find(path, Kind::Index, at, text);
            } else if promise.first_record != found.first_record {
                let text = format!("the first record of block {number} is not where its index says");
                self.find(path, Kind::Index, at, text);
            } else if found.stamps.is_some_and(|stamps| stamps != (promise.first, promise.last)) {
                let text = format!("the stamps of block {number} are not those of its index");
                self.find(path, Kind::Index, at, text);
            }
        }
    }

    /// `cut`: the file ends within a record, whose stamp is not known.
    fn seconds(&mut self, path: &Path, mut found: BTreeMap<u64, u64>, vouched: &Vouched, cut: bool) {
        let mut promised: BTreeMap<u64, u64> = BTreeMap::new();
        for run in vouched.promises.iter().flat_map(|p| p.rows.runs()).filter(|r| r.tally.stored > 0) {
            *promised.entry(run.second).or_default() += run.tally.stored;
        }
        let count = |map: &BTreeMap<u64, u64>, second| map.get(&second).copied().unwrap_or(0);
        if cut && let Some(second) = promised.keys().copied().find(|s| count(&promised, *s) > count(&found, *s)) {
            *found.entry(second).or_default() += 1;
        }
        let all = promised.keys().chain(found.keys()).copied();
        if let Some(second) = all.filter(|s| count(&promised, *s) != count(&found, *s)).min() {
            let text = format!(
                "in second {second} the ledger has {} packets, the file {}; this is the first that differs",
                count(&promised, second),
                count(&found, second)
            );
            self.find(path, Kind::Ledger, None, text);
        }
    }

    fn keys(&mut self, path: &Path, index: &Path, content: &Content) -> io::Result<()> {
        let file = self.device.open(index)?;
        let denied = {
            let source = DeviceFile::new(&mut self.device, file);
            denied(&source, content)
        };
        self.device.close(file);
        if let Some((block, need)) = denied? {
            let text = format!("the key sets of block {block} deny {need:?}, which is in it");
            self.find(path, Kind::Keys, Some(block as u64 * BLOCK), text);
        }
        Ok(())
    }
}

/// The first sample that the index denies.
fn denied<D: Device>(source: &DeviceFile<'_, D>, content: &Content) -> io::Result<Option<(usize, Need)>> {
    let mut reader = Reader::open(source)?;
    for (block, needs) in &content.samples {
        for need in needs {
            let candidates = reader.candidates(source, need)?;
            let at = reader.blocks().iter().position(|b| b.number as usize == *block);
            if at.is_some_and(|at| candidates.get(at) == Some(&false)) {
                return Ok(Some((*block, need.clone())));
            }
        }
    }
    Ok(None)
}

/// Reads to the end of the packets, and then of the file. Returns why the packets ended, if not with the file.
fn read<D: Device>(stream: Stream<'_, D>, path: &Path, content: &mut Content) -> io::Result<(Option<Error>, Vec<u32>)> {
    let raw = path.file_name().is_some_and(|n| n.to_string_lossy().trim_end_matches(".partial").ends_with(".raw"));
    // The reader takes the stream with it when it cannot open it, so that is done with what it lends.
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
            // Nothing at all is what a recorder has at its beginning.
            Err(Error::NotACapture { have: 0, .. }) => None,
            Err(Error::Io { error, .. }) => return Err(error),
            Err(error) => Some(error),
        }
    };
    stream.drain()?;
    Ok((stopped, stream.crcs))
}
