//! The directory of the store of the demo.

use crate::outcome::Failure;
use std::path::{Path, PathBuf};

/// A directory that is removed on drop unless it is to be kept.
pub struct Scratch {
    path: PathBuf,
    keep: bool,
}

impl Scratch {
    /// Uses the given directory, or creates one in the system's directory for temporary files.
    ///
    /// # Errors
    /// The directory cannot be created, or is not empty: packets of another run would be counted as packets of this
    /// run.
    pub fn new(keep: Option<&Path>) -> Result<Self, Failure> {
        let path = match keep {
            Some(path) => path.to_owned(),
            None => std::env::temp_dir().join(format!("netgrain-demo-{}", std::process::id())),
        };
        let failure = |e: std::io::Error| Failure::Said(format!("{}: {e}", path.display()));
        std::fs::create_dir_all(&path).map_err(failure)?;
        if std::fs::read_dir(&path).map_err(failure)?.next().is_some() {
            let path = path.display();
            return Err(Failure::Said(format!("{path}: the directory is not empty; name a new or an empty directory")));
        }
        Ok(Self { path, keep: keep.is_some() })
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
