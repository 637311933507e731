//! `netgrain series`: prints the time series of interfaces, with one row for each second or for each larger step. The
//! rows are read from a store, from files or from another machine. They count all packets, or those that match a
//! filter. A second without packets is a row of zeros; seconds for which there is no data are shown as gaps.

mod files;
mod gaps;
mod output;
mod parquet;
mod source;
mod sparkline;
mod table;

use crate::file_arguments;
use crate::flow_records;
use crate::flows::LegacyFormat;
use crate::interval::{self, Interval};
use crate::inventory;
use crate::outcome::{Failure, Outcome};
use crate::output::background_writer::BackgroundWriter;
use crate::output::target::ProtectedPaths;
use crate::overwrite::OverwriteArgs;
use crate::signals;
use crate::style::{ColorArgs, WidthArgs};
use base::Timestamp;
use clap::{Args, ValueEnum};
use columns::DataFileKind;
use filter::Filter;
use output::Output;
use series::{Rollup, RollupBuilder, Row};
use source::Rows;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

#[derive(Args)]
#[command(
    override_usage = "netgrain series --store <DIR> [OPTIONS] [FILTER]\n       netgrain series -r <FILE>... \
     [OPTIONS] [FILTER]\n       netgrain series --live --from-multicast <GROUP:PORT> [OPTIONS]",
    after_help = format!("Examples:
  netgrain series --store /data --from -10min
  netgrain series --store /data --from 10:00 --to 11:00 --step 1m -i eth1
  netgrain series --store /data --from -1d --step 5m --fields time,interface,bytes_sum,bytes_p95 --csv
  netgrain series --store /data --around 10:42 'host 10.1.2.3 and port 53'
  netgrain series --store /data --live --direction out --json
  netgrain series -r monday.pcap 'port 53'
  netgrain series --live --from-multicast 239.129.0.0:4739 --multicast-interface eth0

A second without packets is a row of zeros. A second without data has no row: a line reports the gap (in JSON an \
    object with `gap`). With a filter, the series is computed from the stored packets that match; the number of flows \
    is then unknown, and all rows have the direction `in`, because packet files do not store the direction.

{}", interval::HELP)
)]
pub struct SeriesArgs {
    /// Filter: only matching packets, with host, net, port, proto, vlan, tcp, udp, less …, and, or, not, parentheses
    /// [default: all packets]
    #[arg(value_name = "FILTER")]
    pub words: Vec<String>,
    /// Directory of the store
    #[arg(
        long,
        value_name = "DIR",
        required_unless_present_any = ["read", "from_multicast"],
        conflicts_with_all = ["read", "from_multicast"],
        value_parser = crate::values::directory
    )]
    pub store: Option<PathBuf>,
    /// Read files instead of a store: captures (as for run -r; - for standard input), from which the rows are computed,
    /// or files of rows: IPFIX (RFC 5655) or Parquet of netgrain. For captures, following words that are not names of
    /// files form FILTER
    #[arg(short = 'r', long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["live", "from_multicast"])]
    pub read: Vec<PathBuf>,
    #[command(flatten)]
    pub when: Interval,
    /// Interface; repeat for several [default: all interfaces of the store]
    #[arg(short = 'i', long, value_name = "IFACE", value_delimiter = ',')]
    pub interface: Vec<String>,
    /// Only packets that the host received (in) or sent (out) [default: both]
    #[arg(long, value_enum)]
    pub direction: Option<DirectionArg>,
    /// Length of the interval of a row: one second, or a step with sum, mean, minimum, maximum and 95th percentile
    #[arg(long, value_enum, default_value_t = Step::Second)]
    pub step: Step,
    /// With --json or --csv: the fields to print
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub fields: Vec<String>,
    /// Print one JSON object per row
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print CSV with a header
    #[arg(long)]
    pub csv: bool,
    /// Write the rows to a Parquet file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "csv", "format", "fields", "step", "live"])]
    pub parquet: Option<PathBuf>,
    #[command(flatten)]
    pub overwrite: OverwriteArgs,
    /// Print text lines in the format of M3OMon (legacy), one line per second, summed over the selected interfaces
    #[arg(long, value_enum, value_name = "FORMAT", conflicts_with_all = ["json", "csv", "fields", "step", "words"])]
    pub format: Option<LegacyFormat>,
    /// Continue with new seconds until interrupted [default of --from: now]
    #[arg(long)]
    pub live: bool,
    /// With --live: read the rows that another machine sends to this multicast group, or to this UDP port of this
    /// machine
    #[arg(long, value_name = "GROUP:PORT", requires = "live", value_parser = crate::values::group_and_port)]
    pub from_multicast: Option<SocketAddr>,
    /// With --from-multicast: the interface of this machine that receives the packets of the group [default: the
    /// interface of the kernel's route]
    #[arg(long, value_name = "IFACE", requires = "from_multicast")]
    pub multicast_interface: Option<String>,
    #[command(flatten)]
    pub width: WidthArgs,
    #[command(flatten)]
    pub color: ColorArgs,
}

