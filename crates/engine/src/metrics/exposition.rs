//! The exposition of a report: the metric families of an interface.

use super::groups;
use super::page::{Family, Page, escape};
use crate::recording::RecorderReport;
use crate::report::{QueueReport, Report};
use crate::retention_report::RetentionReport;
use flow::Lateness;
use interface_program::ProgramReport;
use meter::{MeterReport, SinkReport};

/// Returns the exposition of a report (Prometheus text format 0.0.4).
pub fn exposition(report: &Report) -> String {
    exposition_of(std::slice::from_ref(report))
}

/// Returns the exposition of several interfaces: the samples of a family must be consecutive in this format.
pub fn exposition_of(reports: &[Report]) -> String {
    let mut families: Vec<Family> = Vec::new();
    for report in reports {
        collect(report, &mut families);
    }
    families.into_iter().map(Family::text).collect()
}

fn collect(report: &Report, families: &mut Vec<Family>) {
    let mut page = Page::new(families, &report.interface);
    let mut family =
        |name: &str, kind: &str, help: &str, samples: &[(String, f64)]| page.family(name, kind, help, samples);
    let queues = &report.queues;
    let per_queue = |value: &dyn Fn(&QueueReport) -> f64| -> Vec<(String, f64)> {
        queues.iter().map(|q| (format!(",queue=\"{}\"", q.queue), value(q))).collect()
    };
    family(
        "offered_packets_total",
        "counter",
        "Packets that reached the counting point.",
        &per_queue(&|q| q.counts.offered as f64),
    );
    family("stored_packets_total", "counter", "Packets stored.", &per_queue(&|q| q.counts.stored as f64));
    family(
        "stored_wire_bytes_total",
        "counter",
        "Wire bytes of the packets stored.",
        &per_queue(&|q| q.counts.stored_bytes as f64),
    );
    family(
        "filtered_packets_total",
        "counter",
        "Packets the capture filter refused.",
        &per_queue(&|q| q.counts.filtered as f64),
    );
    family(
        "duplicate_packets_total",
        "counter",
        "Packets removed as copies.",
        &per_queue(&|q| q.counts.duplicate as f64),
    );
    let mut lost = Vec::new();
    let mut notes = Vec::new();
    for q in queues {
        for cause in base::Cause::ALL {
            let n = q.counts.lost.get(cause.name()).copied().unwrap_or(0);
            lost.push((format!(",queue=\"{}\",cause=\"{}\"", q.queue, cause.name()), n as f64));
        }
        for note in base::Note::ALL {
            let n = q.counts.notes.get(note.name()).copied().unwrap_or(0);
            notes.push((format!(",queue=\"{}\",note=\"{}\"", q.queue, note.name()), n as f64));
        }
    }
    family("lost_packets_total", "counter", "Packets lost, by cause (docs/reference/counters.md).", &lost);
    family("notes_total", "counter", "Notes on stored packets, by kind (docs/reference/counters.md).", &notes);
    let readers: Vec<_> =
        report.lost_by_reader.iter().map(|(g, n)| (format!(",reader=\"{}\"", escape(g)), *n as f64)).collect();
    family(
        "lost_to_reader_packets_total",
        "counter",
        "Packets lost because the ring was full, by the lossless reader that held it.",
        &readers,
    );
    family(
        "residue_packets",
        "gauge",
        "offered - stored - filtered - duplicate - lost; not zero is a bug.",
        &per_queue(&|q| q.counts.residue as f64),
    );
    family(
        "ring_fill_ratio",
        "gauge",
        "Fill level of the ring, measured at its slowest lossless reader.",
        &per_queue(&|q| q.ring_fill),
    );
    family(
        "engine_cpu_seconds_total",
        "counter",
        "Processor time of the engine thread.",
        &per_queue(&|q| q.engine_cpu_seconds),
    );
    family(
        "cpu_steal_ratio",
        "gauge",
        "The share of the machine's processor time that its hypervisor gave to others since the start.",
        &[(String::new(), report.steal_ratio)],
    );
    family(
        "clock_error_seconds",
        "gauge",
        "Estimated error of the stamps.",
        &per_queue(&|q| q.clock_error_nanos as f64 / 1e9),
    );
    let recorder = |value: &dyn Fn(&RecorderReport) -> f64| -> Vec<(String, f64)> {
        queues.iter().filter_map(|q| Some((format!(",queue=\"{}\"", q.queue), value(q.recorder.as_ref()?)))).collect()
    };
    family("written_bytes_total", "counter", "Bytes written to packet files.", &recorder(&|r| r.bytes as f64));
    family("files_total", "counter", "Files published.", &recorder(&|r| r.files as f64));
    family(
        "writer_cpu_seconds_total",
        "counter",
        "Processor time of the writer.",
        &recorder(&|r| r.writer_cpu_seconds),
    );
    family("index_cpu_seconds_total", "counter", "Processor time of the indexer.", &recorder(&|r| r.index_cpu_seconds));
    family(
        "recorder_failing",
        "gauge",
        "1 while the volume refuses writes.",
        &recorder(&|r| f64::from(u8::from(r.error.is_some()))),
    );
    if let Some(volume) = &report.volume {
        let mut one =
            |name: &str, help: &str, bytes: u64| family(name, "gauge", help, &[(String::new(), bytes as f64)]);
        one("store_free_bytes", "Free bytes of the volume that holds the store.", volume.free);
        one("store_size_bytes", "All bytes of the volume that holds the store.", volume.total);
    }
    let listeners: Vec<_> = report
        .listeners
        .iter()
        .map(|l| {
            (
                format!(
                    ",queue=\"{}\",slot=\"{}\",listener=\"{}\",mode=\"{}\"",
                    l.queue,
                    l.slot,
                    escape(&l.name),
                    l.mode
                ),
                l.missed as f64,
            )
        })
        .collect();
    family("listener_missed_packets_total", "counter", "Packets a lossy listener says it missed.", &listeners);
    if let Some(program) = &report.program {
        programmed(program, &mut family);
    }
    if let Some(kept) = &report.retention {
        retention(kept, |name, kind, help, value| family(name, kind, help, &[(String::new(), value)]));
    }
    groups::collect(&report.groups, &mut family);
    if let Some(meter) = &report.meter {
        metered(meter, &mut page);
    }
}

