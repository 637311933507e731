//! Long-term changes of the daily load (Mata, García-Dorado and Aracil: "Detection of traffic changes in large-scale
//! backbone networks: The case of the Spanish academic network", Computer Networks 56(2), 2012; DetectPro uses the
//! method: Moreno, PhD thesis, 2015, §5.4.1).
//!
//! A day is a vector of 16 averages of 90 minutes. Days are divided, in order of time, into regimes: a split of the
//! days is a change if the mean vectors of the days before and after it differ significantly (multivariate
//! Behrens–Fisher test, because the two covariance matrices can differ), and if each of the two sides is stationary and
//! fairly normal.
//!
//! **Few days.** The test needs the inverse of the sum of the two covariance matrices, which is singular while there
//! are fewer days than dimensions, and it has little power while there are hardly more. The averages are therefore
//! merged into parts of the day, whose number `p` is the largest of 16, 8, 4, 2 and 1 for which the smaller side has at
//! least twice `p` and two days ([`dimension`]): 4 days for one average per day, 6 for two, 10 for four, 18 for eight,
//! 34 for all sixteen. A smaller number of parts keeps the significance level. It does not see a change within a part
//! that leaves the average of the part unchanged.

mod behrens_fisher;
mod days;
mod matrix;
mod regimes;

pub use behrens_fisher::{BehrensFisher, TooFewDays, compare, dimension};
pub use days::{Day, DayBuilder, PARTS};
pub use regimes::{LongTermChange, Parameters, changes};
