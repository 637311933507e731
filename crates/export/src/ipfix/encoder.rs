//! Encodes flow records and series rows as IPFIX messages (RFC 7011): templates before the data that need them.
//!
//! With [`Fields::Standard`] a flow record becomes one data record per direction that has packets; the two data records
//! of a flow are in one message and have the same flowId. With the other field sets a flow record of both directions is
//! a biflow with reverse elements (RFC 5103). A data record whose source is the flow's destination has biflowDirection
//! 2; its addresses, counters and times are all seen from that source.
//!
//! Templates and options data have their own messages, because some collectors lose the flows of a message that also
//! has templates or options data (nfacctd 1.7). Options data also have their own observation domain (see
//! [`options_domain`]): RFC 7011, section 3.1, counts options data records in the sequence number, and nfcapd 1.7 does
//! not. In a domain without options data, RFC 7011 and nfcapd expect the same sequence numbers.

use super::{HEADER, OPTIONS_TEMPLATES, TEMPLATES, VERSION, at, id};
use crate::element::{Element, VARIABLE};
use crate::encode::{Config, Encode, EncodeResult, Fields, Interface, Message, MessageSink, Repetition, TooLarge};
use crate::fields::{FLOW, initial_packet_reverse};
use crate::message_builder::MessageBuilder;
use crate::rows::{self, SERIES};
use crate::template::{
    self, Column, FieldSelection, NAME, Shape, directions, put_number, put_octets, put_specifier, put_text, wire_id,
};
use base::Timestamp;
use flow::Record;
use series::{Direction, Row};
use std::collections::BTreeMap;

/// Encodes IPFIX; see the module.
pub struct Encoder {
    config: Config,
    message: MessageBuilder,
    /// The domain to which the current message belongs.
    kind: Kind,
    /// For each [`Kind`], the number of data records that the earlier messages of its observation domain contained,
    /// modulo 2^32. The current message is not included.
    sequences: [u32; 2],
    /// True once a series row was added, so that the template of series rows must be sent.
    has_rows: bool,
    flows: Vec<Vec<Column>>,
    series: Vec<&'static rows::Field>,
    interfaces: BTreeMap<u16, Interface>,
    templates: Repetition,
    exported: Exported,
    scratch: Vec<u8>,
}

/// The two observation domains of an encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The domain for flow records and series rows.
    Flows = 0,
    /// Options data.
    Options = 1,
}

/// The observation domain of the options data about a domain.
fn options_domain(domain: u32) -> u32 {
    domain | 1 << 31
}

/// The counters of the exporter statistics (RFC 7011, section 4.1 and 4.3).
#[derive(Debug, Default)]
struct Exported {
    messages: u64,
    octets: u64,
    records: u64,
    not_sent: u64,
}

impl Encoder {
    /// A new encoder.
    pub fn new(config: Config) -> Self {
        // The first half of the template shapes are those of data records of one direction. The field set `standard`
        // needs no others.
        let shapes = if config.fields == Fields::Standard { Shape::COUNT / 2 } else { Shape::COUNT };
        Self {
            message: MessageBuilder::new(HEADER, config.limit(), 1),
            kind: Kind::Flows,
            sequences: [0; 2],
            has_rows: false,
            flows: (0..shapes).map(|n| template::columns(Shape::from_number(n), config.fields)).collect(),
            series: template::row_columns(config.fields),
            interfaces: BTreeMap::new(),
            templates: Repetition::default(),
            exported: Exported::default(),
            scratch: Vec::with_capacity(2048),
            config,
        }
    }

