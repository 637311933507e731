//! Other people's meters see the same conversations in the same packets: softflowd, argus and tshark, on the fields
//! that they have in common with our records. Programs cut conversations into records as each sees fit, so what is
//! compared is what all records of a conversation add up to: packets and bytes of each direction, first and last
//! moment.

use crate::common;

use common::{arg, objects, run};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::TempDir;

/// Address and port.
type End = (IpAddr, u16);

/// Protocol, the lesser end, the greater one.
type Pair = (u8, End, End);

/// What a program says of a pair: packets and bytes from the lesser end, from the greater one, first and last moment.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Talk {
    packets: [u64; 2],
    bytes: [u64; 2],
    /// In nanoseconds, as exactly as the program tells.
    first: u64,
    last: u64,
}

type Talks = BTreeMap<Pair, Talk>;

/// Adds what one record says; packets and bytes from `from` to `to`, and back.
fn add(all: &mut Talks, protocol: u8, from: End, to: End, counts: [(u64, u64); 2], first: u64, last: u64) {
    let swapped = from > to;
    let (a, b) = if swapped { (to, from) } else { (from, to) };
    let [there, back] = if swapped { [counts[1], counts[0]] } else { counts };
    let none = Talk { packets: [0; 2], bytes: [0; 2], first: u64::MAX, last: 0 };
    let talk = all.entry((protocol, a, b)).or_insert(none);
    for (side, (packets, bytes)) in [there, back].into_iter().enumerate() {
        talk.packets[side] += packets;
        talk.bytes[side] += bytes;
    }
    (talk.first, talk.last) = (talk.first.min(first), talk.last.max(last));
}

/// Nanoseconds of `2021-07-25T14:57:00.696000123Z` or of `1627225020.686470`; digits that are not there are zeros.
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

/// Ours, TCP and UDP: bytes of frames, or of IP packets.
fn ours(dir: &TempDir, capture: &Path, bytes: &str) -> Talks {
    let store = dir.join("store");
    if !store.exists() {
        let sets = ["capture.ring=8MiB", "flow.active_timeout=none"].map(|set| ["--set", set]).concat();
        let said = run(&[&["run", "-r", arg(capture), "--store", arg(&store), "--quiet"], &sets[..]].concat());
        assert_eq!(said.status, Some(0), "{said:?}");
    }
    let said = run(&["flows", "--store", arg(&store), "--json", "tcp or udp"]);
    assert_eq!(said.status, Some(0), "{said:?}");
    let mut all = Talks::new();
    for record in objects(&said.out) {
        let text = |key: &str| record[key].as_str().unwrap_or_else(|| panic!("no {key}: {record}"));
        let number = |key: &str| record[key].as_u64().unwrap_or_else(|| panic!("no {key}: {record}"));
        let end = |host: &str, port: &str| (text(host).parse().expect("an address"), number(port) as u16);
        let counts = ["fwd", "rev"].map(|way| (number(&format!("{way}_packets")), number(&format!("{way}_{bytes}"))));
        let protocol = if text("protocol") == "tcp" { 6 } else { 17 };
        let (from, to) = (end("src", "src_port"), end("dst", "dst_port"));
        add(&mut all, protocol, from, to, counts, nanos(text("first")), nanos(text("last")));
    }
    all
}

/// Moments may differ by `unit`, in nanoseconds: programs cut and round what they print.
#[track_caller]
fn same(program: &str, theirs: &Talks, ours: &Talks, unit: u64) {
    assert!(!ours.is_empty());
    for (pair, talk) in ours {
        let other = theirs.get(pair).unwrap_or_else(|| panic!("{program} has no such conversation: {pair:?}"));
        let counts = |talk: &Talk| (talk.packets, talk.bytes);
        assert_eq!(counts(other), counts(talk), "{program} and we differ: {pair:?}");
        let near = other.first.abs_diff(talk.first) <= unit && other.last.abs_diff(talk.last) <= unit;
        assert!(near, "{program} and we differ: {pair:?}: {other:?} and {talk:?}");
    }
    let more: Vec<&Pair> = theirs.keys().filter(|pair| !ours.contains_key(pair)).collect();
    assert!(more.is_empty(), "{program} has conversations that we have not: {more:?}");
}

fn output(command: &mut Command) -> (String, String) {
    let out = command.env("TZ", "UTC").output().expect("it runs");
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    [out.stdout, out.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).into()
}

