//! Publishes files that the recorder could not publish because the volume failed for a while. Such a file keeps its
//! hidden name. When the volume works again, the file is recovered and published while the recording continues. At the
//! end of the recording a last attempt is made. If the sync of a file failed, the sync is not repeated; instead the
//! file is read and compared with its checksums, as after a kill ([`upkeep::recovery`]). Each queue recovers its own
//! files, because only its recorder has the counts of the packets that are missing in the files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use store::DiskDevice;
use store::offered_page::OrphanedCount;
use sys::priority::{Background, lower_priority};
use upkeep::recovery::{Event, Outcome, Recovery};

/// The longest time that the end of a recording waits for the recovery. The next recorder recovers the remaining files.
const GRACE: Duration = Duration::from_secs(10);
/// The interval of the checks whether the recovery has ended.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// The pause of the recovery after a failure of the volume.
const PAUSE: Duration = Duration::from_secs(5);

/// The republisher of one queue. Clones share their state.
#[derive(Clone)]
pub(crate) struct Republisher(Arc<Shared>);

struct Shared {
    /// The directory of the interface.
    root: PathBuf,
    queue: u16,
    stop: Arc<AtomicBool>,
    recovered: AtomicU64,
    work: Mutex<Work>,
}

#[derive(Default)]
struct Work {
    /// Directories that contain hidden files.
    directories: BTreeSet<PathBuf>,
    thread: Option<JoinHandle<()>>,
    /// The time before which recovery is not tried again after a failure.
    not_before: Option<Instant>,
    /// Messages about recovered files that the recorder has not fetched yet.
    messages: Vec<String>,
}

impl Republisher {
    /// Creates a republisher without files.
    pub fn new(root: PathBuf, queue: u16) -> Self {
        let (stop, recovered, work) = (Arc::default(), AtomicU64::new(0), Mutex::default());
        Self(Arc::new(Shared { root, queue, stop, recovered, work }))
    }

    /// Returns the number of files that were recovered and published.
    pub fn recovered_files(&self) -> u64 {
        self.0.recovered.load(Ordering::Relaxed)
    }

    /// Returns the messages about recovered files since the last call of this function.
    pub fn take_messages(&self) -> Vec<String> {
        std::mem::take(&mut self.work().messages)
    }

    /// Registers a file that could not be published and still has its hidden name.
    pub fn left(&self, path: &Path) {
        self.work().directories.extend(path.parent().map(Path::to_owned));
    }

    /// Starts the recovery of the unpublished files. The recorder calls this function when it has published a file,
    /// because the volume then works again.
    pub fn volume_works(&self) {
        let mut work = self.work();
        let is_paused = work.not_before.is_some_and(|at| Instant::now() < at);
        if work.directories.is_empty() || is_paused || work.thread.as_ref().is_some_and(|thread| !thread.is_finished())
        {
            return;
        }
        // The recorder still runs and counts the packets that it loses. So the recovery gets an offered count of 0, and
        // adds no packets to a ledger as lost.
        self.begin(&mut work, OrphanedCount::of(self.0.queue, 0, 0, None, 0));
    }

    /// Recovers the unpublished files at the end of a recording, and waits up to `GRACE` until the recovery has ended.
    /// `tail` contains the final counts of the recorder.
    pub fn finish(&self, tail: Option<OrphanedCount>) {
        self.await_thread();
        let mut work = self.work();
        if !work.directories.is_empty() {
            self.begin(&mut work, tail.unwrap_or_else(|| OrphanedCount::of(self.0.queue, 0, 0, None, 0)));
        }
        drop(work);
        self.await_thread();
        self.0.stop.store(true, Ordering::Relaxed);
    }

    fn await_thread(&self) {
        let begun = Instant::now();
        let is_running = || self.work().thread.as_ref().is_some_and(|thread| !thread.is_finished());
        while is_running() && begun.elapsed() < GRACE {
            std::thread::sleep(CHECK_INTERVAL);
        }
    }

    fn begin(&self, work: &mut Work, tail: OrphanedCount) {
        let this = self.clone();
        let directories = std::mem::take(&mut work.directories);
        let again = directories.clone();
        let job = move || {
            // If the priority cannot be lowered, recovery competes with other threads of normal priority; capture
            // threads have a higher one.
            let _ = lower_priority(Background::Batch);
            this.recover(directories, &tail);
        };
        match std::thread::Builder::new().name("republish".into()).spawn(job) {
            Ok(thread) => work.thread = Some(thread),
            Err(_) => work.directories = again,
        }
    }

