//! The detectors of [`Inst::Duplicate`](crate::Inst::Duplicate): each has a table of the last packets.
//!
//! All workers of a program share the detectors, because the copies of a packet may arrive on different queues and
//! interfaces. A detector compares the packets in the order in which the workers evaluate them.

use crate::{Facts, Program};
use base::Timestamp;
use duplicates::{Detector, Packet, Settings};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use wire::link;

/// Number of packets that a detector compares with each packet at most.
pub const RECORDS: usize = 1 << 16;

/// The longest window of a detector in nanoseconds.
pub const WINDOW_MAX: u64 = duplicates::settings::WINDOW_MAX.as_nanos() as u64;

/// The declaration of a detector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detection {
    /// The longest time in nanoseconds between a packet and its duplicate, from 1 to [`WINDOW_MAX`].
    pub window: u64,
}

impl Detection {
    /// The settings of the detector. Packets of different interfaces are compared, and the workers may evaluate them in
    /// another order than they were on the wire.
    pub fn settings(&self) -> Settings {
        let window = Duration::from_nanos(self.window);
        Settings { window, records: RECORDS, unordered_interfaces: true, ..Settings::default() }
    }
}

/// See the module documentation. The memory of a detector is allocated for its first packet.
pub struct DuplicateDetectors {
    detectors: Vec<(Detection, Mutex<Option<Detector>>)>,
    key: u64,
}

impl std::fmt::Debug for DuplicateDetectors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.detectors.iter().map(|(detection, _)| detection)).finish()
    }
}

impl DuplicateDetectors {
    /// The detectors of a program before the first packet. `key` is the secret key of the flow hashes.
    pub fn of(program: &Program, key: u64) -> Self {
        let detector = |detection: &Detection| (*detection, Mutex::default());
        Self { detectors: program.detectors.iter().map(detector).collect(), key }
    }

    /// The duplicate class of the packet as a number; 0 if the packet is no duplicate, or has no Ethernet header.
    pub fn class(&self, detector: u16, frame: &[u8], facts: &Facts) -> u64 {
        let Some((detection, detector)) = self.detectors.get(usize::from(detector)) else { return 0 };
        if facts.ethernet == 0 {
            return 0;
        }
        // A thread that panicked has left the table in a state that is also possible between two packets.
        let mut detector = detector.lock().unwrap_or_else(PoisonError::into_inner);
        if detector.is_none() {
            *detector = Detector::new(detection.settings(), self.key).ok();
        }
        let packet = Packet {
            ts: Timestamp::from_nanos(facts.time),
            data: frame,
            wire_len: facts.wire_len.max(frame.len() as u32),
            link_type: link::ETHERNET,
            interface: facts.port,
        };
        let found = detector.as_mut().and_then(|detector| detector.inspect(&packet));
        found.map_or(0, |duplicate| duplicate.class as u64)
    }
}
