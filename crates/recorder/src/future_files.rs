//! Files from a time that has not come: the clock was far ahead when they were recorded (a machine that booted in 2099), and
//! was set right since.
//!
//! All that is recorded afterwards begins before them, and would need a note each ([`store::out_of_order`]) for as long as they are in the
//! store. So it is they that get one. Their packets keep their stamps, and questions find them by these.
//!
//! The clock that says so may be the one that is wrong. It is believed where it shows no earlier time than this was written, and
//! the kernel says that somebody keeps it right, or no more hours of files lie ahead of it than do not. If it is believed wrongly,
//! files have notes that need none: a question then reads more names, and its answer is the same.

use crate::chain::{OrderedFiles, span, stem};
use crate::writer::Config;
use base::Timestamp;
use std::io;
use std::path::Path;
use std::time::Duration;
use store::catalogue::Hours;
use store::device::Device;
use store::{names, out_of_order};

/// How far ahead of the clock a stamp may be, as retention has it.
const AHEAD: Duration = Duration::from_secs(3600);

/// 2026-01-01: no clock that shows an earlier time is right.
const WRITTEN: Timestamp = Timestamp::from_secs_nanos(1_767_225_600, 0);

/// Files that get their notes at a time: the volume is about to be written to. The next file goes on with those that are left.
const MAX: u64 = 64;

/// The time of day as this machine knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallClock {
    /// What the clock shows.
    pub now: Timestamp,
    /// Whether somebody keeps it right, as the kernel knows.
    pub synchronised: bool,
}

impl WallClock {
    /// The latest stamp that may be true.
    pub fn is_trusted(&self) -> Timestamp {
        self.now.after(AHEAD)
    }
}

/// What was found ahead of the clock.
pub struct FutureFiles {
    /// Files that have got their notes.
    files: u64,
    /// The latest stamp of them.
    last: Timestamp,
    /// The latest stamp of the files that are still without: the beginning of time where there are none.
    pub reached: Timestamp,
}

impl FutureFiles {
    /// What people should know of it.
    pub fn warning(&self, folder: &Path, wall: &WallClock) -> Option<String> {
        let Self { files, last, .. } = self;
        (*files > 0).then(|| {
            format!(
                "{}: {files} file(s) reach up to {last}, which the clock ({}) has not come to: noted to be out of order, so that \
                 what comes now is not",
                folder.display(),
                wall.now
            )
        })
    }
}

/// Whether the clock may say of the files of an interface that their time has not come.
pub fn is_right(folder: &Path, wall: &WallClock) -> bool {
    if wall.now < WRITTEN || wall.synchronised {
        return wall.now >= WRITTEN;
    }
    let (mut ahead, mut others) =
        (Hours::forward(folder, wall.is_trusted(), Timestamp::MAX), Hours::back(folder, wall.is_trusted()));
    let has_another = |hours: &mut Hours| matches!(hours.next(), Ok(Some(_)));
    // One from each side in turn, so that the smaller side tells how many folders are looked at. The hour of this moment is on both.
    while has_another(&mut ahead) {
        if !has_another(&mut others) {
            return false;
        }
    }
    true
}

/// Notes the files of a queue that end ahead of the clock, the newest first and a bounded number of them. Of files in order those
/// are the last by name.
///
/// # Errors
/// What the volume says; those that were noted before stay so.
pub fn note<D: Device>(device: &mut D, config: &Config, wall: &WallClock) -> io::Result<FutureFiles> {
    let folder = names::interface_folder(&config.store, &config.header.interface);
    let mut found = FutureFiles { files: 0, last: Timestamp::ZERO, reached: Timestamp::ZERO };
    let mut in_order = OrderedFiles::back(&folder, config.header.queue)?;
    while let Some(entry) = in_order.next()? {
        let (first, last, is_whole) = span(&entry);
        if last <= wall.is_trusted() || found.files == MAX {
            found.reached = last;
            break;
        }
        let Some(stem) = stem(&entry) else { continue };
        // What a dead recorder left gets its span when it gets its name.
        let span = is_whole.then_some(out_of_order::Span { first, last, is_out_of_order: false });
        out_of_order::write_marker(device, &folder, &stem, span)?;
        (found.files, found.last) = (found.files + 1, found.last.max(last));
    }
    Ok(found)
}
