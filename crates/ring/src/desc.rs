//! The descriptor: 32 bytes per packet in a separate ring, so that applications scan, steer and prefetch packets
//! without parsing their bytes.
//!
//! ```text
//!  0        8        16       20       24       26       28    29    30    31
//! +--------+--------+--------+--------+--------+--------+-----+-----+-----+-----+
//! |ann.pos |   ts   |  hash  |  mark  | caplen |wire_len| que | flg | l3  | l4  |
//! +--------+--------+--------+--------+--------+--------+-----+-----+-----+-----+
//! ```
//! All fields are little-endian. `ann.pos` is the stream position with the annotations of the packet in its highest
//! byte (see [`AnnotatedPosition`]). A *control* descriptor (flag [`flag::CONTROL`]) carries no packet: `mark` holds
//! the kind of [`Control`]. Its position among the packets is the point in the stream at which the event happened.

use crate::annotation::{AnnotatedPosition, Annotations};
use base::{Cause, ClockState, DuplicateClass, Timestamp, TimestampMethod};
use std::num::NonZeroU32;

/// Bits of [`Desc::flags`].
pub mod flag {
    /// The descriptor is a [`super::Control`], not a packet.
    pub const CONTROL: u8 = 1 << 0;
    /// Fewer bytes are stored than the frame had on the wire.
    pub const TRUNCATED: u8 = 1 << 1;
    /// A header contradicts its length.
    pub const MALFORMED: u8 = 1 << 2;
    /// The NIC or the kernel merged several frames into this packet.
    pub const SUPER_FRAME: u8 = 1 << 3;
    /// The kernel had removed a VLAN tag; the stored packet contains it again.
    pub const VLAN_RESTORED: u8 = 1 << 4;
    /// Sent by this host.
    pub const OUTGOING: u8 = 1 << 5;
    /// The timestamp was raised to that of the previous packet.
    pub const CLAMPED: u8 = 1 << 6;
    /// The capture file states a wire length below its captured length; the wire length was raised.
    pub const WIRE_RAISED: u8 = 1 << 7;

    /// The flag bits that are counted as notes, with the note of each bit.
    pub const NOTE_FLAGS: [(u8, base::Note); 7] = [
        (TRUNCATED, base::Note::Truncated),
        (MALFORMED, base::Note::Malformed),
        (SUPER_FRAME, base::Note::SuperFrame),
        (VLAN_RESTORED, base::Note::VlanRestored),
        (OUTGOING, base::Note::Outgoing),
        (CLAMPED, base::Note::Clamped),
        (WIRE_RAISED, base::Note::WireRaised),
    ];
}

/// Bytes of one descriptor.
pub const DESC_BYTES: usize = 32;

/// The last timestamp that a nanosecond-pcap record can hold: its seconds have 32 bits.
pub const TIMESTAMP_MAX: Timestamp = Timestamp::from_secs_nanos(u32::MAX as u64, 999_999_999);

/// Bytes of the nanosecond-pcap record header that precedes each packet in the stream.
pub const RECORD_HEADER: usize = 16;

/// Bytes of the pcap file header that begins each segment in the stream.
pub const FILE_HEADER: usize = 24;

/// Segments begin at multiples of this many bytes of the stream; the recorder writes blocks of this size to disk.
pub const BLOCK: u64 = 1 << 20;

/// A packet or a [`Control`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(32))]
pub struct Desc {
    /// Stream position of the packet's pcap record header, and the annotations of the packet. In a control descriptor,
    /// the number of the event: the stream position of the segment's first byte for [`Control::Segment`]; the number of
    /// packets for [`Control::Lost`], [`Control::Filtered`] and [`Control::Duplicate`]; the generation for
    /// [`Desc::program`]; the deviation in nanoseconds in the lower half, and the maximum error of the clock in
    /// microseconds in the upper half, for [`Control::Timestamps`]; the nanoseconds, as a signed number, for
    /// [`Control::ClockStep`].
    pub annotated_pos: AnnotatedPosition,
    /// Nanoseconds since 1970 (UTC).
    pub ts: u64,
    /// Keyed symmetric flow hash; 0 where there is no flow.
    pub hash: u32,
    /// The mark of the packet, for programs of the packet language. In a control descriptor, the kind of the control
    /// event.
    pub mark: u32,
    /// Captured length in bytes.
    pub caplen: u16,
    /// Wire length in bytes; 65 535 means "at least", and the record header in the stream has the exact number.
    pub wire_len: u16,
    /// Queue number, modulo 256; in a branch, see [`Desc::class`] and [`Desc::generation`].
    pub queue: u8,
    /// Bits of [`flag`].
    pub flags: u8,
    /// Offset of the network header in the packet; 0 if there is none within 255 bytes.
    pub l3: u8,
    /// Offset of the transport header in the packet; 0 if there is none within 255 bytes.
    pub l4: u8,
}

