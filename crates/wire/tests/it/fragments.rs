//! Tests that `Fragments` sets the ports of later fragments and takes a limited amount of memory, and that first
//! fragments of tunnel packets are decoded.

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

/// One fragment of a UDP datagram.
fn fragment(src: u32, id: u16, offset: u16, more: bool) -> Vec<u8> {
    let whole = built(Frame::udp4(src, 1000 + id, 2, 53).payload(&[7; 40]));
    let from = 34 + usize::from(offset);
    built(Frame::ip4(src, 2, IpProtocol::UDP).fragment(id, offset, more).payload(&whole[from..]))
}

fn fragment6(id: u32, offset: u16, more: bool) -> Vec<u8> {
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
    let d = resolved(&mut fragments, &fragment(1, 9, 16, false), START);
    assert_eq!((d.src_port, d.dst_port, d.error), (Port(0), Port(0), Some(DecodeError::FragmentOrphan)));
    assert_eq!((d.protocol, d.l4), (IpProtocol::UDP, 0));
    assert_eq!(fragments.counts(), FragmentCounts { orphaned: 1, ..FragmentCounts::default() });
}

#[test]
fn later_fragments_inherit_from_the_first_in_any_order() {
    let mut fragments = Fragments::new(1);
    for frame in [fragment(1, 9, 0, true), fragment(1, 9, 32, false), fragment(1, 9, 16, true)] {
        let d = resolved(&mut fragments, &frame, START);
        assert_eq!((d.src_port, d.dst_port, d.error), (Port(1009), Port(53), None));
    }
    for frame in [fragment6(7, 0, true), fragment6(7, 16, false)] {
        assert_eq!(ports(&mut fragments, &frame, START), (1000, 53), "IPv6, after another extension header");
    }
    assert_eq!(fragments.counts(), FragmentCounts { first: 2, resolved: 3, orphaned: 0, evicted: 0 });
    let whole = built(Frame::udp4(1, 5, 2, 6));
    assert_eq!(ports(&mut fragments, &whole, START), (5, 6), "a whole packet is unchanged");
}

#[test]
fn datagrams_differ_by_each_part_of_the_key() {
    let mut fragments = Fragments::new(1);
    let first = fragment(1, 9, 0, true);
    ports(&mut fragments, &first, START);
    let inherits = |fragments: &mut Fragments, frame: &[u8]| ports(fragments, frame, START) != (0, 0);
    let later = fragment(1, 9, 16, false);
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
    assert!(!inherits(&mut fragments, &fragment6(9, 16, false)), "another address family");
}

#[test]
fn a_datagram_is_forgotten_by_packet_time_in_both_directions_of_time() {
    let nano = Duration::from_nanos(1);
    for (what, now, known) in [
        ("at the timeout", START.after(TIMEOUT), true),
        ("after the timeout", START.after(TIMEOUT + nano), false),
        ("a step back", START.before(TIMEOUT), true),
        ("a larger step back", START.before(TIMEOUT + nano), false),
        ("years later", Timestamp::MAX, false),
        ("years before", Timestamp::ZERO, false),
    ] {
        let mut fragments = Fragments::new(1);
        ports(&mut fragments, &fragment(1, 9, 0, true), START);
        let expected = if known { (1009, 53) } else { (0, 0) };
        assert_eq!(ports(&mut fragments, &fragment(1, 9, 16, false), now), expected, "{what}");
    }
}

#[test]
fn a_first_fragment_shorter_than_its_header_has_ports() {
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
    assert_eq!(other.counts().first, 0, "ports that were not captured are not stored");
}

#[test]
fn later_icmp_fragments_inherit_the_type() {
    let ping = built(Frame::icmp4(1, 2, 8, 0, [0; 4]).payload(&[0; 32]));
    let piece = |offset: u16, more| {
        built(Frame::ip4(1, 2, IpProtocol::ICMP).fragment(3, offset, more).payload(&ping[34 + usize::from(offset)..]))
    };
    let mut fragments = Fragments::new(1);
    assert_eq!(ports(&mut fragments, &piece(0, true), START), (8, 0));
    assert_eq!(ports(&mut fragments, &piece(16, false), START), (8, 0));
    assert_eq!(fragments.counts().resolved, 1);
}

/// The state of a first fragment in the model.
struct ModelEntry {
    seen: Timestamp,
    /// True if the entry had expired when another fragment arrived, and the time then stepped back. The other fragment
    /// may have replaced the entry.
    replaceable: bool,
}

#[test]
fn random_fragments_agree_with_a_map() {
    let seed = testkit::seed("random_fragments_agree_with_a_map");
    let mut prng = Prng::new(seed);
    // With few active datagrams in a large table no entry is evicted, so the model is exact.
    let mut fragments = Fragments::with(1 << 14, TIMEOUT, seed);
    let mut model: HashMap<(u32, u16), ModelEntry> = HashMap::new();
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
            model.insert((src, id), ModelEntry { seen: now, replaceable: false });
            ports(&mut fragments, &fragment(src, id, 0, true), now);
            continue;
        }
        let found = ports(&mut fragments, &fragment(src, id, 8, false), now);
        let (nothing, inherited) = ((0, 0), (1000 + id, 53));
        match model.get(&(src, id)).filter(|known| fresh(known.seen)) {
            None => assert_eq!(found, nothing, "seed {seed}, round {round}"),
            Some(ModelEntry { replaceable: true, .. }) => assert!(found == nothing || found == inherited, "{found:?}"),
            Some(_) => assert_eq!(found, inherited, "seed {seed}, round {round}"),
        }
    }
    assert_eq!(fragments.counts().evicted, 0);
}

