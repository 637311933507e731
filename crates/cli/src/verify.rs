//! `netgrain verify`: compares files with their checksums and indexes.

use crate::outcome::{Failure, Outcome};
use crate::style::plural;
use base::units::{show_bytes, show_count};
use base::{Note, Tally};
use clap::Args;
use serde_json::json;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use store::DiskDevice;
use upkeep::verify::{Finding, Level, Totals, Verify};

/// The time between two updates of the progress line on a terminal.
const PROGRESS: Duration = Duration::from_millis(200);

#[derive(Args)]
#[command(after_help = "Examples:
  netgrain verify /data/store                  every file: order, checksums, counts, ledger, gaps
  netgrain verify /data/store/eth1/2026/11/21  one day
  netgrain verify --quick --json /data/store   indexes, lengths and names only, for a timer
  netgrain verify capture.pcapng               a foreign capture, as far as its format allows")]
pub struct VerifyArgs {
    /// Stores, directories inside of a store, or capture files
    #[arg(value_name = "PATH", required_unless_present = "store")]
    pub paths: Vec<PathBuf>,
    /// Directory of a store
    #[arg(long, value_name = "DIR", value_parser = crate::values::directory)]
    pub store: Option<PathBuf>,
    /// Do not read packets; check indexes, lengths and names only
    #[arg(long)]
    pub quick: bool,
    /// Print one JSON object per finding, and one with the totals
    #[arg(long)]
    pub json: bool,
}

/// Runs the verb. The outcome is `No` (exit status 1) if there is an error in a file.
pub fn run(args: &VerifyArgs) -> Result<Outcome, Failure> {
    let (mut screen, is_quick) = (ProgressLine::new(args.json), args.quick);
    let mut verify = Verify::new(DiskDevice::plain(), args.quick, |finding, totals| screen.finding(finding, totals))
        .checking_journals(columns::judge_journal)
        .reading(columns::judge_sealed)
        .counting(move |interface, stored, recordings| {
            let missing = || {
                let mut found = columns::missing_rows(interface, stored, recordings)?;
                if !is_quick {
                    found.extend(columns::missing_flow_records(interface, recordings)?);
                }
                Ok(found)
            };
            missing().map_err(|e: columns::ColumnsError| std::io::Error::other(e))
        });
    args.store.iter().chain(&args.paths).for_each(|path| verify.path(&sys::nofollow::resolve(path)));
    let totals = *verify.totals();
    screen.totals(&totals)?;
    match totals.unreadable {
        0 => Ok(Outcome::of(totals.damage == 0)),
        n => Err(Failure::say(format!("{} could not be checked, see above", file_count(n)))),
    }
}

/// Returns the number of files as text.
pub fn file_count(n: u64) -> String {
    plural(n, "file or directory", "files and directories")
}

/// Returns the lines about losses: the losses that the ledger counts, by cause, and the losses whose number is unknown.
fn losses(ledger: &Tally, has_unfinished: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let causes: Vec<String> =
        ledger.losses().map(|(cause, packets)| format!("{} {}", show_count(packets), cause.name())).collect();
    if !causes.is_empty() {
        lines.push(format!(
            "lost, by the ledger: {} ({})",
            plural(ledger.lost_total(), "packet", "packets"),
            causes.join(", ")
        ));
    }
    let tails = ledger.notes[Note::TailUnknown as usize];
    if tails > 0 {
        let files = plural(tails, "file", "files");
        lines.push(format!(
            "lost, unknown: at the end of {files}, because the count of offered packets was lost too (tail_unknown)"
        ));
    }
    if has_unfinished {
        lines.push(
            "lost, unknown: the losses of a recorder that left unfinished packet files; netgrain repair or the next \
             recorder counts them"
                .to_owned(),
        );
    }
    lines
}

struct ProgressLine {
    json: bool,
    terminal: bool,
    shown: Instant,
    /// The error of the first failed write to standard output.
    outcome: io::Result<()>,
}

impl ProgressLine {
    fn new(json: bool) -> Self {
        Self { json, terminal: io::stderr().is_terminal(), shown: Instant::now(), outcome: Ok(()) }
    }

    fn finding(&mut self, finding: &Finding, totals: &Totals) {
        if self.outcome.is_ok() {
            self.outcome = self.print(finding);
        }
        if self.terminal && self.shown.elapsed() >= PROGRESS {
            self.shown = Instant::now();
            sys::stderr::part(format_args!(
                "\r{}, {}\r",
                plural(totals.files, "file", "files"),
                show_bytes(totals.bytes)
            ));
        }
    }

    fn print(&self, finding: &Finding) -> io::Result<()> {
        if !self.json {
            let word = match finding.kind.level() {
                Level::Damage => "WRONG",
                Level::Note => "note",
                Level::Unreadable => "UNREADABLE",
            };
            return writeln!(io::stdout(), "{word} {finding}");
        }
        let level = match finding.kind.level() {
            Level::Damage => "damage",
            Level::Note => "note",
            Level::Unreadable => "unreadable",
        };
        let object = json!({
            "path": finding.path.to_string_lossy(),
            "kind": finding.kind.name(),
            "level": level,
            "byte": finding.byte,
            "text": finding.text,
            "remedy": finding.remedy(),
        });
        crate::outcome::json(&json!({ "finding": object }))
    }

    fn totals(self, totals: &Totals) -> Result<(), Failure> {
        self.outcome?;
        if self.json {
            let object = json!({
                "files": totals.files,
                "open": totals.open,
                "packets": totals.packets,
                "bytes": totals.bytes,
                "row_files": totals.row_files,
                "damage": totals.damage,
                "notes": totals.notes,
                "unreadable": totals.unreadable,
                "ledger": engine::Counts::from(&totals.ledger),
            });
            crate::outcome::json(&json!({ "verified": object }))?;
            return Ok(());
        }
        let open = if totals.open > 0 { format!(" ({} being recorded)", totals.open) } else { String::new() };
        let verdict = match totals.damage {
            0 if totals.unreadable > 0 && totals.files + totals.row_files == 0 => "nothing could be checked".to_owned(),
            0 if totals.unreadable > 0 => "no problem in the files that could be checked".to_owned(),
            0 => "no problems".to_owned(),
            n => plural(n, "problem", "problems"),
        };
        let data_types = match totals.row_files {
            0 => String::new(),
            n => format!("; {} of records and rows", plural(n, "file", "files")),
        };
        writeln!(
            io::stdout(),
            "{}{open}, {}, {}{data_types}: {verdict}",
            plural(totals.files, "file", "files"),
            plural(totals.packets, "packet", "packets"),
            show_bytes(totals.bytes)
        )?;
        for line in losses(&totals.ledger, totals.unfinished > 0) {
            writeln!(io::stdout(), "{line}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Cause;

    #[test]
    fn losses_are_listed_by_cause_and_unknown_losses_are_marked() {
        let mut ledger = Tally { offered: 5, stored: 5, ..Tally::default() };
        assert!(losses(&ledger, false).is_empty());
        ledger.add_lost(Cause::Crash, 1141);
        ledger.add_lost(Cause::Disk, 7);
        let lines = losses(&ledger, false);
        assert_eq!(lines, ["lost, by the ledger: 1 148 packets (7 disk, 1 141 crash)"]);
        ledger.notes[Note::TailUnknown as usize] = 1;
        let lines = losses(&ledger, true);
        assert!(lines.len() == 3 && lines[1].starts_with("lost, unknown: at the end of 1 file"), "{lines:?}");
        assert!(lines[2].contains("netgrain repair"), "{lines:?}");
    }
}
