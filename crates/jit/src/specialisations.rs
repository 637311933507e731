//! A program in the forms that are compiled: the whole one, which serves any packet, and beside it one for each sort of plain packets
//! ([`CommonCase`]), which is a fraction of it.
//!
//! Which comparisons tell a plain packet is in `emit/plain.rs`, and `tests/agree.rs` bends such packets byte by byte.

use crate::packet::ParseDepth;
use lang::ir::{CommonCase, Program, Start};

/// Programs with more instructions are compiled in their whole form alone, so that code and compile time stay in proportion.
const MAX_INSTRUCTIONS: usize = 500;

/// What the code of one task is made from.
#[derive(Debug)]
pub(crate) struct Specialisations {
    /// For any packet; it has the sets and maps of all.
    pub whole: Program,
    /// For plain packets, where that is worth while.
    pub common_case: Vec<(CommonCase, Program)>,
    /// How far the whole program looks.
    pub parse_depth: ParseDepth,
}

impl Specialisations {
    /// Of a verified program.
    pub fn of(program: &Program, start: Start) -> Self {
        let whole = program.simplified(start);
        let sight = ParseDepth::of(&whole);
        let size = whole.blocks.iter().map(|b| b.code.len() + 1).sum::<usize>();
        let shapes = if sight == ParseDepth::Bytes || size > MAX_INSTRUCTIONS { &[][..] } else { &CommonCase::ALL };
        // Its sets and maps are those of the whole.
        let of = |shape: CommonCase| Program { sets: vec![], maps: vec![], ..program.simplified_for(shape, start) };
        let plain = shapes.iter().map(|shape| (*shape, of(*shape))).collect();
        Self { whole, common_case: plain, parse_depth: sight }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lang::ir::{Block, Builder, Cmp, End, Fact, Layer, Var};

    fn branches(program: &Program, from: usize) -> usize {
        let Block { end, .. } = &program.blocks[from];
        let more = usize::from(matches!(end, End::If { .. } | End::Fits { .. }));
        more + end.targets().map(|to| branches(program, to.0 as usize)).max().unwrap_or(0)
    }

    #[test]
    fn where_all_is_known_nothing_is_asked() {
        let program = lang::compile("main = ip >-> steer_flow").expect("a program").program;
        let form = Specialisations::of(&program, Start::Fresh);
        assert_eq!(branches(&form.common_case[0].1, 0), 0, "{}", form.common_case[0].1);
        assert!(branches(&form.whole, 0) > 5);
    }

    #[test]
    fn what_is_not_tcp_is_udp() {
        let mut b = Builder::default();
        let (protocol, tcp) = (b.fact(Layer::Inner, Fact::Protocol), b.label());
        b.require(protocol, Cmp::Ne, 6, tcp);
        for other in [17, 132] {
            let (no, next) = (b.label(), b.label());
            b.require(protocol, Cmp::Eq, other, no);
            b.set(Var::Mark, other);
            b.jump(next);
            b.place(no);
            b.set(Var::State, other);
            b.place(next);
        }
        b.place(tcp);
        b.pass();
        let form = Specialisations::of(&b.finish(), Start::Fresh);
        assert_eq!(
            (branches(&form.whole, 0), branches(&form.common_case[1].1, 0)),
            (3, 1),
            "{}",
            form.common_case[1].1
        );
    }

    #[test]
    fn a_program_that_looks_at_bytes_alone_has_one_form() {
        let program = lang::packet_filter::program(&filter::LinkFilter::parse("tcp port 80", 1).expect("a filter"))
            .expect("no loop");
        assert!(Specialisations::of(&program, Start::Fresh).common_case.is_empty());
    }
}
