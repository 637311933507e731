//! What tests share: a network of their own ([`Sandbox`]), frames put on it ([`RawSender`]) and read back
//! ([`RawReader`]), folders that vanish ([`TempDir`]), seeds that are printed ([`seed`]), and skips that have a name.
//!
//! A test that cannot run here says so by its name and is counted; it never passes silently:
//! ```no_run
//! # use netgrain_testkit as testkit;
//! let Some(sandbox) = testkit::Sandbox::new("frames_keep_their_order") else { return };
//! let (a, b) = sandbox.veth("a", "b");
//! testkit::RawSender::new(&a).send(&[vec![0; 60]]);
//! ```
//! Helpers panic with a sentence when the machine fails them: in a test, that is the right end.

pub mod captures;
mod counting;
mod exposition;
mod fragments;
mod frames;
mod process;
mod sandbox;
mod skip;
mod temp;
mod wire;

pub use counting::Counting;
pub use exposition::{exposition_problems, promtool_problems};
pub use fragments::fragments;
pub use frames::random_frame;
pub use process::{ChildTest, test_name};
pub use sandbox::{Port, Sandbox, VethOptions};
pub use skip::{extra_traces, go_tool, python_of, python_with, skip, tool, traces};
pub use temp::TempDir;
pub use wire::{RawReader, RawSender};

/// The seed of a random test: `$NETGRAIN_SEED` if set, else a fixed one. Printed, so that a failure can be repeated.
pub fn seed(test: &str) -> u64 {
    const USUAL: u64 = 0x6e65_7467_7261_696e;
    let seed = match std::env::var("NETGRAIN_SEED") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("NETGRAIN_SEED={text:?} is not a number below 2^64")),
        Err(_) => USUAL,
    };
    eprintln!("{test}: NETGRAIN_SEED={seed}");
    seed
}
