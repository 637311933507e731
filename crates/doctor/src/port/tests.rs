//! Tests with interfaces that the test machine does not have: the tests invent the values that the kernel would report,
//! or read them from sysfs directories that the tests make.

use super::*;
use capture::auto::HostUse;
use std::net::{IpAddr, Ipv4Addr};
use sys::netlink::LinkStats;
use sys::netlink::netdev::XdpFeatures;
use testkit::TempDir;

/// Returns the [`Facts`] of an interface that receives mirrored packets, on a capable NIC with good settings.
fn mirror() -> Facts {
    let feature = |name: &str| Feature { name: name.into(), on: false, can_change: true };
    let names = ["rx-gro", "rx-lro", "rx-gro-hw", "rx-vlan-hw-parse", "tx-tcp-segmentation", "tx-generic-segmentation"];
    Facts {
        port: PortFacts {
            name: "eth1".into(),
            driver: Some("ice".into()),
            xdp: Some(XdpFeatures {
                bits: feature::BASIC | feature::REDIRECT | feature::RX_SG | feature::XSK_ZEROCOPY,
                zero_copy_max_segments: 8,
                ..XdpFeatures::default()
            }),
            mtu: 1500,
            ..PortFacts::default()
        },
        link: Link {
            name: "eth1".into(),
            flags: 1,
            carrier: true,
            mtu: 1500,
            promiscuity: 0,
            rx_queues: 4,
            parent_device: Some("0000:01:00.0".into()),
            ..Link::default()
        },
        features: Some(names.map(feature).to_vec()),
        rings: Some(Rings { rx: 4096, rx_max: 4096, tx: 512, tx_max: 4096 }),
        channels: Some(Channels { rx: 0, rx_max: 0, combined: 4, combined_max: 8 }),
        pause: Some(Pause::default()),
        speed: Some(Speed { megabits: 25_000, full_duplex: true }),
        stamping: Some(Stamping { hardware: true, every_frame: true, clock: Some(0) }),
        rss: Some(Rss { table: vec![0, 1, 2, 3], key: [0x6d, 0x5a].repeat(20), symmetric: false }),
        hashed: vec![("tcp4", true), ("udp4", true)],
        irqs: (0..4).map(|n| Irq { number: 40 + n, cpus: vec![n as usize] }).collect(),
        allowed: (0..8).collect(),
        ..Facts::default()
    }
}

/// Returns the [`Facts`] of the interface of [`mirror`] after a change.
fn with(change: impl FnOnce(&mut Facts)) -> Facts {
    let mut facts = mirror();
    change(&mut facts);
    facts
}

/// Returns the [`Facts`] of an interface that the host uses.
fn shared() -> Facts {
    with(|f| f.port.uses = vec![HostUse::Address(IpAddr::V4(Ipv4Addr::LOCALHOST))])
}

fn switch_on(f: &mut Facts, name: &str, can_change: bool) {
    let features = f.features.as_mut().expect("features");
    features.retain(|x| x.name != name);
    features.push(Feature { name: name.into(), on: true, can_change });
}

fn found(facts: &Facts, check: &str) -> Finding {
    judge(facts).into_iter().find(|f| f.check.name == check).expect("a check of interfaces")
}

#[test]
fn a_mirror_interface_with_good_settings_has_only_good_findings() {
    for finding in judge(&mirror()) {
        assert_eq!(finding.state, State::Good, "{finding:?}");
        assert_eq!((finding.fix, finding.changes), (None, vec![]));
    }
}

#[test]
fn every_finding_that_is_not_good_has_a_fix() {
    let bad = with(|f| {
        f.link.flags = 0;
        f.link.stats = LinkStats { rx_missed: 5, rx_fifo: 6, ..LinkStats::default() };
        f.port.has_xdp = true;
        f.port.xdp = None;
        f.rings = Some(Rings { rx: 512, rx_max: 4096, tx: 512, tx_max: 4096 });
        f.channels = Some(Channels { rx: 0, rx_max: 0, combined: 16, combined_max: 16 });
        f.pause = Some(Pause { autoneg: true, rx: true, tx: false });
        f.is_virtual_function = true;
        f.lost = vec![("rx_out_of_buffer".into(), 7)];
        f.irqs.iter_mut().for_each(|i| i.cpus = vec![0]);
        f.rss.as_mut().expect("rss").key = (0..40).collect();
    });
    let findings = judge(&bad);
    let not_good: Vec<&Finding> = findings.iter().filter(|f| f.state != State::Good).collect();
    assert!(not_good.len() >= 9, "{not_good:?}");
    for finding in not_good {
        assert!(finding.fix.is_some(), "{finding:?}");
    }
    assert_eq!(found(&bad, "counters").found, "missed 5, full queue 6, rx_out_of_buffer 7");
    assert_eq!(found(&bad, "queues").changes[0].value, "8", "as many as processors");
    assert_eq!(found(&bad, "rx-ring").fix.as_deref(), Some("ethtool -G eth1 rx 4096"));
    assert_eq!(found(&bad, "pause").changes[0].value, "0 0 0");
    assert!(found(&bad, "rss").fix.expect("a command").contains("hkey 6d:5a:6d:5a"));
}

