//! A few columns of many records: what top talkers and totals are made of, without making records.

use crate::error::ColumnsError;
use crate::file::{Sealed, guarded};
use crate::journal::Loaded;
use crate::layout::{Layout, Line, Memo};
use crate::pack::Pack;
use crate::query::{Query, Remarks, Walk, journals};
use crate::sheet::{Cells, Column as Sheet};
use crate::shelf::Kind;
use base::Timestamp;
use flow::Record;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Records that are read together.
const ROWS: usize = 4096;

macro_rules! columns {
    ($($(#[doc = $doc:literal])* $variant:ident => $name:literal,)*) => {
        /// What can be scanned: the columns that are always written.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Column {
            $($(#[doc = $doc])* $variant,)*
        }

        impl Column {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// As Parquet and SQL call it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

columns! {
    /// When the first packet came, in nanoseconds since 1970.
    First => "first",
    /// When the last packet came.
    Last => "last",
    /// Id of the flow.
    Id => "id",
    /// Records of the flow before this one.
    Part => "part",
    /// Number of the interface.
    Interface => "interface",
    /// Who began: an address.
    Src => "src",
    /// With whom: an address.
    Dst => "dst",
    /// From which port.
    SrcPort => "src_port",
    /// To which port.
    DstPort => "dst_port",
    /// The protocol above IP.
    Protocol => "protocol",
    /// The outer VLAN; 0 without one.
    Vlan => "vlan",
    /// The inner VLAN; 0 without one.
    InnerVlan => "inner_vlan",
    /// The topmost MPLS label; 0 without one.
    Mpls => "mpls",
    /// The kind of the tunnel, as [`wire::TunnelKind`] numbers them; 0 without one.
    Tunnel => "tunnel",
    /// Its number.
    TunnelId => "tunnel_id",
    /// Why the record was made, as [`flow::EndReason`] numbers it.
    End => "end",
    /// How far TCP got, as [`flow::TcpState`] numbers it.
    Tcp => "tcp",
    /// Packets that the interface lost meanwhile.
    Lost => "lost",
    /// Nanoseconds from SYN to SYN+ACK; 0 if that was not seen.
    SynRtt => "syn_rtt",
    /// Packets from source to destination.
    FwdPackets => "fwd_packets",
    /// Bytes of their frames.
    FwdBytes => "fwd_bytes",
    /// Those of them outside of IP.
    FwdLinkBytes => "fwd_link_bytes",
    /// Those of IP that are headers.
    FwdHeaderBytes => "fwd_header_bytes",
    /// Packets with SYN.
    FwdSyn => "fwd_syn",
    /// Packets with RST.
    FwdRst => "fwd_rst",
    /// Packets sent again.
    FwdRetransmitted => "fwd_retransmitted",
    /// Packets from destination to source.
    RevPackets => "rev_packets",
    /// Bytes of their frames.
    RevBytes => "rev_bytes",
    /// Those of them outside of IP.
    RevLinkBytes => "rev_link_bytes",
    /// Those of IP that are headers.
    RevHeaderBytes => "rev_header_bytes",
    /// Packets with SYN.
    RevSyn => "rev_syn",
    /// Packets with RST.
    RevRst => "rev_rst",
    /// Packets sent again.
    RevRetransmitted => "rev_retransmitted",
}

/// Some records' values of the columns that were asked for.
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
    /// How many records.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The numbers of the column that was asked for at this place.
    ///
    /// # Panics
    /// When that column holds addresses.
    pub fn numbers(&self, place: usize) -> &[u64] {
        match &self.columns[place] {
            Values::Numbers(numbers) => numbers,
            Values::Addresses(_) => panic!("column {place} of the scan holds addresses"),
        }
    }

    /// The addresses of the column that was asked for at this place.
    ///
    /// # Panics
    /// When that column holds numbers.
    pub fn addresses(&self, place: usize) -> &[IpAddr] {
        match &self.columns[place] {
            Values::Addresses(addresses) => addresses,
            Values::Numbers(_) => panic!("column {place} of the scan holds numbers"),
        }
    }

    /// Leaves only the rows whose first and last moment and id, the last three columns, are as asked.
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

/// Gives these columns of every record that [`crate::flows`] would give for this query, some thousands at a time, in no
/// particular order. Returns what people should know: files that are damaged and were passed over (a part of such a file may
/// have been given).
///
/// # Errors
/// When the store cannot be looked at, or has no such interface.
pub fn scan(query: &Query, columns: &[Column], mut each: impl FnMut(&Batch)) -> Result<Vec<String>, ColumnsError> {
    let remarks = Remarks::default();
    let table = Record::columns();
    let timed: Vec<Column> = columns.iter().copied().chain([Column::First, Column::Last, Column::Id]).collect();
    for root in query.roots()? {
        let mut taken = BTreeSet::new();
        let journals = if query.live { journals(&root, Kind::Flows, query, &remarks) } else { Vec::new() };
        for journal in journals {
            taken.insert(journal.id);
            growing(&journal, query, columns, &table, &mut each);
        }
        let mut walk = Walk::new(&root, Kind::Flows, query, &remarks);
        while walk.peek().is_some() {
            let Some(sealed) = walk.open() else { continue };
            if sealed.journal.is_some_and(|id| taken.contains(&id)) {
                continue;
            }
            for group in sealed.groups(query.from, query.to, &query.need, query.id) {
                let outcome = if query.id.is_none() && sealed.is_inside(group, query.from, query.to) {
                    file(&sealed, group, columns, |batch| each(batch))
                } else {
                    file(&sealed, group, &timed, |batch| {
                        batch.keep(query);
                        if batch.rows > 0 {
                            each(batch);
                        }
                    })
                };
                if let Err(error) = outcome {
                    crate::query::remark(&remarks, error);
                    break;
                }
            }
        }
    }
    Ok(std::mem::take(&mut *remarks.lock().unwrap_or_else(std::sync::PoisonError::into_inner)))
}

/// One row group of a sealed file.
fn file(sealed: &Sealed, group: usize, asked: &[Column], mut each: impl FnMut(&mut Batch)) -> Result<(), ColumnsError> {
    let paths: Vec<&str> = asked.iter().map(|c| c.name()).collect();
    let mut readers = sealed.columns(group, &paths)?;
    let mut cells = Cells::default();
    let mut batch = Batch::default();
    loop {
        // What is handed over is not guarded: a caller's panic is the caller's.
        let more = guarded(&sealed.path, || {
            batch.columns.clear();
            for (i, (reader, column)) in readers.iter_mut().zip(asked).enumerate() {
                let Some(reader) = reader else {
                    return Err(ParquetError::General(format!("column {} is missing", column.name())));
                };
                let rows = cells.read(reader, ROWS)?;
                if i > 0 && rows != batch.rows {
                    return Err(ParquetError::General(format!("column {} has fewer rows than others", column.name())));
                }
                batch.rows = rows;
                batch.columns.push(values(&cells).ok_or_else(|| {
                    ParquetError::General(format!("column {} has values that netgrain did not write", column.name()))
                })?);
            }
            Ok(batch.rows > 0)
        })?;
        if !more {
            return Ok(());
        }
        each(&mut batch);
    }
}

/// Numbers as they are, with 0 for none; text as addresses.
fn values(cells: &Cells) -> Option<Values> {
    if !cells.bytes.is_empty() {
        let mut memo = Memo::default();
        let all: Option<Vec<IpAddr>> = cells.bytes.iter().map(|text: &ByteArray| memo.address(text.data())).collect();
        return all.map(Values::Addresses);
    }
    let wide = cells.longs.iter().map(|n| *n as u64);
    let narrow = cells.ints.iter().map(|n| u64::from(*n as u32));
    let mut numbers = wide.chain(narrow);
    if cells.def.is_empty() {
        return Some(Values::Numbers(numbers.collect()));
    }
    let one = |def: &i16| if *def > 0 { numbers.next() } else { Some(0) };
    cells.def.iter().map(one).collect::<Option<_>>().map(Values::Numbers)
}

/// The records of a journal, as a file would give them.
fn growing(
    journal: &Loaded<Record>,
    query: &Query,
    asked: &[Column],
    table: &[Sheet<Line>],
    each: &mut impl FnMut(&Batch),
) {
    let sheets: Vec<&Sheet<Line>> =
        asked.iter().filter_map(|column| table.iter().find(|sheet| sheet.path == column.name())).collect();
    let mut place = 0;
    while place < journal.len() {
        let upto = journal.len().min(place + ROWS);
        let records = (place..upto).filter_map(|i| journal.get(i)?.ok()).filter(|r| query.overlaps(r.span()));
        let records = records.filter(|r| query.id.is_none_or(|id| r.id == id));
        let lines: Vec<Line> = records.map(Layout::line).collect();
        place = upto;
        let mut batch = Batch { rows: lines.len(), columns: Vec::new() };
        for (sheet, column) in sheets.iter().zip(asked) {
            let mut cells = Cells::default();
            batch.columns.push(if matches!(column, Column::Src | Column::Dst) {
                let end = |line: &Line| if *column == Column::Src { line.key().src } else { line.key().dst };
                Values::Addresses(lines.iter().map(end).collect())
            } else {
                (sheet.fill)(&lines, sheet.arg, &mut cells);
                values(&cells).unwrap_or(Values::Numbers(Vec::new()))
            });
        }
        if batch.rows > 0 {
            each(&batch);
        }
    }
}
