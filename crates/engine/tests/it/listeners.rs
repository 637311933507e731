//! Listeners of all kinds beside a recording: coming and going by the hundred, stuck, killed, too slow.

use crate::common;

use base::Cause;
use common::{end, plan, sim, start, stop, until};
use netgrain_engine::{Capture, Plan, Report, SocketPlan};
use ring::{Desc, Listener, Mode, attach};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use testkit::TempDir;

/// What it calls itself; the engine adds its number.
const OTHER: &str = "other process";
/// Set for a process that only listens: socket and mode.
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

/// Not a test of its own: the body of [`listener_process`].
#[test]
fn a_process_that_only_listens() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let gate = std::env::var_os(MODE).is_some_and(|m| m == "gate");
    let mode = if gate { Mode::Lossless } else { Mode::Lossy };
    let mut listeners = attach(Path::new(&socket), mode, OTHER).expect("attach");
    let mut batch = Vec::new();
    // Until it is killed, or the engine is gone.
    while listeners.iter().all(Listener::connected) {
        for listener in &mut listeners {
            listener.next(1024, &mut batch);
            listener.report();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A listener in a process of its own, killed when dropped.
struct Process(Child);

fn listener_process(plan: &Plan, mode: &str) -> Process {
    let program = std::env::current_exe().expect("this program");
    let socket = plan.socket.as_ref().map(|s| s.path.clone()).expect("a socket");
    let child = Command::new(program)
        .args(["--exact", &testkit::test_name(module_path!(), "a_process_that_only_listens"), "--nocapture"])
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
        self.0.kill().expect("a process to kill");
        self.0.wait().expect("it ends");
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

/// Packets lost because of it.
fn lost_because_of_it(report: &Report) -> u64 {
    report.lost_by_reader.iter().filter(|(name, _)| name.starts_with(OTHER)).map(|(_, n)| n).sum()
}

/// The generator's number in a frame with truth.
fn number(frame: &[u8]) -> u64 {
    frame[44..50].iter().fold(0, |n, b| n << 8 | u64::from(*b))
}

fn sequence(listener: &Listener, desc: &Desc) -> Option<u64> {
    let mut buffer = Vec::new();
    listener.packet(desc, &mut buffer).map(number)
}

#[test]
fn a_thousand_listeners_come_and_go_and_nothing_is_lost() {
    let dir = TempDir::new("come_and_go");
    let plan = with_socket("200,rate=20kpps,truth", &dir);
    let capture = start(&plan);
    let socket = &plan.socket.as_ref().expect("a socket").path;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for round in 0..250 {
                    let mode = if (thread + round) % 2 == 0 { Mode::Lossless } else { Mode::Lossy };
                    let mut listeners = attach(socket, mode, "visitor").unwrap_or_else(|e| panic!("{round}: {e}"));
                    let mut batch = Vec::new();
                    listeners[0].next(64, &mut batch);
                    // It begins between two records, and what it is given are whole ones.
                    for desc in batch.iter().filter(|d| d.is_packet()) {
                        assert_eq!((desc.caplen, desc.wire_len), (200, 200));
                        assert!(sequence(&listeners[0], desc).is_some() || mode == Mode::Lossy);
                    }
                }
            });
        }
    });
    until("all visitors are gone", || capture.report().listeners.len() == 1);
    let sent = {
        let ended = stop(capture, &plan);
        assert_eq!(ended.report.counts.lost_total, 0, "{:?}", ended.report);
        ended.report.counts.stored
    };
    let options = checker::Options { sent: Some(sent), file_by_file: false };
    assert!(checker::check(&[dir.join("store")], options).expect("a check").is_complete());
}

