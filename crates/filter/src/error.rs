//! What is wrong with a filter, where, and what to write instead.

use crate::tree::Span;
use std::fmt;

/// Why a text is no filter.
///
/// `{}` writes one line; `{:#}` adds the filter and a mark below the word in question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError {
    /// The filter.
    pub text: String,
    /// The word in question; empty at the end of the text.
    pub word: String,
    /// Its first byte, from 0.
    pub at: usize,
    /// What is wrong and what to write instead.
    pub why: String,
}

/// Most characters of a filter that are shown above the mark.
const SHOWN: usize = 96;

impl FilterError {
    /// About a piece of this text.
    pub(crate) fn of(text: &str, span: Span, why: impl Into<String>) -> Self {
        let word = text.get(span.at..span.at + span.len).unwrap_or_default().to_owned();
        Self { text: text.to_owned(), word, at: span.at, why: why.into() }
    }

    /// Characters before the word, plus 1.
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
        // Of a long filter, the part around the word.
        let column = self.column() - 1;
        let skip = column.saturating_sub(SHOWN / 2);
        let shown: String =
            self.text.chars().skip(skip).take(SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
        let marks = "^".repeat(self.word.chars().count().clamp(1, SHOWN));
        write!(f, "\n  {shown}\n  {:width$}{marks}", "", width = column - skip)
    }
}

impl std::error::Error for FilterError {}
