//! The output of `-w`. A file is written under a hidden name in the same directory and renamed when it is complete, so
//! that no partial result is published. The output of `--follow`, a device and a pipe are written in place.

use crate::outcome::Failure;
use crate::overwrite;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The files that an output must not overwrite.
#[derive(Clone, Copy, Default)]
pub struct ProtectedPaths<'a> {
    /// The queried store.
    pub store: Option<&'a Path>,
    /// The files that the query reads.
    pub files: &'a [PathBuf],
    /// True if an output may overwrite other regular files.
    pub force: bool,
}

impl ProtectedPaths<'_> {
    /// Refuses an output before the query starts, so that the refusal costs no work.
    pub fn check(&self, path: &Path) -> Result<(), Failure> {
        if overwrite::is_stdout(path) {
            return Ok(());
        }
        let failure = |what: String| Failure::Said(format!("{}: {what}", path.display()));
        if path.file_name().is_none() {
            return Err(failure("not the name of a file".into()));
        }
        let place = directory(path)
            .canonicalize()
            .map_err(|e| failure(format!("{}; the directory must exist", sys::advice::cause(&e))))?;
        if let Some(store) = self.store.and_then(|s| s.canonicalize().ok())
            && (place.starts_with(&store) || path.canonicalize().is_ok_and(|there| there.starts_with(&store)))
        {
            return Err(failure("the output is inside of the store; write it elsewhere".into()));
        }
        // Files are compared by inode, because a hard or symbolic link has another path but leads to the same bytes.
        let identity = |path: &Path| std::fs::metadata(path).ok().map(|m| (m.dev(), m.ino()));
        if let Some(there) = identity(path)
            && self.files.iter().any(|f| identity(f) == Some(there))
        {
            return Err(failure("the file is an input of this command; write to another file".into()));
        }
        overwrite::check(path, self.force).map_err(Failure::say)
    }
}

/// The directory of a file.
fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(directory) if directory != Path::new("") => directory,
        _ => Path::new("."),
    }
}

/// The destination of the bytes.
#[derive(Debug)]
pub enum Target {
    /// Standard output.
    Pipe,
    /// The output is written to the path itself. `new` is true if the path did not exist before; such a file may be
    /// removed again.
    InPlace { path: PathBuf, new: bool },
    /// The output is written to a file at the second path. When it is complete, this file is renamed to the first path.
    Renamed(PathBuf, PathBuf),
}

impl Target {
    /// Opens the output, unless it is one of the protected paths. With `follow`, the output is written to the path
    /// itself.
    pub fn open(
        path: &Path,
        follow: bool,
        protected: ProtectedPaths<'_>,
    ) -> Result<(Self, Box<dyn Write + Send>), Failure> {
        protected.check(path)?;
        if overwrite::is_stdout(path) {
            return Ok((Self::Pipe, Box::new(io::stdout())));
        }
        let failure = |what: String| Failure::Said(format!("{}: {what}", path.display()));
        let regular = std::fs::metadata(path).map_or(true, |m| m.is_file());
        if follow || !regular {
            let new = path.symlink_metadata().is_err();
            let file = File::options()
                .write(true)
                .create(true)
                .truncate(true)
                .open(path)
                .map_err(|e| failure(sys::advice::uncreatable(&e)))?;
            return Ok((Self::InPlace { path: path.to_owned(), new }, Box::new(file)));
        }
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(path.file_name().unwrap_or_default());
        hidden.push(format!(".{}.partial", std::process::id()));
        let hidden = directory(path).join(hidden);
        let file = sys::nofollow::create_anew(&hidden).map_err(|e| failure(sys::advice::uncreatable(&e)))?;
        Ok((Self::Renamed(path.to_owned(), hidden), Box::new(file)))
    }

    /// Publishes the file.
    pub fn publish(&self) -> Result<(), Failure> {
        match self {
            Self::Renamed(path, hidden) => std::fs::rename(hidden, path).map_err(|e| {
                Failure::Said(format!("{}: {e}; the complete result is in {}", path.display(), hidden.display()))
            }),
            Self::Pipe | Self::InPlace { .. } => Ok(()),
        }
    }

    /// The path at which the bytes are written before the file is published.
    pub fn unpublished(&self) -> String {
        match self {
            Self::Renamed(_, hidden) => hidden.display().to_string(),
            Self::Pipe | Self::InPlace { .. } => self.name(),
        }
    }

    /// Removes the output of an empty result. False if there is nothing to remove: a pipe, a device, or a file that
    /// existed before and is already overwritten.
    pub fn remove(&self) -> bool {
        match self {
            Self::Renamed(_, made) | Self::InPlace { path: made, new: true } => {
                // If the file cannot be removed, it remains, and its name shows its origin.
                let _ = std::fs::remove_file(made);
                true
            }
            Self::Pipe | Self::InPlace { new: false, .. } => false,
        }
    }

    /// The failure of a write. If the output would have been renamed at its end, the incomplete file is removed, so
    /// that repeated attempts on a full volume leave no files.
    pub fn broken(&self, e: &io::Error, packets: u64) -> Failure {
        match self {
            Self::Pipe if e.kind() == io::ErrorKind::BrokenPipe => return Failure::ClosedPipe,
            Self::Pipe => return Failure::Said(format!("standard output: {e}")),
            Self::InPlace { path, .. } if e.kind() == io::ErrorKind::BrokenPipe => {
                return Failure::Said(format!("{}: the process that reads the pipe closed it", path.display()));
            }
            Self::InPlace { .. } | Self::Renamed(..) => {}
        }
        let advice = match e.kind() {
            // The error text explains that the packet does not fit the format.
            io::ErrorKind::InvalidInput => return Failure::Said(format!("{}: {e}", self.name())),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                "; free some space and repeat the command"
            }
            _ => "",
        };
        let state = match self {
            Self::Renamed(..) => {
                self.remove();
                "the incomplete file was removed".to_owned()
            }
            Self::Pipe | Self::InPlace { .. } => format!("the file has only a part of the first {packets} packets"),
        };
        Failure::Said(format!("{}: {e}; {state}{advice}", self.name()))
    }

    /// The path as text.
    pub fn name(&self) -> String {
        match self {
            Self::Pipe => "standard output".into(),
            Self::InPlace { path, .. } | Self::Renamed(path, _) => path.display().to_string(),
        }
    }

    /// True if the capture goes to standard output.
    pub fn is_pipe(&self) -> bool {
        matches!(self, Self::Pipe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symlink_planted_at_the_hidden_name_is_not_followed() {
        let dir = testkit::TempDir::new("target-link");
        let victim = dir.join("victim");
        std::fs::write(&victim, "precious").expect("a file");
        let hidden = dir.join(format!(".out.pcap.{}.partial", std::process::id()));
        std::os::unix::fs::symlink(&victim, &hidden).expect("a link");
        let opened = Target::open(&dir.join("out.pcap"), false, ProtectedPaths::default());
        let Ok((target, mut file)) = opened else { panic!("the output cannot be opened") };
        file.write_all(b"answer").expect("room");
        drop(file);
        assert!(target.publish().is_ok());
        assert_eq!(std::fs::read(&victim).expect("the file"), b"precious");
        assert_eq!(std::fs::read(dir.join("out.pcap")).expect("the answer"), b"answer");
    }
}
