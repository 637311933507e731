//! `netgrain doctor`: reports findings about the machine, and on request fixes them and undoes the fixes.

use crate::outcome::{Failure, Outcome, json};
use crate::style::plural;
use crate::values::ValueError;
use base::units;
use clap::Args;
use doctor::{Check, Finding, Journal, Request, State, Step, Subject};
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use sys::sysfs::Tree;

#[derive(Args)]
#[command(after_help = "Examples:
  netgrain doctor                              the machine, and every physical interface
  netgrain doctor -i eth1 --store /data/store  one interface and the volume its packets will go to
  netgrain doctor -i eth1 --fix                shows the changes and asks for confirmation
  netgrain doctor --undo                       undoes all changes of --fix")]
pub struct DoctorArgs {
    /// Interface to check; repeat for several [default: all physical interfaces]
    #[arg(short = 'i', long, value_name = "IFACE")]
    pub interface: Vec<String>,
    /// Check the volume of this store, with a test file (at most 256 MiB and 2 s; removed afterwards)
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// Check the settings that a capture with --dedicated needs
    #[arg(long)]
    pub dedicated: bool,
    /// Size of the ring that must fit into memory [default: the ring of `netgrain record`]
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes)]
    pub ring: Option<u64>,
    /// Make only these checks; give their names
    #[arg(long, value_name = "CHECK", value_delimiter = ',', value_parser = check)]
    pub only: Vec<&'static Check>,
    /// Test AF_XDP: capture a few frames on a temporary pair of interfaces
    #[arg(long = "try")]
    pub trial: bool,
    /// Fix settings that can be changed safely and restored; settings of interfaces only for the interfaces that -i
    /// names
    #[arg(long, conflicts_with = "undo")]
    pub fix: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub yes: bool,
    /// Undo the changes of --fix, the latest change first
    #[arg(long, conflicts_with_all = ["interface", "store", "trial"])]
    pub undo: bool,
    /// File with the old values of changed settings, for --undo
    #[arg(long, value_name = "FILE", default_value = "/var/lib/netgrain/doctor-undo.json")]
    pub state: PathBuf,
    /// Also print the details of findings with state good
    #[arg(long, short)]
    pub verbose: bool,
    /// Print one JSON object per finding, step and summary (docs/reference/doctor.md)
    #[arg(long)]
    pub json: bool,
}

fn check(text: &str) -> Result<&'static Check, ValueError> {
    Check::named(text).ok_or_else(|| {
        let names: Vec<&str> = Check::ALL.iter().map(|c| c.name).collect();
        // A user may also write the beginning of a name.
        let starts = |name: &&str| !text.is_empty() && name.starts_with(text);
        match base::nearest(text, names.iter().copied()).or_else(|| names.iter().copied().find(starts)) {
            Some(near) => ValueError::new(format!("no check has this name; did you mean {near}?")),
            None => ValueError::new(format!("no check has this name; the checks are {}", names.join(", "))),
        }
    })
}

/// Runs the verb; returns `No` if a finding makes capture fail, lose packets or report wrong numbers.
pub fn run(args: &DoctorArgs) -> Result<Outcome, Failure> {
    let tree = Tree::default();
    if args.undo {
        return undo(args, &tree);
    }
    let findings = inspect(args, &tree)?;
    if args.json {
        for finding in &findings {
            json(&serde_json::to_value(finding).map_err(Failure::say)?)?;
        }
    } else {
        std::io::stdout().write_all(report(&findings, args.verbose).as_bytes())?;
    }
    summary(args, &findings)?;
    if !args.fix {
        return Ok(Outcome::of(!findings.iter().any(|f| f.state == State::Bad)));
    }
    let refused = fix(args, &findings, &tree)?;
    // The inspection is repeated after the fixes, so that settings that were just corrected do not affect the exit
    // status.
    let after = inspect(args, &tree)?;
    Ok(Outcome::of(refused == 0 && !after.iter().any(|f| f.state == State::Bad)))
}

fn inspect(args: &DoctorArgs, tree: &Tree) -> Result<Vec<Finding>, Failure> {
    let request = Request {
        ports: args.interface.clone(),
        store: args.store.clone(),
        only: args.only.iter().map(|c| c.name.to_owned()).collect(),
        ring: args.ring.unwrap_or_else(|| engine::default_ring(1)),
        segment: 2 << 30,
        dedicated: args.dedicated,
        trial: args.trial,
    };
    doctor::examine(&request, tree).map_err(Failure::say)
}

