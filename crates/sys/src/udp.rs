//! UDP packets with the kernel's time of arrival, the TTL or hop limit and the local address (socket(7), ip(7),
//! ipv6(7)).

use base::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Bytes for the control messages of one packet: a time, an address and two numbers, each with a header.
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
    /// The address of this host from which a reply must come; `None` if the packet was sent to a multicast address.
    pub local: Option<IpAddr>,
}

/// An error of a UDP socket that is about the path to the other host. The kernel derives most of these errors from ICMP
/// messages (`icmp_err_convert` and `tab_unreach` in its IP code), and reports each once, at the next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathError {
    /// No program receives on the port.
    NoReceiver,
    /// The host is unreachable.
    HostUnreachable,
    /// The network is unreachable, or the interface is down.
    NetworkUnreachable,
    /// The packet is longer than the path permits.
    TooLong,
    /// The host or a router does not support the protocol or an option of the packet.
    NotSupported,
    /// A packet filter forbids the packet.
    Forbidden,
    /// The queue of the interface is full.
    QueueFull,
}

impl PathError {
    /// The path error of a call; `None` if the error has another cause.
    pub fn of(e: &io::Error) -> Option<Self> {
        Some(match Errno::from_io_error(e)? {
            Errno::CONNREFUSED => Self::NoReceiver,
            Errno::HOSTUNREACH | Errno::HOSTDOWN | Errno::NONET => Self::HostUnreachable,
            Errno::NETUNREACH | Errno::NETDOWN => Self::NetworkUnreachable,
            Errno::MSGSIZE => Self::TooLong,
            Errno::NOPROTOOPT | Errno::PROTO | Errno::OPNOTSUPP => Self::NotSupported,
            Errno::ACCESS | Errno::PERM => Self::Forbidden,
            Errno::NOBUFS => Self::QueueFull,
            _ => return None,
        })
    }

    /// The name of the error in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoReceiver => "no-receiver",
            Self::HostUnreachable => "host-unreachable",
            Self::NetworkUnreachable => "network-unreachable",
            Self::TooLong => "too-long",
            Self::NotSupported => "not-supported",
            Self::Forbidden => "forbidden",
            Self::QueueFull => "queue-full",
        }
    }
}

/// Requests the time of arrival, the TTL or hop limit, and the local address of each packet.
///
/// # Errors
/// The errors of setsockopt(2).
pub fn request_arrival_details(socket: &UdpSocket) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS)?;
    if socket.local_addr()?.is_ipv6() {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT)?;
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)?;
        // The socket may also receive IPv4 packets; some kernels refuse the option for IPv6 sockets.
        let _ = set(socket, libc::IPPROTO_IP, libc::IP_RECVTTL);
        return Ok(());
    }
    set(socket, libc::IPPROTO_IP, libc::IP_PKTINFO)?;
    set(socket, libc::IPPROTO_IP, libc::IP_RECVTTL)
}

/// Sends a packet to `to` from the address `from` of this host; `None` lets the kernel choose the address. A socket
/// that receives at all addresses of the host needs the address for replies, because the kernel would choose the
/// address by the route.
///
/// # Errors
/// The errors of sendmsg(2); `EINVAL` if `from` is no address of this host.
pub fn send_from(socket: &UdpSocket, bytes: &[u8], to: SocketAddr, from: Option<IpAddr>) -> io::Result<()> {
    let Some(from) = from else {
        socket.send_to(bytes, to)?;
        return Ok(());
    };
    let (address, address_len) = encode_address(to);
    let mut control = [0u64; CONTROL_BYTES / 8];
    // SAFETY: `msghdr` is plain data for which all zeros is valid.
    let mut message: libc::msghdr = unsafe { zeroed() };
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    message.msg_name = (&raw const address).cast_mut().cast();
    message.msg_namelen = address_len;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = CONTROL_BYTES as _;
    let space = match from {
        IpAddr::V4(from) => {
            let source = libc::in_addr { s_addr: u32::from(from).to_be() };
            let info = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: source, ipi_addr: libc::in_addr { s_addr: 0 } };
            put_control(&message, libc::IPPROTO_IP, libc::IP_PKTINFO, info)
        }
        IpAddr::V6(from) => {
            let info = libc::in6_pktinfo { ipi6_addr: libc::in6_addr { s6_addr: from.octets() }, ipi6_ifindex: 0 };
            put_control(&message, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info)
        }
    };
    message.msg_controllen = space as _;
    // SAFETY: all pointers of `message` are to memory of the stated lengths, which outlives the call and is only read.
    match unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, 0) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Writes one control message into the control memory of `message`, and returns the length that it occupies.
