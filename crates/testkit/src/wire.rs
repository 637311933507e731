//! Sends and receives raw frames on an interface, independent of the code under test.

use crate::Port;
use std::time::{Duration, Instant};
use sys::packet::PacketSocket;

/// `ETH_P_ALL`.
const EVERY_PROTOCOL: u16 = 0x0003;
/// The longest wait for a frame that must arrive.
const PATIENCE: Duration = Duration::from_secs(120);
/// Size of the receive buffer. It is large enough for a burst of test frames and for the memory that the kernel adds to
/// each frame, which also counts against this size.
const READER_BUFFER_BYTES: u32 = 256 << 20;

/// Sends whole frames on an interface.
#[derive(Debug)]
pub struct RawSender {
    socket: PacketSocket,
    name: String,
}

impl RawSender {
    /// A sender on `port`.
    ///
    /// # Panics
    /// The kernel refuses to open the packet socket.
    pub fn new(port: &Port) -> Self {
        let socket = PacketSocket::open().unwrap_or_else(|e| panic!("{}: packet socket: {e}", port.name));
        socket.bind(port.index, None).unwrap_or_else(|e| panic!("{}: bind: {e}", port.name));
        Self { socket, name: port.name.clone() }
    }

    /// Sends all frames in order. When the function returns, the peer of a veth pair has received the frames.
    ///
    /// # Panics
    /// The kernel refuses a frame.
    pub fn send(&self, frames: &[impl AsRef<[u8]>]) {
        self.try_send(frames).unwrap_or_else(|e| panic!("{}: send: {e}", self.name));
    }

    /// Sends all frames in order, until an error occurs.
    ///
    /// # Errors
    /// `EMSGSIZE` for a frame larger than the MTU of the interface allows; `ENETDOWN` if the interface is down. The
    /// frames before the failed frame were sent.
    pub fn try_send(&self, frames: &[impl AsRef<[u8]>]) -> std::io::Result<()> {
        self.socket.send_all(frames)
    }
}

/// Reads complete frames from an interface, including the frames that the interface sends.
#[derive(Debug)]
pub struct RawReader {
    socket: PacketSocket,
    name: String,
    buffer: Vec<u8>,
}

impl RawReader {
    /// A reader on `port`; it receives all frames from now on.
    ///
    /// # Panics
    /// The kernel refuses to open the packet socket.
    pub fn new(port: &Port) -> Self {
        let socket = PacketSocket::open().unwrap_or_else(|e| panic!("{}: packet socket: {e}", port.name));
        let ready = socket
            .receive_buffer(READER_BUFFER_BYTES)
            .and_then(|()| socket.promiscuous(port.index))
            .and_then(|()| socket.bind(port.index, Some(EVERY_PROTOCOL)));
        ready.unwrap_or_else(|e| panic!("{}: reader: {e}", port.name));
        Self { socket, name: port.name.clone(), buffer: vec![0; 1 << 16] }
    }

    /// Waits at most `wait` for a frame. If the kernel removed a VLAN tag from the frame, the tag is missing in the
    /// result.
    ///
    /// # Panics
    /// The kernel reports an error of the socket, for example because the interface was removed.
    pub fn next(&mut self, wait: Duration) -> Option<Vec<u8>> {
        let until = Instant::now() + wait;
        loop {
            match self.socket.receive(&mut self.buffer) {
                Ok(Some(n)) => return Some(self.buffer[..n.min(self.buffer.len())].to_vec()),
                Ok(None) => (),
                Err(e) => panic!("{}: receive: {e}", self.name),
            }
            let left = until.checked_duration_since(Instant::now())?;
            self.socket.wait_readable(left).unwrap_or_else(|e| panic!("{}: poll: {e}", self.name));
        }
    }

    /// Returns the frames that satisfy `is_wanted`. The function waits up to two minutes until it has `count` such
    /// frames. Then it also adds the frames that arrive before a pause of `quiet`, so that surplus frames are found.
    /// The long wait gives a busy machine enough time.
    ///
    /// # Panics
    /// Fewer than `count` wanted frames arrive within two minutes.
    pub fn at_least(&mut self, count: usize, quiet: Duration, is_wanted: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
        let until = Instant::now() + PATIENCE;
        let mut wanted = Vec::new();
        while wanted.len() < count {
            let left = until.saturating_duration_since(Instant::now());
            let frame = self.next(left);
            assert!(frame.is_some(), "{}: only {} of {count} frames arrived in {PATIENCE:?}", self.name, wanted.len());
            wanted.extend(frame.filter(|frame| is_wanted(frame)));
        }
        wanted.extend(self.all(quiet).into_iter().filter(|frame| is_wanted(frame)));
        wanted
    }

    /// All frames that arrive until no frame has arrived for the time `quiet`.
    pub fn all(&mut self, quiet: Duration) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.next(quiet)).collect()
    }
}
