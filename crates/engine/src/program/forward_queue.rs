//! Frames that the user half is to send: collected while a batch is judged, then sent by one system call for all that leave by the same port.
//!
//! What becomes of a packet is known only then, so it is booked then. Order is kept for each port.

use super::user_part::{QueueInfo, UserOutcomes};
use crate::egress::Egress;

/// Bytes after which is sent without waiting for the end of a batch.
const MAX: usize = 256 << 10;

/// See the module.
#[derive(Default)]
pub(super) struct ForwardQueue {
    bytes: Vec<u8>,
    frames: Vec<Frame>,
    packets: Vec<PendingCopy>,
}

struct Frame {
    /// Where it lies, in `bytes`.
    from: usize,
    to: usize,
    /// By its number in the program.
    device: u16,
    /// Which of `packets` it is.
    packet: usize,
}

/// A packet of which it is not known yet what becomes of it.
struct PendingCopy {
    stored: bool,
    /// The program hands it to the host.
    kernel: bool,
    /// By how many ports it left.
    well: u32,
    /// By how many it should have left, and did not.
    failed: u32,
}

impl ForwardQueue {
    /// A packet that leaves by these devices.
    pub fn put(&mut self, bytes: &[u8], devices: impl Iterator<Item = u16>, stored: bool, kernel: bool) {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        let (to, packet) = (self.bytes.len(), self.packets.len());
        self.frames.extend(devices.map(|device| Frame { from, to, device, packet }));
        self.packets.push(PendingCopy { stored, kernel, well: 0, failed: 0 });
    }

    /// Whether there is enough of it.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= MAX
    }

    /// Sends all, and books it.
    pub fn send(&mut self, devices: &[Egress], place: &QueueInfo, decided: &mut UserOutcomes) {
        let Self { bytes, frames, packets } = self;
        // Stable: by the same port, in the order in which they came.
        frames.sort_by_key(|frame| frame.device);
        for group in frames.chunk_by(|a, b| a.device == b.device) {
            let device = group.first().and_then(|first| devices.get(usize::from(first.device)));
            let texts: Vec<&[u8]> = group.iter().map(|frame| &bytes[frame.from..frame.to]).collect();
            let mut next = 0;
            while next < group.len() {
                let sent = device.map_or(0, |device| device.send_some(&texts[next..]));
                group[next..next + sent].iter().for_each(|frame| packets[frame.packet].well += 1);
                next += sent;
                // The one at which it stopped is not taken.
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
            // It was for ports alone, none of which took it: one packet, however many they are.
            _ => return UserOutcomes { unsent: 1, ..UserOutcomes::default() },
        }
        fate
    }
}
