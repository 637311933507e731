//! A program with all its functions applied: what is left of the surface when types are checked and names are gone.
//!
//! Everything the language can say is one of these words; the table of functions builds them and [`crate::lower`] turns them
//! into the intermediate form. Terms are trees without sharing, and their number is bounded when they are built.

use crate::ir::{Cmp, Expiry, Log, Op};
use crate::key::Key;
use crate::prefix::Prefix;
use std::sync::Arc;

/// What to do with a packet: passes it on, changed in its record, or drops it.
#[derive(Clone, Debug, PartialEq)]
pub enum ActionTerm {
    /// Passes.
    Unit,
    /// Drops.
    Drop,
    /// Passes what holds, drops what does not.
    Filter(Pred),
    /// One or the other.
    If(Pred, Box<ActionTerm>, Box<ActionTerm>),
    /// The first arm with the property's value; the last act if there is none.
    Case(Prop, Vec<(u64, ActionTerm)>, Box<ActionTerm>),
    /// One after the other, each with the text the user wrote for it, until one drops.
    Seq(Vec<(String, ActionTerm)>),
    /// Passes as a copy what the act drops; drops what it passes.
    Inv(Box<ActionTerm>),
    /// The first that does not drop. The record of whom to deliver to is as before when the next one is tried.
    Par(Vec<ActionTerm>),
    /// The act, looking at something else.
    Within(PacketScope, Box<ActionTerm>),
    /// To all members of all classes but that of controllers.
    Broadcast,
    /// To the members of this class.
    Classify(u8),
    /// To one member, or two.
    Steer(Steering),
    /// A copy out of this device.
    Forward(String),
    /// A copy out of each of these but the one that the packet came from.
    Link(Vec<String>),
    /// A copy to the stack of this host.
    Kernel,
    /// Writes something.
    Log(LogItem),
    /// Sets the mark.
    Mark(u32),
    /// Sets the state of this run.
    State(u32),
    /// A counter goes up (wrapping).
    Count(u8, u64),
    /// The flow's number becomes this.
    Put(Arc<FlowMap>, u64),
    /// The flow's number goes up (wrapping).
    Add(Arc<FlowMap>, u64),
    /// The flow is forgotten.
    Forget(Arc<FlowMap>),
}

/// What is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogItem {
    /// This text.
    Text(String),
    /// What the packet itself says.
    Of(Log),
}

/// What an act looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketScope {
    /// The IP packet in the tunnel; drops what has none.
    Inside,
    /// The outermost IP packet, also where the innermost is meant otherwise.
    Outside,
    /// Only the sender's end.
    Src,
    /// Only the receiver's end.
    Dst,
}

/// An end of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Either, or the one that is looked at.
    Any,
    /// The sender's.
    Src,
    /// The receiver's.
    Dst,
}

/// A question with an answer of yes or no.
#[derive(Clone, Debug, PartialEq)]
pub enum Pred {
    /// Always the same answer.
    Always(bool),
    /// The opposite.
    Not(Box<Pred>),
    /// Both.
    And(Box<Pred>, Box<Pred>),
    /// At least one.
    Or(Box<Pred>, Box<Pred>),
    /// Exactly one.
    Xor(Box<Pred>, Box<Pred>),
    /// A property against a number. No if there is no such property, whatever the comparison.
    Compare(Prop, Cmp, u64),
    /// IP of this version; of either for `None`.
    Ip(Option<u8>),
    /// IP that carries one of these protocols with a header of so many bytes captured.
    Transport(Option<u8>, &'static [u8], u32),
    /// This ethertype.
    EtherType(u16),
    /// This protocol above IP.
    Protocol(u8),
    /// TCP, UDP or SCTP with a port between these.
    Port(Endpoint, u16, u16),
    /// A flow with this port, which a later fragment has of its first one. Never 0.
    FlowPort(Endpoint, u16),
    /// IP with an address in one of these.
    Address(Endpoint, Vec<Prefix>),
    /// IP with an address of the port that the packet came from.
    Host(Endpoint),
    /// This host sent it.
    Outgoing,
    /// A fragment of these kinds: first, later.
    Fragment(bool, bool),
    /// A VLAN tag with one of these ids; with any for an empty list.
    Vlan(Vec<u16>),
    /// A link address of all ones, or of a group.
    Mac {
        /// Whose.
        end: Endpoint,
        /// Whether the group of all is meant, or any group.
        broadcast: bool,
    },
    /// By the ports and first bytes.
    Voip(Voip),
    /// By the ports and first bytes.
    Gtp(Gtp),
    /// The flow has an entry.
    Known(Arc<FlowMap>),
    /// The act would pass the packet. Only of acts without effects.
    Filter(Arc<filter::LinkFilter>),
}

/// Kinds of telephony.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Voip {
    /// Signalling.
    Sip,
    /// Media.
    Rtp,
    /// Reports on media.
    Rtcp,
}

