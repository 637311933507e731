//! Listeners that are processes of their own: they come, go, are killed, and try to do harm.
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

/// This very program in a process of its own, doing what [`the_body_of_another_process`] does in this role.
struct Other {
    child: Child,
    /// Told to go on, or ended, by closing this.
    stdin: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
}

impl Other {
    fn start(role: &str, socket: &Path) -> Self {
        Self::spawn(Self::command(role, socket))
    }

    fn command(role: &str, socket: &Path) -> Command {
        // Not by its path: the folder may be closed to the user that some of these processes become.
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

    /// The next thing it says.
    fn says(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.lines.read_line(&mut line).expect("its output"), 0, "the process ended without a word");
            if let Some((_, said)) = line.split_once("> ") {
                return said.trim_end().to_owned();
            }
        }
    }

    fn go_on(&mut self) {
        drop(self.stdin.take());
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "the body of the processes that the other tests start"]
fn the_body_of_another_process() {
    let (Ok(role), Some(socket)) = (std::env::var(ROLE), std::env::var_os(SOCKET)) else { return };
    let socket = Path::new(&socket);
    let mode = if role.ends_with("gate") { Mode::Lossless } else { Mode::Lossy };
    let said = match role.split(' ').next() {
        Some("read") => read(socket, mode),
        Some("hold") => hold(socket, mode),
        Some("storm") => storm(socket, 200),
        Some("silent") => {
            let crowd: Vec<_> = (0..300).map(|_| sys::unix::Connection::connect(socket)).collect();
            println!("> {} of us", crowd.len());
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
            println!("> {} and then {why}", all.len());
            wait_for_parent();
            Ok("done".into())
        }
        Some("try") => attach(socket, mode, "trying").map(|_| "welcome".to_owned()),
        Some("engine") => {
            let engine = Engine::start_at(socket, config(), 0o600, AttachPolicy::default());
            println!("> open");
            until("the listener is there", || engine.registry.listeners().len() == 1);
            engine.feed(u64::MAX);
            wait_for_parent();
            Ok("done".into())
        }
        other => panic!("no such role: {other:?}"),
    };
    println!("> {}", said.unwrap_or_else(|e| e.to_string()));
}

/// Until the parent closes our standard input.
fn wait_for_parent() {
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
}

/// Reads to the end and checks everything on the way: whole packets, in order, each either seen or missed.
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
    let heard = l.counts();
    assert_eq!(whole + overwritten, heard.seen);
    assert_eq!((heard.seen + heard.missed, heard.waiting), (heard.published, 0));
    Ok(format!("seen {} missed {} overwritten {overwritten}", heard.seen, heard.missed))
}

/// Takes some packets and never asks for the next.
fn hold(socket: &Path, mode: Mode) -> Result<String, AttachError> {
    let mut l = attach(socket, mode, "holder")?.remove(0);
    let mut descs = Vec::new();
    println!("> holding");
    wait_for_parent();
    l.next(10, &mut descs);
    Ok(format!("expired {}", l.expired()))
}

/// Comes and goes, and looks whether each time it begins on a record.
fn storm(socket: &Path, times: usize) -> Result<String, AttachError> {
    let (mut descs, mut buffer) = (Vec::new(), Vec::new());
    for i in 0..times {
        let mode = if i % 4 == 0 { Mode::Lossless } else { Mode::Lossy };
        let mut l = attach(socket, mode, "guest")?.remove(0);
        l.next(64, &mut descs);
        for d in descs.iter().filter(|d| d.is_packet()) {
            if let Some(bytes) = l.packet(d, &mut buffer) {
                number(bytes);
            }
        }
        assert!(mode == Mode::Lossy || l.counts().missed == 0, "a gate misses nothing");
    }
    Ok("done".into())
}

fn number_after(text: &str, word: &str) -> u64 {
    let mut words = text.split(' ').skip_while(|w| *w != word).skip(1);
    words.next().and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("no number after {word:?} in {text:?}"))
}

#[test]
fn a_killed_listener_frees_its_slot_and_a_killed_gate_stops_blocking() {
    let engine = Engine::start("killed", config());
    let mut lossy = Other::start("hold lossy", &engine.path);
    let mut gate = Other::start("hold gate", &engine.path);
    assert_eq!((lossy.says(), gate.says()), ("holding".into(), "holding".into()));
    assert_eq!(engine.registry.listeners().len(), 2);
    engine.feed(u64::MAX);
    until("the ring is full because of the gate", || engine.lost() > 1000);

    lossy.child.kill().expect("SIGKILL");
    until("the lossy listener's slot is free", || engine.registry.listeners().len() == 1);
    gate.child.kill().expect("SIGKILL");
    until("the gate's slot is free", || engine.registry.listeners().is_empty());
    // A batch may have been under way; what comes after it must find room, a whole lap of it.
    let at = engine.offered();
    until("a batch has passed", || engine.offered() > at + 128);
    let lost = engine.lost();
    until("the writer has gone round the ring", || engine.offered() > at + 100_000);
    assert_eq!(engine.lost(), lost, "nothing is lost once the gate is gone");
    let blamed = engine.registry.lost_by_reader();
    let (name, packets) = blamed.first_key_value().expect("the gate is remembered");
    assert_eq!(*name, format!("holder (pid {})", gate.child.id()));
    assert_eq!(*packets, lost, "every loss has its name");
}

