//! The invariants of `Decoded::of` and `Fragments` for arbitrary bytes: random frames in random tunnels, changed and
//! truncated at any byte, and the real captures, also truncated at any byte.

use crate::captures;
use crate::common;

use base::{Prng, Timestamp};
use netgrain_wire::build::{Frame, tunnel};
use netgrain_wire::{
    DecodeError, Decoded, EtherType, Family, Fragment, Fragments, Headers, IpProtocol, MAX_TUNNELS, link,
    numbered_tunnels,
};

/// Asserts every invariant that holds for arbitrary bytes.
fn assert_invariants(frame: &[u8], wire: u32, link_type: u16, context: &dyn Fn() -> String) -> Decoded {
    let d = Decoded::of(frame, wire, link_type);
    let inside = |at: u16| at == 0 || usize::from(at) < frame.len();
    let wire = frame.len().max(wire as usize) as u64;
    assert!(inside(d.l3) && inside(d.l4) && inside(d.payload) && inside(d.l2.unwrap_or(0)), "{}: {d:?}", context());
    let fixed = [0, 20, 40][d.family as usize];
    assert!(usize::from(d.l3) + fixed <= frame.len(), "{}: {d:?}", context());
    let end = u64::from(d.l3) + u64::from(d.ip_len);
    assert!(d.family == Family::Other || end <= wire && d.payload_len <= d.ip_len, "{}: {d:?}", context());
    assert!(d.l4 == 0 || d.l4 > d.l3 && u64::from(d.l4) <= end, "{}: {d:?}", context());
    assert!(d.payload == 0 || u64::from(d.payload) + u64::from(d.payload_len) <= end, "{}: {d:?}", context());
    assert!(d.depth <= MAX_TUNNELS && (d.depth > 0) == d.tunnel.is_some(), "{}: {d:?}", context());
    assert!(d.tunnel.is_none_or(|t| t.outer_l3 < d.l3), "{}: {d:?}", context());
    assert_eq!(d.malformed, d.error.is_some_and(DecodeError::is_malformed), "{}: {d:?}", context());
    let numbers: Vec<_> = numbered_tunnels(frame, wire as u32, link_type).collect();
    assert!(d.may_have_sequence() || numbers.is_empty(), "{}: {d:?}", context());
    assert!(!d.may_have_sequence() || !numbers.is_empty() || d.depth > 1 || d.error.is_some(), "{}: {d:?}", context());
    assert!(numbers.is_sorted_by(|a, b| a.outer_l3 < b.outer_l3), "{}: {numbers:?}", context());
    let innermost = d.tunnel.filter(|t| t.sequence.is_some());
    assert!(innermost.is_none_or(|t| numbers.contains(&t)), "{}: {d:?}, {numbers:?}", context());
    d
}

