//! The sinks of groups in the engine. Each sink has a thread, which moves the packets of its branches to an interface
//! or a file.
//!
//! The dispatcher never waits for a sink. If the sink is slow and its branch has no space for a packet, the packet is
//! lost and counted by the branch. A packet that the sink cannot write is counted as failed: it was overwritten in the
//! ring before the sink read it, the interface refused it (larger than its MTU), it was captured only in part (an
//! interface would send another packet), or it exceeds the size limit of the file. Packets that this host sent have a
//! separate counter ([`OwnTraffic`]).

use crate::error::SinkError;
use capture::egress::{Egress, index_of};
use group::{PacketSink, SinkCounts, SinkResult};
use ring::{Branch, Desc, FILE_HEADER, Listener, RECORD_HEADER, flag};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The largest number of descriptors that a sink reads from a branch at a time.
const BATCH: usize = 256;

/// The time that the thread of a sink sleeps while the branches are empty.
const IDLE_SLEEP: Duration = Duration::from_micros(300);

/// The interval at which a sink searches for its interface by name while the interface accepts no packets.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The number of collected bytes from which a file sink writes them with one system call.
const PIECE: usize = 1 << 20;

/// The largest number of retained warnings; the oldest are removed.
const WARNINGS_MAX: usize = 32;

/// File mode: only the owner may read the packets.
const MODE: u32 = 0o600;

/// What a sink that is an interface does with packets that this host sent. If the sink sent such a packet out of the
/// interface on which it was captured, the packet would be captured there again, and two engines that forward to each
/// other's interfaces would forward it endlessly.
pub struct OwnTraffic<'a> {
    /// For each branch, the interface on which its packets are captured. A packet that this host sent is never sent out
    /// of the interface on which it was captured.
    pub interfaces: Vec<&'a str>,
    /// True if packets that this host sent may be sent out of other interfaces.
    pub outgoing: bool,
}

/// Warnings about sinks that fail, in order of time.
pub type Warnings = Arc<Mutex<Vec<String>>>;

/// A thread that moves the packets of branches to a sink, and its counters.
pub type SinkThread = (JoinHandle<()>, Arc<SinkCounts>);

/// Starts a thread that moves the packets of the branches to this sink until the branches end.
///
/// # Errors
/// The reason why the sink cannot be opened.
pub fn open(
    to: &PacketSink,
    branches: &[&Branch],
    own: &OwnTraffic<'_>,
    warnings: &Warnings,
) -> Result<SinkThread, SinkError> {
    let listeners: Vec<Listener> = branches.iter().map(|branch| branch.listen()).collect();
    match to {
        PacketSink::Port(name) => start(InterfaceSink::open(name, own)?, listeners),
        PacketSink::File { path, max_bytes } => {
            let header = listeners.first().map_or([0; FILE_HEADER], Listener::file_header);
            start(PcapSink::create(path, *max_bytes, &header, warnings)?, listeners)
        }
    }
}

/// Writes the packets of a sink to its destination.
trait PacketSinkWriter: Send + 'static {
    /// Writes packets of the branch with this number, and counts the outcome of each packet.
    fn put(&mut self, branch: usize, listener: &Listener, packets: &[Desc], counts: &SinkCounts);
}

/// Sends packets out of an interface.
struct InterfaceSink {
    egress: Egress,
    /// The time of the last search for the interface.
    last_check: Instant,
    /// For each branch: true if packets that this host sent are sent out of this interface.
    outgoing: Vec<bool>,
    buffer: Vec<u8>,
    /// The bytes of the collected frames, one frame after the other. `ends` has the offset at which each frame ends.
    frames: Vec<u8>,
    ends: Vec<usize>,
}

