//! Input files that are missing, empty, compressed or directories.

use crate::common;

use common::{Output, arg, run};
use std::path::{Path, PathBuf};
use testkit::TempDir;

/// Asserts that the command failed with status 2 and with one line, which begins with the name of the file.
#[track_caller]
fn assert_refused(output: &Output, file: &Path, text: &str) {
    assert_eq!(output.status, Some(2), "{output:?}");
    let line = output.err.lines().next().unwrap_or_default();
    assert!(line.starts_with(&format!("netgrain: {}: ", arg(file))) && line.contains(text), "{output:?}");
    assert_eq!(output.err.matches(text).count(), 1, "{output:?}");
}

/// A capture of 100 packets.
fn capture(dir: &TempDir) -> PathBuf {
    let path = dir.join("a.pcap");
    let output = run(&["gen", "-w", arg(&path), "imix,flows=20", "--packets", "100"]);
    assert_eq!(output.status, Some(0), "{output:?}");
    path
}

#[test]
fn an_empty_file_is_an_error_of_every_verb_that_reads_captures() {
    let dir = TempDir::new("inputs-empty");
    let (file, empty, store) = (capture(&dir), dir.join("empty.pcap"), dir.join("store"));
    std::fs::write(&empty, "").expect("a file");
    let out = dir.join("out.pcap");
    for verb in [
        &["packets", "-r"][..],
        &["flows", "-r"],
        &["series", "-r"],
        &["run", "--store", arg(&store), "-r"],
        &["record", "--store", arg(&store), "-r"],
        &["convert", "-w", arg(&out)],
        &["index"],
    ] {
        assert_refused(&run(&[verb, &[arg(&empty)]].concat()), &empty, "the file is empty");
    }
    let verified = run(&["verify", arg(&empty)]);
    assert!(verified.status == Some(2) && verified.out.contains("the file is empty"), "{verified:?}");
    // A query of several files reads the files that are not empty, and reports the empty file.
    for query in [&["packets", "-r"][..], &["flows", "-r"], &["series", "-r"]] {
        for files in [[arg(&file), arg(&empty)], [arg(&empty), arg(&file)]] {
            let output = run(&[query, &files].concat());
            assert!(output.status == Some(1) && !output.out.is_empty(), "{output:?}");
            assert!(output.err.contains("empty.pcap: ") && output.err.contains("the file is empty"), "{output:?}");
        }
    }
}

#[test]
fn a_missing_file_is_named_and_is_not_read_as_a_filter() {
    let dir = TempDir::new("inputs-missing");
    let file = capture(&dir);
    for missing in [dir.join("b.pcap"), dir.join("b")] {
        for verb in ["packets", "flows", "series"] {
            let output = run(&[verb, "-r", arg(&file), arg(&missing), "tcp"]);
            assert_refused(&output, &missing, "there is no such file");
        }
    }
    let network = run(&["packets", "-r", arg(&file), "10.0.0.0/8"]);
    assert!(network.err.starts_with("netgrain: filter: "), "{network:?}");
}

#[test]
fn a_replay_that_cannot_begin_leaves_no_store() {
    let dir = TempDir::new("inputs-replay");
    let (file, missing, text, store) = (capture(&dir), dir.join("b.pcap"), dir.join("notes"), dir.join("store"));
    std::fs::write(&text, "no capture at all").expect("a file");
    for verb in ["run", "record"] {
        let replay = |files: &[&str]| run(&[&[verb, "--store", arg(&store), "-r"], files].concat());
        assert_refused(&replay(&[arg(&missing)]), &missing, "there is no such file");
        assert_refused(&replay(&[arg(&file), arg(&missing)]), &missing, "there is no such file");
        assert_refused(&replay(&[arg(&text)]), &text, "not a capture");
        let directory = replay(&[arg(dir.path())]);
        assert_refused(&directory, dir.path(), "directory");
        assert!(!store.exists(), "{directory:?}");
    }
}

#[test]
fn a_replay_does_not_apply_the_maximum_age_of_packets_and_says_so() {
    let dir = TempDir::new("inputs-age");
    let (file, store) = (capture(&dir), dir.join("store"));
    let replay = ["-r", arg(&file), "--store", arg(&store), "-q"];
    for verb in ["run", "record"] {
        let output = run(&[&[verb], &replay[..], &["--max-age", "1s"]].concat());
        assert_eq!(output.status, Some(0), "{output:?}");
        assert_eq!(output.err.matches("is not applied to a replay").count(), 1, "{output:?}");
        let output = run(&[&[verb], &replay[..], &["--max-size", "10GB"]].concat());
        assert!(output.status == Some(0) && !output.err.contains("is not applied to a replay"), "{output:?}");
    }
    assert_eq!(common::stored_packets(&store), 400);
}

#[test]
fn verify_describes_compressed_and_missing_files_in_words() {
    let dir = TempDir::new("inputs-verify");
    let (packed, missing) = (dir.join("a.pcap.gz"), dir.join("b.pcap"));
    std::fs::write(&packed, [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]).expect("a file");
    let output = run(&["verify", arg(&packed)]);
    let text = "compressed with gzip (gzip -dk decompresses it); verify the decompressed file";
    assert!(output.status == Some(2) && output.out.contains(text), "{output:?}");
    let output = run(&["verify", arg(&missing)]);
    assert!(output.out.contains("b.pcap: there is no such file or directory; check the path"), "{output:?}");
    assert!(!output.out.contains("os error"), "{output:?}");
}

#[test]
fn index_refuses_a_directory_before_it_looks_for_write_permission() {
    let test = "index_refuses_a_directory_before_it_looks_for_write_permission";
    if !sys::cpu::is_root() {
        return testkit::skip(test, "only root may give a directory to another user");
    }
    let dir = TempDir::new("inputs-index");
    let inner = dir.join("inner");
    std::fs::create_dir(&inner).expect("a directory");
    std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534)).expect("chown to nobody");
    assert_refused(&run(&["index", arg(&inner)]), &inner, "a directory");
}
