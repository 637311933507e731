//! All integration tests of this crate in one program, which is linked once; each module is a subject.

mod claim;
mod common;
mod generator;
mod heartbeat;
mod listeners;
mod live;
mod meter;
mod metrics;
mod offline;
mod program;
mod program_books;
mod retention;
mod volume;
