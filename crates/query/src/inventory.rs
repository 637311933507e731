//! Describes the contents of one interface of a store, from the names of its files and from the indexes of its last
//! files.

use base::Timestamp;
use columns::DataFileKind;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use store::catalogue::{Entry, Hours};
use store::names;
use store::out_of_order::{OutOfOrderMarkers, Span};

/// One interface of a store: its data types, and the times of its packets according to file names and indexes.
#[derive(Debug, PartialEq, Eq)]
pub struct InterfaceInventory {
    /// The name of the directory of the interface.
    pub interface: String,
    directory: PathBuf,
}

impl InterfaceInventory {
    /// Finds the interface with this name, or with this directory name, in a store.
    pub fn of(store: &Path, interface: &str) -> Self {
        Self { directory: names::interface_directory(store, interface), interface: interface.to_owned() }
    }

    /// The times of the first and of the last packet; `None` without packet files. The first time comes from file
    /// names, the last from the index of the last file of each queue, or from the name of a file without index. The
    /// function lists hour directories, so it is used only for messages.
    pub fn packets(&self) -> Option<(Timestamp, Timestamp)> {
        let first = self.oldest()?;
        let mut hours = Hours::back(&self.directory, Timestamp::MAX);
        while let Ok(Some(hour)) = hours.next() {
            let listing = hour.list().unwrap_or_default();
            let mut last_of_queue = BTreeMap::new();
            for entry in listing.sealed.iter().chain(&listing.unfinished) {
                let newest = last_of_queue.entry(entry.queue).or_insert(entry);
                if entry.start >= newest.start {
                    *newest = entry;
                }
            }
            if let Some(last) = last_of_queue.values().map(|entry| last_packet(entry)).max() {
                return Some((first, last.max(first)));
            }
        }
        None
    }

    /// The start of the first and of the last file; `None` if there are only directories. The function lists hour
    /// directories, so it is used only for messages.
    pub fn files(&self) -> Option<(Timestamp, Timestamp)> {
        let first = edge(Hours::forward(&self.directory, Timestamp::ZERO, Timestamp::MAX), Iterator::min);
        let last = edge(Hours::back(&self.directory, Timestamp::MAX), Iterator::max);
        first.zip(last)
    }

    /// True if files or journals of this data type may exist. For a directory that cannot be listed, the result is
    /// true.
    pub fn may_hold(&self, store: &Path, kind: DataFileKind) -> bool {
        if columns::files(store, &self.interface, kind).map_or(true, |files| !files.is_empty()) {
            return true;
        }
        // Journals are hidden files in the interface directory.
        let ending = format!(".{}.partial", kind.name());
        let is_journal = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().ends_with(&ending);
        std::fs::read_dir(&self.directory).map_or(true, |entries| entries.flatten().any(is_journal))
    }

    /// The time of the oldest packets. If these packets are in an out-of-order file, this time is earlier than the
    /// start time of the file.
    pub fn oldest(&self) -> Option<Timestamp> {
        let (first, _) = self.files()?;
        let noted = OutOfOrderMarkers::read(&self.directory).unwrap_or_default();
        let there =
            |start: Timestamp, stem: &str| Entry::find(&names::hour_directory(&self.directory, start), stem).is_some();
        let earlier = noted.iter().filter(|(_, span, _)| *span != Span::UNKNOWN && span.first < first);
        let earlier = earlier.filter(|((start, ..), _, stem)| there(*start, stem)).map(|(_, span, _)| span.first);
        earlier.chain([first]).min()
    }
}

/// The time of the last packet of a file; the start of the file if its index cannot be read.
fn last_packet(entry: &Entry) -> Timestamp {
    let summary = entry.index.as_ref().and_then(|path| {
        let index = std::fs::File::open(path).ok()?;
        index::Reader::begin(&index).ok()?.summary().stamps
    });
    summary.map_or(entry.start, |(_, last)| last)
}

/// The start time that `choose` selects in the first hour directory that contains a file. An hour directory that cannot
/// be listed counts as empty.
fn edge(mut hours: Hours, choose: fn(std::vec::IntoIter<Timestamp>) -> Option<Timestamp>) -> Option<Timestamp> {
    // The loop continues after empty hour directories, which retention removes only after some time.
    while let Ok(Some(hour)) = hours.next() {
        let listing = hour.list().unwrap_or_default();
        let starts: Vec<Timestamp> = listing.sealed.iter().chain(&listing.unfinished).map(|e| e.start).collect();
        if let Some(start) = choose(starts.into_iter()) {
            return Some(start);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::TempDir;

    #[test]
    fn first_and_last_file_are_found_despite_empty_directories() {
        let dir = TempDir::new("inventory-names");
        for hour in ["2025/01/01/00", "2026/11/21/10", "2026/11/21/11", "2026/12/01/00"] {
            std::fs::create_dir_all(dir.join("eth1").join(hour)).expect("directories");
        }
        for file in [
            "2026/11/21/10/20261121T104200.000000005Z-q1.pcap",
            "2026/11/21/10/20261121T104200.000000005Z-q1.ngi",
            "2026/11/21/10/zebra.pcap",
            "2026/11/21/11/20261121T110000.000000000Z.pcap",
            "2026/11/21/11/.20261121T110500.000000000Z.pcap.partial",
        ] {
            std::fs::write(dir.join("eth1").join(file), "").expect("a file");
        }
        let at = |text: &str| Timestamp::parse(text, Timestamp::ZERO).expect("a time");
        let files = Some((at("2026-11-21T10:42:00.000000005Z"), at("2026-11-21T11:05:00Z")));
        assert_eq!(InterfaceInventory::of(dir.path(), "eth1").files(), files);
    }
}
