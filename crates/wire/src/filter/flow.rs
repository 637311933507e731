//! The filter asked of a whole conversation instead of a packet: the same words, and the answer is yes if a packet of the
//! conversation would match.
//!
//! All packets of one direction have the same addresses, ports and protocol, so a conversation is asked as the two packets
//! it is made of: one from source to destination and, if anybody answered, one back. `src 10.0.0.1` is therefore true of
//! both directions of a conversation of 10.0.0.1, as is `not src 10.0.0.1` once it was answered: to leave a host out,
//! `not host 10.0.0.1` is the word.
//!
//! What this cannot know: VLANs and link addresses are those of the first packet, where they differ, and of more than two
//! tags the two that were kept. Later fragments have no ports of their own but belong to a conversation that has. Where
//! packets came through a tunnel, the words are about what was in it, while those of packets are about what is outside.
//! Lengths differ from packet to packet and are refused, and so is a link address that may be the destination's.

use super::Filter;
use super::program::Program;
use super::test::{Direction, Network, Test, Within};
use crate::{EtherType, Family, IpProtocol, MacAddr};
use std::fmt;
use std::net::IpAddr;

/// What is asked of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowTerms {
    /// Who began.
    pub src: IpAddr,
    /// With whom; of the same family.
    pub dst: IpAddr,
    /// From which port; 0 where the protocol has none.
    pub src_port: u16,
    /// To which port.
    pub dst_port: u16,
    /// The protocol above IP.
    pub protocol: IpProtocol,
    /// Ids of the VLAN tags.
    pub vlans: [Option<u16>; 2],
    /// Who sent the first frame there and the first frame back.
    pub macs: [Option<MacAddr>; 2],
    /// Whether there are packets from source to destination, and back.
    pub seen: [bool; 2],
}

/// A filter that can be asked of conversations.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowFilter {
    program: Program,
    /// Whether the direction changes nothing, so that one packet stands for both.
    is_symmetric: bool,
    looks: Looks,
}

/// What a filter looks at, so that nobody has to fetch more of a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looks {
    /// At addresses, or at least at their family.
    pub at_addresses: bool,
    /// At ports.
    pub at_ports: bool,
    /// At the protocol.
    pub at_protocol: bool,
    /// At VLANs.
    pub at_vlans: bool,
    /// At link addresses.
    pub at_macs: bool,
}

/// A test that a conversation has no answer to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotOfFlows {
    /// The test, in the filter's words.
    pub test: String,
    why: String,
}

impl fmt::Display for NotOfFlows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.test, self.why)
    }
}

impl std::error::Error for NotOfFlows {}

impl Filter {
    /// The filter for conversations. A yes means that some packet of the flow would match.
    ///
    /// # Errors
    /// [`NotOfFlows`] names the first test that only a packet can answer, and says what to do.
    ///
    /// ```
    /// use netgrain_wire::{Filter, IpProtocol, filter::FlowTerms};
    /// let flow = FlowTerms {
    ///     src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into(), src_port: 40_000, dst_port: 53,
    ///     protocol: IpProtocol::UDP, vlans: [None; 2], macs: [None; 2], seen: [true, false],
    /// };
    /// let ask = |text: &str| Filter::parse(text).unwrap().of_flows().unwrap().matches(&flow);
    /// assert!(ask("udp dst port 53") && !ask("src 10.0.0.2"));
    /// let refused = Filter::parse("udp and less 64")?.of_flows().unwrap_err();
    /// assert!(refused.to_string().starts_with("`less 64`: packets of one flow differ in length"));
    /// # Ok::<(), netgrain_wire::FilterError>(())
    /// ```
    pub fn of_flows(&self) -> Result<FlowFilter, NotOfFlows> {
        let (mut is_symmetric, mut looks) = (true, Looks::default());
        for test in self.program.tests() {
            match *test {
                Test::Length(..) => {
                    let why =
                        "packets of one flow differ in length; leave it out, or ask `netgrain packets`".to_owned();
                    return Err(NotOfFlows { test: test.to_string(), why });
                }
                Test::Mac(direction, mac) if direction != Direction::Src => {
                    let why = format!("a flow keeps no link address of a receiver; write `ether src host {mac}`");
                    return Err(NotOfFlows { test: test.to_string(), why });
                }
                Test::Mac(..) => (is_symmetric, looks.at_macs) = (false, true),
                Test::Address(_, direction, _) => {
                    looks.at_addresses = true;
                    is_symmetric &= matches!(direction, Direction::Either | Direction::Both);
                }
                Test::Ports(_, direction, ..) => {
                    (looks.at_ports, looks.at_protocol) = (true, true);
                    is_symmetric &= matches!(direction, Direction::Either | Direction::Both);
                }
                Test::EtherType(_) => looks.at_addresses = true,
                Test::Protocol(family, _) => {
                    looks.at_protocol = true;
                    looks.at_addresses |= family.is_some();
                }
                Test::Vlan(_) => looks.at_vlans = true,
            }
        }
        Ok(FlowFilter { program: self.program.clone(), is_symmetric, looks })
    }
}

