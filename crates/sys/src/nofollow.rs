//! File operations that follow no symbolic link in any component of a path (openat2(2), `RESOLVE_NO_SYMLINKS`). Names
//! are created, renamed and removed relative to the descriptor of their directory, so that a change of the path between
//! two calls cannot redirect an operation.
//!
//! A path of the command line or configuration may contain links; [`resolve`] follows them once, at the start. On
//! kernels without openat2 (before 5.6), each component is opened separately with `O_NOFOLLOW`, which has the same
//! effect.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Set after the kernel reported that it lacks openat2.
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
    Folder,
    /// A regular file.
    File,
    /// A symbolic link, a socket, a pipe, a device.
    Other,
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
    // Without O_NONBLOCK, opening a pipe that another user put there would wait for the other end of the pipe.
    let mut flags = libc::O_NONBLOCK | libc::O_NOCTTY | if how.write { libc::O_RDWR } else { libc::O_RDONLY };
    if how.direct {
        flags |= libc::O_DIRECT;
    }
    if how.create.is_some() {
        flags |= libc::O_CREAT;
    }
    if how.new {
        flags |= libc::O_EXCL;
    }
    let file = File::from(at(path, flags, how.create.unwrap_or(0))?);
    let kind = file.metadata()?.file_type();
    if !kind.is_file() && !kind.is_dir() || kind.is_fifo() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a regular file nor a folder"));
    }
    // With O_NONBLOCK, io_uring could refuse operations that would block. Of the flags, only it and O_DIRECT can be
    // changed.
    let rest = if how.direct { libc::O_DIRECT } else { 0 };
    // SAFETY: an open descriptor and integers.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, rest) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}

/// The metadata of a file or directory; for a symbolic link as the last component, that of the link.
///
/// # Errors
/// `ENOENT`, or the errors of `openat2(2)`.
pub fn stat(path: &Path) -> io::Result<Metadata> {
    File::from(at(path, libc::O_PATH | libc::O_NOFOLLOW, 0)?).metadata()
}

/// True if the name exists, also as a symbolic link.
pub fn exists(path: &Path) -> bool {
    stat(path).is_ok()
}

/// True if the name is a directory.
pub fn is_folder(path: &Path) -> bool {
    stat(path).is_ok_and(|meta| meta.is_dir())
}

