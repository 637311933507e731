//! `netgrain replay` on live interfaces in a network namespace of the test. Times are not asserted.

use crate::common;
use crate::json_schemas::assert_valid;

use common::{Running, arg, netgrain, objects, run, run_command, signal, until, until_filtered};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use testkit::{RawReader, Sandbox, TempDir};

/// A capture of `packets` frames of netgrain gen, one per millisecond.
fn generated(dir: &TempDir, packets: u32) -> PathBuf {
    let path = dir.join("trace.pcap");
    let spec = format!("imix,flows=50,rate=1kpps,packets={packets}");
    assert_eq!(run(&["gen", "-w", arg(&path), &spec]).status, Some(0));
    path
}

/// The report of a replay; asserts that it matches its schema and that its equations hold.
#[track_caller]
fn report(args: &[&str]) -> (Option<i32>, Value) {
    let output = run(&[&["replay", "--json"], args].concat());
    let document = objects(&output.out).pop().unwrap_or_else(|| panic!("no report: {output:?}"));
    checked(&document);
    (output.status, document)
}

#[track_caller]
fn checked(document: &Value) {
    assert_valid("replay", document);
    let number = |at: &str| document.pointer(at).and_then(Value::as_u64).unwrap_or_else(|| panic!("{at}: {document}"));
    let skipped =
        ["filtered", "truncated", "over_mtu", "too_short", "other_link"].map(|key| number(&format!("/packets/{key}")));
    assert_eq!(number("/packets/read"), number("/packets/replayed") + skipped.iter().sum::<u64>(), "{document}");
    assert_eq!(number("/frames"), number("/sent") + number("/dropped") + number("/unsent"), "{document}");
}

#[test]
fn wrong_arguments_are_refused_with_advice() {
    let dir = TempDir::new("replay-arguments");
    let trace = generated(&dir, 3);
    let letter = dir.join("letter.txt");
    std::fs::write(&letter, "not a capture").expect("a file");
    for (args, advice) in [
        (vec!["-i", "lo"], "argument is missing: <FILE>..."),
        (vec![arg(&trace)], "--interface <IFACE>"),
        (vec![arg(&trace), "-i", "lo", "--speed", "fast"], "write original, 2x"),
        (vec![arg(&trace), "-i", "lo", "--from", "10:42"], "add --store"),
        (vec!["-", "-i", "lo", "--loop", "2"], "possible only with files"),
        (vec![arg(&letter), "-i", "lo"], "letter.txt: "),
        (vec![arg(&trace), "-i", "nosuch0"], "`ip link` lists the interfaces"),
        (vec![arg(&trace), "-i", "lo", "--second-when", "udp"], "--second"),
        (vec!["--control", "/nonexistent/socket", "--command", "pause"], "was started with --control"),
        (vec!["--control", "/nonexistent/socket", "--command", "dance"], "write pause, resume"),
    ] {
        let output = run(&[&["replay"], &args[..]].concat());
        assert!(output.status == Some(2) && output.err.contains(advice), "{args:?}: {output:?}");
    }
}

#[test]
fn replayed_frames_of_files_and_stores_verify() {
    let test = "replayed_frames_of_files_and_stores_verify";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (_a, _b) = sandbox.veth("replaya", "replayb");
    let dir = TempDir::new("replay-verify");
    let trace = generated(&dir, 500);
    let store = dir.join("store");
    let recorded = run(&["record", "-r", arg(&trace), "--store", arg(&store), "--name", "lab", "-q"]);
    assert_eq!(recorded.status, Some(0), "{recorded:?}");
    let of_store = ["--store", arg(&store), "--recorded-on", "lab"];
    for (number, source) in [&[arg(&trace)][..], &of_store].into_iter().enumerate() {
        let into = dir.join(format!("received{number}"));
        let record = ["record", "-i", "replayb", "--source-kind", "tpacket", "--store", arg(&into), "--ring", "8MiB"];
        let (recorder, err) = Running::start(&mut netgrain(&record));
        let args = ["-i", "replaya", "--speed", "20kpps", "--method", "packet-socket"];
        let (status, report) = report(&[source, &args].concat());
        assert_eq!((status, &report["sent"]), (Some(0), &Value::from(500)), "{report}");
        signal(&recorder.0, "INT");
        let ended = recorder.end(err);
        assert_eq!(ended.status, Some(0), "{ended:?}");
        let checked = run(&["check", arg(&into), "--json"]);
        assert_eq!(checked.status, Some(0), "{checked:?}");
    }
}

