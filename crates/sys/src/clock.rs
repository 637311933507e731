//! Clocks: the time stamp counter, fitted again each second to the system clock.
//!
//! A [`Fit`] is a line from counter ticks to UTC nanoseconds. Once a second `CLOCK_REALTIME` is read between two
//! readings of the counter (of several attempts, the one with the fewest ticks between the readings is used). The new
//! line starts at the present value of the old line and reaches the time of the system clock one second later. So time
//! never decreases, and a small difference from the system clock is corrected gradually. A difference of more than
//! [`STEP_LIMIT_NANOS`] means that the system clock was set. Then the new line starts at the time of the system clock,
//! and the step is counted.

use base::Timestamp;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// If the difference to the system clock is larger, the fit follows the system clock by a step instead of a slew.
pub const STEP_LIMIT_NANOS: u64 = 1_000_000;

/// Period between two fits.
pub const FIT_PERIOD: Duration = Duration::from_secs(1);

const SHIFT: u32 = 32;

/// The system clock.
pub fn realtime() -> Timestamp {
    // The clock of the standard library is not used, because reading it takes 34 ns instead of 23 ns.
    let t = clock_gettime(ClockId::Realtime);
    Timestamp::from_secs_nanos(t.tv_sec as u64, t.tv_nsec as u64)
}

/// The kernel's monotonic clock: time since the boot, without the time of suspension.
pub fn monotonic() -> Duration {
    let t = clock_gettime(ClockId::Monotonic);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// Offset from the kernel's monotonic clock, which programs in the kernel read, to nanoseconds since 1970.
pub fn since_monotonic() -> Duration {
    Duration::from_nanos(realtime().nanos()).saturating_sub(monotonic())
}

/// The CPU's time stamp counter; on CPUs without a usable counter, nanoseconds of the monotonic clock.
#[inline]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 CPU has the instruction.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let t = clock_gettime(ClockId::MonotonicRaw);
        t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
    }
}

/// True if the counter runs at a constant rate and through idle states, as the fit requires.
pub fn ticks_are_steady() -> bool {
    std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|t| {
        t.lines().find(|l| l.starts_with("flags")).is_some_and(|l| {
            let has = |flag: &str| l.split_whitespace().any(|f| f == flag);
            has("constant_tsc") && has("nonstop_tsc")
        })
    })
}

/// One reading of both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The counter value in the middle between the two readings of the counter.
    pub ticks: u64,
    /// System clock.
    pub time: Timestamp,
    /// Ticks that the reading took: half of this is the uncertainty of `ticks`.
    pub width: u64,
}

impl Sample {
    /// Reads the system clock several times, each time between two readings of the counter. Returns the reading that
    /// took the fewest ticks.
    pub fn take() -> Self {
        (0..8)
            .map(|_| {
                let before = ticks();
                let time = realtime();
                let width = ticks().wrapping_sub(before);
                Self { ticks: before.wrapping_add(width / 2), time, width }
            })
            .min_by_key(|s| s.width)
            .unwrap_or(Self { ticks: ticks(), time: realtime(), width: 0 })
    }
}

/// A linear function that converts ticks to time.
#[derive(Clone, Copy, Debug)]
pub struct Fit {
    ticks: u64,
    nanos: u64,
    /// Nanoseconds per tick, times 2^32.
    slope: u64,
}

impl Fit {
    /// Returns the time at a tick count. Tick counts before the start of the fit give the start time of the fit.
    #[inline]
    pub fn at(&self, ticks: u64) -> Timestamp {
        let since = ticks.wrapping_sub(self.ticks);
        let since = if since >> 63 == 0 { since } else { 0 };
        Timestamp::from_nanos(self.nanos + ((u128::from(since) * u128::from(self.slope)) >> SHIFT) as u64)
    }
}

/// Computes the clock fits from samples. It reads no clock itself, so that tests can simulate clock steps and drifts.
#[derive(Clone, Debug)]
pub struct Fitter {
    fit: Fit,
    last: Sample,
    /// Nanoseconds per tick, times 2^32, as measured between samples (without the slew).
    rate: u64,
    error: Duration,
    steps: u64,
    /// The last step in nanoseconds; a negative number is a step back.
    last_step_nanos: i64,
}

impl Fitter {
    /// Creates a fitter from two samples that were taken some milliseconds apart.
    pub fn new(first: Sample, second: Sample) -> Self {
        let rate = rate_between(&first, &second).unwrap_or(1 << SHIFT);
        let fit = Fit { ticks: second.ticks, nanos: second.time.nanos(), slope: rate };
        Self { fit, last: second, rate, error: width_nanos(&second, rate), steps: 0, last_step_nanos: 0 }
    }

    /// The present fit.
    pub fn fit(&self) -> Fit {
        self.fit
    }

    /// Computes the next fit from a new sample.
    pub fn observe(&mut self, sample: Sample) {
        let predicted = self.fit.at(sample.ticks);
        let (a, b) = (predicted.nanos(), sample.time.nanos());
        let off = a.abs_diff(b);
        self.error = Duration::from_nanos(off) + width_nanos(&sample, self.rate);
        if off > STEP_LIMIT_NANOS {
            // The rate between the two samples would include the clock step, so the previous rate is kept.
            self.steps += 1;
            self.last_step_nanos = (b as i64).wrapping_sub(a as i64);
            self.fit = Fit { ticks: sample.ticks, nanos: b, slope: self.rate };
        } else {
            if let Some(rate) = rate_between(&self.last, &sample) {
                self.rate = rate;
            }
            let period = FIT_PERIOD.as_nanos() as i128;
            let target = period + i128::from(b) - i128::from(a);
            let slope = i128::from(self.rate) * target / period;
            self.fit = Fit { ticks: sample.ticks, nanos: a, slope: slope.max(1) as u64 };
        }
        self.last = sample;
    }

