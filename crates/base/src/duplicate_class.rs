//! The classes of duplicate packets.

use std::fmt;

/// The class of a duplicate packet (thesis of HPCAP, section 4.4): the kind of device between the two points at which
/// the mirror port copied the frame. The number of a class is in the annotations of ring descriptors and in files, so
/// it never changes; numbers have three bits, and 0 means that the packet is no duplicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DuplicateClass {
    /// A switch: the same frame; the VLAN tag may differ.
    Switching = 1,
    /// A router: the MAC addresses and the TTL differ.
    Routing = 2,
    /// Network address translation: the address and the port of one side differ, too.
    Nat = 3,
    /// A proxy: a new connection with the same payload.
    Proxying = 4,
    /// A router or network address translation, for a fragment without a transport header.
    Fragment = 5,
}

impl DuplicateClass {
    /// The number of classes.
    pub const COUNT: usize = 5;

    /// All classes, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [Self::Switching, Self::Routing, Self::Nat, Self::Proxying, Self::Fragment];

    /// The class with this number; `None` for 0 and for numbers that this version does not define.
    #[inline]
    pub const fn from_number(number: u8) -> Option<Self> {
        if number == 0 || number as usize > Self::COUNT { None } else { Some(Self::ALL[number as usize - 1]) }
    }

    /// The index in an array of [`DuplicateClass::COUNT`] elements.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize - 1
    }

    /// The name in JSON, tables, metrics and configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Switching => "switching",
            Self::Routing => "routing",
            Self::Nat => "nat",
            Self::Proxying => "proxying",
            Self::Fragment => "fragment",
        }
    }
}

impl fmt::Display for DuplicateClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::DuplicateClass;

    #[test]
    fn numbers_are_positions_in_the_list_and_fit_in_three_bits() {
        for (i, class) in DuplicateClass::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, i + 1);
            assert_eq!(DuplicateClass::from_number(class as u8), Some(class));
        }
        assert_eq!(DuplicateClass::from_number(0), None);
        assert_eq!(DuplicateClass::from_number(DuplicateClass::COUNT as u8 + 1), None);
        const { assert!(DuplicateClass::COUNT < 8) };
    }
}
