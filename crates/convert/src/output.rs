//! Writes one stream of packets into one or several files, in any of the formats.
//!
//! Information that the format cannot hold is omitted and counted in [`FormatLosses`]. If the format has interfaces
//! (pcapng), each interface of each input is an interface of the output, and is described in every file that uses it. A
//! packet can record how many packets the capturing program lost before it. That number is added to the next written
//! packet of the same interface, even if packets are skipped or another file begins, so that the sum is preserved.

use crate::interface_tap::InterfaceDescription;
use crate::{Error, Files, Format, FormatLosses, Plan, Split};
use base::Timestamp;
use pcap::{Direction, classic, ng, raw};
use std::cell::Cell;
use std::collections::HashMap;
use std::io::{self, BufWriter, Read, Write};
use std::rc::Rc;

/// Size of the write buffer of an output file, in bytes.
const BUFFER: usize = 256 << 10;

/// Greatest size of a pcapng packet block without the packet's bytes: fields (32), padding (3), direction (8), losses
/// (12), and end of options (4).
const NG_PACKET: usize = 32 + 3 + 8 + 12 + 4;

/// Greatest size of a pcapng interface description without its texts: fields (20), resolution (8), six texts with
/// padding and the filter's type code (8 each), and end of options (4).
const NG_INTERFACE: usize = 20 + 8 + 6 * 8 + 4;

/// The interface of a packet: index of the input, number of the interface in its section, link type, and the address of
/// the interface description in memory.
type InterfaceKey = (usize, u32, u16, *const InterfaceDescription);

/// The application name in the section header of pcapng.
const APPLICATION: &str = concat!("netgrain ", env!("CARGO_PKG_VERSION"));

/// The metadata of a packet.
#[derive(Clone, Debug)]
pub struct PacketMeta {
    pub input: usize,
    pub interface: u32,
    pub link_type: u16,
    pub described: Option<Rc<InterfaceDescription>>,
    pub direction: Direction,
    pub drops: u64,
    pub wire_len: u32,
    /// Offset of the packet's record in its input.
    pub offset: u64,
}

/// An interface of the output, and the lost packets of the interface that are not written yet.
#[derive(Debug)]
struct Interface {
    input: usize,
    number: u32,
    link_type: u16,
    described: Option<Rc<InterfaceDescription>>,
    drops: u64,
}

pub struct Output<'f, F: Files> {
    files: &'f mut F,
    format: Format,
    split: Split,
    snaplen: u32,
    open: Option<Open<F::Sink>>,
    link_type: Option<u16>,
    /// Index in `interfaces` of each interface seen so far. The descriptions are kept alive so that their addresses in
    /// memory stay unique.
    numbers: HashMap<InterfaceKey, (usize, Option<Rc<InterfaceDescription>>)>,
    interfaces: Vec<Interface>,
    last: Timestamp,
    pub written: u64,
    pub late: u64,
    pub begun: u64,
    pub bytes: u64,
    pub losses: FormatLosses,
}

/// The current file.
struct Open<S: Write> {
    layout: Layout<S>,
    bytes: Rc<Cell<u64>>,
    /// If files are split by time, the time boundary at which the file begins.
    slot: Timestamp,
    packets: u64,
}

enum Layout<S: Write> {
    Pcap(classic::Writer<CountingWriter<S>>),
    /// A pcapng file. The list has one element for each interface of the output: the number of the interface in this
    /// file, or `None` if the file does not describe the interface yet.
    Ng(Box<ng::Writer<CountingWriter<S>>>, Vec<Option<u32>>),
    Raw(CountingWriter<S>),
}

/// A buffered writer that counts the bytes written to an output file.
struct CountingWriter<S: Write> {
    sink: BufWriter<S>,
    bytes: Rc<Cell<u64>>,
}

impl<'f, F: Files> Output<'f, F> {
    /// # Errors
    /// The plan requires something that the output format does not support.
    pub fn new(files: &'f mut F, plan: &Plan) -> Result<Self, Error> {
        let Plan { format, split, snaplen, .. } = *plan;
        if let (Format::Raw, Some(bytes)) = (format, split.bytes)
            && bytes < raw::MIN_FILE
        {
            return Err(Error::SplitTooSmall { bytes, least: raw::MIN_FILE });
        }
        Ok(Self {
            files,
            format,
            split,
            snaplen,
            open: None,
            link_type: None,
            numbers: HashMap::new(),
            interfaces: Vec::new(),
            last: Timestamp::ZERO,
            written: 0,
            late: 0,
            begun: 0,
            bytes: 0,
            losses: FormatLosses::default(),
        })
    }

    /// Skips a packet. The losses that the packet records are added to the next written packet of its interface.
    pub fn skip(&mut self, meta: &PacketMeta) {
        if meta.drops > 0 {
            let number = self.interface(meta);
            self.interfaces[number].drops += meta.drops;
        }
    }

