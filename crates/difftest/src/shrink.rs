//! Reduces a failing case to fewer packets, fewer stages, and smaller expressions of the same type.
//!
//! In each step, candidates are derived from the failing case, and the first candidate that also fails is the case of
//! the next step. Every candidate has a smaller [`Source::size`], or fewer or shorter packets, so the reduction
//! terminates.

use crate::case::Case;
use crate::source::{Binding, Expr, Node, Source};
use crate::values::FILTERS;
use lang::types::Type;

/// Maximum number of candidates that are run to reduce one failing case.
const MAX: usize = 20_000;

/// Reduces a failing case.
pub fn shrink(mut case: Case, fails: &dyn Fn(&Case) -> bool) -> Case {
    let mut left = MAX;
    while let Some(smaller) = next(&case, fails, &mut left) {
        case = smaller;
    }
    case
}

/// Returns the first candidate, a smaller case, for which the test also fails.
fn next(case: &Case, fails: &dyn Fn(&Case) -> bool, left: &mut usize) -> Option<Case> {
    let programs = std::iter::once_with(|| smaller(&case.source)).flatten();
    let programs = programs.map(|source| Case { source, ..case.clone() });
    let mut all = fewer_packets(case).chain(programs).chain(shorter_packets(case)).take(*left);
    all.find(|c| {
        *left -= 1;
        fails(c)
    })
}

/// Candidates with fewer packets: first without any packet, then with half of the packets removed, then with a quarter
/// removed, and so on down to one removed packet.
fn fewer_packets(case: &Case) -> impl Iterator<Item = Case> {
    let count = case.packets.len();
    let lengths = std::iter::successors(Some(count), |n| Some(n / 2)).take_while(|n| *n > 0);
    lengths.flat_map(move |len| (0..count).step_by(len).map(move |from| (from, len))).map(move |(from, len)| {
        let mut packets = case.packets.clone();
        packets.drain(from..(from + len).min(count));
        Case { packets, ..case.clone() }
    })
}

/// Candidates in which one packet is truncated: first to half of its length, then to three quarters, and so on until
/// only one byte is removed.
fn shorter_packets(case: &Case) -> impl Iterator<Item = Case> {
    (0..case.packets.len()).flat_map(move |i| {
        let len = case.packets[i].bytes.len();
        let cuts = std::iter::successors(Some(len / 2), |n| Some(n / 2)).take_while(|n| *n > 0);
        cuts.map(move |cut| {
            let mut shorter = case.clone();
            let packet = &mut shorter.packets[i];
            packet.facts.wire_len = packet.facts.wire_len.min((len - cut) as u32);
            packet.bytes.truncate(len - cut);
            shorter
        })
    })
}

/// Returns smaller programs, each of which differs from this program in one expression.
pub fn smaller(source: &Source) -> Vec<Source> {
    let mut all = vec![source.inlined(), Source { is_packet_named: false, ..source.clone() }];
    all.extend(of_expr(&source.main).into_iter().map(|main| Source { main, ..source.clone() }));
    for (i, binding) in source.bindings.iter().enumerate() {
        all.extend(of_expr(&binding.body).into_iter().map(|body| {
            let mut smaller = source.clone();
            smaller.bindings[i] = Binding { body, ..binding.clone() };
            smaller
        }));
    }
    let size = source.size();
    let mut all: Vec<Source> = all.into_iter().map(Source::tidied).collect();
    all.retain(|s| s.size() < size);
    all.sort_by_key(Source::size);
    all.dedup();
    all
}

/// Returns smaller expressions of the same type that may replace an expression.
fn of_expr(e: &Expr) -> Vec<Expr> {
    let mut all = Vec::new();
    parts(e, &e.of, &mut all);
    all.extend(simplest(&e.of));
    if e.of == Type::Act {
        // A conditional can be replaced by a filter with its condition.
        let predicates = e.args.iter().filter(|a| a.of == Type::Pred);
        all.extend(predicates.map(|p| Expr::call("filter", vec![p.clone()])));
    }
    let without = |i: usize| {
        let mut args = e.args.clone();
        args.remove(i);
        args
    };
    match &e.node {
        Node::Do | Node::Chain if e.args.len() > 1 => {
            all.extend((0..e.args.len()).map(|i| Expr { args: without(i), ..e.clone() }));
        }
        Node::List => all.extend((0..e.args.len()).map(|i| Expr { args: without(i), ..e.clone() })),
        Node::Case(numbers) => all.extend((0..numbers.len()).map(|i| {
            let mut fewer = numbers.clone();
            fewer.remove(i);
            Expr { node: Node::Case(fewer), args: without(i + 1), ..e.clone() }
        })),
        Node::Word(word) if e.of == Type::Int => {
            if let Ok(n) = word.parse::<u64>() {
                all.extend([0, 1, n / 2, n.saturating_sub(1)].map(|n| Expr::word(Type::Int, n.to_string())));
            } else {
                all.push(Expr::word(Type::Int, "0"));
            }
        }
        Node::Word(_) if e.of == Type::Text => {
            all.extend(FILTERS.iter().map(|filter| Expr::word(Type::Text, format!("\"{filter}\""))));
        }
        Node::Call(name, _) => {
            let plain = Expr { of: e.of.clone(), ..Expr::call(name, e.args.clone()) };
            all.push(plain);
        }
        _ => (),
    }
    for (i, arg) in e.args.iter().enumerate() {
        for smaller in of_expr(arg) {
            let mut args = e.args.clone();
            args[i] = smaller;
            all.push(Expr { args, ..e.clone() });
        }
    }
    all
}

/// Appends to `all` the subexpressions of `e` that have this type.
fn parts(e: &Expr, of: &Type, all: &mut Vec<Expr>) {
    for arg in &e.args {
        if arg.of == *of {
            all.push(arg.clone());
        }
        parts(arg, of, all);
    }
}

/// The smallest expressions that have this type.
fn simplest(of: &Type) -> Vec<Expr> {
    let calls = |names: &[&'static str]| names.iter().map(|n| Expr::call(n, vec![])).collect();
    match of {
        Type::Act => calls(&["unit", "drop", "ip"]),
        Type::Pred => calls(&["is_ip"]),
        Type::Prop => calls(&["pkt_len", "get_mark", "ip_ttl"]),
        Type::Key => calls(&["key_vlan", "key_ip_src"]),
        Type::Net => vec![Expr::word(Type::Net, "::/0")],
        _ => vec![],
    }
}
