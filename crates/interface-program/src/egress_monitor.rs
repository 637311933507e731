//! Warnings about the egress interfaces of a program: one when an interface stops taking packets, and one when it takes
//! them again. Without a warning a mirror with a dead output looks healthy: its packets are stored as before, and none
//! is lost here.
//!
//! The monitor checks whether an interface exists, is up and has a carrier, because the kernel part counts packets for
//! an interface that does not without its name. Other refusals of the user part's packets (larger than the interface's
//! MTU) show when it sends them.

use capture::egress::Egress;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// An interface is ready again after this time without a refused packet; an interface that refuses some packets now and
/// then causes one warning.
const CALM: Duration = Duration::from_secs(10);

/// A packet that an interface refuses within this time after its return was sent before its return.
const SOON: Duration = Duration::from_secs(1);

/// The most warnings kept; the oldest are removed.
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
    /// The counts of taken and refused packets at the last refresh.
    taken: u64,
    refused: u64,
}

/// The reason why an interface takes no packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EgressFault {
    Away,
    Down,
    /// The interface exists and is up, but refuses packets.
    Refuses,
}

impl EgressMonitor {
    /// Sets the program's egress interfaces, which have sent nothing yet. The state of an interface already known is
    /// kept.
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
    /// `is_ready` is `None` if the interface does not exist; `counts` are the numbers of packets taken and refused so
    /// far. Returns a warning if the state changed.
    fn refresh(&mut self, is_ready: Option<bool>, counts: (u64, u64), now: Instant) -> Option<String> {
        let (taken, refused) = (counts.0 > self.taken, counts.1 > self.refused);
        (self.taken, self.refused) = counts;
        if refused {
            self.refused_at = Some(now);
        }
        let fault = match (is_ready, self.fault) {
            (None, _) => Some(EgressFault::Away),
            (Some(false), _) => Some(EgressFault::Down),
            // The packet was refused before the interface came back.
            (Some(true), Some(EgressFault::Away | EgressFault::Down)) => None,
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
                    "the program's interface {interface} takes packets again; `unsent` and `copies_unsent` count the packets that it missed"
                ));
            }
            None => return None,
            // There was a warning already, possibly for another reason: an interface that is removed goes down first.
            Some(_) if was.is_some() => return None,
            Some(EgressFault::Away) => "is missing",
            Some(EgressFault::Down) => "is down, or has no carrier",
            Some(EgressFault::Refuses) => "does not take some packets (larger than its MTU, or too small to be frames)",
        };
        Some(format!(
            "the program's interface {interface} {reason}; its packets are not sent meanwhile, and are counted as `unsent` or `copies_unsent`"
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
    fn one_warning_follows_the_removal_of_an_interface_and_one_its_return() {
        let (mut state, now) = (state(), Instant::now());
        assert_eq!(state.refresh(Some(true), (5, 0), now), None);
        let warning = state.refresh(None, (5, 3), now).expect("it is removed");
        assert!(warning.contains("interface c is missing") && warning.contains("`unsent`"), "{warning}");
        assert_eq!(state.refresh(None, (5, 9), now), None, "there was a warning");
        let warning = state.refresh(Some(true), (5, 11), now).expect("it is back");
        assert!(warning.contains("interface c takes packets again"), "{warning}");
        assert_eq!(state.refresh(Some(true), (6, 12), now), None, "the packet was sent before the return");
        assert!(state.refresh(Some(false), (6, 12), now).is_some_and(|warning| warning.contains("is down")));
        assert_eq!(state.refresh(None, (6, 12), now), None, "there was a warning");
    }

    #[test]
    fn one_warning_follows_refused_packets_until_none_is_refused_for_a_while() {
        let (mut state, mut now) = (state(), Instant::now());
        assert!(state.refresh(Some(true), (5, 1), now).is_some_and(|warning| warning.contains("larger than its MTU")));
        for n in 2..20 {
            now += CALM / 2;
            assert_eq!(state.refresh(Some(true), (5 * n, n), now), None);
        }
        now += CALM;
        assert_eq!(state.refresh(Some(true), (95, 19), now), None, "no packet was sent");
        assert!(
            state.refresh(Some(true), (96, 19), now).is_some_and(|warning| warning.contains("takes packets again"))
        );
    }
}
