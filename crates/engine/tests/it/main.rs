//! All integration tests of this crate in one program, which is linked once; each module is a subject.

mod claim;
mod common;
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
mod volume;
