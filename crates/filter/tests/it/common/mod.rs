//! What several tests share: real frames, and the answers of tcpdump.
#![allow(dead_code, reason = "each test uses its part")]

pub mod agree;
pub mod traffic;

use std::path::Path;
use std::process::Command;

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

/// One pcap file in which packet `i` was captured at second `i`.
pub fn joined(packets: &[Packet], link_type: u16) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 262_144, u32::from(link_type)] {
        out.extend(word.to_le_bytes());
    }
    for (i, p) in packets.iter().enumerate() {
        for word in [i as u32, 0, p.bytes.len() as u32, p.wire_len] {
            out.extend(word.to_le_bytes());
        }
        out.extend(&p.bytes);
    }
    out
}

/// The numbers of the packets that tcpdump chooses, in order; or what it says against the filter. Its optimiser may see that a byte is
/// not needed, and then does not miss it in a frame that was cut.
pub fn tcpdump(file: &Path, filter: &str, optimised: bool) -> Result<Vec<u32>, String> {
    let output = Command::new("tcpdump")
        .arg("-nr")
        .arg(file)
        .args(["-w", "-"])
        .args((!optimised).then_some("-O"))
        .args(["--", filter])
        .output()
        .unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let mut numbers = Vec::new();
    let mut rest = output.stdout.get(24..).unwrap_or_default();
    while let Some((record, after)) = rest.split_first_chunk::<16>() {
        let word = |i: usize| u32::from_le_bytes([record[i], record[i + 1], record[i + 2], record[i + 3]]);
        numbers.push(word(0));
        rest = &after[word(8) as usize..];
    }
    Ok(numbers)
}
