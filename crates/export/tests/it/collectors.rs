//! Collectors count exactly the exported flows, packets and octets: nfcapd, nfacctd, goflow2 and two Python parsers,
//! each with the default settings of the exporter.

use crate::{common, oracles};

use base::Prng;
use flow::Record;
use netgrain_export::{Exporter, Protocol, Refresh, Settings};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Numbers of unidirectional flows, packets and octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    flows: u64,
    packets: u64,
    octets: u64,
}

fn totals(records: &[Record]) -> Totals {
    let directions = records.iter().flat_map(|r| &r.directions).filter(|s| s.packets > 0);
    directions.fold(Totals::default(), |t, s| Totals {
        flows: t.flows + 1,
        packets: t.packets + s.packets,
        octets: t.octets + s.ip_bytes,
    })
}

fn records(test: &str) -> Vec<Record> {
    let mut prng = Prng::new(testkit::seed(test));
    (0..200).map(|_| common::plausible(&mut prng)).collect()
}

/// Exports records to a target with its default settings, except that the templates are sent again after 15 messages.
fn export(records: &[Record], target: &str, protocol: Protocol) {
    let mut settings = Settings::new(target.parse().expect("a target"));
    (settings.protocol, settings.grace) = (protocol, Duration::from_secs(60));
    settings.interfaces = vec![(1, "mirror1".into())];
    settings.encode.refresh = settings.encode.refresh.map(|refresh| Refresh { messages: 15, ..refresh });
    let exporter = Exporter::start(settings).expect("it starts");
    let handle = exporter.handle();
    for (i, record) in records.iter().enumerate() {
        assert!(handle.flow(record));
        // Limits the rate: the collector shares its CPU with other processes and reads slowly.
        if i % 8 == 7 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let counts = exporter.finish();
    assert_eq!(counts.sent, records.len() as u64, "{counts:?}");
}

/// A child process that is killed at the end of its test.
struct Collector(Child);

impl Drop for Collector {
    fn drop(&mut self) {
        // It may already have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_for(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until a socket is bound to a UDP port in the calling thread's network namespace.
fn wait_for_port(port: u16) {
    let local = format!(":{port:04X} ");
    let has = |file: &str| std::fs::read_to_string(file).is_ok_and(|t| t.contains(&local));
    wait_for("the collector listens", || ["udp", "udp6"].iter().any(|f| has(&format!("/proc/thread-self/net/{f}"))));
}

/// The totals of the complete lines of JSON. A line without a number of flows counts as one flow.
fn json_totals(text: &str) -> Totals {
    let lines = text.lines().filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok());
    lines.fold(Totals::default(), |t, line| {
        let number = |key: &str| line[key].as_u64().unwrap_or_default();
        Totals {
            flows: t.flows + line["flows"].as_u64().unwrap_or(1),
            packets: t.packets + number("packets"),
            octets: t.octets + number("bytes"),
        }
    })
}

/// Waits until a file has all packets, at most a minute, and returns its totals.
fn arrived(path: &std::path::Path, want: Totals) -> Totals {
    let read = || json_totals(&std::fs::read_to_string(path).unwrap_or_default());
    let deadline = Instant::now() + Duration::from_secs(60);
    while read().packets < want.packets && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
    }
    read()
}

const PROTOCOLS: [Protocol; 2] = [Protocol::Ipfix, Protocol::NetflowV9];

#[test]
fn nfcapd_counts_all_exported_flows_without_sequence_failures() {
    let test = "nfcapd_counts_all_exported_flows_without_sequence_failures";
    let some = records(test);
    for protocol in PROTOCOLS {
        let send = |to: std::net::SocketAddr| export(&some, &format!("udp:{to}"), protocol);
        let Some(text) = oracles::nfdump(test, send, &["-I"]) else { return };
        let number = |name: &str| {
            let line =
                text.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_else(|| panic!("no {name:?} in {text}"));
            line.trim().parse::<u64>().expect("a number")
        };
        let counted = Totals { flows: number("Flows:"), packets: number("Packets:"), octets: number("Bytes:") };
        assert_eq!(counted, totals(&some), "{protocol:?}");
        assert_eq!(number("Sequence failures:"), 0, "{protocol:?}");
    }
}

#[test]
fn nfacctd_counts_all_exported_flows() {
    let test = "nfacctd_counts_all_exported_flows";
    let some = records(test);
    for protocol in PROTOCOLS {
        let Some(mut nfacctd) = testkit::tool(test, "nfacctd") else { return };
        let Some(_sandbox) = testkit::Sandbox::new(test) else { return };
        let directory = testkit::TempDir::new(test);
        let (out, log) = (directory.join("out.json"), directory.join("log"));
        let settings = [
            "daemonize: false".to_owned(),
            "nfacctd_ip: 127.0.0.1".into(),
            "nfacctd_port: 2055".into(),
            "plugins: print[sums]".into(),
            "aggregate[sums]: proto, flows".into(),
            "print_output[sums]: json".into(),
            format!("print_output_file[sums]: {}", out.display()),
            // nfacctd appends the flows of each second to the file.
            "print_output_file_append[sums]: true".into(),
            "print_refresh_time[sums]: 1".into(),
        ];
        std::fs::write(directory.join("conf"), settings.join("\n") + "\n").expect("the settings");
        let file = std::fs::File::create(&log).expect("the log");
        let (one, two) = (file.try_clone().expect("the log"), file);
        nfacctd.arg("-f").arg(directory.join("conf")).stdout(one).stderr(two);
        let _collector = Collector(nfacctd.spawn().expect("nfacctd starts"));
        wait_for_port(2055);
        // The process that counts starts after the process that receives, and does not count records that were received
        // before its start.
        wait_for("the counting process runs", || {
            std::fs::read_to_string(&log).is_ok_and(|text| text.contains("( sums/print ): JSON"))
        });
        export(&some, "udp:127.0.0.1:2055", protocol);
        let counted = arrived(&out, totals(&some));
        let log = std::fs::read_to_string(&log).expect("the log");
        assert_eq!(counted, totals(&some), "{protocol:?}: {log}");
        let errors = ["malformed", "unable", "expecting", "discarded", "WARN", "ERROR"];
        assert!(!errors.iter().any(|c| log.contains(c)), "{log}");
    }
}

#[test]
fn goflow2_counts_all_exported_flows() {
    let test = "goflow2_counts_all_exported_flows";
    let some = records(test);
    for protocol in PROTOCOLS {
        let Some(mut goflow2) = testkit::go_tool(test, "goflow2") else { return };
        let Some(_sandbox) = testkit::Sandbox::new(test) else { return };
        let directory = testkit::TempDir::new(test);
        let out = directory.join("out.json");
        // With several workers, a message can be processed before the message with its template.
        goflow2.args(["-listen", "netflow://127.0.0.1:2055?workers=1", "-addr", "127.0.0.1:8080", "-transport.file"]);
        goflow2.arg(&out).stdout(Stdio::null()).stderr(Stdio::null());
        let _collector = Collector(goflow2.spawn().expect("goflow2 starts"));
        wait_for_port(2055);
        export(&some, "udp:127.0.0.1:2055", protocol);
        assert_eq!(arrived(&out, totals(&some)), totals(&some), "{protocol:?}");
    }
}

/// Prints its port, receives datagrams until it has the given number of flows or nothing arrives for a minute, and
/// prints their totals.
const NETFLOW: &str = r#"
import socket, sys
import netflow
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("127.0.0.1", 0))
receiver.settimeout(60)
print(receiver.getsockname()[1], flush=True)
templates = {"netflow": {}, "ipfix": {}}
flows = packets = octets = 0
while flows < int(sys.argv[1]):
    for flow in netflow.parse_packet(receiver.recv(65535), templates).flows:
        has = flow.data
        if "IN_BYTES" not in has and "octetDeltaCount" not in has:
            continue
        flows += 1
        packets += has["IN_PKTS"] if "IN_PKTS" in has else has["packetDeltaCount"]
        octets += has["IN_BYTES"] if "IN_BYTES" in has else has["octetDeltaCount"]
