//! Terms: programs with all functions applied. A term contains no names, no types and no syntactic sugar.
//!
//! A term has one variant for each construct of the language. The function table builds terms, and [`crate::lower`]
//! translates them to the IR. Terms are trees without sharing; the evaluation limits their size.

use base::DuplicateClass;
use ir::Prefix;
use ir::key::Key;
use ir::{Cmp, Expiry, Log, Op};
use std::sync::Arc;

/// An action: passes the packet, possibly with a changed verdict record, or drops it.
#[derive(Clone, Debug, PartialEq)]
pub enum ActionTerm {
    /// Passes the packet.
    Unit,
    /// Drops the packet.
    Drop,
    /// Passes packets for which the predicate holds; drops others.
    Filter(Pred),
    /// Applies the first action if the predicate holds, otherwise the second action.
    If(Pred, Box<ActionTerm>, Box<ActionTerm>),
    /// Applies the first arm whose number is equal to the property; applies the last action if no arm has that number.
    Case(Prop, Vec<(u64, ActionTerm)>, Box<ActionTerm>),
    /// Applies the steps in order until a step drops the packet; each step has its source text.
    Seq(Vec<(String, ActionTerm)>),
    /// Inverts the action. Packets that the action drops are passed with the verdict kind `Copy`; packets that the
    /// action passes are dropped.
    Inv(Box<ActionTerm>),
    /// Applies the actions in order until an action does not drop the packet. Before the next action, kind, classes and
    /// hashes of the verdict record are restored.
    Par(Vec<ActionTerm>),
    /// Applies the action to the packet or to the endpoint that the scope selects.
    Within(PacketScope, Box<ActionTerm>),
    /// Delivers the packet to all members of all classes; the class mask omits the class `management`, which has no
    /// members.
    Broadcast,
    /// Delivers the packet to the members of this class.
    Classify(u8),
    /// Steers the packet to one member, or to two members.
    Steer(Steering),
    /// Sends a copy through this interface.
    Forward(String),
    /// Sends a copy through each of these interfaces except the interface on which the packet arrived.
    Link(Vec<String>),
    /// Passes a copy to the host's stack.
    Kernel,
    /// Writes a log line.
    Log(LogItem),
    /// Sets the mark.
    Mark(u32),
    /// Sets the state variable, which lasts for the evaluation of one packet.
    State(u32),
    /// Adds the second number (wrapping) to the counter with the first number.
    Count(u8, u64),
    /// Stores this number in the map entry of the packet's flow.
    Put(Arc<FlowMap>, u64),
    /// Drops the packet if it is a duplicate of a packet that this action passed or dropped at most this number of
    /// nanoseconds before.
    Unique(u64),
    /// Adds this number (wrapping) to the number that is stored in the map entry of the packet's flow.
    Add(Arc<FlowMap>, u64),
    /// Removes the map entry of the packet's flow.
    Forget(Arc<FlowMap>),
}

/// The content of a log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogItem {
    /// A fixed text.
    Text(String),
    /// A description of the packet.
    Of(Log),
}

/// The part of the packet to which an action applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketScope {
    /// The IP packet in the tunnel; the action drops packets without a tunnel.
    Inside,
    /// The outermost IP packet, also for functions that use the innermost by default.
    Outside,
    /// Only the source.
    Src,
    /// Only the destination.
    Dst,
}

/// An endpoint of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// The source or the destination; if an enclosing [`PacketScope`] selects an endpoint, only that endpoint.
    Any,
    /// The source.
    Src,
    /// The destination.
    Dst,
}

