//! Layer 1: the analysis of packets that have a sequence number and a departure time, at the receiver.
//!
//! The caller adds one [`Arrival`] for each packet to an [`Analyser`], in order of arrival. The [`Report`] of the
//! analyser has:
//!
//! * one-way delay (RFC 7679) as a distribution, with the error that the clocks of sender and receiver imply; if the
//!   clocks are not synchronised, the offset of the delay is unknown;
//! * delay variation between packets with consecutive sequence numbers (RFC 3393);
//! * loss, duplication, and reordering (RFC 4737);
//! * the skew between the two clocks, by the lower convex hull of the delays (Moon, Skelly and Towsley: "Estimation and
//!   Removal of Clock Skew from Network Delay Measurements", INFOCOM 1999);
//! * the dispersion of bursts, and the bandwidth that this dispersion implies.
//!
//! The memory of an analyser is bounded: see [`WINDOW`], [`SAMPLE`], [`HULL_MAX`] and [`OPEN_BURSTS`]. The random
//! sample has a constant seed, so equal packets give equal reports.
#![forbid(unsafe_code)]

mod analyser;
mod bursts;
mod clocks;
mod order;
mod reordering_detail;
mod report;
mod sample;
mod skew;
mod variation;

pub use analyser::{Analyser, Arrival, ArrivalKind, PacketResult};
pub use bursts::{BurstReport, OPEN_BURSTS};
pub use clocks::{ClockRelation, ReceiverClock, worse};
pub use order::{DEGREE_MAX, Reordering, SequenceReport, WINDOW};
pub use reordering_detail::{N_REORDERED, ReorderingDetail, RunReport};
pub use report::{DriftFree, Report};
pub use sample::SAMPLE;
pub use skew::{HULL_MAX, Skew};
