//! The sources of a capture: interfaces, capture files or a simulation.

use super::args::CaptureArgs;
use crate::outcome::Failure;
use crate::port::port;
use capture::file::{File, Options, Port};
use config::{Config, FILE, Problem};
use engine::SourcePlan;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Returns the sources of packets: one for each captured interface, or those of the capture files, or one simulation.
///
/// # Errors
/// An interface cannot be captured, or the specification of the simulation is invalid.
pub fn sources(args: &CaptureArgs, config: &Config, stop: &AtomicBool) -> Result<Vec<SourcePlan>, Failure> {
    if !args.read.is_empty() {
        let format = args.read_raw.then_some(pcap::Format::Raw);
        return captures(&args.read, &Options { speed: args.speed, format, port: None }, args.name.clone(), stop);
    }
    if let Some(spec) = &args.sim {
        let spec = spec.parse().map_err(Failure::say)?;
        return Ok(vec![SourcePlan::Sim { spec, start: None, name: args.name.clone() }]);
    }
    let capture = &config.capture;
    let queues = capture.queues.map(|n| u16::try_from(n.0).unwrap_or(u16::MAX));
    let one = |name: &String| port(name, capture.source, capture.dedicated, queues, capture.busy_poll);
    capture.interfaces.iter().map(one).collect()
}

/// Returns capture files as one source, or, if they have several interfaces, as one source for each interface.
///
/// # Errors
/// A file does not exist, the first file cannot be read, or the stop flag was set while the files were examined.
pub fn captures(
    files: &[PathBuf],
    options: &Options,
    name: Option<String>,
    stop: &AtomicBool,
) -> Result<Vec<SourcePlan>, Failure> {
    readable(files, options)?;
    let plan = |paths: &[PathBuf], name, port| {
        let options = Options { port, ..options.clone() };
        SourcePlan::Files { paths: paths.to_vec(), options, name }
    };
    let whole = plan(files, name, None);
    // If the format of the files is given, each has one interface: only pcapng files have several, and the format of
    // pcapng files is never given, because their content shows it.
    let ports = if options.format.is_none() { capture::file::ports(files, stop) } else { Vec::new() };
    if stop.load(Ordering::Relaxed) {
        return Err(Failure::say("interrupted while the capture was searched for its interfaces; nothing was done"));
    }
    let one = |port: Port| {
        let label = format!("{}.{}", whole.label(), port.name);
        plan(&port.paths, Some(label), Some((port.name, port.link_type)))
    };
    Ok(if ports.is_empty() { vec![whole] } else { ports.into_iter().map(one).collect() })
}

/// Checks before the store is created that every file exists and that the first file is a capture. Later files are
/// opened only when the replay reaches them. A pipe is not opened here, because its content can be read only once.
fn readable(files: &[PathBuf], options: &Options) -> Result<(), Failure> {
    for (i, path) in files.iter().enumerate().filter(|(_, path)| *path != Path::new("-")) {
        let is_pipe = path.metadata().is_ok_and(|about| !about.is_file() && !about.is_dir());
        if !is_pipe && (i == 0 || !path.is_file()) {
            File::open(path, Options { port: None, ..options.clone() }).map_err(Failure::say)?;
        }
    }
    Ok(())
}

/// The problem with a setting that is impossible for a capture with several interfaces; `None` if there is none. The
/// number of interfaces of some captures is known only after their files were examined.
pub fn refused_for_several(config: &Config, interfaces: usize) -> Option<Problem> {
    let advice = "pass the capture through standard input (-r -) to record it as one interface";
    let problem = |key: &str, cause: String| Problem { key: key.into(), text: format!("{key}: {cause}; {advice}") };
    if let Some(target) = config.export.targets.iter().find(|target| target.starts_with(FILE)) {
        let cause = format!("{target}: a file has the data of one interface, but the capture has {interfaces}");
        return Some(problem("export.targets", cause));
    }
    match config.listen.socket.to_str() {
        Some("auto" | "none") => None,
        _ => {
            let cause = format!("a ring socket is for one interface, but the capture has {interfaces}");
            Some(problem("listen.socket", cause))
        }
    }
}
