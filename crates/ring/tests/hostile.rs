//! Hostile peers on both sides of the socket: invalid messages do not harm the server, and a hostile engine does not
//! harm a listener.
//!
//! Random tests print their seed; `NETGRAIN_FUZZ_ITERS` multiplies the number of their rounds.
#![cfg(not(loom))]

mod support;

use base::Prng;
use netgrain_ring::{AttachError, BLOCK, ControlPage, DESC_BYTES, Listener, Mode, RingParameters, attach};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use support::{Engine, compile, config, number, socket_path, until};
use sys::memory::SharedMemory;
use sys::unix::Connection;

const MAGIC: u64 = u64::from_le_bytes(*b"NGRING1\0");
const HELLO: usize = 88;
const WELCOME: usize = 128;
const RING: usize = 40;

fn iterations(usual: u64) -> u64 {
    let text = std::env::var("NETGRAIN_FUZZ_ITERS").unwrap_or_else(|_| "1".into());
    usual * text.parse::<u64>().expect("NETGRAIN_FUZZ_ITERS is a number")
}

fn words(words: &[u64], len: usize) -> Vec<u8> {
    let mut message: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    message.resize(len, 0);
    message
}

/// A number near a limit, or a random number.
fn boundary_value(prng: &mut Prng) -> u64 {
    let near = prng.below(3).wrapping_sub(1);
    match prng.below(6) {
        0 => 0,
        1 => u64::MAX,
        2 => (1u64 << prng.below(64)).wrapping_add(near),
        3 => prng.below(1 << 20),
        4 => u64::MAX - prng.below(1 << 20),
        _ => prng.next_u64(),
    }
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("proc").count()
}

/// Checks that an honest listener is admitted and receives complete packets.
fn check_honest_listener(engine: &Engine, goal: u64) {
    let mut l = attach(&engine.path, Mode::Lossless, "good").expect("attached").remove(0);
    engine.feed(goal);
    let (mut descs, mut buffer, mut packets) = (Vec::new(), Vec::new(), 0);
    while packets < 10 {
        l.next(64, &mut descs);
        for d in descs.iter().filter(|d| d.is_packet()) {
            number(l.packet(d, &mut buffer).expect("a lossless listener is not overtaken"));
            packets += 1;
        }
    }
}

#[test]
fn invalid_hellos_do_not_stop_the_server_from_admitting_listeners() {
    let mut prng = Prng::new(testkit::seed("invalid_hellos_do_not_stop_the_server_from_admitting_listeners"));
    let mut engine = Engine::start("garbage", config());
    check_honest_listener(&engine, 20);
    until("the honest listener has left", || engine.registry.listeners().is_empty());
    let before = open_descriptors();
    let null = File::open("/dev/null").expect("/dev/null");
    let mut goal = 20;
    for i in 0..iterations(400) {
        let unknown_client = Connection::connect(&engine.path).expect("the socket is served");
        unknown_client.set_timeout(Duration::from_secs(120)).expect("a timeout");
        let mut hello = words(&[MAGIC, 1, prng.below(2)], HELLO);
        prng.fill(&mut hello[24..]);
        match prng.below(6) {
            0 => {
                hello = vec![0; prng.below(300) as usize];
                prng.fill(&mut hello);
            }
            1 => hello.truncate(prng.below(HELLO as u64) as usize),
            2 => hello.extend_from_slice(&[0; 8]),
            3 | 4 => {
                for _ in 0..=prng.below(3) {
                    hello[prng.below(24) as usize] ^= 1 << prng.below(8);
                }
            }
            _ => {}
        }
        let extra_fds = vec![null.as_fd(); prng.below(3) as usize];
        let sent = unknown_client.send(&hello, &extra_fds);
        match prng.below(4) {
            // The client closes the connection before the response, after a part of the response, or after a second
            // message.
            0 => {}
            1 => drop(unknown_client.receive(&mut [0; WELCOME])),
            2 => drop(sent.and_then(|()| unknown_client.send(&hello, &[]))),
            _ => while unknown_client.receive(&mut [0; 256]).is_ok_and(|(n, fds)| n > 0 && fds.is_empty()) {},
        }
        drop(unknown_client);
        if i % 20 == 0 {
            goal += 20;
            check_honest_listener(&engine, goal);
        }
    }
    until("all listeners have left", || engine.registry.listeners().is_empty());
    until("all file descriptors are closed", || open_descriptors() <= before);
    assert_eq!(engine.finish().stored, goal);
}

