//! Writes the packets of a query result as a capture. A pcapng capture has the timestamp source, the filter and the
//! queue of each interface, the number of packets lost before each packet, and at its end the ledger of losses of the
//! interval.

use super::timestamps;
use crate::output::background_writer::BackgroundWriter;
use crate::output::capture_format::CaptureFormat;
use base::units::show_count;
use base::{Cause, Tally, Timestamp, TimestampQuality};
use pcap::{FILE_HEADER_NS, MAX_PACKET, classic, ng, record_header_ns};
use query::{FoundPacket, Origin};
use std::io::{self, Write};

/// A capture being written.
pub enum CaptureFile {
    Ng(Ng),
    Classic(Classic),
}

impl CaptureFile {
    /// Begins a capture for this query. `of_store` is true if the packets are read from a store; only these packets
    /// have a queue.
    pub fn begin(format: CaptureFormat, out: BackgroundWriter, query: &str, of_store: bool) -> io::Result<Self> {
        Ok(match format {
            CaptureFormat::Pcapng => Self::Ng(Ng::begin(out, query, of_store)?),
            CaptureFormat::Pcap => Self::Classic(Classic {
                out,
                link_type: None,
                origin: None,
                many: false,
                lost: 0,
                clamped: 0,
                record: Vec::new(),
            }),
        })
    }

    /// Appends a packet. `InvalidInput` for a packet that the format cannot hold.
    pub fn packet(&mut self, origins: &[Origin], found: &FoundPacket<'_>) -> io::Result<()> {
        match self {
            Self::Ng(file) => file.packet(origins, found),
            Self::Classic(file) => file.packet(found),
        }
    }

    /// A text that names the information about the query result that the capture format cannot represent; `None` if
    /// there is none.
    pub fn unreported(&self, origins: &[Origin]) -> Option<String> {
        let Self::Classic(file) = self else { return None };
        let mut missing = Vec::new();
        if file.lost > 0 {
            missing.push(format!("the {} packets lost between captured packets", show_count(file.lost)));
        }
        if file.many && origins.len() > 1 {
            missing.push(format!("to which of the {} interfaces or queues each packet belongs", origins.len()));
        }
        if file.clamped > 0 {
            missing.push(format!(
                "the timestamps of {} packets after 2106-02-07T06:28:15Z, which were lowered to that second",
                show_count(file.clamped)
            ));
        }
        (!missing.is_empty()).then(|| format!("pcap does not record {}; pcapng does", missing.join(" nor ")))
    }

    /// The number of packets whose timestamps were lowered to the last second that the pcap format can represent.
    pub fn clamped(&self) -> u64 {
        match self {
            Self::Ng(_) => 0,
            Self::Classic(file) => file.clamped,
        }
    }

    /// Writes the statistics at the end of the capture, and waits until all bytes are written.
    pub fn finish(
        self,
        origins: &[Origin],
        tally: impl Fn(usize) -> Tally,
        quality: impl Fn(usize) -> TimestampQuality,
    ) -> io::Result<u64> {
        match self {
            Self::Ng(file) => file.finish(origins, tally, quality),
            Self::Classic(file) => file.finish(),
        }
    }
}

/// Classic pcap with nanoseconds.
pub struct Classic {
    out: BackgroundWriter,
    link_type: Option<u16>,
    /// The origin of the first written packet.
    origin: Option<usize>,
    /// True if packets of more than one origin were written.
    many: bool,
    /// The number of packets lost before the written packets; pcap cannot represent this number.
    lost: u64,
    /// Packets with clamped timestamps.
    clamped: u64,
    record: Vec<u8>,
}

impl Classic {
    fn packet(&mut self, found: &FoundPacket<'_>) -> io::Result<()> {
        match self.link_type {
            Some(link_type) if link_type == found.link_type => {}
            Some(other) => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!(
                        "packets of link types {other} and {} do not fit into one pcap file: write pcapng, by \
                         extension or --format, or select an interface with -i",
                        found.link_type
                    ),
                ));
            }
            None => self.begin(found.link_type)?,
        }
        self.lost += found.lost;
        self.clamped += u64::from(found.ts.secs() > u64::from(u32::MAX));
        self.many |= *self.origin.get_or_insert(found.origin) != found.origin;
        // The pcap record is written by one call, so that the background writer keeps it in one chunk.
        self.record.clear();
        self.record.extend(record_header_ns(found.ts, found.data.len() as u32, found.wire_len));
        self.record.extend(found.data);
        self.out.write_all(&self.record)
    }

    fn begin(&mut self, link_type: u16) -> io::Result<()> {
        self.link_type = Some(link_type);
        self.out.write_all(&classic::file_header(classic::Resolution::Nanos, link_type))
    }

    fn finish(mut self) -> io::Result<u64> {
        if self.link_type.is_none() {
            // A capture without packets still needs a file header.
            self.out.write_all(&FILE_HEADER_NS)?;
        }
        self.out.finish()
    }
}

