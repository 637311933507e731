//! A running capture: its threads, the request to stop it, and its report.

use crate::error::EngineError;
use crate::observer::{Observed, Observer};
use crate::plan::Plan;
use crate::recording::Recording;
use crate::recovery::RecoveryTask;
use crate::report::Report;
use crate::retention_report::RetentionHandle;
use crate::rings;
use crate::sizes;
use crate::worker_links::WorkerStatus;
use base::Ledger;
use capture::{SourceError, SourceInfo};
use group_services::{GroupPlan, Groups, ReconcileMessage};
use interface_program::{InterfaceProgram, ProgramPlan, ProgramReport};
use meter::{Meter, Sink};
use ring::{ListenerRegistry, OfferedRing, Server};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;
use store::Claim;
use sys::cpu::Ticks;

/// A running capture, built from a [`Plan`].
pub struct Capture {
    pub(crate) label: String,
    pub(crate) started: Instant,
    /// The CPU time counters of the machine at the start of the capture.
    pub(crate) ticks: Ticks,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) queues: Vec<Queue>,
    pub(crate) server: Option<Server>,
    pub(crate) supervisor: Option<JoinHandle<()>>,
    /// The exclusive claim on the directory of this interface in the store. The capture gives the claim up when all
    /// data is written.
    pub(crate) claim: Option<Claim>,
    /// The directory of the store that contains the data of this interface.
    pub(crate) store: Option<PathBuf>,
    /// The recovery thread, which publishes packet files that an earlier recorder left unpublished when it was killed.
    pub(crate) recovery: RecoveryTask,
    /// Size of a packet file in bytes.
    pub(crate) segment: u64,
    pub(crate) meter: Option<Meter>,
    /// The groups. All interfaces that started together share them.
    pub(crate) groups: Option<Arc<Groups>>,
    pub(crate) program: Option<Arc<InterfaceProgram>>,
    pub(crate) retention: RetentionHandle,
    /// All CPUs of the NUMA node of the first engine thread. Empty if this node is unknown; then any CPU may be used.
    pub(crate) numa_cpus: Vec<usize>,
}

/// One queue of a capture.
pub(crate) struct Queue {
    pub(crate) info: SourceInfo,
    pub(crate) registry: Arc<ListenerRegistry>,
    pub(crate) offer: OfferedRing,
    pub(crate) status: Arc<Mutex<WorkerStatus>>,
    pub(crate) ledger: Arc<Mutex<Ledger>>,
    pub(crate) worker: Option<JoinHandle<Result<(), SourceError>>>,
    pub(crate) recording: Option<Recording>,
}

impl Capture {
    /// Returns a text that states the chosen sizes of the rings and of the flow tables.
    pub fn memory_warning(&self, plan: &Plan) -> String {
        let ring = self.queues.first().map_or(0, |q| q.offer.memory.byte_capacity());
        sizes::description(plan, ring, self.queues.len())
    }

    /// Requests all threads to stop. Packets that were already captured are still stored.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// True if every engine thread has ended.
    pub fn finished(&self) -> bool {
        self.queues.iter().all(|q| q.worker.as_ref().is_none_or(JoinHandle::is_finished))
    }

    /// Returns the descriptions of the sources.
    pub fn sources(&self) -> impl Iterator<Item = &str> {
        self.queues.iter().map(|q| q.info.description.as_str())
    }

    /// Returns access to the counters of this capture, for example for the metrics endpoint.
    pub fn observer(&self) -> Observer {
        Observer {
            recovery: self.recovery.messages(),
            meter: self.meter.as_ref().map(Meter::gauge),
            program: self.program.clone(),
            groups: self.groups.clone(),
            retention: self.retention.clone(),
            segment: self.segment,
            store: self.store.clone(),
            label: self.label.clone(),
            started: self.started,
            ticks: self.ticks,
            queues: self
                .queues
                .iter()
                .map(|q| Observed {
                    info: q.info.clone(),
                    registry: Arc::clone(&q.registry),
                    ring: rings::description(&q.offer),
                    status: Arc::clone(&q.status),
                    recording: q.recording.as_ref().map(Recording::gauge),
                })
                .collect(),
        }
    }

