//! The retention threads of a running capture. They run [`upkeep::retention`] with the clocks of this machine, at a
//! lower priority than capture. Files are copied to the archive only while the disk is otherwise idle and the rings are
//! nearly empty. The archive thread holds no lock during an operation that may wait for the archive's volume. So files
//! can be removed and a capture can end while that volume does not respond.

use crate::error::EngineError;
use crate::observer::Observer;
use crate::report::QueueReport;
use crate::retention_report::{RetentionHandle, RetentionReport};
use crate::volume;
use base::Timestamp;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use store::DiskDevice;
use sys::priority::{Background, lower_priority};
use upkeep::retention::{
    ClockReading, Event, MoveJob, Progress, RetentionScope, RetentionState, RetentionWorker, Rules,
};

/// The shortest interval of the checks of the free space. In this time, the packets of a 10 Gb/s link fill less than
/// one file of 64 MiB, even if the traffic begins suddenly.
const PERIOD: Duration = Duration::from_millis(50);
const PERIOD_BYTES: u64 = 64 << 20;

/// The longest interval of the checks of the free space, for large files.
const PERIOD_MAX: Duration = Duration::from_millis(250);

const SECOND: Duration = Duration::from_secs(1);

/// The half-life of the expected write rate. The expected rate is the highest rate so far, and decreases by half in
/// this time unless a higher rate occurs.
const HALVED_AFTER: Duration = Duration::from_secs(60);

/// The pause of the archive thread while the disk is busy. The result of a check whether the disk is busy is also valid
/// for this time.
const YIELD_TIME: Duration = Duration::from_millis(20);

/// Fill level of a ring above which files are not copied to the archive, because the disk is needed for the packets in
/// the ring.
const SLACK_FILL: f64 = 0.1;

/// The time for which an hour directory must be empty before it is removed, because a recorder creates the directory
/// just before its first file.
const DIRECTORIES_AFTER: Duration = Duration::from_secs(60);

/// The longest time that the end of a capture waits for the archive's volume.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// The lowest scheduling priority: retention runs after all other threads.
const NICE: i32 = 19;

/// The retention settings of a capture.
#[derive(Clone, Debug)]
pub struct RetentionPlan {
    /// The store.
    pub store: PathBuf,
    /// Bytes that the recorder preallocates for each file of each queue.
    pub segment: u64,
    /// The retention rules. [`Retention::start`] sets the field `ahead`.
    pub rules: Rules,
}

/// The retention worker of a capture. It runs until it is dropped.
pub struct Retention {
    shared: Arc<Shared>,
    retaining: Option<JoinHandle<()>>,
    archiving: Option<JoinHandle<()>>,
}

/// The state that the two threads share. The retention thread decides which files to remove and removes them, also
/// while the disk is busy. The archive thread copies files to the archive, only while the disk is idle.
struct Shared {
    stop: AtomicBool,
    began: Instant,
    /// True while a file is being moved to the archive.
    moving: AtomicBool,
    work: Mutex<Work>,
    state: RetentionHandle,
    rules: Rules,
}

struct Work {
    worker: RetentionWorker<DiskDevice>,
    report_event: Box<dyn FnMut(&Event) + Send>,
}

impl Retention {
    /// Starts the threads for the interface of this capture. `report_event` is called with each event, on the thread
    /// that caused the event.
    ///
    /// # Errors
    /// The system cannot create a thread.
    pub fn start(
        plan: RetentionPlan,
        capture: Observer,
        report_event: impl FnMut(&Event) + Send + 'static,
    ) -> Result<Self, EngineError> {
        // The file size is that of the running recorder, because on a small volume the capture may have chosen a
        // smaller file size than the plan contains.
        let segment = plan.segment.min(capture.segment);
        let ahead = segment.saturating_mul(capture.queues.len() as u64);
        let rules = Rules { ahead, ..plan.rules };
        let demand = Demand { files: ahead, ..Demand::default() };
        let scope = RetentionScope {
            store: plan.store,
            interfaces: vec![capture.label.clone()],
            beside_others: true,
            directories_after: DIRECTORIES_AFTER,
        };
        let archiving = rules.archive.is_some();
        let state = capture.retention.clone();
        state.set(&RetentionState::default(), None);
        let capture = Arc::new(capture);
        let writing = Arc::clone(&capture);
        let retention_worker = RetentionWorker::new(DiskDevice::plain(), scope, rules.clone());
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            began: Instant::now(),
            moving: AtomicBool::new(false),
            work: Mutex::new(Work { worker: retention_worker, report_event: Box::new(report_event) }),
            state,
            rules,
        });
        let mut this = Self { shared, retaining: None, archiving: None };
        this.retaining = Some(this.spawn("retention", move |shared| shared.run_retention(demand, &writing))?);
        if archiving {
            this.archiving = Some(this.spawn("archive", |shared| shared.archive(Slack::new(capture)))?);
        }
        Ok(this)
    }

    fn spawn(&self, name: &str, work: impl FnOnce(&Shared) + Send + 'static) -> Result<JoinHandle<()>, EngineError> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || work(&shared));
        thread.map_err(EngineError::Spawn)
    }

    /// Returns the report.
    pub fn report(&self) -> RetentionReport {
        self.shared.state.report().unwrap_or_default()
    }

    /// Ends the threads, scans the store again and returns the final report. The scan is necessary because the recorder
    /// has just published its last files and freed its preallocated space. The function emits no event.
    pub fn end(self) -> RetentionReport {
        let shared = Arc::clone(&self.shared);
        drop(self);
        shared.work.lock().unwrap_or_else(PoisonError::into_inner).worker.rescan();
        shared.step(false);
        shared.state.report().unwrap_or_default()
    }
}

