//! The books of one socket, and the end of a capture.
//!
//! The kernel hands a block over when it is full or its time is up, so that frames let through just before a stop are
//! still on their way. They are owed: the capture ends when the kernel's count of frames that it put into the ring equals
//! ours of frames taken out.

use crate::Counts;
use base::Cause;
use std::io;
use std::time::{Duration, Instant};
use sys::packet::{PacketSocket, Statistics};

/// How long frames may be owed before they are written off. The kernel keeps its promise within the retire time unless
/// its timers starve; a shutdown must end even then.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Cumulative counts of one socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketCounts {
    /// Frames that passed the filter, by the kernel's count.
    packets: u64,
    /// Of them, those that found the ring full.
    drops: u64,
    /// Frames handed over, by ours.
    pub delivered: u64,
    /// Frames that were in a block but could not be read.
    pub broken: u64,
    /// Frames that the card missed; not among `packets`.
    pub nic: u64,
}

impl SocketCounts {
    /// Adds what the kernel counted since the last time, which it forgets in telling.
    pub fn absorb(&mut self, socket: &PacketSocket) -> io::Result<()> {
        self.add(socket.take_statistics()?);
        Ok(())
    }

    fn add(&mut self, news: Statistics) {
        self.packets += u64::from(news.packets);
        self.drops += u64::from(news.drops);
    }

    /// Frames that the kernel put into the ring and that were not taken out yet.
    pub fn owed(&self) -> u64 {
        self.packets.saturating_sub(self.drops + self.delivered + self.broken)
    }

    /// Writes off what is owed, as lost by the source.
    pub fn give_up(&mut self) {
        self.broken += self.owed();
    }

    /// In the words of the contract. `seen` begins at the socket: what the card missed comes on top.
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
    /// A frame that met the filter just before it closed has been counted by then.
    quiet_until: Instant,
    /// The port went away, as opposed to a stop.
    pub gone: bool,
}

impl Drain {
    /// Begins now.
    pub fn begin(now: Instant, retire: Duration, gone: bool) -> Self {
        Self { since: now, quiet_until: now + retire, gone }
    }

    /// Whether the capture may end if nothing is owed.
    pub fn may_be_over(&self, now: Instant) -> bool {
        now >= self.quiet_until
    }

    /// Whether it ends whatever is owed.
    pub fn must_be_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= TIMEOUT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_32_bits_add_up_beyond_them() {
        let mut account = SocketCounts::default();
        for _ in 0..3 {
            account.add(Statistics { packets: u32::MAX, drops: u32::MAX / 2, freezes: 1 });
        }
        assert_eq!(account.counts().seen, Some(3 * u64::from(u32::MAX)));
        assert_eq!(account.counts().lost[Cause::ReceiveFull as usize], 3 * u64::from(u32::MAX / 2));
    }

    #[test]
    fn what_is_written_off_is_lost_by_name_and_the_books_balance() {
        let mut account = SocketCounts { delivered: 5, broken: 1, nic: 100, ..SocketCounts::default() };
        account.add(Statistics { packets: 20, drops: 8, freezes: 0 });
        assert_eq!(account.owed(), 6);
        account.give_up();
        let counts = account.counts();
        let lost: u64 = counts.lost.iter().sum::<u64>() - counts.lost[Cause::Nic as usize];
        assert_eq!((counts.lost[Cause::Source as usize], counts.seen), (7, Some(account.delivered + lost)));
    }

    #[test]
    fn a_drain_waits_for_the_retire_time_and_never_for_ever() {
        let start = Instant::now();
        let drain = Drain::begin(start, Duration::from_millis(4), false);
        assert!(!drain.may_be_over(start) && drain.may_be_over(start + Duration::from_millis(4)));
        assert!(!drain.must_be_over(start + Duration::from_secs(1)) && drain.must_be_over(start + TIMEOUT));
    }
}
