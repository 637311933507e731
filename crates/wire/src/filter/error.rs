//! What is wrong with a filter, where, and what to write instead.

use super::{MAX_NESTING, MAX_TESTS};
use std::fmt;

/// Why a text is not a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError {
    /// Where the trouble begins: characters from the left, the first is 1.
    pub column: usize,
    /// What stands there; empty at the end of the filter.
    pub found: String,
    /// What is wrong with it.
    pub cause: FilterCause,
}

/// What is wrong with the text at [`FilterError::column`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterCause {
    /// Not a word of the filter language.
    UnknownWord {
        /// The word that is almost the same, if there is one.
        near: Option<&'static str>,
    },
    /// Something else must stand here.
    Expected {
        /// What.
        what: &'static str,
    },
    /// A value without words that say what it is.
    Bare {
        /// What was probably meant.
        write: String,
    },
    /// Not a value of the kind that the word before it takes.
    Value {
        /// The kind.
        what: &'static str,
        /// What to write instead.
        write: String,
    },
    /// Two words that cannot stand together.
    Conflict {
        /// The word that does not fit what was found.
        word: &'static str,
        /// What to write instead.
        write: String,
    },
    /// A network address with bits set beyond its prefix.
    HostBits {
        /// The network that contains it.
        write: String,
    },
    /// tcpdump's `tcp[13] & 2`, which this language does not have.
    ByteExpression,
    /// More tests than [`MAX_TESTS`].
    TooManyTests,
    /// Deeper than [`MAX_NESTING`].
    TooDeep,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.found.as_str() {
            "" => write!(f, "end of the filter at column {}: ", self.column)?,
            found => write!(f, "`{found}` at column {}: ", self.column)?,
        }
        match &self.cause {
            FilterCause::UnknownWord { near: Some(near) } => write!(f, "did you mean `{near}`?"),
            FilterCause::UnknownWord { near: None } => f.write_str(
                "not a filter word; write host, net, port, portrange, proto, vlan, less, greater, len, ether, or a protocol",
            ),
            FilterCause::Expected { what } => write!(f, "expected {what}"),
            FilterCause::Bare { write } => write!(f, "nothing before it says what it is; write `{write}`"),
            FilterCause::Value { what, write } => write!(f, "not {what}; write {write}"),
            FilterCause::Conflict { word, write } => write!(f, "does not go with `{word}`; write `{write}`"),
            FilterCause::HostBits { write } => write!(f, "has bits set beyond its prefix; write `{write}`"),
            FilterCause::ByteExpression => {
                f.write_str("bytes of a header cannot be tested; write what they mean (host, port, proto, len)")
            }
            FilterCause::TooManyTests => write!(f, "more than {MAX_TESTS} tests; join hosts into a `net`, ports into a `portrange`"),
            FilterCause::TooDeep => write!(f, "more than {MAX_NESTING} parentheses and `not` inside one another; remove some"),
        }
    }
}

impl std::error::Error for FilterError {}
