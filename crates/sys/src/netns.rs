//! Network namespaces (network_namespaces(7)) for one thread at a time.
//!
//! A namespace belongs to a thread, not to the process: a new thread inherits the namespace of the thread that starts
//! it, a socket keeps the namespace in which it was opened, and `/proc/sys/net` shows that of the thread that opens it.

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The inode number of the calling thread's namespace (as in `lsns -t net`); `None` in the initial namespace, and if
/// `/proc` does not show it.
pub fn number_if_not_initial() -> Option<u64> {
    // Below /proc/sys/net, settings that apply to the whole machine exist only in the initial namespace.
    let settings = Path::new("/proc/sys/net/core");
    if !settings.exists() || settings.join("dev_weight").exists() {
        return None;
    }
    std::fs::metadata("/proc/thread-self/ns/net").ok().map(|namespace| namespace.ino())
}

/// A network namespace that exists at least as long as this open file descriptor of it.
#[derive(Debug)]
pub struct Namespace(File);

impl Namespace {
    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// If `/proc` is not mounted.
    pub fn current() -> io::Result<Self> {
        File::open("/proc/thread-self/ns/net").map(Self)
    }

    /// Moves the calling thread to a new, empty namespace, in which only a loopback interface exists (and is down).
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_ADMIN`.
    pub fn unshare() -> io::Result<Self> {
        // SAFETY: the flag leaves the table of file descriptors shared with the other threads.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
        Self::current()
    }

    /// Moves the calling thread to this namespace.
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_ADMIN`.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))?)
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_namespace_except_the_initial_has_its_own_number() {
        let inside = std::thread::spawn(|| Namespace::unshare().ok().map(|_| number_if_not_initial()));
        let Some(first) = inside.join().unwrap() else {
            return testkit::skip(
                "each_namespace_except_the_initial_has_its_own_number",
                "cannot create a network namespace; run as root",
            );
        };
        let (other, _kept) = std::thread::spawn(|| {
            let kept = Namespace::unshare().unwrap();
            (number_if_not_initial(), kept)
        })
        .join()
        .unwrap();
        assert!(first.is_some() && other.is_some());
        assert_ne!(other, number_if_not_initial());
    }
}
