//! The lexer of filters.

use crate::error::FilterError;
use crate::flow_words::dotted_flags;
use crate::tree::Span;

/// A word or a sign.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Token<'a> {
    pub text: &'a str,
    pub at: usize,
    /// True if a backslash precedes the token: the token is then a name, not a word of the filter language.
    pub escaped: bool,
}

impl Token<'_> {
    /// Creates an error at this token. [`crate::parse::parse`] adds the text of the filter to the error.
    pub fn error(&self, why: impl Into<String>) -> FilterError {
        FilterError { text: String::new(), word: self.text.to_owned(), at: self.at, why: why.into() }
    }

    pub fn span(&self) -> Span {
        Span { at: self.at, len: self.text.len() }
    }

    pub fn is_word(&self) -> bool {
        self.text.starts_with(|c: char| c.is_ascii_alphanumeric())
    }
}

const SIGNS: [&str; 26] = [
    "&&", "||", ">=", "<=", "!=", "==", "<<", ">>", "(", ")", "[", "]", "!", "=", "<", ">", "+", "-", "*", "/", "%",
    "&", "|", "^", ":", "$",
];

/// Returns all tokens in order; the last token is empty and marks the end of the filter.
pub fn tokens(text: &str) -> Result<Vec<Token<'_>>, FilterError> {
    let mut out = Vec::new();
    let mut at = 0;
    let mut inside = 0_usize;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        if c.is_whitespace() {
            at += c.len_utf8();
            continue;
        }
        let escaped = c == '\\';
        let start = at + usize::from(escaped);
        let len = word_len(&text[start..], inside > 0);
        if len > 0 {
            out.push(Token { text: &text[start..start + len], at: start, escaped });
            at = start + len;
            continue;
        }
        let Some(sign) = SIGNS.iter().find(|s| rest.starts_with(**s)) else {
            let word = Token { text: &rest[..c.len_utf8()], at, escaped: false };
            return Err(word.error(match c {
                ',' => "a filter has no commas; join tests by `or`".to_owned(),
                '"' | '\'' => "write names without quotes in a filter".to_owned(),
                '.' => {
                    let end = rest.find(|c: char| c != '.' && !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
                    match dotted_flags(&rest[..end]) {
                        Some(letters) => format!("write the letters alone: `flags {letters}`"),
                        None => "no word of a filter begins with a dot".to_owned(),
                    }
                }
                _ => "filters do not use this character".to_owned(),
            }));
        };
        match *sign {
            "[" => inside += 1,
            "]" => inside = inside.saturating_sub(1),
            _ => (),
        }
        out.push(Token { text: sign, at, escaped: false });
        at += sign.len();
    }
    out.push(Token { text: "", at: text.len(), escaped: false });
    Ok(out)
}

/// The length in bytes of the word that begins here. Addresses contain colons and dashes, and names contain dashes.
/// Inside an index (`indexing`), the colon of `tcp[0:2]` separates index and width, and the dash of `a-1` is a minus
/// sign.
fn word_len(text: &str, indexing: bool) -> usize {
    let end = |is: &dyn Fn(char) -> bool| text.find(|c| !is(c)).unwrap_or(text.len());
    if !text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == ':') {
        return 0;
    }
    if !indexing {
        // A word with at least two colons is a MAC address or an IPv6 address.
        let address = end(&|c| c.is_ascii_hexdigit() || c == ':' || c == '.');
        if text[..address].matches(':').count() >= 2 {
            return address;
        }
        let dashed = end(&|c| c.is_ascii_hexdigit() || c == '-');
        if text[..dashed].matches('-').count() == 5 {
            return dashed;
        }
    }
    if text.starts_with(':') {
        return 0;
    }
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        let len = end(&|c| c.is_ascii_alphanumeric() || c == '.');
        // A dash after a number belongs to a range, as in `80-443` and `80-https`; otherwise the number ends before the
        // dash.
        let range = text[len..].strip_prefix('-').filter(|_| !indexing).map_or(0, name_len);
        return len + if range > 0 && text[..len].bytes().all(|b| b.is_ascii_digit()) { range + 1 } else { 0 };
    }
    name_len(text)
}

/// The length in bytes of the name or number that begins here.
fn name_len(text: &str) -> usize {
    let len = text.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))).unwrap_or(text.len());
    if text.starts_with(|c: char| c.is_ascii_alphanumeric()) { text[..len].trim_end_matches('-').len() } else { 0 }
}
