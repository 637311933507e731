//! Tests that `/metrics`, the report, its JSON, the ledger and the index contain the same packet counts.

use crate::common;

use common::{plan, run, sim};
use interface_program::{MapReport, MapUsage, ProgramReport};
use meter::{MeterReport, SinkReport};
use netgrain_engine::{
    Capture, ListenerReport, MetricsServer, Plan, QueueReport, RecorderReport, Report, RetentionReport, Second,
    exposition,
};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use testkit::TempDir;

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a connection");
    write!(stream, "GET {path} HTTP/1.0\r\nHost: test\r\n\r\n").expect("a request");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a response");
    text
}

/// Returns the samples of a metrics page: name and labels, and the value.
fn samples(text: &str) -> BTreeMap<&str, f64> {
    let body = text.split_once("\r\n\r\n").map_or(text, |(_, body)| body);
    let lines = body.lines().filter(|l| !l.starts_with('#') && !l.is_empty());
    lines.map(|l| l.rsplit_once(' ').expect("a sample")).map(|(k, v)| (k, v.parse().expect("a number"))).collect()
}

/// A plan at full speed with a small ring and a filter, so that packets are filtered and, on a slow volume, lost.
fn lossy(store: &TempDir) -> Plan {
    Plan {
        filter: Some("net 198.18.0.0/16".to_owned()),
        ..plan(sim("1000,flows=1k,packets=200k,truth"), &store.join("s"))
    }
}

#[test]
fn metrics_report_json_ledger_and_index_have_equal_counts() {
    let store = TempDir::new("metrics");
    let plan = lossy(&store);
    let capture = Capture::start(&plan).unwrap_or_else(|e| panic!("{e}"));
    let observer = capture.observer();
    let server = MetricsServer::start("127.0.0.1:0", move || observer.measured()).expect("an address");
    assert!(get(server.address(), "/").contains("404"));
    common::until("the capture has ended", || capture.finished());
    let seconds = {
        // `common::end` asserts that files, indexes, checker and ledger count the same packets.
        let mut capture = capture;
        capture.wait().expect("a run without an error");
        let seconds: Vec<Second> = capture.ledger().rows().map(|r| Second::from(&r)).collect();
        (seconds, common::end(capture, &plan))
    };
    let (seconds, ended) = seconds;
    let counts = &ended.report.counts;
    // Whether packets are lost depends on the speed of the volume.
    assert!(counts.offered == 200_000 && counts.filtered > 0 && counts.stored > 0, "{counts:?}");

    let text = get(server.address(), "/metrics");
    assert!(text.contains("text/plain; version=0.0.4"), "{text}");
    let found = samples(&text);
    let of = |name: &str, more: &str| {
        let key = format!("netgrain_{name}{{interface=\"sim\",queue=\"0\"{more}}}");
        *found.get(key.as_str()).unwrap_or_else(|| panic!("no {key} in {text}")) as u64
    };
    assert_eq!(of("offered_packets_total", ""), counts.offered);
    assert_eq!(of("stored_packets_total", ""), counts.stored);
    assert_eq!(of("stored_wire_bytes_total", ""), counts.stored_bytes);
    assert_eq!(of("filtered_packets_total", ""), counts.filtered);
    assert_eq!(of("residue_packets", ""), 0);
    assert!(found["netgrain_store_free_bytes{interface=\"sim\"}"] > 0.0);
    assert_eq!(testkit::exposition_problems(&text), [""; 0]);
    for cause in base::Cause::ALL {
        let lost = of("lost_packets_total", &format!(",cause=\"{}\"", cause.name()));
        assert_eq!(lost, ended.lost(cause), "{}", cause.name());
    }
    let by_reader = found.get("netgrain_lost_to_reader_packets_total{interface=\"sim\",reader=\"recorder\"}");
    assert_eq!(by_reader.copied().unwrap_or(0.0), counts.lost_total as f64);

    let json = serde_json::to_value(&ended.report).expect("JSON");
    assert_eq!(json["offered"], counts.offered);
    assert_eq!(json["stored"], counts.stored);
    assert_eq!(json["lost"]["ring_full"].as_u64().unwrap_or(0), counts.lost_total);
    let sum = |term: &str| -> u64 {
        let of = |s: &Second| serde_json::to_value(s).expect("JSON")[term].as_u64().expect("a number");
        seconds.iter().map(of).sum()
    };
    assert_eq!((sum("offered"), sum("stored")), (counts.offered, counts.stored));
    assert_eq!((sum("filtered"), sum("lost_total")), (counts.filtered, counts.lost_total));
}

