//! The results of `netgrain verify` and `netgrain repair` for sound and damaged files. In some tests a recorder or
//! retention changes the store at the same time.

use crate::common;

use common::{Output, Running, arg, netgrain, objects, run, signal, until, walk};
use std::path::{Path, PathBuf};
use testkit::TempDir;

/// Records 5000 packets into a store and returns its last packet file.
fn record(store: &Path) -> PathBuf {
    let output = run(&["record", "--sim", "1000,truth,packets=5k", "--ring", "8MiB", "--store", arg(store)]);
    assert!(matches!(output.status, Some(0 | 1)), "{output:?}");
    packet_files(store).pop().expect("a file")
}

fn packet_files(store: &Path) -> Vec<PathBuf> {
    walk(store).into_iter().filter(|path| path.extension().is_some_and(|e| e == "pcap")).collect()
}

/// Flips a bit in the middle of a file.
fn flip(path: &Path) {
    let mut bytes = std::fs::read(path).expect("the file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
    std::fs::write(path, bytes).expect("the file");
}

/// The kinds of the findings with level `damage`.
pub fn damage(output: &Output) -> Vec<String> {
    let object = |o: serde_json::Value| {
        let finding = o.get("finding")?;
        (finding["level"] == "damage").then(|| finding["kind"].as_str().expect("a word").to_owned())
    };
    objects(&output.out).into_iter().filter_map(object).collect()
}

#[test]
fn a_missing_path_is_an_error_with_its_name() {
    let dir = TempDir::new("upkeep-usage");
    let nowhere = dir.join("nowhere");
    let output = run(&["repair", arg(&nowhere)]);
    assert_eq!((output.status, output.out.as_str(), output.err.lines().count()), (Some(2), "", 1), "{output:?}");
    assert!(output.err.starts_with("netgrain: ") && output.err.contains(arg(&nowhere)), "{}", output.err);
    let output = run(&["verify", arg(&nowhere)]);
    assert_eq!(output.status, Some(2), "{output:?}");
    assert!(output.out.contains(arg(&nowhere)) && output.err.starts_with("netgrain: "), "{output:?}");
    assert!(output.out.contains("\n0 files, 0 packets"), "missing files are not counted: {output:?}");
    for verb in ["verify", "repair"] {
        let output = run(&[verb]);
        assert_eq!((output.status, output.out.as_str(), output.err.lines().count()), (Some(2), "", 1), "{output:?}");
    }
}

#[test]
fn files_that_are_no_captures_exit_2_with_the_reason() {
    let dir = TempDir::new("upkeep-no-capture");
    let (text, empty, directory) = (dir.join("notes.txt"), dir.join("empty.pcap"), dir.join("directory"));
    std::fs::write(&text, "root:x:0:0:root:/root:/bin/sh\n").expect("a file");
    std::fs::write(&empty, "").expect("a file");
    std::fs::create_dir(&directory).expect("a directory");
    std::fs::write(directory.join("readme"), "by hand").expect("a file");
    for (path, what) in [(&text, "not a capture"), (&empty, "is empty"), (&directory, "contains no packet file")] {
        let output = run(&["verify", arg(path)]);
        assert_eq!(output.status, Some(2), "{output:?}");
        assert!(output.out.contains(arg(path)) && output.out.contains(what), "{output:?}");
        assert!(!output.out.contains("nothing") || output.out.contains("nothing could be checked"), "{output:?}");
        assert!(!output.out.contains("wrong"), "{output:?}");
        assert_eq!(output.err.lines().count(), 1, "{output:?}");
        let json = objects(&run(&["verify", "--json", arg(path)]).out);
        assert!(json.iter().any(|o| o["finding"]["kind"] == "no_capture"), "{json:?}");
        for dry in [&["repair"][..], &["repair", "--dry-run"]] {
            let output = run(&[dry, &[arg(path)]].concat());
            assert_eq!((output.status, output.err.lines().count()), (Some(2), 1), "{dry:?} {output:?}");
            assert!(output.out.contains(what), "{dry:?} {output:?}");
        }
    }
}

#[test]
fn verify_of_a_sound_store_exits_0_and_repair_changes_nothing() {
    let dir = TempDir::new("upkeep-sound");
    let store = dir.join("store");
    let file = record(&store);
    let before = (walk(&store), std::fs::read(&file).expect("the file"));
    let output = run(&["verify", arg(&store)]);
    assert_eq!(output.status, Some(0), "{output:?}");
    assert!(output.out.contains("no problems"), "{}", output.out);
    let full = objects(&run(&["verify", "--json", "--store", arg(&store)]).out).pop().expect("totals");
    let quick = objects(&run(&["verify", "--json", "--quick", arg(&store)]).out).pop().expect("totals");
    let verified = &full["verified"];
    assert_eq!((&verified["damage"], &verified["ledger"]["stored"]), (&0.into(), &verified["packets"]));
    assert_eq!(verified, &quick["verified"], "the indexes agree with the packets");
    for verb in [&["repair", "--dry-run"][..], &["repair"]] {
        let output = run(&[verb, &[arg(&store)]].concat());
        assert_eq!((output.status, output.out.lines().count()), (Some(0), 1), "{output:?}");
        assert!(output.out.contains(arg(&store)) && output.out.contains("nothing to repair"), "{output:?}");
    }
    assert_eq!(run(&["repair", arg(&file)]).status, Some(0));
    let after = walk(&store).into_iter().filter(|path| before.0.contains(path)).collect();
    assert_eq!((after, std::fs::read(&file).expect("the file")), before);
}

#[test]
fn a_flipped_bit_is_found_listed_by_dry_run_and_repaired() {
    let dir = TempDir::new("upkeep-flipped");
    let store = dir.join("store");
    let file = record(&store);
    flip(&file);
    let damaged = std::fs::read(&file).expect("the file");
    let output = run(&["verify", "--json", arg(&store)]);
    assert_eq!((output.status, damage(&output)), (Some(1), vec!["checksum".to_owned()]), "{output:?}");
    assert_eq!(run(&["verify", "--quick", arg(&store)]).status, Some(0), "--quick does not read the packets");
    let before = walk(&store);
    let reported = run(&["repair", "--dry-run", "--json", arg(&store)]);
    assert_eq!((reported.status, walk(&store)), (Some(1), before), "{reported:?}");
    assert!(objects(&reported.out).iter().all(|o| o["repair"]["kind"] == "would_repair"), "{}", reported.out);
    assert_eq!(std::fs::read(&file).expect("the file"), damaged);
    let repaired = run(&["repair", "--json", arg(&store)]);
    assert_eq!(repaired.status, Some(0), "{repaired:?}");
    let done = &objects(&repaired.out)[0]["repair"];
    assert_eq!((&done["kind"], &done["done"]), (&"repaired".into(), &true.into()), "{}", repaired.out);
    let kept = walk(&store).into_iter().filter(|path| arg(path).ends_with(".damaged"));
    assert!(kept.map(|path| std::fs::read(path).expect("the damaged file")).any(|bytes| bytes == damaged));
    let output = run(&["verify", "--json", arg(&store)]);
    assert_eq!((output.status, damage(&output)), (Some(0), vec![]), "{output:?}");
    let verified = &objects(&output.out).pop().expect("totals")["verified"];
    assert!(verified["packets"].as_u64() > Some(0) && verified["ledger"]["residue"] == 0, "{verified}");
}

#[test]
fn files_of_a_running_recorder_are_sound_and_repair_leaves_them() {
    let dir = TempDir::new("upkeep-running");
    let store = dir.join("store");
    let args = ["record", "--sim", "700,truth,rate=10kpps", "--ring", "64MiB", "--segment", "8MiB", "--json"];
    let (running, err) = Running::start(&mut netgrain(&[&args[..], &["--store", arg(&store)]].concat()));
    until("a file is published", || !packet_files(&store).is_empty());
    let mut open = 0;
    for _ in 0..10 {
        let output = run(&["verify", "--json", arg(&store)]);
        assert_eq!((output.status, damage(&output)), (Some(0), vec![]), "{output:?}");
        open += objects(&output.out).pop().expect("totals")["verified"]["open"].as_u64().expect("a count");
    }
    assert!(open > 0, "no file was growing");
    run(&["repair", arg(&store)]);
    signal(&running.0, "INT");
    let output = running.end(err);
    let lost = common::lost_in_report(&output);
    let output = run(&["verify", "--json", arg(&store)]);
    assert_eq!((output.status, damage(&output)), (Some(0), vec![]), "{output:?}");
    assert!(walk(&store).iter().all(|path| !arg(path).ends_with(".damaged")));
    let checked = run(&["check", "--json", arg(&store)]);
    let missing = objects(&checked.out)[0]["missing"].as_u64().expect("a number");
    // Without the number of sent packets, `check` cannot detect a loss at the end.
    assert!(missing <= lost && checked.status == Some(i32::from(missing > 0)), "{lost} lost: {checked:?}");
}

#[test]
fn a_prepared_file_is_a_leftover_only_without_a_recorder() {
    let dir = TempDir::new("upkeep-prepared");
    let store = dir.join("store");
    record(&store);
    // A file that a recorder has created and not yet locked.
    std::fs::write(store.join("sim/.next-q0-6.pcap.partial"), [0; 4096]).expect("a file");
    let claimant = store::Claimant::this(base::Timestamp::from_nanos(7), None, Vec::new());
    let claim = store::Claim::take(&store.join("sim"), &claimant).expect("no other claim");
    let output = run(&["verify", "--json", arg(&store)]);
    assert_eq!((output.status, damage(&output)), (Some(0), vec![]), "{output:?}");
    drop(claim);
    let output = run(&["verify", "--json", arg(&store)]);
    assert_eq!((output.status, damage(&output)), (Some(1), vec!["leftover".to_owned()]), "{output:?}");
}

#[test]
fn verify_beside_retention_finds_no_damage() {
    let dir = TempDir::new("upkeep-retained");
    let store = dir.join("store");
    let args = ["record", "--sim", "400,truth,rate=40kpps", "--ring", "8MiB", "--depth", "4", "--segment", "2MiB"];
    let more = ["--max-size", "12MiB", "--json", "--store", arg(&store)];
    let (running, err) = Running::start(&mut netgrain(&[&args[..], &more].concat()));
    until("a file is published", || !packet_files(&store).is_empty());
    let (first, mut runs, mut removed) = (packet_files(&store).remove(0), 0, false);
    // `verify` runs several times, before and after the first removal.
    until("retention has removed files beside several runs", || {
        let output = run(&["verify", "--json", arg(&store)]);
        assert_eq!((output.status, damage(&output)), (Some(0), vec![]), "run {runs}: {output:?}");
        runs += 1;
        removed |= !first.exists();
        removed && runs > 5
    });
    signal(&running.0, "INT");
    let output = running.end(err);
    common::lost_in_report(&output);
    let last = objects(&output.out).pop().expect("a report");
    let removed = last["retention"]["removed"]["files"].as_u64().expect("a count");
    assert!(removed > 0 && runs > 3, "{removed} files removed, {runs} runs of verify");
}

#[test]
fn only_repair_of_another_users_store_keeps_cap_dac_override() {
    let test = "only_repair_of_another_users_store_keeps_cap_dac_override";
    let dir = TempDir::new("upkeep-others");
    let store = dir.join("store");
    let file = record(&store);
    let output = run(&["repair", arg(&file)]);
    assert!(output.status == Some(0) && !output.err.contains("CAP_DAC_OVERRIDE"), "{output:?}");
    flip(&file);
    let paths = walk(&store).into_iter().chain(file.ancestors().take(6).map(Path::to_owned));
    for path in paths {
        if let Err(e) = std::os::unix::fs::chown(&path, Some(65_534), Some(65_534)) {
            return testkit::skip(test, &format!("cannot change the owner of {}: {e}", path.display()));
        }
    }
    let output = run(&["repair", arg(&store)]);
    assert!(output.status == Some(0) && output.err.contains("keeps CAP_DAC_OVERRIDE"), "{output:?}");
    assert_eq!(run(&["verify", arg(&store)]).status, Some(0));
}

/// Records a simulation in all data types.
pub fn record_all_data_types(store: &Path) {
    let output = run(&["run", "--sim", "imix,rate=20kpps,packets=5k", "--store", arg(store), "-q"]);
    assert!(matches!(output.status, Some(0 | 1)), "{output:?}");
}

pub fn parquet_files(store: &Path) -> Vec<PathBuf> {
    walk(store).into_iter().filter(|path| path.extension().is_some_and(|e| e == "parquet")).collect()
}

#[test]
fn damage_of_flow_record_and_row_files_is_reported() {
    let dir = TempDir::new("upkeep-data-types");
    let store = dir.join("store");
    record_all_data_types(&store);
    let files = parquet_files(&store);
    assert_eq!(files.len(), 2, "{files:?}");
    let output = run(&["verify", arg(&store)]);
    assert_eq!((output.status, output.out.lines().count()), (Some(0), 1), "{output:?}");
    assert!(output.out.contains("; 2 files of records and rows: no problems"), "{}", output.out);
    for file in &files {
        let output = run(&["verify", "--json", arg(file)]);
        assert_eq!(
            (output.status, &objects(&output.out)[0]["verified"]["row_files"]),
            (Some(0), &1.into()),
            "{output:?}"
        );
    }
    assert!(run(&["repair", arg(&store)]).out.contains("nothing to repair"));
    assert_eq!(run(&["repair", arg(&files[0])]).status, Some(0));
    // One file is truncated, the other is in the wrong hour directory. verify reports both; repair renames the first to
    // `.damaged` and moves the second back.
    let whole = std::fs::read(&files[0]).expect("the file");
    std::fs::write(&files[0], &whole[..whole.len() - 1]).expect("cut");
    let moved = store.join("sim/2001/02/03/04").join(files[1].file_name().expect("a name"));
    std::fs::create_dir_all(moved.parent().expect("a directory")).expect("a directory");
    std::fs::rename(&files[1], &moved).expect("rename");
    let output = run(&["verify", "--json", arg(&store)]);
    assert_eq!(
        (output.status, damage(&output)),
        (Some(1), vec!["misplaced".to_owned(), "frame".to_owned()]),
        "{output:?}"
    );
    run(&["repair", arg(&store)]);
    assert!(!files[0].exists() && files[1].exists() && !moved.exists());
    assert!(PathBuf::from(format!("{}.damaged", arg(&files[0]))).exists());
    std::fs::write(&files[0], "PAR1").expect("cut");
    assert!(run(&["verify", arg(&files[0])]).out.contains("a file of 4 bytes is too short for Parquet"));
}

#[test]
fn a_packet_file_in_a_wrong_hour_directory_is_found_and_moved() {
    let dir = TempDir::new("upkeep-misplaced");
    let store = dir.join("store");
    let file = record(&store);
    let count = || {
        let query = ["packets", "--store", arg(&store), "--from", "-30min", "--count", "--json"];
        objects(&run(&query).out)[0]["packets"].as_u64()
    };
    let whole = count();
    let files: Vec<PathBuf> = [file.clone(), file.with_extension("ngi")].into();
    let before: Vec<Vec<u8>> = files.iter().map(|path| std::fs::read(path).expect("a file")).collect();
    let wrong = store.join("sim/2001/02/03/04");
    std::fs::create_dir_all(&wrong).expect("a directory");
    let move_away = |path: &PathBuf| {
        let to = wrong.join(path.file_name().expect("a name"));
        std::fs::rename(path, &to).expect("moved");
        to
    };
    let moved: Vec<PathBuf> = files.iter().map(move_away).collect();
    assert!(count() < whole, "a query does not find the packets");
    for path in [&store, &moved[0]] {
        let output = run(&["verify", "--json", arg(path)]);
        assert_eq!((output.status, damage(&output)), (Some(1), vec!["misplaced".to_owned()]), "{output:?}");
    }
    let output = run(&["repair", "--dry-run", arg(&store)]);
    assert!(output.status == Some(1) && output.out.starts_with("would repair "), "{output:?}");
    assert!(moved.iter().all(|path| path.exists()));
    // A file is not moved over another file.
    std::fs::write(&files[1], "another index").expect("a file");
    let output = run(&["repair", arg(&moved[0])]);
    assert!(output.status == Some(1) && output.out.contains("has a file of this name already"), "{output:?}");
    assert!(moved.iter().all(|path| path.exists()));
    std::fs::remove_file(&files[1]).expect("the file");
    let output = run(&["repair", "--json", arg(&store)]);
    assert_eq!((output.status, &objects(&output.out)[0]["repair"]["kind"]), (Some(0), &"moved".into()), "{output:?}");
    let after: Vec<Vec<u8>> = files.iter().map(|path| std::fs::read(path).expect("a moved file")).collect();
    assert!(after == before && !moved.iter().any(|path| path.exists()));
    assert_eq!(count(), whole);
    let output = run(&["verify", "--json", arg(&store)]);
    assert_eq!((output.status, damage(&output)), (Some(0), Vec::new()), "{output:?}");
    assert!(run(&["repair", arg(&file)]).out.contains("nothing to repair"));
}

#[test]
fn verify_states_how_many_packets_repair_leaves_out_and_how_to_save_them() {
    for damages in [flip as fn(&Path), cut_in_half] {
        let dir = TempDir::new("upkeep-left-out");
        let store = dir.join("store");
        let file = record(&store);
        damages(&file);
        let output = run(&["verify", arg(&store)]);
        let text = output.out.split("leaves out the damaged blocks with ").nth(1).expect("a number of packets");
        let (packets, rest) = text.split_once(" packets").expect("a number of packets");
        assert!(rest.contains("netgrain repair of this .damaged file saves its complete packets"), "{output:?}");
        let repaired = run(&["repair", arg(&store)]);
        assert!(
            repaired.out.contains(&format!(", {packets} lost (in the ledger as crash)")),
            "{packets}: {repaired:?}"
        );
        let kept = PathBuf::from(format!("{}.damaged", arg(&file)));
        assert!(repaired.out.contains(&format!("netgrain repair {} saves", arg(&kept))), "{repaired:?}");
        let salvaged = run(&["repair", arg(&kept)]);
        assert_eq!(salvaged.status, Some(0), "{salvaged:?}");
        assert!(salvaged.out.contains(" packets saved") && !salvaged.out.contains(": 0 packets saved"), "{salvaged:?}");
        // The second attempt does not replace the result of the first.
        let again = run(&["repair", arg(&kept)]);
        assert!(again.status == Some(1) && again.out.contains("from an earlier repair"), "{again:?}");
    }
}

/// Truncates a file to half of its length.
fn cut_in_half(path: &Path) {
    let file = std::fs::File::options().write(true).open(path).expect("the file");
    file.set_len(file.metadata().expect("its length").len() / 2).expect("cut");
}

#[test]
fn a_capture_without_a_complete_packet_is_refused_and_not_changed() {
    let dir = TempDir::new("upkeep-short");
    let (classic, ng) = (dir.join("whole.pcap"), dir.join("whole.pcapng"));
    capture(&classic, &[1_700_000_000]);
    pcapng(&ng, &[Some(1_700_000_000_000_000)]);
    for (whole, name) in [(&classic, "short.pcap"), (&ng, "short.pcapng")] {
        let whole = std::fs::read(whole).expect("a capture");
        let short = dir.join(name);
        // The file ends in the file header, or in the first packet.
        for length in [10, whole.len() / 2, 60] {
            std::fs::write(&short, &whole[..length]).expect("a file");
            let before = walk(dir.path());
            for dry in [&["repair", "--dry-run"][..], &["repair"], &["repair"]] {
                let output = run(&[dry, &[arg(&short)]].concat());
                assert_eq!(output.status, Some(1), "{name} of {length} bytes: {output:?}");
                assert!(output.out.contains("nothing can be saved"), "{name} of {length} bytes: {output:?}");
                assert_eq!(std::fs::read(&short).expect("the file"), whole[..length], "{output:?}");
                assert_eq!(walk(dir.path()), before, "{output:?}");
            }
        }
    }
}

#[test]
fn a_repaired_pcapng_counts_packets_and_keeps_the_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let dir = TempDir::new("upkeep-permissions");
    let file = dir.join("cut.pcapng");
    let now = Some(1_700_000_000_000_000);
    for (attempt, kept) in ["cut.pcapng.damaged", "cut.pcapng_1.damaged"].into_iter().enumerate() {
        pcapng(&file, &[now, None, now, now, now]);
        let bytes = std::fs::read(&file).expect("the capture");
        std::fs::write(&file, &bytes[..bytes.len() - 3]).expect("a cut capture");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o604)).expect("permissions");
        let output = run(&["repair", arg(&file)]);
        assert_eq!(output.status, Some(0), "{attempt}: {output:?}");
        assert!(output.out.contains(": 4 packets saved, ") && output.out.contains(kept), "{attempt}: {output:?}");
        let inside = std::fs::read_dir(dir.path()).expect("a directory").flatten();
        let hidden = inside.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b".")).count();
        assert_eq!(hidden, 0, "repair leaves no lock file or temporary file in a directory outside of a store");
        let mode = file.metadata().expect("the capture").permissions().mode();
        assert_eq!(mode & 0o777, 0o604, "{attempt}");
        assert_eq!(std::fs::read(dir.join(kept)).expect("the original"), bytes[..bytes.len() - 3]);
        assert_eq!(run(&["verify", arg(&file)]).status, Some(0));
    }
}

