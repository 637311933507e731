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

    /// Returns the format that belongs to this file name extension.
    pub fn of_extension(extension: &str) -> Option<Self> {
        match extension.to_ascii_lowercase().as_str() {
            "pcap" | "cap" => Some(Self::Pcap),
            "pcapng" | "ntar" => Some(Self::PcapNg),
            "raw" => Some(Self::Raw),
            _ => None,
        }
    }

    /// The format of a capture that is written to this path, by the file name extension. Unknown extensions and `-`
    /// mean pcapng, which preserves most information. All verbs that write captures use this function.
    pub fn of_path(path: &Path) -> Self {
        path.extension().and_then(|e| Self::of_extension(e.to_str()?)).unwrap_or(Self::PcapNg)
    }
}

/// The compression program that belongs to a file name extension. Netgrain does not compress its output, so callers
/// reject such names and recommend the program.
pub fn packer_of(path: &Path) -> Option<&'static str> {
    match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "gz" => Some("gzip"),
        "zst" | "zstd" => Some("zstd"),
        "xz" => Some("xz"),
        "bz2" => Some("bzip2"),
        _ => None,
    }
}

/// The name of the format on the command line.
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

/// The header after which packets are truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slice {
    /// Packets are truncated after the link header, VLAN tags and MPLS labels.
    L2,
    /// Packets are truncated after the network header with its options and extension headers; ARP is kept completely.
    L3,
    /// Packets are truncated after the transport header with its options.
    L4,
}

/// The conditions under which a new output file begins. The first condition that is met begins a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Begins a new output file at every multiple of this time span (counted from 1970). No file is written for a span
    /// without packets.
    pub every: Option<Duration>,
    /// Begins a new output file before the current file exceeds this number of bytes. RAW files, except the last, are
    /// padded to exactly this size.
    pub bytes: Option<u64>,
    /// Begins a new output file after this number of packets.
    pub packets: Option<u64>,
}

impl Split {
    /// True if all packets are written to one file.
    pub const fn is_none(&self) -> bool {
        self.every.is_none() && self.bytes.is_none() && self.packets.is_none()
    }
}

/// The settings of a conversion.
#[derive(Debug)]
pub struct Plan {
    /// The output format.
    pub format: Format,
    /// The begin of the interval.
    pub from: Timestamp,
    /// The end of the time interval of the packets that are written. The interval includes this time.
    pub to: Timestamp,
    /// Packets that do not match this filter are not written.
    pub filter: Filter,
    /// Greatest number of bytes kept of each packet; 0 for all.
    pub snaplen: u32,
    /// The header after which packets are truncated.
    pub slice: Option<Slice>,
    /// The conditions under which a new output file begins.
    pub split: Split,
    /// Sorts packets by time if the inputs are out of order. At most this many bytes of packets are held back in
    /// memory.
    pub sort: Option<usize>,
    /// Removes duplicates with these settings. The packets are compared after the filter, before they are truncated or
    /// anonymised.
    pub duplicates: Option<duplicates::Settings>,
    /// The settings of the anonymisation.
    pub anonymise: Option<Anonymiser>,
    /// A flag that ends the conversion early, with complete output files.
    pub stop: Option<Arc<AtomicBool>>,
}

impl Default for Plan {
    /// Returns the default plan, which writes all packets unchanged into nanosecond pcap.
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
            duplicates: None,
            anonymise: None,
            stop: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_selects_the_format_and_unknown_extensions_mean_pcapng() {
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
