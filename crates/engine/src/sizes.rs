//! Default memory sizes of a capture: as much as suits the source, and at most an eighth of the process's memory limit
//! for the rings and another eighth for the flow tables. A plan that cannot fit is refused with figures before any
//! allocation, because the kernel would not refuse it: it overcommits pages until the OOM killer runs.

use crate::plan::{Plan, SourcePlan};
use base::units::{show_bytes, show_count};
use ring::Prefault;
use std::fmt;
use sys::memory_limit::{LimitSource, MemoryLimit, memory_limit};

/// Bytes of all rings of a live interface together.
const RING: u64 = 1 << 30;

/// The least bytes of each of these rings, if the memory permits.
const MIN: u64 = 64 << 20;

/// The least bytes of any ring.
const MIN_TOTAL: u64 = 8 << 20;

/// Bytes of the ring of a replay: a file waits for the readers, so the ring needs only the writes in flight
/// ([`crate::WRITE_DEPTH`]) and as much again for the readers.
const REPLAY: u64 = 64 << 20;

/// Default number of concurrent flows.
const FLOWS: u64 = 1 << 20;

/// Bytes of a flow entry with some packets, including its part of the table (`docs/design/flow-metering.md`).
const FLOW_BYTES: u64 = 448;

/// The least bytes of a packet in a capture file: a RAW header and half an IPv4 header. A shorter packet belongs to no
/// flow.
const PACKET_BYTES: u64 = 24;

/// The least capacity of a flow table that is sized by its input.
const MIN_FLOWS: u64 = 4096;

/// Address space of a meter beside its flow table: stacks of its threads, journals, and the columns that are sealed one
/// after the other. 98 MiB were too little beside a ring of 8 MiB and a table of 6 MiB, 195 MiB enough.
const METER: u64 = 64 << 20;

/// Returns the bytes that a process may take by default for one purpose.
fn share(memory_limit: &MemoryLimit) -> u64 {
    if memory_limit.limit == 0 { u64::MAX } else { memory_limit.limit / 8 }
}

/// Returns the default bytes of each ring of a live interface: all `queues` together take 1 GiB, or with their
/// descriptors at most an eighth of the memory limit of this process.
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

/// Returns the default number of concurrent flows for each of `ports` interfaces: 1 Mi, or as many as fit into an
/// eighth of the memory limit of this process.
pub fn default_flows(ports: u16) -> u64 {
    flows_within(&memory_limit(), ports)
}

fn flows_within(memory_limit: &MemoryLimit, ports: u16) -> u64 {
    (share(memory_limit) / FLOW_BYTES / u64::from(ports.max(1))).clamp(MIN_FLOWS, FLOWS)
}

/// Returns the largest power of two that is at most `n`; 0 for 0.
fn power_below(n: u64) -> u64 {
    n.checked_ilog2().map_or(0, |log| 1 << log)
}

