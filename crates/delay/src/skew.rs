//! The skew of the receiver's clock against the sender's clock, by the lower convex hull (Moon, Skelly and Towsley,
//! INFOCOM 1999).
//!
//! No packet travels faster than the path permits, so the smallest delays are near a line whose slope is the skew. The
//! estimate is the line that is below all points (departure, delay) and whose sum of vertical distances to the points
//! is the smallest. This line contains the edge of the lower convex hull whose two ends are before and after the mean
//! departure.
//!
//! The hull is computed with integers, so the result does not depend on rounding. The hull has few vertices: for random
//! delays, their number grows with the logarithm of the number of points. If there are more than [`HULL_MAX`] vertices,
//! every second vertex is removed. The line is then still below the remaining vertices, but may be above some of the
//! points.

/// The largest number of vertices of the hull.
pub const HULL_MAX: usize = 4096;

/// The largest magnitude of a departure or a delay: 36 years in nanoseconds. Larger magnitudes are reduced to this
/// value, so that the product of two differences of coordinates fits into 128 bits.
const COORDINATE_MAX: i64 = 1 << 60;

/// The line below all points (departure, delay): the smallest delay as a linear function of the departure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Skew {
    /// Nanoseconds per nanosecond by which the receiver's clock is faster than the sender's clock.
    pub slope: f64,
    /// The departure of a point of the line, relative to the departure of the first packet that arrived, in
    /// nanoseconds.
    pub departure: i64,
    /// The delay of the same point of the line, in nanoseconds.
    pub delay: i64,
    /// The time between the departures of the two packets that determine the line, in nanoseconds.
    pub base: i64,
}

impl Skew {
    /// The skew in parts per million.
    pub const fn ppm(&self) -> f64 {
        self.slope * 1e6
    }

    /// The delay of a packet minus the delay of the line at the departure of the packet, in nanoseconds.
    pub fn above(&self, departure: i64, delay: i64) -> i64 {
        let since = departure.saturating_sub(self.departure) as f64;
        delay.saturating_sub(self.delay).saturating_sub((self.slope * since).round() as i64)
    }
}

/// The lower convex hull of points (departure, delay).
#[derive(Clone, Debug, Default)]
pub struct Hull {
    /// The vertices, in order of their departures. No two vertices have the same departure.
    vertices: Vec<(i64, i64)>,
    departures: i128,
    points: u64,
    is_thinned: bool,
}

impl Hull {
    /// Adds a point.
    pub fn add(&mut self, departure: i64, delay: i64) {
        let (departure, delay) =
            (departure.clamp(-COORDINATE_MAX, COORDINATE_MAX), delay.clamp(-COORDINATE_MAX, COORDINATE_MAX));
        self.points += 1;
        self.departures += i128::from(departure);
        let point = (departure, delay);
        let at = self.vertices.partition_point(|vertex| vertex.0 < departure);
        match self.vertices.get(at) {
            Some(vertex) if vertex.0 == departure => {
                if vertex.1 <= delay {
                    return;
                }
                self.vertices[at] = point;
            }
            Some(after) if at > 0 && !is_below(self.vertices[at - 1], point, *after) => return,
            _ => self.vertices.insert(at, point),
        }
        let mut at = at;
        while at >= 2 && !is_below(self.vertices[at - 2], self.vertices[at - 1], point) {
            self.vertices.remove(at - 1);
            at -= 1;
        }
        while at + 2 < self.vertices.len() && !is_below(point, self.vertices[at + 1], self.vertices[at + 2]) {
            self.vertices.remove(at + 1);
        }
        if self.vertices.len() > HULL_MAX {
            self.thin();
        }
    }

    /// Removes every second vertex between the first and the last.
    fn thin(&mut self) {
        self.is_thinned = true;
        let last = self.vertices.len() - 1;
        let mut number = 0;
        self.vertices.retain(|_| {
            number += 1;
            number % 2 == 1 || number - 1 == last
        });
    }

    /// True if vertices were removed because their number exceeded [`HULL_MAX`].
    pub const fn is_thinned(&self) -> bool {
        self.is_thinned
    }

    /// The line below all points; `None` unless two packets have different departures.
    pub fn skew(&self) -> Option<Skew> {
        if self.vertices.len() < 2 {
            return None;
        }
        let points = i128::from(self.points);
        let after = self.vertices.partition_point(|vertex| i128::from(vertex.0) * points <= self.departures);
        let after = after.clamp(1, self.vertices.len() - 1);
        let (from, to) = (self.vertices[after - 1], self.vertices[after]);
        let base = to.0 - from.0;
        let slope = (i128::from(to.1) - i128::from(from.1)) as f64 / base as f64;
        Some(Skew { slope, departure: from.0, delay: from.1, base })
    }
}

