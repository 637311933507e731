//! Tests queries for the packets of flow records in captures of many kinds of networks. A query for a flow finds
//! exactly its packets. A packet query for an address inside a tunnel finds no packet and advises to query flows.

use crate::common;

use common::{Output, arg, objects, run, walk};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use testkit::TempDir;
use wire::build::{Frame, tunnel};
use wire::{EtherType, IpProtocol};

/// The number of flows per capture whose packets are queried, in addition to flows with VLAN tags or MPLS labels.
const FLOWS_PER_CAPTURE: usize = 3;

/// The largest number of flows with VLAN tags or MPLS labels per capture.
const ENCAPSULATED_MAX: usize = 10;

/// Replays a capture into a store with all data types.
fn replay(file: &Path, store: &Path, more: &[&str]) -> Output {
    let fixed = ["run", "-r", arg(file), "--store", arg(store), "-q", "--set", "capture.ring=8MiB"];
    run(&[&fixed, more].concat())
}

fn number(value: &Value, field: &str) -> u64 {
    value[field].as_u64().unwrap_or_else(|| panic!("no {field}: {value}"))
}

/// Returns, by flow ID, the packets and bytes that the records of the flow count, and true if the flow has a VLAN tag
/// or an MPLS label.
fn flows_of(store: &Path) -> BTreeMap<String, (u64, u64, bool)> {
    let output = run(&["flows", "--store", arg(store), "--json"]);
    let mut flows: BTreeMap<String, (u64, u64, bool)> = BTreeMap::new();
    for record in objects(&output.out) {
        let flow = flows.entry(record["id"].as_str().expect("an id").to_owned()).or_default();
        let is_encapsulated = !record["mpls"].is_null() || !record["vlan"].is_null();
        *flow = (flow.0 + number(&record, "packets"), flow.1 + number(&record, "bytes"), flow.2 || is_encapsulated);
    }
    flows
}

/// Packets and bytes that a query for a flow finds in the store.
fn packets_of(store: &Path, id: &str) -> (u64, u64) {
    let output = run(&["packets", "--store", arg(store), "--flow", id, "--count", "--json"]);
    match objects(&output.out).first() {
        Some(count) => (number(count, "packets"), number(count, "bytes")),
        None => panic!("{output:?}"),
    }
}

