//! Synthetic traffic for files: conversations, packets with given distributions of size, flow and gap, and self-similar
//! sources. Each frame has a computed time, which becomes its timestamp in the file. `netgrain replay` sends the file
//! with this timing.
//!
//! The frames of `mix` and `onoff` have the layout and the signature of [`crate::Traffic`], so that the checker finds
//! missing and damaged frames.

use crate::conversations::{ConversationSpec, ConversationTruth, Conversations, MAX_CLIENTS, MAX_LOSS};
use crate::crc::crc32c;
use crate::distribution::{Distribution, ParseDistributionError, exp, ln};
use crate::layout::{Flow, MAX_FRAME, MIN_FRAME, at, header_sum, template};
use crate::on_off::{MAX_SOURCES, OnOff, OnOffDepartures};
use crate::spec::MAX_FLOWS;
use base::units::{parse_count, parse_span};
use base::{Prng, Timestamp};
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The rule that chooses the flow of each packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FlowChoice {
    /// The flows take turns.
    Even,
    /// All flows are equally probable.
    Uniform,
    /// The probability of flow `k` is in proportion to `k` to the power of minus this exponent.
    Zipf(f64),
}

/// Packets whose sizes, flows and gaps have given distributions.
#[derive(Clone, Debug, PartialEq)]
pub struct MixSpec {
    /// Frame lengths in bytes, limited to 60 to 9014.
    pub size: Distribution,
    /// Gaps between packets in nanoseconds.
    pub gap: Distribution,
    /// Number of flows.
    pub flows: u32,
    /// The rule that chooses the flow of each packet.
    pub choice: FlowChoice,
}

/// The kind of synthetic traffic.
#[derive(Clone, Debug, PartialEq)]
pub enum SyntheticKind {
    /// TCP conversations.
    Conversations(ConversationSpec),
    /// Packets whose sizes, flows and gaps have given distributions.
    Mix(MixSpec),
    /// Self-similar sources, and the frame lengths of their packets.
    OnOff(OnOff, Distribution),
}

/// A description of synthetic traffic.
#[derive(Clone, Debug, PartialEq)]
pub struct SyntheticSpec {
    /// The kind of traffic.
    pub kind: SyntheticKind,
    /// The traffic ends after this number of frames.
    pub packets: Option<u64>,
    /// The traffic ends after this time.
    pub duration: Option<Duration>,
    /// Seed of all random numbers of the traffic.
    pub seed: u64,
}

/// The reason why a text describes no synthetic traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseSyntheticError {
    /// The first word is no kind of synthetic traffic.
    Kind(String),
    /// Traffic of this kind does not have this key. The second field lists the keys that it has.
    Key(String, &'static str),
    /// The value of a key is invalid. The second field describes a valid value.
    Value(String, &'static str),
    /// The value of a key is no distribution.
    Distribution(String, ParseDistributionError),
    /// The traffic would have no end.
    Endless(&'static str),
    /// The traffic would have no end, because its gaps are zero.
    NoGaps,
    /// Samples of the distribution of a key can be too large. The second field is the limit.
    TooLarge(String, &'static str),
}

impl fmt::Display for ParseSyntheticError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(text) => write!(f, "{text:?} is no synthetic traffic: write tcp, mix or onoff"),
            Self::Key(text, keys) => write!(f, "{text:?} is no key of this traffic: write {keys}"),
            Self::Value(part, expected) => write!(f, "{part:?}: write {expected}"),
            Self::Distribution(key, e) => write!(f, "{key}: {e}"),
            Self::NoGaps => f.write_str(
                "mix with gaps of 0 does not end by its duration: add packets=100k, or write gaps above 0: \
                 gap=exp:10us",
            ),
            Self::TooLarge(part, most) => write!(
                f,
                "{part:?} can give values above {most}: write a smaller value; samples of exp can be 37 times the mean"
            ),
            Self::Endless(kind) => write!(f, "{kind} needs an end: add packets=100k or duration=10s"),
        }
    }
}

impl std::error::Error for ParseSyntheticError {}

const TCP_KEYS: &str = "clients, total, request, response, rtt, think, loss, mss, packets, duration or seed";
const MIX_KEYS: &str = "size, gap, flows, choice, packets, duration or seed";
const ON_OFF_KEYS: &str = "sources, on, off, gap, size, packets, duration or seed";

