//! `netgrain series`: a port's curve by time, second by second or in steps, out of a store. A second of silence is a row of
//! zeros; seconds of which nothing is known are said to be unknown.

mod curve;
mod gaps;
mod table;

use crate::flows::names::Names;
use crate::outcome::{Failure, Outcome};
use crate::packets::outlet::Outlet;
use crate::packets::stock;
use crate::signals;
use crate::when::{self, When};
use base::Timestamp;
use base::units::{show_count, show_si};
use clap::{Args, ValueEnum};
use columns::Query;
use curve::Curve;
use export::text::{self, Format, Told};
use gaps::{Gap, Gaps};
use series::{Direction, Roller, Rollup, Row};
use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use store::{catalogue, names};

/// Characters of a curve on a terminal.
const WIDTH: usize = 100;

/// How often --live looks at a store.
const POLL: Duration = Duration::from_millis(500);

/// How long a second may take to be told and still be seen by --live.
const LOOK_BACK: u64 = 30;

#[derive(Args)]
#[command(after_help = format!("Examples:
  netgrain series --store /data --from -10min
  netgrain series --store /data --from 10:00 --to 11:00 --step 1m -i eth1
  netgrain series --store /data --from -1d --step 5m --fields first,interface,bytes_mean --csv
  netgrain series --store /data --live --json

A second without packets is a row of zeros. Seconds of which nothing is known have none: a line says so (in JSON an
object with `gap`).

{}", when::HELP))]
pub struct SeriesArgs {
    /// Folder of the store
    #[arg(long, value_name = "DIR")]
    pub store: PathBuf,
    #[command(flatten)]
    pub when: When,
    /// Interface, again for several [default: all that the store has]
    #[arg(short = 'i', long, value_name = "IFACE", value_delimiter = ',')]
    pub interface: Vec<String>,
    /// Seconds as they are, or steps with sum, mean, least, greatest and 95th percentile
    #[arg(long, value_enum, default_value_t = Step::Second)]
    pub step: Step,
    /// With --json or --csv: which fields
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub fields: Vec<String>,
    /// One JSON object per row
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// CSV with a header
    #[arg(long)]
    pub csv: bool,
    /// Go on with seconds as they pass [default of --from: now]
    #[arg(long)]
    pub live: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Step {
    /// Seconds
    #[value(name = "1s")]
    Second,
    /// Minutes
    #[value(name = "1m", alias = "1min")]
    Minute,
    /// Five minutes
    #[value(name = "5m", alias = "5min")]
    FiveMinutes,
    /// Hours
    #[value(name = "1h")]
    Hour,
}

impl Step {
    fn of_many(self) -> Option<series::Step> {
        match self {
            Self::Second => None,
            Self::Minute => Some(series::Step::Minute),
            Self::FiveMinutes => Some(series::Step::FiveMinutes),
            Self::Hour => Some(series::Step::Hour),
        }
    }
}

/// Runs the verb. No if nothing was found, or if not everything could be read.
pub fn run(args: &SeriesArgs) -> Result<Outcome, Failure> {
    if !args.fields.is_empty() && !args.json && !args.csv {
        return Err(Failure::Said("--fields: with --json or --csv; the table has fields of its own".into()));
    }
    let (from, to) = args.when.interval(when::now(), args.live)?;
    stock::check(&args.store, &stock::shelves(&args.store)?, &args.interface)?;
    let place = query::Place::Store(args.store.clone());
    if let Some(remark) = query::step_behind(&place, query::Behind::Batch) {
        eprintln!("netgrain: {remark}");
    }
    let mut rows = Rows::new(args, from, to, signals::stop_flag());
    let first = rows.next()?;
    let found = match args.step.of_many() {
        None => seconds(args, first, &mut rows)?,
        Some(step) => steps(args, step, first, &mut rows)?,
    };
    rows.remarks.iter().for_each(|remark| eprintln!("netgrain: {remark}"));
    if found == 0 && !rows.is_stopped() {
        let there =
            stock::shelves(&args.store).map(|shelves| stock::tell(&shelves, &args.interface)).unwrap_or_default();
        let interval = when::in_words(from, to);
        eprintln!("netgrain: nothing found: no series {interval}; {} has {there}", args.store.display());
    }
    Ok(Outcome::of(found > 0 && rows.remarks.is_empty()))
}

fn seconds(args: &SeriesArgs, mut next: Option<Row>, rows: &mut Rows) -> Result<u64, Failure> {
    let mut out = Output::<Row>::begin(args, table::SECONDS)?;
    while let Some(row) = next {
        out.tell(&row, row, 1, &rows.names, table::second)?;
        next = rows.next()?;
    }
    out.finish(&rows.names)
}

fn steps(args: &SeriesArgs, step: series::Step, mut next: Option<Row>, rows: &mut Rows) -> Result<u64, Failure> {
    let mut roller = Roller::new(step);
    let mut out = Output::<Rollup>::begin(args, table::STEPS)?;
    let tell = |out: &mut Output<Rollup>, rollup: Rollup, names: &Names| {
        out.tell(&rollup, rollup.sum, step.seconds(), names, table::step)
    };
    while let Some(row) = next {
        if let Some(rollup) = roller.push(&row) {
            tell(&mut out, rollup, &rows.names)?;
        }
        next = rows.next()?;
    }
    for rollup in roller.finish() {
        tell(&mut out, rollup, &rows.names)?;
    }
    out.finish(&rows.names)
}

/// Rows and roll-ups on their way out.
struct Output<T: Told> {
    form: Form<T>,
    gaps: Gaps,
    told: u64,
    curves: BTreeMap<(u16, Direction), Curve>,
    step: u64,
    named: usize,
}

enum Form<T: Told> {
    Table(Outlet, &'static str),
    Objects(text::Writer<T, Outlet>),
    Csv(text::Writer<T, Outlet>),
}

impl<T: Told> Output<T> {
    fn begin(args: &SeriesArgs, header: &'static str) -> Result<Self, Failure> {
        let fields = match &args.fields[..] {
            [] => None,
            some => Some(text::choose::<T>(&some.join(",")).map_err(|e| Failure::Said(format!("--fields: {e}")))?),
        };
        let out = Outlet::new(io::stdout());
        let form = match (args.json, args.csv) {
            (true, _) => Form::Objects(text::Writer::new(out, Format::Ndjson, fields)?),
            (_, true) => Form::Csv(text::Writer::new(out, Format::Csv, fields)?),
            _ => Form::Table(out, header),
        };
        Ok(Self { form, gaps: Gaps::default(), told: 0, curves: BTreeMap::new(), step: 1, named: 0 })
    }