impl Drop for Retention {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let threads = [&self.retaining, &self.archiving];
        threads.into_iter().flatten().for_each(|thread| thread.thread().unpark());
        if let Some(retaining) = self.retaining.take() {
            let _ = retaining.join();
        }
        let Some(archiving) = self.archiving.take() else { return };
        let stop_requested = Instant::now();
        while !archiving.is_finished() {
            if stop_requested.elapsed() >= STOP_TIMEOUT {
                // The archive thread is left running. It holds no lock, and ends when the archive's volume responds or
                // the process ends.
                let text = "the archive's volume does not respond; an incomplete copy (….moving) may remain there \
                            until the next start";
                self.shared.report(&Event::Warning(text.to_owned()));
                return;
            }
            std::thread::sleep(YIELD_TIME);
        }
        let _ = archiving.join();
    }
}

impl Shared {
    /// The loop of the retention thread.
    fn run_retention(&self, mut demand: Demand, capture: &Observer) {
        // If the priority cannot be lowered, retention competes with other threads of normal priority; capture threads
        // have a higher one.
        let _ = sys::cpu::set_nice(NICE);
        while !self.stop.load(Ordering::Relaxed) {
            let up = self.began.elapsed();
            if up >= demand.seen + PERIOD {
                let report = capture.report();
                let written = report.queues.iter().filter_map(|q| q.recorder.as_ref()).map(|r| r.bytes).sum();
                let total = self.state.report().map_or(0, |state| state.total);
                let ahead = demand.update(up, written, total);
                let synchronised = sys::timex::clock_status().is_ok_and(|clock| clock.synchronised);
                let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
                work.worker.set_ahead(ahead);
                work.worker.set_synchronised(synchronised);
            }
            match self.step(false) {
                Progress::More => {}
                Progress::Waiting => std::thread::park_timeout(YIELD_TIME),
                Progress::Idle => std::thread::park_timeout(period(self.rules.ahead)),
            }
        }
    }

    /// The loop of the archive thread.
    fn archive(&self, mut slack: Slack) {
        // If the priority cannot be lowered, copying to the archive is limited only by the fill level of the rings.
        let _ = lower_priority(Background::Batch);
        let mut device = DiskDevice::plain();
        let mut out: Option<MoveJob> = None;
        while !self.stop.load(Ordering::Relaxed) {
            let wanted = out.is_some() || self.moving.load(Ordering::Relaxed);
            let may_run = wanted && (slack.is_disk_idle() || out.as_ref().is_some_and(MoveJob::is_cancelled));
            let worked = may_run && self.archive_step(&mut out, &mut device);
            if !worked {
                std::thread::park_timeout(YIELD_TIME);
            }
        }
        if let Some(mut job) = out {
            job.give_up(&mut device);
        }
    }

    /// Runs one step of a move job. The lock of the retention worker is not held during operations on the archive.
    /// Returns true if there is more to do.
    fn archive_step(&self, out: &mut Option<MoveJob>, device: &mut DiskDevice) -> bool {
        let retention_worker = || self.work.lock().unwrap_or_else(PoisonError::into_inner);
        if out.is_none() {
            *out = retention_worker().worker.send_out();
        }
        if out.as_mut().is_some_and(|job| job.step(device)) {
            return true;
        }
        if let Some(job) = out.take() {
            retention_worker().worker.take_back(job);
        }
        self.step(true) == Progress::More
    }

