//! Finds the complete records of a damaged capture. If the chain of records is broken, the scan searches for the next
//! offset at which several plausible records follow each other, or at which a record begins that ends exactly at the
//! end of the file. If that offset is within the record before the break, the length of that record was wrong, and the
//! record is omitted.

use crate::packet_file::Window;
use pcap::{MAX_BLOCK, MAX_PACKET};
use std::io;
use std::ops::Range;
use store::device::Device;

/// Number of successive plausible records that confirm the offset of the first of them.
const TIME_STEP_MAX: usize = 3;

/// The largest plausible difference between the timestamps of neighbouring packets, in seconds.
const NEIGHBOURS: u32 = 86_400;

/// The type of the block at the begin of each section of a pcapng file, which is the same in both byte orders.
const SECTION_HEADER: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// The types of pcapng blocks with a packet: the obsolete Packet Block, Simple Packet Block and Enhanced Packet Block.
const PACKET_BLOCKS: [u32; 3] = [2, 3, 6];

/// The complete records of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SalvageResult {
    /// Byte ranges of the file that are kept, the file header first.
    pub kept: Vec<Range<u64>>,
    /// Number of packets in the kept ranges.
    pub packets: u64,
    /// Number of bytes of the file that are in none of the kept ranges.
    pub left_out: u64,
}

/// The format of a capture, for the recognition of records.
#[derive(Clone, Copy, Debug)]
enum CaptureFormat {
    Classic { big: bool, units: u32, header: usize },
    Ng { big: bool },
    Raw,
}

/// The reason to search for a record at an offset.
#[derive(Clone, Copy, Debug)]
enum RecordSearch {
    /// The previous record ends at this offset.
    Chain,
    /// The chain of records is broken, and may continue at this offset. The field is the timestamp of the previous
    /// packet in seconds, if it is known.
    Resuming(Option<u32>),
}

/// A complete record: the offset of its end, and the second of its timestamp, if the record has a timestamp.
#[derive(Clone, Copy, Debug)]
struct ChainedRecord {
    end: u64,
    second: Option<u32>,
    /// True if the captured length is zero.
    empty: bool,
    /// True if the record has a packet; other blocks of pcapng describe interfaces or have statistics, for example.
    is_packet: bool,
}