/// The largest duration of a key in nanoseconds, so that no time overflows.
const TIME_MAX: f64 = 10.0 * 86_400e9;
const TIME_MAX_TEXT: &str = "10 days";

/// The largest number of bytes of a request or a response.
const BYTES_MAX: f64 = 1e12;

/// The least bound of the gaps of a mix, in nanoseconds, that ends by its duration. With smaller gaps the file would
/// have more than a million million frames per second.
const GAP_MIN: f64 = 1e-3;

impl SyntheticSpec {
    /// True if the text begins with a kind of synthetic traffic.
    pub fn is_synthetic(text: &str) -> bool {
        ["tcp", "mix", "onoff"].contains(&text.split(',').next().unwrap_or_default())
    }

    fn of_kind(name: &str) -> Option<Self> {
        let times = |nanos| Distribution::Exponential(nanos);
        let kind = match name {
            "tcp" => SyntheticKind::Conversations(ConversationSpec {
                clients: 100,
                total: 1000,
                request: Distribution::Uniform(100.0, 2000.0),
                response: Distribution::Pareto { exponent: 1.2, least: 200.0, most: 10e6 },
                round_trip: Distribution::Uniform(1e6, 100e6),
                think: times(1e9),
                loss: 0.01,
                segment: 1460,
                seed: 1,
            }),
            "mix" => SyntheticKind::Mix(MixSpec {
                size: Distribution::Listed(vec![(60.0, 7), (590.0, 4), (1514.0, 1)]),
                gap: times(1e6),
                flows: 1000,
                choice: FlowChoice::Zipf(1.0),
            }),
            "onoff" => {
                let duration = |least| Distribution::Pareto { exponent: 1.4, least, most: 1000e9 };
                let sources = OnOff { sources: 100, on: duration(100e6), off: duration(300e6), gap: 10_000_000 };
                SyntheticKind::OnOff(sources, Distribution::Listed(vec![(60.0, 7), (590.0, 4), (1514.0, 1)]))
            }
            _ => return None,
        };
        Some(Self { kind, packets: None, duration: None, seed: 1 })
    }
}

/// Parses `KIND,key=value,…`, as in `tcp,clients=50,total=10k,loss=2%`.
impl FromStr for SyntheticSpec {
    type Err = ParseSyntheticError;

    fn from_str(text: &str) -> Result<Self, ParseSyntheticError> {
        let mut parts = text.split(',').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let mut spec = Self::of_kind(name).ok_or_else(|| ParseSyntheticError::Kind(name.to_owned()))?;
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            spec.set(part, key, value)?;
        }
        if let SyntheticKind::Conversations(conversations) = &mut spec.kind {
            conversations.seed = spec.seed;
        }
        Ok(spec)
    }
}

impl SyntheticSpec {
    /// Checks that the traffic ends.
    ///
    /// # Errors
    /// If neither the number of packets nor the duration is limited, and traffic of this kind does not end by itself.
    pub fn has_end(&self) -> Result<(), ParseSyntheticError> {
        let kind = match &self.kind {
            SyntheticKind::Conversations(_) => return Ok(()),
            SyntheticKind::Mix(mix)
                if self.packets.is_none() && self.duration.is_some() && mix.gap.most() < GAP_MIN =>
            {
                return Err(ParseSyntheticError::NoGaps);
            }
            SyntheticKind::Mix(_) => "mix",
            SyntheticKind::OnOff(..) => "onoff",
        };
        let is_limited = self.packets.is_some() || self.duration.is_some();
        if is_limited { Ok(()) } else { Err(ParseSyntheticError::Endless(kind)) }
    }

