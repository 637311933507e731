//! Messages about the contents of a store, for queries without result or with unknown interfaces.

use crate::outcome::Failure;
use crate::zone::Zone;
use ::query::InterfaceInventory;
use columns::DataFileKind;
use std::ffi::OsStr;
use std::path::Path;
use store::{catalogue, names};

/// The maximum number of interfaces that are listed in one line.
const MAX: usize = 6;

/// Lists the interfaces of a store.
pub fn inventories(store: &Path) -> Result<Vec<InterfaceInventory>, Failure> {
    let failure = |what: &str| Failure::Said(format!("{}: {what}", store.display()));
    let entries = match std::fs::read_dir(store) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(failure("there is no such directory; name the --store that `netgrain record` writes"));
        }
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            return Err(failure("no permission to list this directory; run as the owner of the store, or as root"));
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotADirectory => {
            return Err(failure(
                "a file, not a directory; use -r for a capture, or name the --store that `netgrain record` writes",
            ));
        }
        Err(e) => return Err(failure(&sys::advice::unreadable(&e))),
    };
    drop(entries);
    let names = catalogue::interfaces(store).map_err(|e| failure(&e.to_string()))?;
    let found: Vec<InterfaceInventory> = names.iter().map(|name| InterfaceInventory::of(store, name)).collect();
    if found.is_empty() {
        if let Some(name) = unreadable(store).first() {
            return Err(no_permission(store, name));
        }
        return Err(failure("nothing has been recorded here; name the --store that `netgrain record` writes"));
    }
    Ok(found)
}

/// The directories of a store that the user may not list.
fn unreadable(store: &Path) -> Vec<String> {
    catalogue::unreadable(store).unwrap_or_default()
}

fn no_permission(store: &Path, name: &str) -> Failure {
    let directory = store.join(name);
    Failure::Said(format!(
        "{}: no permission to read this directory; run as the owner of the store, or as root",
        directory.display()
    ))
}

/// Checks that the store has the requested interfaces; the error suggests a similar name. If the query is about all
/// interfaces, prints a warning about those that the user may not read.
pub fn check(store: &Path, interfaces: &[InterfaceInventory], requested: &[String]) -> Result<(), Failure> {
    let unreadable = unreadable(store);
    if requested.is_empty() && !unreadable.is_empty() {
        sys::say!(
            "netgrain: {}: no permission to read {}: the result lacks what was recorded there; run as the owner of the \
             store, or as root",
            store.display(),
            listed(unreadable.iter().cloned())
        );
    }
    for name in requested {
        let directory = names::interface_directory(store, name);
        if let Some(denied) = unreadable.iter().find(|denied| directory.file_name() == Some(OsStr::new(denied))) {
            return Err(no_permission(store, denied));
        }
        if interfaces.iter().any(|s| directory.file_name() == Some(OsStr::new(&s.interface))) {
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

/// The message that the store has no flow records or no series rows of these interfaces, with advice; `None` if the
/// store has some of them.
pub fn missing(
    store: &Path,
    interfaces: &[InterfaceInventory],
    kind: DataFileKind,
    requested: &[String],
) -> Option<String> {
    let wanted = |inventory: &&InterfaceInventory| requested.is_empty() || requested.contains(&inventory.interface);
    if interfaces.iter().filter(wanted).any(|inventory| inventory.may_hold(store, kind)) {
        return None;
    }
    let (what, verb) = match kind {
        DataFileKind::Flows => ("flow records", "flows"),
        DataFileKind::Series => ("rows of the series", "series"),
    };
    Some(format!(
        "{} has no {what}: `netgrain run` writes them beside the packets, `netgrain record` does not; from packet \
         files, `netgrain {verb} -r FILE` computes them for one query, and `netgrain run -r FILE --store DIR` for a \
         store",
        store.display()
    ))
}

/// The interfaces of a store as text: `eth1 (packets from … to …), eth2 (…)`.
pub fn print(interfaces: &[InterfaceInventory], requested: &[String], zone: &Zone) -> String {
    let wanted = |s: &&InterfaceInventory| requested.is_empty() || requested.contains(&s.interface);
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

    fn message<T>(result: Result<T, Failure>) -> String {
        match result {
            Err(Failure::Said(text)) => text,
            _ => panic!("the call succeeded"),
        }
    }

    #[test]
    fn errors_name_the_missing_store_and_suggest_interfaces() {
        let dir = TempDir::new("stock");
        assert!(message(inventories(&dir.join("none"))).contains("no such directory"));
        assert!(message(inventories(dir.path())).contains("nothing has been recorded"));
        std::fs::write(dir.join("file"), "x").expect("a file");
        assert!(message(inventories(&dir.join("file"))).contains("use -r"));
        for interface in ["eth1", "uplink"] {
            std::fs::create_dir_all(dir.join(interface).join("2026/11/21/10")).expect("directories");
        }
        let found = inventories(dir.path()).expect("two interfaces");
        let message_for = |name: &str| message(check(dir.path(), &found, &[name.to_owned()]));
        assert!(message_for("eth2").ends_with("did you mean eth1?"), "{}", message_for("eth2"));
        assert!(message_for("wlan0").ends_with("it has eth1, uplink"), "{}", message_for("wlan0"));
        check(dir.path(), &found, &["uplink".to_owned()]).expect("the interface exists");
        assert_eq!(print(&found, &[], &Zone::Utc), "eth1 (no packet files), uplink (no packet files)");
    }

    #[test]
    fn a_store_whose_first_recorder_has_just_begun_can_be_queried() {
        let dir = TempDir::new("stock-claimed");
        std::fs::create_dir_all(dir.join("notes")).expect("a directory that belongs to no interface");
        let claimant = store::Claimant::this(Timestamp::ZERO, None, Vec::new());
        let _claim = store::Claim::take(&dir.join("eth1"), &claimant).expect("a claim");
        assert_eq!(inventories(dir.path()).expect("a store"), [InterfaceInventory::of(dir.path(), "eth1")]);
    }
}
