//! Reading pcapng block by block.

use super::interface_description::FIELDS;
use super::resolution::Resolution;
use super::{BYTE_ORDER_MAGIC, block, option, options};
use crate::packet::PacketBounds;
use crate::window::{ByteOrder, Window};
use crate::{Direction, ETHERNET, Error, MAX_BLOCK, MAX_PACKET};
use base::Timestamp;
use std::io::Read;

/// Length of the shortest block in bytes: it contains only its type, and its length twice.
const SHORTEST: u32 = 12;

/// The fields of a section header that are read: type, length, byte order, version, and the length of the section.
const SECTION_FIELDS: usize = 24;

/// Offset of the packet bytes in an enhanced or obsolete packet block, and in a simple packet block.
const DATA: usize = 28;
const SIMPLE_DATA: usize = 12;

/// The largest number of interfaces that one section may describe.
const MAX_INTERFACES: usize = 65_536;

/// Largest number of bytes that the reader stores of an interface's name: names of Windows interfaces have about fifty
/// bytes, but a file may contain a text of any length.
const MAX_NAME: usize = 128;

/// The largest number of interface names that are stored for one section.
const NAMED: usize = 256;

/// The state of a section.
#[derive(Clone, Debug)]
pub(crate) struct Ng {
    order: ByteOrder,
    interfaces: Vec<Interface>,
    /// The names of the first [`NAMED`] interfaces; empty if the file has no name.
    names: Vec<Box<str>>,
    /// The link type of the first interface of the file, in any section.
    first_link_type: Option<u16>,
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: u16,
    fcs: u8,
    snaplen: u32,
    resolution: Resolution,
}

/// The result of reading one block.
enum Step {
    Packet(PacketBounds),
    Other,
    End,
}

impl Ng {
    pub fn recognise(head: [u8; 4]) -> bool {
        u32::from_le_bytes(head) == block::SECTION
    }

    /// Reads up to the first interface description, or to the end of a file without interfaces.
    pub fn open<R: Read>(window: &mut Window<R>) -> Result<Self, Error> {
        let mut ng =
            Self { order: ByteOrder::Little, interfaces: Vec::new(), names: Vec::new(), first_link_type: None };
        while ng.interfaces.is_empty() && !matches!(ng.step(window)?, Step::End) {}
        Ok(ng)
    }

    pub fn link_type(&self) -> u16 {
        self.first_link_type.unwrap_or(ETHERNET)
    }

    pub fn memory(&self) -> usize {
        let names: usize = self.names.iter().map(|name| name.len()).sum();
        self.interfaces.capacity() * size_of::<Interface>() + self.names.capacity() * size_of::<Box<str>>() + names
    }

    /// The names of the interfaces that this section has described so far.
    pub fn names(&self) -> &[Box<str>] {
        &self.names
    }

    #[inline]
    pub fn advance<R: Read>(&mut self, window: &mut Window<R>) -> Result<Option<PacketBounds>, Error> {
        loop {
            match self.step(window)? {
                Step::Packet(found) => return Ok(Some(found)),
                Step::Other => {}
                Step::End => return Ok(None),
            }
        }
    }

    fn step<R: Read>(&mut self, window: &mut Window<R>) -> Result<Step, Error> {
        if window.need(SHORTEST as usize)? == 0 {
            return Ok(Step::End);
        }
        window.demand(SHORTEST as usize, "block")?;
        let offset = window.offset();
        let kind = self.order.u32(window.bytes(), 0);
        if kind == block::SECTION {
            self.section(window)?;
        }
        let len = self.order.u32(window.bytes(), 4);
        if len < SHORTEST || !len.is_multiple_of(4) {
            return Err(Error::BadBlock {
                offset,
                block: kind,
                why: "the length is less than 12 or not a multiple of 4",
            });
        }
        match kind {
            block::INTERFACE | block::ENHANCED_PACKET | block::OBSOLETE_PACKET | block::SIMPLE_PACKET => {
                let whole = Block::whole(window, self.order, kind, len)?;
                match kind {
                    block::INTERFACE => self.interface(window, &whole)?,
                    block::SIMPLE_PACKET => return self.simple(window, &whole).map(Step::Packet),
                    _ => return self.packet(window, &whole).map(Step::Packet),
                }
            }
            _ => window.skip(u64::from(len), "block"),
        }
        Ok(Step::Other)
    }

