//! Files of flow records and one-second rows beside the packets (`docs/reference/parquet.md`): known by their names, and looked at as
//! far as their frame tells. What is in them the room above reads that writes them.
//!
//! ```text
//! IFACE/.<moment>.flows.partial                          a journal, locked while it is written
//! IFACE/YYYY/MM/DD/HH/.<moment>.flows.parquet.partial    being made of a journal
//! IFACE/YYYY/MM/DD/HH/<moment>.day.flows.parquet         of more than an hour; otherwise as the next
//! IFACE/YYYY/MM/DD/HH/<moment>.flows.parquet             PAR1 | columns | footer | its length u32 | PAR1
//! IFACE/<moment>.flows.damaged                           a journal that is damaged, in parts or as a whole
//! ```

use super::{Finding, FindingKind, Totals, Verify};
use crate::recovery::DAMAGED;
use crate::recovery::file_names::interface_of;
use base::Timestamp;
use std::io;
use std::path::Path;
use store::catalogue::parse_stem;
use store::claim::CLAIM;
use store::device::{Device, FileId};
use store::names::{PARTIAL, hour_folder};

/// What a file or a journal holds, as its name says.
const HOLDS: [(&str, &str); 2] = [("flows", "flow records"), ("series", "one-second rows")];

/// How sealed files end.
const SEALED: &str = "parquet";

/// What stands behind the moment of one that holds more than an hour.
const FAR: &str = ".day";

/// What they begin and end with, and the least that lies between: an empty footer and its length.
const MAGIC: [u8; 4] = *b"PAR1";
const MIN: u64 = 12;

/// A file of this kind, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowFile {
    /// Whole, and of this moment on.
    Sealed(Timestamp),
    /// Hidden, while a journal becomes a sealed file.
    Sealing,
    /// What grows.
    Journal,
    /// Set aside.
    Aside,
}

impl RowFile {
    /// What this name is of, with what it holds in words; `None` for any other name.
    pub fn named(name: &str) -> Option<(Self, &'static str)> {
        let (shown, hidden) = match name.strip_prefix('.') {
            Some(inner) => (inner.strip_suffix(PARTIAL)?.strip_suffix('.')?, true),
            None => (name, false),
        };
        // The moment has a dot as well.
        let stem_and = |ending: &str| shown.strip_suffix(ending)?.strip_suffix('.');
        let (stem, is_sealed, is_damaged) = match (stem_and(SEALED), stem_and(DAMAGED)) {
            (Some(stem), _) => (stem, true, false),
            (_, Some(stem)) => (stem, false, true),
            _ => (shown, false, false),
        };
        let (stem, kind) = stem.rsplit_once('.')?;
        let holds = HOLDS.iter().find(|(name, _)| *name == kind)?.1;
        let stem = if is_sealed && !hidden { stem.strip_suffix(FAR).unwrap_or(stem) } else { stem };
        let (start, 0, _) = parse_stem(stem)? else { return None };
        let data_type = match (is_sealed, is_damaged, hidden) {
            (true, _, false) => Self::Sealed(start),
            (true, _, true) => Self::Sealing,
            (_, true, false) => Self::Aside,
            (false, false, true) => Self::Journal,
            _ => return None,
        };
        Some((data_type, holds))
    }
}

