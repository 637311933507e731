//! Simulated series: levels, noise, gaps, bursts and incidents.

use crate::incident::{Incident, IncidentKind};
use crate::noise::{Noise, NoiseShape, poisson, student};
use crate::season::{DAY, Shape, level};
use base::Prng;
use detect::Sample;

/// The first second of all series: Monday, 2026-11-02, 0 h UTC.
pub const BEGIN: u64 = 1_793_577_600;

/// Seconds of a series: two weeks.
pub const SECONDS: u64 = 14 * DAY;

/// The strengths of incidents, in standard deviations.
const STRENGTHS: [f64; 6] = [2.0, 3.0, 4.0, 6.0, 10.0, 20.0];

/// Seconds from the begin of the series to the first incident: the detectors have a day to learn.
const QUIET_SECONDS: u64 = DAY;

/// There is one incident in each interval of this length.
const INCIDENT_INTERVAL: u64 = 20 * 3600;

/// The latest begin of an incident in its interval, so that the next incident begins hours later.
const INCIDENT_BEGIN_MAX: u64 = 16 * 3600;

/// Gaps and bursts keep this distance from incidents, in seconds.
const DISTANCE: u64 = 900;

/// The kind of a simulated series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SeriesKind {
    /// Bits per second of a backbone link: little noise, slow components.
    BackboneBits,
    /// Packets per second of an office: nights almost without traffic, heavy tails.
    OfficePackets,
    /// Packets per second of a small site: small counts.
    SmallSite,
    /// New flows per second: heavy tails.
    NewFlows,
    /// Concurrent flows: strong correlation from second to second.
    ConcurrentFlows,
    /// SYN per second: counts with more variance than a Poisson distribution.
    Syn,
    /// ICMP packets per second: mostly zero.
    Icmp,
    /// SYN minus FIN per second: values of both signs.
    SynMinusFin,
    /// Bits per second of a growing network: correlation over many time scales, 30 % more in two weeks.
    GrowingBits,
    /// Bits per second of a content network: very heavy tails, correlation.
    ContentBits,
}

impl SeriesKind {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::BackboneBits,
        Self::OfficePackets,
        Self::SmallSite,
        Self::NewFlows,
        Self::ConcurrentFlows,
        Self::Syn,
        Self::Icmp,
        Self::SynMinusFin,
        Self::GrowingBits,
        Self::ContentBits,
    ];

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BackboneBits => "backbone bits",
            Self::OfficePackets => "office packets",
            Self::SmallSite => "small site",
            Self::NewFlows => "new flows",
            Self::ConcurrentFlows => "concurrent flows",
            Self::Syn => "syn",
            Self::Icmp => "icmp",
            Self::SynMinusFin => "syn minus fin",
            Self::GrowingBits => "growing bits",
            Self::ContentBits => "content bits",
        }
    }

    fn model(self) -> Model {
        let noise = |relative, correlation, freedom, slow| NoiseShape { relative, correlation, freedom, slow };
        let waves = |daily, weekend| Shape::Waves { daily, weekend };
        let usual = Model {
            mean: 1.0,
            shape: Shape::Flat,
            noise: noise(0.0, 0.0, None, 0.0),
            counts: Counts::Real,
            growth: 0.0,
        };
        match self {
            Self::BackboneBits => {
                Model { mean: 4e9, shape: waves(0.4, 0.8), noise: noise(0.04, 0.3, None, 0.5), ..usual }
            }
            Self::OfficePackets => Model {
                mean: 20_000.0,
                shape: Shape::Office { night: 0.05, weekend: 0.1 },
                noise: noise(0.12, 0.3, Some(5), 0.3),
                counts: Counts::Whole,
                ..usual
            },
            Self::SmallSite => Model {
                mean: 3.0,
                shape: Shape::Office { night: 0.1, weekend: 0.3 },
                noise: noise(0.1, 0.5, None, 0.0),
                counts: Counts::Poisson,
                ..usual
            },
            Self::NewFlows => Model {
                mean: 800.0,
                shape: waves(0.5, 0.7),
                noise: noise(0.06, 0.2, Some(5), 0.3),
                counts: Counts::Whole,
                ..usual
            },
            Self::ConcurrentFlows => Model {
                mean: 200_000.0,
                shape: waves(0.4, 0.8),
                noise: noise(0.02, 0.9, None, 0.0),
                counts: Counts::Whole,
                ..usual
            },
            Self::Syn => Model {
                mean: 60.0,
                shape: waves(0.5, 0.7),
                noise: noise(0.1, 0.4, None, 0.3),
                counts: Counts::Poisson,
                ..usual
            },
            Self::Icmp => Model { mean: 0.05, counts: Counts::OnOff, ..usual },
            Self::SynMinusFin => Model { mean: 8.0, counts: Counts::Difference, ..usual },
            Self::GrowingBits => {
                Model { mean: 6e8, shape: waves(0.5, 0.6), noise: noise(0.05, 0.2, None, 1.0), growth: 0.3, ..usual }
            }
            Self::ContentBits => {
                Model { mean: 2e9, shape: waves(0.6, 1.1), noise: noise(0.05, 0.5, Some(3), 0.3), ..usual }
            }
        }
    }
}

