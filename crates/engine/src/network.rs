//! A network of one's own for demonstrations and measurements: a namespace that belongs to the calling thread (and to the
//! threads and processes it starts from then on), with one veth pair on which nothing travels but what is sent on purpose.
//! It goes away with its last process, however that ends.

use std::fs;
use std::io;
use std::time::{Duration, Instant};
use sys::ethtool::Offload;
use sys::netlink::{Netlink, Veth};
use sys::netns::Namespace;

/// Frames that wait for the other end to take them. Any queueing discipline makes veth hold a sender back instead of
/// dropping what does not fit its 256 places.
const QUEUE_PACKETS: u32 = 1000;

/// RFC 2863: `ifOperStatus` up.
const OPERATIONAL: u8 = 6;

/// How long two ports may take to find each other.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Enters a new namespace and makes a pair of connected ports in it, both up and silent.
///
/// The end `to` has GRO, because without it (or an XDP program) veth takes no XDP frames, which the fastest generator
/// sends. Frames of `netgrain gen` are not merged by it: the kernel merges UDP only for sockets that ask for it, or with
/// two further offloads (`rx-udp-gro-forwarding`, `rx-gro-list`) that are off unless somebody switches them on.
///
/// # Errors
/// `PermissionDenied` without CAP_SYS_ADMIN and CAP_NET_ADMIN.
pub fn private_pair(from: &str, to: &str, mtu: u32) -> io::Result<()> {
    Namespace::unshare()?;
    for file in ["all/disable_ipv6", "default/disable_ipv6"] {
        // The file is missing where the kernel has no IPv6, and then there is nothing to silence.
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{file}"), "1");
    }
    another_pair(from, to, mtu)
}

/// One more such pair in the namespace that the calling thread is in.
///
/// # Errors
/// `PermissionDenied` without CAP_NET_ADMIN.
pub fn another_pair(from: &str, to: &str, mtu: u32) -> io::Result<()> {
    let mut netlink = Netlink::route()?;
    netlink.add_veth(&Veth { name: from, peer: to, rx_queues: 1, tx_queues: 1, mtu })?;
    for name in [from, to] {
        let index = netlink.link(name)?.index;
        netlink.set_no_arp(index, true)?;
        for offload in [Offload::TxChecksum, Offload::Tso, Offload::Gso, Offload::Gro] {
            offload.set(name, false)?;
        }
        netlink.add_fifo(index, QUEUE_PACKETS)?;
    }
    Offload::Gro.set(to, true)?;
    for name in [from, to] {
        let index = netlink.link(name)?.index;
        netlink.set_up(index, true)?;
    }
    let until = Instant::now() + TIMEOUT;
    while !(netlink.link(from)?.operstate == OPERATIONAL && netlink.link(to)?.operstate == OPERATIONAL) {
        if Instant::now() > until {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the two interfaces do not come up"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
