//! The contents of a store by its file names: interfaces, and the start of the first and last file of each. Used in
//! messages for queries without result or with unknown interfaces.

use crate::outcome::Failure;
use crate::zone::Zone;
use base::Timestamp;
use columns::DataFileKind;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use store::catalogue::{self, Entry, Hours};
use store::names;
use store::out_of_order::{OutOfOrderMarkers, Span};

/// The most interfaces that are named in one line.
const MAX: usize = 6;

/// One interface of a store.
#[derive(Debug, PartialEq, Eq)]
pub struct InterfaceInventory {
    pub interface: String,
    folder: PathBuf,
}

impl InterfaceInventory {
    /// The times of the first and of the last packet; `None` without packet files. The first comes from file names, the
    /// last from the index of the last file of each queue, or from the name of a file without index. It lists hour
    /// directories, so it is used only for messages.
    pub fn packets(&self) -> Option<(Timestamp, Timestamp)> {
        let first = self.oldest()?;
        let mut hours = Hours::back(&self.folder, Timestamp::MAX);
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

    /// The start of the first and of the last file; `None` if there are only directories. It lists hour directories, so
    /// it is used only for messages.
    pub fn files(&self) -> Option<(Timestamp, Timestamp)> {
        let first = edge(Hours::forward(&self.folder, Timestamp::ZERO, Timestamp::MAX), Iterator::min);
        let last = edge(Hours::back(&self.folder, Timestamp::MAX), Iterator::max);
        first.zip(last)
    }

    /// True if files or journals of this data type may exist; a directory that cannot be listed may have some.
    fn may_hold(&self, store: &Path, kind: DataFileKind) -> bool {
        if columns::files(store, &self.interface, kind).map_or(true, |files| !files.is_empty()) {
            return true;
        }
        // A journal is a hidden file in the interface directory.
        let ending = format!(".{}.partial", kind.name());
        let is_journal = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().ends_with(&ending);
        std::fs::read_dir(&self.folder).map_or(true, |entries| entries.flatten().any(is_journal))
    }

    /// The time of the oldest packets, which precedes the start of their file if that file is out of order.
    pub fn oldest(&self) -> Option<Timestamp> {
        let (first, _) = self.files()?;
        let noted = OutOfOrderMarkers::read(&self.folder).unwrap_or_default();
        let there =
            |start: Timestamp, stem: &str| Entry::find(&names::hour_folder(&self.folder, start), stem).is_some();
        let earlier = noted.iter().filter(|(_, span, _)| *span != Span::UNKNOWN && span.first < first);
        let earlier = earlier.filter(|((start, ..), _, stem)| there(*start, stem)).map(|(_, span, _)| span.first);
        earlier.chain([first]).min()
    }
}

/// Lists the interfaces of a store.
pub fn inventories(store: &Path) -> Result<Vec<InterfaceInventory>, Failure> {
    let say = |what: &str| Failure::Said(format!("{}: {what}", store.display()));
    let entries = match std::fs::read_dir(store) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(say("there is no such folder; name the --store that `netgrain record` writes"));
        }
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            return Err(say("no permission to list this folder; run as the owner of the store, or as root"));
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotADirectory => {
            return Err(say(
                "a file, not a folder; use -r for a capture, or name the --store that `netgrain record` writes",
            ));
        }
        Err(e) => return Err(say(&sys::advice::unreadable(&e))),
    };
    drop(entries);
    let names = catalogue::interfaces(store).map_err(|e| say(&e.to_string()))?;
    let shelf = |interface: String| InterfaceInventory { folder: store.join(&interface), interface };
    let found: Vec<InterfaceInventory> = names.into_iter().map(shelf).collect();
    if found.is_empty() {
        return Err(say("nothing has been recorded here; name the --store that `netgrain record` writes"));
    }
    Ok(found)
}

/// Refuses an interface that the store does not have, with a suggestion.
pub fn check(store: &Path, shelves: &[InterfaceInventory], asked: &[String]) -> Result<(), Failure> {
    for name in asked {
        let folder = names::interface_folder(store, name);
        if shelves.iter().any(|s| folder.file_name() == Some(OsStr::new(&s.interface))) {
            continue;
        }
        let advice = match base::nearest(name, shelves.iter().map(|s| s.interface.as_str())) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("it has {}", listed(shelves.iter().map(|s| s.interface.clone()))),
        };
        return Err(Failure::Said(format!("{name}: {} has no such interface; {advice}", store.display())));
    }
    Ok(())
}

