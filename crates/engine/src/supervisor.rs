//! The supervisor of an interface. If the interface was removed and created again, the supervisor opens it again. The
//! supervisor also does the periodic work of the interface's program.

use crate::error::EngineError;
use crate::plan::SourcePlan;
use capture::{AnySource, Source};
use interface_program::InterfaceProgram;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// The interval at which the supervisor searches for a missing interface.
const RETURN_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Counts an engine thread as running until the guard is dropped.
pub struct ThreadGuard(pub Arc<AtomicUsize>);

impl Drop for ThreadGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Opens a removed interface again when it exists again, and passes the new sources to the waiting threads. If a queue
/// does not exist any more, the channel of its thread is closed.
pub fn supervise(
    plan: SourcePlan,
    program: Option<Arc<InterfaceProgram>>,
    stop: Arc<AtomicBool>,
    gone: Receiver<u16>,
    mut returns: BTreeMap<u16, Sender<AnySource>>,
    alive: Arc<AtomicUsize>,
) -> Result<JoinHandle<()>, EngineError> {
    let watch = move || {
        let mut waiting: BTreeSet<u16> = BTreeSet::new();
        while !stop.load(Ordering::Relaxed) {
            if let Ok(queue) = gone.recv_timeout(RETURN_CHECK_INTERVAL) {
                waiting.insert(queue);
            }
            if let Some(program) = &program {
                program.maintain();
            }
            // The sources of an interface share one XDP program and one fanout group, so a removed interface is opened
            // again only when the threads of all its queues wait for it.
            if waiting.is_empty() || waiting.len() < alive.load(Ordering::Acquire) {
                continue;
            }
            let Ok(sources) = plan.open() else { continue };
            if program.as_ref().is_some_and(|program| program.install(&sources).is_err()) {
                continue;
            }
            for source in sources {
                let queue = source.info().queue;
                if let Some(thread) = returns.get(&queue)
                    && source.begin().is_ok()
                    && thread.send(source).is_ok()
                {
                    waiting.remove(&queue);
                }
            }
            returns.retain(|queue, _| !waiting.contains(queue));
            waiting.clear();
        }
    };
    std::thread::Builder::new().name("supervisor".into()).spawn(watch).map_err(EngineError::Spawn)
}
