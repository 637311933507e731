//! Access to the packets that descriptors describe.

use ring::Desc;

/// The largest number of descriptors that the meter reads from a ring and meters together.
pub const BATCH: usize = 256;

/// Access to the packets that descriptors describe.
pub trait PacketBytes {
    /// The bytes of a packet.
    fn bytes(&self, desc: &Desc) -> &[u8];

    /// The packet's length on the wire. The descriptor has only 16 bits for it, so a larger length is read from the
    /// record header in the ring.
    fn wire_len(&self, desc: &Desc) -> u32;

    /// The pcap link type.
    fn link_type(&self) -> u16;

    /// Number of the queue.
    fn queue(&self) -> u16;
}
