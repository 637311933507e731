//! Live frames on veth pairs in a network namespace of the test's own, judged by the checker, which shares no code with
//! the generator. Each test is skipped by name where it cannot run.

use netgrain_capture as capture;

use base::Timestamp;
use capture::afxdp::{self, AfXdpConfig, AttachMode};
use capture::live_frames::{BATCH, LiveCounts, LiveFrames, LiveFramesConfig, MAX_FLOWS, MAX_LEN};
use capture::tpacket::{self, TpacketConfig};
use capture::{Polled, Source, SourceError};
use r#gen::{Parts, Spec, Traffic};
use pcap::classic::{Resolution, Writer};
use std::fs::File;
use std::io::BufWriter;
use std::time::{Duration, Instant};
use sys::clock::realtime;
use sys::ethtool::Offload;
use testkit::{Port, RawReader, Sandbox, TempDir, VethOptions};

const QUIET: Duration = Duration::from_millis(50);
/// Long enough for a loaded machine; a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(120);
/// An MTU for every frame that can be made.
const ROOMY: VethOptions = VethOptions { queues: 1, mtu: 4000, offloads: false };

fn parts(spec: &str) -> Parts {
    Parts::new(&format!("{spec},truth").parse::<Spec>().expect("a specification")).expect("frames in parts")
}

fn receiver(port: &Port) -> impl Source {
    let config = AfXdpConfig { receive_ring: 8192, chunks: 16_384, ..AfXdpConfig::new(&port.name) };
    afxdp::open(&config).unwrap_or_else(|e| panic!("{e}")).remove(0)
}

fn open(port: &Port, parts: &Parts) -> Result<LiveFrames, SourceError> {
    LiveFrames::open(&LiveFramesConfig::new(&port.name), parts)
}

fn refusal(result: Result<LiveFrames, SourceError>) -> String {
    result.err().expect("a refusal").to_string()
}

/// Sends `count` frames while reading what arrives into a file; answers the counts and what the checker says of the
/// file.
fn send_and_check(
    test: &str,
    out: &mut LiveFrames,
    source: &mut impl Source,
    count: u64,
) -> (LiveCounts, checker::Report) {
    let folder = TempDir::new(test);
    let path = folder.join("frames.pcap");
    let mut file =
        Writer::new(BufWriter::new(File::create(&path).expect("a file")), Resolution::Nanos, 1).expect("a header");
    let mut made = 0;
    while made < count {
        // No more at a time than the receiver can hold.
        made += out.send((count - made).min(4096)).expect("send");
        while matches!(store(source, &mut file, Duration::ZERO), Polled::Frames(_)) {}
    }
    assert!(out.flush().expect("flush"), "all frames are accounted for: {:?}", out.counts());
    source.stop();
    let until = Instant::now() + PATIENCE;
    while store(source, &mut file, QUIET) != Polled::End {
        assert!(Instant::now() < until, "a stopped source ends");
    }
    file.finish().expect("the file");
    let report = checker::check(&[path], checker::Options::default()).expect("a report");
    (out.counts().expect("counts"), report)
}

fn store(source: &mut impl Source, file: &mut Writer<BufWriter<File>>, wait: Duration) -> Polled {
    let mut each = |bytes: &[u8]| file.write(realtime(), bytes.len() as u32, bytes).expect("a record");
    source.poll(8192, wait, |f| each(f.bytes)).expect("poll")
}

/// Everything sent has arrived, whole, in order, once, and left after `begun`. The other end of a pair takes 256 frames
/// ahead; where its turn is put off, because the host has other things to do, the rest is dropped, and counted.
fn assert_complete(what: &str, counts: LiveCounts, report: &checker::Report, first: u64, count: u64, begun: Timestamp) {
    let LiveCounts { sent, dropped, .. } = counts;
    assert_eq!(counts, LiveCounts { made: count, sent: count - dropped, dropped, under_way: 0 }, "{what}");
    assert_eq!((report.frames, report.records), (sent, sent), "{what}: {report}");
    let (earliest, latest) = report.sequences.expect("frames");
    assert!(first <= earliest && latest < first + count, "{what}: {report}");
    assert_eq!(report.missing + (earliest - first) + (first + count - 1 - latest), dropped, "{what}: {report}");
    let defects = report.duplicated + report.reordered + report.damaged + report.truncated + report.broken;
    assert_eq!((defects, report.foreign), (0, 0), "{what}: {report}");
    let (earliest, latest) = report.departures.expect("departures");
    assert!(begun.nanos() <= earliest && earliest <= latest && latest <= realtime().nanos(), "{what}: {report}");
}

