//! The methods of timestamping in a running capture.

use crate::common;

use base::{Timestamp, TimestampMethod, TimestampQuality};
use capture::auto::SourceKind;
use common::{frames, plan, port, run, sim, start, stop, until, until_offered};
use netgrain_engine::{Capture, Plan, Report, SocketPlan, SourcePlan};
use ring::{Desc, Listener, Mode, attach};
use std::collections::BTreeMap;
use std::time::Duration;
use testkit::{RawSender, Sandbox, TempDir};
use timestamping::TimestampSetting;

/// The methods that the engine thread applies, and the methods that their packets have.
const ENGINE_METHODS: [(TimestampSetting, &[TimestampMethod]); 6] = [
    (TimestampSetting::Auto, &[TimestampMethod::Poll]),
    (TimestampSetting::Poll, &[TimestampMethod::Poll]),
    (TimestampSetting::Batch, &[TimestampMethod::Batch]),
    (TimestampSetting::Udts, &[TimestampMethod::Udts]),
    (TimestampSetting::Wdts, &[TimestampMethod::Wdts]),
    (TimestampSetting::Adaptive, &[TimestampMethod::Poll, TimestampMethod::Wdts]),
];

fn with_socket(source: SourcePlan, dir: &TempDir, timestamps: TimestampSetting) -> Plan {
    let socket = SocketPlan {
        path: dir.join(timestamps.name()).with_extension("s"),
        mode: 0o600,
        uid: None,
        gid: None,
        allow_lossless: false,
        forward: Vec::new(),
    };
    Plan { socket: Some(socket), timestamps, ..plan(source, &dir.join(timestamps.name())) }
}

/// The descriptors of all packets that the listener gets until `count` packets are read.
fn packets(listener: &mut Listener, count: usize) -> Vec<Desc> {
    let (mut batch, mut all) = (Vec::new(), Vec::new());
    until("the listener has read all packets", || {
        listener.next(1024, &mut batch);
        all.extend(batch.iter().copied().filter(Desc::is_packet));
        all.len() >= count
    });
    all
}

fn assert_methods_and_order(all: &[Desc], methods: &[TimestampMethod], from: Timestamp, to: Timestamp) {
    for pair in all.windows(2) {
        assert!(pair[0].timestamp() <= pair[1].timestamp(), "the timestamps go back");
    }
    for d in all {
        assert!(methods.contains(&d.timestamp_method()), "{:?} is none of {methods:?}", d.timestamp_method());
        assert!((from..=to).contains(&d.timestamp()), "{:?} is not between {from:?} and {to:?}", d.timestamp());
    }
}

#[test]
fn each_method_is_in_the_descriptors_of_an_af_xdp_capture() {
    let test = "each_method_is_in_the_descriptors_of_an_af_xdp_capture";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let dir = TempDir::new("stamps");
    for (i, (setting, methods)) in ENGINE_METHODS.into_iter().enumerate() {
        let (a, b) = sandbox.veth(&format!("a{i}"), &format!("b{i}"));
        let plan = with_socket(SourcePlan::Interface(port(&b.name, SourceKind::AfXdp)), &dir, setting);
        let capture = start(&plan);
        let path = plan.socket.as_ref().map(|socket| socket.path.clone()).expect("a socket");
        let mut listener = attach(&path, Mode::Lossy, "test").expect("attached").remove(0);
        // The clock of the engine may differ from the system clock by less than a step.
        let from = sys::clock::realtime().before(Duration::from_millis(1));
        let wire = RawSender::new(&a);
        for burst in 0..20 {
            wire.send(&frames(burst * 100..(burst + 1) * 100, 60 + 50 * burst as usize));
        }
        until_offered(&capture, 2000);
        let to = sys::clock::realtime().after(Duration::from_millis(1));
        assert_methods_and_order(&packets(&mut listener, 2000), methods, from, to);
        let ended = stop(capture, &plan);
        assert_eq!((ended.report.counts.stored, ended.report.counts.lost_total), (2000, 0), "{setting}");
        assert_eq!(ended.note_count(base::Note::Clamped), 0, "{setting}");
    }
}

/// Captures 500 frames, and returns their descriptors and the report of the capture.
fn capture_500(sandbox: &Sandbox, dir: &TempDir, name: &str, setting: TimestampSetting) -> (Vec<Desc>, Report) {
    let (a, b) = sandbox.veth(&format!("{name}a"), &format!("{name}b"));
    let plan = with_socket(SourcePlan::Interface(port(&b.name, SourceKind::AfXdp)), dir, setting);
    let capture = start(&plan);
    let path = plan.socket.as_ref().map(|socket| socket.path.clone()).expect("a socket");
    let mut listener = attach(&path, Mode::Lossy, "test").expect("attached").remove(0);
    RawSender::new(&a).send(&frames(0..500, 200));
    until_offered(&capture, 500);
    let all = packets(&mut listener, 500);
    (all, stop(capture, &plan).report)
}

