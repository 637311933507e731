//! Parsers of values that the command line and the configuration share.

use base::units::{self, ParseUnitError};
pub use config::units::{CpuList, MIN_RING, MIN_SEGMENT, Mode, count, cpu_list, octal};
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The error of a value that a flag does not accept. Its text is the accepted form, with an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError(String);

impl ValueError {
    /// An error with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ValueError {}

impl From<ParseUnitError> for ValueError {
    fn from(e: ParseUnitError) -> Self {
        Self(e.to_string())
    }
}

/// A directory path. Its links are resolved at once; links below the directory are not followed.
pub fn directory(text: &str) -> Result<PathBuf, ValueError> {
    if text.is_empty() {
        Err(ValueError::new("the name is empty: name a directory"))
    } else {
        Ok(sys::nofollow::resolve(Path::new(text)))
    }
}

pub fn ring_size(text: &str) -> Result<u64, ValueError> {
    at_least(text, MIN_RING, "8MiB")
}

pub fn segment_size(text: &str) -> Result<u64, ValueError> {
    at_least(text, MIN_SEGMENT, "2MiB")
}

fn at_least(text: &str, minimum: u64, shown: &str) -> Result<u64, ValueError> {
    let bytes = units::parse_bytes(text)?;
    if bytes < minimum { Err(ValueError(format!("{text} is too small: at least {shown}"))) } else { Ok(bytes) }
}

pub fn rotation(text: &str) -> Result<Duration, ValueError> {
    let span = units::parse_span(text)?;
    if span.as_secs() == 0 || span.subsec_nanos() > 0 {
        return Err(ValueError(format!("{text} is not a number of whole seconds, at least 1s")));
    }
    Ok(span)
}

pub fn speed(text: &str) -> Result<capture::file::Speed, ValueError> {
    use capture::file::Speed;
    match text {
        "flat" => Ok(Speed::Flat),
        "original" => Ok(Speed::ORIGINAL),
        _ => match text.strip_suffix('x').and_then(|f| f.parse::<f64>().ok()) {
            Some(factor) if factor.is_finite() && factor > 0.0 => Ok(Speed::Scaled(factor)),
            _ => Err(ValueError(format!("{text:?} is not a speed: write flat, original, 2x, 0.5x"))),
        },
    }
}

/// The UDP address and port at which records of another machine arrive.
pub fn group_and_port(text: &str) -> Result<SocketAddr, ValueError> {
    text.parse().map_err(|_| {
        ValueError(format!("{text:?} is not an address and a port: write 239.128.0.0:4739 or [ff15::1]:4739"))
    })
}

/// As [`count`], but at least 1: a query for 0 packets has no defined result.
pub fn positive_count(text: &str) -> Result<u64, ValueError> {
    match count(text).map_err(|e| ValueError(e.to_string()))? {
        0 => Err(ValueError::new("at least 1")),
        n => Ok(n),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_minimum_and_rotations_are_whole_seconds() {
        assert!(ring_size("1KiB").is_err() && segment_size("1").is_err());
        assert!(rotation("0s").is_err() && rotation("300ms").is_err() && rotation("1min").is_ok());
    }
}
