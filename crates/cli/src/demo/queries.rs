//! Runs queries as a user would: `netgrain` in a process of its own, with a command line that can be repeated.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A query and its result.
#[derive(Clone, Debug, serde::Serialize)]
pub struct QueryRun {
    /// The command line.
    pub command: String,
    /// Milliseconds from start to end of the process.
    pub ms: f64,
    /// True for exit status 0.
    pub found: bool,
    /// The standard output.
    pub text: String,
    /// The text that the query printed on standard error: its cost and counts.
    pub stderr: String,
}

impl QueryRun {
    /// Prints the command, its output and its cost.
    pub fn describe(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "   $ {}", self.command)?;
        self.text.lines().chain(self.stderr.lines()).try_for_each(|line| writeln!(out, "   {line}"))
    }
}

/// Runs `netgrain VERB --store STORE WORDS`.
pub fn query(verb: &str, store: &Path, words: &[&str]) -> QueryRun {
    let command = command_line(verb, store, words);
    let begun = Instant::now();
    let program = std::env::current_exe();
    let output = program.and_then(|p| Command::new(p).args([verb, "--store"]).arg(store).args(words).output());
    let ms = begun.elapsed().as_secs_f64() * 1e3;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    match output {
        Ok(o) => QueryRun { command, ms, found: o.status.success(), text: text(&o.stdout), stderr: text(&o.stderr) },
        Err(e) => {
            let stderr = format!("the query could not be run: {e}");
            QueryRun { command, ms, found: false, text: String::new(), stderr }
        }
    }
}

/// The lines of the output that are JSON objects of type `T`; other lines are skipped.
pub fn objects<T: serde::de::DeserializeOwned>(result: &QueryRun) -> Vec<T> {
    result.text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn command_line(verb: &str, store: &Path, words: &[&str]) -> String {
    let mut command = format!("netgrain {verb} --store {}", quoted(&store.display().to_string()));
    for word in words {
        command += " ";
        command += &quoted(word);
    }
    command
}

/// Quotes a word if a shell would otherwise split or expand it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// A query during the capture, for the packets of one host in the last two seconds. It reads packets from the ring and
/// from files. On a busy machine the capture may receive packets of the host late, so the query is repeated until it
/// finds some.
pub struct LiveQuery {
    store: PathBuf,
    filter: String,
    after: Duration,
    /// The time at which the query is due; `None` before the first call of [`Self::query_when_due`].
    due: Option<Instant>,
    pub result: Option<QueryRun>,
}

impl LiveQuery {
    /// A query for this host that is due when this time has passed since the first call of [`Self::query_when_due`].
    pub fn new(store: &Path, host: impl std::fmt::Display, after: Duration) -> Self {
        Self { store: store.to_owned(), filter: format!("host {host}"), after, due: None, result: None }
    }

    /// Runs the query when it is due.
    pub fn query_when_due(&mut self) {
        let due = *self.due.get_or_insert_with(|| Instant::now() + self.after);
        let is_found = self.result.as_ref().is_some_and(|result| result.found);
        if !is_found && Instant::now() >= due {
            let words = ["--from", "-2s", &self.filter, "--count", "--explain"];
            self.result = Some(query("packets", &self.store, &words));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_command_can_be_repeated_in_a_shell() {
        let words = ["--from", "2026-11-21T10:42:00Z", "src host 10.0.0.1", "it's"];
        assert_eq!(
            command_line("flows", Path::new("/a b/c"), &words),
            r"netgrain flows --store '/a b/c' --from 2026-11-21T10:42:00Z 'src host 10.0.0.1' 'it'\''s'"
        );
    }

    #[test]
    fn lines_that_are_not_objects_are_ignored() {
        let text = "{\"second\":5,\"packets\":1,\"tcp_syn\":0}\nnonsense\n{\"gap\":{}}".to_owned();
        let result = QueryRun { command: String::new(), ms: 0.0, found: true, text, stderr: String::new() };
        let rows: Vec<super::super::incident::Second> = objects(&result);
        assert_eq!(rows.len(), 1);
    }
}
