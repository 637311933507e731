//! Layer 1: the metering process (RFC 7011), which makes flow records from packets.
//!
//! The input is a sequence of [`Packet`]s, the output is [`Record`]s. The clock is the timestamps of the packets.
//!
//! * [`Meter`] makes the flow records of one interface. [`Shards`] combines several meters into one. Both take
//!   [`Packet`]s in the order of their arrival and pass the records to a [`Sink`].
//! * [`Router`] and [`ShardMerger`] run each shard in its own thread, with the same records as [`Shards`].
//! * [`Config`] has the fields of the flow key, the timeouts and the limits; [`Counts`] has the counters.
//!
//! ```
//! use base::Timestamp;
//! use netgrain_flow::{Config, EndReason, Meter, Packet, Record};
//! use wire::{Decoded, build::Frame, link};
//!
//! let mut bytes = [0; 60];
//! let data = Frame::udp4([10, 0, 0, 1], 5353, [10, 0, 0, 2], 53).fill(&mut bytes);
//! let decoded = Decoded::of(data, 60, link::ETHERNET);
//! let ts = Timestamp::from_secs_nanos(1000, 5);
//! let packet = Packet { ts, wire_len: 60, data, decoded: &decoded, position: 24, queue: 0 };
//!
//! let mut records: Vec<Record> = Vec::new();
//! let mut meter = Meter::new(Config::default(), 0);
//! meter.push(&[packet], &mut records);
//! meter.tick(Timestamp::from_secs_nanos(1031, 0), &mut records);
//! assert_eq!((records[0].end_reason, records[0].directions[0].packets), (EndReason::IdleTimeout, 1));
//! // The expiry delay is 0.999999995 s, because time advances in whole seconds.
//! assert_eq!(meter.counts().expiry_delays.records[7], 1);
//! ```
#![forbid(unsafe_code)]

mod bits;
mod compact_counters;
mod compress;
mod config;
mod counts;
mod entry;
mod extra_fields;
mod flow_packet;
mod key;
mod losses;
mod macs;
mod meter;
mod order;
mod packet_fields;
mod packet_list;
mod payload;
mod pool;
mod record;
mod router;
pub mod sample;
pub mod schema;
mod shards;
mod slab;
mod table;
mod tcp;
#[cfg(test)]
mod tests;
mod tunnel_sequences;
mod wheel;
mod wide_counters;

pub use base::memory::{Hints, NoHints};
pub use config::{Config, KeyFields, Packet};
pub use counts::{Counts, ExpiryDelays};
pub use meter::{Meter, STEP_BACK};
pub use record::{
    DirectionStats, Encapsulation, EndReason, InitialPacket, Key, PacketLocation, Record, Sink, Stats, TcpState,
    tunnel_name,
};
pub use router::Router;
pub use shards::{ShardMerger, Shards};
