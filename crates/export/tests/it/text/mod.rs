//! The text formats, read back by readers that share no code with them.

mod csv;
mod docs;
mod json;
mod legacy;
mod things;
