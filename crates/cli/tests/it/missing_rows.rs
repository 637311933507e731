//! `netgrain verify` finds series rows and flow records that are missing in a store.

use crate::common::{arg, objects, run, walk};
use crate::upkeep::{capture, capture_of, damage, parquet_files, record_all_data_types};
use std::path::PathBuf;
use testkit::TempDir;

#[test]
fn verify_notes_that_the_first_or_the_last_rows_are_gone() {
    const SECOND: u32 = 1_700_000_000;
    for day in ["/2023/11/14/", "/2023/11/15/"] {
        let dir = TempDir::new("upkeep-outer-rows");
        let (store, path) = (dir.join("store"), dir.join("small.pcap"));
        capture(&path, &[SECOND, SECOND + 86_400]);
        let replay = ["run", "-r", arg(&path), "--name", "small", "--store", arg(&store), "--quiet"];
        assert_eq!(run(&replay).status, Some(0));
        let sound = run(&["verify", "--json", arg(&store)]);
        assert!(sound.status == Some(0) && !sound.out.contains("no_rows"), "{sound:?}");
        let is_removed = |path: &PathBuf| arg(path).ends_with(".series.parquet") && arg(path).contains(day);
        let removed: Vec<PathBuf> = parquet_files(&store).into_iter().filter(is_removed).collect();
        assert_eq!(removed.len(), 1, "{removed:?}");
        std::fs::remove_file(&removed[0]).expect("a file of rows");
        let output = run(&["verify", "--json", arg(&store)]);
        assert_eq!((output.status, damage(&output)), (Some(0), Vec::new()), "{output:?}");
        assert!(output.out.contains("no_rows") && output.out.contains("without a one-second row"), "{output:?}");
    }
}

#[test]
fn verify_notes_that_all_rows_are_gone_if_the_store_has_flow_records() {
    let dir = TempDir::new("upkeep-no-rows");
    let store = dir.join("store");
    record_all_data_types(&store);
    let remove = |ending: &str| {
        let files = parquet_files(&store).into_iter().filter(|path| arg(path).ends_with(ending));
        assert_eq!(files.map(|path| std::fs::remove_file(path).expect("a file")).count(), 1, "{ending}");
    };
    remove(".series.parquet");
    for quick in [&[][..], &["--quick"]] {
        let output = run(&[&["verify", "--json", arg(&store)], quick].concat());
        assert_eq!((output.status, damage(&output)), (Some(0), Vec::new()), "{output:?}");
        let notes: Vec<_> = objects(&output.out).into_iter().filter(|o| o["finding"]["kind"] == "no_rows").collect();
        let text = notes.first().and_then(|note| note["finding"]["text"].as_str()).unwrap_or_default();
        assert!(notes.len() == 1 && text.contains("packets without a one-second row"), "{output:?}");
        assert!(text.contains("the store has flow records"), "{text}");
    }
    // A store with packets alone was recorded without a meter.
    remove(".flows.parquet");
    let output = run(&["verify", "--json", arg(&store)]);
    assert!(output.status == Some(0) && !output.out.contains("no_rows"), "{output:?}");
}

#[test]
fn repeated_replays_keep_all_rows_and_verify_finds_missing_ones() {
    let dir = TempDir::new("upkeep-rows");
    let (store, path) = (dir.join("store"), dir.join("small.pcap"));
    const SECOND: u32 = 1_700_000_000;
    // The gaps between the four seconds are one day, one day and one second.
    capture(&path, &[SECOND, SECOND + 86_400, SECOND + 172_800, SECOND + 172_801]);
    let verify = || run(&["verify", "--json", "--store", arg(&store)]);
    for time in 1..=4 {
        let replay = ["run", "-r", arg(&path), "--name", "small", "--store", arg(&store), "--quiet"];
        let output = run(&[&replay[..], &["--set", "capture.ring=8MiB"]].concat());
        assert_eq!(output.status, Some(0), "{output:?}");
        let rows = objects(&run(&["series", "--store", arg(&store), "--json"]).out);
        let packets: u64 = rows.iter().filter_map(|row| row["packets"].as_u64()).sum();
        assert_eq!(packets, 8 * time, "replayed {time} times");
        let output = verify();
        assert_eq!((output.status, damage(&output)), (Some(0), Vec::new()), "{output:?}");
    }
    let rows = |day: &str| {
        let files = walk(&store).into_iter().filter(|path| path.to_string_lossy().ends_with(".series.parquet"));
        files.filter(|path| path.to_string_lossy().contains(day)).collect::<Vec<_>>()
    };
    let (middle, first) = (rows("/2023/11/15/"), rows("/2023/11/14/"));
    middle.iter().for_each(|path| std::fs::remove_file(path).expect("a file of rows"));
    let output = verify();
    assert_eq!((output.status, damage(&output)), (Some(1), vec!["rows".to_owned()]), "{output:?}");
    assert!(output.out.contains("8 packets without a one-second row"), "{output:?}");
    // The file with the rows of the last replay may not be compacted yet. The test removes this file; the next replay
    // compacts the other files.
    std::fs::remove_file(first.last().expect("rows")).expect("a file of rows");
    capture(&path, &[SECOND]);
    let replay = ["run", "-r", arg(&path), "--name", "small", "--store", arg(&store), "--quiet"];
    assert_eq!(run(&[&replay[..], &["--set", "capture.ring=8MiB"]].concat()).status, Some(0));
    let output = verify();
    assert_eq!((output.status, damage(&output)), (Some(1), vec!["rows".to_owned()]), "{output:?}");
}

