//! Captures are replayed into one store in another order than that of their times. The results of queries for intervals
//! of the store agree with the captures and with the rows of the meter.

use crate::common;

use base::{Prng, Timestamp};
use common::{Running, arg, netgrain, objects, run, run_command, until};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use testkit::TempDir;
use wire::build::Frame;

/// 2020-09-13T12:26:40Z.
const START: u64 = 1_600_000_000;

fn capture(path: &Path, stamps: impl Iterator<Item = Timestamp>) {
    let mut file = pcap::FILE_HEADER_NS.to_vec();
    let mut buffer = [0; 1000];
    for (i, ts) in stamps.enumerate() {
        let (host, len) = ((i % 200) as u8, 100 + i % 900);
        let frame = match i % 3 {
            0 => Frame::tcp4([10, 0, 0, host], 4000, [10, 1, 0, 1], 443),
            _ => Frame::udp4([10, 0, 0, host], 4000, [10, 1, 0, 1], 53),
        };
        file.extend(pcap::record_header_ns(ts, len as u32, len as u32));
        file.extend(frame.fill(&mut buffer[..len]));
    }
    std::fs::write(path, file).expect("a capture");
}

/// Four captures of 10 s each; the fourth begins an hour before the others. About one packet in 50 has a timestamp that
/// is up to 90 ms earlier than its position in the capture.
fn parts(dir: &TempDir) -> Vec<PathBuf> {
    let mut prng = Prng::new(1);
    let begins = [0, 10, 20, -3600];
    let mut out = Vec::new();
    for (number, begin) in begins.into_iter().enumerate() {
        let path = dir.join(format!("part{number}.pcap"));
        let from = Timestamp::from_secs_nanos(START.saturating_add_signed(begin), 0);
        capture(
            &path,
            (0..2500u64).map(|i| {
                let late = if i > 100 && prng.below(50) == 0 { prng.below(90) } else { 0 };
                from.after(Duration::from_millis(4 * i - late))
            }),
        );
        out.push(path);
    }
    out
}

fn count(args: &[&str]) -> (u64, Option<i32>) {
    let output = run(&[&["packets", "--count", "--json"], args].concat());
    let reported = objects(&output.out).pop().unwrap_or_default();
    (reported["packets"].as_u64().unwrap_or_else(|| panic!("{output:?}")), output.status)
}

#[test]
fn an_out_of_order_store_and_its_captures_give_equal_results() {
    let test = "an_out_of_order_store_and_its_captures_give_equal_results";
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let dir = TempDir::new("cli-out-of-order");
    let parts = parts(&dir);
    let given: Vec<&str> = [2, 1, 0, 3].map(|i| arg(&parts[i])).into();
    for segment in ["2MiB", "64MiB"] {
        let store = dir.join(segment);
        let set = format!("packets.segment={segment}");
        let into = ["--store", arg(&store), "--name", "e", "--set", &set, "--set", "capture.ring=8MiB", "--quiet"];
        let output = run(&[&["run", "-r"], &given[..], &into[..]].concat());
        assert_eq!(output.status, Some(0), "{output:?}");
        assert!((output.err.clone() + &output.out).contains("were out of order, up to 36"), "{output:?}");
        for round in 0..12 {
            let edge = |prng: &mut Prng| {
                let begin = if prng.below(4) == 0 { START - 3600 } else { START };
                begin as f64 + prng.below(32_000) as f64 / 1000.0 - 1.0
            };
            let (a, b) = (edge(&mut prng), edge(&mut prng));
            let (from, to) = (format!("{:.3}", a.min(b)), format!("{:.3}", a.max(b)));
            let when = ["--from", &from, "--to", &to];
            let filter: &[&str] = if round % 3 == 0 { &["tcp"] } else { &[] };
            let read: Vec<&str> = given.iter().flat_map(|path| ["-r", *path]).collect();
            let (expected, _) = count(&[&read[..], &when[..], filter].concat());
            let found = count(&[&["--store", arg(&store)], &when[..], filter].concat());
            let what = format!("seed {seed}, segments of {segment}, {from} to {to} {filter:?}");
            assert_eq!(found, (expected, Some(i32::from(expected == 0))), "{what}");
        }
        // The series with a filter is computed from packets. The series without a filter consists of the rows of the
        // meter.
        let series = |args: &[&str]| {
            let output = run(&[&["series", "--store", arg(&store), "--json"], args].concat());
            assert_eq!(output.status, Some(0), "{output:?}");
            let rows = objects(&output.out).into_iter().map(|row| (row["second"].clone(), row["packets"].clone()));
            rows.filter(|(_, packets)| packets != 0).collect::<Vec<_>>()
        };
        let when = ["--from", "1600000003", "--to", "1600000024"];
        let of_packets = series(&[&when[..], &["ip"]].concat());
        assert!(of_packets.len() > 20, "{of_packets:?}");
        assert_eq!(of_packets, series(&when), "segments of {segment}");
        let output = run(&["verify", arg(&store)]);
        assert_eq!(output.status, Some(0), "{output:?}");
    }
}