print(flows, packets, octets)
"#;

/// A Python program like [`NETFLOW`], which reads a TCP stream until its end.
const IPFIX: &str = r#"
import socket
import ipfix.ie, ipfix.reader
ipfix.ie.use_iana_default()
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
stream = listener.accept()[0].makefile("rb")
flows = packets = octets = 0
for has in ipfix.reader.from_stream(stream).namedict_iterator():
    if "octetDeltaCount" in has:
        flows += 1
        packets += has["packetDeltaCount"]
        octets += has["octetDeltaCount"]
print(flows, packets, octets)
"#;

/// Exports to a Python program that prints its port first and its totals at the end.
fn python(mut python: Command, program: &str, transport: &str, some: &[Record], protocol: Protocol) {
    let want = totals(some);
    python.args(["-W", "ignore", "-c", program, &want.flows.to_string()]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut collector = Collector(python.spawn().expect("python starts"));
    let mut out = BufReader::new(collector.0.stdout.take().expect("its output"));
    let mut port = String::new();
    out.read_line(&mut port).expect("a port");
    export(some, &format!("{transport}:127.0.0.1:{}", port.trim()), protocol);
    let mut printed = String::new();
    out.read_to_string(&mut printed).expect("its totals");
    let mut errors = String::new();
    collector.0.stderr.take().expect("standard error").read_to_string(&mut errors).expect("text");
    assert_eq!(printed.trim(), format!("{} {} {}", want.flows, want.packets, want.octets), "{protocol:?}: {errors}");
}

#[test]
fn the_python_package_netflow_counts_all_exported_flows() {
    let test = "the_python_package_netflow_counts_all_exported_flows";
    for protocol in PROTOCOLS {
        let Some(command) = testkit::python_with(test, "netflow") else { return };
        python(command, NETFLOW, "udp", &records(test), protocol);
    }
}

#[test]
fn the_python_package_ipfix_counts_all_flows_exported_over_tcp() {
    let test = "the_python_package_ipfix_counts_all_flows_exported_over_tcp";
    let Some(command) = testkit::python_with(test, "ipfix") else { return };
    python(command, IPFIX, "tcp", &records(test), Protocol::Ipfix);
}
