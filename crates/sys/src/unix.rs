//! Unix sockets that preserve message boundaries, pass file descriptors (SCM_RIGHTS) and report the identity of the
//! peer (SO_PEERCRED); see unix(7).

use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, recvmsg, sendmsg, shutdown, socket_with,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum number of file descriptors in one message.
pub const FDS_MAX: usize = 16;

/// Bytes of the longest path of a socket, without the terminating zero (`struct sockaddr_un`).
const PATH_MAX: usize = 107;

/// asm-generic/socket.h; libc does not define it for every target.
const SO_PEERGROUPS: libc::c_int = 59;

/// The peer process, as reported by the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process id.
    pub pid: u32,
    /// Effective user id of the peer process at the time of the connection.
    pub uid: u32,
    /// Effective group id of the peer process at the time of the connection.
    pub gid: u32,
    /// Supplementary groups of the peer process at the time of the connection.
    pub groups: Vec<u32>,
}

/// A listening socket; its file is removed on drop.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    path: PathBuf,
}

/// One connection.
#[derive(Debug)]
pub struct Connection(OwnedFd);

impl Listener {
    /// Binds `path` with this mode, owner and group; replaces a socket file without a listener.
    ///
    /// # Errors
    /// `AddrInUse` if another process listens there; otherwise the kernel's error for the path, mode or owner.
    pub fn bind(path: &Path, mode: u32, uid: Option<u32>, gid: Option<u32>) -> io::Result<Self> {
        if path.exists() {
            if Connection::connect(path).is_ok() {
                return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens on this socket"));
            }
            use std::os::unix::fs::FileTypeExt;
            if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the file exists and is not a socket"));
            }
            std::fs::remove_file(path)?;
        }
        let fd = socket()?;
        let address = address(path)?;
        // The file must never be accessible to more users than `mode` permits, not even between bind and chmod. Linux
        // creates it with the mode of the socket (less the umask, which belongs to the whole process and is therefore
        // not changed).
        fchmod(&fd, Mode::from_raw_mode(mode))?;
        bind(&fd, &address)?;
        let listener = Self { fd, path: path.to_owned() };
        std::os::unix::fs::chown(path, uid, gid)?;
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        listen(&listener.fd, 64)?;
        Ok(listener)
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// The errors of accept(2); never `WouldBlock`, as the socket blocks.
    pub fn accept(&self) -> io::Result<Connection> {
        Ok(Connection(accept_with(&self.fd, SocketFlags::CLOEXEC)?))
    }

    /// The path of the socket file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Connection {
    /// Connects to a listener.
    ///
    /// # Errors
    /// The errors of connect(2): `NotFound`, `ConnectionRefused`, `PermissionDenied`.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let fd = socket()?;
        connect(&fd, &address(path)?)?;
        Ok(Self(fd))
    }

    /// The identity of the peer.
    ///
    /// # Errors
    /// If the kernel refuses the query.
    pub fn peer(&self) -> io::Result<Peer> {
        // The call does not use `rustix`, because its type for a PID excludes 0, and the PID is 0 if the peer belongs
        // to another PID namespace.
        let mut cred = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut len = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: `cred` is writable for `len` bytes.
        let r = unsafe {
            libc::getsockopt(self.0.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut cred).cast(), &mut len)
        };
        if r != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut groups = vec![0u32; 1024];
        let mut len = size_of_val(groups.as_slice()) as libc::socklen_t;
        // SAFETY: `groups` is writable for `len` bytes.
        let r = unsafe {
            libc::getsockopt(self.0.as_raw_fd(), libc::SOL_SOCKET, SO_PEERGROUPS, groups.as_mut_ptr().cast(), &mut len)
        };
        groups.truncate(if r == 0 { len as usize / size_of::<u32>() } else { 0 });
        Ok(Peer { pid: cred.pid as u32, uid: cred.uid, gid: cred.gid, groups })
    }

    /// Sets the timeout of receiving and sending, which must not be zero.
    ///
    /// # Errors
    /// `InvalidInput` for a timeout of zero; otherwise the error of the kernel if it refuses the option.
    pub fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        set_socket_timeout(&self.0, Timeout::Recv, Some(timeout))?;
        Ok(set_socket_timeout(&self.0, Timeout::Send, Some(timeout))?)
    }

    /// Shuts down receiving: the peer's later sends fail; messages that it sent before can still be received.
    ///
    /// # Errors
    /// If the peer has closed the connection.
    pub fn shut_reading(&self) -> io::Result<()> {
        Ok(shutdown(&self.0, Shutdown::Read)?)
    }

    /// Shuts down both directions, in all processes that hold the connection. Messages that the peer sent before can
    /// still be received.
    ///
    /// # Errors
    /// If the peer has closed the connection.
    pub fn shut(&self) -> io::Result<()> {
        Ok(shutdown(&self.0, Shutdown::Both)?)
    }

    /// Sends one message with file descriptors (at most [`FDS_MAX`]; the peer gets copies).
    ///
    /// # Errors
    /// `BrokenPipe` if the peer has closed the connection (no signal is raised).
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        assert!(fds.len() <= FDS_MAX, "a message has at most {FDS_MAX} file descriptors, not {}", fds.len());
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(fds)), "the buffer holds FDS_MAX file descriptors");
        }
        sendmsg(&self.0, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Receives one message of at most `bytes.len()` bytes; an empty message means that the peer has closed the
    /// connection.
    ///
    /// # Errors
    /// `WouldBlock` after the timeout; `InvalidData` if the message was truncated.
    pub fn receive(&self, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(&self.0, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                fds.extend(received);
            }
        }
        if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the message is longer than the protocol permits"));
        }
        Ok((received.bytes, fds))
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until at least one of the file descriptors is readable, or its peer has closed the connection; returns the
/// indexes of these file descriptors.
///
/// # Errors
/// The errors of poll(2), except interruption by a signal (which returns an empty list).
pub fn wait_readable(fds: &[BorrowedFd<'_>], timeout: Duration) -> io::Result<Vec<usize>> {
    let mut polls: Vec<_> = fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let timeout = Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
    match poll(&mut polls, Some(&timeout)) {
        Err(Errno::INTR) => return Ok(Vec::new()),
        polled => polled?,
    };
    Ok(polls.iter().enumerate().filter(|(_, p)| !p.revents().is_empty()).map(|(i, _)| i).collect())
}

/// Returns the id of a user or group, from a file like /etc/passwd or /etc/group. A number is returned unchanged.
pub fn id_of(name: &str, file: &Path) -> Option<u32> {
    if let Ok(id) = name.parse() {
        return Some(id);
    }
    let text = std::fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next() == Some(name) { fields.nth(1)?.parse().ok() } else { None }
    })
}

