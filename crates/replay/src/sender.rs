//! The sending loop: takes frames from the blocks of the reading thread, waits until each frame is due, and passes it
//! to its interface.
//!
//! All times of the loop are the time since the begin of the replay, without pauses. Due times are computed from the
//! begin, so a late frame does not delay later frames: overdue frames are sent at once until the replay is on time
//! again. The loop sleeps until shortly before a frame is due, and then reads the clock without sleeping, because a
//! sleep ends late by the time that the processor needs to wake up.

use crate::control::Control;
use crate::output::{Output, OutputError};
use crate::pace::{Pace, Schedule};
use crate::prepare::Block;
use crate::read_ahead::ReadAhead;
use crate::report::{InterfaceReport, Report};
use crate::stream::StreamError;
use base::Distribution;
use base::units::Rate;
use std::fmt;
use std::time::Duration;

/// Number of frames that are passed to an interface at once.
const BATCH: usize = 64;

/// The longest sleep, in nanoseconds. It limits the time until the loop reacts to a request to stop.
const SLEEP_MAX: u64 = 1_000_000;

/// The loop does not sleep if the next frame is due in less than this time, in nanoseconds. A longer loop without sleep
/// would use up the time slice of the thread, so that the kernel of a busy machine would interrupt the thread more
/// often.
const SPIN: u64 = 60_000;

/// Time between two calls of the progress function, in nanoseconds.
const PROGRESS: u64 = 1_000_000_000;

/// A clock that the sending loop reads. The tests have a simulated clock.
pub trait Clock {
    /// Nanoseconds since an arbitrary begin; never decreases.
    fn now(&mut self) -> u64;

    /// Sleeps for about this number of nanoseconds.
    fn sleep(&mut self, nanos: u64);
}

/// The monotonic clock of the system.
#[derive(Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[inline]
    fn now(&mut self) -> u64 {
        sys::clock::monotonic().as_nanos() as u64
    }

    fn sleep(&mut self, nanos: u64) {
        std::thread::sleep(Duration::from_nanos(nanos));
    }
}

/// The reason why a replay ended early.
#[derive(Debug)]
pub enum ReplayError {
    /// The capture cannot be read.
    Input(StreamError),
    /// An interface cannot send.
    Output(OutputError),
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(e) => e.fmt(f),
            Self::Output(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for ReplayError {}

/// The interfaces of a replay, with their names and methods for the report.
pub struct Outputs<'o, O> {
    /// One or two interfaces.
    pub outputs: &'o mut [O],
    /// For each interface, its name and the method of sending.
    pub names: Vec<(String, String)>,
}

/// Sends all frames until the end of the capture, or until the control stops the replay. `progress` is called about
/// once a second. Returns the report, also of a replay that an error ended.
pub fn replay<O: Output, C: Clock>(
    input: ReadAhead,
    outputs: Outputs<'_, O>,
    max_gap: Option<Duration>,
    control: &Control,
    clock: C,
    progress: impl FnMut(&Report),
) -> (Report, Result<(), ReplayError>) {
    let Outputs { outputs, names } = outputs;
    let interface = |(name, method)| InterfaceReport { name, method, ..InterfaceReport::default() };
    let report = Report { interfaces: names.into_iter().map(interface).collect(), ..Report::default() };
    input.fill(control.stop());
    let pace = control.settings().pace;
    let mut sender = Sender {
        input,
        outputs,
        control,
        generation: u64::MAX,
        schedule: Schedule::new(pace, max_gap),
        pace,
        gap_errors: Distribution::new(),
        report,
        axis: TimeAxis::new(clock, control),
        first: None,
        latest: None,
        has_been_flat: pace == Pace::FLAT,
        unpassed: 0,
        progress,
    };
    let outcome = sender.run();
    sender.finish(outcome)
}

/// The time since the begin of the replay, without pauses. It never decreases.
struct TimeAxis<'c, C> {
    /// The clock's time at which the replay began, plus all pauses.
    origin: u64,
    /// The clock's time at the latest reading.
    latest: u64,
    /// Length in nanoseconds of the sleep that the loop requested since the latest reading.
    slept: u64,
    /// Sum of all pauses in nanoseconds.
    paused: u64,
    control: &'c Control,
    clock: C,
}

impl<'c, C: Clock> TimeAxis<'c, C> {
    fn new(mut clock: C, control: &'c Control) -> Self {
        let now = clock.now();
        Self { origin: now, latest: now, slept: 0, paused: 0, control, clock }
    }