/// A predicate: a condition on a packet.
#[derive(Clone, Debug, PartialEq)]
pub enum Pred {
    /// A constant.
    Always(bool),
    /// Negation.
    Not(Box<Pred>),
    /// Conjunction.
    And(Box<Pred>, Box<Pred>),
    /// Disjunction.
    Or(Box<Pred>, Box<Pred>),
    /// Exclusive or.
    Xor(Box<Pred>, Box<Pred>),
    /// Compares a property with a number. If the packet does not have the property, every comparison is false,
    /// including `!=`.
    Compare(Prop, Cmp, u64),
    /// The packet is an IP packet of this version; with `None`, of any version.
    Ip(Option<u8>),
    /// The packet is an IP packet of this version (with `None`, of any version) with one of these protocols. The last
    /// number is the minimum number of captured bytes of the transport header.
    Transport(Option<u8>, &'static [u8], u32),
    /// The frame has this ethertype.
    EtherType(u16),
    /// The packet has this protocol above IP.
    Protocol(u8),
    /// The packet is TCP, UDP or SCTP, and the port of the endpoint is in this range.
    Port(Endpoint, u16, u16),
    /// The packet belongs to a flow in which the endpoint has this port; a later fragment has the ports of its first
    /// fragment. The port is never 0.
    FlowPort(Endpoint, u16),
    /// The packet is an IP packet, and the address of the endpoint is in one of these networks.
    Address(Endpoint, Vec<Prefix>),
    /// The packet is an IP packet, and the address of the endpoint is an address of the interface on which the packet
    /// arrived.
    Host(Endpoint),
    /// This host sent the packet.
    Outgoing,
    /// The engine marked the packet as a duplicate of this class; `None`: of any class.
    Duplicate(Option<DuplicateClass>),
    /// The packet is a fragment: a first fragment, if the first flag is set, or a later fragment, if the second flag is
    /// set.
    Fragment(bool, bool),
    /// The frame has a VLAN tag with one of these IDs; if the list is empty, with any ID.
    Vlan(Vec<u16>),
    /// The MAC address of the endpoint is a broadcast or multicast address.
    Mac {
        /// The endpoint.
        end: Endpoint,
        /// True: only the broadcast address satisfies the test. False: any multicast or broadcast address does.
        broadcast: bool,
    },
    /// The packet is VoIP; it is recognised by its ports and the first bytes of its payload.
    Voip(Voip),
    /// The packet is GTP; it is recognised by its ports and the first bytes of its payload.
    Gtp(Gtp),
    /// The map has an entry for the packet's flow.
    Known(Arc<FlowMap>),
    /// The tcpdump filter matches the packet.
    Filter(Arc<filter::LinkFilter>),
}

/// Kinds of VoIP packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Voip {
    /// Signalling.
    Sip,
    /// Media.
    Rtp,
    /// Reports about media.
    Rtcp,
}

/// Kinds of GTP packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gtp {
    /// Control plane or user plane.
    Any,
    /// Control plane.
    Control,
    /// User plane.
    User,
}

/// A property: a number that a packet may have.
#[derive(Clone, Debug, PartialEq)]
pub enum Prop {
    /// A field of a header.
    Header(HeaderField),
    /// `size` bytes at `offset` of the frame.
    Bytes(u32, u8),
    /// The wire length in bytes.
    Length,
    /// The mark.
    Mark,
    /// The state of this evaluation.
    State,
    /// The ID of the outermost VLAN tag.
    VlanId,
    /// The number that the map stores for the flow: 0 for a flow without an entry, absent for a packet without a flow.
    Flow(Arc<FlowMap>),
    /// An operation on a property and a number.
    Op(Box<Prop>, Op, u64),
}

/// Header fields that are properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderField {
    /// Type of service (IPv4) or traffic class (IPv6).
    IpTos,
    /// Length of the IP packet in bytes, header included.
    IpTotalLen,
    /// Identification (IPv4).
    IpId,
    /// Flags and fragment offset (IPv4).
    IpFragment,
    /// TTL (IPv4) or hop limit (IPv6).
    IpTtl,
    /// The protocol above IP.
    IpProtocol,
    /// The ethertype.
    EtherType,
    /// The source port of TCP (`true`) or UDP (`false`).
    SrcPort(bool),
    /// The destination port of TCP (`true`) or UDP (`false`).
    DstPort(bool),
    /// Length of the TCP header in bytes.
    TcpHeaderLen,
    /// TCP flags.
    TcpFlags,
    /// TCP window.
    TcpWindow,
    /// Length of the UDP datagram in bytes.
    UdpLen,
    /// Type of ICMP or ICMPv6.
    IcmpType,
    /// Code of ICMP or ICMPv6.
    IcmpCode,
}

