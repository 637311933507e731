//! Key files: created with access for the owner only, and rejected if other users have access to them.

use crate::outcome::Failure;
use convert::anonymise::Key;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// The permission bits of group and others.
const OTHERS: u32 = 0o077;

/// Writes a random key into a file that must not exist.
pub fn create(path: &Path) -> Result<(), Failure> {
    let fail = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Failure::Said(format!("{}: exists, and a key is never overwritten: choose another name", path.display()))
        }
        _ => Failure::uncreatable(path, &e),
    };
    let mut bytes = [0; 32];
    let random = File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut bytes));
    random.map_err(|e| Failure::Said(format!("/dev/urandom: {e}; a key needs random bytes from this device")))?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(fail)?;
    file.write_all(Key::new(bytes).to_file().as_bytes()).and_then(|()| file.sync_all()).map_err(fail)
}

/// Reads a key from a file that only its owner can read.
pub fn read(path: &Path) -> Result<Key, Failure> {
    let fail = |e: std::io::Error| {
        let cause = sys::advice::unreadable(&e);
        Failure::Said(format!("{}: {cause}; netgrain convert --new-key FILE makes a key", path.display()))
    };
    let file = File::open(path).map_err(fail)?;
    let mode = file.metadata().map_err(fail)?.permissions().mode();
    if mode & OTHERS != 0 {
        let mode = mode & 0o777;
        return Err(Failure::Said(format!(
            "{}: other users have access to this key (mode {mode:o}): run chmod 600 on it, and make a new key if they \
             may have read it",
            path.display()
        )));
    }
    let mut content = Vec::new();
    // No key is as long as this limit. So a file that is not a key is rejected without being read completely.
    file.take(4096).read_to_end(&mut content).map_err(fail)?;
    Key::from_file(&content).map_err(|e| Failure::Said(format!("{}: {e}", path.display())))
}