#[test]
fn verify_says_which_kept_originals_repair_can_read() {
    let dir = TempDir::new("upkeep-kept");
    let store = dir.join("store");
    let file = record(&store);
    let kept = |ending: &str| PathBuf::from(format!("{}.{ending}", arg(&file).trim_end_matches(".pcap")));
    let can_read = "netgrain repair saves its complete packets";
    for (ending, says) in [
        ("pcap.damaged", can_read),
        ("pcap_1.damaged", can_read),
        ("ngi.damaged", "repair has made another index"),
        ("ngi_1.damaged", "repair has made another index"),
        ("flows.parquet.damaged", "netgrain repair cannot read it"),
    ] {
        std::fs::copy(&file, kept(ending)).expect("a copy");
        let output = run(&["verify", arg(&store)]);
        let line = output.out.lines().find(|line| line.contains(arg(&kept(ending)))).expect("a note");
        assert!(line.starts_with("note ") && line.contains(says), "{line}");
        let is_read = run(&["repair", arg(&kept(ending))]).status == Some(0);
        assert!(is_read || says != can_read, "{ending}");
        std::fs::remove_file(kept(ending)).expect("the copy");
    }
}

#[test]
fn a_copy_under_a_similar_name_is_foreign_to_every_verb() {
    let dir = TempDir::new("upkeep-similar-name");
    let store = dir.join("store");
    let file = record(&store);
    let totals = || objects(&run(&["verify", "--json", arg(&store)]).out).pop().expect("totals")["verified"].clone();
    let before = totals();
    let stem = arg(&file).trim_end_matches(".pcap");
    for (from, to) in [(arg(&file), "x.pcap"), (arg(&file), "x.ngi"), (arg(&file), "_x.pcap")] {
        std::fs::copy(from, format!("{stem}{to}")).expect("a copy");
    }
    let hidden = file.with_file_name(format!(".{}x.pcap.partial", file.file_stem().expect("a stem").to_string_lossy()));
    std::fs::copy(&file, &hidden).expect("a copy");
    let files = walk(&store);
    let after = totals();
    for key in ["files", "packets", "damage", "unreadable"] {
        assert_eq!(after[key], before[key], "{key}");
    }
    // The copy of the index has a packet file of its name, so it has no note.
    assert_eq!(after["notes"].as_u64(), before["notes"].as_u64().map(|notes| notes + 3));
    let output = run(&["repair", arg(&store)]);
    assert!(output.status == Some(0) && output.out.contains("nothing to repair"), "{output:?}");
    let indexes = |files: &[PathBuf]| files.iter().filter(|path| arg(path).ends_with(".ngi")).count();
    assert!(files.iter().all(|path| path.exists()) && indexes(&walk(&store)) == indexes(&files));
}

