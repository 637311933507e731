//! Checks third-party crates with `cargo deny`: their licences, sources and duplicate versions against `deny.toml`, and
//! their versions against the database of security advisories, if the database can be fetched.

use std::path::Path;
use std::process::{Command, Stdio};

/// Runs the checks, if cargo-deny is installed.
pub fn check(root: &Path, cargo_deny: Option<&Path>) -> Result<(), String> {
    let Some(program) = cargo_deny else {
        println!("dependencies: skipped, because cargo-deny is not installed");
        return Ok(());
    };
    run(root, program, &["check", "bans", "licenses", "sources"])?;
    // The database is a git repository on the network. Without network, the check is skipped.
    let mut fetch = Command::new(program);
    fetch.args(["fetch", "db"]).current_dir(root).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if !fetch.status().is_ok_and(|status| status.success()) {
        println!("advisories: skipped, because the advisory database cannot be fetched");
        return Ok(());
    }
    run(root, program, &["check", "--disable-fetch", "advisories"])
}

fn run(root: &Path, program: &Path, args: &[&str]) -> Result<(), String> {
    match Command::new(program).args(args).current_dir(root).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("cargo-deny {} ended with {status}", args.join(" "))),
        Err(e) => Err(format!("{} could not be started: {e}", program.display())),
    }
}
