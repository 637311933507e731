//! Identity of a process across PID reuse, and whether the process has ended.
//!
//! The kernel reuses PIDs, so the identity also contains the start time of the process (proc(5), `stat`, field 22, in
//! ticks since boot). PID and start time are valid only within a PID namespace and a time namespace, so the identity
//! contains both namespaces. Invariant: a process is reported as ended only if that is certain.

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::str::FromStr;

/// Index of the start time in `stat`, counted after the program name.
const STARTED: usize = 19;

/// The identity of a process since the boot of the machine. Its text form is four numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// PID.
    pub id: u32,
    /// Start time in ticks since boot.
    pub started: u64,
    /// Inode numbers of the PID namespace and of the time namespace (0 if the kernel has no time namespaces).
    pub namespaces: [u64; 2],
}

impl Process {
    /// The calling process.
    ///
    /// # Errors
    /// If `/proc` is not mounted, or belongs to another PID namespace.
    pub fn this() -> io::Result<Self> {
        let id = std::process::id();
        let stat = fs::read_to_string("/proc/self/stat")?;
        if stat.split(' ').next().and_then(|id| id.parse().ok()) != Some(id) {
            return Err(io::Error::other("/proc belongs to another PID namespace"));
        }
        let pids = fs::metadata("/proc/self/ns/pid")?.ino();
        let times = fs::metadata("/proc/self/ns/time").map_or(0, |it| it.ino());
        let started = started(&stat).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { id, started, namespaces: [pids, times] })
    }

    /// True if the process still exists, also as a zombie; `None` if this process cannot determine it.
    pub fn is_there(&self) -> Option<bool> {
        let pid = Pid::from_raw(i32::try_from(self.id).ok()?)?;
        if Self::this().ok()?.namespaces != self.namespaces {
            return None;
        }
        // `/proc` may hide the processes of other users (`hidepid=`); kill(2) does not.
        if test_kill_process(pid) == Err(Errno::SRCH) {
            return Some(false);
        }
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id)).ok()?;
        Some(started(&stat)? == self.started)
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.id, self.started, self.namespaces[0], self.namespaces[1])
    }
}

impl FromStr for Process {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut numbers = text.split(' ').map(|number| number.parse::<u64>().map_err(drop));
        let mut next = || numbers.next().ok_or(())?;
        let process = Self { id: next()?.try_into().map_err(drop)?, started: next()?, namespaces: [next()?, next()?] };
        if numbers.next().is_none() { Ok(process) } else { Err(()) }
    }
}

/// The start time. The program name precedes it in brackets and may itself contain blanks and brackets.
fn started(stat: &str) -> Option<u64> {
    stat.rsplit_once(") ")?.1.split(' ').nth(STARTED)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_has_ended_if_its_pid_is_free_or_reused_in_its_namespace() {
        let this = Process::this().expect("/proc");
        assert_eq!(this.is_there(), Some(true));
        assert_eq!(
            Process { started: this.started + 1, ..this }.is_there(),
            Some(false),
            "another process has the PID"
        );
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep");
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).expect("the child exists");
        let other = Process { id: child.id(), started: started(&stat).expect("a start time"), ..this };
        assert_eq!(other.is_there(), Some(true));
        child.kill().expect("a child of this process");
        child.wait().expect("a child of this process");
        assert_eq!(other.is_there(), Some(false));
        for spaces in [[this.namespaces[0] + 1, this.namespaces[1]], [this.namespaces[0], this.namespaces[1] + 1]] {
            assert_eq!(Process { namespaces: spaces, ..other }.is_there(), None);
        }
        for id in [0, u32::MAX] {
            assert_eq!(Process { id, ..this }.is_there(), None, "kill(2) would interpret this PID as a process group");
        }
    }

    #[test]
    fn the_text_form_is_parsed_and_other_texts_are_rejected() {
        let this = Process::this().expect("/proc");
        assert_eq!(this.to_string().parse(), Ok(this));
        for text in ["", "1", "1 2 3", "1 2 3 4 5", "1 2 3 x", "1  2 3", "4294967296 2 3 4", "-1 2 3 4"] {
            assert_eq!(text.parse::<Process>(), Err(()), "{text}");
        }
    }

    #[test]
    fn the_name_of_a_program_may_contain_brackets_and_numbers() {
        let rest = (1..=22).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(started(&format!("7 (a) b (c 1 2) {rest}")), Some(20));
    }
}
