//! Determines the effects of each stage of a program. The offload placement ([`super::placement`]) uses the effects to
//! select the stages that run in the kernel.

use super::{Block, End, FragmentScope, Inst, Layer, Meta, Program, Set, Var};
use std::collections::BTreeSet;
use std::fmt;

/// An effect of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Effect {
    /// Drops packets.
    Drop,
    /// Selects which members of the classes get the packet.
    Fanout,
    /// Selects the classes whose members can get the packet.
    Classes,
    /// Writes the mark or the state of the verdict record.
    Mark,
    /// Adds to a counter of the group.
    Count,
    /// Reads a map.
    MapRead,
    /// Writes a map.
    MapWrite,
    /// Sends the packet through a network interface.
    Forward,
    /// Passes the packet to the network stack of the host.
    Kernel,
    /// Writes a log.
    Log,
    /// Reads headers of the packets inside tunnels.
    Tunnel,
    /// Reads a value that only the worker in user space can provide: the worker's packet sequence number, the NIC's
    /// hash, the addresses of this host, or whether the packet is a duplicate.
    Local,
    /// Uses fragment tracking, which gives all fragments of a datagram the steering and the ports of the first
    /// fragment.
    Datagram,
}

impl Effect {
    /// All effects in order.
    pub const ALL: [Self; 13] = [
        Self::Drop,
        Self::Fanout,
        Self::Classes,
        Self::Mark,
        Self::Count,
        Self::MapRead,
        Self::MapWrite,
        Self::Forward,
        Self::Kernel,
        Self::Log,
        Self::Tunnel,
        Self::Local,
        Self::Datagram,
    ];

    /// The name of the effect in documentation and in the output of `explain`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Fanout => "fanout",
            Self::Classes => "classes",
            Self::Mark => "mark",
            Self::Count => "count",
            Self::MapRead => "read",
            Self::MapWrite => "write",
            Self::Forward => "forward",
            Self::Kernel => "kernel",
            Self::Log => "log",
            Self::Tunnel => "tunnel",
            Self::Local => "local",
            Self::Datagram => "datagram",
        }
    }
}

/// A set of effects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Effects(u16);

impl Effects {
    /// The set of these effects.
    pub const fn of(effects: &[Effect]) -> Self {
        let (mut bits, mut i) = (0, 0);
        while i < effects.len() {
            bits |= 1 << effects[i] as u16;
            i += 1;
        }
        Self(bits)
    }

    /// True if this set contains `effect`.
    pub const fn has(self, effect: Effect) -> bool {
        self.0 >> effect as u16 & 1 == 1
    }

    /// The union of both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if `other` contains all effects of this set.
    pub const fn within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }
}

/// Prints a list like `drop, mark`, or `nothing` for the empty set.
impl fmt::Display for Effects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = Effect::ALL.into_iter().filter(|e| self.has(*e)).map(Effect::name).collect();
        f.write_str(if names.is_empty() { "nothing" } else { "" })?;
        f.write_str(&names.join(", "))
    }
}

impl Program {
    /// The effects of a stage.
    pub fn effects_of(&self, stage: usize) -> Effects {
        self.blocks[self.blocks_of(stage)]
            .iter()
            .map(|b| self.effects_of_block(b))
            .fold(Effects::default(), Effects::with)
    }

    /// The effects of all stages of the program.
    pub fn effects(&self) -> Effects {
        self.blocks.iter().map(|b| self.effects_of_block(b)).fold(Effects::default(), Effects::with)
    }

    /// The numbers of the counters that the program changes, in ascending order.
    pub fn counters(&self) -> BTreeSet<u8> {
        let counter = |inst: &Inst| match inst {
            Inst::Count { counter, .. } => Some(*counter),
            _ => None,
        };
        self.blocks.iter().flat_map(|b| &b.code).filter_map(counter).collect()
    }

    /// True if the program reads the direction of packets. Such a program can distinguish the packets that this host
    /// sent from received packets, so it may forward both.
    pub fn reads_direction(&self) -> bool {
        let reads = |inst: &Inst| matches!(inst, Inst::Meta { meta: Meta::Outgoing, .. });
        self.blocks.iter().flat_map(|b| &b.code).any(reads)
    }

    fn effects_of_block(&self, block: &Block) -> Effects {
        let mut all = Effects::default();
        let mut note = |e| all = all.with(Effects::of(&[e]));
        for inst in &block.code {
            match inst {
                Inst::Set { var: Var::Kind | Var::Hash | Var::Hash2, .. } => note(Effect::Fanout),
                Inst::Set { var: Var::Classes, .. } => note(Effect::Classes),
                Inst::Set { var: Var::Mark | Var::State, .. } => note(Effect::Mark),
                Inst::Count { .. } => note(Effect::Count),
                // In a map with an idle timeout, reading an entry also renews its timestamp, which is a write.
                Inst::MapGet { map, .. } if self.is_touched(*map) => {
                    note(Effect::MapRead);
                    note(Effect::MapWrite);
                }
                Inst::MapGet { .. } | Inst::Has { .. } => note(Effect::MapRead),
                Inst::MapPut { .. } | Inst::MapDelete { .. } => note(Effect::MapWrite),
                Inst::MapAdd { .. } => {
                    note(Effect::MapRead);
                    note(Effect::MapWrite);
                }
                Inst::Forward { .. } => note(Effect::Forward),
                Inst::Kernel => note(Effect::Kernel),
                Inst::Log(_) => note(Effect::Log),
                Inst::Fact { layer: Layer::Inner, .. } | Inst::Meta { meta: Meta::Depth | Meta::Part, .. } => {
                    note(Effect::Tunnel);
                }
                Inst::Datagram { parts, .. } => {
                    note(Effect::Datagram);
                    if *parts != FragmentScope::Outer {
                        note(Effect::Tunnel);
                    }
                }
                Inst::Meta { meta: Meta::Sequence | Meta::Rss | Meta::Duplicate, .. } => note(Effect::Local),
                Inst::Duplicate { .. } => note(Effect::Local),
                Inst::Member { set, .. } if self.sets.get(usize::from(*set)) == Some(&Set::Host) => note(Effect::Local),
                _ => (),
            }
        }
        if block.end == End::Drop {
            note(Effect::Drop);
        }
        all
    }
}

impl Program {
    fn is_touched(&self, map: u16) -> bool {
        self.maps.get(usize::from(map)).is_some_and(|m| matches!(m.expiry, super::Expiry::Idle(_)))
    }
}
