//! A client of rtnetlink (`include/uapi/linux/rtnetlink.h`, `if_link.h`): links, addresses and routes of the network
//! namespace in which the socket was opened. The command `ip` is not needed at run time.
//!
//! A [`Netlink`] has one request in flight; every method sends a request, waits for the acknowledgement and decodes the
//! response. Errors carry the kernel's error number, so that callers can distinguish `EPERM`, `ENODEV` and `EEXIST`.

mod message;
pub mod netdev;

use message::{Message, Response, attributes, long, number, responses, text};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Size of the receive buffer; the kernel builds no messages above 32 KiB unless requested.
const BUFFER_BYTES: usize = 64 * 1024;
/// Number of attempts of a dump if the kernel reports that the list changed meanwhile.
const DUMP_ATTEMPTS: usize = 8;
/// Attributes of `if_link.h` and related headers that libc does not define, or only for some targets.
mod attr {
    pub const LINK_FAMILIES: u16 = 26;
    pub const LINK_PROMISCUITY: u16 = 30;
    pub const LINK_NAMESPACE: u16 = 37;
    pub const LINK_ALTERNATIVE_NAME: u16 = 53;
    pub const LINK_XDP: u16 = 43;
    pub const LINK_PARENT_DEVICE: u16 = 56;
    pub const XDP_ATTACHED: u16 = 2;
    pub const VETH_PEER: u16 = 1;
    pub const INFO_KIND: u16 = 1;
    pub const INFO_DATA: u16 = 2;
    pub const INET6_ADDRESS_MODE: u16 = 8;
}

/// IN6_ADDR_GEN_MODE_NONE of linux/if_link.h.
const NO_ADDRESS: u8 = 1;

/// A socket of the kernel's routing subsystem (NETLINK_ROUTE).
#[derive(Debug)]
pub struct Netlink {
    fd: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

/// The parameters of a new pair of virtual Ethernet interfaces.
#[derive(Clone, Debug)]
pub struct Veth<'a> {
    /// Name of the first interface.
    pub name: &'a str,
    /// Name of the second interface.
    pub peer: &'a str,
    /// Receive queues of each of the two interfaces, at least 1.
    pub rx_queues: u32,
    /// Transmit queues of each of the two interfaces, at least 1.
    pub tx_queues: u32,
    /// MTU of each of the two interfaces, in bytes.
    pub mtu: u32,
}

/// The attributes of one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Interface index; it stays the same when the interface is renamed.
    pub index: u32,
    /// Its present name.
    pub name: String,
    /// `IFF_UP`, `IFF_LOOPBACK`, `IFF_PROMISC`, ….
    pub flags: u32,
    /// `ARPHRD_ETHER` (1), `ARPHRD_LOOPBACK` (772), ….
    pub hardware_type: u16,
    /// `veth`, `bridge`, `vlan`, …; `None` for an interface that was not created by netlink, such as a NIC.
    pub kind: Option<String>,
    /// The alias (`ip link set NAME alias TEXT`).
    pub alias: Option<String>,
    /// The bus device of the interface (`0000:01:00.0`, `virtio1`); only physical NICs have one.
    pub parent_device: Option<String>,
    /// Hardware address, if it has six bytes.
    pub mac: Option<[u8; 6]>,
    /// MTU in bytes.
    pub mtu: u32,
    /// Index of the bridge, bond or VRF to which the interface belongs.
    pub master: Option<u32>,
    /// Index of the interface of this namespace below this one (the NIC of a VLAN); for a veth interface, its peer.
    pub lower: Option<u32>,
    /// Number of requests for promiscuous mode.
    pub promiscuity: u32,
    /// True if an XDP program is attached, by this or another process.
    pub has_xdp: bool,
    /// RFC 2863 state: 6 is up, 2 is down, 0 is unknown.
    pub operstate: u8,
    /// True if the link has a carrier.
    pub carrier: bool,
    /// Receive queues.
    pub rx_queues: u32,
    /// Transmit queues.
    pub tx_queues: u32,
    /// Cumulative counters.
    pub stats: LinkStats,
}

