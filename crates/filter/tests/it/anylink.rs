//! Tests that filters with `anylink` match a frame with added VLAN tags, MPLS labels or extension headers exactly if
//! they match the frame without these additions.

use crate::common::agree::chosen;
use crate::common::{Packet, traffic};
use netgrain_filter::Filter;
use wire::build::Frame;
use wire::{EtherType, Headers, IpProtocol, link};

const FILTERS: [&str; 12] = [
    "tcp",
    "udp port 53",
    "tcp dst port 80",
    "port 80 or 443",
    "host 10.0.0.1",
    "src net 10.0.0.0/24",
    "ip6 and tcp",
    "net 2001:db8::/32",
    "icmp[icmptype] = icmp-echo",
    "tcp[tcpflags] & tcp-syn != 0",
    "ip[8] = 64",
    "ip and udp[0:2] = 53",
];

fn frames(wrap: impl Fn(Frame<'static>) -> Frame<'static>) -> Vec<Packet> {
    let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let (a6, b6) = ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2]);
    let plain = [
        Frame::tcp4(a, 4000, b, 80).tcp(2, 0, 0),
        Frame::udp4(a, 53, b, 53),
        Frame::tcp6(a6, 4000, b6, 443),
        Frame::udp6(a6, 53, b6, 4000),
        Frame::icmp4(a, b, 8, 0, [0; 4]),
        Frame::ip4(b, a, IpProtocol(47)).payload(&[0; 20]),
    ];
    plain
        .into_iter()
        .map(|frame| {
            let mut bytes = [0; 200];
            let bytes = wrap(frame).write(&mut bytes).expect("room").to_vec();
            Packet { wire_len: bytes.len() as u32, bytes }
        })
        .collect()
}

#[test]
fn anylink_matches_below_tags_and_labels_as_in_untagged_frames() {
    let plain = frames(|f| f);
    let wrapped = [
        frames(|f| f.tag(EtherType::VLAN, 5)),
        frames(|f| f.tag(EtherType::QINQ, 5).tag(EtherType::VLAN, 6)),
        frames(|f| f.label(16)),
        frames(|f| f.tag(EtherType::VLAN, 5).label(100).label(200)),
    ];
    for text in FILTERS {
        let (own, any) = (Filter::parse(text).unwrap(), Filter::parse(&format!("anylink ({text})")).unwrap());
        let found = chosen(&own, &plain, link::ETHERNET);
        assert!(!found.is_empty() && found.len() < plain.len(), "{text} matches no frame or all frames");
        for wrapped in &wrapped {
            assert_eq!(chosen(&any, wrapped, link::ETHERNET), found, "{text}");
            if !text.contains("net 2001") {
                assert_eq!(chosen(&own, wrapped, link::ETHERNET), [0; 0], "{text} without `anylink`");
            }
        }
    }
}

#[test]
fn anylink_applies_to_one_term_and_to_values_that_repeat_its_qualifiers() {
    let tagged = frames(|f| f.tag(EtherType::VLAN, 5));
    for (text, found) in [
        ("anylink tcp port 443 or 80", &[0, 2][..]),
        ("anylink tcp or udp", &[0, 2]),
        ("anylink (tcp or udp)", &[0, 1, 2, 3]),
        ("not anylink tcp", &[1, 3, 4, 5]),
        ("anylink not tcp", &[1, 3, 4, 5]),
        ("anylink vlan 5 and anylink tcp", &[0, 2]),
        ("vlan 5 and tcp", &[0, 2]),
        ("anylink vlan 6", &[]),
        ("anylink proto 47", &[5]),
    ] {
        assert_eq!(chosen(&Filter::parse(text).unwrap(), &tagged, link::ETHERNET), found, "{text}");
    }
    let double = frames(|f| f.tag(EtherType::QINQ, 5).tag(EtherType::VLAN, 6));
    for text in ["anylink vlan 5", "anylink vlan 6", "anylink vlan"] {
        assert_eq!(chosen(&Filter::parse(text).unwrap(), &double, link::ETHERNET).len(), double.len(), "{text}");
    }
}

#[test]
fn anylink_protocols_agree_with_the_header_parser() {
    let packets = traffic::ethernet();
    for (number, word) in [(6, "tcp"), (17, "udp"), (132, "sctp"), (58, "proto 58"), (50, "esp")] {
        let filter = Filter::parse(&format!("anylink {word}")).unwrap();
        for (i, p) in packets.iter().enumerate() {
            let headers = Headers::of(&p.bytes, p.wire_len, link::ETHERNET);
            let is = headers.protocol() == Some(IpProtocol(number));
            assert_eq!(filter.matches(&p.bytes, p.wire_len, &headers), is, "{word}: packet {i}");
        }
    }
}
