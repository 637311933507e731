//! Divides IP packets into fragments as a sender or a router does (RFC 791 §3.2, RFC 8200 §4.5).

use wire::checksum;

const LINK: usize = 14;
const V6: usize = 40;
const MORE: u16 = 0x2000;

/// Divides the IP packet of an untagged Ethernet frame into fragments of `size` bytes each, a multiple of 8; the last
/// fragment may be shorter. An IPv4 packet must have no options. Of an IPv6 packet, the function divides everything
/// after the fixed header.
///
/// # Panics
/// The packet fits one fragment, or `size` is not a multiple of 8.
pub fn fragments(frame: &[u8], id: u32, size: usize) -> Vec<Vec<u8>> {
    let (link, packet) = frame.split_at(LINK);
    let is_v6 = packet[0] >> 4 == 6;
    let (header, body) = packet.split_at(if is_v6 { V6 } else { 20 });
    assert!(
        size.is_multiple_of(8) && body.len() > size,
        "{} bytes cannot be divided into fragments of {size} bytes",
        body.len()
    );
    let parts = body.chunks(size).enumerate().map(|(i, part)| {
        let (offset, more) = ((i * size / 8) as u16, (i + 1) * size < body.len());
        let mut header = header.to_vec();
        if is_v6 {
            header[4..6].copy_from_slice(&(part.len() as u16 + 8).to_be_bytes());
            let above = std::mem::replace(&mut header[6], 44);
            header.extend([above, 0]);
            header.extend((offset << 3 | u16::from(more)).to_be_bytes());
            header.extend(id.to_be_bytes());
        } else {
            header[2..4].copy_from_slice(&(part.len() as u16 + 20).to_be_bytes());
            header[4..6].copy_from_slice(&(id as u16).to_be_bytes());
            header[6..8].copy_from_slice(&(offset | if more { MORE } else { 0 }).to_be_bytes());
            header[10..12].fill(0);
            let sum = checksum(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        [link, &header, part].concat()
    });
    parts.collect()
}
