//! A port that the engine sends packets out of, known by its name: one that went away is found again when it is back.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sys::netlink::{Link, Netlink};
use sys::packet::PacketSocket;

/// See the module.
pub(crate) struct Egress {
    name: String,
    index: AtomicU32,
    socket: PacketSocket,
    /// Frames that it took, and did not.
    taken: AtomicU64,
    refused: AtomicU64,
}

impl Egress {
    /// The port of this name.
    ///
    /// # Errors
    /// In words, why nothing can be sent out of it.
    pub fn open(name: &str) -> Result<Self, String> {
        let fail = |what: &str, e: io::Error| format!("interface {name}: {what}: {e}");
        let index = index_of(name).map_err(|e| {
            format!("there is no interface {name} to forward to ({e}); `ip link` shows those there are")
        })?;
        let socket = PacketSocket::open().map_err(|e| fail("cannot be sent through (root, or CAP_NET_RAW)", e))?;
        socket.bind(index, None).map_err(|e| fail("cannot be bound", e))?;
        let (taken, refused) = Default::default();
        Ok(Self { name: name.to_owned(), index: AtomicU32::new(index), socket, taken, refused })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number.
    pub fn index(&self) -> u32 {
        self.index.load(Ordering::Relaxed)
    }

    /// Whether the port of this name had to be bound anew, as it is another one or was away; frames leave by it from here on. One
    /// that only went down needs no such thing.
    pub fn find_again(&self) -> bool {
        let Ok(index) = index_of(&self.name) else { return false };
        let another = !self.is_bound(index) && self.socket.bind(index, None).is_ok();
        if another {
            self.index.store(index, Ordering::Relaxed);
        }
        another
    }

    /// One that comes back from another namespace may have the number that it had.
    fn is_bound(&self, index: u32) -> bool {
        index == self.index() && self.socket.bound_link().is_ok_and(|bound| bound == Some(index))
    }

    /// Whether it is switched on and there is somebody at its other end; nothing where there is none of its name, or one that was not found
    /// again yet.
    pub fn is_ready(&self) -> Option<bool> {
        let link = link_of(&self.name).ok()?;
        self.is_bound(link.index).then_some(link.is_up() && link.carrier)
    }

    /// Sends frames up to the first that is not taken; how many were.
    pub fn send_some(&self, frames: &[&[u8]]) -> usize {
        let (sent, outcome) = self.socket.send_until(frames);
        self.taken.fetch_add(sent as u64, Ordering::Relaxed);
        self.refused.fetch_add(outcome.is_err().into(), Ordering::Relaxed);
        sent
    }

    /// How many frames it took so far, and how many it did not.
    pub fn books(&self) -> (u64, u64) {
        (self.taken.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }
}

/// The number of the port of this name, by whatever name it goes besides.
pub(crate) fn index_of(name: &str) -> io::Result<u32> {
    link_of(name).map(|link| link.index)
}

/// The port of this name.
pub(crate) fn link_of(name: &str) -> io::Result<Link> {
    Netlink::route().and_then(|mut n| n.link(name))
}
