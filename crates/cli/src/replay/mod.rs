//! `netgrain replay`: sends captured packets again.

pub mod args;
mod inputs;
mod output;

use crate::outcome::{Failure, Outcome};
use crate::privileges;
use crate::signals;
use args::{ReplayArgs, SecondBy};
use filter::Filter;
use replay::control::{Command, SignalFlags};
use replay::rewrite::{MAX_PREFIXES, MacRewrite};
use replay::{
    Control, Interface, Outputs, Preparation, Preparer, ReadAhead, Rewrite, Rewriter, SecondInterface, SystemClock,
    control_socket,
};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// The nice value of the sending thread. The high priority shortens the waits for a processor, which delay frames. The
/// reading thread is started before the value is set, so it keeps the normal priority.
const NICE: i32 = -19;

/// Runs the verb. The outcome is `No` (exit status 1) if a packet was skipped or dropped, an input is damaged, or the
/// replay was stopped.
pub fn run(args: &ReplayArgs) -> Result<Outcome, Failure> {
    if let Some(command) = args.command {
        privileges::keep_calls_of_queries()?;
        return send_command(args.control.as_deref(), command);
    }
    let Some(name) = &args.interface else { return Err(Failure::Said("name an interface with -i".to_owned())) };
    if args.map.len() > MAX_PREFIXES {
        return Err(Failure::Said(format!("--map: at most {MAX_PREFIXES} prefixes can be replaced")));
    }
    let parse = |text: &Option<String>| match text {
        Some(text) => Filter::parse(text).map_err(|e| Failure::filter(&e)),
        None => Ok(Filter::default()),
    };
    let (filter, second) = (parse(&args.filter)?, second_interface(args)?);
    let stop = signals::stop_flag();
    let open = inputs::open(args, &filter, &stop)?;
    let method = args.method.into();
    let mut interfaces = Vec::new();
    for name in [Some(name), args.second.as_ref()].into_iter().flatten() {
        let interface = Interface::open(name, args.queue, method).map_err(Failure::say)?;
        sys::say!("netgrain: {}", interface.description());
        interfaces.push(interface);
    }
    let signals = SignalFlags { stop, continued: signals::continued_flag(), toggle: signals::pause_flag() };
    let control = Arc::new(Control::new(args.speed, signals));
    let socket = match &args.control {
        Some(path) => {
            let served = control_socket::serve(path, Arc::clone(&control), export::text::SCHEMA_VERSION);
            let refused =
                |e| Failure::Said(format!("--control {}: {e}; name a path in a directory of yours", path.display()));
            Some(served.map_err(refused)?)
        }
        None => None,
    };
    privileges::for_sending(args.control.as_deref())?;
    let longest = [0, 1].map(|index| interfaces.get(index).map_or(0, Interface::longest));
    let preparation = Preparation { filter, truncated: args.truncated.into(), second, longest };
    let preparer = Preparer::new(preparation, Rewriter::new(rewrite(args)));
    let input = ReadAhead::start(open, args.passes, preparer, args.buffer)
        .map_err(|e| Failure::Said(format!("cannot start a thread: {e}; raise the limit of processes (ulimit -u)")))?;
    let names = interfaces.iter().map(|i| (i.name().to_owned(), i.method().to_owned())).collect();
    let outputs = Outputs { outputs: &mut interfaces, names };
    // Threads inherit the processors of the thread that starts them, so the sending thread is pinned after the start of
    // the reading thread and of the thread of the control socket.
    if let Some(cpu) = args.cpu {
        sys::cpu::pin(cpu).map_err(|e| Failure::Said(format!("--cpu {cpu}: {e}; name a processor of this machine")))?;
    }
    sys::cpu::sleep_exactly();
    // Without the privilege `CAP_SYS_NICE` this fails, and the sending thread keeps the normal priority.
    let _ = sys::cpu::set_nice(NICE);
    let progress = |report: &replay::Report| {
        if !args.json {
            sys::say!("{}", output::progress(report));
        }
    };
    let (report, outcome) = replay::replay(input, outputs, args.max_gap, &control, SystemClock, progress);
    drop(socket);
    output::print(&report, args.json)?;
    outcome.map_err(Failure::say)?;
    Ok(Outcome::of(report.is_complete()))
}

/// The rule of the second interface; `None` without a second interface.
fn second_interface(args: &ReplayArgs) -> Result<Option<SecondInterface>, Failure> {
    if args.second.is_none() {
        return Ok(None);
    }
    if let Some(text) = &args.second_when {
        let filter = Filter::parse(text).map_err(|e| Failure::filter(&e))?;
        return Ok(Some(SecondInterface::Matching(filter)));
    }
    match args.second_by {
        SecondBy::Direction if args.store.is_some() => Err(Failure::Said(
            "a store has no directions of packets: choose the packets of the second interface with --second-when \
             FILTER or --second-by input"
                .to_owned(),
        )),
        SecondBy::Direction => Ok(Some(SecondInterface::Outbound)),
        SecondBy::Input => Ok(Some(SecondInterface::OtherInputs)),
    }
}

fn rewrite(args: &ReplayArgs) -> Rewrite {
    let first = MacRewrite { source: args.source_mac, destination: args.destination_mac };
    let second = MacRewrite {
        source: args.second_source_mac.or(args.source_mac),
        destination: args.second_destination_mac.or(args.destination_mac),
    };
    Rewrite {
        macs: [first, second],
        vlan: args.vlan,
        prefixes: args.map.clone(),
        flow_depth: args.random_flows,
        copies: args.flow_multiplier,
        random_source: args.random_source,
        random_destination: args.random_destination,
        seed: args.seed,
        fix_checksums: args.fix_checksums,
    }
}

/// Sends a command to a running replay and prints its answer.
fn send_command(socket: Option<&Path>, command: Command) -> Result<Outcome, Failure> {
    let Some(path) = socket else { return Err(Failure::Said("name the socket with --control".to_owned())) };
    let answer = control_socket::send(path, command).map_err(|e| {
        Failure::Said(format!("{}: {e}; a replay serves this socket if it was started with --control", path.display()))
    })?;
    writeln!(std::io::stdout(), "{answer}")?;
    let document: serde_json::Value = serde_json::from_str(&answer).map_err(Failure::say)?;
    Ok(Outcome::of(document.get("error").is_none()))
}