/// Kinds of GTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gtp {
    /// Control or user.
    Any,
    /// Control plane.
    Control,
    /// User plane.
    User,
}

/// A number that a packet may have.
#[derive(Clone, Debug, PartialEq)]
pub enum Prop {
    /// A field of a header.
    Header(HeaderField),
    /// `size` bytes at `offset` of the frame.
    Bytes(u32, u8),
    /// Bytes on the wire.
    Length,
    /// The mark.
    Mark,
    /// The state of this run.
    State,
    /// The id of the outermost VLAN tag.
    VlanId,
    /// The flow's number; 0 for a flow without entry, none for a packet without flow.
    Flow(Arc<FlowMap>),
    /// The property and a number.
    Op(Box<Prop>, Op, u64),
}

/// Fields that are properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderField {
    /// Type of service, traffic class.
    IpTos,
    /// Bytes of the IP packet, header included.
    IpTotalLen,
    /// Identification (IPv4).
    IpId,
    /// Flags and offset of the fragment (IPv4).
    IpFragment,
    /// Time to live, hop limit.
    IpTtl,
    /// The protocol above IP.
    IpProtocol,
    /// The ethertype.
    EtherType,
    /// Of TCP (`true`) or UDP.
    SrcPort(bool),
    /// Of TCP (`true`) or UDP.
    DstPort(bool),
    /// Bytes of the TCP header.
    TcpHeaderLen,
    /// Flags of TCP.
    TcpFlags,
    /// Window of TCP.
    TcpWindow,
    /// Bytes of the UDP datagram.
    UdpLen,
    /// Type of ICMP or ICMPv6.
    IcmpType,
    /// Its code.
    IcmpCode,
}

/// By what a member is chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum Steering {
    /// In turn, as this worker counts.
    RoundRobin,
    /// The hash of the card.
    Rss,
    /// The number of the queue.
    Queue,
    /// This member.
    To(u32),
    /// Both link addresses.
    Link,
    /// The link address that is not the gateway's; both ends if neither is.
    LocalLink([u8; 6]),
    /// Each link address.
    DoubleMac,
    /// The VLAN id.
    Vlan,
    /// Both addresses.
    Pair,
    /// Each address.
    DoubleIp,
    /// The addresses that are in a network, of which so many bits count.
    Local(Prefix, u8),
    /// Addresses, ports and protocol.
    Flow,
    /// Bytes of the frame.
    Bytes(u32, u8),
    /// Bytes at two places, in either order.
    SymmetricBytes(u32, u32, u8),
    /// Bytes at each of two places.
    DoubleBytes(u32, u32, u8),
    /// A key, the same for both directions.
    Key(Key),
    /// What the keys of all maps have in common, the same for both directions.
    Common,
    /// Media with its reports; broadcast of the signalling if `true`.
    Rtp(bool),
    /// The subscriber in this network; broadcast of control.
    GtpUser(Prefix),
}

/// A table of flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowMap {
    /// As the program calls it.
    pub name: String,
    /// What a flow is.
    pub key: Key,
    /// Most flows.
    pub capacity: u32,
    /// When a flow is forgotten.
    pub expiry: Expiry,
}

impl ActionTerm {
    /// The predicate that holds for what it passes, if it does nothing but filter.
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

    /// Whether it, or an act in it, is one of these.
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

    /// One after the other; steps of steps become steps.
    #[must_use]
    pub fn then(self, text: &str, next: Self, next_text: &str) -> Self {
        let steps = |act, text: &str| match act {
            // What one function does in several steps stays one step of the pipeline.
            Self::Seq(steps) if steps.iter().all(|s| !s.0.is_empty()) => steps,
            act => vec![(text.to_owned(), act)],
        };
        let mut all = steps(self, text);
        all.extend(steps(next, next_text));
        Self::Seq(all)
    }
}
