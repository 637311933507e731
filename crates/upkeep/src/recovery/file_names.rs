//! The names of the files of a killed recorder, and of the temporary files of recovery.

use base::Timestamp;
use std::path::{Path, PathBuf};
use store::catalogue::parse_stem;
use store::names::{INDEX, PACKETS, PARTIAL, PREPARED, hour_directory};

/// Suffix of the files that recovery writes before it changes the files of the killed recorder.
const RECOVERED: &str = "recovered";

/// Suffix of the stem of a sealed index while it is hidden.
const SEALED: &str = ".sealed";

/// Number of digits in the name of the directory of a year.
const YEAR_DIGITS: usize = 4;

/// Suffix of files with unverified bytes.
pub const DAMAGED: &str = "damaged";

/// The names of a packet file and of the files that belong to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileNames {
    /// The published name without its ending.
    pub stem: String,
    /// The ending: `pcap` or `raw`.
    pub ending: &'static str,
}

impl FileNames {
    /// Parses the published name of a packet file.
    pub fn published(name: &str) -> Option<Self> {
        if name.starts_with('.') { None } else { Self::split(name) }
    }

    /// Parses the hidden name of a packet file.
    pub fn hidden(name: &str) -> Option<Self> {
        Self::split(inner(name, PARTIAL)?)
    }

    /// Parses the name of a copy that an interrupted recovery created.
    pub fn recovered_stem(name: &str) -> Option<Self> {
        Self::split(inner(name, RECOVERED)?)
    }

    fn split(name: &str) -> Option<Self> {
        PACKETS.iter().find_map(|ending| {
            let stem = name.strip_suffix(ending)?.strip_suffix('.')?;
            (!stem.is_empty()).then(|| Self { stem: stem.to_owned(), ending })
        })
    }

    /// `STEM.pcap`.
    pub fn packets(&self) -> String {
        format!("{}.{}", self.stem, self.ending)
    }

    /// `STEM.ngi`.
    pub fn index(&self) -> String {
        format!("{}.{INDEX}", self.stem)
    }

    /// `.STEM.pcap.partial`.
    pub fn hidden_packets(&self) -> String {
        store::names::hidden(&self.stem, self.ending)
    }

    /// `.STEM.ngi.partial`.
    pub fn hidden_index(&self) -> String {
        store::names::hidden(&self.stem, INDEX)
    }

    /// `.STEM.sealed.ngi.partial`: the index that the recorder writes when it seals a packet file, and that is not
    /// published yet.
    pub fn sealed_index(&self) -> String {
        store::names::hidden(&format!("{}{SEALED}", self.stem), INDEX)
    }

    /// Name of the copy of the packet file without its damaged parts.
    pub fn recovered_packets(&self) -> String {
        format!(".{}.{}.{RECOVERED}", self.stem, self.ending)
    }

    /// The index of the copy.
    pub fn recovered_index(&self) -> String {
        format!(".{}.{INDEX}.{RECOVERED}", self.stem)
    }

    /// Name of the file with the cut-off bytes, while they are being copied.
    pub fn recovered_damaged(&self) -> String {
        format!(".{}.{}.{DAMAGED}.{RECOVERED}", self.stem, self.ending)
    }

    /// Name of the file with the cut-off bytes, or of the complete damaged original.
    pub fn damaged(&self, number: u32) -> String {
        let number = if number > 0 { format!("_{number}") } else { String::new() };
        format!("{}.{}{number}.{DAMAGED}", self.stem, self.ending)
    }

    /// The name with the same start time and another copy number; for 0, the name has no copy number.
    pub fn numbered(&self, number: u32) -> Self {
        let base = base(&self.stem);
        let stem = if number > 0 { format!("{base}_{number}") } else { base.to_owned() };
        Self { stem, ending: self.ending }
    }

    /// The start time in the name of the file; `None` for a name that no recorder gives, of which queries find no
    /// packets.
    pub fn start(&self) -> Option<Timestamp> {
        parse_stem(&self.stem).map(|(start, ..)| start)
    }

    /// The number in the name.
    pub fn number(&self) -> u32 {
        self.stem[base(&self.stem).len()..].trim_start_matches('_').parse().unwrap_or(0)
    }
}

/// The stem without the copy number, which distinguishes files with equal start times.
fn base(stem: &str) -> &str {
    match stem.rsplit_once('_') {
        Some((base, digits)) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => base,
        _ => stem,
    }
}

/// The stem in the name of a hidden growing index; `None` for other names.
pub fn hidden_index(name: &str) -> Option<&str> {
    let stem = inner(name, PARTIAL)?.strip_suffix(INDEX)?.strip_suffix('.')?;
    (!stem.ends_with(SEALED)).then_some(stem)
}

/// The stem in the name of a hidden sealed index; `None` for other names.
pub fn sealed_index(name: &str) -> Option<&str> {
    inner(name, PARTIAL)?.strip_suffix(INDEX)?.strip_suffix('.')?.strip_suffix(SEALED)
}

/// The stem in the name of a published index; `None` for other names.
pub fn published_index(name: &str) -> Option<&str> {
    if name.starts_with('.') { None } else { name.strip_suffix(INDEX)?.strip_suffix('.') }
}

