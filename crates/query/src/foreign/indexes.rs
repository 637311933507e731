//! Indexes of foreign captures: built once, stored in the directory of the capture or in a separate directory, and
//! valid as long as the capture is unchanged.
//!
//! The index of `x.pcap` is `x.pcap.ngi`, so that its name differs from the index of `x.pcapng` and from a store index,
//! which would be `x.ngi`. The index contains the length and the modification time of the capture; if the capture has
//! other values, the index is not used. A separate directory may contain indexes of captures with equal names, so in
//! such a directory the name of an index also contains a hash of the capture's path. The index contains that path too,
//! so a user may give the name of the index instead of the name of the capture.

use super::capture::Capture;
use super::context::{BlockScan, CaptureContext};
use super::plan::BLOCK;
use crate::QueryError;
use crate::block::stamp;
use base::{Cause, Note, Tally, Timestamp, TimestampMethod, TimestampMethods, TimestampQuality};
use index::{BlockKeys, Builder, Content, Entry, Header, Reader, Rows, Sets, SubBlocks, Summary};
use pcap::Format;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum length of a capture with an index: the builder stores the descriptions of all blocks in memory, up to 1 % of
/// the length of the capture.
pub const MAX_CAPTURE: u64 = 128 << 30;

/// Number of packets between two tests of the stop flag.
const CHECK_INTERVAL: u64 = 4096;

/// The result of building an index.
#[derive(Clone, Debug)]
pub struct IndexBuild {
    /// Path of the index.
    pub path: PathBuf,
    /// Length of the index.
    pub bytes: u64,
    /// Length of the capture.
    pub capture_bytes: u64,
    /// Summary of the capture.
    pub summary: Summary,
    /// Description and offset of the damage, if the capture is damaged.
    pub damage: Option<String>,
    /// For each link type that netgrain cannot parse, its number of packets; the index contains only the times of these
    /// packets.
    pub unknown_link_types: BTreeMap<u16, u64>,
}

/// The state of an index.
#[derive(Debug)]
pub enum IndexState {
    /// The index matches the capture.
    Current(Box<Summary>),
    /// There is no index.
    Missing,
    /// The index does not describe the capture, in most cases because the capture has changed since the index was
    /// built.
    Stale(Mismatch),
    /// The index is unreadable, or the file is not an index.
    Unreadable(io::Error),
}

/// The reason why an index does not describe a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The index was not finished.
    Unfinished,
    /// The index belongs to another file.
    OtherFile,
    /// The packet file of a store has another length than when it was sealed.
    SealedLength,
    /// The capture has another length than when it was indexed.
    Length,
    /// The capture was changed or replaced after it was indexed.
    Changed,
    /// Bytes of the capture differ from their checksum.
    Bytes {
        /// Offset of the first byte of the block.
        from: u64,
        /// Offset of the end of the block.
        to: u64,
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unfinished => f.write_str("the index is incomplete"),
            Self::OtherFile => f.write_str("the index belongs to another file"),
            Self::SealedLength => f.write_str("the length of the file has changed since it was sealed"),
            Self::Length => f.write_str("the length of the capture has changed since it was indexed"),
            Self::Changed => f.write_str("the capture was changed or replaced after it was indexed"),
            Self::Bytes { from, to } => write!(f, "bytes {from} to {to} of the capture were changed"),
        }
    }
}

impl std::error::Error for Mismatch {}

/// The reason why an existing index is not used.
#[derive(Debug)]
pub(super) enum UnusedIndex {
    Stale(PathBuf, Mismatch),
    Unreadable(PathBuf, io::Error),
}

impl fmt::Display for UnusedIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale(path, why) => write!(f, "{}: {why}", path.display())?,
            Self::Unreadable(path, e) => write!(f, "{}: {e}", path.display())?,
        }
        f.write_str("; the whole capture is read instead (netgrain index rebuilds the index)")
    }
}

impl std::error::Error for UnusedIndex {}

/// Path of the index of a capture: in the directory of the capture, or in the directory `into`.
pub fn path(capture: &Path, into: Option<&Path>) -> PathBuf {
    let mut name = OsString::from(capture.file_name().unwrap_or_default());
    if into.is_some() {
        let whole = std::path::absolute(capture).unwrap_or_else(|_| capture.to_owned());
        let hash = whole.as_os_str().as_encoded_bytes().iter().fold(0, |h, b| base::hash::combine(h, u64::from(*b)));
        name.push(format!("-{hash:016x}"));
    }
    name.push(".");
    name.push(index::SUFFIX);
    into.map_or_else(|| capture.with_file_name(&name), |directory| directory.join(&name))
}

