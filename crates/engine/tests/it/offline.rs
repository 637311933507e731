//! Capture files replayed into a store: the stored packets equal those of the capture.

use crate::common;

use base::{Cause, Prng, Timestamp};
use capture::SourceError;
use common::{Ended, Packet, file, frame, plan, read_capture, run, walk, write_capture};
use netgrain_engine::EngineError;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::TempDir;

const START: Timestamp = Timestamp::from_secs_nanos(1_700_000_000, 0);

fn pairs(ended: &Ended) -> Vec<(Timestamp, Vec<u8>)> {
    ended.packets().map(|p| (p.ts, p.bytes.clone())).collect()
}

#[test]
fn a_damaged_tail_loses_one_record_and_is_reported() {
    let test = "a_damaged_tail_loses_one_record_and_is_reported";
    let (dir, mut random) = (TempDir::new(test), Prng::new(testkit::seed(test)));
    let whole = dir.join("whole.pcap");
    let packets: Vec<_> =
        (0..200).map(|i| (START.after(Duration::from_micros(i)), frame(i as u32, 60 + i as usize, &[]))).collect();
    write_capture(&whole, packets.clone());
    let bytes = std::fs::read(&whole).expect("the file");
    for round in 0..20 {
        // A random position after the file header that is not a record boundary.
        let cut = (25 + random.below(bytes.len() as u64 - 25)) as usize;
        let (mut at, mut intact) = (24, 0);
        while at + 16 + packets[intact].1.len() <= cut {
            at += 16 + packets[intact].1.len();
            intact += 1;
        }
        if at == cut {
            continue;
        }
        let path = dir.join(format!("cut-{round}.pcap"));
        std::fs::write(&path, &bytes[..cut]).expect("a file");
        let ended = run(&plan(file(&path), &dir.join(format!("store-{round}"))));
        assert_eq!(pairs(&ended), packets[..intact], "cut at byte {cut}");
        assert_eq!((ended.lost(Cause::Source), ended.report.counts.offered), (1, intact as u64 + 1));
        match &ended.outcome {
            Err(EngineError::Source(SourceError::Corrupt { name, offset, .. })) => {
                assert_eq!((name.as_str(), *offset), (path.to_str().expect("a name"), at as u64));
            }
            other => panic!("cut at byte {cut}: {other:?}"),
        }
    }
}

#[test]
fn a_file_that_is_no_capture_is_rejected_at_the_start() {
    let dir = TempDir::new("a_file_that_is_no_capture_is_rejected_at_the_start");
    let path = dir.join("text");
    std::fs::write(&path, "this is no capture file, and it is longer than a file header").expect("a file");
    let error = netgrain_engine::Capture::start(&plan(file(&path), &dir.join("store"))).err().expect("an error");
    assert!(error.to_string().starts_with(path.to_str().expect("a name")), "{error}");
    assert!(walk(&dir.join("store")).is_empty());
}

#[test]
fn packets_of_another_link_type_are_counted_and_a_warning_names_it() {
    use pcap::ng;
    let dir = TempDir::new("packets_of_another_link_type_are_counted");
    let path = dir.join("mixed.pcapng");
    let mut out = ng::Writer::new(std::fs::File::create(&path).expect("a file"), "test", "").expect("a header");
    let wired = out.interface("wired", 1).expect("an interface");
    let radio = out.interface("radio", 127).expect("an interface");
    for i in 0..30u32 {
        let bytes = frame(i, 60, &[]);
        let interface = if i % 3 == 2 { radio } else { wired };
        out.packet(interface, START, 60, &bytes, ng::PacketOptions::default()).expect("a packet");
    }
    out.finish().expect("the end");
    let ended = run(&plan(file(&path), &dir.join("store")));
    assert!(ended.outcome.is_ok());
    assert_eq!((ended.report.counts.stored, ended.lost(Cause::Source)), (20, 10));
    assert!(
        ended.has_warning("10 packets of link type 127 (IEEE802_11_RADIOTAP) were not read"),
        "{:?}",
        ended.report.warnings
    );
}

