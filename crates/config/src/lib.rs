//! The configuration of `netgrain run`: one table of keys (`table`), the parser of the TOML file (`read`), the
//! checks for contradictions between valid values (`validate`), and the printed file and manual page of all keys.
#![forbid(unsafe_code)]

mod error;
mod groups;
mod load_error;
mod program;
mod raw_value;
mod read;
mod retention;
mod table;
pub mod units;
mod validate;
mod value;
mod value_error;

pub use error::{ConfigError, Similar};
pub use groups::{Group, JoinPolicy, Member};
pub use load_error::{LoadError, UnreadableProgram};
pub use program::read_program;
pub use raw_value::RawValue;
pub use read::{SetError, read, set};
pub use retention::{MIN_AGE, RetentionError, RetentionRules};
pub use table::*;
pub use timestamping::{SwitchTimestamps, TimestampSetting};
pub use validate::{
    FILE, METRICS_FORM, MetricsAddressError, Problem, check_metrics_address, contradictions, contradictions_now,
};
pub use value::{Age, Count, DuplicateMode, DuplicateTable, IdleOf, Keep, KeepFree, Setting, Size, SourceKind};
pub use value_error::ValueError;

use load_error::FILE_MAX;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

impl Flow {
    /// Returns the longest of the idle timeouts and the close timeout: each flow ends at the latest after this time
    /// without a packet.
    pub fn longest_timeout(&self) -> Duration {
        let protocols = self.protocol_idle_timeouts.iter().map(|of| of.idle);
        protocols.fold(self.idle_timeout.max(self.close_timeout), Duration::max)
    }
}

/// Returns all errors of a file in the order of its lines. These are the keys and values that cannot be parsed, and the
/// contradictions between the other values, which `run` would reject too.
///
/// # Errors
/// The file cannot be read.
pub fn check_file(path: &Path, config: &mut Config) -> Result<Vec<String>, LoadError> {
    let text = text_of(path)?;
    let directory = path.parent().unwrap_or(Path::new(""));
    let errors = read::read(&text, directory, config).err().unwrap_or_default();
    let mut all: Vec<(usize, String)> = errors.into_iter().map(|error| (error.line, error.text)).collect();
    let places = read::positions(&text);
    // A key that is not in the file has no line number; problems of such keys are listed last.
    let line = |finding: &Problem| places.get(&finding.key).copied().unwrap_or(usize::MAX);
    all.extend(contradictions(config).into_iter().map(|finding| (line(&finding), finding.text)));
    all.sort();
    let text_of_error = |(line, text)| if line == usize::MAX { text } else { ConfigError { line, text }.to_string() };
    Ok(all.into_iter().map(text_of_error).collect())
}

/// Reads a configuration file. A key that is not in the file has its default value.
///
/// # Errors
/// The file cannot be read, or has errors.
pub fn load(path: &Path) -> Result<Config, LoadError> {
    let mut config = Config::default();
    let directory = path.parent().unwrap_or(Path::new(""));
    let errors = read::read(&text_of(path)?, directory, &mut config).err().unwrap_or_default();
    let more = errors.len().saturating_sub(1);
    match errors.into_iter().next() {
        Some(first) => Err(LoadError::Invalid { path: path.to_owned(), first, more }),
        None => Ok(config),
    }
}

fn text_of(path: &Path) -> Result<String, LoadError> {
    let unreadable = |error| LoadError::Unreadable { path: path.to_owned(), error };
    let length = path.metadata().map_err(unreadable)?.len();
    if length > FILE_MAX {
        return Err(LoadError::TooLarge { path: path.to_owned(), length });
    }
    std::fs::read_to_string(path).map_err(unreadable)
}

/// A configuration file with all keys and their current values.
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

/// The text of `docs/reference/configuration.md`.
pub fn manual() -> String {
    let mut out = String::from(ABOUT);
    let defaults = Config::default();
    for (section, about) in SECTIONS {
        let _ = writeln!(
            out,
            "\n## [{section}]\n\n{}\n\n| key | default | kind | meaning |\n|---|---|---|---|",
            about.trim()
        );
        for key in KEYS.iter().filter(|k| k.section() == *section) {
            let reload = if key.when == TakesEffect::Reload { " *" } else { "" };
            let (name, shown, kind) = (key.key(), defaults.show(key.name), key.kind);
            let _ = writeln!(out, "| `{name}`{reload} | `{shown}` | {kind} | {} |", key.description.trim());
        }
    }
    out + &groups::manual()
}

const ABOUT: &str = "# Configuration of `netgrain run`

`netgrain run --config FILE` reads one TOML file. Every key is optional. Flags override the file; any key can be given
as a flag: `--set flow.idle_timeout=15s`. An unknown key is an error, and the message suggests a similar key.

    netgrain config --dump > netgrain.toml     every key with its description and its default
    netgrain config --check netgrain.toml      every error with its line; exit status 1 if there is any

The check covers everything that `run` rejects before it opens a resource: keys, values, targets, filter, programs,
addresses, accounts. Only a start shows whether interfaces exist and collectors listen (`netgrain doctor`).

Sizes are written `512MiB`, `2G`, `200GB`; spans `30s`, `5min`, `1h30min`, `90d`; `\"none\"` means no value where a key
allows it. SIGHUP rereads the file: keys marked * change at once; every other changed key is reported and keeps its
value until the next start. A file with an error changes nothing. `netgrain config --manual` prints this page.
";

/// Wraps a text to lines of at most `most` characters.
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

/// Returns a configuration with the given values, each in the syntax of a flag. All other keys have their default
/// values.
///
/// # Errors
/// The first invalid key or value.
pub fn with(pairs: &[(&str, &str)]) -> Result<Config, SetError> {
    let mut config = Config::default();
    for (key, value) in pairs {
        set(&mut config, key, &RawValue::from_flag(value))?;
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dumped_configuration_reads_back_as_the_same() {
        let config = with(&[("flow.idle_timeout", "7s"), ("capture.interfaces", "a,b"), ("packets.keep_free", "5%")])
            .expect("a valid configuration");
        let mut back = Config::default();
        read::read(&dump(&config), Path::new(""), &mut back).expect("a valid configuration");
        assert_eq!(back, config);
        assert_eq!(back.capture.interfaces, ["a", "b"]);
    }

    #[test]
    fn proxied_duplicates_are_marked_but_not_dropped() {
        let problems = |mode: &str, classes: &str| {
            let mut config = Config::default();
            let text = format!("[capture]\nduplicates = {mode:?}\nduplicate_classes = {classes:?}\n");
            read::read(&text, Path::new(""), &mut config).expect("known keys");
            contradictions(&config).into_iter().filter(|problem| problem.key == "capture.duplicate_classes").count()
        };
        assert_eq!((problems("drop", "routing,proxying"), problems("drop", "routing,nat")), (1, 0));
        assert_eq!((problems("mark", "proxying"), problems("off", "all")), (0, 0));
    }

    #[test]
    fn the_configuration_page_matches_the_table_of_keys() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/configuration.md");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            text == manual(),
            "docs/reference/configuration.md is out of date: netgrain config --manual > docs/reference/configuration.md"
        );
    }
}
