//! Named skips, and the things whose absence is a reason for one: real captures and other people's programs.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Says that `test` cannot run here and why: on stderr, and as a line of the file named by `$NETGRAIN_SKIPS` if set.
pub fn skip(test: &str, reason: &str) {
    let line = format!("SKIP {test}: {reason}\n");
    eprint!("{line}");
    let Ok(path) = std::env::var("NETGRAIN_SKIPS") else { return };
    let file = std::fs::OpenOptions::new().append(true).create(true).open(&path);
    // One write of one line: appends of several test programs do not mix.
    if let Err(error) = file.and_then(|mut f| f.write_all(line.as_bytes())) {
        eprintln!("{path}: the skip could not be recorded: {error}");
    }
}

/// The folder of real captures: `$NETGRAIN_TRACES`, or `shared/traces` beside the workspace. Without one the test skips.
pub fn traces(test: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("NETGRAIN_TRACES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces"), PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    skip(test, &format!("no captures in {}; set NETGRAIN_TRACES", folder.display()));
    None
}

/// A command for an outside program, if it is installed; else the test skips.
pub fn tool(test: &str, program: &str) -> Option<Command> {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()));
    if !found {
        skip(test, &format!("{program} is not installed"));
        return None;
    }
    let mut command = Command::new(program);
    command.stdin(Stdio::null());
    Some(command)
}
