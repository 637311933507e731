//! All integration tests of this crate in one program, which is linked once; each module is a subject.

mod fuzz;
mod ng;
mod oracle;
