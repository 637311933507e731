//! The journal: it stores the output of a meter on disk within a second, while the sealed file is not yet written.
//!
//! Layout, little-endian: a header (`NGJ7`, kind, schema hash, id of the journal, CRC32C), then batches
//! ([`crate::batch`]). A batch is valid if it is complete, whatever bytes precede it. So a reader may read while the
//! writer appends, a crash at any byte loses at most the unsynced bytes, and damage loses only the batches with damaged
//! bytes.

use crate::batch::{self, Damage, JournalBatches};
use crate::block::{Blocks, FlatColumn, RowContext};
use crate::error::ColumnsError;
use crate::file_layout::{self, DataFileKind};
use crate::schema::{Cells, Column, declaration};
use crate::table_row::Order;
use crate::tables::Schema;
use crate::volume::Disk;
use base::Timestamp;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use store::device::{Content, FileId};

/// Error text for an undamaged journal that this program cannot read.
pub const ANOTHER_VERSION: &str =
    "is a journal of another netgrain version; seal it with that version (netgrain repair)";

/// Error text for a journal that is being created, or whose creation a crash interrupted.
pub const TOO_SHORT: &str = "ends within its header";

const MAGIC: [u8; 4] = *b"NGJ7";

/// Bytes of the header.
const HEADER: usize = 24;

/// Greatest length of a journal, regardless of the configuration: offsets in a journal have 32 bits.
pub const MAX_BYTES: u64 = 1 << 30;

/// Greatest number of unsynced bytes that are kept in memory in case a sync fails.
const UNSYNCED_MAX: u64 = 16 << 20;

/// A journal that is being written, locked for as long as it is open.
pub struct Journal {
    /// Its path.
    pub path: PathBuf,
    disk: Disk,
    file: FileId,
    id: u64,
    len: u64,
    /// The batches that are not yet synced. After a failed sync it is unknown which of these batches are on disk, and a
    /// later successful sync does not cover them (fsync(2)). So after a failed sync they are written again.
    unsynced: Vec<Vec<u8>>,
    unsynced_bytes: u64,
    is_doubtful: bool,
    is_named: bool,
}

impl Journal {
    /// Creates a journal under the first free name.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn create<T: Schema>(
        mut disk: Disk,
        root: &Path,
        kind: DataFileKind,
        start: Timestamp,
    ) -> Result<Self, ColumnsError> {
        disk.create_directory(root).map_err(ColumnsError::io(root))?;
        let mut copy = 0;
        let (path, file) = loop {
            let path = file_layout::journal(root, kind, start, copy);
            copy += 1;
            match disk.create(&path, Content::Index) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(ColumnsError::io(&path)(e)),
                Ok(file) => break (path, file),
            }
        };
        let mut header = [0; HEADER];
        header[..4].copy_from_slice(&MAGIC);
        header[4..8].copy_from_slice(&(kind as u32).to_le_bytes());
        header[8..12].copy_from_slice(&shape::<T>().to_le_bytes());
        // `RandomState` has random keys, so no two journals of a store have the same id.
        let id = RandomState::new().hash_one(&path);
        header[12..20].copy_from_slice(&id.to_le_bytes());
        let crc = crc32c::crc32c(&header[..20]);
        header[20..].copy_from_slice(&crc.to_le_bytes());
        let (len, unsynced, unsynced_bytes) = (0, Vec::new(), 0);
        let (is_doubtful, is_named) = (false, false);
        let mut journal = Self { path, disk, file, id, len, unsynced, unsynced_bytes, is_doubtful, is_named };
        match journal.put(header.to_vec()) {
            Ok(()) => Ok(journal),
            Err(error) => {
                // The journal is still empty.
                let _ = journal.disk.remove(&journal.path);
                Err(error)
            }
        }
    }

    /// Appends a batch; after a failure the partial write is truncated.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn append(&mut self, mut batch: Vec<u8>) -> Result<(), ColumnsError> {
        batch::place(&mut batch, self.id, self.len, self.len - self.unsynced_bytes);
        self.put(batch)
    }

    fn put(&mut self, batch: Vec<u8>) -> Result<(), ColumnsError> {
        if let Err(error) = self.disk.put(self.file, self.len, &batch) {
            // If truncation fails too, the remaining bytes are not a complete batch, and the next batch overwrites
            // them.
            let _ = self.disk.truncate(self.file, self.len);
            return Err(ColumnsError::io(&self.path)(error));
        }
        self.len += batch.len() as u64;
        self.unsynced_bytes += batch.len() as u64;
        self.unsynced.push(batch);
        Ok(())
    }

    /// Syncs the journal to disk, and returns the buffers of the batches that were not synced before.
    ///
    /// # Errors
    /// Errors of the file system; the next call tries again.
    pub fn sync(&mut self) -> Result<Vec<Vec<u8>>, ColumnsError> {
        if self.unsynced.is_empty() {
            return Ok(Vec::new());
        }
        self.try_sync().map_err(|error| {
            self.is_doubtful = true;
            ColumnsError::io(&self.path)(error)
        })
    }

    fn try_sync(&mut self) -> io::Result<Vec<Vec<u8>>> {
        if self.is_doubtful {
            let mut at = self.len - self.unsynced_bytes;
            for batch in &self.unsynced {
                self.disk.put(self.file, at, batch)?;
                at += batch.len() as u64;
            }
        }
        self.disk.sync(&self.path)?;
        if !self.is_named {
            // The first sync also syncs the directory of the journal, so that the name of the journal survives a power
            // failure.
            self.disk.sync(self.path.parent().unwrap_or(Path::new(".")))?;
            self.is_named = true;
        }
        self.is_doubtful = false;
        self.unsynced_bytes = 0;
        Ok(std::mem::take(&mut self.unsynced))
    }

    /// True if so many bytes are unsynced that a sync is due before its regular time.
    pub fn is_overdue(&self) -> bool {
        self.unsynced_bytes >= UNSYNCED_MAX
    }

    /// Length of the journal in bytes.
    pub fn bytes(&self) -> u64 {
        self.len
    }

    /// True if some batches are not synced.
    pub fn is_unsynced(&self) -> bool {
        !self.unsynced.is_empty()
    }

    /// True if a sync failed: until [`Journal::sync`] has written the unsynced batches again, no batch may be appended.
    pub fn is_doubtful(&self) -> bool {
        self.is_doubtful
    }

    /// Closes the file and releases its lock.
    pub fn close(mut self) {
        self.disk.close(self.file);
    }
}

