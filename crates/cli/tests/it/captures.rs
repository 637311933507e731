//! `flows -r` and `series -r` read captures directly. Their results equal those of queries of a store into which the
//! same captures were replayed.

use crate::common;

use common::{arg, objects, run, run_command};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::TempDir;

fn generate(dir: &TempDir, name: &str, spec: &str) -> PathBuf {
    let file = dir.join(name);
    let generated = run(&["gen", "-w", arg(&file), spec]);
    assert_eq!(generated.status, Some(0), "{generated:?}");
    file
}

/// Two captures of three seconds each: 300 flows, then 200 other flows.
fn two_files(dir: &TempDir) -> [PathBuf; 2] {
    let one = generate(dir, "one.pcap", "imix,flows=300,rate=1kpps,packets=3000");
    let two = generate(dir, "two.pcap", "imix,flows=200,seed=9,rate=1kpps,packets=3000");
    [one, two]
}

fn replay(files: &[&Path], store: &Path) {
    let mut args = vec!["run", "--store", arg(store), "--name", "a", "-q", "-r"];
    args.extend(files.iter().map(|file| arg(file)));
    let output = run(&args);
    assert_eq!(output.status, Some(0), "{output:?}");
}

/// The objects of a query in sorted order, without the fields that only a store provides.
fn sorted_objects(args: &[&str]) -> Vec<String> {
    let output = run(&[args, &["--json"]].concat());
    assert_eq!(output.status, Some(0), "{args:?}: {output:?}");
    let mut all: Vec<String> =
        objects(&output.out).into_iter().map(without_store_fields).map(|value| value.to_string()).collect();
    all.sort();
    assert!(!all.is_empty(), "{output:?}");
    all
}

fn without_store_fields(mut value: Value) -> Value {
    let object = value.as_object_mut().expect("an object");
    for own in ["interface", "interface_id", "queue", "position", "position_span"] {
        object.remove(own);
    }
    value
}

fn assert_equal(left: &[String], right: &[String], what: &str) {
    assert_eq!(left.len(), right.len(), "{what}");
    left.iter().zip(right).for_each(|(left, right)| assert_eq!(left, right, "{what}"));
}

#[test]
fn captures_and_a_store_of_them_give_equal_flows_and_series() {
    let test = "captures_and_a_store_of_them_give_equal_flows_and_series";
    let dir = TempDir::new("captures-like-a-store");
    let files = two_files(&dir);
    let store = dir.join("store");
    replay(&[&files[0], &files[1]], &store);
    let of_store = |what: &'static str| [what, "--store", arg(&store), "--from", "1970-01-02"];
    let of_files = |what: &'static str| [what, "-r", arg(&files[0]), arg(&files[1])];
    for what in ["flows", "series"] {
        assert_equal(&sorted_objects(&of_files(what)), &sorted_objects(&of_store(what)), what);
    }
    for more in [
        &["--top", "7", "--by", "packets"][..],
        &["--group", "src/24,proto", "--by", "flows"],
        &["--group", "host", "--top", "3"],
    ] {
        let of = |args: &[&str]| sorted_objects(&[args, more].concat());
        assert_equal(&of(&of_files("flows")), &of(&of_store("flows")), more[1]);
    }
    // The results are also equal with a filter, with compressed files, and with a capture on standard input.
    let one = sorted_objects(&["flows", "--store", arg(&store), "--from", "1970-01-02", "--limit", "1"]);
    let host = serde_json::from_str::<Value>(&one[0]).expect("an object")["src"].as_str().expect("a host").to_owned();
    let filter = format!("host {host}");
    let expected = sorted_objects(&["flows", "--store", arg(&store), "--from", "1970-01-02", &filter]);
    let Some(_) = testkit::tool(test, "gzip") else { return };
    let compressed = Command::new("gzip").args(["-k", arg(&files[0]), arg(&files[1])]).status().expect("gzip");
    assert!(compressed.success());
    let gz = files.each_ref().map(|file| file.with_extension("pcap.gz"));
    assert_equal(
        &sorted_objects(&["flows", "-r", arg(&gz[0]), arg(&gz[1]), &filter]),
        &expected,
        "compressed, with a filter",
    );
    let mut piped = common::netgrain(&["flows", "-r", "-", "--json"]);
    let output = run_command(piped.stdin(std::fs::File::open(&files[0]).expect("a file")));
    assert_eq!(output.status, Some(0), "{output:?}");
    let mut one: Vec<String> =
        objects(&output.out).into_iter().map(without_store_fields).map(|value| value.to_string()).collect();
    one.sort();
    assert_equal(&one, &sorted_objects(&["flows", "-r", arg(&files[0])]), "a pipe");
}

#[test]
fn a_capture_and_its_store_give_equal_filtered_series() {
    let dir = TempDir::new("captures-series-of-a-filter");
    let file = generate(&dir, "a.pcap", "imix,flows=50,rate=1kpps,packets=3000");
    let store = dir.join("store");
    replay(&[&file], &store);
    let first = sorted_objects(&["flows", "-r", arg(&file), "--limit", "1"]);
    let flow: Value = serde_json::from_str(&first[0]).expect("an object");
    let filter = format!("host {}", flow["src"].as_str().expect("a host"));
    let fields = ["--fields", "second,packets,bytes,size_to_123,peak_1ms_bytes"];
    let of_file = sorted_objects(&[&["series", "-r", arg(&file), &filter][..], &fields].concat());
    let of_store =
        sorted_objects(&[&["series", "--store", arg(&store), "--from", "1970-01-02", &filter][..], &fields].concat());
    assert_equal(&of_file, &of_store, &filter);
    let packets = |lines: &[String]| -> u64 {
        let number = |line: &String| serde_json::from_str::<Value>(line).expect("an object")["packets"].as_u64();
        lines.iter().filter_map(number).sum()
    };
    assert!((1..3000).contains(&packets(&of_file)), "{of_file:?}");
    // A file of series rows contains no packets, so a packet filter cannot be applied to this file.
    let rows = dir.join("rows.parquet");
    assert_eq!(run(&["series", "-r", arg(&file), "--parquet", arg(&rows)]).status, Some(0));
    let rejected = run(&["series", "-r", arg(&rows), &filter]);
    assert!(rejected.status == Some(2) && rejected.err.contains("FILTER applies to packets"), "{rejected:?}");
}

#[test]
fn flows_reports_damage_in_a_capture_and_prints_the_other_packets() {
    let dir = TempDir::new("captures-cut");
    let file = generate(&dir, "a.pcap", "60,flows=40,rate=1kpps,packets=1000");
    let whole = std::fs::read(&file).expect("the file");
    let cut = dir.join("cut.pcap");
    std::fs::write(&cut, &whole[..whole.len() - 10]).expect("a file");
    let output = run(&["flows", "-r", arg(&cut), "--json"]);
    assert_eq!(output.status, Some(1), "{output:?}");
    let packets: u64 = objects(&output.out).iter().map(|flow| flow["packets"].as_u64().expect("a number")).sum();
    assert!(output.err.contains("cut.pcap") && packets == 999, "{packets}: {}", output.err);
    let text = dir.join("text");
    std::fs::write(&text, "neither this nor that, and long enough").expect("a file");
    for verb in ["flows", "series"] {
        let output = run(&[verb, "-r", arg(&text)]);
        assert!(output.status == Some(2) && output.err.contains("neither a capture"), "{output:?}");
        let output = run(&[verb, "-r", arg(&dir.join("none"))]);
        assert!(output.status == Some(2) && output.err.contains("none"), "{output:?}");
    }
}
