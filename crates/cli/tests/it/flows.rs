//! Queries of flow records on the command line: lists, groups, files, and the packets of flows.

use crate::common;

use base::{Prng, Timestamp};
use common::{Output, WAIT_MAX, arg, netgrain, objects, run};
use flow::{DirectionStats, Encapsulation, EndReason, Key, Record, TcpState};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};
use testkit::TempDir;
use wire::{Decoded, IpProtocol, TunnelKind};

/// 2026-11-21T10:42:00Z.
pub const BEGIN: u64 = 1_795_257_720;

/// Asserts that the command failed with status 2, nothing on stdout, and one line on stderr that contains `names` and
/// `advice`.
#[track_caller]
fn assert_error(output: &Output, names: &str, advice: &str) {
    assert_eq!((output.status, output.out.as_str()), (Some(2), ""), "{output:?}");
    assert_eq!(output.err.lines().count(), 1, "{}", output.err);
    let is_complete = output.err.starts_with("netgrain: ") && output.err.contains(names) && output.err.contains(advice);
    assert!(is_complete, "{}", output.err);
}

fn record(prng: &mut Prng, id: u64) -> Record {
    let v6 = prng.below(4) == 0;
    let host = |prng: &mut Prng| match v6 {
        false => std::net::IpAddr::from([10, 0, prng.below(3) as u8, prng.below(5) as u8]),
        true => [0x2001, 0xdb8, 0, 0, 0, 0, 0, prng.below(5) as u16].into(),
    };
    let protocol = [IpProtocol::TCP, IpProtocol::UDP][prng.below(2) as usize];
    let key = Key {
        src: host(prng),
        dst: host(prng),
        src_port: 1024 + prng.below(1000) as u16,
        dst_port: [53, 80, 443][prng.below(3) as usize],
        protocol,
    };
    let start = Timestamp::from_nanos(BEGIN * 1_000_000_000 + prng.below(120_000_000_000));
    let mut direction = |packets: u64| {
        let last = Timestamp::from_nanos(start.nanos() + prng.below(20_000_000_000));
        let (bytes, retransmitted) = (packets * (60 + prng.below(1400)), prng.below(3));
        DirectionStats {
            first: start,
            last,
            packets,
            bytes,
            retransmitted,
            zero_window: prng.below(4),
            ..DirectionStats::default()
        }
    };
    let forward = direction(1 + id % 7);
    let reverse = if id.is_multiple_of(3) { DirectionStats::default() } else { direction(id % 5 + 1) };
    let tcp = if protocol == IpProtocol::TCP { TcpState::Established } else { TcpState::None };
    Record {
        id: base::hash::mix64(id + 1),
        key,
        encapsulation: Encapsulation {
            vlans: [[None; 2], [Some(5), None]][prng.below(2) as usize],
            mpls: None,
            tunnel: [None, Some((TunnelKind::Vxlan, 7))][prng.below(2) as usize],
        },
        interface: 0,
        flow_start: start,
        record_index: 0,
        directions: [forward, reverse],
        end_reason: EndReason::IdleTimeout,
        tcp_state: tcp,
        syn_rtt: None,
        ack_rtt: None,
        initial_packets: Vec::new(),
        payload: [Vec::new(), Vec::new()],
        location: None,
        lost: 0,
    }
}

