//! Parsing and printing of sizes, rates and durations with units: `512MiB`, `1.6Mpps`, `10Gbit`, `1h30min`.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The error for a text that is not a valid quantity. It contains the text and the expected notation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseUnitError {
    text: String,
    expected: &'static str,
}

impl fmt::Display for ParseUnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not {}", self.text, self.expected)
    }
}

impl std::error::Error for ParseUnitError {}

/// The rate at which a generator or replay sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// No limit: packets are sent as fast as the machine can.
    Flat,
    /// Packets per second.
    Packets(f64),
    /// Bits per second of frame bytes (no preamble, gap or CRC).
    Bits(f64),
}

/// Parses a number of bytes: `2GiB`, `2G` (both 2^31), `512MB` (10^6), `65536`.
///
/// # Errors
/// If the number or the unit is invalid, or the result exceeds 2^63.
///
/// ```
/// # use netgrain_base::units::parse_bytes;
/// assert_eq!(parse_bytes("2G").unwrap(), 2 << 30);
/// assert_eq!(parse_bytes("1.5kB").unwrap(), 1500);
/// ```
pub fn parse_bytes(text: &str) -> Result<u64, ParseUnitError> {
    const EXPECTED: &str = "a size: write 512MiB, 2G, 65536";
    let (value, unit) = split(text, EXPECTED)?;
    let scale = match unit {
        "" | "B" => 1.0,
        "k" | "K" | "KiB" | "kiB" => 1024.0,
        "M" | "MiB" => 1_048_576.0,
        "G" | "GiB" => 1_073_741_824.0,
        "T" | "TiB" => 1_099_511_627_776.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        _ => return Err(error(text, EXPECTED)),
    };
    let bytes = value * scale;
    if bytes < 9.2e18 { Ok(bytes.round() as u64) } else { Err(error(text, EXPECTED)) }
}

/// Parses a count with a decimal multiplier: `100k`, `2.5M`, `1G`; the result must be an integer.
///
/// # Errors
/// If the number or the multiplier is invalid, or the result is not an integer or overflows.
///
/// ```
/// # use netgrain_base::units::parse_count;
/// assert_eq!(parse_count("2.5M").unwrap(), 2_500_000);
/// assert!(parse_count("0.0001k").is_err());
/// ```
pub fn parse_count(text: &str) -> Result<u64, ParseUnitError> {
    whole_count(text).ok_or_else(|| error(text, "a count: write 250000, 100k, 2.5M"))
}

fn whole_count(text: &str) -> Option<u64> {
    let (digits, scale) = match text.char_indices().next_back()? {
        (i, 'k' | 'K') => (&text[..i], 1_000),
        (i, 'M') => (&text[..i], 1_000_000),
        (i, 'G') => (&text[..i], 1_000_000_000),
        _ => (text, 1),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() || fraction.len() > 9 || !digits.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return None;
    }
    let parts = 10u64.pow(fraction.len() as u32);
    let part: u64 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let part = part.checked_mul(scale).filter(|n| n % parts == 0)? / parts;
    whole.parse::<u64>().ok()?.checked_mul(scale)?.checked_add(part)
}

/// Returns a parser of integers within a range, for command-line options. The error texts of the parser contain the
/// range.
///
/// ```
/// # use netgrain_base::units::whole;
/// assert_eq!(whole::<u16>(1..=64)("12"), Ok(12));
/// assert_eq!(whole::<u16>(1..=64)("x").unwrap_err(), "\"x\" is not a whole number from 1 to 64");
/// ```
pub fn whole<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let n = text.parse::<u64>().ok().filter(|n| range.contains(n)).and_then(|n| T::try_from(n).ok());
        n.ok_or_else(|| {
            let (least, most) = (*range.start(), *range.end());
            let bounds = if most == u64::MAX { format!("{least} upwards") } else { format!("{least} to {most}") };
            format!("{text:?} is not a whole number from {bounds}")
        })
    }
}

