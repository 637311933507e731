//! The reasons why a meter or one of its sinks could not start or failed.

use export::ParseTargetError;
use std::fmt;
use std::io;

/// The reason why a meter or one of its sinks could not start or failed.
#[derive(Debug)]
pub enum MeterError {
    /// The meter cannot join a ring.
    Join(ring::JoinError),
    /// The system cannot create a thread.
    Thread(io::Error),
    /// The thread with this name panicked.
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
            Self::Thread(e) => write!(f, "cannot create a thread: {e}"),
            Self::Panicked(thread) => write!(f, "the thread of {thread} panicked"),
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

/// An error in the text of an export target. The first string of a variant is the complete text; a second string is the
/// invalid value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DestinationError {
    /// The transport or the address is invalid.
    Target(ParseTargetError),
    /// NetFlow v9 was requested over a transport other than UDP.
    Netflow(String),
    /// The export target has the suffix `kinds=` with an unknown value.
    Kinds(String, String),
    /// The export target has the suffix `fields=` with an unknown value.
    Fields(String, String),
    /// NetFlow v9 was requested with fields that it cannot encode.
    NetflowFields(String, String),
}

impl fmt::Display for DestinationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Target(e) => e.fmt(f),
            Self::Netflow(text) => {
                write!(f, "{text:?}: NetFlow v9 is sent over UDP only; write netflow9+udp:HOST[:PORT]")
            }
            Self::Kinds(text, kinds) => {
                write!(f, "{text:?}: unknown kinds {kinds:?}; write kinds=flows, kinds=series or kinds=both")
            }
            Self::Fields(text, fields) => {
                write!(f, "{text:?}: unknown fields {fields:?}; write fields=standard, fields=biflow or fields=full")
            }
            Self::NetflowFields(text, fields) => write!(
                f,
                "{text:?}: NetFlow v9 can encode only the standard fields; write udp:HOST[:PORT],fields={fields} for \
                 IPFIX"
            ),
        }
    }
}

impl std::error::Error for DestinationError {}
