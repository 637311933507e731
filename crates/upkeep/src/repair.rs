//! What recovery does at a start, by hand and for more: every folder of a store, files that have their name and are
//! damaged all the same, and captures of others.
//!
//! Nothing is removed that cannot be had again from what is left: a damaged original keeps its bytes under a name that
//! ends in `.damaged`. Files that a living process holds are refused.

mod salvage;

use crate::mend::{Layout, Window};
use crate::recovery::{Called, DAMAGED, Event, Outcome, Recovery, repair_published};
use crate::verify::{Finding, Kind, Level, Verify};
use salvage::Salvaged;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use store::device::{Content, Device, FileId};

/// What was done, or would be.
#[derive(Debug)]
pub enum Did {
    /// What recovery does.
    Recovered(Event),
    /// A file of the store was mended.
    Mended {
        /// Which.
        path: PathBuf,
        /// What became of it.
        outcome: Outcome,
    },
    /// What is whole in a damaged capture was written.
    Salvaged {
        /// Where it is.
        path: PathBuf,
        /// Where the original is.
        original: PathBuf,
        /// Packets or blocks that were saved.
        records: u64,
        /// Bytes that were left out.
        bytes: u64,
    },
    /// What is wrong, with `--dry-run`.
    Would(Finding),
    /// Nothing is wrong with it.
    Sound(PathBuf),
    /// It could not be mended.
    Refused {
        /// Which.
        path: PathBuf,
        /// Why not.
        why: String,
    },
}

impl Did {
    /// Whether this is something that could not be mended.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Refused { .. }
                | Self::Recovered(Event::Trouble { .. })
                | Self::Mended { outcome: Outcome::Held | Outcome::Unknown, .. }
        )
    }
}

impl fmt::Display for Did {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recovered(event) => event.fmt(f),
            Self::Mended { path, outcome: Outcome::Published { path: now, tally, aside } } => {
                write!(f, "{}: mended", path.display())?;
                if now != path {
                    write!(f, " as {}", now.display())?;
                }
                write!(f, ", {} packets", tally.stored)?;
                match aside {
                    Some(aside) => write!(f, "; what is damaged is kept as {}", aside.display()),
                    None => Ok(()),
                }
            }
            Self::Mended { path, outcome } => write!(f, "{}: {outcome:?}, left alone", path.display()),
            Self::Salvaged { path, original, records, bytes } => write!(
                f,
                "{}: {records} whole records saved, {bytes} bytes left out; the original is {}",
                path.display(),
                original.display()
            ),
            Self::Would(finding) => write!(f, "would mend {finding}"),
            Self::Sound(path) => write!(f, "{}: nothing to mend", path.display()),
            Self::Refused { path, why } => write!(f, "{}: {why}", path.display()),
        }
    }
}

/// See the module.
pub struct Repair<D, M, F> {
    device: D,
    /// Makes another device of the same volume.
    another: M,
    tell: F,
}

impl<D: Device, M: Fn() -> D, F: FnMut(Did)> Repair<D, M, F> {
    /// Tells each thing as it is done.
    pub fn new(another: M, tell: F) -> Self {
        Self { device: another(), another, tell }
    }

    /// Says what is wrong and would be mended, and changes nothing.
    pub fn dry_run(&mut self, path: &Path) {
        let tell = &mut self.tell;
        let mut verify = Verify::new((self.another)(), false, |finding: &Finding, _| {
            if finding.kind.level() != Level::Note {
                tell(Did::Would(finding.clone()));
            }
        });
        verify.path(path);
    }

    /// Mends a store, any folder below it, or a capture file.
    pub fn path(&mut self, path: &Path) {
        if self.device.list(path).is_err() {
            return self.file(path);
        }
        for root in self.interfaces(path) {
            let mut recovery = Recovery::new((self.another)(), &root).thorough();
            recovery.run();
            recovery.take_events().into_iter().for_each(|event| (self.tell)(Did::Recovered(event)));
        }
        let mut wrong = BTreeSet::new();
        let mut verify = Verify::new((self.another)(), false, |finding: &Finding, _| {
            if mends(finding.kind) {
                wrong.insert(packets_of(&finding.path));
            }
        });
        verify.path(path);
        wrong.iter().for_each(|path| self.damaged(path));
    }

    /// The folders of interfaces in a store; the folder itself where it is one, or below one.
    fn interfaces(&mut self, path: &Path) -> Vec<PathBuf> {
        let digits = |name: &str| name.bytes().all(|b| b.is_ascii_digit());
        let list = self.device.list(path).unwrap_or_default();
        let inner: Vec<&String> = list.iter().filter(|(_, is)| *is).map(|(name, _)| name).collect();
        match inner.is_empty() || inner.iter().all(|name| digits(name)) {
            true => vec![path.to_owned()],
            false => inner.into_iter().map(|name| path.join(name)).collect(),
        }
    }

