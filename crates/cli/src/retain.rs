//! `netgrain retain`: applies retention rules to stores without a recorder, by hand or by a timer; also the retention
//! code that `record` and this verb share.

mod rows;

use crate::outcome::{Failure, Outcome, json};
use crate::signals;
use crate::style::plural;
use base::Timestamp;
use base::units::{parse_age, parse_bytes, parse_span, show_bytes, show_count};
use clap::Args;
use config::{KeepFree, RetentionRules};
use engine::{Plan, RetentionPlan, RetentionReport, SourcePlan};
use serde_json::{Value, json};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use store::{Claim, DiskDevice, catalogue, names};
use sys::locks::Holder;
use upkeep::retention::{ClockReading, Event, Free, Progress, RetentionScope, RetentionWorker, Rules};

/// The time for which retention retries a rule that is not yet satisfied, in addition to the wait for readers: the file
/// system may release the space of removed files with a delay.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The minimum age of an empty hour directory that retention removes. A recorder creates an hour directory just before
/// the first file in it, so younger directories are kept.
const DIRECTORIES_AFTER: Duration = Duration::from_secs(60);

/// The retention rules as flags.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Retention: the oldest files of the interface are removed first")]
pub struct RuleArgs {
    /// Space to keep free on the volume: 5%, 200GB, or `none` to remove nothing and wait when the volume is full
    /// [default while an interface is recorded: space for its next files]
    #[arg(long, value_name = "SIZE|PERCENT", value_parser = str::parse::<KeepFree>)]
    pub keep_free: Option<KeepFree>,
    /// Maximum total size of the files of each interface
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub max_size: Option<u64>,
    /// Remove files whose first packet is older than this
    #[arg(long, value_name = "SPAN", value_parser = parse_age)]
    pub max_age: Option<Duration>,
    /// Move files to this directory instead of removing them; when the volume is nearly full, files are removed without
    /// waiting for the archive
    #[arg(long, value_name = "DIR", value_parser = crate::values::directory)]
    pub archive: Option<PathBuf>,
    /// Maximum time that retention waits while a query reads the files to remove; after this time retention removes
    /// newer files, or, if there are no newer files, the files that the query reads [default: 5s]
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub wait_for_readers: Option<Duration>,
}

impl RuleArgs {
    /// The retention rules that these flags specify.
    pub fn rules(&self) -> RetentionRules {
        RetentionRules {
            keep_free: self.keep_free,
            max_size: self.max_size,
            max_age: self.max_age,
            archive: self.archive.clone(),
            wait_for_readers: self.wait_for_readers(),
        }
    }

    /// The longest time that retention waits for a query that reads the files to remove.
    fn wait_for_readers(&self) -> Duration {
        self.wait_for_readers.unwrap_or(store::hold::WAIT)
    }
}

#[derive(Args)]
#[command(after_help = "Examples:
  netgrain retain --store /data/store --keep-free 10%
  netgrain retain --store /data/store -i eth1 --max-age 30d --dry-run
  netgrain retain --store /data/store --max-size 2TB --archive /slow/store
  netgrain retain --store /data/store --kind flows --max-age 90d")]
pub struct RetainArgs {
    /// Directory of the store
    #[arg(long, value_name = "DIR", value_parser = crate::values::directory)]
    pub store: PathBuf,
    /// Only these interfaces [default: all interfaces of the store]
    #[arg(short = 'i', long, value_name = "IFACE")]
    pub interface: Vec<String>,
    /// Data type that the rules apply to; flow records and series have only --max-size and --max-age
    #[arg(long, value_enum, default_value_t = DataTypeArg::Packets)]
    pub kind: DataTypeArg,
    /// Report which files would be removed, and remove nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print one JSON object per removed or archived file, and an object with the state of the store at the end
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub rules: RuleArgs,
}

/// The data types of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum DataTypeArg {
    /// Packet files and their indexes
    Packets,
    /// Sealed files of flow records
    Flows,
    /// Sealed files of one-second rows
    Series,
}

/// Runs the verb; returns `No` if a rule could not be satisfied.
pub fn run(args: &RetainArgs) -> Result<Outcome, Failure> {
    match args.kind {
        DataTypeArg::Packets => of_packets(args),
        DataTypeArg::Flows => rows::run(args, columns::DataFileKind::Flows),
        DataTypeArg::Series => rows::run(args, columns::DataFileKind::Series),
    }
}

