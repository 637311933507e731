//! `netgrain lang repl`: keeps bindings and explains actions, line by line.
//!
//! Input continues on the next line while it is incomplete ([`is_incomplete`]). Input of several lines also includes
//! following indented lines; an empty line or one without indentation ends it. Errors are shown with the lines as
//! typed.

use super::explain;
use crate::outcome::{Failure, Outcome};
use lang::syntax::{is_incomplete, parse};
use lang::{Compiled, Error, compile};
use std::io::{self, BufRead, IsTerminal, Lines, StdinLock, Write};

/// The help text of the prompt.
const USAGE: &str = "A binding (`web = has_port 80`) is stored, an action is explained; `netgrain lang functions` \
    lists the functions. Input continues on the next line after `do`, `=`, `(` or an operator; an empty line ends it. \
    `:t NAME` shows a type; `:q` or Ctrl-D ends.";

/// The name to which an expression is bound in order to compute its type.
const TYPE_BINDING: &str = "it_is";

/// Runs until the end of the input.
pub fn run() -> Result<Outcome, Failure> {
    let mut prompt =
        Prompt { is_terminal_input: io::stdin().is_terminal(), lines: io::stdin().lock().lines(), next: None };
    if prompt.is_terminal_input {
        writeln!(io::stderr(), "{USAGE}")?;
    }
    let mut session = Session::default();
    while let Some(text) = prompt.read()? {
        let reply = match text.trim() {
            "" => continue,
            ":q" | ":quit" | "quit" | "exit" => break,
            "?" | "help" | ":?" | ":h" | ":help" => {
                writeln!(io::stderr(), "{USAGE}")?;
                continue;
            }
            command if command.starts_with(':') => match command.split_once(char::is_whitespace) {
                Some((":t" | ":type", what)) => session.type_of(what.trim())?,
                _ => {
                    writeln!(io::stderr(), "`{command}` is not a command. {USAGE}")?;
                    continue;
                }
            },
            _ => session.enter(&text)?,
        };
        if let Reply::Wrong(shown) = reply {
            write!(io::stderr(), "{shown}")?;
        }
    }
    Ok(Outcome::Yes)
}

/// The source of input lines.
struct Prompt {
    /// True if the input is a terminal.
    is_terminal_input: bool,
    lines: Lines<StdinLock<'static>>,
    /// The line that ended the previous input and is the first line of the next input.
    next: Option<String>,
}

impl Prompt {
    fn line(&mut self, mark: &str) -> Result<Option<String>, Failure> {
        if let Some(line) = self.next.take() {
            return Ok(Some(line));
        }
        if self.is_terminal_input {
            write!(io::stderr(), "{mark} ")?;
            io::stderr().flush()?;
        }
        Ok(self.lines.next().transpose()?)
    }

    /// Reads one binding or expression with all its lines.
    fn read(&mut self) -> Result<Option<String>, Failure> {
        let Some(mut text) = self.line(">")? else { return Ok(None) };
        let mut has_block = false;
        while has_block || is_incomplete(&text) {
            let Some(line) = self.line("|")? else { break };
            let open = is_incomplete(&text);
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

/// The result of one input.
enum Reply {
    /// The input is valid and its result was printed or stored.
    Done,
    /// The input is invalid: the text of the error, with its position.
    Wrong(String),
}

/// The bindings that the user has entered: the text of each, and the names that it binds.
#[derive(Default)]
struct Session(Vec<(Vec<String>, String)>);

/// A program that consists of the known bindings and the typed text. The other fields convert a position in the program
/// to a position in the typed text.
struct Trial {
    text: String,
    /// The offset in `text` at which the text that the user typed begins.
    from: usize,
    /// The number of columns by which each line of the typed text is indented.
    indent: usize,
}

impl Session {
    /// Stores bindings, or explains an expression; see [`Reply`].
    fn enter(&mut self, typed: &str) -> Result<Reply, Failure> {
        let names: Vec<String> = match parse(typed) {
            Ok(bindings) => bindings.into_iter().map(|b| b.name).collect(),
            // If the typed text is an invalid binding, its error as a binding is more useful than its error as an
            // expression.
            Err(e) if typed.split_whitespace().any(|word| word == "=") && parse(&bound_to("it", typed)).is_err() => {
                return Ok(Reply::Wrong(e.show(typed, "line")));
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
                names.iter().try_for_each(|name| print_type(&compiled, name, name))?;
                self.0.retain(|(old, _)| !old.iter().any(|name| names.contains(name)));
                self.0.push((names, typed.to_owned()));
                Ok(Reply::Done)
            }
            Err(e) => Ok(Reply::Wrong(whole.shown(e, typed))),
        }
    }

    /// Prints the type of an expression.
    fn type_of(&self, typed: &str) -> Result<Reply, Failure> {
        let mut trial = Trial::of_expression(&self.texts(&[]), TYPE_BINDING, typed);
        trial.text.push_str("main = unit\n");
        match compile(&trial.text) {
            Ok(compiled) => print_type(&compiled, TYPE_BINDING, typed).map(|()| Reply::Done),
            Err(e) => Ok(Reply::Wrong(trial.shown(e, typed))),
        }
    }

    fn explain(&self, trial: Trial, typed: &str) -> Result<Reply, Failure> {
        match compile(&trial.text) {
            Ok(compiled) => {
                explain::table(&compiled, &mut io::stdout())?;
                Ok(Reply::Done)
            }
            Err(e) => Ok(Reply::Wrong(trial.shown(e, typed))),
        }
    }

    /// The known bindings without those that `names` replace.
    fn texts(&self, names: &[String]) -> String {
        let stays = |old: &Vec<String>| !old.iter().any(|name| names.contains(name));
        self.0.iter().filter(|(old, _)| stays(old)).map(|(_, text)| format!("{text}\n")).collect()
    }
}

fn print_type(compiled: &Compiled, name: &str, shown: &str) -> Result<(), Failure> {
    if let Some(binding) = compiled.bindings.iter().find(|b| b.name == name) {
        writeln!(io::stdout(), "{shown} : {}", binding.of)?;
    }
    Ok(())
}

/// Binds an expression to a name, indented by one column so that none of its lines is parsed as a binding.
fn bound_to(name: &str, typed: &str) -> String {
    let lines: String = typed.lines().map(|line| format!(" {line}\n")).collect();
    format!("{name} =\n{lines}")
}

impl Trial {
    fn of_expression(before: &str, name: &str, typed: &str) -> Self {
        let text = format!("{before}{}", bound_to(name, typed));
        Self { text, from: before.len() + name.len() + " =\n".len(), indent: 1 }
    }

    /// The error text with the typed lines, or with the whole program if the error is in earlier bindings.
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
