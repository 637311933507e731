//! `/metrics` in the Prometheus text format, from the same [`Report`] as everything else.

use crate::retention::RetentionReport;
use crate::status::Report;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The exposition of a report (Prometheus text format 0.0.4).
pub fn exposition(report: &Report) -> String {
    let mut out = String::new();
    let interface = escape(&report.interface);
    let mut family = |name: &str, kind: &str, help: &str, samples: &[(String, f64)]| {
        let _ = writeln!(out, "# HELP netgrain_{name} {help}\n# TYPE netgrain_{name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(out, "netgrain_{name}{{interface=\"{interface}\"{labels}}} {value}");
        }
    };
    let queues = &report.queues;
    let per_queue = |value: &dyn Fn(&crate::status::QueueReport) -> f64| -> Vec<(String, f64)> {
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
    family("lost_packets_total", "counter", "Packets lost, by cause (docs/COUNTERS.md).", &lost);
    family("notes_total", "counter", "Remarks, by kind (docs/COUNTERS.md).", &notes);
    let gates: Vec<_> =
        report.lost_by_gate.iter().map(|(g, n)| (format!(",gate=\"{}\"", escape(g)), *n as f64)).collect();
    family(
        "lost_to_gate_packets_total",
        "counter",
        "Packets lost because the ring was full, by the gate that held it.",
        &gates,
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
        "How full the ring is, judged by its slowest gate.",
        &per_queue(&|q| q.ring_fill),
    );
    family(
        "engine_cpu_seconds_total",
        "counter",
        "Processor time of the engine thread.",
        &per_queue(&|q| q.engine_cpu_seconds),
    );
    family(
        "clock_error_seconds",
        "gauge",
        "Estimated error of the stamps.",
        &per_queue(&|q| q.clock_error_nanos as f64 / 1e9),
    );
    let recorder = |value: &dyn Fn(&crate::status::RecorderReport) -> f64| -> Vec<(String, f64)> {
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
        "recorder_in_trouble",
        "gauge",
        "1 while the volume refuses writes.",
        &recorder(&|r| f64::from(u8::from(r.trouble.is_some()))),
    );
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
    if let Some(kept) = &report.retention {
        retention(kept, |name, kind, help, value| family(name, kind, help, &[(String::new(), value)]));
    }
    out
}

/// What makes room, where it does.
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
    family("retention_held_hours", "gauge", "Hours that should go, but queries hold them.", kept.held_hours as f64);
    let trouble = f64::from(u8::from(kept.trouble.is_some()));
    family("retention_in_trouble", "gauge", "1 while something that retention should do cannot be done.", trouble);
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Answers `GET /metrics` until dropped.
pub struct MetricsServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Listens at `address` (port 0 lets the system choose one) and asks `report` anew for each request.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub fn start(address: &str, report: impl Fn() -> Report + Send + 'static) -> io::Result<Self> {
        let server = tiny_http::Server::http(address).map_err(io::Error::other)?;
        let address = server.server_addr().to_ip().ok_or_else(|| io::Error::other("not an IP address"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("metrics".into()).spawn(move || {
            while !told.load(Ordering::Relaxed) {
                if let Ok(Some(request)) = server.recv_timeout(Duration::from_millis(100)) {
                    answer(request, &report);
                }
            }
        })?;
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn answer(request: tiny_http::Request, report: &impl Fn() -> Report) {
    let response = if request.url() == "/metrics" {
        let mut response = tiny_http::Response::from_string(exposition(&report()));
        if let Ok(header) = "Content-Type: text/plain; version=0.0.4".parse::<tiny_http::Header>() {
            response.add_header(header);
        }
        response
    } else {
        tiny_http::Response::from_string("netgrain: the metrics are at /metrics\n").with_status_code(404)
    };
    // A client that has gone needs no answer.
    let _ = request.respond(response);
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
