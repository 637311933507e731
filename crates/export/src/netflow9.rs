//! NetFlow version 9 (RFC 3954): the standard elements of flow records and series rows, for collectors without IPFIX.
//!
//! NetFlow v9 has neither enterprise elements nor lists nor biflows: a record of both directions becomes two data
//! records in one message, and fields without an IANA element are omitted. Templates and options data have messages of
//! their own. Times are in milliseconds of uptime, in 32 bits. The uptime of netgrain's messages begins a day before
//! the first record. If it cannot represent a time, a new uptime begins.

use crate::encode::{Config, Encode, EncodeResult, Fields, Interface, Message, MessageSink, Repetition, TooLarge};
use crate::fields;
use crate::message_builder::MessageBuilder;
use crate::rows;
use crate::template::{self, Column, FieldSelection, NAME, Shape, directions, put_number, put_specifier, put_text};
use base::Timestamp;
use flow::Record;
use series::{Direction, Row};
use std::collections::BTreeMap;
use std::time::Duration;

/// Bytes of a message header.
const HEADER: usize = 20;

/// The message header (RFC 3954, section 5.1).
mod at {
    use std::ops::Range;
    pub const VERSION: Range<usize> = 0..2;
    pub const COUNT: Range<usize> = 2..4;
    pub const UPTIME: Range<usize> = 4..8;
    pub const SECONDS: Range<usize> = 8..12;
    pub const SEQUENCE: Range<usize> = 12..16;
    pub const SOURCE: Range<usize> = 16..20;
}

const VERSION: u16 = 9;

/// The ids of FlowSets that contain templates instead of data.
const TEMPLATES: u16 = 0;
const OPTIONS_TEMPLATES: u16 = 1;

/// The template ids that netgrain uses. `FLOWS` is the first of four consecutive ids of flow records: one for each
/// combination of address family (IPv4, IPv6) and protocol (ICMP, any other).
mod id {
    pub const FLOWS: u16 = 256;
    pub const SERIES: u16 = 272;
    pub const SAMPLING: u16 = 280;
    pub const STATISTICS: u16 = 281;
    pub const LOSS: u16 = 282;
    pub const INTERFACES: u16 = 283;
}

/// Elements of flow templates that NetFlow v9 has instead of IPFIX times: FIRST_SWITCHED and LAST_SWITCHED.
const SWITCHED: [(u16, u16); 2] = [(22, 4), (21, 4)];

/// The IPFIX elements that FIRST_SWITCHED and LAST_SWITCHED replace.
const REPLACED: [u16; 4] = [152, 153, 156, 157];

/// Time from the begin of the uptime to the first record.
const BEFORE: Duration = Duration::from_secs(86_400);

/// Greatest uptime in milliseconds.
const UPTIME_MAX: u64 = u32::MAX as u64;

/// Encodes NetFlow v9; see the module.
pub struct Encoder {
    config: Config,
    message: MessageBuilder,
    /// Number of NetFlow messages sent before the current message.
    sequence: u32,
    flows: Vec<Vec<Column>>,
    series: Vec<&'static rows::Field>,
    interfaces: BTreeMap<u16, Interface>,
    templates: Repetition,
    /// True once the template of series rows has been announced.
    has_rows: bool,
    /// When the uptime began, in whole seconds.
    boot: Option<Timestamp>,
    /// The latest end of a flow in the current message.
    latest: Timestamp,
    exported: Exported,
    scratch: Vec<u8>,
}

/// TOTAL_PKTS_EXP, TOTAL_BYTES_EXP and TOTAL_FLOWS_EXP.
#[derive(Debug, Default)]
struct Exported {
    messages: u64,
    octets: u64,
    records: u64,
}

