//! Tests of filters on flow records. For a flow record, a primitive of packet filters must have the same result as for
//! the packets that the initiator of the flow sent, with and without encapsulation. Other primitives test the counters
//! of the flow record.

use base::Prng;
use netgrain_filter::{Filter, FlowFilter, FlowTerms, KeyCondition};
use std::net::IpAddr;
use wire::build::Frame;
use wire::{EtherType, Headers, IpProtocol, MacAddr, link};

fn filter(text: &str) -> FlowFilter {
    FlowFilter::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// A flow record of a web download of 10 s, in a VLAN.
fn download() -> FlowTerms {
    FlowTerms {
        src: [10, 0, 0, 1].into(),
        dst: [10, 0, 0, 2].into(),
        src_port: 4000,
        dst_port: 80,
        protocol: IpProtocol::TCP,
        vlans: [Some(5), None],
        mpls: Some(16),
        macs: [Some(MacAddr([1; 6])), None],
        packets: [10, 900],
        bytes: [1000, 1_249_000],
        duration: 10_000_000_000,
        flags: [0x1a, 0x12],
        state: 4,
        end: 1,
        rtt: Some(20_000_000),
    }
}

#[test]
fn packet_primitives_are_rejected_with_advice() {
    for (text, word, message) in [
        ("less 64", "`less`", "`bytes` or `packets`"),
        ("tcp and not (port 80 or greater 1000)", "`greater`", "netgrain packets"),
        ("len != 60", "`len != 60`", "netgrain packets"),
        ("tcp[tcpflags] & tcp-syn != 0", "`tcp[tcpflags] & tcp-syn != 0`", "`flags S`"),
        ("ip[8] < 5", "`ip[8] < 5`", "netgrain packets"),
        ("arp or tcp", "`arp`", "only IP"),
        ("arp host 10.0.0.1", "`10.0.0.1`", "only IP"),
        ("stp", "`stp`", "only IP"),
        ("geneve", "`geneve`", "netgrain packets"),
        ("broadcast", "`broadcast`", "netgrain packets"),
        ("protochain 6", "`6`", "write `proto 6`"),
    ] {
        let error = FlowFilter::parse(text).expect_err(text).to_string();
        assert!(error.starts_with(word) && error.contains(message), "{text}: {error}");
    }
}

#[test]
fn src_is_the_initiator_and_record_primitives_test_counters() {
    for (text, is) in [
        ("", true),
        ("src 10.0.0.1", true),
        ("src host 10.0.0.1 and dst port 80", true),
        ("src 10.0.0.2", false),
        ("not src host 10.0.0.1", false),
        ("not src host 10.0.0.2", true),
        ("host 10.0.0.2", true),
        ("src port 80", false),
        ("anylink tcp port 80", true),
        ("vlan 5 and tcp and mpls 16", true),
        ("vlan 6 or mpls 17", false),
        ("ether src host 1:1:1:1:1:1", true),
        ("ether dst host 1:1:1:1:1:1", false),
        ("bytes > 1M", true),
        ("bytes = 1250k", true),
        ("bytes > 1.25M", false),
        ("src bytes >= 1k and src bytes <= 1k", true),
        ("dst bytes < 1249000", false),
        ("packets >= 3", true),
        ("packets = 910", true),
        ("dst packets > src", false),
        ("src packets = 10 and dst packets = 900", true),
        ("duration > 9.9s and duration <= 10s", true),
        ("duration > 1m", false),
        ("bps = 1M", true),
        ("bps > 1M", false),
        ("dst bps > 900k and src bps = 800", true),
        ("pps = 91", true),
        ("src pps < 2", true),
        ("bpp = 1373", true),
        ("src bpp < 101 and dst bpp > 1k", true),
        ("src bpp > 100", false),
        ("rtt > 19ms and rtt < 21ms", true),
        ("rtt > 1s", false),
        ("flags S", true),
        ("flags SA and src flags SPA", true),
        ("flags SF", false),
        ("flags any SF", true),
        ("flags all SA", true),
        ("not flags any FR", true),
        ("dst flags P", false),
        ("state established", true),
        ("not state syn-sent and not state syn_sent and end idle-timeout", true),
        ("state reset or end active_timeout", false),
        ("not state reset and end idle_timeout", true),
        ("tcp and (bytes > 1M or packets < 3) and not port 443", true),
    ] {
        match FlowFilter::parse(text) {
            Ok(filter) => assert_eq!(filter.matches(&download()), is, "{text}"),
            Err(e) => assert_eq!(text, "dst packets > src", "{e}"),
        }
    }
}

#[test]
fn a_record_without_rate_or_round_trip_time_fails_every_comparison() {
    let single = FlowTerms { duration: 0, rtt: None, ..download() };
    for text in ["bps >= 0", "pps < 1G", "rtt >= 0", "rtt < 1h"] {
        assert!(!filter(text).matches(&single) && filter(text).matches(&download()), "{text}");
    }
}

#[test]
fn key_conditions_of_flow_filters_name_hosts_ports_and_protocols() {
    let host = KeyCondition::Host([10, 0, 0, 1].into());
    assert_eq!(filter("src host 10.0.0.1 and bytes > 1M").need(), host);
    assert_eq!(filter("not src host 10.0.0.1").need(), KeyCondition::Anything);
    assert_eq!(
        filter("udp port 53").need(),
        KeyCondition::All(vec![KeyCondition::Ports(53, 53), KeyCondition::Protocol(17)])
    );
    assert_eq!(filter("vlan 5 and mpls and host 10.0.0.1").need(), host);
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
        "5" => pick(&["ip", "ip6", "tcp", "udp", "icmp", "icmp6", "ip proto 17", "ip6 proto 6", "ether proto 0x86dd"]),
        "6" => pick(&["vlan", "vlan 5", "vlan 6", "ip host 10.0.0.1"]),
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

/// Generates a flow. There are only few hosts and ports, so that filters match often.
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
        // ICMP type and code of the first packet are stored in the port fields; no primitive may interpret them as a
        // port.
        false => (0, if v6 { 128 << 8 } else { 8 << 8 }),
    };
    let tag = |prng: &mut Prng| 5 + prng.below(2) as u16;
    let vlans = match prng.below(4) {
        0 => [Some(tag(prng)), None],
        1 => [Some(tag(prng)), Some(tag(prng))],
        _ => [None; 2],
    };
    let macs = [0, 1].map(|_| Some(MacAddr([2, 0, 0, 0, 0, 1 + prng.below(2) as u8])));
    FlowTerms { src, dst, src_port, dst_port, protocol, vlans, macs, ..download() }
}

