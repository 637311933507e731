//! Repository chores: `cargo xtask tidy | generate | ci`.
#![forbid(unsafe_code)]

mod generate;

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let verb = std::env::args().nth(1).unwrap_or_default();
    let outcome = match verb.as_str() {
        "generate" => generate::write(&root()),
        _ => Err("usage: cargo xtask generate   write the files that come from spec/".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace's folder.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}
