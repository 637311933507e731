//! Defines the functions of the language for filters, control structures, delivery, logs and counters.

use super::predicates::{ICMP_HEADER, TCP_HEADER, UDP_HEADER};
use super::row::row;
use super::value::Value;
use super::{Arguments, EvaluationError, Function, interface};
use crate::term::{ActionTerm, Endpoint, Gtp, LogItem, PacketScope, Pred, Steering, Voip};
use ir::duplicate_detectors::WINDOW_MAX;
use ir::{COUNTERS, Effect, Log};

/// Nanoseconds in a millisecond.
const MS: u64 = 1_000_000;

const DROP: &[Effect] = &[Effect::Drop];
const TUNNEL: &[Effect] = &[Effect::Drop, Effect::Tunnel];

fn filter<'a>(p: Pred) -> Result<Value<'a>, EvaluationError> {
    Ok(Value::Act(ActionTerm::Filter(p)))
}

fn not(p: Pred) -> Pred {
    Pred::Not(Box::new(p))
}

fn act<'a>(a: ActionTerm) -> Result<Value<'a>, EvaluationError> {
    Ok(Value::Act(a))
}

fn seq<'a>(acts: [ActionTerm; 2]) -> Result<Value<'a>, EvaluationError> {
    act(ActionTerm::Seq(acts.into_iter().map(|a| (String::new(), a)).collect()))
}

fn transport<'a>(version: Option<u8>, protocols: &'static [u8], header: u32) -> Result<Value<'a>, EvaluationError> {
    filter(Pred::Transport(version, protocols, header))
}

