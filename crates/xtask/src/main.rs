//! Repository tasks: `cargo xtask ci | test | captures | tidy | dependencies | fuzz | generate | oracles`.
#![forbid(unsafe_code)]

mod book;
mod ci;
mod circles;
mod dependencies;
mod fuzz;
mod generate;
mod oracles;
mod tidy;
mod words;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask VERB
  ci         install the oracles, then check format, tidy, dependencies and lints, run all tests, build the documents
  test       run all tests and the loom models; print the skipped tests
  captures   run the tests that `test` skipped for lack of captures; the captures are in $NETGRAIN_TRACES
  tidy       check the crate table, generated files, file sizes, circles of source files, unfinished work, links and
             words of the glossary
  dependencies   check licences, sources, duplicate versions and advisories of third-party crates with cargo-deny
  fuzz TARGET [FLAGS OF LIBFUZZER]   run a target of crates/fuzz, guided by coverage, until it fails or is interrupted
  generate   write the files that are generated from spec/
  oracles    install the programs that tests compare with (Debian, as root)";

fn main() -> ExitCode {
    let root = root();
    let outcome = match std::env::args().nth(1).as_deref() {
        Some("ci") => ci::all(&root),
        Some("test") => ci::tests(&root),
        Some("captures") => ci::captures(&root),
        Some("tidy") => tidy::run(&root),
        Some("dependencies") => {
            oracles::install_rust("cargo-deny").and_then(|program| dependencies::check(&root, Some(&program)))
        }
        Some("fuzz") => fuzz::run(&root, &std::env::args().skip(2).collect::<Vec<_>>()),
        Some("generate") => generate::write(&root),
        Some("oracles") => {
            oracles::install();
            Ok(())
        }
        _ => Err(USAGE.into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The directory of the workspace.
fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).map(PathBuf::from).unwrap_or(here)
}
