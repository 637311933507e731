//! Tests of `netgrain retain` and of the retention rules of `record`.

use crate::common;

use base::Timestamp;
use common::{Output, Running, arg, netgrain, objects, run, signal, until, walk};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use store::{Hold, names};
use testkit::TempDir;

fn assert_error(output: &Output, names: &str, advice: &str) {
    assert_eq!((output.status, output.out.as_str()), (Some(2), ""), "{output:?}");
    assert_eq!(output.err.lines().count(), 1, "{}", output.err);
    assert!(
        output.err.starts_with("netgrain: ") && output.err.contains(names) && output.err.contains(advice),
        "{}",
        output.err
    );
}

/// Creates packet files of 100 kB with their indexes, one per hour; the last one is an hour old.
fn store(dir: &TempDir, interface: &str, files: u64) -> Vec<PathBuf> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    let file = |age: u64| {
        let start = Timestamp::from_secs_nanos(now - age * 3600, 0);
        let directory = names::hour_directory(&names::interface_directory(&dir.join("store"), interface), start);
        std::fs::create_dir_all(&directory).expect("an hour");
        let path = directory.join(format!("{}.pcap", names::stem(start, None, 0)));
        std::fs::write(&path, vec![1; 100_000]).expect("packets");
        std::fs::write(path.with_extension("ngi"), vec![2; 1000]).expect("an index");
        path
    };
    (1..=files).rev().map(file).collect()
}

fn exist(files: &[PathBuf]) -> Vec<bool> {
    files.iter().map(|path| path.exists()).collect()
}

#[test]
fn invalid_retention_rules_are_rejected_with_advice() {
    let dir = TempDir::new("retain-usage");
    store(&dir, "eth1", 1);
    let at = dir.join("store");
    let retain = |more: &[&str]| run(&[&["retain", "--store", arg(&at)], more].concat());
    assert_error(&retain(&[]), "no rule", "--keep-free");
    assert_error(&retain(&["--keep-free", "none"]), "no rule", "--max-age");
    assert_error(&retain(&["--keep-free", "80%"]), "80%", "write 0% to 50%");
    assert_error(&retain(&["--keep-free", "much"]), "much", "10%");
    assert_error(&retain(&["--max-age", "soon"]), "soon", "write");
    assert_error(&retain(&["--max-age", "0s"]), "--max-age", "empty the store");
    for (size, echoed) in
        [("10", "10"), ("0", "0"), ("7MB", "7MB"), ("1.5MB", "1500kB"), ("7MiB", "7MiB"), ("7M", "7MiB")]
    {
        let refused = format!("--max-size {echoed} is less than 4 files of 2MiB");
        assert_error(&retain(&["--max-size", size]), &refused, "with its unit, as in 200GB");
    }
    assert_error(&retain(&["--keep-free", "5000TB"]), "--keep-free 5000TB", "at most half");
    assert_error(&retain(&["--max-age", "1d", "-i", "eth2"]), "eth2", "it has eth1");
    assert_error(
        &retain(&["--max-age", "1d", "--archive", "no-such-directory"]),
        "no-such-directory",
        "mount its volume",
    );
    assert_error(&retain(&["--max-age", "1d", "--archive", arg(&at)]), arg(&at), "outside of it");
    assert_error(
        &run(&["retain", "--store", "no-such-store", "--max-age", "1d"]),
        "no-such-store",
        "directory of a store",
    );
    let record = |more: &[&str]| {
        run(&[&["record", "--sim", "60,packets=1", "--ring", "8MiB", "--store", arg(&dir.join("new"))], more].concat())
    };
    assert_error(&record(&["--max-size", "4GiB"]), "--max-size 4GiB is less than 4 files of 2GiB", "smaller --segment");
    assert_error(&record(&["--archive", arg(dir.path())]), "--archive", "--max-age");
    assert!(!dir.join("new").exists(), "rejected before the store is created");
}

