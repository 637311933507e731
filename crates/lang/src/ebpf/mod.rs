//! A program of the intermediate form as a program for the kernel (XDP), and what passes between the two halves.
//!
//! [`emit`] takes the stages that [`crate::ir::placement`] puts into the kernel. Whoever loads the [`Object`] makes its maps in
//! order, puts them in place of their slots, and attaches it; the other half of the program runs in user space:
//!
//! ```text
//!            ┌─ plain ───► first stages here ─┬─► dropped · out of a device · to the stack
//! packet ────┤                                └─► user space: the record and how many stages were done ([`Metadata`])
//!            └─ other ───► user space, undecided: nothing was done
//! ```
//! **The kernel decides only what it can decide alone.** A packet goes to user space *undecided* if its headers go beyond the kernel's
//! walk (more than two VLAN tags or [`EXTENSIONS`] extension headers, labels, lengths that contradict; for programs that look into
//! tunnels, everything that might be one; for those that remember which way datagrams go, every fragment), or if the program comes to something for it that the kernel cannot do (a copy, a log,
//! the worker's own numbers). That is always before the program had any effect, so user space judges it from the start, and the
//! facts of the inner layer are those of the outer one for every packet that the kernel decides.
//!
//! **Memory.** A map of the program that the kernel's stages use lives in the kernel, for all queues together, and no stage in user
//! space uses it. Only undecided packets come to it from user space: whoever judges them has to do it on the kernel's map. An
//! expired entry counts as absent, but holds its place until its key is seen again or user space takes it out ([`MapValue::expired`]), which the
//! engine does in rounds, so a full map may refuse for a round longer than the contract of [`crate::ir`] says; it counts that. The group's counters are the sum of both halves.

mod alloc;
mod common_case;
mod compile;
mod exits;
mod fast_path;
mod frame;
mod meta;
mod number;
mod parse_headers;
mod refusal;
mod tables;

pub use meta::{COMPACT_BYTES, KernelVerdict, METADATA_BYTES, MapValue, QueueGenerations};
pub use refusal::Refusal;

use crate::ir::Program;

/// What an object is emitted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmitOptions {
    /// The link type of the port; only Ethernet has a program.
    pub link_type: u16,
    /// The secret of the hashes.
    pub hash_key: u64,
    /// Which program this is, from 1 on: in the metadata of packets that it hands over ([`Generations`]).
    pub generation: u32,
    /// See [`crate::ir::Meta::Port`].
    pub port: u32,
    /// See [`crate::ir::Meta::Ingress`].
    pub ingress: u16,
    /// Queues of the port: entries of [`Role::Outcomes`] and [`Role::Sockets`].
    pub queues: u32,
    /// What the time of a packet is.
    pub clock: Clock,
    /// What becomes of packets for user space.
    pub to_user: ToUser,
    /// What goes along with a packet.
    pub metadata: Metadata,
}

/// What goes along with a packet for user space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metadata {
    /// Nothing: not every driver lets a program write before a frame. All packets come to user space undecided, and a program with
    /// effects is refused.
    None,
    /// The record, as the kernel's stages leave it.
    Full,
    /// The record only from programs that count or remember. All that others leave behind is the record, and user space can make it
    /// as well, by judging what passes once more: their packets come with [`COMPACT_BYTES`] bytes, and what nobody looks at is not computed.
    ///
    /// PERF: on veth, `ip >-> steer_flow` with 60 B frames: 9.6 → 2.9 % below the bare redirect (records/2026-11-22-xdp.md). The second
    /// cache line alone, which the kernel has to fetch to copy the record into the socket's memory, is 3 %.
    #[default]
    Compact,
}

/// What the time of a packet is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The kernel's monotonic clock plus the number in [`Role::Clock`]: what takes it to 1970.
    #[default]
    Running,
    /// The number in [`Role::Clock`] alone, as tests want it.
    Given,
}

/// What becomes of packets for user space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToUser {
    /// To the socket of their queue in [`Role::Sockets`]; to the stack where there is none.
    #[default]
    Sockets,
    /// The program ends with this number, as tests want it.
    Verdict(u8),
}

