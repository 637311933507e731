//! The host interface of a dedicated interface: a veth pair that returns packets to the host stack.
//!
//! ```text
//! program with `kernel` ──► branch ──► ng7e ═══ ng7 ──► host       (7: the index of the interface)
//!                    interface ◄────── ng7e ═══ ng7 ◄── host
//! ```
//! The host's end has the link address of the captured interface, so the host accepts the frames that are addressed to
//! it. If the administrator moves the interface's IP address to the host's end, the host remains reachable. The engine
//! removes the veth pair when the capture ends. If an engine is killed, the next engine that starts on the machine
//! removes the veth pair ([`sweep`]), after a check that the process of the killed engine does not exist any more. The
//! kernel would remove a tap device or a network namespace together with its process, but a service without access to
//! `/dev/net/tun` and without the right to create namespaces (`dist/systemd`) can create neither.
//!
//! The alias of the host's end contains the mark `netgrain host` and the process that owns the veth pair ([`Process`]).
//! Invariant: an engine removes a veth pair that it did not create only if the alias has this mark and the process in
//! the alias certainly does not exist any more. Any other interface with such a name may belong to other software.

use capture::egress::link_of;
use group::PacketSink;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use sys::ethtool::Offload;
use sys::netlink::{Link, Netlink, Veth};
use sys::packet::PacketSocket;
use sys::process::Process;

/// The interval at which the thread checks whether it must end.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Size of the receive buffer. It is larger than any Ethernet frame that the host sends without segmentation offload.
const FRAME_MAX: usize = 16 << 10;

/// The text that precedes the process in the alias of the host's end.
const MARK: &str = "netgrain host ";

/// The protocol number with which a packet socket receives frames of all protocols (linux/if_ether.h).
const ETH_P_ALL: u16 = 3;

/// A veth pair that returns packets of a dedicated interface to the host stack.
pub struct HostInterface {
    /// The name of the host's end of the veth pair.
    pub name: String,
    /// The name of the engine's end, into which the engine sends packets for the host.
    entrance: String,
    /// The interface index of the host's end.
    outer: u32,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The reason why a host interface cannot be created.
#[derive(Debug)]
pub enum HostInterfaceError {
    /// The kernel refuses an operation.
    Refused {
        /// The captured interface.
        interface: String,
        /// The name of the interface or socket on which the operation failed.
        what: String,
        /// The error of the kernel.
        error: io::Error,
    },
    /// The veth pair for the captured interface belongs to another engine.
    InUse {
        /// The host's end.
        name: String,
        /// The captured interface.
        interface: String,
    },
    /// An interface with the name of the veth pair exists already, and its owner is unknown.
    UnknownOwner {
        /// The name.
        name: String,
    },
}

impl fmt::Display for HostInterfaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { interface, what, error } => write!(
                f,
                "no host interface for the packets of {interface}: {what}: {error} (root, or CAP_NET_ADMIN and \
                 CAP_NET_RAW)"
            ),
            Self::InUse { name, interface } => {
                write!(f, "{name} exists already: another engine uses it for {interface}")
            }
            Self::UnknownOwner { name } => {
                write!(
                    f,
                    "{name} exists already, and its owner is unknown: if no software needs it, remove it with `ip link \
                     del {name}`"
                )
            }
        }
    }
}

impl std::error::Error for HostInterfaceError {}

/// The state of the process that owns a veth pair.
enum Owner {
    /// The process exists.
    Living,
    /// The process does not exist any more.
    Dead,
    /// The alias of the interface has no mark of netgrain, or this process cannot see the owner's process.
    Unknown,
}

impl HostInterface {
    /// Creates the veth pair for this captured interface.
    ///
    /// # Errors
    /// The kernel refuses an operation, or an interface of this name exists.
    pub fn open(interface: &str) -> Result<Self, HostInterfaceError> {
        let refused = |what: &str, error: io::Error| HostInterfaceError::Refused {
            interface: interface.to_owned(),
            what: what.to_owned(),
            error,
        };
        let mut netlink = Netlink::route().map_err(|e| refused("netlink", e))?;
        let link = netlink.link(interface).map_err(|e| refused("the interface", e))?;
        let (name, entrance) = (format!("ng{}", link.index), format!("ng{}e", link.index));
        if let Ok(existing) = netlink.link(&name) {
            match Owner::of(&existing) {
                // The engine that created this veth pair was killed after this engine had started.
                Owner::Dead => netlink.delete_link(existing.index).map_err(|e| refused(&name, e))?,
                Owner::Living => {
                    return Err(HostInterfaceError::InUse { name, interface: interface.to_owned() });
                }
                Owner::Unknown => return Err(HostInterfaceError::UnknownOwner { name }),
            }
        }
        let veth = Veth { name: &name, peer: &entrance, rx_queues: 1, tx_queues: 1, mtu: link.mtu };
        netlink.add_veth(&veth).map_err(|e| refused(&name, e))?;
        let outer = netlink.link(&name).map_err(|e| refused(&name, e))?.index;
        let mut host = Self { name, entrance, outer, stop: Arc::default(), thread: None };
        // From here on, dropping the value removes the veth pair.
        let thread = host.begin(&mut netlink, link.index, link.mac).map_err(|e| refused(&host.name, e))?;
        host.thread = Some(thread);
        Ok(host)
    }

