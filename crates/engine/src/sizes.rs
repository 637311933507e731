//! Default memory sizes of a capture. They depend on the source, and are at most an eighth of the process's memory
//! limit for the rings and another eighth for the flow tables. A plan that needs more memory is rejected before any
//! allocation, with an error that contains the sizes. The kernel would not refuse the allocation, because it
//! overcommits memory; later the OOM killer would end a process.

use crate::duplicates::{self, DuplicateScope};
use crate::plan::{Plan, SourcePlan};
use base::units::{plural, show_bytes, show_count};
use ring::Prefault;
use std::fmt;
use sys::memory_limit::{LimitSource, MemoryLimit, memory_limit};

/// The default size of all rings of a live interface together, in bytes.
const RING: u64 = 1 << 30;

/// The least default size of each ring of a live interface in bytes, if the memory permits.
const MIN: u64 = 64 << 20;

/// The least size of any ring in bytes.
const MIN_TOTAL: u64 = 8 << 20;

/// The size of the ring of a replay in bytes. Reading a file waits for the readers, so the ring needs space only for
/// the writes in flight ([`crate::WRITE_DEPTH`]) and the same space again for the readers.
const REPLAY: u64 = 64 << 20;

/// The default number of concurrent flows.
const FLOWS: u64 = 1 << 20;

/// The memory of a flow entry with some packets, including its part of the table, in bytes
/// (`docs/design/flow-metering.md`).
const FLOW_BYTES: u64 = 448;

/// The least number of bytes of a packet in a capture file: a RAW header and half an IPv4 header. A shorter packet
/// belongs to no flow.
const PACKET_BYTES: u64 = 24;

/// The smallest capacity, in flows, of a flow table whose size is derived from the size of the input.
const MIN_FLOWS: u64 = 4096;

/// Address space of a meter in addition to its flow table. It is used for the stacks of its threads, for journals, and
/// for the columns of the journal that is being sealed. With a ring of 8 MiB and a table of 6 MiB, a limit of 98 MiB
/// was too small and 195 MiB was sufficient.
const METER: u64 = 64 << 20;

/// Returns the number of bytes that a process uses by default for rings or for flow tables.
fn share(memory_limit: &MemoryLimit) -> u64 {
    if memory_limit.limit == 0 { u64::MAX } else { memory_limit.limit / 8 }
}

/// Returns the default size of each ring of a live interface in bytes. The rings of all `queues` together have 1 GiB
/// or, if that is less, with their descriptors an eighth of the memory limit of this process.
pub fn default_ring(queues: u16) -> u64 {
    ring_within(&memory_limit(), queues)
}

fn ring_within(memory_limit: &MemoryLimit, queues: u16) -> u64 {
    let queues = u64::from(queues.max(1));
    let wanted = (RING / queues.next_power_of_two()).max(MIN);
    // The descriptors add a quarter to the packet memory.
    let fits = share(memory_limit) / 5 * 4 / queues;
    wanted.min(power_below(fits)).max(MIN_TOTAL)
}

/// Returns the default number of concurrent flows for each of `ports` interfaces: 2^20, or the number that fits into an
/// eighth of the memory limit of this process.
pub fn default_flows(ports: u16) -> u64 {
    flows_within(&memory_limit(), ports)
}

fn flows_within(memory_limit: &MemoryLimit, ports: u16) -> u64 {
    (share(memory_limit) / FLOW_BYTES / u64::from(ports.max(1))).clamp(MIN_FLOWS, FLOWS)
}

/// Returns the largest power of two that is not greater than `n`; 0 for 0.
fn power_below(n: u64) -> u64 {
    n.checked_ilog2().map_or(0, |log| 1 << log)
}