#[test]
fn a_gate_that_holds_too_long_is_expired_and_told_so() {
    let engine =
        Engine::start("expired", netgrain_ring::Config { reader_timeout: Some(Duration::from_millis(5)), ..config() });
    let mut gate = Other::start("hold gate", &engine.path);
    assert_eq!(gate.says(), "holding");
    engine.feed(u64::MAX);
    until("the writer gives the gate up", || engine.registry.listeners().iter().any(|l| l.expired));
    gate.go_on();
    assert_eq!(gate.says(), "expired true");
}

#[test]
fn listeners_in_other_processes_hear_everything_or_know_what_they_missed() {
    const PACKETS: u64 = 200_000;
    let mut engine = Engine::start("hear", config());
    let mut others = ["read gate", "read lossy", "read lossy"].map(|role| Other::start(role, &engine.path));
    for other in &mut others {
        assert_eq!(other.says(), "attached");
    }
    engine.feed(PACKETS);
    let tally = engine.finish();
    assert_eq!(tally.offered, PACKETS);
    for (i, other) in others.iter_mut().enumerate() {
        let said = other.says();
        let (seen, missed) = (number_after(&said, "seen"), number_after(&said, "missed"));
        assert_eq!(seen + missed, tally.stored, "{said}");
        assert!(seen > 0, "{said}");
        assert!(i > 0 || (missed == 0 && said.ends_with("overwritten 0")), "a gate misses nothing: {said}");
    }
}

#[test]
fn a_thousand_come_and_go_from_threads_and_processes_while_packets_flow() {
    let mut engine = Engine::start("storm", config());
    engine.feed(u64::MAX);
    let mut processes = [0, 1].map(|_| Other::start("storm", &engine.path));
    let threads = [0, 1, 2].map(|_| {
        let path = engine.path.clone();
        std::thread::spawn(move || storm(&path, 200).expect("welcome each time"))
    });
    for thread in threads {
        assert_eq!(thread.join().expect("no panic"), "done");
    }
    for process in &mut processes {
        assert_eq!(process.says(), "done");
    }
    until("everybody has left", || engine.registry.listeners().is_empty());
    engine.pause();
    let tally = engine.finish();
    assert_eq!(tally.offered, engine.offered());
}

#[test]
fn an_engine_that_is_killed_is_missed_and_what_it_published_stays_readable() {
    let path = socket_path("death");
    let mut engine = Other::start("engine", &path);
    assert_eq!(engine.says(), "open");
    let mut l = attach(&path, Mode::Lossy, "mourner").expect("welcome").remove(0);
    assert!(l.connected());
    until("packets flow", || l.lag() > 100);
    engine.child.kill().expect("SIGKILL");
    until("the listener notices", || !l.connected());
    assert!(!l.ended(), "it did not end, it died");

    let (mut descs, mut buffer) = (Vec::new(), Vec::new());
    while l.lag() > 0 {
        l.next(1000, &mut descs);
        for d in descs.iter().filter(|d| d.is_packet()) {
            l.packet(d, &mut buffer).map(number);
        }
    }
    let heard = l.counts();
    assert!(heard.seen > 0 && heard.seen + heard.missed >= heard.published, "{heard:?}");
    match attach(&path, Mode::Lossy, "late") {
        Err(AttachError::Unreachable(_)) => {}
        other => panic!("nobody is there, and yet: {other:?}"),
    }
    // The dead engine's socket file is in nobody's way.
    let engine = Engine::start_at(&path, config(), 0o600, AttachPolicy::default());
    attach(&engine.path, Mode::Lossy, "again").expect("welcome");
}