/// The stem in the name of an index that recovery wrote; `None` for other names.
pub fn recovered_index(name: &str) -> Option<&str> {
    inner(name, RECOVERED)?.strip_suffix(INDEX)?.strip_suffix('.')
}

/// True if this is the stem of an index of a packet file of a store.
pub fn is_stem_of_store(stem: &str) -> bool {
    // The stem of an index that `netgrain index` made is the complete name of the packet file.
    parse_stem(stem).is_some() || FileNames::published(stem).is_some_and(|called| called.start().is_some())
}

/// The hour directory in which a file with this start time belongs, if the file is in another directory of a year of
/// the same interface; otherwise `None`.
pub fn place_elsewhere(path: &Path, start: Timestamp) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let directory = path.parent()?;
    let interface = interface_of(directory);
    let year = directory.strip_prefix(&interface).ok()?.iter().next()?;
    let place = hour_directory(&interface, start);
    (year.len() == YEAR_DIGITS && place != directory).then_some(place)
}

/// True for the name of a temporary file of an interrupted recovery.
pub fn is_recovered(name: &str) -> bool {
    inner(name, RECOVERED).is_some()
}

/// The ending of the packet file for which this file was prepared; `None` for names of other files.
pub fn prepared(name: &str) -> Option<&'static str> {
    let rest = name.strip_prefix(PREPARED)?.strip_suffix(PARTIAL)?.strip_suffix('.')?;
    PACKETS.into_iter().find(|ending| rest.ends_with(&format!(".{ending}")))
}

/// The queue in the name of a prepared file.
pub fn prepared_queue(name: &str) -> u16 {
    let rest = name.strip_prefix(PREPARED).and_then(|rest| rest.strip_prefix('q')).unwrap_or("");
    rest.split('-').next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// The directory of the interface, which contains the directories of years.
pub fn interface_of(hour: &Path) -> PathBuf {
    let is_number = |p: &Path| p.file_name().is_some_and(|n| n.to_string_lossy().bytes().all(|b| b.is_ascii_digit()));
    let mut at = hour;
    for _ in 0..4 {
        match at.parent() {
            Some(parent) if is_number(at) => at = parent,
            _ => break,
        }
    }
    at.to_owned()
}

fn inner<'n>(name: &'n str, ending: &str) -> Option<&'n str> {
    let inner = name.strip_prefix('.')?.strip_suffix(ending)?.strip_suffix('.')?;
    (!name.starts_with(PREPARED)).then_some(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_in_the_directory_of_its_hour() {
        let start = Timestamp::from_secs_nanos(1_795_290_000, 0);
        let elsewhere = |path: &str| place_elsewhere(Path::new(path), start);
        let place = Some(PathBuf::from("/s/eth1/2026/11/21/19"));
        for wrong in ["/s/eth1/2026/11/21/03/f", "/s/eth1/2026/11/21/f", "/s/eth1/2026/f", "/s/eth1/2025/11/21/19/f"] {
            assert_eq!(elsewhere(wrong), place, "{wrong}");
        }
        for right in ["/s/eth1/2026/11/21/19/f", "/s/eth1/f", "/tmp/12/f", "/f"] {
            assert_eq!(elsewhere(right), None, "{right}");
        }
    }

    #[test]
    fn every_name_is_recognised_and_names_its_file() {
        let file = FileNames { stem: "20261121T194000.000000000Z-q3_2".into(), ending: "pcap" };
        assert_eq!(FileNames::published(&file.packets()), Some(file.clone()));
        assert_eq!(FileNames::hidden(&file.hidden_packets()), Some(file.clone()));
        assert_eq!(FileNames::recovered_stem(&file.recovered_packets()), Some(file.clone()));
        assert_eq!(hidden_index(&file.hidden_index()), Some(&file.stem[..]));
        assert_eq!(
            (hidden_index(&file.sealed_index()), sealed_index(&file.sealed_index())),
            (None, Some(&file.stem[..]))
        );
        assert_eq!(published_index(&file.index()), Some(&file.stem[..]));
        assert_eq!(recovered_index(&file.recovered_index()), Some(&file.stem[..]));
        assert_eq!((file.number(), file.numbered(0).number(), file.numbered(7).number()), (2, 0, 7));
        assert_eq!(file.start(), Some(Timestamp::from_secs_nanos(1_795_290_000, 0)));
        assert_eq!(file.numbered(0).stem, "20261121T194000.000000000Z-q3");
        for other in [file.hidden_packets(), file.recovered_packets(), file.damaged(1), file.index()] {
            assert_eq!(FileNames::published(&other), None, "{other}");
        }
        for other in ["20261121T194000.000000000Zx.pcap", "20261121T194000.000000000Z-q3_x.raw", "a.pcap"] {
            assert_eq!(FileNames::published(other).expect("an ending").start(), None, "{other}");
        }
        assert!(is_stem_of_store(&file.stem) && is_stem_of_store(&file.packets()));
        assert!(!is_stem_of_store("20261121T194000.000000000Zx") && !is_stem_of_store("a.pcap"));
        assert_eq!(prepared(&store::names::prepared(1, 2, "raw")), Some("raw"));
        assert_eq!(FileNames::hidden(&store::names::prepared(1, 2, "raw")), None);
    }
}