/// A store of two interfaces, and the records of both in order of their start.
pub fn store(dir: &TempDir, test: &str) -> (PathBuf, Vec<(&'static str, Record)>) {
    let mut prng = Prng::new(testkit::seed(test));
    let store = dir.join("store");
    let mut all: Vec<(&str, Record)> = Vec::new();
    for id in 0..600 {
        let name = if id % 3 == 0 { "uplink" } else { "eth1" };
        let one = record(&mut prng, id);
        if id % 50 == 7 {
            // A flow that has two records.
            let next = Record { record_index: 1, flow_start: one.flow_start, ..record(&mut prng, id) };
            all.push((name, Record { id: one.id, key: one.key, encapsulation: one.encapsulation, ..next }));
            all.push((name, Record { end_reason: EndReason::ActiveTimeout, ..one }));
        } else {
            all.push((name, one));
        }
    }
    all.sort_by_key(|(_, r)| (r.first(), r.id));
    for name in ["eth1", "uplink"] {
        let mut writer = columns::Writer::new(columns::Config::new(&store, name)).expect("threads");
        all.iter().filter(|(n, _)| *n == name).for_each(|(_, r)| writer.record(r));
        let (counts, events) = writer.finish();
        let has_error = events.iter().any(|e| matches!(e, columns::Event::Trouble(_)));
        assert!(counts.sealed == counts.submitted && !has_error, "{counts:?} {events:?}");
    }
    (store, all)
}

fn flows(store: &Path, more: &[&str]) -> Output {
    run(&[&["flows", "--store", arg(store)], more].concat())
}

fn number(object: &Value, field: &str) -> u64 {
    object[field].as_u64().unwrap_or_else(|| panic!("{field} of {object}"))
}

fn matches(filter: &str, r: &Record) -> bool {
    filter::FlowFilter::parse(filter).expect(filter).matches(&aggregate::terms(r))
}

#[test]
fn invalid_flow_queries_are_rejected_with_advice() {
    let dir = TempDir::new("flows-invalid");
    assert_error(&run(&["flows"]), "add --store <DIR> for a store, or -r <FILE>", "see netgrain flows --help");
    assert_error(&flows(&dir.join("none"), &[]), "none", "name the --store");
    let (store, _) = store(&dir, "invalid_flow_queries_are_rejected_with_advice");
    let query = |more: &[&str]| flows(&store, more);
    assert_error(&query(&["-i", "eth2"]), "eth2", "did you mean eth1?");
    assert_error(&query(&["hsot", "10.0.0.1"]), "`hsot`", "did you mean `host`?");
    assert_error(&query(&["udp", "and", "less", "64"]), "`less`", "netgrain packets");
    assert_error(&query(&["tcp[13] & 2 != 0"]), "`tcp[13] & 2 != 0`", "`flags S`");
    assert_error(&query(&["bytes > 5s"]), "`5s`", "`1M`");
    assert_error(&query(&["--group", "source"]), "no field \"source\" to group by", "dport");
    assert_error(&query(&["--group", "src/33/1"]), "src/33/1", "32 bits");
    assert_error(&query(&["--group", "host,src"]), "host and port refer to both endpoints", "group by");
    assert_error(&query(&["--by", "size"]), "no measure \"size\"", "bytes");
    assert_error(&query(&["--top", "0"]), "--top", "\"0\" is not a whole number from 1 to");
    assert_error(&query(&["--fields", "src"]), "--fields", "--json or --csv");
    assert_error(&query(&["--json", "--fields", "sourc"]), "sourc", "did you mean");
    assert_error(&query(&["-w", "x"]), "--packets", "see netgrain flows --help");
    assert_error(&query(&["--packets", "--group", "src"]), "selects flows, not groups", "leave out --group");
    assert_error(&query(&["--parquet", arg(&store.join("x"))]), "inside of the store", "elsewhere");
    assert_error(&query(&["--from", "now", "--to", "-5min"]), "is after --to", "swap them");
    let note = dir.join("note");
    std::fs::write(&note, "no flows").expect("a file");
    assert_error(&run(&["flows", "-r", arg(&note)]), "neither a capture", "name a file in one of these formats");
    assert_error(&run(&["packets", "--store", arg(&store), "--flow", "xyz"]), "\"xyz\" is not a flow ID", "the number");
    assert!(!dir.join("x").exists());
}

#[test]
fn no_matching_flow_exits_1_and_reports_what_the_store_contains() {
    let dir = TempDir::new("flows-none");
    let (store, _) = store(&dir, "no_matching_flow_exits_1_and_reports_what_the_store_contains");
    for more in [&["--json", "host", "192.0.2.1"][..], &["--top", "3", "host", "192.0.2.1"], &["host", "192.0.2.1"]] {
        let output = flows(&store, more);
        assert_eq!((output.status, output.out.as_str()), (Some(1), ""), "{output:?}");
        assert!(output.err.contains("no flows of `host 192.0.2.1`") && output.err.contains("eth1"), "{}", output.err);
    }
    let output = run(&["packets", "--store", arg(&store), "--flow", "1"]);
    assert_eq!((output.status, output.out.as_str()), (Some(1), ""), "{output:?}");
    assert!(output.err.contains("no record of flow 1"), "{}", output.err);
}

#[test]
fn filtered_records_of_an_interval_are_in_order_in_every_format() {
    let dir = TempDir::new("flows-list");
    let (store, all) = store(&dir, "filtered_records_of_an_interval_are_in_order_in_every_format");
    let (from, to) = (BEGIN + 20, BEGIN + 60);
    let limits = (Timestamp::from_secs_nanos(from, 0), Timestamp::from_secs_nanos(to, 0));
    let interval = ["--from".to_owned(), from.to_string(), "--to".to_owned(), to.to_string()];
    let interval: Vec<&str> = interval.iter().map(String::as_str).collect();
    for (filter, interface) in [
        ("", None),
        ("tcp dst port 80", None),
        ("net 10.0.1.0/24 and not port 53", Some("eth1")),
        ("vlan 5 and ip6", None),
    ] {
        let is_selected = |(name, r): &&(&str, Record)| {
            let in_time = r.first() <= limits.1 && r.last() >= limits.0;
            in_time && matches(filter, r) && interface.is_none_or(|i| i == *name)
        };
        let expected: Vec<&(&str, Record)> = all.iter().filter(is_selected).collect();
        assert!(expected.len() > 3, "{filter}");
        let mut more = interval.clone();
        if let Some(interface) = interface {
            more.extend(["-i", interface]);
        }
        more.extend((!filter.is_empty()).then_some(filter));
        let reported = flows(&store, &[&more[..], &["--json"]].concat());
        assert_eq!((reported.status, reported.err.as_str()), (Some(0), ""), "{reported:?}");
        let reported = objects(&reported.out);
        assert_eq!(reported.len(), expected.len(), "{filter}");
        for (object, (name, r)) in reported.iter().zip(&expected) {
            assert_eq!(object["id"], format!("{}", r.id).as_str(), "{filter}");
            assert_eq!(
                (object["interface"].as_str(), number(object, "record_index")),
                (Some(*name), r.record_index.into())
            );
            assert_eq!(object["src"], r.key.src.to_string().as_str());
        }
        let lines = flows(&store, &more);
        assert_eq!(lines.out.lines().count(), expected.len() + 1, "a header line and one line per record");
        for (line, (name, r)) in lines.out.lines().skip(1).zip(&expected) {
            assert!(line.starts_with(&r.first().to_string()) && line.contains(name), "{line}");
            assert!(line.contains(&format!("  {}", r.id)), "{line}");
        }
        let csv = flows(&store, &[&more[..], &["--csv", "--fields", "id,src_port"]].concat());
        let rows: Vec<String> = expected.iter().map(|(_, r)| format!("{},{}", r.id, r.key.src_port)).collect();
        assert_eq!(csv.out, format!("id,src_port\r\n{}\r\n", rows.join("\r\n")));
    }
    let limited = flows(&store, &["--limit", "7", "--json", "--explain"]);
    assert_eq!(objects(&limited.out).len(), 7);
    assert_eq!(objects(&limited.err)[0]["explain"]["records"], 7);
}

/// Flows, packets, bytes and zero windows of the records, summed by destination port.
fn by_port<'a>(records: impl Iterator<Item = &'a Record>) -> BTreeMap<u64, [u64; 4]> {
    let mut sums: BTreeMap<u64, [u64; 4]> = BTreeMap::new();
    for r in records {
        let sum = sums.entry(r.key.dst_port.into()).or_default();
        let zero_window = r.directions[0].zero_window + r.directions[1].zero_window;
        let more = [u64::from(r.record_index == 0), r.packets(), r.bytes(), zero_window];
        sum.iter_mut().zip(more).for_each(|(a, b)| *a += b);
    }
    sums
}

