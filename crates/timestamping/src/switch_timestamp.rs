//! Timestamps that aggregation switches add to the frames that they forward.
//!
//! All numbers are big-endian; the FCS that follows the frame is not captured.
//!
//! ```text
//! MetaWatch (Arista 7130, earlier Metamako), at the end of the frame
//!   original FCS (4) · extensions · seconds (4) · nanoseconds (4) · flags (1) · device (2) · port (1)
//!   flags       01 the original FCS was valid · 02 extensions · 04 duplicate · 10 degraded clock · 20 block type
//!   extension   data · 3 bytes · length and type (1): type in bits 0 to 4, 20 the last one, length in bits 6 and 7
//!               type 1f: a header of 4 bytes with a length of 10 bits in bits 6 to 15
//! Arista 7280R and 7500R, between the MAC addresses and the EtherType of the frame
//!   d2 8b (2) · 00 01 (2) · time scale (1): 0 TAI, 1 UTC · format and hardware (1): format in bits 4 to 7
//!   format 1: seconds (4) · nanoseconds (4)        format 2: lower half of the seconds (2) · nanoseconds (4)
//! ```
//! Extensions are read from the end of the frame towards its beginning: the header of an extension follows its data.
//! Times are UTC, or TAI, which is ahead of UTC by [`TAI_AHEAD_SECONDS`].
//!
//! Sources: the dissector packet-metamako.c of Wireshark for MetaWatch; the description in print-arista.c of tcpdump,
//! which cites "Overview of Arista timestamps", for the header of the 7280R and 7500R.
//!
//! A trailer has no magic number. So [`SwitchTimestamps::read`] accepts it only if its undefined flags are zero, its
//! nanoseconds are less than a second, and its time is within [`DIFFERENCE_MAX`] of the time of the capture.

use base::Timestamp;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The largest difference between the clock of the switch and that of the capture. Random bytes in the place of a
/// trailer are then accepted in about one of 800 000 frames.
pub const DIFFERENCE_MAX: Duration = Duration::from_secs(24 * 3600);

/// TAI less UTC since 2017-01-01, in seconds (IERS bulletin C).
pub const TAI_AHEAD_SECONDS: u64 = 37;

const NANOS: u32 = 1_000_000_000;

/// The format of the timestamps that a switch adds: the value of `capture.switch_timestamps`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SwitchTimestamps {
    /// No switch timestamp is read: each frame keeps its bytes and the timestamp of the capture.
    #[default]
    Off,
    /// The trailer of MetaWatch.
    Metawatch,
    /// The header of the Arista 7280R and 7500R.
    AristaHeader,
}

/// The timestamp of a frame, and the bytes that the switch added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchTimestamp {
    /// The time at which the switch received the frame.
    pub time: Timestamp,
    /// Offset in the frame of the first byte that the switch added.
    pub offset: usize,
    /// Number of bytes that the switch added.
    pub bytes: usize,
}

/// The text is not the name of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseSwitchTimestampsError {
    text: String,
}

/// Offsets from the end of the frame to the fields of a MetaWatch trailer.
mod metawatch {
    pub const FLAGS: usize = 4;
    pub const NANOS: usize = 8;
    pub const SECONDS: usize = 12;
    /// The length of the trailer without the original FCS and the extensions.
    pub const FIXED: usize = 12;
    pub const ORIGINAL_FCS: usize = 4;
    pub const HAS_EXTENSIONS: u8 = 0x02;
    pub const UNDEFINED: u8 = 0xc8;
    /// The largest number of extensions that are read, more than switches add. The limit bounds the work for a frame
    /// with random bytes.
    pub const EXTENSIONS_MAX: usize = 16;
}

/// Offsets in a frame with a header of the 7280R.
mod arista {
    pub const HEADER: usize = 12;
    pub const TIME_SCALE: usize = HEADER + 4;
    pub const FORMAT: usize = HEADER + 5;
    pub const TIME: usize = HEADER + 6;
    /// EtherType and subtype.
    pub const BEGIN: [u8; 4] = [0xd2, 0x8b, 0x00, 0x01];
}

