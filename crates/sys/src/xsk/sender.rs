//! Sends frames: this process passes chunks with frames to the kernel through the transmit ring, and the kernel returns
//! them through the completion ring.
//!
//! In copy mode the kernel builds a socket buffer for each frame and passes it to the driver within `sendto`
//! (`__xsk_generic_xmit` in net/xdp/xsk.c). Three results of that call matter here. `EAGAIN`: more frames wait, or the
//! driver's queue is stopped and the frame remains in the ring; the call must be repeated. `EBUSY`: the driver accepted
//! one frame and dropped it (`NET_XMIT_DROP`). The kernel completes that frame like any other, so only this result
//! shows the drop, and each such result is counted. `ENOBUFS` and `ENETDOWN`: no frame was accepted.
//!
//! A frame can have a launch time, the time at which the NIC sends it (Documentation/networking/xsk-tx-metadata.rst,
//! `struct xsk_tx_metadata`). The launch time is before the first byte of the frame:
//!
//! ```text
//! flags (8) · checksum request (8) · launch time in nanoseconds of the NIC's clock (8) · frame
//! ```

use super::ring::{Consumer, Desc, Kind, Producer};
use super::{
    CONTINUED, CopyMode, MAX_TX_SKB_BUDGET, Statistics, Step, StepError, Umem, bind, bind_flags, is_zero_copy,
    pending_error, register, set, socket, statistics,
};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size_force;
use rustix::net::{SendFlags, send};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The parameters of a sender.
#[derive(Clone, Debug)]
pub struct SenderOptions {
    /// The interface.
    pub ifindex: u32,
    /// The queue of the interface.
    pub queue: u32,
    /// Bytes of one chunk: 2048 or 4096.
    pub chunk: u32,
    /// Number of adjacent chunks for one frame; above 1 the kernel must support frames of several buffers.
    pub chunks_per_frame: u32,
    /// Maximum number of frames in flight. The number of entries of each ring is the number of chunks of these frames,
    /// rounded up to a power of two.
    pub frames: u32,
    /// Copy mode or zero-copy.
    pub mode: CopyMode,
    /// True if frames can have launch times. The buffer of a frame is then [`TX_METADATA_BYTES`] bytes shorter.
    pub launch_times: bool,
}

/// Number of bytes before a frame that contain its launch time.
pub const TX_METADATA_BYTES: u32 = 24;

/// Offset of the launch time in these bytes.
const LAUNCH_TIME_AT: usize = 16;
/// `XDP_TXMD_FLAGS_LAUNCH_TIME`.
const LAUNCH_TIME: u64 = 1 << 2;
/// Flag of a descriptor: there are metadata before the frame (`XDP_TX_METADATA`).
const HAS_METADATA: u32 = 1 << 1;

/// Cumulative counters of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Frames put into the transmit ring.
    pub submitted: u64,
    /// Frames completed by the kernel.
    pub completed: u64,
    /// Frames that the kernel completed, but that the driver reported as dropped.
    pub dropped: u64,
}

/// A sending socket.
pub struct Sender {
    transmit: Producer<Desc>,
    completion: Consumer<u64>,
    /// Some drivers require chunks in the fill ring even for a socket that only sends. These chunks are never used.
    _fill: Producer<u64>,
    fd: OwnedFd,
    area: Arc<Umem>,
    chunk: usize,
    chunks_per_frame: usize,
    /// Number of bytes before a frame for its metadata.
    metadata: usize,
    free: Vec<u32>,
    /// For each frame buffer, the number of chunks that the kernel has not completed.
    under_way: Vec<u8>,
    sent: Sent,
    zero_copy: bool,
}

/// The result of one call to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KickResult {
    /// The transmit ring is empty, or the driver sends the remaining frames without further calls.
    Done,
    /// The kernel made progress and more frames wait.
    More,
    /// The kernel made no progress: the driver's queue is full.
    Stuck,
}

const SPARE_CHUNKS: u32 = 64;

/// Maximum number of frames that one call of `sendto` sends, if the kernel supports the option. The value is the size
/// of the ring of a veth interface.
const CALL_BUDGET: u32 = 256;

impl Sender {
    /// Opens a socket, registers its memory and binds it.
    ///
    /// # Errors
    /// As for [`super::Receiver::open`].
    pub fn open(options: &SenderOptions) -> Result<Self, StepError> {
        let entries = (options.frames * options.chunks_per_frame).next_power_of_two();
        let chunks = options.frames * options.chunks_per_frame + SPARE_CHUNKS;
        let area = Arc::new(Umem::new(chunks as usize * options.chunk as usize).step("allocate packet memory")?);
        let fd = socket().step("open an AF_XDP socket")?;
        let metadata = if options.launch_times { TX_METADATA_BYTES } else { 0 };
        register(&fd, &area, options.chunk, 0, metadata).step("register packet memory")?;
        let mut fill = Producer::open(&fd, Kind::Fill, SPARE_CHUNKS)?;
        let completion = Consumer::open(&fd, Kind::Completion, entries)?;
        let transmit = Producer::open(&fd, Kind::Transmit, entries)?;
        for spare in chunks - SPARE_CHUNKS..chunks {
            fill.write(u64::from(spare) * u64::from(options.chunk));
        }
        fill.submit();
        let flags = bind_flags(options.mode, options.chunks_per_frame > 1);
        bind(&fd, options.ifindex, options.queue, flags, None).step("bind to the queue")?;
        // Frames occupy socket buffers until the NIC has sent them; the default size is enough for about 200 frames. If
        // the kernel refuses the larger size, the default size stays in force.
        let _ = set_socket_send_buffer_size_force(&fd, 8 << 20);
        // Since kernel 6.17 one call may send more than 32 frames. Older kernels refuse the option. Without it, one
        // call sends at most 32 frames.
        let _ = set(&fd, libc::SOL_XDP, MAX_TX_SKB_BUDGET, CALL_BUDGET.min(entries));
        let zero_copy = is_zero_copy(&fd).step("read the copy mode")?;
        Ok(Self {
            transmit,
            completion,
            _fill: fill,
            fd,
            area,
            chunk: options.chunk as usize,
            chunks_per_frame: options.chunks_per_frame as usize,
            metadata: metadata as usize,
            free: (0..options.frames).rev().collect(),
            under_way: vec![0; options.frames as usize],
            sent: Sent::default(),
            zero_copy,
        })
    }

