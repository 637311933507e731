//! Translates the command line into a packet query: source, time, filter.

use super::PacketsArgs;
use crate::file_arguments::{file_hint, missing_file_or, named_files};
use crate::inventory;
use crate::outcome::Failure;
use crate::zone::Zone;
use base::Timestamp;
use filter::Filter;
use query::{FlowPackets, Query, QuerySource, SeekHint};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The error for `-r -`. A packet query reads a capture twice: the times and keys of its blocks first, and then the
/// packets of some blocks.
const STANDARD_INPUT: &str = "-r -: a packet query reads a capture twice, which standard input does not permit: write \
    it to a file first (cat > capture.pcap), or record it into a store (netgrain run -r - --store DIR)";

/// A checked packet query.
pub struct PacketQuery {
    pub source: QuerySource,
    pub from: Timestamp,
    pub to: Timestamp,
    /// The zone of printed times.
    pub zone: Zone,
    pub filter: Filter,
    interfaces: Vec<String>,
    follow: bool,
    live: bool,
    limited: bool,
    /// True if the query had a filter before [`Self::narrow`] restricted it to the packets of flows.
    words: bool,
    /// The stream positions of the packets of the flows.
    seek: Option<SeekHint>,
    /// A hint for a failed query: a word of the filter may have been interpreted as a file name.
    hint: String,
}

impl PacketQuery {
    /// Reads the query from the command line; relative times refer to `now`.
    pub fn of(args: &PacketsArgs, now: Timestamp) -> Result<Self, Failure> {
        let (files, words, hint) = files_and_words(args);
        if files.iter().any(|file| file == Path::new("-")) {
            return Err(Failure::say(STANDARD_INPUT));
        }
        let filter = Filter::parse(&words.join(" ")).map_err(|e| {
            if !hint.is_empty() {
                Failure::Said(format!("filter: {e}{hint}"))
            } else if args.store.is_some() {
                Failure::filter(&e).with(file_hint(&words).as_deref())
            } else {
                missing_file_or(&e, &words)
            }
        })?;
        let (from, to) = args.when.interval(now, args.follow)?;
        let source = match &args.store {
            Some(store) => {
                inventory::check(store, &inventory::inventories(store)?, &args.interface)?;
                QuerySource::Store(store.clone())
            }
            None => QuerySource::Files(files),
        };
        Ok(Self {
            source,
            from,
            to,
            zone: args.when.tz.zone.clone(),
            filter,
            interfaces: args.interface.clone(),
            follow: args.follow,
            live: !args.no_live,
            limited: args.limit.is_some(),
            words: false,
            seek: None,
            hint,
        })
    }

    /// The error message of the query engine, followed by `hint`.
    pub fn refused(&self, e: &query::QueryError) -> Failure {
        Failure::Said(format!("{e}{}", self.hint))
    }

    /// The query for the query engine.
    pub fn engine_query(&self, stop: Arc<AtomicBool>) -> Query {
        Query {
            from: self.from,
            to: self.to,
            filter: self.filter.clone(),
            interfaces: self.interfaces.clone(),
            follow: self.follow,
            live: self.live,
            seek: self.seek.clone(),
            stop: Some(stop),
            ..Query::default()
        }
    }

    /// Restricts the interval, filter and stream positions of the query to those of the packets of these flows.
    pub fn narrow(&mut self, flow_packets: &FlowPackets) -> Result<(), Failure> {
        self.words = !self.filter.is_empty();
        let mut query = self.engine_query(Arc::default());
        flow_packets.narrow(&mut query).map_err(|e| Failure::filter(&e))?;
        (self.from, self.to, self.filter, self.seek) = (query.from, query.to, query.filter, query.seek);
        Ok(())
    }

    /// True if the query selects every packet of these flows: it has no other filter, no limit and no other interval.
    pub fn is_all_of(&self, flow_packets: &FlowPackets) -> bool {
        !self.words && !self.limited && flow_packets.interval() == Some((self.from, self.to))
    }

    /// The query as text, for the comment of the resulting capture.
    pub fn in_words(&self) -> String {
        let filter = match self.filter.to_string() {
            empty if empty.is_empty() => "all packets".to_owned(),
            filter => format!("packets of `{filter}`"),
        };
        let interfaces = match &self.interfaces[..] {
            [] => String::new(),
            some => format!(" on {}", some.join(", ")),
        };
        format!("{filter}{interfaces} {}", self.zone.interval_in_words(self.from, self.to))
    }

    /// Advice for a query without result: the searched interval and the existing data.
    pub fn no_match_advice(&self) -> String {
        let there = match &self.source {
            QuerySource::Store(store) => match inventory::inventories(store) {
                Ok(interfaces) => {
                    format!("{} has {}", store.display(), inventory::print(&interfaces, &self.interfaces, &self.zone))
                }
                Err(_) => format!("{} is empty now", store.display()),
            },
            QuerySource::Files(files) => format!("searched {}", named_files(files)),
        };
        format!("no {}; {there}", self.in_words().trim_start_matches("all "))
    }
}

/// Divides the arguments into files and the words of the filter. With -r, the first arguments that are names of
/// existing files are files, because a shell expands `*.pcap` to several arguments. If one of these names could also
/// begin a filter, the returned text explains how to distinguish the two. Words after `--` belong to the filter.
fn files_and_words(args: &PacketsArgs) -> (Vec<PathBuf>, Vec<&str>, String) {
    let mut files = args.read.clone();
    let more = match files.is_empty() {
        true => 0,
        false => args.words.iter().take_while(|w| std::path::Path::new(w).is_file()).count(),
    };
    files.extend(args.words[..more].iter().map(PathBuf::from));
    let words: Vec<&str> = args.words.iter().chain(&args.filter).map(String::as_str).collect();
    let ambiguous = (0..more).find(|i| Filter::parse(&words[*i..].join(" ")).is_ok());
    let hint = ambiguous.map(|i| {
        format!(
            "; `{0}` was taken as a file, because a file has this name: to use it in the filter, write -- before `{0}`",
            words[i]
        )
    });
    (files, words[more..].to_vec(), hint.unwrap_or_default())
}