/// The entries of a directory, unordered.
///
/// # Errors
/// The errors of the file system.
pub fn list(path: &Path) -> io::Result<Vec<(OsString, FileKind)>> {
    let folder = at(path, libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
    let fd = std::os::fd::IntoRawFd::into_raw_fd(folder);
    // SAFETY: an open descriptor of a directory, which belongs to the stream after success.
    let stream = unsafe { libc::fdopendir(fd) };
    if stream.is_null() {
        let error = io::Error::last_os_error();
        // SAFETY: the descriptor has no other owner.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
        return Err(error);
    }
    let mut found = Vec::new();
    let outcome = loop {
        // SAFETY: errno is this thread's; the stream is open until below, and each entry is read before the next call.
        let entry = unsafe {
            *libc::__errno_location() = 0;
            libc::readdir64(stream)
        };
        if entry.is_null() {
            let error = io::Error::last_os_error();
            break if error.raw_os_error() == Some(0) { Ok(()) } else { Err(error) };
        }
        // SAFETY: as above; the name ends with a zero. It is not referred to as a whole array, which an entry need not
        // fill.
        let (name, kind) = unsafe { (CStr::from_ptr((&raw const (*entry).d_name).cast()), (*entry).d_type) };
        if [c".", c".."].contains(&name) {
            continue;
        }
        let kind = match kind {
            libc::DT_DIR => FileKind::Folder,
            libc::DT_REG => FileKind::File,
            libc::DT_UNKNOWN => kind_at(fd, name),
            _ => FileKind::Other,
        };
        found.push((OsString::from_vec(name.to_bytes().to_vec()), kind));
    };
    // SAFETY: the stream is open, and not used again.
    unsafe { libc::closedir(stream) };
    outcome.map(|()| found)
}

/// For file systems whose directory entries do not contain the type.
fn kind_at(folder: RawFd, name: &CStr) -> FileKind {
    // SAFETY: stat is a plain structure of integers, for which zero is a value.
    let mut answer: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: an open descriptor, a C string, and `answer` is only written to.
    let rc = unsafe { libc::fstatat(folder, name.as_ptr(), &raw mut answer, libc::AT_SYMLINK_NOFOLLOW) };
    match answer.st_mode & libc::S_IFMT {
        libc::S_IFDIR if rc == 0 => FileKind::Folder,
        libc::S_IFREG if rc == 0 => FileKind::File,
        _ => FileKind::Other,
    }
}

/// Creates a directory in an existing one; the umask applies to its permissions.
///
/// # Errors
/// `EEXIST`, or the errors of `mkdirat(2)`.
pub fn create_folder(path: &Path) -> io::Result<()> {
    let (folder, name) = place(path)?;
    // SAFETY: an open descriptor and a C string.
    decode_kind(unsafe { libc::mkdirat(folder.as_raw_fd(), name.as_ptr(), 0o777) })
}

/// Creates a directory and all missing parents.
///
/// # Errors
/// The errors of `mkdirat(2)`, also if a file of another type has the name.
pub fn create_folders(path: &Path) -> io::Result<()> {
    for folder in missing(path).iter().rev() {
        match create_folder(folder) {
            // Another process created it meanwhile, or a file of another type has the name; then the next operation
            // fails.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            other => other?,
        }
    }
    at(path, libc::O_PATH | libc::O_DIRECTORY, 0).map(drop)
}

/// This directory and its parents that do not exist, the lowest first.
pub fn missing(path: &Path) -> Vec<PathBuf> {
    path.ancestors().take_while(|p| !p.as_os_str().is_empty() && !is_folder(p)).map(Path::to_owned).collect()
}

/// Removes a file; of a symbolic link, the link itself.
///
/// # Errors
/// The errors of `unlinkat(2)`.
pub fn remove(path: &Path) -> io::Result<()> {
    let (folder, name) = place(path)?;
    // SAFETY: an open descriptor and a C string.
    decode_kind(unsafe { libc::unlinkat(folder.as_raw_fd(), name.as_ptr(), 0) })
}

/// Removes an empty directory.
///
/// # Errors
/// `ENOTEMPTY`, or the errors of `unlinkat(2)`.
pub fn remove_folder(path: &Path) -> io::Result<()> {
    let (folder, name) = place(path)?;
    // SAFETY: an open descriptor and a C string.
    decode_kind(unsafe { libc::unlinkat(folder.as_raw_fd(), name.as_ptr(), libc::AT_REMOVEDIR) })
}

/// Renames a file; replaces an existing file at `to`.
///
/// # Errors
/// The errors of `renameat2(2)`.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    rename_as(from, to, 0)
}

/// Renames a file; fails if `to` exists.
///
/// # Errors
/// `EEXIST` if `to` exists; otherwise the errors of `renameat2(2)`.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match rename_as(from, to, libc::RENAME_NOREPLACE) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) => {
            // The file system does not support the flag (NFS, some FUSE). A hard link also fails if the name exists.
            link(from, to)?;
            remove(from)
        }
        other => other,
    }
}

fn rename_as(from: &Path, to: &Path, flags: u32) -> io::Result<()> {
    let ((a, old), (b, new)) = (place(from)?, place(to)?);
    // SAFETY: open descriptors and C strings that live until the call returns.
    decode_kind(unsafe { libc::renameat2(a.as_raw_fd(), old.as_ptr(), b.as_raw_fd(), new.as_ptr(), flags) })
}

