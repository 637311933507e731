//! The configured way of timestamping.

use std::fmt;
use std::str::FromStr;

/// The value of `capture.timestamps`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimestampSetting {
    /// The most accurate method that the source offers without further privileges.
    #[default]
    Auto,
    /// The engine thread reads its clock for each packet.
    Poll,
    /// The engine thread reads its clock once for each batch.
    Batch,
    /// The time between two batches is divided equally between the packets.
    Udts,
    /// The time between two batches is divided between the packets by their length on the wire.
    Wdts,
    /// Weighted apportionment while the batches show a saturated link or a late poll, otherwise polling.
    Adaptive,
    /// The kernel's timestamp.
    Kernel,
    /// The NIC's timestamp.
    Hardware,
}

/// The text is not the name of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseSettingError {
    text: String,
}

impl TimestampSetting {
    /// All settings.
    pub const ALL: [Self; 8] =
        [Self::Auto, Self::Poll, Self::Batch, Self::Udts, Self::Wdts, Self::Adaptive, Self::Kernel, Self::Hardware];

    /// The name in configuration and flags.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Poll => "poll",
            Self::Batch => "batch",
            Self::Udts => "udts",
            Self::Wdts => "wdts",
            Self::Adaptive => "adaptive",
            Self::Kernel => "kernel",
            Self::Hardware => "hardware",
        }
    }
}

impl FromStr for TimestampSetting {
    type Err = ParseSettingError;

    fn from_str(text: &str) -> Result<Self, ParseSettingError> {
        let found = Self::ALL.into_iter().find(|setting| setting.name() == text);
        found.ok_or_else(|| ParseSettingError { text: text.to_owned() })
    }
}

impl fmt::Display for TimestampSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for ParseSettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = TimestampSetting::ALL.map(TimestampSetting::name).join(", ");
        write!(f, "'{}' is not a method of timestamping: use one of {names}", self.text)
    }
}

impl std::error::Error for ParseSettingError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_refused_with_the_list_of_names() {
        let error = "ptp".parse::<TimestampSetting>().expect_err("not a setting").to_string();
        assert!(error.contains("'ptp'") && error.contains("auto, poll, batch, udts, wdts, adaptive"), "{error}");
    }

    #[test]
    fn each_setting_has_a_name_that_is_read_back() {
        for setting in TimestampSetting::ALL {
            assert_eq!(setting.to_string().parse(), Ok(setting));
        }
    }
}
