//! TCP segments over IPv4 in Ethernet frames (RFC 9293, RFC 791), encoded without the functions with which netgrain
//! decodes them.

use crate::internet_checksum::{fold, sum};

/// Length of the headers of Ethernet, IPv4 and TCP without options.
pub(crate) const HEADERS: usize = 54;

/// Length of the options of a SYN: maximum segment size (RFC 9293 §3.7.1), no operation, window scale (RFC 7323 §2.2).
pub(crate) const SYN_OPTIONS: usize = 8;

/// The window of a segment without SYN is the number in its header, multiplied by two to the power of this shift.
const WINDOW_SHIFT: u8 = 6;

/// The window that a SYN advertises, in bytes. The window of a SYN is never scaled (RFC 7323 §2.2).
pub(crate) const SYN_WINDOW: u64 = u16::MAX as u64;

/// The window that segments without SYN advertise, in bytes: about 4 MiB.
pub(crate) const WINDOW: u64 = SYN_WINDOW << WINDOW_SHIFT;

/// The shortest frame without FCS.
const MIN_FRAME: usize = 60;

/// Flags of a segment.
pub(crate) mod flag {
    pub const FIN: u8 = 1;
    pub const SYN: u8 = 2;
    pub const RST: u8 = 4;
    pub const PSH: u8 = 8;
    pub const ACK: u8 = 16;
}

/// The fields of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TcpFrame {
    pub src: u32,
    pub dst: u32,
    pub src_port: u16,
    pub dst_port: u16,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    /// The time to live; in `id`, the identification of the IP packet.
    pub ttl: u8,
    pub id: u16,
    /// Number of payload bytes.
    pub payload: usize,
    /// The maximum segment size in bytes, which a SYN states.
    pub mss: u16,
    /// The last byte of the source MAC address, 1 or 2. The last byte of the destination MAC address is the other of
    /// the two.
    pub mac: u8,
}

impl TcpFrame {
    /// Writes the frame into `buf` and returns its length. A SYN has options. The payload is filled with a pattern;
    /// short frames are padded with zeros.
    pub fn write(&self, buf: &mut [u8]) -> usize {
        let headers = HEADERS + if self.flags & flag::SYN != 0 { SYN_OPTIONS } else { 0 };
        let end = headers + self.payload;
        let len = end.max(MIN_FRAME);
        let frame = &mut buf[..len];
        frame.fill(0);
        frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 3 - self.mac]);
        frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, self.mac]);
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14] = 0x45;
        frame[16..18].copy_from_slice(&((end - 14) as u16).to_be_bytes());
        frame[18..20].copy_from_slice(&self.id.to_be_bytes());
        (frame[20], frame[22], frame[23]) = (0x40, self.ttl, 6);
        frame[26..30].copy_from_slice(&self.src.to_be_bytes());
        frame[30..34].copy_from_slice(&self.dst.to_be_bytes());
        let header_checksum = !fold(sum(&frame[14..34]));
        frame[24..26].copy_from_slice(&header_checksum.to_be_bytes());
        frame[34..36].copy_from_slice(&self.src_port.to_be_bytes());
        frame[36..38].copy_from_slice(&self.dst_port.to_be_bytes());
        frame[38..42].copy_from_slice(&self.seq.to_be_bytes());
        frame[42..46].copy_from_slice(&self.ack.to_be_bytes());
        (frame[46], frame[47]) = ((((headers - 34) / 4) << 4) as u8, self.flags);
        if headers > HEADERS {
            let [high, low] = self.mss.to_be_bytes();
            frame[HEADERS..headers].copy_from_slice(&[2, 4, high, low, 1, 3, 3, WINDOW_SHIFT]);
        }
        frame[48..50].copy_from_slice(&u16::MAX.to_be_bytes());
        for (n, byte) in frame[headers..end].iter_mut().enumerate() {
            // The byte depends on its position in the stream, so that retransmitted bytes are equal.
            *byte = self.seq.wrapping_add(n as u32) as u8;
        }
        let pseudo = 6 + (end - 34) as u64;
        let tcp_checksum = !fold(pseudo + sum(&frame[26..34]) + sum(&frame[34..end]));
        frame[50..52].copy_from_slice(&tcp_checksum.to_be_bytes());
        len
    }
}
