//! Wire lengths below the captured length, and timestamps that pcap cannot represent. Every verb counts and reports
//! them.

use crate::common;

use common::{Output, arg, objects, run};
use serde_json::Value;
use std::path::Path;
use testkit::TempDir;

const SECOND: u32 = 1_700_000_000;

/// A capture of one complete 60-byte frame per given wire length, at intervals of 1 µs.
fn capture(path: &Path, lengths: &[u32]) {
    let mut bytes = pcap::FILE_HEADER_NS.to_vec();
    for (n, length) in lengths.iter().enumerate() {
        let words = [SECOND, n as u32 * 1000, 60, *length];
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        let mut frame = [n as u8; 60];
        frame[12..14].copy_from_slice(&[8, 0]);
        bytes.extend(frame);
    }
    std::fs::write(path, bytes).expect("a capture");
}

/// Four packets; the wire length of two of them is below their captured length.
fn write_capture_with_short_lengths(path: &Path) {
    capture(path, &[60, 59, 1500, 0]);
}

const WARNING: &str = "2 packets have a wire length below the captured length";

fn assert_success(output: Output) -> Output {
    assert_eq!(output.status, Some(0), "{output:?}");
    output
}

fn last(output: &Output) -> Value {
    objects(&output.out).pop().unwrap_or_else(|| panic!("{output:?}"))
}

/// The wire lengths of the packets of a store or a capture.
fn lengths(args: &[&str]) -> Vec<u64> {
    let output = assert_success(run(&[&["packets", "--json"], args].concat()));
    objects(&output.out).iter().map(|packet| packet["length"].as_u64().expect("a length")).collect()
}

#[test]
fn wire_lengths_below_the_caplen_are_counted_in_the_store() {
    let dir = TempDir::new("lengths-stored");
    let (file, first, second) = (dir.join("short.pcap"), dir.join("record"), dir.join("run"));
    write_capture_with_short_lengths(&file);
    let output = assert_success(run(&["record", "-r", arg(&file), "--store", arg(&first), "--ring", "8MiB"]));
    assert!(output.out.contains("(wire_raised)") && output.out.contains(WARNING), "{output:?}");
    let output = assert_success(run(&["run", "-r", arg(&file), "--name", "short", "--store", arg(&second), "--json"]));
    assert!(output.out.contains("\"wire_raised\":2"), "{output:?}");
    for store in [&first, &second] {
        assert_eq!(lengths(&["--store", arg(store)]), [60, 60, 1500, 60]);
        let output = assert_success(run(&["verify", "--store", arg(store), "--json"]));
        let ledger = &last(&output)["verified"]["ledger"];
        assert_eq!((&ledger["notes"]["wire_raised"], &ledger["stored_bytes"]), (&2.into(), &1680.into()), "{output:?}");
        assert!(!output.out.contains("\"finding\""), "{output:?}");
    }
    let rows = objects(&assert_success(run(&["series", "--store", arg(&second), "--json"])).out);
    assert!(rows.iter().any(|row| row["note_wire_raised"] == 2), "{rows:?}");
}

#[test]
fn wire_lengths_below_the_caplen_are_reported_for_captures() {
    let dir = TempDir::new("lengths-read");
    let (file, copy) = (dir.join("short.pcap"), dir.join("copy.pcap"));
    write_capture_with_short_lengths(&file);
    let read = ["-r", arg(&file)];
    for what in ["flows", "series"] {
        let output = run(&[&[what], &read[..]].concat());
        assert!(output.err.contains(WARNING), "{what}: {output:?}");
    }
    // The first round reads the capture without an index, the second with one.
    for indexed in [false, true] {
        if indexed {
            let output = assert_success(run(&["index", arg(&file)]));
            assert!(output.err.contains(WARNING), "{output:?}");
            let output = assert_success(run(&["index", "--force", "--json", arg(&file)]));
            assert_eq!(last(&output)["wire_raised"], 2, "{output:?}");
        }
        let output = assert_success(run(&[&["packets", "--count"], &read[..]].concat()));
        assert!(output.err.contains(WARNING), "{indexed}: {output:?}");
        let output = assert_success(run(&[&["packets", "--count", "--json"], &read[..]].concat()));
        assert_eq!((&last(&output)["wire_raised"], &last(&output)["bytes"]), (&2.into(), &1680.into()), "{output:?}");
        assert_eq!(lengths(&read), [60, 60, 1500, 60], "{indexed}");
        let output = assert_success(run(&["verify", arg(&file), "--json"]));
        let found: Vec<Value> =
            objects(&output.out).into_iter().map(|o| o["finding"].clone()).filter(|f| !f.is_null()).collect();
        let [finding] = &found[..] else { panic!("{indexed}: {output:?}") };
        assert_eq!((&finding["kind"], &finding["level"]), (&"wire_length".into(), &"note".into()), "{finding}");
        // The second record follows the file header and the first record.
        assert_eq!(finding["byte"], 24 + 76, "{finding}");
        assert!(!assert_success(run(&["repair", arg(&file)])).out.contains(".damaged"));
    }
    let output = assert_success(run(&["convert", arg(&file), "-w", arg(&copy)]));
    assert!(output.err.contains("2 packets have a wire length below the captured length"), "{output:?}");
    let output = assert_success(run(&["convert", arg(&file), "-w", arg(&copy), "--force", "--json"]));
    assert_eq!(last(&output)["not_kept"]["wire_raised"], 2, "{output:?}");
    let output = assert_success(run(&["verify", arg(&copy), "--json"]));
    assert!(!output.out.contains("\"finding\""), "the converted file has valid lengths: {output:?}");
    let program = ["-e", "main = drop"];
    let output = assert_success(run(&[&["lang", "run"], &read[..], &program].concat()));
    assert!(output.err.contains(WARNING), "{output:?}");
    let output = assert_success(run(&[&["lang", "run", "--json"], &read[..], &program].concat()));
    assert_eq!(last(&output)["wire_raised"], 2, "{output:?}");
}

