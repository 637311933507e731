//! The choice of the source for an interface if the configuration names none.
//!
//! AF_XDP delivers the frames to this process instead of the host, which suits an interface that receives mirrored
//! traffic. TPACKET_V3 delivers copies of the frames, which suits an interface that the host uses itself, or from which
//! another program captures. Invariant: **an interface that the host or another program uses retains its traffic unless
//! `dedicated` was given.** [`PortFacts::gather`] queries the kernel; [`decide`] is a pure function of the result.

use crate::SourceError;
use base::units::plural;
use std::fmt;
use std::net::IpAddr;
use sys::ethtool;
use sys::netlink::netdev::{self, XdpFeatures, feature};
use sys::netlink::{Address, Link, Netlink, Route};
use sys::packet::others;

/// Largest MTU whose frames fit one buffer of native XDP: a page of 4096 bytes less 256 bytes of headroom, 320 of
/// kernel metadata, and 22 of link header and two VLAN tags.
const ONE_BUFFER_MTU: u32 = 4096 - 256 - 320 - 22;

/// The live sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// [`crate::afxdp`].
    AfXdp,
    /// [`crate::tpacket`].
    Tpacket,
}

/// The chosen source with the reason; the text is one line that begins with the name of the interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The interface.
    pub interface: String,
    /// The reason for the choice; it determines the source.
    pub reason: Reason,
}

impl Choice {
    /// The source.
    pub const fn kind(&self) -> SourceKind {
        match self.reason {
            Reason::NativeXdp { .. } => SourceKind::AfXdp,
            _ => SourceKind::Tpacket,
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.interface, self.reason)
    }
}

/// The reason for the choice of a source; its text names the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// TPACKET_V3 is chosen because the interface is a loopback interface.
    Loopback,
    /// TPACKET_V3 is chosen because the host uses the interface in the listed ways.
    HostUse(Vec<HostUse>),
    /// TPACKET_V3 is chosen because other programs receive the frames of the interface through packet sockets.
    OtherPrograms {
        /// The number of their packet sockets.
        sockets: usize,
    },
    /// TPACKET_V3 is chosen because another XDP program is attached.
    XdpAttached,
    /// TPACKET_V3 is chosen because the kernel does not report the XDP features of the driver.
    UnknownFeatures,
    /// TPACKET_V3 is chosen because this driver does not support redirects in native XDP.
    NoRedirect {
        /// The driver.
        driver: String,
    },
    /// TPACKET_V3 is chosen because the frames are larger than one XDP buffer, and this driver uses only one buffer for
    /// each frame.
    LargeFrames {
        /// The driver.
        driver: String,
        /// The MTU in bytes.
        mtu: u32,
    },
    /// AF_XDP is chosen because the driver has all required features.
    NativeXdp {
        /// The driver.
        driver: String,
        /// True if the interface is dedicated although the host or another program uses it.
        is_dedicated: bool,
        /// The driver has zero copy.
        has_zero_copy: bool,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback => {
                f.write_str("TPACKET_V3, because a loopback interface carries only the host's own traffic")
            }
            Self::HostUse(uses) => {
                let uses: Vec<_> = uses.iter().map(HostUse::to_string).collect();
                let uses = uses.join(", ");
                write!(
                    f,
                    "TPACKET_V3, because the host uses this interface ({uses}); with --dedicated the host would \
                     receive nothing from it"
                )
            }
            Self::OtherPrograms { sockets } => write!(
                f,
                "TPACKET_V3, because other programs receive from this interface ({}); with --dedicated they would \
                 receive nothing from it",
                packet_sockets(*sockets)
            ),
            Self::XdpAttached => f.write_str(
                "TPACKET_V3, because another XDP program is attached; frames that it does not pass to the kernel are \
                 not captured",
            ),
            Self::UnknownFeatures => {
                f.write_str("TPACKET_V3, because this kernel does not report the driver's XDP features")
            }
            Self::NoRedirect { driver } => {
                write!(f, "TPACKET_V3, because the driver ({driver}) does not support redirects in native XDP")
            }
            Self::LargeFrames { driver, mtu } => write!(
                f,
                "TPACKET_V3, because the driver ({driver}) does not support XDP frames of several buffers, and the MTU \
                 is {mtu} (limit {ONE_BUFFER_MTU})"
            ),
            Self::NativeXdp { driver, is_dedicated, has_zero_copy } => {
                let why = if *is_dedicated { "--dedicated was given" } else { "the host does not use this interface" };
                let copies = if *has_zero_copy { "zero copy" } else { "one copy in the kernel" };
                write!(f, "AF_XDP, because {why} and the driver ({driver}) supports it; {copies}")
            }
        }
    }
}

