//! Conversion of the time of a NIC's clock to system time.
//!
//! The clock of a NIC counts from an arbitrary start and runs some parts per million faster or slower than the system
//! clock. [`NicClock`] gets readings of the NIC's clock between two readings of the system clock, and keeps a line from
//! NIC time to system time. Of the readings of one burst it uses the one with the shortest time between the two
//! readings of the system clock, because the other readings were delayed (the clock filter of NTP, RFC 5905 section
//! 10). The rate of the line is that of least squares over the last [`POINTS`] bursts, without the bursts whose
//! shortest reading took more than twice as long as the shortest reading of all.
//!
//! A new line begins at the present value of the old line and reaches the measured time one second later, so converted
//! times do not jump. A difference of more than [`STEP_LIMIT_NANOS`] means that the clock of the system or that of the
//! NIC was set: then the new line starts at the measured time, all earlier bursts are forgotten, and the step is
//! counted.

use base::Timestamp;
use std::collections::VecDeque;
use std::time::Duration;

/// The number of bursts from which the rate is computed.
pub const POINTS: usize = 32;

/// If the difference between the line and a reading is larger, a clock was set.
pub const STEP_LIMIT_NANOS: u64 = 1_000_000;

/// The nanoseconds within which a new line reaches the measured time.
const SLEW_NANOS: f64 = 1e9;

/// The rate is computed only if the bursts extend over at least this time. Until then the last computed rate is used,
/// which is 0 (equally fast clocks) at the start.
const SPAN_MIN_NANOS: u64 = 500_000_000;

/// Each of the two clocks deviates by less than 500 ppm, the limit of adjtimex(2). A larger rate comes from a wrong
/// reading.
const SKEW_MAX: f64 = 1e-3;

/// A reading of the NIC's clock between two readings of the system clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NicReading {
    /// The system clock before the reading.
    pub before: Timestamp,
    /// The NIC's clock in nanoseconds.
    pub nic_nanos: u64,
    /// The system clock after the reading.
    pub after: Timestamp,
}

/// The relation of the two clocks at the last reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NicClockState {
    /// System time less NIC time, in nanoseconds.
    pub offset_nanos: i64,
    /// The rate of the system clock relative to that of the NIC's clock, less 1, in parts per billion.
    pub skew_ppb: i64,
    /// Estimated error of converted times: the difference between the line and the last reading, and half of the time
    /// that the reading took.
    pub error: Duration,
    /// Number of steps of one of the clocks.
    pub steps: u64,
}

/// The best reading of a burst.
#[derive(Clone, Copy, Debug)]
struct Point {
    nic: u64,
    /// The system time in the middle of the reading.
    system: u64,
    /// The time that the reading took.
    width: u64,
}

/// A line from NIC time to system time, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Line {
    nic: u64,
    system: u64,
    /// System nanoseconds per NIC nanosecond, less 1.
    skew: f64,
}

/// Converts NIC time to system time.
#[derive(Clone, Debug, Default)]
pub struct NicClock {
    points: VecDeque<Point>,
    line: Option<Line>,
    /// The latest converted time since the last step.
    last: Timestamp,
    /// The rate that was computed last: system nanoseconds per NIC nanosecond, less 1.
    rate: f64,
    state: NicClockState,
}

impl NicClock {
    /// Adds the readings of one burst. A burst without a valid reading has no effect.
    pub fn observe(&mut self, burst: &[NicReading]) {
        let valid = burst.iter().filter(|reading| reading.after >= reading.before);
        let Some(point) = valid.map(Point::of).min_by_key(|point| point.width) else { return };
        if self.points.back().is_some_and(|last| point.nic <= last.nic) {
            self.step_to(point);
            return;
        }
        let Some(line) = self.line else {
            self.points.push_back(point);
            self.line = Some(Line { nic: point.nic, system: point.system, skew: 0.0 });
            self.note(point, 0);
            return;
        };
        let predicted = line.at(point.nic);
        let ahead = point.system.wrapping_sub(predicted) as i64;
        if ahead.unsigned_abs() > STEP_LIMIT_NANOS {
            self.step_to(point);
            return;
        }
        if self.points.len() == POINTS {
            self.points.pop_front();
        }
        self.points.push_back(point);
        let skew = self.skew();
        // The line has to reach the measured time, and not only the rate: a constant error would otherwise remain. The
        // error of a slow reading is not followed further than the reading is certain.
        let certain = self.shortest().min(point.width) as i64;
        let excess = (point.width as i64 - certain) / 2;
        let ahead = ahead.signum() * (ahead.abs() - excess).max(0);
        self.line = Some(Line { nic: point.nic, system: predicted, skew: skew + ahead as f64 / SLEW_NANOS });
        (self.rate, self.state.skew_ppb) = (skew, (skew * 1e9).round() as i64);
        self.note(point, ahead.unsigned_abs());
    }

