//! Asking a store and captures from the command line: what is printed, what is written, and how it ends.

use crate::common;

use common::{PATIENCE, Running, Said, arg, netgrain, run, say, signal};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;
use testkit::TempDir;

/// One line on stderr that names the thing and says what to do, status 2, nothing on stdout.
#[track_caller]
fn refused(said: &Said, names: &str, advice: &str) {
    assert_eq!((said.status, said.out.as_str()), (Some(2), ""), "{said:?}");
    assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    assert!(
        said.err.starts_with("netgrain: ") && said.err.contains(names) && said.err.contains(advice),
        "{}",
        said.err
    );
}

/// A store of so many simulated packets. All of them fit into the ring, so a busy machine loses none.
fn store(dir: &TempDir, packets: u64, more: &[&str]) -> PathBuf {
    let store = dir.join("store");
    let spec = format!("imix,flows=50,rate=100kpps,packets={packets}");
    let args = ["record", "--sim", &spec, "--ring", "32MiB", "--store", arg(&store), "-q"];
    let said = run(&[&args, more].concat());
    assert_eq!(said.status, Some(0), "{said:?}");
    store
}

fn packets(store: &Path, more: &[&str]) -> Said {
    run(&[&["packets", "--store", arg(store)], more].concat())
}

fn object(text: &str) -> serde_json::Value {
    serde_json::from_str(text.trim()).unwrap_or_else(|e| panic!("{text:?}: {e}"))
}

#[test]
fn what_cannot_be_asked_is_named_with_advice() {
    let dir = TempDir::new("packets-refused");
    let none = dir.join("none");
    refused(&run(&["packets"]), "add --store <DIR> for a store, or -r <FILE>", "see netgrain packets --help");
    refused(&packets(&none, &[]), arg(&none), "name the --store");
    refused(&packets(dir.path(), &[]), "nothing has been recorded", "name the --store");
    let store = store(&dir, 100, &[]);
    let ask = |more: &[&str]| packets(&store, more);
    refused(&ask(&["--from", "yesterday"]), "\"yesterday\" is not a time", "-10min");
    refused(&ask(&["--from", "now", "--to", "-5min"]), "is after --to", "exchange them");
    refused(&ask(&["--around", "10:42", "--from", "now"]), "--from", "see netgrain packets --help");
    refused(&ask(&["-i", "sin"]), "sin", "did you mean sim?");
    refused(&ask(&["-i", "wlan0"]), "wlan0", "it has sim");
    refused(&ask(&["hsot", "10.0.0.1"]), "`hsot` at column 1", "did you mean `host`?");
    refused(&ask(&["--count", "-w", "x"]), "-w", "see netgrain packets --help");
    refused(&ask(&["-w", arg(&dir.join("no/folder/x"))]), "no/folder/x", "the folder must exist");
    let sealed = common::walk(&store).into_iter().find(|p| p.extension().is_some_and(|e| e == "pcap")).expect("a file");
    refused(&ask(&["-w", arg(&sealed)]), arg(&sealed), "write it anywhere else");
    let link = dir.join("link");
    std::os::unix::fs::symlink(&sealed, &link).expect("a link");
    refused(&ask(&["--follow", "-w", arg(&link)]), "in the store", "write it anywhere else");
    std::fs::remove_file(&link).expect("removed");
    refused(&ask(&["-w", arg(&store.join("x"))]), "in the store", "write it anywhere else");
    refused(&run(&["packets", "-r", arg(&sealed), "-w", arg(&sealed)]), "being read", "another file");
    refused(&run(&["packets", "-r", arg(dir.path())]), "a folder", "--store");
    refused(&run(&["packets", "-r", arg(&none), "-w", arg(&dir.join("out"))]), arg(&none), "");
    let left: Vec<_> =
        std::fs::read_dir(dir.path()).expect("a folder").map(|e| e.expect("an entry").file_name()).collect();
    assert_eq!(left, ["store"], "half an answer is left behind");
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
        refused(&of(&[file]), "out.pcap exists", "--force");
        assert_eq!(std::fs::read(&out).expect("the file"), b"precious", "{command:?}");
        let said = of(&[file, "--force"]);
        assert_eq!(said.status, Some(0), "{command:?}: {said:?}");
        assert_ne!(std::fs::read(&out).expect("the file"), b"precious", "{command:?}");
        let said = of(&["/dev/null"]);
        assert_eq!(said.status, Some(0), "{command:?}: {said:?}");
    }
}

