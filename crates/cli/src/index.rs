//! `netgrain index`: makes block indexes for foreign captures without copying the captures.

use crate::outcome::{Failure, Outcome, json};
use crate::signals;
use crate::style::plural;
use base::units::show_bytes;
use base::{Note, Timestamp};
use clap::Args;
use query::indexes::{self, IndexBuild, IndexState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Args)]
#[command(after_help = "Examples:
  netgrain index /archive/*.pcap               x.pcap.ngi beside each x.pcap
  netgrain index --into /var/idx /cdrom/*.pcapng
  netgrain packets -r /var/idx/*.ngi 'host 10.1.2.3'
  netgrain index --check /archive/*.pcap       which captures match their index, byte for byte")]
pub struct IndexArgs {
    /// Captures: pcap, pcapng, RAW
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Write the indexes to this directory, not to the directory of the captures; query them with netgrain packets -r
    #[arg(long, value_name = "DIR")]
    pub into: Option<PathBuf>,
    /// Rebuild indexes that already match their captures
    #[arg(long)]
    pub force: bool,
    /// Write nothing; report for each capture whether it matches its index, by the checksum of every block
    #[arg(long, conflicts_with_all = ["force", "remove"])]
    pub check: bool,
    /// Remove the indexes
    #[arg(long, conflicts_with = "force")]
    pub remove: bool,
    /// Print one JSON object per file
    #[arg(long)]
    pub json: bool,
}

/// The result for one file.
enum IndexOutcome {
    Made(Box<IndexBuild>),
    UpToDate,
    OfStore,
    /// The named file is itself an index: a shell pattern for captures often matches their indexes too.
    IsIndex,
    Fits,
    DoesNotFit(String),
    Removed(bool),
    Failed(String),
    Stopped,
}

/// Runs the verb. The outcome is `No` (exit status 1) if a capture is damaged, a file could not be indexed, or with
/// `--check` an index does not match.
pub fn run(args: &IndexArgs) -> Result<Outcome, Failure> {
    if let Some(into) = args.into.as_deref().filter(|into| !into.is_dir()) {
        return Err(Failure::Said(format!("--into {}: no such directory; make it first", into.display())));
    }
    let stop = signals::stop_flag();
    let (mut all_good, mut failed) = (true, 0);
    for file in &args.files {
        if stop.load(Ordering::Relaxed) {
            sys::say!("netgrain: stopped; {} and the files after it are unchanged", file.display());
            return Ok(Outcome::No);
        }
        let done = process(args, file, &stop);
        all_good &= match &done {
            IndexOutcome::Made(made) => made.damage.is_none(),
            IndexOutcome::UpToDate
            | IndexOutcome::OfStore
            | IndexOutcome::IsIndex
            | IndexOutcome::Fits
            | IndexOutcome::Removed(_) => true,
            IndexOutcome::DoesNotFit(_) | IndexOutcome::Stopped => false,
            IndexOutcome::Failed(why) => {
                failed += 1;
                sys::say!("netgrain: {why}");
                false
            }
        };
        match (args.json, text_line(file, &done)) {
            (true, _) => json(&object(file, &done))?,
            (false, Some(line)) => writeln!(io::stdout(), "{line}")?,
            (false, None) => {}
        }
        if let (false, IndexOutcome::Made(made)) = (args.json, &done) {
            let wire_raised = made.summary.tally.notes[Note::WireRaised as usize];
            if wire_raised > 0 {
                sys::say!("netgrain: {}: {}", file.display(), pcap::wire_raised(wire_raised));
            }
            for (link_type, packets) in &made.unknown_link_types {
                sys::say!(
                    "netgrain: {}: {} link type {}, which is not supported: the index has their times, but \
                     not their addresses and ports",
                    file.display(),
                    plural(*packets, "packet has", "packets have"),
                    pcap::LinkType(*link_type)
                );
            }
        }
    }
    if failed == args.files.len() {
        return Err(Failure::Said(match failed {
            1 => "nothing was done".to_owned(),
            n => format!("nothing was done: none of the {n} files could be used"),
        }));
    }
    Ok(Outcome::of(all_good))
}

fn process(args: &IndexArgs, file: &Path, stop: &AtomicBool) -> IndexOutcome {
    let into = args.into.as_deref();
    let failed = |e: query::QueryError| IndexOutcome::Failed(e.to_string());
    if file.extension().is_some_and(|e| e == index::SUFFIX) {
        return match args.remove {
            true => indexes::remove_index(file).map_or_else(failed, IndexOutcome::Removed),
            false => IndexOutcome::IsIndex,
        };
    }
    if args.remove {
        return indexes::remove(file, into).map_or_else(failed, IndexOutcome::Removed);
    }
    let state = match args.check {
        true => indexes::verify(file, into, stop),
        false => indexes::index_state(file, into),
    };
    match state {
        Err(e) => failed(e),
        Ok(IndexState::Current(_)) if args.check => IndexOutcome::Fits,
        Ok(IndexState::Missing) if args.check => IndexOutcome::DoesNotFit("there is no index".into()),
        Ok(IndexState::Stale(why)) if args.check => IndexOutcome::DoesNotFit(why.to_string()),
        Ok(IndexState::Unreadable(e)) if args.check => IndexOutcome::DoesNotFit(e.to_string()),
        Ok(IndexState::Current(_)) if !args.force => IndexOutcome::UpToDate,
        Ok(IndexState::Missing) if indexes::is_of_store(file) => IndexOutcome::OfStore,
        Ok(_) => match indexes::make(file, into, stop) {
            Ok(Some(made)) => IndexOutcome::Made(Box::new(made)),
            Ok(None) => IndexOutcome::Stopped,
            Err(e) => failed(e),
        },
    }
}

fn text_line(file: &Path, done: &IndexOutcome) -> Option<String> {
    let name = file.display();
    Some(match done {
        IndexOutcome::Made(made) => {
            let when = match made.summary.stamps {
                Some((first, last)) => format!("{first} to {last}"),
                None => "no packets".to_owned(),
            };
            let share = 100.0 * made.bytes as f64 / made.capture_bytes.max(1) as f64;
            let damage = made.damage.as_ref().map(|d| format!("; damaged: {d}")).unwrap_or_default();
            format!(
                "{}: {}, {when}; {}, {share:.2} % of the capture{damage}",
                made.path.display(),
                plural(made.summary.tally.stored, "packet", "packets"),
                show_bytes(made.bytes)
            )
        }
        IndexOutcome::UpToDate => format!("{name}: has a matching index"),
        IndexOutcome::OfStore => format!("{name}: has the index of its store"),
        IndexOutcome::Fits => format!("{name}: its index matches every block"),
        IndexOutcome::DoesNotFit(why) => format!("{name}: {why}; netgrain index makes a new index"),
        IndexOutcome::Removed(true) => format!("{name}: its index was removed"),
        IndexOutcome::Removed(false) => format!("{name}: there was no index"),
        IndexOutcome::Stopped => format!("{name}: stopped; its index is unchanged"),
        IndexOutcome::Failed(_) | IndexOutcome::IsIndex => return None,
    })
}

fn object(file: &Path, done: &IndexOutcome) -> serde_json::Value {
    let (result, reason) = match done {
        IndexOutcome::Made(made) => ("made", made.damage.as_deref()),
        IndexOutcome::UpToDate => ("up_to_date", None),
        IndexOutcome::OfStore => ("of_store", None),
        IndexOutcome::IsIndex => ("is_index", None),
        IndexOutcome::Fits => ("fits", None),
        IndexOutcome::DoesNotFit(why) => ("does_not_fit", Some(&why[..])),
        IndexOutcome::Removed(true) => ("removed", None),
        IndexOutcome::Removed(false) => ("missing", None),
        IndexOutcome::Stopped => ("stopped", None),
        IndexOutcome::Failed(why) => ("failed", Some(&why[..])),
    };
    let mut object = serde_json::json!({ "file": file.display().to_string(), "result": result, "reason": reason });
    if let IndexOutcome::Made(made) = done {
        let stamp = |pick: fn((Timestamp, Timestamp)) -> Timestamp| made.summary.stamps.map(|s| pick(s).to_string());
        object["index"] = made.path.display().to_string().into();
        object["index_bytes"] = made.bytes.into();
        object["bytes"] = made.capture_bytes.into();
        object["packets"] = made.summary.tally.stored.into();
        object["unsupported"] = made.unknown_link_types.values().sum::<u64>().into();
        object["wire_raised"] = made.summary.tally.notes[Note::WireRaised as usize].into();
        object["blocks"] = made.summary.blocks.into();
        object["first"] = stamp(|s| s.0).into();
        object["last"] = stamp(|s| s.1).into();
    }
    object
}
