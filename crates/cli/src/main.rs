//! netgrain.
fn main() {}
