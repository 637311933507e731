//! One stream of packets into one file or several, in any of the formats.
//!
//! What a format cannot hold is counted in [`FormatLosses`] at the moment it is left out. Interfaces keep apart what came apart:
//! each interface of each input is one of the output where the format has them (pcapng), described in every file that
//! uses it. Losses that the capturing program told of are handed on to the next packet of their interface, across packets
//! that were filtered out and across files, so that their sum stays.

use crate::interface_tap::InterfaceDescription;
use crate::{Error, Files, Format, FormatLosses, Plan, Split};
use base::Timestamp;
use pcap::{Direction, classic, ng, raw};
use std::cell::Cell;
use std::collections::HashMap;
use std::io::{self, BufWriter, Read, Write};
use std::rc::Rc;

/// Bytes that a sink is given at a time, at most.
const BUFFER: usize = 256 << 10;

/// What a packet costs in pcapng beside its bytes, at most: the fields (32), padding (3), direction (8), losses (12), and
/// the end of the options (4).
const NG_PACKET: usize = 32 + 3 + 8 + 12 + 4;

/// What the description of an interface costs beside its texts, at most: the fields (20), the resolution (8), six texts
/// with padding and the language of the filter (8 each), and the end of the options (4).
const NG_INTERFACE: usize = 20 + 8 + 6 * 8 + 4;

/// An interface as a packet names it: input, number, link type, and where the description of it lies.
type InterfaceKey = (usize, u32, u16, *const InterfaceDescription);

/// What is written into the section header of pcapng.
const APPLICATION: &str = concat!("netgrain ", env!("CARGO_PKG_VERSION"));

/// A packet without its bytes.
#[derive(Clone, Debug)]
pub struct PacketMeta {
    pub input: usize,
    pub interface: u32,
    pub link_type: u16,
    pub described: Option<Rc<InterfaceDescription>>,
    pub direction: Direction,
    pub drops: u64,
    pub wire_len: u32,
    /// Where its record begins in its input.
    pub offset: u64,
}

/// An interface of the output, and what is not yet told of it.
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
    /// Of what was seen, by address; the descriptions are held so that no address is used twice.
    numbers: HashMap<InterfaceKey, (usize, Option<Rc<InterfaceDescription>>)>,
    interfaces: Vec<Interface>,
    last: Timestamp,
    pub written: u64,
    pub late: u64,
    pub begun: u64,
    pub bytes: u64,
    pub kept: FormatLosses,
}

/// The file that is being written.
struct Open<S: Write> {
    layout: Layout<S>,
    bytes: Rc<Cell<u64>>,
    /// The time boundary that it begins with.
    slot: Timestamp,
    packets: u64,
}

enum Layout<S: Write> {
    Pcap(classic::Writer<CountingWriter<S>>),
    /// With the number of each interface in this file, once it is described.
    Ng(Box<ng::Writer<CountingWriter<S>>>, Vec<Option<u32>>),
    Raw(CountingWriter<S>),
}

/// Counts what goes into a sink.
struct CountingWriter<S: Write> {
    sink: BufWriter<S>,
    bytes: Rc<Cell<u64>>,
}

