//! The greatest lateness of the flow records of an interface (the time from the last packet of a record to the moment
//! at which the record is made), stored in the interface's directory. It depends only on the timeouts of the meter.
//! Each poll of a live query must read from the time of the previous poll minus this lateness.

use crate::follow::FLOW_LATE;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;
use store::names::{FLOW_LATENESS, interface_directory};
use sys::nofollow::{self, OpenOptions};

/// This duration is added to the longest timeout of the meter, because a flow record is journaled and read a few
/// seconds after its timeout, and clocks differ.
const MARGIN: Duration = Duration::from_secs(60);

/// An upper limit of the lateness of records: longer than any practical timeout, and short enough that sums do not
/// overflow.
const MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

/// The greatest lateness of a meter's records, computed from the meter's longest timeout.
pub fn flow_lateness(longest_timeout: Duration) -> Duration {
    longest_timeout.saturating_add(MARGIN).clamp(FLOW_LATE, MAX)
}

/// Writes the greatest lateness into the directory of the interface.
///
/// # Errors
/// The directory or the file cannot be written; [`io::Error`] of the system call.
pub fn keep_flow_lateness(store: &Path, interface: &str, lateness: Duration) -> io::Result<()> {
    let directory = interface_directory(store, interface);
    let (path, complete) =
        (directory.join(FLOW_LATENESS), directory.join(format!("{FLOW_LATENESS}.{}", std::process::id())));
    // Writes to a temporary file and renames it, so that no reader reads an incomplete number.
    let options = OpenOptions { write: true, create: Some(0o640), ..OpenOptions::default() };
    let write = |mut file: File| file.set_len(0).and_then(|()| writeln!(file, "{}", lateness.as_secs()));
    nofollow::create_directories(&directory)
        .and_then(|()| nofollow::open_as(&complete, options))
        .and_then(write)
        .and_then(|()| nofollow::rename(&complete, &path))
}

/// The greatest lateness of the records of these interfaces. If the lateness of an interface is unknown, [`FLOW_LATE`]
/// is used for it.
pub fn kept_flow_lateness(store: &Path, interfaces: &[String]) -> Duration {
    let read = |name: &String| {
        let text = nofollow::read_to_string(&interface_directory(store, name).join(FLOW_LATENESS)).ok()?;
        Some(Duration::from_secs(text.trim().parse().ok()?).min(MAX))
    };
    interfaces.iter().filter_map(read).fold(FLOW_LATE, Duration::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::TempDir;

    #[test]
    fn the_delay_is_the_longest_timeout_and_a_minute_within_limits() {
        for (timeout, seconds) in [(30, 90), (100, 160), (3600, 3660), (5, 90)] {
            assert_eq!(flow_lateness(Duration::from_secs(timeout)).as_secs(), seconds);
        }
        assert_eq!(flow_lateness(Duration::MAX), MAX);
    }

    #[test]
    fn a_query_reads_the_greatest_kept_delay() {
        let dir = TempDir::new("kept_flow_lateness");
        let names = ["eth1".to_owned(), "other".to_owned()];
        assert_eq!(kept_flow_lateness(dir.path(), &names), FLOW_LATE, "nothing is kept yet");
        keep_flow_lateness(dir.path(), "eth1", Duration::from_secs(260)).expect("a file");
        assert_eq!(kept_flow_lateness(dir.path(), &names).as_secs(), 260);
        assert_eq!(kept_flow_lateness(dir.path(), &names[1..]), FLOW_LATE);
    }
}
