//! The target decodes frames of any link type. Every offset that the decoders find must be inside of the frame, and the
//! compiled program and the syntax tree of a filter must give the same result.
//!
//! ```text
//! index of the link type | (wire length - captured length) / 16 | captured bytes of the frame
//! ```

use crate::Target;
use base::Prng;
use filter::{Filter, LinkFilter};
use ir::Facts;
use std::sync::OnceLock;
use wire::build::{Frame, tunnel};
use wire::{DecodeError, Decoded, EtherType, Family, Headers, MAX_TUNNELS, link, numbered_tunnels};

pub const TARGET: Target = Target { name: "packet", run, seeds, rounds: 12_000, memory: 1 << 20 };

pub const LINKS: [u16; 7] =
    [link::ETHERNET, link::RAW_IP, link::RAW_IPV4, link::RAW_IPV6, link::LINUX_SLL, link::LINUX_SLL2, 147];

/// Filters that read fields of every layer.
const FILTERS: [&str; 6] = [
    "tcp[tcpflags] & tcp-syn != 0 or udp[4:2] > 8",
    "ip6 protochain 17 or ip[6:2] & 0x1fff = 0",
    "vlan and mpls and tcp port 80",
    "pppoes and ip or geneve",
    "anylink (tcp port 1 or udp port 2) and not len > 60",
    "host 10.0.0.1 or net 2001:db8::/32 or ether multicast",
];

fn run(bytes: &[u8]) {
    let Some((&[number, cut], frame)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    let link_type = LINKS[usize::from(number) % LINKS.len()];
    let wire_len = frame.len() as u32 + 16 * u32::from(cut);
    check_decoded(frame, wire_len, link_type);
    let headers = Headers::of(frame, wire_len, link_type);
    Facts::of(frame, wire_len, link_type);
    for (filter, by_link) in filters() {
        let by_link = by_link.iter().find(|(link, _)| *link == link_type).and_then(|(_, filter)| filter.as_ref());
        let expected = by_link.is_some_and(|filter| filter.matches(frame, wire_len, &headers, false));
        assert_eq!(filter.matches(frame, wire_len, &headers), expected, "result of {filter} on link type {link_type}");
    }
}

fn check_decoded(frame: &[u8], wire_len: u32, link_type: u16) {
    let d = Decoded::of(frame, wire_len, link_type);
    let inside = |at: u16| at == 0 || usize::from(at) < frame.len();
    assert!(inside(d.l3) && inside(d.l4) && inside(d.payload) && inside(d.l2.unwrap_or(0)), "{d:?}");
    assert!(usize::from(d.l3) + [0, 20, 40][d.family as usize] <= frame.len(), "{d:?}");
    let end = u64::from(d.l3) + u64::from(d.ip_len);
    assert!(d.family == Family::Other || end <= u64::from(wire_len) && d.payload_len <= d.ip_len, "{d:?}");
    assert!(d.l4 == 0 || d.l4 > d.l3 && u64::from(d.l4) <= end, "{d:?}");
    assert!(d.payload == 0 || u64::from(d.payload) + u64::from(d.payload_len) <= end, "{d:?}");
    assert!(d.depth <= MAX_TUNNELS && (d.depth > 0) == d.tunnel.is_some(), "{d:?}");
    assert_eq!(d.malformed, d.error.is_some_and(DecodeError::is_malformed), "{d:?}");
    assert_eq!(d.is_common_case, d.is_common_case(), "{d:?}");
    assert_eq!(d.key(frame).is_some(), d.family != Family::Other, "{d:?}");
    let numbers: Vec<_> = numbered_tunnels(frame, wire_len, link_type).collect();
    assert!(d.may_have_sequence() || numbers.is_empty(), "{d:?}");
    Decoded::with_fragments(frame, wire_len, link_type);
}

type Compiled = (Filter, Vec<(u16, Option<LinkFilter>)>);

/// Each filter twice: compiled for all link types, and as a syntax tree for each link type.
fn filters() -> &'static [Compiled] {
    static COMPILED: OnceLock<Vec<Compiled>> = OnceLock::new();
    COMPILED.get_or_init(|| {
        let compiled = |text: &str| {
            let by_link = LINKS.map(|link| (link, LinkFilter::parse(text, link).ok())).to_vec();
            (Filter::parse(text).unwrap_or_else(|e| panic!("{text}: {e}")), by_link)
        };
        FILTERS.iter().map(|text| compiled(text)).collect()
    })
}

/// Random frames, tunnels, fragments and extension headers.
pub fn frames() -> Vec<Vec<u8>> {
    let mut prng = Prng::new(3);
    let mut frames: Vec<Vec<u8>> = (0..16).map(|_| testkit::random_frame(&mut prng)).collect();
    let mut add_frame = |frame: Frame<'_>| {
        let mut buffer = [0; 400];
        frames.push(frame.write(&mut buffer).expect("it fits").to_vec());
    };
    let mut inner = [0; 60];
    Frame::tcp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 80).fill(&mut inner);
    let (packet, v4) = (&inner[14..], EtherType::IPV4);
    add_frame(Frame::udp4([1, 2, 3, 4], 9, [5, 6, 7, 8], 4789).payload(&[&tunnel::vxlan(7)[..], &inner].concat()));
    add_frame(
        Frame::udp4([1, 2, 3, 4], 9, [5, 6, 7, 8], 6081)
            .payload(&[tunnel::geneve(v4, 7, &[0; 8]), packet.to_vec()].concat()),
    );
    let gtp = tunnel::gtp_u(7, Some(1), &[(0x85, &[0, 0])], packet.len());
    add_frame(Frame::udp6([1; 8], 9, [2; 8], 2152).payload(&[gtp, packet.to_vec()].concat()));
    let gre = tunnel::gre(v4, None, Some(7), Some(8));
    add_frame(Frame::ip4([1, 2, 3, 4], [5, 6, 7, 8], wire::IpProtocol::GRE).payload(&[gre, packet.to_vec()].concat()));
    let erspan =
        [tunnel::gre(EtherType::ERSPAN, None, None, Some(3)), tunnel::erspan2(5).to_vec(), inner.to_vec()].concat();
    add_frame(Frame::ip4([1, 2, 3, 4], [5, 6, 7, 8], wire::IpProtocol::GRE).payload(&erspan));
    add_frame(Frame::udp4([1, 2, 3, 4], 9, [5, 6, 7, 8], 53).fragment(7, 8, true));
    add_frame(Frame::tcp6([1; 8], 9, [2; 8], 80).extensions(&[(wire::IpProtocol::ROUTING, &[0; 14][..])]));
    frames
}

fn seeds() -> Vec<Vec<u8>> {
    let link = |i: usize| [if i.is_multiple_of(4) { (i % LINKS.len()) as u8 } else { 0 }, 0];
    frames().into_iter().enumerate().map(|(i, frame)| [&link(i)[..], &frame].concat()).collect()
}
