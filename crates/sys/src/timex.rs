//! Synchronisation of the system clock (adjtimex(2), read only), and free space of a file system (statvfs(3)).

use std::io;
use std::path::Path;
use std::time::Duration;

/// The synchronisation status of the system clock, as the time daemon has set it in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockStatus {
    /// True if a time daemon synchronises the clock (`STA_UNSYNC` is not set).
    pub synchronised: bool,
    /// The remaining offset of the clock, which the kernel still has to correct gradually.
    pub offset: Duration,
    /// Estimated error.
    pub estimated_error: Duration,
    /// Maximum error.
    pub maximum_error: Duration,
    /// Difference of TAI from UTC in seconds; 0 if no daemon has set it.
    pub tai_offset: i32,
    /// Correction of the clock's rate by the time daemon, in parts per billion.
    pub frequency_ppb: i64,
}

/// Reads the synchronisation status of the system clock from the kernel.
///
/// # Errors
/// The error of adjtimex(2); reading needs no privilege.
pub fn clock_status() -> io::Result<ClockStatus> {
    // SAFETY: timex is a plain structure of integers, so zero is valid: a request that changes nothing.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `timex` is writable.
    let state = unsafe { libc::adjtimex(&raw mut timex) };
    if state < 0 {
        return Err(io::Error::last_os_error());
    }
    let in_nanos = timex.status & libc::STA_NANO != 0;
    let offset = timex.offset.unsigned_abs();
    let micros = |n: libc::c_long| Duration::from_micros(u64::try_from(n).unwrap_or(0));
    Ok(ClockStatus {
        synchronised: timex.status & libc::STA_UNSYNC == 0 && state != libc::TIME_ERROR,
        offset: if in_nanos { Duration::from_nanos(offset) } else { Duration::from_micros(offset) },
        estimated_error: micros(timex.esterror),
        maximum_error: micros(timex.maxerror),
        tai_offset: timex.tai,
        // The kernel's unit is 2^-16 parts per million.
        frequency_ppb: timex.freq as i64 * 1000 / 65_536,
    })
}

/// Size and free space of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsSpace {
    /// Size in bytes.
    pub total: u64,
    /// Bytes that an unprivileged process may still write.
    pub free: u64,
}

/// Size and free space of the file system that holds `path`.
///
/// # Errors
/// The error of statvfs(3).
pub fn fs_space(path: &Path) -> io::Result<FsSpace> {
    let answer = rustix::fs::statvfs(path)?;
    let bytes = |blocks: u64| blocks.saturating_mul(answer.f_frsize);
    Ok(FsSpace { total: bytes(answer.f_blocks), free: bytes(answer.f_bavail) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_status_can_be_read_without_changing_it() {
        let first = clock_status().expect("reading needs no privilege");
        assert!(first.maximum_error >= first.estimated_error || !first.synchronised, "{first:?}");
        assert_eq!(clock_status().expect("a second reading").tai_offset, first.tai_offset);
        // The kernel permits corrections of at most 500 ppm.
        assert!(first.frequency_ppb.abs() <= 500_000, "{first:?}");
    }

    #[test]
    fn free_space_is_at_most_the_size_of_the_volume() {
        let space = fs_space(Path::new("/")).expect("the root file system");
        assert!(space.total > 0 && space.free <= space.total, "{space:?}");
        assert!(fs_space(Path::new("/no such directory")).is_err());
    }
}
