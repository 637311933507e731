//! SIGINT and SIGTERM let a verb end cleanly. A further signal more than a second later ends the process at once.
//! SIGHUP makes a capture reread its files. If there is no file to reread and the process has a controlling terminal,
//! SIGHUP means that the terminal was closed. SIGHUP then ends the capture cleanly. It ends `netgrain listen` and
//! `netgrain group join` in the same way.

use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Signals within this time after the first signal are not a second request to end. For example, `timeout` sends its
/// signal to the process and then to the whole process group.
const REPEATED_SIGNAL: Duration = Duration::from_secs(1);

/// The exit status of a process that a later signal ends at once. It is the status that a shell reports for a process
/// that SIGINT has ended.
const ENDED_AT_ONCE: i32 = 130;

/// The signals of a capture.
pub struct CaptureSignals {
    /// True once the capture must end.
    pub stop: Arc<AtomicBool>,
    /// True after SIGHUP, until the flag is cleared. It is never true if SIGHUP ends the capture.
    pub hangup: Arc<AtomicBool>,
}

impl CaptureSignals {
    /// Installs the handlers; `can_reload` is true if SIGHUP rereads a file. Without a controlling terminal the capture
    /// is a service, which SIGHUP never ends.
    pub fn install(can_reload: bool) -> Self {
        if !can_reload && has_terminal() {
            return Self { stop: stop_or_hangup_flag(), hangup: Arc::default() };
        }
        Self { stop: stop_flag(), hangup: hangup_flag() }
    }
}

/// Returns a flag that becomes true at the first SIGINT or SIGTERM.
pub fn stop_flag() -> Arc<AtomicBool> {
    stop_at(&[SIGINT, SIGTERM])
}

/// Returns a flag that becomes true at the first SIGINT, SIGTERM or SIGHUP. SIGHUP has no effect if the process was
/// started with SIGHUP ignored (nohup).
pub fn stop_or_hangup_flag() -> Arc<AtomicBool> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if ignores(&status, SIGHUP) { stop_flag() } else { stop_at(&[SIGINT, SIGTERM, SIGHUP]) }
}

fn stop_at(signals: &[i32]) -> Arc<AtomicBool> {
    sys::signals::stop_flag(signals, REPEATED_SIGNAL, ENDED_AT_ONCE)
}

/// True if the process has a controlling terminal: only then /dev/tty can be opened (tty(4)).
fn has_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

/// Returns a flag that each SIGHUP sets to true.
fn hangup_flag() -> Arc<AtomicBool> {
    let hangup = Arc::new(AtomicBool::new(false));
    // If the handler cannot be installed, the signal ends the process by default.
    let _ = signal_hook::flag::register(SIGHUP, Arc::clone(&hangup));
    hangup
}

/// Returns a flag that each SIGCONT sets to true, after a stop of the process (Ctrl-Z and fg).
pub fn continued_flag() -> Arc<AtomicBool> {
    let continued = Arc::new(AtomicBool::new(false));
    // Without the handler, the time of the stop counts as a delay.
    let _ = signal_hook::flag::register(SIGCONT, Arc::clone(&continued));
    continued
}

/// Returns a flag that each SIGUSR1 sets to true, which pauses or resumes a replay.
pub fn pause_flag() -> Arc<AtomicBool> {
    let pause = Arc::new(AtomicBool::new(false));
    // If the handler cannot be installed, the signal ends the process by default.
    let _ = signal_hook::flag::register(SIGUSR1, Arc::clone(&pause));
    pause
}

/// True if the process ignores the signal, according to its `/proc/PID/status` (proc_pid_status(5)). The field is a
/// hexadecimal mask; its lowest bit stands for signal 1.
fn ignores(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_mask_of_the_process() {
        let status = "SigBlk:\t0000000000000001\nSigIgn:\t0000000000001002\nSigCgt:\t0000000000000001\n";
        assert!(!ignores(status, SIGHUP) && ignores(status, SIGINT) && !ignores(status, SIGTERM));
        assert!(ignores("SigIgn:\t0000000000000001\n", SIGHUP) && !ignores("", SIGHUP));
    }
}