/// A hash of the columns of a schema; it identifies journals that were written with other columns.
fn shape<T: Schema>() -> u32 {
    let columns = T::columns();
    let coded: String = columns.iter().map(|column| format!("{:?} ", column.repetition)).collect();
    crc32c::crc32c((declaration(T::NAME, &columns) + &coded).as_bytes())
}

/// A journal that was read into memory and scanned for its complete batches.
pub struct LoadedJournal<T> {
    /// The id of the journal, which is also the id of the sealed file.
    pub id: u64,
    /// Number of bytes in batches of which a crash interrupted the write.
    pub torn: u64,
    /// The range of bytes that was written completely and is damaged now, if there is one.
    pub damage: Option<Damage>,
    bytes: Vec<u8>,
    found: JournalBatches,
    what: PhantomData<T>,
}

/// Error text for a journal with matching checksums and invalid columns.
pub const NO_COLUMNS: &str = "has matching checksums but invalid columns: another netgrain version wrote it";

impl<T: Schema> LoadedJournal<T> {
    /// Finds the complete batches in the bytes of a journal.
    ///
    /// # Errors
    /// If the bytes are not a journal of this kind.
    pub fn of(bytes: Vec<u8>, kind: DataFileKind) -> Result<Self, &'static str> {
        let Some(header) = bytes.first_chunk::<HEADER>() else { return Err(TOO_SHORT) };
        let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        if header[..3] != MAGIC[..3] || word(20) != crc32c::crc32c(&header[..20]) {
            return Err("is not a journal, or its header is damaged");
        }
        if header[..4] != MAGIC || word(4) != kind as u32 || word(8) != shape::<T>() {
            return Err(ANOTHER_VERSION);
        }
        let id = u64::from(word(12)) | u64::from(word(16)) << 32;
        let found = JournalBatches::of(&bytes, id, HEADER);
        let (torn, damage) = (found.torn(), found.damage());
        Ok(Self { id, torn, damage, bytes, found, what: PhantomData })
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.found.rows
    }

    /// Returns the buffer for reuse.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The complete batches of the journal as blocks, in order of arrival; `None` if the blocks are invalid.
    pub fn blocks(&self) -> Option<Blocks<'_>> {
        let blocks = Blocks::of(self.found.batches.iter().map(|(from, to)| &self.bytes[*from..*to]))?;
        (blocks.rows() == self.found.rows).then_some(blocks)
    }
}

/// A journal and the sort order of its rows. The first columns are already decoded, because the order depends on them.
pub struct OrderedJournal<'a> {
    /// The remaining columns.
    pub blocks: Blocks<'a>,
    /// The first columns.
    pub ahead: Vec<FlatColumn>,
    /// Row numbers in sort order.
    pub order: Vec<u32>,
    /// The sort key of the first row; `None` if there is no row.
    pub first: Option<Order>,
    /// The latest timestamp in the column [`Schema::LAST`].
    pub end: Timestamp,
}

