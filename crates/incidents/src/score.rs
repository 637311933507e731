//! Comparison of alarms with incidents, per event and not per second.
//!
//! An incident is found if an alarm of its sign is confirmed between its begin and its end. An alarm is false if it is
//! not confirmed between the begin of an incident and [`AFTER`] seconds after its end. An alarm in these seconds, or a
//! further alarm of a found incident, is neither false nor a further success.

use crate::incident::{Incident, IncidentKind};
use detect::Change;

/// Seconds after an incident in which alarms are its consequence: the return to the normal level is a change.
pub const AFTER: u64 = 120;

/// The result for an incident.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// The incident.
    pub incident: Incident,
    /// Seconds from the begin of the incident to the end of the second of the confirmation.
    pub delay: Option<u64>,
    /// True if any alarm belongs to the incident.
    pub has_alarm: bool,
}

impl Found {
    /// True if the detector did what is expected: an alarm, or no alarm for capture loss and clock steps.
    pub fn is_right(&self) -> bool {
        if self.incident.kind.expects_alarm() { self.delay.is_some() } else { !self.has_alarm }
    }
}

/// The result for a series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Score {
    /// The results of the incidents.
    pub found: Vec<Found>,
    /// The seconds in which false alarms were confirmed.
    pub false_alarms: Vec<u64>,
    /// Alarms that belong to incidents for which an alarm is expected.
    pub true_alarms: u64,
}

/// Compares alarms (second of the confirmation, sign) with incidents.
pub fn score(incidents: &[Incident], alarms: &[(u64, Change)]) -> Score {
    let found = |incident: &Incident| Found { incident: *incident, delay: None, has_alarm: false };
    let mut score = Score { found: incidents.iter().map(found).collect(), ..Score::default() };
    for (second, change) in alarms {
        let belongs = |found: &&mut Found| (found.incident.begin..found.incident.end + AFTER).contains(second);
        let Some(found) = score.found.iter_mut().find(belongs) else {
            score.false_alarms.push(*second);
            continue;
        };
        found.has_alarm = true;
        if !found.incident.kind.expects_alarm() {
            score.false_alarms.push(*second);
            continue;
        }
        score.true_alarms += 1;
        let is_same_sign = (*change == Change::Decrease) == (found.incident.strength < 0.0);
        if is_same_sign && *second < found.incident.end && found.delay.is_none() {
            found.delay = Some(second - found.incident.begin + 1);
        }
    }
    score
}

impl Score {
    /// The results of incidents with an expected alarm and at least this strength.
    pub fn at_least(&self, strength: f64) -> impl Iterator<Item = &Found> {
        let is_strong = move |incident: &Incident| incident.kind.expects_alarm() && incident.strength.abs() >= strength;
        self.found.iter().filter(move |found| is_strong(&found.incident))
    }

    /// The results of incidents of a kind.
    pub fn of_kind(&self, kind: IncidentKind) -> impl Iterator<Item = &Found> {
        self.found.iter().filter(move |found| found.incident.kind == kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    #[test]
    fn alarms_are_found_false_or_a_consequence() {
        let mut prng = Prng::new(1);
        let mut incident = Incident::draw(&mut prng, IncidentKind::Exfiltration, 10_000, 5.0);
        incident.end = 11_000;
        let loss = Incident { begin: 20_000, end: 20_100, kind: IncidentKind::CaptureLoss, ..incident };
        let alarms = [
            (9_999, Change::Increase),
            (10_002, Change::Decrease),
            (10_004, Change::Increase),
            (10_500, Change::Increase),
            (11_010, Change::Decrease),
            (11_120, Change::Decrease),
            (20_050, Change::Decrease),
        ];
        let score = score(&[incident, loss], &alarms);
        assert_eq!(score.found[0].delay, Some(5));
        assert_eq!(score.false_alarms, [9_999, 11_120, 20_050]);
        assert_eq!(score.true_alarms, 4);
        assert!(score.found[0].is_right() && !score.found[1].is_right());
        assert_eq!(score.at_least(5.0).count(), 1);
        assert_eq!(score.at_least(6.0).count(), 0);
    }
}
