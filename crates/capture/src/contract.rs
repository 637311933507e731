//! The `Source` trait and its types, which define the behaviour of every packet source.

use crate::frame_sink::{EachFrame, FrameSink};
use base::{Cause, Note, Timestamp, TimestampMethod};
use std::fmt;
use std::time::Duration;
use sys::netlink::Link;
use timestamping::NicClockState;

/// Hardware types of linux/if_arp.h whose frames begin with an Ethernet header.
const ARPHRD_ETHER: u16 = 1;
const ARPHRD_LOOPBACK: u16 = 772;

/// Returns an error for interfaces whose frames do not begin with an Ethernet header, because all later stages expect
/// this header.
pub(crate) fn ethernet(link: &Link) -> Result<(), SourceError> {
    if matches!(link.hardware_type, ARPHRD_ETHER | ARPHRD_LOOPBACK) {
        return Ok(());
    }
    let reason = format!(
        "its frames (hardware type {}) are not Ethernet; capture its lower interface instead",
        link.hardware_type
    );
    Err(SourceError::Unsupported { name: link.name.clone(), reason })
}

/// One frame, borrowed from its source for the duration of one callback.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The captured bytes, contiguous, from the first byte of the link header; the engine uses at most 65 535.
    pub bytes: &'a [u8],
    /// Length on the wire in bytes, without frame check sequence and without the tag in `vlan`.
    pub wire_len: u32,
    /// A tag that the kernel removed from the frame; the engine inserts it at byte 12 (and adds 4 to both lengths).
    pub vlan: Option<VlanTag>,
    /// Time of arrival if the source provides it; otherwise the engine uses the time at which it reads the frame.
    pub stamp: Option<Timestamp>,
    /// The method that made `stamp`, if it is not the method of the source ([`TimestampSource::method`]).
    pub stamp_method: Option<TimestampMethod>,
    /// True if this host sent the frame.
    pub outgoing: bool,
    /// True if the NIC or the kernel merged several frames into this one (GRO, LRO).
    pub super_frame: bool,
    /// The capture file stated a wire length below the captured length; `wire_len` was raised to the captured length.
    pub wire_raised: bool,
    /// The metadata that the interface's XDP program wrote before the frame; empty without such a program.
    pub metadata: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Creates a received frame without a timestamp, all of whose bytes were captured.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            wire_len: bytes.len() as u32,
            vlan: None,
            stamp: None,
            stamp_method: None,
            outgoing: false,
            super_frame: false,
            wire_raised: false,
            metadata: &[],
        }
    }
}

/// An IEEE 802.1Q tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanTag {
    /// Tag protocol identifier: 0x8100, or 0x88a8 for a service tag.
    pub tpid: u16,
    /// Priority, drop eligibility and VLAN id.
    pub tci: u16,
}

/// The result of one call of [`Source::poll`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polled {
    /// The call has delivered this number of frames, at least one.
    Frames(usize),
    /// No frame arrived within the wait.
    Idle,
    /// No frame is available and none will follow, because the file ended, or because the source was stopped and all
    /// its received frames were delivered.
    End,
}

/// The clock that made the timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampSource {
    /// The engine thread makes the timestamp when it reads the frame (calibrated TSC).
    Engine,
    /// The kernel, in software.
    Kernel,
    /// The NIC.
    Hardware,
    /// The capture file.
    File,
    /// The generator's schedule.
    Simulated,
}

impl TimestampSource {
    /// The name of the timestamp source in JSON, tables and the index.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Engine => "tsc",
            Self::Kernel => "kernel",
            Self::Hardware => "hardware",
            Self::File => "file",
            Self::Simulated => "simulated",
        }
    }

    /// The timestamp method of the packets of a source with this clock, unless the engine applies another method.
    pub const fn method(self) -> TimestampMethod {
        match self {
            Self::Engine => TimestampMethod::Poll,
            Self::Kernel => TimestampMethod::Kernel,
            Self::Hardware => TimestampMethod::Hardware,
            Self::File => TimestampMethod::File,
            Self::Simulated => TimestampMethod::Schedule,
        }
    }

    /// True if the timestamps are made on arrival by this machine, and not read from a file or computed by a
    /// simulation. Then a second without packets is a second in which no packet arrived, and the source cannot wait for
    /// the reader.
    pub const fn is_live(self) -> bool {
        matches!(self, Self::Engine | Self::Kernel | Self::Hardware)
    }
}

/// The description of a source after opening.
#[derive(Clone, Debug)]
pub struct SourceInfo {
    /// The interface, file or simulation: `eth1`, `trace.pcap`, `sim:60`.
    pub name: String,
    /// The hardware queue (0 for a source without queues).
    pub queue: u16,
    /// One line for people: kind and mode, e.g. `AF_XDP eth1 queue 0: copy mode, native XDP, need-wakeup`.
    pub description: String,
    /// Link type of the frames, as pcap numbers them (1 = Ethernet).
    pub link_type: u16,
    /// The clock that makes the timestamps.
    pub timestamp_source: TimestampSource,
    /// The reason why the source does not have the requested timestamps, so that the engine makes the timestamps in
    /// their place; `None` if the source has them, or if none were requested.
    pub timestamp_fallback: Option<String>,
    /// A condition of the source's timestamps that the user should know, with the correction.
    pub timestamp_warning: Option<String>,
    /// The rate of the interface in megabits per second, if it has one.
    pub link_mbps: Option<u32>,
    /// The point at which `offered` of the ledger is counted, e.g. `frames that reached the packet socket`.
    pub counted_from: &'static str,
}

