//! `netgrain record`: records the packets of an interface, a file or a simulation into a store.

mod args;

pub use args::RecordArgs;

use crate::metrics;
use crate::outcome::{self, Failure, Outcome, json};
use crate::port::port;
use crate::privileges::{self, Needs};
use crate::program;
use crate::retain;
use crate::screen::{Ticker, Warnings, summary};
use crate::service::Service;
use crate::signals;
use args::{FileFormat, SocketArgs};
use engine::{Capture, Format, Plan, Report, Retention, RetentionReport, Second, SocketPlan, SourcePlan, StorePlan};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often the loop checks signals and the end of the capture.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Runs the verb. `No` if packets were lost.
pub fn run(args: &RecordArgs) -> Result<Outcome, Failure> {
    if let Some(Err(e)) = args.metrics.as_deref().map(config::check_metrics_address) {
        return Err(Failure::Said(format!("--metrics {e}")));
    }
    let plan = plan(args)?;
    let keeping = retain::plan(&args.retention.rules(), &args.store, &plan)?;
    privileges::for_recording(&Needs {
        ports: args.source.interface.is_some(),
        program: plan.program.is_some(),
        files: args.source.read.is_some() || args.program.program.is_some(),
        store: Some(&args.store),
        archive: args.retention.archive.as_deref(),
        socket: plan.socket.as_ref().map(|s| s.path.as_path()),
        socket_owner: args.socket.socket_owner.as_deref(),
        socket_group: args.socket.socket_group.as_deref(),
        user: args.user.as_deref(),
    })?;
    // Without a program file to read again, SIGHUP means that the terminal was closed, and the recorder ends. Without a
    // controlling terminal the recorder is a service, and SIGHUP only prints a message.
    let reads_again = args.program.program.is_some();
    let leaves = !reads_again && signals::has_terminal();
    let stop = if leaves { signals::stop_or_hangup_flag() } else { signals::stop_flag() };
    let hangup = (!leaves).then(signals::hangup_flag);
    if let Some(warning) = crate::replay_overlap::warning(&plan) {
        sys::say!("netgrain: {warning}");
    }
    let mut capture = Capture::start(&plan)?;
    let mut service = Service::begin();
    service.ready();
    for source in capture.sources() {
        sys::say!("netgrain: {source}");
    }
    sys::say!("netgrain: {}", capture.memory_warning(&plan));
    if let Some(socket) = &plan.socket {
        let groups = engine::groups_socket(&socket.path);
        sys::say!("netgrain: listeners attach at {}, groups at {}", socket.path.display(), groups.display());
    }
    if let Some(report) = capture.report().program {
        sys::say!("netgrain: {}", program::description(&report));
    }
    let reload = || {
        if !hangup.as_ref().is_some_and(|hangup| hangup.swap(false, Ordering::Relaxed)) {
            return;
        }
        if reads_again {
            match args.program.plan().and_then(|plan| plan.map(|p| program::exchange(&capture, &p)).transpose()) {
                Ok(reported) => sys::say!("netgrain: {}", reported.unwrap_or_default()),
                Err(Failure::Said(text)) => sys::say!("netgrain: nothing is changed: {text}"),
                Err(Failure::ClosedPipe) => {}
            }
        } else {
            sys::say!("netgrain: SIGHUP reads the file of --program again, and there is none; recording goes on");
        }
    };
    if let Some(text) = keeping.as_ref().and_then(|plan| retain::announcement(&args.retention.rules(), plan)) {
        sys::say!("netgrain: {text}");
    }
    let metrics = match &args.metrics {
        Some(address) => {
            let observer = capture.observer();
            Some(metrics::serve(address, move || vec![observer.measured()])?)
        }
        None => None,
    };
    let retention = match keeping {
        Some(plan) => Some(Retention::start(plan, capture.observer(), retain::teller(args.json))?),
        None => None,
    };
    privileges::keep_calls_of_capture()?;
    let kept = || retention.as_ref().map(Retention::report);
    let shown = if args.quiet {
        let mut remarks = Warnings::default();
        watch(&capture, &stop, &reload, |r| {
            service.notify(&r);
            remarks.print(&r);
            Ok(())
        })
    } else if args.json {
        watch(&capture, &stop, &reload, |r| {
            service.notify(&r);
            Ok(json(&serde_json::json!({ "live": r, "retention": kept() }))?)
        })
    } else {
        let mut ticker = Ticker::new();
        let r = watch(&capture, &stop, &reload, |r| {
            service.notify(&r);
            ticker.show(r);
            Ok(())
        });
        ticker.done();
        r
    };
    service.stopping();
    capture.stop();
    let ended = capture.wait();
    let report = Report { memory_bytes: Some(sys::cpu::resident_bytes()), ..capture.report() };
    drop(metrics);
    // Ended first: the report is the last line and counts all files of earlier messages.
    let kept = retention.map(Retention::end);
    let reported = shown.and_then(|()| finish(args, &capture, &report, kept.as_ref()));
    let whole = outcome::ended(ended, &report)?;
    reported?;
    Ok(Outcome::of(whole && report.is_healthy()))
}

