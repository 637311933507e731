//! Values as they are written in the configuration file or in a flag.

use std::fmt;
use toml::Spanned;
use toml::de::DeValue;

/// A value as it is written in the configuration file or in a flag, before it is converted to the type of its key.
#[derive(Clone, Debug, PartialEq)]
pub enum RawValue {
    /// A TOML string, or the value of a flag.
    Text(String),
    /// An integer.
    Whole(i64),
    /// A boolean.
    Yes(bool),
    /// An array.
    List(Vec<RawValue>),
    /// A value of a TOML type that no key accepts; the text is the name of the type in TOML.
    Else(&'static str),
}

impl RawValue {
    /// Reads the value of a flag: a boolean or an integer if TOML would read the text as such, otherwise a string.
    /// Commas separate the elements of a list.
    pub fn from_flag(text: &str) -> Self {
        match text {
            "true" => Self::Yes(true),
            "false" => Self::Yes(false),
            _ => text.parse().map_or_else(|_| Self::Text(text.to_owned()), Self::Whole),
        }
    }
}

impl fmt::Display for RawValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Whole(n) => n.fmt(f),
            Self::Yes(yes) => yes.fmt(f),
            Self::List(_) => f.write_str("a list"),
            Self::Else(what) => write!(f, "a value of type {what}"),
        }
    }
}

/// The value of a key in a TOML document.
pub fn raw_value(value: &Spanned<DeValue<'_>>) -> RawValue {
    match value.get_ref() {
        DeValue::String(text) => RawValue::Text(text.to_string()),
        DeValue::Boolean(yes) => RawValue::Yes(*yes),
        DeValue::Integer(n) => {
            i64::from_str_radix(n.as_str(), n.radix()).map_or(RawValue::Else("integer"), RawValue::Whole)
        }
        DeValue::Float(number) => RawValue::Text(number.as_str().to_owned()),
        DeValue::Array(values) => RawValue::List(values.iter().map(raw_value).collect()),
        other => RawValue::Else(other.type_str()),
    }
}