#[test]
fn groups_equal_the_sums_of_the_records_with_and_without_columns() {
    let dir = TempDir::new("flows-groups");
    let (store, all) = store(&dir, "groups_equal_the_sums_of_the_records_with_and_without_columns");
    for filter in ["", "udp and net 10.0.0.0/23", "vlan 5"] {
        let expected = by_port(all.iter().map(|(_, r)| r).filter(|r| matches(filter, r)));
        let total: u64 = expected.values().map(|sum| sum[1]).sum();
        // The number of zero windows is not a column that can be scanned alone, so the second query reads complete
        // records.
        for (fields, with_windows) in [("flows,packets,bytes", false), ("flows,packets,bytes,zero-window", true)] {
            let output =
                flows(&store, &["--group", "dport", "--by", "packets", "--fields", fields, "--json", "--", filter]);
            assert_eq!((output.status, output.err.as_str()), (Some(0), ""), "{filter}: {output:?}");
            let reported = objects(&output.out);
            assert_eq!(reported.len(), expected.len());
            assert!(reported.windows(2).all(|w| number(&w[0], "packets") >= number(&w[1], "packets")));
            for line in &reported {
                let [flows, packets, bytes, windows] = expected[&number(line, "dst_port")];
                assert_eq!(["flows", "packets", "bytes"].map(|f| number(line, f)), [flows, packets, bytes], "{filter}");
                assert!(!with_windows || number(line, "zero_window") == windows, "{line}");
                let share = line["share"].as_f64().expect("a share");
                assert!((share - packets as f64 / total as f64).abs() < 1e-9, "{line}");
            }
        }
    }
    let table = flows(&store, &["--group", "dport,interface", "--top", "2"]);
    assert_eq!(table.out.lines().count(), 3, "{}", table.out);
    assert!(table.out.lines().next().is_some_and(|l| l.starts_with("dport  interface") && l.contains("of bytes")));
    assert!(table.err.contains("2 of 6 groups"), "{}", table.err);
    let csv = flows(&store, &["--group", "proto", "--csv"]);
    assert!(csv.out.starts_with("protocol,flows,packets,bytes\r\n") && csv.out.lines().count() == 3, "{}", csv.out);
}

