//! Output of groups as a table, JSON objects, CSV or columns.

use crate::flow_records::names::Names;
use crate::outcome::Failure;
use crate::style::{Paint, StylePart};
use crate::table_layout;
use crate::zone::Zone;
use aggregate::{Aggregation, Field, GroupRow, Measure, Value};
use base::Timestamp;
use base::units::{show_bytes, show_count};
use columns::{TableColumn, Values};
use export::text::SCHEMA_VERSION;
use flow::{EndReason, TcpState};
use serde_json::{Map, json};
use std::io::Write;

/// The style of a table.
#[derive(Clone, Debug)]
pub struct TableStyle {
    /// The maximum length of a line in characters; `None` for no limit.
    pub room: Option<usize>,
    pub paint: Paint,
    pub zone: Zone,
}

/// The time range of the records in a ranking, for rankings that are printed periodically.
#[derive(Clone, Copy, Debug)]
pub struct Period {
    pub from: Timestamp,
    pub to: Timestamp,
}

/// Writes a table: fields left-aligned, amounts right-aligned, the share of the ranked measure last. Returns the names
/// of columns that were left out to fit the width.
pub fn table(
    report: &Aggregation,
    names: &Names,
    style: &TableStyle,
    out: &mut impl Write,
) -> Result<Option<String>, Failure> {
    let mut rows = vec![header(report)];
    rows.extend(report.lines.iter().map(|line| {
        let values = line.values.iter().map(|v| names.value(v));
        let amounts = line.amounts.iter().zip(&report.measures).map(|(amount, m)| match m {
            Measure::First | Measure::Last => style.zone.show(Timestamp::from_nanos(*amount)),
            _ => shown(*m, *amount),
        });
        let share = report.share(line, report.by).map(|share| format!("{:.1} %", share * 100.0));
        values.chain(amounts).chain(share).collect()
    }));
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|i| rows.iter().filter_map(|row| row.get(i)).map(|c| c.chars().count()).max().unwrap_or(0))
        .collect();
    let (mut is_shown, mut dropped) = (vec![true; columns], Vec::new());
    for column in dispensable(report) {
        let width = |is_shown: &[bool]| (0..columns).filter(|i| is_shown[*i]).map(|i| widths[i] + 2).sum::<usize>();
        if style.room.is_none_or(|room| width(&is_shown) <= room + 2) {
            break;
        }
        is_shown[column] = false;
        dropped.push(rows[0][column].clone());
    }
    for (number, row) in rows.iter().enumerate() {
        let mut line = String::new();
        for (i, (cell, width)) in row.iter().zip(&widths).enumerate().filter(|(i, _)| is_shown[*i]) {
            let pad = " ".repeat(width - cell.chars().count());
            line += if line.is_empty() { "" } else { "  " };
            line += &if i < report.fields.len() { format!("{cell}{pad}") } else { format!("{pad}{cell}") };
        }
        let line = line.trim_end();
        match number {
            0 => writeln!(out, "{}", style.paint.part(StylePart::Header, line))?,
            _ => writeln!(out, "{line}")?,
        }
    }
    let dropped: Vec<&str> = dropped.iter().map(String::as_str).collect();
    Ok((!dropped.is_empty()).then(|| table_layout::left_out(style.room, &dropped)))
}

/// The indices of columns that a narrow terminal omits, least important first: times, measures by which the groups are
/// not ranked, the interface, the flow ID. Columns that distinguish the groups remain.
fn dispensable(report: &Aggregation) -> Vec<usize> {
    let fields = report.fields.len();
    let measures = |wanted: fn(Measure) -> bool| {
        let places = report.measures.iter().enumerate().rev();
        places.filter(move |(i, m)| *i != report.by && wanted(**m)).map(move |(i, _)| fields + i)
    };
    let is_moment = |m: Measure| matches!(m, Measure::First | Measure::Last);
    let mut places: Vec<usize> =
        measures(is_moment).chain(measures(|m| !matches!(m, Measure::First | Measure::Last))).collect();
    if report.fields.contains(&Field::Flow) {
        let of = |field| report.fields.iter().position(|f| *f == field);
        places.extend([Field::Interface, Field::Flow].into_iter().filter_map(of));
    }
    places
}

/// A value to be written as JSON, as CSV, or into a Parquet column.
enum Cell {
    /// A flow ID: text in JSON, because many JSON readers round large numbers.
    Id(u64),
    Number(Option<u64>),
    Text(Option<String>),
}

