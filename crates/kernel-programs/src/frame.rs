//! The stack of the kernel's half: 512 bytes below r10.
//!
//! ```text
//!    -8  the context          -16  the packet's first byte       -24  the byte behind its last one
//!   -56  the record, as it stands before the packet later (`super::meta`)
//!   -72  facts of the headers and where the packet goes, each within a slot rather than at its start
//!   -80  the time            -152  a map's key, an addend       -168  a map's value       -176  an array's index
//!        then a slot for each number that has no register
//! ```
//! Facts are kept unaligned on purpose: of what is written there the verifier only remembers how wide it is, so it does not go
//! through the program once for each number of tags and options.

use super::refusal::Refusal;

pub const CONTEXT: i16 = -8;
pub const DATA: i16 = -16;
pub const DATA_END: i16 = -24;
pub const RECORD: i16 = -56;
pub const TIME: i16 = -80;
/// A key of eight words.
pub const KEY: i16 = -152;
pub const ADDEND: i16 = -88;
pub const VALUE: i16 = -168;
pub const INDEX: i16 = -176;

/// One byte each, but for the type, the tag and the offset of an extension header, which have two.
pub mod fact {
    const AT: i16 = -72;
    pub const L3: i16 = AT + 1;
    pub const ETHERTYPE: i16 = AT + 2;
    /// The four from here on are zeroed as one.
    pub const FAMILY: i16 = AT + 4;
    pub const PROTOCOL: i16 = AT + 5;
    pub const FRAGMENT: i16 = AT + 6;
    pub const L4: i16 = AT + 7;
    pub const VLAN: i16 = AT + 10;
    pub const OFFSET: i16 = AT + 12;
    /// 0 nowhere, 1 the stack, else two more than a device's index.
    pub const SINK: i16 = AT + 14;
}

const STACK: usize = 512;

/// Where a slot is.
pub fn slot(n: usize) -> i16 {
    INDEX - 8 * (n as i16 + 1)
}

/// Whether so many slots are there.
pub fn fits(slots: usize) -> Result<(), Refusal> {
    let need = usize::from(INDEX.unsigned_abs()) + 8 * slots;
    if need <= STACK { Ok(()) } else { Err(Refusal::Stack { need, have: STACK }) }
}
