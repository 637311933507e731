//! pcapng (draft-ietf-opsawg-pcapng): blocks of 32-bit words, with the length at both ends, and options after the
//! fields.
//!
//! ```text
//! block  type u32 | length u32 | body ... | length u32        section header, then interfaces, then packets
//! option code u16 | length u16 | value, padded to 4 bytes     code 0 ends the list
//! ```
//! The reader supports any number of sections in either byte order, every time resolution, and enhanced, simple and
//! obsolete packet blocks. It skips other blocks by their length, including interface statistics. The writer writes
//! little-endian blocks with nanoseconds, and the options that report losses: `epb_dropcount` and the counters of the
//! interface statistics.

mod interface_description;
mod read;
mod resolution;
mod write;

use crate::window::ByteOrder;
pub use interface_description::InterfaceDescription;
pub(crate) use read::Ng;
pub use write::{InterfaceOptions, PacketOptions, SectionOptions, Statistics, Writer};

/// Types of blocks.
mod block {
    pub const SECTION: u32 = 0x0a0d_0d0a;
    pub const INTERFACE: u32 = 1;
    pub const OBSOLETE_PACKET: u32 = 2;
    pub const SIMPLE_PACKET: u32 = 3;
    pub const STATISTICS: u32 = 5;
    pub const ENHANCED_PACKET: u32 = 6;
}

/// Codes of options; each block type has its own codes.
mod option {
    pub const END: u16 = 0;
    pub const COMMENT: u16 = 1;
    pub const SHB_HARDWARE: u16 = 2;
    pub const SHB_OS: u16 = 3;
    pub const SHB_USERAPPL: u16 = 4;
    pub const IF_NAME: u16 = 2;
    pub const IF_DESCRIPTION: u16 = 3;
    pub const IF_TSRESOL: u16 = 9;
    pub const IF_FILTER: u16 = 11;
    pub const IF_OS: u16 = 12;
    pub const IF_FCSLEN: u16 = 13;
    pub const IF_TSOFFSET: u16 = 14;
    pub const IF_HARDWARE: u16 = 15;
    pub const EPB_FLAGS: u16 = 2;
    pub const EPB_DROPCOUNT: u16 = 4;
    pub const EPB_QUEUE: u16 = 6;
    pub const ISB_STARTTIME: u16 = 2;
    pub const ISB_ENDTIME: u16 = 3;
    pub const ISB_IFRECV: u16 = 4;
    pub const ISB_IFDROP: u16 = 5;
    pub const ISB_FILTERACCEPT: u16 = 6;
    pub const ISB_OSDROP: u16 = 7;
    pub const ISB_USRDELIV: u16 = 8;
}

/// The first word of a section header's body, in the byte order of the section.
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// `if_tsresol` for nanoseconds.
const NANOSECONDS: u8 = 9;

/// The options in the given bytes of a block, up to the end mark or the first option that does not fit.
fn options(mut rest: &[u8], order: ByteOrder) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (head, tail) = rest.split_at_checked(4)?;
        let (code, len) = (order.u16(head, 0), usize::from(order.u16(head, 2)));
        if code == option::END {
            return None;
        }
        let value = tail.get(..len)?;
        rest = tail.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((code, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_exceeds_the_block_ends_the_list() {
        let list = [9, 0, 1, 0, 6, 0, 0, 0, 14, 0, 8, 0, 1, 2, 3, 4];
        let found: Vec<_> = options(&list, ByteOrder::Little).collect();
        assert_eq!(found, [(option::IF_TSRESOL, &[6][..])]);
        assert_eq!(options(&list[..3], ByteOrder::Little).count(), 0);
        assert_eq!(options(&[], ByteOrder::Big).count(), 0);
    }

    #[test]
    fn options_after_the_end_mark_are_ignored() {
        let list = [0, 0, 0, 0, 0, 9, 0, 1, 6, 0, 0, 0];
        assert_eq!(options(&list, ByteOrder::Big).count(), 0);
        assert_eq!(options(&list[4..], ByteOrder::Big).collect::<Vec<_>>(), [(9, &[6][..])]);
    }
}