impl Cell {
    fn json(self) -> serde_json::Value {
        match self {
            Self::Id(id) => json!(id.to_string()),
            Self::Number(number) => json!(number),
            Self::Text(text) => json!(text),
        }
    }

    /// An unknown value is empty.
    fn csv(self) -> String {
        match self {
            Self::Id(id) => id.to_string(),
            Self::Number(number) => number.map(|n| n.to_string()).unwrap_or_default(),
            Self::Text(text) => quoted(&text.unwrap_or_default()),
        }
    }

    fn number(self) -> Option<u64> {
        match self {
            Self::Id(id) => Some(id),
            Self::Number(number) => number,
            Self::Text(_) => None,
        }
    }

    fn text(self) -> Option<String> {
        match self {
            Self::Text(text) => text,
            Self::Id(_) | Self::Number(_) => None,
        }
    }
}

/// The values of a field in JSON, CSV or Parquet: one cell for each of [`Field::columns`].
fn cells(value: &Value, names: &Names) -> Vec<Cell> {
    let word = |word: Option<&str>| vec![Cell::Text(word.map(str::to_owned))];
    match value {
        Value::Flow(id) => vec![Cell::Id(*id)],
        Value::Port(port) => vec![Cell::Number(Some((*port).into()))],
        Value::Vlan(ids) => ids.iter().map(|id| Cell::Number(id.map(u64::from))).collect(),
        Value::Mpls(label) => vec![Cell::Number(label.map(u64::from))],
        Value::Tunnel(tunnel) => vec![
            Cell::Text(tunnel.map(|(kind, _)| flow::tunnel_name(kind).to_owned())),
            Cell::Number(tunnel.map(|(_, id)| id.into())),
        ],
        Value::End(end) => word(end.map(EndReason::name)),
        Value::State(state) => word(state.and_then(TcpState::name)),
        Value::Address(..) | Value::Protocol(_) | Value::Interface(_) => vec![Cell::Text(Some(names.value(value)))],
    }
}

/// Writes one JSON object for each group.
pub fn objects(
    report: &Aggregation,
    names: &Names,
    period: Option<Period>,
    out: &mut impl Write,
) -> Result<(), Failure> {
    for line in &report.lines {
        let mut object = Map::from_iter([("schema_version".to_owned(), json!(SCHEMA_VERSION))]);
        if let Some(Period { from, to }) = period {
            object.insert("from".into(), from.to_string().into());
            object.insert("to".into(), to.to_string().into());
        }
        for (field, value) in report.fields.iter().zip(&line.values) {
            for (name, cell) in field.columns().iter().zip(cells(value, names)) {
                object.insert((*name).into(), cell.json());
            }
        }
        for (measure, amount) in report.measures.iter().zip(&line.amounts) {
            object.insert(measure.column().into(), printed(*measure, *amount));
        }
        object.insert("share".into(), json!(report.share(line, report.by)));
        serde_json::to_writer(&mut *out, &object).map_err(std::io::Error::from)?;
        writeln!(out)?;
    }
    Ok(())
}

/// The header line of [`csv()`].
pub fn csv_header(report: &Aggregation, is_of_periods: bool, out: &mut impl Write) -> Result<(), Failure> {
    let period = ["from", "to"].into_iter().filter(|_| is_of_periods).map(str::to_owned);
    let fields = report.fields.iter().flat_map(|f| f.columns()).map(|&name| name.to_owned());
    let measures = report.measures.iter().map(|m| m.column().to_owned());
    Ok(write!(out, "{}\r\n", period.chain(fields).chain(measures).collect::<Vec<_>>().join(","))?)
}

/// Writes one CSV line for each group (RFC 4180).
pub fn csv(report: &Aggregation, names: &Names, period: Option<Period>, out: &mut impl Write) -> Result<(), Failure> {
    for line in &report.lines {
        if let Some(Period { from, to }) = period {
            write!(out, "{from},{to},")?;
        }
        // Only the name of an interface can contain a comma or a quotation mark.
        let values = line.values.iter().flat_map(|v| cells(v, names)).map(|cell| cell.csv());
        let amounts = line.amounts.iter().zip(&report.measures).map(|(amount, m)| match printed(*m, *amount) {
            serde_json::Value::String(text) => text,
            number => number.to_string(),
        });
        write!(out, "{}\r\n", values.chain(amounts).collect::<Vec<_>>().join(","))?;
    }
    Ok(())
}