impl InterfaceSink {
    fn open(name: &str, own: &OwnTraffic<'_>) -> Result<Self, SinkError> {
        let egress = Egress::open(name).map_err(SinkError::Egress)?;
        // Interfaces are compared by index, because an interface can have several names.
        let others = |interface: &&str| own.outgoing && index_of(interface).ok() != Some(egress.index());
        let outgoing = own.interfaces.iter().map(others).collect();
        let (buffer, frames, ends) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { egress, last_check: Instant::now(), outgoing, buffer, frames, ends })
    }

    /// Sends the collected frames, with one system call for several frames.
    fn send(&mut self, counts: &SinkCounts) {
        let mut from = 0;
        let frames: Vec<&[u8]> =
            self.ends.iter().map(|end| &self.frames[std::mem::replace(&mut from, *end)..*end]).collect();
        let mut rest = frames.as_slice();
        while !rest.is_empty() {
            let sent = self.egress.send_some(rest);
            (0..sent).for_each(|_| counts.count(SinkResult::Written));
            rest = &rest[sent..];
            let Some((_, others)) = rest.split_first() else { break };
            let is_due = self.last_check.elapsed() >= CHECK_INTERVAL;
            if is_due {
                self.last_check = Instant::now();
            }
            if !(is_due && self.egress.find_again()) {
                counts.count(SinkResult::Failed);
                rest = others;
            }
        }
        self.frames.clear();
        self.ends.clear();
    }
}

impl PacketSinkWriter for InterfaceSink {
    fn put(&mut self, branch: usize, listener: &Listener, packets: &[Desc], counts: &SinkCounts) {
        let outgoing = self.outgoing.get(branch).copied().unwrap_or(false);
        for desc in packets.iter().filter(|d| d.is_packet()) {
            if desc.flags & flag::OUTGOING != 0 && !outgoing {
                counts.count(SinkResult::OwnTraffic);
                continue;
            }
            let is_complete = desc.flags & flag::TRUNCATED == 0;
            match listener.packet(desc, &mut self.buffer).filter(|_| is_complete) {
                Some(frame) => {
                    self.frames.extend_from_slice(frame);
                    self.ends.push(self.frames.len());
                }
                None => counts.count(SinkResult::Failed),
            }
        }
        self.send(counts);
    }
}

/// Writes packets to a pcap file of limited size. A packet is counted as written only when it is in the file, so a
/// killed engine loses none of the counted packets.
struct PcapSink {
    name: String,
    file: File,
    /// Number of bytes that may still be written to the file; `None` if the file has ended.
    bytes_left: Option<u64>,
    /// Number of bytes of complete packets in the file.
    complete_bytes: u64,
    buffer: Vec<u8>,
    /// The bytes of the collected records, one record after the other. `ends` has the offset at which each record ends.
    records: Vec<u8>,
    ends: Vec<usize>,
    warnings: Warnings,
}

impl PcapSink {
    fn create(path: &Path, max_bytes: u64, header: &[u8; FILE_HEADER], warnings: &Warnings) -> Result<Self, SinkError> {
        let fail = |e: io::Error| match e.kind() {
            io::ErrorKind::AlreadyExists => SinkError::Exists(path.to_owned()),
            _ => SinkError::File(path.to_owned(), e),
        };
        let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path).map_err(fail)?;
        file.write_all(header).map_err(fail)?;
        let complete_bytes = FILE_HEADER as u64;
        let bytes_left = Some(max_bytes.saturating_sub(complete_bytes));
        let (name, warnings) = (path.display().to_string(), Arc::clone(warnings));
        let (buffer, records, ends) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { name, file, bytes_left, complete_bytes, buffer, records, ends, warnings })
    }

    /// Ends the sink's output file and adds a warning with the reason.
    fn end(&mut self, reason: &str) {
        self.bytes_left = None;
        let text = format!(
            "{}: {reason}; further packets are counted as failed (netgrain group stats); detach this file, and attach \
             another",
            self.name
        );
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        if warnings.len() == WARNINGS_MAX {
            warnings.remove(0);
        }
        warnings.push(text);
    }

    /// Collects a packet. Returns true if it will be written.
    fn take(&mut self, listener: &Listener, desc: &Desc) -> bool {
        let Some(bytes_left) = self.bytes_left else { return false };
        let len = RECORD_HEADER as u64 + u64::from(desc.caplen);
        let Some(left) = bytes_left.checked_sub(len) else {
            // With this packet, the file would exceed its size limit. The file ends before the packet, even if a later,
            // smaller packet would still fit, so that no packet is missing before the end of the file.
            self.end(&format!("the file is full: the packet of {} would exceed its size limit", desc.timestamp()));
            return false;
        };
        let Some(record) = listener.record(desc, &mut self.buffer) else { return false };
        self.records.extend_from_slice(record);
        self.ends.push(self.records.len());
        self.bytes_left = Some(left);
        true
    }

    /// Writes the collected records, with one system call for several records, and counts them.
    fn write(&mut self, counts: &SinkCounts) {
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
        let complete = self.ends.partition_point(|end| *end <= written);
        self.complete_bytes += self.ends[..complete].last().map_or(0, |end| *end as u64);
        (0..complete).for_each(|_| counts.count(SinkResult::Written));
        (complete..self.ends.len()).for_each(|_| counts.count(SinkResult::Failed));
        self.records.clear();
        self.ends.clear();
        if let Err(e) = outcome {
            // Removes the incomplete record at the end of the file.
            let _ = self.file.set_len(self.complete_bytes);
            self.end(&format!("the file cannot be written any more: {e}"));
        }
    }
}

