//! Common parts of IPFIX and NetFlow v9: configuration, and the interface of the encoders.
//!
//! An encoder does no I/O. Its input is flow records, series rows and the current time, and its output is complete
//! messages. [`crate::Exporter`] sends them.

use crate::element::PEN;
use base::Timestamp;
use flow::Record;
use series::Row;
use std::fmt;
use std::time::Duration;

/// The smallest permitted limit of the message length in bytes. The longest template of netgrain fits into a message of
/// this length.
pub const MESSAGE_MIN: usize = 1232;

/// The default limit of the message length over UDP in bytes. A message of this length fits into one Ethernet frame,
/// even inside most tunnels.
pub const MESSAGE_UDP: usize = 1400;

/// The greatest length of a message (its length field has 16 bits); for files and TCP.
pub const MESSAGE_MAX: usize = 65_532;

/// The field set: the number of data records per flow record, and their elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fields {
    /// One data record per direction that has packets, with IANA elements of fixed length: every collector counts these
    /// correctly. Times are in milliseconds.
    #[default]
    Standard,
    /// One data record with both directions (RFC 5103), with IANA elements of fixed length. A collector that does not
    /// support reverse elements counts one direction only.
    Biflow,
    /// One data record with both directions, with our enterprise elements, lists (RFC 6313) and payload: the complete
    /// flow record.
    Full,
}

/// Template refresh: when templates and options data are sent again over UDP (RFC 7011, section 8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refresh {
    /// Time after which the exporter sends its templates again.
    pub every: Duration,
    /// Number of messages after which the exporter sends its templates again, even if the time `every` is not over.
    pub messages: u32,
}

impl Default for Refresh {
    fn default() -> Self {
        Self { every: Duration::from_secs(20), messages: 4096 }
    }
}

/// `interval` of `interval + space` packets are metered (RFC 5477, systematic count-based sampling).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// Number of consecutive packets that the meter processes before it skips packets.
    pub interval: u32,
    /// Number of consecutive packets that the meter skips after it has processed `interval` packets.
    pub space: u32,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { interval: 1, space: 0 }
    }
}

/// Configuration of an encoder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Observation domain (source id of NetFlow v9): distinguishes meters behind one address.
    pub domain: u32,
    /// Greatest length of a message in bytes, clamped to [`MESSAGE_MIN`]..=[`MESSAGE_MAX`].
    pub message: usize,
    /// The enterprise number of our own elements.
    pub pen: u32,
    /// The field set.
    pub fields: Fields,
    /// Template refresh; `None` if the transport loses nothing (TCP, files).
    pub refresh: Option<Refresh>,
    /// The packet sampling that the meter applied.
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
    /// The configuration for transports without loss (TCP, files): long messages, no template refresh.
    pub fn reliable() -> Self {
        Self { message: MESSAGE_MAX, refresh: None, ..Self::default() }
    }

    pub(crate) fn limit(&self) -> usize {
        self.message.clamp(MESSAGE_MIN, MESSAGE_MAX) / 4 * 4
    }
}

/// A complete message.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The bytes to send.
    pub bytes: &'a [u8],
    /// Number of submitted flow records and series rows in the message.
    pub items: u32,
}

/// A function that receives each complete message.
pub type MessageSink<'a> = &'a mut dyn FnMut(Message<'_>);

/// How completely a submitted record was encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodeResult {
    /// The record was encoded completely.
    Whole,
    /// The record was encoded without payload, or without payload and initial packets, because the complete record
    /// would not have fitted into a message.
    Trimmed,
}

/// The error for a record that fits no message within the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge {
    /// Bytes of the record.
    pub len: usize,
    /// The limit in bytes.
    pub limit: usize,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a record of {} bytes does not fit into a message of {} bytes; allow longer messages",
            self.len, self.limit
        )
    }
}

impl std::error::Error for TooLarge {}

/// Turns flow records and series rows into messages. The caller supplies the current time, which becomes the export
/// time of the messages and decides when templates are repeated. A message is complete when it is full, or when
/// [`Encode::flush`] is called; then it is passed to the caller.
pub trait Encode: Send {
    /// Adds a flow record.
    ///
    /// # Errors
    /// [`TooLarge`]: the record fits into no message and was not added.
    fn record(&mut self, record: &Record, now: Timestamp, out: MessageSink<'_>) -> Result<EncodeResult, TooLarge>;

    /// Adds a row of a time series. Its ledger is also added to the loss statistics of its interface.
    ///
    /// # Errors
    /// [`TooLarge`]: the series row fits into no message and was not added.
    fn row(&mut self, row: &Row, now: Timestamp, out: MessageSink<'_>) -> Result<(), TooLarge>;

    /// Adds a series row's ledger to the loss statistics without exporting the series row.
    fn ledger(&mut self, row: &Row);

    /// Sets the name of an interface, which is sent with the templates.
    fn interface(&mut self, number: u16, name: &str);

    /// Counts flow records and series rows that were not sent. The exporter statistics that are sent with the templates
    /// contain the number.
    fn not_sent(&mut self, items: u64);

    /// Advances the time; sends templates and options data again if that is due.
    fn tick(&mut self, now: Timestamp, out: MessageSink<'_>);

    /// Passes on the incomplete message.
    fn flush(&mut self, now: Timestamp, out: MessageSink<'_>);

    /// Begins a new session: the collector has no templates yet. Discards the incomplete message and returns the number
    /// of flow records and series rows in it.
    fn restart(&mut self) -> u32;
}

/// The time of the last templates and the number of messages since, which decide when templates are repeated.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Repetition {
    announced: Option<Timestamp>,
    messages: u32,
}

impl Repetition {
    /// True if templates are to be repeated. If the clock was set back since the last repetition, the time since then
    /// is unknown, and the result is true.
    pub fn is_due(&self, refresh: Option<Refresh>, now: Timestamp) -> bool {
        match (self.announced, refresh) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(announced), Some(refresh)) => {
                now < announced || now.since(announced) >= refresh.every || self.messages >= refresh.messages
            }
        }
    }

    pub fn announce(&mut self, now: Timestamp) {
        *self = Self { announced: Some(now), messages: 0 };
    }

    pub fn count_message(&mut self) {
        self.messages = self.messages.saturating_add(1);
    }
}

/// The name of an interface, and its losses.
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
