//! Reading an index: every length and checksum is checked before a number is believed.

use super::format::{ALL_GROUPS, CRC, ENTRY_TAG, FOOTER_TAG, MAGIC, NO_RECORD, VERSION, entry, footer, header};
use super::key::Key;
use super::rows::{self, Rows};
use super::set::{GROUP, Set};
use super::{Entry, Footer, Header, Sets};
use base::Timestamp;
use std::fmt;
use std::ops::Range;

/// What reads a packet file without its index.
const READERS: &str = "capinfos, tcpdump -r";

/// An index file in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// What holds for the whole file.
    pub header: Header,
    /// The blocks, in order.
    pub entries: Vec<Entry>,
    /// How it ends.
    pub tail: Tail,
}

/// How an index ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tail {
    /// With its footer: the packet file is whole.
    Complete(Footer),
    /// Without one, because the recorder is still writing or was cut off: nothing from this byte on is to be believed.
    Open {
        /// Offset in the index.
        at: usize,
    },
}

/// Why bytes are not an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexError {
    /// It does not begin as one does.
    NotAnIndex,
    /// It was written by a later version.
    Version {
        /// The version found.
        found: u16,
    },
    /// The header is cut off or damaged.
    Header,
    /// The footer contradicts the entries.
    Contradiction {
        /// What does not fit.
        what: &'static str,
        /// From the footer.
        footer: u64,
        /// From the entries.
        entries: u64,
    },
}

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnIndex => {
                write!(f, "not a netgrain index; the packet file beside it is readable without ({READERS})")
            }
            Self::Version { found } => {
                write!(f, "index version {found}, this program reads {VERSION}: use the netgrain that wrote it")
            }
            Self::Header => {
                write!(f, "the index header is damaged; the packet file beside it is readable without ({READERS})")
            }
            Self::Contradiction { what, footer, entries } => {
                write!(
                    f,
                    "{what}: {footer} in the footer, {entries} in the entries; \
                     check the packet file itself ({READERS})"
                )
            }
        }
    }
}

impl std::error::Error for IndexError {}

impl Index {
    /// Reads an index, whole or cut off.
    ///
    /// # Errors
    /// When not even the header can be believed, or when a footer is there and does not agree with the entries.
    pub fn parse(bytes: &[u8]) -> Result<Self, IndexError> {
        let (header, mut at) = parse_header(bytes)?;
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            let rest = &bytes[at..];
            if let Some((part, len)) = whole(rest, FOOTER_TAG, footer::ROWS)
                && let Some(footer) = parse_footer(part)
            {
                // Behind a footer nothing may follow; what does was not written by us.
                let tail = if len == rest.len() { Tail::Complete(footer) } else { Tail::Open { at } };
                return Self { header, entries, tail }.checked();
            }
            match whole(rest, ENTRY_TAG, entry::ROWS).and_then(|(part, len)| Some((parse_entry(part)?, len))) {
                Some((entry, len)) if entry.block as usize == entries.len() => {
                    entries.push(entry);
                    at += len;
                }
                _ => return Ok(Self { header, entries, tail: Tail::Open { at } }),
            }
        }
    }

    /// Numbers of the blocks that may hold packets of this key.
    pub fn candidates(&self, key: Key) -> impl Iterator<Item = u32> + '_ {
        let hash = key.hash();
        self.entries.iter().filter(move |e| e.may_contain_hash(key, hash)).map(|e| e.block)
    }

    fn checked(self) -> Result<Self, IndexError> {
        if let Tail::Complete(footer) = &self.tail {
            let check = |what, footer: u64, entries: u64| {
                if footer == entries { Ok(()) } else { Err(IndexError::Contradiction { what, footer, entries }) }
            };
            check("number of entries", u64::from(footer.entries), self.entries.len() as u64)?;
            check("bytes", footer.bytes, self.entries.iter().map(|e| u64::from(e.bytes)).sum())?;
            // Sums of foreign numbers may overflow; wrapping keeps the comparison exact where it matters.
            let stored = |rows: &Rows| rows.runs().fold(0u64, |n, r| n.wrapping_add(r.tally.stored));
            check("packets stored", stored(&footer.rows), {
                self.entries.iter().fold(0u64, |n, e| n.wrapping_add(stored(&e.rows)))
            })?;
        }
        Ok(self)
    }
}

impl Entry {
    /// Whether packets of this key may be in the block.
    pub fn may_contain(&self, key: Key) -> bool {
        self.may_contain_hash(key, key.hash())
    }

    fn may_contain_hash(&self, key: Key, hash: u64) -> bool {
        match key {
            Key::Host(_) => &self.sets.hosts,
            Key::Port(_) => &self.sets.ports,
            Key::Flow(_) => &self.sets.flows,
        }
        .may_contain(hash)
    }
}

fn u16_at(bytes: &[u8], at: Range<usize>) -> u16 {
    bytes[at].iter().rev().fold(0, |n, b| n << 8 | u16::from(*b))
}

