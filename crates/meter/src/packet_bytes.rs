//! Access to the packets that descriptors describe.

use ring::Desc;

/// The most descriptors metered at a time.
pub const BATCH: usize = 256;

/// Access to the packets that descriptors describe.
pub trait PacketBytes {
    /// The bytes of a packet.
    fn bytes(&self, desc: &Desc) -> &[u8];

    /// The packet's length on the wire; a descriptor has no space for large values.
    fn wire_len(&self, desc: &Desc) -> u32;

    /// The pcap link type.
    fn link_type(&self) -> u16;

    /// Number of the queue.
    fn queue(&self) -> u16;
}
