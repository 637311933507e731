//! Timestamps that an aggregation switch added to the frames: from a file, from an interface, and mixed with frames
//! that have none.

use crate::common;

use base::Timestamp;
use capture::auto::SourceKind;
use common::{Ended, file, frame, plan, port, run, start, stop, until_offered, write_capture};
use netgrain_engine::{Plan, SourcePlan};
use std::collections::BTreeMap;
use std::time::Duration;
use testkit::{RawSender, Sandbox, TempDir};
use timestamping::SwitchTimestamps;

/// The frame with a MetaWatch trailer.
fn metawatch(frame: &[u8], time: Timestamp) -> Vec<u8> {
    let trailer =
        [&[0xaa; 4][..], &(time.secs() as u32).to_be_bytes(), &time.subsec_nanos().to_be_bytes(), &[0x01, 0, 3, 7]];
    [frame, &trailer.concat()].concat()
}

/// The frame with the header of an Arista 7280R: UTC, 64 bits.
fn arista(frame: &[u8], time: Timestamp) -> Vec<u8> {
    let header =
        [&[0xd2, 0x8b, 0, 1, 1, 0x10][..], &(time.secs() as u32).to_be_bytes(), &time.subsec_nanos().to_be_bytes()];
    [&frame[..12], &header.concat(), &frame[12..]].concat()
}

fn with(format: SwitchTimestamps, plan: Plan) -> Plan {
    Plan { switch_timestamps: format, ..plan }
}

fn stored(ended: &Ended) -> Vec<(Timestamp, Vec<u8>)> {
    ended.packets().map(|packet| (packet.ts, packet.bytes.clone())).collect()
}

#[test]
fn packets_of_a_file_get_the_time_of_the_switch_and_lose_its_bytes() {
    let dir = TempDir::new("packets_of_a_file_get_the_time_of_the_switch_and_lose_its_bytes");
    let captured = |i: u64| Timestamp::from_secs_nanos(1_700_000_000, i * 10_000);
    // The switch made its timestamp 40 s before the capture.
    let switched = |i: u64| captured(i).before(Duration::from_secs(40));
    for (format, add) in [
        (SwitchTimestamps::Metawatch, metawatch as fn(&[u8], Timestamp) -> Vec<u8>),
        (SwitchTimestamps::AristaHeader, arista),
    ] {
        let original = |i: u64| frame(i as u32, 60 + i as usize, &[]);
        let path = dir.join(format!("{format}.pcap"));
        write_capture(&path, (0..200).map(|i| (captured(i), add(&original(i), switched(i)))));
        let ended = run(&with(format, plan(file(&path), &dir.join(format.name()))));
        let expected: Vec<_> = (0..200).map(|i| (switched(i), original(i))).collect();
        assert_eq!(stored(&ended), expected, "{format}");
        assert!(ended.packets().all(|packet| packet.wire_len as usize == packet.bytes.len()));
        assert_eq!(ended.report.queues[0].timestamp_methods, BTreeMap::from([("trailer", 200)]));
        // Without the setting, the frames keep the bytes of the switch and the time of the capture.
        let ended = run(&plan(file(&path), &dir.join(format!("{format}-off"))));
        let expected: Vec<_> = (0..200).map(|i| (captured(i), add(&original(i), switched(i)))).collect();
        assert_eq!(stored(&ended), expected, "{format}");
    }
}

#[test]
fn packets_without_a_trailer_are_unchanged_and_counted() {
    let dir = TempDir::new("packets_without_a_trailer_are_unchanged_and_counted");
    let captured = |i: u64| Timestamp::from_secs_nanos(1_700_000_000, i * 10_000);
    let packet = |i: u64| match i % 3 {
        0 => frame(i as u32, 100, &[]),
        _ => metawatch(&frame(i as u32, 100, &[]), captured(i)),
    };
    let path = dir.join("mixed.pcap");
    write_capture(&path, (0..300).map(|i| (captured(i), packet(i))));
    let ended = run(&with(SwitchTimestamps::Metawatch, plan(file(&path), &dir.join("store"))));
    assert_eq!(stored(&ended), (0..300).map(|i| (captured(i), frame(i as u32, 100, &[]))).collect::<Vec<_>>());
    assert_eq!(ended.report.queues[0].timestamp_methods, BTreeMap::from([("trailer", 200), ("file", 100)]));
    assert_eq!((ended.report.counts.residue, ended.report.counts.lost_total), (0, 0));
}

#[test]
fn trailers_are_read_from_interfaces_of_both_sources() {
    let Some(sandbox) = Sandbox::new("trailers_are_read_from_interfaces_of_both_sources") else { return };
    let dir = TempDir::new("trailers_are_read_from_interfaces_of_both_sources");
    for (kind, name, ordinary) in [(SourceKind::AfXdp, "x", "poll"), (SourceKind::Tpacket, "t", "kernel")] {
        let (a, b) = sandbox.veth(&format!("{name}a"), &format!("{name}b"));
        // The clock of the switch is 3 s behind.
        let begin = sys::clock::realtime().before(Duration::from_secs(3));
        let time = |i: u64| begin.after(Duration::from_micros(i));
        let plan = with(
            SwitchTimestamps::Metawatch,
            plan(SourcePlan::Interface(port(&b.name, kind)), &dir.join(format!("store-{name}"))),
        );
        let capture = start(&plan);
        let wire = RawSender::new(&a);
        wire.send(&(0..500).map(|i| metawatch(&frame(i as u32, 80, &[]), time(i))).collect::<Vec<_>>());
        until_offered(&capture, 500);
        wire.send(&(500..510).map(|i| frame(i, 80, &[])).collect::<Vec<_>>());
        until_offered(&capture, 510);
        let ended = stop(capture, &plan);
        let stored = stored(&ended);
        let expected: Vec<_> = (0..500).map(|i| (time(i), frame(i as u32, 80, &[]))).collect();
        assert_eq!(stored[..500], expected, "{name}");
        assert_eq!(stored.len(), 510);
        assert_eq!(ended.report.queues[0].timestamp_methods, BTreeMap::from([("trailer", 500), (ordinary, 10)]));
        assert_eq!((ended.report.counts.residue, ended.note_count(base::Note::Clamped)), (0, 0), "{name}");
        assert!(ended.report.faults.is_empty(), "{:?}", ended.report.faults);
    }
}
