//! Generates random well-typed programs from the function table; arguments have the types that the table declares.
//!
//! The module [`crate::literals`] contains the valid numbers and texts for each function.

use crate::literals::literal;
use crate::source::{Binding, CallStyle, Expr, Node, Source};
use crate::values::{NETS, VLANS, pick};
use base::Prng;
use ir::Effect;
use lang::table::{self, Function, PARTS};
use lang::types::Type;
use std::sync::OnceLock;

/// Generates a program with up to `stages` stages. The program uses the function whose index is `number` modulo the
/// size of the function table, so that few programs are sufficient to use all functions. If `roomy` is true, the flow
/// maps of the program are so large that they never refuse an entry.
pub fn write(prng: &mut Prng, stages: u64, number: u64, roomy: bool) -> Source {
    let mut w = Writer { prng, bindings: vec![], roomy };
    let mut steps: Vec<Expr> = (0..w.prng.below(stages)).map(|_| w.stage()).collect();
    let count = rows().len() as u64;
    let wanted = w.with(&rows()[(number % count) as usize]);
    // The stage with the wanted function is either the first stage, which receives every packet, or a later stage,
    // which receives packets for which earlier stages have set state.
    let at = if (number / count).is_multiple_of(2) { 0 } else { w.prng.below(steps.len() as u64 + 1) as usize };
    steps.insert(at, wanted);
    let main = Expr { node: w.one_of([Node::Do, Node::Chain]), of: Type::Act, args: steps };
    w.named(main)
}

/// Generates an action with its maps, for programs that combine several actions. The `prefix` of the names makes them
/// unique.
pub fn action(prng: &mut Prng, prefix: &str) -> Source {
    let mut w = Writer { prng, bindings: vec![], roomy: true };
    let main = w.expr(&Type::Act, 2);
    let source = Source { bindings: w.bindings, main, is_packet_named: false };
    let renamed = |name: &str| format!("{prefix}{name}");
    let bindings = source.bindings.iter();
    let bindings = bindings.map(|b| Binding { name: renamed(&b.name), ..b.clone() }).collect();
    Source { bindings, main: rename(&source.main, &renamed), ..source }
}

fn rename(e: &Expr, to: &impl Fn(&str) -> String) -> Expr {
    let node = match &e.node {
        Node::Use(name) => Node::Use(to(name)),
        node => node.clone(),
    };
    Expr { node, of: e.of.clone(), args: e.args.iter().map(|a| rename(a, to)).collect() }
}

/// A function of the packet language, with its parameter types and result type.
struct Row {
    function: &'static Function,
    takes: Vec<Type>,
    gives: Type,
}

fn rows() -> &'static [Row] {
    static ROWS: OnceLock<Vec<Row>> = OnceLock::new();
    ROWS.get_or_init(|| {
        let all = PARTS.iter().flat_map(|p| p.1);
        all.map(|function| {
            let of = function.of();
            let (takes, gives) = of.parts();
            Row { function, takes: takes.into_iter().cloned().collect(), gives: gives.clone() }
        })
        .collect()
    })
}

/// True if a value of this type can be written without a function that takes a value of the same type.
fn is_flat(of: &Type) -> bool {
    match of {
        Type::Act | Type::Pred | Type::Prop | Type::Arm => false,
        Type::List(of) => is_flat(of),
        _ => true,
    }
}

struct Writer<'a> {
    prng: &'a mut Prng,
    bindings: Vec<Binding>,
    roomy: bool,
}

