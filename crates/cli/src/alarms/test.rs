//! `netgrain alarms test`: the alarms that a detector would have raised.

use super::args::{DetectorArg, TestArgs};
use super::csv_series::{self, Columns, Second};
use super::detector::Detector;
use super::verdicts::Verdicts;
use super::{document, long_term, summary};
use crate::outcome::{Failure, Outcome};
use base::units;
use detect::{Event, Verdict};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufWriter, StdoutLock, Write};
use std::path::Path;

/// Runs the verb; returns `No` if there is no alarm.
pub fn run(args: &TestArgs) -> Result<Outcome, Failure> {
    let fin = args.fin.iter().filter(|_| args.detector == DetectorArg::SynFlood);
    let columns = Columns {
        time: args.time.clone(),
        values: std::iter::once(&args.value).chain(fin).cloned().collect(),
        untrusted: args.untrusted.clone(),
        conditions: args.conditions.clone(),
        delimiter: args.delimiter,
    };
    let mut detector = Detector::new(args)?;
    let source: Box<dyn std::io::Read> = if args.csv == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(&args.csv).map_err(|e| Failure::unreadable(&args.csv, &e))?)
    };
    if args.detector == DetectorArg::LongTerm {
        return long_term::run(args, source, &columns);
    }
    let mut results = Results::new(args, detector.parameters());
    let (mut events, mut written) = (Vec::new(), Ok(()));
    let read = csv_series::read(source, &columns, |second| {
        let verdict = detector.observe(second, &mut events);
        results.count(second, verdict);
        for event in events.drain(..) {
            if written.is_ok() {
                written = results.event(event);
            }
        }
    });
    read.map_err(|e| Failure::Said(format!("{}: {e}", args.csv.display())))?;
    written?;
    results.finish()?;
    Ok(Outcome::of(results.alarms > 0))
}

/// The output, and the counts for the totals.
struct Results<'a> {
    args: &'a TestArgs,
    parameters: Value,
    out: BufWriter<StdoutLock<'static>>,
    verdicts: Verdicts,
    /// Alarms by the day of their confirmation, in days since 1970.
    days: BTreeMap<u64, u64>,
    alarms: u64,
    /// The last event of an alarm that has not ended.
    open: Option<Event>,
    has_titles: bool,
    last_second: Option<u64>,
}

impl<'a> Results<'a> {
    fn new(args: &'a TestArgs, parameters: Value) -> Self {
        Self {
            args,
            parameters,
            out: BufWriter::new(std::io::stdout().lock()),
            verdicts: Verdicts::default(),
            days: BTreeMap::new(),
            alarms: 0,
            open: None,
            has_titles: false,
            last_second: None,
        }
    }

    /// Counts a second, and the missing seconds before it.
    fn count(&mut self, second: &Second, verdict: Verdict) {
        let missing = self.last_second.map_or(0, |last| second.second - last - 1);
        self.last_second = Some(second.second);
        self.verdicts.samples.missing += missing;
        self.verdicts.withheld += missing;
        second.samples.first().into_iter().for_each(|sample| self.verdicts.samples.add(*sample));
        self.days.entry(second.second / 86_400).or_insert(0);
        match verdict {
            Verdict::WarmUp => self.verdicts.warm_up += 1,
            Verdict::Withheld => self.verdicts.withheld += 1,
            Verdict::Normal | Verdict::Alarm => {}
        }
    }

    fn event(&mut self, event: Event) -> std::io::Result<()> {
        if let Event::Begin(alarm) = event {
            *self.days.entry(alarm.confirmed / 86_400).or_insert(0) += 1;
            self.alarms += 1;
        }
        let is_end = matches!(event, Event::End { .. });
        self.open = (!is_end).then_some(event);
        if self.args.json {
            writeln!(self.out, "{}", document::event(&event, self.args.detector.name(), &self.parameters))
        } else if is_end {
            self.line(&event)
        } else {
            Ok(())
        }
    }

    fn line(&mut self, event: &Event) -> std::io::Result<()> {
        if !std::mem::replace(&mut self.has_titles, true) {
            write!(self.out, "{}", summary::titles())?;
        }
        write!(self.out, "{}", summary::alarm(event, &self.args.tz))
    }

    fn finish(&mut self) -> std::io::Result<()> {
        if self.args.json {
            writeln!(self.out, "{}", document::totals(&self.verdicts, &self.days, self.alarms))?;
        } else {
            if let Some(event) = self.open.take() {
                self.line(&event)?;
            }
            write!(self.out, "{}", summary::totals(&self.verdicts, &self.days, self.alarms))?;
        }
        self.out.flush()?;
        let samples = self.verdicts.samples;
        if samples.missing > samples.observed {
            sys::say!(
                "netgrain: {} of {} seconds have no value; the detectors need one line per second",
                units::show_count(samples.missing),
                units::show_count(samples.total())
            );
        }
        Ok(())
    }
}
