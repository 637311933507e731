//! `netgrain retain`, and the rules as `record` takes them.

use crate::common;

use base::Timestamp;
use common::{Running, Said, arg, netgrain, objects, run, signal, until, walk};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use store::{Hold, names};
use testkit::TempDir;

fn refused(said: &Said, names: &str, advice: &str) {
    assert_eq!((said.status, said.out.as_str()), (Some(2), ""), "{said:?}");
    assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    assert!(
        said.err.starts_with("netgrain: ") && said.err.contains(names) && said.err.contains(advice),
        "{}",
        said.err
    );
}

/// So many files of 100 kB with their indexes, one an hour, the last one an hour ago.
fn store(dir: &TempDir, interface: &str, files: u64) -> Vec<PathBuf> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    let file = |age: u64| {
        let start = Timestamp::from_secs_nanos(now - age * 3600, 0);
        let folder = names::hour_folder(&names::interface_folder(&dir.join("store"), interface), start);
        std::fs::create_dir_all(&folder).expect("an hour");
        let path = folder.join(format!("{}.pcap", names::stem(start, None, 0)));
        std::fs::write(&path, vec![1; 100_000]).expect("packets");
        std::fs::write(path.with_extension("ngi"), vec![2; 1000]).expect("an index");
        path
    };
    (1..=files).rev().map(file).collect()
}

fn left(files: &[PathBuf]) -> Vec<bool> {
    files.iter().map(|path| path.exists()).collect()
}

#[test]
fn what_cannot_be_meant_is_refused_with_advice() {
    let dir = TempDir::new("retain-usage");
    store(&dir, "eth1", 1);
    let at = dir.join("store");
    let retain = |more: &[&str]| run(&[&["retain", "--store", arg(&at)], more].concat());
    refused(&retain(&[]), "no rule", "--keep-free");
    refused(&retain(&["--keep-free", "none"]), "no rule", "--max-age");
    refused(&retain(&["--keep-free", "80%"]), "80%", "write 0% to 50%");
    refused(&retain(&["--keep-free", "much"]), "much", "10%");
    refused(&retain(&["--max-age", "soon"]), "soon", "write");
    refused(&retain(&["--max-age", "0s"]), "--max-age", "empty the store");
    refused(&retain(&["--max-size", "10"]), "--max-size 10 B", "with its unit");
    refused(&retain(&["--max-size", "0"]), "--max-size", "empty the store");
    refused(&retain(&["--keep-free", "5000TB"]), "--keep-free", "at most half");
    refused(&retain(&["--max-age", "1d", "-i", "eth2"]), "eth2", "it has eth1");
    refused(&retain(&["--max-age", "1d", "--archive", "no-such-folder"]), "no-such-folder", "mount its volume");
    refused(&retain(&["--max-age", "1d", "--archive", arg(&at)]), arg(&at), "outside of it");
    refused(&run(&["retain", "--store", "no-such-store", "--max-age", "1d"]), "no-such-store", "folder of a store");
    let record = |more: &[&str]| {
        run(&[&["record", "--sim", "60,packets=1", "--ring", "8MiB", "--store", arg(&dir.join("new"))], more].concat())
    };
    refused(&record(&["--max-size", "4GiB"]), "--max-size", "smaller --segment");
    refused(&record(&["--archive", arg(dir.path())]), "--archive", "--max-age");
    assert!(!dir.join("new").exists(), "refused before anything was made");
}

#[test]
fn the_oldest_go_and_what_would_go_is_told_before() {
    let dir = TempDir::new("retain");
    let files = store(&dir, "eth1", 5);
    let others = store(&dir, "eth2", 1);
    let at = dir.join("store");
    let before = walk(&at);
    let args = ["retain", "--store", arg(&at), "--max-age", "210min", "-i", "eth1"];
    let reported = run(&[&args[..], &["--dry-run"]].concat());
    let pretended = run(&[&args[..], &["--dry-run", "--json"]].concat());
    assert_eq!((reported.status, walk(&at)), (Some(0), before), "{reported:?}");
    let said = run(&[&args[..], &["--json"]].concat());
    assert_eq!(said.status, Some(0), "{said:?}");
    assert_eq!(left(&files), [false, false, true, true, true]);
    assert!(left(&others)[0] && files[..2].iter().all(|path| !path.with_extension("ngi").exists()));
    for path in &files[..2] {
        assert!(reported.out.contains(&format!("(dry run) {}: removed", path.display())), "{}", reported.out);
    }
    let marked = |said: &Said| objects(&said.out).iter().filter(|o| o["dry_run"] == true).count();
    assert_eq!((marked(&pretended), marked(&said)), (3, 0), "{pretended:?}");
    let objects = objects(&said.out);
    let gone: Vec<&str> = objects.iter().filter_map(|o| o["event"]["path"].as_str()).collect();
    assert_eq!(gone, files[..2].iter().map(|path| arg(path)).collect::<Vec<_>>());
    let state = &objects.last().expect("the state")["retention"];
    assert_eq!((&state["files"], &state["removed"]["files"]), (&3.into(), &2.into()));
    // Nothing is left to do, and the emptied hours are gone.
    assert_eq!(run(&args).status, Some(0));
    assert!(!files[0].parent().expect("an hour").exists());
}

