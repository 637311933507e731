//! Helpers of tests: a network namespace ([`Sandbox`]), a sender and a reader of raw frames ([`RawSender`],
//! [`RawReader`]), temporary directories ([`TempDir`]), printed seeds ([`seed`]), and skips that are reported with the
//! name of the test.
//!
//! A test that cannot run on a machine reports a skip with its name, which is counted; it never passes silently:
//! ```no_run
//! # use netgrain_testkit as testkit;
//! let Some(sandbox) = testkit::Sandbox::new("frames_keep_their_order") else { return };
//! let (a, b) = sandbox.veth("a", "b");
//! testkit::RawSender::new(&a).send(&[vec![0; 60]]);
//! ```
//! The helpers panic with a message when an operation of the system fails; the panic makes the test fail.

pub mod captures;
pub mod copies;
mod counting;
mod exposition;
mod fragments;
mod frames;
mod memory;
mod process;
mod sandbox;
mod skip;
mod temp;
mod wire;

pub use counting::Counting;
pub use exposition::{exposition_problems, promtool_problems};
pub use fragments::fragments;
pub use frames::random_frame;
pub use memory::MemoryHints;
pub use process::{ChildTest, test_name};
pub use sandbox::{Port, Sandbox, VethOptions};
pub use skip::{extra_traces, go_tool, python_of, python_with, rust_tool, skip, tool, traces};
pub use temp::TempDir;
pub use wire::{RawReader, RawSender};

/// Returns the seed of a random test: the value of `$NETGRAIN_SEED` if it is set, otherwise a fixed seed. The function
/// prints the seed, so that a failure can be reproduced.
pub fn seed(test: &str) -> u64 {
    const USUAL: u64 = 0x6e65_7467_7261_696e;
    let seed = match std::env::var("NETGRAIN_SEED") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("NETGRAIN_SEED={text:?} is not a number below 2^64")),
        Err(_) => USUAL,
    };
    eprintln!("{test}: NETGRAIN_SEED={seed}");
    seed
}
