//! Real interfaces: the findings agree with ethtool, and fixes and undos take effect.

use netgrain_doctor::{Finding, Journal, Request, Setting, State, apply, examine, steps, undo};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use sys::ethtool;
use sys::netlink::Address;
use sys::sysfs::Tree;
use testkit::{Port, Sandbox, TempDir, VethOptions};

fn findings_of(port: &Port, only: &[&str]) -> Vec<Finding> {
    let request = Request {
        ports: vec![port.name.clone()],
        only: only.iter().map(|o| (*o).to_owned()).collect(),
        ..Request::default()
    };
    examine(&request, &Tree::default()).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn a_missing_interface_is_named_in_the_error() {
    let request = Request { ports: vec!["no-such-port".into()], ..Request::default() };
    assert!(examine(&request, &Tree::default()).expect_err("no port").to_string().contains("no-such-port"));
}

#[test]
fn features_and_queues_agree_with_ethtool() {
    let test = "features_and_queues_agree_with_ethtool";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let Some(mut tool) = testkit::tool(test, "ethtool") else { return };
    let (port, _peer) =
        sandbox.veth_with("va", "vb", VethOptions { queues: 3, offloads: true, ..VethOptions::default() });
    let shown = tool.args(["-k", &port.name]).output().expect("ethtool");
    let shown = String::from_utf8(shown.stdout).expect("text");
    // ethtool has other names for some features. The state of every feature that has the same name here and in ethtool
    // must be equal.
    let expected: BTreeMap<&str, (bool, bool)> = shown
        .lines()
        .filter_map(|l| l.trim().split_once(": "))
        .map(|(name, state)| (name, (state.starts_with("on"), !state.contains("[fixed]"))))
        .collect();
    let found = ethtool::features(&port.name).expect("features");
    let compared = found.iter().filter(|f| expected.contains_key(f.name.as_str())).count();
    assert!(compared > 30, "only {compared} names in common: {shown}");
    for f in &found {
        if let Some(expected) = expected.get(f.name.as_str()) {
            assert_eq!((f.on, f.can_change), *expected, "{}", f.name);
        }
    }
    let named = |name: &str| found.iter().find(|f| f.name == name).map(|f| (f.on, f.can_change));
    assert_eq!(named("rx-gro"), expected.get("generic-receive-offload").copied());
    assert_eq!(named("rx-vlan-hw-parse"), expected.get("rx-vlan-offload").copied());
    let channels = ethtool::channels(&port.name).expect("veth reports its channels");
    assert_eq!((channels.receiving(), channels.receiving_max()), (3, 3));
    let speed = ethtool::speed(&port.name).expect("veth reports 10 Gb/s");
    assert_eq!((speed.megabits, speed.full_duplex), (10_000, true));
    assert!(ethtool::statistics(&port.name).expect("statistics").iter().any(|(n, _)| n == "peer_ifindex"));
    assert!(ethtool::set_feature(&port.name, "rx-lro", true).is_err(), "veth has none");
    assert!(ethtool::set_feature(&port.name, "no such feature", true).is_err());
}

#[test]
fn merging_on_a_shared_interface_is_bad_and_is_fixed_and_undone() {
    let test = "merging_on_a_shared_interface_is_bad_and_is_fixed_and_undone";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (_a, b) = sandbox.veth("va", "vb");
    ethtool::set_feature(&b.name, "rx-gro", true).expect("veth can merge");
    let only = ["merging", "vlan-stripping"];
    let free = findings_of(&b, &only);
    assert!(free.iter().all(|f| f.state == State::Good), "AF_XDP sees packets before they are merged: {free:?}");

    let ip = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    sandbox.netlink().add_address(&Address { link: b.index, ip, prefix: 24 }).expect("an address");
    let used = findings_of(&b, &only);
    assert_eq!((used[0].check.name, used[0].state, used[0].found.as_str()), ("merging", State::Bad, "rx-gro on"));

    let dir = TempDir::new(test);
    let (state, tree) = (dir.join("undo.json"), Tree::default());
    let plan = steps(&used, &tree);
    assert_eq!(plan.len(), 1);
    let mut journal = Journal::open(&state).unwrap_or_else(|e| panic!("{e}"));
    apply(&plan, &mut journal, &tree, |_, r| assert!(r.is_ok(), "{r:?}")).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(findings_of(&b, &only)[0].state, State::Good);
    let mut later = Journal::open(&state).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(undo(&mut later, &tree, |_, _| ()).unwrap_or_else(|e| panic!("{e}")), 0);
    assert_eq!(findings_of(&b, &only)[0].found, "rx-gro on");
}

#[test]
fn every_kind_of_setting_of_veth_is_changed_and_restored() {
    let test = "every_kind_of_setting_of_veth_is_changed_and_restored";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, _b) = sandbox.veth_with("va", "vb", VethOptions { queues: 2, ..VethOptions::default() });
    let (port, tree) = (a.name, Tree::default());
    let settings = [
        (Setting::Queues { port: port.clone() }, "2", "1"),
        (Setting::Feature { port: port.clone(), feature: "rx-vlan-hw-parse".into() }, "on", "off"),
        // Each network namespace has its own `somaxconn`, so the test changes no setting of the host.
        (Setting::File { path: "proc/sys/net/core/somaxconn".into() }, "4096", "4321"),
    ];
    for (setting, old, new) in settings {
        assert_eq!(setting.read(&tree).unwrap_or_else(|e| panic!("{setting}: {e}")), old, "{setting}");
        setting.write(&tree, new).unwrap_or_else(|e| panic!("{setting}: {e}"));
        assert_eq!(setting.read(&tree).expect("a value"), new, "{setting}");
        setting.write(&tree, old).unwrap_or_else(|e| panic!("{setting}: {e}"));
        assert_eq!(setting.read(&tree).expect("a value"), old, "{setting}");
    }
    assert!(Setting::Queues { port: port.clone() }.write(&tree, "3").is_err(), "it has two");
    for (setting, value) in [
        (Setting::RxRing { port: port.clone() }, "512"),
        (Setting::Pause { port: port.clone() }, "0 0 0"),
        (Setting::Pause { port: port.clone() }, "none"),
        (Setting::Feature { port, feature: "rx-gro".into() }, "perhaps"),
    ] {
        assert!(setting.write(&tree, value).is_err(), "{setting}");
    }
}

