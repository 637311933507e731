//! Room wire.
