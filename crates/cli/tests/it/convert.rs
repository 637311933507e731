//! `netgrain convert` on the command line: files, pipes, anonymisation keys, split outputs and errors.

use crate::common;

use common::{Output, arg, netgrain, objects, run, run_command, walk};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use testkit::TempDir;

/// A capture of frames from `netgrain gen`.
fn capture(dir: &TempDir, name: &str, many: &str) -> PathBuf {
    let path = dir.join(name);
    assert_eq!(run(&["gen", "-w", arg(&path), "imix,flows=100,rate=1kpps", "--packets", many]).status, Some(0));
    path
}

/// Asserts that the command failed with status 2, nothing on stdout, and one line on stderr that contains each of the
/// texts.
#[track_caller]
fn assert_error(output: &Output, says: &[&str]) {
    assert_eq!((output.status, output.out.as_str()), (Some(2), ""), "{output:?}");
    assert_eq!(output.err.lines().count(), 1, "{}", output.err);
    for word in says {
        assert!(output.err.starts_with("netgrain: ") && output.err.contains(word), "{word}: {}", output.err);
    }
}

fn bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("a file")
}

#[test]
fn invalid_conversions_print_a_one_line_error_and_write_no_file() {
    let dir = TempDir::new("convert_invalid");
    let (file, out, key) = (capture(&dir, "in.pcap", "50"), dir.join("out.pcap"), dir.join("key"));
    let convert = |more: &[&str]| run(&[&["convert"], more].concat());
    assert_error(&convert(&[arg(&file)]), &["--write <OUT>"]);
    assert_error(&convert(&["-w", arg(&out)]), &["<IN>"]);
    assert_error(&convert(&["no-such-file", "-w", arg(&out)]), &["no-such-file", "check the path"]);
    assert_error(&convert(&[arg(dir.path()), "-w", arg(&out)]), &["a directory, not a capture"]);
    assert_error(&convert(&["/etc/passwd", "-w", arg(&out)]), &["/etc/passwd", "not a capture"]);
    assert_error(&convert(&[arg(&file), "-w", arg(&dir.join("no/out.pcap"))]), &["no/out.pcap"]);
    assert_error(&convert(&[arg(&file), "-w", arg(dir.path())]), &["is a directory"]);
    assert_error(&convert(&[arg(&file), "-w", arg(&out), "--filter", "hots 1.2.3.4"]), &["did you mean `host`?"]);
    assert_error(&convert(&[arg(&file), "-w", arg(&out), "--from", "soon"]), &["soon"]);
    assert_error(&convert(&[arg(&file), "-w", arg(&out), "--from", "now", "--to", "-1h"]), &["swap them"]);
    assert_error(&convert(&[arg(&file), "-w", "-", "--split-packets", "5"]), &["standard output cannot be split"]);
    assert_error(&convert(&[arg(&file), "-w", arg(&out), "--split-size", "0"]), &["not a size for this flag"]);
    assert_error(&convert(&[arg(&file), "-w", arg(&out), "--anonymise"]), &["--key-file"]);
    assert_error(
        &convert(&[arg(&file), "-w", arg(&out), "--anonymise", "--key-file", arg(&key)]),
        &[arg(&key), "convert --new-key"],
    );
    assert_eq!(walk(dir.path()), std::slice::from_ref(&file));

    // An existing file is replaced only with --force.
    std::fs::write(&out, "precious").expect("a file");
    let output = convert(&[arg(&file), "-w", arg(&out)]);
    assert_error(&output, &["out.pcap exists", "--force"]);
    assert_eq!(output.err.matches("out.pcap").count(), 1, "the file is named twice: {output:?}");
    assert_eq!(bytes(&out), b"precious");
    let link = dir.join("link.pcap");
    std::os::unix::fs::symlink(&out, &link).expect("a link");
    assert_error(&convert(&[arg(&file), "-w", arg(&link)]), &["link.pcap exists", "--force"]);
    assert!(link.is_symlink());
    assert_eq!(convert(&[arg(&file), "-w", arg(&out), "--force"]).status, Some(0));
    assert_eq!(bytes(&out).len(), bytes(&file).len());
}

