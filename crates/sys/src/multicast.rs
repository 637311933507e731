//! IPv4 multicast over UDP (ip(7)): the outgoing interface, and listening on a port that other programs of the same
//! machine use too. For TTL and loopback use the standard library.

use rustix::net::sockopt::{
    set_ip_add_membership_with_ifindex, set_ip_multicast_if_with_ifindex, set_socket_recv_buffer_size,
    set_socket_recv_buffer_size_force, set_socket_reuseaddr,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

/// Size of a receive buffer in bytes: some seconds of traffic of a busy exporter.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

/// Sets the interface through which the socket sends to multicast groups.
///
/// # Errors
/// The errors of setsockopt(2).
pub fn set_outgoing_interface(socket: &UdpSocket, ifindex: u32) -> io::Result<()> {
    Ok(set_ip_multicast_if_with_ifindex(socket, &Ipv4Addr::UNSPECIFIED, &Ipv4Addr::UNSPECIFIED, ifindex)?)
}

/// A socket that receives the packets for a group and a UDP port on one interface (0: chosen by the kernel). Any number
/// of programs may listen on the same group and port.
///
/// # Errors
/// The errors of socket(2), bind(2) and setsockopt(2).
pub fn listen(group: Ipv4Addr, port: u16, ifindex: u32) -> io::Result<UdpSocket> {
    let fd = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    set_socket_reuseaddr(&fd, true)?;
    // A large receive buffer holds the bursts of exporters. A size above `net.core.rmem_max` needs CAP_NET_ADMIN;
    // without it, `net.core.rmem_max` applies.
    let _ = set_socket_recv_buffer_size(&fd, RECEIVE_BUFFER_BYTES);
    let _ = set_socket_recv_buffer_size_force(&fd, RECEIVE_BUFFER_BYTES);
    bind(&fd, &SocketAddrV4::new(group, port))?;
    set_ip_add_membership_with_ifindex(&fd, &group, &Ipv4Addr::UNSPECIFIED, ifindex)?;
    Ok(UdpSocket::from(fd))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_interface_that_does_not_exist_is_rejected() {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        assert!(set_outgoing_interface(&socket, u32::MAX >> 1).is_err());
        assert!(listen(Ipv4Addr::new(239, 255, 0, 1), 0, u32::MAX >> 1).is_err());
    }

    #[test]
    fn two_listeners_receive_a_packet_from_the_loopback_interface() {
        // Index 1 is the loopback interface of every network namespace.
        let group = Ipv4Addr::new(239, 255, 77, 1);
        let first = listen(group, 0, 1).expect("the first listener");
        let port = first.local_addr().expect("an address").port();
        let second = listen(group, port, 1).expect("the second listener");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        set_outgoing_interface(&sender, 1).expect("the loopback interface");
        sender.send_to(b"hello", (group, port)).expect("sent");
        for listener in [first, second] {
            listener.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
            let mut bytes = [0; 16];
            let len = listener.recv(&mut bytes).expect("a packet");
            assert_eq!(&bytes[..len], b"hello");
        }
    }
}
