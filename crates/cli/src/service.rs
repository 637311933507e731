//! A capture as a systemd service: notifies the service manager of the start, of the status, and, for the watchdog,
//! that every thread makes progress.

use base::units::show_count;
use engine::{Counts, QueueReport, Report};
use std::time::{Duration, Instant};
use sys::notify::{Notifier, watchdog_period};

/// The period of status texts.
const STATUS: Duration = Duration::from_secs(5);

/// The connection to the service manager, if there is one.
pub struct Service {
    notifier: Option<Notifier>,
    watchdog: Watchdog,
    /// True if the service manager expects watchdog notifications.
    watched: bool,
    reported: Option<Instant>,
}

impl Service {
    /// Connects to the service manager whose socket the environment names.
    pub fn begin() -> Self {
        let notifier = Notifier::from_environment().unwrap_or_else(|e| {
            sys::say!("netgrain: the service manager gets no notifications: {e}");
            None
        });
        let period = watchdog_period();
        let watched = period.is_some();
        Self { notifier, watchdog: Watchdog::new(period.unwrap_or(STATUS)), watched, reported: None }
    }

    /// Notifies that the capture runs.
    pub fn ready(&self) {
        self.say("READY=1\nSTATUS=capturing");
    }

    /// Sends the status and the watchdog notification; to be called once a second with the report of each interface.
    pub fn notify(&mut self, reports: &[Report]) {
        if self.notifier.is_none() {
            return;
        }
        let now = Instant::now();
        if self.reported.is_none_or(|t| now.duration_since(t) >= STATUS) {
            self.reported = Some(now);
            self.say(&format!("STATUS={}", status(reports)));
        }
        let stuck = self.watchdog.stuck(reports, now).map(str::to_owned);
        if self.watched {
            match stuck {
                None => self.say("WATCHDOG=1"),
                Some(thread) => self.say(&format!("STATUS=stuck: {thread}")),
            }
        }
    }

    /// Notifies that the capture is ending, which may take a while.
    pub fn stopping(&self) {
        self.say("STOPPING=1\nSTATUS=writing the remaining packets");
    }

    fn say(&self, text: &str) {
        if let Some(notifier) = &self.notifier {
            // If the service manager cannot be reached, the capture must continue.
            let _ = notifier.send(text);
        }
    }
}

/// The status text: sums over all interfaces, the fill level of the fullest ring, and the write error of a recorder.
fn status(reports: &[Report]) -> String {
    let sum = |of: fn(&Counts) -> u64| show_count(reports.iter().map(|r| of(&r.counts)).sum());
    let queues = || reports.iter().flat_map(|r| &r.queues);
    let fill = queues().map(|q| q.ring_fill).fold(0.0, f64::max);
    let error = queues().find_map(|q| q.recorder.as_ref()?.error.as_ref()).map(|e| format!("; {e}"));
    format!(
        "{} packets stored, {} lost, ring {:.0} % full{}",
        sum(|counts| counts.stored),
        sum(|counts| counts.lost_total),
        fill * 100.0,
        error.unwrap_or_default()
    )
}

/// Detects threads that no longer use CPU time. Every thread polls many times a second, even without work, and so uses
/// CPU time. A thread that waits for the disk is exempt, because a disk may stall longer than any timeout, and a
/// restart would lose the packets in the ring.
struct Watchdog {
    timeout: Duration,
    threads: Vec<ThreadProgress>,
}

struct ThreadProgress {
    name: String,
    used: f64,
    moved: Instant,
}

impl Watchdog {
    fn new(timeout: Duration) -> Self {
        Self { timeout, threads: Vec::new() }
    }

    /// The first thread without progress for longer than the timeout, if any.
    fn stuck(&mut self, reports: &[Report], now: Instant) -> Option<&str> {
        let threads = reports.iter().flat_map(|r| r.queues.iter().flat_map(|q| threads(&r.interface, q)));
        for (name, used, exempt) in threads {
            match self.threads.iter_mut().find(|t| t.name == name) {
                Some(thread) if thread.used != used || exempt => (thread.used, thread.moved) = (used, now),
                Some(_) => {}
                None => self.threads.push(ThreadProgress { name, used, moved: now }),
            }
        }
        let stuck = self.threads.iter().find(|t| now.duration_since(t.moved) > self.timeout);
        stuck.map(|t| t.name.as_str())
    }
}

