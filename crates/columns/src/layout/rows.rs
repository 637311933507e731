//! The columns of one-second rows.

use super::Layout;
use crate::builder::Tile;
use crate::sheet::{Asked, Cells, Coding, Column, Holds, Shape};
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
    names.extend(fixed(&["tunnel_numbered", "tunnel_missing", "tunnel_late"]));
    names.extend(fixed(&["offered", "stored", "stored_bytes", "filtered", "duplicate"]));
    names.extend(Cause::ALL.iter().map(|cause| format!("lost_{}", cause.name())));
    names.extend(Note::ALL.iter().map(|note| format!("note_{}", note.name())));
    names
}

impl Layout for Row {
    type Line = Row;
    const NAME: &'static str = "second";
    const ORDER: [&'static str; 3] = ["second", "interface", "direction"];

    fn columns() -> Vec<Column<Row>> {
        let column = |path: &str, declared: String, holds, coding, asked, arg, take| Column {
            path: path.to_owned(),
            declared,
            shape: Shape::One,
            holds,
            coding,
            asked,
            arg,
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
                Holds::Names(
                    |number, out| out.extend(Direction::ALL[number as usize & 1].name().as_bytes()),
                    |text| Direction::ALL.iter().position(|way| way.name().as_bytes() == text).map(|at| at as i64),
                ),
                Coding::Distinct,
                Asked::Never,
                0,
                |rows, _, cells| {
                    (cells.longs.len() == rows.len()).then_some(())?;
                    for (row, number) in rows.iter_mut().zip(&cells.longs) {
                        row.direction = *Direction::ALL.get(usize::try_from(*number).ok()?)?;
                    }
                    Some(())
                },
            ),
        ];
        columns.extend(names().iter().enumerate().map(|(word, name)| {
            column(name, long(name), Holds::Longs, Coding::Distinct, Asked::Never, word, |rows, word, cells| {
                (cells.longs.len() == rows.len()).then_some(())?;
                for (row, value) in rows.iter_mut().zip(&cells.longs) {
                    *row_word(row, word)? = *value as u64;
                }
                Some(())
            })
        }));
        columns
    }

    fn blank() -> Row {
        Row::default()
    }

    fn put(&self, tile: &mut Tile) {
        let mut row = *self;
        let head = [self.second, self.interface.into(), self.direction as u64];
        let words = head.into_iter().chain(row_words(&mut row).map(|word| *word));
        tile.every().zip(words).for_each(|(to, number)| *to = number as i64);
    }

    fn settle(_: usize, _: &mut [Row]) {}

    fn unline(line: Row) -> Self {
        line
    }
}

/// Everything in a row but when and where, in the order of its fields.
fn row_words(row: &mut Row) -> impl Iterator<Item = &mut u64> {
    let Row { total, kinds, sizes, ipv6, ledger, peak_1ms, peak_10ms, .. } = row;
    let t = ledger;
    [&mut total.packets, &mut total.bytes]
        .into_iter()
        .chain(kinds.iter_mut().flat_map(|v| [&mut v.packets, &mut v.bytes]))
        .chain(sizes)
        .chain([&mut ipv6.packets, &mut ipv6.bytes])
        .chain([&mut row.syn, &mut row.syn_ack, &mut row.fin, &mut row.rst])
        .chain([&mut row.flows_active, &mut row.flows_new, &mut row.flows_ended])
        .chain([&mut row.sources, &mut row.destinations])
        .chain([&mut peak_1ms.bytes, &mut peak_1ms.packets, &mut peak_10ms.bytes, &mut peak_10ms.packets])
        .chain([&mut row.tunnel_numbered, &mut row.tunnel_missing, &mut row.tunnel_late])
        .chain([&mut t.offered, &mut t.stored, &mut t.stored_bytes, &mut t.filtered, &mut t.duplicate])
        .chain(&mut t.lost)
        .chain(&mut t.notes)
}

/// A word of a row by its place.
fn row_word(row: &mut Row, at: usize) -> Option<&mut u64> {
    row_words(row).nth(at)
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
