//! The RAW format of HPCAP (thesis, appendix B.2). A file has no file header; each packet follows a record header of 12
//! bytes. All files have equal size, because a pseudo-packet (padding) fills the remaining bytes.
//!
//! ```text
//! record   seconds u32 | nanoseconds u32 | captured u16 | on the wire u16 | bytes ...
//! padding  0           | 0               | n u16        | n u16           | n bytes that mean nothing
//! ```
//! All numbers are little-endian. hpcap40g also writes padding at the beginning of a file, so readers skip padding at
//! any position. A file may also end without padding.
//!
//! Invariant of a file of fixed size: after a record, the remaining space is zero or large enough for a padding header.
//! A file is closed when the next record does not fit, so its padding is shorter than that record. [`MAX_CAPLEN`] is
//! chosen so that the length of such a padding fits into its 16 bits.

use crate::packet::PacketBounds;
use crate::window::{ByteOrder, Window};
use crate::{Direction, ETHERNET, Error};
use base::Timestamp;
use std::io::{self, Read, Write};

/// Bytes of a record header.
pub const RECORD_HEADER: usize = 12;

/// Largest number of bytes that a file of fixed size stores of a packet; longer packets are truncated.
pub const MAX_CAPLEN: u16 = u16::MAX - RECORD_HEADER as u16;

/// The smallest size at which a file can hold a packet of any length: the longest record and the header of the padding
/// after it.
pub const MIN_FILE: u64 = (2 * RECORD_HEADER + MAX_CAPLEN as usize) as u64;

/// Returns the record header of a packet. A timestamp of 0 marks padding, so a packet with this timestamp is written
/// with a timestamp of one nanosecond instead. Lengths and seconds that do not fit are written as the largest values
/// that fit.
#[inline]
pub const fn record_header(ts: Timestamp, caplen: u16, wire_len: u32) -> [u8; RECORD_HEADER] {
    let secs = if ts.secs() > u32::MAX as u64 { u32::MAX } else { ts.secs() as u32 };
    let nanos = if ts.nanos() == 0 { 1 } else { ts.subsec_nanos() };
    let wire_len = if wire_len > u16::MAX as u32 { u16::MAX } else { wire_len as u16 };
    header(secs, nanos, caplen, wire_len)
}

/// The header of a padding of `len` bytes.
pub const fn padding_header(len: u16) -> [u8; RECORD_HEADER] {
    header(0, 0, len, len)
}

const fn header(secs: u32, nanos: u32, caplen: u16, wire_len: u16) -> [u8; RECORD_HEADER] {
    let word = (secs as u128 | (nanos as u128) << 32 | (caplen as u128) << 64 | (wire_len as u128) << 80).to_le_bytes();
    let mut out = [0; RECORD_HEADER];
    let mut i = 0;
    while i < RECORD_HEADER {
        out[i] = word[i];
        i += 1;
    }
    out
}

/// True if a packet may be appended when `remaining` bytes of a file of fixed size are left.
///
/// ```
/// # use netgrain_pcap::raw::fits;
/// assert!(fits(12 + 60, 60));       // ends exactly at the size of the file
/// assert!(!fits(12 + 60 + 11, 60)); // would leave less than a padding header
/// assert!(fits(12 + 60 + 12, 60));  // leaves a padding of length zero
/// ```
#[inline]
pub const fn fits(remaining: u64, caplen: u16) -> bool {
    let record = RECORD_HEADER as u64 + caplen as u64;
    remaining == record || remaining >= record + RECORD_HEADER as u64
}

/// The lengths, without header, of the paddings that fill `remaining` bytes. One padding is enough when a packet did
/// not fit. If a file is ended early, several paddings may be needed; after each of them, the remaining space is zero
/// or large enough for a padding header.
///
/// The result is empty for `remaining` from 1 to 11, which cannot be filled and which [`fits`] never leaves.
pub fn paddings(remaining: u64) -> impl Iterator<Item = u16> {
    const HEADER: u64 = RECORD_HEADER as u64;
    let mut left = remaining;
    std::iter::from_fn(move || {
        let room = left.checked_sub(HEADER)?;
        let mut len = room.min(u64::from(u16::MAX));
        if (1..HEADER).contains(&(room - len)) {
            len -= HEADER;
        }
        left = room - len;
        Some(len as u16)
    })
}

