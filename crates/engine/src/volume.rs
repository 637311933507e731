//! The file size that fits the volume of a capture. Retention cannot remove a file to which the recorder still writes.
//! If files were large in relation to the volume, the volume could be full while retention finds no complete file to
//! remove, and recording would stop permanently.

use crate::plan::{DEFAULT_SEGMENT, Plan, SourcePlan};
use base::units::show_bytes;
use ring::BLOCK;
use std::fmt;
use std::path::{Path, PathBuf};
use store::DiskDevice;
use store::device::{Housekeeping, Space};

/// If no file size is configured, the growing files of all queues together occupy at most `1/PARTS` of the volume, so
/// that there are always files that retention can remove.
pub const PARTS: u64 = 8;

/// The least file size. For smaller files, making the index and preparing the file cost more than writing the packets.
const MIN: u64 = 2 * BLOCK;

/// The size of each file in bytes, and a warning if it differs from the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentSize {
    pub segment: u64,
    pub warning: Option<String>,
}

/// The error for a file size that is impossible for a live interface on this volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentError {
    /// The directory of the store.
    pub store: PathBuf,
    /// Bytes of each file.
    pub segment: u64,
    /// Number of queues; each queue has a growing file.
    pub queues: u64,
    /// Bytes of the volume.
    pub volume: u64,
    /// The problem.
    pub problem: SegmentProblem,
}

/// The reason why a file size does not fit a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentProblem {
    /// The volume is too small, whatever the file size.
    Volume {
        /// The least size that the volume must have, in bytes.
        least: u64,
    },
    /// The growing files would occupy more than half of the volume.
    Segment {
        /// A file size in bytes that is possible on the volume.
        fitting: u64,
    },
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (store, segment, volume) = (self.store.display(), show_bytes(self.segment), show_bytes(self.volume));
        write!(f, "{store}: files of {segment} for {} queue(s) on a volume of {volume}: ", self.queues)?;
        match self.problem {
            SegmentProblem::Volume { least } => write!(
                f,
                "retention needs a volume of at least {} to remove old files; name another --store",
                show_bytes(least)
            ),
            SegmentProblem::Segment { fitting } => write!(
                f,
                "growing files cannot be removed, so retention would have nothing to remove, and recording would stop \
                 when the volume is full; --segment {}MiB works",
                fitting / BLOCK
            ),
        }
    }
}

impl std::error::Error for SegmentError {}

/// Returns the file size for this number of queues.
///
/// # Errors
/// A live interface cannot be recorded on this volume with the file size of the plan. The error contains the sizes of
/// the volume and of the files.
pub fn fit(plan: &Plan, queues: u16) -> Result<SegmentSize, SegmentError> {
    let as_planned = SegmentSize { segment: plan.segment, warning: None };
    let Some(store) = &plan.store else { return Ok(as_planned) };
    // If the volume does not report its size, the plan is not changed. Then writes fail when the volume is full.
    let Some(space) = DiskDevice::plain().space(&store.dir).ok().filter(|space| space.total > 0) else {
        return Ok(as_planned);
    };
    let is_endless = matches!(plan.source, SourcePlan::Interface(_));
    fit_to(space, plan.segment, queues, is_endless, &store.dir)
}

/// Returns the file size. `is_endless` is true if packets arrive without end, so that files must be removed at some
/// time.
fn fit_to(
    space: Space,
    segment: u64,
    queues: u16,
    is_endless: bool,
    store: &Path,
) -> Result<SegmentSize, SegmentError> {
    let queues = u64::from(queues.max(1));
    let share = space.total / PARTS / queues / BLOCK * BLOCK;
    let all = segment.saturating_mul(queues);
    let refused = |problem| SegmentError { store: store.to_owned(), segment, queues, volume: space.total, problem };
    if segment == DEFAULT_SEGMENT && share < segment {
        if share < MIN && is_endless {
            return Err(refused(SegmentProblem::Volume { least: MIN * queues * PARTS }));
        }
        let segment = share.max(MIN);
        let warning = format!(
            "packet files are limited to {} each, because the volume has {}: growing files occupy at most an eighth of \
             it, so that retention can remove older files (--segment)",
            show_bytes(segment),
            show_bytes(space.total)
        );
        return Ok(SegmentSize { segment, warning: Some(warning) });
    }
    if is_endless && segment != DEFAULT_SEGMENT && all > space.total / 2 {
        return Err(refused(SegmentProblem::Segment { fitting: share.max(MIN) }));
    }
    Ok(SegmentSize { segment, warning: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitted(total: u64, segment: u64, queues: u16) -> Result<SegmentSize, String> {
        let space = Space { free: total, total };
        fit_to(space, segment, queues, true, Path::new("/data")).map_err(|e| e.to_string())
    }

    #[test]
    fn the_default_size_fits_the_volume() {
        let small = fitted(300 << 20, DEFAULT_SEGMENT, 1).expect("a size");
        assert_eq!(small.segment, 37 << 20);
        assert!(small.warning.is_some_and(|text| text.contains("37.0 MiB") && text.contains("300 MiB")));
        assert_eq!(fitted(300 << 20, DEFAULT_SEGMENT, 4).expect("a size").segment, 9 << 20);
        let large = fitted(1 << 40, DEFAULT_SEGMENT, 4).expect("a size");
        assert_eq!(large, SegmentSize { segment: DEFAULT_SEGMENT, warning: None });
        let e = fitted(10 << 20, DEFAULT_SEGMENT, 1).expect_err("a volume of ten blocks");
        assert!(e.contains("10.0 MiB") && e.contains("16.0 MiB"), "{e}");
    }

    #[test]
    fn an_impossible_configured_size_is_rejected_with_a_size_that_fits() {
        let e = fitted(300 << 20, 1 << 30, 1).expect_err("more than the volume");
        assert!(e.contains("1.00 GiB") && e.contains("300 MiB") && e.contains("--segment 37MiB"), "{e}");
        assert!(fitted(300 << 20, 64 << 20, 4).is_err(), "the files of four queues exceed half of the volume");
        assert_eq!(fitted(300 << 20, 64 << 20, 1).expect("it fits").segment, 64 << 20);
        let space = Space { free: 0, total: 300 << 20 };
        let replay = fit_to(space, 1 << 30, 1, false, Path::new("/data"));
        assert!(replay.is_ok(), "a replay ends, so no file has to be removed");
    }
}