/// The length of an Ethernet header. A frame without the bytes of the switch has at least this length.
const ETHERNET_HEADER: usize = 14;

impl SwitchTimestamps {
    /// All formats.
    pub const ALL: [Self; 3] = [Self::Off, Self::Metawatch, Self::AristaHeader];

    /// The name in the configuration file and on the command line (`--switch-timestamps`).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Metawatch => "metawatch",
            Self::AristaHeader => "arista-header",
        }
    }

    /// The timestamp in an Ethernet frame, all of whose bytes are given. `received` is the time of the capture, which
    /// completes a short timestamp and excludes bytes that are no timestamp. `None` if the frame contains no timestamp
    /// of this format.
    #[inline]
    pub fn read(self, frame: &[u8], received: Timestamp) -> Option<SwitchTimestamp> {
        match self {
            Self::Off => None,
            Self::Metawatch => metawatch_trailer(frame, received),
            Self::AristaHeader => arista_header(frame, received),
        }
    }
}

fn metawatch_trailer(frame: &[u8], received: Timestamp) -> Option<SwitchTimestamp> {
    let end = frame.len();
    let mut begin = end.checked_sub(metawatch::FIXED)?;
    let flags = frame[end - metawatch::FLAGS];
    let nanos = word(frame, end - metawatch::NANOS)?;
    if flags & metawatch::UNDEFINED != 0 || nanos >= NANOS {
        return None;
    }
    let seconds = word(frame, end - metawatch::SECONDS)?;
    let time = plausible(Timestamp::from_secs_nanos(seconds.into(), nanos.into()), received)?;
    if flags & metawatch::HAS_EXTENSIONS != 0 {
        begin = before_extensions(frame, begin)?;
    }
    let offset = begin.checked_sub(metawatch::ORIGINAL_FCS).filter(|offset| *offset >= ETHERNET_HEADER)?;
    Some(SwitchTimestamp { time, offset, bytes: end - offset })
}

/// The offset of the first extension; the last extension ends at `end`.
fn before_extensions(frame: &[u8], end: usize) -> Option<usize> {
    const TYPE: u32 = 0x1f;
    const LAST: u32 = 0x20;
    let mut begin = end;
    for _ in 0..metawatch::EXTENSIONS_MAX {
        let header = word(frame, begin.checked_sub(4)?)?;
        let words = if header & TYPE == TYPE { (header >> 6 & 0x3ff) + 1 } else { header >> 6 & 0x3 };
        begin = begin.checked_sub(4 + 4 * words as usize)?;
        if header & LAST != 0 {
            return Some(begin);
        }
    }
    None
}

fn arista_header(frame: &[u8], received: Timestamp) -> Option<SwitchTimestamp> {
    if frame.get(arista::HEADER..)?.first_chunk() != Some(&arista::BEGIN) {
        return None;
    }
    let is_utc = match frame.get(arista::TIME_SCALE)? {
        0 => false,
        1 => true,
        _ => return None,
    };
    let ahead = if is_utc { 0 } else { TAI_AHEAD_SECONDS };
    let (seconds, nanos, end) = match frame.get(arista::FORMAT)? >> 4 {
        1 => (u64::from(word(frame, arista::TIME)?), word(frame, arista::TIME + 4)?, arista::TIME + 8),
        2 => {
            let lower = frame.get(arista::TIME..)?.first_chunk().map(|half| u16::from_be_bytes(*half))?;
            let seconds = nearest(received.secs() + ahead, lower);
            (seconds, word(frame, arista::TIME + 2)?, arista::TIME + 6)
        }
        _ => return None,
    };
    // The EtherType of the original frame follows.
    if nanos >= NANOS || frame.len() < end + 2 {
        return None;
    }
    let time = Timestamp::from_secs_nanos(seconds.checked_sub(ahead)?, nanos.into());
    let time = plausible(time, received)?;
    Some(SwitchTimestamp { time, offset: arista::HEADER, bytes: end - arista::HEADER })
}