fn put_control<T>(message: &libc::msghdr, level: libc::c_int, kind: libc::c_int, value: T) -> usize {
    const { assert!(size_of::<T>() <= 64, "a control message fits into the control memory") };
    let size = size_of::<T>() as libc::c_uint;
    // SAFETY: the control memory is writable, aligned for `cmsghdr`, and longer than a header and `T`.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(message);
        (*header).cmsg_level = level;
        (*header).cmsg_type = kind;
        (*header).cmsg_len = libc::CMSG_LEN(size) as _;
        libc::CMSG_DATA(header).cast::<T>().write_unaligned(value);
        libc::CMSG_SPACE(size) as usize
    }
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
    let (mut time, mut ttl, mut local) = (None, None, None);
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
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                // SAFETY: a control message of this type has an `in_pktinfo`.
                let info = unsafe { data.cast::<libc::in_pktinfo>().read_unaligned() };
                local = Some(IpAddr::V4(u32::from_be(info.ipi_spec_dst.s_addr).into()));
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                // SAFETY: a control message of this type has an `in6_pktinfo`.
                let info = unsafe { data.cast::<libc::in6_pktinfo>().read_unaligned() };
                local = Some(IpAddr::V6(info.ipi6_addr.s6_addr.into())).filter(|address| !address.is_multicast());
            }
            _ => (),
        }
        // SAFETY: `header` is a header of the control messages of `message`.
        header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
    }
    let from = decode_address(&address).ok_or(io::Error::from(io::ErrorKind::Unsupported))?;
    Ok(Some(Received { len, from, time, ttl, local }))
}

/// The address in the form of the kernel, and the length of this form in bytes.
fn encode_address(address: SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: `sockaddr_storage` is plain data for which all zeros is valid.
    let mut storage: libc::sockaddr_storage = unsafe { zeroed() };
    let len = match address {
        SocketAddr::V4(v4) => {
            let form = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: `sockaddr_storage` is longer than `sockaddr_in` and aligned for each address form.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(form) };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            let form = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: `sockaddr_storage` is longer than `sockaddr_in6` and aligned for each address form.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(form) };
            size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, len as libc::socklen_t)
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
    fn a_reply_comes_from_the_address_to_which_the_packet_was_sent() {
        for (any, target) in [("0.0.0.0:0", "127.0.0.2"), ("[::]:0", "127.0.0.2"), ("[::]:0", "::1")] {
            let Ok(receiver) = UdpSocket::bind(any) else { continue };
            request_arrival_details(&receiver).expect("the options");
            let target = SocketAddr::new(target.parse().unwrap(), receiver.local_addr().expect("an address").port());
            let own = if target.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
            let sender = UdpSocket::bind(own).expect("a socket");
            // A connected socket receives only packets from the address to which it is connected.
            sender.connect(target).expect("connected");
            sender.send(b"question").expect("sent");
            let found = receive(&receiver, &mut [0; 20], Duration::from_secs(10)).expect("received").expect("a packet");
            assert_eq!(found.local.map(|local| local.to_canonical()), Some(target.ip()), "{any}");
            send_from(&receiver, b"answer", found.from, found.local).expect("sent");
            let mut buf = [0; 20];
            let reply = receive(&sender, &mut buf, Duration::from_secs(10)).expect("received").expect("a reply");
            assert_eq!((&buf[..reply.len], reply.from), (&b"answer"[..], target), "{any}");
        }
    }

    #[test]
    fn errors_of_the_path_are_distinguished_from_other_errors() {
        let of = |errno: Errno| PathError::of(&errno.into());
        assert_eq!(of(Errno::CONNREFUSED), Some(PathError::NoReceiver));
        assert_eq!(of(Errno::HOSTUNREACH), Some(PathError::HostUnreachable));
        assert_eq!(of(Errno::MSGSIZE), Some(PathError::TooLong));
        assert_eq!(of(Errno::NOPROTOOPT), Some(PathError::NotSupported));
        assert_eq!(of(Errno::ACCESS), Some(PathError::Forbidden));
        assert_eq!([Errno::BADF, Errno::INVAL, Errno::NOTSOCK].map(of), [None; 3]);
    }

    #[test]
    fn an_address_of_another_host_cannot_be_the_source() {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        let to = socket.local_addr().expect("an address");
        let to = SocketAddr::from(([127, 0, 0, 1], to.port()));
        assert!(send_from(&socket, b"x", to, Some("192.0.2.77".parse().unwrap())).is_err());
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