#[test]
fn packets_that_cannot_be_sent_are_reported() {
    let test = "packets_that_cannot_be_sent_are_reported";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (_a, _b) = sandbox.veth("replaya", "replayb");
    let dir = TempDir::new("replay-skipped");
    let (long, cut) = (dir.join("long.pcap"), dir.join("cut.pcap"));
    assert_eq!(run(&["gen", "-w", arg(&long), "2000,packets=5"]).status, Some(0));
    let trace = generated(&dir, 20);
    assert_eq!(run(&["convert", arg(&trace), "-w", arg(&cut), "--snaplen", "50", "-q"]).status, Some(0));
    let (status, document) = report(&[arg(&long), arg(&trace), arg(&cut), "-i", "replaya", "--speed", "flat"]);
    assert_eq!(status, Some(1), "{document}");
    let packets = &document["packets"];
    assert_eq!(
        (&packets["over_mtu"], &packets["truncated"], &packets["replayed"]),
        (&5.into(), &20.into(), &20.into())
    );
    let output = run(&["replay", arg(&long), "-i", "replaya"]);
    assert!(output.err.contains("5 packets longer than the MTU permits and not sent"), "{output:?}");
    let bytes = std::fs::read(&trace).expect("the trace");
    let damaged = dir.join("damaged.pcap");
    std::fs::write(&damaged, &bytes[..bytes.len() - 7]).expect("a file");
    let (status, document) = report(&[arg(&damaged), "-i", "replaya", "--speed", "flat"]);
    assert_eq!((status, &document["sent"]), (Some(1), &19.into()), "{document}");
    assert_eq!(document["damaged"][0]["input"], arg(&damaged), "{document}");
}

#[test]
fn copies_have_flows_of_their_own() {
    let Some(sandbox) = Sandbox::new("copies_have_flows_of_their_own") else { return };
    let (_a, b) = sandbox.veth("replaya", "replayb");
    let dir = TempDir::new("replay-copies");
    let trace = generated(&dir, 100);
    let mut reader = RawReader::new(&b);
    let args =
        [arg(&trace), "-i", "replaya", "--speed", "10kpps", "--flow-multiplier", "7", "--method", "packet-socket"];
    let (status, document) = report(&args);
    assert_eq!((status, &document["frames"]), (Some(0), &700.into()), "{document}");
    let is_ours = |frame: &[u8]| frame.get(12..14) == Some(&[8, 0]) && frame.get(23) == Some(&17);
    let received = reader.at_least(700, Duration::from_millis(300), is_ours);
    let flows: std::collections::HashSet<Vec<u8>> = received.iter().map(|frame| frame[26..38].to_vec()).collect();
    assert_eq!((received.len(), flows.len()), (700, 350), "50 flows, each seven times");
    assert!(received.iter().all(|frame| wire::checksum(&frame[14..34]) == 0), "the header checksums are correct");
}

/// Sends a command to a replay and returns its state.
fn command(socket: &Path, text: &str) -> Value {
    let output = run(&["replay", "--control", arg(socket), "--command", text]);
    assert_eq!(output.status, Some(0), "{output:?}");
    let document = objects(&output.out).remove(0);
    assert_valid("replay-status", &document);
    document
}