    /// Completes the message and passes it to `out`, unless the message is empty.
    fn emit(&mut self, now: Timestamp, out: MessageSink<'_>) {
        if self.message.is_empty() {
            return;
        }
        let (data, items, sequence) = (self.message.data, self.message.items, &mut self.sequences[self.kind as usize]);
        let domain = match self.kind {
            Kind::Flows => self.config.domain,
            Kind::Options => options_domain(self.config.domain),
        };
        let bytes = self.message.finish();
        let len = bytes.len() as u16;
        bytes[at::VERSION].copy_from_slice(&VERSION.to_be_bytes());
        bytes[at::LENGTH].copy_from_slice(&len.to_be_bytes());
        bytes[at::EXPORT_TIME].copy_from_slice(&(now.secs() as u32).to_be_bytes());
        bytes[at::SEQUENCE].copy_from_slice(&sequence.to_be_bytes());
        bytes[at::DOMAIN].copy_from_slice(&domain.to_be_bytes());
        self.exported.messages += 1;
        self.exported.octets += u64::from(len);
        if self.kind == Kind::Flows {
            self.exported.records += u64::from(data);
        }
        *sequence = sequence.wrapping_add(data);
        out(Message { bytes, items });
        self.message.clear();
        self.templates.count_message();
    }

    /// Adds the content of `scratch` to a set, in a new message if the current one is too full. `data` is the number of
    /// data records in `scratch`, `items` the number of submitted flow records and series rows.
    fn put(&mut self, set: u16, [data, items]: [u32; 2], now: Timestamp, out: MessageSink<'_>) -> Result<(), TooLarge> {
        let len = self.scratch.len();
        if !self.message.can_ever_fit(len) {
            return Err(TooLarge { len, limit: self.config.limit() });
        }
        if !self.message.fits(set, len) {
            self.emit(now, out);
        }
        self.message.put(set, &self.scratch);
        self.message.data += data;
        self.message.items += items;
        Ok(())
    }

    /// Sends templates, options templates and options data. Each of these records fits into a message of
    /// [`crate::encode::MESSAGE_MIN`] bytes.
    fn announce(&mut self, now: Timestamp, out: MessageSink<'_>) {
        self.emit(now, out);
        self.templates.announce(now);
        self.templates(now, out);
        self.emit(now, out);
        self.kind = Kind::Options;
        self.options_templates(now, out);
        self.emit(now, out);
        self.options(now, out);
        self.emit(now, out);
        self.kind = Kind::Flows;
    }

    fn templates(&mut self, now: Timestamp, out: MessageSink<'_>) {
        for number in 0..self.flows.len() {
            self.scratch.clear();
            let columns = &self.flows[number];
            put_template(&mut self.scratch, id::FLOWS + number as u16, columns.len(), None);
            for Column { field, reverse, len } in columns {
                let (id, pen) = wire_id(field.element.is_enterprise, field.element.id, *reverse, self.config.pen);
                put_specifier(&mut self.scratch, id, pen, *len);
            }
            self.put_fitting(TEMPLATES, 0, now, out);
        }
        if !self.has_rows {
            return;
        }
        self.scratch.clear();
        put_template(&mut self.scratch, id::SERIES, self.series.len(), None);
        for field in &self.series {
            let (id, pen) = wire_id(field.element.is_enterprise, field.element.id, false, self.config.pen);
            put_specifier(&mut self.scratch, id, pen, field.len);
        }
        self.put_fitting(TEMPLATES, 0, now, out);
    }

    fn options_templates(&mut self, now: Timestamp, out: MessageSink<'_>) {
        let is_exported = |o: &&&Options| o.id != id::ELEMENTS || self.config.fields == Fields::Full;
        for options in OPTIONS.iter().filter(is_exported).collect::<Vec<_>>() {
            self.scratch.clear();
            put_template(&mut self.scratch, options.id, options.fields.len(), Some(options.scopes));
            for (id, len) in options.fields {
                put_specifier(&mut self.scratch, *id, None, *len);
            }
            self.put_fitting(OPTIONS_TEMPLATES, 0, now, out);
            // Each options template has its own set, because nfacctd 1.7 reads only the first options template of a set
            // and reports the others as errors.
            self.message.close();
        }
    }