/// Returns the values that [`objects`] writes, column by column. A flow ID is a number here, not a text.
pub fn columns(report: &Aggregation, names: &Names) -> Vec<TableColumn> {
    let fields = report.fields.iter().enumerate().flat_map(|(i, field)| {
        field.columns().iter().enumerate().map(move |(part, name)| {
            let of_line = |line: &GroupRow| cells(&line.values[i], names).into_iter().nth(part);
            let found: Vec<Option<Cell>> = report.lines.iter().map(of_line).collect();
            let is_number = found.iter().flatten().any(|cell| !matches!(cell, Cell::Text(_)));
            let values = if is_number {
                Values::Numbers(found.into_iter().map(|cell| cell?.number()).collect())
            } else {
                Values::Texts(found.into_iter().map(|cell| cell?.text()).collect())
            };
            TableColumn { name: (*name).to_owned(), values }
        })
    });
    let measures = report.measures.iter().enumerate().map(|(i, measure)| {
        let amounts = report.lines.iter().map(|line| Some(line.amounts[i]));
        let values = match measure {
            Measure::First | Measure::Last => Values::Moments(amounts.collect()),
            _ => Values::Numbers(amounts.collect()),
        };
        TableColumn { name: measure.column().to_owned(), values }
    });
    let shares = report.lines.iter().map(|line| report.share(line, report.by)).collect();
    let share = TableColumn { name: "share".to_owned(), values: Values::Fractions(shares) };
    fields.chain(measures).chain([share]).collect()
}

/// The message below a ranking of single flows, which explains how to rank groups of flows instead.
pub fn advice_to_group() -> String {
    format!("each line is a flow; for sums add --group, as in --group src,dport; fields: {}", Field::WORDS)
}

/// A text with the number of shown groups and the totals of all groups.
pub fn summary(report: &Aggregation, zone: &Zone) -> String {
    let sums = report.measures.iter().zip(&report.totals).map(|(m, n)| match m {
        Measure::First | Measure::Last => format!("{} {}", m.name(), zone.show(Timestamp::from_nanos(*n))),
        _ => format!("{} {}", m.name(), shown(*m, *n)),
    });
    let sums: Vec<String> = sums.collect();
    let (shown, all) = (show_count(report.lines.len() as u64), show_count(report.groups));
    let what = if report.fields.contains(&Field::Flow) { "flows" } else { "groups" };
    format!("{shown} of {all} {what}; all {what}: {}", sums.join(", "))
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\r', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

fn header(report: &Aggregation) -> Vec<String> {
    let fields = report.fields.iter().map(|f| f.name().to_owned());
    let measures = report.measures.iter().map(|m| m.name().to_owned());
    let any_share = report.lines.iter().any(|line: &GroupRow| report.share(line, report.by).is_some());
    let share = any_share.then(|| format!("of {}", report.measures[report.by].name()));
    fields.chain(measures).chain(share).collect()
}

/// An amount with its unit.
fn shown(measure: Measure, amount: u64) -> String {
    match measure {
        Measure::Bytes
        | Measure::Sent
        | Measure::Received
        | Measure::IpBytes
        | Measure::Payload
        | Measure::RetransmittedBytes => show_bytes(amount),
        Measure::Duration | Measure::Rtt => span(amount),
        Measure::First | Measure::Last => Timestamp::from_nanos(amount).to_string(),
        _ => show_count(amount),
    }
}

/// An amount in JSON, CSV or Parquet: times as RFC 3339, other amounts as numbers.
fn printed(measure: Measure, amount: u64) -> serde_json::Value {
    match measure {
        Measure::First | Measure::Last => Timestamp::from_nanos(amount).to_string().into(),
        _ => amount.into(),
    }
}

/// Nanoseconds as text in a suitable unit.
pub fn span(nanos: u64) -> String {
    match nanos {
        0 => "0 s".into(),
        1..1_000_000 => format!("{:.1} us", nanos as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", nanos as f64 / 1e6),
        1_000_000_000..600_000_000_000 => format!("{:.1} s", nanos as f64 / 1e9),
        _ => format!("{:.1} min", nanos as f64 / 60e9),
    }
}
