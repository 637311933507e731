//! Type inference (Damas and Milner, POPL 1982): infers the most general type of each binding, after the types of the
//! bindings that it uses.
//!
//! Some values are converted implicitly to the expected type: a text to an address or an interface; a property to a
//! predicate that is true if the property is not 0; a filter to a predicate that is true for the packets that the
//! filter passes; a counter to its number; and a number of millionths to a probability. A packet may be written as the
//! last argument of an action, predicate or property, as in programs for Enif; this argument has no effect. A function
//! that lacks only the packet as its argument can be used where its result is expected. Bindings are pure and not
//! recursive, so every program ends.

use super::Type;
use super::advice::{self, mismatch, order, parenthesize, subject, too_many, unknown};
use crate::syntax::{Binding, Error, Expr, Node, entry};
use crate::table;
use ir::Effects;
use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;

/// The result of type inference for a binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindingInfo {
    /// The name.
    pub name: String,
    /// The most general type.
    pub of: Type,
    /// The effects that the binding may have.
    pub effects: Effects,
}

/// The types of all bindings; a binding comes after the bindings that it uses.
///
/// # Errors
/// The first type error.
pub fn infer(bindings: &[Binding]) -> Result<Vec<BindingInfo>, Error> {
    let mut infer = Infer {
        bindings,
        known: HashMap::new(),
        order: vec![],
        open: vec![],
        depth: 0,
        vars: vec![],
        work: Cell::new(0),
        too_large: Cell::new(false),
    };
    for (i, b) in bindings.iter().enumerate() {
        if bindings[..i].iter().any(|other| other.name == b.name) {
            return Err(Error::new(b.span.clone(), format!("`{}` is bound twice", b.name)));
        }
    }
    for b in bindings {
        infer.binding(b)?;
    }
    if let Some(main) = entry(bindings) {
        if let Some(param) = main.params.get(1) {
            let what = format!("`{}` takes only the packet as a parameter; `{param}` is one too many", main.name);
            return Err(Error::new(main.span.clone(), what).help("remove the parameter: `main = …`"));
        }
        let of = infer.known[&main.name].of.clone();
        let of = infer.instance(&of, &mut HashMap::new());
        if !infer.converts_to(&of, &Type::Act) {
            return Err(mismatch(&main.body, &infer.resolved(&of), &Type::Act, &format!("`{}`", main.name)));
        }
    }
    Ok(infer.order)
}

/// Maximum nesting depth of expressions, including those of the bindings that they use.
const MAX_DEPTH: usize = 300;
/// Maximum size of a type in nodes. The type of a binding that uses another binding twice can be twice as large as the
/// type of that binding. So a short program could have huge types without this limit.
const MAX_TYPE: usize = 1000;
/// Maximum number of type nodes visited in total; a program written by a person needs less than a hundredth of it.
const MAX_WORK: usize = 10_000_000;

type Scope = Vec<(String, Type)>;

struct Infer<'a> {
    bindings: &'a [Binding],
    known: HashMap<String, BindingInfo>,
    order: Vec<BindingInfo>,
    /// Names of the bindings whose types are being inferred; a second visit of such a binding means that it is
    /// recursive.
    open: Vec<String>,
    /// Current nesting depth of expressions, counted across all bindings of `open`.
    depth: usize,
    /// For each type variable, the type to which it is bound.
    vars: Vec<Option<Type>>,
    /// Number of type nodes visited so far.
    work: Cell<usize>,
    /// True if a type exceeded [`MAX_TYPE`] or all types exceeded [`MAX_WORK`]; later results are invalid.
    too_large: Cell<bool>,
}