    /// Writes a packet. `input` is the name of the input file that contains the packet, for error messages.
    pub fn write(&mut self, ts: Timestamp, data: &[u8], meta: &PacketMeta, input: &str) -> Result<(), Error> {
        self.check_link_type(meta, input)?;
        let number = self.interface(meta);
        let data = self.fit(ts, data, meta);
        self.begin_file_for(ts, data.len(), number)?;
        let drops = std::mem::take(&mut self.interfaces[number].drops) + meta.drops;
        let Some(open) = &mut self.open else { return Ok(()) };
        match &mut open.layout {
            Layout::Pcap(writer) => writer.write(ts, meta.wire_len, data)?,
            Layout::Ng(writer, described) => {
                described.resize(self.interfaces.len(), None);
                let interface = match described[number] {
                    Some(interface) => interface,
                    None => *described[number].insert(describe(writer, &self.interfaces[number], self.snaplen)?),
                };
                let options = ng::PacketOptions {
                    direction: meta.direction,
                    drops: (drops > 0).then_some(drops),
                    ..ng::PacketOptions::default()
                };
                writer.packet(interface, ts, meta.wire_len, data, options)?;
            }
            Layout::Raw(sink) => {
                sink.write_all(&raw::record_header(ts, data.len() as u16, meta.wire_len))?;
                sink.write_all(data)?;
            }
        }
        if !matches!(self.format, Format::PcapNg) {
            self.losses.drops += drops;
            self.losses.without_direction += u64::from(meta.direction != Direction::Unknown);
        }
        open.packets += 1;
        self.written += 1;
        self.late += u64::from(ts < self.last);
        self.last = self.last.max(ts);
        Ok(())
    }

    /// Ends the last file. If no packet was written and the output is not split, writes a file of `link_type` without
    /// packets, provided that [`Files::takes_empty`] is true.
    pub fn finish(&mut self, link_type: u16) -> Result<(), Error> {
        if self.begun == 0 && self.split.is_none() && self.files.takes_empty() {
            self.link_type = Some(link_type);
            self.begin(Timestamp::ZERO, Timestamp::ZERO)?;
        }
        self.end(false)?;
        // Losses that were recorded after the last written packet of an interface cannot be written.
        self.losses.drops += self.interfaces.iter_mut().map(|i| std::mem::take(&mut i.drops)).sum::<u64>();
        if !matches!(self.format, Format::PcapNg) && self.interfaces.len() > 1 {
            self.losses.interfaces = self.interfaces.len() as u64;
        }
        Ok(())
    }

    /// The number of an interface, the same in all output files. If two sections of an input have identical
    /// descriptions for the interface with the same number, both descriptions are treated as one interface.
    fn interface(&mut self, meta: &PacketMeta) -> usize {
        let PacketMeta { input, interface: number, link_type, ref described, .. } = *meta;
        let key = (input, number, link_type, described.as_ref().map_or(std::ptr::null(), Rc::as_ptr));
        if let Some((number, _)) = self.numbers.get(&key) {
            return *number;
        }
        let same =
            |i: &Interface| (i.input, i.number, i.link_type) == (input, number, link_type) && i.described == *described;
        let found = self.interfaces.iter().position(same).unwrap_or_else(|| {
            self.interfaces.push(Interface { input, number, link_type, described: described.clone(), drops: 0 });
            self.interfaces.len() - 1
        });
        self.numbers.insert(key, (found, described.clone()));
        found
    }

    fn check_link_type(&mut self, meta: &PacketMeta, input: &str) -> Result<(), Error> {
        let (format, other) = (self.format, meta.link_type);
        if format == Format::Raw && other != pcap::ETHERNET {
            return Err(Error::NotEthernet { link_type: other, input: input.to_owned() });
        }
        let first = *self.link_type.get_or_insert(other);
        if format != Format::PcapNg && first != other {
            return Err(Error::LinkTypes { format, first, other, input: input.to_owned(), offset: meta.offset });
        }
        Ok(())
    }

