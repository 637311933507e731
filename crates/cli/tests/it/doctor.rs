//! `netgrain doctor` on the command line: text and JSON output, repair and undo.

use crate::common;

use common::{arg, objects, run};
use std::net::{IpAddr, Ipv4Addr};
use sys::ethtool;
use sys::netlink::Address;
use testkit::{Sandbox, TempDir};

#[test]
fn invalid_doctor_arguments_print_a_one_line_error() {
    for (args, names) in [
        (&["doctor", "-i", "no-such-port"][..], "no-such-port"),
        (&["doctor", "--only", "everything"], "merging"),
        (&["doctor", "--fix", "--undo"], "--undo"),
        (&["doctor", "--ring", "much"], "much"),
    ] {
        let output = run(args);
        assert_eq!((output.status, output.out.as_str()), (Some(2), ""), "{output:?}");
        assert!(output.err.lines().count() == 1 && output.err.contains(names), "{output:?}");
    }
    let dir = TempDir::new("doctor-foreign");
    let state = dir.join("state");
    std::fs::write(&state, "not a journal").expect("a file");
    let output = run(&["doctor", "--undo", "--state", arg(&state)]);
    assert!(output.status == Some(2) && output.err.contains(arg(&state)), "{output:?}");
    let nothing = run(&["doctor", "--undo", "--state", arg(&dir.join("none"))]);
    assert!(nothing.status == Some(0) && nothing.err.contains("nothing to undo"), "{nothing:?}");
}

#[test]
fn inspection_changes_nothing_and_findings_have_all_documented_fields() {
    let test = "inspection_changes_nothing_and_findings_have_all_documented_fields";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (_a, b) = sandbox.veth("va", "vb");
    let dir = TempDir::new("doctor-json");
    let before = ethtool::features(&b.name).expect("features");
    let output = run(&["doctor", "-i", "vb", "--store", arg(dir.path()), "--json"]);
    let all = objects(&output.out);
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
    assert_eq!(output.status, Some(i32::from(count("bad") > 0)));
    assert_eq!(ethtool::features(&b.name).expect("features"), before);
    assert!(common::walk(dir.path()).is_empty(), "the probe file was not removed");
    // The doctor made all its checks except `trial`.
    let names: std::collections::BTreeSet<&str> = findings.iter().filter_map(|f| f["check"].as_str()).collect();
    let missing: Vec<&str> = doctor::Check::ALL.iter().map(|c| c.name).filter(|n| !names.contains(n)).collect();
    assert_eq!(missing, ["trial"]);
}

#[test]
fn fix_without_an_interface_reports_that_interfaces_are_not_changed() {
    let test = "fix_without_an_interface_reports_that_interfaces_are_not_changed";
    let Some(_sandbox) = Sandbox::new(test) else { return };
    let dir = TempDir::new("doctor-every");
    let state = dir.join("undo.json");
    let output = run(&["doctor", "--only", "merging,rx-ring", "--fix", "--yes", "--state", arg(&state)]);
    assert!(output.status == Some(0) && output.err.contains("-i IFACE"), "{output:?}");
    assert!(output.err.contains("no finding that --fix can correct") && !state.exists(), "{output:?}");
}

#[test]
fn an_interface_is_fixed_only_with_yes_and_undo_restores_it() {
    let test = "an_interface_is_fixed_only_with_yes_and_undo_restores_it";
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

    let inspected = doctor(&[]);
    assert_eq!(inspected.status, Some(1), "{inspected:?}");
    assert!(inspected.out.contains("ethtool -K vb gro off   (--fix does it)"), "{inspected:?}");
    let unconfirmed = doctor(&["--fix"]);
    assert!(unconfirmed.status == Some(2) && unconfirmed.err.contains("--yes") && merges(), "{unconfirmed:?}");
    assert!(!state.exists());
    let fixed = doctor(&["--fix", "--yes", "--json"]);
    assert_eq!(fixed.status, Some(0), "{fixed:?}");
    let made = &objects(&fixed.out).pop().expect("a step")["made"];
    assert_eq!((&made["was"], &made["value"], &made["error"]), (&"on".into(), &"off".into(), &serde_json::Value::Null));
    assert!(!merges() && state.exists());
    assert_eq!(doctor(&[]).status, Some(0));
    let undone = run(&["doctor", "--undo", "--state", arg(&state), "--json"]);
    assert_eq!(undone.status, Some(0), "{undone:?}");
    assert_eq!(objects(&undone.out)[0]["undone"]["value"], "on");
    assert!(merges() && !state.exists());
}

#[test]
fn undo_restores_an_interface_only_in_its_own_network_namespace() {
    let test = "undo_restores_an_interface_only_in_its_own_network_namespace";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (_a, b) = sandbox.veth("va", "vb");
    ethtool::set_feature(&b.name, "rx-gro", true).expect("veth can merge");
    let ip = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    sandbox.netlink().add_address(&Address { link: b.index, ip, prefix: 24 }).expect("an address");
    let dir = TempDir::new("doctor-namespace");
    let state = dir.join("undo.json");
    let merges = || ethtool::features("vb").expect("features").iter().any(|f| f.name == "rx-gro" && f.on);
    let fixed = run(&["doctor", "-i", "vb", "--only", "merging", "--fix", "--yes", "--state", arg(&state)]);
    assert_eq!(fixed.status, Some(0), "{fixed:?}");
    // `nsenter --target` needs a process in the namespace, not only a thread; this process stays in the namespace until
    // the end of the test.
    let mut sleeper = std::process::Command::new("sleep");
    let _sleeper = common::Running(sleeper.arg("600").spawn().expect("the process starts"));
    let undo = || run(&["doctor", "--undo", "--state", arg(&state)]);
    // An interface of the same name in another namespace is another interface.
    let (rejected, touched) = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let other = Sandbox::new(test).expect("a second namespace");
            let (_a, b) = other.veth("va", "vb");
            ethtool::set_feature(&b.name, "rx-gro", false).expect("veth can merge");
            let output = undo();
            (output, ethtool::features("vb").expect("features").iter().any(|f| f.name == "rx-gro" && f.on))
        });
        thread.join().expect("the thread ends")
    });
    assert_eq!((rejected.status, touched), (Some(1), false), "{rejected:?}");
    for word in ["network namespace", "net:[", "nsenter --target ", "--net netgrain doctor --undo"] {
        assert!(rejected.err.contains(word), "{word}: {}", rejected.err);
    }
    assert!(!merges() && state.exists(), "the undo file must remain");
    let undone = undo();
    assert_eq!(undone.status, Some(0), "{undone:?}");
    assert!(merges() && !state.exists());
}
