//! Generates random frames for tests of header parsers: with VLAN tags, MPLS labels, options, extension headers,
//! fragments and tunnels; intact, truncated and corrupted.

use base::Prng;

fn pick<T: Copy>(prng: &mut Prng, from: &[T]) -> T {
    from[prng.below(from.len() as u64) as usize]
}

/// Generates a frame of 14 bytes or more; if `corrupt` is true, some frames are truncated or have wrong bytes.
pub fn frame(prng: &mut Prng, corrupt: bool) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    let tags = pick(prng, &[0, 0, 0, 0, 1, 1, 2, 3]);
    for _ in 0..tags {
        bytes.extend(pick(prng, &[0x8100_u16, 0x88a8, 0x9100]).to_be_bytes());
        bytes.extend((prng.next_u64() as u16).to_be_bytes());
    }
    match prng.below(10) {
        0 => {
            bytes.extend(pick(prng, &[0x0806_u16, 0x88cc, 0x8847, 0x8864, 0x0026]).to_be_bytes());
            bytes.extend([7; 30]);
        }
        1..=5 => {
            bytes.extend(0x0800_u16.to_be_bytes());
            ipv4(prng, &mut bytes);
        }
        _ => {
            bytes.extend(0x86dd_u16.to_be_bytes());
            ipv6(prng, &mut bytes);
        }
    }
    // Ethernet pads short frames.
    bytes.resize(bytes.len() + pick(prng, &[0, 0, 4, 18]), 0);
    if corrupt {
        match prng.below(4) {
            0 => bytes.truncate(14 + prng.below(bytes.len() as u64 - 13) as usize),
            1 => {
                for _ in 0..1 + prng.below(3) {
                    let at = 12 + prng.below(bytes.len() as u64 - 12) as usize;
                    bytes[at] = prng.next_u64() as u8;
                }
            }
            _ => (),
        }
    }
    bytes
}

fn ipv4(prng: &mut Prng, bytes: &mut Vec<u8>) {
    let (protocol, body) = transport(prng);
    let words = pick(prng, &[5_u8, 5, 5, 6, 8, 15]);
    let fragment = pick(prng, &[0_u16, 0, 0, 0x4000, 0x2000, 0x2005, 0x0005]);
    let total = usize::from(words) * 4 + body.len();
    bytes.extend([0x40 | words, 0]);
    bytes.extend((total as u16).to_be_bytes());
    bytes.extend([0, 9]);
    bytes.extend(fragment.to_be_bytes());
    bytes.extend([64, protocol, 0, 0]);
    bytes.extend([10, 0, 0, prng.below(4) as u8, 192, 168, 1, prng.below(4) as u8]);
    bytes.resize(bytes.len() + usize::from(words - 5) * 4, 1);
    bytes.extend(body);
}

fn ipv6(prng: &mut Prng, bytes: &mut Vec<u8>) {
    const EXTENSIONS: [u8; 8] = [0, 43, 44, 51, 60, 135, 139, 140];
    let (protocol, body) = transport(prng);
    let chain: Vec<u8> = (0..pick(prng, &[0, 0, 0, 1, 2, 3, 4])).map(|_| pick(prng, &EXTENSIONS)).collect();
    let mut extensions = Vec::new();
    for (i, kind) in chain.iter().enumerate() {
        let next = chain.get(i + 1).copied().unwrap_or(protocol);
        let field = prng.below(3) as u8;
        let len = match kind {
            44 => 8,
            51 => (usize::from(field) + 2) * 4,
            _ => (usize::from(field) + 1) * 8,
        };
        let at = extensions.len();
        extensions.extend([next, field]);
        extensions.extend(pick(prng, &[0_u16, 0, 1, 0x0101, 0x0100]).to_be_bytes());
        extensions.resize(at + len, 0);
    }
    bytes.extend([0x60, 0, 0, 0]);
    bytes.extend(((extensions.len() + body.len()) as u16).to_be_bytes());
    bytes.extend([chain.first().copied().unwrap_or(protocol), 64]);
    for _ in 0..2 {
        bytes.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, prng.below(4) as u8]);
    }
    bytes.extend(extensions);
    bytes.extend(body);
}

/// Returns a protocol number and a header of this protocol with payload, which is sometimes truncated.
fn transport(prng: &mut Prng) -> (u8, Vec<u8>) {
    const PORTS: [u16; 12] = [53, 80, 443, 1024, 5060, 50_000, 2152, 3544, 4754, 4789, 6081, 8472];
    let protocol = pick(prng, &[6_u8, 6, 6, 17, 17, 17, 1, 58, 132, 4, 41, 47, 33, 59, 200]);
    let (from, to) = (pick(prng, &PORTS[..8]), pick(prng, &PORTS));
    let payload = prng.below(40) as usize;
    let mut bytes = Vec::new();
    bytes.extend(from.to_be_bytes());
    bytes.extend(to.to_be_bytes());
    match protocol {
        6 => bytes.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, prng.below(64) as u8, 1, 0, 0, 0, 0, 0]),
        17 => {
            bytes.extend(((8 + payload) as u16).to_be_bytes());
            bytes.extend([0, 0]);
        }
        4 => bytes = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8],
        41 => bytes.splice(.., [0x60, 0, 0, 0, 0, 8, 17, 64]).for_each(drop),
        _ => bytes.extend([0; 4]),
    }
    let len = bytes.len() + payload;
    bytes.resize(len, 0x55);
    if prng.below(12) == 0 {
        bytes.truncate(prng.below(16) as usize);
    }
    (protocol, bytes)
}
