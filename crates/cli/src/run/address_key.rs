//! The secret of the address hash of a meter, and the file that keeps it.
//!
//! With a known secret, a sender could choose source addresses that the address estimate counts as one (so that a scan
//! is invisible in the time series) or one address that counts as millions; UDP lets a sender choose source addresses
//! freely. So the packets of an interface are hashed under a secret that is drawn when the interface is first recorded.
//! The secret is kept beside the packets ([`METER_KEY`] in the interface directory), so that metering the same packets
//! again gives the same estimates; its readers can also read the packets. Files outside a store are metered under
//! [`OPEN`]: each replay gives the same rows, and no sender can add addresses to an existing file.

use crate::outcome::Failure;
use config::{Config, Secret};
use engine::{Plan, SourcePlan};
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use store::names::{METER_KEY, interface_folder};
use sys::nofollow::{self, OpenOptions};

/// The secret for packets outside a store.
const OPEN: u64 = 0;

/// Levels from a packet file up to its interface directory: hour, day, month, year, interface.
const DEPTH: usize = 5;

/// Sets the secret of each plan, and keeps it in the store.
///
/// # Errors
/// A secret cannot be read or written.
pub fn choose_key(config: &Config, plans: &mut [Plan]) -> Result<(), Failure> {
    for plan in plans {
        let folder = config.store.dir.as_ref().map(|store| interface_folder(store, &plan.source.label()));
        let key = choose(config.series.key, &plan.source, folder.as_deref())?;
        if let Some(meter) = &mut plan.meter {
            meter.key = key;
            if let Some(flows) = &mut meter.flows {
                flows.seed = key;
            }
        }
    }
    Ok(())
}

/// The secret of an interface in a store.
///
/// # Errors
/// The secret cannot be read.
pub fn of_interface(store: &Path, interface: &str) -> Result<u64, Failure> {
    Ok(read(&interface_folder(store, interface))?.unwrap_or(OPEN))
}

/// The secret of capture files: that of their store, otherwise [`OPEN`].
///
/// # Errors
/// The secret cannot be read.
pub fn of_source(source: &SourcePlan) -> Result<u64, Failure> {
    Ok(origin(source)?.unwrap_or(OPEN))
}

fn choose(wanted: Option<Secret>, source: &SourcePlan, folder: Option<&Path>) -> Result<u64, Failure> {
    let key = match (wanted, source) {
        (Some(Secret(key)), _) => key,
        (None, SourcePlan::Interface(_)) => match folder.map(read).transpose()?.flatten() {
            Some(key) => return Ok(key),
            None => engine::random_key(),
        },
        (None, source) => origin(source)?.unwrap_or(OPEN),
    };
    match folder {
        Some(folder) if key != OPEN => keep(folder, key, wanted.is_some()),
        _ => Ok(key),
    }
}

/// The secret under which files of a store were first metered.
fn origin(source: &SourcePlan) -> Result<Option<u64>, Failure> {
    let first = match source {
        SourcePlan::File { path, .. } => Some(path),
        SourcePlan::Files { paths, .. } => paths.first(),
        _ => None,
    };
    // A missing file is reported when it is opened.
    let Some(path) = first.and_then(|path| path.canonicalize().ok()) else { return Ok(None) };
    for folder in path.ancestors().skip(1).take(DEPTH) {
        if let Some(key) = read(folder)? {
            return Ok(Some(key));
        }
    }
    Ok(None)
}

fn read(folder: &Path) -> Result<Option<u64>, Failure> {
    let path = folder.join(METER_KEY);
    match nofollow::read_to_string(&path) {
        Ok(text) => {
            text.trim().parse().map(|Secret(key)| Some(key)).map_err(|e: String| {
                Failure::Said(format!("{}: {e}; remove it to have a new one drawn", path.display()))
            })
        }
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(said(&path, &e)),
    }
}

