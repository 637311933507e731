//! Checks of one interface: driver capabilities, NIC settings, losses so far.

use crate::checks::{self, Check};
use crate::finding::{Finding, State, Subject};
use crate::setting::{Change, Setting};
use base::units::{show_count, show_si};
use capture::SourceError;
use capture::auto::{PortFacts, Reason, SourceKind, decide};
use sys::cpu;
use sys::ethtool::{self, Channels, Feature, Pause, Rings, Rss, Speed, Stamping};
use sys::netlink::netdev::feature;
use sys::netlink::{Link, Netlink};
use sys::sysfs::Tree;

/// The smallest link speed in Mbit/s at which one receive queue does not suffice for small packets.
const FAST_MEGABITS: u32 = 10_000;

/// Names of the driver counters of packets that were lost because the NIC had no free descriptor or memory (ixgbe and
/// igb; i40e and ice; mlx5; virtio_net and ena; bnxt).
const LOSS_NAMES: [&str; 9] = [
    "rx_no_dma_resources",
    "rx_missed_errors",
    "port.rx_dropped",
    "rx_out_of_buffer",
    "rx_discards_phy",
    "rx_fifo_errors",
    "rx_drops",
    "rx_no_buffer_count",
    "rx_total_discard_pkts",
];

/// An interrupt of the interface, with the processors that may handle it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Irq {
    pub number: u32,
    pub cpus: Vec<usize>,
}

/// What the kernel reports about an interface.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub port: PortFacts,
    pub link: Link,
    pub dedicated: bool,
    pub features: Option<Vec<Feature>>,
    pub rings: Option<Rings>,
    pub channels: Option<Channels>,
    pub pause: Option<Pause>,
    pub speed: Option<Speed>,
    pub stamping: Option<Stamping>,
    pub stamps_all: bool,
    pub rss: Option<Rss>,
    /// The packet types whose RSS hash can include the transport ports. The flag of a type is true if its hash includes
    /// the ports at present.
    pub hashed: Vec<(&'static str, bool)>,
    pub lost: Vec<(String, u64)>,
    pub irqs: Vec<Irq>,
    /// The NUMA node of the NIC and the processors of this node; `None` if the machine has a single node.
    pub node: Option<(usize, Vec<usize>)>,
    /// Processors that this process may use.
    pub allowed: Vec<usize>,
    pub is_virtual_function: bool,
}

impl Facts {
    /// Reads the state, settings and counters of the interface from the kernel.
    pub fn gather(name: &str, dedicated: bool, tree: &Tree) -> Result<Self, SourceError> {
        let port = PortFacts::gather(name)?;
        let name = port.name.clone();
        let link = Netlink::route().and_then(|mut n| n.link(&name)).map_err(|error| SourceError::System {
            name: name.clone(),
            what: "find the interface",
            error,
            advice: "`ip link` lists the names".to_owned(),
        })?;
        let device = link.parent_device.as_deref().and_then(|d| tree.device(d));
        let file = |file: &str| device.as_ref().map(|d| format!("{d}/{file}"));
        let several_nodes = tree.names("sys/devices/system/node").iter().filter(|n| is_node(n)).count() > 1;
        // For a virtio device, the file `numa_node` is in the directory of the parent device on the bus.
        let node = [file("numa_node"), file("../numa_node")].into_iter().flatten().find_map(|f| tree.value::<i64>(&f));
        let node = node.and_then(|n| usize::try_from(n).ok()).filter(|_| several_nodes);
        let node =
            node.map(|n| (n, tree.cpus(&format!("sys/devices/system/node/node{n}/cpulist")).unwrap_or_default()));
        let hashed =
            ethtool::FLOW_KINDS.iter().filter_map(|(kind, n)| Some((*kind, ethtool::hashes_ports(&name, *n).ok()?)));
        let lost = ethtool::statistics(&name).unwrap_or_default();
        Ok(Self {
            dedicated,
            features: ethtool::features(&name).ok(),
            rings: ethtool::rings(&name).ok(),
            channels: ethtool::channels(&name).ok(),
            pause: ethtool::pause(&name).ok(),
            speed: ethtool::speed(&name),
            stamping: ethtool::stamping(&name).ok(),
            stamps_all: ethtool::stamps_all_received(&name),
            rss: ethtool::rss(&name).ok(),
            hashed: hashed.collect(),
            lost: lost.into_iter().filter(|(n, count)| *count > 0 && LOSS_NAMES.contains(&n.as_str())).collect(),
            irqs: irqs(&name, link.parent_device.as_deref(), tree),
            node,
            allowed: cpu::allowed(),
            is_virtual_function: file("physfn").is_some_and(|f| tree.has(&f)),
            port,
            link,
        })
    }