    fn set(&mut self, part: &str, key: &str, value: &str) -> Result<(), ParseSyntheticError> {
        let bad = |expected| ParseSyntheticError::Value(part.to_owned(), expected);
        let distribution =
            || value.parse::<Distribution>().map_err(|e| ParseSyntheticError::Distribution(key.to_owned(), e));
        let bounded = |most: f64, text| {
            let found = distribution()?;
            if found.most() <= most { Ok(found) } else { Err(ParseSyntheticError::TooLarge(part.to_owned(), text)) }
        };
        let time = || bounded(TIME_MAX, TIME_MAX_TEXT);
        let bytes = || bounded(BYTES_MAX, "1 TB");
        let count = |most: u64, expected| {
            parse_count(value)
                .ok()
                .filter(|n| (1..=most).contains(n))
                .ok_or(ParseSyntheticError::Value(part.to_owned(), expected))
        };
        match key {
            "packets" => {
                self.packets = Some(count(u64::MAX, "a number of packets: packets=100k")?);
                return Ok(());
            }
            "duration" => {
                let span = parse_span(value).map_err(|_| bad("a span of time: duration=10s"))?;
                self.duration = Some(span);
                return Ok(());
            }
            "seed" => {
                self.seed = parse_count(value).map_err(|_| bad("a whole number: seed=7"))?;
                return Ok(());
            }
            _ => {}
        }
        match &mut self.kind {
            SyntheticKind::Conversations(spec) => match key {
                "clients" => spec.clients = count(MAX_CLIENTS.into(), "a number of clients from 1 to 1048576")? as u32,
                "total" => spec.total = count(u64::MAX, "a number of conversations: total=10k")?,
                "request" => spec.request = bytes()?,
                "response" => spec.response = bytes()?,
                "rtt" => spec.round_trip = time()?,
                "think" => spec.think = time()?,
                "loss" => spec.loss = share(value).ok_or(bad("a loss from 0 to 50%: loss=1% or loss=0.01"))?,
                "mss" => spec.segment = count(8960, "a segment size from 1 to 8960 bytes: mss=1460")? as u16,
                _ => return Err(ParseSyntheticError::Key(part.to_owned(), TCP_KEYS)),
            },
            SyntheticKind::Mix(spec) => match key {
                "size" => spec.size = distribution()?,
                "gap" => spec.gap = time()?,
                "flows" => spec.flows = count(MAX_FLOWS.into(), "a number of flows from 1 to 16777216")? as u32,
                "choice" => {
                    let zipf =
                        |text: &str| text.strip_prefix("zipf:")?.parse().ok().filter(|e| (0.0..=10.0).contains(e));
                    spec.choice = match value {
                        "even" => FlowChoice::Even,
                        "uniform" => FlowChoice::Uniform,
                        _ => {
                            FlowChoice::Zipf(zipf(value).ok_or(bad("choice=even, choice=uniform or choice=zipf:1.1"))?)
                        }
                    }
                }
                _ => return Err(ParseSyntheticError::Key(part.to_owned(), MIX_KEYS)),
            },
            SyntheticKind::OnOff(spec, size) => match key {
                "sources" => spec.sources = count(MAX_SOURCES.into(), "a number of sources from 1 to 1048576")? as u32,
                "on" => spec.on = time()?,
                "off" => spec.off = time()?,
                "gap" => {
                    let is_valid = |span: &Duration| !span.is_zero() && span.as_nanos() as f64 <= TIME_MAX;
                    let span = parse_span(value).ok().filter(is_valid);
                    spec.gap = span.ok_or(bad("a span of time above 0, up to 10 days: gap=10ms"))?.as_nanos() as u64;
                }
                "size" => *size = distribution()?,
                _ => return Err(ParseSyntheticError::Key(part.to_owned(), ON_OFF_KEYS)),
            },
        }
        Ok(())
    }
}

/// Parses a probability from 0 to [`MAX_LOSS`], such as `0.01` or `1%`.
fn share(text: &str) -> Option<f64> {
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().ok()? / 100.0,
        None => text.parse().ok()?,
    };
    (0.0..=MAX_LOSS).contains(&number).then_some(number)
}

/// Synthetic traffic as a sequence of frames.
#[derive(Debug)]
pub struct Synthetic {
    source: FrameSource,
    begin: Timestamp,
    end: u64,
    left: u64,
    keeps_truth: bool,
}

#[derive(Debug)]
enum FrameSource {
    Conversations(Box<Conversations>),
    Mix(MixSpec, Box<Composer>, Chooser, MixTime),
    OnOff(OnOffDepartures, Distribution, Box<Composer>),
}

/// The time of the next packet of a mix. The gaps are not whole numbers of nanoseconds; the fraction is carried to the
/// next gap, so that the mean gap is exact.
#[derive(Clone, Copy, Debug, Default)]
struct MixTime {
    nanos: u64,
    fraction: f64,
}

impl MixTime {
    fn advance(&mut self, gap: f64) {
        let gap = gap + self.fraction;
        let whole = gap.floor();
        self.nanos = self.nanos.saturating_add(whole as u64);
        self.fraction = gap - whole;
    }
}

