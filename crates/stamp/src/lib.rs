//! Layer 1: the Simple Two-way Active Measurement Protocol (STAMP, RFC 8762), in unauthenticated and in
//! authenticated mode.
//!
//! A sender sends [`TestPacket`]s, and a reflector answers each with a [`Reply`]. The times T1 to T4 of sending and
//! receiving give the round-trip delay, and the one-way delay of each direction if both clocks are synchronised:
//!
//! ```text
//! sender     T1 ──────────────►                    ◄───────────── T4
//! reflector                    T2 ──────────► T3
//! ```
//!
//! [`Reflector`] makes the replies of a reflector, and [`Measurement`] evaluates the replies at the sender. Both
//! receive all times as arguments and read no clock. The extensions of RFC 8972 (TLVs, session identifier) are not
//! supported: bytes after the base packet count as padding.
#![forbid(unsafe_code)]

mod authenticated;
mod measurement;
mod packet;
mod reflector;
mod time;

pub use authenticated::{AUTHENTICATED_LEN, KEY_LEN, Key, KeyLengthError};
pub use measurement::{Measurement, MeasurementReport, ReplyKind};
pub use packet::{BASE_LEN, PacketError, Reply, TestPacket};
pub use reflector::{NoReply, Reflector, SESSION_IDLE, SESSIONS_MAX};
pub use time::{from_ntp, from_ptp, to_ntp};

/// The UDP port of reflectors (RFC 8762 §4.1).
pub const PORT: u16 = 862;
