//! Classic pcap (draft-ietf-opsawg-pcap): a file header of 24 bytes, then records of 16 bytes and the packet.
//!
//! ```text
//! file    magic u32 | major u16 | minor u16 | zone u32 | sigfigs u32 | snaplen u32 | link type u32
//! record  seconds u32 | micro- or nanoseconds u32 | captured u32 | on the wire u32 | bytes ...
//! ```
//! netgrain writes files in little-endian order. It reads files in both byte orders, with microseconds or nanoseconds,
//! and with the longer record header of Kuznetzov's patched libpcap (24 bytes: interface, protocol and packet type
//! follow the fields above).

use crate::packet::PacketBounds;
use crate::window::{ByteOrder, Window};
use crate::{Direction, ETHERNET, Error, MAX_PACKET, Packet};
use base::Timestamp;
use std::io::{self, Read, Write};

/// Bytes of the file header.
pub const FILE_HEADER: usize = 24;

/// Bytes of the record header.
pub const RECORD_HEADER: usize = 16;

/// The file header of every file that netgrain records: little-endian, nanoseconds, Ethernet, snaplen [`MAX_PACKET`].
pub const FILE_HEADER_NS: [u8; FILE_HEADER] = file_header(Resolution::Nanos, ETHERNET);

mod magic {
    pub const MICROS: u32 = 0xa1b2_c3d4;
    pub const NANOS: u32 = 0xa1b2_3c4d;
    pub const KUZNETZOV: u32 = 0xa1b2_cd34;
}

/// The unit of the second word of a record header (the fraction of the timestamp).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Microseconds, which every tool reads.
    Micros,
    /// Nanoseconds.
    Nanos,
}

impl Resolution {
    const fn nanos_per_unit(self) -> u64 {
        match self {
            Self::Micros => 1000,
            Self::Nanos => 1,
        }
    }
}

/// The little-endian file header with snaplen [`MAX_PACKET`].
pub const fn file_header(resolution: Resolution, link_type: u16) -> [u8; FILE_HEADER] {
    let magic = match resolution {
        Resolution::Micros => magic::MICROS,
        Resolution::Nanos => magic::NANOS,
    };
    let head = (magic as u64 | 2 << 32 | 4 << 48).to_le_bytes();
    let tail = (MAX_PACKET as u64 | (link_type as u64) << 32).to_le_bytes();
    let mut header = [0; FILE_HEADER];
    let mut i = 0;
    while i < 8 {
        header[i] = head[i];
        header[i + 16] = tail[i];
        i += 1;
    }
    header
}

/// The little-endian record header of a packet. Seconds after the year 2106 do not fit the format and become the
/// largest value.
#[inline]
pub const fn record_header(resolution: Resolution, ts: Timestamp, caplen: u32, wire_len: u32) -> [u8; RECORD_HEADER] {
    let secs = if ts.secs() > u32::MAX as u64 { u32::MAX } else { ts.secs() as u32 };
    let fraction = ts.subsec_nanos() / resolution.nanos_per_unit() as u32;
    (secs as u128 | (fraction as u128) << 32 | (caplen as u128) << 64 | (wire_len as u128) << 96).to_le_bytes()
}

/// [`record_header`] in nanoseconds.
#[inline]
pub const fn record_header_ns(ts: Timestamp, caplen: u32, wire_len: u32) -> [u8; RECORD_HEADER] {
    record_header(Resolution::Nanos, ts, caplen, wire_len)
}

/// A record header, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Time of capture.
    pub ts: Timestamp,
    /// The captured length of the packet, as the file states it.
    pub caplen: u32,
    /// The wire length of the packet, as the file states it.
    pub wire_len: u32,
}

/// The inverse of [`record_header`].
#[inline]
pub const fn parse_record(resolution: Resolution, header: [u8; RECORD_HEADER]) -> Record {
    let word = u128::from_le_bytes(header);
    let fraction = (word >> 32) as u32 as u64 * resolution.nanos_per_unit();
    Record {
        ts: Timestamp::from_secs_nanos(word as u32 as u64, fraction),
        caplen: (word >> 64) as u32,
        wire_len: (word >> 96) as u32,
    }
}

/// Writes a file; wrap the sink in a `BufWriter` if it has no buffer itself.
#[derive(Debug)]
pub struct Writer<W> {
    sink: W,
    resolution: Resolution,
}

