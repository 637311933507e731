//! The handler of signals that end a process: the first signal sets a flag, a later one ends the process at once.

use crate::clock::monotonic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Installs the handler for these signals and returns a flag that becomes true at the first signal. A signal that
/// arrives more than `grace` after the first one ends the process with `status`; signals before that are ignored. If a
/// handler cannot be installed, the signal ends the process by default.
pub fn stop_flag(signals: &[i32], grace: Duration, status: i32) -> Arc<AtomicBool> {
    let (stop, first) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    for &signal in signals {
        let (stop, first) = (Arc::clone(&stop), Arc::clone(&first));
        let handler = move || {
            let now = monotonic().as_nanos() as u64;
            match first.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => stop.store(true, Ordering::Relaxed),
                Err(first) if is_later(now, first, grace) => signal_hook::low_level::exit(status),
                Err(_) => {}
            }
        };
        // SAFETY: the handler reads a clock, uses atomic variables and calls `_exit`, all of which are
        // async-signal-safe (signal-safety(7)).
        let _ = unsafe { signal_hook::low_level::register(signal, handler) };
    }
    stop
}

/// True if a signal at `now` is a second request to end the process, and not a repetition of the first request. Both
/// times are nanoseconds of the monotonic clock.
fn is_later(now: u64, first: u64, grace: Duration) -> bool {
    u128::from(now.saturating_sub(first)) > grace.as_nanos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_within_the_grace_time_are_one_request() {
        let grace = Duration::from_secs(1);
        assert!(!is_later(5, 5, grace) && !is_later(4, 5, grace) && !is_later(1_000_000_005, 5, grace));
        assert!(is_later(1_000_000_006, 5, grace));
    }
}