#[test]
fn the_xdp_program_timestamps_packets_by_the_kernels_clock() {
    let Some(sandbox) = Sandbox::new("the_xdp_program_timestamps_packets_by_the_kernels_clock") else { return };
    let from = sys::clock::realtime();
    let (all, report) = capture_500(&sandbox, &TempDir::new("stamps"), "k", TimestampSetting::Kernel);
    assert_methods_and_order(&all, &[TimestampMethod::Kernel], from, sys::clock::realtime());
    assert_eq!(report.timestamp_source, "kernel");
    assert_eq!(report.queues[0].timestamp_methods, BTreeMap::from([("kernel", 500)]));
    assert!(report.counts.residue == 0 && report.faults.is_empty(), "{:?}", report.faults);
}

#[test]
fn packets_without_a_timestamp_of_the_nic_are_polled_counted_and_reported() {
    let test = "packets_without_a_timestamp_of_the_nic_are_polled_counted_and_reported";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let from = sys::clock::realtime().before(Duration::from_millis(1));
    let (all, report) = capture_500(&sandbox, &TempDir::new("stamps"), "h", TimestampSetting::Hardware);
    let to = sys::clock::realtime().after(Duration::from_millis(1));
    assert_methods_and_order(&all, &[TimestampMethod::Poll], from, to);
    assert_eq!(report.queues[0].timestamp_methods, BTreeMap::from([("poll", 500)]));
    let is_warned = |text: &str| report.warnings.iter().any(|w| w.starts_with("hb queue 0: ") && w.contains(text));
    assert!(is_warned("method poll"), "{:?}", report.warnings);
    assert_eq!(report.counts.residue, 0);
}

#[test]
fn each_method_timestamps_a_simulation_in_real_time() {
    let dir = TempDir::new("stamps");
    for (setting, methods) in ENGINE_METHODS {
        let plan = with_socket(sim("imix,rate=50kpps,packets=100k"), &dir, setting);
        let from = sys::clock::realtime().before(Duration::from_millis(1));
        let capture = start(&plan);
        let path = plan.socket.as_ref().map(|socket| socket.path.clone()).expect("a socket");
        let mut listener = attach(&path, Mode::Lossy, "test").expect("attached").remove(0);
        let all = packets(&mut listener, 1000);
        let to = sys::clock::realtime().after(Duration::from_millis(1));
        assert_methods_and_order(&all, methods, from, to);
        let queue = capture.report().queues.remove(0);
        let expected = if setting == TimestampSetting::Auto { "poll" } else { setting.name() };
        assert_eq!(queue.timestamp_method, expected);
        let ended = stop(capture, &plan);
        let packets: Vec<_> = ended.packets().map(|packet| packet.ts).collect();
        assert!(packets.is_sorted(), "{setting}");
        let index =
            ended.files.iter().flat_map(|file| &file.index.entries).filter(|entry| entry.first_record.is_some());
        let quality = index.fold(TimestampQuality::UNKNOWN, |all, entry| all.and(entry.timestamps));
        assert!(!quality.methods.is_empty(), "{setting}");
        assert!(quality.methods.iter().all(|method| methods.contains(&method)), "{setting}: {quality:?}");
        assert_eq!(quality.deviation_nanos.is_some(), expected != "poll", "{setting}: {quality:?}");
        assert!(quality.clock.is_some(), "{setting}: the state of the system clock is known from the first packet on");
    }
}

#[test]
fn packets_of_virtual_time_have_neither_deviation_nor_clock_in_the_index() {
    let dir = TempDir::new("stamps");
    let spec = "60,packets=100,rate=1Mpps".parse().expect("a specification");
    let source = SourcePlan::Sim { spec, start: Some(Timestamp::from_secs_nanos(1_700_000_000, 0)), name: None };
    let ended = run(&plan(source, &dir.join("store")));
    let quality = ended.files[0].index.entries[0].timestamps;
    let methods = [TimestampMethod::Schedule].into_iter().collect();
    assert_eq!(quality, TimestampQuality { methods, ..TimestampQuality::UNKNOWN });
}

#[test]
fn a_method_that_the_source_does_not_have_is_refused() {
    let test = "a_method_that_the_source_does_not_have_is_refused";
    let dir = TempDir::new("stamps");
    let refused = |source: SourcePlan, timestamps: TimestampSetting| {
        let plan = Plan { timestamps, ..plan(source, &dir.join("store")) };
        match Capture::start(&plan) {
            Ok(_) => panic!("{timestamps} was accepted"),
            Err(error) => error.to_string(),
        }
    };
    let error = refused(sim("60,packets=1"), TimestampSetting::Hardware);
    assert!(error.contains("timestamps = hardware is not available") && error.contains("adaptive"), "{error}");
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (_, b) = sandbox.veth("a", "b");
    for (kind, setting, reason) in [
        (SourceKind::Tpacket, TimestampSetting::Adaptive, "af-xdp"),
        (SourceKind::Tpacket, TimestampSetting::Hardware, "cannot timestamp all received frames"),
    ] {
        let error = refused(SourcePlan::Interface(port(&b.name, kind)), setting);
        assert!(error.contains(reason), "{error}");
    }
}
