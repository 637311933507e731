//! The input of a meter: one lossless reader for each queue. The packets of all queues are merged in the order of their
//! timestamps.
//!
//! The NIC and the kernel may distribute the two directions of a connection to different queues, so the meter must see
//! all queues together to measure flows. It orders packets by timestamp, then by queue. This order is deterministic as
//! long as every queue publishes its packets within [`TIMEOUT`]. The merge does not wait longer for a queue without
//! packets, because meanwhile the rings of the other queues would fill.
//!
//! The meter reads packets in the ring's memory and must not block the recorder, which shares the ring. A queue reader
//! that is more than half a ring behind the producer skips packets until it is less than a quarter of a ring behind.
//! Skipped packets are counted as unmetered. A source that can wait (a file) waits for the meter, so none of its
//! packets is skipped.

use crate::error::MeterError;
use crate::packet_bytes::{BATCH, PacketBytes};
use base::Timestamp;
use ring::{Control, Desc, DescPosition, FILE_HEADER, LosslessReader, Producer, RECORD_HEADER};
use std::sync::Arc;
use std::time::Duration;

/// Name of the meter's reader in lists of readers and in loss causes.
const READER_NAME: &str = "meter";

/// The longest time from a packet's timestamp to its publication in the ring: the kernel hands over a TPACKET_V3 block
/// within 25 ms, a poll sleeps up to 20 ms, and a busy CPU runs other threads first.
const TIMEOUT: Duration = Duration::from_millis(100);

/// The reader of one queue.
pub struct QueueReader {
    reader: LosslessReader,
    /// Number of the queue.
    pub queue: u16,
    /// The pcap link type.
    pub link_type: u16,
    /// Descriptors read from the ring. The descriptors from index `next` on are not metered yet.
    descs: Vec<Desc>,
    next: usize,
    /// The ring index and the stream position that follow the last metered descriptor.
    done: DescPosition,
    /// The latest timestamp of the descriptors that were released.
    reached: Timestamp,
    shedding: bool,
    ended: bool,
}

/// The readers of all queues of one interface.
pub struct QueueMerge {
    readers: Vec<QueueReader>,
    /// True if the source cannot wait until the ring has space.
    live: bool,
}

/// The next step of the meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextRun {
    /// A run of descriptors of one queue is to be metered.
    Run {
        /// Index of the queue reader.
        reader: usize,
        /// Number of descriptors in the run, at most [`BATCH`].
        descs: usize,
        /// True if the packets are to be counted as unmetered and skipped.
        skipped: bool,
    },
    /// At the moment there are no packets to meter.
    Idle,
    /// All queues have ended.
    End,
}

impl QueueReader {
    /// Joins a ring before its first packet.
    ///
    /// # Errors
    /// The ring admits no further lossless reader.
    pub fn join(producer: &mut Producer, queue: u16, link_type: u16) -> Result<Self, MeterError> {
        let (memory, registry) = (Arc::clone(producer.memory()), Arc::clone(producer.registry()));
        let joined = std::thread::scope(|scope| {
            let joining = scope.spawn(|| LosslessReader::join(&memory, &registry, READER_NAME));
            // The engine thread does not run yet, so this loop processes the join request.
            while !joining.is_finished() {
                producer.service();
                std::thread::sleep(Duration::from_micros(100));
            }
            joining.join()
        });
        match joined {
            Ok(Ok(reader)) => Ok(Self::new(reader, queue, link_type)),
            Ok(Err(e)) => Err(MeterError::Join(e)),
            Err(_) => Err(MeterError::Panicked("the meter's reader")),
        }
    }

    fn new(reader: LosslessReader, queue: u16, link_type: u16) -> Self {
        let done = reader.released();
        Self {
            reader,
            queue,
            link_type,
            descs: Vec::with_capacity(BATCH),
            next: 0,
            done,
            reached: Timestamp::ZERO,
            shedding: false,
            ended: false,
        }
    }

