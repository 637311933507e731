//! What was recorded and is metered again gives the records and rows of the recording, down to the estimates of
//! distinct addresses, whose secret lies beside the packets.

use crate::common;

use common::{Running, arg, netgrain, objects, run, signal, until, walk};
use serde_json::Value;
use std::path::{Path, PathBuf};
use testkit::{RawSender, Sandbox, TempDir};
use wire::build::Frame;

const RING: [&str; 2] = ["--set", "capture.ring=8MiB"];

/// Records and rows of a store, without what says where the packets lie: that is another place in another store.
fn made(store: &Path) -> (Vec<Value>, Vec<Value>) {
    let bare = |mut object: Value| {
        for key in ["queue", "position", "position_span"] {
            object.as_object_mut().expect("an object").remove(key);
        }
        object
    };
    let flows = run(&["flows", "--store", arg(store), "--json"]);
    let rows = run(&["series", "--store", arg(store), "--json"]);
    assert_eq!((flows.status, rows.status), (Some(0), Some(0)), "{flows:?} {rows:?}");
    (objects(&flows.out).into_iter().map(bare).collect(), objects(&rows.out))
}

/// Rows without silence at the ends, and without the remarks that only the source can make: files know of none.
fn seen(rows: Vec<Value>) -> Vec<Value> {
    let silent = |row: &Value| row["packets"] == 0;
    let from = rows.iter().take_while(|row| silent(row)).count();
    let to = rows.len() - rows.iter().rev().take_while(|row| silent(row)).count();
    rows[from..to].to_vec()
}

fn captures(store: &Path) -> Vec<PathBuf> {
    walk(store).into_iter().filter(|p| p.extension().is_some_and(|e| e == "pcap")).collect()
}

#[test]
fn a_recording_under_a_secret_is_metered_again_with_the_same_estimates_and_outside_its_store_with_others() {
    let dir = TempDir::new("a_recording_under_a_secret");
    let (first, again, strange) = (dir.join("first"), dir.join("again"), dir.join("strange"));
    let spec = ["--sim", "imix,flows=20000,rate=20kpps", "--packets", "40k", "--quiet"];
    let secret = ["--set", "series.key=00c0ffee00c0ffee"];
    let said = run(&[&["run", "--store", arg(&first)], &spec[..], &secret[..], &RING[..]].concat());
    assert_eq!(said.status, Some(0), "{said:?}");
    let packets = captures(&first);
    let replay = |store: &Path, files: &[PathBuf]| {
        let files: Vec<&str> = files.iter().map(|p| arg(p)).collect();
        let into = ["--name", "sim", "--store", arg(store), "--quiet"];
        let said = run(&[&["run", "-r"], &files[..], &into[..], &RING[..]].concat());
        assert_eq!(said.status, Some(0), "{said:?}");
    };
    replay(&again, &packets);
    let (flows, rows) = made(&first);
    assert!(flows.len() > 10_000 && rows.len() >= 2, "{} flows, {} rows", flows.len(), rows.len());
    assert!(made(&again) == (flows.clone(), rows.clone()), "a replay differs from the recording");
    // Without the secret the same packets are counted with other errors: what is compared above depends on it.
    let copies: Vec<PathBuf> = (0..packets.len()).map(|i| dir.join(format!("{i}.pcap"))).collect();
    packets.iter().zip(&copies).for_each(|(from, to)| _ = std::fs::copy(from, to).expect("a copy"));
    replay(&strange, &copies);
    let (other_flows, other_rows) = made(&strange);
    assert!(other_flows == flows, "records do not depend on the secret");
    let sources = |rows: &[Value]| rows.iter().map(|row| row["sources"].clone()).collect::<Vec<_>>();
    assert_ne!(sources(&other_rows), sources(&rows));
}

