//! AF_XDP sockets: memory, rings, options (Documentation/networking/af_xdp.rst, include/uapi/linux/if_xdp.h).
//!
//! A [`Receiver`] and a [`Sender`] each own one queue of one interface, an [`Umem`] of memory registered with the
//! kernel (the UMEM; receivers may share one), and the four rings. A chunk belongs to the kernel from the moment its
//! address is published in the fill or transmit ring until the kernel returns the address in the receive or completion
//! ring. Both types access a chunk only while it does not belong to the kernel, and only during one callback. Every
//! `unsafe` block here relies on this invariant, and therefore no other type accesses the rings.
//!
//! With the flag `XDP_SHARED_UMEM` the kernel uses mode and flags of the socket that registered the memory; each queue
//! still has its own fill ring and completion ring, so two threads never write to the same ring.

mod receiver;
mod ring;
mod sender;
mod umem;

pub use receiver::{Receiver, ReceiverOptions, RxChunk};
pub use sender::{KickResult, Sender, SenderOptions, Sent, TX_METADATA_BYTES};
pub use umem::{Pages, Umem};

use libc::c_int;
use rustix::io::Errno;
use rustix::net::sockopt::{set_xdp_umem_reg, socket_error, xdp_options, xdp_statistics};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XdpOptionsFlags, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Bytes that the kernel keeps free at the head of every receive chunk (`XDP_PACKET_HEADROOM`).
pub const HEADROOM: u32 = 256;

/// Copy mode, or zero-copy: the driver accesses our memory directly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyMode {
    /// Zero-copy if the driver supports it, else copy.
    #[default]
    Best,
    /// Always copy.
    Copy,
    /// Zero-copy or an error.
    ZeroCopy,
}

/// Busy polling: the reading thread runs the driver's receive loop itself instead of waiting for an interrupt. With
/// busy polling, the interrupts of the interface should be deferred; otherwise the interrupt handler and the reading
/// thread compete for the receive loop (`napi_defer_hard_irqs` and `gro_flush_timeout` of the interface, see
/// Documentation/networking/napi.rst).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// Maximum time that one call polls, in microseconds.
    pub micros: u32,
    /// Maximum number of frames per call.
    pub budget: u32,
}

/// `XDP_STATISTICS`: cumulative since the socket was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames dropped because no chunk was available, or because they did not fit one chunk.
    pub rx_dropped: u64,
    /// Frames dropped because the receive ring was full.
    pub rx_ring_full: u64,
    /// Chunk addresses from this process that the kernel refused.
    pub rx_invalid: u64,
    /// How often the kernel found the fill ring empty; not a number of frames.
    pub fill_empty: u64,
    /// Transmit descriptors from this process that the kernel refused.
    pub tx_invalid: u64,
}

/// A failed step of opening or using a socket.
#[derive(Debug)]
pub struct StepError {
    /// The operation, as a phrase that follows "cannot".
    pub step: &'static str,
    /// The kernel's error.
    pub error: io::Error,
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.step, self.error)
    }
}

impl std::error::Error for StepError {}

/// Converts an error of the kernel to a [`StepError`].
trait Step<T> {
    fn step(self, step: &'static str) -> Result<T, StepError>;
}

impl<T> Step<T> for io::Result<T> {
    fn step(self, step: &'static str) -> Result<T, StepError> {
        self.map_err(|error| StepError { step, error })
    }
}

/// Time that the kernel may need to release a queue.
const RELEASE_TIME: Duration = Duration::from_millis(500);
const SO_PREFER_BUSY_POLL: c_int = 69;
const SO_BUSY_POLL_BUDGET: c_int = 70;
const MAX_TX_SKB_BUDGET: c_int = 9;
/// Flag of a descriptor: the frame continues in the next descriptor (`XDP_PKT_CONTD`).
const CONTINUED: u32 = 1;

/// Opens an AF_XDP socket in the network namespace of this thread.
fn socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)?)
}

