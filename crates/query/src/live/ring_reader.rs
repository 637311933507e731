//! Listening to the ring of the recorder that writes a store: who that is, and one descriptor after the other.
//!
//! The recorder is a gate: what the ring has overwritten was on disk, and told of in the index, before. So whoever is
//! lapped goes back to the file, and whoever finds nothing more in the file comes here.

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

/// How often it is asked whether the engine lives.
const LIFE: Duration = Duration::from_millis(100);

/// What the listener is called in the engine's tables.
const NAME: &str = "query";

/// What comes out of the ring.
pub enum RingEvent {
    /// A packet.
    Packet(Desc),
    /// Something else that happened, and when.
    Control(Control, Timestamp),
    /// Nothing now.
    Nothing,
    /// What came next was overwritten.
    Lapped,
    /// Nothing will come.
    End,
}

/// One queue's ring.
pub struct RingReader {
    listener: Listener,
    batch: Vec<Desc>,
    at: usize,
    record: Vec<u8>,
    query: Instant,
    connected: bool,
}

/// Attaches to the engine of whoever records here: its rings by queue. What is in the way is a remark, and files are
/// enough.
pub fn attach(folder: &Path, holder: &Claimant, book: &mut QueryContext) -> BTreeMap<u16, RingReader> {
    let name = folder.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let Some(socket) = &holder.socket else {
        book.warning(format!(
            "{name}: its recorder (process {}) lets nobody listen (--socket none); packets are found when they are on \
             disk, a second after they came at the latest",
            holder.pid
        ));
        return BTreeMap::new();
    };
    let listeners = match patiently(socket) {
        Ok(listeners) => listeners,
        Err(e) => {
            book.warning(format!(
                "{name}: {}: {e}; packets are found when they are on disk, a second after they came at the latest",
                socket.display()
            ));
            return BTreeMap::new();
        }
    };
    let ears = listeners.into_iter().map(|listener| (listener.shape().queue, RingReader::new(listener)));
    ears.collect()
}

/// A thread that reads through io_uring is interrupted in other calls when a read is done (io_uring(7)); that is no answer.
fn patiently(socket: &Path) -> Result<Vec<Listener>, AttachError> {
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

/// Who records here, if it is the same before and after a look at something.
pub fn steady<T>(folder: &Path, mut look: impl FnMut(Option<&Claimant>) -> T) -> (Option<Claimant>, T) {
    const ATTEMPTS: u32 = 10;
    let mut before = Claim::holder(folder);
    for _ in 0..ATTEMPTS {
        let seen = look(before.as_ref());
        let after = Claim::holder(folder);
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

    /// What the engine calls what it captures.
    pub fn name(&self) -> &str {
        &self.listener.shape().name
    }

    /// How to read the first bytes of its packets, and how many bytes of each it keeps.
    pub fn kind(&self) -> (u32, u32) {
        (self.listener.shape().link_type, self.listener.shape().snaplen)
    }

    /// Goes to the first packet at or behind a position; true if none of those was overwritten.
    pub fn rewind(&mut self, pos: u64) -> bool {
        self.batch.clear();
        self.at = 0;
        self.listener.rewind(pos)
    }

    /// The end of the last packet that is published, as far as the ring still knows.
    pub fn published(&self) -> Option<u64> {
        self.listener.published().1
    }

    /// What is next.
    pub fn next(&mut self) -> RingEvent {
        loop {
            if let Some(desc) = self.batch.get(self.at) {
                self.at += 1;
                match desc.as_control() {
                    Some(Control::End) => return RingEvent::End,
                    Some(control) => return RingEvent::Control(control, desc.timestamp()),
                    None if desc.is_packet() => return RingEvent::Packet(*desc),
                    // A kind that this version does not know says nothing about packets.
                    None => continue,
                }
            }
            // In this order: whoever has ended publishes nothing more.
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

    /// The packet's record, header included; `None` if it was overwritten.
    pub fn record(&mut self, desc: &Desc) -> Option<&[u8]> {
        self.listener.record(desc, &mut self.record)
    }

    /// Copies a stretch of the stream; false if the ring has not all of it any more.
    pub fn stretch(&self, pos: u64, out: &mut [u8]) -> bool {
        self.listener.stretch(pos, out)
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
