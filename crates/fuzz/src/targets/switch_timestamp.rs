//! The target reads the timestamp of a switch from a frame. The bytes of the switch lie in the frame, an Ethernet
//! header remains, and the time is near the time of the capture.

use crate::Target;
use base::Timestamp;
use std::time::Duration;
use timestamping::SwitchTimestamps;

pub const TARGET: Target = Target { name: "switch_timestamp", run, seeds, rounds: 50_000, memory: 1 << 20 };

const RECEIVED: Timestamp = Timestamp::from_nanos(1_700_000_000_123_456_789);

fn run(bytes: &[u8]) {
    for format in SwitchTimestamps::ALL {
        let Some(found) = format.read(bytes, RECEIVED) else { continue };
        let end = found.offset + found.bytes;
        assert!(end <= bytes.len() && bytes.len() - found.bytes >= 14, "{format}: {found:?}");
        let difference = Duration::from_nanos(found.time.nanos().abs_diff(RECEIVED.nanos()));
        assert!(difference <= Duration::from_secs(24 * 3600), "{format}: {found:?}");
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let seconds = (RECEIVED.secs() as u32).to_be_bytes();
    let nanos = RECEIVED.subsec_nanos().to_be_bytes();
    let frame = [0x55; 60];
    let trailer = |extensions: &[u8], flags: u8| {
        [&frame[..], &[1, 2, 3, 4], extensions, &seconds, &nanos, &[flags, 0, 7, 9]].concat()
    };
    let header = |scale: u8, format: u8, seconds: &[u8]| {
        [&frame[..12], &[0xd2, 0x8b, 0, 1, scale, format << 4], seconds, &nanos, &[8, 0], &frame[14..]].concat()
    };
    let sequence_number = [0, 0, 0, 5, 0, 0, 0, 0x60];
    let label = [1, 2, 3, 4, 0, 0, 0, 0x3f];
    vec![
        trailer(&[], 0x01),
        trailer(&sequence_number, 0x03),
        trailer(&[&label[..], &[0, 0, 0, 1]].concat(), 0x02),
        header(0, 1, &seconds),
        header(1, 2, &seconds[2..]),
    ]
}
