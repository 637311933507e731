//! A program as a tree. It is generated at random, printed as source text, and reduced when a test fails.
//!
//! The tree can be printed as two different texts that must compile to the same program. [`Source::text`] uses all
//! syntax of the language: operators with as few parentheses as their precedence permits, `do`, `if`, old names and
//! bindings. [`Source::plain`] writes every function before its arguments and puts every call in parentheses.

use lang::table;
use lang::types::Type;
use std::fmt::{self, Write};

/// A program: bindings, and `main`.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// The bindings of the program; each binding precedes its uses.
    pub bindings: Vec<Binding>,
    /// The body of `main`.
    pub main: Expr,
    /// True if `main` has a name for its packet parameter and passes the packet to functions ([`CallStyle::Packet`]).
    pub is_packet_named: bool,
}

/// A named expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Binding {
    /// The name.
    pub name: String,
    /// The type of the binding's parameter `x`; `None` if the binding has no parameter.
    pub takes: Option<Type>,
    /// The expression.
    pub body: Expr,
}

/// An expression: a node and its arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// The node.
    pub node: Node,
    /// The type of the expression.
    pub of: Type,
    /// The arguments, in order.
    pub args: Vec<Expr>,
}

/// The kinds of nodes.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// A call of a function of the packet language, by one of its names, with all arguments.
    Call(&'static str, CallStyle),
    /// A binding of the program.
    Use(String),
    /// The parameter of the binding that contains this node.
    Parameter,
    /// A literal number, text or address.
    Word(String),
    /// A list of the arguments.
    List,
    /// The arguments in sequence, as the lines of a `do` block.
    Do,
    /// The arguments in sequence, joined by `>->`.
    Chain,
    /// An `if` expression: a predicate and two alternatives.
    If,
    /// An application of an anonymous function: the first argument of this node is the body of the function, the second
    /// is the argument of the function.
    Lambda,
    /// A `case` expression: a property, an action for each of these numbers, and an action for all other numbers.
    Case(Vec<u64>),
}

/// How a call is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStyle {
    /// `f a b`
    Before,
    /// `` a `f` b ``
    Between,
    /// `a op b`
    Operator(&'static str),
    /// `f a $ b`
    Dollar,
    /// `f a packet`, which means the same as `f a`.
    Packet,
}

/// The precedence of expressions that never need parentheses.
const ATOM: u8 = 11;
const APPLIED: u8 = 10;
const CHAIN: u8 = 9;

impl Source {
    /// Prints the program with all syntax of the language.
    pub fn text(&self) -> String {
        self.printed(&Style { plain: false, packet: self.is_packet_named })
    }

    /// The program in plain form: without syntactic sugar, old names and bindings. Only maps have bindings, because the
    /// name of a map identifies its state.
    pub fn plain(&self) -> String {
        self.inlined().printed(&Style { plain: true, packet: false })
    }

    fn printed(&self, style: &Style) -> String {
        let mut out = String::new();
        for binding in &self.bindings {
            let parameter = if binding.takes.is_some() { " x" } else { "" };
            let _ = write!(out, "{}{parameter} = ", binding.name);
            // Only the body of `main` can refer to the packet parameter.
            Style { packet: false, ..*style }.expr(&binding.body, 0, &mut out);
            out.push('\n');
        }
        let main = if style.packet { "main packet = " } else { "main = " };
        match (&self.main.node, style.plain) {
            (Node::Do, false) => {
                let _ = writeln!(out, "{main}do");
                for step in &self.main.args {
                    out.push_str("  ");
                    style.expr(step, 0, &mut out);
                    out.push('\n');
                }
            }
            _ => {
                out.push_str(main);
                style.expr(&self.main, 0, &mut out);
                out.push('\n');
            }
        }
        out
    }

    /// The program with all bindings inlined, except those of maps.
    #[must_use]
    pub fn inlined(&self) -> Self {
        let mut known: Vec<Binding> = Vec::new();
        for binding in &self.bindings {
            known.push(Binding { body: inlined(&binding.body, &known), ..binding.clone() });
        }
        let main = inlined(&self.main, &known);
        known.retain(|b| b.body.of == Type::Map);
        Self { bindings: known, main, ..*self }.tidied()
    }