#[test]
fn a_repeated_replay_is_reported_and_a_truncated_capture_is_stored() {
    let dir = TempDir::new("cli-again");
    let (path, store) = (dir.join("whole.pcap"), dir.join("store"));
    capture(&path, (0..500).map(|i| Timestamp::from_secs_nanos(START + i / 100, 0)));
    let replay = |verb: &str, path: &Path, store: &Path| {
        let ring = if verb == "run" { ["--set", "capture.ring=8MiB"] } else { ["--ring", "8MiB"] };
        run_command(&mut netgrain(&[&[verb, "-r", arg(path), "--store", arg(store), "--quiet"], &ring[..]].concat()))
    };
    let output = replay("run", &path, &store);
    assert!(output.status == Some(0) && !output.err.contains("already"), "{output:?}");
    let output = replay("run", &path, &store);
    assert!((output.err.clone() + &output.out).contains("and this recording is stored in addition"), "{output:?}");
    let bytes = std::fs::read(&path).expect("the capture");
    let cut = dir.join("cut.pcap");
    std::fs::write(&cut, &bytes[..bytes.len() - 30]).expect("a capture");
    for verb in ["run", "record"] {
        let store = dir.join(verb);
        let output = replay(verb, &cut, &store);
        assert_eq!(output.status, Some(1), "{output:?}");
        assert!(output.err.contains("at least one packet was lost there"), "{output:?}");
        assert_eq!(count(&["--store", arg(&store)]), (499, Some(0)), "{verb}");
        let nothing = dir.join("nothing.pcap");
        assert_eq!(replay(verb, &nothing, &store).status, Some(2), "a file that does not exist");
        std::fs::write(&nothing, b"no capture at all").expect("a file");
        assert_eq!(replay(verb, &nothing, &store).status, Some(2), "a file that is not a capture");
        std::fs::remove_file(&nothing).expect("the file");
    }
}

/// Writes a capture of five flows with two packets per second in each direction. The flows have packets in these ranges
/// of seconds, in this order.
fn write_flows(path: &Path, ranges: &[(u64, u64)]) {
    let mut file = pcap::FILE_HEADER_NS.to_vec();
    let mut buffer = [0; 200];
    for (from, to) in ranges {
        for i in 2 * from..2 * to {
            for host in 0..10u8 {
                let at = Duration::from_millis(500 * i + 20 * u64::from(host));
                let (client, server) = ([10, 0, 0, host % 5], [10, 1, 0, 1]);
                let frame = match host < 5 {
                    true => Frame::udp4(client, 4000, server, 53),
                    false => Frame::udp4(server, 53, client, 4000),
                };
                let ts = Timestamp::from_secs_nanos(START, 0).after(at);
                file.extend(pcap::record_header_ns(ts, buffer.len() as u32, buffer.len() as u32));
                file.extend(frame.fill(&mut buffer));
            }
        }
    }
    std::fs::write(path, file).expect("a capture");
}