fn socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

fn address(path: &Path) -> io::Result<SocketAddrUnix> {
    if path.as_os_str().len() > PATH_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{}: a socket's path has at most {PATH_MAX} bytes", path.display()),
        ));
    }
    Ok(SocketAddrUnix::new(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("netgrain-{name}-{}.sock", std::process::id()))
    }

    #[test]
    fn a_message_passes_a_descriptor_and_the_peer_is_identified() {
        let path = path("fd");
        let listener = Listener::bind(&path, 0o600, None, None).unwrap();
        let client = Connection::connect(&path).unwrap();
        let server = listener.accept().unwrap();
        assert_eq!(server.peer().unwrap().pid, std::process::id());

        let file_path = path.with_extension("txt");
        let mut file =
            std::fs::File::options().create(true).truncate(true).read(true).write(true).open(&file_path).unwrap();
        file.write_all(b"hello").unwrap();
        server.send(b"take this", &[file.as_fd()]).unwrap();
        let mut buf = [0; 64];
        let (n, mut fds) = client.receive(&mut buf).unwrap();
        assert_eq!(&buf[..n], b"take this");
        let mut copy = std::fs::File::from(fds.remove(0));
        copy.rewind().unwrap();
        let mut text = String::new();
        copy.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
        std::fs::remove_file(file_path).unwrap();
    }

    #[test]
    fn ids_of_users_and_groups_are_found_by_name_or_number() {
        assert_eq!(id_of("root", Path::new("/etc/passwd")), Some(0));
        assert_eq!(id_of("42", Path::new("/etc/group")), Some(42));
        assert_eq!(id_of("no-such-user", Path::new("/etc/passwd")), None);
    }

    #[test]
    fn the_socket_file_has_its_mode_when_bind_creates_it() {
        let path = path("mode");
        let fd = socket().unwrap();
        fchmod(&fd, Mode::RUSR | Mode::WUSR).unwrap();
        bind(&fd, &address(&path).unwrap()).unwrap();
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600,
            "`bind` gives the file the mode that the socket had before"
        );
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_path_in_use_is_rejected_and_a_stale_socket_file_replaced() {
        let path = path("use");
        let first = Listener::bind(&path, 0o600, None, None).unwrap();
        assert_eq!(Listener::bind(&path, 0o600, None, None).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        std::fs::hard_link(&path, path.with_extension("stale")).unwrap();
        drop(first);
        let stale = path.with_extension("stale");
        assert!(Listener::bind(&stale, 0o600, None, None).is_ok(), "a socket file without a listener is replaced");
        assert!(!stale.exists(), "the listener removes its file");
    }
}
