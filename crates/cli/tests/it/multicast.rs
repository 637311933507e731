//! One machine exports to groups, another one subscribes: two processes in two network namespaces with a wire between
//! them.

use crate::common;

use common::{PATIENCE, Running, Said, arg, netgrain, objects, run, signal, until_filtered};
use std::collections::BTreeSet;
use std::io::BufRead;
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use testkit::{Sandbox, TempDir};

/// A network namespace of a process that does nothing, which ends with the test.
struct Elsewhere(Child);

impl Elsewhere {
    /// With one end of a wire, of which the other stays here.
    fn new(test: &str, port: &str) -> Option<Self> {
        let mut unshare = testkit::tool(test, "unshare")?;
        testkit::tool(test, "nsenter")?;
        testkit::tool(test, "ip")?;
        let child = unshare.args(["--net", "sleep", "600"]).stdout(Stdio::null()).spawn().expect("unshare starts");
        let there = Self(child);
        let pid = there.0.id().to_string();
        // It is elsewhere once it has another namespace than we have.
        let begun = Instant::now();
        let space = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let here = std::fs::read_link("/proc/thread-self/ns/net").ok();
        while space(&pid) == here {
            assert!(begun.elapsed() < PATIENCE, "unshare does not come to its own network");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        done(Command::new("ip").args(["link", "set", port, "netns", &pid]));
        for args in [["link", "set", "lo", "up"], ["link", "set", port, "up"]] {
            done(there.command("ip").args(args));
        }
        done(there.command("ip").args(["addr", "add", "192.0.2.2/24", "dev", port]));
        Some(there)
    }

    /// A command that runs there.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", &self.0.id().to_string(), program]).stdin(Stdio::null());
        command
    }

    /// Our binary, caught.
    fn netgrain(&self, args: &[&str]) -> Running {
        let mut command = self.command(env!("CARGO_BIN_EXE_netgrain"));
        Running(command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts"))
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn done(command: &mut Command) {
    let out = command.output().expect("it runs");
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
}

/// Waits until somebody there listens to so many of these UDP ports.
fn listens(there: &Elsewhere, many: usize) {
    let begun = Instant::now();
    loop {
        let sockets = std::fs::read_to_string(format!("/proc/{}/net/udp", there.0.id())).unwrap_or_default();
        if sockets.matches(":1283 ").count() >= many {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "nobody listens: {sockets}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

fn end(running: Running) -> Said {
    let mut running = running;
    let err = std::io::BufReader::new(running.0.stderr.take().expect("caught"));
    running.end(err)
}

#[test]
fn flows_and_rows_of_a_run_are_heard_on_another_machine_by_several_subscribers() {
    let test = "flows_and_rows_of_a_run_are_heard_on_another_machine_by_several_subscribers";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (here, there) = sandbox.veth("ga", "gb");
    let Some(elsewhere) = Elsewhere::new(test, &there.name) else { return };
    done(Command::new("ip").args(["addr", "add", "192.0.2.1/24", "dev", &here.name]));
    let group = |kind: u8| format!("239.{kind}.0.0:4739");
    let hear = |verb: &str, kind: u8, more: &[&str]| {
        let group = group(kind);
        let args = [verb, "--live", "--from-multicast", &group, "--multicast-interface", &there.name, "--json"];
        elsewhere.netgrain(&[&args[..], more].concat())
    };
    // Two that listen to the same group on one machine, of which one asks for a part.
    let (all, some) = (hear("flows", 128, &["--limit", "200"]), hear("flows", 128, &["--limit", "20", "udp"]));
    let mut series = hear("series", 129, &[]);
    listens(&elsewhere, 3);
    [&all, &some, &series].into_iter().for_each(|subscriber| until_filtered(&subscriber.0));
    let dir = TempDir::new(test);
    let (store, target) = (dir.join("store"), format!("multicast:{},ttl=1", here.name));
    let args = ["run", "--sim", "imix,flows=400,rate=4kpps", "--store", arg(&store), "--export", &target];
    let sets =
        ["capture.ring=8MiB", "flow.idle_timeout=1s", "flow.active_timeout=1s"].map(|set| ["--set", set]).concat();
    let (running, err) = Running::start(&mut netgrain(&[&args[..], &sets[..], &["--quiet"]].concat()));
    until_filtered(&running.0);
    let rows: Vec<serde_json::Value> = {
        let out = std::io::BufReader::new(series.0.stdout.take().expect("caught"));
        out.lines().take(2).map(|line| serde_json::from_str(&line.expect("text")).expect("an object")).collect()
    };
    let (all, some) = (end(all), end(some));
    signal(&running.0, "INT");
    let ran = running.end(err);
    assert_eq!((ran.status, all.status, some.status), (Some(0), Some(0), Some(0)), "{ran:?} {all:?} {some:?}");
    let records = objects(&all.out);
    assert_eq!(records.len(), 200);
    let parts: BTreeSet<_> = records.iter().map(|r| (r["id"].to_string(), r["record_index"].to_string())).collect();
    assert_eq!(parts.len(), 200, "each once");
    assert!(objects(&some.out).iter().all(|record| record["protocol"] == "udp"), "{}", some.out);
    assert_eq!(rows[1]["second"].as_u64(), rows[0]["second"].as_u64().map(|second| second + 1));
    // The name comes with the options, which a subscriber that was there from the beginning has heard.
    assert!(rows.iter().all(|row| row["interface"] == "sim" && row["packets"].as_u64() > Some(0)), "{rows:?}");
}

#[test]
fn a_group_that_no_port_leads_to_is_refused_with_what_to_do() {
    let test = "a_group_that_no_port_leads_to_is_refused_with_what_to_do";
    let Some(_sandbox) = Sandbox::new(test) else { return };
    for (args, advice) in [
        (&["239.128.0.0:4739"][..], "--multicast-interface eth1"),
        (&["239.128.0.0:4739", "--multicast-interface", "none0"], "ip link"),
        (&["192.0.2.1:4739"], "nor an address of this machine"),
    ] {
        for verb in ["flows", "series"] {
            let said = run(&[&[verb, "--live", "--from-multicast"], args].concat());
            assert_eq!((said.status, said.out.as_str(), said.err.lines().count()), (Some(2), "", 1), "{said:?}");
            assert!(
                said.err.contains(args[0].split(':').next().unwrap_or("")) || said.err.contains("none0"),
                "{said:?}"
            );
            assert!(said.err.contains(advice), "{}", said.err);
        }
    }
}
