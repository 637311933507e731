//! What captures say of their packets and cannot be so, or what the target cannot say: it is counted and told by every
//! verb.

use crate::common;

use common::{Said, arg, objects, run};
use serde_json::Value;
use std::path::Path;
use testkit::TempDir;

const SECOND: u32 = 1_700_000_000;

/// A capture of whole frames of 60 bytes, a microsecond apart: one for each length on the wire that its record says.
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

/// Four packets, of which two say less than they have.
fn odd(path: &Path) {
    capture(path, &[60, 59, 1500, 0]);
}

const TOLD: &str = "2 packets have a wire length below the captured length";

fn well(said: Said) -> Said {
    assert_eq!(said.status, Some(0), "{said:?}");
    said
}

fn last(said: &Said) -> Value {
    objects(&said.out).pop().unwrap_or_else(|| panic!("{said:?}"))
}

/// Bytes on the wire of the packets of a store or a capture.
fn lengths(args: &[&str]) -> Vec<u64> {
    let said = well(run(&[&["packets", "--json"], args].concat()));
    objects(&said.out).iter().map(|packet| packet["length"].as_u64().expect("a length")).collect()
}

#[test]
fn packets_of_less_on_the_wire_than_captured_are_counted_in_what_is_stored() {
    let dir = TempDir::new("lengths-stored");
    let (file, first, second) = (dir.join("odd.pcap"), dir.join("record"), dir.join("run"));
    odd(&file);
    let said = well(run(&["record", "-r", arg(&file), "--store", arg(&first), "--ring", "8MiB"]));
    assert!(said.out.contains("(wire_raised)") && said.out.contains(TOLD), "{said:?}");
    let said = well(run(&["run", "-r", arg(&file), "--name", "odd", "--store", arg(&second), "--json"]));
    assert!(said.out.contains("\"wire_raised\":2"), "{said:?}");
    for store in [&first, &second] {
        assert_eq!(lengths(&["--store", arg(store)]), [60, 60, 1500, 60]);
        let said = well(run(&["verify", "--store", arg(store), "--json"]));
        let ledger = &last(&said)["verified"]["ledger"];
        assert_eq!((&ledger["notes"]["wire_raised"], &ledger["stored_bytes"]), (&2.into(), &1680.into()), "{said:?}");
        assert!(!said.out.contains("\"finding\""), "{said:?}");
    }
    let rows = objects(&well(run(&["series", "--store", arg(&second), "--json"])).out);
    assert!(rows.iter().any(|row| row["note_wire_raised"] == 2), "{rows:?}");
}

#[test]
fn packets_of_less_on_the_wire_than_captured_are_told_where_captures_are_read() {
    let dir = TempDir::new("lengths-read");
    let (file, copy) = (dir.join("odd.pcap"), dir.join("copy.pcap"));
    odd(&file);
    let read = ["-r", arg(&file)];
    for what in ["flows", "series"] {
        let said = run(&[&[what], &read[..]].concat());
        assert!(said.err.contains(TOLD), "{what}: {said:?}");
    }
    // Without an index and with one.
    for indexed in [false, true] {
        if indexed {
            let said = well(run(&["index", arg(&file)]));
            assert!(said.err.contains(TOLD), "{said:?}");
            let said = well(run(&["index", "--force", "--json", arg(&file)]));
            assert_eq!(last(&said)["wire_raised"], 2, "{said:?}");
        }
        let said = well(run(&[&["packets", "--count"], &read[..]].concat()));
        assert!(said.err.contains(TOLD), "{indexed}: {said:?}");
        let said = well(run(&[&["packets", "--count", "--json"], &read[..]].concat()));
        assert_eq!((&last(&said)["wire_raised"], &last(&said)["bytes"]), (&2.into(), &1680.into()), "{said:?}");
        assert_eq!(lengths(&read), [60, 60, 1500, 60], "{indexed}");
        let said = well(run(&["verify", arg(&file), "--json"]));
        let found: Vec<Value> =
            objects(&said.out).into_iter().map(|o| o["finding"].clone()).filter(|f| !f.is_null()).collect();
        let [finding] = &found[..] else { panic!("{indexed}: {said:?}") };
        assert_eq!((&finding["kind"], &finding["level"]), (&"wire_length".into(), &"note".into()), "{finding}");
        // The second record begins behind the header and the first one.
        assert_eq!(finding["byte"], 24 + 76, "{finding}");
        assert!(!well(run(&["repair", arg(&file)])).out.contains(".damaged"));
    }
    let said = well(run(&["convert", arg(&file), "-w", arg(&copy)]));
    assert!(said.err.contains("2 packets say fewer bytes on the wire"), "{said:?}");
    let said = well(run(&["convert", arg(&file), "-w", arg(&copy), "--force", "--json"]));
    assert_eq!(last(&said)["not_kept"]["wire_raised"], 2, "{said:?}");
    let said = well(run(&["verify", arg(&copy), "--json"]));
    assert!(!said.out.contains("\"finding\""), "what was converted says so: {said:?}");
    let program = ["-e", "main = drop"];
    let said = well(run(&[&["lang", "run"], &read[..], &program].concat()));
    assert!(said.err.contains(TOLD), "{said:?}");
    let said = well(run(&[&["lang", "run", "--json"], &read[..], &program].concat()));
    assert_eq!(last(&said)["wire_raised"], 2, "{said:?}");
}

