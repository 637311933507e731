//! Warnings about the egress interfaces of a program: one warning when an interface stops accepting packets, and one
//! when it accepts packets again. Without the warning, the user would not notice that a program mirrors packets to a
//! failed interface, because the packets are stored as before and no packet counts as lost.
//!
//! The monitor checks whether each interface exists, is up and has a carrier, because the kernel part counts unsent
//! packets without the name of their egress interface. Other failures (a packet is larger than the MTU of the
//! interface) are detected when the user part sends packets.

use capture::egress::Egress;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// An interface is reported as ready after this time without a refused packet, so that an interface that refuses some
/// packets now and then causes one warning.
const CALM: Duration = Duration::from_secs(10);

/// A refusal that is counted within this time after the interface became ready again causes no warning, because the
/// packet was sent before the interface was ready.
const SOON: Duration = Duration::from_secs(1);

/// The largest number of retained warnings; the oldest are removed.
const WARNINGS_MAX: usize = 32;

/// The state of all egress interfaces; see the module documentation.
#[derive(Default)]
pub struct EgressMonitor {
    egresses: Vec<EgressState>,
    warnings: VecDeque<String>,
}

#[derive(Default)]
struct EgressState {
    interface: String,
    fault: Option<EgressFault>,
    /// Time of the last refused packet.
    refused_at: Option<Instant>,
    /// Time at which the interface was last found ready again.
    ready_at: Option<Instant>,
    /// The numbers of accepted and of refused packets at the last refresh.
    taken: u64,
    refused: u64,
}

/// The reason why an interface accepts no packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EgressFault {
    Missing,
    Down,
    /// The interface exists and is up, but refuses packets.
    Refuses,
}

impl EgressMonitor {
    /// Sets the egress interfaces of a new program; their packet counts begin at 0. The state of an interface that the
    /// previous program used is retained.
    pub fn replace(&mut self, egresses: &[Egress]) {
        let mut before = std::mem::take(&mut self.egresses);
        let state = |egress: &Egress| {
            let known = before.iter().position(|state| state.interface == egress.name());
            let new = EgressState { interface: egress.name().to_owned(), ..EgressState::default() };
            known.map_or(new, |i| EgressState { taken: 0, refused: 0, ..before.swap_remove(i) })
        };
        self.egresses = egresses.iter().map(state).collect();
    }

    /// Checks the interfaces of the last [`EgressMonitor::replace`], in their order.
    pub fn refresh(&mut self, egresses: &[Egress], now: Instant) {
        for (state, egress) in self.egresses.iter_mut().zip(egresses) {
            let Some(warning) = state.refresh(egress.is_ready(), egress.counts(), now) else { continue };
            self.warnings.push_back(warning);
            if self.warnings.len() > WARNINGS_MAX {
                self.warnings.pop_front();
            }
        }
    }

    /// Returns the warnings, in order.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.iter().cloned().collect()
    }
}

impl EgressState {
    /// Updates the state and returns a warning if it changed. `is_ready` is `None` if the interface does not exist;
    /// `counts` are the numbers of packets accepted and refused so far.
    fn refresh(&mut self, is_ready: Option<bool>, counts: (u64, u64), now: Instant) -> Option<String> {
        let (taken, refused) = (counts.0 > self.taken, counts.1 > self.refused);
        (self.taken, self.refused) = counts;
        if refused {
            self.refused_at = Some(now);
        }
        let fault = match (is_ready, self.fault) {
            (None, _) => Some(EgressFault::Missing),
            (Some(false), _) => Some(EgressFault::Down),
            // If a packet was refused since the last refresh, it was sent before the interface became ready again.
            (Some(true), Some(EgressFault::Missing | EgressFault::Down)) => None,
            (Some(true), None) => {
                let back = self.ready_at.is_some_and(|at| now.duration_since(at) < SOON);
                (refused && !back).then_some(EgressFault::Refuses)
            }
            (Some(true), Some(EgressFault::Refuses)) => {
                let calm = self.refused_at.is_none_or(|at| now.duration_since(at) >= CALM);
                (!(calm && taken)).then_some(EgressFault::Refuses)
            }
        };
        let was = std::mem::replace(&mut self.fault, fault);
        let interface = &self.interface;
        let reason = match fault {
            None if was.is_some() => {
                self.ready_at = Some(now);
                return Some(format!(
                    "the program's egress interface {interface} accepts packets again; `unsent` and `copies_unsent` \
                    count the packets that were not sent"
                ));
            }
            None => return None,
            // No second warning is made for the same fault, although its reason may have changed: an interface that is
            // removed is first set down.
            Some(_) if was.is_some() => return None,
            Some(EgressFault::Missing) => "is missing",
            Some(EgressFault::Down) => "is down, or has no carrier",
            Some(EgressFault::Refuses) => "refuses some packets (larger than its MTU, or too small to be frames)",
        };
        Some(format!(
            "the program's egress interface {interface} {reason}; packets for it are not sent, and are counted as \
            `unsent` or `copies_unsent`"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> EgressState {
        EgressState { interface: "c".into(), ..EgressState::default() }
    }

    #[test]
    fn the_removal_and_the_return_of_an_interface_cause_one_warning_each() {
        let (mut state, now) = (state(), Instant::now());
        assert_eq!(state.refresh(Some(true), (5, 0), now), None);
        let warning = state.refresh(None, (5, 3), now).expect("a warning after the removal of the interface");
        assert!(warning.contains("interface c is missing") && warning.contains("`unsent`"), "{warning}");
        assert_eq!(state.refresh(None, (5, 9), now), None, "the fault has caused a warning already");
        let warning = state.refresh(Some(true), (5, 11), now).expect("a warning after the interface was created again");
        assert!(warning.contains("interface c accepts packets again"), "{warning}");
        assert_eq!(
            state.refresh(Some(true), (6, 12), now),
            None,
            "the refused packet was sent before the interface was created again"
        );
        assert!(state.refresh(Some(false), (6, 12), now).is_some_and(|warning| warning.contains("is down")));
        assert_eq!(state.refresh(None, (6, 12), now), None, "the fault has caused a warning already");
    }

    #[test]
    fn refused_packets_cause_one_warning_until_a_time_without_refusals() {
        let (mut state, mut now) = (state(), Instant::now());
        assert!(state.refresh(Some(true), (5, 1), now).is_some_and(|warning| warning.contains("larger than its MTU")));
        for n in 2..20 {
            now += CALM / 2;
            assert_eq!(state.refresh(Some(true), (5 * n, n), now), None);
        }
        now += CALM;
        assert_eq!(state.refresh(Some(true), (95, 19), now), None, "no packet was sent");
        assert!(
            state.refresh(Some(true), (96, 19), now).is_some_and(|warning| warning.contains("accepts packets again"))
        );
    }
}
