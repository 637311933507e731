//! The interfaces that send the frames: AF_XDP, or a packet socket where AF_XDP is not possible.

use base::units::show_count;
use capture::SourceError;
use capture::afxdp::{TransmitConfig, TransmitCounts, Transmitter};
use capture::egress::{Egress, EgressError, link_of};
use std::fmt;
use wire::Ethernet;

/// Counters of the frames of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputCounts {
    /// Frames that the driver accepted and did not report as dropped.
    pub sent: u64,
    /// Frames that the driver dropped or the kernel refused.
    pub dropped: u64,
}

/// Sends frames.
pub trait Output {
    /// Sends frames in order and returns how many of them, from the first on, the interface accepted or refused. The
    /// caller must pass the other frames again.
    ///
    /// # Errors
    /// If the interface disappeared or is down.
    fn send(&mut self, frames: &[&[u8]]) -> Result<usize, OutputError>;

    /// Waits until all frames are sent, or until the driver no longer completes frames. Returns the counters, which are
    /// those so far if the interface disappeared or is down.
    fn finish(&mut self) -> (OutputCounts, Result<(), OutputError>);
}

/// The method of sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// AF_XDP if the interface permits it, otherwise a packet socket.
    #[default]
    Auto,
    /// AF_XDP.
    AfXdp,
    /// A packet socket.
    PacketSocket,
}

/// The reason why frames cannot be sent. The error text names the interface and what the user can do.
#[derive(Debug)]
pub enum OutputError {
    /// AF_XDP failed with this error.
    AfXdp(SourceError),
    /// The packet socket failed with this error.
    PacketSocket(EgressError),
    /// The interface is down or was removed.
    Down(String),
}

impl fmt::Display for OutputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AfXdp(e) => write!(f, "{e}"),
            Self::PacketSocket(e) => write!(f, "{e}"),
            Self::Down(name) => write!(f, "{name}: the interface is down or was removed: ip link set {name} up"),
        }
    }
}

impl std::error::Error for OutputError {}

/// An interface that is open for sending.
pub struct Interface {
    name: String,
    longest: usize,
    kind: Kind,
    description: String,
}

enum Kind {
    AfXdp(Box<Transmitter>),
    PacketSocket(Egress),
}

/// Number of AF_XDP frames in flight, unless frames are so long that their memory would exceed `FRAME_MEMORY`.
const FRAMES: usize = 2048;
const FRAME_MEMORY: usize = 64 << 20;

/// Length of a VLAN tag in bytes. A frame with a VLAN tag may exceed the MTU by this length.
const TAG: usize = 4;

impl Interface {
    /// Opens an interface; `queue` is the transmit queue for AF_XDP.
    ///
    /// # Errors
    /// The reason why the interface cannot send with this method.
    pub fn open(name: &str, queue: u16, method: Method) -> Result<Self, OutputError> {
        let link = link_of(name).map_err(|e| OutputError::PacketSocket(EgressError::Missing(name.to_owned(), e)))?;
        if !link.is_up() {
            return Err(OutputError::Down(name.to_owned()));
        }
        let longest = link.mtu as usize + Ethernet::LEN;
        let interface = |kind, description| Self { name: name.to_owned(), longest, kind, description };
        let mut why = String::new();
        if method != Method::PacketSocket {
            let frame_max = longest + TAG;
            let frames = (FRAME_MEMORY / frame_max.next_multiple_of(4096)).min(FRAMES) as u32;
            let config = TransmitConfig { frame_max, frames, ..TransmitConfig::new(name, queue) };
            match Transmitter::open(&config) {
                Ok(transmitter) => {
                    let copy = if transmitter.is_zero_copy() { "zero-copy" } else { "copy mode" };
                    let description = format!("AF_XDP transmit on {name} queue {queue}, {copy}");
                    return Ok(interface(Kind::AfXdp(Box::new(transmitter)), description));
                }
                Err(e) if method == Method::AfXdp => return Err(OutputError::AfXdp(e)),
                Err(e) => why = format!(" (no AF_XDP: {e})"),
            }
        }
        let egress = Egress::open(name).map_err(OutputError::PacketSocket)?;
        Ok(interface(Kind::PacketSocket(egress), format!("packet socket on {name}{why}")))
    }

    /// Name of the interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Length in bytes of the longest frame without a VLAN tag.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// One line of text that names the method, the interface and the queue.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The name of the method: `af-xdp` or `packet-socket`.
    pub fn method(&self) -> &'static str {
        match self.kind {
            Kind::AfXdp(_) => "af-xdp",
            Kind::PacketSocket(_) => "packet-socket",
        }
    }
}

impl Output for Interface {
    fn send(&mut self, frames: &[&[u8]]) -> Result<usize, OutputError> {
        match &mut self.kind {
            Kind::AfXdp(transmitter) => transmitter
                .send(frames.len(), |index, place| {
                    let frame = frames[index];
                    place[..frame.len()].copy_from_slice(frame);
                    frame.len()
                })
                .map_err(OutputError::AfXdp),
            Kind::PacketSocket(egress) => {
                let sent = egress.send_some(frames);
                if sent == frames.len() {
                    return Ok(sent);
                }
                match egress.is_ready() {
                    Some(true) => Ok(sent + 1),
                    _ => Err(OutputError::Down(self.name.clone())),
                }
            }
        }
    }

    fn finish(&mut self) -> (OutputCounts, Result<(), OutputError>) {
        match &mut self.kind {
            Kind::AfXdp(transmitter) => {
                let flushed = transmitter.flush();
                let (counts, counted) = match transmitter.counts() {
                    Ok(counts) => (counts, Ok(())),
                    Err(e) => (TransmitCounts::default(), Err(e)),
                };
                let counts = OutputCounts { sent: counts.sent, dropped: counts.dropped + counts.invalid };
                (counts, flushed.and(counted).map_err(OutputError::AfXdp))
            }
            Kind::PacketSocket(egress) => {
                let (sent, dropped) = egress.counts();
                (OutputCounts { sent, dropped }, Ok(()))
            }
        }
    }
}

impl fmt::Debug for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, frames of at most {} B", self.description, show_count(self.longest as u64))
    }
}
