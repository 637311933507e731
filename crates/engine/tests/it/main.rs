//! All integration tests of this crate in one program, so that they are linked once. Each module has one subject.

mod claim;
mod common;
mod duplicates;
mod generator;
mod listeners;
mod live;
mod meter;
mod metrics;
mod offered_page;
mod offline;
mod program;
mod program_accounting;
mod retention;
mod switch_timestamps;
mod timestamps;
mod volume;