/// Finds the complete records.
///
/// # Errors
/// Any error that the device returns; `InvalidData` if the file header is not recognised or not complete.
pub fn find<D: Device>(window: &mut Window<'_, D>, name: &str) -> io::Result<SalvageResult> {
    let head = window.get(0, 24)?.to_vec();
    let Some((format, begin)) = format(&head, name) else {
        let why = "the first bytes are not those of a capture (pcap, pcapng, or RAW in a file whose name ends in .raw)";
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    };
    if window.size() < begin {
        let why = format!("the file has {} bytes, fewer than its file header of {begin} bytes", window.size());
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let mut out = SalvageResult::default();
    let mut keep = |from: u64, to: u64| match out.kept.last_mut() {
        Some(last) if last.end == from => last.end = to,
        _ => out.kept.push(from..to),
    };
    keep(0, begin);
    // The record before `at` is kept only after the next record has confirmed its length.
    let (mut at, mut before, mut second): (u64, Option<(u64, bool)>, Option<u32>) = (begin, None, None);
    let mut packets = 0;
    while at < window.size() {
        if let Some(link) = format.link(window, at, RecordSearch::Chain)? {
            if let Some((from, is_packet)) = before {
                keep(from, at);
                packets += u64::from(is_packet);
            }
            second = link.second.or(second);
            before = Some((at, link.is_packet));
            at = link.end;
            continue;
        }
        let from = before.map_or(at, |(from, _)| from + 1);
        let next = match format.resume(window, from.max(begin), second)? {
            // No packet within a day of the previous packet was found. The pause in the traffic may have been longer,
            // so the search continues and accepts any time.
            None if second.is_some() => format.resume(window, from.max(begin), None)?,
            next => next,
        };
        if let Some((from, is_packet)) = before.take()
            && next.is_none_or(|next| next >= at)
        {
            keep(from, at);
            packets += u64::from(is_packet);
        }
        match next {
            Some(next) => at = next,
            None => break,
        }
    }
    if let Some((from, is_packet)) = before {
        keep(from, at);
        packets += u64::from(is_packet);
    }
    out.packets = packets;
    if let CaptureFormat::Ng { .. } = format
        && let Some(first) = out.kept.iter().find(|kept| !kept.is_empty())
        && window.get(first.start, SECTION_HEADER.len())? != SECTION_HEADER
    {
        // No program can read the blocks of a section without the header of the section.
        let why = "the header of the first section (Section Header Block of pcapng) is damaged";
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    out.left_out = window.size() - out.kept.iter().map(|k| k.end - k.start).sum::<u64>();
    Ok(out)
}

fn format(head: &[u8], name: &str) -> Option<(CaptureFormat, u64)> {
    let first = head.first_chunk::<4>()?;
    for big in [false, true] {
        let (units, header) = match if big { u32::from_be_bytes(*first) } else { u32::from_le_bytes(*first) } {
            0xa1b2_c3d4 => (1_000_000, 16),
            0xa1b2_3c4d => (1_000_000_000, 16),
            0xa1b2_cd34 => (1_000_000, 24),
            _ => continue,
        };
        return Some((CaptureFormat::Classic { big, units, header }, pcap::classic::FILE_HEADER as u64));
    }
    if *first == SECTION_HEADER {
        return Some((CaptureFormat::Ng { big: head.get(8..12) == Some(&[0x1a, 0x2b, 0x3c, 0x4d]) }, 0));
    }
    name.ends_with(".raw").then_some((CaptureFormat::Raw, 0))
}

impl CaptureFormat {
    /// The record at offset `at`, if it is plausible and complete.
    fn link<D: Device>(
        self,
        window: &mut Window<'_, D>,
        at: u64,
        asked: RecordSearch,
    ) -> io::Result<Option<ChainedRecord>> {
        let size = window.size();
        let head = window.get(at, 28)?;
        let word = |i: usize, big: bool| {
            let bytes: [u8; 4] = head.get(4 * i..4 * i + 4)?.try_into().ok()?;
            Some(if big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
        };
        let fits = |second: u32, wire: u32| match asked {
            // Zeros are preallocated space, not a packet.
            _ if wire == 0 => false,
            RecordSearch::Chain | RecordSearch::Resuming(None) => true,
            RecordSearch::Resuming(Some(previous_second)) => previous_second.abs_diff(second) <= NEIGHBOURS,
        };
        let link = match self {
            Self::Classic { big, units, header } => (|| {
                let (second, part, caplen, wire) = (word(0, big)?, word(1, big)?, word(2, big)?, word(3, big)?);
                let sound = part < units && caplen <= MAX_PACKET && caplen <= wire && wire <= MAX_BLOCK;
                let end = at + header as u64 + u64::from(caplen);
                (sound && fits(second, wire)).then_some(ChainedRecord {
                    end,
                    second: Some(second),
                    empty: caplen == 0,
                    is_packet: true,
                })
            })(),
            Self::Raw => (|| {
                let (second, part, lengths) = (word(0, false)?, word(1, false)?, word(2, false)?);
                let (caplen, wire) = (lengths & 0xffff, lengths >> 16);
                let end = at + pcap::raw::RECORD_HEADER as u64 + u64::from(caplen);
                if (second, part) == (0, 0) {
                    return (caplen == wire && caplen > 0).then_some(ChainedRecord {
                        end,
                        second: None,
                        empty: false,
                        is_packet: true,
                    });
                }
                let sound = part < 1_000_000_000 && caplen <= wire;
                (sound && fits(second, wire)).then_some(ChainedRecord {
                    end,
                    second: Some(second),
                    empty: caplen == 0,
                    is_packet: true,
                })
            })(),
            Self::Ng { big } => (|| {
                let (kind, len) = (word(0, big)?, word(1, big)?);
                let known = matches!(kind, 1..=11 | 0x0a0d_0d0a | 0xbad | 0x4000_0bad);
                let sound = known && len.is_multiple_of(4) && (12..=MAX_BLOCK).contains(&len);
                sound.then_some(ChainedRecord {
                    end: at + u64::from(len),
                    second: None,
                    empty: false,
                    is_packet: PACKET_BLOCKS.contains(&kind),
                })
            })(),
        };
        let Some(link) = link.filter(|link| link.end <= size) else { return Ok(None) };
        if let Self::Ng { .. } = self {
            let first = window.get(at + 4, 4)?.to_vec();
            return Ok((window.get(link.end - 4, 4)? == first).then_some(link));
        }
        Ok(Some(link))
    }

    /// The first offset from `from` on at which the chain of records continues.
    fn resume<D: Device>(
        self,
        window: &mut Window<'_, D>,
        from: u64,
        previous_second: Option<u32>,
    ) -> io::Result<Option<u64>> {
        let step = if matches!(self, Self::Ng { .. }) { 4 } else { 1 };
        let mut at = from.next_multiple_of(step);
        while at < window.size() {
            if self.is_plausible(window, at, previous_second)? {
                return Ok(Some(at));
            }
            at += step;
        }
        Ok(None)
    }

    fn is_plausible<D: Device>(
        self,
        window: &mut Window<'_, D>,
        at: u64,
        previous_second: Option<u32>,
    ) -> io::Result<bool> {
        let (mut next, mut previous_second) = (at, previous_second);
        for _ in 0..TIME_STEP_MAX {
            let Some(link) = self.link(window, next, RecordSearch::Resuming(previous_second))? else {
                return Ok(false);
            };
            // A record without captured bytes is not accepted as the begin of a chain, because its fields are too few
            // to confirm it.
            if next == at && link.empty {
                return Ok(false);
            }
            previous_second = link.second.or(previous_second);
            next = link.end;
            if next == window.size() {
                return Ok(true);
            }
        }
        Ok(true)
    }
}
