//! What each verb may still do once it knows what it has to: `record` keeps what a port that comes back takes, verbs that
//! read keep reading. Everything else is given up before the first thread is started, so that no thread ever had it.
//!
//! Root without CAP_DAC_OVERRIDE is a user like others where folders belong to somebody else. What would no longer work is
//! looked for before, with the right to override already given up on a thread of its own.

use crate::index::IndexArgs;
use crate::outcome::Failure;
use crate::repair::RepairArgs;
use std::io;
use std::path::{Path, PathBuf};
use sys::privilege::{self, Account, Capabilities, Capability};
use sys::seccomp::Sockets;

/// Folders below a store that are looked at: interface, year, month, day, hour.
const DEPTH: usize = 5;

/// What a verb that captures has to do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needs<'a> {
    /// Take packets from interfaces.
    pub ports: bool,
    /// Load programs of the language into the kernel, now and when they are exchanged.
    pub program: bool,
    /// Read capture files.
    pub files: bool,
    /// Write here.
    pub store: Option<&'a Path>,
    /// And move files there.
    pub archive: Option<&'a Path>,
    /// Let listeners in here.
    pub socket: Option<&'a Path>,
    /// Who are to be its owner and group.
    pub socket_owner: Option<&'a str>,
    /// See above.
    pub socket_group: Option<&'a str>,
    /// Do it as this user.
    pub user: Option<&'a str>,
}

/// For `netgrain record` and `run`, once it is known what is to be recorded and where listeners attach.
///
/// # Errors
/// When `--user` is not there, or may not write where it has to.
pub fn for_recording(needs: &Needs<'_>) -> Result<(), Failure> {
    let mut keep = privilege::CAPTURE_OPTIONAL;
    if needs.ports {
        // A port that goes away is opened again when it is back, which takes what the first time took.
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
        // Who is in a group may give it files.
        groups.extend(sys::unix::id_of(group, Path::new("/etc/group")));
    }
    let socket_folder = needs.socket.and_then(Path::parent).map(Path::to_owned);
    // Retention removes files from folders that an earlier recorder made, and moves them into those of the archive.
    let folders = needs.store.into_iter().chain(needs.archive);
    let mut written: Vec<PathBuf> = folders.flat_map(|f| below(f, DEPTH)).collect();
    if let Some(name) = needs.user {
        let user = become_user(name, &groups, socket_folder.as_deref(), keep)?;
        written.extend(socket_folder);
        if let Some(shut) = written.iter().map(|f| existing(f)).find(|f| !privilege::may_write(f)) {
            return Err(Failure::Said(format!(
                "--user {name}: {} is not writable for it; give it to {name}: chown -R {} {}",
                shut.display(),
                user.uid,
                shut.display()
            )));
        }
        return finish(keep);
    }
    for folder in needs.store.into_iter().chain(needs.archive) {
        owned(folder)?;
    }
    if privilege::permitted().has(Capability::Setgid) {
        privilege::set_groups(&groups).map_err(|e| failed("give up the other groups", &e))?;
    }
    written.extend(socket_folder);
    finish(keep.with(override_for(&written)))
}

/// For verbs that capture or send, once everything is open: from now on no thread makes other system calls than those that
/// its work takes. What it takes later (a port that comes back, a program that is exchanged, a new collector) is among them.
///
/// # Errors
/// When the kernel refuses to take something away.
pub fn keep_calls_of_capture() -> Result<(), Failure> {
    privilege::no_new_privileges().map_err(|e| failed("forbid new privileges", &e))?;
    keep_calls_for(Sockets::Network)
}

/// The same for verbs that keep their capabilities and only ask other processes of this machine, or read and write files.
///
/// # Errors
/// As [`keep_calls_of_capture`].
pub fn keep_calls_of_queries() -> Result<(), Failure> {
    privilege::no_new_privileges().map_err(|e| failed("forbid new privileges", &e))?;
    keep_calls_for(Sockets::Local)
}

fn keep_calls_for(sockets: Sockets) -> Result<(), Failure> {
    match sys::seccomp::keep_calls_for(sockets) {
        // A kernel without it, or a container that forbids it: what the capabilities leave must do.
        Err(e) if matches!(e.kind(), io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied) => Ok(()),
        other => other.map_err(|e| failed("give up system calls", &e)),
    }
}

