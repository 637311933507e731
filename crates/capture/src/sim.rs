//! Simulated traffic: frames made by the crate `gen`, at a given rate or as fast as the caller polls.
//!
//! Opening the source selects one of three methods. If all flows fit a table that stays in the CPU caches, the frames
//! are made once and delivered in turn, so that a benchmark measures the pipeline and not the generator. With truth
//! data, each of these frames gets a new sequence number and departure time before it is delivered. If the flows do not
//! fit such a table, or if flows begin and end during the simulation, each frame is made when it is due.
//!
//! With the virtual clock, every frame carries its time in the schedule and no call waits, so that two runs give
//! identical bytes. With the live clock, the engine makes the timestamps, and `departure` in frames with truth data is
//! the system time at the beginning of the poll that delivers them.

use crate::{
    AHEAD_MAX, Counts, FoundFrames, Frame, FrameSink, Polled, Source, SourceError, SourceInfo, TimestampSource,
};
use base::Timestamp;
use base::units::Rate;
use r#gen::{Order, Pacer, Prepared, Traffic};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub use r#gen::{Spec, SpecError};

/// Target size of the prepared frames: half of a second-level cache of 1 MiB; the ring uses the other half.
const TABLE_BYTES: usize = 512 << 10;

/// Maximum size of the prepared frames if one frame for each flow takes more than `TABLE_BYTES`; this size fits a
/// third-level cache.
const TABLE_LIMIT: usize = 4 << 20;

/// Prepared frames begin at multiples of a cache line.
const LINE: usize = 64;

/// Simulated traffic.
pub struct Sim {
    info: SourceInfo,
    traffic: Traffic,
    frames: Frames,
    clock: Clock,
    pacer: Pacer,
    /// Length of the longest frame. The pacer assumes this length for every due frame, so that a rate in bits is never
    /// exceeded.
    max_len: usize,
    handed: u64,
    packets: u64,
    /// The end of the schedule. Only frames scheduled before it are delivered.
    end: Timestamp,
    flat: bool,
    truth: bool,
    stopped: bool,
    /// The lengths of the frames of the next batch.
    lengths: Vec<u32>,
}

enum Frames {
    Table { bytes: Vec<u8>, index: Vec<(usize, Prepared)>, next: usize },
    Made { bytes: Vec<u8> },
}

enum Clock {
    /// The schedule is the clock.
    Virtual,
    /// The time since the first poll, by the monotonic clock. The schedule begins at [`Timestamp::ZERO`], so that steps
    /// of the system clock do not affect it.
    Live(Option<Instant>),
}

impl Sim {
    /// Opens a source of the simulated traffic that `spec` describes: on virtual time beginning at `start`, or live if
    /// `start` is `None`.
    ///
    /// # Errors
    /// [`SourceError::Unsupported`] for virtual time without a rate, because then there is no schedule.
    pub fn open(spec: &Spec, start: Option<Timestamp>) -> Result<Self, SourceError> {
        let name = format!("sim:{spec}");
        if start.is_some() && spec.rate == Rate::Flat {
            let reason = "virtual time needs a rate; add a rate, e.g. rate=1Mpps".to_owned();
            return Err(SourceError::Unsupported { name, reason });
        }
        let mut traffic = Traffic::new(spec);
        let frames = Frames::new(spec, &mut traffic);
        let kind = match &frames {
            Frames::Table { index, .. } => format!("{} prepared frames", index.len()),
            Frames::Made { .. } => "each frame is made when it is due".to_owned(),
        };
        let time = if start.is_some() { "virtual time" } else { "live" };
        Ok(Self {
            info: SourceInfo {
                description: format!("simulation {spec}: {kind}, {time}"),
                name,
                queue: 0,
                link_type: 1,
                timestamp_source: if start.is_some() { TimestampSource::Simulated } else { TimestampSource::Engine },
                timestamp_fallback: None,
                timestamp_warning: None,
                link_mbps: None,
                counted_from: "frames that the simulation delivered",
            },
            max_len: traffic.max_len(),
            traffic,
            frames,
            clock: if start.is_some() { Clock::Virtual } else { Clock::Live(None) },
            pacer: Pacer::new(spec.rate, start.unwrap_or(Timestamp::ZERO)),
            handed: 0,
            packets: if spec.duration == Some(Duration::ZERO) { 0 } else { spec.packets.unwrap_or(u64::MAX) },
            end: spec.duration.map_or(Timestamp::MAX, |d| start.unwrap_or(Timestamp::ZERO).after(d)),
            flat: spec.rate == Rate::Flat,
            truth: spec.signature,
            stopped: false,
            lengths: Vec::new(),
        })
    }

