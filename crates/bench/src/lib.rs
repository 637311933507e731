//! Room bench.
