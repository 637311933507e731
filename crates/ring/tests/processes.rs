//! Listeners in other processes: they attach, detach, are killed, and attack the shared memory.
#![cfg(not(loom))]

mod support;

use netgrain_ring::{AttachError, AttachPolicy, Mode, attach};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use support::{Engine, compile, config, number, socket_path, until};

const ROLE: &str = "NETGRAIN_TEST_ROLE";
const SOCKET: &str = "NETGRAIN_TEST_SOCKET";

/// A child process that runs this test program as [`the_body_of_another_process`] in a role.
struct ChildProcess {
    child: Child,
    /// The standard input of the child. When the parent closes it, the child takes the next step of its role, or ends.
    stdin: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
}

impl ChildProcess {
    fn start(role: &str, socket: &Path) -> Self {
        Self::spawn(Self::command(role, socket))
    }

    fn command(role: &str, socket: &Path) -> Command {
        // The program's own path is not used, because some of these processes change their user, who may not be
        // permitted to read that directory.
        let mut command = Command::new("/proc/self/exe");
        command.args(["--exact", "the_body_of_another_process", "--ignored", "--nocapture"]);
        command.env(ROLE, role).env(SOCKET, socket).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    }

    fn spawn(mut command: Command) -> Self {
        let mut child = command.spawn().expect("this program can be started again");
        let stdin = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, stdin, lines }
    }

    /// The next line that the child prints after `> `.
    fn next_line(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.lines.read_line(&mut line).expect("its output"), 0, "the process ended without output");
            if let Some((_, line)) = line.split_once("> ") {
                return line.trim_end().to_owned();
            }
        }
    }

    fn close_stdin(&mut self) {
        drop(self.stdin.take());
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "runs in the child processes that the other tests start"]
fn the_body_of_another_process() {
    let (Ok(role), Some(socket)) = (std::env::var(ROLE), std::env::var_os(SOCKET)) else { return };
    let socket = Path::new(&socket);
    let mode = if role.ends_with("lossless") { Mode::Lossless } else { Mode::Lossy };
    let line = match role.split(' ').next() {
        Some("read") => read(socket, mode),
        Some("hold") => hold_packets(socket, mode),
        Some("storm") => join_repeatedly(socket, 200),
        Some("silent") => {
            let connections: Vec<_> = (0..300).map(|_| sys::unix::Connection::connect(socket)).collect();
            println!("> {} connections", connections.len());
            wait_for_parent();
            Ok("done".into())
        }
        Some("many") => {
            let mut all = Vec::new();
            let why = loop {
                match attach(socket, mode, "greedy") {
                    Ok(listener) => all.push(listener),
                    Err(why) => break why,
                }
            };
            println!("> {} listeners, then {why}", all.len());
            wait_for_parent();
            Ok("done".into())
        }
        Some("try") => attach(socket, mode, "trying").map(|_| "attached".to_owned()),
        Some("engine") => {
            let engine = Engine::start_at(socket, config(), 0o600, AttachPolicy::default());
            println!("> open");
            until("the listener is attached", || engine.registry.listeners().len() == 1);
            engine.feed(u64::MAX);
            wait_for_parent();
            Ok("done".into())
        }
        other => panic!("no such role: {other:?}"),
    };
    println!("> {}", line.unwrap_or_else(|e| e.to_string()));
}

/// Waits until the parent closes standard input.
fn wait_for_parent() {
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
}

/// Reads to the end and checks that packets are complete and in order, and that each packet is counted as either seen
/// or missed.
fn read(socket: &Path, mode: Mode) -> Result<String, AttachError> {
    let mut l = attach(socket, mode, "reader")?.remove(0);
    println!("> attached");
    let (mut descs, mut buffer) = (Vec::new(), Vec::new());
    let (mut last, mut whole, mut overwritten) = (None, 0u64, 0u64);
    while !l.ended() {
        l.next(500, &mut descs);
        for d in descs.iter().filter(|d| d.is_packet()) {
            match l.packet(d, &mut buffer).map(number) {
                Some(n) => {
                    assert!(last < Some(n), "packet {n} after {last:?}");
                    assert_eq!(d.hash, n as u32, "descriptor and bytes are of one packet");
                    last = Some(n);
                    whole += 1;
                }
                None => overwritten += 1,
            }
        }
        if descs.is_empty() {
            std::thread::yield_now();
        }
    }
    let counts = l.counts();
    assert_eq!(whole + overwritten, counts.seen);
    assert_eq!((counts.seen + counts.missed, counts.waiting), (counts.published, 0));
    Ok(format!("seen {} missed {} overwritten {overwritten}", counts.seen, counts.missed))
}