/// Parses a rate: `flat`, `1.6Mpps`, `250kpps`, `10Gbit`, `900Mbps`.
///
/// # Errors
/// If the number or the unit is invalid, or the rate is below a thousandth of a packet or bit per second.
pub fn parse_rate(text: &str) -> Result<Rate, ParseUnitError> {
    const EXPECTED: &str = "a rate: write 1.6Mpps, 10Gbit (at least 0.001pps or 0.001bit), or flat";
    const LEAST: f64 = 0.001;
    if text == "flat" {
        return Ok(Rate::Flat);
    }
    let (value, unit) = split(text, EXPECTED)?;
    let (prefix, rate): (&str, fn(f64) -> Rate) = if let Some(p) = unit.strip_suffix("pps") {
        (p, Rate::Packets)
    } else if let Some(p) =
        unit.strip_suffix("bit").or_else(|| unit.strip_suffix("bps")).or_else(|| unit.strip_suffix("bit/s"))
    {
        (p, Rate::Bits)
    } else {
        return Err(error(text, EXPECTED));
    };
    let scale = match prefix {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        _ => return Err(error(text, EXPECTED)),
    };
    if value * scale >= LEAST { Ok(rate(value * scale)) } else { Err(error(text, EXPECTED)) }
}

/// Parses the age after which retention removes files: a duration whose unit is mandatory. If `30`, meant as days, were
/// read as seconds, retention would empty the store.
///
/// # Errors
/// As [`parse_span`], and for a number without a unit.
pub fn parse_age(text: &str) -> Result<Duration, ParseUnitError> {
    let unit = text.trim_end().bytes().last().is_some_and(|b| b.is_ascii_alphabetic());
    if unit { parse_span(text) } else { Err(error(text, "an age with its unit: write 30d, 12h")) }
}

/// Parses a duration: `10s`, `250ms`, `1h30min`, `2d`, `30 days`. Each number needs a unit, because `10` could mean
/// seconds or minutes; only `0` needs none.
///
/// # Errors
/// If a number or a unit is invalid or missing, or the duration exceeds 584 years.
pub fn parse_span(text: &str) -> Result<Duration, ParseUnitError> {
    const EXPECTED: &str = "a span of time: write 250ms, 10s, 5min, 1h30min, 30d";
    const NO_UNIT: &str = "a span of time, because its unit is missing: write 250ms, 10s, 5min, 1h30min, 30d";
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(error(text, EXPECTED));
    }
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    let mut nanos = 0f64;
    while !rest.is_empty() {
        let digits = rest.bytes().position(|b| !b.is_ascii_digit() && b != b'.').unwrap_or(rest.len());
        let value: f64 = rest[..digits].parse().map_err(|_| error(text, EXPECTED))?;
        rest = &rest[digits..];
        let letters = rest.bytes().position(|b| b.is_ascii_digit() || b == b'.').unwrap_or(rest.len());
        nanos += value
            * match rest[..letters].trim() {
                "ns" => 1.0,
                "us" | "µs" => 1e3,
                "ms" => 1e6,
                "" => return Err(error(text, NO_UNIT)),
                "s" | "sec" | "secs" | "second" | "seconds" => 1e9,
                "m" | "min" | "mins" | "minute" | "minutes" => 60e9,
                "h" | "hr" | "hrs" | "hour" | "hours" => 3600e9,
                "d" | "day" | "days" => 86_400e9,
                "w" | "week" | "weeks" => 7.0 * 86_400e9,
                "y" | "year" | "years" => 365.0 * 86_400e9,
                _ => return Err(error(text, EXPECTED)),
            };
        rest = &rest[letters..];
    }
    if nanos < 1.8e19 { Ok(Duration::from_nanos(nanos.round() as u64)) } else { Err(error(text, EXPECTED)) }
}

/// A size in binary units with three significant digits: `1.00 GiB`.
pub fn show_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let step = (0..UNITS.len() - 1).take_while(|i| bytes >> (10 * (i + 1)) > 0).count();
    if step == 0 {
        return format!("{bytes} B");
    }
    three_digits(bytes as f64 / (1u64 << (10 * step)) as f64, UNITS[step])
}

/// A quantity in decimal units with three significant digits: `1.60 Mpps` for `show_si(1.6e6, "pps")`.
pub fn show_si(value: f64, unit: &str) -> String {
    for (scale, prefix) in [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if value >= scale {
            return three_digits(value / scale, &format!("{prefix}{unit}"));
        }
    }
    three_digits(value, unit)
}

/// A count with a thin separator every three digits: `1 234 567`.
pub fn show_count(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(c);
    }
    out
}

/// A count with its noun: `1 file`, `2 345 files`.
pub fn plural(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", show_count(count), if count == 1 { one } else { many })
}

