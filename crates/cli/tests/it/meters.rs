//! The meter agrees with softflowd, argus and tshark on the same packets, in the fields that they have in common. Each
//! program splits flows into records by its own rules, so the test compares the sums over all records of a pair of
//! endpoints: packets and bytes of each direction, first and last timestamp.

use crate::common;

use common::{arg, objects, run};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::TempDir;

/// Address and port.
type Endpoint = (IpAddr, u16);

/// The protocol and the two endpoints of a conversation, the lesser endpoint first.
type Pair = (u8, Endpoint, Endpoint);

/// The sums over a program's records for one pair of endpoints. Index 0 is the direction from the lesser endpoint to
/// the greater, index 1 the reverse direction.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sums {
    packets: [u64; 2],
    bytes: [u64; 2],
    /// Timestamp of the first packet in nanoseconds, with the resolution that the program prints.
    first: u64,
    last: u64,
}

type SumsByPair = BTreeMap<Pair, Sums>;

/// Adds one record. `counts` are packets and bytes from `from` to `to`, and in the reverse direction.
fn add(
    all: &mut SumsByPair,
    protocol: u8,
    from: Endpoint,
    to: Endpoint,
    counts: [(u64, u64); 2],
    first: u64,
    last: u64,
) {
    let swapped = from > to;
    let (a, b) = if swapped { (to, from) } else { (from, to) };
    let [forward, reverse] = if swapped { [counts[1], counts[0]] } else { counts };
    let none = Sums { packets: [0; 2], bytes: [0; 2], first: u64::MAX, last: 0 };
    let sums = all.entry((protocol, a, b)).or_insert(none);
    for (direction, (packets, bytes)) in [forward, reverse].into_iter().enumerate() {
        sums.packets[direction] += packets;
        sums.bytes[direction] += bytes;
    }
    (sums.first, sums.last) = (sums.first.min(first), sums.last.max(last));
}

