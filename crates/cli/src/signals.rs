//! Ctrl-C and SIGTERM end a verb cleanly; the second one ends the process at once. SIGHUP asks those that have a configuration to read
//! it again, and a reader beside an engine, or a recorder that a terminal started without a file to read again, to end cleanly: its terminal
//! has gone.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A flag that becomes true at the first SIGINT or SIGTERM.
pub fn stop_flag() -> Arc<AtomicBool> {
    stop_at(&[SIGINT, SIGTERM])
}

/// The same, and at the first SIGHUP, unless whoever started us had it ignored (nohup).
pub fn stop_or_hangup_flag() -> Arc<AtomicBool> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if ignores(&status, SIGHUP) { stop_flag() } else { stop_at(&[SIGINT, SIGTERM, SIGHUP]) }
}

fn stop_at(signals: &[i32]) -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    for &signal in signals {
        // The order matters: the second signal finds the flag set and ends the process, the first only sets it. Without
        // a handler (which only a broken system refuses) the signal ends the process, as it does anyway.
        let _ = signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop));
        let _ = signal_hook::flag::register(signal, Arc::clone(&stop));
    }
    stop
}

/// Whether a terminal could hang up on this process (tty(4): this file opens for who has one).
pub fn has_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

/// A flag that becomes true at each SIGHUP.
pub fn hangup_flag() -> Arc<AtomicBool> {
    let hangup = Arc::new(AtomicBool::new(false));
    // Without a handler (which only a broken system refuses) the signal ends the process.
    let _ = signal_hook::flag::register(SIGHUP, Arc::clone(&hangup));
    hangup
}

/// Whether a process ignores a signal, by its `/proc/PID/status` (proc_pid_status(5): a mask in hexadecimal, signal 1 lowest).
fn ignores(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_read_from_the_mask_of_the_process() {
        let status = "SigBlk:\t0000000000000001\nSigIgn:\t0000000000001002\nSigCgt:\t0000000000000001\n";
        assert!(!ignores(status, SIGHUP) && ignores(status, SIGINT) && !ignores(status, SIGTERM));
        assert!(ignores("SigIgn:\t0000000000000001\n", SIGHUP) && !ignores("", SIGHUP));
    }
}