/// The message that the store has no flow records or no series rows of these interfaces, with advice; `None` if it has
/// some.
pub fn missing(store: &Path, shelves: &[InterfaceInventory], kind: DataFileKind, asked: &[String]) -> Option<String> {
    let wanted = |shelf: &&InterfaceInventory| asked.is_empty() || asked.contains(&shelf.interface);
    if shelves.iter().filter(wanted).any(|shelf| shelf.may_hold(store, kind)) {
        return None;
    }
    let (what, verb) = match kind {
        DataFileKind::Flows => ("flow records", "flows"),
        DataFileKind::Series => ("rows of the series", "series"),
    };
    Some(format!(
        "{} has no {what}: `netgrain run` makes them beside the packets, `netgrain record` does not; of packets that are there \
         `netgrain {verb} -r FILE` makes them for an answer, and `netgrain run -r FILE --store DIR` for a store",
        store.display()
    ))
}

/// The time of the last packet of a file, or the start of the file if it has no index that can be read.
fn last_packet(entry: &Entry) -> Timestamp {
    let summary = entry.index.as_ref().and_then(|path| {
        let index = std::fs::File::open(path).ok()?;
        index::Reader::begin(&index).ok()?.summary().stamps
    });
    summary.map_or(entry.start, |(_, last)| last)
}

/// `eth1 (packets from … to …), eth2 (…)`.
pub fn print(shelves: &[InterfaceInventory], asked: &[String], zone: &Zone) -> String {
    let wanted = |s: &&InterfaceInventory| asked.is_empty() || asked.contains(&s.interface);
    listed(shelves.iter().filter(wanted).map(|s| match s.packets() {
        Some((first, last)) => format!("{} (packets {})", s.interface, zone.interval_in_words(first, last)),
        None => format!("{} (no packet files)", s.interface),
    }))
}

fn listed(names: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = names.collect();
    let more = if all.len() > MAX { format!(" and {} more", all.len() - MAX) } else { String::new() };
    all[..all.len().min(MAX)].join(", ") + &more
}

/// The start that `choose` selects in the first hour with any file. An hour that cannot be listed counts as empty.
fn edge(mut hours: Hours, choose: fn(std::vec::IntoIter<Timestamp>) -> Option<Timestamp>) -> Option<Timestamp> {
    // Retention leaves empty directories for a moment.
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

    fn said<T>(result: Result<T, Failure>) -> String {
        match result {
            Err(Failure::Said(text)) => text,
            _ => panic!("it was not refused"),
        }
    }

    #[test]
    fn what_is_no_store_is_named_and_so_is_what_was_perhaps_meant() {
        let dir = TempDir::new("stock");
        assert!(said(inventories(&dir.join("none"))).contains("no such folder"));
        assert!(said(inventories(dir.path())).contains("nothing has been recorded"));
        std::fs::write(dir.join("file"), "x").expect("a file");
        assert!(said(inventories(&dir.join("file"))).contains("with -r"));
        for interface in ["eth1", "uplink"] {
            std::fs::create_dir_all(dir.join(interface).join("2026/11/21/10")).expect("folders");
        }
        let found = inventories(dir.path()).expect("two interfaces");
        let refused = |name: &str| said(check(dir.path(), &found, &[name.to_owned()]));
        assert!(refused("eth2").ends_with("did you mean eth1?"), "{}", refused("eth2"));
        assert!(refused("wlan0").ends_with("it has eth1, uplink"), "{}", refused("wlan0"));
        check(dir.path(), &found, &["uplink".to_owned()]).expect("it is there");
        assert_eq!(print(&found, &[], &Zone::Utc), "eth1 (no packet files), uplink (no packet files)");
    }

    #[test]
    fn a_store_whose_first_recorder_has_just_begun_can_be_asked() {
        let dir = TempDir::new("stock-claimed");
        std::fs::create_dir_all(dir.join("notes")).expect("a folder of somebody else");
        let claimant = store::Claimant::this(Timestamp::ZERO, None, Vec::new());
        let _claim = store::Claim::take(&dir.join("eth1"), &claimant).expect("a claim");
        assert_eq!(
            inventories(dir.path()).expect("a store"),
            [InterfaceInventory { interface: "eth1".into(), folder: dir.join("eth1") }]
        );
    }

    #[test]
    fn the_first_and_last_file_are_found_by_name_past_empty_folders_and_foreign_files() {
        let dir = TempDir::new("stock-names");
        for hour in ["2025/01/01/00", "2026/11/21/10", "2026/11/21/11", "2026/12/01/00"] {
            std::fs::create_dir_all(dir.join("eth1").join(hour)).expect("folders");
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
        let found = inventories(dir.path()).expect("a store");
        assert_eq!(found.iter().map(|s| (s.interface.as_str(), s.files())).collect::<Vec<_>>(), [("eth1", files)]);
    }
}
