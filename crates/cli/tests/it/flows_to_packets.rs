//! From flow records to packets, over captures of real and odd networks: a flow leads to its own packets and to no
//! others, and whoever asks packets for what only a tunnel has is told so.

use crate::common;

use common::{Said, arg, objects, run, walk};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use testkit::TempDir;
use wire::build::{Frame, tunnel};
use wire::{EtherType, IpProtocol};

/// Flows of a capture that are followed to their packets, beside those in VLANs and under labels.
const FOLLOWED: usize = 3;

/// All that is of a kind is followed up to so many.
const MOST: usize = 10;

/// All data types of a file.
fn made(file: &Path, store: &Path, more: &[&str]) -> Said {
    let fixed = ["run", "-r", arg(file), "--store", arg(store), "-q", "--set", "capture.ring=8MiB"];
    run(&[&fixed, more].concat())
}

fn number(value: &Value, field: &str) -> u64 {
    value[field].as_u64().unwrap_or_else(|| panic!("no {field}: {value}"))
}

/// Packets and bytes of each flow as its records tell them, by its id; and whether something is around it.
fn reported(store: &Path) -> BTreeMap<String, (u64, u64, bool)> {
    let said = run(&["flows", "--store", arg(store), "--json"]);
    let mut flows: BTreeMap<String, (u64, u64, bool)> = BTreeMap::new();
    for record in objects(&said.out) {
        let flow = flows.entry(record["id"].as_str().expect("an id").to_owned()).or_default();
        let is_around = !record["mpls"].is_null() || !record["vlan"].is_null();
        *flow = (flow.0 + number(&record, "packets"), flow.1 + number(&record, "bytes"), flow.2 || is_around);
    }
    flows
}

/// Packets and bytes that the store gives for a flow.
fn given(store: &Path, id: &str) -> (u64, u64) {
    let said = run(&["packets", "--store", arg(store), "--flow", id, "--count", "--json"]);
    match objects(&said.out).first() {
        Some(reported) => (number(reported, "packets"), number(reported, "bytes")),
        None => panic!("{said:?}"),
    }
}

/// A capture of these frames, one each millisecond.
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

fn built(frame: Frame<'_>) -> Vec<u8> {
    let mut room = [0; 400];
    frame.write(&mut room).expect("room").to_vec()
}