#[test]
fn a_listener_that_attacks_the_memories_gets_errors_and_changes_nothing() {
    const TEST: &str = "a_listener_that_attacks_the_memories_gets_errors_and_changes_nothing";
    let folder = testkit::TempDir::new("attack");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attack.c");
    let Some(program) = compile(TEST, "cc", &["-std=c11"], &source, &folder) else { return };
    let mut engine = Engine::start("attack", config());
    // Half a ring of packets, held by a gate so that they must be there afterwards.
    let mut witness = attach(&engine.path, Mode::Lossless, "witness").expect("welcome").remove(0);
    engine.feed(5_000);
    until("the packets are there", || engine.offered() == 5_000);
    let mut attacker = Command::new(&program);
    attacker.arg(&engine.path).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut attacker = Other::spawn(attacker);
    assert_eq!(attacker.says(), "done");
    // The attacker is a gate: each look for room is a look at its page.
    engine.feed(50_000);
    until("the ring is full and the gates were looked at", || engine.lost() > 1000);
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
    until("everybody has left", || engine.registry.listeners().is_empty());
    let tally = engine.finish();
    assert_eq!((tally.offered, tally.stored + engine.lost()), (50_000, 50_000));
}

#[test]
fn strangers_are_refused_in_words_and_the_socket_has_the_mode_it_was_given() {
    const TEST: &str = "strangers_are_refused_in_words_and_the_socket_has_the_mode_it_was_given";
    const NOBODY: u32 = 65_534;
    if !sys::cpu::is_root() {
        return testkit::skip(TEST, "needs root to become another user");
    }
    let mode = |path: &Path| std::fs::metadata(path).expect("a socket file").permissions().mode() & 0o7777;
    let as_nobody = |role: &str, path: &Path| {
        let mut command = Other::command(role, path);
        command.uid(NOBODY).gid(NOBODY);
        Other::spawn(command).says()
    };
    let private = Engine::start("private", config());
    assert_eq!(mode(&private.path), 0o600);
    assert_eq!(
        as_nobody("try lossy", &private.path),
        "permission denied on the engine's socket; run as its owner or a member of its group"
    );

    let open = Engine::start_at(&socket_path("open"), config(), 0o666, AttachPolicy::default());
    assert_eq!(mode(&open.path), 0o666);
    assert_eq!(
        as_nobody("try lossy", &open.path),
        "the engine refused: user 65534 may not listen here; the engine's owner can allow it"
    );

    let policy = AttachPolicy { uid: Some(NOBODY), ..AttachPolicy::default() };
    let lossy_only = Engine::start_at(&socket_path("lossy"), config(), 0o666, policy);
    assert_eq!(as_nobody("try lossy", &lossy_only.path), "welcome");
    assert_eq!(
        as_nobody("try gate", &lossy_only.path),
        "the engine refused: user 65534 may listen, but not losslessly"
    );

    let policy = AttachPolicy { gid: Some(NOBODY), allow_lossless: true, ..AttachPolicy::default() };
    let members = Engine::start_at(&socket_path("gates"), config(), 0o666, policy);
    assert_eq!(as_nobody("try gate", &members.path), "welcome");
    for engine in [&private, &open, &lossy_only, &members] {
        until("everybody has left", || engine.registry.listeners().is_empty());
    }
}

#[test]
fn users_of_the_group_leave_room_for_each_other_and_for_the_owner() {
    const TEST: &str = "users_of_the_group_leave_room_for_each_other_and_for_the_owner";
    const GROUP: u32 = 65_534;
    if !sys::cpu::is_root() {
        return testkit::skip(TEST, "needs root to become other users");
    }
    let policy = AttachPolicy { gid: Some(GROUP), ..AttachPolicy::default() };
    let engine = Engine::start_at(&socket_path("room"), config(), 0o666, policy);
    let start = |role: &str, uid: u32, gid: u32| {
        let mut command = Other::command(role, &engine.path);
        command.uid(uid).gid(gid);
        Other::spawn(command)
    };
    let mut greedy: Vec<_> = (1001..=1004).map(|uid| start("many lossy", uid, GROUP)).collect();
    let mut counts = Vec::new();
    for other in &mut greedy {
        let said = other.says();
        let (count, why) = said.split_once(" and then the engine refused: ").unwrap_or_else(|| panic!("{said}"));
        assert!(why.contains("as many listeners"), "{why}");
        counts.push(count.parse::<usize>().expect("a number"));
    }
    assert!(counts.iter().all(|n| *n <= 16), "{counts:?}");
    assert_eq!(counts.iter().sum::<usize>(), 48, "{counts:?}");
    attach(&engine.path, Mode::Lossy, "owner").expect("welcome to the room that is kept for the owner");
    drop(greedy);
    until("everybody has left", || engine.registry.listeners().is_empty());

    // Silence of users that may listen, and of users that may not, keeps nobody out.
    let mut silent = [(1001, GROUP), (1002, GROUP), (1003, 1003)].map(|(uid, gid)| start("silent", uid, gid));
    for other in &mut silent {
        assert_eq!(other.says(), "300 of us");
    }
    attach(&engine.path, Mode::Lossy, "owner").expect("welcome");
    assert_eq!(start("try lossy", 1001, GROUP).says(), "welcome");
    assert_eq!(start("try lossy", 1004, GROUP).says(), "welcome");
}