#[test]
fn idle_connections_do_not_lock_out_a_listener() {
    let engine = Engine::start("crowd", config());
    let idle_connections: Vec<Connection> =
        (0..300).map(|_| Connection::connect(&engine.path).expect("a connection")).collect();
    let listener = attach(&engine.path, Mode::Lossy, "late").expect("attached beside the idle connections");
    // The server closes each idle connection, either to admit another connection or when the time limit for the Hello
    // message has passed.
    for unknown_client in &idle_connections {
        assert!(unknown_client.receive(&mut [0; WELCOME]).is_ok_and(|(n, _)| n == 0));
    }
    assert!(listener[0].connected());
}

/// The shared memory of an engine (packet bytes, descriptors, control page, cursor), in which the test can store any
/// value.
struct HostileEngine {
    bytes: SharedMemory,
    descs: SharedMemory,
    control: ControlPage,
    cursor: SharedMemory,
    null: File,
    shape: RingParameters,
}

impl HostileEngine {
    fn new() -> Self {
        let shape = RingParameters {
            bytes: 2 << 20,
            descs: 1 << 16,
            link_type: 1,
            snaplen: 65_535,
            queue: 0,
            name: "evil".into(),
        };
        let hostile = Self {
            bytes: SharedMemory::create("evil", shape.bytes as usize, true).expect("memory"),
            descs: SharedMemory::create("evil", shape.descs as usize * DESC_BYTES, true).expect("memory"),
            control: ControlPage::create(&shape).expect("memory"),
            cursor: SharedMemory::create("evil", 4096, false).expect("memory"),
            null: File::open("/dev/null").expect("/dev/null"),
            shape,
        };
        for memory in [&hostile.bytes, &hostile.descs, hostile.control.memory()] {
            memory.seal().expect("new memory");
        }
        hostile.cursor.seal_size().expect("new memory");
        hostile
    }

    fn put(memory: &SharedMemory, word: usize, value: u64) {
        assert!(word * 8 < memory.mapped());
        // SAFETY: the word is inside the mapping and aligned; all sides use atomics.
        unsafe { (*memory.base().cast::<AtomicU64>().add(word)).store(value, Ordering::Relaxed) };
    }

    /// Restores a valid control page, with published descriptors.
    fn restore(&mut self, prng: &mut Prng) {
        self.control = ControlPage::create(&self.shape).expect("memory");
        self.control.memory().seal().expect("new memory");
        let head = prng.below(1 << 17);
        self.control.positions().claim(head, head * 100);
        self.control.positions().publish(head, head / 50);
    }

    /// Stores random values in those words of the control page that a listener reads repeatedly: head, counts, claims
    /// and the end flag.
    fn scramble_positions(&self, prng: &mut Prng) {
        for word in [8, 9, 10, 11, 16, 17] {
            if prng.below(3) == 0 {
                Self::put(self.control.memory(), word, boundary_value(prng));
            }
        }
        // Words 9 and 11 of the control page both contain the number of control descriptors. The test usually makes
        // them equal, because a listener waits for some time if they differ.
        if prng.below(20) != 0 {
            let controls = boundary_value(prng);
            Self::put(self.control.memory(), 9, controls);
            Self::put(self.control.memory(), 11, controls);
        }
    }

    fn scramble_descriptors(&self, prng: &mut Prng) {
        for _ in 0..64 {
            Self::put(&self.descs, prng.below(self.shape.descs * 4) as usize, boundary_value(prng));
        }
    }

    /// Responds to one Hello with a valid or randomly damaged response.
    fn serve_attach(&mut self, client: &Connection, prng: &mut Prng) -> std::io::Result<()> {
        client.receive(&mut [0; HELLO])?;
        self.restore(prng);
        let mut welcome = words(&[MAGIC, 1, 1], WELCOME);
        let mut ring = words(&[self.shape.bytes, self.shape.descs, prng.below(1 << 17), 0, 0], RING);
        let unsealed = SharedMemory::create("loose", self.shape.bytes as usize, true)?;
        let mut fds: Vec<BorrowedFd<'_>> =
            vec![self.bytes.as_fd(), self.descs.as_fd(), self.control.memory().as_fd(), self.cursor.as_fd()];
        match prng.below(11) {
            0 => {
                welcome.truncate(prng.below(WELCOME as u64) as usize);
            }
            1 => welcome[16..24].copy_from_slice(&boundary_value(prng).to_le_bytes()),
            2 => prng.fill(&mut welcome[24..]),
            3 => {
                let at = 8 * prng.below(4) as usize;
                ring[at..at + 8].copy_from_slice(&boundary_value(prng).to_le_bytes());
            }
            4 => ring.truncate(prng.below(RING as u64) as usize),
            5 => {
                let (i, j) = (prng.below(4) as usize, prng.below(4) as usize);
                fds.swap(i, j);
            }
            6 => fds[prng.below(4) as usize] = self.null.as_fd(),
            7 => fds.truncate(prng.below(4) as usize),
            8 => {
                // Random sizes of the packet bytes or of the descriptors, equal in the control page and in the message.
                let size = if prng.below(2) == 0 { boundary_value(prng) } else { 1 << prng.below(64) };
                let field = prng.below(2) as usize;
                Self::put(self.control.memory(), 2 + field, size);
                ring[8 * field..8 * field + 8].copy_from_slice(&size.to_le_bytes());
            }
            // Memory of the correct size without the file seals that forbid truncation; the engine truncates this
            // memory later.
            9 => fds[if prng.below(2) == 0 { 0 } else { 3 }] = unsealed.as_fd(),
            _ => {}
        }
        if prng.below(3) == 0 {
            self.scramble_positions(prng);
        }
        client.send(&welcome, &[])?;
        client.send(&ring, &fds)?;
        File::from(unsealed.as_fd().try_clone_to_owned()?).set_len(0)
    }
}