/// A frame in up to five tunnels, and the number of tunnels.
fn nested(prng: &mut Prng) -> (Vec<u8>, u8) {
    let mut body = vec![0; prng.below(20) as usize];
    prng.fill(&mut body);
    let port = 1 + prng.below(1000) as u16;
    let mut frame = match prng.below(3) {
        0 => common::built(Frame::tcp4(prng.next_u64() as u32, port, 9, 80).payload(&body)),
        1 => common::built(Frame::udp6([7; 8], port, [9; 8], 53).payload(&body)),
        _ => common::built(Frame::icmp4(prng.next_u64() as u32, 9, 8, 0, [0; 4]).payload(&body)),
    };
    let depth = prng.below(6) as u8;
    for _ in 0..depth {
        let v6 = frame[12..14] == [0x86, 0xdd];
        let (packet, id) = (frame[14..].to_vec(), prng.next_u64() as u32 >> 8);
        let ethertype = if v6 { EtherType::IPV6 } else { EtherType::IPV4 };
        let in_ip = if v6 { IpProtocol::IPV6 } else { IpProtocol::IPV4 };
        let bridged = || tunnel::gre(EtherType::BRIDGED, None, Some(id << 8), None);
        let mirrored = || [tunnel::gre(EtherType::ERSPAN, None, None, Some(id)), tunnel::erspan2(5).to_vec()].concat();
        let (carrier, payload) = match prng.below(9) {
            0 => (Err(in_ip), packet),
            1 => (Err(IpProtocol::GRE), [tunnel::gre(ethertype, None, Some(id), None), packet].concat()),
            2 => (Err(IpProtocol::GRE), [bridged(), frame].concat()),
            3 => (Err(IpProtocol::GRE), [mirrored(), frame].concat()),
            4 => (Ok(4789), [tunnel::vxlan(id).to_vec(), frame].concat()),
            5 => (Ok(6081), [tunnel::geneve(EtherType::BRIDGED, id, &[0; 8]), frame].concat()),
            6 => (Ok(6081), [tunnel::geneve(ethertype, id, &[]), packet].concat()),
            7 => (Ok(4754), [tunnel::gre(ethertype, None, None, None), packet].concat()),
            _ => (Ok(2152), [tunnel::gtp_u(id, Some(1), &[(0x85, &[0, 0])], packet.len()), packet].concat()),
        };
        frame = common::built(match (carrier, prng.below(2)) {
            (Ok(port), 0) => Frame::udp4(id, 50_000, 8, port).payload(&payload),
            (Ok(port), _) => Frame::udp6([3; 8], 50_000, [4; 8], port).payload(&payload),
            (Err(protocol), 0) => Frame::ip4(id, 8, protocol).payload(&payload),
            (Err(protocol), _) => Frame::ip6([3; 8], [4; 8], protocol).payload(&payload),
        });
    }
    (frame, depth)
}

#[test]
fn random_tunnels_are_decoded_and_distinguished() {
    let seed = testkit::seed("random_tunnels_are_decoded_and_distinguished");
    let mut prng = Prng::new(seed);
    for round in 0..common::rounds(20_000) {
        let (frame, depth) = nested(&mut prng);
        let d =
            assert_invariants(&frame, frame.len() as u32, link::ETHERNET, &|| format!("seed {seed}, round {round}"));
        assert_eq!(d.depth, depth.min(MAX_TUNNELS), "seed {seed}, round {round}: {d:?} of {frame:02x?}");
        let error = (depth > MAX_TUNNELS).then_some(DecodeError::TunnelsTooMany);
        assert_eq!(d.error, error, "seed {seed}, round {round}");
    }
}

#[test]
fn truncated_frames_are_neither_malformed_nor_decoded_differently() {
    let seed = testkit::seed("truncated_frames_are_neither_malformed_nor_decoded_differently");
    let mut prng = Prng::new(seed);
    for round in 0..common::rounds(500) {
        let (frame, _) = nested(&mut prng);
        let whole = common::decoded(&frame);
        for cut in 0..frame.len() {
            let context = || format!("seed {seed}, round {round}, truncated to {cut}");
            let d = assert_invariants(&frame[..cut], frame.len() as u32, link::ETHERNET, &context);
            assert!(!d.malformed && d.depth <= whole.depth, "{}: {d:?}", context());
            if d.depth == whole.depth && d.family == whole.family {
                assert_eq!((d.l3, d.ip_len, d.tunnel), (whole.l3, whole.ip_len, whole.tunnel), "{}", context());
            } else {
                assert_eq!(d.error, Some(DecodeError::Cut), "{}: {d:?}", context());
            }
        }
    }
}

