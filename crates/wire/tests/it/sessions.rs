//! Tests of `numbered_tunnels` and `Sessions`: the sequence numbers of frames for any content of the tunnel, and the
//! counts of missing numbers. The numbers in the real captures are compared with those of tshark.

use crate::captures;
use crate::common;

use base::Prng;
use common::built;
use netgrain_wire::build::{Frame, tunnel};
use netgrain_wire::{Decoded, EtherType, IpProtocol, SessionCounts, Sessions, TunnelKind, link, numbered_tunnels};
use std::collections::BTreeMap;
use std::process::Command;

type Number = (TunnelKind, u32, u32);

/// Kind, ID and sequence number of every tunnel with a sequence number; `may_have_sequence` must agree.
fn numbers(frame: &[u8], wire_len: u32, link_type: u16) -> Vec<Number> {
    let all: Vec<Number> = numbered_tunnels(frame, wire_len, link_type)
        .map(|t| (t.kind, t.id, t.sequence.expect("the tunnel has a sequence number")))
        .collect();
    assert!(Decoded::of(frame, wire_len, link_type).may_have_sequence() || all.is_empty());
    all
}

fn of(frame: &[u8]) -> Vec<Number> {
    numbers(frame, frame.len() as u32, link::ETHERNET)
}

/// A mirrored frame: ERSPAN type II.
fn mirrored(session: u16, sequence: u32, frame: &[u8]) -> Vec<u8> {
    let gre = tunnel::gre(EtherType::ERSPAN, None, None, Some(sequence));
    let payload = [&gre[..], &tunnel::erspan2(session), frame].concat();
    built(Frame::ip4(1, 2, IpProtocol::GRE).payload(&payload))
}

fn in_udp(port: u16, payload: &[&[u8]]) -> Vec<u8> {
    built(Frame::udp4(3, 50_000, 4, port).payload(&payload.concat()))
}

#[test]
fn the_erspan_sequence_number_is_found_for_any_mirrored_frame() {
    let plain = built(Frame::udp4(9, 1, 8, 53).payload(b"abc"));
    let packet = &plain[14..];
    let arp = built(Frame::ethernet(EtherType::ARP).payload(&[0; 28]));
    let vxlan = in_udp(4789, &[&tunnel::vxlan(7), &plain]);
    let gtp = in_udp(2152, &[&tunnel::gtp_u(6, Some(5), &[], packet.len()), packet]);
    let mirror = (TunnelKind::Erspan2, 44, 1000);
    assert_eq!(of(&mirrored(44, 1000, &plain)), [mirror]);
    assert_eq!(of(&mirrored(44, 1000, &arp)), [mirror], "a frame that is not IP");
    assert_eq!(of(&mirrored(44, 1000, &vxlan)), [mirror], "a tunnel without sequence numbers");
    assert_eq!(of(&mirrored(44, 1000, &gtp)), [mirror, (TunnelKind::GtpU, 6, 5)], "a tunnel with sequence numbers");
    assert_eq!(of(&mirrored(44, 1000, &mirrored(3, 9, &plain))), [mirror, (TunnelKind::Erspan2, 3, 9)]);
    assert_eq!(of(&mirrored(44, 1000, &plain[..20])), [mirror], "a truncated mirrored frame");
    assert_eq!(of(&plain), []);
    let erspan1 = [&tunnel::gre(EtherType::ERSPAN, None, None, None)[..], &plain].concat();
    assert_eq!(of(&built(Frame::ip4(1, 2, IpProtocol::GRE).payload(&erspan1))), [], "type I has no sequence number");
    let mut other = tunnel::erspan3(44);
    other[10] = 9 << 2;
    let unknown = [&tunnel::gre(EtherType::ERSPAN3, None, None, Some(8))[..], &other, &plain].concat();
    let unknown = built(Frame::ip4(1, 2, IpProtocol::GRE).payload(&unknown));
    assert_eq!(of(&unknown), [(TunnelKind::Erspan3, 44, 8)], "a frame type that is not decoded");
}