/// A program for the kernel.
#[derive(Clone, Debug)]
pub struct Object {
    /// Instructions, with maps by their index in `maps` ([`ebpf::Code::with_maps`]).
    pub code: ::ebpf::Code,
    /// The maps.
    pub maps: Vec<MapRequirement>,
    /// How many stages of the program it does.
    pub stages: usize,
    /// What goes along with a packet.
    pub metadata: Metadata,
    /// Whether it looks for headers, and so leaves packets undecided where they go beyond its walk.
    pub parses_headers: bool,
    /// Whether user space makes the record of what passes, by judging it once more: the kernel only said that it passes.
    pub is_evaluated_again: bool,
}

impl Object {
    /// The flow maps of the program that are kept in the kernel, by index. What is left undecided is remembered apart from them, in
    /// user space: there, nobody can raise a number without losing what the kernel raises meanwhile.
    pub fn flow_maps(&self) -> impl Iterator<Item = u16> {
        self.maps.iter().filter_map(|map| match map.role {
            Role::Flow(number) => Some(number),
            _ => None,
        })
    }
}

/// A map that an object needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapRequirement {
    /// What for.
    pub role: Role,
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: MapKind,
    /// Bytes of a key.
    pub key: u32,
    /// Bytes of a value.
    pub value: u32,
    /// Most entries.
    pub entries: u32,
    /// Keys and values to put in before the program runs; those of devices and sockets are put in by who knows them.
    pub content: Vec<(Vec<u8>, Vec<u8>)>,
    /// Words that are equal exactly where the bytes mean the same: a map of the same kind, sizes and meaning keeps what is in it
    /// when one program takes over from another.
    pub semantics: String,
}

/// What a map is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// A map of the program, by its index: [`crate::ir::Map`] words as key, [`MapValue`] as value.
    Flow(u16),
    /// Large sets of the program, each behind its number; there are as many of these as [`SET_MAPS`] at most.
    Sets(u16),
    /// One value: [`crate::ir::COUNTERS`] numbers, and behind them, by the map's index, how often each of [`crate::ir::MAX_MAPS`]
    /// refused an entry.
    Counters,
    /// Devices to forward to, by their index in the program: an interface's number each.
    Devices,
    /// Sockets, by queue.
    Sockets,
    /// By queue: [`PacketOutcome::COUNT`] numbers.
    Outcomes,
    /// One number, see [`Clock`].
    Clock,
    /// One value: by queue, [`Generations`].
    Generations,
}

/// Kinds of maps of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// From keys to values; refuses when it is full.
    Hash,
    /// Longest prefix.
    LpmTrie,
    /// By index.
    Array,
    /// By index, one value per processor.
    PerCpuArray,
    /// Network devices.
    DevMap,
    /// AF_XDP sockets.
    XskMap,
}

/// What became of a packet: each has exactly one, so their sum is what the port received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum PacketOutcome {
    /// Dropped by the program.
    Dropped = 0,
    /// Sent out of a device.
    Forwarded = 1,
    /// To the stack, because the program said so.
    Kernel = 2,
    /// To user space with its record.
    User = 3,
    /// To user space undecided.
    Undecided = 4,
    /// To the stack, because its queue has no socket.
    Unclaimed = 5,
    /// Dropped, because there is no device to send it out of.
    Unsent = 6,
}

impl PacketOutcome {
    /// How many there are; one more place is kept free.
    pub const COUNT: usize = 8;
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Dropped, Self::Forwarded, Self::Kernel, Self::User, Self::Undecided, Self::Unclaimed, Self::Unsent];
}

/// The most maps that a program may name (`MAX_USED_MAPS`, linux/bpf_verifier.h).
pub const MAPS_MAX: usize = 64;
/// Maps among which a program's large sets are dealt.
pub const SET_MAPS: u16 = 32;
/// VLAN tags that the kernel's walk looks through.
pub const TAGS: usize = 2;
/// Extension headers that the kernel's walk goes along.
pub const EXTENSIONS: usize = 3;

/// A program for the kernel that lets everything pass and only says which program it is, as those do that the kernel has no stage of: so
/// user space knows which packets are theirs.
pub fn announce(wish: &EmitOptions) -> Object {
    compile::announce(wish)
}

/// The program for the kernel.
///
/// # Errors
/// [`Refusal`]: why there is none.
pub fn emit(program: &Program, wish: &EmitOptions) -> Result<Object, Refusal> {
    compile::compile(program, wish)
}
