//! Files whose packets are not where their names say, of one interface: notes that let a question find them.
//!
//! A name tells the moment at which a file began. Of what is recorded as it comes that is all a question needs: of the files
//! of a queue, each begins no earlier than the one before it ends, and holds nothing from before its own beginning. The replay of
//! captures that are given in another order, or a clock that is set back, makes files of which that is not so. Each of those
//! has a note (where the clock had been far ahead, each that was recorded then, in place of those that come once it is right), and
//! the invariant is that *all files without one are in order*: so they are found by their names alone, however many there are, and
//! a store without disorder has no notes and pays for none.
//!
//! A note is an empty file in [`names::OUT_OF_ORDER`], a folder in that of the interface; its name says everything:
//! ```text
//! STEM                the file is being written, or was when its recorder died: look into it
//! STEM=FIRST-LAST     from its earliest packet to its latest; its packets are in the order of time
//! STEM~FIRST-LAST     the same, and they are not
//! ```
//! A note is there before the packets have their name, so whoever finds the file finds its note; in whichever order they come, names
//! are made and renamed one by one, and nothing has to be appended or rewritten. One that is made later is there before anything is
//! recorded that makes it necessary. A note without a file says nothing.

use crate::catalogue::parse_stem;
use crate::device::{Content, Device};
use crate::names;
use base::Timestamp;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// What tells files apart: beginning, queue, and the number behind equal names.
pub type FileIdentity = (Timestamp, u16, u32);

/// What is noted of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The stamp of its earliest packet.
    pub first: Timestamp,
    /// That of its latest.
    pub last: Timestamp,
    /// Whether some packets are earlier than one before them in the file.
    pub is_out_of_order: bool,
}

impl Span {
    /// Of a file of which nothing is known.
    pub const UNKNOWN: Self = Self { first: Timestamp::ZERO, last: Timestamp::MAX, is_out_of_order: true };

    /// Of a file whose packets lie between these two and are mixed.
    pub const fn out_of_order((first, last): (Timestamp, Timestamp)) -> Self {
        Self { first, last, is_out_of_order: true }
    }

    /// Whether it has anything of an interval.
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

/// All notes of an interface: what is known of each file, and its name without an ending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutOfOrderMarkers(BTreeMap<FileIdentity, (Span, String)>);

impl OutOfOrderMarkers {
    /// Reads the notes in the folder of an interface; none where there are none.
    ///
    /// # Errors
    /// What the system says.
    pub fn read(interface_folder: &Path) -> io::Result<Self> {
        let entries = match sys::nofollow::list(&interface_folder.join(names::OUT_OF_ORDER)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            other => other?,
        };
        let all: Vec<String> = entries.into_iter().filter_map(|(name, _)| name.into_string().ok()).collect();
        Ok(Self::of(all.iter().map(String::as_str)))
    }

    /// The same through a device.
    ///
    /// # Errors
    /// What the device says.
    pub fn list<D: Device>(device: &mut D, interface_folder: &Path) -> io::Result<Self> {
        match device.list(&interface_folder.join(names::OUT_OF_ORDER)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            other => Ok(Self::of(other?.iter().map(|(name, _)| name.as_str()))),
        }
    }

