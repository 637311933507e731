//! The times at which a retention worker lists the store.

use std::time::Duration;

/// The interval at which a worker lists the directories to which recorders write.
pub(super) const SCAN_INTERVAL: Duration = Duration::from_millis(500);

/// The interval at which a worker lists all directories.
const FULL_SCAN_INTERVAL: Duration = Duration::from_secs(10);

/// The state of the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanState {
    /// All directories must be listed: at the start, and after a change by other processes.
    Due,
    /// The time of the last listing, and the time of the last listing of all directories.
    Listed { last: Duration, last_full: Duration },
}

/// The directories to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanExtent {
    /// Those that recorders write to.
    Recent,
    /// All.
    All,
}

impl ScanState {
    /// Returns the directories to list now, and the state after this listing; `None` if no listing is due. If
    /// `only_once` is true, no listing is due after the first.
    pub fn next(self, up: Duration, only_once: bool) -> Option<(ScanExtent, Self)> {
        let all = Self::Listed { last: up, last_full: up };
        match self {
            Self::Due => Some((ScanExtent::All, all)),
            Self::Listed { last, .. } if only_once || up < last + SCAN_INTERVAL => None,
            Self::Listed { last_full, .. } if up >= last_full + FULL_SCAN_INTERVAL => Some((ScanExtent::All, all)),
            Self::Listed { last_full, .. } => Some((ScanExtent::Recent, Self::Listed { last: up, last_full })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents(times: &[u64], only_once: bool) -> Vec<Option<ScanExtent>> {
        let mut state = ScanState::Due;
        let mut step = |ms: &u64| {
            let (extent, next) = state.next(Duration::from_millis(*ms), only_once)?;
            state = next;
            Some(extent)
        };
        times.iter().map(&mut step).collect()
    }

    #[test]
    fn recent_directories_are_listed_twice_a_second_and_all_every_ten_seconds() {
        let (all, recent) = (Some(ScanExtent::All), Some(ScanExtent::Recent));
        let found = extents(&[3, 400, 503, 900, 9_999, 10_003, 10_503, 10_504, 20_503], false);
        assert_eq!(found, [all, None, recent, None, recent, None, all, None, all]);
    }

    #[test]
    fn a_dry_run_lists_once() {
        assert_eq!(extents(&[0, 500, 20_000], true), [Some(ScanExtent::All), None, None]);
    }
}
