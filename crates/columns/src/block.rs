//! Things as columns while they are few: some hundred rows at a time, each column a [`crate::strip`] or a few.
//!
//! A journal is made of blocks, so what is sealed was put into columns once, when it came. Layout, little-endian: bytes that
//! follow, rows (both 32 bits), and of each column in the order of its table: the entries of each row (first leaf of a list),
//! a bit of each value that may be missing, and those that are there. Numbers of 128 bits are two strips, the lower
//! halves first; addresses three: whether it is IPv6, lower and upper half; bytes one of lengths, and the bytes.

use crate::layout::Layout;
use crate::sheet::{Cells, Column, Holds, Shape};
use crate::strip::{self, Bits, Marks, Narrow, Strip};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Lines that go from things to columns together: so few that they stay in the processor's nearest cache, for each column
/// passes over them once.
const LINES: usize = 24;

/// Rows of a block, at most.
const ROWS: usize = 32 * LINES;

/// Bytes before the columns of a block.
const HEAD: usize = 8;

/// Makes blocks of things, one after the other.
pub struct Builder<T: Layout> {
    columns: Vec<Column<T::Line>>,
    lines: Vec<T::Line>,
    used: usize,
    cells: Vec<Cells>,
    rows: usize,
}

impl<T: Layout> Default for Builder<T> {
    fn default() -> Self {
        let columns = T::columns();
        let cells = columns.iter().map(|_| Cells::default()).collect();
        Self { columns, lines: (0..LINES).map(|_| T::blank()).collect(), used: 0, cells, rows: 0 }
    }
}

impl<T: Layout> Builder<T> {
    /// Takes one in; a block that is full is appended to `out`.
    pub fn push(&mut self, thing: &T, out: &mut Vec<u8>) {
        T::set(&mut self.lines[self.used], thing);
        self.used += 1;
        if self.used == LINES {
            self.fill();
            if self.rows >= ROWS {
                self.finish(out);
            }
        }
    }

    /// Appends what there is as a block.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.fill();
        if self.rows == 0 {
            return;
        }
        let begin = out.len();
        out.extend([0; 4]);
        out.extend((self.rows as u32).to_le_bytes());
        for (column, cells) in self.columns.iter().zip(&mut self.cells) {
            store(column, cells, out);
            cells.clear();
        }
        let len = (out.len() - begin - 4) as u32;
        out[begin..begin + 4].copy_from_slice(&len.to_le_bytes());
        self.rows = 0;
    }

    fn fill(&mut self) {
        let lines = &self.lines[..self.used];
        for (column, cells) in self.columns.iter().zip(&mut self.cells) {
            (column.fill)(lines, column.arg, cells);
        }
        self.rows += self.used;
        self.used = 0;
    }
}

