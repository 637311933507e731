//! The way back to the host, for a port that is taken for capture alone: a device beside it.
//!
//! ```text
//! program says kernel ──► branch ──► ng7e ═══ ng7 ──► the host            (7: the port's number)
//!                     port ◄──────── ng7e ═══ ng7 ◄── what the host sends through it
//! ```
//! It is a veth pair. The host's end has the port's own link address, so that frames for this host are taken for such; who
//! moves the port's IP address to it has a port that answers. The pair goes when the capture ends. One that a killed engine left
//! behind goes with the next start of any engine on the machine ([`sweep`]). A tap device or a network namespace would go with its process
//! at once, but a service that may neither see `/dev/net/tun` nor make namespaces (`dist/systemd`) could have none.
//!
//! Who owns a pair is told by a name that lives as long as its process: an abstract socket of the same network namespace
//! (unix(7)), which nobody need clean up.

use crate::egress::link_of;
use group::Outlet;
use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use sys::ethtool::Offload;
use sys::netlink::{Link, Netlink, Veth};
use sys::packet::PacketSocket;

/// How often the thread looks whether it should end.
const LOOK: Duration = Duration::from_millis(100);

/// Largest frame on the way out: the largest Ethernet frame there is, without merging.
const FRAME_MAX: usize = 16 << 10;

/// How often a name is asked for that somebody else has, a [`LOOK`] apart.
const TRIES: u32 = 5;

/// linux/if_ether.h: every protocol.
const ETH_P_ALL: u16 = 3;

/// See the module's text.
pub struct Host {
    /// What the host calls its end.
    pub name: String,
    /// The end into which packets for the host are sent.
    entrance: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _owned: Option<Ownership>,
}

/// That a pair is ours, or that nobody's is being removed.
struct Ownership {
    _name: UnixDatagram,
}

impl Host {
    /// Makes the device for this port.
    ///
    /// # Errors
    /// In words, what the kernel refuses.
    pub fn open(port: &str) -> Result<Self, String> {
        let fail = |what: &str, e: io::Error| {
            format!(
                "no way to bring packets of {port} back to the host: {what}: {e} (root, or CAP_NET_ADMIN and CAP_NET_RAW)"
            )
        };
        let mut netlink = Netlink::route().map_err(|e| fail("netlink", e))?;
        let link = netlink.link(port).map_err(|e| fail("the port", e))?;
        let (name, entrance) = (format!("ng{}", link.index), format!("ng{}e", link.index));
        let owned = Ownership::soon(&name);
        if let Ok(left) = netlink.link(&name) {
            netlink.delete_link(left.index).map_err(|e| fail(&name, e))?;
        }
        let veth = Veth { name: &name, peer: &entrance, rx_queues: 1, tx_queues: 1, mtu: link.mtu };
        netlink.add_veth(&veth).map_err(|e| fail(&name, e))?;
        let mut host = Self { name, entrance, stop: Arc::default(), thread: None, _owned: owned };
        // From here on the pair goes with the value.
        let thread = host.begin(&mut netlink, link.index, link.mac).map_err(|e| fail(&host.name, e))?;
        host.thread = Some(thread);
        Ok(host)
    }

    /// Where a packet is put in truth that is for this device.
    pub fn entrance_of(&self, to: &Outlet) -> Option<Outlet> {
        matches!(to, Outlet::Port(name) if *name == self.name).then(|| Outlet::Port(self.entrance.clone()))
    }

    fn begin(&self, netlink: &mut Netlink, port: u32, mac: Option<[u8; 6]>) -> io::Result<JoinHandle<()>> {
        let (inner, outer) = (netlink.link(&self.entrance)?.index, netlink.link(&self.name)?.index);
        if let Some(mac) = mac {
            netlink.set_mac(outer, mac)?;
        }
        // What the host sends must be whole frames by the time it is taken here.
        for offload in [Offload::TxChecksum, Offload::Tso, Offload::Gso] {
            offload.set(&self.name, false)?;
        }
        let (from, to) = (PacketSocket::open()?, PacketSocket::open()?);
        from.ignore_outgoing()?;
        from.bind(inner, Some(ETH_P_ALL))?;
        to.bind(port, None)?;
        // A host that speaks of its own accord (IPv6 looks for its routers) would be heard on the wire.
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{}/addr_gen_mode", self.name), "1");
        for link in [inner, outer] {
            netlink.set_up(link, true)?;
        }
        let stop = Arc::clone(&self.stop);
        std::thread::Builder::new().name("from-host".into()).spawn(move || send(&from, &to, &stop))
    }
}