#[test]
fn nothing_is_told_of_captures_whose_lengths_agree() {
    let dir = TempDir::new("lengths-agree");
    let file = dir.join("even.pcap");
    capture(&file, &[60, 1500]);
    for args in
        [&["packets", "--count", "-r"][..], &["series", "-r"], &["index"], &["lang", "run", "-e", "main = drop", "-r"]]
    {
        let said = run(&[args, &[arg(&file)]].concat());
        assert!(!said.err.contains("on the wire than"), "{args:?}: {said:?}");
    }
}

/// A pcapng of frames, each with its moment in microseconds.
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
fn stamps_that_pcap_cannot_say_are_counted_where_pcap_is_written_and_whole_in_pcapng() {
    let dir = TempDir::new("lengths-2106");
    let (file, old, new) = (dir.join("late.pcapng"), dir.join("out.pcap"), dir.join("out.pcapng"));
    let last_second = u64::from(u32::MAX) * 1_000_000;
    let stamps = [last_second - 7, last_second + 999_999, last_second + 1_000_000, last_second + 86_400_000_000];
    pcapng(&file, &stamps);
    let said = well(run(&["packets", "-r", arg(&file), "-w", arg(&old)]));
    assert!(said.err.contains("pcap does not tell the stamps of 2 packets after 2106-02-07T06:28:15Z"), "{said:?}");
    let said = well(run(&["packets", "-r", arg(&file), "-w", arg(&old), "--json", "--force"]));
    assert_eq!(last(&said)["clamped"], 2, "{said:?}");
    let said = well(run(&["packets", "-r", arg(&file), "-w", arg(&new), "--json"]));
    assert_eq!(last(&said)["clamped"], 0, "{said:?}");
    let times = |args: &[&str]| -> Vec<String> {
        let said = well(run(&[&["packets", "--json"], args].concat()));
        objects(&said.out).iter().map(|packet| packet["time"].as_str().expect("a time").to_owned()).collect()
    };
    let reported = times(&["-r", arg(&file)]);
    assert!(
        reported[2].starts_with("2106-02-07T06:28:16") && reported[3].starts_with("2106-02-08T06:28:15"),
        "{reported:?}"
    );
    assert_eq!(times(&["-r", arg(&file), "--limit", "4"]), reported, "one by one");
    assert_eq!(times(&["-r", arg(&new)]), reported, "pcapng has room");
    // What a replay stores is what the meter of captures makes of them.
    let rows = objects(&well(run(&["series", "-r", arg(&file), "--json"])).out);
    assert!(rows.iter().all(|row| row["time"].as_str().is_some_and(|time| time <= "2106-02-07T06:28:15Z")), "{rows:?}");
    assert!(rows.iter().any(|row| row["note_clamped"] == 2), "{rows:?}");
}
