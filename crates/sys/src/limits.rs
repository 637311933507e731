//! The limit of open files of this process (getrlimit(2), `RLIMIT_NOFILE`), and the share that clients may use.
//!
//! The kernel gives each new descriptor the lowest free number. The process retains a client's connection only if its
//! descriptor number is below a threshold. So the descriptor numbers above the threshold remain free for files that the
//! process itself opens later.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::{AsFd, AsRawFd};

/// Largest number of open files of this process.
pub fn open_files() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises the limit of open files to `wanted`, as far as the hard limit permits, and returns the resulting limit. Never
/// lowers the limit.
pub fn raise_open_files(wanted: u64) -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let permitted = wanted.min(maximum.unwrap_or(u64::MAX));
    if current.is_some_and(|current| current < permitted) {
        // If the kernel refuses, the limit is not changed.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(permitted), maximum });
    }
    open_files()
}

/// Descriptors reserved for files of this process: a recorder opens and closes files as long as it runs.
const RESERVED: u64 = 512;

/// Returns the first descriptor number that no connection of a client may have, if `limit` numbers are possible.
fn reserved_from(limit: u64) -> u64 {
    limit - RESERVED.min(limit / 2)
}

/// True if the process may keep a connection of a client with this descriptor number. If false, close the connection:
/// the number is reserved for files of this process.
pub fn is_available_to_clients(fd: &impl AsFd) -> bool {
    (fd.as_fd().as_raw_fd() as u64) < reserved_from(open_files())
}

/// Returns how many client connections can be open, with descriptor numbers below the reserved ones. `lowest` must be a
/// descriptor that was just opened, so that all lower numbers are in use; this function closes it.
pub fn first_reserved_fd(lowest: impl AsFd) -> usize {
    let number = lowest.as_fd().as_raw_fd() as u64;
    usize::try_from(reserved_from(open_files()).saturating_sub(number)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_descriptors_but_at_most_512_are_reserved() {
        assert_eq!([64, 1024, 1 << 16].map(reserved_from), [32, 512, (1 << 16) - 512]);
        let file = std::fs::File::open("/dev/null").unwrap();
        let free = first_reserved_fd(&file);
        assert_eq!(is_available_to_clients(&file), free > 0);
        assert_eq!(free as u64, reserved_from(open_files()).saturating_sub(file.as_raw_fd() as u64));
    }

    #[test]
    fn the_limit_is_raised_within_the_hard_limit_and_never_lowered() {
        let before = open_files();
        assert_eq!(raise_open_files(1), before);
        let after = raise_open_files(before + 1);
        assert!(after == before || after == before + 1, "{before} {after}");
    }
}