#[test]
fn ports_and_frames_that_need_another_way_are_refused_with_one() {
    let test = "ports_and_frames_that_need_another_way_are_refused_with_one";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let port = |name: &str| Port { name: name.to_owned(), index: 0 };
    let text = refusal(open(&port("nowhere"), &parts("60")));
    assert!(text.starts_with("nowhere: cannot find the interface"), "{text}");
    let text = refusal(open(&port("lo"), &parts("60")));
    assert_eq!(text, "lo: live frames can be counted on veth interfaces only; send through AF_XDP");
    let (a, b) = sandbox.veth_with("a", "b", ROOMY);
    let text = refusal(open(&a, &parts("60")));
    assert!(text.starts_with("a: the peer does not accept XDP frames; enable GRO on the peer"), "{text}");
    let text = refusal(open(&a, &parts(&(MAX_LEN + 1).to_string())));
    assert!(text.starts_with(&format!("a: live frames have at most {MAX_LEN} bytes, not {}", MAX_LEN + 1)), "{text}");
    let text = refusal(open(&a, &parts(&format!("60,flows={}", MAX_FLOWS + 1))));
    assert!(text.starts_with(&format!("a: live frames have at most {MAX_FLOWS} flows")), "{text}");
    let batch = LiveFramesConfig { batch: 257, ..LiveFramesConfig::new("a") };
    assert_eq!(refusal(LiveFrames::open(&batch, &parts("60"))), "a: a batch has 1 to 256 frames, not 257");
    sandbox.netlink().set_mtu(a.index, 1000).expect("an MTU");
    assert_eq!(refusal(open(&a, &parts("1015"))), "a: frames of 1015 bytes need an MTU of 1001, it is 1000");
    sandbox.set_up(&b, false);
    assert!(refusal(open(&a, &parts("60"))).starts_with("a: the interface or its peer is down"));
}

#[test]
fn the_frames_are_those_of_the_traffic_but_for_their_departure() {
    let test = "the_frames_are_those_of_the_traffic_but_for_their_departure";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("a", "b");
    let mut source = receiver(&b);
    let spec: Spec = "77,flows=5,seed=3,truth".parse().expect("a specification");
    let mut out = open(&a, &Parts::new(&spec).expect("parts")).unwrap_or_else(|e| panic!("{e}"));
    let mut frames = Vec::new();
    while frames.len() < 300 {
        out.send(300 - frames.len() as u64).expect("send");
        source.poll(300, QUIET, |f| frames.push(f.bytes.to_vec())).expect("poll");
    }
    let (mut traffic, mut expected) = (Traffic::new(&spec), vec![0; 77]);
    for (i, frame) in frames.iter().enumerate() {
        let departure = frame[50..56].iter().fold(0, |n, b| n << 8 | u64::from(*b));
        traffic.fill(&mut expected, Timestamp::from_nanos(departure));
        assert_eq!(*frame, expected, "frame {i}");
    }
}

#[test]
fn frames_of_all_sizes_and_many_flows_arrive_complete_through_af_xdp() {
    let test = "frames_of_all_sizes_and_many_flows_arrive_complete_through_af_xdp";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth_with("a", "b", ROOMY);
    for spec in [
        "60,flows=1",
        "60,flows=10000",
        "64,flows=10000",
        "1000,flows=1",
        "1514,flows=10000",
        &format!("{MAX_LEN},flows=3"),
    ] {
        let (mut source, begun) = (receiver(&b), realtime());
        let mut out = open(&a, &parts(spec)).unwrap_or_else(|e| panic!("{e}"));
        let (counts, report) = send_and_check(test, &mut out, &mut source, 25_001);
        assert_complete(spec, counts, &report, 0, 25_001, begun);
        println!("{spec}: the program has {} instructions", out.instructions().expect("a number"));
    }
}

/// With GRO, and no XDP program, frames become socket buffers at the other end. GRO is there to merge; it must not.
#[test]
fn frames_arrive_complete_and_unmerged_through_tpacket_where_gro_is_on() {
    let test = "frames_arrive_complete_and_unmerged_through_tpacket_where_gro_is_on";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth_with("a", "b", ROOMY);
    Offload::Gro.set(&b.name, true).expect("GRO on");
    for spec in ["60,flows=1", "64,flows=10000", "1000,flows=1", "1514,flows=10000"] {
        let mut source = tpacket::open(&TpacketConfig::new(&b.name)).unwrap_or_else(|e| panic!("{e}")).remove(0);
        let begun = realtime();
        let mut out = open(&a, &parts(spec)).unwrap_or_else(|e| panic!("{e}"));
        let (counts, report) = send_and_check(test, &mut out, &mut source, 25_001);
        assert_complete(spec, counts, &report, 0, 25_001, begun);
    }
}

