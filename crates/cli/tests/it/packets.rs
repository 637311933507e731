//! Queries of packets in stores and captures on the command line: output, files and exit status.

use crate::common;

use common::{Output, Running, WAIT_MAX, arg, netgrain, run, run_command, signal};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;
use testkit::TempDir;

/// Asserts that the command failed with status 2, nothing on stdout, and one line on stderr that contains `names` and
/// `advice`.
#[track_caller]
fn assert_error(output: &Output, names: &str, advice: &str) {
    assert_eq!((output.status, output.out.as_str()), (Some(2), ""), "{output:?}");
    assert_eq!(output.err.lines().count(), 1, "{}", output.err);
    assert!(
        output.err.starts_with("netgrain: ") && output.err.contains(names) && output.err.contains(advice),
        "{}",
        output.err
    );
}

/// A store of simulated packets. All of them fit into the ring, so a busy machine loses none.
fn store(dir: &TempDir, packets: u64, more: &[&str]) -> PathBuf {
    let store = dir.join("store");
    let spec = format!("imix,flows=50,rate=100kpps,packets={packets}");
    let args = ["record", "--sim", &spec, "--ring", "32MiB", "--store", arg(&store), "-q"];
    let output = run(&[&args, more].concat());
    assert_eq!(output.status, Some(0), "{output:?}");
    store
}

fn packets(store: &Path, more: &[&str]) -> Output {
    run(&[&["packets", "--store", arg(store)], more].concat())
}

fn object(text: &str) -> serde_json::Value {
    serde_json::from_str(text.trim()).unwrap_or_else(|e| panic!("{text:?}: {e}"))
}

#[test]
fn invalid_packet_queries_are_rejected_with_advice() {
    let dir = TempDir::new("packets-invalid");
    let none = dir.join("none");
    assert_error(&run(&["packets"]), "add --store <DIR> for a store, or -r <FILE>", "see netgrain packets --help");
    assert_error(&packets(&none, &[]), arg(&none), "name the --store");
    assert_error(&packets(dir.path(), &[]), "nothing has been recorded", "name the --store");
    let store = store(&dir, 100, &[]);
    let query = |more: &[&str]| packets(&store, more);
    assert_error(&query(&["--from", "yesterday"]), "\"yesterday\" is not a time", "-10min");
    assert_error(&query(&["--from", "now", "--to", "-5min"]), "is after --to", "swap them");
    assert_error(&query(&["--around", "10:42", "--from", "now"]), "--from", "see netgrain packets --help");
    assert_error(&query(&["-i", "sin"]), "sin", "did you mean sim?");
    assert_error(&query(&["-i", "wlan0"]), "wlan0", "it has sim");
    assert_error(&query(&["hsot", "10.0.0.1"]), "`hsot` at column 1", "did you mean `host`?");
    assert_error(&query(&["--count", "-w", "x"]), "-w", "see netgrain packets --help");
    assert_error(&query(&["-w", arg(&dir.join("no/directory/x"))]), "no/directory/x", "the directory must exist");
    let sealed = common::walk(&store).into_iter().find(|p| p.extension().is_some_and(|e| e == "pcap")).expect("a file");
    assert_error(&query(&["-w", arg(&sealed)]), arg(&sealed), "write it elsewhere");
    let link = dir.join("link");
    std::os::unix::fs::symlink(&sealed, &link).expect("a link");
    assert_error(&query(&["--follow", "-w", arg(&link)]), "inside of the store", "write it elsewhere");
    std::fs::remove_file(&link).expect("removed");
    assert_error(&query(&["-w", arg(&store.join("x"))]), "inside of the store", "write it elsewhere");
    assert_error(&run(&["packets", "-r", arg(&sealed), "-w", arg(&sealed)]), "is an input", "another file");
    assert_error(&run(&["packets", "-r", arg(dir.path())]), "a directory", "--store");
    assert_error(&run(&["packets", "-r", arg(&none), "-w", arg(&dir.join("out"))]), arg(&none), "");
    let entries: Vec<_> =
        std::fs::read_dir(dir.path()).expect("a directory").map(|e| e.expect("an entry").file_name()).collect();
    assert_eq!(entries, ["store"], "a failed query left a file");
}