/// How a value follows from level and noise.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Counts {
    /// A real number.
    Real,
    /// A rounded number.
    Whole,
    /// A Poisson count.
    Poisson,
    /// Mostly zero, with groups of packets.
    OnOff,
    /// A difference of two counts.
    Difference,
}

#[derive(Clone, Copy, Debug)]
struct Model {
    mean: f64,
    shape: Shape,
    noise: NoiseShape,
    counts: Counts,
    growth: f64,
}

/// A simulated series of two weeks.
#[derive(Clone, Debug)]
pub struct Series {
    /// The kind.
    pub kind: SeriesKind,
    /// The values as a naive program gets them: also those of untrusted seconds. `None` in gaps.
    pub values: Vec<Option<f64>>,
    /// The incidents in order of time.
    pub incidents: Vec<Incident>,
    /// The day of the holiday, from 0.
    pub holiday: u64,
}

impl Series {
    /// The sample of a second from [`BEGIN`] on, and its second since 1970.
    pub fn samples(&self) -> impl Iterator<Item = (u64, Sample)> + '_ {
        let mut untrusted = self.incidents.iter().filter(|incident| !incident.kind.expects_alarm()).peekable();
        self.values.iter().zip(BEGIN..).map(move |(value, second)| {
            while untrusted.next_if(|incident| incident.end <= second).is_some() {}
            let is_untrusted = untrusted.peek().is_some_and(|incident| incident.begin <= second);
            let sample = match value {
                _ if is_untrusted => Sample::Untrusted,
                Some(value) => Sample::Value(*value),
                None => Sample::Missing,
            };
            (second, sample)
        })
    }
}

/// Simulates a series. Equal seeds give equal series.
pub fn simulate(kind: SeriesKind, seed: u64) -> Series {
    let mut prng = Prng::new(seed.wrapping_mul(1000).wrapping_add(kind as u64));
    // A working day of the second week.
    let holiday = 7 + prng.below(5);
    let model = kind.model();
    let levels: Vec<f64> = (0..SECONDS)
        .map(|second| {
            let growth = 1.0 + model.growth * second as f64 / SECONDS as f64;
            model.mean * growth * level(model.shape, second, holiday)
        })
        .collect();
    let mut values = noisy(&model, &levels, &mut prng);
    let deviations = deviations(&values, &levels);
    let mut incidents = draw_incidents(&mut prng);
    let is_signed = model.counts == Counts::Difference;
    for incident in &mut incidents {
        add(incident, &mut values, &levels, &deviations, is_signed);
    }
    let is_free = |second: u64, length: u64| {
        incidents.iter().all(|i| second + length + DISTANCE + BEGIN < i.begin || second + BEGIN > i.end + DISTANCE)
    };
    // Ten bursts of one or two seconds per day.
    for _ in 0..140 {
        let (second, length) = (prng.below(SECONDS - 2), 1 + prng.below(2));
        let strength = 5.0 + 25.0 * prng.unit();
        if is_free(second, length) {
            for at in second..second + length {
                values[at as usize] += strength * deviations[(at / 3600) as usize];
            }
        }
    }
    if !matches!(model.counts, Counts::Real) {
        values.iter_mut().for_each(|value| *value = value.round());
    }
    if !is_signed {
        values.iter_mut().for_each(|value| *value = value.max(0.0));
    }
    let mut values: Vec<Option<f64>> = values.into_iter().map(Some).collect();
    // Six gaps of a second to fifteen minutes.
    for _ in 0..6 {
        let length_max = [5, 60, 900][prng.below(3) as usize];
        let length = 1 + prng.below(length_max);
        let second = prng.below(SECONDS - length);
        if is_free(second, length) {
            values[second as usize..(second + length) as usize].fill(None);
        }
    }
    Series { kind, values, incidents, holiday }
}

