//! Floor 2: flow records and series for other programs.
#![forbid(unsafe_code)]

pub mod text;
