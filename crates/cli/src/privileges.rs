//! The privileges that each verb keeps after its setup. `record` keeps those that are needed to reopen an interface
//! that was removed and created again. Reading verbs keep the right to read. All other privileges are dropped before
//! the first thread starts, so that no thread has them.
//!
//! Root without CAP_DAC_OVERRIDE is subject to directory permissions like any user. The paths that would then be
//! inaccessible are found in advance, on a thread that has already dropped this capability.

use crate::index::IndexArgs;
use crate::outcome::Failure;
use crate::repair::RepairArgs;
use std::io;
use std::path::{Path, PathBuf};
use sys::privilege::{self, Account, Capabilities, Capability};
use sys::seccomp::Sockets;

/// Levels of directories to check below a store: interface, year, month, day, hour.
const DEPTH: usize = 5;

/// The resources that a capturing verb needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needs<'a> {
    /// Interfaces to capture from.
    pub ports: bool,
    /// Packet programs to load into the kernel, at the start and at each reload.
    pub program: bool,
    /// Capture files to read.
    pub files: bool,
    /// The store to write.
    pub store: Option<&'a Path>,
    /// The archive to move files to.
    pub archive: Option<&'a Path>,
    /// The ring socket to create.
    pub socket: Option<&'a Path>,
    /// The owner of the socket.
    pub socket_owner: Option<&'a str>,
    /// The group of the socket.
    pub socket_group: Option<&'a str>,
    /// The user to change to.
    pub user: Option<&'a str>,
}

/// Reduces the privileges of `netgrain record` and `run`, once the capture and the ring sockets are known.
///
/// # Errors
/// The user of `--user` does not exist, or may not write to the store, the archive or the socket directory.
pub fn for_recording(needs: &Needs<'_>) -> Result<(), Failure> {
    let mut keep = privilege::CAPTURE_OPTIONAL;
    if needs.ports {
        // An interface that disappears is reopened when it exists again. Opening it again needs the same capabilities
        // as opening it at the start.
        keep = keep.with(privilege::CAPTURE);
    }
    if needs.ports && needs.program {
        keep = keep.with(privilege::PROGRAMS);
    }
    if needs.files {
        keep = keep.with(READING);
    }
    let mut groups = Vec::new();
    if needs.socket_owner.is_some() {
        keep = keep.with(Capabilities::of(&[Capability::Chown, Capability::Fowner]));
    } else if let Some(group) = needs.socket_group {
        // A member of a group may give its files to that group.
        groups.extend(sys::unix::id_of(group, Path::new("/etc/group")));
    }
    let socket_directory = needs.socket.and_then(Path::parent).map(Path::to_owned);
    // The process must be able to write to existing directories too: retention removes files from directories that an
    // earlier recorder created, and moves files into existing directories of the archive.
    let directories = needs.store.into_iter().chain(needs.archive);
    let mut written: Vec<PathBuf> = directories.flat_map(|f| below(f, DEPTH)).collect();
    if let Some(name) = needs.user {
        let user = become_user(name, &groups, socket_directory.as_deref(), keep)?;
        written.extend(socket_directory);
        if let Some(unwritable) = written.iter().map(|f| existing(f)).find(|f| !privilege::may_write(f)) {
            return Err(Failure::Said(format!(
                "--user {name}: this user cannot write to {}; change its owner: chown -R {} {}",
                unwritable.display(),
                user.uid,
                unwritable.display()
            )));
        }
        return finish(keep);
    }
    for directory in needs.store.into_iter().chain(needs.archive) {
        owned(directory)?;
    }
    if privilege::permitted().has(Capability::Setgid) {
        privilege::set_groups(&groups).map_err(|e| failed("drop supplementary groups", &e))?;
    }
    written.extend(socket_directory);
    finish(keep.with(override_for(&written)))
}

