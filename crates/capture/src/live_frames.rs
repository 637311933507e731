//! Sending at full speed: an XDP program makes the frames inside the kernel, without a socket and without a copy.
//!
//! `BPF_PROG_TEST_RUN` with `BPF_F_TEST_XDP_LIVE_FRAMES` (net/bpf/test_run.c, kernel 5.18) runs a program on pages that
//! the kernel allocates, and executes the program's verdict. The program of `program.rs` turns each page into the next
//! frame of the traffic and redirects it to the interface. This sends two to three times as many frames as AF_XDP in
//! copy mode, and they equal the frames of `gen::Traffic` byte for byte, for traffic of one frame size and with flows
//! in turn. The [`Transmitter`](crate::afxdp::Transmitter) sends mixed sizes.
//!
//! **Path and counters.** Only veth interfaces are supported, because only there the counters cover every path of a
//! frame. The peer interface receives frames only while it has an XDP program or GRO is on; the kernel reports in the
//! XDP features of the sending interface whether this is so. The peer's ring has 256 entries; a frame that finds no
//! free entry is dropped (`veth_xdp_xmit` in drivers/net/veth.c) and counted in the interface's `tx_dropped`.
//! `tx_packets` counts the frames that the peer's receive loop has taken out. `under_way` counts the frames in neither
//! counter: they are in flight. A frame that remains in neither counter was refused before the driver received it,
//! because the peer's program was detached. So `made = sent + dropped + under_way` holds exactly, as long as no other
//! process sends on the interface.
//!
//! After each batch of 64 frames the peer's receive loop runs on the same CPU and takes up to 64 frames at a time, so
//! the 256 entries of the peer's ring suffice for this batch size. With larger batches, or with a receive loop in a
//! separate, slower thread (`/sys/class/net/IFACE/threaded`), frames are lost. The counters show how many.

mod program;
mod ready;

use crate::SourceError;
use bpf::{Frames, LoadError, Program};
use r#gen::Parts;
use program::{LOW_48, Maps};
use ready::PreparedRun;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};
use sys::clock::realtime;
use sys::netlink::netdev::{feature, xdp_features};
use sys::netlink::{Link, LinkStats, Netlink};
use sys::privilege::{self, Capabilities, Capability};

/// Length of the longest frame: a page less the kernel's metadata in the same page, rounded down.
pub const MAX_LEN: usize = 3392;

/// Maximum number of flows: each costs one system call before the first frame and 24 bytes of kernel memory.
pub const MAX_FLOWS: u32 = 1 << 20;

/// Number of frames that are sent between two runs of the peer's receive loop.
pub const BATCH: u32 = 64;

/// The approximate duration of one system call. It is short, because a stop takes effect only between two calls.
const CALL_DURATION: Duration = Duration::from_millis(4);

/// Time that the peer may need to receive the frames in flight.
const TIMEOUT: Duration = Duration::from_millis(100);

/// How to send.
#[derive(Clone, Debug)]
pub struct LiveFramesConfig {
    /// The interface.
    pub interface: String,
    /// The sequence number of the first frame; its low 48 bits are sent.
    pub first: u64,
    /// Number of frames that are passed to the driver together, 1 to 256; with more than [`BATCH`], expect losses.
    pub batch: u32,
}

impl LiveFramesConfig {
    /// Returns the default configuration: sequence numbers from 0, in batches of [`BATCH`].
    pub fn new(interface: &str) -> Self {
        Self { interface: interface.to_owned(), first: 0, batch: BATCH }
    }
}

/// Cumulative counters of [`LiveFrames`]; the module documentation names their sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveCounts {
    /// Number of frames that the XDP program has generated. Each frame has its own sequence number.
    pub made: u64,
    /// Number of frames that the peer has received.
    pub sent: u64,
    /// Number of frames that were dropped because the peer's ring was full.
    pub dropped: u64,
    /// Number of frames that are counted in neither `sent` nor `dropped`. They are in flight; if [`LiveFrames::flush`]
    /// returned false, they are lost.
    pub under_way: u64,
}

/// Sends frames of one size.
pub struct LiveFrames {
    netlink: Netlink,
    name: String,
    ifindex: u32,
    template: Vec<u8>,
    maps: Maps,
    program: PreparedRun,
    first: u64,
    made: u64,
    before: LinkStats,
    batch: u32,
    /// Frames per system call, so that a call takes about a [`SLICE`].
    frames_per_call: u64,
}

