//! Capture files as a source: damage, compression, speed, pipes, and comparison with capinfos.

#[allow(dead_code, reason = "part of it is for live sources")]
use crate::common;

use base::{Cause, Prng, Timestamp};
use netgrain_capture::file::{File, Options, Port, Speed, ports};
use netgrain_capture::{Frame, Polled, Source, SourceError, TimestampSource};
use pcap::{Direction, Format, classic, ng, raw};
use std::io::{Cursor, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use testkit::TempDir;

const START: Timestamp = Timestamp::from_secs_nanos(1_700_000_000, 0);

/// A nanosecond pcap of Ethernet frames, one millisecond apart.
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut w = classic::Writer::new(Vec::new(), classic::Resolution::Nanos, pcap::ETHERNET).unwrap();
    for (i, frame) in frames.iter().enumerate() {
        w.write(START.after(Duration::from_millis(i as u64)), frame.len() as u32, frame).unwrap();
    }
    w.finish().unwrap()
}

fn open(bytes: Vec<u8>, options: Options) -> Result<File, SourceError> {
    File::from_reader("trace", Cursor::new(bytes), options)
}

/// Returns the frames of a source until its end.
#[derive(Debug, Default)]
struct Drained {
    frames: Vec<Vec<u8>>,
    stamps: Vec<Timestamp>,
    error: Option<SourceError>,
    lost: u64,
}

/// Reads to the end, and asserts for every file that there is at most one error and that the accounting balances.
fn drain(file: &mut File) -> Drained {
    let mut out = Drained::default();
    loop {
        let polled = file.poll(64, Duration::from_secs(1), |f| {
            assert!(f.wire_len as usize >= f.bytes.len());
            out.frames.push(f.bytes.to_vec());
            out.stamps.push(f.stamp.unwrap());
        });
        match polled {
            Ok(Polled::Frames(_) | Polled::Idle) => {}
            Ok(Polled::End) => break,
            Err(e) => assert!(out.error.replace(e).is_none(), "an error is returned once"),
        }
    }
    let counts = file.counts().unwrap();
    out.lost = counts.lost[Cause::Source as usize];
    assert_eq!(counts.seen, Some(out.frames.len() as u64 + out.lost), "the accounting");
    assert_eq!(counts.lost.iter().sum::<u64>(), out.lost);
    out
}

#[test]
fn files_that_cannot_be_opened_are_reported_by_name() {
    let missing = File::open(Path::new("no/such/file.pcap"), Options::default()).err().unwrap();
    assert!(missing.to_string().starts_with("no/such/file.pcap: cannot open: "), "{missing}");
    let junk = open(b"this is no capture at all".to_vec(), Options::default()).err().unwrap();
    assert!(junk.to_string().starts_with("trace: byte 0: not a capture"), "{junk}");
    let empty = open(Vec::new(), Options::default()).err().unwrap();
    assert!(empty.to_string().contains("empty"), "{empty}");
    let speed = Options { speed: Speed::Scaled(0.0), ..Options::default() };
    let still = open(capture(&[]), speed).err().unwrap();
    assert!(matches!(&still, SourceError::Unsupported { reason, .. } if reason.contains("above 0")), "{still}");
    let directory = testkit::TempDir::new("files_that_cannot_be_opened");
    let e = File::open(directory.path(), Options::default()).err().unwrap();
    assert!(matches!(e, SourceError::System { .. }), "{e}");
}

#[test]
fn a_damaged_tail_is_one_error_with_offset_after_all_complete_packets() {
    let frames = common::numbered(0..200, |n| 60 + n as usize);
    let whole = capture(&frames);
    let cut = whole[..whole.len() - 1].to_vec();
    let mut invalid_length = whole.clone();
    let last = whole.len() - 16 - frames[199].len();
    invalid_length[last + 8..last + 12].copy_from_slice(&u32::MAX.to_le_bytes());
    for damaged in [cut, invalid_length] {
        let mut file = open(damaged, Options::default()).unwrap();
        let out = drain(&mut file);
        assert_eq!(out.frames, frames[..199]);
        assert!(
            matches!(out.error, Some(SourceError::Corrupt { ref name, offset, .. })
            if name == "trace" && offset == last as u64),
            "{:?}",
            out.error
        );
        assert_eq!(out.lost, 1, "the truncated record is lost");
        assert!(matches!(file.poll(1, Duration::ZERO, |_| ()), Ok(Polled::End)));
    }
}

