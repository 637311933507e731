//! Filters on flow records. They support most primitives of packet filters, which test the addresses, ports and
//! protocols of the flow, and additional primitives that test the counters of the flow record.
//!
//! In a filter on flow records, `src` is the initiator, which sent the first packet, and `dst` is the responder: `src
//! host A` matches flows that A initiated, and `not src host A` matches all others. Primitives for addresses, ports and
//! protocols refer to the innermost packet (`docs/reference/decoding.md`); VLAN tags, MPLS labels and extension headers
//! before it are skipped, so `anylink` has no effect.
//!
//! The parser rejects packet bytes, packet lengths, and primitives for other data that a flow record does not contain.
//! `bytes`, `packets`, `bps`, `pps` and `flags` refer to both directions together; after `src` or `dst`, they refer
//! only to the packets that this endpoint sent.

use crate::error::FilterError;
use crate::key_condition::KeyCondition;
use crate::names;
use crate::parse;
use crate::tree::{AddressProtocol, ArithExpr, Dir, Expr, FlowTest, Leaf, Primitive, Quantity, Version};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use wire::{IpProtocol, MacAddr};

pub use crate::flow_words::{END_REASONS, TCP_STATES};

/// The fields of a flow record that a filter can test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowTerms {
    /// The address of the initiator, which sent the first packet.
    pub src: IpAddr,
    /// The address of the responder, in the same address family.
    pub dst: IpAddr,
    /// The initiator's port; 0 if the protocol has no ports.
    pub src_port: u16,
    /// The responder's port.
    pub dst_port: u16,
    /// The protocol above IP.
    pub protocol: IpProtocol,
    /// The IDs of the VLAN tags.
    pub vlans: [Option<u16>; 2],
    /// The topmost MPLS label.
    pub mpls: Option<u32>,
    /// The source MAC addresses of the first frame in each direction.
    pub macs: [Option<MacAddr>; 2],
    /// Packets sent by the initiator, and packets sent by the responder.
    pub packets: [u64; 2],
    /// Bytes of the frames sent by the initiator, and of the frames sent by the responder.
    pub bytes: [u64; 2],
    /// Time from the first packet to the last packet, in nanoseconds.
    pub duration: u64,
    /// TCP flags that each endpoint sent: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128.
    pub flags: [u8; 2],
    /// Index in [`TCP_STATES`].
    pub state: u8,
    /// Index in [`END_REASONS`].
    pub end: u8,
    /// Time from the SYN to the SYN/ACK, in nanoseconds.
    pub rtt: Option<u64>,
}

/// The groups of fields that a filter tests. A reader of flow records can skip the other fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequiredFields {
    /// True if the filter tests addresses or the address family.
    pub needs_addresses: bool,
    /// Ports.
    pub needs_ports: bool,
    /// The protocol.
    pub needs_protocol: bool,
    /// True if the filter tests VLAN tags or MPLS labels.
    pub needs_tags: bool,
    /// MAC addresses.
    pub needs_macs: bool,
    /// Packet counters.
    pub needs_packets: bool,
    /// Byte counters.
    pub needs_bytes: bool,
    /// The TCP state.
    pub needs_state: bool,
    /// True if the filter tests the flow end reason.
    pub needs_end_reason: bool,
    /// True if the filter tests the duration, TCP flags or the round-trip time.
    pub needs_other: bool,
}

/// A filter on flow records.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowFilter {
    text: String,
    expr: Option<Expr>,
    required_fields: RequiredFields,
    need: Option<KeyCondition>,
}

impl FlowFilter {
    /// Parses a filter. The empty filter matches every record.
    ///
    /// # Errors
    /// The filter is invalid; the error contains the position, the cause and a correction. A primitive that does not
    /// apply to flow records is an error too.
    ///
    /// ```
    /// use netgrain_filter::FlowFilter;
    /// assert!(FlowFilter::parse("tcp dst port 443 and bytes > 1M and duration > 10s and not flags any R").is_ok());
    /// let refused = FlowFilter::parse("tcp[tcpflags] & tcp-syn != 0").unwrap_err().to_string();
    /// assert!(refused.contains("`flags S`"), "{refused}");
    /// ```
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        let expr = parse::parse(text)?;
        let (mut required_fields, mut refused) = (RequiredFields::default(), None);
        if let Some(expr) = &expr {
            expr.each(&mut |leaf| {
                if let (None, Err(why)) = (&refused, required_fields.add(leaf)) {
                    refused = Some(FilterError::of(text, leaf.span, why));
                }
            });
        }
        match refused {
            Some(e) => Err(e),
            None => Ok(Self {
                text: text.trim().to_owned(),
                need: Some(KeyCondition::of_flows(expr.as_ref())),
                expr,
                required_fields,
            }),
        }
    }

    /// The fields on which the result of the filter depends.
    pub fn required_fields(&self) -> RequiredFields {
        self.required_fields
    }

    /// A condition on index keys that every matching record fulfils. A query selects the blocks of an index by this
    /// condition.
    pub fn need(&self) -> KeyCondition {
        self.need.clone().unwrap_or(KeyCondition::Anything)
    }

    /// True for the empty filter, which matches every record.
    pub fn is_empty(&self) -> bool {
        self.expr.is_none()
    }

    /// True if the record matches.
    #[inline]
    pub fn matches(&self, flow: &FlowTerms) -> bool {
        self.expr.as_ref().is_none_or(|expr| of_expr(expr, flow))
    }
}