/// The report as text: each finding with its effect and its fix, and the checks without finding in one line for each
/// interface.
fn report(findings: &[Finding], verbose: bool) -> String {
    let mut out = String::new();
    let mut subjects: Vec<&Subject> = findings.iter().map(|f| &f.subject).collect();
    subjects.dedup();
    for subject in subjects {
        let of = || findings.iter().filter(|f| f.subject == *subject);
        let _ = writeln!(out, "{subject}");
        for f in of().filter(|f| f.state != State::Good || verbose) {
            let _ = writeln!(out, "  {:<8} {:<17} {}", f.state.name(), f.check.name, f.found);
            if f.state == State::Good {
                continue;
            }
            let _ = writeln!(out, "           {}: {}", f.check.cost.name(), f.check.why);
            if let Some(command) = &f.fix {
                let note = if f.changes.is_empty() { "" } else { "   (--fix does it)" };
                let _ = writeln!(out, "           fix: {command}{note}");
            }
        }
        let good: Vec<&str> = of().filter(|f| f.state == State::Good).map(|f| f.check.name).collect();
        if !verbose && !good.is_empty() {
            let _ = writeln!(out, "  good     {}", good.join(", "));
        }
    }
    out
}

fn summary(args: &DoctorArgs, findings: &[Finding]) -> Result<(), Failure> {
    let count = |state| findings.iter().filter(|f| f.state == state).count();
    let (bad, warnings, unknown, good) =
        (count(State::Bad), count(State::Warning), count(State::Unknown), count(State::Good));
    if args.json {
        let numbers = serde_json::json!({ "bad": bad, "warning": warnings, "unknown": unknown, "good": good });
        return Ok(json(&serde_json::json!({ "summary": numbers }))?);
    }
    writeln!(
        std::io::stdout(),
        "{bad} bad, {}, {unknown} unknown, {good} good",
        plural(warnings as u64, "warning", "warnings")
    )?;
    Ok(())
}

/// Prints the steps, asks for confirmation unless `--yes` is given, and carries them out. Returns the number of steps
/// that the kernel refused.
fn fix(args: &DoctorArgs, findings: &[Finding], tree: &Tree) -> Result<usize, Failure> {
    let steps = doctor::steps(findings, tree);
    if args.interface.is_empty() {
        sys::say!("netgrain: --fix changes only interfaces that are named with -i IFACE");
    }
    if steps.is_empty() {
        sys::say!("netgrain: no finding that --fix can correct");
        return Ok(0);
    }
    for step in &steps {
        sys::say!("netgrain: {}: {} -> {} ({})", step.change.setting, step.was, step.change.value, step.check);
    }
    if !args.yes && !is_confirmed()? {
        return Ok(0);
    }
    let mut journal = Journal::open(&args.state).map_err(Failure::say)?;
    let mut reported = Ok(());
    let done = doctor::apply(&steps, &mut journal, tree, |step, outcome| {
        if let Err(e) = outcome {
            sys::say!("netgrain: {}: refused: {e}{}", step.change.setting, advice(e));
        }
        if args.json && reported.is_ok() {
            reported = json(&step_object("made", step, outcome.as_ref().err()));
        }
    })
    .map_err(Failure::say)?;
    reported?;
    let undo = if done.made > 0 { "; netgrain doctor --undo restores the old values" } else { "" };
    sys::say!("netgrain: {} changed, {} refused{undo} ({})", done.made, done.refused, args.state.display());
    Ok(done.refused)
}

fn advice(e: &std::io::Error) -> &'static str {
    if e.kind() == std::io::ErrorKind::PermissionDenied { "; run as root" } else { "" }
}

fn step_object(what: &str, step: &Step, error: Option<&std::io::Error>) -> serde_json::Value {
    serde_json::json!({ what: {
        "setting": step.change.setting.to_string(), "check": step.check, "was": step.was, "value": step.change.value,
        "error": error.map(ToString::to_string) } })
}

fn is_confirmed() -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::Said(
            "--fix: nothing changed, because standard input is not a terminal for the confirmation: add --yes".into(),
        ));
    }
    sys::stderr::part(format_args!("netgrain: make these changes? [y/N] "));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

fn undo(args: &DoctorArgs, tree: &Tree) -> Result<Outcome, Failure> {
    let mut journal = Journal::open(&args.state).map_err(Failure::say)?;
    if journal.entries().is_empty() {
        sys::say!("netgrain: nothing to undo ({})", args.state.display());
        return Ok(Outcome::Yes);
    }
    let mut reported = Ok(());
    let failed = doctor::undo(&mut journal, tree, |entry, outcome| {
        let (setting, was) = (&entry.setting, &entry.was);
        match &outcome {
            Ok(None) => sys::say!("netgrain: {setting}: restored to {was}"),
            Ok(Some(note)) => sys::say!("netgrain: {setting}: restored to {was} ({note})"),
            Err(e) => sys::say!(
                "netgrain: {setting}: cannot be restored to {was}: {e}{}; the next --undo tries again",
                advice(e)
            ),
        }
        if args.json && reported.is_ok() {
            reported = json(&serde_json::json!({ "undone": { "setting": entry.setting.to_string(), "value": entry.was,
                "error": outcome.err().map(|e| e.to_string()) } }));
        }
    })
    .map_err(Failure::say)?;
    reported?;
    Ok(Outcome::of(failed == 0))
}
