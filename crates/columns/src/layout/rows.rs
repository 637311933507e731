//! The columns of one-second rows.

use super::Layout;
use crate::pack::row_word;
use crate::sheet::{Asked, Cells, Coding, Column, Holds};
use base::{Cause, Note};
use series::{Direction, Kind, Row, SIZE_BOUNDS};

/// As SQL calls a kind.
fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Tcp => "tcp",
        Kind::Udp => "udp",
        Kind::Icmp => "icmp",
        Kind::Sctp => "sctp",
        Kind::OtherIp => "other_ip",
        Kind::Arp => "arp",
        Kind::Other => "other",
    }
}

/// The names of a row's words, in their order.
fn names() -> Vec<String> {
    let fixed = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    let mut names = fixed(&["packets", "bytes"]);
    names.extend(Kind::ALL.iter().flat_map(|k| ["packets", "bytes"].map(|what| format!("{}_{what}", kind_name(*k)))));
    names.extend(SIZE_BOUNDS.iter().map(|bound| format!("to_{bound}")));
    names.extend(fixed(&["above", "ipv6_packets", "ipv6_bytes", "syn", "syn_ack", "fin", "rst"]));
    names.extend(fixed(&["flows_active", "flows_new", "flows_ended", "sources", "destinations"]));
    names.extend(fixed(&["peak_1ms_bytes", "peak_1ms_packets", "peak_10ms_bytes", "peak_10ms_packets"]));
    names.extend(fixed(&["offered", "stored", "stored_bytes", "filtered", "duplicate"]));
    names.extend(Cause::ALL.iter().map(|cause| format!("lost_{}", cause.name())));
    names.extend(Note::ALL.iter().map(|note| format!("note_{}", note.name())));
    names
}

impl Layout for Row {
    type Line = Row;
    const NAME: &'static str = "second";

    fn columns() -> Vec<Column<Row>> {
        let column = |path: &str, declared: String, holds, coding, asked, arg, fill, take| Column {
            path: path.to_owned(),
            declared,
            holds,
            coding,
            asked,
            arg,
            fill,
            take,
        };
        let long = |name: &str| format!("required int64 {name} (INTEGER(64,false));");
        let mut columns = vec![
            column(
                "second",
                long("second"),
                Holds::Longs,
                Coding::Growing,
                Asked::Range,
                0,
                |rows: &[Row], _, cells: &mut Cells| cells.longs.extend(rows.iter().map(|r| r.second as i64)),
                |rows: &mut [Row], _, cells: &Cells| {
                    (cells.longs.len() == rows.len()).then_some(())?;
                    rows.iter_mut().zip(&cells.longs).for_each(|(row, second)| row.second = *second as u64);
                    Some(())
                },
            ),
            column(
                "interface",
                "required int32 interface (INTEGER(16,false));".into(),
                Holds::Ints,
                Coding::Distinct,
                Asked::Never,
                0,
                |rows, _, cells| cells.ints.extend(rows.iter().map(|r| i32::from(r.interface))),
                |rows, _, cells| {
                    (cells.ints.len() == rows.len()).then_some(())?;
                    for (row, number) in rows.iter_mut().zip(&cells.ints) {
                        row.interface = u16::try_from(*number).ok()?;
                    }
                    Some(())
                },
            ),
            column(
                "direction",
                "required binary direction (STRING);".into(),
                Holds::Names(|number, out| out.extend(Direction::ALL[number as usize & 1].name().as_bytes())),
                Coding::Distinct,
                Asked::Never,
                0,
                |rows, _, cells| cells.longs.extend(rows.iter().map(|row| row.direction as i64)),
                |rows, _, cells| {
                    (cells.bytes.len() == rows.len()).then_some(())?;
                    for (row, text) in rows.iter_mut().zip(&cells.bytes) {
                        row.direction = match text.data() {
                            b"in" => Direction::In,
                            b"out" => Direction::Out,
                            _ => return None,
                        };
                    }
                    Some(())
                },
            ),
        ];
        columns.extend(names().iter().enumerate().map(|(word, name)| {
            column(
                name,
                long(name),
                Holds::Longs,
                Coding::Distinct,
                Asked::Never,
                word,
                |rows, word, cells| {
                    for row in rows {
                        let mut row = *row;
                        cells.longs.push(row_word(&mut row, word).map_or(0, |n| *n as i64));
                    }
                },
                |rows, word, cells| {
                    (cells.longs.len() == rows.len()).then_some(())?;
                    for (row, value) in rows.iter_mut().zip(&cells.longs) {
                        *row_word(row, word)? = *value as u64;
                    }
                    Some(())
                },
            )
        }));
        columns
    }

    fn line(self) -> Row {
        self
    }

    fn blank() -> Row {
        Row::default()
    }

    fn settle(_: usize, _: &mut [Row]) {}

    fn unline(line: Row) -> Self {
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_a_row_has_a_name_and_no_name_is_twice() {
        let mut names = names();
        let words = (0..).take_while(|n| row_word(&mut Row::default(), *n).is_some()).count();
        assert_eq!(names.len(), words);
        names.sort();
        names.dedup();
        assert_eq!(names.len(), words);
    }
}
