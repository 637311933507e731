//! The first payload bytes of each direction of a flow, if the configuration requests them.

use crate::config::Packet;

/// Flows per allocation.
const FLOWS: usize = 1024;

/// Two buffers per flow, each with a length field of two bytes and space for `most` payload bytes. The buffers of
/// [`FLOWS`] flows are allocated together when the first of these flows starts, and never move.
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

    /// Empties the buffers of a new flow.
    pub fn begin(&mut self, flow: u32) {
        while self.blocks.len() <= flow as usize / FLOWS {
            self.blocks.push(vec![0; FLOWS * 2 * self.stride()].into());
        }
        for side in 0..2 {
            let (block, at) = self.place(flow, side);
            self.blocks[block][at..at + 2].fill(0);
        }
    }

    /// Appends the payload of a packet, as far as it was captured and the buffer has space.
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

    /// The stored bytes.
    pub fn of(&self, flow: u32, side: usize) -> &[u8] {
        let (block, at) = self.place(flow, side);
        let place = &self.blocks[block][at..at + self.stride()];
        &place[2..2 + usize::from(u16::from_be_bytes([place[0], place[1]]))]
    }
}