#[test]
fn groups_in_a_parquet_file_equal_those_in_json() {
    let test = "groups_in_a_parquet_file_equal_those_in_json";
    let Some(mut python) = testkit::python_with(test, "duckdb") else { return };
    let dir = TempDir::new("flows-groups");
    let (store, _) = store(&dir, test);
    let file = dir.join("groups.parquet");
    let args =
        ["--group", "src/16,dport,interface,vlan,tunnel", "--fields", "flows,bytes,duration,last", "--top", "40"];
    let output = flows(&store, &[&args[..], &["--parquet", arg(&file)]].concat());
    assert_eq!((output.status, output.out.as_str()), (Some(0), ""), "{output:?}");
    assert!(output.err.contains("groups into"), "{}", output.err);
    let script = "import sys, duckdb, json\n\
        last = \"strftime(last at time zone 'UTC', '%Y-%m-%dT%H:%M:%S') as last\"\n\
        rows = duckdb.sql(\"select * replace (\" + last + \") from '\" + sys.argv[1] + \"'\")\n\
        for row in rows.fetchall(): print(json.dumps(dict(zip(rows.columns, row))))";
    let out = python.args(["-c", script]).arg(&file).output().expect("Python");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let from_parquet = objects(&String::from_utf8_lossy(&out.stdout));
    let from_json = objects(&flows(&store, &[&args[..], &["--json"]].concat()).out);
    assert!(from_json.len() > 5);
    assert_eq!(from_parquet.len(), from_json.len());
    for (parquet, json) in from_parquet.iter().zip(&from_json) {
        for field in
            ["src", "dst_port", "interface", "vlan", "flows", "bytes", "tunnel", "tunnel_id", "duration_ns", "share"]
        {
            assert_eq!(parquet[field], json[field], "{field}: {parquet} {json}");
        }
        assert!(json["last"].as_str().expect("a time").starts_with(parquet["last"].as_str().expect("a text")));
    }
    let file = dir.join("top.parquet");
    let output = flows(&store, &["--top", "3", "--parquet", arg(&file)]);
    assert!(output.status == Some(0) && output.err.contains("3 groups into"), "{output:?}");
    let file = dir.join("empty.parquet");
    let output = flows(&store, &["--group", "src", "--parquet", arg(&file), "port 1 and port 2 and port 3"]);
    assert_eq!(output.status, Some(1), "{output:?}");
}

#[test]
fn groups_have_the_field_names_and_values_of_records() {
    let dir = TempDir::new("flows-group-names");
    let (store, all) = store(&dir, "groups_have_the_field_names_and_values_of_records");
    let keys = ["src", "dst", "sport", "dport", "proto", "vlan", "mpls", "tunnel", "interface", "end", "state", "flow"];
    let args = ["--group", &keys.join(","), "--fields", "packets,bytes,duration,rtt,first,last"];
    let groups = objects(&flows(&store, &[&args[..], &["--json"]].concat()).out);
    assert!(!groups.is_empty() && groups.len() <= all.len());
    let records = objects(&flows(&store, &["--json"]).out);
    for group in &groups {
        for (name, value) in group.as_object().expect("an object") {
            assert!(
                ["share", "schema_version"].contains(&name.as_str()) || flow::schema::field(name).is_some(),
                "records have no {name}"
            );
            // The values named here are sums over several records. Every other value is that of one record; a record
            // has no key for a value that is null.
            let is_sum = ["share", "packets", "bytes", "duration_ns", "syn_rtt_ns", "first", "last"].contains(&&**name);
            let has_value = |record: &serde_json::Value| record.get(name).unwrap_or(&serde_json::Value::Null) == value;
            assert!(is_sum || records.iter().any(has_value), "no record has {name} {value}");
        }
    }
    let csv = flows(&store, &[&args[..], &["--csv"]].concat());
    let header: Vec<&str> = csv.out.lines().next().expect("a header").split(',').collect();
    let mut names: Vec<&str> = groups[0].as_object().expect("an object").keys().map(String::as_str).collect();
    names.retain(|name| *name != "schema_version");
    names.retain(|name| *name != "share");
    assert_eq!(header.iter().collect::<BTreeSet<_>>(), names.iter().collect());
}

