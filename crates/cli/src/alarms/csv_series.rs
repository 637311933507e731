//! A time series in a CSV file (RFC 4180 with a header): selection of lines, times and values.

use base::{TimeSpec, Timestamp};
use detect::Sample;
use std::fmt;
use std::io::{self, BufReader, Read};

/// The largest number of bytes of a record, with its line breaks.
const RECORD_BYTES_MAX: u64 = 1 << 20;

/// The columns to read.
#[derive(Clone, Debug)]
pub struct Columns {
    /// The column with the time; `None`: `time` or `second` if the file has it, otherwise each line is a second.
    pub time: Option<String>,
    /// The columns with the values.
    pub values: Vec<String>,
    /// A column that marks seconds whose values are not trusted: any text but nothing, `0` and `false`.
    pub untrusted: Option<String>,
    /// Only lines with this text in this column.
    pub conditions: Vec<(String, String)>,
    /// The delimiter of the fields.
    pub delimiter: u8,
}

/// A line of the file: its second and the samples of the value columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Second {
    /// Seconds since 1970; without a column for the time, the number of the line from 1.
    pub second: u64,
    /// One sample for each value column.
    pub samples: Vec<Sample>,
}

/// The reason why a file is no time series.
#[derive(Debug)]
pub enum CsvError {
    /// The file cannot be read, or is no CSV.
    Csv(csv::Error),
    /// There is no header.
    NoHeader,
    /// The header lacks a column.
    NoColumn { name: String, columns: Vec<String> },
    /// A field is no number.
    Value { line: u64, column: String, text: String },
    /// A field is no time.
    Time { line: u64, text: String },
    /// The second of a line is not after that of the line before.
    Order { line: u64, second: u64, last: u64 },
}

impl fmt::Display for CsvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Csv(e) => write!(f, "{e}"),
            Self::NoHeader => f.write_str("the file is empty; the first line must have the names of the columns"),
            Self::NoColumn { name, columns } => {
                let near = base::nearest(name, columns.iter().map(String::as_str));
                match near {
                    Some(near) => write!(f, "line 1: there is no column {name:?}; is it {near:?}?"),
                    None => write!(f, "line 1: there is no column {name:?}; the columns are {}", columns.join(", ")),
                }
            }
            Self::Value { line, column, text } => write!(
                f,
                "line {line}: {text:?} in the column {column:?} is no number; leave the field empty if the value is \
                 missing"
            ),
            Self::Time { line, text } => write!(
                f,
                "line {line}: {text:?} is no time; write seconds since 1970 or 2026-11-21T10:42:00Z, or name another \
                 column with --time"
            ),
            Self::Order { line, second, last } => {
                let at = Timestamp::from_secs_nanos(*second, 0);
                if second == last {
                    write!(
                        f,
                        "line {line}: a second line for the second {at}; if the file has several series, choose one \
                         with --where COLUMN=TEXT"
                    )
                } else {
                    write!(
                        f,
                        "line {line}: the time {at} is before the time of the line before it; sort the lines by time"
                    )
                }
            }
        }
    }
}

impl std::error::Error for CsvError {}

impl From<csv::Error> for CsvError {
    fn from(e: csv::Error) -> Self {
        Self::Csv(e)
    }
}

/// Reads the seconds of a file, and passes each to `visit`.
///
/// # Errors
/// The first error, with its line.
pub fn read(source: impl Read, columns: &Columns, mut visit: impl FnMut(&Second)) -> Result<(), CsvError> {
    let limited = Limited { inner: BufReader::new(source), in_record: 0 };
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(columns.delimiter)
        .trim(csv::Trim::All)
        .comment(Some(b'#'))
        .from_reader(limited);
    let header: Vec<String> = reader.headers()?.iter().map(str::to_owned).collect();
    if header.is_empty() {
        return Err(CsvError::NoHeader);
    }
    let find = |name: &String| {
        let position = header.iter().position(|column| column == name);
        position.ok_or_else(|| CsvError::NoColumn { name: name.clone(), columns: header.clone() })
    };
    let usual = ["time", "second"].iter().find_map(|name| header.iter().position(|column| column == name));
    let time = columns.time.as_ref().map(find).transpose()?.or(usual);
    let values = columns.values.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    let untrusted = columns.untrusted.as_ref().map(find).transpose()?;
    let conditions = columns.conditions.iter().map(|(name, text)| Ok((find(name)?, text.as_str())));
    let conditions = conditions.collect::<Result<Vec<_>, CsvError>>()?;
    let (mut record, mut last, mut number) = (csv::StringRecord::new(), None, 0);
    while reader.read_record(&mut record)? {
        let line = record.position().map_or(0, csv::Position::line);
        let field = |column: usize| record.get(column).unwrap_or_default();
        if conditions.iter().any(|(column, text)| field(*column) != *text) {
            continue;
        }
        number += 1;
        let second = match time {
            Some(column) => {
                time_of(field(column)).ok_or_else(|| CsvError::Time { line, text: field(column).to_owned() })?
            }
            None => number,
        };
        if let Some(last) = last.filter(|last| second <= *last) {
            return Err(CsvError::Order { line, second, last });
        }
        last = Some(second);
        let is_untrusted = untrusted.is_some_and(|column| !["", "0", "false"].contains(&field(column)));
        let samples = values.iter().map(|column| {
            let text = field(*column);
            let wrong = || CsvError::Value { line, column: header[*column].clone(), text: text.to_owned() };
            let sample = sample(text).ok_or_else(wrong)?;
            Ok(if is_untrusted { Sample::Untrusted } else { sample })
        });
        visit(&Second { second, samples: samples.collect::<Result<_, CsvError>>()? });
    }
    Ok(())
}

