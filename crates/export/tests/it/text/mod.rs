//! The text formats, read by parsers that share no code with the writers.

mod csv;
mod docs;
mod json;
mod legacy;
mod random;