#[test]
fn a_journal_that_was_not_sealed_has_no_unknown_loss_of_packets() {
    let dir = TempDir::new("upkeep-unsealed");
    let store = dir.join("store");
    record_all_data_types(&store);
    std::fs::write(store.join("sim/.20261122T052736.237075366Z.series.partial"), "").expect("a file");
    let output = run(&["verify", arg(&store)]);
    assert!(output.status == Some(1) && output.out.contains("or a recorder that could not write"), "{output:?}");
    assert!(!output.out.contains("lost, unknown"), "{output:?}");
}

#[test]
fn repair_seals_the_journals_of_a_killed_run() {
    let dir = TempDir::new("upkeep-journals");
    let store = dir.join("store");
    let args = ["run", "--sim", "imix,rate=20kpps", "--set", "capture.ring=8MiB", "--store", arg(&store), "-q"];
    let (recorder, _err) = Running::start(&mut netgrain(&args));
    let journal = |kind: &str| {
        let ending = format!(".{kind}.partial");
        walk(&store).into_iter().find(|path| arg(path).ends_with(&ending)).map(|p| p.metadata().map_or(0, |m| m.len()))
    };
    until("rows are journaled", || journal("series") > Some(24));
    let running = run(&["verify", arg(&store)]);
    assert_eq!(running.status, Some(0), "the journals of a running recorder are no leftovers: {running:?}");
    drop(recorder);
    let output = run(&["verify", "--json", arg(&store)]);
    assert_eq!(output.status, Some(1), "{output:?}");
    let journals = journal("series").into_iter().chain(journal("flows")).count();
    let reported = objects(&output.out).into_iter().filter(|o| {
        o["finding"]["kind"] == "leftover"
            && o["finding"]["text"].as_str().is_some_and(|t| t.contains("killed recorder left"))
    });
    assert!(reported.count() >= journals, "{output:?}");
    assert!(output.out.contains("netgrain repair"), "{output:?}");
    assert_eq!(run(&["repair", "--dry-run", arg(&store)]).status, Some(1));
    let repaired = run(&["repair", "--json", arg(&store)]);
    assert_eq!(repaired.status, Some(0), "{repaired:?}");
    assert!(objects(&repaired.out).iter().any(|o| o["repair"]["kind"] == "sealed"), "{repaired:?}");
    assert_eq!((journal("series"), journal("flows")), (None, None));
    assert!(!parquet_files(&store).is_empty());
    let again = run(&["repair", arg(&store)]);
    assert!(!format!("{}{}", again.out, again.err).contains("in no file"), "the ledger has the count: {again:?}");
    let output = run(&["verify", arg(&store)]);
    assert_eq!((output.status, output.out.contains("no problems")), (Some(0), true), "{output:?}");
}

