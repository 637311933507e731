//! The format of a capture that a verb writes with `-w`.

use crate::outcome::Failure;
use clap::ValueEnum;
use std::path::Path;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CaptureFormat {
    /// With interfaces, losses and the question in it
    Pcapng,
    /// Nanosecond pcap: packets alone, of one link type
    Pcap,
}

impl CaptureFormat {
    /// The format of a written file: as given, otherwise by the extension; all verbs use the same rule.
    pub fn of(wanted: Option<Self>, path: &Path) -> Result<Self, Failure> {
        unpacked(path)?;
        match (wanted, convert::Format::of_path(path)) {
            (Some(format), _) => Ok(format),
            (None, convert::Format::Pcap | convert::Format::PcapMicros) => Ok(Self::Pcap),
            (None, convert::Format::PcapNg) => Ok(Self::Pcapng),
            (None, convert::Format::Raw) => Err(Failure::Said(format!(
                "{}: RAW is written by netgrain convert alone: name a .pcapng or .pcap, or say --format",
                path.display()
            ))),
        }
    }
}

/// Refuses the extension of a compressed file.
pub fn unpacked(path: &Path) -> Result<(), Failure> {
    match convert::packer_of(path) {
        None => Ok(()),
        Some(packer) => Err(Failure::Said(format!(
            "{}: what is written is not packed: leave the ending out, or say -w - | {packer} > {}",
            path.display(),
            path.display()
        ))),
    }
}