impl<T: Schema> LoadedJournal<T> {
    /// Sorts the rows by the columns of [`Schema::ORDER`]; `None` if the columns are invalid.
    pub fn ordered(&self, columns: &[Column<T::Line>]) -> Option<OrderedJournal<'_>> {
        let mut blocks = self.blocks()?;
        let place = |name: &str| columns.iter().position(|column| column.path == name);
        let [first, second, third] = T::ORDER.map(place);
        let (first, second, third, last) = (first?, second?, third?, place(T::LAST)?);
        let ahead = columns[..=first.max(second).max(third).max(last)].iter().map(|column| blocks.next(column));
        let ahead = ahead.collect::<Option<Vec<FlatColumn>>>()?;
        let key = |row: u32, column: usize| ahead[column].number(row as usize);
        let moments = ahead[first].numbers(self.found.rows);
        let moment = |row: u32| moments[row as usize];
        let mut order = in_order(&moments);
        // Rows are compared by the other sort columns only if their timestamps are equal, which is rare.
        for same in order.chunk_by_mut(|a, b| moment(*a) == moment(*b)).filter(|same| same.len() > 1) {
            same.sort_by_key(|row| (key(*row, second), key(*row, third)));
        }
        let first = order.first().map(|row| (moment(*row), key(*row, second), key(*row, third) as u32));
        let end = (0..self.found.rows as u32).map(|row| key(row, last)).max().unwrap_or(0);
        Some(OrderedJournal { blocks, ahead, order, first, end: T::moment(&(end, 0, 0)) })
    }
}

/// Sorts row numbers by timestamp, stably.
///
/// PERF: the timestamps of one file are near each other, so four passes over words of timestamp and row number suffice
/// (radix sort, lowest digits first); comparing took some 50 ns per record. A file with a wider range is sorted by
/// comparing.
fn in_order(moments: &[u64]) -> Vec<u32> {
    const DIGIT: u32 = 11;
    let rows = moments.len() as u32;
    let (least, most) = moments.iter().fold((u64::MAX, 0), |(least, most), n| (*n.min(&least), *n.max(&most)));
    let (above, bits) = (most.saturating_sub(least), u32::BITS - rows.leading_zeros());
    if above.leading_zeros() < bits {
        let mut order: Vec<u32> = (0..rows).collect();
        order.sort_by_key(|row| moments[*row as usize]);
        return order;
    }
    let mut words: Vec<u64> =
        moments.iter().zip(0..rows).map(|(n, row)| (n - least) << bits | u64::from(row)).collect();
    let mut sorted = vec![0; words.len()];
    for shift in (bits..bits + u64::BITS - above.leading_zeros()).step_by(DIGIT as usize) {
        let digit = |word: u64| (word >> shift) as usize & ((1 << DIGIT) - 1);
        let mut places = [0u32; 1 << DIGIT];
        words.iter().for_each(|word| places[digit(*word)] += 1);
        let mut before = 0;
        for place in &mut places {
            before += std::mem::replace(place, before);
        }
        for word in &words {
            let place = &mut places[digit(*word)];
            sorted[*place as usize] = *word;
            *place += 1;
        }
        std::mem::swap(&mut words, &mut sorted);
    }
    words.into_iter().map(|word| (word & ((1 << bits) - 1)) as u32).collect()
}

/// The rows of a journal in sort order, some hundreds at a time.
pub struct SortedRows<T: Schema> {
    columns: Vec<Column<T::Line>>,
    flats: Vec<FlatColumn>,
    order: Vec<u32>,
    at: usize,
    cells: Cells,
}

/// Number of rows that are decoded together.
const LINES: usize = 512;

impl<T: Schema> SortedRows<T> {
    /// Decodes all columns of the journal; `None` if they are invalid.
    pub fn new(journal: &LoadedJournal<T>) -> Option<Self> {
        let columns = T::columns();
        let OrderedJournal { mut blocks, ahead: mut flats, order, .. } = journal.ordered(&columns)?;
        for column in &columns[flats.len()..] {
            flats.push(blocks.next(column)?);
        }
        Some(Self { columns, flats, order, at: 0, cells: Cells::default() })
    }

    /// Returns the next few hundred rows; none at the end of the journal.
    ///
    /// # Errors
    /// If the columns contain invalid values.
    pub fn next(&mut self) -> Result<Vec<T>, &'static str> {
        let rows = &self.order[self.at..self.order.len().min(self.at + LINES)];
        self.at += rows.len();
        let mut lines: Vec<T::Line> = rows.iter().map(|_| T::blank()).collect();
        let mut seen = RowContext::default();
        for (column, flat) in self.columns.iter().zip(&self.flats) {
            self.cells.clear();
            flat.spell(column.value_type, rows, &mut seen, &mut self.cells);
            (column.take)(&mut lines, column.arg, &self.cells).ok_or(NO_COLUMNS)?;
        }
        Ok(lines.into_iter().map(T::unline).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    #[test]
    fn rows_with_any_timestamps_are_sorted() {
        let seed = testkit::seed("rows_with_any_timestamps_are_sorted");
        let mut prng = Prng::new(seed);
        for round in 0..300 {
            // Timestamps in a narrow or a wide range, some of them equal.
            let (bits, base) = (prng.below(65) as u32, prng.next_u64() >> prng.below(64));
            let one = |prng: &mut Prng| base.saturating_add(prng.next_u64().checked_shr(64 - bits).unwrap_or(0));
            let moments: Vec<u64> = (0..prng.below(600)).map(|_| one(&mut prng)).collect();
            let mut model: Vec<u32> = (0..moments.len() as u32).collect();
            model.sort_by_key(|row| (moments[*row as usize], *row));
            assert_eq!(in_order(&moments), model, "seed {seed} round {round}");
        }
    }
}
