//! Room testkit.
