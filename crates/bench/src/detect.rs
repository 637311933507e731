//! Measures the detectors on simulated series with labelled incidents (crate `incidents`): recall, precision, delay and
//! false alarms of the adaptive detector, of fixed thresholds as FastNetMon has them, and of an exponential mean with a
//! band. All programs get the same series.
//!
//! The parameters of the adaptive detector were chosen with the seeds 100 to 109. The default seeds are 1 to 10. A
//! comparison of the default parameters with others must use the seeds from 100 on.

mod baselines;

use crate::output::{Output, Stop};
use ::detect::{Adaptive, Change, Event, adaptive};
use baselines::{Ewma, FixedThreshold};
use clap::Args;
use incidents::{Incident, IncidentKind, Score, Series, SeriesKind, score, simulate};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

/// Weeks of a series.
const WEEKS: f64 = 2.0;

/// Flags of `netgrain-bench detect`.
#[derive(Args, Clone, Debug)]
pub struct DetectArgs {
    /// First seed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = base::units::whole::<u64>(0..=1_000_000))]
    pub seed: u64,
    /// Number of seeds
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = base::units::whole::<u64>(1..=1000))]
    pub seeds: u64,
    /// Smallest strength of the incidents for recall and delay, in standard deviations
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = base::units::whole::<u64>(1..=100))]
    pub strength: u64,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// The programs that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Program {
    Adaptive,
    Fixed,
    Ewma,
    EwmaThree,
}

impl Program {
    const ALL: [Self; 4] = [Self::Adaptive, Self::Fixed, Self::Ewma, Self::EwmaThree];

    const fn name(self) -> &'static str {
        match self {
            Self::Adaptive => "adaptive",
            Self::Fixed => "fixed",
            Self::Ewma => "ewma",
            Self::EwmaThree => "ewma, 3 s",
        }
    }

    /// The alarms of the series: for each alarm, the time of its confirmation in seconds, and the direction of the
    /// change.
    fn alarms(self, series: &Series) -> Vec<(u64, Change)> {
        match self {
            Self::Adaptive => adaptive_alarms(series),
            Self::Fixed => FixedThreshold::alarms(&series.values),
            Self::Ewma => Ewma::alarms(&series.values, 1),
            Self::EwmaThree => Ewma::alarms(&series.values, 3),
        }
    }
}

fn adaptive_alarms(series: &Series) -> Vec<(u64, Change)> {
    // The default parameters are valid.
    let Ok(parameters) = adaptive::Checked::new(adaptive::Parameters::default()) else { return Vec::new() };
    let (mut detector, mut events) = (Adaptive::default(), Vec::new());
    for (second, sample) in series.samples() {
        detector.observe(&parameters, second, sample, &mut events);
    }
    let begins = events.iter().filter_map(|event| match event {
        Event::Begin(alarm) => Some((alarm.confirmed, alarm.change)),
        Event::Update(_) | Event::End { .. } => None,
    });
    begins.collect()
}

/// Sums over series.
#[derive(Clone, Debug, Default)]
struct Sums {
    series: u64,
    strong: u64,
    found: u64,
    delays: Vec<u64>,
    true_alarms: u64,
    false_alarms: u64,
    /// Capture losses and clock steps, and those without an alarm.
    hidden: u64,
    hidden_right: u64,
    spent: Duration,
}

impl Sums {
    fn add(&mut self, score: &Score, strength: f64, selected: impl Fn(&Incident) -> bool) {
        // The strength of an outage at a low level can be a little below the requested strength.
        for found in score.at_least(strength - 0.001).filter(|found| selected(&found.incident)) {
            self.strong += 1;
            self.found += u64::from(found.delay.is_some());
            self.delays.extend(found.delay);
        }
        for found in score.found.iter().filter(|found| !found.incident.kind.expects_alarm()) {
            self.hidden += 1;
            self.hidden_right += u64::from(found.is_right());
        }
        self.true_alarms += score.true_alarms;
        self.false_alarms += score.false_alarms.len() as u64;
        self.series += 1;
    }
}

/// A row of the result.
#[derive(Debug, Serialize)]
struct Accuracy {
    program: &'static str,
    /// The seed, or the part of the data over all seeds.
    data: String,
    /// Incidents with an expected alarm and at least the strength, and those found.
    incidents: u64,
    found: u64,
    recall: f64,
    /// The share of the alarms that belong to an incident of any strength.
    precision: f64,
    delay_median_seconds: Option<u64>,
    delay_p90_seconds: Option<u64>,
    false_alarms: u64,
    false_alarms_per_series_week: f64,
    /// The share of capture losses and clock steps that raised no alarm.
    quiet_data_faults: f64,
    /// Time per sample, with the conversion of the samples.
    nanoseconds_per_sample: f64,
}

