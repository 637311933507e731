//! `netgrain run` and its configuration on the command line: errors, capture files, simulation, live interface.

use crate::common;

use base::Timestamp;
use common::{Output, Running, arg, netgrain, objects, run, signal, until, walk};
use std::io::{BufRead, BufReader};
use std::path::Path;
use testkit::{RawSender, Sandbox, TempDir};
use wire::build::Frame;

const RING: [&str; 2] = ["--set", "capture.ring=8MiB"];

fn generate(dir: &TempDir, packets: &str) -> std::path::PathBuf {
    let file = dir.join("frames.pcap");
    let generated = run(&["gen", "-w", arg(&file), "imix,flows=300,rate=10kpps", "--packets", packets]);
    assert_eq!(generated.status, Some(0), "{generated:?}");
    file
}

/// Checks that a run with one interface ended with status 0, and that the counters of its report are consistent.
/// Returns the report.
fn report(output: &Output) -> serde_json::Value {
    report_with_status(output, 0)
}

/// The report of a run with one interface that ended with this status: 1 if a collector did not get every record.
fn report_with_status(output: &Output, status: i32) -> serde_json::Value {
    assert_eq!(output.status, Some(status), "{output:?}");
    let last = objects(&output.out).pop().expect("a report");
    let (report, meter) = (&last["report"], &last["report"]["meter"]);
    assert_eq!(report["faults"], serde_json::json!([]), "{output:?}");
    let count = |value: &serde_json::Value| value.as_u64().expect("a number");
    assert_eq!(count(&meter["packets"]) + count(&meter["unmetered"]), count(&report["stored"]));
    assert_eq!(meter["in_rows"], meter["packets"]);
    assert_eq!(count(&meter["in_records"]) + count(&meter["without_flow"]), count(&meter["packets"]));
    report.clone()
}

#[test]
fn a_repeated_capture_is_reported_and_added_to_the_store() {
    let dir = TempDir::new("run-again");
    let (file, store) = (generate(&dir, "1000"), dir.join("store"));
    let replay = |more: &[&str]| {
        let output = run(&[&["run", "-r", arg(&file), "--store", arg(&store), "-q"], more, &RING[..]].concat());
        assert_eq!(output.status, Some(0), "{output:?}");
        output.err.contains("already has")
    };
    assert!(!replay(&[]), "the store is empty");
    assert!(replay(&[]) && replay(&[]));
    assert!(!replay(&["--name", "other"]), "the other interface has no packets");
    let counted = run(&["packets", "--store", arg(&store), "-i", "frames.pcap", "--count"]);
    assert!(counted.out.starts_with("3 000 packets"), "{counted:?}");
    let output = run(&["record", "-r", arg(&file), "--store", arg(&store), "-q", "--ring", "8MiB"]);
    assert!(output.err.contains("name another --store") && output.err.contains("--name"), "{output:?}");
}

#[test]
fn each_interface_of_a_pcapng_has_its_own_records_and_rows() {
    let dir = TempDir::new("run-two-ports");
    let file = generate(&dir, "3000");
    // A pcapng with two interfaces that captured the same packets.
    let both = dir.join("both.pcapng");
    let mut w = pcap::ng::Writer::new(Vec::new(), "", "").expect("a buffer");
    let ports = ["left", "right"].map(|name| w.interface(name, pcap::ETHERNET).expect("a buffer"));
    let mut reader = pcap::Reader::open(std::fs::File::open(&file).expect("a file")).expect("a capture");
    while let Some(packet) = reader.next().expect("packets") {
        for port in ports {
            let ts = packet.ts.expect("a timestamp");
            w.packet(port, ts, packet.wire_len, packet.data, pcap::ng::PacketOptions::default()).expect("a buffer");
        }
    }
    std::fs::write(&both, w.finish().expect("a buffer")).expect("a file");
    let (one, two) = (dir.join("one"), dir.join("two"));
    for (file, store, name) in [(&file, &one, "one"), (&both, &two, "switch")] {
        let output = run(&[&["run", "-r", arg(file), "--name", name, "--store", arg(store), "-q"], &RING[..]].concat());
        assert_eq!(output.status, Some(0), "{output:?}");
        assert!(!output.err.contains("another interface"), "{output:?}");
    }
    let query = |store: &Path, interface: &str, verb: &str| {
        let output = run(&[verb, "--store", arg(store), "-i", interface, "--json", "--from", "1970-01-02"]);
        let mut reported = objects(&output.out);
        assert!(!reported.is_empty(), "{output:?}");
        for object in &mut reported {
            for own in ["id", "interface"] {
                object.as_object_mut().expect("an object").remove(own);
            }
        }
        reported
    };
    for verb in ["flows", "series"] {
        let expected = query(&one, "one", verb);
        for interface in ["switch.left", "switch.right"] {
            for (found, expected) in query(&two, interface, verb).iter().zip(&expected) {
                assert_eq!(found, expected, "{verb} of {interface}");
            }
            assert_eq!(query(&two, interface, verb).len(), expected.len(), "{verb} of {interface}");
        }
    }
    let rejected = run(&["run", "-r", arg(&both), "--store", arg(&dir.join("x")), "--export", "file:/tmp/never.ipfix"]);
    assert_eq!((rejected.status, rejected.err.lines().count()), (Some(2), 1), "{rejected:?}");
    assert!(rejected.err.contains("a file has the data of one interface, but the capture has 2"), "{}", rejected.err);
    // A missing capture file is reported first, before the error that the captures have more than one interface.
    let rejected = run(&["run", "-r", arg(&both), "/nowhere.pcap", "--store", arg(&dir.join("x"))]);
    assert!(rejected.status == Some(2) && rejected.err.contains("/nowhere.pcap"), "{rejected:?}");
}