pub const FILTERS: &[Function] = &[
    row!("unit"["nop"], "Act", &[], "Passes every packet without effect.", |_| act(ActionTerm::Unit)),
    row!("filter"["filter'"], "Pred -> Act", DROP, "Passes packets for which the predicate holds.", |g| filter(
        g.pred(0)?
    )),
    row!("bpf", "Text -> Act", DROP, "Passes packets that match this filter of tcpdump: `bpf \"tcp port 80\"`.", |g| {
        filter(g.filter(0)?)
    }),
    row!("ip", "Act", DROP, "Passes IPv4 and IPv6.", |_| filter(Pred::Ip(None))),
    row!("ip4", "Act", DROP, "Passes IPv4.", |_| filter(Pred::Ip(Some(4)))),
    row!("ip6", "Act", DROP, "Passes IPv6.", |_| filter(Pred::Ip(Some(6)))),
    row!("tcp", "Act", DROP, "Passes TCP with a complete header.", |_| transport(None, &[6], TCP_HEADER)),
    row!("udp", "Act", DROP, "Passes UDP with a complete header.", |_| transport(None, &[17], UDP_HEADER)),
    row!("icmp", "Act", DROP, "Passes ICMP and ICMPv6.", |_| transport(None, &[1, 58], ICMP_HEADER)),
    row!("tcp6", "Act", DROP, "Passes TCP over IPv6.", |_| transport(Some(6), &[6], TCP_HEADER)),
    row!("udp6", "Act", DROP, "Passes UDP over IPv6.", |_| transport(Some(6), &[17], UDP_HEADER)),
    row!("icmp6", "Act", DROP, "Passes ICMPv6.", |_| transport(Some(6), &[58], ICMP_HEADER)),
    row!("flow", "Act", DROP, "Passes TCP and UDP.", |_| transport(None, &[6, 17], UDP_HEADER)),
    row!("vlan", "Act", DROP, "Passes frames with a VLAN tag.", |_| filter(Pred::Vlan(vec![]))),
    row!(
        "unique",
        "Int -> Act",
        &[Effect::Drop, Effect::Local],
        "Drops a packet that is a copy of a packet that this function processed at most this number of milliseconds \
         before, of the classes switching and routing (docs/reference/duplicates.md). All queues and interfaces of a \
         group share the table, which holds 65,536 packets. Frames without Ethernet header pass.",
        |g| match g.number(0, WINDOW_MAX / MS)? {
            0 => Err(EvaluationError::Lifetime),
            ms => act(ActionTerm::Unique(ms * MS)),
        }
    ),
    row!("no_frag", "Act", DROP, "Drops all fragments.", |_| filter(not(Pred::Fragment(true, true)))),
    row!("no_more_frag", "Act", DROP, "Drops later fragments of a datagram.", |_| filter(not(Pred::Fragment(
        false, true
    )))),
    row!("port", "Int -> Act", DROP, "Passes TCP, UDP and SCTP with this source or destination port.", |g| port(
        Endpoint::Any,
        g.number(0, 65_535)?
    )),
    row!("src_port", "Int -> Act", DROP, "Passes TCP, UDP and SCTP with this source port.", |g| port(
        Endpoint::Src,
        g.number(0, 65_535)?
    )),
    row!("dst_port", "Int -> Act", DROP, "Passes TCP, UDP and SCTP with this destination port.", |g| port(
        Endpoint::Dst,
        g.number(0, 65_535)?
    )),
    row!("addr"["host"], "Net -> Act", DROP, "Passes IP with a source or destination address in this network.", |g| {
        filter(Pred::Address(Endpoint::Any, vec![g.net(0)?]))
    }),
    row!("src_addr", "Net -> Act", DROP, "Passes IP with a source address in this network.", |g| filter(
        Pred::Address(Endpoint::Src, vec![g.net(0)?])
    )),
    row!("dst_addr", "Net -> Act", DROP, "Passes IP with a destination address in this network.", |g| filter(
        Pred::Address(Endpoint::Dst, vec![g.net(0)?])
    )),
    row!("l3_proto", "Int -> Act", DROP, "Passes frames with this ethertype.", |g| filter(Pred::EtherType(
        g.number(0, 65_535)? as u16
    ))),
    row!("l4_proto", "Int -> Act", DROP, "Passes packets with this protocol above IP.", |g| filter(Pred::Protocol(
        g.number(0, 255)? as u8
    ))),
    row!("vlan_id_filter", "[Int] -> Act", DROP, "Passes frames with one of these VLAN ids; -1 means any id.", |g| {
        filter(super::predicates::vlan_ids(g.list(0)?)?)
    }),
    row!(
        "bloom_filter",
        "Int -> [Net] -> Int -> Act",
        DROP,
        "Passes packets with a source or destination address in this list; the last number is the prefix length that \
         is compared. The set is exact; the first number, the size, is ignored.",
        |g| filter(super::predicates::bloom(Endpoint::Any, g)?)
    ),
    row!(
        "bloom_src_filter",
        "Int -> [Net] -> Int -> Act",
        DROP,
        "Passes packets with a source address in this list, like `bloom_filter`.",
        |g| filter(super::predicates::bloom(Endpoint::Src, g)?)
    ),
    row!(
        "bloom_dst_filter",
        "Int -> [Net] -> Int -> Act",
        DROP,
        "Passes packets with a destination address in this list, like `bloom_filter`.",
        |g| filter(super::predicates::bloom(Endpoint::Dst, g)?)
    ),
    row!("mac_broadcast", "Act", DROP, "Passes frames with a broadcast link address as source or destination.", |_| {
        filter(Pred::Mac { end: Endpoint::Any, broadcast: true })
    }),
    row!("mac_multicast", "Act", DROP, "Passes frames with a multicast link address as source or destination.", |_| {
        filter(Pred::Mac { end: Endpoint::Any, broadcast: false })
    }),
    row!(
        "ip_broadcast",
        "Act",
        DROP,
        "Passes packets whose source or destination IP address is 255.255.255.255.",
        |_| { filter(super::predicates::ip_broadcast()) }
    ),
    row!(
        "ip_multicast",
        "Act",
        DROP,
        "Passes packets whose source or destination IP address is in 224.0.0.0/4 or ff00::/8.",
        |_| filter(super::predicates::ip_multicast())
    ),
    row!(
        "ip_host",
        "Act",
        &[Effect::Drop, Effect::Local],
        "Passes packets whose source or destination IP address is an address of the interface on which they arrived.",
        |_| { filter(Pred::Host(Endpoint::Any)) }
    ),
    row!(
        "incoming_host",
        "Act",
        &[Effect::Drop, Effect::Local],
        "Passes packets whose source or destination IP address is an address of the interface on which they arrived, \
         and frames with a broadcast or multicast link address as destination.",
        |_| filter(super::predicates::incoming_host())
    ),
    row!("rtp", "Act", DROP, "Passes RTP, recognised by ports and payload.", |_| filter(Pred::Voip(Voip::Rtp))),
    row!("rtcp", "Act", DROP, "Passes RTCP, recognised by ports and payload.", |_| filter(Pred::Voip(Voip::Rtcp))),
    row!("sip", "Act", DROP, "Passes SIP, recognised by its ports.", |_| filter(Pred::Voip(Voip::Sip))),
    row!("voip", "Act", DROP, "Passes SIP, RTP and RTCP.", |_| filter(super::predicates::voip())),
    row!("gtp", "Act", DROP, "Passes GTP, control and user plane.", |_| filter(Pred::Gtp(Gtp::Any))),
    row!("gtp_cp", "Act", DROP, "Passes the control plane of GTP.", |_| filter(Pred::Gtp(Gtp::Control))),
    row!("gtp_up", "Act", DROP, "Passes the user plane of GTP.", |_| filter(Pred::Gtp(Gtp::User))),
];