/// Builds the index of a capture. The index file has a hidden name until it is complete. Returns `None` if `stop` was
/// set before the end.
///
/// # Errors
/// If the file is no capture, cannot be read, or changes while it is read, or if the index cannot be written.
pub fn make(capture: &Path, into: Option<&Path>, stop: &AtomicBool) -> Result<Option<IndexBuild>, QueryError> {
    let (described, file) = Capture::open(capture)?;
    let failed = |error| QueryError::Io { path: capture.to_owned(), error };
    if described.bytes > MAX_CAPTURE {
        let why = format!(
            "longer than {}: building its index would take 1 % of its length in memory; record it into a store instead \
             (netgrain record -r)",
            base::units::show_bytes(MAX_CAPTURE)
        );
        return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, why)));
    }
    let named = match into {
        Some(_) => std::path::absolute(capture).map_err(failed)?.into_os_string(),
        None => capture.file_name().unwrap_or_default().to_owned(),
    };
    let name = named.into_string().map_err(|_| {
        let why = "its name is not UTF-8, so an index cannot contain the name; rename the file";
        failed(io::Error::new(io::ErrorKind::InvalidInput, why))
    })?;
    let Some(mut scan) = Scan::of(&described, &file, name, stop).map_err(failed)? else { return Ok(None) };
    let (now, _) = Capture::open(capture)?;
    if (now.bytes, now.modified) != (described.bytes, described.modified) {
        let why = "the file was changed while it was read; wait until its writer has ended";
        return Err(failed(io::Error::new(io::ErrorKind::InvalidData, why)));
    }
    let path = path(capture, into);
    let bytes = scan.write(&path).map_err(|error| {
        let hint =
            if error.kind() == io::ErrorKind::PermissionDenied || error.kind() == io::ErrorKind::ReadOnlyFilesystem {
                "; name a writable directory (--into)"
            } else {
                ""
            };
        QueryError::Io { path: path.clone(), error: io::Error::new(error.kind(), format!("{error}{hint}")) }
    })?;
    let summary = match state(&described, &path) {
        IndexState::Current(summary) => *summary,
        IndexState::Missing => return Err(failed(io::Error::other("another process removed the new index"))),
        IndexState::Stale(why) => return Err(failed(io::Error::other(why))),
        IndexState::Unreadable(e) => return Err(failed(io::Error::other(e.to_string()))),
    };
    Ok(Some(IndexBuild {
        path,
        bytes,
        capture_bytes: described.bytes,
        summary,
        damage: scan.damage,
        unknown_link_types: scan.unknown_link_types,
    }))
}

/// The state of the index of a capture (valid, outdated, missing, …), determined from length and modification time of
/// the capture.
///
/// # Errors
/// If the file is no capture.
pub fn index_state(capture: &Path, into: Option<&Path>) -> Result<IndexState, QueryError> {
    let (described, _) = Capture::open(capture)?;
    Ok(state(&described, &path(capture, into)))
}

/// Like [`index_state`], but also compares the checksum of each block, for which the complete capture is read.
///
/// # Errors
/// If the file is no capture or cannot be read.
pub fn verify(capture: &Path, into: Option<&Path>, stop: &AtomicBool) -> Result<IndexState, QueryError> {
    let (described, file) = Capture::open(capture)?;
    let mut path = path(capture, into);
    let mut state = state(&described, &path);
    if let IndexState::Missing = state {
        // If the capture has no index of its own, the index with the name of a store index (`x.ngi`) is verified.
        path = capture.with_extension(index::SUFFIX);
        state = self::state(&described, &path);
    }
    let IndexState::Current(_) = state else { return Ok(state) };
    let index = match File::open(&path).and_then(|index| Reader::open(&index)) {
        Ok(index) => index,
        Err(e) => return Ok(IndexState::Unreadable(e)),
    };
    let mut buffer = vec![0; BLOCK as usize];
    for block in index.blocks() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let bytes = &mut buffer[..(block.bytes as usize).min(BLOCK as usize)];
        let at = u64::from(block.number) * BLOCK;
        file.read_exact_at(bytes, at).map_err(|error| QueryError::Io { path: capture.to_owned(), error })?;
        if crc32c::crc32c(bytes) != block.crc {
            return Ok(IndexState::Stale(Mismatch::Bytes { from: at, to: at + BLOCK }));
        }
    }
    Ok(state)
}

/// Removes the index of a capture; the capture need not exist any longer. Returns false if there was no index.
///
/// # Errors
/// If the file is not the index of a capture, or cannot be removed.
pub fn remove(capture: &Path, into: Option<&Path>) -> Result<bool, QueryError> {
    remove_index(&path(capture, into))
}