/// True if `b` is below the line from `a` to `c`; the departures increase from `a` to `c`.
fn is_below(a: (i64, i64), b: (i64, i64), c: (i64, i64)) -> bool {
    let difference = |from: i64, to: i64| i128::from(to) - i128::from(from);
    difference(a.1, b.1) * difference(a.0, c.0) < difference(a.1, c.1) * difference(a.0, b.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    /// The expected result: of all lines through two points that are not above any point, the largest value at the mean
    /// departure.
    fn by_definition(points: &[(i64, i64)]) -> f64 {
        let mean = points.iter().map(|p| p.0 as f64).sum::<f64>() / points.len() as f64;
        let mut best = f64::NEG_INFINITY;
        for a in points {
            for b in points.iter().filter(|b| b.0 > a.0) {
                let is_under = |p: &(i64, i64)| {
                    let cross = i128::from(p.1 - a.1) * i128::from(b.0 - a.0);
                    cross >= i128::from(b.1 - a.1) * i128::from(p.0 - a.0)
                };
                if points.iter().all(is_under) {
                    let slope = (b.1 - a.1) as f64 / (b.0 - a.0) as f64;
                    best = best.max(a.1 as f64 + slope * (mean - a.0 as f64));
                }
            }
        }
        best
    }

    #[test]
    fn one_departure_has_no_skew() {
        let mut hull = Hull::default();
        assert_eq!(hull.skew(), None);
        hull.add(5, 7);
        hull.add(5, 6);
        assert_eq!(hull.skew(), None);
        hull.add(7, 6);
        assert_eq!(hull.skew(), Some(Skew { slope: 0.0, departure: 5, delay: 6, base: 2 }));
    }

    #[test]
    fn the_line_is_the_best_of_all_lines_below_the_points_in_any_order() {
        let seed = testkit::seed("the_line_is_the_best_of_all_lines_below_the_points_in_any_order");
        let mut prng = Prng::new(seed);
        for round in 0..400 {
            let (range, noise) = (1 + prng.below(1000) as i64, 1 + prng.below(500));
            let slope = prng.below(200) as i64 - 100;
            let points: Vec<(i64, i64)> = (0..2 + prng.below(40))
                .map(|_| {
                    let x = prng.below(range as u64) as i64;
                    (x, x * slope / 100 + prng.below(noise) as i64)
                })
                .collect();
            let mut hull = Hull::default();
            points.iter().for_each(|(x, y)| hull.add(*x, *y));
            let Some(skew) = hull.skew() else {
                assert!(points.iter().all(|p| p.0 == points[0].0), "seed {seed}, round {round}");
                continue;
            };
            assert!(hull.vertices.is_sorted_by(|a, b| a.0 < b.0), "seed {seed}, round {round}");
            let mean = points.iter().map(|p| p.0 as f64).sum::<f64>() / points.len() as f64;
            let value = skew.delay as f64 + skew.slope * (mean - skew.departure as f64);
            let best = by_definition(&points);
            assert!((value - best).abs() < 1e-6, "seed {seed}, round {round}: {value} {best}");
            assert!(points.iter().all(|p| skew.above(p.0, p.1) >= 0), "seed {seed}, round {round}");
        }
    }

    #[test]
    fn a_planted_skew_is_found_under_delays_that_are_never_negative() {
        let mut prng = Prng::new(50);
        for ppm in [-80.0, -1.0, 0.0, 20.0, 300.0] {
            let mut hull = Hull::default();
            // Ten minutes, 100 packets per second, exponential queueing delays with a mean of 200 µs.
            for i in 0..60_000i64 {
                let departure = i * 10_000_000;
                let queueing = -200_000.0 * (1.0 - prng.unit()).ln();
                hull.add(departure, (5e9 + departure as f64 * ppm * 1e-6 + queueing) as i64);
            }
            let found = hull.skew().expect("a skew").ppm();
            assert!((found - ppm).abs() < 0.01, "{ppm} ppm planted, {found} found, seed 50");
        }
    }

    #[test]
    fn a_convex_sequence_does_not_exceed_the_limit_of_vertices() {
        let mut hull = Hull::default();
        for x in 0..30_000i64 {
            hull.add(x, x * x);
        }
        assert!(hull.vertices.len() <= HULL_MAX && hull.is_thinned());
        let slope = hull.skew().expect("a skew").slope;
        assert!((slope - 30_000.0).abs() < 3_000.0, "{slope}");
    }
}