impl Link {
    /// True if the interface is administratively up.
    pub const fn is_up(&self) -> bool {
        self.flags & libc::IFF_UP as u32 != 0
    }

    /// True if sent frames are received on the same interface.
    pub const fn is_loopback(&self) -> bool {
        self.flags & libc::IFF_LOOPBACK as u32 != 0
    }
}

/// The counters of `struct rtnl_link_stats64` for received, sent and lost packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Packets received by the host.
    pub rx_packets: u64,
    /// Packets sent by the host.
    pub tx_packets: u64,
    /// Invalid frames.
    pub rx_errors: u64,
    /// Received packets dropped by kernel or driver.
    pub rx_dropped: u64,
    /// Packets that the host wanted to send and that were dropped.
    pub tx_dropped: u64,
    /// Packets lost because a queue of the NIC was full.
    pub rx_fifo: u64,
    /// Packets missed by the NIC because the host did not fetch them in time.
    pub rx_missed: u64,
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Index of the interface.
    pub link: u32,
    /// The address.
    pub ip: IpAddr,
    /// Prefix length in bits.
    pub prefix: u8,
}

/// Length of `struct tcmsg` in bytes.
const TC_HEADER: usize = 20;
/// linux/pkt_sched.h: the root queueing discipline of an interface.
const TC_H_ROOT: u32 = 0xffff_ffff;
/// linux/rtnetlink.h.
const TCA_KIND: u16 = 1;
/// linux/rtnetlink.h; the options of `pfifo` are one number, the limit.
const TCA_OPTIONS: u16 = 2;

/// A unicast route of the main table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Index of the interface through which packets leave.
    pub link: u32,
    /// The destination network; `None` for the default route.
    pub network: Option<IpAddr>,
    /// Prefix length in bits.
    pub prefix: u8,
}

impl Netlink {
    /// Opens a socket for links, addresses and routes.
    ///
    /// # Errors
    /// If the kernel refuses the socket.
    pub fn route() -> io::Result<Self> {
        Self::open(None)
    }

