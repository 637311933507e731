//! The engine thread of a queue. It corresponds to the polling thread of HPCAP, in user space.
//!
//! For each packet the thread takes one timestamp, parses the headers once, computes one hash, copies the bytes once
//! and writes one descriptor. After each batch it publishes the packets and processes the requests of listeners. A few
//! times per second it reads the loss counters of the source and publishes its status for other threads. The thread
//! never waits for anything but packets.

use crate::batch_clock::BatchClock;
use crate::duplicates::QueueDuplicates;
use crate::recording::RecorderLink;
use crate::stage::Stage;
use crate::switch_stamps::SwitchStamps;
use crate::timestamp_choice::batch_method;
use crate::timestamp_warnings::{self, STEP_WARNINGS_MAX, clock_step};
use crate::worker_links::{PAUSE, WorkerLinks, WorkerStatus};
use base::{Cause, ClockState, Note, Timestamp, TimestampMethod};
use capture::file::repair_advice;
use capture::{AnySource, Counts, Polled, ProgramOutcomes, Source, SourceError, SourceInfo, TimestampSource};
use filter::Filter;
use interface_program::ProgramSequence;
use ring::{Annotations, Producer};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};
use sys::clock::Clock;
use timestamping::{SwitchTimestamps, TimestampSetting};
use wire::FlowHasher;

/// The largest number of frames read from a source between two publications.
pub const BATCH: usize = 256;

/// A higher priority than that of all threads of normal priority. The difference in priority is small enough that an
/// engine thread at full load does not starve other threads: the recorder's threads on the same core still get their
/// weighted share.
const ENGINE_NICE: i32 = -5;

/// The longest sleep of a poll while no packets arrive. It is short, so that stop requests, ticks and new listeners are
/// processed promptly. A packet ends the sleep.
const WAIT: Duration = Duration::from_millis(50);

/// The longest time on a quiet interface from a timestamp of the kernel or NIC to the arrival of the frame in this
/// thread: the kernel retires a block within 10 ms, and a timer tick may take as long again.
const ARRIVAL_DELAY_MAX: Duration = Duration::from_millis(25);

/// If the number of frames in a batch is in this range, the thread sleeps for [`IDLE_AFTER`] before the next batch. On
/// a busy interface, waking up for so few frames costs too much CPU time per frame.
const SMALL: std::ops::Range<usize> = 8..BATCH / 2;

/// The sleep after a small batch. More frames arrive during the sleep, so the next batch is larger. A thread with its
/// own core spins instead, so that its timestamps are more exact.
const IDLE_AFTER: Duration = Duration::from_micros(60);

/// The interval at which the thread reads the losses of the source and publishes its status.
const REPORT: Duration = Duration::from_millis(100);

/// The settings of an engine thread.
pub struct Settings {
    /// The snaplen: the largest number of bytes stored of a packet.
    pub snaplen: usize,
    /// The capture filter. Packets that do not match are counted as filtered and not stored.
    pub filter: Option<Filter>,
    /// The detection of duplicates among the packets that match the filter.
    pub duplicates: Option<QueueDuplicates>,
    /// The interface's program.
    pub program: Option<ProgramSequence>,
    /// The key of the flow hash, equal on all queues.
    pub hash_key: u64,
    /// The CPUs on which the thread may run; empty for all.
    pub cpus: Vec<usize>,
    /// True to spin instead of sleeping while no packets arrive.
    pub spin: bool,
    /// The method of timestamping.
    pub timestamps: TimestampSetting,
    /// The format of the timestamps that a switch adds to the frames.
    pub switch_timestamps: SwitchTimestamps,
    /// The capture stops after this number of stored packets.
    pub packets: Option<u64>,
    /// The capture stops after this time.
    pub duration: Option<Duration>,
    /// Files that follow the current source in the same stream.
    pub more: VecDeque<PathBuf>,
    /// The options of the capture files, such as the replay speed.
    pub options: capture::file::Options,
}

