//! The reflector (RFC 8762 §4.3).
//!
//! A stateless reflector copies the sequence number of the test packet into the reply. A stateful reflector numbers the
//! replies of each session, so that the sender can compute in which direction packets were lost. The address and port
//! of the sender identify a session.

use crate::{BASE_LEN, PacketError, Reply, TestPacket};
use base::{ErrorEstimate, Timestamp};
use std::collections::HashMap;
use std::net::SocketAddr;

/// The largest number of sessions of a stateful reflector. Each session takes about 48 bytes of memory. In further
/// sessions, the replies are those of a stateless reflector.
pub const SESSIONS_MAX: usize = 1 << 16;

/// Makes replies, and counts packets: `received = replied + invalid`.
#[derive(Clone, Debug, Default)]
pub struct Reflector {
    /// For each session, the sequence number of its next reply. `None` for a stateless reflector.
    sessions: Option<HashMap<SocketAddr, u32>>,
    replied: u64,
    invalid: u64,
}

impl Reflector {
    /// A stateful or a stateless reflector.
    pub fn new(is_stateful: bool) -> Self {
        Self { sessions: is_stateful.then(HashMap::new), replied: 0, invalid: 0 }
    }

    /// Writes the reply to the received bytes into `buf`, and returns its length. `from`, `time` and `ttl` are the
    /// sender of the received packet, its time of arrival, and its TTL or hop limit on arrival. `now` and `error` are
    /// the present time and the error estimate of this host's clock. The reply is as long as the test packet; the bytes
    /// after the base packet are copied, because this reflector does not support TLVs.
    ///
    /// # Errors
    /// If the received bytes are not a valid test packet. There is no reply to such bytes.
    ///
    /// # Panics
    /// If `buf` is shorter than `received`.
    pub fn reply(
        &mut self,
        received: &[u8],
        (from, time, ttl): (SocketAddr, Timestamp, u8),
        (now, error): (Timestamp, ErrorEstimate),
        buf: &mut [u8],
    ) -> Result<usize, PacketError> {
        let test = TestPacket::parse(received).inspect_err(|_| self.invalid += 1)?;
        let reply = Reply {
            sequence: self.next_sequence(from).unwrap_or(test.sequence),
            sent: now,
            error,
            received: time,
            test_sequence: test.sequence,
            test_ttl: ttl,
        };
        reply.write(received, buf);
        buf[BASE_LEN..received.len()].copy_from_slice(&received[BASE_LEN..]);
        self.replied += 1;
        Ok(received.len())
    }

    fn next_sequence(&mut self, from: SocketAddr) -> Option<u32> {
        let sessions = self.sessions.as_mut()?;
        if sessions.len() >= SESSIONS_MAX && !sessions.contains_key(&from) {
            return None;
        }
        let next = sessions.entry(from).or_default();
        let sequence = *next;
        *next = next.wrapping_add(1);
        Some(sequence)
    }

    /// Number of sessions of a stateful reflector.
    pub fn sessions(&self) -> usize {
        self.sessions.as_ref().map_or(0, HashMap::len)
    }

    /// Number of replies.
    pub const fn replied(&self) -> u64 {
        self.replied
    }

    /// Number of received packets that were not valid test packets.
    pub const fn invalid(&self) -> u64 {
        self.invalid
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn error() -> ErrorEstimate {
        ErrorEstimate::of(Duration::from_micros(30), true)
    }

    fn reply(reflector: &mut Reflector, port: u16, sequence: u32) -> Reply {
        let mut test = [0xaa; 100];
        TestPacket { sequence, sent: Timestamp::from_nanos(1), error: error() }.write(&mut test);
        let from = SocketAddr::from(([10, 0, 0, 1], port));
        let (time, mut buf) = (Timestamp::from_secs_nanos(9, 5), [0xee; 200]);
        let now = time.after(Duration::from_micros(3));
        let len = reflector.reply(&test, (from, time, 61), (now, error()), &mut buf).expect("a reply");
        assert!(len == 100 && buf[44..100].iter().all(|byte| *byte == 0xaa));
        Reply::parse(&buf[..len]).expect("a reply")
    }

    #[test]
    fn bytes_that_are_no_test_packet_get_no_reply() {
        let mut reflector = Reflector::new(true);
        let from = SocketAddr::from(([10, 0, 0, 1], 9));
        let now = (Timestamp::ZERO, error());
        let outcome = reflector.reply(&[0; 20], (from, Timestamp::ZERO, 1), now, &mut [0; 50]);
        assert_eq!(outcome, Err(PacketError::TooShort { need: 44, have: 20 }));
        assert_eq!((reflector.replied(), reflector.invalid(), reflector.sessions()), (0, 1, 0));
    }

    #[test]
    fn a_stateless_reflector_copies_the_number_and_a_stateful_reflector_counts_per_session() {
        let mut stateless = Reflector::new(false);
        assert_eq!([7, 3, 7].map(|n| reply(&mut stateless, 1, n).sequence), [7, 3, 7]);
        let mut stateful = Reflector::new(true);
        let sequences = [(1, 7), (1, 9), (2, 7), (1, 9)].map(|(port, n)| reply(&mut stateful, port, n).sequence);
        assert_eq!(sequences, [0, 1, 0, 2]);
        let last = reply(&mut stateful, 1, 40);
        assert_eq!((last.test_sequence, last.test_ttl, last.received.nanos()), (40, 61, 9_000_000_005));
        assert_eq!((last.sent.since(last.received), stateful.replied()), (Duration::from_micros(3), 5));
    }

    #[test]
    fn more_senders_than_the_limit_get_stateless_replies() {
        let mut reflector = Reflector::new(true);
        for port in 0..=u16::MAX {
            reply(&mut reflector, port, 5);
        }
        assert_eq!(reflector.sessions(), SESSIONS_MAX);
        assert_eq!(reply(&mut reflector, 77, 5).sequence, 1);
        let mut test = [0; 44];
        TestPacket { sequence: 99, sent: Timestamp::ZERO, error: error() }.write(&mut test);
        let (from, now) = (SocketAddr::from(([10, 0, 0, 2], 1)), (Timestamp::ZERO, error()));
        let mut buf = [0; 44];
        reflector.reply(&test, (from, Timestamp::ZERO, 1), now, &mut buf).expect("a reply");
        assert_eq!(Reply::parse(&buf).map(|reply| reply.sequence), Ok(99));
    }
}
