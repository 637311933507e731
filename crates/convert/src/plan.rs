//! What is to be done to the packets.

use crate::Anonymiser;
use base::Timestamp;
use filter::Filter;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The format that is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// pcap with nanoseconds.
    #[default]
    Pcap,
    /// pcap with microseconds, for tools that know nothing else.
    PcapMicros,
    /// pcapng with nanoseconds.
    PcapNg,
    /// RAW of HPCAP.
    Raw,
}

impl Format {
    /// What a file name usually ends with, without the dot.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Pcap | Self::PcapMicros => "pcap",
            Self::PcapNg => "pcapng",
            Self::Raw => "raw",
        }
    }

    /// The format that a file name with this extension promises.
    pub fn of_extension(extension: &str) -> Option<Self> {
        match extension.to_ascii_lowercase().as_str() {
            "pcap" | "cap" => Some(Self::Pcap),
            "pcapng" | "ntar" => Some(Self::PcapNg),
            "raw" => Some(Self::Raw),
            _ => None,
        }
    }

    /// The format of a capture that is written to this path, for every verb that writes one: as the name ends; where the
    /// ending promises nothing, and for `-`, pcapng, which holds most.
    pub fn of_path(path: &Path) -> Self {
        path.extension().and_then(|e| Self::of_extension(e.to_str()?)).unwrap_or(Self::PcapNg)
    }
}

/// The program that a name promises to have packed a file, which nothing here does with what it writes.
pub fn packer_of(path: &Path) -> Option<&'static str> {
    match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "gz" => Some("gzip"),
        "zst" | "zstd" => Some("zstd"),
        "xz" => Some("xz"),
        "bz2" => Some("bzip2"),
        _ => None,
    }
}

/// As the command line names it.
impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pcap => "pcap",
            Self::PcapMicros => "pcap-us",
            Self::PcapNg => "pcapng",
            Self::Raw => "raw",
        })
    }
}

/// Where a packet is cut, by its own headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slice {
    /// Behind link header, tags and labels.
    L2,
    /// Behind the network header with its options and extensions; ARP is kept whole.
    L3,
    /// Behind the transport header with its options.
    L4,
}

/// When a new file begins; every condition that is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// At every multiple of this span (counted from 1970). Spans without packets have no file.
    pub every: Option<Duration>,
    /// Before a file exceeds so many bytes. RAW files are padded to exactly this size, but for the last.
    pub bytes: Option<u64>,
    /// After so many packets.
    pub packets: Option<u64>,
}

impl Split {
    /// Whether everything goes into one file.
    pub const fn is_none(&self) -> bool {
        self.every.is_none() && self.bytes.is_none() && self.packets.is_none()
    }
}

/// See the module.
#[derive(Debug)]
pub struct Plan {
    /// The format that is written.
    pub format: Format,
    /// The first moment wanted.
    pub from: Timestamp,
    /// The last moment wanted, itself included.
    pub to: Timestamp,
    /// Which packets are wanted.
    pub filter: Filter,
    /// Most bytes kept of each packet; 0 for all.
    pub snaplen: u32,
    /// Where packets are cut, by their headers.
    pub slice: Option<Slice>,
    /// When a new file begins.
    pub split: Split,
    /// Put packets in order of time where the inputs have them out of order, holding back at most so many bytes.
    pub sort: Option<usize>,
    /// Replaces addresses.
    pub anonymise: Option<Anonymiser>,
    /// Ends the conversion early, but cleanly.
    pub stop: Option<Arc<AtomicBool>>,
}

impl Default for Plan {
    /// Everything as it is, into nanosecond pcap.
    fn default() -> Self {
        Self {
            format: Format::default(),
            from: Timestamp::ZERO,
            to: Timestamp::MAX,
            filter: Filter::default(),
            snaplen: 0,
            slice: None,
            split: Split::default(),
            sort: None,
            anonymise: None,
            stop: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_promises_a_format_and_what_promises_nothing_is_pcapng() {
        for (name, format) in [
            ("a.pcap", Format::Pcap),
            ("a.b/c.CAP", Format::Pcap),
            ("a.pcapng", Format::PcapNg),
            ("a.ntar", Format::PcapNg),
            ("a.raw", Format::Raw),
            ("-", Format::PcapNg),
            ("a.pcap/b", Format::PcapNg),
            (".pcap", Format::PcapNg),
            ("/dev/stdout", Format::PcapNg),
        ] {
            assert_eq!(Format::of_path(Path::new(name)), format, "{name}");
        }
    }
}