#[test]
fn the_merging_check_depends_on_the_capture_method() {
    let mut dedicated = mirror();
    switch_on(&mut dedicated, "rx-gro", true);
    assert_eq!(
        found(&dedicated, "merging").state,
        State::Good,
        "AF_XDP receives packets before the kernel merges them"
    );
    switch_on(&mut dedicated, "rx-lro", true);
    let finding = found(&dedicated, "merging");
    assert_eq!((finding.state, finding.fix.as_deref()), (State::Bad, Some("ethtool -K eth1 lro off")));

    let mut host = shared();
    switch_on(&mut host, "rx-gro", true);
    assert_eq!(found(&host, "merging").fix.as_deref(), Some("ethtool -K eth1 gro off"));
    host.dedicated = true;
    assert_eq!(found(&host, "merging").state, State::Good);

    let mut not_changeable = mirror();
    switch_on(&mut not_changeable, "rx-gro-hw", false);
    let finding = found(&not_changeable, "merging");
    assert!(finding.state == State::Bad && finding.changes.is_empty(), "{finding:?}");
}

#[test]
fn vlan_stripping_is_bad_only_where_the_tag_is_not_restored() {
    let mut facts = mirror();
    switch_on(&mut facts, "rx-vlan-hw-parse", true);
    let finding = found(&facts, "vlan-stripping");
    assert_eq!((finding.state, finding.fix.as_deref()), (State::Bad, Some("ethtool -K eth1 rxvlan off")));
    let mut host = shared();
    switch_on(&mut host, "rx-vlan-hw-parse", true);
    assert_eq!(found(&host, "vlan-stripping").state, State::Good);
}

#[test]
fn sending_offloads_are_never_changed() {
    let mut host = shared();
    switch_on(&mut host, "tx-tcp-segmentation", true);
    let finding = found(&host, "sending-offloads");
    assert_eq!((finding.state, finding.changes.len()), (State::Warning, 0));
}

#[test]
fn interrupts_and_processors_belong_to_the_node_of_the_nic() {
    let node = |f: &mut Facts| f.node = Some((1, vec![4, 5, 6, 7]));
    let far = with(node);
    let finding = found(&far, "interrupts");
    assert_eq!(finding.state, State::Bad);
    assert!(finding.found.starts_with("4 of 4 interrupts"), "{}", finding.found);
    assert!(finding.fix.expect("commands").starts_with("echo 4 > /proc/irq/40/smp_affinity_list; echo 5 > "));
    assert_eq!(found(&far, "numa").state, State::Good);
    let excluded = with(|f| {
        node(f);
        f.allowed = vec![0, 1];
    });
    assert_eq!(found(&excluded, "numa").state, State::Bad);
    let near = with(|f| {
        node(f);
        f.irqs.iter_mut().zip(4..).for_each(|(i, cpu)| i.cpus = vec![cpu]);
    });
    assert_eq!(found(&near, "interrupts").state, State::Good);
}

#[test]
fn jumbo_frames_half_duplex_and_a_missing_link_are_found() {
    let jumbo = with(|f| {
        (f.port.mtu, f.link.mtu) = (9000, 9000);
        f.port.xdp = Some(XdpFeatures {
            bits: feature::BASIC | feature::REDIRECT,
            zero_copy_max_segments: 1,
            ..XdpFeatures::default()
        });
    });
    assert_eq!(found(&jumbo, "mtu").state, State::Warning);
    let half = with(|f| f.speed = Some(Speed { megabits: 100, full_duplex: false }));
    assert_eq!(
        (found(&half, "link").state, found(&half, "link").found.as_str()),
        (State::Bad, "100 Mb/s, half duplex")
    );
    assert_eq!(found(&with(|f| f.link.carrier = false), "link").found, "no link");
}

#[test]
fn interrupts_are_found_by_whole_names() {
    let dir = TempDir::new("doctor-irqs");
    let tree = Tree::at(dir.path());
    let table = "           CPU0       CPU1\n\
         40:   1   2  PCI-MSIX-0000:01:00.0   0-edge      ice-eth1-TxRx-0\n\
         41:   1   2  PCI-MSIX-0000:01:00.0   1-edge      ice-eth1-TxRx-1\n\
         42:   1   2  PCI-MSIX-0000:02:00.0   1-edge      ice-eth10-TxRx-0\n\
         43:   1   2  PCI-MSIX-0000:00:03.0   0-edge      virtio2-config\n\
         44:   1   2  PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0\n\
         LOC:  9   9   Local timer interrupts\n";
    for (path, text) in [
        ("proc/interrupts", table),
        ("proc/irq/40/smp_affinity_list", "0-1"),
        ("proc/irq/40/effective_affinity_list", "1"),
        ("proc/irq/41/smp_affinity_list", "0-1"),
        ("proc/irq/44/effective_affinity_list", ""),
        ("proc/irq/44/smp_affinity_list", "3"),
    ] {
        std::fs::create_dir_all(tree.path(path).parent().expect("a directory")).expect("a directory");
        std::fs::write(tree.path(path), text).expect("a file");
    }
    let irq = |number, cpus: &[usize]| Irq { number, cpus: cpus.to_vec() };
    assert_eq!(irqs("eth1", None, &tree), [irq(40, &[1]), irq(41, &[0, 1])]);
    assert_eq!(irqs("ens3", Some("virtio2"), &tree), [irq(44, &[3])]);
    assert_eq!(irqs("eth0", Some("virtio1"), &tree), []);
}
