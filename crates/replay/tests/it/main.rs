//! Tests of the crate `replay` through its public functions: the sending loop with a simulated clock, the read-ahead,
//! and real interfaces.

mod live;
mod prepared;
mod sending;
mod support;
