//! The journal of changed settings. It contains the old values of the settings, so that a later run can restore them.
//!
//! Invariant: the journal entry of a change is on disk before the change is made. After a crash the journal has at most
//! one entry whose change was not made; the undo of such an entry changes nothing.

use crate::netns::Netns;
use crate::setting::Setting;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use sys::sysfs::Tree;

/// The journal entry of one change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The setting.
    #[serde(flatten)]
    pub setting: Setting,
    /// The old value.
    pub was: String,
    /// The new value.
    pub value: String,
    /// The boot id of the kernel at the time of the change; a reboot resets the settings.
    pub boot: String,
    /// The network namespace of the change, if the setting depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Netns>,
}

/// The changes that can be undone, oldest first.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    entries: Vec<Entry>,
}

/// The reason why the journal cannot be used.
#[derive(Debug)]
pub enum JournalError {
    /// The journal file cannot be read or written.
    Io(PathBuf, io::Error),
    /// The file is not a journal of netgrain.
    Foreign(PathBuf, String),
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, e) => {
                write!(
                    f,
                    "{}: {e}; this file keeps the old values for --undo: name a writable file with --state",
                    path.display()
                )
            }
            Self::Foreign(path, e) => {
                write!(f, "{}: not a journal of netgrain doctor ({e}); name another file with --state", path.display())
            }
        }
    }
}

impl std::error::Error for JournalError {}

#[derive(Serialize, Deserialize)]
struct Document {
    netgrain_doctor_undo: u32,
    entries: Vec<Entry>,
}

const VERSION: u32 = 1;

impl Journal {
    /// Opens the journal at `path`; a missing file is an empty journal.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let entries = match fs::read(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(JournalError::Io(path.to_owned(), e)),
            Ok(bytes) => {
                let foreign = |why: String| JournalError::Foreign(path.to_owned(), why);
                let document: Document = serde_json::from_slice(&bytes).map_err(|e| foreign(e.to_string()))?;
                if document.netgrain_doctor_undo != VERSION {
                    return Err(foreign(format!("version {}", document.netgrain_doctor_undo)));
                }
                document.entries
            }
        };
        Ok(Self { path: path.to_owned(), entries })
    }

    /// Returns the changes, oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Adds the entry of a change to the journal; the entry is on disk when this function returns.
    ///
    /// # Errors
    /// [`JournalError::Io`]; the caller must then not make the change.
    pub fn add(&mut self, entry: Entry) -> Result<(), JournalError> {
        self.entries.push(entry);
        let saved = self.save();
        if saved.is_err() {
            self.entries.pop();
        }
        saved
    }

    /// Removes an entry; the removal is on disk when this function returns. If no entry remains, the file of the
    /// journal is deleted.
    ///
    /// # Errors
    /// [`JournalError::Io`].
    pub fn remove(&mut self, at: usize) -> Result<(), JournalError> {
        self.entries.remove(at);
        self.save()
    }

    fn save(&self) -> Result<(), JournalError> {
        self.replace().map_err(|e| JournalError::Io(self.path.clone(), e))
    }

    fn replace(&self) -> io::Result<()> {
        if self.entries.is_empty() {
            return match fs::remove_file(&self.path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
                _ => Ok(()),
            };
        }
        let directory = self.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(directory)?;
        let document = Document { netgrain_doctor_undo: VERSION, entries: self.entries.clone() };
        let mut text = serde_json::to_vec_pretty(&document)?;
        text.push(b'\n');
        let new = self.path.with_extension("new");
        let mut file = fs::File::create(&new)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        fs::File::open(directory)?.sync_all()
    }
}

/// Returns the boot id of the running kernel.
pub fn boot(tree: &Tree) -> String {
    tree.text("proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// Undoes all changes, the latest first, and calls `report` with the result of each; `Ok` may contain a note. Changes
/// that cannot be undone stay in the journal.
///
/// # Errors
/// [`JournalError::Io`] if the journal cannot be written.
pub fn undo(
    journal: &mut Journal,
    tree: &Tree,
    mut report: impl FnMut(&Entry, Result<Option<String>, io::Error>),
) -> Result<usize, JournalError> {
    let boot = boot(tree);
    let mut failed = 0;
    for at in (0..journal.entries.len()).rev() {
        let entry = journal.entries[at].clone();
        let outcome = if entry.boot == boot {
            restore(&entry, tree)
        } else {
            Ok(Some("a restart of the machine has undone the change".to_owned()))
        };
        let done = outcome.is_ok();
        report(&entry, outcome);
        if done {
            journal.remove(at)?;
        } else {
            failed += 1;
        }
    }
    Ok(failed)
}

fn restore(entry: &Entry, tree: &Tree) -> io::Result<Option<String>> {
    if let Some(there) = &entry.namespace
        && Netns::here(tree).is_some_and(|here| here.inode != there.inode)
    {
        return Err(io::Error::other(match there.way_in(tree) {
            Some(way) => {
                format!("the setting was changed in the network namespace {there}: run {way} netgrain doctor --undo")
            }
            None => format!(
                "the setting was changed in the network namespace {there}, which has no name and no process: enter the \
                 namespace, or, if it no longer exists, restore the setting of the interface by hand and remove the \
                 journal"
            ),
        }));
    }
    let now = entry.setting.read(tree)?;
    if now == entry.was {
        return Ok(Some("the setting already has this value".to_owned()));
    }
    entry.setting.write(tree, &entry.was)?;
    Ok((now != entry.value).then(|| format!("its value was {now}, which --fix had not set")))
}
