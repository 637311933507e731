//! Tests of the rewriter against checksums computed by their definition.

use super::*;
use base::Prng;
use std::collections::HashMap;
use wire::build::Frame;
use wire::{Checksum, Decoded, FlowKey, IpProtocol, MacAddr, link};

fn rewritten(rewriter: &Rewriter, frame: &[u8], position: Position) -> Vec<u8> {
    let (mut out, mut counts) = (vec![1, 2, 3], RewriteCounts::default());
    rewriter.append(frame, frame.len() as u32, position, &mut out, &mut counts);
    out.split_off(3)
}

fn all_changes(seed: u64) -> Rewrite {
    Rewrite {
        prefixes: vec!["10.0.0.0/8=172.0.0.0/8".parse().unwrap(), "fd00::/16=2001::/16".parse().unwrap()],
        flow_depth: Some(20),
        copies: 5,
        random_source: Some("12,50".parse().unwrap()),
        random_destination: Some("3".parse().unwrap()),
        seed,
        ..Rewrite::default()
    }
}

/// The checksum of bytes by its definition (RFC 1071): the ones' complement sum of all 16-bit words.
fn sum(parts: &[&[u8]]) -> u16 {
    let all: Vec<u8> = parts.concat();
    let mut sum = 0u32;
    for pair in all.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Asserts that the checksums of an IP packet are correct.
fn assert_correct(packet: &[u8], why: &str) {
    let (header, addresses, protocol, end) = match packet[0] >> 4 {
        4 => {
            let header = usize::from(packet[0] & 15) * 4;
            assert_eq!(sum(&[&packet[..header]]), 0, "IPv4 header checksum: {why}");
            (header, &packet[12..20], packet[9], usize::from(u16::from_be_bytes([packet[2], packet[3]])))
        }
        _ => (40, &packet[8..40], packet[6], 40 + usize::from(u16::from_be_bytes([packet[4], packet[5]]))),
    };
    let segment = &packet[header..end];
    let len = (segment.len() as u32).to_be_bytes();
    let pseudo = [addresses, &len, &[0, protocol]].concat();
    match IpProtocol(protocol) {
        IpProtocol::UDP if segment[6..8] == [0, 0] => {}
        IpProtocol::TCP | IpProtocol::UDP | IpProtocol::ICMPV6 => {
            assert_eq!(sum(&[&pseudo, segment]), 0, "checksum of protocol {protocol}: {why}");
        }
        IpProtocol::ICMP => assert_eq!(sum(&[segment]), 0, "ICMP checksum: {why}"),
        _ => {}
    }
    if let (1, 3 | 11) | (58, 1 | 3) = (protocol, segment[0]) {
        assert_correct(&segment[8..], &format!("quoted packet: {why}"));
    }
}

/// A random frame with correct checksums.
fn frame(prng: &mut Prng) -> Vec<u8> {
    let v4 = |prng: &mut Prng| [10, 0, prng.below(3) as u8, prng.below(250) as u8 + 1];
    let v6 = |prng: &mut Prng| {
        std::net::Ipv6Addr::new(0xfd00, 0, 0, prng.below(3) as u16, 0, 0, 0, prng.below(99) as u16 + 1)
    };
    let mut payload = vec![0; prng.below(300) as usize];
    prng.fill(&mut payload);
    let (a, b, c, d) = (v4(prng), v4(prng), v6(prng), v6(prng));
    let (s, t) = (prng.next_u64() as u16, prng.next_u64() as u16);
    let mut quote = [0; 2000];
    let (quoted4, quoted6) = (
        Frame::tcp4(b, t, a, s).raw().payload(&payload).write(&mut quote).unwrap().to_vec(),
        Frame::udp6(d, t, c, s).raw().payload(&payload).write(&mut quote).unwrap().to_vec(),
    );
    let built = match prng.below(7) {
        0 => Frame::udp4(a, s, b, t).payload(&payload),
        1 => Frame::tcp4(a, s, b, t).payload(&payload).ip_options(&[1, 1, 1]),
        2 => Frame::udp6(c, s, d, t).payload(&payload),
        3 => Frame::tcp6(c, s, d, t).payload(&payload),
        4 => Frame::icmp4(a, b, 3, 1, [0; 4]).payload(&quoted4),
        5 => Frame::icmp6(c, d, 1, 4, [0; 4]).payload(&quoted6),
        _ => Frame::icmp6(c, d, 128, 0, [0, 1, 0, 2]).payload(&payload),
    };
    let built = if prng.below(3) == 0 { built.tag(EtherType::VLAN, 5) } else { built };
    let mut out = [0; 2000];
    built.write(&mut out).unwrap().to_vec()
}

#[test]
fn correct_checksums_stay_correct_and_nothing_else_changes() {
    let seed = testkit::seed("correct_checksums_stay_correct_and_nothing_else_changes");
    let mut prng = Prng::new(seed);
    let rewriter = Rewriter::new(all_changes(seed));
    for round in 0..20_000 {
        let frame = frame(&mut prng);
        let position = Position { pass: prng.below(3), copy: prng.below(5) as u32, number: round, output: 0 };
        let out = rewritten(&rewriter, &frame, position);
        let why = format!("seed {seed}, round {round}: {frame:02x?}");
        assert_eq!(out.len(), frame.len(), "{why}");
        let headers = Headers::of(&frame, frame.len() as u32, link::ETHERNET);
        let (l3, l4) = (usize::from(headers.l3()), usize::from(headers.l4()));
        assert_correct(&out[l3..], &why);
        let addresses = if headers.family() == wire::Family::V4 { 12..20 } else { 8..40 };
        assert_ne!(out[l3..][addresses.clone()], frame[l3..][addresses.clone()], "{why}");
        // The ports and the payload of TCP and UDP are unchanged.
        if matches!(headers.protocol(), Some(IpProtocol::TCP | IpProtocol::UDP)) {
            let payload = l4 + if headers.protocol() == Some(IpProtocol::TCP) { 20 } else { 8 };
            assert_eq!((&out[l4..l4 + 4], &out[payload..]), (&frame[l4..l4 + 4], &frame[payload..]), "{why}");
        }
    }
}

#[test]
fn an_icmp_error_of_a_router_is_about_the_same_flow_after_the_change() {
    let seed = testkit::seed("an_icmp_error_of_a_router_is_about_the_same_flow_after_the_change");
    let rewriter = Rewriter::new(Rewrite { flow_depth: Some(16), seed, ..Rewrite::default() });
    let (host, server, router) = ([10, 1, 2, 3], [10, 9, 8, 7], [10, 5, 5, 5]);
    let (mut buffer, mut quote) = ([0; 300], [0; 300]);
    let sent = Frame::udp4(host, 5000, server, 53).payload(b"question").write(&mut buffer).unwrap().to_vec();
    let quoted = Frame::udp4(host, 5000, server, 53).raw().payload(b"question").write(&mut quote).unwrap().to_vec();
    let error = Frame::icmp4(router, host, 11, 0, [0; 4]).payload(&quoted).write(&mut buffer).unwrap().to_vec();
    for pass in 0..20 {
        let position = Position { pass, ..Position::default() };
        let (sent, error) = (rewritten(&rewriter, &sent, position), rewritten(&rewriter, &error, position));
        let source = &sent[26..30];
        assert_eq!(&error[30..34], source, "destination of the error, pass {pass}, seed {seed}");
        assert_eq!(&error[42 + 12..42 + 16], source, "quoted source, pass {pass}, seed {seed}");
        assert_eq!(&error[42 + 16..42 + 20], &sent[30..34], "quoted destination, pass {pass}, seed {seed}");
    }
}

#[test]
fn wrong_checksums_stay_wrong_and_are_fixed_on_request() {
    let seed = testkit::seed("wrong_checksums_stay_wrong_and_are_fixed_on_request");
    let mut prng = Prng::new(seed);
    let keeps = Rewriter::new(Rewrite { random_source: None, random_destination: None, ..all_changes(seed) });
    let fixes = Rewriter::new(Rewrite { fix_checksums: true, ..Rewrite::default() });
    let mut buffer = [0; 200];
    for round in 0..2000 {
        let [a, b] = [[10, 1, 2, prng.below(99) as u8], [10, 1, 3, prng.below(99) as u8]];
        let right = Frame::tcp4(a, 5, b, 6).payload(b"some text").write(&mut buffer).unwrap().to_vec();
        let mut wrong = right.clone();
        let error = 1 + prng.below(0xfffe) as u16;
        let at = [24, 50][prng.below(2) as usize];
        let sum = u16::from_be_bytes([wrong[at], wrong[at + 1]]);
        let (changed, carry) = sum.overflowing_add(error);
        let changed = changed + u16::from(carry);
        wrong[at..at + 2].copy_from_slice(&changed.to_be_bytes());
        let kept = rewritten(&keeps, &wrong, Position::default());
        let of_right = rewritten(&keeps, &right, Position::default());
        let difference =
            Checksum::new().bytes(&kept[at..at + 2]).word(!u16::from_be_bytes([of_right[at], of_right[at + 1]]));
        assert_eq!(!difference.finish() % 0xffff, error % 0xffff, "seed {seed}, round {round}: the error is kept");
        assert_eq!(rewritten(&fixes, &wrong, Position::default()), right, "seed {seed}, round {round}");
    }
}

#[test]
fn frames_that_cannot_be_changed_are_counted() {
    let rewriter = Rewriter::new(Rewrite { fix_checksums: true, vlan: Some(VlanEdit::Remove), ..all_changes(1) });
    let mut buffer = [0; 200];
    let mut counts = RewriteCounts::default();
    let lldp = Frame::ethernet(EtherType(0x88cc)).payload(&[7; 46]).write(&mut buffer).unwrap().to_vec();
    let mut out = Vec::new();
    rewriter.append(&lldp, 60, Position::default(), &mut out, &mut counts);
    assert_eq!(out, lldp);
    assert_eq!(counts, RewriteCounts { without_addresses: 1, without_tag: 1, without_checksum: 0 });
    let udp = Frame::udp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 2).payload(&[7; 40]).write(&mut buffer).unwrap().to_vec();
    rewriter.append(&udp[..50], 82, Position::default(), &mut out, &mut counts);
    assert_eq!(counts, RewriteCounts { without_addresses: 1, without_tag: 2, without_checksum: 1 });
}

