//! A table of arbitrary columns as a Parquet file, for results that are not records, such as a ranking. Such
//! results are small, so the page encoder of the `parquet` library is fast enough.

use crate::schema::micros;
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use std::io;
use std::sync::Arc;

/// One column: its name, and its values from the first row to the last. An unknown value is null.
pub struct TableColumn {
    /// The name of the column: letters, digits and underscores; no other column of the table has this name.
    pub name: String,
    /// The values of the column; all columns of a table have the same number of values.
    pub values: Values,
}

/// Values of a column.
pub enum Values {
    /// Texts.
    Texts(Vec<Option<String>>),
    /// Unsigned integers of 64 bits.
    Numbers(Vec<Option<u64>>),
    /// Signed integers of 64 bits.
    Integers(Vec<Option<i64>>),
    /// Floating-point numbers of 64 bits.
    Fractions(Vec<Option<f64>>),
    /// Timestamps in nanoseconds since 1970, UTC; the file stores microseconds.
    Moments(Vec<Option<u64>>),
}

impl Values {
    fn declared(&self, name: &str) -> String {
        match self {
            Self::Texts(_) => format!("optional binary {name} (STRING);"),
            Self::Numbers(_) => format!("optional int64 {name} (INTEGER(64,false));"),
            Self::Integers(_) => format!("optional int64 {name};"),
            Self::Fractions(_) => format!("optional double {name};"),
            Self::Moments(_) => format!("optional int64 {name} (TIMESTAMP(MICROS,true));"),
        }
    }
}

/// Writes the columns as one Parquet file.
///
/// # Errors
/// When the file cannot be written, or the columns have different lengths.
pub fn write_table(to: impl io::Write + Send, columns: &[TableColumn]) -> io::Result<()> {
    let mut writer = TableWriter::new(to, columns)?;
    writer.write_rows(columns)?;
    writer.finish()
}

/// Writes a table whose rows do not fit into memory, one row group after the other.
pub struct TableWriter<W: io::Write + Send>(SerializedFileWriter<W>);

impl<W: io::Write + Send> TableWriter<W> {
    /// Begins a file with the names and types of these columns; their values are not written.
    ///
    /// # Errors
    /// When the file cannot be written, or a name is invalid.
    pub fn new(to: W, columns: &[TableColumn]) -> io::Result<Self> {
        Self::begin(to, columns).map_err(super::standalone::as_io)
    }

