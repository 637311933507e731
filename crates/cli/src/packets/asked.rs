//! From the command line to a question: where, when, which.

use super::{PacketsArgs, stock};
use crate::outcome::Failure;
use base::{Moment, Timestamp};
use query::{Place, Question};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use wire::Filter;

/// How far `--around` reaches to both sides.
const WITHIN: Duration = Duration::from_secs(30);

/// What is asked, understood and checked.
pub struct Asked {
    pub place: Place,
    pub from: Timestamp,
    pub to: Timestamp,
    pub filter: Filter,
    interfaces: Vec<String>,
    follow: bool,
    live: bool,
    /// What to say if the answer fails: a word of the filter was perhaps taken for a file.
    hint: String,
}

impl Asked {
    /// Reads it from the command line at the moment `now`.
    pub fn of(args: &PacketsArgs, now: Timestamp) -> Result<Self, Failure> {
        let (files, words, hint) = files_and_words(args);
        let filter = Filter::parse(&words.join(" ")).map_err(|e| Failure::Said(format!("filter: {e}{hint}")))?;
        let (from, to) = interval(args, now)?;
        let place = match &args.store {
            Some(store) => {
                stock::check(store, &stock::shelves(store)?, &args.interface)?;
                Place::Store(store.clone())
            }
            None => Place::Files(files),
        };
        Ok(Self {
            place,
            from,
            to,
            filter,
            interfaces: args.interface.clone(),
            follow: args.follow,
            live: !args.no_live,
            hint,
        })
    }

    /// There is no answer: why, and what else could be meant.
    pub fn refused(&self, e: &query::QueryError) -> Failure {
        Failure::Said(format!("{e}{}", self.hint))
    }

    /// For the query.
    pub fn question(&self, stop: Arc<AtomicBool>) -> Question {
        Question {
            from: self.from,
            to: self.to,
            filter: self.filter.clone(),
            interfaces: self.interfaces.clone(),
            follow: self.follow,
            live: self.live,
            stop: Some(stop),
        }
    }

    /// The question in words, for the capture that answers it.
    pub fn in_words(&self) -> String {
        let filter = match self.filter.to_string() {
            empty if empty.is_empty() => "all packets".to_owned(),
            filter => format!("packets of `{filter}`"),
        };
        let interfaces = match &self.interfaces[..] {
            [] => String::new(),
            some => format!(" on {}", some.join(", ")),
        };
        let begin = if self.from == Timestamp::ZERO { "the beginning".to_owned() } else { self.from.to_string() };
        let end = if self.to == Timestamp::MAX { "the end".to_owned() } else { self.to.to_string() };
        format!("{filter}{interfaces} from {begin} to {end}")
    }

    /// What was searched, and what there is.
    pub fn in_vain(&self) -> String {
        let there = match &self.place {
            Place::Store(store) => match stock::shelves(store) {
                Ok(shelves) => format!("{} has {}", store.display(), stock::tell(&shelves, &self.interfaces)),
                Err(_) => format!("{} is empty by now", store.display()),
            },
            Place::Files(files) => match &files[..] {
                [one] => format!("looked at {}", one.display()),
                all => format!("looked at {} files", all.len()),
            },
        };
        format!("no {}; {there}", self.in_words().trim_start_matches("all "))
    }
}

/// With -r, the words in front that are files are files: a shell puts those of `*.pcap` there. Where one of them would begin
/// a filter as well, says how to tell them apart. Those behind `--` are of the filter.
fn files_and_words(args: &PacketsArgs) -> (Vec<PathBuf>, Vec<&str>, String) {
    let mut files = args.read.clone();
    let more = match files.is_empty() {
        true => 0,
        false => args.words.iter().take_while(|w| std::path::Path::new(w).is_file()).count(),
    };
    files.extend(args.words[..more].iter().map(PathBuf::from));
    let words: Vec<&str> = args.words.iter().chain(&args.filter).map(String::as_str).collect();
    let doubtful = (0..more).find(|i| Filter::parse(&words[*i..].join(" ")).is_ok());
    let hint = doubtful.map(|i| {
        format!("; `{0}` was taken for a file, since one is named so: for the filter, write -- before `{0}`", words[i])
    });
    (files, words[more..].to_vec(), hint.unwrap_or_default())
}

fn interval(args: &PacketsArgs, now: Timestamp) -> Result<(Timestamp, Timestamp), Failure> {
    if let Some(around) = args.around {
        let (middle, within) = (around.at(now, None), args.within.unwrap_or(WITHIN));
        return Ok((middle.before(within), middle.after(within)));
    }
    let from = match args.from {
        Some(moment) => moment.at(now, None),
        None if args.follow => now,
        None => Timestamp::ZERO,
    };
    let to = args.to.map_or(Timestamp::MAX, |moment| moment.at(now, args.from.map(|_| from)));
    if from > to {
        let hint = match args.to {
            Some(Moment::Today { .. }) => "; a time without a date is of today",
            _ => "",
        };
        return Err(Failure::Said(format!("--from {from} is after --to {to}: exchange them{hint}")));
    }
    Ok((from, to))
}
