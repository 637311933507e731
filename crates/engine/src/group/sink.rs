//! Where the engine itself puts a group's packets: a thread for each outlet empties its branches into a port or a file.
//!
//! The dispatcher never waits for an outlet. What it is too slow for finds no room in the branch and is counted there as
//! lost. What is not put there has failed: overwritten in the ring before its turn, refused by the port (larger than its
//! MTU), captured in part only (for a port, because that would be another packet), sent by this host already ([`OwnTraffic`]), or more
//! than the file was to have.

use crate::egress::{Egress, index_of};
use group::{PacketSink, SinkCounts, SinkResult};
use ring::{Branch, Desc, FILE_HEADER, Listener, RECORD_HEADER, flag};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Descriptors taken at a time.
const BATCH: usize = 256;

/// Sleep when there is nothing to do.
const IDLE_SLEEP: Duration = Duration::from_micros(300);

/// How often a port that takes nothing is looked for under its name.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Bytes of a file that are written at once, at most, but for the last packet.
const PIECE: usize = 1 << 20;

/// Remarks that are kept; the oldest go.
const WARNINGS_MAX: usize = 32;

/// Of files: packets are nobody else's business.
const MODE: u32 = 0o600;

/// What is to become of packets that this host sent itself, where the outlet is a port. One that leaves by the port on which it
/// was seen is seen there again, and between two engines that forward to each other's ports none would ever come to rest.
pub struct OwnTraffic<'a> {
    /// Where those of each branch were seen; they never leave by it.
    pub ports: Vec<&'a str>,
    /// Whether they leave by others.
    pub outgoing: bool,
}

/// What a person should know of outlets that fail, in order.
pub type Warnings = Arc<Mutex<Vec<String>>>;

/// A thread that empties branches, and its books.
pub type SinkThread = (JoinHandle<()>, Arc<SinkCounts>);

/// Begins to empty the branches into this outlet, until they end.
///
/// # Errors
/// In words, why nothing can be put there.
pub fn open(
    to: &PacketSink,
    branches: &[&Branch],
    own: &OwnTraffic<'_>,
    remarks: &Warnings,
) -> Result<SinkThread, String> {
    let listeners: Vec<Listener> = branches.iter().map(|branch| branch.listen()).collect();
    match to {
        PacketSink::Port(name) => start(InterfaceSink::open(name, own)?, listeners),
        PacketSink::File { path, max_bytes: most } => {
            let header = listeners.first().map_or([0; FILE_HEADER], Listener::file_header);
            start(PcapSink::create(path, *most, &header, remarks)?, listeners)
        }
    }
}

/// A place for packets.
trait PacketSinkWriter: Send + 'static {
    /// Puts packets of a branch there, by its number, and counts what became of each.
    fn put(&mut self, branch: usize, listener: &Listener, packets: &[Desc], books: &SinkCounts);
}

/// They are sent through a port.
struct InterfaceSink {
    egress: Egress,
    /// When it was last looked for.
    last_check: Instant,
    /// What this host sent leaves by it, too: for each branch.
    outgoing: Vec<bool>,
    buffer: Vec<u8>,
    /// Frames one behind the other, and where each ends.
    frames: Vec<u8>,
    ends: Vec<usize>,
}