/// Fills one file of fixed size. Wrap the sink in a `BufWriter` if it is not a buffer itself.
#[derive(Debug)]
pub struct Writer<W> {
    sink: W,
    remaining: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a file of `size` bytes; `None` for less than [`MIN_FILE`].
    pub fn new(sink: W, size: u64) -> Option<Self> {
        (size >= MIN_FILE).then_some(Self { sink, remaining: size })
    }

    /// Appends a packet, truncated to [`MAX_CAPLEN`]. Returns false, with nothing written, if the packet does not fit:
    /// the caller ends this file with [`Writer::finish`] and begins the next.
    ///
    /// # Errors
    /// Any error that the sink returns.
    pub fn write(&mut self, ts: Timestamp, wire_len: u32, data: &[u8]) -> io::Result<bool> {
        let data = &data[..data.len().min(usize::from(MAX_CAPLEN))];
        let caplen = data.len() as u16;
        if !fits(self.remaining, caplen) {
            return Ok(false);
        }
        self.sink.write_all(&record_header(ts, caplen, wire_len.max(u32::from(caplen))))?;
        self.sink.write_all(data)?;
        self.remaining -= (RECORD_HEADER + data.len()) as u64;
        Ok(true)
    }

    /// Pads the file to its size, flushes the sink, and returns it.
    ///
    /// # Errors
    /// Any error that the sink returns.
    pub fn finish(mut self) -> io::Result<W> {
        for len in paddings(self.remaining) {
            self.sink.write_all(&padding_header(len))?;
            io::copy(&mut io::repeat(0).take(u64::from(len)), &mut self.sink)?;
        }
        self.sink.flush()?;
        Ok(self.sink)
    }
}

/// The RAW parser, which has no state.
#[derive(Clone, Debug)]
pub(crate) struct Raw;

/// Number of plausible records that identify a RAW file.
const PLAUSIBLE_RECORDS: usize = 3;

/// The earliest accepted time, 2001-09-09. No capture in this format is older, and random bytes often decode to earlier
/// times.
const EARLIEST: u32 = 1_000_000_000;

/// Largest plausible time between two consecutive packets, in seconds: one day.
const NEIGHBOURS: u32 = 86_400;

impl Raw {
    /// True if the window begins with RAW records. The format has no magic number, so the test examines several
    /// records, or all up to the end of the file. Each must have less than a second of nanoseconds, a captured length
    /// of at most the wire length, and a time close to that of the previous record.
    pub fn recognise<R: Read>(window: &mut Window<R>) -> Result<bool, Error> {
        let (mut at, mut records, mut before) = (0, 0, None);
        while records < PLAUSIBLE_RECORDS {
            let have = window.need(at + RECORD_HEADER)?;
            if have < at + RECORD_HEADER {
                return Ok(have == at && records > 0);
            }
            let (secs, nanos, caplen, wire_len) = fields(&window.bytes()[at..]);
            if (secs, nanos) == (0, 0) {
                if caplen != wire_len || at > 0 && records == 0 {
                    return Ok(false);
                }
            } else {
                let near = before.is_none_or(|b: u32| secs.abs_diff(b) <= NEIGHBOURS);
                if secs < EARLIEST || nanos >= 1_000_000_000 || caplen > wire_len || caplen == 0 || !near {
                    return Ok(false);
                }
                before = Some(secs);
                records += 1;
            }
            at += RECORD_HEADER + usize::from(caplen);
            if window.need(at)? < at {
                return Ok(false);
            }
        }
        Ok(true)
    }

