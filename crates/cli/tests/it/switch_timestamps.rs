//! `--switch-timestamps`: the timestamps that an aggregation switch added to the frames of a capture.

use crate::common::{arg, objects, run};

use base::Timestamp;
use testkit::TempDir;

/// A capture of 30 frames with a MetaWatch trailer and 10 frames without.
fn capture() -> Vec<u8> {
    let mut file = pcap::ng::Writer::new(Vec::new(), "", "").expect("a buffer");
    let interface = file.interface("tap", pcap::ETHERNET).expect("a buffer");
    for n in 0..40u32 {
        let mut frame = vec![0x5a; 60];
        if n % 4 != 0 {
            frame.extend([1, 2, 3, 4]);
            frame.extend(1_700_000_000u32.to_be_bytes());
            frame.extend((n * 1000 + 7).to_be_bytes());
            frame.extend([0x01, 0, 3, 9]);
        }
        let ts = Timestamp::from_secs_nanos(1_700_000_000, u64::from(n) * 1000);
        let options = pcap::ng::PacketOptions::default();
        file.packet(interface, ts, frame.len() as u32, &frame, options).expect("a buffer");
    }
    file.finish().expect("a buffer")
}

#[test]
fn a_recorded_capture_has_the_times_of_the_switch_and_reports_the_methods() {
    let dir = TempDir::new("switch-timestamps");
    let (file, store, out) = (dir.join("tap.pcapng"), dir.join("store"), dir.join("out.pcap"));
    std::fs::write(&file, capture()).expect("a file");
    let args = ["record", "-r", arg(&file), "--store", arg(&store), "--ring", "8MiB", "--json"];
    let recorded = run(&[&args[..], &["--switch-timestamps", "metawatch"]].concat());
    assert_eq!(recorded.status, Some(0), "{recorded:?}");
    let reports = objects(&recorded.out);
    let report = reports.iter().find(|object| object["report"].is_object()).expect("a report");
    let methods = &report["report"]["queues"][0]["timestamp_methods"];
    assert_eq!((&methods["trailer"], &methods["file"]), (&30.into(), &10.into()), "{report}");
    assert_eq!(run(&["packets", "--store", arg(&store), "-w", arg(&out)]).status, Some(0));
    let bytes = std::fs::read(&out).expect("the packets");
    assert_eq!(bytes.len(), 24 + 40 * (16 + 60), "no frame has bytes of the switch");
    let second = &bytes[24 + 76..];
    let nanos = u32::from_le_bytes([second[4], second[5], second[6], second[7]]);
    assert_eq!(nanos, 1007, "the time of the switch");
}

#[test]
fn an_unknown_format_is_refused_with_the_list_of_formats() {
    let refused = run(&["record", "-r", "none.pcap", "--store", "none", "--switch-timestamps", "7150"]);
    assert_eq!(refused.status, Some(2), "{refused:?}");
    assert!(refused.err.contains("off, metawatch, arista-header"), "{refused:?}");
}