/// Nanoseconds of `2021-07-25T14:57:00.696000123Z` or of `1627225020.686470`; missing digits are zeros.
fn nanos(text: &str) -> u64 {
    if text.contains('T') {
        let text = format!("{}Z", text.trim_end_matches('Z'));
        return match text.parse::<base::TimeSpec>() {
            Ok(base::TimeSpec::At(at)) => at.nanos(),
            other => panic!("{text}: {other:?}"),
        };
    }
    let (seconds, rest) = text.split_once('.').unwrap_or((text, ""));
    format!("{seconds}{rest:0<9.9}").parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// The sums of netgrain's TCP and UDP records. `bytes` selects the bytes of frames (`bytes`) or of IP packets
/// (`ip_bytes`).
fn netgrain(dir: &TempDir, capture: &Path, bytes: &str) -> SumsByPair {
    let store = dir.join("store");
    if !store.exists() {
        let sets = ["capture.ring=8MiB", "flow.active_timeout=none"].map(|set| ["--set", set]).concat();
        let output = run(&[&["run", "-r", arg(capture), "--store", arg(&store), "--quiet"], &sets[..]].concat());
        assert_eq!(output.status, Some(0), "{output:?}");
    }
    let output = run(&["flows", "--store", arg(&store), "--json", "tcp or udp"]);
    assert_eq!(output.status, Some(0), "{output:?}");
    let mut all = SumsByPair::new();
    for record in objects(&output.out) {
        let text = |key: &str| record[key].as_str().unwrap_or_else(|| panic!("no {key}: {record}"));
        let number = |key: &str| record[key].as_u64().unwrap_or_else(|| panic!("no {key}: {record}"));
        let end = |host: &str, port: &str| (text(host).parse().expect("an address"), number(port) as u16);
        let counts = ["fwd", "rev"].map(|of| (number(&format!("{of}_packets")), number(&format!("{of}_{bytes}"))));
        let protocol = if text("protocol") == "tcp" { 6 } else { 17 };
        let (from, to) = (end("src", "src_port"), end("dst", "dst_port"));
        add(&mut all, protocol, from, to, counts, nanos(text("first")), nanos(text("last")));
    }
    all
}

/// Asserts that the sums are equal. Timestamps may differ by `unit` nanoseconds, because programs truncate and round
/// the times that they print.
#[track_caller]
fn assert_equal(program: &str, theirs: &SumsByPair, ours: &SumsByPair, unit: u64) {
    assert!(!ours.is_empty());
    for (pair, sums) in ours {
        let other = theirs.get(pair).unwrap_or_else(|| panic!("{program} has no records of {pair:?}"));
        let counts = |sums: &Sums| (sums.packets, sums.bytes);
        assert_eq!(counts(other), counts(sums), "{program} and netgrain differ: {pair:?}");
        let near = other.first.abs_diff(sums.first) <= unit && other.last.abs_diff(sums.last) <= unit;
        assert!(near, "{program} and netgrain differ: {pair:?}: {other:?} and {sums:?}");
    }
    let more: Vec<&Pair> = theirs.keys().filter(|pair| !ours.contains_key(pair)).collect();
    assert!(more.is_empty(), "{program} has records that netgrain does not have: {more:?}");
}

fn run_program(command: &mut Command) -> (String, String) {
    let out = command.env("TZ", "UTC").output().expect("the program runs");
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    [out.stdout, out.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).into()
}

/// `EXPIRED: seq:43 [10.0.0.1]:37552 <> [10.0.0.2]:7000 proto:6 octets>:5676 packets>:108 … start:… finish:…`
fn softflowd(mut program: Command, dir: &TempDir, capture: &Path) -> SumsByPair {
    let pid = dir.join("softflowd.pid");
    let (_, output) =
        run_program(program.args(["-D", "-m", "200000", "-c", "none", "-p", arg(&pid), "-r", arg(capture)]));
    let mut all = SumsByPair::new();
    for line in output.lines().filter(|line| line.starts_with("EXPIRED")) {
        let words: Vec<&str> = line.split(' ').collect();
        let end = |word: &str| {
            let (host, port) = word.rsplit_once(':').expect("a port");
            (host.trim_matches(['[', ']']).parse().expect("an address"), port.parse().expect("a port"))
        };
        let field = |name: &str| {
            let found = words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix(':'));
            found.unwrap_or_else(|| panic!("no {name}: {line}"))
        };
        let number = |name: &str| field(name).parse::<u64>().expect("a number");
        let (protocol, counts) = (
            number("proto") as u8,
            [("packets>", "octets>"), ("packets<", "octets<")].map(|(p, o)| (number(p), number(o))),
        );
        // softflowd rounds times to milliseconds, and prints a fraction of 1000 ms instead of the next second.
        let time = |text: &str| match text.strip_suffix(".1000") {
            Some(second) => nanos(second) + 1_000_000_000,
            None => nanos(text),
        };
        if [6, 17].contains(&protocol) {
            let (first, last) = (time(field("start")), time(field("finish")));
            add(&mut all, protocol, end(words[2]), end(words[4]), counts, first, last);
        }
    }
    all
}

/// argus writes flow records to a file, and `ra` prints them, one per line; a long flow has several records.
fn argus(mut program: Command, mut ra: Command, dir: &TempDir, capture: &Path) -> SumsByPair {
    let records = dir.join("records.argus");
    run_program(program.args(["-r", arg(capture), "-w", arg(&records)]));
    let fields = ["stime", "ltime", "proto", "saddr", "sport", "daddr", "dport", "spkts", "sbytes", "dpkts", "dbytes"];
    let (output, _) = run_program(ra.args(["-r", arg(&records), "-n", "-u", "-p", "6", "-c", ",", "-s"]).args(fields));
    let mut all = SumsByPair::new();
    for line in output.lines() {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let protocol = match cells[2] {
            "tcp" => 6,
            "udp" => 17,
            // Skips the header line, management records, and records of other protocols, which are not compared.
            _ => continue,
        };
        let number = |at: usize| cells[at].parse::<u64>().unwrap_or_else(|e| panic!("{e}: {line}"));
        let end = |at: usize| (cells[at].parse().expect("an address"), number(at + 1) as u16);
        let counts = [(number(7), number(8)), (number(9), number(10))];
        add(&mut all, protocol, end(3), end(5), counts, nanos(cells[0]), nanos(cells[1]));
    }
    all
}

