//! Translates the command line into a flow query: source, time, filter, and the plan of sums.

use super::listing::Listing;
use super::{FLOW, FlowsArgs, SHOWN};
use crate::file_arguments::{file_hint, missing_file_or};
use crate::flow_records::query::{FlowQuery, RecordSource};
use crate::inventory;
use crate::outcome::Failure;
use aggregate::{Field, Measure, Plan};
use base::Timestamp;
use filter::FlowFilter;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Reads the query from the command line; relative times refer to `now`.
pub fn query(args: &FlowsArgs, now: Timestamp) -> Result<FlowQuery, Failure> {
    if !args.fields.is_empty() && plan(args)?.is_none() && !args.json && !args.csv {
        return Err(Failure::Said(
            "--fields needs --json or --csv for the fields of records, or --group or --top for the measures of groups"
                .into(),
        ));
    }
    let mut files = args.read.clone();
    let more = match files.is_empty() {
        true => 0,
        false => args.words.iter().take_while(|w| Path::new(w).is_file()).count(),
    };
    files.extend(args.words[..more].iter().map(PathBuf::from));
    let words: Vec<&str> = args.words[more..].iter().chain(&args.filter).map(String::as_str).collect();
    let of_flows = FlowFilter::parse(&words.join(" ")).map_err(|e| match args.read.is_empty() {
        true => Failure::filter(&e).with(file_hint(&words).as_deref()),
        false => missing_file_or(&e, &args.words[more..].iter().map(String::as_str).collect::<Vec<_>>()),
    })?;
    let (from, to) = args.when.interval(now, args.live)?;
    let source = match (&args.store, args.from_multicast) {
        (Some(store), _) => {
            inventory::check(store, &inventory::inventories(store)?, &args.interface)?;
            RecordSource::Store(store.clone())
        }
        (None, Some(group)) => RecordSource::Network(group, args.multicast_interface.clone()),
        (None, None) => RecordSource::Files(files),
    };
    let interfaces = args.interface.clone();
    let (plan, limit, follow) = (plan(args)?, args.limit, args.live);
    let (late, zone) = (args.max_lateness, args.when.tz.zone.clone());
    if args.every.is_some() && plan.is_none() {
        return Err(Failure::Said("--every is for rankings: add --top, --group or --by".into()));
    }
    let fields = fields(args).filter(|_| of_flows.is_empty() && plan.is_none() && !follow);
    Ok(FlowQuery { source, zone, from, to, of_flows, interfaces, plan, limit, follow, late, id: None, fields })
}

/// The plan of the sums over flow records, if the command line requests groups or a ranking.
fn plan(args: &FlowsArgs) -> Result<Option<Plan>, Failure> {
    if args.group.is_empty() && args.top.is_none() && args.by.is_none() {
        return Ok(None);
    }
    let failure = |flag: &'static str| move |e| Failure::Said(format!("{flag}: {e}"));
    let fields = match &args.group[..] {
        [] => FLOW.iter().map(|word| Field::parse(word)).collect::<Result<Vec<_>, _>>().map_err(failure("--top"))?,
        some => some.to_vec(),
    };
    let by = args.by.unwrap_or(Measure::Bytes);
    let is_flows = args.group.is_empty();
    let shown = match &args.fields[..] {
        [] if is_flows => vec![Measure::First, Measure::Packets, Measure::Bytes],
        [] => SHOWN.to_vec(),
        some => some
            .iter()
            .map(|word| Measure::parse(&word.replace('_', "-")))
            .collect::<Result<Vec<_>, _>>()
            .map_err(failure("--fields"))?,
    };
    // The seed of the hash is the current time in nanoseconds, which a sender of packets cannot predict.
    let secret = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    let plan = Plan::new(&fields, &shown, by).map_err(failure("--group"))?.seed(base::hash::mix64(secret));
    Ok(Some(match args.top {
        Some(n) => plan.keep(n as usize),
        None => plan,
    }))
}

/// The names of the columns whose values are printed for each record; `None` if all columns may be needed.
fn fields(args: &FlowsArgs) -> Option<Vec<String>> {
    let owned = |name: &str| name.trim().to_owned();
    if args.packets || args.parquet.is_some() || args.format.is_some() {
        return None;
    }
    match (args.json || args.csv, &args.fields[..]) {
        (false, _) => Some(Listing::FIELDS.map(owned).into()),
        (true, []) => None,
        (true, some) => Some(some.iter().flat_map(|names| names.split(',')).map(owned).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_groups_and_filters_of_the_examples_exist() {
        let mut tested = 0;
        for command in crate::verbs::examples::commands() {
            let crate::verbs::Command::Flows(args) = command else { continue };
            let ranked = plan(&args).unwrap_or_else(|e| panic!("{:?}: {e:?}", args.group)).is_some();
            if !ranked && !args.fields.is_empty() {
                export::text::choose::<flow::Record>(&args.fields.join(",")).unwrap_or_else(|e| panic!("{e}"));
            }
            // In the examples, the words after -r also contain file names, which are not part of the filter.
            let words: Vec<&str> = args.words.iter().map(String::as_str).filter(|w| !w.contains(".pcap")).collect();
            let words = words.join(" ");
            FlowFilter::parse(&words).unwrap_or_else(|e| panic!("{words}: {e}"));
            tested += 1;
        }
        assert!(tested > 5, "{tested} examples");
    }
}
