//! Sending flat out: frames that an XDP program makes inside the kernel, without a socket and without a copy.
//!
//! `BPF_PROG_TEST_RUN` with `BPF_F_TEST_XDP_LIVE_FRAMES` (net/bpf/test_run.c, kernel 5.18) runs a program on pages of its
//! own and carries out what the program decides. `program.rs` makes each page the next frame of the traffic and redirects
//! it to the port. Two to three times as many frames leave as through AF_XDP in copy mode, and they are the same frames,
//! byte for byte, as `gen::Traffic` makes: one size, flows in turn. Mixed sizes are for the
//! [`Transmitter`](crate::afxdp::Transmitter).
//!
//! **Where frames go, and what counts them.** Only veth ports are served, because only there every way of a frame is
//! known. The other end takes frames while it has an XDP program or GRO; the kernel says so in the port's XDP features.
//! It keeps 256 places, and a frame for which there is none is dropped (`veth_xdp_xmit` in drivers/net/veth.c), which the
//! port shows as `tx_dropped`; `tx_packets` counts the frames that the other end's receive loop has taken out. Frames in
//! neither count are under way, or, if they stay there, were refused before the driver saw them: the other end has let
//! go of its program. So `made = sent + dropped + under way`, to the frame, as long as nobody else sends on the port.
//!
//! Each batch of 64 is followed by a run of the other end's receive loop on the same processor, which takes just as many
//! at a time: with this batch the 256 places suffice. Larger batches, or a receive loop in a thread of its own
//! (`/sys/class/net/IFACE/threaded`) that is slower than we, lose frames, and the counts say how many.

mod program;
mod ready;

use crate::SourceError;
use bpf::{Frames, LoadError, Program};
use r#gen::Parts;
use program::{LOW_48, Maps};
use ready::PreparedRun;
use std::io;
use std::time::{Duration, Instant};
use sys::clock::realtime;
use sys::netlink::netdev::{feature, xdp_features};
use sys::netlink::{Link, LinkStats, Netlink};
use sys::privilege::{self, Capabilities, Capability};

/// The longest frame: a page less what the kernel keeps beside a frame there, rounded down.
pub const MAX_LEN: usize = 3392;

/// The most flows: each is one call of the kernel before the first frame, and 24 bytes of its memory.
pub const MAX_FLOWS: u32 = 1 << 20;

/// Frames between two runs of the other end's receive loop.
pub const BATCH: u32 = 64;

/// One system call is to take about so long, so that whoever waits for us to stop does not wait long.
const SLICE: Duration = Duration::from_millis(4);

/// So long the other end may take for the frames that are on their way.
const TIMEOUT: Duration = Duration::from_millis(100);

/// How to send.
#[derive(Clone, Debug)]
pub struct LiveFramesConfig {
    /// The interface.
    pub interface: String,
    /// The sequence number of the first frame; its low 48 bits are sent.
    pub first: u64,
    /// Frames handed to the driver at a time, 1 to 256; above [`BATCH`] expect losses.
    pub batch: u32,
}

impl LiveFramesConfig {
    /// From sequence number 0, in batches that lose nothing.
    pub fn new(interface: &str) -> Self {
        Self { interface: interface.to_owned(), first: 0, batch: BATCH }
    }
}

/// Cumulative counters of [`LiveFrames`]; see there for what they are taken from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveCounts {
    /// Frames made; each has a sequence number of its own.
    pub made: u64,
    /// Frames that the other end has taken.
    pub sent: u64,
    /// Frames dropped for want of room at the other end.
    pub dropped: u64,
    /// Frames in neither count: on their way, or lost for good if [`LiveFrames::flush`] has waited in vain.
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
    /// Frames of one system call, so that it takes about a [`SLICE`].
    slice: u64,
}

