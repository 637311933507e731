//! A group by itself: a ring filled from memory, its dispatcher steering by flow, members in processes of their own that
//! came in through the door as any member does.
//!
//! The writer waits for the dispatcher, so nothing is shed; members may still be too slow, which is counted. What delivery
//! costs is processor time: of the dispatcher for each packet, of the members for each record, and records for each second
//! of both together, because more members than processors say nothing about rates. Both sides count alone, and the counts
//! must meet.

use crate::place::Places;
use crate::process::Helper;
use crate::sheet::{Sheet, Spread, Stop};
use base::units::{show_bytes, show_count};
use clap::Args;
use group::{
    Client, Compiled, Delivery, Dispatcher, Door, Orders, Outside, PortCounts, Program, Registry, Request, Track,
    Verdict,
};
use ring::{Branch, Offer, Packet, Policy, Producer};
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Packets between two publications, as the engine has it.
const BATCH: usize = engine::BATCH;

/// Descriptors that a member takes at a time.
const WALK: usize = 512;

/// How long the writer sleeps when there is no room.
const NAP: Duration = Duration::from_micros(50);

/// How long a member sleeps when there is nothing, as `netgrain listen` does.
const MEMBER_NAP: Duration = Duration::from_micros(500);

/// How long members may take to come and to go.
const PATIENCE: Duration = Duration::from_secs(20);

/// Descriptors of a branch: room for what a member misses while others have its processor.
const DESCS: u64 = 1 << 20;

/// Flags of `netgrain bench group`.
#[derive(Args, Clone, Debug)]
pub struct GroupArgs {
    /// How many members, one measurement for each number
    #[arg(long, value_name = "LIST", default_value = "1,4", value_delimiter = ',',
          value_parser = clap::value_parser!(u8).range(1..=64))]
    pub members: Vec<u8>,
    /// Flows, each with as many packets
    #[arg(long, value_name = "N", default_value = "100k", value_parser = base::units::parse_count)]
    pub flows: u64,
    /// Copy every packet to every member instead of steering
    #[arg(long)]
    pub copy: bool,
    /// Length of each run
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = crate::seconds)]
    pub seconds: f64,
    /// Runs for each number of members; their median is shown
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Memory of the ring
    #[arg(long, value_name = "SIZE", value_parser = base::units::parse_bytes, default_value = "256MiB")]
    pub ring: u64,
    /// One JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// Flags of the process that is a member; `bench group` starts it.
#[derive(Args, Clone, Debug)]
pub struct MemberArgs {
    /// Socket of the groups
    pub socket: PathBuf,
}

/// What a member tells at its end.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Told {
    seen: u64,
    lost: u64,
    cpu_seconds: f64,
}

/// One number of members.
#[derive(Debug, Serialize)]
struct Row {
    members: u8,
    copy: bool,
    flows: u64,
    seconds: f64,
    repeat: u32,
    /// Millions of packets per second that the dispatcher judged.
    judged_mpps: Spread,
    /// Its processor time per packet.
    dispatcher_ns: Spread,
    /// Processor time of the members per record.
    member_ns: Spread,
    /// Millions of records per second of processor time, dispatcher and members together.
    records_per_core_m: Spread,
    /// How far the largest or smallest part is from an even one, in percent.
    uneven_percent: Spread,
    /// Of all copies of all runs.
    copies: u64,
    lost: u64,
}

struct Run {
    judged: u64,
    seconds: f64,
    dispatcher: f64,
    told: Vec<Told>,
    parts: Vec<u64>,
}

/// Measures and prints.
pub fn run(args: &GroupArgs, out: &mut dyn Write) -> Result<(), Stop> {
    let mut sheet = Sheet::begin(out, args.json, "group")?;
    sheet.head(format_args!(
        "60 B frames of {} flows from memory -> ring of {} -> dispatcher ({}) -> members in other processes; {} runs of {} s, medians",
        show_count(args.flows),
        show_bytes(args.ring),
        if args.copy { "a copy to each" } else { "steered by flow" },
        args.repeat,
        args.seconds
    ))?;
    sheet.head("members   judged Mpps (min..max)   dispatcher ns   member ns   M records/core-second   uneven %      lost of copies")?;
    for members in &args.members {
        let runs = (0..args.repeat).map(|_| once(args, *members)).collect::<Result<Vec<_>, _>>()?;
        let row = Row::of(args, *members, &runs);
        let line = row.line();
        sheet.row("group", &row, line)?;
    }
    Ok(())
}

