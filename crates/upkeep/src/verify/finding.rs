//! The findings of a verification.

use std::fmt;
use std::path::PathBuf;

/// One result of a verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file or directory.
    pub path: PathBuf,
    /// The kind of the finding.
    pub kind: FindingKind,
    /// The byte offset of the finding in the file, if known.
    pub byte: Option<u64>,
    /// The description of the finding.
    pub text: String,
    /// The remedy for this finding, if it differs from [`FindingKind::remedy`]; usually empty.
    pub advice: String,
}

impl Finding {
    /// The remedy; empty if nothing needs to be done.
    pub fn remedy(&self) -> &str {
        if self.advice.is_empty() { self.kind.remedy() } else { &self.advice }
    }
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The data are damaged.
    Damage,
    /// Information; the data are valid.
    Note,
    /// The file could not be read, or has an unknown format.
    Unreadable,
}

/// Kinds of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingKind {
    /// A record is truncated, or no record begins at an offset where a record must begin.
    Chain,
    /// A timestamp is earlier than that of a previous packet; the recorder stored the packets in the order of their
    /// arrival.
    Order,
    /// Packets of a foreign capture have a wire length less than their caplen.
    WireLength,
    /// Timestamps do not match the file name, and the file has no out-of-order marker, so queries do not find the
    /// packets.
    Unmarked,
    /// Bytes differ from their checksum.
    Checksum,
    /// The length of the file differs from the length in its index.
    Length,
    /// Index and packets contradict each other, or the index cannot be read.
    Index,
    /// The index of a foreign capture describes earlier content of the file.
    Stale,
    /// The key sets of a block exclude a packet that the block contains.
    Keys,
    /// The ledger does not balance, or contradicts the packets of the file.
    Ledger,
    /// A packet file has no index.
    NoIndex,
    /// An index has no packet file.
    Orphan,
    /// A killed recorder left a file under its hidden name.
    Leftover,
    /// A running capture recorded packets between two files, and these packets no longer exist.
    Missing,
    /// Whether packets are missing between two files could not be determined.
    GapUnchecked,
    /// No recorder ran in the time between two files.
    Gap,
    /// A file of flow records or series rows is damaged.
    RowFile,
    /// A file of flow records or series rows has an invalid begin or end.
    Frame,
    /// Series rows or flow records are missing: series rows count fewer packets than are stored in their second, a
    /// recording has series rows before and after a second without a row, or fewer flow records begin in a second than
    /// its series row counts.
    Rows,
    /// Packets are stored in seconds without a series row, or flows without a flow record began; the cause may be a
    /// recording without a meter, a crash, or retention.
    NoRows,
    /// A file is in another hour directory than its name says.
    Misplaced,
    /// A damaged original, which was retained in the directory of the file that was salvaged from it.
    SetAside,
    /// The file does not belong to the store.
    Foreign,
    /// The format of the file is known, but this version of the format is not supported.
    Version,
    /// The path names no capture file, or a directory without capture files.
    NoCapture,
    /// The file could not be read.
    Unreadable,
}

impl FindingKind {
    /// The name of the kind in JSON and in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Chain => "chain",
            Self::Order => "order",
            Self::WireLength => "wire_length",
            Self::Unmarked => "unmarked",
            Self::Checksum => "checksum",
            Self::Length => "length",
            Self::Index => "index",
            Self::Stale => "stale",
            Self::Keys => "keys",
            Self::Ledger => "ledger",
            Self::NoIndex => "no_index",
            Self::Orphan => "orphan",
            Self::Leftover => "leftover",
            Self::Missing => "missing",
            Self::GapUnchecked => "gap_unchecked",
            Self::Gap => "gap",
            Self::RowFile => "row_file",
            Self::Frame => "frame",
            Self::Rows => "rows",
            Self::NoRows => "no_rows",
            Self::Misplaced => "misplaced",
            Self::SetAside => "set_aside",
            Self::Foreign => "foreign",
            Self::Version => "version",
            Self::NoCapture => "no_capture",
            Self::Unreadable => "unreadable",
        }
    }

    /// The severity of the kind.
    pub const fn level(self) -> Level {
        match self {
            Self::Order
            | Self::WireLength
            | Self::Missing
            | Self::GapUnchecked
            | Self::Gap
            | Self::NoRows
            | Self::SetAside
            | Self::Foreign => Level::Note,
            Self::NoCapture | Self::Version | Self::Unreadable => Level::Unreadable,
            _ => Level::Damage,
        }
    }

    /// The remedy for findings of the kind; empty if nothing needs to be done.
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Chain | Self::Checksum | Self::Length => {
                "netgrain repair saves the complete records and keeps the original; check the volume (dmesg, smartctl)"
            }
            Self::Index | Self::Keys | Self::NoIndex | Self::Ledger => "netgrain repair rebuilds the index",
            Self::Stale => {
                "netgrain index rebuilds the index; if the capture was not changed on purpose, check the volume \
                 (dmesg, smartctl)"
            }
            Self::Leftover => "netgrain repair or the next recorder of this interface recovers it",
            Self::Unmarked => {
                "netgrain repair writes its out-of-order marker; until then, queries for an interval may miss its \
                 packets"
            }
            Self::Misplaced => "netgrain repair moves it to the directory of its hour",
            Self::Orphan => {
                "its packet file was removed; remove the index when its counts of lost packets are no longer needed"
            }
            Self::Frame => {
                "netgrain repair renames it, so that queries skip it; if its packets still exist, netgrain run -r \
                 writes the records and rows again, into another store"
            }
            Self::RowFile | Self::Rows | Self::NoRows => {
                "if the packets still exist, netgrain run -r writes the records and rows again, into another store"
            }
            Self::Missing => {
                "retention skipped an hour that was held, or another process removed a file: look in the archive or \
                 the backup"
            }
            Self::NoCapture => "name a store, a directory in a store, or a pcap, pcapng or RAW file",
            Self::Unreadable => "check that the file exists and that you may read it",
            // The text of a version finding already contains the remedy.
            Self::WireLength => {
                "netgrain uses the captured length as wire length; netgrain convert writes a copy with this wire length"
            }
            Self::Order | Self::GapUnchecked | Self::Gap | Self::SetAside | Self::Foreign | Self::Version => "",
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        if let Some(byte) = self.byte {
            write!(f, "byte {byte}: ")?;
        }
        f.write_str(&self.text)?;
        match self.remedy() {
            "" => Ok(()),
            remedy => write!(f, "; {remedy}"),
        }
    }
}