#[test]
fn a_udp_packet_without_a_checksum_gets_none() {
    let mut buffer = [0; 200];
    let mut udp =
        Frame::udp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 2).payload(&[7; 40]).write(&mut buffer).unwrap().to_vec();
    udp[40..42].fill(0);
    let rewriter = Rewriter::new(Rewrite { fix_checksums: true, ..all_changes(2) });
    let out = rewritten(&rewriter, &udp, Position::default());
    assert_eq!(out[40..42], [0, 0]);
    assert_correct(&out[14..], "UDP without checksum");
}

#[test]
fn arp_messages_get_the_same_addresses_as_ip_packets() {
    let mut arp = vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1];
    arp.extend([2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
    let mut buffer = [0; 200];
    let udp = Frame::udp4([10, 0, 0, 2], 1, [10, 0, 0, 1], 2).write(&mut buffer).unwrap().to_vec();
    let rewrite = Rewrite { random_source: None, random_destination: None, ..all_changes(4) };
    let rewriter = Rewriter::new(rewrite);
    let position = Position { pass: 2, copy: 3, ..Position::default() };
    let (arp, udp) = (rewritten(&rewriter, &arp, position), rewritten(&rewriter, &udp, position));
    assert_eq!((&arp[28..32], &arp[38..42]), (&udp[30..34], &udp[26..30]));
    assert_eq!(arp[28], 172);
}

#[test]
fn each_interface_has_its_own_mac_addresses() {
    let [a, b, c] = [1, 2, 3].map(|n| MacAddr([2, 0, 0, 0, 9, n]));
    let macs =
        [MacRewrite { source: Some(a), destination: None }, MacRewrite { source: Some(b), destination: Some(c) }];
    let rewriter = Rewriter::new(Rewrite { macs, ..Rewrite::default() });
    let mut buffer = [0; 100];
    let frame = Frame::udp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 2).write(&mut buffer).unwrap().to_vec();
    let at = |output| rewritten(&rewriter, &frame, Position { output, ..Position::default() });
    assert_eq!((&at(0)[..6], &at(0)[6..12]), (&frame[..6], &a.0[..]));
    assert_eq!((&at(1)[..6], &at(1)[6..12]), (&c.0[..], &b.0[..]));
    assert_eq!(at(1)[12..], frame[12..]);
}

