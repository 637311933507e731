//! `netgrain verify`: compares files with their checksums and indexes.

use crate::outcome::{Failure, Outcome};
use base::units::{show_bytes, show_count};
use clap::Args;
use serde_json::json;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use store::DiskDevice;
use upkeep::verify::{Finding, Level, Totals, Verify};

/// The period of progress on a terminal.
const PROGRESS: Duration = Duration::from_millis(200);

#[derive(Args)]
#[command(after_help = "Examples:
  netgrain verify /data/store                  every file: order, checksums, counts, ledger, gaps
  netgrain verify /data/store/eth1/2026/11/21  one day
  netgrain verify --quick --json /data/store   indexes, lengths and names only, for a timer
  netgrain verify capture.pcapng               captures of others, as far as their format tells")]
pub struct VerifyArgs {
    /// Stores, folders below one, or capture files of anyone
    #[arg(value_name = "PATH", required_unless_present = "store")]
    pub paths: Vec<PathBuf>,
    /// A store
    #[arg(long, value_name = "DIR", value_parser = crate::values::folder)]
    pub store: Option<PathBuf>,
    /// Leave the packets unread: indexes, lengths and names only
    #[arg(long)]
    pub quick: bool,
    /// One object per finding, and one with the totals
    #[arg(long)]
    pub json: bool,
}

/// Runs the verb. `No` if there is an error in a file.
pub fn run(args: &VerifyArgs) -> Result<Outcome, Failure> {
    let mut screen = ProgressLine::new(args.json);
    let mut verify = Verify::new(DiskDevice::plain(), args.quick, |finding, totals| screen.finding(finding, totals))
        .checking_journals(columns::judge_journal)
        .reading(columns::judge_sealed)
        .counting(|interface, stored, recordings| {
            columns::missing_rows(interface, stored, recordings).map_err(std::io::Error::other)
        });
    args.store.iter().chain(&args.paths).for_each(|path| verify.path(&sys::nofollow::resolve(path)));
    let totals = *verify.totals();
    screen.totals(&totals)?;
    match totals.unreadable {
        0 => Ok(Outcome::of(totals.damage == 0)),
        n => Err(Failure::say(format!("{} could not be judged, see above", file_count(n)))),
    }
}

/// The number of files as text.
pub fn file_count(n: u64) -> String {
    plural(n, "file or folder", "files and folders")
}

fn plural(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", show_count(n), if n == 1 { one } else { many })
}

struct ProgressLine {
    json: bool,
    terminal: bool,
    shown: Instant,
    /// The first error of the output.
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
            0 if totals.unreadable > 0 && totals.files + totals.row_files == 0 => {
                "nothing that could be judged".to_owned()
            }
            0 if totals.unreadable > 0 => "nothing is wrong with what could be judged".to_owned(),
            0 => "nothing is wrong".to_owned(),
            n => plural(n, "thing is wrong", "things are wrong"),
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
        Ok(())
    }
}
