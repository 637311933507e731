//! The pace of a replay, and the schedule that gives each frame its due time. The functions read no clock: times are
//! nanoseconds since the begin of the replay, and the caller passes them in.
//!
//! Invariant: due times never decrease. With the original pace, the due time of a frame is the sum of the intervals of
//! the capture divided by the factor; this sum is computed in whole nanoseconds, so errors do not accumulate. An
//! interval is the time from the highest timestamp so far, so packets that are slightly out of order are due at once
//! and do not move the packets after them. After a step back of more than [`STEP_BACK_MAX`], intervals are counted from
//! the new timestamp. With a rate, the due times are those of [`gen::Pacer`].

use base::Timestamp;
use base::units::{self, ParseUnitError, Rate, show_si};
use r#gen::Pacer;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The pace of a replay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// The intervals of the capture, divided by this factor. The factor is greater than 0.
    Original(f64),
    /// Equal intervals (packets per second), intervals in proportion to the frame lengths (bits per second), or none.
    Rate(Rate),
}

impl Pace {
    /// The intervals of the capture, unchanged.
    pub const ORIGINAL: Self = Self::Original(1.0);
    /// As fast as the interface accepts frames.
    pub const FLAT: Self = Self::Rate(Rate::Flat);
}

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// A packet whose timestamp is earlier than the highest timestamp by at most this time is out of order. A larger step
/// back means that the clock of the capture was set, or that the capture consists of several recordings.
pub const STEP_BACK_MAX: Duration = Duration::from_secs(1);

/// The smallest and the largest factor of a pace.
const FACTORS: std::ops::RangeInclusive<f64> = 1e-6..=1e6;

/// The error for a text that is not a valid pace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsePaceError(String);

impl fmt::Display for ParsePaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not a speed: write original, 2x, 0.5x (from 0.000001x to 1000000x), 100kpps, 900Mbit (at least \
             0.001pps or 0.001bit) or flat",
            self.0
        )
    }
}

impl std::error::Error for ParsePaceError {}

/// Parses `original`, a factor (`2x`), or a rate (`100kpps`, `900Mbit`, `flat`).
impl FromStr for Pace {
    type Err = ParsePaceError;

    fn from_str(text: &str) -> Result<Self, ParsePaceError> {
        if text == "original" {
            return Ok(Self::ORIGINAL);
        }
        let refused = || ParsePaceError(text.to_owned());
        match text.strip_suffix('x') {
            Some(factor) => {
                let factor: f64 = factor.parse().map_err(|_| refused())?;
                if FACTORS.contains(&factor) { Ok(Self::Original(factor)) } else { Err(refused()) }
            }
            None => units::parse_rate(text).map(Self::Rate).map_err(|_: ParseUnitError| refused()),
        }
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Original(1.0) => f.write_str("original"),
            Self::Original(factor) => write!(f, "{factor}x"),
            Self::Rate(Rate::Flat) => f.write_str("flat"),
            Self::Rate(Rate::Packets(rate)) => f.write_str(&show_si(rate, "pps")),
            Self::Rate(Rate::Bits(rate)) => f.write_str(&show_si(rate, "bit/s")),
        }
    }
}

/// Gives each frame of a replay its due time.
#[derive(Clone, Debug)]
pub struct Schedule {
    timing: Timing,
    max_gap: Option<Duration>,
    /// True after the first packet of a pass over the capture.
    is_in_pass: bool,
    /// The highest timestamp since the begin of the pass or since the last step back; `None` before the first timestamp
    /// of the pass.
    highest: Option<Timestamp>,
    /// The interval of the capture before the latest frame, in nanoseconds.
    interval: u64,
    /// Due times of the latest frame and of the frame before it.
    due: u64,
    previous: u64,
    /// Length of the latest frame and of the frame before it, in bytes.
    bytes: u64,
    previous_bytes: u64,
    begun: bool,
    /// Sum of the intervals of the present pass, and the number of its packets. Copies of packets are not counted.
    pass_nanos: u64,
    pass_packets: u64,
    out_of_order: u64,
    steps_back: u64,
    shortened: u64,
}

