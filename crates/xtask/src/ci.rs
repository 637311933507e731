//! What `.ci/run` and a developer run: the same steps, in the order in which they fail fastest.

use crate::{oracles, tidy};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Everything.
pub fn all(root: &Path) -> Result<(), String> {
    oracles::install();
    step("format", || cargo(root, &["fmt", "--all", "--check"], &[]))?;
    step("tidy", || tidy::run(root))?;
    step("lints", || cargo(root, &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[]))?;
    tests(root)?;
    step("documents", || {
        cargo(root, &["doc", "--workspace", "--no-deps", "--quiet"], &[("RUSTDOCFLAGS", "-D warnings")])
    })
}

/// Every test, then the models of the ring's protocol under loom, then what was skipped.
pub fn tests(root: &Path) -> Result<(), String> {
    let skips = target(root).join("skipped-tests.txt");
    let _ = std::fs::remove_file(&skips);
    let env = [("NETGRAIN_SKIPS", skips.to_string_lossy().into_owned())];
    let env: Vec<(&str, &str)> = env.iter().map(|(k, v)| (*k, v.as_str())).collect();
    let tests = step("tests", || cargo(root, &["test", "--workspace", "--no-fail-fast"], &env));
    let models = step("models (loom)", || loom(root));
    report_skips(&skips);
    tests.and(models)
}

/// The models are built with another configuration, so they have a folder of their own and leave the rest alone.
fn loom(root: &Path) -> Result<(), String> {
    let folder = target(root).join("loom");
    let env = [("RUSTFLAGS", "--cfg loom".to_owned()), ("CARGO_TARGET_DIR", folder.to_string_lossy().into_owned())];
    let env: Vec<(&str, &str)> = env.iter().map(|(k, v)| (*k, v.as_str())).collect();
    cargo(root, &["test", "-p", "netgrain-ring", "--release", "--test", "loom"], &env)
}

fn report_skips(file: &Path) {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let mut skips: Vec<&str> = text.lines().collect();
    skips.sort_unstable();
    skips.dedup();
    println!("\nskipped: {}", skips.len());
    for skip in skips {
        println!("  {skip}");
    }
}

fn step(name: &str, work: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    println!("== {name}");
    let started = Instant::now();
    let outcome = work();
    println!(
        "== {name}: {} after {:.0} s",
        if outcome.is_ok() { "passed" } else { "FAILED" },
        started.elapsed().as_secs_f64()
    );
    outcome
}

fn cargo(root: &Path, args: &[&str], env: &[(&str, &str)]) -> Result<(), String> {
    let program = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let status = Command::new(program).args(args).envs(env.iter().copied()).current_dir(root).status();
    match status {
        Ok(s) if s.success() => Ok(()),
        Ok(s) => Err(format!("cargo {} ended with {s}", args.join(" "))),
        Err(e) => Err(format!("cargo does not start: {e}")),
    }
}

fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}