    fn report(&self, event: &Event) {
        (self.work.lock().unwrap_or_else(PoisonError::into_inner).report_event)(event);
    }

    fn step(&self, slack: bool) -> Progress {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        let Work { worker: retention_worker, report_event } = &mut *work;
        let progress = retention_worker.step(ClockReading { now: now(), up: self.began.elapsed() }, slack);
        retention_worker.take_events().iter().for_each(report_event);
        self.moving.store(retention_worker.is_moving(), Ordering::Relaxed);
        self.state.set(retention_worker.state(), horizon(retention_worker.state(), &self.rules, now()));
        // While queries hold files, the next step follows after a short time: if many queries run in succession, the
        // files can be removed only in the short time between two queries.
        let held = retention_worker.state().held > 0;
        if held && progress == Progress::Idle { Progress::Waiting } else { progress }
    }
}

/// The free space that the recorder will need soon: the preallocation of its next files or, if files are small in
/// relation to the write rate, the bytes that are written in one second at the highest rate so far. The rate is
/// measured over at least one second, so a short burst counts only with its number of bytes. Example: after the disk
/// has stalled, the recorder writes all packets that the ring has retained within a fraction of a second. Such a burst
/// is short, so the rate of the burst must not be expected for the next second.
#[derive(Clone, Debug, Default)]
struct Demand {
    files: u64,
    seen: Duration,
    /// For each check in the last second: its time, and the number of bytes that the recorder had written by then.
    samples: VecDeque<(Duration, u64)>,
    /// The expected write rate in bytes per second: the highest rate so far, halved each [`HALVED_AFTER`].
    peak: f64,
}

impl Demand {
    /// Returns the free space that will be needed. `written` is the number of bytes since the start. `total` is the
    /// size of the volume in bytes, or 0 if it is unknown.
    fn update(&mut self, up: Duration, written: u64, total: u64) -> u64 {
        let passed = up.saturating_sub(self.seen).as_secs_f64();
        self.seen = up;
        // The first sample is the newest sample that is at least one second old. The number of bytes written since that
        // sample is scaled to one second.
        self.samples.push_back((up, written));
        while self.samples.get(1).is_some_and(|(at, _)| up.saturating_sub(*at) >= SECOND) {
            self.samples.pop_front();
        }
        let (from, before) = self.samples.front().copied().unwrap_or((up, written));
        let span = up.saturating_sub(from).max(SECOND).as_secs_f64();
        let in_a_second = written.saturating_sub(before) as f64 / span;
        self.peak = in_a_second.max(self.peak * 0.5_f64.powf(passed / HALVED_AFTER.as_secs_f64()));
        let most = if total > 0 { total / volume::PARTS } else { u64::MAX };
        self.files.max((self.peak as u64).min(most))
    }
}

/// Returns the interval of the checks of the free space if this number of bytes is kept free for the next files.
fn period(ahead: u64) -> Duration {
    PERIOD.saturating_mul(u32::try_from(ahead / PERIOD_BYTES).unwrap_or(u32::MAX)).clamp(PERIOD, PERIOD_MAX)
}

/// Returns the time that the files of an interface will cover when the rules begin to remove them. The estimate assumes
/// that the write rate since the oldest file continues and that other data on the volume does not grow.
fn horizon(state: &RetentionState, rules: &Rules, now: Timestamp) -> Option<Duration> {
    let covered = now.since(state.oldest?);
    if state.bytes == 0 || covered.is_zero() {
        return None;
    }
    let spare = rules.keep_free.map_or(0, |free| free.of(state.space.total).saturating_add(rules.ahead));
    let capacity = state.bytes.saturating_add(state.space.free).saturating_sub(spare);
    let capacity = capacity.min(rules.max_size.unwrap_or(u64::MAX));
    let reach = Duration::try_from_secs_f64(covered.as_secs_f64() * capacity as f64 / state.bytes as f64).ok();
    [reach, rules.max_age].into_iter().flatten().min()
}

/// The state of the disk: idle if it is not needed for packets. The state is checked at most once per `YIELD_TIME`.
struct Slack {
    capture: Arc<Observer>,
    checked: Option<Instant>,
    is_idle: bool,
}

impl Slack {
    fn new(capture: Arc<Observer>) -> Self {
        Self { capture, checked: None, is_idle: false }
    }

