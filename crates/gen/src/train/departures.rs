//! The planned departures of a train specification.
//!
//! Each departure is computed from the numbers of the packet in integers, so errors do not accumulate.

use super::TrainSpec;
use std::time::Duration;

/// The planned departure of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The number of the packet within the session, from 0.
    pub sequence: u64,
    /// The train, from 0.
    pub train: u32,
    /// The burst within the train, from 0.
    pub burst: u32,
    /// The number of the packet within its burst, from 0.
    pub index: u16,
    /// The time from the planned departure of the first packet of the session to that of this packet.
    pub at: Duration,
    /// The index of the frame length in the list `sizes` of the specification.
    pub size: usize,
}

/// The planned departures in order of time, up to the limits of the specification.
#[derive(Clone, Debug)]
pub struct Departures {
    per_burst: u64,
    bursts: u64,
    gap: u64,
    /// Nanoseconds from the first packet of a burst to the first packet of the next burst of the train.
    burst_period: u64,
    /// Nanoseconds from the first packet of a train to the first packet of the next train.
    train_period: u64,
    sizes: u64,
    /// Number of packets of all trains.
    packets: u64,
    /// Packets that are planned at this time or later are not sent. The time counts from the first departure.
    end: Duration,
    next: u64,
}

impl Departures {
    /// The departures of this specification.
    pub fn new(spec: &TrainSpec) -> Self {
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let (per_burst, bursts) = (u64::from(spec.per_burst), u64::from(spec.bursts));
        let burst_length = (per_burst - 1).saturating_mul(nanos(spec.gap));
        let burst_period = burst_length.saturating_add(nanos(spec.burst_gap));
        let train_length = (bursts - 1).saturating_mul(burst_period).saturating_add(burst_length);
        let has_other_limit = spec.packets.is_some() || spec.duration.is_some();
        let trains = u64::from(spec.trains.unwrap_or(if has_other_limit { u32::MAX } else { 1 }));
        let packets = trains.saturating_mul(bursts).saturating_mul(per_burst);
        Self {
            per_burst,
            bursts,
            gap: nanos(spec.gap),
            burst_period,
            train_period: train_length.saturating_add(nanos(spec.train_gap)),
            sizes: spec.sizes.len() as u64,
            packets: spec.packets.map_or(packets, |limit| packets.min(limit)),
            end: spec.duration.unwrap_or(Duration::MAX),
            next: 0,
        }
    }
}

impl Iterator for Departures {
    type Item = Departure;

    fn next(&mut self) -> Option<Departure> {
        let sequence = self.next;
        if sequence >= self.packets {
            return None;
        }
        let (all_bursts, index) = (sequence / self.per_burst, sequence % self.per_burst);
        let (train, burst) = (all_bursts / self.bursts, all_bursts % self.bursts);
        let at = train
            .checked_mul(self.train_period)?
            .checked_add(burst.checked_mul(self.burst_period)?)?
            .checked_add(index.checked_mul(self.gap)?)?;
        let at = Duration::from_nanos(at);
        if at >= self.end {
            return None;
        }
        self.next += 1;
        let (train, burst, index) = (train as u32, burst as u32, index as u16);
        Some(Departure { sequence, train, burst, index, at, size: (sequence % self.sizes) as usize })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn departures(spec: &str) -> Vec<Departure> {
        Departures::new(&spec.parse().unwrap()).take(100_000).collect()
    }

    /// The expected departures by their definition: each departure is the previous departure plus the gap between the
    /// two packets.
    fn by_definition(spec: &TrainSpec) -> Vec<Departure> {
        let (mut all, mut at, mut sequence) = (Vec::new(), Duration::ZERO, 0);
        for train in 0..spec.trains.unwrap() {
            for burst in 0..spec.bursts {
                for index in 0..spec.per_burst {
                    at += match (train, burst, index) {
                        (0, 0, 0) => Duration::ZERO,
                        (_, 0, 0) => spec.train_gap,
                        (_, _, 0) => spec.burst_gap,
                        _ => spec.gap,
                    };
                    let size = sequence as usize % spec.sizes.len();
                    all.push(Departure { sequence, train, burst, index, at, size });
                    sequence += 1;
                }
            }
        }
        all
    }

    #[test]
    fn departures_equal_the_sum_of_the_gaps_before_them() {
        let mut prng = base::Prng::new(18);
        for round in 0..200 {
            let spec = format!(
                "train,trains={},bursts={},per-burst={},gap={}ns,burst-gap={}ns,train-gap={}us,size=200:300:400",
                1 + prng.below(4),
                1 + prng.below(5),
                1 + prng.below(6),
                prng.below(3000),
                prng.below(90_000),
                prng.below(90_000),
            );
            let spec: TrainSpec = spec.parse().unwrap();
            let all: Vec<_> = Departures::new(&spec).collect();
            assert_eq!(all, by_definition(&spec), "round {round}, seed 18: {spec}");
        }
    }

    #[test]
    fn a_duration_or_a_number_of_packets_ends_the_departures() {
        assert_eq!(departures("train,bursts=10,per-burst=10,gap=1ms,burst-gap=1ms,packets=17").len(), 17);
        let limited = departures("train,per-burst=2,bursts=1,gap=1ms,train-gap=9ms,duration=25ms");
        let at: Vec<_> = limited.iter().map(|departure| departure.at.as_millis()).collect();
        assert_eq!(at, [0, 1, 10, 11, 20, 21]);
        assert_eq!(limited.last().map(|last| (last.train, last.sequence)), Some((2, 5)));
    }

    #[test]
    fn departures_end_before_the_clock_overflows() {
        let spec: TrainSpec = "train,trains=4000000000,train-gap=500y".parse().unwrap();
        assert_eq!(Departures::new(&spec).skip_while(|departure| departure.train < 1).count(), 100);
    }
}