    /// Reads the byte order of a new section, which begins without interfaces; the options are ignored.
    fn section<R: Read>(&mut self, window: &mut Window<R>) -> Result<(), Error> {
        window.demand(SECTION_FIELDS, "section header")?;
        let (offset, bytes) = (window.offset(), window.bytes());
        self.order = match [ByteOrder::Little, ByteOrder::Big].into_iter().find(|o| o.u32(bytes, 8) == BYTE_ORDER_MAGIC)
        {
            Some(order) => order,
            None => {
                let why = "the byte order magic is neither 1a2b3c4d nor 4d3c2b1a";
                return Err(Error::BadBlock { offset, block: block::SECTION, why });
            }
        };
        let (major, minor) = (self.order.u16(bytes, 12), self.order.u16(bytes, 14));
        if major != 1 {
            return Err(Error::Version { offset: offset + 12, major, minor });
        }
        if self.order.u32(bytes, 4) < SECTION_FIELDS as u32 + 4 {
            return Err(Error::BadBlock {
                offset,
                block: block::SECTION,
                why: "the block is too short for its fields",
            });
        }
        self.interfaces.clear();
        self.names.clear();
        Ok(())
    }

    fn interface<R: Read>(&mut self, window: &mut Window<R>, whole: &Block) -> Result<(), Error> {
        let body = whole.fields(window, FIELDS)?;
        let (mut tsresol, mut tsoffset, mut fcs) = (6, 0, 0);
        let mut name = Box::default();
        for (code, value) in options(&body[FIELDS..], self.order) {
            match (code, value) {
                (option::IF_TSRESOL, [byte]) => tsresol = *byte,
                (option::IF_TSOFFSET, [_, _, _, _, _, _, _, _]) => tsoffset = self.order.u64(value, 0) as i64,
                (option::IF_NAME, text) => {
                    let text = String::from_utf8_lossy(text);
                    let text = text.trim_end_matches('\0');
                    name = text[..text.floor_char_boundary(MAX_NAME)].into();
                }
                // The draft states `if_fcslen` in bits in its text and in bytes in its example. A value of 8 or more is
                // read as bits, because no frame check sequence has 8 bytes.
                (option::IF_FCSLEN, [len]) => fcs = if *len < 8 { *len } else { len / 8 },
                _ => {}
            }
        }
        let interface = Interface {
            link_type: self.order.u16(body, 8),
            fcs,
            snaplen: self.order.u32(body, 12),
            resolution: Resolution::new(tsresol, tsoffset),
        };
        if self.interfaces.len() == MAX_INTERFACES {
            let (len, limit) = (MAX_INTERFACES as u64 + 1, MAX_INTERFACES as u64);
            return Err(Error::LengthTooLarge { offset: whole.offset, what: "number of interfaces", len, limit });
        }
        self.interfaces.push(interface);
        if self.names.len() < NAMED {
            self.names.push(name);
        }
        self.first_link_type.get_or_insert(interface.link_type);
        window.take(whole.len, 0..0);
        Ok(())
    }

    /// Reads an enhanced packet, or an obsolete packet, which differs only in the first word.
    #[inline]
    fn packet<R: Read>(&self, window: &mut Window<R>, whole: &Block) -> Result<PacketBounds, Error> {
        let body = whole.fields(window, DATA)?;
        let (number, mut drops) = if whole.kind == block::ENHANCED_PACKET {
            (self.order.u32(body, 8), 0)
        } else {
            let drops = self.order.u16(body, 10);
            (u32::from(self.order.u16(body, 8)), if drops == u16::MAX { 0 } else { u64::from(drops) })
        };
        let interface = self.described(number, whole.offset)?;
        let count = u64::from(self.order.u32(body, 12)) << 32 | u64::from(self.order.u32(body, 16));
        let (caplen, wire_len) = (self.order.u32(body, 20), self.order.u32(body, 24));
        let data = whole.data(DATA, caplen)?;
        let (mut direction, mut fcs) = (Direction::Unknown, interface.fcs);
        for (code, value) in options(&body[data.end.next_multiple_of(4)..], self.order) {
            match (code, value.len()) {
                (option::EPB_FLAGS, 4) => {
                    let flags = self.order.u32(value, 0);
                    direction = match flags & 3 {
                        1 => Direction::Inbound,
                        2 => Direction::Outbound,
                        _ => Direction::Unknown,
                    };
                    let reported = (flags >> 5 & 15) as u8;
                    fcs = if reported > 0 { reported } else { fcs };
                }
                (option::EPB_DROPCOUNT, 8) if whole.kind == block::ENHANCED_PACKET => drops = self.order.u64(value, 0),
                _ => {}
            }
        }
        let ts = Some(interface.resolution.timestamp(count));
        Ok(PacketBounds { direction, drops, fcs, ..whole.found(window, interface, number, ts, wire_len, data) })
    }

