//! Runs a target of `crates/fuzz` under libFuzzer. The stable compiler is sufficient: the code generation flag `-C
//! passes` enables LLVM's coverage pass.

use std::path::Path;
use std::process::Command;

/// The coverage flags of cargo-fuzz: counters for edges, a table of their addresses, and the operands of comparisons,
/// which libFuzzer uses as values.
const COVERAGE: &[&str] = &[
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// Builds the fuzz targets with coverage and runs the target `args[0]`. The other arguments are flags of libFuzzer, or
/// input files, which are run once. The corpus and the failed inputs are kept in `fuzz/` in the target directory.
pub fn run(root: &Path, args: &[String]) -> Result<(), String> {
    let (name, flags) = args
        .split_first()
        .ok_or("the name of a target is missing; crates/fuzz/src/targets/mod.rs lists the targets")?;
    let directory = crate::ci::target(root).join("fuzz");
    let (corpus, failed) = (directory.join("corpus").join(name), directory.join("failed").join(name));
    for made in [&corpus, &failed] {
        std::fs::create_dir_all(made).map_err(|e| format!("{}: {e}", made.display()))?;
    }
    // With `--target`, cargo applies the flags only to the program. Build scripts and macros with these flags could not
    // be linked.
    let host = host()?;
    let mut cargo = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    cargo
        .args(["run", "--package", "netgrain-fuzz", "--profile", "fuzz", "--target", &host, "--target-dir"])
        .arg(&directory);
    cargo.arg("--").args(["-timeout=20", "-rss_limit_mb=2048", "-print_final_stats=1"]);
    cargo.arg(format!("-artifact_prefix={}/", failed.display())).args(flags);
    if flags.iter().all(|flag| flag.starts_with('-')) {
        cargo.arg(&corpus);
    }
    cargo.env("RUSTFLAGS", COVERAGE.join(" ")).env("NETGRAIN_FUZZ_TARGET", name).env("NETGRAIN_FUZZ_SEEDS", &corpus);
    match cargo.current_dir(root).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            Err(format!("the run of {name} ended with {status}; the failed inputs are in {}", failed.display()))
        }
        Err(e) => Err(format!("cargo could not be started: {e}")),
    }
}

/// The target triple of the compiler's host.
fn host() -> Result<String, String> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let out = Command::new(&rustc).arg("-vV").output().map_err(|e| format!("{rustc} could not be started: {e}"))?;
    let text = String::from_utf8_lossy(&out.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or(format!("the output of {rustc} -vV has no host line"))
}