    /// Returns the number of frames that may be delivered now, at most `budget`; `None` if no frame will follow.
    fn due(&mut self, budget: usize) -> Option<u64> {
        let budget = (budget as u64).min(self.packets - self.handed);
        if self.stopped || self.handed == self.packets {
            return None;
        }
        let started = match &mut self.clock {
            Clock::Virtual => return (self.pacer.departure() < self.end).then_some(budget),
            // Simulation at full speed without an end needs no clock.
            Clock::Live(_) if self.flat && self.end == Timestamp::MAX => return Some(budget),
            Clock::Live(started) => started.get_or_insert_with(Instant::now),
        };
        let now = Timestamp::ZERO.after(started.elapsed());
        if self.flat {
            return (now < self.end).then_some(budget);
        }
        // Frames scheduled before the end are delivered even if the poll is late.
        let due = self.pacer.due(now.min(self.end.before(Duration::from_nanos(1))), self.max_len);
        if due == 0 && now >= self.end { None } else { Some(due.min(budget)) }
    }

    /// Sleeps until the next frame is due, at most for `wait`.
    fn sleep(&self, wait: Duration) {
        if let Clock::Live(Some(started)) = self.clock {
            let due = self.pacer.departure().since(Timestamp::ZERO);
            std::thread::sleep(due.saturating_sub(started.elapsed()).min(wait));
        }
    }

    /// Delivers `count` frames and returns their number. The sink sees each frame before the source delivers it.
    fn show_and_hand_out(&mut self, count: u64, sink: &mut impl FrameSink) -> u64 {
        let mut handed = 0;
        while handed < count {
            let batch = (count - handed).min(AHEAD_MAX as u64);
            let now = if self.truth { system_time() } else { Timestamp::ZERO };
            let before = self.frames.position();
            if !self.frames.show_and_take(&mut self.traffic, now, batch as usize, sink) {
                return handed + self.hand_out(count - handed, |frame: &Frame<'_>| sink.take(frame));
            }
            let sum = self.frames.lengths_from(before, batch as usize).sum();
            self.pacer.sent(batch, sum);
            handed += batch;
        }
        handed
    }

    /// Delivers up to `count` frames and returns their number.
    fn hand_out<F: FnMut(&Frame<'_>)>(&mut self, count: u64, mut take: F) -> u64 {
        let (frames, traffic, pacer) = (&mut self.frames, &mut self.traffic, &mut self.pacer);
        if matches!(self.clock, Clock::Virtual) {
            for handed in 0..count {
                let at = pacer.departure();
                if at >= self.end {
                    return handed;
                }
                frames.next(traffic, at, |bytes| {
                    take(&Frame { stamp: Some(at), ..Frame::new(bytes) });
                    pacer.sent(1, bytes.len() as u64);
                });
            }
            return count;
        }
        let now = if self.truth { system_time() } else { Timestamp::ZERO };
        let mut sum = 0;
        for _ in 0..count {
            frames.next(traffic, now, |bytes| {
                sum += bytes.len() as u64;
                take(&Frame::new(bytes));
            });
        }
        pacer.sent(count, sum);
        count
    }
}

impl Frames {
    fn new(spec: &Spec, traffic: &mut Traffic) -> Self {
        let stride = (traffic.mean_len() as usize).next_multiple_of(LINE);
        let flows = spec.flows as usize;
        if spec.order == Order::Heavy || flows * stride > TABLE_LIMIT {
            return Self::Made { bytes: vec![0; traffic.max_len()] };
        }
        // The number of frames in the table is a multiple of the number of flows, so that the flows keep their order
        // when the source starts again with the first frame of the table.
        let count = flows * (TABLE_BYTES / stride / flows).max(1);
        let mut bytes = Vec::with_capacity(count * stride);
        let mut index = Vec::with_capacity(count);
        for _ in 0..count {
            let at = bytes.len();
            bytes.resize(at + traffic.max_len(), 0);
            let prepared = traffic.prepare(&mut bytes[at..]);
            bytes.truncate(at + prepared.len().next_multiple_of(LINE));
            bytes.resize(at + prepared.len().next_multiple_of(LINE), 0);
            index.push((at, prepared));
        }
        Self::Table { bytes, index, next: 0 }
    }

