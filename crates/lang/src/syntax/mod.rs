//! The syntax of the language: translates text to a tree of expressions.

mod error;
mod fmt;
mod layout;
mod lex;
mod parse;

pub use error::Error;
pub use fmt::format;
pub use lex::headline;

use ir::Prefix;
use std::ops::Range;

/// An expression and its position in the text.
#[derive(Clone, Debug)]
pub struct Expr {
    /// The expression itself.
    pub node: Node,
    /// The byte range in the text.
    pub span: Range<usize>,
}

/// Two expressions are equal if their nodes are equal; positions are ignored.
impl PartialEq for Expr {
    fn eq(&self, other: &Self) -> bool {
        self.node == other.node
    }
}

/// The forms of an expression.
#[derive(Clone, Debug)]
pub enum Node {
    /// The name of a function, a binding or a parameter.
    Name(String),
    /// A number.
    Int(i64),
    /// A number with a fraction.
    Fraction(f64),
    /// A text.
    Text(String),
    /// An address or a network.
    Address(Prefix),
    /// `[a, b]`
    List(Vec<Expr>),
    /// `(a, b)`
    Pair(Box<Expr>, Box<Expr>),
    /// `f a b`
    Apply(Box<Expr>, Vec<Expr>),
    /// `a >-> b >-> c`
    Chain(Vec<Expr>),
    /// `a .&&. b`; the range is the position of the operator.
    Operator(String, Range<usize>, Box<Expr>, Box<Expr>),
    /// `(+ a)`
    Section(String, Box<Expr>),
    /// `\x y -> body`
    Lambda(Vec<String>, Box<Expr>),
    /// `do` and its statements.
    Do(Vec<Expr>),
    /// `if a then b else c`
    If(Box<Expr>, Box<Expr>, Box<Expr>),
    /// `case a of` and its arms; the pattern `None` is `_`.
    Case(Box<Expr>, Vec<(Option<Expr>, Expr)>),
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Name(a), Self::Name(b)) | (Self::Text(a), Self::Text(b)) => a == b,
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::Fraction(a), Self::Fraction(b)) => a == b,
            (Self::Address(a), Self::Address(b)) => a == b,
            (Self::List(a), Self::List(b)) | (Self::Do(a), Self::Do(b)) | (Self::Chain(a), Self::Chain(b)) => a == b,
            (Self::Pair(a, b), Self::Pair(c, d)) => a == c && b == d,
            (Self::Apply(a, b), Self::Apply(c, d)) => a == c && b == d,
            (Self::Operator(o, _, a, b), Self::Operator(p, _, c, d)) => o == p && a == c && b == d,
            (Self::Section(o, a), Self::Section(p, b)) => o == p && a == b,
            (Self::Lambda(a, b), Self::Lambda(c, d)) => a == c && b == d,
            (Self::If(a, b, c), Self::If(d, e, f)) => a == d && b == e && c == f,
            (Self::Case(a, b), Self::Case(c, d)) => a == c && b == d,
            _ => false,
        }
    }
}

/// A named expression, optionally with parameters.
#[derive(Clone, Debug)]
pub struct Binding {
    /// Its name.
    pub name: String,
    /// Its parameters.
    pub params: Vec<String>,
    /// The position of the name.
    pub span: Range<usize>,
    /// The expression on the right of `=`.
    pub body: Expr,
}

/// The first imported module that is neither a Haskell nor a PFQ module. Imports of Haskell and PFQ modules are
/// ignored, because the function table contains their functions.
pub fn imported(text: &str) -> Option<&str> {
    const KNOWN: [&str; 5] = ["Network", "Language", "Data", "Control", "Prelude"];
    let modules = text.lines().filter_map(|line| {
        let mut words = line.strip_prefix("import ")?.split_whitespace().filter(|word| *word != "qualified");
        words.next()
    });
    modules.into_iter().find(|module| module.split('.').next().is_some_and(|first| !KNOWN.contains(&first)))
}

/// The entry point: `main`, or `enif_main` (Enif) if the program has no `main`.
pub fn entry(bindings: &[Binding]) -> Option<&Binding> {
    let named = |name| bindings.iter().find(|b| b.name == name);
    named("main").or_else(|| named("enif_main"))
}

/// Parses a program.
///
/// # Errors
/// The first syntax error, its position, and a proposal for a correction.
pub fn parse(text: &str) -> Result<Vec<Binding>, Error> {
    parse::parse(&layout::lay_out(lex::tokens(text)?))
}

/// True if the text is incomplete: a bracket or comment is open, or the last token requires another. An interactive
/// prompt uses this to read further lines.
pub fn is_incomplete(text: &str) -> bool {
    use lex::Kind;
    let Ok(tokens) = lex::tokens(text) else {
        // An unclosed comment is the only lexical error that more text can correct.
        return text.rfind("{-").is_some_and(|open| !text[open..].contains("-}"));
    };
    let depth = tokens.iter().fold(0_i32, |depth, token| match token.kind {
        Kind::Mark('(' | '[' | '{') => depth + 1,
        Kind::Mark(')' | ']' | '}') => depth - 1,
        _ => depth,
    });
    let requires_more = |token: &lex::Token| match &token.kind {
        Kind::Operator(_) | Kind::Mark(',') => true,
        Kind::Name(name) => ["do", "of", "if", "then", "else", "case"].contains(&name.as_str()),
        _ => false,
    };
    // The last token only marks the end of the text, so the token before it decides whether the text is incomplete.
    depth > 0 || tokens.iter().rev().nth(1).is_some_and(requires_more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_text_is_recognised() {
        for open in [
            "main = do",
            "main =",
            "ip >->",
            "when (is_tcp",
            "case ip_ttl of",
            "[1,",
            "if is_tcp then",
            "a {- b",
            "f $",
        ] {
            assert!(is_incomplete(open), "{open}");
        }
        for whole in
            ["", "main = ip", "ip >-> tcp -- do", "log_msg \"do", "a {- b -}", "x)", "main = do { tcp }", "10.0.0.0/8"]
        {
            assert!(!is_incomplete(whole), "{whole}");
        }
    }
}