impl LiveFrames {
    /// Prepares the frames of `parts` for the port. Nothing is attached to it, and nothing is sent yet.
    ///
    /// # Errors
    /// [`SourceError::Unsupported`] where these frames or this port need another way of sending, and says which;
    /// otherwise the kernel's refusal with what to do.
    pub fn open(config: &LiveFramesConfig, parts: &Parts) -> Result<Self, SourceError> {
        let name = &config.interface;
        let system = |what, error| trouble(name, what, error);
        let mut netlink = Netlink::route().map_err(|e| system("ask for the interface", e))?;
        let link = netlink.link(name).map_err(|e| system("find the interface", e))?;
        check(config, parts, &link).map_err(|reason| SourceError::Unsupported { name: name.clone(), reason })?;
        let tai_ahead = tai_ahead().map_err(|e| e.into_source_error(name))?;
        let first = config.first & LOW_48;
        let maps = Maps::create(parts, first).map_err(|e| system("make the maps of the sending program", e))?;
        let template = parts.template().to_vec();
        let code = program::code(&maps, template.len(), parts.flows(), link.index, tai_ahead);
        let program = Program::load("netgrain_gen", &code, Frames::Linear)
            .map_err(|refusal| ClockError::Load(refusal).into_source_error(name))?;
        let program = PreparedRun::keep(program).map_err(|e| system("keep the sending program ready", e))?;
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
            slice: u64::from(config.batch),
        })
    }

    /// Sends up to `count` frames, in one system call of some milliseconds; answers how many, at least one unless `count`
    /// is 0 or a signal came first.
    ///
    /// # Errors
    /// The kernel's.
    pub fn send(&mut self, count: u64) -> Result<u64, SourceError> {
        let count = count.min(self.slice);
        if count == 0 {
            return Ok(0);
        }
        let begun = Instant::now();
        // The frames come from loopback as far as the kernel is concerned: it wants a receive queue that is in order, and
        // a veth port has one only while it receives XDP frames itself.
        match self.program.get().run_live(&self.template, 0, count as u32, self.batch) {
            Ok(()) => (),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => (),
            Err(e) => return Err(trouble(&self.name, "send", e)),
        }
        let taken = begun.elapsed();
        let next = self.maps.next().map_err(|e| trouble(&self.name, "read the sequence number", e))?;
        let made = next - self.first;
        let new = made - self.made;
        self.made = made;
        if taken > SLICE {
            self.slice = (self.slice / 2).max(u64::from(self.batch));
        } else if new == self.slice && taken < SLICE / 2 {
            self.slice = (self.slice * 2).min(1 << 20);
        }
        Ok(new)
    }

    /// Waits until the other end has taken all frames; false if some are still under way after a tenth of a second.
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

    /// The counters so far; asks the kernel, which takes some ten microseconds.
    ///
    /// # Errors
    /// [`SourceError::Gone`] when the port has gone.
    pub fn counts(&mut self) -> Result<LiveCounts, SourceError> {
        let link = self.netlink.link_by_index(self.ifindex).map_err(|e| match e.raw_os_error() {
            Some(ENODEV) => SourceError::Gone { name: self.name.clone() },
            _ => trouble(&self.name, "read the counters", e),
        })?;
        let dropped = (link.stats.tx_dropped - self.before.tx_dropped).min(self.made);
        let sent = (link.stats.tx_packets - self.before.tx_packets).min(self.made - dropped);
        Ok(LiveCounts { made: self.made, sent, dropped, under_way: self.made - dropped - sent })
    }

    /// Bytes of each frame, without frame check sequence.
    pub fn frame_bytes(&self) -> usize {
        self.template.len()
    }

    /// How many instructions the sending program has.
    ///
    /// # Errors
    /// The kernel's.
    pub fn instructions(&self) -> Result<u32, SourceError> {
        let info = self.program.get().info().map_err(|e| trouble(&self.name, "ask for the program", e))?;
        Ok(info.xlated_bytes / 8)
    }
}

