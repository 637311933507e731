//! The expected level of a series: the recent level, and the level by time of week.
//!
//! The *recent level* follows the values with a time constant of minutes. The *seasonal level* moves with the weekly
//! profile and follows the values slowly, which corrects for drifts and for weeks with more or less traffic. A value is
//! unusual only if it is unusual for both: so neither a holiday nor the morning of a working day is unusual.

use crate::state::{Codec, Field};

/// Time constant of the recent level in seconds, while there is no seasonal level.
const RECENT_SECONDS: f64 = 600.0;

/// Time constant of the recent level in seconds, while there is a seasonal level.
const RECENT_SECONDS_SEASONAL: f64 = 1200.0;

/// Time constant of the seasonal level in seconds.
const SEASONAL_SECONDS: f64 = 1800.0;

/// Time constant of the level during an alarm in seconds.
const ALARM_SECONDS: f64 = 30.0;

/// A value farther from a level than this multiple of the spread moves the level as if it had this distance.
const STEP_MAX: f64 = 5.0;

/// The largest factor by which the profile changes the seasonal level in one step.
const PROFILE_FACTOR_MAX: f64 = 4.0;

/// The levels of a series.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Levels {
    recent: f64,
    seasonal: f64,
    /// The level of the profile at the last value.
    last_profile: f32,
    /// The level of the values during an alarm.
    during_alarm: f32,
    has_seasonal: bool,
    /// Values since the recent level began.
    count: u32,
}

impl Levels {
    /// Begins anew at a value.
    pub fn restart(&mut self, value: f64) {
        *self = Self { recent: value, during_alarm: value as f32, ..Self::default() };
    }

    /// True if the levels have a value.
    pub const fn is_started(&self) -> bool {
        self.count > 0
    }

    /// Moves the seasonal level with the profile: by a factor if the level of the profile is above `least`, otherwise
    /// by a difference.
    pub fn advance(&mut self, profile: Option<f64>, least: f64) {
        let last = f64::from(std::mem::replace(&mut self.last_profile, profile.unwrap_or(0.0) as f32));
        let had_seasonal = std::mem::replace(&mut self.has_seasonal, profile.is_some());
        let Some(now) = profile else { return };
        if !had_seasonal {
            self.seasonal = self.recent;
        } else if now.min(last) > least && self.seasonal > 0.0 {
            self.seasonal *= (now / last).clamp(1.0 / PROFILE_FACTOR_MAX, PROFILE_FACTOR_MAX);
        } else {
            self.seasonal += now - last;
        }
    }

    /// The distance of a value from the nearer level; 0 if the value is between the levels.
    pub fn residual(&self, value: f64) -> f64 {
        let recent = value - self.recent;
        if !self.has_seasonal {
            return recent;
        }
        let seasonal = value - self.seasonal;
        if recent * seasonal <= 0.0 {
            0.0
        } else if recent.abs() < seasonal.abs() {
            recent
        } else {
            seasonal
        }
    }

    /// True if the profile has a level for the present time.
    pub const fn has_seasonal(&self) -> bool {
        self.has_seasonal
    }

    /// The recent level.
    pub const fn recent(&self) -> f64 {
        self.recent
    }

    /// Sets the recent level, if the values agree with the seasonal level only.
    pub const fn set_recent(&mut self, level: f64) {
        self.recent = level;
    }

    /// Moves the levels towards a value. Returns the factor by which the recent level changed, or 1 if the level is
    /// below `least`.
    pub fn learn(&mut self, value: f64, spread: f64, least: f64) -> f64 {
        let before = self.recent;
        self.count = self.count.saturating_add(1);
        let limit = STEP_MAX * spread;
        let seconds = if self.has_seasonal { RECENT_SECONDS_SEASONAL } else { RECENT_SECONDS };
        let gain = (1.0 / f64::from(self.count)).max(1.0 / seconds);
        self.recent += gain * (value - self.recent).clamp(-limit, limit);
        self.seasonal += (value - self.seasonal).clamp(-limit, limit) / SEASONAL_SECONDS;
        self.during_alarm = self.recent as f32;
        if before.min(self.recent) > least { self.recent / before } else { 1.0 }
    }

    /// Follows the values during an alarm.
    pub fn follow_alarm(&mut self, value: f64) {
        let level = f64::from(self.during_alarm);
        self.during_alarm = (level + (value - level) / ALARM_SECONDS) as f32;
    }

    /// The level of the values during an alarm.
    pub fn during_alarm(&self) -> f64 {
        f64::from(self.during_alarm)
    }
}

impl Field for Levels {
    fn visit(&mut self, codec: &mut dyn Codec) {
        codec.f64(&mut self.recent);
        codec.f64(&mut self.seasonal);
        codec.f32(&mut self.last_profile);
        codec.f32(&mut self.during_alarm);
        codec.bool(&mut self.has_seasonal);
        codec.u32(&mut self.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(value: f64) -> Levels {
        let mut levels = Levels::default();
        levels.restart(value);
        for _ in 0..2000 {
            levels.learn(value, 1.0, 0.0);
        }
        levels
    }

    #[test]
    fn the_seasonal_level_moves_with_the_profile() {
        let mut levels = started(200.0);
        levels.advance(Some(100.0), 0.0);
        levels.advance(Some(150.0), 0.0);
        assert_eq!(levels.residual(300.0), 0.0);
        assert_eq!(levels.residual(310.0), 10.0);
        // The recent level is still 200 and the seasonal level is 300. A value between the two has the residual 0, so
        // also a value that stayed at 200.
        assert_eq!(levels.residual(200.0), 0.0);
        assert_eq!(levels.residual(190.0), -10.0);
    }

    #[test]
    fn one_extreme_value_hardly_moves_the_level() {
        let mut levels = started(100.0);
        levels.learn(1e9, 1.0, 0.0);
        assert!((levels.recent() - 100.0).abs() < 0.01, "{}", levels.recent());
    }

    #[test]
    fn a_series_without_positive_levels_has_a_seasonal_level_too() {
        let mut levels = started(-5.0);
        levels.advance(Some(-4.0), 0.0);
        levels.advance(Some(0.0), 0.0);
        assert_eq!(levels.residual(-1.0), 0.0);
    }
}