#[test]
fn room_that_no_removal_can_make_is_said_and_costs_no_file() {
    let dir = TempDir::new("retain-unreachable");
    let volume = dir.join("volume");
    std::fs::create_dir(&volume).expect("a folder");
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=16M", "tmpfs", arg(&volume)])
        .output()
        .is_ok_and(|said| said.status.success());
    if !mounted {
        return testkit::skip("room_that_no_removal_can_make_is_said_and_costs_no_file", "no right to mount");
    }
    let _mounted = Mounted(volume.clone());
    std::os::unix::fs::symlink(&volume, dir.join("store")).expect("a link");
    let files = store(&dir, "eth1", 3);
    std::fs::write(volume.join("others"), vec![7; 12 << 20]).expect("somebody else's");
    let retain = |more: &[&str]| run(&[&["retain", "--store", arg(&volume), "--keep-free", "50%"], more].concat());
    for more in [&["--dry-run"][..], &[]] {
        let said = retain(more);
        assert_eq!((said.status, left(&files)), (Some(1), vec![true; 3]), "{said:?}");
        assert!(said.err.contains("cannot be satisfied: "), "{}", said.err);
        assert!(!said.out.contains("would go") && !said.out.contains(": removed"), "{}", said.out);
    }
    // The other rules are kept all the same.
    assert_eq!((retain(&["--max-age", "150min"]).status, left(&files)), (Some(1), vec![false, true, true]));
}

