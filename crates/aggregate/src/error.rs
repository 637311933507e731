//! The errors of plans and aggregations, with advice.

use std::fmt;

/// The reason why a plan is invalid or an aggregation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReportError {
    /// No field has this name.
    UnknownField(String),
    /// No measure has this name.
    UnknownMeasure(String),
    /// A field occurs twice.
    Twice(String),
    /// A prefix length exceeds the length of an address.
    Prefix(String),
    /// `host` and `port` refer to both endpoints, `src`, `dst`, `sport` and `dport` to one; fields of the two kinds
    /// cannot be combined.
    MixedEnds,
    /// There are more groups than the limit.
    TooManyGroups {
        /// The limit.
        limit: usize,
    },
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownField(word) => {
                write!(f, "no field {word:?} to group by; ")?;
                // The suggestion is searched by the name before the slash: in `sourc/24` only the name is misspelt.
                match base::nearest(word.split('/').next().unwrap_or(word), super::Field::names()) {
                    Some(near) => write!(f, "did you mean {near}?"),
                    None => write!(f, "write {}", super::Field::WORDS),
                }
            }
            Self::UnknownMeasure(word) => {
                write!(f, "no measure {word:?}; ")?;
                if let Some(near) = base::nearest(word, super::Measure::ALL.iter().map(|m| m.name())) {
                    return write!(f, "did you mean {near}?");
                }
                f.write_str("write ")?;
                super::Measure::ALL.iter().enumerate().try_for_each(|(i, m)| {
                    f.write_str(if i == 0 { "" } else { ", " })?;
                    f.write_str(m.name())
                })
            }
            Self::Twice(word) => write!(f, "`{word}` occurs twice; remove one of them"),
            Self::Prefix(word) => {
                write!(f, "`{word}`: an IPv4 address has 32 bits and an IPv6 address 128; write src/24 or src/24/48")
            }
            Self::MixedEnds => f.write_str(
                "host and port refer to both endpoints, src, dst, sport and dport to one: group by fields of one kind \
                 only",
            ),
            Self::TooManyGroups { limit } => write!(
                f,
                "more than {limit} groups: use a shorter interval, a filter, or coarser groups (src/24 instead of src)"
            ),
        }
    }
}

impl std::error::Error for ReportError {}
