//! `netgrain alarms test`: alarms of CSV files, their documents, and errors of files and flags.

use crate::common;

use base::Prng;
use common::{arg, netgrain, objects, run, run_command};
use incidents::{IncidentKind, SeriesKind, simulate};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use testkit::TempDir;

/// The first second of the files: 2026-11-02T00:00:00Z.
const BEGIN: u64 = 1_793_577_600;

/// Writes a file of two hours: about 1000 packets per second, and 3000 from second 5000 to second 5060.
pub fn flood(dir: &TempDir) -> PathBuf {
    let mut prng = Prng::new(7);
    let mut text = String::from("time,direction,packets,lost\n");
    for second in 0..7200 {
        let flood = if (5000..5060).contains(&second) { 2000 } else { 0 };
        let packets = 950 + prng.below(101) + flood;
        let _ = writeln!(text, "{},in,{packets},{}", BEGIN + second, u8::from(second == 6000));
        let _ = writeln!(text, "{},out,5,0", BEGIN + second);
    }
    // The verb gets the lines of one direction in the first file, and those of both in the second.
    let all = dir.join("both.csv");
    std::fs::write(&all, &text).expect("a writable directory");
    let file = dir.join("flood.csv");
    let one: String = text.lines().filter(|line| !line.contains(",out,")).map(|line| format!("{line}\n")).collect();
    std::fs::write(&file, one).expect("a writable directory");
    file
}

fn test(file: &Path, more: &[&str]) -> common::Output {
    run(&[&["alarms", "test", "--csv", arg(file), "--value", "packets"], more].concat())
}

#[test]
fn a_flood_is_one_alarm_with_begin_peak_and_end() {
    let dir = TempDir::new("alarms-flood");
    let file = flood(&dir);
    let text = test(&file, &[]);
    assert_eq!(text.status, Some(0), "{text:?}");
    assert!(text.out.contains("2026-11-02T01:23:20Z") && text.out.contains("increase"), "{}", text.out);
    assert!(text.out.contains("1 alarm in 7 200 seconds with a value"), "{}", text.out);
    assert!(text.out.contains("2026-11-02  1"), "{}", text.out);
    let documents = objects(&test(&file, &["--json", "--untrusted", "lost"]).out);
    let events: Vec<&str> = documents.iter().filter_map(|document| document["event"].as_str()).collect();
    assert_eq!((events[0], events[events.len() - 1]), ("begin", "end"), "{events:?}");
    let end = &documents[documents.len() - 2];
    assert_eq!(
        (end["onset"].as_str(), end["end"].as_str()),
        (Some("2026-11-02T01:23:20Z"), Some("2026-11-02T01:24:20Z"))
    );
    let peak = &end["peak"];
    assert!(peak["observed"].as_f64() > Some(2900.0) && peak["high"].as_f64() < Some(1300.0), "{peak}");
    let totals = &documents[documents.len() - 1];
    assert_eq!((totals["alarms"].as_u64(), totals["seconds"]["untrusted"].as_u64()), (Some(1), Some(1)));
    // The same lines give the same alarms from a pipe and from a file with both directions.
    let input = std::fs::File::open(dir.join("both.csv")).expect("the file");
    let verb = ["alarms", "test", "--csv", "-", "--value", "packets", "--where", "direction=in", "--json"];
    let piped = run_command(netgrain(&verb).stdin(input));
    assert_eq!(piped.out, test(&file, &["--json"]).out);
}

#[test]
fn a_threshold_has_a_duration_and_a_clear_level() {
    let dir = TempDir::new("alarms-threshold");
    let file = flood(&dir);
    let limit = ["--detector", "threshold", "--upper", "2000", "--clear-upper", "1500", "--return", "10s", "--json"];
    let documents = objects(&test(&file, &limit).out);
    let begin = &documents[0];
    assert_eq!(begin["confirmed"], "2026-11-02T01:23:24Z");
    assert_eq!(begin["parameters"]["clear_upper"], 1500.0);
    assert_eq!(begin["peak"]["low"], serde_json::Value::Null);
    let quiet = test(&file, &["--detector", "threshold", "--upper", "4000"]);
    assert_eq!((quiet.status, quiet.out.lines().count()), (Some(1), 1), "{quiet:?}");
    let long = test(&file, &["--detector", "threshold", "--upper", "2000", "--duration", "2min"]);
    assert_eq!(long.status, Some(1));
}

#[test]
fn a_syn_flood_is_found_from_two_columns() {
    let dir = TempDir::new("alarms-syn");
    let mut text = String::from("second;syn;fin\n");
    for second in 1..3000 {
        let flood = if second > 2000 { 200 } else { 0 };
        let _ = writeln!(text, "{};{};95", BEGIN + second, 100 + flood);
    }
    let file = dir.join("tcp.csv");
    std::fs::write(&file, text).expect("a writable directory");
    let verb = ["alarms", "test", "--csv", arg(&file), "--value", "syn", "--fin", "fin", "--detector", "syn-flood"];
    let found = run(&[&verb[..], &["--delimiter", ";"]].concat());
    assert_eq!(found.status, Some(0), "{found:?}");
    assert!(found.out.contains("open") && found.out.contains("the series ended"), "{}", found.out);
    let missing = run(&verb[..6]);
    assert_eq!(missing.status, Some(2));
}

