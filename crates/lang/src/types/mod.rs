//! Types of expressions. Type inference runs before evaluation.

mod advice;
mod infer;

pub use infer::{BindingInfo, infer};

use std::fmt;

/// The type of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// An action: handles a packet, and passes or drops it.
    Act,
    /// A predicate: a condition on a packet.
    Pred,
    /// A property: a number that a packet may have.
    Prop,
    /// A number.
    Int,
    /// A probability, as a fraction.
    Chance,
    /// The packet, as a parameter that the program names.
    Packet,
    /// A text.
    Text,
    /// The name of an interface.
    Interface,
    /// An address or a network.
    Net,
    /// The fields that form a flow key.
    Key,
    /// A flow map.
    Map,
    /// A counter of the group.
    Counter,
    /// A change of a number, such as `(+ 1)`.
    Change,
    /// An arm of `case_of`.
    Arm,
    /// A list whose elements have the same type.
    List(Box<Type>),
    /// A function from the first type to the second.
    Fun(Box<Type>, Box<Type>),
    /// A type variable: stands for any type, the same type at each occurrence of the number.
    Var(usize),
}

impl Type {
    /// Parses a signature such as `Pred -> Act -> Act`. Only signatures of the function table are parsed, so an unknown
    /// type name is a bug in that table.
    pub fn of_signature(text: &str) -> Self {
        let parts: Vec<_> = text.split("->").map(|p| Self::of_word(p.trim())).collect();
        let mut types = parts.into_iter().rev();
        let last = types.next().unwrap_or(Self::Act);
        types.fold(last, |to, from| Self::Fun(Box::new(from), Box::new(to)))
    }

    fn of_word(word: &str) -> Self {
        match word {
            "Act" => Self::Act,
            "Pred" => Self::Pred,
            "Prop" => Self::Prop,
            "Int" => Self::Int,
            "Chance" => Self::Chance,
            "Text" => Self::Text,
            "Interface" => Self::Interface,
            "Net" => Self::Net,
            "Key" => Self::Key,
            "Map" => Self::Map,
            "Counter" => Self::Counter,
            "Change" => Self::Change,
            "Arm" => Self::Arm,
            list => match list.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                Some(inner) => Self::List(Box::new(Self::of_word(inner))),
                None => unreachable!("unknown type `{list}` in a signature of the function table"),
            },
        }
    }

    /// The parameter types in order, and the result type.
    pub fn parts(&self) -> (Vec<&Self>, &Self) {
        let (mut takes, mut gives) = (Vec::new(), self);
        while let Self::Fun(from, to) = gives {
            takes.push(&**from);
            gives = to;
        }
        (takes, gives)
    }

    /// True for the types whose values are applied to a packet: actions, predicates and properties.
    pub(crate) const fn is_of_packet(&self) -> bool {
        matches!(self, Self::Act | Self::Pred | Self::Prop)
    }

    /// True if the type contains the type variable.
    fn references(&self, var: usize) -> bool {
        match self {
            Self::Var(n) => *n == var,
            Self::List(of) => of.references(var),
            Self::Fun(from, to) => from.references(var) || to.references(var),
            _ => false,
        }
    }

    /// The type as a noun phrase for messages.
    pub fn words(&self) -> String {
        match self {
            Self::Act => "an action".into(),
            Self::Pred => "a predicate".into(),
            Self::Prop => "a property".into(),
            Self::Int => "a number".into(),
            Self::Chance => "a probability such as `0.001`".into(),
            Self::Packet => "the packet".into(),
            Self::Text => "a text in quotes".into(),
            Self::Interface => "an interface name".into(),
            Self::Net => "an address or a network".into(),
            Self::Key => "a key".into(),
            Self::Map => "a flow map".into(),
            Self::Counter => "a counter".into(),
            Self::Change => "a change such as `(+1)`".into(),
            Self::Arm => "an arm such as `0 ~> drop`".into(),
            Self::List(of) => format!("a list in which each element is {}", of.words()),
            Self::Fun(..) => format!("a function ({self})"),
            Self::Var(_) => "anything".into(),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List(of) => write!(f, "[{of}]"),
            Self::Fun(from, to) if matches!(**from, Self::Fun(..)) => write!(f, "({from}) -> {to}"),
            Self::Fun(from, to) => write!(f, "{from} -> {to}"),
            Self::Var(n) => write!(f, "{}", char::from(b'a' + (*n % 26) as u8)),
            simple => write!(f, "{simple:?}"),
        }
    }
}
