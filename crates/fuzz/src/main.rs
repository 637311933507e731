//! Runs a target under libFuzzer; `cargo xtask fuzz TARGET` builds this program and starts it. `NETGRAIN_FUZZ_TARGET`
//! is the name of the target, and `NETGRAIN_FUZZ_SEEDS` the directory into which the seeds are written first.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
mod guided {
    use netgrain_fuzz::{TARGETS, Target};
    use std::sync::OnceLock;

    static TARGET: OnceLock<Target> = OnceLock::new();

    fn target_of_environment() -> Target {
        let name = std::env::var("NETGRAIN_FUZZ_TARGET").unwrap_or_default();
        let Some(target) = netgrain_fuzz::target(&name) else {
            let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
            eprintln!("there is no target {name:?}; the targets are {}", names.join(", "));
            std::process::exit(2);
        };
        if let Some(directory) = std::env::var_os("NETGRAIN_FUZZ_SEEDS").map(std::path::PathBuf::from) {
            for (number, seed) in (target.seeds)().iter().enumerate() {
                let path = directory.join(format!("seed-{number}"));
                std::fs::write(&path, seed).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            }
        }
        *target
    }

    libfuzzer_sys::fuzz_target!(
        init: {
            let _ = TARGET.set(target_of_environment());
            // The panic hook of libfuzzer-sys aborts at each panic, including panics that a parser catches and reports
            // as damage. Without the hook, a panic that the target does not catch still ends the process.
            let _ = std::panic::take_hook();
        },
        |bytes: &[u8]| if let Some(target) = TARGET.get() {
            (target.run)(bytes);
        }
    );
}

#[cfg(not(fuzzing))]
fn main() {
    eprintln!("this program was built without libFuzzer; run `cargo xtask fuzz TARGET`");
    std::process::exit(2);
}
