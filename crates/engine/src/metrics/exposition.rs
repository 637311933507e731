//! Makes the page of metrics from reports: the metric families of one or several interfaces.

use super::groups;
use super::page::{Family, Page, escape};
use crate::duplicate_report::DuplicateReport;
use crate::recording::RecorderReport;
use crate::report::{ClockReport, QueueReport, Report};
use crate::retention_report::RetentionReport;
use flow::ExpiryDelays;
use interface_program::ProgramReport;
use meter::{MeterReport, SinkReport};

/// Returns the metrics of a report (Prometheus text format 0.0.4).
pub fn exposition(report: &Report) -> String {
    exposition_of(std::slice::from_ref(report))
}

/// Returns the metrics of several interfaces. The samples of a family are consecutive, as the Prometheus text format
/// requires.
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
        "Packets that reached the point at which the source counts.",
        &per_queue(&|q| q.counts.offered as f64),
    );
    family("stored_packets_total", "counter", "Packets that were stored.", &per_queue(&|q| q.counts.stored as f64));
    family(
        "stored_wire_bytes_total",
        "counter",
        "Bytes on the wire of the stored packets.",
        &per_queue(&|q| q.counts.stored_bytes as f64),
    );
    family(
        "filtered_packets_total",
        "counter",
        "Packets that are not in the ring because the capture filter or the interface's program removed them.",
        &per_queue(&|q| q.counts.filtered as f64),
    );
    family(
        "duplicate_packets_total",
        "counter",
        "Packets that were removed as duplicates.",
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
        "Packets lost because the ring was full, by the lossless reader that the producer waited for.",
        &readers,
    );
    family(
        "residue_packets",
        "gauge",
        "The difference offered - stored - filtered - duplicate - lost; a value other than 0 is a bug.",
        &per_queue(&|q| q.counts.residue as f64),
    );
    family(
        "ring_fill_ratio",
        "gauge",
        "Fill level of the ring in relation to its slowest lossless reader, 0 to 1.",
        &per_queue(&|q| q.ring_fill),
    );
    family(
        "engine_cpu_seconds_total",
        "counter",
        "CPU time of the engine thread.",
        &per_queue(&|q| q.engine_cpu_seconds),
    );
    family(
        "cpu_steal_ratio",
        "gauge",
        "Share of the machine's CPU time since the start that the hypervisor gave to other guests, 0 to 1.",
        &[(String::new(), report.steal_ratio)],
    );
    family(
        "clock_error_seconds",
        "gauge",
        "Estimated error of the timestamps.",
        &per_queue(&|q| q.clock_error_nanos as f64 / 1e9),
    );
    let clock = |value: &dyn Fn(&ClockReport) -> f64| -> Vec<(String, f64)> {
        report.clock.iter().map(|clock| (String::new(), value(clock))).collect()
    };
    family(
        "clock_synchronised",
        "gauge",
        "1 if a time daemon synchronises the system clock, otherwise 0.",
        &clock(&|c| f64::from(u8::from(c.synchronised))),
    );
    family(
        "clock_maximum_error_seconds",
        "gauge",
        "Maximum error of the system clock according to the time daemon.",
        &clock(&|c| c.maximum_error_nanos as f64 / 1e9),
    );
    family(
        "clock_frequency_correction_ratio",
        "gauge",
        "Correction of the rate of the system clock by the time daemon; 0.000001 is 1 ppm.",
        &clock(&|c| c.frequency_ppb as f64 / 1e9),
    );
    family(
        "timestamp_deviation_seconds",
        "gauge",
        "Estimated standard deviation of the timestamps that the engine distributes to the packets of a batch; 0 with \
         other methods.",
        &per_queue(&|q| q.timestamp_deviation_nanos as f64 / 1e9),
    );
    let methods = queues.iter().flat_map(|q| q.timestamp_methods.iter().map(move |method| (q.queue, method)));
    family(
        "timestamp_method_packets_total",
        "counter",
        "Packets by the method that made their timestamp.",
        &methods
            .map(|(queue, (method, n))| (format!(",queue=\"{queue}\",method=\"{method}\""), *n as f64))
            .collect::<Vec<_>>(),
    );
    let recorder = |value: &dyn Fn(&RecorderReport) -> f64| -> Vec<(String, f64)> {
        queues.iter().filter_map(|q| Some((format!(",queue=\"{}\"", q.queue), value(q.recorder.as_ref()?)))).collect()
    };
    family("written_bytes_total", "counter", "Bytes written to packet files.", &recorder(&|r| r.bytes as f64));
    family("files_total", "counter", "Packet files that were published.", &recorder(&|r| r.files as f64));
    family(
        "writer_cpu_seconds_total",
        "counter",
        "CPU time of the writer thread.",
        &recorder(&|r| r.writer_cpu_seconds),
    );
    family("index_cpu_seconds_total", "counter", "CPU time of the index thread.", &recorder(&|r| r.index_cpu_seconds));
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
        one("store_size_bytes", "Size of the volume that holds the store.", volume.total);
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
    family(
        "listener_missed_packets_total",
        "counter",
        "Packets that a lossy listener missed, as the listener reports.",
        &listeners,
    );
    detected(&report.queues, &mut family);
    if let Some(program) = &report.program {
        programmed(program, &mut family);
    }
    if let Some(retention_report) = &report.retention {
        retention(retention_report, |name, kind, help, value| family(name, kind, help, &[(String::new(), value)]));
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
        "Packets counted in the time series and, if they belong to a flow, in the flow.",
        meter.packets,
    );
    one(
        "marked_duplicate_packets_total",
        "counter",
        "Stored packets that are marked as copies of earlier packets, and counted apart in the time series.",
        meter.duplicates,
    );
    one(
        "unmetered_packets_total",
        "counter",
        "Stored packets that are counted in no flow and no row, because the meter was too slow.",
        meter.unmetered,
    );
    one("packets_without_flow_total", "counter", "Packets that belong to no flow.", meter.without_flow);
    one("active_flows", "gauge", "Flows in the flow table.", meter.active);
    one("flows_total", "counter", "Flows that have begun.", meter.started);
    one(
        "backward_timestamp_packets_total",
        "counter",
        "Packets with an earlier timestamp than the previous packet of their flow.",
        meter.backward_timestamps,
    );
    one("flow_memory_bytes", "gauge", "Memory that the flow tables have used so far.", meter.flow_bytes);
    one("rows_total", "counter", "Rows of the time series that were made.", meter.rows);
    let t = &meter.tunnels;
    for (name, help, value) in [
        ("numbered", "Packets with a tunnel sequence number (ERSPAN, GRE, GTP-U).", t.numbered),
        ("sessions", "Tunnel sessions with sequence numbers that were observed.", t.sessions),
        ("missing", "Tunnel sequence numbers that were skipped.", t.missing),
        ("late", "Skipped tunnel sequence numbers that arrived later.", t.late),
        ("duplicate", "Tunnel sequence numbers that arrived twice.", t.duplicate),
        (
            "out_of_window",
            "Tunnel sequence numbers that are too far from the other numbers of their session.",
            t.out_of_window,
        ),
        ("restarts", "Tunnel sessions that restarted with another sequence number.", t.restarts),
        ("evicted", "Tunnel sessions that were evicted because the table was full.", t.evicted),
    ] {
        one(&format!("tunnel_{name}_total"), "counter", help, value);
    }
    let records: Vec<_> = meter.records.iter().map(|(end, n)| (format!(",end=\"{end}\""), *n as f64)).collect();
    family("flow_records_total", "counter", "Flow records, by flow end reason.", &records);
    const STEPS: usize = ExpiryDelays::STEPS - 1;
    let bounds: [f64; STEPS] = std::array::from_fn(|step| ((step as u64 + 1) * ExpiryDelays::STEP_MS) as f64 / 1e3);
    page.histogram(
        "flow_expiry_delay_seconds",
        "Time from the timeout of a flow to the moment at which its record was made.",
        &bounds,
        &meter.expiry_delays,
        meter.expiry_delay_nanos as f64 / 1e9,
    );
    let mut family =
        |name: &str, kind: &str, help: &str, samples: &[(String, f64)]| page.family(name, kind, help, samples);
    let errors = meter.decode_errors.iter();
    let errors: Vec<_> = errors.map(|(error, n)| (format!(",error=\"{error}\""), *n as f64)).collect();
    family(
        "decode_errors_total",
        "counter",
        "Packets that were not decoded up to their transport header, by error (docs/reference/decoding.md).",
        &errors,
    );
    let egresses = |value: &dyn Fn(&SinkReport) -> u64| -> Vec<(String, f64)> {
        let each = meter.sinks.iter();
        each.map(|o| (format!(",sink=\"{}\"", escape(&o.name)), value(o) as f64)).collect()
    };
    family("sink_records_total", "counter", "Flow records passed to a sink.", &egresses(&|o| o.records));
    family("sink_rows_total", "counter", "Rows passed to a sink.", &egresses(&|o| o.rows));
    family(
        "sink_lost_total",
        "counter",
        "Flow records and rows that a sink could not deliver.",
        &egresses(&|o| o.lost),
    );
    let seconds = meter.cpu_millis as f64 / 1e3;
    family("meter_cpu_seconds_total", "counter", "CPU time of the meter's threads.", &[(String::new(), seconds)]);
}