#[derive(Clone, Debug)]
enum Timing {
    /// The due time is `base` plus `elapsed` (the sum of the intervals since `base`) divided by the factor.
    Original {
        factor: f64,
        base: u64,
        elapsed: u64,
    },
    Paced(Pacer),
    Flat(u64),
}

impl Timing {
    /// The timing of a pace whose first frame is due at `base`.
    fn new(pace: Pace, base: u64) -> Self {
        match pace {
            Pace::Original(factor) => Self::Original { factor, base, elapsed: 0 },
            Pace::Rate(Rate::Flat) => Self::Flat(base),
            Pace::Rate(rate) => Self::Paced(Pacer::new(rate, Timestamp::from_nanos(base))),
        }
    }
}

impl Schedule {
    /// A schedule whose first frame is due at 0. Intervals of the capture that are longer than `max_gap` are shortened
    /// to it.
    pub fn new(pace: Pace, max_gap: Option<Duration>) -> Self {
        Self {
            timing: Timing::new(pace, 0),
            max_gap,
            is_in_pass: false,
            highest: None,
            interval: 0,
            due: 0,
            previous: 0,
            bytes: 0,
            previous_bytes: 0,
            begun: false,
            pass_nanos: 0,
            pass_packets: 0,
            out_of_order: 0,
            steps_back: 0,
            shortened: 0,
        }
    }

    /// The due time of the next frame, which has this timestamp and this length in bytes. A frame without timestamp,
    /// and a copy of the frame before it (`is_copy`), have an interval of 0 in the original pace.
    pub fn next(&mut self, ts: Option<Timestamp>, bytes: usize, is_copy: bool) -> u64 {
        self.interval = if is_copy { 0 } else { self.interval_to(ts) };
        (self.previous, self.previous_bytes, self.bytes) = (self.due, self.bytes, bytes as u64);
        self.due = match &mut self.timing {
            Timing::Original { factor, base, elapsed } => {
                *elapsed = elapsed.saturating_add(self.interval);
                base.saturating_add(scaled(*elapsed, *factor))
            }
            Timing::Paced(pacer) => {
                let due = pacer.departure().nanos();
                pacer.sent(1, self.bytes);
                due
            }
            Timing::Flat(base) => *base,
        };
        self.begun = true;
        self.due
    }

    /// The interval of the capture before a packet with this timestamp, in nanoseconds.
    fn interval_to(&mut self, ts: Option<Timestamp>) -> u64 {
        let interval = if self.is_in_pass {
            let interval = ts.map_or(0, |ts| self.interval_in_pass(ts));
            self.pass_nanos = self.pass_nanos.saturating_add(interval);
            interval
        } else {
            // The interval between two passes is the mean interval of the pass before, so that a capture with equal
            // intervals is repeated without a jump.
            let mean = self.pass_nanos.checked_div(self.pass_packets.saturating_sub(1)).unwrap_or(0);
            (self.is_in_pass, self.highest, self.pass_nanos, self.pass_packets) = (true, ts, 0, 0);
            mean
        };
        self.pass_packets += 1;
        let most = self.max_gap.map_or(u64::MAX, |gap| u64::try_from(gap.as_nanos()).unwrap_or(u64::MAX));
        self.shortened += u64::from(interval > most);
        interval.min(most)
    }

    fn interval_in_pass(&mut self, ts: Timestamp) -> u64 {
        let Some(highest) = self.highest else {
            self.highest = Some(ts);
            return 0;
        };
        if ts >= highest {
            self.highest = Some(ts);
            return ts.nanos() - highest.nanos();
        }
        if highest.since(ts) <= STEP_BACK_MAX {
            self.out_of_order += 1;
        } else {
            self.steps_back += 1;
            self.highest = Some(ts);
        }
        0
    }

