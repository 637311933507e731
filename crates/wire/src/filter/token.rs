//! Words and signs with their places.

use super::error::{FilterCause, FilterError};

/// What a piece of the text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A keyword or a value.
    Word,
    And,
    Or,
    Not,
    Open,
    Close,
    /// `<`, `<=`, `>`, `>=`, `=`, `==` or `!=`.
    Compare,
    End,
}

/// A piece of the text. The last one is empty and of kind [`Kind::End`].
#[derive(Clone, Copy, Debug)]
pub struct Token<'a> {
    pub kind: Kind,
    pub text: &'a str,
    /// Characters from the left, the first is 1.
    pub column: usize,
}

impl Token<'_> {
    pub fn error(&self, cause: FilterCause) -> FilterError {
        FilterError { column: self.column, found: self.text.to_owned(), cause }
    }
}

const SIGNS: [(&str, Kind); 14] = [
    ("&&", Kind::And),
    ("||", Kind::Or),
    ("<=", Kind::Compare),
    (">=", Kind::Compare),
    ("==", Kind::Compare),
    ("!=", Kind::Compare),
    ("<", Kind::Compare),
    (">", Kind::Compare),
    ("=", Kind::Compare),
    ("!", Kind::Not),
    ("(", Kind::Open),
    (")", Kind::Close),
    ("[", Kind::End),
    ("]", Kind::End),
];

pub fn split(text: &str) -> Result<Vec<Token<'_>>, FilterError> {
    let mut tokens = Vec::new();
    let (mut rest, mut column) = (text, 1);
    while let Some(c) = rest.chars().next() {
        let (len, kind) = if c.is_whitespace() {
            (c.len_utf8(), None)
        } else if let Some((sign, kind)) = SIGNS.iter().find(|(sign, _)| rest.starts_with(sign)) {
            (sign.len(), Some(*kind))
        } else {
            match rest.bytes().position(|b| !is_word(b)).unwrap_or(rest.len()) {
                0 => (c.len_utf8(), Some(Kind::End)),
                len => (len, Some(keyword(&rest[..len]))),
            }
        };
        let (piece, after) = rest.split_at(len);
        if let Some(kind) = kind {
            let token = Token { kind, text: piece, column };
            if kind == Kind::End {
                return Err(token.error(unwanted(piece)));
            }
            tokens.push(token);
        }
        column += piece.chars().count();
        rest = after;
    }
    tokens.push(Token { kind: Kind::End, text: "", column });
    Ok(tokens)
}

const fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'.' | b':' | b'/' | b'-' | b'_' | b'\\')
}

fn keyword(word: &str) -> Kind {
    match word {
        "and" => Kind::And,
        "or" => Kind::Or,
        "not" => Kind::Not,
        _ => Kind::Word,
    }
}

fn unwanted(piece: &str) -> FilterCause {
    match piece {
        "[" | "]" => FilterCause::ByteExpression,
        "&" => FilterCause::Expected { what: "`and` (or `&&`)" },
        "|" => FilterCause::Expected { what: "`or` (or `||`)" },
        _ => FilterCause::Expected { what: "words, numbers, addresses and parentheses only" },
    }
}
