//! Compares the flows of the FlowTest captures of CESNET with the flows that FlowTest expects: endpoints, packets and
//! bytes of both directions, VLANs, labels, tunnel, MAC addresses, DSCP, TTL, flags, ICMP types.
//!
//! Each capture is metered as biflows and as uniflows. With biflows, the sums for each conversation and direction must
//! equal the expected sums, and there must be no other flows. With uniflows, each record must have the expected values.

use crate::captures;

use netgrain_flow::{Config, Meter, Packet, Record};
use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use wire::{Fragments, TunnelKind};

/// The expected values of a flow: names and values of the file, as text.
type Expected = BTreeMap<String, String>;

/// The contents of one file of expected flows.
#[derive(Default)]
struct Case {
    pcap: String,
    /// Names of the key fields; empty for the default key.
    key: String,
    flows: Vec<Expected>,
}

impl Case {
    /// Reads the subset of YAML that the files use: names at the margin, and under `flows:` a list of names and values.
    /// Deeper levels belong to application protocols and are ignored.
    fn read(text: &str) -> Self {
        let mut case = Self::default();
        let mut in_flows = false;
        for line in text.lines() {
            let Some((name, value)) = line.split_once(':') else { continue };
            let value = value.trim().to_owned();
            match name.len() - name.trim_start().len() {
                0 if name.starts_with("- ") => (),
                0 => {
                    in_flows = name == "flows";
                    match name {
                        "pcap" => case.pcap = value,
                        "key" => case.key = value,
                        _ => (),
                    }
                }
                2 if in_flows && name.starts_with("  - ") => {
                    case.flows.push([(name[4..].to_owned(), value)].into());
                }
                4 if in_flows => {
                    if let Some(flow) = case.flows.last_mut() {
                        flow.insert(name.trim().to_owned(), value);
                    }
                }
                _ => (),
            }
        }
        case
    }

    fn has_ports(&self) -> bool {
        self.key.is_empty()
    }
}

fn number(text: &str) -> u64 {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
        None => text.parse().unwrap_or_else(|_| panic!("{text:?} is not a number")),
    }
}

/// One direction of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Way {
    src: (IpAddr, u16),
    dst: (IpAddr, u16),
    protocol: u8,
}

impl Way {
    fn reversed(self) -> Self {
        Self { src: self.dst, dst: self.src, ..self }
    }

    fn expected(flow: &Expected, ports: bool) -> Self {
        let address = |name: &str| flow[name].parse().unwrap_or_else(|_| panic!("{}", flow[name]));
        let port = |name: &str| flow.get(name).filter(|_| ports).map_or(0, |text| number(text) as u16);
        let protocol = number(&flow["protocol"]) as u8;
        Self { src: (address("src_ip"), port("src_port")), dst: (address("dst_ip"), port("dst_port")), protocol }
    }

    fn of(record: &Record, ports: bool) -> Self {
        let key = record.key;
        let has_ports = ports && key.protocol.has_ports();
        let port = |port: u16| if has_ports { port } else { 0 };
        Self { src: (key.src, port(key.src_port)), dst: (key.dst, port(key.dst_port)), protocol: key.protocol.0 }
    }
}

/// Packets and bytes of each direction that has packets.
type Sums = BTreeMap<Way, (u64, u64)>;

fn add(sums: &mut Sums, way: Way, packets: u64, bytes: u64) {
    if packets > 0 {
        let sum = sums.entry(way).or_default();
        *sum = (sum.0 + packets, sum.1 + bytes);
    }
}

fn metered(file: &Path, bidirectional: bool) -> Vec<Record> {
    let config = Config { bidirectional, capacity: 10_000, ..Config::default() };
    let (mut meter, mut fragments) = (Meter::new(config, 0), Fragments::new(0));
    let mut records = Vec::new();
    for mut p in captures::packets(file) {
        let ts = p.ts;
        fragments.resolve(&mut p.decoded, &p.data, ts);
        let (data, decoded) = (&p.data[..], &p.decoded);
        let packet = Packet { ts, wire_len: p.wire_len, data, decoded, position: p.offset, queue: 0 };
        meter.tick(ts, &mut records);
        meter.push(&[packet], &mut records);
    }
    meter.finish(&mut records);
    records
}

