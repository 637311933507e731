//! Generates test traffic: frames with a sequence number, departure time and checksum. Every live test sends these
//! frames and verifies the stored frames with them.
//!
//! Each frame has its number, its departure time and a checksum, so a program that reads only the stored files can tell
//! which frames are missing, duplicated, out of order or damaged (`crates/checker` does, without shared code).
//!
//! ```text
//! byte  0        6        12     14        24    26        30        34    36    38    40
//!      +--------+--------+------+---------+-----+---------+---------+-----+-----+-----+-----+
//!      | to     | from   | 0800 | IPv4 .. | sum | 10.flow | 198.18. | src | dst | len |  0  |
//!      +--------+--------+------+---------+-----+---------+---------+-----+-----+-----+-----+
//!       42      44                 50                 56               n-4            n
//!      +-------+------------------+------------------+----- - - ------+--------------+
//!      | magic | sequence, 48 bit | departure, 48 bit|     filling    |    CRC32C    |
//!      +-------+------------------+------------------+----- - - ------+--------------+
//! ```
//!
//! - All fields are big-endian. `n` is 60 (then there is no filling) to [`MAX_FRAME`] bytes, without frame check
//!   sequence.
//! - `to` and `from` are locally administered addresses: they begin 02:6e:67 in frames with signature, 02:00:00 in
//!   frames without.
//! - `magic` is 0x6e67, "ng"; frames without signature have zeros in the bytes 42 to 55, then filling up to their end,
//!   and no CRC.
//! - `sequence` counts the frames of one generator from 0, over all flows.
//! - `departure` is the low 48 bits of UTC nanoseconds: one nanosecond of resolution and a period of 78 hours, so
//!   that a timestamp within 39 hours of the departure restores the upper bits.
//! - `CRC32C` (Castagnoli; RFC 9260 appendix A) covers every byte before it.
//! - The low 24 bits of the flow id are the low 24 bits of the source address, and the next 26 bits choose the ports,
//!   so flows are distinct 5-tuples; see [`Flow`]. The UDP checksum is 0, which RFC 768 allows over IPv4, so that only
//!   the CRC depends on the payload.
//!
//! The frames of [`train`] have another payload, for measurements of delay. [`Synthetic`] generates traffic for files:
//! TCP conversations with loss, packets with given distributions of size, flow and gap, and packets of self-similar
//! sources.
//!
//! The frames are a function of the [`Spec`]: equal specifications give equal frames on every machine. Only the
//! departure times differ; the caller passes them as arguments.
//!
//! ```
//! # use base::Timestamp;
//! # use netgrain_gen::{Pacer, Spec, Traffic};
//! let spec: Spec = "imix,flows=100,rate=1Mpps,truth".parse()?;
//! let (mut traffic, start) = (Traffic::new(&spec), Timestamp::from_nanos(1_700_000_000_000_000_000));
//! let mut pacer = Pacer::new(spec.rate, start);
//! let mut buf = vec![0; traffic.max_len()];
//! let now = Timestamp::from_nanos(start.nanos() + 2500);
//! while pacer.due(now, buf.len()) > 0 {
//!     let len = traffic.fill(&mut buf, now);
//!     // … send buf[..len] …
//!     pacer.sent(1, len as u64);
//! }
//! assert_eq!(traffic.sequence(), 3); // the frames due at 0, 1 and 2 microseconds
//! # Ok::<(), netgrain_gen::SpecError>(())
//! ```
#![forbid(unsafe_code)]

mod backbone;
mod conversations;
mod crc;
mod distribution;
mod internet_checksum;
mod layout;
mod on_off;
mod pacer;
mod parts;
mod spec;
mod synthetic;
mod tcp_endpoint;
mod tcp_frame;
mod traffic;
pub mod train;

pub use backbone::backbone_lengths;
pub use conversations::{ConversationSpec, ConversationTruth, Conversations};
pub use crc::crc32c;
pub use distribution::{Distribution, ParseDistributionError};
pub use layout::{Flow, MAGIC, MAX_FRAME, MIN_FRAME};
pub use on_off::{OnOff, OnOffDepartures};
pub use pacer::Pacer;
pub use parts::{FlowPart, Parts, StampTables};
pub use spec::{MAX_FLOWS, Order, Sizes, Spec, SpecError};
pub use synthetic::{ParseSyntheticError, Synthetic, SyntheticKind, SyntheticSpec};
pub use traffic::{Prepared, Traffic};
