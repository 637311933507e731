//! Compares the readers and writers of this crate with those of Wireshark, with all real captures that are present.

use base::{Prng, Timestamp};
use netgrain_pcap::{Direction, ETHERNET, Reader, classic, ng};
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The uncompressed captures below a directory, in order of their names.
fn captures(directory: &Path, into: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(directory).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            captures(&path, into);
        } else if path.extension().is_some_and(|e| e == "pcap" || e == "pcapng") {
            into.push(path);
        }
    }
}

fn all_captures(test: &str) -> Option<Vec<PathBuf>> {
    let mut files = Vec::new();
    captures(&testkit::traces(test)?, &mut files);
    assert!(!files.is_empty());
    Some(files)
}

fn output(mut command: Command) -> String {
    let out = command.output().unwrap();
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// The number of packets, their bytes on the wire, and the first and last timestamp.
#[derive(Debug, PartialEq)]
struct Summary {
    packets: u64,
    bytes: u64,
    span: Option<(Timestamp, Timestamp)>,
}

fn summary(path: &Path) -> Summary {
    let mut reader = Reader::open(File::open(path).unwrap()).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut sum = Summary { packets: 0, bytes: 0, span: None };
    while let Some(p) = reader.next().unwrap_or_else(|e| panic!("{}: {e}", path.display())) {
        let ts = p.ts.unwrap();
        let (first, last) = sum.span.unwrap_or((ts, ts));
        sum = Summary {
            packets: sum.packets + 1,
            bytes: sum.bytes + u64::from(p.wire_len),
            span: Some((first.min(ts), last.max(ts))),
        };
    }
    sum
}

#[test]
fn packets_bytes_and_times_of_every_capture_agree_with_capinfos() {
    let test = "packets_bytes_and_times_of_every_capture_agree_with_capinfos";
    let (Some(files), Some(mut capinfos)) = (all_captures(test), testkit::tool(test, "capinfos")) else { return };
    capinfos.args(["-T", "-m", "-Q", "-r", "-c", "-d", "-a", "-e", "-S"]).args(&files);
    let table = output(capinfos);
    let mut compared = 0;
    for (line, path) in table.lines().zip(&files) {
        let fields: Vec<&str> = line.split(',').map(|f| f.trim_matches('"')).collect();
        let [name, packets, bytes, first, last] = fields[..] else { panic!("{line}") };
        assert_eq!(Path::new(name), path);
        let moment = |text: &str| Timestamp::parse(text, Timestamp::ZERO).ok();
        let span = moment(first).zip(moment(last));
        let reported = Summary { packets: packets.parse().unwrap(), bytes: bytes.parse().unwrap(), span };
        assert_eq!(summary(path), reported, "{name}");
        compared += 1;
    }
    assert_eq!(compared, files.len());
}

/// One line for each packet, as tshark would print it.
fn lines(path: &Path) -> Vec<String> {
    let mut reader = Reader::open(File::open(path).unwrap()).unwrap();
    let mut out = Vec::new();
    while let Some(p) = reader.next().unwrap() {
        let ts = p.ts.unwrap();
        let direction = match p.direction {
            Direction::Unknown => "",
            Direction::Inbound => "0x00000001",
            Direction::Outbound => "0x00000002",
        };
        let drops = if p.drops > 0 { p.drops.to_string() } else { String::new() };
        let time = format!("{}.{:09}", ts.secs(), ts.subsec_nanos());
        out.push(format!("{time}|{}|{}|{}|{direction}|{drops}", p.wire_len, p.data.len(), p.interface));
    }
    out
}

fn tshark_lines(mut tshark: Command, path: &Path) -> Vec<String> {
    tshark.args(["-n", "-T", "fields", "-E", "separator=|", "-r"]).arg(path);
    for field in [
        "frame.time_epoch",
        "frame.len",
        "frame.cap_len",
        "frame.interface_id",
        "frame.packet_flags_direction",
        "frame.drop_count",
    ] {
        tshark.args(["-e", field]);
    }
    output(tshark).lines().map(str::to_owned).collect()
}

#[test]
fn packets_of_captures_agree_with_tshark() {
    let test = "packets_of_captures_agree_with_tshark";
    let Some(files) = all_captures(test) else { return };
    let pcapng = files.iter().filter(|f| f.extension().is_some_and(|e| e == "pcapng"));
    let others = files.iter().filter(|f| f.ends_with("emix.pcap") || f.to_string_lossy().contains("trunc"));
    let chosen: Vec<&PathBuf> = pcapng.chain(others).take(12).collect();
    for path in chosen {
        let Some(tshark) = testkit::tool(test, "tshark") else { return };
        let reported: Vec<String> = tshark_lines(tshark, path)
            .into_iter()
            // Classic files have no interfaces. tshark prints an empty interface number; the reader of this crate
            // returns 0.
            .map(|l| if l.split('|').nth(3) == Some("") { l.replacen("||", "|0|", 1) } else { l })
            .collect();
        assert_eq!(lines(path), reported, "{}", path.display());
    }
}

#[test]
fn tshark_reads_files_of_our_writer() {
    let test = "tshark_reads_files_of_our_writer";
    let directory = testkit::TempDir::new(test);
    let (nanos, micros, pcapng) = (directory.join("ns.pcap"), directory.join("us.pcap"), directory.join("all.pcapng"));
    let sink = |path: &Path| BufWriter::new(File::create(path).unwrap());
    let mut ns = classic::Writer::new(sink(&nanos), classic::Resolution::Nanos, ETHERNET).unwrap();
    let mut us = classic::Writer::new(sink(&micros), classic::Resolution::Micros, ETHERNET).unwrap();
    let section = ng::SectionOptions {
        hardware: "16 cores of something",
        os: "Linux",
        application: "netgrain 0.1",
        comment: "host 10.1.2.3 and port 53",
    };
    let mut all = ng::Writer::with(sink(&pcapng), &section).unwrap();
    let described = ng::InterfaceOptions {
        name: "eth0",
        description: "queue 3, stamps by the card",
        filter: "not port 22",
        hardware: "a card with eight queues",
        os: "Linux 6.18",
        comment: "the uplink",
        link_type: ETHERNET,
        snaplen: 2048,
    };
    let interfaces = [all.describe(&described).unwrap(), all.interface("eth1", ETHERNET).unwrap()];
    let mut prng = Prng::new(testkit::seed(test));
    for i in 0..300u64 {
        let ts = Timestamp::from_nanos(1_795_257_720_000_000_000 + i * 1_234_567_891);
        let data = vec![0; 14 + prng.below(1500) as usize];
        let wire_len = data.len() as u32 + prng.below(2) as u32 * 100;
        ns.write(ts, wire_len, &data).unwrap();
        us.write(ts, wire_len, &data).unwrap();
        let direction = [Direction::Unknown, Direction::Inbound, Direction::Outbound][prng.below(3) as usize];
        let drops = (prng.below(3) == 0).then(|| 1 + prng.below(1 << 50));
        let options = ng::PacketOptions { direction, drops, queue: Some(3) };
        all.packet(interfaces[i as usize % 2], ts, wire_len, &data, options).unwrap();
    }
    let statistics = ng::Statistics {
        start: Some(Timestamp::from_secs_nanos(1_795_257_720, 5)),
        end: Some(Timestamp::from_secs_nanos(1_795_258_000, 0)),
        received: Some(310),
        dropped: Some(987_654_321),
        accepted: Some(305),
        os_dropped: Some(123_456_789),
        delivered: Some(135_791_113),
        comment: "lost: 123456789 because the ring was full",
    };
    all.statistics(0, Timestamp::from_secs_nanos(1_795_258_000, 0), &statistics).unwrap();
    drop((ns.finish().unwrap(), us.finish().unwrap(), all.finish().unwrap()));
    for path in [&nanos, &micros, &pcapng] {
        let Some(tshark) = testkit::tool(test, "tshark") else { return };
        let reported: Vec<String> = tshark_lines(tshark, path)
            .into_iter()
            .map(|l| if l.split('|').nth(3) == Some("") { l.replacen("||", "|0|", 1) } else { l })
            .collect();
        assert_eq!(reported.len(), 300);
        assert_eq!(lines(path), reported, "{}", path.display());
    }
    // The tree of pcapng blocks that tshark prints must contain the options and the interface statistics.
    let Some(mut tshark) = testkit::tool(test, "tshark") else { return };
    tshark.args(["-X", "read_format:MIME Files Format", "-O", "file-pcapng", "-V", "-r"]).arg(&pcapng);
    let tree = output(tshark);
    let texts = [section.hardware, section.comment, described.description, described.hardware, described.comment];
    let numbers =
        ["310", "987654321", "305", "123456789", "135791113", "2048", "eth1", "netgrain 0.1", statistics.comment];
    assert!(tree.contains(described.filter), "{tree}");
    for value in numbers.into_iter().chain(texts) {
        assert!(
            tree.lines().any(|l| l.contains(&format!("= {value}")) || l.contains(&format!(": {value}"))),
            "{value}"
        );
    }
}