/// A position between two descriptors, as an index of descriptors and as a stream position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DescPosition {
    /// Index of the next descriptor.
    pub desc: u64,
    /// Stream position after the last published byte.
    pub pos: u64,
}

/// The event of a control descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// A new segment begins at `pos` (a multiple of [`BLOCK`]) with a pcap file header. The previous segment ended
    /// `gap` bytes before `pos`, after its last record. The bytes in between are undefined.
    Segment {
        /// Stream position of the first byte of the new segment.
        pos: u64,
        /// Distance in bytes from the end of the previous segment to `pos`, at most one block.
        gap: u32,
    },
    /// This many packets were lost since the last [`Control::Lost`] with the same cause (and the same lossless reader).
    Lost {
        /// The loss cause.
        cause: Cause,
        /// For [`Cause::RingFull`], the slot of the lossless reader that had not released its packets.
        reader: u8,
        /// Number of packets.
        packets: u64,
    },
    /// This many packets did not match the capture filter since the last [`Control::Filtered`].
    Filtered {
        /// Number of packets.
        packets: u64,
    },
    /// This many packets were removed as duplicates since the last [`Control::Duplicate`].
    Duplicate {
        /// Number of packets.
        packets: u64,
    },
    /// The capture has reached this second (of `ts`), with or without packets.
    Tick,
    /// The quality of the timestamps of the second of `ts`. It follows the packets of the second, and it also follows
    /// the first segment of a stream if the state of the clock is known then.
    Timestamps {
        /// The estimated standard deviation in nanoseconds; `None` if it is not known.
        deviation_nanos: Option<NonZeroU32>,
        /// The state of the system clock; `None` if the timestamps are not those of the system clock.
        clock: Option<ClockState>,
    },
    /// The system clock was set; `ts` is the new time, and the packets that follow have the new time.
    ClockStep {
        /// Number of steps since the last [`Control::ClockStep`].
        steps: u32,
        /// The sum of the steps in nanoseconds; a negative number is a step back.
        nanos: i64,
    },
    /// The stream ends; no descriptor follows.
    End,
}

mod kind {
    pub const SEGMENT: u32 = 1;
    pub const LOST: u32 = 2;
    pub const FILTERED: u32 = 3;
    pub const TICK: u32 = 4;
    pub const END: u32 = 5;
    pub const PROGRAM: u32 = 6;
    pub const DUPLICATE: u32 = 7;
    pub const TIMESTAMPS: u32 = 8;
    pub const CLOCK_STEP: u32 = 9;
}

/// The bits of `l3` in the descriptor of [`Control::Timestamps`].
mod clock_bits {
    pub const KNOWN: u8 = 1 << 0;
    pub const SYNCHRONISED: u8 = 1 << 1;
}

impl Desc {
    /// The descriptor of the event `control` at time `ts`.
    pub fn control(control: Control, ts: Timestamp) -> Self {
        let mut d = Self { ts: ts.nanos(), flags: flag::CONTROL, ..Self::default() };
        let mut number = 0;
        match control {
            Control::Segment { pos, gap } => (d.mark, number, d.hash) = (kind::SEGMENT, pos, gap),
            Control::Lost { cause, reader, packets } => {
                (d.mark, number, d.l3, d.l4) = (kind::LOST, packets, cause as u8, reader);
            }
            Control::Filtered { packets } => (d.mark, number) = (kind::FILTERED, packets),
            Control::Duplicate { packets } => (d.mark, number) = (kind::DUPLICATE, packets),
            Control::Tick => d.mark = kind::TICK,
            Control::Timestamps { deviation_nanos, clock } => {
                let state = clock.unwrap_or_default();
                let deviation = deviation_nanos.map_or(0, NonZeroU32::get);
                number = u64::from(deviation) | u64::from(state.maximum_error_micros) << 32;
                (d.mark, d.hash) = (kind::TIMESTAMPS, state.frequency_ppb as u32);
                d.l3 = if clock.is_some() { clock_bits::KNOWN } else { 0 };
                d.l3 |= if state.synchronised { clock_bits::SYNCHRONISED } else { 0 };
            }
            Control::ClockStep { steps, nanos } => (d.mark, number, d.hash) = (kind::CLOCK_STEP, nanos as u64, steps),
            Control::End => d.mark = kind::END,
        }
        d.annotated_pos = AnnotatedPosition::from_word(number);
        d
    }

