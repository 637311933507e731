//! The reasons why a meter or one of its sinks could not start or failed.

use export::ParseTargetError;
use std::fmt;
use std::io;

/// The reason why a meter or one of its sinks could not start or failed.
#[derive(Debug)]
pub enum MeterError {
    /// The meter cannot join a ring.
    Join(ring::JoinError),
    /// The system refuses a thread.
    Thread(io::Error),
    /// This thread panicked.
    Panicked(&'static str),
    /// The target of a collector is invalid.
    Destination(DestinationError),
    /// The exporter of a collector cannot start.
    Exporter(export::StartError),
}

impl fmt::Display for MeterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Join(e) => write!(f, "the meter cannot join the ring: {e}"),
            Self::Thread(e) => write!(f, "thread: {e}"),
            Self::Panicked(thread) => write!(f, "thread: {thread} panicked"),
            Self::Destination(e) => e.fmt(f),
            Self::Exporter(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for MeterError {}

impl From<DestinationError> for MeterError {
    fn from(e: DestinationError) -> Self {
        Self::Destination(e)
    }
}

/// The error in an export target with its options; with the whole text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DestinationError {
    /// Transport or address.
    Target(ParseTargetError),
    /// NetFlow v9 over a reliable transport.
    Netflow(String),
    /// Unknown kinds.
    Kinds(String, String),
    /// Unknown fields.
    Fields(String, String),
    /// These fields do not exist in NetFlow v9.
    NetflowFields(String, String),
}

impl fmt::Display for DestinationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Target(e) => e.fmt(f),
            Self::Netflow(text) => write!(f, "{text:?}: NetFlow v9 goes by UDP only; write netflow9+udp:HOST[:PORT]"),
            Self::Kinds(text, kinds) => {
                write!(f, "{text:?}: {kinds:?} are no kinds; write kinds=flows, kinds=series or kinds=both")
            }
            Self::Fields(text, fields) => {
                write!(f, "{text:?}: {fields:?} are no fields; write fields=standard, fields=biflow or fields=full")
            }
            Self::NetflowFields(text, fields) => write!(
                f,
                "{text:?}: NetFlow v9 has the standard fields only; write udp:HOST[:PORT],fields={fields} for IPFIX"
            ),
        }
    }
}

impl std::error::Error for DestinationError {}
