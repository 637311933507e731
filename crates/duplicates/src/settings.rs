//! The settings of a detector, and their limits.

use crate::{Classes, bindings, chain, datagrams, table};
use std::fmt;
use std::time::Duration;

/// The default window in time. The copies of mirrors and routers arrive within this time; retransmissions, polls and
/// keep-alives of a sender are further apart.
pub const WINDOW: Duration = Duration::from_millis(1);

/// The window in time that HPCAP uses (thesis section 4.4).
pub const WINDOW_HPCAP: Duration = Duration::from_millis(200);

/// The largest window in time. Longer windows compare packets that applications send again.
pub const WINDOW_MAX: Duration = Duration::from_secs(60);

// A record contains the time since the first packet of its chain in 32 bits.
const _: () = assert!(WINDOW_MAX.as_nanos() < chain::UNIT_NANOS as u128 * i32::MAX as u128);

/// The default number of records.
pub const RECORDS: usize = 1 << 18;

/// The largest number of records.
pub const RECORDS_MAX: usize = 1 << 28;

/// The default number of stored bytes.
pub const STORED_BYTES: usize = 76;

/// The fewest stored bytes: those that HPCAP stores (thesis section 4.4).
pub const STORED_BYTES_MIN: usize = 70;

/// The most stored bytes: larger than a jumbo frame.
pub const STORED_BYTES_MAX: usize = 16 << 10;

/// A TCP sender retransmits after one round trip at the earliest, and a round trip through two kernels takes longer
/// than this time.
pub const RETRANSMISSION_WINDOW: Duration = Duration::from_micros(10);

/// The largest number of packets between two equal TCP segments without identification that are copies.
pub const RETRANSMISSION_PACKETS: u64 = 4;

/// The longest time between a packet without identification and its copy after a router.
pub const UNIDENTIFIED_WINDOW: Duration = Duration::from_millis(1);

/// The default number of further copies of one packet with the same TTL.
pub const COPIES_MAX: u8 = 3;

/// The settings of a detector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The classes that the detector reports.
    pub classes: Classes,
    /// The longest time between the first packet of a chain of copies and each of its copies. No sender may send the
    /// same bytes twice within this time.
    pub window: Duration,
    /// The largest number of packets from the first packet of a chain of copies to each of its copies: 1 compares each
    /// packet with the packet before it.
    pub window_packets: u64,
    /// The number of records in the table, one for each packet. The table forgets the oldest packet for each new
    /// packet.
    pub records: usize,
    /// The number of bytes that the table stores of each packet and compares byte by byte: two MAC addresses, and the
    /// bytes from the network header on. A 64-bit hash represents the bytes after them.
    pub stored_bytes: usize,
    /// The longest time between two equal TCP segments without identification that are copies. See the rules in the
    /// documentation of the crate.
    pub retransmission_window: Duration,
    /// The longest time between two equal packets of other kinds without identification that are copies; zero excludes
    /// such packets.
    pub repeat_window: Duration,
    /// True if each interface gets at most one copy of a packet, as from the mirrors of both ends of a link. Then equal
    /// unicast packets from different interfaces are copies, also without identification.
    pub mirrored_interfaces: bool,
    /// True if packets of different interfaces may be compared in another order than they were on the wire, because a
    /// thread for each interface reads them. Then a packet that left a router can come before the packet that entered
    /// it, so an identified packet is also a copy of the class routing if the TTL is higher and the interface differs.
    pub unordered_interfaces: bool,
    /// The largest number of further copies of one packet with the same TTL. The packets above this number are not
    /// reported, and are counted in [`crate::Counts::over_limit`].
    pub copies_max: u8,
    /// True to compare whole frames, and to report each frame that is equal to another frame in the window, as
    /// `editcap -d` does. The class is switching. This setting has false positives: senders repeat frames.
    pub exact: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            classes: Classes::USUAL,
            window: WINDOW,
            window_packets: u64::MAX,
            records: RECORDS,
            stored_bytes: STORED_BYTES,
            retransmission_window: RETRANSMISSION_WINDOW,
            repeat_window: Duration::ZERO,
            mirrored_interfaces: false,
            unordered_interfaces: false,
            copies_max: COPIES_MAX,
            exact: false,
        }
    }
}

impl Settings {
    /// Memory of a detector with these settings, in bytes: the table, the whole datagrams for the class fragment, and
    /// the bindings for the classes NAT and proxying.
    pub fn memory(&self) -> u64 {
        let datagrams = if self.compares_fragments() { datagrams::memory(self.records) } else { 0 };
        let bindings = if self.has_bindings() { bindings::memory() } else { 0 };
        table::memory(self.records, self.stored_bytes) + datagrams + bindings
    }

    /// True if classes are enabled whose copies have other addresses.
    pub(crate) fn has_bindings(&self) -> bool {
        let classes = self.classes;
        !self.exact && (classes.contains(crate::Class::Nat) || classes.contains(crate::Class::Proxying))
    }

    pub(crate) fn compares_fragments(&self) -> bool {
        self.classes.contains(crate::Class::Fragment) && !self.exact
    }

    /// # Errors
    /// The first setting that is out of its range.
    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        if self.classes.is_empty() {
            return Err(SettingsError::NoClass);
        }
        if self.window > WINDOW_MAX || self.window.is_zero() {
            return Err(SettingsError::Window(self.window));
        }
        if self.window_packets == 0 {
            return Err(SettingsError::WindowPackets);
        }
        if !(1..=RECORDS_MAX).contains(&self.records) {
            return Err(SettingsError::Records(self.records));
        }
        if !(STORED_BYTES_MIN..=STORED_BYTES_MAX).contains(&self.stored_bytes) {
            return Err(SettingsError::StoredBytes(self.stored_bytes));
        }
        Ok(())
    }
}

/// A setting that is out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingsError {
    /// No class is enabled.
    NoClass,
    /// The window in time.
    Window(Duration),
    /// The window in packets is zero.
    WindowPackets,
    /// The number of records.
    Records(usize),
    /// The number of stored bytes.
    StoredBytes(usize),
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoClass => f.write_str("no class of duplicates is enabled: enable at least one"),
            Self::Window(window) => {
                write!(f, "a window of {window:?} is out of range: choose more than 0 and at most {WINDOW_MAX:?}")
            }
            Self::WindowPackets => f.write_str("a window of 0 packets contains no packet: choose at least 1"),
            Self::Records(records) => {
                write!(f, "{records} records are out of range: choose 1 to {RECORDS_MAX}")
            }
            Self::StoredBytes(bytes) => {
                write!(f, "{bytes} stored bytes are out of range: choose {STORED_BYTES_MIN} to {STORED_BYTES_MAX}")
            }
        }
    }
}

impl std::error::Error for SettingsError {}
