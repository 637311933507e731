//! What the tests of sources share: frames to send, and ways to read a source.

use base::{Cause, Prng, Timestamp};
use netgrain_capture::tpacket::{self, Tpacket, TpacketConfig};
use netgrain_capture::{Counts, Frame, Polled, Source};
use std::time::{Duration, SystemTime};
use testkit::Port;

/// Long enough for anything that is on its way; a test that waits it out fails, it does not pass.
const PATIENCE: Duration = Duration::from_secs(120);
pub const WAIT: Duration = Duration::from_millis(20);

/// How much a source may hold while nobody reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Enough for every burst of the suite.
    Usual,
    /// As little as the source can do with.
    Tiny,
}

/// A frame as it was handed over, with its tag put back as the engine does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    pub bytes: Vec<u8>,
    pub wire_len: u32,
    pub stamp: Option<Timestamp>,
    pub outgoing: bool,
    pub super_frame: bool,
}

impl Taken {
    pub fn new(frame: &Frame<'_>) -> Self {
        let mut bytes = frame.bytes.to_vec();
        let mut wire_len = frame.wire_len;
        if let Some(tag) = frame.vlan {
            bytes.splice(12..12, [tag.tpid.to_be_bytes(), tag.tci.to_be_bytes()].concat());
            wire_len += 4;
        }
        Self { bytes, wire_len, stamp: frame.stamp, outgoing: frame.outgoing, super_frame: frame.super_frame }
    }
}

/// Reads at most `most` frames, until they are there or the source ends.
pub fn read(source: &mut impl Source, most: usize) -> Vec<Taken> {
    let mut taken = Vec::new();
    let begun = SystemTime::now();
    while taken.len() < most {
        match source.poll(most - taken.len(), WAIT, |f| taken.push(Taken::new(f))).expect("poll") {
            Polled::Frames(_) => (),
            Polled::Idle if begun.elapsed().is_ok_and(|t| t < PATIENCE) => (),
            Polled::Idle | Polled::End => break,
        }
    }
    taken
}

/// Stops the source and reads it to its end.
pub fn stop_and_drain(source: &mut impl Source) -> Vec<Taken> {
    source.stop();
    let mut taken = Vec::new();
    let begun = SystemTime::now();
    // Without a wait, so that a source that forgets what is still on its way is caught at it.
    while source.poll(64, Duration::ZERO, |f| taken.push(Taken::new(f))).expect("poll") != Polled::End {
        assert!(begun.elapsed().is_ok_and(|t| t < PATIENCE), "a stopped source must end");
    }
    taken
}

/// Losses behind the point where the source counts.
pub fn lost(counts: &Counts) -> u64 {
    counts.lost.iter().sum::<u64>() - counts.lost[Cause::Nic as usize]
}

/// Ethernet frames of `len` bytes that carry their number and noise, and look like no protocol that anyone answers.
pub fn numbered(range: std::ops::Range<u32>, len: impl Fn(u32) -> usize) -> Vec<Vec<u8>> {
    range.map(|number| frame(number, len(number), &[])).collect()
}

/// One frame of `len` bytes with VLAN tags (identifier, control information), outermost first.
pub fn frame(number: u32, len: usize, tags: &[(u16, u16)]) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    for (tpid, tci) in tags {
        bytes.extend(tpid.to_be_bytes());
        bytes.extend(tci.to_be_bytes());
    }
    // IEEE 802 local experimental EtherType 1.
    bytes.extend(0x88b5u16.to_be_bytes());
    bytes.extend(number.to_be_bytes());
    let start = bytes.len();
    bytes.resize(len, 0);
    Prng::new(u64::from(number)).fill(&mut bytes[start..]);
    bytes
}

/// A configuration with as much memory as asked for.
pub fn config(port: &Port, memory: Memory) -> TpacketConfig {
    let config = TpacketConfig::new(&port.name);
    match memory {
        Memory::Usual => TpacketConfig { blocks: 16, ..config },
        Memory::Tiny => TpacketConfig { block_bytes: 128 << 10, blocks: 2, ..config },
    }
}

/// The only source of a configuration with one thread.
pub fn open_one(config: &TpacketConfig) -> Tpacket {
    let mut sources = tpacket::open(config).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(sources.len(), 1);
    sources.remove(0)
}
