//! An engine for tests of groups. It has rings with one producer thread each, dispatchers, a control socket, and
//! programs that consist of one word and an argument.

use base::Timestamp;
use netgrain_group::{
    Client, CommandQueue, Compiled, ControlServer, Delivery, Dispatcher, EngineServices, IngressInterface, Limits,
    MemberFilter, Packet, PacketSink, Program, Registry, RingHandle, ServiceError, SinkCounts, Verdict,
};
use ring::{AttachPolicy, Branch, Config, OfferedRing, Producer};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Number of flows in the packets that a producer sends; the flows are the same on all rings.
const FLOWS: u64 = 1000;

/// A program: `mark N`, `steer`, `copy`, `drop`, `forward INTERFACE`, `kernel`, `remember N`, whose flow maps may hold
/// N MiB, `sleep N`, which takes N milliseconds for each packet, or `panic`.
struct OneWordProgram(String, Vec<String>);

struct Instance {
    verdict: fn(u32, &Packet<'_>) -> Verdict,
    number: u32,
    evaluated: u64,
}

impl Compiled for OneWordProgram {
    fn instances(&self, queues: &[IngressInterface], _group: &str) -> Result<Vec<Box<dyn Program>>, ServiceError> {
        let (word, number) = self.0.split_once(' ').unwrap_or((&self.0, "0"));
        let verdict: fn(u32, &Packet<'_>) -> Verdict = match word {
            "mark" => |mark, _| Verdict { mark, ..Verdict::default() },
            "steer" => |_, p| Verdict { delivery: Delivery::Steer(p.desc.hash), ..Verdict::default() },
            "drop" => |_, _| Verdict { delivery: Delivery::Drop, ..Verdict::default() },
            "sleep" => |ms, _| {
                std::thread::sleep(Duration::from_millis(ms.into()));
                Verdict::default()
            },
            "forward" => |_, _| {
                let mut verdict = Verdict::default();
                verdict.forwards.push(0);
                verdict
            },
            "kernel" => |_, _| Verdict { kernel: true, ..Verdict::default() },
            "panic" => |_, _| panic!("the program panics on purpose"),
            _ => |_, _| Verdict::default(),
        };
        let number = number.parse().unwrap_or_default();
        Ok(queues.iter().map(|_| Box::new(Instance { verdict, number, evaluated: 0 }) as Box<dyn Program>).collect())
    }

    fn text(&self) -> &str {
        &self.0
    }

    fn ports(&self) -> &[String] {
        &self.1
    }

    fn passes_to_host(&self) -> bool {
        self.0 == "kernel"
    }

    fn memory(&self) -> u64 {
        self.0.strip_prefix("remember ").map_or(0, |mib| mib.parse::<u64>().expect("a number") << 20)
    }

    fn counters(&self) -> &[String] {
        static NAMES: std::sync::LazyLock<Vec<String>> = std::sync::LazyLock::new(|| vec!["evaluated".into()]);
        &NAMES
    }
}

impl Program for Instance {
    fn evaluate(&mut self, batch: &[Packet<'_>], out: &mut [Verdict]) {
        batch.iter().zip(out).for_each(|(p, v)| *v = (self.verdict)(self.number, p));
        self.evaluated += batch.len() as u64;
    }

    fn counters(&self) -> Vec<u64> {
        vec![self.evaluated]
    }
}

struct TestServices;

impl EngineServices for TestServices {
    fn compile(&self, source: &str, _: u32, _: &[IngressInterface]) -> Result<Arc<dyn Compiled>, ServiceError> {
        let word = source.split(' ').next().unwrap_or_default();
        if !["mark", "steer", "copy", "drop", "forward", "kernel", "remember", "sleep", "panic"].contains(&word) {
            return Err(format!("{source:?} is not a program").into());
        }
        let port = source.strip_prefix("forward ").map(str::to_owned);
        Ok(Arc::new(OneWordProgram(source.to_owned(), port.into_iter().collect())))
    }

    fn compile_filter(&self, text: &str, _: u32) -> Result<Arc<dyn MemberFilter>, ServiceError> {
        Err(format!("{text:?} is not a filter").into())
    }

    fn open(
        &self,
        to: &PacketSink,
        _: &[(&IngressInterface, &Branch)],
        _: bool,
    ) -> Result<Arc<SinkCounts>, ServiceError> {
        match to {
            PacketSink::Port(name) if ["sink", "ng7"].contains(&name.as_str()) => Ok(Arc::default()),
            _ => Err(format!("no {to}").into()),
        }
    }

