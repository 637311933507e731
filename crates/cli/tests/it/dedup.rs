//! `netgrain dedup` on the command line: removal, report, formats, windows and errors.

use crate::common;

use base::{Prng, Timestamp};
use common::{arg, objects, run, walk};
use pcap::classic::{Resolution, Writer};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use testkit::TempDir;
use testkit::copies::{Copied, Planted, plant};
use wire::build::Frame;

/// Datagrams and segments with identifications; a copy of every third, of each class.
fn planted(ways: &[Copied]) -> Vec<Planted> {
    let mut prng = Prng::new(5);
    let frames = (1..=3000u16).map(|number| {
        let (mut bytes, mut payload) = ([0; 1000], [7; 900]);
        payload[..2].copy_from_slice(&number.to_be_bytes());
        // Few flows, so that the copies of NAT and proxies confirm their bindings.
        let host = [10, 0, 0, 1 + (number / 2 % 2) as u8];
        let frame = match number % 2 {
            0 => Frame::tcp4(host, 4000, [10, 9, 9, 9], 80).tcp(24, number.into(), 77),
            _ => Frame::udp4(host, 4000, [10, 9, 9, 9], 53),
        };
        let frame = frame.fragment(number, 0, false).payload(&payload).write(&mut bytes).expect("room").to_vec();
        let len = frame.len() as u32;
        (frame, len)
    });
    plant(frames.collect::<Vec<_>>(), ways, (10_000, 3, 500_000), &mut prng)
}

fn capture(dir: &TempDir, name: &str, frames: impl IntoIterator<Item = Planted>) -> PathBuf {
    let path = dir.join(name);
    let file = std::fs::File::create(&path).expect("a file");
    let mut writer = Writer::new(file, Resolution::Nanos, 1).expect("room");
    for frame in frames {
        let ts = Timestamp::from_secs_nanos(1_700_000_000, frame.nanos);
        writer.write(ts, frame.wire_len, &frame.bytes).expect("room");
    }
    drop(writer.finish().expect("room"));
    path
}

fn bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("a file")
}

#[test]
fn planted_duplicates_are_removed_and_reported_by_class() {
    let dir = TempDir::new("dedup");
    let all = planted(&Copied::ALL);
    let copies = all.iter().filter(|frame| frame.copied.is_some()).count() as u64;
    let file = capture(&dir, "in.pcap", all.clone());
    let original = capture(&dir, "original.pcap", all.iter().filter(|frame| frame.copied.is_none()).cloned());
    let (out, expected) = (dir.join("out.pcap"), dir.join("expected.pcap"));
    assert_eq!(run(&["convert", arg(&original), "-w", arg(&expected), "-q"]).status, Some(0));
    let done = run(&["dedup", arg(&file), "-w", arg(&out), "--classes", "all", "--report"]);
    assert_eq!(done.status, Some(0), "{done:?}");
    assert!(done.out.contains("time below") && done.err.contains("confirmed these addresses"), "{done:?}");
    let exact = all.iter().filter(|frame| !matches!(frame.copied, Some(Copied::Translated | Copied::Proxied)));
    let exact = capture(&dir, "exact.pcap", exact.cloned());
    let done_exact = run(&["dedup", arg(&exact), "-w", arg(&out), "--force", "--classes", "all", "-q"]);
    assert_eq!(done_exact.status, Some(0), "{done_exact:?}");
    assert!(bytes(&out) == bytes(&expected), "other packets than the original traffic are written");
    for class in ["switching", "routing", "nat", "proxying", "fragment", "all"] {
        assert!(done.out.lines().any(|line| line.starts_with(class)), "{class}: {}", done.out);
    }
    assert!(done.err.contains("reaches back") && !done.err.contains("forgot"), "{}", done.err);

    let report = run(&["dedup", arg(&file), "--classes", "all", "--report", "--json"]);
    let object = &objects(&report.out)[0];
    assert_eq!((report.status, report.err.as_str()), (Some(0), ""));
    let unconfirmed = object["unconfirmed"].as_u64().expect("a number");
    assert!((1..50).contains(&unconfirmed), "{unconfirmed}");
    let copies = copies - unconfirmed;
    assert_eq!((&object["duplicates"], &object["written"]), (&copies.into(), &0.into()));
    assert_eq!((&object["complete"], &object["repeats"]), (&true.into(), &0.into()));
    let classes = object["classes"].as_array().expect("classes");
    assert_eq!(classes.iter().filter_map(|class| class["packets"].as_u64()).sum::<u64>(), copies);
    for class in classes {
        let sum = |key: &str| class[key].as_array().expect("a list").iter().filter_map(|n| n.as_u64()).sum::<u64>();
        assert_eq!(class["packets"].as_u64(), Some(sum("ttl_decreases")), "{class}");
        assert!(class["packets"].as_u64() > Some(20), "{class}");
    }
    assert_eq!(walk(dir.path()).len(), 5);

    // With the default classes, only the copies of switches and routers are removed.
    let usual = run(&["dedup", arg(&file), "--report", "--json"]);
    let expected =
        all.iter().filter(|frame| matches!(frame.copied, Some(Copied::Exact | Copied::Tagged | Copied::Routed)));
    assert_eq!(objects(&usual.out)[0]["duplicates"], expected.count());
}

