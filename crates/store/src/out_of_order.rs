//! Markers for the out-of-order files of an interface. With them, queries find files with packets outside of the time
//! range that the file names imply.
//!
//! The name of a packet file gives the time at which the file begins. For live recording, this time is enough for
//! queries: each file of a queue begins no earlier than the previous file ends, and contains no packet that is earlier
//! than the begin of the file. The replay of captures in another order, or a clock that is set back, creates files that
//! break this rule. Each such file has a marker. (If the clock was far ahead and was then corrected, the files recorded
//! before the correction get the markers, and not the files recorded after it.) The invariant is that *all files
//! without a marker are in order*: queries find them by their names alone, and a store without out-of-order files has
//! no markers and no additional cost.
//!
//! A marker is an empty file in the directory [`names::OUT_OF_ORDER`] of the interface; its name contains all its data:
//! ```text
//! STEM                the file is being written, or its recorder died: its time range is unknown, read the file
//! STEM=FIRST-LAST     times of its earliest and latest packet; the packets are in order of time
//! STEM~FIRST-LAST     times of its earliest and latest packet; the packets are out of order
//! ```
//! The marker is written before the packet file is published, so a reader that finds the packet file also finds its
//! marker. Markers are only created and renamed, never appended or rewritten. If a new recording requires that older
//! files count as out-of-order files, their markers are written before that recording begins. A marker without a packet
//! file is ignored.

use crate::catalogue::parse_stem;
use crate::device::{Content, Device};
use crate::names;
use base::Timestamp;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Identity of a packet file: start time, queue, and copy number.
pub type FileIdentity = (Timestamp, u16, u32);

/// The time range of an out-of-order file, from its marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The timestamp of the earliest packet.
    pub first: Timestamp,
    /// The timestamp of the latest packet.
    pub last: Timestamp,
    /// True if a packet of the file is earlier than a packet that precedes it in the file.
    pub is_out_of_order: bool,
}

impl Span {
    /// The time range of a file that is not yet sealed: any time.
    pub const UNKNOWN: Self = Self { first: Timestamp::ZERO, last: Timestamp::MAX, is_out_of_order: true };

    /// The time range of a file whose packets are between these two timestamps, and not in order of time.
    pub const fn out_of_order((first, last): (Timestamp, Timestamp)) -> Self {
        Self { first, last, is_out_of_order: true }
    }

    /// True if the file may contain packets of this interval.
    pub fn overlaps(&self, from: Timestamp, to: Timestamp) -> bool {
        self.first <= to && from <= self.last
    }

    fn with(self, other: Self) -> Self {
        Self {
            first: self.first.min(other.first),
            last: self.last.max(other.last),
            is_out_of_order: self.is_out_of_order || other.is_out_of_order,
        }
    }
}

/// All markers of an interface: for each out-of-order file, its time range and its name without ending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutOfOrderMarkers(BTreeMap<FileIdentity, (Span, String)>);

impl OutOfOrderMarkers {
    /// Reads the markers in the directory of an interface; the result is empty if there are none.
    ///
    /// # Errors
    /// Any error that the file system returns.
    pub fn read(interface_directory: &Path) -> io::Result<Self> {
        let entries = match sys::nofollow::list(&interface_directory.join(names::OUT_OF_ORDER)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            other => other?,
        };
        let all: Vec<String> = entries.into_iter().filter_map(|(name, _)| name.into_string().ok()).collect();
        Ok(Self::of(all.iter().map(String::as_str)))
    }

    /// Like [`Self::read`], through a device.
    ///
    /// # Errors
    /// Any error that the device returns.
    pub fn list<D: Device>(device: &mut D, interface_directory: &Path) -> io::Result<Self> {
        match device.list(&interface_directory.join(names::OUT_OF_ORDER)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            other => Ok(Self::of(other?.iter().map(|(name, _)| name.as_str()))),
        }
    }

    /// Parses these names of markers. If a file has two markers, they are combined. Names that are not names of markers
    /// are ignored.
    pub fn of<'a>(markers: impl Iterator<Item = &'a str>) -> Self {
        let mut all: BTreeMap<FileIdentity, (Option<Span>, String)> = BTreeMap::new();
        for (which, stem, span) in markers.filter_map(parse) {
            let known = &mut all.entry(which).or_insert_with(|| (None, stem.to_owned())).0;
            // A marker with a time range replaces the marker without a time range, which was written before the file
            // was sealed.
            *known = match (*known, span) {
                (Some(a), Some(b)) => Some(a.with(b)),
                (a, b) => a.or(b),
            };
        }
        let known = |(span, stem): (Option<Span>, String)| (span.unwrap_or(Span::UNKNOWN), stem);
        Self(all.into_iter().map(|(which, found)| (which, known(found))).collect())
    }

    /// True if there are no markers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The time range in the marker of this file; `None` if the file has no marker.
    pub fn get(&self, which: FileIdentity) -> Option<Span> {
        self.0.get(&which).map(|(span, _)| *span)
    }

    /// All packet files with a marker: the identity of the file, the time range from its marker, and its name without
    /// ending.
    pub fn iter(&self) -> impl Iterator<Item = (FileIdentity, Span, &str)> {
        self.0.iter().map(|(which, (span, stem))| (*which, *span, stem.as_str()))
    }
}

