//! Handles future files: files with timestamps later than the current time of the clock. They arise if the clock was
//! far ahead when they were recorded (for example in 2099 after a boot), and was corrected later.
//!
//! Every file that is recorded after the correction of the clock begins before the end of the future files. Without
//! further measures, each such file would need an out-of-order marker ([`store::out_of_order`]) as long as the future
//! files are in the store. So the future files get markers instead. The timestamps of their packets are not changed,
//! and queries find the packets by these timestamps.
//!
//! The clock may also be wrong at present. The clock is trusted if two conditions hold. First, it shows a time after
//! the release of this code. Second, either the kernel reports the clock as synchronised, or the store has at most as
//! many hour directories after the clock's time as before it. If a wrong clock is trusted, some files have unnecessary
//! markers; a query then reads more names, but its result is the same.

use crate::chain::{OrderedFiles, span, stem};
use crate::wall_clock::WallClock;
use crate::writer::Config;
use base::Timestamp;
use std::io;
use std::path::Path;
use store::catalogue::Hours;
use store::device::Device;
use store::{names, out_of_order};

/// 2026-01-01: a clock that shows an earlier time is wrong.
const RELEASED: Timestamp = Timestamp::from_secs_nanos(1_767_225_600, 0);

/// The largest number of markers that are written before one new file. It is small, because the packets of the new file
/// are not written until then. The other future files get their markers before the next new file.
const MAX: u64 = 64;

/// The files whose timestamps are ahead of the clock.
pub struct FutureFiles {
    /// Number of future files for which markers were written.
    files: u64,
    /// The latest timestamp of the future files.
    last: Timestamp,
    /// The latest timestamp of the files without a marker; [`Timestamp::ZERO`] if there are none.
    pub reached: Timestamp,
}

impl FutureFiles {
    /// A warning about the future files, if there are any.
    pub fn warning(&self, directory: &Path, wall: &WallClock) -> Option<String> {
        let Self { files, last, .. } = self;
        (*files > 0).then(|| {
            let (have, they_get) = match files {
                1 => ("file has", "it gets"),
                _ => ("files have", "they get"),
            };
            format!(
                "{}: {files} {have} timestamps up to {last}, ahead of the clock ({}); {they_get} out-of-order \
                 markers, so that new files need none",
                directory.display(),
                wall.now
            )
        })
    }
}

/// True if the clock is trusted, so that files of the interface with later timestamps are future files.
pub fn is_right(directory: &Path, wall: &WallClock) -> bool {
    if wall.now < RELEASED || wall.synchronised {
        return wall.now >= RELEASED;
    }
    let (mut ahead, mut before) = (
        Hours::forward(directory, wall.latest_plausible(), Timestamp::MAX),
        Hours::back(directory, wall.latest_plausible()),
    );
    let has_another = |hours: &mut Hours| matches!(hours.next(), Ok(Some(_)));
    // The loop takes one hour directory after and one before the clock's time in turn, until one of the two directions
    // has no further directory. So it lists at most twice as many directories as this direction has. The directory of
    // the current hour counts in both directions.
    while has_another(&mut ahead) {
        if !has_another(&mut before) {
            return false;
        }
    }
    true
}

/// Writes markers for the files of a queue that end ahead of the clock, the newest first and at most `MAX` of them. The
/// in-order files among them are the last files in the order of names.
///
/// # Errors
/// If the volume refuses to write a marker; markers that were written before the error remain.
pub fn write_markers<D: Device>(device: &mut D, config: &Config, wall: &WallClock) -> io::Result<FutureFiles> {
    let directory = names::interface_directory(&config.store, &config.header.interface);
    let mut found = FutureFiles { files: 0, last: Timestamp::ZERO, reached: Timestamp::ZERO };
    let mut in_order = OrderedFiles::back(&directory, config.header.queue)?;
    while let Some(entry) = in_order.next()? {
        let (first, last, is_sealed) = span(&entry);
        if last <= wall.latest_plausible() || found.files == MAX {
            found.reached = last;
            break;
        }
        let Some(stem) = stem(&entry) else { continue };
        // The marker of an unpublished file of a killed recorder has no time range; recovery adds the range when it
        // publishes the file.
        let span = is_sealed.then_some(out_of_order::Span { first, last, is_out_of_order: false });
        out_of_order::write_marker(device, &directory, &stem, span)?;
        (found.files, found.last) = (found.files + 1, found.last.max(last));
    }
    Ok(found)
}
