//! The reason why a value is not valid for its key.

use crate::raw_value::RawValue;
use base::units::ParseUnitError;
use group::WEIGHT_MAX;
use std::fmt;
use store::meter_key::NotAKey;
use upkeep::retention::ParseFreeError;

/// The reason why a value is not valid for its key.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueError {
    /// The value is not of the type of the key.
    Type {
        /// The value.
        given: RawValue,
        /// The type and examples.
        expected: &'static str,
    },
    /// The value is not a boolean.
    Boolean(RawValue),
    /// The text, or a part of the text, does not have the syntax of the values of the key.
    Form {
        /// The invalid text, or the invalid part of the text.
        given: String,
        /// The accepted syntax.
        form: &'static str,
    },
    /// The weight of a member is out of range; the text has the form `weight=N`.
    Weight(String),
    /// The value is not an amount with a unit, such as a size or a time span.
    Unit(ParseUnitError),
    /// The value is not a secret key.
    MeterKey(NotAKey),
    /// The value is not an amount of free space.
    Free(ParseFreeError),
    /// The value is not valid for a key that also accepts `none`.
    Optional(Box<ValueError>),
}

impl ValueError {
    /// Returns the error of a text that is not of the expected type.
    pub(crate) fn text(given: &str, expected: &'static str) -> Self {
        Self::Type { given: RawValue::Text(given.to_owned()), expected }
    }

    /// Returns the error of a text that does not have the syntax `form`.
    pub(crate) fn form(given: &str, form: &'static str) -> Self {
        Self::Form { given: given.to_owned(), form }
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Type { given, expected } => write!(f, "{given} is not {expected}"),
            Self::Boolean(given) => write!(f, "{given} is neither true nor false"),
            Self::Form { given, form } => write!(f, "{given:?}: write {form}"),
            Self::Weight(given) => write!(f, "{given}: a weight is from 1 to {WEIGHT_MAX}"),
            Self::Unit(e) => e.fmt(f),
            Self::MeterKey(e) => e.fmt(f),
            Self::Free(e) => e.fmt(f),
            Self::Optional(e) => write!(f, "{e}, or none"),
        }
    }
}

impl std::error::Error for ValueError {}

impl From<ParseUnitError> for ValueError {
    fn from(e: ParseUnitError) -> Self {
        Self::Unit(e)
    }
}

impl From<NotAKey> for ValueError {
    fn from(e: NotAKey) -> Self {
        Self::MeterKey(e)
    }
}

impl From<ParseFreeError> for ValueError {
    fn from(e: ParseFreeError) -> Self {
        Self::Free(e)
    }
}
