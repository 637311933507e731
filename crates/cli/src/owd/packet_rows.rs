//! One line of CSV (RFC 4180) for each packet of a train, in order of arrival.

use super::packet::TrainPacket;
use super::sessions::SessionKey;
use base::Timestamp;
use delay::{ArrivalKind, PacketResult};
use std::io::{self, BufWriter, Write};

/// The columns. Times are in nanoseconds since 1970, delays and variations in nanoseconds.
const HEADER: &str = "interface,session,source,source_port,destination,destination_port,train,burst,index,sequence,\
                      bytes,departure_ns,arrival_ns,delay_ns,variation_ns,kind,extent";

/// Writes the lines.
pub struct PacketRows<W: Write> {
    out: BufWriter<W>,
}

impl<W: Write> PacketRows<W> {
    /// Writes the header.
    pub fn begin(out: W) -> io::Result<Self> {
        let mut out = BufWriter::with_capacity(1 << 18, out);
        writeln!(out, "{HEADER}")?;
        Ok(Self { out })
    }

    /// Writes the line of a packet.
    pub fn write(
        &mut self,
        key: &SessionKey,
        packet: &TrainPacket,
        result: &PacketResult,
        arrival: Timestamp,
    ) -> io::Result<()> {
        let (flow, payload) = (&packet.flow, &packet.payload);
        let variation = result.variation.map(|variation| variation.to_string()).unwrap_or_default();
        let extent = match result.kind {
            ArrivalKind::Reordered(extent) => extent.to_string(),
            _ => String::new(),
        };
        writeln!(
            self.out,
            "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{variation},{},{extent}",
            quoted(&key.interface),
            key.session,
            flow.src,
            flow.src_port.0,
            flow.dst,
            flow.dst_port.0,
            payload.train,
            payload.burst,
            payload.index,
            payload.sequence,
            packet.bytes,
            payload.departure.nanos(),
            arrival.nanos(),
            result.delay,
            result.kind.name(),
        )
    }

    /// Writes the lines that are still in memory.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The text as a field: in quotation marks if it contains a character that would end the field.
fn quoted(text: &str) -> String {
    match text.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}