/// The source of rows.
enum RowSource {
    /// Rows of a store.
    Store(PathBuf),
    /// Matching packets of a store.
    Packets(PathBuf, Filter),
    /// Files of series rows, or capture files whose matching packets are counted.
    Files(Vec<PathBuf>, Filter),
    /// IPFIX messages that arrive at this address. A multicast group is received by the named interface, or by the
    /// interface that the kernel chooses.
    Network(SocketAddr, Option<String>),
}

/// The direction of packets, as a value of a command-line flag.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DirectionArg {
    /// Received by the interface
    In,
    /// Sent by this host
    Out,
}

impl DirectionArg {
    /// The direction as in rows.
    pub fn direction(self) -> series::Direction {
        match self {
            Self::In => series::Direction::In,
            Self::Out => series::Direction::Out,
        }
    }
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
    fn rollup_step(self) -> Option<series::Step> {
        match self {
            Self::Second => None,
            Self::Minute => Some(series::Step::Minute),
            Self::FiveMinutes => Some(series::Step::FiveMinutes),
            Self::Hour => Some(series::Step::Hour),
        }
    }
}

/// Runs the verb; returns `No` if nothing was found, or if a part of the data could not be read.
pub fn run(args: &SeriesArgs) -> Result<Outcome, Failure> {
    if !args.fields.is_empty() && !args.json && !args.csv {
        return Err(Failure::Said("--fields needs --json or --csv: the table has fixed columns".into()));
    }
    let (from, to) = args.when.interval(interval::now(), args.live)?;
    let source = row_source(args)?;
    let files = match &source {
        RowSource::Files(files, _) => &files[..],
        _ => &[],
    };
    let protected = ProtectedPaths { store: args.store.as_deref(), files, force: args.overwrite.force };
    if let Some(path) = &args.parquet {
        protected.check(path)?;
    }
    if let Some(store) = &args.store
        && let Some(remark) = query::lower_priority(&query::QuerySource::Store(store.clone()), query::Background::Batch)
    {
        sys::say!("netgrain: {remark}");
    }
    let filtered = match &source {
        RowSource::Packets(..) => true,
        RowSource::Files(_, filter) => !filter.is_empty(),
        _ => false,
    };
    let mut rows = Rows::open(args, &source, (from, to), columns_of(args), signals::stop_flag())?;
    let first = rows.next()?;
    let found = match (args.step.rollup_step(), &args.parquet) {
        (_, Some(path)) => parquet::write(path, protected, first, &mut rows)?,
        (None, _) if args.format == Some(LegacyFormat::Legacy) => legacy(first, &mut rows)?,
        (None, _) => seconds(args, filtered, first, &mut rows)?,
        (Some(step), _) => steps(args, filtered, step, first, &mut rows)?,
    };
    rows.warnings().iter().for_each(|warning| sys::say!("netgrain: {warning}"));
    if found == 0 && !rows.is_stopped() {
        let advice = no_match_advice(args, &source, from, to);
        match rows.is_complete() {
            true => sys::say!("netgrain: nothing found: {advice}"),
            false => sys::say!("netgrain: nothing found in the data that could be read: {advice}"),
        }
    }
    if let RowSource::Packets(store, filter) = &source
        && rows.is_empty_series()
        && let Some(remark) = flow_records::tunnel_hint::remark(store, filter, (from, to), &args.interface)
    {
        sys::say!("netgrain: no packet matches; {remark}");
    }
    Ok(Outcome::of(found > 0 && rows.is_complete()))
}

