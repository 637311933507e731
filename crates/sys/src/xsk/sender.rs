//! The sending half: chunks go out through the transmit ring and come back through the completion ring.
//!
//! In copy mode the kernel builds a socket buffer for each frame and gives it to the driver within `sendto`
//! (`__xsk_generic_xmit` in net/xdp/xsk.c). Three answers of that call matter here. `EAGAIN`: there is more to do, or
//! the driver's queue stood still and the frame stays in the ring; call again. `EBUSY`: the driver took one frame and
//! dropped it (`NET_XMIT_DROP`); that frame is completed all the same, so each such answer is counted, and is the one
//! way to know. `ENOBUFS` and `ENETDOWN`: nothing was taken.

use super::ring::{Consumer, Desc, Kind, Producer};
use super::{
    CONTINUED, CopyMode, MAX_TX_SKB_BUDGET, Statistics, Step, StepError, Umem, bind, bind_flags, is_zero_copy,
    pending_error, register, set, socket, statistics,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// What a sender needs to know.
#[derive(Clone, Debug)]
pub struct SenderOptions {
    /// The interface.
    pub ifindex: u32,
    /// Its queue.
    pub queue: u32,
    /// Bytes of one chunk: 2048 or 4096.
    pub chunk: u32,
    /// Adjacent chunks that make one frame's place; above 1 the kernel must take frames of several pieces.
    pub chunks_per_frame: u32,
    /// How many frames may be under way; with the pieces of each, a power of two of ring entries holds them.
    pub frames: u32,
    /// Copying or not.
    pub mode: CopyMode,
}

/// Cumulative counters of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Frames put into the transmit ring.
    pub submitted: u64,
    /// Frames that came back.
    pub completed: u64,
    /// Frames among those that the driver dropped, as far as it says.
    pub dropped: u64,
}

/// A socket that sends.
pub struct Sender {
    transmit: Producer<Desc>,
    completion: Consumer<u64>,
    /// Some drivers want chunks here even of a socket that only sends; nothing comes of them.
    _fill: Producer<u64>,
    fd: OwnedFd,
    area: Arc<Umem>,
    chunk: usize,
    chunks_per_frame: usize,
    free: Vec<u32>,
    /// For each place, the pieces that the kernel has not given back.
    under_way: Vec<u8>,
    sent: Sent,
    zero_copy: bool,
}

/// What one call to the kernel did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KickResult {
    /// The transmit ring is empty, or the driver empties it by itself.
    Done,
    /// Something moved and there is more to do.
    More,
    /// Nothing moved: the driver's queue is full.
    Stuck,
}

const SPARE_CHUNKS: u32 = 64;

/// Frames that one `sendto` may take where the kernel lets us choose; as many as a veth queue holds.
const CALL_BUDGET: u32 = 256;

impl Sender {
    /// Opens, registers and binds.
    ///
    /// # Errors
    /// As for [`super::Receiver::open`].
    pub fn open(request: &SenderOptions) -> Result<Self, StepError> {
        let entries = (request.frames * request.chunks_per_frame).next_power_of_two();
        let chunks = request.frames * request.chunks_per_frame + SPARE_CHUNKS;
        let area = Arc::new(Umem::new(chunks as usize * request.chunk as usize).step("allocate packet memory")?);
        let fd = socket().step("open an AF_XDP socket")?;
        register(&fd, &area, request.chunk, 0).step("register packet memory")?;
        let mut fill = Producer::open(&fd, Kind::Fill, SPARE_CHUNKS)?;
        let completion = Consumer::open(&fd, Kind::Completion, entries)?;
        let transmit = Producer::open(&fd, Kind::Transmit, entries)?;
        for spare in chunks - SPARE_CHUNKS..chunks {
            fill.write(u64::from(spare) * u64::from(request.chunk));
        }
        fill.submit();
        let flags = bind_flags(request.mode, request.chunks_per_frame > 1);
        bind(&fd, request.ifindex, request.queue, flags, None).step("bind to the queue")?;
        // Frames wait in socket buffers until the card has sent them; the default allows for about 200.
        // SAFETY: the option is one int. A refusal leaves the default.
        let _ = unsafe { set(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &(8i32 << 20)) };
        // From 6.17 on one call may take more than 32 frames. Older kernels refuse the option and stay at 32.
        // SAFETY: the option is one u32.
        let _ = unsafe { set(&fd, libc::SOL_XDP, MAX_TX_SKB_BUDGET, &CALL_BUDGET.min(entries)) };
        let zero_copy = is_zero_copy(&fd).step("ask for the copy mode")?;
        Ok(Self {
            transmit,
            completion,
            _fill: fill,
            fd,
            area,
            chunk: request.chunk as usize,
            chunks_per_frame: request.chunks_per_frame as usize,
            free: (0..request.frames).rev().collect(),
            under_way: vec![0; request.frames as usize],
            sent: Sent::default(),
            zero_copy,
        })
    }