/// The number of seconds nearest to `near` with these lower 16 bits.
fn nearest(near: u64, lower: u16) -> u64 {
    let ahead = lower.wrapping_sub(near as u16) as i16;
    near.saturating_add_signed(ahead.into())
}

fn plausible(time: Timestamp, received: Timestamp) -> Option<Timestamp> {
    let difference = Duration::from_nanos(time.nanos().abs_diff(received.nanos()));
    (difference <= DIFFERENCE_MAX).then_some(time)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_be_bytes(*word))
}

impl FromStr for SwitchTimestamps {
    type Err = ParseSwitchTimestampsError;

    fn from_str(text: &str) -> Result<Self, ParseSwitchTimestampsError> {
        let found = Self::ALL.into_iter().find(|format| format.name() == text);
        found.ok_or_else(|| ParseSwitchTimestampsError { text: text.to_owned() })
    }
}

impl fmt::Display for SwitchTimestamps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for ParseSwitchTimestampsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = SwitchTimestamps::ALL.map(SwitchTimestamps::name).join(", ");
        write!(f, "'{}' is not a format of switch timestamps: use one of {names}", self.text)
    }
}

impl std::error::Error for ParseSwitchTimestampsError {}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    const RECEIVED: Timestamp = Timestamp::from_nanos(1_700_000_000_123_456_789);

    fn original(prng: &mut Prng, len: usize) -> Vec<u8> {
        let mut frame = vec![0; len];
        prng.fill(&mut frame);
        frame[12..14].copy_from_slice(&[8, 0]);
        frame
    }

    /// The frame with a MetaWatch trailer and these extensions: type, then words of data.
    fn metawatch(frame: &[u8], time: Timestamp, extensions: &[(u32, u32)]) -> Vec<u8> {
        let mut out = frame.to_vec();
        out.extend([1, 2, 3, 4]);
        // The extension that is read last is the first in the frame.
        for (nth, (kind, words)) in extensions.iter().enumerate() {
            out.extend(vec![0xee; 4 * *words as usize]);
            let last = if nth == 0 { 0x20 } else { 0 };
            let length = if *kind == 0x1f { words - 1 } else { *words };
            out.extend((length << 6 | last | kind).to_be_bytes());
        }
        out.extend((time.secs() as u32).to_be_bytes());
        out.extend(time.subsec_nanos().to_be_bytes());
        out.push(if extensions.is_empty() { 0x01 } else { 0x03 });
        out.extend([0, 7, 9]);
        out
    }

    fn arista(frame: &[u8], time: Timestamp, scale: u8, format: u8) -> Vec<u8> {
        let mut out = frame[..12].to_vec();
        out.extend([0xd2, 0x8b, 0, 1, scale, format << 4 | 1]);
        let seconds = time.secs() + if scale == 0 { TAI_AHEAD_SECONDS } else { 0 };
        let seconds = (seconds as u32).to_be_bytes();
        out.extend(if format == 1 { &seconds[..] } else { &seconds[2..] });
        out.extend(time.subsec_nanos().to_be_bytes());
        out.extend(&frame[12..]);
        out
    }

    fn cut(frame: &[u8], found: SwitchTimestamp) -> Vec<u8> {
        [&frame[..found.offset], &frame[found.offset + found.bytes..]].concat()
    }

    #[test]
    fn each_format_is_read_and_cut_off_completely() {
        let mut prng = Prng::new(5);
        for round in 0..5000 {
            let len = 60 + prng.below(1455) as usize;
            let frame = original(&mut prng, len);
            // The clock of the switch is up to 16 hours ahead or behind.
            let time = RECEIVED
                .before(Duration::from_secs(16 * 3600))
                .after(Duration::from_nanos(prng.below(115_200_000_000_000)));
            let extensions = [(0, 1), (1, 1), (2, 2), (3, 1), (0x1f, 1 + prng.below(9) as u32), (7, 0)];
            let extensions = &extensions[..prng.below(7) as usize];
            let stamped = metawatch(&frame, time, extensions);
            let found = SwitchTimestamps::Metawatch.read(&stamped, RECEIVED).expect("a trailer");
            assert_eq!((found.time, cut(&stamped, found)), (time, frame.clone()), "round {round}: {extensions:?}");
            let (scale, format) = (prng.below(2) as u8, 1 + prng.below(2) as u8);
            // A timestamp of 48 bits is complete only within nine hours.
            let near = RECEIVED
                .before(Duration::from_secs(9 * 3600))
                .after(Duration::from_nanos(prng.below(64_800_000_000_000)));
            let time = if format == 1 { time } else { near };
            let stamped = arista(&frame, time, scale, format);
            let found = SwitchTimestamps::AristaHeader.read(&stamped, RECEIVED).expect("a header");
            assert_eq!((found.time, cut(&stamped, found)), (time, frame), "round {round}: {scale} {format}");
        }
    }

    #[test]
    fn bytes_that_are_no_timestamp_are_left_in_the_frame() {
        let mut prng = Prng::new(6);
        let frame = original(&mut prng, 100);
        let stamped = metawatch(&frame, RECEIVED, &[]);
        let changed = |at: usize, value: u8| {
            let mut changed = stamped.clone();
            changed[at] = value;
            SwitchTimestamps::Metawatch.read(&changed, RECEIVED)
        };
        assert_eq!(stamped.len(), 116);
        assert!(changed(115, 0).is_some(), "another port");
        assert_eq!(changed(112, 0x41), None, "an undefined flag");
        let mut endless = metawatch(&[0; 100], RECEIVED, &[]);
        endless[100..104].fill(0);
        endless[112] = 0x03;
        assert_eq!(SwitchTimestamps::Metawatch.read(&endless, RECEIVED), None, "extensions that never end");
        assert_eq!(changed(108, 0xff), None, "more than a second of nanoseconds");
        assert_eq!(changed(104, 0), None, "a time decades ago");
        assert_eq!(
            SwitchTimestamps::Metawatch.read(&stamped[100 - 13..], RECEIVED),
            None,
            "no Ethernet header remains"
        );
        assert_eq!(SwitchTimestamps::Off.read(&stamped, RECEIVED), None);
        let stamped = arista(&frame, RECEIVED, 1, 1);
        for length in 0..28 {
            assert_eq!(SwitchTimestamps::AristaHeader.read(&stamped[..length], RECEIVED), None, "{length} bytes");
        }
        for (at, value) in [(13, 0), (15, 2), (16, 2), (17, 0x31), (18, 0), (22, 0xff)] {
            let mut changed = stamped.clone();
            changed[at] = value;
            assert_eq!(SwitchTimestamps::AristaHeader.read(&changed, RECEIVED), None, "byte {at}");
        }
    }

    #[test]
    fn random_bytes_are_rarely_a_trailer_and_never_cause_a_panic() {
        let mut prng = Prng::new(7);
        let mut accepted = 0;
        for _ in 0..200_000 {
            let len = prng.below(128) as usize;
            let mut frame = vec![0; len];
            prng.fill(&mut frame);
            for format in SwitchTimestamps::ALL {
                if let Some(found) = format.read(&frame, RECEIVED) {
                    accepted += 1;
                    assert!(found.offset + found.bytes <= len);
                }
            }
        }
        assert!(accepted <= 3, "{accepted} frames of random bytes were accepted");
    }

    #[test]
    fn each_format_has_a_name_that_is_read_back() {
        for format in SwitchTimestamps::ALL {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        let error = "metamako".parse::<SwitchTimestamps>().expect_err("no format").to_string();
        assert!(error.contains("'metamako'") && error.contains("off, metawatch, arista-header"), "{error}");
    }
}
