//! Groups for people and for programs: a table, objects, CSV, columns.

use super::names::Names;
use crate::outcome::Failure;
use base::Timestamp;
use base::units::{show_bytes, show_count};
use columns::{TableColumn, Values};
use report::{Line, Measure, Report, Value};
use serde_json::{Map, json};
use std::io::Write;

/// Writes it as a table: fields from the left, amounts from the right, the share of what it is ranked by at the end.
pub fn table(report: &Report, names: &Names, out: &mut impl Write) -> Result<(), Failure> {
    let mut rows = vec![header(report)];
    rows.extend(report.lines.iter().map(|line| {
        let values = line.values.iter().map(|v| names.value(v));
        let amounts = line.amounts.iter().zip(&report.measures).map(|(amount, m)| shown(*m, *amount));
        let share = report.share(line, report.by).map(|share| format!("{:.1} %", share * 100.0));
        values.chain(amounts).chain(share).collect()
    }));
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|i| rows.iter().filter_map(|row| row.get(i)).map(|c| c.chars().count()).max().unwrap_or(0))
        .collect();
    for row in &rows {
        let mut line = String::new();
        for (i, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let pad = " ".repeat(width - cell.chars().count());
            line += if i == 0 { "" } else { "  " };
            line += &if i < report.fields.len() { format!("{cell}{pad}") } else { format!("{pad}{cell}") };
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// One object for each group.
pub fn objects(report: &Report, names: &Names, out: &mut impl Write) -> Result<(), Failure> {
    for line in &report.lines {
        let mut object = Map::new();
        for (field, value) in report.fields.iter().zip(&line.values) {
            let value = match value {
                Value::Port(n) => json!(n),
                Value::Vlan(ids) => json!(ids.iter().flatten().collect::<Vec<_>>()),
                Value::Mpls(label) => json!(label),
                Value::Tunnel(None) => json!(null),
                other => names.value(other).into(),
            };
            object.insert(field.name().into(), value);
        }
        for (measure, amount) in report.measures.iter().zip(&line.amounts) {
            object.insert(measure.name().replace('-', "_"), told(*measure, *amount));
        }
        object.insert("share".into(), json!(report.share(line, report.by)));
        serde_json::to_writer(&mut *out, &object).map_err(std::io::Error::from)?;
        writeln!(out)?;
    }
    Ok(())
}

/// RFC 4180, with a header.
pub fn csv(report: &Report, names: &Names, out: &mut impl Write) -> Result<(), Failure> {
    let fields = report.fields.iter().map(|f| f.name().to_owned());
    let measures = report.measures.iter().map(|m| m.name().replace('-', "_"));
    write!(out, "{}\r\n", fields.chain(measures).collect::<Vec<_>>().join(","))?;
    for line in &report.lines {
        // No value has a comma or a quotation mark in it but perhaps the name of an interface.
        let values = line.values.iter().map(|v| quoted(&names.value(v)));
        let amounts = line.amounts.iter().zip(&report.measures).map(|(amount, m)| match told(*m, *amount) {
            serde_json::Value::String(text) => text,
            number => number.to_string(),
        });
        write!(out, "{}\r\n", values.chain(amounts).collect::<Vec<_>>().join(","))?;
    }
    Ok(())
}

/// The same as [`objects`], column by column: tags of VLAN are a text here, the outer one first.
pub fn columns(report: &Report, names: &Names) -> Vec<TableColumn> {
    let fields = report.fields.iter().enumerate().map(|(i, field)| {
        let values = || report.lines.iter().map(|line| &line.values[i]);
        let number = |value: &Value| match value {
            Value::Port(n) => Some(u64::from(*n)),
            Value::Mpls(label) => label.map(u64::from),
            _ => None,
        };
        let text = |value: &Value| match value {
            Value::Tunnel(None) | Value::Vlan([None, None]) => None,
            other => Some(names.value(other)),
        };
        let is_number = values().next().is_some_and(|v| matches!(v, Value::Port(_) | Value::Mpls(_)));
        let values = if is_number {
            Values::Numbers(values().map(number).collect())
        } else {
            Values::Texts(values().map(text).collect())
        };
        TableColumn { name: field.name().to_owned(), values }
    });
    let measures = report.measures.iter().enumerate().map(|(i, measure)| {
        let amounts = report.lines.iter().map(|line| Some(line.amounts[i]));
        let values = match measure {
            Measure::Duration | Measure::Rtt => Values::Fractions(amounts.map(|n| n.map(seconds)).collect()),
            Measure::First | Measure::Last => Values::Moments(amounts.collect()),
            _ => Values::Numbers(amounts.collect()),
        };
        TableColumn { name: measure.name().replace('-', "_"), values }
    });
    let shares = report.lines.iter().map(|line| report.share(line, report.by)).collect();
    let share = TableColumn { name: "share".to_owned(), values: Values::Fractions(shares) };
    fields.chain(measures).chain([share]).collect()
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\r', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

fn header(report: &Report) -> Vec<String> {
    let fields = report.fields.iter().map(|f| f.name().to_owned());
    let measures = report.measures.iter().map(|m| m.name().to_owned());
    let any_share = report.lines.iter().any(|line: &Line| report.share(line, report.by).is_some());
    let share = any_share.then(|| format!("of {}", report.measures[report.by].name()));
    fields.chain(measures).chain(share).collect()
}

/// An amount with its unit.
pub fn shown(measure: Measure, amount: u64) -> String {
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

/// An amount for a program: spans in seconds, moments as RFC 3339, all else as the number.
fn told(measure: Measure, amount: u64) -> serde_json::Value {
    match measure {
        Measure::Duration | Measure::Rtt => json!(seconds(amount)),
        Measure::First | Measure::Last => Timestamp::from_nanos(amount).to_string().into(),
        _ => amount.into(),
    }
}

/// Nanoseconds in the unit that suits them.
pub fn span(nanos: u64) -> String {
    match nanos {
        0 => "0 s".into(),
        1..1_000_000 => format!("{:.1} us", nanos as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", nanos as f64 / 1e6),
        1_000_000_000..600_000_000_000 => format!("{:.1} s", nanos as f64 / 1e9),
        _ => format!("{:.1} min", nanos as f64 / 60e9),
    }
}