/// Calls every method of a listener; no call may panic, hang or read outside of the mappings.
fn call_every_method(l: &mut Listener, hostile: &HostileEngine, prng: &mut Prng) {
    let (mut descs, mut buffer) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        hostile.scramble_positions(prng);
        hostile.scramble_descriptors(prng);
        l.next(if prng.below(4) == 0 { usize::MAX } else { 100 }, &mut descs);
        assert!(descs.len() as u64 <= l.shape().descs);
        for d in descs.iter().take(100) {
            let _ = (d.as_control(), d.end(), d.timestamp());
            assert!(l.packet(d, &mut buffer).is_none_or(|b| b.len() == usize::from(d.caplen)));
            assert!(l.record(d, &mut buffer).is_none_or(|b| b.len() == 16 + usize::from(d.caplen)));
        }
        let _ = (l.counts(), l.lag(), l.ended(), l.connected(), l.expired(), l.tally(), l.published());
        if prng.below(4) == 0 {
            let moved = l.rewind(boundary_value(prng));
            assert!(l.mode() == Mode::Lossy || !moved);
            let _ = (l.counts(), l.position());
        }
        l.report();
    }
}

#[test]
fn a_hostile_engine_cannot_make_a_listener_panic_hang_or_map_huge_sizes() {
    let name = "a_hostile_engine_cannot_make_a_listener_panic_hang_or_map_huge_sizes";
    let mut prng = Prng::new(testkit::seed(name));
    let path = socket_path("evil");
    let socket = sys::unix::Listener::bind(&path, 0o600, None, None).expect("a socket");
    let mut hostile = HostileEngine::new();
    let (mut welcome, mut refused) = (0, 0);
    for i in 0..iterations(600) {
        let mode = if prng.below(2) == 0 { Mode::Lossless } else { Mode::Lossy };
        let client = {
            let path = path.clone();
            std::thread::spawn(move || attach(&path, mode, "victim"))
        };
        let connection = socket.accept().expect("the listener connects");
        let served = hostile.serve_attach(&connection, &mut prng);
        // The engine sends no further message; a listener that waits for a message receives the end of the connection.
        drop(connection);
        match client.join().unwrap_or_else(|_| panic!("attach panicked in round {i} ({served:?})")) {
            Ok(mut rings) => {
                welcome += 1;
                let shape = rings[0].shape().clone();
                assert!(shape.bytes >= BLOCK, "{shape:?}");
                assert!(
                    shape.bytes <= hostile.bytes.len() as u64,
                    "the mapping is no larger than the memory: {shape:?}"
                );
                assert!(shape.descs * DESC_BYTES as u64 <= hostile.descs.len() as u64, "{shape:?}");
                call_every_method(&mut rings[0], &hostile, &mut prng);
            }
            Err(e) => {
                refused += 1;
                assert!(!e.to_string().is_empty());
            }
        }
    }
    assert!(welcome > 50 && refused > 50, "both results must occur: {welcome} attached, {refused} refused");
}