/// Attaches and releases nothing until the parent closes standard input.
fn hold_packets(socket: &Path, mode: Mode) -> Result<String, AttachError> {
    let mut l = attach(socket, mode, "holder")?.remove(0);
    let mut descs = Vec::new();
    println!("> holding");
    wait_for_parent();
    l.next(10, &mut descs);
    Ok(format!("expired {}", l.expired()))
}

/// Attaches and detaches repeatedly, and checks the first packets each time.
fn join_repeatedly(socket: &Path, times: usize) -> Result<String, AttachError> {
    let (mut descs, mut buffer) = (Vec::new(), Vec::new());
    for i in 0..times {
        let mode = if i % 4 == 0 { Mode::Lossless } else { Mode::Lossy };
        let mut l = attach(socket, mode, "member")?.remove(0);
        l.next(64, &mut descs);
        for d in descs.iter().filter(|d| d.is_packet()) {
            if let Some(bytes) = l.packet(d, &mut buffer) {
                number(bytes);
            }
        }
        assert!(mode == Mode::Lossy || l.counts().missed == 0, "a lossless listener misses nothing");
    }
    Ok("done".into())
}

fn number_after(text: &str, word: &str) -> u64 {
    let mut words = text.split(' ').skip_while(|w| *w != word).skip(1);
    words.next().and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("no number after {word:?} in {text:?}"))
}

#[test]
fn killed_listeners_free_their_slots_and_no_longer_block_the_producer() {
    let engine = Engine::start("killed", config());
    let mut lossy = ChildProcess::start("hold lossy", &engine.path);
    let mut lossless = ChildProcess::start("hold lossless", &engine.path);
    assert_eq!((lossy.next_line(), lossless.next_line()), ("holding".into(), "holding".into()));
    assert_eq!(engine.registry.listeners().len(), 2);
    engine.feed(u64::MAX);
    until("the ring is full because of the lossless listener", || engine.lost() > 1000);

    lossy.child.kill().expect("SIGKILL");
    until("the lossy listener's slot is free", || engine.registry.listeners().len() == 1);
    lossless.child.kill().expect("SIGKILL");
    until("the lossless listener's slot is free", || engine.registry.listeners().is_empty());
    // The producer may still be writing a batch; after that batch no packet is lost while the whole ring is overwritten
    // once.
    let at = engine.offered();
    until("a batch has passed", || engine.offered() > at + 128);
    let lost = engine.lost();
    until("the producer has overwritten the whole ring", || engine.offered() > at + 100_000);
    assert_eq!(engine.lost(), lost, "no packet is lost after the lossless listener has left");
    let losses = engine.registry.lost_by_reader();
    let (name, packets) = losses.first_key_value().expect("the losses by the lossless listener");
    assert_eq!(*name, format!("holder (pid {})", lossless.child.id()));
    assert_eq!(*packets, lost, "every loss is attributed to the listener");
}

#[test]
fn a_lossless_listener_that_does_not_release_expires_and_can_read_that() {
    let engine =
        Engine::start("expired", netgrain_ring::Config { reader_timeout: Some(Duration::from_millis(5)), ..config() });
    let mut lossless = ChildProcess::start("hold lossless", &engine.path);
    assert_eq!(lossless.next_line(), "holding");
    engine.feed(u64::MAX);
    until("the reader timeout expires", || engine.registry.listeners().iter().any(|l| l.expired));
    lossless.close_stdin();
    assert_eq!(lossless.next_line(), "expired true");
}

#[test]
fn listeners_in_other_processes_read_each_packet_or_count_it_as_missed() {
    const PACKETS: u64 = 200_000;
    let mut engine = Engine::start("read", config());
    let mut others = ["read lossless", "read lossy", "read lossy"].map(|role| ChildProcess::start(role, &engine.path));
    for child in &mut others {
        assert_eq!(child.next_line(), "attached");
    }
    engine.feed(PACKETS);
    let tally = engine.finish();
    assert_eq!(tally.offered, PACKETS);
    for (i, child) in others.iter_mut().enumerate() {
        let line = child.next_line();
        let (seen, missed) = (number_after(&line, "seen"), number_after(&line, "missed"));
        assert_eq!(seen + missed, tally.stored, "{line}");
        assert!(seen > 0, "{line}");
        assert!(
            i > 0 || (missed == 0 && line.ends_with("overwritten 0")),
            "a lossless listener misses nothing: {line}"
        );
    }
}

