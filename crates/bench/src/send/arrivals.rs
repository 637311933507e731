//! The frames that arrive at the peer interface, with the timestamps of the kernel.

use crate::output::Stop;
use capture::tpacket::{TpacketConfig, open};
use capture::{Polled, Source};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

/// Position of the sequence number in the frames of the crate `gen`.
const SEQUENCE: std::ops::Range<usize> = 44..50;
/// Position of the magic number before it.
const MAGIC: std::ops::Range<usize> = 42..44;

/// The time without frames after which all frames have arrived.
const QUIET: Duration = Duration::from_millis(300);

/// Receives frames in a thread.
pub struct Arrivals {
    thread: JoinHandle<Result<Vec<(u64, u64)>, String>>,
    ended: Arc<AtomicBool>,
}

/// The sequence numbers and times in nanoseconds of the frames, in the order of their arrival.
pub struct Arrived(Vec<(u64, u64)>);

/// The errors of the timing of one run.
#[derive(Debug, PartialEq)]
pub struct TimingErrors {
    pub missing: u64,
    /// Time from the first to the last frame, less the same time in the capture.
    pub duration_error_micros: f64,
    /// The differences, without sign, of each gap and the gap in the capture, in ascending order.
    pub gap_error_micros: Vec<f64>,
}

impl Arrivals {
    /// Begins to receive.
    pub fn begin(interface: &str) -> Result<Self, Stop> {
        let source = open(&TpacketConfig::new(interface)).map_err(Stop::error)?.pop();
        let mut source = source.ok_or_else(|| Stop::error("no packet socket was opened"))?;
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        let thread = std::thread::spawn(move || {
            let mut arrived = Vec::new();
            loop {
                let polled = source.poll(4096, QUIET, |frame| {
                    if let (Some(stamp), Some(number)) = (frame.stamp, number(frame.bytes)) {
                        arrived.push((number, stamp.nanos()));
                    }
                });
                match polled {
                    Ok(Polled::Frames(_)) => {}
                    Ok(Polled::Idle) if !end.load(Relaxed) => {}
                    Ok(Polled::Idle | Polled::End) => return Ok(arrived),
                    Err(e) => return Err(e.to_string()),
                }
            }
        });
        Ok(Self { thread, ended })
    }

    /// Waits until no more frames arrive, and returns all frames.
    pub fn end(self) -> Result<Arrived, Stop> {
        self.ended.store(true, Relaxed);
        match self.thread.join() {
            Ok(arrived) => arrived.map(Arrived).map_err(Stop::Failed),
            Err(_) => Err(Stop::error("the receiving thread has panicked; please report this")),
        }
    }
}

/// The number of a frame of the crate `gen`.
fn number(frame: &[u8]) -> Option<u64> {
    if frame.get(MAGIC)? != r#gen::MAGIC.to_be_bytes() {
        return None;
    }
    Some(frame.get(SEQUENCE)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

impl Arrived {
    /// Compares the arrivals with the times of the capture, in nanoseconds by sequence number.
    pub fn errors(&self, times: &[u64]) -> TimingErrors {
        let micros = |achieved: u64, scheduled: u64| (achieved as f64 - scheduled as f64) / 1e3;
        let scheduled = |number: u64| times.get(number as usize).copied().unwrap_or(0);
        let mut gaps: Vec<f64> = self
            .0
            .windows(2)
            .filter(|pair| pair[1].0 == pair[0].0 + 1)
            .map(|pair| micros(pair[1].1 - pair[0].1.min(pair[1].1), scheduled(pair[1].0) - scheduled(pair[0].0)).abs())
            .collect();
        gaps.sort_by(f64::total_cmp);
        let duration_error_micros = match (self.0.first(), self.0.last()) {
            (Some(first), Some(last)) => {
                micros(last.1 - first.1.min(last.1), scheduled(last.0).saturating_sub(scheduled(first.0)))
            }
            _ => 0.0,
        };
        let missing = (times.len() as u64).saturating_sub(self.0.len() as u64);
        TimingErrors { missing, duration_error_micros, gap_error_micros: gaps }
    }
}

/// Number of frames that an interface has received so far, from `/proc/thread-self/net/dev` (proc_net(5)), which shows
/// the network namespace of the calling thread.
pub fn received(interface: &str) -> Result<u64, Stop> {
    let failed =
        || Stop::error(format_args!("/proc/thread-self/net/dev has no line for {interface}; please report this"));
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").map_err(Stop::error)?;
    packets_of(&text, interface).ok_or_else(failed)
}

fn packets_of(text: &str, interface: &str) -> Option<u64> {
    let (_, fields) =
        text.lines().filter_map(|line| line.split_once(':')).find(|(name, _)| name.trim() == interface)?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_differences_to_the_capture() {
        let times = [0, 1000, 5000, 6000, 9000];
        let arrived = Arrived(vec![(0, 100), (1, 1600), (2, 5100), (4, 9300)]);
        let errors = arrived.errors(&times);
        // The gap before frame 4 has no counterpart, because frame 3 is missing.
        assert_eq!((errors.missing, errors.gap_error_micros), (1, vec![0.5, 0.5]));
        assert!((errors.duration_error_micros - 0.2).abs() < 1e-9);
        assert_eq!(Arrived(Vec::new()).errors(&times).missing, 5);
    }

    #[test]
    fn counters_of_the_interface_are_found() {
        let text = "Inter-|   Receive\n face |bytes    packets errs\n    lo: 1 2 3\n  ng-bench1: 500 7 0 0 0\n";
        assert_eq!((packets_of(text, "ng-bench1"), packets_of(text, "ng-bench")), (Some(7), None));
    }
}