/// Adds the metrics of the meter.
fn metered(meter: &MeterReport, page: &mut Page<'_>) {
    let mut family =
        |name: &str, kind: &str, help: &str, samples: &[(String, f64)]| page.family(name, kind, help, samples);
    let mut one =
        |name: &str, kind: &str, help: &str, value: u64| family(name, kind, help, &[(String::new(), value as f64)]);
    one(
        "metered_packets_total",
        "counter",
        "Packets in the series and, if they belong to one, in a flow.",
        meter.packets,
    );
    one(
        "unmetered_packets_total",
        "counter",
        "Packets in no flow and no row: the meter was too slow.",
        meter.unmetered,
    );
    one("packets_without_flow_total", "counter", "Packets that belong to no flow.", meter.without_flow);
    one("active_flows", "gauge", "Flows in the table.", meter.active);
    one("flows_total", "counter", "Flows begun.", meter.started);
    one(
        "backward_timestamp_packets_total",
        "counter",
        "Packets with an earlier time than the one before them in their flow.",
        meter.backward_timestamps,
    );
    one("flow_memory_bytes", "gauge", "Memory that flows have touched, tables included.", meter.flow_bytes);
    one("rows_total", "counter", "Rows of the series.", meter.rows);
    let t = &meter.tunnels;
    for (name, help, value) in [
        ("numbered", "Sequence numbers of tunnels (ERSPAN, GRE, GTP-U) that were seen.", t.numbered),
        ("sessions", "Sessions of such tunnels that began to be followed.", t.sessions),
        ("missing", "Sequence numbers that were passed over.", t.missing),
        ("late", "Of these, sequence numbers that came after all.", t.late),
        ("duplicate", "Sequence numbers that had come already.", t.duplicate),
        ("out_of_window", "Sequence numbers too far from the others to be classified.", t.out_of_window),
        ("restarts", "Sessions that began anew with another number.", t.restarts),
        ("evicted", "Sessions that had to make place for others.", t.evicted),
    ] {
        one(&format!("tunnel_{name}_total"), "counter", help, value);
    }
    let records: Vec<_> = meter.records.iter().map(|(end, n)| (format!(",end=\"{end}\""), *n as f64)).collect();
    family("flow_records_total", "counter", "Flow records, by the reason why they were made.", &records);
    const STEPS: usize = Lateness::STEPS - 1;
    let bounds: [f64; STEPS] = std::array::from_fn(|step| ((step as u64 + 1) * Lateness::STEP_MS) as f64 / 1e3);
    page.histogram(
        "flow_record_lateness_seconds",
        "How long after its timeout a flow record was made.",
        &bounds,
        &meter.lateness,
        meter.lateness_nanos as f64 / 1e9,
    );
    let mut family =
        |name: &str, kind: &str, help: &str, samples: &[(String, f64)]| page.family(name, kind, help, samples);
    let errors = meter.decode_errors.iter();
    let errors: Vec<_> = errors.map(|(error, n)| (format!(",odd=\"{error}\""), *n as f64)).collect();
    family(
        "decode_errors_total",
        "counter",
        "Packets that are not decoded to their end (docs/reference/decoding.md).",
        &errors,
    );
    let egresses = |value: &dyn Fn(&SinkReport) -> u64| -> Vec<(String, f64)> {
        let each = meter.sinks.iter();
        each.map(|o| (format!(",sink=\"{}\"", escape(&o.name)), value(o) as f64)).collect()
    };
    family("sink_records_total", "counter", "Flow records taken.", &egresses(&|o| o.records));
    family("sink_rows_total", "counter", "Rows taken.", &egresses(&|o| o.rows));
    family("sink_lost_total", "counter", "Records and rows that were not brought there.", &egresses(&|o| o.lost));
    let seconds = meter.cpu_millis as f64 / 1e3;
    family("meter_cpu_seconds_total", "counter", "Processor time of the meter.", &[(String::new(), seconds)]);
}

