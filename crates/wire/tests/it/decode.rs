//! `Decoded::of` for every encapsulation, with frames made by hand.

use crate::common;

use common::{built, decoded as of};
use netgrain_wire::build::{Frame, tunnel};
use netgrain_wire::{
    DecodeError, Decoded, EtherType, Family, Fragment, IpProtocol, MAX_TUNNELS, Port, Tunnel, TunnelKind, link,
};

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];
const LEFT: [u8; 4] = [192, 0, 2, 1];
const RIGHT: [u8; 4] = [192, 0, 2, 2];
const SIX: [[u16; 8]; 2] = [[0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2]];
const TEREDO: [[u16; 8]; 2] = [[0x2001, 0, 1, 2, 3, 4, 5, 6], [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2]];

/// The inner frame of all tests; the decoder must find its ports and its nine bytes of payload.
fn inner() -> Frame<'static> {
    Frame::udp4(A, 5000, B, 53).payload(b"the inner")
}

fn inner6() -> Frame<'static> {
    Frame::udp6(SIX[0], 5000, SIX[1], 53).payload(b"the inner")
}

fn in_udp(port: u16, parts: &[&[u8]]) -> Vec<u8> {
    built(Frame::udp4(LEFT, 50_000, RIGHT, port).payload(&parts.concat()))
}

fn in_ip(protocol: IpProtocol, parts: &[&[u8]]) -> Vec<u8> {
    built(Frame::ip4(LEFT, RIGHT, protocol).payload(&parts.concat()))
}

fn in_ip6(protocol: IpProtocol, parts: &[&[u8]]) -> Vec<u8> {
    built(Frame::ip6(SIX[1], SIX[0], protocol).payload(&parts.concat()))
}

fn in_ethernet(ethertype: EtherType, parts: &[&[u8]]) -> Vec<u8> {
    built(Frame::ethernet(ethertype).payload(&parts.concat()))
}

/// Asserts that the decoder found the inner flow without a decode error and with the correct offsets.
fn assert_inner(what: &str, frame: &[u8], expected: Option<(TunnelKind, u32, Option<u32>)>) -> Decoded {
    let d = of(frame);
    assert_eq!((d.src_port, d.dst_port, d.protocol), (Port(5000), Port(53), IpProtocol::UDP), "{what}: {d:?}");
    assert_eq!((d.error, d.malformed, d.fragment), (None, false, Fragment::Whole), "{what}");
    assert_eq!(d.tunnel.map(|t| (t.kind, t.id, t.sequence)), expected, "{what}");
    assert_eq!(&frame[usize::from(d.payload)..][..d.payload_len as usize], b"the inner", "{what}");
    let header = if d.family == Family::V4 { 20 } else { 40 };
    assert_eq!((d.ip_len, d.l4, d.payload), (header + 17, d.l3 + header as u16, d.l4 + 8), "{what}");
    d
}

/// Asserts that the decoder reports the outer flow with this decode error.
fn assert_outer(what: &str, frame: &[u8], error: Option<DecodeError>) {
    let d = of(frame);
    assert_eq!((d.error, d.tunnel, d.depth), (error, None, 0), "{what}");
    let bytes = &frame[usize::from(d.l3)..];
    let outer = if d.family == Family::V4 { bytes[12..16] == LEFT } else { bytes[9] == 1 };
    assert!(outer, "{what}: not the outer addresses: {d:?}");
    assert_eq!(d.malformed, error.is_some_and(DecodeError::is_malformed), "{what}");
}

