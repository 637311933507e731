//! What verification tells people.

use std::fmt;
use std::path::PathBuf;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// In which file or folder.
    pub path: PathBuf,
    /// What kind of thing.
    pub kind: FindingKind,
    /// At which byte of the file, where that can be said.
    pub byte: Option<u64>,
    /// What it is, in words.
    pub text: String,
    /// What to do about it where the kind alone does not say; mostly empty.
    pub advice: &'static str,
}

impl Finding {
    /// What to do about it; empty where nothing needs doing.
    pub const fn remedy(&self) -> &'static str {
        if self.advice.is_empty() { self.kind.remedy() } else { self.advice }
    }
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Something is not as it should be.
    Damage,
    /// Worth knowing, and as it may be.
    Note,
    /// It could not be looked at, or there is nothing in it that can be judged.
    Unreadable,
}

/// Kinds of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingKind {
    /// A record is cut off, or none can begin where one should.
    Chain,
    /// A stamp is earlier than one before it, as it was recorded.
    Order,
    /// Packets of somebody else's capture say fewer bytes on the wire than were captured.
    WireLength,
    /// Packets are not where the name of their file says, and no note tells questions so.
    Unmarked,
    /// Bytes are not those that were written.
    Checksum,
    /// The file is longer or shorter than its index says.
    Length,
    /// Index and packets do not agree, or the index cannot be read.
    Index,
    /// The index of somebody else's capture is of what that was before.
    Stale,
    /// The key sets deny a packet that is there.
    Keys,
    /// The ledger does not balance, or says other than the content.
    Ledger,
    /// A packet file has no index.
    NoIndex,
    /// An index has no packet file.
    Orphan,
    /// A dead recorder left a file under its hidden name.
    Leftover,
    /// Packets of a running capture lay between two files, and are not there.
    Missing,
    /// Whether packets are missing between some files could not be asked.
    GapUnchecked,
    /// Nobody watched between two files.
    Gap,
    /// A file of flow records or rows is not what it should be.
    RowFile,
    /// A file of flow records or rows does not begin or end as such a file does.
    Frame,
    /// One-second rows say of fewer packets than are stored in their second, or are missing within a recording that has
    /// some.
    Rows,
    /// Packets are stored in seconds without a one-second row.
    NoRows,
    /// A damaged original, kept beside what was saved of it.
    SetAside,
    /// Not a file of the store.
    Foreign,
    /// The format is known, and this version of it is not.
    Version,
    /// What was asked about is no capture, or a folder without any.
    NoCapture,
    /// It could not be read.
    Unreadable,
}

impl FindingKind {
    /// The word for it in documents.
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
            Self::SetAside => "set_aside",
            Self::Foreign => "foreign",
            Self::Version => "version",
            Self::NoCapture => "no_capture",
            Self::Unreadable => "unreadable",
        }
    }

    /// How bad it is.
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

    /// What to do about it; empty where nothing needs doing.
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Chain | Self::Checksum | Self::Length => {
                "netgrain repair saves what is whole and keeps the original beside it; look at the volume (dmesg, smartctl)"
            }
            Self::Index | Self::Keys | Self::NoIndex | Self::Ledger => "netgrain repair makes the index again",
            Self::Stale => {
                "netgrain index makes the index again; if nobody changed the capture, look at the volume (dmesg, smartctl)"
            }
            Self::Leftover => "netgrain repair mends it, or the next recorder of this interface",
            Self::Unmarked => "netgrain repair notes it; until then questions about an interval may miss packets of it",
            Self::Orphan => {
                "its packets were removed by somebody; remove it when its losses are of no interest any more"
            }
            Self::Frame => {
                "netgrain repair puts it aside; where its packets are kept, netgrain run -r makes it of them again, in another store"
            }
            Self::RowFile | Self::Rows | Self::NoRows => {
                "where its packets are kept, netgrain run -r makes it of them again, in another store"
            }
            Self::Missing => {
                "retention went past an hour that was held, or somebody removed a file: look into the archive or the backup"
            }
            Self::NoCapture => "name a store, a folder below one, or a pcap, pcapng or RAW file",
            Self::Unreadable => "check that it is there, and the right to read it",
            // The finding itself says what to do about a version.
            Self::WireLength => {
                "netgrain takes what was captured for the length; netgrain convert writes a copy that says so"
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