#[test]
fn top_flows_are_ranked_by_the_sums_of_all_their_records() {
    let dir = TempDir::new("flows-top");
    let (store, all) = store(&dir, "top_flows_are_ranked_by_the_sums_of_all_their_records");
    let mut sums: BTreeMap<u64, u64> = BTreeMap::new();
    all.iter().for_each(|(_, r)| *sums.entry(r.id).or_default() += r.bytes());
    let mut ranked: Vec<u64> = sums.values().copied().collect();
    ranked.sort_unstable_by(|a, b| b.cmp(a));
    let reported = objects(&flows(&store, &["--top", "25", "--json"]).out);
    assert_eq!(reported.iter().map(|l| number(l, "bytes")).collect::<Vec<_>>(), ranked[..25]);
    for line in &reported {
        let id = line["id"].as_str().expect("an id").parse::<u64>().expect("digits");
        assert_eq!(sums[&id], number(line, "bytes"));
    }
}

#[test]
fn records_in_parquet_and_ipfix_files_give_the_results_of_the_store() {
    let dir = TempDir::new("flows-files");
    let (store, all) = store(&dir, "records_in_parquet_and_ipfix_files_give_the_results_of_the_store");
    let ids = |out: &str| objects(out).iter().map(|o| o["id"].as_str().expect("an id").to_owned()).collect::<Vec<_>>();
    let expected = ids(&flows(&store, &["--json", "udp"]).out);
    assert!(expected.len() > 100);

    let parquet = dir.join("udp.parquet");
    let output = flows(&store, &["--parquet", arg(&parquet), "udp"]);
    assert_eq!((output.status, output.out.as_str()), (Some(0), ""), "{output:?}");
    assert_eq!(ids(&run(&["flows", "-r", arg(&parquet), "--json"]).out), expected);
    let json = |args: &[&str]| run(&[&["flows", "--json"], args].concat()).out;
    assert_eq!(json(&["-r", arg(&parquet)]), json(&["--store", arg(&store), "udp"]), "with interface names");
    assert!(
        objects(&json(&["-r", arg(&parquet)]))
            .iter()
            .all(|o| ["eth1", "uplink"].map(Some).contains(&o["interface"].as_str()))
    );

    use export::Encode as _;
    let mut messages = Vec::new();
    let config = export::Config { fields: export::Fields::Full, ..export::Config::reliable() };
    let mut encoder = export::ipfix::Encoder::new(config);
    let now = Timestamp::from_secs_nanos(BEGIN + 200, 0);
    encoder.interface(0, "far, \"away\"");
    let mut out = |m: export::encode::Message<'_>| messages.extend_from_slice(m.bytes);
    for (_, r) in &all {
        encoder.record(r, now, &mut out).expect("the record fits a message");
    }
    encoder.flush(now, &mut out);
    let ipfix = dir.join("all.ipfix");
    std::fs::write(&ipfix, &messages).expect("a file");
    let reported = run(&["flows", "-r", arg(&ipfix), arg(&parquet), "--json", "--", "udp"]);
    let twice = [&expected[..], &expected].concat();
    assert_eq!(
        (reported.status, ids(&reported.out).iter().collect::<BTreeSet<_>>()),
        (Some(0), expected.iter().collect())
    );
    assert_eq!(ids(&reported.out).len(), twice.len());
    assert!(objects(&reported.out).iter().any(|o| o["interface"] == "far, \"away\""));

    // A truncated file gives its complete records, a warning and exit status 1.
    std::fs::write(&ipfix, &messages[..messages.len() - 5]).expect("a file");
    let cut = run(&["flows", "-r", arg(&ipfix), "--json", "udp"]);
    assert_eq!(cut.status, Some(1), "{}", cut.err);
    assert!(
        cut.err.contains("all.ipfix: the message at byte")
            && cut.err.contains("is incomplete; all messages before it have been read"),
        "{}",
        cut.err
    );
}

