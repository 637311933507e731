//! Evaluates a program at compile time: applies all functions, so that one term without functions remains. Type
//! inference must have accepted the expressions.

use crate::syntax::{Binding, Error, Expr, Node, entry};
use crate::table;
use crate::table::value::{MILLION, Value};
use crate::term::{ActionTerm, FlowMap, Pred};
use crate::types::Type;
use ir::Prefix;
use std::sync::Arc;

/// Maximum size of a term in nodes, and maximum nesting depth.
const MAX_WORDS: usize = 20_000;
const MAX_LEVELS: usize = 250;
/// Maximum number of function applications and copied value nodes.
const MAX_STEPS: usize = 200_000;

/// The term of `main`, for frames of this link type, as pcap numbers it.
///
/// # Errors
/// A number out of range, a filter that does not apply to frames of this link type, or a program that exceeds the
/// limits.
pub fn evaluate(text: &str, bindings: &[Binding], link_type: u16) -> Result<ActionTerm, Error> {
    let Some(main) = entry(bindings) else {
        let end = text.trim_end().len();
        let error = Error::new(end..end, "there is no `main`");
        return Err(match bindings.iter().find(|b| b.name.eq_ignore_ascii_case("main")) {
            Some(b) => Error { span: b.span.clone(), ..error.help("write it in lower case: `main = …`") },
            None => error.help("define `main = …`, the action that receives each packet"),
        });
    };
    let mut eval = Eval { text, bindings, link_type, steps: 0, levels: 0 };
    let value = eval.binding(main)?;
    match eval.fitted(value, &Type::Act, &main.body)? {
        Value::Act(act) => Ok(ActionTerm::Seq(vec![]).then("", act, &eval.source(&main.body))),
        _ => Err(Error::new(main.span.clone(), "`main` must be an action")),
    }
}

type Scope<'a> = Vec<(String, Value<'a>)>;

struct Eval<'a> {
    text: &'a str,
    bindings: &'a [Binding],
    link_type: u16,
    steps: usize,
    levels: usize,
}

