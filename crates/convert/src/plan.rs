//! Describes a conversion.

use crate::Anonymiser;
use base::Timestamp;
use filter::Filter;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// pcap with nanoseconds.
    #[default]
    Pcap,
    /// pcap with microseconds, for tools that do not read nanoseconds.
    PcapMicros,
    /// pcapng with nanoseconds.
    PcapNg,
    /// HPCAP RAW.
    Raw,
}

impl Format {
    /// The usual file name extension, without the dot.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Pcap | Self::PcapMicros => "pcap",
            Self::PcapNg => "pcapng",
            Self::Raw => "raw",
        }
    }

    /// The format with this file name extension.
    pub fn of_extension(extension: &str) -> Option<Self> {
        match extension.to_ascii_lowercase().as_str() {
            "pcap" | "cap" => Some(Self::Pcap),
            "pcapng" | "ntar" => Some(Self::PcapNg),
            "raw" => Some(Self::Raw),
            _ => None,
        }
    }

    /// The format of a capture that is written to this path, for every verb that writes captures: by the extension; for
    /// an unknown extension and for `-` pcapng, which preserves most information.
    pub fn of_path(path: &Path) -> Self {
        path.extension().and_then(|e| Self::of_extension(e.to_str()?)).unwrap_or(Self::PcapNg)
    }
}

/// The compression program that a file name suggests; netgrain does not compress its output.
pub fn packer_of(path: &Path) -> Option<&'static str> {
    match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "gz" => Some("gzip"),
        "zst" | "zstd" => Some("zstd"),
        "xz" => Some("xz"),
        "bz2" => Some("bzip2"),
        _ => None,
    }
}

/// As on the command line.
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

/// Where a packet is truncated, by its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slice {
    /// After link header, tags and labels.
    L2,
    /// After the network header with its options and extension headers; ARP is kept completely.
    L3,
    /// After the transport header with its options.
    L4,
}

/// When a new file begins: at the first condition that is met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// At every multiple of this span (counted from 1970). Spans without packets have no file.
    pub every: Option<Duration>,
    /// Before a file exceeds this many bytes. RAW files, except the last, are padded to exactly this size.
    pub bytes: Option<u64>,
    /// After this many packets.
    pub packets: Option<u64>,
}

impl Split {
    /// True if everything goes into one file.
    pub const fn is_none(&self) -> bool {
        self.every.is_none() && self.bytes.is_none() && self.packets.is_none()
    }
}

/// A conversion; see the module.
#[derive(Debug)]
pub struct Plan {
    /// The output format.
    pub format: Format,
    /// The begin of the interval.
    pub from: Timestamp,
    /// The inclusive end of the interval.
    pub to: Timestamp,
    /// The filter on packets.
    pub filter: Filter,
    /// Greatest number of bytes kept of each packet; 0 for all.
    pub snaplen: u32,
    /// Where packets are truncated, by their headers.
    pub slice: Option<Slice>,
    /// When a new file begins.
    pub split: Split,
    /// Sorts packets by time if the inputs are out of order, holding back at most this many bytes.
    pub sort: Option<usize>,
    /// Replaces addresses.
    pub anonymise: Option<Anonymiser>,
    /// A flag that ends the conversion early, with complete output files.
    pub stop: Option<Arc<AtomicBool>>,
}

impl Default for Plan {
    /// All packets unchanged, into nanosecond pcap.
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