#[test]
fn packets_without_identification_need_a_window_or_a_second_interface() {
    let dir = TempDir::new("dedup_repeats");
    let frame = |nanos| {
        let mut bytes = [0; 100];
        let frame = Frame::udp6([1, 0, 0, 0, 0, 0, 0, 1], 1, [1, 0, 0, 0, 0, 0, 0, 2], 2).payload(b"x");
        let bytes = frame.write(&mut bytes).expect("room").to_vec();
        Planted { nanos, wire_len: bytes.len() as u32, bytes, copied: None }
    };
    let file = capture(&dir, "in.pcap", [frame(1000), frame(6000)]);
    let other = capture(&dir, "other.pcap", [frame(2000)]);
    let duplicates = |more: &[&str]| {
        let done = run(&[&["dedup", arg(&file)], more, &["--report", "--json"]].concat());
        let object = &objects(&done.out)[0];
        (object["duplicates"].as_u64(), object["repeats"].as_u64())
    };
    assert_eq!(duplicates(&[]), (Some(0), Some(1)));
    assert_eq!(duplicates(&["--repeat-window", "5us"]), (Some(1), Some(0)));
    assert_eq!(duplicates(&["--repeat-window", "4us"]), (Some(0), Some(1)));
    assert_eq!(duplicates(&["--exact"]), (Some(1), Some(0)));
    assert_eq!(duplicates(&[arg(&other)]), (Some(0), Some(2)));
    // The sender sent two packets; the other interface has a copy of one.
    assert_eq!(duplicates(&[arg(&other), "--mirrored-interfaces"]), (Some(1), Some(1)));
    let text = run(&["dedup", arg(&file), "--report"]);
    assert!(text.err.contains("1 packet is equal to a packet before, without evidence"), "{}", text.err);
}

#[test]
fn a_table_that_is_too_small_is_reported_with_its_reach() {
    let dir = TempDir::new("dedup_small");
    let file = capture(&dir, "in.pcap", planted(&[Copied::Exact]));
    let done = run(&["dedup", arg(&file), "--report", "--records", "16", "--window", "1ms"]);
    assert!(done.err.contains("the table forgot") && done.err.contains("--records"), "{}", done.err);
    let json = run(&["dedup", arg(&file), "--report", "--records", "16", "--window", "1ms", "--json"]);
    let object = &objects(&json.out)[0];
    assert_eq!((&object["complete"], &object["records"]), (&false.into(), &16.into()));
    assert!(object["overwritten"].as_u64() > Some(1000) && object["shortest_reach_ns"].as_u64() < Some(1_000_000));
}