    /// Number of free frame buffers.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Length of the longest frame in bytes.
    pub fn frame_max(&self) -> usize {
        self.buffer() - self.metadata
    }

    /// Length of a frame buffer in bytes.
    fn buffer(&self) -> usize {
        self.chunk * self.chunks_per_frame
    }

    /// Puts up to `count` frames into the transmit ring, limited by the free buffers: `fill` writes the frame with the
    /// given index and returns its length. Returns the number of frames. [`Sender::kick`] makes the kernel send them.
    ///
    /// # Panics
    /// If `fill` returns a length below 14 or above the size of the buffer.
    pub fn put(&mut self, count: usize, fill: impl FnMut(usize, &mut [u8]) -> usize) -> usize {
        self.put_frames(count, None, fill)
    }

    /// Puts a frame with a launch time, in nanoseconds of the NIC's clock, into the transmit ring; `fill` is as for
    /// [`Sender::put`]. Returns false if there is no free buffer.
    ///
    /// # Panics
    /// As [`Sender::put`], and if the sender was opened without launch times.
    pub fn put_at(&mut self, launch_nanos: u64, mut fill: impl FnMut(&mut [u8]) -> usize) -> bool {
        assert!(self.metadata > 0, "the sender has no launch times");
        self.put_frames(1, Some(launch_nanos), |_, bytes| fill(bytes)) == 1
    }

    fn put_frames(
        &mut self,
        count: usize,
        launch_nanos: Option<u64>,
        mut fill: impl FnMut(usize, &mut [u8]) -> usize,
    ) -> usize {
        // The transmit ring has entries for the chunks of all buffers, but the entries that a buffer used before are
        // free only after the kernel has read them.
        let count = count.min(self.free.len()).min(self.transmit.room() as usize / self.chunks_per_frame);
        for index in 0..count {
            let Some(place) = self.free.pop() else { return index };
            let at = place as usize * self.buffer();
            // SAFETY: the buffer is inside the UMEM and is free: the kernel has returned it.
            let buffer = unsafe { self.area.bytes_mut(at, self.buffer()) };
            let (metadata, bytes) = buffer.split_at_mut(self.metadata);
            let at = at + self.metadata;
            let mut metadata_flag = 0;
            if let Some(launch_nanos) = launch_nanos {
                metadata[..8].copy_from_slice(&LAUNCH_TIME.to_ne_bytes());
                metadata[LAUNCH_TIME_AT..].copy_from_slice(&launch_nanos.to_ne_bytes());
                metadata_flag = HAS_METADATA;
            }
            let len = fill(index, bytes);
            assert!((14..=bytes.len()).contains(&len), "a frame has 14 to {} bytes, not {len}", bytes.len());
            let mut from = 0;
            self.under_way[place as usize] = (self.metadata + len).div_ceil(self.chunk) as u8;
            while from < len {
                let room = self.chunk - if from == 0 { self.metadata } else { 0 };
                let piece = (len - from).min(room);
                let options = if from + piece < len { CONTINUED } else { 0 } | metadata_flag;
                metadata_flag = 0;
                self.transmit.write(Desc { addr: (at + from) as u64, len: piece as u32, options });
                from += piece;
            }
        }
        self.transmit.submit();
        self.sent.submitted += count as u64;
        count
    }

    /// Calls the kernel once to send frames, and then frees the buffers of completed frames.
    ///
    /// # Errors
    /// `ENETDOWN` if the interface is down or removed, `ENXIO` if it was removed.
    pub fn kick(&mut self) -> io::Result<KickResult> {
        let before = self.transmit.waiting();
        if before > 0 && self.transmit.needs_wakeup() {
            match send(&self.fd, &[], SendFlags::DONTWAIT) {
                Ok(_) | Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => {}
                Err(Errno::BUSY) => self.sent.dropped += 1,
                Err(error) => return Err(error.into()),
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

    /// Frees the frame buffers that the kernel has completed and returns their number.
    pub fn reap(&mut self) -> usize {
        let ready = self.completion.ready(u32::MAX);
        let mut places = 0;
        for ahead in 0..ready {
            let place = self.completion.peek(ahead) as usize / self.buffer();
            // The kernel completes each chunk exactly once. A completion of a chunk that was not sent is ignored.
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

    /// Frames that the kernel has not completed.
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
    /// Returns the kernel's error if a system call fails.
    pub fn statistics(&self) -> io::Result<Statistics> {
        statistics(&self.fd)
    }

    /// Checks the socket for a pending error. The error is `ENETDOWN`, once, after the interface has been unregistered
    /// or moved to another network namespace.
    ///
    /// # Errors
    /// The socket's pending error.
    pub fn check(&self) -> io::Result<()> {
        pending_error(&self.fd)
    }

    /// True if the driver reads our memory directly.
    pub fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }
}
