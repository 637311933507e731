//! What most packets are: TCP or UDP over IP without options or extensions, straight in Ethernet. Of such a packet a few
//! comparisons say where every header is, so a program that is made for them alone ([`Program::simplified_for`](super::Program::simplified_for)) knows all facts but one
//! as numbers, and is a fraction of itself.
//!
//! A packet counts as plain only if [`Facts::look`](crate::Facts::look) would say of it exactly what is put in here: the network header is
//! whole, has no options and is no fragment; the packet ends inside the frame, and behind the least transport header; where the program looks
//! into tunnels, no port of UDP is one that a tunnel may be behind. The back ends make these comparisons, each in its own way.

use super::{Fact, Inst, Meta, Operand};
use wire::{EtherType, IpProtocol};

/// Behind the link addresses and the ethertype.
const L3: u32 = 14;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommonCase {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl CommonCase {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// What its protocol is one of.
    pub const PROTOCOLS: [u64; 2] = [IpProtocol::TCP.0 as u64, IpProtocol::UDP.0 as u64];

    /// Its type, behind the link addresses.
    pub const fn ethertype(self) -> u16 {
        match self {
            Self::V4 => EtherType::IPV4.0,
            Self::V6 => EtherType::IPV6.0,
        }
    }

    /// Its version of IP.
    pub const fn family(self) -> u8 {
        match self {
            Self::V4 => 4,
            Self::V6 => 6,
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

    /// So many bytes of it were captured at least: all that it is known by, and the header of UDP.
    pub const fn captured(self) -> u32 {
        self.l4() + 8
    }

    /// What asks for headers as the answer.
    pub(super) fn known(self, inst: &Inst) -> Inst {
        match *inst {
            Inst::Fact { to, fact: Fact::Protocol, .. } => {
                Inst::Load { to, base: None, offset: self.protocol(), width: 1 }
            }
            Inst::Fact { to, fact, .. } => {
                let value = match fact {
                    Fact::Ethertype => self.ethertype().into(),
                    Fact::L3 => self.l3().into(),
                    Fact::L4 => self.l4().into(),
                    Fact::Family => self.family().into(),
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
