//! Makes the report of a capture for other threads: the same numbers for the live table, `--json`, the metrics and the
//! summary.

use crate::recording::Gauge;
use crate::recovery::RecoveryMessages;
use crate::report::{ClockReport, Counts, ListenerReport, QueueReport, Report};
use crate::retention_report::RetentionHandle;
use crate::worker_links::WorkerStatus;
use base::units::show_count;
use base::{Cause, Tally, TimestampMethod};
use capture::{SourceInfo, TimestampSource};
use group::GroupView;
use group_services::{Groups, is_reported_at};
use interface_program::InterfaceProgram;
use meter::MeterGauge;
use ring::ListenerRegistry;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use store::DiskDevice;
use store::device::{Housekeeping as _, Space};
use sys::cpu::Ticks;

/// Access to the counters of a capture, for example for the metrics endpoint.
pub struct Observer {
    pub(crate) label: String,
    pub(crate) started: Instant,
    pub(crate) ticks: Ticks,
    pub(crate) queues: Vec<Observed>,
    pub(crate) recovery: RecoveryMessages,
    /// Size of a packet file in bytes.
    pub(crate) segment: u64,
    pub(crate) meter: Option<MeterGauge>,
    pub(crate) program: Option<Arc<InterfaceProgram>>,
    pub(crate) groups: Option<Arc<Groups>>,
    pub(crate) retention: RetentionHandle,
    pub(crate) store: Option<PathBuf>,
}

/// The counters of one queue.
pub struct Observed {
    pub info: SourceInfo,
    pub registry: Arc<ListenerRegistry>,
    pub ring: String,
    pub status: Arc<Mutex<WorkerStatus>>,
    pub recording: Option<Gauge>,
}

impl Observer {
    /// Returns the report with the accounting of the groups. The accounting is requested from the dispatchers of the
    /// groups.
    pub fn measured(&self) -> Report {
        let groups = self.groups.as_ref().map(|groups| groups.views()).unwrap_or_default();
        self.with_groups(groups.into_iter())
    }

    /// Returns the reports of several interfaces of an engine, with a single request to the dispatchers.
    pub fn all_measured(observers: &[Self]) -> Vec<Report> {
        let mut requested: Vec<(&Arc<Groups>, Vec<GroupView>)> = Vec::new();
        for groups in observers.iter().filter_map(|o| o.groups.as_ref()) {
            if !requested.iter().any(|(known, _)| Arc::ptr_eq(known, groups)) {
                requested.push((groups, groups.views()));
            }
        }
        let report = |observer: &Self| {
            let is_mine =
                |known: &&Arc<Groups>| observer.groups.as_ref().is_some_and(|groups| Arc::ptr_eq(known, groups));
            let views = requested.iter().filter(|(known, _)| is_mine(known)).flat_map(|(_, views)| views);
            observer.with_groups(views.cloned())
        };
        observers.iter().map(report).collect()
    }

    /// Returns the report of this interface. It includes the accounting of those given groups that this interface
    /// reports, and the free space of the store's volume.
    fn with_groups(&self, groups: impl Iterator<Item = GroupView>) -> Report {
        let groups = groups.filter(|view| is_reported_at(view, &self.label)).collect();
        let report = self.report();
        // If there is a retention worker, its last measurement of the free space is used: it is recent enough, and a
        // query to the volume could block for a long time.
        let known = report.retention.as_ref().filter(|retention| retention.total > 0);
        let known = known.map(|retention| Space { free: retention.free, total: retention.total });
        let query = || DiskDevice::plain().space(self.store.as_deref()?).ok();
        Report { groups, volume: known.or_else(query), ..report }
    }

