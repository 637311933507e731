//! How much processor time the calling thread has used: the figure behind "writer at 0.03 core".

use std::io;
use std::time::Duration;

/// Processor time of the calling thread since it began (`CLOCK_THREAD_CPUTIME_ID`, `clock_gettime(2)`).
///
/// # Errors
/// Never on Linux; what the kernel says otherwise.
pub fn thread_time() -> io::Result<Duration> {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid timespec that the call only writes to.
    let rc = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut t) };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Duration::new(t.tv_sec as u64, t.tv_nsec as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_costs_time_and_sleep_does_not() {
        let a = thread_time().unwrap();
        std::thread::sleep(Duration::from_millis(30));
        let b = thread_time().unwrap();
        assert!(b - a < Duration::from_millis(30), "slept for {:?} of processor time", b - a);
        let mut x = 1u64;
        while thread_time().unwrap() - b < Duration::from_millis(2) {
            x = base::hash::mix64(x);
        }
        assert_ne!(x, 0);
    }
}
