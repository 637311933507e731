//! Defines the errors for invalid programs. Each error has a position, a cause and, in most cases, advice.

use std::fmt::Write;
use std::ops::Range;

/// Maximum number of characters of a line in an excerpt.
const LINE: usize = 160;

/// An error in a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The byte range in the text.
    pub span: Range<usize>,
    /// The cause.
    pub what: String,
    /// Advice for a correction.
    pub help: Option<String>,
    /// True if the cause of the error is a name without a definition.
    pub is_unknown_name: bool,
}

impl Error {
    /// An error without advice.
    pub fn new(span: Range<usize>, what: impl Into<String>) -> Self {
        Self { span, what: what.into(), help: None, is_unknown_name: false }
    }

    /// The error for a name without a definition.
    pub(crate) fn unknown_name(span: Range<usize>, name: &str) -> Self {
        Self { is_unknown_name: true, ..Self::new(span, format!("`{name}` is not known")) }
    }

    /// Adds advice, unless the error has advice already.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help.get_or_insert_with(|| help.into());
        self
    }

    /// Line and column, both counted from 1.
    pub fn place(&self, text: &str) -> (usize, usize) {
        let before = text.get(..self.span.start.min(text.len())).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        (line, before.rsplit('\n').next().unwrap_or("").chars().count() + 1)
    }

    /// The error with an excerpt of its line.
    ///
    /// ```
    /// let text = "main = ip >-> forward eth1";
    /// let error = netgrain_lang::compile(text).unwrap_err();
    /// assert_eq!(error.show(text, "example"), "\
    /// error: `eth1` is not known
    ///  --> example:1:23
    ///   |
    /// 1 | main = ip >-> forward eth1
    ///   |                       ^^^^
    ///   = help: put the text in quotes: `forward \"eth1\"`
    /// ");
    /// ```
    pub fn show(&self, text: &str, name: &str) -> String {
        let (line, column) = self.place(text);
        let pad = " ".repeat(line.to_string().len());
        let excerpt = self.excerpt(text);
        let mut out = format!("error: {}\n{pad}--> {name}:{line}:{column}\n{excerpt}", self.what);
        if let Some(help) = &self.help {
            let _ = writeln!(out, "{pad} = help: {help}");
        }
        out
    }

    /// The line of the error, with the position marked.
    pub fn excerpt(&self, text: &str) -> String {
        let (line, column) = self.place(text);
        let source: Vec<char> = text.lines().nth(line - 1).unwrap_or("").chars().collect();
        // Of a long line, only the part around the position is printed.
        let from = (column - 1).saturating_sub(LINE / 2).min(source.len().saturating_sub(LINE));
        let to = (from + LINE).min(source.len());
        let left = column - 1 - from;
        let marked = text.get(self.span.clone()).unwrap_or("").lines().next().unwrap_or("").chars().count();
        let marked = marked.min(to.saturating_sub(from + left));
        let (before, after) = (if from > 0 { "…" } else { "" }, if to < source.len() { "…" } else { "" });
        let source: String = before.chars().chain(source[from..to].iter().copied()).chain(after.chars()).collect();
        let left = left + before.chars().count();
        let pad = " ".repeat(line.to_string().len());
        let tabs: String = source.chars().take(left).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        format!("{pad} |\n{line} | {source}\n{pad} | {tabs}{}\n", "^".repeat(marked.max(1)))
    }
}