#[test]
fn a_damaged_journal_and_hidden_files_are_reported_at_the_next_start() {
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
    // This hidden file of a killed recorder is in the directory of an hour for which no new file is written.
    let hour = journal.with_file_name("2024/02/03/04");
    std::fs::create_dir_all(&hour).expect("a directory");
    let hidden = hour.join(".20240203T040500.000000000Z_2.series.parquet.partial");
    std::fs::write(&hidden, b"PAR1").expect("a file");
    let output = run(&["verify", "--json", arg(&hour)]);
    assert!(output.out.contains("leftover") && output.out.contains("netgrain repair"), "{output:?}");
    let args = ["run", "--sim", "60,packets=1000", "--set", "capture.ring=8MiB", "--store", arg(&store), "--json"];
    let output = run(&args);
    assert_eq!(output.status, Some(0), "{output:?}");
    assert!(
        output.out.contains(".series.damaged: damaged journal retained")
            && output.out.contains("undamaged rows are sealed"),
        "{output:?}"
    );
    // The killed process may have left further hidden files.
    assert!(output.out.contains("hidden files removed") && !hidden.exists(), "{output:?}");
    let output = run(&["verify", "--json", arg(&store)]);
    assert!(output.out.contains("\"set_aside\"") && output.out.contains(".series.damaged"), "{output:?}");
    // repair removes the hidden file too.
    std::fs::write(&hidden, b"PAR1").expect("a file");
    let output = run(&["repair", "--json", arg(&store)]);
    let removed = objects(&output.out).iter().any(|o| o["repair"]["kind"] == "removed");
    assert!(removed && !hidden.exists(), "{output:?}");
}