#[test]
fn tunnels_identified_by_port_have_sequence_numbers_only_if_they_are_decoded() {
    let packet = built(Frame::udp4(9, 1, 8, 53).payload(b"abc").raw());
    let gtp = |length: usize| tunnel::gtp_u(6, Some(5), &[], length);
    assert_eq!(of(&in_udp(2152, &[&gtp(packet.len()), &packet])), [(TunnelKind::GtpU, 6, 5)]);
    assert_eq!(of(&in_udp(2152, &[&gtp(packet.len()), &vec![0x55; packet.len()]])), []);
    let mut echo = tunnel::gtp_u(0, Some(1), &[], 0);
    echo[1] = 1;
    assert_eq!(of(&in_udp(2152, &[&echo])), [], "signalling has its own sequence numbers");
    let gre = tunnel::gre(EtherType::IPV4, None, None, Some(77));
    assert_eq!(of(&in_udp(4754, &[&gre, &packet])), [(TunnelKind::Gre, 0, 77)]);
    assert_eq!(of(&in_udp(4754, &[&gre, &[0x99; 40]])), []);
    assert_eq!(of(&in_udp(4754, &[&[0x50, 0, 8, 0, 0, 0, 0, 1], &packet])), [], "a source route");
}

#[test]
fn only_the_first_fragment_of_a_tunnel_packet_has_its_sequence_number() {
    let large = vec![7; 1400];
    let inner = built(Frame::udp4(9, 1, 8, 53).payload(&large));
    let whole = mirrored(44, 1000, &inner);
    let part = |offset: u16, more: bool, of: &[u8], protocol| {
        let (from, to) = (usize::from(offset), if more { usize::from(offset) + 800 } else { of.len() });
        built(Frame::ip4(1, 2, protocol).fragment(1, offset, more).payload(&of[from..to]))
    };
    assert_eq!(of(&part(0, true, &whole[34..], IpProtocol::GRE)), [(TunnelKind::Erspan2, 44, 1000)]);
    assert_eq!(of(&part(800, false, &whole[34..], IpProtocol::GRE)), []);
    let packet = &inner[14..];
    let whole = in_udp(2152, &[&tunnel::gtp_u(6, Some(5), &[], packet.len()), packet]);
    assert_eq!(of(&part(0, true, &whole[34..], IpProtocol::UDP)), [(TunnelKind::GtpU, 6, 5)]);
    assert_eq!(of(&part(800, false, &whole[34..], IpProtocol::UDP)), []);
    let in_gre = in_udp(4754, &[&tunnel::gre(EtherType::IPV4, None, None, Some(77)), packet]);
    assert_eq!(of(&part(0, true, &in_gre[34..], IpProtocol::UDP)), [(TunnelKind::Gre, 0, 77)]);
    assert_eq!(of(&part(800, false, &in_gre[34..], IpProtocol::UDP)), []);
    let mut nothing = whole.clone();
    nothing[34 + 8 + 12] = 0x15;
    assert_eq!(of(&part(0, true, &nothing[34..], IpProtocol::UDP)), [], "a payload that is not IP");
    let decoded = common::decoded(&part(0, true, &whole[34..], IpProtocol::UDP));
    assert_eq!((decoded.tunnel, decoded.depth, decoded.src_port.0), (None, 0, 50_000), "the content is not decoded");
}

