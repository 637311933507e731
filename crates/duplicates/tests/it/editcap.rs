//! With the setting `exact`, the detector removes the same frames as `editcap` of Wireshark.

use crate::traffic::{detect, mix, owned};
use base::{Prng, Timestamp};
use difftest::naive_duplicates::OwnedPacket;
use netgrain_duplicates::Settings;
use pcap::classic::{Resolution, Writer};
use std::path::Path;
use std::time::Duration;
use testkit::TempDir;
use testkit::copies::{Copied, plant};

/// The frames that `editcap` leaves, with their times.
fn kept(mut editcap: std::process::Command, arguments: &[&str], file: &Path, out: &Path) -> Vec<(u64, Vec<u8>)> {
    // The format is given, because the default is pcapng.
    let status = editcap.args(["-F", "nsecpcap"]).args(arguments).arg(file).arg(out).output().expect("editcap starts");
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    let mut reader = pcap::Reader::open(std::fs::File::open(out).expect("the output")).expect("a capture");
    let mut frames = Vec::new();
    while let Some(packet) = reader.next().expect("a whole capture") {
        frames.push((packet.ts.unwrap_or_default().nanos(), packet.data.to_vec()));
    }
    frames
}

#[track_caller]
fn agree(test: &str, packets: &[OwnedPacket], dir: &TempDir) {
    let (file, out) = (dir.join("in.pcap"), dir.join("out.pcap"));
    let mut writer = Writer::new(std::fs::File::create(&file).expect("a file"), Resolution::Nanos, 1).expect("room");
    for packet in packets {
        writer.write(Timestamp::from_nanos(packet.nanos), packet.wire_len, &packet.data).expect("room");
    }
    drop(writer.finish().expect("room"));
    let exact = Settings { exact: true, window: Duration::from_secs(60), copies_max: u8::MAX, ..Settings::default() };
    let packets_of = |window_packets| Settings { window_packets, ..exact.clone() };
    let time = |nanos| Settings { window: Duration::from_nanos(nanos), ..exact.clone() };
    // The window of editcap contains the packet itself.
    let cases: [(&[&str], Settings); 6] = [
        (&["-d"], packets_of(4)),
        (&["-D", "2"], packets_of(1)),
        (&["-D", "100"], packets_of(99)),
        (&["-D", "1000"], packets_of(999)),
        (&["-w", "0.00005"], time(50_000)),
        (&["-w", "0.001"], time(1_000_000)),
    ];
    for (arguments, settings) in cases {
        let Some(editcap) = testkit::tool(test, "editcap") else { return };
        let theirs = kept(editcap, arguments, &file, &out);
        let (results, detector) = detect(&settings, packets, None);
        let ours = packets.iter().zip(&results).filter(|(_, result)| result.is_none());
        let ours: Vec<(u64, Vec<u8>)> = ours.map(|(packet, _)| (packet.nanos, packet.data.clone())).collect();
        assert_eq!((ours.len(), detector.counts().is_complete()), (theirs.len(), true), "{arguments:?}");
        assert!(ours == theirs, "{arguments:?}");
        assert!(detector.counts().duplicates() > 10, "{arguments:?}");
    }
}

#[test]
fn exact_comparison_removes_the_frames_that_editcap_removes() {
    let test = "exact_comparison_removes_the_frames_that_editcap_removes";
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let dir = TempDir::new("duplicates-editcap");
    let ways = [Copied::Exact, Copied::Exact, Copied::Tagged, Copied::Routed];
    let planted = plant(mix(3000, &mut prng), &ways, (1000, 3, 100_000), &mut prng);
    let mut packets = owned(&planted);
    // Repeated frames, some of them next to each other.
    for i in 0..200 {
        let mut copy = packets[i * 3].clone();
        copy.nanos += prng.below(3) * 2000;
        packets.push(copy);
    }
    packets.sort_by_key(|packet| packet.nanos);
    agree(test, &packets, &dir);
}

#[test]
fn exact_comparison_of_real_captures_removes_the_frames_that_editcap_removes() {
    let test = "exact_comparison_of_real_captures_removes_the_frames_that_editcap_removes";
    let Some(directory) = testkit::traces(test) else { return };
    let mut prng = Prng::new(testkit::seed(test));
    let dir = TempDir::new("duplicates-editcap-real");
    let frames = testkit::captures::collect(&directory, 300).into_iter().map(|frame| (frame.bytes, frame.wire_len));
    let planted = plant(frames, &[Copied::Exact], (1000, 5, 30_000), &mut prng);
    agree(test, &owned(&planted), &dir);
}