/// The names of the columns from which the output is made; `None` if all columns may be needed.
fn columns_of(args: &SeriesArgs) -> Option<Vec<String>> {
    if args.parquet.is_some() || args.format.is_some() {
        return None;
    }
    let column = |field: &String| {
        let field = field.trim();
        let is_rollup = args.step.rollup_step().is_some();
        // A roll-up has several fields of each column, and fields that need no column.
        let statistic = ["_sum", "_min", "_max", "_p95"].iter().find_map(|suffix| field.strip_suffix(suffix));
        match is_rollup && ["step", "seconds"].contains(&field) {
            true => "second".to_owned(),
            false => statistic.filter(|_| is_rollup).unwrap_or(field).to_owned(),
        }
    };
    match (args.json || args.csv, &args.fields[..]) {
        (false, _) => Some(table::columns_read()),
        (true, []) => None,
        (true, some) => Some(some.iter().map(column).collect()),
    }
}

fn row_source(args: &SeriesArgs) -> Result<RowSource, Failure> {
    if !args.words.is_empty() && (args.live || args.from_multicast.is_some()) {
        let text = "FILTER with --live: live rows are not computed from packets. Repeat the query (--from -1min \
            FILTER), follow the flow records (netgrain flows --live FILTER), or select by --interface and --direction";
        return Err(Failure::Said(text.into()));
    }
    if !args.words.is_empty() && args.direction == Some(DirectionArg::Out) {
        let text = "--direction out with FILTER: packet files do not store the direction, and all matching packets \
            count as `in`; leave out --direction or the filter";
        return Err(Failure::Said(text.into()));
    }
    if !args.read.is_empty() {
        let is_file = |path: &&PathBuf| path.exists() || *path == Path::new("-");
        // The first word after `-r` is always a file; if this file does not exist, the error is reported when it is
        // opened.
        let files = args.read.iter().skip(1).take_while(is_file).count() + 1;
        let words = args.read[files..].iter().map(|word| word.to_string_lossy());
        let words: Vec<_> = words.chain(args.words.iter().map(|word| word.as_str().into())).collect();
        let text = words.join(" ");
        let words: Vec<&str> = words.iter().map(|word| &**word).collect();
        let filter = Filter::parse(&text).map_err(|e| file_arguments::missing_file_or(&e, &words))?;
        return Ok(RowSource::Files(args.read[..files].to_vec(), filter));
    }
    let Some(store) = &args.store else {
        let group =
            args.from_multicast.ok_or_else(|| Failure::Said("name a source: --store or --from-multicast".into()))?;
        return Ok(RowSource::Network(group, args.multicast_interface.clone()));
    };
    let words: Vec<&str> = args.words.iter().map(String::as_str).collect();
    let filter = filter(&words.join(" ")).map_err(|e| e.with(file_arguments::file_hint(&words).as_deref()))?;
    inventory::check(store, &inventory::inventories(store)?, &args.interface)?;
    Ok(if filter.is_empty() { RowSource::Store(store.clone()) } else { RowSource::Packets(store.clone(), filter) })
}

fn filter(text: &str) -> Result<Filter, Failure> {
    Filter::parse(text).map_err(|e| Failure::filter(&e))
}

/// Advice for a query without result: the searched interval and the existing data.
fn no_match_advice(args: &SeriesArgs, source: &RowSource, from: Timestamp, to: Timestamp) -> String {
    let interval = args.when.tz.zone.interval_in_words(from, to);
    let contents = |store: &PathBuf| {
        let data = inventory::inventories(store)
            .map(|interfaces| inventory::print(&interfaces, &args.interface, &args.when.tz.zone))
            .unwrap_or_default();
        format!("{} has {data}", store.display())
    };
    let missing =
        |store| inventory::missing(store, &inventory::inventories(store).ok()?, DataFileKind::Series, &args.interface);
    match source {
        RowSource::Store(store) => {
            missing(store).unwrap_or_else(|| format!("no series rows {interval}; {}", contents(store)))
        }
        RowSource::Packets(store, filter) => {
            format!("neither packets that match `{filter}` nor series rows {interval}; {}", contents(store))
        }
        RowSource::Files(files, _) => {
            format!("no series rows {interval}; searched {}", file_arguments::named_files(files))
        }
        RowSource::Network(group, _) => format!("no series rows {interval}; listened to {group}"),
    }
}