    /// Returns the report.
    pub fn report(&self) -> Report {
        let (mut total, mut taken) = (Tally::default(), 0);
        let mut lost_by_reader: BTreeMap<String, u64> = BTreeMap::new();
        let (mut queues, mut listeners) = (Vec::new(), Vec::new());
        let (mut warnings, mut faults) = (self.recovery.warnings(), Vec::new());
        warnings.extend(self.program.iter().flat_map(|program| program.warnings()));
        let mut program = self.program.as_ref().map(|program| program.report());
        for q in &self.queues {
            let status = q.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let mut tally = status.tally;
            // `taken` also counts packets that were never written to the volume, because the meter reads all packets of
            // the ring.
            taken += tally.stored;
            let on_disk = q.recording.as_ref().and_then(Gauge::on_disk);
            faults.extend(status.faults.iter().cloned());
            faults.extend(on_disk.and_then(|disk| disagreement(&tally, &disk, q.info.queue)));
            if let Some(disk) = on_disk {
                // Packets that were in the ring but were not written to the volume do not count as stored.
                let unwritten = disk.lost[Cause::Disk as usize];
                tally.lost[Cause::Disk as usize] += unwritten;
                tally.stored = tally.stored.saturating_sub(unwritten);
                if unwritten > 0 {
                    tally.stored_bytes = disk.stored_bytes;
                    if self.meter.is_some() {
                        warnings.push(format!(
                            "queue {}: rows and flow records contain {} packets that could not be written to the \
                             volume; the rows of the last seconds of the capture count these packets as stored",
                            q.info.queue,
                            show_count(unwritten)
                        ));
                    }
                }
            }
            total += &tally;
            if let Some(program) = &mut program {
                program.add(&status.program);
            }
            for (reader, n) in q.registry.lost_by_reader() {
                *lost_by_reader.entry(reader).or_default() += n;
            }
            for l in q.registry.listeners() {
                let (seen, missed) = l.cursor.reported();
                listeners.push(ListenerReport {
                    slot: l.slot,
                    name: l.name,
                    queue: q.info.queue,
                    mode: l.mode.name(),
                    expired: l.expired,
                    losses_caused: l.losses_caused,
                    seen,
                    missed,
                });
            }
            warnings.extend(status.warnings.iter().cloned());
            for step in &status.clock_steps {
                // All queues report the step; the warning is shown once.
                if !warnings.contains(step) {
                    warnings.push(step.clone());
                }
            }
            if let Some(recording) = &q.recording {
                warnings.extend(recording.warnings());
            }
            let recorder = q.recording.as_ref().map(Gauge::report);
            if let Some(hidden) = recorder.as_ref().map(|r| r.hidden).filter(|n| *n > 0) {
                let what = match hidden {
                    1 => "file could not be published and has",
                    _ => "files could not be published and have",
                };
                faults.push(format!("queue {}: {hidden} {what} a hidden name, see the warnings", q.info.queue));
            }
            queues.push(QueueReport {
                queue: q.info.queue,
                source: q.info.description.clone(),
                counts: Counts::from(&tally),
                ring_fill: status.fill,
                ring: q.ring.clone(),
                engine_cpu_seconds: status.cpu.as_secs_f64(),
                clock_error_nanos: if q.info.timestamp_source == TimestampSource::Engine {
                    status.clock_error.as_nanos() as u64
                } else {
                    0
                },
                timestamp_method: status.timestamp_method.to_owned(),
                timestamp_methods: TimestampMethod::ALL
                    .into_iter()
                    .map(|method| (method.name(), status.timestamp_methods[method as usize]))
                    .filter(|(_, packets)| *packets > 0)
                    .collect(),
                nic_clock: status.nic_clock.map(Into::into),
                timestamp_deviation_nanos: status.timestamp_deviation.as_nanos() as u64,
                duplicates: status.duplicates.clone(),
                recorder,
            });
        }
        if let Some(meter) = &self.meter {
            warnings.extend(meter.warnings());
            faults.extend(meter.faults(taken));
        }
        if let Some(groups) = self.groups.as_ref().filter(|groups| groups.are_reported_at(&self.label)) {
            warnings.extend(groups.warnings());
        }
        let first = self.queues.first().map(|q| &q.info);
        Report {
            interface: self.label.clone(),
            seconds: self.started.elapsed().as_secs_f64(),
            steal_ratio: Ticks::now().stolen_since(self.ticks),
            clock: first.filter(|i| i.timestamp_source.is_live()).and_then(|_| ClockReport::read()),
            // The physical memory of the process is not determined here, because the kernel inspects all pages of the
            // ring for it, which takes 20 ms for a large ring.
            memory_bytes: None,
            counts: Counts::from(&total),
            counting_point: first.map_or("", |i| i.counted_from),
            timestamp_source: first.map_or("", |i| i.timestamp_source.name()),
            lost_by_reader,
            queues,
            program,
            meter: self.meter.as_ref().map(MeterGauge::report),
            listeners,
            retention: self.retention.report(),
            volume: None,
            groups: Vec::new(),
            warnings,
            faults,
        }
    }
}

/// Returns a text if the engine and the recorder counted different numbers of packets. Each of them counts the packets
/// itself, and the two counts must be equal.
fn disagreement(engine: &Tally, disk: &Tally, queue: u16) -> Option<String> {
    let unwritten = disk.lost[Cause::Disk as usize];
    let agrees =
        engine.stored == disk.stored + unwritten && engine.offered == disk.offered && engine.filtered == disk.filtered;
    (!agrees).then(|| {
        format!(
            "queue {queue}: the engine stored {} of {} offered packets, but the files contain {} of {}; please report \
             this",
            engine.stored, engine.offered, disk.stored, disk.offered
        )
    })
}