#[test]
fn the_legacy_format_has_a_line_per_direction_with_packets() {
    let dir = TempDir::new("flows-legacy");
    let (store, records) = store(&dir, "the_legacy_format_has_a_line_per_direction_with_packets");
    let payload = dir.join("payload.bin");
    let reported = flows(&store, &["--format", "legacy", "--payload", arg(&payload)]);
    assert_eq!(reported.status, Some(0), "{reported:?}");
    let directions = records.iter().flat_map(|(_, r)| &r.directions).filter(|direction| direction.packets > 0);
    let lines: Vec<Vec<&str>> = reported.out.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!(lines.len(), directions.clone().count());
    let sum = |at: usize| lines.iter().map(|cells| cells[at].parse::<u64>().expect("a number")).sum::<u64>();
    assert_eq!((sum(7), sum(8)), (directions.clone().map(|d| d.packets).sum(), directions.map(|d| d.bytes).sum()));
    assert_eq!(std::fs::metadata(&payload).map(|m| m.len()).ok(), Some(sum(30)));
    assert_error(&flows(&store, &["--format", "legacy", "--json"]), "--json", "--format");
}

#[test]
fn damage_within_a_journal_loses_one_batch_and_every_verb_reports_it() {
    let dir = TempDir::new("flows-damage");
    let (store, mut prng) = (dir.join("store"), Prng::new(testkit::seed("damage_in_the_middle_of_a_journal")));
    let records: Vec<Record> = (0..400).map(|id| record(&mut prng, id)).collect();
    let writer = || columns::Writer::new(columns::Config::new(&store, "eth1")).expect("threads");
    // Besides the growing journal, the store has a flow record file that was published earlier.
    let mut before = writer();
    before.row(&series::Row { second: BEGIN, ..series::Row::default() });
    before.finish();
    let mut writer = writer();
    writer.tick(Timestamp::from_secs_nanos(BEGIN, 0));
    for (second, some) in (1..).zip(records.chunks(40)) {
        some.iter().for_each(|r| writer.record(r));
        writer.tick(Timestamp::from_secs_nanos(BEGIN + second, 0));
        if second == 8 {
            // Appended rows are synced twice a second; on a busy machine, the sync may be delayed.
            common::until("all records are appended", || writer.counts().journaled == writer.counts().submitted);
            std::thread::sleep(Duration::from_secs(2));
        }
    }
    drop(writer);
    let ids = |output: &Output| objects(&output.out).iter().filter(|o| o["id"].is_string()).count();
    let reports = |output: &Output, text: &str| output.err.contains(text) || output.out.contains(text);
    common::until("all records are journaled", || ids(&flows(&store, &["--json"])) == 400);
    let partial = common::walk(&store).into_iter().find(|path| arg(path).ends_with(".flows.partial"));
    let journal = partial.expect("a journal without a writer");
    let is_free = || std::fs::File::open(&journal).is_ok_and(|file| file.try_lock().is_ok());
    common::until("the writer has released the journal", is_free);
    let whole = std::fs::read(&journal).expect("the journal");
    let verified = run(&["verify", "--json", arg(&store)]);
    let finding_of_rows =
        |output: &Output| objects(&output.out).into_iter().find(|o| o["finding"]["kind"] == "row_file");
    assert_eq!(
        (flows(&store, &[]).status, finding_of_rows(&verified)),
        (Some(0), None),
        "nothing is damaged yet: {verified:?}"
    );

    let mut bytes = whole.clone();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 4].iter_mut().for_each(|byte| *byte ^= 0xff);
    std::fs::write(&journal, &bytes).expect("damaged");
    let output = flows(&store, &["--json"]);
    assert_eq!((output.status, ids(&output)), (Some(1), 360), "{}", output.err);
    assert!(reports(&output, "are damaged") && reports(&output, arg(&journal)), "{}", output.err);
    let output = run(&["verify", "--json", arg(&store)]);
    let finding = finding_of_rows(&output).expect("a finding");
    assert!(output.status == Some(1) && finding["finding"]["byte"].as_u64() < Some(middle as u64), "{finding}");
    let output = run(&["repair", arg(&store)]);
    assert_eq!(output.status, Some(0), "{output:?}");
    let damaged_copy =
        common::walk(&store).into_iter().find(|path| arg(path).ends_with(".flows.damaged")).expect("the damaged copy");
    assert!(
        reports(&output, "360 flow records")
            && reports(&output, arg(&damaged_copy))
            && !reports(&output, "incomplete batch"),
        "{output:?}"
    );
    assert!(std::fs::read(&damaged_copy).is_ok_and(|kept| kept == bytes) && !journal.exists());
    let output = flows(&store, &["--json"]);
    assert_eq!((output.status, ids(&output)), (Some(0), 360), "{}", output.err);

    // An incomplete record at the end of a journal is not reported as damage, and no copy of such a journal is saved.
    for path in common::walk(&store).iter().filter(|path| arg(path).contains(".flows.")) {
        std::fs::remove_file(path).expect("a file");
    }
    std::fs::write(&journal, &whole[..whole.len() - 5]).expect("a truncated file");
    let output = flows(&store, &["--json"]);
    assert_eq!((output.status, ids(&output)), (Some(0), 360), "{}", output.err);
    let output = run(&["repair", arg(&store)]);
    assert!(output.status == Some(0) && reports(&output, "incomplete batch"), "{output:?}");
    assert!(common::walk(&store).iter().all(|path| !arg(path).ends_with(".damaged")));
}