#[test]
fn the_properties_hold_for_random_bytes() {
    let seed = testkit::seed("the_properties_hold_for_random_bytes");
    let mut prng = Prng::new(seed);
    let mut fragments = Fragments::new(seed);
    for round in 0..common::rounds(150_000) {
        let mut bytes = if prng.below(2) == 0 { nested(&mut prng).0 } else { common::frame(&mut prng).bytes };
        match prng.below(5) {
            0 => prng.fill(&mut bytes),
            1 => bytes.truncate(prng.below(bytes.len() as u64 + 1) as usize),
            2 => {
                // Changes a byte at any offset, because the inner headers are far from the beginning.
                let at = prng.below(bytes.len() as u64) as usize;
                bytes[at] = prng.next_u64() as u8;
            }
            _ => common::damage(&mut prng, &mut bytes),
        }
        let links = [link::ETHERNET, link::ETHERNET, link::RAW_IP, link::LINUX_SLL, link::LINUX_SLL2, 9];
        let link_type = links[prng.below(6) as usize];
        let wire = [0, bytes.len() as u32, 1500, u32::MAX][prng.below(4) as usize];
        let context = || format!("seed {seed}, round {round}, wire {wire}, link {link_type}: {bytes:02x?}");
        let mut d = assert_invariants(&bytes, wire, link_type, &context);
        fragments.resolve(&mut d, &bytes, Timestamp::from_nanos(prng.next_u64()));
    }
}

#[test]
fn plain_frames_have_the_offsets_of_headers() {
    let seed = testkit::seed("plain_frames_have_the_offsets_of_headers");
    let mut prng = Prng::new(seed);
    let mut agreed = 0;
    for round in 0..common::rounds(100_000) {
        let mut made = common::frame(&mut prng);
        if prng.below(2) == 0 {
            common::damage(&mut prng, &mut made.bytes);
        }
        let wire = made.bytes.len() as u32;
        let (d, h) = (Decoded::of(&made.bytes, wire, made.link_type), Headers::of(&made.bytes, wire, made.link_type));
        // `Headers` does not enter tunnels. For a PPPoE session with a payload other than IP or MPLS it keeps the
        // ethertype of PPPoE.
        if d.depth > 0 || h.ethertype() == EtherType::PPPOE {
            continue;
        }
        let may_be_tunnel = matches!(d.protocol, IpProtocol::IPV4 | IpProtocol::IPV6 | IpProtocol::GRE);
        if d.error.is_some() && may_be_tunnel {
            continue;
        }
        agreed += 1;
        let l4 = if d.l4 > 255 { 0 } else { d.l4 };
        let ours = (d.l3, l4, d.family, d.fragment, d.ethertype, d.vlans[0], d.malformed, d.l2.is_some());
        let theirs = (
            h.l3().into(),
            h.l4().into(),
            h.family(),
            h.fragment(),
            h.ethertype(),
            h.vlan(),
            h.malformed(),
            h.is_ethernet(),
        );
        assert_eq!(ours, theirs, "seed {seed}, round {round}: {made:02x?}");
        assert!(h.protocol().is_none_or(|protocol| protocol == d.protocol), "seed {seed}, round {round}");
    }
    assert!(agreed > 50_000, "only {agreed} frames were compared");
}

/// A packet inside a random sequence of PPPoE sessions, pseudowires, MPLS labels, VLAN tags and length fields, and the
/// names of these layers.
fn wrapped(prng: &mut Prng) -> (Vec<u8>, Vec<&'static str>) {
    let port = 1 + prng.below(1000) as u16;
    let inner = Frame::udp4(prng.next_u64() as u32, port, 9, 53).payload(b"the inner");
    let mut ethertype = EtherType::IPV4;
    let mut payload = common::built(inner.raw());
    let mut names = Vec::new();
    for _ in 0..prng.below(6) {
        let id = prng.below(4096) as u16;
        let in_ethernet = [&[0x12; 12], &ethertype.0.to_be_bytes()[..], &payload].concat();
        let label = |payload: &[u8]| [&(u32::from(id) << 12 | 0x140).to_be_bytes(), payload].concat();
        let (name, outer, bytes) = match prng.below(6) {
            0 => ("tag", EtherType::VLAN, [&id.to_be_bytes()[..], &ethertype.0.to_be_bytes(), &payload].concat()),
            1 if ethertype == EtherType::IPV4 => ("label", EtherType::MPLS, label(&payload)),
            2 if ethertype == EtherType::IPV4 => {
                ("session", EtherType::PPPOE, [&tunnel::pppoe(id, 0x21, payload.len())[..], &payload].concat())
            }
            3 if ethertype.0 >= 1536 => {
                let bytes = [&tunnel::snap(ethertype)[..], &payload].concat();
                ("snap", EtherType(bytes.len() as u16), bytes)
            }
            4 => ("wire", EtherType::MPLS, label(&in_ethernet)),
            _ => ("controlled wire", EtherType::MPLS, label(&[&[0; 4], &in_ethernet[..]].concat())),
        };
        names.push(name);
        (ethertype, payload) = (outer, bytes);
    }
    (common::built(Frame::ethernet(ethertype).payload(&payload)), names)
}

