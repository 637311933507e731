//! Scans a few columns of many records without building records: for rankings and totals.

use crate::block::RowContext;
use crate::decode;
use crate::error::ColumnsError;
use crate::file::{Sealed, guarded};
use crate::file_layout::DataFileKind;
use crate::journal::{LoadedJournal, NO_COLUMNS};
use crate::query::Query;
use crate::results::{FileScan, Warnings, journals};
use crate::schema::{self, Cells, MICRO, ValueType};
use crate::tables::Schema;
use crate::text::read_address;
use base::Timestamp;
use bytes::Bytes;
use flow::Record;
use parquet::basic::{Encoding, Type};
use parquet::column::page::{Page, PageReader};
use parquet::errors::ParquetError;
use parquet::schema::types::ColumnDescriptor;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::mpsc::{TrySendError, sync_channel};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// Journal records per batch.
const ROWS: usize = 4096;

macro_rules! columns {
    ($($(#[doc = $doc:literal])* $variant:ident => $name:literal,)*) => {
        /// A column that can be scanned. Every file has all of these columns.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Column {
            $($(#[doc = $doc])* $variant,)*
        }

        impl Column {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name of the column in Parquet and SQL.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            const fn own_path(self) -> &'static [&'static str] {
                match self {
                    $(Self::$variant => &[$name],)*
                }
            }
        }
    };
}

columns! {
    /// Timestamp of the first packet, in nanoseconds since 1970.
    First => "first",
    /// Timestamp of the last packet.
    Last => "last",
    /// Flow ID.
    Id => "id",
    /// Number of earlier records of the flow.
    Part => "record_index",
    /// Number of the interface.
    Interface => "interface_id",
    /// Source address: the initiator's.
    Src => "src",
    /// Destination address.
    Dst => "dst",
    /// Source port.
    SrcPort => "src_port",
    /// Destination port.
    DstPort => "dst_port",
    /// The protocol above IP.
    Protocol => "protocol",
    /// The outer VLAN id; 0 without a VLAN tag.
    Vlan => "vlan",
    /// The inner VLAN id; 0 without a second VLAN tag.
    VlanInner => "vlan_inner",
    /// The topmost MPLS label; 0 without MPLS labels.
    Mpls => "mpls",
    /// Tunnel kind, numbered as [`wire::TunnelKind`]; 0 without a tunnel.
    Tunnel => "tunnel",
    /// Tunnel identifier.
    TunnelId => "tunnel_id",
    /// Reason for the end of the record, numbered as [`flow::EndReason`].
    EndReason => "end_reason",
    /// State of the TCP connection, numbered as [`flow::TcpState`].
    TcpState => "tcp_state",
    /// Packets that the interface lost in the seconds of the record.
    Lost => "lost",
    /// Nanoseconds from SYN to SYN+ACK; 0 if one of them was not seen.
    SynRtt => "syn_rtt_ns",
    /// Packets from source to destination.
    FwdPackets => "fwd_packets",
    /// Bytes of their frames.
    FwdBytes => "fwd_bytes",
    /// Bytes of the frames of this direction that are outside of IP packets.
    FwdLinkBytes => "fwd_link_bytes",
    /// Bytes of IP and transport headers of this direction.
    FwdHeaderBytes => "fwd_header_bytes",
    /// Packets with SYN.
    FwdSyn => "fwd_syn",
    /// Packets with RST.
    FwdRst => "fwd_rst",
    /// Retransmitted packets.
    FwdRetransmitted => "fwd_retransmitted",
    /// Packets from destination to source.
    RevPackets => "rev_packets",
    /// Bytes of their frames.
    RevBytes => "rev_bytes",
    /// Bytes of the frames of this direction that are outside of IP packets.
    RevLinkBytes => "rev_link_bytes",
    /// Bytes of IP and transport headers of this direction.
    RevHeaderBytes => "rev_header_bytes",
    /// Packets with SYN.
    RevSyn => "rev_syn",
    /// Packets with RST.
    RevRst => "rev_rst",
    /// Retransmitted packets.
    RevRetransmitted => "rev_retransmitted",
}

impl Column {
    /// The file columns from which this column is computed: timestamps in nanoseconds need several.
    const fn paths(self) -> &'static [&'static str] {
        match self {
            Self::First => &["first", "first_nanos"],
            Self::Last => &["first", "first_nanos", "duration_ns"],
            other => other.own_path(),
        }
    }

    /// Computes the values of this column from the values of the file columns in `parts`.
    fn made_of(self, mut parts: Vec<Values>) -> Values {
        let mut first = parts.remove(0);
        if let (Self::First | Self::Last, Values::Numbers(moments)) = (self, &mut first) {
            moments.iter_mut().for_each(|micros| *micros = micros.wrapping_mul(MICRO as u64));
            for part in parts {
                if let Values::Numbers(more) = part {
                    moments.iter_mut().zip(more).for_each(|(moment, more)| *moment = moment.wrapping_add(more));
                }
            }
        }
        first
    }
}

/// The values of the scanned columns for a batch of records.
#[derive(Debug, Default)]
pub struct Batch {
    rows: usize,
    columns: Vec<Values>,
}

#[derive(Debug)]
enum Values {
    Numbers(Vec<u64>),
    Addresses(Vec<IpAddr>),
}

impl Batch {
    /// Number of records.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The numbers of the column at this index of the requested columns.
    ///
    /// # Panics
    /// If the column at this index holds addresses.
    pub fn numbers(&self, place: usize) -> &[u64] {
        match &self.columns[place] {
            Values::Numbers(numbers) => numbers,
            Values::Addresses(_) => panic!("column {place} of the scan has addresses instead of numbers"),
        }
    }

    /// The addresses of the column at this index of the requested columns.
    ///
    /// # Panics
    /// If the column at this index holds numbers.
    pub fn addresses(&self, place: usize) -> &[IpAddr] {
        match &self.columns[place] {
            Values::Addresses(addresses) => addresses,
            Values::Numbers(_) => panic!("column {place} of the scan has numbers instead of addresses"),
        }
    }

    /// Removes the rows whose begin, end and flow id (the last three columns) the query does not select.
    fn keep(&mut self, query: &Query) {
        let at = self.columns.len() - 3;
        let rows = self.numbers(at).iter().zip(self.numbers(at + 1)).zip(self.numbers(at + 2));
        let moment = |n: &u64| Timestamp::from_nanos(*n);
        let wanted = |((first, last), id): ((&u64, &u64), &u64)| {
            query.overlaps((moment(first), moment(last))) && query.id.is_none_or(|wanted| wanted == *id)
        };
        let keep: Vec<bool> = rows.map(wanted).collect();
        for column in &mut self.columns {
            let mut kept = keep.iter();
            let mut keep = || kept.next().copied().unwrap_or(false);
            match column {
                Values::Numbers(numbers) => numbers.retain(|_| keep()),
                Values::Addresses(addresses) => addresses.retain(|_| keep()),
            }
        }
        self.rows = keep.iter().filter(|k| **k).count();
    }
}

/// Reads these columns of every record that [`crate::flows`] would return for this query, and passes them to `each`,
/// some thousands of records at a time, in no particular order. Returns a warning for each damaged file that was
/// skipped; some records of such a file may have been passed to `each` before.
///
/// # Errors
/// If the store cannot be read, or has no such interface.
pub fn scan(query: &Query, columns: &[Column], mut each: impl FnMut(&Batch)) -> Result<Vec<String>, ColumnsError> {
    let warnings = Warnings::default();
    scan_files(query, columns, &warnings, &mut each, |part, each| part.give(query, columns, &warnings, each))?;
    Ok(std::mem::take(&mut *warnings.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// As [`scan`], with several threads, each with its own state from `make`; returns those states with the warnings.
/// Which thread gets which records varies. The threads inherit the caller's priorities.
///
/// # Errors
/// As [`scan`].
pub fn scan_shared<S: Send>(
    query: &Query,
    columns: &[Column],
    threads: usize,
    make: impl Fn() -> S,
    each: impl Fn(&mut S, &Batch) + Sync,
) -> Result<(Vec<S>, Vec<String>), ColumnsError> {
    let warnings = Warnings::default();
    // The queue contains only a few parts for each thread, because each part holds an open file.
    let (sender, receiver) = sync_channel::<Part>(threads * 2);
    let receiver = Mutex::new(receiver);
    let mut states: Vec<S> = (0..threads.max(1)).map(|_| make()).collect();
    let (mine, others) = states.split_at_mut(1);
    let next = || receiver.lock().unwrap_or_else(PoisonError::into_inner).try_recv().ok();
    let wait = || receiver.lock().unwrap_or_else(PoisonError::into_inner).recv().ok();
    let (each, warnings_of_all) = (&each, &warnings);
    let outcome = std::thread::scope(|scope| {
        for state in others {
            scope.spawn(move || {
                while let Some(part) = wait() {
                    part.give(query, columns, warnings_of_all, &mut |batch: &Batch| each(state, batch));
                }
            });
        }
        let mut given = |batch: &Batch| each(&mut mine[0], batch);
        let outcome = scan_files(query, columns, &warnings, &mut given, |part, given| {
            // If the queue is full, the calling thread scans this row group itself.
            if let Err(TrySendError::Full(part) | TrySendError::Disconnected(part)) = sender.try_send(part) {
                part.give(query, columns, &warnings, given);
            }
        });
        drop(sender);
        while let Some(part) = next() {
            part.give(query, columns, &warnings, &mut given);
        }
        outcome
    });
    outcome?;
    Ok((states, std::mem::take(&mut *warnings.lock().unwrap_or_else(PoisonError::into_inner))))
}

/// Scans journals directly, and passes the row groups of sealed files to `share`, oldest first.
fn scan_files<E: FnMut(&Batch)>(
    query: &Query,
    columns: &[Column],
    warnings: &Warnings,
    each: &mut E,
    mut share: impl FnMut(Part, &mut E),
) -> Result<(), ColumnsError> {
    for root in query.roots()? {
        let mut taken = BTreeSet::new();
        let journals = if query.live { journals(&root, DataFileKind::Flows, query, warnings) } else { Vec::new() };
        for journal in journals {
            taken.insert(journal.id);
            if growing(&journal, query, columns, each).is_none() {
                crate::results::add_warning(warnings, NO_COLUMNS);
            }
        }
        let mut files = FileScan::new(&root, DataFileKind::Flows, query, warnings);
        while files.peek().is_some() {
            let Some(sealed) = files.open() else { continue };
            if sealed.origin.id.is_some_and(|id| taken.contains(&id)) {
                continue;
            }
            let sealed = Arc::new(sealed);
            for group in sealed.groups(query, |error| crate::results::add_warning(warnings, error)) {
                share(Part { sealed: Arc::clone(&sealed), group }, each);
            }
        }
    }
    Ok(())
}

/// A row group of an open file.
struct Part {
    sealed: Arc<Sealed>,
    group: usize,
}

impl Part {
    /// Passes the selected rows of the row group to `each`; damage becomes a warning.
    fn give(&self, query: &Query, columns: &[Column], warnings: &Warnings, each: &mut impl FnMut(&Batch)) {
        let is_inside = query.id.is_none() && self.sealed.is_inside(self.group, query.from, query.to);
        let outcome = if is_inside {
            self.read(columns)
        } else {
            let timed = [columns, &[Column::First, Column::Last, Column::Id]].concat();
            self.read(&timed).map(|mut batch| {
                batch.keep(query);
                batch
            })
        };
        match outcome {
            Ok(batch) if batch.rows > 0 => each(&batch),
            Ok(_) => {}
            Err(ColumnsError::Damaged { what, .. }) => {
                crate::results::add_warning(warnings, self.sealed.unreadable(self.group, 0, what));
            }
            Err(error) => crate::results::add_warning(warnings, error),
        }
    }

    fn read(&self, selected: &[Column]) -> Result<Batch, ColumnsError> {
        let rows = self.sealed.rows(self.group);
        let mut columns = Vec::with_capacity(selected.len());
        for column in selected {
            let leaves = self.sealed.pages(self.group, column.paths())?;
            // `each` is called outside of `guarded`, so that a panic of `each` is not reported as damage.
            let values = guarded(&self.sealed.path, || {
                let mut parts = Vec::new();
                for (leaf, path) in leaves.into_iter().zip(column.paths()) {
                    let bad = |what: &str| ParquetError::General(format!("column {path} {what}"));
                    let (descriptor, mut pages) = leaf.ok_or_else(|| bad("is missing"))?;
                    let values = whole(&descriptor, &mut *pages, rows, words(path))?;
                    parts.push(values.ok_or_else(|| bad("has values that netgrain never writes"))?);
                }
                Ok::<_, ParquetError>(column.made_of(parts))
            })?;
            columns.push(values);
        }
        Ok(Batch { rows, columns })
    }
}

/// All values of a column of a row group: numbers (0 for a missing value), or addresses, which the file stores as text.
/// `None` if the pages do not have the structure that [`crate::chunk`] writes. The library has verified the page
/// checksums.
fn whole(
    descriptor: &ColumnDescriptor,
    pages: &mut dyn PageReader,
    rows: usize,
    words: Option<ReadWord>,
) -> Result<Option<Values>, ParquetError> {
    let width = match descriptor.physical_type() {
        Type::INT64 => 8,
        Type::INT32 => 4,
        _ => 0,
    };
    let mut dictionary: Option<Bytes> = None;
    while let Some(page) = pages.get_next_page()? {
        match page {
            Page::DictionaryPage { buf, .. } => dictionary = Some(buf),
            Page::DataPage { buf, num_values, encoding, .. } if num_values as usize == rows => {
                let dictionary = dictionary.as_deref();
                return Ok(one_page(&buf, rows, descriptor.max_def_level() > 0, encoding, dictionary, (width, words)));
            }
            _ => return Ok(None),
        }
    }
    Ok((rows == 0).then(|| Values::Numbers(Vec::new())))
}

fn one_page(
    mut bytes: &[u8],
    rows: usize,
    is_optional: bool,
    encoding: Encoding,
    dictionary: Option<&[u8]>,
    (width, words): (usize, Option<ReadWord>),
) -> Option<Values> {
    let mut present = Vec::new();
    if is_optional {
        let len = u32::from_le_bytes(*bytes.split_off(..4)?.first_chunk()?);
        decode::runs(bytes.split_off(..len as usize)?, 1, rows, &mut present)?;
    }
    let count = if is_optional { present.iter().filter(|level| **level > 0).count() } else { rows };
    if count == 0 {
        return Some(Values::Numbers(vec![0; rows]));
    }
    let mut numbers = Vec::new();
    match encoding {
        Encoding::RLE_DICTIONARY => {
            let mut places = Vec::new();
            let (bits, runs) = bytes.split_first()?;
            decode::runs(runs, u32::from(*bits), count, &mut places)?;
            let mut keys = Vec::new();
            if let Some(words) = words {
                texts(dictionary?, |text| keys.extend(words(text).map(|number| number as u64)))?;
            } else if width == 0 {
                let addresses = addresses(dictionary?)?;
                let one = |place: &u16| addresses.get(usize::from(*place)).copied();
                return places.iter().map(one).collect::<Option<_>>().map(Values::Addresses);
            } else {
                decode::plain(dictionary?, width, &mut keys)?;
            }
            let one = |place: &u16| keys.get(usize::from(*place)).copied();
            numbers.reserve(count);
            for place in &places {
                numbers.push(one(place)?);
            }
        }
        Encoding::PLAIN => decode::plain(bytes, width, &mut numbers)?,
        _ => return None,
    }
    (numbers.len() == count).then_some(())?;
    if count < rows {
        let mut some = numbers.into_iter();
        numbers = present.iter().map(|level| if *level > 0 { some.next().unwrap_or(0) } else { 0 }).collect();
    }
    Some(Values::Numbers(numbers))
}

/// Decodes the addresses of a dictionary.
fn addresses(dictionary: &[u8]) -> Option<Vec<IpAddr>> {
    let (mut addresses, mut is_good) = (Vec::new(), true);
    texts(dictionary, |text| match read_address(text) {
        Some(address) => addresses.push(address),
        None => is_good = false,
    })?;
    is_good.then_some(addresses)
}

/// Decodes the texts of a dictionary: length and text alternate.
fn texts(mut dictionary: &[u8], mut each: impl FnMut(&[u8])) -> Option<()> {
    while !dictionary.is_empty() {
        let len = u32::from_le_bytes(*dictionary.split_off(..4)?.first_chunk()?);
        each(dictionary.split_off(..len as usize)?);
    }
    Some(())
}

/// A function that converts the text of a column to a number.
type ReadWord = fn(&[u8]) -> Option<i64>;

/// The parser for the column of this name, if its texts represent numbers.
fn words(name: &str) -> Option<ReadWord> {
    static ALL: LazyLock<BTreeMap<String, ReadWord>> = LazyLock::new(|| {
        let word = |column: schema::Column<_>| match column.value_type {
            ValueType::Names(_, read) => Some((column.path, read)),
            _ => None,
        };
        Record::columns().into_iter().filter_map(word).collect()
    });
    ALL.get(name).copied()
}

/// The values of a journal column: numbers, with 0 for missing ones.
fn values(cells: Cells) -> Values {
    if !cells.addresses.is_empty() {
        return Values::Addresses(cells.addresses);
    }
    let wide = cells.longs.iter().map(|n| *n as u64);
    let narrow = cells.ints.iter().map(|n| u64::from(*n as u32));
    let mut numbers = wide.chain(narrow);
    if cells.present.is_empty() {
        return Values::Numbers(numbers.collect());
    }
    let one = |present: &u8| if *present > 0 { numbers.next().unwrap_or(0) } else { 0 };
    Values::Numbers(cells.present.iter().map(one).collect())
}

/// The columns of a journal's records, as a file would have them; `None` if they are invalid.
fn growing(
    journal: &LoadedJournal<Record>,
    query: &Query,
    selected: &[Column],
    each: &mut impl FnMut(&Batch),
) -> Option<()> {
    let timed = [selected, &[Column::First, Column::Last, Column::Id]].concat();
    let mut blocks = journal.blocks()?;
    let mut flats = Vec::new();
    for column in Record::columns() {
        let flat = blocks.next(&column)?;
        if timed.iter().any(|selected| selected.name() == column.path) {
            flats.push((column, flat));
        }
    }
    let places: Vec<u32> = (0..u32::try_from(journal.len()).ok()?).collect();
    for rows in places.chunks(ROWS) {
        let mut batch = Batch { rows: rows.len(), columns: Vec::new() };
        for selected in &timed {
            let (column, flat) = flats.iter().find(|(column, _)| column.path == selected.name())?;
            let mut cells = Cells::default();
            flat.spell(column.value_type, rows, &mut RowContext::default(), &mut cells);
            batch.columns.push(values(cells));
        }
        batch.keep(query);
        if batch.rows > 0 {
            each(&batch);
        }
    }
    Some(())
}
