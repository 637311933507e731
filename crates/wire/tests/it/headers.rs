//! `Headers::of`: offsets, malformed frames, and the invariants for arbitrary bytes.

use crate::common;

use base::Prng;
use netgrain_wire::build::Frame;
use netgrain_wire::{EtherType, Ethernet, Family, Fragment, Headers, IpProtocol, Ipv4, Ipv6, VlanTag, link, mpls};

fn of(frame: &[u8]) -> Headers {
    Headers::of(frame, frame.len() as u32, link::ETHERNET)
}

fn built(frame: Frame<'_>) -> Vec<u8> {
    let mut buffer = [0; 2000];
    frame.write(&mut buffer).unwrap().to_vec()
}

fn udp() -> Frame<'static> {
    Frame::udp4([10, 0, 0, 1], 1000, [10, 0, 0, 2], 53).payload(b"0123456789")
}

fn tcp() -> Frame<'static> {
    Frame::tcp4([10, 0, 0, 1], 1000, [10, 0, 0, 2], 80).payload(b"0123456789")
}

#[test]
fn lengths_that_contradict_each_other_are_malformed() {
    let with = |frame: Frame<'_>, at: usize, value: u8| {
        let mut bytes = built(frame);
        bytes[at] = value;
        of(&bytes)
    };
    let tcp6 = Frame::tcp6([1; 8], 1, [2; 8], 2);
    for (what, headers) in [
        ("version of IPv4", with(udp(), 14, 0x65)),
        ("IHL below 5", with(udp(), 14, 0x44)),
        ("IHL beyond the packet", with(udp(), 14, 0x4f)),
        ("total length beyond the frame", with(udp(), 16, 1)),
        ("total length below the header", with(udp(), 17, 19)),
        ("total length too short for UDP", with(udp(), 17, 27)),
        ("UDP length below 8", with(udp(), 39, 7)),
        ("UDP length beyond the packet", with(udp(), 39, 19)),
        ("TCP offset below 5", with(tcp(), 46, 0x40)),
        ("TCP offset beyond the packet", with(tcp(), 46, 0x80)),
        ("version of IPv6", with(tcp6, 14, 0x45)),
        ("payload length of IPv6 beyond the frame", with(tcp6, 18, 1)),
        ("extension beyond the packet", with(tcp6.extensions(&[(IpProtocol::DEST_OPTIONS, &[])]), 55, 99)),
        ("a runt", of(&[0; 13])),
        ("a missing tag", of(&built(Frame::ethernet(EtherType::VLAN)))),
        ("a missing IPv4 header", of(&built(Frame::ethernet(EtherType::IPV4).payload(&[0x45; 19])))),
    ] {
        assert!(headers.malformed(), "{what}: {headers:?}");
    }
    assert!(Headers::of(&[0x15], 1, link::RAW_IP).malformed(), "raw IP with a version other than 4 and 6");
}

#[test]
fn truncated_frames_are_not_malformed_at_any_length() {
    let seed = testkit::seed("truncated_frames_are_not_malformed_at_any_length");
    let mut prng = Prng::new(seed);
    for round in 0..common::rounds(2000) {
        let made = common::frame(&mut prng);
        let wire = made.bytes.len() as u32;
        assert!(!Headers::of(&made.bytes, wire, made.link_type).malformed(), "seed {seed}, round {round}: {made:02x?}");
        for cut in 0..made.bytes.len() {
            let headers = Headers::of(&made.bytes[..cut], wire, made.link_type);
            assert!(!headers.malformed(), "seed {seed}, round {round}, truncated to {cut}: {made:02x?}");
        }
    }
}

#[test]
fn bytes_after_the_packet_are_padding() {
    let mut bytes = built(udp());
    bytes.resize(60, 0);
    let headers = of(&bytes);
    assert!(!headers.malformed());
    assert_eq!((headers.l3(), headers.l4()), (14, 34));
}

#[test]
fn a_length_of_zero_is_valid_in_merged_frames() {
    let mut bytes = vec![0; 70_000];
    for frame in [udp(), tcp(), Frame::udp6([1; 8], 1, [2; 8], 2), Frame::tcp6([1; 8], 1, [2; 8], 2)] {
        frame.fill(&mut bytes);
        let headers = of(&bytes[..128.min(bytes.len())]);
        assert!(headers.malformed(), "a frame of 128 bytes is no merged frame");
        let headers = of(&bytes);
        assert!(!headers.malformed() && headers.l4() > 0, "{headers:?}");
    }
}

#[test]
fn vlan_tags_and_mpls_labels_are_skipped() {
    let frame = udp().tag(EtherType::QINQ, 0x2064).tag(EtherType::VLAN, 0x00c8);
    let headers = of(&built(frame));
    assert_eq!((headers.l3(), headers.l4(), headers.vlan()), (22, 42, Some(100)));
    assert_eq!((headers.ethertype(), headers.protocol()), (EtherType::IPV4, Some(IpProtocol::UDP)));

    let headers = of(&built(udp().tag(EtherType::VLAN, 5).label(16).label(17)));
    assert_eq!((headers.l3(), headers.l4(), headers.vlan()), (26, 46, Some(5)));
    assert_eq!(headers.family(), Family::V4);
}

