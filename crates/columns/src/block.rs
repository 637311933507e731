//! Things as columns while they are few: some hundred rows at a time, each column a [`crate::packed_column`] or a few.
//!
//! A journal is made of blocks, so what is sealed was put into columns once, when it came. Layout, little-endian: bytes that
//! follow, rows (both 32 bits), and of each column in the order of its table: the entries of each row (first leaf of a list),
//! a bit of each value that may be missing, and those that are there. Numbers of 128 bits are two strips, the lower
//! halves first; addresses two: the lower halves of all, and behind a bit of each that is IPv6 the upper halves of those; bytes
//! one of lengths, and the bytes.

use crate::packed_column::{Bits, Narrow, PackedColumn, PresenceMap, Room, pick};
use crate::schema::{Cells, Column, Repetition, ValueType};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Bytes before the columns of a block.
const HEAD: usize = 8;

/// Blocks that are read column by column, in the order of the table.
pub struct Blocks<'a> {
    /// What of each is not read yet, and its rows.
    left: Vec<(&'a [u8], usize)>,
    rows: usize,
    /// Entries of the list that is being read: of each block; and where those of each row begin.
    entries: Vec<usize>,
    starts: Arc<Vec<u32>>,
    /// Which values are there in the last few columns of which some are missing, and whether those are of entries: bits of rows may
    /// read the same, and mean other places.
    recent: VecDeque<(bool, Arc<Bits>)>,
    room: Room,
}

/// So many columns are looked back at for one that misses the same values. What follows from a record's first packets follows
/// for many of its numbers at once.
const RECENT: usize = 4;

impl<'a> Blocks<'a> {
    /// The blocks that these bytes are; `None` if they are no blocks.
    pub fn of(parts: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let (mut left, mut rows) = (Vec::new(), 0);
        for mut bytes in parts {
            while !bytes.is_empty() {
                let head: &[u8; HEAD] = bytes.first_chunk()?;
                let word =
                    |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
                let block = bytes.split_off(..word(0).checked_add(4)?)?;
                left.push((block.get(HEAD..)?, word(4)));
                rows += word(4);
            }
        }
        Some(Self {
            left,
            rows,
            entries: Vec::new(),
            starts: Arc::default(),
            recent: VecDeque::new(),
            room: Room::default(),
        })
    }

    /// Rows of all.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The next column, whole; `None` if it is not there.
    pub fn next<T>(&mut self, column: &Column<T>) -> Option<FlatColumn> {
        let is_list = column.repetition.most_rep() > 0;
        if column.repetition == Repetition::List {
            self.begin_list()?;
        }
        let mut counts: Vec<usize> = match is_list {
            true => self.entries.clone(),
            false => self.left.iter().map(|(_, rows)| *rows).collect(),
        };
        let mut there = None;
        if column.repetition == Repetition::Maybe {
            let (bits, found) = self.marks(is_list, &counts)?;
            (there, counts) = (Some(bits), found);
        }
        let values = match column.value_type {
            ValueType::Longs | ValueType::Moments | ValueType::Ints | ValueType::Names(..) => {
                Values::Numbers(self.numbers(&counts)?)
            }
            ValueType::Squares => Values::Wide(self.numbers(&counts)?, self.numbers(&counts)?),
            ValueType::Addresses(_) => {
                let low = self.numbers(&counts)?;
                let (six, counts) = self.marks(is_list, &counts)?;
                Values::Addresses(low, six, self.numbers(&counts)?)
            }
            ValueType::Bytes => self.bytes(&counts)?,
        };
        Some(FlatColumn { values, there, starts: is_list.then(|| Arc::clone(&self.starts)) })
    }

    /// Which of so many places of each block have something, and how many those are.
    fn marks(&mut self, is_list: bool, counts: &[usize]) -> Option<(Arc<Bits>, Vec<usize>)> {
        let marks: Option<Vec<PresenceMap<'_>>> =
            self.left.iter_mut().zip(counts).map(|((left, _), count)| PresenceMap::take(left, *count)).collect();
        let marks = marks?;
        let found = marks.iter().map(|marks| marks.count).collect();
        Some((self.known(is_list, Bits::of(&marks)), found))
    }

    /// The next strips, of so many numbers, as one.
    fn numbers(&mut self, counts: &[usize]) -> Option<Narrow> {
        let strips = self.packed_columns(counts)?;
        Some(Narrow::of(&strips, &mut self.room))
    }

    /// Takes the memory of a column that nobody needs any more, for those that follow.
    pub fn keep(&mut self, flat: FlatColumn) {
        match flat.values {
            Values::Numbers(numbers) => self.room.keep(numbers),
            Values::Wide(low, high) | Values::Addresses(low, _, high) => {
                self.room.keep(high);
                self.room.keep(low);
            }
            Values::Bytes(..) => {}
        }
    }

