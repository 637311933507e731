//! An open connection to an export target. Each call may block for a bounded time ([`CallTimeout`]), so only the
//! exporter's own thread makes calls. The operating system does not bound the time of name resolution and disk I/O, so
//! [`crate::Exporter::finish`] stops waiting for the thread after a while.

use crate::file;
use crate::target::{ExportKind, Target, group};
use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};
use sys::netlink::Netlink;

/// Limits on the time for which the calls of a connection may block.
#[derive(Clone, Copy)]
pub(crate) struct CallTimeout<'a> {
    /// Greatest time to establish a connection, and greatest time without progress of the peer.
    pub io_timeout: Duration,
    /// The deadline of the exporter, if it has one. A call reads the deadline repeatedly, because another thread may
    /// set it during the call.
    pub until: &'a dyn Fn() -> Option<Instant>,
}

impl CallTimeout<'_> {
    /// Remaining time at `now` of a wait that began at `since`; zero if the time is over.
    fn left(&self, since: Instant, now: Instant) -> Duration {
        let left = (since + self.io_timeout).saturating_duration_since(now);
        (self.until)().map_or(left, |until| left.min(until.saturating_duration_since(now)))
    }
}

/// The longest time of a single wait in the kernel for a peer that does not read. After each wait, the timeouts are
/// checked again.
const SLICE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) enum Channel {
    /// A socket connected to its collector or multicast group.
    Datagrams(UdpSocket),
    Stream(TcpStream),
    File(File),
}

/// The reason why a message was not sent.
#[derive(Debug)]
pub(crate) enum SendError {
    /// The message is longer than the transport permits.
    TooLarge,
    /// This message could not be sent. The connection remains usable.
    Refused(io::Error),
    /// The connection cannot be used any more.
    Broken(io::Error),
}

impl Channel {
    /// Opens a connection to a target; `to` selects the group of a multicast target.
    pub fn open(target: &Target, default_port: u16, to: (ExportKind, u16), bound: CallTimeout<'_>) -> io::Result<Self> {
        match target {
            Target::File(path) => file::append(path).map(Self::File),
            Target::Tcp { host, port } => each(host, port.unwrap_or(default_port), |to| {
                let now = Instant::now();
                let left = bound.left(now, now);
                if left.is_zero() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                let stream = TcpStream::connect_timeout(&to, left)?;
                stream.set_write_timeout(Some(SLICE))?;
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
                    sys::multicast::set_outgoing_interface(&socket, ifindex(interface)?)?;
                }
                socket.connect((group(to.0, to.1), port.unwrap_or(default_port)))?;
                Ok(Self::Datagrams(socket))
            }
        }
    }

    /// Waits a moment for an ICMP error in response to the last datagram.
    pub fn refused(&self) -> Option<io::Error> {
        let Self::Datagrams(socket) = self else { return None };
        std::thread::sleep(ECHO);
        socket.take_error().ok().flatten().filter(|e| e.kind() == io::ErrorKind::ConnectionRefused)
    }

    /// Sends one complete message.
    pub fn send(&mut self, message: &[u8], bound: CallTimeout<'_>) -> Result<(), SendError> {
        match self {
            Self::Datagrams(socket) => match socket.send(message) {
                Ok(_) => Ok(()),
                Err(error) if error.raw_os_error() == Some(EMSGSIZE) => Err(SendError::TooLarge),
                Err(error) => Err(SendError::Refused(error)),
            },
            // After a partial write the stream is unusable, because the beginning of the message has already been sent.
            Self::Stream(stream) => write_all(stream, message, bound).map_err(SendError::Broken),
            Self::File(file) => file.write_all(message).map_err(SendError::Broken),
        }
    }
}

/// Writes a message to a stream whose writes time out after [`SLICE`]. `io_timeout` bounds the time between two
/// successful writes, so that a slow peer is not disconnected; the deadline bounds the whole call.
fn write_all(stream: &mut impl Write, mut message: &[u8], bound: CallTimeout<'_>) -> io::Result<()> {
    let mut since = Instant::now();
    while !message.is_empty() {
        match stream.write(message) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                message = &message[written..];
                since = Instant::now();
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        if !message.is_empty() && bound.left(since, Instant::now()).is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the collector does not read from the connection"));
        }
    }
    Ok(())
}

/// How long to wait for an ICMP error: longer than a nearby host takes to report a closed port.
const ECHO: Duration = Duration::from_millis(20);

/// The value of EMSGSIZE (asm-generic/errno.h); `ErrorKind` has no variant for it.
const EMSGSIZE: i32 = 90;

/// Index of the interface with this name.
pub(crate) fn ifindex(name: &str) -> io::Result<u32> {
    Ok(Netlink::route()?.link(name)?.index)
}

/// Tries each address of a host until one succeeds.
fn each<T>(host: &str, port: u16, open: impl Fn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
    for address in (host, port).to_socket_addrs()? {
        match open(address) {
            Ok(channel) => return Ok(channel),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A peer that accepts this many bytes and then no more.
    struct Silent(usize);

    impl Write for Silent {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let accepted = bytes.len().min(self.0).min(10);
            self.0 -= accepted;
            if accepted == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(accepted) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_deadline_ends_the_wait_for_an_unresponsive_peer() {
        let (calls, end) = (Cell::new(0), Instant::now());
        // The deadline is set while the call is already waiting.
        let until = || {
            calls.set(calls.get() + 1);
            (calls.get() > 20).then_some(end)
        };
        let bound = CallTimeout { io_timeout: Duration::from_secs(24 * 3600), until: &until };
        let error = write_all(&mut Silent(100), &[0; 200], bound).expect_err("the peer accepts half of the message");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // A peer that reads gets the whole message, even after the deadline.
        assert!(write_all(&mut Silent(200), &[0; 10], bound).is_ok());
    }

    #[test]
    fn a_wait_ends_at_the_io_timeout_or_the_deadline() {
        let since = Instant::now();
        let at = |seconds| since + Duration::from_secs(seconds);
        let left = |end: Option<u64>, now: u64| {
            let until = move || end.map(at);
            CallTimeout { io_timeout: Duration::from_secs(3), until: &until }.left(since, at(now)).as_secs()
        };
        assert_eq!([left(None, 0), left(None, 1), left(None, 3), left(None, 9)], [3, 2, 0, 0]);
        assert_eq!([left(Some(2), 0), left(Some(2), 1), left(Some(2), 2), left(Some(9), 1)], [2, 1, 0, 2]);
        let until = || None;
        let target = "tcp:127.0.0.1:9".parse().expect("a target");
        let over = CallTimeout { io_timeout: Duration::ZERO, until: &until };
        let error = Channel::open(&target, 9, (ExportKind::Flows, 0), over).expect_err("no time is left");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