impl Ownership {
    fn of(device: &str) -> io::Result<Self> {
        let address = SocketAddr::from_abstract_name(format!("netgrain-host-{device}"))?;
        Ok(Self { _name: UnixDatagram::bind_addr(&address)? })
    }

    /// The same; an engine that starts may hold the name for as long as it removes a pair. Whoever holds it for longer is somebody who only
    /// wants to be in the way, since the port of this number is ours: then the pair is one that nobody cleans up.
    fn soon(device: &str) -> Option<Self> {
        (0..TRIES).find_map(|_| Self::of(device).inspect_err(|_| std::thread::sleep(LOOK)).ok())
    }
}

/// Removes the pairs that engines left behind which were killed; their names. Where it may not be done (no CAP_NET_ADMIN) nothing is.
pub fn sweep() -> Vec<String> {
    let Ok(mut netlink) = Netlink::route() else { return Vec::new() };
    let links = netlink.links().unwrap_or_default();
    let pair = |link: &&Link| {
        let number = link.name.strip_prefix("ng").is_some_and(|n| n.parse::<u32>().is_ok());
        let other = link_of(&format!("{}e", link.name));
        number && link.kind.as_deref() == Some("veth") && other.is_ok_and(|other| link.lower == Some(other.index))
    };
    let mut gone = Vec::new();
    for link in links.iter().filter(pair) {
        // For as long as it is removed nobody makes another of the name.
        let Ok(_owned) = Ownership::of(&link.name) else { continue };
        if netlink.delete_link(link.index).is_ok() {
            gone.push(link.name.clone());
        }
    }
    gone
}

/// What the host sends goes out of the port; what the port refuses, the host's protocols send again.
fn send(from: &PacketSocket, to: &PacketSocket, stop: &AtomicBool) {
    let mut frame = vec![0; FRAME_MAX];
    while !stop.load(Ordering::Relaxed) {
        match from.receive(&mut frame) {
            Ok(Some(len)) => {
                if let Some(frame) = frame.get(..len) {
                    let _ = to.send_all(&[frame]);
                }
            }
            Ok(None) => drop(from.wait_readable(LOOK)),
            // The device is down or gone for the moment.
            Err(_) => std::thread::sleep(LOOK),
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // Where it cannot be deleted any more (rights given up), the next start does it.
        if let Ok(mut netlink) = Netlink::route()
            && let Ok(link) = netlink.link(&self.name)
        {
            let _ = netlink.delete_link(link.index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Sandbox;

    #[test]
    fn pairs_that_a_killed_engine_left_behind_go_with_the_next_start_and_others_stay() {
        let test = "pairs_that_a_killed_engine_left_behind_go_with_the_next_start_and_others_stay";
        let Some(sandbox) = Sandbox::new(test) else { return };
        sandbox.veth("p", "q");
        // As after `kill -9`: the pair of a port that is not there any more.
        sandbox.veth("ng99", "ng99e");
        // Not ours: another name, and two that are no pair.
        sandbox.veth("ngx", "ngxe");
        sandbox.veth("ng5", "r");
        let host = Host::open("p").expect("a way back");
        assert_eq!(sweep(), ["ng99"]);
        assert_eq!(sweep(), [""; 0]);
        let there = |name: &str| link_of(name).is_ok();
        assert!(!there("ng99") && !there("ng99e"));
        assert!(["ngx", "ngxe", "ng5", "r", &host.name].iter().all(|name| there(name)), "somebody has them");
        let name = host.name.clone();
        drop(host);
        assert!(!there(&name));
    }
}
