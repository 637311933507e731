//! Several meters that act as one. Each flow belongs to one shard, which the hash of the flow key selects; the records
//! of all shards are emitted in one order.
//!
//! The records and their order do not depend on the number of shards, as long as no shard is full. The capacity of each
//! shard is its part of the total capacity and a little more. Which flows a full shard evicts depends on the flows in
//! that shard. `counts().records[EndReason::LackOfResources as usize]` is the number of evictions.
//!
//! With several threads, each shard is a separate [`Meter`], and [`ShardMerger`] merges the records.

use crate::config::{Config, Packet};
use crate::counts::Counts;
use crate::flow_packet::FlowPacket;
use crate::key::shard_of;
use crate::meter::Meter;
use crate::meter::expiry::{end_all, pass};
use crate::record::{Record, Sink};
use base::Timestamp;
use base::memory::{Hints, NoHints};

/// Several meters that act as one, in one thread.
pub struct Shards<H = NoHints> {
    meters: Vec<Meter<H>>,
    /// For each meter, the packets of this second that it has not yet metered.
    flow_packets: Vec<Vec<FlowPacket>>,
}

impl Shards {
    /// `count` shards (at least one) with a total capacity of `config.capacity` flows.
    pub fn new(config: &Config, interface: u16, count: usize) -> Self {
        Self::with_hints(config, interface, count, NoHints)
    }

    /// The configuration of one of `count` shards. Its capacity is an eighth above its part of the total, because
    /// hashes do not spread flows quite evenly.
    pub fn part(config: &Config, count: usize) -> Config {
        let count = count.max(1);
        let part = config.capacity.div_ceil(count);
        Config { capacity: if count == 1 { part } else { part + part / 8 + 64 }, ..config.clone() }
    }
}

impl<H: Hints> Shards<H> {
    /// As [`Shards::new`], with memory hints.
    pub fn with_hints(config: &Config, interface: u16, count: usize, hints: H) -> Self {
        let part = Shards::part(config, count);
        let meters = (0..count.max(1)).map(|_| Meter::with_hints(part.clone(), interface, hints)).collect::<Vec<_>>();
        Self { flow_packets: meters.iter().map(|_| Vec::new()).collect(), meters }
    }

    /// Meters packets in the order of their arrival. The timestamps of the packets advance the meters' time.
    pub fn push(&mut self, packets: &[Packet], sink: &mut dyn Sink) {
        if let [meter] = &mut self.meters[..] {
            return meter.push(packets, sink);
        }
        let mut flow_packet = FlowPacket::default();
        for (index, packet) in packets.iter().enumerate() {
            let second = packet.ts.secs();
            if self.meters[0].is_other_second(second) {
                self.run(packets, sink);
                pass(&mut self.meters, second, sink);
            }
            if self.meters[0].prepare(packet, index, &mut flow_packet) {
                self.flow_packets[shard_of(flow_packet.hash, self.meters.len())].push(flow_packet);
            } else {
                self.meters[0].count_other();
            }
        }
        self.run(packets, sink);
    }

    /// Passes to each meter its packets of this second.
    fn run(&mut self, packets: &[Packet], sink: &mut dyn Sink) {
        for (meter, flow_packets) in self.meters.iter_mut().zip(&mut self.flow_packets) {
            meter.run(packets, flow_packets, sink);
            flow_packets.clear();
        }
    }

    /// Advances time to `now`, with or without packets. No earlier packet may follow.
    pub fn tick(&mut self, now: Timestamp, sink: &mut dyn Sink) {
        if self.meters[0].is_other_second(now.secs()) {
            pass(&mut self.meters, now.secs(), sink);
        }
        self.meters.iter_mut().for_each(Meter::compress_idle_flows);
    }

    /// Ends all flows and makes their records. Afterwards, the timestamp of the next packet sets the meters' time anew.
    pub fn finish(&mut self, sink: &mut dyn Sink) {
        end_all(&mut self.meters, sink);
        self.meters.iter_mut().for_each(|m| m.second = None);
    }

    /// Reports the number of packets that the interface lost in a second. Flow records whose period contains this
    /// second will include the number.
    pub fn lost(&mut self, second: u64, packets: u64) {
        self.meters.iter_mut().for_each(|m| m.lost(second, packets));
    }

    /// The sum of the meters' counters.
    pub fn counts(&self) -> Counts {
        self.meters.iter().fold(Counts::default(), |all, m| all.and(&m.counts()))
    }
}

/// The records of one shard until they are merged with those of the other shards.
///
/// With one meter per thread: pass each packet to the meter that [`crate::Router::shard`] returns, call `tick` of
/// *every* meter whenever a packet begins a second ([`crate::Router::second`]), and after each such tick pass the
/// records of all shards to [`ShardMerger::merge`]. The records are then those of one meter.
#[derive(Debug, Default)]
pub struct ShardMerger {
    records: Vec<(u64, Record)>,
    second: u64,
}

impl ShardMerger {
    /// Passes the records of all shards to `sink`, in the order in which a single meter would make them, and removes
    /// them.
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
