//! The living processes that hold a lock on a file (proc(5), `/proc/locks`).

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;

/// A process that holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Process id in the PID namespace of this process.
    pub pid: u32,
    /// Name of the program (`/proc/PID/comm`).
    pub command: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.command)
    }
}

/// The processes that hold a lock on this file, in the order of the kernel's list. Processes in another PID namespace
/// are invisible, and processes that have ended meanwhile are left out.
///
/// # Errors
/// If `/proc/locks` is missing.
pub fn holders(file: &File) -> io::Result<Vec<Holder>> {
    let meta = file.metadata()?;
    let (major, minor) = (libc::major(meta.dev()), libc::minor(meta.dev()));
    let text = fs::read_to_string("/proc/locks")?;
    let mut found: Vec<Holder> = Vec::new();
    for pid in pids(&text, &format!("{major:02x}:{minor:02x}:{}", meta.ino()), meta.ino()) {
        let command = fs::read_to_string(format!("/proc/{pid}/comm"));
        if let Ok(command) = command
            && !found.iter().any(|holder| holder.pid == pid)
        {
            found.push(Holder { pid, command: command.trim_end().to_owned() });
        }
    }
    Ok(found)
}

/// The holders as text for a message.
pub fn holder_names(holders: &[Holder]) -> String {
    match holders {
        [] => "a process that is not visible in this PID namespace".to_owned(),
        [only] => only.to_string(),
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
    }
}

/// Parses lines such as `1: FLOCK  ADVISORY  READ 4711 08:01:131074 0 EOF`. The line of a waiting process contains an
/// arrow. For file systems without a block device (overlayfs, btrfs), the line contains another device number than
/// stat(2) reports. Then only the inode numbers are compared.
fn pids(text: &str, place: &str, inode: u64) -> Vec<u32> {
    let parsed = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let is_granted = words.next()? != "->";
        let rest: Vec<&str> = words.collect();
        let [_, _, pid, place, ..] = rest[..] else { return None };
        is_granted.then(|| Some((pid.parse().ok().filter(|pid| *pid > 0)?, place)))?
    });
    let all: Vec<(u32, &str)> = parsed.collect();
    let exactly: Vec<u32> = all.iter().filter(|(_, at)| *at == place).map(|(pid, _)| *pid).collect();
    if !exactly.is_empty() {
        return exactly;
    }
    let end = format!(":{inode}");
    all.iter().filter(|(_, at)| at.ends_with(&end)).map(|(pid, _)| *pid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_of_a_lock_are_listed_and_waiting_processes_are_not() {
        let text = "1: FLOCK  ADVISORY  READ  11 08:01:77 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 12 08:01:77 0 EOF\n\
                    2: OFDLCK ADVISORY  READ  -1 08:01:77 0 EOF\n3: POSIX  ADVISORY  WRITE 13 08:02:77 0 EOF\n\
                    4: FLOCK  ADVISORY  READ  0 08:01:77 0 EOF\n";
        assert_eq!(pids(text, "08:01:77", 77), [11]);
        assert_eq!(pids(text, "00:2a:77", 77), [11, 13], "stat(2) reports another device number");
        assert_eq!(pids(text, "08:01:7", 7), [0; 0]);
        assert_eq!(holder_names(&[]), "a process that is not visible in this PID namespace");
    }

    #[test]
    fn this_process_is_listed_while_it_holds_a_lock() {
        let path = std::env::temp_dir().join(format!("locks-{}", std::process::id()));
        let file = File::create(&path).expect("a file");
        assert_eq!(holders(&file).expect("/proc/locks"), []);
        file.lock_shared().expect("a lock");
        let found = holders(&File::open(&path).expect("the file")).expect("/proc/locks");
        assert!(found.iter().any(|holder| holder.pid == std::process::id() && !holder.command.is_empty()), "{found:?}");
        file.unlock().expect("unlocked");
        assert_eq!(holders(&file).expect("/proc/locks"), []);
        fs::remove_file(&path).expect("the file");
    }
}
