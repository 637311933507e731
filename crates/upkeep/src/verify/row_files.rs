//! Finds the files of flow records and series rows (`docs/reference/parquet.md`) by their names. This module checks
//! only the begin and the end of a file; the crate that writes the files checks their content.
//!
//! ```text
//! IFACE/.<start>.flows.partial                          a journal, locked while it is written
//! IFACE/YYYY/MM/DD/HH/.<start>.flows.parquet.partial    a Parquet file that is being written from a journal
//! IFACE/YYYY/MM/DD/HH/<start>.flows.parquet             PAR1 | columns | footer | length of the footer (u32) | PAR1
//! IFACE/YYYY/MM/DD/HH/<start>.day.flows.parquet         a Parquet file whose rows cover more than an hour
//! IFACE/<start>.flows.damaged                           a journal that is damaged, partly or completely
//! ```

use super::{Finding, FindingKind, Totals, Verify};
use crate::recovery::DAMAGED;
use crate::recovery::file_names::{interface_of, place_elsewhere};
use base::Timestamp;
use std::io;
use std::path::Path;
use store::catalogue::parse_stem;
use store::claim::CLAIM;
use store::device::{Device, FileId};
use store::names::PARTIAL;

/// The words in the names of files and journals, and for each word the content of the file.
const HOLDS: [(&str, &str); 2] = [("flows", "flow records"), ("series", "one-second rows")];

/// Ending of sealed files.
const SEALED: &str = "parquet";

/// Suffix after the timestamp of a file that covers more than an hour.
const FAR: &str = ".day";

/// The magic bytes at the begin and at the end of a Parquet file, and the minimum number of bytes between them: an
/// empty footer and the length of the footer.
const MAGIC: [u8; 4] = *b"PAR1";
const MIN: u64 = 12;

/// The kinds of files, recognised by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowFile {
    /// A sealed file, whose flow records or series rows begin at this time.
    Sealed(Timestamp),
    /// A hidden file that is written while a journal is being sealed.
    Sealing,
    /// A growing journal.
    Journal,
    /// A damaged journal that was renamed.
    Aside,
}

impl RowFile {
    /// The kind of the file with this name, and its content in words; `None` for any other name.
    pub fn named(name: &str) -> Option<(Self, &'static str)> {
        let (shown, hidden) = match name.strip_prefix('.') {
            Some(inner) => (inner.strip_suffix(PARTIAL)?.strip_suffix('.')?, true),
            None => (name, false),
        };
        // The name is not split at its first dot, because the timestamp contains a dot too.
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
    /// Verifies a file of flow records or series rows; there is no finding if the file was removed after the listing.
    pub(super) fn row_file(&mut self, path: &Path, data_type: RowFile, holds: &str) {
        let directory = path.parent().unwrap_or(Path::new("."));
        let interface = interface_of(directory);
        match data_type {
            RowFile::Sealed(start) => {
                match self.frame(path) {
                    Err(e) if e.kind() == io::ErrorKind::NotFound => return,
                    Err(e) => self.unreadable(path, &e),
                    Ok(Some(what)) => {
                        self.find(path, FindingKind::Frame, None, format!("{what}: its {holds} cannot be read"))
                    }
                    Ok(None) => {
                        if place_elsewhere(path, start).is_some() {
                            let text = format!(
                                "the file is in another hour directory than its name says, so queries for an interval \
                                 may not find its {holds}"
                            );
                            self.find(path, FindingKind::Misplaced, None, text);
                        }
                        match self.read.as_mut().map_or(Ok(None), |read| read(path)) {
                            Err(e) if e.kind() == io::ErrorKind::NotFound => return,
                            Err(e) => self.unreadable(path, &e),
                            Ok(Some(what)) => {
                                self.find(path, FindingKind::RowFile, None, format!("{what}: its {holds} are damaged"))
                            }
                            Ok(None) => {}
                        }
                    }
                }
                self.totals.row_files += 1;
            }
            RowFile::Journal if self.device.is_held(path) => {
                self.totals.row_files += 1;
                self.journal(path, holds);
            }
            // A process that seals a journal does not lock the journal; it has locked the claim of the interface.
            RowFile::Sealing if self.device.is_held(&interface.join(CLAIM)) => {}
            RowFile::Journal | RowFile::Sealing => {
                if self.device.exists(path) {
                    self.find(
                        path,
                        FindingKind::Leftover,
                        None,
                        format!("{holds} that a killed recorder left, or a recorder that could not write at its end"),
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
                format!("a damaged journal; its readable {holds}, if any, are sealed"),
            ),
        }
    }

    /// Reports damage in a journal. The last batch may be incomplete.
    fn journal(&mut self, path: &Path, holds: &str) {
        match self.check_journal.as_mut().map_or(Ok(None), |check| check(path)) {
            Err(e) => self.unreadable(path, &e),
            Ok(Some((byte, what))) => {
                self.find(path, FindingKind::RowFile, byte, format!("a journal of {holds}: {what}"))
            }
            Ok(None) => {}
        }
    }

    /// Describes damage at begin or end of a sealed file.
    fn frame(&mut self, path: &Path) -> io::Result<Option<String>> {
        let file = self.device.open(path)?;
        let wrong = self.ends(file);
        self.device.close(file);
        wrong
    }

    fn ends(&mut self, file: FileId) -> io::Result<Option<String>> {
        let len = self.device.len(file)?;
        if len < MIN {
            return Ok(Some(format!("a file of {len} bytes is too short for Parquet")));
        }
        let (mut head, mut tail) = ([0; 4], [0; 8]);
        let whole = self.device.read(file, 0, &mut head)? == head.len()
            && self.device.read(file, len - tail.len() as u64, &mut tail)? == tail.len();
        if !whole || head != MAGIC {
            return Ok(Some("the file does not begin with the magic number of Parquet".to_owned()));
        }
        if tail[4..] != MAGIC {
            return Ok(Some("the file does not end with the magic number of Parquet".to_owned()));
        }
        let footer = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
        Ok((footer > len - MIN).then(|| format!("the footer would have {footer} bytes, but the file has {len} bytes")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_journals_are_recognised_by_name() {
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
