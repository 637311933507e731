//! Recovers files that a killed recorder of this interface did not publish. [`upkeep::recovery`] runs in a separate
//! thread, at a lower priority than capture. Only the preallocated space is freed before capture starts.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use store::DiskDevice;
use store::names::interface_directory;
use store::offered_page;
use sys::priority::{Background, lower_priority};
use upkeep::recovery::Recovery;

/// The largest number of retained warnings. Later ones are dropped, because recovery processes the newest files first.
const WARNINGS_MAX: usize = 32;

/// The longest time that the end of a recording waits for recovery. The next recorder recovers the remaining files.
const GRACE: Duration = Duration::from_secs(10);

/// The warnings of recovery so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecoveryMessages(Arc<Mutex<Vec<String>>>);

impl RecoveryMessages {
    /// Returns the warnings.
    pub fn warnings(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds the warning to the retained warnings, if `warning` is not `None`.
    pub fn add(&self, warning: Option<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(warning);
    }

    fn receive(&self, recovery: &mut Recovery<DiskDevice>) {
        let mut warnings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let available = WARNINGS_MAX.saturating_sub(warnings.len());
        warnings.extend(recovery.take_events().iter().map(ToString::to_string).take(available));
    }
}

/// A running recovery; see the module documentation.
#[derive(Debug, Default)]
pub(crate) struct RecoveryTask {
    messages: RecoveryMessages,
    thread: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    /// The thread holds the sender of this channel and sends nothing, so the receiver is disconnected when the thread
    /// has ended.
    ended: Option<Receiver<()>>,
}

impl RecoveryTask {
    /// Starts recovery in the directory of an interface. The caller must hold the claim on the directory.
    pub fn start(store: &Path, interface: &str) -> Self {
        let messages = RecoveryMessages::default();
        let stop: Arc<AtomicBool> = Arc::default();
        let device = DiskDevice::plain().until(Arc::clone(&stop));
        let directory = interface_directory(store, interface);
        let orphaned = offered_page::orphaned_counts(&directory);
        let mut recovery = Recovery::new(device, &directory).until(Arc::clone(&stop)).with_orphaned_counts(orphaned);
        recovery.prepare();
        messages.receive(&mut recovery);
        let of_thread = messages.clone();
        let (ending, ended) = channel();
        let work = move || {
            let _ending: std::sync::mpsc::Sender<()> = ending;
            // If the priority cannot be lowered, recovery competes only with threads of normal priority; capture
            // threads have a higher one.
            let _ = lower_priority(Background::Batch);
            loop {
                let more = recovery.step();
                of_thread.receive(&mut recovery);
                if !more {
                    return;
                }
            }
        };
        // If the thread cannot be started, the next recorder recovers the same files.
        let thread = std::thread::Builder::new().name("recovery".into()).spawn(work).ok();
        Self { messages, thread, stop, ended: Some(ended) }
    }

    /// Returns the messages of recovery.
    pub fn messages(&self) -> RecoveryMessages {
        self.messages.clone()
    }

    /// Waits up to `GRACE` for the end of recovery. Then stops recovery between two blocks of a file or after the sync
    /// of a file.
    pub fn wait(&mut self) {
        if let Some(ended) = self.ended.take() {
            // The channel carries no messages: the receive returns when the thread has ended or `GRACE` has passed.
            let _ = ended.recv_timeout(GRACE);
        }
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