    fn recover(&self, directories: BTreeSet<PathBuf>, tail: &OrphanedCount) {
        for directory in directories {
            let device = DiskDevice::plain().until(Arc::clone(&self.0.stop));
            let recovery = Recovery::new(device, &self.0.root).below(&directory).of_queue(self.0.queue);
            let mut recovery = recovery.with_orphaned_counts(vec![tail.clone()]).until(Arc::clone(&self.0.stop));
            while recovery.step() {}
            let (mut messages, mut failed) = (Vec::new(), false);
            for event in recovery.take_events() {
                match &event {
                    Event::Recovered { path, outcome: Outcome::Published { path: name, tally, lost, .. } } => {
                        self.0.recovered.fetch_add(1, Ordering::Relaxed);
                        let (hidden, name, stored) = (path.display(), name.display(), tally.stored);
                        messages.push(format!(
                            "{hidden}: recovered and published as {name}, {stored} packets, {lost} lost"
                        ));
                    }
                    Event::Trouble { .. } => failed = true,
                    _ => messages.push(event.to_string()),
                }
            }
            let mut work = self.work();
            work.messages.extend(messages);
            if failed {
                work.directories.insert(directory);
                work.not_before = Some(Instant::now() + PAUSE);
            }
        }
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.0.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Capture, Format, Plan, SourcePlan, StorePlan};
    use testkit::TempDir;

    /// Records 3000 packets. Returns the directory of the interface, the packet file and the index.
    fn recorded(dir: &TempDir) -> (PathBuf, PathBuf, PathBuf) {
        let source =
            SourcePlan::Sim { spec: "200,packets=3000".parse().expect("a specification"), start: None, name: None };
        let store = StorePlan { dir: dir.path().to_owned(), format: Format::Pcap, depth: 4 };
        let plan = Plan { store: Some(store), ring: Some(8 << 20), segment: 4 << 20, ..Plan::new(source) };
        Capture::start(&plan).expect("a capture").wait().expect("the end of the capture");
        let root = dir.path().join("sim");
        let mut directory = root.clone();
        for _ in 0..4 {
            let mut below = std::fs::read_dir(&directory).expect("a directory").filter_map(|e| Some(e.ok()?.path()));
            directory = below.find(|p| p.is_dir()).expect("a directory of year, month, day or hour");
        }
        let published = |ending: &str| {
            let mut all = std::fs::read_dir(&directory).expect("the hour").filter_map(|e| Some(e.ok()?.path()));
            all.find(|p| p.extension().is_some_and(|e| e == ending))
        };
        (root, published("pcap").expect("packets"), published("ngi").expect("their index"))
    }

    #[test]
    fn a_hidden_file_is_published_when_the_volume_works_again() {
        let dir = TempDir::new("mending");
        let (root, packets, index) = recorded(&dir);
        let name = packets.file_name().and_then(|n| n.to_str()).expect("a name").to_owned();
        let hidden = packets.with_file_name(format!(".{name}.partial"));
        std::fs::rename(&packets, &hidden).expect("the file has a hidden name again");
        std::fs::remove_file(&index).expect("the index is removed, as after a failed sync");
        let republisher = Republisher::new(root, 0);
        republisher.volume_works();
        assert!(hidden.exists(), "no hidden file is registered yet");
        republisher.left(&hidden);
        republisher.volume_works();
        republisher.finish(None);
        assert_eq!(republisher.recovered_files(), 1, "{:?}", republisher.take_messages());
        assert!(packets.exists() && index.exists() && !hidden.exists());
        assert!(republisher.take_messages().iter().any(|text| text.contains("3000 packets, 0 lost")));
    }

    #[test]
    fn a_queue_recovers_its_own_files_with_the_counts_of_its_recorder() {
        let dir = TempDir::new("mending-queues");
        let (root, packets, index) = recorded(&dir);
        let name = packets.file_name().and_then(|n| n.to_str()).expect("a name").to_owned();
        let stem = name.strip_suffix(".pcap").expect("a capture").to_owned();
        let start = store::catalogue::parse_stem(&stem).expect("a stem").0;
        let hidden = |queue: u16| {
            let queue = if queue > 0 { format!("-q{queue}") } else { String::new() };
            packets.with_file_name(format!(".{stem}{queue}.pcap.partial"))
        };
        std::fs::copy(&packets, hidden(1)).expect("a file of another queue");
        std::fs::rename(&packets, hidden(0)).expect("the file has a hidden name again");
        std::fs::remove_file(&index).expect("the index is removed, as after a failed sync");
        let republishers = [0, 1].map(|queue| Republisher::new(root.clone(), queue));
        let lost = |queue: u16| {
            let mut tail = OrphanedCount::of(queue, 3000 + 7 * u64::from(queue), start.secs(), Some((start, 0)), 0);
            tail.ended = true;
            Some(tail)
        };
        republishers.iter().zip([0, 1]).for_each(|(republisher, queue)| republisher.left(&hidden(queue)));
        republishers[0].finish(lost(0));
        assert_eq!(
            (republishers[0].recovered_files(), hidden(1).exists()),
            (1, true),
            "{:?}",
            republishers[0].take_messages()
        );
        republishers[1].finish(lost(1));
        let reported = republishers[1].take_messages();
        assert_eq!((republishers[1].recovered_files(), hidden(1).exists()), (1, false), "{reported:?}");
        assert!(reported.iter().any(|text| text.contains("3000 packets, 7 lost")), "{reported:?}");
        let sealed = packets.with_file_name(format!("{stem}-q1.ngi"));
        let sealed = index::Reader::open(&std::fs::File::open(sealed).expect("an index")).expect("sealed");
        let tally = sealed.summary().tally;
        assert_eq!((tally.lost[base::Cause::Disk as usize], tally.notes[base::Note::TailUnknown as usize]), (7, 0));
    }
}