/// The reason why a plan needs more memory than this process may use.
#[derive(Clone, Debug)]
pub enum SizesError {
    /// The rings exceed the available memory.
    Rings {
        /// Size of each ring in bytes.
        ring: u64,
        /// Size of all rings with their descriptors in bytes.
        wanted: u64,
        /// Number of rings.
        queues: u64,
        /// The memory limit.
        memory_limit: MemoryLimit,
        /// Available memory in bytes, including reserved huge pages.
        available: u64,
        /// The largest ring size in bytes that would fit.
        fits: Option<u64>,
    },
    /// The flow table exceeds the memory limit.
    Flows {
        /// The number of flows.
        flows: u64,
        /// The memory limit.
        memory_limit: MemoryLimit,
    },
    /// The tables of the detection of duplicates exceed the available memory.
    Duplicates {
        /// The number of records of each table.
        records: u64,
        /// The number of tables.
        tables: u64,
        /// The memory of all tables in bytes.
        wanted: u64,
        /// The memory limit.
        memory_limit: MemoryLimit,
        /// The memory in bytes that remains beside the rings.
        available: u64,
        /// The largest number of records that would fit.
        fits: u64,
    },
    /// The plan exceeds the limit of the address space.
    AddressSpace {
        /// Address space for the rings in bytes.
        rings: u64,
        /// The number of flows.
        flows: u64,
        /// The limit of the address space of the process in bytes.
        has: u64,
        /// Free address space in bytes.
        free: u64,
        /// A limit of the address space that would be sufficient, in KiB.
        limit: u64,
    },
}

impl fmt::Display for SizesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rings { ring, wanted, queues, memory_limit, available, fits } => {
                let rings = if *queues > 1 { format!(", for {queues} rings") } else { String::new() };
                let fits = fits.map(|fits| format!("; {} would fit", show_bytes(fits))).unwrap_or_default();
                let reason = format!(
                    "{} are needed with the descriptors{rings}, but of the {} that {} has, only {} are free{fits}",
                    show_bytes(*wanted),
                    show_bytes(memory_limit.limit),
                    memory_limit.owner(),
                    show_bytes(*available),
                );
                f.write_str(&no_ring(*ring, reason))
            }
            Self::Flows { flows, memory_limit } => write!(
                f,
                "a full table of {} flows needs {}, but {} has {}; choose fewer flows with --set flow.capacity=N, at \
                 most {}",
                show_count(*flows),
                show_bytes(flows.saturating_mul(FLOW_BYTES)),
                memory_limit.owner(),
                show_bytes(memory_limit.limit),
                show_count(memory_limit.limit / FLOW_BYTES),
            ),
            Self::Duplicates { records, tables, wanted, memory_limit, available, fits } => write!(
                f,
                "{} of {} records of duplicates need {}, but of the {} that {} has, only {} are free beside the rings; \
                 choose fewer records with --set capture.duplicate_records=N, at most {}",
                plural(*tables, "table", "tables"),
                show_count(*records),
                show_bytes(*wanted),
                show_bytes(memory_limit.limit),
                memory_limit.owner(),
                show_bytes(*available),
                show_count(*fits),
            ),
            Self::AddressSpace { rings, flows, has, free, limit } => {
                let table = flows.saturating_mul(FLOW_BYTES);
                write!(
                    f,
                    "{} of address space are needed ({} for rings, {} for {} flows, {} to make and seal records and \
                     rows), but of the {} that this process may use, {} are free; raise the limit (ulimit -v {limit}), \
                     or choose a smaller --ring or fewer flows with --set flow.capacity=N; netgrain record stores only \
                     the packets",
                    show_bytes(rings.saturating_add(table).saturating_add(METER)),
                    show_bytes(*rings),
                    show_bytes(table),
                    show_count(*flows),
                    show_bytes(METER),
                    show_bytes(*has),
                    show_bytes(*free),
                )
            }
        }
    }
}

impl std::error::Error for SizesError {}

/// Returns the text for a ring that cannot be allocated.
pub fn no_ring(bytes: u64, reason: impl fmt::Display) -> String {
    format!(
        "no memory for a ring of {}: {reason}; choose a smaller ring with --ring, or raise the memory limit \
         (ulimit -v, the control group's memory.max)",
        show_bytes(bytes)
    )
}

/// The ring sizes of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Packet memory of each ring in bytes; the ring rounds it up.
    pub ring: u64,
    /// The part of the ring's memory that is touched before the first packet.
    pub prefault: Prefault,
}

impl Sizes {
    /// Chooses the sizes for a capture with this number of queues.
    ///
    /// # Errors
    /// The plan needs more memory than is available; the error contains both sizes.
    pub fn of(plan: &Plan, queues: u16) -> Result<Self, SizesError> {
        Self::within(&memory_limit(), sys::cpu::reserved_memory(), plan, queues)
    }

