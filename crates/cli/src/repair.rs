//! `netgrain repair`: completes files that a killed recorder left, rebuilds indexes and salvages damaged files.

use crate::outcome::{Failure, Outcome};
use crate::verify::file_count;
use base::Timestamp;
use clap::Args;
use columns::DamagedJournal;
use serde_json::json;
use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use store::DiskDevice;
use upkeep::repair::{Repair, RepairEvent};

#[derive(Args)]
#[command(after_help = "Examples:
  netgrain repair --dry-run /data/store        what a repair would change
  netgrain repair /data/store                  recovers leftovers, rebuilds indexes, salvages damaged files
  netgrain repair capture.pcap                 keeps its complete records; the original becomes capture.pcap.damaged")]
pub struct RepairArgs {
    /// Stores, directories inside of a store, or capture files
    #[arg(value_name = "PATH", required_unless_present = "store")]
    pub paths: Vec<PathBuf>,
    /// Directory of a store
    #[arg(long, value_name = "DIR", value_parser = crate::values::directory)]
    pub store: Option<PathBuf>,
    /// Report the problems and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print one JSON object per action
    #[arg(long)]
    pub json: bool,
}

/// Runs the verb; returns `No` if a file could not be repaired, or with `--dry-run` if a file needs repair; an error if
/// a file could not be read.
pub fn run(args: &RepairArgs) -> Result<Outcome, Failure> {
    let written = RefCell::new(Ok(()));
    let printed = Cell::new(0);
    let mut refused = false;
    let mut unreadable = 0;
    let report = |event: &RepairEvent| {
        printed.set(printed.get() + 1);
        let mut written = written.borrow_mut();
        if written.is_ok() {
            *written = print(event, args.json);
        }
    };
    let mut repair = Repair::new(DiskDevice::plain, |event: RepairEvent| {
        unreadable += u64::from(matches!(event, RepairEvent::Unreadable { .. }));
        refused |= event.is_refusal() || args.dry_run;
        report(&event);
    })
    .sealing(seal)
    .claiming(Timestamp::ZERO.after(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO)));
    for path in args.store.iter().chain(&args.paths) {
        if let Err(e) = std::fs::metadata(path) {
            let advice = "name a store, a directory or a capture";
            return Err(Failure::unreadable(path, &e).with(Some(advice)));
        }
        // The parent directories of a file determine its interface, so its path is made absolute.
        let path = sys::nofollow::resolve(&std::path::absolute(path)?);
        let before = printed.get();
        match args.dry_run {
            true => repair.dry_run(&path),
            false => repair.path(&path),
        }
        if printed.get() == before {
            report(&RepairEvent::Undamaged(path));
        }
    }
    drop(repair);
    written.into_inner()?;
    match unreadable {
        0 => Ok(Outcome::of(!refused)),
        n => Err(Failure::say(format!("{} could not be read or checked, see above", file_count(n)))),
    }
}

/// Seals the journals of flow records and rows that a killed recorder left in an interface directory.
fn seal(root: &Path) -> Vec<RepairEvent> {
    let (Some(store), Some(interface)) = (root.parent(), root.file_name().and_then(|name| name.to_str())) else {
        return Vec::new();
    };
    let refused = |why: String| RepairEvent::Refused { path: root.to_owned(), why };
    match columns::recover(store, interface) {
        Err(e) => vec![refused(e.to_string())],
        Ok(recovered) => {
            let mut events: Vec<RepairEvent> = recovered.warnings.iter().map(|e| refused(e.to_string())).collect();
            let (rows, torn, failures) = (recovered.rows, recovered.torn, events.len() as u64);
            if recovered.hidden > 0 {
                events.push(RepairEvent::Unhidden { root: root.to_owned(), files: recovered.hidden });
            }
            if recovered.journals > failures {
                events.push(RepairEvent::Sealed { root: root.to_owned(), rows, torn });
            }
            let damaged = recovered.damaged.into_iter();
            events.extend(damaged.map(|DamagedJournal { path, damage }| RepairEvent::JournalSetAside {
                path,
                what: damage.to_string(),
            }));
            events
        }
    }
}

fn print(event: &RepairEvent, json: bool) -> io::Result<()> {
    if !json {
        return writeln!(io::stdout(), "{event}");
    }
    let kind = match event {
        RepairEvent::Recovered(_) => "recovered",
        RepairEvent::Repaired { .. } => "repaired",
        RepairEvent::Salvaged { .. } => "salvaged",
        RepairEvent::Sealed { .. } => "sealed",
        RepairEvent::Unhidden { .. } => "removed",
        RepairEvent::JournalSetAside { .. } => "set_aside",
        RepairEvent::Marked(_) => "marked",
        RepairEvent::Moved { .. } => "moved",
        RepairEvent::WouldRepair(_) => "would_repair",
        RepairEvent::FileSetAside { .. } => "set_aside",
        RepairEvent::Undamaged(_) => "undamaged",
        RepairEvent::Refused { .. } => "refused",
        RepairEvent::Unreadable { .. } => "unreadable",
    };
    let object = json!({ "kind": kind, "done": !event.is_refusal(), "text": event.to_string() });
    crate::outcome::json(&json!({ "repair": object }))
}