impl Writer<'_> {
    fn chance(&mut self, one_in: u64) -> bool {
        self.prng.below(one_in) == 0
    }

    fn one_of<T: Clone, const N: usize>(&mut self, of: [T; N]) -> T {
        of[self.prng.below(N as u64) as usize].clone()
    }

    /// Generates a stage. Most stages let packets pass, since otherwise no packet would reach the later stages.
    fn stage(&mut self) -> Expr {
        let act = match self.prng.below(3) {
            0 => self.expr(&Type::Act, 2),
            1 => {
                let tame = |r: &Row| !r.function.effects().has(Effect::Drop) && r.gives == Type::Act;
                self.call(2, &tame)
            }
            _ => {
                let (predicate, act) = (self.expr(&Type::Pred, 1), self.expr(&Type::Act, 1));
                let word = self.one_of(["when", "unless"]);
                Expr::call(word, vec![predicate, act])
            }
        };
        self.with_a_map(act)
    }

    /// If the action contains `steer_common`, adds a map, because such a program must contain a flow map.
    fn with_a_map(&mut self, act: Expr) -> Expr {
        let is_common = act.any(&|e| matches!(e.node, Node::Call("steer_common", _)));
        if !is_common || !self.bindings.is_empty() {
            return act;
        }
        let map = self.map();
        Expr { node: Node::Chain, of: Type::Act, args: vec![Expr::call("incr_fstate", vec![map]), act] }
    }

    /// Generates a stage with a call of this function.
    fn with(&mut self, row: &Row) -> Expr {
        let call = self.call_of(row, 2);
        let list = |of: Type, item: Expr| Expr { node: Node::List, of: Type::List(Box::new(of)), args: vec![item] };
        let act = match &row.gives {
            Type::Pred => Expr::call(self.one_of(["when", "unless"]), vec![call, self.expr(&Type::Act, 1)]),
            Type::Prop => {
                let number = literal(self.prng, "less", 1, &Type::Int, &[], self.roomy);
                let predicate = Expr::call("less", vec![call, Expr::word(Type::Int, number)]);
                Expr::call("when", vec![predicate, self.expr(&Type::Act, 1)])
            }
            Type::Key => Expr::call("steer_key", vec![call]),
            Type::Net => Expr::call("addr", vec![call]),
            Type::Map => {
                let room = literal(self.prng, "up_to", 0, &Type::Int, &[], self.roomy);
                let map = Expr::call("up_to", vec![Expr::word(Type::Int, room), call]);
                Expr::call("incr_fstate", vec![self.named_map(map)])
            }
            Type::Counter => Expr::call("inc", vec![call]),
            Type::Int => {
                let nets = list(Type::Net, Expr::word(Type::Net, pick(self.prng, &NETS)));
                Expr::call("bloom_filter", vec![call, nets, Expr::word(Type::Int, "24")])
            }
            Type::Arm => Expr::call("case_of", vec![self.expr(&Type::Prop, 1), list(Type::Arm, call)]),
            Type::List(_) => Expr::call("case_of", vec![self.expr(&Type::Prop, 1), call]),
            _ => call,
        };
        self.with_a_map(act)
    }

    /// Generates an expression of this type; `depth` limits the nesting of functions that take values of their own
    /// result type.
    fn expr(&mut self, of: &Type, depth: u32) -> Expr {
        match of {
            Type::Map => self.map(),
            Type::Prop if depth == 0 && self.chance(12) => self.call(1, &|r| r.function.name == "bits"),
            Type::Key if self.chance(3) => Expr::call("key_5tuple", vec![]),
            Type::Pred if depth > 0 && self.chance(14) => self.expr(&Type::Prop, depth - 1),
            Type::Pred if self.chance(12) => self.filters(),
            Type::Act if depth > 0 && self.chance(8) => self.control(depth),
            Type::Key if depth == 0 => self.call(0, &|r| r.gives == Type::Key && r.takes.is_empty()),
            Type::Key => self.call(depth - 1, &|r| r.gives == Type::Key),
            Type::List(item) => {
                // Some address lists are so long that back ends use a search structure instead of a comparison with
                // each network.
                let many = **item == Type::Net && self.chance(4);
                let count = match **item {
                    _ if many => 8 + self.prng.below(16),
                    // The front end refuses a `case` without alternatives.
                    Type::Arm => 1 + self.prng.below(3),
                    _ => self.prng.below(4),
                };
                let items = (0..count).map(|_| self.argument("", 0, item, &[], depth.saturating_sub(1)));
                Expr { node: Node::List, of: of.clone(), args: items.collect() }
            }
            _ if depth == 0 => self.call(0, &|r| r.gives == *of && r.takes.iter().all(is_flat)),
            _ => self.call(depth, &|r| r.gives == *of),
        }
    }

    /// Generates a call of a random function for which the predicate is true.
    fn call(&mut self, depth: u32, is: &dyn Fn(&Row) -> bool) -> Expr {
        let count = rows().iter().filter(|r| is(r)).count() as u64;
        let chosen = self.prng.below(count) as usize;
        let row = rows().iter().filter(|r| is(r)).nth(chosen).expect("a function");
        self.call_of(row, depth)
    }

    fn call_of(&mut self, row: &Row, depth: u32) -> Expr {
        let below = depth.saturating_sub(u32::from(!row.takes.iter().all(is_flat)));
        let mut args: Vec<Expr> = Vec::new();
        for (i, of) in row.takes.iter().enumerate() {
            let arg = self.argument(row.function.name, i, of, &args, below);
            args.push(arg);
        }
        let f = row.function;
        let names = f.aliases.len() as u64;
        let name = match self.prng.below(3 + names) {
            n if n < names => f.aliases[n as usize],
            _ => f.name,
        };
        let written = self.written(f, &args);
        Expr { node: Node::Call(name, written), of: row.gives.clone(), args }
    }

    fn written(&mut self, f: &Function, args: &[Expr]) -> CallStyle {
        if args.len() == 2 && self.chance(8) {
            return CallStyle::Between;
        }
        if !args.is_empty() && self.chance(8) {
            return CallStyle::Dollar;
        }
        if self.chance(8) && matches!(f.of().parts().1, Type::Act | Type::Pred | Type::Prop) {
            return CallStyle::Packet;
        }
        let signs: Vec<_> =
            table::operators().filter(|s| table::operator(s).is_some_and(|o| o.name == f.name)).collect();
        // Only some operators accept a number as either operand.
        if !signs.is_empty() && self.prng.below(4) > 0 {
            CallStyle::Operator(pick(self.prng, &signs))
        } else {
            CallStyle::Before
        }
    }

    /// Generates the argument for a parameter of a function.
    fn argument(&mut self, function: &str, at: usize, of: &Type, before: &[Expr], depth: u32) -> Expr {
        match (function, of) {
            ("CIDR", Type::Net) => Expr::word(Type::Net, pick(self.prng, &NETS)),
            ("modifyCounter" | "inc" | "dec", Type::Int) if self.chance(3) => {
                Expr::call("counter", vec![Expr::word(Type::Int, self.prng.below(8).to_string())])
            }
            (
                "bloom" | "bloom_src" | "bloom_dst" | "bloom_filter" | "bloom_src_filter" | "bloom_dst_filter",
                Type::Int,
            ) if at == 0 && self.chance(2) => self.call(0, &|r| r.gives == Type::Int),
            (_, Type::Net) if self.chance(8) => self.call(0, &|r| r.gives == Type::Net),
            (_, Type::Counter) => self.call(0, &|r| r.gives == Type::Counter),
            (_, Type::Int | Type::Text | Type::Interface | Type::Net | Type::Chance | Type::Change) => {
                Expr::word(of.clone(), literal(self.prng, function, at, of, before, self.roomy))
            }
            ("vlan_id" | "vlan_id_filter", Type::List(_)) => {
                let ids = (0..self.prng.below(4)).map(|_| match self.prng.below(8) {
                    0 => Expr::word(Type::Int, "-1"),
                    _ => Expr::word(Type::Int, pick(self.prng, &VLANS).to_string()),
                });
                Expr { node: Node::List, of: of.clone(), args: ids.collect() }
            }
            ("case_of", Type::List(_)) if self.chance(2) => self.call(depth, &|r| r.function.name == "with"),
            (_, Type::Act | Type::Pred | Type::Prop | Type::Arm) if depth == 0 && *of == Type::Arm => {
                self.call(0, &|r| r.gives == Type::Arm)
            }
            _ => self.expr(of, depth),
        }
    }

    /// Generates a control structure, or a call of a function that selects the IP packet (outer or inner) or the
    /// endpoint that its argument tests.
    fn control(&mut self, depth: u32) -> Expr {
        let below = depth - 1;
        let acts = |w: &mut Self, n: u64| (0..n).map(|_| w.expr(&Type::Act, below)).collect::<Vec<_>>();
        if self.chance(3) {
            // Generates a call of a function that selects the IP packet (outer or inner) or the endpoint that its
            // argument tests. Such calls are often nested.
            let mut act = self.expr(&Type::Act, below);
            for _ in 0..1 + self.prng.below(3) {
                act = Expr::call(self.one_of(["shift", "outer", "src", "dst"]), vec![act]);
            }
            return act;
        }
        let (node, args) = match self.prng.below(4) {
            0 => {
                let predicate = self.expr(&Type::Pred, below);
                (Node::If, [vec![predicate], acts(self, 2)].concat())
            }
            1 => {
                let property = self.expr(&Type::Prop, below);
                let arms = self.prng.below(3);
                let first = self.prng.below(64);
                let numbers = (0..arms).map(|i| if i == 0 { first } else { first + 3 * i });
                (Node::Case(numbers.collect()), [vec![property], acts(self, arms + 1)].concat())
            }
            2 => (Node::Do, {
                let n = 1 + self.prng.below(3);
                acts(self, n)
            }),
            _ => (Node::Chain, {
                let n = 2 + self.prng.below(2);
                acts(self, n)
            }),
        };
        Expr { node, of: Type::Act, args }
    }

    /// Generates a chain of filters, which the language accepts where a predicate is expected.
    fn filters(&mut self) -> Expr {
        let (_, filters) = PARTS[0];
        let flat: Vec<&Row> = rows()
            .iter()
            .filter(|r| filters.iter().any(|f| f.name == r.function.name))
            // Functions with a state of their own, such as `unique`, are no predicates.
            .filter(|r| r.takes.iter().all(is_flat) && !r.function.effects().has(Effect::Local))
            .collect();
        let count = 1 + self.prng.below(2);
        let steps: Vec<Expr> = (0..count)
            .map(|_| {
                let row = pick(self.prng, &flat);
                self.call_of(row, 0)
            })
            .collect();
        Expr { node: Node::Chain, of: Type::Act, args: steps }
    }

    /// Returns a map of the program, or adds a new map.
    fn map(&mut self) -> Expr {
        let count = self.bindings.len();
        if count > 0 && (count == 3 || self.prng.below(3) > 0) {
            let known = self.prng.below(count as u64) as usize;
            return Expr { node: Node::Use(self.bindings[known].name.clone()), of: Type::Map, args: vec![] };
        }
        let key = self.expr(&Type::Key, 2);
        let number = Expr::word(Type::Int, self.prng.below(64).to_string());
        let mut body = Expr::call("flow_map", vec![number, key]);
        let mut wraps = vec!["up_to"];
        if self.prng.below(3) > 0 {
            wraps.insert(self.prng.below(2) as usize, self.one_of(["idle_after", "for_ms"]));
        }
        for word in wraps {
            let number = literal(self.prng, word, 0, &Type::Int, &[], self.roomy);
            body = Expr::call(word, vec![Expr::word(Type::Int, number), body]);
        }
        self.named_map(body)
    }

    fn named_map(&mut self, body: Expr) -> Expr {
        let name = format!("m{}", self.bindings.len());
        self.bindings.push(Binding { name: name.clone(), takes: None, body });
        Expr { node: Node::Use(name), of: Type::Map, args: vec![] }
    }

    /// Moves parts of the program into bindings, functions and lambdas.
    fn named(mut self, mut main: Expr) -> Source {
        self.outside(&mut main, Shape::Name);
        self.outside(&mut main, Shape::Function);
        self.outside(&mut main, Shape::Lambda);
        let is_packet_named = self.chance(3);
        Source { bindings: self.bindings, main, is_packet_named }
    }

    /// Moves a random part of the program into a new construct of this shape, and replaces the part by a reference to
    /// the construct.
    fn outside(&mut self, main: &mut Expr, shape: Shape) {
        let at = 1 + self.prng.below(main.words() as u64) as usize;
        let is_one = |e: &&mut Expr| matches!(e.of, Type::Act | Type::Pred | Type::Prop);
        let part = nth(main, at).filter(|part| is_one(part) || part.of == Type::Key);
        let Some(part) = part.filter(|_| self.chance(3)) else { return };
        let (of, mut given) = (part.of.clone(), None);
        if shape != Shape::Name {
            let inside = 1 + self.prng.below(part.words() as u64) as usize;
            let Some(inner) = nth(part, inside).filter(is_one) else { return };
            let parameter = Expr { node: Node::Parameter, of: inner.of.clone(), args: vec![] };
            given = Some(std::mem::replace(inner, parameter));
        }
        let whole = Expr { node: Node::Lambda, of, args: vec![] };
        let body = std::mem::replace(part, whole);
        if shape == Shape::Lambda {
            part.args.push(body);
        } else {
            let name = if shape == Shape::Name { "p" } else { "f" }.to_owned();
            part.node = Node::Use(name.clone());
            self.bindings.push(Binding { name, takes: given.as_ref().map(|g| g.of.clone()), body });
        }
        part.args.extend(given);
    }
}

/// The construct into which a part of the program is moved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// `p = …`
    Name,
    /// `f x = …`
    Function,
    /// `(\\x -> …) …`
    Lambda,
}

/// The `n`th subexpression, in the order of the source text; 0 is the expression itself.
fn nth(e: &mut Expr, mut n: usize) -> Option<&mut Expr> {
    if n == 0 {
        return Some(e);
    }
    n -= 1;
    for arg in &mut e.args {
        let words = arg.words();
        if n < words {
            return nth(arg, n);
        }
        n -= words;
    }
    None
}
