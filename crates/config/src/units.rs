//! Values with the same syntax on the command line and in the configuration.

use crate::value_error::ValueError;

/// A list of processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuList(pub Vec<usize>);

/// Reads a list of processors, such as `2`, `2,3` or `4-7`.
///
/// # Errors
/// The text is invalid; the error contains the text and the accepted syntax.
pub fn cpu_list(text: &str) -> Result<CpuList, ValueError> {
    let bad = || ValueError::text(text, "a list of processors: write 2 or 2,3 or 4-7");
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

/// The smallest ring in bytes: in a smaller ring there is no space for the gap that the producer leaves between two
/// segments.
pub const MIN_RING: u64 = 8 << 20;

/// The smallest segment size of a recorder.
pub const MIN_SEGMENT: u64 = 2 << 20;

/// A number of bytes in the largest unit of which it is a multiple, as a user would write it: `8MiB`, `200MB`, `10`.
pub fn exact_size(bytes: u64) -> String {
    const BINARY: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    const DECIMAL: [(&str, u64); 4] = [("TB", 10u64.pow(12)), ("GB", 10u64.pow(9)), ("MB", 10u64.pow(6)), ("kB", 1000)];
    let fits = |(_, scale): &&(&str, u64)| bytes > 0 && bytes.is_multiple_of(*scale);
    let [binary, decimal] = [BINARY, DECIMAL].map(|units| units.iter().find(fits).copied());
    // If the number is a multiple of a binary and of a decimal unit, the larger of the two units is used: 200MB is a
    // multiple of 1KiB and of 1MB, but a user would not write it in KiB.
    match binary.into_iter().chain(decimal).max_by_key(|(_, scale)| *scale) {
        Some((unit, scale)) => format!("{}{unit}", bytes / scale),
        None => bytes.to_string(),
    }
}

/// Permission bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode(pub u32);

/// Reads permission bits in octal digits, such as `660`.
///
/// # Errors
/// The text is invalid; the error contains the text and the accepted syntax.
pub fn octal(text: &str) -> Result<Mode, ValueError> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(Mode(mode)),
        _ => Err(ValueError::text(text, "a mode in octal digits: write 660 or 600")),
    }
}

/// Reads a count, such as `1000000`, `1M` or `100k`.
///
/// # Errors
/// The text is invalid; the error contains the text and the accepted syntax.
pub fn count(text: &str) -> Result<u64, ValueError> {
    let bad = || ValueError::text(text, "a whole number: write 100k, 1M, 1000000");
    let (digits, scale) = match text.chars().last() {
        Some('k') => (&text[..text.len() - 1], 1000),
        Some('M') => (&text[..text.len() - 1], 1_000_000),
        Some('G') => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok().and_then(|n| n.checked_mul(scale)).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_lists_modes_and_counts_are_parsed() {
        assert_eq!(cpu_list("2,4-6").unwrap().0, [2, 4, 5, 6]);
        assert!(cpu_list("a").is_err() && cpu_list("6-4").is_err());
        assert_eq!(octal("660").unwrap().0, 0o660);
        assert!(octal("9").is_err());
        assert_eq!(count("2M"), Ok(2_000_000));
        assert!(count("many").is_err());
    }
}