#[test]
fn captures_with_valid_lengths_cause_no_warning() {
    let dir = TempDir::new("lengths-agree");
    let file = dir.join("even.pcap");
    capture(&file, &[60, 1500]);
    for args in
        [&["packets", "--count", "-r"][..], &["series", "-r"], &["index"], &["lang", "run", "-e", "main = drop", "-r"]]
    {
        let output = run(&[args, &[arg(&file)]].concat());
        assert!(!output.err.contains("on the wire than"), "{args:?}: {output:?}");
    }
}

/// A pcapng file that contains one frame for each of these timestamps in microseconds.
fn pcapng(path: &Path, micros: &[u64]) {
    let block = |kind: u32, content: &[u8]| {
        let length = (content.len() as u32 + 12).to_le_bytes();
        [&kind.to_le_bytes()[..], &length, content, &length].concat()
    };
    let mut bytes = block(0x0a0d_0d0a, &[&[0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0][..], &[0xff; 8]].concat());
    bytes.extend(block(1, &[1, 0, 0, 0, 0xff, 0xff, 0, 0]));
    for at in micros {
        let words = [0, (at >> 32) as u32, *at as u32, 60, 60].map(u32::to_le_bytes).concat();
        bytes.extend(block(6, &[&words[..], &[0xff; 60]].concat()));
    }
    std::fs::write(path, bytes).expect("a file");
}

#[test]
fn timestamps_after_2106_are_clamped_and_counted_in_pcap_not_in_pcapng() {
    let dir = TempDir::new("lengths-2106");
    let (file, old, new) = (dir.join("late.pcapng"), dir.join("out.pcap"), dir.join("out.pcapng"));
    let last_second = u64::from(u32::MAX) * 1_000_000;
    let stamps = [last_second - 7, last_second + 999_999, last_second + 1_000_000, last_second + 86_400_000_000];
    pcapng(&file, &stamps);
    let output = assert_success(run(&["packets", "-r", arg(&file), "-w", arg(&old)]));
    assert!(
        output.err.contains("pcap does not record the timestamps of 2 packets after 2106-02-07T06:28:15Z"),
        "{output:?}"
    );
    let output = assert_success(run(&["packets", "-r", arg(&file), "-w", arg(&old), "--json", "--force"]));
    assert_eq!(last(&output)["clamped"], 2, "{output:?}");
    let output = assert_success(run(&["packets", "-r", arg(&file), "-w", arg(&new), "--json"]));
    assert_eq!(last(&output)["clamped"], 0, "{output:?}");
    let times = |args: &[&str]| -> Vec<String> {
        let output = assert_success(run(&[&["packets", "--json"], args].concat()));
        objects(&output.out).iter().map(|packet| packet["time"].as_str().expect("a time").to_owned()).collect()
    };
    let reported = times(&["-r", arg(&file)]);
    assert!(
        reported[2].starts_with("2106-02-07T06:28:16") && reported[3].starts_with("2106-02-08T06:28:15"),
        "{reported:?}"
    );
    assert_eq!(times(&["-r", arg(&file), "--limit", "4"]), reported, "packets in text form");
    assert_eq!(times(&["-r", arg(&new)]), reported, "pcapng keeps the timestamps");
    // `series -r` clamps timestamps as a replay into a store does.
    let rows = objects(&assert_success(run(&["series", "-r", arg(&file), "--json"])).out);
    assert!(rows.iter().all(|row| row["time"].as_str().is_some_and(|time| time <= "2106-02-07T06:28:15Z")), "{rows:?}");
    assert!(rows.iter().any(|row| row["note_clamped"] == 2), "{rows:?}");
}