    /// These bits, or those of a recent column of the same places that are the same.
    fn known(&mut self, is_list: bool, bits: Bits) -> Arc<Bits> {
        if let Some((_, same)) = self.recent.iter().find(|(of_list, recent)| *of_list == is_list && **recent == bits) {
            return Arc::clone(same);
        }
        let bits = Arc::new(bits);
        if matches!(*bits, Bits::Some(_)) {
            self.recent.truncate(RECENT - 1);
            self.recent.push_front((is_list, Arc::clone(&bits)));
        }
        bits
    }

    /// The next strip of each block, of so many numbers.
    fn packed_columns(&mut self, counts: &[usize]) -> Option<Vec<PackedColumn<'a>>> {
        self.left.iter_mut().zip(counts).map(|((left, _), count)| PackedColumn::take(left, *count)).collect()
    }

    /// Lengths, and the bytes.
    fn bytes(&mut self, counts: &[usize]) -> Option<Values> {
        let (mut raw, mut spans) = (Vec::new(), Vec::new());
        for ((left, _), count) in self.left.iter_mut().zip(counts) {
            let mut lengths = Vec::with_capacity(*count);
            PackedColumn::take(left, *count)?.each(|n| lengths.push(n));
            for length in lengths {
                let begin = raw.len() as u32;
                raw.extend_from_slice(left.split_off(..usize::try_from(length).ok()?)?);
                spans.push((begin, u32::try_from(raw.len()).ok()?));
            }
        }
        Some(Values::Bytes(raw, spans))
    }

    fn begin_list(&mut self) -> Option<()> {
        // Entries of another list are other places.
        self.recent.retain(|(is_list, _)| !is_list);
        let mut starts = Vec::with_capacity(self.rows + 1);
        starts.push(0u32);
        self.entries.clear();
        for (left, rows) in &mut self.left {
            let before = *starts.last()?;
            let mut at = Some(before);
            PackedColumn::take(left, *rows)?.each(|count| {
                at = at.and_then(|at| at.checked_add(u32::try_from(count).ok()?));
                starts.push(at.unwrap_or(before));
            });
            self.entries.push((at? - before) as usize);
        }
        self.starts = Arc::new(starts);
        Some(())
    }
}

/// A column of many rows, of which any can be taken.
pub struct FlatColumn {
    values: Values,
    /// Which rows, or entries, have one, where values may be missing.
    there: Option<Arc<Bits>>,
    /// Where the entries of each row begin, and the last ones end; where rows have many.
    starts: Option<Arc<Vec<u32>>>,
}

/// What was found out about some rows, for the columns that follow.
#[derive(Default)]
pub struct RowContext {
    list: Option<ListEntries>,
    presence: VecDeque<Arc<PresentRows>>,
}

/// Entries of rows: how many, and their places.
struct ListEntries {
    starts: Arc<Vec<u32>>,
    counts: Vec<u32>,
    entries: Vec<u32>,
}

impl ListEntries {
    fn of(starts: &Arc<Vec<u32>>, rows: &[u32]) -> Self {
        let ends = |row: u32| (starts[row as usize], starts[row as usize + 1]);
        let counts: Vec<u32> = rows.iter().map(|row| ends(*row)).map(|(begin, end)| end - begin).collect();
        let total = counts.iter().map(|count| *count as usize).sum();
        // PERF: so many are written whatever the count is, for a loop of each row's own length is a wrong guess of the processor's.
        const STEP: usize = 16;
        let mut entries = vec![0; total + STEP];
        let mut at = 0;
        for (row, count) in rows.iter().zip(&counts) {
            let (mut begin, mut left) = (starts[*row as usize], *count as usize);
            loop {
                let room = &mut entries[at..at + STEP];
                room.iter_mut().zip(begin..).for_each(|(room, entry)| *room = entry);
                at += left.min(STEP);
                if left <= STEP {
                    break;
                }
                left -= STEP;
                begin += STEP as u32;
            }
        }
        entries.truncate(total);
        Self { starts: Arc::clone(starts), counts, entries }
    }
}

/// Which places have something, and where.
struct PresentRows {
    bits: Arc<Bits>,
    there: Vec<u8>,
    found: Vec<u32>,
}

impl PresentRows {
    fn of(bits: &Arc<Bits>, places: &[u32]) -> Self {
        let (mut there, mut found) = (Vec::new(), Vec::new());
        bits.gather(places, &mut there, &mut found);
        Self { bits: Arc::clone(bits), there, found }
    }
}

/// Which of these places have something by these bits, as found out before or now.
fn marked(marks: &mut VecDeque<Arc<PresentRows>>, bits: &Arc<Bits>, places: &[u32]) -> Arc<PresentRows> {
    let at = marks.iter().position(|marked| Arc::ptr_eq(&marked.bits, bits)).unwrap_or_else(|| {
        marks.truncate(RECENT - 1);
        marks.push_front(Arc::new(PresentRows::of(bits, places)));
        0
    });
    Arc::clone(&marks[at])
}