    /// Appends the lengths of the next `count` frames; returns false if the frames do not exist yet.
    fn next_lengths(&self, count: usize, lengths: &mut Vec<u32>) -> bool {
        let Self::Table { next, .. } = self else { return false };
        lengths.extend(self.lengths_from(*next, count).map(|len| len as u32));
        true
    }

    /// The place of the next frame in the table; 0 without a table.
    fn position(&self) -> usize {
        if let Self::Table { next, .. } = self { *next } else { 0 }
    }

    /// The lengths of `count` frames of the table from this place on.
    fn lengths_from(&self, place: usize, count: usize) -> impl Iterator<Item = u64> {
        let index = if let Self::Table { index, .. } = self { &index[..] } else { &[] };
        index.iter().cycle().skip(place).take(count).map(|(_, prepared)| prepared.len() as u64)
    }

    /// Makes the next `count` frames with the departure time `now`, at most [`AHEAD_MAX`], and passes them to the sink,
    /// which sees each of them before the first. Returns false if the frames share memory, so that only one of them
    /// can exist.
    fn show_and_take(
        &mut self,
        traffic: &mut Traffic,
        now: Timestamp,
        count: usize,
        sink: &mut impl FrameSink,
    ) -> bool {
        let Self::Table { bytes, index, next } = self else { return false };
        if index.len() < count {
            return false;
        }
        let place = |i: usize| (*next + i) % index.len();
        for i in 0..count {
            let (at, prepared) = index[place(i)];
            let frame = &mut bytes[at..at + prepared.len()];
            traffic.stamp(frame, &prepared, now);
            sink.ahead(&Frame::new(frame));
        }
        for i in 0..count {
            let (at, prepared) = index[place(i)];
            sink.take(&Frame::new(&bytes[at..at + prepared.len()]));
        }
        *next = place(count);
        true
    }

