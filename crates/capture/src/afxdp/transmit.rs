//! Sending through AF_XDP, for the traffic generator.
//!
//! If the kernel reports that a frame was dropped, the frame is not counted as sent. In copy mode the kernel reports
//! each frame that the driver refuses (see `sys::xsk`). A veth interface (drivers/net/veth.c, 6.16 and later) drops a
//! frame when the 256 entries of its peer's ring are taken, and reports the drop; the frame is counted as dropped. With
//! a queueing discipline on the sending interface (`tc qdisc add dev a root pfifo`) the interface stops its queue
//! instead: the frame waits in the ring of the sender and none is lost. In tests of both cases the peer's XDP program
//! saw exactly the number of frames counted as sent.
//!
//! The peer's receive loop normally runs inside the system call of the sender, once for each frame, so its ring never
//! fills. With a separate receive thread (`/sys/class/net/b/threaded`) the peer is faster, but runs concurrently and
//! needs the queueing discipline. For frames of one size at full speed, frames made inside the kernel cost less: see
//! [`live_frames`](crate::live_frames).

use super::{CopyMode, advice, look_up};
use crate::SourceError;
use std::io;
use std::time::{Duration, Instant};
use sys::xsk::{KickResult, Sender, SenderOptions, TX_METADATA_BYTES};

/// How to send.
#[derive(Clone, Debug)]
pub struct TransmitConfig {
    /// The interface.
    pub interface: String,
    /// The queue of the interface.
    pub queue: u16,
    /// Length of the longest frame in bytes; above 4096 the interface must support frames of several buffers.
    pub frame_max: usize,
    /// Maximum number of frames in flight, at least 1.
    pub frames: u32,
    /// Copy mode or zero-copy.
    pub copy: CopyMode,
    /// True if frames can have launch times ([`Transmitter::send_at`]).
    pub launch_times: bool,
}

impl TransmitConfig {
    /// Returns the default configuration: frames of up to 1518 bytes, 2048 frames in flight, zero-copy if the driver
    /// supports it.
    pub fn new(interface: &str, queue: u16) -> Self {
        Self {
            interface: interface.to_owned(),
            queue,
            frame_max: 1518,
            frames: 2048,
            copy: CopyMode::Best,
            launch_times: false,
        }
    }
}

/// Cumulative counters of a [`Transmitter`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransmitCounts {
    /// Frames that the driver accepted and did not report as dropped.
    pub sent: u64,
    /// Frames that the driver dropped because the ring of the peer was full.
    pub dropped: u64,
    /// Frames in flight: in the ring, or accepted by the driver and not yet completed.
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

/// The condition that ends a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitFor {
    /// Wait until the driver has accepted all frames.
    AllAccepted,
    /// There is a free buffer.
    FreeBuffer,
    /// Wait until the driver has completed all frames.
    AllCompleted,
}

/// Time without progress of the driver after which a call returns.
const TIMEOUT: Duration = Duration::from_millis(100);

impl Transmitter {
    /// Opens the queue for sending. No XDP program is needed on this interface.
    ///
    /// # Errors
    /// [`SourceError`] with advice.
    pub fn open(config: &TransmitConfig) -> Result<Self, SourceError> {
        let name = &config.interface;
        let link = look_up(name)?;
        let metadata = if config.launch_times { TX_METADATA_BYTES as usize } else { 0 };
        let buffer = config.frame_max + metadata;
        let chunk = if buffer <= 2048 { 2048 } else { 4096 };
        let options = SenderOptions {
            ifindex: link.index,
            queue: u32::from(config.queue),
            chunk,
            chunks_per_frame: buffer.div_ceil(chunk as usize) as u32,
            frames: config.frames.max(1),
            mode: config.copy,
            launch_times: config.launch_times,
        };
        let sender = Sender::open(&options).map_err(|e| advice::socket_error(name, options.queue, e))?;
        Ok(Self { sender, name: name.clone(), queue: options.queue })
    }

    /// Sends `count` frames: `fill` writes the frame with the given index into the buffer and returns its length, from
    /// 14 bytes to the configured maximum. Returns the number of frames filled; it is below `count` only if the driver
    /// made no progress for 100 ms.
    ///
    /// # Errors
    /// [`SourceError::Gone`], or the error of an interface that is down.
    ///
    /// # Panics
    /// If `fill` returns a length below 14 bytes or above the configured maximum.
    pub fn send(
        &mut self,
        count: usize,
        mut fill: impl FnMut(usize, &mut [u8]) -> usize,
    ) -> Result<usize, SourceError> {
        let mut done = 0;
        while done < count {
            let filled = self.sender.put(count - done, |index, place| fill(done + index, place));
            done += filled;
            if !self.push(if filled == 0 { WaitFor::FreeBuffer } else { WaitFor::AllAccepted })? {
                break;
            }
        }
        Ok(done)
    }

    /// Passes a frame with a launch time, in nanoseconds of the NIC's clock, to the driver. `fill` is as for
    /// [`Transmitter::send`]. Returns false if the driver made no progress for 100 ms; the frame is then not sent. A
    /// driver without launch times sends the frame at once.
    ///
    /// # Errors
    /// As for [`Transmitter::send`].
    ///
    /// # Panics
    /// As [`Transmitter::send`], and if the transmitter was opened without launch times.
    pub fn send_at(
        &mut self,
        launch_nanos: u64,
        mut fill: impl FnMut(&mut [u8]) -> usize,
    ) -> Result<bool, SourceError> {
        while !self.sender.put_at(launch_nanos, &mut fill) {
            if !self.push(WaitFor::FreeBuffer)? {
                return Ok(false);
            }
        }
        self.push(WaitFor::AllAccepted)
    }

    /// Waits until the driver has completed all frames; false if the driver made no progress for 100 ms.
    ///
    /// # Errors
    /// As for [`Transmitter::send`].
    pub fn flush(&mut self) -> Result<bool, SourceError> {
        self.push(WaitFor::AllCompleted)
    }

    /// The counters so far.
    ///
    /// # Errors
    /// Returns the kernel's error if the counters cannot be read.
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

    /// True if the driver reads frames directly from the memory of the sender (zero-copy).
    pub fn is_zero_copy(&self) -> bool {
        self.sender.is_zero_copy()
    }

    /// Calls the kernel until the condition holds; false if there was no progress for `TIMEOUT`.
    fn push(&mut self, until: WaitFor) -> Result<bool, SourceError> {
        let mut stuck_since = None;
        loop {
            let kicked = self.sender.kick().map_err(|e| self.failed("send", e))?;
            let reached = match until {
                WaitFor::AllAccepted => kicked == KickResult::Done,
                WaitFor::FreeBuffer => self.sender.free() > 0,
                WaitFor::AllCompleted => kicked == KickResult::Done && self.sender.under_way() == 0,
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
        advice::socket_error(&self.name, self.queue, sys::xsk::StepError { step: what, error })
    }
}