    #[inline]
    pub fn advance<R: Read>(&self, window: &mut Window<R>) -> Result<Option<PacketBounds>, Error> {
        loop {
            if window.need(RECORD_HEADER)? == 0 {
                return Ok(None);
            }
            let offset = window.offset();
            window.demand(RECORD_HEADER, "record header")?;
            let (secs, nanos, caplen, wire_len) = fields(window.bytes());
            let whole = RECORD_HEADER + usize::from(caplen);
            if (secs, nanos) == (0, 0) {
                if caplen != wire_len {
                    return Err(Error::BadRecord { offset, why: "the two length fields of a padding differ" });
                }
                window.skip(whole as u64, "padding");
                continue;
            }
            if nanos >= 1_000_000_000 {
                return Err(Error::BadRecord { offset, why: "the nanoseconds of a record exceed a second" });
            }
            window.demand(whole, "record")?;
            return Ok(Some(PacketBounds {
                ts: Some(Timestamp::from_secs_nanos(u64::from(secs), u64::from(nanos))),
                wire_len: u32::from(wire_len.max(caplen)),
                wire_raised: wire_len < caplen,
                data: window.take(whole, RECORD_HEADER..whole),
                interface: 0,
                link_type: ETHERNET,
                direction: Direction::Unknown,
                drops: 0,
                fcs: 0,
                offset,
            }));
        }
    }
}

