//! What is said of the ports that a program sends out of: once when one takes no packets, and once when it does again. A mirror whose
//! output is dead looks healthy otherwise: its packets are stored as before, and nothing is missing here.
//!
//! Whether a port is there, up and has a carrier is asked, because the kernel half's packets for one that is not are counted without its name. What the
//! user half is refused besides (larger than the port's MTU) is known from its sending.

use crate::egress::Egress;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A port that refused a packet is well again after this long without another; one that refuses some of them now and then is told of once.
const CALM: Duration = Duration::from_secs(10);

/// What a port refuses so soon after it came back was on its way before.
const SOON: Duration = Duration::from_secs(1);

/// Remarks that are kept; the oldest go.
const WARNINGS_MAX: usize = 32;

/// See the module.
#[derive(Default)]
pub(super) struct EgressMonitor {
    all: Vec<EgressState>,
    remarks: VecDeque<String>,
}

#[derive(Default)]
struct EgressState {
    port: String,
    trouble: Option<EgressError>,
    /// When it last refused a packet.
    refused_at: Option<Instant>,
    /// When it was last found well again.
    well_at: Option<Instant>,
    /// What it had taken and refused at the last look.
    taken: u64,
    refused: u64,
}

/// Why a port takes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EgressError {
    Away,
    Down,
    /// It is there and up.
    Refuses,
}

impl EgressMonitor {
    /// The program sends out of these now, which have not sent anything yet. What is known of a port stays.
    pub fn turn(&mut self, devices: &[Egress]) {
        let mut before = std::mem::take(&mut self.all);
        let way = |device: &Egress| {
            let known = before.iter().position(|way| way.port == device.name()).map(|at| before.swap_remove(at));
            let new = EgressState { port: device.name().to_owned(), ..EgressState::default() };
            known.map_or(new, |way| EgressState { taken: 0, refused: 0, ..way })
        };
        self.all = devices.iter().map(way).collect();
    }

    /// Looks at the devices of the last `turn`, in their order.
    pub fn refresh(&mut self, devices: &[Egress], now: Instant) {
        for (way, device) in self.all.iter_mut().zip(devices) {
            let Some(said) = way.refresh(device.is_ready(), device.books(), now) else { continue };
            self.remarks.push_back(said);
            if self.remarks.len() > WARNINGS_MAX {
                self.remarks.pop_front();
            }
        }
    }

    /// What was said, in order.
    pub fn warnings(&self) -> Vec<String> {
        self.remarks.iter().cloned().collect()
    }
}

impl EgressState {
    /// `is_ready` is none of a port that is not there; `books` are what it took and refused so far. What is to be said of it.
    fn refresh(&mut self, is_ready: Option<bool>, books: (u64, u64), now: Instant) -> Option<String> {
        let (taken, refused) = (books.0 > self.taken, books.1 > self.refused);
        (self.taken, self.refused) = books;
        if refused {
            self.refused_at = Some(now);
        }
        let trouble = match (is_ready, self.trouble) {
            (None, _) => Some(EgressError::Away),
            (Some(false), _) => Some(EgressError::Down),
            // It was refused before the port came back.
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
            // Told of already, if for another reason: one that goes is down first.
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