fn port<'a>(end: Endpoint, port: u64) -> Result<Value<'a>, EvaluationError> {
    filter(Pred::Port(end, port as u16, port as u16))
}

fn par<'a>(g: &super::Arguments<'_, 'a>, n: usize) -> Result<Value<'a>, EvaluationError> {
    act(ActionTerm::Par((0..n).map(|i| g.act(i)).collect::<Result<_, _>>()?))
}

const INNER: PacketScope = PacketScope::Inside;

pub const CONTROL: &[Function] = &[
    row!(
        "conditional"["conditional'"],
        "Pred -> Act -> Act -> Act",
        &[],
        "Applies the first action if the predicate holds, and otherwise the second; also written `if … then … else`.",
        |g| act(ActionTerm::If(g.pred(0)?, g.act(1)?.into(), g.act(2)?.into()))
    ),
    row!(
        "when"["when'"],
        "Pred -> Act -> Act",
        &[],
        "Applies the action if the predicate holds; otherwise the packet passes.",
        |g| act(ActionTerm::If(g.pred(0)?, g.act(1)?.into(), ActionTerm::Unit.into()))
    ),
    row!(
        "unless"["unless'"],
        "Pred -> Act -> Act",
        &[],
        "Applies the action if the predicate does not hold; otherwise the packet passes.",
        |g| act(ActionTerm::If(g.pred(0)?, ActionTerm::Unit.into(), g.act(1)?.into()))
    ),
    row!(
        "case_of",
        "Prop -> [Arm] -> Act",
        &[],
        "Applies the arm that has the value of the property: `case_of p $ with [0 ~> drop, 1 ~> kernel]`; if there is \
         no such arm, the packet passes.",
        |g| {
            let arms = g.list(1)?;
            if arms.is_empty() {
                return Err(EvaluationError::NoArm);
            }
            let arms = arms.iter().map(|v| match v {
                Value::Arm(n, act) => Ok((*n, act.clone())),
                _ => Err(EvaluationError::Type("arms such as `0 ~> drop`")),
            });
            act(ActionTerm::Case(g.prop(0)?, arms.collect::<Result<_, _>>()?, ActionTerm::Unit.into()))
        }
    ),
    row!("with", "[Arm] -> [Arm]", &[], "Joins the arms of a `case_of` to a list.", |g| Ok(Value::List(
        g.list(0)?.to_vec()
    ))),
    row!(
        "arm",
        "Int -> Act -> Arm",
        &[],
        "An arm of `case_of`: a value and an action; written `n ~> action`.",
        |g| Ok(Value::Arm(g.number(0, i64::MAX as u64)?, g.act(1)?))
    ),
    row!(
        "sequence",
        "Act -> Act -> Act",
        &[],
        "Applies the first action, and then the second to the packets that the first passes; written `>->`, or as \
         lines of a `do`.",
        |g| act(g.act(0)?.then("", g.act(1)?, ""))
    ),
    row!(
        "inv",
        "Act -> Act",
        &[Effect::Drop, Effect::Fanout],
        "Delivers a copy of the packets that the action drops, and drops the packets that it passes.",
        |g| act(ActionTerm::Inv(g.act(0)?.into()))
    ),
    row!(
        "par",
        "Act -> Act -> Act",
        &[Effect::Fanout, Effect::Classes],
        "Applies the actions in turn until one of them does not drop the packet. Before each further \
         action, the kind, classes and hashes of the verdict are reset; marks, counts and the copies that earlier \
         actions sent remain.",
        |g| par(g, 2)
    ),
    row!(
        "par3",
        "Act -> Act -> Act -> Act",
        &[Effect::Fanout, Effect::Classes],
        "Applies three actions in turn, like `par`, until one of them does not drop the packet.",
        |g| { par(g, 3) }
    ),
    row!(
        "par4",
        "Act -> Act -> Act -> Act -> Act",
        &[Effect::Fanout, Effect::Classes],
        "Applies four actions in turn, like `par`, until one of them does not drop the packet.",
        |g| par(g, 4)
    ),
    row!(
        "par5",
        "Act -> Act -> Act -> Act -> Act -> Act",
        &[Effect::Fanout, Effect::Classes],
        "Applies five actions in turn, like `par`, until one of them does not drop the packet.",
        |g| par(g, 5)
    ),
    row!(
        "par6",
        "Act -> Act -> Act -> Act -> Act -> Act -> Act",
        &[Effect::Fanout, Effect::Classes],
        "Applies six actions in turn, like `par`, until one of them does not drop the packet.",
        |g| par(g, 6)
    ),
    row!(
        "par7",
        "Act -> Act -> Act -> Act -> Act -> Act -> Act -> Act",
        &[Effect::Fanout, Effect::Classes],
        "Applies seven actions in turn, like `par`, until one of them does not drop the packet.",
        |g| par(g, 7)
    ),
    row!(
        "par8",
        "Act -> Act -> Act -> Act -> Act -> Act -> Act -> Act -> Act",
        &[Effect::Fanout, Effect::Classes],
        "Applies eight actions in turn, like `par`, until one of them does not drop the packet.",
        |g| par(g, 8)
    ),
    row!(
        "shift",
        "Act -> Act",
        TUNNEL,
        "Applies the action to the innermost IP packet of a tunnel; drops packets with fewer tunnels than nested \
         `shift`s.",
        |g| act(ActionTerm::Within(INNER, g.act(0)?.into()))
    ),
    row!(
        "outer",
        "Act -> Act",
        &[],
        "Applies the action to the outermost IP packet; hashes and keys in the action use the outermost packet too.",
        |g| act(ActionTerm::Within(PacketScope::Outside, g.act(0)?.into()))
    ),
    row!(
        "src",
        "Act -> Act",
        &[],
        "Applies the action; a test in the action that otherwise accepts a match of the source or of the destination \
         tests only the source.",
        |g| act(ActionTerm::Within(PacketScope::Src, g.act(0)?.into()))
    ),
    row!(
        "dst",
        "Act -> Act",
        &[],
        "Applies the action; a test in the action that otherwise accepts a match of the source or of the destination \
         tests only the destination.",
        |g| act(ActionTerm::Within(PacketScope::Dst, g.act(0)?.into()))
    ),
];

