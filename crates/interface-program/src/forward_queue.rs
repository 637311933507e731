//! The queue of frames that the user part sends. Frames are collected during a batch, and then sent by one system call
//! per egress interface.
//!
//! The outcome of a packet (forwarded or unsent) is counted after the send, because it is not known before. The order
//! of frames is preserved within each egress interface.

use crate::report::UserOutcomes;
use capture::egress::Egress;

/// If the queued frames have at least this size in bytes, they are sent before the end of the batch.
const MAX: usize = 256 << 10;

/// See the module documentation.
#[derive(Default)]
pub struct ForwardQueue {
    bytes: Vec<u8>,
    frames: Vec<Frame>,
    packets: Vec<PendingPacket>,
}

struct Frame {
    /// Begin and end of the frame in `bytes`.
    from: usize,
    to: usize,
    /// Index of the egress interface in the program's list of egress interfaces.
    egress: u16,
    /// Index in `packets` of the packet that this frame copies.
    packet: usize,
}

/// A packet that is counted after the send, when its outcome is known.
struct PendingPacket {
    stored: bool,
    /// True if the program passes the packet to the host.
    kernel: bool,
    /// Number of egress interfaces that accepted the packet.
    accepted: u32,
    /// Number of egress interfaces that refused the packet.
    refused: u32,
}

impl ForwardQueue {
    /// Adds a packet to be sent out of these interfaces.
    pub fn put(&mut self, bytes: &[u8], egresses: impl Iterator<Item = u16>, stored: bool, kernel: bool) {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        let (to, packet) = (self.bytes.len(), self.packets.len());
        self.frames.extend(egresses.map(|egress| Frame { from, to, egress, packet }));
        self.packets.push(PendingPacket { stored, kernel, accepted: 0, refused: 0 });
    }

    /// True if the queue should be sent before the end of the batch.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= MAX
    }

    /// Sends all frames and counts the outcomes of their packets.
    pub fn send(&mut self, egresses: &[Egress], host_gets_all: bool, outcomes: &mut UserOutcomes) {
        let Self { bytes, frames, packets } = self;
        // The sort is stable, so the frames of each interface stay in order.
        frames.sort_by_key(|frame| frame.egress);
        for group in frames.chunk_by(|a, b| a.egress == b.egress) {
            let egress = group.first().and_then(|first| egresses.get(usize::from(first.egress)));
            let bytes: Vec<&[u8]> = group.iter().map(|frame| &bytes[frame.from..frame.to]).collect();
            let mut next = 0;
            while next < group.len() {
                let sent = egress.map_or(0, |egress| egress.send_some(&bytes[next..]));
                group[next..next + sent].iter().for_each(|frame| packets[frame.packet].accepted += 1);
                next += sent;
                // The interface refused the frame at which the send stopped.
                if let Some(frame) = group.get(next) {
                    packets[frame.packet].refused += 1;
                    next += 1;
                }
            }
        }
        packets.drain(..).for_each(|packet| outcomes.add(&packet.outcome(host_gets_all)));
        bytes.clear();
        frames.clear();
    }
}

impl PendingPacket {
    fn outcome(&self, host_gets_all: bool) -> UserOutcomes {
        let mut outcome = UserOutcomes { copies_unsent: self.refused.into(), ..UserOutcomes::default() };
        match (self.accepted, self.kernel) {
            (accepted, _) if self.stored => outcome.copies = u64::from(accepted),
            (1.., _) => outcome.forwarded = 1,
            (_, true) if host_gets_all => outcome.to_host = 1,
            // The packet was only to be forwarded, and no interface accepted it. It counts as one unsent packet,
            // whatever the number of interfaces.
            _ => return UserOutcomes { unsent: 1, ..UserOutcomes::default() },
        }
        outcome
    }
}