#[test]
fn the_metrics_page_follows_the_exposition_format_and_naming_rules() {
    let test = "the_metrics_page_follows_the_exposition_format_and_naming_rules";
    let recorder = Some(RecorderReport::default());
    let report = Report {
        interface: "a \"b\" \\".to_owned(),
        queues: vec![QueueReport { recorder, ..QueueReport::default() }],
        program: Some(ProgramReport {
            counters: [(0, 3)].into(),
            maps: vec![MapReport {
                map: "hosts".to_owned(),
                kernel: Some(MapUsage::default()),
                ..MapReport::default()
            }],
            ..ProgramReport::default()
        }),
        meter: Some(MeterReport {
            expiry_delays: [1, 2, 0, 0, 0, 0, 0, 0, 4],
            expiry_delay_nanos: 9_500_000_000,
            records: [("idle_timeout", 7)].into(),
            decode_errors: [("short", 1)].into(),
            sinks: vec![SinkReport { name: "udp://c:1".to_owned(), ..SinkReport::default() }],
            ..MeterReport::default()
        }),
        retention: Some(RetentionReport {
            oldest_second: Some(1_800_000_000),
            horizon_seconds: Some(86_400.5),
            ..RetentionReport::default()
        }),
        volume: Some(store::device::Space { free: 1, total: 2 }),
        lost_by_reader: [("slow (pid 1)".to_owned(), 1)].into(),
        listeners: vec![ListenerReport {
            slot: 3,
            name: "a \"quick\" \\ (pid 2)".to_owned(),
            queue: 0,
            mode: "lossy",
            expired: false,
            losses_caused: 0,
            seen: 9,
            missed: 1,
        }],
        ..Report::default()
    };
    let page = exposition(&report);
    assert!(page.contains("netgrain_listener_missed_packets_total{"), "{page}");
    assert_eq!(testkit::exposition_problems(&page), [""; 0]);
    assert_eq!(testkit::promtool_problems(test, &page), "");
    let labels = r#"{interface="a \"b\" \\""#;
    for line in [
        format!("netgrain_flow_expiry_delay_seconds_bucket{labels},le=\"0.25\"}} 3"),
        format!("netgrain_flow_expiry_delay_seconds_bucket{labels},le=\"+Inf\"}} 7"),
        format!("netgrain_flow_expiry_delay_seconds_sum{labels}}} 9.5"),
        format!("netgrain_flow_expiry_delay_seconds_count{labels}}} 7"),
        format!("netgrain_store_free_bytes{labels}}} 1"),
        format!("netgrain_retention_oldest_file_timestamp_seconds{labels}}} 1800000000"),
        format!("netgrain_retention_horizon_seconds{labels}}} 86400.5"),
    ] {
        assert!(page.lines().any(|l| l == line), "{line}: {page}");
    }
}

#[test]
fn two_runs_on_virtual_time_give_identical_files_without_a_loss() {
    let dir = TempDir::new("twice");
    let start = Some(base::Timestamp::from_secs_nanos(1_700_000_000, 0));
    let files = ["one", "two"].map(|name| {
        let spec = "imix,flows=1k,rate=100kpps,packets=100k,truth".parse().expect("a specification");
        let source = netgrain_engine::SourcePlan::Sim { spec, start, name: None };
        let ended = run(&plan(source, &dir.join(name)));
        assert_eq!((ended.report.counts.stored, ended.report.counts.lost_total), (100_000, 0));
        ended.files.iter().map(|f| std::fs::read(&f.path).expect("a file")).collect::<Vec<_>>()
    });
    assert!(files[0] == files[1], "the files of two runs differ");
}
