//! The first and last tunnel sequence numbers in the records of real captures, compared with the numbers that tshark
//! decodes.

use crate::captures;

use captures::Captured;
use netgrain_flow::{Config, Meter, Packet, Record};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use wire::{FlowKey, TunnelKind};

/// The innermost tunnel sequence number of each frame of a capture, by frame number. Fragments are omitted, because
/// they are in no flow of a tunnel.
fn tshark(file: &Path, mut command: Command) -> BTreeMap<usize, u32> {
    command.args(["-n", "-o", "ip.defragment:FALSE", "-T", "fields", "-E", "occurrence=l", "-r"]).arg(file);
    for field in ["frame.number", "gre.sequence_number", "gtp.seq_number"] {
        command.args(["-e", field]);
    }
    let text = String::from_utf8(command.output().expect("tshark can be started").stdout).expect("the output is text");
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    let line = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        Some((fields[0].parse().ok()?, number(fields.get(2)?).or_else(|| number(fields[1]))?))
    };
    text.lines().filter_map(line).collect()
}

/// The key of a packet's uniflow.
fn flow_of(packet: &Captured) -> Option<(FlowKey, TunnelKind, u32)> {
    let tunnel = packet.decoded.tunnel?;
    Some((packet.decoded.key(&packet.data)?, tunnel.kind, tunnel.id))
}

fn records(packets: &[Captured]) -> Vec<Record> {
    let config = Config { bidirectional: false, active_timeout: None, capacity: 1000, ..Config::default() };
    let (mut meter, mut out) = (Meter::new(config, 0), Vec::new());
    for p in packets {
        let (data, decoded) = (&p.data[..], &p.decoded);
        let packet = Packet { ts: p.ts, wire_len: p.wire_len, data, decoded, position: p.offset, queue: 0 };
        meter.push(&[packet], &mut out);
    }
    meter.finish(&mut out);
    out
}

#[test]
fn records_have_the_first_and_last_sequence_number_that_tshark_decodes() {
    let name = "records_have_the_first_and_last_sequence_number_that_tshark_decodes";
    let Some(traces) = testkit::traces(name) else { return };
    let mut compared = 0;
    for file in captures::files(&traces) {
        let packets = captures::packets(&file);
        if !packets.iter().any(|p| p.decoded.tunnel.is_some_and(|t| t.sequence.is_some())) {
            continue;
        }
        let Some(command) = testkit::tool(name, "tshark") else { return };
        let theirs = tshark(&file, command);
        for record in records(&packets).iter().filter(|r| r.encapsulation.tunnel.is_some()) {
            // The packets of the record's flow, from the first to the last packet of the record.
            let at = record.location.expect("packets of a file have a location");
            let first = packets.iter().find(|p| p.offset == at.first).and_then(flow_of);
            let of_record = |p: &Captured| (at.first..=at.last).contains(&p.offset) && flow_of(p) == first;
            let numbers = packets.iter().enumerate().filter(|(_, p)| of_record(p));
            let numbers: Vec<u32> = numbers.filter_map(|(n, _)| theirs.get(&(n + 1)).copied()).collect();
            let expected = numbers.first().copied().zip(numbers.last().copied());
            assert_eq!(record.directions[0].tunnel_sequence, expected, "{}: {:?}", file.display(), record.key);
            compared += u64::from(expected.is_some());
        }
    }
    eprintln!("{compared} records have the numbers that tshark decodes");
    assert!(compared >= 5, "{compared} records");
}
