//! Recording on the command line: simulated and replayed packets, pipes, signals, and checks of the result.

use crate::common;

use common::{Running, arg, netgrain, objects, run, signal, until, walk};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use testkit::TempDir;

const RING: [&str; 2] = ["--ring", "8MiB"];

#[test]
fn a_recording_of_generated_frames_is_complete() {
    let dir = TempDir::new("whole_path");
    let (file, store) = (dir.join("frames.pcap"), dir.join("store"));
    let generated = run(&["gen", "-w", arg(&file), "imix,flows=1k", "--packets", "20k", "--json"]);
    assert_eq!(generated.status, Some(0), "{generated:?}");
    assert_eq!(objects(&generated.out)[0]["sent"], 20_000);
    let output = run(&[&["record", "-r", arg(&file), "--store", arg(&store)], &RING[..]].concat());
    assert_eq!(output.status, Some(0), "{output:?}");
    assert!(
        output.out.contains("20 000") && !output.err.contains("20 000"),
        "the summary is on standard output: {output:?}"
    );
    let checked = run(&["check", arg(&store), "--sent", "20k", "--json"]);
    assert_eq!(checked.status, Some(0));
    let verdict = &objects(&checked.out)[0];
    assert_eq!((&verdict["complete"], &verdict["frames"]), (&true.into(), &20_000.into()));
    // If `check` is told that one more packet was sent than was recorded, its exit status is 1.
    assert_eq!(run(&["check", arg(&store), "--sent", "20001"]).status, Some(1));
}

#[test]
fn a_damaged_file_is_stored_up_to_the_reported_damage() {
    let dir = TempDir::new("damaged");
    let (file, store) = (dir.join("frames.pcap"), dir.join("store"));
    assert_eq!(run(&["gen", "-w", arg(&file), "1000", "--packets", "100"]).status, Some(0));
    let whole = std::fs::read(&file).expect("the file");
    std::fs::write(&file, &whole[..whole.len() - 500]).expect("cut");
    let output = run(&[&["record", "-r", arg(&file), "--store", arg(&store)], &RING[..]].concat());
    assert_eq!(output.status, Some(1), "{output:?}");
    let offset = 24 + 99 * 1016;
    assert!(output.err.contains(&format!("{}: byte {offset}: ", arg(&file))), "{}", output.err);
    assert!(output.out.contains("source"), "the loss is in the ledger: {}", output.out);
    assert_eq!(run(&["check", arg(&store), "--sent", "99"]).status, Some(0));
}

#[test]
fn record_reads_a_capture_from_a_pipe() {
    let dir = TempDir::new("pipe");
    let (file, store) = (dir.join("frames.pcap"), dir.join("store"));
    assert_eq!(run(&["gen", "-w", arg(&file), "600", "--packets", "5k"]).status, Some(0));
    let input = std::fs::File::open(&file).expect("the file");
    let mut command = netgrain(&[&["record", "-r", "-", "--store", arg(&store)], &RING[..]].concat());
    let output = common::run_command(command.stdin(input));
    assert_eq!(output.status, Some(0), "{output:?}");
    assert_eq!(run(&["check", arg(&store), "--sent", "5k"]).status, Some(0));
}

#[test]
fn an_interrupt_ends_cleanly_with_the_summary() {
    for name in ["INT", "TERM"] {
        let dir = TempDir::new("interrupt");
        let store = dir.join("store");
        let args = ["record", "--sim", "200,rate=10kpps,truth", "--store", arg(&store), "--rotate", "1s"];
        let (running, err) = Running::start(&mut netgrain(&[&args, &RING[..]].concat()));
        // The first file may cover only a part of a second. The second file covers a full second, so it contains
        // packets.
        until("two files are published", || walk(&store).iter().filter(|p| arg(p).ends_with(".pcap")).count() > 1);
        signal(&running.0, name);
        let output = running.end(err);
        assert_eq!(output.status, Some(0), "{output:?}");
        assert!(output.out.contains("ledger") && output.out.contains("offered"), "{}", output.out);
        let partial: Vec<_> = walk(&store).into_iter().filter(|p| arg(p).ends_with(".partial")).collect();
        assert!(partial.is_empty(), "{partial:?}");
        let checked = run(&["check", arg(&store)]);
        assert_eq!(checked.status, Some(0), "{checked:?}: {output:?}");
    }
}

