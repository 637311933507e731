//! The interface description block (draft-ietf-opsawg-pcapng §4.2), for reading and writing.
//!
//! ```text
//! type u32 = 1 | length u32 | link type u16 | 0 u16 | snaplen u32 | options ... | length u32
//! ```

use super::{option, options};
use crate::window::ByteOrder;

/// Bytes before the options.
pub(super) const FIELDS: usize = 16;

/// The content of an interface description block. Texts are empty if the block has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct InterfaceDescription {
    /// Link type in the numbering of pcap.
    pub link_type: u16,
    /// Largest number of bytes that the capture stores of each packet; 0 if there is no limit.
    pub snaplen: u32,
    /// Name of the interface in its operating system.
    pub name: String,
    /// A description for people.
    pub description: String,
    /// The capture filter, if it is a libpcap filter expression; other kinds of filters are omitted.
    pub filter: String,
    /// The hardware of the interface.
    pub hardware: String,
    /// The operating system of the interface's host.
    pub os: String,
    /// A comment.
    pub comment: String,
}

impl InterfaceDescription {
    /// Parses a whole block in the byte order of its section; `None` if it is too short for its fields.
    pub fn of(block: &[u8], big_endian: bool) -> Option<Self> {
        let order = if big_endian { ByteOrder::Big } else { ByteOrder::Little };
        // The last word of the block repeats the length of the block.
        let body = block.split_last_chunk::<4>()?.0;
        let list = body.get(FIELDS..)?;
        let mut reported = Self { link_type: order.u16(body, 8), snaplen: order.u32(body, 12), ..Self::default() };
        let text = |value: &[u8]| String::from_utf8_lossy(value).trim_end_matches('\0').to_owned();
        for (code, value) in options(list, order) {
            match (code, value) {
                (option::COMMENT, comment) => reported.comment = text(comment),
                (option::IF_NAME, name) => reported.name = text(name),
                (option::IF_DESCRIPTION, description) => reported.description = text(description),
                // The first byte is the filter's language: 0 is a libpcap expression.
                (option::IF_FILTER, [0, filter @ ..]) => reported.filter = text(filter),
                (option::IF_OS, os) => reported.os = text(os),
                (option::IF_HARDWARE, hardware) => reported.hardware = text(hardware),
                _ => {}
            }
        }
        Some(reported)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{InterfaceOptions, Writer};
    use super::*;

    #[test]
    fn an_interface_description_round_trips() {
        let reported = InterfaceDescription {
            link_type: 113,
            snaplen: 99,
            name: "eth0".into(),
            description: "the left one".into(),
            filter: "tcp".into(),
            hardware: "a card".into(),
            os: "Linux".into(),
            comment: "of a test".into(),
        };
        let mut file = Writer::new(Vec::new(), "", "").expect("a buffer");
        let begin = file.sink().len();
        let InterfaceDescription { link_type, snaplen, .. } = reported;
        let InterfaceDescription { name, description, filter, hardware, os, comment, .. } = &reported;
        let says = InterfaceOptions { name, description, filter, hardware, os, comment, link_type, snaplen };
        file.describe(&says).expect("a buffer");
        let bytes = file.finish().expect("a buffer");
        assert_eq!(InterfaceDescription::of(&bytes[begin..], false), Some(reported));
        for len in 0..FIELDS + 4 {
            assert_eq!(InterfaceDescription::of(&bytes[begin..begin + len], false), None, "{len}");
        }
        // A block truncated at any byte yields fewer texts and no panic.
        for len in FIELDS + 4..bytes.len() - begin {
            assert!(InterfaceDescription::of(&bytes[begin..begin + len], false).is_some(), "{len}");
            assert!(InterfaceDescription::of(&bytes[begin..begin + len], true).is_some(), "{len}");
        }
    }
}
