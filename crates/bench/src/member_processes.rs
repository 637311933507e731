//! A group with its own ring, which steers packets to members in other processes; the members attach through the ring
//! socket as in production.
//!
//! The producer waits for the dispatcher, so the dispatcher loses no packet; members may still be too slow, and the
//! benchmark counts the copies lost that way. Dispatcher and members count independently, and the counts must agree.

use crate::cpu_placement::CpuPlacement;
use crate::output::Stop;
use crate::process::Helper;
use base::units::show_bytes;
use clap::Args;
use group::{
    Client, CommandQueue, ControlServer, Dispatcher, Generations, IngressInterface, MemberBackoff, Registry, Request,
    RingHandle,
};
use ring::{AttachPolicy, OfferedRing, Packet, Producer};
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::build::Frame;

/// Name of the group.
pub const GROUP: &str = "bench";

/// Number of packets that the producer writes before it publishes them, as in the engine.
const BATCH: usize = engine::BATCH;

/// Descriptors that a member reads at a time.
const SCAN_TIME: usize = 512;

/// Sleep of the producer while the ring is full.
const IDLE_SLEEP: Duration = Duration::from_micros(50);

/// Time limit for members to attach and to detach.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Total descriptors of all branches: enough for the packets that arrive while other processes use a member's
/// processor. The members share the number equally, so that any number of members uses the same amount of cache.
const DESCS: u64 = 1 << 20;

/// Bytes of a frame.
const FRAME: usize = 60;

/// The work of the group.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Bytes of the ring.
    pub ring: u64,
    /// Number of flows, all with equal numbers of packets.
    pub flows: u64,
    /// The program of the group.
    pub program: String,
}

/// Flags of a member process, which `netgrain-bench group` starts.
#[derive(Args, Clone, Debug)]
pub struct MemberArgs {
    /// Control socket
    pub socket: PathBuf,
    /// Descriptors of the branch
    #[arg(long, default_value_t = DESCS, value_parser = base::units::whole::<u64>(1..=1 << 32))]
    pub descs: u64,
    /// Check the generation of each packet
    #[arg(long)]
    pub follow: bool,
}

/// The result that a member prints at its end.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct MemberResult {
    pub seen: u64,
    pub lost: u64,
    pub cpu_seconds: f64,
}

/// The outcome of all packets.
#[derive(Clone, Debug)]
pub struct Run {
    pub evaluated: u64,
    pub seconds: f64,
    /// Processor seconds of the dispatcher.
    pub dispatcher: f64,
    pub result: Vec<MemberResult>,
    /// Packets delivered to each member.
    pub parts: Vec<u64>,
}

impl Run {
    /// Copies lost because a branch was full.
    pub fn lost(&self) -> u64 {
        self.result.iter().map(|t| t.lost).sum()
    }
}

/// The group, its ring and its member processes.
pub struct MemberProcesses {
    producer: Producer,
    commands: Arc<CommandQueue>,
    dispatching: JoinHandle<f64>,
    control: ControlServer,
    socket: PathBuf,
    clients: Vec<Helper>,
    cpu_placement: CpuPlacement,
}

