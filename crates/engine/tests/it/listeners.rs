//! Listeners during a recording: many that attach and detach, and some that are stopped, killed or too slow.

use crate::common;

use base::Cause;
use common::{end, plan, sim, start, stop, until};
use netgrain_engine::{Capture, Plan, Report, SocketPlan};
use ring::{Desc, Listener, Mode, attach};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use testkit::TempDir;

/// The name of the listener process; the engine appends a number.
const OTHER: &str = "other process";
/// The environment variables that give a child process the path of the ring socket and the mode of its listener. The
/// child process only listens.
const SOCKET: &str = "NETGRAIN_TEST_SOCKET";
const MODE: &str = "NETGRAIN_TEST_MODE";

fn with_socket(spec: &str, dir: &TempDir) -> Plan {
    let socket = SocketPlan {
        path: dir.join("s"),
        mode: 0o600,
        uid: None,
        gid: None,
        allow_lossless: false,
        forward: Vec::new(),
    };
    Plan { socket: Some(socket), ring: Some(32 << 20), ..plan(sim(spec), &dir.join("store")) }
}

/// The body of [`listener_process`]; without the environment variable [`SOCKET`] this test does nothing.
#[test]
fn child_process_that_listens() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let is_lossless = std::env::var_os(MODE).is_some_and(|m| m == "lossless");
    let mode = if is_lossless { Mode::Lossless } else { Mode::Lossy };
    let mut listeners = attach(Path::new(&socket), mode, OTHER).expect("attach");
    let mut batch = Vec::new();
    // The loop runs until the parent kills this process or the engine ends.
    while listeners.iter().all(Listener::connected) {
        for listener in &mut listeners {
            listener.next(1024, &mut batch);
            listener.report();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A listener in a child process, which is killed on drop.
struct Process(Child);

fn listener_process(plan: &Plan, mode: &str) -> Process {
    let program = std::env::current_exe().expect("this program");
    let socket = plan.socket.as_ref().map(|s| s.path.clone()).expect("a socket");
    let child = Command::new(program)
        .args(["--exact", &testkit::test_name(module_path!(), "child_process_that_listens"), "--nocapture"])
        .env(SOCKET, socket)
        .env(MODE, mode)
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn();
    Process(child.expect("a process"))
}

impl Process {
    fn signal(&self, name: &str) {
        let done = Command::new("sh").args(["-c", &format!("kill -{name} {}", self.0.id())]).status().expect("sh");
        assert!(done.success(), "kill -{name}");
    }

    fn kill(&mut self) {
        self.0.kill().expect("a running process");
        self.0.wait().expect("the process ends");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_listening(capture: &Capture) -> bool {
    capture.report().listeners.iter().any(|l| l.name.starts_with(OTHER) && l.seen > 0)
}

fn is_listed(capture: &Capture) -> bool {
    capture.report().listeners.iter().any(|l| l.name.starts_with(OTHER))
}

/// Returns the number of packets that were lost because the producer waited for the listener process.
fn lost_by_listener(report: &Report) -> u64 {
    report.lost_by_reader.iter().filter(|(name, _)| name.starts_with(OTHER)).map(|(_, n)| n).sum()
}

/// Returns the sequence number in a generated frame with `truth`.
fn number(frame: &[u8]) -> u64 {
    frame[44..50].iter().fold(0, |n, b| n << 8 | u64::from(*b))
}

fn sequence(listener: &Listener, desc: &Desc) -> Option<u64> {
    let mut buffer = Vec::new();
    listener.packet(desc, &mut buffer).map(number)
}

#[test]
fn attaching_and_detaching_1000_listeners_loses_no_packet() {
    let dir = TempDir::new("attach_and_detach");
    let plan = with_socket("200,rate=20kpps,truth", &dir);
    let capture = start(&plan);
    let socket = &plan.socket.as_ref().expect("a socket").path;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for round in 0..250 {
                    let mode = if (thread + round) % 2 == 0 { Mode::Lossless } else { Mode::Lossy };
                    let mut listeners = attach(socket, mode, "short-lived").unwrap_or_else(|e| panic!("{round}: {e}"));
                    let mut batch = Vec::new();
                    listeners[0].next(64, &mut batch);
                    // The listener begins at a record boundary and receives complete records.
                    for desc in batch.iter().filter(|d| d.is_packet()) {
                        assert_eq!((desc.caplen, desc.wire_len), (200, 200));
                        assert!(sequence(&listeners[0], desc).is_some() || mode == Mode::Lossy);
                    }
                }
            });
        }
    });
    until("all listeners are detached", || capture.report().listeners.len() == 1);
    let sent = {
        let ended = stop(capture, &plan);
        assert_eq!(ended.report.counts.lost_total, 0, "{:?}", ended.report);
        ended.report.counts.stored
    };
    let options = checker::Options { sent: Some(sent), file_by_file: false };
    assert!(checker::check(&[dir.join("store")], options).expect("a check").is_complete());
}

