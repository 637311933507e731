//! Reads the series rows of files: IPFIX messages as `--export file:` writes them, with or without flow records,
//! Parquet files of netgrain, or captures. Each exporter has its own interface numbers, so the numbers are mapped: one
//! number denotes one interface name in all files.

use crate::flow_records::files::{Format, format, with_captures, with_content};
use crate::flow_records::from_capture::{Captures, MeteredKind};
use crate::flow_records::names::Names;
use crate::outcome::Failure;
use export::element::PEN;
use export::file::Reader;
use export::ipfix::Item;
use filter::Filter;
use meter::MeterOutput;
use series::{Direction, Row};
use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// All rows of the files in order of time, one row for each second, interface and direction.
pub struct SeriesFromFiles {
    rows: std::vec::IntoIter<Row>,
    pub names: Names,
    /// Errors because of which files were not read to their ends.
    pub warnings: Vec<String>,
}

impl SeriesFromFiles {
    /// Reads the files. `fields` has the names of the columns that are read from Parquet files; `None` stands for all.
    ///
    /// # Errors
    /// A file cannot be read or has no rows.
    pub fn read(files: Vec<PathBuf>, filter: &Filter, fields: Option<Vec<String>>) -> Result<Self, Failure> {
        let (mut all, mut names) = (Vec::new(), Names::default());
        let (files, mut warnings) = with_content(&files)?;
        let mut files = files.into_iter();
        while let Some(path) = files.next() {
            let (mut rows, file_names) = match format(&path)? {
                Format::Capture => captures(&with_captures(path, &mut files)?, filter, &mut warnings)?,
                _ if !filter.is_empty() => {
                    let text = "the file has rows, and FILTER applies to packets: use it with captures (-r FILE.pcap) \
                        or with a --store";
                    return Err(Failure::Said(format!("{}: {text}", path.display())));
                }
                Format::Parquet => parquet(&path, fields.clone(), &mut warnings)?,
                Format::Messages => messages(&path, &mut warnings)?,
            };
            let mut numbers = HashMap::new();
            for row in &mut rows {
                row.interface = *numbers
                    .entry(row.interface)
                    .or_insert_with_key(|number| names.number(&file_names.interface(*number)));
            }
            all.append(&mut rows);
        }
        all.sort_by_key(|row| (row.second, row.interface, row.direction == Direction::Out));
        let rows: Vec<Row> = series::merge_rows(all).collect();
        Ok(Self { rows: rows.into_iter(), names, warnings })
    }

    /// The next row.
    pub fn next(&mut self) -> Option<Row> {
        self.rows.next()
    }
}

fn captures(paths: &[PathBuf], filter: &Filter, warnings: &mut Vec<String>) -> Result<(Vec<Row>, Names), Failure> {
    let mut captures = Captures::open(paths, MeteredKind::Rows(filter.clone()))?;
    let (mut rows, mut names) = (Vec::new(), Names::default());
    captures.name(&mut names);
    loop {
        match captures.next() {
            Ok(Some(MeterOutput::Row(row))) => rows.push(row),
            Ok(Some(MeterOutput::Record(_))) => {}
            Ok(None) => return Ok((rows, names)),
            Err(error) => warnings.push(error.to_string()),
        }
    }
}

fn parquet(path: &Path, fields: Option<Vec<String>>, warnings: &mut Vec<String>) -> Result<(Vec<Row>, Names), Failure> {
    let file = columns::read_series(path).map_err(Failure::say)?.of_fields(fields);
    let mut names = Names::default();
    file.names().iter().for_each(|(number, name)| names.set(*number, name));
    let or_warn = |outcome: Result<Row, columns::ColumnsError>| outcome.map_err(|e| warnings.push(e.to_string())).ok();
    Ok((file.filter_map(or_warn).collect(), names))
}

fn messages(path: &Path, warnings: &mut Vec<String>) -> Result<(Vec<Row>, Names), Failure> {
    let file = File::open(path).map_err(|e| Failure::unreadable(path, &e))?;
    let mut reader = Reader::new(BufReader::new(file), PEN);
    let (mut rows, mut names) = (Vec::new(), Names::default());
    loop {
        match reader.next_item() {
            Ok(Some(Item::Row(row))) => rows.push(row),
            Ok(Some(Item::Interface { number, name })) => names.set(number, &name),
            Ok(Some(_)) => {}
            Ok(None) => return Ok((rows, names)),
            Err(e) => {
                warnings.push(format!("{}: {e}", path.display()));
                return Ok((rows, names));
            }
        }
    }
}
