//! Reads the ring of the recorder that writes a store: finds the recorder, attaches to its ring, and returns one
//! descriptor after the other.
//!
//! The recorder is a lossless reader of the ring, so packets that were overwritten in the ring are on disk and in the
//! index. A query whose next packet was overwritten continues with the file, and a query at the end of the file
//! continues with the ring.

use crate::QueryContext;
use base::Timestamp;
use ring::{AttachError, Control, Desc, Listener, Mode};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};
use store::{Claim, Claimant};

/// Descriptors copied at a time.
const BATCH: usize = 1024;

/// Interval between tests whether the engine is running.
const LIFE: Duration = Duration::from_millis(100);

/// Name under which the engine's status shows this listener.
const NAME: &str = "query";

/// An event from the ring.
pub enum RingEvent {
    /// A packet.
    Packet(Desc),
    /// A control descriptor and its timestamp.
    Control(Control, Timestamp),
    /// No event now.
    Nothing,
    /// The next descriptor was overwritten.
    Lapped,
    /// The stream has ended.
    End,
}

/// A listener on the ring of one queue.
pub struct RingReader {
    listener: Listener,
    batch: Vec<Desc>,
    at: usize,
    record: Vec<u8>,
    query: Instant,
    connected: bool,
}

/// Attaches to the engine of the recorder; returns a reader of the ring of each queue. An error causes only a warning,
/// because the packets are also in the files.
pub fn attach(directory: &Path, holder: &Claimant, context: &mut QueryContext) -> BTreeMap<u16, RingReader> {
    let name = directory.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let Some(socket) = &holder.socket else {
        context.warning(format!(
            "{name}: its recorder (process {}) admits no listeners (--socket none); packets are found when they are on \
             disk, at most one second after their arrival",
            holder.pid
        ));
        return BTreeMap::new();
    };
    let listeners = match attach_with_retries(socket) {
        Ok(listeners) => listeners,
        Err(e) => {
            context.warning(format!(
                "{name}: {}: {e}; packets are found when they are on disk, at most one second after their arrival",
                socket.display()
            ));
            return BTreeMap::new();
        }
    };
    let ring_readers = listeners.into_iter().map(|listener| (listener.shape().queue, RingReader::new(listener)));
    ring_readers.collect()
}

/// Attaches, and retries an interrupted call: on a thread with io_uring, the completion of a read interrupts other
/// system calls (io_uring(7)).
fn attach_with_retries(socket: &Path) -> Result<Vec<Listener>, AttachError> {
    const TRIES: u32 = 10;
    let mut tries = 0;
    loop {
        tries += 1;
        match ring::attach(socket, Mode::Lossy, NAME) {
            Err(AttachError::Unreachable(e)) if e.kind() == io::ErrorKind::Interrupted && tries < TRIES => {}
            other => return other,
        }
    }
}

/// Calls `look`, and calls it again if the holder of the claim has changed during the call; returns the holder and the
/// result of `look`.
pub fn with_stable_holder<T>(directory: &Path, mut look: impl FnMut(Option<&Claimant>) -> T) -> (Option<Claimant>, T) {
    const ATTEMPTS: u32 = 10;
    let mut before = Claim::holder(directory);
    for _ in 0..ATTEMPTS {
        let seen = look(before.as_ref());
        let after = Claim::holder(directory);
        if after == before {
            return (after, seen);
        }
        before = after;
    }
    (None, look(None))
}

impl RingReader {
    fn new(listener: Listener) -> Self {
        let (batch, record) = (Vec::new(), Vec::new());
        Self { listener, batch, at: 0, record, query: Instant::now(), connected: true }
    }

    /// The name of the capture source of the engine.
    pub fn name(&self) -> &str {
        &self.listener.shape().name
    }

    /// Link type and snaplen of the packets.
    pub fn kind(&self) -> (u32, u32) {
        (self.listener.shape().link_type, self.listener.shape().snaplen)
    }

    /// Moves to the first packet at or after a stream position; returns true if no packet from this position on was
    /// overwritten.
    pub fn rewind(&mut self, pos: u64) -> bool {
        self.batch.clear();
        self.at = 0;
        self.listener.rewind(pos)
    }

    /// End position of the last published packet; `None` if the ring contains no packet.
    pub fn published(&self) -> Option<u64> {
        self.listener.published().1
    }

    /// The next event.
    pub fn next(&mut self) -> RingEvent {
        loop {
            if let Some(desc) = self.batch.get(self.at) {
                self.at += 1;
                match desc.as_control() {
                    Some(Control::End) => return RingEvent::End,
                    Some(control) => return RingEvent::Control(control, desc.timestamp()),
                    None if desc.is_packet() => return RingEvent::Packet(*desc),
                    // Control descriptors of unknown kinds are skipped, because they do not concern packets.
                    None => continue,
                }
            }
            // The test whether the engine has ended precedes the read: if the engine had ended before the read, the
            // ring contains every descriptor, and an empty read is the end.
            let over = self.listener.ended() || !self.is_connected();
            let at = self.listener.position();
            self.listener.next(BATCH, &mut self.batch);
            self.at = 0;
            if self.listener.position() != at + self.batch.len() as u64 {
                self.batch.clear();
                return RingEvent::Lapped;
            }
            if self.batch.is_empty() {
                return if over { RingEvent::End } else { RingEvent::Nothing };
            }
        }
    }

    /// The record of a packet, with its header; `None` if the ring has overwritten it.
    pub fn record(&mut self, desc: &Desc) -> Option<&[u8]> {
        self.listener.record(desc, &mut self.record)
    }

    /// Copies a range of the stream; returns false if a part of it was overwritten.
    pub fn copy_range(&self, pos: u64, out: &mut [u8]) -> bool {
        self.listener.copy_range(pos, out)
    }

    /// The bytes of the latest record.
    pub fn latest(&self) -> &[u8] {
        &self.record
    }

    fn is_connected(&mut self) -> bool {
        if self.connected && self.query.elapsed() >= LIFE {
            self.query = Instant::now();
            self.connected = self.listener.connected();
        }
        self.connected
    }
}
