//! A recursive-descent parser with operator precedence: translates tokens to expressions.
//!
//! ```text
//! program   = { binding ";" }                    skips import lines and signatures (name :: type)
//! binding   = name { parameter } "=" expr
//! expr      = operators over applications, weakest first:  $   ~>   .< .<= .== ./= .> .>= (and >. … with the number first)
//!             .||.   .^^. <> + -   .&&. *   >-> >> >=> `name`
//! applied   = atom { atom }
//! atom      = name | number | fraction | text | address | "(" expr ")" | "(" operator expr ")" | "(" expr "," expr ")" | "[" expr, … "]"
//!           | "do" block | "if" expr "then" expr "else" expr | "case" expr "of" block | "\" parameter … "->" expr
//! ```

use super::lex::{Kind, Token};
use super::{Binding, Error, Expr, Node};
use crate::similar;
use std::ops::Range;

/// Maximum nesting depth of expressions.
const MAX_DEPTH: usize = 120;
/// Words of group configurations that may precede a tcpdump filter, and the equivalent program.
const GROUP_WORDS: [(&str, &str); 3] = [
    ("copy", "main = bpf \"…\""),
    ("steer", "main = bpf \"…\" >-> steer_flow"),
    ("drop", "main = when (bpf \"…\") drop"),
];

/// The advice for an expression that begins with an unknown name where a binding is expected. A name near to that of a
/// function is more probably misspelt than the name of a new binding.
fn without_binding(name: &str, is_first: bool) -> String {
    let functions: Vec<&str> = crate::table::names().collect();
    let question = similar::suggestion(name, &functions).filter(|_| is_first);
    let question = question.map_or_else(|| format!("write `{name} = …`"), |question| format!("{name}: {question}"));
    format!("{question}; the whole program is the binding `main = …`")
}

pub fn parse(tokens: &[Token]) -> Result<Vec<Binding>, Error> {
    let mut p = Parser { tokens, next: 0, depth: 0 };
    p.expect('{')?;
    let mut bindings = Vec::new();
    loop {
        while p.takes(';') {}
        if p.takes('}') || p.peek().kind == Kind::End {
            break;
        }
        if p.peek().is_name("import") || p.peek().is_name("module") || p.is_signature() {
            p.skip_item();
            continue;
        }
        bindings.push(p.binding()?);
        if !p.peek().is(';') && !p.peek().is('}') {
            return Err(p.unexpected("the end of the binding"));
        }
    }
    match p.peek().kind {
        Kind::End => Ok(bindings),
        _ => Err(p.unexpected("the end of the program")),
    }
}

struct Parser<'a> {
    tokens: &'a [Token],
    next: usize,
    depth: usize,
}

/// The precedence of an operator (a greater number binds more tightly), and true if it is right-associative.
fn strength(operator: &str) -> Option<(u8, bool)> {
    Some(match operator {
        "$" => (0, true),
        "~>" => (1, true),
        ".<" | ".<=" | ".==" | "./=" | ".>" | ".>=" | ">." | ">=." | "==." | "/=." | "<." | "<=." => (4, false),
        ".<." | ".<=." | ".==." | "./=." | ".>." | ".>=." => (4, false),
        ".||." => (5, false),
        ".^^." | "+" | "-" => (6, false),
        "<>" => (6, true),
        ".&&." | "*" => (7, false),
        ">->" | ">>" | ">=>" => (9, false),
        named if named.starts_with('`') => (9, false),
        _ => return None,
    })
}

/// The operators that consist of several signs, as suggestions for a misspelt operator.
const OPERATORS: [&str; 10] = [">->", ">=>", ".&&.", ".||.", ".^^.", ".==", "./=", ".<=", ".>=", "~>"];

/// Advice for an operator of other languages, or for a misspelt operator.
fn foreign(operator: &str) -> String {
    let instead = match operator {
        "<-" => return "`do` cannot bind a value to a name; give the function a parameter".to_owned(),
        "&&" | "&" => ".&&.",
        "||" | "|" => ".||.",
        "^" | "^^" => ".^^.",
        "<" | "<=" | ">" | ">=" | "==" => return format!("`{operator}` is written `.{operator}`"),
        "=" => return "two values are compared by `.==`".to_owned(),
        "!=" | "/=" => "./=",
        "!" | "~" => "not",
        "." | "->" | ">>=" | ">>>" | "|>" | "=>" | "-->" => return "actions are joined by `>->`".to_owned(),
        "//" | "#" | "/*" => return "a comment begins with `--`".to_owned(),
        _ => match base::nearest(operator, OPERATORS) {
            Some(near) => return format!("did you mean `{near}`?"),
            None => return format!("`{operator}` is not an operator of the language"),
        },
    };
    format!("write `{instead}`")
}