/// The class `management`: no member can join it, so no program may select it.
const MANAGEMENT: u64 = 63;

fn class(g: &Arguments<'_, '_>) -> Result<u8, EvaluationError> {
    if g.number(0, u64::from(u32::MAX)) == Ok(MANAGEMENT) {
        return Err(EvaluationError::ManagementClass);
    }
    Ok(g.number(0, MANAGEMENT - 1)? as u8)
}

const SEND: &[Effect] = &[Effect::Forward];
const SEND_DROP: &[Effect] = &[Effect::Drop, Effect::Forward];
const STACK: &[Effect] = &[Effect::Kernel];
const STACK_DROP: &[Effect] = &[Effect::Drop, Effect::Kernel];

pub const DELIVERY: &[Function] = &[
    row!(
        "broadcast",
        "Act",
        &[Effect::Fanout, Effect::Classes],
        "Delivers to all members of all classes except class 63 (`management`).",
        |_| act(ActionTerm::Broadcast)
    ),
    row!("drop"["drop'"], "Act", DROP, "Delivers to no member. Effects of earlier actions remain.", |_| act(
        ActionTerm::Drop
    )),
    row!(
        "classify"["class'"],
        "Int -> Act",
        &[Effect::Classes],
        "Delivers to the members of this class, 0 to 62.",
        |g| act(ActionTerm::Classify(class(g)?))
    ),
    row!(
        "deliver",
        "Int -> Act",
        &[Effect::Fanout, Effect::Classes],
        "Delivers a copy to each member of this class, 0 to 62, whatever the verdict of later actions.",
        |g| {
            let class = class(g)?;
            // `Broadcast` precedes `Classify`, because `Broadcast` discards the steering target of an earlier steering
            // action.
            seq([ActionTerm::Broadcast, ActionTerm::Classify(class)])
        }
    ),
    row!(
        "dispatch"["class_steering"],
        "Int -> Act",
        &[Effect::Drop, Effect::Fanout, Effect::Classes, Effect::Tunnel, Effect::Datagram],
        "Delivers to one of the members of this class, by the hash of `steer_flow`; a later steering action sets \
         another hash. Drops packets that are not IP.",
        |g| seq([ActionTerm::Classify(class(g)?), ActionTerm::Steer(Steering::Flow)])
    ),
    row!("kernel", "Act", STACK, "Passes a copy to the network stack of this host.", |_| act(ActionTerm::Kernel)),
    row!(
        "detour"["forward_kernel"],
        "Act",
        STACK_DROP,
        "Passes the packet to the network stack of this host, and to no member.",
        |_| { seq([ActionTerm::Kernel, ActionTerm::Drop]) }
    ),
    row!(
        "kernel_if",
        "Pred -> Act",
        STACK,
        "Passes a copy to the network stack of this host if the predicate holds.",
        |g| act(ActionTerm::If(g.pred(0)?, ActionTerm::Kernel.into(), ActionTerm::Unit.into()))
    ),
    row!(
        "detour_if",
        "Pred -> Act",
        STACK_DROP,
        "If the predicate holds, passes the packet to the network stack of this host and to no member; otherwise the \
         packet passes.",
        |g| {
            let steps = [ActionTerm::Kernel, ActionTerm::Drop].map(|a| (String::new(), a)).to_vec();
            act(ActionTerm::If(g.pred(0)?, ActionTerm::Seq(steps).into(), ActionTerm::Unit.into()))
        }
    ),
    row!(
        "forward"["forwardIO"],
        "Interface -> Act",
        SEND,
        "Sends a copy through this egress interface: `forward \"eth1\"`.",
        |g| act(ActionTerm::Forward(g.interface(0)?))
    ),
    row!(
        "bridge",
        "Interface -> Act",
        SEND_DROP,
        "Sends the packet through this egress interface, and to no member.",
        |g| seq([ActionTerm::Forward(g.interface(0)?), ActionTerm::Drop])
    ),
    row!(
        "tee",
        "Interface -> Pred -> Act",
        SEND_DROP,
        "Sends a copy through this egress interface; then passes packets for which the predicate holds.",
        |g| seq([ActionTerm::Forward(g.interface(0)?), ActionTerm::Filter(g.pred(1)?)])
    ),
    row!(
        "tap",
        "Interface -> Pred -> Act",
        SEND_DROP,
        "Passes packets for which the predicate holds; sends all other packets through this egress interface.",
        |g| {
            let steps = [ActionTerm::Forward(g.interface(0)?), ActionTerm::Drop].map(|a| (String::new(), a)).to_vec();
            act(ActionTerm::If(g.pred(1)?, ActionTerm::Unit.into(), ActionTerm::Seq(steps).into()))
        }
    ),
    row!(
        "link",
        "[Interface] -> Act",
        &[Effect::Forward, Effect::Local],
        "Sends a copy through each of these interfaces, except the interface on which the packet arrived.",
        |g| {
            let names = g.list(0)?.iter().map(|v| match v {
                Value::Text(name) => interface(name),
                _ => Err(EvaluationError::Type("interface names")),
            });
            act(ActionTerm::Link(names.collect::<Result<_, _>>()?))
        }
    ),
];

