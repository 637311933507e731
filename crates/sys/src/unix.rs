//! Unix sockets that preserve message boundaries, pass file descriptors (SCM_RIGHTS) and report the identity of the
//! peer (SO_PEERCRED); see unix(7).

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum number of descriptors in one message.
pub const FDS_MAX: usize = 16;

/// asm-generic/socket.h; libc does not define it for every target.
const SO_PEERGROUPS: libc::c_int = 59;

/// The peer process, as reported by the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process id.
    pub pid: u32,
    /// Effective user id at the time of the connection.
    pub uid: u32,
    /// Effective group id at the time of the connection.
    pub gid: u32,
    /// Supplementary groups at the time of the connection.
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
                return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there"));
            }
            use std::os::unix::fs::FileTypeExt;
            if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, "exists and is not a socket"));
            }
            std::fs::remove_file(path)?;
        }
        let fd = socket()?;
        let (addr, len) = address(path)?;
        // The file must never be accessible to more users than `mode` permits, not even between bind and chmod. Linux
        // creates it with the mode of the socket (less the umask, which belongs to the whole process and is therefore
        // not changed).
        // SAFETY: no memory is passed.
        if unsafe { libc::fchmod(fd.as_raw_fd(), mode) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `addr` is an initialised sockaddr_un of `len` bytes.
        if unsafe { libc::bind(fd.as_raw_fd(), (&raw const addr).cast(), len) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let listener = Self { fd, path: path.to_owned() };
        std::os::unix::fs::chown(path, uid, gid)?;
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        // SAFETY: no memory is passed.
        if unsafe { libc::listen(listener.fd.as_raw_fd(), 64) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(listener)
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// The errors of accept(2); never `WouldBlock`, as the socket blocks.
    pub fn accept(&self) -> io::Result<Connection> {
        // SAFETY: the address is not asked for.
        let fd = unsafe {
            libc::accept4(self.fd.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), libc::SOCK_CLOEXEC)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call succeeded, so `fd` is new and ours.
        Ok(Connection(unsafe { OwnedFd::from_raw_fd(fd) }))
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
        let (addr, len) = address(path)?;
        // SAFETY: `addr` is an initialised sockaddr_un of `len` bytes.
        let r = unsafe { libc::connect(fd.as_raw_fd(), (&raw const addr).cast(), len) };
        if r == 0 { Ok(Self(fd)) } else { Err(io::Error::last_os_error()) }
    }

    /// The identity of the peer.
    ///
    /// # Errors
    /// If the kernel refuses the query.
    pub fn peer(&self) -> io::Result<Peer> {
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

    /// Sets the timeout of receiving and sending.
    ///
    /// # Errors
    /// If the kernel refuses the option.
    pub fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        let t = libc::timeval { tv_sec: timeout.as_secs() as i64, tv_usec: i64::from(timeout.subsec_micros()) };
        for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
            // SAFETY: `t` is an initialised timeval and its size is passed.
            let r = unsafe {
                libc::setsockopt(
                    self.0.as_raw_fd(),
                    libc::SOL_SOCKET,
                    option,
                    (&raw const t).cast(),
                    size_of::<libc::timeval>() as libc::socklen_t,
                )
            };
            if r != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }

    /// Shuts down receiving: the peer's later sends fail; messages that it sent before can still be received.
    ///
    /// # Errors
    /// If the peer has closed the connection.
    pub fn shut_reading(&self) -> io::Result<()> {
        // SAFETY: no memory is passed.
        let r = unsafe { libc::shutdown(self.0.as_raw_fd(), libc::SHUT_RD) };
        if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Shuts down both directions, in all processes that hold the connection. Messages that the peer sent before can
    /// still be received.
    ///
    /// # Errors
    /// If the peer has closed the connection.
    pub fn shut(&self) -> io::Result<()> {
        // SAFETY: no memory is passed.
        let r = unsafe { libc::shutdown(self.0.as_raw_fd(), libc::SHUT_RDWR) };
        if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Sends one message with descriptors (at most [`FDS_MAX`]; the peer gets copies).
    ///
    /// # Errors
    /// `BrokenPipe` if the peer has closed the connection (no signal is raised).
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        assert!(fds.len() <= FDS_MAX, "{} descriptors in one message", fds.len());
        let raw: Vec<RawFd> = fds.iter().map(|f| f.as_raw_fd()).collect();
        let mut iov = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let mut control = [0u64; 16];
        // SAFETY: an all-zero msghdr is valid.
        let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
        msg.msg_iov = &mut iov;
        msg.msg_iovlen = 1;
        if !raw.is_empty() {
            let payload = size_of_val(raw.as_slice()) as u32;
            msg.msg_control = control.as_mut_ptr().cast();
            // SAFETY: the control buffer of 128 bytes holds one header and FDS_MAX descriptors.
            unsafe {
                msg.msg_controllen = libc::CMSG_SPACE(payload) as _;
                let header = libc::CMSG_FIRSTHDR(&msg);
                (*header).cmsg_level = libc::SOL_SOCKET;
                (*header).cmsg_type = libc::SCM_RIGHTS;
                (*header).cmsg_len = libc::CMSG_LEN(payload) as _;
                std::ptr::copy_nonoverlapping(raw.as_ptr().cast::<u8>(), libc::CMSG_DATA(header), payload as usize);
            }
        }
        // SAFETY: `msg` points to buffers that outlive the call.
        let n = unsafe { libc::sendmsg(self.0.as_raw_fd(), &msg, libc::MSG_NOSIGNAL) };
        if n < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Receives one message of at most `bytes.len()` bytes; an empty message means that the peer has closed the
    /// connection.
    ///
    /// # Errors
    /// `WouldBlock` after the timeout; `InvalidData` if the message was truncated.
    pub fn receive(&self, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        let mut iov = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let mut control = [0u64; 16];
        // SAFETY: an all-zero msghdr is valid.
        let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
        msg.msg_iov = &mut iov;
        msg.msg_iovlen = 1;
        msg.msg_control = control.as_mut_ptr().cast();
        msg.msg_controllen = size_of_val(&control) as _;
        // SAFETY: `msg` points to writable buffers that outlive the call.
        let n = unsafe { libc::recvmsg(self.0.as_raw_fd(), &mut msg, libc::MSG_CMSG_CLOEXEC) };
        if n < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut fds = Vec::new();
        // SAFETY: the kernel has filled the control buffer; each descriptor in it is new and ours.
        unsafe {
            let mut header = libc::CMSG_FIRSTHDR(&msg);
            while !header.is_null() {
                if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                    let count = ((*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
                    for i in 0..count {
                        let fd = libc::CMSG_DATA(header).cast::<RawFd>().add(i).read_unaligned();
                        fds.push(OwnedFd::from_raw_fd(fd));
                    }
                }
                header = libc::CMSG_NXTHDR(&msg, header);
            }
        }
        if msg.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a longer message than the protocol has"));
        }
        Ok((n as usize, fds))
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until at least one descriptor is readable (or its peer has closed it); returns the indexes of these
/// descriptors.
///
/// # Errors
/// The errors of poll(2), except interruption by a signal (which returns an empty list).
pub fn wait_readable(fds: &[BorrowedFd<'_>], timeout: Duration) -> io::Result<Vec<usize>> {
    let mut polls: Vec<libc::pollfd> =
        fds.iter().map(|f| libc::pollfd { fd: f.as_raw_fd(), events: libc::POLLIN, revents: 0 }).collect();
    let millis = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: `polls` is writable and its length is passed.
    let n = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, millis) };
    if n < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::Interrupted { Ok(Vec::new()) } else { Err(error) };
    }
    Ok(polls.iter().enumerate().filter(|(_, p)| p.revents != 0).map(|(i, _)| i).collect())
}

/// The id of a user or group, from a file like /etc/passwd or /etc/group; a number is returned as it is.
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
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so `fd` is new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn address(path: &Path) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: an all-zero sockaddr_un is valid.
    let mut addr: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    addr.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = CString::new(path.as_os_str().as_bytes())?.into_bytes_with_nul();
    if bytes.len() > addr.sun_path.len() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{}: a socket's path has at most {} bytes", path.display(), addr.sun_path.len() - 1),
        ));
    }
    for (to, from) in addr.sun_path.iter_mut().zip(bytes) {
        *to = from as libc::c_char;
    }
    Ok((addr, size_of::<libc::sockaddr_un>() as libc::socklen_t))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("netgrain-{name}-{}.sock", std::process::id()))
    }

    #[test]
    fn a_descriptor_travels_and_the_peer_is_known() {
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
    fn names_and_numbers_of_users() {
        assert_eq!(id_of("root", Path::new("/etc/passwd")), Some(0));
        assert_eq!(id_of("42", Path::new("/etc/group")), Some(42));
        assert_eq!(id_of("nobody-of-this-name", Path::new("/etc/passwd")), None);
    }

    #[test]
    fn the_file_has_its_mode_from_the_first_moment() {
        let path = path("mode");
        let fd = socket().unwrap();
        let (addr, len) = address(&path).unwrap();
        // SAFETY: no memory is passed to the first; `addr` is an initialised sockaddr_un of `len` bytes.
        let r =
            unsafe { libc::fchmod(fd.as_raw_fd(), 0o600) | libc::bind(fd.as_raw_fd(), (&raw const addr).cast(), len) };
        assert_eq!(r, 0);
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "what bind relies on");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_path_in_use_is_refused_and_a_dead_one_replaced() {
        let path = path("use");
        let first = Listener::bind(&path, 0o600, None, None).unwrap();
        assert_eq!(Listener::bind(&path, 0o600, None, None).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        std::fs::hard_link(&path, path.with_extension("dead")).unwrap();
        drop(first);
        let dead = path.with_extension("dead");
        assert!(Listener::bind(&dead, 0o600, None, None).is_ok(), "a socket file without a listener is replaced");
        assert!(!dead.exists(), "the file goes with its listener");
    }
}