/// The state of an engine thread, created before the thread runs.
pub struct Worker {
    /// The open source. `None` while the interface is missing, because an open source holds the interface, and no other
    /// source could be opened on it.
    source: Option<AnySource>,
    producer: Producer,
    settings: Settings,
    links: WorkerLinks,
    hasher: FlowHasher,
    clock: Clock,
    /// The timestamps of packets if the clock is read once for each batch.
    batch_clock: Option<BatchClock>,
    info: SourceInfo,
    counted: Counts,
    /// Counters of the packets that the kernel part of the interface's program decided, by outcome, and the number of
    /// packets that it left undecided. The counters are sums over all sources that this thread has had.
    kernel_outcomes: ProgramOutcomes,
    undecided: u64,
    /// Number of frames that this source has delivered. When the source is closed, this number is compared with the
    /// number that the source counted.
    frames: u64,
    /// Timestamp of the previous frame.
    last: Timestamp,
    /// The timestamps that a switch added to the frames, if they are to be read.
    switch_stamps: Option<SwitchStamps>,
    /// The number of packets by the method of their timestamp, over all sources that this thread has had.
    methods: [u64; TimestampMethod::COUNT],
    /// True if it was reported that the source had no timestamp for some packets.
    missing_stamps_reported: bool,
    steps: u64,
    report_due: Instant,
    /// True if the packet limit ended the capture. Then frames may remain in the source that are not counted in any
    /// counter.
    ended_by_packet_limit: bool,
    /// True if it was reported that the recorder ended early.
    recorder_notified: bool,
}

/// The batch clock of a source. `prepare` has refused a setting that the source does not support; a source that is
/// opened again has the same kind.
fn batch_clock(setting: TimestampSetting, info: &SourceInfo) -> Option<BatchClock> {
    let method = batch_method(setting, info).ok().flatten()?;
    Some(BatchClock::new(method, info.link_mbps))
}

impl Worker {
    /// Creates the state of an engine thread. The caller must have calibrated `clock`.
    pub fn new(source: AnySource, producer: Producer, clock: Clock, settings: Settings, links: WorkerLinks) -> Self {
        let hasher = FlowHasher::new(settings.hash_key);
        let info = source.info().clone();
        let batch_clock = batch_clock(settings.timestamps, &info);
        let switch_stamps = SwitchStamps::new(settings.switch_timestamps);
        Self {
            source: Some(source),
            producer,
            settings,
            links,
            hasher,
            clock,
            batch_clock,
            info,
            counted: Counts::default(),
            kernel_outcomes: ProgramOutcomes::default(),
            undecided: 0,
            frames: 0,
            last: Timestamp::ZERO,
            switch_stamps,
            methods: [0; TimestampMethod::COUNT],
            missing_stamps_reported: false,
            steps: 0,
            report_due: Instant::now(),
            ended_by_packet_limit: false,
            recorder_notified: false,
        }
    }

    /// Runs until a stop request, a limit or the end of the source. Then reads the remaining packets of the source and
    /// ends the stream.
    ///
    /// # Errors
    /// The error of the source. All packets that the source delivered before are published.
    pub fn run(mut self) -> Result<(), SourceError> {
        if !self.settings.cpus.is_empty()
            && let Err(e) = sys::cpu::pin_to(&self.settings.cpus)
        {
            self.warn(format!("cannot run on CPUs {:?}: {e}; the thread runs on any CPU", self.settings.cpus));
        }
        // The engine thread gets a higher priority, because packets that wait too long are lost, while other work is
        // only delayed. Without the privilege to raise it (CAP_SYS_NICE), the thread keeps the normal priority.
        let _ = sys::cpu::set_nice(ENGINE_NICE);
        sys::cpu::sleep_exactly();
        self.warn_of_timestamps();
        self.read_clock_state();
        let started = Instant::now();
        let mut outcome = Ok(());
        let mut draining = false;
        loop {
            if self.has_reached_packet_limit() {
                // After the packet limit was reached, the frames that remain in the source are not read.
                self.ended_by_packet_limit = true;
                break;
            }
            if !draining && self.links.time_is_up(self.settings.duration, started) {
                if let Some(source) = &mut self.source {
                    source.stop();
                }
                self.links.close(&mut self.producer);
                draining = true;
            }
            match self.process_batch(started) {
                Ok(Polled::Frames(_) | Polled::Idle) => {}
                Ok(Polled::End) if draining => break,
                Ok(Polled::End) => match self.next_file() {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(e) => {
                        outcome = Err(e);
                        break;
                    }
                },
                // After a truncated file, the packets of the next files are captured as well.
                Err(e @ SourceError::Corrupt { .. }) if !draining && !self.settings.more.is_empty() => {
                    match outcome {
                        Ok(()) => outcome = Err(e),
                        Err(_) => self.warn(e.to_string() + &repair_advice(&e)),
                    }
                    if let Err(e) = self.next_file() {
                        outcome = Err(e);
                        break;
                    }
                }
                Err(SourceError::Gone { name }) if !draining => {
                    self.warn(format!("{name} was removed; the capture waits until it exists again"));
                    if !self.wait_for_return(started) {
                        let fault = format!("{name} did not exist when the capture ended");
                        self.status().faults.push(fault);
                        break;
                    }
                }
                Err(e) => {
                    outcome = Err(e);
                    break;
                }
            }
        }
        self.finish();
        outcome
    }