    /// Makes the next frame with the departure time `now`.
    #[inline]
    fn next(&mut self, traffic: &mut Traffic, now: Timestamp, take: impl FnOnce(&[u8])) {
        match self {
            Self::Table { bytes, index, next } => {
                let (at, prepared) = index[*next];
                *next = if *next + 1 == index.len() { 0 } else { *next + 1 };
                let frame = &mut bytes[at..at + prepared.len()];
                traffic.stamp(frame, &prepared, now);
                take(frame);
            }
            Self::Made { bytes } => {
                let len = traffic.fill(bytes, now);
                take(&bytes[..len]);
            }
        }
    }
}

fn system_time() -> Timestamp {
    Timestamp::ZERO.after(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

impl Source for Sim {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn poll_into<S: FrameSink>(&mut self, budget: usize, wait: Duration, sink: &mut S) -> Result<Polled, SourceError> {
        sink.reads();
        let mut due = self.due(budget);
        if due == Some(0) && budget > 0 && !wait.is_zero() {
            self.sleep(wait);
            sink.reads();
            due = self.due(budget);
        }
        let Some(count) = due else { return Ok(Polled::End) };
        if count > 0 && sink.needs_batches() && matches!(self.clock, Clock::Live(_)) {
            self.lengths.clear();
            if self.frames.next_lengths(count as usize, &mut self.lengths) {
                // The simulation does not know how many more frames are due, so the batch counts as all of them.
                let (lengths, found) = (&self.lengths[..], self.lengths.len());
                sink.found(&FoundFrames { lengths, found, waited: false });
            }
        }
        let handed = match sink.needs_ahead() && matches!(self.clock, Clock::Live(_)) {
            true => self.show_and_hand_out(count, sink),
            false => self.hand_out(count, |frame: &Frame<'_>| sink.take(frame)),
        };
        self.handed += handed;
        Ok(if handed == 0 { Polled::Idle } else { Polled::Frames(handed as usize) })
    }

    fn counts(&mut self) -> Result<Counts, SourceError> {
        Ok(Counts { seen: Some(self.handed), ..Counts::default() })
    }

    fn stop(&mut self) {
        self.stopped = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_secs_nanos(1_700_000_000, 5);

    /// Polls to the end, checks that all frames are counted, and returns timestamps and bytes.
    fn drain(sim: &mut Sim, budget: usize) -> Vec<(Option<Timestamp>, Vec<u8>)> {
        let mut out = Vec::new();
        loop {
            let before = out.len();
            let polled = sim.poll(budget, Duration::from_millis(1), |f| out.push((f.stamp, f.bytes.to_vec()))).unwrap();
            match polled {
                Polled::Frames(n) => assert_eq!(n, out.len() - before),
                Polled::Idle => assert_eq!(before, out.len()),
                Polled::End => break,
            }
        }
        assert_eq!(sim.counts().unwrap(), Counts { seen: Some(out.len() as u64), ..Counts::default() });
        assert_eq!(sim.poll(budget, Duration::ZERO, |_| panic!("a frame arrived after the end")).unwrap(), Polled::End);
        out
    }

    fn open(spec: &str, start: Option<Timestamp>) -> Sim {
        Sim::open(&spec.parse().unwrap(), start).unwrap()
    }

    fn sequence(frame: &[u8]) -> u64 {
        frame[44..50].iter().fold(0, |n, b| n << 8 | u64::from(*b))
    }

    #[test]
    fn virtual_time_without_a_rate_is_refused_with_advice() {
        let error = Sim::open(&"60".parse().unwrap(), Some(START)).err().unwrap().to_string();
        assert!(error.starts_with("sim:60:") && error.contains("rate=1Mpps"), "{error}");
    }

    #[test]
    fn a_limit_or_budget_of_zero_delivers_no_frame() {
        for spec in ["60,packets=0", "60,duration=0s", "60,rate=1pps,duration=0s"] {
            assert!(drain(&mut open(spec, None), 64).is_empty(), "{spec}");
        }
        assert!(drain(&mut open("60,rate=1pps,duration=0s", Some(START)), 64).is_empty());
        let mut idle = open("60", None);
        assert_eq!(idle.poll(0, Duration::ZERO, |_| panic!("a frame exceeds the budget")).unwrap(), Polled::Idle);
    }

    /// A sink that needs the frames ahead, and checks that it gets the shown frames in the same order.
    #[derive(Default)]
    struct Shown {
        ahead: std::collections::VecDeque<(*const u8, Vec<u8>)>,
        shown: usize,
        taken: Vec<Vec<u8>>,
    }

    impl FrameSink for Shown {
        fn needs_ahead(&self) -> bool {
            true
        }

        fn ahead(&mut self, frame: &Frame<'_>) {
            self.ahead.push_back((frame.bytes.as_ptr(), frame.bytes.to_vec()));
            assert!(self.ahead.len() <= AHEAD_MAX);
            self.shown += 1;
        }

        fn take(&mut self, frame: &Frame<'_>) {
            if let Some(shown) = self.ahead.pop_front() {
                assert!(shown == (frame.bytes.as_ptr(), frame.bytes.to_vec()), "the frame was moved or changed");
            }
            self.taken.push(frame.bytes.to_vec());
        }
    }

    #[test]
    fn frames_that_are_shown_ahead_are_the_frames_of_an_ordinary_poll() {
        for (spec, is_shown) in [("60,flows=64,packets=1000", true), ("imix,flows=3,packets=777", true)] {
            let mut sim = open(spec, None);
            let mut sink = Shown::default();
            while sim.poll_into(100, Duration::from_millis(1), &mut sink).unwrap() != Polled::End {}
            let expected: Vec<_> = drain(&mut open(spec, None), 64).into_iter().map(|(_, bytes)| bytes).collect();
            let sequences = |frames: &[Vec<u8>]| frames.iter().map(|frame| sequence(frame)).collect::<Vec<_>>();
            assert!(sequences(&sink.taken) == sequences(&expected), "{spec}");
            assert_eq!(sink.shown > 900 || sink.shown == 777, is_shown, "{spec}: {}", sink.shown);
            assert_eq!(sim.counts().unwrap().seen, Some(expected.len() as u64));
        }
    }

    #[test]
    fn no_frame_follows_a_stop() {
        let mut sim = open("60", None);
        assert_eq!(sim.poll(7, Duration::ZERO, |_| ()).unwrap(), Polled::Frames(7));
        sim.stop();
        assert_eq!(sim.poll(7, Duration::ZERO, |_| panic!("a frame after the stop")).unwrap(), Polled::End);
        assert_eq!(sim.counts().unwrap().seen, Some(7));
    }

    #[test]
    fn both_clocks_deliver_exactly_the_scheduled_number_of_frames() {
        for (spec, frames) in [
            ("60,rate=100kpps,duration=20ms", 2000),
            ("60,rate=100kpps,packets=77", 77),
            ("60,rate=0.5pps,duration=1ms", 1),
            ("1000,rate=80Mbit,duration=10ms", 100),
            ("imix,rate=1Mpps,packets=1000,duration=10s", 1000),
        ] {
            assert_eq!(drain(&mut open(spec, None), 64).len(), frames, "{spec} live");
            assert_eq!(drain(&mut open(spec, Some(START)), 64).len(), frames, "{spec} virtual");
        }
    }

    #[test]
    fn a_live_rate_is_never_exceeded() {
        let mut sim = open("imix,rate=20Mbit,duration=50ms", None);
        let started = Instant::now();
        let (mut bits, mut last) = (0, 0);
        while !matches!(
            sim.poll(64, Duration::ZERO, |f| {
                last = f.bytes.len() as u64 * 8;
                bits += last;
            })
            .unwrap(),
            Polled::End
        ) {
            // At the time of the check, the last frame may just have begun, so its bits do not count.
            assert!((bits - last) as f64 <= started.elapsed().as_secs_f64() * 20e6 + 1.0);
        }
    }

    #[test]
    fn runs_on_virtual_time_are_equal_for_any_budget() {
        for spec in [
            "60,rate=3Mpps,packets=5000",
            "imix,truth,rate=1Gbit,duration=5ms",
            "backbone,truth,rate=1Mpps,packets=3000",
        ] {
            let (a, b) = (drain(&mut open(spec, Some(START)), 64), drain(&mut open(spec, Some(START)), 7));
            assert!(a == b, "{spec}");
            assert_eq!(a[0].0, Some(START));
            assert!(a.windows(2).all(|w| w[0].0 <= w[1].0), "{spec}");
            assert_eq!(open(spec, Some(START)).info().timestamp_source, TimestampSource::Simulated);
        }
    }

    #[test]
    fn prepared_frames_equal_the_frames_of_the_generator() {
        // The table contains 8192 frames, so 20 000 frames use the table more than twice. `Traffic` generates the flows
        // in the same order.
        let spec: Spec = "60,flows=1000,packets=20k".parse().unwrap();
        let mut traffic = Traffic::new(&spec);
        let mut buf = [0; 60];
        for (i, (stamp, bytes)) in drain(&mut Sim::open(&spec, None).unwrap(), 64).into_iter().enumerate() {
            traffic.fill(&mut buf, Timestamp::ZERO);
            assert!(bytes == buf && stamp.is_none(), "frame {i}");
        }
    }

    #[test]
    fn sequence_numbers_are_consecutive_for_prepared_and_made_frames() {
        for spec in
            ["1514,flows=5,truth,packets=3000", "256,flows=1M,truth,packets=3000", "backbone,truth,packets=3000"]
        {
            for (i, (_, bytes)) in drain(&mut open(spec, None), 100).into_iter().enumerate() {
                let (body, crc) = bytes.split_last_chunk().unwrap();
                assert_eq!(sequence(&bytes), i as u64, "{spec}");
                assert_eq!(*crc, r#gen::crc32c(body).to_be_bytes(), "{spec}, frame {i}");
            }
        }
    }
}
