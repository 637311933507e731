//! File operations that follow no symbolic link in any component of a path (openat2(2), `RESOLVE_NO_SYMLINKS`). Names
//! are created, renamed and removed relative to the descriptor of their directory, so that a change of the path between
//! two calls cannot redirect an operation.
//!
//! A path of the command line or configuration may contain links; [`resolve`] follows them once, at the start. On
//! kernels without openat2 (before 5.6), each component is opened separately with `O_NOFOLLOW`, which has the same
//! effect.

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, fcntl_setfl, fstat, linkat, mkdirat, openat,
    openat2, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// True after the kernel has reported that it does not support openat2.
static BY_PARTS: AtomicBool = AtomicBool::new(false);

/// Options for opening a file, which is always readable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Open for writing too.
    pub write: bool,
    /// Bypass the page cache.
    pub direct: bool,
    /// Create the file with these permissions if it does not exist.
    pub create: Option<u32>,
    /// With `create`: fail if the file exists.
    pub new: bool,
}

/// The type of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link, a socket, a pipe, a device.
    Other,
}

impl From<FileType> for FileKind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::Directory => Self::Directory,
            FileType::RegularFile => Self::File,
            _ => Self::Other,
        }
    }
}

/// Opens a file or a directory for reading.
///
/// # Errors
/// The errors of `openat2(2)`; refuses links in the path, and files that are neither regular nor a directory.
pub fn open(path: &Path) -> io::Result<File> {
    open_as(path, OpenOptions::default())
}

/// Opens a file.
///
/// # Errors
/// As [`open`]; `EINVAL` if the file system has no direct reads or writes.
pub fn open_as(path: &Path, how: OpenOptions) -> io::Result<File> {
    // The file is opened with O_NONBLOCK. Without it, opening a pipe that another user has put at this path would wait
    // for the other end of the pipe.
    let mut flags = OFlags::NONBLOCK | OFlags::NOCTTY | if how.write { OFlags::RDWR } else { OFlags::RDONLY };
    flags.set(OFlags::DIRECT, how.direct);
    flags.set(OFlags::CREATE, how.create.is_some());
    flags.set(OFlags::EXCL, how.new);
    let file = File::from(at(path, flags, Mode::from_raw_mode(how.create.unwrap_or(0)))?);
    let kind = file.metadata()?.file_type();
    if !kind.is_file() && !kind.is_dir() || kind.is_fifo() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a regular file nor a directory"));
    }
    // O_NONBLOCK is removed after the opening, because with it io_uring could refuse operations that would block. Of
    // the flags, only O_NONBLOCK and O_DIRECT can be changed.
    fcntl_setfl(&file, flags & OFlags::DIRECT)?;
    Ok(file)
}

/// The metadata of a file or directory; for a symbolic link as the last component, that of the link.
///
/// # Errors
/// `ENOENT`, or the errors of `openat2(2)`.
pub fn stat(path: &Path) -> io::Result<Metadata> {
    File::from(at(path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty())?).metadata()
}

/// True if the name exists, also as a symbolic link.
pub fn exists(path: &Path) -> bool {
    stat(path).is_ok()
}

/// True if the name is a directory.
pub fn is_directory(path: &Path) -> bool {
    stat(path).is_ok_and(|meta| meta.is_dir())
}