/// Cumulative counters of a source since it was opened; they never decrease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that were offered to the source and not delivered, by loss cause.
    pub lost: [u64; Cause::COUNT],
    /// Notes that only the source can count.
    pub notes: [u64; Note::COUNT],
    /// Outcomes of the packets that the interface's XDP program did not pass on: they count as offered and as filtered.
    pub program_outcomes: ProgramOutcomes,
    /// Delivered packets that the kernel part left undecided.
    pub undecided: u64,
    /// Packets offered according to an independent counter (of the XDP program or of the kernel), if there is one.
    /// After the source is stopped and drained, it must equal the number of frames that the source delivered, plus
    /// those in `program_outcomes`, plus the losses other than `nic`.
    pub seen: Option<u64>,
    /// The relation of the NIC's clock to the system clock, if the source converts timestamps of the NIC.
    pub nic_clock: Option<NicClockState>,
}

/// Packets that a program did not pass on to the ring, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramOutcomes {
    /// Packets dropped.
    pub dropped: u64,
    /// Packets sent through another interface.
    pub forwarded: u64,
    /// Packets passed to the host.
    pub to_host: u64,
    /// Packets that could not be sent: the egress interface does not exist (any more) or refused them.
    pub unsent: u64,
}

impl ProgramOutcomes {
    /// The sum of all outcomes.
    pub const fn total(&self) -> u64 {
        self.dropped + self.forwarded + self.to_host + self.unsent
    }
}

/// A stream of frames from one queue, file or generator.
///
/// Frames are delivered in the order of arrival. After [`Source::stop`], the source delivers the frames that it has
/// already received from the wire, and then always returns [`Polled::End`]. Dropping a source releases all its kernel
/// resources.
pub trait Source: Send {
    /// The description of this source.
    fn info(&self) -> &SourceInfo;

    /// Delivers up to `budget` frames to the callback, and waits at most `wait` for the first. If `wait` is zero, the
    /// call never sleeps.
    ///
    /// # Errors
    /// [`SourceError`]; frames delivered before the error count as delivered.
    fn poll<F: FnMut(&Frame<'_>)>(&mut self, budget: usize, wait: Duration, take: F) -> Result<Polled, SourceError> {
        self.poll_into(budget, wait, &mut EachFrame(take))
    }

    /// As [`Source::poll`], with a sink that can get the lengths of the frames before the first frame.
    ///
    /// # Errors
    /// As [`Source::poll`].
    fn poll_into<S: FrameSink>(&mut self, budget: usize, wait: Duration, sink: &mut S) -> Result<Polled, SourceError>;

    /// The cumulative counters, read now.
    ///
    /// # Errors
    /// Returns the kernel's error if the counters cannot be read.
    fn counts(&mut self) -> Result<Counts, SourceError>;

    /// Stops receiving frames from the wire. Further calls have no effect.
    fn stop(&mut self);
}

/// Reasons why a source cannot be opened or has ended.
#[derive(Debug)]
pub enum SourceError {
    /// The system call of operation `what` on `name` failed; `advice` is the next step.
    System {
        /// The interface or file.
        name: String,
        /// The operation that failed.
        what: &'static str,
        /// The kernel's error.
        error: std::io::Error,
        /// The recommended next step; may be empty.
        advice: String,
    },
    /// The interface disappeared. (An interface that is down has not disappeared; it only delivers no frames.)
    Gone {
        /// The interface.
        name: String,
    },
    /// The source cannot work with this configuration; the text gives the reason and an alternative.
    Unsupported {
        /// The interface or file.
        name: String,
        /// The reason and an alternative.
        reason: String,
    },
    /// The content of a file violates its format; the text names file and offset.
    Corrupt {
        /// The file.
        name: String,
        /// Byte offset of the violation in the (uncompressed) file.
        offset: u64,
        /// The violation.
        reason: String,
    },
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System { name, what, error, advice } => {
                match *what {
                    // Of all operations, only "open" and "read" are operations on files, and their errors get the text
                    // of [`sys::advice::cause`]. Errors of operations on interfaces have the kernel's text.
                    "open" | "read" => write!(f, "{name}: cannot {what}: {}", sys::advice::cause(error))?,
                    _ => write!(f, "{name}: cannot {what}: {error}")?,
                }
                if advice.is_empty() { Ok(()) } else { write!(f, "; {advice}") }
            }
            Self::Gone { name } => write!(f, "{name}: the interface has disappeared"),
            Self::Unsupported { name, reason } => write!(f, "{name}: {reason}"),
            Self::Corrupt { name, offset, reason } => write!(f, "{name}: byte {offset}: {reason}"),
        }
    }
}

impl std::error::Error for SourceError {}