#[test]
fn a_hostile_engine_cannot_harm_a_listener_in_c() {
    const TEST: &str = "a_hostile_engine_cannot_harm_a_listener_in_c";
    let directory = testkit::TempDir::new("victim");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/victim.c");
    // With these compiler flags, undefined behaviour ends the program by a trap, for which no sanitizer library is
    // needed.
    let flags = ["-std=c11", "-O1", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"];
    let Some(program) = compile(TEST, "cc", &flags, &source, &directory) else { return };

    let mut prng = Prng::new(testkit::seed(TEST));
    let path = socket_path("victim");
    let socket = sys::unix::Listener::bind(&path, 0o600, None, None).expect("a socket");
    let mut hostile = HostileEngine::new();
    let rounds = iterations(300);
    let mut victim = Command::new(program);
    let victim = victim.arg(&path).arg(rounds.to_string()).stdout(Stdio::piped()).spawn().expect("the program starts");
    // A listener process that died does not connect again; the wait for its connection must end.
    for _ in 0..rounds {
        if sys::unix::wait_readable(&[socket.as_fd()], Duration::from_secs(20)).is_ok_and(|ready| ready.is_empty()) {
            break;
        }
        let connection = socket.accept().expect("a connection");
        let _ = hostile.serve_attach(&connection, &mut prng);
        for _ in 0..20 {
            hostile.scramble_descriptors(&mut prng);
            hostile.scramble_positions(&mut prng);
        }
    }
    let out = victim.wait_with_output().expect("the program ends");
    assert!(out.status.success(), "{}", out.status);
    let welcome: u64 = String::from_utf8_lossy(&out.stdout).trim().parse().expect("a number");
    assert!(welcome > 50 && welcome < rounds, "both results must occur: {welcome} of {rounds} attached");
}

#[test]
fn memories_that_the_engine_could_truncate_are_refused() {
    let path = socket_path("cut");
    let socket = sys::unix::Listener::bind(&path, 0o600, None, None).expect("a socket");
    let hostile = HostileEngine::new();
    let sealed =
        [hostile.bytes.as_fd(), hostile.descs.as_fd(), hostile.control.memory().as_fd(), hostile.cursor.as_fd()];
    for unsealed in 0..4 {
        let len = [hostile.shape.bytes as usize, hostile.shape.descs as usize * DESC_BYTES, 4096, 4096][unsealed];
        let memory = SharedMemory::create("loose", len, unsealed < 2).expect("memory");
        let mut fds = sealed;
        fds[unsealed] = memory.as_fd();
        let client = std::thread::spawn({
            let path = path.clone();
            move || attach(&path, Mode::Lossy, "careful")
        });
        let connection = socket.accept().expect("the listener connects");
        connection.receive(&mut [0; HELLO]).expect("a Hello");
        connection.send(&words(&[MAGIC, 1, 1], WELCOME), &[]).expect("sent");
        connection.send(&words(&[hostile.shape.bytes, hostile.shape.descs, 0, 0, 0], RING), &fds).expect("sent");
        let refused = client.join().expect("no panic").expect_err("memory that can be truncated");
        assert!(refused.to_string().contains("not sealed"), "{unsealed}: {refused}");
    }
}

#[test]
fn listeners_of_an_engine_that_died_while_publishing_use_the_last_full_count() {
    let path = socket_path("half");
    let socket = sys::unix::Listener::bind(&path, 0o600, None, None).expect("a socket");
    let hostile = HostileEngine::new();
    hostile.control.positions().claim(100, 0);
    hostile.control.positions().publish(100, 10);
    let client = std::thread::spawn(move || attach(&path, Mode::Lossy, "listener"));
    let connection = socket.accept().expect("the listener connects");
    connection.receive(&mut [0; HELLO]).expect("a Hello");
    connection.send(&words(&[MAGIC, 1, 1], WELCOME), &[]).expect("sent");
    let ring = words(&[hostile.shape.bytes, hostile.shape.descs, 0, 0, 0], RING);
    let fds = [hostile.bytes.as_fd(), hostile.descs.as_fd(), hostile.control.memory().as_fd(), hostile.cursor.as_fd()];
    connection.send(&ring, &fds).expect("sent");
    let l = client.join().expect("no panic").expect("attached").remove(0);
    hostile.control.positions().publish(150, 20);
    assert_eq!(l.counts().published, 40);
    // The engine dies after it has stored the first word of the next publication.
    hostile.control.positions().controls_before.store(25, Ordering::Relaxed);
    drop(connection);
    assert_eq!(l.counts().published, 40);
    assert!(!l.connected());
}

#[test]
fn a_missing_socket_a_file_and_a_long_path_are_reported() {
    let missing = attach(Path::new("/nonexistent/netgrain"), Mode::Lossy, "x").expect_err("no socket");
    assert!(matches!(missing, AttachError::Unreachable(_)), "{missing}");
    let file = socket_path("file");
    std::fs::write(&file, "not a socket").expect("a file");
    assert!(attach(&file, Mode::Lossy, "x").is_err());
    assert!(sys::unix::Listener::bind(&file, 0o600, None, None).is_err(), "a file is not replaced by a socket");
    std::fs::remove_file(&file).expect("the file still exists");
    let long = attach(Path::new(&"x".repeat(200)), Mode::Lossy, "x").expect_err("too long");
    assert!(long.to_string().contains("at most 107 bytes"), "{long}");
}