/// Writes the marker of an out-of-order file: without a time range when the file is begun, and with a time range when
/// the file is sealed; then the marker without a time range is removed. The marker needs no sync: it is created before
/// the packet file is renamed, and the journal of the file system preserves this order after a power failure.
///
/// # Errors
/// Any error that the device returns.
pub fn write_marker<D: Device>(
    device: &mut D,
    interface_directory: &Path,
    stem: &str,
    span: Option<Span>,
) -> io::Result<()> {
    let directory = interface_directory.join(names::OUT_OF_ORDER);
    device.create_directory(&directory)?;
    match device.create(&directory.join(text(stem, span)), Content::Index) {
        Ok(file) => device.close(file),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(e),
    }
    if span.is_some() {
        // A failure of the removal is harmless, because readers prefer the marker with a time range.
        let _ = device.remove(&directory.join(stem));
    }
    Ok(())
}

/// Removes a marker that [`write_marker`] has written.
///
/// # Errors
/// Any error that the device returns.
pub fn remove_marker<D: Device>(
    device: &mut D,
    interface_directory: &Path,
    stem: &str,
    span: Option<Span>,
) -> io::Result<()> {
    match device.remove(&interface_directory.join(names::OUT_OF_ORDER).join(text(stem, span))) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The name of a marker.
pub fn text(stem: &str, span: Option<Span>) -> String {
    let moment = |t: Timestamp| names::stem(t, None, 0);
    match span {
        None => stem.to_owned(),
        Some(Span { first, last, is_out_of_order: mixed }) => {
            let sign = if mixed { '~' } else { '=' };
            format!("{stem}{sign}{}-{}", moment(first), moment(last))
        }
    }
}

/// The inverse of [`text`].
fn parse(name: &str) -> Option<(FileIdentity, &str, Option<Span>)> {
    let (stem, span) = match name.find(['=', '~']) {
        None => (name, None),
        Some(at) => {
            let (first, last) = name[at + 1..].split_once('-')?;
            let moment =
                |text: &str| parse_stem(text).filter(|(_, queue, copy)| (*queue, *copy) == (0, 0)).map(|p| p.0);
            let (first, last) = (moment(first)?, moment(last)?);
            (&name[..at], Some(Span { first, last, is_out_of_order: name.as_bytes()[at] == b'~' }))
        }
    };
    Some((parse_stem(stem)?, stem, span))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DiskDevice;
    use testkit::TempDir;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs_nanos(1_795_290_000 + secs, 7)
    }

    #[test]
    fn markers_are_read_and_a_range_replaces_a_marker_without_a_range() {
        let dir = TempDir::new("disorder");
        let mut device = DiskDevice::new(1);
        assert!(
            OutOfOrderMarkers::read(dir.path()).expect("a directory").is_empty(),
            "a store without out-of-order files has no markers"
        );
        let stems = [names::stem(at(50), None, 0), names::stem(at(50), Some(3), 2), names::stem(at(60), None, 0)];
        let span = Span { first: at(0), last: at(70), is_out_of_order: false };
        for stem in &stems {
            write_marker(&mut device, dir.path(), stem, None).expect("a marker");
        }
        write_marker(&mut device, dir.path(), &stems[1], Some(span)).expect("a marker");
        write_marker(&mut device, dir.path(), &stems[1], Some(span)).expect("the same marker again");
        write_marker(&mut device, dir.path(), &stems[2], Some(Span::out_of_order((at(1), at(2))))).expect("a marker");
        std::fs::write(dir.join(".out-of-order/README"), "foreign").expect("a foreign file");
        let markers = OutOfOrderMarkers::read(dir.path()).expect("markers");
        assert_eq!(markers, OutOfOrderMarkers::list(&mut device, dir.path()).expect("markers"));
        assert_eq!(markers.get((at(50), 0, 0)), Some(Span::UNKNOWN));
        assert_eq!(markers.get((at(50), 3, 2)), Some(span));
        assert_eq!(markers.get((at(60), 0, 0)), Some(Span::out_of_order((at(1), at(2)))));
        assert_eq!((markers.get((at(50), 3, 0)), markers.iter().count()), (None, 3));
        remove_marker(&mut device, dir.path(), &stems[1], Some(span)).expect("an existing marker");
        remove_marker(&mut device, dir.path(), &stems[1], Some(span)).expect("a missing marker");
        assert_eq!(OutOfOrderMarkers::read(dir.path()).expect("markers").get((at(50), 3, 2)), None);
    }

    #[test]
    fn names_that_are_no_markers_are_ignored() {
        let stem = names::stem(at(0), None, 0);
        let whole = text(&stem, Some(Span::out_of_order((at(1), at(2)))));
        assert!(parse(&whole).is_some());
        for cut in 0..whole.len() {
            // The first part of the name, up to the separator, is itself the name of a marker without a time range.
            assert_eq!(parse(&whole[..cut]).is_some(), cut == stem.len(), "{}", &whole[..cut]);
        }
        assert_eq!(parse(&format!("{stem}=")), None);
        assert_eq!(parse(&whole.replace('~', "~q1")), None);
    }
}