/// A port with two queues, recorded live, is put together by `packets` and metered again under the port's secret.
#[test]
fn two_queues_of_a_port_metered_live_are_metered_alike_from_their_files() {
    let test = "two_queues_of_a_port_metered_live_are_metered_alike_from_their_files";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let dir = TempDir::new(test);
    let (a, b) = sandbox.veth("pa", "pb");
    let (live, again, merged) = (dir.join("live"), dir.join("again"), dir.join("merged.pcapng"));
    let two = ["--set", "capture.queues=2", "--set", "capture.source=tpacket", "--set", "listen.socket=none"];
    let args = ["run", "-i", &b.name, "--store", arg(&live), "--json"];
    let (running, err) = Running::start(&mut netgrain(&[&args[..], &two[..], &RING[..]].concat()));
    let frames: Vec<Vec<u8>> = (0..6000).map(talk).collect();
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
    let said = running.end(err);
    assert_eq!(said.status, Some(0), "{said:?}");
    let report = objects(&said.out).pop().expect("a report");
    let queues = report["report"]["queues"].as_array().expect("queues");
    let said = run(&["packets", "--store", arg(&live), "-w", arg(&merged)]);
    assert_eq!(said.status, Some(0), "{said:?}");
    let secret = std::fs::read_to_string(live.join(&b.name).join(".meter-key")).expect("the port's secret");
    let secret = format!("series.key={}", secret.trim());
    let into = ["--name", &b.name, "--store", arg(&again), "--set", &secret, "--quiet"];
    let said = run(&[&["run", "-r", arg(&merged)], &into[..], &RING[..]].concat());
    assert_eq!(said.status, Some(0), "{said:?}");
    let ((flows, rows), (same_flows, same_rows)) = (made(&live), made(&again));
    assert_eq!(flows.len(), 3000, "each with both directions");
    assert!(flows == same_flows, "other records");
    assert_eq!(seen(rows), seen(same_rows));
    if queues.iter().filter(|q| q["counts"]["stored"].as_u64() > Some(0)).count() < 2 {
        testkit::skip(test, "the kernel gave everything to one queue, so nothing had to be merged");
    }
}

/// Packet `n` of 3000 conversations, first there, then back.
fn talk(n: usize) -> Vec<u8> {
    let (host, back) = (n % 3000, n >= 3000);
    let (client, server) = ([10, 1, (host / 250) as u8, (host % 250) as u8], [10, 2, (host % 7) as u8, 1]);
    let mut bytes = [0; 90];
    let frame = if back { Frame::udp4(server, 53, client, 4000) } else { Frame::udp4(client, 4000, server, 53) };
    frame.fill(&mut bytes).to_vec()
}

#[test]
fn a_capture_comes_by_a_pipe_too_by_standard_input_or_a_path() {
    let dir = TempDir::new("a_capture_comes_by_a_pipe");
    let (first, piped, named) = (dir.join("first"), dir.join("piped"), dir.join("named"));
    let spec = ["--sim", "imix,flows=500,rate=20kpps", "--packets", "5k", "--quiet"];
    let said = run(&[&["run", "--store", arg(&first)], &spec[..], &RING[..]].concat());
    assert_eq!(said.status, Some(0), "{said:?}");
    let capture = captures(&first).remove(0);
    let into = |store: &Path| ["--name", "sim", "--store", arg(store), "--quiet"].map(str::to_owned);
    let mut command = netgrain(&["run", "-r", "-"]);
    let input = std::fs::File::open(&capture).expect("a capture");
    let mut cat =
        std::process::Command::new("cat").stdin(input).stdout(std::process::Stdio::piped()).spawn().expect("cat");
    let said =
        command.args(into(&piped)).args(RING).stdin(cat.stdout.take().expect("a pipe")).output().expect("it starts");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    assert!(cat.wait().expect("cat").success());
    let path = dir.join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo").success());
    let (from, to) = (capture, path.clone());
    let writer = std::thread::spawn(move || std::fs::copy(from, to));
    let mut command = netgrain(&["run", "-r", arg(&path)]);
    let said = command.args(into(&named)).args(RING).output().expect("it starts");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    assert!(writer.join().expect("a thread").is_ok());
    let flows = |store| made(store).0;
    assert!(flows(&first).len() > 100 && flows(&piped).len() == flows(&first).len());
    assert!(flows(&piped) == flows(&named), "a path and standard input differ");
}