#[test]
fn a_round_trip_through_every_format_gives_the_same_file() {
    let dir = TempDir::new("convert_back");
    let file = capture(&dir, "in.pcap", "500");
    let first = dir.join("first.pcap");
    assert_eq!(run(&["convert", arg(&file), "-w", arg(&first)]).status, Some(0));
    for (name, more) in [("a.pcapng", &[][..]), ("a.raw", &[]), ("odd-name", &["--format", "pcapng"])] {
        let (middle, back) = (dir.join(name), dir.join(format!("{name}.pcap")));
        let output = run(&[&["convert", arg(&first), "-w", arg(&middle)], more].concat());
        assert_eq!((output.status, output.out.as_str()), (Some(0), ""), "{output:?}");
        assert!(output.err.contains("500 of 500 packets into 1 file"), "{}", output.err);
        let quiet = run(&["convert", arg(&middle), "-w", arg(&back), "-q"]);
        assert_eq!((quiet.status, quiet.err.as_str()), (Some(0), ""));
        assert!(bytes(&back) == bytes(&first), "{name}");
    }
    // The converted file contains all frames of the generator.
    assert_eq!(run(&["check", arg(&first), "--sent", "500"]).status, Some(0));
}

#[test]
fn compressed_files_and_pipes_are_read_and_written() {
    let test = "compressed_files_and_pipes_are_read_and_written";
    let dir = TempDir::new("convert_pipes");
    let (file, first) = (capture(&dir, "in.pcap", "2k"), dir.join("first.pcap"));
    assert_eq!(run(&["convert", arg(&file), "-w", arg(&first)]).status, Some(0));
    for (tool, ending) in [("gzip", "gz"), ("zstd", "zst")] {
        let Some(mut command) = testkit::tool(test, tool) else { continue };
        let compressed = dir.join(format!("packed.{ending}"));
        // The compressed file has two gzip members or zstd frames, and both are read.
        let (head, tail) = (bytes(&file)[..5000].to_vec(), bytes(&file)[5000..].to_vec());
        let mut whole = Vec::new();
        for part in [head, tail] {
            let mut child =
                command.arg("-c").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the process starts");
            let mut input = child.stdin.take().expect("a pipe");
            let writer = std::thread::spawn(move || input.write_all(&part));
            whole.extend(child.wait_with_output().expect("the process ends").stdout);
            writer.join().expect("a writer").expect("all of it");
        }
        std::fs::write(&compressed, whole).expect("a file");
        let mut convert = netgrain(&["convert", "-", "-w", "-", "--format", "pcap"]);
        let out =
            convert.stdin(std::fs::File::open(&compressed).expect("the file")).output().expect("the process starts");
        assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
        assert!(out.stdout == bytes(&first), "{ending}");
    }
}

