//! IPFIX carries every flow record and series row unchanged for any message length, and the decoder rejects invalid
//! messages.

use crate::common;

use base::{Prng, Timestamp};
use flow::{DirectionStats, Record};
use netgrain_export::ipfix::{Decoder, Encoder, Item, MessageError};
use netgrain_export::{Config, Encode, EncodeResult, Fields, MESSAGE_MAX, MESSAGE_MIN, Refresh};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

const NOW: Timestamp = Timestamp::from_secs_nanos(common::DAY, 0);

/// The field set with all fields of a record.
fn full() -> Config {
    Config { fields: Fields::Full, ..Config::default() }
}

/// All messages of an encoder into which `put` puts flow records and series rows.
fn messages(
    config: Config,
    put: impl FnOnce(&mut Encoder, &mut dyn FnMut(netgrain_export::encode::Message<'_>)),
) -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new(config);
    let mut messages = Vec::new();
    let mut out = |m: netgrain_export::encode::Message<'_>| messages.push(m.bytes.to_vec());
    put(&mut encoder, &mut out);
    encoder.flush(NOW, &mut out);
    messages
}

fn decode(messages: &[Vec<u8>]) -> (Vec<Item>, Decoder) {
    let (mut decoder, mut items) = (Decoder::default(), Vec::new());
    for message in messages {
        decoder.message(message, &mut |item| items.push(item)).expect("a message of the encoder is valid");
    }
    (items, decoder)
}

#[test]
fn invalid_messages_are_rejected_with_the_reason() {
    let mut decoder = Decoder::default();
    let mut refuse = |bytes: &[u8]| decoder.message(bytes, &mut |_| ()).expect_err("an invalid message");
    assert_eq!(refuse(&[]), MessageError::TooShort { offset: 0, need: 16, have: 0 });
    assert_eq!(refuse(&[0; 16]), MessageError::Version(0));
    let header = |len: u8| [0, 10, 0, len, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    assert_eq!(refuse(&header(17)), MessageError::Length { item: 17, have: 16 });
    let mut with = |tail: &[u8]| refuse(&[&header(16 + tail.len() as u8), tail].concat());
    // A set with a length beyond the message, and a set with a length below that of its header.
    assert_eq!(with(&[1, 0, 0, 9]), MessageError::TooShort { offset: 16, need: 9, have: 4 });
    assert_eq!(with(&[1, 0, 0, 3]), MessageError::TooShort { offset: 16, need: 4, have: 4 });
    // Template 256 of one field of length 0: its records would have length 0.
    assert_eq!(with(&[0, 2, 0, 12, 1, 0, 0, 1, 0, 8, 0, 0]), MessageError::Empty { template: 256 });
    // Template 256 of 2000 fields.
    let many = with(&[0, 2, 0, 8, 1, 0, 0x07, 0xd0]);
    assert!(matches!(many, MessageError::TooMany { what: "fields in a template", .. }), "{many}");
}

#[test]
fn random_records_and_rows_are_decoded_unchanged() {
    let mut prng = Prng::new(testkit::seed("random_records_and_rows_are_decoded_unchanged"));
    for message in [MESSAGE_MAX, 4000] {
        let mut want = Vec::new();
        let sent = messages(Config { message, ..full() }, |encoder, out| {
            for _ in 0..1000 {
                if prng.below(4) == 0 {
                    let row = common::row(&mut prng);
                    assert_eq!(encoder.row(&row, NOW, out), Ok(()));
                    want.push(Item::Row(row));
                } else {
                    let record = common::record(&mut prng);
                    assert_eq!(encoder.record(&record, NOW, out), Ok(EncodeResult::Whole));
                    want.push(Item::Flow(record));
                }
            }
        });
        assert!(sent.iter().all(|m| m.len() <= message));
        let (got, decoder) = decode(&sent);
        let got: Vec<Item> = got.into_iter().filter(|i| matches!(i, Item::Flow(_) | Item::Row(_))).collect();
        assert_eq!(got.len(), want.len());
        for (got, want) in got.iter().zip(&want) {
            assert_eq!(got, want);
        }
        let arrived = decoder.arrived();
        assert_eq!((arrived.missed, arrived.without_template, arrived.foreign), (0, 0, 0));
    }
}

#[test]
fn biflow_fields_carry_addresses_counts_times_and_flags() {
    let mut prng = Prng::new(testkit::seed("biflow_fields_carry_addresses_counts_times_and_flags"));
    let records: Vec<Record> = (0..300).map(|_| common::record(&mut prng)).collect();
    let config = Config { fields: Fields::Biflow, ..Config::default() };
    let sent = messages(config, |encoder, out| {
        for record in &records {
            assert_eq!(encoder.record(record, NOW, out), Ok(EncodeResult::Whole));
        }
    });
    let (got, _) = decode(&sent);
    let got: Vec<Record> = got.into_iter().filter_map(|i| if let Item::Flow(r) = i { Some(r) } else { None }).collect();
    assert_eq!(got.len(), records.len());
    for (got, want) in got.iter().zip(&records) {
        assert_eq!(
            (got.id, got.key, got.interface, got.end_reason),
            (want.id, want.key, want.interface, want.end_reason)
        );
        assert_eq!(
            (got.encapsulation.vlans, got.encapsulation.mpls),
            (want.encapsulation.vlans, want.encapsulation.mpls)
        );
        for (got, want) in got.directions.iter().zip(&want.directions) {
            let common = |s: &DirectionStats| {
                (s.first, s.last, s.packets, s.bytes, s.ip_bytes, s.length, s.payload_bytes, s.ttl)
            };
            assert_eq!(common(got), common(want));
            assert_eq!(got.flags[..6], want.flags[..6]);
            assert_eq!((got.mac, got.dscp.0), (want.mac, want.dscp.0));
        }
        assert!(got.initial_packets.is_empty() && got.payload.iter().all(Vec::is_empty));
    }
}

#[test]
fn standard_fields_make_one_data_record_per_direction_with_packets() {
    let mut prng = Prng::new(testkit::seed("standard_fields_make_one_data_record_per_direction_with_packets"));
    let records: Vec<Record> = (0..300).map(|_| common::record(&mut prng)).collect();
    let sent = messages(Config::default(), |encoder, out| {
        for record in &records {
            assert_eq!(encoder.record(record, NOW, out), Ok(EncodeResult::Whole));
        }
    });
    let (got, _) = decode(&sent);
    let mut got = got.into_iter().filter_map(|i| if let Item::Flow(r) = i { Some(r) } else { None });
    for want in &records {
        for (side, has) in want.directions.iter().enumerate().filter(|(_, s)| s.packets > 0) {
            let got = got.next().expect("another record");
            assert_eq!(
                (got.id, got.key, got.interface, got.end_reason),
                (want.id, want.key, want.interface, want.end_reason)
            );
            assert_eq!(
                (got.encapsulation.vlans, got.encapsulation.mpls),
                (want.encapsulation.vlans, want.encapsulation.mpls)
            );
            assert_eq!(got.directions[1 - side].packets, 0, "the other direction has its own record");
            let common = |s: &DirectionStats| {
                (s.packets, s.bytes, s.ip_bytes, s.payload_bytes, s.length.min, s.length.max, s.ttl)
            };
            assert_eq!(common(&got.directions[side]), common(has));
            let millis = |t: Timestamp| t.nanos() / 1_000_000;
            let (first, last) = (got.directions[side].first, got.directions[side].last);
            assert_eq!((millis(first), millis(last)), (millis(has.first), millis(has.last)));
            // The field set `standard` has four octets for each flag counter; a larger count is exported as the
            // largest number.
            let flags = has.flags.map(|n| n.min(u32::MAX.into()));
            assert_eq!(got.directions[side].flags[..6], flags[..6]);
            assert_eq!(got.directions.each_ref().map(|s| s.mac), want.directions.each_ref().map(|s| s.mac));
        }
    }
    assert!(got.next().is_none());
}

/// The structure of messages, parsed independently of the decoder.
#[derive(Default)]
struct MessageStructure {
    /// Length in octets of a data record, by observation domain and template.
    lengths: HashMap<(u32, u16), usize>,
    /// Templates whose records are options data.
    options: HashSet<(u32, u16)>,
    /// The next sequence number, by observation domain.
    next: HashMap<u32, u32>,
    /// Number of data records of flows and series rows, and of options data records; greatest number of fields in a
    /// template.
    totals: [usize; 3],
}

impl MessageStructure {
    fn message(&mut self, m: &[u8]) {
        let half = |at: usize| u16::from_be_bytes([m[at], m[at + 1]]);
        let word = |at: usize| u32::from_be_bytes([m[at], m[at + 1], m[at + 2], m[at + 3]]);
        let domain = word(12);
        assert_eq!(word(8), *self.next.entry(domain).or_default(), "sequence number of domain {domain}");
        let (mut at, mut kinds, mut data) = (16, HashSet::new(), 0);
        while at < m.len() {
            let (set, end) = (half(at), at + usize::from(half(at + 2)));
            at += 4;
            kinds.insert(if set < 256 {
                "templates"
            } else if self.options.contains(&(domain, set)) {
                "options"
            } else {
                "data"
            });
            while at < end {
                if let Some(len) = self.lengths.get(&(domain, set)) {
                    (at, data) = (at + len, data + 1);
                    continue;
                }
                let (id, fields) = (half(at), usize::from(half(at + 2)));
                at += if set == 3 { 6 } else { 4 };
                let lens = (0..fields).map(|i| {
                    assert!(half(at + 4 * i) < 0x8000, "an element of an enterprise");
                    assert_ne!(half(at + 4 * i + 2), u16::MAX, "a field of variable length");
                    usize::from(half(at + 4 * i + 2))
                });
                self.lengths.insert((domain, id), lens.sum());
                self.totals[2] = self.totals[2].max(fields);
                at += 4 * fields;
                if set == 3 {
                    self.options.insert((domain, id));
                }
            }
            assert_eq!(at, end, "a set ends with its last record");
        }
        assert_eq!(kinds.len(), 1, "{kinds:?} in one message");
        self.totals[usize::from(kinds.contains("options"))] += data;
        self.next.entry(domain).and_modify(|next| *next += data as u32);
    }
}

#[test]
fn standard_messages_have_one_content_no_padding_and_a_sequence_per_domain() {
    let test = "standard_messages_have_one_content_no_padding_and_a_sequence_per_domain";
    let mut prng = Prng::new(testkit::seed(test));
    let mut directions = 0;
    let sent = messages(Config::default(), |encoder, out| {
        encoder.interface(
            1,
            "a name that is longer than any interface's, by far: it is cut \u{2192} here \u{2192} \u{2192}",
        );
        for second in 0..300 {
            // Templates are repeated meanwhile.
            let now = NOW.after(Duration::from_secs(second));
            let record = common::plausible(&mut prng);
            directions += record.directions.iter().filter(|s| s.packets > 0).count();
            encoder.record(&record, now, out).expect("it fits");
            if second % 7 == 0 {
                encoder.row(&common::row(&mut prng), now, out).expect("it fits");
            }
        }
    });
    let mut structure = MessageStructure::default();
    sent.iter().for_each(|m| structure.message(m));
    let [data, options, fields] = structure.totals;
    assert_eq!(data, directions + 43, "records of all directions, and 43 rows");
    assert!(options > 30, "options are repeated with the templates: {options}");
    assert!(fields <= 60, "Wireshark accepts templates of 60 fields: {fields}");
    assert_eq!(structure.next.len(), 2, "options data have their own domain");
}

#[test]
fn standard_records_have_the_length_of_the_reference_page() {
    let mut record = common::plausible(&mut Prng::new(9));
    record.directions = [
        DirectionStats { packets: 3, ..DirectionStats::default() },
        DirectionStats { packets: 5, ..DirectionStats::default() },
    ];
    record.key = flow::Key { src: [192, 0, 2, 1].into(), dst: [192, 0, 2, 2].into(), ..record.key };
    let octets = |records: u32| {
        let sent = messages(Config::reliable(), |encoder, out| {
            (0..records).for_each(|_| assert!(encoder.record(&record, NOW, out).is_ok()));
        });
        sent.concat().len()
    };
    let each = (octets(11) - octets(1)) / 10;
    assert!(each <= 331, "{each} octets");
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/export.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let line = page.lines().find(|l| l.starts_with("| `standard` |")).expect("its row");
    assert!(line.contains(&format!("| {each} octets |")), "{each}: {line}");
}

#[test]
fn reverse_elements_have_the_numbers_of_rfc_5103() {
    let mut record = common::record(&mut Prng::new(9));
    record.directions = [
        DirectionStats { packets: 3, ..DirectionStats::default() },
        DirectionStats { packets: 5, ..DirectionStats::default() },
    ];
    let sent = messages(full(), |encoder, out| assert!(encoder.record(&record, NOW, out).is_ok()));
    let all: Vec<u8> = sent.concat();
    let has = |bytes: &[u8]| all.windows(bytes.len()).any(|w| w == bytes);
    // packetDeltaCount, 8 octets: forward without enterprise number, reverse with 29305.
    assert!(has(&[0, 2, 0, 8]) && has(&[0x80, 2, 0, 8, 0, 0, 0x72, 0x79]));
    // Element 28 of netgrain, and its reverse element (bit 14 set), both with the enterprise number of netgrain.
    assert!(has(b"\x80\x1c\x00\x08ngrn") && has(b"\xc0\x1c\x00\x08ngrn"));
    // flowId describes the whole flow, so no reverse element is exported.
    assert!(has(&[0, 148, 0, 8]) && !has(&[0x80, 148, 0, 8, 0, 0, 0x72, 0x79]));
}

#[test]
fn a_record_without_packets_keeps_its_flow_key() {
    let mut record = common::record(&mut Prng::new(1));
    record.directions = [DirectionStats::default(); 2];
    record.payload = Default::default();
    let sent = messages(Config { fields: Fields::Full, ..Config::reliable() }, |encoder, out| {
        assert!(encoder.record(&record, NOW, out).is_ok())
    });
    assert!(decode(&sent).0.contains(&Item::Flow(record)));
}

#[test]
fn a_record_that_is_too_long_loses_its_payload_then_its_lists() {
    let mut record = common::record(&mut Prng::new(1));
    record.initial_packets.resize(10, flow::InitialPacket::default());
    record.payload = [vec![1; 400], vec![2; 400]];
    record.directions = [DirectionStats { packets: 1, ..DirectionStats::default() }; 2];
    let mut got = Vec::new();
    for early in [10, 200] {
        record.initial_packets.resize(early, flow::InitialPacket::default());
        let config = Config { message: MESSAGE_MIN, ..full() };
        let sent =
            messages(config, |encoder, out| assert_eq!(encoder.record(&record, NOW, out), Ok(EncodeResult::Trimmed)));
        got.extend(decode(&sent).0.into_iter().filter_map(|i| if let Item::Flow(r) = i { Some(r) } else { None }));
    }
    assert_eq!(got[0].initial_packets.len(), 10);
    assert!(got[0].payload.iter().all(Vec::is_empty));
    assert!(got[1].initial_packets.is_empty());
    assert_eq!((got[0].key, got[1].key), (record.key, record.key));
}

#[test]
fn templates_come_first_and_are_repeated_by_time_and_by_messages() {
    let has_templates = |m: &Vec<u8>| m[16..18] == [0, 2];
    let refresh = Refresh { every: Duration::from_secs(20), messages: 100 };
    let mut encoder = Encoder::new(Config { refresh: Some(refresh), ..Config::default() });
    let mut record = common::record(&mut Prng::new(3));
    record.payload = Default::default();
    let mut at = |seconds: u64| {
        let now = NOW.after(Duration::from_secs(seconds));
        let mut sent = Vec::new();
        let mut out = |m: netgrain_export::encode::Message<'_>| sent.push(m.bytes.to_vec());
        encoder.record(&record, now, &mut out).expect("it fits");
        encoder.flush(now, &mut out);
        sent.iter().any(has_templates)
    };
    assert!(at(0), "the first message has templates");
    assert!(!at(0) && !at(19));
    assert!(at(20), "by time");
    let again = (0..200).position(|_| at(21)).expect("by messages");
    assert!((80..=100).contains(&again), "after {again} messages");
    assert!(at(5), "templates are repeated after the clock steps back");
    encoder.restart();
    let mut first = Vec::new();
    encoder.tick(NOW, &mut |m| first.push(m.bytes.to_vec()));
    assert!(has_templates(&first[0]), "a new session begins with templates");
    assert_eq!(first[0][8..12], [0; 4], "and with sequence 0");
}

#[test]
fn the_decoder_counts_lost_messages_by_sequence_numbers() {
    let mut prng = Prng::new(testkit::seed("the_decoder_counts_lost_messages_by_sequence_numbers"));
    let sent = messages(Config::default(), |encoder, out| {
        for _ in 0..1600 {
            encoder.record(&common::plausible(&mut prng), NOW, out).expect("it fits");
        }
    });
    let (all, _) = decode(&sent);
    let flows = |items: &[Item]| items.iter().filter(|i| matches!(i, Item::Flow(_))).count() as u64;
    let kept: Vec<Vec<u8>> =
        sent.iter().enumerate().filter(|(i, _)| i % 7 != 6 || *i < 14).map(|(_, m)| m.clone()).collect();
    assert!(kept.len() < sent.len() - 10, "some messages are lost, but not the last");
    let mut kept = kept;
    kept.push(sent.last().expect("there are some").clone());
    kept.dedup();
    let (some, decoder) = decode(&kept);
    assert_eq!(flows(&some) + decoder.arrived().missed, flows(&all));
}

#[test]
fn options_carry_names_and_losses_of_interfaces() {
    let mut row = common::row(&mut Prng::new(5));
    row.direction = series::Direction::In;
    let sent = messages(Config::reliable(), |encoder, out| {
        encoder.interface(row.interface, "eth7");
        encoder.ledger(&row);
        encoder.ledger(&row);
        encoder.tick(NOW, out);
    });
    let (items, _) = decode(&sent);
    assert!(items.contains(&Item::Interface { number: row.interface, name: "eth7".into() }));
    let (offered, lost) = (2 * row.ledger.offered, 2 * row.ledger.lost_total());
    assert!(items.contains(&Item::Loss { interface: row.interface, offered, lost }), "{items:?}");
}

#[test]
fn truncated_or_changed_messages_never_make_the_decoder_panic() {
    let seed = testkit::seed("truncated_or_changed_messages_never_make_the_decoder_panic");
    let mut prng = Prng::new(seed);
    let rounds = std::env::var("NETGRAIN_FUZZ").ok().and_then(|n| n.parse().ok()).unwrap_or(3000);
    let sent = messages(full(), |encoder, out| {
        encoder.interface(1, "eth1");
        for _ in 0..40 {
            encoder.record(&common::plausible(&mut prng), NOW, out).expect("it fits");
            encoder.row(&common::row(&mut prng), NOW, out).expect("it fits");
        }
    });
    let mut decoder = Decoder::default();
    let mut reported = 0u64;
    for _ in 0..rounds {
        let mut message = sent[prng.below(sent.len() as u64) as usize].clone();
        for _ in 0..prng.below(6) {
            let at = prng.below(message.len() as u64) as usize;
            // Small, large and random values make the lengths and counts of the message invalid.
            message[at] = [0, 1, 4, 255, prng.next_u64() as u8][prng.below(5) as usize];
        }
        if prng.below(4) == 0 {
            message.truncate(prng.below(message.len() as u64 + 1) as usize);
            if let Some(len) = message.get_mut(2..4)
                && prng.below(2) == 0
            {
                len.copy_from_slice(&[0, 0]);
            }
        }
        if message.len() >= 4 && prng.below(2) == 0 {
            let len = message.len() as u16;
            message[2..4].copy_from_slice(&len.to_be_bytes());
            message[..2].copy_from_slice(&[0, 10]);
        }
        let _ = decoder.message(&message, &mut |_| reported += 1);
    }
    assert!(reported > 100, "some items are decoded from changed messages: {reported}");
    // Random bytes after a valid header.
    for _ in 0..rounds {
        let mut noise = vec![0; 16 + prng.below(300) as usize];
        prng.fill(&mut noise);
        let len = noise.len() as u16;
        noise[..4].copy_from_slice(&[[0, 10], len.to_be_bytes()].concat());
        let _ = decoder.message(&noise, &mut |_| ());
    }
    // After the invalid messages, the decoder still decodes valid messages.
    let (mut fresh, mut after) = (Decoder::default(), 0);
    let want = sent.iter().map(|m| fresh.message(m, &mut |_| after += 1)).filter(Result::is_ok).count();
    assert_eq!(want, sent.len());
}
