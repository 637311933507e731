//! Child processes, of this program and of other programs: starts them, reads their output, and ends them in any case.

use crate::output::Stop;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A child process that is killed when the value is dropped.
pub struct Helper {
    child: Child,
    output: BufReader<ChildStdout>,
    name: String,
}

impl Helper {
    /// Starts this program again with these arguments.
    pub fn start_self<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Result<Self, Stop> {
        let program = std::env::current_exe()
            .map_err(|e| Stop::error(format_args!("the path of this program cannot be determined: {e}")))?;
        let mut command = Command::new(program);
        command.args(arguments);
        Self::start(command, "netgrain-bench")
    }

    /// Starts a command whose standard output [`Helper::finish`] will return.
    pub fn start(mut command: Command, name: &str) -> Result<Self, Stop> {
        let failed = |e: std::io::Error| Stop::error(format_args!("{name} cannot be started: {e}"));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let output = child.stdout.take().ok_or_else(|| failed(std::io::ErrorKind::BrokenPipe.into()))?;
        Ok(Self { child, output: BufReader::new(output), name: name.to_owned() })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the next line of the process.
    pub fn line(&mut self) -> Result<String, Stop> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(n) if n > 0 => Ok(line),
            Ok(_) => Err(Stop::error(format_args!("{} ended before it was ready", self.name))),
            Err(e) => Err(Stop::error(format_args!("{}: {e}", self.name))),
        }
    }

    /// True if the process still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for the end of the process, at most for `timeout`, and returns its output, which must fit a pipe (64
    /// KiB).
    pub fn finish(self, timeout: Duration) -> Result<String, Stop> {
        self.finish_with(timeout, &[0])
    }

    /// As [`Helper::finish`], for a program that also ends with other exit codes on success.
    pub fn finish_with(mut self, timeout: Duration, success_codes: &[i32]) -> Result<String, Stop> {
        let until = Instant::now() + timeout;
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(2)),
                Ok(None) => return Err(Stop::error(format_args!("{} did not end within {timeout:?}", self.name))),
                Err(e) => return Err(Stop::error(format_args!("{}: {e}", self.name))),
            }
        };
        let mut text = String::new();
        self.output.read_to_string(&mut text).map_err(|e| Stop::error(format_args!("{}: {e}", self.name)))?;
        if status.code().is_some_and(|code| success_codes.contains(&code)) {
            Ok(text)
        } else {
            Err(Stop::error(format_args!("{} failed: {status}", self.name)))
        }
    }

    /// Sends SIGINT.
    pub fn interrupt(&self) -> Result<(), Stop> {
        let status = Command::new("sh").args(["-c", &format!("kill -INT {}", self.id())]).status();
        match status {
            Ok(s) if s.success() => Ok(()),
            Ok(s) => Err(Stop::error(format_args!("{} cannot be interrupted: {s}", self.name))),
            Err(e) => Err(Stop::error(format_args!("{} cannot be interrupted: {e}", self.name))),
        }
    }

    /// Processor seconds that the process has used so far (all threads, user and system), to a hundredth; 0 after its
    /// end.
    pub fn cpu_seconds(&self) -> f64 {
        cpu_seconds(self.id())
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // Killing the process and waiting for it fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn cpu_seconds(pid: u32) -> f64 {
    // Fields 14 and 15 (utime and stime) are in ticks of 1/100 s. The fields are counted from the end of the program's
    // name, because the name may contain blanks (proc(5)).
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().skip(11).take(2);
    fields.filter_map(|f| f.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// Returns the child processes of a process for which that process has not yet waited.
fn children(pid: u32) -> Vec<u32> {
    let list = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().filter_map(Result::ok);
    let texts = list.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    texts.flat_map(|text| text.split_whitespace().filter_map(|n| n.parse().ok()).collect::<Vec<_>>()).collect()
}

/// Processor seconds of a process and its children so far.
pub fn cpu_seconds_with_children(pid: u32) -> f64 {
    cpu_seconds(pid) + children(pid).into_iter().map(cpu_seconds).sum::<f64>()
}

/// Ends the children of a process that leaves them running at its end.
pub fn end_children(pid: u32) {
    for child in children(pid) {
        // The child may have ended meanwhile, so an error is ignored.
        let _ = Command::new("sh").args(["-c", &format!("kill -TERM {child}")]).stderr(Stdio::null()).status();
    }
}

/// The program `netgrain`: the file in the directory of this program, or the installed program.
pub fn netgrain() -> Result<PathBuf, Stop> {
    let beside = std::env::current_exe().ok().map(|program| program.with_file_name("netgrain"));
    beside.filter(|path| path.is_file()).or_else(|| find("netgrain")).ok_or_else(|| {
        Stop::error(
            "the program netgrain is neither in the directory of this program nor installed; build it with \
         cargo build --release",
        )
    })
}

/// The path of an installed program.
pub fn find(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|directory| directory.join(program))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_fails_hangs_or_is_missing_is_an_error() {
        let text_of = |stop: Stop| match stop {
            Stop::Failed(text) => text,
            Stop::Closed => panic!("no output was closed"),
        };
        let failing = Helper::start(Command::new("false"), "false").unwrap();
        assert!(text_of(failing.finish(Duration::from_secs(60)).unwrap_err()).contains("failed"));
        let mut hanging = Command::new("sleep");
        hanging.arg("1000");
        let mut hanging = Helper::start(hanging, "sleep").unwrap();
        assert!(hanging.is_running());
        assert!(text_of(hanging.finish(Duration::from_millis(5)).unwrap_err()).contains("did not end"));
        let mut no_output = Helper::start(Command::new("true"), "true").unwrap();
        assert!(text_of(no_output.line().unwrap_err()).contains("before it was ready"));
        let absent = Helper::start(Command::new("/nowhere/at/all"), "absent").err().unwrap();
        assert!(text_of(absent).contains("cannot be started"));
        assert!(find("surely-not-installed").is_none() && find("sh").is_some());
    }
}
