//! The function table: for each function of the language its name, older names, type, effects, description, and
//! evaluation to a term.
//!
//! The front end, type inference, evaluation and `docs/reference/packet-language-functions.md` use this table; a test
//! compares the page with the table.

mod actions;
mod error;
mod example;
mod page;
mod predicates;
mod row;
mod state;
mod steering;
pub(crate) mod value;

pub use error::EvaluationError;
pub use page::reference;
pub(crate) use state::UNNAMED;

use crate::packet_filter::FilterLoops;
use crate::term::{ActionTerm, FlowMap, Pred, Prop};
use crate::types::Type;
use base::DuplicateClass;
use ir::Prefix;
use ir::key::Key;
use ir::{Effect, Effects};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use value::Value;

/// Evaluates a function for its arguments.
pub type Evaluator = for<'a> fn(&Arguments<'_, 'a>) -> Result<Value<'a>, EvaluationError>;

/// A function of the language.
#[derive(Debug)]
pub struct Function {
    /// The current name.
    pub name: &'static str,
    /// Names of the function in other versions of the language.
    pub aliases: &'static [&'static str],
    /// The type of the function, such as `Pred -> Act -> Act`.
    pub signature: &'static str,
    /// The effects that the function may have in addition to those of its arguments.
    pub effects: &'static [Effect],
    /// The description in the reference.
    pub description: &'static str,
    meaning: Evaluator,
}

/// The sections of the reference and their functions.
pub const PARTS: [(&str, &[Function]); 12] = [
    ("Filters", actions::FILTERS),
    ("Control", actions::CONTROL),
    ("Steering", steering::STEERING),
    ("Delivery and forwarding", actions::DELIVERY),
    ("Logs, marks and counters", actions::LOGGING),
    ("Predicates", predicates::PREDICATES),
    ("Combinators", predicates::COMBINATORS),
    ("Properties", predicates::PROPERTIES),
    ("Comparators", predicates::COMPARATORS),
    ("State of flows", state::FLOWS),
    ("Keys", state::KEYS),
    ("Networks, and sizes of Bloom filters", state::BLOOM),
];

/// Operators and their functions; `$` and arithmetic operators have no function here. In operators that end in a dot,
/// such as `>.`, the number is the left operand and the property the right operand.
const OPERATORS: [(&str, &str); 26] = [
    (".<", "less"),
    (".<=", "less_eq"),
    (".==", "equal"),
    ("./=", "not_equal"),
    (".>", "greater"),
    (".>=", "greater_eq"),
    (">.", "less"),
    (">=.", "less_eq"),
    ("==.", "equal"),
    ("/=.", "not_equal"),
    ("<.", "greater"),
    ("<=.", "greater_eq"),
    (".<.", "less"),
    (".<=.", "less_eq"),
    (".==.", "equal"),
    ("./=.", "not_equal"),
    (".>.", "greater"),
    (".>=.", "greater_eq"),
    (".||.", "or"),
    (".^^.", "xor"),
    (".&&.", "and"),
    (">->", "sequence"),
    (">>", "sequence"),
    (">=>", "sequence"),
    ("<>", "key_with"),
    ("~>", "arm"),
];

/// Names of functions in other versions of the language that have no equivalent here, each with the advice for users.
const REMOVED: [(&str, &str); 4] = [
    ("crc16", "it measured processor load; use `netgrain-bench`"),
    ("get_persistent", "keep state from packet to packet in a `flow_map`"),
    ("put_persistent", "keep state from packet to packet in a `flow_map`"),
    ("return", "write `unit`"),
];

struct Index {
    functions: HashMap<&'static str, (&'static Function, Type)>,
}

fn index() -> &'static Index {
    static INDEX: OnceLock<Index> = OnceLock::new();
    INDEX.get_or_init(|| {
        let mut functions = HashMap::new();
        for f in PARTS.iter().flat_map(|p| p.1) {
            let of = Type::of_signature(f.signature);
            for name in std::iter::once(&f.name).chain(f.aliases) {
                functions.insert(*name, (f, of.clone()));
            }
        }
        Index { functions }
    })
}

/// The function with this name.
pub fn find(name: &str) -> Option<&'static Function> {
    index().functions.get(name).map(|f| f.0)
}

/// The function of an operator.
pub fn operator(sign: &str) -> Option<&'static Function> {
    OPERATORS.iter().find(|o| o.0 == sign).and_then(|o| find(o.1))
}

/// The operators that have a function.
pub fn operators() -> impl Iterator<Item = &'static str> {
    OPERATORS.iter().map(|o| o.0)
}

/// All names, including older names.
pub fn names() -> impl Iterator<Item = &'static str> {
    PARTS.iter().flat_map(|p| p.1).flat_map(|f| std::iter::once(f.name).chain(f.aliases.iter().copied()))
}

/// The advice for a function name that only other versions of the language define.
pub fn removed(name: &str) -> Option<&'static str> {
    REMOVED.iter().find(|g| g.0 == name).map(|g| g.1)
}

impl Function {
    /// The type of the function.
    pub fn of(&self) -> Type {
        index().functions.get(self.name).map_or_else(|| Type::of_signature(self.signature), |f| f.1.clone())
    }

