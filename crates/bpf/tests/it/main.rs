//! All integration tests of this crate are in one executable, because one executable links faster than several.

mod budget;
mod emitted;
#[path = "both/frames.rs"]
mod frames;
#[path = "both/kernel.rs"]
mod kernel;
mod loading;
mod proof;
#[path = "../../../jit/tests/it/random/mod.rs"]
#[allow(dead_code, reason = "these tests do not use the facts of a capture source")]
mod random;
#[path = "both/vm.rs"]
mod vm;
