//! Parsers of flags.

/// Parses the duration of a measurement in seconds, or 0 for no measurement.
pub fn seconds_or_none(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(0.0) => Ok(0.0),
        _ => seconds(text),
    }
}

/// Parses the duration of a measurement in seconds.
pub fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.001..=86_400.0).contains(&s) => Ok(s),
        _ => Err(format!("{text:?} is not a number of seconds from 0.001 to 86400")),
    }
}