    fn options(&mut self, now: Timestamp, out: MessageSink<'_>) {
        let (domain, sampling) = (self.config.domain, self.config.sampling);
        // The selector algorithm 1 is systematic count-based sampling (RFC 5477). If `space` is 0, all packets are
        // selected.
        self.option(&SAMPLING, &[domain.into(), 1, 1, sampling.interval.into(), sampling.space.into()], "", now, out);
        let e = &self.exported;
        let counts = [domain.into(), e.messages.into(), e.records.into(), e.octets.into(), e.not_sent.into()];
        self.option(&STATISTICS, &counts, "", now, out);
        for (number, interface) in self.interfaces.clone() {
            self.option(&INTERFACES, &[number.into()], &interface.name, now, out);
            let counts = [number.into(), interface.offered.into(), interface.lost.into()];
            self.option(&LOSS, &counts, "", now, out);
        }
        if self.config.fields == Fields::Full {
            for (id, element) in own_elements() {
                let Element { data_type, semantics, unit, name, .. } = &element;
                let values = [id.into(), self.config.pen.into(), *data_type as u128, *semantics as u128, *unit as u128];
                self.option(&ELEMENTS, &values, name, now, out);
            }
        }
    }

    /// Adds one data record per direction that has packets, all in one message, so that they are sent or lost together.
    fn directions(&mut self, record: &Record, now: Timestamp, out: MessageSink<'_>) -> Result<EncodeResult, TooLarge> {
        let number = Shape { is_biflow: false, ..Shape::of(record) }.number();
        let sides = directions(record);
        self.scratch.clear();
        for side in sides {
            let (columns, pen) = (&self.flows[number], self.config.pen);
            template::put_record(columns, record, *side, FieldSelection::NoLists, pen, &mut self.scratch);
        }
        self.put(id::FLOWS + number as u16, [sides.len() as u32, 1], now, out)?;
        Ok(EncodeResult::Whole)
    }

    /// Adds an options data record: numbers, then a text if its template has one.
    fn option(&mut self, options: &Options, numbers: &[u128], text: &str, now: Timestamp, out: MessageSink<'_>) {
        self.scratch.clear();
        let mut numbers = numbers.iter();
        for (id, len) in options.fields {
            match (*id, *len) {
                (_, VARIABLE) => put_octets(&mut self.scratch, text.as_bytes()),
                (82, len) => put_text(&mut self.scratch, text, len),
                (_, len) => put_number(&mut self.scratch, numbers.next().copied().unwrap_or(0), len.into()),
            }
        }
        self.put_fitting(options.id, 1, now, out);
    }

    /// Like [`Self::put`], but for templates and options data, which always fit into a message.
    fn put_fitting(&mut self, set: u16, data: u32, now: Timestamp, out: MessageSink<'_>) {
        let result = self.put(set, [data, 0], now, out);
        debug_assert_eq!(result, Ok(()), "set {set}");
    }
}

impl Encode for Encoder {
    fn record(&mut self, record: &Record, now: Timestamp, out: MessageSink<'_>) -> Result<EncodeResult, TooLarge> {
        self.tick(now, out);
        if self.config.fields == Fields::Standard {
            return self.directions(record, now, out);
        }
        let shape = Shape::of(record);
        let side = usize::from(record.directions[0].packets == 0 && record.directions[1].packets > 0);
        let mut keep = FieldSelection::All;
        loop {
            self.scratch.clear();
            template::put_record(&self.flows[shape.number()], record, side, keep, self.config.pen, &mut self.scratch);
            keep = match self.put(id::FLOWS + shape.number() as u16, [1, 1], now, out) {
                Ok(()) if keep == FieldSelection::All => return Ok(EncodeResult::Whole),
                Ok(()) => return Ok(EncodeResult::Trimmed),
                Err(_) if keep == FieldSelection::All => FieldSelection::NoPayload,
                Err(_) if keep == FieldSelection::NoPayload => FieldSelection::NoLists,
                Err(error) => return Err(error),
            };
        }
    }

    fn row(&mut self, row: &Row, now: Timestamp, out: MessageSink<'_>) -> Result<(), TooLarge> {
        self.ledger(row);
        if !std::mem::replace(&mut self.has_rows, true) {
            self.templates = Repetition::default();
        }
        self.tick(now, out);
        self.scratch.clear();
        template::put_row(&self.series, row, &mut self.scratch);
        self.put(id::SERIES, [1, 1], now, out)
    }

