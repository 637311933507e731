//! One row for each packet of a train, in order of arrival: as CSV (RFC 4180) or as a Parquet file.

use super::packet::TrainPacket;
use super::sessions::SessionKey;
use base::Timestamp;
use columns::{TableColumn, TableWriter, Values};
use delay::{ArrivalKind, PacketResult};
use std::io::{self, BufWriter, Stdout, Write};

/// The columns. Times are in nanoseconds since 1970, delays and variations in nanoseconds.
const COLUMNS: [(&str, Kind); 17] = [
    ("interface", Kind::Text),
    ("session", Kind::Number),
    ("source", Kind::Text),
    ("source_port", Kind::Number),
    ("destination", Kind::Text),
    ("destination_port", Kind::Number),
    ("train", Kind::Number),
    ("burst", Kind::Number),
    ("index", Kind::Number),
    ("sequence", Kind::Number),
    ("bytes", Kind::Number),
    ("departure_ns", Kind::Number),
    ("arrival_ns", Kind::Number),
    ("delay_ns", Kind::Integer),
    ("variation_ns", Kind::Integer),
    ("kind", Kind::Text),
    ("extent", Kind::Number),
];

/// Number of rows of a Parquet file that are collected in memory before they are written.
const GROUP: usize = 1 << 16;

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Number,
    Integer,
}

/// A value of a row; `None` if the packet has no such value.
enum Cell {
    Text(String),
    Number(Option<u64>),
    Integer(Option<i64>),
}

/// Writes one row for each packet, as CSV or as a Parquet file.
pub enum PacketRows {
    Csv(BufWriter<Stdout>),
    Parquet(Box<ParquetRows>),
}

/// Rows for a Parquet file.
pub struct ParquetRows {
    writer: TableWriter<crate::parquet::Output>,
    columns: Vec<TableColumn>,
    /// Number of rows in `columns`.
    waiting: usize,
    rows: u64,
}

impl PacketRows {
    /// Begins the CSV output: writes its header to standard output.
    pub fn csv() -> io::Result<Self> {
        let mut out = BufWriter::with_capacity(1 << 18, io::stdout());
        writeln!(out, "{}", COLUMNS.map(|(name, _)| name).join(","))?;
        Ok(Self::Csv(out))
    }

    /// Begins a Parquet file.
    pub fn parquet(out: crate::parquet::Output) -> io::Result<Self> {
        let columns = empty_columns();
        let writer = TableWriter::new(out, &columns)?;
        Ok(Self::Parquet(Box::new(ParquetRows { writer, columns, waiting: 0, rows: 0 })))
    }

    /// Writes the row of a packet.
    pub fn write(
        &mut self,
        key: &SessionKey,
        packet: &TrainPacket,
        result: &PacketResult,
        arrival: Timestamp,
    ) -> io::Result<()> {
        let cells = cells(key, packet, result, arrival);
        match self {
            Self::Csv(out) => {
                let fields = cells.map(|cell| match cell {
                    Cell::Text(text) => quoted(text),
                    Cell::Number(number) => number.map(|n| n.to_string()).unwrap_or_default(),
                    Cell::Integer(integer) => integer.map(|n| n.to_string()).unwrap_or_default(),
                });
                writeln!(out, "{}", fields.join(","))
            }
            Self::Parquet(rows) => rows.push(cells),
        }
    }

    /// Writes the rows that are still in memory. Returns the number of rows of the Parquet file, and 0 for CSV.
    pub fn finish(self) -> io::Result<u64> {
        match self {
            Self::Csv(mut out) => out.flush().map(|()| 0),
            Self::Parquet(mut rows) => {
                rows.flush()?;
                let count = rows.rows;
                rows.writer.finish().map(|()| count)
            }
        }
    }
}

impl ParquetRows {
    fn push(&mut self, cells: [Cell; COLUMNS.len()]) -> io::Result<()> {
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            match (&mut column.values, cell) {
                (Values::Texts(values), Cell::Text(text)) => values.push(Some(text)),
                (Values::Numbers(values), Cell::Number(number)) => values.push(number),
                (Values::Integers(values), Cell::Integer(integer)) => values.push(integer),
                // The function `cells` returns cells of the types of `COLUMNS`, so this case does not occur.
                _ => return Err(io::Error::other(format!("the column {} has another type", column.name))),
            }
        }
        self.rows += 1;
        self.waiting += 1;
        if self.waiting == GROUP { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.waiting) == 0 {
            return Ok(());
        }
        self.writer.write_rows(&std::mem::replace(&mut self.columns, empty_columns()))
    }
}

fn empty_columns() -> Vec<TableColumn> {
    let values = |kind| match kind {
        Kind::Text => Values::Texts(Vec::new()),
        Kind::Number => Values::Numbers(Vec::new()),
        Kind::Integer => Values::Integers(Vec::new()),
    };
    COLUMNS.iter().map(|(name, kind)| TableColumn { name: (*name).to_owned(), values: values(*kind) }).collect()
}

fn cells(key: &SessionKey, packet: &TrainPacket, result: &PacketResult, arrival: Timestamp) -> [Cell; COLUMNS.len()] {
    let (flow, payload) = (&packet.flow, &packet.payload);
    let number = |n: u64| Cell::Number(Some(n));
    let extent = match result.kind {
        ArrivalKind::Reordered(extent) => Some(extent),
        ArrivalKind::InOrder | ArrivalKind::Duplicate | ArrivalKind::Undecided => None,
    };
    [
        Cell::Text(key.interface.clone()),
        number(key.session.into()),
        Cell::Text(flow.src.to_string()),
        number(flow.src_port.0.into()),
        Cell::Text(flow.dst.to_string()),
        number(flow.dst_port.0.into()),
        number(payload.train.into()),
        number(payload.burst.into()),
        number(payload.index.into()),
        number(payload.sequence),
        number(packet.bytes.into()),
        number(payload.departure.nanos()),
        number(arrival.nanos()),
        Cell::Integer(Some(result.delay)),
        Cell::Integer(result.variation),
        Cell::Text(result.kind.name().to_owned()),
        Cell::Number(extent),
    ]
}

/// The text as a field of CSV. It is put in quotation marks if it contains a character that would end the field.
fn quoted(text: String) -> String {
    match text.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}
