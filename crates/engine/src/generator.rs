//! The sending loops of `netgrain gen`. An XDP program makes the frames in the kernel (`capture::live_frames`) if all
//! frames have one size, no rate is given, and the interface can count the frames there. Otherwise the loop writes the
//! traffic of the crate `gen`, paced by its pacer, directly into the UMEM of AF_XDP.

use base::Timestamp;
use base::units::Rate;
use capture::SourceError;
use capture::afxdp::{TransmitConfig, Transmitter};
use capture::live_frames::{LiveCounts, LiveFrames, LiveFramesConfig};
use r#gen::{Pacer, Parts, Spec, Traffic};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use sys::clock::Clock;
use sys::netlink::Netlink;

/// Number of frames that are written between two checks of the clock and the stop flag.
const BATCH: u64 = 64;

/// The longest sleep while no frame is due; it bounds the delay of a stop request.
const IDLE_SLEEP: Duration = Duration::from_millis(1);

/// If the next frame is due in less than this time, the loop spins instead of sleeping, because a sleep would end late
/// by the kernel's timer slack (50 µs) and the wake-up time.
const SPIN: Duration = Duration::from_micros(60);

/// Length of an Ethernet header, which the MTU does not include.
const LINK_HEADER: usize = 14;

/// Number of live frames per burst if a rate is given. One system call costs as much as a few dozen frames.
const LIVE_BURST: u64 = 512;

/// The counters of the sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Sent {
    /// Number of frames that were generated. Their sequence numbers are 0 to `made - 1`.
    pub made: u64,
    /// Number of frames that the driver accepted. With the method "live frames", the number of frames that the peer
    /// interface received.
    pub sent: u64,
    /// Number of frames that the driver dropped because the ring of the peer interface was full.
    pub dropped: u64,
    /// Total size of the generated frames in bytes, without FCS.
    pub bytes: u64,
    /// Nanoseconds from the first frame to the last frame.
    pub nanos: u64,
}

/// The method by which frames are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// Live frames if the traffic and the interface permit them, otherwise AF_XDP.
    #[default]
    Auto,
    /// An XDP program makes the frames in the kernel. This method is possible on veth interfaces, for frames of one
    /// size whose flows take turns. If a rate is given, the frames are sent in bursts.
    LiveFrames,
    /// The frames are sent through an AF_XDP socket. This method is possible for all traffic and on all interfaces.
    AfXdp,
}

/// Traffic that is ready to be sent.
pub struct Generator {
    spec: Spec,
    out: Out,
    description: String,
}

enum Out {
    LiveFrames(Box<LiveFrames>),
    AfXdp(Box<Transmitter>, Box<Traffic>),
}

impl Generator {
    /// Opens the interface for the traffic of `spec`. `queue` is the transmit queue for AF_XDP.
    ///
    /// # Errors
    /// Those of [`LiveFrames::open`] if `method` requires live frames, and those of [`Transmitter::open`].
    pub fn open(spec: &Spec, interface: &str, queue: u16, method: Method) -> Result<Self, SourceError> {
        let mut description = format!("AF_XDP transmit on {interface} queue {queue}");
        // If a rate is given, live frames are sent in bursts. Therefore they are used with a rate only if `method`
        // requests them.
        if method == Method::LiveFrames || method == Method::Auto && spec.rate == Rate::Flat {
            match live_frames(spec, interface) {
                Ok(out) => {
                    let (out, description) = (Out::LiveFrames(Box::new(out)), format!("live frames on {interface}"));
                    return Ok(Self { spec: spec.clone(), out, description });
                }
                Err(e) if method == Method::LiveFrames => return Err(e),
                // The traffic suits live frames, but they cannot be opened: the description contains the reason.
                Err(e) if suits_live_frames(spec) => description.push_str(&format!(" (no live frames: {e})")),
                Err(_) => (),
            }
        }
        let traffic = Traffic::new(spec);
        fits(interface, traffic.max_len())?;
        let config = TransmitConfig { frame_max: traffic.max_len(), ..TransmitConfig::new(interface, queue) };
        let out = Out::AfXdp(Box::new(Transmitter::open(&config)?), Box::new(traffic));
        Ok(Self { spec: spec.clone(), out, description })
    }

    /// Returns one line that says how the frames are sent.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Sends until a limit of the specification is reached or `stop` is set. `progress` is called about once a second.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn run(self, stop: &AtomicBool, progress: impl FnMut(Sent)) -> Result<Sent, SourceError> {
        match self.out {
            Out::LiveFrames(out) => send_live_frames(&self.spec, *out, stop, progress),
            Out::AfXdp(out, traffic) => send_af_xdp(&self.spec, *out, *traffic, stop, progress),
        }
    }
}

/// Returns an error for frames that the interface would drop because of their length.
pub(crate) fn fits(interface: &str, longest: usize) -> Result<(), SourceError> {
    // If the interface does not exist, this function returns no error, because opening the transmitter then fails with
    // an error that names the reason.
    let Ok(link) = Netlink::route().and_then(|mut n| n.link(interface)) else { return Ok(()) };
    if longest <= link.mtu as usize + LINK_HEADER {
        return Ok(());
    }
    let reason = format!(
        "frames of {longest} B are longer than its MTU of {} and {LINK_HEADER} B of header; `ip link set {interface} \
         mtu {}` makes room",
        link.mtu,
        longest - LINK_HEADER
    );
    Err(SourceError::Unsupported { name: interface.to_owned(), reason })
}

