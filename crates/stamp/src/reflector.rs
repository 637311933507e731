//! The reflector (RFC 8762 §4.3).
//!
//! A stateless reflector copies the sequence number of the test packet into the reply. A stateful reflector numbers the
//! replies of each session, so that the sender can compute in which direction packets were lost. The address and port
//! of the sender identify a session. A session ends when it is idle.

use crate::{AUTHENTICATED_LEN, BASE_LEN, Key, PORT, PacketError, Reply, TestPacket};
use base::{ErrorEstimate, Timestamp};
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

/// The largest number of sessions of a stateful reflector. Each session takes about 200 bytes of memory. A further
/// session replaces the session whose last test packet is the oldest.
pub const SESSIONS_MAX: usize = 1 << 16;

/// A session ends if no test packet has arrived for this time (REFWAIT of RFC 5357 §4.2, 900 s). The next test packet
/// from the same address and port begins a new session.
pub const SESSION_IDLE: Duration = Duration::from_secs(900);

/// The reason why a received packet gets no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoReply {
    /// The packet is no valid test packet.
    Invalid(PacketError),
    /// The packet is too short for authenticated mode, or its HMAC is wrong: the sender has no key or another key.
    Unauthenticated,
    /// The packet comes from a port of reflectors. A reply is a valid test packet too, so two reflectors would answer
    /// each other without end, if a third host sends a packet with the address of one reflector to the other.
    FromReflector,
}

#[derive(Clone, Copy, Debug)]
struct Session {
    /// The sequence number of the next reply.
    next: u32,
    /// The time of arrival of the last test packet.
    last: Timestamp,
    /// The key of the session in `by_age`.
    order: u64,
}

/// The sessions of a stateful reflector.
#[derive(Clone, Debug, Default)]
struct Sessions {
    by_sender: HashMap<SocketAddr, Session>,
    /// The senders in the order of their last test packets. The key is the value of `received` after the last test
    /// packet of the sender.
    by_age: BTreeMap<u64, SocketAddr>,
    received: u64,
}

impl Sessions {
    /// The sequence number of the reply to a test packet that arrived at `time`.
    fn next_sequence(&mut self, from: SocketAddr, time: Timestamp) -> u32 {
        self.end_idle(time);
        let mut next = 0;
        match self.by_sender.get(&from) {
            Some(session) => {
                next = session.next;
                self.by_age.remove(&session.order);
            }
            None if self.by_sender.len() >= SESSIONS_MAX => self.end_oldest(),
            None => {}
        }
        self.received += 1;
        let order = self.received;
        self.by_sender.insert(from, Session { next: next.wrapping_add(1), last: time, order });
        self.by_age.insert(order, from);
        next
    }

    /// Ends the sessions that are idle at the time `now`.
    fn end_idle(&mut self, now: Timestamp) {
        while let Some((_, from)) = self.by_age.first_key_value() {
            let is_idle = |session: &Session| now.since(session.last) >= SESSION_IDLE;
            if !self.by_sender.get(from).is_none_or(is_idle) {
                break;
            }
            self.end_oldest();
        }
    }

    fn end_oldest(&mut self) {
        if let Some((_, from)) = self.by_age.pop_first() {
            self.by_sender.remove(&from);
        }
    }
}

/// Makes replies, and counts packets: `received = replied + invalid + unauthenticated + from_reflectors`.
#[derive(Clone, Debug)]
pub struct Reflector {
    port: u16,
    /// The key of authenticated mode; `None` for unauthenticated mode.
    key: Option<Key>,
    /// `None` for a stateless reflector.
    sessions: Option<Sessions>,
    replied: u64,
    invalid: u64,
    unauthenticated: u64,
    from_reflectors: u64,
}

impl Reflector {
    /// A stateful or a stateless reflector that receives at this port. With a key, it replies only to test packets that
    /// are authenticated with this key.
    pub fn new(port: u16, is_stateful: bool, key: Option<Key>) -> Self {
        let sessions = is_stateful.then(Sessions::default);
        Self { port, key, sessions, replied: 0, invalid: 0, unauthenticated: 0, from_reflectors: 0 }
    }