fn seconds(args: &SeriesArgs, filtered: bool, mut next: Option<Row>, rows: &mut Rows) -> Result<u64, Failure> {
    let mut out = Output::<Row>::begin(args, filtered)?;
    while let Some(row) = next {
        out.write(&row, row, 1, 1, rows.names())?;
        next = rows.next()?;
    }
    out.finish(rows.names())
}

/// Prints the seconds in the format of M3OMon.
fn legacy(mut next: Option<Row>, rows: &mut Rows) -> Result<u64, Failure> {
    let mut out = export::text::legacy::LegacySeries::new(BackgroundWriter::new(std::io::stdout()));
    let mut reported = 0;
    while let Some(row) = next {
        out.write(&row)?;
        reported += 1;
        next = rows.next()?;
    }
    out.finish()?.finish()?;
    Ok(reported)
}

fn steps(
    args: &SeriesArgs,
    filtered: bool,
    step: series::Step,
    mut next: Option<Row>,
    rows: &mut Rows,
) -> Result<u64, Failure> {
    let mut rollups = RollupBuilder::new(step);
    let mut out = Output::<Rollup>::begin(args, filtered)?;
    while let Some(row) = next {
        if let Some(rollup) = rollups.push(&row) {
            out.write(&rollup, rollup.sum, step.seconds(), rollup.seconds, rows.names())?;
        }
        next = rows.next()?;
    }
    for rollup in rollups.finish() {
        out.write(&rollup, rollup.sum, step.seconds(), rollup.seconds, rows.names())?;
    }
    out.finish(rows.names())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;
    use export::text::FieldTable;

    #[test]
    fn each_field_of_each_step_is_read_from_an_existing_column() {
        let mut columns: Vec<String> = ["second", "time", "interface", "direction"].map(str::to_owned).into();
        columns.extend(series::quantities().iter().map(|quantity| quantity.name.to_string()));
        fn names<T: FieldTable>() -> Vec<String> {
            T::fields().iter().map(|field| field.name.to_string()).collect()
        }
        for (step, names) in [("1s", names::<Row>()), ("1m", names::<Rollup>())] {
            let line = ["netgrain", "series", "--store", "/", "--csv", "--step", step, "--fields", &names.join(",")];
            let parsed = crate::verbs::Netgrain::try_parse_from(line).map(|netgrain| netgrain.command);
            let Ok(crate::verbs::Command::Series(args)) = parsed else { panic!("another verb, or an error") };
            let read = columns_of(&args).expect("a list of columns");
            assert!(read.len() == names.len() && read.iter().all(|name| columns.contains(name)), "{step}: {read:?}");
        }
        assert!(table::columns_read().iter().all(|name| columns.contains(name)));
    }

    #[test]
    fn the_fields_and_filters_of_the_examples_exist() {
        let mut tested = 0;
        for command in crate::verbs::examples::commands() {
            let crate::verbs::Command::Series(args) = command else { continue };
            let list = args.fields.join(",");
            let found = match args.step {
                _ if list.is_empty() => Ok(()),
                Step::Second => export::text::choose::<Row>(&list).map(drop).map_err(|e| e.to_string()),
                _ => export::text::choose::<Rollup>(&list).map(drop).map_err(|e| e.to_string()),
            };
            assert_eq!(found, Ok(()), "--fields {list}");
            if !args.words.is_empty() {
                filter(&args.words.join(" ")).unwrap_or_else(|e| panic!("{:?}: {e:?}", args.words));
            }
            tested += usize::from(!list.is_empty());
        }
        assert!(tested > 0, "an example shows fields");
    }
}