impl PacketSinkWriter for PcapSink {
    fn put(&mut self, _: usize, listener: &Listener, packets: &[Desc], counts: &SinkCounts) {
        for desc in packets.iter().filter(|d| d.is_packet()) {
            if !self.take(listener, desc) {
                counts.count(SinkResult::Failed);
            }
            if self.records.len() >= PIECE {
                self.write(counts);
            }
        }
        self.write(counts);
    }
}

fn start(mut sink: impl PacketSinkWriter, mut listeners: Vec<Listener>) -> Result<SinkThread, SinkError> {
    let counts = Arc::<SinkCounts>::default();
    let of_thread = Arc::clone(&counts);
    let work = move || {
        let mut descs: Vec<Desc> = Vec::with_capacity(BATCH);
        loop {
            let ended = listeners.iter().all(Listener::ended);
            let mut is_idle = true;
            for (branch, listener) in listeners.iter_mut().enumerate() {
                listener.next(BATCH, &mut descs);
                is_idle &= descs.is_empty();
                sink.put(branch, listener, &descs, &of_thread);
            }
            if is_idle {
                listeners.iter().for_each(Listener::report);
                if ended {
                    return;
                }
                std::thread::sleep(IDLE_SLEEP);
            }
        }
    };
    let thread = std::thread::Builder::new().name("sink".into()).spawn(work);
    thread.map(|thread| (thread, counts)).map_err(SinkError::Thread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::{RawReader, Sandbox};

    #[test]
    fn a_sink_uses_its_interface_again_after_removal_and_return() {
        let Some(sandbox) = Sandbox::new("a_sink_uses_its_interface_again_after_removal_and_return") else {
            return;
        };
        let (c, _) = sandbox.veth("c", "d");
        let mut sink = InterfaceSink::open("c", &OwnTraffic { interfaces: vec!["nosuch0"], outgoing: true })
            .expect("an interface");
        let counts = SinkCounts::default();
        let mut send = |frames: usize| {
            for _ in 0..frames {
                sink.frames.extend([0x5a; 60]);
                sink.ends.push(sink.frames.len());
            }
            sink.send(&counts);
            let sums = counts.sums();
            (sums.sent, sums.failed)
        };
        assert_eq!(send(3), (3, 0));
        sandbox.netlink().delete_link(c.index).expect("the removal of the veth pair");
        assert_eq!(send(2), (3, 2));
        let (_, d) = sandbox.veth("c", "d");
        let mut reader = RawReader::new(&d);
        let begun = Instant::now();
        while send(1).0 == 3 {
            assert!(begun.elapsed() < 30 * CHECK_INTERVAL, "the sink does not find the interface again");
            std::thread::sleep(CHECK_INTERVAL / 10);
        }
        let (sent, failed) = send(100);
        assert_eq!(sent, 104, "failed packets: {failed}");
        assert_eq!(reader.all(Duration::from_millis(300)), vec![vec![0x5a; 60]; 101]);
    }
}