    /// True if the descriptor is a packet.
    #[inline]
    pub const fn is_packet(&self) -> bool {
        self.flags & flag::CONTROL == 0
    }

    /// The event of a control descriptor; `None` for a packet or for a kind that this version does not define.
    pub fn as_control(&self) -> Option<Control> {
        if self.is_packet() {
            return None;
        }
        let number = self.annotated_pos.to_word();
        Some(match self.mark {
            kind::SEGMENT => Control::Segment { pos: number, gap: self.hash },
            kind::LOST => Control::Lost { cause: Cause::from_number(self.l3)?, reader: self.l4, packets: number },
            kind::FILTERED => Control::Filtered { packets: number },
            kind::DUPLICATE => Control::Duplicate { packets: number },
            kind::TICK => Control::Tick,
            kind::TIMESTAMPS => Control::Timestamps {
                deviation_nanos: NonZeroU32::new(number as u32),
                clock: (self.l3 & clock_bits::KNOWN != 0).then_some(ClockState {
                    synchronised: self.l3 & clock_bits::SYNCHRONISED != 0,
                    maximum_error_micros: (number >> 32) as u32,
                    frequency_ppb: self.hash as i32,
                }),
            },
            kind::CLOCK_STEP => Control::ClockStep { steps: self.hash, nanos: number as i64 },
            kind::END => Control::End,
            _ => return None,
        })
    }

    /// In a branch, the class of the group to which the packet was delivered. All packets of a branch have the same
    /// queue, which is in the ring parameters of the branch. So in a branch the byte of the queue contains the class
    /// and the generation instead.
    #[inline]
    pub const fn class(&self) -> u8 {
        self.queue & 63
    }

    /// In a branch: the lowest two bits of the program generation that evaluated the packet; [`Desc::as_program`] has
    /// all bits.
    #[inline]
    pub const fn generation(&self) -> u8 {
        self.queue >> 6
    }

    /// Returns a control descriptor for a branch: this generation of the group's program evaluated the packets that
    /// follow. Generations count the programs of a group, so they only grow. The descriptor is not a variant of
    /// [`Control`], because it occurs in branches only.
    pub fn program(generation: u64, ts: Timestamp) -> Self {
        let annotated_pos = AnnotatedPosition::from_word(generation);
        Self { annotated_pos, ts: ts.nanos(), mark: kind::PROGRAM, flags: flag::CONTROL, ..Self::default() }
    }

    /// The generation that a descriptor made by [`Desc::program`] announces.
    pub const fn as_program(&self) -> Option<u64> {
        if !self.is_packet() && self.mark == kind::PROGRAM { Some(self.annotated_pos.to_word()) } else { None }
    }

    /// The descriptor in the form in which a branch stores it.
    #[inline]
    pub const fn evaluated_by(mut self, class: u8, generation: u64, mark: u32) -> Self {
        self.queue = class & 63 | (generation as u8) << 6;
        self.mark = mark;
        self
    }

    /// The stream position of the packet's pcap record header. Only packets have a position; see [`Desc::as_control`].
    #[inline]
    pub const fn pos(&self) -> u64 {
        self.annotated_pos.pos()
    }

    /// The annotations of the packet.
    #[inline]
    pub const fn annotations(&self) -> Annotations {
        self.annotated_pos.annotations()
    }

    /// The method that made the timestamp of the packet.
    #[inline]
    pub const fn timestamp_method(&self) -> TimestampMethod {
        self.annotations().timestamp_method()
    }

    /// The class of a duplicate packet; `None` if the packet is no duplicate.
    #[inline]
    pub const fn duplicate_class(&self) -> Option<DuplicateClass> {
        self.annotations().duplicate_class()
    }

