//! Queries of time series on the command line: seconds, steps, seconds without packets, and gaps.

use crate::common;

use base::Prng;
use common::{Output, arg, objects, run, walk};
use series::{Direction, Row, Volume};
use std::path::{Path, PathBuf};
use testkit::TempDir;

/// 2026-11-21T10:00:00Z.
const BEGIN: u64 = 1_795_255_200;

/// Asserts that the command failed with status 2, nothing on stdout, and one line on stderr that contains `names` and
/// `advice`.
#[track_caller]
fn assert_error(output: &Output, names: &str, advice: &str) {
    assert_eq!((output.status, output.out.as_str()), (Some(2), ""), "{output:?}");
    assert_eq!(output.err.lines().count(), 1, "{}", output.err);
    assert!(output.err.contains(names) && output.err.contains(advice), "{}", output.err);
}

/// A store with one interface: rows for 100 s, a gap of 20 s, and rows for 80 s. Every third second has no packets.
fn store(dir: &TempDir, test: &str) -> (PathBuf, Vec<Row>) {
    let mut prng = Prng::new(testkit::seed(test));
    let store = dir.join("store");
    let mut writer = columns::Writer::new(columns::Config::new(&store, "eth1")).expect("threads");
    let mut rows = Vec::new();
    for second in (BEGIN..BEGIN + 100).chain(BEGIN + 120..BEGIN + 200) {
        let packets = if second % 3 == 0 { 0 } else { prng.below(1000) };
        let total = Volume { packets, bytes: packets * 700 };
        let row = Row { second, direction: Direction::In, total, syn: packets / 2, ..Row::default() };
        writer.row(&row);
        rows.push(row);
    }
    let (counts, _) = writer.finish();
    assert_eq!(counts.sealed, rows.len() as u64);
    (store, rows)
}

fn query(store: &Path, more: &[&str]) -> Output {
    run(&[&["series", "--store", arg(store)], more].concat())
}

#[test]
fn invalid_series_queries_are_rejected_with_advice() {
    let dir = TempDir::new("series-invalid");
    assert_error(&query(&dir.join("none"), &[]), "none", "name the --store");
    let (store, _) = store(&dir, "invalid_series_queries_are_rejected_with_advice");
    assert_error(&query(&store, &["-i", "eth2"]), "eth2", "did you mean eth1?");
    assert_error(&query(&store, &["--fields", "bytes"]), "--fields", "--json or --csv");
    assert_error(&query(&store, &["--json", "--fields", "byts"]), "byts", "did you mean bytes?");
    assert_error(&query(&store, &["--step", "2m"]), "--step", "5m");
    assert_error(&query(&store, &["--direction", "out", "udp"]), "--direction out", "do not store the direction");
    let none = query(&store, &["--to", "2001-01-01"]);
    assert_eq!((none.status, none.out.as_str()), (Some(1), ""));
    assert!(none.err.contains("no series rows from the beginning to 2001-01-01"), "{}", none.err);
}

#[test]
fn selected_fields_survive_damage_in_a_column_that_they_do_not_need() {
    let dir = TempDir::new("series-fields");
    let (store, rows) = store(&dir, "selected_fields_survive_damage_in_a_column_that_they_do_not_need");
    let file = walk(&store).into_iter().find(|path| arg(path).ends_with(".series.parquet")).expect("a file of rows");
    let whole = std::fs::read(&file).expect("the file");
    let few = ["--csv", "--fields", "time,packets"];
    let expected = query(&store, &few).out;
    assert_eq!(expected.lines().count(), 1 + rows.len());
    // The test does not know the positions of the columns. It damages bytes at different positions, and selects the
    // cases in which a column other than those of the fields is damaged.
    let mut unaffected = 0;
    for position in 1..40 {
        let mut broken = whole.clone();
        broken[whole.len() * position / 80] ^= 0x55;
        std::fs::write(&file, broken).expect("the file");
        let all = query(&store, &["--json"]);
        let is_needed = |name: &str| all.err.contains(&format!("column {name}"));
        if !all.err.contains("cannot be read")
            || ["second", "interface_id", "direction", "packets"].iter().any(|c| is_needed(c))
        {
            continue;
        }
        assert!(all.err.contains("180 rows of the file cannot be read, and it has no other rows"), "{}", all.err);
        assert!(all.err.contains("nothing found in the data that could be read: "), "{}", all.err);
        let output = query(&store, &few);
        assert!(output.out == expected && output.err.contains("the result does not need this data"), "{output:?}");
        // A file that is named is read like a file of a store.
        let output = run(&[&["series", "-r", arg(&file)], &few[..]].concat());
        assert_eq!(output.out, expected, "{output:?}");
        unaffected += 1;
        if unaffected == 3 {
            return;
        }
    }
    panic!("damage left the selected fields intact in only {unaffected} cases");
}