/// Compares with `tshark -z conv`, whose lines are `A:1 <-> B:2  58 3888 bytes  111 7403 bytes  169 11 kB  START
/// DURATION`. The first two counts are from the right to the left endpoint, the next two from left to right. tshark
/// rounds bytes from 10 000 on, and durations, so this function does its own comparison.
fn tshark(mut program: Command, capture: &Path, ours: &SumsByPair) {
    program.args(["-r", arg(capture), "-q", "-t", "e", "-z", "conv,tcp", "-z", "conv,udp"]);
    let (output, _) = run_program(&mut program);
    let (mut protocol, mut seen) = (0, 0);
    for line in output.lines() {
        match line.split(' ').next() {
            Some("TCP") => protocol = 6,
            Some("UDP") => protocol = 17,
            _ => {}
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.get(1) != Some(&"<->") {
            continue;
        }
        let end = |word: &str| {
            let (host, port) = word.rsplit_once(':').expect("a port");
            (host.parse::<IpAddr>().expect("an address"), port.parse::<u16>().expect("a port"))
        };
        let (left, right) = (end(words[0]), end(words[2]));
        let swapped = left > right;
        let pair = if swapped { (protocol, right, left) } else { (protocol, left, right) };
        let sums =
            ours.get(&pair).unwrap_or_else(|| panic!("tshark has a conversation that netgrain does not have: {line}"));
        // In a line of tshark, the frames and bytes towards the left endpoint come first.
        for (at, from_right) in [(3, true), (6, false)] {
            let direction = usize::from(from_right != swapped);
            let unit = if words[at + 2] == "kB" { 1000 } else { 1 };
            let reported = [words[at], words[at + 1]].map(|word| word.parse::<u64>().expect("a number"));
            assert_eq!(reported, [sums.packets[direction], sums.bytes[direction] / unit], "{line}: {sums:?}");
        }
        let (start, duration) = (nanos(words[12]), words[13].parse::<f64>().expect("a number"));
        assert!(start.abs_diff(sums.first) < 1000, "{line}: {sums:?}");
        let expected = (sums.last - sums.first) as f64 / 1e9;
        assert!((duration - expected).abs() < 1e-4, "{line}: {expected}");
        seen += 1;
    }
    assert_eq!(seen, ours.len(), "conversations");
}

/// Compares netgrain with all installed programs over one capture.
fn assert_meters_agree(test: &str, dir: &TempDir, capture: &Path) {
    if let Some(program) = testkit::tool(test, "softflowd") {
        assert_equal("softflowd", &softflowd(program, dir, capture), &netgrain(dir, capture, "ip_bytes"), 1_000_000);
    }
    if let (Some(program), Some(ra)) = (testkit::tool(test, "argus"), testkit::tool(test, "ra")) {
        assert_equal("argus", &argus(program, ra, dir, capture), &netgrain(dir, capture, "bytes"), 1000);
    }
    if let Some(program) = testkit::tool(test, "tshark") {
        tshark(program, capture, &netgrain(dir, capture, "bytes"));
    }
}

#[test]
fn other_meters_agree_on_1000_real_connections() {
    let test = "other_meters_agree_on_1000_real_connections";
    let Some(traces) = testkit::traces(test) else { return };
    let Some(mut zcat) = testkit::tool(test, "gzip") else { return };
    let (compressed, dir) = (traces.join("zeek/echo-connections.pcap.gz"), TempDir::new(test));
    let out = zcat.args(["-dc", arg(&compressed)]).output().expect("gzip runs");
    assert!(out.status.success() && !out.stdout.is_empty(), "{}", compressed.display());
    let capture = dir.join("echo.pcap");
    std::fs::write(&capture, out.stdout).expect("a file");
    assert_meters_agree(test, &dir, &capture);
}

#[test]
fn other_meters_agree_on_generated_traffic() {
    let test = "other_meters_agree_on_generated_traffic";
    let dir = TempDir::new(test);
    let capture: PathBuf = dir.join("mix.pcap");
    let output = run(&["gen", "-w", arg(&capture), "backbone,flows=2000,rate=20kpps", "--packets", "40k"]);
    assert_eq!(output.status, Some(0), "{output:?}");
    assert_meters_agree(test, &dir, &capture);
}
