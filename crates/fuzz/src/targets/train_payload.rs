//! The target reads the payload of a packet of a train, as `netgrain owd` does. A payload that is read and written
//! again must have the same bytes. The packets of the input, 48 bytes each, are analysed, and the accounting equation
//! of the analysis must hold.

use crate::Target;
use base::{ErrorEstimate, Timestamp};
use delay::{Analyser, Arrival, ReceiverClock};
use r#gen::train::{DeparturePlace, PAYLOAD_LEN, Payload};
use std::time::Duration;

pub const TARGET: Target = Target { name: "train_payload", run, seeds, rounds: 20_000, memory: 16 << 20 };

fn run(bytes: &[u8]) {
    let mut analyser = Analyser::new(ReceiverClock::Unknown);
    let mut packets = 0;
    for (i, bytes) in bytes.chunks(PAYLOAD_LEN).enumerate() {
        let Ok(payload) = Payload::parse(bytes) else { continue };
        assert_eq!(payload.bytes(), bytes);
        packets += 1;
        let arrival = Arrival {
            sequence: payload.sequence,
            train: payload.train,
            burst: payload.burst,
            index: payload.index,
            burst_size: payload.burst_size,
            departure: payload.departure,
            arrival: Timestamp::from_nanos(1 << 60).after(Duration::from_micros(i as u64)),
            bytes: 200,
        };
        analyser.add(&arrival, payload.error);
    }
    let report = analyser.report();
    let sequence = report.sequence;
    assert_eq!(sequence.received, packets);
    assert_eq!(sequence.received, sequence.unique + sequence.duplicates + sequence.undecided);
    assert_eq!(report.delay.count(), sequence.unique);
}

fn seeds() -> Vec<Vec<u8>> {
    let payload = |sequence: u64| Payload {
        place: DeparturePlace::BeforeSend,
        error: ErrorEstimate::of(Duration::from_micros(7), true),
        session: 1,
        train: 0,
        burst: sequence as u32 / 4,
        index: sequence as u16 % 4,
        burst_size: 4,
        sequence,
        departure: Timestamp::from_nanos((1 << 60) + sequence % 1000 * 1000),
        planned: Duration::from_micros(sequence % 1000),
    };
    let packets = |numbers: &[u64]| numbers.iter().flat_map(|n| payload(*n).bytes()).collect();
    vec![packets(&[0]), packets(&[0, 1, 2, 3, 4]), packets(&[0, 2, 1, 1, 7, u64::MAX])]
}