#[test]
fn a_thousand_listeners_of_threads_and_processes_come_and_go_under_load() {
    let mut engine = Engine::start("storm", config());
    engine.feed(u64::MAX);
    let mut processes = [0, 1].map(|_| ChildProcess::start("storm", &engine.path));
    let threads = [0, 1, 2].map(|_| {
        let path = engine.path.clone();
        std::thread::spawn(move || join_repeatedly(&path, 200).expect("attached each time"))
    });
    for thread in threads {
        assert_eq!(thread.join().expect("no panic"), "done");
    }
    for process in &mut processes {
        assert_eq!(process.next_line(), "done");
    }
    until("all listeners have left", || engine.registry.listeners().is_empty());
    engine.pause();
    let tally = engine.finish();
    assert_eq!(tally.offered, engine.offered());
}

#[test]
fn listeners_detect_a_killed_engine_and_can_read_its_last_packets() {
    let path = socket_path("death");
    let mut engine = ChildProcess::start("engine", &path);
    assert_eq!(engine.next_line(), "open");
    let mut l = attach(&path, Mode::Lossy, "survivor").expect("attached").remove(0);
    assert!(l.connected());
    until("packets flow", || l.lag() > 100);
    engine.child.kill().expect("SIGKILL");
    until("the listener detects the end of the engine", || !l.connected());
    assert!(!l.ended(), "the stream has no end mark, because the engine was killed");

    let (mut descs, mut buffer) = (Vec::new(), Vec::new());
    while l.lag() > 0 {
        l.next(1000, &mut descs);
        for d in descs.iter().filter(|d| d.is_packet()) {
            l.packet(d, &mut buffer).map(number);
        }
    }
    let counts = l.counts();
    assert!(counts.seen > 0 && counts.seen + counts.missed >= counts.published, "{counts:?}");
    match attach(&path, Mode::Lossy, "late") {
        Err(AttachError::Unreachable(_)) => {}
        other => panic!("no engine runs, and yet: {other:?}"),
    }
    // The socket file of the dead engine does not prevent the start of a new engine.
    let engine = Engine::start_at(&path, config(), 0o600, AttachPolicy::default());
    attach(&engine.path, Mode::Lossy, "again").expect("attached");
}

#[test]
fn a_listener_cannot_change_the_shared_memories() {
    const TEST: &str = "a_listener_cannot_change_the_shared_memories";
    let directory = testkit::TempDir::new("attack");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attack.c");
    let Some(program) = compile(TEST, "cc", &["-std=c11"], &source, &directory) else { return };
    let mut engine = Engine::start("attack", config());
    // Half a ring of packets. A lossless listener has not released them, so they must be intact afterwards.
    let mut witness = attach(&engine.path, Mode::Lossless, "witness").expect("attached").remove(0);
    engine.feed(5_000);
    until("the packets are offered", || engine.offered() == 5_000);
    let mut attacker = Command::new(&program);
    attacker.arg(&engine.path).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut attacker = ChildProcess::spawn(attacker);
    assert_eq!(attacker.next_line(), "done");
    // The attacker is a lossless listener: the producer reads the attacker's cursor page whenever it needs space.
    engine.feed(50_000);
    until("the ring is full and the cursor pages were read", || engine.lost() > 1000);
    drop(attacker);

    let (mut descs, mut buffer, mut next) = (Vec::new(), Vec::new(), 0);
    while next < 5_000 {
        witness.next(1000, &mut descs);
        for d in descs.iter().filter(|d| d.is_packet()).take(5_000 - next as usize) {
            assert_eq!(witness.packet(d, &mut buffer).map(number), Some(next));
            assert_eq!(witness.first_bytes(d, 8, &mut buffer), Some(&next.to_le_bytes()[..]));
            next += 1;
        }
    }
    drop(witness);
    until("all listeners have left", || engine.registry.listeners().is_empty());
    let tally = engine.finish();
    assert_eq!((tally.offered, tally.stored + engine.lost()), (50_000, 50_000));
}

