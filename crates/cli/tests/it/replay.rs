//! A replay of recorded packets makes the same flow records and series rows as the recording. This includes the
//! estimates of distinct addresses, because their hash key is stored in the directory of the packets.

use crate::common;

use common::{Running, arg, netgrain, objects, run, signal, until, walk};
use serde_json::Value;
use std::path::{Path, PathBuf};
use testkit::{RawSender, Sandbox, TempDir};
use wire::build::Frame;

const RING: [&str; 2] = ["--set", "capture.ring=8MiB"];

/// The flow records of a store without the location of their packets, and its rows without the quality of the
/// timestamps, which a capture file does not contain.
fn records_and_rows(store: &Path) -> (Vec<Value>, Vec<Value>) {
    let without_location = |mut object: Value| {
        for key in ["queue", "position", "position_span"] {
            object.as_object_mut().expect("an object").remove(key);
        }
        object
    };
    let flows = run(&["flows", "--store", arg(store), "--json"]);
    let rows = run(&["series", "--store", arg(store), "--json"]);
    assert_eq!((flows.status, rows.status), (Some(0), Some(0)), "{flows:?} {rows:?}");
    let rows = objects(&rows.out).into_iter().map(common::without_timestamp_quality).collect();
    (objects(&flows.out).into_iter().map(without_location).collect(), rows)
}

/// The rows without the rows of seconds without packets at the begin and at the end. A recording has such rows; the
/// replay of its capture file does not.
fn trim_silence(rows: Vec<Value>) -> Vec<Value> {
    let silent = |row: &Value| row["packets"] == 0;
    let from = rows.iter().take_while(|row| silent(row)).count();
    let to = rows.len() - rows.iter().rev().take_while(|row| silent(row)).count();
    rows[from..to].to_vec()
}

fn captures(store: &Path) -> Vec<PathBuf> {
    walk(store).into_iter().filter(|p| p.extension().is_some_and(|e| e == "pcap")).collect()
}

#[test]
fn a_replay_has_the_same_estimates_only_with_the_key_of_the_store() {
    let dir = TempDir::new("replay_with_key");
    let (first, replayed, without_key) = (dir.join("first"), dir.join("replayed"), dir.join("without_key"));
    // Each second has more packets than addresses: a row limits the estimate of distinct addresses to its number of
    // packets, and with fewer packets this limit, and not the key, would determine the estimate.
    let spec = ["--sim", "imix,flows=12000,rate=20kpps", "--packets", "40k", "--quiet"];
    let key = ["--set", "series.key=00c0ffee00c0ffee"];
    let output = run(&[&["run", "--store", arg(&first)], &spec[..], &key[..], &RING[..]].concat());
    assert_eq!(output.status, Some(0), "{output:?}");
    let packets = captures(&first);
    let replay = |store: &Path, files: &[PathBuf]| {
        let files: Vec<&str> = files.iter().map(|p| arg(p)).collect();
        let into = ["--name", "sim", "--store", arg(store), "--quiet"];
        let output = run(&[&["run", "-r"], &files[..], &into[..], &RING[..]].concat());
        assert_eq!(output.status, Some(0), "{output:?}");
    };
    replay(&replayed, &packets);
    let (flows, rows) = records_and_rows(&first);
    assert!(flows.len() > 10_000 && rows.len() >= 2, "{} flows, {} rows", flows.len(), rows.len());
    assert!(records_and_rows(&replayed) == (flows.clone(), rows.clone()), "a replay differs from the recording");
    // Without the stored key the estimates for the same packets differ. So the comparison above shows that the replay
    // used the stored key.
    let copies: Vec<PathBuf> = (0..packets.len()).map(|i| dir.join(format!("{i}.pcap"))).collect();
    packets.iter().zip(&copies).for_each(|(from, to)| _ = std::fs::copy(from, to).expect("a copy"));
    replay(&without_key, &copies);
    let (other_flows, other_rows) = records_and_rows(&without_key);
    assert!(other_flows == flows, "records do not depend on the key");
    let sources = |rows: &[Value]| rows.iter().map(|row| row["sources"].clone()).collect::<Vec<_>>();
    assert_ne!(sources(&other_rows), sources(&rows));
}