/// Calls `look` often, and `show` once a second, until the capture ends or a signal arrives. Output errors do not end
/// the capture.
pub fn watch(
    capture: &Capture,
    stop: &AtomicBool,
    look: &dyn Fn(),
    mut show: impl FnMut(Report) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let (mut gone, mut reported) = (false, false);
    let mut ticker = Ticker::new();
    while !capture.finished() && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(CHECK_INTERVAL);
        look();
        if ticker.is_due() {
            ticker.skip();
            match show(capture.report()) {
                Err(Failure::ClosedPipe) => gone = true,
                other => other?,
            }
        }
        if gone && !reported {
            sys::say!("netgrain: nobody reads the reports any more; recording goes on");
            reported = true;
        }
    }
    if gone { Err(Failure::ClosedPipe) } else { Ok(()) }
}

fn finish(
    args: &RecordArgs,
    capture: &Capture,
    report: &Report,
    kept: Option<&RetentionReport>,
) -> Result<(), Failure> {
    if args.json {
        let ledger: Vec<Second> = capture.ledger().rows().map(|row| Second::from(&row)).collect();
        json(&serde_json::json!({ "report": report, "ledger": ledger, "retention": kept }))?;
    } else {
        let kept = kept.map(retain::summary).unwrap_or_default();
        let program = report.program.as_ref().map(program::summary).unwrap_or_default();
        std::io::stdout().write_all((summary(report) + &program + &kept).as_bytes())?;
    }
    Ok(())
}

fn plan(args: &RecordArgs) -> Result<Plan, Failure> {
    let mut plan = Plan::new(source(args)?);
    plan.ring = args.ring;
    plan.segment = args.segment;
    plan.rotate = args.rotate;
    if args.snaplen > 0 {
        plan.snaplen = args.snaplen.min(plan.snaplen);
    }
    plan.filter.clone_from(&args.filter);
    plan.program = args.program.plan()?;
    plan.cpus = args.cpu.clone().map(|c| c.0).unwrap_or_default();
    plan.spin = args.spin;
    plan.duration = args.duration;
    plan.packets = args.packets;
    plan.reader_timeout = (args.socket.reader_timeout > Duration::ZERO).then_some(args.socket.reader_timeout);
    let format = match args.format {
        FileFormat::Pcap => Format::Pcap,
        FileFormat::Raw => Format::Raw,
    };
    plan.store = Some(StorePlan { dir: args.store.clone(), format, depth: args.depth });
    plan.socket = socket(&args.socket, &plan.source)?;
    Ok(plan)
}

fn source(args: &RecordArgs) -> Result<SourcePlan, Failure> {
    if let Some(path) = &args.source.read {
        let format = args.read_raw.then_some(pcap::Format::Raw);
        let options = capture::file::Options { speed: args.speed, format, port: None };
        return Ok(SourcePlan::Files { paths: vec![path.clone()], options, name: args.name.clone() });
    }
    if let Some(spec) = &args.source.sim {
        let spec = spec.parse().map_err(Failure::say)?;
        return Ok(SourcePlan::Sim { spec, start: None, name: args.name.clone() });
    }
    port(
        args.source.interface.as_deref().unwrap_or_default(),
        args.source_kind.into(),
        args.dedicated,
        args.queues,
        args.busy_poll,
    )
}

fn socket(args: &SocketArgs, source: &SourcePlan) -> Result<Option<SocketPlan>, Failure> {
    let live = matches!(source, SourcePlan::Interface(_));
    let path = match &args.socket {
        Some(path) if path == Path::new("none") => return Ok(None),
        Some(path) => path.clone(),
        // A replay or simulation has a ring socket only if `--socket` is given: listeners do not expect it at the
        // default path of an interface.
        None if !live => return Ok(None),
        None => engine::default_socket(&source.label()),
    };
    Ok(Some(SocketPlan {
        path,
        mode: args.socket_mode.0,
        uid: id(args.socket_owner.as_deref(), "/etc/passwd")?,
        gid: id(args.socket_group.as_deref(), "/etc/group")?,
        allow_lossless: args.allow_lossless,
        forward: args.allow_forward.clone(),
    }))
}

/// The ID of a user or group.
///
/// # Errors
/// No entry of the file has this name.
pub fn id(name: Option<&str>, file: &str) -> Result<Option<u32>, Failure> {
    let Some(name) = name else { return Ok(None) };
    sys::unix::id_of(name, Path::new(file))
        .map(Some)
        .ok_or_else(|| Failure::Said(format!("{name}: not a number and not in {file}")))
}