#[test]
fn captures_after_a_truncated_one_are_replayed_too() {
    let dir = TempDir::new("run-cut");
    let (complete, cut, store) = (generate(&dir, "3000"), dir.join("cut.pcap"), dir.join("store"));
    let bytes = std::fs::read(&complete).expect("a file");
    std::fs::write(&cut, &bytes[..bytes.len() / 2]).expect("a file");
    let args = ["run", "-r", arg(&cut), arg(&complete), "--store", arg(&store), "--json", "-q"];
    let output = run(&[&args[..], &RING[..]].concat());
    assert_eq!(output.status, Some(1), "{output:?}");
    assert!(output.err.contains("cut.pcap") && output.err.contains("at least one packet was lost"), "{}", output.err);
    let stored = objects(&output.out).pop().expect("a report")["report"]["stored"].as_u64().expect("a number");
    assert!((4000..6000).contains(&stored), "half of the first capture and the whole second one: {stored}");
    // A file that is no capture causes an error at any position in the list of files.
    let other = dir.join("other");
    let args = ["run", "-r", arg(&complete), "/etc/passwd", "--store", arg(&other), "-q"];
    let output = run(&[&args[..], &RING[..]].concat());
    assert!(output.status == Some(2) && output.err.contains("/etc/passwd"), "{output:?}");
}

#[test]
fn an_invalid_configuration_is_rejected_with_lines_and_suggestions() {
    let dir = TempDir::new("invalid_configuration");
    let file = dir.join("netgrain.toml");
    std::fs::write(&file, "[flow]\nidle_timeot = \"7s\"\nactive_timeout = \"soon\"\n").expect("a file");
    let output = run(&["config", "--check", arg(&file)]);
    assert_eq!(output.status, Some(1), "{output:?}");
    assert!(output.err.contains("line 2: no key flow.idle_timeot; did you mean flow.idle_timeout?"), "{}", output.err);
    assert!(output.err.contains("line 3: flow.active_timeout"), "every error at once: {}", output.err);
    let output = run(&["run", "--sim", "60,packets=1", "--config", arg(&file)]);
    assert_eq!((output.status, output.err.lines().count()), (Some(2), 1), "{output:?}");
    assert!(output.err.contains("and 1 more"), "{}", output.err);
    let together = "[capture]\ninterfaces = [\"eth1\"]\nring = \"1MiB\"\n[[group]]\nname = \"web\"\nprogram = \
     \"steer\"\ninterfaces = [\"eth9\"]\n";
    std::fs::write(&file, together).expect("a file");
    let output = run(&["config", "--check", arg(&file)]);
    assert!(
        output.status == Some(1) && output.err.lines().count() == 2,
        "the check rejects what run rejects: {output:?}"
    );
    assert!(
        output.err.contains("capture.ring") && output.err.contains("interface eth9 is not captured"),
        "{}",
        output.err
    );
    let output = run(&["config", "--check", arg(&dir.join("none.toml"))]);
    assert_eq!((output.status, output.err.lines().count()), (Some(2), 1), "{output:?}");
}

