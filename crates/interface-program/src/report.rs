//! The report of an interface's program: how it runs, and its counters.

use ir::COUNTERS;
use jit::state_transfer::StateTransfer;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// The state and the counters of a program, as written to JSON.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProgramReport {
    /// The name of the program's file; for a program that is not from a file, a name that says where its text is from.
    pub name: String,
    /// The generation, a number that grows by 1 with each swap.
    pub generation: u32,
    /// Number of stages.
    pub stages: usize,
    /// Number of stages that run in the kernel.
    pub in_kernel: usize,
    /// The reason why no stage runs in the kernel, if none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_refusal: Option<String>,
    /// Instructions that the kernel's verifier processed.
    pub verified_instructions: u32,
    /// The state that was transferred from the previous program.
    #[serde(skip_serializing_if = "StateTransfer::is_empty")]
    pub state_transfer: StateTransfer,
    /// True if the user part is machine code.
    pub native: bool,
    /// The reason why the user part is interpreted, if it is not machine code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub native_refusal: Option<String>,
    /// The names of the flow maps in the kernel. For packets that the kernel part leaves undecided, the user part has
    /// separate maps in user space. In JSON, `maps` lists the maps of both parts with their fill levels.
    #[serde(skip)]
    pub kernel_maps: Vec<String>,
    /// Milliseconds to compile the user part.
    pub compile_ms: f64,
    /// Milliseconds to create, load and verify the kernel part.
    pub load_ms: f64,
    /// Milliseconds from the begin of the replacement until the new program runs.
    pub swap_ms: f64,
    /// Counters of the packets that the kernel part decided, by outcome.
    pub kernel: KernelOutcomes,
    /// Counters of the packets that the user part decided, by outcome, and of the copies that it sent.
    pub user: UserOutcomes,
    /// Number of undecided packets. The user part runs the whole program for them.
    pub undecided: u64,
    /// Values of the counters that the program increments, by the number of the counter. They include the counts of
    /// earlier programs.
    pub counters: BTreeMap<u8, u64>,
    /// The flow maps.
    pub maps: Vec<MapReport>,
}

/// Fill level of a program's map.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MapReport {
    /// The map's name.
    pub map: String,
    /// Fill level of the map in the kernel, which all queues share; `None` if no kernel stage uses the map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<MapUsage>,
    /// Sum of the fill levels of the map's instances in user space; each queue has one instance.
    pub user: MapUsage,
}

/// Counters of the packets that the kernel part decided, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelOutcomes {
    /// Packets dropped.
    pub dropped: u64,
    /// Packets sent out of another interface.
    pub forwarded: u64,
    /// Packets passed to the host.
    pub to_host: u64,
    /// Packets for an egress interface that does not exist any more or is not ready.
    pub unsent: u64,
}

/// Counters of the packets that the user part decided, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UserOutcomes {
    /// Packets dropped.
    pub dropped: u64,
    /// Packets sent out of another interface and not stored.
    pub forwarded: u64,
    /// Packets passed to the host and not stored.
    pub to_host: u64,
    /// Packets that no egress interface accepted, or that could not be passed to the host. The sum of `dropped`,
    /// `forwarded`, `to_host` and `unsent` is the number of packets that do not enter the ring.
    pub unsent: u64,
    /// Copies of stored packets sent out of other interfaces.
    pub copies: u64,
    /// Copies that an egress interface did not accept, counted once per interface. The packet itself was stored, sent
    /// out of another interface, or passed to the host.
    pub copies_unsent: u64,
    /// Forwards that were not carried out because this host had sent the packet. Such packets could circulate between
    /// the host's interfaces.
    pub forward_own: u64,
}

/// The fill level of a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MapUsage {
    /// Number of entries, including expired entries that were not yet removed. `None` for a map in the kernel with more
    /// than 1023 entries, because counting stops there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
    /// The largest number of entries that the map can contain.
    pub capacity: u64,
    /// Insertions refused because the map was full.
    pub refused: u64,
}

/// The counters of the program in one queue.
#[derive(Clone, Debug, Default)]
pub struct QueueOutcomes {
    /// Counters of the packets that the kernel part decided, by outcome.
    pub kernel: capture::ProgramOutcomes,
    /// Packets that the kernel part left undecided.
    pub undecided: u64,
    /// Counters of the packets that the user part decided, by outcome.
    pub user: UserOutcomes,
    /// Values of the counters that the user part of the program incremented.
    pub counters: Vec<u64>,
    /// Fill levels of the user part's maps, with their names.
    pub maps: Vec<(String, MapUsage)>,
}

impl ProgramReport {
    /// Adds the counters of one queue.
    pub fn add(&mut self, queue: &QueueOutcomes) {
        let (kernel, user) = (&queue.kernel, &queue.user);
        self.kernel.dropped += kernel.dropped;
        self.kernel.forwarded += kernel.forwarded;
        self.kernel.to_host += kernel.to_host;
        self.kernel.unsent += kernel.unsent;
        self.user.add(user);
        self.undecided += queue.undecided;
        self.count(&queue.counters);
        for (map, usage) in &queue.maps {
            // A queue may still run the previous program, which has other maps.
            if let Some(report) = self.maps.iter_mut().find(|report| report.map == *map) {
                report.user += *usage;
            }
        }
    }

    /// Adds these values to the program counters; the index of a value is the number of its counter. The values include
    /// those of counters that only an earlier program incremented.
    pub(crate) fn count(&mut self, numbers: &[u64]) {
        for (counter, n) in (0..COUNTERS).zip(numbers).filter(|(_, n)| **n != 0) {
            let sum = self.counters.entry(counter).or_default();
            *sum = sum.wrapping_add(*n);
        }
    }
}

impl UserOutcomes {
    /// Adds the outcomes of the packets that `other` counts.
    pub(crate) fn add(&mut self, other: &Self) {
        self.dropped += other.dropped;
        self.forwarded += other.forwarded;
        self.to_host += other.to_host;
        self.unsent += other.unsent;
        self.copies += other.copies;
        self.copies_unsent += other.copies_unsent;
        self.forward_own += other.forward_own;
    }
}

impl AddAssign for MapUsage {
    fn add_assign(&mut self, o: Self) {
        self.used = self.used.zip(o.used).map(|(a, b)| a + b);
        self.capacity += o.capacity;
        self.refused += o.refused;
    }
}