impl Synthetic {
    /// The traffic of a specification, without the truth of conversations. `begin` is the time 0 of the traffic.
    pub fn new(spec: &SyntheticSpec, begin: Timestamp) -> Self {
        let composer = || Box::new(Composer::new(spec.seed));
        let source = match &spec.kind {
            SyntheticKind::Conversations(conversations) => {
                FrameSource::Conversations(Box::new(Conversations::new(conversations)))
            }
            SyntheticKind::Mix(mix) => FrameSource::Mix(mix.clone(), composer(), Chooser::new(mix), MixTime::default()),
            SyntheticKind::OnOff(sources, size) => {
                FrameSource::OnOff(OnOffDepartures::new(sources.clone(), spec.seed), size.clone(), composer())
            }
        };
        let end = spec.duration.map_or(u64::MAX, |span| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
        Self { source, begin, end, left: spec.packets.unwrap_or(u64::MAX), keeps_truth: false }
    }

    /// Keeps the truths of conversations until [`Synthetic::take_ended`] and [`Synthetic::take_open`] take them.
    pub fn with_truth(self) -> Self {
        Self { keeps_truth: true, ..self }
    }

    /// Length of the longest frame in bytes.
    pub fn max_len(&self) -> usize {
        match &self.source {
            FrameSource::Conversations(conversations) => conversations.max_len(),
            FrameSource::Mix(..) | FrameSource::OnOff(..) => MAX_FRAME,
        }
    }

    /// Writes the next frame into `buf`, and returns its time and its length; `None` at the end.
    ///
    /// # Panics
    /// If `buf` is shorter than [`Synthetic::max_len`].
    pub fn next(&mut self, buf: &mut [u8]) -> Option<(Timestamp, usize)> {
        self.left = self.left.checked_sub(1)?;
        let at = |begin: Timestamp, time| begin.after(Duration::from_nanos(time));
        let (time, len) = match &mut self.source {
            FrameSource::Conversations(conversations) => {
                let frame = conversations.next(self.end, buf);
                if !self.keeps_truth {
                    drop(conversations.take_ended());
                }
                frame?
            }
            FrameSource::Mix(spec, composer, chooser, time) => {
                let now = time.nanos;
                time.advance(spec.gap.sample(&mut composer.prng));
                let flow = chooser.next(&mut composer.prng);
                (now, composer.write(&spec.size, flow, at(self.begin, now), buf))
            }
            FrameSource::OnOff(departures, size, composer) => {
                let (time, source) = departures.depart();
                (time, composer.write(size, source.into(), at(self.begin, time), buf))
            }
        };
        (time < self.end).then(|| (at(self.begin, time), len))
    }

    /// The truths of the conversations that ended since the last call; none for other kinds.
    pub fn take_ended(&mut self) -> Vec<ConversationTruth> {
        match &mut self.source {
            FrameSource::Conversations(conversations) => conversations.take_ended(),
            FrameSource::Mix(..) | FrameSource::OnOff(..) => Vec::new(),
        }
    }

    /// Ends the traffic, and returns the truths of the conversations that are open; none for other kinds.
    pub fn take_open(&mut self) -> Vec<ConversationTruth> {
        self.left = 0;
        match &mut self.source {
            FrameSource::Conversations(conversations) => conversations.take_open(),
            FrameSource::Mix(..) | FrameSource::OnOff(..) => Vec::new(),
        }
    }

    /// Number of frames whose length was limited to 60 to 9014 bytes.
    pub fn limited(&self) -> u64 {
        match &self.source {
            FrameSource::Conversations(_) => 0,
            FrameSource::Mix(_, composer, ..) | FrameSource::OnOff(_, _, composer) => composer.limited,
        }
    }
}

/// Chooses the flow of each packet.
#[derive(Debug)]
struct Chooser {
    choice: FlowChoice,
    flows: u64,
    next: u64,
    /// For Zipf's law: for each flow, the sum of its weight and the weights of all flows before it.
    sums: Vec<f64>,
}

impl Chooser {
    fn new(spec: &MixSpec) -> Self {
        let mut sums = Vec::new();
        if let FlowChoice::Zipf(exponent) = spec.choice {
            let mut sum = 0.0;
            sums.extend((1..=spec.flows).map(|k| {
                sum += exp(-exponent * ln(f64::from(k)));
                sum
            }));
        }
        Self { choice: spec.choice, flows: spec.flows.into(), next: 0, sums }
    }