/// `timeout -s INT` sends the signal to the process and to its group, so the process gets two signals at once.
#[test]
fn two_signals_at_once_end_a_recording_in_order() {
    let dir = TempDir::new("two-signals");
    let store = dir.join("store");
    let args = ["record", "--sim", "200,rate=10kpps", "--store", arg(&store), "--rotate", "1s"];
    let (running, err) = Running::start(&mut netgrain(&[&args, &RING[..]].concat()));
    until("a file is published", || walk(&store).iter().any(|p| arg(p).ends_with(".pcap")));
    for _ in 0..2 {
        signal(&running.0, "INT");
    }
    let output = running.end(err);
    assert_eq!(output.status, Some(0), "{output:?}");
    let partial: Vec<_> = walk(&store).into_iter().filter(|p| arg(p).ends_with(".partial")).collect();
    assert!(partial.is_empty(), "{partial:?}");
}

#[test]
fn sighup_without_a_terminal_does_not_end_a_capture() {
    let test = "sighup_without_a_terminal_does_not_end_a_capture";
    for verb in ["record", "run"] {
        let Some(mut setsid) = testkit::tool(test, "setsid") else { return };
        let dir = TempDir::new("hangup-service");
        let store = dir.join("store");
        setsid.args([env!("CARGO_BIN_EXE_netgrain"), verb, "--sim", "200,rate=10kpps,truth", "--store", arg(&store)]);
        let (running, mut err) = Running::start(setsid.args(RING));
        signal(&running.0, "HUP");
        let mut line = String::new();
        while !line.contains("SIGHUP") {
            line.clear();
            assert!(err.read_line(&mut line).expect("text") > 0, "the capture ended");
        }
        assert!(line.contains("recording goes on"), "{line}");
        signal(&running.0, "TERM");
        let output = running.end(err);
        assert!(output.status == Some(0) && output.out.contains("ledger"), "{output:?}");
    }
}

#[test]
fn hangup_of_the_terminal_ends_the_capture_cleanly() {
    let test = "hangup_of_the_terminal_ends_the_capture_cleanly";
    if common::ignores_hangup() {
        return testkit::skip(test, "SIGHUP is ignored here");
    }
    for verb in ["record", "run"] {
        let Some(mut terminal) = testkit::tool(test, "script") else { return };
        let dir = TempDir::new("hangup-terminal");
        let store = dir.join("store");
        let binary = env!("CARGO_BIN_EXE_netgrain");
        let capture = format!("exec {binary} {verb} --sim 200,rate=10kpps,truth --store {} --ring 8MiB", arg(&store));
        let child =
            terminal.args(["-qec", &capture, "/dev/null"]).stdout(Stdio::piped()).spawn().expect("the process starts");
        let mut running = Running(child);
        until("a file is open", || !walk(&store).is_empty());
        let process = std::process::Command::new("pgrep").args(["-P", &running.0.id().to_string()]).output();
        let process = String::from_utf8(process.expect("pgrep").stdout).expect("a number");
        let hung_up = std::process::Command::new("kill").args(["-HUP", process.trim()]).status().expect("kill");
        assert!(hung_up.success(), "{process}");
        let mut out = String::new();
        std::io::Read::read_to_string(&mut running.0.stdout.take().expect("a pipe"), &mut out).expect("text");
        assert_eq!(running.0.wait().expect("the process ends").code(), Some(0), "{out}");
        assert!(out.contains("ledger"), "{out}");
        assert!(walk(&store).iter().all(|p| !arg(p).ends_with(".partial")));
    }
}

#[test]
fn each_interface_of_a_capture_file_is_recorded_by_itself() {
    let dir = TempDir::new("record-interfaces");
    let (store, both) = (dir.join("store"), dir.join("both.pcapng"));
    let mut file = pcap::ng::Writer::new(Vec::new(), "", "").expect("a buffer");
    let interfaces = ["left", "right"].map(|name| file.interface(name, pcap::ETHERNET).expect("a buffer"));
    for n in 0..30 {
        let (ts, frame) = (base::Timestamp::from_secs_nanos(1_700_000_000, n), [0x5a; 60]);
        let interface = interfaces[usize::from(n % 3 == 0)];
        file.packet(interface, ts, 60, &frame, pcap::ng::PacketOptions::default()).expect("a buffer");
    }
    std::fs::write(&both, file.finish().expect("a buffer")).expect("a file");
    let output = run(&[&["record", "-r", arg(&both), "--store", arg(&store), "--json"], &RING[..]].concat());
    assert_eq!(output.status, Some(0), "{output:?}");
    let reports = objects(&output.out);
    let reports: Vec<_> = reports.iter().filter(|o| o["report"].is_object()).collect();
    assert_eq!(reports.len(), 2, "{output:?}");
    assert!(reports.iter().all(|o| o["groups"].as_array().is_some_and(Vec::is_empty)), "{output:?}");
    for (report, (name, stored)) in reports.iter().zip([("both.pcapng.right", 10), ("both.pcapng.left", 20)]) {
        assert_eq!((&report["report"]["interface"], &report["report"]["stored"]), (&name.into(), &stored.into()));
        assert!(store.join(name).is_dir(), "{:?}", walk(&store));
    }
    let socket = dir.join("socket");
    let refused = run(&["record", "-r", arg(&both), "--store", arg(&store), "--socket", arg(&socket)]);
    assert!(
        refused.status == Some(2) && refused.err.contains("--socket: a ring socket is for one interface"),
        "{refused:?}"
    );
}

