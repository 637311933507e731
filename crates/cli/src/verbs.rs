//! The table of all verbs, from which the parser, the help, the man pages and the completions are generated. The
//! arguments of a verb are in its own file.

use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Packets, flow records and time series of network interfaces.
#[derive(Parser)]
#[command(name = "netgrain", version, about, propagate_version = true, max_term_width = 110)]
pub struct Netgrain {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Capture packets; store and export packets, flow records and time series
    Run(Box<crate::run::args::RunArgs>),
    /// Record all packets of an interface with timestamps, and account for every lost packet
    Record(Box<crate::run::args::RecordArgs>),
    /// Check or print the configuration of `netgrain run`
    Config(crate::config::ConfigArgs),
    /// Read the packets of a running engine from another process
    Listen(crate::listen::ListenArgs),
    /// Distribute the packets of a running engine among several processes
    Group(Box<crate::group::GroupArgs>),
    /// Find packets by time and filter, in sealed files, the growing file and the ring
    Packets(Box<crate::packets::PacketsArgs>),
    /// Find flow records by time and filter; sum them, rank them, and extract their packets
    Flows(Box<crate::flows::FlowsArgs>),
    /// Print the time series of an interface: packets, bytes, flows, bursts and losses per second or per step
    Series(Box<crate::series::SeriesArgs>),
    /// Try the detectors of changes on recorded time series
    Alarms(Box<crate::alarms::AlarmsArgs>),
    /// Index foreign captures, so that queries search them as fast as a store
    Index(Box<crate::index::IndexArgs>),
    /// Remove or archive the oldest files of a store, by free space, size and age
    Retain(Box<crate::retain::RetainArgs>),
    /// Verify a store or captures: order of packets, checksums, counts, agreement of ledger and packets, gaps between
    /// files
    Verify(Box<crate::verify::VerifyArgs>),
    /// Repair a store or a capture after a crash or a disk error
    Repair(Box<crate::repair::RepairArgs>),
    /// Convert captures: change the format, slice, split, merge, anonymise
    Convert(Box<crate::convert::ConvertArgs>),
    /// Remove duplicates from captures, or report them, by class: switching, routing, NAT, proxying, fragment
    Dedup(Box<crate::dedup::DedupArgs>),
    /// Find settings of the host that make capture fail, lose packets or store wrong data, and fix them
    Doctor(Box<crate::doctor::DoctorArgs>),
    /// Send test traffic: frames with a sequence number, a departure time and a checksum
    Gen(crate::generate::GenArgs),
    /// Send captured packets again, with their timing or at a rate, unchanged or rewritten
    Replay(Box<crate::replay::args::ReplayArgs>),
    /// Measure one-way delay, delay variation, loss, order and bandwidth with the trains of `netgrain gen`
    Owd(Box<crate::owd::OwdArgs>),
    /// Measure round-trip delay and one-way delays with STAMP (RFC 8762): sender and reflector
    Stamp(crate::stamp::StampArgs),
    /// Check the stored frames of `netgrain gen` for missing, duplicated, reordered and damaged frames
    Check(crate::check::CheckArgs),
    /// Check, explain, format and run programs of the packet language
    Lang(Box<crate::lang::LangArgs>),
    /// Run a demonstration of less than a minute: trace one incident through time series, flow records and packets
    Demo(crate::demo::DemoArgs),
    /// Print shell completions
    #[command(hide = true)]
    Completions {
        /// Shell to print the completions for
        shell: clap_complete::Shell,
    },
    /// Write man pages into a directory
    #[command(hide = true)]
    Man {
        /// Directory to write the man pages into
        dir: PathBuf,
    },
}

/// The examples in the help texts, for tests.
#[cfg(test)]
pub mod examples {
    use super::{Command, Netgrain};
    use clap::{CommandFactory, Parser};

    /// The examples in the help of every verb, split as by a shell.
    pub fn lines() -> Vec<Vec<String>> {
        let (mut found, mut left) = (Vec::new(), vec![Netgrain::command()]);
        while let Some(command) = left.pop() {
            left.extend(command.get_subcommands().cloned());
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            found.extend(help.lines().filter_map(|line| line.strip_prefix("  netgrain ")).map(words));
        }
        found
    }