#[test]
fn config_check_reports_every_error_of_run_with_its_line() {
    let dir = TempDir::new("config_check");
    let (file, frames, store) = (dir.join("netgrain.toml"), generate(&dir, "10"), dir.join("store"));
    for (section, line, part) in [
        ("export", "targets = [\"foo:bar\"]", "udp:HOST"),
        ("export", "targets = [\"file:x\", \"file:x\"]", "is listed twice"),
        ("export", "targets = [\"udp:127.0.0.1,kinds=all\"]", "kinds=both"),
        ("capture", "filter = \"host and\"", "capture.filter"),
        ("capture", "program = \"/nowhere.ng\"", "/nowhere.ng"),
        ("status", "metrics = \"zzz\"", "127.0.0.1:9600"),
        ("status", "user = \"nosuchuser\"", "nosuchuser"),
        ("listen", "owner = \"nosuchuser\"", "nosuchuser"),
        ("listen", "group = \"nosuchgroup\"", "nosuchgroup"),
        ("flow", "shards = 65", "from 1 to 64"),
    ] {
        std::fs::write(&file, format!("[series]\nrecrod = true\n[{section}]\n{line}\n")).expect("a file");
        let output = run(&["config", "--check", arg(&file)]);
        let lines: Vec<&str> = output.err.lines().collect();
        assert_eq!((output.status, lines.len()), (Some(1), 2), "{line}: {output:?}");
        assert!(lines[0].contains("line 2: no key series.recrod"), "{line}: {lines:?}");
        assert!(lines[1].contains(&format!("line 4: {section}.")) && lines[1].contains(part), "{line}: {lines:?}");
        std::fs::write(&file, format!("[{section}]\n{line}\n")).expect("a file");
        let args = ["run", "-r", arg(&frames), "--config", arg(&file), "--store", arg(&store)];
        let output = run(&[&args[..], &RING[..]].concat());
        assert_eq!((output.status, output.err.lines().count()), (Some(2), 1), "{line}: {output:?}");
        assert!(output.err.contains(part), "{line}: {}", output.err);
    }
    for (ports, part) in [("\"a/b\"", "not the name of an interface"), ("\"eth1\", \"eth1\"", "is listed twice")] {
        std::fs::write(&file, format!("[capture]\ninterfaces = [{ports}]\n")).expect("a file");
        let output = run(&["config", "--check", arg(&file)]);
        assert!(output.status == Some(1) && output.err.contains("line 2") && output.err.contains(part), "{output:?}");
    }
}

#[test]
fn invalid_run_arguments_print_a_one_line_error() {
    let dir = TempDir::new("invalid_run_arguments");
    let store = dir.join("store");
    let store_args = ["--store", arg(&store)];
    for (args, part) in [
        (&["run"][..], "(-i eth1)"),
        (&[&["run"], &store_args[..]].concat(), "no source"),
        (&[&["run", "--sim", "60", "--set", "flow.idle_timeout"], &store_args[..]].concat(), "KEY=VALUE"),
        (
            &[&["run", "--sim", "60", "--set", "flow.idle_timeot=3"], &store_args[..]].concat(),
            "did you mean flow.idle_timeout",
        ),
        (&[&["run", "--sim", "60", "--shards", "0"], &store_args[..]].concat(), "flow.shards"),
        (&[&["run", "--sim", "60", "--export", "sctp:x"], &store_args[..]].concat(), "udp:HOST"),
        (&[&["run", "-r", "/nowhere.pcap"], &store_args[..]].concat(), "/nowhere.pcap"),
    ] {
        let output = run(args);
        assert_eq!((output.status, output.err.lines().count()), (Some(2), 1), "{args:?}: {output:?}");
        assert!(output.err.contains(part), "{args:?}: {}", output.err);
    }
}

#[test]
fn a_dumped_configuration_is_valid_and_has_the_effective_values() {
    let dir = TempDir::new("dumped_configuration");
    let file = dir.join("netgrain.toml");
    std::fs::write(&file, "[flow]\nidle_timeout = \"7s\"\n").expect("a file");
    let output = run(&["config", "--dump", arg(&file)]);
    assert!(output.status == Some(0) && output.out.contains("idle_timeout = \"7s\""), "{output:?}");
    std::fs::write(&file, &output.out).expect("a file");
    assert_eq!(run(&["config", "--check", arg(&file)]).status, Some(0));
    assert_eq!(run(&["config", "--dump", arg(&file)]).out, output.out);
}