impl FlowFilter {
    /// What it looks at; of all else the answer does not depend.
    pub fn looks(&self) -> Looks {
        self.looks
    }

    /// Whether a packet of this conversation would match.
    #[inline]
    pub fn matches(&self, flow: &FlowTerms) -> bool {
        if self.is_symmetric {
            return self.way(flow, 0);
        }
        (flow.seen[0] && self.way(flow, 0)) || (flow.seen[1] && self.way(flow, 1))
    }

    fn way(&self, flow: &FlowTerms, way: usize) -> bool {
        let (mut ends, mut ports) = ((flow.src, flow.dst), (flow.src_port, flow.dst_port));
        if way == 1 {
            (ends, ports) = ((ends.1, ends.0), (ports.1, ports.0));
        }
        self.program.walk(|test| holds(test, flow, ends, ports, flow.macs[way]))
    }
}

/// What [`Test::holds`] is for a frame.
fn holds(test: &Test, flow: &FlowTerms, ends: (IpAddr, IpAddr), ports: (u16, u16), mac: Option<MacAddr>) -> bool {
    let family = if flow.src.is_ipv4() { Family::V4 } else { Family::V6 };
    match *test {
        Test::EtherType(EtherType::IPV4) => family == Family::V4,
        Test::EtherType(EtherType::IPV6) => family == Family::V6,
        // Whatever else a frame is, it is no part of a flow.
        Test::EtherType(_) => false,
        Test::Protocol(of, protocol) => flow.protocol == protocol && of.is_none_or(|of| of == family),
        Test::Address(Within::Arp, ..) => false,
        Test::Address(_, direction, network) => direction.holds(ends.0, ends.1, |a| network.contains(a)),
        Test::Ports(protocol, direction, first, last) => {
            let has = match protocol {
                Some(wanted) => flow.protocol == wanted,
                None => matches!(flow.protocol, IpProtocol::TCP | IpProtocol::UDP | IpProtocol::SCTP),
            };
            has && direction.holds(ports.0, ports.1, |p| (first..=last).contains(&p))
        }
        Test::Mac(_, wanted) => mac == Some(wanted),
        Test::Vlan(None) => flow.vlans.iter().any(Option::is_some),
        Test::Vlan(id) => flow.vlans.contains(&id),
        // Refused before.
        Test::Length(..) => false,
    }
}

impl Network {
    fn contains(self, address: IpAddr) -> bool {
        match (self, address) {
            (Self::V4 { address, mask }, IpAddr::V4(a)) => a.to_bits() & mask == address,
            (Self::V6 { address, mask }, IpAddr::V6(a)) => a.to_bits() & mask == address,
            _ => false,
        }
    }
}
