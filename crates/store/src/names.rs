//! Names of directories and files in the store: `STORE/IFACE/YYYY/MM/DD/HH/<start time>.pcap`, all in UTC.
//!
//! If the name of a file begins with a dot and ends in `.partial`, the file is being written, or was being written when
//! its recorder was killed.

use base::Timestamp;
use std::path::{Path, PathBuf};

/// Endings of packet files: nanosecond pcap, and HPCAP's RAW.
pub const PACKETS: [&str; 2] = ["pcap", "raw"];

/// Ending of the index beside a packet file.
pub const INDEX: &str = "ngi";

/// Ending of the hidden name of an unfinished file.
pub const PARTIAL: &str = "partial";

/// File in the interface's directory with the secret key with which its meter hashes addresses.
pub const METER_KEY: &str = ".meter-key";

/// File in the interface's directory with a decimal number: the number of seconds by which a flow record may be made
/// later than its packets arrived.
pub const FLOW_LATENESS: &str = ".flow-late";

/// Directory in the interface's directory with the markers of out-of-order files ([`crate::out_of_order`]).
pub const OUT_OF_ORDER: &str = ".out-of-order";

/// Prefix of the name of a file that was created in advance and contains no packets yet.
pub const PREPARED: &str = ".next-";

/// The directory of an interface in the store. If the interface name is not a valid path component (`a/b.pcap`, in
/// contrast to `sim:60`), slashes and a leading dot are replaced.
pub fn interface_directory(store: &Path, interface: &str) -> PathBuf {
    let mut name = interface.replace(['/', '\0'], "_");
    if name.starts_with('.') || name.is_empty() {
        name.insert(0, '_');
    }
    store.join(name)
}

/// The directory of the hour that contains `start`.
pub fn hour_directory(interface_directory: &Path, start: Timestamp) -> PathBuf {
    let (year, month, day, hour, ..) = start.civil();
    interface_directory.join(format!("{year:04}/{month:02}/{day:02}/{hour:02}"))
}

/// True if the path has the name of an hour directory.
pub fn is_hour(directory: &Path) -> bool {
    let digits = |(path, digits): (&Path, usize)| {
        path.file_name().is_some_and(|n| n.len() == digits && n.as_encoded_bytes().iter().all(u8::is_ascii_digit))
    };
    directory.ancestors().zip([2, 2, 2, 4]).filter(|at| digits(*at)).count() == 4
}

/// The name of a file without its ending: `20261121T104200.000000000Z`, followed by the queue if the interface has
/// several, and by a copy number from the second file of the same name on.
pub fn stem(start: Timestamp, queue: Option<u16>, copy: u32) -> String {
    let (year, month, day, hour, minute, second) = start.civil();
    let nanos = start.subsec_nanos();
    let mut name = format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}.{nanos:09}Z");
    if let Some(queue) = queue {
        name += &format!("-q{queue}");
    }
    if copy > 0 {
        name += &format!("_{copy}");
    }
    name
}

/// The queue in the name of a file; 0 if the name contains no queue.
pub fn queue_of(stem: &str) -> u16 {
    let digits = stem.split_once("Z-q").map_or("", |(_, queue)| queue.split('_').next().unwrap_or(""));
    digits.parse().unwrap_or(0)
}

/// The hidden name of a file that is created in advance.
pub fn prepared(queue: u16, number: u32, ending: &str) -> String {
    format!("{PREPARED}q{queue}-{number}.{ending}.{PARTIAL}")
}

/// The hidden name of a file while it is written.
pub fn hidden(stem: &str, ending: &str) -> String {
    format!(".{stem}.{ending}.{PARTIAL}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_contain_time_and_queue_and_stay_inside_the_store() {
        let t = Timestamp::from_secs_nanos(1_795_290_000, 5);
        assert_eq!(stem(t, None, 0), "20261121T194000.000000005Z");
        assert_eq!(stem(t, Some(3), 2), "20261121T194000.000000005Z-q3_2");
        for (queue, copy) in [(None, 0), (None, 7), (Some(3), 0), (Some(12), 7)] {
            assert_eq!(queue_of(&stem(t, queue, copy)), queue.unwrap_or(0));
        }
        assert_eq!(hour_directory(Path::new("s/eth1"), t), Path::new("s/eth1/2026/11/21/19"));
        assert!(is_hour(Path::new("s/eth1/2026/11/21/19")) && !is_hour(Path::new("s/eth1/2026/11/21")));
        assert_eq!(interface_directory(Path::new("s"), "../etc"), Path::new("s/_.._etc"));
        assert_eq!(interface_directory(Path::new("s"), ".."), Path::new("s/_.."));
    }
}