/// Offset and family of the network header, IP protocol, and true if `Headers` finds the VLAN id that `Decoded` has
/// found. The first element has the values of `Decoded` (used by the meter), the second those of `Headers` (used by
/// filter and index). `None` for packets in tunnels, and if the offset is too large for [`Headers`].
fn packet_of(frame: &[u8], wire: u32, link_type: u16) -> Option<[(u16, Family, IpProtocol, bool); 2]> {
    let (d, h) = (Decoded::of(frame, wire, link_type), Headers::of(frame, wire, link_type));
    if d.depth > 0 || d.l3 > 255 {
        return None;
    }
    let nearest = d.vlans[0].is_none_or(|id| h.vlans(frame).any(|tag| tag == id));
    let protocol = if d.family == Family::Other { IpProtocol::default() } else { d.protocol };
    let (l3, family) = (u16::from(h.l3()), h.family());
    // If the packet is not IP, `Decoded` and `Headers` may stop at different headers.
    let l3 = if family == Family::Other { d.l3 } else { l3 };
    Some([(d.l3, d.family, protocol, true), (l3, family, h.protocol().unwrap_or_default(), nearest)])
}

#[test]
fn the_filter_and_the_meter_find_the_same_packet_in_frames_without_tunnels() {
    let seed = testkit::seed("the_filter_and_the_meter_find_the_same_packet_in_frames_without_tunnels");
    let mut prng = Prng::new(seed);
    let mut deep = 0;
    for round in 0..common::rounds(50_000) {
        let (mut frame, names) = wrapped(&mut prng);
        let wire = frame.len() as u32;
        let whole = Decoded::of(&frame, wire, link::ETHERNET);
        let hidden = whole.family == Family::Other && whole.error.is_none_or(|error| error != DecodeError::TagsTooMany);
        assert!(!hidden, "seed {seed}, round {round}: {names:?}: {whole:?}");
        deep += u32::from(names.len() > 2);
        match prng.below(3) {
            0 => frame.truncate(prng.below(frame.len() as u64 + 1) as usize),
            1 => common::damage(&mut prng, &mut frame),
            _ => (),
        }
        if let Some([meter, filter]) = packet_of(&frame, wire, link::ETHERNET) {
            assert_eq!(meter, filter, "seed {seed}, round {round}: {names:?}: {frame:02x?}");
        }
    }
    assert!(deep > 1000, "only {deep} frames had three layers around the packet");
}

#[test]
fn the_filter_and_the_meter_find_the_same_packet_in_every_real_frame() {
    let name = "the_filter_and_the_meter_find_the_same_packet_in_every_real_frame";
    let Some(traces) = testkit::traces(name) else { return };
    let mut compared = 0;
    for file in captures::files(&traces) {
        for (number, p) in captures::packets(&file, 100_000).into_iter().enumerate() {
            if let Some([meter, filter]) = packet_of(&p.bytes, p.wire_len, p.link_type) {
                assert_eq!(meter, filter, "{}, packet {number}: {:02x?}", file.display(), p.bytes);
                compared += 1;
            }
        }
    }
    assert!(compared > 50_000, "only {compared} frames were compared");
}

