//! Generates the tables of docs/reference/export.md from the tables that the encoders use. A test compares the page
//! with them.

use crate::element::{Element, PEN, REVERSE_BIT, VARIABLE};
use crate::exporter::Unsent;
use crate::fields::{FLOW, initial_packet_reverse};
use crate::rows::SERIES;
use std::fmt::Write;

/// The text between the markers of the page.
pub fn tables() -> String {
    let mut text = format!(
        "\n### Flow records\n\nOur elements stand under the number {PEN} ({PEN:#x}). Those with ↔ are said for both \
         directions: the reverse of IANA's\nunder 29305 (RFC 5103), of ours under the number + {REVERSE_BIT}.\n\n"
    );
    head(&mut text);
    for field in FLOW.iter() {
        row(&mut text, &field.element, field.len, field.is_directional());
    }
    row(&mut text, &initial_packet_reverse(), 1, false);
    text.push_str("\n### Seconds of a series\n\n");
    head(&mut text);
    for field in SERIES.iter() {
        row(&mut text, &field.element, field.len, false);
    }
    text.push_str("\n### Why records are not sent\n\n| name | what it says of them |\n|---|---|\n");
    for cause in Unsent::ALL {
        let _ = writeln!(text, "| `{}` | {} |", cause.name(), cause.description());
    }
    text.push('\n');
    text
}

fn head(text: &mut String) {
    text.push_str("| number | name | type | octets | unit | what it says |\n|---|---|---|---|---|---|\n");
}

fn row(text: &mut String, element: &Element, len: u16, both_ways: bool) {
    let Element { is_enterprise: own, id, name, data_type, unit, description: meaning, .. } = element;
    let number = format!("{}{id}", if *own { "ours " } else { "" });
    let arrows = if both_ways { " ↔" } else { "" };
    let octets = if len == VARIABLE { "any".to_owned() } else { len.to_string() };
    let (data_type, unit) = (data_type.name(), unit.name());
    // Writing to a String does not fail.
    let _ = writeln!(text, "| {number} | `{name}`{arrows} | {data_type} | {octets} | {unit} | {meaning} |");
}