#[test]
fn direction_selects_the_rows_of_one_direction() {
    let dir = TempDir::new("series-direction");
    let store = dir.join("store");
    let mut writer = columns::Writer::new(columns::Config::new(&store, "eth1")).expect("threads");
    for second in BEGIN..BEGIN + 20 {
        for (direction, packets) in [(Direction::In, 3), (Direction::Out, second - BEGIN)] {
            let total = Volume { packets, bytes: packets * 100 };
            writer.row(&Row { second, direction, total, ..Row::default() });
        }
    }
    writer.finish();
    let packets = |more: &[&str]| -> Vec<u64> {
        let output = query(&store, &[&["--json", "--fields", "direction,packets"], more].concat());
        objects(&output.out).iter().map(|row| row["packets"].as_u64().expect("a number")).collect()
    };
    assert_eq!(packets(&["--direction", "out"]), (0..20).collect::<Vec<u64>>());
    assert_eq!(packets(&["--direction", "in"]), vec![3; 20]);
    assert_eq!(packets(&[]).len(), 40);
}

#[test]
fn silence_is_a_row_of_zeros_and_a_gap_is_reported() {
    let dir = TempDir::new("series-seconds");
    let (store, rows) = store(&dir, "silence_is_a_row_of_zeros_and_a_gap_is_reported");
    let reported = query(&store, &["--json"]);
    assert_eq!((reported.status, reported.err.as_str()), (Some(0), ""), "{reported:?}");
    let (gaps, reported): (Vec<_>, Vec<_>) = objects(&reported.out).into_iter().partition(|o| o.get("gap").is_some());
    assert_eq!(reported.iter().map(|o| o["packets"].as_u64()).collect::<Vec<_>>(), {
        rows.iter().map(|r| Some(r.total.packets)).collect::<Vec<_>>()
    });
    assert!(reported.iter().all(|o| o["interface"] == "eth1"));
    assert_eq!(gaps.len(), 1);
    let gap = &gaps[0]["gap"];
    assert_eq!((gap["seconds"].as_u64(), gap["from"].as_str()), (Some(20), Some("2026-11-21T10:01:40Z")));

    let table = query(&store, &[]);
    assert_eq!(table.out.lines().count(), 1 + rows.len() + 1, "a header, one line per second, one gap");
    assert!(table.out.contains("no data for 20 s, to 2026-11-21T10:01:59Z"), "{}", table.out);
    assert!(table.err.contains("180 rows, 20 s without data in between"), "{}", table.err);

    let (from, to) = ((BEGIN + 10).to_string(), (BEGIN + 12).to_string());
    let csv = query(&store, &["--from", &from, "--to", &to, "--csv", "--fields", "packets,tcp_syn"]);
    let line = |r: &Row| format!("{},{}\r\n", r.total.packets, r.syn);
    assert_eq!(csv.out, format!("packets,tcp_syn\r\n{}", rows[10..13].iter().map(line).collect::<String>()));
}