#[test]
fn queries_after_a_kill_advise_repair() {
    let dir = TempDir::new("upkeep-killed");
    let store = dir.join("store");
    let args = ["record", "--sim", "1000,rate=20kpps", "--ring", "8MiB", "--store", arg(&store), "-q"];
    let (recorder, _err) = Running::start(&mut netgrain(&args));
    let query = || run(&["packets", "--store", arg(&store), "--count"]);
    until("packets are stored", || query().status == Some(0));
    drop(recorder);
    // Truncates the growing file within a record, as a kill would leave it.
    let open = walk(&store).into_iter().find(|p| arg(p).ends_with(".pcap.partial") && !arg(p).contains(".next-"));
    let open = open.expect("a growing file");
    let file = std::fs::File::options().write(true).open(&open).expect("the file");
    file.set_len(5000).expect("cut");
    let output = run(&["verify", arg(&store)]);
    assert!(output.status == Some(1) && output.out.contains("netgrain repair or the next recorder"), "{output:?}");
    assert!(output.out.contains("lost, unknown: the losses of a recorder"), "{output:?}");
    let output = query();
    assert!(output.status == Some(1) && output.err.contains("netgrain repair or the next recorder"), "{output:?}");
    assert_eq!(run(&["repair", arg(&store)]).status, Some(0));
    let output = query();
    assert!(
        !output.err.contains("netgrain repair") && !output.err.contains("netgrain verify"),
        "the store is repaired: {output:?}"
    );
    for form in [&[][..], &["--json"], &["--count"]] {
        let output = run(&[&["packets", "--store", arg(&store)], form].concat());
        assert!(output.err.contains("the interval is not complete: "), "{form:?}: {}", output.err);
    }
    let output = run(&["verify", arg(&store)]);
    assert_eq!(output.status, Some(0), "{output:?}");
    assert!(output.out.contains("lost, by the ledger: ") && output.out.contains(" crash)"), "{output:?}");
    assert!(!output.out.contains("lost, unknown: the losses of a recorder"), "{output:?}");
}