/// Refuses a store that root should not write into.
///
/// # Errors
/// See [`store::owner`].
fn owned(store: &Path) -> Result<(), Failure> {
    store::owner::check(store).map_err(Failure::say)
}

/// What a verb that only reads keeps, if it has it: reading whoever the files belong to.
const READING: Capabilities = Capabilities::of(&[Capability::DacReadSearch]);

/// For verbs that read: `written` are the files they write (`-` is none), `sockets` those they may connect to. Afterwards
/// the file system can be changed only in the folders of `written`, where the kernel has Landlock, and no thread can make
/// other system calls than those of reading and writing files and of talking to processes of this machine.
///
/// # Errors
/// When the kernel refuses to take something away.
pub fn for_reading(written: &[&Path], sockets: &[PathBuf]) -> Result<(), Failure> {
    for_queries(written, sockets, Sockets::Local)
}

/// The same for verbs that read from the network as well, or look up the names of hosts.
///
/// # Errors
/// As [`for_reading`].
pub fn for_queries(written: &[&Path], sockets: &[PathBuf], more: Sockets) -> Result<(), Failure> {
    let files = || written.iter().copied().filter(|p| *p != Path::new("-"));
    let folders: Vec<PathBuf> = files().map(folder_of).collect();
    let mut touched: Vec<PathBuf> = files().filter(|p| p.exists()).map(Path::to_owned).collect();
    touched.extend(folders.iter().map(|f| existing(f)));
    touched.extend(sockets.iter().filter(|s| s.exists()).cloned());
    finish(READING.with(override_for(&touched)))?;
    let folders: Vec<PathBuf> = folders.iter().map(|f| existing(f)).collect();
    write_only_below(&folders)?;
    keep_calls_for(more)
}

/// For `netgrain repair`: afterwards the file system can be changed only below the interface, or in the folder of the
/// capture, that each path belongs to.
///
/// # Errors
/// As [`for_reading`].
pub fn for_repair(args: &RepairArgs) -> Result<(), Failure> {
    if args.dry_run {
        return for_reading(&[], &[]);
    }
    let named = || args.store.iter().chain(&args.paths).filter(|path| path.exists());
    // A name may be a link: the file is opened where it leads, and renamed where it lies.
    let places = || named().map(|path| existing(path)).chain(named().filter_map(|path| path.canonicalize().ok()));
    let mut roots: Vec<PathBuf> = places().map(|path| interface_of(&path)).collect();
    roots.sort();
    roots.dedup();
    let mut written: Vec<PathBuf> = places().flat_map(|path| below(&path, DEPTH)).collect();
    let inside = |folder: &PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    let files: Vec<PathBuf> = written.iter().flat_map(inside).filter(|path| path.is_file()).collect();
    written.extend(files);
    written.extend_from_slice(&roots);
    finish(READING.with(override_for(&written)))?;
    // Before this version nothing can be renamed into another folder, as recovery does.
    if sys::landlock::version() >= 2 {
        write_only_below(&roots)?;
    }
    keep_calls_for(Sockets::Local)
}

/// The folder of the interface that a path in a store belongs to, as far as names tell: above year, month, day and hour.
fn interface_of(path: &Path) -> PathBuf {
    let folder = if path.is_dir() { path.to_owned() } else { folder_of(path) };
    let is_number = |p: &Path| p.file_name().is_some_and(|n| n.as_encoded_bytes().iter().all(u8::is_ascii_digit));
    let mut above = folder.ancestors().take(DEPTH);
    above.find(|p| !is_number(p)).unwrap_or(&folder).to_owned()
}

fn write_only_below(folders: &[PathBuf]) -> Result<(), Failure> {
    let open: Vec<&Path> = folders.iter().map(PathBuf::as_path).collect();
    match sys::landlock::write_only_below(&open) {
        // A kernel without it, or a container that forbids it: what the capabilities leave must do.
        Err(e) if matches!(e.kind(), io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied) => Ok(()),
        other => other.map_err(|e| failed("give up writing elsewhere", &e)),
    }
}

/// For `netgrain index`, which reads captures and writes beside them, or into one folder.
///
/// # Errors
/// As [`for_reading`].
pub fn for_indexing(args: &IndexArgs) -> Result<(), Failure> {
    // An index is made under a hidden name and renamed: its folder is what has to be written, whoever has the capture.
    const INDEX: &str = ".index";
    let mut written: Vec<PathBuf> = match &args.into {
        Some(folder) => vec![folder.join(INDEX)],
        None if args.check => Vec::new(),
        None => args.files.iter().map(|f| f.with_file_name(INDEX)).collect(),
    };
    written.sort();
    written.dedup();
    let written: Vec<&Path> = written.iter().map(PathBuf::as_path).collect();
    for_reading(&written, &[])
}

