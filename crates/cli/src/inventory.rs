//! Messages about the contents of a store, for queries without result or with unknown interfaces.

use crate::outcome::Failure;
use crate::zone::Zone;
use ::query::InterfaceInventory;
use columns::DataFileKind;
use std::ffi::OsStr;
use std::path::Path;
use store::{catalogue, names};

/// The most interfaces that are named in one line.
const MAX: usize = 6;

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
    let found: Vec<InterfaceInventory> = names.iter().map(|name| InterfaceInventory::of(store, name)).collect();
    if found.is_empty() {
        return Err(say("nothing has been recorded here; name the --store that `netgrain record` writes"));
    }
    Ok(found)
}

/// Refuses an interface that the store does not have, with a suggestion.
pub fn check(store: &Path, interfaces: &[InterfaceInventory], asked: &[String]) -> Result<(), Failure> {
    for name in asked {
        let folder = names::interface_folder(store, name);
        if interfaces.iter().any(|s| folder.file_name() == Some(OsStr::new(&s.interface))) {
            continue;
        }
        let advice = match base::nearest(name, interfaces.iter().map(|s| s.interface.as_str())) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("it has {}", listed(interfaces.iter().map(|s| s.interface.clone()))),
        };
        return Err(Failure::Said(format!("{name}: {} has no such interface; {advice}", store.display())));
    }
    Ok(())
}

/// The message that the store has no flow records or no series rows of these interfaces, with advice; `None` if it has
/// some.
pub fn missing(
    store: &Path,
    interfaces: &[InterfaceInventory],
    kind: DataFileKind,
    asked: &[String],
) -> Option<String> {
    let wanted = |inventory: &&InterfaceInventory| asked.is_empty() || asked.contains(&inventory.interface);
    if interfaces.iter().filter(wanted).any(|inventory| inventory.may_hold(store, kind)) {
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

/// `eth1 (packets from … to …), eth2 (…)`.
pub fn print(interfaces: &[InterfaceInventory], asked: &[String], zone: &Zone) -> String {
    let wanted = |s: &&InterfaceInventory| asked.is_empty() || asked.contains(&s.interface);
    listed(interfaces.iter().filter(wanted).map(|s| match s.packets() {
        Some((first, last)) => format!("{} (packets {})", s.interface, zone.interval_in_words(first, last)),
        None => format!("{} (no packet files)", s.interface),
    }))
}

fn listed(names: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = names.collect();
    let more = if all.len() > MAX { format!(" and {} more", all.len() - MAX) } else { String::new() };
    all[..all.len().min(MAX)].join(", ") + &more
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Timestamp;
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
        assert!(said(inventories(&dir.join("file"))).contains("use -r"));
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
        assert_eq!(inventories(dir.path()).expect("a store"), [InterfaceInventory::of(dir.path(), "eth1")]);
    }
}