#[test]
fn the_export_of_a_capture_is_equal_for_any_number_of_shards() {
    let dir = TempDir::new("export_of_shards");
    let file = generate(&dir, "30k");
    let one = |shards: &str| {
        let (store, sent) = (dir.join(format!("store-{shards}")), dir.join(format!("{shards}.ipfix")));
        let export = format!("file:{}", arg(&sent));
        let args = ["run", "-r", arg(&file), "--store", arg(&store), "--shards", shards, "--export", &export, "--json"];
        let report = report(&run(&[&args[..], &RING[..]].concat()));
        assert_eq!((&report["stored"], &report["meter"]["started"]), (&30_000.into(), &300.into()));
        let files = walk(&store);
        for end in ["pcap", "parquet"] {
            assert!(files.iter().any(|p| p.extension().is_some_and(|e| e == end)), "no {end}: {files:?}");
        }
        std::fs::read(&sent).expect("an export")
    };
    let first = one("1");
    assert!(first.len() > 300 * 40, "{} bytes are too few for 300 flows", first.len());
    assert!(one("2") == first && one("8") == first, "the export depends on the number of shards");
}

#[test]
fn run_without_packets_stores_the_other_data_types_without_a_fault() {
    let dir = TempDir::new("without_packets");
    let (file, store) = (generate(&dir, "5k"), dir.join("store"));
    let output = run(&[&["run", "-r", arg(&file), "--store", arg(&store), "--no-packets"], &RING[..]].concat());
    assert_eq!(output.status, Some(0), "{output:?}");
    assert!(output.out.contains("data types (packets)") && !output.out.contains("FAULT"), "{}", output.out);
    let note = "no packets are written to disk (--no-packets, or no --store): stored means stored in the ring";
    assert!(output.out.lines().any(|line| line == note), "{}", output.out);
    assert!(output.out.contains(&format!("to store {}: ", arg(&store))) && output.out.contains(": all written"));
    let files = walk(&store);
    assert!(files.iter().any(|p| p.extension().is_some_and(|e| e == "parquet")), "{files:?}");
    assert!(!files.iter().any(|p| p.extension().is_some_and(|e| e == "pcap")), "{files:?}");
}

#[test]
fn a_collector_name_without_an_address_is_a_warning_at_the_start_and_its_records_count_as_not_sent() {
    let dir = TempDir::new("nosuch-collector");
    let (file, store) = (generate(&dir, "1000"), dir.join("store"));
    // No name service is asked for a name with an empty label.
    let export = ["--export", "udp:nosuch..invalid:99", "--export", "udp:127.0.0.1:9"];
    let output = run(&[&["run", "-r", arg(&file), "--store", arg(&store), "-q"], &export[..], &RING[..]].concat());
    let warned = output.err.lines().filter(|line| line.contains("the host name nosuch..invalid cannot be resolved"));
    assert_eq!(warned.count(), 1, "{output:?}");
    let line = output.out.lines().find(|line| line.starts_with("to udp:nosuch..invalid:99: ")).expect("a line");
    assert!(line.contains(" records, 0 rows: 0 sent, ") && line.contains(" NOT SENT; "), "{line}");
    assert!(!output.out.contains("NOT WRITTEN"), "{output:?}");
}

/// Writes two packets of a UDP flow and two of a TCP flow, 12 s apart.
fn write_two_flows(path: &Path) {
    let file = std::fs::File::create(path).expect("a file");
    let mut out = pcap::classic::Writer::new(file, pcap::classic::Resolution::Nanos, pcap::ETHERNET).expect("a header");
    for second in [0, 12] {
        let (mut one, mut other) = ([0; 80], [0; 80]);
        let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        for frame in [Frame::udp4(a, 4000, b, 53).fill(&mut one), Frame::tcp4(a, 4000, b, 80).fill(&mut other)] {
            let at = Timestamp::from_secs_nanos(1_700_000_000 + second, 0);
            out.write(at, frame.len() as u32, frame).expect("a record");
        }
    }
    out.finish().expect("the end");
}

#[test]
fn idle_timeouts_can_be_set_per_protocol() {
    let dir = TempDir::new("idle_timeouts_per_protocol");
    let file = dir.join("apart.pcap");
    write_two_flows(&file);
    for (set, udp, tcp) in [
        ("flow.idle_timeout=30s", 1, 1),
        ("flow.protocol_idle_timeouts=udp=10s,icmp=5s", 2, 1),
        ("flow.protocol_idle_timeouts=6=10s", 1, 2),
    ] {
        let store = dir.join(set);
        let output = run(&[&["run", "-r", arg(&file), "--store", arg(&store), "--set", set, "-q"], &RING[..]].concat());
        assert_eq!(output.status, Some(0), "{output:?}");
        let count = |filter: &str| run(&["flows", "--store", arg(&store), "--json", filter]).out.lines().count();
        assert_eq!((count("udp"), count("tcp")), (udp, tcp), "{set}");
    }
}