impl<W: Write> Writer<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// Any error that the sink returns.
    pub fn new(mut sink: W, resolution: Resolution, link_type: u16) -> io::Result<Self> {
        sink.write_all(&file_header(resolution, link_type))?;
        Ok(Self { sink, resolution })
    }

    /// Appends a packet with the captured bytes `data`.
    ///
    /// # Errors
    /// Any error that the sink returns; `InvalidInput` for more than [`MAX_PACKET`] bytes, of which nothing is written.
    pub fn write(&mut self, ts: Timestamp, wire_len: u32, data: &[u8]) -> io::Result<()> {
        let caplen = within_limit(data)?;
        self.sink.write_all(&record_header(self.resolution, ts, caplen, wire_len.max(caplen)))?;
        self.sink.write_all(data)
    }

    /// Flushes the sink and returns it.
    ///
    /// # Errors
    /// Any error that the sink returns.
    pub fn finish(mut self) -> io::Result<W> {
        self.sink.flush()?;
        Ok(self.sink)
    }
}

/// The length of a packet, or an error if it exceeds the largest length that readers accept.
pub(crate) fn within_limit(data: &[u8]) -> io::Result<u32> {
    match u32::try_from(data.len()) {
        Ok(len) if len <= MAX_PACKET => Ok(len),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("a packet of {} bytes exceeds the limit of readers, {MAX_PACKET} bytes", data.len()),
        )),
    }
}

/// The properties of a file that its file header states.
#[derive(Clone, Debug)]
pub(crate) struct Classic {
    order: ByteOrder,
    nanos_per_unit: u64,
    record_header: usize,
    link_type: u16,
    fcs: u8,
    /// True for files of a version up to 2.3. The programs that wrote such files exchanged captured length and wire
    /// length, some of them only in some records.
    lengths_may_be_swapped: bool,
}

/// Position of the packet type in Kuznetzov's record header, and its value for a packet that was sent (`if_packet.h`).
const KUZNETZOV_TYPE: usize = 22;
const PACKET_OUTGOING: u8 = 4;

impl Classic {
    /// The byte order of a classic pcap file with these first bytes; `None` for other files.
    pub fn recognise(head: [u8; 4]) -> Option<ByteOrder> {
        let known = [magic::MICROS, magic::NANOS, magic::KUZNETZOV];
        if known.contains(&u32::from_le_bytes(head)) {
            Some(ByteOrder::Little)
        } else if known.contains(&u32::from_be_bytes(head)) {
            Some(ByteOrder::Big)
        } else {
            None
        }
    }

    pub fn open<R: Read>(window: &mut Window<R>, order: ByteOrder) -> Result<Self, Error> {
        window.demand(FILE_HEADER, "file header")?;
        let header = window.bytes();
        let magic = order.u32(header, 0);
        let (major, minor) = (order.u16(header, 4), order.u16(header, 6));
        if major != 2 {
            return Err(Error::Version { offset: window.offset() + 4, major, minor });
        }
        // If bit 26 is set, frames end in a frame check sequence; the upper four bits have its length in 16-bit words.
        let link = order.u32(header, 20);
        let fcs = if link & 1 << 26 != 0 { (link >> 28) as u8 * 2 } else { 0 };
        window.take(FILE_HEADER, 0..0);
        Ok(Self {
            order,
            nanos_per_unit: if magic == magic::NANOS { 1 } else { 1000 },
            record_header: if magic == magic::KUZNETZOV { 24 } else { RECORD_HEADER },
            link_type: link as u16,
            fcs,
            lengths_may_be_swapped: minor <= 3,
        })
    }

    pub fn link_type(&self) -> u16 {
        self.link_type
    }

