//! Sends trains through a packet socket or AF_XDP.
//!
//! By default the sender waits for each departure: by a sleep while the departure is far, and by reading the time
//! stamp counter in a loop when the departure is near. It reads the clock immediately before the system call. If the
//! interface has the queueing discipline ETF (tc-etf(8)), the sender passes each packet with its launch time to the
//! kernel in advance, and the kernel or the NIC sends the packet at this time. If the driver has launch times for
//! AF_XDP and the NIC's clock can be read, the sender passes the packet with its launch time to the NIC.
//!
//! Departures are planned from the start of the run, so a late packet does not delay the packets after it.

use crate::generator::fits;
use crate::train_report::TrainReport;
use base::{ErrorEstimate, Timestamp};
use capture::afxdp::{CopyMode, TransmitConfig, Transmitter};
use capture::{NicTime, SourceError};
use r#gen::train::{Departure, DeparturePlace, Departures, TrainFrames, TrainSpec};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use sys::clock::Clock;
use sys::netlink::{Link, Netlink, netdev};
use sys::packet::PacketSocket;

/// The first departure after the start of the run. Until then the thread has started and its memory is mapped.
const START_DELAY: Duration = Duration::from_millis(10);

/// The longest sleep; it bounds the delay of a stop request.
const IDLE_SLEEP: Duration = Duration::from_millis(1);

/// If a departure is due in less than this time, the sender reads the clock in a loop instead of sleeping. A sleep ends
/// late by the kernel's timer slack (50 µs) and the wake-up time.
const SPIN: Duration = Duration::from_micros(150);

/// If a departure is at least this far, there is time to fit the clock again, which takes about a microsecond.
const FIT_TIME: Duration = Duration::from_micros(5);

/// The clock is fitted again after this number of packets even if no departure is far enough.
const FIT_PACKETS: u64 = 4096;

/// The time by which a packet with a launch time is passed to the kernel in advance. It must be longer than the `delta`
/// of ETF.
const LAUNCH_LEAD: Duration = Duration::from_millis(2);

/// The period in which the synchronisation of the system clock is read.
const CLOCK_PERIOD: Duration = Duration::from_secs(1);

/// The method by which departures are timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LaunchMethod {
    /// Launch times if the interface has the queueing discipline ETF or the driver has launch times for AF_XDP,
    /// otherwise a busy wait.
    #[default]
    Auto,
    /// The sender waits for each departure.
    BusyWait,
    /// The kernel or the NIC sends each packet at its launch time.
    LaunchTime,
}

/// Trains that are ready to be sent.
pub struct TrainSender {
    spec: TrainSpec,
    frames: TrainFrames,
    out: Out,
    interface: String,
    description: String,
}

/// The way of the packets to the NIC.
enum Out {
    /// A packet socket; the sender waits for each departure.
    Socket(PacketSocket),
    /// A packet socket, and the queueing discipline ETF.
    Etf(PacketSocket),
    /// AF_XDP, and the NIC's launch times.
    Nic(Box<NicOut>),
}

/// A NIC that sends packets at their launch times.
struct NicOut {
    transmitter: Transmitter,
    clock: NicTime,
}

impl Out {
    const fn has_launch_times(&self) -> bool {
        !matches!(self, Self::Socket(_))
    }
}