/// Removes the index at this path; returns false if there was no index.
///
/// # Errors
/// As [`remove`].
pub fn remove_index(path: &Path) -> Result<bool, QueryError> {
    let failed = |error| QueryError::Io { path: path.to_owned(), error };
    match File::open(path).and_then(|file| Reader::begin(&file)) {
        Ok(index) if matches!(index.header().content, Content::Foreign { .. }) => {}
        Ok(_) => return Err(failed(io::Error::other("the index belongs to a store, and retention removes it"))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(e) => {
            return Err(failed(io::Error::new(
                e.kind(),
                format!("{e}; if you do not need the file, remove it with rm"),
            )));
        }
    }
    std::fs::remove_file(path).map(|()| true).map_err(failed)
}

/// True if the file is a packet file of a store and has an index of the store, which is used instead.
pub fn is_of_store(capture: &Path) -> bool {
    let Ok((described, _)) = Capture::open(capture) else { return false };
    matches!(open(&described, &capture.with_extension(index::SUFFIX)), Ok(Some(_)))
}

/// If `path` is an index: the path of its capture, which the index contains.
///
/// # Errors
/// If the index cannot be read.
pub fn named(path: &Path) -> Result<Option<PathBuf>, QueryError> {
    if path.extension().is_none_or(|e| e != index::SUFFIX) {
        return Ok(None);
    }
    let failed = |error| QueryError::Io { path: path.to_owned(), error };
    let header = File::open(path).and_then(|file| Ok(Reader::begin(&file)?.header().clone())).map_err(failed)?;
    let Content::Foreign { .. } = header.content else {
        let why = "the index belongs to a store; query the store with --store, or name the packet file";
        return Err(failed(io::Error::new(io::ErrorKind::InvalidData, why)));
    };
    // An index in the directory of its capture contains only the file name of the capture and no directory, so that
    // capture and index can be moved together.
    Ok(Some(path.with_file_name("").join(header.interface)))
}

/// Opens the index of a capture. A store index is used if its packet file is unchanged.
///
/// # Errors
/// The reason why the existing index is not used.
pub(super) fn find(capture: &Capture, named_path: &Path) -> Result<Option<(Reader, File)>, UnusedIndex> {
    let own = path(&capture.path, None);
    let path = if named_path.extension().is_some_and(|e| e == index::SUFFIX) { named_path } else { &own };
    match open(capture, path) {
        Ok(Some(found)) => Ok(Some(found)),
        Ok(None) => match open(capture, &capture.path.with_extension(index::SUFFIX)) {
            Ok(found) => Ok(found),
            Err(_) => Ok(None),
        },
        Err(IndexState::Stale(why)) => Err(UnusedIndex::Stale(path.to_owned(), why)),
        Err(IndexState::Unreadable(e)) => Err(UnusedIndex::Unreadable(path.to_owned(), e)),
        Err(IndexState::Current(_) | IndexState::Missing) => Ok(None),
    }
}

fn state(capture: &Capture, path: &Path) -> IndexState {
    match open(capture, path) {
        Ok(Some((index, _))) => IndexState::Current(Box::new(index.summary().clone())),
        Ok(None) => IndexState::Missing,
        Err(state) => state,
    }
}

fn open(capture: &Capture, path: &Path) -> Result<Option<(Reader, File)>, IndexState> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(IndexState::Unreadable(e)),
    };
    let index = Reader::begin(&file).map_err(IndexState::Unreadable)?;
    let why = match index.header().content {
        _ if !index.is_sealed() => Mismatch::Unfinished,
        Content::Recorded if capture.format == Format::PcapNg => Mismatch::OtherFile,
        Content::Recorded if index.summary().bytes != capture.bytes => Mismatch::SealedLength,
        Content::Recorded => return Ok(Some((index, file))),
        reported if reported == content(capture) => return Ok(Some((index, file))),
        Content::Foreign { bytes, .. } if bytes != capture.bytes => Mismatch::Length,
        Content::Foreign { .. } => Mismatch::Changed,
    };
    Err(IndexState::Stale(why))
}

/// The index header that describes the capture.
fn content(capture: &Capture) -> Content {
    let format = match capture.format {
        Format::Pcap => index::Format::Pcap,
        Format::PcapNg => index::Format::PcapNg,
        Format::Raw => index::Format::Raw,
    };
    Content::Foreign { format, bytes: capture.bytes, modified: capture.modified }
}

/// The state of the index that is being built.
struct Scan {
    builder: Builder,
    context: CaptureContext,
    /// Offset of the end of the last complete record of the capture.
    end: u64,
    last: Timestamp,
    damage: Option<String>,
    unknown_link_types: BTreeMap<u16, u64>,
}