#[test]
fn the_oldest_files_are_removed_and_dry_run_lists_them() {
    let dir = TempDir::new("retain");
    let files = store(&dir, "eth1", 5);
    let others = store(&dir, "eth2", 1);
    let at = dir.join("store");
    let before = walk(&at);
    let args = ["retain", "--store", arg(&at), "--max-age", "210min", "-i", "eth1"];
    let dry_text = run(&[&args[..], &["--dry-run"]].concat());
    let dry_json = run(&[&args[..], &["--dry-run", "--json"]].concat());
    assert_eq!((dry_text.status, walk(&at)), (Some(0), before), "{dry_text:?}");
    let output = run(&[&args[..], &["--json"]].concat());
    assert_eq!(output.status, Some(0), "{output:?}");
    assert_eq!(exist(&files), [false, false, true, true, true]);
    assert!(exist(&others)[0] && files[..2].iter().all(|path| !path.with_extension("ngi").exists()));
    for path in &files[..2] {
        assert!(dry_text.out.contains(&format!("(dry run) {}: removed", path.display())), "{}", dry_text.out);
    }
    let marked = |output: &Output| objects(&output.out).iter().filter(|o| o["dry_run"] == true).count();
    assert_eq!((marked(&dry_json), marked(&output)), (3, 0), "{dry_json:?}");
    let objects = objects(&output.out);
    let removed: Vec<&str> = objects.iter().filter_map(|o| o["event"]["path"].as_str()).collect();
    assert_eq!(removed, files[..2].iter().map(|path| arg(path)).collect::<Vec<_>>());
    let state = &objects.last().expect("the state")["retention"];
    assert_eq!((&state["files"], &state["removed"]["files"]), (&3.into(), &2.into()));
    // A second run has nothing to do, and the empty hour directories are removed.
    assert_eq!(run(&args).status, Some(0));
    assert!(!files[0].parent().expect("an hour").exists());
}

#[test]
fn free_space_that_no_removal_can_reach_is_reported_and_removes_no_file() {
    let dir = TempDir::new("retain-unreachable");
    let volume = dir.join("volume");
    std::fs::create_dir(&volume).expect("a directory");
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=16M", "tmpfs", arg(&volume)])
        .output()
        .is_ok_and(|output| output.status.success());
    if !mounted {
        return testkit::skip(
            "free_space_that_no_removal_can_reach_is_reported_and_removes_no_file",
            "no right to mount",
        );
    }
    let _mounted = Mounted(volume.clone());
    std::os::unix::fs::symlink(&volume, dir.join("store")).expect("a link");
    let files = store(&dir, "eth1", 3);
    std::fs::write(volume.join("others"), vec![7; 12 << 20]).expect("another user's file");
    let retain = |more: &[&str]| run(&[&["retain", "--store", arg(&volume), "--keep-free", "50%"], more].concat());
    for more in [&["--dry-run"][..], &[]] {
        let output = retain(more);
        assert_eq!((output.status, exist(&files)), (Some(1), vec![true; 3]), "{output:?}");
        assert!(output.err.contains("cannot be satisfied: "), "{}", output.err);
        assert!(!output.out.contains("would go") && !output.out.contains(": removed"), "{}", output.out);
    }
    // A rule that cannot be satisfied does not prevent the other rules from being applied.
    assert_eq!((retain(&["--max-age", "150min"]).status, exist(&files)), (Some(1), vec![false, true, true]));
}

/// A mount that is removed on drop.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn the_final_report_of_a_recorder_counts_the_files_in_the_store() {
    let dir = TempDir::new("retain-last-word");
    let at = dir.join("store");
    let output = run(&[
        "record",
        "--sim",
        "60,rate=1kpps,packets=300",
        "--ring",
        "8MiB",
        "--store",
        arg(&at),
        "--segment",
        "8MiB",
        "--max-size",
        "32MiB",
        "--json",
    ]);
    assert_eq!(output.status, Some(0), "{output:?}");
    let stored = walk(&at).into_iter().filter(|p| p.extension().is_some_and(|e| e == "pcap")).count();
    let objects = objects(&output.out);
    let state = &objects.last().expect("the report")["retention"];
    assert_eq!(state["files"], stored, "{state}");
    assert!(state["bytes"].as_u64().is_some_and(|bytes| bytes < 8 << 20), "preallocated space is released: {state}");
}

