//! Changes of the Ethernet header: MAC addresses and the outermost VLAN tag (IEEE 802.1Q).

use std::fmt;
use std::str::FromStr;
use wire::{EtherType, Ethernet, MacAddr};

/// The fields of an Ethernet header with a tag.
mod at {
    use std::ops::Range;

    pub const DESTINATION: Range<usize> = 0..6;
    pub const SOURCE: Range<usize> = 6..12;
    pub const ETHERTYPE: usize = 12;
    pub const TCI: Range<usize> = 14..16;
    pub const TAG: Range<usize> = 12..16;
}

/// Mask of the VLAN id within the tag control information.
const ID: u16 = 0x0fff;

/// New MAC addresses; `None` keeps the address of the capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MacRewrite {
    /// The source address.
    pub source: Option<MacAddr>,
    /// The destination address.
    pub destination: Option<MacAddr>,
}

impl MacRewrite {
    /// True if no address changes.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Writes the addresses into a frame that has an Ethernet header.
    pub(super) fn apply(&self, frame: &mut [u8]) {
        if let Some(source) = self.source {
            frame[at::SOURCE].copy_from_slice(&source.0);
        }
        if let Some(destination) = self.destination {
            frame[at::DESTINATION].copy_from_slice(&destination.0);
        }
    }
}

/// A change of the outermost VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VlanEdit {
    /// Adds a tag with this VLAN id and priority 0 before all other tags.
    Add(u16),
    /// Replaces the VLAN id and keeps the priority.
    Set(u16),
    /// Removes the tag.
    Remove,
}

/// The error for a text that is no change of VLAN tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseVlanEditError(String);

impl fmt::Display for ParseVlanEditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no change of VLAN tags: write add:100, set:100 (ids 0 to 4095) or remove", self.0)
    }
}

impl std::error::Error for ParseVlanEditError {}

impl FromStr for VlanEdit {
    type Err = ParseVlanEditError;

    fn from_str(text: &str) -> Result<Self, ParseVlanEditError> {
        let id = |text: &str| text.parse().ok().filter(|id| *id <= ID);
        let edit = match text.split_once(':') {
            None if text == "remove" => Some(Self::Remove),
            Some(("add", text)) => id(text).map(Self::Add),
            Some(("set", text)) => id(text).map(Self::Set),
            _ => None,
        };
        edit.ok_or_else(|| ParseVlanEditError(text.to_owned()))
    }
}

impl VlanEdit {
    /// Number of bytes by which the change makes the frame longer (positive) or shorter.
    pub(super) fn growth(self, frame: &[u8]) -> isize {
        match self {
            Self::Add(_) => at::TAG.len() as isize,
            Self::Remove if is_tagged(frame) => -(at::TAG.len() as isize),
            Self::Set(_) | Self::Remove => 0,
        }
    }
}

/// True if the MAC addresses are followed by a complete VLAN tag and an ethertype.
fn is_tagged(frame: &[u8]) -> bool {
    let is_vlan = |bytes: &[u8]| EtherType(u16::from_be_bytes([bytes[0], bytes[1]])).is_vlan();
    frame.len() >= Ethernet::LEN + at::TAG.len() && is_vlan(&frame[at::ETHERTYPE..])
}

/// Appends the frame with the changed tag. Returns false if the frame has no tag to change; the frame is then appended
/// unchanged.
pub(super) fn append(frame: &[u8], edit: Option<VlanEdit>, out: &mut Vec<u8>) -> bool {
    let begin = out.len();
    match edit {
        None => out.extend_from_slice(frame),
        Some(VlanEdit::Add(id)) => {
            out.extend_from_slice(&frame[..at::ETHERTYPE]);
            out.extend_from_slice(&EtherType::VLAN.0.to_be_bytes());
            out.extend_from_slice(&id.to_be_bytes());
            out.extend_from_slice(&frame[at::ETHERTYPE..]);
        }
        Some(VlanEdit::Set(_) | VlanEdit::Remove) if !is_tagged(frame) => {
            out.extend_from_slice(frame);
            return false;
        }
        Some(VlanEdit::Set(id)) => {
            out.extend_from_slice(frame);
            let tci = &mut out[begin..][at::TCI];
            let new = (u16::from_be_bytes([tci[0], tci[1]]) & !ID) | id;
            tci.copy_from_slice(&new.to_be_bytes());
        }
        Some(VlanEdit::Remove) => {
            out.extend_from_slice(&frame[..at::TAG.start]);
            out.extend_from_slice(&frame[at::TAG.end..]);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::build::Frame;

    fn edited(frame: &[u8], edit: VlanEdit) -> (Vec<u8>, bool) {
        let mut out = vec![0xee; 3];
        let changed = append(frame, Some(edit), &mut out);
        assert_eq!(out.len() as isize - 3, frame.len() as isize + edit.growth(frame));
        (out.split_off(3), changed)
    }

    #[test]
    fn texts_that_are_no_change_are_refused() {
        for bad in ["", "add", "add:", "add:4096", "set:-1", "remove:5", "drop"] {
            assert!(bad.parse::<VlanEdit>().expect_err(bad).to_string().contains("write add:100"), "{bad}");
        }
        assert_eq!("set:4095".parse(), Ok(VlanEdit::Set(4095)));
    }

    #[test]
    fn tags_are_added_changed_and_removed() {
        let mut buffer = [0; 200];
        let plain = Frame::udp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 2).payload(b"text");
        let untagged = plain.write(&mut buffer).unwrap().to_vec();
        let tagged = plain.tag(EtherType::VLAN, 0xa064).write(&mut buffer).unwrap().to_vec();
        let other = plain.tag(EtherType::VLAN, 0xa0ff).write(&mut buffer).unwrap().to_vec();
        let added = plain.tag(EtherType::VLAN, 7).write(&mut buffer).unwrap().to_vec();
        let double = plain.tag(EtherType::VLAN, 7).tag(EtherType::VLAN, 0xa064).write(&mut buffer).unwrap().to_vec();
        assert_eq!(edited(&untagged, VlanEdit::Add(7)), (added, true));
        assert_eq!(edited(&tagged, VlanEdit::Add(7)), (double.clone(), true));
        assert_eq!(edited(&tagged, VlanEdit::Set(0xff)), (other, true), "the priority is kept");
        assert_eq!(edited(&tagged, VlanEdit::Remove), (untagged.clone(), true));
        assert_eq!(edited(&double, VlanEdit::Remove), (tagged, true), "the inner tag is kept");
        assert_eq!(edited(&untagged, VlanEdit::Remove), (untagged.clone(), false));
        assert_eq!(edited(&untagged, VlanEdit::Set(1)), (untagged, false));
    }

    #[test]
    fn a_truncated_tag_is_no_tag() {
        let mut frame = [0; 17];
        frame[12..14].copy_from_slice(&[0x81, 0]);
        assert_eq!(edited(&frame, VlanEdit::Remove), (frame.to_vec(), false));
    }
}
