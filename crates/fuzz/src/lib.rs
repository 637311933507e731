//! Contains the fuzz targets. A target is a function that runs one parser of untrusted input, and panics if the parser
//! violates an invariant.
//!
//! The tests of this crate run each target on its seed inputs and on a fixed number of mutations of these inputs. The
//! mutations are generated from a fixed seed of random numbers. `NETGRAIN_FUZZ_ITERS` multiplies the number of
//! mutations, and `NETGRAIN_SEED` replaces the seed of random numbers. `cargo xtask fuzz TARGET` runs a target under
//! libFuzzer, which prefers inputs that reach new code. The seed inputs of a target are valid: they are files and texts
//! that netgrain itself writes.
//!
//! Most targets check more than the absence of panics: the parsed value is written and parsed again, or a second
//! implementation must give the same result. The checksums of mutated files are repaired, because otherwise nearly all
//! mutations would fail at the checksum. If the first byte of the input is odd, the checksums are not repaired.
#![forbid(unsafe_code)]

mod mutate;
mod targets;

pub use mutate::Mutator;
pub use targets::TARGETS;

/// A parser of untrusted input, with the checks of its invariants.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of the target on the command line.
    pub name: &'static str,
    /// Parses the bytes and panics if an invariant does not hold.
    pub run: fn(&[u8]),
    /// Valid inputs, which are mutated.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Number of mutations in a normal test run.
    pub rounds: u64,
    /// Limit of the memory for one input in a normal test run, in bytes.
    pub memory: usize,
}

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

#[cfg(test)]
mod tests;