#[test]
fn compressed_captures_pcapng_and_standard_input_give_the_same_packets() {
    let test = "compressed_captures_pcapng_and_standard_input_give_the_same_packets";
    let dir = TempDir::new("dedup_formats");
    let file = capture(&dir, "in.pcap", planted(&[Copied::Exact, Copied::Routed]));
    let (expected, ng) = (dir.join("expected.pcap"), dir.join("in.pcapng"));
    assert_eq!(run(&["dedup", arg(&file), "-w", arg(&expected), "-q"]).status, Some(0));
    assert_eq!(run(&["convert", arg(&file), "-w", arg(&ng), "-q"]).status, Some(0));
    let mut inputs = vec![ng];
    for (tool, ending) in [("gzip", "gz"), ("zstd", "zst")] {
        let Some(mut command) = testkit::tool(test, tool) else { continue };
        let packed = dir.join(format!("in.pcap.{ending}"));
        let target = std::fs::File::create(&packed).expect("a file");
        assert!(command.args(["-c", arg(&file)]).stdout(target).status().expect("the process starts").success());
        inputs.push(packed);
    }
    for input in &inputs {
        let out = dir.join("out.pcap");
        let done = run(&["dedup", arg(input), "-w", arg(&out), "--force", "-q"]);
        assert_eq!((done.status, done.err.as_str()), (Some(0), ""), "{}", input.display());
        assert!(bytes(&out) == bytes(&expected), "{}", input.display());
    }
    let mut command = common::netgrain(&["dedup", "-", "-w", "-", "--format", "pcap", "--json"]);
    let done = command.stdin(Stdio::from(std::fs::File::open(&file).expect("the file"))).output().expect("it starts");
    assert!(done.status.success() && done.stdout == bytes(&expected));
    assert!(String::from_utf8_lossy(&done.stderr).contains("\"schema_version\":1"));
}

#[test]
fn wrong_arguments_print_a_one_line_error() {
    let dir = TempDir::new("dedup_errors");
    let file = capture(&dir, "in.pcap", planted(&[Copied::Exact]).into_iter().take(10));
    let error = |more: &[&str]| {
        let done = run(&[&["dedup"], more].concat());
        assert_eq!((done.status, done.err.lines().count()), (Some(2), 1), "{done:?}");
        done.err
    };
    assert!(error(&[arg(&file)]).contains("--write"));
    assert!(error(&["no-such-file", "--report"]).contains("no-such-file"));
    assert!(error(&[arg(&file), "--report", "--classes", "natt"]).contains("switching,routing,nat,proxying,fragment"));
    assert!(error(&[arg(&file), "--report", "--window", "61s"]).contains("1ns to 60s"));
    assert!(error(&[arg(&file), "--report", "--records", "0"]).contains("256Ki or 3M"));
    assert!(error(&[arg(&file), "--report", "--stored-bytes", "69"]).contains("70"));
    assert!(error(&[arg(&file), "--report", "--records", "256M"]).contains("choose fewer records"));
    assert!(error(&[arg(&file), "-w", arg(&file)]).contains("--force"));
    assert!(error(&[arg(&file), "-w", "x.pcap.gz"]).contains("not compressed"));
    assert!(error(&["/etc/passwd", "--report"]).contains("not a capture"));
    // A damaged capture is compared up to the damage.
    let mut damaged = bytes(&file);
    damaged.truncate(damaged.len() - 5);
    std::fs::write(&file, damaged).expect("a file");
    let done = run(&["dedup", arg(&file), "--report"]);
    assert!(done.status == Some(1) && done.err.contains("everything before this byte was compared"), "{done:?}");
}

#[test]
fn mirrored_interfaces_in_a_capture_of_one_interface_are_refused_with_advice() {
    let dir = TempDir::new("one_mirror");
    let keys = ["duplicates=mark", "duplicate_table=all", "duplicate_mirrored_interfaces=true"];
    let keys: Vec<String> = keys.iter().flat_map(|key| ["--set".to_owned(), format!("capture.{key}")]).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let output = run(&[&["run", "--sim", "60,packets=10", "--store", arg(&dir.join("s"))][..], &keys].concat());
    assert!(output.status == Some(2) && output.err.contains("netgrain dedup --mirrored-interfaces"), "{output:?}");
}