impl<'f, F: Files> Output<'f, F> {
    /// # Errors
    /// When the format cannot do what is asked.
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
            kept: FormatLosses::default(),
        })
    }

    /// A packet that is not written, but of whose interface something is told.
    pub fn leave_out(&mut self, about: &PacketMeta) {
        if about.drops > 0 {
            let number = self.interface(about);
            self.interfaces[number].drops += about.drops;
        }
    }

    /// Writes a packet. `input` is the name of its input, for messages.
    pub fn write(&mut self, ts: Timestamp, data: &[u8], about: &PacketMeta, input: &str) -> Result<(), Error> {
        self.check_link_type(about, input)?;
        let number = self.interface(about);
        let data = self.fit(ts, data, about);
        self.make_room(ts, data.len(), number)?;
        let drops = std::mem::take(&mut self.interfaces[number].drops) + about.drops;
        let Some(open) = &mut self.open else { return Ok(()) };
        match &mut open.layout {
            Layout::Pcap(writer) => writer.write(ts, about.wire_len, data)?,
            Layout::Ng(writer, described) => {
                described.resize(self.interfaces.len(), None);
                let interface = match described[number] {
                    Some(interface) => interface,
                    None => *described[number].insert(describe(writer, &self.interfaces[number], self.snaplen)?),
                };
                let options = ng::PacketOptions {
                    direction: about.direction,
                    drops: (drops > 0).then_some(drops),
                    ..ng::PacketOptions::default()
                };
                writer.packet(interface, ts, about.wire_len, data, options)?;
            }
            Layout::Raw(sink) => {
                sink.write_all(&raw::record_header(ts, data.len() as u16, about.wire_len))?;
                sink.write_all(data)?;
            }
        }
        if !matches!(self.format, Format::PcapNg) {
            self.kept.drops += drops;
            self.kept.without_direction += u64::from(about.direction != Direction::Unknown);
        }
        open.packets += 1;
        self.written += 1;
        self.late += u64::from(ts < self.last);
        self.last = self.last.max(ts);
        Ok(())
    }

    /// Ends the last file. Without any packet, and without splitting, there is one that holds nothing, of `link_type`, if
    /// the files take such a one.
    pub fn finish(&mut self, link_type: u16) -> Result<(), Error> {
        if self.begun == 0 && self.split.is_none() && self.files.takes_empty() {
            self.link_type = Some(link_type);
            self.begin(Timestamp::ZERO, Timestamp::ZERO)?;
        }
        self.end(false)?;
        // Losses behind the last packet have no packet to be told with.
        self.kept.drops += self.interfaces.iter_mut().map(|i| std::mem::take(&mut i.drops)).sum::<u64>();
        if !matches!(self.format, Format::PcapNg) && self.interfaces.len() > 1 {
            self.kept.interfaces = self.interfaces.len() as u64;
        }
        Ok(())
    }

    /// The number of an interface, the same in all files. One that a later section of an input describes in the same
    /// words is the same.
    fn interface(&mut self, about: &PacketMeta) -> usize {
        let PacketMeta { input, interface: number, link_type, ref described, .. } = *about;
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

    fn check_link_type(&mut self, about: &PacketMeta, input: &str) -> Result<(), Error> {
        let (format, other) = (self.format, about.link_type);
        if format == Format::Raw && other != pcap::ETHERNET {
            return Err(Error::NotEthernet { link_type: other, input: input.to_owned() });
        }
        let first = *self.link_type.get_or_insert(other);
        if format != Format::PcapNg && first != other {
            return Err(Error::LinkTypes { format, first, other, input: input.to_owned(), offset: about.offset });
        }
        Ok(())
    }

    /// Counts what the format cannot hold of a packet, and cuts the packet at its limit.
    fn fit<'a>(&mut self, ts: Timestamp, data: &'a [u8], about: &PacketMeta) -> &'a [u8] {
        let kept = &mut self.kept;
        match self.format {
            Format::PcapNg => {}
            Format::Pcap => kept.clamped += u64::from(ts.secs() > u64::from(u32::MAX)),
            Format::PcapMicros => {
                kept.clamped += u64::from(ts.secs() > u64::from(u32::MAX));
                kept.without_nanos += u64::from(!ts.subsec_nanos().is_multiple_of(1000));
            }
            Format::Raw => {
                kept.clamped += u64::from(ts.secs() > u64::from(u32::MAX) || ts == Timestamp::ZERO);
                kept.over_long += u64::from(data.len() > usize::from(raw::MAX_CAPLEN));
                kept.wire_len += u64::from(about.wire_len > u32::from(u16::MAX));
                return &data[..data.len().min(usize::from(raw::MAX_CAPLEN))];
            }
        }
        data
    }

    /// Begins the file that a packet belongs into, if it is not open.
    fn make_room(&mut self, ts: Timestamp, caplen: usize, number: usize) -> Result<(), Error> {
        let slot = self.split.every.map(|span| ts.floor_to(span));
        let Some(open) = &self.open else { return self.begin(slot.unwrap_or(ts), slot.unwrap_or_default()) };
        let interface = &self.interfaces[number];
        // A packet that comes too late for its file stays in this one, so that disorder makes no files.
        let past = slot.is_some_and(|slot| slot > open.slot);
        let many = self.split.packets.is_some_and(|n| open.packets >= n);
        let full = open.packets > 0 && self.split.bytes.is_some_and(|limit| !open.takes(caplen, interface, limit));
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

    /// Ends the file that is open. One of RAW that is `full` is padded to its size.
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
    /// Most bytes that describing it takes.
    fn cost(&self) -> usize {
        let texts = self.described.as_deref().map_or(0, |d| {
            [&d.name, &d.description, &d.filter, &d.hardware, &d.os, &d.comment].iter().map(|text| text.len()).sum()
        });
        NG_INTERFACE + texts
    }
}

/// Describes an interface in the words that its input had for it.
fn describe<W: Write>(writer: &mut ng::Writer<W>, interface: &Interface, snaplen: u32) -> io::Result<u32> {
    let unsaid = InterfaceDescription::default();
    let reported = interface.described.as_deref().unwrap_or(&unsaid);
    let most = [snaplen, reported.snaplen].into_iter().filter(|most| *most > 0).min();
    writer.describe(&ng::InterfaceOptions {
        name: &reported.name,
        description: &reported.description,
        filter: &reported.filter,
        hardware: &reported.hardware,
        os: &reported.os,
        comment: &reported.comment,
        link_type: interface.link_type,
        snaplen: most.unwrap_or(pcap::MAX_PACKET),
    })
}

impl<S: Write> Open<S> {
    /// Whether a packet keeps the file within `limit`.
    fn takes(&self, caplen: usize, interface: &Interface, limit: u64) -> bool {
        let left = limit.saturating_sub(self.bytes.get());
        match &self.layout {
            Layout::Pcap(_) => (classic::RECORD_HEADER + caplen) as u64 <= left,
            Layout::Ng(..) => (NG_PACKET + caplen + interface.cost()) as u64 <= left,
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
