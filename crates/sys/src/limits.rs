//! How many files this process may have open (getrlimit(2), `RLIMIT_NOFILE`), and how many of them strangers may take.
//!
//! The kernel gives each new descriptor the lowest free number. Connections of other processes are kept only while their
//! numbers lie below a line, so the numbers above it stay free for files that the process itself opens later.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

fn getrlimit() -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is what the call writes to, and lives until it returns.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(limit)
}

/// Files that this process may have open; 1024, the usual number, where the kernel does not say.
pub fn open_files() -> u64 {
    getrlimit().map_or(1024, |limit| limit.rlim_cur)
}

/// Lets this process have up to `wanted` files open, as far as it may raise the number by itself; how many it may have now.
/// It never lowers it.
pub fn raise_open_files(wanted: u64) -> u64 {
    if let Ok(mut limit) = getrlimit()
        && limit.rlim_cur < wanted.min(limit.rlim_max)
    {
        limit.rlim_cur = wanted.min(limit.rlim_max);
        // SAFETY: `limit` is only read. Where the kernel refuses, the old number stays.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    }
    open_files()
}

/// Descriptors that connections of other processes never take: a recorder opens and closes files as long as it runs.
const OWN: u64 = 512;

/// The first number that no connection may have, of `limit` numbers.
fn line(limit: u64) -> u64 {
    limit - OWN.min(limit / 2)
}

/// Whether a connection of another process may be kept under the number of this descriptor. Where not, close it: the
/// number is set aside for files of this process.
pub fn is_available_to_clients(fd: &impl AsFd) -> bool {
    (fd.as_fd().as_raw_fd() as u64) < line(open_files())
}

/// How many connections may be kept, if this descriptor, which is closed, was given the lowest free number.
pub fn first_reserved_fd(lowest: impl AsFd) -> usize {
    let number = lowest.as_fd().as_raw_fd() as u64;
    usize::try_from(line(open_files()).saturating_sub(number)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_numbers_but_at_most_512_are_set_aside() {
        assert_eq!([64, 1024, 1 << 16].map(line), [32, 512, (1 << 16) - 512]);
        let file = std::fs::File::open("/dev/null").unwrap();
        let free = first_reserved_fd(&file);
        assert_eq!(is_available_to_clients(&file), free > 0);
        assert_eq!(free as u64, line(open_files()).saturating_sub(file.as_raw_fd() as u64));
    }

    #[test]
    fn the_number_of_files_goes_up_as_far_as_it_may_and_never_down() {
        let before = open_files();
        assert_eq!(raise_open_files(1), before);
        let after = raise_open_files(before + 1);
        assert!(after == before || after == before + 1, "{before} {after}");
    }
}