    fn has_reached_packet_limit(&self) -> bool {
        self.settings.packets.is_some_and(|n| self.producer.tally().stored >= n)
    }

    /// Processes one batch.
    fn process_batch(&mut self, started: Instant) -> Result<Polled, SourceError> {
        self.producer.service();
        self.keep_time();
        let Some(source) = &mut self.source else { return Ok(Polled::End) };
        let budget = match self.settings.packets {
            Some(n) => BATCH.min((n.saturating_sub(self.producer.tally().stored)) as usize).max(1),
            None => BATCH,
        };
        let duration = self.settings.duration;
        let wait = if self.settings.spin { Duration::ZERO } else { WAIT };
        if let Some(duplicates) = &mut self.settings.duplicates {
            duplicates.begin_poll();
        }
        let mut stage = Stage {
            producer: &mut self.producer,
            program: self.settings.program.as_mut(),
            filter: self.settings.filter.as_ref(),
            duplicates: self.settings.duplicates.as_mut(),
            hasher: &self.hasher,
            clock: &self.clock,
            snaplen: self.settings.snaplen,
            link_type: self.info.link_type,
            annotations: Annotations::new(self.info.timestamp_source.method(), None),
            switch_stamps: self.switch_stamps.as_mut(),
            methods: &mut self.methods,
            batch_clock: self.batch_clock.as_mut(),
            live: self.info.timestamp_source.is_live(),
            last: self.last,
            taken: 0,
            time_is_up: &|| self.links.time_is_up(duration, started),
            links: &self.links,
        };
        let polled = source.poll_into(budget, wait, &mut stage);
        (self.last, self.frames) = (stage.last, self.frames + stage.taken);
        if let Some(program) = &mut self.settings.program {
            program.send();
        }
        let polled = polled?;
        let lag = self.switch_stamps.as_ref().map(SwitchStamps::lag);
        match (self.info.timestamp_source, polled) {
            (TimestampSource::Engine, _) if lag.is_none() => match &mut self.batch_clock {
                None => self.producer.tick(self.clock.now()),
                // The next packets can have earlier timestamps than the present time.
                Some(batch) => {
                    batch.end_poll();
                    let estimate = batch.take_estimate();
                    self.producer.timestamp_variance(estimate.packets(), estimate.variance_sum());
                    if let Some(earliest) = batch.earliest_next() {
                        self.producer.tick(earliest);
                    }
                }
            },
            // A frame with a timestamp of the kernel or NIC arrives up to `ARRIVAL_DELAY_MAX` after its timestamp.
            // While frames arrive, their timestamps advance the packet time. While no frame arrives, the packet time is
            // the present time less this delay, so that no frame arrives for a second (or file) that is already closed.
            // The clock of a switch may be behind.
            (TimestampSource::Engine | TimestampSource::Kernel | TimestampSource::Hardware, Polled::Idle) => {
                self.producer.tick(self.clock.now().before(ARRIVAL_DELAY_MAX + lag.unwrap_or_default()));
            }
            _ => {}
        }
        self.producer.publish();
        self.count();
        if self.report_due <= Instant::now() {
            self.report_due = Instant::now() + REPORT;
            self.collect()?;
            self.publish_status();
        }
        if let Polled::Frames(n) = polled
            && SMALL.contains(&n)
            && (self.info.timestamp_source == TimestampSource::Engine
                || matches!(self.source, Some(AnySource::AfXdp(_))))
            && !self.settings.spin
        {
            std::thread::sleep(IDLE_AFTER);
        }
        Ok(polled)
    }

    /// Stores the number of offered packets in memory that remains after a kill of this process.
    fn count(&self) {
        if let Some(recorder) = &self.links.recorder {
            recorder.offered(self.producer.tally().offered, self.last.secs());
        }
    }

