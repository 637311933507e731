//! Output that several verbs write: captures and tables into files, pipes and standard output.

pub mod background_writer;
pub mod capture_format;
pub mod target;