    /// If the sink is this host interface, returns the engine's end of the veth pair. Packets for the host are sent
    /// into the engine's end.
    pub fn entrance_of(&self, to: &PacketSink) -> Option<PacketSink> {
        matches!(to, PacketSink::Port(name) if *name == self.name).then(|| PacketSink::Port(self.entrance.clone()))
    }

    fn begin(&self, netlink: &mut Netlink, interface: u32, mac: Option<[u8; 6]>) -> io::Result<JoinHandle<()>> {
        let (inner, outer) = (netlink.link(&self.entrance)?.index, self.outer);
        netlink.set_alias(outer, &format!("{MARK}{}", Process::this()?))?;
        if let Some(mac) = mac {
            netlink.set_mac(outer, mac)?;
        }
        // The host must send complete frames with checksums, because the engine sends the host's frames unchanged on
        // the wire.
        for offload in [Offload::TxChecksum, Offload::Tso, Offload::Gso] {
            offload.set(&self.name, false)?;
        }
        let (from, to) = (PacketSocket::open()?, PacketSocket::open()?);
        from.ignore_outgoing()?;
        from.bind(inner, Some(ETH_P_ALL))?;
        to.bind(interface, None)?;
        // The kernel must not assign an IPv6 address to the host's end. Otherwise, IPv6 router solicitations of the
        // host would be sent on the wire.
        netlink.set_no_ipv6_address(outer)?;
        for link in [inner, outer] {
            netlink.set_up(link, true)?;
        }
        let stop = Arc::clone(&self.stop);
        std::thread::Builder::new().name("from-host".into()).spawn(move || send(&from, &to, &stop))
    }
}

impl Owner {
    fn of(link: &Link) -> Self {
        let process = link.alias.as_deref().and_then(|alias| alias.strip_prefix(MARK)?.parse::<Process>().ok());
        match process.and_then(|process| process.is_there()) {
            Some(true) => Self::Living,
            Some(false) => Self::Dead,
            None => Self::Unknown,
        }
    }
}

/// Removes the veth pairs of killed engines and returns messages about them. A veth pair that may belong to other
/// software is reported and not removed. Without CAP_NET_ADMIN nothing is removed.
pub fn sweep() -> Vec<String> {
    let Ok(mut netlink) = Netlink::route() else { return Vec::new() };
    let links = netlink.links().unwrap_or_default();
    let pair = |link: &&Link| {
        let number = link.name.strip_prefix("ng").is_some_and(|n| n.parse::<u32>().is_ok());
        let other = link_of(&format!("{}e", link.name));
        number && link.kind.as_deref() == Some("veth") && other.is_ok_and(|other| link.lower == Some(other.index))
    };
    let mut messages = Vec::new();
    for link in links.iter().filter(pair) {
        let name = &link.name;
        match Owner::of(link) {
            // The veth pair is removed by its interface index, which the kernel does not reuse, and not by its name,
            // because another process may have created an interface of the same name.
            Owner::Dead if netlink.delete_link(link.index).is_ok() => {
                messages.push(format!("{name}, a host interface of a killed engine, was removed"));
            }
            Owner::Dead | Owner::Living => {}
            Owner::Unknown => messages.push(format!(
                "{name} is not removed: it looks like a host interface of an engine, but its owner is unknown; if no \
                 software needs it, `ip link del {name}`"
            )),
        }
    }
    messages
}

/// Sends the host's frames out of the captured interface. A frame that the interface refuses is lost; the host's
/// protocols retransmit it.
fn send(from: &PacketSocket, to: &PacketSocket, stop: &AtomicBool) {
    let mut frame = vec![0; FRAME_MAX];
    while !stop.load(Ordering::Relaxed) {
        match from.receive(&mut frame) {
            Ok(Some(len)) => {
                if let Some(frame) = frame.get(..len) {
                    let _ = to.send_all(&[frame]);
                }
            }
            Ok(None) => drop(from.wait_readable(CHECK_INTERVAL)),
            // The interface is down or does not exist at the moment.
            Err(_) => std::thread::sleep(CHECK_INTERVAL),
        }
    }
}