/// A capture of UDP packets, each a while behind the one before it.
fn slow_capture(path: &Path, packets: u64, apart: std::time::Duration) {
    let file = std::fs::File::create(path).expect("a file");
    let mut writer = pcap::classic::Writer::new(std::io::BufWriter::new(file), pcap::classic::Resolution::Nanos, 1)
        .expect("a header");
    for n in 0..packets {
        let ts = base::Timestamp::from_secs_nanos(1_700_000_000, 0).after(apart * n as u32);
        let mut buffer = [0; 128];
        let frame = Frame::udp4([10, 0, (n >> 8) as u8, n as u8], 1000 + n as u16, [10, 1, 0, 1], 53);
        let bytes = frame.fill(&mut buffer);
        writer.write(ts, bytes.len() as u32, bytes).expect("a packet");
    }
    writer.finish().expect("a capture");
}

/// The most memory that a run of the binary had, in bytes.
fn peak(args: &[&str]) -> u64 {
    let mut child = netgrain(args).stdout(std::process::Stdio::null()).spawn().expect("the binary");
    let mut most = 0;
    loop {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        most = most.max(kib.unwrap_or(0) << 10);
        if let Some(status) = child.try_wait().expect("a child") {
            assert!(status.success(), "{args:?}");
            return most;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

#[test]
fn a_capture_of_hours_takes_the_memory_of_its_packets_and_not_of_its_seconds_squared() {
    let dir = TempDir::new("a_capture_of_hours");
    let (slow, quick) = (dir.join("slow.pcap"), dir.join("quick.pcap"));
    slow_capture(&slow, 5000, std::time::Duration::from_secs(2));
    slow_capture(&quick, 5000, std::time::Duration::from_millis(1));
    let ring = ["--set", "capture.ring=8MiB"];
    for (n, verb) in [&["run"][..], &["record"][..]].into_iter().enumerate() {
        let of = |file: &Path, store: &str| {
            let store = dir.join(format!("{store}-{n}"));
            let given = ["-r", arg(file), "--store", arg(&store), "-q"];
            let rings: &[&str] = if n == 0 { &ring } else { &["--ring", "8MiB"] };
            peak(&[verb, &given[..], rings].concat())
        };
        let (slow, quick) = (of(&slow, "slow"), of(&quick, "quick"));
        // It was seven gigabytes more.
        assert!(slow < quick + (200 << 20), "{verb:?}: {slow} bytes for hours, {quick} for seconds");
    }
}

#[test]
fn a_capture_of_two_weeks_makes_rows_and_files_of_what_it_has() {
    let dir = TempDir::new("a_capture_of_two_weeks");
    let (file, store) = (dir.join("weeks.pcap"), dir.join("store"));
    slow_capture(&file, 720, std::time::Duration::from_secs(1800));
    let given = ["run", "-r", arg(&file), "--store", arg(&store), "-q", "--set", "flow.idle_timeout=3650d"];
    let said = run(&[&given[..], &RING[..]].concat());
    assert_eq!(said.status, Some(0), "{said:?}");
    let (records, rows) = made(&store);
    // What lies between two rows is told as a gap.
    let rows = rows.iter().filter(|row| row.get("second").is_some()).count();
    assert_eq!((records.len(), rows), (720, 720));
    let files = walk(&store);
    let count = |ending: &str| files.iter().filter(|p| p.to_string_lossy().ends_with(ending)).count();
    assert_eq!((count(".pcap"), count(".ngi")), (1, 1));
    assert!(count(".series.parquet") <= 17, "{} files of rows for sixteen days", count(".series.parquet"));
}
