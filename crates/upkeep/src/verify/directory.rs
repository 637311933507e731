//! Verifies the files in a directory of a store, and the gaps between the files of each queue.

use super::{FileInterval, Finding, FindingKind, RowFile, Totals, Verify};
use crate::recovery::file_names::interface_of;
use crate::recovery::{DAMAGED, FileNames, file_names};
use base::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use store::catalogue::parse_stem;
use store::claim::CLAIM;
use store::device::Device;
use store::out_of_order::OutOfOrderMarkers;

impl<D: Device, F: FnMut(&Finding, &Totals)> Verify<D, F> {
    /// Verifies all files below a directory, the oldest first, and the gaps between files.
    pub(super) fn directory(&mut self, root: &Path) {
        // Gaps are checked between files of the same interface and queue.
        let mut placed: BTreeMap<(PathBuf, u16), Vec<FileInterval>> = BTreeMap::new();
        let mut directories = vec![root.to_owned()];
        while let Some(directory) = directories.pop() {
            let list = match self.device.list(&directory) {
                Ok(list) => list,
                Err(e) => {
                    self.unreadable(&directory, &e);
                    continue;
                }
            };
            let names: BTreeSet<&str> = list.iter().filter(|(_, is)| !is).map(|(name, _)| name.as_str()).collect();
            let mut inner: Vec<PathBuf> = list.iter().filter(|(_, is)| *is).map(|(n, _)| directory.join(n)).collect();
            inner.sort_unstable_by(|a, b| b.cmp(a));
            for name in &names {
                if let Some(file) = self.named(&directory, name, &names) {
                    placed.entry((interface_of(&directory), file.queue)).or_default().push(file);
                }
            }
            // Out-of-order markers are not packet files.
            inner.retain(|directory| !directory.ends_with(store::names::OUT_OF_ORDER));
            directories.extend(inner);
        }
        for ((interface, _), files) in &mut placed {
            files.sort_by(|a, b| (a.start, &a.path).cmp(&(b.start, &b.path)));
            let in_order = self.in_order(interface, files);
            self.missing(interface, files, &in_order);
            self.gaps(files);
        }
    }

    /// Reports the files of a queue that are out of order and have no out-of-order marker. Returns for each file
    /// whether it is in order. A growing file gets its marker while the recorder writes it.
    fn in_order(&mut self, interface: &Path, files: &[FileInterval]) -> Vec<bool> {
        let markers = match OutOfOrderMarkers::list(&mut self.device, interface) {
            Ok(markers) => markers,
            Err(e) => {
                self.unreadable(&interface.join(store::names::OUT_OF_ORDER), &e);
                return vec![false; files.len()];
            }
        };
        let mut latest = Timestamp::ZERO;
        let mut in_order = vec![true; files.len()];
        for (file, in_order) in files.iter().zip(&mut in_order) {
            let which = file.path.file_stem().and_then(|stem| parse_stem(stem.to_str()?));
            let Some(which) = which else { continue };
            if markers.get(which).is_some() {
                *in_order = false;
                continue;
            }
            let Some((first, last)) = file.span else { continue };
            let text = if first < file.start || !file.is_in_order {
                format!("its packets are from {first} to {last} and out of order")
            } else if file.start < latest {
                format!("the file begins before an earlier file ends, at {latest}")
            } else {
                latest = last;
                continue;
            };
            *in_order = false;
            // Retention may have removed the file since it was checked.
            if self.device.exists(&file.path) {
                self.find(&file.path, FindingKind::Unmarked, None, text);
            }
        }
        in_order
    }

    /// Checks for each pair of neighbouring files whether packets between them are missing. If one of the two files is
    /// out of order, or if an out-of-order file may be between them in the stream, the names do not show the order of
    /// the files in the stream. Such pairs are not checked; they are counted, and their number is reported.
    fn missing(&mut self, interface: &Path, files: &[FileInterval], in_order: &[bool]) {
        let out_of_order: Vec<(u64, u64)> = files
            .iter()
            .zip(in_order)
            .filter(|(_, in_order)| !**in_order)
            .filter_map(|(f, _)| f.stream_range)
            .collect();
        let mut unchecked = 0;
        for (pair, in_order) in files.windows(2).zip(in_order.windows(2)) {
            let (Some((_, end)), Some((from, _))) = (pair[0].stream_range, pair[1].stream_range) else { continue };
            let is_between =
                |&(begin, until): &(u64, u64)| (end..from).contains(&begin) || begin == end || until == from;
            if *in_order != [true, true] || end != from && out_of_order.iter().any(is_between) {
                unchecked += 1;
            } else {
                self.between(&pair[0], &pair[1]);
            }
        }
        if unchecked > 0 {
            let text = format!(
                "{unchecked} of {} pairs of neighbouring files were not checked for missing packets between them: \
                 their names do not show which file follows which",
                files.len() - 1
            );
            self.find(interface, FindingKind::GapUnchecked, None, text);
        }
    }

