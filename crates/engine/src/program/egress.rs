//! A port that the user half sends packets out of: those that the kernel's half left undecided, and copies of stored ones.

use std::io;
use sys::netlink::Netlink;
use sys::packet::PacketSocket;

/// See the module.
pub(crate) struct Egress {
    name: String,
    index: u32,
    socket: PacketSocket,
}

impl Egress {
    /// The port of this name.
    ///
    /// # Errors
    /// In words, why nothing can be sent out of it.
    pub fn open(name: &str) -> Result<Self, String> {
        let fail = |what: &str, e: io::Error| format!("port {name}: {what}: {e}");
        let link = Netlink::route()
            .and_then(|mut n| n.link(name))
            .map_err(|e| format!("there is no port {name} to forward to ({e}); `ip link` shows those there are"))?;
        let socket = PacketSocket::open().map_err(|e| fail("cannot be sent through (root, or CAP_NET_RAW)", e))?;
        socket.bind(link.index, None).map_err(|e| fail("cannot be bound", e))?;
        Ok(Self { name: name.to_owned(), index: link.index, socket })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Whether the frame was taken.
    pub fn send(&self, frame: &[u8]) -> bool {
        self.socket.send_all(&[frame]).is_ok()
    }
}
