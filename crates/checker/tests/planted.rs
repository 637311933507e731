//! The tests put every kind of defect into files of known content. The checker must find and count each defect exactly.

use base::{Prng, Timestamp};
use r#gen::Traffic;
use netgrain_checker::{CheckError, Defect, Options, Report, check};
use std::collections::BTreeSet;
use std::path::PathBuf;
use testkit::TempDir;

const START: u64 = 1_700_000_000_000_000_000;
const STEP: u64 = 1000;
/// Time from the departure of each frame to its timestamp.
const LATENCY: u64 = 300;

/// A packet to be stored.
#[derive(Clone, Debug)]
struct Packet {
    stamp: u64,
    wire_len: usize,
    bytes: Vec<u8>,
}

/// Generates `count` frames with sequence numbers and checksums, one per microsecond.
fn traffic(spec: &str, count: u64) -> Vec<Packet> {
    let mut traffic = Traffic::new(&format!("{spec},truth").parse().expect("a specification"));
    let mut buf = vec![0; traffic.max_len()];
    (0..count)
        .map(|i| {
            let departure = START + i * STEP;
            let len = traffic.fill(&mut buf, Timestamp::from_nanos(departure));
            Packet { stamp: departure + LATENCY, wire_len: len, bytes: buf[..len].to_vec() }
        })
        .collect()
}

/// Replaces the timestamps of the packets by increasing timestamps, in the order of the list.
fn restamped(mut packets: Vec<Packet>) -> Vec<Packet> {
    for (i, p) in packets.iter_mut().enumerate() {
        p.stamp = START + i as u64 * STEP + LATENCY;
    }
    packets
}

fn pcap(packets: &[Packet]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_3c4d, 0x0004_0002, 0, 0, 65_535, 1u32] {
        file.extend(word.to_le_bytes());
    }
    for p in packets {
        let (sec, nsec) = (p.stamp / 1_000_000_000, p.stamp % 1_000_000_000);
        for word in [sec as u32, nsec as u32, p.bytes.len() as u32, p.wire_len as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(&p.bytes);
    }
    file
}

fn raw(packets: &[Packet], padding: u16) -> Vec<u8> {
    let mut file = Vec::new();
    for p in packets {
        file.extend(((p.stamp / 1_000_000_000) as u32).to_le_bytes());
        file.extend(((p.stamp % 1_000_000_000) as u32).to_le_bytes());
        file.extend((p.bytes.len() as u16).to_le_bytes());
        file.extend((p.wire_len as u16).to_le_bytes());
        file.extend(&p.bytes);
    }
    file.extend([0; 8]);
    file.extend(padding.to_le_bytes());
    file.extend(padding.to_le_bytes());
    file.resize(file.len() + usize::from(padding), 0);
    file
}

fn checked(dir: &TempDir, options: Options) -> Report {
    check(&[dir.path().to_owned()], options).expect("a report")
}

/// Stores the packets in one file and checks it.
fn stored(packets: &[Packet], options: Options) -> Report {
    let dir = TempDir::new("planted");
    std::fs::write(dir.join("1.pcap"), pcap(packets)).expect("write");
    checked(&dir, options)
}

/// The counts of missing, duplicated, reordered, damaged, truncated and unsent frames, timestamps that step back, and
/// broken files.
fn defects(report: &Report) -> [u64; 8] {
    Defect::ALL.map(|d| report.count(d))
}

#[test]
fn a_directory_without_captures_and_a_missing_path_are_errors() {
    let dir = TempDir::new("nothing");
    std::fs::write(dir.join("notes.txt"), "none").unwrap();
    let error = check(&[dir.path().to_owned()], Options::default()).unwrap_err();
    assert!(matches!(error, CheckError::NothingFound { .. }), "{error}");
    let error = check(&[dir.join("absent")], Options::default()).unwrap_err();
    assert!(matches!(error, CheckError::Io { .. }) && error.to_string().contains("absent"), "{error}");
}