fn of_packets(args: &RetainArgs) -> Result<Outcome, Failure> {
    let mut rules = args.rules.rules().for_files_of(&args.store, None).map_err(Failure::say)?;
    if !rules.is_any() {
        return Err(Failure::Said("retain: no rule: add --keep-free, --max-size or --max-age".into()));
    }
    let interfaces = interfaces(args)?;
    let recorded = |name: &String| Claim::holder(&names::interface_directory(&args.store, name)).is_some();
    let directories_after = if interfaces.iter().any(recorded) { DIRECTORIES_AFTER } else { Duration::ZERO };
    let scope = RetentionScope { store: args.store.clone(), interfaces, beside_others: false, directories_after };
    // The verb runs at low CPU and I/O priority, because retention by hand is less urgent than recording.
    let _ = sys::priority::lower_priority(sys::priority::Background::Batch);
    let mut kept = true;
    if let Some(why) = unreachable(&scope, &rules) {
        sys::say!("netgrain: {why}");
        (kept, rules.keep_free) = (false, None);
    }
    let mut worker = RetentionWorker::new(DiskDevice::plain(), scope, rules).trusting_the_clock();
    if args.dry_run {
        worker = worker.dry_run();
    }
    let (stop, began) = (signals::stop_flag(), Instant::now());
    let mut reported = !kept;
    let content = loop {
        let at = ClockReading { now: now(), up: began.elapsed() };
        let progress = worker.step(at, true);
        for event in worker.take_events() {
            let is_reason = matches!(event, Event::Held { .. } | Event::Overruled { .. } | Event::Warning(_));
            reported |= is_reason;
            if args.json {
                json(&result_object(args, "event", document(&event)))?;
            } else if is_reason {
                sys::say!("netgrain: {event}");
            } else {
                writeln!(std::io::stdout(), "{}{event}", if args.dry_run { "(dry run) " } else { "" })?;
            }
        }
        let content = worker.is_content(at);
        if stop.load(Ordering::Relaxed)
            || progress == Progress::Idle
                && (content || args.dry_run || at.up >= TIMEOUT + args.rules.wait_for_readers())
        {
            break content;
        }
        if progress == Progress::Idle {
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    if !args.dry_run {
        // One more step of retention removes the directories that the previous steps emptied.
        worker.rescan();
        worker.step(ClockReading { now: now(), up: began.elapsed() }, true);
        worker.take_events();
    }
    let report = RetentionReport::from(worker.state());
    if args.json {
        json(&result_object(args, "retention", json!(report)))?;
    } else {
        std::io::stdout().write_all(summary(&report).as_bytes())?;
    }
    if !content && !reported {
        sys::say!(
            "netgrain: {}: not all rules can be satisfied: the remaining files are being written, or other data fills \
             the volume",
            args.store.display()
        );
    }
    Ok(Outcome::of(content && kept))
}

/// Returns a JSON object that contains `value` with the key `what`. The object of a dry run also has the key `dry_run`.
fn result_object(args: &RetainArgs, what: &str, value: Value) -> Value {
    if args.dry_run { json!({ what: value, "dry_run": true }) } else { json!({ what: value }) }
}

/// The reason why no removal of files can satisfy `--keep-free`. In this case no file is removed for this rule.
fn unreachable(scope: &RetentionScope, rules: &Rules) -> Option<String> {
    let free = rules.keep_free?;
    let only = Rules { keep_free: Some(free), ..Rules::default() };
    let mut worker = RetentionWorker::new(DiskDevice::plain(), scope.clone(), only).dry_run();
    let (at, mut held) = (ClockReading { now: now(), up: Duration::ZERO }, false);
    while worker.step(at, true) == Progress::More {
        held |= worker.take_events().iter().any(|event| !matches!(event, Event::Removed { .. }));
    }
    held |= worker.take_events().iter().any(|event| !matches!(event, Event::Removed { .. }));
    // If a query or another retention worker holds files at present, it may release them while retention waits.
    if held || worker.is_content(at) {
        return None;
    }
    let space = worker.state().space;
    Some(format!(
        "--keep-free cannot be satisfied: without all removable files {} of {} would be free instead of {}, because \
         other data fills the volume of {}; no file is removed for this rule",
        show_bytes(space.free),
        show_bytes(space.total),
        show_bytes(free.of(space.total)),
        scope.store.display()
    ))
}

/// The names of the interfaces to which the retention rules are applied.
fn interfaces(args: &RetainArgs) -> Result<Vec<String>, Failure> {
    let existing = catalogue::interfaces(&args.store).map_err(|e| {
        Failure::Said(format!("{}: {}; name the directory of a store", args.store.display(), sys::advice::cause(&e)))
    })?;
    if args.interface.is_empty() {
        return Ok(existing);
    }
    let directory = |name: &String| {
        let directory = names::interface_directory(Path::new(""), name);
        directory.to_string_lossy().into_owned()
    };
    let wanted: Vec<String> = args.interface.iter().map(directory).collect();
    match wanted.iter().find(|name| !existing.contains(name)) {
        None => Ok(wanted),
        Some(name) => Err(Failure::Said(format!(
            "{}: no interface {name} in this store; it has {}",
            args.store.display(),
            if existing.is_empty() { "none".to_owned() } else { existing.join(", ") }
        ))),
    }
}

/// The retention plan of `record` and `run`, if any. The recorder of an interface makes space for its next files by
/// default, because it runs unattended and would lose packets on a full volume; a replay or a simulation removes files
/// only by explicit rules.
pub fn plan(wanted: &RetentionRules, store: &Path, plan: &Plan) -> Result<Option<RetentionPlan>, Failure> {
    let mut rules = wanted.for_files_of(store, Some(plan.segment)).map_err(Failure::say)?;
    if wanted.keep_free.is_none() && matches!(plan.source, SourcePlan::Interface(_)) {
        rules.keep_free = Some(Free::Bytes(0));
    }
    if rules.archive.is_some() && !rules.is_any() {
        return Err(Failure::Said(
            "--archive needs a rule that says when to move files: add --keep-free, --max-size or --max-age".into(),
        ));
    }
    if age_of_replay(wanted, plan) {
        rules.max_age = None;
    }
    let plan = RetentionPlan { store: store.to_owned(), segment: plan.segment, rules };
    Ok(plan.rules.is_any().then_some(plan))
}

/// True if the rules limit the age of the packets of a replay. This rule is not applied: it would remove an old capture
/// while the capture is being stored.
pub fn age_of_replay(wanted: &RetentionRules, plan: &Plan) -> bool {
    wanted.max_age.is_some() && plan.store.is_some() && matches!(plan.source, SourcePlan::Files { .. })
}

/// The message that old files are removed to make space, for a plan with a rule for free space that the user did not
/// request; `None` if the user gave such a rule or the plan has none.
pub fn announcement(wanted: &RetentionRules, plan: &RetentionPlan) -> Option<&'static str> {
    (wanted.keep_free.is_none() && plan.rules.keep_free.is_some()).then_some(
        "retention: when there is no space for the next file, the oldest file of this interface is removed \
         (--keep-free none: wait instead)",
    )
}

/// The handler of retention events while `record` runs. It prints each removed file even with `--quiet`, because these
/// lines are the only trace of the removal in the log of a service.
pub fn teller(as_json: bool) -> impl FnMut(&Event) + Send + 'static {
    let clear = if std::io::stderr().is_terminal() { "\r\x1b[K" } else { "" };
    move |event| {
        // Output errors are ignored; retention continues.
        if as_json {
            let _ = json(&json!({ "event": document(event) }));
        } else {
            let _ = writeln!(std::io::stderr(), "{clear}netgrain: {event}");
        }
    }
}

