//! The first bytes that each side of a flow carried, where the meter was asked to keep them.

use crate::config::Packet;

/// Flows whose bytes lie in one allocation.
const FLOWS: usize = 1024;

/// Two places per flow, each a length of two bytes and room for `most`. They are allocated for [`FLOWS`] flows at once when
/// the first of them begins, and never move.
pub(crate) struct Payloads {
    blocks: Vec<Box<[u8]>>,
    most: usize,
}

impl Payloads {
    pub fn new(most: u16) -> Self {
        Self { blocks: Vec::new(), most: most.into() }
    }

    pub fn bytes(&self) -> usize {
        self.blocks.len() * FLOWS * 2 * self.stride()
    }

    const fn stride(&self) -> usize {
        2 + self.most
    }

    fn place(&self, flow: u32, side: usize) -> (usize, usize) {
        (flow as usize / FLOWS, (flow as usize % FLOWS * 2 + side) * self.stride())
    }

    /// A flow begins at this place, with nothing carried.
    pub fn begin(&mut self, flow: u32) {
        while self.blocks.len() <= flow as usize / FLOWS {
            self.blocks.push(vec![0; FLOWS * 2 * self.stride()].into());
        }
        for side in 0..2 {
            let (block, at) = self.place(flow, side);
            self.blocks[block][at..at + 2].fill(0);
        }
    }

    /// Keeps what a packet carries, as far as it was captured and there is room.
    pub fn keep(&mut self, flow: u32, packet: &Packet, side: usize) {
        let decoded = packet.decoded;
        let (from, carried) = (usize::from(decoded.payload), decoded.payload_len as usize);
        let Some(captured) = packet.data.get(from..).filter(|_| from > 0) else { return };
        let (block, at) = self.place(flow, side);
        let place = &mut self.blocks[block][at..at + 2 + self.most];
        let have = usize::from(u16::from_be_bytes([place[0], place[1]]));
        let new = carried.min(captured.len()).min(self.most - have);
        place[2 + have..2 + have + new].copy_from_slice(&captured[..new]);
        place[..2].copy_from_slice(&((have + new) as u16).to_be_bytes());
    }

    /// What was kept.
    pub fn of(&self, flow: u32, side: usize) -> &[u8] {
        let (block, at) = self.place(flow, side);
        let place = &self.blocks[block][at..at + self.stride()];
        &place[2..2 + usize::from(u16::from_be_bytes([place[0], place[1]]))]
    }
}
