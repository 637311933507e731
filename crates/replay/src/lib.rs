//! Sends captured packets again: with their original timing or at a rate, unchanged or rewritten, through one interface
//! or two.
//!
//! ```text
//!  PacketStream ──► Preparer ──► Block ──► ReadAhead ──► replay() ──► Output
//!  (files, store)   selects,               (bounded)     waits until  (AF_XDP,
//!                   rewrites                             frames are   packet socket)
//!                                                        due
//!  └──────────── reading thread ─────────┘ └────── sending thread ───────┘
//! ```
//!
//! [`pace`], [`rewrite`] and [`prepare`] read no clock and make no system calls. The functions of the crate follow
//! tcpreplay and pfq-gen (thesis of PFQ, chapter 5): original timing, timing scaled by a factor, a rate in packets or
//! bits per second, or as fast as possible; repeated passes over the capture; copies of packets with other addresses;
//! random addresses.
#![forbid(unsafe_code)]

pub mod control;
pub mod control_socket;
pub mod output;
pub mod pace;
pub mod prepare;
pub mod read_ahead;
pub mod report;
pub mod rewrite;
pub mod sender;
pub mod stream;

pub use control::{Command, Control};
pub use output::{Interface, Method, Output, OutputCounts, OutputError};
pub use pace::{Pace, Schedule};
pub use prepare::{Preparation, Preparer, SecondInterface, Truncated};
pub use read_ahead::ReadAhead;
pub use report::Report;
pub use rewrite::{Rewrite, Rewriter};
pub use sender::{Outputs, ReplayError, SystemClock, replay};
pub use stream::{CaptureFiles, CapturedPacket, PacketStream, StreamError};
