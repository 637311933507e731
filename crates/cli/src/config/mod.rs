//! The configuration of `netgrain run`: one table of keys ([`table`]), read from one TOML file ([`read`]), what cannot be
//! although each value may ([`validate`]), and the verb that checks and prints it.

mod groups;
mod read;
mod table;
mod validate;
mod value;

pub use groups::Group;
#[cfg(test)]
pub use groups::JoinPolicy;
pub use read::set;
pub use table::{Config, KEYS, TakesEffect};
pub use validate::{FILE, Problem, contradictions, contradictions_now};
pub use value::{Age, Count, Keep, RawValue, Secret, Size};

use crate::outcome::{Failure, Outcome};
use clap::Args;
use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use table::SECTIONS;

/// A file larger than this is not a configuration.
const FILE_MAX: u64 = 1 << 20;

#[derive(Args)]
#[command(after_help = "Examples:
  netgrain config --dump > netgrain.toml
  netgrain config --check netgrain.toml
  netgrain config --dump netgrain.toml         what is in force with this file")]
pub struct ConfigArgs {
    /// Say what is wrong with the file, all of it, with lines
    #[arg(long, conflicts_with_all = ["dump", "manual"], requires = "file")]
    pub check: bool,
    /// Print every key with its meaning and its value: of the file, or the default
    #[arg(long, required_unless_present_any = ["check", "manual"])]
    pub dump: bool,
    /// Print the text of docs/reference/configuration.md
    #[arg(long, hide = true, conflicts_with = "dump")]
    pub manual: bool,
    /// Configuration of netgrain run
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// Runs the verb. No if something is wrong with the file.
pub fn run(args: &ConfigArgs) -> Result<Outcome, Failure> {
    let mut out = std::io::stdout().lock();
    if args.manual {
        out.write_all(manual().as_bytes())?;
        return Ok(Outcome::Yes);
    }
    let mut config = Config::default();
    if let Some(path) = &args.file {
        let wrong = everything(path, &mut config)?;
        if !wrong.is_empty() {
            let mut err = std::io::stderr().lock();
            for one in &wrong {
                // Whoever does not listen still gets the exit status.
                let _ = writeln!(err, "netgrain: {}: {one}", path.display());
            }
            return Ok(Outcome::No);
        }
    }
    if args.dump {
        out.write_all(dump(&config).as_bytes())?;
    }
    Ok(Outcome::Yes)
}

/// All that is wrong with a file, in its order: what cannot be read, and what is left of it where `run` would refuse it.
fn everything(path: &Path, config: &mut Config) -> Result<Vec<String>, Failure> {
    let text = text_of(path)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let wrong = read::read(&text, folder, config).err().unwrap_or_default();
    let mut all: Vec<(usize, String)> = wrong.into_iter().map(|wrong| (wrong.line, wrong.text)).collect();
    let places = read::positions(&text);
    // A key that is not in the file has no line; what it contradicts has.
    let line = |finding: &Problem| places.get(&finding.key).copied().unwrap_or(usize::MAX);
    all.extend(contradictions(config).into_iter().map(|finding| (line(&finding), finding.text)));
    all.sort();
    let say = |(line, text)| if line == usize::MAX { text } else { read::ConfigError { line, text }.to_string() };
    Ok(all.into_iter().map(say).collect())
}

/// The defaults with a file over them.
///
/// # Errors
/// In one line: that the file cannot be read, or the first thing that is wrong with it.
pub fn load(path: &Path) -> Result<Config, Failure> {
    let mut config = Config::default();
    let wrong = apply(path, &mut config)?;
    let Some(first) = wrong.first() else { return Ok(config) };
    let more = match wrong.len() - 1 {
        0 => String::new(),
        n => format!(" (and {n} more: netgrain config --check {})", path.display()),
    };
    Err(Failure::Said(format!("{}: {first}{more}", path.display())))
}

fn apply(path: &Path, config: &mut Config) -> Result<Vec<read::ConfigError>, Failure> {
    let folder = path.parent().unwrap_or(Path::new(""));
    Ok(read::read(&text_of(path)?, folder, config).err().unwrap_or_default())
}

fn text_of(path: &Path) -> Result<String, Failure> {
    let fail = |e: &dyn std::fmt::Display| {
        Failure::Said(format!("{}: {e}; name a configuration (netgrain config --dump prints one)", path.display()))
    };
    let length = path.metadata().map_err(|e| fail(&e))?.len();
    if length > FILE_MAX {
        return Err(fail(&format!("{length} bytes are no configuration")));
    }
    std::fs::read_to_string(path).map_err(|e| fail(&e))
}

/// Every key, as a file that says what is in force.
pub fn dump(config: &Config) -> String {
    let mut out = String::new();
    for (section, about) in SECTIONS {
        let _ = writeln!(out, "{}#{about}\n[{section}]", if out.is_empty() { "" } else { "\n" });
        for key in KEYS.iter().filter(|k| k.section() == *section) {
            for line in wrapped(key.description.trim(), 110) {
                let _ = writeln!(out, "# {line}");
            }
            let _ = writeln!(out, "{} = {}", key.key(), config.show(key.name));
        }
    }
    out + &groups::dump(&config.group)
}

/// `docs/reference/configuration.md`.
fn manual() -> String {
    let mut out = String::from(ABOUT);
    let usual = Config::default();
    for (section, about) in SECTIONS {
        let _ = writeln!(
            out,
            "\n## [{section}]\n\n{}\n\n| key | default | kind | meaning |\n|---|---|---|---|",
            about.trim()
        );
        for key in KEYS.iter().filter(|k| k.section() == *section) {
            let reload = if key.when == TakesEffect::Reload { " *" } else { "" };
            let (name, shown, kind) = (key.key(), usual.show(key.name), key.kind);
            let _ = writeln!(out, "| `{name}`{reload} | `{shown}` | {kind} | {} |", key.description.trim());
        }
    }
    out + &groups::manual()
}

const ABOUT: &str = "# Configuration of `netgrain run`

One TOML file, `netgrain run --config FILE`. Every key is optional. Flags come after the file and win; any key can be a
flag: `--set flow.idle_timeout=15s`. A key that does not exist is refused, with the one that was perhaps meant.

