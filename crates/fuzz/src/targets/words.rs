//! The target parses short texts, one per line, as times, sizes, rates and targets of the command line, and as names of
//! files in a store. If the displayed form of a value is parsed, the result must be the same value.

use crate::Target;
use crate::targets::bytes::{text_of, texts};
use base::units::{parse_age, parse_bytes, parse_count, parse_rate, parse_span};
use base::{TimeSpec, Timestamp};
use store::OutOfOrderMarkers;
use store::catalogue::parse_stem;
use store::names::stem;

pub const TARGET: Target = Target { name: "words", run, seeds, rounds: 12_000, memory: 4 << 20 };

const NOW: Timestamp = Timestamp::from_secs_nanos(1_795_305_600, 0);

fn run(bytes: &[u8]) {
    let text = text_of(bytes);
    drop(OutOfOrderMarkers::of(text.lines()));
    for line in text.lines() {
        drop((parse_bytes(line), parse_count(line), parse_rate(line), parse_age(line), parse_span(line)));
        if let Ok(time) = TimeSpec::parse(line) {
            let time = time.at(NOW, None);
            // Years after 9999 are excluded: they are displayed, but the parser rejects them.
            if time.civil().0 <= 9999 {
                assert_eq!(Timestamp::parse(&time.to_string(), NOW).ok(), Some(time), "{line:?}");
            }
        }
        if let Some((start, queue, copy)) = parse_stem(line) {
            let displayed = [Some(queue), None].map(|queue| stem(start, queue, copy));
            assert!(displayed.iter().any(|displayed| displayed == line), "{line:?} is displayed as {displayed:?}");
        }
        if let Ok(target) = line.parse::<export::Target>() {
            assert_eq!(target.to_string().parse().as_ref(), Ok(&target), "{line:?}");
        }
        if let Ok(mac) = line.parse::<wire::MacAddr>() {
            assert_eq!(mac.to_string().parse().ok(), Some(mac), "{line:?}");
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    texts(&[
        "2026-11-21T10:42:00.123456789Z\n10:40:30.5\n-1h30min\n2026-11-21 11:42+01:00\n1795257720250\n+5s",
        "512MiB\n2G\n200GB\n1.5k\n10Mbit/s\n14.88Mpps\n90d\n1h30min\n100us",
        "20261121T104000.000000000Z\n20261121T104000.000000000Z-q3\n20261121T104000.000000000Z-q3_2",
        "20261121T104000.000000000Z~20261121T104000.000000000Z-20261121T104100.000000000Z",
        "udp:10.0.0.1:4739\ntcp:[2001:db8::1]:9\nmulticast:eth0:4739,ttl=3\nfile:/tmp/a.ipfix\nudp:collector",
        "02:00:00:00:00:01\n02-00-00-00-00-01\n0200.0000.0001",
    ])
}
