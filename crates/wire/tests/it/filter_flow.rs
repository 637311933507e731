//! A flow matches exactly if one of its packets does: random filters, random conversations, and the frames they are made of.

use crate::common;

use base::Prng;
use netgrain_wire::build::Frame;
use netgrain_wire::filter::{FlowFilter, FlowTerms};
use netgrain_wire::{EtherType, Filter, Headers, IpProtocol, MacAddr, link};
use std::net::IpAddr;

fn filter(text: &str) -> Filter {
    Filter::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

#[test]
fn what_only_a_packet_can_answer_is_refused_by_name_with_what_to_do() {
    let refused = |text: &str| filter(text).of_flows().expect_err(text).to_string();
    for (text, named) in [
        ("less 64", "`less 64`"),
        ("tcp and not (port 80 or greater 1000)", "`greater 1000`"),
        ("len != 60", "`len != 60`"),
    ] {
        assert!(refused(text).starts_with(named) && refused(text).contains("netgrain packets"), "{}", refused(text));
    }
    for text in ["ether host 0:1:2:3:4:5", "ether dst 0:1:2:3:4:5", "ether src and dst 0:1:2:3:4:5"] {
        assert!(refused(text).ends_with("write `ether src host 00:01:02:03:04:05`"), "{}", refused(text));
    }
}

#[test]
fn directions_are_those_of_either_way_once_somebody_answered() {
    let mut flow = FlowTerms {
        src: [10, 0, 0, 1].into(),
        dst: [10, 0, 0, 2].into(),
        src_port: 4000,
        dst_port: 80,
        protocol: IpProtocol::TCP,
        vlans: [None; 2],
        macs: [Some(MacAddr([1; 6])), None],
        seen: [true, false],
    };
    let ask = |text: &str, flow: &FlowTerms| filter(text).of_flows().expect(text).matches(flow);
    for (text, unanswered, answered) in [
        ("", true, true),
        ("src 10.0.0.1", true, true),
        ("src 10.0.0.2", false, true),
        ("src 10.0.0.2 and src port 4000", false, false),
        ("not src 10.0.0.1", false, true),
        ("not host 10.0.0.1", false, false),
        ("arp or vlan or ip6", false, false),
        ("ether src host 1:1:1:1:1:1", true, true),
    ] {
        flow.seen[1] = false;
        assert_eq!(ask(text, &flow), unanswered, "{text}, unanswered");
        flow.seen[1] = true;
        assert_eq!(ask(text, &flow), answered, "{text}, answered");
    }
}

fn random_filter(prng: &mut Prng, depth: u64) -> String {
    let mut pick = |words: &[&str]| words[prng.below(words.len() as u64) as usize].to_owned();
    let direction = pick(&["", "", "src ", "dst ", "src and dst ", "src or dst "]);
    let test = match pick(&["0", "1", "2", "3", "4", "5", "6", "7"]).as_str() {
        "0" | "1" => format!("{direction}host {}", pick(&["10.0.0.1", "10.0.0.2", "10.0.1.1", "2001:db8::1"])),
        "2" => {
            format!(
                "{direction}net {}",
                pick(&["10.0.0.0/24", "0.0.0.0/0", "2001:db8::/32", "10.0.0.0 mask 255.0.255.0"])
            )
        }
        "3" => format!("{}{direction}port {}", pick(&["", "tcp ", "udp ", "sctp "]), pick(&["1", "2", "3"])),
        "4" => format!("{direction}portrange {}", pick(&["1-2", "2-70", "0-65535"])),
        "5" => pick(&[
            "ip",
            "ip6",
            "arp",
            "tcp",
            "udp",
            "icmp",
            "icmp6",
            "ip proto 17",
            "ip6 proto 6",
            "ether proto 0x8847",
        ]),
        "6" => pick(&["vlan", "vlan 5", "vlan 6", "arp host 10.0.0.1", "ip host 10.0.0.1", "arp net 10.0.0.0/8"]),
        _ => pick(&["ether src host 02:00:00:00:00:01", "ether src host 02:00:00:00:00:02"]),
    };
    match prng.below(6) {
        _ if depth == 0 => test,
        0 => format!("not ({})", random_filter(prng, depth - 1)),
        1..=3 => format!("({}) and ({})", random_filter(prng, depth - 1), random_filter(prng, depth - 1)),
        4 => format!("({}) or ({})", random_filter(prng, depth - 1), random_filter(prng, depth - 1)),
        _ => test,
    }
}

/// A conversation of few hosts and ports, so that filters have something to agree about.
fn random_flow(prng: &mut Prng) -> FlowTerms {
    let end = |prng: &mut Prng, v6: bool| -> IpAddr {
        match v6 {
            false => [10, 0, prng.below(2) as u8, 1 + prng.below(2) as u8].into(),
            true => [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1 + prng.below(2) as u16].into(),
        }
    };
    let v6 = prng.below(3) == 0;
    let (src, dst) = (end(prng, v6), end(prng, v6));
    let echo = if v6 { IpProtocol::ICMPV6 } else { IpProtocol::ICMP };
    let protocol = [IpProtocol::TCP, IpProtocol::UDP, echo][prng.below(3) as usize];
    let (src_port, dst_port) = match protocol.has_ports() {
        true => (1 + prng.below(3) as u16, 1 + prng.below(3) as u16),
        // Type and code of the first packet, which no word of the filter must take for a port.
        false => (0, if v6 { 128 << 8 } else { 8 << 8 }),
    };
    let tag = |prng: &mut Prng| 5 + prng.below(2) as u16;
    let vlans = match prng.below(4) {
        0 => [Some(tag(prng)), None],
        1 => [Some(tag(prng)), Some(tag(prng))],
        _ => [None; 2],
    };
    let seen = [[true, false], [false, true], [true, true]][prng.below(3) as usize];
    let macs = [0, 1].map(|_| Some(MacAddr([2, 0, 0, 0, 0, 1 + prng.below(2) as u8])));
    FlowTerms { src, dst, src_port, dst_port, protocol, vlans, macs, seen }
}

/// The packets of one way, of any lengths.
fn frame(flow: &FlowTerms, way: usize, prng: &mut Prng) -> Vec<u8> {
    let turn = way == 1;
    let (src, dst) = if turn { (flow.dst, flow.src) } else { (flow.src, flow.dst) };
    let (p, q) = if turn { (flow.dst_port, flow.src_port) } else { (flow.src_port, flow.dst_port) };
    let kind = |request: u8| request + u8::from(turn && request == 128);
    let mut frame = match (src, dst, flow.protocol) {
        (IpAddr::V4(a), IpAddr::V4(b), IpProtocol::TCP) => Frame::tcp4(a, p, b, q),
        (IpAddr::V4(a), IpAddr::V4(b), IpProtocol::UDP) => Frame::udp4(a, p, b, q),
        (IpAddr::V4(a), IpAddr::V4(b), _) => Frame::icmp4(a, b, if turn { 0 } else { 8 }, 0, [0; 4]),
        (IpAddr::V6(a), IpAddr::V6(b), IpProtocol::TCP) => Frame::tcp6(a, p, b, q),
        (IpAddr::V6(a), IpAddr::V6(b), IpProtocol::UDP) => Frame::udp6(a, p, b, q),
        (IpAddr::V6(a), IpAddr::V6(b), _) => Frame::icmp6(a, b, kind(128), 0, [0; 4]),
        mixed => panic!("of two families: {mixed:?}"),
    };
    for id in flow.vlans.into_iter().flatten() {
        frame = frame.tag(EtherType::VLAN, id);
    }
    frame = frame.macs(flow.macs[way].expect("given"), MacAddr([2, 0, 0, 0, 0, 9]));
    let body = vec![0; prng.below(100) as usize];
    let frame = frame.payload(&body);
    let mut bytes = vec![0; frame.header_len() + body.len()];
    frame.fill(&mut bytes);
    bytes
}

/// The conversation with everything changed that the filter says it does not look at.
fn as_looked_at(flow: &FlowTerms, filter: &FlowFilter, prng: &mut Prng) -> FlowTerms {
    let (looks, other) = (filter.looks(), random_flow(prng));
    let mut seen = *flow;
    if !looks.at_addresses {
        (seen.src, seen.dst) = (other.src, other.dst);
    }
    if !looks.at_ports {
        (seen.src_port, seen.dst_port) = (other.src_port, other.dst_port);
    }
    if !looks.at_protocol {
        seen.protocol = other.protocol;
    }
    if !looks.at_vlans {
        seen.vlans = other.vlans;
    }
    if !looks.at_macs {
        seen.macs = other.macs;
    }
    seen
}

#[test]
fn a_flow_matches_exactly_if_one_of_its_packets_does() {
    let seed = testkit::seed("a_flow_matches_exactly_if_one_of_its_packets_does");
    let mut prng = Prng::new(seed);
    let flows: Vec<(FlowTerms, Vec<Vec<u8>>)> = (0..400)
        .map(|_| {
            let flow = random_flow(&mut prng);
            let ways = (0..2).filter(|way| flow.seen[*way]);
            let frames = ways.flat_map(|way| [frame(&flow, way, &mut prng), frame(&flow, way, &mut prng)]).collect();
            (flow, frames)
        })
        .collect();
    let (mut matched, mut refused) = (0, 0);
    for round in 0..common::rounds(1500) {
        let text = random_filter(&mut prng, 3);
        let (of_packets, of_flows) = (filter(&text), filter(&text).of_flows().expect("only words of flows"));
        for (flow, frames) in &flows {
            let is = |frame: &Vec<u8>| {
                let wire_len = frame.len() as u32;
                of_packets.matches(frame, wire_len, &Headers::of(frame, wire_len, link::ETHERNET))
            };
            let expected = frames.iter().any(is);
            assert_eq!(of_flows.matches(flow), expected, "seed {seed}, round {round}: {text}\n{flow:?}");
            let seen = as_looked_at(flow, &of_flows, &mut prng);
            assert_eq!(of_flows.matches(&seen), expected, "seed {seed}, round {round}: {text}\n{flow:?} as {seen:?}");
            if expected { matched += 1 } else { refused += 1 }
        }
    }
    assert!(matched > 100_000 && refused > 100_000, "{matched} matched, {refused} refused");
}