    fn next(&mut self, prng: &mut Prng) -> u64 {
        match self.choice {
            FlowChoice::Even => {
                self.next += 1;
                (self.next - 1) % self.flows
            }
            FlowChoice::Uniform => prng.below(self.flows),
            FlowChoice::Zipf(_) => {
                let wanted = prng.unit() * self.sums.last().copied().unwrap_or(0.0);
                self.sums.partition_point(|sum| *sum <= wanted) as u64
            }
        }
    }
}

/// Writes frames with signature.
#[derive(Debug)]
struct Composer {
    prng: Prng,
    seed: u64,
    sequence: u64,
    limited: u64,
    /// The template of each length, and the sum of its header.
    templates: HashMap<usize, (Vec<u8>, u32)>,
}

impl Composer {
    fn new(seed: u64) -> Self {
        Self { prng: Prng::new(seed ^ 0x6d_6978), seed, sequence: 0, limited: 0, templates: HashMap::new() }
    }

    fn write(&mut self, size: &Distribution, flow: u64, now: Timestamp, buf: &mut [u8]) -> usize {
        let wanted = size.sample(&mut self.prng).round().min(1e9) as usize;
        let len = wanted.clamp(MIN_FRAME, MAX_FRAME);
        self.limited += u64::from(len != wanted);
        let (template, sum) = self.templates.entry(len).or_insert_with(|| {
            let frame = template(len, true, self.seed);
            let sum = header_sum(&frame);
            (frame, sum)
        });
        let frame = &mut buf[..len];
        frame.copy_from_slice(template);
        frame[at::FLOW].copy_from_slice(&Flow::of(flow).bytes(*sum));
        frame[at::STAMP.start..at::STAMP.start + 6].copy_from_slice(&self.sequence.to_be_bytes()[2..]);
        frame[at::STAMP.start + 6..at::STAMP.end].copy_from_slice(&now.nanos().to_be_bytes()[2..]);
        let crc = crc32c(&frame[..len - 4]);
        frame[len - 4..].copy_from_slice(&crc.to_be_bytes());
        self.sequence += 1;
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_describe_no_synthetic_traffic_are_refused_with_advice() {
        for (text, advice) in [
            ("udp", "write tcp, mix or onoff"),
            ("tcp,flows=5", "clients, total"),
            ("tcp,loss=60%", "loss=1%"),
            ("tcp,mss=0", "1 to 8960"),
            ("tcp,rtt=slow", "is no distribution"),
            ("mix,size=60", "add packets=100k or duration=10s"),
            ("mix,packets=1,choice=zipf", "choice=zipf:1.1"),
            ("onoff,duration=1s,gap=0", "gap=10ms"),
            ("onoff,duration=1", "duration=10s"),
            ("mix,gap=0,duration=1ms", "write gaps above 0"),
            ("mix,gap=list:0/0,duration=1ms", "write gaps above 0"),
            ("mix,gap=exp:1e19", "above 10 days"),
            ("onoff,on=1e19", "above 10 days"),
            ("onoff,gap=11d", "up to 10 days"),
            ("tcp,rtt=1e19", "above 10 days"),
            ("tcp,think=exp:1e15", "above 10 days"),
            ("tcp,think=normal:1:1e19", "above 10 days"),
            ("tcp,request=1e30", "above 1 TB"),
        ] {
            let parsed = text.parse::<SyntheticSpec>();
            let error = parsed.and_then(|spec| spec.has_end()).expect_err(text).to_string();
            assert!(error.contains(advice), "{text}: {error}");
        }
        assert!(SyntheticSpec::is_synthetic("tcp,loss=1%") && !SyntheticSpec::is_synthetic("imix"));
    }

    #[test]
    fn packets_and_duration_end_the_traffic() {
        let count = |text: &str| {
            let mut all = Synthetic::new(&text.parse().unwrap(), Timestamp::ZERO);
            let mut buf = vec![0; all.max_len()];
            let mut times = Vec::new();
            while let Some((time, _)) = all.next(&mut buf) {
                times.push(time.nanos());
            }
            assert!(times.is_sorted());
            (times.len(), times.last().copied().unwrap_or(0))
        };
        assert_eq!(count("mix,gap=1ms,packets=50"), (50, 49_000_000));
        assert_eq!(count("mix,gap=1ms,duration=20ms"), (20, 19_000_000));
        assert!(count("onoff,duration=30s").0 > 1000);
        assert_eq!(count("tcp,total=50,packets=70").0, 70);
    }

    #[test]
    fn fractions_of_gaps_are_carried() {
        let last = |text: &str| {
            let mut all = Synthetic::new(&text.parse().unwrap(), Timestamp::ZERO);
            let mut buf = vec![0; all.max_len()];
            std::iter::from_fn(|| all.next(&mut buf)).last().map(|(time, _)| time.nanos())
        };
        assert_eq!(last("mix,gap=67.25,packets=10001"), Some(672_500));
        assert_eq!(last("mix,gap=0.5,duration=1us"), Some(999), "gaps below a nanosecond end too");
        let mean = last("mix,gap=exp:10,packets=200001,seed=5").unwrap() as f64 / 200_000.0;
        assert!((mean - 10.0).abs() < 0.1, "mean gap {mean}, seed 5");
    }

    #[test]
    fn largest_permitted_times_and_sizes_do_not_overflow() {
        for text in [
            "tcp,rtt=10d,think=10d,total=9,clients=3,loss=30%",
            "tcp,think=exp:6h,rtt=normal:1d:12h,total=99",
            "tcp,request=1000GB,packets=50k,loss=0,clients=1",
            "onoff,on=10d,off=10d,gap=10d,packets=1000",
            "mix,gap=10d,packets=100000",
        ] {
            let mut all = Synthetic::new(&text.parse().unwrap(), Timestamp::from_nanos(1_795_257_720_000_000_000));
            let mut buf = vec![0; all.max_len()];
            let mut frames = 0;
            while all.next(&mut buf).is_some() {
                frames += 1;
            }
            assert!(frames > 20, "{text}: {frames} frames");
        }
    }

    #[test]
    fn the_truth_is_kept_only_on_request() {
        let spec = "tcp,total=50,clients=5".parse().unwrap();
        let ended = |mut all: Synthetic| {
            let mut buf = vec![0; all.max_len()];
            while all.next(&mut buf).is_some() {}
            all.take_ended().len()
        };
        assert_eq!(ended(Synthetic::new(&spec, Timestamp::ZERO)), 0);
        assert_eq!(ended(Synthetic::new(&spec, Timestamp::ZERO).with_truth()), 50);
    }

    #[test]
    fn flows_follow_their_choice() {
        let shares = |choice: &str| {
            let text = format!("mix,gap=1us,flows=100,size=60,packets=100k,choice={choice}");
            let mut all = Synthetic::new(&text.parse().unwrap(), Timestamp::ZERO);
            let mut buf = vec![0; all.max_len()];
            let mut counts = HashMap::<Vec<u8>, u64>::new();
            while let Some((_, len)) = all.next(&mut buf) {
                assert_eq!(len, 60);
                *counts.entry(buf[26..38].to_vec()).or_default() += 1;
            }
            let mut counts: Vec<u64> = counts.into_values().collect();
            counts.sort_unstable_by(|a, b| b.cmp(a));
            counts
        };
        assert!(shares("even").iter().all(|count| *count == 1000));
        assert!(shares("uniform").iter().all(|count| (800..1200).contains(count)));
        // With exponent 1 and 100 flows, flow 1 has 1 / H(100) = 19.28 % of the packets, and flow 2 has half as many
        // packets as flow 1. H(100) is the 100th harmonic number.
        let zipf = shares("zipf:1");
        assert!(zipf[0].abs_diff(19_277) < 600 && zipf[1].abs_diff(9638) < 500, "{zipf:?}");
    }

    #[test]
    fn lengths_outside_of_the_limits_are_counted() {
        let mut all = Synthetic::new(&"mix,size=list:20/100/20000,packets=300".parse().unwrap(), Timestamp::ZERO);
        let mut buf = vec![0; all.max_len()];
        let lens: Vec<usize> = std::iter::from_fn(|| all.next(&mut buf).map(|(_, len)| len)).collect();
        assert!(lens.iter().all(|len| [60, 100, 9014].contains(len)));
        assert_eq!(all.limited(), lens.iter().filter(|len| **len != 100).count() as u64);
    }
}
