//! What recorders that were killed left in the folder of this interface. Room that one had prepared is given back: such a
//! file is empty of packets, and whoever lives holds a lock on its own. Anything that may hold packets is only told of.
//!
//! One folder is looked at in each call, the newest first, while there is nothing to write; so a large store neither
//! delays the first packet nor is read to its end.

use super::event::how_to_publish;
use super::{Event, Format, Writer};
use index;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use store::device::Device;
use store::names;

/// Folders looked at, at most: more than a month of hours.
const MOST_FOLDERS: usize = 1000;

/// What packet files end in.
const SUFFIXES: [&str; 2] = [Format::Pcap.suffix(), Format::Raw { file_bytes: 0 }.suffix()];

/// See the module.
#[derive(Default)]
pub(super) struct Survey {
    begun: bool,
    looked: usize,
    /// To be looked at, the newest last.
    folders: Vec<PathBuf>,
    hidden: Finding,
    orphans: Finding,
}

/// Files of one kind.
#[derive(Default)]
struct Finding {
    files: u64,
    newest: Option<PathBuf>,
}

impl Finding {
    fn add(&mut self, path: PathBuf) {
        self.files += 1;
        // Folders come newest first, but the names in one come in order.
        self.newest = self.newest.take().max(Some(path));
    }
}

impl<D: Device> Writer<D> {
    /// Looks at one more folder of what earlier recorders left; false once there is none. What was found is told then,
    /// but for the room given back, which the first call does and tells.
    pub fn survey(&mut self) -> bool {
        let root = names::interface_folder(&self.config.store, &self.config.header.interface);
        if !self.survey.begun {
            self.survey.begun = true;
            self.survey.folders.push(root.clone());
            self.give_back_prepared(&root);
        }
        let Some(folder) = self.survey.folders.pop() else { return false };
        self.survey.looked += 1;
        self.look_at(&folder);
        if self.survey.looked == MOST_FOLDERS {
            self.survey.folders.clear();
        }
        if self.survey.folders.is_empty() {
            self.tell_survey(&root);
        }
        !self.survey.folders.is_empty()
    }

    fn give_back_prepared(&mut self, root: &Path) {
        let (mut files, mut bytes) = (0, 0);
        for (name, _) in self.device.list(root).unwrap_or_default() {
            if !is_prepared(&name) {
                continue;
            }
            match self.device.remove_unheld(&root.join(&name)) {
                Ok(Some(room)) => (files, bytes) = (files + 1, bytes + room),
                // Somebody lives, or was faster.
                Ok(None) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => {
                    let path = root.join(&name);
                    self.remark(format!("{}: cannot remove what a killed recorder had prepared: {e}", path.display()));
                }
            }
        }
        if files > 0 {
            self.remark(format!(
                "{}: removed {files} empty files that a killed recorder had prepared, {bytes} bytes",
                root.display()
            ));
        }
    }

    fn look_at(&mut self, folder: &Path) {
        // A folder that cannot be read hides what is in it from its owner too.
        let list = self.device.list(folder).unwrap_or_default();
        let names: BTreeSet<&str> = list.iter().map(|(name, _)| name.as_str()).collect();
        for (name, is_folder) in &list {
            let path = folder.join(name);
            if *is_folder {
                self.survey.folders.push(path);
            } else if let Some(stem) = hidden_packets(name) {
                if self.is_ours(stem) && !self.device.is_held(&path) && self.device.exists(&path) {
                    self.survey.hidden.add(path);
                }
            } else if let Some(stem) = published_index(name)
                && self.is_ours(stem)
                && !SUFFIXES.iter().any(|s| names.contains(format!("{stem}.{s}").as_str()))
                && !self.is_being_published(folder, stem)
            {
                self.survey.orphans.add(path);
            }
        }
        self.survey.folders.sort_unstable();
    }

    /// Whether another recorder is between the index's name and the packets' at this moment, or has come past it.
    fn is_being_published(&mut self, folder: &Path, stem: &str) -> bool {
        SUFFIXES.iter().any(|suffix| {
            let hidden = folder.join(names::hidden(stem, suffix));
            self.device.exists(&hidden) && self.device.is_held(&hidden)
                || self.device.exists(&folder.join(format!("{stem}.{suffix}")))
        })
    }

    /// The recorders of one interface share its folder; each tells of the files of its queue, and of those of queues that
    /// are no more.
    fn is_ours(&self, stem: &str) -> bool {
        let queues = self.config.queues.max(1);
        names::queue_of(stem) % queues == self.config.header.queue % queues
    }

    fn tell_survey(&mut self, root: &Path) {
        let survey = std::mem::take(&mut self.survey);
        self.survey.begun = true;
        let root = root.display();
        let so_far = if survey.looked == MOST_FOLDERS { " (in its newest folders)" } else { "" };
        if let Finding { files, newest: Some(newest) } = survey.hidden {
            self.remark(format!(
                "{root}{so_far}: {files} packet files of killed recorders keep their hidden names, the newest {}: {}",
                newest.display(),
                how_to_publish(&newest)
            ));
        }
        if let Finding { files, newest: Some(newest) } = survey.orphans {
            self.remark(format!(
                "{root}{so_far}: {files} indexes without their packet file, the newest {}: the packets are in the hidden \
                 file of the same name, if a power failure parted them, or were removed; the indexes are kept",
                newest.display()
            ));
        }
    }

    fn remark(&mut self, text: String) {
        self.events.push(Event::Remark(text));
    }
}

/// Whether this is the name of a file made ahead of need.
fn is_prepared(name: &str) -> bool {
    name.starts_with(names::PREPARED) && SUFFIXES.iter().any(|s| name.ends_with(&format!(".{s}.{}", names::PARTIAL)))
}

/// The stem of a hidden packet file.
fn hidden_packets(name: &str) -> Option<&str> {
    let stem = name.strip_prefix('.')?.strip_suffix(names::PARTIAL)?.strip_suffix('.')?;
    let stem = SUFFIXES.iter().find_map(|s| stem.strip_suffix(s)?.strip_suffix('.'))?;
    (!is_prepared(name)).then_some(stem)
}

/// The stem of an index that has its real name.
fn published_index(name: &str) -> Option<&str> {
    (!name.starts_with('.')).then(|| name.strip_suffix(index::SUFFIX)?.strip_suffix('.'))?
}
