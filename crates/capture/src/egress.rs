//! An egress interface that is identified by its name: after the interface was removed and added again, it is found by
//! its name.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sys::netlink::{Link, Netlink};
use sys::packet::PacketSocket;

/// An egress interface; see the module documentation.
pub struct Egress {
    name: String,
    index: AtomicU32,
    socket: PacketSocket,
    /// Number of frames that the interface accepted; `refused` is the number of the other frames.
    taken: AtomicU64,
    refused: AtomicU64,
}

impl Egress {
    /// Opens the interface with this name for sending.
    ///
    /// # Errors
    /// The reason why nothing can be sent through the interface.
    pub fn open(name: &str) -> Result<Self, EgressError> {
        let index = index_of(name).map_err(|e| EgressError::Missing(name.to_owned(), e))?;
        let socket = PacketSocket::open().map_err(|e| EgressError::Socket(name.to_owned(), e))?;
        socket.bind(index, None).map_err(|e| EgressError::Bind(name.to_owned(), e))?;
        let (taken, refused) = Default::default();
        Ok(Self { name: name.to_owned(), index: AtomicU32::new(index), socket, taken, refused })
    }

    /// Returns the interface name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the interface index.
    pub fn index(&self) -> u32 {
        self.index.load(Ordering::Relaxed)
    }

    /// Binds the socket again if the name now belongs to another interface, or the interface was removed in between.
    /// Returns true if the socket was bound again; frames are then sent through the new interface. An interface that
    /// was only down needs no new binding.
    pub fn find_again(&self) -> bool {
        let Ok(index) = index_of(&self.name) else { return false };
        let another = !self.is_bound(index) && self.socket.bind(index, None).is_ok();
        if another {
            self.index.store(index, Ordering::Relaxed);
        }
        another
    }

    /// True if the socket is still bound. An interface that returns from another namespace may have the same index as
    /// before.
    fn is_bound(&self, index: u32) -> bool {
        index == self.index() && self.socket.bound_link().is_ok_and(|bound| bound == Some(index))
    }

    /// True if the interface is up and has a carrier; `None` if no interface of this name exists, or the socket is not
    /// yet bound again to the interface.
    pub fn is_ready(&self) -> Option<bool> {
        let link = link_of(&self.name).ok()?;
        self.is_bound(link.index).then_some(link.is_up() && link.carrier)
    }

    /// Sends frames up to the first that is refused; returns how many were sent.
    pub fn send_some(&self, frames: &[&[u8]]) -> usize {
        let (sent, outcome) = self.socket.send_until(frames);
        self.taken.fetch_add(sent as u64, Ordering::Relaxed);
        self.refused.fetch_add(outcome.is_err().into(), Ordering::Relaxed);
        sent
    }

    /// Returns the numbers of frames that the interface accepted and refused so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.taken.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }
}

/// The reason why no frame can be sent through an interface. The error contains the name of the interface.
#[derive(Debug)]
pub enum EgressError {
    /// There is no such interface.
    Missing(String, io::Error),
    /// The kernel does not permit this process to open a packet socket.
    Socket(String, io::Error),
    /// The packet socket cannot be bound to the interface.
    Bind(String, io::Error),
}

impl fmt::Display for EgressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(name, e) => {
                write!(f, "there is no interface {name} to send from ({e}); `ip link` lists the interfaces")
            }
            Self::Socket(name, e) => {
                write!(f, "interface {name}: cannot open a packet socket to send frames (root, or CAP_NET_RAW): {e}")
            }
            Self::Bind(name, e) => write!(f, "interface {name}: cannot bind a packet socket to it: {e}"),
        }
    }
}

impl std::error::Error for EgressError {}

/// Returns the index of the interface with this name or alternative name.
pub fn index_of(name: &str) -> io::Result<u32> {
    link_of(name).map(|link| link.index)
}

/// Returns the interface with this name.
pub fn link_of(name: &str) -> io::Result<Link> {
    Netlink::route().and_then(|mut n| n.link(name))
}
