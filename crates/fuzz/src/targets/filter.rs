//! The target parses texts as filters on packets and on flow records. If the displayed text of a filter is parsed, the
//! result must be the same filter. The compiled program and the syntax tree of a filter must give the same result for a
//! frame. If a frame matches the filter, its index keys must fulfil the index condition of the filter.

use crate::Target;
use crate::targets::bytes::{text_of, texts};
use crate::targets::packet::{LINKS, frames};
use aggregate::terms;
use base::Prng;
use filter::{Filter, FlowFilter, FlowTerms, LinkFilter};
use index::{BlockKeys, Sets};
use std::sync::OnceLock;
use wire::Headers;

pub const PACKETS: Target = Target { name: "filter", run, seeds, rounds: 2500, memory: 16 << 20 };
pub const FLOWS: Target =
    Target { name: "flow_filter", run: run_flows, seeds: flow_seeds, rounds: 8000, memory: 16 << 20 };

/// A frame, its link type, its headers, and the index keys of the frame.
type Sample = (Vec<u8>, u16, Headers, Sets);

fn run(bytes: &[u8]) {
    let text = text_of(bytes);
    let Ok(filter) = Filter::parse(text) else { return };
    let shown = filter.to_string();
    assert_eq!(
        Filter::parse(&shown).as_ref().map(|again| (again.to_string(), again.need())),
        Ok((shown, filter.need()))
    );
    let by_link = LINKS.map(|link| LinkFilter::parse(text, link).ok());
    assert!(LINKS.iter().zip(&by_link).all(|(link, tree)| filter.fits(*link).is_ok() == tree.is_some()));
    let need = filter.need();
    for (frame, link_type, headers, sets) in samples() {
        let wire_len = frame.len() as u32;
        let tree = LINKS.iter().position(|link| link == link_type).and_then(|i| by_link[i].as_ref());
        let matches = filter.matches(frame, wire_len, headers);
        assert_eq!(matches, tree.is_some_and(|tree| tree.matches(frame, wire_len, headers, false)), "{frame:02x?}");
        assert!(!matches || sets.admit(&need), "the index excludes {frame:02x?} (link type {link_type})");
    }
}

fn samples() -> &'static [Sample] {
    static SAMPLES: OnceLock<Vec<Sample>> = OnceLock::new();
    SAMPLES.get_or_init(|| {
        let sample = |(i, frame): (usize, Vec<u8>)| {
            let (link_type, wire_len) =
                (LINKS[if i.is_multiple_of(3) { i % LINKS.len() } else { 0 }], frame.len() as u32);
            let mut keys = BlockKeys::default();
            keys.enter(0);
            keys.add(&frame, wire_len, link_type);
            let headers = Headers::of(&frame, wire_len, link_type);
            (frame, link_type, headers, keys.sets())
        };
        frames().into_iter().enumerate().map(sample).collect()
    })
}

fn seeds() -> Vec<Vec<u8>> {
    texts(&[
        "tcp port 80 and not (src host 10.0.0.1 or dst net 10.0.1.0/24)",
        "tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn and vlan 5",
        "ip[2:2] % 4 + 1 = 2 or ether[12:2] = 0x0800",
        "1 | len & 2 = 3 and greater 60",
        "ip6 protochain 17 or icmp6[0] = 128",
        "mpls 1000 and pppoes and udp portrange 1-1024",
        "ether host 02:00:00:00:00:01 or ether proto 0x8847",
        "anylink (port 53 or 5353) and inbound",
        "net 10.0.0.0 mask 255.0.255.0 or host 2001:db8::1",
        "sctp dst port 1 or 2 or arp net 10.0.0.0/8 && ip proto \\tcp",
    ])
}

/// Checks filters on flow records. `not` must invert every filter.
fn run_flows(bytes: &[u8]) {
    let text = text_of(bytes);
    let Ok(filter) = FlowFilter::parse(text) else { return };
    let again = FlowFilter::parse(&filter.to_string())
        .unwrap_or_else(|e| panic!("{text:?} is displayed as {filter}, which is invalid: {e}"));
    assert_eq!((again.required_fields(), again.need()), (filter.required_fields(), filter.need()));
    let inverse = if filter.is_empty() { None } else { FlowFilter::parse(&format!("not ({filter})")).ok() };
    for flow in flows() {
        let matches = filter.matches(flow);
        assert_eq!(again.matches(flow), matches, "{flow:?}");
        assert!(inverse.as_ref().is_none_or(|inverse| inverse.matches(flow) != matches), "{flow:?}");
    }
}

fn flows() -> &'static [FlowTerms] {
    static FLOWS: OnceLock<Vec<FlowTerms>> = OnceLock::new();
    FLOWS.get_or_init(|| {
        let mut prng = Prng::new(5);
        (0..16).map(|_| terms(&flow::sample::any_record(&mut prng))).collect()
    })
}

fn flow_seeds() -> Vec<Vec<u8>> {
    texts(&[
        "tcp dst port 443 and bytes > 1M and duration > 10s and not flags any R",
        "src net 10.0.0.0/8 or dst host 2001:db8::1 and packets <= 4",
        "state established or end idle_timeout and rtt < 20ms",
        "vlan 5 and mpls 16 and not udp portrange 1-1024",
        "flags S and not flags A or icmp and pps > 1k",
        "ether src 02:00:00:00:00:01 and in bytes = 60",
    ])
}