/// A packet that the initiator of the flow sent, with a random payload length.
fn frame(flow: &FlowTerms, prng: &mut Prng) -> Vec<u8> {
    let (p, q) = (flow.src_port, flow.dst_port);
    let mut frame = match (flow.src, flow.dst, flow.protocol) {
        (IpAddr::V4(a), IpAddr::V4(b), IpProtocol::TCP) => Frame::tcp4(a, p, b, q),
        (IpAddr::V4(a), IpAddr::V4(b), IpProtocol::UDP) => Frame::udp4(a, p, b, q),
        (IpAddr::V4(a), IpAddr::V4(b), _) => Frame::icmp4(a, b, 8, 0, [0; 4]),
        (IpAddr::V6(a), IpAddr::V6(b), IpProtocol::TCP) => Frame::tcp6(a, p, b, q),
        (IpAddr::V6(a), IpAddr::V6(b), IpProtocol::UDP) => Frame::udp6(a, p, b, q),
        (IpAddr::V6(a), IpAddr::V6(b), _) => Frame::icmp6(a, b, 128, 0, [0; 4]),
        mixed => panic!("addresses of two families: {mixed:?}"),
    };
    for id in flow.vlans.into_iter().flatten() {
        frame = frame.tag(EtherType::VLAN, id);
    }
    frame = frame.macs(flow.macs[0].expect("given"), flow.macs[1].expect("given"));
    let body = vec![0; prng.below(100) as usize];
    let frame = frame.payload(&body);
    let mut bytes = vec![0; frame.header_len() + body.len()];
    frame.fill(&mut bytes);
    bytes
}

/// Returns a copy of the flow in which all fields that the filter does not require have other values.
fn with_required_fields(flow: &FlowTerms, filter: &FlowFilter, prng: &mut Prng) -> FlowTerms {
    let (required, other) = (filter.required_fields(), random_flow(prng));
    let mut changed = FlowTerms { bytes: [7; 2], packets: [7; 2], ..*flow };
    if !required.needs_addresses {
        (changed.src, changed.dst) = (other.src, other.dst);
    }
    if !required.needs_ports {
        (changed.src_port, changed.dst_port) = (other.src_port, other.dst_port);
    }
    if !required.needs_protocol {
        changed.protocol = other.protocol;
    }
    if !required.needs_tags {
        changed.vlans = other.vlans;
    }
    if !required.needs_macs {
        changed.macs = other.macs;
    }
    changed
}

#[test]
fn a_flow_matches_exactly_if_its_initiators_packets_match() {
    let seed = testkit::seed("a_flow_matches_exactly_if_its_initiators_packets_match");
    let mut prng = Prng::new(seed);
    let flows: Vec<(FlowTerms, Vec<u8>)> = (0..400)
        .map(|_| {
            let flow = random_flow(&mut prng);
            (flow, frame(&flow, &mut prng))
        })
        .collect();
    let (mut matched, mut refused) = (0, 0);
    for round in 0..600 {
        let text = random_filter(&mut prng, 3);
        let of_packets = Filter::parse(&format!("anylink ({text})")).unwrap_or_else(|e| panic!("{text}: {e}"));
        let of_flows = filter(&text);
        for (flow, frame) in &flows {
            let wire_len = frame.len() as u32;
            let expected = of_packets.matches(frame, wire_len, &Headers::of(frame, wire_len, link::ETHERNET));
            assert_eq!(of_flows.matches(flow), expected, "seed {seed}, round {round}: {text}\n{flow:?}");
            let changed = with_required_fields(flow, &of_flows, &mut prng);
            assert_eq!(
                of_flows.matches(&changed),
                expected,
                "seed {seed}, round {round}: {text}\n{flow:?} as {changed:?}"
            );
            if expected { matched += 1 } else { refused += 1 }
        }
    }
    assert!(matched > 10_000 && refused > 10_000, "{matched} matched, {refused} refused");
}

#[test]
fn sums_of_both_directions_saturate() {
    let large = FlowTerms { packets: [1 << 63; 2], bytes: [u64::MAX, 2], ..download() };
    for text in ["bytes > 1M", "packets > 1k", "bps > 1M", "pps > 1k"] {
        assert!(filter(text).matches(&large), "{text}");
    }
}