#[inline]
fn fields(b: &[u8]) -> (u32, u32, u16, u16) {
    let order = ByteOrder::Little;
    (order.u32(b, 0), order.u32(b, 4), order.u16(b, 8), order.u16(b, 10))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, Reader};

    const T: Timestamp = Timestamp::from_secs_nanos(1_400_000_000, 7);

    fn lengths(file: &[u8]) -> Result<Vec<usize>, Error> {
        let mut reader = Reader::open_as(file, Format::Raw)?;
        let mut out = Vec::new();
        while let Some(p) = reader.next()? {
            out.push(p.data.len());
        }
        Ok(out)
    }

    #[test]
    fn damage_is_named() {
        let mut file = record_header(T, 3, 3).to_vec();
        file.extend(b"ab");
        assert!(matches!(lengths(&file).unwrap_err(), Error::Truncated { offset: 0, need: 15, have: 14, .. }));
        file.push(b'c');
        file.extend(header(0, 0, 5, 6));
        assert!(matches!(lengths(&file).unwrap_err(), Error::BadRecord { offset: 15, .. }));
        file.truncate(15);
        file.extend(header(1, 1_000_000_000, 0, 0));
        assert!(matches!(lengths(&file).unwrap_err(), Error::BadRecord { offset: 15, .. }));
        file.truncate(15);
        file.extend(padding_header(9));
        assert!(matches!(lengths(&file).unwrap_err(), Error::Truncated { offset: 15, need: 21, have: 12, .. }));
        file.truncate(15);
        file.extend([0; 11]);
        assert!(matches!(lengths(&file).unwrap_err(), Error::Truncated { offset: 15, need: 12, have: 11, .. }));
    }

    /// HPCAP itself loses packets here: for some sizes of the remaining space of a file, it loses the next packet or
    /// all following packets.
    #[test]
    fn any_remaining_space_is_padded_exactly_without_loss() {
        let header = RECORD_HEADER as u64;
        for caplen in [0, 1, 11, 12, 13, 60, 1000, 1514, MAX_CAPLEN - 1, MAX_CAPLEN] {
            for remaining in 0..u64::from(MAX_CAPLEN) + 4 * header {
                if (1..header).contains(&remaining) {
                    continue; // `fits` never leaves this space; the test checks that.
                }
                let record = header + u64::from(caplen);
                if fits(remaining, caplen) {
                    let left = remaining - record;
                    assert!(left == 0 || left >= header, "{caplen} into {remaining}");
                } else {
                    let needed = remaining < record || (1..header).contains(&(remaining - record));
                    assert!(needed, "{caplen} bytes are refused although {remaining} are left");
                    let pads: Vec<u16> = paddings(remaining).collect();
                    assert!(pads.len() <= 1, "{caplen} into {remaining}");
                    assert_eq!(pads.iter().map(|p| header + u64::from(*p)).sum::<u64>(), remaining);
                }
            }
        }
    }

    #[test]
    fn a_file_that_ends_early_is_padded_to_its_size() {
        for left in (12..200_000).chain((1 << 31) - 30..(1 << 31) + 30) {
            let filled: u64 = paddings(left).map(|p| 12 + u64::from(p)).sum();
            assert_eq!(filled, left);
        }
        assert_eq!(paddings(0).count() + paddings(11).count(), 0);
    }

    #[test]
    fn files_have_their_exact_size_and_all_packets_in_order() {
        let mut prng = base::Prng::new(3);
        for _ in 0..40 {
            let size = MIN_FILE + prng.below(40_000);
            let (mut files, mut written) = (Vec::new(), Vec::new());
            let mut w = Writer::new(Vec::new(), size).unwrap();
            while files.len() < 3 {
                let most = if prng.below(10) == 0 { 70_000 } else { 2000 };
                let data = vec![7; prng.below(most) as usize];
                written.push(data.len().min(usize::from(MAX_CAPLEN)));
                if !w.write(T, data.len() as u32, &data).unwrap() {
                    files.push(w.finish().unwrap());
                    w = Writer::new(Vec::new(), size).unwrap();
                    assert!(
                        w.write(T, data.len() as u32, &data).unwrap(),
                        "a packet of any length fits into an empty file"
                    );
                }
            }
            files.push(w.finish().unwrap());
            assert!(files.iter().all(|f| f.len() as u64 == size));
            let read: Vec<usize> = files.iter().flat_map(|f| lengths(f).unwrap()).collect();
            assert_eq!(read, written);
        }
        assert!(Writer::new(Vec::new(), MIN_FILE - 1).is_none());
    }

    #[test]
    fn padding_is_skipped_at_any_position_and_may_be_absent_or_empty() {
        let packet = [&record_header(T, 2, 60)[..], b"ab"].concat();
        let pad = [&padding_header(3)[..], b"xyz"].concat();
        let empty = padding_header(0).to_vec();
        assert_eq!(lengths(&[]).unwrap(), []);
        assert_eq!(lengths(&packet).unwrap(), [2]);
        assert_eq!(lengths(&[pad.clone(), packet.clone(), empty.clone()].concat()).unwrap(), [2]);
        assert_eq!(lengths(&[empty, pad.clone(), packet, pad].concat()).unwrap(), [2]);
    }

    #[test]
    fn a_packet_with_timestamp_0_is_not_read_as_padding() {
        let file = [&record_header(Timestamp::ZERO, 1, 1)[..], b"x"].concat();
        assert_eq!(lengths(&file).unwrap(), [1]);
    }

    #[test]
    fn raw_files_are_recognised_by_their_content() {
        let mut file = Vec::new();
        for i in 0..5 {
            file.extend(record_header(T.after(std::time::Duration::from_millis(i)), 4, 60));
            file.extend(b"data");
        }
        assert_eq!(Reader::open(&file[..]).unwrap().format(), Format::Raw);
        assert_eq!(
            Reader::open(&file[..16]).unwrap().format(),
            Format::Raw,
            "one record that ends at the end of the file suffices"
        );
        let padded = [&padding_header(2)[..], b"zz", &file].concat();
        assert_eq!(Reader::open(&padded[..]).unwrap().format(), Format::Raw);
        assert!(Reader::open(&file[..15]).is_err());
        assert!(Reader::open(&[0; 4096][..]).is_err(), "a file of zeros is not recognised as RAW");
        assert_eq!(lengths(&[0; 48]).unwrap(), []);
        let mut prng = base::Prng::new(11);
        for _ in 0..20_000 {
            let mut junk = [0; 64];
            prng.fill(&mut junk);
            assert!(Reader::open(&junk[..]).is_err(), "{junk:?}");
        }
    }
}
