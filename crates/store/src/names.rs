//! Where files lie and what they are called: `STORE/IFACE/YYYY/MM/DD/HH/<first moment>.pcap`, all in UTC.
//!
//! A name that begins with a dot and ends in `.partial` is still being written, or was when the recorder died.

use base::Timestamp;
use std::path::{Path, PathBuf};

/// How packet files end: nanosecond pcap, and HPCAP's RAW.
pub const PACKETS: [&str; 2] = ["pcap", "raw"];

/// How the index beside a packet file ends.
pub const INDEX: &str = "ngi";

/// How the hidden name of an unfinished file ends.
pub const PARTIAL: &str = "partial";

/// The secret under which an interface's meter hashes addresses, in the interface's folder.
pub const METER_KEY: &str = ".meter-key";

/// In the folder of an interface: how many seconds late its flow records may come, as a decimal number.
pub const FLOW_LATENESS: &str = ".flow-late";

/// In the folder of an interface: a folder of notes of the files that are not in the order of time ([`crate::disorder`]).
pub const OUT_OF_ORDER: &str = ".out-of-order";

/// How the name of a file begins that was made ahead of need, and is empty of packets.
pub const PREPARED: &str = ".next-";

/// The folder of an interface in the store. A name that is not one part of a path (`sim:60` is, `a/b.pcap` is not) has
/// its slashes, and a leading dot, replaced.
pub fn interface_folder(store: &Path, interface: &str) -> PathBuf {
    let mut name = interface.replace(['/', '\0'], "_");
    if name.starts_with('.') || name.is_empty() {
        name.insert(0, '_');
    }
    store.join(name)
}

/// The folder of the hour that holds this moment.
pub fn hour_folder(interface_folder: &Path, start: Timestamp) -> PathBuf {
    let (year, month, day, hour, ..) = start.civil();
    interface_folder.join(format!("{year:04}/{month:02}/{day:02}/{hour:02}"))
}

/// Whether a path is named as the folder of an hour.
pub fn is_hour(folder: &Path) -> bool {
    let digits = |(path, digits): (&Path, usize)| {
        path.file_name().is_some_and(|n| n.len() == digits && n.as_encoded_bytes().iter().all(u8::is_ascii_digit))
    };
    folder.ancestors().zip([2, 2, 2, 4]).filter(|at| digits(*at)).count() == 4
}

/// The name of a file without its ending: `20261121T104200.000000000Z`, with the queue where there are several, and a
/// number from the second file on that would have the same name.
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

/// The queue in the name of a file, 0 where there is none.
pub fn queue_of(stem: &str) -> u16 {
    let digits = stem.split_once("Z-q").map_or("", |(_, queue)| queue.split('_').next().unwrap_or(""));
    digits.parse().unwrap_or(0)
}

/// The hidden name of a file made ahead of need.
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
    fn names_say_when_and_which_queue_and_never_leave_the_store() {
        let t = Timestamp::from_secs_nanos(1_795_290_000, 5);
        assert_eq!(stem(t, None, 0), "20261121T194000.000000005Z");
        assert_eq!(stem(t, Some(3), 2), "20261121T194000.000000005Z-q3_2");
        for (queue, copy) in [(None, 0), (None, 7), (Some(3), 0), (Some(12), 7)] {
            assert_eq!(queue_of(&stem(t, queue, copy)), queue.unwrap_or(0));
        }
        assert_eq!(hour_folder(Path::new("s/eth1"), t), Path::new("s/eth1/2026/11/21/19"));
        assert!(is_hour(Path::new("s/eth1/2026/11/21/19")) && !is_hour(Path::new("s/eth1/2026/11/21")));
        assert_eq!(interface_folder(Path::new("s"), "../etc"), Path::new("s/_.._etc"));
        assert_eq!(interface_folder(Path::new("s"), ".."), Path::new("s/_.."));
    }
}
