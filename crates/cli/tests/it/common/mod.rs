//! Helpers of the tests of the binary: they run it and parse its output.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The time after which a wait fails. Tests assert no durations, so the limit is long enough for a busy machine.
pub const WAIT_MAX: Duration = Duration::from_secs(120);

/// The exit status and the output of a command that ended.
#[derive(Debug)]
pub struct Output {
    pub status: Option<i32>,
    pub out: String,
    pub err: String,
}

/// A command that runs the binary under test with empty standard input.
pub fn netgrain(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netgrain"));
    command.args(args).stdin(Stdio::null());
    command
}

/// Runs a command to its end.
pub fn run_command(command: &mut Command) -> Output {
    let done = command.output().expect("the process starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Output { status: done.status.code(), out: text(done.stdout), err: text(done.stderr) }
}

/// Runs the binary to its end.
pub fn run(args: &[&str]) -> Output {
    run_command(&mut netgrain(args))
}

/// A path as an argument.
pub fn arg(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// Sends a signal by name.
pub fn signal(child: &Child, name: &str) {
    let done = Command::new("sh").args(["-c", &format!("kill -{name} {}", child.id())]).status().expect("sh");
    assert!(done.success(), "kill -{name}");
}

/// True if this process, and hence every child of it, ignores SIGHUP (nohup).
pub fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).map(str::trim);
    ignored.and_then(|mask| u64::from_str_radix(mask, 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// Waits until `done` returns true; panics after [`WAIT_MAX`].
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < WAIT_MAX, "waited too long for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until every thread of the process has its filter of system calls. From then on, the debug binary aborts at a
/// call that is in no list (`sys::seccomp`).
pub fn until_filtered(child: &Child) {
    until("every thread has a filter of system calls", || {
        let threads = sys::privilege::of_threads(child.id());
        !threads.is_empty() && threads.iter().all(|thread| thread.calls_filtered)
    });
}

/// A process that is killed when this value is dropped, for example if a test fails before the process has ended.
pub struct Running(pub Child);

impl Running {
    /// Starts a command with piped standard output and error, and waits for the message that the capture has begun.
    pub fn start(command: &mut Command) -> (Self, BufReader<std::process::ChildStderr>) {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the process starts");
        let mut err = BufReader::new(child.stderr.take().expect("a pipe"));
        let (mut line, mut output) = (String::new(), String::new());
        // The capture has begun when the line that describes the source is printed.
        while !["simulation", "AF_XDP ", "TPACKET_V3 ", "pcap "]
            .iter()
            .any(|s| line.starts_with(&format!("netgrain: {s}")))
        {
            line.clear();
            assert!(
                err.read_line(&mut line).expect("text") > 0,
                "the process ended before the capture began: {output}"
            );
            output.push_str(&line);
        }
        (Self(child), err)
    }

    /// Reads the reports that `record --json` and `run --json` print each second, until one of them satisfies
    /// `is_reached`. Reports that were read are not in the output that [`Self::end`] returns.
    pub fn read_reports_until(&mut self, what: &str, is_reached: impl Fn(&serde_json::Value) -> bool) {
        let (begun, out) = (Instant::now(), self.0.stdout.as_mut().expect("a pipe"));
        loop {
            // The report is read byte by byte, because a buffered reader would also take bytes of the next report.
            let (mut line, mut byte) = (Vec::new(), [0]);
            while byte != [b'\n'] {
                out.read_exact(&mut byte).unwrap_or_else(|e| panic!("waited too long for: {what}: {e}"));
                line.push(byte[0]);
            }
            let report = objects(std::str::from_utf8(&line).expect("text")).remove(0);
            if is_reached(&report["live"]) {
                return;
            }
            assert!(begun.elapsed() < WAIT_MAX, "waited too long for: {what}: {report}");
        }
    }

    /// Waits for the end of the process.
    pub fn end(mut self, mut err: BufReader<std::process::ChildStderr>) -> Output {
        let mut output = Output { status: None, out: String::new(), err: String::new() };
        let mut out = self.0.stdout.take().expect("a pipe");
        let rest = std::thread::spawn(move || {
            let mut text = String::new();
            err.read_to_string(&mut text).map(|_| text)
        });
        out.read_to_string(&mut output.out).expect("text");
        output.err = rest.join().expect("a reader").expect("text");
        output.status = self.0.wait().expect("the process ends").code();
        output
    }
}

/// Starts a STAMP reflector on a port that the kernel chooses. Returns the reflector and its address.
pub fn stamp_reflector(more: &[&str]) -> (Running, BufReader<std::process::ChildStderr>, String) {
    let started = reflector_at("127.0.0.1:0", more);
    assert!(started.2.starts_with("127.0.0.1:"), "{}", started.2);
    started
}

/// Starts a STAMP reflector that receives at `listen`. Returns the reflector and its address.
pub fn reflector_at(listen: &str, more: &[&str]) -> (Running, BufReader<std::process::ChildStderr>, String) {
    let args = [&["stamp", "reflect", "--listen", listen, "--json"], more].concat();
    let mut child = netgrain(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the process starts");
    let (mut err, mut line) = (BufReader::new(child.stderr.take().expect("a pipe")), String::new());
    err.read_line(&mut line).expect("text");
    let address = line.trim().rsplit(' ').next().expect("an address").to_owned();
    (Running(child), err, address)
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The JSON objects in the output of `--json`, which has one object on each line.
pub fn objects(out: &str) -> Vec<serde_json::Value> {
    let object = |line: &str| match serde_json::from_str(line) {
        Ok(value @ serde_json::Value::Object(_)) => value,
        other => panic!("{other:?}: {line}"),
    };
    out.lines().map(object).collect()
}

/// A series row without the quality of its timestamps.
pub fn without_timestamp_quality(mut row: serde_json::Value) -> serde_json::Value {
    let fields = row.as_object_mut().expect("an object");
    fields.retain(|name, _| !name.starts_with("timestamp_") && !name.starts_with("clock_"));
    row
}

/// The number of lost packets in the final report of `record --json`. Asserts that the ledger balances and that the
/// exit status is 1 if packets were lost: a busy machine may lose packets, but counts all of them.
#[track_caller]
pub fn lost_in_report(output: &Output) -> u64 {
    let last = objects(&output.out).pop().expect("a report");
    let report = &last["report"];
    let number = |key: &str| report[key].as_u64().unwrap_or_else(|| panic!("no {key}: {last}"));
    let lost = number("lost_total");
    assert_eq!(report["residue"], 0, "{last}");
    assert_eq!(number("offered"), number("stored") + number("filtered") + lost, "{last}");
    assert_eq!(output.status, Some(i32::from(lost > 0)), "{output:?}");
    lost
}

/// The number of packets that a query finds in a store; 0 if the store has none yet.
pub fn stored_packets(store: &Path) -> u64 {
    let output = run(&["packets", "--store", arg(store), "--count", "--json"]);
    objects(&output.out).pop().and_then(|counted| counted["packets"].as_u64()).unwrap_or(0)
}

/// Asserts that the output of `demo --json` is consistent: every data type contains every packet, and the queries of
/// the demo found the packets of the incident.
pub fn assert_demo_is_complete(demo: &serde_json::Value) {
    let number = |value: &serde_json::Value| value.as_u64().unwrap_or_else(|| panic!("no number: {demo}"));
    assert_eq!(demo["disagreements"], serde_json::json!([]), "{demo}");
    let (report, verdict) = (&demo["report"], &demo["verdict"]);
    let (sent, scanned) = (number(&demo["sent"]["sent"]), number(&demo["scanned"]));
    assert!(sent > 0 && scanned > 0 && number(&report["stored"]) == sent + scanned, "{demo}");
    assert_eq!((&verdict["complete"], number(&verdict["frames"])), (&true.into(), sent));
    assert_eq!((number(&report["meter"]["in_rows"]), number(&report["meter"]["unmetered"])), (sent + scanned, 0));
    let steps = demo["steps"].as_array().expect("steps");
    let data_types: Vec<_> = steps.iter().filter_map(|step| step["data_type"].as_str()).collect();
    assert_eq!(data_types, ["series", "flows", "flows", "flows", "packets", "packets"]);
    assert!(steps.iter().all(|step| step["result"]["text"].as_str().is_some_and(|text| !text.is_empty())), "{demo}");
    assert!(demo["query"]["text"].as_str().is_some_and(|text| !text.starts_with("0 packets")), "{demo}");
}

/// Every file below a directory, except lock files.
pub fn walk(dir: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            out.extend(walk(&path));
        } else if path.file_name().is_none_or(|name| name != store::hold::HOLD && name != store::hold::RETENTION_LOCK) {
            // Lock files have no content.
            out.push(path);
        }
    }
    out.sort();
    out
}

/// Copies the binary to `to` in a separate process. If this process copied it with `std::fs::copy`, a child that
/// another test starts at the same time would inherit the descriptor that writes the copy, and running the copy would
/// fail with "Text file busy".
pub fn copy_program(to: &Path) {
    let status = Command::new("cp").arg(env!("CARGO_BIN_EXE_netgrain")).arg(to).status().expect("cp");
    assert!(status.success(), "cp to {}: {status}", to.display());
}

/// A temporary directory with mode 755, so that every user may enter it. It contains a copy of the binary and a
/// directory `store`, and is removed on drop.
pub struct PublicDir(pub PathBuf);

impl PublicDir {
    pub fn new(test: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("netgrain-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(dir.join("store")).expect("a directory");
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).expect("a writable file");
        copy_program(&dir.join("netgrain"));
        Self(dir)
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for PublicDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
