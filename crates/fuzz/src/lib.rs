//! Fuzz targets: a function for each reader of foreign bytes. A target panics if the reader breaks a promise.
//!
//! The tests of this crate run each target on its seeds and on a fixed number of mutations of them, with a fixed seed
//! of the random numbers; `NETGRAIN_FUZZ_ITERS` multiplies the number and `NETGRAIN_SEED` changes the seed.
//! `cargo xtask fuzz TARGET` runs a target under libFuzzer, which chooses inputs by the code that they reach. Seeds
//! are files and texts that netgrain itself writes.
//!
//! Most targets check more than the absence of panics: what was read is written and read again, or a second evaluation
//! agrees with the first. Files with checksums are repaired after the mutation, because a random change seldom passes
//! a checksum; an input whose first byte is odd is left as it is.
#![forbid(unsafe_code)]

mod mutate;
mod targets;

pub use mutate::Mutator;
pub use targets::TARGETS;

/// A reader of foreign bytes, with the promises that it keeps.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name on the command line.
    pub name: &'static str,
    /// Reads the bytes and checks the promises.
    pub run: fn(&[u8]),
    /// Inputs that are valid, from which mutations begin.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Number of mutations in a normal test run.
    pub rounds: u64,
    /// The most bytes of memory for one input of a normal test run.
    pub memory: usize,
}

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

#[cfg(test)]
mod tests;