#[test]
fn retention_names_a_query_with_a_hold_waits_and_then_removes() {
    let dir = TempDir::new("retain-held");
    let files = store(&dir, "eth1", 2);
    let hold = Hold::reader(files[0].parent().expect("an hour")).expect("a reader");
    let args = ["retain", "--store", arg(&dir.join("store")), "--max-age", "1s"].map(str::to_owned);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let dry = run(&[&args[..], &["--dry-run"]].concat());
    let holder = format!("process {} (", std::process::id());
    assert!(
        exist(&files) == [true, true] && dry.err.contains(&holder) && dry.err.contains("holds this hour"),
        "{dry:?}"
    );
    // After the time that retention waits for readers, a query that holds the files no longer prevents their removal.
    let output = run(&[&args[..], &["--wait-for-readers", "300ms"]].concat());
    assert_eq!((output.status, exist(&files)), (Some(0), vec![false, false]), "{output:?}");
    assert!(output.err.contains(&holder) && output.err.contains("still holds this hour"), "{}", output.err);
    drop(hold);
}

#[test]
fn the_archive_is_a_store_with_the_same_file_names() {
    let dir = TempDir::new("retain-archive");
    let files = store(&dir, "eth1", 3);
    let archive = dir.join("archive");
    std::fs::create_dir(&archive).expect("a directory");
    let output = run(&[
        "retain",
        "--store",
        arg(&dir.join("store")),
        "--max-age",
        "90min",
        "--archive",
        arg(&archive),
        "--json",
    ]);
    assert_eq!((output.status, exist(&files)), (Some(0), vec![false, false, true]), "{output:?}");
    let archived = |path: &Path| archive.join(path.strip_prefix(dir.join("store")).expect("in the store"));
    for path in &files[..2] {
        assert_eq!(std::fs::read(archived(path)).expect("packets"), vec![1; 100_000]);
        assert_eq!(std::fs::read(archived(&path.with_extension("ngi"))).expect("an index"), vec![2; 1000]);
    }
    let kinds: Vec<_> =
        objects(&output.out).iter().filter_map(|o| Some(o["event"]["kind"].as_str()?.to_owned())).collect();
    assert_eq!(kinds, ["archived", "archived"]);
}

#[test]
fn the_report_is_the_last_line_and_counts_every_removed_file() {
    let dir = TempDir::new("retain-last-line");
    // The store has more files than retention can remove before the recording ends; the test ends the recording after
    // the first removal.
    let files = store(&dir, "sim", 1500);
    let at = dir.join("store");
    let args = ["record", "--sim", "60,rate=1kpps", "--ring", "8MiB", "--segment", "8MiB", "--max-size", "32MiB"];
    let (running, err) = Running::start(&mut netgrain(&[&args[..], &["--json", "--store", arg(&at)]].concat()));
    until("a file is removed", || !files[0].exists());
    signal(&running.0, "INT");
    let output = running.end(err);
    assert_eq!(output.status, Some(0), "{output:?}");
    let objects = objects(&output.out);
    let report = &objects.last().expect("a line")["retention"];
    let reported = objects.iter().filter(|o| o["event"]["kind"] == "removed").count();
    assert_eq!(report["removed"]["files"].as_u64(), Some(reported as u64), "{report}");
    assert!(files.iter().filter(|path| !path.exists()).count() == reported && reported > 0, "{reported} reported");
}

#[test]
fn retain_distinguishes_kept_files_from_the_files_that_a_recorder_writes() {
    let dir = TempDir::new("retain-growing");
    let at = dir.join("store");
    let args = ["record", "--sim", "60,rate=1kpps", "--ring", "8MiB", "--segment", "8MiB", "--store", arg(&at)];
    let (running, err) = Running::start(&mut netgrain(&args));
    let retain = || run(&["retain", "--store", arg(&at), "--max-size", "1GB"]);
    until("the recorder has a file", || retain().out.contains(" for the files being written; "));
    let output = retain();
    assert!(output.out.starts_with("retention: 0 files kept (0 B), and "), "{output:?}");
    signal(&running.0, "INT");
    assert_eq!(running.end(err).status, Some(0));
    let output = retain();
    assert!(output.out.starts_with("retention: 1 file kept (") && !output.out.contains("being written"), "{output:?}");
}