impl<'a> Eval<'a> {
    fn binding(&mut self, b: &'a Binding) -> Result<Value<'a>, Error> {
        if b.params.is_empty() {
            let value = self.expr(&b.body, &Scope::new())?;
            return Ok(match value {
                Value::Map(map) if map.name.starts_with(table::UNNAMED) => {
                    Value::Map(Arc::new(FlowMap { name: b.name.clone(), ..(*map).clone() }))
                }
                other => other,
            });
        }
        Ok(Value::Closure(&b.params, &b.body, vec![], vec![]))
    }

    fn source(&self, e: &Expr) -> String {
        let text = self.text.get(e.span.clone()).unwrap_or("");
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn expr(&mut self, e: &'a Expr, scope: &Scope<'a>) -> Result<Value<'a>, Error> {
        self.copies(1, e)?;
        self.levels += 1;
        if self.levels > MAX_LEVELS {
            return Err(too_large(e));
        }
        let value = self.node(e, scope);
        self.levels -= 1;
        value
    }

    /// Counts the nodes of copied values and returns an error above a limit. Without the limit, a few bindings that
    /// each use the previous binding twice would yield a term of exponential size.
    fn copies(&mut self, words: usize, e: &Expr) -> Result<(), Error> {
        self.steps += words;
        if self.steps > MAX_STEPS { Err(too_large(e)) } else { Ok(()) }
    }

    fn node(&mut self, e: &'a Expr, scope: &Scope<'a>) -> Result<Value<'a>, Error> {
        Ok(match &e.node {
            Node::Name(name) => {
                if let Some((_, value)) = scope.iter().rev().find(|(n, _)| n == name) {
                    self.copies(value.words(), e)?;
                    value.clone()
                } else if let Some(b) = self.bindings.iter().find(|b| b.name == *name) {
                    self.binding(b)?
                } else {
                    let f = table::find(name).ok_or_else(|| Error::unknown_name(e.span.clone(), name))?;
                    self.apply(Value::Function(f, vec![]), vec![], e)?
                }
            }
            Node::Int(n) => Value::Int(*n),
            Node::Fraction(n) => Value::Chance(*n),
            Node::Text(s) => Value::Text(s.clone()),
            Node::Address(a) => Value::Net(*a),
            Node::List(items) => Value::List(items.iter().map(|i| self.expr(i, scope)).collect::<Result<Vec<_>, _>>()?),
            Node::Pair(address, bits) => {
                let (Value::Net(a), Value::Int(bits)) =
                    (converted(self.expr(address, scope)?, &Type::Net, address)?, self.expr(bits, scope)?)
                else {
                    return Err(Error::new(e.span.clone(), "a network is an address and a prefix length"));
                };
                let net = u8::try_from(bits).ok().and_then(|bits| Prefix::new(a.address(), bits));
                Value::Net(net.ok_or_else(|| {
                    Error::new(e.span.clone(), format!("{bits} is not a valid prefix length for {}", a.address()))
                })?)
            }
            Node::Apply(f, args) => {
                let f = self.expr(f, scope)?;
                let args = args.iter().map(|a| Ok((self.expr(a, scope)?, a))).collect::<Result<Vec<_>, Error>>()?;
                self.apply(f, args, e)?
            }
            Node::Operator(op, _, a, b) => self.operator(op, a, b, e, scope)?,
            Node::Section(op, by) => match self.expr(by, scope)? {
                Value::Int(n) => Value::Change(if op == "-" { n.wrapping_neg() } else { n }),
                _ => return Err(Error::new(e.span.clone(), "write a number after the operator, as in `(+ 1)`")),
            },
            Node::Lambda(params, body) => {
                self.copies(scope.iter().map(|(_, value)| value.words()).sum(), e)?;
                Value::Closure(params, body, vec![], scope.clone())
            }
            Node::Do(steps) | Node::Chain(steps) => {
                let mut all = ActionTerm::Seq(vec![]);
                for step in steps {
                    let act = self.act(step, scope)?;
                    all = all.then("", act, &self.source(step));
                }
                self.checked(all, e)?
            }
            Node::If(p, then, other) => {
                let value = self.expr(p, scope)?;
                let Value::Pred(condition) = self.fitted(value, &Type::Pred, p)? else {
                    return Err(Error::new(p.span.clone(), "`if` takes a predicate"));
                };
                let (then, other) = (self.act(then, scope)?, self.act(other, scope)?);
                self.checked(ActionTerm::If(condition, Box::new(then), Box::new(other)), e)?
            }
            Node::Case(of, arms) => {
                let value = self.expr(of, scope)?;
                let Value::Prop(of) = self.fitted(value, &Type::Prop, of)? else {
                    return Err(Error::new(of.span.clone(), "`case` takes a property"));
                };
                let (mut taken, mut other): (Vec<(u64, ActionTerm)>, _) = (Vec::new(), None);
                for (pattern, act) in arms {
                    let span = pattern.as_ref().map_or(act.span.clone(), |p| p.span.clone());
                    if other.is_some() {
                        return Err(Error::new(span, "this arm is never reached: `_` comes before it")
                            .help("write one arm `_`, and write it last"));
                    }
                    let act = self.act(act, scope)?;
                    let Some(pattern) = pattern else {
                        other = Some(act);
                        continue;
                    };
                    match converted(self.expr(pattern, scope)?, &Type::Int, pattern)? {
                        Value::Int(n) if n < 0 => {
                            return Err(Error::new(span, "this arm is never reached: no property is negative"));
                        }
                        Value::Int(n) if taken.iter().any(|arm| arm.0 == n as u64) => {
                            return Err(Error::new(
                                span,
                                format!("this arm is never reached: an arm for {n} comes before it"),
                            ));
                        }
                        Value::Int(n) => taken.push((n as u64, act)),
                        _ => return Err(Error::new(span, "the pattern of an arm must be a number")),
                    }
                }
                self.checked(ActionTerm::Case(of, taken, Box::new(other.unwrap_or(ActionTerm::Unit))), e)?
            }
        })
    }

    fn act(&mut self, e: &'a Expr, scope: &Scope<'a>) -> Result<ActionTerm, Error> {
        let value = self.expr(e, scope)?;
        match self.fitted(value, &Type::Act, e)? {
            Value::Act(act) => Ok(act),
            _ => Err(Error::new(e.span.clone(), "an action is required here")),
        }
    }

