//! The eBPF back end: compiles a program of the IR to an XDP program, and defines the metadata that the kernel passes
//! to user space with a packet.
//!
//! [`emit`] compiles the stages that [`ir::placement`] assigns to the kernel. The loader of an [`Object`] creates the
//! maps in order, binds each map to its slot and attaches the program. The other stages run in user space:
//!
//! ```text
//!            ┌─ decided ──► first stages here ─┬─► dropped · out of a device · to the stack
//! packet ────┤                                 └─► user space: the record and the number of stages run ([`Metadata`])
//!            └─ other ────► user space, undecided: no effects in the kernel
//! ```
//! **The kernel decides only about packets that it can process completely.** A packet is passed to user space
//! *undecided* in three cases. First, the kernel's header parser does not support the packet: it has more than two VLAN
//! tags or more than [`EXTENSIONS`] extension headers, MPLS labels, a PPPoE header, or lengths that contradict each
//! other; the packet may be a tunnel, and the program inspects tunnels; the packet is a fragment, and the program uses
//! fragment tracking; or the packet is longer than 32,767 bytes, and the program computes offsets. Second, the program
//! reaches an operation that the kernel cannot perform (a copy, a log, reading the worker's sequence number). Third,
//! the driver leaves no space for metadata that user space needs ([`Metadata`]). An undecided packet had no effect in
//! the kernel, so user space evaluates the packet from the first stage on. For every packet about which the kernel
//! decides, the packet facts of the inner layer are equal to those of the outer layer.
//!
//! **Maps.** If a stage in the kernel uses a map, the map is in the kernel and shared by all queues, and no stage in
//! user space uses it. User space evaluates undecided packets with separate maps, because it cannot add to a number in
//! a kernel map atomically ([`Object::flow_maps`]). So a flow with decided and undecided packets has an entry in both
//! maps. An expired entry counts as absent, but occupies its slot until a packet with its key arrives or user space
//! removes it ([`MapValue::expired`]). The engine removes expired entries periodically, so a full map may refuse new
//! entries for one period longer than the rules of [`ir`] permit; the refusals are counted. The counters of the group
//! are the sums over kernel and user space.
#![forbid(unsafe_code)]

mod alloc;
mod common_case;
mod compile;
mod frame;
mod meta;
mod refusal;

pub use meta::{COMPACT_BYTES, KernelVerdict, METADATA_BYTES, MapValue, QueueGenerations};
pub use refusal::Refusal;

use ir::Program;

/// Options of [`emit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmitOptions {
    /// The link type of the interface; only Ethernet is supported.
    pub link_type: u16,
    /// The secret key of the flow hashes.
    pub hash_key: u64,
    /// The generation of the program, counted from 1. The metadata of packets for user space contain it
    /// ([`QueueGenerations`]).
    pub generation: u32,
    /// See [`ir::Meta::Port`].
    pub port: u32,
    /// See [`ir::Meta::Ingress`].
    pub ingress: u16,
    /// Number of queues of the interface, which is the number of entries of [`Role::Outcomes`] and [`Role::Sockets`].
    pub queues: u32,
    /// The source of the timestamp of a packet.
    pub clock: Clock,
    /// The destination of packets that are passed to user space.
    pub to_user: ToUser,
    /// The kind of metadata that the program writes before a packet for user space.
    pub metadata: Metadata,
}

/// The kind of metadata that the program writes before a packet for user space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metadata {
    /// No metadata, because some drivers do not permit a program to write before a frame. Without metadata, user space
    /// evaluates every packet from the first stage on, and programs that count or use maps are refused.
    None,
    /// The verdict record after the stages in the kernel, for every packet.
    Full,
    /// The verdict record only for programs that count or use maps. A program that does neither has no result except
    /// the verdict record, and user space can compute the record again from the packets that pass. Packets of such
    /// programs carry [`COMPACT_BYTES`] bytes of metadata, and the kernel program omits computations that serve only
    /// the record.
    ///
    /// PERF: the packet rate of `ip >-> steer_flow` with 60 B frames on veth is 2.9 % below that of a program that only
    /// redirects. It was 9.6 % below while every program wrote the verdict record and the kernel's header parser had no
    /// fast path (records/2026-11-22-xdp.md). With the verdict record, a frame extends into a second cache line of the
    /// socket's memory; loading this line caused a third of the 9.6 %.
    #[default]
    Compact,
}

/// The source of the timestamp of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The kernel's monotonic clock plus the number in [`Role::Clock`], which converts it to nanoseconds since 1970.
    #[default]
    Running,
    /// For tests: the timestamp of every packet is the number in [`Role::Clock`].
    Given,
}

/// The destination of packets that are passed to user space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToUser {
    /// The AF_XDP socket of the packet's queue in [`Role::Sockets`]; the host's stack if the queue has no socket.
    #[default]
    Sockets,
    /// For tests: the packet is not redirected; instead, the program returns this number as its XDP verdict.
    Verdict(u8),
}