/// The reason why the memory of this process does not hold a plan.
#[derive(Clone, Debug)]
pub enum SizesError {
    /// The rings exceed the available memory.
    Rings {
        /// Bytes of each ring.
        ring: u64,
        /// Bytes of all rings with their descriptors.
        wanted: u64,
        /// Number of rings.
        queues: u64,
        /// The memory limit.
        memory_limit: MemoryLimit,
        /// Bytes available, with reserved huge pages.
        available: u64,
        /// Bytes of a ring that would fit.
        fits: Option<u64>,
    },
    /// The flow table exceeds the memory limit.
    Flows {
        /// The number of flows.
        flows: u64,
        /// The memory limit.
        memory_limit: MemoryLimit,
    },
    /// The plan exceeds the limit of the address space.
    AddressSpace {
        /// Bytes for rings.
        rings: u64,
        /// The number of flows.
        flows: u64,
        /// Bytes that the process may have.
        has: u64,
        /// Bytes that are free.
        free: u64,
        /// A sufficient limit in KiB.
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
                    "{} wanted with its descriptors{rings}, and of the {} that {} has {} are free{fits}",
                    show_bytes(*wanted),
                    show_bytes(memory_limit.limit),
                    memory_limit.owner(),
                    show_bytes(*available),
                );
                f.write_str(&no_ring(*ring, reason))
            }
            Self::Flows { flows, memory_limit } => write!(
                f,
                "{} flows take {} if the table is full, and {} has {}; choose fewer with --set flow.capacity=N, at most {}",
                show_count(*flows),
                show_bytes(flows.saturating_mul(FLOW_BYTES)),
                memory_limit.owner(),
                show_bytes(memory_limit.limit),
                show_count(memory_limit.limit / FLOW_BYTES),
            ),
            Self::AddressSpace { rings, flows, has, free, limit } => {
                let table = flows.saturating_mul(FLOW_BYTES);
                write!(
                    f,
                    "{} of address space wanted ({} for rings, {} for {} flows, {} to make and seal records and rows), and of the {} \
                     that this process may have {} are free; raise the limit (ulimit -v {limit}), or choose a smaller --ring or fewer \
                     flows with --set flow.capacity=N; netgrain record takes the packets alone",
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

/// Returns the text of a ring for which there is no memory.
pub fn no_ring(bytes: u64, reason: impl fmt::Display) -> String {
    format!(
        "no memory for a ring of {}: {reason}; choose a smaller one with --ring, or raise what limits the memory (ulimit -v, the \
         control group's memory.max)",
        show_bytes(bytes)
    )
}

/// The ring sizes of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of packet memory of each ring; the ring rounds them up.
    pub ring: u64,
    /// The part of the memory that is touched before the first packet.
    pub prefault: Prefault,
}

impl Sizes {
    /// Chooses the sizes for a capture with this number of queues.
    ///
    /// # Errors
    /// The plan does not fit; the error has the figures.
    pub fn of(plan: &Plan, queues: u16) -> Result<Self, SizesError> {
        Self::within(&memory_limit(), sys::cpu::reserved_memory(), plan, queues)
    }

    fn within(memory_limit: &MemoryLimit, reserved: u64, plan: &Plan, queues: u16) -> Result<Self, SizesError> {
        let live = matches!(plan.source, SourcePlan::Interface(_));
        let usual = ring_within(memory_limit, queues.saturating_mul(plan.shares.max(1)));
        // Listeners and members of groups may be slower than a replay, which would then overtake them.
        let followed = plan.socket.is_some() || !plan.groups.is_empty();
        let chosen = match plan.source {
            SourcePlan::File { .. } | SourcePlan::Files { .. } if !followed => usual.min(REPLAY),
            _ => usual,
        };
        // One block for the start of a segment, and one for the gap behind it.
        let needed = most_bytes(plan).map_or(u64::MAX, |bytes| bytes.saturating_add(2 * ring::BLOCK));
        let chosen = chosen.min(needed.checked_next_power_of_two().unwrap_or(u64::MAX)).max(MIN_TOTAL);
        let ring = plan.ring.unwrap_or(chosen);
        // The other captures of this process have not allocated their rings yet.
        refuse_rings(memory_limit, reserved, ring, queues.saturating_mul(plan.shares.max(1)))?;
        if let Some(flows) = plan.meter.as_ref().and_then(|meter| meter.flows.as_ref()) {
            refuse_flows(memory_limit, flows.capacity as u64)?;
        }
        if let Some(meter) = &plan.meter {
            let flows = meter.flows.as_ref().map_or(0, |flows| flows.capacity as u64);
            refuse_address_space(memory_limit, ring, queues.saturating_mul(plan.shares.max(1)), flows)?;
        }
        Ok(Self { ring, prefault: if live { Prefault::Behind } else { Prefault::Lazy } })
    }
}

/// Describes the chosen sizes in a text.
pub fn description(plan: &Plan, ring: u64, queues: usize) -> String {
    let memory_limit = memory_limit();
    let rings = match queues {
        1 => format!("a ring of {}", show_bytes(ring)),
        n => format!("{n} rings of {}", show_bytes(ring)),
    };
    let flows = plan.meter.as_ref().and_then(|meter| meter.flows.as_ref());
    let flows = flows.map_or_else(String::new, |flows| {
        let (count, bytes) = (flows.capacity as u64, flows.capacity as u64 * FLOW_BYTES);
        format!(", up to {} flows ({} if all are there)", show_count(count), show_bytes(bytes))
    });
    let whole = match memory_limit.limit {
        0 => String::new(),
        limit => format!("; {} has {}", memory_limit.owner(), show_bytes(limit)),
    };
    format!("memory: {rings}{flows}{whole}")
}

/// Returns the bytes that are preallocated for a packet file: those of a segment, or of all packets that can come if
/// that is less. To free 2 GiB took 38 of the 100 ms in which a capture of 3 MB is replayed.
pub fn of_file(plan: &Plan) -> u64 {
    most_bytes(plan).map_or(plan.segment, |most| plan.segment.min(most.next_multiple_of(ring::BLOCK) + ring::BLOCK))
}

/// Returns the most packet memory that the whole input can take; `None` if it is unknown.
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

/// Returns the bytes of this number of simulated packets of any length.
fn packets_bytes(packets: u64) -> u64 {
    const LEN_MAX: u64 = 9014;
    packets.saturating_mul(LEN_MAX + ring::RECORD_HEADER as u64)
}

/// Returns the capacity of a capture's flow table: at most `configured`, and at most the number of flows that the input can
/// contain. A table that is never full makes the same records, whatever its capacity.
pub fn flows_of(plan: &Plan, configured: usize) -> usize {
    // Hashes do not spread flows evenly over shards, so each shard has half as much again.
    let most = most_bytes(plan).map_or(u64::MAX, |bytes| (bytes / PACKET_BYTES).saturating_mul(3) / 2);
    configured.min(usize::try_from(most.max(MIN_FLOWS)).unwrap_or(usize::MAX))
}

/// Refuses rings that exceed the available memory. Reserved huge pages do not count as available memory, so rings that
/// fit into them are admitted.
fn refuse_rings(memory_limit: &MemoryLimit, reserved: u64, ring: u64, queues: u16) -> Result<(), SizesError> {
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

/// Refuses a flow table that could never be filled. The table grows with the flows, so memory that other processes use
/// now does not count.
fn refuse_flows(memory_limit: &MemoryLimit, flows: u64) -> Result<(), SizesError> {
    let wanted = flows.saturating_mul(FLOW_BYTES);
    if memory_limit.limit == 0 || wanted <= memory_limit.limit {
        return Ok(());
    }
    Err(SizesError::Flows { flows, memory_limit: *memory_limit })
}

/// Refuses a plan that exceeds a limit of the address space. A later check is impossible: a failed allocation ends the
/// process.
fn refuse_address_space(memory_limit: &MemoryLimit, ring: u64, queues: u16, flows: u64) -> Result<(), SizesError> {
    if memory_limit.bound != LimitSource::AddressSpace {
        return Ok(());
    }
    let each = ring.checked_next_power_of_two().unwrap_or(1 << 63);
    // A ring is mapped twice.
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
    fn rings_and_tables_take_an_eighth_at_most_and_no_more_than_usual() {
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
    fn ports_of_one_process_share_what_one_would_take() {
        let small = group(800 * MIB);
        let plan = Plan { shares: 3, ..port() };
        assert_eq!(Sizes::within(&small, 0, &plan, 1).map(|s| s.ring).ok(), Some(16 * MIB));
    }

    #[test]
    fn a_replay_has_a_ring_of_its_inputs_size_and_one_that_others_follow_the_usual() {
        let dir = TempDir::new("a_replay_has_a_ring_of_its_inputs_size");
        let path = dir.join("a.pcap");
        let machine = group(64 << 30);
        let mut plan = Plan::new(SourcePlan::File { path: path.clone(), options: capture::file::Options::default() });
        plan.meter = Some(MeterPlan::new(0));
        let usual = flow::Config::default().capacity;
        for (bytes, ring, flows) in
            [(1000, 8, 4096), (3_000_000, 8, 187_500), (10 << 20, 16, 655_359), (1 << 30, 64, usual)]
        {
            std::fs::File::create(&path).and_then(|f| f.set_len(bytes)).expect("a file");
            let sizes = Sizes::within(&machine, 0, &plan, 1).expect("it fits");
            assert_eq!((sizes.ring, sizes.prefault), (ring * MIB, Prefault::Lazy), "{bytes}");
            assert_eq!(flows_of(&plan, usual), flows, "{bytes}");
            assert!((bytes + ring::BLOCK..bytes + 2 * ring::BLOCK).contains(&of_file(&plan)), "{bytes}");
        }
        assert_eq!(of_file(&port()), port().segment);
        std::fs::write(&path, [0x1f, 0x8b, 8, 0]).expect("a file");
        assert_eq!(
            Sizes::within(&machine, 0, &plan, 1).expect("it fits").ring,
            REPLAY,
            "what is packed may be of any size"
        );
        assert_eq!(flows_of(&plan, usual), usual);
        let socket = dir.join("socket");
        plan.socket = Some(SocketPlan {
            path: socket,
            mode: 0o600,
            uid: None,
            gid: None,
            allow_lossless: false,
            forward: Vec::new(),
        });
        assert_eq!(Sizes::within(&machine, 0, &plan, 1).expect("it fits").ring, RING);
        let spec = "60,packets=1000".parse().expect("a spec");
        let sim = Plan::new(SourcePlan::Sim { spec, start: None, name: None });
        assert_eq!(Sizes::within(&machine, 0, &sim, 1).expect("it fits").ring, 16 * MIB);
        assert_eq!(Sizes::within(&machine, 0, &port(), 1).expect("it fits").prefault, Prefault::Behind);
    }

    #[test]
    fn a_narrow_address_space_is_refused_with_numbers_before_anything_is_made() {
        let narrow = |mib: u64| MemoryLimit {
            limit: mib * MIB / 2,
            available: (mib - 20) * MIB / 2,
            bound: LimitSource::AddressSpace,
        };
        let mut plan = Plan { ring: Some(8 * MIB), ..port() };
        assert!(Sizes::within(&narrow(98), 0, &plan, 1).is_ok(), "packets alone");
        plan.meter = Some(MeterPlan::new(0));
        plan.meter.as_mut().and_then(|m| m.flows.as_mut()).expect("flows").capacity = 14_285;
        let text = Sizes::within(&narrow(98), 0, &plan, 1).expect_err("too narrow").to_string();
        for word in ["98.0 MiB", "78.0 MiB", "64.0 MiB", "ulimit -v", "--ring", "flow.capacity"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert!(Sizes::within(&narrow(195), 0, &plan, 1).is_ok());
    }

    #[test]
    fn what_cannot_fit_is_refused_with_numbers() {
        let small = MemoryLimit { limit: 800 * MIB, available: 700 * MIB, bound: LimitSource::Group };
        let plan = Plan { ring: Some(1 << 30), ..port() };
        let text = Sizes::within(&small, 0, &plan, 1).expect_err("too large").to_string();
        for word in ["1.25 GiB", "800 MiB", "700 MiB", "512 MiB would fit", "control group", "--ring"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert!(Sizes::within(&small, 2 << 30, &plan, 1).is_ok(), "reserved huge pages hold it");
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