/// Reduces the privileges of `netgrain replay`, once the interfaces and the control socket are open. The captures are
/// opened again in each pass.
///
/// # Errors
/// The kernel rejects a restriction.
pub fn for_sending(control: Option<&Path>) -> Result<(), Failure> {
    // The control socket is removed at the end.
    let directories: Vec<PathBuf> = control.into_iter().map(directory_of).collect();
    let priority = Capabilities::of(&[Capability::SysNice]);
    finish(READING.with(priority).with(override_for(&directories)))?;
    keep_calls_for(Sockets::Capture)
}

/// Installs the system call filter of verbs that capture or send, after all resources are open. The filter also permits
/// the system calls that are needed later: to reopen an interface, to swap a program, to connect to a new collector.
///
/// # Errors
/// The kernel rejects the filter.
pub fn keep_calls_of_capture() -> Result<(), Failure> {
    privilege::no_new_privileges().map_err(|e| failed("set no_new_privs", &e))?;
    keep_calls_for(Sockets::Capture)
}

/// Installs the system call filter of verbs that keep their capabilities and only exchange messages with processes of
/// this machine, or read and write files.
///
/// # Errors
/// As [`keep_calls_of_capture`].
pub fn keep_calls_of_queries() -> Result<(), Failure> {
    privilege::no_new_privileges().map_err(|e| failed("set no_new_privs", &e))?;
    keep_calls_for(Sockets::Local)
}

fn keep_calls_for(sockets: Sockets) -> Result<(), Failure> {
    match sys::seccomp::keep_calls_for(sockets) {
        // Where the kernel has no system call filters or a container forbids them, the reduced capabilities are the
        // only restriction.
        Err(e) if matches!(e.kind(), io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied) => Ok(()),
        other => other.map_err(|e| failed("install the system call filter", &e)),
    }
}

/// Returns an error if this process is root and another user can change the directory of the store.
///
/// # Errors
/// See [`store::owner`].
fn owned(store: &Path) -> Result<(), Failure> {
    store::owner::check(store).map_err(Failure::say)
}

/// The capability that reading verbs keep if they have it: CAP_DAC_READ_SEARCH permits reading the files of all owners.
const READING: Capabilities = Capabilities::of(&[Capability::DacReadSearch]);

/// Reduces the privileges of a reading verb. `written` are the files that the verb writes (`-` is no file), and
/// `sockets` are the sockets to which it may connect. Where the kernel has Landlock, the file system can afterwards be
/// changed only in the directories of `written`. No thread can make system calls other than those for files and for
/// local sockets.
///
/// # Errors
/// The kernel rejects a restriction.
pub fn for_reading(written: &[&Path], sockets: &[PathBuf]) -> Result<(), Failure> {
    for_queries(written, sockets, Sockets::Local)
}

/// Reduces the privileges as [`for_reading`] does, for verbs that also read from the network or resolve host names.
///
/// # Errors
/// As [`for_reading`].
pub fn for_queries(written: &[&Path], sockets: &[PathBuf], more: Sockets) -> Result<(), Failure> {
    let files = || written.iter().copied().filter(|p| *p != Path::new("-"));
    let directories: Vec<PathBuf> = files().map(directory_of).collect();
    let mut touched: Vec<PathBuf> = files().filter(|p| p.exists()).map(Path::to_owned).collect();
    touched.extend(directories.iter().map(|f| existing(f)));
    touched.extend(sockets.iter().filter(|s| s.exists()).cloned());
    finish(READING.with(override_for(&touched)))?;
    let directories: Vec<PathBuf> = directories.iter().map(|f| existing(f)).collect();
    write_only_below(&directories)?;
    keep_calls_for(more)
}

