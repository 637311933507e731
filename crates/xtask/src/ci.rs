//! The steps of `cargo xtask ci`, which `.ci/run` and developers run. Short steps that often find errors run before the
//! tests, which take longest.

use crate::{book, dependencies, oracles, tidy};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// The file in the target directory with the names of the skipped tests and the reasons.
const SKIPS: &str = "skipped-tests.txt";

/// Runs all steps.
pub fn all(root: &Path) -> Result<(), String> {
    oracles::install();
    step("format", || cargo(root, &["fmt", "--all", "--check"], &[]))?;
    step("tidy", || tidy::run(root))?;
    step("dependencies", || dependencies::check(root, oracles::rust_program("cargo-deny").as_deref()))?;
    step("lints", || cargo(root, &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[]))?;
    tests(root)?;
    step("book", || book::build(root, oracles::rust_program("mdbook").as_deref(), &target(root).join("book")))?;
    step("documents", || {
        cargo(root, &["doc", "--workspace", "--no-deps", "--quiet"], &[("RUSTDOCFLAGS", "-D warnings")])
    })
}

/// Runs all tests, then the models of the ring under loom, then prints the skipped tests.
pub fn tests(root: &Path) -> Result<(), String> {
    let skips = remove_old_file(&target(root).join(SKIPS))?;
    let env = [("NETGRAIN_SKIPS", &*skips), ("RUST_TEST_THREADS", &*test_threads())];
    let tests = step("tests", || cargo(root, &["test", "--workspace", "--no-fail-fast"], &env));
    let models = step("models (loom)", || loom(root));
    report_skips(&skips);
    tests.and(models)
}

/// Runs the tests that the last run of [`tests`] skipped completely or in part because it had no captures. The captures
/// are in `$NETGRAIN_TRACES`.
pub fn captures(root: &Path) -> Result<(), String> {
    let directory =
        std::env::var("NETGRAIN_TRACES").map_err(|_| "set NETGRAIN_TRACES to the directory with the captures")?;
    let list = target(root).join(SKIPS);
    let text = std::fs::read_to_string(&list)
        .map_err(|e| format!("{}: {e}; run `cargo xtask test` without captures first", list.display()))?;
    let names = without_captures(&text);
    if names.is_empty() {
        return Err(format!("{}: no test was skipped because of missing captures", list.display()));
    }
    println!("running {} tests with the captures in {directory}", names.len());
    let skips = remove_old_file(&target(root).join("skipped-captures.txt"))?;
    let args = [&["test", "--workspace", "--no-fail-fast", "--tests", "--"], names.as_slice()].concat();
    let env = [("NETGRAIN_SKIPS", &*skips), ("RUST_TEST_THREADS", &*test_threads())];
    let tests = step("tests with captures", || cargo(root, &args, &env));
    report_skips(&skips);
    let skipped = std::fs::read_to_string(&skips).unwrap_or_default();
    match without_captures(&skipped)[..] {
        [] => tests,
        ref skipped => Err(format!("these tests still found no captures: {}", skipped.join(" "))),
    }
}

/// Number of test threads: twice the number of processors, because live tests mostly wait.
fn test_threads() -> String {
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    std::env::var("RUST_TEST_THREADS").unwrap_or_else(|_| (2 * processors).to_string())
}

/// Names of the tests that found no captures, from the lines `SKIP name: no captures in …` and `PART name: without
/// captures`.
fn without_captures(list: &str) -> Vec<&str> {
    let mut names: Vec<&str> = list
        .lines()
        .filter_map(|line| line.strip_prefix("SKIP ").or(line.strip_prefix("PART "))?.split_once(": "))
        .filter(|(_, reason)| reason.starts_with("no captures in") || *reason == "without captures")
        .map(|(name, _)| name)
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Removes the file if it exists, creates its directory, and returns the path as text.
fn remove_old_file(path: &Path) -> Result<String, String> {
    let with_path = |e: std::io::Error| format!("{}: {e}", path.display());
    path.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(with_path)?;
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(with_path(e)),
        _ => Ok(path.to_string_lossy().into_owned()),
    }
}

/// Runs the loom models. They need other compiler flags, so they have their own target directory: otherwise each run
/// would rebuild the main target.
fn loom(root: &Path) -> Result<(), String> {
    let directory = target(root).join("loom");
    let env = [("RUSTFLAGS", "--cfg loom".to_owned()), ("CARGO_TARGET_DIR", directory.to_string_lossy().into_owned())];
    let env: Vec<(&str, &str)> = env.iter().map(|(k, v)| (*k, v.as_str())).collect();
    cargo(root, &["test", "-p", "netgrain-ring", "--release", "--test", "loom"], &env)
}

fn report_skips(file: &str) {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let mut skips: Vec<&str> = text.lines().filter(|line| line.starts_with("SKIP ")).collect();
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
        Err(e) => Err(format!("cargo could not be started: {e}")),
    }
}

/// The target directory.
pub fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}
