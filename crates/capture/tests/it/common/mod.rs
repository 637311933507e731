//! Helpers for the tests of sources: frames to send, and functions that read a source.

use base::{Cause, Prng, Timestamp};
use netgrain_capture::tpacket::{self, Tpacket, TpacketConfig};
use netgrain_capture::{Counts, Frame, Polled, Source};
use std::time::{Duration, SystemTime};
use testkit::Port;

/// The time after which a wait has failed; long enough for a loaded machine.
const WAIT_MAX: Duration = Duration::from_secs(120);
pub const WAIT: Duration = Duration::from_millis(20);

/// How many frames the buffer of a source must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The buffer has space for every burst of the tests.
    Usual,
    /// The smallest buffer that the source accepts.
    Tiny,
}

/// A frame that a source delivered, with its VLAN tag reinserted as the engine does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    pub bytes: Vec<u8>,
    pub wire_len: u32,
    pub stamp: Option<Timestamp>,
    pub outgoing: bool,
    pub super_frame: bool,
}

impl Delivered {
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

/// Reads until `max` frames have been delivered or the source ends.
pub fn read(source: &mut impl Source, max: usize) -> Vec<Delivered> {
    let mut delivered = Vec::new();
    let begun = SystemTime::now();
    while delivered.len() < max {
        match source.poll(max - delivered.len(), WAIT, |f| delivered.push(Delivered::new(f))).expect("poll") {
            Polled::Frames(_) => (),
            Polled::Idle if begun.elapsed().is_ok_and(|t| t < WAIT_MAX) => (),
            Polled::Idle | Polled::End => break,
        }
    }
    delivered
}

/// Stops the source and reads it to its end.
pub fn stop_and_drain(source: &mut impl Source) -> Vec<Delivered> {
    source.stop();
    let mut delivered = Vec::new();
    let begun = SystemTime::now();
    // The poll does not wait, so that a source that does not deliver its buffered frames fails the test.
    while source.poll(64, Duration::ZERO, |f| delivered.push(Delivered::new(f))).expect("poll") != Polled::End {
        assert!(begun.elapsed().is_ok_and(|t| t < WAIT_MAX), "a stopped source must end");
    }
    delivered
}

/// The losses that `Counts::seen` includes: all causes except the NIC.
pub fn lost(counts: &Counts) -> u64 {
    counts.lost.iter().sum::<u64>() - counts.lost[Cause::Nic as usize]
}

/// Returns Ethernet frames of `len` bytes. Each contains its number and pseudorandom bytes, and has a protocol to which
/// no host responds.
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

/// Returns the configuration of a TPACKET source with this ring size.
pub fn config(port: &Port, memory: Memory) -> TpacketConfig {
    let config = TpacketConfig::new(&port.name);
    match memory {
        Memory::Usual => TpacketConfig { blocks: 16, ..config },
        Memory::Tiny => TpacketConfig { block_bytes: 128 << 10, blocks: 2, ..config },
    }
}

/// Opens the only source of a configuration with one thread.
pub fn open_one(config: &TpacketConfig) -> Tpacket {
    let mut sources = tpacket::open(config).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(sources.len(), 1);
    sources.remove(0)
}