#[test]
fn live_prints_flows_as_they_end() {
    let dir = TempDir::new("flows-live");
    let store = dir.join("store");
    let mut prng = Prng::new(testkit::seed("live_prints_flows_as_they_end"));
    let mut writer = columns::Writer::new(columns::Config::new(&store, "eth1")).expect("threads");
    let now = || {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        Timestamp::ZERO.after(since)
    };
    let at = |record: Record| {
        let time = now();
        let stamped =
            |s: DirectionStats| if s.packets > 0 { DirectionStats { first: time, last: time, ..s } } else { s };
        Record { flow_start: time, directions: record.directions.map(stamped), ..record }
    };
    let mut write = |writer: &mut columns::Writer, id: u64| {
        let one = at(record(&mut prng, id));
        writer.record(&one);
        writer.tick(now());
        one.id
    };
    let first = write(&mut writer, 1);
    // The writer creates the journal after its directory, so the test waits until a query finds the record.
    common::until("the journal exists", || run(&["flows", "--store", arg(&store), "--json"]).status == Some(0));
    let args = ["flows", "--store", arg(&store), "--live", "--from", "-1min", "--limit", "3", "--json"];
    let child = netgrain(&args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the process starts");
    let mut child = common::Running(child);
    common::until_filtered(&child.0);
    let lines = BufReader::new(child.0.stdout.take().expect("a pipe")).lines();
    let (reported, reader) = std::sync::mpsc::channel();
    std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| reported.send(line)));
    let mut expected = vec![first];
    for turn in 0..3 {
        let begun = Instant::now();
        let line = loop {
            match reader.recv_timeout(Duration::from_millis(100)) {
                Ok(line) => break line,
                Err(_) => assert!(begun.elapsed() < WAIT_MAX, "waited too long for record {turn}"),
            }
            // The writer writes its buffered records when its `tick` is called. In a run, the meter calls it as time
            // passes.
            writer.tick(now());
        };
        let id = objects(&line)[0]["id"].as_str().expect("an id").to_owned();
        assert_eq!(id, format!("{}", expected[turn]), "each record once, in order");
        expected.push(write(&mut writer, 2 + turn as u64));
    }
}

/// A store of packets and of their flow records.
fn recorded(dir: &TempDir) -> (PathBuf, Vec<Record>) {
    let (store, frames) = (dir.join("store"), dir.join("frames.pcap"));
    let generated = run(&["gen", "-w", arg(&frames), "imix,flows=40,rate=20kpps", "--packets", "4000"]);
    assert_eq!(generated.status, Some(0), "{generated:?}");
    let output = run(&["record", "-r", arg(&frames), "--store", arg(&store), "-q", "--ring", "16MiB"]);
    assert_eq!(output.status, Some(0), "{output:?}");
    let interface = std::fs::read_dir(&store).expect("a store").next().expect("an interface").expect("an entry");
    let mut records: Vec<Record> = Vec::new();
    let mut meter = flow::Meter::new(flow::Config::default(), 0);
    let mut reader = pcap::Reader::open(std::fs::File::open(&frames).expect("frames")).expect("a capture");
    while let Some(packet) = reader.next().expect("a complete record") {
        let decoded = Decoded::of(packet.data, packet.wire_len, packet.link_type);
        let ts = packet.ts.expect("a timestamp");
        let (wire_len, data, position) = (packet.wire_len, packet.data, packet.offset);
        let one = flow::Packet { ts, wire_len, data, decoded: &decoded, position, queue: 0 };
        meter.push(&[one], &mut records);
    }
    meter.finish(&mut records);
    let name = interface.file_name().into_string().expect("a name in UTF-8");
    let mut writer = columns::Writer::new(columns::Config::new(&store, name)).expect("threads");
    records.iter().for_each(|r| writer.record(r));
    writer.finish();
    (store, records)
}

