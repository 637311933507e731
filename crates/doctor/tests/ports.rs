//! Real ports: what doctor sees of them is what ethtool sees, and what it mends and undoes is so afterwards.

use netgrain_doctor::{Finding, Journal, Request, Setting, State, apply, examine, steps, undo};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use sys::ethtool;
use sys::netlink::Address;
use sys::sysfs::Tree;
use testkit::{Port, Sandbox, TempDir, VethOptions};

fn look(port: &Port, only: &[&str]) -> Vec<Finding> {
    let question = Request {
        ports: vec![port.name.clone()],
        only: only.iter().map(|o| (*o).to_owned()).collect(),
        ..Request::default()
    };
    examine(&question, &Tree::default()).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn a_port_that_is_not_there_is_named() {
    let question = Request { ports: vec!["no-such-port".into()], ..Request::default() };
    assert!(examine(&question, &Tree::default()).expect_err("no port").to_string().contains("no-such-port"));
}

#[test]
fn features_and_queues_are_those_that_ethtool_shows() {
    let test = "features_and_queues_are_those_that_ethtool_shows";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let Some(mut tool) = testkit::tool(test, "ethtool") else { return };
    let (port, _peer) =
        sandbox.veth_with("va", "vb", VethOptions { queues: 3, offloads: true, ..VethOptions::default() });
    let shown = tool.args(["-k", &port.name]).output().expect("ethtool");
    let shown = String::from_utf8(shown.stdout).expect("text");
    // The tool has names of its own for some; of the others, every one must agree.
    let theirs: BTreeMap<&str, (bool, bool)> = shown
        .lines()
        .filter_map(|l| l.trim().split_once(": "))
        .map(|(name, state)| (name, (state.starts_with("on"), !state.contains("[fixed]"))))
        .collect();
    let ours = ethtool::features(&port.name).expect("features");
    let compared = ours.iter().filter(|f| theirs.contains_key(f.name.as_str())).count();
    assert!(compared > 30, "only {compared} names in common: {shown}");
    for f in &ours {
        if let Some(theirs) = theirs.get(f.name.as_str()) {
            assert_eq!((f.on, f.can_change), *theirs, "{}", f.name);
        }
    }
    let named = |name: &str| ours.iter().find(|f| f.name == name).map(|f| (f.on, f.can_change));
    assert_eq!(named("rx-gro"), theirs.get("generic-receive-offload").copied());
    assert_eq!(named("rx-vlan-hw-parse"), theirs.get("rx-vlan-offload").copied());
    let channels = ethtool::channels(&port.name).expect("veth tells its channels");
    assert_eq!((channels.receiving(), channels.receiving_max()), (3, 3));
    let speed = ethtool::speed(&port.name).expect("veth says 10 Gb/s");
    assert_eq!((speed.megabits, speed.full_duplex), (10_000, true));
    assert!(ethtool::statistics(&port.name).expect("statistics").iter().any(|(n, _)| n == "peer_ifindex"));
    assert!(ethtool::set_feature(&port.name, "rx-lro", true).is_err(), "veth has none");
    assert!(ethtool::set_feature(&port.name, "no such feature", true).is_err());
}

#[test]
fn merging_on_a_shared_port_is_bad_is_mended_and_comes_back() {
    let test = "merging_on_a_shared_port_is_bad_is_mended_and_comes_back";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (_a, b) = sandbox.veth("va", "vb");
    ethtool::set_feature(&b.name, "rx-gro", true).expect("veth can merge");
    let only = ["merging", "vlan-stripping"];
    let free = look(&b, &only);
    assert!(free.iter().all(|f| f.state == State::Good), "AF_XDP sees packets before they are merged: {free:?}");

    let ip = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    sandbox.netlink().add_address(&Address { link: b.index, ip, prefix: 24 }).expect("an address");
    let used = look(&b, &only);
    assert_eq!((used[0].check.name, used[0].state, used[0].found.as_str()), ("merging", State::Bad, "rx-gro on"));

    let dir = TempDir::new(test);
    let (state, tree) = (dir.join("undo.json"), Tree::default());
    let plan = steps(&used, &tree);
    assert_eq!(plan.len(), 1);
    let mut journal = Journal::open(&state).unwrap_or_else(|e| panic!("{e}"));
    apply(&plan, &mut journal, &tree, |_, r| assert!(r.is_ok(), "{r:?}")).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(look(&b, &only)[0].state, State::Good);
    let mut later = Journal::open(&state).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(undo(&mut later, &tree, |_, _| ()).unwrap_or_else(|e| panic!("{e}")), 0);
    assert_eq!(look(&b, &only)[0].found, "rx-gro on");
}

#[test]
fn every_kind_of_setting_that_veth_has_is_changed_and_put_back() {
    let test = "every_kind_of_setting_that_veth_has_is_changed_and_put_back";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, _b) = sandbox.veth_with("va", "vb", VethOptions { queues: 2, ..VethOptions::default() });
    let (port, tree) = (a.name, Tree::default());
    let settings = [
        (Setting::Queues { port: port.clone() }, "2", "1"),
        (Setting::Feature { port: port.clone(), feature: "rx-vlan-hw-parse".into() }, "on", "off"),
        // A sysctl that every network has for itself.
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
fn a_few_huge_pages_are_reserved_and_given_back() {
    let test = "a_few_huge_pages_are_reserved_and_given_back";
    let tree = Tree::default();
    let setting = Setting::File { path: "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages".into() };
    let Some(before) = setting.read(&tree).ok().filter(|_| sys::cpu::is_root()) else {
        return testkit::skip(test, "no pages of 2 MiB to reserve here, or not root");
    };
    let more = (before.parse::<u64>().expect("a number") + 2).to_string();
    if let Err(e) = setting.write(&tree, &more) {
        setting.write(&tree, &before).expect("what there was can be had again");
        return testkit::skip(test, &format!("no two pages to be had: {e}"));
    }
    let there = setting.read(&tree).expect("a number");
    setting.write(&tree, &before).expect("given back");
    assert_eq!((there, setting.read(&tree).expect("a number")), (more, before));
}

#[test]
fn a_trial_captures_every_frame_and_leaves_the_network_alone() {
    let test = "a_trial_captures_every_frame_and_leaves_the_network_alone";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let question = Request { trial: true, only: vec!["trial".into()], ..Request::default() };
    let findings = examine(&question, &Tree::default()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((findings.len(), findings[0].state), (1, State::Good), "{findings:?}");
    assert_eq!(sandbox.netlink().links().expect("links").len(), 1, "only the loopback port is here");
}
