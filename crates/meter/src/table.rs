//! The flow table of a meter. It runs in the meter's own thread, or in several threads with one shard each.
//!
//! The shard threads do not read the ring, because a slow thread would prevent the producer from overwriting it.
//! Instead, each shard thread gets batches with copies of the packet bytes that a flow table reads, some hundred bytes
//! per packet. At the begin of each second the meter waits for all threads, and merges their records in an order that
//! does not depend on the number of threads. In a second without packets the meter waits only if a record may be due:
//! the last reply of each thread contains the first second in which this is possible. So the result is that of one
//! thread (`netgrain_flow::ShardMerger`), and counts that are read between two packets are exact at that moment.

use base::Timestamp;
use flow::{Config, Counts, Hints, Meter, Packet, Router, ShardMerger, Shards, Sink};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use wire::Decoded;

/// The nice value of the meter. Its priority is lower than that of capture and recorder, because the rings absorb a
/// delay of the meter.
pub const NICE: i32 = 5;

/// Number of packets in a batch for a thread. To wake the thread costs as much as to meter about ten packets.
const BATCH: usize = 512;

/// The largest number of batches queued for a thread; while the queue is full, the meter waits.
const WAITING: usize = 16;

/// Bytes that a flow table reads from the begin of the network header: the length of an IPv6 header.
const L3: usize = 40;

/// Bytes that a flow table reads from the begin of the transport header: a TCP header up to the window.
const L4: usize = 16;

/// Hints to the kernel and the CPU that make the tables' memory faster to access.
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

/// See the module documentation.
pub enum Table {
    /// One or more shards in the thread of the meter.
    Here(Box<Shards<MemoryHints>>),
    /// A table in several threads.
    Threads(Box<ShardThreads>),
}

impl Table {
    /// Creates a flow table with this number of shards. A single shard runs in the thread of the meter. Of several
    /// shards, each runs in its own thread.
    ///
    /// # Errors
    /// The system cannot create a thread.
    pub fn new(config: &Config, interface: u16, shards: usize) -> std::io::Result<Self> {
        Ok(match shards {
            0 | 1 => Self::Here(Box::new(Shards::with_hints(config, interface, 1, MemoryHints))),
            _ => Self::Threads(Box::new(ShardThreads::new(config, interface, shards)?)),
        })
    }

    /// Meters packets in order of arrival, and advances the time to their timestamps.
    pub fn push(&mut self, packets: &[Packet<'_>], sink: &mut dyn Sink) {
        match self {
            Self::Here(shards) => shards.push(packets, sink),
            Self::Threads(threads) => threads.push(packets, sink),
        }
    }

    /// Advances the time: no packet before `now` follows.
    pub fn tick(&mut self, now: Timestamp, sink: &mut dyn Sink) {
        match self {
            Self::Here(shards) => shards.tick(now, sink),
            Self::Threads(threads) => threads.tick(now, sink),
        }
    }

    /// Ends all flows and makes their records.
    pub fn finish(&mut self, sink: &mut dyn Sink) {
        match self {
            Self::Here(shards) => shards.finish(sink),
            Self::Threads(threads) => threads.finish(sink),
        }
    }

    /// Registers packets that the interface lost in a second. The records of the flows that are active in this second
    /// include the loss.
    pub fn lost(&mut self, second: u64, packets: u64) {
        match self {
            Self::Here(shards) => shards.lost(second, packets),
            Self::Threads(threads) => threads.lost(second, packets),
        }
    }

    /// Returns the counters. If there are several threads, the counters are those of the last reply of all threads.
    pub fn counts(&self) -> Counts {
        match self {
            Self::Here(shards) => shards.counts(),
            Self::Threads(threads) => threads.counts,
        }
    }

    /// Returns the counters at the time of the call; waits for the threads if there are several.
    pub fn counts_now(&mut self) -> Counts {
        match self {
            Self::Here(shards) => shards.counts(),
            Self::Threads(threads) => {
                if threads.busy {
                    threads.request(|| Job::Count);
                }
                threads.counts
            }
        }
    }

    /// Returns the CPU time of the shard threads as of their last reply.
    pub fn cpu(&self) -> Duration {
        match self {
            Self::Here(_) => Duration::ZERO,
            Self::Threads(threads) => threads.cpu,
        }
    }
}

/// The shard threads of a flow table.
pub struct ShardThreads {
    router: Router,
    threads: Vec<ShardThread>,
    counts: Counts,
    cpu: Duration,
    /// Bytes of payload copied from each packet.
    payload: usize,
    /// True if the threads got packets or losses since they last replied.
    busy: bool,
    /// The earliest second in which a thread may make a record if no further packets arrive, according to the last
    /// replies of the threads.
    next_due: Option<u64>,
    /// The begin of the current second, if it has not been sent to the threads yet.
    passed: Option<Timestamp>,
    /// Number of times that the meter has waited for the threads.
    waits: u64,
}

/// The meter's handle of a shard thread.
struct ShardThread {
    jobs: SyncSender<Job>,
    replies: Receiver<Reply>,
    /// Buffers of processed batches, which the thread returned for reuse.
    spare: Receiver<Batch>,
    batch: Batch,
    thread: Option<JoinHandle<()>>,
}

enum Job {
    Packets(Batch),
    Lost(u64, u64),
    /// Advance the time; send no reply.
    Pass(Timestamp),
    /// Reply with the counters as of the end of all earlier jobs.
    Count,
    /// Advance the time and reply.
    Tick(Timestamp),
    /// End all flows and reply.
    Finish,
}

struct Reply {
    made: ShardMerger,
    counts: Counts,
    cpu: Duration,
    /// See [`Meter::next_due`].
    next_due: Option<u64>,
}

/// Packets for a shard thread, with copies of the bytes that a flow table reads.
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
    /// Offset in the copied bytes at which the bytes of this packet end. They begin at the end of the previous packet's
    /// bytes.
    end: usize,
}

