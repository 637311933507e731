//! Defines the errors for invalid filters. Each error contains the position in the filter, the cause, and a correction.

use crate::tree::Span;
use std::fmt;

/// The reason why a text is not a valid filter.
///
/// The format `{}` prints one line; `{:#}` also prints the filter, and marks the word at which the error was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError {
    /// The filter.
    pub text: String,
    /// The word at which the error was found; empty at the end of the text.
    pub word: String,
    /// Offset of the first byte of [`Self::word`] in the filter.
    pub at: usize,
    /// The cause and the correction.
    pub why: String,
}

/// Maximum number of characters of the filter that are printed in the line above the `^` characters, which mark the
/// word with the error.
const SHOWN: usize = 96;

impl FilterError {
    /// Creates an error at a position of this filter text.
    pub(crate) fn of(text: &str, span: Span, why: impl Into<String>) -> Self {
        let word = text.get(span.at..span.at + span.len).unwrap_or_default().to_owned();
        Self { text: text.to_owned(), word, at: span.at, why: why.into() }
    }

    /// The column of [`Self::word`] in the filter, counted in characters from 1.
    pub fn column(&self) -> usize {
        1 + self.text.get(..self.at).map_or(self.at, |before| before.chars().count())
    }
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.word.as_str() {
            "" => write!(f, "at the end of the filter: {}", self.why)?,
            word => write!(f, "`{word}` at column {}: {}", self.column(), self.why)?,
        }
        if !f.alternate() {
            return Ok(());
        }
        // If the filter is long, only the part around the word with the error is printed.
        let column = self.column() - 1;
        let skip = column.saturating_sub(SHOWN / 2);
        let shown: String =
            self.text.chars().skip(skip).take(SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
        let marks = "^".repeat(self.word.chars().count().clamp(1, SHOWN));
        write!(f, "\n  {shown}\n  {:width$}{marks}", "", width = column - skip)
    }
}

impl std::error::Error for FilterError {}
