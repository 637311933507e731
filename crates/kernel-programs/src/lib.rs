//! The eBPF back end: compiles a program of the IR to an XDP program, and defines the metadata between the kernel and
//! user space.
//!
//! [`emit`] compiles the stages that [`ir::placement`] assigns to the kernel. The loader of an [`Object`]
//! creates its maps in order, binds them to their slots and attaches the program. The other stages run in user space:
//!
//! ```text
//!            ┌─ decided ──► first stages here ─┬─► dropped · out of a device · to the stack
//! packet ────┤                                 └─► user space: the record and the number of stages run ([`Metadata`])
//!            └─ other ────► user space, undecided: no effects in the kernel
//! ```
//! **The kernel decides only packets that it can decide alone.** A packet goes to user space *undecided* in three
//! cases. First, the packet exceeds the kernel's header parser: more than two VLAN tags or [`EXTENSIONS`] extension
//! headers, MPLS labels, PPPoE, lengths that contradict each other; for programs that inspect tunnels, any packet
//! that may be a tunnel; for programs with fragment tracking, any fragment; for programs that compute offsets, any
//! frame of more than 32,767 bytes. Second, the program reaches an operation that the kernel cannot do (a copy, a log,
//! the worker's own sequence number). Third, the driver leaves no space for metadata that user space needs
//! ([`Metadata`]). An undecided packet had no effect in the kernel, so user space evaluates the packet from the first
//! stage. For every packet that the kernel decides, the packet facts of the inner layer equal those of the outer layer.
//!
//! **Maps.** A map that the kernel's stages use lives in the kernel, shared by all queues, and no later stage in user
//! space uses it. User space evaluates undecided packets with separate maps, because it cannot add to a number in a
//! kernel map atomically ([`Object::flow_maps`]). So a flow with decided and undecided packets has an entry in both
//! maps. An expired entry counts as absent, but occupies its slot until its key is seen again or until user space
//! removes it ([`MapValue::expired`]). The engine removes expired entries periodically, so a full map may refuse new
//! entries for one period longer than the contract of [`ir`] states; the refusals are counted. The counters of the
//! group are the sums over kernel and user space.
#![forbid(unsafe_code)]

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

use ir::Program;

/// Options of [`emit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmitOptions {
    /// The link type of the interface; only Ethernet can be compiled.
    pub link_type: u16,
    /// The secret key of the hashes.
    pub hash_key: u64,
    /// The program generation, from 1 on; it is part of the metadata of packets for user space ([`QueueGenerations`]).
    pub generation: u32,
    /// See [`ir::Meta::Port`].
    pub port: u32,
    /// See [`ir::Meta::Ingress`].
    pub ingress: u16,
    /// Number of queues of the interface: entries of [`Role::Outcomes`] and [`Role::Sockets`].
    pub queues: u32,
    /// The time of a packet.
    pub clock: Clock,
    /// The destination of packets for user space.
    pub to_user: ToUser,
    /// The metadata that accompany a packet.
    pub metadata: Metadata,
}

/// The metadata that accompany a packet to user space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metadata {
    /// No metadata, because some drivers do not let a program write before a frame. All packets reach user space
    /// undecided, and a program with effects is refused.
    None,
    /// The record after the kernel's stages.
    Full,
    /// The full record only for programs that count or use maps. Other programs leave nothing but the record, which
    /// user space can recompute by a second evaluation of the packets that pass: such packets carry [`COMPACT_BYTES`]
    /// bytes, and the kernel skips computing unused values.
    ///
    /// PERF: on veth, `ip >-> steer_flow` with 60 B frames: 9.6 → 2.9 % below the bare redirect
    /// (records/2026-11-22-xdp.md). The second cache line alone, which the kernel has to fetch to copy the record into
    /// the socket's memory, is 3 %.
    #[default]
    Compact,
}

/// The source of a packet's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The kernel's monotonic clock plus the number in [`Role::Clock`], which is the offset to 1970.
    #[default]
    Running,
    /// The number in [`Role::Clock`] alone, for tests.
    Given,
}

/// The destination of packets for user space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToUser {
    /// The socket of the packet's queue in [`Role::Sockets`]; the host's stack if the queue has no socket.
    #[default]
    Sockets,
    /// The program returns this number, for tests.
    Verdict(u8),
}

