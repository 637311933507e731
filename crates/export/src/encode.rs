//! What IPFIX and NetFlow v9 have in common: how they are configured, and what an encoder does.
//!
//! An encoder is a pure machine: records, seconds and time go in, whole messages come out. Sending them is
//! [`crate::Exporter`]'s.

use crate::element::PEN;
use base::Timestamp;
use flow::Record;
use series::Row;
use std::fmt;
use std::time::Duration;

/// The smallest limit of a message: the longest template of ours still fits into one.
pub const MESSAGE_MIN: usize = 1232;

/// The usual limit over UDP: it fits an Ethernet frame through most tunnels.
pub const MESSAGE_UDP: usize = 1400;

/// The most that a message can be (its length has 16 bits); what files and TCP take.
pub const MESSAGE_MAX: usize = 65_532;

/// How a flow record is exported: as how many data records, and with which fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fields {
    /// One data record per direction that has packets, with elements of IANA of fixed length: every collector counts these
    /// right. Times are in milliseconds.
    #[default]
    Standard,
    /// One data record with both directions (RFC 5103), with elements of IANA of fixed length. A collector that does not
    /// know reverse elements counts one direction only.
    Biflow,
    /// One data record with both directions, with our own elements, lists (RFC 6313) and payload: nothing is left out.
    Full,
}

/// When templates and options are said again, for those who missed them. Over UDP (RFC 7011, section 8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refresh {
    /// After so much time,
    pub every: Duration,
    /// and after so many messages, whichever comes first.
    pub messages: u32,
}

impl Default for Refresh {
    fn default() -> Self {
        Self { every: Duration::from_secs(20), messages: 4096 }
    }
}

/// Of `interval + space` packets `interval` were metered (RFC 5477, systematic count-based sampling).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// Packets taken in a row,
    pub interval: u32,
    /// and then left out.
    pub space: u32,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { interval: 1, space: 0 }
    }
}

/// How records become messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Observation domain (source id of NetFlow v9): tells meters behind one address apart.
    pub domain: u32,
    /// Bytes of the longest message, from [`MESSAGE_MIN`] to [`MESSAGE_MAX`]; what is outside is moved there.
    pub message: usize,
    /// The enterprise number of our own elements.
    pub pen: u32,
    /// Which fields.
    pub fields: Fields,
    /// When templates are repeated; `None` where nothing gets lost (TCP, files).
    pub refresh: Option<Refresh>,
    /// What part of the packets was metered.
    pub sampling: Sampling,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            domain: 1,
            message: MESSAGE_UDP,
            pen: PEN,
            fields: Fields::default(),
            refresh: Some(Refresh::default()),
            sampling: Sampling::default(),
        }
    }
}

impl Config {
    /// For TCP and files: long messages, templates once.
    pub fn reliable() -> Self {
        Self { message: MESSAGE_MAX, refresh: None, ..Self::default() }
    }

    pub(crate) fn limit(&self) -> usize {
        self.message.clamp(MESSAGE_MIN, MESSAGE_MAX) / 4 * 4
    }
}

/// A whole message.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// As it is sent.
    pub bytes: &'a [u8],
    /// How many of the records and rows that were put in are in it.
    pub items: u32,
}

/// Takes messages as they become whole.
pub type MessageSink<'a> = &'a mut dyn FnMut(Message<'_>);

/// What became of a record that was put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodeResult {
    /// It is in a message.
    Whole,
    /// It is in a message, but without its payload, or without payload and first packets: it would not have fitted.
    Trimmed,
}

/// A record that no message within the limit can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge {
    /// Bytes of the record.
    pub len: usize,
    /// Bytes of the longest message.
    pub limit: usize,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a record of {} bytes does not fit a message of {}; allow longer messages", self.len, self.limit)
    }
}

impl std::error::Error for TooLarge {}

/// Turns records into messages. Time is that of the caller: it is the export time of the messages and decides when
/// templates are repeated. Nothing is sent before [`Encode::flush`] or before a message is full.
pub trait Encode: Send {
    /// Adds a flow record.
    ///
    /// # Errors
    /// [`TooLarge`]: it is not in any message.
    fn record(&mut self, record: &Record, now: Timestamp, out: MessageSink<'_>) -> Result<EncodeResult, TooLarge>;

    /// Adds a second of a series. Its ledger also goes into the loss statistics of its interface.
    ///
    /// # Errors
    /// [`TooLarge`]: it is not in any message.
    fn row(&mut self, row: &Row, now: Timestamp, out: MessageSink<'_>) -> Result<(), TooLarge>;

    /// Counts a second's ledger for the loss statistics without adding the second itself.
    fn ledger(&mut self, row: &Row);

    /// Names an interface; said with the templates.
    fn interface(&mut self, number: u16, name: &str);

    /// Counts records that were not sent, for the statistics that are said with the templates.
    fn not_sent(&mut self, items: u64);

    /// Time has passed: says templates and options again if that is due.
    fn tick(&mut self, now: Timestamp, out: MessageSink<'_>);

    /// Lets go of what is waiting for a message to become full.
    fn flush(&mut self, now: Timestamp, out: MessageSink<'_>);

    /// A new session with another collector, or with one that has forgotten everything: begins again with templates.
    /// What was waiting is dropped; the answer is how many records and rows that were.
    fn restart(&mut self) -> u32;
}

/// When something was said last, and when that is to be repeated.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Repetition {
    said: Option<Timestamp>,
    messages: u32,
}

impl Repetition {
    /// Whether it is due. A clock that steps back makes it due: how long ago it was said is then not known.
    pub fn is_due(&self, refresh: Option<Refresh>, now: Timestamp) -> bool {
        match (self.said, refresh) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(said), Some(refresh)) => {
                now < said || now.since(said) >= refresh.every || self.messages >= refresh.messages
            }
        }
    }

    pub fn announce(&mut self, now: Timestamp) {
        *self = Self { said: Some(now), messages: 0 };
    }

    pub fn count_message(&mut self) {
        self.messages = self.messages.saturating_add(1);
    }
}

/// What an interface is called, and what it lost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interface {
    pub name: String,
    pub offered: u64,
    pub lost: u64,
}

impl Interface {
    pub fn add(&mut self, row: &Row) {
        self.offered = self.offered.saturating_add(row.ledger.offered);
        self.lost = self.lost.saturating_add(row.ledger.lost_total());
    }
}
