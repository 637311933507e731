//! Decodes IPFIX messages into records and rows: for `--live`, for files, and to test the encoder.
//!
//! The decoder accepts templates with fields in any order and with reduced lengths. Of each record, also of a record of
//! another exporter, it reads the information elements that netgrain's tables contain, and ignores all others. Any host
//! can send messages, so messages are validated, and the memory for the state of the decoder is bounded
//! ([`TEMPLATES_MAX`], [`FIELDS_MAX`], [`DOMAINS_MAX`]).

use super::{HEADER, OPTIONS_TEMPLATES, TEMPLATES, VERSION, at};
use crate::element::{PEN, REVERSE_BIT, REVERSE_PEN, VARIABLE};
use crate::fields::{Body, Draft, FLOW, Field};
use crate::rows::{self, SERIES};
use flow::Record;
use series::Row;
use std::collections::HashMap;
use std::fmt;

/// Greatest number of templates that are kept, of all domains together.
pub const TEMPLATES_MAX: usize = 1024;

/// Greatest number of fields in a template.
pub const FIELDS_MAX: usize = 1024;

/// Greatest number of observation domains whose sequence numbers are tracked.
pub const DOMAINS_MAX: usize = 1024;

/// The content of messages.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "most items are records, and only one item exists at a time")]
pub enum Item {
    /// A flow record.
    Flow(Record),
    /// A series row.
    Row(Row),
    /// The name of an interface.
    Interface {
        /// Its number.
        number: u16,
        /// Its name.
        name: String,
    },
    /// The losses of an interface since its meter started.
    Loss {
        /// Its number.
        interface: u16,
        /// Packets offered to the interface.
        offered: u64,
        /// Of these, lost packets.
        lost: u64,
    },
}

/// Counters of a received stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounts {
    /// Complete messages.
    pub messages: u64,
    /// Number of data records whose template is known, in the complete messages.
    pub records: u64,
    /// Number of data records that are missing according to the sequence numbers.
    pub missed: u64,
    /// Number of data sets that could not be decoded because their template had not arrived.
    pub without_template: u64,
    /// Number of data records that are neither flow records nor series rows nor known options records.
    pub foreign: u64,
}

/// The reason why a message is invalid. The items before the invalid part have been passed to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageError {
    /// The message has fewer bytes than a structure needs.
    TooShort {
        /// Offset of the structure.
        offset: usize,
        /// Bytes that it needs.
        need: usize,
        /// Bytes that remain.
        have: usize,
    },
    /// The message has another version than IPFIX.
    Version(u16),
    /// The length in the header differs from the length of the message.
    Length {
        /// The length in the header.
        item: usize,
        /// The bytes that exist.
        have: usize,
    },
    /// A template whose records would have a length of zero.
    Empty {
        /// Its id.
        template: u16,
    },
    /// Too many templates, fields or domains.
    TooMany {
        /// The kind of structure that exceeds its limit: templates, fields or domains.
        what: &'static str,
        /// The greatest permitted number of structures of this kind.
        limit: usize,
    },
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort { offset, need, have } => {
                write!(f, "the structure at byte {offset} needs {need} bytes, {have} are left")
            }
            Self::Version(9) => {
                f.write_str("the message is NetFlow v9; configure the exporter to send IPFIX (version 10)")
            }
            Self::Version(v) => write!(f, "the version is {v}; IPFIX has version 10"),
            Self::Length { item: length, have } => {
                write!(f, "the length in the header is {length} bytes, the message has {have}")
            }
            Self::Empty { template } => write!(f, "template {template} describes records of length 0"),
            Self::TooMany { what, limit } => write!(f, "more than {limit} {what}"),
        }
    }
}

impl std::error::Error for MessageError {}

/// Decodes the messages of one session with one exporter. Each exporter needs its own decoder, because each exporter
/// chooses its own template ids.
#[derive(Debug)]
pub struct Decoder {
    pen: u32,
    templates: HashMap<(u32, u16), Template>,
    /// The next expected sequence number of each domain.
    expected: HashMap<u32, u32>,
    counts: StreamCounts,
}

#[derive(Debug)]
struct Template {
    kind: Kind,
    slots: Vec<(Slot, u16)>,
    /// Bytes of the shortest record.
    least: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Flow,
    Row,
    Options,
    Foreign,
}