#[test]
fn the_names_of_standard_output_are_standard_output() {
    let dir = TempDir::new("packets-stdout");
    let frames = dir.join("frames.pcap");
    assert_eq!(run(&["gen", "-w", arg(&frames), "60", "--packets", "10"]).status, Some(0));
    for name in ["-", "/dev/stdout", "/dev/fd/1"] {
        for command in [&["packets", "-r", arg(&frames)][..], &["gen", "--packets", "10"]] {
            let out = dir.join("out.pcap");
            let file = std::fs::File::create(&out).expect("a file");
            let mut netgrain = netgrain(&[command, &["-w", name]].concat());
            let status = netgrain.current_dir(dir.path()).stdout(file).status().expect("it runs");
            assert!(status.success(), "{command:?} -w {name}");
            let read = run(&["packets", "-r", arg(&out), "--count"]);
            assert!(read.status == Some(0) && read.out.starts_with("10 packets"), "{command:?} -w {name}: {read:?}");
        }
    }
    assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 2, "a file of another name");
}

#[test]
fn an_empty_file_among_captures_is_named_and_the_others_are_written() {
    let dir = TempDir::new("packets-empty-file");
    let (one, none, two) = (dir.join("a.pcap"), dir.join("b.pcap"), dir.join("c.pcap"));
    for path in [&one, &two] {
        assert_eq!(run(&["gen", "-w", arg(path), "60", "--packets", "10"]).status, Some(0));
    }
    std::fs::write(&none, "").expect("a file");
    let out = dir.join("out.pcapng");
    let said = run(&["packets", "-r", arg(&one), arg(&none), arg(&two), "-w", arg(&out)]);
    assert_eq!(said.status, Some(1), "{said:?}");
    assert!(said.err.contains("b.pcap: ") && said.err.contains("the file is empty"), "{}", said.err);
    let read = run(&["packets", "-r", arg(&out), "--count"]);
    assert!(read.out.starts_with("20 packets"), "{read:?}");
    refused(&run(&["packets", "-r", arg(&none)]), "b.pcap", "the file is empty");
    refused(&run(&["packets", "-r", arg(&none), arg(&none), "--count"]), "b.pcap", "the file is empty");
}

