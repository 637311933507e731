//! The steps for each frame: timestamp, the interface's program, header parser, filter, hash, and the single copy into
//! the ring.

use crate::batch_clock::BatchClock;
use crate::duplicates::{Detected, QueueDuplicates};
use crate::switch_stamps::SwitchStamps;
use crate::worker_links::{PAUSE, WorkerLinks};
use base::{Timestamp, TimestampMethod};
use capture::{FoundFrames, Frame, FrameSink};
use filter::Filter;
use interface_program::{IncomingPacket, ProgramSequence};
use ring::{Annotations, CAPLEN_MAX, Packet, Producer, TIMESTAMP_MAX, flag};
use std::borrow::Cow;
use sys::clock::Clock;
use wire::{FlowHasher, Headers};

/// Number of bytes that are rebuilt at the start of a frame whose VLAN tag the NIC has removed, for the header parser
/// and the filter.
const HEAD: usize = 320;

/// The data that the steps for each frame use. A value of this type exists only during one poll of the source.
pub struct Stage<'a> {
    /// The ring.
    pub producer: &'a mut Producer,
    /// The interface's program.
    pub program: Option<&'a mut ProgramSequence>,
    /// The capture filter. Packets that do not match are counted as filtered and not stored.
    pub filter: Option<&'a Filter>,
    /// The detection of duplicates among the packets that match the filter.
    pub duplicates: Option<&'a mut QueueDuplicates>,
    /// The flow hash function.
    pub hasher: &'a FlowHasher,
    /// The clock for frames without a timestamp.
    pub clock: &'a Clock,
    /// The snaplen: the largest number of bytes stored of a packet.
    pub snaplen: usize,
    /// The link type, as pcap numbers it.
    pub link_type: u16,
    /// The annotations of packets whose timestamps the source made, unless the source names another method.
    pub annotations: Annotations,
    /// The timestamps that a switch added to the frames, if they are to be read.
    pub switch_stamps: Option<&'a mut SwitchStamps>,
    /// The number of packets by the method of their timestamp.
    pub methods: &'a mut [u64; TimestampMethod::COUNT],
    /// The timestamps of packets if the engine reads its clock once for each batch.
    pub batch_clock: Option<&'a mut BatchClock>,
    /// True if the source is an interface, which cannot wait for space in the ring. Then a timestamp that is earlier
    /// than the timestamp of the previous frame is replaced by the timestamp of the previous frame.
    pub live: bool,
    /// Timestamp of the previous frame.
    pub last: Timestamp,
    /// Number of frames processed so far.
    pub taken: u64,
    /// Returns true when a stop request or the time limit ends the capture.
    pub time_is_up: &'a dyn Fn() -> bool,
    /// The channels and shared values through which the engine thread communicates with the rest of the capture.
    pub links: &'a WorkerLinks,
}

impl FrameSink for Stage<'_> {
    #[inline]
    fn needs_batches(&self) -> bool {
        self.batch_clock.is_some()
    }

    #[inline]
    fn reads(&mut self) {
        if let Some(batch) = &mut self.batch_clock {
            batch.read(self.clock);
        }
    }

    #[inline]
    fn found(&mut self, frames: &FoundFrames<'_>) {
        if let Some(batch) = &mut self.batch_clock {
            batch.stamp(frames);
        }
    }

    /// Packets are prepared for the detection of duplicates if all of them are compared.
    #[inline]
    fn needs_ahead(&self) -> bool {
        self.duplicates.is_some() && self.filter.is_none() && self.program.is_none()
    }

    #[inline]
    fn ahead(&mut self, frame: &Frame<'_>) {
        if let Some(duplicates) = &mut self.duplicates {
            duplicates.ahead(compared(frame.bytes, frame.wire_len, Timestamp::ZERO, self.link_type));
        }
    }

    #[inline]
    fn take(&mut self, frame: &Frame<'_>) {
        self.process(frame);
    }
}