    fn feature(&self, name: &str) -> Option<&Feature> {
        self.features.as_deref().unwrap_or_default().iter().find(|f| f.name == name)
    }

    /// Returns those of the named features that are switched on: first the features that the driver can switch off,
    /// then the features that it cannot switch off.
    fn on(&self, names: &[&'static str]) -> (Vec<&'static str>, Vec<&'static str>) {
        let on = names.iter().copied().filter(|n| self.feature(n).is_some_and(|f| f.on));
        on.partition(|n| self.feature(n).is_some_and(|f| f.can_change))
    }

    fn subject(&self) -> Subject {
        Subject::Port(self.port.name.clone())
    }

    const fn is_physical(&self) -> bool {
        self.link.parent_device.is_some()
    }
}

fn is_node(name: &str) -> bool {
    name.strip_prefix("node").is_some_and(|n| n.parse::<u32>().is_ok())
}

/// Returns the interrupts in `/proc/interrupts` whose label names the interface or its device, without the
/// administrative interrupts.
pub fn irqs(port: &str, device: Option<&str>, tree: &Tree) -> Vec<Irq> {
    const ADMINISTRATION: [&str; 5] = ["config", "async", "mbx", "other", "misc"];
    let text = tree.text("proc/interrupts").unwrap_or_default();
    let mut irqs = Vec::new();
    for line in text.lines() {
        let Some((number, rest)) = line.split_once(':') else { continue };
        let Ok(number) = number.trim().parse() else { continue };
        let label = rest.split_whitespace().last().unwrap_or_default();
        let named = names(label, port) || device.is_some_and(|d| names(label, d));
        if !named || ADMINISTRATION.iter().any(|a| label.ends_with(a)) {
            continue;
        }
        let list = |file: &str| tree.cpus(&format!("proc/irq/{number}/{file}")).filter(|c| !c.is_empty());
        // The effective affinity is the set of processors that really handle the interrupt. Not every interrupt
        // controller reports it.
        let cpus = list("effective_affinity_list").or_else(|| list("smp_affinity_list"));
        irqs.push(Irq { number, cpus: cpus.unwrap_or_default() });
    }
    irqs
}

/// True if `label` contains `name` as a whole word: `eth1` is in `ice-eth1-TxRx-0` and not in `eth10-rx`.
fn names(label: &str, name: &str) -> bool {
    let edge = |c: Option<char>| !c.is_some_and(char::is_alphanumeric);
    label
        .match_indices(name)
        .any(|(at, _)| edge(label[..at].chars().next_back()) && edge(label[at + name.len()..].chars().next()))
}

/// Runs all checks of an interface.
pub fn judge(f: &Facts) -> Vec<Finding> {
    let choice = decide(&f.port, f.dedicated);
    let kind = choice.kind();
    let mut all = vec![link(f), source(f, kind, &choice.reason), xdp_taken(f)];
    all.extend([virtual_function(f), merging(f, kind), sending(f, kind), vlan(f, kind), rx_ring(f), queues(f)]);
    all.extend([rss(f), interrupts(f), numa(f), mtu(f, kind), pause(f), counters(f), card_stamps(f, kind)]);
    all
}

fn link(f: &Facts) -> Finding {
    let (s, name) = (f.subject(), &f.port.name);
    let bad = |found: &str| Finding::new(&checks::LINK, &s, State::Bad, found);
    if !f.link.is_up() {
        return bad("administratively down").fix(format!("ip link set {name} up"));
    }
    if !f.link.carrier {
        return bad("no link").fix("check the cable, the transceiver and the link partner");
    }
    match f.speed {
        Some(Speed { megabits, full_duplex: false }) => {
            bad(&format!("{}, half duplex", bits(megabits))).fix(format!("ethtool -s {name} duplex full"))
        }
        Some(Speed { megabits, .. }) => Finding::good(&checks::LINK, &s, format!("up, {}", bits(megabits))),
        None => Finding::good(&checks::LINK, &s, "up; the interface reports no speed"),
    }
}

fn bits(megabits: u32) -> String {
    show_si(f64::from(megabits) * 1e6, "b/s")
}

fn source(f: &Facts, kind: SourceKind, reason: &Reason) -> Finding {
    let s = f.subject();
    let driver = f.port.driver.as_deref().unwrap_or("of unknown name");
    let found = reason.to_string();
    let can = |bits| f.port.xdp.is_some_and(|x| x.bits & bits == bits);
    if f.port.xdp.is_none() {
        return Finding::new(&checks::SOURCE, &s, State::Unknown, found)
            .fix("use Linux 6.3 or later, which reports the XDP features of the driver");
    }
    if !can(feature::BASIC | feature::REDIRECT) {
        let state = if f.is_physical() { State::Warning } else { State::Good };
        return Finding::new(&checks::SOURCE, &s, state, found)
            .fix(format!("use another NIC: the driver ({driver}) has no native XDP"));
    }
    // A virtual interface cannot be replaced by a NIC with zero copy, so only physical interfaces get the warning.
    if kind == SourceKind::AfXdp && f.is_physical() && !can(feature::XSK_ZEROCOPY) {
        return Finding::new(&checks::SOURCE, &s, State::Warning, found).fix("use a NIC whose driver has zero copy");
    }
    Finding::good(&checks::SOURCE, &s, found)
}

fn xdp_taken(f: &Facts) -> Finding {
    let s = f.subject();
    if f.port.has_xdp {
        Finding::new(&checks::XDP_TAKEN, &s, State::Warning, "an XDP program is attached").fix(format!(
            "stop the process that attached it (for example a running netgrain record); see ip link show {}",
            f.port.name
        ))
    } else {
        Finding::good(&checks::XDP_TAKEN, &s, "no XDP program is attached")
    }
}

fn virtual_function(f: &Facts) -> Finding {
    let s = f.subject();
    if f.is_virtual_function {
        Finding::new(&checks::FUNCTION, &s, State::Warning, "a virtual function of a NIC")
            .fix("on the host: ip link set INTERFACE vf NUMBER trust on")
    } else {
        Finding::good(&checks::FUNCTION, &s, "not a virtual function")
    }
}

/// Returns a finding about NIC features that should be off; if some are on, the finding offers the change that switches
/// them off.
fn switched(check: &'static Check, f: &Facts, names: &[&'static str], state: State, fix: bool) -> Finding {
    let s = f.subject();
    if f.features.is_none() {
        return Finding::new(check, &s, State::Unknown, "the interface does not report its features");
    }
    let (can, cannot) = f.on(names);
    if can.is_empty() && cannot.is_empty() {
        return Finding::good(check, &s, "off or not available");
    }
    let listed = [can.as_slice(), cannot.as_slice()].concat().join(", ");
    if can.is_empty() {
        return Finding::new(check, &s, state, format!("{listed} on; the driver cannot switch them off"))
            .fix("use another NIC or driver; netgrain marks merged packets (note super_frame)");
    }
    let fixed = match cannot.as_slice() {
        [] => String::new(),
        fixed => format!("; the driver cannot switch off {}", fixed.join(", ")),
    };
    let switches: Vec<String> = can.iter().map(|n| format!("{} off", command_name(n))).collect();
    let mut finding = Finding::new(check, &s, state, format!("{listed} on{fixed}")).fix(format!(
        "ethtool -K {} {}",
        f.port.name,
        switches.join(" ")
    ));
    for feature in can.into_iter().filter(|_| fix) {
        let setting = Setting::Feature { port: f.port.name.clone(), feature: feature.to_owned() };
        finding = finding.change(Change { setting, value: "off".to_owned() });
    }
    finding
}

