//! `netgrain verify` and `netgrain repair`: what they say of sound and damaged files, beside a living recorder and
//! beside retention.

use crate::common;

use common::{Running, Said, arg, netgrain, objects, run, signal, until, walk};
use std::path::{Path, PathBuf};
use testkit::TempDir;

/// A store with this many frames, of which all is whole.
fn recorded(store: &Path) -> PathBuf {
    let said = run(&["record", "--sim", "1000,truth,packets=5k", "--ring", "8MiB", "--store", arg(store)]);
    assert!(matches!(said.status, Some(0 | 1)), "{said:?}");
    packet_files(store).pop().expect("a file")
}

fn packet_files(store: &Path) -> Vec<PathBuf> {
    walk(store).into_iter().filter(|path| path.extension().is_some_and(|e| e == "pcap")).collect()
}

/// Changes one byte in the middle.
fn flip(path: &Path) {
    let mut bytes = std::fs::read(path).expect("the file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
    std::fs::write(path, bytes).expect("the file");
}

/// The kinds of what was found wrong.
fn wrong(said: &Said) -> Vec<String> {
    let object = |o: serde_json::Value| {
        let finding = o.get("finding")?;
        (finding["level"] == "damage").then(|| finding["kind"].as_str().expect("a word").to_owned())
    };
    objects(&said.out).into_iter().filter_map(object).collect()
}

#[test]
fn what_is_not_there_is_an_error_that_names_it() {
    let dir = TempDir::new("upkeep-usage");
    let nowhere = dir.join("nowhere");
    let said = run(&["repair", arg(&nowhere)]);
    assert_eq!((said.status, said.out.as_str(), said.err.lines().count()), (Some(2), "", 1), "{said:?}");
    assert!(said.err.starts_with("netgrain: ") && said.err.contains(arg(&nowhere)), "{}", said.err);
    let said = run(&["verify", arg(&nowhere)]);
    assert_eq!(said.status, Some(2), "{said:?}");
    assert!(said.out.contains(arg(&nowhere)) && said.err.starts_with("netgrain: "), "{said:?}");
    assert!(said.out.contains("\n0 files, 0 packets"), "what is not there is not counted: {said:?}");
    for verb in ["verify", "repair"] {
        let said = run(&[verb]);
        assert_eq!((said.status, said.out.as_str(), said.err.lines().count()), (Some(2), "", 1), "{said:?}");
    }
}

#[test]
fn what_is_no_capture_cannot_be_judged_and_is_called_what_it_is() {
    let dir = TempDir::new("upkeep-no-capture");
    let (text, empty, folder) = (dir.join("notes.txt"), dir.join("empty.pcap"), dir.join("folder"));
    std::fs::write(&text, "root:x:0:0:root:/root:/bin/sh\n").expect("a file");
    std::fs::write(&empty, "").expect("a file");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(folder.join("readme"), "by hand").expect("a file");
    for (path, what) in [(&text, "not a capture"), (&empty, "is empty"), (&folder, "contains no packet file")] {
        let said = run(&["verify", arg(path)]);
        assert_eq!(said.status, Some(2), "{said:?}");
        assert!(said.out.contains(arg(path)) && said.out.contains(what), "{said:?}");
        assert!(!said.out.contains("nothing") || said.out.contains("nothing that could be judged"), "{said:?}");
        assert!(!said.out.contains("wrong"), "{said:?}");
        assert_eq!(said.err.lines().count(), 1, "{said:?}");
        let json = objects(&run(&["verify", "--json", arg(path)]).out);
        assert!(json.iter().any(|o| o["finding"]["kind"] == "no_capture"), "{json:?}");
        for dry in [&["repair"][..], &["repair", "--dry-run"]] {
            let said = run(&[dry, &[arg(path)]].concat());
            assert_eq!((said.status, said.err.lines().count()), (Some(2), 1), "{dry:?} {said:?}");
            assert!(said.out.contains(what), "{dry:?} {said:?}");
        }
    }
}

#[test]
fn a_sound_store_is_a_yes_and_left_as_it_is() {
    let dir = TempDir::new("upkeep-sound");
    let store = dir.join("store");
    let file = recorded(&store);
    let before = (walk(&store), std::fs::read(&file).expect("the file"));
    let said = run(&["verify", arg(&store)]);
    assert_eq!(said.status, Some(0), "{said:?}");
    assert!(said.out.contains("nothing is wrong"), "{}", said.out);
    let full = objects(&run(&["verify", "--json", "--store", arg(&store)]).out).pop().expect("totals");
    let quick = objects(&run(&["verify", "--json", "--quick", arg(&store)]).out).pop().expect("totals");
    let verified = &full["verified"];
    assert_eq!((&verified["damage"], &verified["ledger"]["stored"]), (&0.into(), &verified["packets"]));
    assert_eq!(verified, &quick["verified"], "the indexes say the same as the packets");
    for verb in [&["repair", "--dry-run"][..], &["repair"]] {
        let said = run(&[verb, &[arg(&store)]].concat());
        assert_eq!((said.status, said.out.lines().count()), (Some(0), 1), "{said:?}");
        assert!(said.out.contains(arg(&store)) && said.out.contains("nothing to repair"), "{said:?}");
    }
    assert_eq!(run(&["repair", arg(&file)]).status, Some(0));
    let after = walk(&store).into_iter().filter(|path| before.0.contains(path)).collect();
    assert_eq!((after, std::fs::read(&file).expect("the file")), before);
}

#[test]
fn a_flipped_bit_is_found_told_beforehand_and_mended() {
    let dir = TempDir::new("upkeep-flipped");
    let store = dir.join("store");
    let file = recorded(&store);
    flip(&file);
    let damaged = std::fs::read(&file).expect("the file");
    let said = run(&["verify", "--json", arg(&store)]);
    assert_eq!((said.status, wrong(&said)), (Some(1), vec!["checksum".to_owned()]), "{said:?}");
    assert_eq!(run(&["verify", "--quick", arg(&store)]).status, Some(0), "the packets were not to be read");
    let before = walk(&store);
    let reported = run(&["repair", "--dry-run", "--json", arg(&store)]);
    assert_eq!((reported.status, walk(&store)), (Some(1), before), "{reported:?}");
    assert!(objects(&reported.out).iter().all(|o| o["repair"]["kind"] == "would_mend"), "{}", reported.out);
    assert_eq!(std::fs::read(&file).expect("the file"), damaged);
    let mended = run(&["repair", "--json", arg(&store)]);
    assert_eq!(mended.status, Some(0), "{mended:?}");
    let done = &objects(&mended.out)[0]["repair"];
    assert_eq!((&done["kind"], &done["done"]), (&"mended".into(), &true.into()), "{}", mended.out);
    let kept = walk(&store).into_iter().filter(|path| arg(path).ends_with(".damaged"));
    assert!(kept.map(|path| std::fs::read(path).expect("the original")).any(|bytes| bytes == damaged));
    let said = run(&["verify", "--json", arg(&store)]);
    assert_eq!((said.status, wrong(&said)), (Some(0), vec![]), "{said:?}");
    let verified = &objects(&said.out).pop().expect("totals")["verified"];
    assert!(verified["packets"].as_u64() > Some(0) && verified["ledger"]["residue"] == 0, "{verified}");
}

#[test]
fn beside_a_living_recorder_nothing_is_wrong_and_nothing_of_it_is_touched() {
    let dir = TempDir::new("upkeep-living");
    let store = dir.join("store");
    let args = ["record", "--sim", "700,truth,rate=10kpps", "--ring", "64MiB", "--segment", "8MiB", "--json"];
    let (running, err) = Running::start(&mut netgrain(&[&args[..], &["--store", arg(&store)]].concat()));
    until("a file is published", || !packet_files(&store).is_empty());
    let mut open = 0;
    for _ in 0..10 {
        let said = run(&["verify", "--json", arg(&store)]);
        assert_eq!((said.status, wrong(&said)), (Some(0), vec![]), "{said:?}");
        open += objects(&said.out).pop().expect("totals")["verified"]["open"].as_u64().expect("a count");
    }
    assert!(open > 0, "no file was open");
    run(&["repair", arg(&store)]);
    signal(&running.0, "INT");
    let said = running.end(err);
    let lost = common::lost_in_report(&said);
    let said = run(&["verify", "--json", arg(&store)]);
    assert_eq!((said.status, wrong(&said)), (Some(0), vec![]), "{said:?}");
    assert!(walk(&store).iter().all(|path| !arg(path).ends_with(".damaged")));
    let checked = run(&["check", "--json", arg(&store)]);
    let missing = objects(&checked.out)[0]["missing"].as_u64().expect("a number");
    // Without the number of sent packets, a loss at the end is no gap.
    assert!(missing <= lost && checked.status == Some(i32::from(missing > 0)), "{lost} lost: {checked:?}");
}

#[test]
fn a_file_that_is_being_prepared_is_a_leftover_only_where_nobody_records() {
    let dir = TempDir::new("upkeep-prepared");
    let store = dir.join("store");
    recorded(&store);
    // Made, and not locked yet.
    std::fs::write(store.join("sim/.next-q0-6.pcap.partial"), [0; 4096]).expect("a file");
    let me = store::Claimant::this(base::Timestamp::from_nanos(7), None, Vec::new());
    let claim = store::Claim::take(&store.join("sim"), &me).expect("nobody else");
    let said = run(&["verify", "--json", arg(&store)]);
    assert_eq!((said.status, wrong(&said)), (Some(0), vec![]), "{said:?}");
    drop(claim);
    let said = run(&["verify", "--json", arg(&store)]);
    assert_eq!((said.status, wrong(&said)), (Some(1), vec!["leftover".to_owned()]), "{said:?}");
}

#[test]
fn beside_retention_nothing_is_wrong() {
    let dir = TempDir::new("upkeep-retained");
    let store = dir.join("store");
    let args = ["record", "--sim", "400,truth,rate=40kpps", "--ring", "8MiB", "--depth", "4", "--segment", "2MiB"];
    let more = ["--max-size", "12MiB", "--json", "--store", arg(&store)];
    let (running, err) = Running::start(&mut netgrain(&[&args[..], &more].concat()));
    until("a file is published", || !packet_files(&store).is_empty());
    let (first, mut answers, mut removed) = (packet_files(&store).remove(0), 0, false);
    // Some answers before and after the first removal.
    until("retention has removed files beside several answers", || {
        let said = run(&["verify", "--json", arg(&store)]);
        assert_eq!((said.status, wrong(&said)), (Some(0), vec![]), "answer {answers}: {said:?}");
        answers += 1;
        removed |= !first.exists();
        removed && answers > 5
    });
    signal(&running.0, "INT");
    let said = running.end(err);
    common::lost_in_report(&said);
    let last = objects(&said.out).pop().expect("a report");
    let removed = last["retention"]["removed"]["files"].as_u64().expect("a count");
    assert!(removed > 0 && answers > 3, "{removed} files removed, {answers} times looked");
}

#[test]
fn a_store_of_another_user_takes_the_right_to_override_and_one_of_ours_does_not() {
    let test = "a_store_of_another_user_takes_the_right_to_override_and_one_of_ours_does_not";
    let dir = TempDir::new("upkeep-others");
    let store = dir.join("store");
    let file = recorded(&store);
    let said = run(&["repair", arg(&file)]);
    assert!(said.status == Some(0) && !said.err.contains("CAP_DAC_OVERRIDE"), "{said:?}");
    flip(&file);
    let given = walk(&store).into_iter().chain(file.ancestors().take(6).map(Path::to_owned));
    for path in given {
        if let Err(e) = std::os::unix::fs::chown(&path, Some(65_534), Some(65_534)) {
            return testkit::skip(test, &format!("cannot give {} away: {e}", path.display()));
        }
    }
    let said = run(&["repair", arg(&store)]);
    assert!(said.status == Some(0) && said.err.contains("keeps CAP_DAC_OVERRIDE"), "{said:?}");
    assert_eq!(run(&["verify", arg(&store)]).status, Some(0));
}

/// Every data type of a simulation, in a store.
fn watched(store: &Path) {
    let said = run(&["run", "--sim", "imix,rate=20kpps,packets=5k", "--store", arg(store), "-q"]);
    assert!(matches!(said.status, Some(0 | 1)), "{said:?}");
}

fn data_types(store: &Path) -> Vec<PathBuf> {
    walk(store).into_iter().filter(|path| path.extension().is_some_and(|e| e == "parquet")).collect()
}

#[test]
fn flow_records_and_rows_are_known_and_their_damage_is_told() {
    let dir = TempDir::new("upkeep-data-types");
    let store = dir.join("store");
    watched(&store);
    let files = data_types(&store);
    assert_eq!(files.len(), 2, "{files:?}");
    let said = run(&["verify", arg(&store)]);
    assert_eq!((said.status, said.out.lines().count()), (Some(0), 1), "{said:?}");
    assert!(said.out.contains("; 2 files of records and rows: nothing is wrong"), "{}", said.out);
    for file in &files {
        let said = run(&["verify", "--json", arg(file)]);
        assert_eq!((said.status, &objects(&said.out)[0]["verified"]["row_files"]), (Some(0), &1.into()), "{said:?}");
    }
    assert!(run(&["repair", arg(&store)]).out.contains("nothing to repair"));
    assert_eq!(run(&["repair", arg(&files[0])]).status, Some(0));
    // Cut, and in an hour that is not its own: what is wrong is said; repair puts the first aside and leaves the
    // second.
    let whole = std::fs::read(&files[0]).expect("the file");
    std::fs::write(&files[0], &whole[..whole.len() - 1]).expect("cut");
    let moved = store.join("sim/2001/02/03/04").join(files[1].file_name().expect("a name"));
    std::fs::create_dir_all(moved.parent().expect("a folder")).expect("a folder");
    std::fs::rename(&files[1], &moved).expect("moved");
    let said = run(&["verify", "--json", arg(&store)]);
    assert_eq!((said.status, wrong(&said)), (Some(1), vec!["row_file".to_owned(), "frame".to_owned()]), "{said:?}");
    run(&["repair", arg(&store)]);
    assert!(!files[0].exists() && moved.exists());
    assert!(PathBuf::from(format!("{}.damaged", arg(&files[0]))).exists());
    std::fs::write(&files[0], "PAR1").expect("cut");
    assert!(run(&["verify", arg(&files[0])]).out.contains("a file of 4 bytes is too short for Parquet"));
}

#[test]
fn what_a_killed_run_left_of_records_and_rows_is_sealed_by_repair() {
    let dir = TempDir::new("upkeep-journals");
    let store = dir.join("store");
    let args = ["run", "--sim", "imix,rate=20kpps", "--set", "capture.ring=8MiB", "--store", arg(&store), "-q"];
    let (recorder, _err) = Running::start(&mut netgrain(&args));
    let journal = |kind: &str| {
        let ending = format!(".{kind}.partial");
        walk(&store).into_iter().find(|path| arg(path).ends_with(&ending)).map(|p| p.metadata().map_or(0, |m| m.len()))
    };
    until("rows are journaled", || journal("series") > Some(24));
    let living = run(&["verify", arg(&store)]);
    assert_eq!(living.status, Some(0), "a living recorder's journals are no leftovers: {living:?}");
    drop(recorder);
    let said = run(&["verify", "--json", arg(&store)]);
    assert_eq!(said.status, Some(1), "{said:?}");
    let left = journal("series").into_iter().chain(journal("flows")).count();
    let reported = objects(&said.out).into_iter().filter(|o| {
        o["finding"]["kind"] == "leftover"
            && o["finding"]["text"].as_str().is_some_and(|t| t.contains("recorder that died"))
    });
    assert!(reported.count() >= left, "{said:?}");
    assert!(said.out.contains("netgrain repair"), "{said:?}");
    assert_eq!(run(&["repair", "--dry-run", arg(&store)]).status, Some(1));
    let mended = run(&["repair", "--json", arg(&store)]);
    assert_eq!(mended.status, Some(0), "{mended:?}");
    assert!(objects(&mended.out).iter().any(|o| o["repair"]["kind"] == "sealed"), "{mended:?}");
    assert_eq!((journal("series"), journal("flows")), (None, None));
    assert!(!data_types(&store).is_empty());
    let again = run(&["repair", arg(&store)]);
    assert!(!format!("{}{}", again.out, again.err).contains("in no file"), "the ledger has the count: {again:?}");
    let said = run(&["verify", arg(&store)]);
    assert_eq!((said.status, said.out.contains("nothing is wrong")), (Some(0), true), "{said:?}");
}

#[test]
fn a_journal_that_is_damaged_near_its_end_and_files_that_were_not_finished_are_told_at_the_next_start() {
    let dir = TempDir::new("upkeep-journal-end");
    let store = dir.join("store");
    let args = ["run", "--sim", "imix,rate=20kpps", "--set", "capture.ring=8MiB", "--store", arg(&store), "-q"];
    let (recorder, _err) = Running::start(&mut netgrain(&args));
    let journal = || walk(&store).into_iter().find(|path| arg(path).ends_with(".series.partial"));
    until("rows are journaled", || journal().is_some_and(|path| path.metadata().is_ok_and(|m| m.len() > 24)));
    drop(recorder);
    let journal = journal().expect("a journal");
    let mut bytes = std::fs::read(&journal).expect("the journal");
    let near_the_end = bytes.len() - 20;
    bytes[near_the_end] ^= 0x40;
    std::fs::write(&journal, &bytes).expect("damaged");
    // What one that was killed had not finished, of a moment that does not come again.
    let hour = journal.with_file_name("2024/02/03/04");
    std::fs::create_dir_all(&hour).expect("a folder");
    let hidden = hour.join(".20240203T040500.000000000Z_2.series.parquet.partial");
    std::fs::write(&hidden, b"PAR1").expect("a file");
    let said = run(&["verify", "--json", arg(&hour)]);
    assert!(said.out.contains("leftover") && said.out.contains("netgrain repair"), "{said:?}");
    let args = ["run", "--sim", "60,packets=1000", "--set", "capture.ring=8MiB", "--store", arg(&store), "--json"];
    let said = run(&args);
    assert_eq!(said.status, Some(0), "{said:?}");
    assert!(said.out.contains(".series.damaged: kept, for") && said.out.contains("the rest is sealed"), "{said:?}");
    assert!(said.out.contains("1 hidden files removed") && !hidden.exists(), "{said:?}");
    let said = run(&["verify", "--json", arg(&store)]);
    assert!(said.out.contains("\"set_aside\"") && said.out.contains(".series.damaged"), "{said:?}");
    // And by repair.
    std::fs::write(&hidden, b"PAR1").expect("a file");
    let said = run(&["repair", "--json", arg(&store)]);
    let removed = objects(&said.out).iter().any(|o| o["repair"]["kind"] == "removed");
    assert!(removed && !hidden.exists(), "{said:?}");
}

#[test]
fn after_a_kill_the_answer_names_what_mends() {
    let dir = TempDir::new("upkeep-killed");
    let store = dir.join("store");
    let args = ["record", "--sim", "1000,rate=20kpps", "--ring", "8MiB", "--store", arg(&store), "-q"];
    let (recorder, _err) = Running::start(&mut netgrain(&args));
    let ask = || run(&["packets", "--store", arg(&store), "--count"]);
    until("packets are stored", || ask().status == Some(0));
    drop(recorder);
    // What it was writing when it died is not whole.
    let open = walk(&store).into_iter().find(|p| arg(p).ends_with(".pcap.partial") && !arg(p).contains(".next-"));
    let open = open.expect("nothing was left open");
    let file = std::fs::File::options().write(true).open(&open).expect("the file");
    file.set_len(5000).expect("cut");
    let said = run(&["verify", arg(&store)]);
    assert!(said.status == Some(1) && said.out.contains("netgrain repair or the next recorder"), "{said:?}");
    assert!(said.out.contains("lost, unknown: what a dead recorder lost"), "{said:?}");
    let said = ask();
    assert!(said.status == Some(1) && said.err.contains("netgrain repair or the next recorder"), "{said:?}");
    assert_eq!(run(&["repair", arg(&store)]).status, Some(0));
    let said = ask();
    assert!(!said.err.contains("repair") && !said.err.contains("verify"), "it is mended: {said:?}");
    let said = run(&["verify", arg(&store)]);
    assert_eq!(said.status, Some(0), "{said:?}");
    assert!(said.out.contains("lost, by the ledger: ") && said.out.contains(" crash)"), "{said:?}");
    assert!(!said.out.contains("lost, unknown: what a dead recorder lost"), "{said:?}");
}

/// A block of pcapng: its type and its body, whose length is a multiple of four.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32 + 12).to_le_bytes();
    [&kind.to_le_bytes()[..], &length, body, &length].concat()
}

