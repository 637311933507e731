//! Text output of flow records, series rows and roll-ups: NDJSON and CSV ([`Writer`]), and the lines of M3OMon
//! ([`legacy`]).
//!
//! The fields of each type are one table of [`Field`]s: name, unit, description, and accessor. The CSV header, the JSON
//! keys and the tables of `docs/reference/flow-records.md` and `docs/reference/time-series.md` are made from it.
//! Callers that need only some of the fields, or another format, [choose] them by the same names.
//!
//! * NDJSON (RFC 8259, one object per line): times are text (RFC 3339, nanoseconds); 64-bit identifiers are decimal
//!   numbers in quotes, because readers that only support floating point would round them; unknown values are omitted.
//! * CSV (RFC 4180): a header, lines that end in CR LF, quotes where they are needed; unknown values are empty, and
//!   lists are separated by blanks.

mod field;
pub mod legacy;
mod record;
mod row;
mod value;
mod writer;

pub use field::{Field, FieldTable, UnknownField, choose, field};
pub use value::Value;
pub use writer::{Format, SCHEMA_VERSION, Writer};
