//! Packet sockets (packet(7), `net/packet/af_packet.c`): whole frames from and to an interface, shared with the host.
//!
//! A [`PacketSocket`] receives no frame before [`PacketSocket::bind`], so that filter, ring and options are set before
//! the first frame. The receive ring of version 3 is in [`ring`], and [`others`] counts the packet sockets of other
//! processes.

pub mod others;
mod receive;
pub mod ring;

pub use receive::ReceiveBatch;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_recv_buffer_size_force, socket_error};
use rustix::net::{
    AddressFamily, MMsgHdr, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    recv, send, sendmmsg, sendmsg, socket_with,
};
use std::io::{self, IoSlice};
use std::mem::{MaybeUninit, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// The error of a socket whose interface is down or was removed.
pub const PORT_DOWN: i32 = libc::ENETDOWN;
/// The error of a socket whose frame does not fit the queue of the interface.
pub const QUEUE_FULL: i32 = libc::ENOBUFS;
/// `PACKET_IGNORE_OUTGOING`, which libc does not define.
const IGNORE_OUTGOING: i32 = 23;
/// `PACKET_FANOUT_FLAG_UNIQUEID`: the kernel chooses the id.
const FANOUT_UNIQUE_ID: u32 = 0x2000;
/// `PACKET_FANOUT_FLAG_IGNORE_OUTGOING`: in a group, the flag of the group replaces the option of the socket.
const FANOUT_IGNORE_OUTGOING: u32 = 0x4000;
/// Maximum number of frames per system call.
const SEND_BATCH: usize = 256;

/// The property of a frame by which a fanout group chooses the socket that gets the frame (`PACKET_FANOUT_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Fanout {
    /// A symmetric hash of the flow: one socket receives both directions of a flow.
    #[default]
    Hash = 0,
    /// The CPU that received the frame.
    Cpu = 2,
    /// The receive queue of the NIC in which the frame arrived.
    Queue = 5,
}

/// The counters of `PACKET_STATISTICS` since the last read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames that passed the filter, including frames that were dropped.
    pub packets: u32,
    /// Frames that passed the filter and were dropped because the ring was full.
    pub drops: u32,
    /// How often the ring filled up (version 3 only).
    pub freezes: u32,
}

/// The result of a poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// Frames may be available.
    pub readable: bool,
    /// An error is pending; [`PacketSocket::take_error`] returns it.
    pub error: bool,
}