    /// Ends a pass over the capture; the next frame is the first frame of the next pass.
    pub fn end_pass(&mut self) {
        self.is_in_pass = false;
    }

    /// Changes the pace at the time `now`. The latest frame has not been sent yet; its new due time is returned. The
    /// new pace determines the interval before this frame, but the frame is not due before `now`.
    pub fn set_pace(&mut self, pace: Pace, now: u64) -> u64 {
        let interval = match pace {
            Pace::Original(factor) => scaled(self.interval, factor),
            Pace::Rate(Rate::Flat) => 0,
            Pace::Rate(Rate::Packets(rate)) => scaled(NANOS_PER_SEC, rate),
            Pace::Rate(Rate::Bits(rate)) => scaled(self.previous_bytes.saturating_mul(8 * NANOS_PER_SEC), rate),
        };
        self.due = if self.begun { self.previous.saturating_add(interval).max(now) } else { now };
        self.timing = Timing::new(pace, self.due);
        if let (Timing::Paced(pacer), true) = (&mut self.timing, self.begun) {
            pacer.sent(1, self.bytes);
        }
        self.due
    }

    /// Number of packets whose timestamp is earlier than the highest timestamp so far, by at most [`STEP_BACK_MAX`].
    pub fn out_of_order(&self) -> u64 {
        self.out_of_order
    }

    /// Number of steps back of the timestamps by more than [`STEP_BACK_MAX`].
    pub fn steps_back(&self) -> u64 {
        self.steps_back
    }

    /// Number of intervals that were shortened to the longest permitted interval.
    pub fn shortened(&self) -> u64 {
        self.shortened
    }
}