    /// Interface `p7` is dedicated to capture; the host shares the others.
    fn host(&self, port: &IngressInterface) -> Result<Option<String>, ServiceError> {
        Ok((port.name == "p7").then(|| "ng7".to_owned()))
    }
}

/// The state of a producer thread.
#[derive(Default)]
struct ProducerState {
    pushed: AtomicU64,
    /// True after the producer has read the request to send no more packets, and has published the packets sent before.
    idle: AtomicBool,
}

/// An engine for tests; see the module documentation.
pub struct Engine {
    pub socket: PathBuf,
    pub registry: Arc<Registry>,
    pub end: Arc<AtomicBool>,
    flow: Arc<AtomicBool>,
    pushed: Vec<Arc<ProducerState>>,
    control_server: Option<ControlServer>,
    /// True if the test makes a thread of the engine panic, so that the engine does not fail the test when it is
    /// dropped.
    pub may_panic: bool,
    threads: Vec<JoinHandle<()>>,
}

impl Engine {
    /// Starts an engine with this number of queues; no packets flow yet.
    pub fn start(queues: u16) -> Self {
        Self::limited(queues, Limits::here())
    }

    /// Starts an engine with these limits.
    pub fn limited(queues: u16, limits: Limits) -> Self {
        Self::at((0..queues).map(|queue| ("p0", queue)).collect(), limits)
    }

    /// Starts an engine with a ring for each of these interfaces and queues.
    pub fn at(rings: Vec<(&str, u16)>, limits: Limits) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let socket = std::env::temp_dir().join(format!("netgrain-groups-{}-{n}", std::process::id()));
        let (end, flow) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (mut handles, mut threads, mut pushed) = (Vec::new(), Vec::new(), Vec::new());
        for (port, queue) in rings {
            let config = Config { name: port.into(), bytes: 16 << 20, queue, ..Config::default() };
            let producer = Producer::new(config).expect("memory");
            let offer = OfferedRing::of(&producer);
            let commands = Arc::<CommandQueue>::default();
            // The producer waits for free space, as a file source does, so the dispatcher must not shed load.
            let dispatcher = Dispatcher::new(&offer, Arc::clone(&commands), false);
            handles.push(RingHandle {
                source: IngressInterface { name: port.into(), number: 0 },
                queue,
                commands,
                offer,
            });
            let count = Arc::<ProducerState>::default();
            pushed.push(Arc::clone(&count));
            let (end, flow) = (Arc::clone(&end), Arc::clone(&flow));
            threads.push(std::thread::spawn(move || write(producer, &end, &flow, &count)));
            threads.push(std::thread::spawn(move || dispatcher.run()));
        }
        let registry = Registry::new(handles, Box::new(TestServices), sys::cpu::effective_uid()).with_limits(limits);
        let registry = Arc::new(registry);
        let listener = sys::unix::Listener::bind(&socket, 0o600, None, None).expect("a socket");
        let control_server = Some(
            ControlServer::open(listener, Arc::clone(&registry), "p0", AttachPolicy::default()).expect("a thread"),
        );
        Self { socket, registry, end, flow, pushed, control_server, may_panic: false, threads }
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.socket).expect("a listening control socket")
    }

    /// Lets the producers write packets to the rings (`flows` is true) or stops them. After a stop, all packets are
    /// published when the function returns.
    pub fn flow(&self, flows: bool) {
        self.flow.store(flows, Ordering::SeqCst);
        if !flows {
            self.pushed.iter().for_each(|state| state.idle.store(false, Ordering::SeqCst));
            until("the producers are idle", || self.pushed.iter().all(|state| state.idle.load(Ordering::SeqCst)));
        }
    }

    /// Number of packets written to all rings so far.
    pub fn pushed(&self) -> u64 {
        self.pushed_by_ring().iter().sum()
    }

    /// Number of packets written to each ring so far.
    pub fn pushed_by_ring(&self) -> Vec<u64> {
        self.pushed.iter().map(|ring| ring.pushed.load(Ordering::SeqCst)).collect()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.end.store(true, Ordering::SeqCst);
        let panics = self.threads.drain(..).filter_map(|t| t.join().err()).count();
        assert!(panics == 0 || self.may_panic, "{panics} threads panicked");
        self.control_server = None;
    }
}

fn write(mut p: Producer, end: &AtomicBool, flow: &AtomicBool, state: &ProducerState) {
    let start = Timestamp::from_secs_nanos(1_700_000_000, 0);
    let bytes = [0x5a; 60];
    let mut n = 0;
    while !end.load(Ordering::SeqCst) {
        p.service();
        if !flow.load(Ordering::SeqCst) {
            state.idle.store(true, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        for _ in 0..64 {
            let ts = Timestamp::from_nanos(start.nanos() + n * 1000);
            if !p.has_room(bytes.len(), ts, ts) {
                break;
            }
            let hash = (n % FLOWS) as u32;
            let packet = ring::Packet { wire_len: 60, hash, ..ring::Packet::whole(&bytes, ts) };
            p.push(&packet).expect("free space");
            n += 1;
        }
        p.publish();
        state.pushed.store(n, Ordering::SeqCst);
        // Limits the packet rate to that of a busy interface, so that the readers can keep pace on a small machine.
        std::thread::sleep(Duration::from_micros(200));
    }
    while !p.finish(Timestamp::from_nanos(start.nanos() + n * 1000)) {
        p.service();
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Waits for an event in another thread; panics after a minute.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < deadline, "no success after a minute of waiting until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