fn u32_at(bytes: &[u8], at: Range<usize>) -> u32 {
    bytes[at].iter().rev().fold(0, |n, b| n << 8 | u32::from(*b))
}

fn u64_at(bytes: &[u8], at: Range<usize>) -> u64 {
    bytes[at].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

/// A part at the beginning of `bytes` whose length and checksum are right: without the checksum, and its whole length.
fn sealed(bytes: &[u8], length_at: Range<usize>, least: usize) -> Option<(&[u8], usize)> {
    if bytes.len() < least + CRC {
        return None;
    }
    let len = u32_at(bytes, length_at) as usize;
    if len < least + CRC || len > bytes.len() {
        return None;
    }
    let (part, crc) = bytes[..len].split_at(len - CRC);
    (crc32c::crc32c(part) == u32_at(crc, 0..CRC)).then_some((part, len))
}

fn whole(bytes: &[u8], tag: [u8; 4], least: usize) -> Option<(&[u8], usize)> {
    if bytes.get(..4)? != tag { None } else { sealed(bytes, entry::LENGTH, least) }
}

fn parse_header(bytes: &[u8]) -> Result<(Header, usize), IndexError> {
    if bytes.get(header::MAGIC) != Some(&MAGIC[..]) {
        return Err(IndexError::NotAnIndex);
    }
    let Some(version) = bytes.get(header::VERSION) else { return Err(IndexError::Header) };
    let found = u16_at(version, 0..2);
    if found != VERSION {
        return Err(IndexError::Version { found });
    }
    let (part, len) = sealed(bytes, header::LENGTH, header::TEXTS).ok_or(IndexError::Header)?;
    let mut texts = &part[header::TEXTS..];
    let mut text = || -> Option<String> {
        let (len, rest) = texts.split_at_checked(2)?;
        let (text, rest) = rest.split_at_checked(usize::from(u16_at(len, 0..2)))?;
        texts = rest;
        String::from_utf8(text.to_vec()).ok()
    };
    let (Some(interface), Some(stamps), Some(filter)) = (text(), text(), text()) else {
        return Err(IndexError::Header);
    };
    let header = Header {
        interface,
        stamps,
        filter,
        queue: u16_at(part, header::QUEUE),
        link_type: u32_at(part, header::LINK_TYPE),
        snaplen: u32_at(part, header::SNAPLEN),
        stamp_error: u32_at(part, header::STAMP_ERROR),
        first_pos: u64_at(part, header::FIRST_POS),
        start: Timestamp::from_nanos(u64_at(part, header::START)),
    };
    Ok((header, len))
}

fn parse_entry(part: &[u8]) -> Option<Entry> {
    let rows_length = u32_at(part, entry::ROWS_LENGTH) as usize;
    let (rows, mut filters) = part[entry::ROWS..].split_at_checked(rows_length)?;
    let mut sets = [Set::All, Set::All, Set::All];
    for (at, set) in entry::GROUPS.into_iter().zip(&mut sets) {
        let groups = u16_at(part, at);
        if groups != ALL_GROUPS {
            let (filter, rest) = filters.split_at_checked(usize::from(groups) * GROUP)?;
            *set = Set::Filter(filter.to_vec());
            filters = rest;
        }
    }
    if !filters.is_empty() {
        return None;
    }
    let [hosts, ports, flows] = sets;
    let first_record = u32_at(part, entry::FIRST_RECORD);
    Some(Entry {
        block: u32_at(part, entry::BLOCK),
        bytes: u32_at(part, entry::BYTES),
        first_record: (first_record != NO_RECORD).then_some(first_record),
        crc: u32_at(part, entry::BLOCK_CRC),
        first: Timestamp::from_nanos(u64_at(part, entry::FIRST)),
        last: Timestamp::from_nanos(u64_at(part, entry::LAST)),
        rows: rows::decode(rows)?,
        sets: Sets { hosts, ports, flows },
    })
}

fn parse_footer(part: &[u8]) -> Option<Footer> {
    Some(Footer {
        bytes: u64_at(part, footer::BYTES),
        end: Timestamp::from_nanos(u64_at(part, footer::END)),
        entries: u32_at(part, footer::ENTRIES),
        rows: rows::decode(&part[footer::ROWS..])?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Prng, Row, Tally};

    fn entry(block: u32, prng: &mut Prng) -> Entry {
        let keys: Vec<u64> = (0..prng.below(200)).map(|_| prng.next_u64()).collect();
        let stored = prng.below(1000);
        Entry {
            block,
            bytes: 1 << 20,
            first_record: (stored > 0).then_some(24),
            crc: prng.next_u64() as u32,
            first: Timestamp::from_nanos(prng.next_u64()),
            last: Timestamp::from_nanos(prng.next_u64()),
            rows: [Row {
                second: 1000 + u64::from(block),
                tally: Tally { stored, offered: stored, ..Tally::default() },
            }]
            .into_iter()
            .collect(),
            sets: Sets { hosts: Set::of(&keys), ports: Set::All, flows: Set::Filter(Vec::new()) },
        }
    }

    fn sample(blocks: u32, prng: &mut Prng) -> (Header, Vec<Entry>, Footer, Vec<u8>) {
        let header = Header {
            interface: "eth1".into(),
            queue: 3,
            link_type: 1,
            snaplen: 65_535,
            stamps: "tsc".into(),
            stamp_error: 700,
            filter: "host ä".into(),
            first_pos: 1 << 33,
            start: Timestamp::from_nanos(5),
        };
        let entries: Vec<Entry> = (0..blocks).map(|b| entry(b, prng)).collect();
        let footer = Footer {
            bytes: u64::from(blocks) << 20,
            end: Timestamp::from_nanos(9),
            entries: blocks,
            rows: entries.iter().flat_map(|e| e.rows.iter()).collect(),
        };
        let mut bytes = header.encode();
        entries.iter().for_each(|e| bytes.extend(e.encode()));
        bytes.extend(footer.encode());
        (header, entries, footer, bytes)
    }

    #[test]
    fn a_footer_that_contradicts_the_entries_is_refused() {
        let mut prng = Prng::new(1);
        let (header, entries, mut footer, _) = sample(3, &mut prng);
        footer.rows.add(1000, &Tally { stored: 1, ..Tally::default() });
        let mut bytes = header.encode();
        entries.iter().for_each(|e| bytes.extend(e.encode()));
        bytes.extend(footer.encode());
        let error = Index::parse(&bytes).expect_err("one packet too many");
        assert!(error.to_string().contains("packets stored"), "{error}");
        assert_eq!(Index::parse(b"PK\x03\x04"), Err(IndexError::NotAnIndex));
        bytes[8] = 9;
        assert_eq!(Index::parse(&bytes), Err(IndexError::Version { found: 9 }));
    }

    #[test]
    fn what_is_written_is_read_and_what_is_cut_off_is_read_up_to_there() {
        let mut prng = Prng::new(2);
        let (header, entries, footer, bytes) = sample(5, &mut prng);
        let whole = Index::parse(&bytes).expect("a whole index");
        assert_eq!(whole, Index { header, entries: entries.clone(), tail: Tail::Complete(footer) });
        let header_len = whole.header.encode().len();
        for len in 0..bytes.len() {
            match Index::parse(&bytes[..len]) {
                Ok(index) => {
                    assert!(len >= header_len);
                    assert_eq!(index.entries, entries[..index.entries.len()], "cut at {len}");
                    assert!(matches!(index.tail, Tail::Open { at } if at <= len), "cut at {len}");
                }
                Err(e) => assert!(len < header_len, "cut at {len}: {e}"),
            }
        }
    }

    #[test]
    fn damaged_indexes_never_harm_and_never_yield_a_damaged_entry() {
        // `NETGRAIN_FUZZ_ITERS` multiplies the rounds.
        let rounds = std::env::var("NETGRAIN_FUZZ_ITERS").ok().and_then(|r| r.parse().ok()).unwrap_or(1) * 5_000;
        let mut prng = Prng::new(3);
        let (_, entries, _, bytes) = sample(4, &mut prng);
        for round in 0..rounds {
            let mut damaged = bytes.clone();
            for _ in 0..=prng.below(4) {
                let at = prng.below(damaged.len() as u64) as usize;
                match prng.below(4) {
                    0 => damaged[at] ^= 1 << prng.below(8),
                    1 => damaged[at] = prng.next_u64() as u8,
                    2 => damaged.truncate(at.max(1)),
                    _ => drop(damaged.splice(at..at, (0..prng.below(9)).map(|i| i as u8))),
                }
            }
            if let Ok(index) = Index::parse(&damaged) {
                assert_eq!(index.entries, entries[..index.entries.len()], "round {round}");
            }
        }
    }

    #[test]
    fn an_entry_that_lies_behind_a_right_checksum_does_no_harm() {
        let mut prng = Prng::new(4);
        let header = sample(0, &mut prng).0.encode();
        for _ in 0..5_000 {
            let mut part = entry(0, &mut prng).encode();
            part.truncate(part.len() - CRC);
            for _ in 0..4 {
                let at = 8 + prng.below(part.len() as u64 - 8) as usize;
                part[at] = prng.next_u64() as u8;
            }
            part.extend(crc32c::crc32c(&part).to_le_bytes());
            let mut bytes = header.clone();
            bytes.extend(part);
            if let Ok(index) = Index::parse(&bytes) {
                for e in &index.entries {
                    e.may_contain(Key::Port(prng.next_u64() as u16));
                    e.may_contain(Key::Host("10.0.0.1".parse().expect("an address")));
                }
            }
        }
    }
}
