//! Messages for type errors: the expected type, the actual type, and a likely correction.

use super::Type;
use crate::similar;
use crate::syntax::{Binding, Error, Expr, Node};
use crate::table::{self, Function};
use std::ops::Range;

/// The name of the called function, quoted for the message about one of its arguments.
pub fn subject(f: &Expr) -> String {
    match &f.node {
        Node::Name(name) => format!("`{name}`"),
        Node::Apply(f, _) => subject(f),
        _ => "this".to_owned(),
    }
}

/// The advice to add parentheses around a comparison, for wrong source such as `filter ip_ttl .< 9` or
/// `is_tcp .&&. ip_ttl .< 9`.
pub fn binding(op: &str, first: &Expr) -> Option<String> {
    if !(op.starts_with('.') || op.ends_with('.')) {
        return None;
    }
    Some(match &first.node {
        Node::Apply(..) => {
            let f = subject(first);
            format!(
                "{f} takes only the words directly after it as arguments: write `{} (… {op} …)`",
                f.trim_matches('`')
            )
        }
        _ => "comparisons bind less tightly than `.&&.` and `.||.`: put each comparison into parentheses".to_owned(),
    })
}

/// The advice to add parentheses around an argument, for wrong source such as `when is_tcp forward "eth1"`.
pub fn parenthesize(f: &Expr, args: &[Expr]) -> String {
    let name = |e: &Expr| if let Node::Name(n) = &e.node { Some(n.clone()) } else { None };
    let mut inner = args.iter().filter_map(|a| {
        let n = name(a)?;
        table::find(&n).filter(|f| !f.of().parts().0.is_empty()).map(|_| n)
    });
    match (inner.next_back(), name(f)) {
        (Some(inner), Some(outer)) => {
            format!("put `{inner}` and its arguments into parentheses: `{outer} … ({inner} …)`")
        }
        _ => "put each function and its arguments into parentheses".to_owned(),
    }
}

/// Returns advice that lists the parameters of a function of the function table in order, if it has several.
pub fn order(f: &Expr) -> Option<String> {
    let Node::Name(name) = &f.node else { return None };
    let of = table::find(name)?.of();
    let takes: Vec<_> = of.parts().0.iter().map(|t| t.words()).collect();
    (takes.len() > 1).then(|| format!("`{name}` takes, in this order: {}", takes.join("; ")))
}

/// Returns an example call of a function of the function table, also if the expression already applies it to some
/// arguments.
pub fn example(f: &Expr) -> Option<String> {
    match &f.node {
        Node::Name(name) => table::find(name)?.example(),
        Node::Apply(f, _) => example(f),
        _ => None,
    }
}

/// The error for an argument after the last parameter of a function that takes `taken` arguments.
pub fn too_many(subject: &str, of: &Type, taken: usize, arg: &Expr) -> Error {
    let what = match taken {
        0 => format!("{subject} is {}, and takes no argument", of.words()),
        n => format!("{subject} takes {n} {}; this value is one too many", if n == 1 { "value" } else { "values" }),
    };
    Error::new(arg.span.clone(), what).help(match of {
        Type::Pred => "join predicates by `.&&.`, `.||.` or `.^^.`",
        Type::Int | Type::Text | Type::Net => {
            "separate the values of a list by commas, and put a function before its arguments"
        }
        Type::Key => "join keys by `<>`",
        _ => "join actions by `>->`, or put them on lines of a `do`",
    })
}