#[test]
fn every_verb_replaces_an_existing_file_only_with_force() {
    let dir = TempDir::new("packets-force");
    let (frames, out) = (dir.join("frames.pcap"), dir.join("out.pcap"));
    assert_eq!(run(&["gen", "-w", arg(&frames), "imix", "--packets", "100"]).status, Some(0));
    let (frames, file) = (arg(&frames), arg(&out));
    for command in [
        &["gen", "--packets", "10", "-w"][..],
        &["packets", "-r", frames, "-w"],
        &["flows", "-r", frames, "--packets", "-w"],
        &["flows", "-r", frames, "--parquet"],
        &["flows", "-r", frames, "--top", "1", "--parquet"],
        &["flows", "-r", frames, "--format", "legacy", "--payload"],
        &["series", "-r", frames, "--parquet"],
        &["convert", frames, "-w"],
    ] {
        let of = |more: &[&str]| run(&[command, more].concat());
        std::fs::write(&out, "precious").expect("a file");
        assert_error(&of(&[file]), "out.pcap exists", "--force");
        assert_eq!(std::fs::read(&out).expect("the file"), b"precious", "{command:?}");
        let output = of(&[file, "--force"]);
        assert_eq!(output.status, Some(0), "{command:?}: {output:?}");
        assert_ne!(std::fs::read(&out).expect("the file"), b"precious", "{command:?}");
        let output = of(&["/dev/null"]);
        assert_eq!(output.status, Some(0), "{command:?}: {output:?}");
    }
}

#[test]
fn every_name_of_standard_output_is_written_as_a_stream() {
    let dir = TempDir::new("packets-stdout");
    let frames = dir.join("frames.pcap");
    assert_eq!(run(&["gen", "-w", arg(&frames), "60", "--packets", "10"]).status, Some(0));
    for name in ["-", "/dev/stdout", "/dev/fd/1"] {
        for command in [&["packets", "-r", arg(&frames)][..], &["gen", "--packets", "10"]] {
            let out = dir.join("out.pcap");
            let file = std::fs::File::create(&out).expect("a file");
            let mut netgrain = netgrain(&[command, &["-w", name]].concat());
            let status = netgrain.current_dir(dir.path()).stdout(file).status().expect("the program runs");
            assert!(status.success(), "{command:?} -w {name}");
            let read = run(&["packets", "-r", arg(&out), "--count"]);
            assert!(read.status == Some(0) && read.out.starts_with("10 packets"), "{command:?} -w {name}: {read:?}");
        }
    }
    assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 2, "another file was created");
}

#[test]
fn an_empty_file_is_reported_and_the_other_captures_are_written() {
    let dir = TempDir::new("packets-empty-file");
    let (one, none, two) = (dir.join("a.pcap"), dir.join("b.pcap"), dir.join("c.pcap"));
    for path in [&one, &two] {
        assert_eq!(run(&["gen", "-w", arg(path), "60", "--packets", "10"]).status, Some(0));
    }
    std::fs::write(&none, "").expect("a file");
    let out = dir.join("out.pcapng");
    let output = run(&["packets", "-r", arg(&one), arg(&none), arg(&two), "-w", arg(&out)]);
    assert_eq!(output.status, Some(1), "{output:?}");
    assert!(output.err.contains("b.pcap: ") && output.err.contains("the file is empty"), "{}", output.err);
    let read = run(&["packets", "-r", arg(&out), "--count"]);
    assert!(read.out.starts_with("20 packets"), "{read:?}");
    assert_error(&run(&["packets", "-r", arg(&none)]), "b.pcap", "the file is empty");
    assert_error(&run(&["packets", "-r", arg(&none), arg(&none), "--count"]), "b.pcap", "the file is empty");
}

