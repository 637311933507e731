//! Generates traffic with every header that a filter can test, intact and malformed.

use super::Packet;
use wire::build::{Frame, tunnel};
use wire::{EtherType, IpProtocol, MacAddr, link};

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];

fn framed(kind: [u8; 2], payload: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], &kind, payload].concat()
}

/// An 802.3 frame with a length field and this payload.
fn with_length(payload: &[u8]) -> Vec<u8> {
    framed((payload.len() as u16).to_be_bytes(), payload)
}

/// Returns frames with protocols that are rare in capture files: 802.2, IS-IS, DECnet and Geneve.
pub fn rare_frames() -> Vec<Packet> {
    let mut frames = Vec::new();
    for control in [0x00, 0x02, 0x01, 0x05, 0x09, 0x03, 0x13, 0x63, 0x73, 0x43, 0x0f, 0x6f, 0xe3, 0xaf, 0x87, 0xff] {
        frames.push(with_length(&[0x42, 0x42, control, 0, 0, 0, 0, 0, 0, 0]));
        frames.push(with_length(&[0xf0, 0xf0, control, 0, 0, 0, 0, 0, 0, 0]));
    }
    frames.push(with_length(&[0xff, 0xff, 0x03, 0, 0, 0, 0, 0]));
    frames.push(with_length(&[0xe0, 0xe0, 0x03, 0, 0, 0, 0, 0]));
    frames.push(with_length(&[0xaa, 0xaa, 3, 0, 0, 0, 0x81, 0x37, 0, 0, 0]));
    frames.push(with_length(&[0xaa, 0xaa, 3, 8, 0, 7, 0x80, 0x9b, 0, 0, 0]));
    frames.push(with_length(&[0xaa, 0xaa, 3, 0, 0, 0, 0x80, 0xf3, 0, 0, 0]));
    for pdu in 14..29 {
        frames.push(with_length(&[0xfe, 0xfe, 3, 0x83, 0x1b, 1, 0, pdu, 1, 0]));
        // libpcap reads the PDU type at this offset on link types other than Ethernet.
        frames.push(with_length(&[0xfe, 0xfe, 3, 0x83, pdu, 1, 0, 0, 1, 0]));
    }
    frames.push(with_length(&[0xfe, 0xfe, 3, 0x81, 0, 0, 0, 0, 0, 0]));
    for (format, places) in
        [(&[0x02_u8][..], [3, 1]), (&[0x81, 0x02], [4, 2]), (&[0x06], [15, 7]), (&[0x81, 0x06], [16, 8])]
    {
        for place in places {
            let mut routed = vec![0; 40];
            routed[2..2 + format.len()].copy_from_slice(format);
            for node in [1, 2] {
                routed[place + 2..place + 4].copy_from_slice(&[node, 4]);
                frames.push(framed([0x60, 3], &routed));
            }
        }
    }
    frames.extend(tunnels());
    frames.into_iter().map(|bytes| Packet { wire_len: bytes.len() as u32, bytes }).collect()
}

/// Geneve packets with and without options, over IPv4 and IPv6, with Ethernet and with IP payload, and nested.
fn tunnels() -> Vec<Vec<u8>> {
    let web = written(Frame::tcp4(A, 4000, B, 80).payload(&[7; 10]));
    let tagged = written(Frame::udp4(A, 4000, B, 53).tag(EtherType::VLAN, 5));
    let six = written(Frame::tcp6([1; 8], 80, [2; 8], 4000));
    let mut out = Vec::new();
    for (vni, options) in [(10, &[][..]), (11, &[0, 1, 2, 1, 9, 9, 9, 9]), (10, &[0; 4])] {
        let bridged = EtherType(0x6558);
        let carried = [(bridged, &web[..]), (bridged, &tagged), (bridged, &six), (EtherType::IPV4, &web[14..])];
        for (kind, inside) in carried.into_iter().chain([(EtherType::IPV6, &six[14..])]) {
            let payload = [&tunnel::geneve(kind, vni, options)[..], inside].concat();
            let once = written(Frame::udp4(A, 50_000, B, 6081).payload(&payload));
            out.push(written(Frame::udp6([3; 8], 50_000, [4; 8], 6081).payload(&payload)));
            let twice = [&tunnel::geneve(bridged, 12, &[])[..], &once].concat();
            out.push(written(Frame::udp4(A, 50_000, B, 6081).payload(&twice)));
            // A packet with another Geneve version or another UDP port is not a tunnel.
            let mut other = once.clone();
            other[42] |= 0x40;
            out.extend([other, written(Frame::udp4(A, 50_000, B, 6082).payload(&payload)), once]);
        }
    }
    out
}