#[test]
fn lost_packets_exit_1_and_the_json_report_is_consistent() {
    let dir = TempDir::new("lossy");
    let store = dir.join("store");
    // A simulation at full rate into the smallest ring loses packets.
    let args = ["record", "--sim", "1000,truth,packets=1M", "--store", arg(&store), "--json"];
    let output = run(&[&args[..], &RING[..]].concat());
    assert_eq!(output.status, Some(1), "{output:?}");
    let objects = objects(&output.out);
    let (last, live) = objects.split_last().expect("a report");
    assert!(live.iter().all(|o| o["live"]["offered"].is_u64()), "{live:?}");
    let (report, ledger) = (&last["report"], last["ledger"].as_array().expect("seconds"));
    assert_eq!((&report["offered"], &report["residue"]), (&1_000_000.into(), &0.into()));
    for term in ["offered", "stored", "filtered", "lost_total", "stored_bytes"] {
        let sum: u64 = ledger.iter().map(|s| s[term].as_u64().expect("a number")).sum();
        assert_eq!(report[term], sum, "{term}");
    }
    assert_eq!(report["lost"]["ring_full"], report["lost_by_reader"]["recorder"]);
    let checked = common::objects(&run(&["check", arg(&store), "--sent", "1M", "--json"]).out);
    assert_eq!((&checked[0]["frames"], &checked[0]["missing"]), (&report["stored"], &report["lost_total"]));
}

#[test]
fn a_closed_output_pipe_is_no_error_and_loses_no_packet() {
    let dir = TempDir::new("closed_pipe");
    let store = dir.join("store");
    let args = ["record", "--sim", "60,rate=1kpps,packets=3k,truth", "--store", arg(&store), "--json"];
    let mut command = netgrain(&[&args[..], &RING[..]].concat());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the process starts");
    let mut running = Running(child);
    let mut out = BufReader::new(running.0.stdout.take().expect("a pipe"));
    let mut first = String::new();
    out.read_line(&mut first).expect("a line");
    assert_eq!(objects(&first).len(), 1);
    drop(out);
    assert_eq!(running.0.wait().expect("the process ends").code(), Some(0));
    assert_eq!(run(&["check", arg(&store), "--sent", "3k"]).status, Some(0));
}

#[test]
fn the_simulated_demo_is_complete_and_removes_its_files() {
    let dir = TempDir::new("demo_sim");
    let mut command = netgrain(&["demo", "--sim", "--duration", "3s", "--rate", "5kpps", "--json"]);
    let output = common::run_command(command.env("TMPDIR", dir.path()));
    assert_eq!(output.status, Some(0), "{output:?}");
    common::assert_demo_is_complete(&objects(&output.out)[0]);
    assert!(walk(dir.path()).is_empty());
}

#[test]
fn a_kept_demo_can_be_queried_and_is_not_overwritten() {
    let dir = TempDir::new("demo_kept");
    let keep = dir.join("kept");
    let output = run(&["demo", "--sim", "--duration", "3s", "--rate", "5kpps", "--keep", arg(&keep)]);
    assert_eq!(output.status, Some(0), "{output:?}");
    assert!(output.out.contains(arg(&keep)) && output.out.trim_end().ends_with(" 0 lost"), "{}", output.out);
    assert_eq!(run(&["check", arg(&keep)]).status, Some(0));
    let top = run(&["flows", "--store", arg(&keep), "--group", "src", "--by", "flows", "--top", "1", "--json"]);
    assert_eq!(objects(&top.out)[0]["src"], "203.0.113.66");
    let again = run(&["demo", "--sim", "--duration", "1s", "--keep", arg(&keep)]);
    assert!(again.status == Some(2) && again.err.contains("not empty"), "{again:?}");
}