/// Reduces the privileges of `netgrain repair`. For a path in a store, the process can afterwards change files only
/// below the directory of the interface; for another capture file, only in the directory of that file.
///
/// # Errors
/// As [`for_reading`].
pub fn for_repair(args: &RepairArgs) -> Result<(), Failure> {
    if args.dry_run {
        return for_reading(&[], &[]);
    }
    let named = || args.store.iter().chain(&args.paths).filter(|path| path.exists());
    // If a path is a symbolic link, repair opens the target of the link but renames the link itself. So repair needs
    // the directory of the link and the directory of its target.
    let paths = || named().map(|path| existing(path)).chain(named().filter_map(|path| path.canonicalize().ok()));
    let mut roots: Vec<PathBuf> = paths().map(|path| interface_of(&path)).collect();
    roots.sort();
    roots.dedup();
    let mut written: Vec<PathBuf> = paths().flat_map(|path| below(&path, DEPTH)).collect();
    let inside = |directory: &PathBuf| std::fs::read_dir(directory).into_iter().flatten().flatten().map(|e| e.path());
    let files: Vec<PathBuf> = written.iter().flat_map(inside).filter(|path| path.is_file()).collect();
    written.extend(files);
    written.extend_from_slice(&roots);
    finish(READING.with(override_for(&written)))?;
    // Landlock before version 2 does not permit moving a file into another directory, which the repair of a store does.
    if sys::landlock::version() >= 2 {
        // A killed recorder leaves its counter page, a file with the number of offered packets. Repair adds this number
        // to the counts of the ledger of losses, and then removes the file.
        roots.extend(Some(PathBuf::from(store::offered_page::DIRECTORY)).filter(|pages| pages.is_dir()));
        write_only_below(&roots)?;
    }
    keep_calls_for(Sockets::Local)
}

/// The interface directory of a path in a store, derived from names: the parent of year, month, day and hour.
fn interface_of(path: &Path) -> PathBuf {
    let directory = if path.is_dir() { path.to_owned() } else { directory_of(path) };
    let is_number = |p: &Path| p.file_name().is_some_and(|n| n.as_encoded_bytes().iter().all(u8::is_ascii_digit));
    let mut above = directory.ancestors().take(DEPTH);
    above.find(|p| !is_number(p)).unwrap_or(&directory).to_owned()
}

fn write_only_below(directories: &[PathBuf]) -> Result<(), Failure> {
    let open: Vec<&Path> = directories.iter().map(PathBuf::as_path).collect();
    match sys::landlock::write_only_below(&open) {
        // Where the kernel lacks Landlock or a container forbids it, the reduced capabilities are the only restriction.
        Err(e) if matches!(e.kind(), io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied) => Ok(()),
        other => other.map_err(|e| failed("restrict writing with Landlock", &e)),
    }
}

/// Reduces the privileges of `netgrain index`, which reads captures and writes an index for each of them, into the
/// directory of the capture or into one common directory.
///
/// # Errors
/// As [`for_reading`].
pub fn for_indexing(args: &IndexArgs) -> Result<(), Failure> {
    // An index is written under a hidden name and renamed, so its directory must be writable, even if the capture has
    // another owner.
    const INDEX: &str = ".index";
    let mut written: Vec<PathBuf> = match &args.into {
        Some(directory) => vec![directory.join(INDEX)],
        None if args.check => Vec::new(),
        // `index` reports an error for a directory, and writes no index for it.
        None => args.files.iter().filter(|f| f.is_file()).map(|f| f.with_file_name(INDEX)).collect(),
    };
    written.sort();
    written.dedup();
    let written: Vec<&Path> = written.iter().map(PathBuf::as_path).collect();
    for_reading(&written, &[])
}

/// The ring sockets of the recorders of this store, and those in the default directory.
pub fn sockets(store: Option<&Path>) -> Vec<PathBuf> {
    let list = |directory: &Path| std::fs::read_dir(directory).into_iter().flatten().flatten().map(|e| e.path());
    let claimed = store.into_iter().flat_map(list).filter_map(|directory| store::Claim::holder(&directory)?.socket);
    let usual = engine::default_socket("any");
    let usual = usual.parent().into_iter().flat_map(list);
    claimed.chain(usual).collect()
}

