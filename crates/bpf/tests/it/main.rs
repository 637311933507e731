//! All integration tests of this crate in one program, which is linked once; each module is a subject.

mod budget;
mod emitted;
#[path = "both/frames.rs"]
mod frames;
#[path = "both/kernel.rs"]
mod kernel;
mod loading;
mod proof;
#[path = "../../../jit/tests/it/random/mod.rs"]
#[allow(dead_code, reason = "the kernel itself says what it says of a packet")]
mod random;
#[path = "both/vm.rs"]
mod vm;