impl Encoder {
    /// A new encoder. [`Config::pen`] and [`Config::fields`] have no effect.
    pub fn new(config: Config) -> Self {
        // The shapes 0 to 3 are those of records of one direction.
        let one_direction = |number| template::columns(Shape::from_number(number), Fields::Standard);
        let kept = |c: &Column| !REPLACED.contains(&c.field.element.id);
        Self {
            message: MessageBuilder::new(HEADER, config.limit(), 4),
            sequence: 0,
            flows: (0..Shape::COUNT / 2).map(|n| one_direction(n).into_iter().filter(kept).collect()).collect(),
            series: template::row_columns(Fields::Standard),
            interfaces: BTreeMap::new(),
            templates: Repetition::default(),
            has_rows: false,
            boot: None,
            latest: Timestamp::ZERO,
            exported: Exported::default(),
            scratch: Vec::with_capacity(512),
            config,
        }
    }

    fn emit(&mut self, now: Timestamp, out: MessageSink<'_>) {
        if self.message.is_empty() {
            return;
        }
        let (records, items) = (self.message.records, self.message.items);
        // Collectors compute the begin of the uptime from the seconds and the uptime in the header, so the export time
        // has no fraction of a second. For a flow that ends after the export time of its message, collectors compute
        // times 49 days too early. So the export time is replaced by the nearest suitable time in two cases: if the
        // uptime cannot represent the export time, as when an old capture is read, or if a flow of the message ends
        // after it.
        let boot = self.boot.unwrap_or(now).secs();
        let seconds = now.secs().clamp(boot, boot + UPTIME_MAX / 1000).max(self.latest.secs() + 1);
        let uptime = seconds.saturating_sub(boot) * 1000;
        let (sequence, source) = (self.sequence, self.config.domain);
        let bytes = self.message.finish();
        bytes[at::VERSION].copy_from_slice(&VERSION.to_be_bytes());
        bytes[at::COUNT].copy_from_slice(&(records as u16).to_be_bytes());
        bytes[at::UPTIME].copy_from_slice(&(uptime as u32).to_be_bytes());
        bytes[at::SECONDS].copy_from_slice(&(seconds as u32).to_be_bytes());
        bytes[at::SEQUENCE].copy_from_slice(&sequence.to_be_bytes());
        bytes[at::SOURCE].copy_from_slice(&source.to_be_bytes());
        self.exported.messages += 1;
        self.exported.octets += bytes.len() as u64;
        // Flow records and series rows never share a message with templates or options data.
        self.exported.records += if items > 0 { u64::from(records) } else { 0 };
        out(Message { bytes, items });
        self.message.clear();
        self.latest = Timestamp::ZERO;
        self.sequence = self.sequence.wrapping_add(1);
        self.templates.count_message();
    }

    fn put(&mut self, set: u16, now: Timestamp, out: MessageSink<'_>) -> Result<(), TooLarge> {
        let len = self.scratch.len();
        if !self.message.can_ever_fit(len) {
            return Err(TooLarge { len, limit: self.config.limit() });
        }
        if !self.message.fits(set, len) {
            self.emit(now, out);
        }
        self.message.put(set, &self.scratch);
        Ok(())
    }

    /// Milliseconds of uptime at `t`; `None` if it cannot be represented.
    fn uptime(&self, t: Timestamp) -> Option<u32> {
        let millis = t.nanos().checked_sub(self.boot?.nanos())? / 1_000_000;
        (millis < UPTIME_MAX - 1000).then_some(millis as u32)
    }

    /// Restarts the uptime if it cannot represent the times of a record. A restart requires a new message, because the
    /// header states when the uptime began.
    fn boot(&mut self, record: &Record, sides: &[usize], now: Timestamp, out: MessageSink<'_>) {
        let times = sides.iter().map(|s| (fields::first(record, *s), fields::last(record, *s)));
        let is_covered = times.clone().all(|(a, b)| self.uptime(a).is_some() && self.uptime(b).is_some());
        if is_covered {
            return;
        }
        self.emit(now, out);
        let earliest = times.map(|(a, b)| a.min(b)).fold(Timestamp::MAX, Timestamp::min);
        self.boot = Some(Timestamp::from_secs_nanos(earliest.before(BEFORE).secs(), 0));
    }

