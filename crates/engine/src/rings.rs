//! Allocates the rings of a capture on the NUMA nodes of the engine threads, and touches their memory in a thread.

use crate::error::EngineError;
use crate::plan::{Plan, SourcePlan};
use crate::sizes::Sizes;
use crate::worker_links::WorkerStatus;
use base::units::show_bytes;
use capture::SourceInfo;
use ring::{OfferedRing, Producer};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The nice value of the thread that touches the memory of the rings. Its priority is lower than that of the capture
/// threads and of their readers. If one of them needs a page that this thread has not touched yet, it causes the page
/// fault itself.
const WARM_NICE: i32 = 5;

/// Returns the CPUs for this engine thread: the configured CPU, or the CPUs of the interface's NUMA node.
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

/// Allocates the ring in a thread on the CPUs of its engine thread, so that its pages are on their NUMA node.
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
            // If pinning fails here, it also fails in the engine thread, which reports the error. Memory on another
            // node is slower but correct.
            let _ = sys::cpu::pin_to(cpus);
        }
        Producer::new(config)
    };
    std::thread::scope(|scope| scope.spawn(make).join())
        .map_err(|_| EngineError::Panicked("the allocation of the ring".into()))?
        .map_err(|e| EngineError::Ring(bytes, e))
}

/// Touches and locks the rest of the rings' memory while packets already arrive. Therefore the capture starts after
/// 0.25 s. It would start after 2.5 s if all memory were touched first. An error becomes a warning in `status`.
pub fn warm<'a>(
    rings: impl Iterator<Item = &'a OfferedRing>,
    numa_cpus: Vec<usize>,
    stop: Arc<AtomicBool>,
    status: Arc<Mutex<WorkerStatus>>,
) -> Result<(), EngineError> {
    let is_prefaulted_later = |ring: &&OfferedRing| !ring.memory.bytes().is_lazy();
    let rings: Vec<_> = rings.filter(is_prefaulted_later).map(|ring| Arc::downgrade(&ring.memory)).collect();
    if rings.is_empty() {
        return Ok(());
    }
    let work = move || {
        if !numa_cpus.is_empty() {
            // If this thread cannot be pinned to the CPUs of the engine thread, the pages may be on another NUMA node,
            // which is slower but correct.
            let _ = sys::cpu::pin_to(&numa_cpus);
        }
        let _ = sys::cpu::set_nice(WARM_NICE);
        let mut is_cold = true;
        while is_cold && !stop.load(Ordering::Relaxed) {
            is_cold = false;
            for ring in rings.iter().filter_map(Weak::upgrade) {
                match ring.prefault_more() {
                    Ok(more) => is_cold |= more,
                    Err(e) => {
                        let text =
                            format!("no memory for the rest of the ring: {e}; choose a smaller ring with --ring");
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
        (true, _) => "allocated when written",
        (false, true) if !memory.is_prefaulted() => "locked in part so far",
        (false, true) => "locked",
        (false, false) => "not locked in memory (that needs CAP_IPC_LOCK or a larger memlock limit)",
    };
    format!("{} in {}, {locked}", show_bytes(memory.len() as u64), memory.pages().name())
}