/// A block of pcapng: its type and its body, whose length is a multiple of four.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32 + 12).to_le_bytes();
    [&kind.to_le_bytes()[..], &length, body, &length].concat()
}

/// A pcapng file of frames, each with a timestamp in microseconds, or without one (a simple packet block).
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
fn the_index_of_a_capture_without_some_timestamps_is_valid() {
    let dir = TempDir::new("upkeep-unstamped");
    let file = dir.join("simple.pcapng");
    let now = Some(1_700_000_000_000_000);
    pcapng(&file, &[now, None, None, now, None]);
    let indexed = run(&["index", arg(&file)]);
    assert_eq!(indexed.status, Some(0), "{indexed:?}");
    let output = run(&["verify", arg(&file), "--json"]);
    assert_eq!((output.status, damage(&output)), (Some(0), vec![]), "{output:?}");
    let repaired = run(&["repair", arg(&file)]);
    assert_eq!(repaired.status, Some(0), "{repaired:?}");
}

#[test]
fn timestamps_after_2106_are_counted_and_their_store_is_valid() {
    let dir = TempDir::new("upkeep-2106");
    let (file, store) = (dir.join("late.pcapng"), dir.join("store"));
    let last = (u64::from(u32::MAX)) * 1_000_000;
    pcapng(&file, &[Some(last - 7), Some(last + 999_999), Some(last + 1_000_000), Some(last * 3)]);
    let output = run(&["record", "-r", arg(&file), "--store", arg(&store), "--ring", "8MiB"]);
    assert_eq!(output.status, Some(0), "{output:?}");
    assert!(output.out.contains("(clamped)"), "the message names the note: {output:?}");
    let output = run(&["verify", arg(&store), "--json"]);
    assert_eq!((output.status, damage(&output)), (Some(0), vec![]), "{output:?}");
}