    /// The system time at which the NIC's clock showed `nic_nanos`; `None` before the first reading. Converted times do
    /// not decrease, except after a step of a clock.
    #[inline]
    pub fn convert(&mut self, nic_nanos: u64) -> Option<Timestamp> {
        let time = Timestamp::from_nanos(self.line?.at(nic_nanos)).max(self.last);
        self.last = time;
        Some(time)
    }

    /// The time that the NIC's clock shows at a system time; `None` before the first reading.
    pub fn nic_nanos_at(&self, system: Timestamp) -> Option<u64> {
        let line = self.line?;
        let since = system.nanos().wrapping_sub(line.system) as i64;
        let correction = (since as f64 * line.skew / (1.0 + line.skew)) as i64;
        Some(line.nic.saturating_add_signed(since.saturating_sub(correction)))
    }

    /// The relation of the two clocks at the last reading; `None` before the first reading.
    pub fn state(&self) -> Option<NicClockState> {
        self.line.map(|_| self.state)
    }

    /// Starts again from a reading after a clock was set.
    fn step_to(&mut self, point: Point) {
        self.points.clear();
        self.points.push_back(point);
        self.line = Some(Line { nic: point.nic, system: point.system, skew: self.rate });
        self.last = Timestamp::ZERO;
        self.state.steps += 1;
        self.note(point, 0);
    }

    fn note(&mut self, point: Point, difference: u64) {
        self.state.offset_nanos = point.system.wrapping_sub(point.nic) as i64;
        self.state.error = Duration::from_nanos(difference + point.width.div_ceil(2));
    }

    fn shortest(&self) -> u64 {
        self.points.iter().map(|point| point.width).min().unwrap_or(0)
    }

    /// The slope of the regression of the offset on the NIC time.
    fn skew(&self) -> f64 {
        let (Some(first), Some(last)) = (self.points.front(), self.points.back()) else { return 0.0 };
        if last.nic - first.nic < SPAN_MIN_NANOS {
            return self.rate;
        }
        let limit = self.shortest().saturating_mul(2).max(1);
        // Times relative to the first point are small enough that `f64` represents them exactly.
        let relative = |point: &Point| {
            let nic = point.nic - first.nic;
            let offset = point.system.wrapping_sub(first.system).wrapping_sub(nic) as i64;
            (nic as f64, offset as f64)
        };
        let used: Vec<(f64, f64)> = self.points.iter().filter(|p| p.width <= limit).map(relative).collect();
        let count = used.len() as f64;
        let (sum_x, sum_y) = used.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
        let (mean_x, mean_y) = (sum_x / count, sum_y / count);
        let (mut covariance, mut variance) = (0.0, 0.0);
        for (x, y) in &used {
            covariance += (x - mean_x) * (y - mean_y);
            variance += (x - mean_x) * (x - mean_x);
        }
        // Less than two points remain, or they are too close to each other.
        if variance < (SPAN_MIN_NANOS as f64).powi(2) / 8.0 {
            return self.rate;
        }
        (covariance / variance).clamp(-SKEW_MAX, SKEW_MAX)
    }
}

impl Point {
    fn of(reading: &NicReading) -> Self {
        let width = reading.after.nanos() - reading.before.nanos();
        Self { nic: reading.nic_nanos, system: reading.before.nanos() + width / 2, width }
    }
}