/// Why this way of sending is none for these frames and this port.
fn check(config: &LiveFramesConfig, parts: &Parts, link: &Link) -> Result<(), String> {
    const ETHERNET_HEADER: usize = 14;
    let len = parts.template().len();
    if len > MAX_LEN {
        return Err(format!("live frames have at most {MAX_LEN} bytes, not {len}; send these through AF_XDP"));
    }
    if parts.flows() > MAX_FLOWS {
        return Err(format!(
            "live frames have at most {MAX_FLOWS} flows, not {}; send these through AF_XDP",
            parts.flows()
        ));
    }
    if !(1..=256).contains(&config.batch) {
        return Err(format!("a batch has 1 to 256 frames, not {}", config.batch));
    }
    if link.kind.as_deref() != Some("veth") {
        return Err("live frames can be counted on veth interfaces only; send through AF_XDP".to_owned());
    }
    if !link.is_up() || !link.carrier {
        return Err(format!(
            "the interface or its other end is down; bring both up: ip link set {} up",
            config.interface
        ));
    }
    if len > link.mtu as usize + ETHERNET_HEADER {
        return Err(format!("frames of {len} bytes need an MTU of {}, it is {}", len - ETHERNET_HEADER, link.mtu));
    }
    match xdp_features(link.index) {
        Ok(features) if features.bits & feature::NDO_XMIT != 0 => Ok(()),
        Ok(_) => {
            Err("the other end takes no XDP frames; switch on its GRO (ethtool -K PEER gro on), capture there with \
                      AF_XDP, or send through AF_XDP"
                .to_owned())
        }
        Err(e) => Err(format!(
            "the kernel does not say whether the other end takes XDP frames ({e}; it does from 6.3 on); send through AF_XDP"
        )),
    }
}

/// A program that could not be loaded, or not be run.
enum ClockError {
    Load(LoadError),
    Run(io::Error),
}

impl ClockError {
    fn into_source_error(self, name: &str) -> SourceError {
        match self {
            Self::Load(refusal) if refusal.log.is_empty() => trouble(name, "load the sending program", refusal.error),
            Self::Load(refusal) => SourceError::System {
                name: name.to_owned(),
                what: "load the sending program",
                advice: format!("the verifier says:\n{}", refusal.log.trim_end()),
                error: refusal.error,
            },
            Self::Run(error) => trouble(name, "read the kernel's clock", error),
        }
    }
}

/// Nanoseconds by which the kernel's TAI is ahead of its UTC: whole seconds, 37 since 2017, or 0 where no time service
/// has told the kernel. Read from the clock that the sending program reads, once: who corrects the difference while
/// frames leave shifts their departures by as much.
fn tai_ahead() -> Result<u64, ClockError> {
    const SECOND: u64 = 1_000_000_000;
    let program = Program::load("netgrain_clock", &program::clock_code(), Frames::Linear).map_err(ClockError::Load)?;
    let mut out = [0; 14];
    program.run(&[0; 14], &mut out, 0, 0).map_err(ClockError::Run)?;
    let utc = realtime().nanos();
    let tai = out.first_chunk().map_or(utc, |bytes| u64::from_ne_bytes(*bytes));
    // The reading of UTC comes some microseconds late; half a second more makes the division round.
    Ok((tai + SECOND / 2).saturating_sub(utc) / SECOND * SECOND)
}

const EPERM: i32 = 1;
const ENODEV: i32 = 19;

fn trouble(name: &str, what: &'static str, error: io::Error) -> SourceError {
    let advice = match error.raw_os_error() {
        Some(EPERM) => privilege::advice(
            "making frames in the kernel",
            Capabilities::of(&[Capability::NetAdmin, Capability::Bpf, Capability::SysAdmin]),
        ),
        Some(ENODEV) => "see ip link for the names there are".to_owned(),
        _ => String::new(),
    };
    SourceError::System { name: name.to_owned(), what, error, advice }
}
