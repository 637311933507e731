//! The timestamps that an aggregation switch added to frames: they replace the timestamps of the capture, and the bytes
//! of the switch are removed from the frames.

use base::Timestamp;
use capture::Frame;
use std::time::Duration;
use timestamping::SwitchTimestamps;
use wire::link;

/// Reads the timestamps of one format.
#[derive(Debug)]
pub struct SwitchStamps {
    format: SwitchTimestamps,
    /// The bytes of a frame without those of the switch, if these were not at the end of the frame.
    cut: Vec<u8>,
    /// The longest time by which the switch's time of a frame was before the time of the capture.
    lag: Duration,
}

impl SwitchStamps {
    /// `None` if no timestamps are to be read.
    pub fn new(format: SwitchTimestamps) -> Option<Self> {
        (format != SwitchTimestamps::Off).then(|| Self { format, cut: Vec::new(), lag: Duration::ZERO })
    }

    /// The frame without the bytes of the switch, and the switch's timestamp. `received` is the time of the capture.
    /// `None` if the frame has no timestamp of the format, was captured in part, or was merged from several frames.
    #[inline]
    pub fn read<'a>(
        &'a mut self,
        frame: &Frame<'a>,
        link_type: u16,
        received: Timestamp,
    ) -> Option<(Frame<'a>, Timestamp)> {
        if link_type != link::ETHERNET || frame.super_frame || frame.bytes.len() != frame.wire_len as usize {
            return None;
        }
        let found = self.format.read(frame.bytes, received)?;
        let (before, after) = (&frame.bytes[..found.offset], &frame.bytes[found.offset + found.bytes..]);
        let bytes = if after.is_empty() {
            before
        } else {
            self.cut.clear();
            self.cut.extend_from_slice(before);
            self.cut.extend_from_slice(after);
            &self.cut
        };
        self.lag = self.lag.max(received.since(found.time));
        Some((Frame { bytes, wire_len: bytes.len() as u32, ..*frame }, found.time))
    }

    /// The longest time by which the switch's time of a frame was before the time of the capture.
    pub fn lag(&self) -> Duration {
        self.lag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamped() -> Vec<u8> {
        let mut frame = vec![0x55; 64];
        frame.extend([1, 2, 3, 4]);
        frame.extend(1_700_000_000u32.to_be_bytes());
        frame.extend([0, 0, 0, 5, 0, 0, 1, 2]);
        frame
    }

    #[test]
    fn a_frame_that_is_not_complete_or_not_single_keeps_its_bytes() {
        let bytes = stamped();
        let received = Timestamp::from_secs_nanos(1_700_000_002, 0);
        let mut stamps = SwitchStamps::new(SwitchTimestamps::Metawatch).expect("a format");
        let whole = Frame::new(&bytes);
        for frame in [Frame { wire_len: 81, ..whole }, Frame { super_frame: true, ..whole }] {
            assert!(stamps.read(&frame, link::ETHERNET, received).is_none());
        }
        assert!(stamps.read(&whole, 113, received).is_none(), "no Ethernet");
        let (frame, time) = stamps.read(&whole, link::ETHERNET, received).expect("a timestamp");
        assert_eq!((frame.bytes.len(), frame.wire_len, time.nanos()), (64, 64, 1_700_000_000_000_000_005));
        assert_eq!(stamps.lag(), Duration::from_nanos(1_999_999_995));
        assert!(SwitchStamps::new(SwitchTimestamps::Off).is_none());
    }
}