#[test]
fn arbitrary_frames_do_not_panic_and_keep_their_length() {
    let seed = testkit::seed("arbitrary_frames_do_not_panic_and_keep_their_length");
    let mut prng = Prng::new(seed);
    let rewriter = Rewriter::new(Rewrite { fix_checksums: true, ..all_changes(seed) });
    for round in 0..20_000u64 {
        let mut frame = testkit::random_frame(&mut prng);
        if frame.len() < 14 {
            continue;
        }
        for _ in 0..prng.below(4) {
            let at = prng.below(frame.len() as u64) as usize;
            frame[at] = prng.next_u64() as u8;
        }
        frame.truncate(14 + prng.below(frame.len() as u64 - 13) as usize);
        let position = Position { number: round, copy: 1, ..Position::default() };
        assert_eq!(rewritten(&rewriter, &frame, position).len(), frame.len(), "seed {seed}, round {round}");
    }
}

/// The number of packets and bytes of each flow, with both directions of a flow under one key.
fn flows(frames: &[Vec<u8>]) -> HashMap<FlowKey, (u64, u64)> {
    let mut flows = HashMap::new();
    for frame in frames {
        if let Some(key) = Decoded::of(frame, frame.len() as u32, link::ETHERNET).key(frame) {
            let flow: &mut (u64, u64) = flows.entry(key).or_default();
            *flow = (flow.0 + 1, flow.1 + frame.len() as u64);
        }
    }
    flows
}

