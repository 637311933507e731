//! Code that several tests share: captured frames, and the results of tcpdump.
#![allow(dead_code, reason = "each test uses its part")]

pub mod agree;
pub mod traffic;

use std::path::Path;
use std::process::Command;
pub use testkit::captures::{Captured as Packet, collect, collect_of};

/// Builds a pcap file in which packet `i` has the timestamp `i` seconds.
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

/// The numbers of the packets that tcpdump selects, in order; the error is the message of tcpdump. The optimiser of
/// tcpdump may omit a load whose value has no effect; a frame that is truncated before that byte may then match.
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
