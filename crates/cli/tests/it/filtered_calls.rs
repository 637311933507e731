//! The long-running verbs do their work while every thread has its filter of system calls. The debug binary aborts at a
//! call that is in no list (`sys::seccomp`), so a successful end also proves that the filter rejected no call.

use crate::common;

use common::{Running, arg, netgrain, objects, run, signal, until, until_filtered, walk};
use export::file::Reader;
use export::ipfix::Item;
use std::io::{BufRead, BufReader, Cursor, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Stdio};
use std::sync::mpsc;
use testkit::TempDir;

/// The counts of flow records and rows in a stream of IPFIX messages.
fn counts(messages: impl Read) -> (u64, u64) {
    let mut reader = Reader::new(messages, export::element::PEN);
    let (mut flows, mut rows) = (0, 0);
    // If the stream was closed within a message, the reader returns an error, which ends this loop.
    while let Ok(Some(item)) = reader.next_item() {
        match item {
            Item::Flow(_) => flows += 1,
            Item::Row(_) => rows += 1,
            _ => {}
        }
    }
    (flows, rows)
}

fn read_until(err: &mut impl BufRead, part: &str) -> String {
    let mut line = String::new();
    while !line.contains(part) {
        line.clear();
        assert!(err.read_line(&mut line).expect("text") > 0, "the process ended without a line with {part:?}");
    }
    line
}

/// A simulated `run` that receives its export targets by a later SIGHUP.
struct Exporting {
    running: Running,
    err: BufReader<ChildStderr>,
    config: PathBuf,
}

impl Exporting {
    /// Starts the command and waits for its filter, so that it opens every connection under the filter.
    fn start(dir: &TempDir, more: &[&str]) -> Self {
        let (config, store) = (dir.join("netgrain.toml"), dir.join("store"));
        std::fs::write(&config, text(&[])).expect("a file");
        let args = ["run", "--sim", "imix,flows=50,rate=2kpps", "--config", arg(&config), "--store", arg(&store), "-q"];
        let (running, err) = Running::start(&mut netgrain(&[&args[..], more].concat()));
        until_filtered(&running.0);
        Self { running, err, config }
    }

    fn export_to(&mut self, targets: &[&str]) {
        std::fs::write(&self.config, text(targets)).expect("a file");
        signal(&self.running.0, "HUP");
        read_until(&mut self.err, "changed export.targets");
    }

    fn end(self) -> common::Output {
        until_filtered(&self.running.0);
        signal(&self.running.0, "INT");
        self.running.end(self.err)
    }
}

fn text(targets: &[&str]) -> String {
    format!(
        "[capture]\nring = \"8MiB\"\n[flow]\nidle_timeout = \"1s\"\nactive_timeout = \"1s\"\n[export]\ntargets = \
         {targets:?}\n"
    )
}

