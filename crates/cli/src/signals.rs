//! Ctrl-C and SIGTERM end a verb cleanly; the second one ends the process at once. SIGHUP asks to read the configuration
//! again.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A flag that becomes true at the first SIGINT or SIGTERM.
pub fn stop_flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The order matters: the second signal finds the flag set and ends the process, the first only sets it. Without
        // a handler (which only a broken system refuses) the signal ends the process, as it does anyway.
        let _ = signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop));
        let _ = signal_hook::flag::register(signal, Arc::clone(&stop));
    }
    stop
}

/// A flag that becomes true at each SIGHUP.
pub fn hangup_flag() -> Arc<AtomicBool> {
    let hangup = Arc::new(AtomicBool::new(false));
    // Without a handler (which only a broken system refuses) the signal ends the process.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::clone(&hangup));
    hangup
}