/// The captures that are replayed into one store. Each capture is a list of time ranges in which it has packets; a
/// range is given by its first second and the second after its last.
type Captures<'a> = &'a [&'a [(u64, u64)]];

#[test]
fn the_packets_of_a_flow_match_its_records_also_where_time_steps_back() {
    // Each case has the captures of one store in order of replay, and the number of records that each flow then has.
    let cases: [(Captures<'_>, usize); 6] = [
        (&[&[(100, 130), (90, 140)]], 1),
        (&[&[(100, 130), (75, 95), (110, 130), (90, 100)]], 1),
        // If the timestamps step back by more than the tolerance, a new record begins. The interval of this record
        // contains the interval of the first record.
        (&[&[(200, 230), (130, 240)]], 2),
        (&[&[(600, 630), (330, 380), (631, 660)]], 3),
        (&[&[(2000, 2030)], &[(1975, 2000)]], 1),
        (&[&[(3000, 3030)], &[(2900, 3000)], &[(2990, 3010)]], 2),
    ];
    for (number, (captures, records_of_a_flow)) in cases.into_iter().enumerate() {
        let dir = TempDir::new("cli-flows-back");
        let paths: Vec<PathBuf> = (0..captures.len()).map(|i| dir.join(format!("{i}.pcap"))).collect();
        paths.iter().zip(captures).for_each(|(path, ranges)| write_flows(path, ranges));
        let (given, store) = (paths.iter().map(|path| arg(path)).collect::<Vec<_>>(), dir.join("store"));
        let store = arg(&store);
        let into = ["--store", store, "--name", "e", "--set", "capture.ring=8MiB", "--quiet"];
        let output = run(&[&["run", "-r"], &given[..], &into[..]].concat());
        assert_eq!(output.status, Some(0), "{output:?}");
        let records = objects(&run(&["flows", "--store", store, "--json"]).out);
        assert_eq!(records.len(), 5 * records_of_a_flow, "case {number}");
        let mut of_flows = std::collections::BTreeMap::<String, u64>::new();
        for record in &records {
            let id = record["id"].as_str().unwrap_or_else(|| panic!("{record}")).to_owned();
            *of_flows.entry(id).or_default() += record["packets"].as_u64().expect("a number");
        }
        let sent: u64 = captures.iter().copied().flatten().map(|(from, to)| 20 * (to - from)).sum();
        assert_eq!(of_flows.values().sum::<u64>(), sent, "case {number}: every packet is in a record");
        let found = |args: &[&str]| {
            let output = run(&[args, &["--store", store, "--count", "--json"]].concat());
            assert_eq!((output.status, output.err.as_str()), (Some(0), ""), "case {number}: {args:?}");
            objects(&output.out).pop().and_then(|reported| reported["packets"].as_u64())
        };
        assert_eq!(found(&["flows", "--packets"]), Some(sent), "case {number}");
        for (id, packets) in &of_flows {
            assert_eq!(found(&["packets", "--flow", id]), Some(*packets), "case {number}: flow {id}");
        }
    }
}

#[test]
fn follow_continues_after_the_clock_steps_back_and_forward() {
    for listening in [true, false] {
        let dir = TempDir::new("cli-follow-back");
        let (store, socket) = (dir.join("store"), dir.join("socket"));
        let socket = if listening { arg(&socket) } else { "none" };
        let into = ["--store", arg(&store), "--socket", socket, "--ring", "8MiB", "--segment", "2MiB", "--quiet"];
        let mut recorder = netgrain(&[&["record", "-r", "-"], &into[..]].concat());
        let quiet = recorder.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut recorder = Running(quiet.spawn().expect("the process starts"));
        // Packets that a recorder reads from a pipe are stored in order of arrival, with the timestamps that they have
        // in the pipe.
        let mut wire = recorder.0.stdin.take().expect("a pipe");
        wire.write_all(&pcap::FILE_HEADER_NS).expect("a recorder");
        let mut sent = 0;
        let mut send = |packets: u64, len: usize, step: i64| {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
            let clock = Timestamp::from_secs_nanos(now.as_secs().saturating_add_signed(step), 0);
            let mut buffer = vec![0; len];
            for i in 0..packets {
                // The timestamps of each call span 3 s. The ticks of these seconds make the recorder write the earlier
                // packets to the file.
                let ts = clock.after(Duration::from_millis(3000 * i / packets));
                let frame = Frame::udp4([10, 0, 0, 1], sent, [10, 1, 0, 1], 53);
                wire.write_all(&pcap::record_header_ns(ts, len as u32, len as u32)).expect("a recorder");
                wire.write_all(frame.fill(&mut buffer)).expect("a recorder");
                sent += 1;
            }
            wire.flush().expect("a recorder");
        };
        send(30, 100, -20);
        until("it records", || run(&["packets", "--store", arg(&store), "--count"]).status == Some(0));
        let mut follower = netgrain(&["packets", "--store", arg(&store), "--follow", "--json"]);
        let mut follower =
            Running(follower.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the process starts"));
        let lines = BufReader::new(follower.0.stdout.take().expect("a pipe")).lines();
        let found = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&found);
        let reader = std::thread::spawn(move || {
            for line in lines {
                let packet = objects(&line.expect("text")).remove(0);
                into.lock().expect("a list").push(packet["src_port"].as_u64().expect("a port"));
            }
        });
        let has = |last: u64| found.lock().expect("a list").last() == Some(&last);
        // The query has begun when it prints the first packet; the start of its interval is not known before.
        let mut first = 30;
        until("it follows", || {
            send(30, 100, 0);
            std::thread::sleep(Duration::from_millis(300));
            first += 30;
            !found.lock().expect("a list").is_empty()
        });
        let begun = first;
        // Timestamps step back by an hour, for enough packets to fill several files of 2 MiB, and then step forward
        // again.
        let steps = [(50, 100, -3600), (100, 100, 30), (100, 100, 34)];
        let mut phases = steps.to_vec();
        phases.splice(1..1, (0..10).map(|i| (500, 1400, -3590 + i)));
        for (packets, len, step) in phases {
            send(packets, len, step);
            // During the pause, the query reads each file while the recorder still writes.
            std::thread::sleep(Duration::from_millis(400));
        }
        drop(wire);
        until("the query prints the last packet sent", || has(begun + 5249));
        assert!(recorder.0.wait().expect("an end").success());
        reader.join().expect("a reader");
        let found = found.lock().expect("a list").clone();
        let first = *found.first().expect("packets");
        assert!(
            first < begun && found.iter().copied().eq(first..begun + 5250),
            "listening {listening}: {} from {first}",
            found.len()
        );
    }
}
