//! Runs the commands of the page on splitting an interface, and the commands in the header of every example.

use crate::workspace;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::{RawReader, RawSender};
use wire::build::Frame;
use workspace::{Testbed, frames};

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The first three `netgrain` commands among the lines.
fn three_commands<'a>(lines: impl Iterator<Item = &'a str>) -> [String; 3] {
    let commands: Vec<String> = lines.filter(|l| l.contains("netgrain ")).map(str::to_owned).take(3).collect();
    commands.try_into().unwrap_or_else(|found| panic!("not three commands: {found:?}"))
}

/// Numbered packets of 100 connections in both directions. Every tenth connection has server port 80, the others 443.
fn conversations(rounds: u32) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for n in 0..rounds * 100 {
        let (flow, back) = (n % 100, n / 100 % 2 == 1);
        let (host, server) = ([10, 0, 0, flow as u8], [192, 0, 2, 1]);
        let port = if flow % 10 == 9 { 80 } else { 443 };
        let mut bytes = vec![0; 80];
        if back {
            Frame::tcp4(server, port, host, 4000).fill(&mut bytes);
        } else {
            Frame::tcp4(host, 4000, server, port).fill(&mut bytes);
        }
        bytes[72..76].copy_from_slice(&flow.to_be_bytes());
        bytes[76..80].copy_from_slice(&n.to_be_bytes());
        out.push(bytes);
    }
    out
}

fn number(frame: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(frame[at..at + 4].try_into().expect("four"))
}

#[test]
fn the_commands_of_the_page_split_an_interface_over_four_processes() {
    let test = "the_commands_of_the_page_split_an_interface_over_four_processes";
    let page = std::fs::read_to_string(repository("docs/how-to/split-a-port-over-workers.md")).expect("the page");
    let section = page.split("\n## ").find(|s| s.starts_with("Three commands")).expect("the section");
    let [engine, create, join] = three_commands(section.lines());
    let Some(testbed) = Testbed::new(test) else { return };
    let engine = testbed.engine(engine.trim_end_matches(" &"));
    testbed.run_ok(&create);
    let mut workers = testbed.spawn(&format!("{join}\nwait"));
    testbed.wait_for_members("web", 4);
    let sent = conversations(20);
    RawSender::new(&testbed.feed).send(&sent);
    testbed.wait_for_packets("web", 2000);
    let stats = testbed.stats("web");
    assert_eq!((&stats["passed"], &stats["dropped"], &stats["no_member"]), (&1800.into(), &200.into(), &0.into()));
    testbed.run_ok("netgrain group delete -i eth1 web");
    assert!(workers.0.wait().expect("the process ends").success());
    engine.end();
    let mut owner: BTreeMap<u32, usize> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for worker in 1..=4 {
        let part = frames(&testbed.dir.join(format!("worker{worker}.pcap")));
        // Each engine has a random hash key, so the shares of the workers differ from run to run. With 90 flows, a
        // worker gets no flow in 1 of 10¹⁰ runs.
        assert!(!part.is_empty(), "worker {worker} has no packet of 1800");
        for frame in part {
            let flow = number(&frame, 72);
            assert_eq!(*owner.entry(flow).or_insert(worker), worker, "both directions of flow {flow} go to one worker");
            assert!(sent.contains(&frame) && seen.insert(number(&frame, 76)), "each packet unchanged and once");
        }
    }
    assert_eq!((owner.len(), seen.len()), (90, 1800), "a worker has every packet of port 443");
}

#[test]
fn the_three_commands_of_every_example_have_the_described_result() {
    let test = "the_three_commands_of_every_example_have_the_described_result";
    let mut files: Vec<_> = std::fs::read_dir(repository("examples/groups"))
        .expect("the examples")
        .map(|e| e.expect("an entry").file_name().into_string().expect("characters"))
        .collect();
    files.sort();
    assert!(files.len() >= 12, "{files:?}");
    let Some(testbed) = Testbed::new(test) else { return };
    let sent = conversations(10);
    let mut engine = None;
    for file in files {
        let text = std::fs::read_to_string(repository("examples/groups").join(&file)).expect("an example");
        let [record, create, join] = three_commands(text.lines().filter_map(|l| l.strip_prefix("--   ")));
        // Most examples begin with the same command: one engine serves them, with one group at a time.
        if engine.as_ref().is_some_and(|(line, _)| *line != record) {
            let (_, before): (String, workspace::Engine) = engine.take().expect("a running engine");
            before.end();
        }
        engine.get_or_insert_with(|| (record.clone(), testbed.engine(&record)));
        assert!(create.contains(&format!("examples/groups/{file}")), "{file}: {create}");
        testbed.run_ok(&create);
        let group = create.split_whitespace().nth(5).expect("a name").to_owned();
        testbed.remove_captures();
        let mut member = testbed.spawn(&format!("exec {join}"));
        testbed.wait_for_members(&group, 1);
        let mut far = RawReader::new(&testbed.sink);
        RawSender::new(&testbed.feed).send(&sent);
        testbed.wait_for_packets(&group, 1000);
        let stats = testbed.stats(&group);
        let field = |name: &str| stats[name].as_u64().unwrap_or_else(|| panic!("no {name}: {stats}"));
        // The expected numbers of packets that are passed, dropped, addressed to a class without members, and forwarded
        // from eth2. The packets are TCP segments with ACK between hosts that no example names.
        let expected = match &*file {
            "port-mirror.ng" => [1000, 0, 0, 1000],
            "stateless-firewall.ng" => [0, 1000, 0, 1000],
            "gtp.ng" | "port-knocking.ng" | "subnet-affinity.ng" | "voip.ng" => [0, 1000, 0, 0],
            // Only in this example does the member join a single class. The packets are addressed to another class,
            // which has no member.
            "twin.ng" => [0, 0, 1000, 0],
            _ => [1000, 0, 0, 0],
        };
        assert_eq!([field("passed"), field("dropped"), field("no_member"), field("forwarded")], expected, "{file}");
        if expected[3] > 0 {
            let received = far.at_least(sent.len(), Duration::from_millis(300), |frame| frame.len() == 80);
            assert!(received == sent, "{file}: {} of {} frames left eth2 unchanged", received.len(), sent.len());
        }
        testbed.run_ok(&format!("netgrain group delete -i eth1 {group}"));
        assert!(member.0.wait().expect("the process ends").success(), "{file}: the member missed packets");
    }
    engine.expect("there were examples").1.end();
}