/// The entries of a directory, unordered.
///
/// # Errors
/// The errors of the file system.
pub fn list(path: &Path) -> io::Result<Vec<(OsString, FileKind)>> {
    let mut directory = Dir::new(at(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?)?;
    let mut found = Vec::new();
    while let Some(entry) = directory.read() {
        let entry = entry?;
        let name = entry.file_name();
        if [c".", c".."].contains(&name) {
            continue;
        }
        let kind = match entry.file_type() {
            // The directory entries of some file systems do not contain the type.
            FileType::Unknown => statat(directory.fd()?, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_or(FileKind::Other, |stat| FileType::from_raw_mode(stat.st_mode).into()),
            kind => kind.into(),
        };
        found.push((OsStr::from_bytes(name.to_bytes()).to_owned(), kind));
    }
    Ok(found)
}

/// Creates a directory in an existing one; the umask applies to its permissions.
///
/// # Errors
/// `EEXIST`, or the errors of `mkdirat(2)`.
pub fn create_directory(path: &Path) -> io::Result<()> {
    let (directory, name) = place(path)?;
    Ok(mkdirat(directory, name, Mode::from_raw_mode(0o777))?)
}

/// Creates a directory and all missing parents.
///
/// # Errors
/// The errors of `mkdirat(2)`; also an error if a file that is not a directory has one of the names.
pub fn create_directories(path: &Path) -> io::Result<()> {
    for directory in missing(path).iter().rev() {
        match create_directory(directory) {
            // Another process has created the directory meanwhile, or a file of another type has the name. In the
            // second case the next operation fails.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            other => other?,
        }
    }
    at(path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).map(drop)
}

/// The directories of a path that do not exist: the path itself first, then its missing parents upwards.
pub fn missing(path: &Path) -> Vec<PathBuf> {
    path.ancestors().take_while(|p| !p.as_os_str().is_empty() && !is_directory(p)).map(Path::to_owned).collect()
}

/// Removes a file. If the path names a symbolic link, removes the link, not its target.
///
/// # Errors
/// The errors of `unlinkat(2)`.
pub fn remove(path: &Path) -> io::Result<()> {
    let (directory, name) = place(path)?;
    Ok(unlinkat(directory, name, AtFlags::empty())?)
}

/// Removes an empty directory.
///
/// # Errors
/// `ENOTEMPTY`, or the errors of `unlinkat(2)`.
pub fn remove_directory(path: &Path) -> io::Result<()> {
    let (directory, name) = place(path)?;
    Ok(unlinkat(directory, name, AtFlags::REMOVEDIR)?)
}

/// Renames a file; replaces an existing file at `to`.
///
/// # Errors
/// The errors of `renameat2(2)`.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    rename_as(from, to, RenameFlags::empty())
}

/// Renames a file; fails if `to` exists.
///
/// # Errors
/// `EEXIST` if `to` exists; otherwise the errors of `renameat2(2)`.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match rename_as(from, to, RenameFlags::NOREPLACE) {
        Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::INVAL | Errno::NOSYS)) => {
            // The file system does not support RENAME_NOREPLACE (NFS, some FUSE). The creation of a hard link also
            // fails if the name exists.
            link(from, to)?;
            remove(from)
        }
        other => other,
    }
}

fn rename_as(from: &Path, to: &Path, flags: RenameFlags) -> io::Result<()> {
    let ((a, old), (b, new)) = (place(from)?, place(to)?);
    Ok(renameat_with(a, old, b, new, flags)?)
}

/// Creates a hard link.
///
/// # Errors
/// `EEXIST`, or the errors of `linkat(2)`.
pub fn link(from: &Path, to: &Path) -> io::Result<()> {
    let ((a, old), (b, new)) = (place(from)?, place(to)?);
    // Without AT_SYMLINK_FOLLOW a link is not followed.
    Ok(linkat(a, old, b, new, AtFlags::empty())?)
}

/// Reads a whole file as text.
///
/// # Errors
/// The errors of the file system; `InvalidData` if the content is not UTF-8.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    io::read_to_string(open(path)?)
}

/// Resolves the symbolic links in the existing part of the path. A path without links is returned unchanged, so that
/// messages contain the path that was given.
pub fn resolve(path: &Path) -> PathBuf {
    let is_link = |p: &Path| p.symlink_metadata().is_ok_and(|meta| meta.is_symlink());
    // With a trailing slash, `symlink_metadata` would follow the link.
    if !path.components().as_path().ancestors().any(is_link) {
        return path.to_owned();
    }
    for existing in path.ancestors().filter(|p| !p.as_os_str().is_empty()) {
        if let Ok(real) = existing.canonicalize() {
            let rest = path.strip_prefix(existing).unwrap_or(Path::new(""));
            return if rest.as_os_str().is_empty() { real } else { real.join(rest) };
        }
    }
    path.to_owned()
}

/// Creates a new file for writing. Removes an existing file of this name and does not write into it: it may be left
/// over from a dead process with the same PID, or be a link by another user of the directory. Links in the path of the
/// directory are followed, because the user gave this path.
///
/// # Errors
/// The errors of the file system; `AlreadyExists` if another process creates the name meanwhile.
pub fn create_anew(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    File::options().write(true).create_new(true).open(path)
}