    fn begin(to: W, columns: &[TableColumn]) -> Result<Self> {
        let fields: Vec<String> = columns.iter().map(|column| column.values.declared(&column.name)).collect();
        let schema = Arc::new(parse_message_type(&format!("message table {{ {} }}", fields.join(" ")))?);
        let properties = WriterProperties::builder()
            .set_created_by(concat!("netgrain ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .build();
        Ok(Self(SerializedFileWriter::new(to, schema, Arc::new(properties))?))
    }

    /// Writes the values of these columns, which have the names and types of those of [`TableWriter::new`], as further
    /// rows.
    ///
    /// # Errors
    /// When the file cannot be written, or the columns have different lengths.
    pub fn write_rows(&mut self, columns: &[TableColumn]) -> io::Result<()> {
        self.write_group(columns).map_err(super::standalone::as_io)
    }

    fn write_group(&mut self, columns: &[TableColumn]) -> Result<()> {
        let mut group = self.0.next_row_group()?;
        for column in columns {
            fill(&mut group, &column.values)?;
        }
        group.close().map(|_| ())
    }

    /// Completes the file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(self) -> io::Result<()> {
        self.0.close().map(|_| ()).map_err(super::standalone::as_io)
    }
}

fn fill<W: io::Write + Send>(group: &mut SerializedRowGroupWriter<'_, W>, values: &Values) -> Result<()> {
    let missing = || ParquetError::General("the file has fewer columns than the table".to_owned());
    let mut column = group.next_column()?.ok_or_else(missing)?;
    match values {
        Values::Texts(texts) => {
            let (present, values) = apart(texts, |text| text.as_deref().map(ByteArray::from));
            column.typed::<ByteArrayType>().write_batch(&values, Some(&present), None)?;
        }
        Values::Numbers(numbers) => {
            let (present, values) = apart(numbers, |n| n.map(u64::cast_signed));
            column.typed::<Int64Type>().write_batch(&values, Some(&present), None)?;
        }
        Values::Integers(integers) => {
            let (present, values) = apart(integers, |n| *n);
            column.typed::<Int64Type>().write_batch(&values, Some(&present), None)?;
        }
        Values::Moments(moments) => {
            let (present, values) = apart(moments, |nanos| nanos.map(|nanos| micros(nanos.cast_signed())));
            column.typed::<Int64Type>().write_batch(&values, Some(&present), None)?;
        }
        Values::Fractions(fractions) => {
            let (present, values) = apart(fractions, |x| *x);
            column.typed::<DoubleType>().write_batch(&values, Some(&present), None)?;
        }
    }
    column.close()
}

/// Splits values into Parquet definition levels (1 = present, 0 = null) and the values that are present.
fn apart<T, V>(all: &[T], value: impl Fn(&T) -> Option<V>) -> (Vec<i16>, Vec<V>) {
    let values: Vec<Option<V>> = all.iter().map(value).collect();
    let present = values.iter().map(|v| i16::from(v.is_some())).collect();
    (present, values.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use parquet::record::Field;

    fn column(name: &str, values: Values) -> TableColumn {
        TableColumn { name: name.to_owned(), values }
    }

    #[test]
    fn a_written_table_is_read_back_unchanged() {
        let columns = [
            column("src", Values::Texts(vec![Some("10.0.0.0/8".into()), None, Some(String::new())])),
            column("bytes", Values::Numbers(vec![Some(u64::MAX), Some(0), None])),
            column("share", Values::Fractions(vec![None, Some(0.25), Some(1.0)])),
            column("first", Values::Moments(vec![Some(1_700_000_000_123_456_789), None, Some(0)])),
        ];
        let mut file = Vec::new();
        write_table(&mut file, &columns).expect("written");
        let reader = SerializedFileReader::new(bytes::Bytes::from(file)).expect("a file");
        let rows: Vec<Vec<(String, Field)>> = reader
            .get_row_iter(None)
            .expect("rows")
            .map(|row| row.expect("a row").get_column_iter().map(|(n, f)| (n.clone(), f.clone())).collect())
            .collect();
        let names = ["src", "bytes", "share", "first"];
        let row = |values: [Field; 4]| names.iter().map(|n| (*n).to_owned()).zip(values).collect::<Vec<_>>();
        let expected = [
            row([
                Field::Str("10.0.0.0/8".into()),
                Field::ULong(u64::MAX),
                Field::Null,
                Field::TimestampMicros(1_700_000_000_123_456),
            ]),
            row([Field::Null, Field::ULong(0), Field::Double(0.25), Field::Null]),
            row([Field::Str(String::new()), Field::Null, Field::Double(1.0), Field::TimestampMicros(0)]),
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn a_table_of_several_row_groups_has_all_rows_in_order() {
        let of = |range: std::ops::Range<i64>| [column("delay", Values::Integers(range.map(Some).collect()))];
        let mut file = Vec::new();
        let mut writer = TableWriter::new(&mut file, &of(0..0)).expect("begun");
        writer.write_rows(&of(-3..4)).expect("written");
        writer.write_rows(&of(4..9)).expect("written");
        writer.finish().expect("complete");
        let reader = SerializedFileReader::new(bytes::Bytes::from(file)).expect("a file");
        let rows = reader.get_row_iter(None).expect("rows");
        let values: Vec<Field> = rows
            .flat_map(|row| row.expect("a row").get_column_iter().map(|c| c.1.clone()).collect::<Vec<_>>())
            .collect();
        assert_eq!(values, (-3..9).map(Field::Long).collect::<Vec<_>>());
    }

    #[test]
    fn columns_of_different_lengths_are_rejected() {
        let numbers = |n| Values::Numbers(vec![Some(1); n]);
        assert!(write_table(Vec::new(), &[column("a", numbers(2)), column("b", numbers(3))]).is_err());
    }
}