#[test]
fn label_stacks_without_a_bottom_have_no_network_layer() {
    for (ethertype, entry) in [(EtherType::VLAN, [0, 1, 0x81, 0]), (EtherType::MPLS, [0, 1, 0, 64])] {
        let headers = of(&built(Frame::ethernet(ethertype).payload(&entry.repeat(100))));
        assert_eq!((headers.family(), headers.l4()), (Family::Other, 0), "{ethertype}");
    }
    let chain: Vec<(IpProtocol, &[u8])> = vec![(IpProtocol::DEST_OPTIONS, &[0; 6]); 9];
    let headers = of(&built(Frame::udp6([1; 8], 1, [2; 8], 2).extensions(&chain)));
    assert_eq!((headers.protocol(), headers.l4()), (Some(IpProtocol::DEST_OPTIONS), 0));
    let headers = of(&built(Frame::udp6([1; 8], 1, [2; 8], 2).extensions(&chain[1..])));
    assert_eq!((headers.protocol(), headers.l4()), (Some(IpProtocol::UDP), 14 + 40 + 64));
}

#[test]
fn an_offset_beyond_255_is_none() {
    let long = [0; 246];
    let extension: [(IpProtocol, &[u8]); 1] = [(IpProtocol::DEST_OPTIONS, &long)];
    let headers = of(&built(Frame::udp6([1; 8], 1, [2; 8], 2).extensions(&extension)));
    assert_eq!((headers.protocol(), headers.l4(), headers.malformed()), (Some(IpProtocol::UDP), 0, false));
}

#[test]
fn fragments_have_a_transport_header_only_in_the_first() {
    let whole = built(udp());
    let part = |offset, more, bytes| {
        of(&built(Frame::ip4([10, 0, 0, 1], [10, 0, 0, 2], IpProtocol::UDP).fragment(9, offset, more).payload(bytes)))
    };
    let first = part(0, true, &whole[34..42]);
    assert_eq!((first.fragment(), first.l4(), first.malformed()), (Fragment::First, 34, false));
    let later = part(8, false, &whole[42..]);
    assert_eq!((later.fragment(), later.l4(), later.malformed()), (Fragment::Later, 0, false));

    let part6 = |field: [u8; 2], bytes| {
        let body = [field[0], field[1], 0, 0, 0, 1];
        let fragment: [(IpProtocol, &[u8]); 2] = [(IpProtocol::HOP_BY_HOP, &[0; 6]), (IpProtocol::FRAGMENT, &body)];
        of(&built(Frame::ip6([1; 8], [2; 8], IpProtocol::UDP).extensions(&fragment).payload(bytes)))
    };
    let first = part6([0, 1], &whole[34..42]);
    assert_eq!((first.fragment(), first.l4(), first.malformed()), (Fragment::First, 70, false));
    let later = part6([0, 8], &whole[42..]);
    assert_eq!((later.fragment(), later.l4(), later.protocol()), (Fragment::Later, 0, Some(IpProtocol::UDP)));
    let atomic = part6([0, 0], &whole[34..]);
    assert_eq!((atomic.fragment(), atomic.l4(), atomic.malformed()), (Fragment::Whole, 70, false));
}

#[test]
fn every_link_type_leads_to_the_same_packet() {
    let packet = built(udp().raw());
    let cooked = |len: usize, protocol_at: usize| {
        let mut bytes = vec![0; len];
        bytes[protocol_at..protocol_at + 2].copy_from_slice(&[0x08, 0]);
        bytes.extend(&packet);
        bytes
    };
    for (link_type, bytes, l3) in [
        (link::ETHERNET, built(udp()), 14),
        (link::RAW_IP, packet.clone(), 0),
        (link::RAW_IPV4, packet.clone(), 0),
        (link::LINUX_SLL, cooked(16, 14), 16),
        (link::LINUX_SLL2, cooked(20, 0), 20),
        (link::NULL, [&[2, 0, 0, 0], &packet[..]].concat(), 4),
        (link::NULL, [&[0, 0, 0, 2], &packet[..]].concat(), 4),
        (link::LOOP, [&[0, 0, 0, 2], &packet[..]].concat(), 4),
    ] {
        let headers = Headers::of(&bytes, bytes.len() as u32, link_type);
        assert_eq!((headers.l3(), headers.l4(), headers.family()), (l3, l3 + 20, Family::V4), "link type {link_type}");
        assert!(!headers.malformed());
    }
    let unknown = Headers::of(&packet, 60, 147);
    assert_eq!((unknown.family(), unknown.l3(), unknown.link()), (Family::Other, 0, link::UNDERSTOOD.len()));
    for (i, link_type) in link::UNDERSTOOD.into_iter().enumerate() {
        assert_eq!(Headers::of(&packet[..8], 60, link_type).link(), i, "link type {link_type}");
    }
}

