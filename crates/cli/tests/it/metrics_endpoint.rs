//! Clients of the metrics endpoint of a recorder cannot cause packet loss.

use crate::common;

use common::{Running, arg, netgrain, objects, signal, until, until_filtered};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{ChildStderr, Command};
use testkit::TempDir;

/// The limit of open files of the recorder, so small that clients could exhaust it.
const OPEN_FILES: u64 = 128;

const CLIENTS: u64 = 1000;

/// The address of `/metrics`, from the recorder's messages at its start.
fn address(err: &mut BufReader<ChildStderr>) -> SocketAddr {
    loop {
        let mut line = String::new();
        assert!(
            err.read_line(&mut line).expect("text") > 0,
            "the recorder ended before it printed the address of its metrics"
        );
        if let Some(url) = line.trim_end().strip_prefix("netgrain: metrics at http://") {
            return url.trim_end_matches("/metrics").parse().expect("an address");
        }
    }
}

fn scrape(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n").expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}

fn value(page: &str, name: &str) -> f64 {
    let line = page.lines().find(|l| l.starts_with(&format!("netgrain_{name}{{")));
    let value = line.and_then(|l| l.rsplit_once(' ')).unwrap_or_else(|| panic!("no {name} in {page}")).1;
    value.parse().expect("a number")
}

#[test]
fn half_open_requests_and_few_descriptors_block_no_packet_or_scrape() {
    let test = "half_open_requests_and_few_descriptors_block_no_packet_or_scrape";
    if sys::limits::raise_open_files(CLIENTS + 1000) < CLIENTS + 500 {
        return testkit::skip(test, "this process may not open enough connections; raise the limit of open files");
    }
    let dir = TempDir::new("endpoint");
    let store = dir.join("store");
    let mut recorder = Command::new("sh");
    recorder.args(["-c", &format!("ulimit -n {OPEN_FILES}; exec \"$@\""), "sh"]);
    recorder.arg(env!("CARGO_BIN_EXE_netgrain"));
    recorder.args(["record", "--sim", "1000,rate=2kpps", "--store", arg(&store), "--ring", "64MiB", "--rotate", "1s"]);
    recorder.args(["--segment", "8MiB", "--metrics", "127.0.0.1:0", "--json"]);
    let (running, mut err) = Running::start(&mut recorder);
    let address = address(&mut err);
    until_filtered(&running.0);
    let half_open = |_| {
        let mut stream = TcpStream::connect(address).expect("a connection");
        // The recorder may close a connection above its limit while the client sends this request.
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: te");
        stream
    };
    let clients: Vec<TcpStream> = (0..CLIENTS).map(half_open).collect();
    // The server may close a connection while it is at its limit; Prometheus repeats a scrape.
    until("a scrape is answered", || scrape(address).contains("netgrain_files_total"));
    let before = value(&scrape(address), "files_total");
    until("the recorder opens and publishes more files", || value(&scrape(address), "files_total") >= before + 3.0);
    drop(clients);
    signal(&running.0, "INT");
    let output = running.end(err);
    assert_eq!(output.status, Some(0), "nothing is lost: {output:?}");
    let objects = objects(&output.out);
    assert_eq!(objects.last().expect("a report")["report"]["lost_total"], 0);
    assert_eq!(netgrain(&["verify", arg(&store)]).status().expect("the program runs").code(), Some(0));
}
