//! The counters of one socket, and the end of a capture.
//!
//! The kernel hands over a block when it is full or its retire time is over, so frames that passed the filter just
//! before a stop may still be in a block. Such frames are called *owed*. The capture ends when the number of frames
//! that the kernel has put into the ring equals the number of frames that this source has taken out of the ring.

use crate::Counts;
use base::Cause;
use std::io;
use std::time::{Duration, Instant};
use sys::packet::{PacketSocket, Statistics};

/// Time after a stop after which the frames that the kernel has still not handed over are counted as lost. The kernel
/// hands over each frame within the retire time, unless its timers are delayed; the capture must end even then.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Cumulative counts of one socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketCounts {
    /// Frames that passed the filter, as counted by the kernel.
    packets: u64,
    /// Frames that passed the filter but found no space in the ring; `packets` includes them.
    drops: u64,
    /// Frames that this process has delivered to the caller, counted by this process.
    pub delivered: u64,
    /// Frames that the source could not read from a block of the ring, and frames that the kernel had not handed over
    /// when the capture ended.
    pub broken: u64,
    /// Frames that the NIC missed; not part of `packets`.
    pub nic: u64,
}

impl SocketCounts {
    /// Adds the kernel's counters since the last call; reading resets them.
    pub fn absorb(&mut self, socket: &PacketSocket) -> io::Result<()> {
        self.add(socket.take_statistics()?);
        Ok(())
    }

    fn add(&mut self, statistics: Statistics) {
        self.packets += u64::from(statistics.packets);
        self.drops += u64::from(statistics.drops);
    }

    /// Frames that the kernel put into the ring and that were not taken out yet.
    pub fn owed(&self) -> u64 {
        self.packets.saturating_sub(self.drops + self.delivered + self.broken)
    }

    /// Counts the frames that the kernel has not handed over as lost by the source.
    pub fn give_up(&mut self) {
        self.broken += self.owed();
    }

    /// Converts to [`Counts`]. `seen` begins at the socket, so it does not contain the frames that the NIC missed.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts { seen: Some(self.packets), ..Counts::default() };
        counts.lost[Cause::ReceiveFull as usize] = self.drops;
        counts.lost[Cause::Source as usize] = self.broken;
        counts.lost[Cause::Nic as usize] = self.nic;
        counts
    }
}

/// A drain in progress.
#[derive(Clone, Copy, Debug)]
pub struct Drain {
    since: Instant,
    /// Until this time, the kernel's count may lack a frame that passed the filter just before the filter began to
    /// refuse all frames.
    quiet_until: Instant,
    /// True if the capture ends because the interface disappeared, false if it ends because of a stop.
    pub gone: bool,
}

impl Drain {
    /// Begins a drain at `now`.
    pub fn begin(now: Instant, retire: Duration, gone: bool) -> Self {
        Self { since: now, quiet_until: now + retire, gone }
    }

    /// True if the capture may end as soon as the source has taken all frames out of the ring.
    pub fn may_be_over(&self, now: Instant) -> bool {
        now >= self.quiet_until
    }

    /// True if the drain has lasted so long that the capture ends although the kernel has not handed over all frames.
    pub fn must_be_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= TIMEOUT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_32_bits_are_summed_in_64_bits() {
        let mut account = SocketCounts::default();
        for _ in 0..3 {
            account.add(Statistics { packets: u32::MAX, drops: u32::MAX / 2, freezes: 1 });
        }
        assert_eq!(account.counts().seen, Some(3 * u64::from(u32::MAX)));
        assert_eq!(account.counts().lost[Cause::ReceiveFull as usize], 3 * u64::from(u32::MAX / 2));
    }

    #[test]
    fn owed_frames_that_never_arrive_are_counted_as_lost_without_residue() {
        let mut account = SocketCounts { delivered: 5, broken: 1, nic: 100, ..SocketCounts::default() };
        account.add(Statistics { packets: 20, drops: 8, freezes: 0 });
        assert_eq!(account.owed(), 6);
        account.give_up();
        let counts = account.counts();
        let lost: u64 = counts.lost.iter().sum::<u64>() - counts.lost[Cause::Nic as usize];
        assert_eq!((counts.lost[Cause::Source as usize], counts.seen), (7, Some(account.delivered + lost)));
    }

    #[test]
    fn a_drain_waits_for_the_retire_time_but_not_beyond_the_timeout() {
        let start = Instant::now();
        let drain = Drain::begin(start, Duration::from_millis(4), false);
        assert!(!drain.may_be_over(start) && drain.may_be_over(start + Duration::from_millis(4)));
        assert!(!drain.must_be_over(start + Duration::from_secs(1)) && drain.must_be_over(start + TIMEOUT));
    }
}