impl Line {
    #[inline]
    fn at(&self, nic: u64) -> u64 {
        let since = nic.wrapping_sub(self.nic) as i64;
        let correction = (since as f64 * self.skew) as i64;
        self.system.saturating_add_signed(since.saturating_add(correction))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    const START: u64 = 1_700_000_000_000_000_000;

    /// A simulated system clock that equals true time, and a NIC clock with offset and rate.
    struct Simulated {
        prng: Prng,
        nic_start: u64,
        /// NIC nanoseconds per true nanosecond, less 1, in parts per billion.
        fast_ppb: i64,
        /// Time added to the system clock.
        system_step: i64,
    }

    impl Simulated {
        fn nic(&self, time: u64) -> u64 {
            let skew = i128::from(time) * i128::from(self.fast_ppb) / 1_000_000_000;
            self.nic_start.wrapping_add_signed((i128::from(time) + skew) as i64)
        }

        fn system(&self, time: u64) -> Timestamp {
            Timestamp::from_nanos((START + time).saturating_add_signed(self.system_step))
        }

        /// A burst of five readings. Each direction over the bus takes 300 ns to 400 ns; with a probability of 1/4 it
        /// takes up to 20 µs longer.
        fn burst(&mut self, time: u64) -> Vec<NicReading> {
            (0..5)
                .map(|nth| {
                    let begin = time + nth * 50_000;
                    let mut way =
                        || 300 + self.prng.below(100) + u64::from(self.prng.below(4) == 0) * self.prng.below(20_000);
                    let (there, back) = (way(), way());
                    NicReading {
                        before: self.system(begin),
                        nic_nanos: self.nic(begin + there),
                        after: self.system(begin + there + back),
                    }
                })
                .collect()
        }
    }

    fn simulated(seed: u64, fast_ppb: i64) -> Simulated {
        let mut prng = Prng::new(seed);
        let nic_start = prng.below(1 << 62);
        Simulated { prng, nic_start, fast_ppb, system_step: 0 }
    }

    #[test]
    fn converted_times_have_an_error_below_half_a_microsecond_and_never_decrease() {
        for (seed, fast_ppb) in [(1, 0), (2, 50_000), (3, -80_000), (4, 499_000)] {
            let mut world = simulated(seed, fast_ppb);
            let mut clock = NicClock::default();
            let (mut last, mut worst) = (Timestamp::ZERO, 0);
            for second in 0..120u64 {
                let burst = world.burst(second * 1_000_000_000);
                clock.observe(&burst);
                for packet in 0..1000 {
                    let time = second * 1_000_000_000 + 300_000 + packet * 999_000;
                    let nic = world.nic(time);
                    let converted = clock.convert(nic).expect("a reading was added");
                    assert!(converted >= last, "the times go back in second {second}");
                    last = converted;
                    if second >= 10 {
                        worst = worst.max(converted.nanos().abs_diff(START + time));
                    }
                }
            }
            // The conversion back is exact up to the rounding.
            let time = Timestamp::from_nanos(START + 121_000_000_000);
            let nic = clock.nic_nanos_at(time).expect("a reading was added");
            assert!(clock.convert(nic).expect("a reading").nanos().abs_diff(time.nanos()) <= 2);
            let state = clock.state().expect("a state");
            let skew = -(fast_ppb as f64) / (1.0 + fast_ppb as f64 / 1e9);
            assert!(worst < 500, "{fast_ppb} ppb: error of {worst} ns");
            assert!((state.skew_ppb as f64 - skew).abs() < 30.0, "{fast_ppb} ppb: {state:?}");
            assert!(state.error < Duration::from_micros(11) && state.steps == 0, "{state:?}");
        }
    }

    #[test]
    fn a_step_of_either_clock_is_followed_and_counted() {
        let mut world = simulated(9, 10_000);
        let mut clock = NicClock::default();
        for second in 0..20 {
            let burst = world.burst(second * 1_000_000_000);
            clock.observe(&burst);
        }
        let near = |clock: &mut NicClock, world: &Simulated, time: u64| {
            let converted = clock.convert(world.nic(time)).expect("a reading was added");
            converted.nanos().abs_diff(world.system(time).nanos()) < 1000
        };
        assert!(near(&mut clock, &world, 19_500_000_000));
        // The system clock goes back by an hour.
        world.system_step = -3_600_000_000_000;
        clock.observe(&world.burst(20_000_000_000));
        assert!(near(&mut clock, &world, 20_100_000_000));
        // The NIC's clock is set back.
        world.nic_start -= world.nic_start / 2;
        clock.observe(&world.burst(21_000_000_000));
        assert!(near(&mut clock, &world, 21_100_000_000));
        assert_eq!(clock.state().map(|state| state.steps), Some(2));
    }

    #[test]
    fn without_a_valid_reading_there_is_no_time() {
        let mut clock = NicClock::default();
        assert_eq!((clock.convert(5), clock.state()), (None, None));
        let back = NicReading { before: Timestamp::from_nanos(9), nic_nanos: 1, after: Timestamp::from_nanos(8) };
        clock.observe(&[back]);
        clock.observe(&[]);
        assert_eq!(clock.convert(5), None);
        clock.observe(&[NicReading { after: Timestamp::from_nanos(11), ..back }]);
        assert_eq!(clock.convert(3), Some(Timestamp::from_nanos(12)));
        assert_eq!(clock.convert(1), Some(Timestamp::from_nanos(12)), "times do not decrease");
    }

    #[test]
    fn arbitrary_readings_give_no_panic_and_times_that_do_not_decrease_between_steps() {
        let mut prng = Prng::new(77);
        for _ in 0..200 {
            let (mut clock, mut last, mut steps) = (NicClock::default(), Timestamp::ZERO, 0);
            for _ in 0..200 {
                let bits = 1 + prng.below(63);
                let mut random = || prng.next_u64() >> (64 - bits);
                let (a, b) = (random(), random());
                let before = Timestamp::from_nanos(a.min(b));
                clock.observe(&[NicReading { before, nic_nanos: random(), after: Timestamp::from_nanos(a.max(b)) }]);
                let converted = clock.convert(random()).expect("a valid reading");
                let now = clock.state().expect("a state").steps;
                assert!(converted >= last || now > steps);
                (last, steps) = (converted, now);
            }
        }
    }
}
