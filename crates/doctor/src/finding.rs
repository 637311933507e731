//! What a check has found.

use crate::checks::Check;
use crate::setting::Change;
use serde::Serialize;
use serde::ser::SerializeMap;
use std::fmt;

/// How it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// As it should be, or does not apply.
    Good,
    /// The kernel does not tell.
    Unknown,
    /// Could be better, or is worth knowing.
    Warning,
    /// Makes capture fail, lose or lie.
    Bad,
}

impl State {
    /// The word in tables and documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Bad => "bad",
        }
    }
}

/// What it was found on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A port, by name.
    Port(String),
    /// The machine.
    Machine,
    /// A store, by its folder.
    Store(String),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(name) | Self::Store(name) => f.write_str(name),
            Self::Machine => f.write_str("machine"),
        }
    }
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which check.
    pub check: &'static Check,
    /// Of what.
    pub subject: Subject,
    /// How it stands.
    pub state: State,
    /// What was found, in a few words.
    pub found: String,
    /// The command or the step that mends it.
    pub fix: Option<String>,
    /// What `--fix` would change.
    pub changes: Vec<Change>,
}

impl Finding {
    /// As it should be.
    pub fn good(check: &'static Check, subject: &Subject, found: impl Into<String>) -> Self {
        Self::new(check, subject, State::Good, found)
    }

    /// Of a state, with nothing said yet of how to mend it.
    pub fn new(check: &'static Check, subject: &Subject, state: State, found: impl Into<String>) -> Self {
        Self { check, subject: subject.clone(), state, found: found.into(), fix: None, changes: Vec::new() }
    }

    /// How a person mends it.
    #[must_use]
    pub fn fix(mut self, command: impl Into<String>) -> Self {
        self.fix = Some(command.into());
        self
    }

    /// How `--fix` mends it.
    #[must_use]
    pub fn change(mut self, change: Change) -> Self {
        self.changes.push(change);
        self
    }
}

impl Serialize for Finding {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("check", self.check.name)?;
        let (kind, name) = match &self.subject {
            Subject::Port(name) => ("interface", Some(name)),
            Subject::Machine => ("machine", None),
            Subject::Store(name) => ("store", Some(name)),
        };
        map.serialize_entry("about", kind)?;
        map.serialize_entry("name", &name)?;
        map.serialize_entry("state", self.state.name())?;
        map.serialize_entry("found", &self.found)?;
        map.serialize_entry("costs", self.check.cost.name())?;
        map.serialize_entry("reason", self.check.why)?;
        map.serialize_entry("mend", &self.fix)?;
        map.serialize_entry("fix", &!self.changes.is_empty())?;
        map.end()
    }
}