    /// Writes the reply to the received bytes into `buf`, and returns its length. `from`, `time` and `ttl` are the
    /// sender of the received packet, its time of arrival, and its TTL or hop limit on arrival. `now` and `error` are
    /// the present time and the error estimate of this host's clock. The reply is as long as the test packet; the bytes
    /// after the base packet are copied, because this reflector does not support TLVs.
    ///
    /// # Errors
    /// The reason why the packet gets no reply.
    ///
    /// # Panics
    /// If `buf` is shorter than `received`.
    pub fn reply(
        &mut self,
        received: &[u8],
        (from, time, ttl): (SocketAddr, Timestamp, u8),
        (now, error): (Timestamp, ErrorEstimate),
        buf: &mut [u8],
    ) -> Result<usize, NoReply> {
        let opened = match &self.key {
            Some(key) => match key.open_test(received) {
                Some(test) => Some(test),
                None => {
                    self.unauthenticated += 1;
                    return Err(NoReply::Unauthenticated);
                }
            },
            None => None,
        };
        let plain = opened.as_ref().map_or(received, |test| &test[..]);
        let test = match TestPacket::parse(plain) {
            Ok(test) => test,
            Err(e) => {
                self.invalid += 1;
                return Err(NoReply::Invalid(e));
            }
        };
        if from.port() == PORT || from.port() == self.port {
            self.from_reflectors += 1;
            return Err(NoReply::FromReflector);
        }
        let sequence = self.sessions.as_mut().map(|sessions| sessions.next_sequence(from, time));
        let reply = Reply {
            sequence: sequence.unwrap_or(test.sequence),
            sent: now,
            error,
            received: time,
            test_sequence: test.sequence,
            test_ttl: ttl,
        };
        let base = match &self.key {
            Some(key) => {
                let mut plain_reply = [0; BASE_LEN];
                reply.write(plain, &mut plain_reply);
                key.seal_reply(&plain_reply, buf);
                AUTHENTICATED_LEN
            }
            None => {
                reply.write(received, buf);
                BASE_LEN
            }
        };
        buf[base..received.len()].copy_from_slice(&received[base..]);
        self.replied += 1;
        Ok(received.len())
    }

    /// Number of sessions of a stateful reflector that have not ended.
    pub fn sessions(&self) -> usize {
        self.sessions.as_ref().map_or(0, |sessions| sessions.by_sender.len())
    }

    /// Number of packets without the HMAC of the reflector's key, which get no reply.
    pub const fn unauthenticated(&self) -> u64 {
        self.unauthenticated
    }

    /// Number of test packets that got no reply because their source port is 862 or this reflector's own port.
    pub const fn from_reflectors(&self) -> u64 {
        self.from_reflectors
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
    use base::Prng;

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
        let mut reflector = Reflector::new(8620, true, None);
        let from = SocketAddr::from(([10, 0, 0, 1], 9));
        let now = (Timestamp::ZERO, error());
        let outcome = reflector.reply(&[0; 20], (from, Timestamp::ZERO, 1), now, &mut [0; 50]);
        assert_eq!(outcome, Err(NoReply::Invalid(PacketError::TooShort { need: 44, have: 20 })));
        assert_eq!((reflector.replied(), reflector.invalid(), reflector.sessions()), (0, 1, 0));
    }

    #[test]
    fn a_stateless_reflector_copies_the_number_and_a_stateful_reflector_counts_per_session() {
        let mut stateless = Reflector::new(8620, false, None);
        assert_eq!([7, 3, 7].map(|n| reply(&mut stateless, 1, n).sequence), [7, 3, 7]);
        let mut stateful = Reflector::new(8620, true, None);
        let sequences = [(1, 7), (1, 9), (2, 7), (1, 9)].map(|(port, n)| reply(&mut stateful, port, n).sequence);
        assert_eq!(sequences, [0, 1, 0, 2]);
        let last = reply(&mut stateful, 1, 40);
        assert_eq!((last.test_sequence, last.test_ttl, last.received.nanos()), (40, 61, 9_000_000_005));
        assert_eq!((last.sent.since(last.received), stateful.replied()), (Duration::from_micros(3), 5));
    }