    fn announce(&mut self, now: Timestamp, out: MessageSink<'_>) {
        self.emit(now, out);
        self.templates.announce(now);
        for number in 0..self.flows.len() {
            let columns = self.flows[number].iter().map(|c| (number_of(c.field.element.id), c.len));
            let specs: Vec<(u16, u16)> = columns.chain(SWITCHED).collect();
            self.template(id::FLOWS + number as u16, &specs, now, out);
        }
        if self.has_rows {
            let specs: Vec<(u16, u16)> = self.series.iter().map(|f| (f.element.id, f.len)).collect();
            self.template(id::SERIES, &specs, now, out);
        }
        for options in OPTIONS {
            self.scratch.clear();
            put_number(&mut self.scratch, options.id.into(), 2);
            put_number(&mut self.scratch, 4, 2);
            put_number(&mut self.scratch, 4 * options.fields.len() as u128, 2);
            for (id, len) in std::iter::once(&options.scope).chain(options.fields) {
                put_specifier(&mut self.scratch, *id, None, *len);
            }
            self.put_fitting(OPTIONS_TEMPLATES, now, out);
            // Each options template has its own set, because nfacctd 1.7 reads only the first options template of a set
            // and reports the others as errors.
            self.message.close();
        }
        self.emit(now, out);
        let (domain, sampling) = (u128::from(self.config.domain), self.config.sampling);
        // The sampling algorithm 1 is deterministic sampling: one of `one_of` packets is selected.
        let one_of = (u64::from(sampling.interval) + u64::from(sampling.space)) / u64::from(sampling.interval.max(1));
        self.option(&SAMPLING, &[domain, one_of.into(), 1], "", now, out);
        let e = &self.exported;
        let counts = [domain, e.octets.into(), e.messages.into(), e.records.into()];
        self.option(&STATISTICS, &counts, "", now, out);
        for (number, interface) in self.interfaces.clone() {
            self.option(&INTERFACES, &[number.into()], &interface.name, now, out);
            let counts = [number.into(), interface.offered.into(), interface.lost.into()];
            self.option(&LOSS, &counts, "", now, out);
        }
        self.emit(now, out);
    }

    fn template(&mut self, id: u16, specs: &[(u16, u16)], now: Timestamp, out: MessageSink<'_>) {
        self.scratch.clear();
        put_number(&mut self.scratch, id.into(), 2);
        put_number(&mut self.scratch, specs.len() as u128, 2);
        for (id, len) in specs {
            put_specifier(&mut self.scratch, *id, None, *len);
        }
        self.put_fitting(TEMPLATES, now, out);
    }

    fn option(&mut self, options: &Options, numbers: &[u128], text: &str, now: Timestamp, out: MessageSink<'_>) {
        self.scratch.clear();
        let lens = std::iter::once(&options.scope).chain(options.fields).map(|(_, len)| usize::from(*len));
        for (number, len) in numbers.iter().zip(lens) {
            put_number(&mut self.scratch, *number, len);
        }
        if options.id == id::INTERFACES {
            put_text(&mut self.scratch, text, NAME);
        }
        self.put_fitting(options.id, now, out);
    }

    fn put_fitting(&mut self, set: u16, now: Timestamp, out: MessageSink<'_>) {
        let result = self.put(set, now, out);
        debug_assert_eq!(result, Ok(()), "FlowSet {set}");
    }

    /// Writes one direction of a record to `scratch`.
    fn one_direction(&mut self, record: &Record, side: usize) {
        let [first, last] = [fields::first(record, side), fields::last(record, side)];
        let [first, last] = [first, last].map(|t| self.uptime(t).unwrap_or(0));
        let number = Shape { is_biflow: false, ..Shape::of(record) }.number();
        template::put_record(&self.flows[number], record, side, FieldSelection::NoLists, 0, &mut self.scratch);
        put_number(&mut self.scratch, first.into(), 4);
        put_number(&mut self.scratch, last.into(), 4);
    }
}