#[test]
fn frames_carry_the_time_direction_and_lengths_of_the_file() {
    let mut w = ng::Writer::new(Vec::new(), "", "").unwrap();
    let eth = w.interface("eth0", pcap::ETHERNET).unwrap();
    let sent = ng::PacketOptions { direction: Direction::Outbound, drops: Some(3), queue: None };
    w.packet(eth, START, 1500, &[1; 60], sent).unwrap();
    w.packet(eth, START.after(Duration::from_nanos(1)), 60, &[2; 60], ng::PacketOptions::default()).unwrap();
    let mut bytes = w.finish().unwrap();
    // A simple packet block of pcapng has no timestamp. Its packet gets the timestamp of the preceding packet.
    for word in [3u32, 20, 4, u32::from_le_bytes([3; 4]), 20] {
        bytes.extend(word.to_le_bytes());
    }
    let mut file = open(bytes, Options::default()).unwrap();
    assert_eq!((file.info().timestamp_source, file.info().link_type), (TimestampSource::File, 1));
    let mut seen = Vec::new();
    let polled = file.poll(64, Duration::ZERO, |f: &Frame<'_>| {
        seen.push((f.stamp.unwrap().nanos() - START.nanos(), f.wire_len, f.bytes.len(), f.bytes[0], f.outgoing));
    });
    assert!(matches!(polled, Ok(Polled::Frames(3))));
    assert_eq!(seen, [(0, 1500, 60, 1, true), (1, 60, 60, 2, false), (1, 4, 4, 3, false)]);
    assert_eq!(file.recorded_drops(), 3);
    let [unstamped, drops] = &file.warnings()[..] else { panic!("{:?}", file.warnings()) };
    assert!(unstamped.contains("1 packets have no timestamp") && drops.contains("had lost 3 packets"));
}

#[test]
fn the_frame_check_sequence_is_removed_from_the_frame() {
    let mut bytes = capture(&[vec![7; 64]]);
    bytes[23] = 2 << 4 | 4;
    let mut file = open(bytes, Options::default()).unwrap();
    assert_eq!(drain(&mut file).frames, [vec![7; 60]]);
}

#[test]
fn packets_of_another_link_type_are_counted_and_reported() {
    let mut w = ng::Writer::new(Vec::new(), "", "").unwrap();
    let (cooked, eth) = (w.interface("any", 113).unwrap(), w.interface("eth0", pcap::ETHERNET).unwrap());
    for i in 0..100u8 {
        let interface = if i % 4 == 1 { cooked } else { eth };
        w.packet(interface, START, 60, &[i; 60], ng::PacketOptions::default()).unwrap();
    }
    let mut file = open(w.finish().unwrap(), Options::default()).unwrap();
    assert_eq!(file.info().link_type, pcap::ETHERNET, "the link type of the first packet, not of the first interface");
    let out = drain(&mut file);
    assert_eq!((out.frames.len(), out.lost), (75, 25));
    assert!(out.frames.iter().all(|f| f[0] % 4 != 1));
    assert!(file.warnings()[0].contains("25 packets of link type 113"), "{:?}", file.warnings());
}

#[test]
fn a_file_of_several_interfaces_is_one_source_with_a_warning() {
    let mut w = ng::Writer::new(Vec::new(), "", "").unwrap();
    let both = [w.interface("eth0", pcap::ETHERNET).unwrap(), w.interface("eth1", pcap::ETHERNET).unwrap()];
    for i in 0..90u8 {
        w.packet(both[usize::from(i % 3 == 0)], START, 60, &[i; 60], ng::PacketOptions::default()).unwrap();
    }
    let mut file = open(w.finish().unwrap(), Options::default()).unwrap();
    assert_eq!(file.warnings(), Vec::<String>::new(), "no warning before the first such packet");
    assert_eq!(drain(&mut file).frames.len(), 90);
    let warnings = file.warnings();
    assert!(
        warnings.len() == 1 && warnings[0].contains("60 packets are of another interface than the first"),
        "{warnings:?}"
    );
}