/// The number of packet sockets in words.
pub fn packet_sockets(sockets: usize) -> String {
    plural(sockets as u64, "packet socket", "packet sockets")
}

/// One way in which the host uses an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostUse {
    /// The interface has an address, configured or chosen by the kernel.
    Address(IpAddr),
    /// The default route uses the interface.
    DefaultRoute,
    /// Another route uses the interface.
    Route,
    /// The interface belongs to a bridge, bond or VRF of this name.
    Member(String),
    /// An interface of this name, such as a VLAN, is stacked on the interface.
    Carries(String),
    /// The loopback interface.
    Loopback,
}

impl fmt::Display for HostUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(ip) => write!(f, "address {ip}"),
            Self::DefaultRoute => f.write_str("default route"),
            Self::Route => f.write_str("route"),
            Self::Member(name) => write!(f, "member of {name}"),
            Self::Carries(name) => write!(f, "carries {name}"),
            Self::Loopback => f.write_str("loopback"),
        }
    }
}

/// The facts about an interface on which the choice of its source depends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortFacts {
    /// The interface.
    pub name: String,
    /// The ways in which the host uses the interface; empty if it does not.
    pub uses: Vec<HostUse>,
    /// The number of packet sockets of other processes that receive from the interface.
    pub other_sockets: usize,
    /// The name of the driver of the interface, if the kernel reports it.
    pub driver: Option<String>,
    /// The XDP features of the driver, if the kernel reports them.
    pub xdp: Option<XdpFeatures>,
    /// Another process has attached an XDP program to the interface.
    pub has_xdp: bool,
    /// The MTU in bytes.
    pub mtu: u32,
    /// The reason why no frames arrive at present, if there is one.
    pub silence: Option<Silence>,
}

/// The reason why no frames arrive at an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// The interface is administratively down.
    Down,
    /// The interface is up, but has no carrier.
    NoCarrier,
}

impl PortFacts {
    /// A warning that no frames arrive at present, with the correction; `None` if frames can arrive.
    pub fn silence_warning(&self) -> Option<String> {
        let name = &self.name;
        Some(match self.silence? {
            Silence::Down => {
                format!("{name}: the interface is down, so no packets arrive until it is up: ip link set {name} up")
            }
            Silence::NoCarrier => format!(
                "{name}: the interface has no carrier, so no packets arrive until the link comes up: check the cable \
                 and the other end of the link"
            ),
        })
    }
}

/// Chooses a source for `interface`; `dedicated` means that the host does not need its traffic.
///
/// # Errors
/// [`SourceError::System`] if the interface does not exist or the kernel refuses a query.
pub fn choose(interface: &str, dedicated: bool) -> Result<Choice, SourceError> {
    Ok(decide(&PortFacts::gather(interface)?, dedicated))
}

/// Returns the source to choose for the given facts about an interface. Does not query the kernel.
pub fn decide(facts: &PortFacts, dedicated: bool) -> Choice {
    Choice { interface: facts.name.clone(), reason: reason(facts, dedicated) }
}

fn reason(facts: &PortFacts, dedicated: bool) -> Reason {
    if facts.uses.contains(&HostUse::Loopback) {
        return Reason::Loopback;
    }
    if !facts.uses.is_empty() && !dedicated {
        return Reason::HostUse(facts.uses.clone());
    }
    if facts.other_sockets > 0 && !dedicated {
        return Reason::OtherPrograms { sockets: facts.other_sockets };
    }
    if facts.has_xdp {
        return Reason::XdpAttached;
    }
    let driver = facts.driver.clone().unwrap_or_else(|| "of unknown name".to_owned());
    let Some(xdp) = facts.xdp else { return Reason::UnknownFeatures };
    let can = |bits| xdp.bits & bits == bits;
    if !can(feature::BASIC | feature::REDIRECT) {
        return Reason::NoRedirect { driver };
    }
    if facts.mtu > ONE_BUFFER_MTU && !can(feature::RX_SG) {
        return Reason::LargeFrames { driver, mtu: facts.mtu };
    }
    let is_dedicated = !facts.uses.is_empty() || facts.other_sockets > 0;
    let has_zero_copy = can(feature::XSK_ZEROCOPY);
    Reason::NativeXdp { driver, is_dedicated, has_zero_copy }
}

