//! Room ring.