    /// The timestamp of the packet or event.
    #[inline]
    pub const fn timestamp(&self) -> Timestamp {
        Timestamp::from_nanos(self.ts)
    }

    /// Stream position after the packet's last byte.
    #[inline]
    pub const fn end(&self) -> u64 {
        self.pos() + RECORD_HEADER as u64 + self.caplen as u64
    }

    /// The descriptor as four words, for atomic copies to and from shared memory.
    #[inline]
    pub const fn to_words(self) -> [u64; 4] {
        [
            self.annotated_pos.to_word(),
            self.ts,
            self.hash as u64 | (self.mark as u64) << 32,
            self.caplen as u64
                | (self.wire_len as u64) << 16
                | (self.queue as u64) << 32
                | (self.flags as u64) << 40
                | (self.l3 as u64) << 48
                | (self.l4 as u64) << 56,
        ]
    }

    /// The inverse of [`Desc::to_words`].
    #[inline]
    pub const fn from_words(w: [u64; 4]) -> Self {
        Self {
            annotated_pos: AnnotatedPosition::from_word(w[0]),
            ts: w[1],
            hash: w[2] as u32,
            mark: (w[2] >> 32) as u32,
            caplen: w[3] as u16,
            wire_len: (w[3] >> 16) as u16,
            queue: (w[3] >> 32) as u8,
            flags: (w[3] >> 40) as u8,
            l3: (w[3] >> 48) as u8,
            l4: (w[3] >> 56) as u8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_fields_are_inverse_and_match_the_documented_layout() {
        assert_eq!(size_of::<Desc>(), DESC_BYTES);
        let d = Desc {
            annotated_pos: AnnotatedPosition::new(1)
                .with_annotations(Annotations::new(TimestampMethod::Wdts, Some(DuplicateClass::Nat))),
            ts: 2,
            hash: 3,
            mark: 4,
            caplen: 5,
            wire_len: 6,
            queue: 7,
            flags: flag::OUTGOING,
            l3: 14,
            l4: 34,
        };
        assert_eq!(Desc::from_words(d.to_words()), d);
        assert_eq!(d.to_words()[0].to_le_bytes(), [1, 0, 0, 0, 0, 0, 0, 0x34]);
        assert_eq!((d.pos(), d.end()), (1, 22));
        assert_eq!((d.timestamp_method(), d.duplicate_class()), (TimestampMethod::Wdts, Some(DuplicateClass::Nat)));
        assert_eq!(d.to_words()[3].to_le_bytes(), [5, 0, 6, 0, 7, flag::OUTGOING, 14, 34]);
    }

    #[test]
    fn class_and_generation_share_the_queue_byte_and_programs_are_not_packets() {
        let d = Desc { queue: 200, ..Desc::default() }.evaluated_by(63, 6, 42);
        assert_eq!((d.class(), d.generation(), d.mark), (63, 2, 42));
        let program = Desc::program(1 << 60, Timestamp::from_nanos(9));
        assert_eq!((program.as_program(), program.as_control(), program.is_packet()), (Some(1 << 60), None, false));
        assert_eq!(Desc::control(Control::Tick, Timestamp::ZERO).as_program(), None);
    }

    #[test]
    fn control_descriptors_round_trip() {
        let ts = Timestamp::from_nanos(9);
        for c in [
            Control::Segment { pos: BLOCK, gap: 17 },
            Control::Lost { cause: Cause::RingFull, reader: 3, packets: u64::MAX },
            Control::Filtered { packets: 1 << 40 },
            Control::Duplicate { packets: 1 << 41 },
            Control::Tick,
            Control::Timestamps { deviation_nanos: None, clock: None },
            Control::Timestamps {
                deviation_nanos: NonZeroU32::new(u32::MAX),
                clock: Some(ClockState { synchronised: true, maximum_error_micros: u32::MAX, frequency_ppb: -500_000 }),
            },
            Control::Timestamps { deviation_nanos: NonZeroU32::new(1), clock: Some(ClockState::default()) },
            Control::ClockStep { steps: 1, nanos: i64::MIN },
            Control::End,
        ] {
            assert_eq!(Desc::control(c, ts).as_control(), Some(c));
        }
    }
}
