//! `Fragments`: what later fragments inherit, what they do not, and that its memory has a bound; and what is in the
//! first ones of tunnels.

use crate::captures;
use crate::common;

use base::{Prng, Timestamp};
use common::{built, decoded};
use netgrain_wire::build::{Frame, tunnel};
use netgrain_wire::fragments::{FragmentCounts, Fragments, TIMEOUT};
use netgrain_wire::{DecodeError, Decoded, Fragment, FragmentKey, IpProtocol, Port, link};
use std::collections::HashMap;
use std::time::Duration;

const START: Timestamp = Timestamp::from_secs_nanos(1_700_000_000, 0);

/// One part of a UDP datagram.
fn part(src: u32, id: u16, offset: u16, more: bool) -> Vec<u8> {
    let whole = built(Frame::udp4(src, 1000 + id, 2, 53).payload(&[7; 40]));
    let from = 34 + usize::from(offset);
    built(Frame::ip4(src, 2, IpProtocol::UDP).fragment(id, offset, more).payload(&whole[from..]))
}

fn part6(id: u32, offset: u16, more: bool) -> Vec<u8> {
    let whole = built(Frame::udp6([1; 8], 1000, [2; 8], 53).payload(&[7; 40]));
    let [a, b] = (offset | u16::from(more)).to_be_bytes();
    let [i, j, k, l] = id.to_be_bytes();
    let body = [a, b, i, j, k, l];
    let extensions: [(IpProtocol, &[u8]); 2] = [(IpProtocol::DEST_OPTIONS, &[0; 6]), (IpProtocol::FRAGMENT, &body)];
    let payload = &whole[54 + usize::from(offset)..];
    built(Frame::ip6([1; 8], [2; 8], IpProtocol::UDP).extensions(&extensions).payload(payload))
}

fn resolved(fragments: &mut Fragments, frame: &[u8], now: Timestamp) -> Decoded {
    let mut d = decoded(frame);
    fragments.resolve(&mut d, frame, now);
    d
}

fn ports(fragments: &mut Fragments, frame: &[u8], now: Timestamp) -> (u16, u16) {
    let d = resolved(fragments, frame, now);
    (d.src_port.0, d.dst_port.0)
}

#[test]
fn a_later_fragment_before_the_first_has_addresses_only() {
    let mut fragments = Fragments::new(1);
    let d = resolved(&mut fragments, &part(1, 9, 16, false), START);
    assert_eq!((d.src_port, d.dst_port, d.error), (Port(0), Port(0), Some(DecodeError::FragmentOrphan)));
    assert_eq!((d.protocol, d.l4), (IpProtocol::UDP, 0));
    assert_eq!(fragments.counts(), FragmentCounts { orphaned: 1, ..FragmentCounts::default() });
}

#[test]
fn later_fragments_inherit_from_the_first_in_any_order() {
    let mut fragments = Fragments::new(1);
    for frame in [part(1, 9, 0, true), part(1, 9, 32, false), part(1, 9, 16, true)] {
        let d = resolved(&mut fragments, &frame, START);
        assert_eq!((d.src_port, d.dst_port, d.error), (Port(1009), Port(53), None));
    }
    for frame in [part6(7, 0, true), part6(7, 16, false)] {
        assert_eq!(ports(&mut fragments, &frame, START), (1000, 53), "IPv6, behind another extension");
    }
    assert_eq!(fragments.counts(), FragmentCounts { first: 2, resolved: 3, orphaned: 0, evicted: 0 });
    let whole = built(Frame::udp4(1, 5, 2, 6));
    assert_eq!(ports(&mut fragments, &whole, START), (5, 6), "what is whole stays as it is");
}

