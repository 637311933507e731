//! All integration tests of this crate in one program, which is linked once; each module is a subject.

mod collectors;
mod common;
mod document;
mod exporter;
mod ipfix;
mod oracles;
mod text;