/// Returns the name that ethtool(8) uses for a kernel feature.
fn command_name(feature: &str) -> &str {
    match feature {
        "rx-gro" => "gro",
        "rx-lro" => "lro",
        "rx-vlan-hw-parse" => "rxvlan",
        "tx-tcp-segmentation" => "tso",
        "tx-generic-segmentation" => "gso",
        other => other,
    }
}

fn merging(f: &Facts, kind: SourceKind) -> Finding {
    const IN_THE_CARD: [&str; 2] = ["rx-lro", "rx-gro-hw"];
    const EVERYWHERE: [&str; 5] = ["rx-gro", "rx-lro", "rx-gro-hw", "rx-gro-list", "rx-udp-gro-forwarding"];
    match kind {
        // XDP programs run before GRO merges packets. A veth interface even needs GRO for XDP if no program is attached
        // to the other end of the pair.
        SourceKind::AfXdp => switched(&checks::MERGING, f, &IN_THE_CARD, State::Bad, true),
        SourceKind::Tpacket => switched(&checks::MERGING, f, &EVERYWHERE, State::Bad, true),
    }
}

fn sending(f: &Facts, kind: SourceKind) -> Finding {
    const NAMES: [&str; 3] = ["tx-tcp-segmentation", "tx-generic-segmentation", "tx-checksum-ip-generic"];
    if kind == SourceKind::AfXdp || f.port.uses.is_empty() {
        return Finding::good(&checks::SENDING, &f.subject(), "packets that this host sends are not captured");
    }
    // --fix does not switch these features off: the host would become slower, and received packets are not affected.
    switched(&checks::SENDING, f, &NAMES, State::Warning, false)
}

