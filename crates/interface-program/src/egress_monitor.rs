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
    all: Vec<EgressState>,
    remarks: VecDeque<String>,
}

#[derive(Default)]
struct EgressState {
    port: String,
    trouble: Option<EgressError>,
    /// Time of the last refused packet.
    refused_at: Option<Instant>,
    /// Time at which the interface was last found ready again.
    well_at: Option<Instant>,
    /// The counts of taken and refused packets at the last refresh.
    taken: u64,
    refused: u64,
}

/// The reason why an interface takes no packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EgressError {
    Away,
    Down,
    /// The interface exists and is up, but refuses packets.
    Refuses,
}

impl EgressMonitor {
    /// Sets the program's egress interfaces, which have sent nothing yet. The state of an interface already known is
    /// kept.
    pub fn turn(&mut self, devices: &[Egress]) {
        let mut before = std::mem::take(&mut self.all);
        let way = |device: &Egress| {
            let known = before.iter().position(|way| way.port == device.name()).map(|at| before.swap_remove(at));
            let new = EgressState { port: device.name().to_owned(), ..EgressState::default() };
            known.map_or(new, |way| EgressState { taken: 0, refused: 0, ..way })
        };
        self.all = devices.iter().map(way).collect();
    }

    /// Checks the interfaces of the last `turn`, in their order.
    pub fn refresh(&mut self, devices: &[Egress], now: Instant) {
        for (way, device) in self.all.iter_mut().zip(devices) {
            let Some(said) = way.refresh(device.is_ready(), device.books(), now) else { continue };
            self.remarks.push_back(said);
            if self.remarks.len() > WARNINGS_MAX {
                self.remarks.pop_front();
            }
        }
    }

    /// Returns the warnings, in order.
    pub fn warnings(&self) -> Vec<String> {
        self.remarks.iter().cloned().collect()
    }
}

impl EgressState {
    /// `is_ready` is `None` if the interface does not exist; `books` are the numbers of packets taken and refused so
    /// far. Returns a warning if the state changed.
    fn refresh(&mut self, is_ready: Option<bool>, books: (u64, u64), now: Instant) -> Option<String> {
        let (taken, refused) = (books.0 > self.taken, books.1 > self.refused);
        (self.taken, self.refused) = books;
        if refused {
            self.refused_at = Some(now);
        }
        let trouble = match (is_ready, self.trouble) {
            (None, _) => Some(EgressError::Away),
            (Some(false), _) => Some(EgressError::Down),
            // The packet was refused before the interface came back.
            (Some(true), Some(EgressError::Away | EgressError::Down)) => None,
            (Some(true), None) => {
                let back = self.well_at.is_some_and(|at| now.duration_since(at) < SOON);
                (refused && !back).then_some(EgressError::Refuses)
            }
            (Some(true), Some(EgressError::Refuses)) => {
                let calm = self.refused_at.is_none_or(|at| now.duration_since(at) >= CALM);
                (!(calm && taken)).then_some(EgressError::Refuses)
            }
        };
        let was = std::mem::replace(&mut self.trouble, trouble);
        let port = &self.port;
        let why = match trouble {
            None if was.is_some() => {
                self.well_at = Some(now);
                return Some(format!(
                    "the program's interface {port} takes packets again; `unsent` and `copies_unsent` have what it missed"
                ));
            }
            None => return None,
            // There was a warning already, possibly for another reason: an interface that is removed goes down first.
            Some(_) if was.is_some() => return None,
            Some(EgressError::Away) => "is not there",
            Some(EgressError::Down) => "is down, or has no carrier",
            Some(EgressError::Refuses) => "does not take some packets (larger than its MTU, or too small to be frames)",
        };
        Some(format!(
            "the program's interface {port} {why}; what is for it meanwhile is not sent, and counted as `unsent` or `copies_unsent`"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way() -> EgressState {
        EgressState { port: "c".into(), ..EgressState::default() }
    }

    #[test]
    fn a_port_that_goes_is_told_of_once_and_its_return_too() {
        let (mut way, now) = (way(), Instant::now());
        assert_eq!(way.refresh(Some(true), (5, 0), now), None);
        let said = way.refresh(None, (5, 3), now).expect("it has gone");
        assert!(said.contains("interface c is not there") && said.contains("`unsent`"), "{said}");
        assert_eq!(way.refresh(None, (5, 9), now), None, "it was said");
        let said = way.refresh(Some(true), (5, 11), now).expect("it is back");
        assert!(said.contains("interface c takes packets again"), "{said}");
        assert_eq!(way.refresh(Some(true), (6, 12), now), None, "that one was on its way before");
        assert!(way.refresh(Some(false), (6, 12), now).is_some_and(|said| said.contains("is down")));
        assert_eq!(way.refresh(None, (6, 12), now), None, "it was told of");
    }

    #[test]
    fn a_port_that_refuses_some_packets_is_told_of_once_until_it_is_calm() {
        let (mut way, mut now) = (way(), Instant::now());
        assert!(way.refresh(Some(true), (5, 1), now).is_some_and(|said| said.contains("larger than its MTU")));
        for n in 2..20 {
            now += CALM / 2;
            assert_eq!(way.refresh(Some(true), (5 * n, n), now), None);
        }
        now += CALM;
        assert_eq!(way.refresh(Some(true), (95, 19), now), None, "nothing was sent, so nobody knows");
        assert!(way.refresh(Some(true), (96, 19), now).is_some_and(|said| said.contains("takes packets again")));
    }
}