const A6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1];
const B6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2];
const GROUP6: [u16; 8] = [0xff02, 0, 0, 0, 0, 0, 0, 1];

fn written(frame: Frame<'_>) -> Vec<u8> {
    let mut bytes = [0; 800];
    let macs = frame.macs(MacAddr([2, 0, 0, 0, 0, 2]), MacAddr([2, 0, 0, 0, 0, 1]));
    macs.write(&mut bytes).expect("room for the frame").to_vec()
}

/// Packets of every transport protocol over IPv4 and IPv6, without VLAN tags.
fn plain() -> Vec<Frame<'static>> {
    const BODY: &[u8] = &[0x16, 1, 0, 0, 0, 80, 7, 7, 7, 7, 7, 7];
    let mut out = Vec::new();
    for port in [20, 21, 22, 23, 25, 53, 67, 80, 81, 111, 123, 161, 443, 500, 514, 1000, 5060] {
        out.push(Frame::tcp4(A, 4000, B, port));
        out.push(Frame::tcp4(B, port, A, 4000).payload(&[1, 2, 3]));
        out.push(Frame::udp4(A, port, B, port));
        out.push(Frame::udp6(A6, port, B6, 4000).payload(&[0; 9]));
        out.push(Frame::tcp6(B6, 4000, A6, port));
    }
    for flags in [1, 2, 4, 8, 16, 18, 32, 64, 128, 0x3f] {
        out.push(Frame::tcp4(A, 4000, B, 80).tcp(flags, 7, 9));
        out.push(Frame::tcp6(A6, 4000, B6, 80).tcp(flags, 7, 9));
    }
    for protocol in [0, 1, 2, 4, 9, 41, 43, 44, 47, 50, 51, 59, 60, 88, 89, 103, 112, 132, 255] {
        out.push(Frame::ip4(A, B, IpProtocol(protocol)).payload(BODY));
        out.push(Frame::ip6(A6, B6, IpProtocol(protocol)).payload(BODY));
    }
    for kind in [0, 3, 5, 8, 11, 13] {
        out.push(Frame::icmp4(A, B, kind, 0, [0; 4]));
        out.push(Frame::icmp4(B, A, kind, 1, [0; 4]).payload(BODY));
    }
    for kind in [1, 128, 129, 133, 134, 135, 136] {
        out.push(Frame::icmp6(A6, GROUP6, kind, 0, [0; 4]));
    }
    out.push(Frame::udp4(A, 68, [255, 255, 255, 255], 67));
    out.push(Frame::udp4(A, 1, [0, 0, 0, 0], 2));
    out.push(Frame::udp4([192, 168, 1, 1], 5353, [224, 0, 0, 251], 5353));
    out.push(Frame::tcp4([0, 0, 0, 1], 1, [10, 1, 0, 9], 2).ip_options(&[1, 1, 1, 0]));
    out.push(Frame::udp4(A, 53, B, 53).ip_options(&[1; 12]));
    out.push(Frame::tcp4(A, 80, B, 443).tcp_options(&[1; 8]));
    for (offset, more) in [(0, true), (185, true), (185, false)] {
        out.push(Frame::udp4(A, 53, B, 80).fragment(7, offset, more).payload(&[80; 16]));
        out.push(Frame::tcp4(A, 80, B, 53).fragment(7, offset, more).payload(&[0; 16]));
    }
    out
}

/// IPv6 with extension headers.
fn extended() -> Vec<Frame<'static>> {
    const HOP: IpProtocol = IpProtocol(0);
    const ROUTING: IpProtocol = IpProtocol(43);
    const PART: IpProtocol = IpProtocol(44);
    const AH: IpProtocol = IpProtocol(51);
    const OPTIONS: IpProtocol = IpProtocol(60);
    // The frame builder computes the next header field and the length.
    const ONE: &[u8] = &[0; 6];
    const LATER: &[u8] = &[0, 8, 0, 0, 0, 1];
    const SEAL: &[u8] = &[0; 10];
    const CHAINS: [&[(IpProtocol, &[u8])]; 7] = [
        &[(HOP, ONE)],
        &[(ROUTING, ONE)],
        &[(PART, ONE)],
        &[(PART, LATER)],
        &[(OPTIONS, ONE)],
        &[(HOP, ONE), (ROUTING, ONE), (PART, ONE), (OPTIONS, ONE)],
        &[(AH, SEAL)],
    ];
    CHAINS
        .into_iter()
        .flat_map(|chain| {
            [
                Frame::tcp6(A6, 4000, B6, 80).extensions(chain),
                Frame::udp6(A6, 53, B6, 53).extensions(chain),
                Frame::icmp6(A6, B6, 128, 0, [0; 4]).extensions(chain),
            ]
        })
        .collect()
}