impl Row {
    fn of(args: &GroupArgs, members: u8, runs: &[Run]) -> Self {
        let delivered = |r: &Run| r.parts.iter().sum::<u64>();
        let readers = |r: &Run| r.told.iter().map(|t| t.cpu_seconds).sum::<f64>();
        let uneven = |r: &Run| {
            let fair = delivered(r).max(1) as f64 / r.parts.len() as f64;
            r.parts.iter().map(|n| (*n as f64 / fair - 1.0).abs() * 100.0).fold(0.0, f64::max)
        };
        Self {
            members,
            copy: args.copy,
            flows: args.flows,
            seconds: args.seconds,
            repeat: args.repeat,
            judged_mpps: Spread::of(runs.iter().map(|r| r.judged as f64 / r.seconds / 1e6)),
            dispatcher_ns: Spread::of(runs.iter().map(|r| r.dispatcher * 1e9 / r.judged.max(1) as f64)),
            member_ns: Spread::of(runs.iter().map(|r| readers(r) * 1e9 / delivered(r).max(1) as f64)),
            records_per_core_m: Spread::of(
                runs.iter().map(|r| delivered(r) as f64 / (r.dispatcher + readers(r)) / 1e6),
            ),
            uneven_percent: Spread::of(runs.iter().map(uneven)),
            copies: runs.iter().map(|r| delivered(r) + r.told.iter().map(|t| t.lost).sum::<u64>()).sum(),
            lost: runs.iter().flat_map(|r| &r.told).map(|t| t.lost).sum(),
        }
    }

    fn line(&self) -> String {
        let (judged, core) = (format!("{:.1}", self.judged_mpps), format!("{:.1}", self.records_per_core_m));
        format!(
            "{:>7}   {judged:<22}   {:>13.1}   {:>9.1}   {core:<22}   {:>8.2}      {} of {}",
            self.members,
            self.dispatcher_ns.median,
            self.member_ns.median,
            self.uneven_percent.median,
            show_count(self.lost),
            show_count(self.copies)
        )
    }
}

fn once(args: &GroupArgs, members: u8) -> Result<Run, Stop> {
    let config = ring::Config { name: "bench".into(), bytes: args.ring, ..ring::Config::default() };
    let mut producer = Producer::new(config).map_err(|e| {
        Stop::say(format_args!(
            "no memory for a ring of {}: {e}; choose a smaller one with --ring",
            show_bytes(args.ring)
        ))
    })?;
    let socket = std::env::temp_dir().join(format!("netgrain-bench-{}.groups", std::process::id()));
    let places = Places::find();
    let (orders, offer) = (Arc::<Orders>::default(), Offer::of(&producer));
    let dispatcher = Dispatcher::new(&offer, Arc::clone(&orders), false);
    let place = places.other(0);
    let dispatching = std::thread::spawn(move || {
        // Anywhere, if the processor is not to be had.
        let _ = sys::cpu::pin(place);
        dispatcher.run();
        sys::cpu::thread_time().as_secs_f64()
    });
    let track = Track { queue: 0, orders: Arc::clone(&orders), offer };
    let registry = Arc::new(Registry::new(vec![track], Box::new(Lender), sys::cpu::effective_uid()));
    let door = open(&socket, &registry)?;
    let client = Client::connect(&socket).map_err(Stop::say)?;
    let program = Some(if args.copy { "copy" } else { "steer" }.to_owned());
    let group = "bench".to_owned();
    let (policy, fold, queues, brief) = (group::Policy::Shared, false, None, false);
    client.ask(&Request::Create { group, program, policy, fold, queues, brief }).map_err(Stop::say)?;
    // Members sit down while the ring's writer answers the dispatcher, which joins with the group.
    let coming = std::thread::spawn(move || {
        let mut guests = Vec::new();
        for _ in 0..members {
            let mut guest = Helper::again(["bench".into(), "group-member".into(), socket.clone().into_os_string()])?;
            guest.line()?;
            guests.push(guest);
        }
        Ok::<_, Stop>(guests)
    });
    while !coming.is_finished() {
        producer.service();
        std::thread::sleep(NAP);
    }
    let guests = coming.join().map_err(|_| Stop::say("the thread that starts members panicked"))??;
    let _ = sys::cpu::pin(places.engine());
    let seconds = write(&mut producer, args.flows.max(1) as usize, Duration::from_secs_f64(args.seconds));
    let dispatcher = dispatching.join().map_err(|_| Stop::say("the dispatcher panicked"))?;
    let books = orders.last_books().and_then(|mut b| b.pop()).ok_or_else(|| Stop::say("the group has no books"))?;
    let mut told = Vec::new();
    for guest in guests {
        let text = guest.finish(PATIENCE)?;
        told.push(serde_json::from_str(&text).map_err(|e| Stop::say(format_args!("a member said {text:?}: {e}")))?);
    }
    drop(door);
    let counts = &books.counts;
    let parts: Vec<u64> = counts.members[..usize::from(members)].iter().map(|m| m.delivered).collect();
    let all = counts.all_members();
    let seen: u64 = told.iter().map(|t: &Told| t.seen).sum();
    let lost: u64 = told.iter().map(|t| t.lost).sum();
    if !counts.contradictions().is_empty() || (seen, lost) != (all.delivered, all.lost) {
        let stored = producer.tally().stored;
        return Err(Stop::say(format_args!(
            "{stored} packets, {seen} seen and {lost} lost by the members' count, but the books say {counts:?}; please report this"
        )));
    }
    Ok(Run { judged: counts.received, seconds, dispatcher, told, parts })
}