#[test]
fn a_collector_receives_the_configured_kinds_of_records() {
    let dir = TempDir::new("kinds_of_records");
    let file = dir.join("apart.pcap");
    write_two_flows(&file);
    for (kinds, flows, rows) in [("", 2, 0), (",kinds=both", 2, 13), (",kinds=series", 0, 13)] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let collector = std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("an exporter");
            let mut reader = export::file::Reader::new(stream, export::element::PEN);
            let mut counts = (0, 0);
            while let Some(item) = reader.next_item().expect("messages") {
                match item {
                    export::ipfix::Item::Flow(_) => counts.0 += 1,
                    export::ipfix::Item::Row(_) => counts.1 += 1,
                    _ => {}
                }
            }
            counts
        });
        let target = format!("tcp:127.0.0.1:{port}{kinds}");
        let output = run(&[&["run", "-r", arg(&file), "--export", &target, "--json", "-q"], &RING[..]].concat());
        assert_eq!(collector.join().expect("a collector"), (flows, rows), "{target}");
        let sink = &report(&output)["meter"]["sinks"][0];
        assert_eq!((&sink["records"], &sink["rows"], &sink["lost"]), (&flows.into(), &rows.into(), &0.into()));
    }
    let output = run(&["run", "-r", arg(&file), "--export", "udp:127.0.0.1", "--set", "flow.record=false"]);
    assert!(output.status == Some(2) && output.err.contains("udp:127.0.0.1,kinds=series"), "{output:?}");
}