    /// Returns the action unchanged, or an error if its term exceeds the size limit.
    fn checked(&self, act: ActionTerm, e: &Expr) -> Result<Value<'a>, Error> {
        let mut words = 0;
        if measure(&act, 0, &mut words) { Ok(Value::Act(act)) } else { Err(too_large(e)) }
    }

    fn operator(
        &mut self,
        op: &str,
        a: &'a Expr,
        b: &'a Expr,
        e: &'a Expr,
        scope: &Scope<'a>,
    ) -> Result<Value<'a>, Error> {
        match op {
            "$" => {
                let f = self.expr(a, scope)?;
                let arg = self.expr(b, scope)?;
                self.apply(f, vec![(arg, b)], e)
            }
            "+" | "-" | "*" => {
                let value = |v, e: &'a Expr| converted(v, &Type::Int, e);
                let (Value::Int(x), Value::Int(y)) = (value(self.expr(a, scope)?, a)?, value(self.expr(b, scope)?, b)?)
                else {
                    return Err(Error::new(e.span.clone(), "arithmetic requires numbers"));
                };
                let result = match op {
                    "+" => x.checked_add(y),
                    "-" => x.checked_sub(y),
                    _ => x.checked_mul(y),
                };
                result.map(Value::Int).ok_or_else(|| Error::new(e.span.clone(), "the computed number is too large"))
            }
            _ => {
                let f = table::operator(op)
                    .ok_or_else(|| Error::new(e.span.clone(), format!("`{op}` is not an operator")))?;
                let turned = op.ends_with('.') && !op.starts_with('.');
                let (first, second) = if turned { (b, a) } else { (a, b) };
                let args = vec![(self.expr(first, scope)?, first), (self.expr(second, scope)?, second)];
                self.apply(Value::Function(f, vec![]), args, e)
            }
        }
    }

    /// Converts the value to the wanted type. If the value is a function that lacks only the packet as its argument,
    /// the packet is passed to it.
    fn fitted(&mut self, mut value: Value<'a>, expected: &Type, at: &'a Expr) -> Result<Value<'a>, Error> {
        while expected.is_of_packet() && matches!(value, Value::Closure(..)) {
            value = self.apply(value, vec![(Value::Packet, at)], at)?;
        }
        converted(value, expected, at)
    }

    fn apply(&mut self, f: Value<'a>, args: Vec<(Value<'a>, &'a Expr)>, e: &'a Expr) -> Result<Value<'a>, Error> {
        let mut f = f;
        let mut args = args.into_iter();
        loop {
            f = match f {
                Value::Function(function, mut given) => {
                    let of = function.of();
                    let takes = of.parts().0;
                    while given.len() < takes.len() {
                        let Some((value, at)) = args.next() else { return Ok(Value::Function(function, given)) };
                        given.push(self.fitted(value, takes[given.len()], at)?);
                    }
                    self.steps += 1;
                    let value = function
                        .evaluate(&given, self.link_type)
                        .map_err(|why| Error::new(e.span.clone(), format!("`{}`: {why}", function.name)))?;
                    match value {
                        Value::Act(act) => self.checked(act, e)?,
                        Value::Pred(p) => {
                            // The limits of size are defined for actions, so they are checked on an action that filters
                            // by this predicate.
                            self.checked(ActionTerm::Filter(p.clone()), e)?;
                            Value::Pred(p)
                        }
                        other => other,
                    }
                }
                Value::Closure(params, body, mut given, outside) => {
                    while given.len() < params.len() {
                        let Some((value, _)) = args.next() else {
                            return Ok(Value::Closure(params, body, given, outside));
                        };
                        given.push(value);
                    }
                    let mut scope = outside;
                    scope.extend(params.iter().cloned().zip(given));
                    self.expr(body, &scope)?
                }
                value => {
                    match args.next() {
                        None => return Ok(value),
                        // The type check permits a packet as argument only after an action, a predicate or a property.
                        Some((Value::Packet, _)) => value,
                        Some((_, at)) => return Err(Error::new(at.span.clone(), "no function precedes this argument")),
                    }
                }
            };
            // A function that lacks arguments is returned unchanged; a function with all its arguments is evaluated in
            // the next iteration.
            let takes_more = match &f {
                Value::Function(function, given) => given.len() < function.of().parts().0.len(),
                Value::Closure(params, _, given, _) => given.len() < params.len(),
                _ => true,
            };
            if args.len() == 0 && takes_more {
                return Ok(f);
            }
        }
    }
}