    fn within(memory_limit: &MemoryLimit, reserved: u64, plan: &Plan, queues: u16) -> Result<Self, SizesError> {
        let live = matches!(plan.source, SourcePlan::Interface(_));
        let default = ring_within(memory_limit, queues.saturating_mul(plan.shares.max(1)));
        // Listeners and members of groups may be slower than a replay. With a small ring, the replay would overwrite
        // packets that they have not read.
        let has_slow_readers = plan.socket.is_some() || !plan.groups.is_empty();
        let chosen = match plan.source {
            SourcePlan::File { .. } | SourcePlan::Files { .. } if !has_slow_readers => default.min(REPLAY),
            _ => default,
        };
        // The ring needs space for all bytes of the input, one block for the start of a segment, and one block for the
        // gap at the end of the segment.
        let needed = most_bytes(plan).map_or(u64::MAX, |bytes| bytes.saturating_add(2 * ring::BLOCK));
        let chosen = chosen.min(needed.checked_next_power_of_two().unwrap_or(u64::MAX)).max(MIN_TOTAL);
        let ring = plan.ring.unwrap_or(chosen);
        // The check adds the rings of the other captures of this process to the rings of this capture, because those
        // rings are not allocated yet and will need memory too.
        check_rings(memory_limit, reserved, ring, queues.saturating_mul(plan.shares.max(1)))?;
        check_duplicates(memory_limit, reserved, ring, plan, queues)?;
        if let Some(flows) = plan.meter.as_ref().and_then(|meter| meter.flows.as_ref()) {
            check_flows(memory_limit, flows.capacity as u64)?;
        }
        if let Some(meter) = &plan.meter {
            let flows = meter.flows.as_ref().map_or(0, |flows| flows.capacity as u64);
            check_address_space(memory_limit, ring, queues.saturating_mul(plan.shares.max(1)), flows)?;
        }
        Ok(Self { ring, prefault: if live { Prefault::Behind } else { Prefault::Lazy } })
    }
}

/// Returns a text that describes the chosen sizes.
pub fn description(plan: &Plan, ring: u64, queues: usize) -> String {
    let memory_limit = memory_limit();
    let rings = match queues {
        1 => format!("a ring of {}", show_bytes(ring)),
        n => format!("{n} rings of {}", show_bytes(ring)),
    };
    let flows = plan.meter.as_ref().and_then(|meter| meter.flows.as_ref());
    let flows = flows.map_or_else(String::new, |flows| {
        let (count, bytes) = (flows.capacity as u64, flows.capacity as u64 * FLOW_BYTES);
        format!(", up to {} flows ({} if the table is full)", show_count(count), show_bytes(bytes))
    });
    let whole = match memory_limit.limit {
        0 => String::new(),
        limit => format!("; {} has {}", memory_limit.owner(), show_bytes(limit)),
    };
    let tables = plan.duplicates.as_ref().map_or_else(String::new, |duplicates| {
        let (records, each) =
            (duplicates.settings.records as u64, duplicates::memory(&duplicates.settings, &duplicates.scope));
        let (records, each) = (show_count(records), show_bytes(each));
        match (&duplicates.scope, queues) {
            (DuplicateScope::Queue, 2..) => {
                format!(", {queues} tables of {records} records of duplicates ({each} each)")
            }
            _ => format!(", a table of {records} records of duplicates ({each})"),
        }
    });
    format!("memory: {rings}{flows}{tables}{whole}")
}

/// Returns the number of bytes that are preallocated for a packet file: the segment size or, if that is less, the size
/// of all packets of the input. With a segment of 2 GiB, freeing the unused space took 38 of the 100 ms in which a
/// capture of 3 MB is replayed.
pub fn of_file(plan: &Plan) -> u64 {
    most_bytes(plan).map_or(plan.segment, |most| plan.segment.min(most.next_multiple_of(ring::BLOCK) + ring::BLOCK))
}

/// Returns the largest packet memory that the complete input can need; `None` if the input is not limited.
fn most_bytes(plan: &Plan) -> Option<u64> {
    let each = |paths: &mut dyn Iterator<Item = &std::path::Path>| paths.map(capture::file::plain_bytes).sum();
    let source = match &plan.source {
        SourcePlan::File { path, .. } => each(&mut std::iter::once(path.as_path())),
        SourcePlan::Files { paths, .. } => each(&mut paths.iter().map(|path| path.as_path())),
        SourcePlan::Sim { spec, .. } => spec.packets.map(packets_bytes),
        SourcePlan::Interface(_) => None,
    };
    let limit = plan.packets.map(packets_bytes);
    source.into_iter().chain(limit.filter(|_| !matches!(plan.source, SourcePlan::Interface(_)))).min()
}

