//! The file size that suits the volume of a capture. A growing file cannot be removed: if files are large for the
//! volume, retention has nothing to remove, and recording would stop for good once the volume is full.

use crate::error::EngineError;
use crate::plan::{DEFAULT_SEGMENT, Plan, SourcePlan};
use base::units::show_bytes;
use ring::BLOCK;
use std::path::Path;
use store::DiskDevice;
use store::device::{Housekeeping, Space};

/// Without a configured file size, the growing files of all queues together take at most `1/PARTS` of the volume: then
/// there are always files that retention can remove.
pub(crate) const PARTS: u64 = 8;

/// The least file size: in smaller files, index and preparation outweigh the packets.
const MIN: u64 = 2 * BLOCK;

/// Bytes of each file, and a warning if they differ from the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentSize {
    pub segment: u64,
    pub warning: Option<String>,
}

/// Returns the file size for this number of queues.
///
/// # Errors
/// The files of a live interface cannot work on this volume; the text has the figures.
pub(crate) fn fit(plan: &Plan, queues: u16) -> Result<SegmentSize, EngineError> {
    let as_planned = SegmentSize { segment: plan.segment, warning: None };
    let Some(store) = &plan.store else { return Ok(as_planned) };
    // If the volume does not report its size, the plan is not changed, and writes fail when it is full.
    let Some(space) = DiskDevice::plain().space(&store.dir).ok().filter(|space| space.total > 0) else {
        return Ok(as_planned);
    };
    let goes_on = matches!(plan.source, SourcePlan::Interface(_));
    fit_to(space, plan.segment, queues, goes_on, &store.dir)
}

/// `goes_on` means that packets arrive without end, so files will have to be removed.
fn fit_to(space: Space, segment: u64, queues: u16, goes_on: bool, store: &Path) -> Result<SegmentSize, EngineError> {
    let queues = u64::from(queues.max(1));
    let share = space.total / PARTS / queues / BLOCK * BLOCK;
    let all = segment.saturating_mul(queues);
    let text = |rest: String| {
        let (volume, store) = (show_bytes(space.total), store.display());
        EngineError::Store(format!(
            "{store}: files of {} for {queues} queue(s) on a volume of {volume}: {rest}",
            show_bytes(segment)
        ))
    };
    if segment == DEFAULT_SEGMENT && share < segment {
        if share < MIN && goes_on {
            let least = show_bytes(MIN * queues * PARTS);
            return Err(text(format!(
                "a recorder that makes room needs a volume of {least} at least; name another --store"
            )));
        }
        let segment = share.max(MIN);
        let remark = format!(
            "files of {} each, for a volume of {}: an eighth of it for the files in work, so that older ones can make room \
             (--segment)",
            show_bytes(segment),
            show_bytes(space.total)
        );
        return Ok(SegmentSize { segment, warning: Some(remark) });
    }
    if goes_on && segment != DEFAULT_SEGMENT && all > space.total / 2 {
        let advice = format!(
            "those in work cannot be removed, so there would be nothing to make room with, and recording would stop when the \
             volume is full; --segment {}MiB works",
            share.max(MIN) / BLOCK
        );
        return Err(text(advice));
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
    fn nobody_who_chose_no_size_gets_files_that_the_volume_cannot_hold() {
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
    fn a_size_that_was_chosen_and_cannot_work_is_refused_with_one_that_does() {
        let e = fitted(300 << 20, 1 << 30, 1).expect_err("more than the volume");
        assert!(e.contains("1.00 GiB") && e.contains("300 MiB") && e.contains("--segment 37MiB"), "{e}");
        assert!(fitted(300 << 20, 64 << 20, 4).is_err(), "four queues");
        assert_eq!(fitted(300 << 20, 64 << 20, 1).expect("it fits").segment, 64 << 20);
        let space = Space { free: 0, total: 300 << 20 };
        let replay = fit_to(space, 1 << 30, 1, false, Path::new("/data"));
        assert!(replay.is_ok(), "a replay ends, and removes nothing unasked");
    }
}