    /// Passes at most `most` packets whose records are completely in the read buffer `window` to `each`, and returns
    /// the number of these packets. The function returns 0 for files with longer record headers, and for files in which
    /// captured length and wire length may be exchanged. It stops before a record that [`Classic::advance`] would
    /// reject.
    #[inline]
    pub fn burst<R: Read>(&self, window: &mut Window<R>, most: usize, mut each: impl FnMut(&Packet<'_>)) -> usize {
        if self.record_header != RECORD_HEADER || self.lengths_may_be_swapped {
            return 0;
        }
        let (offset, bytes) = (window.offset(), window.bytes());
        let (mut at, mut lent) = (0, 0);
        while lent < most {
            let Some(header) = bytes.get(at..).and_then(<[u8]>::first_chunk::<RECORD_HEADER>) else { break };
            let caplen = self.order.u32(header, 8);
            if caplen > MAX_PACKET {
                break;
            }
            let from = at + RECORD_HEADER;
            let Some(data) = bytes.get(from..from + caplen as usize) else { break };
            let secs = u64::from(self.order.u32(header, 0));
            let fraction = u64::from(self.order.u32(header, 4)) * self.nanos_per_unit;
            let wire_len = self.order.u32(header, 12);
            each(&Packet {
                ts: Some(Timestamp::from_secs_nanos(secs, fraction)),
                wire_len: wire_len.max(caplen),
                wire_raised: wire_len < caplen,
                data,
                interface: 0,
                link_type: self.link_type,
                direction: Direction::Unknown,
                drops: 0,
                fcs: self.fcs,
                offset: offset + at as u64,
            });
            at = from + data.len();
            lent += 1;
        }
        window.take(at, 0..0);
        lent
    }

    #[inline]
    pub fn advance<R: Read>(&self, window: &mut Window<R>) -> Result<Option<PacketBounds>, Error> {
        let offset = window.offset();
        if window.need(self.record_header)? == 0 {
            return Ok(None);
        }
        window.demand(self.record_header, "record header")?;
        let header = window.bytes();
        let secs = u64::from(self.order.u32(header, 0));
        let fraction = u64::from(self.order.u32(header, 4)) * self.nanos_per_unit;
        let (mut caplen, mut wire_len) = (self.order.u32(header, 8), self.order.u32(header, 12));
        if self.lengths_may_be_swapped && caplen > wire_len {
            (caplen, wire_len) = (wire_len, caplen);
        }
        let direction = match header.get(KUZNETZOV_TYPE) {
            Some(kind) if self.record_header > KUZNETZOV_TYPE => {
                if *kind == PACKET_OUTGOING {
                    Direction::Outbound
                } else {
                    Direction::Inbound
                }
            }
            _ => Direction::Unknown,
        };
        if caplen > MAX_PACKET {
            let (len, limit) = (u64::from(caplen), u64::from(MAX_PACKET));
            return Err(Error::LengthTooLarge { offset, what: "captured length", len, limit });
        }
        let whole = self.record_header + caplen as usize;
        window.demand(whole, "record")?;
        Ok(Some(PacketBounds {
            ts: Some(Timestamp::from_secs_nanos(secs, fraction)),
            wire_len: wire_len.max(caplen),
            wire_raised: wire_len < caplen,
            data: window.take(whole, self.record_header..whole),
            interface: 0,
            link_type: self.link_type,
            direction,
            drops: 0,
            fcs: self.fcs,
            offset,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reader;

    struct One {
        ts: Option<Timestamp>,
        wire_len: u32,
        data: Vec<u8>,
        direction: Direction,
        fcs: u8,
    }

    fn one(file: &[u8]) -> Result<One, Error> {
        let mut reader = Reader::open(file)?;
        let p = reader.next()?.expect("a packet");
        Ok(One { ts: p.ts, wire_len: p.wire_len, data: p.data.to_vec(), direction: p.direction, fcs: p.fcs })
    }

    /// The same file with the bytes of every header word reversed, as a big-endian machine would have written it.
    fn big_endian(file: &[u8]) -> Vec<u8> {
        let mut out = file.to_vec();
        for (at, len) in [(0, 4), (4, 2), (6, 2), (16, 4), (20, 4), (24, 4), (28, 4), (32, 4), (36, 4)] {
            out[at..at + len].reverse();
        }
        out
    }

    fn written(resolution: Resolution) -> Vec<u8> {
        let mut w = Writer::new(Vec::new(), resolution, ETHERNET).unwrap();
        w.write(Timestamp::from_secs_nanos(1_795_257_720, 123_456_789), 1500, b"abc").unwrap();
        w.finish().unwrap()
    }

    #[test]
    fn both_resolutions_in_both_byte_orders_give_the_same_packet() {
        for (resolution, nanos) in [(Resolution::Micros, 123_456_000), (Resolution::Nanos, 123_456_789)] {
            let file = written(resolution);
            for file in [big_endian(&file), file] {
                let p = one(&file).unwrap();
                assert_eq!(p.ts, Some(Timestamp::from_secs_nanos(1_795_257_720, nanos)));
                assert_eq!((p.wire_len, &p.data[..], p.direction, p.fcs), (1500, &b"abc"[..], Direction::Unknown, 0));
            }
        }
    }

    #[test]
    fn a_length_above_the_limit_is_an_error_at_its_record() {
        let mut file = written(Resolution::Nanos);
        file[32..36].copy_from_slice(&(MAX_PACKET + 1).to_le_bytes());
        let e = one(&file).err().unwrap();
        assert!(matches!(e, Error::LengthTooLarge { offset: 24, len: 262_145, limit: 262_144, .. }), "{e}");
        assert!(e.to_string().starts_with("byte 24: the captured length is 262145"), "{e}");
    }

    #[test]
    fn a_truncated_file_is_an_error_at_the_incomplete_record() {
        let file = written(Resolution::Nanos);
        let e = one(&file[..30]).err().unwrap();
        assert!(matches!(e, Error::Truncated { offset: 24, what: "record header", need: 16, have: 6 }), "{e}");
        let e = one(&file[..42]).err().unwrap();
        assert!(matches!(e, Error::Truncated { offset: 24, what: "record", need: 19, have: 18 }), "{e}");
        let e = one(&file[..23]).err().unwrap();
        assert!(matches!(e, Error::Truncated { offset: 0, need: 24, have: 23, .. }), "{e}");
        let mut other = file;
        other[4] = 3;
        assert!(matches!(one(&other).err().unwrap(), Error::Version { offset: 4, major: 3, minor: 4 }));
    }

    #[test]
    fn exchanged_lengths_of_old_files_are_corrected() {
        let mut file = written(Resolution::Micros);
        file[6] = 3;
        file[32..36].copy_from_slice(&1500u32.to_le_bytes());
        file[36..40].copy_from_slice(&3u32.to_le_bytes());
        let p = one(&file).unwrap();
        assert_eq!((p.wire_len, p.data.len()), (1500, 3));
    }

    #[test]
    fn kuznetzov_records_have_a_longer_header_with_the_direction() {
        let plain = written(Resolution::Micros);
        let mut file = plain[..40].to_vec();
        file[..4].copy_from_slice(&magic::KUZNETZOV.to_le_bytes());
        file.extend([2, 0, 0, 0, 8, 0, PACKET_OUTGOING, 0]);
        file.extend(b"abc");
        let p = one(&file).unwrap();
        assert_eq!((p.wire_len, &p.data[..], p.direction), (1500, &b"abc"[..], Direction::Outbound));
    }

    #[test]
    fn the_frame_check_sequence_length_of_the_header_is_returned() {
        let mut file = written(Resolution::Micros);
        file[23] = 2 << 4 | 4;
        assert_eq!(one(&file).unwrap().fcs, 4);
    }

    #[test]
    fn headers_round_trip_at_the_limits_of_their_fields() {
        for ts in [0, 1, 999_999_999, 1_000_000_000, u64::from(u32::MAX) * 1_000_000_000 + 999_999_999] {
            let ts = Timestamp::from_nanos(ts);
            let record = parse_record(Resolution::Nanos, record_header_ns(ts, 1, u32::MAX));
            assert_eq!(record, Record { ts, caplen: 1, wire_len: u32::MAX });
        }
        let late = parse_record(Resolution::Nanos, record_header_ns(Timestamp::MAX, 0, 0));
        assert_eq!(late.ts.secs(), u64::from(u32::MAX));
        assert_eq!(FILE_HEADER_NS[..8], [0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0]);
        assert_eq!(FILE_HEADER_NS[16..], [0, 0, 4, 0, 1, 0, 0, 0]);
    }

    #[test]
    fn a_packet_above_the_limit_of_readers_is_not_written() {
        let mut w = Writer::new(Vec::new(), Resolution::Nanos, ETHERNET).unwrap();
        assert!(w.write(Timestamp::ZERO, 0, &vec![0; MAX_PACKET as usize + 1]).is_err());
        assert_eq!(w.finish().unwrap().len(), FILE_HEADER);
    }
}
