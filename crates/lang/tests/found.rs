//! Faults that random programs found (room `proof`), each with the smallest program that showed it.

use netgrain_lang::interp::{Interpreter, Memory};
use netgrain_lang::ir::Kind;
use netgrain_lang::{Facts, compile};
use wire::link;

/// What becomes of a frame.
fn kind(text: &str, frame: &[u8]) -> Kind {
    let program = compile(text).unwrap_or_else(|e| panic!("{}", e.show(text, "program"))).program;
    let facts = Facts::of(frame, frame.len() as u32, link::ETHERNET);
    Interpreter::new(&program).run(frame, &facts, &mut Memory::of(&program, 7)).kind
}

/// A frame that ends before its ethertype was taken for one whose ethertype is 0.
#[test]
fn what_has_no_ethertype_has_not_the_ethertype_0() {
    for text in ["main = l3_proto 0", "main = filter (is_l3_proto 0)", "main = filter (eth_type .== 0)"] {
        assert_eq!(kind(text, &[2]), Kind::Drop, "{text}");
    }
    assert_eq!(kind("main = unless (is_l3_proto 0) drop", &[2]), Kind::Drop);
}