/// Registers `area` as the socket's UMEM; received frames begin `spare` bytes after [`HEADROOM`], and frames to send
/// can have `tx_metadata` bytes of metadata before them.
fn register(fd: &OwnedFd, area: &Umem, chunk: u32, spare: u32, tx_metadata: u32) -> io::Result<()> {
    /// `XDP_UMEM_TX_METADATA_LEN`.
    const TX_METADATA_LEN: u32 = 1 << 2;
    let flags = if tx_metadata > 0 { TX_METADATA_LEN } else { 0 };
    let registration = XdpUmemReg {
        addr: area.address() as u64,
        len: area.len() as u64,
        chunk_size: chunk,
        headroom: spare,
        flags: XdpUmemRegFlags::from_bits_retain(flags),
        tx_metadata_len: tx_metadata,
    };
    // The memory outlives the socket, because each owner of the socket also has a reference to `area`.
    Ok(set_xdp_umem_reg(fd, registration)?)
}

/// Binds the socket to a queue of an interface; `shared` is the socket whose UMEM it uses.
///
/// The kernel releases a queue some time after its socket was closed (`xp_release_deferred`), so binding to a queue in
/// use is retried for [`RELEASE_TIME`].
fn bind(fd: &OwnedFd, ifindex: u32, queue: u32, flags: SocketAddrXdpFlags, shared: Option<&OwnedFd>) -> io::Result<()> {
    let attempt = || match shared {
        Some(shared) => {
            let addr = SocketAddrXdp::new(SocketAddrXdpFlags::XDP_SHARED_UMEM, ifindex, queue);
            rustix::net::bind(fd, &SocketAddrXdpWithSharedUmem { addr, shared_umem_fd: shared.as_fd() })
        }
        None => rustix::net::bind(fd, &SocketAddrXdp::new(flags, ifindex, queue)),
    };
    let until = Instant::now() + RELEASE_TIME;
    loop {
        match attempt() {
            Err(Errno::BUSY) if Instant::now() < until => std::thread::sleep(Duration::from_millis(2)),
            outcome => return Ok(outcome?),
        }
    }
}

fn bind_flags(mode: CopyMode, multi_buffer: bool) -> SocketAddrXdpFlags {
    let mut flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
    flags.set(SocketAddrXdpFlags::XDP_COPY, mode == CopyMode::Copy);
    flags.set(SocketAddrXdpFlags::XDP_ZEROCOPY, mode == CopyMode::ZeroCopy);
    flags.set(SocketAddrXdpFlags::XDP_USE_SG, multi_buffer);
    flags
}

/// True if the driver accesses our memory directly (`XDP_OPTIONS`).
fn is_zero_copy(fd: &OwnedFd) -> io::Result<bool> {
    Ok(xdp_options(fd)?.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
}

fn statistics(fd: &OwnedFd) -> io::Result<Statistics> {
    let counters = xdp_statistics(fd)?;
    Ok(Statistics {
        rx_dropped: counters.rx_dropped,
        rx_ring_full: counters.rx_ring_full.unwrap_or(0),
        rx_invalid: counters.rx_invalid_descs,
        fill_empty: counters.rx_fill_ring_empty_descs.unwrap_or(0),
        tx_invalid: counters.tx_invalid_descs,
    })
}

fn set_busy_poll(fd: &OwnedFd, options: BusyPoll) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, 1)?;
    set(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL, options.micros)?;
    set(fd, libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET, options.budget)
}

/// Returns and clears the socket's pending error: `ENETDOWN` after its interface was unregistered.
fn pending_error(fd: &OwnedFd) -> io::Result<()> {
    Ok(socket_error(fd)??)
}

/// Sets an option that is one 32-bit number.
fn set(fd: &OwnedFd, level: c_int, option: c_int, value: u32) -> io::Result<()> {
    let bytes = size_of::<u32>() as libc::socklen_t;
    // SAFETY: `value` is live during the call, and the kernel reads at most `bytes` bytes of it. The kernel refuses the
    // call if the option has a larger type.
    let answer = unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const value).cast(), bytes) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