fn vlan(f: &Facts, kind: SourceKind) -> Finding {
    const NAMES: [&str; 2] = ["rx-vlan-hw-parse", "rx-vlan-stag-hw-parse"];
    match kind {
        SourceKind::Tpacket => {
            Finding::good(&checks::VLAN, &f.subject(), "TPACKET reports a removed VLAN tag, and netgrain restores it")
        }
        SourceKind::AfXdp if f.port.driver.as_deref() == Some("veth") => Finding::good(
            &checks::VLAN,
            &f.subject(),
            "veth does not remove the VLAN tag of packets that were sent with a VLAN tag",
        ),
        SourceKind::AfXdp => switched(&checks::VLAN, f, &NAMES, State::Bad, true),
    }
}

fn rx_ring(f: &Facts) -> Finding {
    let (s, name) = (f.subject(), &f.port.name);
    let Some(rings) = f.rings.filter(|r| r.rx_max > 0) else {
        return Finding::good(&checks::RX_RING, &s, "the driver has no receive ring whose size can be set");
    };
    if rings.rx >= rings.rx_max {
        return Finding::good(&checks::RX_RING, &s, format!("{} descriptors, the maximum", rings.rx));
    }
    let value = rings.rx_max.to_string();
    Finding::new(&checks::RX_RING, &s, State::Warning, format!("{} of {} possible descriptors", rings.rx, rings.rx_max))
        .fix(format!("ethtool -G {name} rx {value}"))
        .change(Change { setting: Setting::RxRing { port: name.clone() }, value })
}

