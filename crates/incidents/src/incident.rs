//! Incidents: ten kinds, each with a course over time.

use base::Prng;

/// The kind of an incident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IncidentKind {
    /// A flood: full strength within two seconds.
    Flood,
    /// A scan of few or of many addresses: pauses of a second, or none.
    Scan,
    /// An outage: the values fall.
    Outage,
    /// A flash crowd: a rise within a minute, and a slow decrease.
    FlashCrowd,
    /// Slow growth over 10 to 30 minutes.
    SlowGrowth,
    /// Exfiltration: a constant addition for 15 to 50 minutes.
    Exfiltration,
    /// A DNS stall: a rise within two minutes, as in the first case of the thesis on HPCAP (§5.4.1).
    DnsStall,
    /// A routing shift: a new level for 30 to 50 minutes, higher or lower.
    RoutingShift,
    /// Capture loss: the values are too low and are marked as untrusted. No alarm is expected.
    CaptureLoss,
    /// A clock step: a few seconds have wrong values and are marked as untrusted. No alarm is expected.
    ClockStep,
}

impl IncidentKind {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::Flood,
        Self::Scan,
        Self::Outage,
        Self::FlashCrowd,
        Self::SlowGrowth,
        Self::Exfiltration,
        Self::DnsStall,
        Self::RoutingShift,
        Self::CaptureLoss,
        Self::ClockStep,
    ];

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flood => "flood",
            Self::Scan => "scan",
            Self::Outage => "outage",
            Self::FlashCrowd => "flash crowd",
            Self::SlowGrowth => "slow growth",
            Self::Exfiltration => "exfiltration",
            Self::DnsStall => "dns stall",
            Self::RoutingShift => "routing shift",
            Self::CaptureLoss => "capture loss",
            Self::ClockStep => "clock step",
        }
    }

    /// True if an alarm is expected; for capture loss and clock steps, the verdict is withheld.
    pub const fn expects_alarm(self) -> bool {
        !matches!(self, Self::CaptureLoss | Self::ClockStep)
    }
}

/// A labelled incident.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Incident {
    /// The kind.
    pub kind: IncidentKind,
    /// The first second, since 1970.
    pub begin: u64,
    /// The first second after the incident.
    pub end: u64,
    /// The strength in standard deviations of the hour of the begin; negative for a decrease. A decrease of a series
    /// without negative values is at most its level, and `strength` is the strength that was reached.
    pub strength: f64,
    /// Seconds until the full strength.
    pub(crate) rise: u64,
    /// A scan with pauses.
    pub(crate) has_pauses: bool,
}

impl Incident {
    /// A random incident of a kind that begins at `begin`.
    pub(crate) fn draw(prng: &mut Prng, kind: IncidentKind, begin: u64, strength: f64) -> Self {
        let mut between = |low: u64, high: u64| low + prng.below(high - low + 1);
        let (duration, rise) = match kind {
            IncidentKind::Flood => (between(60, 600), between(0, 2)),
            IncidentKind::Scan => (between(60, 900), 0),
            IncidentKind::Outage => (between(30, 600), 0),
            IncidentKind::FlashCrowd => (between(600, 1800), 60),
            IncidentKind::SlowGrowth => {
                let rise = between(600, 1800);
                (rise + between(300, 900), rise)
            }
            IncidentKind::Exfiltration => (between(900, 3000), 0),
            IncidentKind::DnsStall => (between(300, 600), 120),
            IncidentKind::RoutingShift => (between(1800, 3000), 0),
            IncidentKind::CaptureLoss => (between(30, 120), 0),
            IncidentKind::ClockStep => (between(2, 5), 0),
        };
        let is_decrease = match kind {
            IncidentKind::Outage | IncidentKind::CaptureLoss => true,
            IncidentKind::RoutingShift | IncidentKind::ClockStep => prng.below(2) == 0,
            _ => false,
        };
        let has_pauses = kind == IncidentKind::Scan && prng.below(2) == 0;
        let strength = if is_decrease { -strength } else { strength };
        Self { kind, begin, end: begin + duration, strength, rise, has_pauses }
    }

    /// The share of the strength at a second of the incident.
    pub(crate) fn share(&self, second: u64) -> f64 {
        let since = second - self.begin;
        let rising = ((since + 1) as f64 / (self.rise + 1) as f64).min(1.0);
        let left = (self.end - second) as f64;
        match self.kind {
            IncidentKind::FlashCrowd if since > self.rise => {
                (-((since - self.rise) as f64) / ((self.end - self.begin) as f64 / 2.0)).exp()
            }
            IncidentKind::DnsStall | IncidentKind::SlowGrowth => rising.min(left / 60.0),
            IncidentKind::Scan if self.has_pauses && since % 5 == 4 => 0.0,
            _ => rising,
        }
    }
}
