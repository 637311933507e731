//! Templates (RFC 7011, section 3.4) and the encoding of records by them.

use crate::element::{REVERSE_BIT, REVERSE_PEN, VARIABLE};
use crate::encode::Fields;
use crate::fields::{self, Body, FLOW, Field, TemplateScope};
use crate::rows::{self, SERIES};
use flow::Record;
use series::Row;

/// The properties that distinguish templates of flow records: three bits of their id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub v6: bool,
    pub icmp: bool,
    pub is_biflow: bool,
}

impl Shape {
    /// Number of shapes.
    pub const COUNT: usize = 8;

    /// The shape with this number.
    pub fn from_number(number: usize) -> Self {
        Self { v6: number & 1 != 0, icmp: number & 2 != 0, is_biflow: number & 4 != 0 }
    }

    /// The shape of a record if both directions share one data record.
    pub fn of(record: &Record) -> Self {
        let is_biflow = record.directions.iter().all(|s| s.packets > 0);
        Self { v6: record.key.src.is_ipv6(), icmp: fields::is_icmp(&record.key), is_biflow }
    }

    pub fn number(self) -> usize {
        usize::from(self.v6) | usize::from(self.icmp) << 1 | usize::from(self.is_biflow) << 2
    }

    fn has(self, when: TemplateScope) -> bool {
        match when {
            TemplateScope::Always => true,
            TemplateScope::V4 => !self.v6,
            TemplateScope::V6 => self.v6,
            TemplateScope::IcmpV4 => self.icmp && !self.v6,
            TemplateScope::IcmpV6 => self.icmp && self.v6,
        }
    }
}

/// A field of a template, for one direction.
#[derive(Clone, Copy)]
pub(crate) struct Column {
    pub field: &'static Field,
    pub reverse: bool,
    /// Octets on the wire.
    pub len: u16,
}

/// The fields of a record that a data record contains: all, all but the payload, or all but payload and lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FieldSelection {
    All,
    NoPayload,
    NoLists,
}

/// IANA elements that [`Fields::Standard`] omits: times in nanoseconds (156, 157), which many collectors do not support
/// (the other field sets have them in addition to milliseconds); the second element for the outer VLAN (243); sums of
/// squares (198).
const NOT_STANDARD: [u16; 4] = [156, 157, 198, 243];

/// True if this field belongs to the field set `which`.
fn has(which: Fields, field: &Field) -> bool {
    let is_fixed_iana = !field.element.is_enterprise && field.len != VARIABLE;
    match which {
        Fields::Full => true,
        Fields::Biflow => is_fixed_iana,
        Fields::Standard => is_fixed_iana && !NOT_STANDARD.contains(&field.element.id),
    }
}

/// The encoded length of a field in octets, for this field set. Counters of packets with a TCP flag have four octets in
/// [`Fields::Standard`] (reduced-size encoding, RFC 7011, section 6.2), which suffice for the lifetime of a record.
fn len(which: Fields, field: &Field) -> u16 {
    match field.element.id {
        218..=223 if which == Fields::Standard && !field.element.is_enterprise => 4,
        _ => field.len,
    }
}

/// The columns of a template: first fields of fixed length, then fields of variable length; of each, first the reverse
/// direction, then the record and the forward direction. Some collectors ignore the enterprise number and use the last
/// of two columns with the same element number (nfdump 1.7.1 for TCP flags and class of service); with this order they
/// use the forward direction.
pub(crate) fn columns(shape: Shape, which: Fields) -> Vec<Column> {
    let wanted = |f: &&Field| shape.has(f.when) && has(which, f);
    let (fixed, variable): (Vec<_>, Vec<_>) = FLOW.iter().filter(wanted).partition(|f| f.len != VARIABLE);
    let mut columns = Vec::new();
    for fields in [fixed, variable] {
        if shape.is_biflow {
            let back = fields.iter().filter(|f| f.is_directional());
            columns.extend(back.map(|field| Column { field, reverse: true, len: len(which, field) }));
        }
        columns.extend(fields.iter().map(|field| Column { field, reverse: false, len: len(which, field) }));
    }
    columns
}

/// The columns of a template of series rows.
pub(crate) fn row_columns(which: Fields) -> Vec<&'static rows::Field> {
    SERIES.iter().filter(|f| which == Fields::Full || !f.element.is_enterprise).collect()
}

/// Encodes a record as seen from one of its endpoints: its source if `side` is 0, its destination if `side` is 1.
pub(crate) fn put_record(
    columns: &[Column],
    record: &Record,
    side: usize,
    keep: FieldSelection,
    pen: u32,
    out: &mut Vec<u8>,
) {
    for column in columns {
        let len = usize::from(column.len);
        let at = side ^ usize::from(column.reverse);
        match column.field.body {
            Body::Flow { get, .. } => put_number(out, get(record, side), len),
            Body::Direction { get, index, .. } => put_number(out, get(record, at, index), len),
            Body::InitialPacket { of, own, len, get, .. } => {
                let count = if keep == FieldSelection::NoLists { 0 } else { record.initial_packets.len() };
                put_list(out, of, own.then_some(pen), len, count, |i| get(record, i));
            }
            Body::Payload => {
                let payload: &[u8] = if keep == FieldSelection::All { &record.payload[at] } else { &[] };
                put_octets(out, payload);
            }
        }
    }
}