    /// Counts the information about a packet that the format cannot hold, and truncates the packet at the format's
    /// limit.
    fn fit<'a>(&mut self, ts: Timestamp, data: &'a [u8], meta: &PacketMeta) -> &'a [u8] {
        let losses = &mut self.losses;
        match self.format {
            Format::PcapNg => {}
            Format::Pcap => losses.clamped += u64::from(ts.secs() > u64::from(u32::MAX)),
            Format::PcapMicros => {
                losses.clamped += u64::from(ts.secs() > u64::from(u32::MAX));
                losses.without_nanos += u64::from(!ts.subsec_nanos().is_multiple_of(1000));
            }
            Format::Raw => {
                losses.clamped += u64::from(ts.secs() > u64::from(u32::MAX) || ts == Timestamp::ZERO);
                losses.over_long += u64::from(data.len() > usize::from(raw::MAX_CAPLEN));
                losses.wire_len += u64::from(meta.wire_len > u32::from(u16::MAX));
                return &data[..data.len().min(usize::from(raw::MAX_CAPLEN))];
            }
        }
        data
    }

    /// Begins the file that a packet belongs to, unless that file is open.
    fn begin_file_for(&mut self, ts: Timestamp, caplen: usize, number: usize) -> Result<(), Error> {
        let slot = self.split.every.map(|span| ts.floor_to(span));
        let Some(open) = &self.open else { return self.begin(slot.unwrap_or(ts), slot.unwrap_or_default()) };
        let interface = &self.interfaces[number];
        // A packet out of order, whose timestamp belongs to an earlier file, is written to the current file. It does
        // not create another file.
        let past = slot.is_some_and(|slot| slot > open.slot);
        let many = self.split.packets.is_some_and(|n| open.packets >= n);
        let full = open.packets > 0 && self.split.bytes.is_some_and(|limit| !open.has_space(caplen, interface, limit));
        if past || many || full {
            self.end(full && !past && !many)?;
            self.begin(slot.unwrap_or(ts), slot.unwrap_or_default())?;
        }
        Ok(())
    }

    fn begin(&mut self, first: Timestamp, slot: Timestamp) -> Result<(), Error> {
        let sink = self.files.begin(self.begun + 1, first)?;
        self.begun += 1;
        let sink = CountingWriter { sink: BufWriter::with_capacity(BUFFER, sink), bytes: Rc::default() };
        let bytes = Rc::clone(&sink.bytes);
        let link_type = self.link_type.unwrap_or(pcap::ETHERNET);
        let layout = match self.format {
            Format::Pcap => Layout::Pcap(classic::Writer::new(sink, classic::Resolution::Nanos, link_type)?),
            Format::PcapMicros => Layout::Pcap(classic::Writer::new(sink, classic::Resolution::Micros, link_type)?),
            Format::PcapNg => Layout::Ng(Box::new(ng::Writer::new(sink, APPLICATION, "")?), Vec::new()),
            Format::Raw => Layout::Raw(sink),
        };
        self.open = Some(Open { layout, bytes, slot, packets: 0 });
        Ok(())
    }

    /// Ends the current file. A RAW file that is `full` is padded to its size.
    fn end(&mut self, full: bool) -> Result<(), Error> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let sink = match open.layout {
            Layout::Pcap(writer) => writer.finish()?,
            Layout::Ng(writer, _) => writer.finish()?,
            Layout::Raw(mut sink) => {
                if let (true, Some(limit)) = (full, self.split.bytes) {
                    for len in raw::paddings(limit - open.bytes.get()) {
                        sink.write_all(&raw::padding_header(len))?;
                        io::copy(&mut io::repeat(0).take(u64::from(len)), &mut sink)?;
                    }
                }
                sink
            }
        };
        self.bytes += open.bytes.get();
        let sink = sink.sink.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(self.files.end(sink)?)
    }
}

impl Interface {
    /// Greatest size of the pcapng block that describes the interface.
    fn max_size(&self) -> usize {
        let texts = self.described.as_deref().map_or(0, |d| {
            [&d.name, &d.description, &d.filter, &d.hardware, &d.os, &d.comment].iter().map(|text| text.len()).sum()
        });
        NG_INTERFACE + texts
    }
}

/// Writes the description of an interface, as in the input except for the snaplen.
fn describe<W: Write>(writer: &mut ng::Writer<W>, interface: &Interface, snaplen: u32) -> io::Result<u32> {
    let unknown = InterfaceDescription::default();
    let description = interface.described.as_deref().unwrap_or(&unknown);
    let least = [snaplen, description.snaplen].into_iter().filter(|snaplen| *snaplen > 0).min();
    writer.describe(&ng::InterfaceOptions {
        name: &description.name,
        description: &description.description,
        filter: &description.filter,
        hardware: &description.hardware,
        os: &description.os,
        comment: &description.comment,
        link_type: interface.link_type,
        snaplen: least.unwrap_or(pcap::MAX_PACKET),
    })
}

impl<S: Write> Open<S> {
    /// True if the file stays within `limit` bytes after a packet of this length.
    fn has_space(&self, caplen: usize, interface: &Interface, limit: u64) -> bool {
        let left = limit.saturating_sub(self.bytes.get());
        match &self.layout {
            Layout::Pcap(_) => (classic::RECORD_HEADER + caplen) as u64 <= left,
            Layout::Ng(..) => (NG_PACKET + caplen + interface.max_size()) as u64 <= left,
            Layout::Raw(_) => raw::fits(left, caplen as u16),
        }
    }
}

impl<S: Write> Write for CountingWriter<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = self.sink.write(bytes)?;
        self.bytes.set(self.bytes.get() + len as u64);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}
