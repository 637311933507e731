//! The sending loop of `netgrain gen`: traffic from `gen`, pace from its pacer, frames into AF_XDP's memory in place.

use base::Timestamp;
use base::units::Rate;
use capture::SourceError;
use capture::afxdp::{TransmitConfig, Transmitter};
use r#gen::{Pacer, Spec, Traffic};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use sys::clock::Clock;

/// Frames filled between two looks at the clock and the stop flag.
const BATCH: u64 = 64;

/// Longest sleep while nothing is due, so that stopping is prompt.
const NAP: Duration = Duration::from_millis(1);

/// Below this much time to the next frame the loop spins: a sleep would be late.
const SPIN: Duration = Duration::from_micros(100);

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Sent {
    /// Frames made; their sequence numbers are 0 to this, excluded.
    pub made: u64,
    /// Frames the driver took.
    pub sent: u64,
    /// Frames the driver dropped for want of room at the other end.
    pub dropped: u64,
    /// Bytes of all frames made, without frame check sequence.
    pub bytes: u64,
    /// From the first frame to the last.
    pub nanos: u64,
}

/// Sends until the specification's limits, or until told to stop. `progress` is called about once a second.
///
/// # Errors
/// The transmitter's.
pub fn generate(
    spec: &Spec,
    interface: &str,
    queue: u16,
    stop: &AtomicBool,
    mut progress: impl FnMut(Sent),
) -> Result<Sent, SourceError> {
    let mut traffic = Traffic::new(spec);
    let frame_max = traffic.max_len();
    let mut out = Transmitter::open(&TransmitConfig { frame_max, ..TransmitConfig::new(interface, queue) })?;
    let mut clock = Clock::start();
    let started = Instant::now();
    let mut pacer = Pacer::new(spec.rate, Timestamp::ZERO);
    let limit = spec.packets.unwrap_or(u64::MAX);
    let (mut sent, mut shown) = (Sent::default(), 0);
    while !stop.load(Ordering::Relaxed) && sent.made < limit {
        clock.keep();
        let elapsed = started.elapsed();
        if spec.duration.is_some_and(|d| elapsed >= d) {
            break;
        }
        if elapsed.as_secs() > shown {
            shown = elapsed.as_secs();
            progress(finish(sent, &mut out, elapsed)?);
        }
        let due = pacer.due(Timestamp::ZERO.after(elapsed), frame_max).min(BATCH).min(limit - sent.made);
        if due == 0 {
            let ahead = pacer.departure().since(Timestamp::ZERO.after(elapsed));
            if ahead > SPIN {
                out.flush()?;
                std::thread::sleep(ahead.saturating_sub(SPIN).min(NAP));
            }
            continue;
        }
        let mut bytes = 0;
        let filled = out.send(due as usize, |_, place| {
            let len = traffic.fill(place, clock.now());
            bytes += len as u64;
            len
        })?;
        pacer.sent(filled as u64, bytes);
        sent.made += filled as u64;
        sent.bytes += bytes;
        if spec.rate != Rate::Flat {
            // At a rate, a frame leaves when it is due, not when a batch is full.
            out.flush()?;
        }
    }
    while !out.flush()? && !stop.load(Ordering::Relaxed) {}
    finish(sent, &mut out, started.elapsed())
}

fn finish(mut sent: Sent, out: &mut Transmitter, elapsed: Duration) -> Result<Sent, SourceError> {
    let counts = out.counts()?;
    (sent.sent, sent.dropped) = (counts.sent, counts.dropped);
    sent.nanos = elapsed.as_nanos() as u64;
    Ok(sent)
}
