//! Values as people write them on the command line and in the configuration, each read in one place.

use base::units;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Processors as given on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuList(pub Vec<usize>);

pub fn cpu_list(text: &str) -> Result<CpuList, String> {
    let bad = || format!("{text:?} is not a list of processors: write 2 or 2,3 or 4-7");
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().map_err(|_| bad())?, last.parse().map_err(|_| bad())?);
        if first > last || last > 4096 {
            return Err(bad());
        }
        cpus.extend(first..=last);
    }
    Ok(CpuList(cpus))
}

/// A folder of which links are followed now: below it none is.
pub fn folder(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() {
        Err("an empty name: name a folder".into())
    } else {
        Ok(sys::nofollow::resolve(Path::new(text)))
    }
}

/// A ring of less has no room for a segment's gap.
pub const MIN_RING: u64 = 8 << 20;

pub fn ring_size(text: &str) -> Result<u64, String> {
    at_least(text, MIN_RING, "8MiB")
}

/// The smallest files that a recorder makes.
pub const MIN_SEGMENT: u64 = 2 << 20;

pub fn segment_size(text: &str) -> Result<u64, String> {
    at_least(text, MIN_SEGMENT, "2MiB")
}

fn at_least(text: &str, least: u64, shown: &str) -> Result<u64, String> {
    let bytes = units::parse_bytes(text).map_err(|e| e.to_string())?;
    if bytes < least { Err(format!("{text} is too small: at least {shown}")) } else { Ok(bytes) }
}

pub fn rotation(text: &str) -> Result<Duration, String> {
    let span = units::parse_span(text).map_err(|e| e.to_string())?;
    if span.as_secs() == 0 || span.subsec_nanos() > 0 {
        return Err(format!("{text} is not a number of whole seconds, at least 1s"));
    }
    Ok(span)
}

pub fn speed(text: &str) -> Result<capture::file::Speed, String> {
    use capture::file::Speed;
    match text {
        "flat" => Ok(Speed::Flat),
        "original" => Ok(Speed::ORIGINAL),
        _ => match text.strip_suffix('x').and_then(|f| f.parse::<f64>().ok()) {
            Some(factor) if factor.is_finite() && factor > 0.0 => Ok(Speed::Scaled(factor)),
            _ => Err(format!("{text:?} is not a speed: write flat, original, 2x, 0.5x")),
        },
    }
}

/// Permission bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode(pub u32);

pub fn octal(text: &str) -> Result<Mode, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(Mode(mode)),
        _ => Err(format!("{text:?} is not a mode: write 660 or 600")),
    }
}

/// An address and a port of UDP, where records of another machine come in.
pub fn group_and_port(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("{text:?} is not an address and a port: write 239.128.0.0:4739 or [ff15::1]:4739"))
}

/// `1000000`, `1M`, `100k`.
pub fn count(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is not a whole number: write 100k, 1M, 1000000");
    let (digits, scale) = match text.chars().last() {
        Some('k') => (&text[..text.len() - 1], 1000),
        Some('M') => (&text[..text.len() - 1], 1_000_000),
        Some('G') => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok().and_then(|n| n.checked_mul(scale)).ok_or_else(bad)
}

/// As [`count`], and at least one: of nothing at all nobody can say whether it was found.
pub fn some(text: &str) -> Result<u64, String> {
    match count(text)? {
        0 => Err("at least 1; --count tells how many there are".to_owned()),
        n => Ok(n),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_modes_and_counts() {
        assert_eq!(cpu_list("2,4-6").unwrap().0, [2, 4, 5, 6]);
        assert!(cpu_list("a").is_err() && cpu_list("6-4").is_err());
        assert_eq!(octal("660").unwrap().0, 0o660);
        assert!(octal("9").is_err());
        assert_eq!(count("2M"), Ok(2_000_000));
        assert!(count("many").is_err());
        assert!(ring_size("1KiB").is_err() && segment_size("1").is_err());
        assert!(rotation("0s").is_err() && rotation("300ms").is_err() && rotation("1min").is_ok());
    }
}
