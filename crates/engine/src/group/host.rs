//! The way back to the host, for a port that is taken for capture alone: a device beside it.
//!
//! ```text
//! program says kernel ──► branch ──► ng7e ═══ ng7 ──► the host            (7: the port's number)
//!                     port ◄──────── ng7e ═══ ng7 ◄── what the host sends through it
//! ```
//! It is a veth pair. The host's end has the port's own link address, so that frames for this host are taken for such; who
//! moves the port's IP address to it has a port that answers. The pair goes when the capture ends; one that a killed engine
//! left behind is replaced.

use group::Outlet;
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use sys::ethtool::Offload;
use sys::netlink::{Netlink, Veth};
use sys::packet::PacketSocket;

/// How often the thread looks whether it should end.
const LOOK: Duration = Duration::from_millis(100);

/// Largest frame on the way out: the largest Ethernet frame there is, without merging.
const FRAME_MAX: usize = 16 << 10;

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
        if let Ok(left) = netlink.link(&name) {
            netlink.delete_link(left.index).map_err(|e| fail(&name, e))?;
        }
        let veth = Veth { name: &name, peer: &entrance, rx_queues: 1, tx_queues: 1, mtu: link.mtu };
        netlink.add_veth(&veth).map_err(|e| fail(&name, e))?;
        let mut host = Self { name, entrance, stop: Arc::default(), thread: None };
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