    /// `None` is NETLINK_ROUTE, protocol 0.
    fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let fd = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        Ok(Self { fd, sequence: 0, buffer: vec![0; BUFFER_BYTES] })
    }

    /// Creates a veth pair; both ends are down.
    ///
    /// # Errors
    /// `EEXIST` if a name exists, `EPERM` without `CAP_NET_ADMIN`, `EINVAL` for a name of more than 15 bytes.
    pub fn add_veth(&mut self, veth: &Veth<'_>) -> io::Result<()> {
        let end = |m: Message, name: &str| {
            m.text(libc::IFLA_IFNAME, name)
                .number(libc::IFLA_MTU, veth.mtu)
                .number(libc::IFLA_NUM_RX_QUEUES, veth.rx_queues)
                .number(libc::IFLA_NUM_TX_QUEUES, veth.tx_queues)
        };
        let message = Message::new(libc::RTM_NEWLINK, create_flags(), &link_header(0, 0, 0));
        let message = end(message, veth.name).nested(libc::IFLA_LINKINFO, |m| {
            m.text(attr::INFO_KIND, "veth").nested(attr::INFO_DATA, |m| {
                m.nested(attr::VETH_PEER, |m| end(m.fixed(&link_header(0, 0, 0)), veth.peer))
            })
        });
        self.change(message)
    }

    /// Sets the queueing discipline of an interface to a `pfifo` of this many packets. With a queueing discipline, some
    /// drivers (such as veth) make a sender wait when their ring is full; without it, they drop the packets.
    ///
    /// # Errors
    /// `ENODEV`, `EPERM` without `CAP_NET_ADMIN`, `ENOENT` if the kernel has no `pfifo`.
    pub fn add_fifo(&mut self, link: u32, packets: u32) -> io::Result<()> {
        let mut header = [0; TC_HEADER];
        header[4..8].copy_from_slice(&link.to_ne_bytes());
        header[12..16].copy_from_slice(&TC_H_ROOT.to_ne_bytes());
        let message = Message::new(libc::RTM_NEWQDISC, create_flags(), &header);
        self.change(message.text(TCA_KIND, "pfifo").number(TCA_OPTIONS, packets))
    }

    /// The kinds of the queueing disciplines of an interface (`fq`, `etf`, `mq`, …), in no order. An interface without
    /// a queue has `noqueue`.
    ///
    /// # Errors
    /// Returns the kernel's error if the system call fails.
    pub fn queueing_disciplines(&mut self, link: u32) -> io::Result<Vec<String>> {
        self.dump(libc::RTM_GETQDISC, &[0; TC_HEADER], |response| {
            // `struct tcmsg`: family and padding, interface index, handle, parent, info.
            let is_of_link = number(response.body, 4) == Some(link);
            let mut all = attributes(response.body.get(TC_HEADER..)?);
            all.find(|(kind, _)| is_of_link && *kind == TCA_KIND).map(|(_, payload)| text(payload))
        })
    }

    /// Removes an interface. If it is one end of a veth pair, the kernel removes the other end too.
    ///
    /// # Errors
    /// `ENODEV` if the interface does not exist, `EOPNOTSUPP` for a NIC, `EPERM` without `CAP_NET_ADMIN`.
    pub fn delete_link(&mut self, link: u32) -> io::Result<()> {
        self.change(Message::new(libc::RTM_DELLINK, requested(), &link_header(link, 0, 0)))
    }

    /// Sets an interface up or down.
    ///
    /// # Errors
    /// `ENODEV`, `EPERM`, or an error of the driver.
    pub fn set_up(&mut self, link: u32, up: bool) -> io::Result<()> {
        self.set_flag(link, libc::IFF_UP as u32, up)
    }

    /// Switches ARP on an interface off or on; without it the host sends no address requests.
    ///
    /// # Errors
    /// `ENODEV`, `EPERM`.
    pub fn set_no_arp(&mut self, link: u32, no_arp: bool) -> io::Result<()> {
        self.set_flag(link, libc::IFF_NOARP as u32, no_arp)
    }

    fn set_flag(&mut self, link: u32, flag: u32, on: bool) -> io::Result<()> {
        let value = if on { flag } else { 0 };
        self.change(Message::new(libc::RTM_NEWLINK, requested(), &link_header(link, value, flag)))
    }

    /// Renames an interface.
    ///
    /// # Errors
    /// `EEXIST`, `ENODEV`, `EPERM`; `EBUSY` on kernels before 6.2 while the interface is up.
    pub fn rename(&mut self, link: u32, name: &str) -> io::Result<()> {
        self.change(set_link(link).text(libc::IFLA_IFNAME, name))
    }

    /// Sets the MTU, in bytes.
    ///
    /// # Errors
    /// `EINVAL` if the driver does not allow this MTU, `ENODEV`, `EPERM`.
    pub fn set_mtu(&mut self, link: u32, mtu: u32) -> io::Result<()> {
        self.change(set_link(link).number(libc::IFLA_MTU, mtu))
    }

    /// Sets the hardware address.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL` for a multicast address, `ENODEV`, `EPERM`.
    pub fn set_mac(&mut self, link: u32, mac: [u8; 6]) -> io::Result<()> {
        self.change(set_link(link).attribute(libc::IFLA_ADDRESS, &mac))
    }

    /// Prevents the kernel from assigning an IPv6 link-local address; an interface without an address sends no packets
    /// when it comes up. Unlike the setting `addr_gen_mode` in `/proc/sys`, this request also works if `/proc/sys` is
    /// mounted read-only. Does nothing if the interface has no IPv6.
    ///
    /// # Errors
    /// `ENODEV`, `EPERM`.
    pub fn set_no_ipv6_address(&mut self, link: u32) -> io::Result<()> {
        let message = set_link(link).nested(attr::LINK_FAMILIES, |families| {
            families.nested(libc::AF_INET6 as u16, |ipv6| ipv6.attribute(attr::INET6_ADDRESS_MODE, &[NO_ADDRESS]))
        });
        match self.change(message) {
            Err(e) if e.raw_os_error() == Some(libc::EAFNOSUPPORT) => Ok(()),
            changed => changed,
        }
    }

    /// Sets the alias of an interface, of at most 255 bytes.
    ///
    /// # Errors
    /// `ERANGE` if the alias is longer, `ENODEV`, `EPERM`.
    pub fn set_alias(&mut self, link: u32, alias: &str) -> io::Result<()> {
        self.change(set_link(link).attribute(libc::IFLA_IFALIAS, alias.as_bytes()))
    }

    /// Moves an interface to the network namespace `namespace`.
    ///
    /// # Errors
    /// `EEXIST` if an interface of that namespace has the same name, `EINVAL` for an interface that cannot be moved,
    /// `ENODEV`, `EPERM`.
    pub fn move_to(&mut self, link: u32, namespace: BorrowedFd<'_>) -> io::Result<()> {
        self.change(set_link(link).number(libc::IFLA_NET_NS_FD, namespace.as_raw_fd() as u32))
    }

    /// Adds an address to an interface.
    ///
    /// # Errors
    /// `EEXIST` if the interface already has the address, `ENODEV`, `EPERM`.
    pub fn add_address(&mut self, address: &Address) -> io::Result<()> {
        let (family, bytes) = match address.ip {
            IpAddr::V4(ip) => (libc::AF_INET, ip.octets().to_vec()),
            IpAddr::V6(ip) => (libc::AF_INET6, ip.octets().to_vec()),
        };
        let mut fixed = [0; 8];
        fixed[0] = family as u8;
        fixed[1] = address.prefix;
        fixed[4..8].copy_from_slice(&address.link.to_ne_bytes());
        self.change(
            Message::new(libc::RTM_NEWADDR, create_flags(), &fixed)
                .attribute(libc::IFA_LOCAL, &bytes)
                .attribute(libc::IFA_ADDRESS, &bytes),
        )
    }

    /// The interface `name`, which may be one of its alternative names.
    ///
    /// # Errors
    /// `ENODEV` if the interface does not exist.
    pub fn link(&mut self, name: &str) -> io::Result<Link> {
        // Only alternative names may be longer than 15 bytes; the kernel rejects them in the attribute of the name.
        let kind = if name.len() < libc::IFNAMSIZ { libc::IFLA_IFNAME } else { attr::LINK_ALTERNATIVE_NAME };
        self.get_link(Message::new(libc::RTM_GETLINK, requested(), &link_header(0, 0, 0)).text(kind, name))
    }

    /// The interface with the index `link`, independent of its present name.
    ///
    /// # Errors
    /// `ENODEV` if the interface does not exist.
    pub fn link_by_index(&mut self, link: u32) -> io::Result<Link> {
        self.get_link(Message::new(libc::RTM_GETLINK, requested(), &link_header(link, 0, 0)))
    }

    fn get_link(&mut self, message: Message) -> io::Result<Link> {
        let mut found = None;
        self.request(message, |response| found = decode_link(&response))?;
        found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
    }

    /// All interfaces.
    ///
    /// # Errors
    /// Returns the kernel's error if the system call fails.
    pub fn links(&mut self) -> io::Result<Vec<Link>> {
        self.dump(libc::RTM_GETLINK, &link_header(0, 0, 0), decode_link)
    }

    /// The addresses of all interfaces.
    ///
    /// # Errors
    /// Returns the kernel's error if the system call fails.
    pub fn addresses(&mut self) -> io::Result<Vec<Address>> {
        self.dump(libc::RTM_GETADDR, &[0; 8], decode_address)
    }

    /// The unicast routes of the main table.
    ///
    /// # Errors
    /// Returns the kernel's error if the system call fails.
    pub fn routes(&mut self) -> io::Result<Vec<Route>> {
        self.dump(libc::RTM_GETROUTE, &[0; 12], decode_route)
    }

    fn dump<T>(&mut self, kind: u16, fixed: &[u8], decode: impl Fn(&Response<'_>) -> Option<T>) -> io::Result<Vec<T>> {
        for _ in 0..DUMP_ATTEMPTS {
            let mut all = Vec::new();
            let mut changed = false;
            let flags = libc::NLM_F_REQUEST as u16 | libc::NLM_F_DUMP as u16;
            self.request(Message::new(kind, flags, fixed), |response| {
                changed |= response.flags & libc::NLM_F_DUMP_INTR as u16 != 0;
                all.extend(decode(&response));
            })?;
            if !changed {
                return Ok(all);
            }
        }
        Err(io::Error::new(io::ErrorKind::ResourceBusy, "the list changed during each attempt to read it"))
    }

    fn change(&mut self, message: Message) -> io::Result<()> {
        self.request(message, |_| ())
    }

    /// Sends a request and passes each message of the response to `each`, up to the acknowledgement.
    fn request(&mut self, message: Message, mut each: impl FnMut(Response<'_>)) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = message.finish(self.sequence);
        send(&self.fd, &bytes, SendFlags::empty())?;
        loop {
            let got = self.receive()?;
            for response in responses(&self.buffer[..got]).filter(|r| r.sequence == self.sequence) {
                match i32::from(response.kind) {
                    libc::NLMSG_DONE => return Ok(()),
                    libc::NLMSG_ERROR => {
                        return match number(response.body, 0).unwrap_or_default() as i32 {
                            0 => Ok(()),
                            code => Err(io::Error::from_raw_os_error(-code)),
                        };
                    }
                    _ => each(response),
                }
            }
        }
    }

    fn receive(&mut self) -> io::Result<usize> {
        loop {
            match recv(&self.fd, &mut self.buffer[..], RecvFlags::TRUNC) {
                Ok((_, len)) if len <= self.buffer.len() => return Ok(len),
                Ok(_) => return Err(Errno::MSGSIZE.into()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The flags of a request with acknowledgement.
const fn requested() -> u16 {
    (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16
}

const fn create_flags() -> u16 {
    requested() | (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16
}

fn set_link(link: u32) -> Message {
    Message::new(libc::RTM_NEWLINK, requested(), &link_header(link, 0, 0))
}

/// `struct ifinfomsg`: family, pad, hardware type, index, flags, and the mask of the flags to change.
fn link_header(index: u32, flags: u32, change: u32) -> [u8; 16] {
    let mut fixed = [0; 16];
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    fixed[8..12].copy_from_slice(&flags.to_ne_bytes());
    fixed[12..16].copy_from_slice(&change.to_ne_bytes());
    fixed
}

fn decode_link(response: &Response<'_>) -> Option<Link> {
    let body = response.body;
    let mut link = Link {
        index: number(body, 4)?,
        flags: number(body, 8)?,
        hardware_type: message::half(body, 2)?,
        ..Link::default()
    };
    let mut lower_is_elsewhere = false;
    for (kind, payload) in attributes(body.get(16..)?) {
        match kind {
            libc::IFLA_IFNAME => link.name = text(payload),
            libc::IFLA_IFALIAS => link.alias = Some(text(payload)),
            libc::IFLA_ADDRESS => link.mac = payload.try_into().ok(),
            libc::IFLA_MTU => link.mtu = number(payload, 0)?,
            libc::IFLA_MASTER => link.master = number(payload, 0),
            libc::IFLA_LINK => link.lower = number(payload, 0),
            attr::LINK_PROMISCUITY => link.promiscuity = number(payload, 0)?,
            attr::LINK_NAMESPACE => lower_is_elsewhere = true,
            attr::LINK_XDP => {
                let mode = attributes(payload).find(|a| a.0 == attr::XDP_ATTACHED);
                link.has_xdp = mode.is_some_and(|a| a.1.first().is_some_and(|mode| *mode != 0));
            }
            libc::IFLA_OPERSTATE => link.operstate = *payload.first()?,
            libc::IFLA_CARRIER => link.carrier = *payload.first()? != 0,
            libc::IFLA_NUM_RX_QUEUES => link.rx_queues = number(payload, 0)?,
            libc::IFLA_NUM_TX_QUEUES => link.tx_queues = number(payload, 0)?,
            libc::IFLA_STATS64 => link.stats = decode_stats(payload)?,
            libc::IFLA_LINKINFO => {
                link.kind = attributes(payload).find(|a| a.0 == attr::INFO_KIND).map(|a| text(a.1));
            }
            attr::LINK_PARENT_DEVICE => link.parent_device = Some(text(payload)),
            _ => (),
        }
    }
    if lower_is_elsewhere {
        // The index belongs to an interface of another namespace. In this namespace, the same index belongs to another
        // interface.
        link.lower = None;
    }
    Some(link)
}

/// `struct rtnl_link_stats64` is an array of 64-bit counters; the positions are those of `if_link.h`.
fn decode_stats(payload: &[u8]) -> Option<LinkStats> {
    let at = |position: usize| long(payload, position * 8);
    Some(LinkStats {
        rx_packets: at(0)?,
        tx_packets: at(1)?,
        rx_errors: at(4)?,
        rx_dropped: at(6)?,
        tx_dropped: at(7)?,
        rx_fifo: at(14)?,
        rx_missed: at(15)?,
    })
}

fn decode_address(response: &Response<'_>) -> Option<Address> {
    let body = response.body;
    let (mut local, mut address) = (None, None);
    for (kind, payload) in attributes(body.get(8..)?) {
        match kind {
            // On a point-to-point interface ADDRESS is the peer's address and LOCAL is our own.
            libc::IFA_LOCAL => local = decode_ip(payload),
            libc::IFA_ADDRESS => address = decode_ip(payload),
            _ => (),
        }
    }
    Some(Address { link: number(body, 4)?, ip: local.or(address)?, prefix: body[1] })
}

fn decode_route(response: &Response<'_>) -> Option<Route> {
    let body = response.body;
    let fixed = body.get(..12)?;
    let (prefix, table, kind) = (fixed[1], fixed[4], fixed[7]);
    if table != libc::RT_TABLE_MAIN || kind != libc::RTN_UNICAST {
        return None;
    }
    let (mut link, mut network) = (None, None);
    for (kind, payload) in attributes(&body[12..]) {
        match kind {
            libc::RTA_OIF => link = number(payload, 0),
            // `struct rtnexthop`: length, flags, hops, interface index; only the first of several next hops is used.
            libc::RTA_MULTIPATH => link = link.or_else(|| number(payload, 4)),
            libc::RTA_DST => network = decode_ip(payload),
            _ => (),
        }
    }
    Some(Route { link: link?, network, prefix })
}

fn decode_ip(payload: &[u8]) -> Option<IpAddr> {
    match payload.len() {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(payload).ok()?)),
        16 => Some(IpAddr::from(<[u8; 16]>::try_from(payload).ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Sandbox;

    #[test]
    fn the_queueing_disciplines_of_an_interface_are_those_of_this_interface_only() {
        let test = "the_queueing_disciplines_of_an_interface_are_those_of_this_interface_only";
        let Some(sandbox) = Sandbox::new(test) else { return };
        let (a, b) = sandbox.veth("a", "b");
        let mut netlink = Netlink::route().expect("a socket");
        netlink.add_fifo(a.index, 10).expect("a queue");
        let mut of = |link| netlink.queueing_disciplines(link).expect("the disciplines");
        assert_eq!(of(a.index), ["pfifo"]);
        assert_eq!(of(b.index), ["noqueue"]);
        assert_eq!(of(9999), Vec::<String>::new());
    }
}