/// Unmounted, however the test ends.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn the_last_word_of_a_recorder_counts_what_it_left() {
    let dir = TempDir::new("retain-last-word");
    let at = dir.join("store");
    let said = run(&[
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
    assert_eq!(said.status, Some(0), "{said:?}");
    let left = walk(&at).into_iter().filter(|p| p.extension().is_some_and(|e| e == "pcap")).count();
    let objects = objects(&said.out);
    let state = &objects.last().expect("the report")["retention"];
    assert_eq!(state["files"], left, "{state}");
    assert!(state["bytes"].as_u64().is_some_and(|bytes| bytes < 8 << 20), "what was made ahead is gone: {state}");
}

#[test]
fn a_query_that_holds_what_should_go_is_named_and_waited_for_and_then_loses() {
    let dir = TempDir::new("retain-held");
    let files = store(&dir, "eth1", 2);
    let hold = Hold::reader(files[0].parent().expect("an hour")).expect("a reader");
    let args = ["retain", "--store", arg(&dir.join("store")), "--max-age", "1s"].map(str::to_owned);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let dry = run(&[&args[..], &["--dry-run"]].concat());
    let me = format!("process {} (", std::process::id());
    assert!(left(&files) == [true, true] && dry.err.contains(&me) && dry.err.contains("holds this hour"), "{dry:?}");
    // Waited for in vain, it keeps nothing.
    let said = run(&[&args[..], &["--wait-for-readers", "300ms"]].concat());
    assert_eq!((said.status, left(&files)), (Some(0), vec![false, false]), "{said:?}");
    assert!(said.err.contains(&me) && said.err.contains("still holds this hour"), "{}", said.err);
    drop(hold);
}

#[test]
fn the_archive_is_a_store_with_the_same_names() {
    let dir = TempDir::new("retain-archive");
    let files = store(&dir, "eth1", 3);
    let archive = dir.join("archive");
    std::fs::create_dir(&archive).expect("a folder");
    let said = run(&[
        "retain",
        "--store",
        arg(&dir.join("store")),
        "--max-age",
        "90min",
        "--archive",
        arg(&archive),
        "--json",
    ]);
    assert_eq!((said.status, left(&files)), (Some(0), vec![false, false, true]), "{said:?}");
    let there = |path: &Path| archive.join(path.strip_prefix(dir.join("store")).expect("in the store"));
    for path in &files[..2] {
        assert_eq!(std::fs::read(there(path)).expect("packets"), vec![1; 100_000]);
        assert_eq!(std::fs::read(there(&path.with_extension("ngi"))).expect("an index"), vec![2; 1000]);
    }
    let kinds: Vec<_> =
        objects(&said.out).iter().filter_map(|o| Some(o["event"]["kind"].as_str()?.to_owned())).collect();
    assert_eq!(kinds, ["archived", "archived"]);
}

#[test]
fn the_report_is_the_last_line_and_counts_every_file_that_went() {
    let dir = TempDir::new("retain-last-line");
    // More than can be removed before the recording has ended, which it does once the first has gone.
    let files = store(&dir, "sim", 1500);
    let at = dir.join("store");
    let args = ["record", "--sim", "60,rate=1kpps", "--ring", "8MiB", "--segment", "8MiB", "--max-size", "32MiB"];
    let (running, err) = Running::start(&mut netgrain(&[&args[..], &["--json", "--store", arg(&at)]].concat()));
    until("a file has gone", || !files[0].exists());
    signal(&running.0, "INT");
    let said = running.end(err);
    assert_eq!(said.status, Some(0), "{said:?}");
    let objects = objects(&said.out);
    let report = &objects.last().expect("a line")["retention"];
    let reported = objects.iter().filter(|o| o["event"]["kind"] == "removed").count();
    assert_eq!(report["removed"]["files"].as_u64(), Some(reported as u64), "{report}");
    assert!(files.iter().filter(|path| !path.exists()).count() == reported && reported > 0, "{reported} were told of");
}

#[test]
fn a_recorder_that_is_quiet_still_says_which_files_went_and_what_a_crash_left() {
    let dir = TempDir::new("retain-quiet");
    let at = dir.join("store");
    let record = |sim: &str, more: &[&str]| {
        let args = ["record", "--sim", sim, "--ring", "8MiB", "--store", arg(&at), "--segment", "8MiB", "-q"];
        netgrain(&[&args[..], more].concat())
    };
    assert_eq!(common::say(&mut record("60,packets=100", &[])).status, Some(0));
    let packets = walk(&at).into_iter().find(|p| p.extension().is_some_and(|e| e == "pcap")).expect("a file");
    let interface = packets.strip_prefix(&at).expect("in the store").iter().next().expect("a folder");
    // Somebody has more there than is to be kept; and the file is one that a killed recorder left.
    let files = store(&dir, interface.to_str().expect("a name"), 400);
    let stem = packets.file_stem().and_then(|s| s.to_str()).expect("a name");
    for ending in ["pcap", "ngi"] {
        let path = packets.with_extension(ending);
        std::fs::rename(&path, path.with_file_name(names::hidden(stem, ending))).expect("hidden");
    }
    let mut recorder = record("60,rate=1kpps", &["--max-size", "32MiB"]);
    let mut recorder = Running(recorder.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts"));
    let err = BufReader::new(recorder.0.stderr.take().expect("caught"));
    until("a file has gone", || !files[0].exists());
    // Lines each second would come now.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    signal(&recorder.0, "INT");
    let said = recorder.end(err);
    assert_eq!(said.status, Some(0), "{said:?}");
    let gone = files.iter().take_while(|path| !path.exists()).count();
    assert!(gone > 0, "{said:?}");
    for path in &files[..gone] {
        assert!(said.err.contains(&format!("netgrain: {}: removed", path.display())), "{}", said.err);
    }
    assert!(said.err.contains("recovered from a killed recorder"), "{}", said.err);
    assert!(!said.err.contains("packets       wire"), "no line each second: {}", said.err);
}

#[test]
fn each_kind_has_rules_of_its_own() {
    let dir = TempDir::new("retain-kinds");
    let packets = store(&dir, "eth1", 2);
    let at = dir.join("store");
    let beside = |end: &str| -> Vec<PathBuf> { packets.iter().map(|path| path.with_extension(end)).collect() };
    let (flows, series) = (beside("flows.parquet"), beside("series.parquet"));
    flows.iter().chain(&series).for_each(|path| std::fs::write(path, vec![3; 1000]).expect("a file"));
    let retain = |kind: &str, more: &[&str]| run(&[&["retain", "--store", arg(&at), "--kind", kind], more].concat());
    for kind in ["flows", "series"] {
        refused(&retain(kind, &[]), "no rule", "--max-age");
        refused(&retain(kind, &["--keep-free", "5%"]), "--keep-free", "--max-size");
        refused(&retain(kind, &["--max-age", "1d", "--archive", "/x"]), "--archive", "copy");
        refused(&retain(kind, &["--max-size", "10"]), "--max-size", "with its unit");
    }
    let dry = retain("flows", &["--max-age", "90min", "--dry-run"]);
    assert!(
        dry.status == Some(0) && dry.out.contains("(dry run) removed") && dry.out.contains(arg(&flows[0])),
        "{dry:?}"
    );
    assert_eq!(left(&flows), [true, true], "nothing went");
    let said = retain("flows", &["--max-age", "90min"]);
    assert!(said.status == Some(0) && said.out.contains("eth1: 1 files of flows"), "{said:?}");
    assert_eq!((left(&flows), left(&series), left(&packets)), (vec![false, true], vec![true; 2], vec![true; 2]));
    let said = retain("series", &["--max-age", "1min", "--json"]);
    assert_eq!(objects(&said.out).last().expect("a state")["retention"]["removed"]["files"], 2, "{said:?}");
    assert_eq!((left(&series), left(&packets)), (vec![false; 2], vec![true; 2]));
}
