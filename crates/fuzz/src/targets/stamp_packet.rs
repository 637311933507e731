//! The target gives the input to a STAMP reflector and to a STAMP sender. The reply of the reflector must be a valid
//! reply to the test packet, and as long as the test packet.

use crate::Target;
use base::{ErrorEstimate, Timestamp};
use delay::ReceiverClock;
use stamp::{AUTHENTICATED_LEN, BASE_LEN, Key, Measurement, NoReply, Reflector, Reply, TestPacket};
use std::net::SocketAddr;
use std::time::Duration;

pub const TARGET: Target = Target { name: "stamp_packet", run, seeds, rounds: 20_000, memory: 16 << 20 };

const NOW: Timestamp = Timestamp::from_nanos(1 << 60);

fn error() -> ErrorEstimate {
    ErrorEstimate::of(Duration::from_micros(7), true)
}

fn run(bytes: &[u8]) {
    let mut measurement = Measurement::new(ReceiverClock::Unknown, error());
    let sequence = measurement.send(NOW);
    if let Ok(reply) = Reply::parse(bytes) {
        measurement.receive(&Reply { test_sequence: sequence, ..reply }, NOW);
        measurement.receive(&reply, NOW);
        let report = measurement.report();
        assert_eq!(report.sent, report.first + report.lost);
        assert_eq!(report.first + report.duplicates + report.unknown, 2);
    }
    let from = SocketAddr::from(([10, 0, 0, 1], 5000));
    let mut reflector = Reflector::new(862, true, None);
    let mut buf = vec![0; bytes.len()];
    let replied = reflector.reply(bytes, (from, NOW, 64), (NOW, error()), &mut buf);
    let key = Key::new(&[7; 32]).expect("a key");
    let mut authenticated = Reflector::new(862, true, Some(key.clone()));
    let sealed = authenticated.reply(bytes, (from, NOW, 64), (NOW, error()), &mut vec![0; bytes.len()]);
    // The input has a correct HMAC only if it is one of the seeds.
    assert!(sealed.is_ok() || key.open_test(bytes).is_none() || sealed != Err(NoReply::Unauthenticated));
    match (TestPacket::parse(bytes), replied) {
        (Ok(test), Ok(len)) => {
            let reply = Reply::parse(&buf).expect("a valid reply");
            assert_eq!((len, reply.test_sequence, reply.test_ttl), (bytes.len(), test.sequence, 64));
        }
        (test, replied) => assert_eq!(test.map(|_| 0).map_err(NoReply::Invalid), replied),
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let (mut test, mut reply) = (vec![0; 60], vec![0; 60]);
    TestPacket { sequence: 5, sent: NOW, error: error() }.write(&mut test);
    let sent = NOW.after(Duration::from_micros(5));
    let fields = Reply { sequence: 9, sent, error: error(), received: NOW, test_sequence: 5, test_ttl: 63 };
    fields.write(&test, &mut reply);
    let (mut plain, mut sealed) = ([0; BASE_LEN], vec![0; AUTHENTICATED_LEN]);
    plain.copy_from_slice(&test[..BASE_LEN]);
    Key::new(&[7; 32]).expect("a key").seal_test(&plain, &mut sealed);
    vec![test[..44].to_vec(), reply[..44].to_vec(), test, reply, sealed]
}