/// A pcapng of frames: each with its moment in microseconds, or without one (a simple packet block).
fn pcapng(path: &Path, stamps: &[Option<u64>]) {
    let mut bytes = block(0x0a0d_0d0a, &[&[0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0][..], &[0xff; 8]].concat());
    bytes.extend(block(1, &[1, 0, 0, 0, 0xff, 0xff, 0, 0]));
    for (n, stamp) in stamps.iter().enumerate() {
        let mut frame = [n as u8; 60];
        frame[12..14].copy_from_slice(&[8, 0]);
        let words = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
        bytes.extend(match stamp {
            None => block(3, &[&words(&[60])[..], &frame].concat()),
            Some(at) => block(6, &[&words(&[0, (at >> 32) as u32, *at as u32, 60, 60])[..], &frame].concat()),
        });
    }
    std::fs::write(path, bytes).expect("a file");
}

#[test]
fn the_index_of_a_capture_with_packets_without_a_stamp_is_right() {
    let dir = TempDir::new("upkeep-unstamped");
    let file = dir.join("simple.pcapng");
    let now = Some(1_700_000_000_000_000);
    pcapng(&file, &[now, None, None, now, None]);
    let indexed = run(&["index", arg(&file)]);
    assert_eq!(indexed.status, Some(0), "{indexed:?}");
    let said = run(&["verify", arg(&file), "--json"]);
    assert_eq!((said.status, wrong(&said)), (Some(0), vec![]), "{said:?}");
    let repaired = run(&["repair", arg(&file)]);
    assert_eq!(repaired.status, Some(0), "{repaired:?}");
}

