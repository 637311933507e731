//! The rings of a capture: allocation on the NUMA node of the engine thread, and the thread that touches their memory.

use crate::error::EngineError;
use crate::plan::{Plan, SourcePlan};
use crate::sizes::Sizes;
use crate::worker_links::WorkerStatus;
use base::units::show_bytes;
use capture::SourceInfo;
use ring::{OfferedRing, Producer};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Lower priority than capture and its readers: a thread that needs a page before this thread reaches it faults it in
/// itself.
const WARM_NICE: i32 = 5;

/// Returns the processors for this engine thread: the configured processor, else those of the interface's NUMA node.
pub fn processors(plan: &Plan, number: usize) -> Vec<usize> {
    if !plan.cpus.is_empty() {
        return vec![plan.cpus[number % plan.cpus.len()]];
    }
    match &plan.source {
        SourcePlan::Interface(i) => {
            sys::cpu::node_of_interface(&i.name).map(sys::cpu::cpus_of_node).unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

/// Allocates the ring on the processors of its engine thread, so that its pages come from their NUMA node.
pub fn producer(
    plan: &Plan,
    label: &str,
    info: &SourceInfo,
    cpus: &[usize],
    Sizes { ring: bytes, prefault }: Sizes,
) -> Result<Producer, EngineError> {
    let config = ring::Config {
        name: label.to_owned(),
        bytes,
        link_type: info.link_type.into(),
        snaplen: plan.snaplen_in_force(),
        queue: info.queue,
        segment_bytes: plan.segment,
        rotate: plan.rotate,
        reader_timeout: plan.reader_timeout,
        prefault,
        ..ring::Config::default()
    };
    let make = move || {
        if !cpus.is_empty() {
            // If this fails, the engine thread reports the error; memory from another node is slower but correct.
            let _ = sys::cpu::pin_to(cpus);
        }
        Producer::new(config)
    };
    std::thread::scope(|scope| scope.spawn(make).join())
        .map_err(|_| EngineError::Panicked("the thread that makes the ring".into()))?
        .map_err(|e| EngineError::Ring(bytes, e))
}

/// Touches and locks the rest of the rings' memory while packets already arrive: capture starts after a quarter of a
/// second instead of two and a half. An error becomes a warning in `status`.
pub fn warm<'a>(
    rings: impl Iterator<Item = &'a OfferedRing>,
    numa_cpus: Vec<usize>,
    stop: Arc<AtomicBool>,
    status: Arc<Mutex<WorkerStatus>>,
) -> Result<(), EngineError> {
    let is_cold = |ring: &&OfferedRing| !ring.memory.bytes().is_lazy();
    let rings: Vec<_> = rings.filter(is_cold).map(|ring| Arc::downgrade(&ring.memory)).collect();
    if rings.is_empty() {
        return Ok(());
    }
    let work = move || {
        if !numa_cpus.is_empty() {
            // If this fails, the pages come from another NUMA node, which is slower but correct.
            let _ = sys::cpu::pin_to(&numa_cpus);
        }
        let _ = sys::cpu::set_nice(WARM_NICE);
        let mut more = true;
        while more && !stop.load(Ordering::Relaxed) {
            more = false;
            for ring in rings.iter().filter_map(Weak::upgrade) {
                match ring.prefault_more() {
                    Ok(warmed) => more |= warmed,
                    Err(e) => {
                        let text = format!("no memory for the rest of the ring: {e}; choose a smaller one with --ring");
                        status.lock().unwrap_or_else(PoisonError::into_inner).warnings.push(text);
                        return;
                    }
                }
            }
        }
    };
    let thread = std::thread::Builder::new().name("ring-warm".into()).spawn(work);
    thread.map(drop).map_err(EngineError::Spawn)
}

/// Returns a text that describes a ring.
pub fn description(offer: &OfferedRing) -> String {
    let memory = offer.memory.bytes();
    let locked = match (memory.is_lazy(), memory.locked()) {
        (true, _) => "made as it is written",
        (false, true) if !memory.is_prefaulted() => "being touched and locked",
        (false, true) => "locked",
        (false, false) => "not locked (CAP_IPC_LOCK, or a larger memlock limit)",
    };
    format!("{} in {}, {locked}", show_bytes(memory.len() as u64), memory.pages().name())
}
