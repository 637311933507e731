//! Tests who owns a store and who can write to it. A process that runs as root records only into a store in which no
//! other user can create or rename files, because another user who can write to a directory can replace a file that
//! root created in it. Processes without root's rights need no such rule. The subcommands that only repair or remove
//! existing files do not need the rule either, because they follow no symbolic links.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use sys::nofollow::{self, FileKind};

/// Levels of directories below that of an interface: year, month, day and hour.
const LEVELS: u32 = 4;

/// The error for a directory of a store in which a recorder with root's rights refuses to write, because other users
/// may write there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedDirectory {
    /// Path of the directory: the store, an interface directory in the store, or a directory of a year, month, day or
    /// hour below the interface directory.
    pub directory: PathBuf,
    /// The user id of the owner of the directory.
    pub owner: u32,
    /// Its permissions.
    pub mode: u32,
}

impl fmt::Display for SharedDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let directory = self.directory.display();
        match self.owner {
            0 => write!(
                f,
                "{directory}: other users may write to this directory (permissions {:o}), and root records only into \
                 stores that no other user can write to: chmod go-w {directory}, or run as the user of the store",
                self.mode & 0o7777
            ),
            owner => write!(
                f,
                "{directory}: this directory belongs to user {owner}, and root records only into its own stores: \
                 --user {owner} records as that user; or chown -R root {directory}"
            ),
        }
    }
}

impl std::error::Error for SharedDirectory {}

/// If this process runs as root, tests whether it may record into this store. The store directory and the directories
/// of its interfaces, years, months, days and hours must belong to root and must not be writable for a group (other
/// than root's) or for all users. The store directory itself may have the sticky bit, as `/tmp` has. A missing
/// directory is no error, because root creates it.
///
/// # Errors
/// The error names the first directory that breaks the rule.
pub fn check(store: &Path) -> Result<(), SharedDirectory> {
    if !sys::cpu::is_root() {
        return Ok(());
    }
    judge(store, true)?;
    directories(store).try_for_each(|interface| check_below(&interface, LEVELS))
}

fn check_below(directory: &Path, levels: u32) -> Result<(), SharedDirectory> {
    judge(directory, false)?;
    match levels.checked_sub(1) {
        Some(levels) => directories(directory).try_for_each(|directory| check_below(&directory, levels)),
        None => Ok(()),
    }
}

/// The directories in a directory, without hidden ones.
fn directories(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let inside = nofollow::list(directory).unwrap_or_default().into_iter();
    inside
        .filter(|(name, kind)| *kind == FileKind::Directory && !name.as_encoded_bytes().starts_with(b"."))
        .map(|(name, _)| directory.join(name))
}

fn judge(directory: &Path, may_be_sticky: bool) -> Result<(), SharedDirectory> {
    let Ok(meta) = nofollow::stat(directory) else { return Ok(()) };
    let (owner, mode) = (meta.uid(), meta.mode());
    let others = mode & 0o002 != 0 || mode & 0o020 != 0 && meta.gid() != 0;
    let sticky = may_be_sticky && mode & 0o1000 != 0;
    let is_own = owner == 0 && (!others || sticky);
    if is_own { Ok(()) } else { Err(SharedDirectory { directory: directory.to_owned(), owner, mode }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, create_dir_all, set_permissions};
    use std::os::unix::fs::{PermissionsExt, chown};

    #[test]
    fn root_records_into_its_own_stores_only() {
        let dir = testkit::TempDir::new("owner");
        let (store, interface) = (dir.join("store"), dir.join("store/eth1"));
        assert_eq!(check(&store), Ok(()), "a missing store is accepted");
        create_dir_all(&interface).expect("directories");
        if !sys::cpu::is_root() {
            return testkit::skip("root_records_into_its_own_stores_only", "not root");
        }
        let mode = |path: &Path, mode| set_permissions(path, Permissions::from_mode(mode)).expect("permissions");
        for (of_store, of_interface, right) in [
            (0o755, 0o755, true),
            (0o777, 0o755, false),
            (0o1777, 0o755, true),
            (0o755, 0o1777, false),
            (0o775, 0o755, true),
        ] {
            mode(&store, of_store);
            mode(&interface, of_interface);
            assert_eq!(check(&store).is_ok(), right, "{of_store:o} {of_interface:o}");
        }
        mode(&interface, 0o775);
        mode(&store, 0o755);
        for (path, gid) in [(&interface, 65_534), (&store, 0)] {
            chown(path, Some(65_534), Some(gid)).expect("given away");
            let reported = check(&store).expect_err("a directory of another user").to_string();
            assert!(reported.contains("belongs to user 65534") && reported.contains("--user 65534"), "{reported}");
            chown(path, Some(0), Some(gid)).expect("taken back");
        }
        let reported = check(&store).expect_err("a directory that a group can write to").to_string();
        assert!(reported.contains("chmod go-w") && reported.contains("eth1"), "{reported}");
        mode(&interface, 0o755);
        let hour = interface.join("2026/11/26/13");
        create_dir_all(&hour).expect("directories");
        assert_eq!(check(&store), Ok(()));
        for directory in [hour.as_path(), &interface.join("2026")] {
            mode(directory, 0o777);
            let reported = check(&store).expect_err("a year or hour directory that all users can write to");
            assert_eq!(reported.directory, directory);
            mode(directory, 0o755);
        }
    }
}