#[test]
fn a_reader_that_closes_the_pipe_is_no_error() {
    let dir = TempDir::new("convert_closed");
    let file = capture(&dir, "in.pcap", "20k");
    let mut command = netgrain(&["convert", arg(&file), "-w", "-"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the process starts");
    drop(child.stdout.take());
    let out = child.wait_with_output().expect("the process ends");
    assert_eq!((out.status.code(), out.stderr.len()), (Some(0), 0));
}

#[test]
fn split_files_are_named_by_number_or_time_and_merge_to_the_original() {
    let dir = TempDir::new("convert_split");
    let file = capture(&dir, "in.pcap", "5k");
    let (parts, whole) = (dir.join("parts"), dir.join("whole.pcap"));
    std::fs::create_dir(&parts).expect("a directory");
    let part = parts.join("p.pcap");
    let output = run(&["convert", arg(&file), "-w", arg(&part), "--split-time", "1s", "--json"]);
    let report = &objects(&output.out)[0];
    assert_eq!((output.status, output.err.as_str()), (Some(0), ""), "{output:?}");
    assert_eq!((&report["read"], &report["written"]), (&5000.into(), &5000.into()));
    let files = walk(&parts);
    let reported: Vec<&str> = report["outputs"].as_array().expect("names").iter().filter_map(|n| n.as_str()).collect();
    assert_eq!(reported, files.iter().map(|f| arg(f)).collect::<Vec<_>>());
    assert!(files.len() >= 5 && files[0].ends_with("p-00001.pcap"), "{files:?}");
    let names: Vec<&str> = files.iter().rev().map(|f| arg(f)).collect();
    assert_eq!(run(&[&["convert"], &names[..], &["-w", arg(&whole), "-q"]].concat()).status, Some(0));
    assert_eq!(run(&["check", arg(&whole), "--sent", "5k"]).status, Some(0));

    let timed = dir.join("t.pcap");
    let output = run(&["convert", arg(&file), "-w", arg(&timed), "--split-packets", "2500", "--split-names", "time"]);
    assert_eq!(output.status, Some(0), "{output:?}");
    let named = walk(dir.path()).into_iter().filter(|f| arg(f).contains("/t-20") && arg(f).ends_with("Z.pcap")).count();
    assert_eq!(named, 2, "{:?}", walk(dir.path()));
}

#[test]
fn a_damaged_input_is_converted_up_to_the_damage_and_exits_1() {
    let dir = TempDir::new("convert_damaged");
    let (file, out) = (capture(&dir, "in.pcap", "100"), dir.join("out.pcap"));
    let whole = bytes(&file);
    std::fs::write(&file, &whole[..whole.len() - 1]).expect("cut");
    let output = run(&["convert", arg(&file), "-w", arg(&out)]);
    assert_eq!(output.status, Some(1), "{output:?}");
    assert!(
        output.err.contains("99 of 99 packets") && output.err.contains("everything before this byte was converted"),
        "{}",
        output.err
    );
    assert_eq!(run(&["check", arg(&out), "--sent", "99"]).status, Some(0));
}

#[test]
fn no_match_exits_1_and_leaves_no_file() {
    let dir = TempDir::new("convert_none");
    let (file, out) = (capture(&dir, "in.pcap", "100"), dir.join("out.pcap"));
    let output = run(&["convert", arg(&file), "-w", arg(&out), "--filter", "vlan 77"]);
    assert_eq!((output.status, output.out.as_str()), (Some(1), ""), "{output:?}");
    assert!(output.err.contains("nothing found") && output.err.contains("100 did not match"), "{}", output.err);
    assert_eq!(walk(dir.path()), std::slice::from_ref(&file));
    let output = run(&["convert", arg(&file), "-w", arg(&out), "--filter", "vlan 77", "--json"]);
    assert_eq!((output.status, &objects(&output.out)[0]["files"]), (Some(1), &0.into()), "{output:?}");
    // The failed conversion left no output file, so the corrected command works without --force.
    assert_eq!(run(&["convert", arg(&file), "-w", arg(&out), "--filter", "ip"]).status, Some(0));
    // Without a matching packet the existing file is kept, also with --force.
    let before = bytes(&out);
    assert_eq!(run(&["convert", arg(&file), "-w", arg(&out), "--force", "--filter", "vlan 77"]).status, Some(1));
    assert!(bytes(&out) == before);
    // A pipe receives the header of an empty capture rather than no bytes.
    let mut piped = netgrain(&["convert", arg(&file), "-w", "-", "--format", "pcap", "--filter", "vlan 77"]);
    let piped = piped.output().expect("the process starts");
    assert_eq!((piped.status.code(), piped.stdout.len()), (Some(1), 24));
}

#[test]
fn the_file_name_decides_the_output_format_for_every_verb() {
    let dir = TempDir::new("written_names");
    let file = capture(&dir, "in.pcap", "50");
    let (pcap, pcapng) = ([0x4d, 0x3c, 0xb2, 0xa1], [0x0a, 0x0d, 0x0d, 0x0a]);
    for (verb, input) in [("convert", &[arg(&file)][..]), ("packets", &["-r", arg(&file)])] {
        for (name, more, magic) in [
            ("a.pcap", &[][..], pcap),
            ("a.cap", &[], pcap),
            ("a.pcapng", &[], pcapng),
            ("a", &[], pcapng),
            ("b.pcap", &["--format", "pcapng"], pcapng),
            ("b.pcapng", &["--format", "pcap"], pcap),
        ] {
            let out = dir.join(format!("{verb}-{name}"));
            let output = run(&[&[verb], input, &["-w", arg(&out)], more].concat());
            assert_eq!(output.status, Some(0), "{output:?}");
            assert_eq!(bytes(&out)[..4], magic, "{verb} {name} {more:?}");
        }
        let output = netgrain(&[&[verb], input, &["-w", "-"]].concat()).output().expect("the process starts");
        assert_eq!(output.stdout[..4], pcapng, "{verb} -w -");
    }
    let compressed = dir.join("a.pcap.gz");
    for (verb, input) in [("convert", &[arg(&file)][..]), ("packets", &["-r", arg(&file)])] {
        assert_error(&run(&[&[verb], input, &["-w", arg(&compressed)]].concat()), &["a.pcap.gz", "| gzip"]);
    }
    assert!(!compressed.exists());
    let raw = dir.join("a.raw");
    assert_error(&run(&["packets", "-r", arg(&file), "-w", arg(&raw)]), &["a.raw", "netgrain convert"]);
    assert_error(&run(&["gen", "-w", arg(&dir.join("a.pcapng")), "--packets", "1"]), &["name the file .pcap"]);
    assert!(!raw.exists());
}

#[test]
fn a_key_file_is_created_with_mode_600_and_other_modes_are_rejected() {
    let dir = TempDir::new("convert_keys");
    let (file, key) = (capture(&dir, "in.pcap", "200"), dir.join("key"));
    let output = run(&["convert", "--new-key", arg(&key)]);
    assert_eq!(output.status, Some(0), "{output:?}");
    assert_eq!(key.metadata().expect("a key").permissions().mode() & 0o777, 0o600);
    assert_error(&run(&["convert", "--new-key", arg(&key)]), &[arg(&key), "never overwritten"]);
    let out = |name: &str| dir.join(name);
    let anonymise = |name: &str, more: &[&str]| {
        let out = out(name);
        run(&[&["convert", arg(&file), "-w", arg(&out), "--anonymise", "--key-file", arg(&key)], more].concat())
    };
    assert_eq!(anonymise("a.pcap", &[]).status, Some(0));
    let json = anonymise("b.pcap", &["--json"]);
    let report = &objects(&json.out)[0];
    assert_eq!((&report["anonymised"]["packets"], &report["anonymised"]["payload"]), (&200.into(), &200.into()));
    assert!(bytes(&out("a.pcap")) == bytes(&out("b.pcap")), "the same key gives the same output");
    assert!(bytes(&out("a.pcap")).len() < bytes(&file).len());
    assert_eq!(anonymise("c.pcap", &["--keep-payload", "--macs", "keep"]).status, Some(0));
    assert_eq!(bytes(&out("c.pcap")).len(), bytes(&file).len());

    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).expect("a mode");
    assert_error(&anonymise("d.pcap", &[]), &[arg(&key), "mode 640", "chmod 600"]);
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    std::fs::write(&key, "too short").expect("a file");
    assert_error(&anonymise("d.pcap", &[]), &[arg(&key), "9 bytes are no key", "64 hexadecimal digits"]);
    assert!(!out("d.pcap").exists());
}

#[test]
fn an_interrupt_leaves_a_complete_file_and_is_reported() {
    let dir = TempDir::new("convert_interrupt");
    let (file, out) = (capture(&dir, "in.pcap", "1k"), dir.join("out.pcap"));
    let mut command = netgrain(&["convert", "-", "-w", arg(&out)]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the process starts");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(&bytes(&file)).expect("a reading process");
    common::until("a hidden file", || walk(dir.path()).iter().any(|f| arg(f).ends_with(".partial")));
    common::signal(&child, "INT");
    // The signal arrives before the process has read the next bytes, so the conversion ends at the next packet.
    let _ = input.write_all(&bytes(&file)[24..]);
    drop(input);
    let done = child.wait_with_output().expect("the process ends");
    let err = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{err}");
    assert!(err.contains("interrupted"), "{err}");
    assert_eq!(run_command(&mut netgrain(&["convert", arg(&out), "-w", arg(&dir.join("again.pcap"))])).status, Some(0));
    assert!(!walk(dir.path()).iter().any(|f| arg(f).ends_with(".partial")));
}
