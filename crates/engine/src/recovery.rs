//! What a killed recorder left of this interface is mended when the next one starts: [`upkeep::recovery`] on a thread of
//! its own, below capture. Only what cannot wait is done before: the room that was prepared is given back.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use store::DiskDevice;
use store::names::interface_folder;
use store::offered_page;
use sys::priority::{Background, lower_priority};
use upkeep::recovery::Recovery;

/// Remarks kept: the first, because the newest files are looked at first.
const WARNINGS_MAX: usize = 32;

/// How long the end of a recording waits for it. What is not done by then, the next recorder takes up.
const GRACE: Duration = Duration::from_secs(10);

/// What was said so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecoveryMessages(Arc<Mutex<Vec<String>>>);

impl RecoveryMessages {
    /// Things a person should know.
    pub fn warnings(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// One more thing, if there is one.
    pub fn say(&self, text: Option<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(text);
    }

    fn receive(&self, recovery: &mut Recovery<DiskDevice>) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = WARNINGS_MAX.saturating_sub(told.len());
        told.extend(recovery.take_events().iter().map(ToString::to_string).take(room));
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct RecoveryTask {
    told: RecoveryMessages,
    thread: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    /// Disconnected when the thread has ended.
    ended: Option<Receiver<()>>,
}

impl RecoveryTask {
    /// Begins, in the folder of an interface whose claim the caller holds.
    pub fn start(store: &Path, interface: &str) -> Self {
        let told = RecoveryMessages::default();
        let stop: Arc<AtomicBool> = Arc::default();
        let device = DiskDevice::plain().until(Arc::clone(&stop));
        let folder = interface_folder(store, interface);
        let tails = offered_page::orphaned_counts(&folder);
        let mut recovery = Recovery::new(device, &folder).until(Arc::clone(&stop)).with_orphaned_counts(tails);
        recovery.prepare();
        told.receive(&mut recovery);
        let heard = told.clone();
        let (ending, ended) = channel();
        let work = move || {
            let _ending: std::sync::mpsc::Sender<()> = ending;
            // Where it is refused, recovery competes with other threads of its kind; capture's are above.
            let _ = lower_priority(Background::Batch);
            loop {
                let more = recovery.step();
                heard.receive(&mut recovery);
                if !more {
                    return;
                }
            }
        };
        // Without the thread, the next recorder finds the same.
        let thread = std::thread::Builder::new().name("recovery".into()).spawn(work).ok();
        Self { told, thread, stop, ended: Some(ended) }
    }

    /// What it says.
    pub fn told(&self) -> RecoveryMessages {
        self.told.clone()
    }

    /// Waits for its end, for a moment; then stops it between two blocks of a file, or behind the sync of one.
    pub fn wait(&mut self) {
        if let Some(ended) = self.ended.take() {
            // Nothing is ever sent: either the thread has ended, or the time is over.
            let _ = ended.recv_timeout(GRACE);
        }
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
