//! The sandbox does what its documentation states, and `sys::netlink` reports the state that was set.

use netgrain_testkit as testkit;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use sys::ethtool::{self, Offload};
use sys::netlink::{Address, Netlink, netdev};
use sys::netns::Namespace;
use testkit::{RawReader, RawSender, Sandbox, VethOptions};

/// Error numbers of the kernel.
const ENODEV: i32 = 19;
const EEXIST: i32 = 17;
const QUIET: Duration = Duration::from_millis(100);

fn os_error<T>(result: std::io::Result<T>) -> i32 {
    result.err().expect("an error").raw_os_error().expect("an error of the kernel")
}

#[test]
fn a_missing_interface_is_reported_as_enodev() {
    let Some(sandbox) = Sandbox::new("a_missing_interface_is_reported_as_enodev") else { return };
    let mut netlink = sandbox.netlink();
    assert_eq!(os_error(netlink.link("nothing")), ENODEV);
    assert_eq!(os_error(netlink.link("a name longer than fifteen bytes")), ENODEV);
    assert_eq!(os_error(netlink.delete_link(77)), ENODEV);
    assert_eq!(os_error(ethtool::driver("nothing")), ENODEV);
    assert_eq!(os_error(ethtool::driver("a name longer than fifteen bytes")), ENODEV);
    assert_eq!(os_error(netdev::xdp_features(77)), ENODEV);
    sandbox.veth("a", "b");
    let again = sys::netlink::Veth { name: "a", peer: "c", rx_queues: 1, tx_queues: 1, mtu: 1500 };
    assert_eq!(os_error(netlink.add_veth(&again)), EEXIST);
}

#[test]
fn a_veth_pair_carries_only_the_frames_of_the_test() {
    let Some(sandbox) = Sandbox::new("a_veth_pair_carries_only_the_frames_of_the_test") else { return };
    let (a, b) = sandbox.veth("a", "b");
    let mut reader = RawReader::new(&b);
    let frames: Vec<Vec<u8>> = (0..600u16).map(|i| vec![(i % 251) as u8; 60 + usize::from(i)]).collect();
    RawSender::new(&a).send(&frames);
    // The wait is long enough for a router solicitation, which the kernel would send within a second after an interface
    // comes up.
    assert_eq!(reader.at_least(600, Duration::from_millis(1200), |_| true), frames);
}

#[test]
fn a_frame_longer_than_the_mtu_allows_is_refused() {
    let Some(sandbox) = Sandbox::new("a_frame_longer_than_the_mtu_allows_is_refused") else { return };
    let (a, b) = sandbox.veth("a", "b");
    let mut reader = RawReader::new(&b);
    assert!(RawSender::new(&a).try_send(&[vec![0; 60], vec![0; 1600], vec![0; 60]]).is_err());
    assert_eq!(reader.at_least(1, QUIET, |_| true).len(), 1);
}

