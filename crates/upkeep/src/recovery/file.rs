//! Recovers and publishes one packet file that a dead recorder left.
//!
//! The order of operations matters, because recovery can be killed at any step, too. Recovery syncs the file before it
//! examines the file. It writes new files under separate names into the same directory and syncs them, before it
//! truncates or renames the old file. It publishes the index before the packet file. If recovery is killed, the next
//! recovery continues or repeats it with the same result.

use super::file_names::{FileNames, interface_of};
use super::volume::{CountsUnavailable, Volume};
use crate::packet_file::{Findings, Layout, Rebuilt, VerifiedIndex, Window, examine, rebuild};
use base::{Cause, Note, Tally, Timestamp};
use index::{Header, Rows};
use std::io;
use std::path::{Path, PathBuf};
use store::catalogue::parse_stem;
use store::device::{Content, Device, FileId};
use store::out_of_order::{self, OutOfOrderMarkers, Span};

/// The outcome for a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The file is complete and published.
    Published {
        /// The path.
        path: PathBuf,
        /// Its ledger.
        tally: Box<Tally>,
        /// Number of packets that were indexed or partly written but could not be kept: the ledger now counts them as
        /// lost with the cause `crash`, in addition to earlier losses.
        lost: u64,
        /// Path of the separate file to which the unverified bytes were copied; `None` if there were no such bytes.
        aside: Option<PathBuf>,
    },
    /// The file was empty and was removed.
    Removed,
    /// A running process has locked the file, so the file was not changed.
    Held,
    /// The content of the file does not match its name; the file was not changed.
    Unknown,
}

/// The recovery of one file.
pub(super) struct FileRecovery<'v, D> {
    volume: &'v mut Volume<D>,
    directory: &'v Path,
    called: FileNames,
    layout: Layout,
    /// If true, all bytes that are cut off are copied to another file, also bytes that no index covers.
    careful: bool,
}

impl<'v, D: Device> FileRecovery<'v, D> {
    /// The recovery of the packet file with this name in this directory; `None` for an unknown format.
    pub fn new(volume: &'v mut Volume<D>, directory: &'v Path, called: FileNames) -> Option<Self> {
        let layout = Layout::of(called.ending)?;
        Some(Self { volume, directory, called, layout, careful: false })
    }

