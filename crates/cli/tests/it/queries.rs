//! Options of all queries: formats of times, time zones, terminal width, colours and live rankings.

use crate::common::{self, Output, arg, netgrain, objects, run, run_command};
use crate::flows::{BEGIN, store};
use base::Timestamp;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use testkit::TempDir;

fn flows(store: &Path, more: &[&str]) -> Output {
    run(&[&["flows", "--store", arg(store)], more].concat())
}

/// Runs a query in a time zone two hours east of UTC, given by `TZ` without the time zone database.
fn in_the_east(store: &Path, verb: &str, more: &[&str]) -> Output {
    let mut command = netgrain(&[&[verb, "--store", arg(store)], more].concat());
    run_command(command.env("TZ", "EAST-2"))
}

/// The output of a command on a terminal of this width, without carriage returns. Returns `None` and reports a skipped
/// test if no terminal can be created.
fn on_terminal(test: &str, columns: u32, env: &str, args: &[&str]) -> Option<String> {
    let mut script = testkit::tool(test, "script")?;
    let words: Vec<String> = args.iter().map(|word| format!("'{word}'")).collect();
    let netgrain = env!("CARGO_BIN_EXE_netgrain");
    let line = format!("stty cols {columns} rows 40; {env} '{netgrain}' {} 2>&1", words.join(" "));
    let output = run_command(script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").env_remove("NO_COLOR"));
    Some(output.out.replace('\r', ""))
}

#[test]
fn a_time_span_without_a_unit_is_rejected() {
    let dir = TempDir::new("no-unit");
    for args in [
        &["flows", "--store", arg(dir.path()), "--from", "-10"][..],
        &["series", "--store", arg(dir.path()), "--from", "now-10"],
        &["packets", "--store", arg(dir.path()), "--from", "-1h", "--to", "+5"],
    ] {
        let output = run(args);
        assert_eq!((output.status, output.out.as_str()), (Some(2), ""), "{output:?}");
        assert!(output.err.contains("a span needs its unit") && output.err.contains("10s"), "{}", output.err);
    }
    let output = run(&["flows", "--store", arg(dir.path()), "--around", "10:42", "--within", "30"]);
    assert!(output.status == Some(2) && output.err.contains("unit is missing"), "{output:?}");
}

#[test]
fn around_selects_the_named_second_minute_or_hour() {
    let dir = TempDir::new("around");
    let (store, all) = store(&dir, "around_selects_the_named_second_minute_or_hour");
    let found = |words: &[&str]| objects(&flows(&store, &[words, &["--json"]].concat()).out).len();
    let within = |from: u64, span: u64| {
        let (from, to) =
            (Timestamp::from_secs_nanos(from, 0), Timestamp::from_nanos((from + span) * 1_000_000_000 - 1));
        all.iter().filter(|(_, r)| r.first() <= to && r.last() >= from).count()
    };
    assert_eq!(found(&["--around", "2026-11-21T10:42"]), within(BEGIN, 60));
    assert_eq!(found(&["--around", "2026-11-21T10:43"]), within(BEGIN + 60, 60));
    assert_eq!(found(&["--around", "2026-11-21T10:42:07"]), within(BEGIN + 7, 1));
    assert_eq!(found(&["--around", "2026-11-21T10"]), all.len());
    assert_eq!(found(&["--around", "2026-11-21T11"]), 0);
    assert!(
        within(BEGIN, 60) < all.len() && within(BEGIN + 7, 1) < within(BEGIN, 60),
        "the intervals select different records"
    );
}

#[test]
fn a_time_zone_affects_arguments_and_text_but_not_json() {
    let dir = TempDir::new("zone");
    let (store, all) = store(&dir, "a_time_zone_affects_arguments_and_text_but_not_json");
    let minute = ["--around", "2026-11-21T10:43", "--tz", "UTC"];
    let local = ["--around", "2026-11-21T12:43", "--tz", "local"];
    let (utc, east) = (flows(&store, &minute), in_the_east(&store, "flows", &local));
    assert_eq!((utc.status, east.status), (Some(0), Some(0)), "{east:?}");
    assert!(utc.out.lines().count() > 2);
    // Both outputs have the same records with the same timestamps; they differ only in the time zone of the printed
    // times.
    let times = |output: &Output| -> Vec<Timestamp> {
        let first = |line: &str| line.split_whitespace().next().map(str::to_owned).expect("a time");
        let parse = |text: String| Timestamp::parse(&text, Timestamp::ZERO).unwrap_or_else(|e| panic!("{e}"));
        output.out.lines().skip(1).map(first).map(parse).collect()
    };
    assert_eq!(times(&utc), times(&east));
    assert!(
        east.out.lines().skip(1).all(|l| l.starts_with("2026-11-21T12:") && l[29..35] == *"+02:00"),
        "{}",
        east.out
    );
    let json = |words: [&'static str; 4]| [&words[..], &["--json"]].concat();
    assert_eq!(flows(&store, &json(minute)).out, in_the_east(&store, "flows", &json(local)).out);
    // Without `--tz local`, the time zone of the machine has no effect.
    assert_eq!(in_the_east(&store, "flows", &minute).out, utc.out);
    let ranked = in_the_east(&store, "flows", &["--tz", "local", "--top", "1"]);
    assert!(ranked.out.contains("+02:00") && ranked.out.contains("T12:4"), "{}", ranked.out);
    let no_match = in_the_east(&store, "flows", &["--tz", "local", "--to", "2001-01-01T00:00"]);
    assert!(no_match.err.contains("to 2001-01-01T00:00:00.000000000+02:00"), "{}", no_match.err);
    let output = flows(&store, &["--tz", "Mars/Olympus"]);
    assert_eq!((output.status, output.out.as_str()), (Some(2), ""), "{output:?}");
    assert!(output.err.contains("Mars/Olympus") && output.err.contains("UTC, local"), "{}", output.err);
    assert!(!all.is_empty());
}

#[test]
fn group_src_sums_by_initiator_for_any_host_filter() {
    let dir = TempDir::new("initiator");
    let (store, all) = store(&dir, "group_src_sums_by_initiator_for_any_host_filter");
    let host = "10.0.0.1";
    for (options, json) in [(&["--group", "src"][..], true), (&["--group", "src", "--fields", "duration,flows"], true)]
    {
        let output =
            flows(&store, &[options, &[&format!("host {host}"), if json { "--json" } else { "--csv" }]].concat());
        let mut expected: BTreeMap<String, u64> = BTreeMap::new();
        for (_, r) in &all {
            if [r.key.src, r.key.dst].iter().any(|a| a.to_string() == host) {
                *expected.entry(r.key.src.to_string()).or_default() += u64::from(r.record_index == 0);
            }
        }
        let reported = objects(&output.out)
            .into_iter()
            .map(|o| (o["src"].as_str().expect("an address").to_owned(), o["flows"].as_u64().expect("a count")));
        assert_eq!(reported.collect::<BTreeMap<_, _>>(), expected, "{options:?}");
        assert!(expected.len() > 2 && expected.contains_key(host));
    }
}

#[test]
fn lines_fit_the_terminal_and_report_omitted_columns() {
    let test = "lines_fit_the_terminal_and_report_omitted_columns";
    let dir = TempDir::new("terminal");
    let (store, all) = store(&dir, test);
    let mut writer = columns::Writer::new(columns::Config::new(&store, "series")).expect("threads");
    for second in (BEGIN..BEGIN + 30).chain(BEGIN + 40..BEGIN + 60) {
        let total = series::Volume { packets: second - BEGIN, bytes: 700 * (second - BEGIN) };
        writer.row(&series::Row { second, total, ..series::Row::default() });
    }
    writer.finish();
    let store = arg(&store);
    for columns in [80, 100, 120, 160] {
        for args in [
            &["flows", "--store", store, "--limit", "50"][..],
            &["flows", "--store", store, "--top", "5"],
            &["flows", "--store", store, "--group", "src,dport,end", "--fields", "first,flows,packets,bytes,rtt,last"],
            &["series", "--store", store],
            &["series", "--store", store, "--step", "1m"],
        ] {
            let Some(output) = on_terminal(test, columns, "", &[args, &["--color", "never"]].concat()) else { return };
            let lines: Vec<&str> = output.lines().filter(|l| !l.starts_with("netgrain: ")).collect();
            assert!(lines.len() > 2, "{output}");
            let longest = lines.iter().map(|l| l.chars().count()).max().unwrap_or(0);
            assert!(longest <= columns as usize, "{longest} of {columns} columns: {args:?}\n{output}");
            let is_reported = output.lines().any(|l| l.contains("left out to fit") && l.contains("--wide"));
            assert!(is_reported || columns > 100 || args.contains(&"--group"), "{args:?}\n{output}");
        }
    }
    let wide = ["flows", "--store", store, "--limit", "5", "--wide", "--color", "never"];
    let Some(output) = on_terminal(test, 80, "", &wide) else { return };
    let piped = run(&wide);
    assert!(output.starts_with(&piped.out) && piped.out.contains("packets fwd/rev"), "{output}\n{}", piped.out);
    // A chart of a series has times below its sparklines.
    let Some(output) = on_terminal(test, 100, "", &["series", "--store", store, "--color", "never"]) else { return };
    let below: Vec<&str> = output.lines().skip_while(|l| !l.contains('┴')).collect();
    assert!(
        below[0].contains("1 s per character")
            && below[1].starts_with("2026-11-21 UTC")
            && below[1].contains("10:42:00")
            && below[1].contains("10:42:30"),
        "{output}"
    );
    assert!(!all.is_empty());
}

#[test]
fn colours_are_used_on_terminals_or_on_request() {
    let test = "colours_are_used_on_terminals_or_on_request";
    let dir = TempDir::new("colours");
    let (store, _) = store(&dir, test);
    let base = ["flows", "--store", arg(&store), "--limit", "3"];
    let flows_output = |more: &[&str]| run(&[&base[..], more].concat()).out;
    assert!(!flows_output(&[]).contains('\x1b') && !flows_output(&["--color", "auto"]).contains('\x1b'));
    assert!(flows_output(&["--color", "always"]).contains("\x1b["));
    assert!(!flows_output(&["--color", "always", "--json"]).contains('\x1b'), "JSON has no colours");
    let output = run(&[&base[..], &["--color", "pink"]].concat());
    assert!(output.status == Some(2) && output.err.contains("never"), "{output:?}");
    let Some(coloured) = on_terminal(test, 200, "", &base) else { return };
    let Some(plain) = on_terminal(test, 200, "NO_COLOR=1", &base) else { return };
    assert!(coloured.contains("\x1b[") && !plain.contains('\x1b'), "{coloured}\n{plain}");
}

#[test]
fn a_live_ranking_counts_every_record_in_one_period() {
    let dir = TempDir::new("live-ranking");
    let (store, all) = store(&dir, "a_live_ranking_counts_every_record_in_one_period");
    // A live ranking of an interval in the past has a single period, which ends at the end of the interval.
    let interval = ["--from", "2026-11-21T10:00", "--to", "2026-11-21T11:00", "--group", "src", "--json"];
    let (once, live) = (flows(&store, &interval), flows(&store, &[&interval[..], &["--live"]].concat()));
    assert_eq!((once.status, live.status), (Some(0), Some(0)), "{live:?}");
    let mut reported = objects(&live.out);
    for group in &mut reported {
        let group = group.as_object_mut().expect("an object");
        let period = ["from", "to"].map(|end| group.remove(end).expect("a period"));
        assert!(period[0].as_str() <= period[1].as_str(), "{period:?}");
    }
    assert_eq!(reported, objects(&once.out));
    let csv = flows(&store, &[&interval[..6], &["--csv", "--live", "--top", "2"]].concat());
    assert!(csv.out.starts_with("from,to,src,flows,packets,bytes\r\n") && csv.out.lines().count() == 3, "{}", csv.out);
    let table = flows(&store, &[&interval[..6], &["--live", "--top", "2"]].concat());
    let heading = table.out.lines().next().unwrap_or_default();
    assert!(heading.contains(&format!("{} records, 2 of ", all.len())), "{}", table.out);

    // A live ranking without `--to` prints a ranking at the end of each period.
    let mut command =
        netgrain(&["flows", "--store", arg(&store), "--live", "--from", "2026-11-21T10:00", "--group", "proto"]);
    let command = command.args(["--fields", "records", "--by", "records", "--every", "1s", "--json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the process starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let running = common::Running(child);
    let mut records = 0;
    while records < all.len() as u64 {
        let line = lines.next().expect("another period").expect("text");
        let group: serde_json::Value = serde_json::from_str(&line).expect("an object");
        records += group["records"].as_u64().expect("a count");
    }
    assert_eq!(records, all.len() as u64);
    drop(running);
    let output = flows(&store, &["--live", "--every", "2s"]);
    assert!(output.status == Some(2) && output.err.contains("--top, --group or --by"), "{output:?}");
    let output = flows(&store, &["--live", "--top", "3", "--every", "10ms"]);
    assert!(output.status == Some(2) && output.err.contains("at least 1s"), "{output:?}");
}