    /// Replaces the interface's program without packet loss. Returns `None` if the running program has the same text.
    ///
    /// # Errors
    /// The program is invalid or the kernel rejects it (with the verifier log); the previous program continues. A
    /// capture that was started without a program cannot get one.
    pub fn swap_program(&self, plan: &ProgramPlan) -> Result<Option<ProgramReport>, EngineError> {
        match &self.program {
            Some(program) => Ok(program.swap(plan)?),
            None => Err(EngineError::NoProgram),
        }
    }

    /// Replaces the meter's sinks of the kind `kind` by `sinks`. Existing sinks of this kind whose names are in
    /// `retained` continue to run.
    pub fn replace_sinks(&self, kind: &'static str, retained: Vec<String>, sinks: Vec<Box<dyn Sink>>) {
        if let Some(meter) = &self.meter {
            meter.replace(kind, retained, sinks);
        }
    }

    /// Changes the groups that the configuration defines so that they equal these plans, and returns messages about the
    /// changes. If several interfaces started together, the call for the first interface changes the groups of all, and
    /// the other calls do nothing.
    pub fn reconcile_groups(&self, plans: &[GroupPlan]) -> Vec<ReconcileMessage> {
        self.group_reports().map(|groups| groups.reconcile(plans)).unwrap_or_default()
    }

    /// Returns the packet counters of the groups that this interface reports, as JSON objects
    /// (`docs/reference/groups.md`).
    pub fn group_accounting(&self) -> Vec<serde_json::Value> {
        self.groups.as_ref().map(|groups| groups.objects(&self.label)).unwrap_or_default()
    }

    /// Returns the groups if this interface is the first of the interfaces that started together. Only this interface
    /// reports what concerns all groups together.
    fn group_reports(&self) -> Option<&Groups> {
        self.groups.as_deref().filter(|groups| groups.are_reported_at(&self.label))
    }

    /// Returns the report.
    pub fn report(&self) -> Report {
        self.observer().report()
    }

    /// Waits until the engine threads have ended, and then until the recorders have written the packets that remain in
    /// the rings.
    ///
    /// # Errors
    /// The first failure of a thread. After an error the report is complete too. Call [`Capture::report`] before this
    /// `Capture` is dropped.
    pub fn wait(&mut self) -> Result<(), EngineError> {
        let mut outcome = Ok(());
        let mut record_error = |r: Result<(), EngineError>| {
            if outcome.is_ok() {
                outcome = r;
            }
        };
        for queue in &mut self.queues {
            if let Some(worker) = queue.worker.take() {
                record_error(match worker.join() {
                    Ok(r) => r.map_err(EngineError::Source),
                    Err(_) => Err(EngineError::Panicked(format!("engine thread of queue {}", queue.info.queue))),
                });
            }
            if let Some(recording) = &mut queue.recording {
                record_error(recording.wait());
            }
        }
        if let Some(meter) = &mut self.meter {
            record_error(meter.wait().map_err(EngineError::from));
        }
        if let Some(groups) = &self.groups {
            record_error(groups.wait(&self.label).map_err(EngineError::from));
        }
        self.recovery.wait();
        self.stop.store(true, Ordering::Relaxed);
        self.server = None;
        if let Some(supervisor) = self.supervisor.take() {
            let _ = supervisor.join();
        }
        self.claim = None;
        outcome
    }

    /// Returns the ledger of losses, summed over all queues.
    pub fn ledger(&self) -> Ledger {
        let mut ledger = Ledger::new();
        for q in &self.queues {
            let engine = q.ledger.lock().unwrap_or_else(PoisonError::into_inner).clone();
            ledger.merge(&match &q.recording {
                Some(recording) => recording.gauge().correct(engine),
                None => engine,
            });
        }
        ledger
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stop();
        let _ = self.wait();
    }
}