#[test]
fn each_copy_of_a_real_capture_has_the_same_flows() {
    let Some(traces) = testkit::traces("each_copy_of_a_real_capture_has_the_same_flows") else { return };
    let frames: Vec<Vec<u8>> = testkit::captures::collect(&traces, 20_000)
        .into_iter()
        .map(|captured| captured.bytes)
        .filter(|frame| {
            // Flows inside tunnels keep their addresses, so packets with tunnels are excluded.
            frame.len() >= 14 && Decoded::of(frame, frame.len() as u32, link::ETHERNET).tunnel.is_none()
        })
        .collect();
    const COPIES: u32 = 7;
    let rewriter = Rewriter::new(Rewrite { copies: COPIES, ..Rewrite::default() });
    let sizes = |flows: &HashMap<FlowKey, (u64, u64)>| {
        let mut sizes: Vec<_> = flows.values().copied().collect();
        sizes.sort_unstable();
        sizes
    };
    let original = sizes(&flows(&frames));
    assert!(original.len() > 100, "{} flows", original.len());
    for copy in 0..COPIES {
        let at = Position { copy, ..Position::default() };
        let copied: Vec<Vec<u8>> = frames.iter().map(|frame| rewritten(&rewriter, frame, at)).collect();
        assert!(sizes(&flows(&copied)) == original, "the flows of copy {copy} differ from those of the capture");
    }
}