/// Where a recorder of this store, or any at the usual place, may be listened to.
pub fn sockets(store: Option<&Path>) -> Vec<PathBuf> {
    let list = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    let claimed = store.into_iter().flat_map(list).filter_map(|folder| store::Claim::holder(&folder)?.socket);
    let usual = engine::default_socket("any");
    let usual = usual.parent().into_iter().flat_map(list);
    claimed.chain(usual).collect()
}

/// Gives up everything but `keep`, for good, on the calling thread and all that it starts.
fn finish(keep: Capabilities) -> Result<(), Failure> {
    privilege::no_new_privileges().map_err(|e| failed("forbid new privileges", &e))?;
    // Without the right to make it smaller the bounding set means nothing here: nothing new is ever gained.
    privilege::clear_bounding();
    privilege::set(keep.and(privilege::permitted())).map_err(|e| failed("give up capabilities", &e))
}

fn failed(what: &str, e: &io::Error) -> Failure {
    Failure::Said(format!("cannot {what}: {e}; please report this with the kernel's version"))
}

/// The right to write whoever it belongs to, if one of these places needs it, with a word to people why.
fn override_for(places: &[PathBuf]) -> Capabilities {
    const OVERRIDE: Capabilities = Capabilities::of(&[Capability::DacOverride]);
    if privilege::permitted().and(OVERRIDE).is_empty() {
        return Capabilities::NONE;
    }
    let closed = std::thread::scope(|scope| {
        let look = || {
            privilege::set(privilege::permitted().without(OVERRIDE)).ok()?;
            places.iter().map(|p| existing(p)).find(|p| !privilege::may_write(p))
        };
        scope.spawn(look).join().unwrap_or_default()
    });
    // Where nobody can write, as on a volume that is mounted for reading, the right is of no use.
    let closed = closed.filter(|place| privilege::may_write(place));
    let Some(place) = closed else { return Capabilities::NONE };
    sys::say!(
        "netgrain: keeps CAP_DAC_OVERRIDE, because {} belongs to another user; run as that user to do without",
        place.display()
    );
    OVERRIDE
}

/// The place itself, or the nearest folder above it that is there.
fn existing(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    whole.ancestors().find(|p| p.exists()).map_or_else(|| PathBuf::from("/"), Path::to_owned)
}

/// The folder that a file is in.
fn folder_of(file: &Path) -> PathBuf {
    file.parent().filter(|p| !p.as_os_str().is_empty()).map_or_else(|| PathBuf::from("."), Path::to_owned)
}

/// A folder and those in it, so many floors down.
fn below(folder: &Path, depth: usize) -> Vec<PathBuf> {
    let mut all = vec![folder.to_owned()];
    if depth > 0 {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let inner = entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
        inner.for_each(|e| all.extend(below(&e.path(), depth - 1)));
    }
    all
}

/// Becomes the user of `--user`, with what is kept. The folder of the socket is made for it, as only root can.
fn become_user(name: &str, groups: &[u32], sockets: Option<&Path>, keep: Capabilities) -> Result<Account, Failure> {
    let user = privilege::account(name)
        .ok_or_else(|| Failure::Said(format!("--user {name}: not a name or number of /etc/passwd")))?;
    let refused = |e: io::Error| {
        let needed = Capabilities::of(&[Capability::Setuid, Capability::Setgid]);
        Failure::Said(format!("--user {name}: {e}; {}", privilege::advice("becoming another user", needed)))
    };
    if let Some(folder) = sockets.filter(|f| !f.exists()) {
        let made = std::fs::create_dir_all(folder);
        made.and_then(|()| std::os::unix::fs::chown(folder, Some(user.uid), Some(user.gid))).map_err(refused)?;
    }
    // What of it was there stays permitted beyond the change, and only that.
    let keep = keep.and(privilege::permitted());
    // While it still can: without this right the bounding set stays.
    privilege::clear_bounding();
    privilege::become_user(user.uid, user.gid, groups).map_err(refused)?;
    privilege::set(keep).map_err(|e| failed("keep capabilities", &e))?;
    Ok(user)
}
