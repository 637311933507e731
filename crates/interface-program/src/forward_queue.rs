//! Frames that the user part sends: collected during a batch, then sent by one system call per egress interface.
//!
//! The outcome of a packet is known only after the send, so it is counted then. Order is kept within each interface.

use crate::user_part::{QueueInfo, UserOutcomes};
use capture::egress::Egress;

/// At this many bytes the queue is sent before the end of the batch.
const MAX: usize = 256 << 10;

/// See the module documentation.
#[derive(Default)]
pub struct ForwardQueue {
    bytes: Vec<u8>,
    frames: Vec<Frame>,
    packets: Vec<PendingCopy>,
}

struct Frame {
    /// Begin and end of the frame in `bytes`.
    from: usize,
    to: usize,
    /// Number of the egress interface in the program.
    device: u16,
    /// Index of the packet in `packets`.
    packet: usize,
}

/// A packet whose outcome is not known yet.
struct PendingCopy {
    stored: bool,
    /// True if the program passes the packet to the host.
    kernel: bool,
    /// Number of interfaces that took the packet.
    well: u32,
    /// Number of interfaces that refused the packet.
    failed: u32,
}

impl ForwardQueue {
    /// Adds a packet to be sent out of these interfaces.
    pub fn put(&mut self, bytes: &[u8], devices: impl Iterator<Item = u16>, stored: bool, kernel: bool) {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        let (to, packet) = (self.bytes.len(), self.packets.len());
        self.frames.extend(devices.map(|device| Frame { from, to, device, packet }));
        self.packets.push(PendingCopy { stored, kernel, well: 0, failed: 0 });
    }

    /// True if the queue should be sent before the end of the batch.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= MAX
    }

    /// Sends all frames and counts the outcomes of their packets.
    pub fn send(&mut self, devices: &[Egress], place: &QueueInfo, decided: &mut UserOutcomes) {
        let Self { bytes, frames, packets } = self;
        // The sort is stable, so frames of one interface keep their order.
        frames.sort_by_key(|frame| frame.device);
        for group in frames.chunk_by(|a, b| a.device == b.device) {
            let device = group.first().and_then(|first| devices.get(usize::from(first.device)));
            let texts: Vec<&[u8]> = group.iter().map(|frame| &bytes[frame.from..frame.to]).collect();
            let mut next = 0;
            while next < group.len() {
                let sent = device.map_or(0, |device| device.send_some(&texts[next..]));
                group[next..next + sent].iter().for_each(|frame| packets[frame.packet].well += 1);
                next += sent;
                // The interface refused the frame at which the send stopped.
                if let Some(frame) = group.get(next) {
                    packets[frame.packet].failed += 1;
                    next += 1;
                }
            }
        }
        packets.drain(..).for_each(|owed| decided.account(&owed.outcome(place)));
        bytes.clear();
        frames.clear();
    }
}

impl PendingCopy {
    fn outcome(&self, place: &QueueInfo) -> UserOutcomes {
        let mut fate = UserOutcomes { copies_unsent: self.failed.into(), ..UserOutcomes::default() };
        match (self.well, self.kernel) {
            (well, _) if self.stored => fate.copies = u64::from(well),
            (1.., _) => fate.forwarded = 1,
            (_, true) if place.host_has_it => fate.to_host = 1,
            // The packet was only to be forwarded and no interface took it: it counts as one packet, however many
            // interfaces there were.
            _ => return UserOutcomes { unsent: 1, ..UserOutcomes::default() },
        }
        fate
    }
}
