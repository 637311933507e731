//! The columns of a flow's first packets: three lists with equal numbers of entries and hence equal levels.

use super::record_line::RecordLine;
use crate::schema::{Cells, Column, ColumnPredicate, EncodingHint, Repetition, ValueType};
use crate::tile::Entries;
use flow::{InitialPacket, Record};

/// The three columns: lengths, TCP flags and inter-arrival times of the initial packets, in this order.
pub fn initial_packet_columns() -> [Column<RecordLine>; 3] {
    let column = |name: &str, element: &str, shape, holds, coding, take| Column {
        path: format!("{name}.list.element"),
        declared: format!("required group {name} (LIST) {{ repeated group list {{ required {element} element; }} }}"),
        repetition: shape,
        value_type: holds,
        coding,
        predicate: ColumnPredicate::Never,
        arg: 0,
        take,
    };
    [
        column("initial_lengths", "int32", Repetition::List, ValueType::Ints, EncodingHint::Wide, take_lengths),
        column("initial_flags", "int32", Repetition::Entries, ValueType::Ints, EncodingHint::Distinct, take_flags),
        column("initial_iats_ns", "int64", Repetition::Entries, ValueType::Longs, EncodingHint::Noise, take_gaps),
    ]
}

/// Appends the initial packets of a record to the three leaf columns.
#[inline]
pub fn put(record: &Record, leaves: &mut [Entries; 3]) {
    let [lengths, flags, gaps] = leaves;
    let initial_packets = &record.initial_packets[..];
    let (lengths, flags, gaps) = (
        lengths.reserve(initial_packets.len()),
        flags.reserve(initial_packets.len()),
        gaps.reserve(initial_packets.len()),
    );
    let mut before = 0;
    for (((one, length), flags), gap) in initial_packets.iter().zip(lengths).zip(flags).zip(gaps) {
        *length = one.signed_length();
        *flags = one.flags.into();
        *gap = one.offset_ns.wrapping_sub(std::mem::replace(&mut before, one.offset_ns)) as i64;
    }
}

fn take_lengths(lines: &mut [RecordLine], _: usize, cells: &Cells) -> Option<()> {
    let mut values = cells.ints.iter();
    (cells.counts.len() == lines.len()).then_some(())?;
    for (line, count) in lines.iter_mut().zip(&cells.counts) {
        for _ in 0..*count {
            let length = *values.next()?;
            let size = if length == i32::MIN { 0 } else { u16::try_from(length.unsigned_abs()).ok()? };
            line.record.initial_packets.push(InitialPacket {
                length: size,
                reverse: length < 0,
                ..InitialPacket::default()
            });
        }
    }
    values.next().is_none().then_some(())
}

fn take_flags(lines: &mut [RecordLine], _: usize, cells: &Cells) -> Option<()> {
    let mut values = cells.ints.iter();
    for packet in lines.iter_mut().flat_map(|line| &mut line.record.initial_packets) {
        packet.flags = u8::try_from(*values.next()?).ok()?;
    }
    values.next().is_none().then_some(())
}

fn take_gaps(lines: &mut [RecordLine], _: usize, cells: &Cells) -> Option<()> {
    let mut values = cells.longs.iter();
    for line in lines {
        let mut before = 0u64;
        for packet in &mut line.record.initial_packets {
            before = before.wrapping_add(*values.next()? as u64);
            packet.offset_ns = before;
        }
    }
    values.next().is_none().then_some(())
}
