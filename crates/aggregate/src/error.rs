//! What is wrong with a plan, and what to write instead.

use std::fmt;

/// Why something cannot be added up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReportError {
    /// Not a word that names a field.
    UnknownField(String),
    /// Not a word that names a measure.
    UnknownMeasure(String),
    /// A field is named twice.
    Twice(String),
    /// More bits than an address has.
    Prefix(String),
    /// `host` and `port` are of either end, `src` and `dst` of one.
    MixedEnds,
    /// More groups than the memory is bounded to.
    TooManyGroups {
        /// How many there may be.
        limit: usize,
    },
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownField(word) => {
                write!(f, "no field {word:?} to group by; ")?;
                // `sourc/24` is a misspelt field with a valid mask.
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
            Self::Twice(word) => write!(f, "`{word}` is named twice; once is enough"),
            Self::Prefix(word) => {
                write!(f, "`{word}`: an IPv4 address has 32 bits and an IPv6 address 128; write src/24 or src/24/48")
            }
            Self::MixedEnds => f.write_str(
                "host and port are of either end, src, dst, sport and dport of one: group by the ones or the others",
            ),
            Self::TooManyGroups { limit } => write!(
                f,
                "more than {limit} groups: ask for a shorter interval, filter, or group by less (src/24 instead of src)"
            ),
        }
    }
}

impl std::error::Error for ReportError {}
