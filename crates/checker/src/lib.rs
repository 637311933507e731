//! Room checker.
