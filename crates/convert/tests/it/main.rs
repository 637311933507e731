//! All integration tests of this crate, in one program, because linking several programs takes longer.

mod anonymise;
mod convert;
mod oracle;
mod support;
