//! Reads the frames of real captures with a parser of its own. So the tests of crates in layers below `pcap` can read
//! captures, and an error of `pcap` does not affect them.

use std::path::Path;

/// A captured frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// The captured bytes.
    pub bytes: Vec<u8>,
    /// Length on the wire in bytes.
    pub wire_len: u32,
}

/// Returns the frames of every Ethernet capture in the classic pcap format below the directory `directory`, at most
/// `most` frames of each file.
pub fn collect(directory: &Path, most: usize) -> Vec<Captured> {
    collect_of(directory, wire::link::ETHERNET, most)
}

/// Like [`collect`], for captures of this link type.
pub fn collect_of(directory: &Path, link_type: u16, most: usize) -> Vec<Captured> {
    let mut packets = Vec::new();
    collect_into(directory, link_type, most, &mut packets);
    packets
}

fn collect_into(directory: &Path, link_type: u16, most: usize, packets: &mut Vec<Captured>) {
    let mut paths: Vec<_> = std::fs::read_dir(directory).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect_into(&path, link_type, most, packets);
        } else if path.extension().is_some_and(|e| e == "pcap") {
            read_pcap(&std::fs::read(&path).unwrap(), link_type, most, packets);
        }
    }
}

fn read_pcap(file: &[u8], link_type: u16, most: usize, packets: &mut Vec<Captured>) {
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
        packets.push(Captured { bytes: bytes.to_vec(), wire_len: at(record, 12).max(bytes.len() as u32) });
        rest = after;
    }
}