#[test]
fn the_replay_of_a_file_larger_than_the_ring_loses_no_packet() {
    let test = "the_replay_of_a_file_larger_than_the_ring_loses_no_packet";
    let dir = TempDir::new(test);
    let path = dir.join("large.pcap");
    let packets: Vec<_> =
        (0..40_000).map(|i| (START.after(Duration::from_millis(i)), frame(i as u32, 1000, &[]))).collect();
    write_capture(&path, packets.clone());
    let capture_plan = netgrain_engine::Plan { segment: 2 << 20, ..plan(file(&path), &dir.join("store")) };
    let ended = run(&capture_plan);
    assert!(ended.outcome.is_ok() && ended.report.counts.lost_total == 0);
    assert!(ended.files.len() >= 20, "{} files", ended.files.len());
    assert_eq!(pairs(&ended), packets);
}

#[test]
fn frames_of_0_to_65535_bytes_are_stored_unchanged() {
    let dir = TempDir::new("frames_of_0_to_65535_bytes");
    let path = dir.join("extremes.pcap");
    let packets: Vec<_> = [0, 1, 13, 14, 15, 60, 1514, 9014, 65_534, 65_535, 0, 1]
        .into_iter()
        .enumerate()
        .map(|(i, len)| (START.after(Duration::from_nanos(i as u64)), frame(i as u32, len, &[])))
        .collect();
    write_capture(&path, packets.clone());
    let ended = run(&plan(file(&path), &dir.join("store")));
    assert!(ended.outcome.is_ok());
    assert_eq!(pairs(&ended), packets);
    assert_eq!(ended.note_count(base::Note::Truncated), 0);
}

#[test]
fn rotation_by_time_follows_the_timestamps_over_gaps() {
    let test = "rotation_by_time_follows_the_timestamps_over_gaps";
    let dir = TempDir::new(test);
    let path = dir.join("leaps.pcap");
    let minute = Duration::from_secs(60);
    let year = Duration::from_secs(365 * 86_400);
    let first = START.floor_to(minute);
    // There are two packets in one minute and one packet at the first nanosecond of the next minute. Then gaps of hours
    // and years follow, up to the second to last second that pcap can represent.
    let times = [
        first.after(Duration::from_secs(10)),
        first.after(Duration::from_nanos(59_999_999_999)),
        first.after(minute),
        first.after(3 * 60 * minute),
        first.after(5 * year),
        first.after(5 * year + Duration::from_millis(1)),
        first.after(40 * year),
        Timestamp::from_secs_nanos(u64::from(u32::MAX) - 1, 999_999_999),
    ];
    let packets: Vec<_> = times.iter().enumerate().map(|(i, t)| (*t, frame(i as u32, 100, &[]))).collect();
    write_capture(&path, packets.clone());
    let capture_plan = netgrain_engine::Plan { rotate: Some(minute), ..plan(file(&path), &dir.join("store")) };
    let ended = run(&capture_plan);
    assert!(ended.outcome.is_ok());
    assert_eq!(pairs(&ended), packets);
    let minutes: BTreeSet<_> = times.iter().map(|t| t.floor_to(minute)).collect();
    assert_eq!(ended.files.len(), minutes.len(), "one file per minute with packets");
    for stored in &ended.files {
        let of = |p: &Packet| p.ts.floor_to(minute);
        assert!(stored.packets.windows(2).all(|w| of(&w[0]) == of(&w[1])), "{}", stored.path.display());
    }
}

#[test]
fn timestamps_that_go_back_lose_and_reorder_no_packet() {
    let test = "timestamps_that_go_back_lose_and_reorder_no_packet";
    let (dir, mut random) = (TempDir::new(test), Prng::new(testkit::seed(test)));
    let path = dir.join("back.pcap");
    let packets: Vec<_> = (0..3000)
        .map(|i| {
            (
                START.after(Duration::from_millis(random.below(3_600_000))),
                frame(i, 60 + random.below(900) as usize, &[]),
            )
        })
        .collect();
    write_capture(&path, packets.clone());
    let rotate = Some(Duration::from_secs(600));
    let ended = run(&netgrain_engine::Plan { rotate, ..plan(file(&path), &dir.join("store")) });
    assert!(ended.outcome.is_ok());
    assert_eq!(pairs(&ended), packets);
}

