//! Status reports to the service manager (sd_notify(3)): datagrams to the socket named by `NOTIFY_SOCKET`, which is a
//! path, or an abstract name with a leading `@`.
//!
//! No function blocks, because a service manager that does not read must not delay a recorder.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The connection to the service manager.
#[derive(Debug)]
pub struct Notifier {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl Notifier {
    /// Connects to the service manager that started this process; `None` if `NOTIFY_SOCKET` is not set.
    ///
    /// # Errors
    /// If `NOTIFY_SOCKET` is not an address.
    pub fn from_environment() -> io::Result<Option<Self>> {
        match std::env::var_os("NOTIFY_SOCKET").and_then(|n| n.into_string().ok()) {
            Some(name) if !name.is_empty() => Self::to(&name).map(Some),
            _ => Ok(None),
        }
    }

    /// Connects to the socket with this name: `/run/…` or `@…`.
    ///
    /// # Errors
    /// `InvalidInput` for a name that begins with neither `/` nor `@`, or that is too long.
    pub fn to(name: &str) -> io::Result<Self> {
        let address = match name.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None if name.starts_with('/') => SocketAddr::from_pathname(name)?,
            None => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("NOTIFY_SOCKET={name}: not an address"),
                ));
            }
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, address })
    }

    /// Sends assignments, each on its own line: `READY=1`, `STATUS=…`, `STOPPING=1`, `WATCHDOG=1`.
    ///
    /// # Errors
    /// If the service manager has ended, or its receive queue is full.
    pub fn send(&self, text: &str) -> io::Result<()> {
        self.socket.send_to_addr(text.as_bytes(), &self.address).map(drop)
    }
}

/// Period at which this process must send `WATCHDOG=1`, if the manager requires it (`WATCHDOG_USEC`, `WATCHDOG_PID`):
/// half of the manager's timeout.
pub fn watchdog_period() -> Option<Duration> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    period(number("WATCHDOG_USEC"), number("WATCHDOG_PID"), std::process::id())
}

fn period(micros: Option<u64>, pid: Option<u64>, own: u32) -> Option<Duration> {
    if pid.is_some_and(|pid| pid != u64::from(own)) {
        return None;
    }
    micros.filter(|m| *m > 0).map(|m| Duration::from_micros(m / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_reach_sockets_with_a_path_and_with_an_abstract_name() {
        let path = std::env::temp_dir().join(format!("netgrain-notify-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let named = UnixDatagram::bind(&path).expect("a socket file");
        let name = format!("netgrain-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let abstract_socket = UnixDatagram::bind_addr(&address).expect("an abstract name");
        for (name, socket) in [(path.display().to_string(), named), (format!("@{name}"), abstract_socket)] {
            Notifier::to(&name).expect("an address").send("READY=1\nSTATUS=here").expect("a listener");
            let mut message = [0; 64];
            let n = socket.recv(&mut message).expect("a message");
            assert_eq!(&message[..n], b"READY=1\nSTATUS=here");
        }
        std::fs::remove_file(&path).expect("clean up");
    }

    #[test]
    fn invalid_addresses_are_rejected_and_a_full_queue_is_an_error() {
        assert!(Notifier::to("run/here").is_err());
        assert!(Notifier::to(&format!("/{}", "x".repeat(200))).is_err());
        assert!(Notifier::to("/no/such/socket").expect("an address").send("READY=1").is_err());
        let name = format!("netgrain-unread-{}", std::process::id());
        let _unread = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).expect("a name")).expect("bind");
        let notifier = Notifier::to(&format!("@{name}")).expect("an address");
        let refused = (0..100_000).find_map(|_| notifier.send("STATUS=x").err()).expect("its queue is finite");
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn the_watchdog_period_is_half_the_timeout_for_the_named_pid_only() {
        assert_eq!(period(Some(10_000_000), None, 7), Some(Duration::from_secs(5)));
        assert_eq!(period(Some(10_000_000), Some(7), 7), Some(Duration::from_secs(5)));
        assert_eq!(period(Some(10_000_000), Some(8), 7), None);
        assert_eq!(period(None, None, 7), None);
        assert_eq!(period(Some(0), None, 7), None);
    }
}