    #[inline]
    fn now(&mut self) -> u64 {
        let before = self.latest.saturating_add(std::mem::take(&mut self.slept));
        self.latest = self.clock.now();
        if self.control.take_continued() {
            // The process was stopped between the two readings.
            self.exclude_since(before);
        }
        self.latest.saturating_sub(self.origin)
    }

    fn sleep(&mut self, nanos: u64) {
        self.slept = nanos;
        self.clock.sleep(nanos);
    }

    /// Waits until the replay is resumed or stopped. The time of the wait is a pause.
    fn pause(&mut self) {
        self.now();
        let begun = self.latest;
        while self.control.settings().is_paused && !self.control.is_stopped() {
            self.clock.sleep(SLEEP_MAX);
            self.control.obey_signals();
        }
        self.latest = self.clock.now();
        // A stop of the process during the pause is part of the pause.
        self.control.take_continued();
        self.exclude_since(begun);
    }

    /// Makes the time from `begun` to the latest reading a pause. `begun` is not before the reading before the latest
    /// reading, so the time does not decrease.
    fn exclude_since(&mut self, begun: u64) {
        let excluded = self.latest.saturating_sub(begun);
        self.origin += excluded;
        self.paused += excluded;
    }
}

/// A frame that was passed to its interface: its due time and the time at which it was passed.
#[derive(Clone, Copy)]
struct Departure {
    due: u64,
    at: u64,
}

struct Sender<'s, O, C, P> {
    input: ReadAhead,
    outputs: &'s mut [O],
    control: &'s Control,
    generation: u64,
    schedule: Schedule,
    pace: Pace,
    gap_errors: Distribution,
    report: Report,
    axis: TimeAxis<'s, C>,
    first: Option<Departure>,
    latest: Option<Departure>,
    /// True if the pace was `flat` at any time; then the schedule has no duration.
    has_been_flat: bool,
    /// Number of frames of the present block that have not been passed to an interface.
    unpassed: u64,
    progress: P,
}

