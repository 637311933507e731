//! Defines the functions of the language that are predicates, combinators of predicates, properties or comparators.

use super::row::row;
use super::value::Value;
use super::{Arguments, EvaluationError, Function, within};
use crate::term::{Endpoint, Gtp, HeaderField, Pred, Prop, Voip};
use ir::Prefix;
use ir::{Cmp, Effect, Op};
use std::net::{Ipv4Addr, Ipv6Addr};

pub const TCP_HEADER: u32 = 20;
pub const UDP_HEADER: u32 = 8;
/// Length of type, code and checksum in bytes: the part that all ICMP messages share.
pub const ICMP_HEADER: u32 = 4;

fn pred<'a>(p: Pred) -> Result<Value<'a>, EvaluationError> {
    Ok(Value::Pred(p))
}

fn transport<'a>(version: Option<u8>, protocols: &'static [u8], header: u32) -> Result<Value<'a>, EvaluationError> {
    pred(Pred::Transport(version, protocols, header))
}

fn either(a: Pred, b: Pred) -> Pred {
    Pred::Or(Box::new(a), Box::new(b))
}

pub fn voip() -> Pred {
    either(Pred::Voip(Voip::Sip), either(Pred::Voip(Voip::Rtp), Pred::Voip(Voip::Rtcp)))
}

pub fn ip_broadcast() -> Pred {
    Pred::Address(Endpoint::Any, Prefix::new(Ipv4Addr::BROADCAST.into(), 32).into_iter().collect())
}

pub fn ip_multicast() -> Pred {
    let groups = [
        Prefix::new(Ipv4Addr::new(224, 0, 0, 0).into(), 4),
        Prefix::new(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0).into(), 8),
    ];
    Pred::Address(Endpoint::Any, groups.into_iter().flatten().collect())
}

pub fn incoming_host() -> Pred {
    // The group bit is set in the broadcast address too.
    either(Pred::Host(Endpoint::Any), Pred::Mac { end: Endpoint::Dst, broadcast: false })
}