    netgrain config --dump > netgrain.toml     every key with its meaning and its default
    netgrain config --check netgrain.toml      everything that is wrong, with lines; exit 1 if anything is

Checked is what `run` refuses before it opens anything: keys, values, targets, filter, programs, addresses, accounts. Whether
interfaces are there and collectors listen, a start finds out (`netgrain doctor`).

Sizes are written `512MiB`, `2G`, `200GB`; spans `30s`, `5min`, `1h30min`, `90d`; `\"none\"` stands for nothing where a key
allows it. SIGHUP reads the file again: keys marked * change at once, every other key that differs is named and stays as
it was until the next start. A file that is wrong changes nothing. This page is printed by `netgrain config --manual`.
";

/// Words of a text in lines of at most so many letters.
fn wrapped(text: &str, most: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("never empty");
        if !last.is_empty() && last.len() + 1 + word.len() > most {
            lines.push(word.to_owned());
        } else {
            last.push_str(if last.is_empty() { "" } else { " " });
            last.push_str(word);
        }
    }
    lines
}

/// The one of nothing but these keys.
#[cfg(test)]
pub fn with(pairs: &[(&str, &str)]) -> Config {
    let mut config = Config::default();
    for (key, value) in pairs {
        set(&mut config, key, &RawValue::from_flag(value)).expect("right");
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dumped_is_a_configuration_and_the_same() {
        let config = with(&[("flow.idle_timeout", "7s"), ("capture.interfaces", "a,b"), ("packets.keep_free", "5%")]);
        let mut back = Config::default();
        read::read(&dump(&config), Path::new(""), &mut back).expect("right");
        assert_eq!(back, config);
        assert_eq!(back.capture.interfaces, ["a", "b"]);
    }

    #[test]
    fn the_manual_in_docs_is_what_the_table_says() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/configuration.md");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            text == manual(),
            "docs/reference/configuration.md is old: netgrain config --manual > docs/reference/configuration.md"
        );
    }
}
