//! `netgrain flows --live --top`: at the end of each period, a ranking of the records that arrived in it. On a terminal
//! each ranking replaces the previous one.

use super::FlowsArgs;
use super::ranking::{self, Period};
use crate::flow_records::source::{Records, Step, aggregation_failure};
use crate::interval;
use crate::outcome::Failure;
use crate::style::{StylePart, plural, terminal_height};
use crate::values::ValueError;
use aggregate::{Aggregation, Aggregator, Plan};
use base::Timestamp;
use base::units::parse_span;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// The default period.
const EVERY: Duration = Duration::from_secs(10);

/// The number of terminal lines that are not available for groups: the header lines and the cursor line.
const OTHER_LINES: usize = 4;

/// Parses the period of a ranking, which is at least one second.
pub fn every(text: &str) -> Result<Duration, ValueError> {
    match parse_span(text)? {
        span if span < Duration::from_secs(1) => Err(ValueError::new(format!("{text} is too short: at least 1s"))),
        span => Ok(span),
    }
}

/// Prints a ranking for each period until the records end or the program is interrupted; returns the number of records.
pub fn rank(args: &FlowsArgs, plan: &Plan, records: &mut Records) -> Result<u64, Failure> {
    let every = args.every.unwrap_or(EVERY);
    let mut rankings = Rankings { args, found: 0, periods: 0, began: interval::now() };
    let (mut groups, mut due) = (Aggregator::new(plan.clone()), Instant::now() + every);
    loop {
        let is_last = match records.next()? {
            Step::Record(record) => {
                groups.add(&record).map_err(aggregation_failure)?;
                false
            }
            Step::Idle => false,
            Step::End => true,
        };
        if is_last || Instant::now() >= due {
            let report =
                std::mem::replace(&mut groups, Aggregator::new(plan.clone())).finish().map_err(aggregation_failure)?;
            if !is_last || report.records > 0 {
                rankings.print(&report, records)?;
            }
            // A period that ends while a ranking is being written is merged into the next period.
            let now = Instant::now();
            due = if due + every > now { due + every } else { now + every };
        }
        if is_last {
            return Ok(rankings.found);
        }
    }
}

/// The output of the rankings.
struct Rankings<'a> {
    args: &'a FlowsArgs,
    found: u64,
    periods: u64,
    /// The begin of the current period.
    began: Timestamp,
}

impl Rankings<'_> {
    /// Prints the next ranking.
    fn print(&mut self, report: &Aggregation, records: &Records) -> Result<(), Failure> {
        let (names, period) = (records.names(), Period { from: self.began, to: interval::now() });
        let mut out = io::BufWriter::new(io::stdout().lock());
        match (self.args.json, self.args.csv) {
            (true, _) => ranking::objects(report, names, Some(period), &mut out)?,
            (_, true) => {
                if self.found == 0 && report.records > 0 {
                    ranking::csv_header(report, true, &mut out)?;
                }
                ranking::csv(report, names, Some(period), &mut out)?;
            }
            _ => {
                let screen = io::stdout().is_terminal();
                self.table(report, records, period, screen, &mut out)?;
            }
        }
        out.flush()?;
        self.found += report.records;
        self.periods += 1;
        self.began = period.to;
        Ok(())
    }

    fn table(
        &self,
        report: &Aggregation,
        records: &Records,
        period: Period,
        screen: bool,
        out: &mut impl Write,
    ) -> Result<(), Failure> {
        let style = self.args.table_style();
        let mut shown = report.clone();
        if screen && self.args.top.is_none() {
            shown.lines.truncate(terminal_height().saturating_sub(OTHER_LINES).max(1));
        }
        // Clears the screen and moves the cursor to its upper left corner.
        let before = match (screen, self.periods) {
            (true, _) => "\x1b[H\x1b[2J",
            (false, 0) => "",
            (false, _) => "\n",
        };
        let (from, to) = (style.zone.show_second(period.from), style.zone.show_second(period.to));
        let what = match report.records {
            0 => "no flow records".to_owned(),
            n => format!("{}, {}", plural(n, "record", "records"), ranking::summary(&shown, &style.zone)),
        };
        let heading = format!("{from} to {to}: {what}");
        writeln!(out, "{before}{}", style.paint.part(StylePart::Notable, &heading))?;
        if report.records == 0 {
            return Ok(());
        }
        let dropped = ranking::table(&shown, records.names(), &style, out)?;
        if self.periods == 0 || screen {
            dropped.iter().try_for_each(|dropped| writeln!(out, "{}", style.paint.part(StylePart::Faint, dropped)))?;
        }
        Ok(())
    }
}