    /// Tells one; `row` is where it stands in time, and how much passed.
    fn tell(
        &mut self,
        what: &T,
        row: Row,
        step: u64,
        names: &Names,
        line: fn(&T, &Names) -> String,
    ) -> Result<(), Failure> {
        self.step = step;
        let gap = self.gaps.before(&row, step);
        if let Some(gap) = gap {
            self.unknown(gap, &names.interface(row.interface))?;
        }
        match &mut self.form {
            Form::Table(out, header) => {
                let header = if self.told == 0 { format!("{header}\n") } else { String::new() };
                out.write_all(format!("{header}{}\n", line(what, names)).as_bytes())?;
                let bits = row.total.bytes as f64 * 8.0 / step as f64;
                self.curves.entry((row.interface, row.direction)).or_default().push(row.second, bits);
            }
            Form::Objects(out) | Form::Csv(out) => {
                for (number, name) in &names.all()[self.named..] {
                    out.name_interface(*number, name);
                    self.named += 1;
                }
                out.write(what)?;
            }
        }
        self.told += 1;
        Ok(())
    }

    fn unknown(&mut self, gap: Gap, interface: &str) -> Result<(), Failure> {
        match &mut self.form {
            Form::Table(out, _) => {
                out.write_all(format!("{}\n", table::gap(gap.from, gap.to, interface)).as_bytes())?
            }
            Form::Objects(out) => {
                let value = serde_json::json!({ "gap": {
                    "interface": interface, "from": table::moment(gap.from), "to": table::moment(gap.to),
                    "seconds": gap.to - gap.from + 1,
                } });
                out.get_mut().write_all(format!("{value}\n").as_bytes())?;
            }
            // A line of CSV says the same as all others: there is none of what is unknown.
            Form::Csv(_) => {}
        }
        Ok(())
    }

