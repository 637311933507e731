//! A folder of a store: what each name in it is, and what lies between the files of one queue.

use super::{Finding, Kind, Placed, Totals, Verify};
use crate::recovery::called::interface_of;
use crate::recovery::{Called, DAMAGED, called};
use base::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use store::device::Device;

impl<D: Device, F: FnMut(&Finding, &Totals)> Verify<D, F> {
    /// Everything below it, oldest first, and what lies between.
    pub(super) fn folder(&mut self, root: &Path) {
        // A stretch of time has one folder for each interface; files are neighbours within that.
        let mut placed: BTreeMap<(PathBuf, u16), Vec<Placed>> = BTreeMap::new();
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
            folders.extend(inner);
        }
        for files in placed.values_mut() {
            files.sort_by(|a, b| (a.start, &a.path).cmp(&(b.start, &b.path)));
            for pair in files.windows(2) {
                self.between(&pair[0], &pair[1]);
            }
        }
    }

    fn named(&mut self, folder: &Path, name: &str, names: &BTreeSet<&str>) -> Option<Placed> {
        let path = folder.join(name);
        if let Some(called) = Called::published(name) {
            let beside = [called.index(), format!("{name}.{}", store::names::INDEX)];
            let index = beside.iter().find(|index| names.contains(index.as_str())).map(|index| folder.join(index));
            if index.is_none() && called.start().is_some() {
                self.find(&path, Kind::NoIndex, None, "has no index beside it");
            }
            return self.check(&path, index.as_deref(), false);
        }
        if let Some(called) = Called::hidden(name) {
            if !self.device.is_held(&path) {
                self.find(&path, Kind::Leftover, None, "was left unfinished by a recorder that died");
                return None;
            }
            self.totals.open += 1;
            let index = called.hidden_index();
            let index = names.contains(index.as_str()).then(|| folder.join(index));
            // It may have got its name, or been sealed, since the folder was listed.
            if !self.device.exists(&path) || index.as_ref().is_some_and(|index| !self.device.exists(index)) {
                return None;
            }
            return self.check(&path, index.as_deref(), true);
        }
        self.other(&path, name, names);
        None
    }

    fn other(&mut self, path: &Path, name: &str, names: &BTreeSet<&str>) {
        if let Some(stem) = called::published_index(name) {
            let packets = |name: &String| names.contains(name.as_str());
            let mut beside = store::names::PACKETS.iter().map(|ending| format!("{stem}.{ending}"));
            if !names.contains(stem) && !beside.any(|p| packets(&p)) && self.device.exists(path) {
                let text = "an index without its packet file";
                self.find(path, Kind::Orphan, None, text);
            }
        } else if name.ends_with(&format!(".{DAMAGED}")) {
            self.find(path, Kind::Aside, None, "kept because something in it is damaged; netgrain repair reads it");
        } else if called::prepared(name).is_some() || called::is_mended(name) {
            if self.device.exists(path) && !self.device.is_held(path) {
                self.find(path, Kind::Leftover, None, "was left by a recorder that died");
            }
        } else if let Some(stem) = called::hidden_index(name).or_else(|| called::sealed_index(name)) {
            let mut endings = store::names::PACKETS.iter();
            let has_packets = endings.any(|e| names.contains(store::names::hidden(stem, e).as_str()));
            if !has_packets && self.device.exists(path) && !self.device.is_held(path) {
                self.find(path, Kind::Leftover, None, "an index that was left by a recorder that died");
            }
        } else if name != store::claim::CLAIM {
            match name.ends_with(".pcapng") || name.ends_with(".cap") {
                true => drop(self.check(path, None, false)),
                false => self.find(path, Kind::Foreign, None, "not a file of the store; left alone"),
            }
        }
    }

    /// What lies between two files of one queue, the later of which follows the earlier.
    fn between(&mut self, one: &Placed, next: &Placed) {
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
            self.find(&next.path, Kind::Missing, None, text);
        }
        if let (Some((_, last)), Some((first, _))) = (one.seconds, next.seconds)
            && first > last + 1
        {
            let at = |second: u64| Timestamp::from_secs_nanos(second, 0).to_string();
            let text = format!("nobody watched for {} s from {}", first - last - 1, at(last + 1));
            self.find(&next.path, Kind::Gap, None, text);
        }
    }
}
