//! The layout of the 512-byte stack of a kernel program, as offsets from r10.
//!
//! ```text
//!    -8  context              -16  address of the packet         -24  address of the end of the packet
//!   -56  verdict record, in the layout of the metadata (`super::meta`)
//!   -72  facts of the headers and the sink of the packet, unaligned within their slots
//!   -80  time                -152  key of a map, addend         -168  value of a map      -176  index of an array
//!        then a slot for each value that has no register
//! ```
//! The facts are unaligned on purpose. For an unaligned value on the stack, the kernel's verifier records only the
//! width, so the verifier does not check the program separately for each number of tags and options in a packet.

use super::refusal::Refusal;

pub const CONTEXT: i16 = -8;
pub const DATA: i16 = -16;
pub const DATA_END: i16 = -24;
pub const RECORD: i16 = -56;
pub const TIME: i16 = -80;
/// Offset, in the stack frame, of the key for a map access (at most eight words).
pub const KEY: i16 = -152;
pub const ADDEND: i16 = -88;
pub const VALUE: i16 = -168;
pub const INDEX: i16 = -176;

/// Offsets of the packet facts in the stack frame. A fact has one byte; ethertype, VLAN tag, the offset of an extension
/// header, and the number of the sink have two bytes.
pub mod fact {
    const AT: i16 = -72;
    pub const L3: i16 = AT + 1;
    pub const ETHERTYPE: i16 = AT + 2;
    /// One instruction clears the four facts that begin at this offset.
    pub const FAMILY: i16 = AT + 4;
    pub const PROTOCOL: i16 = AT + 5;
    pub const FRAGMENT: i16 = AT + 6;
    pub const L4: i16 = AT + 7;
    pub const VLAN: i16 = AT + 10;
    pub const OFFSET: i16 = AT + 12;
    /// Offset of the number of the packet's sink: 0 for none, 1 for the host's stack, otherwise the index of an
    /// interface plus 2.
    pub const SINK: i16 = AT + 14;
}

const STACK: usize = 512;

/// The offset from r10 of the slot with this number.
pub fn slot(n: usize) -> i16 {
    INDEX - 8 * (n as i16 + 1)
}

/// Checks that the stack has space for this number of slots.
pub fn fits(slots: usize) -> Result<(), Refusal> {
    let need = usize::from(INDEX.unsigned_abs()) + 8 * slots;
    if need <= STACK { Ok(()) } else { Err(Refusal::Stack { need, have: STACK }) }
}