    /// Verifies the file with this name. The directory is held only while this file is verified, so that retention does
    /// not wait longer.
    fn named(&mut self, directory: &Path, name: &str, names: &BTreeSet<&str>) -> Option<FileInterval> {
        let dated = interface_of(directory) != directory;
        // An error of the hold is ignored: either the directory was removed, and then the file is not found either, or
        // the file system has no locks. Only hour directories are held, because a retention worker locks the interface
        // directory while it runs, which may take long with a slow archive.
        let _hold = dated.then(|| self.device.hold(directory));
        let path = directory.join(name);
        if let Some(called) = FileNames::published(name) {
            // A recorder does not create such names, so the file is foreign, and its state does not affect the result
            // for the store.
            if dated && called.start().is_none() {
                self.foreign(&path, "a foreign capture; ignored");
                return None;
            }
            self.is_own = true;
            self.check_place(&path);
            return self.published(directory, &called);
        }
        let Some(called) = FileNames::hidden(name) else {
            self.other(&path, name, dated);
            return None;
        };
        if dated && called.start().is_none() {
            self.foreign(&path, "not a file of the store; ignored");
            return None;
        }
        self.is_own = true;
        // The lock is tested before the existence of the file. If the file was removed after the listing, it is not
        // locked, and the second test shows that it is no leftover.
        let held = self.device.is_held(&path);
        if !self.device.exists(&path) {
            // The file was published after the listing, or the listing contains both names; it is verified under its
            // published name.
            return if names.contains(called.packets().as_str()) { None } else { self.published(directory, &called) };
        }
        if !held {
            self.totals.unfinished += 1;
            let text = "a killed recorder left this file unfinished, or a recorder that could not write at its end";
            self.find(&path, FindingKind::Leftover, None, text);
            return None;
        }
        self.totals.open += 1;
        let index = Some(directory.join(called.hidden_index())).filter(|index| self.device.exists(index));
        self.check(&path, index.as_deref(), true)
    }

    /// Verifies a published file; no finding if retention has removed the file.
    fn published(&mut self, directory: &Path, called: &FileNames) -> Option<FileInterval> {
        let path = directory.join(called.packets());
        let beside = [called.index(), format!("{}.{}", called.packets(), store::names::INDEX)];
        let index = beside.iter().map(|index| directory.join(index)).find(|index| self.device.exists(index));
        if !self.device.exists(&path) {
            return None;
        }
        if index.is_none() && called.start().is_some() {
            self.find(&path, FindingKind::NoIndex, None, "the file has no index");
        }
        self.check(&path, index.as_deref(), false)
    }

