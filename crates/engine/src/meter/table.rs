//! The flow table of a meter: in the meter's own thread, or in several with a shard each.
//!
//! Threads do not read the ring: it is not theirs to hold, and a slow one would hold it up. Each gets a copy of what a flow
//! table reads of a packet, some hundred bytes, in batches. Whenever a second begins all of them come together, their
//! records are put in the one order that does not depend on their number, and only then does the meter go on. So the
//! outcome is that of one thread (`netgrain_flow::ShardMerger`), and whatever is asked between two packets has an answer of
//! that moment.

use base::Timestamp;
use flow::{Config, Counts, Hints, Meter, Packet, Router, ShardMerger, Shards, Sink};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use wire::Decoded;

/// Packets that go to a thread together: waking it costs as much as metering some ten of them.
const BATCH: usize = 512;

/// Batches that may wait for a thread; then the meter waits for it.
const WAITING: usize = 16;

/// Bytes behind the offset of a network header that are read: an IPv6 header.
const L3: usize = 40;

/// And behind that of a transport header: TCP up to the window.
const L4: usize = 16;

/// What makes the memory of the tables quicker to reach.
#[derive(Clone, Copy)]
pub struct MemoryHints;

impl Hints for MemoryHints {
    fn reserved(self, region: std::ops::Range<*const u8>) {
        sys::memory::prefer_huge_pages(region);
    }

    #[inline(always)]
    fn prefetch(self, address: *const u8) {
        sys::memory::prefetch(address);
    }
}

/// See the module.
pub enum Table {
    /// In this thread.
    Here(Box<Shards<MemoryHints>>),
    /// In threads of their own.
    Threads(Box<ShardThreads>),
}

impl Table {
    /// With so many shards, each in a thread if there are several.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn new(config: &Config, interface: u16, shards: usize) -> std::io::Result<Self> {
        Ok(match shards {
            0 | 1 => Self::Here(Box::new(Shards::with_hints(config, interface, 1, MemoryHints))),
            _ => Self::Threads(Box::new(ShardThreads::new(config, interface, shards)?)),
        })
    }

    /// Takes packets in the order in which they came. Time passes with them.
    pub fn push(&mut self, packets: &[Packet<'_>], sink: &mut dyn Sink) {
        match self {
            Self::Here(shards) => shards.push(packets, sink),
            Self::Threads(crew) => crew.push(packets, sink),
        }
    }

    /// Time has passed, with or without packets: none before `now` will come.
    pub fn tick(&mut self, now: Timestamp, sink: &mut dyn Sink) {
        match self {
            Self::Here(shards) => shards.tick(now, sink),
            Self::Threads(crew) => crew.tick(now, sink),
        }
    }

    /// Makes the records of all flows and forgets them.
    pub fn finish(&mut self, sink: &mut dyn Sink) {
        match self {
            Self::Here(shards) => shards.finish(sink),
            Self::Threads(crew) => crew.finish(sink),
        }
    }

    /// The interface lost packets in a second: records that lie in it will say so.
    pub fn lost(&mut self, second: u64, packets: u64) {
        match self {
            Self::Here(shards) => shards.lost(second, packets),
            Self::Threads(crew) => crew.lost(second, packets),
        }
    }

    /// What happened so far; of threads, up to when they last came together.
    pub fn counts(&self) -> Counts {
        match self {
            Self::Here(shards) => shards.counts(),
            Self::Threads(crew) => crew.counts,
        }
    }

    /// The same up to this moment.
    pub fn counts_now(&mut self) -> Counts {
        match self {
            Self::Here(shards) => shards.counts(),
            Self::Threads(crew) => {
                if crew.busy {
                    crew.meet(|| Job::Count);
                }
                crew.counts
            }
        }
    }

    /// Processor time of its threads, up to then.
    pub fn cpu(&self) -> Duration {
        match self {
            Self::Here(_) => Duration::ZERO,
            Self::Threads(crew) => crew.cpu,
        }
    }
}

/// Threads with a shard each.
pub struct ShardThreads {
    router: Router,
    threads: Vec<ShardThread>,
    counts: Counts,
    cpu: Duration,
    /// Bytes that are kept of what packets carry.
    payload: usize,
    /// Something was told to them since they came together.
    busy: bool,
}

/// One of them, seen from the meter.
struct ShardThread {
    jobs: SyncSender<Job>,
    answers: Receiver<Answer>,
    /// Batches that it has done with.
    spare: Receiver<Batch>,
    batch: Batch,
    thread: Option<JoinHandle<()>>,
}

enum Job {
    Packets(Batch),
    Lost(u64, u64),
    /// Time has come so far.
    Pass(Timestamp),
    /// Answer when everything before is done.
    Count,
    /// And time has come so far, too.
    Tick(Timestamp),
    /// And at the end.
    Finish,
}

struct Answer {
    made: ShardMerger,
    counts: Counts,
    cpu: Duration,
}

/// Packets with what is read of their bytes.
#[derive(Default)]
struct Batch {
    packets: Vec<Copied>,
    bytes: Vec<u8>,
}

struct Copied {
    ts: Timestamp,
    wire_len: u32,
    position: u64,
    queue: u16,
    decoded: Decoded,
    /// Where its bytes end; they begin where those of the one before it do.
    end: usize,
}

impl ShardThreads {
    fn new(config: &Config, interface: u16, shards: usize) -> std::io::Result<Self> {
        let hand = |number| ShardThread::new(Shards::part(config, shards), interface, number);
        Ok(Self {
            router: Router::new(config, shards),
            threads: (0..shards).map(hand).collect::<Result<_, _>>()?,
            counts: Counts::default(),
            cpu: Duration::ZERO,
            payload: config.payload.into(),
            busy: false,
        })
    }