#[test]
fn what_is_later_than_pcap_can_say_is_counted_and_its_store_is_right() {
    let dir = TempDir::new("upkeep-2106");
    let (file, store) = (dir.join("late.pcapng"), dir.join("store"));
    let last = (u64::from(u32::MAX)) * 1_000_000;
    pcapng(&file, &[Some(last - 7), Some(last + 999_999), Some(last + 1_000_000), Some(last * 3)]);
    let said = run(&["record", "-r", arg(&file), "--store", arg(&store), "--ring", "8MiB"]);
    assert_eq!(said.status, Some(0), "{said:?}");
    assert!(said.out.contains("(clamped)"), "nobody is told: {said:?}");
    let said = run(&["verify", arg(&store), "--json"]);
    assert_eq!((said.status, wrong(&said)), (Some(0), vec![]), "{said:?}");
}

/// A capture of a few packets at these seconds, two in each.
fn capture(path: &Path, seconds: &[u32]) {
    let mut bytes = Vec::new();
    for word in [0xa1b2_3c4du32, 2 | 4 << 16, 0, 0, 65_535, 1] {
        bytes.extend(word.to_le_bytes());
    }
    for second in seconds {
        for nanos in [1_000u32, 2_000] {
            [*second, nanos, 60, 60].into_iter().for_each(|word| bytes.extend(word.to_le_bytes()));
            bytes.extend([0xff; 60]);
        }
    }
    std::fs::write(path, bytes).expect("a capture");
}