impl<D: Device, F: FnMut(&Finding, &Totals)> Verify<D, F> {
    /// A file of records or rows. What was removed since its folder was listed is not amiss.
    pub(super) fn row_file(&mut self, path: &Path, data_type: RowFile, holds: &str) {
        let folder = path.parent().unwrap_or(Path::new("."));
        let interface = interface_of(folder);
        match data_type {
            RowFile::Sealed(start) => {
                match self.frame(path) {
                    Err(e) if e.kind() == io::ErrorKind::NotFound => return,
                    Err(e) => self.unreadable(path, &e),
                    Ok(Some(what)) => {
                        self.find(path, FindingKind::Frame, None, format!("{what}: its {holds} cannot be read"))
                    }
                    Ok(None) if hour_folder(&interface, start) != folder => {
                        let text = format!("lies in another hour than its name says: nobody finds its {holds} there");
                        self.find(path, FindingKind::RowFile, None, text);
                    }
                    Ok(None) => match self.read.as_mut().map_or(Ok(None), |read| read(path)) {
                        Err(e) if e.kind() == io::ErrorKind::NotFound => return,
                        Err(e) => self.unreadable(path, &e),
                        Ok(Some(what)) => {
                            self.find(path, FindingKind::RowFile, None, format!("{what}: its {holds} are damaged"))
                        }
                        Ok(None) => {}
                    },
                }
                self.totals.row_files += 1;
            }
            RowFile::Journal if self.device.is_held(path) => {
                self.totals.row_files += 1;
                self.journal(path, holds);
            }
            // Nobody locks it: whether it is being made says the claim of whoever would.
            RowFile::Sealing if self.device.is_held(&interface.join(CLAIM)) => {}
            RowFile::Journal | RowFile::Sealing => {
                if self.device.exists(path) {
                    self.find(
                        path,
                        FindingKind::Leftover,
                        None,
                        format!("{holds} that were left by a recorder that died"),
                    );
                    if data_type == RowFile::Journal {
                        self.journal(path, holds);
                    }
                }
            }
            RowFile::Aside => self.find(
                path,
                FindingKind::SetAside,
                None,
                format!(
                    "a damaged journal: {holds} of it that could be read are sealed, unless it could not be read at all"
                ),
            ),
        }
    }

    /// What is wrong within a journal. Its last batch may be half there.
    fn journal(&mut self, path: &Path, holds: &str) {
        match self.judge.as_mut().map_or(Ok(None), |judge| judge(path)) {
            Err(e) => self.unreadable(path, &e),
            Ok(Some((byte, what))) => {
                self.find(path, FindingKind::RowFile, byte, format!("a journal of {holds}: {what}"))
            }
            Ok(None) => {}
        }
    }

    /// What is wrong with the frame of a sealed file.
    fn frame(&mut self, path: &Path) -> io::Result<Option<String>> {
        let file = self.device.open(path)?;
        let wrong = self.ends(file);
        self.device.close(file);
        wrong
    }

    fn ends(&mut self, file: FileId) -> io::Result<Option<String>> {
        let len = self.device.len(file)?;
        if len < MIN {
            return Ok(Some(format!("{len} bytes are no Parquet file")));
        }
        let (mut head, mut tail) = ([0; 4], [0; 8]);
        let whole = self.device.read(file, 0, &mut head)? == head.len()
            && self.device.read(file, len - tail.len() as u64, &mut tail)? == tail.len();
        if !whole || head != MAGIC {
            return Ok(Some("it does not begin as Parquet does".to_owned()));
        }
        if tail[4..] != MAGIC {
            return Ok(Some("it does not end as Parquet does".to_owned()));
        }
        let footer = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
        Ok((footer > len - MIN).then(|| format!("its footer would have {footer} bytes, the file has {len}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_journals_are_known_by_name_and_nothing_else_is() {
        const STEM: &str = "20261122T052736.237075366Z";
        let start = parse_stem(STEM).expect("a name").0;
        for (kind, holds) in HOLDS {
            for (name, data_type) in [
                (format!("{STEM}.{kind}.parquet"), RowFile::Sealed(start)),
                (format!("{STEM}_3.{kind}.parquet"), RowFile::Sealed(start)),
                (format!("{STEM}_3.day.{kind}.parquet"), RowFile::Sealed(start)),
                (format!(".{STEM}.{kind}.parquet.partial"), RowFile::Sealing),
                (format!(".{STEM}.{kind}.partial"), RowFile::Journal),
                (format!("{STEM}.{kind}.damaged"), RowFile::Aside),
            ] {
                assert_eq!(RowFile::named(&name), Some((data_type, holds)), "{name}");
            }
        }
        for name in [
            "flows.parquet",
            ".flows.partial",
            &format!("{STEM}.parquet"),
            &format!("{STEM}.flows"),
            &format!("{STEM}-q1.flows.parquet"),
            &format!("{STEM}.day.flows.damaged"),
            &format!(".{STEM}.day.flows.partial"),
            &format!("{STEM}.other.parquet"),
            &format!(".{STEM}.flows.parquet"),
            &format!(".{STEM}.pcap.partial"),
            &format!("{STEM}.pcap.damaged"),
        ] {
            assert_eq!(RowFile::named(name), None, "{name}");
        }
    }
}
