//! IPv4 multicast over UDP (ip(7)): the outgoing interface, and listening on a port that other programs of the same
//! machine use too. For TTL and loopback use the standard library.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Size of a receive buffer in bytes: some seconds of traffic of a busy exporter.
static RECEIVE_BUFFER_BYTES: libc::c_int = 8 << 20;

/// Sets the interface through which the socket sends to groups.
///
/// # Errors
/// The errors of setsockopt(2).
pub fn leave_by(socket: &UdpSocket, ifindex: u32) -> io::Result<()> {
    set(socket.as_fd(), libc::IP_MULTICAST_IF, request(Ipv4Addr::UNSPECIFIED, ifindex))
}

/// A socket that receives the packets for a group and a UDP port on one interface (0: chosen by the kernel). Any number
/// of programs may listen on the same group and port.
///
/// # Errors
/// The errors of socket(2), bind(2) and setsockopt(2).
pub fn listen(group: Ipv4Addr, port: u16, ifindex: u32) -> io::Result<UdpSocket> {
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so `fd` is new and ours.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let yes: libc::c_int = 1;
    // SAFETY: `yes` is a c_int, as SO_REUSEADDR takes it.
    let result = unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, (&raw const yes).cast(), len_of(&yes))
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // Exporters send in bursts. A size above `net.core.rmem_max` needs CAP_NET_ADMIN; otherwise the kernel's maximum
    // applies.
    for option in [libc::SO_RCVBUF, libc::SO_RCVBUFFORCE] {
        // SAFETY: `RECEIVE_BUFFER_BYTES` is a c_int, as both options take it.
        let _ = unsafe {
            libc::setsockopt(
                fd.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const RECEIVE_BUFFER_BYTES).cast(),
                len_of(&RECEIVE_BUFFER_BYTES),
            )
        };
    }
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: address(group),
        sin_zero: [0; 8],
    };
    // SAFETY: `address` is an initialised sockaddr_in of the length that is passed.
    if unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len_of(&address)) } != 0 {
        return Err(io::Error::last_os_error());
    }
    set(fd.as_fd(), libc::IP_ADD_MEMBERSHIP, request(group, ifindex))?;
    Ok(UdpSocket::from(fd))
}

fn request(group: Ipv4Addr, ifindex: u32) -> libc::ip_mreqn {
    libc::ip_mreqn {
        imr_multiaddr: address(group),
        imr_address: address(Ipv4Addr::UNSPECIFIED),
        imr_ifindex: ifindex as libc::c_int,
    }
}

fn address(ip: Ipv4Addr) -> libc::in_addr {
    libc::in_addr { s_addr: u32::from(ip).to_be() }
}

fn set(fd: BorrowedFd<'_>, option: libc::c_int, request: libc::ip_mreqn) -> io::Result<()> {
    // SAFETY: `request` is an initialised ip_mreqn, as both options take it, of the length that is passed.
    let result = unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::IPPROTO_IP, option, (&raw const request).cast(), len_of(&request))
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn len_of<T>(value: &T) -> libc::socklen_t {
    size_of_val(value) as libc::socklen_t
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_port_that_does_not_exist_is_refused() {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        assert!(leave_by(&socket, u32::MAX >> 1).is_err());
        assert!(listen(Ipv4Addr::new(239, 255, 0, 1), 0, u32::MAX >> 1).is_err());
    }

    #[test]
    fn two_listeners_hear_what_is_sent_by_the_loopback_port() {
        // Index 1 is the loopback interface of every network namespace.
        let group = Ipv4Addr::new(239, 255, 77, 1);
        let first = listen(group, 0, 1).expect("the first listens");
        let port = first.local_addr().expect("it has an address").port();
        let second = listen(group, port, 1).expect("and a second beside it");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        leave_by(&sender, 1).expect("by the loopback port");
        sender.send_to(b"hello", (group, port)).expect("sent");
        for listener in [first, second] {
            listener.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
            let mut bytes = [0; 16];
            let len = listener.recv(&mut bytes).expect("it arrives");
            assert_eq!(&bytes[..len], b"hello");
        }
    }
}