#[test]
fn the_losses_of_a_stopped_lossless_listener_end_at_the_reader_timeout() {
    let dir = TempDir::new("stuck");
    let plan = Plan { reader_timeout: Some(Duration::from_secs(1)), ..with_socket("1000,rate=20kpps,truth", &dir) };
    let capture = start(&plan);
    let mut process = listener_process(&plan, "lossless");
    until("the listener reads packets", || is_listening(&capture));
    process.signal("STOP");
    let lost = || lost_by_listener(&capture.report());
    until("the engine loses packets", || lost() > 0);
    until("the reader timeout is over", || capture.report().listeners.iter().any(|l| l.expired));
    // The engine may still process a batch of packets. When one more packet has been stored, the number of lost packets
    // does not change any more.
    let stored = capture.report().counts.stored;
    until("packets are stored again", || capture.report().counts.stored > stored);
    let total = lost();
    until("10 000 more packets are stored", || capture.report().counts.stored > stored + 10_000);
    assert_eq!(lost(), total);
    process.kill();
    until("the listener is removed from the report", || !is_listed(&capture));
    let ended = stop(capture, &plan);
    assert_eq!(lost_by_listener(&ended.report), total);
    assert_eq!(ended.report.lost_by_reader.values().sum::<u64>(), ended.lost(Cause::RingFull));
    assert_eq!(ended.lost(Cause::RingFull), ended.report.counts.lost_total);
}

#[test]
fn a_stopped_lossless_listener_does_not_block_the_end() {
    let dir = TempDir::new("stuck_end");
    // The packets are short, so the ring runs out of descriptors before it runs out of bytes. Then no descriptor is
    // free for the end of the stream.
    let base = with_socket("60,rate=150kpps,truth", &dir);
    let plan = Plan { reader_timeout: Some(Duration::from_secs(4)), ring: Some(common::RING), ..base };
    let capture = start(&plan);
    let process = listener_process(&plan, "lossless");
    until("the listener reads packets", || is_listening(&capture));
    process.signal("STOP");
    until("the engine loses packets", || lost_by_listener(&capture.report()) > 0);
    let ended = stop(capture, &plan);
    assert!(ended.outcome.is_ok() && lost_by_listener(&ended.report) > 0);
}

#[test]
fn killed_listeners_are_removed_without_a_loss() {
    let dir = TempDir::new("killed");
    let plan = with_socket("200,rate=10kpps,truth", &dir);
    let capture = start(&plan);
    for mode in ["lossless", "lossy"] {
        let mut process = listener_process(&plan, mode);
        until("the listener reads packets", || is_listening(&capture));
        process.kill();
        until("the listener is removed from the report", || !is_listed(&capture));
    }
    assert_eq!(stop(capture, &plan).report.counts.lost_total, 0);
}

#[test]
fn a_slow_lossy_listener_counts_each_missed_packet_and_causes_no_loss() {
    const SENT: u64 = 200_000;
    let dir = TempDir::new("slow");
    // The number of packets is about three times the 65 536 descriptors of the ring.
    let base = with_socket(&format!("100,rate=100kpps,packets={SENT},truth"), &dir);
    let plan = Plan { ring: Some(common::RING), ..base };
    let capture = start(&plan);
    let mut slow =
        attach(&plan.socket.as_ref().expect("a socket").path, Mode::Lossy, "slow").expect("attach").remove(0);
    let mut batch = Vec::new();
    let mut first = None;
    until("a first packet", || {
        slow.next(16, &mut batch);
        first = batch.iter().find(|d| d.is_packet()).and_then(|d| sequence(&slow, d));
        first.is_some()
    });
    until("all packets were offered", || capture.report().counts.offered == SENT);
    let mut last = None;
    while slow.lag() > 0 {
        slow.next(1024, &mut batch);
        last = batch.iter().rev().find(|d| d.is_packet()).and_then(|d| sequence(&slow, d)).or(last);
    }
    let counts = slow.counts();
    let ended = end(capture, &plan);
    assert_eq!(ended.report.counts.offered, SENT);
    // If a slow volume makes the recording lose packets, these packets were not in the ring either.
    let first = first.expect("the first");
    let stored: Vec<u64> = ended.packets().map(|p| number(&p.bytes)).filter(|n| *n >= first).collect();
    assert_eq!(last, stored.last().copied());
    assert_eq!((counts.published, counts.waiting), (stored.len() as u64, 0));
    assert_eq!(counts.seen + counts.missed, counts.published);
    assert!(counts.missed > SENT / 2, "{counts:?}");
    assert!(!ended.report.lost_by_reader.keys().any(|name| name.starts_with("slow")));
}
