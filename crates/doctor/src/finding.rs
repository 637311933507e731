//! The result of a check.

use crate::checks::Check;
use crate::setting::Change;
use serde::Serialize;
use serde::ser::SerializeMap;
use std::fmt;

/// The state of the setting or condition that a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// The setting is good, or the check does not apply to this machine or interface.
    Good,
    /// The kernel does not report the value that the check evaluates.
    Unknown,
    /// The setting could be better, or the kernel reports a condition that the user of a capture should consider.
    Warning,
    /// The setting makes capture fail, lose packets or record them wrongly.
    Bad,
}

impl State {
    /// Returns the name of the state in tables and documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Bad => "bad",
        }
    }
}

/// The subject of a finding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// An interface, by name.
    Port(String),
    /// The machine.
    Machine,
    /// A store, by its directory.
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

/// The result of one check of one subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The check.
    pub check: &'static Check,
    /// The subject.
    pub subject: Subject,
    /// The state.
    pub state: State,
    /// The observed value or condition, in a few words.
    pub found: String,
    /// The command or the step by which a user can fix the finding.
    pub fix: Option<String>,
    /// The changes that `--fix` would make.
    pub changes: Vec<Change>,
}

impl Finding {
    /// Makes a finding with state good.
    pub fn good(check: &'static Check, subject: &Subject, found: impl Into<String>) -> Self {
        Self::new(check, subject, State::Good, found)
    }

    /// Makes a finding of any state, without a fix.
    pub fn new(check: &'static Check, subject: &Subject, state: State, found: impl Into<String>) -> Self {
        Self { check, subject: subject.clone(), state, found: found.into(), fix: None, changes: Vec::new() }
    }

    /// Adds the command or step that fixes the finding.
    #[must_use]
    pub fn fix(mut self, command: impl Into<String>) -> Self {
        self.fix = Some(command.into());
        self
    }

    /// Adds a change for `--fix`.
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