impl LiveFrames {
    /// Prepares to send the frames that `parts` describes through the interface of `config`. Neither attaches a program
    /// to the interface nor sends a frame.
    ///
    /// # Errors
    /// [`SourceError::Unsupported`] if these frames or this interface need another sending method, with its name;
    /// otherwise the error of the kernel, with advice.
    pub fn open(config: &LiveFramesConfig, parts: &Parts) -> Result<Self, SourceError> {
        let name = &config.interface;
        let system = |what, error| system_error(name, what, error);
        let mut netlink = Netlink::route().map_err(|e| system("query the interface", e))?;
        let link = netlink.link(name).map_err(|e| system("find the interface", e))?;
        check(config, parts, &link)
            .map_err(|e| SourceError::Unsupported { name: name.clone(), reason: e.to_string() })?;
        let tai_ahead = tai_ahead().map_err(|e| e.into_source_error(name))?;
        let first = config.first & LOW_48;
        let maps = Maps::create(parts, first).map_err(|e| system("create the maps of the sending program", e))?;
        let template = parts.template().to_vec();
        let code = program::code(&maps, template.len(), parts.flows(), link.index, tai_ahead);
        let program = Program::load("netgrain_gen", &code, Frames::Linear)
            .map_err(|refusal| ClockError::Load(refusal).into_source_error(name))?;
        let program =
            PreparedRun::keep(program).map_err(|e| system("attach the sending program to an unused interface", e))?;
        Ok(Self {
            netlink,
            name: name.clone(),
            ifindex: link.index,
            template,
            maps,
            program,
            first,
            made: 0,
            before: link.stats,
            batch: config.batch,
            frames_per_call: u64::from(config.batch),
        })
    }

    /// Sends up to `count` frames in one system call of a few milliseconds. Returns the number sent: at least one,
    /// unless `count` is 0 or a signal interrupted the call.
    ///
    /// # Errors
    /// Returns the kernel's error if a system call fails.
    pub fn send(&mut self, count: u64) -> Result<u64, SourceError> {
        let count = count.min(self.frames_per_call);
        if count == 0 {
            return Ok(0);
        }
        let begun = Instant::now();
        // The kernel is told that the frames arrived on the loopback interface, because it requires a valid receive
        // queue, and a veth interface has one only while it receives XDP frames itself.
        match self.program.get().run_live(&self.template, 0, count as u32, self.batch) {
            Ok(()) => (),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => (),
            Err(e) => return Err(system_error(&self.name, "send", e)),
        }
        let taken = begun.elapsed();
        let next = self.maps.next().map_err(|e| system_error(&self.name, "read the sequence number", e))?;
        let made = next - self.first;
        let new = made - self.made;
        self.made = made;
        if taken > CALL_DURATION {
            self.frames_per_call = (self.frames_per_call / 2).max(u64::from(self.batch));
        } else if new == self.frames_per_call && taken < CALL_DURATION / 2 {
            self.frames_per_call = (self.frames_per_call * 2).min(1 << 20);
        }
        Ok(new)
    }

    /// Waits until the peer has received all frames; false if some are still in flight after 100 ms.
    ///
    /// # Errors
    /// As for [`LiveFrames::counts`].
    pub fn flush(&mut self) -> Result<bool, SourceError> {
        let until = Instant::now() + TIMEOUT;
        while self.counts()?.under_way > 0 {
            if Instant::now() > until {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(true)
    }

    /// The present counters; the query to the kernel takes about ten microseconds.
    ///
    /// # Errors
    /// [`SourceError::Gone`] if the interface has disappeared.
    pub fn counts(&mut self) -> Result<LiveCounts, SourceError> {
        let link = self.netlink.link_by_index(self.ifindex).map_err(|e| match e.raw_os_error() {
            Some(ENODEV) => SourceError::Gone { name: self.name.clone() },
            _ => system_error(&self.name, "read the counters", e),
        })?;
        let dropped = (link.stats.tx_dropped - self.before.tx_dropped).min(self.made);
        let sent = (link.stats.tx_packets - self.before.tx_packets).min(self.made - dropped);
        Ok(LiveCounts { made: self.made, sent, dropped, under_way: self.made - dropped - sent })
    }

    /// Length of each frame in bytes, without frame check sequence.
    pub fn frame_bytes(&self) -> usize {
        self.template.len()
    }

    /// Number of instructions of the sending program.
    ///
    /// # Errors
    /// Returns the kernel's error if a system call fails.
    pub fn instructions(&self) -> Result<u32, SourceError> {
        let info = self.program.get().info().map_err(|e| system_error(&self.name, "query the program", e))?;
        Ok(info.xlated_bytes / 8)
    }
}

/// The reason why this method cannot send these frames on this interface.
enum Unsuitable {
    /// The frames have this number of bytes, which is too large.
    FrameLength(usize),
    /// There are this many flows.
    Flows(u32),
    /// A batch has this number of frames, which is not permitted.
    Batch(u32),
    /// The interface is no veth interface, so the frames cannot be counted.
    Kind,
    /// The interface of this name or its peer is down.
    Down(String),
    /// A frame of this length does not fit the MTU of the interface.
    Mtu { frame: usize, mtu: u32 },
    /// The peer does not accept XDP frames.
    Peer,
    /// The kernel does not report whether the peer accepts XDP frames.
    UnknownPeer(io::Error),
}

impl fmt::Display for Unsuitable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FrameLength(len) => {
                write!(f, "live frames have at most {MAX_LEN} bytes, not {len}; send these frames through AF_XDP")
            }
            Self::Flows(flows) => {
                write!(f, "live frames have at most {MAX_FLOWS} flows, not {flows}; send these frames through AF_XDP")
            }
            Self::Batch(frames) => write!(f, "a batch has 1 to 256 frames, not {frames}"),
            Self::Kind => f.write_str("live frames can be counted on veth interfaces only; send through AF_XDP"),
            Self::Down(interface) => {
                write!(f, "the interface or its peer is down; bring both up: ip link set {interface} up")
            }
            Self::Mtu { frame, mtu } => {
                write!(f, "frames of {frame} bytes need an MTU of {}, but the MTU is {mtu}", frame - ETHERNET_HEADER)
            }
            Self::Peer => f.write_str(
                "the peer does not accept XDP frames; enable GRO on the peer (ethtool -K PEER gro on), capture there \
                 with AF_XDP, or send through AF_XDP",
            ),
            Self::UnknownPeer(e) => write!(
                f,
                "the kernel does not report whether the peer accepts XDP frames ({e}; Linux 6.3 and later do); send \
                 through AF_XDP"
            ),
        }
    }
}