    /// Returns the estimated error of the fit. It is the difference between the fit and the system clock at the last
    /// sample, plus the uncertainty of the reading of that sample.
    pub fn error(&self) -> Duration {
        self.error
    }

    /// Clock steps followed so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The size of the last clock step in nanoseconds; a negative number is a step back. 0 before the first step.
    pub fn last_step_nanos(&self) -> i64 {
        self.last_step_nanos
    }
}

fn rate_between(first: &Sample, second: &Sample) -> Option<u64> {
    let ticks = second.ticks.checked_sub(first.ticks).filter(|t| *t > 0)?;
    let nanos = second.time.nanos().checked_sub(first.time.nanos()).filter(|n| *n > 0)?;
    u64::try_from((u128::from(nanos) << SHIFT) / u128::from(ticks)).ok()
}

fn width_nanos(sample: &Sample, rate: u64) -> Duration {
    Duration::from_nanos(((u128::from(sample.width / 2) * u128::from(rate)) >> SHIFT) as u64)
}

/// The live clock of one engine thread. If the time stamp counter is not steady, each call reads the system clock
/// instead.
#[derive(Debug)]
pub struct Clock {
    fitter: Fitter,
    fit: Fit,
    due: u64,
    steady: bool,
}

impl Clock {
    /// Calibrates for 20 ms.
    pub fn start() -> Self {
        let first = Sample::take();
        std::thread::sleep(Duration::from_millis(20));
        let fitter = Fitter::new(first, Sample::take());
        let mut clock = Self { fit: fitter.fit(), fitter, due: 0, steady: ticks_are_steady() };
        clock.adopt();
        clock
    }

    fn adopt(&mut self) {
        self.fit = self.fitter.fit();
        let ticks = ((FIT_PERIOD.as_nanos() << SHIFT) / u128::from(self.fitter.rate)) as u64;
        self.due = self.fit.ticks.wrapping_add(ticks);
    }

    /// The present time: one reading of the counter and one multiplication.
    #[inline]
    pub fn now(&self) -> Timestamp {
        if self.steady { self.fit.at(ticks()) } else { realtime() }
    }

    /// The name of the method by which the time is read, for the index and for messages.
    pub fn method(&self) -> &'static str {
        if self.steady { "tsc" } else { "realtime" }
    }

    /// Computes a new fit if a second has passed, and returns true if so; call once per batch.
    #[inline]
    pub fn keep(&mut self) -> bool {
        let is_due = ticks() >= self.due;
        if is_due {
            self.fitter.observe(Sample::take());
            self.adopt();
        }
        is_due
    }

    /// See [`Fitter::error`].
    pub fn error(&self) -> Duration {
        self.fitter.error()
    }

    /// See [`Fitter::steps`].
    pub fn steps(&self) -> u64 {
        self.fitter.steps()
    }

    /// See [`Fitter::last_step_nanos`].
    pub fn last_step_nanos(&self) -> i64 {
        self.fitter.last_step_nanos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HZ: u64 = 2_600_000_000;

    fn sample(ticks: u64, nanos: u64) -> Sample {
        Sample { ticks, time: Timestamp::from_nanos(nanos), width: 40 }
    }

    #[test]
    fn a_drifting_clock_is_followed_without_ever_running_backwards() {
        // The system clock gains 50 ppm against the counter's nominal rate, with a jitter of 100 ns in each reading.
        let mut prng = base::Prng::new(3);
        let system = |s: u64| 1_700_000_000_000_000_000 + s * 1_000_050_000;
        let mut fitter = Fitter::new(sample(0, system(0)), sample(HZ, system(1)));
        let mut last = Timestamp::ZERO;
        for s in 2..200 {
            let ticks = s * HZ;
            let before = fitter.fit().at(ticks);
            assert!(before >= last);
            fitter.observe(sample(ticks, system(s) + prng.below(100)));
            assert!(fitter.fit().at(ticks) >= before, "the new line starts at the value of the old line");
            last = before;
            assert!(fitter.error() < Duration::from_nanos(400), "{:?} at {s}", fitter.error());
        }
        assert_eq!(fitter.steps(), 0);
    }

    #[test]
    fn a_step_of_the_clock_is_followed_and_counted() {
        let mut fitter = Fitter::new(sample(0, 1_000_000_000), sample(HZ, 2_000_000_000));
        fitter.observe(sample(2 * HZ, 3_600_000_000_000));
        assert_eq!(fitter.steps(), 1);
        // The rate of the counter was measured, so the expected time is rounded.
        assert!(fitter.last_step_nanos().abs_diff(3_597_000_000_000) < 10, "{}", fitter.last_step_nanos());
        assert_eq!(fitter.fit().at(2 * HZ).nanos(), 3_600_000_000_000);
        fitter.observe(sample(3 * HZ, 3_601_000_000_000));
        assert_eq!(fitter.steps(), 1);
        assert!(fitter.error() < Duration::from_micros(1));
        fitter.observe(sample(4 * HZ, 4_000_000_000));
        assert_eq!(fitter.steps(), 2);
        assert!(fitter.last_step_nanos().abs_diff(-3_598_000_000_000) < 10, "{}", fitter.last_step_nanos());
    }

    #[test]
    fn the_live_clock_agrees_with_the_system() {
        let clock = Clock::start();
        let (before, now, after) = (realtime(), clock.now(), realtime());
        let slack = Duration::from_millis(1);
        assert!(now >= before.before(slack) && now <= after.after(slack), "{before} {now} {after}");
    }
}
