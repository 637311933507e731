//! Chooses the next source of a tail after the last packet of its file, and counts the attempts to read a packet that
//! is neither in the file nor in the ring.

use std::time::{Duration, Instant};

/// The number of attempts to read the next packet from file and ring, if it is in neither.
const ATTEMPTS: u32 = 5;

/// The source in which a tail searches for the packet after the indexed part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextSource {
    /// The ring, from the position of the packet on. `is_sure` is true if the ring contains all packets from this
    /// position on.
    Ring { is_sure: bool },
    /// The file and the ring are read again after a pause: the ring has overwritten packets, so the recorder has
    /// written them to the file, but perhaps not yet to its index.
    AgainAfterPause,
    /// The directory is listed again, because the previous listing may have missed the next file during a rename.
    Again,
    /// A later file, because the files before it were removed.
    LaterFile,
    /// No source at this moment: the recorder that the query follows has written no further packet.
    Wait,
    /// No further packet can follow, neither in the ring nor in a file, so the query ends.
    End,
}

/// The observations about ring, directory and recorder from which the tail chooses its [`NextSource`].
#[derive(Clone, Copy, Debug)]
pub struct Findings {
    /// True if the ring contains all packets from the position of the next packet on; `None` without a ring reader.
    pub is_in_ring: Option<bool>,
    /// True if the directory contains a later file that does not directly follow the last file in the stream.
    pub has_later_file: bool,
    /// Number of earlier attempts at this position.
    pub attempts: u32,
    /// True if the query follows a recorder that has not ended.
    pub follows: bool,
}

impl Findings {
    /// Chooses the next source. After [`ATTEMPTS`] attempts, the ring is read although packets may be missing in it.
    /// Then either the overwritten bytes contained no packet, or the recorder could not write a packet to disk. The
    /// next descriptor of the ring shows which of the two cases applies.
    pub fn next_source(self) -> NextSource {
        match (self.is_in_ring, self.has_later_file) {
            (Some(true), _) => NextSource::Ring { is_sure: true },
            (Some(false), false) if self.attempts >= ATTEMPTS => NextSource::Ring { is_sure: false },
            (Some(false), false) => NextSource::AgainAfterPause,
            (_, true) if self.attempts > 0 => NextSource::LaterFile,
            (_, true) => NextSource::Again,
            (None, false) if self.follows => NextSource::Wait,
            (None, false) => NextSource::End,
        }
    }
}

/// Counts the attempts to read the next packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attempts {
    /// The stream position of a packet that could not be read, and the number of attempts.
    failed: Option<(u64, u32)>,
    /// The stream position for which the tail waits, and the begin of the wait.
    waits: Option<(u64, Instant)>,
}

impl Attempts {
    /// Counts an attempt at a stream position; returns the number of earlier attempts at this position.
    pub fn count(&mut self, pos: u64) -> u32 {
        let before = self.failed.filter(|(at, _)| *at == pos).map_or(0, |(_, count)| count);
        self.failed = Some((pos, before + 1));
        before
    }

    /// Clears the attempts after a packet was read.
    pub fn clear(&mut self) {
        self.failed = None;
    }

    /// True if the tail has waited at least this long for the packet at this position; the first call begins the wait.
    pub fn has_waited(&mut self, pos: u64, most: Duration, now: Instant) -> bool {
        match self.waits {
            Some((at, since)) if at == pos => now.saturating_duration_since(since) >= most,
            _ => {
                self.waits = Some((pos, now));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_with_all_packets_is_always_read() {
        for (has_later_file, attempts, follows) in [(false, 0, false), (true, 0, true), (true, 9, false)] {
            let findings = Findings { is_in_ring: Some(true), has_later_file, attempts, follows };
            assert_eq!(findings.next_source(), NextSource::Ring { is_sure: true }, "{findings:?}");
        }
    }

    #[test]
    fn an_overtaken_tail_retries_the_file_before_it_skips_in_the_ring() {
        let after = |attempts| Findings { is_in_ring: Some(false), has_later_file: false, attempts, follows: true };
        for attempts in 0..ATTEMPTS {
            assert_eq!(after(attempts).next_source(), NextSource::AgainAfterPause);
        }
        assert_eq!(after(ATTEMPTS).next_source(), NextSource::Ring { is_sure: false });
    }

    #[test]
    fn a_later_file_is_read_at_the_second_attempt() {
        for is_in_ring in [None, Some(false)] {
            let after = |attempts| Findings { is_in_ring, has_later_file: true, attempts, follows: false };
            assert_eq!(after(0).next_source(), NextSource::Again, "{is_in_ring:?}");
            assert_eq!(after(1).next_source(), NextSource::LaterFile, "{is_in_ring:?}");
            assert_eq!(after(ATTEMPTS).next_source(), NextSource::LaterFile, "{is_in_ring:?}");
        }
    }

    #[test]
    fn without_ring_and_file_a_tail_waits_only_for_a_running_recorder() {
        let tail = |follows| Findings { is_in_ring: None, has_later_file: false, attempts: 7, follows };
        assert_eq!((tail(true).next_source(), tail(false).next_source()), (NextSource::Wait, NextSource::End));
    }

    #[test]
    fn attempts_and_waits_are_counted_per_position() {
        let (mut attempts, begun, most) = (Attempts::default(), Instant::now(), Duration::from_secs(10));
        assert_eq!([attempts.count(5), attempts.count(5), attempts.count(6), attempts.count(5)], [0, 1, 0, 0]);
        attempts.clear();
        assert_eq!(attempts.count(5), 0);
        assert!(!attempts.has_waited(5, most, begun));
        assert!(!attempts.has_waited(5, most, begun + most / 2) && attempts.has_waited(5, most, begun + most));
        assert!(!attempts.has_waited(6, most, begun + most), "the wait must begin again at another position");
    }
}