pub fn vlan_ids(ids: &[Value<'_>]) -> Result<Pred, EvaluationError> {
    let mut out = Vec::new();
    for id in ids {
        match id {
            Value::Int(-1) => return Ok(Pred::Vlan(vec![])),
            Value::Int(n) => out.push(within(*n, 4095)? as u16),
            _ => return Err(EvaluationError::Type("VLAN ids")),
        }
    }
    if out.is_empty() { Ok(Pred::Always(false)) } else { Ok(Pred::Vlan(out)) }
}

pub fn bloom(end: Endpoint, g: &Arguments<'_, '_>) -> Result<Pred, EvaluationError> {
    g.number(0, 1 << 40)?;
    let bits = g.number(2, 128)? as u8;
    let nets = g.list(1)?.iter().map(|v| match v {
        Value::Net(net) => {
            let most = if net.is_v4() { 32 } else { 128 };
            Prefix::new(net.address(), bits.min(most))
                .ok_or(EvaluationError::PrefixLength { address: net.address(), bits: bits.into() })
        }
        _ => Err(EvaluationError::Type("addresses")),
    });
    Ok(Pred::Address(end, nets.collect::<Result<_, _>>()?))
}

fn port<'a>(end: Endpoint, g: &Arguments<'_, 'a>) -> Result<Value<'a>, EvaluationError> {
    let port = g.number(0, 65_535)? as u16;
    pred(Pred::Port(end, port, port))
}

fn ethertype<'a>(ethertype: u16) -> Result<Value<'a>, EvaluationError> {
    pred(Pred::EtherType(ethertype))
}

const NONE: &[Effect] = &[];

pub const PREDICATES: &[Function] = &[
    row!("is_ip", "Pred", NONE, "The packet is IPv4 or IPv6.", |_| pred(Pred::Ip(None))),
    row!("is_ip4", "Pred", NONE, "The packet is IPv4.", |_| pred(Pred::Ip(Some(4)))),
    row!("is_ip6", "Pred", NONE, "The packet is IPv6.", |_| pred(Pred::Ip(Some(6)))),
    row!("is_tcp", "Pred", NONE, "The packet is TCP with a complete header.", |_| transport(None, &[6], TCP_HEADER)),
    row!("is_udp", "Pred", NONE, "The packet is UDP with a complete header.", |_| transport(None, &[17], UDP_HEADER)),
    row!("is_icmp", "Pred", NONE, "The packet is ICMP or ICMPv6.", |_| transport(None, &[1, 58], ICMP_HEADER)),
    row!("is_tcp6", "Pred", NONE, "The packet is TCP over IPv6.", |_| transport(Some(6), &[6], TCP_HEADER)),
    row!("is_udp6", "Pred", NONE, "The packet is UDP over IPv6.", |_| transport(Some(6), &[17], UDP_HEADER)),
    row!("is_icmp6", "Pred", NONE, "The packet is ICMPv6.", |_| transport(Some(6), &[58], ICMP_HEADER)),
    row!("is_flow", "Pred", NONE, "The packet is TCP or UDP.", |_| transport(None, &[6, 17], UDP_HEADER)),
    row!("is_frag", "Pred", NONE, "The packet is a fragment.", |_| pred(Pred::Fragment(true, true))),
    row!("is_first_frag", "Pred", NONE, "The packet is the first fragment of a datagram.", |_| pred(Pred::Fragment(
        true, false
    ))),
    row!("is_more_frag", "Pred", NONE, "The packet is a later fragment.", |_| pred(Pred::Fragment(false, true))),
    row!("is_l3_proto", "Int -> Pred", NONE, "The packet has this ethertype.", |g| pred(Pred::EtherType(
        g.number(0, 65_535)? as u16
    ))),
    row!("is_l4_proto", "Int -> Pred", NONE, "The packet has this protocol above IP.", |g| pred(Pred::Protocol(
        g.number(0, 255)? as u8
    ))),
    row!(
        "has_port",
        "Int -> Pred",
        NONE,
        "The packet is TCP, UDP or SCTP with this source or destination port.",
        |g| port(Endpoint::Any, g)
    ),
    row!("has_src_port", "Int -> Pred", NONE, "The packet is TCP, UDP or SCTP with this source port.", |g| port(
        Endpoint::Src,
        g
    )),
    row!("has_dst_port", "Int -> Pred", NONE, "The packet is TCP, UDP or SCTP with this destination port.", |g| port(
        Endpoint::Dst,
        g
    )),
    row!("has_port_range", "Int -> Int -> Pred", NONE, "The source or destination port is in this range.", |g| pred(
        Pred::Port(Endpoint::Any, g.number(0, 65_535)? as u16, g.number(1, 65_535)? as u16)
    )),
    row!(
        "flow_port",
        "Int -> Pred",
        &[Effect::Tunnel, Effect::Datagram],
        "The innermost packet has this source or destination port; a later fragment has the ports of its first \
         fragment.",
        |g| match g.number(0, 65_535)? {
            0 => Err(EvaluationError::FlowPort),
            port => pred(Pred::FlowPort(Endpoint::Any, port as u16)),
        }
    ),
    row!("has_addr", "Net -> Pred", NONE, "The source or destination address is in this network.", |g| pred(
        Pred::Address(Endpoint::Any, vec![g.net(0)?])
    )),
    row!("has_src_addr", "Net -> Pred", NONE, "The source address is in this network.", |g| pred(Pred::Address(
        Endpoint::Src,
        vec![g.net(0)?]
    ))),
    row!("has_dst_addr", "Net -> Pred", NONE, "The destination address is in this network.", |g| pred(Pred::Address(
        Endpoint::Dst,
        vec![g.net(0)?]
    ))),
    row!("has_addr_in", "[Net] -> Pred", NONE, "The source or destination address is in one of these networks.", |g| {
        let nets = g
            .list(0)?
            .iter()
            .map(|v| if let Value::Net(n) = v { Ok(*n) } else { Err(EvaluationError::Type("networks")) });
        pred(Pred::Address(Endpoint::Any, nets.collect::<Result<_, _>>()?))
    }),
    row!("has_vlan", "Pred", NONE, "The frame has a VLAN tag.", |_| pred(Pred::Vlan(vec![]))),
    row!("has_vid", "Int -> Pred", NONE, "The outermost VLAN tag has this id.", |g| pred(Pred::Vlan(vec![
        g.number(0, 4095)? as u16
    ]))),
    row!("vlan_id", "[Int] -> Pred", NONE, "The outermost VLAN tag has one of these ids; -1 means any id.", |g| pred(
        vlan_ids(g.list(0)?)?
    )),
    row!("has_mark", "Int -> Pred", NONE, "The packet has this mark.", |g| pred(Pred::Compare(
        Prop::Mark,
        Cmp::Eq,
        g.number(0, u32::MAX.into())?
    ))),
    row!("has_state", "Int -> Pred", NONE, "The state of the packet, which `put_state` sets, is this number.", |g| {
        pred(Pred::Compare(Prop::State, Cmp::Eq, g.number(0, u32::MAX.into())?))
    }),
    row!(
        "bloom",
        "Int -> [Net] -> Int -> Pred",
        NONE,
        "The source or destination address is in this list; the last number is the prefix length that is compared. \
         The set is exact; the first number, the size, is ignored.",
        |g| pred(bloom(Endpoint::Any, g)?)
    ),
    row!(
        "bloom_src",
        "Int -> [Net] -> Int -> Pred",
        NONE,
        "The source address is in this list; the numbers are those of `bloom`.",
        |g| pred(bloom(Endpoint::Src, g)?)
    ),
    row!(
        "bloom_dst",
        "Int -> [Net] -> Int -> Pred",
        NONE,
        "The destination address is in this list; the numbers are those of `bloom`.",
        |g| pred(bloom(Endpoint::Dst, g)?)
    ),
    row!("is_broadcast", "Pred", NONE, "The source or destination link address is the broadcast address.", |_| pred(
        Pred::Mac { end: Endpoint::Any, broadcast: true }
    )),
    row!("is_multicast", "Pred", NONE, "The source or destination link address is a multicast address.", |_| pred(
        Pred::Mac { end: Endpoint::Any, broadcast: false }
    )),
    row!("is_ip_broadcast", "Pred", NONE, "The source or destination address is 255.255.255.255.", |_| pred(
        ip_broadcast()
    )),
    row!(
        "is_ip_multicast",
        "Pred",
        NONE,
        "The source or destination address is in 224.0.0.0/4 or ff00::/8.",
        |_| pred(ip_multicast())
    ),
    row!(
        "is_ip_host",
        "Pred",
        &[Effect::Local],
        "The source or destination address is an address of the interface on which the packet arrived.",
        |_| pred(Pred::Host(Endpoint::Any))
    ),
    row!(
        "is_incoming_host",
        "Pred",
        &[Effect::Local],
        "The source or destination address is an address of the interface on which the packet arrived, or the \
         destination link address is a broadcast or multicast address.",
        |_| pred(incoming_host())
    ),
    row!("is_incoming", "Pred", NONE, "The packet arrived at the interface; this host did not send it.", |_| pred(
        Pred::Not(Pred::Outgoing.into())
    )),
    row!(
        "is_outgoing",
        "Pred",
        NONE,
        "This host sent the packet through the interface. A program with neither `is_incoming` nor `is_outgoing` \
         forwards only packets that arrived.",
        |_| pred(Pred::Outgoing)
    ),
    row!(
        "is_duplicate",
        "Text -> Pred",
        &[Effect::Local],
        "The capture marked the packet as a copy of this class: `switching`, `routing`, `nat`, `proxying`, `fragment`, \
         or `any` class. Packets are marked with `capture.duplicates = \"mark\"`, after the program of the interface; \
         in that program no packet is marked.",
        |g| pred(Pred::Duplicate(g.duplicate_class(0)?))
    ),
    row!("is_rtp", "Pred", NONE, "The packet is RTP, recognised by ports and payload.", |_| pred(Pred::Voip(
        Voip::Rtp
    ))),
    row!("is_rtcp", "Pred", NONE, "The packet is RTCP, recognised by ports and payload.", |_| pred(Pred::Voip(
        Voip::Rtcp
    ))),
    row!("is_sip", "Pred", NONE, "The packet is SIP, recognised by its ports.", |_| pred(Pred::Voip(Voip::Sip))),
    row!("is_voip", "Pred", NONE, "The packet is SIP, RTP or RTCP.", |_| pred(voip())),
    row!("is_gtp", "Pred", NONE, "The packet is GTP.", |_| pred(Pred::Gtp(Gtp::Any))),
    row!("is_gtp_cp", "Pred", NONE, "The packet belongs to the control plane of GTP.", |_| pred(Pred::Gtp(
        Gtp::Control
    ))),
    row!("is_gtp_up", "Pred", NONE, "The packet belongs to the user plane of GTP.", |_| pred(Pred::Gtp(Gtp::User))),
    row!(
        "matches",
        "Text -> Pred",
        NONE,
        "The packet matches this filter of tcpdump: `matches \"tcp port 80\"`.",
        |g| pred(g.filter(0)?)
    ),
    row!("is_eth_pup", "Pred", NONE, "Ethertype 0x0200.", |_| ethertype(0x0200)),
    row!("is_eth_sprite", "Pred", NONE, "Ethertype 0x0500.", |_| ethertype(0x0500)),
    row!("is_eth_ip", "Pred", NONE, "Ethertype 0x0800.", |_| ethertype(0x0800)),
    row!("is_eth_arp", "Pred", NONE, "Ethertype 0x0806.", |_| ethertype(0x0806)),
    row!("is_eth_revarp", "Pred", NONE, "Ethertype 0x8035.", |_| ethertype(0x8035)),
    row!("is_eth_at", "Pred", NONE, "Ethertype 0x809b.", |_| ethertype(0x809b)),
    row!("is_eth_aarp", "Pred", NONE, "Ethertype 0x80f3.", |_| ethertype(0x80f3)),
    row!("is_eth_vlan", "Pred", NONE, "The frame has a VLAN tag.", |_| pred(Pred::Vlan(vec![]))),
    row!("is_eth_ipx", "Pred", NONE, "Ethertype 0x8137.", |_| ethertype(0x8137)),
    row!("is_eth_ipv6", "Pred", NONE, "Ethertype 0x86dd.", |_| ethertype(0x86dd)),
    row!("is_eth_loopback", "Pred", NONE, "Ethertype 0x9000.", |_| ethertype(0x9000)),
];

pub const COMBINATORS: &[Function] = &[
    row!("not", "Pred -> Pred", NONE, "The predicate does not hold.", |g| pred(Pred::Not(g.pred(0)?.into()))),
    row!("and", "Pred -> Pred -> Pred", NONE, "Both predicates hold; written `.&&.`.", |g| pred(Pred::And(
        g.pred(0)?.into(),
        g.pred(1)?.into()
    ))),
    row!("or", "Pred -> Pred -> Pred", NONE, "At least one predicate holds; written `.||.`.", |g| pred(Pred::Or(
        g.pred(0)?.into(),
        g.pred(1)?.into()
    ))),
    row!("xor", "Pred -> Pred -> Pred", NONE, "Exactly one predicate holds; written `.^^.`.", |g| pred(Pred::Xor(
        g.pred(0)?.into(),
        g.pred(1)?.into()
    ))),
];

fn header<'a>(field: HeaderField) -> Result<Value<'a>, EvaluationError> {
    Ok(Value::Prop(Prop::Header(field)))
}

fn prop<'a>(p: Prop) -> Result<Value<'a>, EvaluationError> {
    Ok(Value::Prop(p))
}

pub const PROPERTIES: &[Function] = &[
    row!("ip_tos", "Prop", NONE, "The type of service of IPv4, or the traffic class of IPv6.", |_| header(
        HeaderField::IpTos
    )),
    row!("ip_tot_len", "Prop", NONE, "Length of the IP packet in bytes, including its header.", |_| header(
        HeaderField::IpTotalLen
    )),
    row!("ip_id", "Prop", NONE, "Identification of IPv4.", |_| header(HeaderField::IpId)),
    row!("ip_frag", "Prop", NONE, "Flags and fragment offset of IPv4, as in the header.", |_| header(
        HeaderField::IpFragment
    )),
    row!("ip_ttl", "Prop", NONE, "The time to live of IPv4, or the hop limit of IPv6.", |_| header(HeaderField::IpTtl)),
    row!("ip_proto", "Prop", NONE, "The protocol above IP.", |_| header(HeaderField::IpProtocol)),
    row!("eth_type", "Prop", NONE, "The ethertype after all VLAN tags.", |_| header(HeaderField::EtherType)),
    row!("tcp_source", "Prop", NONE, "The source port of TCP.", |_| header(HeaderField::SrcPort(true))),
    row!("tcp_dest", "Prop", NONE, "The destination port of TCP.", |_| header(HeaderField::DstPort(true))),
    row!("tcp_hdrlen", "Prop", NONE, "Length of the TCP header in bytes.", |_| header(HeaderField::TcpHeaderLen)),
    row!("tcp_flags", "Prop", NONE, "TCP flags: 1 FIN, 2 SYN, 4 RST, 8 PSH, 16 ACK, 32 URG.", |_| header(
        HeaderField::TcpFlags
    )),
    row!("tcp_window", "Prop", NONE, "The receive window of TCP.", |_| header(HeaderField::TcpWindow)),
    row!("udp_source", "Prop", NONE, "The source port of UDP.", |_| header(HeaderField::SrcPort(false))),
    row!("udp_dest", "Prop", NONE, "The destination port of UDP.", |_| header(HeaderField::DstPort(false))),
    row!("udp_len", "Prop", NONE, "Length of the UDP datagram in bytes.", |_| header(HeaderField::UdpLen)),
    row!("icmp_type", "Prop", NONE, "Type of the ICMP or ICMPv6 message.", |_| header(HeaderField::IcmpType)),
    row!("icmp_code", "Prop", NONE, "Code of the ICMP or ICMPv6 message.", |_| header(HeaderField::IcmpCode)),
    row!("pkt_len", "Prop", NONE, "Length of the packet on the wire in bytes.", |_| prop(Prop::Length)),
    row!("vid", "Prop", NONE, "The id of the outermost VLAN tag.", |_| prop(Prop::VlanId)),
    row!("get_mark", "Prop", NONE, "The mark of the packet.", |_| prop(Prop::Mark)),
    row!("get_state", "Prop", NONE, "The number that `put_state` has set; initially 0.", |_| prop(Prop::State)),
    row!(
        "field",
        "Int -> Int -> Prop",
        NONE,
        "Bytes of the frame as a number. The arguments are the offset from the begin of the frame and the number of \
         bytes (1 to 8).",
        |g| prop(Prop::Bytes(g.number(0, 65_535)? as u32, super::steering::size(g, 1, 8)?))
    ),
    row!("bits", "Prop -> Int -> Prop", NONE, "The bitwise AND of the property and this number.", |g| prop(Prop::Op(
        g.prop(0)?.into(),
        Op::And,
        g.number(1, i64::MAX as u64)?
    ))),
];

fn compare<'a>(g: &Arguments<'_, 'a>, cmp: Cmp) -> Result<Value<'a>, EvaluationError> {
    pred(Pred::Compare(g.prop(0)?, cmp, g.number(1, i64::MAX as u64)?))
}

pub const COMPARATORS: &[Function] = &[
    row!(
        "less",
        "Prop -> Int -> Pred",
        NONE,
        "Compares a property with a number: `p .< n`. No comparison holds for a packet without the property.",
        |g| compare(g, Cmp::Lt)
    ),
    row!("less_eq", "Prop -> Int -> Pred", NONE, "Compares a property with a number: `p .<= n`.", |g| compare(
        g,
        Cmp::Le
    )),
    row!("equal", "Prop -> Int -> Pred", NONE, "Compares a property with a number: `p .== n`.", |g| compare(
        g,
        Cmp::Eq
    )),
    row!("not_equal", "Prop -> Int -> Pred", NONE, "Compares a property with a number: `p ./= n`.", |g| compare(
        g,
        Cmp::Ne
    )),
    row!("greater", "Prop -> Int -> Pred", NONE, "Compares a property with a number: `p .> n`.", |g| compare(
        g,
        Cmp::Gt
    )),
    row!("greater_eq", "Prop -> Int -> Pred", NONE, "Compares a property with a number: `p .>= n`.", |g| compare(
        g,
        Cmp::Ge
    )),
    row!("any_bit", "Prop -> Int -> Pred", NONE, "At least one of these bits of the property is set.", |g| compare(
        g,
        Cmp::AnyBit
    )),
    row!("all_bit", "Prop -> Int -> Pred", NONE, "All of these bits of the property are set.", |g| compare(
        g,
        Cmp::AllBits
    )),
];
