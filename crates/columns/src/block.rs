//! Journal blocks: a few hundred rows stored column by column; a column consists of one or more packed columns
//! ([`crate::packed_column`]).
//!
//! A journal consists of blocks, so rows are converted to columns only once, when they arrive, and not again when the
//! journal is sealed. Layout of a block, little-endian: the number of bytes that follow and the number of rows (32 bits
//! each); then, for each column in schema order, the number of list entries of each row (only before the first leaf of
//! a list), the presence bitmap if values may be missing, and the values that are present. Numbers of 128 bits are
//! stored as two packed columns, lower halves first. Addresses are stored as the lower halves of all addresses, a
//! bitmap that marks the IPv6 addresses, and the upper halves of the IPv6 addresses. Byte strings are stored as a
//! packed column of lengths, and then the bytes.

use crate::packed_column::{Bits, Narrow, PackedColumn, PresenceMap, Room, pick};
use crate::schema::{Cells, Column, Repetition, ValueType};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Length of the header of a block, which precedes the columns.
const HEAD: usize = 8;

/// Blocks that are decoded column by column, in schema order.
pub struct Blocks<'a> {
    /// The bytes of each block that are not yet decoded, and its number of rows.
    left: Vec<(&'a [u8], usize)>,
    rows: usize,
    /// For the list that is being decoded: `entries` has the number of list entries in each block, `starts` the index
    /// of the first entry of each row.
    entries: Vec<usize>,
    starts: Arc<Vec<u32>>,
    /// Presence bitmaps of the last few nullable columns, each with true if its bits stand for list entries and false
    /// if they stand for rows. Two bitmaps are shared only if their bits stand for the same positions.
    recent: VecDeque<(bool, Arc<Bits>)>,
    room: Room,
}

/// Number of recent columns that are searched for a presence bitmap equal to that of the next column. Fields that
/// depend on the first packets of a flow are missing in the same records.
const RECENT: usize = 4;

impl<'a> Blocks<'a> {
    /// Splits these bytes into blocks; `None` if they are not valid blocks.
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

    /// Number of rows in all blocks together.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Decodes the next column of all blocks; `None` if the bytes are invalid.
    pub fn next<T>(&mut self, column: &Column<T>) -> Option<FlatColumn> {
        let is_list = column.repetition.most_rep() > 0;
        if column.repetition == Repetition::List {
            self.begin_list()?;
        }
        let mut counts: Vec<usize> = match is_list {
            true => self.entries.clone(),
            false => self.left.iter().map(|(_, rows)| *rows).collect(),
        };
        let mut present = None;
        if column.repetition == Repetition::Maybe {
            let (bits, found) = self.presence(is_list, &counts)?;
            (present, counts) = (Some(bits), found);
        }
        let values = match column.value_type {
            ValueType::Longs | ValueType::Moments | ValueType::Ints | ValueType::Names(..) => {
                Values::Numbers(self.numbers(&counts)?)
            }
            ValueType::Squares => Values::Wide(self.numbers(&counts)?, self.numbers(&counts)?),
            ValueType::Addresses(_) => {
                let low = self.numbers(&counts)?;
                let (six, counts) = self.presence(is_list, &counts)?;
                Values::Addresses(low, six, self.numbers(&counts)?)
            }
            ValueType::Bytes => self.bytes(&counts)?,
        };
        Some(FlatColumn { values, present, starts: is_list.then(|| Arc::clone(&self.starts)) })
    }

    /// Decodes the presence bitmap of each block; `counts` has the number of positions of each block. Returns the
    /// bitmaps as one, and the number of present values of each block.
    fn presence(&mut self, is_list: bool, counts: &[usize]) -> Option<(Arc<Bits>, Vec<usize>)> {
        let bitmaps: Option<Vec<PresenceMap<'_>>> =
            self.left.iter_mut().zip(counts).map(|((left, _), count)| PresenceMap::take(left, *count)).collect();
        let bitmaps = bitmaps?;
        let found = bitmaps.iter().map(|bitmap| bitmap.count).collect();
        Some((self.known(is_list, Bits::of(&bitmaps)), found))
    }

    /// Decodes the next packed column of each block, with `counts` numbers, into one sequence.
    fn numbers(&mut self, counts: &[usize]) -> Option<Narrow> {
        let packed_columns = self.packed_columns(counts)?;
        Some(Narrow::of(&packed_columns, &mut self.room))
    }

    /// Keeps the memory of a column that is no longer needed, and reuses it for columns that are decoded later.
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

    /// Returns an equal bitmap of a recent column if there is one, otherwise this bitmap.
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

    /// Takes the next packed column of each block, with `counts` numbers.
    fn packed_columns(&mut self, counts: &[usize]) -> Option<Vec<PackedColumn<'a>>> {
        self.left.iter_mut().zip(counts).map(|((left, _), count)| PackedColumn::take(left, *count)).collect()
    }

    /// Decodes a column of byte strings: lengths, then bytes.
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
        // The presence bitmaps of the previous list are removed, because their bits stand for the entries of that list.
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

