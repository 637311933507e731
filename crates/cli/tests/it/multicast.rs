//! One host exports to multicast groups and another host subscribes to them. The hosts are processes in two network
//! namespaces that a veth pair connects.

use crate::common;

use common::{Output, Running, WAIT_MAX, arg, netgrain, objects, run, signal, until_filtered};
use std::collections::BTreeSet;
use std::io::BufRead;
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use testkit::{Sandbox, TempDir};

/// A second network namespace; an idle child process, which is killed at the end of the test, keeps it in existence.
struct OtherNamespace(Child);

impl OtherNamespace {
    /// Creates the namespace and moves the interface `port` into it.
    fn new(test: &str, port: &str) -> Option<Self> {
        let mut unshare = testkit::tool(test, "unshare")?;
        testkit::tool(test, "nsenter")?;
        testkit::tool(test, "ip")?;
        let child = unshare.args(["--net", "sleep", "600"]).stdout(Stdio::null()).spawn().expect("unshare starts");
        let other = Self(child);
        let pid = other.0.id().to_string();
        // The child is ready when its namespace differs from that of this thread.
        let begun = Instant::now();
        let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let own = std::fs::read_link("/proc/thread-self/ns/net").ok();
        while namespace(&pid) == own {
            assert!(begun.elapsed() < WAIT_MAX, "unshare did not create a network namespace");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_success(Command::new("ip").args(["link", "set", port, "netns", &pid]));
        for args in [["link", "set", "lo", "up"], ["link", "set", port, "up"]] {
            assert_success(other.command("ip").args(args));
        }
        assert_success(other.command("ip").args(["addr", "add", "192.0.2.2/24", "dev", port]));
        Some(other)
    }

    /// A command that runs in this namespace.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", &self.0.id().to_string(), program]).stdin(Stdio::null());
        command
    }

    /// Starts netgrain in this namespace with piped output.
    fn netgrain(&self, args: &[&str]) -> Running {
        let mut command = self.command(env!("CARGO_BIN_EXE_netgrain"));
        Running(command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the process starts"))
    }
}

impl Drop for OtherNamespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn assert_success(command: &mut Command) {
    let out = command.output().expect("the program runs");
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
}

/// Waits until `count` sockets in the namespace are bound to UDP port 4739 (0x1283).
fn wait_for_sockets(namespace: &OtherNamespace, count: usize) {
    let begun = Instant::now();
    loop {
        let sockets = std::fs::read_to_string(format!("/proc/{}/net/udp", namespace.0.id())).unwrap_or_default();
        if sockets.matches(":1283 ").count() >= count {
            return;
        }
        assert!(begun.elapsed() < WAIT_MAX, "no socket is bound: {sockets}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

fn end(running: Running) -> Output {
    let mut running = running;
    let err = std::io::BufReader::new(running.0.stderr.take().expect("a pipe"));
    running.end(err)
}

#[test]
fn several_subscribers_on_another_host_receive_flows_and_rows() {
    let test = "several_subscribers_on_another_host_receive_flows_and_rows";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (local, remote) = sandbox.veth("ga", "gb");
    let Some(namespace) = OtherNamespace::new(test, &remote.name) else { return };
    assert_success(Command::new("ip").args(["addr", "add", "192.0.2.1/24", "dev", &local.name]));
    let group = |kind: u8| format!("239.{kind}.0.0:4739");
    let subscribe = |verb: &str, kind: u8, more: &[&str]| {
        let group = group(kind);
        let args = [verb, "--live", "--from-multicast", &group, "--multicast-interface", &remote.name, "--json"];
        namespace.netgrain(&[&args[..], more].concat())
    };
    // Two subscribers on one host receive the same multicast group; one of them has a filter.
    let (all, some) =
        (subscribe("flows", 128, &["--limit", "200"]), subscribe("flows", 128, &["--limit", "20", "udp"]));
    let mut series = subscribe("series", 129, &[]);
    wait_for_sockets(&namespace, 3);
    [&all, &some, &series].into_iter().for_each(|subscriber| until_filtered(&subscriber.0));
    let dir = TempDir::new(test);
    let (store, target) = (dir.join("store"), format!("multicast:{},ttl=1", local.name));
    let args = ["run", "--sim", "imix,flows=400,rate=4kpps", "--store", arg(&store), "--export", &target];
    let sets =
        ["capture.ring=8MiB", "flow.idle_timeout=1s", "flow.active_timeout=1s"].map(|set| ["--set", set]).concat();
    let (running, err) = Running::start(&mut netgrain(&[&args[..], &sets[..], &["--quiet"]].concat()));
    until_filtered(&running.0);
    let rows: Vec<serde_json::Value> = {
        let out = std::io::BufReader::new(series.0.stdout.take().expect("a pipe"));
        out.lines().take(2).map(|line| serde_json::from_str(&line.expect("text")).expect("an object")).collect()
    };
    let (all, some) = (end(all), end(some));
    signal(&running.0, "INT");
    let ran = running.end(err);
    assert_eq!((ran.status, all.status, some.status), (Some(0), Some(0), Some(0)), "{ran:?} {all:?} {some:?}");
    let records = objects(&all.out);
    assert_eq!(records.len(), 200);
    let parts: BTreeSet<_> = records.iter().map(|r| (r["id"].to_string(), r["record_index"].to_string())).collect();
    assert_eq!(parts.len(), 200, "each record once");
    assert!(objects(&some.out).iter().all(|record| record["protocol"] == "udp"), "{}", some.out);
    assert_eq!(rows[1]["second"].as_u64(), rows[0]["second"].as_u64().map(|second| second + 1));
    // The exporter sends the interface name in an options data record; this subscriber was present from the start and
    // has received the record.
    assert!(rows.iter().all(|row| row["interface"] == "sim" && row["packets"].as_u64() > Some(0)), "{rows:?}");
}

#[test]
fn a_multicast_group_without_a_route_is_rejected_with_advice() {
    let test = "a_multicast_group_without_a_route_is_rejected_with_advice";
    let Some(_sandbox) = Sandbox::new(test) else { return };
    for (args, advice) in [
        (&["239.128.0.0:4739"][..], "--multicast-interface eth1"),
        (&["239.128.0.0:4739", "--multicast-interface", "none0"], "ip link"),
        (&["192.0.2.1:4739"], "nor an address of this machine"),
    ] {
        for verb in ["flows", "series"] {
            let output = run(&[&[verb, "--live", "--from-multicast"], args].concat());
            assert_eq!(
                (output.status, output.out.as_str(), output.err.lines().count()),
                (Some(2), "", 1),
                "{output:?}"
            );
            assert!(
                output.err.contains(args[0].split(':').next().unwrap_or("")) || output.err.contains("none0"),
                "{output:?}"
            );
            assert!(output.err.contains(advice), "{}", output.err);
        }
    }
}
