//! Defines the common cases: packets with TCP or UDP over IP without options or extension headers, directly in an
//! Ethernet frame. In such a packet a few comparisons determine the offsets of all headers. So a program that is
//! specialised for a common case ([`Program::simplified_for`](super::Program::simplified_for)) has constants for all
//! packet facts except the protocol, and is much smaller.
//!
//! A packet belongs to a common case only if [`Facts::look`](crate::Facts::look) would yield exactly the facts that are
//! constants here: the network header is complete, has no options and is not a fragment; the packet ends inside the
//! frame and contains the minimal transport header; for programs that inspect tunnels, no UDP port is a tunnel port.
//! Each back end generates these comparisons itself.

use super::{Fact, Inst, Meta, Operand};
use wire::{EtherType, IpProtocol};

/// Offset of the network header, behind the Ethernet header.
const L3: u32 = 14;

/// A common case: TCP or UDP over IPv4, or over IPv6, as the module documentation defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommonCase {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl CommonCase {
    /// All common cases.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// The possible protocols.
    pub const PROTOCOLS: [u64; 2] = [IpProtocol::TCP.0 as u64, IpProtocol::UDP.0 as u64];

    /// The ethertype.
    pub const fn ethertype(self) -> u16 {
        match self {
            Self::V4 => EtherType::IPV4.0,
            Self::V6 => EtherType::IPV6.0,
        }
    }

    /// The IP version.
    pub const fn family(self) -> u8 {
        match self {
            Self::V4 => 4,
            Self::V6 => 6,
        }
    }

    /// Offset of the network header.
    pub const fn l3(self) -> u32 {
        L3
    }

    /// Offset of the transport header.
    pub const fn l4(self) -> u32 {
        match self {
            Self::V4 => L3 + 20,
            Self::V6 => L3 + 40,
        }
    }

    /// Offset in the frame of the one-byte protocol field of the IP header.
    pub const fn protocol(self) -> u32 {
        match self {
            Self::V4 => L3 + 9,
            Self::V6 => L3 + 6,
        }
    }

    /// Minimum number of captured bytes of a common case. The captured bytes then include all fields that the
    /// comparisons read, and the complete UDP header.
    pub const fn captured(self) -> u32 {
        self.l4() + 8
    }

    /// Returns the instruction for this common case: an instruction that reads a packet fact becomes a constant or a
    /// load.
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
            // A packet of a common case is not a fragment, so [`Inst::Datagram`] yields its operand `value`.
            Inst::Datagram { to, value: Operand::Imm(value), .. } => Inst::Const { to, value },
            Inst::Datagram { to, value: Operand::Reg(from), .. } => Inst::Copy { to, from },
            _ => inst.clone(),
        }
    }
}