/// Creates a hard link.
///
/// # Errors
/// `EEXIST`, or the errors of `linkat(2)`.
pub fn link(from: &Path, to: &Path) -> io::Result<()> {
    let ((a, old), (b, new)) = (place(from)?, place(to)?);
    // SAFETY: open descriptors and C strings that live until the call returns. Without AT_SYMLINK_FOLLOW a link is not
    // followed.
    decode_kind(unsafe { libc::linkat(a.as_raw_fd(), old.as_ptr(), b.as_raw_fd(), new.as_ptr(), 0) })
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
    for there in path.ancestors().filter(|p| !p.as_os_str().is_empty()) {
        if let Ok(real) = there.canonicalize() {
            let rest = path.strip_prefix(there).unwrap_or(Path::new(""));
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
fn place(path: &Path) -> io::Result<(OwnedFd, CString)> {
    let Some(name) = path.file_name() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a path without a name at its end"));
    };
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((at(folder, libc::O_PATH | libc::O_DIRECTORY, 0)?, c_string(name)?))
}

fn at(path: &Path, flags: i32, mode: u32) -> io::Result<OwnedFd> {
    let outcome = if BY_PARTS.load(Ordering::Relaxed) { by_parts(path, flags, mode) } else { whole(path, flags, mode) };
    outcome.map_err(|e| match e.raw_os_error() {
        Some(libc::ELOOP) => io::Error::other(
            "a symbolic link is on this path, and none is followed below a store: put the folder or file itself there, or \
             mount its volume there",
        ),
        _ => e,
    })
}

fn whole(path: &Path, flags: i32, mode: u32) -> io::Result<OwnedFd> {
    let name = c_string(path.as_os_str())?;
    // SAFETY: open_how is a plain structure of integers, for which zero is a value.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (flags | libc::O_CLOEXEC) as u32 as u64;
    how.mode = u64::from(mode);
    how.resolve = libc::RESOLVE_NO_SYMLINKS;
    loop {
        // SAFETY: a C string and a structure of the length given, both alive until the call returns.
        let fd = unsafe {
            libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, name.as_ptr(), &raw const how, size_of::<libc::open_how>())
        };
        if let Ok(fd) = RawFd::try_from(fd)
            && fd >= 0
        {
            // SAFETY: the kernel has just opened the descriptor, so it has no other owner.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // A component of the path was renamed meanwhile.
            Some(libc::EINTR | libc::EAGAIN) => {}
            Some(libc::ENOSYS) => {
                BY_PARTS.store(true, Ordering::Relaxed);
                return by_parts(path, flags, mode);
            }
            // Filters of containers and service managers that do not know the call refuse it with this error; but the
            // file itself may also refuse the requested access.
            Some(libc::EPERM) => {
                let opened = by_parts(path, flags, mode)?;
                BY_PARTS.store(true, Ordering::Relaxed);
                return Ok(opened);
            }
            _ => return Err(error),
        }
    }
}

/// Like `whole`, with one call for each component of the path.
fn by_parts(path: &Path, flags: i32, mode: u32) -> io::Result<OwnedFd> {
    let mut parts = path.components().peekable();
    let mut folder: Option<OwnedFd> = None;
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        let name = match part {
            Component::Prefix(_) => continue,
            part => c_string(part.as_os_str())?,
        };
        let flags = if last { flags | libc::O_NOFOLLOW } else { libc::O_PATH | libc::O_NOFOLLOW };
        let from = folder.as_ref().map_or(libc::AT_FDCWD, AsRawFd::as_raw_fd);
        // SAFETY: an open descriptor or AT_FDCWD, and a C string.
        let fd = unsafe { libc::openat(from, name.as_ptr(), flags | libc::O_CLOEXEC, mode) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just opened the descriptor, so it has no other owner.
        let opened = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        // With O_PATH, a link itself is opened instead of followed.
        if !last && opened.metadata()?.is_symlink() {
            return Err(io::Error::from_raw_os_error(libc::ELOOP));
        }
        folder = Some(opened.into());
    }
    folder.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
}

fn decode_kind(rc: i32) -> io::Result<()> {
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    struct Folder(PathBuf);

    impl Folder {
        fn new(test: &str) -> Self {
            let path = std::env::temp_dir().join(format!("{test}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(path.join("outside")).expect("a folder");
            Self(fs::canonicalize(path).expect("a folder"))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn no_operation_follows_a_link_at_the_end_or_on_the_way() {
        let dir = Folder::new("plain-links");
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
            for by_parts in [by_parts(&path, libc::O_RDONLY, 0), by_parts(&path, libc::O_RDWR | libc::O_CREAT, 0o600)] {
                assert_eq!(by_parts.expect_err("a link").raw_os_error(), Some(libc::ELOOP));
            }
        }
        let through = dir.0.join("way/new");
        assert!(
            open_as(&through, make).is_err() && create_folder(&through).is_err() && create_folders(&through).is_err()
        );
        assert!(rename(&dir.0.join("own"), &through).is_err() && rename_new(&dir.0.join("own"), &through).is_err());
        assert!(link(&dir.0.join("own"), &through).is_err() && remove(&dir.0.join("way/secret")).is_err());
        assert!(list(&dir.0.join("way")).is_err() && remove_folder(&dir.0.join("way")).is_err());
        assert!(stat(&dir.0.join("way/secret")).is_err() && stat(&dir.0.join("end")).expect("the link").is_symlink());
        assert_eq!(fs::read_to_string(&secret).expect("a file"), "untouched");
        assert_eq!(fs::read_dir(&outside).expect("a folder").count(), 1);
        remove(&dir.0.join("end")).expect("the link itself goes");
        assert!(secret.exists());
    }

    #[test]
    fn without_links_everything_works_in_both_ways_of_asking() {
        let dir = Folder::new("plain-files");
        let hour = dir.0.join("a/b/c");
        create_folders(&hour).expect("folders");
        create_folders(&hour).expect("they are there");
        let file = hour.join("f");
        let how = OpenOptions { write: true, create: Some(0o640), new: true, ..OpenOptions::default() };
        io::Write::write_all(&mut open_as(&file, how).expect("a new file"), b"text").expect("written");
        assert_eq!(open_as(&file, how).expect_err("it is there").kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(read_to_string(&file).expect("the file"), "text");
        let again = File::from(by_parts(&file, libc::O_RDONLY, 0).expect("the same"));
        assert_eq!(io::read_to_string(again).expect("text"), "text");
        let (other, third) = (hour.join("g"), hour.join("h"));
        link(&file, &other).expect("another name");
        assert_eq!(rename_new(&file, &other).expect_err("it is there").kind(), io::ErrorKind::AlreadyExists);
        rename_new(&file, &third).expect("renamed");
        rename(&third, &file).expect("and back");
        let mut listed = list(&hour).expect("names");
        listed.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(listed, [("f".into(), FileKind::File), ("g".into(), FileKind::File)]);
        assert_eq!(remove_folder(&hour).expect_err("not empty").kind(), io::ErrorKind::DirectoryNotEmpty);
        remove(&file).and_then(|()| remove(&other)).and_then(|()| remove_folder(&hour)).expect("empty");
        assert_eq!(list(&dir.0.join("a")).expect("names"), [("b".into(), FileKind::Folder)]);
        for gone in [open(&file).map(drop), stat(&file).map(drop), list(&hour).map(drop), remove(&file)] {
            assert_eq!(gone.expect_err("gone").kind(), io::ErrorKind::NotFound);
        }
    }

    #[test]
    fn a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for() {
        let dir = Folder::new("plain-pipe");
        let pipe = dir.0.join("pipe");
        let name = c_string(pipe.as_os_str()).expect("a name");
        // SAFETY: a C string and a mode.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        assert!(open(&pipe).is_err() && open_as(&pipe, OpenOptions { write: true, ..OpenOptions::default() }).is_err());
    }

    #[test]
    fn what_a_person_names_may_be_a_link_and_keeps_its_name_if_there_is_none() {
        let dir = Folder::new("plain-resolve");
        symlink(dir.0.join("outside"), dir.0.join("way")).expect("a link");
        assert_eq!(resolve(&dir.0.join("way/new/store")), dir.0.join("outside/new/store"));
        assert_eq!(resolve(&dir.0.join("way")), dir.0.join("outside"));
        assert_eq!(resolve(&dir.0.join("way/")), dir.0.join("outside"));
        for given in [dir.0.join("outside/new"), PathBuf::from("relative/../store"), PathBuf::from("store")] {
            assert_eq!(resolve(&given), given);
        }
    }

    #[test]
    fn a_profile_that_refuses_the_newer_call_refuses_no_file() {
        let test = "a_profile_that_refuses_the_newer_call_refuses_no_file";
        let dir = Folder::new("plain-refused");
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
            // SAFETY: the call is refused before its arguments are looked at.
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
