//! Writes values as lines of NDJSON or CSV, with any fields in any order.

use super::value::json_text;
use super::{Field, FieldTable};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Version of the JSON documents of netgrain (`docs/reference/json.md`): the value of their key `schema_version`. It is
/// increased if a key is removed or changes its type or meaning; new keys do not increase it.
pub const SCHEMA_VERSION: u64 = 1;

/// The format of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One JSON object per line.
    Ndjson,
    /// RFC 4180, with a header.
    Csv,
}

/// Writes each line with one call; for many lines, pass a buffered output.
pub struct Writer<T: FieldTable, W> {
    out: W,
    format: Format,
    fields: Vec<&'static Field<T>>,
    /// The text before each value: in JSON the quoted name and a colon.
    keys: Vec<Vec<u8>>,
    interfaces: BTreeMap<u16, String>,
    line: Vec<u8>,
}

impl<T: FieldTable, W: Write> Writer<T, W> {
    /// A writer of all fields, or of those [chosen](super::choose). Writes the CSV header at once.
    ///
    /// # Errors
    /// If the header cannot be written.
    pub fn new(out: W, format: Format, fields: Option<Vec<&'static Field<T>>>) -> io::Result<Self> {
        let fields = fields.unwrap_or_else(|| T::fields().iter().collect());
        let keys = fields.iter().map(|field| key(&field.name)).collect();
        let mut writer = Self { out, format, fields, keys, interfaces: BTreeMap::new(), line: Vec::new() };
        if format == Format::Csv {
            let names: Vec<&str> = writer.fields.iter().map(|field| &*field.name).collect();
            writer.out.write_all(format!("{}\r\n", names.join(",")).as_bytes())?;
        }
        Ok(writer)
    }

    /// Sets the name of interface `number`.
    pub fn name_interface(&mut self, number: u16, name: &str) {
        self.interfaces.insert(number, name.to_owned());
    }

    /// Writes a line.
    ///
    /// # Errors
    /// If the line cannot be written.
    pub fn write(&mut self, item: &T) -> io::Result<()> {
        self.line.clear();
        match self.format {
            Format::Ndjson => self.object(item),
            Format::Csv => self.fields_of(item),
        }
        self.out.write_all(&self.line)
    }

    /// The output, so that the caller can write lines of another format between the lines of this writer.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }

    /// Returns the output, which may have to be flushed.
    pub fn into_inner(self) -> W {
        self.out
    }

    fn object(&mut self, item: &T) {
        self.line.extend_from_slice(b"{\"schema_version\":");
        self.line.extend_from_slice(SCHEMA_VERSION.to_string().as_bytes());
        for (field, key) in self.fields.iter().zip(&self.keys) {
            let value = field.of(item);
            if value.is_absent() {
                continue;
            }
            self.line.push(b',');
            self.line.extend_from_slice(key);
            value.json(interface(&self.interfaces, &value), &mut self.line);
        }
        self.line.extend_from_slice(b"}\n");
    }

    fn fields_of(&mut self, item: &T) {
        for (n, field) in self.fields.iter().enumerate() {
            if n > 0 {
                self.line.push(b',');
            }
            let value = field.of(item);
            value.csv(interface(&self.interfaces, &value), &mut self.line);
        }
        self.line.extend_from_slice(b"\r\n");
    }
}

fn interface<'a>(names: &'a BTreeMap<u16, String>, value: &super::Value<'_>) -> Option<&'a str> {
    match value {
        super::Value::Interface(number) => names.get(number).map(String::as_str),
        _ => None,
    }
}

fn key(name: &str) -> Vec<u8> {
    let mut key = Vec::new();
    json_text(name, &mut key);
    key.push(b':');
    key
}
