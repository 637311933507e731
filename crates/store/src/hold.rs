//! Who may remove files: readers hold an hour, retention takes it. A hold is a lock on the folder of the hour (flock(2)):
//! it needs no right but to read, it ends with the process however that ends, and one descriptor holds a whole hour.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::time::Duration;

/// How often a lock is tried for, and what passes between: whoever only looks whether a file is held has one himself for
/// some microseconds, or for as long as he has no processor. A holder keeps his.
const TRIES: u32 = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(5);

/// Ends when it is dropped.
#[derive(Debug)]
pub struct Hold(#[expect(dead_code, reason = "held open for its lock")] File);

impl Hold {
    /// A reader's: nothing in this folder is removed while it lasts. Waits while files are being removed, which is short.
    ///
    /// # Errors
    /// When the folder cannot be opened; it may have been removed. File systems without locks hold nothing, silently.
    pub fn reader(folder: &Path) -> io::Result<Self> {
        let file = File::open(folder)?;
        // A file system without locks cannot hold: the reader then meets removed files, and says so.
        let _ = file.lock_shared();
        Ok(Self(file))
    }

    /// Retention's: `None` while a reader holds the folder.
    ///
    /// # Errors
    /// When the folder cannot be opened.
    pub fn remover(folder: &Path) -> io::Result<Option<Self>> {
        let file = File::open(folder)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Ok(None),
            Ok(()) | Err(TryLockError::Error(_)) => Ok(Some(Self(file))),
        }
    }
}

/// Locks a file that nobody has, and is not mistaken about those who only look.
///
/// # Errors
/// `WouldBlock` if somebody has it, or what the file system says.
pub(crate) fn lock(file: &File) -> Result<(), TryLockError> {
    let mut tries = 1;
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if tries < TRIES => {
                tries += 1;
                std::thread::sleep(BETWEEN_TRIES);
            }
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_share_and_keep_the_remover_out() {
        let folder = testkit::TempDir::new("hold");
        let one = Hold::reader(folder.path()).expect("a reader");
        let two = Hold::reader(folder.path()).expect("another");
        assert!(Hold::remover(folder.path()).expect("a look").is_none());
        drop(one);
        assert!(Hold::remover(folder.path()).expect("a look").is_none());
        drop(two);
        assert!(Hold::remover(folder.path()).expect("a look").is_some());
    }
}
