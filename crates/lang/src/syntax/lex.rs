//! The lexer of the language.
//!
//! A word is a name. A number is decimal, `0x…` or negative; a fraction is `0.001` or `1e-3`; a text is in quotes; an
//! address or a network has no quotes (`10.0.0.0/8`, `2001:db8::1`). An operator is the longest run of operator
//! characters, or a name in backquotes. Comments extend from `--` to the end of the line or from `{-` to `-}`. A byte
//! order mark at the start is ignored.

use super::Error;
use ir::Prefix;
use std::ops::Range;

/// The kind of a token.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    Name(String),
    Int(i64),
    Fraction(f64),
    Text(String),
    Address(Prefix),
    /// Operator characters, or the name of a function in backquotes.
    Operator(String),
    /// One of `( ) [ ] , ; { }`. The layout rule inserts `;`, `{` and `}` that are not in the text.
    Mark(char),
    End,
}

/// A token, its position, and a flag for the first token of a line.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    pub kind: Kind,
    pub span: Range<usize>,
    /// The column in characters, from 0.
    pub column: usize,
    pub begins_line: bool,
}

const SIGNS: &str = ".<>=/|&^$+-*:~!\\%#";

impl Token {
    pub fn is(&self, mark: char) -> bool {
        self.kind == Kind::Mark(mark)
    }

    pub fn is_name(&self, name: &str) -> bool {
        matches!(&self.kind, Kind::Name(n) if n == name)
    }

    /// True if an expression can end with this token.
    fn is_value(&self) -> bool {
        matches!(self.kind, Kind::Name(_) | Kind::Int(_) | Kind::Mark(')'))
    }

    pub fn is_operator(&self, operator: &str) -> bool {
        matches!(&self.kind, Kind::Operator(o) if o == operator)
    }
}

/// All tokens; the last token is [`Kind::End`].
pub fn tokens(text: &str) -> Result<Vec<Token>, Error> {
    let mut out: Vec<Token> = Vec::new();
    let begin = text.len() - unmarked(text).len();
    let (mut at, mut line_start, mut line_seen) = (begin, begin, false);
    // The column of byte `counted`, from which the next column is computed. Counting each column from the start of a
    // long line would take quadratic time.
    let (mut column, mut counted) = (0, begin);
    while let Some(c) = text[at..].chars().next() {
        if c == '\n' {
            (at, line_seen) = (at + 1, false);
            line_start = at;
            continue;
        }
        if c.is_whitespace() {
            at += c.len_utf8();
            continue;
        }
        let rest = &text[at..];
        if let Some(len) = comment(rest, at)? {
            at += len;
            if let Some(newline) = text[..at].rfind('\n').filter(|n| *n >= line_start) {
                (line_start, line_seen) = (newline + 1, false);
            }
            continue;
        }
        let (kind, len) = match out.last() {
            // Directly after a value, a minus is a subtraction: `5-1`.
            Some(before) if c == '-' && before.span.end == at && before.is_value() => {
                (Kind::Operator("-".to_owned()), 1)
            }
            _ => token(rest, at)?,
        };
        if counted < line_start {
            (column, counted) = (0, line_start);
        }
        column += text[counted..at].chars().map(|c| if c == '\t' { 8 } else { 1 }).sum::<usize>();
        counted = at;
        out.push(Token { kind, span: at..at + len, column, begins_line: !line_seen });
        line_seen = true;
        at += len;
    }
    out.push(Token { kind: Kind::End, span: at..at, column: 0, begins_line: true });
    Ok(out)
}