    fn other(&mut self, path: &Path, name: &str, dated: bool) {
        let ours = std::mem::replace(&mut self.is_own, true);
        if let Some(stem) = file_names::published_index(name) {
            // The recorder publishes the index before the packet file, so the hidden name is checked first.
            let hidden = store::names::PACKETS.iter().map(|ending| store::names::hidden(stem, ending));
            let named = store::names::PACKETS.iter().map(|ending| format!("{stem}.{ending}"));
            let mut packets = hidden.chain(named).chain([stem.to_owned()]);
            if !packets.any(|name| self.device.exists(&path.with_file_name(name))) && self.device.exists(path) {
                match dated && !file_names::is_stem_of_store(stem) {
                    true => {
                        self.is_own = ours;
                        self.foreign(path, "not a file of the store; ignored");
                    }
                    false => self.find(path, FindingKind::Orphan, None, "an index without its packet file"),
                }
            }
        } else if let Some((data_type, holds)) =
            RowFile::named(name).filter(|(data_type, _)| dated != is_in_no_hour(*data_type))
        {
            self.row_file(path, data_type, holds);
        } else if name.ends_with(&format!(".{DAMAGED}")) {
            self.find(path, FindingKind::SetAside, None, kept_original(name));
        } else if file_names::prepared(name).is_some() || file_names::is_recovered(name) {
            let is_held = self.device.is_held(path);
            // A prepared file exists before it is locked, so the claim shows whether a recorder is preparing it. The
            // claim is tested before the existence of the file, because at its end a recorder removes the file first
            // and releases the claim afterwards.
            let is_made = file_names::prepared(name).is_some() && self.device.is_held(&path.with_file_name(CLAIM));
            if !is_held && !is_made && self.device.exists(path) {
                self.totals.unfinished += 1;
                let text = "a killed recorder left this file, or a recorder that could not write at its end";
                self.find(path, FindingKind::Leftover, None, text);
            }
        } else if let Some(stem) = file_names::hidden_index(name).or_else(|| file_names::sealed_index(name)) {
            let mut packets = store::names::PACKETS.iter().map(|ending| store::names::hidden(stem, ending));
            let has_packets = packets.any(|name| self.device.exists(&path.with_file_name(name)));
            if !has_packets && !self.device.is_held(path) && self.device.exists(path) {
                self.totals.unfinished += 1;
                let text = "a killed recorder left this index, or a recorder that could not write at its end";
                self.find(path, FindingKind::Leftover, None, text);
            }
        } else if ![CLAIM, store::names::METER_KEY, store::names::FLOW_LATENESS].contains(&name) {
            let capture = name.ends_with(".pcapng") || name.ends_with(".cap");
            match capture && !dated {
                true => drop(self.check(path, None, false)),
                false => {
                    self.is_own = ours;
                    self.foreign(path, "not a file of the store; ignored");
                }
            }
        }
    }

    /// Compares the stream position at which a file ends with the position at which the next file of the stream begins.
    /// The packets of both files are in order of time.
    fn between(&mut self, one: &FileInterval, next: &FileInterval) {
        // Retention removes files in the same order as this loop. So after this file was verified, retention may have
        // removed it and the files after it.
        if !self.device.exists(&one.path) {
            return;
        }
        if let (Some((begin, end)), Some((from, _))) = (one.stream_range, next.stream_range)
            && from > begin
            && from != end
            && !one.cut
        {
            let bytes = from.abs_diff(end);
            let text = match from > end {
                true => {
                    format!("{bytes} bytes of packets are missing between {} and this file", one.path.display())
                }
                false => format!("{bytes} bytes of packets of this file are also in {}", one.path.display()),
            };
            self.find(&next.path, FindingKind::Missing, None, text);
        }
    }

    /// Reports seconds without ledger row between the first and last second of a queue.
    fn gaps(&mut self, files: &[FileInterval]) {
        let mut placed: Vec<((u64, u64), &FileInterval)> =
            files.iter().filter_map(|file| Some((file.seconds?, file))).collect();
        placed.sort_by_key(|(seconds, _)| *seconds);
        let mut before: Option<(u64, &FileInterval)> = None;
        for ((first, last), file) in placed {
            if let Some((until, one)) = before
                && first > until + 1
                // No gap is reported if the older file no longer exists: retention removes older files first, and may
                // also have removed files between the older and the newer file.
                && self.device.exists(&one.path)
            {
                let at = Timestamp::from_secs_nanos(until + 1, 0);
                let text = format!("no recorder ran for {} s from {at}", first - until - 1);
                self.find(&file.path, FindingKind::Gap, None, text);
            }
            if before.is_none_or(|(until, _)| until <= last) {
                before = Some((last, file));
            }
        }
    }
}

/// Describes a file that repair has renamed with the ending `damaged`.
fn kept_original(name: &str) -> &'static str {
    let original = name.strip_suffix(&format!(".{DAMAGED}")).unwrap_or(name);
    // Further originals of the same name have a number: `NAME_1.damaged`.
    let original =
        original.rsplit_once('_').filter(|(_, n)| n.bytes().all(|b| b.is_ascii_digit())).map_or(original, |(o, _)| o);
    match original.rsplit_once('.').map_or("", |(_, ending)| ending) {
        store::names::INDEX => "a damaged index that was kept; repair has made another index from the packets",
        "parquet" => "a damaged file of flow records or rows that was kept; netgrain repair cannot read it",
        _ => "a damaged original that was kept; netgrain repair saves its complete packets in another file",
    }
}

/// True if files of this kind belong in the interface directory. A file of such a kind in another directory is foreign.
fn is_in_no_hour(data_type: RowFile) -> bool {
    matches!(data_type, RowFile::Journal | RowFile::Aside)
}