#[test]
fn legacy_lines_have_second_bits_packets_and_active_flows() {
    let dir = TempDir::new("series-legacy");
    let (store, rows) = store(&dir, "legacy_lines_have_second_bits_packets_and_active_flows");
    let reported = query(&store, &["--format", "legacy"]);
    let line = |r: &Row| format!("{}\t{}\t{}\t{}\n", r.second, r.total.bytes * 8, r.total.packets, r.flows_active);
    assert_eq!((reported.status, reported.out), (Some(0), rows.iter().map(line).collect::<String>()));
}

#[test]
fn steps_have_the_sums_and_maxima_of_their_seconds() {
    let dir = TempDir::new("series-steps");
    let (store, rows) = store(&dir, "steps_have_the_sums_and_maxima_of_their_seconds");
    let table = query(&store, &["--step", "1m"]);
    assert_eq!((table.status, table.out.lines().count()), (Some(0), 5), "{table:?}");
    for (line, known) in table.out.lines().skip(1).zip(["60/60 s", "40/60 s", "60/60 s", "20/60 s"]) {
        assert!(line.contains(known), "{line}");
    }
    let hour = objects(&query(&store, &["--step", "1h", "--json"]).out);
    assert_eq!(hour.len(), 1);
    let bytes: u64 = rows.iter().map(|r| r.total.bytes).sum();
    let max = rows.iter().map(|r| r.total.bytes).max();
    assert_eq!((hour[0]["bytes_sum"].as_u64(), hour[0]["bytes_max"].as_u64()), (Some(bytes), max), "{}", hour[0]);
}

/// A store with packets and rows, recorded with a fixed `series.key`.
fn metered(dir: &TempDir, packets: &str) -> PathBuf {
    let store = dir.join("metered");
    let sets = ["capture.ring=8MiB", "series.key=0123456789abcdef"].map(|set| ["--set", set]).concat();
    let spec = ["--sim", "backbone,flows=3000,rate=10kpps", "--packets", packets, "--quiet"];
    let output = run(&[&["run", "--store", arg(&store)], &spec[..], &sets[..]].concat());
    assert_eq!(output.status, Some(0), "{output:?}");
    store
}

#[test]
fn a_filter_that_matches_all_packets_gives_the_rows_of_the_meter() {
    let dir = TempDir::new("series-filter-all");
    let store = metered(&dir, "25k");
    let (metered, filtered) = (query(&store, &["--json"]), query(&store, &["--json", "not host 192.0.2.77"]));
    assert_eq!((metered.status, filtered.status), (Some(0), Some(0)), "{filtered:?}");
    let without_flows = |output: &Output| {
        let mut rows = objects(&output.out);
        let flows = |name: &str| name.starts_with("flows_") || name.starts_with("tunnel_");
        rows.iter_mut().for_each(|row| row.as_object_mut().expect("an object").retain(|name, _| !flows(name)));
        rows
    };
    assert!(objects(&metered.out).len() >= 3);
    assert!(objects(&filtered.out).iter().all(|row| row.get("flows_new").is_none()), "packets give no flow counts");
    assert_eq!(without_flows(&filtered), without_flows(&metered));
    let steps = [["--step", "1m", "--json"], ["--step", "1m", "--csv"]];
    for step in steps {
        assert_eq!(query(&store, &[&step[..], &["not host 192.0.2.77"]].concat()).status, Some(0));
    }
}