#[test]
fn every_flow_of_every_odd_capture_leads_to_the_packets_that_its_records_tell_of() {
    let name = "every_flow_of_every_odd_capture_leads_to_the_packets_that_its_records_tell_of";
    let Some(traces) = testkit::traces(name) else { return };
    let folder = traces.join("zeek");
    let captures: Vec<PathBuf> = walk(&folder).into_iter().filter(|path| path.is_file()).collect();
    let (mut followed, mut around, mut wrong) = (0, 0, Vec::new());
    for file in &captures {
        let dir = TempDir::new("crossing");
        let store = dir.join("store");
        made(file, &store, &[]);
        let flows = reported(&store);
        let step = flows.len().div_ceil(FOLLOWED).max(1);
        let every = flows.iter().step_by(step);
        let special = flows.iter().filter(|(_, (.., is_around))| *is_around).take(MOST);
        let chosen: BTreeMap<_, _> = every.chain(special).collect();
        for (id, (packets, bytes, is_around)) in chosen {
            let given = given(&store, id);
            followed += 1;
            around += u32::from(*is_around);
            if given != (*packets, *bytes) {
                let file = file.strip_prefix(&traces).unwrap_or(file).display();
                wrong.push(format!("{file}, {id}: told {:?}, given {given:?}", (packets, bytes)));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {followed} flows:\n{}", wrong.len(), wrong.join("\n"));
    assert!(captures.len() > 100 && followed > 200 && around > 10, "{followed} flows, {around} with something around");
}

#[test]
fn flows_in_sessions_pseudowires_and_snap_are_found_by_their_words_in_every_data_type() {
    let dir = TempDir::new("crossing-below");
    let packet = |n: u8| built(Frame::udp4([10, 0, n, 1], 2222, [10, 0, n, 2], 53).payload(b"the inner").raw());
    let six = built(Frame::udp6([7; 8], 2222, [9; 8], 53).payload(b"the inner").raw());
    let mut whole =
        built(Frame::udp4([10, 0, 3, 1], 2222, [10, 0, 3, 2], 53).payload(b"the inner").tag(EtherType::VLAN, 30));
    // An address that begins with zeros would look like a control word.
    whole[..12].fill(0x12);
    let outer = |ethertype: EtherType, head: &[u8], inner: &[u8]| {
        built(Frame::ethernet(ethertype).payload(&[head, inner].concat()))
    };
    let snap = [&tunnel::snap(EtherType::IPV4)[..], &packet(5)].concat();
    let frames = [
        outer(EtherType::PPPOE, &tunnel::pppoe(1, 0x21, packet(1).len()), &packet(1)),
        outer(EtherType::PPPOE, &tunnel::pppoe(1, 0x57, six.len()), &six),
        outer(EtherType::MPLS, &[0, 0x40, 1, 64], &whole),
        outer(EtherType::MPLS, &[0, 0x40, 1, 64, 0, 0, 0, 0], &whole),
        outer(EtherType(snap.len() as u16), &[], &snap),
    ];
    let (file, store) = (dir.join("below.pcap"), dir.join("store"));
    capture(&file, &frames.iter().flat_map(|frame| vec![frame.clone(); 3]).collect::<Vec<_>>());
    let said = made(&file, &store, &[]);
    assert_eq!(said.status, Some(0), "{said:?}");
    for (words, count) in [
        ("host 10.0.1.1", 3),
        ("ip6 and dst port 53", 3),
        ("net 10.0.3.0/24", 6),
        ("vlan 30 and udp", 6),
        ("src host 10.0.5.1 and port 2222", 3),
        ("udp", 15),
    ] {
        let below = format!("anylink ({words})");
        let ask = |verb: &str| {
            run(&[verb, "--store", arg(&store), "--json", if verb == "flows" { words } else { below.as_str() }])
        };
        let flows: u64 = objects(&ask("flows").out).iter().map(|record| number(record, "packets")).sum();
        let series: u64 = objects(&ask("series").out).iter().map(|row| number(row, "packets")).sum();
        let packets = ask("packets");
        assert_eq!((flows, packets.out.lines().count() as u64, series), (count, count, count), "{words}: {packets:?}");
    }
    for (id, (packets, bytes, _)) in reported(&store) {
        assert_eq!(given(&store, &id), (packets, bytes), "{id}");
    }
}

#[test]
fn who_asks_packets_for_what_is_in_a_tunnel_is_told_of_its_flows() {
    let dir = TempDir::new("crossing-tunnel");
    let inner = built(Frame::udp4([10, 0, 0, 1], 2222, [10, 0, 0, 2], 53).payload(b"the inner"));
    let payload = [&tunnel::vxlan(7)[..], &inner].concat();
    let frame = built(Frame::udp4([192, 0, 2, 1], 50_000, [192, 0, 2, 2], 4789).payload(&payload));
    let (file, store) = (dir.join("vxlan.pcap"), dir.join("store"));
    capture(&file, &vec![frame; 4]);
    assert_eq!(made(&file, &store, &[]).status, Some(0));
    let ask = |verb: &str, words: &str| run(&[verb, "--store", arg(&store), words]);
    let (packets, series) = (ask("packets", "host 10.0.0.1"), ask("series", "port 2222"));
    assert_eq!((packets.status, series.status), (Some(1), Some(0)), "{packets:?} {series:?}");
    for said in [&packets, &series] {
        assert!(said.err.contains("inside of tunnels") && said.err.contains("--packets"), "{}", said.err);
    }
    let elsewhere = ask("packets", "host 10.0.0.9");
    assert!(elsewhere.status == Some(1) && !elsewhere.err.contains("inside of tunnels"), "{}", elsewhere.err);
    let theirs = run(&["flows", "--store", arg(&store), "host 10.0.0.1", "--packets", "--json"]);
    assert_eq!((theirs.status, theirs.out.lines().count()), (Some(0), 4), "{theirs:?}");
}

#[test]
fn a_record_of_one_direction_leads_to_the_packets_of_that_direction() {
    let dir = TempDir::new("crossing-one-way");
    let there = built(Frame::udp4([10, 0, 0, 1], 2222, [10, 0, 0, 2], 53).payload(b"a question"));
    let back = built(Frame::udp4([10, 0, 0, 2], 53, [10, 0, 0, 1], 2222).payload(b"an answer"));
    let ping = built(Frame::ip4([10, 0, 0, 1], [10, 0, 0, 2], IpProtocol(99)).payload(b"no ports"));
    let (file, store) = (dir.join("talk.pcap"), dir.join("store"));
    capture(&file, &[there.clone(), back.clone(), ping.clone(), there.clone(), back, ping, there]);
    assert_eq!(made(&file, &store, &["--set", "flow.bidirectional=false"]).status, Some(0));
    let flows = reported(&store);
    let mut counts: Vec<u64> = flows.values().map(|flow| flow.0).collect();
    counts.sort_unstable();
    assert_eq!(counts, [2, 2, 3]);
    for (id, (packets, bytes, _)) in flows {
        assert_eq!(given(&store, &id), (packets, bytes), "{id}");
    }
}

#[test]
fn flows_of_a_capture_lead_to_its_packets_and_those_of_other_files_are_refused() {
    let dir = TempDir::new("crossing-capture");
    let dns = built(Frame::udp4([10, 0, 0, 1], 2222, [10, 0, 0, 2], 53).payload(b"a question"));
    let web = built(Frame::udp4([10, 0, 0, 1], 2222, [10, 0, 0, 2], 443).payload(b"another"));
    let (file, out) = (dir.join("talk.pcap"), dir.join("out.pcap"));
    capture(&file, &[dns.clone(), web.clone(), dns.clone(), dns, web]);
    let ask = |more: &[&str]| run(&[&["flows", "-r", arg(&file), "--packets"], more].concat());
    for (words, packets) in [("port 53", 3), ("port 443", 2), ("udp", 5)] {
        let said = ask(&["--count", "--json", words]);
        assert_eq!((said.status, number(&objects(&said.out)[0], "packets")), (Some(0), packets), "{words}: {said:?}");
    }
    let greatest = ask(&["--top", "1", "--by", "packets", "-w", arg(&out)]);
    assert_eq!(greatest.status, Some(0), "{greatest:?}");
    let written = run(&["packets", "-r", arg(&out), "--count", "--json", "port 53"]);
    assert_eq!(number(&objects(&written.out)[0], "packets"), 3, "{written:?}");
    let records = dir.join("flows.parquet");
    assert_eq!(run(&["flows", "-r", arg(&file), "--parquet", arg(&records)]).status, Some(0));
    for (read, advice) in [(arg(&records), "name the capture"), ("-", "name a file")] {
        let said = run(&["flows", "-r", read, "--packets"]);
        assert_eq!((said.status, said.out.as_str()), (Some(2), ""), "{said:?}");
        assert!(said.err.contains(advice), "{}", said.err);
    }
}
