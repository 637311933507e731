//! A private network for demonstrations and measurements. The calling thread enters a new network namespace, and so do
//! the threads and processes that it starts afterwards. One veth pair in the namespace carries only test traffic. The
//! kernel removes the namespace when its last process ends for any reason.

use std::fs;
use std::io;
use std::time::{Duration, Instant};
use sys::ethtool::Offload;
use sys::netlink::{Netlink, Veth};
use sys::netns::Namespace;

/// Transmit queue length in frames. With a queueing discipline, veth makes a sender wait instead of dropping the frames
/// for which its ring of 256 slots has no space.
const QUEUE_PACKETS: u32 = 1000;

/// The value "up" of `ifOperStatus` (RFC 2863).
const OPERATIONAL: u8 = 6;

/// The longest time that both interfaces of a pair may need to come up.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Enters a new network namespace and creates a veth pair in it. Both interfaces are up and carry no traffic.
///
/// GRO is enabled on the interface `to`. Without GRO (or an XDP program) on the receiving interface, veth accepts no
/// XDP frames, which the fastest generator sends. GRO does not merge the frames of `netgrain gen`: the kernel merges
/// UDP only for sockets that request it, or with two further offloads (`rx-udp-gro-forwarding`, `rx-gro-list`) that are
/// off by default.
///
/// # Errors
/// `PermissionDenied` without CAP_SYS_ADMIN and CAP_NET_ADMIN.
pub fn private_pair(from: &str, to: &str, mtu: u32) -> io::Result<()> {
    Namespace::unshare()?;
    for file in ["all/disable_ipv6", "default/disable_ipv6"] {
        // Without IPv6 in the kernel the file does not exist, and the kernel sends no IPv6 frames.
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{file}"), "1");
    }
    another_pair(from, to, mtu)
}

/// Creates another veth pair, with the settings of the first pair, in the network namespace of the calling thread.
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