/// The directory that contains the last component, and that component.
fn place(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    let Some(name) = path.file_name() else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path does not end with the name of a file or directory",
        ));
    };
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((at(directory, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?, name))
}

fn at(path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    let outcome = if BY_PARTS.load(Ordering::Relaxed) { by_parts(path, flags, mode) } else { whole(path, flags, mode) };
    outcome.map_err(|e| match e {
        Errno::LOOP => io::Error::other(
            "this path contains a symbolic link, and links below a store are not followed: replace the link by the \
             directory or file, or mount its volume there",
        ),
        e => e.into(),
    })
}

fn whole(path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    loop {
        match openat2(CWD, path, flags | OFlags::CLOEXEC, mode, ResolveFlags::NO_SYMLINKS) {
            // A component of the path was renamed meanwhile.
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(Errno::NOSYS) => {
                BY_PARTS.store(true, Ordering::Relaxed);
                return by_parts(path, flags, mode);
            }
            // If the system call filter of a container or service manager does not permit openat2, the call fails with
            // this error. The error may also mean that the access to the file itself is refused. In both cases the
            // method without openat2 is tried.
            Err(Errno::PERM) => {
                let opened = by_parts(path, flags, mode)?;
                BY_PARTS.store(true, Ordering::Relaxed);
                return Ok(opened);
            }
            outcome => return outcome,
        }
    }
}

