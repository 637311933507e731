//! Compares the generator, the checker and the file formats with third-party programs and with the writers of this
//! project.

use base::{Prng, Timestamp};
use r#gen::Traffic;
use netgrain_checker::{Options, check};
use pcap::{classic, raw};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use testkit::{RawSender, Sandbox, TempDir};

/// Time after which a program that does not end counts as failed.
const PATIENCE: Duration = Duration::from_secs(120);

fn frames(spec: &str, count: usize, mut now: impl FnMut() -> Timestamp) -> Vec<Vec<u8>> {
    let mut traffic = Traffic::new(&format!("{spec},truth").parse().expect("a specification"));
    let mut buf = vec![0; traffic.max_len()];
    let mut next = || {
        let len = traffic.fill(&mut buf, now());
        buf[..len].to_vec()
    };
    (0..count).map(|_| next()).collect()
}

fn system_time() -> Timestamp {
    Timestamp::ZERO.after(SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970"))
}

#[test]
fn the_checker_finds_the_withheld_frames_in_a_recording_of_tcpdump() {
    const TEST: &str = "the_checker_finds_the_withheld_frames_in_a_recording_of_tcpdump";
    const SENT: u64 = 2000;
    let Some(mut tcpdump) = testkit::tool(TEST, "tcpdump") else { return };
    let Some(sandbox) = Sandbox::new(TEST) else { return };
    let (a, b) = sandbox.veth("a", "b");
    let dir = TempDir::new(TEST);
    let mut frames = frames("imix,flows=100", SENT as usize, system_time);
    frames.drain(700..710);
    tcpdump.args(["-i", &b.name, "-Z", "root", "-B", "65536", "--time-stamp-precision=nano", "-n"]);
    tcpdump.args(["-c", &frames.len().to_string(), "-w"]).arg(dir.join("1.pcap")).stderr(Stdio::piped());
    let mut tcpdump = tcpdump.spawn().expect("tcpdump starts");
    let mut said = BufReader::new(tcpdump.stderr.take().expect("a pipe"));
    let mut line = String::new();
    while !line.contains("listening on") {
        line.clear();
        assert_ne!(said.read_line(&mut line).expect("output of tcpdump"), 0, "tcpdump ended before it listened");
    }
    RawSender::new(&a).send(&frames);
    let started = Instant::now();
    while tcpdump.try_wait().expect("a child").is_none() {
        if started.elapsed() > PATIENCE {
            tcpdump.kill().expect("a child can be killed");
            panic!("tcpdump did not get its {} packets", frames.len());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let report = check(&[dir.path().to_owned()], Options { sent: Some(SENT), ..Options::default() }).expect("a report");
    assert_eq!((report.frames, report.missing, report.gaps, report.foreign), (SENT - 10, 10, 1, 0), "{report}");
    assert_eq!(
        (report.duplicated, report.reordered, report.damaged, report.timestamp_steps_back),
        (0, 0, 0, 0),
        "{report}"
    );
    assert!(report.latency.min >= 0, "the timestamp of a frame is after its departure: {report}");
}

#[test]
fn tshark_decodes_generated_frames_as_udp_with_valid_checksums() {
    const TEST: &str = "tshark_decodes_generated_frames_as_udp_with_valid_checksums";
    let Some(mut tshark) = testkit::tool(TEST, "tshark") else { return };
    let dir = TempDir::new(TEST);
    let file = fs::File::create(dir.join("1.pcap")).expect("a file");
    let mut writer = classic::Writer::new(file, classic::Resolution::Nanos, 1).expect("a header");
    let mut lengths = Vec::new();
    for spec in ["60", "61,flows=5", "backbone", "9014"] {
        for frame in frames(spec, 500, || Timestamp::ZERO) {
            writer.write(Timestamp::from_nanos(1), frame.len() as u32, &frame).expect("a record");
            lengths.push(frame.len() - 42);
        }
    }
    writer.finish().expect("the end");
    let fields = ["ip.checksum.status", "ip.proto", "udp.checksum", "data.len", "_ws.malformed"];
    tshark.arg("-r").arg(dir.join("1.pcap")).args([
        "-o",
        "ip.check_checksum:TRUE",
        "-n",
        "-T",
        "fields",
        "-E",
        "separator=,",
    ]);
    // All protocols above UDP are disabled, because tshark guesses protocols by the ports.
    tshark.args(["--disable-protocol", "ALL"]);
    for protocol in ["eth", "ethertype", "ip", "udp", "data", "frame"] {
        tshark.args(["--enable-protocol", protocol]);
    }
    for field in fields {
        tshark.args(["-e", field]);
    }
    let output = tshark.output().expect("tshark runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.lines().count(), lengths.len(), "{}", String::from_utf8_lossy(&output.stderr));
    for (i, (line, len)) in text.lines().zip(lengths).enumerate() {
        assert_eq!(line, format!("1,17,0x0000,{len},"), "packet {}", i + 1);
    }
}

#[test]
fn files_of_our_own_writers_pass_the_strict_parser() {
    for seed in 1..=20 {
        let mut prng = Prng::new(seed);
        let dir = TempDir::new("own");
        let frames = frames("backbone", 400, || Timestamp::from_nanos(7));
        let stamp = |i: usize| Timestamp::from_nanos(1_700_000_000_000_000_000 + i as u64);
        let half = prng.below(400) as usize;
        let file = fs::File::create(dir.join("1.pcap")).expect("a file");
        let mut pcap = classic::Writer::new(file, classic::Resolution::Nanos, 1).expect("a header");
        for (i, frame) in frames[..half].iter().enumerate() {
            pcap.write(stamp(i), frame.len() as u32, frame).expect("a record");
        }
        pcap.finish().expect("the end");
        // RAW files of a fixed size. If the next packet does not fit into a file, the rest of the file is filled with
        // padding.
        let size = raw::MIN_FILE + prng.below(50_000);
        let mut files = 2;
        let open = |number: usize| {
            let file = fs::File::create(dir.join(format!("{number}.raw"))).expect("a file");
            raw::Writer::new(file, size).expect("a size that takes any packet")
        };
        let mut writer = open(files);
        for (i, frame) in frames.iter().enumerate().skip(half) {
            if !writer.write(stamp(i), frame.len() as u32, frame).expect("a record") {
                files += 1;
                std::mem::replace(&mut writer, open(files)).finish().expect("padding");
                assert!(writer.write(stamp(i), frame.len() as u32, frame).expect("a record"));
            }
        }
        writer.finish().expect("padding");
        let report =
            check(&[dir.path().to_owned()], Options { sent: Some(400), ..Options::default() }).expect("a report");
        assert!(report.is_complete() && report.files == files as u64, "seed {seed}: {report}");
    }
}
