//! Restriction of write access to the file system (Landlock, `include/uapi/linux/landlock.h`): after the restriction,
//! the calling thread, and every thread and process that it starts, can read every file that its user may read, and can
//! write only below the named directories. The restriction cannot be undone.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// `LANDLOCK_CREATE_RULESET_VERSION`.
const QUERY_VERSION: u32 = 1;
/// `LANDLOCK_RULE_PATH_BENEATH`.
const PATH_BENEATH: u32 = 1;

mod access {
    pub const WRITE_FILE: u64 = 1 << 1;
    pub const REMOVE_DIR: u64 = 1 << 4;
    pub const REMOVE_FILE: u64 = 1 << 5;
    pub const MAKE_CHAR: u64 = 1 << 6;
    pub const MAKE_DIR: u64 = 1 << 7;
    pub const MAKE_REG: u64 = 1 << 8;
    pub const MAKE_SOCK: u64 = 1 << 9;
    pub const MAKE_FIFO: u64 = 1 << 10;
    pub const MAKE_BLOCK: u64 = 1 << 11;
    pub const MAKE_SYM: u64 = 1 << 12;
    /// From version 2.
    pub const REFER: u64 = 1 << 13;
    /// The right to truncate files exists from Landlock version 3 on. With earlier versions, a process can truncate
    /// each file that it can open for reading.
    pub const TRUNCATE: u64 = 1 << 14;
    /// All rights that change the file system.
    pub const CHANGES: u64 = WRITE_FILE
        | REMOVE_DIR
        | REMOVE_FILE
        | MAKE_CHAR
        | MAKE_DIR
        | MAKE_REG
        | MAKE_SOCK
        | MAKE_FIFO
        | MAKE_BLOCK
        | MAKE_SYM;
    /// The rights that change an existing file.
    pub const OF_FILES: u64 = WRITE_FILE | TRUNCATE;
}

/// The Landlock version of the kernel; 0 without Landlock.
pub fn version() -> u32 {
    // SAFETY: with this flag no memory is passed.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, QUERY_VERSION) };
    u32::try_from(version).unwrap_or(0)
}

/// Restricts the calling thread, and all threads and processes that it starts later, to changes below `directories`
/// (which may include files). Open files are not affected. The call grants no new rights.
///
/// # Errors
/// `ENOSYS` or `EOPNOTSUPP` on kernels without Landlock; `EPERM` if `no_new_privs` is not set; the errors of open(2)
/// for a directory. After an error, no restriction applies.
pub fn write_only_below(directories: &[&Path]) -> io::Result<()> {
    let version = version();
    let mut handled = access::CHANGES;
    if version >= 2 {
        handled |= access::REFER;
    }
    if version >= 3 {
        handled |= access::TRUNCATE;
    }
    // `struct landlock_ruleset_attr` of the first version: the rights that are denied unless a rule grants them.
    let attr = handled;
    // SAFETY: `attr` is the structure, of the size passed.
    let raw = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attr, size_of_val(&attr), 0) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so the descriptor is new and belongs to this process only.
    let ruleset = unsafe { OwnedFd::from_raw_fd(raw as i32) };
    for directory in directories {
        allow(&ruleset, directory, handled)?;
    }
    // SAFETY: the descriptor is open; no memory is passed.
    if unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn allow(ruleset: &OwnedFd, path: &Path, rights: u64) -> io::Result<()> {
    /// `struct landlock_path_beneath_attr`.
    #[repr(C, packed)]
    struct Beneath {
        rights: u64,
        parent: i32,
    }
    let file = File::options().read(true).custom_flags(libc::O_PATH).open(path)?;
    // For a file, the kernel refuses rights that apply only to directories.
    let rights = if file.metadata()?.is_dir() { rights } else { rights & access::OF_FILES };
    let rule = Beneath { rights, parent: file.as_raw_fd() };
    // SAFETY: `rule` is the structure of this kind of rule, and both descriptors are open.
    let done =
        unsafe { libc::syscall(libc::SYS_landlock_add_rule, ruleset.as_raw_fd(), PATH_BENEATH, &raw const rule, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn only_the_named_directories_are_writable_and_all_files_are_readable() {
        if version() == 0 {
            return testkit::skip(
                "only_the_named_directories_are_writable_and_all_files_are_readable",
                "this kernel has no Landlock",
            );
        }
        let root = std::env::temp_dir().join(format!("netgrain-landlock-{}", std::process::id()));
        let (open, shut) = (root.join("open"), root.join("shut"));
        for directory in [&open, &shut] {
            fs::create_dir_all(directory).unwrap();
            fs::write(directory.join("old"), "old").unwrap();
        }
        let single = shut.join("single");
        fs::write(&single, "").unwrap();
        // The test runs in a separate thread, because the restriction cannot be undone.
        std::thread::scope(|s| {
            s.spawn(|| {
                crate::privilege::no_new_privileges().unwrap();
                let before = fs::File::options().write(true).open(shut.join("old")).unwrap();
                write_only_below(&[&open, &single]).unwrap();
                for refused in [
                    fs::write(shut.join("new"), "x"),
                    fs::write(shut.join("old"), "x"),
                    fs::remove_file(shut.join("old")),
                    fs::create_dir(shut.join("directory")),
                    fs::rename(shut.join("old"), open.join("stolen")),
                    fs::hard_link(shut.join("old"), open.join("linked")),
                    fs::File::options().write(true).open(shut.join("old")).map(drop),
                ] {
                    let kind = refused.unwrap_err().kind();
                    assert!(
                        matches!(kind, io::ErrorKind::PermissionDenied | io::ErrorKind::CrossesDevices),
                        "{kind:?}"
                    );
                }
                assert_eq!(fs::read_to_string(shut.join("old")).unwrap(), "old");
                fs::write(open.join("new"), "x").unwrap();
                fs::rename(open.join("new"), open.join("newer")).unwrap();
                fs::remove_file(open.join("old")).unwrap();
                fs::write(&single, "one").unwrap();
                before.set_len(1).expect("open files stay writable");
                std::thread::scope(|s| {
                    s.spawn(|| fs::write(shut.join("by a child"), "x").unwrap_err()).join().unwrap()
                });
            });
        });
        assert_eq!(fs::read_to_string(shut.join("old")).unwrap(), "o");
        assert_eq!(fs::read_to_string(&single).unwrap(), "one");
        fs::write(shut.join("new"), "x").expect("other threads are not restricted");
        fs::remove_dir_all(&root).unwrap();
    }
}
