//! Literals for the parameters of functions, selected by function name, because the types in the function table do not
//! state the valid ranges.

use crate::source::{Expr, Node};
use crate::values::{ETHERTYPES, FILTERS, INTERFACES, MACS, NETS, NUMBERS, PORTS, PROTOCOLS, VLANS, pick};
use base::Prng;
use lang::types::Type;

/// Returns a valid literal for a parameter of this function; `at` is the index of the parameter.
pub fn literal(prng: &mut Prng, function: &str, at: usize, of: &Type, before: &[Expr], roomy: bool) -> String {
    let six = |e: Option<&Expr>| e.is_some_and(|e| matches!(&e.node, Node::Word(w) if w.contains(':')));
    let quoted = |text: &str| format!("\"{text}\"");
    match of {
        Type::Interface => return quoted(pick(prng, &INTERFACES)),
        Type::Chance => return pick(prng, &["0.001", "1e-3", "0.25", "1000"]).to_owned(),
        Type::Change => return pick(prng, &["(+1)", "(-1)", "(+40)", "(- 3)"]).to_owned(),
        Type::Net => {
            let net = pick(prng, &NETS);
            if prng.below(3) == 0 && function != "steer_local_net" {
                let [a, b, c] = [pick(prng, &[10, 10, 192]), prng.below(4), prng.below(4)];
                return format!("{a}.{b}.{c}.{}/{}", prng.below(4), 8 + prng.below(25));
            }
            return match prng.below(3) {
                0 => quoted(net),
                1 if net.contains('/') && function != "steer_local_net" => {
                    let (address, bits) = net.split_once('/').expect("a slash");
                    format!("(\"{address}\", {bits})")
                }
                _ => net.to_owned(),
            };
        }
        Type::Text => {
            return match function {
                "bpf" | "matches" => quoted(&filter(prng, 2)),
                "is_duplicate" => quoted(pick(prng, &["any", "switching", "routing", "nat", "proxying", "fragment"])),
                "steer_local_link" => quoted(&pick(prng, &MACS).map(|b| format!("{b:02x}")).join(":")),
                _ => quoted(pick(prng, &["seen", "a log, with signs: ()"])),
            };
        }
        _ => (),
    }
    let number = match (function, at) {
        ("port" | "src_port" | "dst_port" | "has_port" | "has_src_port" | "has_dst_port" | "has_port_range", _) => {
            pick(prng, &PORTS).into()
        }
        ("flow_port", _) => pick(prng, &PORTS).max(1).into(),
        ("l3_proto" | "is_l3_proto", _) => pick(prng, &ETHERTYPES).into(),
        ("l4_proto" | "is_l4_proto", _) => pick(prng, &PROTOCOLS).into(),
        ("has_vid", _) => pick(prng, &VLANS).into(),
        ("bloom" | "bloom_src" | "bloom_dst" | "bloom_filter" | "bloom_src_filter" | "bloom_dst_filter", 2) => {
            pick(prng, &[0, 8, 24, 31, 32, 64, 128])
        }
        ("less" | "less_eq" | "equal" | "not_equal" | "greater" | "greater_eq" | "any_bit" | "all_bit" | "bits", 1) => {
            match prng.below(3) {
                0 => prng.below(70),
                1 => pick(prng, &PORTS).into(),
                _ => pick(prng, &NUMBERS),
            }
        }
        ("field", 0) | ("steer_field" | "steer_field_symmetric" | "double_steer_field", 0 | 1)
            if function != "steer_field" || at == 0 =>
        {
            pick(prng, &[0, 6, 12, 14, 20, 23, 26, 30, 34, 50, 59, 65_000])
        }
        ("field", 1) => 1 + prng.below(8),
        ("steer_field" | "steer_field_symmetric" | "double_steer_field", _) => 1 + prng.below(4),
        ("steer_local_net", _) if six(before.first()) => pick(prng, &[0, 10, 32, 64, 128]),
        ("steer_local_net", _) => pick(prng, &[0, 8, 24, 31, 32]),
        ("steer_gtp_usr", _) => pick(prng, &[0, 8, 16, 32]),
        ("classify" | "deliver" | "dispatch", _) => pick(prng, &[0, 1, 2, 40, 62]),
        ("mark" | "put_state" | "has_mark" | "has_state", _) => pick(prng, &[0, 1, 2, 42, 42, 65_536, 0xffff_ffff]),
        ("steer_to", _) => pick(prng, &[0, 1, 3, 0xffff_ffff]),
        ("up_to", _) if roomy => 4096,
        ("up_to", _) => 1 + prng.below(6),
        ("idle_after" | "for_ms" | "unique", _) => 1 + prng.below(5),
        ("bloomCalcP", 1) => 1 + prng.below(5000),
        ("bloomCalcM" | "bloomCalcN" | "bloomCalcP", _) => prng.below(5000),
        _ => prng.below(8),
    };
    match prng.below(10) {
        0 | 1 => format!("{number:#x}"),
        2 if number > 0 => format!("({} + 1)", number - 1),
        3 if number < 1 << 32 => format!("({number} * 3 - {})", 2 * number),
        _ => number.to_string(),
    }
}

/// A tcpdump filter.
fn filter(prng: &mut Prng, depth: u32) -> String {
    if depth == 0 || prng.below(2) == 0 {
        return if prng.below(3) == 0 { relation(prng) } else { pick(prng, &FILTERS).to_owned() };
    }
    let (a, b) = (filter(prng, depth - 1), filter(prng, depth - 1));
    match prng.below(4) {
        0 => format!("not ({a})"),
        1 => format!("({a}) or ({b})"),
        2 => format!("{a} and not ({b})"),
        _ => format!("({a}) and {b}"),
    }
}

/// A comparison of two arithmetic expressions on packet fields.
fn relation(prng: &mut Prng) -> String {
    let value = |prng: &mut Prng| match prng.below(4) {
        0 => "len".to_owned(),
        1 => (1 + prng.below(300)).to_string(),
        _ => {
            let header = pick(prng, &["ether", "ip", "ip6", "tcp", "udp", "icmp"]);
            format!("{header}[{}:{}]", prng.below(40), pick(prng, &[1, 2, 4]))
        }
    };
    let op = pick(prng, &["+", "-", "*", "&", "|", "^", "/", "%", "<<", ">>"]);
    let second = if op.len() == 2 { prng.below(32).to_string() } else { value(prng) };
    let cmp = pick(prng, &["<", ">", "<=", ">=", "=", "!="]);
    format!("{} {op} {second} {cmp} {}", value(prng), value(prng))
}
