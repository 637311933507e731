//! Temporary directories for tests.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A new, empty directory, removed with its content when dropped.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    /// Creates a directory whose name begins with `test`. If cargo started the program, the new directory is in cargo's
    /// target directory, which is on a disk (`/tmp` may be in memory). Otherwise the new directory is in the system's
    /// directory for temporary files.
    ///
    /// # Panics
    /// The directory cannot be created.
    pub fn new(test: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let root = match std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.parent()?.to_owned())) {
            Some(build) if build.join("deps").is_dir() => build.join("tmp"),
            _ => std::env::temp_dir(),
        };
        // The process id separates test programs, the number separates the tests of one program.
        let unique = format!("{test}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = root.join(unique.replace("::", "."));
        // A killed process with the same id may have left a directory.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap_or_else(|e| panic!("{}: cannot be created: {e}", path.display()));
        Self(path)
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A path in the directory.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // An error of the removal is ignored. The directory then remains, whereas a panic here would hide the failure
        // of the test.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_directories_differ_and_are_removed() {
        let (a, b) = (TempDir::new("temp::directories"), TempDir::new("temp::directories"));
        assert_ne!(a.path(), b.path());
        std::fs::write(a.join("x"), "x").expect("write into the directory");
        let kept = a.path().to_owned();
        drop(a);
        assert!(!kept.exists() && b.path().is_dir());
    }
}
