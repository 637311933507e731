//! The columns of a flow's first packets: three lists of the same number of entries, whose levels are the same.

use super::flows::Line;
use crate::builder::Entries;
use crate::sheet::{Asked, Cells, Coding, Column, Holds, Shape};
use flow::{Early, Record};

/// Lengths, flags and gaps, in this order.
pub fn early() -> [Column<Line>; 3] {
    let column = |name: &str, element: &str, shape, holds, coding, take| Column {
        path: format!("{name}.list.element"),
        declared: format!("required group {name} (LIST) {{ repeated group list {{ required {element} element; }} }}"),
        shape,
        holds,
        coding,
        asked: Asked::Never,
        arg: 0,
        take,
    };
    [
        column("early_lengths", "int32", Shape::List, Holds::Ints, Coding::Wide, take_lengths),
        column("early_flags", "int32", Shape::Entries, Holds::Ints, Coding::Distinct, take_flags),
        column("early_gaps_ns", "int64", Shape::Entries, Holds::Longs, Coding::Noise, take_gaps),
    ]
}

/// Puts the list into the leaves, one behind the other.
#[inline]
pub fn put(record: &Record, leaves: &mut [Entries; 3]) {
    let [lengths, flags, gaps] = leaves;
    let early = &record.early[..];
    let (lengths, flags, gaps) = (lengths.room(early.len()), flags.room(early.len()), gaps.room(early.len()));
    let mut before = 0;
    for (((one, length), flags), gap) in early.iter().zip(lengths).zip(flags).zip(gaps) {
        *length = one.signed_length();
        *flags = one.flags.into();
        *gap = one.after.wrapping_sub(std::mem::replace(&mut before, one.after)) as i64;
    }
}

fn take_lengths(lines: &mut [Line], _: usize, cells: &Cells) -> Option<()> {
    let mut values = cells.ints.iter();
    (cells.counts.len() == lines.len()).then_some(())?;
    for (line, count) in lines.iter_mut().zip(&cells.counts) {
        for _ in 0..*count {
            let length = *values.next()?;
            let size = if length == i32::MIN { 0 } else { u16::try_from(length.unsigned_abs()).ok()? };
            line.record.early.push(Early { length: size, reverse: length < 0, ..Early::default() });
        }
    }
    values.next().is_none().then_some(())
}

fn take_flags(lines: &mut [Line], _: usize, cells: &Cells) -> Option<()> {
    let mut values = cells.ints.iter();
    for early in lines.iter_mut().flat_map(|line| &mut line.record.early) {
        early.flags = u8::try_from(*values.next()?).ok()?;
    }
    values.next().is_none().then_some(())
}

fn take_gaps(lines: &mut [Line], _: usize, cells: &Cells) -> Option<()> {
    let mut values = cells.longs.iter();
    for line in lines {
        let mut before = 0u64;
        for early in &mut line.record.early {
            before = before.wrapping_add(*values.next()? as u64);
            early.after = before;
        }
    }
    values.next().is_none().then_some(())
}