    fn is_disk_idle(&mut self) -> bool {
        if self.checked.is_none_or(|checked| checked.elapsed() >= YIELD_TIME) {
            let report = self.capture.report();
            let busy =
                |q: &QueueReport| q.ring_fill > SLACK_FILL || q.recorder.as_ref().is_some_and(|r| r.error.is_some());
            self.is_idle = !report.queues.iter().any(busy);
            self.checked = Some(Instant::now());
        }
        self.is_idle
    }
}

/// Returns the system time.
fn now() -> Timestamp {
    Timestamp::ZERO.after(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::device::Space;
    use upkeep::retention::Free;

    #[test]
    fn the_horizon_is_the_covered_time_scaled_to_the_capacity_of_the_strictest_rule() {
        const GB: u64 = 1_000_000_000;
        let hours = |n: u64| Some(Duration::from_secs(3600 * n));
        let now = Timestamp::from_secs_nanos(1_800_000_000, 0);
        let oldest = Some(now.before(Duration::from_secs(3600)));
        let state = RetentionState {
            oldest,
            bytes: 10 * GB,
            space: Space { free: 50 * GB, total: 100 * GB },
            ..RetentionState::default()
        };
        assert_eq!(horizon(&state, &Rules::default(), now), hours(6), "10 GB per hour in a space of 60 GB");
        let keep_free = Some(Free::Percent(10.0));
        let rules = Rules { keep_free, ahead: 10 * GB, ..Rules::default() };
        assert_eq!(horizon(&state, &rules, now), hours(4));
        let rules = Rules { max_size: Some(20 * GB), ..rules };
        assert_eq!(horizon(&state, &rules, now), hours(2));
        let rules = Rules { max_age: Some(Duration::from_secs(60)), ..rules };
        assert_eq!(horizon(&state, &rules, now), Some(Duration::from_secs(60)));
        assert_eq!(horizon(&RetentionState::default(), &rules, now), None, "without a file there is no write rate");
    }

    #[test]
    fn a_link_at_10_gbit_s_fills_less_than_the_next_files_between_two_checks() {
        for (mib, millis) in [(1, 50), (64, 50), (128, 100), (2048, 250), (u64::MAX >> 20, 250)] {
            assert_eq!(period(mib << 20), Duration::from_millis(millis), "{mib} MiB");
        }
    }

    #[test]
    fn a_burst_after_a_stall_does_not_count_as_a_rate() {
        let mut demand = Demand { files: 16 << 20, ..Demand::default() };
        let mut up = Duration::ZERO;
        // 10 MB/s are written. Then the disk stalls for 5 s, and then 50 MB are written at once.
        let mut most = 0;
        for sample in 0..400u64 {
            up += PERIOD;
            let written = match sample {
                0..100 => sample * 500_000,
                100..200 => 50_000_000,
                _ => 100_000_000 + (sample - 200) * 500_000,
            };
            most = most.max(demand.update(up, written, 1 << 30));
        }
        assert!(
            (50_000_000..60_000_000).contains(&most),
            "expected the burst of 50 MB, not a rate of 1 GB/s: {most} bytes"
        );
        // If the write rate would fill the volume within seconds, the free space that retention keeps is limited to a
        // part of the volume.
        let mut demand = Demand { files: 16 << 20, ..Demand::default() };
        let ahead =
            (0..100u64).map(|sample| demand.update(PERIOD * sample as u32, sample * 62_500_000, 400 << 20)).max();
        assert_eq!(ahead, Some(50 << 20));
    }

    #[test]
    fn the_needed_space_is_the_next_files_or_a_second_at_the_highest_recent_rate() {
        let mut demand = Demand { files: 64 << 20, ..Demand::default() };
        assert_eq!(demand.update(Duration::ZERO, 0, 0), 64 << 20);
        assert_eq!(
            demand.update(PERIOD, 1 << 20, 0),
            64 << 20,
            "the next files are larger than the bytes of one second at 20 MiB/s"
        );
        let ahead = (2..=40u32).map(|n| demand.update(n * PERIOD, u64::from(n - 1) * 62_500_000, 0)).max();
        assert!(
            ahead.is_some_and(|a| (1_240_000_000..=1_250_000_001).contains(&a)),
            "expected the bytes of one second at 10 Gb/s, not {ahead:?}"
        );
        let (up, written) = (40 * PERIOD, 39 * 62_500_000);
        // In the next second nothing is written.
        demand.update(up + SECOND, written, 0);
        let after = demand.update(up + SECOND + HALVED_AFTER, written, 0);
        assert!((600_000_000..=626_000_000).contains(&after), "expected half of the highest write rate, not {after}");
        assert_eq!(demand.update(up + 20 * HALVED_AFTER, written, 0), 64 << 20);
    }
}