#[test]
fn a_filtered_series_counts_matching_packets_and_has_rows_of_zeros() {
    let dir = TempDir::new("series-filter-some");
    let store = metered(&dir, "25k");
    for filter in ["tcp port 443", "udp and less 100", "host 198.51.100.250"] {
        let rows = objects(&query(&store, &["--json", filter]).out);
        let sum = |field: &str| rows.iter().map(|row| row[field].as_u64().expect("a number")).sum::<u64>();
        let counted = run(&["packets", "--store", arg(&store), "--count", "--json", filter]);
        let counted = &objects(&counted.out)[0];
        assert_eq!(
            (Some(sum("packets")), Some(sum("bytes"))),
            (counted["packets"].as_u64(), counted["bytes"].as_u64())
        );
        let all = objects(&query(&store, &["--json"]).out);
        let seconds = |rows: &[serde_json::Value]| rows.iter().map(|row| row["second"].clone()).collect::<Vec<_>>();
        assert_eq!(seconds(&rows), seconds(&all), "{filter}: the same seconds as without a filter");
        assert_eq!(sum("stored"), 25_000, "the ledger is that of all packets");
    }
    // If an interval begins or ends within a second, the result contains the complete second, as without a filter.
    let first = objects(&query(&store, &["--json"]).out)[0]["second"].as_u64().expect("a second");
    let (from, to) = (format!("{}300", first + 1), format!("{}700", first + 2));
    let interval = ["--json", "--from", &from, "--to", &to];
    let packets = |more: &[&str]| {
        let rows = objects(&query(&store, &[&interval[..], more].concat()).out);
        rows.iter().map(|row| row["packets"].as_u64().expect("a number")).collect::<Vec<_>>()
    };
    assert_eq!(packets(&["not host 192.0.2.77"]), packets(&[]));
    // The packets of some seconds were removed by retention. For these seconds the series is unknown; they are not
    // seconds without packets.
    let (packets, later) = (walk(&store), dir.join("later"));
    let packets: Vec<&PathBuf> = packets.iter().filter(|p| p.extension().is_some_and(|e| e == "pcap")).collect();
    let [file] = packets[..] else { panic!("one file: {packets:?}") };
    let first = objects(&query(&store, &["--json"]).out)[0]["second"].as_u64().expect("a second");
    let second = base::Timestamp::from_secs_nanos(first + 1, 0);
    std::fs::rename(file, &later).expect("rename");
    std::fs::remove_file(file.with_extension("ngi")).expect("remove");
    let rest = file.with_file_name(format!("{}.pcap", store::names::stem(second, None, 0)));
    let tail =
        run(&["packets", "-r", arg(&later), "--from", &second.to_string(), "--format", "pcap", "-w", arg(&rest)]);
    assert_eq!(tail.status, Some(0), "{tail:?}");
    let rows = objects(&query(&store, &["--json", "udp"]).out);
    assert_eq!(rows[0]["second"].as_u64(), Some(first + 1), "{rows:?}");
    let table = query(&store, &["udp"]);
    assert!(table.out.lines().skip(1).all(|line| line.matches(" - ").count() == 2), "{}", table.out);
    assert_error(&query(&store, &["--json", "--fields", "packets,flows_new", "udp"]), "flows_new", "netgrain flows");
    assert_error(&query(&store, &["--live", "udp"]), "--live", "FILTER");
    assert_error(&query(&store, &["prot udp"]), "filter", "did you mean");
}

#[test]
fn rows_survive_a_round_trip_through_parquet() {
    let dir = TempDir::new("series-parquet");
    let (store, rows) = store(&dir, "rows_survive_a_round_trip_through_parquet");
    let file = dir.join("rows.parquet");
    let output = query(&store, &["--parquet", arg(&file)]);
    assert_eq!((output.status, output.out.as_str()), (Some(0), ""), "{output:?}");
    assert!(output.err.contains(&format!("{} rows into", rows.len())), "{}", output.err);
    let reported = run(&["series", "-r", arg(&file), "--json"]);
    assert_eq!(reported.out, query(&store, &["--json"]).out, "with gaps and interface names: {}", reported.err);
    let minutes = run(&["series", "-r", arg(&file), "--step", "1m", "--json"]);
    assert_eq!(minutes.out, query(&store, &["--step", "1m", "--json"]).out);
    assert_error(&query(&store, &["--parquet", arg(&store.join("x"))]), "inside of the store", "elsewhere");
    assert_error(&run(&["flows", "-r", arg(&file)]), "rows.parquet", "not a file of flows");
    assert_error(&query(&store, &["--parquet", arg(&file), "--step", "1m"]), "--parquet", "cannot be used with");
}