#[test]
fn other_udp_on_a_tunnel_port_is_decoded_as_udp() {
    let plain = built(inner());
    let packet = built(inner().raw());
    let vxlan = tunnel::vxlan(7);
    let with = |at: usize, value: u8| {
        let mut header = vxlan;
        header[at] = value;
        in_udp(4789, &[&header, &plain])
    };
    let mut wrong_length = plain.clone();
    wrong_length[17] += 1;
    let geneve = tunnel::geneve(EtherType::BRIDGED, 7, &[]);
    let gtp = tunnel::gtp_u(7, None, &[], packet.len());
    let changed = |header: &[u8], at: usize, value: u8| {
        let mut header = header.to_vec();
        header[at] = value;
        header
    };
    for (what, frame) in [
        ("VXLAN without its flag", with(0, 0)),
        ("VXLAN-GPE with a payload that is not IP", {
            let mut header = vxlan;
            (header[0], header[3]) = (0x0c, 4);
            in_udp(4790, &[&header, &plain])
        }),
        ("VXLAN shorter than its header", in_udp(4789, &[&[8, 0, 0]])),
        ("VXLAN with a packet longer than its datagram", in_udp(4789, &[&vxlan, &wrong_length])),
        ("GENEVE of another version", in_udp(6081, &[&changed(&geneve, 0, 0x40), &plain])),
        ("GENEVE with reserved bits", in_udp(6081, &[&changed(&geneve, 1, 1), &plain])),
        ("GENEVE with more options than bytes", in_udp(6081, &[&changed(&geneve, 0, 0x3f), &plain])),
        ("GTP version 2", in_udp(2152, &[&changed(&gtp, 0, 0x48), &packet])),
        ("GTP'", in_udp(2152, &[&changed(&gtp, 0, 0x20), &packet])),
        ("GTP-U longer than its datagram", in_udp(2152, &[&changed(&gtp, 3, 99), &packet])),
        ("GTP-U with a payload that is not IP", in_udp(2152, &[&gtp, &vec![0x55; packet.len()]])),
        ("Teredo with IPv4", in_udp(3544, &[&packet])),
        ("Teredo without a Teredo address", in_udp(3544, &[&built(inner6().raw())])),
        ("Teredo with trailing bytes", in_udp(3544, &[&built(Frame::udp6(TEREDO[0], 1, TEREDO[1], 2).raw()), &[0]])),
        ("GRE over UDP with a source route", in_udp(4754, &[&[0x40, 0, 8, 0], &packet])),
        ("DNS on the port of VXLAN", in_udp(4789, &[b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03www"])),
    ] {
        assert_outer(what, &frame, Some(DecodeError::TunnelImplausible));
        assert_eq!(of(&frame).payload, 42, "{what}");
    }
    let mut echo = tunnel::gtp_u(0, Some(1), &[], 0);
    echo[1] = 1;
    assert_outer("an echo request of GTP-U", &in_udp(2152, &[&echo]), None);
    let reply = built(Frame::udp4(LEFT, 4789, RIGHT, 50_000).payload(&[&vxlan[..], &plain].concat()));
    assert_outer("from the port of VXLAN", &reply, None);
}

#[test]
fn a_tunnel_packet_without_ip_belongs_to_the_outer_flow() {
    let arp = built(Frame::ethernet(EtherType::ARP).payload(&[0; 28]));
    let gre = |flags: u16, ethertype: EtherType| [flags.to_be_bytes(), ethertype.0.to_be_bytes()].concat();
    let not_ip = Some(DecodeError::TunnelNotIp);
    assert_outer("ARP in VXLAN", &in_udp(4789, &[&tunnel::vxlan(1), &arp]), not_ip);
    assert_outer("ARP in GENEVE", &in_udp(6081, &[&tunnel::geneve(EtherType::BRIDGED, 1, &[]), &arp]), not_ip);
    assert_outer("a keepalive of GRE", &in_ip(IpProtocol::GRE, &[&gre(0, EtherType(0))]), not_ip);
    assert_outer(
        "a source route in GRE",
        &in_ip(IpProtocol::GRE, &[&gre(0x4000, EtherType::IPV4)]),
        Some(DecodeError::TunnelHeader),
    );
    assert_outer(
        "GRE version 2",
        &in_ip(IpProtocol::GRE, &[&gre(2, EtherType::IPV4)]),
        Some(DecodeError::TunnelHeader),
    );
    assert_outer(
        "GRE without its key",
        &in_ip(IpProtocol::GRE, &[&gre(0x2000, EtherType::IPV4)]),
        Some(DecodeError::TransportShort),
    );
    let six = built(inner6().raw());
    assert_outer(
        "IPv6 with the protocol number of IPv4",
        &in_ip(IpProtocol::IPV4, &[&six]),
        Some(DecodeError::IpVersion),
    );
    assert_outer("IPv4 in IPv6, too short", &in_ip6(IpProtocol::IPV4, &[&six[..19]]), Some(DecodeError::LinkShort));
}

#[test]
fn fragments_of_a_tunnel_packet_are_not_decoded_further() {
    let packet = [&tunnel::gre(EtherType::IPV4, None, None, None)[..], &built(inner().raw())].concat();
    for (offset, more) in [(0, true), (8, false)] {
        let frame = Frame::ip4(LEFT, RIGHT, IpProtocol::GRE).fragment(1, offset, more).payload(&packet);
        assert_outer("GRE", &built(frame), Some(DecodeError::TunnelFragment));
    }
}

#[test]
fn each_encapsulation_leads_to_the_inner_flow() {
    use IpProtocol as P;
    use TunnelKind as T;
    let (plain, packet, packet6) = (built(inner()), built(inner().raw()), built(inner6().raw()));
    let gre = |ethertype, sum, key, sequence| tunnel::gre(ethertype, sum, key, sequence);
    let ppp = [&[0x30, 0x81, 0x88, 0x0b][..], &[0, 0, 0, 9, 0, 0, 0, 5, 0, 0, 0, 4], &[0xff, 3, 0, 0x21]].concat();
    let ppp_short = [&[0x30, 0x01, 0x88, 0x0b][..], &[0, 0, 0, 9, 0, 0, 0, 5], &[0x21]].concat();
    let (tagged, labelled) = (built(inner().tag(EtherType::QINQ, 3)), built(inner().label(99)));
    let mut erspan3 = tunnel::erspan3(44).to_vec();
    let mut subheader = erspan3.clone();
    subheader[11] |= 1;
    subheader.extend([0; 8]);
    let mut policy = tunnel::vxlan(5);
    policy[..4].copy_from_slice(&[0x88, 0x40, 0x12, 0x34]);
    let (mut typed, mut bare) = (tunnel::vxlan(6), tunnel::vxlan(7));
    (typed[0], typed[3], bare[0], bare[3]) = (0x0c, 3, 0x0c, 2);
    let mut reserved = [8, 9, 10, 11, 12, 13].map(tunnel::vxlan);
    // RFC 7348, section 5: reserved bits are ignored when received.
    (reserved[0][0], reserved[1][2], reserved[2][7], reserved[3][0]) = (0xfb, 1, 1, 0x0c);
    (reserved[4][0], reserved[4][3], reserved[5][0], reserved[5][3]) = (0x0c, 1, 0x0c, 4);
    let container = [(0x85, &[1, 2][..]), (0xc0, &[0; 6])];

    for (what, frame, expected) in [
        ("GRE", in_ip(P::GRE, &[&gre(EtherType::IPV4, None, None, None), &packet]), (T::Gre, 0, None)),
        ("GRE, IPv6", in_ip(P::GRE, &[&gre(EtherType::IPV6, None, Some(8), None), &packet6]), (T::Gre, 8, None)),
        ("GRE, all", in_ip(P::GRE, &[&gre(EtherType::IPV4, Some(1), Some(2), Some(3)), &packet]), (T::Gre, 2, Some(3))),
        ("GRE over IPv6", in_ip6(P::GRE, &[&gre(EtherType::IPV4, None, None, None), &packet]), (T::Gre, 0, None)),
        ("GRE, Ethernet", in_ip(P::GRE, &[&gre(EtherType::BRIDGED, None, None, None), &plain]), (T::Gre, 0, None)),
        ("GRE, MPLS", in_ip(P::GRE, &[&gre(EtherType::MPLS, None, None, None), &labelled[14..]]), (T::Gre, 0, None)),
        ("GRE over UDP", in_udp(4754, &[&gre(EtherType::IPV4, None, Some(1), None), &packet]), (T::Gre, 1, None)),
        ("PPTP", in_ip(P::GRE, &[&ppp, &packet]), (T::Gre, 9, Some(5))),
        ("PPTP, compressed", in_ip(P::GRE, &[&ppp_short, &packet]), (T::Gre, 9, Some(5))),
        (
            "NVGRE",
            in_ip(P::GRE, &[&gre(EtherType::BRIDGED, None, Some(0xabcd01), None), &plain]),
            (T::Nvgre, 0xabcd, None),
        ),
        ("ERSPAN I", in_ip(P::GRE, &[&gre(EtherType::ERSPAN, None, None, None), &plain]), (T::Erspan1, 0, None)),
        (
            "ERSPAN II",
            in_ip(P::GRE, &[&gre(EtherType::ERSPAN, None, None, Some(6)), &tunnel::erspan2(1023), &plain]),
            (T::Erspan2, 1023, Some(6)),
        ),
        (
            "ERSPAN III",
            in_ip(P::GRE, &[&gre(EtherType::ERSPAN3, None, None, Some(6)), &erspan3, &tagged]),
            (T::Erspan3, 44, Some(6)),
        ),
        (
            "ERSPAN III with a subheader",
            in_ip(P::GRE, &[&gre(EtherType::ERSPAN3, None, None, Some(7)), &subheader, &plain]),
            (T::Erspan3, 44, Some(7)),
        ),
        ("VXLAN", in_udp(4789, &[&tunnel::vxlan(0xffffff), &plain]), (T::Vxlan, 0xffffff, None)),
        ("VXLAN, Linux", in_udp(8472, &[&tunnel::vxlan(4), &tagged]), (T::Vxlan, 4, None)),
        ("VXLAN, group policy", in_udp(4789, &[&policy, &plain]), (T::Vxlan, 5, None)),
        ("GENEVE", in_udp(6081, &[&tunnel::geneve(EtherType::BRIDGED, 9, &[1; 12]), &plain]), (T::Geneve, 9, None)),
        ("VXLAN, reserved flags", in_udp(4789, &[&reserved[0], &plain]), (T::Vxlan, 8, None)),
        ("VXLAN, reserved bytes", in_udp(4789, &[&reserved[1], &plain]), (T::Vxlan, 9, None)),
        ("VXLAN, last byte", in_udp(4789, &[&reserved[2], &plain]), (T::Vxlan, 10, None)),
        ("VXLAN, a flag without a type", in_udp(4789, &[&reserved[3], &plain]), (T::Vxlan, 11, None)),
        ("VXLAN, a flag and a type of VXLAN-GPE", in_udp(4789, &[&reserved[4], &plain]), (T::Vxlan, 12, None)),
        ("VXLAN, Linux, a flag and a type other than IP", in_udp(8472, &[&reserved[5], &plain]), (T::Vxlan, 13, None)),
        ("VXLAN-GPE", in_udp(4790, &[&typed, &plain]), (T::Vxlan, 6, None)),
        ("VXLAN-GPE, IPv6", in_udp(4790, &[&bare, &packet6]), (T::Vxlan, 7, None)),
        ("GENEVE, IP", in_udp(6081, &[&tunnel::geneve(EtherType::IPV6, 9, &[]), &packet6]), (T::Geneve, 9, None)),
        ("GTP-U", in_udp(2152, &[&tunnel::gtp_u(1 << 31, None, &[], packet.len()), &packet]), (T::GtpU, 1 << 31, None)),
        (
            "GTP-U, sequence",
            in_udp(2152, &[&tunnel::gtp_u(3, Some(8), &[], packet6.len()), &packet6]),
            (T::GtpU, 3, Some(8)),
        ),
        (
            "GTP-U, extensions",
            in_udp(2152, &[&tunnel::gtp_u(3, None, &container, packet.len()), &packet]),
            (T::GtpU, 3, None),
        ),
        ("4in4", in_ip(P::IPV4, &[&packet]), (T::IpInIp, 0, None)),
        ("6in4", in_ip(P::IPV6, &[&packet6]), (T::IpInIp, 0, None)),
        ("4in6", in_ip6(P::IPV4, &[&packet]), (T::IpInIp, 0, None)),
        ("6in6", in_ip6(P::IPV6, &[&packet6]), (T::IpInIp, 0, None)),
    ] {
        let d = assert_inner(what, &frame, Some(expected));
        assert_eq!((d.depth, d.tunnel.map(|t| t.outer_l3)), (1, Some(14)), "{what}");
        let ethernet = d.l2.is_some_and(|at| frame[usize::from(at) + 6..][..6] == [2, 0, 0, 0, 0, 1]);
        let carries_ethernet = frame.len() > usize::from(d.l3) && frame.windows(plain.len()).any(|w| w == plain)
            || frame.windows(tagged.len()).any(|w| w == tagged);
        assert_eq!(ethernet, carries_ethernet, "{what}: {:?}", d.l2);
    }
    erspan3[10] = 2 << 2;
    let ip = in_ip(P::GRE, &[&gre(EtherType::ERSPAN3, None, None, Some(6)), &erspan3, &packet]);
    assert_eq!(assert_inner("ERSPAN III around IP", &ip, Some((T::Erspan3, 44, Some(6)))).l2, None);
}

#[test]
fn teredo_is_identified_by_its_addresses_after_any_headers_of_a_server() {
    let packet = built(Frame::udp6(TEREDO[0], 5000, TEREDO[1], 53).payload(b"the inner").raw());
    for (authentication, origin) in [(false, false), (true, false), (false, true), (true, true)] {
        let parts = [&tunnel::teredo(authentication, origin)[..], &packet].concat();
        let expected = Some((TunnelKind::Teredo, 0, None));
        assert_inner("to the port", &in_udp(3544, &[&parts]), expected);
        assert_inner("from the port", &built(Frame::udp4(LEFT, 3544, RIGHT, 60_000).payload(&parts)), expected);
    }
    let router =
        built(Frame::icmp6([0xfe80, 0, 0, 0, 0, 0, 0, 1], [0xff02, 0, 0, 0, 0, 0, 0, 2], 133, 0, [0; 4]).raw());
    let d = of(&in_udp(3544, &[&tunnel::teredo(true, false), &router]));
    assert_eq!((d.protocol, d.src_port), (IpProtocol::ICMPV6, Port(133)));
}

#[test]
fn vlan_tags_mpls_labels_and_pppoe_sessions_are_skipped() {
    let (plain, packet, packet6) = (built(inner()), built(inner().raw()), built(inner6().raw()));
    let tags = |n: u16| (1..=n).fold(inner(), |frame, id| frame.tag(EtherType::QINQ, 0x2000 | id));
    assert_eq!(assert_inner("one tag", &built(tags(1)), None).vlans, [Some(1), None]);
    assert_eq!(assert_inner("four tags", &built(tags(4)), None).vlans, [Some(1), Some(2)]);

    let d = assert_inner("labels", &built(tags(1).label(70).label(71)), None);
    assert_eq!((d.mpls, d.vlans, d.l2), (Some(70), [Some(1), None], Some(0)));
    let label = [0, 0x40, 0x01, 64];
    let wire = in_ethernet(EtherType::MPLS, &[&label, &plain]);
    assert_eq!(assert_inner("a pseudowire", &wire, None).l2, Some(18));
    let mut address_like_ip = plain.clone();
    for first in [0x40, 0x45, 0x60] {
        // The inner frame has a destination MAC address that begins like an IP header. The decoder must recognise that
        // the frame is not an IP packet, because the lengths in such a header would be impossible.
        address_like_ip[..6].copy_from_slice(&[first, 1, 0xff, 0xff, 0xff, 0xff]);
        let wire = in_ethernet(EtherType::MPLS, &[&label, &address_like_ip]);
        assert_eq!(
            assert_inner("a pseudowire to an address like an IP header", &wire, None).l2,
            Some(18),
            "{first:#x}"
        );
    }
    let tagged = built(inner().tag(EtherType::VLAN, 9));
    let wire = in_ethernet(EtherType::MPLS, &[&label, &[0; 4], &tagged]);
    let d = assert_inner("a pseudowire with control word", &wire, None);
    assert_eq!((d.l2, d.vlans, d.mpls), (Some(22), [Some(9), None], Some(1024)));

    let mut to_zero = tagged.clone();
    to_zero[..6].copy_from_slice(&[0, 0x1b, 0x21, 1, 2, 3]);
    let d = assert_inner(
        "a pseudowire to an address like a control word",
        &in_ethernet(EtherType::MPLS, &[&label, &to_zero]),
        None,
    );
    assert_eq!((d.l2, d.vlans), (Some(18), [Some(9), None]));

    assert_inner("PPPoE", &in_ethernet(EtherType::PPPOE, &[&tunnel::pppoe(1, 0x21, packet.len()), &packet]), None);
    assert_inner(
        "PPPoE, IPv6",
        &in_ethernet(EtherType::PPPOE, &[&tunnel::pppoe(1, 0x57, packet6.len()), &packet6]),
        None,
    );
    let snap = in_ethernet(EtherType(8 + packet.len() as u16), &[&tunnel::snap(EtherType::IPV4), &packet]);
    assert_eq!(assert_inner("SNAP", &snap, None).l3, 22);
    let foreign = in_ethernet(EtherType(36), &[&[0xaa, 0xaa, 3, 0, 0, 12, 8, 0], &packet[..28]]);
    assert_eq!((of(&foreign).family, of(&foreign).error), (Family::Other, None), "a type of another organisation");
    let lcp = of(&in_ethernet(EtherType::PPPOE, &[&tunnel::pppoe(1, 0xc021, 8), &[0; 8]]));
    assert_eq!((lcp.family, lcp.error), (Family::Other, None), "PPP control is not IP, without a decode error");
}

#[test]
fn the_encapsulation_is_the_one_nearest_to_the_flow() {
    let tagged = built(inner().tag(EtherType::VLAN, 7));
    let around = |inner: &[u8]| {
        let payload = [&tunnel::vxlan(1)[..], inner].concat();
        of(&built(
            Frame::udp4(LEFT, 1, RIGHT, 4789).payload(&payload).tag(EtherType::QINQ, 100).tag(EtherType::VLAN, 200),
        ))
    };
    assert_eq!(around(&tagged).vlans, [Some(7), None]);
    assert_eq!(around(&built(inner())).vlans, [Some(100), Some(200)], "an inner frame without tags has the outer tags");
}

#[test]
fn tunnels_in_tunnels_are_followed_to_the_limit() {
    let mut packet = built(inner().raw());
    for depth in 1..=MAX_TUNNELS + 1 {
        packet = built(Frame::ip4([192, 0, 2, depth], RIGHT, IpProtocol::IPV4).payload(&packet).raw());
        let frame = in_ethernet(EtherType::IPV4, &[&packet]);
        let d = of(&frame);
        let outer_l3 = 14 + 20 * u16::from(depth.min(MAX_TUNNELS) - 1);
        let expected = Tunnel { kind: TunnelKind::IpInIp, id: 0, sequence: None, outer_l3 };
        assert_eq!((d.depth, d.tunnel), (depth.min(MAX_TUNNELS), Some(expected)));
        if depth <= MAX_TUNNELS {
            assert_eq!((d.dst_port, d.error), (Port(53), None));
        } else {
            assert_eq!((d.protocol, d.error), (IpProtocol::IPV4, Some(DecodeError::TunnelsTooMany)));
        }
    }
}

#[test]
fn label_stacks_without_a_bottom_have_their_own_error() {
    let (tag, entry) = ([0, 1, 0x81, 0], [0, 1, 0, 64]);
    assert_eq!(of(&in_ethernet(EtherType::VLAN, &[&tag.repeat(100)])).error, Some(DecodeError::TagsTooMany));
    assert_eq!(of(&in_ethernet(EtherType::MPLS, &[&entry.repeat(100)])).error, Some(DecodeError::LabelsTooMany));
    let chain: Vec<(IpProtocol, &[u8])> = vec![(IpProtocol::DEST_OPTIONS, &[0; 6]); 9];
    let d = of(&built(inner6().extensions(&chain)));
    assert_eq!(
        (d.error, d.family, d.protocol),
        (Some(DecodeError::ExtensionsTooMany), Family::V6, IpProtocol::DEST_OPTIONS)
    );
}

#[test]
fn each_invalid_frame_has_its_error() {
    let with = |frame: Frame<'_>, at: usize, value: u8| {
        let mut bytes = built(frame);
        bytes[at] = value;
        of(&bytes).error
    };
    let tcp = Frame::tcp4(A, 1, B, 2).payload(b"123");
    let icmp = Frame::icmp4(A, B, 8, 0, [0; 4]);
    for (what, error, expected) in [
        ("a runt", of(&[0; 13]).error, DecodeError::LinkShort),
        ("a missing tag", of(&in_ethernet(EtherType::VLAN, &[])).error, DecodeError::LinkShort),
        ("a missing header", of(&in_ethernet(EtherType::IPV4, &[&[0x45; 19]])).error, DecodeError::LinkShort),
        (
            "PPPoE version 2",
            of(&in_ethernet(EtherType::PPPOE, &[&[0x22, 0, 0, 0, 0, 2, 0, 0x21]])).error,
            DecodeError::PppoeHeader,
        ),
        (
            "PPPoE too long",
            of(&in_ethernet(EtherType::PPPOE, &[&[0x11, 0, 0, 0, 0, 3, 0, 0x21]])).error,
            DecodeError::PppoeHeader,
        ),
        ("version of IPv4", with(tcp, 14, 0x65), DecodeError::IpVersion),
        ("IHL below 5", with(tcp, 14, 0x44), DecodeError::IpHeader),
        ("total length beyond the frame", with(tcp, 16, 1), DecodeError::IpLength),
        ("total length below the header", with(tcp, 17, 19), DecodeError::IpLength),
        ("too short for TCP", with(tcp, 17, 39), DecodeError::TransportShort),
        ("too short for ICMP", with(icmp, 17, 27), DecodeError::TransportShort),
        ("TCP offset below 5", with(tcp, 46, 0x40), DecodeError::TransportLength),
        ("TCP offset beyond the packet", with(tcp, 46, 0x60), DecodeError::TransportLength),
        ("UDP length below 8", with(inner(), 39, 7), DecodeError::TransportLength),
        ("UDP length beyond the packet", with(inner(), 39, 18), DecodeError::TransportLength),
        (
            "an extension beyond the packet",
            with(inner6().extensions(&[(IpProtocol::ROUTING, &[])]), 55, 99),
            DecodeError::ExtensionLength,
        ),
        ("an unknown link", Decoded::of(&[0; 60], 60, 147).error, DecodeError::LinkUnknown),
        ("raw IP of version 1", Decoded::of(&[0x15], 1, link::RAW_IP).error, DecodeError::IpVersion),
        ("a capture of 40 bytes", Decoded::of(&built(tcp)[..40], 57, link::ETHERNET).error, DecodeError::Cut),
    ] {
        assert_eq!(error, Some(expected), "{what}");
    }
}

#[test]
fn contradictions_take_precedence_over_rare_cases() {
    let mut packet = built(inner().raw());
    packet[25] += 1;
    let mut frame = in_ip(IpProtocol::IPV4, &[&packet]);
    let d = of(&frame);
    assert_eq!((d.error, d.malformed, d.depth), (Some(DecodeError::TransportLength), true, 1), "inner UDP is too long");
    frame[16] = 1;
    assert_eq!(of(&frame).error, Some(DecodeError::IpLength), "the outer error takes precedence");
}

#[test]
fn the_payload_length_counts_bytes_on_the_wire() {
    let carried = |frame: &[u8], wire: u32| {
        let d = Decoded::of(frame, wire, link::ETHERNET);
        (d.payload, d.payload_len, d.ip_len)
    };
    let body = [1; 1000];
    let tcp = built(Frame::tcp4(A, 1, B, 2).tcp_options(&[1; 12]).payload(&body));
    assert_eq!(carried(&tcp, 1066), (66, 1000, 1052));
    assert_eq!(carried(&tcp[..64], 1066), (0, 1000, 1052), "truncated before the payload");
    assert_eq!(carried(&tcp[..47], 1066), (0, 1000, 1052), "truncated within the header, after its length");
    let mut padded = built(Frame::tcp4(A, 1, B, 2));
    padded.resize(60, 0);
    assert_eq!(carried(&padded, 60), (0, 0, 40), "padding is no payload");
    let esp = built(Frame::ip4(A, B, IpProtocol::ESP).payload(&body));
    assert_eq!(carried(&esp, 1034), (34, 1000, 1020), "for an unknown protocol everything is payload");
    let whole = built(inner());
    let part = |offset, more| {
        let frame = Frame::ip4(A, B, IpProtocol::UDP).fragment(1, offset, more).payload(&whole[34..]);
        carried(&built(frame), 51)
    };
    assert_eq!(part(0, true), (42, 9, 37));
    assert_eq!(part(80, false), (34, 17, 37));
}

#[test]
fn every_link_type_leads_to_the_same_packet() {
    let packet = built(inner().raw());
    for (link_type, head, protocol_at) in
        [(link::LINUX_SLL, 16, 14), (link::LINUX_SLL2, 20, 0), (link::RAW_IP, 0, 0), (link::RAW_IPV4, 0, 0)]
    {
        let mut bytes = vec![0; head];
        bytes.extend(&packet);
        if head > 0 {
            bytes[protocol_at..][..2].copy_from_slice(&[8, 0]);
        }
        let d = Decoded::of(&bytes, bytes.len() as u32, link_type);
        assert_eq!(
            (usize::from(d.l3), d.l2, d.dst_port, d.error),
            (head, None, Port(53), None),
            "link type {link_type}"
        );
    }
    for (link_type, family) in [(link::NULL, [2, 0, 0, 0]), (link::NULL, [0, 0, 0, 2]), (link::LOOP, [0, 0, 0, 2])] {
        let bytes = [&family[..], &packet].concat();
        let d = Decoded::of(&bytes, bytes.len() as u32, link_type);
        assert_eq!((d.l3, d.dst_port, d.error), (4, Port(53), None), "link type {link_type} {family:?}");
    }
}
