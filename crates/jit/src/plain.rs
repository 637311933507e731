//! What most packets are: TCP or UDP over IP without options or extensions, straight in Ethernet. Of such a packet a few
//! comparisons say where every header is, so a program that is made for them alone knows all facts but one as numbers, and is
//! a fraction of itself. The code has it beside the whole program, which serves all other packets.
//!
//! A packet counts as plain only if [`lang::Facts::look`] would say of it exactly what is put in here; which comparisons that
//! takes is in `emit/plain.rs`, and `tests/agree.rs` bends such packets byte by byte.

use crate::packet::Sight;
use crate::simplify::{Start, simplify};
use lang::ir::{Fact, Inst, Meta, Operand, Program};
use wire::{EtherType, IpProtocol};

/// Programs with more instructions are compiled in their whole form alone, so that code and compile time stay in proportion.
const MOST_INSTRUCTIONS: usize = 500;

/// Behind the link addresses and the ethertype.
const L3: u32 = 14;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plain {
    V4,
    V6,
}

impl Plain {
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// What its protocol is one of.
    pub const PROTOCOLS: [u64; 2] = [IpProtocol::TCP.0 as u64, IpProtocol::UDP.0 as u64];

    pub const fn ethertype(self) -> u16 {
        match self {
            Self::V4 => EtherType::IPV4.0,
            Self::V6 => EtherType::IPV6.0,
        }
    }

    /// Where the network header begins.
    pub const fn l3(self) -> u32 {
        L3
    }

    /// Where the transport header begins.
    pub const fn l4(self) -> u32 {
        match self {
            Self::V4 => L3 + 20,
            Self::V6 => L3 + 40,
        }
    }

    /// Where its protocol is: one byte.
    pub const fn protocol(self) -> u32 {
        match self {
            Self::V4 => L3 + 9,
            Self::V6 => L3 + 6,
        }
    }

    /// So many bytes of it were captured at least: all that it is known by, and the ports.
    pub const fn captured(self) -> u32 {
        self.l4() + 4
    }

    /// The program for such packets only.
    fn of(self, program: &Program, start: Start) -> Program {
        let blocks = program.blocks.iter().map(|block| {
            let code = block.code.iter().map(|inst| self.known(inst)).collect();
            lang::ir::Block { code, ..*block }
        });
        let known = Program { blocks: blocks.collect(), sets: vec![], maps: vec![], ..program.clone() };
        simplify(&known, start, Some(self))
    }

    /// What asks for headers as the answer.
    fn known(self, inst: &Inst) -> Inst {
        match *inst {
            Inst::Fact { to, fact: Fact::Protocol, .. } => {
                Inst::Load { to, base: None, offset: self.protocol(), width: 1 }
            }
            Inst::Fact { to, fact, .. } => {
                let value = match fact {
                    Fact::Ethertype => self.ethertype().into(),
                    Fact::L3 => self.l3().into(),
                    Fact::L4 => self.l4().into(),
                    Fact::Family if self == Self::V4 => 4,
                    Fact::Family => 6,
                    Fact::Protocol | Fact::Fragment => 0,
                };
                Inst::Const { to, value }
            }
            Inst::Meta { to, meta: Meta::Ethernet } => Inst::Const { to, value: 1 },
            Inst::Meta { to, meta: Meta::Vlan | Meta::Depth | Meta::Part } => Inst::Const { to, value: 0 },
            // Of what is whole nothing is remembered.
            Inst::Datagram { to, value: Operand::Imm(value), .. } => Inst::Const { to, value },
            Inst::Datagram { to, value: Operand::Reg(from), .. } => Inst::Copy { to, from },
            _ => inst.clone(),
        }
    }
}

/// What the code of one task is made from.
#[derive(Debug)]
pub(crate) struct Form {
    /// For any packet; it has the sets and maps of all.
    pub whole: Program,
    /// For plain packets, where that is worth while.
    pub plain: Vec<(Plain, Program)>,
    /// How far the whole program looks.
    pub sight: Sight,
}

impl Form {
    /// Of a verified program.
    pub fn of(program: &Program, start: Start) -> Self {
        let whole = simplify(program, start, None);
        let sight = Sight::of(&whole);
        let size = whole.blocks.iter().map(|b| b.code.len() + 1).sum::<usize>();
        let shapes = if sight == Sight::Bytes || size > MOST_INSTRUCTIONS { &[][..] } else { &Plain::ALL };
        let plain = shapes.iter().map(|shape| (*shape, shape.of(program, start))).collect();
        Self { whole, plain, sight }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lang::ir::{Block, Builder, Cmp, End, Layer, Var};

    fn branches(program: &Program, from: usize) -> usize {
        let Block { end, .. } = &program.blocks[from];
        let more = usize::from(matches!(end, End::If { .. } | End::Fits { .. }));
        more + end.targets().map(|to| branches(program, to.0 as usize)).max().unwrap_or(0)
    }

    #[test]
    fn where_all_is_known_nothing_is_asked() {
        let program = lang::compile("main = ip >-> steer_flow").expect("a program").program;
        let form = Form::of(&program, Start::Fresh);
        assert_eq!(branches(&form.plain[0].1, 0), 0, "{}", form.plain[0].1);
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
        let form = Form::of(&b.finish(), Start::Fresh);
        assert_eq!((branches(&form.whole, 0), branches(&form.plain[1].1, 0)), (3, 1), "{}", form.plain[1].1);
    }

    #[test]
    fn a_program_that_looks_at_bytes_alone_has_one_form() {
        let program = lang::tcpdump::Filter::parse("tcp port 80").expect("a filter").program();
        assert!(Form::of(&program, Start::Fresh).plain.is_empty());
    }
}
