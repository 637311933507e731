//! A network of one's own: a fresh network namespace for the calling thread, with veth pairs that carry the test's
//! frames and nothing else.
//!
//! Left alone, a Linux port talks: router solicitations, multicast reports, duplicate address detection, ARP. Tests
//! count frames, so all of that is switched off before a port comes up.

use crate::skip;
use std::fs;
use std::marker::PhantomData;
use std::time::Duration;
use sys::ethtool::Offload;
use sys::netlink::{Netlink, Veth};
use sys::netns::Namespace;

/// The calling thread is in a network namespace of its own until this is dropped; threads started meanwhile by it are
/// there too, and sockets opened there stay there. Ports vanish with the last of them.
#[derive(Debug)]
pub struct Sandbox {
    home: Namespace,
    inside: Namespace,
    /// Dropping on another thread would move that one: the type stays where it was made.
    here: PhantomData<*const ()>,
}

/// A port in a [`Sandbox`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name when it was made.
    pub name: String,
    /// Its number.
    pub index: u32,
}

/// How a veth pair differs from the usual one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VethOptions {
    /// Receive and transmit queues of each end.
    pub queues: u32,
    /// Largest payload of a frame in bytes.
    pub mtu: u32,
    /// Whether checksum and segmentation offloads stay on, as a real host has them. Off (the usual), frames sent by the
    /// host's own stack carry finished checksums and are no longer than the MTU.
    pub offloads: bool,
}

impl Default for VethOptions {
    fn default() -> Self {
        Self { queues: 1, mtu: 1500, offloads: false }
    }
}

impl Sandbox {
    /// Enters a new namespace with its loopback port up. Without the privilege, `test` skips.
    pub fn new(test: &str) -> Option<Self> {
        let entered = Namespace::current().and_then(|home| Ok((home, Namespace::unshare()?)));
        let (home, inside) = match entered {
            Ok(both) => both,
            Err(error) => {
                skip(test, &format!("no network namespace of its own: {error}; run as root"));
                return None;
            }
        };
        let sandbox = Self { home, inside, here: PhantomData };
        for file in ["all/disable_ipv6", "default/disable_ipv6"] {
            // The file is missing where the kernel has no IPv6, and then there is nothing to silence.
            let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{file}"), "1");
        }
        let mut netlink = sandbox.netlink();
        let lo = netlink.link("lo").expect("every namespace has a loopback port");
        netlink.set_up(lo.index, true).expect("the loopback port comes up");
        Some(sandbox)
    }

    /// The namespace, to move ports into or to enter from another thread.
    pub fn namespace(&self) -> &Namespace {
        &self.inside
    }

    /// A netlink socket in the namespace.
    ///
    /// # Panics
    /// When the kernel refuses a socket.
    pub fn netlink(&self) -> Netlink {
        Netlink::route().expect("a netlink socket")
    }

    /// A pair of connected ports, both up and silent.
    ///
    /// # Panics
    /// When they cannot be made.
    pub fn veth(&self, a: &str, b: &str) -> (Port, Port) {
        self.veth_with(a, b, VethOptions::default())
    }

    /// A pair of connected ports, both up and silent, with options.
    ///
    /// # Panics
    /// When they cannot be made.
    pub fn veth_with(&self, a: &str, b: &str, options: VethOptions) -> (Port, Port) {
        let mut netlink = self.netlink();
        let veth = Veth { name: a, peer: b, rx_queues: options.queues, tx_queues: options.queues, mtu: options.mtu };
        netlink.add_veth(&veth).unwrap_or_else(|e| panic!("veth pair {a} and {b}: {e}"));
        let pair = [a, b].map(|name| {
            let index = netlink.link(name).unwrap_or_else(|e| panic!("{name}: {e}")).index;
            netlink.set_no_arp(index, true).unwrap_or_else(|e| panic!("{name}: address resolution off: {e}"));
            if !options.offloads {
                for offload in [Offload::TxChecksum, Offload::Tso, Offload::Gso, Offload::Gro] {
                    offload.set(name, false).unwrap_or_else(|e| panic!("{name}: {offload:?} off: {e}"));
                }
            }
            Port { name: name.to_owned(), index }
        });
        for port in &pair {
            netlink.set_up(port.index, true).unwrap_or_else(|e| panic!("{}: up: {e}", port.name));
        }
        for port in &pair {
            self.wait_until_running(port);
        }
        let [a, b] = pair;
        (a, b)
    }

    /// Waits until a port that is up carries frames. The kernel tells the queues of a port that its peer has come up only
    /// later, after up to a second if that happens often; until then they swallow frames without a word.
    ///
    /// # Panics
    /// When it does not come to that.
    pub fn wait_until_running(&self, port: &Port) {
        const RFC2863_UP: u8 = 6;
        let mut netlink = self.netlink();
        for _ in 0..1000 {
            let link = netlink.link_by_index(port.index).unwrap_or_else(|e| panic!("{}: {e}", port.name));
            if link.operstate == RFC2863_UP {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{}: up, but it never began to carry frames", port.name);
    }

    /// Switches a port on or off, without waiting for what the kernel makes of it.
    ///
    /// # Panics
    /// When the kernel refuses.
    pub fn set_up(&self, port: &Port, up: bool) {
        self.netlink().set_up(port.index, up).unwrap_or_else(|e| panic!("{}: up = {up}: {e}", port.name));
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // Staying would let the next test of this thread run in a network that is not its own.
        self.home.enter().expect("back to the namespace that the thread came from");
    }
}