/// How a steering function chooses the members that get a packet.
#[derive(Clone, Debug, PartialEq)]
pub enum Steering {
    /// Steers to the members in turn (round robin); each worker counts separately.
    RoundRobin,
    /// Steers by the hash that the NIC computed.
    Rss,
    /// Steers by the number of the receive queue.
    Queue,
    /// Steers to the member with this index.
    To(u32),
    /// Steers by both MAC addresses together.
    Link,
    /// Steers by the MAC address that is not this address of the gateway; by both MAC addresses if neither is the
    /// gateway's.
    LocalLink([u8; 6]),
    /// Steers to two members: one is chosen by the source MAC address, the other by the destination MAC address.
    DoubleMac,
    /// Steers by the VLAN ID.
    Vlan,
    /// Steers by both IP addresses together.
    Pair,
    /// Steers to two members: one is chosen by the source IP address, the other by the destination IP address.
    DoubleIp,
    /// Steers by each address of the packet that is in this network. The number says how many leading bits of an
    /// address are hashed.
    Local(Prefix, u8),
    /// Steers by addresses, ports and protocol.
    Flow,
    /// Steers by the bytes at an offset of the frame. The fields are the offset and the number of bytes.
    Bytes(u32, u8),
    /// Steers by the bytes at two offsets of the frame. If the two values are exchanged, the member is the same.
    SymmetricBytes(u32, u32, u8),
    /// Steers to two members: one is chosen by the bytes at the first offset, the other by those at the second offset.
    DoubleBytes(u32, u32, u8),
    /// Steers by the value of this key, which is the same in both directions of a flow.
    Key(Key),
    /// Steers by a symmetric key of the fields that the keys of all flow maps have in common.
    Common,
    /// Steers the RTP and RTCP packets of a call to the same member. If the value is `true`, SIP packets are delivered
    /// to all classes.
    Rtp(bool),
    /// Steers by the address of the GTP subscriber: the address of the inner packet that is in this network. GTP
    /// control messages are delivered to all classes.
    GtpUser(Prefix),
}

/// A flow map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowMap {
    /// The name in the program.
    pub name: String,
    /// The flow key.
    pub key: Key,
    /// Maximum number of flows.
    pub capacity: u32,
    /// The expiry of flows.
    pub expiry: Expiry,
}

impl ActionTerm {
    /// The predicate for which the action passes packets, if the action does nothing but filter.
    pub fn as_filter(&self) -> Option<Pred> {
        match self {
            Self::Unit => Some(Pred::Always(true)),
            Self::Drop => Some(Pred::Always(false)),
            Self::Filter(p) => Some(p.clone()),
            Self::Seq(steps) => steps.iter().try_fold(Pred::Always(true), |all, (_, step)| {
                let step = step.as_filter()?;
                Some(if all == Pred::Always(true) { step } else { Pred::And(Box::new(all), Box::new(step)) })
            }),
            _ => None,
        }
    }

    /// True if the action or an action inside it satisfies `is`.
    pub fn any(&self, is: &impl Fn(&Self) -> bool) -> bool {
        is(self)
            || match self {
                Self::If(_, a, b) => a.any(is) || b.any(is),
                Self::Case(_, arms, other) => arms.iter().any(|(_, act)| act.any(is)) || other.any(is),
                Self::Seq(steps) => steps.iter().any(|(_, act)| act.any(is)),
                Self::Par(acts) => acts.iter().any(|act| act.any(is)),
                Self::Inv(inner) | Self::Within(_, inner) => inner.any(is),
                _ => false,
            }
    }

    /// The sequence of both actions; nested sequences are flattened.
    #[must_use]
    pub fn then(self, text: &str, next: Self, next_text: &str) -> Self {
        let steps = |act, text: &str| match act {
            // A function that expands to several steps stays one stage of the pipeline.
            Self::Seq(steps) if steps.iter().all(|s| !s.0.is_empty()) => steps,
            act => vec![(text.to_owned(), act)],
        };
        let mut all = steps(self, text);
        all.extend(steps(next, next_text));
        Self::Seq(all)
    }
}