#[test]
fn each_part_of_the_key_tells_datagrams_apart() {
    let mut fragments = Fragments::new(1);
    let first = part(1, 9, 0, true);
    ports(&mut fragments, &first, START);
    let inherits = |fragments: &mut Fragments, frame: &[u8]| ports(fragments, frame, START) != (0, 0);
    let later = part(1, 9, 16, false);
    assert!(inherits(&mut fragments, &later));
    for (what, at, value) in
        [("source", 29, 9), ("destination", 33, 9), ("identification", 19, 8), ("protocol", 23, IpProtocol::TCP.0)]
    {
        let mut other = later.clone();
        other[at] = value;
        assert!(!inherits(&mut fragments, &other), "{what}");
    }
    let inside =
        |vni, frame: &[u8]| built(Frame::udp4(5, 1, 6, 4789).payload(&[&tunnel::vxlan(vni)[..], frame].concat()));
    assert!(!inherits(&mut fragments, &inside(1, &later)), "in a tunnel");
    assert!(inherits(&mut fragments, &inside(1, &first)));
    assert!(inherits(&mut fragments, &inside(1, &later)));
    assert!(!inherits(&mut fragments, &inside(2, &later)), "in another tunnel");
    assert!(!inherits(&mut fragments, &part6(9, 16, false)), "of the other family");
}

#[test]
fn a_datagram_is_forgotten_by_packet_time_whichever_way_it_goes() {
    let nano = Duration::from_nanos(1);
    for (what, now, known) in [
        ("at the timeout", START.after(TIMEOUT), true),
        ("behind it", START.after(TIMEOUT + nano), false),
        ("a step back", START.before(TIMEOUT), true),
        ("a larger step back", START.before(TIMEOUT + nano), false),
        ("years later", Timestamp::MAX, false),
        ("years before", Timestamp::ZERO, false),
    ] {
        let mut fragments = Fragments::new(1);
        ports(&mut fragments, &part(1, 9, 0, true), START);
        let expected = if known { (1009, 53) } else { (0, 0) };
        assert_eq!(ports(&mut fragments, &part(1, 9, 16, false), now), expected, "{what}");
    }
}

#[test]
fn a_first_fragment_that_is_shorter_than_its_header_still_has_the_ports() {
    let whole = built(Frame::tcp4(1, 1234, 2, 80).payload(&[0; 20]));
    let tiny = |offset: u16, more, bytes: &[u8]| {
        built(Frame::ip4(1, 2, IpProtocol::TCP).fragment(3, offset, more).payload(bytes))
    };
    let mut fragments = Fragments::new(1);
    let first = resolved(&mut fragments, &tiny(0, true, &whole[34..42]), START);
    assert_eq!((first.src_port, first.dst_port, first.l4, first.malformed), (Port(1234), Port(80), 0, false));
    assert_eq!(ports(&mut fragments, &tiny(8, false, &whole[42..]), START), (1234, 80));
    let cut = &tiny(0, true, &whole[34..42])[..36];
    let mut other = Fragments::new(1);
    let mut d = Decoded::of(cut, 42, netgrain_wire::link::ETHERNET);
    other.resolve(&mut d, cut, START);
    assert_eq!(other.counts().first, 0, "ports that were not captured are not remembered");
}

#[test]
fn messages_of_icmp_inherit_their_type() {
    let ping = built(Frame::icmp4(1, 2, 8, 0, [0; 4]).payload(&[0; 32]));
    let piece = |offset: u16, more| {
        built(Frame::ip4(1, 2, IpProtocol::ICMP).fragment(3, offset, more).payload(&ping[34 + usize::from(offset)..]))
    };
    let mut fragments = Fragments::new(1);
    assert_eq!(ports(&mut fragments, &piece(0, true), START), (8, 0));
    assert_eq!(ports(&mut fragments, &piece(16, false), START), (8, 0));
    assert_eq!(fragments.counts().resolved, 1);
}

/// What the slow and obvious one knows of a first fragment.
struct Known {
    seen: Timestamp,
    /// It was too old when another came, which may have taken its place: time has stepped back since.
    replaceable: bool,
}