fn suits_live_frames(spec: &Spec) -> bool {
    Parts::new(spec).is_some()
}

fn live_frames(spec: &Spec, interface: &str) -> Result<LiveFrames, SourceError> {
    match Parts::new(spec) {
        Some(parts) => LiveFrames::open(&LiveFramesConfig::new(interface), &parts),
        None => Err(SourceError::Unsupported {
            name: interface.to_owned(),
            reason: "live frames have one size, and their flows take turns; send other traffic through \
                     AF_XDP"
                .to_owned(),
        }),
    }
}

fn send_live_frames(
    spec: &Spec,
    mut out: LiveFrames,
    stop: &AtomicBool,
    mut progress: impl FnMut(Sent),
) -> Result<Sent, SourceError> {
    let frame_bytes = out.frame_bytes() as u64;
    let (started, mut shown, mut made) = (Instant::now(), 0, 0);
    let limit = spec.packets.unwrap_or(u64::MAX);
    let mut pacer = Pacer::new(spec.rate, Timestamp::ZERO);
    let reported = |counts: LiveCounts, elapsed: Duration| Sent {
        made: counts.made,
        sent: counts.sent,
        dropped: counts.dropped,
        bytes: counts.made * frame_bytes,
        nanos: elapsed.as_nanos() as u64,
    };
    while !stop.load(Ordering::Relaxed) && made < limit {
        let elapsed = started.elapsed();
        if spec.duration.is_some_and(|d| elapsed >= d) {
            break;
        }
        if elapsed.as_secs() > shown {
            shown = elapsed.as_secs();
            progress(reported(out.counts()?, elapsed));
        }
        let mut most = limit - made;
        if spec.rate != Rate::Flat {
            most = pacer.due(Timestamp::ZERO.after(elapsed), frame_bytes as usize).min(LIVE_BURST).min(most);
            let burst = LIVE_BURST.min(limit - made);
            if most < burst {
                std::thread::sleep(live_pause(&pacer, burst, frame_bytes, elapsed));
                continue;
            }
        }
        let new = out.send(most)?;
        pacer.sent(new, new * frame_bytes);
        made += new;
    }
    let elapsed = started.elapsed();
    out.flush()?;
    let counts = out.counts()?;
    // Frames that count neither as sent nor as dropped after the flush did not reach the peer interface, so they are
    // reported as dropped.
    Ok(reported(LiveCounts { dropped: counts.dropped + counts.under_way, under_way: 0, ..counts }, elapsed))
}

/// Returns the time to sleep until a burst of frames is due or the stop flag must be checked.
fn live_pause(pacer: &Pacer, burst: u64, frame_bytes: u64, elapsed: Duration) -> Duration {
    let mut last = pacer.clone();
    last.sent(burst - 1, (burst - 1) * frame_bytes);
    last.departure().since(Timestamp::ZERO.after(elapsed)).clamp(SPIN, IDLE_SLEEP)
}

/// Returns the time to sleep if the next frame is due in `ahead`; `None` if this is too soon to sleep.
fn pause(ahead: Duration) -> Option<Duration> {
    ahead.checked_sub(SPIN).filter(|sleep| !sleep.is_zero()).map(|sleep| sleep.min(IDLE_SLEEP))
}

fn send_af_xdp(
    spec: &Spec,
    mut out: Transmitter,
    mut traffic: Traffic,
    stop: &AtomicBool,
    mut progress: impl FnMut(Sent),
) -> Result<Sent, SourceError> {
    let frame_max = traffic.max_len();
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
            if let Some(sleep) = pause(ahead) {
                out.flush()?;
                std::thread::sleep(sleep);
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
            // If a rate is given, a frame is sent when it is due, not when a batch is full.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_frames_at_10_kpps_sleep_until_their_burst_is_due() {
        let pacer = Pacer::new(Rate::Packets(10e3), Timestamp::ZERO);
        let (mut elapsed, mut sleeps) = (Duration::ZERO, 0);
        while pacer.due(Timestamp::ZERO.after(elapsed), 60) < LIVE_BURST {
            elapsed += live_pause(&pacer, LIVE_BURST, 60, elapsed);
            sleeps += 1;
        }
        // At the rate of this pacer, frame 512 is due after 51.1 ms, and each sleep lasts at most a millisecond.
        assert_eq!((elapsed.as_micros(), sleeps), (51_100, 52));
        let fast = Pacer::new(Rate::Bits(10e9), Timestamp::ZERO);
        assert_eq!(live_pause(&fast, LIVE_BURST, 60, Duration::ZERO), SPIN);
    }

    #[test]
    fn the_loop_sleeps_for_a_gap_of_100_us_and_not_for_a_shorter_one() {
        assert!(pause(Duration::from_micros(100)).is_some_and(|sleep| sleep < Duration::from_micros(100)));
        assert_eq!(pause(SPIN), None);
        assert_eq!(pause(Duration::from_secs(1)), Some(IDLE_SLEEP));
    }
}