/// Adds the metrics of the interface's program.
fn programmed(program: &ProgramReport, mut family: impl FnMut(&str, &str, &str, &[(String, f64)])) {
    let unsent = [("kernel", program.kernel.unsent), ("user", program.user.unsent)];
    let unsent = unsent.map(|(place, n)| (format!(",place=\"{place}\""), n as f64));
    family(
        "program_unsent_total",
        "counter",
        "Packets that none of the interfaces took which the program sends them to, or that could not be given to the host.",
        &unsent,
    );
    family(
        "program_copies_unsent_total",
        "counter",
        "Copies that an interface did not take, of packets that are stored, left by another interface or are the host's.",
        &[(String::new(), program.user.copies_unsent as f64)],
    );
    let counters: Vec<_> =
        program.counters.iter().map(|(n, value)| (format!(",counter=\"{n}\""), *value as i64 as f64)).collect();
    family("program_value", "gauge", "What the interface's program counts; it may count down.", &counters);
    let maps =
        program.maps.iter().flat_map(|m| m.kernel.map(|k| (m, "kernel", k)).into_iter().chain([(m, "user", m.user)]));
    let maps: Vec<_> =
        maps.map(|(m, place, it)| (format!(",map=\"{}\",place=\"{place}\"", escape(&m.map)), it)).collect();
    let used: Vec<_> = maps.iter().filter_map(|(labels, it)| Some((labels.clone(), it.used? as f64))).collect();
    family(
        "program_map_entries",
        "gauge",
        "Entries of a map of the interface's program, as far as they are counted.",
        &used,
    );
    let refused: Vec<_> = maps.iter().map(|(labels, it)| (labels.clone(), it.refused as f64)).collect();
    family(
        "program_map_refused_total",
        "counter",
        "Entries that a full map of the interface's program refused.",
        &refused,
    );
}

/// Adds the metrics of the retention worker.
fn retention(kept: &RetentionReport, mut family: impl FnMut(&str, &str, &str, f64)) {
    let (removed, archived) = (&kept.removed, &kept.archived);
    let mut counter = |what: &str, help: &str, files: u64, bytes: u64| {
        family(&format!("retention_{what}_files_total"), "counter", &format!("Packet files {help}."), files as f64);
        let help = format!("Bytes of packet files, with their indexes, {help}.");
        family(&format!("retention_{what}_bytes_total"), "counter", &help, bytes as f64);
    };
    counter("removed", "removed to make room or because of their age", removed.files, removed.bytes);
    counter("archived", "moved to the archive", archived.files, archived.bytes);
    counter(
        "unarchived",
        "removed that the archive should have had, and failed to take in time",
        kept.unarchived_files,
        kept.unarchived_bytes,
    );
    family(
        "retention_held_folders",
        "gauge",
        "Folders, each of an hour, that should give files, but queries hold them.",
        kept.held_hours as f64,
    );
    if let Some(oldest) = kept.oldest_second {
        family(
            "retention_oldest_file_timestamp_seconds",
            "gauge",
            "First moment of the oldest packet file kept, in seconds since 1970.",
            oldest as f64,
        );
    }
    if let Some(horizon) = kept.horizon_seconds {
        family(
            "retention_horizon_seconds",
            "gauge",
            "How far back packet files will reach when the rules begin to remove them, at the rate of the files kept now.",
            horizon,
        );
    }
    family("retention_kept_files", "gauge", "Packet files kept.", kept.files as f64);
    family(
        "retention_kept_bytes",
        "gauge",
        "Bytes of the volume that everything of the interface takes, files in work included.",
        kept.bytes as f64,
    );
    let is_failing = f64::from(u8::from(kept.trouble.is_some()));
    family("retention_failing", "gauge", "1 while an operation of retention fails.", is_failing);
}