#[test]
fn a_random_walk_beside_a_map() {
    let seed = testkit::seed("a_random_walk_beside_a_map");
    let mut prng = Prng::new(seed);
    // Room enough: with few datagrams alive, nothing is displaced and the model is exact.
    let mut fragments = Fragments::with(1 << 14, TIMEOUT, seed);
    let mut model: HashMap<(u32, u16), Known> = HashMap::new();
    let mut now = START;
    for round in 0..common::rounds(20_000) {
        now = match prng.below(50) {
            0 => now.before(Duration::from_secs(prng.below(40))),
            1 => now.after(Duration::from_secs(prng.below(40))),
            _ => now.after(Duration::from_millis(prng.below(100))),
        };
        let (src, id) = (1 + prng.below(20) as u32, prng.below(10) as u16);
        let fresh = |seen: Timestamp| now.since(seen).max(seen.since(now)) <= TIMEOUT;
        if prng.below(3) == 0 {
            model.values_mut().for_each(|known| known.replaceable |= !fresh(known.seen));
            model.insert((src, id), Known { seen: now, replaceable: false });
            ports(&mut fragments, &part(src, id, 0, true), now);
            continue;
        }
        let found = ports(&mut fragments, &part(src, id, 8, false), now);
        let (nothing, inherited) = ((0, 0), (1000 + id, 53));
        match model.get(&(src, id)).filter(|known| fresh(known.seen)) {
            None => assert_eq!(found, nothing, "seed {seed}, round {round}"),
            Some(Known { replaceable: true, .. }) => assert!(found == nothing || found == inherited, "{found:?}"),
            Some(_) => assert_eq!(found, inherited, "seed {seed}, round {round}"),
        }
    }
    assert_eq!(fragments.counts().evicted, 0);
}

#[test]
fn a_flood_of_first_fragments_displaces_the_oldest_and_nothing_grows() {
    let mut fragments = Fragments::with(64, TIMEOUT, 1);
    for id in 0..10_000 {
        ports(&mut fragments, &part(1, id, 0, true), START.after(Duration::from_micros(id.into())));
    }
    let now = START.after(Duration::from_secs(1));
    let known: Vec<u16> =
        (0..10_000).filter(|id| ports(&mut fragments, &part(1, *id, 8, false), now) != (0, 0)).collect();
    assert_eq!(known.len(), 64, "as many as there is room for");
    assert!(known.iter().all(|id| *id > 9000), "and they are the latest: {known:?}");
    assert_eq!(fragments.counts().evicted, 10_000 - 64);
    let much_later = now.after(TIMEOUT * 2);
    ports(&mut fragments, &part(1, 1, 0, true), much_later);
    assert_eq!(fragments.counts().evicted, 10_000 - 64, "what is forgotten makes place without being counted");
}

#[test]
fn real_datagrams_stay_together() {
    let Some(traces) = testkit::traces("real_datagrams_stay_together") else { return };
    for (file, later) in [("flowtest/pcap/ipv4-udp-fragmented.pcap", 3), ("flowtest/pcap/ipv6-udp-fragmented.pcap", 3)]
    {
        let mut fragments = Fragments::new(1);
        let mut seen = 0;
        for p in captures::packets(&traces.join(file), usize::MAX) {
            let mut d = Decoded::of(&p.bytes, p.wire_len, p.link_type);
            fragments.resolve(&mut d, &p.bytes, p.ts);
            seen += u64::from(d.fragment == Fragment::Later);
            assert_eq!((d.src_port, d.dst_port), (Port(6363), Port(6363)), "{file}: {d:?}");
        }
        assert_eq!((seen, fragments.counts().resolved), (later, later), "{file}");
    }
}

/// A packet of TCP in VXLAN.
fn in_vxlan(payload: usize) -> Vec<u8> {
    let inner = built(Frame::tcp4(3, 1000, 4, 443).payload(&vec![7; payload]));
    let payload = [&tunnel::vxlan(7)[..], &inner].concat();
    built(Frame::udp4(1, 50_000, 2, 4789).payload(&payload))
}