impl Encode for Encoder {
    fn record(&mut self, record: &Record, now: Timestamp, out: MessageSink<'_>) -> Result<EncodeResult, TooLarge> {
        let set = id::FLOWS + Shape { is_biflow: false, ..Shape::of(record) }.number() as u16;
        let sides = directions(record);
        self.boot(record, sides, now, out);
        self.tick(now, out);
        // Both directions are in one message, so that they are sent or lost together; the message header counts them as
        // two records.
        self.scratch.clear();
        for side in sides {
            self.one_direction(record, *side);
        }
        self.put(set, now, out)?;
        self.latest = sides.iter().map(|s| fields::last(record, *s)).fold(self.latest, Timestamp::max);
        self.message.records += sides.len() as u32 - 1;
        self.message.items += 1;
        Ok(EncodeResult::Whole)
    }

    fn row(&mut self, row: &Row, now: Timestamp, out: MessageSink<'_>) -> Result<(), TooLarge> {
        self.ledger(row);
        if !std::mem::replace(&mut self.has_rows, true) {
            self.templates = Repetition::default();
        }
        self.tick(now, out);
        self.scratch.clear();
        template::put_row(&self.series, row, &mut self.scratch);
        self.put(id::SERIES, now, out)?;
        self.message.items += 1;
        Ok(())
    }

    fn ledger(&mut self, row: &Row) {
        if row.direction == Direction::In {
            self.interfaces.entry(row.interface).or_default().add(row);
        }
    }

    fn interface(&mut self, number: u16, name: &str) {
        name.clone_into(&mut self.interfaces.entry(number).or_default().name);
    }

    /// RFC 3954 has no element for the number of unsent records.
    fn not_sent(&mut self, _: u64) {}

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
        self.sequence = 0;
        (self.boot, self.latest) = (None, Timestamp::ZERO);
        self.templates = Repetition::default();
        items
    }
}

/// NetFlow v9 has one element for ICMP of both address families (ICMP_TYPE).
fn number_of(element: u16) -> u16 {
    if element == 139 { 32 } else { element }
}

/// An options template (RFC 3954, section 6.1): scope and option fields.
struct Options {
    id: u16,
    scope: (u16, u16),
    fields: &'static [(u16, u16)],
}

/// The scopes of options templates, as type and length in octets: the exporter, or one of its interfaces.
const SYSTEM: (u16, u16) = (1, 4);
const INTERFACE: (u16, u16) = (2, 4);

/// SAMPLING_INTERVAL, SAMPLING_ALGORITHM.
const SAMPLING: Options = Options { id: id::SAMPLING, scope: SYSTEM, fields: &[(34, 4), (35, 1)] };

/// TOTAL_BYTES_EXP, TOTAL_PKTS_EXP, TOTAL_FLOWS_EXP.
const STATISTICS: Options = Options { id: id::STATISTICS, scope: SYSTEM, fields: &[(40, 8), (41, 8), (42, 8)] };

/// packetTotalCount (offered), ignoredPacketTotalCount (lost).
const LOSS: Options = Options { id: id::LOSS, scope: INTERFACE, fields: &[(86, 8), (164, 8)] };

/// IF_NAME.
const INTERFACES: Options = Options { id: id::INTERFACES, scope: INTERFACE, fields: &[(82, NAME)] };

const OPTIONS: [&Options; 4] = [&SAMPLING, &STATISTICS, &LOSS, &INTERFACES];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::DataType;

    #[test]
    fn every_column_has_a_fixed_length_and_a_type_of_v9() {
        let encoder = Encoder::new(Config::default());
        for column in encoder.flows.iter().flatten() {
            let element = &column.field.element;
            assert!(
                !element.is_enterprise && !column.reverse && element.data_type != DataType::BasicList,
                "{}",
                element.name
            );
        }
        assert!(encoder.series.iter().all(|f| !f.element.is_enterprise));
    }
}