/// The text of the filter as the user wrote it.
impl fmt::Display for FlowFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for FlowFilter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        Self::parse(text)
    }
}

impl RequiredFields {
    /// Adds the fields of the flow record that a test reads. The error is the reason why the test cannot be applied to
    /// flow records.
    fn add(&mut self, leaf: &Leaf) -> Result<(), String> {
        match &leaf.prim {
            Primitive::Protocol(name) => match names::above(name) {
                Some(_) => (self.needs_protocol, self.needs_addresses) = (true, true),
                None if matches!(*name, "ip" | "ip6") => self.needs_addresses = true,
                None => return Err(format!("flow records contain only IP; use `netgrain packets '{name}'`")),
            },
            Primitive::IpProto(..) => (self.needs_protocol, self.needs_addresses) = (true, true),
            Primitive::EtherProto(0x0800 | 0x86dd) => self.needs_addresses = true,
            Primitive::Host4 { within: None | Some(AddressProtocol::Ip), .. }
            | Primitive::Host6 { .. }
            | Primitive::Multicast(Some(_)) => {
                self.needs_addresses = true;
            }
            Primitive::Host4 { .. } => return Err("flow records contain only IP; use `netgrain packets`".into()),
            Primitive::Ports { .. } => (self.needs_ports, self.needs_protocol) = (true, true),
            Primitive::Mac(..) => self.needs_macs = true,
            Primitive::Vlan(_) | Primitive::Mpls(_) => self.needs_tags = true,
            Primitive::Relation(left, _, right) => return Err(not_of_flows(left, right)),
            Primitive::Flow(test) => match test {
                FlowTest::Count(quantity, ..) => match quantity {
                    Quantity::Bytes => self.needs_bytes = true,
                    Quantity::Packets => self.needs_packets = true,
                    Quantity::PacketSize => (self.needs_bytes, self.needs_packets) = (true, true),
                    Quantity::BitRate => (self.needs_bytes, self.needs_other) = (true, true),
                    Quantity::PacketRate => (self.needs_packets, self.needs_other) = (true, true),
                    Quantity::Duration | Quantity::RoundTrip => self.needs_other = true,
                },
                FlowTest::Flags { .. } => self.needs_other = true,
                FlowTest::State(_) => self.needs_state = true,
                FlowTest::End(_) => self.needs_end_reason = true,
            },
            Primitive::Chain(_, p) => return Err(format!("a flow record has one protocol; write `proto {p}`")),
            _ => return Err("flow records do not contain what this word tests; use `netgrain packets`".into()),
        }
        Ok(())
    }
}

fn of_expr(expr: &Expr, flow: &FlowTerms) -> bool {
    match expr {
        Expr::Leaf(leaf) => of_prim(&leaf.prim, flow),
        Expr::Not(inner) => !of_expr(inner, flow),
        Expr::And(a, b) => of_expr(a, flow) && of_expr(b, flow),
        Expr::Or(a, b) => of_expr(a, flow) || of_expr(b, flow),
    }
}

