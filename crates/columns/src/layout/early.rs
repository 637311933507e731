//! The columns of a flow's first packets: a list of structures, whose leaves are columns of their own with the same levels.
//!
//! The gap before a packet is the noise of somebody's clock, and nothing makes noise shorter; so it is not written where
//! another column has it: before the first packet there is none, the last packet of a flow that is whole in the list came at
//! the end of the record, and those of a TCP handshake came after `syn_rtt` and `ack_rtt`.

use super::flows::Line;
use super::guess::Listed;
use crate::builder::Entries;
use crate::sheet::{Asked, Cells, Coding, Column, Holds, Shape};
use base::Timestamp;
use flow::{Early, Record};

const GROUP: &str = "required group early (LIST) { repeated group list { required group element { \
    required int32 length; required int32 flags (INTEGER(8,false)); optional int64 gap; } } }";

/// SYN and ACK.
const SYN_ACK: u8 = 0x12;

/// Lengths, flags and gaps, in this order: a gap is taken when all that it may follow from is known.
pub fn early() -> [Column<Line>; 3] {
    let column = |leaf: &str, declared: &str, shape, holds, coding, take| Column {
        path: format!("early.list.element.{leaf}"),
        declared: declared.into(),
        shape,
        holds,
        coding,
        asked: Asked::Never,
        arg: 0,
        take,
    };
    [
        column("length", GROUP, Shape::List, Holds::Ints, Coding::Wide, take_lengths),
        column("flags", "", Shape::Entries, Holds::Ints, Coding::Distinct, take_flags),
        column("gap", "", Shape::MaybeEntries, Holds::Longs, Coding::Bytewise, take_gaps),
    ]
}

/// The gap before the packet at this place, as far as the rest of the record tells.
fn expected(record: &Record, last: Timestamp, at: usize) -> Option<u64> {
    let early = &record.early;
    let before = early.get(at.checked_sub(1)?)?.after;
    let answers = |at: usize| early.get(at).is_some_and(|e| e.reverse && e.flags == SYN_ACK);
    if at == 1 && record.syn_rtt.is_some() && answers(1) {
        return record.syn_rtt.map(|rtt| rtt.wrapping_sub(before));
    }
    if at == 2 && record.ack_rtt.is_some() && answers(1) {
        return record.ack_rtt;
    }
    let packets = record.sides[0].packets.wrapping_add(record.sides[1].packets);
    let is_last = at + 1 == early.len() && packets == early.len() as u64 && record.part == 0;
    is_last.then(|| last.nanos().wrapping_sub(record.began.nanos()).wrapping_sub(before))
}

/// Puts the list into the leaves, one behind the other, and adds up what it says of each side.
/// PERF: one loop, for how long it is is a wrong guess of the processor's each time.
#[inline]
pub fn put(record: &Record, last: Timestamp, leaves: &mut [Entries; 3], listed: &mut [Listed; 2]) {
    let [lengths, flags, gaps] = leaves;
    let early = &record.early[..];
    let (lengths, flags) = (lengths.room(early.len()), flags.room(early.len()));
    let known = std::array::from_fn::<u64, 3, _>(|at| expected(record, last, at).unwrap_or(0));
    let at_end = early.len().checked_sub(1).and_then(|at| expected(record, last, at)).unwrap_or(0);
    let mut before = 0;
    let mut rest = early.iter().zip(lengths).zip(flags).enumerate();
    gaps.maybe(early.len(), || {
        let (at, ((one, length), flags)) = rest.next()?;
        *length = signed(one);
        *flags = one.flags.into();
        listed[usize::from(one.reverse)].add(one);
        let gap = one.after.wrapping_sub(std::mem::replace(&mut before, one.after));
        // Nothing is expected of those between the handshake and the last.
        let behind = if at + 1 == early.len() { at_end } else { 0 };
        Some((gap, gap != known.get(at).copied().unwrap_or(behind)))
    });
}

/// Lengths of the other direction are negative; one of zero, which no packet has, is the least number.
#[inline(always)]
fn signed(one: &Early) -> i64 {
    let length = i64::from(one.length);
    let negative = if length == 0 { i32::MIN.into() } else { -length };
    if one.reverse { negative } else { length }
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
    let (mut values, mut there) = (cells.longs.iter(), cells.there.iter());
    for line in lines {
        let mut before = 0u64;
        for at in 0..line.record.early.len() {
            let gap = match there.next()? {
                0 => expected(&line.record, line.last, at).unwrap_or(0),
                _ => *values.next()? as u64,
            };
            before = before.wrapping_add(gap);
            line.record.early[at].after = before;
        }
    }
    (values.next().is_none() && there.next().is_none()).then_some(())
}
