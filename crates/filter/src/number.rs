//! Defines arithmetic expressions of filters after lowering. Their operands are 32-bit numbers and bytes of the packet.

use crate::header_offset::HeaderOffset;
use crate::tree::Op;

/// A number.
#[derive(Clone, Debug, PartialEq)]
pub enum Number {
    /// A constant.
    Is(u32),
    /// The wire length in bytes.
    Len,
    /// An operator and its operands.
    Op(Op, Box<Number>, Box<Number>),
    /// Bytes of the frame.
    Load {
        /// The position in the frame from which `index` counts.
        base: Base,
        /// The index, in bytes from the base.
        index: Box<Number>,
        /// Width in bytes.
        width: u8,
    },
}

/// The position in the frame from which the index of loaded bytes (`i` in `tcp[i]`) counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Base {
    /// A fixed offset.
    At(HeaderOffset),
    /// The first byte after the IPv4 header that begins at this offset.
    BehindIpv4(HeaderOffset),
    /// The start of the network header that [`wire::Headers`] found.
    Network {
        /// True if a frame may begin with the network header, at offset 0; otherwise the offset 0 means that there is
        /// no network header.
        may_begin: bool,
    },
    /// The start of the transport header that [`wire::Headers`] found.
    Transport,
}

impl Number {
    /// The number of operators, loads and constants in the expression.
    pub fn node_count(&self) -> usize {
        match self {
            Self::Is(_) | Self::Len => 1,
            Self::Op(_, a, b) => 1 + a.node_count() + b.node_count(),
            Self::Load { index, .. } => 1 + index.node_count(),
        }
    }

    /// The value of the expression, if the value does not depend on the packet.
    pub fn constant(&self) -> Option<u32> {
        match self {
            Self::Is(n) => Some(*n),
            Self::Len | Self::Load { .. } => None,
            Self::Op(op, a, b) => op.apply(a.constant()?, b.constant()?),
        }
    }
}