impl Scan {
    /// Reads the complete capture and indexes it; `None` if the stop flag was set.
    fn of(capture: &Capture, file: &File, interface: String, stop: &AtomicBool) -> io::Result<Option<Self>> {
        let context = CaptureContext::begin(capture.format, file)?;
        let mut header = Header {
            interface,
            queue: 0,
            link_type: 0,
            snaplen: 0,
            timestamp_source: String::new(),
            timestamp_error: 0,
            filter: String::new(),
            first_pos: 0,
            start: Timestamp::ZERO,
            content: content(capture),
        };
        let builder = Builder::new(header.clone());
        let (damage, unknown_link_types) = (None, BTreeMap::new());
        let mut scan = Self { builder, context, end: capture.bytes, last: Timestamp::ZERO, damage, unknown_link_types };
        let mut block_scan = (capture.format == Format::PcapNg).then(|| BlockScan::new(file, capture.bytes));
        let mut part = capture.whole(file).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))?;
        let mut keys = BlockKeys::default();
        let mut now = entry(0);
        let mut seen = 0u64;
        loop {
            let (at, packet) = match part.next() {
                Ok(Some(next)) => next,
                Ok(None) => break,
                Err((at, why)) => {
                    scan.damage = Some(format!("byte {at}: {why}"));
                    scan.end = at;
                    break;
                }
            };
            if let Some(block_scan) = &mut block_scan {
                block_scan.pass(at, &mut scan.context)?;
            }
            let ts = stamp(&packet);
            if seen == 0 {
                let (link_type, snaplen) = scan.context.first();
                (header.link_type, header.snaplen, header.start) = (link_type.into(), snaplen, ts);
                scan.builder = Builder::new(header.clone());
            }
            while u64::from(now.block) < at / BLOCK {
                let next = entry(now.block + 1);
                scan.close(std::mem::replace(&mut now, next), &mut keys, file)?;
            }
            if now.first_record.is_none() {
                now.first_record = Some((at % BLOCK) as u32);
                (now.first, now.last) = (ts, ts);
            }
            (now.first, now.last) = (now.first.min(ts), now.last.max(ts));
            scan.last = scan.last.max(ts);
            keys.add(packet.data, packet.wire_len, packet.link_type);
            if !wire::link::is_understood(packet.link_type) {
                *scan.unknown_link_types.entry(packet.link_type).or_default() += 1;
            }
            let mut tally = Tally { offered: 1, stored: 1, stored_bytes: packet.wire_len.into(), ..Tally::default() };
            tally.notes[Note::WireRaised as usize] = packet.wire_raised.into();
            tally.add_lost(Cause::Source, packet.drops.min(u64::from(u32::MAX)));
            now.rows.add(ts.secs(), &tally);
            seen += 1;
            if seen.is_multiple_of(CHECK_INTERVAL) && stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
        }
        drop(part);
        while u64::from(now.block) * BLOCK < scan.end {
            let next = entry(now.block + 1);
            scan.close(std::mem::replace(&mut now, next), &mut keys, file)?;
        }
        Ok(Some(scan))
    }

    /// Completes the index entry of a block: adds its key sets, length and checksum.
    fn close(&mut self, mut entry: Entry, keys: &mut BlockKeys, file: &File) -> io::Result<()> {
        let from = u64::from(entry.block) * BLOCK;
        let mut bytes = vec![0; self.end.saturating_sub(from).min(BLOCK) as usize];
        file.read_exact_at(&mut bytes, from)?;
        entry.bytes = bytes.len() as u32;
        entry.crc = crc32c::crc32c(&bytes);
        entry.sets = keys.sets();
        keys.clear();
        self.builder.push(entry);
        Ok(())
    }

    /// Writes the index and publishes it.
    fn write(&mut self, path: &Path) -> io::Result<u64> {
        let mut hidden = OsString::from(".");
        hidden.push(path.file_name().unwrap_or_default());
        hidden.push(format!(".{}.partial", std::process::id()));
        let hidden = path.with_file_name(hidden);
        let written = (|| {
            let mut out = io::BufWriter::new(sys::nofollow::create_anew(&hidden)?);
            self.builder.finish(self.end, self.last, &self.context.ranges(), &mut out)?;
            out.flush()?;
            let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
            file.sync_all()?;
            let bytes = file.metadata()?.len();
            std::fs::rename(&hidden, path)?;
            Ok(bytes)
        })();
        if written.is_err() {
            // Removes the incomplete index.
            let _ = std::fs::remove_file(&hidden);
        }
        written
    }
}

fn entry(block: u32) -> Entry {
    let methods = TimestampMethods::from_iter([TimestampMethod::File]);
    Entry {
        block,
        bytes: 0,
        first_record: None,
        crc: 0,
        sub_blocks: SubBlocks::NONE,
        first: Timestamp::ZERO,
        last: Timestamp::ZERO,
        timestamps: TimestampQuality { methods, ..TimestampQuality::UNKNOWN },
        rows: Rows::new(),
        sets: Sets::NONE,
    }
}