/// A capture of UDP packets at these seconds and to these destination ports.
fn capture_at(path: &Path, packets: &[(u64, u16)]) {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 65_535, 1] {
        file.extend(word.to_le_bytes());
    }
    for (second, port) in packets {
        let mut buffer = [0; 100];
        let frame = wire::build::Frame::udp4([10, 0, 0, 1], 2222, [10, 0, 0, 2], *port).payload(b"hello");
        let frame = frame.write(&mut buffer).expect("a buffer of sufficient size");
        for word in [*second as u32, 0, frame.len() as u32, frame.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame.iter());
    }
    std::fs::write(path, file).expect("a capture");
}

#[test]
fn a_sparse_capture_has_the_gaps_of_its_store() {
    let dir = TempDir::new("series-slow");
    let (file, store) = (dir.join("slow.pcap"), dir.join("store"));
    // A capture with a packet every 24 minutes for 15 days, and one more packet a minute after the first; only this
    // pause is short enough for rows of zeros.
    let mut packets: Vec<(u64, u16)> = (0..900).map(|n| (BEGIN + n * 1440, 53)).collect();
    packets.insert(1, (BEGIN + 60, 53));
    capture_at(&file, &packets);
    let of_file = run(&["series", "-r", arg(&file), "--json", "--fields", "second,packets"]);
    let replayed = run(&["run", "-r", arg(&file), "--store", arg(&store), "-q", "--set", "capture.ring=8MiB"]);
    assert_eq!(replayed.status, Some(0), "{replayed:?}");
    let of_store = query(&store, &["--json", "--fields", "second,packets"]);
    let gaps = |output: &Output| -> Vec<String> {
        let of = |gap: &serde_json::Value| format!("{} {} {}", gap["from"], gap["to"], gap["seconds"]);
        objects(&output.out).iter().map(|row| &row["gap"]).filter(|gap| !gap.is_null()).map(of).collect()
    };
    assert_eq!(gaps(&of_file).len(), 899, "{}", of_file.err);
    assert_eq!(gaps(&of_file), gaps(&of_store));
    let rows = |output: &Output| objects(&output.out).iter().filter(|row| row["gap"].is_null()).count();
    assert_eq!((rows(&of_file), rows(&of_store)), (900 + 60, 900 + 60));
}

#[test]
fn a_filtered_series_extends_to_the_last_second_of_the_capture() {
    let dir = TempDir::new("series-end");
    let file = dir.join("talk.pcap");
    capture_at(&file, &[(BEGIN, 53), (BEGIN + 1, 443), (BEGIN + 5, 443)]);
    for filter in ["port 53", "port 443", "port 1"] {
        let output = run(&["series", "-r", arg(&file), "--json", filter]);
        assert_eq!((output.status, objects(&output.out).len()), (Some(0), 6), "{filter}: {output:?}");
    }
}

#[test]
fn a_filtered_series_has_rows_for_the_seconds_around_a_gap() {
    let dir = TempDir::new("series-around-gap");
    let file = dir.join("talk.pcap");
    // The capture has packets in two stretches of two seconds each. The packets of the last second of the first stretch
    // and of the first second of the second stretch go to port 443.
    capture_at(&file, &[(BEGIN, 53), (BEGIN + 1, 443), (BEGIN + 200, 443), (BEGIN + 201, 53)]);
    for filter in ["port 53", "port 443", "port 1"] {
        let output = run(&["series", "-r", arg(&file), "--json", filter]);
        let rows = objects(&output.out).into_iter().filter(|row| row["gap"].is_null()).count();
        assert_eq!((output.status, rows), (Some(0), 4), "{filter}: {output:?}");
    }
}

#[test]
fn a_relative_end_without_a_start_is_rejected() {
    let dir = TempDir::new("series-anchor");
    let (file, out) = (dir.join("talk.pcap"), dir.join("out.pcap"));
    capture_at(&file, &[(BEGIN, 53)]);
    for verb in ["series", "flows", "packets"] {
        assert_error(&run(&[verb, "-r", arg(&file), "--to", "+5min"]), "--to +SPAN", "add --from");
    }
    assert_error(&run(&["convert", arg(&file), "-w", arg(&out), "--to", "+5min"]), "--to +SPAN", "add --from");
}