/// Writes a capture with two packets in each of these seconds. The packets belong to no flow.
pub fn capture(path: &Path, seconds: &[u32]) {
    capture_of(path, seconds, &[0xff; 60]);
}

/// Writes a capture in which this frame occurs twice in each of these seconds.
pub fn capture_of(path: &Path, seconds: &[u32], frame: &[u8; 60]) {
    let mut bytes = Vec::new();
    for word in [0xa1b2_3c4du32, 2 | 4 << 16, 0, 0, 65_535, 1] {
        bytes.extend(word.to_le_bytes());
    }
    for second in seconds {
        for nanos in [1_000u32, 2_000] {
            [*second, nanos, 60, 60].into_iter().for_each(|word| bytes.extend(word.to_le_bytes()));
            bytes.extend(frame);
        }
    }
    std::fs::write(path, bytes).expect("a capture");
}

#[test]
fn a_flipped_bit_in_a_column_is_found_except_by_quick() {
    let dir = TempDir::new("upkeep-flipped-column");
    let store = dir.join("store");
    let spec = ["--sim", "imix,flows=200,rate=20kpps", "--packets", "4k", "--quiet", "--set", "capture.ring=8MiB"];
    let output = run(&[&["run", "--store", arg(&store)], &spec[..]].concat());
    assert_eq!(output.status, Some(0), "{output:?}");
    for kind in [".flows.parquet", ".series.parquet"] {
        let file = walk(&store).into_iter().find(|path| path.to_string_lossy().ends_with(kind)).expect(kind);
        let whole = std::fs::read(&file).expect("the file");
        let mut flipped = whole.clone();
        // Byte 40 is in the first column, after the magic and before the footer.
        flipped[40] ^= 4;
        std::fs::write(&file, flipped).expect("the file");
        let output = run(&["verify", "--json", "--store", arg(&store)]);
        assert_eq!((output.status, damage(&output)), (Some(1), vec!["row_file".to_owned()]), "{kind}: {output:?}");
        assert!(output.out.contains("does not match its checksum"), "{kind}: {output:?}");
        let output = run(&["verify", "--quick", "--json", "--store", arg(&store)]);
        assert_eq!((output.status, damage(&output)), (Some(0), Vec::new()), "{kind}: {output:?}");
        std::fs::write(&file, whole).expect("the file");
    }
}