impl Drop for HostInterface {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // If the removal fails (after privileges were dropped), the next start of an engine removes the veth pair.
        if let Ok(mut netlink) = Netlink::route() {
            let _ = netlink.delete_link(self.outer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use testkit::Sandbox;

    #[test]
    fn the_next_start_removes_the_pairs_of_a_killed_engine_and_no_others() {
        let test = "the_next_start_removes_the_pairs_of_a_killed_engine_and_no_others";
        let Some(sandbox) = Sandbox::new(test) else { return };
        let this = Process::this().expect("/proc");
        let before = Process { started: this.started + 1, ..this };
        let elsewhere = Process { namespaces: [1, 1], ..before };
        let mark = |name: &str, alias: String| {
            sandbox.netlink().set_alias(link_of(name).expect("the interface exists").index, &alias).expect("an alias");
        };
        sandbox.veth("p", "q");
        // Veth pairs as they remain after `kill -9`, for captured interfaces that do not exist any more.
        for (name, other, alias) in [
            ("ng99", "ng99e", format!("{MARK}{before}")),
            // Veth pairs of a running engine, of an engine in another PID namespace, of older engines and of other
            // software.
            ("ng98", "ng98e", format!("{MARK}{this}")),
            ("ng97", "ng97e", format!("{MARK}{elsewhere}")),
            ("ng96", "ng96e", before.to_string()),
            ("ng95", "ng95e", format!("{MARK}{before} ")),
            // These interface names differ from those of the engine's veth pairs, so the interfaces are not removed,
            // whatever their alias.
            ("ngx", "ngxe", format!("{MARK}{before}")),
            ("ng5", "r", format!("{MARK}{before}")),
        ] {
            sandbox.veth(name, other);
            mark(name, alias);
        }
        sandbox.veth("ng94", "ng94e");
        let host = HostInterface::open("p").expect("a host interface");
        let mut messages = sweep();
        messages.sort();
        let begin = ["ng94 is not removed", "ng95 is not", "ng96 is not", "ng97 is not", "ng99, a host interface"];
        assert!(
            messages.len() == 5 && messages.iter().zip(begin).all(|(m, begin)| m.starts_with(begin)),
            "{messages:?}"
        );
        assert!(
            sweep().iter().all(|message| message.contains("ip link del")),
            "the veth pair of the killed engine was already removed"
        );
        let exists = |name: &str| link_of(name).is_ok();
        assert!(!exists("ng99") && !exists("ng99e"));
        let others = ["ng94", "ng94e", "ng95", "ng96", "ng97", "ng98", "ng98e", "ngx", "ngxe", "ng5", "r", &host.name];
        assert!(others.iter().all(|name| exists(name)), "all other interfaces still exist");
        let name = host.name.clone();
        drop(host);
        assert!(!exists(&name));
    }

    #[test]
    fn no_router_solicitation_is_sent_even_if_kernel_settings_are_read_only() {
        let test = "host_interface::tests::no_router_solicitation_is_sent_even_if_kernel_settings_are_read_only";
        const READ_ONLY: &str = "NETGRAIN_TEST_READ_ONLY";
        let Some(sandbox) = Sandbox::new(test) else { return };
        if std::env::var_os(READ_ONLY).is_none() {
            // The settings are read-only, as in a service with ProtectKernelTunables=yes (systemd.exec(5)). The test
            // runs in a separate process.
            let Some(mut unshare) = testkit::tool(test, "unshare") else { return };
            let remount =
                "mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys && exec \"$0\" --exact \"$1\"";
            unshare
                .args(["--mount", "sh", "-c", remount])
                .arg(std::env::current_exe().expect("this program"))
                .arg(test);
            let output = unshare.env(READ_ONLY, "1").output().expect("unshare runs");
            return assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        }
        sandbox.veth("p", "q");
        let setting = |name: &str| format!("/proc/sys/net/ipv6/conf/{name}/addr_gen_mode");
        assert!(fs::write(setting("q"), "1").is_err(), "kernel settings are read-only");
        let host = HostInterface::open("p").expect("a host interface");
        let mode = fs::read_to_string(setting(&host.name)).expect("IPv6");
        assert_eq!(mode.trim(), "1", "otherwise router solicitations would be sent on the wire");
    }

    #[test]
    fn a_host_interface_replaces_that_of_a_dead_process_and_no_other() {
        let test = "a_host_interface_replaces_that_of_a_dead_process_and_no_other";
        let Some(sandbox) = Sandbox::new(test) else { return };
        let (p, _q) = sandbox.veth("p", "q");
        let host = HostInterface::open("p").expect("a host interface");
        assert!(HostInterface::open("p").is_err_and(|e| e.to_string().contains("another engine uses it")));
        let name = host.name.clone();
        assert!(link_of(&name).is_ok());
        drop(host);
        let entrance = format!("{name}e");
        let (there, _) = sandbox.veth(&name, &entrance);
        assert_eq!(name, format!("ng{}", p.index));
        assert!(HostInterface::open("p").is_err_and(|e| e.to_string().contains(&format!("ip link del {name}"))));
        assert_eq!(
            link_of(&name).map(|link| link.index).ok(),
            Some(there.index),
            "the existing interface is unchanged"
        );
        let this = Process::this().expect("/proc");
        let before = Process { started: this.started + 1, ..this };
        sandbox.netlink().set_alias(there.index, &format!("{MARK}{before}")).expect("an alias");
        let host = HostInterface::open("p").expect("the veth pair of a dead process is replaced");
        assert_ne!(link_of(&host.name).map(|link| link.index).ok(), Some(there.index));
    }
}