#[test]
fn no_matching_packet_exits_1_and_reports_what_the_store_contains() {
    let dir = TempDir::new("packets-none");
    let store = store(&dir, 100, &[]);
    let output = packets(&store, &["--to", "2001-01-01", "tcp"]);
    assert_eq!((output.status, output.out.as_str()), (Some(1), ""));
    let out = dir.join("out.pcapng");
    let none = |more: &[&str]| packets(&store, &[&["--to", "2001-01-01", "-w", arg(&out)], more].concat());
    let wrote = none(&[]);
    assert!(wrote.status == Some(1) && wrote.err.contains("nothing found") && !out.exists(), "{wrote:?}");
    let wrote = none(&["--json"]);
    assert_eq!((wrote.status, &object(&wrote.out)["file"]), (Some(1), &serde_json::Value::Null), "{wrote:?}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 1, "a temporary file was not removed");
    std::fs::write(&out, "a good file").expect("a file");
    assert_error(&none(&[]), "out.pcapng exists", "--force");
    assert_eq!(none(&["--force"]).status, Some(1));
    assert_eq!(std::fs::read(&out).expect("the file"), b"a good file");
    for part in ["no packets of `tcp`", "2001-01-01T00:00:00", "has sim (packets from 20"] {
        assert!(output.err.contains(part), "{part}: {}", output.err);
    }
}

#[test]
fn count_text_and_json_of_a_store_agree() {
    let dir = TempDir::new("packets-forms");
    let store = store(&dir, 5000, &["--rotate", "1s"]);
    let counted = packets(&store, &["--count", "--json"]);
    assert_eq!((counted.status, object(&counted.out)["packets"].as_u64()), (Some(0), Some(5000)), "{counted:?}");
    assert_eq!(object(&counted.out)["interval"]["stored"], 5000);
    let lines = packets(&store, &[]);
    assert_eq!((lines.status, lines.out.lines().count()), (Some(0), 5000));
    assert!(lines.err.contains("5 000 packets"), "{}", lines.err);
    let objects = packets(&store, &["--json"]);
    assert_eq!((objects.status, objects.out.lines().count(), objects.err.as_str()), (Some(0), 5000, ""));
    let (mut bytes, mut before) = (0, String::new());
    for (line, text) in objects.out.lines().zip(lines.out.lines()) {
        let reported = object(line);
        let time = reported["time"].as_str().expect("a time").to_owned();
        assert!(text.starts_with(&format!("{time} sim ")), "{text}");
        assert!(time >= before);
        (bytes, before) = (bytes + reported["length"].as_u64().expect("a length"), time);
    }
    assert_eq!(object(&counted.out)["bytes"].as_u64(), Some(bytes));
    // The query is repeated for the two halves of its interval.
    let middle = object(objects.out.lines().nth(2500).expect("a line"))["time"].as_str().expect("a time").to_owned();
    let halves: u64 = [["--to", &middle], ["--from", &middle]]
        .iter()
        .map(|half| object(&packets(&store, &[&half[..], &["--count", "--json"]].concat()).out)["packets"].as_u64())
        .map(|n| n.expect("a number"))
        .sum();
    assert_eq!(halves, 5001, "both halves have the packet in the middle");
    let limited = packets(&store, &["--limit", "7", "--explain", "--json", "udp"]);
    assert_eq!(limited.out.lines().count(), 7);
    let explained = object(&limited.err);
    assert_eq!(explained["explain"]["packets"], 7);
    assert!(explained["explain"]["seconds_to_first"].is_f64() && explained["explain"]["blocks"].as_u64() > Some(0));
}

#[test]
fn a_query_that_the_limit_ends_has_no_ledger_in_any_form() {
    let dir = TempDir::new("packets-limit");
    // The limit is within the second file, so the ledger of the first file has been read.
    let store = store(&dir, 3000, &["--filter", "greater 100"]);
    let again = run(&[
        "record",
        "--sim",
        "imix,packets=3000",
        "--ring",
        "32MiB",
        "--store",
        arg(&store),
        "--filter",
        "greater 100",
        "-q",
    ]);
    assert_eq!(again.status, Some(0), "{again:?}");
    let stored = common::stored_packets(&store);
    let limit = (stored - 10).to_string();
    let out = |name: &str| dir.join(name);
    let none = serde_json::json!({
        "offered": 0, "stored": 0, "filtered": 0, "duplicate": 0, "lost_total": 0, "lost": {},
    });
    for (limit, ends_early) in [(&limit[..], true), ("1000000", false)] {
        let counted = packets(&store, &["--limit", limit, "--count", "--json"]);
        let written = packets(&store, &["--limit", limit, "-w", arg(&out(&format!("{limit}.pcapng"))), "--json"]);
        for report in [object(&counted.out), object(&written.out)] {
            assert_eq!((report["interval"] == none, &report["stopped"]), (ends_early, &ends_early.into()), "{report}");
        }
        let lines = packets(&store, &["--limit", limit]);
        assert_eq!(lines.err.contains(", ended by --limit"), ends_early, "{}", lines.err);
        let bytes = std::fs::read(out(&format!("{limit}.pcapng"))).expect("a capture");
        let has_ledger = bytes.windows(9).any(|text| text == b"none lost");
        assert_eq!(has_ledger, !ends_early, "the statistics block of --limit {limit}");
    }
}

#[test]
fn a_pcapng_contains_the_query_the_interface_and_the_ledger() {
    let test = "a_pcapng_contains_the_query_the_interface_and_the_ledger";
    let dir = TempDir::new("packets-pcapng");
    let store = store(&dir, 3000, &["--filter", "greater 100", "--snaplen", "128"]);
    let out = dir.join("out.pcapng");
    let output = packets(&store, &["-w", arg(&out), "--json", "udp"]);
    assert_eq!((output.status, output.err.as_str()), (Some(0), ""), "{output:?}");
    let report = object(&output.out);
    assert_eq!(report["file_bytes"].as_u64(), Some(std::fs::metadata(&out).expect("a file").len()));
    assert!(report["interval"]["filtered"].as_u64() > Some(0));
    let entries = std::fs::read_dir(dir.path()).expect("a directory").count();
    assert_eq!(entries, 2, "the hidden file still exists");
    let bytes = std::fs::read(&out).expect("a capture");
    let queues = bytes.chunks_exact(4).collect::<Vec<_>>().windows(2).filter(|w| w == &[[6, 0, 4, 0], [0; 4]]).count();
    assert!(
        queues as u64 >= report["packets"].as_u64().expect("a number"),
        "each packet has the option for queue 0: {queues}"
    );
    let Some(mut tshark) = testkit::tool(test, "tshark") else { return };
    tshark.args(["-X", "read_format:MIME Files Format", "-O", "file-pcapng", "-V", "-r"]).arg(&out);
    let tree = run_command(&mut tshark).out;
    let n = |name: &str| report["interval"][name].as_u64().expect("a count");
    for text in [
        "query: packets of `udp`".to_owned(),
        "stamped by".to_owned(),
        "greater 100".to_owned(),
        "none lost".to_owned(),
        format!("= {}", n("offered")),
        format!("= {}", n("offered") - n("filtered")),
        format!("= {}", report["packets"]),
        format!("offered {} = stored {} + filtered {}", n("offered"), n("stored"), n("filtered")),
    ] {
        assert!(tree.contains(&text), "{text} is not in {}", &tree[..4000.min(tree.len())]);
    }
    for (format, pcap) in [("pcapng", false), ("pcap", true)] {
        let Some(mut tcpdump) = testkit::tool(test, "tcpdump") else { return };
        let mut writer = netgrain(&["packets", "--store", arg(&store), "-w", "-", "--format", format, "udp"]);
        let mut writer = writer.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the process starts");
        let output = run_command(tcpdump.args(["-nr", "-", "--count"]).stdin(writer.stdout.take().expect("a pipe")));
        assert!(writer.wait().expect("an end").success());
        assert_eq!(output.out, format!("{} packets\n", report["packets"]), "{pcap}: {}", output.err);
    }
}

#[test]
fn packets_succeeds_when_its_reader_closes_the_pipe() {
    let dir = TempDir::new("packets-pipe");
    let store = store(&dir, 60_000, &[]);
    for more in [&[][..], &["--json"], &["-w", "-"]] {
        let mut writer = netgrain(&[&["packets", "--store", arg(&store)], more].concat());
        let mut writer = writer.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the process starts");
        writer.stdout.take().expect("a pipe").read_exact(&mut [0; 64]).expect("some bytes");
        assert!(writer.wait().expect("an end").success(), "{more:?}");
    }
}

#[test]
fn follow_prints_packets_in_order_until_sigint() {
    let dir = TempDir::new("packets-follow");
    let (store, socket) = (dir.join("store"), dir.join("s"));
    let record = ["record", "--sim", "60,rate=1kpps", "--ring", "8MiB", "--store", arg(&store), "--rotate", "1s"];
    let (recorder, recorder_err) = Running::start(&mut netgrain(&[&record[..], &["--socket", arg(&socket)]].concat()));
    common::until("the first packets", || packets(&store, &["--limit", "1"]).status == Some(0));
    let mut follower = netgrain(&["packets", "--store", arg(&store), "--follow", "--json"]);
    let mut follower =
        Running(follower.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the process starts"));
    let mut lines = BufReader::new(follower.0.stdout.take().expect("a pipe")).lines();
    common::until_filtered(&follower.0);
    let (begun, mut seen, mut before) = (Instant::now(), 0, String::new());
    while seen < 2500 {
        assert!(begun.elapsed() < WAIT_MAX, "only {seen} packets arrived");
        let time = object(&lines.next().expect("a line").expect("text"))["time"].as_str().expect("a time").to_owned();
        assert!(time >= before, "{time} after {before}");
        (seen, before) = (seen + 1, time);
    }
    signal(&follower.0, "INT");
    let rest = lines.map_while(Result::ok).count();
    assert!(follower.0.wait().expect("an end").success(), "after {rest} more");
    signal(&recorder.0, "TERM");
    assert_eq!(recorder.end(recorder_err).status, Some(0));
}

#[test]
fn foreign_captures_are_indexed_queried_and_checked_but_not_changed() {
    let dir = TempDir::new("packets-foreign");
    let (one, two) = (dir.join("one.pcap"), dir.join("two.pcap"));
    for (path, seed) in [(&one, "1"), (&two, "2")] {
        let spec = format!("imix,flows=2000,seed={seed}");
        assert_eq!(run(&["gen", "-w", arg(path), &spec, "--packets", "20k"]).status, Some(0));
    }
    let count = |more: &[&str]| {
        let output = run(&[&["packets", "-r", arg(&one), arg(&two), "--count", "--json", "--explain"], more].concat());
        let explained = object(output.err.lines().last().expect("an object"));
        (object(&output.out)["packets"].as_u64().expect("a number"), explained["explain"]["bytes_read"].as_u64())
    };
    assert_eq!(count(&[]).0, 40_000, "arguments that name files are captures");
    let (found, read) = count(&["host 10.0.3.7"]);
    let indexed_files = run(&["index", "--json", arg(&one), arg(&two)]);
    assert_eq!(indexed_files.status, Some(0), "{indexed_files:?}");
    for line in indexed_files.out.lines().map(object) {
        assert_eq!((&line["result"], &line["packets"]), (&"made".into(), &20_000.into()));
        let (index, bytes) = (line["index_bytes"].as_u64(), line["bytes"].as_u64());
        assert!(index < bytes.map(|b| b / 80), "{index:?} of {bytes:?}");
    }
    let (indexed, read_with_index) = count(&["host 10.0.3.7"]);
    assert_eq!(indexed, found);
    assert!(read_with_index <= read, "{read_with_index:?} {read:?}");
    let index = dir.join("one.pcap.ngi");
    let results = |args: &[&str]| {
        let output = run(&[&["index", "--json"], args].concat());
        (
            output.status,
            output.out.lines().map(|l| object(l)["result"].as_str().expect("a word").to_owned()).collect::<Vec<_>>(),
        )
    };
    assert_eq!(results(&[arg(&one), arg(&index)]), (Some(0), vec!["up_to_date".into(), "is_index".into()]));
    assert_eq!(results(&["--force", arg(&one)]), (Some(0), vec!["made".into()]));
    assert_eq!(results(&["--check", arg(&one), arg(&two)]), (Some(0), vec!["fits".into(); 2]));
    let mut bytes = std::fs::read(&one).expect("a capture");
    bytes.truncate(bytes.len() - 3);
    std::fs::write(&one, &bytes).expect("cut");
    assert_eq!(results(&["--check", arg(&one)]), (Some(1), vec!["does_not_fit".into()]));
    let output = run(&["packets", "-r", arg(&one), "--count"]);
    assert_eq!(output.status, Some(1));
    assert!(
        output.out.starts_with("19 999 packets") && output.err.contains("the length of the capture has changed"),
        "{output:?}"
    );
    assert!(output.err.contains("it was cut short"), "{}", output.err);
    let indexed_files = run(&["index", arg(&one)]);
    assert!(indexed_files.status == Some(1) && indexed_files.out.contains("damaged: byte"), "{indexed_files:?}");
    assert_eq!(results(&["--remove", arg(&one), arg(&two)]), (Some(0), vec!["removed".into(); 2]));
    assert_eq!(results(&["--remove", arg(&one)]), (Some(0), vec!["missing".into()]));
    assert_eq!(results(&[arg(&one)]), (Some(1), vec!["made".into()]));
    assert_eq!(results(&["--remove", arg(&index)]), (Some(0), vec!["removed".into()]));
    assert_eq!(results(&["--remove", arg(&index)]), (Some(0), vec!["missing".into()]));
    let none = run(&["index", arg(&dir.join("none"))]);
    assert!(none.status == Some(2) && none.err.contains("none: there is no such file"), "{none:?}");
    assert_eq!(common::walk(dir.path()).len(), 2, "a temporary file was not removed");
}

#[test]
fn libpcap_reads_a_pcapng_of_interfaces_with_different_snaplens() {
    let test = "libpcap_reads_a_pcapng_of_interfaces_with_different_snaplens";
    let dir = TempDir::new("packets-snaplens");
    let (one, two, out) = (dir.join("one.pcap"), dir.join("two.pcap"), dir.join("out.pcapng"));
    for (path, snaplen) in [(&one, 2000u32), (&two, 65_535)] {
        assert_eq!(run(&["gen", "-w", arg(path), "imix", "--packets", "100"]).status, Some(0));
        patch(path, 16, &snaplen.to_le_bytes());
    }
    let output = run(&["packets", "-r", arg(&one), arg(&two), "-w", arg(&out)]);
    assert_eq!(output.status, Some(0), "{output:?}");
    let bytes = std::fs::read(&out).expect("a capture");
    let contains = |text: &str| bytes.windows(text.len()).any(|w| w == text.as_bytes());
    assert!(contains("at most 2000 bytes kept") && contains("at most 65535 bytes kept"));
    let Some(mut tcpdump) = testkit::tool(test, "tcpdump") else { return };
    let read = run_command(tcpdump.args(["-nr", arg(&out), "--count"]));
    assert_eq!(read.out, "200 packets\n", "{}", read.err);
}

#[test]
fn information_that_pcap_cannot_hold_is_reported() {
    let dir = TempDir::new("packets-unsaid");
    let (one, two, out) = (dir.join("one.pcap"), dir.join("two.pcap"), dir.join("out.pcap"));
    for path in [&one, &two] {
        assert_eq!(run(&["gen", "-w", arg(path), "imix", "--packets", "100"]).status, Some(0));
    }
    let alone = run(&["packets", "-r", arg(&one), "-w", arg(&out)]);
    assert!(alone.status == Some(0) && !alone.err.contains("pcapng does"), "{alone:?}");
    let both = run(&["packets", "-r", arg(&one), arg(&two), "-w", arg(&out), "--force"]);
    assert!(both.status == Some(0) && both.err.contains("which of the 2 interfaces"), "{both:?}");
    let mut lossy = pcap::ng::Writer::new(Vec::new(), "a test", "").expect("a buffer");
    let number = lossy.interface("eth0", 1).expect("a buffer");
    for drops in [None, Some(7)] {
        let options = pcap::ng::PacketOptions { drops, ..Default::default() };
        lossy.packet(number, base::Timestamp::from_nanos(5), 60, &[0; 60], options).expect("a buffer");
    }
    std::fs::write(&one, lossy.finish().expect("a buffer")).expect("a file");
    let lost = run(&["packets", "-r", arg(&one), "-w", arg(&out), "--force"]);
    assert!(lost.status == Some(0) && lost.err.contains("the 7 packets lost between captured packets"), "{lost:?}");
}

#[test]
fn captures_that_cannot_be_indexed_are_rejected_by_name() {
    use std::os::unix::ffi::OsStrExt;
    let dir = TempDir::new("packets-unheld");
    let (one, long) = (dir.join("one.pcap"), dir.join("long.pcap"));
    assert_eq!(run(&["gen", "-w", arg(&one), "imix", "--packets", "10"]).status, Some(0));
    std::fs::copy(&one, &long).expect("a copy");
    let file = std::fs::File::options().write(true).open(&long).expect("the copy");
    file.set_len((128 << 30) + 1).expect("a sparse file");
    let output = run(&["index", arg(&long)]);
    assert!(output.status == Some(2) && output.err.contains("long.pcap: longer than 128"), "{output:?}");
    let not_utf8 = dir.join(std::ffi::OsStr::from_bytes(b"on\xffe.pcap"));
    std::fs::copy(&one, &not_utf8).expect("a copy");
    let output = run_command(netgrain(&["index"]).arg(&not_utf8));
    assert!(output.status == Some(2) && output.err.contains("not UTF-8"), "{output:?}");
    assert_eq!(common::walk(dir.path()).len(), 3, "a temporary file was not removed");
}

#[test]
fn a_filter_word_that_is_also_a_file_name_is_reported() {
    let dir = TempDir::new("packets-words");
    let one = dir.join("one.pcap");
    assert_eq!(run(&["gen", "-w", arg(&one), "imix", "--packets", "100"]).status, Some(0));
    std::fs::write(dir.join("udp"), "no capture").expect("a file");
    let query = |words: &[&str]| {
        let args = [&["packets", "-r", "one.pcap", "--count"], words].concat();
        run_command(netgrain(&args).current_dir(dir.path()))
    };
    assert_error(&query(&["udp", "port", "53"]), "udp", "write -- before `udp`");
    assert_error(&query(&["udp", "src"]), "filter", "a value is missing");
    let output = query(&["--", "udp"]);
    assert!(matches!(output.status, Some(0 | 1)) && output.out.contains("packets"), "{output:?}");
}

/// Overwrites some bytes of a file.
fn patch(path: &Path, at: usize, with: &[u8]) {
    let mut bytes = std::fs::read(path).expect("a file");
    bytes[at..at + with.len()].copy_from_slice(with);
    std::fs::write(path, bytes).expect("a writable file");
}

#[test]
fn the_capture_of_an_index_is_not_overwritten() {
    let dir = TempDir::new("packets-behind");
    let (one, into, link) = (dir.join("one.pcap"), dir.join("idx"), dir.join("link.pcap"));
    std::fs::create_dir(&into).expect("a directory");
    assert_eq!(run(&["gen", "-w", arg(&one), "imix", "--packets", "100"]).status, Some(0));
    assert_eq!(run(&["index", "--into", arg(&into), arg(&one)]).status, Some(0));
    let before = std::fs::read(&one).expect("a capture");
    std::fs::hard_link(&one, &link).expect("a link");
    let index = common::walk(&into).pop().expect("an index");
    for target in [&one, &link, &index] {
        assert_error(&run(&["packets", "-r", arg(&index), "-w", arg(target)]), "is an input", "another file");
    }
    assert_eq!(std::fs::read(&one).expect("a capture"), before);
    let output = run(&["packets", "-r", arg(&index), "--count"]);
    assert!(output.status == Some(0) && output.out.starts_with("100 packets"), "{output:?}");
}

#[test]
fn a_failed_query_does_not_replace_an_existing_file() {
    let dir = TempDir::new("packets-failed");
    let (one, two, out) = (dir.join("one.pcap"), dir.join("two.pcap"), dir.join("out.pcap"));
    for path in [&one, &two] {
        assert_eq!(run(&["gen", "-w", arg(path), "imix", "--packets", "100"]).status, Some(0));
    }
    // Raw IP instead of Ethernet.
    patch(&two, 20, &101u32.to_le_bytes());
    std::fs::write(&out, "a good file").expect("a file");
    let output = run(&["packets", "-r", arg(&one), arg(&two), "--format", "pcap", "-w", arg(&out), "--force"]);
    assert_eq!(output.status, Some(2), "{output:?}");
    assert!(
        output.err.contains("do not fit into one pcap") && !output.err.contains("free some space"),
        "{}",
        output.err
    );
    assert_eq!(std::fs::read(&out).expect("the file"), b"a good file");
    let partial = common::walk(dir.path()).into_iter().find(|p| p.extension().is_some_and(|e| e == "partial"));
    let partial = partial.expect("the packets found before the failure");
    assert!(output.err.contains(arg(&partial)), "{}", output.err);
    assert_eq!(run(&["packets", "-r", arg(&partial), "--count"]).status, Some(0));
}

#[test]
fn a_file_that_cannot_be_written_completely_is_removed() {
    let dir = TempDir::new("packets-unwritable");
    let (from, to) = (dir.join("from.pcap"), dir.join("out/to.pcapng"));
    assert_eq!(run(&["gen", "-w", arg(&from), "1000", "--packets", "3000"]).status, Some(0));
    std::fs::create_dir(dir.join("out")).expect("a directory");
    for _ in 0..2 {
        // A limit on the length of files stands for a full volume.
        let mut limited = std::process::Command::new("bash");
        limited.args(["-c", "trap '' XFSZ; ulimit -f 512; exec \"$@\"", "bash", env!("CARGO_BIN_EXE_netgrain")]);
        let output = common::run_command(limited.args(["packets", "-r", arg(&from), "-w", arg(&to)]));
        assert_eq!(output.status, Some(2), "{output:?}");
        assert!(output.err.contains("the incomplete file was removed") && output.err.contains(arg(&to)), "{output:?}");
        assert!(common::walk(&dir.join("out")).is_empty(), "{output:?}");
    }
}

#[test]
fn a_query_of_a_file_of_a_store_uses_the_index_of_the_store() {
    let dir = TempDir::new("packets-of-store");
    let store = store(&dir, 3000, &[]);
    let sealed = common::walk(&store).into_iter().find(|p| p.extension().is_some_and(|e| e == "pcap")).expect("a file");
    let output = run(&["packets", "-r", arg(&sealed), "--count", "--json", "--explain"]);
    assert_eq!((output.status, object(&output.out)["packets"].as_u64()), (Some(0), Some(3000)), "{output:?}");
    assert!(object(&output.err)["explain"]["index_bytes_read"].as_u64() > Some(0), "{}", output.err);
    let output = run(&["index", arg(&sealed)]);
    assert!(output.status == Some(0) && output.out.contains("has the index of its store"), "{output:?}");
    let output = run(&["index", "--check", arg(&sealed)]);
    assert!(output.status == Some(0) && output.out.contains("matches every block"), "{output:?}");
    let output = run(&["index", "--remove", arg(&sealed.with_extension("ngi"))]);
    assert!(output.status == Some(2) && output.err.contains("belongs to a store"), "{output:?}");
    // A changed bit in the payload of the first packet; the length stays the same.
    let at = 24 + 16 + 50;
    let bit = std::fs::read(&sealed).expect("a file")[at] ^ 1;
    patch(&sealed, at, &[bit]);
    let output = run(&["packets", "-r", arg(&sealed), "--count"]);
    assert!(
        output.out.starts_with("3 000 packets")
            && output.err.contains("differs from the file that its recorder stored"),
        "{output:?}"
    );
    let output = run(&["index", "--check", arg(&sealed)]);
    assert!(output.status == Some(1) && output.out.contains("of the capture were changed"), "{output:?}");
}

#[test]
fn a_truncated_capture_is_reported_once_with_and_without_an_index() {
    let dir = TempDir::new("packets-cut");
    let one = dir.join("one.pcap");
    assert_eq!(run(&["gen", "-w", arg(&one), "imix", "--packets", "100"]).status, Some(0));
    let bytes = std::fs::read(&one).expect("a capture");
    std::fs::write(&one, &bytes[..bytes.len() - 7]).expect("cut");
    let query = || run(&["packets", "-r", arg(&one), "--count"]);
    let plain = query();
    assert_eq!((plain.status, plain.err.lines().count()), (Some(1), 1), "{plain:?}");
    assert!(plain.out.starts_with("99 packets") && plain.err.contains("cut short"), "{plain:?}");
    assert_eq!(run(&["index", arg(&one)]).status, Some(1));
    let indexed = query();
    assert_eq!((indexed.status, indexed.err.lines().count()), (Some(1), 1), "{indexed:?}");
    assert!(indexed.out.starts_with("99 packets") && indexed.err.contains("truncated or damaged"), "{indexed:?}");
    // The file was not changed since it was indexed: the truncation is the only fault.
    for more in [&[][..], &["--quick"]] {
        let output = run(&[&["verify", arg(&one)], more].concat());
        assert!(
            !output.out.contains("was changed or replaced") && !output.out.contains("its index describes"),
            "{output:?}"
        );
    }
    let output = run(&["verify", arg(&one)]);
    assert_eq!((output.status, output.out.matches("WRONG").count()), (Some(1), 1), "{output:?}");
    let output = run(&["convert", arg(&one), "-w", arg(&dir.join("out.pcap"))]);
    assert_eq!(
        (output.status, output.err.matches("before this byte was converted").count()),
        (Some(1), 1),
        "{output:?}"
    );
}

#[test]
fn a_broken_record_of_a_foreign_capture_is_reported_with_the_command_that_saves_the_rest() {
    let dir = TempDir::new("packets-broken");
    let (one, out) = (dir.join("one.pcap"), dir.join("out.pcap"));
    assert_eq!(run(&["gen", "-w", arg(&one), "60", "--packets", "100"]).status, Some(0));
    // The caplen of record 50: a file header of 24 bytes, and records of 76 bytes.
    patch(&one, 24 + 50 * 76 + 8, &u32::MAX.to_le_bytes());
    let store = dir.join("store");
    let advice = format!("; netgrain repair {} saves the complete records after this byte", arg(&one));
    for verb in [
        &["packets", "--count", "-r"][..],
        &["flows", "-r"],
        &["series", "-r"],
        &["run", "-q", "--store", arg(&store), "-r"],
        &["convert", "-w", arg(&out)],
    ] {
        let output = run(&[verb, &[arg(&one)]].concat());
        assert!(output.status == Some(1) && output.err.matches(&advice).count() == 1, "{verb:?}: {output:?}");
    }
    assert!(run(&["repair", arg(&one)]).status == Some(0));
    let repaired = run(&["packets", "--count", "-r", arg(&one)]);
    assert!(repaired.status == Some(0) && repaired.out.starts_with("99 packets"), "{repaired:?}");
}

#[test]
fn a_packet_query_of_standard_input_names_the_commands_that_read_it() {
    let output = run(&["packets", "-r", "-"]);
    assert_error(&output, "a packet query reads a capture twice", "netgrain run -r - --store DIR");
}

#[test]
fn packets_of_an_unsupported_link_type_are_reported_by_number_and_name() {
    let dir = TempDir::new("packets-links");
    let (one, out) = (dir.join("one.pcap"), dir.join("out.pcap"));
    assert_eq!(run(&["gen", "-w", arg(&one), "imix", "--packets", "100"]).status, Some(0));
    patch(&one, 20, &105u32.to_le_bytes());
    #[track_caller]
    fn assert_reported(output: &Output) {
        let lines: Vec<&str> =
            output.err.lines().chain(output.out.lines()).filter(|l| l.contains("not supported")).collect();
        assert!(lines.len() == 1 && lines[0].contains("100 packets have link type 105 (IEEE802_11)"), "{output:?}");
    }
    let query = |more: &[&str]| run(&[&["packets", "-r", arg(&one), "--count"], more].concat());
    assert_reported(&query(&["tcp"]));
    assert_reported(&query(&["not", "tcp"]));
    assert_eq!(query(&[]).err, "", "a query without a filter is complete");
    assert_reported(&run(&["convert", arg(&one), "-w", arg(&out), "--filter", "tcp"]));
    assert_reported(&run(&["index", arg(&one)]));
    assert_reported(&query(&["tcp"]));
    for (n, filter) in [&[][..], &["--filter", "ip"]].into_iter().enumerate() {
        let store = dir.join(format!("store{n}"));
        assert_reported(&run(&[&["record", "-r", arg(&one), "--store", arg(&store), "-q"], filter].concat()));
    }
}