#[test]
fn a_truncated_flow_record_file_is_renamed_to_damaged() {
    let dir = TempDir::new("upkeep-cut-parquet");
    let store = dir.join("store");
    let spec = ["--sim", "imix,flows=200,rate=20kpps", "--packets", "4k", "--quiet", "--set", "capture.ring=8MiB"];
    let output = run(&[&["run", "--store", arg(&store)], &spec[..]].concat());
    assert_eq!(output.status, Some(0), "{output:?}");
    let is_flows = |path: &PathBuf| path.to_string_lossy().ends_with(".flows.parquet");
    let file = walk(&store).into_iter().find(is_flows).expect("records");
    let bytes = std::fs::read(&file).expect("the file");
    std::fs::write(&file, &bytes[..bytes.len() / 2]).expect("the file");
    assert_eq!(damage(&run(&["verify", "--json", "--store", arg(&store)])), ["frame"]);
    let output = run(&["repair", "--dry-run", "--store", arg(&store)]);
    assert!(output.status == Some(1) && output.out.contains("would repair"), "{output:?}");
    let output = run(&["repair", "--store", arg(&store)]);
    assert!(output.status == Some(0) && output.out.contains(".flows.parquet.damaged"), "{output:?}");
    assert!(walk(&store).iter().any(|path| path.to_string_lossy().ends_with(".flows.parquet.damaged")));
    let output = run(&["verify", "--json", "--store", arg(&store)]);
    assert_eq!((output.status, damage(&output)), (Some(0), Vec::new()), "{output:?}");
}