fn of_prim(prim: &Primitive, flow: &FlowTerms) -> bool {
    let is = |version: Version| flow.src.is_ipv4() == (version == Version::V4);
    match *prim {
        Primitive::Protocol("ip") | Primitive::EtherProto(0x0800) => is(Version::V4),
        Primitive::Protocol("ip6") | Primitive::EtherProto(0x86dd) => is(Version::V6),
        Primitive::Protocol(name) => {
            let of = match name {
                "tcp" | "udp" | "sctp" | "pim" | "ah" | "esp" => true,
                "icmp6" => is(Version::V6),
                _ => is(Version::V4),
            };
            of && names::above(name) == Some(flow.protocol.0.into())
        }
        Primitive::IpProto(version, p) => u32::from(flow.protocol.0) == p && version.is_none_or(is),
        Primitive::Host4 { dir, address, mask, .. } => dir.holds(flow.src, flow.dst, |a| match a {
            IpAddr::V4(a) => a.to_bits() & mask == address,
            IpAddr::V6(_) => false,
        }),
        Primitive::Host6 { dir, address, mask } => dir.holds(flow.src, flow.dst, |a| match a {
            IpAddr::V6(a) => a.to_bits() & mask == address,
            IpAddr::V4(_) => false,
        }),
        Primitive::Multicast(version) => flow.dst.is_multicast() && version.is_none_or(is),
        Primitive::Ports { of, dir, low, high } => {
            let has = of.map_or(matches!(flow.protocol.0, 6 | 17 | 132), |of| flow.protocol.0 == of);
            has && dir.holds(flow.src_port, flow.dst_port, |p| (low..=high).contains(&p))
        }
        Primitive::Mac(dir, mac) => dir.holds(flow.macs[0], flow.macs[1], |m| m == Some(MacAddr(mac))),
        Primitive::Vlan(None) => flow.vlans.iter().any(Option::is_some),
        Primitive::Vlan(id) => flow.vlans.contains(&id),
        Primitive::Mpls(None) => flow.mpls.is_some(),
        Primitive::Mpls(label) => flow.mpls == label,
        Primitive::Flow(ref test) => of_record(test, flow),
        // Other primitives are not possible in a filter on flow records, because the parser rejects them.
        _ => false,
    }
}

fn of_record(test: &FlowTest, flow: &FlowTerms) -> bool {
    let side = |dir, both: [u64; 2]| match dir {
        Dir::Src => both[0],
        Dir::Dst => both[1],
        // The sum saturates, because a record that was received from the network may contain any number.
        Dir::Either | Dir::Both => both[0].saturating_add(both[1]),
    };
    match *test {
        FlowTest::Count(quantity, dir, cmp, wanted) => match quantity {
            Quantity::Bytes => cmp.holds(side(dir, flow.bytes), wanted),
            Quantity::Packets => cmp.holds(side(dir, flow.packets), wanted),
            Quantity::Duration => cmp.holds(flow.duration, wanted),
            // The rate of a record with the duration 0 is undefined, so no comparison of its rate holds.
            Quantity::BitRate => rate(side(dir, flow.bytes), 8, flow).is_some_and(|rate| cmp.holds(rate, wanted)),
            Quantity::PacketRate => rate(side(dir, flow.packets), 1, flow).is_some_and(|rate| cmp.holds(rate, wanted)),
            Quantity::PacketSize => {
                let size = side(dir, flow.bytes).checked_div(side(dir, flow.packets));
                size.is_some_and(|size| cmp.holds(size, wanted))
            }
            Quantity::RoundTrip => flow.rtt.is_some_and(|rtt| cmp.holds(rtt, wanted)),
        },
        FlowTest::Flags { dir, all, bits } => {
            let seen = match dir {
                Dir::Src => flow.flags[0],
                Dir::Dst => flow.flags[1],
                Dir::Either | Dir::Both => flow.flags[0] | flow.flags[1],
            };
            if all { seen & bits == bits } else { seen & bits != 0 }
        }
        FlowTest::State(state) => flow.state == state,
        FlowTest::End(end) => flow.end == end,
    }
}

/// A rate per second.
fn rate(count: u64, times: u64, flow: &FlowTerms) -> Option<u64> {
    let per = u128::from(count) * u128::from(times) * 1_000_000_000;
    (flow.duration > 0).then(|| u64::try_from(per / u128::from(flow.duration)).unwrap_or(u64::MAX))
}

/// The reason why a relation does not apply to flow records, and the expression to use instead.
fn not_of_flows(left: &ArithExpr, right: &ArithExpr) -> String {
    let has = |name: &str| uses(left, name) || uses(right, name);
    if has("tcp") {
        return "a flow record contains no packet bytes; for TCP flags write `flags S` or `flags any SF`".to_owned();
    }
    if matches!((left, right), (ArithExpr::Is(_) | ArithExpr::Len, ArithExpr::Is(_) | ArithExpr::Len)) {
        return "packets of one flow differ in length; write `bytes` or `packets`, or use `netgrain packets`"
            .to_owned();
    }
    "a flow record contains no packet bytes; use `netgrain packets`".to_owned()
}

fn uses(sum: &ArithExpr, name: &str) -> bool {
    match sum {
        ArithExpr::Is(_) | ArithExpr::Len => false,
        ArithExpr::Op(_, a, b) => uses(a, name) || uses(b, name),
        ArithExpr::Negative(n) => uses(n, name),
        ArithExpr::Load { protocol, index, .. } => *protocol == name || uses(index, name),
    }
}