    /// The parsed examples.
    pub fn commands() -> Vec<Command> {
        let parse = |line: Vec<String>| {
            let all = ["netgrain"].into_iter().chain(line.iter().map(String::as_str));
            Netgrain::try_parse_from(all).map(|n| n.command).unwrap_or_else(|e| panic!("{line:?}: {e}"))
        };
        lines().into_iter().map(parse).collect()
    }

    /// Returns the words of a line up to a pipe, a redirection or a comment. A comment follows two spaces or is in
    /// parentheses.
    pub fn words(line: &str) -> Vec<String> {
        let (mut all, mut word, mut quote) = (Vec::new(), String::new(), None);
        let mut rest = line.chars().peekable();
        while let Some(c) = rest.next() {
            match (c, quote) {
                ('\'' | '"', None) => quote = Some(c),
                (c, Some(q)) if c == q => quote = None,
                (' ', None) => {
                    all.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty()));
                    if matches!(rest.peek(), Some(' ' | '|' | '>' | '(' | '#') | None) {
                        return all;
                    }
                }
                (c, _) => word.push(c),
            }
        }
        all.extend(Some(word).filter(|word| !word.is_empty()));
        all
    }
}

/// Generates `docs/reference/command-line.md` from the table of verbs.
#[cfg(test)]
mod manual {
    use super::Netgrain;
    use clap::{Arg, Command, CommandFactory};
    use std::fmt::Write;
    use std::path::Path;

    const ABOUT: &str = "# Command line

This page lists each verb of `netgrain` with its arguments and flags. `netgrain VERB --help` prints the same with \
examples. Exit
statuses: `exit-codes.md`; documents of `--json`: `json.md`; keys of the configuration: `configuration.md`.

In the line below a heading, brackets mark optional arguments, and `...` marks arguments that can be repeated. A flag
without a default in the table is off, or its meaning states the default. Each verb also has `--help`.

This page is generated from the table of verbs: `NETGRAIN_WRITE_DOCS=1 cargo test -p netgrain manual`.
";

    fn page() -> String {
        let mut out = String::from(ABOUT);
        let mut netgrain = Netgrain::command().disable_help_subcommand(true);
        netgrain.build();
        netgrain.get_subcommands_mut().for_each(|verb| section(verb, "netgrain", 2, &mut out));
        out
    }

