//! `netgrain lang`: checks, explains, formats and tries out programs of the packet language.

mod explain;
mod repl;
mod replay;

use crate::outcome::{Failure, Outcome, json};
use clap::{Args, Subcommand};
use lang::{Compiled, compile, compile_for};
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;

#[derive(Args)]
pub struct LangArgs {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Subcommand)]
pub enum Verb {
    /// Check a program; report the position and the cause of an error, with advice
    Check(ProgramArgs),
    /// Show types and effects of a program, and for each stage whether it runs in the kernel, the reason, and its cost
    Explain(ExplainArgs),
    /// Format a program
    Fmt(FmtArgs),
    /// Run a program on a capture and count its decisions
    Run(RunArgs),
    /// Evaluate programs interactively, line by line
    Repl,
    /// Print the reference of all functions, as Markdown
    Functions,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
pub struct TextArgs {
    /// File with the program; - for standard input
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Text of the program
    #[arg(short = 'e', long, value_name = "PROGRAM")]
    pub expression: Option<String>,
}

#[derive(Args)]
pub struct ProgramArgs {
    #[command(flatten)]
    pub text: TextArgs,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
#[command(after_help = "Example:
  netgrain lang explain -e 'main = ip >-> when is_tcp (forward \"eth1\") >-> steer_flow'")]
pub struct ExplainArgs {
    #[command(flatten)]
    pub program: ProgramArgs,
    /// Also print the intermediate representation
    #[arg(long)]
    pub ir: bool,
}

#[derive(Args)]
pub struct FmtArgs {
    #[command(flatten)]
    pub text: TextArgs,
    /// Rewrite the file instead of printing the program
    #[arg(long, requires = "file", conflicts_with = "expression")]
    pub write: bool,
}

#[derive(Args)]
#[command(after_help = "Example:
  netgrain lang run -r trace.pcap -e 'main = par tcp udp >-> steer_flow' --print")]
pub struct RunArgs {
    #[command(flatten)]
    pub program: ProgramArgs,
    /// Capture to run the program on (pcap, pcapng, RAW, also compressed as .gz or .zst; - for standard input)
    #[arg(short = 'r', long = "read", value_name = "CAPTURE")]
    pub read: PathBuf,
    /// Also print one line per packet
    #[arg(long)]
    pub print: bool,
    /// Stop after this many packets
    #[arg(short = 'c', long, value_name = "N", value_parser = crate::values::count)]
    pub packets: Option<u64>,
    /// Key of the flow hashes
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = base::units::whole::<u64>(0..=u64::MAX))]
    pub hash_key: u64,
}

impl LangArgs {
    /// The file that the verb writes, if any.
    pub const fn written(&self) -> &Option<PathBuf> {
        match &self.verb {
            Verb::Fmt(args) if args.write => &args.text.file,
            _ => &None,
        }
    }
}

/// Runs the verb.
pub fn run(args: &LangArgs) -> Result<Outcome, Failure> {
    match &args.verb {
        Verb::Check(args) => check(args),
        Verb::Explain(args) => {
            let (compiled, _) = program(&args.program.text)?;
            explain::explain(&compiled, args)
        }
        Verb::Fmt(args) => format_program(args),
        Verb::Run(args) => {
            let (text, name) = text(&args.program.text)?;
            replay::run(args, |link_type| compile_for_link(link_type, &text, &name))
        }
        Verb::Repl => repl::run(),
        Verb::Functions => {
            write!(std::io::stdout(), "{}", lang::table::reference())?;
            Ok(Outcome::Yes)
        }
    }
}

/// The text of the program and its name in messages.
fn text(args: &TextArgs) -> Result<(String, String), Failure> {
    match (&args.expression, &args.file) {
        (Some(text), _) => Ok((text.clone(), "program".into())),
        (None, Some(path)) => {
            let read = if path.as_os_str() == "-" {
                std::io::read_to_string(std::io::stdin())
            } else {
                std::fs::read_to_string(path)
            };
            let name = path.display().to_string();
            let advice =
                if name.contains('=') { "pass the text of a program with -e" } else { "name a file with a program" };
            read.map(|text| (text, name.clone()))
                .map_err(|e| Failure::Said(format!("{name}: {}; {advice}", sys::advice::cause(&e))))
        }
        (None, None) => Err(Failure::say("no program; write -e 'main = …' or name a file")),
    }
}

/// Compiles the program. An error is printed with its source line, and is also returned as a failure of one line.
fn program(args: &TextArgs) -> Result<(Compiled, String), Failure> {
    let (text, name) = text(args)?;
    Ok((compile_for_link(wire::link::ETHERNET, &text, &name)?, name))
}

/// Compiles a program for frames of this link type.
fn compile_for_link(link_type: u16, text: &str, name: &str) -> Result<Compiled, Failure> {
    match compile_for(text, link_type) {
        Ok(compiled) => Ok(compiled),
        Err(e) => Err(print_error(&e, text, name)?),
    }
}

/// Prints the source line of the error, and returns the error as a failure.
fn print_error(e: &lang::Error, text: &str, name: &str) -> Result<Failure, Failure> {
    write!(std::io::stderr(), "{}", e.excerpt(text))?;
    Ok(failure_of(e, text, name))
}

fn failure_of(e: &lang::Error, text: &str, name: &str) -> Failure {
    let (line, column) = e.place(text);
    let help = e.help.as_ref().map_or(String::new(), |h| format!("; {h}"));
    Failure::Said(format!("{name}:{line}:{column}: {}{help}", e.what))
}

fn check(args: &ProgramArgs) -> Result<Outcome, Failure> {
    let (text, name) = text(&args.text)?;
    let compiled = match compile(&text) {
        Ok(compiled) => compiled,
        Err(e) if args.json => {
            let (line, column) = e.place(&text);
            json(&json!({"ok": false, "name": name, "line": line, "column": column, "error": e.what, "help": e.help}))?;
            return Err(failure_of(&e, &text, &name));
        }
        Err(e) => return Err(print_error(&e, &text, &name)?),
    };
    let cost = compiled.program.cost();
    let (stages, effects) = (compiled.program.stages.len(), compiled.program.effects());
    if args.json {
        let effects = effects.to_string();
        json(&json!({"ok": true, "name": name, "stages": stages, "instructions": cost.size, "effects": effects}))?;
    } else {
        writeln!(std::io::stdout(), "{name}: {stages} stages, {} instructions; effects: {effects}", cost.size)?;
    }
    Ok(Outcome::Yes)
}

fn format_program(args: &FmtArgs) -> Result<Outcome, Failure> {
    let (text, name) = text(&args.text)?;
    let formatted = lang::syntax::format(&text).map_err(|e| failure_of(&e, &text, &name))?;
    match &args.text.file {
        Some(path) if args.write && path.as_os_str() != "-" => {
            if formatted != text {
                std::fs::write(path, formatted).map_err(|e| Failure::Said(format!("{name}: {e}")))?;
            }
        }
        _ => write!(std::io::stdout(), "{formatted}")?,
    }
    Ok(Outcome::Yes)
}