#[test]
fn rows_of_a_capture_that_is_replayed_are_all_kept_and_those_that_are_missing_are_found() {
    let dir = TempDir::new("upkeep-rows");
    let (store, path) = (dir.join("store"), dir.join("small.pcap"));
    const SECOND: u32 = 1_700_000_000;
    // Forward by two days and by a second.
    capture(&path, &[SECOND, SECOND + 86_400, SECOND + 172_800, SECOND + 172_801]);
    let verify = || run(&["verify", "--json", "--store", arg(&store)]);
    for time in 1..=4 {
        let replay = ["run", "-r", arg(&path), "--name", "small", "--store", arg(&store), "--quiet"];
        let said = run(&[&replay[..], &["--set", "capture.ring=8MiB"]].concat());
        assert_eq!(said.status, Some(0), "{said:?}");
        let rows = objects(&run(&["series", "--store", arg(&store), "--json"]).out);
        let packets: u64 = rows.iter().filter_map(|row| row["packets"].as_u64()).sum();
        assert_eq!(packets, 8 * time, "replayed {time} times");
        let said = verify();
        assert_eq!((said.status, wrong(&said)), (Some(0), Vec::new()), "{said:?}");
    }
    let rows = |day: &str| {
        let files = walk(&store).into_iter().filter(|path| path.to_string_lossy().ends_with(".series.parquet"));
        files.filter(|path| path.to_string_lossy().contains(day)).collect::<Vec<_>>()
    };
    let (middle, first) = (rows("/2023/11/15/"), rows("/2023/11/14/"));
    middle.iter().for_each(|path| std::fs::remove_file(path).expect("a file of rows"));
    let said = verify();
    assert_eq!((said.status, wrong(&said)), (Some(1), vec!["rows".to_owned()]), "{said:?}");
    assert!(said.out.contains("8 packets have no one-second row"), "{said:?}");
    // What was replayed last may not have been put together with the rest yet: then the others of the day are.
    std::fs::remove_file(first.last().expect("rows")).expect("a file of rows");
    capture(&path, &[SECOND]);
    let replay = ["run", "-r", arg(&path), "--name", "small", "--store", arg(&store), "--quiet"];
    assert_eq!(run(&[&replay[..], &["--set", "capture.ring=8MiB"]].concat()).status, Some(0));
    let said = verify();
    assert_eq!((said.status, wrong(&said)), (Some(1), vec!["rows".to_owned()]), "{said:?}");
}

