//! Queries on a store with real captures, compared with tcpdump packet by packet.

use crate::common;

use base::Prng;
use common::*;
use filter::Filter;
use netgrain_query::{Query, QuerySource};
use std::path::{Path, PathBuf};
use testkit::TempDir;

/// Collects the paths of all pcap files below a directory.
fn captures(directory: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    let mut paths: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            captures(&path, out);
        } else if path.extension().is_some_and(|e| e == "pcap") {
            out.push(path);
        }
    }
}

/// The packets of a capture; `None` unless all of them can be recorded, and netgrain's filter and tcpdump's filter have
/// the same meaning for them (docs/reference/filters.md): Ethernet packets without VLAN tags or MPLS labels, with
/// timestamps in the range of [`Timestamp`].
fn usable(path: &Path) -> Option<Vec<Record>> {
    let mut reader = pcap::Reader::open(std::fs::File::open(path).ok()?).ok()?;
    let mut out = Vec::new();
    while let Ok(Some(p)) = reader.next() {
        let ethertype = p.data.get(12..14).unwrap_or(&[0, 0]);
        let plain = [[8, 0], [8, 6], [0x86, 0xdd]].iter().any(|t| t == ethertype);
        if p.link_type != 1 || !plain || p.data.len() > 60_000 || out.len() > 20_000 {
            return None;
        }
        out.push((p.ts?, p.wire_len, p.data.to_vec()));
    }
    (out.len() > 10).then_some(out)
}

/// A random filter expression with values of the capture. It does not test protocols behind IPv6 extension headers,
/// because tcpdump does not parse these headers.
fn filter(packets: &[Record], prng: &mut Prng) -> String {
    let word = |prng: &mut Prng| {
        let (_, wire_len, data) = &packets[prng.below(packets.len() as u64) as usize];
        let is_v4 = data[12..14] == [8, 0] && data.len() >= 38;
        let side = ["", "src ", "dst "][prng.below(3) as usize];
        match prng.below(6) {
            0 | 1 if is_v4 => {
                let at = 26 + 4 * prng.below(2) as usize;
                format!("{side}host {}.{}.{}.{}", data[at], data[at + 1], data[at + 2], data[at + 3])
            }
            2 if is_v4 => format!("{side}net {}.{}.0.0/16", data[26], data[27]),
            3 if is_v4 && [6, 17].contains(&data[23]) && data[14] == 0x45 => {
                format!("ip and {side}port {}", u16::from_be_bytes([data[34], data[35]]))
            }
            4 => format!("less {wire_len}"),
            _ => ["ip", "arp", "ip and tcp", "ip and udp", "icmp"][prng.below(5) as usize].to_owned(),
        }
    };
    let mut text = format!("({})", word(prng));
    for _ in 0..prng.below(3) {
        let joint = ["and", "or", "and not"][prng.below(3) as usize];
        text = format!("{text} {joint} ({})", word(prng));
    }
    text
}

#[test]
fn results_on_real_captures_match_tcpdump_for_any_filter() {
    let test = "results_on_real_captures_match_tcpdump_for_any_filter";
    let Some(traces) = testkit::traces(test) else { return };
    if testkit::tool(test, "tcpdump").is_none() {
        return;
    }
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let mut paths = Vec::new();
    captures(&traces, &mut paths);
    let (mut tried, mut matched) = (0, 0);
    for path in paths {
        if tried >= 25 {
            break;
        }
        let Some(packets) = usable(&path) else { continue };
        tried += 1;
        let dir = TempDir::new("query-oracle");
        let mut stream = Stream::new("eth1", 0, 1);
        for (i, (ts, wire_len, data)) in packets.iter().enumerate() {
            if i == 0 || prng.below(3000) == 0 {
                stream.rotate(*ts);
            }
            stream.packet(*ts, *wire_len, data);
        }
        stream.record(&dir.join("store"));
        for _ in 0..6 {
            let text = filter(&packets, &mut prng);
            let (input, output) = (dir.join("in.pcap"), dir.join("out.pcap"));
            let mut file = pcap::FILE_HEADER_NS.to_vec();
            for (ts, wire_len, data) in &packets {
                file.extend(pcap::record_header_ns(*ts, data.len() as u32, *wire_len));
                file.extend(data);
            }
            std::fs::write(&input, file).expect("a capture");
            let mut tcpdump = testkit::tool(test, "tcpdump").expect("tcpdump");
            tcpdump.args(["--nano", "-r"]).arg(&input).arg("-w").arg(&output).arg(&text);
            let run = tcpdump.output().expect("tcpdump");
            let said = String::from_utf8_lossy(&run.stderr);
            // If no packet can match, tcpdump prints a message and writes no file.
            let nothing = said.contains("expression rejects all packets");
            assert!(run.status.success() || nothing, "{text}: {said}");
            let mut expected = if nothing { Vec::new() } else { read(&output) };
            let query = Query { filter: Filter::parse(&text).expect("a filter"), ..Query::default() };
            let mut results = netgrain_query::run(&QuerySource::Store(dir.join("store")), query).expect("a store");
            let mut found: Vec<_> = collect(&mut results).into_iter().map(|p| (p.ts, p.wire_len, p.data)).collect();
            // The packets of tcpdump are sorted, because it returns them in the order of the capture, whose timestamps
            // may be out of order.
            expected.sort();
            found.sort();
            let what = format!("seed {seed}, {}: {text}", path.display());
            assert_eq!(found.len(), expected.len(), "{what}");
            assert!(found == expected, "{what}");
            matched += found.len();
        }
    }
    assert!(tried > 0 && matched > 0, "no capture of {} could be used", traces.display());
}
