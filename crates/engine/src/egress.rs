//! A port that the engine sends packets out of, known by its name: one that went away is found again when it is back.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use sys::netlink::Netlink;
use sys::packet::PacketSocket;

/// See the module.
pub(crate) struct Egress {
    name: String,
    index: AtomicU32,
    socket: PacketSocket,
}

impl Egress {
    /// The port of this name.
    ///
    /// # Errors
    /// In words, why nothing can be sent out of it.
    pub fn open(name: &str) -> Result<Self, String> {
        let fail = |what: &str, e: io::Error| format!("port {name}: {what}: {e}");
        let index = index_of(name)
            .map_err(|e| format!("there is no port {name} to forward to ({e}); `ip link` shows those there are"))?;
        let socket = PacketSocket::open().map_err(|e| fail("cannot be sent through (root, or CAP_NET_RAW)", e))?;
        socket.bind(index, None).map_err(|e| fail("cannot be bound", e))?;
        Ok(Self { name: name.to_owned(), index: AtomicU32::new(index), socket })
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
        // One that comes back from another namespace may have the number that it had.
        let is_bound = index == self.index() && self.socket.bound_link().is_ok_and(|bound| bound == Some(index));
        let another = !is_bound && self.socket.bind(index, None).is_ok();
        if another {
            self.index.store(index, Ordering::Relaxed);
        }
        another
    }

    /// Sends frames up to the first that is not taken; how many were.
    pub fn send_some(&self, frames: &[&[u8]]) -> usize {
        self.socket.send_until(frames).0
    }
}

/// The number of the port of this name, by whatever name it goes besides.
pub(crate) fn index_of(name: &str) -> io::Result<u32> {
    Netlink::route().and_then(|mut n| n.link(name)).map(|link| link.index)
}
