//! All integration tests of this crate are in one executable, because one executable links faster than several.

mod agree;
mod examples;
mod memory;
mod proof;
mod random;
mod resume;
