//! A folder of a store: what each name in it is, and what lies between the files of one queue.

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
    /// Everything below it, oldest first, and what lies between.
    pub(super) fn folder(&mut self, root: &Path) {
        // A stretch of time has one folder for each interface; files are neighbours within that.
        let mut placed: BTreeMap<(PathBuf, u16), Vec<FileInterval>> = BTreeMap::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            let list = match self.device.list(&folder) {
                Ok(list) => list,
                Err(e) => {
                    self.unreadable(&folder, &e);
                    continue;
                }
            };
            let names: BTreeSet<&str> = list.iter().filter(|(_, is)| !is).map(|(name, _)| name.as_str()).collect();
            let mut inner: Vec<PathBuf> = list.iter().filter(|(_, is)| *is).map(|(n, _)| folder.join(n)).collect();
            inner.sort_unstable_by(|a, b| b.cmp(a));
            for name in &names {
                if let Some(file) = self.named(&folder, name, &names) {
                    placed.entry((interface_of(&folder), file.queue)).or_default().push(file);
                }
            }
            // Notes of files are no files of the store by themselves.
            inner.retain(|folder| !folder.ends_with(store::names::OUT_OF_ORDER));
            folders.extend(inner);
        }
        for ((interface, _), files) in &mut placed {
            files.sort_by(|a, b| (a.start, &a.path).cmp(&(b.start, &b.path)));
            let in_order = self.in_order(interface, files);
            self.missing(interface, files, &in_order);
            self.gaps(files);
        }
    }

    /// Tells the files of a queue that are not in order and have no note; of each whether it is in order. An open file gets its note
    /// as it goes on.
    fn in_order(&mut self, interface: &Path, files: &[FileInterval]) -> Vec<bool> {
        let noted = match OutOfOrderMarkers::list(&mut self.device, interface) {
            Ok(noted) => noted,
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
            if noted.get(which).is_some() {
                *in_order = false;
                continue;
            }
            let Some((first, last)) = file.span else { continue };
            let text = if first < file.start || !file.straight {
                format!("its packets are from {first} to {last}, and not in order")
            } else if file.start < latest {
                format!("it begins before one before it ends, at {latest}")
            } else {
                latest = last;
                continue;
            };
            *in_order = false;
            // Retention may have taken it away since it was checked.
            if self.device.exists(&file.path) {
                self.find(&file.path, FindingKind::Unmarked, None, text);
            }
        }
        in_order
    }

    /// Asks of each two neighbours by name that are in order whether packets lay between them that are gone. Names say nothing of the
    /// stream where one of the two is not in order, or where such a file may be the neighbour of one of them there: how many
    /// pairs are left for that is told.
    fn missing(&mut self, interface: &Path, files: &[FileInterval], in_order: &[bool]) {
        let astray: Vec<(u64, u64)> =
            files.iter().zip(in_order).filter(|(_, in_order)| !**in_order).filter_map(|(f, _)| f.stretch).collect();
        let mut unasked = 0;
        for (pair, in_order) in files.windows(2).zip(in_order.windows(2)) {
            let (Some((_, end)), Some((from, _))) = (pair[0].stretch, pair[1].stretch) else { continue };
            let is_between =
                |&(begin, until): &(u64, u64)| (end..from).contains(&begin) || begin == end || until == from;
            if *in_order != [true, true] || end != from && astray.iter().any(is_between) {
                unasked += 1;
            } else {
                self.between(&pair[0], &pair[1]);
            }
        }
        if unasked > 0 {
            let text = format!(
                "between {unasked} of {} pairs of neighbouring files it was not asked whether packets are missing: their names \
                 do not tell which file follows which",
                files.len() - 1
            );
            self.find(interface, FindingKind::GapUnchecked, None, text);
        }
    }

    /// Under a hold of its folder, for one file at a time, so that retention waits for no more than that.
    fn named(&mut self, folder: &Path, name: &str, names: &BTreeSet<&str>) -> Option<FileInterval> {
        let dated = interface_of(folder) != folder;
        // What cannot be held was removed, and is then not found; or lies where nothing can be held. Only hours are: a keeper
        // locks the folder of the interface for as long as it works there, which may be long where an archive is slow.
        let _hold = dated.then(|| self.device.hold(folder));
        let path = folder.join(name);
        if let Some(called) = FileNames::published(name) {
            // Somebody put it there: no recorder gives such a name, and what a capture of somebody else is like is not
            // what the store is like.
            if dated && called.start().is_none() {
                self.foreign(&path, "a capture that no recorder made; left alone");
                return None;
            }
            self.is_own = true;
            return self.published(folder, &called);
        }
        let Some(called) = FileNames::hidden(name) else {
            self.other(&path, name, dated);
            return None;
        };
        self.is_own = true;
        // In this order: what was not held because it is not there any more is no leftover.
        let held = self.device.is_held(&path);
        if !self.device.exists(&path) {
            // It got its name since the folder was listed, or was listed under both.
            return if names.contains(called.packets().as_str()) { None } else { self.published(folder, &called) };
        }
        if !held {
            self.find(&path, FindingKind::Leftover, None, "was left unfinished by a recorder that died");
            return None;
        }
        self.totals.open += 1;
        let index = Some(folder.join(called.hidden_index())).filter(|index| self.device.exists(index));
        self.check(&path, index.as_deref(), true)
    }

    /// A file that has its name; nothing is wrong if retention was faster.
    fn published(&mut self, folder: &Path, called: &FileNames) -> Option<FileInterval> {
        let path = folder.join(called.packets());
        let beside = [called.index(), format!("{}.{}", called.packets(), store::names::INDEX)];
        let index = beside.iter().map(|index| folder.join(index)).find(|index| self.device.exists(index));
        if !self.device.exists(&path) {
            return None;
        }
        if index.is_none() && called.start().is_some() {
            self.find(&path, FindingKind::NoIndex, None, "has no index beside it");
        }
        self.check(&path, index.as_deref(), false)
    }

    fn other(&mut self, path: &Path, name: &str, dated: bool) {
        let ours = std::mem::replace(&mut self.is_own, true);
        if let Some(stem) = file_names::published_index(name) {
            // The recorder gives the packets their name after the index has its own: the hidden name is asked for first.
            let hidden = store::names::PACKETS.iter().map(|ending| store::names::hidden(stem, ending));
            let named = store::names::PACKETS.iter().map(|ending| format!("{stem}.{ending}"));
            let mut packets = hidden.chain(named).chain([stem.to_owned()]);
            if !packets.any(|name| self.device.exists(&path.with_file_name(name))) && self.device.exists(path) {
                self.find(path, FindingKind::Orphan, None, "an index without its packet file");
            }
        } else if let Some((data_type, holds)) =
            RowFile::named(name).filter(|(data_type, _)| dated != is_in_no_hour(*data_type))
        {
            self.row_file(path, data_type, holds);
        } else if name.ends_with(&format!(".{DAMAGED}")) {
            self.find(
                path,
                FindingKind::SetAside,
                None,
                "kept because something in it is damaged; netgrain repair reads it",
            );
        } else if file_names::prepared(name).is_some() || file_names::is_recovered(name) {
            let is_held = self.device.is_held(path);
            // A prepared file is there before it is locked, so the claim says whether somebody is making it. It is asked before the
            // file is looked for again: who ends removes the file, and lets go of the claim after that.
            let is_made = file_names::prepared(name).is_some() && self.device.is_held(&path.with_file_name(CLAIM));
            if !is_held && !is_made && self.device.exists(path) {
                self.find(path, FindingKind::Leftover, None, "was left by a recorder that died");
            }
        } else if let Some(stem) = file_names::hidden_index(name).or_else(|| file_names::sealed_index(name)) {
            let mut packets = store::names::PACKETS.iter().map(|ending| store::names::hidden(stem, ending));
            let has_packets = packets.any(|name| self.device.exists(&path.with_file_name(name)));
            if !has_packets && !self.device.is_held(path) && self.device.exists(path) {
                self.find(path, FindingKind::Leftover, None, "an index that was left by a recorder that died");
            }
        } else if ![CLAIM, store::names::METER_KEY, store::names::FLOW_LATENESS].contains(&name) {
            let capture = name.ends_with(".pcapng") || name.ends_with(".cap");
            match capture && !dated {
                true => drop(self.check(path, None, false)),
                false => {
                    self.is_own = ours;
                    self.foreign(path, "not a file of the store; left alone");
                }
            }
        }
    }

    /// What lies in the stream between two files of one queue, the later of which follows the earlier: asked of files in order.
    fn between(&mut self, one: &FileInterval, next: &FileInterval) {
        // Retention goes the same way: it may have removed it since it was checked, and others behind it.
        if !self.device.exists(&one.path) {
            return;
        }
        if let (Some((begin, end)), Some((from, _))) = (one.stretch, next.stretch)
            && from > begin
            && from != end
            && !one.cut
        {
            let bytes = from.abs_diff(end);
            let text = match from > end {
                true => {
                    format!("before it {bytes} bytes of packets are missing, between it and {}", one.path.display())
                }
                false => format!("{bytes} bytes of its packets are those of {} too", one.path.display()),
            };
            self.find(&next.path, FindingKind::Missing, None, text);
        }
    }

    /// Seconds of which no file of a queue knows, between the first and the last.
    fn gaps(&mut self, files: &[FileInterval]) {
        let mut placed: Vec<((u64, u64), &FileInterval)> =
            files.iter().filter_map(|file| Some((file.seconds?, file))).collect();
        placed.sort_by_key(|(seconds, _)| *seconds);
        let mut before: Option<(u64, &FileInterval)> = None;
        for ((first, last), file) in placed {
            if let Some((until, one)) = before
                && first > until + 1
                // Retention goes the same way: it may have removed what lay between.
                && self.device.exists(&one.path)
            {
                let at = Timestamp::from_secs_nanos(until + 1, 0);
                let text = format!("nobody watched for {} s from {at}", first - until - 1);
                self.find(&file.path, FindingKind::Gap, None, text);
            }
            if before.is_none_or(|(until, _)| until <= last) {
                before = Some((last, file));
            }
        }
    }
}

/// Whether files of this kind lie in the folder of their interface; elsewhere somebody else put them.
fn is_in_no_hour(data_type: RowFile) -> bool {
    matches!(data_type, RowFile::Journal | RowFile::Aside)
}