impl Infer<'_> {
    fn binding(&mut self, b: &Binding) -> Result<(), Error> {
        if self.known.contains_key(&b.name) {
            return Ok(());
        }
        if self.open.contains(&b.name) {
            return Err(Error::new(b.span.clone(), format!("`{}` refers to itself", b.name))
                .help("programs have no loops; keep state from packet to packet in a `flow_map`"));
        }
        if self.open.len() >= 100 {
            return Err(Error::new(b.span.clone(), "a chain of more than 100 bindings, each of which uses the next"));
        }
        self.open.push(b.name.clone());
        let mut scope = Scope::new();
        let params: Vec<_> = b.params.iter().map(|_| self.fresh()).collect();
        scope.extend(b.params.iter().cloned().zip(params.iter().cloned()));
        if let (Some(main), Some(packet)) = (entry(self.bindings), params.first())
            && main.name == b.name
        {
            self.unify(packet, &Type::Packet);
        }
        let mut effects = Effects::default();
        let body = self.expr(&b.body, &mut scope, &mut effects)?;
        let of = params.into_iter().rev().fold(body, |to, from| Type::Fun(Box::new(from), Box::new(to)));
        let known = BindingInfo { name: b.name.clone(), of: self.general(&of), effects };
        if self.too_large.get() {
            return Err(too_large(&b.body));
        }
        self.open.pop();
        self.known.insert(b.name.clone(), known.clone());
        self.order.push(known);
        Ok(())
    }

    fn fresh(&mut self) -> Type {
        self.vars.push(None);
        Type::Var(self.vars.len() - 1)
    }

    /// Returns the type in which each bound type variable is replaced by its type.
    fn resolved(&self, t: &Type) -> Type {
        let mut words = 0;
        let resolved = self.expand(t, &mut words);
        self.work.set(self.work.get() + words);
        if words > MAX_TYPE || self.work.get() > MAX_WORK {
            self.too_large.set(true);
        }
        resolved
    }

    fn expand(&self, t: &Type, words: &mut usize) -> Type {
        *words += 1;
        if *words > MAX_TYPE {
            return Type::Act;
        }
        match t {
            Type::Var(n) => match self.vars.get(*n) {
                Some(Some(t)) => self.expand(t, words),
                _ => t.clone(),
            },
            Type::List(of) => Type::List(Box::new(self.expand(of, words))),
            Type::Fun(from, to) => Type::Fun(Box::new(self.expand(from, words)), Box::new(self.expand(to, words))),
            simple => simple.clone(),
        }
    }

    /// The type with its variables numbered from 0.
    fn general(&self, t: &Type) -> Type {
        fn number(t: &Type, seen: &mut Vec<usize>) -> Type {
            match t {
                Type::Var(n) => {
                    let at = seen.iter().position(|s| s == n).unwrap_or_else(|| {
                        seen.push(*n);
                        seen.len() - 1
                    });
                    Type::Var(at)
                }
                Type::List(of) => Type::List(Box::new(number(of, seen))),
                Type::Fun(from, to) => Type::Fun(Box::new(number(from, seen)), Box::new(number(to, seen))),
                simple => simple.clone(),
            }
        }
        number(&self.resolved(t), &mut Vec::new())
    }

    /// Returns the type of a binding with new type variables, for one use of the binding.
    fn instance(&mut self, t: &Type, fresh: &mut HashMap<usize, Type>) -> Type {
        match t {
            Type::Var(n) => {
                if !fresh.contains_key(n) {
                    let var = self.fresh();
                    fresh.insert(*n, var);
                }
                fresh[n].clone()
            }
            Type::List(of) => Type::List(Box::new(self.instance(of, fresh))),
            Type::Fun(from, to) => Type::Fun(Box::new(self.instance(from, fresh)), Box::new(self.instance(to, fresh))),
            simple => simple.clone(),
        }
    }

    /// Unifies two types; returns false if they differ.
    fn unify(&mut self, a: &Type, b: &Type) -> bool {
        match (self.resolved(a), self.resolved(b)) {
            (a, b) if a == b => true,
            (Type::Var(n), t) | (t, Type::Var(n)) => {
                let free = !t.references(n);
                if free {
                    self.vars[n] = Some(t);
                }
                free
            }
            (Type::List(a), Type::List(b)) => self.unify(&a, &b),
            (Type::Fun(a, b), Type::Fun(c, d)) => self.unify(&a, &c) && self.unify(&b, &d),
            _ => false,
        }
    }

    /// Unifies the two types, and returns true if a value of type `actual` can be used where the type `expected` is
    /// required, possibly after an implicit conversion.
    fn converts_to(&mut self, actual: &Type, expected: &Type) -> bool {
        match (self.resolved(actual), self.resolved(expected)) {
            (Type::Text, Type::Net | Type::Interface) | (Type::Prop | Type::Act, Type::Pred) => true,
            (Type::Counter, Type::Int) | (Type::Int, Type::Chance) => true,
            (Type::Fun(packet, gives), expected) if expected.is_of_packet() => {
                self.unify(&packet, &Type::Packet) && self.converts_to(&gives, &expected)
            }
            (Type::List(actual), Type::List(expected)) => self.converts_to(&actual, &expected),
            (actual, expected) => self.unify(&actual, &expected),
        }
    }

    fn name(&mut self, name: &str, span: &Range<usize>, scope: &Scope, effects: &mut Effects) -> Result<Type, Error> {
        if let Some((_, t)) = scope.iter().rev().find(|(n, _)| n == name) {
            return Ok(t.clone());
        }
        if let Some(b) = self.bindings.iter().find(|b| b.name == name) {
            self.binding(b)?;
            let known = self.known[name].clone();
            *effects = effects.with(known.effects);
            return Ok(self.instance(&known.of, &mut HashMap::new()));
        }
        if let Some(f) = table::find(name) {
            *effects = effects.with(f.effects());
            return Ok(f.of());
        }
        Err(unknown(name, span.clone(), scope, self.bindings))
    }

    fn expect_type(
        &mut self,
        e: &Expr,
        expected: &Type,
        subject: &str,
        scope: &mut Scope,
        effects: &mut Effects,
    ) -> Result<(), Error> {
        let actual = self.expr(e, scope, effects)?;
        // A change by a negative number, such as `(-1)`, is parsed as a number.
        if matches!((&e.node, self.resolved(expected)), (Node::Int(..0), Type::Change))
            || self.converts_to(&actual, expected)
        {
            return Ok(());
        }
        let (actual, expected) = (self.resolved(&actual), self.resolved(expected));
        Err(mismatch(e, &actual, &expected, subject))
    }

    fn expr(&mut self, e: &Expr, scope: &mut Scope, effects: &mut Effects) -> Result<Type, Error> {
        if self.depth >= MAX_DEPTH {
            return Err(Error::new(e.span.clone(), "expressions and bindings are nested too deeply here"));
        }
        self.depth += 1;
        let of = self.node(e, scope, effects);
        self.depth -= 1;
        if self.too_large.get() {
            return Err(too_large(e));
        }
        of
    }

    fn node(&mut self, e: &Expr, scope: &mut Scope, effects: &mut Effects) -> Result<Type, Error> {
        Ok(match &e.node {
            Node::Name(name) => self.name(name, &e.span, scope, effects)?,
            Node::Int(_) => Type::Int,
            Node::Fraction(_) => Type::Chance,
            Node::Text(_) => Type::Text,
            Node::Address(_) => Type::Net,
            Node::List(items) => {
                let of = self.fresh();
                for item in items {
                    let actual = self.expr(item, scope, effects)?;
                    // A list with texts and addresses is a list of addresses, whichever comes first.
                    match (self.resolved(&of), self.resolved(&actual)) {
                        (Type::Text, Type::Net) => return self.list_of(Type::Net, items, scope, effects),
                        _ if self.converts_to(&actual, &of) => (),
                        (of, actual) => return Err(mismatch(item, &actual, &of, "this list")),
                    }
                }
                Type::List(Box::new(of))
            }
            Node::Pair(address, bits) => {
                self.expect_type(address, &Type::Net, "a network", scope, effects)?;
                self.expect_type(bits, &Type::Int, "a network", scope, effects)?;
                Type::Net
            }
            Node::Apply(f, args) => {
                let mut of = self.expr(f, scope, effects)?;
                let subject = subject(f);
                for (i, arg) in args.iter().enumerate() {
                    of = match self.resolved(&of) {
                        Type::Fun(from, to) => {
                            self.expect_type(arg, &from, &subject, scope, effects).map_err(|error| {
                                let rest = args.len() - i - 1;
                                let takes = self.resolved(&to).parts().0.len();
                                // The advice is for the most likely cause of the type error.
                                match order(f) {
                                    _ if rest > takes => Error { help: Some(parenthesize(f, args)), ..error },
                                    _ if *from == Type::Key && advice::key_of(arg).is_some() => {
                                        Error { help: advice::key_of(arg), ..error }
                                    }
                                    Some(order) => error.help(order),
                                    None => match advice::example(f) {
                                        Some(example) => error.help(format!("write it as `{example}`")),
                                        None => error,
                                    },
                                }
                            })?;
                            *to
                        }
                        Type::Var(n) => {
                            let (from, to) = (self.expr(arg, scope, effects)?, self.fresh());
                            let fun = Type::Fun(Box::new(from), Box::new(to.clone()));
                            if !self.unify(&Type::Var(n), &fun) {
                                let what = format!("{subject} is applied to itself here, which has no type");
                                return Err(Error::new(arg.span.clone(), what));
                            }
                            to
                        }
                        other if other.is_of_packet() && self.is_packet(arg, scope, effects)? => other,
                        other => return Err(too_many(&subject, &other, i, arg)),
                    };
                }
                of
            }
            Node::Chain(steps) => {
                for step in steps {
                    self.expect_type(step, &Type::Act, "`>->`", scope, effects)?;
                }
                Type::Act
            }
            Node::Operator(op, at, a, b) => self.operator(op, at, a, b, scope, effects)?,
            Node::Section(_, by) => {
                self.expect_type(by, &Type::Int, "a change", scope, effects)?;
                Type::Change
            }
            Node::Lambda(params, body) => {
                let types: Vec<_> = params.iter().map(|_| self.fresh()).collect();
                let outside = scope.len();
                scope.extend(params.iter().cloned().zip(types.iter().cloned()));
                let body = self.expr(body, scope, effects)?;
                scope.truncate(outside);
                types.into_iter().rev().fold(body, |to, from| Type::Fun(Box::new(from), Box::new(to)))
            }
            Node::Do(steps) => {
                for step in steps {
                    self.expect_type(step, &Type::Act, "a step of `do`", scope, effects)?;
                }
                Type::Act
            }
            Node::If(p, then, other) => {
                self.expect_type(p, &Type::Pred, "`if`", scope, effects)?;
                self.expect_type(then, &Type::Act, "`then`", scope, effects)?;
                self.expect_type(other, &Type::Act, "`else`", scope, effects)?;
                Type::Act
            }
            Node::Case(of, arms) => {
                self.expect_type(of, &Type::Prop, "`case`", scope, effects)?;
                for (pattern, act) in arms {
                    if let Some(pattern) = pattern {
                        self.expect_type(pattern, &Type::Int, "an arm of `case`", scope, effects)?;
                    }
                    self.expect_type(act, &Type::Act, "an arm of `case`", scope, effects)?;
                }
                Type::Act
            }
        })
    }

    /// True if the expression can be the packet argument: its type can be unified with the type of the packet, and is
    /// unified with it.
    fn is_packet(&mut self, e: &Expr, scope: &mut Scope, effects: &mut Effects) -> Result<bool, Error> {
        let of = self.expr(e, scope, effects)?;
        Ok(self.unify(&of, &Type::Packet))
    }

    fn list_of(&mut self, of: Type, items: &[Expr], scope: &mut Scope, effects: &mut Effects) -> Result<Type, Error> {
        for item in items {
            self.expect_type(item, &of, "this list", scope, effects)?;
        }
        Ok(Type::List(Box::new(of)))
    }

    fn operator(
        &mut self,
        op: &str,
        at: &Range<usize>,
        a: &Expr,
        b: &Expr,
        scope: &mut Scope,
        effects: &mut Effects,
    ) -> Result<Type, Error> {
        if op == "$" {
            let (f, gives) = (self.expr(a, scope, effects)?, self.fresh());
            let Type::Fun(from, to) = self.resolved(&f) else {
                let from = self.expr(b, scope, effects)?;
                let fun = Type::Fun(Box::new(from), Box::new(gives.clone()));
                if self.unify(&f, &fun) {
                    return Ok(gives);
                }
                let what = format!("{} takes no further argument", subject(a));
                return Err(Error::new(at.clone(), what).help("join actions by `>->`"));
            };
            self.expect_type(b, &from, &subject(a), scope, effects)?;
            return Ok(*to);
        }
        if matches!(op, "+" | "-" | "*") {
            self.expect_type(a, &Type::Int, &format!("`{op}`"), scope, effects)?;
            self.expect_type(b, &Type::Int, &format!("`{op}`"), scope, effects)?;
            return Ok(Type::Int);
        }
        let Some(f) = table::operator(op) else {
            return Err(Error::new(at.clone(), format!("`{op}` is not an operator of the language")));
        };
        *effects = effects.with(f.effects());
        let of = f.of();
        let (takes, gives) = of.parts();
        let subject = format!("`{op}`");
        let hint = |e: Error| match advice::binding(op, a) {
            Some(help) => e.help(help),
            None => e,
        };
        // In the function table, the property is the first argument. In operators that end in a dot, the number is the
        // left operand.
        let turned = op.ends_with('.') && !op.starts_with('.');
        let (first, second) = if turned { (b, a) } else { (a, b) };
        self.expect_type(first, takes[0], &subject, scope, effects).map_err(hint)?;
        self.expect_type(second, takes[1], &subject, scope, effects).map_err(hint)?;
        Ok(gives.clone())
    }
}

fn too_large(e: &Expr) -> Error {
    Error::new(e.span.clone(), "the type of this expression becomes too large")
        .help("a binding that uses another binding twice can have a type of twice the size")
}