    /// The program without unused bindings.
    #[must_use]
    pub fn tidied(mut self) -> Self {
        for i in (0..self.bindings.len()).rev() {
            let name = self.bindings[i].name.clone();
            let behind = self.bindings[i + 1..].iter().map(|b| &b.body).chain([&self.main]);
            if !behind.into_iter().any(|e| e.any(&|e| matches!(&e.node, Node::Use(n) if *n == name))) {
                self.bindings.remove(i);
            }
        }
        self
    }

    /// The bodies of all bindings, and the body of `main`.
    pub fn bodies(&self) -> impl Iterator<Item = &Expr> {
        self.bindings.iter().map(|b| &b.body).chain([&self.main])
    }

    /// The size by which programs are compared in a reduction: first the number of words of the source text, then the
    /// number of letters of the source text.
    pub fn size(&self) -> (usize, usize) {
        (self.bodies().map(Expr::words).sum::<usize>() + self.bindings.len(), self.text().len())
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().trim_end())
    }
}

impl Expr {
    /// A literal.
    pub fn word(of: Type, text: impl Into<String>) -> Self {
        Self { node: Node::Word(text.into()), of, args: vec![] }
    }

    /// A call of a function of the packet language, which is given by name.
    ///
    /// # Panics
    /// The packet language has no such function.
    pub fn call(name: &'static str, args: Vec<Self>) -> Self {
        let of = table::find(name).unwrap_or_else(|| panic!("no function `{name}`")).of().parts().1.clone();
        Self { node: Node::Call(name, CallStyle::Before), of, args }
    }

    /// True if the predicate is true for the expression or for a subexpression.
    pub fn any(&self, is: &impl Fn(&Self) -> bool) -> bool {
        is(self) || self.args.iter().any(|a| a.any(is))
    }

    /// The number of words in the expression.
    pub fn words(&self) -> usize {
        1 + self.args.iter().map(Self::words).sum::<usize>()
    }
}

fn inlined(e: &Expr, known: &[Binding]) -> Expr {
    let args: Vec<Expr> = e.args.iter().map(|a| inlined(a, known)).collect();
    if let Node::Use(name) = &e.node
        && let Some(binding) = known.iter().find(|b| b.name == *name && b.body.of != Type::Map)
    {
        return match args.first() {
            Some(given) => substituted(&binding.body, given),
            None => binding.body.clone(),
        };
    }
    if let (Node::Lambda, [body, given]) = (&e.node, &args[..]) {
        return substituted(body, given);
    }
    Expr { args, ..e.clone() }
}

fn substituted(e: &Expr, given: &Expr) -> Expr {
    match (&e.node, &e.args[..]) {
        (Node::Parameter, _) => return given.clone(),
        // An `x` in the body of an anonymous function is the parameter of that function, so it is not substituted.
        (Node::Lambda, [body, of]) => {
            return Expr { args: vec![body.clone(), substituted(of, given)], ..e.clone() };
        }
        _ => (),
    }
    Expr { args: e.args.iter().map(|a| substituted(a, given)).collect(), ..e.clone() }
}

#[derive(Clone, Copy)]
struct Style {
    plain: bool,
    packet: bool,
}

impl Style {
    /// Prints the expression; in parentheses if its precedence is below `least`.
    fn expr(&self, e: &Expr, least: u8, out: &mut String) {
        let level = self.level(e);
        if level < least {
            out.push('(');
        }
        self.bare(e, out);
        if level < least {
            out.push(')');
        }
    }

    fn level(&self, e: &Expr) -> u8 {
        match &e.node {
            _ if self.plain && !e.args.is_empty() && e.node != Node::List => 0,
            Node::Call(_, CallStyle::Packet) if self.packet => APPLIED,
            Node::Call(_, CallStyle::Before | CallStyle::Packet) if e.args.is_empty() => ATOM,
            Node::Call(_, CallStyle::Before | CallStyle::Packet) | Node::Lambda => APPLIED,
            Node::Call(_, CallStyle::Between) => CHAIN,
            Node::Call(_, CallStyle::Operator(sign)) => strength(sign),
            Node::Use(_) if !e.args.is_empty() => APPLIED,
            Node::Word(word) if word.starts_with('-') => APPLIED,
            Node::Use(_) | Node::Parameter | Node::Word(_) | Node::List => ATOM,
            Node::Chain if e.args.len() > 1 => CHAIN,
            Node::Call(_, CallStyle::Dollar) | Node::Do | Node::Chain | Node::If | Node::Case(_) => 0,
        }
    }

