//! Real captures, whose clocks jump by years in both directions, beside what tshark sees in them.

use base::Timestamp;
use netgrain_series::{Direction, Row, SeriesMeter, TrafficClass, merge_rows};
use pcap::Reader;
use std::collections::BTreeMap;
use std::path::Path;

/// Packets, bytes and TCP's SYN without ACK, by second.
type Series = BTreeMap<u64, [u64; 3]>;

fn ours(capture: &Path) -> (Vec<Row>, SeriesMeter) {
    let mut reader = Reader::open(std::fs::File::open(capture).expect("the capture")).expect("a capture");
    let mut counter = SeriesMeter::new(0);
    let (mut rows, mut now) = (Vec::new(), None);
    while let Some(packet) = reader.next().expect("a whole capture") {
        let ts = packet.ts.expect("a stamp");
        if now != Some(ts.secs()) {
            rows.extend(counter.tick(Timestamp::from_secs_nanos(ts.secs(), 0)));
            now = Some(ts.secs());
        }
        let headers = wire::Headers::of(packet.data, packet.wire_len, packet.link_type);
        let tcp = (headers.protocol() == Some(wire::IpProtocol::TCP))
            .then(|| wire::Tcp::parse(packet.data, headers.l4().into()).ok())
            .flatten();
        let kind = if tcp.is_some() { TrafficClass::Tcp } else { TrafficClass::Other };
        let flags = tcp.map(|tcp| tcp.flags());
        counter.packet(ts, packet.wire_len, Direction::In, kind, false, flags, 0, 0);
    }
    rows.extend(counter.finish());
    (rows, counter)
}

fn theirs(capture: &Path, mut tshark: std::process::Command) -> Series {
    let fields = ["frame.time_epoch", "frame.len", "tcp.flags"].map(|field| ["-e", field]).concat();
    let out = tshark.args(["-n", "-T", "fields"]).args(fields).arg("-r").arg(capture).output().expect("tshark runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let mut series = Series::new();
    for line in String::from_utf8(out.stdout).expect("text").lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let second = fields[0].split('.').next().and_then(|s| s.parse().ok()).expect("a time");
        let at = series.entry(second).or_default();
        at[0] += 1;
        at[1] += fields[1].parse::<u64>().expect("a length");
        let flags = fields[2].strip_prefix("0x").and_then(|digits| u16::from_str_radix(digits, 16).ok());
        at[2] += u64::from(flags.is_some_and(|flags| flags & 0x12 == 0x02));
    }
    series
}

#[test]
fn real_captures_have_the_series_that_tshark_sees() {
    const NAME: &str = "real_captures_have_the_series_that_tshark_sees";
    let Some(traces) = testkit::traces(NAME) else { return };
    for (capture, jumps) in [("mercury/emix.pcap", true), ("zeek/ticks-dns-1hr.pcap", false)] {
        let Some(tshark) = testkit::tool(NAME, "tshark") else { return };
        let capture = traces.join(capture);
        let (mut rows, counter) = ours(&capture);
        let reported = rows.len();
        rows.sort_by_key(|row| row.second);
        let mut series = Series::new();
        let mut silent = 0;
        for row in merge_rows(rows) {
            match row.total.packets {
                0 => silent += 1,
                packets => {
                    series.insert(row.second, [packets, row.total.bytes, row.syn]);
                }
            }
        }
        assert_eq!(series, theirs(&capture, tshark), "{}", capture.display());
        let counts = counter.counts();
        assert_eq!(jumps, counts.gaps > 0, "{counts:?}");
        // However far the clock jumps, silence is told only between packets that are near each other.
        assert!(silent as u64 <= series.len() as u64 * SeriesMeter::SILENCE_MAX && reported >= series.len() + silent);
    }
}