/// A decoded column of many rows, with random access.
pub struct FlatColumn {
    values: Values,
    /// Presence bitmap of the rows or list entries, if values may be missing.
    present: Option<Arc<Bits>>,
    /// For a list: the index of the first entry of each row, and at the end the number of all entries.
    starts: Option<Arc<Vec<u32>>>,
}

/// Positions that were computed for a selection of rows when one column was read, and that are reused for further
/// columns.
#[derive(Default)]
pub struct RowContext {
    list: Option<ListEntries>,
    presence: VecDeque<Arc<PresentRows>>,
}

/// The list entries of a selection of rows: their number in each row, and their positions.
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
        // PERF: the loop always writes a multiple of STEP entries, because a loop over exactly the entries of a row
        // costs a branch misprediction per row.
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

/// A selection of positions, each marked as present or missing, with the position of each present value among all
/// values.
struct PresentRows {
    bits: Arc<Bits>,
    present: Vec<u8>,
    found: Vec<u32>,
}

impl PresentRows {
    fn of(bits: &Arc<Bits>, places: &[u32]) -> Self {
        let (mut present, mut found) = (Vec::new(), Vec::new());
        bits.gather(places, &mut present, &mut found);
        Self { bits: Arc::clone(bits), present, found }
    }
}

/// Applies this presence bitmap to a selection of positions. If the bitmap was applied to them before, returns the
/// earlier result.
fn apply_bitmap(presence: &mut VecDeque<Arc<PresentRows>>, bits: &Arc<Bits>, places: &[u32]) -> Arc<PresentRows> {
    let at = presence.iter().position(|rows| Arc::ptr_eq(&rows.bits, bits)).unwrap_or_else(|| {
        presence.truncate(RECENT - 1);
        presence.push_front(Arc::new(PresentRows::of(bits, places)));
        0
    });
    Arc::clone(&presence[at])
}

enum Values {
    Numbers(Narrow),
    /// Lower and upper halves.
    Wide(Narrow, Narrow),
    /// Lower halves of all addresses, bitmap of the IPv6 addresses, and upper halves of the IPv6 addresses.
    Addresses(Narrow, Arc<Bits>, Narrow),
    /// The bytes of all strings, and the begin and the end of each string in them.
    Bytes(Vec<u8>, Vec<(u32, u32)>),
}

impl FlatColumn {
    /// The numbers in the first `rows` rows; the column has one number per row.
    pub fn numbers(&self, rows: usize) -> Vec<u64> {
        match &self.values {
            Values::Numbers(numbers) => numbers.all(rows),
            _ => vec![0; rows],
        }
    }

    /// The number in this row of a column with one number per row.
    pub fn number(&self, row: usize) -> u64 {
        match &self.values {
            Values::Numbers(numbers) => numbers.at(row) as u64,
            _ => 0,
        }
    }

    /// Appends the values of this column in the given rows to `cells`, in the given order. All calls with the same
    /// `seen` must have the same `rows`, and columns of the same blocks.
    pub fn gather<T>(&self, column: &Column<T>, rows: &[u32], seen: &mut RowContext, cells: &mut Cells) {
        self.cells(column.value_type, column.coding.has_dictionary(), rows, seen, cells);
    }

    fn cells(&self, holds: ValueType, as_octets: bool, rows: &[u32], seen: &mut RowContext, cells: &mut Cells) {
        let RowContext { list, presence } = seen;
        let (mut places, mut found) = (rows, None);
        if let Some(starts) = &self.starts {
            let known = list.take_if(|list| Arc::ptr_eq(&list.starts, starts));
            let known = list.insert(known.unwrap_or_else(|| ListEntries::of(starts, rows)));
            cells.counts.extend_from_slice(&known.counts);
            places = &known.entries;
        }
        match self.present.as_ref().map(|bits| (bits, &**bits)) {
            None => {}
            Some((_, Bits::All)) => cells.present.resize(places.len(), 1),
            Some((_, Bits::None)) => {
                cells.present.resize(places.len(), 0);
                places = &[];
            }
            Some((bits, _)) => {
                let selected = found.insert(apply_bitmap(presence, bits, places));
                cells.present.extend_from_slice(&selected.present);
                places = &selected.found;
            }
        }
        match &self.values {
            // If all values are equal, one value and the number of values are returned.
            Values::Numbers(Narrow::Same(value)) if !places.is_empty() => cells.same = Some((*value, places.len())),
            // PERF: numbers of one byte are not widened before their dictionary is built. Columns with negative numbers
            // are excluded, because the order of their bytes differs from the order of the numbers.
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
                let selected = apply_bitmap(presence, six, places);
                low.gather(places, |n| n as u64, &mut lows);
                high.gather(&selected.found, |n| n as u64, &mut highs);
                let mut highs = highs.into_iter();
                cells.addresses.extend(lows.iter().zip(&selected.present).map(|(low, six)| match six {
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

    /// As [`Self::gather`], but writes every value separately, even if all values are equal.
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