/// The text without a byte order mark.
fn unmarked(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Returns the first line of a program that is not a comment; lists of programs print this line.
pub fn headline(text: &str) -> &str {
    let mut rest = unmarked(text).trim_start();
    while let Ok(Some(len)) = comment(rest, 0) {
        rest = rest[len..].trim_start();
    }
    rest.lines().next().unwrap_or_default().trim_end()
}

/// The length in bytes of the comment with which `rest` begins.
pub fn comment(rest: &str, at: usize) -> Result<Option<usize>, Error> {
    if rest.starts_with("{-") {
        let (mut depth, mut i) = (0_usize, 0);
        while i < rest.len() {
            match &rest.as_bytes()[i..(i + 2).min(rest.len())] {
                b"{-" => (depth, i) = (depth + 1, i + 2),
                b"-}" if depth == 1 => return Ok(Some(i + 2)),
                b"-}" => (depth, i) = (depth - 1, i + 2),
                _ => i += 1,
            }
        }
        return Err(Error::new(at..at + 2, "this comment does not end").help("close it with `-}`"));
    }
    let dashes = rest.len() - rest.trim_start_matches('-').len();
    // In Haskell `-->` is an operator; here two dashes always begin a comment.
    Ok((dashes >= 2).then(|| rest.find('\n').unwrap_or(rest.len())))
}

fn token(rest: &str, at: usize) -> Result<(Kind, usize), Error> {
    let first = rest.chars().next().unwrap_or(' ');
    if let Some((prefix, len)) = address(rest) {
        let text = &rest[..len];
        return prefix.map(|prefix| (Kind::Address(prefix), len)).ok_or_else(|| {
            let error = Error::new(at..at + len, format!("`{text}` is neither an address nor a network"));
            error.help(if text.contains(':') {
                "write eight groups of up to four hexadecimal digits, `::` in place of groups of zeros, and after `/` \
                 a prefix length of up to 128: `2001:db8::/32`"
            } else {
                "write four numbers up to 255, and after `/` a prefix length of up to 32: `10.0.0.0/8`"
            })
        });
    }
    if first.is_ascii_digit() || (first == '-' && rest[1..].starts_with(|c: char| c.is_ascii_digit())) {
        return number(rest, at);
    }
    if first.is_alphabetic() || first == '_' {
        let len = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '\'')).unwrap_or(rest.len());
        // A qualified name in an import, such as `Network.PFQ.Lang`, is one token.
        let mut end = len;
        while first.is_uppercase()
            && let Some(more) = rest[end..].strip_prefix('.').filter(|m| m.starts_with(char::is_uppercase))
        {
            end += 1 + more.find(|c: char| !c.is_alphanumeric()).unwrap_or(more.len());
        }
        return Ok((Kind::Name(rest[..end].to_owned()), end));
    }
    if first == '"' {
        return string(rest, at);
    }
    if "()[],;{}".contains(first) {
        return Ok((Kind::Mark(first), 1));
    }
    let len = rest.find(|c| !SIGNS.contains(c)).unwrap_or(rest.len());
    if len > 0 {
        return Ok((Kind::Operator(rest[..len].to_owned()), len));
    }
    if first == '`' {
        return backquoted(rest, at);
    }
    let error = Error::new(at..at + first.len_utf8(), format!("unexpected character `{first}`"));
    Err(match first {
        '\'' | '“' | '”' | '‘' | '’' | '«' | '»' => {
            error.help("put a text between straight double quotes: `\"eth1\"`")
        }
        '→' => error.help("actions are joined by `>->`"),
        _ => error,
    })
}

/// An address or network without quotes: at least three dots or two colons among digits. The prefix is `None` if the
/// text has this form but is invalid.
fn address(rest: &str) -> Option<(Option<Prefix>, usize)> {
    let len = rest.find(|c: char| !(c.is_ascii_hexdigit() || c == ':' || c == '.')).unwrap_or(rest.len());
    let body = rest[..len].trim_end_matches('.');
    if body.matches('.').count() < 3 && body.matches(':').count() < 2 {
        return None;
    }
    let bits = rest[body.len()..].strip_prefix('/').map_or(0, |after| {
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        if digits > 0 { digits + 1 } else { 0 }
    });
    let len = body.len() + bits;
    // `::` alone precedes a type.
    if bits == 0 && !body.contains(|c: char| c.is_ascii_hexdigit()) {
        return None;
    }
    // `f::Act` is a name, `::` and a type.
    if rest[len..].starts_with(|c: char| c.is_alphanumeric() || c == '_') {
        return None;
    }
    let prefix = Prefix::parse(&rest[..len]);
    (prefix.is_some() || rest.starts_with(|c: char| c.is_ascii_digit())).then_some((prefix, len))
}

