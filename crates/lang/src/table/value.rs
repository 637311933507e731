//! The values that functions of the language take and return.

use super::Function;
use crate::syntax::Expr;
use crate::term::{ActionTerm, FlowMap, Pred, Prop};
use ir::Prefix;
use ir::key::Key;
use std::sync::Arc;

/// A probability can also be written as an integer, which counts millionths: 1,000,000 means probability 1.
pub const MILLION: f64 = 1e6;

/// The value of an expression.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// An action.
    Act(ActionTerm),
    /// A predicate.
    Pred(Pred),
    /// A property.
    Prop(Prop),
    /// A number.
    Int(i64),
    /// A probability.
    Chance(f64),
    /// The packet, which is not known before the program runs.
    Packet,
    /// A text.
    Text(String),
    /// An address or a network.
    Net(Prefix),
    /// A flow key.
    Key(Key),
    /// A flow map.
    Map(Arc<FlowMap>),
    /// A counter.
    Counter(u8),
    /// A change of a number, such as `(+ 1)`.
    Change(i64),
    /// An arm of `case_of`.
    Arm(u64, ActionTerm),
    /// A list.
    List(Vec<Value<'a>>),
    /// A function of the function table and its arguments so far.
    Function(&'static Function, Vec<Value<'a>>),
    /// A function of the program and its arguments so far.
    Closure(&'a [String], &'a Expr, Vec<Value<'a>>, Vec<(String, Value<'a>)>),
}
