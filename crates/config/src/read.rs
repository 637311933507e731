//! Reads a configuration file: TOML, checked key by key. All errors are reported at once, each with its line; the error
//! of an unknown key suggests a similar known key.

use super::error::{ConfigError, Similar};
use super::groups;
use super::raw_value::{RawValue, raw_value};
use super::table::{Config, KEYS, Key};
use super::value_error::ValueError;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use toml::de::{DeTable, DeValue};

/// Sets the keys of `config` to the values in the text of a configuration file; relative paths in the text start at
/// `directory`.
///
/// # Errors
/// Returns all errors in the order of their lines. In this case `config` has only some of the values and must not be
/// used.
pub fn read(text: &str, directory: &Path, config: &mut Config) -> Result<(), Vec<ConfigError>> {
    let line = |at: usize| line_of(text, at);
    let document = match DeTable::parse(text) {
        Ok(document) => document.into_inner(),
        Err(e) => {
            let at = e.span().map_or(text.len(), |s| s.start);
            return Err(vec![ConfigError { line: line(at), text: e.message().replace('\n', "; ") }]);
        }
    };
    let mut errors = Vec::new();
    for (section, content) in &document {
        if section.get_ref() == "group" {
            match groups::read(content, directory, line) {
                Ok(groups) => config.group = groups,
                Err(more) => errors.extend(more),
            }
            continue;
        }
        let at = section.span().start;
        let mut push_error = |at, text| errors.push(ConfigError { line: line(at), text });
        let name = section.get_ref();
        let known: Vec<&str> = sections().chain(["group"]).collect();
        match content.get_ref() {
            DeValue::Table(keys) if known.contains(&name.as_ref()) => {
                for (key, value) in keys {
                    let full = format!("{name}.{}", key.get_ref());
                    if let Err(e) = set(config, &full, &raw_value(value)) {
                        push_error(key.span().start, e.to_string());
                    }
                }
            }
            DeValue::Table(_) => push_error(at, format!("no section [{name}]{}", Similar::of(name, known.into_iter()))),
            _ => push_error(at, format!("{name}: a key must be in a section{}", section_hint(name))),
        }
    }
    errors.sort_by_key(|e| e.line);
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// Returns the line of each key, by the name `section.key`, and of each group, by the name `group.N`. The map is empty
/// if the text is not TOML.
pub fn positions(text: &str) -> BTreeMap<String, usize> {
    let mut places = BTreeMap::new();
    let Ok(document) = DeTable::parse(text) else { return places };
    for (section, content) in document.get_ref() {
        let section = section.get_ref();
        match content.get_ref() {
            DeValue::Table(keys) => {
                let each =
                    keys.keys().map(|key| (format!("{section}.{}", key.get_ref()), line_of(text, key.span().start)));
                places.extend(each);
            }
            DeValue::Array(tables) => {
                let each = tables.iter().enumerate();
                places.extend(each.map(|(i, table)| (format!("{section}.{i}"), line_of(text, table.span().start))));
            }
            _ => {}
        }
    }
    places
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes().iter().take(at).filter(|b| **b == b'\n').count()
}

/// The reason why a key cannot be set.
#[derive(Clone, Debug, PartialEq)]
pub enum SetError {
    /// No key has this name.
    UnknownKey {
        /// The name.
        name: String,
        /// A similar name.
        similar: Similar,
    },
    /// The value is not valid for the key.
    Value {
        /// The key.
        name: String,
        /// The error of the value.
        error: ValueError,
    },
}

impl fmt::Display for SetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKey { name, similar } => write!(f, "no key {name}{similar}"),
            Self::Value { name, error } => write!(f, "{name}: {error}"),
        }
    }
}

impl std::error::Error for SetError {}

/// Sets the value of one key, which is named as `section.key`.
///
/// # Errors
/// No key has this name, or the value is not valid.
pub fn set(config: &mut Config, name: &str, given: &RawValue) -> Result<(), SetError> {
    match config.set(name, given) {
        Some(done) => done.map_err(|error| SetError::Value { name: name.to_owned(), error }),
        None => {
            let similar = Similar::of(name, KEYS.iter().map(|k| k.name));
            Err(SetError::UnknownKey { name: name.to_owned(), similar })
        }
    }
}

fn sections() -> impl Iterator<Item = &'static str> {
    let mut last = "";
    KEYS.iter().map(Key::section).filter(move |s| std::mem::replace(&mut last, s) != *s)
}

/// Returns the hint for the error of a key that stands outside of all sections: the section that has a key of this
/// name. The hint is empty if no section has one.
fn section_hint(name: &str) -> String {
    KEYS.iter().find(|k| k.key() == name).map_or_else(String::new, |k| format!("; [{}] has this key", k.section()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors_of(text: &str) -> Vec<String> {
        read(text, Path::new(""), &mut Config::default())
            .expect_err("an error")
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn all_errors_are_reported_at_once_with_their_lines() {
        let found = errors_of("[flow]\nidle_timeot = \"30s\"\nactive_timeout = \"soon\"\n\n[stoer]\ndir = \"/data\"\n");
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(found[0], "line 2: no key flow.idle_timeot; did you mean flow.idle_timeout?");
        assert!(found[1].starts_with("line 3: flow.active_timeout: \"soon\" is not a span"), "{found:?}");
        assert_eq!(found[2], "line 5: no section [stoer]; did you mean store?");
    }

    #[test]
    fn an_error_names_the_section_of_a_misplaced_key() {
        assert_eq!(
            errors_of("idle_timeout = 3"),
            ["line 1: idle_timeout: a key must be in a section; [flow] has this key"]
        );
        assert_eq!(
            errors_of("[store]\nidle_timeout = 3"),
            ["line 2: no key store.idle_timeout; did you mean flow.idle_timeout?"]
        );
    }

    #[test]
    fn a_syntax_error_is_reported_with_its_line() {
        let found = errors_of("[flow]\nidle_timeout = \n");
        assert!(found.len() == 1 && found[0].starts_with("line 2: "), "{found:?}");
    }

    #[test]
    fn a_key_unlike_all_others_gets_no_suggestion() {
        assert_eq!(errors_of("[flow]\nzyxwvutsr = 1"), ["line 2: no key flow.zyxwvutsr; see netgrain config --dump"]);
    }
}