#[test]
fn sequence_numbers_carry_over_16_and_32_bits() {
    let test = "sequence_numbers_carry_over_16_and_32_bits";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("a", "b");
    for first in [(1 << 16) - 500, (1 << 32) - 500, (1 << 40) - 500] {
        let (mut source, begun) = (receiver(&b), realtime());
        let config = LiveFramesConfig { first, ..LiveFramesConfig::new(&a.name) };
        let mut out = LiveFrames::open(&config, &parts("100,flows=7")).unwrap_or_else(|e| panic!("{e}"));
        let (counts, report) = send_and_check(test, &mut out, &mut source, 1000);
        assert_complete(&format!("from {first}"), counts, &report, first, 1000, begun);
    }
}

/// The other end's receive loop gets a thread of its own, and nobody waits for it: its 256 places do not suffice. Each
/// frame is either counted as dropped or arrives.
#[test]
fn frames_for_which_there_is_no_room_are_counted_one_by_one() {
    const COUNT: u64 = 100_000;
    let test = "frames_for_which_there_is_no_room_are_counted_one_by_one";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("a", "b");
    // With GRO the loop is there before a receiver is.
    Offload::Gro.set(&b.name, true).expect("GRO on");
    if !give_thread(test, &b) {
        return;
    }
    let until = Instant::now() + PATIENCE;
    let mut dropped = 0;
    while dropped == 0 {
        assert!(Instant::now() < until, "nothing was ever too much: this test shows nothing");
        let mut source = receiver(&b);
        let config = LiveFramesConfig { batch: 256, ..LiveFramesConfig::new(&a.name) };
        let mut out = LiveFrames::open(&config, &parts("60,flows=10")).unwrap_or_else(|e| panic!("{e}"));
        let (counts, report) = send_and_check(test, &mut out, &mut source, COUNT);
        println!("{counts:?}, {} arrived", report.frames);
        assert_eq!((counts.made, counts.under_way), (COUNT, 0));
        assert_eq!(counts.sent + counts.dropped, COUNT);
        assert_eq!(report.frames, counts.sent, "{report}");
        assert_eq!(report.damaged + report.duplicated + report.reordered, 0, "{report}");
        dropped += counts.dropped;
    }
}

/// Gives the port's receive loop a thread. `/sys` shows the ports of the namespace in which it was mounted, so it is
/// mounted once more, where nobody else sees it.
fn give_thread(test: &str, port: &Port) -> bool {
    let Some(mut unshare) = testkit::tool(test, "unshare") else { return false };
    let script = format!("mount -t sysfs none /sys && echo 1 > /sys/class/net/{}/threaded", port.name);
    let done = unshare.args(["--mount", "sh", "-c", &script]).output().expect("unshare runs");
    if !done.status.success() {
        testkit::skip(
            test,
            &format!("no thread for the receive loop: {}", String::from_utf8_lossy(&done.stderr).trim()),
        );
    }
    done.status.success()
}

/// The kernel then refuses the frames before the driver sees them, without a word.
#[test]
fn frames_that_vanish_because_the_receiver_has_left_do_not_count_as_sent() {
    let test = "frames_that_vanish_because_the_receiver_has_left_do_not_count_as_sent";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("a", "b");
    let source = receiver(&b);
    let mut out = open(&a, &parts("60")).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(out.send(64).expect("send"), 64);
    assert!(out.flush().expect("flush"));
    drop(source);
    let mut reader = RawReader::new(&b);
    assert_eq!(out.send(50).expect("send"), 50);
    assert!(!out.flush().expect("flush"));
    assert_eq!(out.counts().expect("counts"), LiveCounts { made: 114, sent: 64, dropped: 0, under_way: 50 });
    assert_eq!(reader.all(QUIET).len(), 0);
    sandbox.netlink().delete_link(a.index).expect("the port goes");
    assert!(matches!(out.counts(), Err(SourceError::Gone { .. })));
}

/// A receiver in generic mode is a program too, but not one that the driver runs.
#[test]
fn a_receiver_in_generic_mode_takes_live_frames_only_with_gro() {
    let test = "a_receiver_in_generic_mode_takes_live_frames_only_with_gro";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("a", "b");
    let generic = AttachMode::Only(afxdp::XdpMode::Generic);
    let config = AfXdpConfig { xdp: generic, receive_ring: 8192, chunks: 16_384, ..AfXdpConfig::new(&b.name) };
    let mut source = afxdp::open(&config).unwrap_or_else(|e| panic!("{e}")).remove(0);
    assert!(refusal(open(&a, &parts("60"))).contains("takes no XDP frames"));
    Offload::Gro.set(&b.name, true).expect("GRO on");
    let begun = realtime();
    let mut out = open(&a, &parts("60")).unwrap_or_else(|e| panic!("{e}"));
    let (counts, report) = send_and_check(test, &mut out, &mut source, u64::from(BATCH) * 100);
    assert_complete("generic", counts, &report, 0, u64::from(BATCH) * 100, begun);
}