/// A pcapng file of two sections. The first has the interfaces left, right; the second has right, left, and right
/// again, a second queue of the same interface.
fn file_of_two_interfaces(dir: &TempDir) -> PathBuf {
    let mut w = ng::Writer::new(Vec::new(), "", "").unwrap();
    let numbers = [w.interface("left", pcap::ETHERNET).unwrap(), w.interface("in/right", pcap::ETHERNET).unwrap()];
    w.interface("never", pcap::ETHERNET).unwrap();
    for i in 0..30u8 {
        let options = ng::PacketOptions { drops: Some(u64::from(i % 3 == 1)), ..ng::PacketOptions::default() };
        w.packet(numbers[usize::from(i % 3 == 1)], START, 60, &[i; 60], options).unwrap();
    }
    let mut bytes = w.finish().unwrap();
    let mut w = ng::Writer::new(Vec::new(), "", "").unwrap();
    let names = ["in/right", "left", "in/right"];
    let numbers = names.map(|name| w.interface(name, pcap::ETHERNET).unwrap());
    for i in 30..60u8 {
        w.packet(numbers[usize::from(i % 3)], START, 60, &[i; 60], ng::PacketOptions::default()).unwrap();
    }
    bytes.extend(w.finish().unwrap());
    let path = dir.join("two.pcapng");
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn each_interface_of_a_file_can_be_opened_by_name_in_every_section() {
    let dir = TempDir::new("capture-ports");
    let path = file_of_two_interfaces(&dir);
    let plain = dir.join("plain.pcap");
    std::fs::write(&plain, capture(&[vec![7; 60]])).unwrap();
    let stop = AtomicBool::new(false);
    let found = ports(&[&path, &plain], &stop);
    let port = |name: &str, paths: &[&PathBuf]| Port {
        link_type: pcap::ETHERNET,
        name: name.into(),
        paths: paths.iter().map(|p| (*p).clone()).collect(),
    };
    assert_eq!(
        found,
        [port("left", &[&path]), port("in_right", &[&path]), port("0", &[&plain])],
        "no interface without packets"
    );
    let is_left = |i: u8| if i < 30 { i % 3 != 1 } else { i % 3 == 1 };
    for (name, is) in [("left", true), ("in_right", false)] {
        let options = Options { port: Some((name.into(), pcap::ETHERNET)), ..Options::default() };
        let mut file = File::open(&path, options).unwrap();
        let out = drain(&mut file);
        let expected: Vec<u8> = (0..60).filter(|i| is_left(*i) == is).collect();
        assert_eq!(out.frames.iter().map(|f| f[0]).collect::<Vec<_>>(), expected, "{name}");
        let drops = if is {
            vec![]
        } else {
            vec![format!("{}: the program that captured the file had lost 10 packets", path.display())]
        };
        assert_eq!((out.lost, file.warnings()), (0, drops));
    }
    assert_eq!(ports(&[&plain, &plain], &stop), [], "one interface only");
    // A file that cannot be read, or that cannot be read twice, is not searched for interfaces. If the file has an
    // error, its replay reports the error.
    for other in [dir.join("none"), "-".into(), dir.path().to_owned()] {
        assert_eq!(ports(&[path.clone(), other], &stop), []);
    }
    assert_eq!(ports(&[&path], &AtomicBool::new(true)), [], "the search is stopped");
    // In the second file, the description of the interface `late` follows a packet.
    let mut w = ng::Writer::new(Vec::new(), "", "").unwrap();
    for name in ["left", "late"] {
        let port = w.interface(name, pcap::ETHERNET).unwrap();
        w.packet(port, START, 60, &[9; 60], ng::PacketOptions::default()).unwrap();
    }
    let second = dir.join("second.pcapng");
    std::fs::write(&second, w.finish().unwrap()).unwrap();
    let found = ports(&[&path, &second], &stop);
    assert_eq!(found, [port("left", &[&path, &second]), port("in_right", &[&path]), port("late", &[&second])]);
}

#[test]
fn packets_of_many_link_types_are_counted_together() {
    let mut w = ng::Writer::new(Vec::new(), "", "").unwrap();
    for link_type in 0..100 {
        let interface = w.interface("", link_type).unwrap();
        w.packet(interface, START, 60, &[0; 60], ng::PacketOptions::default()).unwrap();
    }
    let mut file = open(w.finish().unwrap(), Options::default()).unwrap();
    let out = drain(&mut file);
    assert_eq!((out.frames.len(), out.lost), (1, 99));
    let warnings = file.warnings();
    assert!(warnings.len() < 20 && warnings.last().unwrap().contains("83 packets of further"), "{warnings:?}");
}

#[test]
fn hpcap_raw_files_are_read_up_to_their_padding() {
    let frames = common::numbered(0..500, |n| 60 + n as usize % 1000);
    let mut w = raw::Writer::new(Vec::new(), 1 << 20).unwrap();
    for frame in &frames {
        assert!(w.write(START, frame.len() as u32, frame).unwrap());
    }
    let bytes = w.finish().unwrap();
    assert_eq!(bytes.len(), 1 << 20);
    assert_eq!(drain(&mut open(bytes, Options::default()).unwrap()).frames, frames);
    let zeros = Options { format: Some(Format::Raw), ..Options::default() };
    assert!(drain(&mut open(vec![0; 120], zeros).unwrap()).frames.is_empty());
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut w = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    w.write_all(bytes).unwrap();
    w.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

#[test]
fn compressed_captures_of_one_or_several_members_give_equal_frames() {
    let frames = common::numbered(0..3000, |n| 60 + n as usize % 1400);
    let whole = capture(&frames);
    let (a, b) = whole.split_at(whole.len() / 3);
    for compressed in [gzip(&whole), zstd(&whole), [gzip(a), gzip(b)].concat(), [zstd(a), zstd(b)].concat()] {
        let mut file = open(compressed, Options::default()).unwrap();
        let out = drain(&mut file);
        assert!(out.error.is_none() && out.frames == frames, "{:?}", out.error);
    }
}

#[test]
fn a_truncated_compressed_file_is_an_error() {
    let frames = common::numbered(0..3000, |n| 60 + n as usize % 1400);
    for compressed in [gzip(&capture(&frames)), zstd(&capture(&frames))] {
        for missing in [1, 4, 9, compressed.len() / 2] {
            let mut file = open(compressed[..compressed.len() - missing].to_vec(), Options::default()).unwrap();
            let out = drain(&mut file);
            assert!(frames.starts_with(&out.frames));
            let Some(SourceError::Corrupt { name, .. }) = out.error else { panic!("{missing}: {:?}", out.error) };
            assert_eq!(name, "trace");
        }
    }
}

#[test]
fn files_of_the_zstd_tool_are_read_and_their_checksum_is_verified() {
    let test = "files_of_the_zstd_tool_are_read_and_their_checksum_is_verified";
    let directory = testkit::TempDir::new(test);
    let frames = common::numbered(0..5000, |n| 60 + n as usize % 1400);
    let plain = directory.join("trace.pcap");
    std::fs::write(&plain, capture(&frames)).unwrap();
    for level in ["-1", "-19", "--long=27"] {
        let Some(mut zstd) = testkit::tool(test, "zstd") else { return };
        let compressed = directory.join("trace.pcap.zst");
        let out = zstd.args(["-q", "-f", level, "-o"]).arg(&compressed).arg(&plain).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let out = drain(&mut File::open(&compressed, Options::default()).unwrap());
        assert!(out.error.is_none() && out.frames == frames, "{level}: {:?}", out.error);
        let mut bytes = std::fs::read(&compressed).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        let out = drain(&mut open(bytes, Options::default()).unwrap());
        assert_eq!(out.frames, frames);
        assert!(out.error.is_some_and(|e| e.to_string().contains("checksum")), "{level}");
    }
}

/// Damages one of `files` in each round and reads it to its end.
fn damage(test: &str, files: &[Vec<u8>]) {
    let times: u64 = std::env::var("NETGRAIN_FUZZ_ITERS").ok().and_then(|v| v.parse().ok()).unwrap_or(1);
    let seed = testkit::seed(test);
    for round in 0..600 * times {
        let mut prng = Prng::new(seed ^ round << 20);
        let mut bytes = files[prng.below(files.len() as u64) as usize].clone();
        for _ in 0..=prng.below(3) {
            let at = prng.below(bytes.len() as u64) as usize;
            match prng.below(3) {
                0 => bytes[at] ^= 1 << prng.below(8),
                1 => bytes[at] = prng.next_u64() as u8,
                _ => bytes.truncate(at.max(1)),
            }
        }
        match open(bytes, Options::default()) {
            Ok(mut file) => drop(drain(&mut file)),
            Err(e) => assert!(e.to_string().starts_with("trace: "), "round {round}: {e}"),
        }
    }
}

/// Returns frames that can be compressed, so that the decoders use their tables.
fn compressible() -> Vec<u8> {
    let mut frames = common::numbered(0..60, |n| 60 + n as usize);
    for (i, frame) in frames.iter_mut().enumerate() {
        frame[20..].iter_mut().for_each(|b| *b = b"etaoin shrdlu"[usize::from(*b) * (i % 7 + 1) % 13]);
    }
    capture(&frames)
}

#[test]
fn damaged_compressed_files_cause_no_panic() {
    let whole = compressible();
    damage("damaged_compressed_files_cause_no_panic", &[gzip(&whole), zstd(&whole), whole]);
}

#[test]
fn damaged_files_of_the_zstd_tool_cause_no_panic() {
    let test = "damaged_files_of_the_zstd_tool_cause_no_panic";
    let directory = testkit::TempDir::new(test);
    let plain = directory.join("trace.pcap");
    std::fs::write(&plain, compressible()).unwrap();
    let mut files = Vec::new();
    for level in ["-1", "-19"] {
        let Some(mut zstd) = testkit::tool(test, "zstd") else { return };
        let out = zstd.args(["-q", "-c", "--no-check", level]).arg(&plain).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        files.push(out.stdout);
    }
    damage(test, &files);
}

#[test]
fn at_original_speed_no_packet_is_delivered_before_its_time() {
    let mut w = classic::Writer::new(Vec::new(), classic::Resolution::Nanos, pcap::ETHERNET).unwrap();
    for hours in 0..3 {
        w.write(START.after(Duration::from_secs(hours * 3600)), 60, &[hours as u8; 60]).unwrap();
    }
    let bytes = w.finish().unwrap();
    let at = |speed| open(bytes.clone(), Options { speed, ..Options::default() }).unwrap();

    let mut original = at(Speed::ORIGINAL);
    assert!(matches!(original.poll(64, Duration::ZERO, |f| assert_eq!(f.bytes[0], 0)), Ok(Polled::Frames(1))));
    for wait in [Duration::ZERO, Duration::from_millis(2)] {
        assert!(matches!(original.poll(64, wait, |_| panic!("an hour early")), Ok(Polled::Idle)));
    }
    // A stopped source delivers the packet that it has read already, and does not read the next one.
    original.stop();
    assert!(matches!(original.poll(64, Duration::ZERO, |f| assert_eq!(f.bytes[0], 1)), Ok(Polled::Frames(1))));
    assert!(matches!(original.poll(64, Duration::ZERO, |_| panic!("stopped")), Ok(Polled::End)));
    assert_eq!(original.counts().unwrap().seen, Some(2));

    let out = drain(&mut at(Speed::Scaled(1e6)));
    assert_eq!(
        out.stamps.last(),
        Some(&START.after(Duration::from_secs(7200))),
        "timestamps do not depend on the speed"
    );
}

#[test]
fn a_read_of_a_pipe_waits_at_most_the_timeout_and_ends_with_its_writer() {
    let test = "a_read_of_a_pipe_waits_at_most_the_timeout_and_ends_with_its_writer";
    let directory = testkit::TempDir::new(test);
    let path = directory.join("pipe");
    let Some(mut mkfifo) = testkit::tool(test, "mkfifo") else { return };
    assert!(mkfifo.arg(&path).status().unwrap().success());
    let frames = common::numbered(0..300, |n| 60 + n as usize);
    let bytes = capture(&frames);
    // The writer sends the file header and the first packet. It sends the other packets when the reader has returned
    // Idle.
    let (resume, wait_for_resume) = std::sync::mpsc::channel();
    let writer = std::thread::spawn({
        let path = path.clone();
        move || {
            let mut pipe = std::fs::OpenOptions::new().write(true).open(path).unwrap();
            pipe.write_all(&bytes[..24 + 16 + 60]).unwrap();
            wait_for_resume.recv().unwrap();
            pipe.write_all(&bytes[24 + 16 + 60..]).unwrap();
        }
    });
    let mut file = File::open(&path, Options::default()).unwrap();
    let mut delivered = common::read(&mut file, 1);
    assert!(matches!(file.poll(64, Duration::ZERO, |_| panic!("a frame that was not sent")), Ok(Polled::Idle)));
    assert!(matches!(
        file.poll(64, Duration::from_millis(2), |_| panic!("a frame that was not sent")),
        Ok(Polled::Idle)
    ));
    resume.send(()).unwrap();
    delivered.extend(common::read(&mut file, usize::MAX));
    assert_eq!(delivered.iter().map(|t| t.bytes.clone()).collect::<Vec<_>>(), frames);
    assert!(matches!(file.poll(64, Duration::ZERO, |_| ()), Ok(Polled::End)));
    writer.join().unwrap();
}

#[test]
fn a_pipe_with_a_silent_writer_can_be_stopped() {
    let test = "a_pipe_with_a_silent_writer_can_be_stopped";
    let directory = testkit::TempDir::new(test);
    let path = directory.join("pipe");
    let Some(mut mkfifo) = testkit::tool(test, "mkfifo") else { return };
    assert!(mkfifo.arg(&path).status().unwrap().success());
    let header = capture(&[]);
    let writer = std::thread::spawn({
        let path = path.clone();
        move || {
            let mut pipe = std::fs::OpenOptions::new().write(true).open(path).unwrap();
            pipe.write_all(&header).unwrap();
            pipe
        }
    });
    let mut file = File::open(&path, Options::default()).unwrap();
    let _silent = writer.join().unwrap();
    assert!(matches!(file.poll(64, Duration::from_millis(1), |_| ()), Ok(Polled::Idle)));
    file.stop();
    assert!(matches!(file.poll(64, Duration::from_secs(3600), |_| ()), Ok(Polled::End)));
}

#[test]
fn capinfos_counts_the_same_packets_in_every_capture() {
    let test = "capinfos_counts_the_same_packets_in_every_capture";
    let (Some(traces), Some(capinfos)) = (testkit::traces(test), testkit::tool(test, "capinfos")) else { return };
    let mut files = Vec::new();
    captures(&traces, &mut files);
    let counts = packet_counts(capinfos, &files);
    assert!(counts.len() == files.len() && !files.is_empty());
    for (path, reported) in files.iter().zip(counts) {
        let mut file = File::open(path, Options::default()).unwrap_or_else(|e| panic!("{e}"));
        let out = drain(&mut file);
        assert!(out.error.is_none(), "{:?}", out.error);
        assert_eq!(out.frames.len() as u64 + out.lost, reported, "{}", path.display());
    }
}

fn captures(directory: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            captures(&path, into);
        } else if path.extension().is_some_and(|e| e == "pcap" || e == "pcapng" || e == "gz") {
            into.push(path);
        }
    }
}

fn packet_counts(mut capinfos: Command, files: &[PathBuf]) -> Vec<u64> {
    let out = capinfos.args(["-T", "-r", "-c", "-M"]).args(files).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let count = |line: &str| line.split('\t').nth(1).and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{line}"));
    String::from_utf8(out.stdout).unwrap().lines().map(count).collect()
}

#[test]
fn a_read_error_is_a_system_error_and_not_a_damaged_file() {
    struct FailingReader;
    impl Read for FailingReader {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::from_raw_os_error(5))
        }
    }
    let frames = common::numbered(0..10, |_| 60);
    let source = Cursor::new(capture(&frames)).chain(FailingReader);
    let mut file = File::from_reader("trace", source, Options::default()).unwrap();
    let out = drain(&mut file);
    assert_eq!((out.frames, out.lost), (frames, 0));
    assert!(matches!(out.error, Some(SourceError::System { what: "read", .. })), "{:?}", out.error);
}
