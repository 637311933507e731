//! Generates the tables of docs/reference/export.md from the tables that the encoders use. A test compares the tables
//! of the page with the generated text.

use crate::element::{Element, PEN, REVERSE_BIT, VARIABLE};
use crate::exporter::Unsent;
use crate::fields::{FLOW, initial_packet_reverse};
use crate::rows::SERIES;
use std::fmt::Write;

/// The text that docs/reference/export.md contains between its markers.
pub fn tables() -> String {
    let mut text = format!(
        "\n### Flow records\n\nOur elements have the enterprise number {PEN} ({PEN:#x}). Elements with ↔ are exported \
         for both directions: the\nreverse of an IANA element has the enterprise number 29305 (RFC 5103), the \
         reverse of ours has the element number + {REVERSE_BIT}.\n\n"
    );
    head(&mut text);
    for field in FLOW.iter() {
        row(&mut text, &field.element, field.len, field.is_directional());
    }
    row(&mut text, &initial_packet_reverse(), 1, false);
    text.push_str("\n### Rows of a time series\n\n");
    head(&mut text);
    for field in SERIES.iter() {
        row(&mut text, &field.element, field.len, false);
    }
    text.push_str("\n### Causes of unsent records\n\n| cause | description |\n|---|---|\n");
    for cause in Unsent::ALL {
        let _ = writeln!(text, "| `{}` | {} |", cause.name(), cause.description());
    }
    text.push('\n');
    text
}

fn head(text: &mut String) {
    text.push_str("| number | name | type | octets | unit | description |\n|---|---|---|---|---|---|\n");
}

fn row(text: &mut String, element: &Element, len: u16, is_directional: bool) {
    let Element { is_enterprise, id, name, data_type, unit, description, .. } = element;
    let number = format!("{}{id}", if *is_enterprise { "ours " } else { "" });
    let arrows = if is_directional { " ↔" } else { "" };
    let octets = if len == VARIABLE { "any".to_owned() } else { len.to_string() };
    let (data_type, unit) = (data_type.name(), unit.name());
    // Writing to a String does not fail.
    let _ = writeln!(text, "| {number} | `{name}`{arrows} | {data_type} | {octets} | {unit} | {description} |");
}