fn open(socket: &Path, registry: &Arc<Registry>) -> Result<Door, Stop> {
    sys::unix::Listener::bind(socket, 0o600, None, None)
        .and_then(|l| Door::open(l, Arc::clone(registry), Policy::default()))
        .map_err(|e| Stop::say(format_args!("{}: cannot let members in: {e}", socket.display())))
}

/// Writes frames of all flows in turn, as fast as there is room; real seconds.
fn write(producer: &mut Producer, flows: usize, span: Duration) -> f64 {
    let bytes = [0x5a; 60];
    let hashes: Vec<u32> = (0..flows as u64).map(|n| base::hash::mix64(n) as u32).collect();
    let (start, started) = (sys::clock::realtime(), Instant::now());
    let mut batches = hashes.chunks(BATCH).cycle();
    while started.elapsed() < span {
        let ts = start.after(started.elapsed());
        for hash in batches.next().unwrap_or_default() {
            while !producer.has_room(bytes.len(), ts, ts) {
                producer.publish();
                producer.service();
                std::thread::sleep(NAP);
            }
            let hash = *hash;
            let packet =
                Packet { bytes: &bytes, wire_len: 60, ts, hash, mark: 0, flags: 0, l3: 14, l4: 34, vlan: None };
            // There was room.
            let _ = producer.push(&packet);
        }
        producer.publish();
        producer.service();
    }
    while !producer.finish(start.after(started.elapsed())) {
        std::thread::sleep(NAP);
    }
    started.elapsed().as_secs_f64()
}

/// `steer` and `copy`, which take what the ring knows: what is measured is delivery, not programs.
struct Lender;

struct Word(bool);

impl Compiled for Word {
    fn instance(&self) -> Box<dyn Program> {
        Box::new(Self(self.0))
    }

    fn text(&self) -> &str {
        if self.0 { "steer" } else { "copy" }
    }
}

impl Program for Word {
    fn judge(&mut self, batch: &[group::Packet<'_>], out: &mut [Verdict]) {
        if self.0 {
            batch.iter().zip(out).for_each(|(p, v)| v.delivery = Delivery::Steer(p.desc.hash));
        }
    }
}

impl Outside for Lender {
    fn compile(&self, source: &str, _: u32) -> Result<Arc<dyn Compiled>, String> {
        Ok(Arc::new(Word(source == "steer")))
    }

    fn open_port(&self, name: &str, _: &[Branch]) -> Result<Arc<PortCounts>, String> {
        Err(format!("no ports here, and so no {name}"))
    }

    fn kernel(&self) -> Result<(), String> {
        Err("no host here".into())
    }
}

/// The process that is a member.
pub fn member(args: &MemberArgs, out: &mut dyn Write) -> Result<(), Stop> {
    let request = Request::Join {
        group: "bench".into(),
        classes: Vec::new(),
        weight: 1,
        filter: None,
        bpf: None,
        descs: DESCS,
        name: "bench".into(),
    };
    let seat = Client::connect(&args.socket).and_then(|c| c.join(&request)).map_err(Stop::say)?;
    let mut listener = seat.listeners.into_iter().next().ok_or(Stop::Closed)?;
    writeln!(out, "ready")?;
    out.flush()?;
    let mut descs = Vec::with_capacity(WALK);
    let before = sys::cpu::thread_time();
    let (mut seen, mut looks, mut sum) = (0u64, 0u32, 0u64);
    loop {
        listener.next(WALK, &mut descs);
        if descs.is_empty() {
            if listener.ended() {
                break;
            }
            looks += 1;
            if looks.is_multiple_of(1 << 10) && !listener.connected() {
                return Err(Stop::say("the engine is gone"));
            }
            std::thread::sleep(MEMBER_NAP);
            continue;
        }
        for d in descs.iter().filter(|d| d.is_packet()) {
            seen += 1;
            sum += u64::from(d.wire_len) + u64::from(d.hash);
        }
    }
    black_box(sum);
    let cpu_seconds = (sys::cpu::thread_time() - before).as_secs_f64();
    let told = Told { seen, lost: listener.lost(), cpu_seconds };
    writeln!(out, "{}", serde_json::to_string(&told).map_err(Stop::say)?)?;
    Ok(())
}