#[test]
fn a_link_reports_what_was_set() {
    let Some(sandbox) = Sandbox::new("a_link_reports_what_was_set") else { return };
    let (a, b) = sandbox.veth_with("a", "b", VethOptions { queues: 3, mtu: 2000, ..VethOptions::default() });
    let mut netlink = sandbox.netlink();
    let link = netlink.link("a").expect("a");
    assert_eq!((link.index, link.mtu, link.rx_queues, link.tx_queues), (a.index, 2000, 3, 3));
    assert_eq!((link.kind.as_deref(), link.hardware_type, link.carrier), (Some("veth"), 1, true));
    assert_eq!((link.parent_device.as_deref(), link.master, link.lower), (None, None, Some(b.index)));
    assert!(link.is_up() && !link.is_loopback() && !link.has_xdp);
    assert_eq!(ethtool::driver("a").expect("driver of a"), "veth");
    for offload in [Offload::TxChecksum, Offload::Tso, Offload::Gso, Offload::Gro, Offload::Lro] {
        assert!(!offload.is_on("a").unwrap_or_else(|e| panic!("{offload:?}: {e}")), "{offload:?}");
    }
    Offload::TxChecksum.set("a", true).expect("checksum offload on");
    assert!(Offload::TxChecksum.is_on("a").expect("checksum offload of a"));
    assert!(Offload::Lro.set("nothing", true).is_err());

    RawSender::new(&a).send(&[[0; 60]; 5]);
    netlink.set_mtu(a.index, 1400).expect("mtu");
    netlink.set_mac(a.index, [2, 0, 0, 0, 0, 7]).expect("mac");
    netlink.rename(a.index, "other").expect("rename");
    let link = netlink.link_by_index(a.index).expect("by number");
    assert_eq!((link.name.as_str(), link.mtu, link.mac), ("other", 1400, Some([2, 0, 0, 0, 0, 7])));
    assert_eq!(netlink.link("b").expect("b").stats.rx_packets, 5);
    netlink.set_up(a.index, false).expect("down");
    assert!(!netlink.link("other").expect("other").is_up() && !netlink.link("b").expect("b").carrier);

    let mut names: Vec<_> = netlink.links().expect("all links").into_iter().map(|l| l.name).collect();
    names.sort();
    assert_eq!(names, ["b", "lo", "other"]);
    netlink.delete_link(a.index).expect("delete");
    assert!(netlink.link("b").is_err(), "both interfaces of a pair are deleted together");
}

#[test]
fn addresses_and_their_routes_are_listed() {
    let Some(sandbox) = Sandbox::new("addresses_and_their_routes_are_listed") else { return };
    let (a, _) = sandbox.veth("a", "b");
    let mut netlink = sandbox.netlink();
    let address = Address { link: a.index, ip: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), prefix: 24 };
    netlink.add_address(&address).expect("add address");
    assert!(netlink.addresses().expect("addresses").contains(&address));
    let routes = netlink.routes().expect("routes");
    assert_eq!(routes.len(), 1);
    assert_eq!((routes[0].link, routes[0].prefix), (a.index, 24));
    assert_eq!(routes[0].network, Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 0))));
}

#[test]
fn the_driver_of_veth_supports_xdp() {
    let Some(sandbox) = Sandbox::new("the_driver_of_veth_supports_xdp") else { return };
    let (a, _) = sandbox.veth("a", "b");
    match netdev::xdp_features(a.index) {
        Ok(features) => assert_eq!(features.bits & netdev::feature::BASIC, netdev::feature::BASIC),
        Err(e) => testkit::skip("the_driver_of_veth_supports_xdp", &format!("no netdev family in this kernel: {e}")),
    }
}

#[test]
fn an_interface_moves_to_another_sandbox() {
    let Some(outer) = Sandbox::new("an_interface_moves_to_another_sandbox") else { return };
    let (a, b) = outer.veth("a", "b");
    let mut netlink = outer.netlink();
    let inner = Sandbox::new("an_interface_moves_to_another_sandbox").expect("a second one");
    netlink.move_to(b.index, std::os::fd::AsFd::as_fd(inner.namespace())).expect("move");
    let moved = inner.netlink().link("b").expect("b is in the inner sandbox");
    drop(inner);
    assert!(
        outer.netlink().link("b").is_err()
            && outer.netlink().link("a").is_ok_and(|l| l.index == a.index && l.lower.is_none())
    );
    assert_eq!(moved.kind.as_deref(), Some("veth"));
}

#[test]
fn dropping_the_sandbox_returns_the_thread_to_its_namespace() {
    let identity = || std::fs::read_link("/proc/thread-self/ns/net").expect("namespace of this thread");
    let home = identity();
    let Some(sandbox) = Sandbox::new("dropping_the_sandbox_returns_the_thread_to_its_namespace") else { return };
    assert_ne!(identity(), home);
    let inside = std::thread::spawn(identity).join().expect("thread");
    assert_eq!(inside, identity(), "a new thread is in the namespace of its parent");
    drop(sandbox);
    assert_eq!(identity(), home);
    assert!(Namespace::current().is_ok() && Netlink::route().is_ok());
}