#[test]
fn packets_of_one_flow_and_of_the_top_flows_are_found() {
    let dir = TempDir::new("flows-cross");
    let (store, records) = recorded(&dir);
    let mut packets: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for r in &records {
        let sum = packets.entry(r.id).or_default();
        *sum = (sum.0 + r.packets(), sum.1 + r.bytes());
    }
    assert!(packets.len() >= 20 && packets.values().map(|p| p.0).sum::<u64>() == 4000, "{}", packets.len());
    for (id, (count, bytes)) in packets.iter().step_by(packets.len() / 8) {
        let output = run(&["packets", "--store", arg(&store), "--flow", &format!("{id}"), "--count", "--json"]);
        assert_eq!((output.status, output.err.as_str()), (Some(0), ""), "{output:?}");
        let reported = &objects(&output.out)[0];
        assert_eq!((number(reported, "packets"), number(reported, "bytes")), (*count, *bytes));
    }
    let mut ranked: Vec<u64> = packets.values().map(|p| p.0).collect();
    ranked.sort_unstable_by(|a, b| b.cmp(a));
    let out = dir.join("top.pcapng");
    let output = flows(&store, &["--top", "3", "--by", "packets", "--packets", "-w", arg(&out), "--json"]);
    assert_eq!(output.status, Some(0), "{output:?}");
    assert_eq!(number(&objects(&output.out)[0], "packets"), ranked[..3].iter().sum::<u64>());
    let all = flows(&store, &["--packets", "--json"]);
    assert_eq!((all.status, all.out.lines().count()), (Some(0), 4000), "{}", all.err);
}

#[test]
fn selected_fields_survive_damage_in_a_column_that_they_do_not_need() {
    let dir = TempDir::new("flows-fields");
    let (store, all) = store(&dir, "selected_fields_survive_damage_in_a_column_that_they_do_not_need");
    let is_sealed = |path: &PathBuf| path.to_string_lossy().ends_with(".flows.parquet");
    let file = common::walk(&store).into_iter().find(is_sealed).expect("a file of records");
    let whole = std::fs::read(&file).expect("the file");
    let few = ["--json", "--fields", "src_port,dst_port"];
    let ports = |output: &Output| -> BTreeMap<String, u64> {
        let mut count = BTreeMap::new();
        objects(&output.out).iter().for_each(|o| *count.entry(o.to_string()).or_default() += 1);
        count
    };
    let expected = ports(&flows(&store, &few));
    assert_eq!(expected.values().sum::<u64>(), all.len() as u64);
    // The test does not know the positions of the columns. It damages bytes at different positions, and selects the
    // cases in which records cannot be read because a column other than the ports is damaged.
    const POSITIONS: usize = 80;
    let mut unaffected = 0;
    for position in 1..POSITIONS {
        let mut broken = whole.clone();
        broken[whole.len() * position / POSITIONS] ^= 0x55;
        std::fs::write(&file, broken).expect("the file");
        let reported = flows(&store, &["--json"]);
        let lost = reported.err.contains("cannot be read") && reported.err.contains("column ");
        if !lost || ["src_port", "dst_port"].iter().any(|port| reported.err.contains(&format!("column {port}"))) {
            continue;
        }
        assert!(objects(&reported.out).len() < all.len(), "{position}: {reported:?}");
        let output = flows(&store, &few);
        if output.err.contains("the result does not need this data") {
            assert_eq!(ports(&output), expected, "{position}: {output:?}");
            unaffected += 1;
        }
        if unaffected == 3 {
            return;
        }
    }
    panic!("damage left the selected fields intact in only {unaffected} cases");
}