/// The differences from the expected values of one direction, whose names end with `suffix`. If a flow has several
/// records, one of them must have the expected value.
fn wrong(flow: &Expected, suffix: &str, there: &[&Record], back: &[&Record]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut check = |name: &str, is: &dyn Fn(&Record, u64) -> bool, of: &[&Record]| {
        if let Some(text) = flow.get(&format!("{name}{suffix}"))
            && !of.iter().any(|record| is(record, number(text)))
        {
            wrong.push(format!("{name}{suffix} is not {text}"));
        }
    };
    let within = |range: (u8, u8), value: u64| (u64::from(range.0)..=u64::from(range.1)).contains(&value);
    let tunnel = |record: &Record, kind, id: u64| record.encapsulation.tunnel == Some((kind, id as u32));
    check("ip_version", &|r, v| (if r.key.src.is_ipv4() { 4 } else { 6 }) == v, there);
    check("ttl", &|r, v| within(r.directions[0].ttl, v), there);
    check("tos", &|r, v| within(r.directions[0].dscp, v >> 2), there);
    check("vlan_id", &|r, v| r.encapsulation.vlans[0].map(u64::from) == Some(v), there);
    check("vlan_id_inner", &|r, v| r.encapsulation.vlans[1].map(u64::from) == Some(v), there);
    // The IPFIX label stack section: the label, then three bits of traffic class and the bottom bit.
    check("mpls_label_1", &|r, v| r.encapsulation.mpls.map(u64::from) == Some(v >> 4), there);
    check("vxlan_id", &|r, v| tunnel(r, TunnelKind::Vxlan, v), there);
    check("icmp_type", &|r, v| u64::from(r.key.dst_port >> 8) == v, there);
    check("icmp_code", &|r, v| u64::from(r.key.dst_port & 0xff) == v, there);
    check("icmp_type_code", &|r, v| u64::from(r.key.dst_port) == v, there);
    check(
        "tcp_syn_size",
        &|r, v| r.initial_packets.first().is_some_and(|e| e.flags == 2 && u64::from(e.length) == v),
        there,
    );
    // The captures whose expected flows contain `bytes_outer` have an Ethernet header and no padding.
    check("bytes_outer", &|r, v| r.directions[0].bytes == v + 14 * r.directions[0].packets, there);
    let bits = |r: &Record| (0..8).filter(|bit| r.directions[0].flags[*bit] > 0).map(|bit| 1 << bit).sum::<u64>();
    let seen = there.iter().fold(0, |seen, record| seen | bits(record));
    check("tcp_flags", &|_, v| seen == v, there);
    for (name, records) in [("src_mac", there), ("dst_mac", back)] {
        let Some(text) = flow.get(&format!("{name}{suffix}")) else { continue };
        let mac = text.parse().unwrap();
        if !records.iter().any(|record| record.directions[0].mac == Some(mac)) {
            wrong.push(format!("{name}{suffix} is not {text}"));
        }
    }
    wrong
}

#[test]
fn every_capture_of_flowtest_gives_the_expected_flows() {
    let Some(traces) = testkit::traces("every_capture_of_flowtest_gives_the_expected_flows") else { return };
    let directory = traces.join("flowtest");
    let (mut cases, mut flows) = (0, 0);
    let mut differences = Vec::new();
    let mut files: Vec<_> =
        fs::read_dir(directory.join("testing/validation")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files {
        let case = Case::read(&fs::read_to_string(&file).unwrap());
        let name = file.file_stem().unwrap().to_string_lossy();
        let capture = directory.join("pcap").join(&case.pcap);
        let mut expected = Sums::new();
        for flow in &case.flows {
            let way = Way::expected(flow, case.has_ports());
            let value = |name: &str| flow.get(name).map_or(0, |text| number(text));
            add(&mut expected, way, value("packets"), value("bytes"));
            add(&mut expected, way.reversed(), value("packets@rev"), value("bytes@rev"));
        }
        let mut sums = Sums::new();
        for record in metered(&capture, true) {
            let way = Way::of(&record, case.has_ports());
            for (way, side) in [way, way.reversed()].into_iter().zip(&record.directions) {
                add(&mut sums, way, side.packets, side.ip_bytes);
            }
        }
        for (way, sum) in &expected {
            if sums.get(way) != Some(sum) {
                differences
                    .push(format!("{name}: {way:?} must have {sum:?} packets and bytes, but has {:?}", sums.get(way)));
            }
        }
        for (way, sum) in sums.iter().filter(|(way, _)| !expected.contains_key(way)) {
            differences.push(format!("{name}: unexpected flow {way:?} with {sum:?} packets and bytes"));
        }
        let one_way = metered(&capture, false);
        for (i, flow) in case.flows.iter().enumerate() {
            let way = Way::expected(flow, case.has_ports());
            // All ICMP messages between two endpoints are one flow of the meter, whatever their types; the record has
            // the type of the first message.
            if case.flows[..i].iter().any(|other| Way::expected(other, case.has_ports()) == way) {
                continue;
            }
            let of = |way: Way| -> Vec<&Record> {
                one_way.iter().filter(|record| Way::of(record, case.has_ports()) == way).collect()
            };
            let (there, back) = (of(way), of(way.reversed()));
            let wrong = [wrong(flow, "", &there, &back), wrong(flow, "@rev", &back, &there)].concat();
            differences.extend(wrong.into_iter().map(|what| format!("{name}: {way:?}: {what}")));
        }
        (cases, flows) = (cases + 1, flows + case.flows.len());
    }
    eprintln!("{flows} flows of {cases} captures");
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
    assert!(cases > 50 && flows > 60, "only {flows} flows of {cases} captures");
}