/// `nanos / factor` in whole nanoseconds, saturating; exact for a factor of 1.
fn scaled(nanos: u64, factor: f64) -> u64 {
    if factor == 1.0 { nanos } else { (nanos as f64 / factor).round() as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    const SECOND: u64 = 1_000_000_000;

    fn dues(schedule: &mut Schedule, nanos: &[u64]) -> Vec<u64> {
        nanos.iter().map(|n| schedule.next(Some(Timestamp::from_nanos(*n)), 100, false)).collect()
    }

    #[test]
    fn a_text_that_is_no_pace_is_refused_with_the_notation() {
        for bad in ["", "x", "0x", "-1x", "nanx", "infx", "1e9x", "fast", "0pps", "0.0001pps", "0.0009bit", "100"] {
            let error = bad.parse::<Pace>().expect_err(bad).to_string();
            assert!(error.ends_with("100kpps, 900Mbit (at least 0.001pps or 0.001bit) or flat"), "{error}");
        }
    }

    #[test]
    fn the_notation_of_a_pace_is_parsed() {
        for (text, pace) in [
            ("original", Pace::ORIGINAL),
            ("1x", Pace::ORIGINAL),
            ("0.5x", Pace::Original(0.5)),
            ("flat", Pace::FLAT),
            ("2.5kpps", Pace::Rate(Rate::Packets(2500.0))),
            ("10Gbit", Pace::Rate(Rate::Bits(1e10))),
        ] {
            assert_eq!(text.parse::<Pace>(), Ok(pace));
        }
    }

    #[test]
    fn original_due_times_are_the_sums_of_the_intervals() {
        let mut prng = Prng::new(5);
        for factor in [1.0, 2.0, 0.1, 3.7] {
            let mut schedule = Schedule::new(Pace::Original(factor), None);
            let (mut ts, mut sum) = (1_795_257_720 * SECOND, 0u128);
            for n in 0..10_000 {
                let due = schedule.next(Some(Timestamp::from_nanos(ts)), 60, false);
                // The expected value is computed with 128-bit integers; all factors are multiples of 0.1.
                let exact = sum * 10 / (factor * 10.0) as u128;
                assert!(
                    u128::from(due).abs_diff(exact) <= 1,
                    "packet {n} at {factor}x: {due}, expected {exact}, seed 5"
                );
                let interval = prng.below(3 * SECOND);
                (ts, sum) = (ts + interval, sum + u128::from(interval));
            }
        }
    }

    #[test]
    fn packets_slightly_out_of_order_do_not_move_the_packets_after_them() {
        let mut schedule = Schedule::new(Pace::ORIGINAL, None);
        assert_eq!(dues(&mut schedule, &[100, 400, 350, 390, 500, 450, 600]), [0, 300, 300, 300, 400, 400, 500]);
        assert_eq!((schedule.out_of_order(), schedule.steps_back(), schedule.shortened()), (3, 0, 0));
    }

    #[test]
    fn due_times_are_the_highest_offsets_from_the_first_packet() {
        let seed = testkit::seed("due_times_are_the_highest_offsets_from_the_first_packet");
        let mut prng = Prng::new(seed);
        for round in 0..50 {
            let mut schedule = Schedule::new(Pace::ORIGINAL, None);
            let (mut ts, mut out_of_order) = (5 * SECOND, 0);
            let times: Vec<u64> = (0..500)
                .map(|_| {
                    ts += prng.below(SECOND / 2);
                    ts - prng.below(SECOND / 3)
                })
                .collect();
            let mut highest = times[0];
            let expected: Vec<u64> = times
                .iter()
                .map(|ts| {
                    out_of_order += u64::from(*ts < highest);
                    highest = highest.max(*ts);
                    highest - times[0]
                })
                .collect();
            assert_eq!(dues(&mut schedule, &times), expected, "seed {seed}, round {round}");
            assert_eq!((schedule.out_of_order(), schedule.steps_back()), (out_of_order, 0), "seed {seed}");
        }
    }

    #[test]
    fn after_a_large_step_back_intervals_are_counted_from_the_new_time() {
        let mut schedule = Schedule::new(Pace::ORIGINAL, None);
        let times = [10 * SECOND, 20 * SECOND, 19 * SECOND - 1, 19 * SECOND + 5];
        assert_eq!(dues(&mut schedule, &times), [0, 10 * SECOND, 10 * SECOND, 10 * SECOND + 6]);
        assert_eq!((schedule.out_of_order(), schedule.steps_back()), (0, 1));
    }

    #[test]
    fn packets_without_timestamp_have_no_interval() {
        let mut schedule = Schedule::new(Pace::ORIGINAL, None);
        let times = [None, None, Some(1_795_257_720 * SECOND), None, Some(1_795_257_721 * SECOND)];
        let mut pass = || {
            let all = times.map(|ts| schedule.next(ts.map(Timestamp::from_nanos), 60, false));
            schedule.end_pass();
            all
        };
        assert_eq!(pass(), [0, 0, 0, 0, SECOND]);
        assert_eq!(pass()[..4], [SECOND + SECOND / 4; 4], "the second pass begins after the mean interval");
    }

    #[test]
    fn long_intervals_are_shortened_and_counted() {
        let mut schedule = Schedule::new(Pace::ORIGINAL, Some(Duration::from_nanos(50)));
        assert_eq!(dues(&mut schedule, &[0, 50, 101, 1_000_000]), [0, 50, 100, 150]);
        assert_eq!(schedule.shortened(), 2);
    }

    #[test]
    fn passes_are_joined_by_the_mean_interval() {
        let mut schedule = Schedule::new(Pace::ORIGINAL, None);
        let mut all = dues(&mut schedule, &[10, 20, 40]);
        schedule.end_pass();
        all.extend(dues(&mut schedule, &[10, 20, 40]));
        schedule.end_pass();
        all.extend(dues(&mut schedule, &[10]));
        assert_eq!(all, [0, 10, 30, 45, 55, 75, 90]);
        let mut single = Schedule::new(Pace::ORIGINAL, None);
        assert_eq!(dues(&mut single, &[7]), [0]);
        single.end_pass();
        assert_eq!(dues(&mut single, &[7]), [0], "a capture of one packet has no interval");
    }

    #[test]
    fn rates_ignore_timestamps_and_count_copies() {
        let mut schedule = Schedule::new(Pace::Rate(Rate::Packets(1000.0)), None);
        assert_eq!(dues(&mut schedule, &[5, 5, 999]), [0, 1_000_000, 2_000_000]);
        assert_eq!(schedule.next(Some(Timestamp::ZERO), 60, true), 3_000_000);
        let mut schedule = Schedule::new(Pace::Rate(Rate::Bits(8e9)), None);
        let bytes = [100usize, 50, 1000, 60].map(|bytes| schedule.next(Some(Timestamp::ZERO), bytes, false));
        assert_eq!(bytes, [0, 100, 150, 1150]);
        assert_eq!(dues(&mut Schedule::new(Pace::FLAT, None), &[0, SECOND]), [0, 0]);
    }

    #[test]
    fn a_new_pace_applies_to_the_interval_before_the_frame_that_waits() {
        let mut schedule = Schedule::new(Pace::ORIGINAL, None);
        assert_eq!(dues(&mut schedule, &[0, 10 * SECOND]), [0, 10 * SECOND]);
        assert_eq!(schedule.set_pace(Pace::Original(5.0), SECOND), 2 * SECOND);
        assert_eq!(schedule.next(Some(Timestamp::from_nanos(15 * SECOND)), 100, false), 3 * SECOND);
        // With 100x the frame would have been due at 2.05 s, before the present time of 2.5 s.
        assert_eq!(schedule.set_pace(Pace::Original(100.0), 2_500_000_000), 2_500_000_000);
        assert_eq!(schedule.next(Some(Timestamp::from_nanos(25 * SECOND)), 100, false), 2_600_000_000);
        assert_eq!(schedule.set_pace(Pace::Rate(Rate::Packets(2.0)), 2_550_000_000), 3 * SECOND);
        assert_eq!(schedule.next(Some(Timestamp::from_nanos(99 * SECOND)), 100, false), 3_500_000_000);
        assert_eq!(schedule.set_pace(Pace::Rate(Rate::Bits(800.0)), 3 * SECOND), 4 * SECOND);
        assert_eq!(schedule.next(Some(Timestamp::from_nanos(99 * SECOND)), 100, false), 5 * SECOND);
        assert_eq!(schedule.set_pace(Pace::FLAT, 4_100_000_000), 4_100_000_000);
    }

    #[test]
    fn due_times_never_decrease_whatever_happens() {
        let seed = testkit::seed("due_times_never_decrease_whatever_happens");
        let mut prng = Prng::new(seed);
        let paces = ["original", "3x", "0.2x", "flat", "9kpps", "33Mbit"].map(|text| text.parse::<Pace>().unwrap());
        for round in 0..200 {
            let mut schedule = Schedule::new(paces[prng.below(6) as usize], Some(Duration::from_secs(3)));
            let (mut last, mut now) = (0, 0);
            for _ in 0..200 {
                let due = match prng.below(20) {
                    0 => {
                        now = now.max(last.min(now + prng.below(SECOND)));
                        schedule.set_pace(paces[prng.below(6) as usize], now)
                    }
                    1 => {
                        schedule.end_pass();
                        continue;
                    }
                    _ => {
                        let ts = Timestamp::from_nanos(prng.next_u64() >> prng.below(60));
                        let due = schedule.next(Some(ts), 60 + prng.below(1400) as usize, prng.below(4) == 0);
                        assert!(due >= last, "seed {seed}, round {round}: {due} after {last}");
                        now = now.max(last);
                        due
                    }
                };
                last = due;
            }
        }
    }
}
