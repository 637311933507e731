//! Chooses the capture source of an interface by its properties and the given flags.

use crate::outcome::Failure;
use capture::afxdp::BusyPoll;
use capture::auto::{self, HostUse};
use clap::ValueEnum;
use config::SourceKind;
use engine::{InterfacePlan, SourcePlan};

/// The limits of one busy-poll call: 20 µs of polling, and 64 frames (the defaults of Suricata and DPDK).
const BUSY_POLL: BusyPoll = BusyPoll { micros: 20, budget: 64 };

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SourceKindArg {
    /// AF_XDP on an interface that is dedicated or that neither the host nor another program uses, otherwise TPACKET
    Auto,
    /// AF_XDP (needs --dedicated on an interface that the host uses)
    AfXdp,
    /// TPACKET_V3: shares the packets with the host
    Tpacket,
}

impl From<SourceKindArg> for SourceKind {
    fn from(kind: SourceKindArg) -> Self {
        match kind {
            SourceKindArg::Auto => Self::Auto,
            SourceKindArg::AfXdp => Self::AfXdp,
            SourceKindArg::Tpacket => Self::Tpacket,
        }
    }
}

/// The plan of an interface, with the capture source that its properties and the flags determine.
///
/// # Errors
/// The interface does not exist, or the host would lose traffic that it uses. Flags that the source does not support
/// only cause a message.
pub fn port(
    name: &str,
    kind: SourceKind,
    dedicated: bool,
    queues: Option<u16>,
    busy_poll: bool,
) -> Result<SourcePlan, Failure> {
    let facts = auto::PortFacts::gather(name).map_err(Failure::say)?;
    let choice = auto::decide(&facts, dedicated);
    let kind = match kind {
        SourceKind::Auto => {
            sys::say!("netgrain: {choice}");
            choice.kind()
        }
        SourceKind::Tpacket => {
            if dedicated {
                sys::say!("netgrain: {name}: TPACKET shares the interface: the host continues to receive its packets");
            }
            auto::SourceKind::Tpacket
        }
        SourceKind::AfXdp if facts.uses.contains(&HostUse::Loopback) => {
            return Err(Failure::Said(format!(
                "{name}: AF_XDP would take the loopback traffic from the host: use --source-kind tpacket, which \
                 shares the interface"
            )));
        }
        SourceKind::AfXdp if facts.uses.is_empty() || dedicated => auto::SourceKind::AfXdp,
        SourceKind::AfXdp => {
            let uses: Vec<String> = facts.uses.iter().map(ToString::to_string).collect();
            return Err(Failure::Said(format!(
                "{name}: the host uses this interface ({}), and AF_XDP would take its traffic away: use --source-kind \
                 tpacket to share the interface, or --dedicated to take it",
                uses.join(", ")
            )));
        }
    };
    // Without the warning, the capture of an interface that is down would look like a complete capture of no packets.
    if let Some(warning) = facts.silence_warning() {
        sys::say!("netgrain: {warning}");
    }
    if kind == auto::SourceKind::AfXdp && facts.other_sockets > 0 {
        let sockets = auto::packet_sockets(facts.other_sockets);
        sys::say!(
            "netgrain: {name}: other programs receive from this interface ({sockets}); they receive nothing from it \
             while AF_XDP captures it: --source-kind tpacket shares the interface"
        );
    }
    if busy_poll && kind == auto::SourceKind::Tpacket {
        sys::say!("netgrain: {name}: busy polling needs AF_XDP; TPACKET runs without it");
    }
    let mut plan = InterfacePlan { queues, ..InterfacePlan::new(name, kind) };
    plan.afxdp.busy_poll = busy_poll.then_some(BUSY_POLL);
    Ok(SourcePlan::Interface(plan))
}
