//! Live frames on veth pairs in a network namespace of the test, verified by the checker, which shares no code with the
//! generator. A test that cannot run reports that it is skipped.

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
/// The time after which a wait has failed; long enough for a loaded machine.
const WAIT_MAX: Duration = Duration::from_secs(120);
/// An MTU for the longest frame that the generator makes.
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

fn open_error(result: Result<LiveFrames, SourceError>) -> String {
    result.err().expect("an error").to_string()
}

/// Sends `count` frames and writes the frames that arrive to a file. Returns the counts and the checker's report of the
/// file.
fn send_and_check(
    test: &str,
    out: &mut LiveFrames,
    source: &mut impl Source,
    count: u64,
) -> (LiveCounts, checker::Report) {
    let directory = TempDir::new(test);
    let path = directory.join("frames.pcap");
    let mut file =
        Writer::new(BufWriter::new(File::create(&path).expect("a file")), Resolution::Nanos, 1).expect("a header");
    let mut made = 0;
    while made < count {
        // Each call sends at most as many frames as the receiver can buffer.
        made += out.send((count - made).min(4096)).expect("send");
        while matches!(store(source, &mut file, Duration::ZERO), Polled::Frames(_)) {}
    }
    assert!(out.flush().expect("flush"), "all frames are accounted for: {:?}", out.counts());
    source.stop();
    let until = Instant::now() + WAIT_MAX;
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

/// Asserts that each sent frame arrived once, complete and in order, and departed after `begun`. The peer queues at
/// most 256 frames; on a busy host it may drop more, which are counted.
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
fn unsuitable_interfaces_and_frames_are_rejected_with_advice() {
    let test = "unsuitable_interfaces_and_frames_are_rejected_with_advice";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let port = |name: &str| Port { name: name.to_owned(), index: 0 };
    let text = open_error(open(&port("nowhere"), &parts("60")));
    assert!(text.starts_with("nowhere: cannot find the interface"), "{text}");
    let text = open_error(open(&port("lo"), &parts("60")));
    assert_eq!(text, "lo: live frames can be counted on veth interfaces only; send through AF_XDP");
    let (a, b) = sandbox.veth_with("a", "b", ROOMY);
    let text = open_error(open(&a, &parts("60")));
    assert!(text.starts_with("a: the peer does not accept XDP frames; enable GRO on the peer"), "{text}");
    let text = open_error(open(&a, &parts(&(MAX_LEN + 1).to_string())));
    assert!(text.starts_with(&format!("a: live frames have at most {MAX_LEN} bytes, not {}", MAX_LEN + 1)), "{text}");
    let text = open_error(open(&a, &parts(&format!("60,flows={}", MAX_FLOWS + 1))));
    assert!(text.starts_with(&format!("a: live frames have at most {MAX_FLOWS} flows")), "{text}");
    let batch = LiveFramesConfig { batch: 257, ..LiveFramesConfig::new("a") };
    assert_eq!(open_error(LiveFrames::open(&batch, &parts("60"))), "a: a batch has 1 to 256 frames, not 257");
    sandbox.netlink().set_mtu(a.index, 1000).expect("an MTU");
    assert_eq!(
        open_error(open(&a, &parts("1015"))),
        "a: frames of 1015 bytes need an MTU of 1001, but the MTU is 1000"
    );
    sandbox.set_up(&b, false);
    assert!(open_error(open(&a, &parts("60"))).starts_with("a: the interface or its peer is down"));
}

#[test]
fn live_frames_equal_the_traffic_except_for_the_departure_time() {
    let test = "live_frames_equal_the_traffic_except_for_the_departure_time";
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
fn frames_of_all_sizes_and_many_flows_arrive_through_af_xdp() {
    let test = "frames_of_all_sizes_and_many_flows_arrive_through_af_xdp";
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

/// With GRO and without an XDP program, frames become socket buffers at the peer; GRO must not merge them.
#[test]
fn with_gro_frames_arrive_complete_and_unmerged_through_tpacket() {
    let test = "with_gro_frames_arrive_complete_and_unmerged_through_tpacket";
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

/// The receive loop of the peer runs in a kernel thread for which the sender does not wait, so the peer's ring of 256
/// entries overflows. Each frame is either counted as dropped or arrives.
#[test]
fn each_frame_that_a_full_peer_drops_is_counted() {
    const COUNT: u64 = 100_000;
    let test = "each_frame_that_a_full_peer_drops_is_counted";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("a", "b");
    // If GRO is on, the peer has a receive loop (NAPI) even before a receiver attaches an XDP program.
    Offload::Gro.set(&b.name, true).expect("GRO on");
    if !enable_napi_thread(test, &b) {
        return;
    }
    let until = Instant::now() + WAIT_MAX;
    let mut dropped = 0;
    while dropped == 0 {
        assert!(Instant::now() < until, "no frame was dropped, so this test proves nothing");
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

/// Runs the receive loop (NAPI) of the interface in a kernel thread. A mount of `/sys` shows the interfaces of the
/// namespace that mounted it, so the command mounts it again in a mount namespace of its own.
fn enable_napi_thread(test: &str, port: &Port) -> bool {
    let Some(mut unshare) = testkit::tool(test, "unshare") else { return false };
    let script = format!("mount -t sysfs none /sys && echo 1 > /sys/class/net/{}/threaded", port.name);
    let done = unshare.args(["--mount", "sh", "-c", &script]).output().expect("unshare runs");
    if !done.status.success() {
        testkit::skip(
            test,
            &format!("NAPI threads cannot be enabled: {}", String::from_utf8_lossy(&done.stderr).trim()),
        );
    }
    done.status.success()
}

/// Without a receiver the kernel discards the frames before the driver, without a counter.
#[test]
fn frames_lost_after_the_receiver_closed_are_not_counted_as_sent() {
    let test = "frames_lost_after_the_receiver_closed_are_not_counted_as_sent";
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
    sandbox.netlink().delete_link(a.index).expect("the interface is deleted");
    assert!(matches!(out.counts(), Err(SourceError::Gone { .. })));
}

/// A receiver in generic mode attaches an XDP program that the driver does not run.
#[test]
fn a_receiver_in_generic_mode_takes_live_frames_only_with_gro() {
    let test = "a_receiver_in_generic_mode_takes_live_frames_only_with_gro";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("a", "b");
    let generic = AttachMode::Only(afxdp::XdpMode::Generic);
    let config = AfXdpConfig { xdp: generic, receive_ring: 8192, chunks: 16_384, ..AfXdpConfig::new(&b.name) };
    let mut source = afxdp::open(&config).unwrap_or_else(|e| panic!("{e}")).remove(0);
    assert!(open_error(open(&a, &parts("60"))).contains("does not accept XDP frames"));
    Offload::Gro.set(&b.name, true).expect("GRO on");
    let begun = realtime();
    let mut out = open(&a, &parts("60")).unwrap_or_else(|e| panic!("{e}"));
    let (counts, report) = send_and_check(test, &mut out, &mut source, u64::from(BATCH) * 100);
    assert_complete("generic", counts, &report, 0, u64::from(BATCH) * 100, begun);
}