#[test]
fn files_without_defects_are_complete() {
    for spec in ["60", "61", "imix", "backbone", "9014"] {
        let packets = traffic(spec, 3000);
        let report = stored(&packets, Options { sent: Some(3000), ..Options::default() });
        assert!(report.is_complete(), "{spec}: {report}");
        assert_eq!((report.frames, report.foreign, report.sequences), (3000, 0, Some((0, 2999))));
        assert_eq!(report.bytes, packets.iter().map(|p| p.bytes.len() as u64).sum::<u64>());
        assert_eq!(report.departures, Some((START, START + 2999 * STEP)));
        assert_eq!((report.latency.min, report.latency.max), (LATENCY as i64, LATENCY as i64));
        assert_eq!(report.latency.median(), Some(LATENCY as i64));
    }
}

#[test]
fn raw_files_with_padding_are_complete_and_truncated_files_are_not() {
    let dir = TempDir::new("raw");
    let packets = traffic("imix", 500);
    std::fs::write(dir.join("1.raw"), raw(&packets[..200], 0)).unwrap();
    let second = raw(&packets[200..], 4000);
    std::fs::write(dir.join("2.raw"), &second).unwrap();
    let report = checked(&dir, Options::default());
    assert!(report.is_complete() && report.frames == 500 && report.files == 2, "{report}");
    std::fs::write(dir.join("2.raw"), &second[..second.len() - 1]).unwrap();
    let report = checked(&dir, Options::default());
    assert_eq!(defects(&report), [0, 0, 0, 0, 0, 0, 0, 1]);
    assert!(report.examples[0].what.contains("inside padding"), "{report}");
}

#[test]
fn capture_files_of_a_store_are_read_in_order_of_time() {
    let dir = TempDir::new("store");
    let packets = traffic("60", 900);
    for (i, part) in packets.chunks(100).enumerate() {
        // The files of the first half and of the second half are in different hour directories.
        let directory = dir.join(format!("eth1/2026/11/21/{:02}", 9 + i / 5));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join(format!("{:020}.pcap", part[0].stamp)), pcap(part)).unwrap();
        std::fs::write(directory.join(format!("{:020}.ngi", part[0].stamp)), "an index").unwrap();
    }
    let report = checked(&dir, Options { sent: Some(900), ..Options::default() });
    assert!(report.is_complete() && report.files == 9, "{report}");
}