/// A function in backquotes between its two arguments.
fn backquoted(rest: &str, at: usize) -> Result<(Kind, usize), Error> {
    let name = rest[1..].split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '\'')).next().unwrap_or("");
    let len = name.len() + 2;
    if name.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && rest[..len - 1].len() < rest.len()
        && rest.as_bytes()[len - 1] == b'`'
    {
        return Ok((Kind::Operator(rest[..len].to_owned()), len));
    }
    Err(Error::new(at..at + 1, "the name of a function must stand between two backquotes")
        .help("write the function between its two values: ``ip_tos `any_bit` 3``"))
}

/// The length of the fraction with which `digits` begins: `0.001`, `1e-3`, `2.5e-4`.
fn fraction(digits: &str) -> Option<usize> {
    let run = |from: usize| digits[from..].find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len() - from);
    let whole = run(0);
    let mut len = whole;
    if digits[len..].starts_with('.') && run(len + 1) > 0 {
        len += 1 + run(len + 1);
    }
    if digits[len..].starts_with(['e', 'E']) {
        let sign = usize::from(digits[len + 1..].starts_with(['+', '-']));
        let exponent = run(len + 1 + sign);
        len += if exponent > 0 { 1 + sign + exponent } else { 0 };
    }
    (whole > 0 && len > whole).then_some(len)
}

fn number(rest: &str, at: usize) -> Result<(Kind, usize), Error> {
    let wrong = |len: usize| {
        Error::new(at..at + len, format!("`{}` is not a number", &rest[..len]))
            .help("write a number as `80` or `0x50`, an address as `10.0.0.1`, a network as `10.0.0.0/8`")
    };
    if let Some(len) = fraction(rest) {
        let goes_on = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.');
        let all = rest.find(|c| !goes_on(c)).unwrap_or(rest.len()).max(len);
        return match rest[..len].parse() {
            Ok(value) if all == len => Ok((Kind::Fraction(value), len)),
            _ => Err(wrong(all)),
        };
    }
    let sign = usize::from(rest.starts_with('-'));
    let len = sign + rest[sign..].find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len() - sign);
    let digits = rest[sign..len].replace('_', "");
    let value = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => i64::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    match value {
        Ok(n) => Ok((Kind::Int(if sign == 1 { -n } else { n }), len)),
        Err(_) => Err(wrong(len)),
    }
}

fn string(rest: &str, at: usize) -> Result<(Kind, usize), Error> {
    let mut out = String::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((i, c)) = chars.next() {
        match c {
            '"' => return Ok((Kind::Text(out), i + 1)),
            '\n' => break,
            '\\' => match chars.next() {
                Some((_, 'n')) => out.push('\n'),
                Some((_, 't')) => out.push('\t'),
                Some((_, other)) => out.push(other),
                None => break,
            },
            c => out.push(c),
        }
    }
    Err(Error::new(at..at + 1, "this text does not end").help("close it with `\"` on the same line"))
}

#[cfg(test)]
mod tests {
    use super::headline;

    #[test]
    fn a_headline_is_the_first_line_with_code() {
        for (text, line) in [
            ("main = ip", "main = ip"),
            ("-- what it is for\n\n  {- more {- of -} it -}  m = 1  \nmain = ip", "m = 1"),
            ("{- to the end -}", ""),
            ("{- without end\nmain = ip", "{- without end"),
            ("", ""),
        ] {
            assert_eq!(headline(text), line);
        }
    }
}