#[test]
fn losses_of_a_mirror_are_counted_for_any_mirrored_frames() {
    let seed = testkit::seed("losses_of_a_mirror_are_counted_for_any_mirrored_frames");
    let mut prng = Prng::new(seed);
    let (mut sessions, mut sent, mut lost) = (Sessions::new(3), [u32::MAX - 100, 5], 0);
    for n in 0..5000 {
        let which = prng.below(2) as usize;
        sent[which] = sent[which].wrapping_add(1);
        let inner = match prng.below(4) {
            0 => built(Frame::ethernet(EtherType::ARP).payload(&[0; 28])),
            1 => in_udp(4789, &[&tunnel::vxlan(7), &built(Frame::udp4(9, 1, 8, 53))]),
            2 => built(Frame::udp4(n, 1, 8, 53).payload(&[0; 20])),
            _ => vec![0; 60],
        };
        let frame = mirrored(which as u16, sent[which], &inner);
        // The test drops no numbers near the beginning and the end of a session, because `Sessions` cannot detect such
        // losses.
        if prng.below(10) == 0 && (50..4900).contains(&n) {
            lost += 1;
        } else if common::decoded(&frame).may_have_sequence() {
            sessions.observe(&frame, frame.len() as u32, link::ETHERNET);
        }
    }
    let counts = sessions.counts();
    let expected = SessionCounts { numbered: 5000 - lost, started: 2, missing: lost, ..SessionCounts::default() };
    assert_eq!(counts, expected, "seed {seed}");
    assert!(lost > 100, "seed {seed}");
}

/// The sequence numbers of GRE and of G-PDUs that tshark finds in a capture, by packet number.
fn tshark(file: &std::path::Path) -> BTreeMap<usize, Vec<u32>> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r", &file.to_string_lossy(), "-T", "fields", "-E", "occurrence=a"]);
    // Without these options, tshark reassembles a fragmented packet and reports its sequence number with its last
    // fragment.
    command.args(["-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE"]);
    for field in ["frame.number", "gre.sequence_number", "gtp.message", "gtp.seq_number"] {
        command.args(["-e", field]);
    }
    let text = String::from_utf8(command.output().expect("tshark can be started").stdout).expect("the output is text");
    let mut all = BTreeMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let list = |at: usize| fields.get(at).into_iter().flat_map(|f| f.split(',')).filter(|v| !v.is_empty());
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16).expect("a number"),
            None => text.parse().expect("a number"),
        };
        let mut numbers: Vec<u32> = list(1).map(number).collect();
        if list(2).all(|message| number(message) == 255) {
            numbers.extend(list(3).map(number));
        }
        if !numbers.is_empty() {
            all.insert(fields[0].parse().expect("a number"), numbers);
        }
    }
    all
}

/// Captures in which tshark decodes messages of GTP' as G-PDUs.
const NOT_GTP_U: [&str; 2] = ["gtp_control_prime.pcap", "pdp_ctx_messages.pcapng"];

#[test]
fn sequence_numbers_are_those_of_tshark() {
    let name = "sequence_numbers_are_those_of_tshark";
    let Some(traces) = testkit::traces(name) else { return };
    if testkit::tool(name, "tshark").is_none() {
        return;
    }
    let (mut agreed, mut kinds, mut differences) = (0, BTreeMap::new(), Vec::new());
    for file in captures::files(&traces) {
        if NOT_GTP_U.iter().any(|name| file.ends_with(name)) {
            continue;
        }
        let packets = captures::packets(&file, 3000);
        let mut ours = BTreeMap::new();
        for (at, p) in packets.iter().enumerate() {
            let all = numbers(&p.bytes, p.wire_len, p.link_type);
            all.iter().for_each(|(kind, ..)| *kinds.entry(*kind).or_insert(0) += 1);
            if !all.is_empty() {
                ours.insert(at + 1, all.iter().map(|n| n.2).collect::<Vec<_>>());
            }
        }
        let named = ["gtp", "gre", "erspan", "pptp"].iter().any(|word| file.to_string_lossy().contains(word));
        if named || !ours.is_empty() {
            let theirs = tshark(&file);
            if ours != theirs {
                differences.push(format!("{}: decoder {ours:?}, tshark {theirs:?}", file.display()));
            }
            agreed += ours.len();
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    eprintln!("{agreed} packets have the sequence numbers of tshark: {kinds:?}");
    assert!(agreed >= 5 && kinds.len() >= 3, "{agreed} packets of {kinds:?}");
}