/// An `AF_PACKET` socket for whole frames.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl PacketSocket {
    /// Opens a socket that receives no frames yet.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`.
    pub fn open() -> io::Result<Self> {
        Ok(Self(socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)?))
    }

    /// Binds the socket to the interface with the index `link`; without a protocol the socket can only send.
    ///
    /// # Errors
    /// `ENODEV` if the interface does not exist.
    pub fn bind(&self, link: u32, protocol: Option<u16>) -> io::Result<()> {
        // SAFETY: `sockaddr_ll` is plain data for which all zeros is valid.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol.unwrap_or(0).to_be();
        address.sll_ifindex = link as i32;
        // SAFETY: pointer and length describe `address`, which outlives the call.
        check(unsafe {
            libc::bind(self.raw(), (&raw const address).cast(), size_of::<libc::sockaddr_ll>() as libc::socklen_t)
        })
    }

    /// The index of the interface to which the socket is bound; `None` after the interface was removed.
    ///
    /// # Errors
    /// Returns the kernel's error if the system call fails.
    pub fn bound_link(&self) -> io::Result<Option<u32>> {
        // SAFETY: `sockaddr_ll` is plain data for which all zeros is valid.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        let mut len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: pointer and length describe `address`, which outlives the call.
        check(unsafe { libc::getsockname(self.raw(), (&raw mut address).cast(), &raw mut len) })?;
        // When an interface is unregistered, the kernel changes the interface index of its sockets to -1, because the
        // former index may later belong to another interface.
        Ok(u32::try_from(address.sll_ifindex).ok().filter(|i| *i != 0))
    }

    /// Sets a filter that refuses every frame. The change is atomic: a frame passes either the old filter or the new
    /// filter. Sending is not affected.
    ///
    /// # Errors
    /// Returns the kernel's error if the system call fails.
    pub fn refuse_all(&self) -> io::Result<()> {
        // One instruction of classic BPF: return 0, which is the number of bytes to keep.
        let mut program = [libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 }];
        let filter = libc::sock_fprog { len: 1, filter: program.as_mut_ptr() };
        self.set(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)
    }

    /// Removes the filter of [`PacketSocket::refuse_all`].
    ///
    /// # Errors
    /// `ENOENT` if the socket has no filter.
    pub fn accept_all(&self) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0i32)
    }

    /// Ignores frames that this host sends.
    ///
    /// # Errors
    /// `ENOPROTOOPT` before kernel 4.20.
    pub fn ignore_outgoing(&self) -> io::Result<()> {
        self.set(libc::SOL_PACKET, IGNORE_OUTGOING, &1i32)
    }

    /// Puts the interface into promiscuous mode until the socket is closed.
    ///
    /// # Errors
    /// `ENODEV`.
    pub fn promiscuous(&self, link: u32) -> io::Result<()> {
        let request = libc::packet_mreq {
            mr_ifindex: link as i32,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        self.set(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)
    }

    /// Uses the NIC's timestamp of a frame, if there is one, instead of the kernel's.
    ///
    /// # Errors
    /// Returns the kernel's error if the system call fails.
    pub fn hardware_stamps(&self) -> io::Result<()> {
        self.set(libc::SOL_PACKET, libc::PACKET_TIMESTAMP, &(libc::SOF_TIMESTAMPING_RAW_HARDWARE as i32))
    }

    /// Joins (with `id`) or creates (without) a fanout group and returns its id. The socket must be bound to an
    /// interface.
    ///
    /// # Errors
    /// `EINVAL` if mode or flags differ from the group's, or (before 6.10) if the interface is down; `ENOSPC` if the
    /// group is full.
    pub fn join_fanout(&self, id: Option<u16>, mode: Fanout, ignore_outgoing: bool) -> io::Result<u16> {
        let flags =
            if id.is_none() { FANOUT_UNIQUE_ID } else { 0 } | if ignore_outgoing { FANOUT_IGNORE_OUTGOING } else { 0 };
        self.set(libc::SOL_PACKET, libc::PACKET_FANOUT, &(u32::from(id.unwrap_or(0)) | (mode as u32 | flags) << 16))?;
        let joined: u32 = self.get(libc::SOL_PACKET, libc::PACKET_FANOUT)?;
        Ok(joined as u16)
    }

    /// Requests a receive queue of this many bytes, beyond the system's limit if the process has the privilege.
    ///
    /// # Errors
    /// Returns the kernel's error if the system call fails.
    pub fn receive_buffer(&self, bytes: u32) -> io::Result<()> {
        Ok(set_socket_recv_buffer_size_force(&self.0, bytes as usize)?)
    }

    /// The counters since the last call. The kernel resets them on each read, so one caller must sum them.
    ///
    /// # Errors
    /// Returns the kernel's error if the system call fails.
    pub fn take_statistics(&self) -> io::Result<Statistics> {
        // For a socket without a version 3 ring, the kernel writes only the first two counters.
        let [packets, drops, freezes]: [u32; 3] = self.get(libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
        Ok(Statistics { packets, drops, freezes })
    }

    /// Returns and clears the pending error: `ENETDOWN` if the interface went down or was removed.
    ///
    /// # Errors
    /// Returns the kernel's error if the system call fails.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(socket_error(&self.0)?.err().map(io::Error::from))
    }

    /// Waits for a frame or an error, at most for `wait`. A signal ends the wait early.
    ///
    /// # Errors
    /// Returns the kernel's error if the system call fails.
    pub fn wait_readable(&self, wait: Duration) -> io::Result<Ready> {
        let timeout = Timespec::try_from(wait).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
        let mut polled = [PollFd::new(&self.0, PollFlags::IN)];
        match poll(&mut polled, Some(&timeout)) {
            Err(Errno::INTR) => return Ok(Ready::default()),
            found => found?,
        };
        let events = polled[0].revents();
        Ok(Ready {
            readable: events.contains(PollFlags::IN),
            error: events.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL),
        })
    }

    /// Reads one frame into `buffer` without waiting and returns its wire length; `None` if there is none.
    ///
    /// # Errors
    /// `ENETDOWN` if the interface went down.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match recv(&self.0, buffer, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
            Ok((_, wire_length)) => Ok(Some(wire_length)),
            Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends all `frames`, each a whole frame with its link header, and waits for space in the queue if necessary.
    ///
    /// # Errors
    /// `EMSGSIZE` for a frame above the MTU, `ENETDOWN`. Frames before the failed one are sent.
    pub fn send_all(&self, frames: &[impl AsRef<[u8]>]) -> io::Result<()> {
        self.send_until(frames).1
    }

    /// Like [`PacketSocket::send_all`], but also returns the number of frames sent.
    pub fn send_until(&self, frames: &[impl AsRef<[u8]>]) -> (usize, io::Result<()>) {
        let mut before = 0;
        for batch in frames.chunks(SEND_BATCH) {
            let slices: Vec<[IoSlice<'_>; 1]> = batch.iter().map(|frame| [IoSlice::new(frame.as_ref())]).collect();
            let mut no_control: Vec<SendAncillaryBuffer<'_, '_, '_>> =
                batch.iter().map(|_| SendAncillaryBuffer::default()).collect();
            let mut headers: Vec<MMsgHdr<'_>> =
                slices.iter().zip(&mut no_control).map(|(slice, control)| MMsgHdr::new(slice, control)).collect();
            let mut sent = 0;
            while sent < headers.len() {
                match sendmmsg(&self.0, &mut headers[sent..], SendFlags::empty()) {
                    Ok(n) => sent += n,
                    Err(Errno::INTR) => {}
                    // The interface's queue is full; it drains without further calls.
                    Err(Errno::NOBUFS) => std::thread::yield_now(),
                    Err(error) => return (before + sent, Err(error.into())),
                }
            }
            before += sent;
        }
        (before, Ok(()))
    }

    /// Lets each frame of [`PacketSocket::send_at`] have a launch time on the clock TAI (`SO_TXTIME`). A queueing
    /// discipline for launch times (ETF) must be on the interface; otherwise the frames are sent at once.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`, `ENOPROTOOPT` before kernel 4.19.
    pub fn use_launch_times(&self) -> io::Result<()> {
        let config = libc::sock_txtime { clockid: libc::CLOCK_TAI, flags: libc::SOF_TXTIME_REPORT_ERRORS };
        self.set(libc::SOL_SOCKET, libc::SO_TXTIME, &config)
    }

    /// Sends one frame once, without waiting for space in a queue.
    ///
    /// # Errors
    /// `ENOBUFS` or `EAGAIN` if the queue of the interface is full, `EMSGSIZE` for a frame above the MTU, `ENETDOWN`.
    pub fn send_once(&self, frame: &[u8]) -> io::Result<()> {
        loop {
            match send(&self.0, frame, SendFlags::DONTWAIT) {
                Err(Errno::INTR) => {}
                other => return Ok(other.map(|_| ())?),
            }
        }
    }

    /// Sends one frame that a queueing discipline for launch times sends at the time `launch` of the clock TAI.
    ///
    /// # Errors
    /// As [`PacketSocket::send_once`].
    pub fn send_at(&self, frame: &[u8], launch: Duration) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(TxTime(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let nanos = u64::try_from(launch.as_nanos()).unwrap_or(u64::MAX);
        control.push(SendAncillaryMessage::TxTime(nanos));
        loop {
            match sendmsg(&self.0, &[IoSlice::new(frame)], &mut control, SendFlags::DONTWAIT) {
                Err(Errno::INTR) => {}
                other => return Ok(other.map(|_| ())?),
            }
        }
    }

    /// Returns the number of frames that the queueing discipline for launch times dropped since the last call, because
    /// their launch time had passed or was invalid. Each such frame is in the error queue of the socket.
    ///
    /// # Errors
    /// Returns the kernel's error if the system call fails.
    pub fn take_launch_failures(&self) -> io::Result<u64> {
        let mut failures = 0;
        loop {
            match recv(&self.0, &mut [0u8; 64][..], RecvFlags::DONTWAIT | RecvFlags::ERRQUEUE | RecvFlags::TRUNC) {
                Ok(_) => failures += 1,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(failures),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn raw(&self) -> i32 {
        self.0.as_raw_fd()
    }

    fn set<T>(&self, level: i32, name: i32, value: &T) -> io::Result<()> {
        let len = size_of::<T>() as libc::socklen_t;
        // SAFETY: pointer and length describe `value`, which the kernel only reads.
        check(unsafe { libc::setsockopt(self.raw(), level, name, std::ptr::from_ref(value).cast(), len) })
    }

    fn get<T: Copy + Default>(&self, level: i32, name: i32) -> io::Result<T> {
        let mut value = T::default();
        let mut len = size_of::<T>() as libc::socklen_t;
        // SAFETY: pointer and length describe `value`; every `T` used here is made of integers, so any bytes are valid.
        check(unsafe { libc::getsockopt(self.raw(), level, name, (&raw mut value).cast(), &raw mut len) })?;
        Ok(value)
    }
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::{RawReader, Sandbox};

    #[test]
    fn a_frame_with_a_launch_time_is_sent_at_once_if_the_interface_has_no_etf() {
        let Some(sandbox) = Sandbox::new("a_frame_with_a_launch_time_is_sent_at_once_if_the_interface_has_no_etf")
        else {
            return;
        };
        let (a, b) = sandbox.veth("a", "b");
        let mut reader = RawReader::new(&b);
        let socket = PacketSocket::open().expect("a socket");
        socket.bind(a.index, None).expect("bound");
        socket.use_launch_times().expect("the option");
        let frame = [0x5a; 60];
        socket.send_at(&frame, Duration::from_secs(1 << 40)).expect("sent");
        socket.send_once(&frame).expect("sent");
        let is_sent = |bytes: &[u8]| bytes == frame;
        assert_eq!(reader.at_least(2, Duration::ZERO, is_sent).len(), 2);
        assert_eq!(socket.take_launch_failures().expect("the error queue"), 0);
    }

    #[test]
    fn a_frame_above_the_mtu_is_refused() {
        let Some(sandbox) = Sandbox::new("a_frame_above_the_mtu_is_refused") else { return };
        let (a, _b) = sandbox.veth("a", "b");
        let socket = PacketSocket::open().expect("a socket");
        socket.bind(a.index, None).expect("bound");
        let error = socket.send_once(&[0x5a; 1600]).expect_err("too long");
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    }
}
