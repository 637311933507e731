//! The simulator on virtual time. It generates its own frames; a second run that is read frame by frame gives the
//! frames to expect.

use crate::common::{Delivered, Memory};
use base::Timestamp;
use netgrain_capture::sim::Sim;
use netgrain_capture::{Polled, Source};
use std::time::Duration;

pub struct Rig;

impl crate::conformance::Rig for Rig {
    type Source = Sim;
    const LIVE: bool = false;

    fn new(_: &str) -> Option<Self> {
        Some(Self)
    }

    fn start(&mut self, frames: &[Vec<u8>], _: Memory) -> (Sim, Vec<Vec<u8>>) {
        let spec = format!("128,truth,rate=1Mpps,packets={}", frames.len()).parse().unwrap_or_else(|e| panic!("{e}"));
        let open =
            || Sim::open(&spec, Some(Timestamp::from_secs_nanos(1_700_000_000, 0))).unwrap_or_else(|e| panic!("{e}"));
        let (mut oracle, mut expected) = (open(), Vec::new());
        while oracle.poll(1, Duration::ZERO, |f| expected.push(Delivered::new(f).bytes)).expect("poll") != Polled::End {
        }
        assert_eq!(expected.len(), frames.len());
        (open(), expected)
    }

    fn send(&mut self, _: &[Vec<u8>]) {
        unreachable!("a simulation sends by its own schedule");
    }
}