/// Drops all capabilities except `keep` for good, on the calling thread and all threads that it starts.
fn finish(keep: Capabilities) -> Result<(), Failure> {
    privilege::no_new_privileges().map_err(|e| failed("set no_new_privs", &e))?;
    // Failure is harmless: with no_new_privs, no capability of the bounding set can be gained.
    privilege::clear_bounding();
    privilege::set(keep.and(privilege::permitted())).map_err(|e| failed("drop capabilities", &e))
}

fn failed(what: &str, e: &io::Error) -> Failure {
    Failure::Said(format!("cannot {what}: {e}; please report this with the version of the kernel"))
}

/// Returns CAP_DAC_OVERRIDE if one of these paths is not writable without this capability, and prints a message with
/// the reason. Otherwise returns no capability.
fn override_for(paths: &[PathBuf]) -> Capabilities {
    const OVERRIDE: Capabilities = Capabilities::of(&[Capability::DacOverride]);
    if privilege::permitted().and(OVERRIDE).is_empty() {
        return Capabilities::NONE;
    }
    let unwritable = std::thread::scope(|scope| {
        let find_unwritable = || {
            privilege::set(privilege::permitted().without(OVERRIDE)).ok()?;
            paths.iter().map(|p| existing(p)).find(|p| !privilege::may_write(p))
        };
        scope.spawn(find_unwritable).join().unwrap_or_default()
    });
    // On a volume that is mounted read-only, the capability has no effect and is not kept.
    let unwritable = unwritable.filter(|place| privilege::may_write(place));
    let Some(place) = unwritable else { return Capabilities::NONE };
    sys::say!(
        "netgrain: keeps CAP_DAC_OVERRIDE, because {} belongs to another user; run as that user to avoid this",
        place.display()
    );
    OVERRIDE
}

/// The path itself, or its nearest existing parent directory.
fn existing(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    whole.ancestors().find(|p| p.exists()).map_or_else(|| PathBuf::from("/"), Path::to_owned)
}

/// The directory of a file.
fn directory_of(file: &Path) -> PathBuf {
    file.parent().filter(|p| !p.as_os_str().is_empty()).map_or_else(|| PathBuf::from("."), Path::to_owned)
}

/// A directory and its subdirectories down to `depth` levels.
fn below(directory: &Path, depth: usize) -> Vec<PathBuf> {
    let mut all = vec![directory.to_owned()];
    if depth > 0 {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let inner = entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
        inner.for_each(|e| all.extend(below(&e.path(), depth - 1)));
    }
    all
}

/// Changes to the user of `--user` and keeps the given capabilities. Creates the socket directory for this user first,
/// which only root can do.
fn become_user(name: &str, groups: &[u32], sockets: Option<&Path>, keep: Capabilities) -> Result<Account, Failure> {
    let user = privilege::account(name)
        .ok_or_else(|| Failure::Said(format!("--user {name}: no user in /etc/passwd has this name or number")))?;
    let refused = |e: io::Error| {
        let needed = Capabilities::of(&[Capability::Setuid, Capability::Setgid]);
        Failure::Said(format!("--user {name}: {e}; {}", privilege::advice("becoming another user", needed)))
    };
    if let Some(directory) = sockets.filter(|f| !f.exists()) {
        let made = std::fs::create_dir_all(directory);
        made.and_then(|()| std::os::unix::fs::chown(directory, Some(user.uid), Some(user.gid))).map_err(refused)?;
    }
    // Capabilities in `keep` that the process has stay permitted after the change of the user; no capabilities are
    // added.
    let keep = keep.and(privilege::permitted());
    // The bounding set is reduced before the change of the user, because it cannot be reduced afterwards.
    privilege::clear_bounding();
    privilege::become_user(user.uid, user.gid, groups).map_err(refused)?;
    privilege::set(keep).map_err(|e| failed("keep capabilities", &e))?;
    Ok(user)
}