fn queues(f: &Facts) -> Finding {
    let (s, name) = (f.subject(), &f.port.name);
    let Some(channels) = f.channels.filter(|c| c.receiving_max() > 0) else {
        return Finding::good(&checks::QUEUES, &s, format!("{} queue(s), a fixed number", f.link.rx_queues));
    };
    let (now, cpus) = (channels.receiving() as usize, f.allowed.len().max(1));
    let found = format!("{now} of {} possible queues in use, for {cpus} processor(s)", channels.receiving_max());
    let fast = f.speed.is_some_and(|s| s.megabits >= FAST_MEGABITS) && f.is_physical();
    let kind = if channels.combined_max > 0 { "combined" } else { "rx" };
    let wanted = if now > cpus {
        cpus
    } else if now == 1 && fast && cpus > 1 && channels.receiving_max() > 1 {
        cpus.min(channels.receiving_max() as usize)
    } else {
        return Finding::good(&checks::QUEUES, &s, found);
    };
    Finding::new(&checks::QUEUES, &s, State::Warning, found)
        .fix(format!("ethtool -L {name} {kind} {wanted}"))
        .change(Change { setting: Setting::Queues { port: name.clone() }, value: wanted.to_string() })
}

fn rss(f: &Facts) -> Finding {
    let (s, name) = (f.subject(), &f.port.name);
    if f.channels.map_or(f.link.rx_queues, Channels::receiving) <= 1 {
        return Finding::good(&checks::RSS, &s, "one queue: packets are not distributed");
    }
    let Some(rss) = f.rss.as_ref().filter(|r| !r.key.is_empty() || r.symmetric) else {
        return Finding::new(&checks::RSS, &s, State::Unknown, "the NIC does not report the key of its RSS hash");
    };
    let without: Vec<&str> = f.hashed.iter().filter(|(_, ports)| !ports).map(|(kind, _)| *kind).collect();
    let fields =
        if without.is_empty() { String::new() } else { format!("; by addresses alone: {}", without.join(" ")) };
    if rss.is_symmetric() {
        return Finding::good(&checks::RSS, &s, format!("symmetric{fields}"));
    }
    let key: Vec<&str> = (0..rss.key.len()).map(|i| if i % 2 == 0 { "6d" } else { "5a" }).collect();
    Finding::new(&checks::RSS, &s, State::Warning, format!("not symmetric{fields}"))
        .fix(format!("ethtool -X {name} hkey {}", key.join(":")))
}

fn interrupts(f: &Facts) -> Finding {
    let s = f.subject();
    let with_affinity: Vec<&Irq> = f.irqs.iter().filter(|i| !i.cpus.is_empty()).collect();
    if with_affinity.is_empty() {
        return Finding::good(&checks::INTERRUPTS, &s, "the interface has no interrupts of its own");
    }
    let advice = |cpus: &[usize]| {
        let lines: Vec<String> = with_affinity
            .iter()
            .zip(cpus.iter().cycle())
            .map(|(irq, cpu)| format!("echo {cpu} > /proc/irq/{}/smp_affinity_list", irq.number))
            .collect();
        lines.join("; ")
    };
    if let Some((node, cpus)) = &f.node {
        let far = with_affinity.iter().filter(|i| !i.cpus.iter().any(|c| cpus.contains(c))).count();
        if far > 0 {
            return Finding::new(
                &checks::INTERRUPTS,
                &s,
                State::Bad,
                format!(
                    "{far} of {} interrupts go to processors outside of the NIC's node {node}",
                    with_affinity.len()
                ),
            )
            .fix(advice(cpus));
        }
    }
    let on_one = with_affinity.iter().all(|i| i.cpus.len() == 1 && i.cpus == with_affinity[0].cpus);
    let cpus = f.node.as_ref().map_or(&f.allowed, |n| &n.1);
    if with_affinity.len() > 2 && on_one && cpus.len() > 1 {
        let found = format!("all {} interrupts go to processor {}", with_affinity.len(), with_affinity[0].cpus[0]);
        return Finding::new(&checks::INTERRUPTS, &s, State::Warning, found).fix(advice(cpus));
    }
    Finding::good(&checks::INTERRUPTS, &s, format!("{} interrupt(s), well placed", with_affinity.len()))
}