/// A program for the kernel, which can be loaded.
#[derive(Clone, Debug)]
pub struct Object {
    /// The instructions; they refer to maps by index in `maps` ([`ebpf::Code::with_maps`]).
    pub code: ebpf::Code,
    /// The maps that the loader must create before it loads the program.
    pub maps: Vec<MapRequirement>,
    /// The number of stages of the program that run in the kernel.
    pub stages: usize,
    /// The kind of metadata that the program writes before a packet for user space.
    pub metadata: Metadata,
    /// True if the program parses headers. Such a program leaves a packet undecided if the packet has headers that the
    /// kernel's parser does not support.
    pub parses_headers: bool,
    /// True if the kernel decides only whether a packet passes, and user space evaluates each passed packet a second
    /// time, from the first stage on, to compute its verdict record.
    pub is_evaluated_again: bool,
}

impl Object {
    /// The indices of the program's flow maps that are in the kernel. User space uses separate maps for undecided
    /// packets, because it cannot add to a number in a kernel map atomically: additions that the kernel makes at the
    /// same time would be lost.
    pub fn flow_maps(&self) -> impl Iterator<Item = u16> {
        self.maps.iter().filter_map(|map| match map.role {
            Role::Flow(number) => Some(number),
            _ => None,
        })
    }
}

/// A map that the loader must create for an [`Object`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapRequirement {
    /// The purpose of the map.
    pub role: Role,
    /// The name of the map.
    pub name: String,
    /// The kernel's map type.
    pub kind: MapKind,
    /// Size of a map key in bytes.
    pub key: u32,
    /// Size of a map value in bytes.
    pub value: u32,
    /// Maximum number of entries.
    pub entries: u32,
    /// Keys and values that the loader must insert before the program runs. Devices and sockets are not included; the
    /// loader determines them.
    pub content: Vec<(Vec<u8>, Vec<u8>)>,
    /// A text that is equal for two maps exactly if the bytes of both maps have the same meaning. If a
    /// program and its successor specify a map with the same kind, sizes and `semantics`, the successor uses the map
    /// with its entries.
    pub semantics: String,
}

/// The purpose of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The flow map with this index in the program: the key consists of the words of the [`ir::Map`] key, and the value
    /// is a [`MapValue`].
    Flow(u16),
    /// Large address sets of the program; a key begins with the number of the set. A program has at most [`SET_MAPS`]
    /// maps of this role.
    Sets(u16),
    /// A map with one value: the [`ir::COUNTERS`] counters of the program, then the number of refused entries of each
    /// of the [`ir::MAX_MAPS`] flow maps.
    Counters,
    /// The devices of `forward`: for each device index of the program, the interface index.
    Devices,
    /// AF_XDP sockets, by queue.
    Sockets,
    /// For each queue, [`PacketOutcome::COUNT`] counters of packets by outcome.
    Outcomes,
    /// A map with one number, which the program adds to the kernel's monotonic clock ([`Clock`]).
    Clock,
    /// A map with one [`QueueGenerations`] for each queue.
    Generations,
}

/// Map types of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// A hash table; it refuses new entries when it is full.
    Hash,
    /// Longest prefix match.
    LpmTrie,
    /// Array.
    Array,
    /// An array with one value per entry and CPU.
    PerCpuArray,
    /// Network devices.
    DevMap,
    /// AF_XDP sockets.
    XskMap,
}

/// The outcome of a packet in the kernel. Each packet has exactly one outcome, so the sum of the counters is the number
/// of packets that the interface received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum PacketOutcome {
    /// Dropped by the program.
    Dropped = 0,
    /// Sent through a device.
    Forwarded = 1,
    /// The program passed the packet to the host's stack.
    Kernel = 2,
    /// The kernel decided that the packet passes, and passed it to user space.
    User = 3,
    /// The packet was passed to user space undecided: user space evaluates the program from the first stage on.
    Undecided = 4,
    /// The packet was to be passed to user space, but its queue has no socket, so it was passed to the host's stack.
    Unclaimed = 5,
    /// The packet was dropped, because the device through which it was to be sent does not exist.
    Unsent = 6,
}

impl PacketOutcome {
    /// The number of counters in [`Role::Outcomes`]: one for each outcome, and one that is reserved.
    pub const COUNT: usize = 8;
    /// All outcomes.
    pub const ALL: [Self; 7] =
        [Self::Dropped, Self::Forwarded, Self::Kernel, Self::User, Self::Undecided, Self::Unclaimed, Self::Unsent];
}

/// The maximum number of maps that a kernel program may use (`MAX_USED_MAPS`, linux/bpf_verifier.h).
pub const MAPS_MAX: usize = 64;
/// The maximum number of maps over which the large address sets of a program are distributed.
pub const SET_MAPS: u16 = 32;
/// The number of VLAN tags that the kernel's header parser skips.
pub const TAGS: usize = 2;
/// The number of IPv6 extension headers that the kernel's header parser skips.
pub const EXTENSIONS: usize = 3;

/// Compiles the XDP program that is attached if no stage can run in the kernel. The program passes all packets to user
/// space and only writes its generation, so that user space can determine which program generation processed each
/// packet.
pub fn announce(options: &EmitOptions) -> Object {
    compile::announce(options)
}

/// Compiles the program for the kernel.
///
/// # Errors
/// [`Refusal`] contains the reason why the program cannot run in the kernel.
pub fn emit(program: &Program, options: &EmitOptions) -> Result<Object, Refusal> {
    compile::compile(program, options)
}