impl PortFacts {
    /// Queries the kernel.
    ///
    /// # Errors
    /// [`SourceError::System`] if the interface does not exist or the kernel refuses a query.
    pub fn gather(interface: &str) -> Result<Self, SourceError> {
        let fail = |what: &'static str| {
            move |error| SourceError::System { name: interface.to_owned(), what, error, advice: String::new() }
        };
        let mut netlink = Netlink::route().map_err(fail("query the kernel's interfaces"))?;
        let link = netlink.link(interface).map_err(|error| SourceError::System {
            name: interface.to_owned(),
            what: "find the interface",
            error,
            advice: "see ip link for the names of interfaces".to_owned(),
        })?;
        let links = netlink.links().map_err(fail("list the interfaces"))?;
        let addresses = netlink.addresses().map_err(fail("list the addresses"))?;
        let routes = netlink.routes().map_err(fail("list the routes"))?;
        let other_sockets = others::receiving(link.index).map_err(fail("list the packet sockets"))?;
        Ok(Self {
            name: link.name.clone(),
            uses: uses(&link, &links, &addresses, &routes),
            other_sockets,
            driver: ethtool::driver(&link.name).ok(),
            xdp: netdev::xdp_features(link.index).ok(),
            has_xdp: link.has_xdp,
            mtu: link.mtu,
            silence: match (link.is_up(), link.carrier) {
                (false, _) => Some(Silence::Down),
                (true, false) => Some(Silence::NoCarrier),
                (true, true) => None,
            },
        })
    }
}

fn uses(link: &Link, links: &[Link], addresses: &[Address], routes: &[Route]) -> Vec<HostUse> {
    let mut uses = Vec::new();
    if link.is_loopback() {
        uses.push(HostUse::Loopback);
    }
    // Link-local addresses that the kernel assigned (fe80::/10) count as addresses of the host too, because routing
    // daemons use interfaces that have no other address.
    let own = addresses.iter().filter(|a| a.link == link.index);
    uses.extend(own.map(|a| HostUse::Address(a.ip)));
    let mut leaving = routes.iter().filter(|r| r.link == link.index && !r.network.is_some_and(is_automatic));
    if leaving.clone().any(|r| r.prefix == 0) {
        uses.push(HostUse::DefaultRoute);
    } else if leaving.next().is_some() {
        uses.push(HostUse::Route);
    }
    if let Some(master) = link.master {
        let name =
            links.iter().find(|l| l.index == master).map_or_else(|| format!("interface {master}"), |l| l.name.clone());
        uses.push(HostUse::Member(name));
    }
    // The two ends of a veth pair name each other as the lower interface; neither is stacked on the other.
    let above = links.iter().filter(|l| l.lower == Some(link.index) && l.kind.as_deref() != Some("veth"));
    uses.extend(above.map(|l| HostUse::Carries(l.name.clone())));
    uses
}

