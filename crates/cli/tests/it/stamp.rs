//! Tests of `netgrain stamp`: sender and reflector with each other, and with the implementation `stamp-suite`.

use crate::common;

use crate::json_schemas::assert_valid;
use common::{Running, objects, reflector_at, run, run_command, stamp_reflector, until};
use std::net::UdpSocket;
use std::process::Stdio;
use testkit::TempDir;

fn send(address: &str, more: &[&str]) -> serde_json::Value {
    let output = run(&[&["stamp", "send", address, "--interval", "2ms", "--wait", "20s", "--json"], more].concat());
    assert_eq!(output.status, Some(0), "{output:?}");
    objects(&output.out).remove(0)
}

#[test]
fn invalid_arguments_are_rejected_with_advice() {
    for (args, advice) in [
        (&["stamp", "send", "10.0.0.1:x"][..], "host.example:862"),
        (&["stamp", "send", "10.0.0.1", "--size", "43"], "44"),
        (&["stamp", "send", "10.0.0.1", "--interval", "5"], "250ms"),
        (&["stamp", "reflect", "--listen", "862"], "0.0.0.0:862"),
        (&["stamp", "reflect", "--listen", "192.0.2.77:8620"], "--listen"),
    ] {
        let output = run(args);
        assert_eq!(output.status, Some(2), "{args:?}: {output:?}");
        assert!(output.err.contains(advice), "{args:?}: {output:?}");
    }
}

#[test]
fn test_packets_without_a_reflector_are_lost() {
    let closed = UdpSocket::bind("127.0.0.1:0").expect("a socket").local_addr().expect("an address").to_string();
    let output = run(&["stamp", "send", &closed, "--count", "3", "--interval", "1ms", "--wait", "50ms", "--json"]);
    assert_eq!(output.status, Some(1), "{output:?}");
    let report = objects(&output.out).remove(0);
    assert_eq!((&report["sent"], &report["lost"]), (&3.into(), &3.into()), "{output:?}");
    assert!(output.err.contains("is a STAMP reflector running there?"), "{output:?}");
    assert!(report["forward"].is_null());
}

#[test]
fn every_test_packet_is_answered_and_evaluated() {
    let (reflector, err, address) = stamp_reflector(&["--packets", "50"]);
    let report = send(&address, &["--count", "50", "--size", "1000", "--clock", "same"]);
    for (key, value) in [("sent", 50), ("replied", 50), ("lost", 0), ("duplicates", 0), ("unknown", 0), ("invalid", 0)]
    {
        assert_eq!(report[key], value, "{key}: {report}");
    }
    assert_eq!((&report["ttl_min"], &report["lost_forward"]), (&64.into(), &serde_json::Value::Null));
    for direction in ["forward", "backward"] {
        assert_eq!(report[direction]["clocks"], "same");
        assert_eq!(report[direction]["delay_ns"]["count"], 50);
        assert_eq!(report[direction]["variation_ns"]["count"], 49);
    }
    assert!(report["round_trip_ns"]["min"].as_i64().is_some_and(|min| min > 0), "{report}");
    let counted = objects(&reflector.end(err).out).remove(0);
    assert_eq!((&counted["replied"], &counted["received"], &counted["invalid"]), (&50.into(), &50.into(), &0.into()));
}

#[test]
fn a_reflector_counts_packets_that_are_no_test_packets() {
    let (reflector, err, address) = stamp_reflector(&["--packets", "2", "--stateful"]);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.send_to(b"no test packet", &address).expect("sent");
    socket.send_to(&[0; 44], &address).expect("sent");
    let text = run(&["stamp", "send", &address, "--count", "2", "--interval", "1ms"]);
    assert!(text.out.contains("2 sent, 0 lost") && text.out.contains("round trip min"), "{text:?}");
    let counted = objects(&reflector.end(err).out).remove(0);
    assert_eq!((&counted["received"], &counted["replied"], &counted["invalid"]), (&4.into(), &2.into(), &2.into()));
    assert_eq!(counted["sessions"], 1);
}

#[test]
fn a_reflector_at_all_addresses_replies_from_the_address_of_the_test_packet() {
    let port = free_port();
    let (reflector, err, _) = reflector_at(&format!("0.0.0.0:{port}"), &["--packets", "3"]);
    // The route from 127.0.0.1 to the sender has the source address 127.0.0.1, and not 127.0.0.2.
    let report = send(&format!("127.0.0.2:{port}"), &["--count", "3"]);
    assert_eq!((&report["replied"], &report["lost"]), (&3.into(), &0.into()), "{report}");
    assert_eq!(objects(&reflector.end(err).out)[0]["replied"], 3);
}