enum Values {
    Numbers(Narrow),
    /// Lower and upper halves.
    Wide(Narrow, Narrow),
    /// Lower halves; which are IPv6, and the upper halves of those.
    Addresses(Narrow, Arc<Bits>, Narrow),
    /// Where each begins and ends.
    Bytes(Vec<u8>, Vec<(u32, u32)>),
}

impl FlatColumn {
    /// The number of each of so many rows, of a column with one number in each.
    pub fn numbers(&self, rows: usize) -> Vec<u64> {
        match &self.values {
            Values::Numbers(numbers) => numbers.all(rows),
            _ => vec![0; rows],
        }
    }

    /// The number of this row, of such a column.
    pub fn number(&self, row: usize) -> u64 {
        match &self.values {
            Values::Numbers(numbers) => numbers.at(row) as u64,
            _ => 0,
        }
    }

    /// Appends the cells of these rows, in their order. `seen` is of the same rows for all columns of the same blocks.
    pub fn gather<T>(&self, column: &Column<T>, rows: &[u32], seen: &mut RowContext, cells: &mut Cells) {
        self.cells(column.value_type, column.coding.has_dictionary(), rows, seen, cells);
    }

    fn cells(&self, holds: ValueType, as_octets: bool, rows: &[u32], seen: &mut RowContext, cells: &mut Cells) {
        let RowContext { list, presence: marks } = seen;
        let (mut places, mut found) = (rows, None);
        if let Some(starts) = &self.starts {
            let known = list.take_if(|list| Arc::ptr_eq(&list.starts, starts));
            let known = list.insert(known.unwrap_or_else(|| ListEntries::of(starts, rows)));
            cells.counts.extend_from_slice(&known.counts);
            places = &known.entries;
        }
        match self.there.as_ref().map(|bits| (bits, &**bits)) {
            None => {}
            Some((_, Bits::All)) => cells.there.resize(places.len(), 1),
            Some((_, Bits::None)) => {
                cells.there.resize(places.len(), 0);
                places = &[];
            }
            Some((bits, _)) => {
                let marked = found.insert(marked(marks, bits, places));
                cells.there.extend_from_slice(&marked.there);
                places = &marked.found;
            }
        }
        match &self.values {
            // The same everywhere: that is all there is to say.
            Values::Numbers(Narrow::Same(value)) if !places.is_empty() => cells.same = Some((*value, places.len())),
            // PERF: a column of bytes stays one until its dictionary is made. Numbers with a sign are in another order.
            Values::Numbers(Narrow::Bytes(base, all)) if as_octets && *base >= 0 => {
                cells.narrow = Some(*base);
                pick(all, places, |n| n, &mut cells.octets);
            }
            Values::Numbers(n) if matches!(holds, ValueType::Ints) => n.gather(places, |n| n as i32, &mut cells.ints),
            Values::Numbers(n) => n.gather(places, |n| n, &mut cells.longs),
            Values::Wide(low, high) => {
                let (mut lows, mut highs) = (Vec::new(), Vec::new());
                low.gather(places, |n| n as u64, &mut lows);
                high.gather(places, |n| n as u64, &mut highs);
                let wide = |(low, high): (&u64, &u64)| u128::from(*low) | u128::from(*high) << 64;
                cells.wide.extend(lows.iter().zip(&highs).map(wide));
            }
            Values::Addresses(low, six, _) if matches!(**six, Bits::None) => {
                low.gather(places, |n| IpAddr::V4(Ipv4Addr::from_bits(n as u32)), &mut cells.addresses);
            }
            Values::Addresses(low, six, high) => {
                let (mut lows, mut highs) = (Vec::new(), Vec::new());
                let marked = marked(marks, six, places);
                low.gather(places, |n| n as u64, &mut lows);
                high.gather(&marked.found, |n| n as u64, &mut highs);
                let mut highs = highs.into_iter();
                cells.addresses.extend(lows.iter().zip(&marked.there).map(|(low, six)| match six {
                    0 => IpAddr::V4(Ipv4Addr::from_bits(*low as u32)),
                    _ => {
                        let high = highs.next().unwrap_or_default();
                        IpAddr::V6(Ipv6Addr::from_bits(u128::from(*low) | u128::from(high) << 64))
                    }
                }));
            }
            Values::Bytes(raw, spans) => {
                for place in places {
                    let (begin, end) = spans[*place as usize];
                    cells.raw.extend_from_slice(&raw[begin as usize..end as usize]);
                    cells.ends.push(cells.raw.len());
                }
            }
        }
    }

    /// The same, each value by itself.
    pub fn spell(&self, holds: ValueType, rows: &[u32], seen: &mut RowContext, cells: &mut Cells) {
        self.cells(holds, false, rows, seen, cells);
        if let Some((value, count)) = cells.same.take() {
            match holds {
                ValueType::Ints => cells.ints.resize(count, value as i32),
                _ => cells.longs.resize(count, value),
            }
        }
    }
}