#[test]
fn the_properties_hold_for_real_frames_truncated_and_changed_at_random() {
    let name = "the_properties_hold_for_real_frames_truncated_and_changed_at_random";
    let Some(traces) = testkit::traces(name) else { return };
    let seed = testkit::seed(name);
    let mut prng = Prng::new(seed);
    let mut fragments = Fragments::new(seed);
    let (mut frames, mut errors) = (0_u32, [0_u32; DecodeError::COUNT]);
    for file in captures::files(&traces) {
        for (number, mut p) in captures::packets(&file, 100_000).into_iter().enumerate() {
            let context = || format!("{}, packet {number}, seed {seed}", file.display());
            let mut d = assert_invariants(&p.bytes, p.wire_len, p.link_type, &context);
            fragments.resolve(&mut d, &p.bytes, p.ts);
            frames += 1;
            if let Some(what) = d.error {
                errors[what.index()] += 1;
            }
            if number < 60 {
                for cut in 0..p.bytes.len().min(300) {
                    assert_invariants(&p.bytes[..cut], p.wire_len, p.link_type, &context);
                }
                for _ in 0..20 {
                    common::damage(&mut prng, &mut p.bytes);
                    let mut d = assert_invariants(&p.bytes, p.wire_len, p.link_type, &context);
                    fragments.resolve(&mut d, &p.bytes, p.ts);
                }
            }
        }
    }
    let named: Vec<String> = DecodeError::all().map(|what| format!("{what} {}", errors[what.index()])).collect();
    eprintln!("{frames} frames; {}", named.join(", "));
    let counts = fragments.counts();
    assert!(counts.first > 10 && counts.resolved > 10, "{counts:?}");
    assert!(
        frames > 50_000 && errors.iter().filter(|n| **n > 0).count() > 6,
        "the captures have many kinds of decode errors"
    );
}

#[test]
fn the_common_case_and_the_general_decoder_agree_on_real_frames() {
    let Some(traces) = testkit::traces("the_common_case_and_the_general_decoder_agree_on_real_frames") else {
        return;
    };
    let mut compared = 0;
    for file in captures::files(&traces) {
        for p in captures::packets(&file, 100_000) {
            let plain = Decoded::of(&p.bytes, p.wire_len, p.link_type);
            if p.link_type != link::ETHERNET
                || plain.family == Family::Other
                || plain.depth > 0
                || plain.error.is_some()
            {
                continue;
            }
            // Adds a provider tag, because only the general decoder accepts it.
            let tagged = [&p.bytes[..12], &[0x88, 0xa8, 0, 7], &p.bytes[12..]].concat();
            let mut general = Decoded::of(&tagged, p.wire_len.max(p.bytes.len() as u32) + 4, link::ETHERNET);
            assert_eq!(general.vlans, [Some(7), plain.vlans[0]], "{}", file.display());
            for offset in [&mut general.l3, &mut general.l4, &mut general.payload] {
                *offset = offset.saturating_sub(4);
            }
            assert_eq!(Decoded { vlans: plain.vlans, ..general }, plain, "{}: {:02x?}", file.display(), p.bytes);
            compared += 1;
        }
    }
    assert!(compared > 10_000, "only {compared} frames were compared");
}

#[test]
fn fragments_inside_tunnels_are_reported() {
    let part = common::built(Frame::ip4(1, 2, IpProtocol::UDP).fragment(5, 8, false).payload(&[0; 8]));
    let d = common::decoded(&common::built(Frame::ip4(3, 4, IpProtocol::IPV4).payload(&part[14..])));
    assert_eq!((d.depth, d.fragment, d.payload_len), (1, Fragment::Later, 8));
}