impl Parser<'_> {
    fn peek(&self) -> &Token {
        &self.tokens[self.next.min(self.tokens.len() - 1)]
    }

    fn after(&self, n: usize) -> &Token {
        &self.tokens[(self.next + n).min(self.tokens.len() - 1)]
    }

    fn take(&mut self) -> Token {
        let t = self.peek().clone();
        self.next += 1;
        t
    }

    fn takes(&mut self, mark: char) -> bool {
        let is = self.peek().is(mark);
        self.next += usize::from(is);
        is
    }

    fn takes_name(&mut self, name: &str) -> bool {
        let is = self.peek().is_name(name);
        self.next += usize::from(is);
        is
    }

    fn expect(&mut self, mark: char) -> Result<(), Error> {
        if self.takes(mark) { Ok(()) } else { Err(self.unexpected(&format!("`{mark}`"))) }
    }

    fn expect_name(&mut self, name: &str) -> Result<(), Error> {
        if self.takes_name(name) { Ok(()) } else { Err(self.unexpected(&format!("`{name}`"))) }
    }

    fn unexpected(&self, wanted: &str) -> Error {
        let t = self.peek();
        // A token that the layout rule inserted has an empty byte range in the text.
        let at_end = self.tokens[self.next.min(self.tokens.len())..].iter().all(|t| t.span.is_empty());
        let found = match &t.kind {
            Kind::Name(n) | Kind::Operator(n) => format!("`{}`", n.trim_matches('`')),
            Kind::Int(n) => format!("`{n}`"),
            Kind::Fraction(n) => format!("`{n}`"),
            Kind::Text(s) => format!("the text {s:?}"),
            Kind::Address(a) => format!("the address {a}"),
            Kind::Mark(_) if at_end => "the end of the program".to_owned(),
            Kind::Mark(_) if t.span.is_empty() => "the next line".to_owned(),
            Kind::Mark(m) => format!("`{m}`"),
            Kind::End => "the end of the program".to_owned(),
        };
        let error = Error::new(t.span.clone(), format!("expected {wanted}, found {found}"));
        match &t.kind {
            Kind::Operator(o) if strength(o).is_none() => error.help(foreign(o)),
            Kind::Name(n) if matches!(n.as_str(), "where" | "let" | "in") => {
                error.help("define a separate binding above or below `main`")
            }
            Kind::Mark('}' | ';') if t.span.is_empty() && !at_end => {
                error.help("indent the line to continue the previous line")
            }
            _ => error,
        }
    }

    fn is_signature(&self) -> bool {
        matches!(self.peek().kind, Kind::Name(_)) && self.after(1).is_operator("::")
    }

    fn skip_item(&mut self) {
        let mut depth = 0_usize;
        loop {
            match self.peek().kind {
                Kind::End => return,
                Kind::Mark(';' | '}') if depth == 0 => return,
                Kind::Mark('(' | '[' | '{') => depth += 1,
                Kind::Mark(')' | ']' | '}') => depth = depth.saturating_sub(1),
                _ => (),
            }
            self.next += 1;
        }
    }

    fn binding(&mut self) -> Result<Binding, Error> {
        let start = self.peek().span.clone();
        let Kind::Name(name) = self.peek().kind.clone() else {
            return Err(self.unexpected("a binding such as `main = ip >-> steer_flow`"));
        };
        self.next += 1;
        let params = self.params()?;
        if !self.peek().is_operator("=") {
            let is_step = params.is_empty() && crate::table::find(&name).is_some();
            let help = match &self.peek().kind {
                Kind::Mark(_) | Kind::End if is_step => {
                    "indent a continued line, and join actions by `>->`; the program is `main = …`".to_owned()
                }
                _ => match GROUP_WORDS.iter().find(|word| word.0 == name) {
                    Some((_, program)) => format!(
                        "`{name}FILTER` is a whole program only in `netgrain group`; in the language, write `{program}`"
                    ),
                    None => without_binding(&name, params.is_empty()),
                },
            };
            return Err(Error { help: Some(help), ..self.unexpected("`=`") });
        }
        self.next += 1;
        let body = self.expr()?;
        Ok(Binding { name, params, span: start, body })
    }

    fn params(&mut self) -> Result<Vec<String>, Error> {
        let mut params: Vec<String> = Vec::new();
        while let Kind::Name(p) = self.peek().kind.clone() {
            if params.contains(&p) && p != "_" {
                return Err(Error::new(self.peek().span.clone(), format!("the parameter `{p}` is repeated")));
            }
            self.next += 1;
            params.push(p);
        }
        Ok(params)
    }

    fn expr(&mut self) -> Result<Expr, Error> {
        if self.depth >= MAX_DEPTH {
            return Err(Error::new(self.peek().span.clone(), format!("more than {MAX_DEPTH} nested expressions"))
                .help("move parts of the expression into bindings"));
        }
        self.depth += 1;
        let out = self.operators(0);
        self.depth -= 1;
        out
    }

    fn operators(&mut self, least: u8) -> Result<Expr, Error> {
        let mut left = self.applied()?;
        let (mut compared, mut joined) = (false, 0);
        while let Kind::Operator(op) = self.peek().kind.clone() {
            let Some((level, right)) = strength(&op) else { break };
            if level < least {
                break;
            }
            if level == 4 && compared {
                return Err(Error::new(self.peek().span.clone(), "comparisons cannot be chained")
                    .help("put each comparison into parentheses"));
            }
            compared = level == 4;
            let at = self.take().span;
            // The recursion of a right-associative chain is as deep as the chain is long.
            self.depth += 1;
            let deep = self.depth >= MAX_DEPTH;
            let next = if deep { self.expr() } else { self.operators(if right { level } else { level + 1 }) };
            self.depth -= 1;
            let next = next?;
            let span = left.span.start..next.span.end;
            let node = match (left, op.as_str()) {
                (Expr { node: Node::Chain(mut steps), .. }, ">->" | ">>" | ">=>") => {
                    steps.push(next);
                    Node::Chain(steps)
                }
                (left, ">->" | ">>" | ">=>") => Node::Chain(vec![left, next]),
                (left, _) => {
                    joined += 1;
                    if joined > MAX_DEPTH {
                        return Err(Error::new(at, format!("more than {MAX_DEPTH} operators in a row"))
                            .help("move parts of the expression into bindings"));
                    }
                    match op.strip_prefix('`') {
                        Some(name) => {
                            let name = Node::Name(name.trim_end_matches('`').to_owned());
                            Node::Apply(Box::new(Expr { node: name, span: at }), vec![left, next])
                        }
                        None => Node::Operator(op, at, Box::new(left), Box::new(next)),
                    }
                }
            };
            left = Expr { node, span };
        }
        Ok(left)
    }

    fn applied(&mut self) -> Result<Expr, Error> {
        let function = self.atom()?;
        let mut args = Vec::new();
        while self.begins_atom() {
            args.push(self.atom()?);
        }
        let Some(last) = args.last() else { return Ok(function) };
        let span = function.span.start..last.span.end;
        Ok(Expr { node: Node::Apply(Box::new(function), args), span })
    }

    fn begins_atom(&self) -> bool {
        match &self.peek().kind {
            Kind::Name(n) => !matches!(n.as_str(), "then" | "else" | "of" | "where" | "in"),
            Kind::Int(_) | Kind::Fraction(_) | Kind::Text(_) | Kind::Address(_) | Kind::Mark('(' | '[') => true,
            Kind::Operator(o) => o == "\\",
            Kind::Mark(_) | Kind::End => false,
        }
    }

    fn atom(&mut self) -> Result<Expr, Error> {
        let token = self.peek().clone();
        let simple = |node, span: Range<usize>| Ok(Expr { node, span });
        match token.kind {
            Kind::Name(n) => match n.as_str() {
                "do" => self.block(),
                "if" => self.conditional(),
                "case" => self.case(),
                "let" | "where" => Err(Error::new(token.span, format!("`{n}` is not part of the language"))
                    .help("define a separate binding above or below `main`")),
                "then" | "else" | "of" | "in" => Err(self.unexpected("an expression")),
                _ => {
                    self.next += 1;
                    simple(Node::Name(n), token.span)
                }
            },
            Kind::Int(n) => {
                self.next += 1;
                simple(Node::Int(n), token.span)
            }
            Kind::Fraction(n) => {
                self.next += 1;
                simple(Node::Fraction(n), token.span)
            }
            Kind::Text(s) => {
                self.next += 1;
                simple(Node::Text(s), token.span)
            }
            Kind::Address(a) => {
                self.next += 1;
                simple(Node::Address(a), token.span)
            }
            Kind::Mark('(') => self.parenthesis(),
            Kind::Mark('[') => {
                self.next += 1;
                let mut items = Vec::new();
                while !self.peek().is(']') {
                    items.push(self.expr()?);
                    if !self.takes(',') {
                        break;
                    }
                }
                let end = self.peek().span.end;
                self.expect(']')?;
                simple(Node::List(items), token.span.start..end)
            }
            Kind::Operator(o) if o == "\\" => {
                self.next += 1;
                let params = self.params()?;
                if params.is_empty() || !self.peek().is_operator("->") {
                    return Err(self.unexpected("a parameter and `->`"));
                }
                self.next += 1;
                let body = self.expr()?;
                let span = token.span.start..body.span.end;
                simple(Node::Lambda(params, Box::new(body)), span)
            }
            _ => Err(self.unexpected("an expression")),
        }
    }

    fn parenthesis(&mut self) -> Result<Expr, Error> {
        let start = self.take().span.start;
        if let Kind::Operator(op) = self.peek().kind.clone()
            && matches!(op.as_str(), "+" | "-")
        {
            self.next += 1;
            let by = self.expr()?;
            let end = self.peek().span.end;
            self.expect(')')?;
            return Ok(Expr { node: Node::Section(op, Box::new(by)), span: start..end });
        }
        let first = self.expr()?;
        if self.takes(',') {
            let second = self.expr()?;
            let end = self.peek().span.end;
            self.expect(')')?;
            return Ok(Expr { node: Node::Pair(Box::new(first), Box::new(second)), span: start..end });
        }
        let end = self.peek().span.end;
        self.expect(')')?;
        Ok(Expr { span: start..end, ..first })
    }

    fn items<T>(&mut self, item: impl Fn(&mut Self) -> Result<T, Error>) -> Result<Vec<T>, Error> {
        self.expect('{')?;
        let mut items = Vec::new();
        loop {
            while self.takes(';') {}
            if self.takes('}') {
                return Ok(items);
            }
            items.push(item(self)?);
            if !self.peek().is(';') && !self.peek().is('}') {
                return Err(self.unexpected("the end of the line"));
            }
        }
    }

    fn block(&mut self) -> Result<Expr, Error> {
        let start = self.take().span;
        let steps = self.items(Self::expr)?;
        let Some(last) = steps.last() else {
            return Err(Error::new(start, "this block is empty")
                .help("indent the steps of the block deeper than the line of `do`"));
        };
        let span = start.start..last.span.end;
        Ok(Expr { node: Node::Do(steps), span })
    }

    fn conditional(&mut self) -> Result<Expr, Error> {
        let start = self.take().span.start;
        let condition = self.expr()?;
        while self.peek().is(';') && self.after(1).is_name("then") {
            self.next += 1;
        }
        self.expect_name("then")?;
        let then = self.expr()?;
        while self.peek().is(';') && self.after(1).is_name("else") {
            self.next += 1;
        }
        self.expect_name("else").map_err(|e| Error {
            help: Some("every `if` needs an `else`; to act without an `else`, write `when`".into()),
            ..e
        })?;
        let other = self.expr()?;
        let span = start..other.span.end;
        Ok(Expr { node: Node::If(Box::new(condition), Box::new(then), Box::new(other)), span })
    }

    fn case(&mut self) -> Result<Expr, Error> {
        let start = self.take().span.start;
        let of = self.expr()?;
        self.expect_name("of")?;
        let arms = self.items(|p| {
            let pattern = match p.peek().kind.clone() {
                Kind::Name(n) if n == "_" => {
                    p.next += 1;
                    None
                }
                _ => Some(p.applied()?),
            };
            if !p.peek().is_operator("->") {
                return Err(p.unexpected("`->`"));
            }
            p.next += 1;
            Ok((pattern, p.expr()?))
        })?;
        let Some(end) = arms.last().map(|arm| arm.1.span.end) else {
            return Err(self.unexpected("an arm such as `0 -> drop`"));
        };
        Ok(Expr { node: Node::Case(Box::new(of), arms), span: start..end })
    }
}