/// True if the kernel adds the route to this network to every interface that comes up.
fn is_automatic(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local() || v6.is_multicast())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::time::{Duration, Instant};
    use sys::packet::PacketSocket;
    use testkit::{ChildTest, Sandbox};

    /// An unused interface whose driver supports all XDP features.
    fn mirror() -> PortFacts {
        PortFacts {
            name: "eth1".to_owned(),
            driver: Some("ice".to_owned()),
            xdp: Some(XdpFeatures {
                bits: feature::BASIC | feature::REDIRECT | feature::RX_SG | feature::XSK_ZEROCOPY,
                ..XdpFeatures::default()
            }),
            mtu: 9000,
            ..PortFacts::default()
        }
    }

    #[test]
    fn an_interface_that_the_host_uses_keeps_its_traffic_with_any_driver() {
        let all = [
            HostUse::Address(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            HostUse::DefaultRoute,
            HostUse::Route,
            HostUse::Member("br0".to_owned()),
            HostUse::Carries("eth1.5".to_owned()),
        ];
        for one in all {
            let facts = PortFacts { uses: vec![one.clone()], ..mirror() };
            let choice = decide(&facts, false);
            assert_eq!(choice.kind(), SourceKind::Tpacket);
            assert!(choice.reason == Reason::HostUse(vec![one.clone()]) && choice.to_string().contains("--dedicated"));
            assert_eq!(decide(&facts, true).kind(), SourceKind::AfXdp, "{one}");
        }
    }

    #[test]
    fn an_interface_from_which_another_program_captures_is_shared() {
        let facts = PortFacts { other_sockets: 1, ..mirror() };
        let choice = decide(&facts, false);
        assert_eq!(choice.kind(), SourceKind::Tpacket);
        assert!(
            choice.to_string().contains("other programs receive from this interface (1 packet socket)"),
            "{choice}"
        );
        let dedicated = decide(&PortFacts { other_sockets: 2, ..mirror() }, true);
        assert_eq!(dedicated.kind(), SourceKind::AfXdp);
        assert!(dedicated.to_string().contains("--dedicated was given"), "{dedicated}");
    }

    #[test]
    fn packet_sockets_of_other_processes_are_counted_and_those_of_this_process_are_not() {
        const VARIABLE: &str = "NETGRAIN_TEST_PACKET_SOCKET";
        let test = "packet_sockets_of_other_processes_are_counted_and_those_of_this_process_are_not";
        let socket = |link, protocol| {
            let socket = PacketSocket::open().expect("a packet socket");
            socket.bind(link, protocol).expect("an interface");
            socket
        };
        if let Some(link) = std::env::var(VARIABLE).ok().and_then(|link| link.parse().ok()) {
            let _sockets = [socket(link, None), socket(0, Some(3)), socket(link, Some(3))];
            loop {
                std::thread::park();
            }
        }
        let Some(sandbox) = Sandbox::new("auto::packet_sockets_of_other_processes") else { return };
        let (a, _) = sandbox.veth("a", "b");
        let _own = socket(a.index, Some(3));
        let other_sockets = || PortFacts::gather(&a.name).expect("facts").other_sockets;
        assert_eq!(other_sockets(), 0);
        let mut other = ChildTest::start(module_path!(), test, VARIABLE, a.index.to_string());
        let until = Instant::now() + Duration::from_secs(60);
        while other_sockets() == 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(other_sockets(), 1, "the sockets that only send, or are bound to all interfaces, do not count");
        other.kill();
        assert_eq!(other_sockets(), 0);
    }

    #[test]
    fn an_interface_that_is_down_or_without_carrier_causes_a_warning() {
        let Some(sandbox) = Sandbox::new("auto::an_interface_that_is_down_or_without_carrier") else { return };
        let (a, b) = sandbox.veth("a", "b");
        let warning = || PortFacts::gather(&a.name).expect("facts").silence_warning();
        assert_eq!(warning(), None);
        sandbox.netlink().set_up(b.index, false).expect("the peer goes down");
        assert!(warning().is_some_and(|text| text.contains("a: the interface has no carrier")), "{:?}", warning());
        sandbox.netlink().set_up(a.index, false).expect("the interface goes down");
        assert!(warning().is_some_and(|text| text.ends_with("ip link set a up")), "{:?}", warning());
    }

    #[test]
    fn loopback_is_shared_even_if_dedicated() {
        let facts = PortFacts { uses: vec![HostUse::Loopback], ..mirror() };
        assert_eq!(decide(&facts, true).kind(), SourceKind::Tpacket);
    }

    #[test]
    fn the_explanation_names_the_missing_feature_of_the_driver() {
        let features = |bits| Some(XdpFeatures { bits, ..XdpFeatures::default() });
        let basic = feature::BASIC | feature::REDIRECT;
        let cases = [
            (PortFacts { xdp: None, ..mirror() }, "does not report"),
            (PortFacts { xdp: features(0), ..mirror() }, "(ice) does not support redirects"),
            (PortFacts { xdp: features(feature::BASIC), ..mirror() }, "(ice) does not support redirects"),
            (PortFacts { xdp: features(basic), ..mirror() }, "MTU is 9000"),
            (PortFacts { has_xdp: true, ..mirror() }, "another XDP program is attached"),
        ];
        for (facts, reason) in cases {
            for dedicated in [false, true] {
                let choice = decide(&facts, dedicated);
                assert_eq!(choice.kind(), SourceKind::Tpacket);
                assert!(choice.to_string().contains(reason), "{choice}");
            }
        }
        assert_eq!(
            decide(&PortFacts { xdp: features(basic), mtu: ONE_BUFFER_MTU, ..mirror() }, false).kind(),
            SourceKind::AfXdp
        );
    }

    #[test]
    fn the_explanation_is_one_line_that_names_the_interface() {
        let choice = decide(&mirror(), false);
        assert_eq!(
            choice.to_string(),
            "eth1: AF_XDP, because the host does not use this interface and the driver (ice) supports it; zero copy"
        );
    }

    #[test]
    fn addresses_and_configured_routes_count_as_host_use() {
        let port = |index, name: &str| Link { index, name: name.to_owned(), ..Link::default() };
        let us = port(2, "eth1");
        let v6 = |first| IpAddr::V6(Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, 1));
        let veth = Link { lower: Some(2), kind: Some("veth".to_owned()), ..port(3, "other-end") };
        let automatic =
            [Address { link: 2, ip: v6(0xfe80), prefix: 64 }, Address { link: 9, ip: v6(0x2001), prefix: 64 }];
        let routes = [
            Route { link: 2, network: Some(v6(0xfe80)), prefix: 64 },
            Route { link: 9, network: None, prefix: 0 },
            Route { link: 2, network: Some(v6(0xff00)), prefix: 8 },
        ];
        let local = [HostUse::Address(v6(0xfe80))];
        assert_eq!(
            uses(&us, std::slice::from_ref(&veth), &automatic, &routes),
            local,
            "a link-local address is a use by the host, because routing daemons use such addresses"
        );
        assert_eq!(uses(&us, std::slice::from_ref(&veth), &automatic[1..], &routes), []);

        let vlan = Link { lower: Some(2), kind: Some("vlan".to_owned()), ..port(4, "eth1.5") };
        let bridged = Link { master: Some(5), ..us };
        let given = [Address { link: 2, ip: v6(0x2001), prefix: 64 }];
        let routes =
            [Route { link: 2, network: Some(v6(0x2001)), prefix: 64 }, Route { link: 2, network: None, prefix: 0 }];
        assert_eq!(
            uses(&bridged, &[veth, vlan, port(5, "br0")], &given, &routes),
            [
                HostUse::Address(v6(0x2001)),
                HostUse::DefaultRoute,
                HostUse::Member("br0".to_owned()),
                HostUse::Carries("eth1.5".to_owned())
            ]
        );
    }

    #[test]
    fn the_facts_of_a_real_interface_come_from_the_kernel() {
        let Some(sandbox) = Sandbox::new("auto::the_facts_of_a_real_interface_come_from_the_kernel") else { return };
        assert!(
            choose("nothing0", false).expect_err("no such interface").to_string().contains("nothing0: cannot find")
        );
        assert_eq!(choose("lo", true).expect("lo").kind(), SourceKind::Tpacket);
        let (a, b) = sandbox.veth("a", "b");
        let free = PortFacts::gather("b").expect("facts");
        assert_eq!(
            (free.uses.as_slice(), free.driver.as_deref(), free.has_xdp, free.mtu),
            (&[][..], Some("veth"), false, 1500)
        );
        let ip = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9));
        sandbox.netlink().add_address(&Address { link: b.index, ip, prefix: 24 }).expect("address");
        let used = PortFacts::gather("b").expect("facts");
        assert_eq!(used.uses, [HostUse::Address(ip), HostUse::Route]);
        assert_eq!(decide(&used, false).kind(), SourceKind::Tpacket);
        let taken = crate::afxdp::open(&crate::afxdp::AfXdpConfig::new(&a.name)).unwrap_or_else(|e| panic!("{e}"));
        let facts = PortFacts::gather(&a.name).expect("facts");
        assert_eq!(
            (facts.uses.as_slice(), facts.has_xdp),
            (&[][..], true),
            "the peer of the veth pair is not a use by the host"
        );
        drop(taken);
        assert!(!PortFacts::gather(&a.name).expect("facts").has_xdp);
    }
}