impl<O: Output, C: Clock, P: FnMut(&Report)> Sender<'_, O, C, P> {
    fn run(&mut self) -> Result<(), ReplayError> {
        let mut next_progress = PROGRESS;
        while let Some(block) = self.input.next(self.control.stop()).map_err(ReplayError::Input)? {
            self.report.packets.add(&block.counts);
            self.report.frames += block.frames.len() as u64;
            self.unpassed = block.frames.len() as u64;
            self.send_block(&block, &mut next_progress).map_err(ReplayError::Output)?;
            if self.control.is_stopped() {
                return Ok(());
            }
            if block.ends_pass {
                self.schedule.end_pass();
                self.report.passes += 1;
            }
            self.input.recycle(block);
        }
        Ok(())
    }

    fn send_block(&mut self, block: &Block, next_progress: &mut u64) -> Result<(), OutputError> {
        let (mut index, mut due) = (0, None);
        while index < block.frames.len() {
            if self.control.is_stopped() {
                return Ok(());
            }
            let mut waiting = match due {
                Some(due) => due,
                None => self.schedule_frame(block, index),
            };
            if let Some(changed) = self.obey() {
                waiting = changed;
            }
            due = Some(waiting);
            if self.control.is_stopped() {
                return Ok(());
            }
            let now = self.axis.now();
            if now >= *next_progress {
                *next_progress = now + PROGRESS;
                self.show_progress(now);
            }
            if waiting > now {
                self.wait(waiting - now);
                continue;
            }
            (index, due) = self.send_batch(block, index, waiting, now)?;
        }
        Ok(())
    }

    fn schedule_frame(&mut self, block: &Block, index: usize) -> u64 {
        let frame = &block.frames[index];
        self.schedule.next(frame.ts, frame.len as usize, frame.is_copy)
    }

    /// Waits for a part of the time until the next frame, which is due in `ahead` nanoseconds.
    fn wait(&mut self, ahead: u64) {
        if ahead > SPIN {
            self.axis.sleep((ahead - SPIN).min(SLEEP_MAX));
        } else {
            std::hint::spin_loop();
        }
    }

    /// Sends the frame at `index`, which is due, and the frames after it that are due and have the same interface.
    /// Returns the index of the next frame, and its due time if it is known.
    fn send_batch(
        &mut self,
        block: &Block,
        mut index: usize,
        first_due: u64,
        now: u64,
    ) -> Result<(usize, Option<u64>), OutputError> {
        const EMPTY: &[u8] = &[];
        let (mut frames, mut dues) = ([EMPTY; BATCH], [0; BATCH]);
        let output = block.frames[index].output;
        let (mut count, mut bytes, mut next_due) = (0, 0, Some(first_due));
        while count < BATCH && index < block.frames.len() && block.frames[index].output == output {
            let due = match next_due.take() {
                Some(due) => due,
                None => self.schedule_frame(block, index),
            };
            if due > now {
                next_due = Some(due);
                break;
            }
            (frames[count], dues[count]) = (block.frame(index), due);
            bytes += frames[count].len() as u64;
            (count, index) = (count + 1, index + 1);
        }
        let at = self.axis.now();
        let mut passed = 0;
        while passed < count && !self.control.is_stopped() {
            passed += self.outputs[usize::from(output)].send(&frames[passed..count])?;
        }
        // If the replay was stopped in the middle of the batch, only the frames that were passed are counted.
        if passed < count {
            bytes = frames[..passed].iter().map(|frame| frame.len() as u64).sum();
        }
        self.unpassed -= passed as u64;
        self.report.bytes += bytes;
        self.report.interfaces[usize::from(output)].bytes += bytes;
        for due in &dues[..passed] {
            self.depart(Departure { due: *due, at });
        }
        let frames = self.report.frames - self.unpassed;
        self.control.publish(frames, self.report.bytes, self.report.passes + 1);
        Ok((index, next_due))
    }

    /// Registers a frame that was passed to its interface.
    #[inline]
    fn depart(&mut self, frame: Departure) {
        self.first.get_or_insert(frame);
        if self.pace != Pace::Rate(Rate::Flat) {
            if let Some(latest) = self.latest {
                let (gap, scheduled) = (frame.at - latest.at, frame.due.saturating_sub(latest.due));
                self.gap_errors.add(i64::try_from(gap.abs_diff(scheduled)).unwrap_or(i64::MAX));
            }
            self.report.late_max_nanos = self.report.late_max_nanos.max(frame.at.saturating_sub(frame.due));
        }
        self.latest = Some(frame);
    }

    /// Applies the commands that have arrived. Returns the new due time of the waiting frame if a command changed it.
    fn obey(&mut self) -> Option<u64> {
        self.control.obey_signals();
        let settings = self.control.changed(&mut self.generation)?;
        if settings.is_paused {
            self.axis.pause();
        }
        let settings = self.control.settings();
        if settings.pace == self.pace {
            return None;
        }
        let was_flat = std::mem::replace(&mut self.pace, settings.pace) == Pace::FLAT;
        let now = self.axis.now();
        self.has_been_flat |= self.pace == Pace::FLAT;
        if was_flat {
            // Frames of the pace `flat` have no due times, so the gap before the next frame is not compared with the
            // schedule.
            self.latest = None;
        }
        Some(self.schedule.set_pace(settings.pace, now))
    }

    fn show_progress(&mut self, now: u64) {
        (self.report.nanos, self.report.paused_nanos) = (now, self.axis.paused);
        self.report.sent = self.report.frames - self.unpassed;
        (self.progress)(&self.report);
    }

    fn finish(mut self, outcome: Result<(), ReplayError>) -> (Report, Result<(), ReplayError>) {
        let mut report = self.report;
        let mut outcome = outcome;
        (report.sent, report.dropped) = (0, 0);
        for (output, interface) in self.outputs.iter_mut().zip(&mut report.interfaces) {
            let (counts, finished) = output.finish();
            (interface.sent, interface.dropped) = (counts.sent, counts.dropped);
            report.sent += counts.sent;
            report.dropped += counts.dropped;
            outcome = outcome.and(finished.map_err(ReplayError::Output));
        }
        let ended = self.axis.now();
        report.paused_nanos = self.axis.paused;
        // Frames that the driver has not completed count as unsent.
        report.unsent = report.frames.saturating_sub(report.sent + report.dropped);
        (report.nanos, report.scheduled_nanos) = (0, 0);
        if let (Some(first), Some(last)) = (self.first, self.latest) {
            if self.has_been_flat {
                // Without a schedule, the transfer of the last frames is part of the duration.
                report.nanos = ended.saturating_sub(first.at);
            } else {
                report.nanos = last.at - first.at;
                report.scheduled_nanos = last.due.saturating_sub(first.due);
            }
        }
        report.gap_errors = (&self.gap_errors).into();
        report.speed = self.pace.to_string();
        report.stopped = self.control.is_stopped();
        report.out_of_order = self.schedule.out_of_order();
        report.steps_back = self.schedule.steps_back();
        report.shortened_gaps = self.schedule.shortened();
        report.input_waits = self.input.waits();
        if let Some(findings) = self.input.findings() {
            (report.unstamped, report.wire_raised) = (findings.unstamped, findings.wire_raised);
            report.damaged = findings.damaged.clone();
        }
        (report, outcome)
    }
}
