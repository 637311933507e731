//! `netgrain retain --kind flows|series`: removes flow records and series rows by age and size, for stores without a
//! running `netgrain run`, which does the same for its own files.

use super::{RetainArgs, interfaces, now, result_object};
use crate::outcome::{Failure, Outcome, json};
use crate::signals;
use crate::style::plural;
use base::units::{show_bytes, show_count};
use columns::{DataFileKind, HeldSince, RetentionResult, RetentionRules, retain, would_retain};
use config::MIN_AGE;
use config::units::exact_size;
use serde_json::json;
use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use sys::locks::holder_names;

/// The pause between two checks whether queries still hold hour directories.
const PAUSE: Duration = Duration::from_millis(100);

/// The smallest accepted `--max-size`: a smaller value probably has a wrong unit.
const MIN_SIZE: u64 = 1 << 20;

/// Runs the verb for one data type; returns `No` if a file is kept because a query holds its hour directory.
pub fn run(args: &RetainArgs, kind: DataFileKind) -> Result<Outcome, Failure> {
    let rules = rules(args, kind)?;
    // The verb runs at low CPU and I/O priority, because retention by hand is less urgent than recording.
    let _ = sys::priority::lower_priority(sys::priority::Background::Batch);
    let mut held = 0;
    for interface in interfaces(args)? {
        let kept = keep(args, &interface, kind, &rules)?;
        for (path, bytes) in &kept.removed {
            if args.json {
                json(&result_object(args, "event", json!({ "kind": "removed", "path": path, "bytes": bytes })))?;
            } else {
                let dry = if args.dry_run { "(dry run) " } else { "" };
                writeln!(std::io::stdout(), "{dry}removed {} ({})", path.display(), show_bytes(*bytes))?;
            }
        }
        let removed_bytes: u64 = kept.removed.iter().map(|(_, bytes)| bytes).sum();
        if args.json {
            let state = json!({
                "interface": interface, "of": kind.name(), "files": kept.files, "bytes": kept.bytes,
                "removed": { "files": kept.removed.len(), "bytes": removed_bytes }, "held": kept.held,
            });
            json(&result_object(args, "retention", state))?;
        } else {
            let (files, kept_bytes) = (plural(kept.files, "file", "files"), show_bytes(kept.bytes));
            let (removed, removed_bytes) = (show_count(kept.removed.len() as u64), show_bytes(removed_bytes));
            let name = kind.name();
            writeln!(
                std::io::stdout(),
                "{interface}: {files} of {name} ({kept_bytes}), removed {removed} ({removed_bytes})"
            )?;
        }
        if kept.held > 0 {
            sys::say!(
                "netgrain: {interface}: {} kept, because {} holds a shared lock on their hour directories",
                plural(kept.held, "file is", "files are"),
                holder_names(&kept.by)
            );
        }
        if kept.overruled > 0 {
            sys::say!(
                "netgrain: {interface}: {} removed although {} holds their hour directories: the wait is \
                 over, and no other files could be removed",
                plural(kept.overruled, "file was", "files were"),
                holder_names(&kept.by)
            );
        }
        held += kept.held;
    }
    Ok(Outcome::of(held == 0))
}

/// Applies the rules. Waits for queries that read the files to remove, as long as the rules allow.
fn keep(
    args: &RetainArgs,
    interface: &str,
    kind: DataFileKind,
    rules: &RetentionRules,
) -> Result<RetentionResult, Failure> {
    if args.dry_run {
        return would_retain(&args.store, interface, kind, rules, now()).map_err(Failure::say);
    }
    let (stop, began, mut waiting) = (signals::stop_flag(), Instant::now(), HeldSince::default());
    let mut removed = Vec::new();
    loop {
        let elapsed = began.elapsed();
        let mut kept =
            retain(&args.store, interface, kind, rules, now(), (&mut waiting, elapsed)).map_err(Failure::say)?;
        removed.append(&mut kept.removed);
        if kept.held == 0 || elapsed > rules.wait || stop.load(Ordering::Relaxed) {
            return Ok(RetentionResult { removed, ..kept });
        }
        std::thread::sleep(PAUSE);
    }
}

fn rules(args: &RetainArgs, kind: DataFileKind) -> Result<RetentionRules, Failure> {
    let refuse = |text: String| Err(Failure::Said(text));
    let given = &args.rules;
    let name = kind.name();
    if given.keep_free.is_some() {
        return refuse(format!("--keep-free applies to packets only: use --max-size or --max-age for {name}"));
    }
    if given.archive.is_some() {
        return refuse(format!("--archive applies to packets only: copy files of {name} before they are removed"));
    }
    if given.max_age.is_none() && given.max_size.is_none() {
        return refuse("retain: no rule: add --max-size or --max-age".into());
    }
    if given.max_age.is_some_and(|age| age < MIN_AGE) {
        return refuse("--max-age: less than a second would empty the store: write 30d, 12h".into());
    }
    if let Some(most) = given.max_size.filter(|most| *most < MIN_SIZE) {
        let (most, least) = (exact_size(most), exact_size(MIN_SIZE));
        return refuse(format!("--max-size {most} is less than {least}: write a size with its unit, as in 2GB"));
    }
    Ok(RetentionRules { max_age: given.max_age, max_size: given.max_size, wait: given.wait_for_readers() })
}