impl MemberProcesses {
    /// Starts the processes and waits until all members have attached; no packet is sent yet.
    pub fn start(workload: &Workload, members: u8, follow: bool) -> Result<Self, Stop> {
        let config = ring::Config { name: GROUP.into(), bytes: workload.ring, ..ring::Config::default() };
        let mut producer = Producer::new(config).map_err(|e| {
            let size = show_bytes(workload.ring);
            Stop::error(format_args!("no memory for a ring of {size}: {e}; choose a smaller ring with --ring"))
        })?;
        let socket = std::env::temp_dir().join(format!("netgrain-bench-{}.groups", std::process::id()));
        let places = CpuPlacement::find();
        let (commands, offer) = (Arc::<CommandQueue>::default(), OfferedRing::of(&producer));
        let dispatcher = Dispatcher::new(&offer, Arc::clone(&commands), false);
        let place = places.other(0);
        let dispatching = std::thread::spawn(move || {
            // If pinning fails, the process runs on any processor.
            let _ = sys::cpu::pin(place);
            dispatcher.run();
            sys::cpu::thread_time().as_secs_f64()
        });
        let ring_handle = RingHandle {
            source: IngressInterface { name: GROUP.into(), number: 0 },
            queue: 0,
            commands: Arc::clone(&commands),
            offer,
        };
        let services = group_services::standalone_services(7);
        let registry = Arc::new(Registry::new(vec![ring_handle], services, sys::cpu::effective_uid()));
        let control = open(&socket, &registry)?;
        let (policy, fold, queues, ephemeral) = (group::Policy::Shared, false, None, false);
        let (group, program) = (GROUP.to_owned(), Some(workload.program.clone()));
        let create = Request::Create { group, program, policy, fold, ports: None, queues, ephemeral };
        // This thread is the ring's producer. While the group attaches the dispatcher in another thread, this thread
        // must process the dispatcher's request to join the ring.
        let path = socket.clone();
        let starting = std::thread::spawn(move || {
            Client::connect(&path).and_then(|client| client.request(&create)).map_err(Stop::error)?;
            let mut processes = Vec::new();
            for _ in 0..members {
                let descs = (DESCS / u64::from(members.max(1))).max(ring::BRANCH_DESCS_MIN);
                let mut words = vec!["group-member".into(), path.clone().into_os_string()];
                words.extend(["--descs".into(), descs.to_string().into()]);
                words.extend(follow.then(|| "--follow".into()));
                let mut process = Helper::start_self(words)?;
                process.line()?;
                processes.push(process);
            }
            Ok::<_, Stop>(processes)
        });
        while !starting.is_finished() {
            producer.service();
            std::thread::sleep(IDLE_SLEEP);
        }
        let processes = starting.join().map_err(|_| Stop::error("the thread that starts members panicked"))??;
        Ok(Self { producer, commands, dispatching, control, socket, clients: processes, cpu_placement: places })
    }

    /// Opens another connection to the control socket.
    pub fn another_client(&self) -> Result<Client, Stop> {
        Client::connect(&self.socket).map_err(Stop::error)
    }

    /// Writes frames of all flows in turn into the ring while `go_on` returns true, and waits while the ring is full.
    /// Returns the elapsed seconds.
    pub fn write(&mut self, workload: &Workload, mut go_on: impl FnMut() -> bool) -> f64 {
        let _ = sys::cpu::pin(self.cpu_placement.engine());
        let producer = &mut self.producer;
        let flows = workload.flows.max(1);
        // A program that uses only the hash of the ring's descriptor does not read the frames, so one frame is used for
        // all flows. With a table of different frames, the result would depend on the caches of the producer.
        let reads_frames = !matches!(workload.program.as_str(), "steer" | "copy");
        let frames: Vec<[u8; FRAME]> = (0..if reads_frames { flows } else { 1 }).map(frame).collect();
        let hashes: Vec<u32> = (0..flows).map(|n| base::hash::mix64(n) as u32).collect();
        let (start, started) = (sys::clock::realtime(), Instant::now());
        let mut at = 0;
        while go_on() {
            let ts = start.after(started.elapsed());
            for _ in 0..BATCH {
                while !producer.has_room(FRAME, ts, ts) {
                    producer.publish();
                    producer.service();
                    std::thread::sleep(IDLE_SLEEP);
                }
                at = if at + 1 < hashes.len() { at + 1 } else { 0 };
                let (bytes, hash) = (&frames[at % frames.len()], hashes[at]);
                let packet = Packet { wire_len: 60, hash, l3: 14, l4: 34, ..Packet::whole(bytes, ts) };
                // The ring had room.
                let _ = producer.push(&packet);
            }
            producer.publish();
            producer.service();
        }
        while !producer.finish(start.after(started.elapsed())) {
            std::thread::sleep(IDLE_SLEEP);
        }
        started.elapsed().as_secs_f64()
    }