#[test]
fn a_bit_that_flips_in_a_column_is_found_unless_it_is_to_be_quick() {
    let dir = TempDir::new("upkeep-flipped-column");
    let store = dir.join("store");
    let spec = ["--sim", "imix,flows=200,rate=20kpps", "--packets", "4k", "--quiet", "--set", "capture.ring=8MiB"];
    let said = run(&[&["run", "--store", arg(&store)], &spec[..]].concat());
    assert_eq!(said.status, Some(0), "{said:?}");
    for kind in [".flows.parquet", ".series.parquet"] {
        let file = walk(&store).into_iter().find(|path| path.to_string_lossy().ends_with(kind)).expect(kind);
        let whole = std::fs::read(&file).expect("the file");
        let mut flipped = whole.clone();
        // In the first column: behind the magic, and before the footer.
        flipped[40] ^= 4;
        std::fs::write(&file, flipped).expect("the file");
        let said = run(&["verify", "--json", "--store", arg(&store)]);
        assert_eq!((said.status, wrong(&said)), (Some(1), vec!["row_file".to_owned()]), "{kind}: {said:?}");
        assert!(said.out.contains("is not as it was written"), "{kind}: {said:?}");
        let said = run(&["verify", "--quick", "--json", "--store", arg(&store)]);
        assert_eq!((said.status, wrong(&said)), (Some(0), Vec::new()), "{kind}: {said:?}");
        std::fs::write(&file, whole).expect("the file");
    }
}

