//! Classifies one stored frame: whether the generator sent it, whether it is intact, and its sequence number and
//! departure time.

use crate::crc::crc32c;
use std::ops::Range;

mod at {
    use super::Range;
    pub const TO: Range<usize> = 0..3;
    pub const FROM: Range<usize> = 6..9;
    pub const MAGIC: Range<usize> = 42..44;
    pub const SEQUENCE: Range<usize> = 44..50;
    pub const DEPARTURE: Range<usize> = 50..56;
}

const MAC: [u8; 3] = [0x02, 0x6e, 0x67];
const MAGIC: [u8; 2] = [0x6e, 0x67];
const MIN: usize = 60;

/// Whether a stored frame is a frame of the generator, and whether it is complete and intact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameState {
    Foreign,
    /// A frame of the generator whose CRC contradicts its bytes. `claimed` is the sequence number in the frame, if the
    /// frame is long enough to contain it.
    Damaged {
        claimed: Option<u64>,
    },
    /// A frame of the generator of which only the first bytes are stored.
    Truncated {
        claimed: Option<u64>,
    },
    Complete {
        sequence: u64,
        departure: u64,
    },
}

pub(crate) fn judge(bytes: &[u8], wire_len: u32) -> FrameState {
    let marks =
        [bytes.get(at::TO) == Some(&MAC), bytes.get(at::FROM) == Some(&MAC), bytes.get(at::MAGIC) == Some(&MAGIC)];
    if marks.iter().filter(|m| **m).count() < 2 {
        return FrameState::Foreign;
    }
    let claimed = bytes.get(at::SEQUENCE).map(number);
    if bytes.len() < wire_len as usize {
        return FrameState::Truncated { claimed };
    }
    match bytes.split_last_chunk() {
        Some((body, crc)) if bytes.len() >= MIN && crc32c(body) == u32::from_be_bytes(*crc) => {
            FrameState::Complete { sequence: number(&bytes[at::SEQUENCE]), departure: number(&bytes[at::DEPARTURE]) }
        }
        _ => FrameState::Damaged { claimed },
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b))
}