#[test]
fn a_stuck_gate_is_named_in_the_losses_and_then_no_longer_waited_for() {
    let dir = TempDir::new("stuck");
    let plan = Plan { reader_timeout: Some(Duration::from_secs(1)), ..with_socket("1000,rate=20kpps,truth", &dir) };
    let capture = start(&plan);
    let mut process = listener_process(&plan, "gate");
    until("it listens", || is_listening(&capture));
    process.signal("STOP");
    let lost = || lost_because_of_it(&capture.report());
    until("it makes the engine drop", || lost() > 0);
    until("it is no longer waited for", || capture.report().listeners.iter().any(|l| l.expired));
    // A batch may have been under way at that moment; after one more packet the number stands.
    let stored = capture.report().counts.stored;
    until("packets are stored again", || capture.report().counts.stored > stored);
    let because_of_it = lost();
    until("and go on being stored", || capture.report().counts.stored > stored + 10_000);
    assert_eq!(lost(), because_of_it);
    process.kill();
    until("it is off the list", || !is_listed(&capture));
    let ended = stop(capture, &plan);
    assert_eq!(lost_because_of_it(&ended.report), because_of_it);
    assert_eq!(ended.report.lost_by_reader.values().sum::<u64>(), ended.lost(Cause::RingFull));
    assert_eq!(ended.lost(Cause::RingFull), ended.report.counts.lost_total);
}

#[test]
fn a_gate_stuck_at_the_end_does_not_keep_the_end_from_coming() {
    let dir = TempDir::new("stuck_end");
    // Short packets: the descriptors run out, and with them the room for the end itself.
    let wanted = with_socket("60,rate=150kpps,truth", &dir);
    let plan = Plan { reader_timeout: Some(Duration::from_secs(4)), ring: Some(common::RING), ..wanted };
    let capture = start(&plan);
    let process = listener_process(&plan, "gate");
    until("it listens", || is_listening(&capture));
    process.signal("STOP");
    until("it makes the engine drop", || lost_because_of_it(&capture.report()) > 0);
    let ended = stop(capture, &plan);
    assert!(ended.outcome.is_ok() && lost_because_of_it(&ended.report) > 0);
}

#[test]
fn killed_listeners_free_their_places() {
    let dir = TempDir::new("killed");
    let plan = with_socket("200,rate=10kpps,truth", &dir);
    let capture = start(&plan);
    for mode in ["gate", "lossy"] {
        let mut process = listener_process(&plan, mode);
        until("it listens", || is_listening(&capture));
        process.kill();
        until("it is off the list", || !is_listed(&capture));
    }
    assert_eq!(stop(capture, &plan).report.counts.lost_total, 0);
}

#[test]
fn a_slow_lossy_listener_counts_what_it_missed_to_the_packet_and_hurts_nobody() {
    const SENT: u64 = 200_000;
    let dir = TempDir::new("slow");
    // Three times round the ring, which has 65 536 descriptors.
    let wanted = with_socket(&format!("100,rate=100kpps,packets={SENT},truth"), &dir);
    let plan = Plan { ring: Some(common::RING), ..wanted };
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
    until("everything was sent", || capture.report().counts.offered == SENT);
    let mut last = None;
    while slow.lag() > 0 {
        slow.next(1024, &mut batch);
        last = batch.iter().rev().find(|d| d.is_packet()).and_then(|d| sequence(&slow, d)).or(last);
    }
    let heard = slow.counts();
    let ended = end(capture, &plan);
    assert_eq!(ended.report.counts.offered, SENT);
    // A volume that is slow for a moment may cost the recording packets, but then they were never published either.
    let first = first.expect("the first");
    let stored: Vec<u64> = ended.packets().map(|p| number(&p.bytes)).filter(|n| *n >= first).collect();
    assert_eq!(last, stored.last().copied());
    assert_eq!((heard.published, heard.waiting), (stored.len() as u64, 0));
    assert_eq!(heard.seen + heard.missed, heard.published);
    assert!(heard.missed > SENT / 2, "{heard:?}");
    assert!(!ended.report.lost_by_reader.keys().any(|name| name.starts_with("slow")));
}
