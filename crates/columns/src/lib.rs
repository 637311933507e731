//! Floor 2: flow records and series in the store.
#![forbid(unsafe_code)]