#[test]
fn a_file_of_records_that_is_cut_off_is_put_aside() {
    let dir = TempDir::new("upkeep-cut-parquet");
    let store = dir.join("store");
    let spec = ["--sim", "imix,flows=200,rate=20kpps", "--packets", "4k", "--quiet", "--set", "capture.ring=8MiB"];
    let said = run(&[&["run", "--store", arg(&store)], &spec[..]].concat());
    assert_eq!(said.status, Some(0), "{said:?}");
    let is_flows = |path: &PathBuf| path.to_string_lossy().ends_with(".flows.parquet");
    let file = walk(&store).into_iter().find(is_flows).expect("records");
    let bytes = std::fs::read(&file).expect("the file");
    std::fs::write(&file, &bytes[..bytes.len() / 2]).expect("the file");
    assert_eq!(wrong(&run(&["verify", "--json", "--store", arg(&store)])), ["frame"]);
    let said = run(&["repair", "--dry-run", "--store", arg(&store)]);
    assert!(said.status == Some(1) && said.out.contains("would repair"), "{said:?}");
    let said = run(&["repair", "--store", arg(&store)]);
    assert!(said.status == Some(0) && said.out.contains(".flows.parquet.damaged"), "{said:?}");
    assert!(walk(&store).iter().any(|path| path.to_string_lossy().ends_with(".flows.parquet.damaged")));
    let said = run(&["verify", "--json", "--store", arg(&store)]);
    assert_eq!((said.status, wrong(&said)), (Some(0), Vec::new()), "{said:?}");
}