impl Accuracy {
    fn of(program: Program, data: String, mut sums: Sums) -> Self {
        sums.delays.sort_unstable();
        let share = |part: u64, all: u64| if all == 0 { 1.0 } else { part as f64 / all as f64 };
        let quantile = |q: usize| sums.delays.get(sums.delays.len() * q / 100).copied();
        let samples = sums.series as f64 * incidents::SECONDS as f64;
        Self {
            program: program.name(),
            data,
            incidents: sums.strong,
            found: sums.found,
            recall: share(sums.found, sums.strong),
            precision: share(sums.true_alarms, sums.true_alarms + sums.false_alarms),
            delay_median_seconds: quantile(50),
            delay_p90_seconds: quantile(90),
            false_alarms: sums.false_alarms,
            false_alarms_per_series_week: sums.false_alarms as f64 / (sums.series as f64 * WEEKS),
            quiet_data_faults: share(sums.hidden_right, sums.hidden),
            nanoseconds_per_sample: sums.spent.as_nanos() as f64 / samples,
        }
    }

    fn line(&self) -> String {
        let seconds = |delay: Option<u64>| delay.map_or_else(|| "-".to_owned(), |delay| format!("{delay} s"));
        format!(
            "{:<10} {:<18} {:>9} {:>7.3} {:>9.3} {:>8} {:>8} {:>13.3} {:>12.3} {:>9.0}",
            self.program,
            self.data,
            self.incidents,
            self.recall,
            self.precision,
            seconds(self.delay_median_seconds),
            seconds(self.delay_p90_seconds),
            self.false_alarms_per_series_week,
            self.quiet_data_faults,
            self.nanoseconds_per_sample
        )
    }
}

/// Measures and prints the results.
pub fn run(args: &DetectArgs, out: &mut dyn Write) -> Result<(), Stop> {
    let mut sheet = Output::begin(out, args.json, "detect")?;
    sheet.note(format_args!(
        "{} series of two weeks per seed; recall and delay of incidents of at least {} standard deviations",
        SeriesKind::ALL.len(),
        args.strength
    ))?;
    sheet.head(
        "program    data               incidents  recall precision   median      p90 false/ser/week quiet faults  \
         ns/value",
    )?;
    let strength = args.strength as f64;
    let (mut totals, mut kinds, mut incident_kinds) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for seed in args.seed..args.seed + args.seeds {
        let mut seed_sums: BTreeMap<Program, Sums> = BTreeMap::new();
        for kind in SeriesKind::ALL {
            let series = simulate(kind, seed);
            for program in Program::ALL {
                let begin = Instant::now();
                let alarms = program.alarms(&series);
                let spent = begin.elapsed();
                let result = score(&series.incidents, &alarms);
                for sums in [
                    seed_sums.entry(program).or_default(),
                    totals.entry(program).or_insert_with(Sums::default),
                    kinds.entry((program, kind)).or_insert_with(Sums::default),
                ] {
                    sums.add(&result, strength, |_| true);
                    sums.spent += spent;
                }
                for kind in IncidentKind::ALL.into_iter().filter(|kind| kind.expects_alarm()) {
                    let sums = incident_kinds.entry((program, kind)).or_insert_with(Sums::default);
                    sums.add(&result, strength, |incident| incident.kind == kind);
                    sums.spent += spent;
                }
            }
        }
        for (program, sums) in seed_sums {
            let row = Accuracy::of(program, format!("seed {seed}"), sums);
            sheet.row("accuracy", &row, row.line())?;
        }
    }
    for ((program, kind), sums) in kinds {
        let row = Accuracy::of(program, kind.name().to_owned(), sums);
        sheet.row("accuracy", &row, row.line())?;
    }
    // The alarms of a series are counted once for each kind of incident, so these rows have no precision of their own.
    for ((program, kind), sums) in incident_kinds.into_iter().filter(|((program, _), _)| *program == Program::Adaptive)
    {
        let row = Accuracy::of(program, kind.name().to_owned(), sums);
        sheet.row("incident_kind", &row, row.line())?;
    }
    for (program, sums) in totals {
        let row = Accuracy::of(program, "all".to_owned(), sums);
        sheet.row("accuracy", &row, row.line())?;
    }
    Ok(())
}