/// nfcapd counts the same packets and octets as the meter for each export protocol.
#[test]
fn nfcapd_counts_both_directions_of_the_exported_flows() {
    let test = "nfcapd_counts_both_directions_of_the_exported_flows";
    let dir = TempDir::new(test);
    let file = dir.join("both.pcap");
    let out = std::fs::File::create(&file).expect("a file");
    let mut out = pcap::classic::Writer::new(out, pcap::classic::Resolution::Nanos, pcap::ETHERNET).expect("a header");
    let mut octets = 0;
    for n in 0..60u16 {
        let (a, b, mut bytes) = ([10, 0, 0, 1], [10, 0, 0, 2], [0; 600]);
        let len = 60 + usize::from(n) * 9;
        for bytes in [&mut bytes[..len], &mut [0; 80][..]] {
            let back = bytes.len() == 80;
            let frame = if back { Frame::udp4(b, 53, a, 4000 + n % 20) } else { Frame::udp4(a, 4000 + n % 20, b, 53) };
            let frame = frame.fill(bytes);
            octets += frame.len() as u64 - 14;
            let at = Timestamp::from_secs_nanos(1_700_000_000, u64::from(n) * 1000 + u64::from(back));
            out.write(at, frame.len() as u32, frame).expect("a record");
        }
    }
    out.finish().expect("the end");
    for target in ["udp:127.0.0.1:9995", "netflow9+udp:127.0.0.1:9995", "udp:127.0.0.1:9995,fields=biflow"] {
        let (Some(mut nfcapd), Some(mut nfdump)) = (testkit::tool(test, "nfcapd"), testkit::tool(test, "nfdump"))
        else {
            return;
        };
        let Some(_sandbox) = Sandbox::new(test) else { return };
        let directory = TempDir::new(test);
        let to = ["-w", arg(directory.path()), "-b", "127.0.0.1", "-p", "9995", "-T", "all"];
        let quiet = std::process::Stdio::null;
        let mut nfcapd = nfcapd.args(to).stdout(quiet()).stderr(quiet()).spawn().expect("nfcapd starts");
        let socket = || {
            let sockets = std::fs::read_to_string("/proc/thread-self/net/udp").expect("sockets");
            sockets.lines().find(|l| l.contains(":270B ")).map(str::to_owned)
        };
        while socket().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let output = run(&[&["run", "-r", arg(&file), "--export", target, "--json", "-q"], &RING[..]].concat());
        let packets = report(&output)["meter"]["in_records"].as_u64().expect("a number");
        // nfcapd must read the datagrams in its socket buffer before SIGTERM.
        while socket().is_some_and(|l| !l.contains(":00000000 00:")) {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        std::thread::sleep(std::time::Duration::from_millis(300));
        signal(&nfcapd, "TERM");
        nfcapd.wait().expect("nfcapd ends");
        let reported = nfdump.args(["-I", "-R", arg(directory.path())]).output().expect("nfdump runs");
        let reported = String::from_utf8_lossy(&reported.stdout).into_owned();
        let number = |name: &str| {
            let line = reported
                .lines()
                .find_map(|l| l.strip_prefix(name))
                .unwrap_or_else(|| panic!("no {name:?}: {reported}"));
            line.trim().parse::<u64>().expect("a number")
        };
        let flows = if target.contains("biflow") { 20 } else { 40 };
        let counted = (number("Flows:"), number("Packets:"), number("Bytes:"), number("Sequence failures:"));
        assert_eq!((counted, packets), ((flows, 120, octets, 0), 120), "{target}");
    }
}

#[test]
fn wireshark_without_plugins_reads_the_exported_standard_fields() {
    let test = "wireshark_without_plugins_reads_the_exported_standard_fields";
    let Some(mut tshark) = testkit::tool(test, "tshark") else { return };
    let dir = TempDir::new("wireshark_without_plugins");
    let (file, out) = (dir.join("apart.pcap"), dir.join("out.ipfix"));
    write_two_flows(&file);
    let target = format!("file:{},fields=standard", arg(&out));
    let output = run(&[&["run", "-r", arg(&file), "--export", &target, "-q"], &RING[..]].concat());
    assert_eq!(output.status, Some(0), "{output:?}");
    tshark.args([
        "-r",
        arg(&out),
        "-T",
        "fields",
        "-e",
        "cflow.srcport",
        "-e",
        "cflow.dstport",
        "-e",
        "_ws.expert.message",
    ]);
    let read = tshark.output().expect("tshark runs");
    let text = String::from_utf8_lossy(&read.stdout);
    let lines: Vec<_> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    assert!(lines.iter().any(|l| l.contains("4000") && l.contains("53")), "the flow of UDP: {text}");
    assert!(lines.iter().any(|l| l.contains("4000") && l.contains("80")), "the flow of TCP: {text}");
    let complaints = text.lines().filter(|l| l.split('\t').nth(2).is_some_and(|c| !c.is_empty()));
    assert_eq!(complaints.count(), 0, "{text}");
}

/// The total bytes of the files in a store whose names end with `end`.
fn bytes(store: &Path, end: &str) -> u64 {
    let files = walk(store).into_iter().filter(|p| p.to_string_lossy().ends_with(end));
    files.map(|p| p.metadata().expect("a file").len()).sum()
}

#[test]
fn run_applies_the_retention_rules_of_each_data_type() {
    let dir = TempDir::new("run_applies_the_retention_rules_of_each_data_type");
    let (file, store) = (dir.join("apart.pcap"), dir.join("store"));
    write_two_flows(&file);
    let all = |sets: &[&str]| {
        let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
        let args = ["run", "-r", arg(&file), "--store", arg(&store), "-q"];
        let output = run(&[&args[..], &RING[..], &sets[..]].concat());
        assert_eq!(output.status, Some(0), "{output:?}");
    };
    all(&[]);
    let kinds = [".pcap", ".flows.parquet", ".series.parquet"];
    let first_run = kinds.map(|kind| bytes(&store, kind));
    assert!(first_run.iter().all(|bytes| *bytes > 0), "{first_run:?}");
    // If one data type has a small maximum size, retention removes the files of an earlier run of this data type, and
    // no files of other data types. Retention may run before or after this run seals its own files. By then, the rows
    // of a complete day may have been merged into one file.
    all(&["flow.max_size=1"]);
    let more = kinds.map(|kind| bytes(&store, kind));
    assert!(
        more[0] == 2 * first_run[0] && more[1] <= first_run[1] && more[2] > first_run[2],
        "{more:?} of {first_run:?}"
    );
    // The series rows are of 2023 and thus older than a day, so retention removes the series files of the earlier runs,
    // and no packets or flow records.
    all(&["series.max_age=1d"]);
    let last = kinds.map(|kind| bytes(&store, kind));
    assert!(
        last[0] == 3 * first_run[0] && last[1] == more[1] + first_run[1] && last[2] <= first_run[2],
        "{last:?} of {first_run:?}"
    );
}

/// Reads the messages of the process until a line contains `part`.
fn message(err: &mut BufReader<std::process::ChildStderr>, part: &str) -> String {
    let mut line = String::new();
    while !line.contains(part) {
        line.clear();
        assert!(err.read_line(&mut line).expect("text") > 0, "the process ended without a message with {part:?}");
    }
    line
}

#[test]
fn sighup_reloads_keys_reports_fixed_ones_and_rejects_invalid_files() {
    let dir = TempDir::new("sighup_reloads_keys");
    let (config, store, sent) = (dir.join("netgrain.toml"), dir.join("store"), dir.join("late.ipfix"));
    let write = |text: &str| std::fs::write(&config, text).expect("a file");
    write("[capture]\nring = \"8MiB\"\n");
    let args =
        ["run", "--sim", "imix,flows=50,rate=2kpps", "--config", arg(&config), "--store", arg(&store), "--json", "-q"];
    let (running, mut err) = Running::start(&mut netgrain(&args));
    write("[flow]\nidle_timeot = 3\n");
    signal(&running.0, "HUP");
    let line = message(&mut err, "nothing is changed");
    assert!(line.contains("did you mean flow.idle_timeout"), "{line}");
    let target = format!("file:{}", arg(&sent));
    write(&format!("[capture]\nring = \"16MiB\"\n[flow]\nmax_age = \"90d\"\n[export]\ntargets = [\"{target}\"]\n"));
    signal(&running.0, "HUP");
    let line = message(&mut err, "configuration reloaded");
    assert!(line.contains("changed flow.max_age, export.targets"), "{line}");
    assert!(line.contains("a restart is needed to change capture.ring"), "{line}");
    // Once more than 1000 packets are stored, each of the 50 flows has begun.
    until("more than 1000 packets are stored", || common::stored_packets(&store) > 1000);
    signal(&running.0, "INT");
    let report = report(&running.end(err));
    let sinks = report["meter"]["sinks"].as_array().expect("sinks");
    let late = sinks.iter().find(|o| o["name"] == target.as_str()).expect("the new collector");
    assert_eq!(late["records"], 50, "the flows that ended with the run: {sinks:?}");
    assert!(std::fs::metadata(&sent).is_ok_and(|m| m.len() > 1000));
}

/// An export target at which no process listens.
fn unused_target() -> String {
    let address = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    format!("tcp:{address}")
}

/// A capture of more flows than the queue of a collector holds.
fn capture_of_40k_flows(dir: &TempDir) -> std::path::PathBuf {
    let file = dir.join("capture_of_40k_flows.pcap");
    let generated = run(&["gen", "-w", arg(&file), "60,flows=40k,rate=1Mpps", "--packets", "40k"]);
    assert_eq!(generated.status, Some(0), "{generated:?}");
    file
}

#[test]
fn a_replay_waits_once_for_a_dead_collector_and_counts_unsent_records() {
    let dir = TempDir::new("replay_to_a_dead_collector");
    let (file, target, store) = (capture_of_40k_flows(&dir), unused_target(), dir.join("store"));
    let args = ["run", "-r", arg(&file), "--store", arg(&store), "--export", &target, "--json", "-q"];
    let report = report_with_status(&run(&[&args[..], &RING[..]].concat()), 1);
    let sinks = report["meter"]["sinks"].as_array().expect("sinks");
    let dead = sinks.iter().find(|o| o["name"] == target.as_str()).expect("the collector");
    assert_eq!((&dead["records"], &dead["lost"]), (&report["meter"]["started"], &report["meter"]["started"]));
    assert!(report["meter"]["started"].as_u64().is_some_and(|flows| flows > 20_000), "{report}");
}

#[test]
fn an_interrupt_ends_the_wait_for_a_dead_collector_cleanly() {
    let dir = TempDir::new("interrupt_of_the_wait");
    let (file, target, store) = (capture_of_40k_flows(&dir), unused_target(), dir.join("store"));
    let args = ["run", "-r", arg(&file), "--store", arg(&store), "--export", &target, "--json"];
    let mut command = netgrain(&[&args[..], &RING[..]].concat());
    let (running, err) = Running::start(&mut command);
    // The records are made when the file has been read completely. After the sleep of 2 s, the run waits for the
    // collector. On a slow machine the run may not wait yet when the signal arrives; then it reads the stop flag before
    // it begins to wait.
    until("packets are stored", || common::stored_packets(&store) > 0);
    std::thread::sleep(std::time::Duration::from_secs(2));
    signal(&running.0, "INT");
    let report = report_with_status(&running.end(err), 1);
    assert_eq!(report["meter"]["ended"], true);
    assert!(parquet_files(&store) >= 2, "records and rows are sealed: {:?}", walk(&store));
}

#[test]
fn sighup_keeps_unchanged_collectors_and_does_not_wait_for_removed_ones() {
    let dir = TempDir::new("sighup_keeps_collectors");
    let (config, sent, dead) = (dir.join("netgrain.toml"), dir.join("stays.ipfix"), unused_target());
    let stays = format!("file:{}", arg(&sent));
    let write = |targets: &[&str]| {
        let text =
            format!("[capture]\nring = \"64MiB\"\n[flow]\nidle_timeout = \"1s\"\n[export]\ntargets = {targets:?}\n");
        std::fs::write(&config, text).expect("a file");
    };
    write(&[&stays, &dead]);
    let args =
        ["run", "--sim", "imix,flows=2000,rate=5kpps", "--set", "flow.active_timeout=1s", "--config", arg(&config)];
    let store = dir.join("store");
    let (running, mut err) =
        Running::start(&mut netgrain(&[&args[..], &["--store", arg(&store), "--json", "-q"]].concat()));
    // When the file of the file target has a record, the same record is in the queue for the collector that does not
    // respond.
    until("a record is exported", || !run(&["flows", "-r", arg(&sent), "--json"]).out.is_empty());
    for more in [&["udp:127.0.0.1:9"][..], &[], &["udp:127.0.0.1:9"], &[]] {
        std::thread::sleep(std::time::Duration::from_millis(700));
        write(&[&[stays.as_str()], more].concat());
        signal(&running.0, "HUP");
        message(&mut err, "changed export.targets");
    }
    std::thread::sleep(std::time::Duration::from_millis(700));
    signal(&running.0, "INT");
    let report = report_with_status(&running.end(err), 1);
    assert_eq!((&report["lost_total"], &report["meter"]["unmetered"]), (&0.into(), &0.into()));
    let sinks = report["meter"]["sinks"].as_array().expect("sinks");
    let of = |name: &str| sinks.iter().find(|o| o["name"] == name).unwrap_or_else(|| panic!("no {name}: {sinks:?}"));
    let exported: u64 =
        report["meter"]["records"].as_object().expect("records").values().filter_map(|n| n.as_u64()).sum();
    assert_eq!((&of(&stays)["records"], &of(&stays)["lost"]), (&exported.into(), &0.into()));
    assert!(
        of("replaced")["lost"].as_u64().is_some_and(|lost| lost > 0),
        "the unsent records of the dead collector: {sinks:?}"
    );
    let reported = run(&["flows", "-r", arg(&sent), "--json"]);
    assert_eq!(objects(&reported.out).len() as u64, exported, "the file has every record once");
    let stored = run(&["flows", "--store", arg(&store), "--json"]);
    assert_eq!(objects(&stored.out).len() as u64, exported);
    // IPFIX messages do not contain the quality of the timestamps.
    let rows = |args: &[&str]| -> Vec<serde_json::Value> {
        let rows = objects(&run(&[&["series"], args, &["--json"]].concat()).out);
        rows.into_iter().map(common::without_timestamp_quality).collect()
    };
    let of_file = rows(&["-r", arg(&sent)]);
    assert!(
        !of_file.is_empty() && of_file == rows(&["--store", arg(&store)]),
        "the file and the store have the same rows"
    );
}

#[test]
fn a_live_interface_is_recorded_in_every_data_type_until_sigint() {
    let test = "a_live_interface_is_recorded_in_every_data_type_until_sigint";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let dir = TempDir::new(test);
    let (a, b) = sandbox.veth("wa", "wb");
    let store = dir.join("store");
    let args = ["run", "-i", &b.name, "--store", arg(&store), "--set", "listen.socket=none", "--json"];
    let (mut running, err) = Running::start(&mut netgrain(&[&args[..], &RING[..]].concat()));
    let frames: Vec<Vec<u8>> = (0..1000u32).map(udp).collect();
    RawSender::new(&a).send(&frames);
    running.read_reports_until("all frames are counted", |live| live["offered"] == 1000);
    signal(&running.0, "INT");
    let report = report(&running.end(err));
    assert_eq!((&report["stored"], &report["meter"]["started"]), (&1000.into(), &20.into()));
    assert_eq!(report["meter"]["unmetered"], 0);
    assert!(parquet_files(&store) >= 2, "records and rows: {:?}", walk(&store));
}

fn parquet_files(store: &Path) -> usize {
    walk(store).iter().filter(|p| p.extension().is_some_and(|e| e == "parquet")).count()
}

/// A packet of one of twenty flows.
fn udp(n: u32) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    frame[14..34].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame[34..42].copy_from_slice(&[0x10, (n % 20) as u8, 0, 53, 0, 26, 0, 0]);
    frame
}