    /// Places that are free now.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Bytes of the longest frame.
    pub fn frame_max(&self) -> usize {
        self.chunk * self.chunks_per_frame
    }

    /// Puts up to `count` frames into the transmit ring, as many as there are free places: `fill` writes the frame
    /// with this index and answers its length. Answers how many. The kernel sees them with [`Sender::kick`].
    ///
    /// # Panics
    /// When `fill` answers a length below 14 or beyond its place.
    pub fn put(&mut self, count: usize, mut fill: impl FnMut(usize, &mut [u8]) -> usize) -> usize {
        // The ring holds the pieces of all places together, and a place is free only after its entries were read.
        let count = count.min(self.free.len()).min(self.transmit.room() as usize / self.chunks_per_frame);
        for index in 0..count {
            let Some(place) = self.free.pop() else { return index };
            let at = place as usize * self.frame_max();
            // SAFETY: the place lies in the area and is free: the kernel has given it back.
            let bytes = unsafe { self.area.bytes_mut(at, self.frame_max()) };
            let len = fill(index, bytes);
            assert!((14..=bytes.len()).contains(&len), "a frame has 14 to {} bytes, not {len}", bytes.len());
            let mut from = 0;
            self.under_way[place as usize] = len.div_ceil(self.chunk) as u8;
            while from < len {
                let piece = (len - from).min(self.chunk);
                let options = if from + piece < len { CONTINUED } else { 0 };
                self.transmit.write(Desc { addr: (at + from) as u64, len: piece as u32, options });
                from += piece;
            }
        }
        self.transmit.submit();
        self.sent.submitted += count as u64;
        count
    }

    /// Lets the kernel send, once, and takes back what it has done with.
    ///
    /// # Errors
    /// `ENETDOWN` when the interface is down or gone, `ENXIO` when it went away.
    pub fn kick(&mut self) -> io::Result<KickResult> {
        let before = self.transmit.waiting();
        if before > 0 && self.transmit.needs_wakeup() {
            // SAFETY: a message of zero bytes from nothing.
            let answer = unsafe {
                libc::sendto(self.fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
            };
            if answer < 0 {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    Some(libc::EBUSY) => self.sent.dropped += 1,
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => {}
                    _ => return Err(error),
                }
            }
        }
        let reaped = self.reap();
        let waiting = self.transmit.waiting();
        Ok(if waiting == 0 || (self.zero_copy && !self.transmit.needs_wakeup()) {
            KickResult::Done
        } else if waiting < before || reaped > 0 {
            KickResult::More
        } else {
            KickResult::Stuck
        })
    }

    /// Takes back the places that the kernel has done with; answers how many.
    pub fn reap(&mut self) -> usize {
        let ready = self.completion.ready(u32::MAX);
        let mut places = 0;
        for ahead in 0..ready {
            let place = self.completion.peek(ahead) as usize / self.frame_max();
            // The kernel only completes what it was given, and each piece once.
            let Some(under_way) = self.under_way.get_mut(place).filter(|pieces| **pieces > 0) else { continue };
            *under_way -= 1;
            if *under_way == 0 {
                self.free.push(place as u32);
                places += 1;
            }
        }
        if ready > 0 {
            self.completion.advance(ready);
            self.completion.release();
        }
        self.sent.completed += places as u64;
        places
    }

    /// Frames that have not come back.
    pub fn under_way(&self) -> usize {
        self.under_way.len() - self.free.len()
    }

    /// The counters so far.
    pub fn sent(&self) -> Sent {
        self.sent
    }

    /// The kernel's counters.
    ///
    /// # Errors
    /// The kernel's.
    pub fn statistics(&self) -> io::Result<Statistics> {
        statistics(&self.fd)
    }

    /// `ENETDOWN`, once, after the interface has been unregistered or moved to another network namespace.
    ///
    /// # Errors
    /// The socket's pending error.
    pub fn check(&self) -> io::Result<()> {
        pending_error(&self.fd)
    }

    /// Whether the driver reads our memory without copying.
    pub fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }
}