fn numa(f: &Facts) -> Finding {
    let s = f.subject();
    let Some((node, cpus)) = &f.node else {
        return Finding::good(&checks::NUMA, &s, "the machine has one NUMA node, or the interface has no hardware");
    };
    if cpus.iter().any(|c| f.allowed.contains(c)) {
        let found = format!("the NIC is on node {node}, and netgrain selects the processors of this node");
        return Finding::good(&checks::NUMA, &s, found);
    }
    let found = format!("the NIC is on node {node}, and this process may use none of its processors");
    Finding::new(&checks::NUMA, &s, State::Bad, found)
        .fix(format!("let netgrain run on processors {cpus:?} (taskset, AllowedCPUs= of the unit)"))
}

fn mtu(f: &Facts, kind: SourceKind) -> Finding {
    let (s, mtu) = (f.subject(), f.link.mtu);
    let is_limit = matches!(decide(&f.port, true).reason, Reason::LargeFrames { .. });
    if kind == SourceKind::Tpacket && is_limit {
        return Finding::new(&checks::MTU, &s, State::Warning, format!("MTU {mtu} is more than one XDP buffer holds"))
            .fix(format!("ip link set {} mtu 1500, unless the link carries longer packets", f.port.name));
    }
    Finding::good(&checks::MTU, &s, format!("MTU {mtu}; most NICs drop longer packets"))
}

fn pause(f: &Facts) -> Finding {
    let (s, name) = (f.subject(), &f.port.name);
    let Some(pause) = f.pause else {
        return Finding::good(&checks::PAUSE, &s, "the interface has no pause frames");
    };
    if !pause.rx && !pause.tx {
        return Finding::good(&checks::PAUSE, &s, "off");
    }
    let on: Vec<&str> =
        [("rx", pause.rx), ("tx", pause.tx)].into_iter().filter_map(|(n, on)| on.then_some(n)).collect();
    Finding::new(&checks::PAUSE, &s, State::Warning, format!("{} on", on.join(" and ")))
        .fix(format!("ethtool -A {name} autoneg off rx off tx off"))
        .change(Change { setting: Setting::Pause { port: name.clone() }, value: "0 0 0".to_owned() })
}

fn counters(f: &Facts) -> Finding {
    let s = f.subject();
    let kernels =
        [("missed", f.link.stats.rx_missed), ("full queue", f.link.stats.rx_fifo), ("errors", f.link.stats.rx_errors)];
    let mut lost: Vec<String> =
        kernels.iter().filter(|(_, n)| *n > 0).map(|(what, n)| format!("{what} {}", show_count(*n))).collect();
    lost.extend(f.lost.iter().map(|(name, n)| format!("{name} {}", show_count(*n))));
    if lost.is_empty() {
        return Finding::good(&checks::COUNTERS, &s, "no losses since the interface was created");
    }
    Finding::new(&checks::COUNTERS, &s, State::Warning, lost.join(", ")).fix(
        "use a longer rx-ring, more queues, or the fixes of the other findings; the counters are reset only by a \
         restart",
    )
}

fn card_stamps(f: &Facts, kind: SourceKind) -> Finding {
    let s = f.subject();
    let clock = f.stamping.and_then(|t| t.clock).map_or_else(String::new, |n| format!(", clock /dev/ptp{n}"));
    match f.stamping {
        Some(t) if t.hardware && f.stamps_all => {
            Finding::good(&checks::CARD_STAMPS, &s, format!("the NIC timestamps every packet{clock}"))
        }
        Some(t) if t.hardware && t.every_frame && kind == SourceKind::Tpacket => Finding::new(
            &checks::CARD_STAMPS,
            &s,
            State::Warning,
            format!("the NIC could timestamp every packet{clock}"),
        )
        .fix(format!("hwstamp_ctl -i {} -r 1; netgrain converts the NIC's timestamps to system time", f.port.name)),
        Some(t) if t.hardware => Finding::good(
            &checks::CARD_STAMPS,
            &s,
            format!("the NIC has timestamps{clock}, but this capture method uses software timestamps"),
        ),
        _ => Finding::good(&checks::CARD_STAMPS, &s, "no timestamps from the NIC; netgrain uses software timestamps"),
    }
}

#[cfg(test)]
mod tests;
