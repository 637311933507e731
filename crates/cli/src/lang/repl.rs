//! `netgrain lang repl`: bindings are kept, actions explained, line by line.
//!
//! What is typed goes on as long as it cannot end ([`goes_on`]); once it has several lines, lines that are indented belong to it as well, and
//! an empty line, or one at the margin, ends it. Errors show the lines as they were typed.

use super::explain;
use crate::outcome::{Failure, Outcome};
use lang::syntax::{goes_on, parse};
use lang::{Compiled, Error, compile};
use std::io::{self, BufRead, IsTerminal, Lines, StdinLock, Write};

/// What the prompt takes.
const HOW: &str = "A binding (`web = has_port 80`) is kept, an action is explained; `netgrain lang functions` lists the words. Lines go on behind \
    `do`, `=`, `(` or an operator; an empty line ends them. `:t NAME` shows a type; `:q` or Ctrl-D ends.";

/// What it is called for which a type is asked.
const PROMPT_MORE: &str = "it_is";

/// Runs until the end of the input.
pub fn run() -> Result<Outcome, Failure> {
    let mut prompt = Prompt { wants_more: io::stdin().is_terminal(), lines: io::stdin().lock().lines(), next: None };
    if prompt.wants_more {
        writeln!(io::stderr(), "{HOW}")?;
    }
    let mut known = Known::default();
    while let Some(text) = prompt.read()? {
        let done = match text.trim() {
            "" => continue,
            ":q" | ":quit" | "quit" | "exit" => break,
            "?" | "help" | ":?" | ":h" | ":help" => {
                writeln!(io::stderr(), "{HOW}")?;
                continue;
            }
            command if command.starts_with(':') => match command.split_once(char::is_whitespace) {
                Some((":t" | ":type", what)) => known.type_of(what.trim())?,
                _ => {
                    writeln!(io::stderr(), "`{command}` is no command. {HOW}")?;
                    continue;
                }
            },
            _ => known.take(&text)?,
        };
        if let Err(shown) = done {
            write!(io::stderr(), "{shown}")?;
        }
    }
    Ok(Outcome::Yes)
}

/// Where lines come from.
struct Prompt {
    /// Somebody sits before it.
    wants_more: bool,
    lines: Lines<StdinLock<'static>>,
    /// A line that ended what was before it.
    next: Option<String>,
}

impl Prompt {
    fn line(&mut self, sign: &str) -> Result<Option<String>, Failure> {
        if let Some(line) = self.next.take() {
            return Ok(Some(line));
        }
        if self.wants_more {
            write!(io::stderr(), "{sign} ")?;
            io::stderr().flush()?;
        }
        Ok(self.lines.next().transpose()?)
    }

    /// One binding or expression, with all its lines.
    fn read(&mut self) -> Result<Option<String>, Failure> {
        let Some(mut text) = self.line(">")? else { return Ok(None) };
        let mut has_block = false;
        while has_block || goes_on(&text) {
            let Some(line) = self.line("|")? else { break };
            let open = goes_on(&text);
            if line.trim().is_empty() {
                break;
            }
            if !open && !line.starts_with(char::is_whitespace) {
                self.next = Some(line);
                break;
            }
            has_block = true;
            text.push('\n');
            text.push_str(&line);
        }
        Ok(Some(text))
    }
}

/// The bindings so far, each text with its names.
#[derive(Default)]
struct Known(Vec<(Vec<String>, String)>);

/// A program of what is known and what was typed, and how places in it are those of the typed text.
struct Trial {
    text: String,
    /// Where the typed text begins.
    from: usize,
    /// Columns before each of its lines.
    indent: usize,
}

impl Known {
    /// Keeps bindings, explains an expression; else the error as it is shown.
    fn take(&mut self, typed: &str) -> Result<Result<(), String>, Failure> {
        let names: Vec<String> = match parse(typed) {
            Ok(bindings) => bindings.into_iter().map(|b| b.name).collect(),
            // A wrong binding is better shown as such than as the expression that it is not either.
            Err(e) if typed.split_whitespace().any(|word| word == "=") && parse(&under("it", typed)).is_err() => {
                return Ok(Err(e.show(typed, "line")));
            }
            Err(_) => return self.explain(Trial::of_expression(&self.texts(&[]), "main", typed), typed),
        };
        let before = self.texts(&names);
        let trial = Trial { text: format!("{before}{typed}\n"), from: before.len(), indent: 0 };
        if names.iter().any(|name| name == "main") {
            return self.explain(trial, typed);
        }
        let whole = Trial { text: format!("{}main = unit\n", trial.text), ..trial };
        match compile(&whole.text) {
            Ok(compiled) => {
                names.iter().try_for_each(|name| described(&compiled, name, name))?;
                self.0.retain(|(old, _)| !old.iter().any(|name| names.contains(name)));
                self.0.push((names, typed.to_owned()));
                Ok(Ok(()))
            }
            Err(e) => Ok(Err(whole.shown(e, typed))),
        }
    }

    /// Shows the type of an expression.
    fn type_of(&self, typed: &str) -> Result<Result<(), String>, Failure> {
        let mut trial = Trial::of_expression(&self.texts(&[]), PROMPT_MORE, typed);
        trial.text.push_str("main = unit\n");
        match compile(&trial.text) {
            Ok(compiled) => described(&compiled, PROMPT_MORE, typed).map(Ok),
            Err(e) => Ok(Err(trial.shown(e, typed))),
        }
    }

    fn explain(&self, trial: Trial, typed: &str) -> Result<Result<(), String>, Failure> {
        match compile(&trial.text) {
            Ok(compiled) => Ok(Ok(explain::table(&compiled, &mut io::stdout())?)),
            Err(e) => Ok(Err(trial.shown(e, typed))),
        }
    }

    /// All but those that `names` bind anew.
    fn texts(&self, names: &[String]) -> String {
        let stays = |old: &Vec<String>| !old.iter().any(|name| names.contains(name));
        self.0.iter().filter(|(old, _)| stays(old)).map(|(_, text)| format!("{text}\n")).collect()
    }
}

fn described(compiled: &Compiled, name: &str, shown: &str) -> Result<(), Failure> {
    if let Some(known) = compiled.bindings.iter().find(|b| b.name == name) {
        writeln!(io::stdout(), "{shown} : {}", known.of)?;
    }
    Ok(())
}

/// An expression under a name, one column to the right so that none of its lines is taken for a binding.
fn under(name: &str, typed: &str) -> String {
    let lines: String = typed.lines().map(|line| format!(" {line}\n")).collect();
    format!("{name} =\n{lines}")
}

impl Trial {
    fn of_expression(before: &str, name: &str, typed: &str) -> Self {
        let text = format!("{before}{}", under(name, typed));
        Self { text, from: before.len() + name.len() + " =\n".len(), indent: 1 }
    }

    /// The error as it is shown: with the typed lines, unless it is about what was known before.
    fn shown(&self, e: Error, typed: &str) -> String {
        let own = |at: usize| {
            let before = self.text.get(self.from..at)?;
            at.checked_sub(self.from + self.indent * (before.matches('\n').count() + 1))
        };
        match (own(e.span.start), own(e.span.end)) {
            (Some(start), Some(end)) if end <= typed.len() => Error { span: start..end, ..e }.show(typed, "line"),
            _ => e.show(&self.text, "line"),
        }
    }
}