    fn section(verb: &mut Command, path: &str, level: usize, out: &mut String) {
        let path = format!("{path} {}", verb.get_name());
        let about = verb.get_long_about().or(verb.get_about()).map(ToString::to_string).unwrap_or_default();
        let usage = verb.render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ").split_whitespace().collect::<Vec<_>>().join(" ");
        let _ = writeln!(out, "\n{} `{path}`\n\n{}.\n\n    {usage}\n", "#".repeat(level), about.trim_end_matches('.'));
        let shown = |arg: &&Arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str());
        let rows: Vec<String> = verb.get_arguments().filter(shown).map(row).collect();
        if !rows.is_empty() {
            let _ = writeln!(out, "| argument | default | meaning |\n|---|---|---|\n{}", rows.join("\n"));
        }
        verb.get_subcommands_mut().for_each(|inner| section(inner, &path, level + 1, out));
    }

    fn row(arg: &Arg) -> String {
        let mut names: Vec<String> = arg.get_short().map(|short| format!("-{short}")).into_iter().collect();
        names.extend(arg.get_long().map(|long| format!("--{long}")));
        let takes = arg.get_action().takes_values();
        let values = arg.get_value_names().unwrap_or_default().iter().map(|name| format!("<{name}>"));
        let values = values.collect::<Vec<_>>().join(" ");
        let name = match (names.is_empty(), takes) {
            (true, _) => values,
            (false, true) => format!("{} {values}", names.join(", ")),
            (false, false) => names.join(", "),
        };
        let usual = if takes { arg.get_default_values() } else { &[] };
        let usual: Vec<String> = usual.iter().map(|value| format!("`{}`", value.to_string_lossy())).collect();
        let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
        let possible: Vec<String> =
            arg.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
        let possible =
            if takes && !possible.is_empty() { format!(" ({})", possible.join(", ")) } else { String::new() };
        let cell = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
        format!("| `{}` | {} | {} |", cell(&name), usual.join(", "), cell(&(help + &possible)))
    }

    #[test]
    fn the_command_line_page_matches_the_table_of_verbs() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/command-line.md");
        let (written, made) = (std::fs::read_to_string(&path).unwrap_or_default(), page());
        if written != made && std::env::var_os("NETGRAIN_WRITE_DOCS").is_some() {
            return std::fs::write(&path, made).expect("the page can be written");
        }
        assert!(
            written == made,
            "docs/reference/command-line.md is out of date; run this test with NETGRAIN_WRITE_DOCS=1"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use std::path::Path;

    #[test]
    fn clap_accepts_the_table_of_verbs() {
        Netgrain::command().debug_assert();
    }

    #[test]
    fn every_example_in_a_help_text_parses() {
        assert_eq!(examples::words("flows 'a b' -w - tcp | x").join(","), "flows,a b,-w,-,tcp");
        assert!(examples::commands().len() > 50);
    }

    /// The help of each verb, also of inner verbs.
    fn all_verbs() -> Vec<clap::Command> {
        let (mut all, mut left) = (Vec::new(), vec![Netgrain::command()]);
        while let Some(command) = left.pop() {
            left.extend(command.get_subcommands().cloned());
            all.push(command);
        }
        all
    }

    #[test]
    fn a_paragraph_of_a_help_text_is_one_line_which_only_the_terminal_wraps() {
        let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
        for verb in all_verbs() {
            let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            let lines: Vec<&str> = help.lines().collect();
            for two in lines.windows(2) {
                assert!(!is_prose(two[0]) || !is_prose(two[1]), "{}: {two:?}", verb.get_name());
            }
        }
    }

    #[test]
    fn a_heading_of_the_help_contains_only_its_own_flags() {
        let mut headings = 0;
        for verb in all_verbs() {
            for arg in verb.get_arguments() {
                let (id, heading) = (arg.get_id().as_str(), arg.get_help_heading());
                let is_capture = ["run", "record"].contains(&verb.get_name());
                let expected = match id {
                    "keep_free" | "max_size" | "max_age" | "archive" | "wait_for_readers"
                        if is_capture || verb.get_name() == "retain" =>
                    {
                        Some("Retention")
                    }
                    "allow_lossless" | "allow_forward" | "reader_timeout" if is_capture => Some("Listeners"),
                    id if id.starts_with("socket") && is_capture => Some("Listeners"),
                    _ => None,
                };
                let is_expected = match (heading, expected) {
                    (Some(heading), Some(expected)) => heading.starts_with(expected),
                    (heading, expected) => heading == expected,
                };
                assert!(is_expected, "{} --{id}: {heading:?}", verb.get_name());
                headings += usize::from(heading.is_some());
            }
        }
        assert!(headings > 20, "{headings}");
    }

    #[test]
    fn the_usage_of_a_verb_with_a_filter_has_it_once_in_each_line() {
        for name in ["packets", "flows", "series"] {
            let mut verb = Netgrain::command().find_subcommand(name).expect("a verb").clone();
            let usage = verb.render_usage().to_string();
            for line in usage.lines().filter(|line| !line.contains("series --live")) {
                assert!(line.ends_with("[FILTER]"), "{line}");
            }
            let help = verb.render_help().to_string();
            assert_eq!(help.lines().filter(|line| line.trim_start().starts_with("[FILTER]...")).count(), 1, "{help}");
        }
    }

    /// The README and all pages of these directories of the book.
    fn pages(directories: &[&str]) -> String {
        let mut all = include_str!("../../../README.md").to_owned();
        for directory in directories {
            let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(directory);
            for entry in std::fs::read_dir(directory).expect("the directory of the pages") {
                let path = entry.expect("an entry").path();
                if path.is_file() {
                    all += &std::fs::read_to_string(path).expect("a page");
                }
            }
        }
        all
    }

    /// The lines of the shell blocks in the README and in the pages of `docs/start` and `docs/how-to`.
    fn shell_lines() -> Vec<String> {
        let all = pages(&["start", "how-to"]);
        let blocks = all.split("\n```sh").skip(1).filter_map(|rest| rest.split("\n```").next());
        blocks.flat_map(|block| block.lines().skip(1).map(str::to_owned)).collect()
    }

    /// Returns the error in a command from the text of a page: a verb or a flag that does not exist. Values may be
    /// placeholders, and arguments may be missing.
    fn mistake(words: &[String]) -> Option<String> {
        let mut command = Netgrain::command();
        command.build();
        let mut verb = &command;
        for word in words {
            if let Some(inner) = verb.find_subcommand(word) {
                verb = inner;
            } else if let Some(long) = word.strip_prefix("--") {
                let name = long.split('=').next().unwrap_or(long).trim_end_matches(['…', ',', ';']);
                let exists = verb.get_arguments().any(|arg| arg.get_long() == Some(name));
                if !exists && !["", "help", "version"].contains(&name) {
                    return Some(format!("{} has no --{name}", verb.get_name()));
                }
            } else if std::ptr::eq(verb, &command) && word.bytes().all(|byte| byte.is_ascii_lowercase()) {
                return Some(format!("{word} is no verb"));
            }
        }
        None
    }

    #[test]
    fn commands_in_the_text_of_pages_have_verbs_and_flags_that_exist() {
        let all = pages(&["start", "how-to", "reference", "design", "design/decisions"]);
        let mut fenced = false;
        let mut commands = 0;
        for line in all.lines() {
            fenced ^= line.starts_with("```");
            let codes = line.split('`').skip(1).step_by(2).filter(|_| !fenced);
            for code in codes.filter_map(|code| code.strip_prefix("netgrain ")) {
                let words = examples::words(&code.replace("\\|", "|"));
                commands += 1;
                assert_eq!(mistake(&words), None, "netgrain {code}");
            }
        }
        assert!(commands > 100, "{commands}");
        let mistake = |line| mistake(&examples::words(line));
        assert_eq!(mistake("flows --tops 3").as_deref(), Some("flows has no --tops"));
        assert_eq!(mistake("flow --top 3").as_deref(), Some("flow is no verb"));
    }

    #[test]
    fn every_command_in_the_readme_and_the_docs_parses() {
        let all = shell_lines();
        let plain = |line: &&str| !line.contains(['…', '[', '<', '$', '\\']);
        let lines: Vec<&str> = all.iter().filter_map(|l| l.strip_prefix("netgrain ")).filter(plain).collect();
        assert!(lines.len() > 80, "{lines:?}");
        for line in lines {
            let words = examples::words(line.split(" 2>").next().unwrap_or(line).trim_end_matches(" &"));
            let all = ["netgrain"].into_iter().chain(words.iter().map(String::as_str));
            let parsed = Netgrain::try_parse_from(all);
            let is_help = |e: &clap::Error| !e.use_stderr();
            assert!(parsed.is_ok() || parsed.as_ref().is_err_and(is_help), "{line}: {:?}", parsed.err());
        }
    }

    /// Errors of the standard library for texts that are not a number or an address. They lack the accepted form and an
    /// example, so no flag may report them.
    const BARE: [&str; 6] = [
        "invalid digit found",
        "cannot parse integer",
        "invalid float",
        "number too",
        "invalid socket address",
        "invalid IP address",
    ];

    /// Values that every numeric flag rejects.
    const WRONG: [&str; 4] = ["x", "", "99999999999999999999999", "-1"];

    #[test]
    fn an_error_for_a_bad_value_shows_the_accepted_form() {
        let mut left = vec![(Vec::new(), Netgrain::command())];
        let mut tested = 0;
        while let Some((verbs, command)) = left.pop() {
            for verb in command.get_subcommands() {
                left.push(([&verbs[..], &[verb.get_name().to_owned()]].concat(), verb.clone()));
            }
            let flags = command.get_arguments().filter_map(|arg| arg.get_long());
            let mut given: Vec<Vec<String>> = flags.map(|flag| vec![format!("--{flag}=WRONG")]).collect();
            // A positional argument is tested after valid values for the arguments before it.
            let positionals = command.get_positionals().count();
            given.extend((1..=positionals).map(|n| [vec!["1".to_owned(); n - 1], vec!["WRONG".to_owned()]].concat()));
            for (given, wrong) in given.iter().flat_map(|given| WRONG.map(|wrong| (given, wrong))) {
                let given: Vec<String> = given.iter().map(|word| word.replace("WRONG", wrong)).collect();
                let all = ["netgrain"].into_iter().chain(verbs.iter().chain(&given).map(String::as_str));
                let Err(e) = Netgrain::try_parse_from(all) else { continue };
                let message = e.to_string();
                assert!(!BARE.iter().any(|bare| message.contains(bare)), "{verbs:?} {given:?}: {message}");
                tested += 1;
            }
        }
        assert!(tested > 500, "{tested}");
    }
}