const ETHERNET_HEADER: usize = 14;

fn check(config: &LiveFramesConfig, parts: &Parts, link: &Link) -> Result<(), Unsuitable> {
    let len = parts.template().len();
    if len > MAX_LEN {
        return Err(Unsuitable::FrameLength(len));
    }
    if parts.flows() > MAX_FLOWS {
        return Err(Unsuitable::Flows(parts.flows()));
    }
    if !(1..=256).contains(&config.batch) {
        return Err(Unsuitable::Batch(config.batch));
    }
    if link.kind.as_deref() != Some("veth") {
        return Err(Unsuitable::Kind);
    }
    if !link.is_up() || !link.carrier {
        return Err(Unsuitable::Down(config.interface.clone()));
    }
    if len > link.mtu as usize + ETHERNET_HEADER {
        return Err(Unsuitable::Mtu { frame: len, mtu: link.mtu });
    }
    match xdp_features(link.index) {
        Ok(features) if features.bits & feature::NDO_XMIT != 0 => Ok(()),
        Ok(_) => Err(Unsuitable::Peer),
        Err(e) => Err(Unsuitable::UnknownPeer(e)),
    }
}

/// The reason why the clock could not be read: the program could not be loaded, or not run.
enum ClockError {
    Load(LoadError),
    Run(io::Error),
}

impl ClockError {
    fn into_source_error(self, name: &str) -> SourceError {
        match self {
            Self::Load(refusal) if refusal.log.is_empty() => {
                system_error(name, "load the sending program", refusal.error)
            }
            Self::Load(refusal) => SourceError::System {
                name: name.to_owned(),
                what: "load the sending program",
                advice: format!("the verifier's log:\n{}", refusal.log.trim_end()),
                error: refusal.error,
            },
            Self::Run(error) => system_error(name, "read the kernel's clock", error),
        }
    }
}

/// Nanoseconds by which the kernel's TAI is ahead of its UTC: whole seconds, 37 since 2017, or 0 if no time service has
/// set the offset. Read once, from the clock that the sending program reads: a change of the offset during sending
/// shifts the departure times by the same amount.
fn tai_ahead() -> Result<u64, ClockError> {
    const SECOND: u64 = 1_000_000_000;
    let program = Program::load("netgrain_clock", &program::clock_code(), Frames::Linear).map_err(ClockError::Load)?;
    let mut out = [0; 14];
    program.run(&[0; 14], &mut out, 0, 0).map_err(ClockError::Run)?;
    let utc = realtime().nanos();
    let tai = out.first_chunk().map_or(utc, |bytes| u64::from_ne_bytes(*bytes));
    // UTC is read some microseconds after TAI; the added half second makes the division round to the nearest second.
    Ok((tai + SECOND / 2).saturating_sub(utc) / SECOND * SECOND)
}

const EPERM: i32 = 1;
const ENODEV: i32 = 19;

fn system_error(name: &str, what: &'static str, error: io::Error) -> SourceError {
    let advice = match error.raw_os_error() {
        Some(EPERM) => privilege::advice(
            "sending frames from the kernel",
            Capabilities::of(&[Capability::NetAdmin, Capability::Bpf, Capability::SysAdmin]),
        ),
        Some(ENODEV) => "see ip link for the names of interfaces".to_owned(),
        _ => String::new(),
    };
    SourceError::System { name: name.to_owned(), what, error, advice }
}