/// Returns the threads of a queue: the name of each thread, its CPU seconds, and true if the check for progress does
/// not apply to it.
fn threads(interface: &str, q: &QueueReport) -> Vec<(String, f64, bool)> {
    let name = |thread: &str| format!("{thread} of {interface} queue {}", q.queue);
    let mut all = vec![(name("engine"), q.engine_cpu_seconds, false)];
    if let Some(r) = &q.recorder {
        // While the volume has a write error, the check for progress does not apply to the index and writer threads, as
        // if they waited for the disk.
        let refused = r.error.is_some();
        all.push((name("index"), r.index_cpu_seconds, refused || r.waiting.index));
        all.push((name("writer"), r.writer_cpu_seconds, refused || r.waiting.writer));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::{RecorderReport, ThreadWaits};
    use std::collections::BTreeMap;

    fn report(engine: f64, writer: f64, trouble: Option<&str>) -> Report {
        waiting(engine, writer, trouble, ThreadWaits::default())
    }

    fn waiting(engine: f64, writer: f64, trouble: Option<&str>, waiting: ThreadWaits) -> Report {
        let recorder = RecorderReport {
            index_cpu_seconds: writer,
            writer_cpu_seconds: writer,
            error: trouble.map(str::to_owned),
            waiting,
            ..RecorderReport::default()
        };
        let queue = QueueReport {
            queue: 0,
            source: String::new(),
            counts: Counts::default(),
            ring_fill: 0.034,
            ring: String::new(),
            engine_cpu_seconds: engine,
            clock_error_nanos: 0,
            timestamp_method: "poll".to_owned(),
            timestamp_methods: std::collections::BTreeMap::new(),
            nic_clock: None,
            timestamp_deviation_nanos: 0,
            duplicates: None,
            recorder: Some(recorder),
        };
        Report {
            interface: "eth1".into(),
            seconds: 1.0,
            steal_ratio: 0.0,
            clock: None,
            memory_bytes: None,
            counts: Counts { stored: 1234, lost_total: 5, ..Counts::default() },
            counting_point: "",
            timestamp_source: "",
            lost_by_reader: BTreeMap::new(),
            queues: vec![queue],
            meter: None,
            program: None,
            retention: None,
            volume: None,
            groups: Vec::new(),
            listeners: Vec::new(),
            warnings: Vec::new(),
            faults: Vec::new(),
        }
    }

    #[test]
    fn a_thread_without_progress_for_longer_than_the_timeout_is_named() {
        let (mut watchdog, start) = (Watchdog::new(Duration::from_secs(5)), Instant::now());
        let at = |s: u64| start + Duration::from_secs(s);
        assert_eq!(watchdog.stuck(&[report(1.0, 1.0, None)], at(0)), None);
        assert_eq!(watchdog.stuck(&[report(1.1, 1.0, None)], at(5)), None, "the timeout is not over yet");
        assert_eq!(watchdog.stuck(&[report(1.2, 1.0, None)], at(6)), Some("index of eth1 queue 0"));
        assert_eq!(watchdog.stuck(&[report(1.3, 1.1, None)], at(7)), None, "the thread makes progress again");
        assert_eq!(watchdog.stuck(&[report(1.3, 1.2, None)], at(13)), Some("engine of eth1 queue 0"));
    }

    #[test]
    fn a_recorder_whose_volume_refuses_writes_is_not_stuck() {
        let (mut watchdog, start) = (Watchdog::new(Duration::from_secs(5)), Instant::now());
        for s in 0..60 {
            let stuck = report(s as f64, 1.0, Some("no space left"));
            assert_eq!(watchdog.stuck(&[stuck], start + Duration::from_secs(s)), None);
        }
    }

    #[test]
    fn threads_that_wait_for_the_disk_are_not_stuck() {
        let (mut watchdog, start) = (Watchdog::new(Duration::from_secs(5)), Instant::now());
        let at = |s: u64| start + Duration::from_secs(s);
        let both = ThreadWaits { index: true, writer: true };
        for s in 0..60 {
            assert_eq!(watchdog.stuck(&[waiting(s as f64, 1.0, None, both)], at(s)), None);
        }
        // The writer no longer waits for the disk, but it makes no progress. Its timeout begins at this moment.
        let index = ThreadWaits { index: true, writer: false };
        assert_eq!(watchdog.stuck(&[waiting(60.0, 1.0, None, index)], at(64)), None);
        assert_eq!(watchdog.stuck(&[waiting(61.0, 1.0, None, index)], at(65)), Some("writer of eth1 queue 0"));
    }

    #[test]
    fn the_status_has_stored_and_lost_packets_ring_and_error() {
        let text = status(&[report(1.0, 1.0, Some("no space left"))]);
        assert_eq!(text, "1 234 packets stored, 5 lost, ring 3 % full; no space left");
    }
}