impl ShardThreads {
    fn new(config: &Config, interface: u16, shards: usize) -> std::io::Result<Self> {
        let thread = |number| ShardThread::new(Shards::part(config, shards), interface, number);
        Ok(Self {
            router: Router::new(config, shards),
            threads: (0..shards).map(thread).collect::<Result<_, _>>()?,
            counts: Counts::default(),
            cpu: Duration::ZERO,
            payload: config.payload.into(),
            busy: false,
            next_due: None,
            passed: None,
            waits: 0,
        })
    }

    fn push(&mut self, packets: &[Packet<'_>], sink: &mut dyn Sink) {
        for packet in packets {
            self.tick(packet.ts, sink);
            self.before_work();
            let shard = &mut self.threads[self.router.shard(packet)];
            shard.batch.push(packet, self.payload);
            if shard.batch.packets.len() == BATCH {
                shard.send();
            }
        }
    }

    fn tick(&mut self, now: Timestamp, sink: &mut dyn Sink) {
        let before = self.router.now();
        if !self.router.second(now) {
            return;
        }
        // If the time goes back, because the clock was set back, all flows end.
        let is_back = before.is_some_and(|before| now.secs() < before);
        if is_back {
            self.pass();
        }
        if self.busy || is_back || self.next_due.is_some_and(|due| due <= now.secs()) {
            self.passed = None;
            return self.gather(|| Job::Tick(now), sink);
        }
        self.passed = Some(now);
    }

    /// Sends the begin of the current second to the shard threads. Must be called before packets of that second are
    /// sent.
    fn pass(&mut self) {
        if let Some(now) = self.passed.take() {
            self.threads.iter().for_each(|shard| shard.send_job(Job::Pass(now)));
        }
    }

    /// Sends the begin of the current second, if this has not happened yet. Must be called before packets or losses are
    /// sent to the shard threads.
    #[inline]
    fn before_work(&mut self) {
        if !self.busy {
            self.busy = true;
            self.pass();
        }
    }

    fn finish(&mut self, sink: &mut dyn Sink) {
        self.pass();
        self.gather(|| Job::Finish, sink);
    }

    fn lost(&mut self, second: u64, packets: u64) {
        self.before_work();
        for shard in &mut self.threads {
            shard.send();
            shard.send_job(Job::Lost(second, packets));
        }
    }

    /// Sends this job to all threads, waits for their replies, and passes the records of the replies to the sink.
    fn gather(&mut self, job: impl Fn() -> Job, sink: &mut dyn Sink) {
        let mut made = self.request(job);
        ShardMerger::merge(&mut made, sink);
    }

    /// Sends the filled batches and this job to all threads. Returns the records of each reply.
    fn request(&mut self, job: impl Fn() -> Job) -> Vec<ShardMerger> {
        for shard in &mut self.threads {
            shard.send();
            shard.send_job(job());
        }
        let mut made = Vec::with_capacity(self.threads.len());
        (self.counts, self.cpu, self.next_due) = (Counts::default(), Duration::ZERO, None);
        self.waits += 1;
        for shard in &self.threads {
            let reply = shard.replies.recv().unwrap_or_else(|_| panicked());
            self.counts = self.counts.and(&reply.counts);
            self.cpu += reply.cpu;
            self.next_due = [self.next_due, reply.next_due].into_iter().flatten().min();
            made.push(reply.made);
        }
        self.busy = false;
        made
    }
}

/// A shard thread ends early only if it panics, and the panic has been printed. The meter cannot continue, because the
/// counters would be wrong.
fn panicked() -> ! {
    panic!("a thread of the flow table has ended")
}

impl ShardThread {
    fn new(config: Config, interface: u16, number: usize) -> std::io::Result<Self> {
        let (jobs, jobs_to_do) = sync_channel(WAITING);
        let (reply, replies) = channel();
        let (done, spare) = channel();
        let work = move || {
            let _ = sys::cpu::set_nice(NICE);
            work(Meter::with_hints(config, interface, MemoryHints), &jobs_to_do, &reply, &done);
        };
        let thread = std::thread::Builder::new().name(format!("flows-{number}")).spawn(work)?;
        Ok(Self { jobs, replies, spare, batch: Batch::default(), thread: Some(thread) })
    }