/// A program for the kernel, ready to be loaded.
#[derive(Clone, Debug)]
pub struct Object {
    /// Instructions that refer to maps by their index in `maps` ([`ebpf::Code::with_maps`]).
    pub code: ebpf::Code,
    /// The maps that the loader must create.
    pub maps: Vec<MapRequirement>,
    /// The number of stages of the program that run in the kernel.
    pub stages: usize,
    /// The metadata that accompany a packet.
    pub metadata: Metadata,
    /// True if the program parses headers. Such a program leaves packets undecided whose headers exceed the kernel's
    /// parser.
    pub parses_headers: bool,
    /// True if user space evaluates passed packets again to compute their record; the kernel reports only that they
    /// pass.
    pub is_evaluated_again: bool,
}

impl Object {
    /// The indexes of the program's flow maps that are kept in the kernel. Undecided packets use separate maps in user
    /// space, because user space cannot add to a number in a kernel map atomically: additions by the kernel at the same
    /// time would be lost.
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
    /// The purpose of the map.
    pub role: Role,
    /// The name of the map.
    pub name: String,
    /// The kernel's map type.
    pub kind: MapKind,
    /// Size of a key in bytes.
    pub key: u32,
    /// Size of a value in bytes.
    pub value: u32,
    /// Maximum number of entries.
    pub entries: u32,
    /// Keys and values to insert before the program runs. The loader inserts devices and sockets.
    pub content: Vec<(Vec<u8>, Vec<u8>)>,
    /// A text that is equal for two maps exactly if their bytes have the same meaning. When one program replaces
    /// another, a map with the same kind, sizes and `semantics` keeps its entries.
    pub semantics: String,
}

/// The purpose of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// A flow map of the program, by index: the words of the [`ir::Map`] key as key, [`MapValue`] as value.
    Flow(u16),
    /// Large sets of the program; the key begins with the number of the set. There are at most [`SET_MAPS`] such maps.
    Sets(u16),
    /// One value: [`ir::COUNTERS`] numbers, then for each of [`ir::MAX_MAPS`] maps, by index, the number
    /// of refused entries.
    Counters,
    /// Devices for `forward`, by their index in the program: an interface index each.
    Devices,
    /// AF_XDP sockets, by queue.
    Sockets,
    /// By queue: [`PacketOutcome::COUNT`] counters.
    Outcomes,
    /// One number; see [`Clock`].
    Clock,
    /// One value: [`QueueGenerations`] by queue.
    Generations,
}

/// Map types of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// Hash table; refuses new entries when it is full.
    Hash,
    /// Longest prefix match.
    LpmTrie,
    /// Array.
    Array,
    /// Array with one value per CPU.
    PerCpuArray,
    /// Network devices.
    DevMap,
    /// AF_XDP sockets.
    XskMap,
}

/// The outcome of a packet. Each packet has exactly one outcome, so the sum of the counters is the number of packets
/// that the interface received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum PacketOutcome {
    /// Dropped by the program.
    Dropped = 0,
    /// Sent through a device.
    Forwarded = 1,
    /// Passed to the host's stack by the program.
    Kernel = 2,
    /// Passed to user space with its record.
    User = 3,
    /// Passed to user space undecided.
    Undecided = 4,
    /// Passed to the host's stack because its queue has no socket.
    Unclaimed = 5,
    /// Dropped because the device to send it through is missing.
    Unsent = 6,
}

impl PacketOutcome {
    /// The number of counters: one more than the number of outcomes; the last is reserved.
    pub const COUNT: usize = 8;
    /// All outcomes.
    pub const ALL: [Self; 7] =
        [Self::Dropped, Self::Forwarded, Self::Kernel, Self::User, Self::Undecided, Self::Unclaimed, Self::Unsent];
}

/// The maximum number of maps of a kernel program (`MAX_USED_MAPS`, linux/bpf_verifier.h).
pub const MAPS_MAX: usize = 64;
/// The maximum number of maps over which the large sets of a program are distributed.
pub const SET_MAPS: u16 = 32;
/// The number of VLAN tags that the kernel's header parser skips.
pub const TAGS: usize = 2;
/// The number of extension headers that the kernel's header parser follows.
pub const EXTENSIONS: usize = 3;

/// An XDP program for programs without a stage in the kernel. It passes all packets and only writes the program
/// generation, so that user space can assign each packet to its program.
pub fn announce(options: &EmitOptions) -> Object {
    compile::announce(options)
}

/// Compiles the program for the kernel.
///
/// # Errors
/// [`Refusal`]: the reason why the program cannot run in the kernel.
pub fn emit(program: &Program, options: &EmitOptions) -> Result<Object, Refusal> {
    compile::compile(program, options)
}
