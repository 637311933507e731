//! Compares filters with tcpdump on every supported link type. The frames are generated Ethernet frames whose link
//! header is replaced, and frames of capture files with that link type, if such files are present.

use crate::common;

use base::Prng;
use common::agree::{Values, agree, chosen, truncate_some};
use common::traffic::{self, as_of};
use common::{Packet, collect, collect_of};
use netgrain_filter::{Filter, LinkFilter};
use std::path::Path;
use wire::build::Frame;
use wire::{Headers, link};

/// Maximum number of frames of one capture file.
const MAX_FRAMES: usize = 100;

fn packets_of(link_type: u16, ethernet: &[Packet], traces: Option<&Path>) -> Vec<Packet> {
    let converted = ethernet.iter().enumerate().filter_map(|(i, p)| {
        let bytes = as_of(link_type, &p.bytes, i as u64)?;
        Some(Packet { wire_len: p.wire_len - p.bytes.len() as u32 + bytes.len() as u32, bytes })
    });
    let real = traces.map_or(Vec::new(), |traces| collect_of(traces, link_type, MAX_FRAMES));
    converted.chain(real).filter(|p| !p.bytes.is_empty()).collect()
}

/// Filters for all link types.
const COMMON_FILTERS: &[&str] = &[
    "ip",
    "ip6",
    "arp",
    "tcp port 80",
    "udp or icmp6",
    "not ip",
    "port 53 or 443",
    "host 10.0.0.1 or net 192.168.0.0/16",
    "host ff02::1",
    "ip multicast or ip6 multicast",
    "ether proto \\ip",
    "link proto 0x86dd",
    "ether proto 0x88cc",
    "ether proto 0x42 or stp",
    "ipx or atalk or aarp or netbeui or iso",
    "isis or esis or clnp",
    "isis proto 18",
    "iih or lsp",
    "decnet host 1.1",
    "lat",
    "ether[0] & 1 = 0",
    "link[0:4] > 0x08000000",
    "ip[8] < 64",
    "tcp[13] & 2 != 0",
    "ip6[6] = 58",
    "icmp6[0] = 135",
    "ip[2:2] = len",
    "pppoed",
    "pppoes and ip",
    "pppoes and ip6 and icmp6",
    "geneve and ip",
    "ip proto 47 or ip6 proto 58",
    "arp host 192.168.1.1",
    "rarp or moprc",
    // Primitives that only some link types support.
    "vlan",
    "vlan and ip",
    "mpls",
    "llc",
    "ether host 0:0:0:0:0:0",
    "broadcast",
    "ether multicast",
    "ifindex 3",
    "pppoes and vlan",
    "geneve and ether host 1:2:3:4:5:6",
];

#[test]
fn filters_agree_with_tcpdump_on_each_link_type() {
    let name = "filters_agree_with_tcpdump_on_each_link_type";
    if testkit::tool(name, "tcpdump").is_none() {
        return;
    }
    let traces = testkit::extra_traces(name);
    let seed = testkit::seed(name);
    let mut prng = Prng::new(seed);
    let mut ethernet = traces.as_deref().map_or(Vec::new(), |traces| collect(traces, MAX_FRAMES));
    ethernet.extend(traffic::ethernet());
    truncate_some(&mut ethernet, &mut prng);
    for link_type in
        [link::RAW_IP, link::RAW_IPV4, link::RAW_IPV6, link::NULL, link::LOOP, link::LINUX_SLL, link::LINUX_SLL2]
    {
        let packets = packets_of(link_type, &ethernet, traces.as_deref());
        assert!(packets.len() > 100, "only {} packets of link type {link_type}", packets.len());
        let values = Values::of(&packets, link_type);
        let sent = ["inbound", "outbound and tcp"].iter().filter(|_| link_type == 113 || link_type == 276);
        let fixed: Vec<_> = COMMON_FILTERS.iter().chain(sent).map(|f| ((*f).to_owned(), false)).collect();
        let random: Vec<_> = (0..60).map(|_| (values.filter(&mut prng, 2), false)).collect();
        let sums = agree(seed, &packets, link_type, fixed.into_iter().chain(random), |_| false);
        assert!(sums.selective > 20 && sums.refused > 2, "link type {link_type}: {sums:?}");
        eprintln!("link type {link_type}: {} packets; {sums:?}", packets.len());
    }
}

#[test]
fn the_capture_source_supplies_the_direction_of_ethernet_frames() {
    let frame = Frame::tcp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 80);
    let mut bytes = [0; 60];
    let bytes = frame.fill(&mut bytes);
    let (outbound, inbound) = (Filter::parse("outbound and tcp").unwrap(), Filter::parse("inbound").unwrap());
    for outgoing in [false, true] {
        let matches =
            |filter: &Filter| filter.matches_direction(bytes, 60, &Headers::of(bytes, 60, link::ETHERNET), outgoing);
        assert_eq!((matches(&outbound), matches(&inbound)), (outgoing, !outgoing));
    }
}

#[test]
fn null_headers_of_both_byte_orders_match() {
    let filter = Filter::parse("ip").unwrap();
    let packets = [[2, 0, 0, 0], [0, 0, 0, 2], [24, 0, 0, 0]].map(|b| Packet { bytes: b.to_vec(), wire_len: 4 });
    assert_eq!(chosen(&filter, &packets, link::NULL), [0, 1]);
}

#[test]
fn a_filter_invalid_for_a_link_type_matches_no_frame() {
    for (text, link_type, message) in [
        ("vlan 5", link::LINUX_SLL, "VLAN tags are not supported"),
        ("not vlan 5", link::RAW_IP, "VLAN tags are not supported"),
        ("ether host 1:2:3:4:5:6", link::RAW_IP, "link addresses are not supported"),
        ("inbound", link::NULL, "do not contain their direction"),
        ("tcp", 147, "of this link type are not decoded"),
    ] {
        let error = LinkFilter::parse(text, link_type).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
        let filter = Filter::parse(text).unwrap();
        assert!(filter.fits(link_type).is_err());
        assert!(!filter.matches(&[0; 60], 60, &Headers::of(&[0; 60], 60, link_type)), "{text}");
    }
    let long = Filter::parse("len > 50 and link[3] = 0").unwrap();
    assert!(long.matches(&[0; 60], 60, &Headers::of(&[0; 60], 60, 147)));
}