fn too_large(e: &Expr) -> Error {
    Error::new(e.span.clone(), "the program becomes too large here")
        .help("a binding that uses another binding twice is twice as large, and each test of a filter counts")
}

/// Converts the value to the wanted type where the language has an implicit conversion.
fn converted<'a>(value: Value<'a>, expected: &Type, at: &Expr) -> Result<Value<'a>, Error> {
    Ok(match (value, expected) {
        (Value::Text(text), Type::Net) => Value::Net(Prefix::parse(&text).ok_or_else(|| {
            Error::new(at.span.clone(), format!("{text:?} is not an address or a network"))
                .help("write `10.0.0.0/8` or `2001:db8::/32`")
        })?),
        (Value::Prop(p), Type::Pred) => Value::Pred(Pred::Compare(p, ir::Cmp::Ne, 0)),
        (Value::Act(act), Type::Pred) => Value::Pred(act.as_filter().ok_or_else(|| {
            Error::new(
                at.span.clone(),
                "a predicate or a filter is required here, and this action does more than filter",
            )
            .help("predicates begin with `is_` or `has_`")
        })?),
        (Value::Int(n), Type::Chance) => Value::Chance(n as f64 / MILLION),
        (Value::Counter(n), Type::Int) => Value::Int(n.into()),
        // This number is `(-1)` or a similar decrease: the type check accepts no other number in place of a change.
        (Value::Int(n), Type::Change) => Value::Change(n),
        (Value::List(items), Type::List(of)) => {
            Value::List(items.into_iter().map(|i| converted(i, of, at)).collect::<Result<_, _>>()?)
        }
        (value, _) => value,
    })
}

/// Adds the number of nodes of a term to `words`; returns false if the number of nodes or the depth exceeds its limit.
fn measure(act: &ActionTerm, level: usize, words: &mut usize) -> bool {
    *words += 1;
    if *words > MAX_WORDS || level > MAX_LEVELS {
        return false;
    }
    let below: Vec<&ActionTerm> = match act {
        ActionTerm::If(_, a, b) => vec![a, b],
        ActionTerm::Case(_, arms, other) => arms.iter().map(|a| &a.1).chain([&**other]).collect(),
        ActionTerm::Seq(steps) => steps.iter().map(|s| &s.1).collect(),
        ActionTerm::Par(acts) => acts.iter().collect(),
        ActionTerm::Inv(inner) | ActionTerm::Within(_, inner) => vec![inner],
        _ => vec![],
    };
    let fits =
        if let ActionTerm::Filter(p) | ActionTerm::If(p, ..) = act { measure_pred(p, level + 1, words) } else { true };
    fits && below.into_iter().all(|a| measure(a, level + 1, words))
}

fn measure_pred(p: &Pred, level: usize, words: &mut usize) -> bool {
    *words += 1;
    if *words > MAX_WORDS || level > MAX_LEVELS {
        return false;
    }
    match p {
        Pred::Not(p) => measure_pred(p, level + 1, words),
        Pred::And(p, q) | Pred::Or(p, q) | Pred::Xor(p, q) => {
            measure_pred(p, level + 1, words) && measure_pred(q, level + 1, words)
        }
        Pred::Address(_, prefixes) => {
            *words += prefixes.len();
            *words <= MAX_WORDS
        }
        Pred::Filter(filter) => {
            *words += filter.node_count();
            *words <= MAX_WORDS
        }
        _ => true,
    }
}

impl Value<'_> {
    /// The number of nodes in a copy of the value, at least 1. The nodes of a term are counted only up to the maximum
    /// size of a program.
    fn words(&self) -> usize {
        let all = |values: &[Self]| values.iter().map(Self::words).sum::<usize>();
        1 + match self {
            Self::Act(act) | Self::Arm(_, act) => {
                let mut words = 0;
                measure(act, 0, &mut words);
                words
            }
            Self::Pred(p) => {
                let mut words = 0;
                measure_pred(p, 0, &mut words);
                words
            }
            Self::List(items) | Self::Function(_, items) => all(items),
            Self::Closure(_, _, given, outside) => {
                all(given) + outside.iter().map(|(_, value)| value.words()).sum::<usize>()
            }
            _ => 0,
        }
    }
}
