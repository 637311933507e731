//! Terms: programs with all functions applied. A term contains no names, no types and no syntactic sugar.
//!
//! A term has one variant for each construct of the language. The function table builds terms, and [`crate::lower`]
//! translates them to the IR. Terms are trees without sharing; the evaluation limits their size.

use ir::Prefix;
use ir::key::Key;
use ir::{Cmp, Expiry, Log, Op};
use std::sync::Arc;

/// An action: passes the packet, possibly with a changed record, or drops it.
#[derive(Clone, Debug, PartialEq)]
pub enum ActionTerm {
    /// Passes the packet.
    Unit,
    /// Drops the packet.
    Drop,
    /// Passes packets for which the predicate holds; drops others.
    Filter(Pred),
    /// The first action if the predicate holds, otherwise the second.
    If(Pred, Box<ActionTerm>, Box<ActionTerm>),
    /// The first arm whose number equals the property; the last action if no arm does.
    Case(Prop, Vec<(u64, ActionTerm)>, Box<ActionTerm>),
    /// The steps in order, each with its source text, until a step drops the packet.
    Seq(Vec<(String, ActionTerm)>),
    /// Inverts the action: passes as a copy the packets that the action drops, and drops the packets that it passes.
    Inv(Box<ActionTerm>),
    /// The first action that does not drop the packet. Before the next action is tried, the delivery part of the record
    /// is restored.
    Par(Vec<ActionTerm>),
    /// The action, applied to another part of the packet.
    Within(PacketScope, Box<ActionTerm>),
    /// To all members of all classes; the mask omits the class `management`, which has no members.
    Broadcast,
    /// To the members of this class.
    Classify(u8),
    /// Steers to one member, or to two.
    Steer(Steering),
    /// Sends a copy through this device.
    Forward(String),
    /// Sends a copy through each of these devices except the device on which the packet arrived.
    Link(Vec<String>),
    /// Passes a copy to the host's stack.
    Kernel,
    /// Writes a log line.
    Log(LogItem),
    /// Sets the mark.
    Mark(u32),
    /// Sets the state of this evaluation.
    State(u32),
    /// Adds to a counter (wrapping).
    Count(u8, u64),
    /// Sets the number of the flow.
    Put(Arc<FlowMap>, u64),
    /// Adds to the number of the flow (wrapping).
    Add(Arc<FlowMap>, u64),
    /// Removes the flow from the map.
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
    /// The IP packet in the tunnel; drops packets without a tunnel.
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
    /// Either endpoint, or the endpoint that an enclosing [`PacketScope`] selects.
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
    /// Compares a property with a number. False if the packet does not have the property, whatever the comparison.
    Compare(Prop, Cmp, u64),
    /// IP of this version; `None` for either version.
    Ip(Option<u8>),
    /// IP with one of these protocols; the last number is the minimum number of captured bytes of its header.
    Transport(Option<u8>, &'static [u8], u32),
    /// This ethertype.
    EtherType(u16),
    /// This protocol above IP.
    Protocol(u8),
    /// TCP, UDP or SCTP with a port in this range.
    Port(Endpoint, u16, u16),
    /// A flow with this port; a later fragment has the port of its first fragment. Never 0.
    FlowPort(Endpoint, u16),
    /// IP with an address in one of these networks.
    Address(Endpoint, Vec<Prefix>),
    /// IP with an address of the interface on which the packet arrived.
    Host(Endpoint),
    /// This host sent the packet.
    Outgoing,
    /// A fragment of the selected kinds: first, later.
    Fragment(bool, bool),
    /// A VLAN tag with one of these IDs; with any ID if the list is empty.
    Vlan(Vec<u16>),
    /// A broadcast or multicast MAC address.
    Mac {
        /// The endpoint.
        end: Endpoint,
        /// True for broadcast only, false for any group address.
        broadcast: bool,
    },
    /// VoIP, recognised by the ports and the first bytes.
    Voip(Voip),
    /// GTP, recognised by the ports and the first bytes.
    Gtp(Gtp),
    /// The map has an entry for the flow.
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
    /// The number of the flow: 0 for a flow without an entry, absent for a packet without a flow.
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
    /// The source port of TCP (`true`) or UDP.
    SrcPort(bool),
    /// The destination port of TCP (`true`) or UDP.
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

/// The value by which a member is chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum Steering {
    /// Round robin, per worker.
    RoundRobin,
    /// The hash that the NIC computed.
    Rss,
    /// The number of the receive queue.
    Queue,
    /// The member with this index.
    To(u32),
    /// Both MAC addresses.
    Link,
    /// The MAC address that is not the gateway's; both endpoints if neither is the gateway's.
    LocalLink([u8; 6]),
    /// Each MAC address.
    DoubleMac,
    /// The VLAN ID.
    Vlan,
    /// Both IP addresses.
    Pair,
    /// Each IP address.
    DoubleIp,
    /// The addresses that are in a network; the number is the count of address bits that are hashed.
    Local(Prefix, u8),
    /// Addresses, ports and protocol.
    Flow,
    /// Bytes of the frame.
    Bytes(u32, u8),
    /// Bytes at two offsets, symmetric.
    SymmetricBytes(u32, u32, u8),
    /// Bytes at each of two offsets.
    DoubleBytes(u32, u32, u8),
    /// A key, symmetric.
    Key(Key),
    /// The common key of all maps, symmetric.
    Common,
    /// Media together with its reports; signalling is broadcast if `true`.
    Rtp(bool),
    /// The subscriber in this network; control messages are broadcast.
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