/// Adds the metrics of the interface's program.
/// Adds the metrics of the detection of duplicates.
fn detected(queues: &[QueueReport], mut family: impl FnMut(&str, &str, &str, &[(String, f64)])) {
    let reports = || queues.iter().filter_map(|queue| Some((queue.queue, queue.duplicates.as_ref()?)));
    if reports().next().is_none() {
        return;
    }
    let found = reports().flat_map(|(queue, report)| report.found.iter().map(move |found| (queue, found)));
    let found: Vec<_> =
        found.map(|(queue, (class, n))| (format!(",queue=\"{queue}\",class=\"{class}\""), *n as f64)).collect();
    family("duplicates_found_total", "counter", "Duplicates that were marked or removed, by class.", &found);
    let mut each = |name: &str, kind: &str, help: &str, value: fn(&DuplicateReport) -> f64| {
        let samples: Vec<_> = reports().map(|(queue, report)| (format!(",queue=\"{queue}\""), value(report))).collect();
        family(name, kind, help, &samples);
    };
    let help = "Time that the table of duplicates reaches back. Copies that are later than their originals by more are \
                not found.";
    each("duplicate_reach_seconds", "gauge", help, |report| report.reach_nanos as f64 / 1e9);
    let help = "Packets that the table of duplicates forgot before the window ended.";
    each("duplicate_forgotten_packets_total", "counter", help, |report| report.forgotten as f64);
}