fn store<T>(column: &Column<T>, cells: &Cells, out: &mut Vec<u8>) {
    if column.shape == Shape::List {
        strip::write(&cells.counts, i64::from, out);
    }
    if matches!(column.shape, Shape::Maybe | Shape::MaybeEntries) {
        strip::write_bits(&cells.there, out);
    }
    match column.holds {
        Holds::Longs | Holds::Names(..) => strip::write(&cells.longs, |n| n, out),
        Holds::Ints => strip::write(&cells.ints, i64::from, out),
        Holds::Squares => {
            strip::write(&cells.wide, |n| n as i64, out);
            strip::write(&cells.wide, |n| (n >> 64) as i64, out);
        }
        Holds::Addresses(_) => {
            strip::write(&cells.addresses, |a| i64::from(a.is_ipv6()), out);
            strip::write(&cells.addresses, |a| bits(a) as i64, out);
            strip::write(&cells.addresses, |a| (bits(a) >> 64) as i64, out);
        }
        Holds::Bytes => {
            let mut before = 0;
            let lengths: Vec<i64> =
                cells.ends.iter().map(|end| (end - std::mem::replace(&mut before, *end)) as i64).collect();
            strip::write(&lengths, |n| n, out);
            out.extend_from_slice(&cells.raw);
        }
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(four) => u128::from(four.to_bits()),
        IpAddr::V6(six) => six.to_bits(),
    }
}

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
        Some(Self { left, rows, entries: Vec::new(), starts: Arc::default(), recent: VecDeque::new() })
    }

    /// Rows of all.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The next column, whole; `None` if it is not there.
    pub fn next<T>(&mut self, column: &Column<T>) -> Option<Flat> {
        let is_list = column.shape.most_rep() > 0;
        if column.shape == Shape::List {
            self.begin_list()?;
        }
        let mut counts: Vec<usize> = match is_list {
            true => self.entries.clone(),
            false => self.left.iter().map(|(_, rows)| *rows).collect(),
        };
        let mut there = None;
        if matches!(column.shape, Shape::Maybe | Shape::MaybeEntries) {
            let marks: Option<Vec<Marks<'_>>> =
                self.left.iter_mut().zip(&counts).map(|((left, _), count)| Marks::take(left, *count)).collect();
            let marks = marks?;
            counts = marks.iter().map(|marks| marks.count).collect();
            there = Some(self.known(is_list, Bits::of(&marks)));
        }
        let mut numbers = || Some(Narrow::of(&self.strips(&counts)?));
        let values = match column.holds {
            Holds::Longs | Holds::Ints | Holds::Names(..) => Values::Numbers(numbers()?),
            Holds::Squares => Values::Wide(numbers()?, numbers()?),
            Holds::Addresses(_) => Values::Addresses(numbers()?, numbers()?, numbers()?),
            Holds::Bytes => self.bytes(&counts)?,
        };
        Some(Flat { values, there, starts: is_list.then(|| Arc::clone(&self.starts)) })
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
    fn strips(&mut self, counts: &[usize]) -> Option<Vec<Strip<'a>>> {
        self.left.iter_mut().zip(counts).map(|((left, _), count)| Strip::take(left, *count)).collect()
    }

    /// Lengths, and the bytes.
    fn bytes(&mut self, counts: &[usize]) -> Option<Values> {
        let (mut raw, mut spans) = (Vec::new(), Vec::new());
        for ((left, _), count) in self.left.iter_mut().zip(counts) {
            let mut lengths = Vec::with_capacity(*count);
            Strip::take(left, *count)?.each(|n| lengths.push(n));
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
            Strip::take(left, *rows)?.each(|count| {
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
pub struct Flat {
    values: Values,
    /// Which rows, or entries, have one, where values may be missing.
    there: Option<Arc<Bits>>,
    /// Where the entries of each row begin, and the last ones end; where rows have many.
    starts: Option<Arc<Vec<u32>>>,
}

/// What was found out about some rows, for the columns that follow.
#[derive(Default)]
pub struct Seen {
    list: Option<Listed>,
    marks: VecDeque<Marked>,
}

/// Entries of rows: how many, and their places.
struct Listed {
    starts: Arc<Vec<u32>>,
    counts: Vec<u32>,
    entries: Vec<u32>,
}

impl Listed {
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
struct Marked {
    bits: Arc<Bits>,
    there: Vec<u8>,
    found: Vec<u32>,
}

impl Marked {
    fn of(bits: &Arc<Bits>, places: &[u32]) -> Self {
        let (mut there, mut found) = (Vec::new(), Vec::new());
        bits.gather(places, &mut there, &mut found);
        Self { bits: Arc::clone(bits), there, found }
    }
}

enum Values {
    Numbers(Narrow),
    /// Lower and upper halves.
    Wide(Narrow, Narrow),
    /// Whether it is IPv6; lower and upper halves.
    Addresses(Narrow, Narrow, Narrow),
    /// Where each begins and ends.
    Bytes(Vec<u8>, Vec<(u32, u32)>),
}

impl Flat {
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
    pub fn gather(&self, holds: Holds, rows: &[u32], seen: &mut Seen, cells: &mut Cells) {
        let Seen { list, marks } = seen;
        let mut places = rows;
        if let Some(starts) = &self.starts {
            let known = list.take_if(|list| Arc::ptr_eq(&list.starts, starts));
            let known = list.insert(known.unwrap_or_else(|| Listed::of(starts, rows)));
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
                let at = marks.iter().position(|marked| Arc::ptr_eq(&marked.bits, bits)).unwrap_or_else(|| {
                    marks.truncate(RECENT - 1);
                    marks.push_front(Marked::of(bits, places));
                    0
                });
                cells.there.extend_from_slice(&marks[at].there);
                places = &marks[at].found;
            }
        }
        match &self.values {
            // The same everywhere: that is all there is to say.
            Values::Numbers(Narrow::Same(value)) if !places.is_empty() => cells.same = Some((*value, places.len())),
            Values::Numbers(n) if matches!(holds, Holds::Ints) => n.gather(places, |n| n as i32, &mut cells.ints),
            Values::Numbers(n) => n.gather(places, |n| n, &mut cells.longs),
            Values::Wide(low, high) => {
                let (mut lows, mut highs) = (Vec::new(), Vec::new());
                low.gather(places, |n| n as u64, &mut lows);
                high.gather(places, |n| n as u64, &mut highs);
                let wide = |(low, high): (&u64, &u64)| u128::from(*low) | u128::from(*high) << 64;
                cells.wide.extend(lows.iter().zip(&highs).map(wide));
            }
            Values::Addresses(Narrow::Same(0), low, _) => {
                low.gather(places, |n| IpAddr::V4(Ipv4Addr::from_bits(n as u32)), &mut cells.addresses);
            }
            Values::Addresses(six, low, high) => {
                let (mut sixes, mut lows, mut highs) = (Vec::new(), Vec::new(), Vec::new());
                six.gather(places, |n| n != 0, &mut sixes);
                low.gather(places, |n| n as u64, &mut lows);
                high.gather(places, |n| n as u64, &mut highs);
                let halves = lows.iter().zip(&highs);
                cells.addresses.extend(sixes.iter().zip(halves).map(|(six, (low, high))| match six {
                    false => IpAddr::V4(Ipv4Addr::from_bits(*low as u32)),
                    true => IpAddr::V6(Ipv6Addr::from_bits(u128::from(*low) | u128::from(*high) << 64)),
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
    pub fn spell(&self, holds: Holds, rows: &[u32], seen: &mut Seen, cells: &mut Cells) {
        self.gather(holds, rows, seen, cells);
        if let Some((value, count)) = cells.same.take() {
            match holds {
                Holds::Ints => cells.ints.resize(count, value as i32),
                _ => cells.longs.resize(count, value),
            }
        }
    }
}