/// The values without bursts, gaps and incidents.
fn noisy(model: &Model, levels: &[f64], prng: &mut Prng) -> Vec<f64> {
    let (mut noise, mut group) = (Noise::new(model.noise), 0u64);
    let values = levels.iter().map(|level| match model.counts {
        Counts::Real | Counts::Whole => level * (1.0 + noise.next(prng)),
        Counts::Poisson => {
            let mean = level * (1.0 + noise.next(prng)).max(0.05);
            poisson(prng, mean)
        }
        Counts::OnOff => {
            // A group of 5 packets in 5 seconds begins every 100 s on average.
            if group == 0 && prng.below(100) == 0 {
                group = 5;
            }
            let is_on = group > 0;
            group = group.saturating_sub(1);
            f64::from(u8::from(is_on)) + poisson(prng, *level)
        }
        Counts::Difference => (level / 4.0 + level * student(prng, 5)).round(),
    });
    values.collect()
}

/// The standard deviation about the level in each hour, at least a thousandth of the level and above 0.
fn deviations(values: &[f64], levels: &[f64]) -> Vec<f64> {
    let hours = values.chunks(3600).zip(levels.chunks(3600));
    hours
        .map(|(values, levels)| {
            let mean = values.iter().zip(levels).map(|(value, level)| value - level).sum::<f64>() / values.len() as f64;
            let square = values.iter().zip(levels).map(|(value, level)| (value - level - mean).powi(2)).sum::<f64>();
            (square / values.len() as f64).sqrt().max(levels[0].abs() / 1000.0).max(0.1)
        })
        .collect()
}

/// One incident in each interval: the kinds in turn from a random begin, with random strengths.
fn draw_incidents(prng: &mut Prng) -> Vec<Incident> {
    let count = (SECONDS - QUIET_SECONDS) / INCIDENT_INTERVAL;
    let first = prng.below(10);
    (0..count)
        .map(|index| {
            let begin = BEGIN + QUIET_SECONDS + index * INCIDENT_INTERVAL + prng.below(INCIDENT_BEGIN_MAX);
            let kind = IncidentKind::ALL[((first + index) % 10) as usize];
            let strength = STRENGTHS[prng.below(6) as usize];
            Incident::draw(prng, kind, begin, strength)
        })
        .collect()
}

/// Adds an incident to the values, and sets its strength to the strength that is possible.
fn add(incident: &mut Incident, values: &mut [f64], levels: &[f64], deviations: &[f64], is_signed: bool) {
    let first = (incident.begin - BEGIN) as usize;
    let deviation = deviations[first / 3600];
    if incident.strength < 0.0 && !is_signed {
        incident.strength = incident.strength.max(-levels[first] / deviation);
    }
    for second in incident.begin..incident.end {
        let value = &mut values[(second - BEGIN) as usize];
        *value += incident.share(second) * incident.strength * deviation;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_seed_has_more_than_a_hundred_incidents_of_ten_kinds_apart_from_each_other() {
        for seed in 0..20 {
            let mut all = Vec::new();
            for kind in SeriesKind::ALL {
                let mut prng = Prng::new(seed * 1000 + kind as u64);
                let incidents = draw_incidents(&mut prng);
                assert!(incidents.windows(2).all(|two| two[0].end + DISTANCE < two[1].begin));
                assert!(incidents.iter().all(|incident| incident.end < BEGIN + SECONDS));
                all.extend(incidents);
            }
            assert!(all.len() >= 100);
            for kind in IncidentKind::ALL {
                assert!(all.iter().any(|incident| incident.kind == kind), "{kind:?}");
            }
        }
    }

    #[test]
    fn equal_seeds_give_equal_series_and_incidents_have_their_strength() {
        let seed = testkit::seed("equal_seeds_give_equal_series_and_incidents_have_their_strength") % 1000;
        let series = simulate(SeriesKind::SynMinusFin, seed);
        assert_eq!(series.values, simulate(SeriesKind::SynMinusFin, seed).values);
        let mean = |from: u64, to: u64| {
            let values = &series.values[(from - BEGIN) as usize..(to - BEGIN) as usize];
            values.iter().flatten().sum::<f64>() / values.len() as f64
        };
        let constant = |incident: &&Incident| incident.kind == IncidentKind::Exfiltration;
        for incident in series.incidents.iter().filter(constant) {
            let before = mean(incident.begin - 3600, incident.begin);
            let found = (mean(incident.begin, incident.end) - before) / 8.0;
            assert!((found / incident.strength - 1.0).abs() < 0.25, "seed {seed}: {found} {incident:?}");
        }
    }

    #[test]
    fn untrusted_seconds_are_those_of_capture_loss_and_clock_steps() {
        let series = simulate(SeriesKind::Icmp, 1);
        let untrusted = series.samples().filter(|(_, sample)| *sample == Sample::Untrusted).count() as u64;
        let hidden = series.incidents.iter().filter(|incident| !incident.kind.expects_alarm());
        assert_eq!(untrusted, hidden.map(|incident| incident.end - incident.begin).sum::<u64>());
        assert!(untrusted > 0);
        assert_eq!(series.samples().count() as u64, SECONDS);
    }
}