#[test]
fn nothing_found_is_a_no_that_says_what_there_is() {
    let dir = TempDir::new("packets-none");
    let store = store(&dir, 100, &[]);
    let said = packets(&store, &["--to", "2001-01-01", "tcp"]);
    assert_eq!((said.status, said.out.as_str()), (Some(1), ""));
    let out = dir.join("out.pcapng");
    let none = |more: &[&str]| packets(&store, &[&["--to", "2001-01-01", "-w", arg(&out)], more].concat());
    let wrote = none(&[]);
    assert!(wrote.status == Some(1) && wrote.err.contains("nothing found") && !out.exists(), "{wrote:?}");
    let wrote = none(&["--json"]);
    assert_eq!((wrote.status, &object(&wrote.out)["file"]), (Some(1), &serde_json::Value::Null), "{wrote:?}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 1, "something is left behind");
    std::fs::write(&out, "a good file").expect("a file");
    refused(&none(&[]), "out.pcapng exists", "--force");
    assert_eq!(none(&["--force"]).status, Some(1));
    assert_eq!(std::fs::read(&out).expect("the file"), b"a good file");
    for part in ["no packets of `tcp`", "2001-01-01T00:00:00", "has sim (packets from 20"] {
        assert!(said.err.contains(part), "{part}: {}", said.err);
    }
}

#[test]
fn a_store_is_counted_listed_and_told_as_objects_alike() {
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
    // The same question by halves.
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
fn a_capture_tells_other_tools_of_the_question_the_interface_and_the_ledger() {
    let test = "a_capture_tells_other_tools_of_the_question_the_interface_and_the_ledger";
    let dir = TempDir::new("packets-pcapng");
    let store = store(&dir, 3000, &["--filter", "greater 100", "--snaplen", "128"]);
    let out = dir.join("out.pcapng");
    let said = packets(&store, &["-w", arg(&out), "--json", "udp"]);
    assert_eq!((said.status, said.err.as_str()), (Some(0), ""), "{said:?}");
    let report = object(&said.out);
    assert_eq!(report["file_bytes"].as_u64(), Some(std::fs::metadata(&out).expect("a file").len()));
    assert!(report["interval"]["filtered"].as_u64() > Some(0));
    let left = std::fs::read_dir(dir.path()).expect("a folder").count();
    assert_eq!(left, 2, "the hidden name is still there");
    let bytes = std::fs::read(&out).expect("a capture");
    let queues = bytes.chunks_exact(4).collect::<Vec<_>>().windows(2).filter(|w| w == &[[6, 0, 4, 0], [0; 4]]).count();
    assert!(queues as u64 >= report["packets"].as_u64().expect("a number"), "queue 0 is told of each packet: {queues}");
    let Some(mut tshark) = testkit::tool(test, "tshark") else { return };
    tshark.args(["-X", "read_format:MIME Files Format", "-O", "file-pcapng", "-V", "-r"]).arg(&out);
    let tree = say(&mut tshark).out;
    let n = |name: &str| report["interval"][name].as_u64().expect("a count");
    for text in [
        "asked: packets of `udp`".to_owned(),
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
        let mut ours = netgrain(&["packets", "--store", arg(&store), "-w", "-", "--format", format, "udp"]);
        let mut ours = ours.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        let said = say(tcpdump.args(["-nr", "-", "--count"]).stdin(ours.stdout.take().expect("a pipe")));
        assert!(ours.wait().expect("an end").success());
        assert_eq!(said.out, format!("{} packets\n", report["packets"]), "{pcap}: {}", said.err);
    }
}

#[test]
fn a_reader_who_has_enough_is_success() {
    let dir = TempDir::new("packets-pipe");
    let store = store(&dir, 60_000, &[]);
    for more in [&[][..], &["--json"], &["-w", "-"]] {
        let mut ours = netgrain(&[&["packets", "--store", arg(&store)], more].concat());
        let mut ours = ours.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        ours.stdout.take().expect("a pipe").read_exact(&mut [0; 64]).expect("some bytes");
        assert!(ours.wait().expect("an end").success(), "{more:?}");
    }
}

#[test]
fn follow_gives_packets_as_they_come_and_ctrl_c_ends_it_with_a_summary() {
    let dir = TempDir::new("packets-follow");
    let (store, socket) = (dir.join("store"), dir.join("s"));
    let record = ["record", "--sim", "60,rate=1kpps", "--ring", "8MiB", "--store", arg(&store), "--rotate", "1s"];
    let (recorder, recorder_err) = Running::start(&mut netgrain(&[&record[..], &["--socket", arg(&socket)]].concat()));
    common::until("the first packets", || packets(&store, &["--limit", "1"]).status == Some(0));
    let mut follower = netgrain(&["packets", "--store", arg(&store), "--follow", "--json"]);
    let mut follower = Running(follower.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts"));
    let mut lines = BufReader::new(follower.0.stdout.take().expect("a pipe")).lines();
    common::until_filtered(&follower.0);
    let (begun, mut seen, mut before) = (Instant::now(), 0, String::new());
    while seen < 2500 {
        assert!(begun.elapsed() < PATIENCE, "only {seen} packets came");
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
fn captures_of_others_are_indexed_asked_checked_and_left_alone() {
    let dir = TempDir::new("packets-foreign");
    let (one, two) = (dir.join("one.pcap"), dir.join("two.pcap"));
    for (path, seed) in [(&one, "1"), (&two, "2")] {
        let spec = format!("imix,flows=2000,seed={seed}");
        assert_eq!(run(&["gen", "-w", arg(path), &spec, "--packets", "20k"]).status, Some(0));
    }
    let count = |more: &[&str]| {
        let said = run(&[&["packets", "-r", arg(&one), arg(&two), "--count", "--json", "--explain"], more].concat());
        let explained = object(said.err.lines().last().expect("an object"));
        (object(&said.out)["packets"].as_u64().expect("a number"), explained["explain"]["bytes_read"].as_u64())
    };
    assert_eq!(count(&[]).0, 40_000, "the words that are files are files");
    let (found, read) = count(&["host 10.0.3.7"]);
    let made = run(&["index", "--json", arg(&one), arg(&two)]);
    assert_eq!(made.status, Some(0), "{made:?}");
    for line in made.out.lines().map(object) {
        assert_eq!((&line["result"], &line["packets"]), (&"made".into(), &20_000.into()));
        let (index, bytes) = (line["index_bytes"].as_u64(), line["bytes"].as_u64());
        assert!(index < bytes.map(|b| b / 80), "{index:?} of {bytes:?}");
    }
    let (indexed, less) = count(&["host 10.0.3.7"]);
    assert_eq!(indexed, found);
    assert!(less <= read, "{less:?} {read:?}");
    let index = dir.join("one.pcap.ngi");
    let results = |args: &[&str]| {
        let said = run(&[&["index", "--json"], args].concat());
        (
            said.status,
            said.out.lines().map(|l| object(l)["result"].as_str().expect("a word").to_owned()).collect::<Vec<_>>(),
        )
    };
    assert_eq!(results(&[arg(&one), arg(&index)]), (Some(0), vec!["up_to_date".into(), "is_index".into()]));
    assert_eq!(results(&["--force", arg(&one)]), (Some(0), vec!["made".into()]));
    assert_eq!(results(&["--check", arg(&one), arg(&two)]), (Some(0), vec!["fits".into(); 2]));
    let mut bytes = std::fs::read(&one).expect("a capture");
    bytes.truncate(bytes.len() - 3);
    std::fs::write(&one, &bytes).expect("cut");
    assert_eq!(results(&["--check", arg(&one)]), (Some(1), vec!["does_not_fit".into()]));
    let said = run(&["packets", "-r", arg(&one), "--count"]);
    assert_eq!(said.status, Some(1));
    assert!(
        said.out.starts_with("19 999 packets") && said.err.contains("the length of the capture has changed"),
        "{said:?}"
    );
    assert!(said.err.contains("it was cut short"), "{}", said.err);
    let made = run(&["index", arg(&one)]);
    assert!(made.status == Some(1) && made.out.contains("damaged: byte"), "{made:?}");
    assert_eq!(results(&["--remove", arg(&one), arg(&two)]), (Some(0), vec!["removed".into(); 2]));
    assert_eq!(results(&["--remove", arg(&one)]), (Some(0), vec!["missing".into()]));
    assert_eq!(results(&[arg(&one)]), (Some(1), vec!["made".into()]));
    assert_eq!(results(&["--remove", arg(&index)]), (Some(0), vec!["removed".into()]));
    assert_eq!(results(&["--remove", arg(&index)]), (Some(0), vec!["missing".into()]));
    let none = run(&["index", arg(&dir.join("none"))]);
    assert!(none.status == Some(2) && none.err.contains("none: there is no such file"), "{none:?}");
    assert_eq!(common::walk(dir.path()).len(), 2, "something is left behind");
}

#[test]
fn interfaces_of_different_snaplens_make_a_capture_that_libpcap_reads() {
    let test = "interfaces_of_different_snaplens_make_a_capture_that_libpcap_reads";
    let dir = TempDir::new("packets-snaplens");
    let (one, two, out) = (dir.join("one.pcap"), dir.join("two.pcap"), dir.join("out.pcapng"));
    for (path, snaplen) in [(&one, 2000u32), (&two, 65_535)] {
        assert_eq!(run(&["gen", "-w", arg(path), "imix", "--packets", "100"]).status, Some(0));
        patch(path, 16, &snaplen.to_le_bytes());
    }
    let said = run(&["packets", "-r", arg(&one), arg(&two), "-w", arg(&out)]);
    assert_eq!(said.status, Some(0), "{said:?}");
    let bytes = std::fs::read(&out).expect("a capture");
    let reported = |text: &str| bytes.windows(text.len()).any(|w| w == text.as_bytes());
    assert!(reported("at most 2000 bytes kept") && reported("at most 65535 bytes kept"));
    let Some(mut tcpdump) = testkit::tool(test, "tcpdump") else { return };
    let read = say(tcpdump.args(["-nr", arg(&out), "--count"]));
    assert_eq!(read.out, "200 packets\n", "{}", read.err);
}

#[test]
fn what_a_pcap_cannot_tell_is_said() {
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
    assert!(lost.status == Some(0) && lost.err.contains("the 7 packets lost between them"), "{lost:?}");
}

#[test]
fn what_an_index_cannot_hold_is_refused_by_name() {
    use std::os::unix::ffi::OsStrExt;
    let dir = TempDir::new("packets-unheld");
    let (one, long) = (dir.join("one.pcap"), dir.join("long.pcap"));
    assert_eq!(run(&["gen", "-w", arg(&one), "imix", "--packets", "10"]).status, Some(0));
    std::fs::copy(&one, &long).expect("a copy");
    let file = std::fs::File::options().write(true).open(&long).expect("the copy");
    file.set_len((128 << 30) + 1).expect("a hole");
    let said = run(&["index", arg(&long)]);
    assert!(said.status == Some(2) && said.err.contains("long.pcap: longer than 128"), "{said:?}");
    let strange = dir.join(std::ffi::OsStr::from_bytes(b"on\xffe.pcap"));
    std::fs::copy(&one, &strange).expect("a copy");
    let said = say(netgrain(&["index"]).arg(&strange));
    assert!(said.status == Some(2) && said.err.contains("not UTF-8"), "{said:?}");
    assert_eq!(common::walk(dir.path()).len(), 3, "something is left behind");
}

#[test]
fn a_word_of_the_filter_that_is_a_file_as_well_is_named() {
    let dir = TempDir::new("packets-words");
    let one = dir.join("one.pcap");
    assert_eq!(run(&["gen", "-w", arg(&one), "imix", "--packets", "100"]).status, Some(0));
    std::fs::write(dir.join("udp"), "no capture").expect("a file");
    let ask = |words: &[&str]| {
        let args = [&["packets", "-r", "one.pcap", "--count"], words].concat();
        say(netgrain(&args).current_dir(dir.path()))
    };
    refused(&ask(&["udp", "port", "53"]), "udp", "write -- before `udp`");
    refused(&ask(&["udp", "src"]), "filter", "a value is missing");
    let said = ask(&["--", "udp"]);
    assert!(matches!(said.status, Some(0 | 1)) && said.out.contains("packets"), "{said:?}");
}

/// Writes over some bytes of a file.
fn patch(path: &Path, at: usize, with: &[u8]) {
    let mut bytes = std::fs::read(path).expect("a file");
    bytes[at..at + with.len()].copy_from_slice(with);
    std::fs::write(path, bytes).expect("the same file");
}

#[test]
fn the_capture_behind_an_index_is_not_written_over() {
    let dir = TempDir::new("packets-behind");
    let (one, into, link) = (dir.join("one.pcap"), dir.join("idx"), dir.join("link.pcap"));
    std::fs::create_dir(&into).expect("a folder");
    assert_eq!(run(&["gen", "-w", arg(&one), "imix", "--packets", "100"]).status, Some(0));
    assert_eq!(run(&["index", "--into", arg(&into), arg(&one)]).status, Some(0));
    let before = std::fs::read(&one).expect("a capture");
    std::fs::hard_link(&one, &link).expect("a link");
    let index = common::walk(&into).pop().expect("an index");
    for target in [&one, &link, &index] {
        refused(&run(&["packets", "-r", arg(&index), "-w", arg(target)]), "being read", "another file");
    }
    assert_eq!(std::fs::read(&one).expect("a capture"), before);
    let said = run(&["packets", "-r", arg(&index), "--count"]);
    assert!(said.status == Some(0) && said.out.starts_with("100 packets"), "{said:?}");
}

#[test]
fn an_answer_that_failed_does_not_take_the_place_of_a_good_file() {
    let dir = TempDir::new("packets-failed");
    let (one, two, out) = (dir.join("one.pcap"), dir.join("two.pcap"), dir.join("out.pcap"));
    for path in [&one, &two] {
        assert_eq!(run(&["gen", "-w", arg(path), "imix", "--packets", "100"]).status, Some(0));
    }
    // Raw IP instead of Ethernet.
    patch(&two, 20, &101u32.to_le_bytes());
    std::fs::write(&out, "a good file").expect("a file");
    let said = run(&["packets", "-r", arg(&one), arg(&two), "--format", "pcap", "-w", arg(&out), "--force"]);
    assert_eq!(said.status, Some(2), "{said:?}");
    assert!(said.err.contains("do not fit one pcap") && !said.err.contains("make room"), "{}", said.err);
    assert_eq!(std::fs::read(&out).expect("the file"), b"a good file");
    let left = common::walk(dir.path()).into_iter().find(|p| p.extension().is_some_and(|e| e == "partial"));
    let left = left.expect("what was found before");
    assert!(said.err.contains(arg(&left)), "{}", said.err);
    assert_eq!(run(&["packets", "-r", arg(&left), "--count"]).status, Some(0));
}

#[test]
fn a_file_of_a_store_is_asked_by_the_index_of_its_store() {
    let dir = TempDir::new("packets-of-store");
    let store = store(&dir, 3000, &[]);
    let sealed = common::walk(&store).into_iter().find(|p| p.extension().is_some_and(|e| e == "pcap")).expect("a file");
    let said = run(&["packets", "-r", arg(&sealed), "--count", "--json", "--explain"]);
    assert_eq!((said.status, object(&said.out)["packets"].as_u64()), (Some(0), Some(3000)), "{said:?}");
    assert!(object(&said.err)["explain"]["index_bytes_read"].as_u64() > Some(0), "{}", said.err);
    let said = run(&["index", arg(&sealed)]);
    assert!(said.status == Some(0) && said.out.contains("has the index of its store"), "{said:?}");
    let said = run(&["index", "--check", arg(&sealed)]);
    assert!(said.status == Some(0) && said.out.contains("fits, every block"), "{said:?}");
    let said = run(&["index", "--remove", arg(&sealed.with_extension("ngi"))]);
    assert!(said.status == Some(2) && said.err.contains("belongs to a store"), "{said:?}");
    // As long as before, and another: a bit of the first packet's payload.
    let at = 24 + 16 + 50;
    let bit = std::fs::read(&sealed).expect("a file")[at] ^ 1;
    patch(&sealed, at, &[bit]);
    let said = run(&["packets", "-r", arg(&sealed), "--count"]);
    assert!(
        said.out.starts_with("3 000 packets") && said.err.contains("differs from the file that its recorder stored"),
        "{said:?}"
    );
    let said = run(&["index", "--check", arg(&sealed)]);
    assert!(said.status == Some(1) && said.out.contains("of the capture were changed"), "{said:?}");
}

#[test]
fn a_cut_capture_is_remarked_once_whether_it_is_indexed_or_not() {
    let dir = TempDir::new("packets-cut");
    let one = dir.join("one.pcap");
    assert_eq!(run(&["gen", "-w", arg(&one), "imix", "--packets", "100"]).status, Some(0));
    let bytes = std::fs::read(&one).expect("a capture");
    std::fs::write(&one, &bytes[..bytes.len() - 7]).expect("cut");
    let ask = || run(&["packets", "-r", arg(&one), "--count"]);
    let plain = ask();
    assert_eq!((plain.status, plain.err.lines().count()), (Some(1), 1), "{plain:?}");
    assert!(plain.out.starts_with("99 packets") && plain.err.contains("cut short"), "{plain:?}");
    assert_eq!(run(&["index", arg(&one)]).status, Some(1));
    let indexed = ask();
    assert_eq!((indexed.status, indexed.err.lines().count()), (Some(1), 1), "{indexed:?}");
    assert!(indexed.out.starts_with("99 packets") && indexed.err.contains("truncated or damaged"), "{indexed:?}");
    // Nobody changed it since: that it is cut is all that is wrong.
    for more in [&[][..], &["--quick"]] {
        let said = run(&[&["verify", arg(&one)], more].concat());
        assert!(!said.out.contains("was changed or replaced") && !said.out.contains("its index describes"), "{said:?}");
    }
    let said = run(&["verify", arg(&one)]);
    assert_eq!((said.status, said.out.matches("WRONG").count()), (Some(1), 1), "{said:?}");
    let said = run(&["convert", arg(&one), "-w", arg(&dir.join("out.pcap"))]);
    assert_eq!((said.status, said.err.matches("precedes").count()), (Some(1), 1), "{said:?}");
}

#[test]
fn packets_of_a_link_that_is_not_understood_are_told_by_number_and_name() {
    let dir = TempDir::new("packets-links");
    let (one, out) = (dir.join("one.pcap"), dir.join("out.pcap"));
    assert_eq!(run(&["gen", "-w", arg(&one), "imix", "--packets", "100"]).status, Some(0));
    patch(&one, 20, &105u32.to_le_bytes());
    #[track_caller]
    fn reported(said: &Said) {
        let lines: Vec<&str> =
            said.err.lines().chain(said.out.lines()).filter(|l| l.contains("not understood")).collect();
        assert!(lines.len() == 1 && lines[0].contains("100 packets are of link type 105 (IEEE802_11)"), "{said:?}");
    }
    let ask = |more: &[&str]| run(&[&["packets", "-r", arg(&one), "--count"], more].concat());
    reported(&ask(&["tcp"]));
    reported(&ask(&["not", "tcp"]));
    assert_eq!(ask(&[]).err, "", "whoever asks for everything has everything");
    reported(&run(&["convert", arg(&one), "-w", arg(&out), "--filter", "tcp"]));
    reported(&run(&["index", arg(&one)]));
    reported(&ask(&["tcp"]));
    for (n, filter) in [&[][..], &["--filter", "ip"]].into_iter().enumerate() {
        let store = dir.join(format!("store{n}"));
        reported(&run(&[&["record", "-r", arg(&one), "--store", arg(&store), "-q"], filter].concat()));
    }
}