/// How a field is decoded.
#[derive(Clone, Copy)]
enum Slot {
    Flow(&'static Field, usize),
    Row(&'static rows::Field),
    /// An IANA element in an options record.
    Option(u16),
    Skip,
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flow(field, side) => write!(f, "{} of direction {side}", field.element.name),
            Self::Row(field) => f.write_str(&field.element.name),
            Self::Option(id) => write!(f, "option {id}"),
            Self::Skip => f.write_str("skipped"),
        }
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new(PEN)
    }
}

impl Decoder {
    /// A decoder without templates. `pen` is the enterprise number of our own elements.
    pub fn new(pen: u32) -> Self {
        Self { pen, templates: HashMap::new(), expected: HashMap::new(), counts: StreamCounts::default() }
    }

    /// Counters of the messages, records and errors in the stream so far.
    pub fn arrived(&self) -> StreamCounts {
        self.counts
    }

    /// Decodes one message and passes its items to `take`.
    ///
    /// # Errors
    /// [`MessageError`] has the reason and the offset.
    pub fn message(&mut self, bytes: &[u8], take: &mut dyn FnMut(Item)) -> Result<(), MessageError> {
        let header = Cursor { bytes, at: 0 }.octets(HEADER)?;
        let version = number(&header[at::VERSION]) as u16;
        if version != VERSION {
            return Err(MessageError::Version(version));
        }
        let stated_length = number(&header[at::LENGTH]) as usize;
        if stated_length != bytes.len() {
            return Err(MessageError::Length { item: stated_length, have: bytes.len() });
        }
        let (sequence, domain) = (number(&header[at::SEQUENCE]) as u32, number(&header[at::DOMAIN]) as u32);
        self.missed_before(domain, sequence);
        self.counts.messages += 1;
        // If decoding fails, the number of data records in the message is unknown, and so is the next sequence number.
        self.expected.remove(&domain);
        let (mut cursor, mut records, mut all_known) = (Cursor { bytes, at: HEADER }, 0u32, true);
        while cursor.at < bytes.len() {
            let begin = cursor.at;
            let (id, len) = (cursor.number(2)? as u16, cursor.number(2)? as usize);
            let have = bytes.len() - begin;
            if len < 4 || len > have {
                return Err(MessageError::TooShort { offset: begin, need: len.max(4), have });
            }
            let mut set = Cursor { bytes: &bytes[..begin + len], at: cursor.at };
            cursor.at = begin + len;
            match id {
                TEMPLATES => self.templates(&mut set, domain, false)?,
                OPTIONS_TEMPLATES => self.templates(&mut set, domain, true)?,
                _ => match self.templates.get(&(domain, id)) {
                    None => {
                        self.counts.without_template += 1;
                        all_known = false;
                    }
                    Some(template) => {
                        while set.left() >= template.least {
                            if !template.record(&mut set, take)? {
                                self.counts.foreign += 1;
                            }
                            self.counts.records += 1;
                            records += 1;
                        }
                    }
                },
            }
        }
        if all_known {
            if self.expected.len() >= DOMAINS_MAX {
                return Err(MessageError::TooMany { what: "observation domains", limit: DOMAINS_MAX });
            }
            self.expected.insert(domain, sequence.wrapping_add(records));
        }
        Ok(())
    }

    /// A sequence number above the expected number means lost records; a number below it means a reordered message or a
    /// restarted exporter.
    fn missed_before(&mut self, domain: u32, sequence: u32) {
        if let Some(expected) = self.expected.get(&domain) {
            let missed = sequence.wrapping_sub(*expected);
            if missed < 1 << 31 {
                self.counts.missed += u64::from(missed);
            }
        }
    }