/// IP packets inside VLAN tags, MPLS labels, PPPoE sessions, SNAP and VXLAN.
fn encapsulated() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let carried = [
        Frame::tcp4(A, 4000, B, 80).tcp(2, 0, 0),
        Frame::udp4(A, 53, B, 53),
        Frame::udp6(A6, 53, B6, 4000),
        Frame::tcp6(A6, 80, B6, 4000),
        Frame::icmp4(A, B, 8, 0, [0; 4]),
        Frame::tcp4(A, 80, B, 1).ip_options(&[1; 8]),
    ];
    for frame in carried {
        for tag in [0, 5, 6, 100, 4095, 0x2005] {
            out.push(written(frame.tag(EtherType::VLAN, tag)));
        }
        out.push(written(frame.tag(EtherType::QINQ, 5).tag(EtherType::VLAN, 6)));
        out.push(written(frame.tag(EtherType::QINQ_OLD, 100).tag(EtherType::VLAN, 200)));
        out.push(written(frame.tag(EtherType::VLAN, 1).tag(EtherType::VLAN, 2).tag(EtherType::VLAN, 3)));
        for labels in [&[16][..], &[100, 200], &[100_000, 1024], &[1, 2, 3]] {
            let labelled = labels.iter().fold(frame, |f, label| f.label(*label));
            out.push(written(labelled));
            out.push(written(labelled.tag(EtherType::VLAN, 5)));
        }
        let packet = written(frame)[14..].to_vec();
        let ppp = if packet[0] >> 4 == 4 { 0x21 } else { 0x57 };
        for session in [1, 4, 17] {
            let inside = [&tunnel::pppoe(session, ppp, packet.len())[..], &packet].concat();
            out.push(framed([0x88, 0x64], &inside));
            out.push(framed([0x81, 0], &[&[0, 5, 0x88, 0x64][..], &inside].concat()));
        }
        let snap = [&tunnel::snap(EtherType(if ppp == 0x21 { 0x800 } else { 0x86dd }))[..], &packet].concat();
        out.push(with_length(&snap));
        out.push(written(Frame::udp4(A, 50_000, B, 4789).payload(&[&tunnel::vxlan(7)[..], &written(frame)].concat())));
    }
    out
}

/// ARP, reverse ARP and frames with other ethertypes.
fn other_ethertypes() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for (kind, operation) in [([8, 6], 1), ([8, 6], 2), ([0x80, 0x35], 3), ([0x80, 0x35], 4)] {
        for (from, to) in [(A, B), (B, A), (A, [192, 168, 1, 1])] {
            let head = [0, 1, 8, 0, 6, 4, 0, operation, 2, 0, 0, 0, 0, 2];
            let body = [&head[..], &from, &[2, 0, 0, 0, 0, 1], &to].concat();
            out.push(framed(kind, &body));
            out.push(framed([0x81, 0], &[&[0, 5][..], &kind, &body].concat()));
        }
    }
    for kind in [
        0x88cc_u16, 0x8863, 0x6002, 0x6001, 0x6004, 0x6007, 0x809b, 0x80f3, 0x8137, 0x9000, 0x8899, 0x0600, 0x8847,
        0x8864,
    ] {
        out.push(framed(kind.to_be_bytes(), &[0x45; 40]));
        out.push(framed(kind.to_be_bytes(), &[]));
    }
    let mut broadcast = framed([8, 6], &[1; 28]);
    broadcast[..6].fill(0xff);
    let mut group = framed([8, 0], &written(Frame::udp4(A, 1, [224, 0, 0, 5], 2))[14..]);
    group[0] = 1;
    out.extend([broadcast, group, vec![], vec![2], framed([8, 0], &[])]);
    out
}