    /// The effects that the function may have.
    pub const fn effects(&self) -> Effects {
        Effects::of(self.effects)
    }

    /// Evaluates the function for a complete list of arguments.
    pub(crate) fn evaluate<'a>(&self, given: &[Value<'a>], link_type: u16) -> Result<Value<'a>, EvaluationError> {
        (self.meaning)(&Arguments(given, link_type))
    }
}

/// The arguments of a function, and the link type of the frames. The type check has accepted the arguments; a remaining
/// mismatch is still reported as an error.
pub struct Arguments<'g, 'a>(&'g [Value<'a>], u16);

impl<'a> Arguments<'_, 'a> {
    fn act(&self, i: usize) -> Result<ActionTerm, EvaluationError> {
        if let Some(Value::Act(a)) = self.0.get(i) {
            Ok(a.clone())
        } else {
            Err(EvaluationError::Type("an action here"))
        }
    }

    fn pred(&self, i: usize) -> Result<Pred, EvaluationError> {
        if let Some(Value::Pred(p)) = self.0.get(i) {
            Ok(p.clone())
        } else {
            Err(EvaluationError::Type("a predicate here"))
        }
    }

    fn prop(&self, i: usize) -> Result<Prop, EvaluationError> {
        if let Some(Value::Prop(p)) = self.0.get(i) {
            Ok(p.clone())
        } else {
            Err(EvaluationError::Type("a property here"))
        }
    }

    fn text(&self, i: usize) -> Result<String, EvaluationError> {
        if let Some(Value::Text(t)) = self.0.get(i) { Ok(t.clone()) } else { Err(EvaluationError::Type("a text here")) }
    }

    fn net(&self, i: usize) -> Result<Prefix, EvaluationError> {
        if let Some(Value::Net(n)) = self.0.get(i) { Ok(*n) } else { Err(EvaluationError::Type("an address here")) }
    }

    fn key(&self, i: usize) -> Result<Key, EvaluationError> {
        if let Some(Value::Key(k)) = self.0.get(i) { Ok(*k) } else { Err(EvaluationError::Type("a key here")) }
    }

    fn map(&self, i: usize) -> Result<Arc<FlowMap>, EvaluationError> {
        if let Some(Value::Map(m)) = self.0.get(i) {
            Ok(m.clone())
        } else {
            Err(EvaluationError::Type("a flow map here"))
        }
    }

    /// Returns argument `i` as a probability between 0 and 1, both excluded.
    fn chance(&self, i: usize) -> Result<f64, EvaluationError> {
        let Some(Value::Chance(p)) = self.0.get(i) else { return Err(EvaluationError::Type("a probability here")) };
        if *p > 0.0 && *p < 1.0 { Ok(*p) } else { Err(EvaluationError::Probability(*p)) }
    }

    /// Returns argument `i` as a tcpdump filter.
    fn filter(&self, i: usize) -> Result<Pred, EvaluationError> {
        match filter::LinkFilter::parse(&self.text(i)?, self.1) {
            Ok(filter) if filter.test().loops() => Err(EvaluationError::FilterLoops(FilterLoops)),
            Ok(filter) => Ok(Pred::Filter(Arc::new(filter))),
            Err(e) => Err(EvaluationError::Filter(e)),
        }
    }

    /// Returns argument `i` as a class of duplicates; `None` for the text `any`.
    fn duplicate_class(&self, i: usize) -> Result<Option<DuplicateClass>, EvaluationError> {
        let text = self.text(i)?;
        let class = DuplicateClass::ALL.into_iter().find(|class| class.name() == text);
        if class.is_some() || text == "any" { Ok(class) } else { Err(EvaluationError::DuplicateClass(text)) }
    }

    fn change(&self, i: usize) -> Result<i64, EvaluationError> {
        if let Some(Value::Change(n)) = self.0.get(i) {
            Ok(*n)
        } else {
            Err(EvaluationError::Type("a change such as `(+1)`"))
        }
    }

    fn list(&self, i: usize) -> Result<&[Value<'a>], EvaluationError> {
        if let Some(Value::List(l)) = self.0.get(i) { Ok(l) } else { Err(EvaluationError::Type("a list here")) }
    }

    /// Returns argument `i` as a number from 0 to `most`.
    fn number(&self, i: usize, most: u64) -> Result<u64, EvaluationError> {
        let Some(Value::Int(n)) = self.0.get(i) else { return Err(EvaluationError::Type("a number here")) };
        within(*n, most)
    }

    /// Returns argument `i` as the name of an interface.
    fn interface(&self, i: usize) -> Result<String, EvaluationError> {
        let name = self.text(i)?;
        interface(&name)
    }
}

fn within(number: i64, maximum: u64) -> Result<u64, EvaluationError> {
    let valid = u64::try_from(number).ok().filter(|n| *n <= maximum);
    valid.ok_or(EvaluationError::OutOfRange { number, maximum })
}

/// Checks the name of an interface by the kernel's rule.
fn interface(name: &str) -> Result<String, EvaluationError> {
    let fits = (1..16).contains(&name.len()) && !name.contains(|c: char| c == '/' || c.is_whitespace());
    if fits { Ok(name.to_owned()) } else { Err(EvaluationError::InterfaceName(name.to_owned())) }
}