#[test]
fn a_running_replay_pauses_resumes_and_changes_its_speed() {
    let Some(sandbox) = Sandbox::new("a_running_replay_pauses_resumes_and_changes_its_speed") else { return };
    let (_a, _b) = sandbox.veth("replaya", "replayb");
    let dir = TempDir::new("replay-control-verb");
    let (trace, socket) = (generated(&dir, 1000), dir.join("control"));
    let args = ["replay", arg(&trace), "-i", "replaya", "--loop", "0", "--json", "--control", arg(&socket)];
    let child = netgrain(&args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the process starts");
    let replay = Running(child);
    until("the control socket exists", || socket.exists());
    until_filtered(&replay.0);
    until("frames are sent", || command(&socket, "status")["frames"].as_u64() > Some(20));
    assert_eq!(command(&socket, "pause")["state"], "paused");
    // The frame that was due when the command arrived may still be sent.
    std::thread::sleep(Duration::from_millis(50));
    let before = command(&socket, "status")["frames"].clone();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(command(&socket, "status")["frames"], before, "no frame is sent during the pause");
    signal(&replay.0, "USR1");
    until("the signal resumes the replay", || command(&socket, "status")["state"] == "running");
    assert_eq!(command(&socket, "speed 50kpps")["speed"], "50.0 kpps");
    until("a second pass begins", || command(&socket, "status")["pass"].as_u64() > Some(1));
    assert_eq!(command(&socket, "stop")["state"], "stopped");
    let output = run_command_output(replay);
    let document = objects(&output).pop().expect("a report");
    checked(&document);
    assert!(document["stopped"] == true && document["paused_nanos"].as_u64() > Some(50_000_000), "{document}");
    assert!(!socket.exists());
}

/// Waits for the end of a process and returns its standard output.
fn run_command_output(mut running: Running) -> String {
    use std::io::Read;
    let mut text = String::new();
    running.0.stdout.take().expect("a pipe").read_to_string(&mut text).expect("text");
    assert_eq!(running.0.wait().expect("the process ends").code(), Some(1), "a stopped replay is incomplete");
    text
}

#[test]
fn standard_input_and_real_captures_are_replayed() {
    let test = "standard_input_and_real_captures_are_replayed";
    let Some(traces) = testkit::traces(test) else { return };
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (_a, _b) = sandbox.veth("replaya", "replayb");
    let small = |file: &PathBuf| file.metadata().is_ok_and(|about| about.len() < 200_000);
    let captures = common::walk(&traces)
        .into_iter()
        .filter(|file| file.extension().is_some_and(|end| end == "pcap" || end == "pcapng") && small(file));
    let mut frames = 0;
    for path in captures.take(80) {
        let args = ["-i", "replaya", "--speed", "flat", "--flow-multiplier", "2", "--truncated", "pad"];
        let output = run(&[&["replay", "--json", arg(&path)], &args[..]].concat());
        let document = objects(&output.out).pop().unwrap_or_else(|| panic!("{path:?}: {output:?}"));
        checked(&document);
        let piped = run_command(
            netgrain(&[&["replay", "--json", "-"], &args[..]].concat())
                .stdin(std::fs::File::open(&path).expect("a file")),
        );
        let other = objects(&piped.out).pop().expect("a report");
        assert_eq!(other["packets"], document["packets"], "{path:?}");
        frames += document["sent"].as_u64().expect("a number");
    }
    assert!(frames > 1000, "{frames} frames");
}

/// A pcapng block (draft-ietf-opsawg-pcapng).
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let len = (body.len() as u32 + 12).to_le_bytes();
    [&kind.to_le_bytes()[..], &len, body, &len].concat()
}

