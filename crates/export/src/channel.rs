//! An open way to a target. Each call may block for a bounded time; only the exporter's own thread makes them.

use crate::file;
use crate::target::{Kind, Target, group};
use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::Duration;
use sys::netlink::Netlink;

/// How long a connection may take to come about, and a peer not to read, before it is given up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) enum Channel {
    /// Connected to its collector or group.
    Datagrams(UdpSocket),
    Stream(TcpStream),
    File(File),
}

/// Why a message was not sent.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It is longer than the way takes.
    TooLarge,
    /// This one did not go; the next may.
    Refused(io::Error),
    /// Nothing more can be sent here.
    Broken(io::Error),
}

impl Channel {
    /// Opens the way to a target; which group, where it is multicast.
    pub fn open(target: &Target, default_port: u16, to: (Kind, u16)) -> io::Result<Self> {
        match target {
            Target::File(path) => file::append(path).map(Self::File),
            Target::Tcp { host, port } => each(host, port.unwrap_or(default_port), |to| {
                let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
                stream.set_write_timeout(Some(PATIENCE))?;
                stream.set_nodelay(true)?;
                Ok(Self::Stream(stream))
            }),
            Target::Udp { host, port } => each(host, port.unwrap_or(default_port), |to| {
                let any: IpAddr =
                    if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
                let socket = UdpSocket::bind((any, 0))?;
                socket.connect(to)?;
                Ok(Self::Datagrams(socket))
            }),
            Target::Multicast { interface, port, ttl } => {
                let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
                socket.set_multicast_ttl_v4(u32::from(*ttl))?;
                if !interface.is_empty() {
                    sys::multicast::leave_by(&socket, ifindex(interface)?)?;
                }
                socket.connect((group(to.0, to.1), port.unwrap_or(default_port)))?;
                Ok(Self::Datagrams(socket))
            }
        }
    }

    /// Waits a moment for the last datagram to be refused.
    pub fn refused(&self) -> Option<io::Error> {
        let Self::Datagrams(socket) = self else { return None };
        std::thread::sleep(ECHO);
        socket.take_error().ok().flatten().filter(|e| e.kind() == io::ErrorKind::ConnectionRefused)
    }

    /// Sends one whole message.
    pub fn send(&mut self, message: &[u8]) -> Result<(), Trouble> {
        match self {
            Self::Datagrams(socket) => match socket.send(message) {
                Ok(_) => Ok(()),
                Err(error) if error.raw_os_error() == Some(EMSGSIZE) => Err(Trouble::TooLarge),
                Err(error) => Err(Trouble::Refused(error)),
            },
            // A part of a message that went out cannot be taken back: the stream is of no more use.
            Self::Stream(stream) => stream.write_all(message).map_err(Trouble::Broken),
            Self::File(file) => file.write_all(message).map_err(Trouble::Broken),
        }
    }
}

/// How long the last datagram is waited for to come back: longer than a machine nearby takes to say that nobody listens.
const ECHO: Duration = Duration::from_millis(20);

/// errno-base.h and asm-generic/errno.h; `ErrorKind` has no name for it.
const EMSGSIZE: i32 = 90;

/// Number of the interface with this name.
pub(crate) fn ifindex(name: &str) -> io::Result<u32> {
    Ok(Netlink::route()?.link(name)?.index)
}

/// Tries each address of a host.
fn each<T>(host: &str, port: u16, open: impl Fn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match open(address) {
            Ok(channel) => return Ok(channel),
            Err(error) => last = error,
        }
    }
    Err(last)
}