#[test]
fn a_quiet_recorder_reports_removed_and_recovered_files() {
    let dir = TempDir::new("retain-quiet");
    let at = dir.join("store");
    let record = |sim: &str, more: &[&str]| {
        let args = ["record", "--sim", sim, "--ring", "8MiB", "--store", arg(&at), "--segment", "8MiB", "-q"];
        netgrain(&[&args[..], more].concat())
    };
    assert_eq!(common::run_command(&mut record("60,packets=100", &[])).status, Some(0));
    let packets = walk(&at).into_iter().find(|p| p.extension().is_some_and(|e| e == "pcap")).expect("a file");
    let interface = packets.strip_prefix(&at).expect("in the store").iter().next().expect("a directory");
    // The store has more files than the retention rule keeps, and a hidden file of a killed recorder.
    let files = store(&dir, interface.to_str().expect("a name"), 400);
    let stem = packets.file_stem().and_then(|s| s.to_str()).expect("a name");
    for ending in ["pcap", "ngi"] {
        let path = packets.with_extension(ending);
        std::fs::rename(&path, path.with_file_name(names::hidden(stem, ending))).expect("hidden");
    }
    let mut recorder = record("60,rate=1kpps", &["--max-size", "32MiB"]);
    let mut recorder =
        Running(recorder.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the process starts"));
    let err = BufReader::new(recorder.0.stderr.take().expect("a pipe"));
    until("a file is removed", || !files[0].exists());
    // Without --quiet the recorder would print lines now.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    signal(&recorder.0, "INT");
    let output = recorder.end(err);
    assert_eq!(output.status, Some(0), "{output:?}");
    let removed = files.iter().take_while(|path| !path.exists()).count();
    assert!(removed > 0, "{output:?}");
    for path in &files[..removed] {
        assert!(output.err.contains(&format!("netgrain: {}: removed", path.display())), "{}", output.err);
    }
    assert!(output.err.contains("recovered from a killed recorder"), "{}", output.err);
    assert!(!output.err.contains("packets       wire"), "no line each second: {}", output.err);
}

#[test]
fn each_data_type_has_its_own_retention_rules() {
    let dir = TempDir::new("retain-kinds");
    let packets = store(&dir, "eth1", 2);
    let at = dir.join("store");
    let with_extension = |end: &str| -> Vec<PathBuf> { packets.iter().map(|path| path.with_extension(end)).collect() };
    let (flows, series) = (with_extension("flows.parquet"), with_extension("series.parquet"));
    flows.iter().chain(&series).for_each(|path| std::fs::write(path, vec![3; 1000]).expect("a file"));
    let retain = |kind: &str, more: &[&str]| run(&[&["retain", "--store", arg(&at), "--kind", kind], more].concat());
    for kind in ["flows", "series"] {
        assert_error(&retain(kind, &[]), "no rule", "--max-age");
        assert_error(&retain(kind, &["--keep-free", "5%"]), "--keep-free", "--max-size");
        assert_error(&retain(kind, &["--max-age", "1d", "--archive", "/x"]), "--archive", "copy");
        assert_error(&retain(kind, &["--max-size", "10"]), "--max-size", "with its unit");
    }
    let dry = retain("flows", &["--max-age", "90min", "--dry-run"]);
    assert!(
        dry.status == Some(0) && dry.out.contains("(dry run) removed") && dry.out.contains(arg(&flows[0])),
        "{dry:?}"
    );
    assert_eq!(exist(&flows), [true, true], "no file is removed");
    let output = retain("flows", &["--max-age", "90min"]);
    assert!(output.status == Some(0) && output.out.contains("eth1: 1 file of flows"), "{output:?}");
    assert_eq!((exist(&flows), exist(&series), exist(&packets)), (vec![false, true], vec![true; 2], vec![true; 2]));
    let output = retain("series", &["--max-age", "1min", "--json"]);
    assert_eq!(objects(&output.out).last().expect("a state")["retention"]["removed"]["files"], 2, "{output:?}");
    assert_eq!((exist(&series), exist(&packets)), (vec![false; 2], vec![true; 2]));
}