/// Writes the secret unless one exists and `replace` is false; returns the secret in force.
fn keep(folder: &Path, key: u64, replace: bool) -> Result<u64, Failure> {
    // The secret is the first file written into a store, so an unwritable store is reported here.
    nofollow::create_folders(folder).map_err(|e| {
        let store = folder.parent().unwrap_or(folder).display();
        let cause = sys::advice::cause(&e);
        Failure::Said(format!("{store}: cannot record there: {cause}; name a folder on a writable volume with --store"))
    })?;
    let (path, whole) = (folder.join(METER_KEY), folder.join(format!("{METER_KEY}.{}", std::process::id())));
    let written = write(&whole, key).and_then(|()| {
        if replace {
            return nofollow::rename(&whole, &path);
        }
        // Another run on the same interface may write first; the link publishes a complete secret or fails.
        let linked = nofollow::link(&whole, &path);
        nofollow::remove(&whole)?;
        linked
    });
    match written {
        Ok(()) => Ok(key),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(read(folder)?.unwrap_or(key)),
        Err(e) => Err(said(&path, &e)),
    }
}

fn write(path: &Path, key: u64) -> io::Result<()> {
    // Overwrites the hidden file of a run that was killed here.
    let mut file = nofollow::open_as(path, OpenOptions { write: true, create: Some(0o640), ..OpenOptions::default() })?;
    file.set_len(0)?;
    writeln!(file, "{}", Secret(key))?;
    file.sync_all()
}

fn said(path: &Path, e: &io::Error) -> Failure {
    Failure::Said(format!("{}: {e}; the secret of the packets is kept there (docs/reference/run.md)", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;
    use testkit::TempDir;

    fn port() -> SourcePlan {
        SourcePlan::Interface(engine::InterfacePlan::new("eth1", capture::auto::SourceKind::Tpacket))
    }

    fn file(path: PathBuf) -> SourcePlan {
        SourcePlan::File { path, options: capture::file::Options::default() }
    }

    #[test]
    fn a_store_that_cannot_be_written_is_told_as_such() {
        let dir = TempDir::new("a_store_that_cannot_be_written");
        let store = dir.join("store");
        fs::write(&store, "").expect("a file");
        match choose(None, &port(), Some(&store.join("eth1"))) {
            Err(Failure::Said(text)) => {
                assert!(text.starts_with(&format!("{}: cannot record there", store.display())), "{text}");
                assert!(text.contains("--store") && !text.contains(METER_KEY), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_port_draws_its_secret_once_and_its_files_have_the_same() {
        let dir = TempDir::new("a_port_draws_its_secret_once");
        let folder = dir.join("eth1");
        let key = choose(None, &port(), Some(&folder)).expect("a secret");
        assert_eq!(choose(None, &port(), Some(&folder)).expect("a secret"), key);
        let other = choose(None, &port(), Some(&dir.join("eth2"))).expect("a secret");
        assert_ne!(other, key, "another port, another secret");
        let hour = folder.join("2026/11/22/05");
        fs::create_dir_all(&hour).expect("a folder");
        fs::write(hour.join("a.pcap"), "").expect("a file");
        let (again, next) = (dir.join("again"), dir.join("next"));
        assert_eq!(choose(None, &file(hour.join("a.pcap")), Some(&again)).expect("a secret"), key);
        // Packets replayed into another store keep their secret when replayed from there.
        fs::write(again.join("a.pcap"), "").expect("a file");
        assert_eq!(choose(None, &file(again.join("a.pcap")), Some(&next)).expect("a secret"), key);
    }

    #[test]
    fn files_of_no_store_have_the_open_one_and_a_given_one_wins() {
        let dir = TempDir::new("files_of_no_store_have_the_open_one");
        let path = dir.join("a.pcap");
        fs::write(&path, "").expect("a file");
        assert_eq!(choose(None, &file(path.clone()), None).expect("a secret"), OPEN);
        assert_eq!(choose(Some(Secret(7)), &file(path), Some(dir.path())).expect("a secret"), 7);
        assert_eq!(choose(None, &port(), Some(dir.path())).expect("a secret"), 7, "and stays");
        assert_eq!(choose(Some(Secret(8)), &port(), Some(dir.path())).expect("a secret"), 8);
        assert_eq!(choose(None, &port(), Some(dir.path())).expect("a secret"), 8);
    }

    #[test]
    fn a_secret_that_is_none_is_said_with_its_place() {
        let dir = TempDir::new("a_secret_that_is_none");
        fs::write(dir.join(METER_KEY), "abc").expect("a file");
        match choose(None, &port(), Some(dir.path())) {
            Err(Failure::Said(text)) => assert!(text.contains(METER_KEY) && text.contains("sixteen"), "{text}"),
            other => panic!("{other:?}"),
        }
    }
}