    /// What these notes say together; where two are of one file, both. What is no note is passed over.
    pub fn of<'a>(notes: impl Iterator<Item = &'a str>) -> Self {
        let mut all: BTreeMap<FileIdentity, (Option<Span>, String)> = BTreeMap::new();
        for (which, stem, span) in notes.filter_map(parse) {
            let known = &mut all.entry(which).or_insert_with(|| (None, stem.to_owned())).0;
            // What was noted when the file was whole says more than what was before.
            *known = match (*known, span) {
                (Some(a), Some(b)) => Some(a.with(b)),
                (a, b) => a.or(b),
            };
        }
        let known = |(span, stem): (Option<Span>, String)| (span.unwrap_or(Span::UNKNOWN), stem);
        Self(all.into_iter().map(|(which, found)| (which, known(found))).collect())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is noted of a file.
    pub fn get(&self, which: FileIdentity) -> Option<Span> {
        self.0.get(&which).map(|(span, _)| *span)
    }

    /// All files with a note, by their names: what is known of each, and its name without an ending.
    pub fn iter(&self) -> impl Iterator<Item = (FileIdentity, Span, &str)> {
        self.0.iter().map(|(which, (span, stem))| (*which, *span, stem.as_str()))
    }
}

/// Notes that a file is not in order: at first without a span, once it is whole with it. What was noted without is taken back
/// then. The note is as safe as the name of the packets, which is made after it: a journal keeps the order of names.
///
/// # Errors
/// What the device says.
pub fn write_marker<D: Device>(
    device: &mut D,
    interface_folder: &Path,
    stem: &str,
    span: Option<Span>,
) -> io::Result<()> {
    let folder = interface_folder.join(names::OUT_OF_ORDER);
    device.create_folder(&folder)?;
    match device.create(&folder.join(text(stem, span)), Content::Index) {
        Ok(file) => device.close(file),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(e),
    }
    if span.is_some() {
        // If it stays, it says less than the other.
        let _ = device.remove(&folder.join(stem));
    }
    Ok(())
}

/// Takes back what [`write_marker`] has noted.
///
/// # Errors
/// What the device says.
pub fn take_back<D: Device>(device: &mut D, interface_folder: &Path, stem: &str, span: Option<Span>) -> io::Result<()> {
    match device.remove(&interface_folder.join(names::OUT_OF_ORDER).join(text(stem, span))) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The name of a note.
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
    fn what_is_noted_is_read_and_what_is_known_later_counts() {
        let dir = TempDir::new("disorder");
        let mut device = DiskDevice::new(1);
        assert!(OutOfOrderMarkers::read(dir.path()).expect("a folder").is_empty(), "a store in order has no notes");
        let stems = [names::stem(at(50), None, 0), names::stem(at(50), Some(3), 2), names::stem(at(60), None, 0)];
        let span = Span { first: at(0), last: at(70), is_out_of_order: false };
        for stem in &stems {
            write_marker(&mut device, dir.path(), stem, None).expect("a note");
        }
        write_marker(&mut device, dir.path(), &stems[1], Some(span)).expect("a note");
        write_marker(&mut device, dir.path(), &stems[1], Some(span)).expect("the same again");
        write_marker(&mut device, dir.path(), &stems[2], Some(Span::out_of_order((at(1), at(2))))).expect("a note");
        std::fs::write(dir.join(".out-of-order/README"), "mine").expect("a file of somebody else");
        let notes = OutOfOrderMarkers::read(dir.path()).expect("notes");
        assert_eq!(notes, OutOfOrderMarkers::list(&mut device, dir.path()).expect("notes"));
        assert_eq!(notes.get((at(50), 0, 0)), Some(Span::UNKNOWN));
        assert_eq!(notes.get((at(50), 3, 2)), Some(span));
        assert_eq!(notes.get((at(60), 0, 0)), Some(Span::out_of_order((at(1), at(2)))));
        assert_eq!((notes.get((at(50), 3, 0)), notes.iter().count()), (None, 3));
        take_back(&mut device, dir.path(), &stems[1], Some(span)).expect("it is there");
        take_back(&mut device, dir.path(), &stems[1], Some(span)).expect("it has gone");
        assert_eq!(OutOfOrderMarkers::read(dir.path()).expect("notes").get((at(50), 3, 2)), None);
    }

    #[test]
    fn names_that_are_no_notes_are_passed_over() {
        let stem = names::stem(at(0), None, 0);
        let whole = text(&stem, Some(Span::out_of_order((at(1), at(2)))));
        assert!(parse(&whole).is_some());
        for cut in 0..whole.len() {
            // Up to the sign it is a note of a file that is not whole.
            assert_eq!(parse(&whole[..cut]).is_some(), cut == stem.len(), "{}", &whole[..cut]);
        }
        assert_eq!(parse(&format!("{stem}=")), None);
        assert_eq!(parse(&whole.replace('~', "~q1")), None);
    }
}
