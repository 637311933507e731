//! The target reads a stream of IPFIX messages and divides it by the lengths in the message headers. The decoder must
//! not panic, and must not return more items than the stream has bytes.
//!
//! The first flow records and rows of the stream are encoded and decoded again. The first decoding may change values
//! that the fields cannot express together (the bytes of a direction without packets); the second must change nothing.

use crate::Target;
use base::{Prng, Timestamp};
use export::ipfix::{Decoder, Encoder, Item};
use export::{Config, Encode, EncodeResult, Fields};
use flow::Record;
use series::Row;

pub const TARGET: Target = Target { name: "ipfix", run, seeds, rounds: 3000, memory: 64 << 20 };

/// Number of items of a stream that are encoded again; a stream of a few bytes may have thousands of items.
const ROUND_TRIPS: usize = 20;

fn run(bytes: &[u8]) {
    let (mut decoder, mut rest, mut records) = (Decoder::default(), bytes, 0);
    let mut round_trips = Vec::new();
    while let Some(length) = rest.get(2..4) {
        let length = usize::from(u16::from_be_bytes([length[0], length[1]])).clamp(4, rest.len());
        let (message, tail) = rest.split_at(length);
        rest = tail;
        let taken = decoder.message(message, &mut |item| {
            records += 1;
            drop(format!("{item:?}"));
            if round_trips.len() < ROUND_TRIPS && matches!(item, Item::Flow(_) | Item::Row(_)) {
                round_trips.push(item);
            }
        });
        if let Err(e) = taken {
            assert!(!e.to_string().is_empty());
        }
    }
    assert!(records <= bytes.len(), "the decoder returned {records} items for {} bytes", bytes.len());
    for item in round_trips {
        let Some(first) = round_trip(&item) else { continue };
        assert_eq!(identity(&first), identity(&item), "the first round trip of {item:?} gives {first:?}");
        assert_eq!(round_trip(&first).as_ref(), Some(&first), "the second round trip of {item:?}");
    }
}

/// Encodes and decodes an item; `None` if it is too large for a message.
fn round_trip(item: &Item) -> Option<Item> {
    let now = Timestamp::from_secs_nanos(1_795_305_600, 0);
    let mut encoder = Encoder::new(Config { fields: Fields::Full, ..Config::default() });
    let (mut decoder, mut decoded) = (Decoder::default(), Vec::new());
    let mut out = |message: export::encode::Message<'_>| {
        let mut keep = |item| {
            if matches!(item, Item::Flow(_) | Item::Row(_)) {
                decoded.push(item);
            }
        };
        decoder.message(message.bytes, &mut keep).expect("the message of the encoder is valid");
    };
    let is_whole = match item {
        Item::Flow(record) => encoder.record(record, now, &mut out) == Ok(EncodeResult::Whole),
        Item::Row(row) => encoder.row(row, now, &mut out).is_ok(),
        _ => false,
    };
    encoder.flush(now, &mut out);
    if !is_whole {
        return None;
    }
    assert_eq!(decoded.len(), 1, "{item:?} became {decoded:?}");
    decoded.pop()
}

/// The values of an item that no encoding may change.
fn identity(item: &Item) -> String {
    match item {
        Item::Flow(r) => {
            let packets = r.directions.map(|side| side.packets);
            format!("{} {:?} {} {:?} {packets:?}", r.id, r.key, r.interface, r.end_reason)
        }
        Item::Row(row) => format!("{} {} {:?}", row.second, row.interface, row.direction),
        other => format!("{other:?}"),
    }
}

fn messages(fields: Fields) -> Vec<u8> {
    let now = Timestamp::from_secs_nanos(1_795_305_600, 0);
    let mut prng = Prng::new(11);
    let mut encoder = Encoder::new(Config { fields, ..Config::default() });
    let mut stream = Vec::new();
    let mut out = |message: export::encode::Message<'_>| stream.extend_from_slice(message.bytes);
    encoder.interface(1, "eth1");
    for second in 0..4 {
        encoder.record(&any_record(&mut prng), now, &mut out).expect("it fits");
        let row = Row { second: 1_795_305_600 + second, interface: 1, syn: second, ..Row::default() };
        encoder.row(&row, now, &mut out).expect("it fits");
    }
    encoder.flush(now, &mut out);
    stream
}

fn any_record(prng: &mut Prng) -> Record {
    flow::sample::any_record(prng)
}

fn seeds() -> Vec<Vec<u8>> {
    // The seeds are decoded here, so that the test fails if they become invalid when the format changes.
    let is_flow = |item: &Item| matches!(item, Item::Flow(_));
    [Fields::Full, Fields::Standard]
        .map(|fields| {
            let stream = messages(fields);
            let (mut decoder, mut flows) = (Decoder::default(), 0);
            let mut rest = &stream[..];
            while let Some(length) = rest.get(2..4) {
                let (message, tail) = rest.split_at(usize::from(u16::from_be_bytes([length[0], length[1]])));
                decoder
                    .message(message, &mut |item| flows += usize::from(is_flow(&item)))
                    .expect("the message of the encoder is valid");
                rest = tail;
            }
            assert!(flows >= 4, "{flows} records");
            stream
        })
        .to_vec()
}