    /// Keeps all truncated bytes.
    #[must_use]
    pub fn careful(self) -> Self {
        Self { careful: true, ..self }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Recovers the file, which has its hidden name.
    pub fn hidden(mut self) -> io::Result<Outcome> {
        let from = self.path(&self.called.hidden_packets());
        self.at(&from, &self.called.hidden_index())
    }

    /// Recovers the file at `from` with the index named `index`.
    fn at(&mut self, from: &Path, index: &str) -> io::Result<Outcome> {
        let Some(file) = self.volume.device.take(from)? else { return Ok(Outcome::Held) };
        let outcome = self.recover(from, file, index);
        self.volume.device.close(file);
        outcome
    }

    fn recover(&mut self, from: &Path, file: FileId, index: &str) -> io::Result<Outcome> {
        // The content is synced before it is examined, because it must survive a power failure.
        self.volume.sync(file)?;
        let sealed = self.whole_index(file)?;
        if let Some((sealed, at)) = sealed.as_ref().filter(|(sealed, at)| !self.must_rebuild(sealed, at)) {
            if self.careful && !self.is_aside() && !self.is_blank_behind(file, sealed.bytes())? {
                self.keep_aside(file, sealed.bytes())?;
            }
            return self.publish(from, file, sealed, at, index);
        }
        self.clear()?;
        // Bytes after the file length that a sealed index states never belonged to the file, so their removal loses no
        // packets.
        let limit = sealed.as_ref().map_or(u64::MAX, |(sealed, _)| sealed.bytes());
        // The sealed index is preferred: it contains all data of the growing index, and may be the only index that
        // survived.
        let mut verified = sealed.map(|(sealed, _)| sealed);
        let half = verified.is_none();
        for name in [self.called.sealed_index(), index.to_owned()] {
            let path = self.path(&name);
            if verified.is_none() {
                verified = VerifiedIndex::read(&mut self.volume.device, &path)?;
            }
        }
        if half && let Some(half) = self.half_published(verified.as_ref())? {
            verified = Some(half);
        }
        let mut window = Window::new(&mut self.volume.device, file, limit)?;
        let mut findings = examine(&mut window, self.layout, verified.as_ref())?;
        let end = findings.kept.last().map_or(0, |kept| kept.end);
        let is_blank = findings.is_empty() && window.is_blank(end, u64::MAX)?;
        if half && !self.careful {
            let header = match &verified {
                Some(verified) => verified.header.clone(),
                None => self.guess_header(file)?,
            };
            self.enter_tail(&header, &mut findings);
        }
        if findings.is_empty() {
            // A file without kept records is removed if its index is valid, or if the file contains only zeros. In all
            // other cases its content is unknown, and the file is not changed.
            let known = verified.is_some_and(|v| !v.torn) || is_blank;
            return if known { self.remove(from, index) } else { Ok(Outcome::Unknown) };
        }
        let header = match verified {
            Some(verified) => verified.header,
            None => self.guess_header(file)?,
        };
        let outcome = match findings.cut() {
            Some(len) => self.cut(from, file, index, &header, &findings, len),
            None => self.copy(from, file, index, &header, &findings),
        }?;
        Ok(match outcome {
            Outcome::Published { path, tally, aside, .. } => {
                Outcome::Published { path, tally, lost: findings.lost, aside }
            }
            other => other,
        })
    }

    /// Counts the packets that were offered to the recorder but are in no ledger as lost, in the ledger of this file.
    /// If their number is unknown, adds a note that it is unknown.
    fn enter_tail(&mut self, header: &Header, findings: &mut Findings) {
        let mut tally = Tally::default();
        let mut second = findings.rest.iter().flat_map(|(_, rows)| rows.runs()).map(|r| r.second + r.seconds - 1).max();
        match self.volume.tail(header) {
            Ok(None) => return,
            Ok(Some(tail)) => {
                let reported =
                    findings.rest.iter().map(|(_, rows)| rows.total().offered).sum::<u64>() + findings.packets;
                let missing = tail.offered.saturating_sub(tail.before).saturating_sub(reported);
                if missing == 0 {
                    return;
                }
                tally.add_lost(if tail.ended { Cause::Disk } else { Cause::Crash }, missing);
                findings.lost += missing;
                second = second.max(Some(tail.second));
            }
            // An empty file gets no note that the number of lost packets is unknown: nothing indicates that packets
            // were lost, and recovery removes the file later.
            Err(CountsUnavailable) if findings.is_empty() => return,
            Err(CountsUnavailable) => tally.notes[Note::TailUnknown as usize] = 1,
        }
        let second = second.unwrap_or_default().max(header.start.secs());
        let mut rows = Rows::new();
        rows.add(second, &tally);
        findings.rest.push((u64::MAX, rows));
    }

    /// True if an index must be rebuilt although its checksums match the file, because verification found a
    /// contradiction between index and packets. False for an index that a repair has already rebuilt, and for a file
    /// without packets.
    fn must_rebuild(&self, sealed: &VerifiedIndex, at: &Path) -> bool {
        self.careful && *at != self.path(&self.called.recovered_index()) && sealed.bytes() > self.layout.file_header()
    }

    /// Returns a sealed index whose checksums match all blocks, if there is one. An earlier recovery or the recorder
    /// wrote it, and it may already be published.
    fn whole_index(&mut self, file: FileId) -> io::Result<Option<(VerifiedIndex, PathBuf)>> {
        let mut candidates = vec![self.path(&self.called.recovered_index()), self.path(&self.called.sealed_index())];
        candidates.extend(self.orphans()?);
        for path in candidates {
            let Some(verified) = VerifiedIndex::read(&mut self.volume.device, &path)?.filter(|v| v.is_intact) else {
                continue;
            };
            self.recover_head(file, &verified)?;
            if verified.matches(&mut Window::new(&mut self.volume.device, file, u64::MAX)?)? {
                return Ok(Some((verified, path)));
            }
        }
        Ok(None)
    }

    /// If only the file header is damaged, restores the header with which the first block matches its checksum.
    fn recover_head(&mut self, file: FileId, verified: &VerifiedIndex) -> io::Result<()> {
        if self.layout.file_header() == 0 {
            return Ok(());
        }
        match verified.head(&mut Window::new(&mut self.volume.device, file, u64::MAX)?)? {
            Some(head) => {
                self.volume.device.put(file, 0, &head)?;
                self.volume.sync(file)
            }
            None => Ok(()),
        }
    }

    /// Paths of the published indexes with the start time of this file that have no packet file.
    fn orphans(&mut self) -> io::Result<Vec<PathBuf>> {
        let names = self.volume.names(self.directory)?;
        let mut found = Vec::new();
        for number in 0.. {
            let called = self.called.numbered(number);
            let packets = store::names::PACKETS.iter().any(|e| names.contains(&format!("{}.{e}", called.stem)));
            match (names.contains(&called.index()), packets) {
                (true, false) => found.push(self.path(&called.index())),
                (false, false) if number > self.called.number() => break,
                _ => {}
            }
        }
        Ok(found)
    }

    /// Returns a published index of this file whose checksums do not match all blocks, if there is one. Recovery
    /// prefers the published index to a growing index, because the published index covers more packets.
    fn half_published(&mut self, growing: Option<&VerifiedIndex>) -> io::Result<Option<VerifiedIndex>> {
        for path in self.orphans()? {
            let Some(verified) = VerifiedIndex::read(&mut self.volume.device, &path)? else { continue };
            let same = growing.is_none_or(|g| same_file(&g.header, &verified.header));
            if same && store::names::queue_of(&self.called.stem) == verified.header.queue {
                return Ok(Some(verified));
            }
        }
        Ok(None)
    }

    /// Removes the temporary files of an earlier recovery.
    fn clear(&mut self) -> io::Result<()> {
        for name in [self.called.recovered_index(), self.called.recovered_packets(), self.called.recovered_damaged()] {
            self.volume.remove(&self.path(&name))?;
        }
        Ok(())
    }

    fn remove(&mut self, from: &Path, index: &str) -> io::Result<Outcome> {
        // The packet file is removed first: as long as it exists, its index must show that it contains no packets.
        self.volume.remove(from)?;
        self.volume.remove(&self.path(index))?;
        self.volume.remove(&self.path(&self.called.sealed_index()))?;
        Ok(Outcome::Removed)
    }

    /// Truncates a file that is valid up to offset `len`, and publishes it.
    fn cut(
        &mut self,
        from: &Path,
        file: FileId,
        index: &str,
        header: &Header,
        findings: &Findings,
        len: u64,
    ) -> io::Result<Outcome> {
        let mut window = Window::new(&mut self.volume.device, file, len)?;
        let head = window.get(0, self.layout.file_header() as usize)?.to_vec();
        let rebuilt = rebuild(&mut window, self.layout, header, findings, &head, |_, _, _| Ok(()))?;
        if !findings.damaged.is_empty() || self.careful && !self.is_blank_behind(file, len)? {
            self.keep_aside(file, len)?;
        }
        let at = self.path(&self.called.recovered_index());
        self.write_index(&at, header, rebuilt)?;
        self.volume.sync_directory(self.directory)?;
        let verified = self.read_back(&at)?;
        self.publish(from, file, &verified, &at, index)
    }

    /// For a file with damage in the middle: copies its valid parts to a new file, and renames the original.
    fn copy(
        &mut self,
        from: &Path,
        file: FileId,
        index: &str,
        header: &Header,
        findings: &Findings,
    ) -> io::Result<Outcome> {
        let repaired = self.path(&self.called.recovered_packets());
        let copy = self.volume.device.create(&repaired, Content::Index)?;
        let copied =
            self.volume.device.copy_permissions(file, copy).and_then(|()| self.copy_into(file, copy, header, findings));
        let rebuilt = copied.and_then(|rebuilt| self.volume.sync(copy).map(|()| rebuilt));
        self.volume.device.close(copy);
        let rebuilt = rebuilt?;
        let at = self.path(&self.called.recovered_index());
        self.write_index(&at, header, rebuilt)?;
        self.volume.sync_directory(self.directory)?;
        // If recovery is killed after this rename, the original is missing, and the next recovery continues with the
        // copy.
        let aside = match findings.damaged.is_empty() {
            true => {
                self.volume.device.remove(from)?;
                None
            }
            false => Some(self.set_aside(from)?),
        };
        self.volume.sync_directory(self.directory)?;
        let outcome = self.finish_copy(index)?;
        Ok(match outcome {
            Outcome::Published { path, tally, lost, .. } => Outcome::Published { path, tally, lost, aside },
            other => other,
        })
    }

    fn copy_into(&mut self, file: FileId, copy: FileId, header: &Header, findings: &Findings) -> io::Result<Rebuilt> {
        let layout = self.layout;
        let mut window = Window::new(&mut self.volume.device, file, u64::MAX)?;
        let head = head(layout, header, findings, &mut window)?;
        let mut buffer = Vec::new();
        let mut done = 0;
        let rebuilt = rebuild(&mut window, layout, header, findings, &head, |device, _, bytes| {
            buffer.extend_from_slice(bytes);
            if buffer.len() >= 1 << 20 {
                device.put(copy, done, &buffer)?;
                done += buffer.len() as u64;
                buffer.clear();
            }
            Ok(())
        })?;
        if !buffer.is_empty() {
            self.volume.device.put(copy, done, &buffer)?;
        }
        Ok(rebuilt)
    }

    /// Publishes a complete copy whose original was already renamed by an interrupted recovery.
    pub fn finish_copy(&mut self, index: &str) -> io::Result<Outcome> {
        let (from, at) = (self.path(&self.called.recovered_packets()), self.path(&self.called.recovered_index()));
        let Some(file) = self.volume.device.take(&from)? else { return Ok(Outcome::Held) };
        let outcome = match self.whole_index(file) {
            Ok(Some((verified, at))) => self.publish(&from, file, &verified, &at, index),
            Ok(None) => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the index {} does not match the copy of its packet file", at.display()),
            )),
            Err(e) => Err(e),
        };
        self.volume.device.close(file);
        outcome
    }

    /// Truncates the packet file to the length in its index, and publishes both.
    fn publish(
        &mut self,
        from: &Path,
        file: FileId,
        verified: &VerifiedIndex,
        at: &Path,
        index: &str,
    ) -> io::Result<Outcome> {
        let len = verified.bytes();
        if self.volume.device.len(file)? != len {
            self.volume.device.truncate(file, len)?;
            self.volume.sync(file)?;
        }
        // The file with the cut-off bytes is renamed before the packet file is published, because after a kill in
        // between no name would show that the two files belong together.
        let aside = self.path(&self.called.recovered_damaged());
        let aside = if self.volume.device.exists(&aside) { Some(self.set_aside(&aside)?) } else { None };
        let (mut at, mut number) = (at.to_owned(), self.called.number());
        let path = loop {
            let called = self.called.numbered(number);
            let (packets, name) = (self.path(&called.packets()), self.path(&called.index()));
            number += 1;
            if self.volume.device.exists(&packets) {
                continue;
            }
            if at != name {
                self.remove_wrong_index(&name, verified)?;
                match self.volume.device.rename(&at, &name) {
                    Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                    other => other?,
                }
                at = name;
            }
            let marker = self.write_marker(&called.stem, verified)?;
            match self.volume.device.rename(from, &packets) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    if marker.is_some() {
                        let root = self.root();
                        out_of_order::remove_marker(&mut self.volume.device, &root, &called.stem, marker)?;
                    }
                }
                other => {
                    other?;
                    break packets;
                }
            }
        };
        self.volume.remove(&self.path(index))?;
        self.volume.remove(&self.path(&self.called.recovered_index()))?;
        self.volume.remove(&self.path(&self.called.sealed_index()))?;
        self.volume.sync_directory(self.directory)?;
        if let Ok(Some(tail)) = self.volume.tail(&verified.header) {
            let tail = tail.clone();
            self.volume.entered.push(tail);
        }
        let mut tally = Tally::default();
        verified.blocks.iter().for_each(|p| tally += &p.rows.total());
        Ok(Outcome::Published { path, tally: Box::new(tally), lost: 0, aside })
    }

    /// Creates an out-of-order marker before the file is published, if the packets are out of order or the recorder had
    /// created a marker.
    fn write_marker(&mut self, stem: &str, verified: &VerifiedIndex) -> io::Result<Option<Span>> {
        let root = self.root();
        let markers = OutOfOrderMarkers::list(&mut self.volume.device, &root)?;
        let was = parse_stem(&self.called.stem).is_some_and(|which| markers.get(which).is_some());
        let Some(span) = verified.marker_range().filter(|_| was || !verified.is_in_order()) else {
            return Ok(None);
        };
        out_of_order::write_marker(&mut self.volume.device, &root, stem, Some(span))?;
        if self.called.stem != stem {
            out_of_order::remove_marker(&mut self.volume.device, &root, &self.called.stem, None)?;
        }
        Ok(Some(span))
    }

    /// The interface directory.
    fn root(&self) -> PathBuf {
        interface_of(self.directory)
    }

    /// Removes a published index of this file if its content is wrong.
    fn remove_wrong_index(&mut self, name: &Path, verified: &VerifiedIndex) -> io::Result<()> {
        match VerifiedIndex::read(&mut self.volume.device, name)? {
            Some(old) if same_file(&old.header, &verified.header) => self.volume.remove(name),
            _ => Ok(()),
        }
    }

    fn is_aside(&mut self) -> bool {
        let aside = self.path(&self.called.recovered_damaged());
        self.volume.device.exists(&aside)
    }

    fn is_blank_behind(&mut self, file: FileId, len: u64) -> io::Result<bool> {
        Window::new(&mut self.volume.device, file, u64::MAX)?.is_blank(len, u64::MAX)
    }

    /// Copies the bytes after `len`, with a file header, to a separate capture file.
    fn keep_aside(&mut self, file: FileId, len: u64) -> io::Result<()> {
        let at = self.path(&self.called.recovered_damaged());
        let copy = self.volume.device.create(&at, Content::Index)?;
        let copied = self.copy_tail(file, len, copy).and_then(|()| self.volume.sync(copy));
        self.volume.device.close(copy);
        copied
    }

    fn copy_tail(&mut self, file: FileId, len: u64, copy: FileId) -> io::Result<()> {
        let mut window = Window::new(&mut self.volume.device, file, u64::MAX)?;
        let head = window.get(0, self.layout.file_header() as usize)?.to_vec();
        window.device().put(copy, 0, &head)?;
        let (mut from, mut to) = (len, head.len() as u64);
        loop {
            let part = window.get(from, 1 << 20)?.to_vec();
            // Trailing zeros are not copied: they are preallocated space that was never written.
            let used = part.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
            if used > 0 {
                window.device().put(copy, to, &part[..used])?;
            }
            if part.is_empty() {
                return Ok(());
            }
            (from, to) = (from + part.len() as u64, to + part.len() as u64);
        }
    }

    /// Renames a file as damaged.
    fn set_aside(&mut self, from: &Path) -> io::Result<PathBuf> {
        for number in 0.. {
            let to = self.path(&self.called.damaged(number));
            match self.volume.device.rename(from, &to) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                other => return other.map(|()| to),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    fn write_index(&mut self, at: &Path, header: &Header, rebuilt: Rebuilt) -> io::Result<()> {
        let bytes = rebuilt.encode(header)?;
        let file = self.volume.device.create(at, Content::Index)?;
        let written = self.volume.device.put(file, 0, &bytes).and_then(|()| self.volume.sync(file));
        self.volume.device.close(file);
        written
    }

    fn read_back(&mut self, at: &Path) -> io::Result<VerifiedIndex> {
        VerifiedIndex::read(&mut self.volume.device, at)?.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{}: the index was written, but is not valid when it is read", at.display()),
            )
        })
    }

    /// Derives the header of an index from the packet file alone, if no index exists.
    fn guess_header(&mut self, file: FileId) -> io::Result<Header> {
        let interface = self.volume.interface();
        let mut window = Window::new(&mut self.volume.device, file, u64::MAX)?;
        let first = self.layout.next(&mut window, self.layout.file_header(), Timestamp::ZERO)?;
        let head = window.get(0, self.layout.file_header() as usize)?;
        let word = |at: usize| head.get(at..at + 4).map_or(0, |w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]));
        Ok(Header {
            interface,
            queue: store::names::queue_of(&self.called.stem),
            link_type: if self.layout == Layout::Raw { 1 } else { word(20) },
            snaplen: word(16),
            timestamp_source: String::new(),
            timestamp_error: 0,
            filter: String::new(),
            first_pos: index::UNKNOWN_POS,
            content: index::Content::Recorded,
            start: self.called.start().or(first.map(|r| r.ts)).unwrap_or_default(),
        })
    }
}

/// True if two indexes describe the same packet file.
pub(crate) fn same_file(a: &Header, b: &Header) -> bool {
    (a.first_pos, a.start, a.queue, &a.interface) == (b.first_pos, b.start, b.queue, &b.interface)
}

/// The file header of the packet file; the original header if the header in the file is damaged.
fn head<D: Device>(
    layout: Layout,
    header: &Header,
    findings: &Findings,
    window: &mut Window<'_, D>,
) -> io::Result<Vec<u8>> {
    let len = layout.file_header();
    if len == 0 || findings.kept.first().is_some_and(|kept| kept.start == 0) {
        return Ok(window.get(0, len as usize)?.to_vec());
    }
    Ok(pcap::classic::file_header(pcap::classic::Resolution::Nanos, header.link_type as u16).to_vec())
}