/// Writes a capture of these frames at intervals of 1 ms.
fn capture(path: &Path, frames: &[Vec<u8>]) {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 65_535, 1] {
        file.extend(word.to_le_bytes());
    }
    for (i, frame) in frames.iter().enumerate() {
        for word in [1_795_257_720, 1000 * i as u32, frame.len() as u32, frame.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    std::fs::write(path, file).expect("a capture");
}

fn frame_bytes(frame: Frame<'_>) -> Vec<u8> {
    let mut buffer = [0; 400];
    frame.write(&mut buffer).expect("a buffer of sufficient size").to_vec()
}

#[test]
fn a_query_for_a_flow_of_any_capture_finds_the_packets_of_its_records() {
    let name = "a_query_for_a_flow_of_any_capture_finds_the_packets_of_its_records";
    let Some(traces) = testkit::traces(name) else { return };
    let directory = traces.join("zeek");
    let captures: Vec<PathBuf> = walk(&directory).into_iter().filter(|path| path.is_file()).collect();
    let (mut queried, mut encapsulated, mut wrong) = (0, 0, Vec::new());
    for file in &captures {
        let dir = TempDir::new("crossing");
        let store = dir.join("store");
        replay(file, &store, &[]);
        let flows = flows_of(&store);
        let step = flows.len().div_ceil(FLOWS_PER_CAPTURE).max(1);
        let every = flows.iter().step_by(step);
        let special = flows.iter().filter(|(_, (.., is_encapsulated))| *is_encapsulated).take(ENCAPSULATED_MAX);
        let chosen: BTreeMap<_, _> = every.chain(special).collect();
        for (id, (packets, bytes, is_encapsulated)) in chosen {
            let found = packets_of(&store, id);
            queried += 1;
            encapsulated += u32::from(*is_encapsulated);
            if found != (*packets, *bytes) {
                let file = file.strip_prefix(&traces).unwrap_or(file).display();
                wrong.push(format!("{file}, {id}: counted {:?}, found {found:?}", (packets, bytes)));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {queried} flows:\n{}", wrong.len(), wrong.join("\n"));
    assert!(captures.len() > 100 && queried > 200 && encapsulated > 10, "{queried} flows, {encapsulated} encapsulated");
}

#[test]
fn flows_in_pppoe_pseudowires_and_snap_are_found_in_every_data_type() {
    let dir = TempDir::new("crossing-below");
    let packet = |n: u8| frame_bytes(Frame::udp4([10, 0, n, 1], 2222, [10, 0, n, 2], 53).payload(b"the inner").raw());
    let six = frame_bytes(Frame::udp6([7; 8], 2222, [9; 8], 53).payload(b"the inner").raw());
    let mut tagged =
        frame_bytes(Frame::udp4([10, 0, 3, 1], 2222, [10, 0, 3, 2], 53).payload(b"the inner").tag(EtherType::VLAN, 30));
    // If the destination MAC address began with zeros, the decoder would read its first bytes as a pseudowire control
    // word.
    tagged[..12].fill(0x12);
    let outer = |ethertype: EtherType, head: &[u8], inner: &[u8]| {
        frame_bytes(Frame::ethernet(ethertype).payload(&[head, inner].concat()))
    };
    let snap = [&tunnel::snap(EtherType::IPV4)[..], &packet(5)].concat();
    let frames = [
        outer(EtherType::PPPOE, &tunnel::pppoe(1, 0x21, packet(1).len()), &packet(1)),
        outer(EtherType::PPPOE, &tunnel::pppoe(1, 0x57, six.len()), &six),
        outer(EtherType::MPLS, &[0, 0x40, 1, 64], &tagged),
        outer(EtherType::MPLS, &[0, 0x40, 1, 64, 0, 0, 0, 0], &tagged),
        outer(EtherType(snap.len() as u16), &[], &snap),
    ];
    let (file, store) = (dir.join("below.pcap"), dir.join("store"));
    capture(&file, &frames.iter().flat_map(|frame| vec![frame.clone(); 3]).collect::<Vec<_>>());
    let output = replay(&file, &store, &[]);
    assert_eq!(output.status, Some(0), "{output:?}");
    for (filter, count) in [
        ("host 10.0.1.1", 3),
        ("ip6 and dst port 53", 3),
        ("net 10.0.3.0/24", 6),
        ("vlan 30 and udp", 6),
        ("src host 10.0.5.1 and port 2222", 3),
        ("udp", 15),
    ] {
        let below = format!("anylink ({filter})");
        let query = |verb: &str| {
            run(&[verb, "--store", arg(&store), "--json", if verb == "flows" { filter } else { below.as_str() }])
        };
        let flows: u64 = objects(&query("flows").out).iter().map(|record| number(record, "packets")).sum();
        let series: u64 = objects(&query("series").out).iter().map(|row| number(row, "packets")).sum();
        let packets = query("packets");
        assert_eq!((flows, packets.out.lines().count() as u64, series), (count, count, count), "{filter}: {packets:?}");
    }
    for (id, (packets, bytes, _)) in flows_of(&store) {
        assert_eq!(packets_of(&store, &id), (packets, bytes), "{id}");
    }
}

#[test]
fn packet_queries_for_inner_addresses_advise_to_query_flows() {
    let dir = TempDir::new("crossing-tunnel");
    let inner = frame_bytes(Frame::udp4([10, 0, 0, 1], 2222, [10, 0, 0, 2], 53).payload(b"the inner"));
    let payload = [&tunnel::vxlan(7)[..], &inner].concat();
    let frame = frame_bytes(Frame::udp4([192, 0, 2, 1], 50_000, [192, 0, 2, 2], 4789).payload(&payload));
    let (file, store) = (dir.join("vxlan.pcap"), dir.join("store"));
    capture(&file, &vec![frame; 4]);
    assert_eq!(replay(&file, &store, &[]).status, Some(0));
    let query = |verb: &str, filter: &str| run(&[verb, "--store", arg(&store), filter]);
    let (packets, series) = (query("packets", "host 10.0.0.1"), query("series", "port 2222"));
    assert_eq!((packets.status, series.status), (Some(1), Some(0)), "{packets:?} {series:?}");
    for output in [&packets, &series] {
        assert!(output.err.contains("inside of tunnels") && output.err.contains("--packets"), "{}", output.err);
    }
    let unknown = query("packets", "host 10.0.0.9");
    assert!(unknown.status == Some(1) && !unknown.err.contains("inside of tunnels"), "{}", unknown.err);
    let of_flow = run(&["flows", "--store", arg(&store), "host 10.0.0.1", "--packets", "--json"]);
    assert_eq!((of_flow.status, of_flow.out.lines().count()), (Some(0), 4), "{of_flow:?}");
}

#[test]
fn a_query_for_a_uniflow_finds_the_packets_of_its_direction_only() {
    let dir = TempDir::new("crossing-one-way");
    let forward = frame_bytes(Frame::udp4([10, 0, 0, 1], 2222, [10, 0, 0, 2], 53).payload(b"a question"));
    let reverse = frame_bytes(Frame::udp4([10, 0, 0, 2], 53, [10, 0, 0, 1], 2222).payload(b"an answer"));
    let ping = frame_bytes(Frame::ip4([10, 0, 0, 1], [10, 0, 0, 2], IpProtocol(99)).payload(b"no ports"));
    let (file, store) = (dir.join("talk.pcap"), dir.join("store"));
    capture(&file, &[forward.clone(), reverse.clone(), ping.clone(), forward.clone(), reverse, ping, forward]);
    assert_eq!(replay(&file, &store, &["--set", "flow.bidirectional=false"]).status, Some(0));
    let flows = flows_of(&store);
    let mut counts: Vec<u64> = flows.values().map(|flow| flow.0).collect();
    counts.sort_unstable();
    assert_eq!(counts, [2, 2, 3]);
    for (id, (packets, bytes, _)) in flows {
        assert_eq!(packets_of(&store, &id), (packets, bytes), "{id}");
    }
}

#[test]
fn flows_packets_reads_captures_and_rejects_files_without_packets() {
    let dir = TempDir::new("crossing-capture");
    let dns = frame_bytes(Frame::udp4([10, 0, 0, 1], 2222, [10, 0, 0, 2], 53).payload(b"a question"));
    let web = frame_bytes(Frame::udp4([10, 0, 0, 1], 2222, [10, 0, 0, 2], 443).payload(b"another"));
    let (file, out) = (dir.join("talk.pcap"), dir.join("out.pcap"));
    capture(&file, &[dns.clone(), web.clone(), dns.clone(), dns, web]);
    let query = |more: &[&str]| run(&[&["flows", "-r", arg(&file), "--packets"], more].concat());
    for (filter, packets) in [("port 53", 3), ("port 443", 2), ("udp", 5)] {
        let output = query(&["--count", "--json", filter]);
        assert_eq!(
            (output.status, number(&objects(&output.out)[0], "packets")),
            (Some(0), packets),
            "{filter}: {output:?}"
        );
    }
    let top = query(&["--top", "1", "--by", "packets", "-w", arg(&out)]);
    assert_eq!(top.status, Some(0), "{top:?}");
    let written = run(&["packets", "-r", arg(&out), "--count", "--json", "port 53"]);
    assert_eq!(number(&objects(&written.out)[0], "packets"), 3, "{written:?}");
    let records = dir.join("flows.parquet");
    assert_eq!(run(&["flows", "-r", arg(&file), "--parquet", arg(&records)]).status, Some(0));
    for (read, advice) in [(arg(&records), "name the capture"), ("-", "name a file")] {
        let output = run(&["flows", "-r", read, "--packets"]);
        assert_eq!((output.status, output.out.as_str()), (Some(2), ""), "{output:?}");
        assert!(output.err.contains(advice), "{}", output.err);
    }
}