#[test]
fn every_flipped_bit_is_detected_as_damage() {
    for len in [60, 131] {
        let mut packets = traffic(&len.to_string(), len * 8 + 2);
        for (bit, packet) in packets[1..=len as usize * 8].iter_mut().enumerate() {
            packet.bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let report = stored(&packets, Options::default());
        // All frames except the first and the last are damaged, so their numbers are missing too.
        assert_eq!(defects(&report), [len * 8, 0, 0, len * 8, 0, 0, 0, 0], "{report}");
        assert_eq!((report.frames, report.foreign, report.gaps), (2, 0, 1));
        let first = report.examples.iter().find(|e| e.defect == Defect::Damaged).unwrap();
        assert_eq!(first.sequence, Some(1));
        assert!(first.place.ends_with(&format!("1.pcap:{}", 24 + 16 + len)), "{}", first.place);
    }
}

#[test]
fn a_frame_that_is_too_short_or_too_long_is_damaged() {
    let mut packets = traffic("100", 5);
    packets[1].bytes.pop();
    packets[1].wire_len = 99;
    packets[3].bytes.push(0);
    packets[3].wire_len = 101;
    assert_eq!(defects(&stored(&packets, Options::default())), [2, 0, 0, 2, 0, 0, 0, 0]);
}

#[test]
fn a_file_that_ends_inside_a_record_is_broken_at_that_record() {
    let dir = TempDir::new("short");
    let whole = pcap(&traffic("64", 3));
    let last = 24 + 2 * 80;
    for end in 0..whole.len() {
        std::fs::write(dir.join("1.pcap"), &whole[..end]).unwrap();
        let report = checked(&dir, Options::default());
        let (frames, inside) = if end < 24 { (0, true) } else { ((end - 24) / 80, !(end - 24).is_multiple_of(80)) };
        assert_eq!((report.frames, report.broken), (frames as u64, u64::from(inside)), "{end} bytes: {report}");
        if end > last {
            assert!(report.examples[0].place.ends_with(&format!("1.pcap:{last}")), "{end} bytes: {report}");
        }
    }
}

#[test]
fn records_that_our_recorder_would_not_write_break_the_file() {
    let dir = TempDir::new("strict");
    let whole = pcap(&traffic("64", 3));
    // The faults, in the order of the list: microseconds, big-endian magic, version, link type, nanoseconds of a second
    // or more, two captured lengths that contradict the wire length.
    for (offset, bytes, advice) in [
        (0, [0xd4, 0xc3, 0xb2, 0xa1], "not nanosecond pcap"),
        (0, [0xa1, 0xb2, 0x3c, 0x4d], "not nanosecond pcap"),
        (4, [2, 0, 3, 0], "version 2.3"),
        (20, [101, 0, 0, 0], "link type 101"),
        (24 + 4, 1_000_000_000u32.to_le_bytes(), "invalid record header"),
        (24 + 8, 65u32.to_le_bytes(), "invalid record header"),
        (24 + 12, 63u32.to_le_bytes(), "invalid record header"),
    ] {
        let mut file = whole.clone();
        file[offset..offset + 4].copy_from_slice(&bytes);
        std::fs::write(dir.join("1.pcap"), file).unwrap();
        let report = checked(&dir, Options::default());
        assert_eq!((report.broken, report.frames), (1, 0), "{advice}: {report}");
        assert!(report.examples[0].what.contains(advice), "{advice}: {report}");
    }
}

#[test]
fn the_files_after_a_broken_file_are_checked() {
    let dir = TempDir::new("beside");
    let packets = traffic("64", 30);
    std::fs::write(dir.join("1.pcap"), pcap(&packets[..10])).unwrap();
    std::fs::write(dir.join("2.pcap"), "not a capture, but long enough to have a header").unwrap();
    std::fs::write(dir.join("3.pcap"), pcap(&packets[20..])).unwrap();
    let report = checked(&dir, Options::default());
    assert_eq!(defects(&report), [10, 0, 0, 0, 0, 0, 0, 1], "{report}");
}

#[test]
fn the_number_of_sent_frames_determines_missing_and_unsent_frames() {
    let packets = traffic("60", 100);
    let sent = |n| Options { sent: Some(n), ..Options::default() };
    assert_eq!(defects(&stored(&packets[10..90], Options::default())), [0; 8]);
    assert_eq!(defects(&stored(&packets[10..90], sent(100))), [20, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(defects(&stored(&packets, sent(97))), [0, 0, 0, 0, 0, 3, 0, 0]);
    assert_eq!(defects(&stored(&[], sent(7))), [7, 0, 0, 0, 0, 0, 0, 0]);
    assert!(!stored(&[], Options::default()).is_complete(), "a store without frames is not complete");
}

#[test]
fn truncated_frames_count_as_arrived_but_the_store_is_not_complete() {
    let mut packets = traffic("1000", 50);
    packets[7].bytes.truncate(96);
    packets[9].bytes.truncate(43);
    let report = stored(&packets, Options::default());
    // The second truncated frame is too short to contain its sequence number, so this number is missing.
    assert_eq!(defects(&report), [1, 0, 0, 0, 2, 0, 0, 0], "{report}");
    assert_eq!(report.frames, 49);
}

#[test]
fn foreign_packets_are_counted_and_are_not_a_defect() {
    let mut packets = traffic("60", 50);
    let other = |bytes: Vec<u8>| Packet { stamp: START, wire_len: bytes.len(), bytes };
    packets.insert(20, other(vec![0xff; 42]));
    packets.insert(0, other(Vec::new()));
    let mut plain = Traffic::new(&"60".parse().unwrap());
    let mut frame = vec![0; 60];
    plain.fill(&mut frame, Timestamp::ZERO);
    packets.push(other(frame));
    let report = stored(&restamped(packets), Options { sent: Some(50), ..Options::default() });
    assert!(report.is_complete() && report.foreign == 3 && report.records == 53, "{report}");
}

#[test]
fn timestamps_that_step_back_are_found_within_a_file_only() {
    let dir = TempDir::new("stamps");
    let mut packets = traffic("60", 40);
    packets[10].stamp -= 5 * STEP;
    std::fs::write(dir.join("1.pcap"), pcap(&packets[..20])).unwrap();
    for p in &mut packets[20..] {
        p.stamp -= 100 * STEP;
    }
    std::fs::write(dir.join("2.pcap"), pcap(&packets[20..])).unwrap();
    let report = checked(&dir, Options::default());
    assert_eq!(defects(&report), [0, 0, 0, 0, 0, 0, 1, 0], "{report}");
    assert_eq!(report.latency.min, LATENCY as i64 - 100 * STEP as i64);
}

#[test]
fn departures_and_latencies_are_correct_across_the_wrap_of_48_bits() {
    // The departure field wraps between the departure of the second frame and its timestamp.
    let wrap = (START >> 48 << 48) + (1 << 48);
    let mut traffic = Traffic::new(&"60,truth".parse().unwrap());
    let packets: Vec<Packet> = [wrap - 1000, wrap - 100, wrap + 800]
        .map(|departure| {
            let mut bytes = vec![0; 60];
            traffic.fill(&mut bytes, Timestamp::from_nanos(departure));
            Packet { stamp: departure + LATENCY, wire_len: 60, bytes }
        })
        .to_vec();
    let report = stored(&packets, Options::default());
    assert!(report.is_complete(), "{report}");
    assert_eq!(report.departures, Some((wrap - 1000, wrap + 800)));
    assert_eq!((report.latency.min, report.latency.max), (LATENCY as i64, LATENCY as i64));
}

#[test]
fn files_of_two_queues_are_not_reordered_if_each_is_checked_alone() {
    let dir = TempDir::new("queues");
    let packets = traffic("60", 1000);
    let queue = |q: usize| packets.iter().skip(q).step_by(2).cloned().collect::<Vec<_>>();
    std::fs::write(dir.join("1.pcap"), pcap(&queue(0))).unwrap();
    std::fs::write(dir.join("2.pcap"), pcap(&queue(1))).unwrap();
    let report = checked(&dir, Options { sent: Some(1000), file_by_file: true });
    assert!(report.is_complete(), "{report}");
    let report = checked(&dir, Options { sent: Some(1000), file_by_file: false });
    assert_eq!(defects(&report), [0, 0, 499, 0, 0, 0, 0, 0], "{report}");
    assert_eq!(report.reorder_distance, 998 - 1);
}

/// Random loss, duplication, reordering and damage over several files, compared with counts that a simple model
/// computes.
#[test]
fn random_defects_are_counted_exactly() {
    for seed in 1..=40 {
        let mut prng = Prng::new(seed);
        let sent = 1 + prng.below(3000);
        let mut arriving: Vec<(u64, Packet)> = (0..).zip(traffic("imix,flows=50", sent)).collect();
        for _ in 0..prng.below(60) {
            let at = prng.below(arriving.len() as u64) as usize;
            match prng.below(3) {
                0 if arriving.len() > 1 => drop(arriving.remove(at)),
                1 => arriving.insert(prng.below(arriving.len() as u64 + 1) as usize, arriving[at].clone()),
                _ => {
                    let moved = arriving.remove(at);
                    arriving.insert((at + prng.below(20) as usize).min(arriving.len()), moved);
                }
            }
        }
        let (mut seen, mut highest) = (BTreeSet::new(), None);
        let (mut duplicated, mut reordered, mut damaged, mut by) = (0, 0, 0, 0);
        for (sequence, packet) in &mut arriving {
            if prng.below(100) == 0 {
                let bit = prng.below(packet.bytes.len() as u64 * 8) as usize;
                packet.bytes[bit / 8] ^= 1 << (bit % 8);
                damaged += 1;
            } else if !seen.insert(*sequence) {
                duplicated += 1;
            } else if highest > Some(*sequence) {
                reordered += 1;
                by = by.max(highest.unwrap_or(0) - *sequence);
            } else {
                highest = Some(*sequence);
            }
        }
        let packets = restamped(arriving.into_iter().map(|(_, p)| p).collect());
        let dir = TempDir::new("walk");
        let cuts = 1 + prng.below(5) as usize;
        for (i, part) in packets.chunks(packets.len().div_ceil(cuts)).enumerate() {
            let (name, content) = if prng.below(2) == 0 { ("pcap", pcap(part)) } else { ("raw", raw(part, 99)) };
            std::fs::write(dir.join(format!("{i}.{name}")), content).unwrap();
        }
        let report = checked(&dir, Options { sent: Some(sent), ..Options::default() });
        let missing = sent - seen.len() as u64;
        assert_eq!(defects(&report), [missing, duplicated, reordered, damaged, 0, 0, 0, 0], "seed {seed}: {report}");
        assert_eq!((report.reorder_distance, report.frames), (by, seen.len() as u64), "seed {seed}: {report}");
    }
}

#[test]
fn random_bytes_break_a_file_and_nothing_else() {
    let dir = TempDir::new("bytes");
    let whole = pcap(&traffic("imix", 40));
    for seed in 1..=300 {
        let mut prng = Prng::new(seed);
        let mut file = whole.clone();
        for _ in 0..1 + prng.below(20) {
            let at = prng.below(file.len() as u64) as usize;
            file[at] = prng.next_u64() as u8;
        }
        file.truncate(prng.below(file.len() as u64 * 2) as usize);
        let path: PathBuf = dir.join(if prng.below(2) == 0 { "1.pcap" } else { "1.raw" });
        std::fs::write(&path, file).unwrap();
        let report = check(std::slice::from_ref(&path), Options::default()).expect("a report");
        assert!(report.frames + report.damaged + report.duplicated <= report.records, "seed {seed}: {report}");
        assert!(report.to_json().starts_with("{\"complete\":"), "seed {seed}");
    }
}

#[test]
fn the_report_has_the_documented_lines_and_json() {
    let mut packets = traffic("60", 2000);
    packets.drain(1000..1003);
    packets.remove(10);
    let report = stored(&packets, Options { sent: Some(2000), ..Options::default() });
    let text = report.to_string();
    assert!(text.contains("missing            4 in 2 gaps; the longest gap has 3\n"), "{text}");
    assert!(text.contains("  missing          sequence 1000 to 1002\n"), "{text}");
    assert!(text.contains("minimum 0.3 us, median 0.3 us, maximum 0.3 us"), "{text}");
    assert!(text.ends_with("NOT complete: 1 996 frames, 4 missing, 0 duplicated, 0 reordered, 0 damaged\n"), "{text}");
    let json = report.to_json();
    for part in [
        "{\"complete\":false,\"files\":1,\"records\":1996,",
        "\"frames\":1996,\"foreign\":0,\"sent\":2000,\"first_sequence\":0,\"last_sequence\":1999,",
        "\"latency_min\":300,\"latency_median\":300,\"latency_max\":300,\"missing\":4,\"duplicated\":0,",
        "{\"defect\":\"missing\",\"sequence\":10,\"place\":\"\",\"what\":\"\"}",
    ] {
        assert!(json.contains(part), "{part} in {json}");
    }
}
