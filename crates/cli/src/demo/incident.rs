//! The incident of the demo: for a third of the time, one host sends SYNs to one port of all other hosts. The SYNs are
//! a small share of the packets and a negligible share of the bytes, but each SYN is a flow of its own, so the time
//! series shows the scan in its numbers of flows and of SYNs.

use base::Timestamp;
use std::net::Ipv4Addr;
use std::time::Duration;
use wire::build::Frame;
use wire::tcp_flags as flags;

/// The scanning host: a documentation address (RFC 5737) that the background traffic does not use.
pub const SCANNER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 66);

/// The scanned port: SSH.
const PORT: u16 = 22;

/// The network of the scanned hosts: 198.18.0.0/15 (RFC 2544). The scan proceeds in the order of their addresses.
const NETWORK: u32 = u32::from_be_bytes([198, 18, 0, 0]);
const HOSTS: u64 = 1 << 17;

/// The first source port; each round through the hosts uses another port, so that no two frames are of one flow.
const FROM_PORT: u64 = 40_000;
const PORTS: u64 = 20_000;

/// SYNs per second.
const RATE: u64 = 20_000;

/// The TCP options of a usual SYN: an MSS of 1460 bytes and a window scale of 7.
const OPTIONS: [u8; 8] = [2, 4, 0x05, 0xb4, 1, 3, 3, 7];

/// Length of a scan frame: the Ethernet, IPv4 and TCP headers, with the TCP options.
pub const FRAME: usize = 62;

/// The schedule of the scan.
#[derive(Clone, Copy, Debug)]
pub struct Scan {
    begin: Duration,
    total: u64,
}

impl Scan {
    /// A scan that begins after 40 % of `duration` and lasts a third of `duration`.
    pub fn during(duration: Duration) -> Self {
        let total = (duration.as_secs_f64() / 3.0 * RATE as f64) as u64;
        Self { begin: duration.mul_f64(0.4), total: total.min(HOSTS * PORTS) }
    }

    /// The number of frames.
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// The number of scan frames that must have been sent when `elapsed` has passed since the begin of the traffic.
    pub fn due(&self, elapsed: Duration) -> u64 {
        let since = elapsed.saturating_sub(self.begin).as_nanos();
        u64::try_from(since * u128::from(RATE) / 1_000_000_000).unwrap_or(u64::MAX).min(self.total)
    }

    /// Builds the scan frame with this number, counted from 0.
    pub fn frame(number: u64) -> [u8; FRAME] {
        let target = Ipv4Addr::from(NETWORK + (number % HOSTS) as u32);
        let port = (FROM_PORT + number / HOSTS % PORTS) as u16;
        let sequence = base::hash::mix64(number) as u32;
        let mut frame = [0; FRAME];
        Frame::tcp4(SCANNER, port, target, PORT).tcp(flags::SYN, sequence, 0).tcp_options(&OPTIONS).fill(&mut frame);
        frame
    }
}

/// The time from the begin of the first second to the end of the last second in which the time series has a SYN of the
/// scan; `None` if it has none.
pub fn seconds(rows: &[Second]) -> Option<(Timestamp, Timestamp)> {
    let mut with = rows.iter().filter(|row| row.tcp_syn > 0).map(|row| row.second);
    let first = with.next()?;
    let last = with.next_back().unwrap_or(first);
    Some((Timestamp::from_secs_nanos(first, 0), Timestamp::from_secs_nanos(last + 1, 0)))
}

/// One series row, with the columns that the demo reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
pub struct Second {
    pub second: u64,
    pub packets: u64,
    pub tcp_syn: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use wire::{FlowKey, Headers, link};

    #[test]
    fn a_series_without_a_syn_has_no_incident() {
        let quiet = |second| Second { second, packets: 7, tcp_syn: 0 };
        assert_eq!(seconds(&[quiet(10), quiet(11)]), None);
        let loud = |second| Second { tcp_syn: 1, ..quiet(second) };
        let found = seconds(&[quiet(10), loud(11), quiet(12), loud(13), quiet(14)]).expect("an incident");
        assert_eq!((found.0.secs(), found.1.secs()), (11, 14));
        assert_eq!(seconds(&[loud(5)]).map(|(from, to)| to.secs() - from.secs()), Some(1));
    }

    #[test]
    fn every_frame_is_a_new_flow_of_the_scanning_host() {
        let mut flows = HashSet::new();
        for number in (0..3000).chain(HOSTS - 2..HOSTS + 2000) {
            let frame = Scan::frame(number);
            let headers = Headers::of(&frame, FRAME as u32, link::ETHERNET);
            let key = FlowKey::of(&frame, &headers).expect("a flow");
            assert_eq!((key.src, key.dst_port), (SCANNER.into(), wire::Port(PORT)), "frame {number}");
            assert!(flows.insert(key), "frame {number} belongs to the flow of an earlier frame");
        }
    }

    #[test]
    fn no_frame_is_due_before_the_scan_and_all_are_at_its_end() {
        for duration in [Duration::from_millis(300), Duration::from_secs(8), Duration::from_secs(3600)] {
            let scan = Scan::during(duration);
            assert_eq!((scan.due(duration.mul_f64(0.39)), scan.due(duration)), (0, scan.total()), "{duration:?}");
            assert!(scan.total() > 0 && scan.due(duration / 2) < scan.total());
        }
    }
}
