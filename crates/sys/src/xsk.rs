//! AF_XDP sockets: memory, rings, options (Documentation/networking/af_xdp.rst, include/uapi/linux/if_xdp.h).
//!
//! A [`Receiver`] and a [`Sender`] each own one queue of one interface, an [`Umem`] of memory registered with the
//! kernel (the UMEM; receivers may share one), and the four rings. A chunk belongs to the kernel from the moment its
//! address is published in the fill or transmit ring until the address comes back in the receive or completion ring.
//! Both types access a chunk only while it does not belong to the kernel, and only during one callback. Every `unsafe`
//! block here relies on this invariant, and therefore no other type accesses the rings.
//!
//! With the flag `XDP_SHARED_UMEM` the kernel takes mode and flags from the socket that registered the memory; each
//! queue still has its own fill and completion ring, so no two threads ever write to the same one.

mod port;
mod receiver;
mod ring;
mod sender;
mod umem;

pub use port::{active_queues, strips_vlan};
pub use receiver::{Receiver, ReceiverOptions, RxChunk};
pub use sender::{KickResult, Sender, SenderOptions, Sent};
pub use umem::{Pages, Umem};

use libc::c_int;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
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

/// Busy polling: the reading thread runs the driver's receive loop itself instead of waiting for an interrupt.
/// Interrupts of the interface should then be deferred, or both compete (`napi_defer_hard_irqs` and `gro_flush_timeout`
/// of the interface, see Documentation/networking/napi.rst).
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
    // SAFETY: socket takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened the descriptor, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Registers `area` as the socket's UMEM; received frames begin `spare` bytes after [`HEADROOM`].
fn register(fd: &OwnedFd, area: &Umem, chunk: u32, spare: u32) -> io::Result<()> {
    // The layout before 5.4, which every kernel still accepts; later fields are zero.
    #[repr(C)]
    struct Registration {
        addr: u64,
        len: u64,
        chunk_size: u32,
        headroom: u32,
        flags: u32,
        pad: u32,
    }
    let registration = Registration {
        addr: area.address() as u64,
        len: area.len() as u64,
        chunk_size: chunk,
        headroom: spare,
        flags: 0,
        pad: 0,
    };
    // SAFETY: the area outlives the socket: each owner of the socket also holds the area.
    unsafe { set(fd, libc::SOL_XDP, libc::XDP_UMEM_REG, &registration) }
}

/// Binds the socket to a queue of an interface; `shared` is the socket whose UMEM it uses.
///
/// The kernel releases a queue some time after its socket was closed (`xp_release_deferred`), so binding to a queue in
/// use is retried for [`RELEASE_TIME`].
fn bind(fd: &OwnedFd, ifindex: u32, queue: u32, flags: u16, shared: Option<&OwnedFd>) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: if shared.is_some() { libc::XDP_SHARED_UMEM } else { flags },
        sxdp_ifindex: ifindex,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: shared.map_or(0, |fd| fd.as_raw_fd() as u32),
    };
    let bytes = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    let until = Instant::now() + RELEASE_TIME;
    loop {
        // SAFETY: the address is live for the call and of the size given.
        if unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), bytes) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::ResourceBusy || Instant::now() >= until {
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn bind_flags(mode: CopyMode, multi_buffer: bool) -> u16 {
    let copy = match mode {
        CopyMode::Best => 0,
        CopyMode::Copy => libc::XDP_COPY,
        CopyMode::ZeroCopy => libc::XDP_ZEROCOPY,
    };
    let frags = if multi_buffer { libc::XDP_USE_SG } else { 0 };
    libc::XDP_USE_NEED_WAKEUP | copy | frags
}

/// True if the driver accesses our memory directly (`XDP_OPTIONS`).
fn is_zero_copy(fd: &OwnedFd) -> io::Result<bool> {
    let mut flags = 0u32;
    // SAFETY: struct xdp_options is one u32.
    unsafe { get(fd, libc::SOL_XDP, libc::XDP_OPTIONS, &mut flags) }?;
    Ok(flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

fn statistics(fd: &OwnedFd) -> io::Result<Statistics> {
    // rx_dropped, rx_invalid_descs, tx_invalid_descs, rx_ring_full, rx_fill_ring_empty_descs, tx_ring_empty_descs
    let mut words = [0u64; 6];
    // SAFETY: struct xdp_statistics is six u64.
    unsafe { get(fd, libc::SOL_XDP, libc::XDP_STATISTICS, &mut words) }?;
    let [rx_dropped, rx_invalid, tx_invalid, rx_ring_full, fill_empty, _] = words;
    Ok(Statistics { rx_dropped, rx_ring_full, rx_invalid, fill_empty, tx_invalid })
}

fn set_busy_poll(fd: &OwnedFd, options: BusyPoll) -> io::Result<()> {
    // SAFETY: all three options are one int.
    unsafe {
        set(fd, libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, &1i32)?;
        set(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL, &(options.micros as i32))?;
        set(fd, libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET, &(options.budget as i32))
    }
}

/// Returns and clears the socket's pending error: `ENETDOWN` after its interface was unregistered.
fn pending_error(fd: &OwnedFd) -> io::Result<()> {
    let mut error: c_int = 0;
    // SAFETY: SO_ERROR is one int.
    unsafe { get(fd, libc::SOL_SOCKET, libc::SO_ERROR, &mut error) }?;
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// # Safety
/// `T` must be the option's type, and its pointers must be valid for the kernel's use of them.
unsafe fn set<T>(fd: &OwnedFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    let bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value is live for the call and of the size given; the caller guarantees the rest.
    let answer = unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), bytes) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// # Safety
/// `T` must be made of integers without padding.
unsafe fn get<T>(fd: &OwnedFd, level: c_int, option: c_int, value: &mut T) -> io::Result<()> {
    let mut bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes, and any bytes make a `T`.
    let answer =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, option, std::ptr::from_mut(value).cast(), &raw mut bytes) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