    /// One file, whatever it is.
    fn file(&mut self, path: &Path) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(&format!(".{DAMAGED}")) {
            return self.damaged(path);
        }
        if Called::hidden(&name).is_some() {
            let outcome = repair_published((self.another)(), path);
            return self.told(path, outcome);
        }
        let (mut wrong, mut unreadable) = (false, None);
        let mut verify = Verify::new((self.another)(), false, |finding: &Finding, _| {
            wrong |= mends(finding.kind);
            if finding.kind == Kind::Unreadable || finding.kind == Kind::Foreign {
                unreadable = Some(finding.text.clone());
            }
        });
        verify.path(path);
        match (unreadable, wrong) {
            (Some(why), _) => (self.tell)(Did::Refused { path: path.to_owned(), why }),
            (None, true) => self.damaged(path),
            (None, false) => (self.tell)(Did::Sound(path.to_owned())),
        }
    }

    /// A file that is known to be damaged.
    fn damaged(&mut self, path: &Path) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match Called::published(&name).filter(|called| called.start().is_some()) {
            Some(_) => {
                let outcome = repair_published((self.another)(), path);
                self.told(path, outcome);
            }
            None => {
                let did = self.salvage(path, &name);
                (self.tell)(did.unwrap_or_else(|e| Did::Refused { path: path.to_owned(), why: e.to_string() }));
            }
        }
    }

    fn told(&mut self, path: &Path, outcome: io::Result<Outcome>) {
        (self.tell)(match outcome {
            Ok(Outcome::Held) => Did::Refused {
                path: path.to_owned(),
                why: "a living process holds it: stop the recorder first, or wait until it has ended the file".into(),
            },
            Ok(outcome) => Did::Mended { path: path.to_owned(), outcome },
            Err(e) => Did::Refused { path: path.to_owned(), why: e.to_string() },
        });
    }

    /// What is whole in a capture that is not of the store, or was set aside from it.
    fn salvage(&mut self, path: &Path, name: &str) -> io::Result<Did> {
        let Some(file) = self.device.take(path)? else {
            return Err(io::Error::other("a living process holds it: wait until that has ended"));
        };
        let saved = self.salvage_into(path, name, file);
        self.device.close(file);
        saved
    }

    fn salvage_into(&mut self, path: &Path, name: &str, file: FileId) -> io::Result<Did> {
        let temporary = path.with_file_name(format!(".{name}.mended"));
        let aside = name.strip_suffix(&format!(".{DAMAGED}"));
        let to = aside.map_or_else(|| path.to_owned(), |name| path.with_file_name(format!("{name}.salvaged")));
        match self.device.remove(&temporary) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let Salvaged { kept, records, left_out } =
            salvage::find(&mut Window::new(&mut self.device, file, u64::MAX)?, aside.unwrap_or(name))?;
        let copy = self.device.create(&temporary, Content::Index)?;
        let copied = self.copy(file, copy, &kept);
        let synced = copied.and_then(|()| crate::recovery::sync(&mut self.device, copy));
        self.device.close(copy);
        synced?;
        let original = match aside {
            Some(_) => path.to_owned(),
            None => path.with_file_name(format!("{name}.{DAMAGED}")),
        };
        if aside.is_none() {
            self.device.rename(path, &original)?;
        }
        self.device.rename(&temporary, &to)?;
        Ok(Did::Salvaged { path: to, original, records, bytes: left_out })
    }

    fn copy(&mut self, file: FileId, copy: FileId, kept: &[std::ops::Range<u64>]) -> io::Result<()> {
        let mut window = Window::new(&mut self.device, file, u64::MAX)?;
        let mut to = 0;
        for kept in kept {
            let mut from = kept.start;
            while from < kept.end {
                let part = window.get(from, (kept.end - from).min(1 << 20) as usize)?.to_vec();
                if part.is_empty() {
                    break;
                }
                window.device().put(copy, to, &part)?;
                (from, to) = (from + part.len() as u64, to + part.len() as u64);
            }
        }
        Ok(())
    }
}

/// Whether there is something to be done about it.
fn mends(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Chain | Kind::Checksum | Kind::Length | Kind::Index | Kind::Keys | Kind::Ledger | Kind::NoIndex
    )
}

/// The packet file that a finding is about, which may be one of its index.
fn packets_of(path: &Path) -> PathBuf {
    match path.extension().is_some_and(|e| e == store::names::INDEX) {
        true => path.with_extension(Layout::Pcap.ending()),
        false => path.to_owned(),
    }
}