    fn push(&mut self, packets: &[Packet<'_>], sink: &mut dyn Sink) {
        for packet in packets {
            self.tick(packet.ts, sink);
            self.busy = true;
            let hand = &mut self.threads[self.router.shard(packet)];
            hand.batch.push(packet, self.payload);
            if hand.batch.packets.len() == BATCH {
                hand.send();
            }
        }
    }

    fn tick(&mut self, now: Timestamp, sink: &mut dyn Sink) {
        if !self.router.second(now) {
            return;
        }
        if self.busy || self.counts.active > 0 {
            return self.gather(|| Job::Tick(now), sink);
        }
        // Over empty tables nothing comes of it, and a clock may jump over an hour: nobody waits.
        self.threads.iter().for_each(|hand| hand.send_job(Job::Pass(now)));
    }

    fn finish(&mut self, sink: &mut dyn Sink) {
        self.gather(|| Job::Finish, sink);
    }

    fn lost(&mut self, second: u64, packets: u64) {
        self.busy = true;
        for hand in &mut self.threads {
            hand.send();
            hand.send_job(Job::Lost(second, packets));
        }
    }

    /// Gives the records of all threads to the sink, once each has done this.
    fn gather(&mut self, job: impl Fn() -> Job, sink: &mut dyn Sink) {
        let mut made = self.meet(job);
        ShardMerger::merge(&mut made, sink);
    }

    /// Gives all threads what they still have to take, and the same job; what each of them has made then.
    fn meet(&mut self, job: impl Fn() -> Job) -> Vec<ShardMerger> {
        for hand in &mut self.threads {
            hand.send();
            hand.send_job(job());
        }
        let mut made = Vec::with_capacity(self.threads.len());
        (self.counts, self.cpu) = (Counts::default(), Duration::ZERO);
        for hand in &self.threads {
            let answer = hand.answers.recv().unwrap_or_else(|_| gone());
            self.counts = self.counts.and(&answer.counts);
            self.cpu += answer.cpu;
            made.push(answer.made);
        }
        self.busy = false;
        made
    }
}

/// A shard is gone only if it panicked, which has been printed; without it nothing the meter says would be true.
fn gone() -> ! {
    panic!("a thread of the flow table has ended")
}

impl ShardThread {
    fn new(config: Config, interface: u16, number: usize) -> std::io::Result<Self> {
        let (jobs, todo) = sync_channel(WAITING);
        let (answer, answers) = channel();
        let (done, spare) = channel();
        let work = move || {
            let _ = sys::cpu::set_nice(super::METER_NICE);
            work(Meter::with_hints(config, interface, MemoryHints), &todo, &answer, &done);
        };
        let thread = std::thread::Builder::new().name(format!("flows-{number}")).spawn(work)?;
        Ok(Self { jobs, answers, spare, batch: Batch::default(), thread: Some(thread) })
    }

    /// Sends what there is.
    fn send(&mut self) {
        if !self.batch.packets.is_empty() {
            let next = self.spare.try_recv().unwrap_or_default();
            let batch = std::mem::replace(&mut self.batch, next);
            self.send_job(Job::Packets(batch));
        }
    }

    fn send_job(&self, job: Job) {
        if self.jobs.send(job).is_err() {
            gone();
        }
    }
}

impl Drop for ShardThread {
    fn drop(&mut self) {
        // Without a sender the thread ends when it has done what it was told.
        self.jobs = sync_channel(0).0;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn work(mut meter: Meter<MemoryHints>, todo: &Receiver<Job>, answer: &Sender<Answer>, done: &Sender<Batch>) {
    let mut made = ShardMerger::default();
    for job in todo {
        match job {
            Job::Packets(mut batch) => {
                meter.push(&batch.lend(), &mut made);
                batch.clear();
                // Who made it may have ended.
                let _ = done.send(batch);
                continue;
            }
            Job::Lost(second, packets) => {
                meter.lost(second, packets);
                continue;
            }
            Job::Pass(now) => {
                meter.tick(now, &mut made);
                continue;
            }
            Job::Count => {
                // What is made by now waits for the order of its second.
                let (made, counts, cpu) = (ShardMerger::default(), meter.counts(), sys::cpu::thread_time());
                let _ = answer.send(Answer { made, counts, cpu });
                continue;
            }
            Job::Tick(now) => meter.tick(now, &mut made),
            Job::Finish => meter.finish(&mut made),
        }
        let made = std::mem::take(&mut made);
        let _ = answer.send(Answer { made, counts: meter.counts(), cpu: sys::cpu::thread_time() });
    }
}

impl Batch {
    fn push(&mut self, packet: &Packet<'_>, payload: usize) {
        let decoded = packet.decoded;
        let of_payload = if payload > 0 { usize::from(decoded.payload) + payload } else { 0 };
        let read = (usize::from(decoded.l3) + L3).max(usize::from(decoded.l4) + L4).max(of_payload);
        self.bytes.extend_from_slice(&packet.data[..read.min(packet.data.len())]);
        self.packets.push(Copied {
            ts: packet.ts,
            wire_len: packet.wire_len,
            position: packet.position,
            queue: packet.queue,
            decoded: *decoded,
            end: self.bytes.len(),
        });
    }

    fn lend(&self) -> Vec<Packet<'_>> {
        let begins = std::iter::once(0).chain(self.packets.iter().map(|packet| packet.end));
        let each = self.packets.iter().zip(begins);
        each.map(|(copied, begin)| Packet {
            ts: copied.ts,
            wire_len: copied.wire_len,
            data: &self.bytes[begin..copied.end],
            decoded: &copied.decoded,
            position: copied.position,
            queue: copied.queue,
        })
        .collect()
    }

    fn clear(&mut self) {
        self.packets.clear();
        self.bytes.clear();
    }
}