    fn templates(&mut self, set: &mut Cursor<'_>, domain: u32, options: bool) -> Result<(), MessageError> {
        while set.left() >= 4 {
            let (id, count) = (set.number(2)? as u16, set.number(2)? as usize);
            if count == 0 {
                // A template withdrawal (RFC 7011, section 8.1): of one template, or of all in the domain.
                self.templates.retain(|(d, i), _| *d != domain || (*i != id && id > OPTIONS_TEMPLATES));
                continue;
            }
            if options {
                set.number(2)?;
            }
            if count > FIELDS_MAX {
                return Err(MessageError::TooMany { what: "fields in a template", limit: FIELDS_MAX });
            }
            let template = self.template(set, id, count, options)?;
            if self.templates.len() >= TEMPLATES_MAX && !self.templates.contains_key(&(domain, id)) {
                return Err(MessageError::TooMany { what: "templates", limit: TEMPLATES_MAX });
            }
            self.templates.insert((domain, id), template);
        }
        Ok(())
    }

    fn template(&self, set: &mut Cursor<'_>, id: u16, count: usize, options: bool) -> Result<Template, MessageError> {
        let mut fields = Vec::with_capacity(count);
        for _ in 0..count {
            let (element, len) = (set.number(2)? as u16, set.number(2)? as u16);
            let pen = if element & 0x8000 != 0 { Some(set.number(4)? as u32) } else { None };
            fields.push((element & 0x7fff, pen, len));
        }
        let has = |ids: &[u16]| fields.iter().any(|(id, pen, _)| pen.is_none() && ids.contains(id));
        let kind = match () {
            () if options => Kind::Options,
            () if has(&[359]) => Kind::Row,
            () if has(&[8, 12, 27, 28]) => Kind::Flow,
            () => Kind::Foreign,
        };
        let least = fields.iter().map(|(_, _, len)| if *len == VARIABLE { 1 } else { usize::from(*len) }).sum();
        if least == 0 {
            return Err(MessageError::Empty { template: id });
        }
        let slots = fields.iter().map(|(id, pen, len)| (self.slot(kind, *id, *pen), *len)).collect();
        Ok(Template { kind, slots, least })
    }

    /// Finds the field of netgrain's tables for an element that a template names by its id and enterprise number.
    fn slot(&self, kind: Kind, id: u16, pen: Option<u32>) -> Slot {
        let (own, id, reverse) = match pen {
            None => (false, id, false),
            Some(REVERSE_PEN) => (false, id, true),
            Some(pen) if pen == self.pen => (true, id & !REVERSE_BIT, id & REVERSE_BIT != 0),
            Some(_) => return Slot::Skip,
        };
        match kind {
            Kind::Flow => {
                let field = FLOW.iter().find(|f| f.element.is_enterprise == own && f.element.id == id);
                match field {
                    Some(field) if !reverse || field.is_directional() => Slot::Flow(field, usize::from(reverse)),
                    _ => Slot::Skip,
                }
            }
            Kind::Row if !reverse => SERIES
                .iter()
                .find(|f| f.element.is_enterprise == own && f.element.id == id)
                .map_or(Slot::Skip, Slot::Row),
            Kind::Options if !own && !reverse => Slot::Option(id),
            _ => Slot::Skip,
        }
    }

    /// Returns the field of netgrain's tables that is a list of the element with this id.
    fn list_of(own: bool, id: u16) -> Option<&'static Field> {
        FLOW.iter().find(|f| matches!(f.body, Body::InitialPacket { of, own: ours, .. } if of == id && ours == own))
    }
}

impl Template {
    /// Decodes one record; returns false if it contains no known item.
    fn record(&self, set: &mut Cursor<'_>, take: &mut dyn FnMut(Item)) -> Result<bool, MessageError> {
        let item = match self.kind {
            Kind::Flow => self.flow(set)?.map(Item::Flow),
            Kind::Row => Some(Item::Row(self.row(set)?)),
            Kind::Options => self.option(set)?,
            Kind::Foreign => {
                self.each(set, |_, _| ())?;
                None
            }
        };
        let known = item.is_some() || self.kind == Kind::Options;
        item.into_iter().for_each(take);
        Ok(known)
    }

    /// Passes the bytes of each field to `take`.
    fn each<'a>(&self, set: &mut Cursor<'a>, mut take: impl FnMut(Slot, &'a [u8])) -> Result<(), MessageError> {
        for (slot, len) in &self.slots {
            let octets = if *len == VARIABLE { set.variable()? } else { set.octets(usize::from(*len))? };
            take(*slot, octets);
        }
        Ok(())
    }