    fn ledger(&mut self, row: &Row) {
        if row.direction == Direction::In {
            self.interfaces.entry(row.interface).or_default().add(row);
        }
    }

    fn interface(&mut self, number: u16, name: &str) {
        name.clone_into(&mut self.interfaces.entry(number).or_default().name);
    }

    fn not_sent(&mut self, items: u64) {
        self.exported.not_sent += items;
    }

    fn tick(&mut self, now: Timestamp, out: MessageSink<'_>) {
        if self.templates.is_due(self.config.refresh, now) {
            self.announce(now, out);
        }
    }

    fn flush(&mut self, now: Timestamp, out: MessageSink<'_>) {
        self.emit(now, out);
    }

    fn restart(&mut self) -> u32 {
        let items = self.message.items;
        self.message.clear();
        self.sequences = [0; 2];
        self.templates = Repetition::default();
        items
    }
}

/// Appends the header of a template record or of an options template record.
fn put_template(out: &mut Vec<u8>, id: u16, fields: usize, scopes: Option<u16>) {
    out.extend_from_slice(&id.to_be_bytes());
    out.extend_from_slice(&(fields as u16).to_be_bytes());
    if let Some(scopes) = scopes {
        out.extend_from_slice(&scopes.to_be_bytes());
    }
}

/// An options template: IANA elements and their lengths, of which the first `scopes` are scope fields.
struct Options {
    id: u16,
    scopes: u16,
    fields: &'static [(u16, u16)],
}

/// Scope fields: observationDomainId, selectorId. Other fields: selectorAlgorithm, samplingPacketInterval,
/// samplingPacketSpace.
const SAMPLING: Options =
    Options { id: id::SAMPLING, scopes: 2, fields: &[(149, 4), (302, 8), (304, 2), (305, 4), (306, 4)] };

/// Scope field: observationDomainId. Other fields: exportedMessageTotalCount, exportedFlowRecordTotalCount,
/// exportedOctetTotalCount, notSentFlowTotalCount.
const STATISTICS: Options =
    Options { id: id::STATISTICS, scopes: 1, fields: &[(149, 4), (41, 8), (42, 8), (40, 8), (166, 8)] };

/// Scope field: ingressInterface. Other fields: packetTotalCount (offered packets), ignoredPacketTotalCount (lost
/// packets).
const LOSS: Options = Options { id: id::LOSS, scopes: 1, fields: &[(10, 4), (86, 8), (164, 8)] };

/// Scope field: ingressInterface. Other field: interfaceName.
const INTERFACES: Options = Options { id: id::INTERFACES, scopes: 1, fields: &[(10, 4), (82, NAME)] };

/// Scope fields: informationElementId, privateEnterpriseNumber. Other fields: informationElementDataType,
/// informationElementSemantics, informationElementUnits, informationElementName (RFC 5610).
const ELEMENTS: Options = Options {
    id: id::ELEMENTS,
    scopes: 2,
    fields: &[(303, 2), (346, 4), (339, 1), (344, 1), (345, 2), (341, VARIABLE)],
};

const OPTIONS: [&Options; 5] = [&SAMPLING, &STATISTICS, &LOSS, &INTERFACES, &ELEMENTS];

/// All of our own elements with the numbers that templates contain. The reverse elements are included, under the names
/// of RFC 5103.
fn own_elements() -> Vec<(u16, Element)> {
    let mut elements = Vec::new();
    for field in FLOW.iter().filter(|f| f.element.is_enterprise) {
        elements.push((field.element.id, field.element.clone()));
        if field.is_directional() {
            let mut reverse = field.element.clone();
            let (head, tail) = field.element.name.split_at(1);
            reverse.name = format!("reverse{}{tail}", head.to_ascii_uppercase()).into();
            elements.push((wire_id(true, reverse.id, true, 0).0, reverse));
        }
    }
    let reverse = initial_packet_reverse();
    elements.push((reverse.id, reverse));
    elements.extend(SERIES.iter().filter(|f| f.element.is_enterprise).map(|f| (f.element.id, f.element.clone())));
    elements
}