#[test]
fn a_first_fragment_of_a_tunnel_is_looked_into_by_who_wants_that() {
    let parts = testkit::fragments(&in_vxlan(300), 9, 160);
    let through = |frame: &[u8]| Decoded::for_each_fragment(frame, frame.len() as u32, link::ETHERNET);
    let outside = decoded(&parts[0]);
    assert_eq!((outside.depth, outside.error), (0, Some(DecodeError::TunnelFragment)), "flow records do not");
    let (inner, part) = through(&parts[0]);
    assert_eq!((inner.depth, inner.src_port, inner.dst_port), (1, Port(1000), Port(443)));
    assert_eq!((inner.fragment, inner.malformed), (Fragment::Whole, false), "it is as if it was cut by the capture");
    assert_eq!(part, FragmentKey { fragment: Fragment::First, l3: 14 });
    let (later, part) = through(&parts[1]);
    assert_eq!((later.depth, later.fragment), (0, Fragment::Later));
    assert_eq!(part, FragmentKey { fragment: Fragment::Later, l3: 14 });
}

#[test]
fn of_parts_in_each_other_the_outermost_is_told() {
    let inner = &testkit::fragments(&built(Frame::tcp4(3, 1000, 4, 443).payload(&[7; 300])), 9, 200)[0];
    let payload = [&tunnel::vxlan(7)[..], inner].concat();
    let outer = built(Frame::udp4(1, 50_000, 2, 4789).payload(&payload));
    let reported = |frame: &[u8]| Decoded::for_each_fragment(frame, frame.len() as u32, link::ETHERNET).1;
    assert_eq!(reported(&outer), FragmentKey { fragment: Fragment::First, l3: 64 });
    assert_eq!(reported(&testkit::fragments(&outer, 8, 160)[0]), FragmentKey { fragment: Fragment::First, l3: 14 });
}

#[test]
fn what_is_whole_is_decoded_alike_with_and_without_looking_into_parts() {
    let seed = testkit::seed("what_is_whole_is_decoded_alike_with_and_without_looking_into_parts");
    let mut prng = Prng::new(seed);
    let (mut whole, mut parts) = (0, 0);
    for _ in 0..30_000 {
        let mut made = common::frame(&mut prng);
        if prng.below(3) == 0 && made.bytes.len() > 30 {
            let at = 12 + prng.below(18) as usize;
            made.bytes[at] = prng.next_u64() as u8;
        }
        let wire_len = made.bytes.len() as u32;
        let usual = Decoded::of(&made.bytes, wire_len, made.link_type);
        let (through, part) = Decoded::for_each_fragment(&made.bytes, wire_len, made.link_type);
        if part.fragment == Fragment::Whole
            || through.depth == usual.depth && usual.error != Some(DecodeError::TunnelFragment)
        {
            assert_eq!(through, usual, "seed {seed}: {:02x?}", made.bytes);
        }
        whole += u32::from(part.fragment == Fragment::Whole);
        parts += u32::from(part.fragment != Fragment::Whole);
        assert!(part.fragment == Fragment::Whole || usize::from(part.l3) < made.bytes.len());
    }
    assert!(whole > 10_000 && parts > 300, "{whole} whole, {parts} parts");
}

#[test]
fn a_first_fragment_is_looked_into_without_a_panic_wherever_it_ends_and_whatever_is_bent() {
    let seed = testkit::seed("a_first_fragment_is_looked_into_without_a_panic_wherever_it_ends_and_whatever_is_bent");
    let mut prng = Prng::new(seed);
    let first = &testkit::fragments(&in_vxlan(300), 9, 160)[0];
    let mut inside = 0;
    for _ in 0..50_000 {
        let mut frame = first.clone();
        for _ in 0..prng.below(3) {
            let at = 12 + prng.below(frame.len() as u64 - 12) as usize;
            frame[at] = prng.next_u64() as u8;
        }
        frame.truncate(prng.below(frame.len() as u64 + 1) as usize);
        let (decoded, part) = Decoded::for_each_fragment(&frame, first.len() as u32, link::ETHERNET);
        for offset in [decoded.l3, decoded.l4, decoded.payload, part.l3] {
            assert!(offset == 0 || usize::from(offset) < frame.len(), "seed {seed}: {frame:02x?}");
        }
        inside += u32::from(decoded.depth > 0);
    }
    assert!(inside > 5000, "{inside}");
}