    fn refill(&mut self, live: bool) {
        if self.next < self.descs.len() || self.ended {
            return;
        }
        // The end flag is read before the descriptors. So if the flag is set, the descriptors published before the end
        // are not missed.
        let ended = self.reader.ended();
        self.descs.clear();
        self.next = 0;
        self.descs.extend_from_slice(self.reader.next(BATCH));
        self.ended = ended && self.descs.is_empty();
        if live {
            self.shedding = self.is_behind(if self.shedding { 4 } else { 2 });
        }
    }

    /// True if this reader is behind the producer by more than the ring's capacity divided by `part`.
    fn is_behind(&self, part: u64) -> bool {
        let memory = self.reader.memory();
        let written = memory.control.positions();
        written.oldest_pos(memory.byte_capacity() / part) > self.done.pos
            || written.oldest_desc(memory.desc_capacity() / part) > self.done.desc
    }

    /// Returns the time up to which all packets of this queue have been read; `None` if the queue has ended.
    fn horizon(&self, now: Option<Timestamp>) -> Option<Timestamp> {
        match self.descs.get(self.next) {
            Some(desc) => Some(desc.timestamp()),
            None if self.ended => None,
            None => Some(now.map_or(self.reached, |now| now.before(TIMEOUT).max(self.reached))),
        }
    }

    fn release(&mut self, descs: usize) {
        for desc in &self.descs[self.next..self.next + descs] {
            self.reached = self.reached.max(desc.timestamp());
            match desc.as_control() {
                None if desc.is_packet() => self.done.pos = desc.end(),
                Some(Control::Segment { pos, .. }) => self.done.pos = pos + FILE_HEADER as u64,
                Some(Control::End) => self.ended = true,
                _ => {}
            }
        }
        self.next += descs;
        self.done.desc += descs as u64;
        self.reader.release(self.done);
    }
}

impl PacketBytes for QueueReader {
    fn bytes(&self, desc: &Desc) -> &[u8] {
        self.reader.bytes(desc.pos() + RECORD_HEADER as u64, desc.caplen.into())
    }

    fn wire_len(&self, desc: &Desc) -> u32 {
        if desc.wire_len < u16::MAX {
            return desc.wire_len.into();
        }
        let header = self.reader.bytes(desc.pos() + 12, 4);
        header.try_into().map_or(u32::from(u16::MAX), u32::from_le_bytes)
    }

    fn link_type(&self) -> u16 {
        self.link_type
    }

    fn queue(&self) -> u16 {
        self.queue
    }
}

impl QueueMerge {
    /// Creates the merge of these queues.
    pub fn new(readers: Vec<QueueReader>, live: bool) -> Self {
        Self { readers, live }
    }

    /// Returns the size in bytes of the packet memory of the smallest ring.
    pub fn least_bytes(&self) -> u64 {
        self.readers.iter().map(|reader| reader.reader.memory().byte_capacity()).min().unwrap_or(0)
    }

    /// Returns the next step. `now` returns the system time and is called for live sources only.
    pub fn turn(&mut self, now: impl Fn() -> Timestamp) -> NextRun {
        let live = self.live;
        self.readers.iter_mut().for_each(|reader| reader.refill(live));
        if let [reader] = self.readers.as_slice() {
            let descs = reader.descs.len() - reader.next;
            return match descs {
                0 if reader.ended => NextRun::End,
                0 => NextRun::Idle,
                _ => NextRun::Run { reader: 0, descs, skipped: reader.shedding },
            };
        }
        let now = self.live.then(now);
        let horizons = || self.readers.iter().enumerate().filter_map(|(i, reader)| Some((reader.horizon(now)?, i)));
        let Some((_, first)) = horizons().min() else { return NextRun::End };
        let limit = horizons().filter(|(_, i)| *i != first).min();
        let reader = &self.readers[first];
        let before = |desc: &&Desc| limit.is_none_or(|limit| (desc.timestamp(), first) < limit);
        match reader.descs[reader.next..].iter().take_while(before).count() {
            0 => NextRun::Idle,
            descs => NextRun::Run { reader: first, descs, skipped: reader.shedding },
        }
    }

    /// Returns the queue reader of a run and the descriptors of the run.
    pub fn run(&self, reader: usize, descs: usize) -> (&QueueReader, &[Desc]) {
        let reader = &self.readers[reader];
        (reader, &reader.descs[reader.next..reader.next + descs])
    }