#[test]
fn a_packet_from_another_reflector_gets_no_reply() {
    let (reflector, err, address) = stamp_reflector(&[]);
    let (other, other_err, other_address) = stamp_reflector(&["--packets", "1"]);
    let port = address.rsplit(':').next().expect("a port");
    // A test packet whose source is the other reflector: its socket would answer the reply.
    let Ok(spoofing) = UdpSocket::bind(format!("127.0.0.3:{port}")) else { return };
    let mut test = [0; 44];
    test[13] = 1;
    spoofing.send_to(&test, &address).expect("sent");
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    sender.send_to(&test, &other_address).expect("sent");
    assert_eq!(objects(&other.end(other_err).out)[0]["replied"], 1, "the test packet is valid");
    let done = run(&["stamp", "send", &address, "--count", "1"]);
    assert_eq!(done.status, Some(0), "{done:?}");
    common::signal(&reflector.0, "TERM");
    let output = reflector.end(err);
    let counted = objects(&output.out).remove(0);
    assert_valid("stamp-reflect", &counted);
    assert_eq!(
        (&counted["received"], &counted["replied"], &counted["from_reflectors"]),
        (&2.into(), &1.into(), &1.into())
    );
}

#[test]
fn sender_and_reflector_with_one_key_measure_and_another_key_gets_no_reply() {
    let dir = TempDir::new("stamp-key");
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.join(name);
        std::fs::write(&path, bytes).expect("a key");
        path.to_str().expect("text").to_owned()
    };
    let (key, other, short) = (file("key", &[7; 32]), file("other", &[8; 32]), file("short", b"secret\n"));
    for verb in [&["stamp", "reflect", "--listen", "127.0.0.1:0"][..], &["stamp", "send", "127.0.0.1:9"]] {
        let output = run(&[verb, &["--key-file", &short]].concat());
        assert!(output.status == Some(2) && output.err.contains("the key has 6 bytes"), "{output:?}");
    }
    let small = run(&["stamp", "send", "127.0.0.1:9", "--key-file", &key, "--size", "100"]);
    assert!(small.status == Some(2) && small.err.contains("at least 112 bytes"), "{small:?}");
    let (reflector, err, address) = stamp_reflector(&["--key-file", &key]);
    for size in ["44", "500"] {
        let report = send(&address, &["--count", "5", "--key-file", &key, "--size", size]);
        assert_valid("stamp-send", &report);
        assert_eq!((&report["replied"], &report["unauthenticated"]), (&5.into(), &0.into()), "{report}");
    }
    for more in [&["--key-file", &other[..]][..], &[]] {
        let args =
            [&["stamp", "send", &address, "--count", "2", "--interval", "1ms", "--wait", "50ms", "--json"], more];
        let output = run(&args.concat());
        assert_eq!((output.status, &objects(&output.out)[0]["lost"]), (Some(1), &2.into()), "{output:?}");
    }
    common::signal(&reflector.0, "TERM");
    let output = reflector.end(err);
    let counted = objects(&output.out).remove(0);
    assert_valid("stamp-reflect", &counted);
    assert_eq!((&counted["replied"], &counted["unauthenticated"]), (&10.into(), &4.into()), "{counted}");
    assert!(output.err.contains("4 packets without the right HMAC"), "{output:?}");
    // A reflector without a key replies in unauthenticated mode, which a sender with a key does not accept.
    let (open, open_err, address) = stamp_reflector(&["--packets", "2"]);
    let args = ["--count", "2", "--interval", "1ms", "--wait", "100ms", "--json", "--key-file", &key];
    let output = run(&[&["stamp", "send", &address], &args[..]].concat());
    let report = objects(&output.out).remove(0);
    drop((open, open_err));
    assert_eq!((&report["replied"], output.status), (&0.into(), Some(1)), "{output:?}");
}

#[test]
fn errors_of_the_path_are_counted_by_cause_and_the_report_is_printed() {
    let test = "errors_of_the_path_are_counted_by_cause_and_the_report_is_printed";
    let Some(sandbox) = testkit::Sandbox::new(test) else { return };
    let (_a, _b) = sandbox.veth("stampa", "stampb");
    let commands = [
        &["addr", "add", "10.77.0.1/24", "dev", "stampa"][..],
        &["neigh", "add", "10.77.0.2", "lladdr", "02:00:00:00:00:09", "dev", "stampa"],
        &["route", "add", "prohibit", "10.78.0.0/24"],
        &["route", "add", "unreachable", "10.79.0.0/24"],
        &["link", "set", "stampa", "mtu", "600"],
    ];
    for args in commands {
        assert!(std::process::Command::new("ip").args(args).status().is_ok_and(|s| s.success()), "ip {args:?}");
    }
    for (to, size, cause) in [
        ("10.79.0.1", "44", "host-unreachable"),
        ("10.78.0.1", "44", "forbidden"),
        ("10.80.0.1", "44", "network-unreachable"),
    ] {
        let args = ["--count", "2", "--interval", "1ms", "--wait", "10ms", "--size", size, "--json"];
        let output = run(&[&["stamp", "send", to], &args[..]].concat());
        match objects(&output.out).pop() {
            Some(report) => {
                assert_valid("stamp-send", &report);
                assert_eq!((&report["sent"], &report["lost"]), (&2.into(), &2.into()), "{output:?}");
                assert!(report["errors"].as_array().is_some_and(|e| e.iter().any(|e| e["cause"] == cause)), "{report}");
                assert_eq!(output.status, Some(1), "{output:?}");
            }
            // The kernel may refuse the route when the socket is connected.
            None => assert!(output.status == Some(2) && output.err.contains(to), "{output:?}"),
        }
    }
}

