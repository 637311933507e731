//! All integration tests of this crate in one executable, which links faster than several.

mod agree;
mod examples;
mod memory;
mod proof;
mod random;
mod resume;