/// `EXPIRED: seq:43 [10.0.0.1]:37552 <> [10.0.0.2]:7000 proto:6 octets>:5676 packets>:108 … start:… finish:…`
fn softflowd(mut program: Command, dir: &TempDir, capture: &Path) -> Talks {
    let pid = dir.join("softflowd.pid");
    let (_, said) = output(program.args(["-D", "-m", "200000", "-c", "none", "-p", arg(&pid), "-r", arg(capture)]));
    let mut all = Talks::new();
    for line in said.lines().filter(|line| line.starts_with("EXPIRED")) {
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
        // It rounds to milliseconds, and writes 1000 of them where that makes a second.
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

/// Argus makes records that `ra` prints, one line each; long conversations have several.
fn argus(mut program: Command, mut ra: Command, dir: &TempDir, capture: &Path) -> Talks {
    let records = dir.join("records.argus");
    output(program.args(["-r", arg(capture), "-w", arg(&records)]));
    let fields = ["stime", "ltime", "proto", "saddr", "sport", "daddr", "dport", "spkts", "sbytes", "dpkts", "dbytes"];
    let (said, _) = output(ra.args(["-r", arg(&records), "-n", "-u", "-p", "6", "-c", ",", "-s"]).args(fields));
    let mut all = Talks::new();
    for line in said.lines() {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let protocol = match cells[2] {
            "tcp" => 6,
            "udp" => 17,
            // Its heading, what it says of itself, and protocols of which nothing is compared.
            _ => continue,
        };
        let number = |at: usize| cells[at].parse::<u64>().unwrap_or_else(|e| panic!("{e}: {line}"));
        let end = |at: usize| (cells[at].parse().expect("an address"), number(at + 1) as u16);
        let counts = [(number(7), number(8)), (number(9), number(10))];
        add(&mut all, protocol, end(3), end(5), counts, nanos(cells[0]), nanos(cells[1]));
    }
    all
}

/// A line of `tshark -z conv`: `A:1 <-> B:2  58 3888 bytes  111 7403 bytes  169 11 kB  START DURATION`, the first two
/// from the right end to the left one and back. It rounds bytes from ten thousand on, and durations, so this compares
/// by itself.
fn tshark(mut program: Command, capture: &Path, ours: &Talks) {
    program.args(["-r", arg(capture), "-q", "-t", "e", "-z", "conv,tcp", "-z", "conv,udp"]);
    let (said, _) = output(&mut program);
    let (mut protocol, mut seen) = (0, 0);
    for line in said.lines() {
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
        let talk = ours.get(&pair).unwrap_or_else(|| panic!("tshark has a conversation that we have not: {line}"));
        // Frames and bytes towards the left end come first.
        for (at, from_right) in [(3, true), (6, false)] {
            let side = usize::from(from_right != swapped);
            let unit = if words[at + 2] == "kB" { 1000 } else { 1 };
            let reported = [words[at], words[at + 1]].map(|word| word.parse::<u64>().expect("a number"));
            assert_eq!(reported, [talk.packets[side], talk.bytes[side] / unit], "{line}: {talk:?}");
        }
        let (start, duration) = (nanos(words[12]), words[13].parse::<f64>().expect("a number"));
        assert!(start.abs_diff(talk.first) < 1000, "{line}: {talk:?}");
        let ours = (talk.last - talk.first) as f64 / 1e9;
        assert!((duration - ours).abs() < 1e-4, "{line}: {ours}");
        seen += 1;
    }
    assert_eq!(seen, ours.len(), "conversations");
}

/// All of them over one capture.
fn agree(test: &str, dir: &TempDir, capture: &Path) {
    if let Some(program) = testkit::tool(test, "softflowd") {
        same("softflowd", &softflowd(program, dir, capture), &ours(dir, capture, "ip_bytes"), 1_000_000);
    }
    if let (Some(program), Some(ra)) = (testkit::tool(test, "argus"), testkit::tool(test, "ra")) {
        same("argus", &argus(program, ra, dir, capture), &ours(dir, capture, "bytes"), 1000);
    }
    if let Some(program) = testkit::tool(test, "tshark") {
        tshark(program, capture, &ours(dir, capture, "bytes"));
    }
}

#[test]
fn other_meters_see_the_same_in_a_thousand_real_connections() {
    let test = "other_meters_see_the_same_in_a_thousand_real_connections";
    let Some(traces) = testkit::traces(test) else { return };
    let Some(mut zcat) = testkit::tool(test, "gzip") else { return };
    let (packed, dir) = (traces.join("zeek/echo-connections.pcap.gz"), TempDir::new(test));
    let out = zcat.args(["-dc", arg(&packed)]).output().expect("gzip runs");
    assert!(out.status.success() && !out.stdout.is_empty(), "{}", packed.display());
    let capture = dir.join("echo.pcap");
    std::fs::write(&capture, out.stdout).expect("a file");
    agree(test, &dir, &capture);
}

#[test]
fn other_meters_see_the_same_in_a_generated_mix() {
    let test = "other_meters_see_the_same_in_a_generated_mix";
    let dir = TempDir::new(test);
    let capture: PathBuf = dir.join("mix.pcap");
    let said = run(&["gen", "-w", arg(&capture), "backbone,flows=2000,rate=20kpps", "--packets", "40k"]);
    assert_eq!(said.status, Some(0), "{said:?}");
    agree(test, &dir, &capture);
}
