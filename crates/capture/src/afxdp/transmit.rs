//! Sending through AF_XDP: the traffic generator's way onto a port.
//!
//! Nothing is reported as sent that is known to have been dropped. In copy mode the driver's refusals come back one by
//! one (see `sys::xsk`). A veth port (drivers/net/veth.c, 6.16 and later) drops a frame when the 256 places of its
//! peer's ring are taken, and says so; such a frame counts as dropped. With any queueing discipline on the sending port
//! (`tc qdisc add dev a root pfifo`) the port stands still instead, the frame waits in our ring, and nothing is lost on
//! the way. Both were tried until the peer's XDP program had seen exactly what was counted as sent.
//!
//! The peer's receive loop normally runs inside our own system call, once for each frame, so that its ring never fills;
//! given a thread of its own (`/sys/class/net/b/threaded`) it runs beside us, is faster, and needs the discipline.
//! Flat out and in one size, frames made inside the kernel cost less: see [`live_frames`](crate::live_frames).

use super::{CopyMode, advice, look_up};
use crate::SourceError;
use std::io;
use std::time::{Duration, Instant};
use sys::xsk::{KickResult, Sender, SenderOptions};

/// How to send.
#[derive(Clone, Debug)]
pub struct TransmitConfig {
    /// The interface.
    pub interface: String,
    /// Its queue.
    pub queue: u16,
    /// Bytes of the longest frame that will be sent; above 4096 the port must take frames of several pieces.
    pub frame_max: usize,
    /// How many frames may be under way, at least 1.
    pub frames: u32,
    /// Copying or not.
    pub copy: CopyMode,
}

impl TransmitConfig {
    /// Frames up to 1518 bytes, 2048 of them under way, zero-copy where the driver offers it.
    pub fn new(interface: &str, queue: u16) -> Self {
        Self { interface: interface.to_owned(), queue, frame_max: 1518, frames: 2048, copy: CopyMode::Best }
    }
}

/// Cumulative counters of a [`Transmitter`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransmitCounts {
    /// Frames that the driver took and did not say it dropped.
    pub sent: u64,
    /// Frames that the driver dropped, for want of room behind it.
    pub dropped: u64,
    /// Frames under way: in our ring, or with the driver and not yet done.
    pub under_way: u64,
    /// Descriptors that the kernel refused; there should be none.
    pub invalid: u64,
}

/// Sends frames on one queue.
pub struct Transmitter {
    sender: Sender,
    name: String,
    queue: u32,
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitFor {
    /// The driver has taken all frames.
    Taken,
    /// There is a free place.
    Place,
    /// All frames have come back.
    Back,
}

/// For so long the driver may stand still before a call gives up waiting.
const TIMEOUT: Duration = Duration::from_millis(100);

impl Transmitter {
    /// Opens the queue for sending. No XDP program is needed on this port.
    ///
    /// # Errors
    /// [`SourceError`] with what to do.
    pub fn open(config: &TransmitConfig) -> Result<Self, SourceError> {
        let name = &config.interface;
        let link = look_up(name)?;
        let chunk = if config.frame_max <= 2048 { 2048 } else { 4096 };
        let options = SenderOptions {
            ifindex: link.index,
            queue: u32::from(config.queue),
            chunk,
            chunks_per_frame: config.frame_max.div_ceil(chunk as usize) as u32,
            frames: config.frames.max(1),
            mode: config.copy,
        };
        let sender = Sender::open(&options).map_err(|e| advice::socket(name, options.queue, e))?;
        Ok(Self { sender, name: name.clone(), queue: options.queue })
    }

    /// Sends `count` frames: `fill` writes the frame with this index into the place it is given and answers the
    /// length, from 14 bytes to what was configured. Answers how many were filled: fewer only if the driver stood still
    /// for a tenth of a second.
    ///
    /// # Errors
    /// [`SourceError::Gone`], or a port that is down.
    ///
    /// # Panics
    /// When `fill` answers a length that is none.
    pub fn send(
        &mut self,
        count: usize,
        mut fill: impl FnMut(usize, &mut [u8]) -> usize,
    ) -> Result<usize, SourceError> {
        let mut done = 0;
        while done < count {
            let filled = self.sender.put(count - done, |index, place| fill(done + index, place));
            done += filled;
            if !self.push(if filled == 0 { WaitFor::Place } else { WaitFor::Taken })? {
                break;
            }
        }
        Ok(done)
    }

    /// Waits until the driver has done with all frames; false if it stood still for a tenth of a second.
    ///
    /// # Errors
    /// As for [`Transmitter::send`].
    pub fn flush(&mut self) -> Result<bool, SourceError> {
        self.push(WaitFor::Back)
    }

    /// The counters so far.
    ///
    /// # Errors
    /// When the kernel refuses to tell.
    pub fn counts(&mut self) -> Result<TransmitCounts, SourceError> {
        self.sender.reap();
        let invalid = self.sender.statistics().map_err(|e| self.failed("read the counters", e))?.tx_invalid;
        let sent = self.sender.sent();
        Ok(TransmitCounts {
            sent: sent.completed - sent.dropped.min(sent.completed),
            dropped: sent.dropped,
            under_way: sent.submitted - sent.completed - invalid,
            invalid,
        })
    }

    /// Whether the driver reads our memory without copying.
    pub fn is_zero_copy(&self) -> bool {
        self.sender.is_zero_copy()
    }

    /// Lets the kernel work until it has done so much; false if it stood still for too long.
    fn push(&mut self, until: WaitFor) -> Result<bool, SourceError> {
        let mut stuck_since = None;
        loop {
            let kicked = self.sender.kick().map_err(|e| self.failed("send", e))?;
            let reached = match until {
                WaitFor::Taken => kicked == KickResult::Done,
                WaitFor::Place => self.sender.free() > 0,
                WaitFor::Back => kicked == KickResult::Done && self.sender.under_way() == 0,
            };
            if reached {
                return Ok(true);
            }
            if kicked == KickResult::More {
                stuck_since = None;
                continue;
            }
            if stuck_since.get_or_insert_with(Instant::now).elapsed() > TIMEOUT {
                return Ok(false);
            }
            std::thread::yield_now();
        }
    }

    fn failed(&self, what: &'static str, error: io::Error) -> SourceError {
        if self.sender.check().is_err() || advice::is_gone(&error) {
            return SourceError::Gone { name: self.name.clone() };
        }
        advice::socket(&self.name, self.queue, sys::xsk::StepError { step: what, error })
    }
}
