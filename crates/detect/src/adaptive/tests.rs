//! Tests of the adaptive detector: false alarms, delays, missing seconds, stored states.

use super::*;
use base::Prng;

fn checked() -> Checked {
    Checked::new(Parameters::default()).expect("parameters")
}

/// A standard normal number (Box and Muller 1958).
fn normal(prng: &mut Prng) -> f64 {
    (-2.0 * (1.0 - prng.unit()).ln()).sqrt() * (std::f64::consts::TAU * prng.unit()).cos()
}

/// The first second of the tests: a Monday at 0 h UTC.
const BEGIN: u64 = 1_700_438_400;

/// Feeds the samples of `make` and returns the events.
fn feed(detector: &mut Adaptive, seconds: std::ops::Range<u64>, mut make: impl FnMut(u64) -> Sample) -> Vec<Event> {
    let mut events = Vec::new();
    let parameters = checked();
    for second in seconds {
        detector.observe(&parameters, BEGIN + second, make(second), &mut events);
    }
    events
}

/// A trained detector for normal numbers with mean 1000.5 and standard deviation 20.
fn trained(prng: &mut Prng, seconds: u64) -> Adaptive {
    let mut detector = Adaptive::default();
    let events = feed(&mut detector, 0..seconds, |_| Sample::Value(1000.5 + 20.0 * normal(prng)));
    assert_eq!(events, []);
    detector
}

#[test]
fn parameters_out_of_range_are_refused() {
    let usual = Parameters::default();
    let new = |parameters| Checked::new(parameters).map(|_| ());
    assert_eq!(new(Parameters { run_length: 10.0, ..usual }), Err(ParameterError::RunLength));
    assert_eq!(new(Parameters { strength: f64::NAN, ..usual }), Err(ParameterError::Strength));
    assert_eq!(new(Parameters { duration: 0, ..usual }), Err(ParameterError::Zero));
    assert_eq!(new(Parameters { spread_min: 2.0, ..usual }), Err(ParameterError::Spread));
}

#[test]
fn the_state_of_ten_thousand_measures_fits_in_ten_megabytes() {
    let mut prng = Prng::new(testkit::seed("the_state_of_ten_thousand_measures_fits_in_ten_megabytes"));
    let mut detector = trained(&mut prng, 5000);
    assert!(size_of::<Adaptive>() <= 1024, "{}", size_of::<Adaptive>());
    assert!(detector.store().len() <= 1024, "{}", detector.store().len());
    // Also during an alarm.
    let events = feed(&mut detector, 5000..5010, |_| Sample::Value(9000.0));
    assert!(matches!(events[0], Event::Begin(_)));
    assert!(detector.store().len() <= 1152, "{}", detector.store().len());
}

#[test]
fn a_step_of_four_standard_deviations_is_found_within_six_seconds() {
    let mut prng = Prng::new(testkit::seed("a_step_of_four_standard_deviations_is_found_within_six_seconds"));
    let detector = trained(&mut prng, 7200);
    let mut delays = Vec::new();
    for sign in [1.0, -1.0].repeat(20) {
        let mut detector = detector.clone();
        let events = feed(&mut detector, 7200..7400, |second| {
            let step = if second < 7300 { sign * 80.0 } else { 0.0 };
            Sample::Value(1000.5 + 20.0 * normal(&mut prng) + step)
        });
        let (Event::Begin(begin), Some(Event::End { alarm, second, reason })) = (events[0], events.last()) else {
            panic!("{events:?}")
        };
        assert_eq!(begin.change, if sign > 0.0 { Change::Increase } else { Change::Decrease });
        assert!(begin.onset.abs_diff(BEGIN + 7200) <= 3, "{begin:?}");
        assert!((begin.peak.expected - 1000.5).abs() < 10.0, "{begin:?}");
        assert!(begin.peak.low < 1000.5 && begin.peak.high > 1000.5, "{begin:?}");
        assert!(alarm.peak.deviation(alarm.change) >= begin.peak.deviation(begin.change));
        assert!(second.abs_diff(BEGIN + 7300) <= 5, "{events:?}");
        assert_eq!(*reason, EndReason::Returned);
        delays.push(begin.confirmed - (BEGIN + 7200));
    }
    delays.sort_unstable();
    assert!(delays[delays.len() / 2] <= 4, "{delays:?}");
    assert!(delays[delays.len() * 9 / 10] <= 6, "{delays:?}");
}

#[test]
fn a_burst_of_two_seconds_raises_no_alarm() {
    let mut prng = Prng::new(testkit::seed("a_burst_of_two_seconds_raises_no_alarm"));
    let mut detector = trained(&mut prng, 7200);
    let events = feed(&mut detector, 7200..20_000, |second| {
        let burst = if second % 1000 < 2 { 1e6 } else { 0.0 };
        Sample::Value(1000.5 + 20.0 * normal(&mut prng) + burst)
    });
    assert_eq!(events, []);
}

