//! Errors in a configuration file.

use std::fmt;

/// One error in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Line of the file, counted from 1.
    pub line: usize,
    /// The description of the error, with the accepted syntax.
    pub text: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

/// The known name that is similar to an unknown name; `None` if no name is similar. The `Display` text of this value
/// suggests the known name, and is written at the end of an error text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Similar(pub Option<String>);

impl Similar {
    /// Finds the known name that is similar to the complete name `name`. If there is none, finds a known name in any
    /// section whose part after the last dot is similar to that part of `name`.
    pub(crate) fn of<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Self {
        let last = |full: &'a str| full.rsplit('.').next().unwrap_or(full);
        let known: Vec<&str> = known.collect();
        let in_another_section = || {
            let part = base::nearest(name.rsplit('.').next()?, known.iter().copied().map(last))?;
            known.iter().copied().find(|k| last(k) == part)
        };
        Self(base::nearest(name, known.iter().copied()).or_else(in_another_section).map(str::to_owned))
    }
}

impl fmt::Display for Similar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(name) => write!(f, "; did you mean {name}?"),
            None => f.write_str("; see netgrain config --dump"),
        }
    }
}