/// `packets` merges the files of two queues into one capture, which is replayed with the address key of the interface.
#[test]
fn a_replay_of_two_queues_equals_their_live_records_and_rows() {
    let test = "a_replay_of_two_queues_equals_their_live_records_and_rows";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let dir = TempDir::new(test);
    let (a, b) = sandbox.veth("pa", "pb");
    let (live, replayed, merged) = (dir.join("live"), dir.join("replayed"), dir.join("merged.pcapng"));
    let two = ["--set", "capture.queues=2", "--set", "capture.source=tpacket", "--set", "listen.socket=none"];
    let args = ["run", "-i", &b.name, "--store", arg(&live), "--json"];
    let (running, err) = Running::start(&mut netgrain(&[&args[..], &two[..], &RING[..]].concat()));
    let frames: Vec<Vec<u8>> = (0..6000).map(frame).collect();
    for some in frames.chunks(1000) {
        RawSender::new(&a).send(some);
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    until("a row with the last packets", || {
        let reported = run(&["series", "--store", arg(&live), "--json"]);
        let sum: u64 = objects(&reported.out).iter().filter_map(|row| row["packets"].as_u64()).sum();
        sum == frames.len() as u64
    });
    signal(&running.0, "INT");
    let output = running.end(err);
    assert_eq!(output.status, Some(0), "{output:?}");
    let report = objects(&output.out).pop().expect("a report");
    let queues = report["report"]["queues"].as_array().expect("queues");
    let output = run(&["packets", "--store", arg(&live), "-w", arg(&merged)]);
    assert_eq!(output.status, Some(0), "{output:?}");
    let key = std::fs::read_to_string(live.join(&b.name).join(".meter-key")).expect("the key of the interface");
    let key = format!("series.key={}", key.trim());
    let into = ["--name", &b.name, "--store", arg(&replayed), "--set", &key, "--quiet"];
    let output = run(&[&["run", "-r", arg(&merged)], &into[..], &RING[..]].concat());
    assert_eq!(output.status, Some(0), "{output:?}");
    let ((flows, rows), (same_flows, same_rows)) = (records_and_rows(&live), records_and_rows(&replayed));
    assert_eq!(flows.len(), 3000, "each flow has both directions");
    assert!(flows == same_flows, "the records differ");
    assert_eq!(trim_silence(rows), trim_silence(same_rows));
    if queues.iter().filter(|q| q["counts"]["stored"].as_u64() > Some(0)).count() < 2 {
        testkit::skip(test, "the kernel gave all packets to one queue, so nothing was merged");
    }
}

/// The frame of packet `n`. The first packets are one packet of each of 3000 flows in the forward direction; the next
/// are one packet of each flow in the reverse direction.
fn frame(n: usize) -> Vec<u8> {
    let (host, back) = (n % 3000, n >= 3000);
    let (client, server) = ([10, 1, (host / 250) as u8, (host % 250) as u8], [10, 2, (host % 7) as u8, 1]);
    let mut bytes = [0; 90];
    let frame = if back { Frame::udp4(server, 53, client, 4000) } else { Frame::udp4(client, 4000, server, 53) };
    frame.fill(&mut bytes).to_vec()
}

#[test]
fn run_reads_a_pipe_on_standard_input_or_by_path() {
    let dir = TempDir::new("capture_by_pipe");
    let (first, piped, named) = (dir.join("first"), dir.join("piped"), dir.join("named"));
    let spec = ["--sim", "imix,flows=500,rate=20kpps", "--packets", "5k", "--quiet"];
    let output = run(&[&["run", "--store", arg(&first)], &spec[..], &RING[..]].concat());
    assert_eq!(output.status, Some(0), "{output:?}");
    let capture = captures(&first).remove(0);
    let into = |store: &Path| ["--name", "sim", "--store", arg(store), "--quiet"].map(str::to_owned);
    let mut command = netgrain(&["run", "-r", "-"]);
    let input = std::fs::File::open(&capture).expect("a capture");
    let mut cat =
        std::process::Command::new("cat").stdin(input).stdout(std::process::Stdio::piped()).spawn().expect("cat");
    let output = command
        .args(into(&piped))
        .args(RING)
        .stdin(cat.stdout.take().expect("a pipe"))
        .output()
        .expect("the process starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(cat.wait().expect("cat").success());
    let path = dir.join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo").success());
    let (from, to) = (capture, path.clone());
    let writer = std::thread::spawn(move || std::fs::copy(from, to));
    let mut command = netgrain(&["run", "-r", arg(&path)]);
    let output = command.args(into(&named)).args(RING).output().expect("the process starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(writer.join().expect("a thread").is_ok());
    let flows = |store| records_and_rows(store).0;
    assert!(flows(&first).len() > 100 && flows(&piped).len() == flows(&first).len());
    assert!(flows(&piped) == flows(&named), "a path and standard input differ");
}

/// A capture of UDP packets at intervals of `interval`.
fn slow_capture(path: &Path, packets: u64, interval: std::time::Duration) {
    let file = std::fs::File::create(path).expect("a file");
    let mut writer = pcap::classic::Writer::new(std::io::BufWriter::new(file), pcap::classic::Resolution::Nanos, 1)
        .expect("a header");
    for n in 0..packets {
        let ts = base::Timestamp::from_secs_nanos(1_700_000_000, 0).after(interval * n as u32);
        let mut buffer = [0; 128];
        let frame = Frame::udp4([10, 0, (n >> 8) as u8, n as u8], 1000 + n as u16, [10, 1, 0, 1], 53);
        let bytes = frame.fill(&mut buffer);
        writer.write(ts, bytes.len() as u32, bytes).expect("a packet");
    }
    writer.finish().expect("a capture");
}

/// The peak memory of a run of the binary, in bytes.
fn peak_memory(args: &[&str]) -> u64 {
    let mut child = netgrain(args).stdout(std::process::Stdio::null()).spawn().expect("the binary");
    let mut max = 0;
    loop {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        max = max.max(kib.unwrap_or(0) << 10);
        if let Some(status) = child.try_wait().expect("a child") {
            assert!(status.success(), "{args:?}");
            return max;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

#[test]
fn the_memory_of_a_replay_does_not_grow_with_the_capture_duration() {
    let dir = TempDir::new("a_capture_of_hours");
    let (slow, fast) = (dir.join("slow.pcap"), dir.join("fast.pcap"));
    slow_capture(&slow, 5000, std::time::Duration::from_secs(2));
    slow_capture(&fast, 5000, std::time::Duration::from_millis(1));
    let ring = ["--set", "capture.ring=8MiB"];
    for (n, verb) in [&["run"][..], &["record"][..]].into_iter().enumerate() {
        let of = |file: &Path, store: &str| {
            let store = dir.join(format!("{store}-{n}"));
            let given = ["-r", arg(file), "--store", arg(&store), "-q"];
            let rings: &[&str] = if n == 0 { &ring } else { &["--ring", "8MiB"] };
            peak_memory(&[verb, &given[..], rings].concat())
        };
        let (slow, fast) = (of(&slow, "slow"), of(&fast, "fast"));
        // If a run needed memory for each second of the capture, the capture of hours would take seven gigabytes more
        // than the capture of seconds.
        assert!(slow < fast + (200 << 20), "{verb:?}: {slow} bytes for hours, {fast} for seconds");
    }
}

#[test]
fn a_sparse_capture_of_two_weeks_has_few_rows_and_files() {
    let dir = TempDir::new("a_capture_of_two_weeks");
    let (file, store) = (dir.join("weeks.pcap"), dir.join("store"));
    slow_capture(&file, 720, std::time::Duration::from_secs(1800));
    let given = ["run", "-r", arg(&file), "--store", arg(&store), "-q", "--set", "flow.idle_timeout=3650d"];
    let output = run(&[&given[..], &RING[..]].concat());
    assert_eq!(output.status, Some(0), "{output:?}");
    let (records, rows) = records_and_rows(&store);
    // The output has a gap object between two rows.
    let rows = rows.iter().filter(|row| row.get("second").is_some()).count();
    assert_eq!((records.len(), rows), (720, 720));
    let files = walk(&store);
    let count = |ending: &str| files.iter().filter(|p| p.to_string_lossy().ends_with(ending)).count();
    assert_eq!((count(".pcap"), count(".ngi")), (1, 1));
    assert!(count(".series.parquet") <= 17, "{} files of rows for sixteen days", count(".series.parquet"));
}
