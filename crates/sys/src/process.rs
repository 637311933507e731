//! Which process: a name that no other process has later, and whether the one that had it is gone.
//!
//! A number alone is given out again; with the time at which the process began (proc(5), `stat`, field 22, in ticks since the boot) it
//! is not. Both mean something only within a PID namespace and a time namespace, so these are part of the name.
//! Invariant: a process is told to be gone only where that is certain.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::str::FromStr;

/// Where in `stat`, behind the name of the program, the time stands at which the process began.
const STARTED: usize = 19;

/// A process of this boot. As text: four numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub id: u32,
    /// When it began.
    pub started: u64,
    /// Of which PID namespace the number is, and of which time namespace the time (0 where the kernel has none).
    pub namespaces: [u64; 2],
}

impl Process {
    /// This one.
    ///
    /// # Errors
    /// Where `/proc` is not there, or is that of another PID namespace.
    pub fn this() -> io::Result<Self> {
        let id = std::process::id();
        let stat = fs::read_to_string("/proc/self/stat")?;
        if stat.split(' ').next().and_then(|id| id.parse().ok()) != Some(id) {
            return Err(io::Error::other("/proc is that of another PID namespace"));
        }
        let pids = fs::metadata("/proc/self/ns/pid")?.ino();
        let times = fs::metadata("/proc/self/ns/time").map_or(0, |it| it.ino());
        let started = started(&stat).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { id, started, namespaces: [pids, times] })
    }

    /// Whether it is still there, a zombie as well; `None` where that cannot be told from here.
    pub fn is_there(&self) -> Option<bool> {
        let pid = i32::try_from(self.id).ok().filter(|pid| *pid > 0)?;
        if Self::this().ok()?.namespaces != self.namespaces {
            return None;
        }
        // `/proc` may hide the processes of others (`hidepid=`); this does not.
        // SAFETY: signal 0 is none, and no memory is passed.
        let r = unsafe { libc::kill(pid, 0) };
        if r != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH) {
            return Some(false);
        }
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
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

/// The name of the program stands before, in brackets, and may have blanks and brackets itself.
fn started(stat: &str) -> Option<u64> {
    stat.rsplit_once(") ")?.1.split(' ').nth(STARTED)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_gone_when_its_number_is_nobodys_or_anothers_and_elsewhere_nobody_knows() {
        let this = Process::this().expect("/proc");
        assert_eq!(this.is_there(), Some(true));
        assert_eq!(Process { started: this.started + 1, ..this }.is_there(), Some(false), "another has the number");
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep");
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).expect("it is there");
        let other = Process { id: child.id(), started: started(&stat).expect("a time"), ..this };
        assert_eq!(other.is_there(), Some(true));
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
        assert_eq!(other.is_there(), Some(false));
        for spaces in [[this.namespaces[0] + 1, this.namespaces[1]], [this.namespaces[0], this.namespaces[1] + 1]] {
            assert_eq!(Process { namespaces: spaces, ..other }.is_there(), None);
        }
        for id in [0, u32::MAX] {
            assert_eq!(Process { id, ..this }.is_there(), None, "kill(2) means many by it");
        }
    }

    #[test]
    fn its_text_is_read_back_and_nothing_else_is() {
        let this = Process::this().expect("/proc");
        assert_eq!(this.to_string().parse(), Ok(this));
        for text in ["", "1", "1 2 3", "1 2 3 4 5", "1 2 3 x", "1  2 3", "4294967296 2 3 4", "-1 2 3 4"] {
            assert_eq!(text.parse::<Process>(), Err(()), "{text}");
        }
    }

    #[test]
    fn the_name_of_a_program_may_look_like_the_rest_of_the_line() {
        let rest = (1..=22).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(started(&format!("7 (a) b (c 1 2) {rest}")), Some(20));
    }
}