fn programmed(program: &ProgramReport, mut family: impl FnMut(&str, &str, &str, &[(String, f64)])) {
    let unsent = [("kernel", program.kernel.unsent), ("user", program.user.unsent)];
    let unsent = unsent.map(|(part, n)| (format!(",part=\"{part}\""), n as f64));
    family(
        "program_unsent_total",
        "counter",
        "Packets that none of the program's egress interfaces accepted, or that could not be passed to the \
         host.",
        &unsent,
    );
    family(
        "program_copies_unsent_total",
        "counter",
        "Copies that an egress interface did not accept, of packets that were stored, forwarded or passed to the \
         host.",
        &[(String::new(), program.user.copies_unsent as f64)],
    );
    let counters: Vec<_> =
        program.counters.iter().map(|(n, value)| (format!(",counter=\"{n}\""), *value as i64 as f64)).collect();
    family(
        "program_value",
        "gauge",
        "Value of a counter of the interface's program; a program can also decrement it.",
        &counters,
    );
    let maps =
        program.maps.iter().flat_map(|m| m.kernel.map(|k| (m, "kernel", k)).into_iter().chain([(m, "user", m.user)]));
    let maps: Vec<_> = maps.map(|(m, part, it)| (format!(",map=\"{}\",part=\"{part}\"", escape(&m.map)), it)).collect();
    let used: Vec<_> = maps.iter().filter_map(|(labels, it)| Some((labels.clone(), it.used? as f64))).collect();
    family(
        "program_map_entries",
        "gauge",
        "Entries of a flow map of the interface's program; absent for a map in the kernel with more than 1023 entries.",
        &used,
    );
    let refused: Vec<_> = maps.iter().map(|(labels, it)| (labels.clone(), it.refused as f64)).collect();
    family(
        "program_map_refused_total",
        "counter",
        "Insertions into a flow map of the interface's program that were refused because the map was full.",
        &refused,
    );
}

/// Adds the metrics of the retention worker.
fn retention(report: &RetentionReport, mut family: impl FnMut(&str, &str, &str, f64)) {
    let (removed, archived) = (&report.removed, &report.archived);
    let mut counter = |what: &str, help: &str, files: u64, bytes: u64| {
        family(&format!("retention_{what}_files_total"), "counter", &format!("Packet files {help}."), files as f64);
        let help = format!("Bytes of packet files, with their indexes, {help}.");
        family(&format!("retention_{what}_bytes_total"), "counter", &help, bytes as f64);
    };
    counter("removed", "removed by the retention rules", removed.files, removed.bytes);
    counter("archived", "moved to the archive", archived.files, archived.bytes);
    counter(
        "unarchived",
        "removed although they should have been moved to the archive",
        report.unarchived_files,
        report.unarchived_bytes,
    );
    family(
        "retention_held_directories",
        "gauge",
        "Hour directories with files that the retention rules would remove, but that queries are reading.",
        report.held_hours as f64,
    );
    if let Some(oldest) = report.oldest_second {
        family(
            "retention_oldest_file_timestamp_seconds",
            "gauge",
            "Begin of the oldest packet file, in seconds since 1970.",
            oldest as f64,
        );
    }
    if let Some(horizon) = report.horizon_seconds {
        family(
            "retention_horizon_seconds",
            "gauge",
            "Time that the packet files will cover when the rules begin to remove them, if the rate of the present \
             files continues.",
            horizon,
        );
    }
    family("retention_kept_files", "gauge", "Published packet files in the store.", report.files as f64);
    family(
        "retention_kept_bytes",
        "gauge",
        "Bytes that the interface occupies on the volume, including growing files.",
        report.bytes as f64,
    );
    let is_failing = f64::from(u8::from(report.trouble.is_some()));
    family("retention_failing", "gauge", "1 while an operation of retention fails.", is_failing);
}