/// The sample of a field; `None` if the field is no number.
fn sample(text: &str) -> Option<Sample> {
    if ["", "null", "NULL", "NaN", "nan", "-"].contains(&text) {
        return Some(Sample::Missing);
    }
    text.parse().ok().filter(|value: &f64| value.is_finite()).map(Sample::Value)
}

/// The second of a time: an absolute time, without reference to the present time.
fn time_of(text: &str) -> Option<u64> {
    match TimeSpec::parse(text).ok()? {
        spec @ (TimeSpec::At(_) | TimeSpec::Civil { day: Some(_), .. }) => Some(spec.at(Timestamp::ZERO, None).secs()),
        _ => None,
    }
}

/// A source whose records are limited in length, so that a file without line breaks is an error and not a record of any
/// length.
struct Limited<R> {
    inner: R,
    in_record: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        match buffer[..count].iter().rposition(|byte| *byte == b'\n') {
            Some(position) => self.in_record = (count - position) as u64,
            None => self.in_record += count as u64,
        }
        if self.in_record > RECORD_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a line has more than 1 MiB: this is no CSV file"));
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(values: &[&str]) -> Columns {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        Columns { time: None, values, untrusted: None, conditions: Vec::new(), delimiter: b',' }
    }

    fn read_all(text: &str, columns: &Columns) -> Result<Vec<Second>, String> {
        let mut all = Vec::new();
        read(text.as_bytes(), columns, |second| all.push(second.clone())).map_err(|e| e.to_string()).map(|()| all)
    }

    #[test]
    fn values_missing_fields_and_times_are_read() {
        let text = "time,a,b\n2026-11-02T00:00:01Z,1,x\n1793577603.5,,x\n1793577604,\"2e3\",x\n";
        let all = read_all(text, &columns(&["a"])).expect("a series");
        let seconds: Vec<u64> = all.iter().map(|second| second.second).collect();
        assert_eq!(seconds, [1_793_577_601, 1_793_577_603, 1_793_577_604]);
        let samples: Vec<Sample> = all.iter().map(|second| second.samples[0]).collect();
        assert_eq!(samples, [Sample::Value(1.0), Sample::Missing, Sample::Value(2000.0)]);
        // Without a time, each line is a second.
        let all = read_all("a\n5\n6\n", &columns(&["a"])).expect("a series");
        assert_eq!(all.iter().map(|second| second.second).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn conditions_and_untrusted_seconds() {
        let mut columns = columns(&["packets"]);
        columns.conditions = vec![("direction".to_owned(), "in".to_owned())];
        columns.untrusted = Some("lost".to_owned());
        let text = "time,direction,packets,lost\n1,in,5,0\n1,out,6,0\n2,in,7,3\n2,out,8,0\n";
        let all = read_all(text, &columns).expect("a series");
        assert_eq!(all.iter().map(|s| s.samples[0]).collect::<Vec<_>>(), [Sample::Value(5.0), Sample::Untrusted]);
    }

    #[test]
    fn errors_have_the_line_and_say_what_to_do() {
        let error = |text: &str| read_all(text, &columns(&["packets"])).expect_err("an error");
        assert!(error("").contains("names of the columns"));
        assert!(error("time,packet\n").contains("is it \"packet\"?"));
        assert!(error("time,packets\n1,5\n2,five\n").starts_with("line 3: \"five\" in the column \"packets\""));
        assert!(error("time,packets\n1,inf\n").contains("is no number"));
        assert!(error("time,packets\nmonday,5\n").starts_with("line 2: \"monday\" is no time"));
        assert!(error("time,packets\n-10min,5\n").contains("is no time"));
        assert!(error("time,packets\n5,1\n4,1\n").contains("sort the lines"));
        assert!(error("time,packets\n5,1\n5,1\n").contains("--where"));
        assert!(error("time,packets\n5,1,3\n").contains("line: 2"), "{}", error("time,packets\n5,1,3\n"));
        let long = format!("time,packets\n{}", "9".repeat(3 << 20));
        assert!(error(&long).contains("more than 1 MiB"));
    }
}
