//! Reports skipped tests by name; finds real captures and third-party programs, without which a test is skipped.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Reports that `test` cannot run and why: on stderr, and as a line of the file named by `$NETGRAIN_SKIPS` if set.
pub fn skip(test: &str, reason: &str) {
    let line = format!("SKIP {test}: {reason}\n");
    eprint!("{line}");
    record(&line);
}

/// Appends a line to the file named by `$NETGRAIN_SKIPS`, if that variable is set.
fn record(line: &str) {
    let Some(path) = std::env::var_os("NETGRAIN_SKIPS") else { return };
    if let Err(error) = append(Path::new(&path), line) {
        eprintln!("{}: the skip could not be recorded: {error}", path.display());
    }
}

/// Appends the line with a single write, so that lines of several test programs do not mix within the file.
fn append(path: &Path, line: &str) -> std::io::Result<()> {
    std::fs::OpenOptions::new().append(true).create(true).open(path)?.write_all(line.as_bytes())
}

/// The directory of real captures: `$NETGRAIN_TRACES`, or `shared/traces` beside the workspace. Without that directory
/// the test is skipped, so a test calls this function before it asserts anything.
pub fn traces(test: &str) -> Option<PathBuf> {
    let directory = traces_directory();
    if directory.is_dir() {
        return Some(directory);
    }
    skip(test, &format!("no captures in {}; set NETGRAIN_TRACES", directory.display()));
    None
}

/// The directory of [`traces`], for a test that generates its own packets and also reads real captures if they are
/// present. The test must pass without the directory, and does not count as skipped then. The file named by
/// `$NETGRAIN_SKIPS` gets a line that begins with `PART`, by which `cargo xtask captures` finds the tests that read
/// captures.
pub fn extra_traces(test: &str) -> Option<PathBuf> {
    let directory = traces_directory();
    if directory.is_dir() {
        return Some(directory);
    }
    record(&format!("PART {test}: without captures\n"));
    None
}

fn traces_directory() -> PathBuf {
    std::env::var_os("NETGRAIN_TRACES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces"), PathBuf::from)
}

/// Returns a command that runs a third-party program. If the program is not installed, the test is reported as skipped.
pub fn tool(test: &str, program: &str) -> Option<Command> {
    let Some(path) = program_path(program) else {
        skip(test, &format!("{program} is not installed"));
        return None;
    };
    let mut command = Command::new(path);
    command.stdin(Stdio::null());
    Some(command)
}

/// Returns a command that runs a program written in Go. `cargo xtask ci` builds the program into netgrain's cache
/// directory; an installed program is used otherwise. If there is neither, the test is reported as skipped.
pub fn go_tool(test: &str, program: &str) -> Option<Command> {
    let built = cache().map(|directory| directory.join("oracles-go/bin").join(program)).filter(|path| path.is_file());
    let Some(path) = built else { return tool(test, program) };
    let mut command = Command::new(path);
    command.stdin(Stdio::null());
    Some(command)
}

/// Returns a command that runs a program written in Rust, which `cargo xtask oracles` builds into netgrain's cache
/// directory; an installed program is used otherwise. If there is neither, the test is reported as skipped.
pub fn rust_tool(test: &str, program: &str) -> Option<Command> {
    let built = cache().map(|directory| directory.join("oracles-rust/bin").join(program)).filter(|path| path.is_file());
    let Some(path) = built else { return tool(test, program) };
    let mut command = Command::new(path);
    command.stdin(Stdio::null());
    Some(command)
}

/// The directory of the Python packages that tests compare with: `oracles-python` in netgrain's cache directory, which
/// is below `$XDG_CACHE_HOME`, or `.cache` in the home directory. `cargo xtask ci` creates it.
fn python_oracles() -> Option<PathBuf> {
    Some(cache()?.join("oracles-python"))
}

/// Netgrain's cache directory.
fn cache() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|directory| !directory.is_empty()).map(PathBuf::from);
    let cache = cache.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache")))?;
    Some(cache.join("netgrain"))
}

/// Returns a command that runs a Python interpreter with this package, from the directory of the Python packages or
/// from this machine. If there is none, the test is reported as skipped.
pub fn python_with(test: &str, package: &str) -> Option<Command> {
    let own = python_oracles().map(|directory| directory.join("bin/python"));
    let pythons = own.into_iter().chain([PathBuf::from("python3")]);
    for python in pythons {
        let import = ["-c", &format!("import {package}")];
        let mut probe = Command::new(&python);
        let probe = probe.args(import).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if probe.status().is_ok_and(|status| status.success()) {
            let mut command = Command::new(python);
            command.stdin(Stdio::null());
            return Some(command);
        }
    }
    skip(test, &format!("the Python package {package} is not installed; cargo xtask ci installs it"));
    None
}

/// Returns a command that runs the Python interpreter of the environment with this name in the cache directory. If
/// there is none, the test is reported as skipped.
pub fn python_of(test: &str, environment: &str) -> Option<Command> {
    let python = python_oracles().map(|directory| directory.with_file_name(environment).join("bin/python"));
    if let Some(python) = python.filter(|python| python.is_file()) {
        let mut command = Command::new(python);
        command.stdin(Stdio::null());
        return Some(command);
    }
    skip(test, &format!("the Python environment {environment} does not exist; cargo xtask ci creates it"));
    None
}

/// The path of a program: in `$PATH`, or in the directories of the administrator's programs, which `$PATH` does not
/// have for all users. The function `exists` of `xtask` searches the same directories.
fn program_path(program: &str) -> Option<PathBuf> {
    program_in(program, &std::env::var_os("PATH").unwrap_or_default())
}

fn program_in(program: &str, path: &OsStr) -> Option<PathBuf> {
    let directories = std::env::split_paths(path).chain(["/usr/sbin".into(), "/sbin".into()]);
    directories.map(|directory| directory.join(program)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TempDir;

    #[test]
    fn skips_are_recorded_line_by_line() {
        let directory = TempDir::new("skips_are_recorded_line_by_line");
        let path = directory.join("skips");
        append(&path, "SKIP one: why\n").expect("the first line creates the file");
        append(&path, "SKIP two: why not\n").expect("the second line is appended");
        assert_eq!(std::fs::read_to_string(&path).expect("the file"), "SKIP one: why\nSKIP two: why not\n");
        assert!(append(directory.path(), "SKIP three: no file\n").is_err());
    }

    #[test]
    fn a_missing_python_package_skips_the_test() {
        assert!(python_with("a_missing_python_package_skips_the_test", "netgrain_no_such_package").is_none());
    }

    #[test]
    fn only_existing_programs_are_found() {
        assert!(program_path("sh").is_some() && program_path("no such program").is_none());
    }

    #[test]
    fn programs_in_sbin_are_found_if_they_are_not_in_path() {
        let test = "programs_in_sbin_are_found_if_they_are_not_in_path";
        let mut programs = std::fs::read_dir("/usr/sbin").into_iter().flatten().flatten();
        let Some(program) = programs.find(|entry| entry.path().is_file()) else {
            return skip(test, "no program in /usr/sbin");
        };
        let found = program_in(program.file_name().to_str().expect("a name"), OsStr::new("/nowhere"));
        assert_eq!(found.and_then(|path| path.file_name().map(OsStr::to_owned)), Some(program.file_name()));
    }
}