impl TrainSender {
    /// Opens the interface for the trains of `spec`. If the specification has no source MAC address, the frames have
    /// that of the interface.
    ///
    /// # Errors
    /// [`SourceError::System`] if the kernel refuses the interface or the socket, [`SourceError::Unsupported`] if the
    /// frames exceed the MTU, or if `method` requires launch times and the interface has none.
    pub fn open(spec: &TrainSpec, interface: &str, method: LaunchMethod) -> Result<Self, SourceError> {
        let fail = |what: &'static str, advice: &str| {
            let (name, advice) = (interface.to_owned(), advice.to_owned());
            move |error: io::Error| SourceError::System { name, what, error, advice }
        };
        let mut netlink = Netlink::route().map_err(fail("query the kernel's interfaces", ""))?;
        let link = netlink.link(interface).map_err(fail("find the interface", "`ip link` lists the interfaces"))?;
        let spec = TrainSpec { source_mac: spec.source_mac.or(link.mac), ..spec.clone() };
        let frames = TrainFrames::new(&spec);
        fits(interface, frames.max_len())?;
        let socket =
            PacketSocket::open().map_err(fail("open a packet socket", "sending needs root, or CAP_NET_RAW"))?;
        socket.bind(link.index, None).map_err(fail("bind a packet socket", ""))?;
        let disciplines = netlink.queueing_disciplines(link.index).unwrap_or_default();
        let (out, timing) = if method == LaunchMethod::BusyWait {
            (Out::Socket(socket), "busy wait for each departure".to_owned())
        } else if disciplines.iter().any(|kind| kind == "etf") {
            socket.use_launch_times().map_err(fail("use launch times", "launch times need CAP_NET_ADMIN"))?;
            (Out::Etf(socket), "launch times of the queueing discipline etf".to_owned())
        } else {
            match nic_out(&link, frames.max_len()) {
                Ok(out) => (Out::Nic(Box::new(out)), "launch times of the NIC (AF_XDP)".to_owned()),
                Err(reason) if method == LaunchMethod::LaunchTime => {
                    return Err(no_launch_times(interface, &disciplines, &reason));
                }
                Err(reason) => {
                    let timing = "busy wait for each departure (no launch times: the interface has no queueing \
                                  discipline etf, and";
                    (Out::Socket(socket), format!("{timing} {reason})"))
                }
            }
        };
        let way = if matches!(out, Out::Nic(_)) { "AF_XDP" } else { "packet socket" };
        let description = format!("{way} on {interface}: {timing}");
        let interface = interface.to_owned();
        Ok(Self { spec, frames, out, interface, description })
    }

    /// Returns one line that says how departures are timed.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The point at which the departure times in the packets are taken.
    pub const fn place(&self) -> DeparturePlace {
        if self.out.has_launch_times() { DeparturePlace::LaunchTime } else { DeparturePlace::BeforeSend }
    }

    /// Sends until the end of the trains or until `stop` is set. `progress` is called about once a second with the
    /// number of packets sent.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn run(mut self, stop: &AtomicBool, mut progress: impl FnMut(u64)) -> Result<TrainReport, SourceError> {
        let mut clock = Clock::start();
        let mut run = Run {
            report: TrainReport::default(),
            buf: vec![0; self.frames.max_len()],
            error: estimate(&clock),
            read: clock.now(),
            tai_offset: tai_offset(),
            first: None,
            previous: None,
        };
        let start = clock.now().after(START_DELAY);
        let has_launch_times = self.out.has_launch_times();
        let spec = self.spec.clone();
        for departure in Departures::new(&spec) {
            let len = self.frames.prepare(&mut run.buf, &departure);
            let due = start.after(departure.at);
            let wake = if has_launch_times { due.before(LAUNCH_LEAD) } else { due };
            if departure.sequence.is_multiple_of(FIT_PACKETS) {
                clock.keep();
            }
            if !wait_until(&mut clock, wake, stop) {
                break;
            }
            self.send(&mut run, &clock, &departure, due, len)?;
            let now = clock.now();
            if now.since(run.read) >= CLOCK_PERIOD {
                (run.error, run.read, run.tai_offset) = (estimate(&clock), now, tai_offset());
                if let Out::Nic(nic) = &mut self.out {
                    nic.clock.renew();
                }
                progress(run.report.sent);
            }
        }
        run.report.unlaunched = self.unlaunched()?.min(run.report.sent);
        run.report.sent -= run.report.unlaunched;
        run.report.clock = Some(run.error);
        run.report.clock_steps = clock.steps();
        run.report.nanos = run.previous.zip(run.first).map_or(0, |(last, first)| last.0.since(first).as_nanos() as u64);
        Ok(run.report)
    }

    /// Waits until the last packets are launched, and returns the number of packets that were not launched.
    fn unlaunched(&mut self) -> Result<u64, SourceError> {
        match &mut self.out {
            Out::Socket(_) => Ok(0),
            Out::Etf(socket) => {
                std::thread::sleep(LAUNCH_LEAD);
                let failures = socket.take_launch_failures();
                failures.map_err(|e| self.system("read the launch failures", e))
            }
            Out::Nic(nic) => {
                std::thread::sleep(LAUNCH_LEAD);
                nic.transmitter.flush()?;
                let counts = nic.transmitter.counts()?;
                Ok(counts.dropped + counts.invalid + counts.under_way)
            }
        }
    }

    /// Sends the prepared packet, whose time has come.
    fn send(
        &mut self,
        run: &mut Run,
        clock: &Clock,
        departure: &Departure,
        due: Timestamp,
        len: usize,
    ) -> Result<(), SourceError> {
        let now = clock.now();
        let outcome = match &mut self.out {
            Out::Socket(socket) => {
                self.frames.stamp(&mut run.buf, departure, now, DeparturePlace::BeforeSend, run.error);
                socket.send_once(&run.buf[..len])
            }
            Out::Etf(socket) => {
                self.frames.stamp(&mut run.buf, departure, due, DeparturePlace::LaunchTime, run.error);
                socket.send_at(&run.buf[..len], Duration::from_nanos(due.nanos()) + run.tai_offset)
            }
            Out::Nic(nic) => {
                self.frames.stamp(&mut run.buf, departure, due, DeparturePlace::LaunchTime, run.error);
                let launch = nic.clock.nic_nanos_at(due);
                let is_accepted = nic.transmitter.send_at(launch, |place| {
                    place[..len].copy_from_slice(&run.buf[..len]);
                    len
                })?;
                if is_accepted { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
            }
        };
        run.report.made += 1;
        run.report.bytes += len as u64;
        match outcome {
            Ok(()) => run.report.sent += 1,
            Err(e) if is_queue_full(&e) => run.report.refused += 1,
            Err(e) => return Err(self.system("send", e)),
        }
        let has_launch_times = self.out.has_launch_times();
        let planned = if has_launch_times { due.before(LAUNCH_LEAD) } else { due };
        run.first.get_or_insert(now);
        run.report.lateness.add(difference(now, planned));
        if let Some((before, at)) = run.previous.replace((now, departure.at))
            && !has_launch_times
        {
            let requested = i64::try_from((departure.at - at).as_nanos()).unwrap_or(i64::MAX);
            let gaps = &mut run.report.gaps;
            let errors = if departure.index > 0 { &mut gaps.inside_bursts } else { &mut gaps.between_bursts };
            errors.add(difference(now, before).saturating_sub(requested));
        }
        Ok(())
    }

    fn system(&self, what: &'static str, error: io::Error) -> SourceError {
        SourceError::System { name: self.interface.clone(), what, error, advice: String::new() }
    }
}