#[test]
fn missing_and_untrusted_seconds_have_no_verdict_and_train_nothing() {
    let mut prng = Prng::new(testkit::seed("missing_and_untrusted_seconds_have_no_verdict_and_train_nothing"));
    let mut detector = trained(&mut prng, 7200);
    let before = detector.clone();
    let events =
        feed(&mut detector, 7200..7260, |second| if second % 2 == 0 { Sample::Untrusted } else { Sample::Missing });
    assert_eq!(events, []);
    assert_eq!(detector.state.levels, before.state.levels);
    assert_eq!(detector.state.residuals.spread(), before.state.residuals.spread());
    assert_eq!(detector.state.scores, before.state.scores);
    let mut events = Vec::new();
    let verdict = detector.observe(&checked(), BEGIN + 7260, Sample::Value(f64::INFINITY), &mut events);
    assert_eq!(verdict, Verdict::Withheld);
    // The alarm after them counts them, if they are part of it.
    let samples = [Sample::Value(1200.0), Sample::Untrusted, Sample::Value(1200.0), Sample::Missing];
    let all = samples.into_iter().chain([Sample::Value(1200.0); 4]);
    for (second, sample) in (7261..).zip(all) {
        detector.observe(&checked(), BEGIN + second, sample, &mut events);
    }
    let Some(Event::Begin(begin)) = events.first() else { panic!("{events:?}") };
    assert_eq!((begin.seconds.untrusted, begin.seconds.missing), (1, 1), "{begin:?}");
    assert_eq!(begin.onset, BEGIN + 7261);
}

#[test]
fn an_incident_does_not_enter_the_baseline() {
    let mut prng = Prng::new(testkit::seed("an_incident_does_not_enter_the_baseline"));
    let mut detector = trained(&mut prng, 7200);
    let level = detector.state.levels.recent();
    let events = feed(&mut detector, 7200..9000, |_| Sample::Value(3000.5 + 20.0 * normal(&mut prng)));
    assert_eq!(events.iter().filter(|event| matches!(event, Event::Begin(_))).count(), 1);
    assert!((detector.state.levels.recent() - level).abs() < 2.0);
}

#[test]
fn a_level_that_stays_is_adopted() {
    let mut prng = Prng::new(testkit::seed("a_level_that_stays_is_adopted"));
    let mut detector = trained(&mut prng, 7200);
    let events = feed(&mut detector, 7200..20_000, |_| Sample::Value(1500.5 + 20.0 * normal(&mut prng)));
    let ends: Vec<_> = events.iter().filter(|event| matches!(event, Event::End { .. })).collect();
    let [Event::End { reason: EndReason::Adopted, alarm, second }] = ends[..] else { panic!("{events:?}") };
    assert_eq!(second - alarm.confirmed, Parameters::default().adopt_seconds);
    assert_eq!(events.iter().filter(|event| matches!(event, Event::Begin(_))).count(), 1, "{events:?}");
    assert!((detector.state.levels.recent() - 1500.5).abs() < 5.0);
}

#[test]
fn a_long_gap_ends_the_alarm_and_begins_a_new_level() {
    let mut prng = Prng::new(testkit::seed("a_long_gap_ends_the_alarm_and_begins_a_new_level"));
    let mut detector = trained(&mut prng, 7200);
    let mut events = feed(&mut detector, 7200..7220, |_| Sample::Value(3000.5));
    events.extend(feed(&mut detector, 9000..12_000, |_| Sample::Value(5000.5 + 20.0 * normal(&mut prng))));
    let [Event::Begin(_), .., Event::End { second, reason, alarm }] = events[..] else { panic!("{events:?}") };
    assert_eq!((second, reason), (BEGIN + 7220 + 300, EndReason::NoData));
    assert_eq!(alarm.seconds.missing, 300);
}

/// Counts with a Poisson distribution (Knuth), for small means.
fn poisson(prng: &mut Prng, mean: f64) -> f64 {
    let (mut product, mut count) = (prng.unit(), 0.0);
    let least = (-mean).exp();
    while product > least {
        product *= prng.unit();
        count += 1.0;
    }
    count
}

#[test]
fn small_counts_and_series_that_are_mostly_zero_raise_no_alarm_in_two_days() {
    let mut prng = Prng::new(testkit::seed("small_counts_and_series_that_are_mostly_zero_raise_no_alarm_in_two_days"));
    for mean in [0.0, 0.01, 0.3, 3.0] {
        let mut detector = Adaptive::default();
        let events = feed(&mut detector, 0..172_800, |_| Sample::Value(poisson(&mut prng, mean)));
        assert_eq!(events, [], "mean {mean}");
    }
}

#[test]
fn a_flood_in_a_series_of_zeros_is_found() {
    let mut detector = Adaptive::default();
    let mut events = feed(&mut detector, 0..7200, |_| Sample::Value(0.0));
    assert_eq!(events, []);
    events = feed(&mut detector, 7200..7210, |_| Sample::Value(50.0));
    assert!(matches!(events[0], Event::Begin(alarm) if alarm.confirmed <= BEGIN + 7204), "{events:?}");
}