    /// Adds the source's losses since the last call to the ledger.
    fn collect(&mut self) -> Result<(), SourceError> {
        let Some(source) = &mut self.source else { return Ok(()) };
        let counts = source.counts()?;
        for cause in Cause::ALL {
            let i = cause as usize;
            self.producer.lost(cause, counts.lost[i].saturating_sub(self.counted.lost[i]));
        }
        for note in Note::ALL {
            let i = note as usize;
            let more = counts.notes[i].saturating_sub(self.counted.notes[i]);
            if more > 0 {
                self.producer.note(note, more);
            }
        }
        self.account(&counts);
        self.counted = counts;
        self.producer.publish();
        if !self.recorder_notified && self.links.recorder.as_ref().is_some_and(RecorderLink::has_ended) {
            self.recorder_notified = true;
            self.status().faults.push(
                "the recorder ended early; further packets could not be written to the volume, so the capture ends too"
                    .into(),
            );
            self.links.stop.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Adds the packets that the kernel part of the interface's program decided since the last call to the ledger. They
    /// count as offered and filtered in the current second.
    fn account(&mut self, counts: &Counts) {
        let (now, before) = (counts.program_outcomes, self.counted.program_outcomes);
        let more = ProgramOutcomes {
            dropped: now.dropped.saturating_sub(before.dropped),
            forwarded: now.forwarded.saturating_sub(before.forwarded),
            to_host: now.to_host.saturating_sub(before.to_host),
            unsent: now.unsent.saturating_sub(before.unsent),
        };
        self.undecided += counts.undecided.saturating_sub(self.counted.undecided);
        if more.total() == 0 {
            return;
        }
        self.kernel_outcomes.dropped += more.dropped;
        self.kernel_outcomes.forwarded += more.forwarded;
        self.kernel_outcomes.to_host += more.to_host;
        self.kernel_outcomes.unsent += more.unsent;
        // These filtered packets get a time that is not earlier than that of the last packet of the stream, because
        // time in the stream does not decrease.
        self.producer.filtered(self.clock.now().max(self.last), more.total());
    }

    /// Renews the clock fit when it is due. After a step of the system clock, timestamps follow the new time
    /// immediately, even if it is earlier. If timestamps could not decrease, all timestamps after a step back would be
    /// equal until the old time is reached again.
    fn keep_time(&mut self) {
        if self.clock.keep() {
            self.read_clock_state();
        }
        let steps = self.clock.steps();
        if steps > self.steps && self.info.timestamp_source.is_live() {
            self.producer.note(Note::ClockStep, steps - self.steps);
            let nanos = self.clock.last_step_nanos();
            if steps <= STEP_WARNINGS_MAX {
                self.status().clock_steps.push(clock_step(steps, nanos));
            }
            self.last = Timestamp::ZERO;
            if let Some(batch) = &mut self.batch_clock {
                batch.restart();
            }
            self.producer.clock_was_set(nanos, self.clock.now());
        }
        self.steps = steps;
    }

    /// Reads the state of the system clock for the stream, if the timestamps are those of the system clock.
    fn read_clock_state(&mut self) {
        if self.info.timestamp_source.is_live()
            && let Ok(status) = sys::timex::clock_status()
        {
            self.producer.clock_state(ClockState {
                synchronised: status.synchronised,
                maximum_error_micros: u32::try_from(status.maximum_error.as_micros()).unwrap_or(u32::MAX),
                // The kernel permits corrections of at most 500 ppm.
                frequency_ppb: status.frequency_ppb as i32,
            });
        }
    }

    /// Waits for a missing interface, until its source is open again or the capture stops. Returns true if the source
    /// is open. Ticks continue, so that seconds without packets are recorded.
    fn wait_for_return(&mut self, started: Instant) -> bool {
        self.close_source();
        let _ = self.links.gone.send(self.info.queue);
        while !self.links.time_is_up(self.settings.duration, started) {
            self.producer.service();
            self.keep_time();
            self.producer.tick(self.clock.now());
            self.producer.publish();
            self.publish_status();
            let again = self.links.reopened_source.recv_timeout(REPORT);
            if matches!(again, Err(RecvTimeoutError::Disconnected)) {
                self.warn(format!("queue {} of {} does not exist any more", self.info.queue, self.info.name));
                return false;
            }
            if let Ok(source) = again {
                self.info = source.info().clone();
                self.batch_clock = batch_clock(self.settings.timestamps, &self.info);
                self.source = Some(source);
                self.counted = Counts::default();
                self.frames = 0;
                self.warn(format!("{} exists again: {}", self.info.name, self.info.description));
                self.warn_of_timestamps();
                return true;
            }
        }
        false
    }

    /// Opens the next file after a file has ended. Returns false if there is no further file.
    fn next_file(&mut self) -> Result<bool, SourceError> {
        let Some(path) = self.settings.more.pop_front() else { return Ok(false) };
        self.close_source();
        let next = AnySource::File(capture::file::File::open(&path, self.settings.options.clone())?);
        if next.info().link_type != self.info.link_type {
            let (is, was) = (next.info().link_type, self.info.link_type);
            // A stream has one link type, like a pcap file.
            return Err(SourceError::Unsupported {
                name: path.display().to_string(),
                reason: format!(
                    "link type {is}, but the earlier files have link type {was}; replay this file separately"
                ),
            });
        }
        self.info = next.info().clone();
        self.source = Some(next);
        self.counted = Counts::default();
        self.frames = 0;
        Ok(true)
    }

    /// Closes the source. Reads its last counters and warnings, and compares the number of packets that the source
    /// counted with the number of packets that this thread received. The equation of the ledger cannot detect a
    /// difference between these two numbers.
    fn close_source(&mut self) {
        if let Err(e) = self.collect() {
            self.warn(e.to_string());
        }
        let Some(source) = self.source.take() else { return };
        source.warnings().into_iter().for_each(|r| self.warn(r));
        if let Some(wrong) = self.settings.program.as_ref().map(ProgramSequence::wrong_generation).filter(|n| *n > 0) {
            let text = format!(
                "{wrong} packets were processed by the kernel part of neither the running program nor the next; please \
                 report this"
            );
            self.status().faults.push(text);
        }
        if let Some(seen) = self.counted.seen.filter(|_| !self.ended_by_packet_limit) {
            let lost: u64 = self.counted.lost.iter().sum::<u64>() - self.counted.lost[Cause::Nic as usize];
            let counted = self.frames + lost + self.counted.program_outcomes.total();
            if seen != counted {
                let text = format!(
                    "the source received {seen} packets, but {counted} are counted as captured, lost or filtered; \
                     please report this"
                );
                self.status().faults.push(text);
            }
        }
    }

    fn finish(&mut self) {
        self.close_source();
        self.count();
        self.links.close(&mut self.producer);
        // The end of the stream needs space in the ring. If a lossless reader still occupies the whole ring, the loop
        // waits until the reader releases space or the reader timeout is over. The reader timeout is measured with the
        // system clock, even if the packets have other timestamps.
        loop {
            let has_room = self.producer.has_room(0, self.end_of_time(), self.clock.now());
            if (has_room || self.info.timestamp_source.is_live()) && self.producer.finish(self.end_of_time()) {
                break;
            }
            self.producer.service();
            self.publish_status();
            std::thread::sleep(PAUSE);
        }
        self.publish_status();
        self.links.ledger.lock().unwrap_or_else(PoisonError::into_inner).merge(&self.producer.take_ledger());
    }

    fn end_of_time(&self) -> Timestamp {
        // The clock of a switch may be ahead.
        if self.info.timestamp_source.is_live() { self.clock.now().max(self.last) } else { self.last }
    }

    fn warn(&self, text: String) {
        self.status().warnings.push(text);
    }

    fn status(&self) -> std::sync::MutexGuard<'_, WorkerStatus> {
        self.links.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports conditions of the source's timestamps that were found when it was opened.
    fn warn_of_timestamps(&self) {
        timestamp_warnings::on_opening(&self.info, self.settings.timestamps)
            .into_iter()
            .for_each(|text| self.warn(text));
    }

    /// Reports once that packets of this source had no timestamp of the kernel or the NIC. The number of such packets
    /// is in the report.
    fn report_missing_stamps(&mut self) {
        let engine_made = self.methods[TimestampMethod::Poll as usize];
        if engine_made > 0 && !self.missing_stamps_reported {
            self.missing_stamps_reported = true;
            self.warn(timestamp_warnings::missing(&self.info, engine_made));
        }
    }

    fn publish_status(&mut self) {
        if matches!(self.info.timestamp_source, TimestampSource::Kernel | TimestampSource::Hardware) {
            self.report_missing_stamps();
        }
        // If another thread has locked the ledger to copy it, this call adds nothing, and the next call adds the new
        // seconds. Packets must not wait for the lock.
        if let Ok(mut ledger) = self.links.ledger.try_lock() {
            ledger.merge(&self.producer.take_ledger());
        }
        let mut s = self.links.status.lock().unwrap_or_else(PoisonError::into_inner);
        s.tally = self.producer.tally();
        s.fill = self.producer.fill();
        s.clock_error = self.clock.error();
        s.timestamp_method = match &mut self.batch_clock {
            None => self.info.timestamp_source.method().name(),
            Some(batch) => {
                s.timestamp_deviation = batch.take_deviation().unwrap_or(s.timestamp_deviation);
                batch.method().name()
            }
        };
        s.timestamp_methods = self.methods;
        s.nic_clock = self.counted.nic_clock;
        s.cpu = sys::cpu::thread_time();
        s.frames = self.frames;
        (s.program.kernel, s.program.undecided) = (self.kernel_outcomes, self.undecided);
        s.duplicates = self.settings.duplicates.as_ref().map(QueueDuplicates::report);
        if let Some(program) = &self.settings.program {
            program.report(&mut s.program);
        }
    }
}
