//! The contract that every source keeps.

use base::{Cause, Note, Timestamp};
use std::fmt;
use std::time::Duration;
use sys::netlink::Link;

/// Hardware types of linux/if_arp.h whose frames begin with an Ethernet header.
const ARPHRD_ETHER: u16 = 1;
const ARPHRD_LOOPBACK: u16 = 772;

/// That the frames of a port are what everything here takes them for.
pub(crate) fn ethernet(link: &Link) -> Result<(), SourceError> {
    if matches!(link.hardware_type, ARPHRD_ETHER | ARPHRD_LOOPBACK) {
        return Ok(());
    }
    let reason =
        format!("its frames (hardware type {}) are not Ethernet; capture the interface below it", link.hardware_type);
    Err(SourceError::Unsupported { name: link.name.clone(), reason })
}

/// One frame, borrowed from its source for the duration of one callback.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The captured bytes, contiguous, from the first byte of the link header; at most 65 535 are looked at.
    pub bytes: &'a [u8],
    /// Length on the wire in bytes, without frame check sequence and without the tag in `vlan`.
    pub wire_len: u32,
    /// A tag that the kernel took out of the frame; the engine puts it back at byte 12 (and adds 4 to both lengths).
    pub vlan: Option<VlanTag>,
    /// When the frame arrived, if the source knows; otherwise the engine stamps it now.
    pub stamp: Option<Timestamp>,
    /// Sent by this host rather than received.
    pub outgoing: bool,
    /// Several frames of the wire merged into one by the card or the kernel (GRO, LRO).
    pub super_frame: bool,
    /// The capture said fewer bytes on the wire than it has of the packet; `wire_len` was raised to these.
    pub wire_raised: bool,
    /// What the port's program in the kernel wrote before the frame; empty where no such program runs.
    pub metadata: &'a [u8],
}

impl<'a> Frame<'a> {
    /// A whole received frame without a stamp.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            wire_len: bytes.len() as u32,
            vlan: None,
            stamp: None,
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

/// What one call of [`Source::poll`] brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polled {
    /// This many frames, at least one.
    Frames(usize),
    /// Nothing within the wait.
    Idle,
    /// Nothing now and nothing ever again: the file ended, or the source was stopped and is drained.
    End,
}

/// Who stamps the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampSource {
    /// The engine thread, when it takes the frame (calibrated TSC).
    Engine,
    /// The kernel, in software.
    Kernel,
    /// The card.
    Hardware,
    /// The capture file.
    File,
    /// The generator's schedule.
    Simulated,
}

impl TimestampSource {
    /// The name used in JSON, tables and the index.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Engine => "tsc",
            Self::Kernel => "kernel",
            Self::Hardware => "hardware",
            Self::File => "file",
            Self::Simulated => "simulated",
        }
    }
}

/// What a source says of itself once it is open.
#[derive(Clone, Debug)]
pub struct SourceInfo {
    /// The interface, file or simulation: `eth1`, `trace.pcap`, `sim:60`.
    pub name: String,
    /// The hardware queue (0 where there are none).
    pub queue: u16,
    /// One line for people: kind and mode, e.g. `AF_XDP eth1 queue 0: copy mode, native XDP, need-wakeup`.
    pub description: String,
    /// Link type of the frames, as pcap numbers them (1 = Ethernet).
    pub link_type: u16,
    /// Who stamps the frames.
    pub timestamp_source: TimestampSource,
    /// Where counting begins, for the ledger's `offered`: e.g. `frames that reached our XDP program`.
    pub counted_from: &'static str,
}

/// Cumulative counters of a source since it was opened; they never go back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets offered to the source and not handed over, by cause.
    pub lost: [u64; Cause::COUNT],
    /// Remarks that only the source can make.
    pub notes: [u64; Note::COUNT],
    /// Packets of which the port's program in the kernel disposed: they are offered, and filtered.
    pub program_outcomes: ProgramOutcomes,
    /// Packets handed over that the port's program in the kernel left undecided.
    pub undecided: u64,
    /// Packets offered by an independent count (the XDP program's own, the kernel's), where there is one. Once a
    /// source is stopped and drained it must equal the frames handed over plus those disposed of plus the losses other
    /// than `nic`.
    pub seen: Option<u64>,
}

/// Packets that a program did not let through to the ring, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramOutcomes {
    /// Dropped.
    pub dropped: u64,
    /// Sent out of another port.
    pub forwarded: u64,
    /// Given to the host.
    pub to_host: u64,
    /// To be sent out of a port that is not there (any more), or was refused by it.
    pub unsent: u64,
}

impl ProgramOutcomes {
    /// All of them.
    pub const fn total(&self) -> u64 {
        self.dropped + self.forwarded + self.to_host + self.unsent
    }
}

/// A stream of frames from one queue, file or generator.
///
/// Order is that of arrival. After [`Source::stop`], frames already taken from the wire are still handed over, then
/// [`Polled::End`] for ever. Dropping a source releases everything it holds in the kernel.
pub trait Source: Send {
    /// What this source is.
    fn info(&self) -> &SourceInfo;

    /// Hands over up to `budget` frames, waiting at most `wait` for the first. A `wait` of zero never sleeps.
    ///
    /// # Errors
    /// [`SourceError`]; frames handed over before the error count as handed over.
    fn poll<F: FnMut(&Frame<'_>)>(&mut self, budget: usize, wait: Duration, take: F) -> Result<Polled, SourceError>;

    /// The cumulative counters, read now.
    ///
    /// # Errors
    /// When the kernel refuses to tell.
    fn counts(&mut self) -> Result<Counts, SourceError>;

    /// Takes nothing more from the wire. Idempotent.
    fn stop(&mut self);
}

/// Why a source cannot be opened or has ended.
#[derive(Debug)]
pub enum SourceError {
    /// A system call failed while doing `what` to `name`; `advice` says what to do.
    System {
        /// The interface or file.
        name: String,
        /// What was being done.
        what: &'static str,
        /// The kernel's answer.
        error: std::io::Error,
        /// What to do next; may be empty.
        advice: String,
    },
    /// The interface went away (down is not away: a port that is down is merely silent).
    Gone {
        /// The interface.
        name: String,
    },
    /// The configuration cannot be served; the text says why and what could.
    Unsupported {
        /// The interface or file.
        name: String,
        /// Why, and what could be done instead.
        reason: String,
    },
    /// A file's content is not what it claims; the text names file and offset.
    Corrupt {
        /// The file.
        name: String,
        /// Byte offset of the trouble in the (uncompressed) file.
        offset: u64,
        /// What is wrong there.
        reason: String,
    },
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System { name, what, error, advice } => {
                write!(f, "{name}: cannot {what}: {error}")?;
                if advice.is_empty() { Ok(()) } else { write!(f, "; {advice}") }
            }
            Self::Gone { name } => write!(f, "{name}: the interface went away"),
            Self::Unsupported { name, reason } => write!(f, "{name}: {reason}"),
            Self::Corrupt { name, offset, reason } => write!(f, "{name}: byte {offset}: {reason}"),
        }
    }
}

impl std::error::Error for SourceError {}
