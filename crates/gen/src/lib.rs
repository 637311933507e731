//! Room gen.