    /// Ends all members; their counts must agree with the counters of the group.
    pub fn finish(self, seconds: f64) -> Result<Run, Stop> {
        let dispatcher = self.dispatching.join().map_err(|_| Stop::error("the dispatcher panicked"))?;
        let accounting = self.commands.last_accounting().and_then(|mut b| b.pop());
        let accounting = accounting.ok_or_else(|| Stop::error("the group has no accounting"))?;
        let (members, mut reported) = (self.clients.len(), Vec::<MemberResult>::new());
        for process in self.clients {
            let text = process.finish(TIMEOUT)?;
            reported.push(
                serde_json::from_str(&text).map_err(|e| Stop::error(format_args!("a member printed {text:?}: {e}")))?,
            );
        }
        drop(self.control);
        let (counts, stored) = (&accounting.counts, self.producer.tally().stored);
        let (all, parts) = (counts.all_members(), counts.members[..members].iter().map(|m| m.delivered).collect());
        let run = Run { evaluated: counts.received, seconds, dispatcher, result: reported, parts };
        let seen: u64 = run.result.iter().map(|t| t.seen).sum();
        let agrees = (seen, run.lost(), counts.received) == (all.delivered, all.lost, stored);
        if !counts.contradictions().is_empty() || !agrees {
            let lost = run.lost();
            return Err(Stop::error(format_args!(
                "{stored} packets are stored, the members counted {seen} received and {lost} lost, but the accounting \
                 of the group is {counts:?}; please report this"
            )));
        }
        Ok(run)
    }
}

fn open(socket: &Path, registry: &Arc<Registry>) -> Result<ControlServer, Stop> {
    sys::unix::Listener::bind(socket, 0o600, None, None)
        .and_then(|l| ControlServer::open(l, Arc::clone(registry), GROUP, AttachPolicy::default()))
        .map_err(|e| Stop::error(format_args!("{}: the control socket cannot be opened: {e}", socket.display())))
}

/// A frame of TCP flow `flow`.
fn frame(flow: u64) -> [u8; FRAME] {
    let mut bytes = [0; FRAME];
    let [a, b, c, ..] = flow.to_le_bytes();
    Frame::tcp4([10, c, b, a], 1024 + flow as u16 % 50_000, [192, 168, 0, 1], 443).fill(&mut bytes);
    bytes
}

/// The main function of a member process.
pub fn member(args: &MemberArgs, out: &mut dyn Write) -> Result<(), Stop> {
    let request = Request::Join {
        group: GROUP.into(),
        classes: Vec::new(),
        weight: 1,
        filter: None,
        descs: args.descs,
        name: GROUP.into(),
    };
    let session = Client::connect(&args.socket).and_then(|c| c.join(&request)).map_err(Stop::error)?;
    let mut listener = session.listeners.into_iter().next().ok_or(Stop::Closed)?;
    writeln!(out, "ready")?;
    out.flush()?;
    let (mut descs, mut generations) = (Vec::with_capacity(SCAN_TIME), Generations::default());
    let before = sys::cpu::thread_time();
    let (mut seen, mut polls, mut sum) = (0u64, 0u32, 0u64);
    let (mut backoff, mut slept) = (MemberBackoff::default(), 0);
    loop {
        listener.next(SCAN_TIME, &mut descs);
        if descs.is_empty() {
            if listener.ended() {
                break;
            }
            polls += 1;
            if polls.is_multiple_of(1 << 10) && !listener.connected() {
                return Err(Stop::error("the engine has ended"));
            }
            std::thread::sleep(backoff.after(seen - slept));
            slept = seen;
            continue;
        }
        if args.follow {
            descs.iter().try_for_each(|d| generations.follow(d).map(drop)).map_err(Stop::error)?;
        }
        for d in descs.iter().filter(|d| d.is_packet()) {
            seen += 1;
            sum += u64::from(d.wire_len) + u64::from(d.hash);
        }
    }
    black_box(sum);
    let cpu_seconds = (sys::cpu::thread_time() - before).as_secs_f64();
    let reported = MemberResult { seen, lost: listener.lost(), cpu_seconds };
    writeln!(out, "{}", serde_json::to_string(&reported).map_err(Stop::error)?)?;
    Ok(())
}
