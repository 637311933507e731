//! The capture that a listener writes: nanosecond pcap, whose records are copied from the ring, or pcapng, which also
//! has the queue of each packet and the number of packets that the listener missed before it.

use crate::output::capture_format::CaptureFormat;
use base::Timestamp;
use pcap::{MAX_PACKET, ng};
use ring::Listener;
use std::io::{self, Write};

/// A capture file that is being written; see the module.
pub enum CaptureOutput<W: Write> {
    Pcap(W),
    Ng(ng::Writer<W>, Vec<InterfaceRecord>),
}

/// The state of one interface of the capture; each ring is an interface of the capture.
#[derive(Clone, Copy, Default)]
pub struct InterfaceRecord {
    /// The number of packets that the listener missed before the last written packet.
    missed: u64,
    span: Option<(Timestamp, Timestamp)>,
    delivered: u64,
}

impl<W: Write> CaptureOutput<W> {
    /// Begins a capture of these rings.
    pub fn begin(format: CaptureFormat, mut sink: W, rings: &[Listener]) -> io::Result<Self> {
        if format == CaptureFormat::Pcap {
            rings.first().map_or(Ok(()), |ring| sink.write_all(&ring.file_header()))?;
            sink.flush()?;
            return Ok(Self::Pcap(sink));
        }
        let mut file = ng::Writer::new(sink, concat!("netgrain ", env!("CARGO_PKG_VERSION")), "")?;
        for ring in rings {
            let shape = ring.shape();
            file.describe(&ng::InterfaceOptions {
                name: &shape.name,
                description: &format!("queue {}, captured by netgrain listen", shape.queue),
                link_type: shape.link_type as u16,
                snaplen: MAX_PACKET,
                ..ng::InterfaceOptions::default()
            })?;
        }
        file.flush()?;
        Ok(Self::Ng(file, vec![InterfaceRecord::default(); rings.len()]))
    }

    /// Appends a packet of a ring; `missed` is the number of packets of this ring missed so far.
    pub fn packet(&mut self, number: usize, ring: &Listener, packet: &RingPacket<'_>, missed: u64) -> io::Result<()> {
        match self {
            Self::Pcap(sink) => sink.write_all(packet.record),
            Self::Ng(file, records) => {
                let record = &mut records[number];
                let drops = missed.saturating_sub(record.missed);
                record.missed = missed;
                record.delivered += 1;
                record.span = Some((record.span.map_or(packet.ts, |s| s.0), packet.ts));
                let options = ng::PacketOptions {
                    drops: (drops > 0).then_some(drops),
                    queue: Some(u32::from(ring.shape().queue)),
                    ..ng::PacketOptions::default()
                };
                file.packet(number as u32, packet.ts, packet.wire_len, packet.frame, options)
            }
        }
    }

    /// Flushes the output, so that a reader of a pipe gets all packets.
    pub fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Pcap(sink) => sink.flush(),
            Self::Ng(file, _) => file.flush(),
        }
    }

    /// Writes the statistics of each ring and ends the capture.
    pub fn finish(self, rings: &[Listener]) -> io::Result<()> {
        match self {
            Self::Pcap(mut sink) => sink.flush(),
            Self::Ng(mut file, records) => {
                let end = records.iter().filter_map(|t| t.span).map(|s| s.1).max().unwrap_or_default();
                for (number, (record, ring)) in records.iter().zip(rings).enumerate() {
                    let counts = ring.counts();
                    file.statistics(
                        number as u32,
                        end,
                        &ng::Statistics {
                            start: record.span.map(|s| s.0),
                            end: record.span.map(|s| s.1),
                            received: Some(counts.published),
                            os_dropped: Some(counts.missed),
                            delivered: Some(record.delivered),
                            ..ng::Statistics::default()
                        },
                    )?;
                }
                file.finish().map(drop)
            }
        }
    }
}

/// A packet as it is stored in the ring.
pub struct RingPacket<'a> {
    pub ts: Timestamp,
    pub wire_len: u32,
    pub frame: &'a [u8],
    /// The pcap record of the packet: record header and bytes.
    pub record: &'a [u8],
}