    fn flow(&self, set: &mut Cursor<'_>) -> Result<Option<Record>, MessageError> {
        let mut draft = Draft::default();
        self.each(set, |slot, octets| {
            let Slot::Flow(field, side) = slot else { return };
            match field.body {
                Body::Flow { set, .. } if octets.len() <= 16 => set(&mut draft, number(octets)),
                Body::Direction { set, index, .. } if octets.len() <= 16 => {
                    set(&mut draft, side, index, number(octets))
                }
                Body::Payload => draft.record.payload[side] = octets.to_vec(),
                Body::InitialPacket { .. } => list(octets, &mut draft),
                Body::Flow { .. } | Body::Direction { .. } => (),
            }
        })?;
        Ok(draft.finish())
    }

    fn row(&self, set: &mut Cursor<'_>) -> Result<Row, MessageError> {
        let mut row = Row::default();
        self.each(set, |slot, octets| {
            if let Slot::Row(field) = slot
                && octets.len() <= 16
            {
                (field.set)(&mut row, field.index, number(octets));
            }
        })?;
        Ok(row)
    }

    fn option(&self, set: &mut Cursor<'_>) -> Result<Option<Item>, MessageError> {
        let (mut interface, mut name, mut offered, mut lost) = (None, None, 0, None);
        self.each(set, |slot, octets| match slot {
            Slot::Option(10) => interface = Some(number(octets) as u16),
            Slot::Option(82) => name = Some(String::from_utf8_lossy(octets).trim_end_matches('\0').to_owned()),
            Slot::Option(86) => offered = number(octets) as u64,
            Slot::Option(164) => lost = Some(number(octets) as u64),
            _ => (),
        })?;
        Ok(match (interface, name, lost) {
            (Some(number), Some(name), _) => Some(Item::Interface { number, name }),
            (Some(interface), _, Some(lost)) => Some(Item::Loss { interface, offered, lost }),
            _ => None,
        })
    }
}

/// Decodes a basicList (RFC 6313, section 4.5.1) into the initial packets; an invalid or unknown list is ignored.
fn list(octets: &[u8], draft: &mut Draft) {
    let mut cursor = Cursor { bytes: octets, at: 0 };
    let mut head = || {
        cursor.number(1)?;
        let (id, len) = (cursor.number(2)? as u16, cursor.number(2)? as usize);
        let own = id & 0x8000 != 0;
        if own {
            cursor.number(4)?;
        }
        Ok::<_, MessageError>((own, id & 0x7fff, len))
    };
    let Ok((own, id, len)) = head() else { return };
    let Some(Field { body: Body::InitialPacket { set, .. }, .. }) = Decoder::list_of(own, id) else { return };
    if !(1..=16).contains(&len) {
        return;
    }
    for (i, value) in octets[cursor.at..].chunks_exact(len).enumerate() {
        if draft.initial_packets.len() == i {
            draft.initial_packets.push(Default::default());
        }
        set(&mut draft.initial_packets[i], number(value));
    }
}

/// A big-endian number of any length; of more than 16 octets, the last 16.
#[inline]
fn number(octets: &[u8]) -> u128 {
    match *octets {
        [a] => a.into(),
        [a, b] => u16::from_be_bytes([a, b]).into(),
        [a, b, c, d] => u32::from_be_bytes([a, b, c, d]).into(),
        [a, b, c, d, e, f, g, h] => u64::from_be_bytes([a, b, c, d, e, f, g, h]).into(),
        _ => octets.iter().fold(0, |n, b| n << 8 | u128::from(*b)),
    }
}

/// Bytes with a read position.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn octets(&mut self, need: usize) -> Result<&'a [u8], MessageError> {
        let have = self.left();
        if need > have {
            return Err(MessageError::TooShort { offset: self.at, need, have });
        }
        self.at += need;
        Ok(&self.bytes[self.at - need..self.at])
    }

    fn number(&mut self, len: usize) -> Result<u128, MessageError> {
        Ok(number(self.octets(len)?))
    }

    /// A field of variable length (RFC 7011, section 7).
    fn variable(&mut self) -> Result<&'a [u8], MessageError> {
        let len = match self.number(1)? {
            255 => self.number(2)?,
            short => short,
        };
        self.octets(len as usize)
    }
}