#[test]
fn the_designed_rate_of_false_alarms_holds_for_correlated_and_heavy_tailed_noise() {
    // The designed run length is 2 h, so that some alarms are expected in the simulated 200 h: about 100 at most.
    let seed = testkit::seed("the_designed_rate_of_false_alarms_holds_for_correlated_and_heavy_tailed_noise");
    let mut prng = Prng::new(seed);
    let parameters = Checked::new(Parameters { run_length: 7200.0, ..Parameters::default() }).expect("parameters");
    for (correlation, is_heavy) in [(0.0, false), (0.5, false), (0.0, true), (0.5, true)] {
        let (mut detector, mut events, mut noise) = (Adaptive::default(), Vec::new(), 0.0);
        for second in 0..720_000u64 {
            let tail = if is_heavy {
                let squares: f64 = (0..3).map(|_| normal(&mut prng).powi(2)).sum();
                1.0 / (squares / 3.0).sqrt()
            } else {
                1.0
            };
            noise = correlation * noise + normal(&mut prng) * tail;
            detector.observe(&parameters, BEGIN + second, Sample::Value(1000.5 + 20.0 * noise), &mut events);
        }
        let alarms = events.iter().filter(|event| matches!(event, Event::Begin(_))).count();
        assert!(alarms <= 100 + 30, "seed {seed}, correlation {correlation}, heavy {is_heavy}: {alarms}");
    }
}

#[test]
fn the_profile_explains_the_morning_of_the_second_week() {
    // A series whose level rises from 1000 to 2500 each day, mostly between 8 h and 9 h. In the second week the profile
    // contains this rise, so no event occurs.
    let mut prng = Prng::new(testkit::seed("the_profile_explains_the_morning_of_the_second_week"));
    let mut detector = Adaptive::default();
    let mut make = |second: u64| {
        let hour = (second % 86_400) as f64 / 3600.0;
        let day = 1.0 / (1.0 + (-(hour - 8.5) * 4.0).exp()) - 1.0 / (1.0 + (-(hour - 18.0) * 4.0).exp());
        Sample::Value((1000.0 + 1500.0 * day) * (1.0 + 0.05 * normal(&mut prng)))
    };
    feed(&mut detector, 0..7 * 86_400, &mut make);
    assert!(detector.trained_hours() >= 166, "{}", detector.trained_hours());
    let events = feed(&mut detector, 7 * 86_400..14 * 86_400, &mut make);
    assert_eq!(events, []);
}

#[test]
fn a_restored_state_continues_as_the_original() {
    let seed = testkit::seed("a_restored_state_continues_as_the_original");
    let mut prng = Prng::new(seed);
    let parameters = checked();
    let (mut original, mut restored) = (Adaptive::default(), Adaptive::default());
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for second in 0..30_000u64 {
        let step = if second > 8000 && second / 700 % 5 == 0 { 300.0 } else { 0.0 };
        let sample = match prng.below(200) {
            0 => Sample::Missing,
            1 => Sample::Untrusted,
            _ => Sample::Value(1000.0 + 20.0 * normal(&mut prng) + step),
        };
        if second % 97 == 0 {
            restored = Adaptive::restore(&restored.store()).expect("a state");
        }
        let verdict = original.observe(&parameters, BEGIN + second, sample, &mut left);
        assert_eq!(verdict, restored.observe(&parameters, BEGIN + second, sample, &mut right), "seed {seed}");
    }
    assert!(left.len() >= 10, "{left:?}");
    assert_eq!(left, right);
    assert_eq!(original, restored);
}

#[test]
fn damaged_and_foreign_states_are_refused() {
    let mut prng = Prng::new(testkit::seed("damaged_and_foreign_states_are_refused"));
    let bytes = trained(&mut prng, 3000).store();
    assert_eq!(Adaptive::restore(b"NG").map(|_| ()), Err(StateError::NoState));
    assert_eq!(Adaptive::restore(&bytes[1..]).map(|_| ()), Err(StateError::NoState));
    for index in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[index] ^= 1 << prng.below(8);
        assert!(Adaptive::restore(&damaged).is_err(), "{index}");
        assert!(Adaptive::restore(&bytes[..index]).is_err(), "{index}");
    }
    let mut newer = bytes;
    newer[3] = state::VERSION + 1;
    let error = Adaptive::restore(&newer).map(|_| ()).expect_err("another version");
    assert_eq!(error, StateError::Version(state::VERSION + 1));
    assert!(error.to_string().contains("version 2"), "{error}");
    let other = crate::SynFlood::new(crate::syn_flood::Parameters::default()).expect("parameters").store();
    assert_eq!(Adaptive::restore(&other).map(|_| ()), Err(StateError::Kind(Kind::SynFlood as u8)));
}
