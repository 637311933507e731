//! The text format that M3OMon's tools read (Moreno, PhD thesis, 2015, section 5.2; the sample monitor published with
//! HPCAP): one line per flow, its payload in a second file, and the lines of the time series.
//!
//! ```text
//! sip dip smac dmac pPROTO sport dport npack nbytes first last duration  max min avg std  max min avg std  rtt
//!                                                                        of lengths       of gaps in seconds
//! FIN SYN RST PSH ACK URG ECE CWR zerowin payload_len bin_offset
//!
//! second \t bits \t packets \t active_sessions
//! ```
//!
//! M3OMon's flows have one direction, so a record of both directions yields two lines. Times are seconds with six
//! decimals; the duration is the number of clock seconds from the second of the first packet to the second of the last
//! packet, both included; the standard deviation is that of a sample (n - 1). `dmac` is zero unless packets of the
//! reverse direction were seen. `rtt` is the round-trip time of the SYN, in the line of the direction that sent the
//! SYN, otherwise zero. Lengths are those of IP packets, as in flow records, except the average length, which is
//! `nbytes / npack` and hence the average length of a frame. IPv6 addresses use the same columns as IPv4. Flags are in
//! the order of their bits from the lowest on, as in the sample monitor, so ECE comes before CWR.

use base::Timestamp;
use flow::{DirectionStats, Record};
use series::Row;
use std::io::{self, Write};
use std::net::IpAddr;
use wire::MacAddr;

/// Writes the lines of flow records, and the file of payload bytes.
pub struct LegacyFlows<W, P> {
    text: W,
    payload: P,
    offset: u64,
}

impl<W: Write, P: Write> LegacyFlows<W, P> {
    /// Writes lines to `text` and the first payload bytes of flows to `payload` ([`io::sink`] to discard them).
    pub fn new(text: W, payload: P) -> Self {
        Self { text, payload, offset: 0 }
    }

    /// Writes a record: a line for each direction that has packets.
    ///
    /// # Errors
    /// If one of the files cannot be written.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        for direction in 0..2 {
            if record.directions[direction].packets > 0 {
                self.line(record, direction)?;
            }
        }
        Ok(())
    }

    /// Returns both outputs.
    pub fn into_inner(self) -> (W, P) {
        (self.text, self.payload)
    }

    fn line(&mut self, record: &Record, direction: usize) -> io::Result<()> {
        let (ends, side) = (Ends::of(record, direction), &record.directions[direction]);
        let payload = &record.payload[direction];
        let rtt = if direction == 0 { record.syn_rtt.unwrap_or(0) } else { 0 };
        let [fin, syn, rst, psh, ack, urg, ece, cwr] = side.flags;
        let (lengths, gaps) = (lengths(side), gaps(side));
        writeln!(
            self.text,
            "{} {} {} {} p{} {} {} {} {} {} {} {} {lengths} {gaps} {} {fin} {syn} {rst} {psh} {ack} {urg} {ece} {cwr} \
             {} {} {}",
            ends.src,
            ends.dst,
            mac(side.mac),
            mac(record.directions[1 - direction].mac),
            record.key.protocol.0,
            ends.src_port,
            ends.dst_port,
            side.packets,
            side.bytes,
            seconds(side.first),
            seconds(side.last),
            side.last.secs().saturating_sub(side.first.secs()) + 1,
            seconds(Timestamp::from_nanos(rtt)),
            side.zero_window,
            payload.len(),
            self.offset,
        )?;
        self.payload.write_all(payload)?;
        self.offset += payload.len() as u64;
        Ok(())
    }
}

/// Writes the time series: a line for each second, which sums its consecutive series rows.
pub struct LegacySeries<W> {
    text: W,
    open: Option<Row>,
}

impl<W: Write> LegacySeries<W> {
    /// Writes lines to `text`.
    pub fn new(text: W) -> Self {
        Self { text, open: None }
    }

    /// Adds a series row; its line is written when a series row of another second arrives.
    ///
    /// # Errors
    /// If a line cannot be written.
    pub fn write(&mut self, row: &Row) -> io::Result<()> {
        match &mut self.open {
            Some(open) if open.second == row.second => *open += row,
            open => {
                let before = open.replace(*row);
                self.line(before)?;
            }
        }
        Ok(())
    }

    /// Writes the last line and returns the output.
    ///
    /// # Errors
    /// If the line cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        let last = self.open.take();
        self.line(last)?;
        Ok(self.text)
    }

    fn line(&mut self, row: Option<Row>) -> io::Result<()> {
        let Some(row) = row else { return Ok(()) };
        let bits = row.total.bytes.saturating_mul(8);
        writeln!(self.text, "{}\t{bits}\t{}\t{}", row.second, row.total.packets, row.flows_active)
    }
}

/// Source and destination of one direction of a record.
struct Ends {
    src: IpAddr,
    dst: IpAddr,
    src_port: u16,
    dst_port: u16,
}

impl Ends {
    fn of(record: &Record, direction: usize) -> Self {
        let key = &record.key;
        let forward = Self { src: key.src, dst: key.dst, src_port: key.src_port, dst_port: key.dst_port };
        match direction {
            0 => forward,
            // ICMP has type and code in place of the destination port, in both directions.
            _ if !key.protocol.has_ports() => Self { src: key.dst, dst: key.src, ..forward },
            _ => Self { src: key.dst, dst: key.src, src_port: key.dst_port, dst_port: key.src_port },
        }
    }
}

fn lengths(side: &DirectionStats) -> String {
    let (length, n) = (&side.length, side.packets);
    let mean = side.bytes as f64 / n as f64;
    format!("{} {} {mean:.6} {:.6}", length.max, length.min, length.deviation(n))
}

fn gaps(side: &DirectionStats) -> String {
    let (gap, n) = (&side.iat, side.iat_count);
    let [max, min, mean, deviation] =
        [gap.max as f64, gap.min as f64, gap.mean(n), gap.deviation(n)].map(|nanos| nanos / 1e9);
    format!("{max:.6} {min:.6} {mean:.6} {deviation:.6}")
}

fn seconds(time: Timestamp) -> String {
    format!("{}.{:06}", time.secs(), time.subsec_nanos() / 1000)
}

fn mac(mac: Option<MacAddr>) -> String {
    mac.unwrap_or_default().to_string().to_uppercase()
}