/// Returns the largest number of bytes that this number of simulated packets can occupy in the ring.
fn packets_bytes(packets: u64) -> u64 {
    const LEN_MAX: u64 = 9014;
    packets.saturating_mul(LEN_MAX + ring::RECORD_HEADER as u64)
}

/// Returns the capacity of a capture's flow table: at most `configured`, and at most the number of flows that the input
/// can contain. As long as a table is never full, its capacity has no effect on the flow records.
pub fn flows_of(plan: &Plan, configured: usize) -> usize {
    // Hashes do not distribute flows evenly over the shards, so each shard has space for 1.5 times its equal share of
    // the flows.
    let most = most_bytes(plan).map_or(u64::MAX, |bytes| (bytes / PACKET_BYTES).saturating_mul(3) / 2);
    configured.min(usize::try_from(most.max(MIN_FLOWS)).unwrap_or(usize::MAX))
}

/// Returns an error if the rings exceed the available memory. The kernel does not count reserved huge pages as
/// available memory, so their size is added to it.
fn check_rings(memory_limit: &MemoryLimit, reserved: u64, ring: u64, queues: u16) -> Result<(), SizesError> {
    let queues = u64::from(queues.max(1));
    let each = ring.checked_next_power_of_two().unwrap_or(1 << 63);
    let wanted = each.saturating_add(each / 4).saturating_mul(queues);
    let available = memory_limit.available.saturating_add(reserved);
    if memory_limit.available == 0 || wanted <= available {
        return Ok(());
    }
    let fits = power_below(available / 5 * 4 / queues);
    Err(SizesError::Rings {
        ring,
        wanted,
        queues,
        memory_limit: *memory_limit,
        available,
        fits: (fits >= MIN_TOTAL).then_some(fits),
    })
}

/// Returns an error if the tables of the detection of duplicates exceed the memory that the rings leave. The tables of
/// the other captures of this process count too, because they are not allocated yet.
fn check_duplicates(
    memory_limit: &MemoryLimit,
    reserved: u64,
    ring: u64,
    plan: &Plan,
    queues: u16,
) -> Result<(), SizesError> {
    let Some(duplicates) = &plan.duplicates else { return Ok(()) };
    let (queues, shares) = (u64::from(queues.max(1)), u64::from(plan.shares.max(1)));
    let tables = match duplicates.scope {
        DuplicateScope::Queue => queues * shares,
        DuplicateScope::Interface => shares,
        DuplicateScope::Shared(_) => 1,
    };
    let memory = |records: u64| {
        let records = usize::try_from(records).unwrap_or(usize::MAX);
        let settings = ::duplicates::Settings { records, ..duplicates.settings.clone() };
        duplicates::memory(&settings, &duplicates.scope).saturating_mul(tables)
    };
    let records = duplicates.settings.records as u64;
    let wanted = memory(records);
    let each = ring.checked_next_power_of_two().unwrap_or(1 << 63);
    let rings = each.saturating_add(each / 4).saturating_mul(queues * shares).saturating_sub(reserved);
    let available = memory_limit.available.saturating_sub(rings);
    if memory_limit.available == 0 || wanted <= available {
        return Ok(());
    }
    // The memory is not proportional to the number of records, because the number of buckets is a power of two.
    let (mut fits, mut exceeds) = (0, records);
    while exceeds - fits > 1 {
        let between = fits + (exceeds - fits) / 2;
        if memory(between) <= available { fits = between } else { exceeds = between }
    }
    Err(SizesError::Duplicates { records, tables, wanted, memory_limit: *memory_limit, available, fits })
}

/// Returns an error if the full flow table would exceed the memory limit. The table grows with the number of flows, so
/// the memory that other processes use at the moment is not subtracted from the limit.
fn check_flows(memory_limit: &MemoryLimit, flows: u64) -> Result<(), SizesError> {
    let wanted = flows.saturating_mul(FLOW_BYTES);
    if memory_limit.limit == 0 || wanted <= memory_limit.limit {
        return Ok(());
    }
    Err(SizesError::Flows { flows, memory_limit: *memory_limit })
}

