//! `netgrain doctor` as people and scripts meet it.

use crate::common;

use common::{arg, objects, run};
use std::net::{IpAddr, Ipv4Addr};
use sys::ethtool;
use sys::netlink::Address;
use testkit::{Sandbox, TempDir};

#[test]
fn what_cannot_be_looked_at_is_said_in_one_line() {
    for (args, names) in [
        (&["doctor", "-i", "no-such-port"][..], "no-such-port"),
        (&["doctor", "--only", "everything"], "merging"),
        (&["doctor", "--fix", "--undo"], "--undo"),
        (&["doctor", "--ring", "much"], "much"),
    ] {
        let said = run(args);
        assert_eq!((said.status, said.out.as_str()), (Some(2), ""), "{said:?}");
        assert!(said.err.lines().count() == 1 && said.err.contains(names), "{said:?}");
    }
    let dir = TempDir::new("doctor-foreign");
    let state = dir.join("state");
    std::fs::write(&state, "not a journal").expect("a file");
    let said = run(&["doctor", "--undo", "--state", arg(&state)]);
    assert!(said.status == Some(2) && said.err.contains(arg(&state)), "{said:?}");
    let nothing = run(&["doctor", "--undo", "--state", arg(&dir.join("none"))]);
    assert!(nothing.status == Some(0) && nothing.err.contains("nothing to undo"), "{nothing:?}");
}

#[test]
fn looking_changes_nothing_and_every_object_has_the_documented_fields() {
    let test = "looking_changes_nothing_and_every_object_has_the_documented_fields";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (_a, b) = sandbox.veth("va", "vb");
    let dir = TempDir::new("doctor-json");
    let before = ethtool::features(&b.name).expect("features");
    let said = run(&["doctor", "-i", "vb", "--store", arg(dir.path()), "--json"]);
    let all = objects(&said.out);
    let (summary, findings) = all.split_last().expect("objects");
    for finding in findings {
        for field in ["check", "about", "name", "state", "found", "costs", "reason", "mend", "fix"] {
            assert!(finding.get(field).is_some(), "{field}: {finding}");
        }
    }
    let count = |state: &str| findings.iter().filter(|f| f["state"] == state).count() as u64;
    for state in ["good", "unknown", "warning", "bad"] {
        assert_eq!(summary["summary"][state].as_u64(), Some(count(state)), "{summary}");
    }
    assert_eq!(said.status, Some(i32::from(count("bad") > 0)));
    assert_eq!(ethtool::features(&b.name).expect("features"), before);
    assert!(common::walk(dir.path()).is_empty(), "the probe is still there");
    // What is in the table is what was looked at, but for the trial.
    let names: std::collections::BTreeSet<&str> = findings.iter().filter_map(|f| f["check"].as_str()).collect();
    let missing: Vec<&str> = doctor::Check::ALL.iter().map(|c| c.name).filter(|n| !names.contains(n)).collect();
    assert_eq!(missing, ["trial"]);
}

#[test]
fn mending_without_a_port_says_that_ports_are_left_alone() {
    let test = "mending_without_a_port_says_that_ports_are_left_alone";
    let Some(_sandbox) = Sandbox::new(test) else { return };
    let dir = TempDir::new("doctor-every");
    let state = dir.join("undo.json");
    let said = run(&["doctor", "--only", "merging,rx-ring", "--fix", "--yes", "--state", arg(&state)]);
    assert!(said.status == Some(0) && said.err.contains("-i IFACE"), "{said:?}");
    assert!(said.err.contains("nothing that --fix can change") && !state.exists(), "{said:?}");
}

#[test]
fn a_port_is_mended_only_on_request_and_put_back() {
    let test = "a_port_is_mended_only_on_request_and_put_back";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (_a, b) = sandbox.veth("va", "vb");
    ethtool::set_feature(&b.name, "rx-gro", true).expect("veth can merge");
    let ip = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    sandbox.netlink().add_address(&Address { link: b.index, ip, prefix: 24 }).expect("an address");
    let dir = TempDir::new("doctor-fix");
    let state = dir.join("lib/undo.json");
    let merges = || ethtool::features("vb").expect("features").iter().any(|f| f.name == "rx-gro" && f.on);
    let doctor =
        |more: &[&str]| run(&[&["doctor", "-i", "vb", "--only", "merging", "--state", arg(&state)], more].concat());

    let seen = doctor(&[]);
    assert_eq!(seen.status, Some(1), "{seen:?}");
    assert!(seen.out.contains("ethtool -K vb gro off   (--fix does it)"), "{seen:?}");
    let asked = doctor(&["--fix"]);
    assert!(asked.status == Some(2) && asked.err.contains("--yes") && merges(), "{asked:?}");
    assert!(!state.exists());
    let mended = doctor(&["--fix", "--yes", "--json"]);
    assert_eq!(mended.status, Some(0), "{mended:?}");
    let made = &objects(&mended.out).pop().expect("a step")["made"];
    assert_eq!((&made["was"], &made["value"], &made["error"]), (&"on".into(), &"off".into(), &serde_json::Value::Null));
    assert!(!merges() && state.exists());
    assert_eq!(doctor(&[]).status, Some(0));
    let undone = run(&["doctor", "--undo", "--state", arg(&state), "--json"]);
    assert_eq!(undone.status, Some(0), "{undone:?}");
    assert_eq!(objects(&undone.out)[0]["undone"]["value"], "on");
    assert!(merges() && !state.exists());
}

#[test]
fn what_was_changed_in_a_namespace_is_put_back_there_and_nowhere_else() {
    let test = "what_was_changed_in_a_namespace_is_put_back_there_and_nowhere_else";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (_a, b) = sandbox.veth("va", "vb");
    ethtool::set_feature(&b.name, "rx-gro", true).expect("veth can merge");
    let ip = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    sandbox.netlink().add_address(&Address { link: b.index, ip, prefix: 24 }).expect("an address");
    let dir = TempDir::new("doctor-namespace");
    let state = dir.join("undo.json");
    let merges = || ethtool::features("vb").expect("features").iter().any(|f| f.name == "rx-gro" && f.on);
    let mended = run(&["doctor", "-i", "vb", "--only", "merging", "--fix", "--yes", "--state", arg(&state)]);
    assert_eq!(mended.status, Some(0), "{mended:?}");
    // Somebody who is in it all the time: of a thread nobody could enter the namespace.
    let mut sleeper = std::process::Command::new("sleep");
    let _sleeper = common::Running(sleeper.arg("600").spawn().expect("it starts"));
    let undo = || run(&["doctor", "--undo", "--state", arg(&state)]);
    // A port of the same name in another namespace is another port.
    let elsewhere = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let there = Sandbox::new(test).expect("another one");
            let (_a, b) = there.veth("va", "vb");
            ethtool::set_feature(&b.name, "rx-gro", false).expect("veth can merge");
            let said = undo();
            (said, ethtool::features("vb").expect("features").iter().any(|f| f.name == "rx-gro" && f.on))
        });
        other.join().expect("it ends")
    });
    let (refused, touched) = elsewhere;
    assert_eq!((refused.status, touched), (Some(1), false), "{refused:?}");
    for word in ["network namespace", "net:[", "nsenter --target ", "--net netgrain doctor --undo"] {
        assert!(refused.err.contains(word), "{word}: {}", refused.err);
    }
    assert!(!merges() && state.exists(), "it is still to be put back");
    let undone = undo();
    assert_eq!(undone.status, Some(0), "{undone:?}");
    assert!(merges() && !state.exists());
}
