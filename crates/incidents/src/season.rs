//! The level of a simulated series: daily and weekly seasons, a holiday, and a drift.

/// Seconds of a day.
pub(crate) const DAY: u64 = 86_400;

/// The form of the seasons.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shape {
    /// Waves of a day and of half a day: a network with many users in their homes.
    Waves {
        /// The amplitude of the daily wave as a share of the mean.
        daily: f64,
        /// The factor of the weekend.
        weekend: f64,
    },
    /// Working hours, with steep mornings: an office.
    Office {
        /// The level of the night as a share of the level of the day.
        night: f64,
        /// The level of the weekend as a share of the level of the day.
        weekend: f64,
    },
    /// No season.
    Flat,
}

/// The level as a share of its mean (waves) or of its largest value (office), at a second since the begin on a Monday
/// at 0 h. `holiday` is a day with the level of a weekend.
pub(crate) fn level(shape: Shape, second: u64, holiday: u64) -> f64 {
    let hour = (second % DAY) as f64 / 3600.0;
    // The share of the weekend: the transition of one day to the next takes four hours.
    let is_free = |day: u64| f64::from(u8::from(day % 7 >= 5 || day == holiday));
    let today = is_free(second / DAY);
    let next = is_free(second / DAY + 1);
    let free = today + (next - today) * ((hour - 20.0) / 4.0).max(0.0);
    match shape {
        Shape::Flat => 1.0,
        Shape::Waves { daily, weekend } => {
            let angle = std::f64::consts::TAU * (hour - 15.0) / 24.0;
            let wave = daily * angle.cos() + daily / 4.0 * (2.0 * angle).cos();
            (1.0 + wave) * (1.0 + (weekend - 1.0) * free)
        }
        Shape::Office { night, weekend } => {
            let rise = |middle: f64| 1.0 / (1.0 + (-(hour - middle) * 3.0).exp());
            let lunch = 0.25 * (-((hour - 12.7) / 0.6).powi(2)).exp();
            let day = (rise(8.3) - rise(17.7)) * (1.0 - lunch);
            let largest = 1.0 + (weekend - 1.0) * free;
            night * largest.max(0.3) + (1.0 - night) * day * largest
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holiday_has_the_level_of_a_weekend() {
        let shape = Shape::Office { night: 0.05, weekend: 0.1 };
        let noon = |day: u64, holiday| level(shape, day * DAY + DAY / 2, holiday);
        assert!(noon(1, 99) > 0.7 && noon(5, 99) < 0.2);
        assert_eq!(noon(8, 8), noon(12, 99));
    }

    #[test]
    fn levels_have_no_jumps() {
        for shape in [Shape::Office { night: 0.05, weekend: 0.1 }, Shape::Waves { daily: 0.4, weekend: 0.8 }] {
            for second in 0..14 * DAY {
                let step = level(shape, second + 1, 8) - level(shape, second, 8);
                assert!(step.abs() < 0.0005, "{shape:?} {second}: {step}");
            }
        }
    }
}