/// The summary at the end, as text.
pub fn summary(r: &RetentionReport) -> String {
    let part = |verb: &str, totals: engine::FileTotals| match totals.files {
        0 => String::new(),
        files => format!(", {verb} {} ({})", show_count(files), show_bytes(totals.bytes)),
    };
    let oldest = r.oldest.as_ref().map(|t| format!(", the oldest from {t}")).unwrap_or_default();
    let trouble = r.trouble.as_ref().map(|t| format!("retention error: {t}\n")).unwrap_or_default();
    let unpublished = match r.unpublished_bytes {
        0 => String::new(),
        bytes => format!(", and {} for the files being written", show_bytes(bytes)),
    };
    format!(
        "retention: {} kept ({}){unpublished}{oldest}{}{}; {} of {} free\n{trouble}",
        plural(r.files, "file", "files"),
        show_bytes(r.bytes.saturating_sub(r.unpublished_bytes)),
        part("removed", r.removed),
        part("archived", r.archived),
        show_bytes(r.free),
        show_bytes(r.total),
    )
}

/// The JSON document of an event.
fn document(event: &Event) -> Value {
    match event {
        Event::Removed { path, bytes, why, unarchived } => {
            json!({ "kind": "removed", "path": path, "bytes": bytes, "reason": why.name(), "unarchived": unarchived })
        }
        Event::Archived { path, to, bytes, why } => {
            json!({ "kind": "archived", "path": path, "to": to, "bytes": bytes, "reason": why.name() })
        }
        Event::Held { directory, by } => json!({ "kind": "held", "directory": directory, "by": named(by) }),
        Event::Overruled { directory, by } => json!({ "kind": "overruled", "directory": directory, "by": named(by) }),
        Event::Warning(text) => json!({ "kind": "warning", "text": text }),
    }
}

fn named(holders: &[Holder]) -> Value {
    holders.iter().map(|by| json!({ "pid": by.pid, "command": by.command })).collect()
}

fn now() -> Timestamp {
    Timestamp::ZERO.after(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO))
}
