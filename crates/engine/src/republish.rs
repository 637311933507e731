//! Files that the recorder could not give their names because their volume failed for a while: mended and published as
//! soon as it works again, while the recording goes on, and once more at its end. A sync that failed is not repeated,
//! so such a file is read and compared with its checksums, as after a kill ([`upkeep::recovery`]). Each queue mends its
//! own files, since only its recorder knows what they lack.

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

/// How long the end of a recording waits for it; the next recorder takes up what is left.
const GRACE: Duration = Duration::from_secs(10);
/// How often the end looks whether it is done.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// How long a volume on which mending failed is left alone.
const PAUSE: Duration = Duration::from_secs(5);

/// Of one queue. Clones are of the same.
#[derive(Clone)]
pub(crate) struct Republisher(Arc<Shared>);

struct Shared {
    /// The folder of the interface.
    root: PathBuf,
    queue: u16,
    stop: Arc<AtomicBool>,
    recovered: AtomicU64,
    work: Mutex<Work>,
}

#[derive(Default)]
struct Work {
    /// Where files were left.
    folders: BTreeSet<PathBuf>,
    thread: Option<JoinHandle<()>>,
    /// Not before then, after a failure.
    not_before: Option<Instant>,
    /// What is to be said.
    messages: Vec<String>,
}

impl Republisher {
    /// Nothing was left yet.
    pub fn new(root: PathBuf, queue: u16) -> Self {
        let (stop, mended, work) = (Arc::default(), AtomicU64::new(0), Mutex::default());
        Self(Arc::new(Shared { root, queue, stop, recovered: mended, work }))
    }

    /// Files that have their names after all.
    pub fn has_recovered(&self) -> u64 {
        self.0.recovered.load(Ordering::Relaxed)
    }

    /// What was done since the last call.
    pub fn take_messages(&self) -> Vec<String> {
        std::mem::take(&mut self.work().messages)
    }

    /// This file was left under its hidden name.
    pub fn left(&self, path: &Path) {
        self.work().folders.extend(path.parent().map(Path::to_owned));
    }

    /// The volume has just taken another file.
    pub fn volume_works(&self) {
        let mut work = self.work();
        let rests = work.not_before.is_some_and(|at| Instant::now() < at);
        if work.folders.is_empty() || rests || work.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        // The recorder that counts lives: nothing of its tail is missing.
        self.begin(&mut work, OrphanedCount::of(self.0.queue, 0, 0, None, 0));
    }

    /// The recording has ended, with these last words of the recorder, if it left files: waits for the mending, for a while.
    pub fn finish(&self, tail: Option<OrphanedCount>) {
        self.await_thread();
        let mut work = self.work();
        if !work.folders.is_empty() {
            self.begin(&mut work, tail.unwrap_or_else(|| OrphanedCount::of(self.0.queue, 0, 0, None, 0)));
        }
        drop(work);
        self.await_thread();
        self.0.stop.store(true, Ordering::Relaxed);
    }

    fn await_thread(&self) {
        let asked = Instant::now();
        let is_running = || self.work().thread.as_ref().is_some_and(|thread| !thread.is_finished());
        while is_running() && asked.elapsed() < GRACE {
            std::thread::sleep(CHECK_INTERVAL);
        }
    }

    fn begin(&self, work: &mut Work, tail: OrphanedCount) {
        let this = self.clone();
        let folders = std::mem::take(&mut work.folders);
        let again = folders.clone();
        let job = move || {
            // Where it is refused, mending competes with other threads of its kind; capture's are above.
            let _ = lower_priority(Background::Batch);
            this.recover(folders, &tail);
        };
        match std::thread::Builder::new().name("mending".into()).spawn(job) {
            Ok(thread) => work.thread = Some(thread),
            Err(_) => work.folders = again,
        }
    }