/// Encodes a series row.
pub(crate) fn put_row(columns: &[&rows::Field], row: &Row, out: &mut Vec<u8>) {
    for field in columns {
        put_number(out, (field.get)(row, field.index), usize::from(field.len));
    }
}

/// Appends a big-endian number of `len` octets; a number that is too large is replaced by the largest number of that
/// length.
#[inline]
pub(crate) fn put_number(out: &mut Vec<u8>, value: u128, len: usize) {
    // PERF: the usual lengths are written as one word; for other lengths the number of copied bytes is known only at
    // run time.
    match len {
        1 => out.push(u8::try_from(value).unwrap_or(u8::MAX)),
        2 => out.extend_from_slice(&u16::try_from(value).unwrap_or(u16::MAX).to_be_bytes()),
        4 => out.extend_from_slice(&u32::try_from(value).unwrap_or(u32::MAX).to_be_bytes()),
        8 => out.extend_from_slice(&u64::try_from(value).unwrap_or(u64::MAX).to_be_bytes()),
        _ => {
            let fits = len >= 16 || value >> (8 * len) == 0;
            let value = if fits { value } else { u128::MAX };
            out.extend_from_slice(&value.to_be_bytes()[16 - len..]);
        }
    }
}

/// Appends octets, preceded by their length (RFC 7011, section 7). They are truncated to 65535 octets, which no message
/// can hold, so that the record is rejected.
pub(crate) fn put_octets(out: &mut Vec<u8>, octets: &[u8]) {
    let octets = &octets[..octets.len().min(usize::from(u16::MAX))];
    match u8::try_from(octets.len()) {
        Ok(len) if len < 255 => out.push(len),
        _ => {
            out.push(255);
            out.extend_from_slice(&(octets.len() as u16).to_be_bytes());
        }
    }
    out.extend_from_slice(octets);
}

/// The semantic of a basicList: ordered (RFC 6313, section 4.4).
const ORDERED: u8 = 4;

/// Octets of an interface name in an options data record: four times IFNAMSIZ, because the name may also be that of a
/// file.
pub(crate) const NAME: u16 = 64;

/// Appends a text of `len` octets: truncated at a character boundary, or padded with zeros.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str, len: u16) {
    let end = out.len() + usize::from(len);
    out.extend_from_slice(&text.as_bytes()[..text.floor_char_boundary(len.into())]);
    out.resize(end, 0);
}

/// The endpoints of a record that have sent packets: 0 is the source, 1 is the destination. If neither endpoint has
/// sent packets, only 0.
pub(crate) fn directions(record: &Record) -> &'static [usize] {
    match record.directions.each_ref().map(|s| s.packets > 0) {
        [true, true] => &[0, 1],
        [false, true] => &[1],
        _ => &[0],
    }
}

/// Appends a basicList (RFC 6313, section 4.5.1) with the recommended three-octet length.
fn put_list(out: &mut Vec<u8>, of: u16, pen: Option<u32>, len: u16, count: usize, get: impl Fn(usize) -> u128) {
    out.extend_from_slice(&[255, 0, 0]);
    let begin = out.len();
    out.push(ORDERED);
    put_specifier(out, of, pen, len);
    for i in 0..count {
        put_number(out, get(i), usize::from(len));
    }
    // If the list is longer than the length field can express, the record is longer than any message and is rejected.
    // So the value of the length field has no effect then.
    let len = u16::try_from(out.len() - begin).unwrap_or(u16::MAX);
    out[begin - 2..begin].copy_from_slice(&len.to_be_bytes());
}

/// Appends a field specifier of a template (RFC 7011, section 3.2).
pub(crate) fn put_specifier(out: &mut Vec<u8>, id: u16, pen: Option<u32>, len: u16) {
    let enterprise = if pen.is_some() { 0x8000 } else { 0 };
    out.extend_from_slice(&(id | enterprise).to_be_bytes());
    out.extend_from_slice(&len.to_be_bytes());
    if let Some(pen) = pen {
        out.extend_from_slice(&pen.to_be_bytes());
    }
}

/// The element id and the enterprise number of a column, as they are sent in a template.
pub(crate) fn wire_id(own: bool, id: u16, reverse: bool, pen: u32) -> (u16, Option<u32>) {
    match (own, reverse) {
        (false, false) => (id, None),
        (false, true) => (id, Some(REVERSE_PEN)),
        (true, false) => (id, Some(pen)),
        (true, true) => (id | REVERSE_BIT, Some(pen)),
    }
}