impl InterfaceSink {
    fn open(name: &str, own: &OwnTraffic<'_>) -> Result<Self, String> {
        let egress = Egress::open(name)?;
        // By their numbers: a port may have other names.
        let others = |port: &&str| own.outgoing && index_of(port).ok() != Some(egress.index());
        let outgoing = own.ports.iter().map(others).collect();
        let (buffer, frames, ends) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { egress, last_check: Instant::now(), outgoing, buffer, frames, ends })
    }

    /// Sends what has been collected, a system call for many.
    fn send(&mut self, books: &SinkCounts) {
        let mut from = 0;
        let frames: Vec<&[u8]> =
            self.ends.iter().map(|end| &self.frames[std::mem::replace(&mut from, *end)..*end]).collect();
        let mut rest = frames.as_slice();
        while !rest.is_empty() {
            let sent = self.egress.send_some(rest);
            (0..sent).for_each(|_| books.count(SinkResult::Written));
            rest = &rest[sent..];
            let Some((_, others)) = rest.split_first() else { break };
            let looks = self.last_check.elapsed() >= CHECK_INTERVAL;
            if looks {
                self.last_check = Instant::now();
            }
            if !(looks && self.egress.find_again()) {
                books.count(SinkResult::Failed);
                rest = others;
            }
        }
        self.frames.clear();
        self.ends.clear();
    }
}

impl PacketSinkWriter for InterfaceSink {
    fn put(&mut self, branch: usize, listener: &Listener, packets: &[Desc], books: &SinkCounts) {
        let outgoing = self.outgoing.get(branch).copied().unwrap_or(false);
        for desc in packets.iter().filter(|d| d.is_packet()) {
            if desc.flags & flag::OUTGOING != 0 && !outgoing {
                books.count(SinkResult::OwnTraffic);
                continue;
            }
            let whole = desc.flags & flag::TRUNCATED == 0;
            match listener.packet(desc, &mut self.buffer).filter(|_| whole) {
                Some(frame) => {
                    self.frames.extend_from_slice(frame);
                    self.ends.push(self.frames.len());
                }
                None => books.count(SinkResult::Failed),
            }
        }
        self.send(books);
    }
}

/// They are written to a pcap file of bounded size. What the books have as put is in the file: it is there for whoever looks, and an
/// engine that is killed takes nothing of it along.
struct PcapSink {
    name: String,
    file: File,
    /// Bytes that it may still take; nothing once it has ended.
    bytes_left: Option<u64>,
    /// Bytes of whole packets in it.
    whole: u64,
    buffer: Vec<u8>,
    /// Records one behind the other that are to be written, and where each ends.
    records: Vec<u8>,
    ends: Vec<usize>,
    remarks: Warnings,
}

impl PcapSink {
    fn create(path: &Path, most: u64, header: &[u8; FILE_HEADER], remarks: &Warnings) -> Result<Self, String> {
        let fail = |e: io::Error| match e.kind() {
            io::ErrorKind::AlreadyExists => format!("{}: is there already; name another file", path.display()),
            _ => format!("{}: cannot be written: {e}", path.display()),
        };
        let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path).map_err(fail)?;
        file.write_all(header).map_err(fail)?;
        let whole = FILE_HEADER as u64;
        let room = Some(most.saturating_sub(whole));
        let (name, remarks) = (path.display().to_string(), Arc::clone(remarks));
        let (buffer, records, ends) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { name, file, bytes_left: room, whole, buffer, records, ends, remarks })
    }

    /// Nothing more is written, and somebody should know.
    fn end(&mut self, why: &str) {
        self.bytes_left = None;
        let text = format!(
            "{}: {why}; what comes for it is counted as failed (netgrain group stats): detach it, and attach another file",
            self.name
        );
        let mut remarks = self.remarks.lock().unwrap_or_else(PoisonError::into_inner);
        if remarks.len() == WARNINGS_MAX {
            remarks.remove(0);
        }
        remarks.push(text);
    }

    /// Whether it is among those that will be written.
    fn take(&mut self, listener: &Listener, desc: &Desc) -> bool {
        let Some(room) = self.bytes_left else { return false };
        let len = RECORD_HEADER as u64 + u64::from(desc.caplen);
        let Some(left) = room.checked_sub(len) else {
            // It ends here, even if smaller ones would still fit: a file without holes says what it is worth.
            self.end(&format!("is full since {}", desc.timestamp()));
            return false;
        };
        let Some(record) = listener.record(desc, &mut self.buffer) else { return false };
        self.records.extend_from_slice(record);
        self.ends.push(self.records.len());
        self.bytes_left = Some(left);
        true
    }

    /// Writes what was taken, a system call for many; only now they are counted.
    fn write(&mut self, books: &SinkCounts) {
        let mut written = 0;
        let mut outcome = Ok(());
        while written < self.records.len() && outcome.is_ok() {
            match self.file.write(&self.records[written..]) {
                Ok(0) => outcome = Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => written += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => outcome = Err(e),
            }
        }
        let there = self.ends.partition_point(|end| *end <= written);
        self.whole += self.ends[..there].last().map_or(0, |end| *end as u64);
        (0..there).for_each(|_| books.count(SinkResult::Written));
        (there..self.ends.len()).for_each(|_| books.count(SinkResult::Failed));
        self.records.clear();
        self.ends.clear();
        if let Err(e) = outcome {
            // A reader is spared the packet of which only a part is there.
            let _ = self.file.set_len(self.whole);
            self.end(&format!("cannot be written any more: {e}"));
        }
    }
}

