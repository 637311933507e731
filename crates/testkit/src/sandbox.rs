//! A network namespace for one test: the calling thread enters a fresh namespace, whose veth pairs carry only the
//! test's frames.
//!
//! By default, the Linux network stack sends frames on an interface: router solicitations, multicast reports, duplicate
//! address detection, ARP. Tests count frames, so the sandbox disables all of these before an interface comes up.

use crate::skip;
use std::fs;
use std::marker::PhantomData;
use std::time::Duration;
use sys::ethtool::Offload;
use sys::netlink::{Netlink, Veth};
use sys::netns::Namespace;

/// The calling thread is in a new network namespace until this value is dropped. Threads that it starts meanwhile are
/// in the namespace too, and sockets opened in the namespace stay there. The kernel removes the namespace and its
/// interfaces with the last thread or socket.
#[derive(Debug)]
pub struct Sandbox {
    home: Namespace,
    inside: Namespace,
    /// Makes the type `!Send`. If the value were dropped on another thread, that thread would enter the former
    /// namespace.
    here: PhantomData<*const ()>,
}

/// An interface in a [`Sandbox`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name at creation.
    pub name: String,
    /// Its interface index.
    pub index: u32,
}

/// Options of a veth pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VethOptions {
    /// Number of receive queues and of transmit queues that each interface of the pair has.
    pub queues: u32,
    /// Largest payload of a frame in bytes.
    pub mtu: u32,
    /// True if checksum and segmentation offloads stay on, as on a real host. With the default, off, frames sent by the
    /// host's own stack have complete checksums and are no longer than the MTU.
    pub offloads: bool,
}

impl Default for VethOptions {
    fn default() -> Self {
        Self { queues: 1, mtu: 1500, offloads: false }
    }
}

impl Sandbox {
    /// Enters a new network namespace whose loopback interface is up. If the process lacks the privilege, the test
    /// `test` is reported as skipped.
    pub fn new(test: &str) -> Option<Self> {
        let entered = Namespace::current().and_then(|home| Ok((home, Namespace::unshare()?)));
        let (home, inside) = match entered {
            Ok(both) => both,
            Err(error) => {
                skip(test, &format!("cannot create a network namespace: {error}; run as root"));
                return None;
            }
        };
        let sandbox = Self { home, inside, here: PhantomData };
        for file in ["all/disable_ipv6", "default/disable_ipv6"] {
            // A kernel without IPv6 has no such file and sends no IPv6 frames.
            let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{file}"), "1");
        }
        let mut netlink = sandbox.netlink();
        let lo = netlink.link("lo").expect("every namespace has a loopback interface");
        netlink.set_up(lo.index, true).expect("the loopback interface comes up");
        Some(sandbox)
    }

    /// The namespace, for moving interfaces into it or entering it from another thread.
    pub fn namespace(&self) -> &Namespace {
        &self.inside
    }

    /// A netlink socket in the namespace.
    ///
    /// # Panics
    /// The kernel refuses to create the socket.
    pub fn netlink(&self) -> Netlink {
        Netlink::route().expect("a netlink socket")
    }

    /// A pair of connected interfaces, both up; the network stack sends no frames on them.
    ///
    /// # Panics
    /// The kernel refuses to create the interfaces or to set their options.
    pub fn veth(&self, a: &str, b: &str) -> (Port, Port) {
        self.veth_with(a, b, VethOptions::default())
    }

    /// A pair of connected interfaces with options, both up; the network stack sends no frames on them.
    ///
    /// # Panics
    /// The kernel refuses to create the interfaces or to set their options.
    pub fn veth_with(&self, a: &str, b: &str, options: VethOptions) -> (Port, Port) {
        let mut netlink = self.netlink();
        let veth = Veth { name: a, peer: b, rx_queues: options.queues, tx_queues: options.queues, mtu: options.mtu };
        netlink.add_veth(&veth).unwrap_or_else(|e| panic!("veth pair {a} and {b} cannot be created: {e}"));
        let pair = [a, b].map(|name| {
            let index = netlink.link(name).unwrap_or_else(|e| panic!("{name}: {e}")).index;
            netlink.set_no_arp(index, true).unwrap_or_else(|e| panic!("{name}: address resolution stays on: {e}"));
            if !options.offloads {
                for offload in [Offload::TxChecksum, Offload::Tso, Offload::Gso, Offload::Gro] {
                    offload.set(name, false).unwrap_or_else(|e| panic!("{name}: cannot disable {offload:?}: {e}"));
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

    /// Waits until an interface that is up transmits frames. After the peer has come up, the kernel may need up to a
    /// second until it enables the queues of the interface, if such changes are frequent. Until then the queues drop
    /// frames without an error.
    ///
    /// # Panics
    /// The interface does not transmit frames within two minutes.
    pub fn wait_until_running(&self, port: &Port) {
        const RFC2863_UP: u8 = 6;
        let mut netlink = self.netlink();
        for _ in 0..12_000 {
            let link = netlink.link_by_index(port.index).unwrap_or_else(|e| panic!("{}: {e}", port.name));
            if link.operstate == RFC2863_UP {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{}: up, but the interface did not begin to carry frames in time", port.name);
    }

    /// Sets an interface up or down, without waiting for the carrier state.
    ///
    /// # Panics
    /// The kernel refuses the change.
    pub fn set_up(&self, port: &Port, up: bool) {
        self.netlink().set_up(port.index, up).unwrap_or_else(|e| panic!("{}: cannot set up = {up}: {e}", port.name));
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // If the thread stayed in this namespace, the next test on the same thread would run in the wrong namespace.
        self.home.enter().expect("the thread returns to its former namespace");
    }
}