#[test]
fn run_resolves_and_exports_to_a_udp_collector_under_its_filter() {
    let dir = TempDir::new("filtered-udp");
    let collector = UdpSocket::bind("localhost:0").expect("a port");
    collector.set_read_timeout(Some(common::WAIT_MAX)).expect("a timeout");
    let port = collector.local_addr().expect("an address").port();
    let mut exporting = Exporting::start(&dir, &[]);
    exporting.export_to(&[&format!("udp:localhost:{port},kinds=both")]);
    let (mut messages, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    until("flow records and rows have arrived", || {
        let len = collector.recv(&mut buffer).expect("a datagram");
        messages.extend_from_slice(&buffer[..len]);
        let (flows, rows) = counts(Cursor::new(&messages));
        flows > 0 && rows > 0
    });
    let output = exporting.end();
    assert_eq!(output.status, Some(0), "{output:?}");
}

#[test]
fn run_reconnects_to_a_tcp_collector_under_its_filter() {
    let dir = TempDir::new("filtered-tcp");
    let first = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = first.local_addr().expect("an address");
    let mut exporting = Exporting::start(&dir, &[]);
    exporting.export_to(&[&format!("tcp:{address},kinds=both")]);
    let (mut stream, _) = first.accept().expect("an exporter");
    let mut head = [0; 20];
    stream.read_exact(&mut head).expect("a message");
    assert_eq!(head[..2], [0, 10], "IPFIX");
    drop((stream, first));
    let mut second = None;
    until("the port is free again", || {
        second = TcpListener::bind(address).ok();
        second.is_some()
    });
    let (stream, _) = second.expect("a listener").accept().expect("the exporter reconnects");
    let (progress, received) = mpsc::channel();
    let collector = std::thread::spawn(move || {
        let mut reader = Reader::new(stream, export::element::PEN);
        let (mut flows, mut rows) = (0u64, 0u64);
        while let Some(item) = reader.next_item().expect("whole messages") {
            match item {
                Item::Flow(_) => flows += 1,
                Item::Row(_) => rows += 1,
                _ => {}
            }
            let _ = progress.send((flows, rows));
        }
    });
    until("flow records and rows have arrived over the second connection", || {
        received.recv_timeout(common::WAIT_MAX).is_ok_and(|(flows, rows)| flows > 0 && rows > 0)
    });
    let output = exporting.end();
    // Records that were sent into the first connection may be lost; the exit status is 1 if any was lost.
    assert!(matches!(output.status, Some(0 | 1)), "{output:?}");
    collector.join().expect("a collector");
}

#[test]
fn run_serves_metrics_and_seals_all_data_types_under_its_filter() {
    let dir = TempDir::new("filtered-metrics");
    let store = dir.join("store");
    let sets = ["capture.ring=8MiB", "flow.idle_timeout=1s", "flow.active_timeout=1s", "listen.socket=none"];
    let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    let args = ["run", "--sim", "imix,flows=50,rate=2kpps", "--store", arg(&store), "-q", "--rotate", "1s"];
    let (running, mut err) = Running::start(&mut netgrain(&[&args[..], &sets, &["--metrics", "127.0.0.1:0"]].concat()));
    let line = read_until(&mut err, "metrics at http://");
    let address = line.trim_end().trim_start_matches("netgrain: metrics at http://").trim_end_matches("/metrics");
    until_filtered(&running.0);
    until("packets are counted", || {
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n").expect("sent");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("an answer");
        assert!(page.starts_with("HTTP/1.1 200"), "{page}");
        let files = page.lines().find(|line| line.starts_with("netgrain_files_total{"));
        files.and_then(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).is_some_and(|files| files >= 2.0)
    });
    signal(&running.0, "INT");
    let output = running.end(err);
    assert_eq!(output.status, Some(0), "{output:?}");
    for ending in [".pcap", ".flows.parquet", ".series.parquet"] {
        assert!(walk(&store).iter().any(|path| path.to_string_lossy().ends_with(ending)), "{ending}: {output:?}");
    }
}

/// A directory on another volume than the temporary directory; `None` if the machine has none.
fn other_volume(test: &str) -> Option<PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let memory = Path::new("/dev/shm");
    let device = |path: &Path| std::fs::metadata(path).ok().map(|metadata| metadata.dev());
    if device(memory)? == device(&std::env::temp_dir())? {
        return None;
    }
    let directory = memory.join(format!("netgrain-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).ok()?;
    Some(directory)
}

/// Removes a directory at the end of the test.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn retention_archives_to_the_same_and_another_volume_under_its_filter() {
    let test = "retention_archives_to_the_same_and_another_volume_under_its_filter";
    let dir = TempDir::new("filtered-archive");
    let mut archives = vec![dir.join("archive")];
    std::fs::create_dir(&archives[0]).expect("a directory");
    match other_volume("filtered-archive") {
        Some(directory) => archives.push(directory),
        None => testkit::skip(test, "the temporary directory and /dev/shm are one volume"),
    }
    let archives: Vec<Removed> = archives.into_iter().map(Removed).collect();
    for Removed(archive) in &archives {
        let store = dir.join(if archive.starts_with(dir.path()) { "near" } else { "far" });
        let args = ["run", "--sim", "1000,rate=5kpps", "--store", arg(&store), "-q", "--rotate", "1s"];
        let rules = [
            "--set",
            "capture.ring=8MiB",
            "--set",
            "listen.socket=none",
            "--max-size",
            "40MiB",
            "--set",
            "packets.segment=8MiB",
        ];
        let (running, err) = Running::start(&mut netgrain(&[&args[..], &rules, &["--archive", arg(archive)]].concat()));
        until_filtered(&running.0);
        let packets = || walk(archive).into_iter().find(|path| path.extension().is_some_and(|e| e == "pcap"));
        until("a file is in the archive", || packets().is_some());
        until_filtered(&running.0);
        signal(&running.0, "INT");
        let output = running.end(err);
        assert_eq!(output.status, Some(0), "{output:?}");
        let moved = packets().expect("a file");
        assert!(moved.with_extension("ngi").exists(), "with its index: {:?}", walk(archive));
        let counted = run(&["packets", "-r", arg(&moved), "--count"]);
        assert_eq!(counted.status, Some(0), "{counted:?}");
    }
}

#[test]
fn listen_writes_packets_under_its_filter() {
    let dir = TempDir::new("filtered-listen");
    let (store, socket, out) = (dir.join("store"), dir.join("s"), dir.join("out.pcap"));
    let record =
        ["record", "--sim", "60,rate=1kpps", "--ring", "8MiB", "--store", arg(&store), "--socket", arg(&socket)];
    let (recorder, err) = Running::start(&mut netgrain(&record));
    until("the socket of the rings", || socket.exists());
    let mut listener = netgrain(&["listen", "--socket", arg(&socket), "-w", arg(&out)]);
    let mut listener =
        Running(listener.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the listener starts"));
    until_filtered(&listener.0);
    let before = std::fs::metadata(&out).map_or(0, |file| file.len());
    until("packets are written after the filter", || {
        std::fs::metadata(&out).is_ok_and(|file| file.len() > before + 10_000)
    });
    until_filtered(&listener.0);
    until_filtered(&recorder.0);
    signal(&listener.0, "INT");
    assert_eq!(listener.0.wait().expect("an end").code(), Some(0));
    signal(&recorder.0, "INT");
    assert_eq!(recorder.end(err).status, Some(0));
    let counted = run(&["packets", "-r", arg(&out), "--count"]);
    assert_eq!(counted.status, Some(0), "{counted:?}");
}

#[test]
fn series_live_reads_rows_under_its_filter() {
    let dir = TempDir::new("filtered-series");
    let store = dir.join("store");
    let args = ["run", "--sim", "imix,flows=50,rate=2kpps", "--store", arg(&store), "-q"];
    let sets = ["--set", "capture.ring=8MiB", "--set", "listen.socket=none"];
    let (running, err) = Running::start(&mut netgrain(&[&args[..], &sets].concat()));
    until("there are rows", || run(&["series", "--store", arg(&store), "--json"]).status == Some(0));
    let mut series = netgrain(&["series", "--store", arg(&store), "--live", "--json"]);
    let mut series = Running(series.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the query starts"));
    let mut lines = BufReader::new(series.0.stdout.take().expect("a pipe")).lines();
    let mut next = || objects(&lines.next().expect("a row").expect("text"))[0]["second"].as_u64().expect("a number");
    let first = next();
    until_filtered(&series.0);
    until_filtered(&running.0);
    while next() < first + 2 {}
    signal(&series.0, "INT");
    assert_eq!(series.0.wait().expect("an end").code(), Some(0));
    signal(&running.0, "INT");
    assert_eq!(running.end(err).status, Some(0));
}
