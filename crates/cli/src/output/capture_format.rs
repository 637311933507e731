//! The format of a capture that a verb writes with `-w`.

use crate::outcome::Failure;
use clap::ValueEnum;
use std::path::Path;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CaptureFormat {
    /// pcapng, with interfaces, numbers of lost packets and the query
    Pcapng,
    /// Nanosecond pcap: packets only, of one link type
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
                "{}: only netgrain convert writes RAW: name a .pcapng or .pcap file, or use --format",
                path.display()
            ))),
        }
    }
}

/// Returns an error if the file name has the extension of a compressed file.
pub fn unpacked(path: &Path) -> Result<(), Failure> {
    match convert::packer_of(path) {
        None => Ok(()),
        Some(packer) => Err(Failure::Said(format!(
            "{}: the output is not compressed: leave the extension out, or use -w - | {packer} > {}",
            path.display(),
            path.display()
        ))),
    }
}
