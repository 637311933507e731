//! Asking as a person would: `netgrain` in a process of its own, with a command that can be typed again.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A question and what came of it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct QueryRun {
    /// As it would be typed.
    pub command: String,
    /// From the start of the process to its end.
    pub ms: f64,
    /// Exit status 0.
    pub found: bool,
    /// Standard output.
    pub text: String,
    /// Standard error: what it cost, how much it was.
    pub stderr: String,
}

impl QueryRun {
    /// For people: the command, what it said, and what it cost.
    pub fn describe(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "   $ {}", self.command)?;
        self.text.lines().chain(self.stderr.lines()).try_for_each(|line| writeln!(out, "   {line}"))
    }
}

/// Asks `netgrain VERB --store STORE WORDS`.
pub fn query(verb: &str, store: &Path, words: &[&str]) -> QueryRun {
    let command = typed(verb, store, words);
    let begun = Instant::now();
    let program = std::env::current_exe();
    let output = program.and_then(|p| Command::new(p).args([verb, "--store"]).arg(store).args(words).output());
    let ms = begun.elapsed().as_secs_f64() * 1e3;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    match output {
        Ok(o) => QueryRun { command, ms, found: o.status.success(), text: text(&o.stdout), stderr: text(&o.stderr) },
        Err(e) => {
            let stderr = format!("the question could not be asked: {e}");
            QueryRun { command, ms, found: false, text: String::new(), stderr }
        }
    }
}

/// The objects of an answer to `--json`, as far as they are what is expected.
pub fn objects<T: serde::de::DeserializeOwned>(answer: &QueryRun) -> Vec<T> {
    answer.text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn typed(verb: &str, store: &Path, words: &[&str]) -> String {
    let mut command = format!("netgrain {verb} --store {}", quoted(&store.display().to_string()));
    for word in words {
        command += " ";
        command += &quoted(word);
    }
    command
}

/// In quotation marks where a shell would see more in it than one word.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The last two seconds of one host, asked once while packets come: ring and files answer as one.
pub struct LiveQuery {
    store: PathBuf,
    filter: String,
    after: Duration,
    /// Known once the capture runs.
    due: Option<Instant>,
    pub answer: Option<QueryRun>,
}

impl LiveQuery {
    /// About this host, so long after the first look.
    pub fn new(store: &Path, host: impl std::fmt::Display, after: Duration) -> Self {
        Self { store: store.to_owned(), filter: format!("host {host}"), after, due: None, answer: None }
    }

    /// Asks when it is time to.
    pub fn query_when_due(&mut self) {
        let due = *self.due.get_or_insert_with(|| Instant::now() + self.after);
        if self.answer.is_none() && Instant::now() >= due {
            let words = ["--from", "-2s", &self.filter, "--count", "--explain"];
            self.answer = Some(query("packets", &self.store, &words));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_typed_again() {
        let words = ["--from", "2026-11-21T10:42:00Z", "src host 10.0.0.1", "it's"];
        assert_eq!(
            typed("flows", Path::new("/a b/c"), &words),
            r"netgrain flows --store '/a b/c' --from 2026-11-21T10:42:00Z 'src host 10.0.0.1' 'it'\''s'"
        );
    }

    #[test]
    fn an_answer_that_is_no_object_says_nothing() {
        let text = "{\"second\":5,\"packets\":1,\"tcp_syn\":0}\nnonsense\n{\"gap\":{}}".to_owned();
        let answer = QueryRun { command: String::new(), ms: 0.0, found: true, text, stderr: String::new() };
        let rows: Vec<super::super::incident::Second> = objects(&answer);
        assert_eq!(rows.len(), 1);
    }
}