/// Returns an error if the plan exceeds the limit of the address space. The limit must be checked before the
/// allocations, because a failed allocation ends the process.
fn check_address_space(memory_limit: &MemoryLimit, ring: u64, queues: u16, flows: u64) -> Result<(), SizesError> {
    if memory_limit.bound != LimitSource::AddressSpace {
        return Ok(());
    }
    let each = ring.checked_next_power_of_two().unwrap_or(1 << 63);
    // Each ring is mapped twice.
    let rings = each.saturating_add(each / 4).saturating_mul(2 * u64::from(queues.max(1)));
    let table = flows.saturating_mul(FLOW_BYTES);
    let wanted = rings.saturating_add(table).saturating_add(METER);
    let (has, free) = (memory_limit.limit.saturating_mul(2), memory_limit.available.saturating_mul(2));
    if wanted <= free {
        return Ok(());
    }
    let limit = (has - free.min(has)).saturating_add(wanted).div_ceil(1024);
    Err(SizesError::AddressSpace { rings, flows, has, free, limit })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{InterfacePlan, SocketPlan};
    use capture::auto::SourceKind;
    use meter::MeterPlan;
    use testkit::TempDir;

    const MIB: u64 = 1 << 20;

    fn group(limit: u64) -> MemoryLimit {
        MemoryLimit { limit, available: limit, bound: LimitSource::Group }
    }

    fn port() -> Plan {
        Plan::new(SourcePlan::Interface(InterfacePlan::new("eth1", SourceKind::Tpacket)))
    }

    #[test]
    fn default_sizes_are_at_most_an_eighth_of_the_memory_limit() {
        for (limit, queues, ring) in [
            (64 << 30, 1, 1024),
            (64 << 30, 4, 256),
            (64 << 30, 64, 64),
            (7 << 30, 1, 512),
            (800 * MIB, 1, 64),
            (800 * MIB, 3, 16),
            (100 * MIB, 1, 8),
        ] {
            let found = ring_within(&group(limit), queues);
            assert_eq!(found, ring * MIB, "{limit} {queues}");
            let rings = (found + found / 4) * u64::from(queues);
            assert!(rings <= limit / 8 || found == MIN_TOTAL, "{limit} {queues}");
        }
        assert_eq!(flows_within(&group(64 << 30), 1), 1 << 20);
        assert_eq!(flows_within(&group(800 * MIB), 1), 100 * MIB / FLOW_BYTES);
        assert_eq!(flows_within(&group(800 * MIB), 2), 50 * MIB / FLOW_BYTES);
        let unknown = MemoryLimit { limit: 0, available: 0, bound: LimitSource::Machine };
        assert_eq!((ring_within(&unknown, 1), flows_within(&unknown, 1)), (RING, FLOWS));
    }

    #[test]
    fn tables_of_duplicates_that_exceed_the_memory_are_refused_with_a_number_that_fits() {
        use crate::duplicates::{DuplicateAction, DuplicatePlan, SharedDuplicates};
        let machine = group(2 << 30);
        let records = 3 << 20;
        let settings = ::duplicates::Settings { records, ..::duplicates::Settings::default() };
        let with = |records, scope| {
            let settings = ::duplicates::Settings { records, ..settings.clone() };
            let duplicates = DuplicatePlan { scope, ..DuplicatePlan::new(DuplicateAction::Drop, settings) };
            Plan { duplicates: Some(duplicates), shares: 2, ring: Some(64 * MIB), ..port() }
        };
        let check = |records, scope: &DuplicateScope| Sizes::within(&machine, 0, &with(records, scope.clone()), 4);
        for (scope, tables) in [(DuplicateScope::Queue, 8), (DuplicateScope::Interface, 2)] {
            let error = check(records * 2, &scope).unwrap_err();
            let SizesError::Duplicates { tables: counted, wanted, available, .. } = error else { panic!("{error}") };
            assert_eq!(counted, tables);
            assert!(wanted > available);
            let text = error.to_string();
            let number = text.rsplit("at most ").next().unwrap_or_default().replace(' ', "");
            let fits: usize = number.parse().unwrap_or_else(|_| panic!("{text}"));
            assert!(check(fits, &scope).is_ok() && check(fits + 1, &scope).is_err(), "{text}");
        }
        let shared = DuplicateScope::Shared(SharedDuplicates::default());
        assert!(check(records, &shared).is_ok() && check(records, &DuplicateScope::Queue).is_err());
        assert!(super::description(&with(records, DuplicateScope::Queue), 64 * MIB, 4).contains("4 tables of"));
    }

    #[test]
    fn interfaces_of_one_process_share_the_default_memory() {
        let small = group(800 * MIB);
        let plan = Plan { shares: 3, ..port() };
        assert_eq!(Sizes::within(&small, 0, &plan, 1).map(|s| s.ring).ok(), Some(16 * MIB));
    }

    #[test]
    fn a_replay_has_a_ring_of_the_size_of_its_input_unless_listeners_read_it() {
        let dir = TempDir::new("a_replay_has_a_ring_of_its_inputs_size");
        let path = dir.join("a.pcap");
        let machine = group(64 << 30);
        let mut plan = Plan::new(SourcePlan::File { path: path.clone(), options: capture::file::Options::default() });
        plan.meter = Some(MeterPlan::new(0));
        let default = flow::Config::default().capacity;
        for (bytes, ring, flows) in
            [(1000, 8, 4096), (3_000_000, 8, 187_500), (10 << 20, 16, 655_359), (1 << 30, 64, default)]
        {
            std::fs::File::create(&path).and_then(|f| f.set_len(bytes)).expect("a file");
            let sizes = Sizes::within(&machine, 0, &plan, 1).expect("a plan that fits");
            assert_eq!((sizes.ring, sizes.prefault), (ring * MIB, Prefault::Lazy), "{bytes}");
            assert_eq!(flows_of(&plan, default), flows, "{bytes}");
            assert!((bytes + ring::BLOCK..bytes + 2 * ring::BLOCK).contains(&of_file(&plan)), "{bytes}");
        }
        assert_eq!(of_file(&port()), port().segment);
        std::fs::write(&path, [0x1f, 0x8b, 8, 0]).expect("a file");
        assert_eq!(
            Sizes::within(&machine, 0, &plan, 1).expect("a plan that fits").ring,
            REPLAY,
            "the size of a compressed file is unknown"
        );
        assert_eq!(flows_of(&plan, default), default);
        let socket = dir.join("socket");
        plan.socket = Some(SocketPlan {
            path: socket,
            mode: 0o600,
            uid: None,
            gid: None,
            allow_lossless: false,
            forward: Vec::new(),
        });
        assert_eq!(Sizes::within(&machine, 0, &plan, 1).expect("a plan that fits").ring, RING);
        let spec = "60,packets=1000".parse().expect("a spec");
        let sim = Plan::new(SourcePlan::Sim { spec, start: None, name: None });
        assert_eq!(Sizes::within(&machine, 0, &sim, 1).expect("a plan that fits").ring, 16 * MIB);
        assert_eq!(Sizes::within(&machine, 0, &port(), 1).expect("a plan that fits").prefault, Prefault::Behind);
    }

    #[test]
    fn a_small_address_space_limit_is_rejected_with_numbers() {
        let limited_to = |mib: u64| MemoryLimit {
            limit: mib * MIB / 2,
            available: (mib - 20) * MIB / 2,
            bound: LimitSource::AddressSpace,
        };
        let mut plan = Plan { ring: Some(8 * MIB), ..port() };
        assert!(Sizes::within(&limited_to(98), 0, &plan, 1).is_ok(), "without a meter the plan fits");
        plan.meter = Some(MeterPlan::new(0));
        plan.meter.as_mut().and_then(|m| m.flows.as_mut()).expect("flows").capacity = 14_285;
        let text = Sizes::within(&limited_to(98), 0, &plan, 1).expect_err("too little address space").to_string();
        for word in ["98.0 MiB", "78.0 MiB", "64.0 MiB", "ulimit -v", "--ring", "flow.capacity"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert!(Sizes::within(&limited_to(195), 0, &plan, 1).is_ok());
    }

    #[test]
    fn plans_that_exceed_the_memory_are_rejected_with_numbers() {
        let small = MemoryLimit { limit: 800 * MIB, available: 700 * MIB, bound: LimitSource::Group };
        let plan = Plan { ring: Some(1 << 30), ..port() };
        let text = Sizes::within(&small, 0, &plan, 1).expect_err("too large").to_string();
        for word in ["1.25 GiB", "800 MiB", "700 MiB", "512 MiB would fit", "control group", "--ring"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert!(Sizes::within(&small, 2 << 30, &plan, 1).is_ok(), "the ring fits into reserved huge pages");
        let mut plan = port();
        plan.meter = Some(MeterPlan::new(0));
        assert!(Sizes::within(&small, 0, &plan, 1).is_ok());
        plan.meter.as_mut().and_then(|m| m.flows.as_mut()).expect("flows").capacity = 10_000_000;
        let text = Sizes::within(&small, 0, &plan, 1).expect_err("too many").to_string();
        for word in [
            &*show_count(10_000_000),
            "4.17 GiB",
            "flow.capacity",
            &format!("at most {}", show_count(800 * MIB / FLOW_BYTES)),
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
}