    /// Sends the current batch to the thread, if it has packets.
    fn send(&mut self) {
        if !self.batch.packets.is_empty() {
            let next = self.spare.try_recv().unwrap_or_default();
            let batch = std::mem::replace(&mut self.batch, next);
            self.send_job(Job::Packets(batch));
        }
    }

    fn send_job(&self, job: Job) {
        if self.jobs.send(job).is_err() {
            panicked();
        }
    }
}

impl Drop for ShardThread {
    fn drop(&mut self) {
        // When the sender is dropped, the thread ends after the jobs that are already queued.
        self.jobs = sync_channel(0).0;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn work(mut meter: Meter<MemoryHints>, jobs: &Receiver<Job>, reply: &Sender<Reply>, done: &Sender<Batch>) {
    let mut made = ShardMerger::default();
    for job in jobs {
        match job {
            Job::Packets(mut batch) => {
                meter.push(&batch.lend(), &mut made);
                batch.clear();
                // The send fails if the meter has ended; then the batch is not reused.
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
                // The records made so far remain here until the end of their second, when they are ordered.
                let (made, counts, cpu) = (ShardMerger::default(), meter.counts(), sys::cpu::thread_time());
                let _ = reply.send(Reply { made, counts, cpu, next_due: meter.next_due() });
                continue;
            }
            Job::Tick(now) => meter.tick(now, &mut made),
            Job::Finish => meter.finish(&mut made),
        }
        let made = std::mem::take(&mut made);
        let (counts, cpu, next_due) = (meter.counts(), sys::cpu::thread_time(), meter.next_due());
        let _ = reply.send(Reply { made, counts, cpu, next_due });
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

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;
    use flow::Record;
    use wire::build::Frame;

    /// Meters one packet of a random flow after each silence, with a tick in each second of the silence, as in a slow
    /// capture.
    fn metered(table: &mut Table, silences: impl Iterator<Item = u64>) -> Vec<Record> {
        let (mut prng, mut second, mut records) = (Prng::new(7), 1_000_000, Vec::new());
        for silence in silences {
            for _ in 0..silence {
                second += 1;
                table.tick(Timestamp::from_secs_nanos(second, 0), &mut records);
            }
            let mut buffer = [0; 100];
            let port = 1000 + prng.below(5) as u16;
            let frame = Frame::udp4([10, 0, 0, 1], port, [10, 0, 0, 2], 53).payload(b"hello").write(&mut buffer);
            let data: &[u8] = frame.expect("a frame shorter than the buffer");
            let decoded = Decoded::of(data, data.len() as u32, 1);
            let ts = Timestamp::from_secs_nanos(second, 5);
            let (wire_len, position) = (data.len() as u32, Packet::NOWHERE);
            table.push(&[Packet { ts, wire_len, data, decoded: &decoded, position, queue: 0 }], &mut records);
        }
        table.finish(&mut records);
        records
    }

    #[test]
    fn the_meter_does_not_wait_for_shards_in_seconds_without_packets() {
        let config = Config { capacity: 1000, ..Config::default() };
        let silences = || (0..200).map(|i| [1, 2, 30, 50][i % 4]);
        let mut one = Table::new(&config, 0, 1).expect("a table without threads");
        let expected = metered(&mut one, silences());
        let mut many = Table::new(&config, 0, 2).expect("two threads");
        assert_eq!(metered(&mut many, silences()), expected);
        assert!(expected.len() > 50, "flows must end in seconds without packets; records: {}", expected.len());
        let Table::Threads(threads) = many else { panic!("two shards run in threads") };
        // For each packet the meter waits for the threads at the end of the packet's second, and again when the flow of
        // the packet may have reached its timeout.
        assert!(
            threads.waits < 3 * 200,
            "the meter waited {} times for 200 packets in {} s",
            threads.waits,
            silences().sum::<u64>()
        );
    }
}