    /// Reads a simple packet. It has neither timestamp nor captured length: the captured length follows from the
    /// snaplen of the first interface.
    fn simple<R: Read>(&self, window: &mut Window<R>, whole: &Block) -> Result<PacketBounds, Error> {
        let wire_len = self.order.u32(whole.fields(window, SIMPLE_DATA)?, 8);
        let interface = self.described(0, whole.offset)?;
        let caplen = if interface.snaplen == 0 { wire_len } else { wire_len.min(interface.snaplen) };
        let data = whole.data(SIMPLE_DATA, caplen)?;
        Ok(whole.found(window, interface, 0, None, wire_len, data))
    }

    #[inline]
    fn described(&self, number: u32, offset: u64) -> Result<&Interface, Error> {
        let known = self.interfaces.len() as u32;
        self.interfaces.get(number as usize).ok_or(Error::UnknownInterface { offset, interface: number, known })
    }
}

/// A block of the file; all of its bytes are in the read buffer.
struct Block {
    offset: u64,
    kind: u32,
    len: usize,
}

impl Block {
    #[inline]
    fn whole<R: Read>(window: &mut Window<R>, order: ByteOrder, kind: u32, len: u32) -> Result<Self, Error> {
        let offset = window.offset();
        if len > MAX_BLOCK {
            let (len, limit) = (u64::from(len), u64::from(MAX_BLOCK));
            return Err(Error::LengthTooLarge { offset, what: "block length", len, limit });
        }
        window.demand(len as usize, "block")?;
        if order.u32(window.bytes(), len as usize - 4) != len {
            return Err(Error::BadBlock { offset, block: kind, why: "the lengths at its start and its end differ" });
        }
        Ok(Self { offset, kind, len: len as usize })
    }

    /// Returns the bytes of the block without the length field at its end. An error if the block has no space for its
    /// fixed fields, which end at offset `end`.
    #[inline]
    fn fields<'w, R: Read>(&self, window: &'w Window<R>, end: usize) -> Result<&'w [u8], Error> {
        if end + 4 > self.len {
            return Err(Error::BadBlock {
                offset: self.offset,
                block: self.kind,
                why: "the block is too short for its fields",
            });
        }
        Ok(&window.bytes()[..self.len - 4])
    }

    /// The range of the packet bytes in the block.
    #[inline]
    fn data(&self, at: usize, caplen: u32) -> Result<std::ops::Range<usize>, Error> {
        if caplen > MAX_PACKET {
            let (len, limit) = (u64::from(caplen), u64::from(MAX_PACKET));
            return Err(Error::LengthTooLarge { offset: self.offset, what: "captured length", len, limit });
        }
        let end = at + caplen as usize;
        if end > self.len - 4 {
            let why = "the packet is longer than the block";
            return Err(Error::BadBlock { offset: self.offset, block: self.kind, why });
        }
        Ok(at..end)
    }

    #[inline]
    fn found<R: Read>(
        &self,
        window: &mut Window<R>,
        interface: &Interface,
        number: u32,
        ts: Option<Timestamp>,
        wire_len: u32,
        data: std::ops::Range<usize>,
    ) -> PacketBounds {
        PacketBounds {
            ts,
            wire_len: wire_len.max(data.len() as u32),
            wire_raised: (wire_len as usize) < data.len(),
            interface: number,
            link_type: interface.link_type,
            direction: Direction::Unknown,
            drops: 0,
            fcs: interface.fcs,
            offset: self.offset,
            data: window.take(self.len, data),
        }
    }
}
