//! UDP packets with the kernel's time of arrival and the TTL or hop limit (socket(7), ip(7), ipv6(7)).

use base::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Bytes for the control messages of one packet: a time and two numbers, each with a header.
const CONTROL_BYTES: usize = 256;

/// A received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Length in bytes; at most that of the buffer.
    pub len: usize,
    /// The sender.
    pub from: SocketAddr,
    /// The time at which the kernel received the packet.
    pub time: Option<Timestamp>,
    /// TTL or hop limit on arrival.
    pub ttl: Option<u8>,
}

/// Requests the time of arrival and the TTL or hop limit of each packet.
///
/// # Errors
/// The errors of setsockopt(2).
pub fn request_arrival_details(socket: &UdpSocket) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS)?;
    if socket.local_addr()?.is_ipv6() {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT)?;
        // The socket may also receive IPv4 packets; some kernels refuse the option for IPv6 sockets.
        let _ = set(socket, libc::IPPROTO_IP, libc::IP_RECVTTL);
        return Ok(());
    }
    set(socket, libc::IPPROTO_IP, libc::IP_RECVTTL)
}

/// Waits at most `wait` for a packet and reads it into `buf`; returns `None` if no packet has arrived, or a signal
/// ended the wait.
///
/// # Errors
/// `ECONNREFUSED` if the host to which the socket is connected has no receiver on the port.
pub fn receive(socket: &UdpSocket, buf: &mut [u8], wait: Duration) -> io::Result<Option<Received>> {
    let timeout = Timespec::try_from(wait).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
    match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout)) {
        Ok(0) | Err(Errno::INTR) => return Ok(None),
        other => other?,
    };
    let mut control = [MaybeUninit::<u64>::uninit(); CONTROL_BYTES / 8];
    // SAFETY: `sockaddr_storage` and `msghdr` are plain data for which all zeros is valid.
    let (mut address, mut message): (libc::sockaddr_storage, libc::msghdr) = unsafe { (zeroed(), zeroed()) };
    let mut part = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    message.msg_name = (&raw mut address).cast();
    message.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = CONTROL_BYTES as _;
    // SAFETY: all pointers of `message` are to memory of the stated lengths, which outlives the call.
    let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    let Ok(len) = usize::try_from(len) else {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        };
    };
    let (mut time, mut ttl) = (None, None);
    // SAFETY: the kernel has filled `msg_control` with control messages and set their length.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !header.is_null() {
        // SAFETY: the macros return headers that lie completely within the control messages, aligned for their type.
        let (level, kind, data) = unsafe { ((*header).cmsg_level, (*header).cmsg_type, libc::CMSG_DATA(header)) };
        match (level, kind) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                // SAFETY: a control message of this type has a `timespec`.
                let t = unsafe { data.cast::<libc::timespec>().read_unaligned() };
                time = Some(Timestamp::from_secs_nanos(t.tv_sec as u64, t.tv_nsec as u64));
            }
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                // SAFETY: a control message of these types has an `int`.
                ttl = u8::try_from(unsafe { data.cast::<libc::c_int>().read_unaligned() }).ok();
            }
            _ => (),
        }
        // SAFETY: `header` is a header of the control messages of `message`.
        header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
    }
    let from = decode_address(&address).ok_or(io::Error::from(io::ErrorKind::Unsupported))?;
    Ok(Some(Received { len, from, time, ttl }))
}

fn decode_address(address: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(address.ss_family) {
        libc::AF_INET => {
            // SAFETY: an address of this family is a `sockaddr_in`, which is shorter than `sockaddr_storage`.
            let v4 = unsafe { (&raw const *address).cast::<libc::sockaddr_in>().read() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: an address of this family is a `sockaddr_in6`, which is shorter than `sockaddr_storage`.
            let v6 = unsafe { (&raw const *address).cast::<libc::sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), v6.sin6_flowinfo, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

fn set(socket: &UdpSocket, level: libc::c_int, name: libc::c_int) -> io::Result<()> {
    let on: libc::c_int = 1;
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: pointer and length describe `on`, which the kernel only reads.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const on).cast(), len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_has_its_sender_time_and_ttl() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(receiver) = UdpSocket::bind(address) else { continue };
            request_arrival_details(&receiver).expect("the options");
            assert_eq!(receive(&receiver, &mut [0; 8], Duration::ZERO).expect("no packet"), None);
            let sender = UdpSocket::bind(address).expect("a socket");
            let before = crate::clock::realtime();
            sender.send_to(b"hello", receiver.local_addr().expect("an address")).expect("sent");
            let mut buf = [0; 3];
            let found = receive(&receiver, &mut buf, Duration::from_secs(10)).expect("received").expect("a packet");
            assert_eq!((found.len, &buf), (3, b"hel"));
            assert_eq!(found.from, sender.local_addr().expect("an address"));
            assert_eq!(found.ttl, Some(64));
            assert!(found.time.is_some_and(|time| time >= before.before(Duration::from_secs(1))), "{found:?}");
        }
    }

    #[test]
    fn a_port_without_receiver_is_an_error() {
        let closed = UdpSocket::bind("127.0.0.1:0").expect("a socket").local_addr().expect("an address");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        sender.connect(closed).expect("connected");
        sender.send(b"hello").expect("sent");
        let error = receive(&sender, &mut [0; 8], Duration::from_secs(10)).expect_err("no receiver");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