fn three_digits(value: f64, unit: &str) -> String {
    let places = if value > 0.0 && value < 1.0 {
        // The limit bounds the length of the text.
        (2.0 - value.log10().floor()).min(9.0) as usize
    } else if value < 10.0 {
        2
    } else if value < 100.0 {
        1
    } else {
        0
    };
    format!("{value:.places$} {unit}")
}

fn split<'a>(text: &'a str, expected: &'static str) -> Result<(f64, &'a str), ParseUnitError> {
    let t = text.trim();
    let end = t.bytes().position(|b| !b.is_ascii_digit() && b != b'.').unwrap_or(t.len());
    let value = t[..end].parse::<f64>().map_err(|_| error(text, expected))?;
    Ok((value, t[end..].trim()))
}

fn error(text: &str, expected: &'static str) -> ParseUnitError {
    ParseUnitError { text: text.to_owned(), expected }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_without_a_unit_is_rejected() {
        assert_eq!(parse_age("30d").unwrap(), Duration::from_secs(30 * 86_400));
        assert_eq!(parse_age(" 1h30min ").unwrap(), Duration::from_secs(5400));
        for bad in ["30", "1h30", "", "30 "] {
            assert!(parse_age(bad).is_err_and(|e| e.to_string().contains("30d")), "{bad}");
        }
    }

    #[test]
    fn the_parts_of_a_span_are_summed() {
        assert_eq!(parse_span("1h30min").unwrap(), Duration::from_secs(5400));
        assert_eq!(parse_span("1.5s").unwrap(), Duration::from_millis(1500));
        assert_eq!(parse_span("0").unwrap(), Duration::ZERO);
        assert_eq!(parse_span("1y2w").unwrap(), Duration::from_secs((365 + 14) * 86_400));
        for (long, short) in [("30days", "30d"), ("1 day", "1d"), ("2hours30minutes", "2h30min"), ("90 seconds", "90s")]
        {
            assert_eq!(parse_span(long).unwrap(), parse_span(short).unwrap(), "{long}");
            assert_eq!(parse_age(long).unwrap(), parse_span(short).unwrap(), "{long}");
        }
        assert!(parse_span("30months").is_err_and(|e| e.to_string().contains("30d")));
        for bad in ["", "h", "5 parsecs", "1..2s", "-3s", "99999999999d"] {
            assert!(parse_span(bad).is_err(), "{bad}");
        }
        for bad in ["60", "1.5", "1h30", " 7 ", "00"] {
            assert!(parse_span(bad).is_err_and(|e| e.to_string().contains("unit is missing")), "{bad}");
        }
    }

    #[test]
    fn an_invalid_number_is_rejected_with_the_permitted_range() {
        assert_eq!(whole::<u32>(0..=9)("9"), Ok(9));
        for bad in ["", "x", "-1", "1.5", "10", "4294967296"] {
            let said = whole::<u32>(0..=9)(bad).unwrap_err();
            assert!(said.contains("from 0 to 9"), "{said}");
        }
        assert!(whole::<u16>(7..=u64::MAX)("65536").unwrap_err().ends_with("from 7 upwards"));
    }

    #[test]
    fn rates_and_sizes_are_parsed() {
        assert_eq!(parse_rate("1.6Mpps"), Ok(Rate::Packets(1.6e6)));
        assert_eq!(parse_rate("10Gbit"), Ok(Rate::Bits(1e10)));
        assert_eq!(parse_rate("flat"), Ok(Rate::Flat));
        for bad in ["0pps", "fast", "10G", "", "1e9pps"] {
            assert!(parse_rate(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_bytes("1MiB"), Ok(1 << 20));
        for bad in ["", "MiB", "1XB", "-1", "99999999T"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn shown_values_have_three_digits() {
        assert_eq!(show_bytes(1 << 30), "1.00 GiB");
        assert_eq!(show_bytes(1023), "1023 B");
        assert_eq!(show_si(1_600_000.0, "pps"), "1.60 Mpps");
        assert_eq!(show_si(0.0123, "pps"), "0.0123 pps");
        assert_eq!(show_si(0.001, "pps"), "0.00100 pps");
        assert_eq!(show_si(0.0, "pps"), "0.00 pps");
        assert_eq!(show_count(1_234_567), "1 234 567");
    }
}
