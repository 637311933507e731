//! The binary `netgrain-bench`. The tests do not check speed: each stage runs for a moment, and its results must be
//! plausible.

use serde_json::Value;
use std::process::{Command, Stdio};
use testkit::TempDir;

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netgrain-bench"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs a stage with `--json` and returns its rows.
fn rows(arguments: &[&str]) -> Vec<Value> {
    let output = bench(arguments).arg("--json").output().expect("this program runs");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {errors}");
    let rows: Vec<Value> =
        text.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{l}: {e}"))).collect();
    assert_eq!(rows[0]["kind"], "machine", "{text}");
    assert!(rows[0]["cores"].as_u64() > Some(0) && rows[0]["date"].is_string(), "{text}");
    rows
}

fn of_kind<'a>(rows: &'a [Value], kind: &str) -> Vec<&'a Value> {
    rows.iter().filter(|r| r["kind"] == kind).collect()
}

fn positive(row: &Value, keys: &[&str]) {
    for key in keys {
        let value = key.split('.').fold(row, |v, k| &v[k]);
        assert!(value.as_f64().is_some_and(|n| n > 0.0 && n.is_finite()), "{key} in {row}");
    }
}

#[test]
fn an_invalid_argument_is_an_error_of_one_line_with_advice() {
    for (arguments, expected) in [
        (vec!["capture", "--sizes", "no-such-traffic"], "no-such-traffic"),
        (vec!["disk", "--dir", "/nowhere/at/all"], "--dir"),
        (vec!["disk", "--blocks", "1000"], "4KiB"),
        (vec!["record", "--traffic", "5"], "5"),
        (vec!["live", "--rate", "fast"], "a rate"),
        (vec!["ring-listener", "/nowhere/at/all.sock", "--cpu", "0"], "no engine"),
    ] {
        let output = bench(&arguments).output().expect("this program runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(errors.contains(expected) && errors.lines().count() == 1, "{arguments:?}: {errors}");
    }
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let mut child = bench(&["capture", "--sizes", "60", "--seconds", "0.01", "--repeat", "1", "--ring", "8MiB"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program runs");
    drop(child.stdout.take());
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn the_engine_is_measured_with_the_comparison_loops() {
    let rows = rows(&["capture", "--sizes", "60,1514,imix", "--seconds", "0.02", "--repeat", "2", "--ring", "16MiB"]);
    let rows = of_kind(&rows, "capture");
    assert_eq!(rows.len(), 3);
    for row in rows {
        positive(row, &["mpps.median", "ns.median", "gbps", "cores", "mean_bytes"]);
        positive(
            row,
            &["ladder.source", "ladder.copy", "ladder.plain", "ladder.hashed", "ladder.stamped", "ladder.both"],
        );
        assert_eq!(row["lost"], 0, "no reader blocks the ring: {row}");
    }
}

#[test]
fn every_listener_process_accounts_for_every_record() {
    for touch in [&["--touch"][..], &[]] {
        let mut arguments =
            vec!["ring", "--listeners", "0,1,3", "--seconds", "0.05", "--repeat", "2", "--ring", "16MiB"];
        arguments.extend(touch);
        let rows = rows(&arguments);
        let rows = of_kind(&rows, "ring");
        assert_eq!(rows.iter().map(|r| r["listeners"].as_u64()).collect::<Vec<_>>(), [Some(0), Some(1), Some(3)]);
        for row in rows {
            positive(row, &["published", "producer_mrps.median", "producer_ns.median"]);
            // The stage itself checks that seen and missed records add up to the published records.
            let (listeners, published) = (row["listeners"].as_u64().unwrap(), row["published"].as_u64().unwrap());
            assert!(row["missed"].as_u64().unwrap() <= listeners * published, "{row}");
        }
    }
}

#[test]
fn the_disk_stage_prints_statistics_and_a_verdict() {
    let volume = TempDir::new("bench_disk");
    let dir = volume.path().to_str().expect("a path in UTF-8");
    let rows = rows(&[
        "disk",
        "--dir",
        dir,
        "--blocks",
        "64KiB,1MiB",
        "--depths",
        "1,4",
        "--file",
        "2MiB",
        "--seconds",
        "0.01",
        "--sustained",
        "0.05",
    ]);
    let studies = of_kind(&rows, "disk");
    assert!(studies.len() >= 5, "{rows:?}");
    for row in studies {
        positive(row, &["samples", "mean", "p5", "p95"]);
        assert!(row["ci99"][0].as_f64() <= row["mean"].as_f64(), "{row}");
    }
    assert_eq!(of_kind(&rows, "series").len(), 1);
    let verdicts = of_kind(&rows, "verdict");
    assert!(
        verdicts.len() == 1 && verdicts[0]["text"].as_str().unwrap().starts_with("this volume sustains"),
        "{rows:?}"
    );
}

#[test]
fn a_recording_is_compared_with_direct_writing() {
    let volume = TempDir::new("bench_record");
    let dir = volume.path().to_str().expect("a path in UTF-8");
    let arguments =
        ["record", "--dir", dir, "--seconds", "0.1", "--repeat", "2", "--ring", "32MiB", "--segment", "16MiB"];
    let rows = rows(&arguments);
    let recordings = of_kind(&rows, "recording");
    assert_eq!(recordings.len(), 2);
    for row in recordings {
        positive(row, &["gbps", "mpps", "files", "bytes", "stored", "engine_cores"]);
        let n = |key: &str| row[key].as_u64().unwrap();
        assert_eq!(n("offered"), n("stored") + n("lost"), "{row}");
    }
    let summary = of_kind(&rows, "summary");
    positive(summary[0], &["direct.median", "record.median", "of_direct.median", "engine_gbps"]);
    // The conclusion is not always the last row, because a note about the hypervisor may follow it.
    assert!(rows.iter().filter_map(|row| row["text"].as_str()).any(|text| text.contains("bottleneck")), "{rows:?}");
}

#[test]
fn a_live_interface_is_recorded_and_checked() {
    const NAME: &str = "a_live_interface_is_recorded_and_checked";
    // The stage needs a network namespace too; without permission the test is skipped.
    let Some(sandbox) = testkit::Sandbox::new(NAME) else { return };
    drop(sandbox);
    let volume = TempDir::new("bench_live");
    let dir = volume.path().to_str().expect("a path in UTF-8");
    let rows = rows(&[
        "live",
        "--dir",
        dir,
        "--sizes",
        "1000",
        "--rate",
        "20kpps",
        "--seconds",
        "0.2",
        "--repeat",
        "1",
        "--ring",
        "32MiB",
    ]);
    let rows = of_kind(&rows, "live");
    assert!(rows.len() >= 2, "{rows:?}");
    for row in rows {
        positive(row, &["sent", "sent_mpps.median", "sent_gbps.median", "stored_share.median"]);
        let n = |key: &str| row[key].as_u64().unwrap();
        assert_eq!(n("sent"), n("stored") + n("missing"), "{row}");
        if row["recorder"].as_str().unwrap().starts_with("netgrain") {
            let lost: u64 = row["lost"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
            assert_eq!(n("offered"), n("stored") + lost, "{row}");
            assert!(row["verdict"].as_str().unwrap().contains("complete"), "{row}");
        }
    }
}

#[test]
fn all_ways_to_receive_get_the_frames_of_a_slow_load() {
    const NAME: &str = "all_ways_to_receive_get_the_frames_of_a_slow_load";
    let Some(sandbox) = testkit::Sandbox::new(NAME) else { return };
    drop(sandbox);
    let volume = TempDir::new("bench_engines");
    let plot = volume.path().join("plot.svg");
    let plot_path = plot.to_str().expect("a path in UTF-8");
    let load = ["--sizes", "128", "--rate", "5kpps", "--seconds", "0.2", "--threads", "1,2", "--plot", plot_path];
    let rows = rows(&[&["engines"], &load[..]].concat());
    let rows = of_kind(&rows, "engines");
    for (method, threads) in [
        ("recvmmsg", 1),
        ("recvmmsg", 2),
        ("tpacket", 1),
        ("tpacket", 2),
        ("af_xdp", 1),
        ("netgrain tpacket", 1),
        ("netgrain tpacket", 2),
        ("netgrain af_xdp", 1),
    ] {
        let row = rows.iter().find(|row| row["method"] == method && row["threads"] == threads);
        let row = row.unwrap_or_else(|| panic!("{method} with {threads} threads: {rows:?}"));
        positive(row, &["sent", "sent_mpps.median", "memory_bytes"]);
        assert_eq!((&row["received"], row["reported_lost"].as_u64()), (&row["sent"], Some(0)), "{row}");
    }
    let libpcap = rows.iter().find(|row| row["method"] == "libpcap");
    assert!(libpcap.is_none_or(|row| row["received"] == row["sent"]), "{libpcap:?}");
    assert!(std::fs::read_to_string(plot).expect("the plot").contains("netgrain tpacket, 2 threads"));
}

#[test]
fn no_file_remains_on_the_volume() {
    let volume = TempDir::new("bench_leaves");
    let dir = volume.path().to_str().expect("a path in UTF-8");
    rows(&["record", "--dir", dir, "--seconds", "0.02", "--repeat", "1", "--ring", "16MiB", "--segment", "4MiB"]);
    assert_eq!(std::fs::read_dir(volume.path()).expect("the directory").count(), 0);
}

#[test]
fn text_output_is_a_table_without_json() {
    let output = bench(&["capture", "--sizes", "60", "--seconds", "0.01", "--repeat", "1", "--ring", "8MiB"]).output();
    let text = String::from_utf8(output.expect("this program runs").stdout).expect("UTF-8");
    assert!(text.starts_with("netgrain-bench capture, 2"), "{text}");
    assert!(text.lines().any(|l| l.starts_with("60 ")) && !text.contains('{'), "{text}");
}

#[test]
fn send_measures_rate_and_timing_of_each_program() {
    let test = "send_measures_rate_and_timing_of_each_program";
    if testkit::Sandbox::new(test).is_none() {
        return;
    }
    let dir = TempDir::new("bench-send");
    let beside = std::path::Path::new(env!("CARGO_BIN_EXE_netgrain-bench")).with_file_name("netgrain");
    if !beside.is_file() {
        return testkit::skip(test, "the program netgrain is not built: cargo build");
    }
    let rows = rows(&[
        "send",
        "--dir",
        dir.path().to_str().expect("a path in UTF-8"),
        "--frames",
        "10k",
        "--seconds",
        "0.3",
        "--timed-rate",
        "1k",
        "--repeat",
        "1",
    ]);
    let (rates, timings) = (of_kind(&rows, "rate"), of_kind(&rows, "timing"));
    assert!(rates.len() >= 6 && timings.len() >= 2, "{rows:?}");
    for row in rates {
        positive(row, &["mpps.median", "received.median"]);
    }
    for row in timings {
        assert_eq!(row["missing"], 0, "{row}");
        positive(row, &["gap_error_p99_micros.median"]);
    }
}