#[test]
fn other_users_are_refused_with_a_reason_and_the_socket_has_its_mode() {
    const TEST: &str = "other_users_are_refused_with_a_reason_and_the_socket_has_its_mode";
    const OTHER_USER: u32 = 65_534;
    if !sys::cpu::is_root() {
        return testkit::skip(TEST, "needs root to become another user");
    }
    let mode = |path: &Path| std::fs::metadata(path).expect("a socket file").permissions().mode() & 0o7777;
    let run_as_other_user = |role: &str, path: &Path| {
        let mut command = ChildProcess::command(role, path);
        command.uid(OTHER_USER).gid(OTHER_USER);
        ChildProcess::spawn(command).next_line()
    };
    let private = Engine::start("private", config());
    assert_eq!(mode(&private.path), 0o600);
    assert_eq!(
        run_as_other_user("try lossy", &private.path),
        "permission denied on the engine's socket; run as its owner or a member of its group"
    );

    let open = Engine::start_at(&socket_path("open"), config(), 0o666, AttachPolicy::default());
    assert_eq!(mode(&open.path), 0o666);
    assert_eq!(
        run_as_other_user("try lossy", &open.path),
        "the engine refused: user 65534 may not listen to this engine; the engine's owner can permit it"
    );

    let policy = AttachPolicy { uid: Some(OTHER_USER), ..AttachPolicy::default() };
    let lossy_only = Engine::start_at(&socket_path("lossy"), config(), 0o666, policy);
    assert_eq!(run_as_other_user("try lossy", &lossy_only.path), "attached");
    assert_eq!(
        run_as_other_user("try lossless", &lossy_only.path),
        "the engine refused: user 65534 may attach lossy listeners, but no lossless listeners"
    );

    let policy = AttachPolicy { gid: Some(OTHER_USER), allow_lossless: true, ..AttachPolicy::default() };
    let members = Engine::start_at(&socket_path("lossless"), config(), 0o666, policy);
    assert_eq!(run_as_other_user("try lossless", &members.path), "attached");
    for engine in [&private, &open, &lossy_only, &members] {
        until("all listeners have left", || engine.registry.listeners().is_empty());
    }
}

#[test]
fn limits_per_user_leave_slots_to_other_users_and_to_the_owner() {
    const TEST: &str = "limits_per_user_leave_slots_to_other_users_and_to_the_owner";
    const GROUP: u32 = 65_534;
    if !sys::cpu::is_root() {
        return testkit::skip(TEST, "needs root to become other users");
    }
    let policy = AttachPolicy { gid: Some(GROUP), ..AttachPolicy::default() };
    let engine = Engine::start_at(&socket_path("room"), config(), 0o666, policy);
    let start = |role: &str, uid: u32, gid: u32| {
        let mut command = ChildProcess::command(role, &engine.path);
        command.uid(uid).gid(gid);
        ChildProcess::spawn(command)
    };
    let mut processes: Vec<_> = (1001..=1004).map(|uid| start("many lossy", uid, GROUP)).collect();
    let mut counts = Vec::new();
    for child in &mut processes {
        let line = child.next_line();
        let (count, why) = line.split_once(" listeners, then the engine refused: ").unwrap_or_else(|| panic!("{line}"));
        assert!(why.contains("limit of listeners"), "{why}");
        counts.push(count.parse::<usize>().expect("a number"));
    }
    assert!(counts.iter().all(|n| *n <= 16), "{counts:?}");
    assert_eq!(counts.iter().sum::<usize>(), 48, "{counts:?}");
    attach(&engine.path, Mode::Lossy, "owner").expect("slots are reserved for the owner");
    drop(processes);
    until("all listeners have left", || engine.registry.listeners().is_empty());

    // Idle connections prevent no listener from attaching, whether the users of these connections may listen or not.
    let mut idle = [(1001, GROUP), (1002, GROUP), (1003, 1003)].map(|(uid, gid)| start("silent", uid, gid));
    for child in &mut idle {
        assert_eq!(child.next_line(), "300 connections");
    }
    attach(&engine.path, Mode::Lossy, "owner").expect("attached");
    assert_eq!(start("try lossy", 1001, GROUP).next_line(), "attached");
    assert_eq!(start("try lossy", 1004, GROUP).next_line(), "attached");
}