    fn bare(&self, e: &Expr, out: &mut String) {
        let joined = |parts: &[Expr], least: u8, by: &str, out: &mut String| {
            for (i, part) in parts.iter().enumerate() {
                out.push_str(if i > 0 { by } else { "" });
                self.expr(part, least, out);
            }
        };
        let applied = |name: &str, args: &[Expr], out: &mut String| {
            out.push_str(name);
            for arg in args {
                out.push(' ');
                self.expr(arg, ATOM, out);
            }
        };
        match (&e.node, &e.args[..]) {
            (Node::Call(name, _), args) if self.plain => {
                applied(table::find(name).map_or(*name, |f| f.name), args, out);
            }
            (Node::Do | Node::Chain, steps) if self.plain && steps.len() > 1 => {
                out.push_str("sequence ");
                self.expr(&steps[0], ATOM, out);
                out.push_str(" (");
                self.bare(&Expr { args: steps[1..].to_vec(), ..e.clone() }, out);
                out.push(')');
            }
            (Node::Do | Node::Chain, [one]) if self.plain => self.bare(one, out),
            (Node::If, args) if self.plain => applied("conditional", args, out),
            (Node::Call(name, CallStyle::Between), [a, b]) => {
                self.expr(a, APPLIED, out);
                let _ = write!(out, " `{name}` ");
                self.expr(b, APPLIED, out);
            }
            (Node::Call(_, CallStyle::Operator(sign)), [a, b]) => {
                // In operators that end in a dot, such as `<.`, the number is the left operand.
                let (a, b) = if sign.ends_with('.') && !sign.starts_with('.') { (b, a) } else { (a, b) };
                let level = strength(sign);
                // The operators `<>` and `~>` are right-associative; comparisons are not associative.
                let right = matches!(*sign, "<>" | "~>");
                self.expr(a, level + u8::from(right || level == 4), out);
                let _ = write!(out, " {sign} ");
                self.expr(b, level + u8::from(!right), out);
            }
            (Node::Call(name, CallStyle::Dollar), [args @ .., last]) => {
                applied(name, args, out);
                out.push_str(" $ ");
                self.expr(last, 0, out);
            }
            (Node::Call(name, written), args) => {
                applied(name, args, out);
                out.push_str(if *written == CallStyle::Packet && self.packet { " packet" } else { "" });
            }
            (Node::Lambda, [body, given]) => {
                out.push_str("(\\x -> ");
                self.expr(body, 0, out);
                out.push_str(") ");
                self.expr(given, ATOM, out);
            }
            (Node::Use(name), args) => applied(name, args, out),
            (Node::Parameter, _) => out.push('x'),
            (Node::Word(word), _) => out.push_str(word),
            (Node::List, items) => {
                out.push('[');
                joined(items, 0, ", ", out);
                out.push(']');
            }
            (Node::Do, steps) => {
                out.push_str("do { ");
                joined(steps, 0, "; ", out);
                out.push_str(" }");
            }
            (Node::Chain, [one]) => self.bare(one, out),
            (Node::Chain, steps) => joined(steps, APPLIED, " >-> ", out),
            (Node::If, [p, a, b]) => {
                for (word, part) in [("if ", p), (" then ", a), (" else ", b)] {
                    out.push_str(word);
                    self.expr(part, 0, out);
                }
            }
            (Node::Case(numbers), [of, acts @ ..]) => {
                out.push_str("case ");
                self.expr(of, APPLIED, out);
                out.push_str(" of { ");
                for (number, act) in numbers.iter().map(u64::to_string).chain([String::from("_")]).zip(acts) {
                    let _ = write!(out, "{number} -> ");
                    self.expr(act, 1, out);
                    out.push_str(if number == "_" { " }" } else { "; " });
                }
            }
            (node, args) => unreachable!("{node:?} of {} parts", args.len()),
        }
    }
}

/// The precedence of an operator, as in `docs/reference/packet-language.md`.
fn strength(sign: &str) -> u8 {
    match sign {
        "~>" => 1,
        ".||." => 5,
        ".^^." | "<>" => 6,
        ".&&." => 7,
        ">->" | ">>" | ">=>" => CHAIN,
        _ => 4,
    }
}