/// A pcapng capture. The file describes one interface for each origin; interface and origin have the same number.
pub struct Ng {
    file: ng::Writer<BackgroundWriter>,
    described: Vec<Described>,
    os: String,
    of_store: bool,
}

#[derive(Clone, Copy, Default)]
struct Described {
    first: Option<Timestamp>,
    last: Timestamp,
    delivered: u64,
    queue: u32,
}

impl Ng {
    fn begin(out: BackgroundWriter, query: &str, of_store: bool) -> io::Result<Self> {
        let os = format!("Linux {}", first_line("/proc/sys/kernel/osrelease", ""));
        let application = concat!("netgrain ", env!("CARGO_PKG_VERSION"));
        let section = ng::SectionOptions {
            hardware: &first_line("/proc/cpuinfo", "model name"),
            os: &os,
            application,
            comment: &format!("query: {query}"),
        };
        Ok(Self { file: ng::Writer::with(out, &section)?, described: Vec::new(), os, of_store })
    }

    fn packet(&mut self, origins: &[Origin], found: &FoundPacket<'_>) -> io::Result<()> {
        if found.origin >= self.described.len() {
            self.describe(origins)?;
        }
        let Some(described) = self.described.get_mut(found.origin) else {
            return Err(io::Error::other(format!(
                "a packet of origin {}, but there are {} origins",
                found.origin,
                origins.len()
            )));
        };
        described.first.get_or_insert(found.ts);
        described.last = described.last.max(found.ts);
        described.delivered += 1;
        let options = ng::PacketOptions {
            drops: (found.lost > 0).then_some(found.lost),
            queue: self.of_store.then_some(described.queue),
            ..ng::PacketOptions::default()
        };
        self.file.packet(found.origin as u32, found.ts, found.wire_len, found.data, options)
    }

    fn describe(&mut self, origins: &[Origin]) -> io::Result<()> {
        let known = self.described.len();
        for origin in &origins[known..] {
            let mut description = format!("queue {}", origin.queue);
            if !origin.timestamp_source.is_empty() {
                description += &format!(", stamped by {}", origin.timestamp_source);
            }
            // libpcap rejects files whose interfaces differ in snaplen, and the snaplens of later interfaces are
            // unknown. So all interfaces get the maximum.
            if (1..MAX_PACKET).contains(&origin.snaplen) {
                description += &format!(", at most {} bytes kept of each packet", origin.snaplen);
            }
            self.file.describe(&ng::InterfaceOptions {
                name: &origin.interface,
                description: &description,
                filter: &origin.filter,
                os: &self.os,
                link_type: origin.link_type,
                snaplen: MAX_PACKET,
                ..ng::InterfaceOptions::default()
            })?;
            self.described.push(Described { queue: u32::from(origin.queue), ..Described::default() });
        }
        Ok(())
    }

    fn finish(
        mut self,
        origins: &[Origin],
        tally: impl Fn(usize) -> Tally,
        quality: impl Fn(usize) -> TimestampQuality,
    ) -> io::Result<u64> {
        self.describe(origins)?;
        let end = self.described.iter().map(|d| d.last).max().unwrap_or_default();
        for (number, described) in self.described.iter().enumerate() {
            let t = tally(number);
            // The quality of the timestamps is known at the end of the query, after the interface was described.
            let parts = [losses(&t), timestamps::describe(&quality(number))];
            let comment = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n");
            let known = !t.is_empty();
            let count = |n: u64| known.then_some(n);
            self.file.statistics(
                number as u32,
                end,
                &ng::Statistics {
                    start: described.first,
                    end: described.first.map(|_| described.last),
                    received: count(t.offered),
                    dropped: count(t.lost[Cause::Nic as usize]),
                    accepted: count(t.offered.saturating_sub(t.filtered)),
                    os_dropped: count(t.lost_total().saturating_sub(t.lost[Cause::Nic as usize])),
                    delivered: Some(described.delivered),
                    comment: &comment,
                },
            )?;
        }
        self.file.finish()?.finish()
    }
}

/// The accounting equation of the losses in one line; empty if all terms of the equation are 0.
pub fn losses(t: &Tally) -> String {
    if t.is_empty() {
        return String::new();
    }
    let mut text =
        format!("offered {} = stored {} + filtered {} + duplicate {}", t.offered, t.stored, t.filtered, t.duplicate);
    for (cause, packets) in t.losses() {
        text += &format!(" + lost {packets} ({}: {})", cause.name(), cause.description());
    }
    if t.lost_total() == 0 {
        text += ", none lost";
    }
    text
}

/// The value in the line of a file of `/proc` that begins with this key.
fn first_line(path: &str, key: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with(key)).unwrap_or_default();
    line.split_once(':').map_or(line, |(_, value)| value).trim().to_owned()
}