/// Headers that contradict themselves.
fn malformed() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let (four, six) = (written(Frame::tcp4(A, 4000, B, 80)), written(Frame::udp6(A6, 53, B6, 53)));
    for first in [0x40, 0x41, 0x44, 0x46, 0x4f, 0x55, 0x65, 0] {
        let mut bytes = four.clone();
        bytes[14] = first;
        out.push(bytes.clone());
        // The frame must be long enough to contain ports at the offset that the header length field implies.
        bytes.resize(120, 80);
        out.push(bytes);
    }
    for total in [0_u16, 1, 19, 21, 39, 41, 0xffff] {
        let mut bytes = four.clone();
        bytes[16..18].copy_from_slice(&total.to_be_bytes());
        out.push(bytes);
    }
    for version in [0x40, 0x00, 0xf0] {
        let mut bytes = six.clone();
        bytes[14] = version;
        out.push(bytes);
    }
    for offset in [0x00, 0x10, 0xf0] {
        let mut bytes = four.clone();
        bytes[46] = offset;
        out.push(bytes);
    }
    // First fragments that end after the ports, or in the middle of them.
    for (len, more) in [(24, 0x20), (22, 0x20), (28, 0x20), (24, 0)] {
        let mut bytes = four[..14 + len].to_vec();
        bytes[16..18].copy_from_slice(&(len as u16).to_be_bytes());
        bytes[20] = more;
        out.push(bytes.clone());
        bytes.resize(60, 0);
        out.push(bytes);
    }
    out
}

/// All generated Ethernet frames.
pub fn ethernet() -> Vec<Packet> {
    let mut frames: Vec<Vec<u8>> = plain().into_iter().chain(extended()).map(written).collect();
    frames.extend(encapsulated());
    frames.extend(other_ethertypes());
    frames.extend(malformed());
    let mut packets: Vec<_> = frames
        .into_iter()
        .map(|bytes| Packet { wire_len: bytes.len() as u32, bytes })
        .filter(|p| !p.bytes.is_empty())
        .chain(rare_frames())
        .collect();
    // Ethernet pads short frames.
    let padded: Vec<_> = packets
        .iter()
        .step_by(7)
        .filter(|p| p.bytes.len() < 60)
        .map(|p| {
            let mut bytes = p.bytes.clone();
            bytes.resize(60, 0);
            Packet { bytes, wire_len: 60 }
        })
        .collect();
    packets.extend(padded);
    packets
}

/// The number of the address family of an ethertype on BSD systems; for IPv6, one of the three numbers in use (OpenBSD
/// first).
fn family(ethertype: [u8; 2], n: u64) -> Option<u32> {
    match ethertype {
        [8, 0] => Some(2),
        [0x86, 0xdd] => Some([24, 28, 30][n as usize % 3]),
        _ => None,
    }
}

/// Converts an Ethernet frame to another link type; `None` if that link type cannot carry the frame.
pub fn as_of(link_type: u16, frame: &[u8], n: u64) -> Option<Vec<u8>> {
    let (head, payload) = frame.split_at_checked(14)?;
    let ethertype = [head[12], head[13]];
    let is_ip = matches!((link_type, ethertype), (_, [8, 0] | [0x86, 0xdd]));
    let sent = if n.is_multiple_of(3) { 4 } else { (n % 4) as u8 };
    // In Linux cooked headers, the protocol field is 4 for a frame with an 802.2 header, and 1 for a Novell raw 802.3
    // frame.
    let linux = match ethertype {
        [a, b] if u16::from_be_bytes([a, b]) > 1500 => ethertype,
        _ if payload.starts_with(&[0xff, 0xff]) => [0, 1],
        _ => [0, 4],
    };
    let head = match link_type {
        link::RAW_IP if is_ip => vec![],
        link::RAW_IPV4 if ethertype == [8, 0] => vec![],
        link::RAW_IPV6 if ethertype == [0x86, 0xdd] => vec![],
        link::NULL => family(ethertype, n)?.to_le_bytes().to_vec(),
        link::LOOP => family(ethertype, n)?.to_be_bytes().to_vec(),
        link::LINUX_SLL => [&[0, sent, 0, 1, 0, 6][..], &head[6..12], &[0, 0], &linux].concat(),
        link::LINUX_SLL2 => {
            [&linux[..], &[0, 0, 0, 0, 0, (n % 5) as u8, 0, 1, sent, 6], &head[6..12], &[0, 0]].concat()
        }
        _ => return None,
    };
    Some([&head, payload].concat())
}