/// The smallest fragment of RFC 791 has eight bytes: the TCP ports, but not the remaining TCP header.
#[test]
fn a_first_fragment_shorter_than_its_header_has_ports_if_they_fit() {
    let whole = built(Frame::tcp4([10, 0, 0, 1], 40_000, [10, 0, 0, 2], 8080).fragment(1, 0, true));
    for (carried, l4) in [(8, 34), (4, 34), (2, 0)] {
        let mut bytes = whole[..34 + carried].to_vec();
        bytes[17] = 20 + carried as u8;
        // In a frame of 60 bytes the packet is followed by padding.
        for len in [bytes.len(), 60] {
            bytes.resize(len, 0xff);
            let headers = Headers::of(&bytes, len as u32, link::ETHERNET);
            assert_eq!(
                (headers.l4(), headers.fragment()),
                (l4, Fragment::First),
                "{carried} bytes in a frame of {len}"
            );
            assert!(!headers.malformed());
        }
    }
}

/// Computes the same result with the header views, one header at a time. The function is only for frames that are not
/// malformed.
fn by_views(frame: &[u8], link_type: u16) -> (usize, usize, Family, Option<IpProtocol>, Fragment, Option<u16>) {
    let (mut at, mut ethertype, mut vlan) = (0, mpls::payload_ethertype(frame[0]), None);
    if link_type == link::ETHERNET {
        (at, ethertype) = (14, Ethernet::parse(frame, 0).unwrap().ethertype());
        while ethertype.is_vlan() {
            let tag = VlanTag::parse(frame, at).unwrap();
            vlan = vlan.or(Some(tag.id()));
            (at, ethertype) = (at + 4, tag.ethertype());
        }
        while ethertype.is_mpls() {
            let label = mpls::Label::parse(frame, at).unwrap();
            at += 4;
            if label.bottom {
                ethertype = mpls::payload_ethertype(frame[at]);
            }
        }
    }
    // The offset of the payload is the number of bytes before it.
    let offset = |payload: &[u8], end: usize| if payload.is_empty() { 0 } else { end - payload.len() };
    match ethertype {
        EtherType::IPV4 => {
            let ip = Ipv4::parse(frame, at).unwrap();
            let later = ip.fragment() == Fragment::Later;
            let l4 = if later { 0 } else { offset(ip.payload(), at + usize::from(ip.total_len())) };
            (at, l4, Family::V4, Some(ip.protocol()), ip.fragment(), vlan)
        }
        EtherType::IPV6 => {
            let ip = Ipv6::parse(frame, at).unwrap();
            let upper = ip.upper();
            let l4 = offset(upper.payload.unwrap_or_default(), at + 40 + usize::from(ip.payload_len()));
            (at, l4, Family::V6, Some(upper.protocol), upper.fragment, vlan)
        }
        _ => (if at < frame.len() { at } else { 0 }, 0, Family::Other, None, Fragment::Whole, vlan),
    }
}

#[test]
fn the_header_pass_and_the_views_agree() {
    let seed = testkit::seed("the_header_pass_and_the_views_agree");
    let mut prng = Prng::new(seed);
    for round in 0..common::rounds(50_000) {
        let made = common::frame(&mut prng);
        let h = Headers::of(&made.bytes, made.bytes.len() as u32, made.link_type);
        let one_pass = (h.l3().into(), h.l4().into(), h.family(), h.protocol(), h.fragment(), h.vlan());
        assert_eq!(one_pass, by_views(&made.bytes, made.link_type), "seed {seed}, round {round}: {made:02x?}");
        assert_eq!(h.vlan(), made.tags.first().copied());
    }
}

#[test]
fn offsets_are_inside_the_frame_for_random_bytes() {
    let seed = testkit::seed("offsets_are_inside_the_frame_for_random_bytes");
    let mut prng = Prng::new(seed);
    for round in 0..common::rounds(100_000) {
        let mut bytes = common::frame(&mut prng).bytes;
        match prng.below(3) {
            0 => prng.fill(&mut bytes),
            1 => common::damage(&mut prng, &mut bytes),
            _ => bytes.truncate(prng.below(bytes.len() as u64 + 1) as usize),
        }
        let link_type = [link::ETHERNET, link::RAW_IP, link::LINUX_SLL, link::LINUX_SLL2, 9][prng.below(5) as usize];
        let wire = [0, bytes.len() as u32, 1500, u32::MAX][prng.below(4) as usize];
        let h = Headers::of(&bytes, wire, link_type);
        let context = format!("seed {seed}, round {round}, wire {wire}, link {link_type}: {h:?} of {bytes:02x?}");
        assert!(h.l3() == 0 || usize::from(h.l3()) < bytes.len(), "{context}");
        assert!(h.l4() == 0 || usize::from(h.l4()) < bytes.len() && h.l4() > h.l3(), "{context}");
        let fixed = match h.family() {
            Family::Other => 0,
            Family::V4 => 20,
            Family::V6 => 40,
        };
        assert!(usize::from(h.l3()) + fixed <= bytes.len(), "{context}");
    }
}