/// A pcapng file with frames of 60 bytes, one per millisecond. `flags` are the flags of each frame: 1 for a received
/// frame, 2 for a sent frame. Byte 20 of each frame is its number.
fn with_directions(path: &Path, begin_millis: u64, flags: &[u8]) {
    let mut file = block(0x0a0d_0d0a, &[&0x1a2b_3c4du32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat());
    file.extend(block(1, &[1, 0, 0, 0, 0, 0, 1, 0]));
    for (number, flag) in flags.iter().enumerate() {
        let micros = (begin_millis + number as u64) * 1000;
        let words = [0, (micros >> 32) as u32, micros as u32, 60, 60].map(u32::to_le_bytes).concat();
        let mut frame = [0; 60];
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
        frame[20] = number as u8;
        file.extend(block(6, &[&words[..], &frame, &[2, 0, 4, 0, *flag, 0, 0, 0], &[0; 4]].concat()));
    }
    std::fs::write(path, file).expect("a file");
}

/// The numbers of the frames of [`with_directions`] that arrive.
fn numbers(reader: &mut RawReader, count: usize) -> Vec<u8> {
    let is_ours = |frame: &[u8]| frame.get(12..14) == Some(&[0x88, 0xb5]);
    reader.at_least(count, Duration::from_millis(200), is_ours).iter().map(|frame| frame[20]).collect()
}

#[test]
fn two_interfaces_send_the_two_directions_or_the_two_files() {
    let test = "two_interfaces_send_the_two_directions_or_the_two_files";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (_a, b) = sandbox.veth("replaya", "replayb");
    let (_c, d) = sandbox.veth("replayc", "replayd");
    let dir = TempDir::new("replay-directions");
    let (first, second) = (dir.join("first.pcapng"), dir.join("second.pcapng"));
    with_directions(&first, 1_795_257_720_100, &[1, 2, 2, 1, 0]);
    let mut readers = [RawReader::new(&b), RawReader::new(&d)];
    let interfaces = ["-i", "replaya", "--second", "replayc", "--method", "packet-socket"];
    let (status, document) = report(&[&[arg(&first)], &interfaces[..]].concat());
    assert_eq!((status, &document["sent"]), (Some(0), &5.into()), "{document}");
    let sent: Vec<&Value> = document["interfaces"].as_array().expect("a list").iter().map(|i| &i["sent"]).collect();
    assert_eq!(sent, [3, 2], "{document}");
    assert_eq!(readers.each_mut().map(|reader| numbers(reader, 2)), [vec![0, 3, 4], vec![1, 2]]);
    // The second file begins before the first file, and is still the file of the second interface.
    with_directions(&second, 1_795_257_720_000, &[1, 1]);
    let files = [arg(&first), arg(&second), "--second-by", "input"];
    let (status, document) = report(&[&files, &interfaces[..]].concat());
    assert_eq!(status, Some(0), "{document}");
    assert_eq!(readers.each_mut().map(|reader| numbers(reader, 2)), [vec![0, 1, 2, 3, 4], vec![0, 1]]);
}

#[test]
fn a_command_does_not_take_the_flags_of_a_replay() {
    let output = run(&["replay", "--control", "/nonexistent/socket", "--command", "status", "--speed", "3x"]);
    assert!(output.status == Some(2) && output.err.contains("--speed <SPEED>"), "{output:?}");
}

/// The processors of each thread of a process, as text.
fn processors(process: u32) -> Vec<(String, String)> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("the threads");
    let field = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.trim_start_matches(':').trim().to_owned()
    };
    let status = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok());
    status.map(|text| (field(&text, "Name"), field(&text, "Cpus_allowed_list"))).collect()
}

#[test]
fn only_the_sending_thread_is_pinned_and_a_stopped_process_sends_no_burst_of_the_missed_frames() {
    let test = "only_the_sending_thread_is_pinned_and_a_stopped_process_sends_no_burst_of_the_missed_frames";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (_a, _b) = sandbox.veth("replaya", "replayb");
    let dir = TempDir::new("replay-stopped");
    let (trace, socket) = (generated(&dir, 100), dir.join("control"));
    let args = ["-i", "replaya", "--loop", "0", "--speed", "200pps", "--cpu", "0", "--json", "--control", arg(&socket)];
    let child = netgrain(&[&["replay", arg(&trace)], &args[..]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the process starts");
    let replay = Running(child);
    until("the control socket exists", || socket.exists());
    until_filtered(&replay.0);
    let frames = || command(&socket, "status")["frames"].as_u64().expect("a number");
    until("frames are sent", || frames() > 10);
    let all = processors(std::process::id()).remove(0).1;
    let threads = processors(replay.0.id());
    for (name, allowed) in &threads {
        let expected = if name == "netgrain" { "0" } else { &all };
        assert_eq!(allowed, expected, "{threads:?}");
    }
    assert!(threads.iter().any(|(name, _)| name == "replay-reader"), "{threads:?}");
    // The kernel ignores SIGTSTP for a process group without a shell, so both stops are made by SIGSTOP. The replay
    // only sees the SIGCONT after the stop, which is the same for both signals.
    for _ in 0..2 {
        signal(&replay.0, "STOP");
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", replay.0.id())).expect("the state");
        until("the process is stopped", || state().contains(") T "));
        std::thread::sleep(Duration::from_secs(2));
        signal(&replay.0, "CONT");
        let before = frames();
        until("the replay continues", || frames() > before + 10);
    }
    assert_eq!(command(&socket, "stop")["state"], "stopped");
    let document = objects(&run_command_output(replay)).pop().expect("a report");
    checked(&document);
    let number = |key: &str| document[key].as_u64().unwrap_or_else(|| panic!("{key}: {document}"));
    assert!(number("paused_nanos") >= 3_900_000_000, "both stops are pauses: {document}");
    // Without the pauses, a frame is due every 5 ms. A burst of the missed frames would contain 400 frames more for
    // each stop.
    assert!(number("sent") <= 2 + number("nanos") / 5_000_000, "{document}");
}