    /// Releases the descriptors of a run, so that the producer may overwrite them and their packets.
    pub fn done(&mut self, reader: usize, descs: usize) {
        self.readers[reader].release(descs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;
    use ring::{Config, Packet};

    fn ring(queue: u16) -> (Producer, QueueReader) {
        let mut producer = Producer::new(Config { queue, bytes: 8 << 20, ..Config::default() }).expect("memory");
        let reader = QueueReader::join(&mut producer, queue, 1).unwrap_or_else(|e| panic!("{e}"));
        (producer, reader)
    }

    fn push(producer: &mut Producer, ts: u64, len: usize) {
        let bytes = vec![0x5a; len];
        let packet = Packet::whole(&bytes, Timestamp::from_nanos(ts));
        producer.push(&packet).expect("space in the ring");
    }

    /// Processes all available runs of descriptors. Returns, for each packet, its timestamp, its queue, and true if the
    /// packet was skipped.
    fn drain(merge: &mut QueueMerge) -> Vec<(u64, u16, bool)> {
        let mut out = Vec::new();
        while let NextRun::Run { reader, descs, skipped } = merge.turn(|| Timestamp::MAX) {
            let (from, run) = merge.run(reader, descs);
            out.extend(run.iter().filter(|d| d.is_packet()).map(|d| (d.ts, from.queue, skipped)));
            merge.done(reader, descs);
        }
        out
    }

    #[test]
    fn only_live_meters_shed_load_from_half_to_a_quarter_of_a_ring_behind() {
        for live in [true, false] {
            let (mut producer, reader) = ring(0);
            // The packets fill 6 MiB of the 8 MiB of the ring.
            (0..6000).for_each(|i| push(&mut producer, i, 1024));
            producer.publish();
            let taken = drain(&mut QueueMerge::new(vec![reader], live));
            assert_eq!(taken.len(), 6000, "each packet is in a run, metered or skipped");
            let shed = taken.iter().filter(|(_, _, shed)| *shed).count();
            assert_eq!(shed > 0, live, "skipped packets: {shed}");
            assert!(shed < 6000 && taken.last().is_some_and(|last| !last.2), "the last 2 MiB of packets are metered");
            // As soon as the reader is less than a quarter of a ring behind, it skips no more packets.
            assert!(taken.iter().skip_while(|(_, _, shed)| *shed).all(|(_, _, shed)| !shed));
        }
    }

    #[test]
    fn the_merge_waits_for_a_queue_without_packets_for_a_limited_time() {
        let ((mut a, one), (b, two)) = (ring(0), ring(1));
        push(&mut a, 1_000_000_000, 60);
        a.publish();
        let mut merge = QueueMerge::new(vec![one, two], true);
        let at = |nanos: u64| Timestamp::from_nanos(nanos).after(TIMEOUT);
        assert_eq!(
            merge.turn(|| at(999_999_999)),
            NextRun::Idle,
            "an earlier packet may still arrive on the other queue"
        );
        assert!(matches!(merge.turn(|| at(1_000_000_000)), NextRun::Run { reader: 0, .. }));
        drop(b);
    }

    #[test]
    fn packets_of_all_queues_are_ordered_by_timestamp_then_queue() {
        let mut random = Prng::new(testkit::seed("packets_of_all_queues_are_ordered_by_timestamp_then_queue"));
        let mut rings: Vec<(Producer, QueueReader)> = (0..3).map(ring).collect();
        let (mut expected, mut stamps) = (Vec::new(), [1u64; 3]);
        for _ in 0..5000 {
            let queue = random.below(3) as usize;
            stamps[queue] += random.below(3);
            push(&mut rings[queue].0, stamps[queue], 60);
            expected.push((stamps[queue], queue as u16, false));
        }
        let readers = rings.into_iter().map(|(mut producer, reader)| {
            producer.publish();
            assert!(producer.finish(Timestamp::from_nanos(stamps[usize::from(reader.queue)])));
            reader
        });
        expected.sort();
        assert_eq!(drain(&mut QueueMerge::new(readers.collect(), false)), expected);
    }
}