/// The state of a run.
struct Run {
    report: TrainReport,
    buf: Vec<u8>,
    /// The error estimate of the clock, and the time at which it was read.
    error: ErrorEstimate,
    read: Timestamp,
    tai_offset: Duration,
    /// The time at which the first packet was sent.
    first: Option<Timestamp>,
    /// The last packet: the time at which it was sent, and its planned departure.
    previous: Option<(Timestamp, Duration)>,
}

/// AF_XDP with launch times of the NIC for frames of at most `longest` bytes.
///
/// # Errors
/// The reason why the interface does not have them, as a sentence.
fn nic_out(link: &Link, longest: usize) -> Result<NicOut, String> {
    match netdev::xdp_features(link.index) {
        Ok(features) if features.has_launch_time => (),
        Ok(_) => return Err("the driver has no launch times for AF_XDP".to_owned()),
        Err(e) => {
            return Err(format!("the kernel does not report whether the driver has launch times for AF_XDP ({e})"));
        }
    }
    // A launch time is a time of the NIC's clock.
    let clock = match NicTime::open(&link.name) {
        (clock, None) => clock,
        (_, Some(warning)) => return Err(format!("launch times for AF_XDP need the NIC's clock: {warning}")),
    };
    let config = TransmitConfig {
        frame_max: longest,
        copy: CopyMode::ZeroCopy,
        launch_times: true,
        ..TransmitConfig::new(&link.name, 0)
    };
    let transmitter = Transmitter::open(&config).map_err(|e| format!("AF_XDP is not available: {e}"))?;
    Ok(NicOut { transmitter, clock })
}

fn no_launch_times(interface: &str, disciplines: &[String], reason: &str) -> SourceError {
    let reason = format!(
        "launch times need the queueing discipline etf on this interface, which has {}, or launch times of the driver \
         for AF_XDP, but {reason}: `tc qdisc replace dev {interface} root etf clockid CLOCK_TAI delta 300000` adds etf \
         if the kernel has it; or send without launch times (--launch busy-wait)",
        if disciplines.is_empty() { "none".to_owned() } else { disciplines.join(", ") }
    );
    SourceError::Unsupported { name: interface.to_owned(), reason }
}

/// Waits until a time; returns false if `stop` was set before.
fn wait_until(clock: &mut Clock, time: Timestamp, stop: &AtomicBool) -> bool {
    loop {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        let now = clock.now();
        if now >= time {
            return true;
        }
        let ahead = time.since(now);
        if ahead >= FIT_TIME {
            clock.keep();
        }
        if let Some(sleep) = ahead.checked_sub(SPIN).filter(|sleep| !sleep.is_zero()) {
            std::thread::sleep(sleep.min(IDLE_SLEEP));
        } else {
            std::hint::spin_loop();
        }
    }
}

/// True if the frame did not fit the queue of the interface or the buffer of the socket.
fn is_queue_full(error: &io::Error) -> bool {
    error.raw_os_error() == Some(sys::packet::QUEUE_FULL) || error.kind() == io::ErrorKind::WouldBlock
}

/// The error estimate of the system clock with that of the fit of the time stamp counter.
fn estimate(clock: &Clock) -> ErrorEstimate {
    match sys::timex::clock_status() {
        Ok(status) => ErrorEstimate::of(status.maximum_error + clock.error(), status.synchronised),
        Err(_) => ErrorEstimate::of(Duration::MAX, false),
    }
}

/// The difference of the clocks TAI and UTC of this system.
fn tai_offset() -> Duration {
    let seconds = sys::timex::clock_status().map_or(0, |status| status.tai_offset);
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

fn difference(later: Timestamp, earlier: Timestamp) -> i64 {
    later.nanos().wrapping_sub(earlier.nanos()).cast_signed()
}