    #[test]
    fn with_a_key_only_authenticated_test_packets_get_a_reply_which_is_authenticated() {
        let key = |byte| Key::new(&[byte; 20]).expect("a key");
        let mut reflector = Reflector::new(8620, false, Some(key(1)));
        let mut test = [0; BASE_LEN];
        TestPacket { sequence: 6, sent: Timestamp::from_nanos(1), error: error() }.write(&mut test);
        let from = SocketAddr::from(([10, 0, 0, 1], 9));
        let mut outcome = |received: &[u8], buf: &mut [u8]| {
            reflector.reply(received, (from, Timestamp::from_nanos(9), 61), (Timestamp::from_nanos(10), error()), buf)
        };
        let (mut sealed, mut buf) = ([0xaa; 150], [0; 150]);
        key(2).seal_test(&test, &mut sealed);
        assert_eq!(outcome(&sealed, &mut buf), Err(NoReply::Unauthenticated));
        assert_eq!(outcome(&test, &mut buf), Err(NoReply::Unauthenticated));
        key(1).seal_test(&test, &mut sealed);
        assert_eq!(outcome(&sealed, &mut buf), Ok(150));
        let reply = Reply::parse(&key(1).open_reply(&buf).expect("an authenticated reply")).expect("a reply");
        assert_eq!((reply.test_sequence, reply.test_ttl), (6, 61));
        assert!(buf[AUTHENTICATED_LEN..].iter().all(|byte| *byte == 0xaa), "the padding is copied");
        assert_eq!((reflector.replied(), reflector.unauthenticated()), (1, 2));
    }

    #[test]
    fn packets_from_the_ports_of_reflectors_get_no_reply() {
        let mut reflector = Reflector::new(8620, true, None);
        let mut test = [0; 44];
        TestPacket { sequence: 1, sent: Timestamp::ZERO, error: error() }.write(&mut test);
        for port in [862, 8620, 8621] {
            let from = SocketAddr::from(([10, 0, 0, 1], port));
            let now = (Timestamp::ZERO, error());
            let outcome = reflector.reply(&test, (from, Timestamp::ZERO, 1), now, &mut [0; 50]);
            assert_eq!(outcome, if port == 8621 { Ok(44) } else { Err(NoReply::FromReflector) });
        }
        assert_eq!((reflector.replied(), reflector.from_reflectors(), reflector.sessions()), (1, 2, 1));
    }

    /// A model of [`Sessions`]: returns the expected sequence number of a reply. `sessions` is in the order of the last
    /// test packets.
    fn expected(sessions: &mut Vec<(SocketAddr, u32, Timestamp)>, from: SocketAddr, time: Timestamp) -> u32 {
        sessions.retain(|(_, _, last)| time.since(*last) < SESSION_IDLE);
        let known = sessions.iter().position(|(sender, ..)| *sender == from).map(|at| sessions.remove(at));
        let number = known.map_or(0, |(_, next, _)| next);
        sessions.push((from, number + 1, time));
        number
    }

    #[test]
    fn sessions_end_when_they_are_idle() {
        let seed = testkit::seed("sessions_end_when_they_are_idle");
        let mut prng = Prng::new(seed);
        let (mut sessions, mut model, mut time) = (Sessions::default(), Vec::new(), Timestamp::from_secs_nanos(9, 5));
        for round in 0..5000 {
            time = time.after(Duration::from_secs(prng.below(120)));
            let from = SocketAddr::from(([10, 0, 0, prng.below(20) as u8], 9));
            let number = expected(&mut model, from, time);
            assert_eq!(sessions.next_sequence(from, time), number, "seed {seed}, round {round}");
            assert_eq!((sessions.by_sender.len(), sessions.by_age.len()), (model.len(), model.len()), "seed {seed}");
        }
    }

    #[test]
    fn a_session_more_than_the_limit_replaces_the_oldest() {
        let (mut sessions, time) = (Sessions::default(), Timestamp::from_secs_nanos(9, 5));
        let sender = |n: u32| SocketAddr::from((n.to_be_bytes(), 7));
        (0..SESSIONS_MAX as u32).for_each(|n| _ = sessions.next_sequence(sender(n), time));
        assert_eq!(sessions.next_sequence(sender(0), time), 1, "sender 0 is no longer the oldest");
        assert_eq!(sessions.next_sequence(sender(1 << 30), time), 0);
        assert_eq!((sessions.by_sender.len(), sessions.by_age.len()), (SESSIONS_MAX, SESSIONS_MAX));
        assert_eq!(sessions.next_sequence(sender(0), time), 2);
        assert_eq!(sessions.next_sequence(sender(2), time), 1);
        assert_eq!(sessions.next_sequence(sender(1), time), 0, "the session of sender 1 was replaced");
    }
}