/// Opens the path like `whole`, with one system call for each component of the path.
fn by_parts(path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let mut parts = path.components().peekable();
    let mut directory: Option<OwnedFd> = None;
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        let flags = if last { flags } else { OFlags::PATH } | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(directory.as_ref().map_or(CWD, AsFd::as_fd), part.as_os_str(), flags, mode)?;
        // With O_PATH, a link itself is opened instead of followed.
        if !last && FileType::from_raw_mode(fstat(&opened)?.st_mode).is_symlink() {
            return Err(Errno::LOOP);
        }
        directory = Some(opened);
    }
    directory.ok_or(Errno::NOENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    struct Directory(PathBuf);

    impl Directory {
        fn new(test: &str) -> Self {
            let path = std::env::temp_dir().join(format!("{test}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(path.join("outside")).expect("a directory");
            Self(fs::canonicalize(path).expect("a directory"))
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn no_operation_follows_a_link_in_any_part_of_a_path() {
        let dir = Directory::new("plain-links");
        let (outside, secret) = (dir.0.join("outside"), dir.0.join("outside/secret"));
        fs::write(&secret, "untouched").expect("a file");
        symlink(&outside, dir.0.join("way")).expect("a link");
        symlink(&secret, dir.0.join("end")).expect("a link");
        fs::write(dir.0.join("own"), "own").expect("a file");
        let make = OpenOptions { write: true, create: Some(0o600), ..OpenOptions::default() };
        for path in [dir.0.join("way/secret"), dir.0.join("end")] {
            for how in [OpenOptions::default(), make, OpenOptions { new: true, ..make }] {
                let refused = open_as(&path, how).expect_err("a link");
                assert!(
                    refused.to_string().contains("symbolic link") || refused.kind() == io::ErrorKind::AlreadyExists,
                    "{}: {refused}",
                    path.display()
                );
            }
            for flags in [OFlags::RDONLY, OFlags::RDWR | OFlags::CREATE] {
                assert_eq!(by_parts(&path, flags, Mode::RUSR).expect_err("a link"), Errno::LOOP);
            }
        }
        let through = dir.0.join("way/new");
        assert!(
            open_as(&through, make).is_err()
                && create_directory(&through).is_err()
                && create_directories(&through).is_err()
        );
        assert!(rename(&dir.0.join("own"), &through).is_err() && rename_new(&dir.0.join("own"), &through).is_err());
        assert!(link(&dir.0.join("own"), &through).is_err() && remove(&dir.0.join("way/secret")).is_err());
        assert!(list(&dir.0.join("way")).is_err() && remove_directory(&dir.0.join("way")).is_err());
        assert!(stat(&dir.0.join("way/secret")).is_err() && stat(&dir.0.join("end")).expect("the link").is_symlink());
        assert_eq!(fs::read_to_string(&secret).expect("a file"), "untouched");
        assert_eq!(fs::read_dir(&outside).expect("a directory").count(), 1);
        remove(&dir.0.join("end")).expect("the link itself is removed");
        assert!(secret.exists());
    }

    #[test]
    fn paths_without_links_work_with_and_without_openat2() {
        let dir = Directory::new("plain-files");
        let hour = dir.0.join("a/b/c");
        create_directories(&hour).expect("directories");
        create_directories(&hour).expect("existing directories");
        let file = hour.join("f");
        let how = OpenOptions { write: true, create: Some(0o640), new: true, ..OpenOptions::default() };
        io::Write::write_all(&mut open_as(&file, how).expect("a new file"), b"text").expect("written");
        assert_eq!(open_as(&file, how).expect_err("the file exists").kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(read_to_string(&file).expect("the file"), "text");
        let again = File::from(by_parts(&file, OFlags::RDONLY, Mode::empty()).expect("the same file"));
        assert_eq!(io::read_to_string(again).expect("text"), "text");
        let (other, third) = (hour.join("g"), hour.join("h"));
        link(&file, &other).expect("a hard link");
        assert_eq!(rename_new(&file, &other).expect_err("the file exists").kind(), io::ErrorKind::AlreadyExists);
        rename_new(&file, &third).expect("renamed");
        rename(&third, &file).expect("renamed again");
        let mut listed = list(&hour).expect("names");
        listed.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(listed, [("f".into(), FileKind::File), ("g".into(), FileKind::File)]);
        assert_eq!(remove_directory(&hour).expect_err("not empty").kind(), io::ErrorKind::DirectoryNotEmpty);
        remove(&file).and_then(|()| remove(&other)).and_then(|()| remove_directory(&hour)).expect("empty");
        assert_eq!(list(&dir.0.join("a")).expect("names"), [("b".into(), FileKind::Directory)]);
        for missing in [open(&file).map(drop), stat(&file).map(drop), list(&hour).map(drop), remove(&file)] {
            assert_eq!(missing.expect_err("a missing file").kind(), io::ErrorKind::NotFound);
        }
    }

    #[test]
    fn opening_a_pipe_fails_without_waiting() {
        let dir = Directory::new("plain-pipe");
        let pipe = dir.0.join("pipe");
        rustix::fs::mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).expect("a pipe");
        assert!(open(&pipe).is_err() && open_as(&pipe, OpenOptions { write: true, ..OpenOptions::default() }).is_err());
    }

    #[test]
    fn resolve_follows_links_and_keeps_paths_without_links() {
        let dir = Directory::new("plain-resolve");
        symlink(dir.0.join("outside"), dir.0.join("way")).expect("a link");
        assert_eq!(resolve(&dir.0.join("way/new/store")), dir.0.join("outside/new/store"));
        assert_eq!(resolve(&dir.0.join("way")), dir.0.join("outside"));
        assert_eq!(resolve(&dir.0.join("way/")), dir.0.join("outside"));
        for given in [dir.0.join("outside/new"), PathBuf::from("relative/../store"), PathBuf::from("store")] {
            assert_eq!(resolve(&given), given);
        }
    }

    #[test]
    fn files_can_be_opened_although_a_filter_refuses_openat2() {
        let test = "files_can_be_opened_although_a_filter_refuses_openat2";
        let dir = Directory::new("plain-refused");
        fs::write(dir.0.join("outside/file"), "text").expect("a file");
        symlink(dir.0.join("outside"), dir.0.join("way")).expect("a link");
        let refused = || {
            let file = open(&dir.0.join("outside/file")).and_then(|mut file| {
                let mut text = String::new();
                std::io::Read::read_to_string(&mut file, &mut text).map(|_| text)
            });
            (file.map_err(|e| e.to_string()), open(&dir.0.join("way/file")).is_err())
        };
        let answer = crate::seccomp::without_call(test, libc::SYS_openat2, libc::EPERM, || {
            // SAFETY: the call is refused before the kernel reads its arguments.
            let direct = unsafe { libc::syscall(libc::SYS_openat2, 0, 0, 0, 0) };
            assert_eq!((direct, io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EPERM)));
            refused()
        });
        // Other tests must use openat2.
        BY_PARTS.store(false, Ordering::Relaxed);
        if let Some(answer) = answer {
            assert_eq!(answer, (Ok("text".to_owned()), true));
        }
    }
}
