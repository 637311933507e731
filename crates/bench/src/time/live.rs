//! Errors of the methods of timestamping on a veth pair, against the departure times in the frames of the generator.
//!
//! The departure time of a frame is the time at which the generator wrote the frame into its transmit ring. The kernel
//! moves the frames of the transmit ring to the receiving interface in groups, so the differences contain the path
//! through the kernel as well, and are larger than the errors of the method alone.

use super::methods::InterArrivalError;
use super::picoseconds::NANO;
use crate::output::Stop;
use capture::auto::SourceKind;
use engine::{Capture, Generator, InterfacePlan, Method, Plan, SocketPlan, SourcePlan};
use r#gen::Spec;
use ring::{Desc, Listener, Mode, attach};
use serde::Serialize;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use timestamping::TimestampSetting;

/// The interfaces in a private network namespace.
const FROM: &str = "timea";
const TO: &str = "timeb";

/// Bytes of the departure time in a frame of the generator (crate `gen`): the low 48 bits of nanoseconds since 1970.
const DEPARTURE: std::ops::Range<usize> = 50..56;
/// Shorter frames are not from the generator.
const SHORTEST: usize = DEPARTURE.end;

/// Errors of one method with one kind of traffic.
#[derive(Debug, Serialize)]
pub struct LiveRow {
    /// The traffic.
    traffic: String,
    method: &'static str,
    source: &'static str,
    spin: bool,
    packets: usize,
    /// Packets that were lost or that the benchmark did not read in time.
    missing: u64,
    #[serde(flatten)]
    error: InterArrivalError,
}

impl fmt::Display for LiveRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<44} {:<8} {:<9} {:<9} {:>9.1} {:>9.0} {:>9.0}  {} packets, {} missing",
            self.traffic,
            self.source,
            if self.spin { "spinning" } else { "sleeping" },
            self.method,
            self.error.mean_ns,
            self.error.deviation_ns,
            self.error.p999_ns,
            self.packets,
            self.missing
        )
    }
}

/// The methods that are measured, and the kind of source.
pub const METHODS: [(TimestampSetting, SourceKind); 6] = [
    (TimestampSetting::Batch, SourceKind::AfXdp),
    (TimestampSetting::Udts, SourceKind::AfXdp),
    (TimestampSetting::Wdts, SourceKind::AfXdp),
    (TimestampSetting::Poll, SourceKind::AfXdp),
    (TimestampSetting::Adaptive, SourceKind::AfXdp),
    (TimestampSetting::Kernel, SourceKind::Tpacket),
];

/// Moves this thread into a network namespace with a veth pair.
pub fn create_pair() -> Result<(), Stop> {
    engine::private_pair(FROM, TO, 1500)
        .map_err(|e| Stop::error(format!("cannot create a veth pair in a network namespace: {e}; run as root")))
}

/// Sends this traffic and compares the timestamps with the departure times.
pub fn measure(traffic: &str, method: TimestampSetting, kind: SourceKind, spin: bool) -> Result<LiveRow, Stop> {
    let spec: Spec = format!("{traffic},truth").parse().map_err(Stop::error)?;
    let path = std::env::temp_dir().join(format!("netgrain-bench-time-{}.sock", std::process::id()));
    let socket = SocketPlan {
        path: path.clone(),
        mode: 0o600,
        uid: None,
        gid: None,
        allow_lossless: false,
        forward: Vec::new(),
    };
    let source = SourcePlan::Interface(InterfacePlan::new(TO, kind));
    let plan = Plan { socket: Some(socket), timestamps: method, spin, ring: Some(256 << 20), ..Plan::new(source) };
    let mut capture = Capture::start(&plan).map_err(Stop::error)?;
    let mut listener = attach(&path, Mode::Lossy, "netgrain-bench time").map_err(Stop::error)?.remove(0);
    let done = AtomicBool::new(false);
    let (mut stamps, mut departures) = (Vec::new(), Vec::new());
    let sent = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let generator = Generator::open(&spec, FROM, 0, Method::AfXdp);
            let sent = generator.and_then(|generator| generator.run(&AtomicBool::new(false), |_| ()));
            // The last frames are in the kernel's queues, and TPACKET hands them over after some milliseconds.
            std::thread::sleep(Duration::from_millis(100));
            done.store(true, Ordering::Relaxed);
            sent
        });
        loop {
            let is_last = done.load(Ordering::Relaxed);
            if !read(&mut listener, &mut stamps, &mut departures) {
                if is_last {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let sent = sent.map_err(Stop::error)?;
    capture.stop();
    capture.wait().map_err(Stop::error)?;
    Ok(LiveRow {
        traffic: traffic.to_owned(),
        method: method.name(),
        source: match kind {
            SourceKind::AfXdp => "af-xdp",
            SourceKind::Tpacket => "tpacket",
        },
        spin,
        packets: stamps.len(),
        missing: sent.sent.saturating_sub(stamps.len() as u64),
        error: InterArrivalError::of(&stamps, &departures),
    })
}

/// Reads the waiting packets; returns false if there were none.
fn read(listener: &mut Listener, stamps: &mut Vec<u64>, departures: &mut Vec<u64>) -> bool {
    let (mut batch, mut buffer) = (Vec::new(), Vec::new());
    listener.next(1024, &mut batch);
    for desc in batch.iter().filter(|desc| desc.is_packet()) {
        if let Some(departure) = departure_of(listener, desc, &mut buffer) {
            stamps.push(desc.ts);
            departures.push(departure);
        }
    }
    !batch.is_empty()
}

/// The departure time of a frame in picoseconds since 1970, modulo 2^48 ns; `None` if the ring has overwritten the
/// packet, or if the packet is not from the generator.
fn departure_of(listener: &Listener, desc: &Desc, buffer: &mut Vec<u8>) -> Option<u64> {
    let bytes = listener.packet(desc, buffer)?;
    let departure = bytes.get(..SHORTEST)?[DEPARTURE].iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
    Some(departure * NANO)
}
