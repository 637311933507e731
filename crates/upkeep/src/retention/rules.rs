//! The retention rules.

use base::units::{ParseUnitError, parse_bytes};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use store::device::Space;

/// The limits of a store; a rule that is `None` does not apply.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// The space of the volume that must stay free, in addition to `ahead`.
    pub keep_free: Option<Free>,
    /// The largest number of bytes of the volume that each interface may take, unpublished files included.
    pub max_size: Option<u64>,
    /// The largest age of a file, by its start time.
    pub max_age: Option<Duration>,
    /// Number of bytes that the recorder's next files will need immediately.
    pub ahead: u64,
    /// The archive to which files are moved; without an archive, files are deleted.
    pub archive: Option<PathBuf>,
    /// Time for which retention waits for queries that hold an hour directory. After that, retention removes the next
    /// oldest files of other hours; if there are none, it removes the held files.
    pub wait: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self { keep_free: None, max_size: None, max_age: None, ahead: 0, archive: None, wait: store::hold::WAIT }
    }
}

/// A part of a volume.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Free {
    /// This many bytes.
    Bytes(u64),
    /// This percentage of the volume.
    Percent(f64),
}

/// The rule by which a file was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalReason {
    /// Free space.
    Space,
    /// Size of the interface.
    Size,
    /// Age.
    Age,
}

impl RemovalReason {
    /// The name of the rule in JSON and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Space => "space",
            Self::Size => "size",
            Self::Age => "age",
        }
    }

    /// The description of the rule in messages.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Space => "too little space is free",
            Self::Size => "the interface exceeds its size limit",
            Self::Age => "the file exceeds the age limit",
        }
    }
}

impl Rules {
    /// True if at least one rule is set.
    pub fn is_any(&self) -> bool {
        self.keep_free.is_some() || self.max_size.is_some() || self.max_age.is_some()
    }

    /// The number of bytes that must be free on this volume.
    fn wanted(&self, space: Space) -> Option<u64> {
        // The required free space is limited to half of the volume: if it were larger than the volume, retention would
        // remove all files and the rule would still not be met.
        Some(self.keep_free?.of(space.total).saturating_add(self.ahead).min(space.total / 2))
    }

    /// True if too little space is free.
    pub(super) fn short_of(&self, space: Space) -> bool {
        self.wanted(space).is_some_and(|wanted| space.free < wanted)
    }

    /// True if less than half of the required space is free, so that retention removes files without waiting for the
    /// archive.
    pub(super) fn is_pressing(&self, space: Space) -> bool {
        self.wanted(space).is_some_and(|wanted| space.free < wanted / 2)
    }
}

impl Free {
    /// The number of bytes that must be free on a volume of this size.
    pub fn of(self, total: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => (total as f64 * percent / 100.0) as u64,
        }
    }
}

/// An error in the text of a [`Free`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseFreeError {
    /// Not a percentage.
    Percent(String),
    /// Not a number of bytes.
    Bytes(ParseUnitError),
}

impl fmt::Display for ParseFreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percent(text) => write!(f, "{text:?} is not a percentage of a volume: write 0% to 50%"),
            Self::Bytes(e) => write!(f, "{e}, or 10%"),
        }
    }
}

impl std::error::Error for ParseFreeError {}

/// Parses `10%`, or a number of bytes with unit.
impl FromStr for Free {
    type Err = ParseFreeError;

    fn from_str(text: &str) -> Result<Self, ParseFreeError> {
        match text.trim().strip_suffix('%') {
            Some(percent) => match percent.trim().parse::<f64>() {
                // At most half of the volume may be required as free space, for the reason that the comment in `wanted`
                // gives.
                Ok(percent) if (0.0..=50.0).contains(&percent) => Ok(Self::Percent(percent)),
                _ => Err(ParseFreeError::Percent(text.to_owned())),
            },
            None => parse_bytes(text).map(Self::Bytes).map_err(ParseFreeError::Bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_percentages_and_sizes_are_accepted() {
        for bad in ["", "ten", "-1%", "51%", "nan%", "%", "10 %%", "5X"] {
            let e = bad.parse::<Free>().unwrap_err().to_string();
            assert!(e.contains("write"), "{bad}: {e}");
        }
        assert_eq!("2.5 %".parse(), Ok(Free::Percent(2.5)));
        assert_eq!("2GiB".parse(), Ok(Free::Bytes(2 << 30)));
    }

    #[test]
    fn the_required_space_includes_the_next_files_up_to_half_the_volume() {
        let rules = Rules { keep_free: Some(Free::Percent(10.0)), ahead: 50, ..Rules::default() };
        let at = |free| Space { free, total: 1000 };
        assert!(rules.short_of(at(149)) && !rules.short_of(at(150)));
        assert!(rules.is_pressing(at(74)) && !rules.is_pressing(at(75)));
        let greedy = Rules { ahead: 5000, ..rules };
        assert!(greedy.short_of(at(499)) && !greedy.short_of(at(500)));
        assert!(!Rules { keep_free: None, ..greedy }.short_of(at(0)));
    }
}