fn count<'a>(counter: u64, by: i64) -> Result<Value<'a>, EvaluationError> {
    act(ActionTerm::Count(counter as u8, by as u64))
}

const LAST_COUNTER: u64 = COUNTERS as u64 - 1;

pub const LOGGING: &[Function] = &[
    row!("log_msg", "Text -> Act", &[Effect::Log], "Writes this text to the log, at a limited rate.", |g| act(
        ActionTerm::Log(LogItem::Text(g.text(0)?))
    )),
    row!("log_buff", "Act", &[Effect::Log], "Logs the first bytes of the packet.", |_| act(ActionTerm::Log(
        LogItem::Of(Log::Buffer)
    ))),
    row!("log_packet", "Act", &[Effect::Log], "Logs a line about the packet.", |_| act(ActionTerm::Log(LogItem::Of(
        Log::Packet
    )))),
    row!("trace", "Act", &[Effect::Log], "Writes the present verdict of the packet to the log.", |_| act(
        ActionTerm::Log(LogItem::Of(Log::Trace))
    )),
    row!(
        "mark",
        "Int -> Act",
        &[Effect::Mark],
        "Sets the mark of the packet, which its descriptor contains.",
        |g| act(ActionTerm::Mark(g.number(0, u32::MAX.into())? as u32))
    ),
    row!(
        "put_state",
        "Int -> Act",
        &[Effect::Mark],
        "Sets the state, a number that later stages can read; the descriptor does not contain it.",
        |g| act(ActionTerm::State(g.number(0, u32::MAX.into())? as u32))
    ),
    row!("inc", "Int -> Act", &[Effect::Count], "Adds one to the group's counter with this number, 0 to 63.", |g| {
        count(g.number(0, LAST_COUNTER)?, 1)
    }),
    row!(
        "dec",
        "Int -> Act",
        &[Effect::Count],
        "Subtracts one from the group's counter with this number, 0 to 63.",
        |g| count(g.number(0, LAST_COUNTER)?, -1)
    ),
    row!("counter", "Int -> Counter", &[], "A counter of the group, as an argument of `modifyCounter`.", |g| Ok(
        Value::Counter(g.number(0, LAST_COUNTER)? as u8)
    )),
    row!(
        "modifyCounter"["modify_counter"],
        "Int -> Change -> Act",
        &[Effect::Count],
        "Changes a counter of the group: `modifyCounter c (+1)`.",
        |g| count(g.number(0, LAST_COUNTER)?, g.change(1)?)
    ),
];
