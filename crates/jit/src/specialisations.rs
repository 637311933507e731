//! Creates the programs that are compiled for one source program: the unspecialised program, which is correct for any
//! packet, and a smaller specialised program for each common case ([`CommonCase`]).
//!
//! `emit/common_case.rs` contains the tests that recognise a common case; `tests/it/agree.rs` modifies packets of the
//! common cases byte by byte and checks the results.

use crate::packet::ParseDepth;
use ::ir::{CommonCase, Program, Start};

/// Programs with more instructions than this are compiled without common cases, to limit code size and compile time.
const MAX_INSTRUCTIONS: usize = 500;

/// The programs that are compiled for one source program: one for any packet, and one for each common case.
#[derive(Debug)]
pub(crate) struct Specialisations {
    /// The program for any packet. It owns the address sets and flow maps that all specialisations use.
    pub whole: Program,
    /// The programs for common cases. The list is empty if the specialised programs would not be faster, or if the
    /// program has more than `MAX_INSTRUCTIONS` instructions.
    pub common_case: Vec<(CommonCase, Program)>,
    /// The depth to which the unspecialised program needs headers parsed.
    pub parse_depth: ParseDepth,
}

impl Specialisations {
    /// Computes the specialisations of a verified program.
    pub fn of(program: &Program, start: Start) -> Self {
        let whole = program.simplified(start);
        let depth = ParseDepth::of(&whole);
        let size = whole.blocks.iter().map(|b| b.code.len() + 1).sum::<usize>();
        let shapes = if depth == ParseDepth::Bytes || size > MAX_INSTRUCTIONS { &[][..] } else { &CommonCase::ALL };
        // The specialisations use the address sets and flow maps of the unspecialised program, so their own lists are
        // empty.
        let of = |shape: CommonCase| Program { sets: vec![], maps: vec![], ..program.simplified_for(shape, start) };
        let plain = shapes.iter().map(|shape| (*shape, of(*shape))).collect();
        Self { whole, common_case: plain, parse_depth: depth }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::ir::{Block, Builder, Cmp, End, Fact, Layer, Var};

    fn branches(program: &Program, from: usize) -> usize {
        let Block { end, .. } = &program.blocks[from];
        let more = usize::from(matches!(end, End::If { .. } | End::Fits { .. }));
        more + end.targets().map(|to| branches(program, to.0 as usize)).max().unwrap_or(0)
    }

    #[test]
    fn a_program_of_known_facts_has_no_branches() {
        let program = lang::compile("main = ip >-> steer_flow").expect("a program").program;
        let form = Specialisations::of(&program, Start::Fresh);
        assert_eq!(branches(&form.common_case[0].1, 0), 0, "{}", form.common_case[0].1);
        assert!(branches(&form.whole, 0) > 5);
    }

    #[test]
    fn in_a_common_case_a_protocol_other_than_tcp_is_udp() {
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
    fn a_program_without_facts_has_no_common_case() {
        let program = lang::packet_filter::program(&filter::LinkFilter::parse("tcp port 80", 1).expect("a filter"))
            .expect("no loop");
        assert!(Specialisations::of(&program, Start::Fresh).common_case.is_empty());
    }
}
