//! What several tests share: real frames.

use std::path::Path;

/// A captured frame.
pub struct Packet {
    pub bytes: Vec<u8>,
    pub wire_len: u32,
}

/// The frames of every Ethernet capture in classic pcap below `folder`, at most `most` of each.
pub fn collect(folder: &Path, most: usize) -> Vec<Packet> {
    collect_of(folder, wire::link::ETHERNET, most)
}

/// The same of captures of this link type.
pub fn collect_of(folder: &Path, link_type: u16, most: usize) -> Vec<Packet> {
    let mut packets = Vec::new();
    collect_into(folder, link_type, most, &mut packets);
    packets
}

fn collect_into(folder: &Path, link_type: u16, most: usize, packets: &mut Vec<Packet>) {
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect_into(&path, link_type, most, packets);
        } else if path.extension().is_some_and(|e| e == "pcap") {
            read_pcap(&std::fs::read(&path).unwrap(), link_type, most, packets);
        }
    }
}

fn read_pcap(file: &[u8], link_type: u16, most: usize, packets: &mut Vec<Packet>) {
    let Some(head) = file.first_chunk::<24>() else { return };
    let number: fn([u8; 4]) -> u32 = match head[..4] {
        [0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1] => u32::from_le_bytes,
        [0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d] => u32::from_be_bytes,
        _ => return,
    };
    let at = |b: &[u8], i: usize| number([b[i], b[i + 1], b[i + 2], b[i + 3]]);
    if at(head, 20) != u32::from(link_type) {
        return;
    }
    let mut rest = &file[24..];
    for _ in 0..most {
        let Some((record, after)) = rest.split_first_chunk::<16>() else { return };
        let Some((bytes, after)) = after.split_at_checked(at(record, 8) as usize) else { return };
        packets.push(Packet { bytes: bytes.to_vec(), wire_len: at(record, 12).max(bytes.len() as u32) });
        rest = after;
    }
}