/// The error for a value of another type than expected.
pub fn mismatch(e: &Expr, actual: &Type, expected: &Type, subject: &str) -> Error {
    let error = Error::new(
        e.span.clone(),
        format!("{subject} takes {} here, but this is {}", expected.words(), actual.words()),
    );
    match (actual, expected) {
        (Type::Pred, Type::Act) => {
            error.help("write `filter (…)` to drop all other packets, or `when (…)` to act on these packets")
        }
        (Type::Pred, Type::Prop) if subject == "`case`" => error.help("for a predicate write `if … then … else …`"),
        // Only functions of the table have an example; operators and names of the program have none.
        (Type::Prop, Type::Int)
            if let Some(example) = table::find(subject.trim_matches('`')).and_then(Function::example) =>
        {
            error.help(format!("the function takes a constant, not a property of the packet: `{example}`"))
        }
        (Type::Prop, Type::Int | Type::Act) => error.help("compare the property with a number: `ip_ttl .< 9`"),
        (Type::Int | Type::Net | Type::Prop, Type::Text) => error.help("put the text in quotes"),
        (_, Type::Interface) => error.help(format!("put the name in quotes: `{} \"eth1\"`", subject.trim_matches('`'))),
        (Type::Text, Type::Int) => error.help("write numbers without quotes"),
        (Type::Key, Type::Int) if matches!(subject, "`+`" | "`*`" | "`-`") => error.help("join keys by `<>`"),
        (Type::Map, Type::Act) => {
            error.help("bind the map to a name, and count in it: `flows = flow_map 0 key_5tuple`, `incr_fstate flows`")
        }
        (Type::Key, Type::Act) => error.help("steer by the key: `steer_key (…)`"),
        (Type::Text | Type::Net, Type::Act) => {
            error.help("apply a function to the value: `forward \"eth1\"`, `addr 10.0.0.0/8`")
        }
        (Type::List(_), Type::Act) => error.help("join actions by `>->`, or put them on lines of a `do`"),
        (actual, Type::List(of))
            if actual == &**of || matches!((actual, &**of), (Type::Text, Type::Interface | Type::Net)) =>
        {
            error.help("write the value as a list: `[…]`")
        }
        (Type::Fun(..), _) => {
            let (takes, gives) = actual.parts();
            let lacks = takes.iter().map(|t| t.words()).collect::<Vec<_>>().join(" and ");
            match () {
                () if gives == expected && subject == "`main`" => error.help(match example(e) {
                    Some(example) => format!("the function still needs {lacks}: `{example}`"),
                    None => format!("the function still needs {lacks}"),
                }),
                () if gives == expected => {
                    error.help(format!("give the function {lacks}, and put the complete call into parentheses"))
                }
                () if *gives == Type::Pred && *expected == Type::Act => error.help(format!(
                    "the predicate still needs {lacks}; then `filter (…)` drops packets for which it does not hold"
                )),
                () => error,
            }
        }
        _ => error,
    }
}

/// The name of the key for a field: `ip_src` → `key_ip_src`; `None` if there is no such key.
fn as_key(name: &str) -> Option<String> {
    let key = format!("key_{name}");
    table::find(&key).map(|_| key)
}

/// The advice for the name of a property where a key is required: names the key of the same field.
pub fn key_of(e: &Expr) -> Option<String> {
    let Node::Name(name) = &e.node else { return None };
    as_key(name).map(|key| format!("the key of this field is `{key}`"))
}

/// The error for an undefined name.
pub fn unknown(name: &str, span: Range<usize>, scope: &[(String, Type)], bindings: &[Binding]) -> Error {
    let error = Error::unknown_name(span, name);
    if let Some(why) = table::removed(name) {
        return error.help(why);
    }
    if let Some(class) = ["default", "user", "control"].iter().position(|class| *class == name) {
        return error.help(format!("write the class as a number: {class} for `{name}`"));
    }
    if let Some(key) = as_key(name) {
        return error.help(format!("to use this field in a flow key, write `{key}`"));
    }
    if let Some((port, _)) = filter::service(name) {
        return error.help(format!("write the port as a number: {port} for `{name}`"));
    }
    let known = scope.iter().map(|s| s.0.as_str()).chain(bindings.iter().map(|b| b.name.as_str()));
    let all: Vec<&str> = known.chain(table::names().map(|n: &str| n)).collect();
    match similar::suggestion(name, &all) {
        Some(question) => error.help(question),
        None if name.chars().any(|c| c.is_ascii_digit()) => {
            error.help(format!("put the text in quotes: `forward \"{name}\"`"))
        }
        None => error.help(
            "docs/reference/packet-language-functions.md lists all functions; define your own as bindings: `name = …`",
        ),
    }
}
