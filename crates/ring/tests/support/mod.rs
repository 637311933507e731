//! An engine for tests: a producer on its own thread, its socket, and packets that carry their number.
#![allow(dead_code, reason = "each test program uses only some of the functions")]

use base::{Tally, Timestamp};
use netgrain_ring::{AttachPolicy, Config, ListenerRegistry, OfferedRing, Packet, Producer, RingMemory, Server};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use testkit::TempDir;

const SECOND: u64 = 1_000_000_000;

/// A small ring, which the producer soon overwrites.
pub fn config() -> Config {
    Config { name: "test".into(), bytes: 8 << 20, segment_bytes: 3 << 20, ..Config::default() }
}

/// A path for a socket, unique to the test and short enough for a socket.
pub fn socket_path(test: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("netgrain-{test}-{}-{n}", std::process::id()))
}

/// Packet `number`: 60 to 1059 bytes, its number at both ends.
pub fn frame(number: u64, buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.resize(60 + (number * 7919 % 1000) as usize, number as u8);
    let end = buffer.len() - 8;
    buffer[..8].copy_from_slice(&number.to_le_bytes());
    buffer[end..].copy_from_slice(&number.to_le_bytes());
}

/// The number of a packet that [`frame`] made; panics if the packet is torn.
pub fn number(bytes: &[u8]) -> u64 {
    let mut whole = Vec::new();
    let n = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    frame(n, &mut whole);
    assert_eq!(bytes, whole, "packet {n} is torn");
    n
}

/// Compiles one C or C++ file with every warning as an error; `None` (and a skip that is reported by name) if there is
/// no compiler.
pub fn compile(test: &str, compiler: &str, flags: &[&str], source: &Path, directory: &TempDir) -> Option<PathBuf> {
    let program = directory.join("program");
    let mut cc = testkit::tool(test, compiler)?;
    cc.args(["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror"]).args(flags);
    cc.arg("-I").arg(workspace().join("include")).arg(source).arg("-o").arg(&program);
    let out = cc.output().expect("the compiler runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    // Binding a socket changes the umask of the whole process for a moment. If the compiler is started in that moment,
    // it inherits the changed umask, and so do the permissions of its output.
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("the compiled program");
    Some(program)
}

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Waits for an event in another process or thread; panics after a minute.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < deadline, "no success after a minute of waiting until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// An engine for tests; see the module documentation. It offers packets until their total number reaches the goal that
/// [`Engine::feed`] has set.
pub struct Engine {
    pub path: PathBuf,
    pub registry: Arc<ListenerRegistry>,
    pub memory: Arc<RingMemory>,
    state: Arc<ProducerState>,
    server: Option<Server>,
    thread: Option<JoinHandle<Producer>>,
}

#[derive(Default)]
struct ProducerState {
    goal: AtomicU64,
    pushed: AtomicU64,
    lost: AtomicU64,
    end: AtomicBool,
}

impl Engine {
    pub fn start(test: &str, config: Config) -> Self {
        Self::start_at(&socket_path(test), config, 0o600, AttachPolicy::default())
    }

    pub fn start_at(path: &Path, config: Config, mode: u32, policy: AttachPolicy) -> Self {
        let socket = sys::unix::Listener::bind(path, mode, None, None).expect("a socket");
        let producer = Producer::new(config).expect("a ring");
        let (registry, memory) = (Arc::clone(producer.registry()), Arc::clone(producer.memory()));
        let server = Server::start(socket, vec![OfferedRing::of(&producer)], policy).expect("a thread");
        let state = Arc::<ProducerState>::default();
        let shared_state = Arc::clone(&state);
        let thread = std::thread::spawn(move || write(producer, &shared_state));
        Self { path: path.to_owned(), registry, memory, state, server: Some(server), thread: Some(thread) }
    }

    /// Sets the goal: the engine offers packets until their total number is `goal`. `u64::MAX` is a load without end.
    pub fn feed(&self, goal: u64) {
        self.state.goal.store(goal, Ordering::Release);
    }

    /// Sets the goal to 0, so that no further packets are offered.
    pub fn pause(&self) {
        self.state.goal.store(0, Ordering::Relaxed);
    }

    /// Packets offered to the ring so far.
    pub fn offered(&self) -> u64 {
        self.state.pushed.load(Ordering::Relaxed)
    }

    /// Packets lost to a full ring so far.
    pub fn lost(&self) -> u64 {
        self.state.lost.load(Ordering::Relaxed)
    }

    /// Waits until the goal is reached, ends the stream, and returns the producer's tally. The socket stays open for
    /// listeners that read the rest.
    pub fn finish(&mut self) -> Tally {
        self.state.end.store(true, Ordering::Release);
        let producer = self.thread.take().expect("finished once").join().expect("no panic in the producer");
        let tally = producer.tally();
        assert_eq!(tally.residue(), 0, "every packet is accounted for");
        tally
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.state.end.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            self.pause();
            let _ = thread.join();
        }
        drop(self.server.take());
    }
}

fn write(mut producer: Producer, state: &ProducerState) -> Producer {
    let (mut number, mut bytes) = (0, Vec::new());
    let at = |number: u64| Timestamp::from_nanos(SECOND + number * 10_000);
    loop {
        // The goal is loaded before the service of requests, so a listener that requested to join before the goal was
        // set receives all packets up to it.
        let goal = state.goal.load(Ordering::Acquire).min(number + 64);
        producer.service();
        if goal <= number {
            // A caller may have set the goal after this thread read it above: callers store `end` after the last goal.
            if state.end.load(Ordering::Acquire) && state.goal.load(Ordering::Acquire) <= number {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        while number < goal {
            frame(number, &mut bytes);
            let packet = Packet { hash: number as u32, l3: 14, l4: 34, ..Packet::whole(&bytes, at(number)) };
            if producer.push(&packet).is_err() {
                state.lost.fetch_add(1, Ordering::Relaxed);
            }
            number += 1;
        }
        producer.publish();
        state.pushed.store(number, Ordering::Relaxed);
    }
    while !producer.finish(at(number)) {
        std::thread::sleep(Duration::from_millis(1));
    }
    producer
}
