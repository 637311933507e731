//! The first word of a packet descriptor: the stream position and the annotations of the packet.
//!
//! ```text
//!  bit 63   62      60 59            56 55                                          0
//! +--------+----------+----------------+---------------------------------------------+
//! |    0   | duplicate|   timestamp    |               stream position               |
//! |        |   class  |     method     |                                             |
//! +--------+----------+----------------+---------------------------------------------+
//! ```
//! The annotations share the word with the stream position, because all other bytes of a descriptor are in use. A
//! stream position of 56 bits is enough for 64 PiB: the stream of a saturated 10 Gb/s link is longer after 22 months.

use base::{DuplicateClass, TimestampMethod};
use std::fmt;

/// The largest stream position that a descriptor can hold.
pub const STREAM_POSITION_MAX: u64 = (1 << bits::METHOD) - 1;

/// The lowest bit of each field of the word, and of the same fields within the annotations.
mod bits {
    pub const METHOD: u32 = 56;
    pub const DUPLICATE: u32 = 60;
    pub const DUPLICATE_IN_BYTE: u32 = DUPLICATE - METHOD;
    pub const METHOD_MASK: u8 = 0xf;
    pub const DUPLICATE_MASK: u8 = 0x7;
}

/// The annotations of a packet: the method of its timestamp, and its class if the packet is a duplicate.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Annotations(u8);

impl Annotations {
    /// The annotations of a packet with this timestamp method and duplicate class.
    #[inline]
    pub const fn new(method: TimestampMethod, duplicate: Option<DuplicateClass>) -> Self {
        let class = match duplicate {
            Some(class) => class as u8,
            None => 0,
        };
        Self(method as u8 | class << bits::DUPLICATE_IN_BYTE)
    }

    /// The annotations with this timestamp method in place of their own.
    #[inline]
    pub const fn with_timestamp_method(self, method: TimestampMethod) -> Self {
        Self(self.0 & !bits::METHOD_MASK | method as u8)
    }

    /// The annotations with this duplicate class in place of their own.
    #[inline]
    pub const fn with_duplicate_class(self, class: DuplicateClass) -> Self {
        Self(self.0 & !(bits::DUPLICATE_MASK << bits::DUPLICATE_IN_BYTE) | (class as u8) << bits::DUPLICATE_IN_BYTE)
    }

    /// The method of the timestamp; [`TimestampMethod::Unknown`] for a number that this version does not define.
    #[inline]
    pub const fn timestamp_method(self) -> TimestampMethod {
        match TimestampMethod::from_number(self.0 & bits::METHOD_MASK) {
            Some(method) => method,
            None => TimestampMethod::Unknown,
        }
    }

    /// The bit with the number of the timestamp method, for [`base::TimestampMethods::from_any_bits`].
    #[inline]
    pub const fn timestamp_method_bit(self) -> u16 {
        1 << (self.0 & bits::METHOD_MASK)
    }

    /// The duplicate class; `None` if the packet is no duplicate, or of a class that this version does not define.
    #[inline]
    pub const fn duplicate_class(self) -> Option<DuplicateClass> {
        DuplicateClass::from_number(self.0 >> bits::DUPLICATE_IN_BYTE & bits::DUPLICATE_MASK)
    }
}

impl fmt::Debug for Annotations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Annotations")
            .field("timestamp_method", &self.timestamp_method())
            .field("duplicate_class", &self.duplicate_class())
            .finish()
    }
}

/// The first word of a descriptor. In a packet descriptor it holds the stream position and the annotations; in a
/// control descriptor all 64 bits hold the number of the control event, and only this crate reads them.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct AnnotatedPosition(u64);

impl AnnotatedPosition {
    /// The word of a packet at this stream position, of which nothing else is known. Bits of `pos` above
    /// [`STREAM_POSITION_MAX`] are ignored.
    #[inline]
    pub const fn new(pos: u64) -> Self {
        Self(pos & STREAM_POSITION_MAX)
    }

    /// The word with these annotations in place of its own.
    #[inline]
    pub const fn with_annotations(self, annotations: Annotations) -> Self {
        Self(self.0 & STREAM_POSITION_MAX | (annotations.0 as u64) << bits::METHOD)
    }

    /// The word of a packet at `pos`, which is at most [`STREAM_POSITION_MAX`].
    #[inline]
    pub(crate) const fn of_packet(pos: u64, annotations: Annotations) -> Self {
        debug_assert!(pos <= STREAM_POSITION_MAX);
        Self(pos | (annotations.0 as u64) << bits::METHOD)
    }

    /// The stream position.
    #[inline]
    pub const fn pos(self) -> u64 {
        self.0 & STREAM_POSITION_MAX
    }

    /// The annotations.
    #[inline]
    pub const fn annotations(self) -> Annotations {
        Annotations((self.0 >> bits::METHOD) as u8)
    }

    /// The word whose 64 bits are this number, for control descriptors and for copies from shared memory.
    #[inline]
    pub(crate) const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// All 64 bits.
    #[inline]
    pub(crate) const fn to_word(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for AnnotatedPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.pos(), self.annotations())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_of_method_and_class_is_kept_beside_any_position() {
        let classes = DuplicateClass::ALL.into_iter().map(Some).chain([None]);
        for (class, method) in classes.flat_map(|class| TimestampMethod::ALL.map(|method| (class, method))) {
            for pos in [0, 1, 1 << 40, STREAM_POSITION_MAX] {
                let word = AnnotatedPosition::new(pos).with_annotations(Annotations::new(method, class));
                let read = word.annotations();
                assert_eq!((word.pos(), read.timestamp_method(), read.duplicate_class()), (pos, method, class));
                assert_eq!(AnnotatedPosition::from_word(word.to_word()), word);
            }
        }
    }

    #[test]
    fn a_replaced_annotation_leaves_the_other_annotation_unchanged() {
        let old = Annotations::new(TimestampMethod::Schedule, Some(DuplicateClass::Fragment));
        let new = old.with_timestamp_method(TimestampMethod::Wdts);
        assert_eq!(new, Annotations::new(TimestampMethod::Wdts, Some(DuplicateClass::Fragment)));
        let new = new.with_duplicate_class(DuplicateClass::Routing);
        assert_eq!(new, Annotations::new(TimestampMethod::Wdts, Some(DuplicateClass::Routing)));
    }

    #[test]
    fn undefined_numbers_are_read_as_unknown_and_as_no_duplicate() {
        let word = AnnotatedPosition::from_word(0x7f << 56 | 5);
        let read = word.annotations();
        assert_eq!((word.pos(), read.timestamp_method()), (5, TimestampMethod::Unknown));
        assert_eq!(read.duplicate_class(), None);
    }
}