impl Stage<'_> {
    /// Processes one frame.
    #[inline]
    fn process(&mut self, frame: &Frame<'_>) {
        let (ts, annotations) = match (frame.stamp, &mut self.batch_clock) {
            (Some(stamp), _) => match frame.stamp_method {
                None => (stamp, self.annotations),
                Some(method) => (stamp, self.annotations.with_timestamp_method(method)),
            },
            (None, Some(batch)) => {
                let stamp = batch.next();
                (stamp.unwrap_or_else(|| self.clock.now()), batch.annotations())
            }
            (None, None) => (self.clock.now(), Annotations::new(TimestampMethod::Poll, None)),
        };
        match self.switch_stamps.take() {
            None => self.take_stamped(frame, ts, annotations),
            Some(stamps) => {
                match stamps.read(frame, self.link_type, ts) {
                    None => self.take_stamped(frame, ts, annotations),
                    Some((frame, time)) => {
                        let annotations = annotations.with_timestamp_method(TimestampMethod::Trailer);
                        self.take_stamped(&frame, time, annotations);
                    }
                }
                self.switch_stamps = Some(stamps);
            }
        }
    }

    /// Processes a frame from its timestamp on.
    #[inline]
    fn take_stamped(&mut self, frame: &Frame<'_>, mut ts: Timestamp, annotations: Annotations) {
        let mut flags = 0;
        self.methods[annotations.timestamp_method() as usize] += 1;
        if ts > TIMESTAMP_MAX {
            ts = TIMESTAMP_MAX;
            flags |= flag::CLAMPED;
        }
        if ts < self.last && self.live {
            ts = self.last;
            flags |= flag::CLAMPED;
        }
        self.last = ts;
        self.taken += 1;
        let stamped = Stamped { ts, annotations, flags };
        match frame.vlan {
            None => self.parse(frame, frame.bytes, frame.wire_len, stamped, None),
            Some(tag) => self.take_tagged(frame, tag, stamped),
        }
    }

    #[cold]
    fn take_tagged(&mut self, frame: &Frame<'_>, tag: capture::VlanTag, stamped: Stamped) {
        let mut tag_bytes = [0; 4];
        tag_bytes[..2].copy_from_slice(&tag.tpid.to_be_bytes());
        tag_bytes[2..].copy_from_slice(&tag.tci.to_be_bytes());
        let mut head = [0; HEAD];
        let split = frame.bytes.len().min(12);
        let len = (frame.bytes.len() + 4).min(HEAD);
        head[..split].copy_from_slice(&frame.bytes[..split]);
        head[split..split + 4].copy_from_slice(&tag_bytes);
        head[split + 4..len].copy_from_slice(&frame.bytes[split..len - 4]);
        let stamped = Stamped { flags: stamped.flags | flag::VLAN_RESTORED, ..stamped };
        self.parse(frame, &head[..len], frame.wire_len.saturating_add(4), stamped, Some(tag_bytes));
    }

    /// Processes a frame from the header parser on. `head` contains the first bytes of the frame, with the restored
    /// VLAN tag, as they will be stored; `wire_len` is the wire length that will be stored.
    #[inline]
    fn parse(&mut self, frame: &Frame<'_>, head: &[u8], wire_len: u32, stamped: Stamped, vlan: Option<[u8; 4]>) {
        let Stamped { ts, mut annotations, mut flags } = stamped;
        let mut from_program = None;
        if let Some(program) = &mut self.program {
            let bytes = &whole_frame(frame, head, vlan);
            let incoming = IncomingPacket { metadata: frame.metadata, bytes, wire_len, ts, outgoing: frame.outgoing };
            from_program = program.evaluate(&incoming);
            if from_program.is_none() {
                self.producer.filtered(ts, 1);
                return;
            }
        }
        let headers = Headers::of(head, wire_len, self.link_type);
        if let Some(filter) = self.filter
            && !filter.matches(head, wire_len, &headers)
        {
            self.producer.filtered(ts, 1);
            return;
        }
        if let Some(duplicates) = &mut self.duplicates {
            let data = whole_frame(frame, head, vlan);
            match duplicates.detect(&compared(&data, wire_len, ts, self.link_type)) {
                Detected::Stored(None) => (),
                Detected::Stored(Some(class)) => annotations = annotations.with_duplicate_class(class),
                Detected::Dropped => return self.producer.duplicate(ts, 1),
            }
        }
        let tag = if vlan.is_some() { 4 } else { 0 };
        let most = self.snaplen.min(CAPLEN_MAX).saturating_sub(tag);
        let bytes = &frame.bytes[..frame.bytes.len().min(most)];
        if bytes.len() + tag < wire_len as usize {
            flags |= flag::TRUNCATED;
        }
        if headers.malformed() {
            flags |= flag::MALFORMED;
        }
        if frame.super_frame {
            flags |= flag::SUPER_FRAME;
        }
        if frame.outgoing {
            flags |= flag::OUTGOING;
        }
        if frame.wire_raised {
            flags |= flag::WIRE_RAISED;
        }
        if !self.live && !self.producer.has_easy_room(bytes.len() + tag, ts) {
            self.wait_for_space(bytes.len() + tag, ts);
        }
        // The producer counts packets for which the ring has no space; capture continues.
        let stored = self
            .producer
            .push(&Packet {
                bytes,
                wire_len: frame.wire_len,
                ts,
                hash: from_program.and_then(|packet| packet.hash).unwrap_or_else(|| self.hasher.hash(head, &headers)),
                mark: from_program.map_or(0, |packet| packet.mark),
                flags,
                annotations,
                l3: headers.l3(),
                l4: headers.l4(),
                vlan,
            })
            .is_ok();
        if flags != 0 && stored {
            self.note(flags);
        }
        if !stored && let Some(duplicates) = &mut self.duplicates {
            let data = whole_frame(frame, head, vlan);
            duplicates.forget_last(&compared(&data, wire_len, ts, self.link_type));
        }
    }

    /// Waits until the ring has space. The source is a file, which, unlike an interface, can wait until the lossless
    /// readers have released space. So no packet of a file is lost.
    #[cold]
    fn wait_for_space(&mut self, len: usize, ts: Timestamp) {
        if self.producer.has_room(len, ts, self.clock.now()) {
            return;
        }
        loop {
            self.producer.publish();
            self.producer.service();
            if self.producer.has_room(len, ts, self.clock.now()) {
                return;
            }
            if (self.time_is_up)() {
                self.links.close(self.producer);
            }
            std::thread::sleep(PAUSE);
        }
    }

    #[cold]
    fn note(&mut self, flags: u8) {
        for (bit, note) in flag::NOTE_FLAGS {
            if flags & bit != 0 {
                self.producer.note(note, 1);
            }
        }
    }
}

/// The timestamp of a packet, its annotations, and the flags of its descriptor.
#[derive(Clone, Copy)]
struct Stamped {
    ts: Timestamp,
    annotations: Annotations,
    flags: u8,
}

/// The bytes of a frame with its restored VLAN tag. `head` contains the complete frame with the tag, unless the frame
/// is longer than `head`.
#[inline]
fn whole_frame<'a>(frame: &Frame<'a>, head: &'a [u8], vlan: Option<[u8; 4]>) -> Cow<'a, [u8]> {
    match vlan {
        None => Cow::Borrowed(frame.bytes),
        Some(_) if head.len() == frame.bytes.len() + 4 => Cow::Borrowed(head),
        Some(_) => Cow::Owned([head, &frame.bytes[head.len() - 4..]].concat()),
    }
}

/// The packet for the detection of duplicates.
#[inline]
fn compared(data: &[u8], wire_len: u32, ts: Timestamp, link_type: u16) -> ::duplicates::Packet<'_> {
    ::duplicates::Packet { ts, data, wire_len, link_type, interface: 0 }
}