/// Writes a file of 30 days with a line for each ten minutes, whose value is the mean number of packets per second.
/// From day 15 on, the values are 30 % higher.
pub fn days(dir: &TempDir) -> PathBuf {
    let mut prng = Prng::new(9);
    let mut text = String::from("time,packets\n");
    for day in 0..30u64 {
        let level = if day < 15 { 1000 } else { 1300 } + prng.below(60);
        for second in 0..86_400 {
            // A part of a day needs values for half of its seconds.
            if second % 5400 < 2800 && (day != 3 || second > 30_000) {
                let _ = writeln!(text, "{},{}", BEGIN + day * 86_400 + second, level + second / 5400);
            }
        }
    }
    let file = dir.join("days.csv");
    std::fs::write(&file, text).expect("a writable directory");
    file
}

#[test]
fn a_long_term_change_has_its_day_and_incomplete_days_are_skipped() {
    let dir = TempDir::new("alarms-long-term");
    let file = days(&dir);
    let documents = objects(&test(&file, &["--detector", "long-term", "--json"]).out);
    let [document] = &documents[..] else { panic!("{documents:?}") };
    assert_eq!((document["days"].as_u64(), document["skipped_days"].as_u64()), (Some(29), Some(1)));
    let changes = document["changes"].as_array().expect("a list");
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert_eq!(changes[0]["day"], "2026-11-17");
    assert!(changes[0]["p_value"].as_f64() < Some(0.001), "{changes:?}");
    let text = test(&file, &["--detector", "long-term"]);
    assert!(text.out.contains("1 change in 29 complete days; 1 day with a missing part"), "{}", text.out);
}

#[test]
fn errors_name_the_file_the_line_and_the_next_step() {
    let dir = TempDir::new("alarms-errors");
    let file = flood(&dir);
    let error = |file: &Path, more: &[&str]| {
        let failed = test(file, more);
        assert_eq!(failed.status, Some(2), "{failed:?}");
        assert_eq!(failed.err.lines().count(), 1, "{}", failed.err);
        failed.err
    };
    assert!(error(&dir.join("both.csv"), &[]).contains("both.csv: line 3: a second line for the second"));
    assert!(error(&dir.join("none.csv"), &[]).contains("none.csv"));
    assert!(error(&file, &["--time", "tiem"]).contains("is it \"time\"?"));
    assert!(error(&file, &["--detector", "threshold"]).contains("--upper"));
    assert!(error(&file, &["--where", "direction"]).contains("direction=in"));
    assert!(error(&file, &["--false-alarm-interval", "1s"]).contains("from an hour"));
    let sparse = dir.join("sparse.csv");
    std::fs::write(&sparse, "time,packets\n60,1\n120,1\n180,1\n").expect("a writable directory");
    let noted = test(&sparse, &[]);
    assert!(noted.status == Some(1) && noted.err.contains("one line per second"), "{noted:?}");
}

/// Two weeks with incidents of ten kinds, as a file: the verb finds them, and says nothing about capture loss.
#[test]
fn incidents_of_a_simulated_series_are_found_from_a_file() {
    let dir = TempDir::new("alarms-simulated");
    let series = simulate(SeriesKind::NewFlows, 1);
    let mut text = String::from("time,packets,untrusted\n");
    for (value, (second, sample)) in series.values.iter().zip(series.samples()) {
        let value = value.map(|value| value.to_string()).unwrap_or_default();
        let _ = writeln!(text, "{second},{value},{}", u8::from(sample == detect::Sample::Untrusted));
    }
    let file = dir.join("series.csv");
    std::fs::write(&file, text).expect("a writable directory");
    let documents = objects(&test(&file, &["--json", "--untrusted", "untrusted"]).out);
    let confirmed = documents.iter().filter(|document| document["event"] == "begin");
    let alarms: Vec<_> = confirmed
        .map(|document| {
            let time = document["confirmed"].as_str().expect("a time");
            let second = base::Timestamp::parse(time, base::Timestamp::ZERO).expect("a time").secs();
            let is_decrease = document["change"] == "decrease";
            (second, if is_decrease { detect::Change::Decrease } else { detect::Change::Increase })
        })
        .collect();
    let score = incidents::score(&series.incidents, &alarms);
    let strong: Vec<_> = score.at_least(6.0).collect();
    assert!(
        strong.len() >= 3 && strong.iter().filter(|found| found.is_right()).count() + 1 >= strong.len(),
        "{strong:?}"
    );
    assert!(score.of_kind(IncidentKind::CaptureLoss).all(|found| found.is_right()));
    assert!(score.false_alarms.len() <= 1, "{:?}", score.false_alarms);
}