#[test]
fn huge_pages_are_reserved_and_released() {
    let test = "huge_pages_are_reserved_and_released";
    let tree = Tree::default();
    let setting = Setting::File { path: "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages".into() };
    let Some(before) = setting.read(&tree).ok().filter(|_| sys::cpu::is_root()) else {
        return testkit::skip(test, "no pages of 2 MiB to reserve here, or not root");
    };
    let more = (before.parse::<u64>().expect("a number") + 2).to_string();
    if let Err(e) = setting.write(&tree, &more) {
        setting.write(&tree, &before).expect("the former number of pages can be set");
        return testkit::skip(test, &format!("two pages cannot be reserved: {e}"));
    }
    let there = setting.read(&tree).expect("a number");
    setting.write(&tree, &before).expect("the pages can be released");
    assert_eq!((there, setting.read(&tree).expect("a number")), (more, before));
}

#[test]
fn a_trial_captures_every_frame_and_changes_no_interface() {
    let test = "a_trial_captures_every_frame_and_changes_no_interface";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let request = Request { trial: true, only: vec!["trial".into()], ..Request::default() };
    let findings = examine(&request, &Tree::default()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((findings.len(), findings[0].state), (1, State::Good), "{findings:?}");
    assert_eq!(sandbox.netlink().links().expect("links").len(), 1, "the namespace has only the loopback interface");
}
