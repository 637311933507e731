//! Chooses the secret key of the address hash ([`store::meter_key`]) for the source of a plan.

use crate::hash_key::random_key;
use crate::plan::{Plan, SourcePlan};
use std::path::Path;
use store::meter_key::{MeterKey, MeterKeyError};
use store::names::interface_directory;

/// Sets the secret hash key of the meter and of the flow table: the `wanted` key if there is one, otherwise the key
/// that the store contains for the interface, otherwise a random key. The key is also written to the store, unless it
/// is the published default key.
///
/// # Errors
/// A key cannot be read or written.
pub fn choose_key(plan: &mut Plan, store: Option<&Path>, wanted: Option<MeterKey>) -> Result<(), MeterKeyError> {
    let directory = store.map(|store| interface_directory(store, &plan.source.label()));
    let MeterKey(key) = choose(wanted, &plan.source, directory.as_deref())?;
    if let Some(meter) = &mut plan.meter {
        meter.key = key;
        if let Some(flows) = &mut meter.flows {
            flows.seed = key;
        }
    }
    Ok(())
}

/// Returns the key of capture files: the key of the store that contains them, otherwise the published default key.
///
/// # Errors
/// The key cannot be read.
pub fn key_of_files(source: &SourcePlan) -> Result<MeterKey, MeterKeyError> {
    let first = match source {
        SourcePlan::File { path, .. } => Some(path),
        SourcePlan::Files { paths, .. } => paths.first(),
        _ => None,
    };
    Ok(first.map(|path| MeterKey::of_file(path)).transpose()?.flatten().unwrap_or(MeterKey::OPEN))
}

fn choose(wanted: Option<MeterKey>, source: &SourcePlan, directory: Option<&Path>) -> Result<MeterKey, MeterKeyError> {
    let key = match (wanted, source) {
        (Some(key), _) => key,
        (None, SourcePlan::Interface(_)) => match directory.map(MeterKey::read).transpose()?.flatten() {
            Some(key) => return Ok(key),
            None => MeterKey(random_key()),
        },
        (None, source) => key_of_files(source)?,
    };
    match directory {
        Some(directory) if key != MeterKey::OPEN => key.keep(directory, wanted.is_some()),
        _ => Ok(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::InterfacePlan;
    use std::fs;
    use std::path::PathBuf;
    use testkit::TempDir;

    fn interface() -> SourcePlan {
        SourcePlan::Interface(InterfacePlan::new("eth1", capture::auto::SourceKind::Tpacket))
    }

    fn file(path: PathBuf) -> SourcePlan {
        SourcePlan::File { path, options: capture::file::Options::default() }
    }

    #[test]
    fn an_interface_has_one_random_key_which_also_applies_to_its_files() {
        let dir = TempDir::new("an_interface_gets_one_random_key");
        let directory = dir.join("eth1");
        let key = choose(None, &interface(), Some(&directory)).expect("a key");
        assert_eq!(choose(None, &interface(), Some(&directory)).expect("a key"), key);
        let other = choose(None, &interface(), Some(&dir.join("eth2"))).expect("a key");
        assert_ne!(other, key, "another interface has another key");
        let hour = directory.join("2026/11/22/05");
        fs::create_dir_all(&hour).expect("a directory");
        fs::write(hour.join("a.pcap"), "").expect("a file");
        let (again, next) = (dir.join("again"), dir.join("next"));
        assert_eq!(choose(None, &file(hour.join("a.pcap")), Some(&again)).expect("a key"), key);
        // A replay into another store copied the key into that store. A further replay, from that store into a third
        // store, uses the same key again.
        fs::write(again.join("a.pcap"), "").expect("a file");
        assert_eq!(choose(None, &file(again.join("a.pcap")), Some(&next)).expect("a key"), key);
    }

    #[test]
    fn files_outside_a_store_have_the_open_key_unless_a_key_is_configured() {
        let dir = TempDir::new("files_outside_a_store");
        let path = dir.join("a.pcap");
        fs::write(&path, "").expect("a file");
        assert_eq!(choose(None, &file(path.clone()), None).expect("a key"), MeterKey::OPEN);
        assert_eq!(choose(Some(MeterKey(7)), &file(path), Some(dir.path())).expect("a key"), MeterKey(7));
        assert_eq!(
            choose(None, &interface(), Some(dir.path())).expect("a key"),
            MeterKey(7),
            "the configured key is stored"
        );
        assert_eq!(choose(Some(MeterKey(8)), &interface(), Some(dir.path())).expect("a key"), MeterKey(8));
        assert_eq!(choose(None, &interface(), Some(dir.path())).expect("a key"), MeterKey(8));
    }
}