impl PacketSinkWriter for PcapSink {
    fn put(&mut self, _: usize, listener: &Listener, packets: &[Desc], books: &SinkCounts) {
        for desc in packets.iter().filter(|d| d.is_packet()) {
            if !self.take(listener, desc) {
                books.count(SinkResult::Failed);
            }
            if self.records.len() >= PIECE {
                self.write(books);
            }
        }
        self.write(books);
    }
}

fn start(mut sink: impl PacketSinkWriter, mut listeners: Vec<Listener>) -> Result<SinkThread, String> {
    let counts = Arc::<SinkCounts>::default();
    let books = Arc::clone(&counts);
    let work = move || {
        let mut descs: Vec<Desc> = Vec::with_capacity(BATCH);
        loop {
            let ended = listeners.iter().all(Listener::ended);
            let mut quiet = true;
            for (branch, listener) in listeners.iter_mut().enumerate() {
                listener.next(BATCH, &mut descs);
                quiet &= descs.is_empty();
                sink.put(branch, listener, &descs, &books);
            }
            if quiet {
                listeners.iter().for_each(Listener::report);
                if ended {
                    return;
                }
                std::thread::sleep(IDLE_SLEEP);
            }
        }
    };
    let thread = std::thread::Builder::new().name("outlet".into()).spawn(work);
    thread.map(|thread| (thread, counts)).map_err(|e| format!("no thread for an outlet: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::{RawReader, Sandbox};

    #[test]
    fn a_port_that_went_away_and_came_back_is_sent_through_again() {
        let Some(sandbox) = Sandbox::new("a_port_that_went_away_and_came_back_is_sent_through_again") else { return };
        let (c, _) = sandbox.veth("c", "d");
        let mut port =
            InterfaceSink::open("c", &OwnTraffic { ports: vec!["nosuch0"], outgoing: true }).expect("an interface");
        let books = SinkCounts::default();
        let mut send = |frames: usize| {
            for _ in 0..frames {
                port.frames.extend([0x5a; 60]);
                port.ends.push(port.frames.len());
            }
            port.send(&books);
            let sums = books.sums();
            (sums.sent, sums.failed)
        };
        assert_eq!(send(3), (3, 0));
        sandbox.netlink().delete_link(c.index).expect("the pair goes");
        assert_eq!(send(2), (3, 2));
        let (_, d) = sandbox.veth("c", "d");
        let mut reader = RawReader::new(&d);
        let begun = Instant::now();
        while send(1).0 == 3 {
            assert!(begun.elapsed() < 30 * CHECK_INTERVAL, "it is not found again");
            std::thread::sleep(CHECK_INTERVAL / 10);
        }
        let (sent, failed) = send(100);
        assert_eq!(sent, 104, "{failed} failed");
        assert_eq!(reader.all(Duration::from_millis(300)), vec![vec![0x5a; 60]; 101]);
    }
}