    /// Ends the output, on a terminal with the curves; says how many were told.
    fn finish(self, names: &Names) -> Result<u64, Failure> {
        match self.form {
            Form::Objects(out) | Form::Csv(out) => _ = out.into_inner().finish()?,
            Form::Table(mut out, _) => {
                if io::stdout().is_terminal() {
                    for ((interface, direction), curve) in &self.curves {
                        let name = format!("{} {}", names.interface(*interface), table::way(*direction));
                        let most = show_si(curve.greatest(), "b/s");
                        out.write_all(format!("{name:<14} {}  to {most}\n", curve.line(self.step, WIDTH)).as_bytes())?;
                    }
                }
                out.finish()?;
                if self.told > 0 {
                    let unknown = match self.gaps.seconds() {
                        0 => String::new(),
                        n => format!(", {} s unknown in between", show_count(n)),
                    };
                    eprintln!("netgrain: {} rows{unknown}", show_count(self.told));
                }
            }
        }
        Ok(self.told)
    }
}

/// Rows of a store, one for each second, interface and direction, in the order of time.
struct Rows<'a> {
    args: &'a SeriesArgs,
    from: Timestamp,
    to: Timestamp,
    stop: Arc<AtomicBool>,
    names: Names,
    ready: std::vec::IntoIter<Row>,
    shelves: Option<Vec<Shelf>>,
    /// With --live: the last second that was told.
    told: Option<u64>,
    remarks: Vec<String>,
}

/// The rows of one interface, and the next of them.
struct Shelf {
    number: u16,
    answer: columns::Answer<Row>,
    next: Option<Row>,
}

impl<'a> Rows<'a> {
    fn new(args: &'a SeriesArgs, from: Timestamp, to: Timestamp, stop: Arc<AtomicBool>) -> Self {
        let (names, ready) = (Names::default(), Vec::new().into_iter());
        Self { args, from, to, stop, names, ready, shelves: None, told: None, remarks: Vec::new() }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn next(&mut self) -> Result<Option<Row>, Failure> {
        loop {
            if let Some(row) = self.ready.next() {
                return Ok(Some(row));
            }
            if self.is_stopped() {
                return Ok(None);
            }
            let shelves = match &mut self.shelves {
                Some(shelves) => shelves,
                None => self.shelves.insert(open(self.args, self.from, self.to, &mut self.names)?),
            };
            // All of one second: what late packets opened again is added to it.
            let second = shelves.iter().filter_map(|s| Some(s.next.as_ref()?.second)).min();
            let newest = when::now().secs();
            match second {
                // Of the seconds of this moment not all may have been told.
                Some(second) if !self.args.live || second + 2 < newest => {
                    let mut all = Vec::new();
                    for shelf in shelves {
                        while let Some(mut row) = shelf.next.take_if(|row| row.second == second) {
                            row.interface = shelf.number;
                            all.push(row);
                            shelf.next = shelf.answer.next();
                        }
                    }
                    if self.told.is_none_or(|told| second > told) {
                        self.told = self.args.live.then_some(second);
                        self.ready = series::added(all).collect::<Vec<_>>().into_iter();
                    }
                }
                _ => {
                    for remark in self.shelves.take().into_iter().flatten().flat_map(|s| s.answer.remarks()) {
                        if !self.remarks.contains(&remark) {
                            self.remarks.push(remark);
                        }
                    }
                    if !self.args.live || newest > self.to.secs().saturating_add(LOOK_BACK) {
                        self.shelves = Some(Vec::new());
                        return Ok(None);
                    }
                    std::thread::sleep(POLL);
                    let since = self.told.map_or(self.from, |told| Timestamp::from_secs_nanos(told + 1, 0));
                    self.from = self.from.max(since);
                }
            }
        }
    }
}

/// Each interface of a store that is asked, under a number of its own.
fn open(args: &SeriesArgs, from: Timestamp, to: Timestamp, numbers: &mut Names) -> Result<Vec<Shelf>, Failure> {
    let store = &args.store;
    let known = catalogue::interfaces(store).map_err(|e| Failure::Said(format!("{}: {e}", store.display())))?;
    let folder = |name: &String| names::interface_folder(store, name);
    let wanted = |name: &&String| args.interface.is_empty() || args.interface.iter().any(|i| folder(i) == folder(name));
    let shelf = |name: &String| {
        let query = Query { interfaces: vec![name.clone()], from, to, ..Query::new(store) };
        let mut answer = columns::series(&query).map_err(Failure::say)?;
        let next = answer.next();
        Ok(Shelf { number: numbers.number(name), answer, next })
    };
    known.iter().filter(wanted).map(shelf).collect()
}