    fn recover(&self, folders: BTreeSet<PathBuf>, tail: &OrphanedCount) {
        for folder in folders {
            let device = DiskDevice::plain().until(Arc::clone(&self.0.stop));
            let recovery = Recovery::new(device, &self.0.root).below(&folder).of_queue(self.0.queue);
            let mut recovery = recovery.with_orphaned_counts(vec![tail.clone()]).until(Arc::clone(&self.0.stop));
            while recovery.step() {}
            let (mut reported, mut failed) = (Vec::new(), false);
            for event in recovery.take_events() {
                match &event {
                    Event::Recovered { path, outcome: Outcome::Published { path: name, tally, lost, .. } } => {
                        self.0.recovered.fetch_add(1, Ordering::Relaxed);
                        let (hidden, name, stored) = (path.display(), name.display(), tally.stored);
                        reported
                            .push(format!("{hidden}: published as {name} after all, {stored} packets, {lost} lost"));
                    }
                    Event::Trouble { .. } => failed = true,
                    _ => reported.push(event.to_string()),
                }
            }
            let mut work = self.work();
            work.messages.extend(reported);
            if failed {
                work.folders.insert(folder);
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

    /// A capture of 3000 packets: the folder of its interface, its file, and the index.
    fn recorded(dir: &TempDir) -> (PathBuf, PathBuf, PathBuf) {
        let source =
            SourcePlan::Sim { spec: "200,packets=3000".parse().expect("a specification"), start: None, name: None };
        let store = StorePlan { dir: dir.path().to_owned(), format: Format::Pcap, depth: 4 };
        let plan = Plan { store: Some(store), ring: Some(8 << 20), segment: 4 << 20, ..Plan::new(source) };
        Capture::start(&plan).expect("a capture").wait().expect("an end");
        let root = dir.path().join("sim");
        let mut folder = root.clone();
        for _ in 0..4 {
            let mut below = std::fs::read_dir(&folder).expect("a folder").filter_map(|e| Some(e.ok()?.path()));
            folder = below.find(|p| p.is_dir()).expect("year, month, day, hour");
        }
        let published = |ending: &str| {
            let mut all = std::fs::read_dir(&folder).expect("the hour").filter_map(|e| Some(e.ok()?.path()));
            all.find(|p| p.extension().is_some_and(|e| e == ending))
        };
        (root, published("pcap").expect("packets"), published("ngi").expect("their index"))
    }

    #[test]
    fn a_file_that_was_left_hidden_has_its_name_once_the_volume_takes_another() {
        let dir = TempDir::new("mending");
        let (root, packets, index) = recorded(&dir);
        let name = packets.file_name().and_then(|n| n.to_str()).expect("a name").to_owned();
        let hidden = packets.with_file_name(format!(".{name}.partial"));
        std::fs::rename(&packets, &hidden).expect("hidden again");
        std::fs::remove_file(&index).expect("its index went with the sync that failed");
        let mending = Republisher::new(root, 0);
        mending.volume_works();
        assert!(hidden.exists(), "nothing was left yet");
        mending.left(&hidden);
        mending.volume_works();
        mending.finish(None);
        assert_eq!(mending.has_recovered(), 1, "{:?}", mending.take_messages());
        assert!(packets.exists() && index.exists() && !hidden.exists());
        assert!(mending.take_messages().iter().any(|text| text.contains("3000 packets, 0 lost")));
    }

    #[test]
    fn a_queue_mends_its_own_files_and_enters_what_only_its_recorder_knows() {
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
        std::fs::rename(&packets, hidden(0)).expect("hidden again");
        std::fs::remove_file(&index).expect("its index went with the sync that failed");
        let mendings = [0, 1].map(|queue| Republisher::new(root.clone(), queue));
        let lost = |queue: u16| {
            let mut tail = OrphanedCount::of(queue, 3000 + 7 * u64::from(queue), start.secs(), Some((start, 0)), 0);
            tail.ended = true;
            Some(tail)
        };
        mendings.iter().zip([0, 1]).for_each(|(mending, queue)| mending.left(&hidden(queue)));
        mendings[0].finish(lost(0));
        assert_eq!((mendings[0].has_recovered(), hidden(1).exists()), (1, true), "{:?}", mendings[0].take_messages());
        mendings[1].finish(lost(1));
        let reported = mendings[1].take_messages();
        assert_eq!((mendings[1].has_recovered(), hidden(1).exists()), (1, false), "{reported:?}");
        assert!(reported.iter().any(|text| text.contains("3000 packets, 7 lost")), "{reported:?}");
        let sealed = packets.with_file_name(format!("{stem}-q1.ngi"));
        let sealed = index::Reader::open(&std::fs::File::open(sealed).expect("an index")).expect("sealed");
        let tally = sealed.summary().tally;
        assert_eq!((tally.lost[base::Cause::Disk as usize], tally.notes[base::Note::TailUnknown as usize]), (7, 0));
    }
}