/// A free UDP port of the loopback interface.
fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").expect("a socket").local_addr().expect("an address").port()
}

/// True if the kernel lists a socket on this UDP port.
fn is_open(port: u16) -> bool {
    let sockets = std::fs::read_to_string("/proc/net/udp").unwrap_or_default();
    sockets.lines().any(|line| line.contains(&format!("0100007F:{port:04X} ")))
}

#[test]
fn the_sender_agrees_with_the_reflector_of_stamp_suite() {
    let test = "the_sender_agrees_with_the_reflector_of_stamp_suite";
    for (format, stateful) in [("NTP", false), ("PTP", false), ("NTP", true)] {
        let Some(mut suite) = testkit::rust_tool(test, "stamp-suite") else { return };
        let port = free_port();
        suite.args(["-i", "-S", "127.0.0.1", "-o", &port.to_string(), "-K", format, "--clock-synchronized"]);
        suite.args(["--error-scale", "14", "--error-multiplier", "200"]);
        if stateful {
            suite.arg("--stateful-reflector");
        }
        let suite = suite.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("stamp-suite starts");
        let suite = Running(suite);
        until("stamp-suite listens", || is_open(port));
        let report = send(&format!("127.0.0.1:{port}"), &["--count", "40", "--clock", "1us"]);
        for (key, value) in [("sent", 40), ("replied", 40), ("invalid", 0), ("unknown", 0), ("ttl_min", 64)] {
            assert_eq!(report[key], value, "{format}, {key}: {report}");
        }
        // Both programs read the same clock, so no delay is negative.
        for direction in ["forward", "backward"] {
            let delay = &report[direction]["delay_ns"];
            assert!(delay["min"].as_i64().is_some_and(|min| min >= 0), "{format}, {direction}: {report}");
        }
        assert!(report["reflection_ns"]["min"].as_i64().is_some_and(|min| min >= 0), "{format}: {report}");
        // The reflector states an error of 200 · 2^(14 - 32) s, which is 762 939 ns. The error of the backward
        // direction is at least the sum of this error and the error of 1 µs of the sender's clock.
        let error = report["backward"]["delay_error_ns"].as_u64();
        assert!(error.is_none_or(|error| error >= 762_939 + 1000), "{format}: {report}");
        drop(suite);
    }
}

#[test]
fn the_sender_of_stamp_suite_agrees_with_the_reflector() {
    let test = "the_sender_of_stamp_suite_agrees_with_the_reflector";
    for more in [&[][..], &["--stateful"]] {
        for format in ["NTP", "PTP"] {
            let Some(mut suite) = testkit::rust_tool(test, "stamp-suite") else { return };
            let (reflector, err, address) = stamp_reflector(&[more, &["--packets", "20"]].concat());
            let port = address.rsplit(':').next().expect("a port");
            suite.args(["-r", "127.0.0.1", "-p", port, "-c", "20", "-d", "2ms", "-L", "20", "-K", format]);
            let output = run_command(&mut suite);
            assert!(
                output.out.contains("Packets sent: 20") && output.out.contains("Packets received: 20"),
                "{output:?}"
            );
            assert!(output.out.contains("Replies: 20 unique, 0 additional, 0 late, 0 duplicates"), "{output:?}");
            let counted = objects(&reflector.end(err).out).remove(0);
            assert_eq!((&counted["replied"], &counted["invalid"]), (&20.into(), &0.into()), "{format}");
        }
    }
}

#[test]
fn sigterm_ends_the_reflector_with_its_report() {
    let (reflector, err, _) = stamp_reflector(&[]);
    common::signal(&reflector.0, "TERM");
    let output = reflector.end(err);
    assert_eq!((output.status, &objects(&output.out)[0]["received"]), (Some(0), &0.into()), "{output:?}");
}