#[test]
fn a_flood_of_first_fragments_evicts_the_oldest_and_takes_no_more_memory() {
    let mut fragments = Fragments::with(64, TIMEOUT, 1);
    for id in 0..10_000 {
        ports(&mut fragments, &fragment(1, id, 0, true), START.after(Duration::from_micros(id.into())));
    }
    let now = START.after(Duration::from_secs(1));
    let known: Vec<u16> =
        (0..10_000).filter(|id| ports(&mut fragments, &fragment(1, *id, 8, false), now) != (0, 0)).collect();
    assert_eq!(known.len(), 64, "the table is full");
    assert!(known.iter().all(|id| *id > 9000), "the table has the latest fragments: {known:?}");
    assert_eq!(fragments.counts().evicted, 10_000 - 64);
    let much_later = now.after(TIMEOUT * 2);
    ports(&mut fragments, &fragment(1, 1, 0, true), much_later);
    assert_eq!(fragments.counts().evicted, 10_000 - 64, "replacing an expired entry is no eviction");
}

#[test]
fn all_fragments_of_real_datagrams_have_one_key() {
    let Some(traces) = testkit::traces("all_fragments_of_real_datagrams_have_one_key") else { return };
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

/// A TCP packet in VXLAN.
fn in_vxlan(payload: usize) -> Vec<u8> {
    let inner = built(Frame::tcp4(3, 1000, 4, 443).payload(&vec![7; payload]));
    let payload = [&tunnel::vxlan(7)[..], &inner].concat();
    built(Frame::udp4(1, 50_000, 2, 4789).payload(&payload))
}

#[test]
fn a_first_fragment_of_a_tunnel_packet_is_decoded_on_request() {
    let parts = testkit::fragments(&in_vxlan(300), 9, 160);
    let through = |frame: &[u8]| Decoded::with_fragments(frame, frame.len() as u32, link::ETHERNET);
    let outside = decoded(&parts[0]);
    assert_eq!(
        (outside.depth, outside.error),
        (0, Some(DecodeError::TunnelFragment)),
        "Decoded::of does not decode the content"
    );
    let (inner, fragment) = through(&parts[0]);
    assert_eq!((inner.depth, inner.src_port, inner.dst_port), (1, Port(1000), Port(443)));
    assert_eq!((inner.fragment, inner.malformed), (Fragment::Whole, false), "the result is that of a truncated packet");
    assert_eq!(fragment, FragmentKey { fragment: Fragment::First, l3: 14 });
    let (later, fragment) = through(&parts[1]);
    assert_eq!((later.depth, later.fragment), (0, Fragment::Later));
    assert_eq!(fragment, FragmentKey { fragment: Fragment::Later, l3: 14 });
}

#[test]
fn the_outermost_of_nested_fragments_is_reported() {
    let inner = &testkit::fragments(&built(Frame::tcp4(3, 1000, 4, 443).payload(&[7; 300])), 9, 200)[0];
    let payload = [&tunnel::vxlan(7)[..], inner].concat();
    let outer = built(Frame::udp4(1, 50_000, 2, 4789).payload(&payload));
    let reported = |frame: &[u8]| Decoded::with_fragments(frame, frame.len() as u32, link::ETHERNET).1;
    assert_eq!(reported(&outer), FragmentKey { fragment: Fragment::First, l3: 64 });
    assert_eq!(reported(&testkit::fragments(&outer, 8, 160)[0]), FragmentKey { fragment: Fragment::First, l3: 14 });
}

#[test]
fn decoding_of_fragments_changes_no_unfragmented_packet() {
    let seed = testkit::seed("decoding_of_fragments_changes_no_unfragmented_packet");
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
        let (through, fragment) = Decoded::with_fragments(&made.bytes, wire_len, made.link_type);
        if fragment.fragment == Fragment::Whole
            || through.depth == usual.depth && usual.error != Some(DecodeError::TunnelFragment)
        {
            assert_eq!(through, usual, "seed {seed}: {:02x?}", made.bytes);
        }
        whole += u32::from(fragment.fragment == Fragment::Whole);
        parts += u32::from(fragment.fragment != Fragment::Whole);
        assert!(fragment.fragment == Fragment::Whole || usize::from(fragment.l3) < made.bytes.len());
    }
    assert!(whole > 10_000 && parts > 300, "{whole} whole packets, {parts} fragments");
}

#[test]
fn first_fragments_truncated_and_changed_at_random_cause_no_panic() {
    let seed = testkit::seed("first_fragments_truncated_and_changed_at_random_cause_no_panic");
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
        let (decoded, fragment) = Decoded::with_fragments(&frame, first.len() as u32, link::ETHERNET);
        for offset in [decoded.l3, decoded.l4, decoded.payload, fragment.l3] {
            assert!(offset == 0 || usize::from(offset) < frame.len(), "seed {seed}: {frame:02x?}");
        }
        inside += u32::from(decoded.depth > 0);
    }
    assert!(inside > 5000, "{inside}");
}