#[test]
fn verify_finds_removed_files_of_flow_records() {
    let dir = TempDir::new("upkeep-flow-records");
    let (store, path) = (dir.join("store"), dir.join("small.pcap"));
    const SECOND: u32 = 1_700_000_000;
    let mut frame = [0; 60];
    wire::build::Frame::udp4([10, 0, 0, 1], 5353, [10, 0, 0, 2], 53).fill(&mut frame);
    // The packets of each second are a flow of their own. The first three flow records are in three files, one for each
    // day.
    capture_of(&path, &[SECOND, SECOND + 86_400, SECOND + 172_800, SECOND + 172_900], &frame);
    let verify = |more: &[&str]| {
        let output = run(&[&["verify", "--json", "--store", arg(&store)], more].concat());
        (output.status, damage(&output), output.out)
    };
    let replay = ["run", "-r", arg(&path), "--name", "small", "--store", arg(&store), "--quiet"];
    let output = run(&replay);
    assert_eq!(output.status, Some(0), "{output:?}");
    let (status, found, out) = verify(&[]);
    assert_eq!((status, found), (Some(0), Vec::new()), "{out}");
    let remove = |day: &str| {
        let files = walk(&store).into_iter().filter(|path| path.to_string_lossy().ends_with(".flows.parquet"));
        let files: Vec<_> = files.filter(|path| path.to_string_lossy().contains(day)).collect();
        assert!(!files.is_empty(), "{day}");
        files.iter().for_each(|path| std::fs::remove_file(path).expect("a file of flow records"));
    };
    remove("/2023/11/15/");
    let (status, found, out) = verify(&[]);
    assert_eq!((status, found), (Some(1), vec!["rows".to_owned()]), "{out}");
    assert!(
        out.contains("of 1 second, the first at 2023-11-15T22:13:20.000000000Z, count 1 flow without a flow record"),
        "{out}"
    );
    let (status, found, out) = verify(&["--quick"]);
    assert_eq!((status, found), (Some(0), Vec::new()), "{out}");
    // Retention removes the oldest flow records first, so the records of the two later files may have been removed by
    // it.
    remove("/2023/11/1");
    let (status, found, out) = verify(&[]);
    assert_eq!((status, found), (Some(0), Vec::new()), "{out}");
    assert!(out.contains("no_rows") && out.contains("count 4 flows"), "{out}");
}

#[test]
fn verify_finds_the_removed_only_file_of_flow_records() {
    let dir = TempDir::new("upkeep-only-flow-records");
    let store = dir.join("store");
    let spec = ["--sim", "imix,flows=200,rate=20kpps", "--packets", "4k", "--quiet", "--set", "capture.ring=8MiB"];
    let output = run(&[&["run", "--store", arg(&store)], &spec[..]].concat());
    assert_eq!(output.status, Some(0), "{output:?}");
    let verify = || run(&["verify", "--json", "--store", arg(&store)]);
    let sound = verify();
    assert_eq!((sound.status, sound.out.contains("no_rows")), (Some(0), false), "{sound:?}");
    // All flows were in the flow table when the recording ended, so a crash could have lost all of them.
    let files: Vec<_> =
        walk(&store).into_iter().filter(|path| path.to_string_lossy().ends_with(".flows.parquet")).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    std::fs::remove_file(&files[0]).expect("the file of flow records");
    let output = verify();
    assert_eq!((output.status, damage(&output)), (Some(0), Vec::new()), "{output:?}");
    assert!(output.out.contains("no_rows") && output.out.contains("count 200 flows"), "{output:?}");
}
