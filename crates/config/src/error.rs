//! Errors in a configuration file.

use std::fmt;

/// One error in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Line of the file, counted from 1.
    pub line: usize,
    /// The error and the accepted form.
    pub text: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

/// `; did you mean x?` if a known name is similar, either the whole name or its last part in another section.
pub fn suggestion<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let last = |full: &'a str| full.rsplit('.').next().unwrap_or(full);
    let known: Vec<&str> = known.collect();
    let in_another_section = || {
        let part = base::nearest(name.rsplit('.').next()?, known.iter().copied().map(last))?;
        known.iter().copied().find(|k| last(k) == part)
    };
    match base::nearest(name, known.iter().copied()).or_else(in_another_section) {
        Some(key) => format!("; did you mean {key}?"),
        None => "; see netgrain config --dump".to_owned(),
    }
}
