//! Several meters as one. Each conversation belongs to one of them, by its hash; what they make is put in one order.
//!
//! The records, their order included, do not depend on the number of shards, as long as none of them is full: each has its
//! part of the capacity and a little more, and which flows a full table ends depends on which are in it. Whether that
//! happened is counted (`counts().records[EndReason::LackOfResources as usize]`).
//!
//! From several threads, each shard is a [`Meter`] of its own, and [`ShardMerger`] puts the records in order: see there.

use crate::config::{Config, Packet};
use crate::counts::Counts;
use crate::expiry::{end_all, pass};
use crate::flow_packet::FlowPacket;
use crate::key::shard_of;
use crate::memory::{Hints, NoHints};
use crate::meter::Meter;
use crate::record::{Record, Sink};
use base::Timestamp;

/// See the module.
pub struct Shards<H = NoHints> {
    meters: Vec<Meter<H>>,
    /// The packets of this second that each meter has still to take.
    lanes: Vec<Vec<FlowPacket>>,
}

impl Shards {
    /// `count` shards (at least one) that have room for `config.capacity` flows together.
    pub fn new(config: &Config, interface: u16, count: usize) -> Self {
        Self::with_hints(config, interface, count, NoHints)
    }

    /// The settings of one of `count` shards: an eighth more than its part of the capacity, since hashes do not spread flows
    /// quite evenly.
    pub fn part(config: &Config, count: usize) -> Config {
        let count = count.max(1);
        let part = config.capacity.div_ceil(count);
        Config { capacity: if count == 1 { part } else { part + part / 8 + 64 }, ..config.clone() }
    }
}

impl<H: Hints> Shards<H> {
    /// The same, for whoever can make memory quicker to reach.
    pub fn with_hints(config: &Config, interface: u16, count: usize, hints: H) -> Self {
        let part = Shards::part(config, count);
        let meters = (0..count.max(1)).map(|_| Meter::with_hints(part.clone(), interface, hints)).collect::<Vec<_>>();
        Self { lanes: meters.iter().map(|_| Vec::new()).collect(), meters }
    }

    /// Takes packets in the order in which they came. Time passes with them.
    pub fn push(&mut self, packets: &[Packet], sink: &mut dyn Sink) {
        if let [meter] = &mut self.meters[..] {
            return meter.push(packets, sink);
        }
        let mut lane = FlowPacket::default();
        for (index, packet) in packets.iter().enumerate() {
            let second = packet.ts.secs();
            if self.meters[0].is_other_second(second) {
                self.run(packets, sink);
                pass(&mut self.meters, second, sink);
            }
            if self.meters[0].lane(packet, index, &mut lane) {
                self.lanes[shard_of(lane.hash, self.meters.len())].push(lane);
            } else {
                self.meters[0].count_other();
            }
        }
        self.run(packets, sink);
    }

    /// Every meter takes its packets of this second.
    fn run(&mut self, packets: &[Packet], sink: &mut dyn Sink) {
        for (meter, lanes) in self.meters.iter_mut().zip(&mut self.lanes) {
            meter.run(packets, lanes, sink);
            lanes.clear();
        }
    }

    /// Time has passed, with or without packets: none before `now` will come.
    pub fn tick(&mut self, now: Timestamp, sink: &mut dyn Sink) {
        if self.meters[0].is_other_second(now.secs()) {
            pass(&mut self.meters, now.secs(), sink);
        }
        self.meters.iter_mut().for_each(Meter::compress_idle_flows);
    }

    /// Makes the records of all flows and forgets them. Whatever packet comes next, time begins with it.
    pub fn finish(&mut self, sink: &mut dyn Sink) {
        end_all(&mut self.meters, sink);
        self.meters.iter_mut().for_each(|m| m.second = None);
    }

    /// The interface lost packets in a second: records that lie in it will say so.
    pub fn lost(&mut self, second: u64, packets: u64) {
        self.meters.iter_mut().for_each(|m| m.lost(second, packets));
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        self.meters.iter().fold(Counts::default(), |all, m| all.and(&m.counts()))
    }
}

/// Records of one shard that wait for those of the others.
///
/// With a meter per thread: give each packet to the meter that [`crate::Router`] names, give *every* meter a
/// tick whenever a packet begins a second ([`crate::Router::second`]), and after each such tick [`ShardMerger::merge`] what the
/// meters made. The records come out as from one meter.
#[derive(Debug, Default)]
pub struct ShardMerger {
    records: Vec<(u64, Record)>,
    second: u64,
}

impl ShardMerger {
    /// Gives the records of all shards to `sink`, in the order in which one meter had made them, and forgets them.
    pub fn merge<'a>(shards: impl IntoIterator<Item = &'a mut Self>, sink: &mut dyn Sink) {
        let mut all: Vec<(u64, Record)> = Vec::new();
        for shard in shards {
            all.append(&mut shard.records);
            shard.second = 0;
        }
        all.sort_by(|(s, a), (t, b)| (s, a.order()).cmp(&(t, b.order())));
        let mut second = 0;
        for (due, record) in &all {
            if *due != second {
                second = *due;
                sink.second(second);
            }
            sink.record(record);
        }
    }
}

impl Sink for ShardMerger {
    fn record(&mut self, record: &Record) {
        self.records.push((self.second, record.clone()));
    }

    fn second(&mut self, second: u64) {
        self.second = second;
    }
}