/// Replays every capture file below the directory of real captures (`NETGRAIN_TRACES`), and then reads all written
/// files with tcpdump, capinfos and Wireshark.
#[test]
fn every_real_capture_is_stored_unchanged_and_other_tools_read_it() {
    let test = "every_real_capture_is_stored_unchanged_and_other_tools_read_it";
    let Some(traces) = testkit::traces(test) else { return };
    let inputs: Vec<_> = walk(&traces).into_iter().filter(|p| p.to_string_lossy().contains(".pcap")).collect();
    assert!(!inputs.is_empty(), "no captures in {}", traces.display());
    let dir = TempDir::new("every_real_capture");
    let mut written = Vec::new();
    // A replay spends most of its time waiting for its threads and the volume, so several replays run in parallel.
    for (chunk, some) in inputs.chunks(8).enumerate() {
        std::thread::scope(|scope| {
            let work: Vec<_> = some
                .iter()
                .enumerate()
                .map(|(i, input)| (input, dir.join(format!("{chunk}-{i}"))))
                .map(|(input, store)| scope.spawn(move || replay(input, &store)))
                .collect();
            for thread in work {
                written.extend(thread.join().unwrap_or_else(|e| std::panic::resume_unwind(e)));
            }
        });
    }
    assert_tcpdump_agrees(test, &written);
    assert_capinfos_agrees(test, &written);
    assert_wireshark_agrees(test, &written, dir.path());
}

/// Replays one capture with hourly rotation and compares each packet. Returns path, link type and number of packets of
/// each file.
fn replay(input: &Path, store: &Path) -> Vec<(PathBuf, u16, usize)> {
    let source = std::fs::File::open(input).expect("a trace");
    let expected = if input.extension().is_some_and(|e| e == "gz") {
        read_capture(flate2::read::MultiGzDecoder::new(source))
    } else {
        read_capture(source)
    };
    let rotate = Some(Duration::from_secs(3600));
    let ended = run(&netgrain_engine::Plan { rotate, ..plan(file(input), store) });
    assert!(ended.outcome.is_ok(), "{}: {:?}", input.display(), ended.outcome);
    assert_eq!(ended.report.counts.lost_total, 0, "{}", input.display());
    assert!(ended.packets().eq(&expected), "{}: the stored packets differ", input.display());
    let of = |f: &common::Stored| (f.path.clone(), f.index.header.link_type as u16, f.packets.len());
    ended.files.iter().map(of).collect()
}

fn assert_tcpdump_agrees(test: &str, written: &[(PathBuf, u16, usize)]) {
    for (path, _, packets) in written {
        let Some(mut tcpdump) = testkit::tool(test, "tcpdump") else { return };
        let out = tcpdump.args(["-nn", "--count", "-r"]).arg(path).output().expect("tcpdump");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success() && text.starts_with(&format!("{packets} packet")), "{}: {text}", path.display());
    }
}

fn assert_capinfos_agrees(test: &str, written: &[(PathBuf, u16, usize)]) {
    let Some(mut capinfos) = testkit::tool(test, "capinfos") else { return };
    let out =
        capinfos.args(["-T", "-r", "-m", "-M", "-c"]).args(written.iter().map(|w| &w.0)).output().expect("capinfos");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert_eq!(text.lines().count(), written.len());
    for (line, (path, _, packets)) in text.lines().zip(written) {
        let count = line.rsplit(',').next().map(|c| c.trim_matches('"'));
        assert_eq!(count, Some(packets.to_string().as_str()), "{}: {line}", path.display());
    }
}

/// Merges all Ethernet files with `mergecap`, and dissects the result with `tshark`.
fn assert_wireshark_agrees(test: &str, written: &[(PathBuf, u16, usize)], dir: &Path) {
    let ethernet = || written.iter().filter(|w| w.1 == pcap::ETHERNET);
    let total: usize = ethernet().map(|w| w.2).sum();
    let merged = dir.join("merged.pcapng");
    let Some(mut mergecap) = testkit::tool(test, "mergecap") else { return };
    let out = mergecap.arg("-w").arg(&merged).args(ethernet().map(|w| &w.0)).output().expect("mergecap");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let Some(mut tshark) = testkit::tool(test, "tshark") else { return };
    // Dissectors are disabled, because they are slow and do not check the files.
    tshark.args(["-n", "--disable-protocol", "eth", "-T", "fields", "-e", "frame.number", "-r"]);
    let out = tshark.arg(&merged).output().expect("tshark");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(String::from_utf8_lossy(&out.stdout).lines().count(), total);
}
