//! Compares the time series of real captures with those of tshark. The timestamps of the captures jump by years in both
//! directions.

use base::Timestamp;
use netgrain_series::{Direction, Row, SeriesMeter, TrafficClass, merge_rows};
use pcap::Reader;
use std::collections::BTreeMap;
use std::path::Path;

/// Packets, bytes, and TCP packets with SYN and without ACK, by second.
type Series = BTreeMap<u64, [u64; 3]>;

fn our_series(capture: &Path) -> (Vec<Row>, SeriesMeter) {
    let mut reader = Reader::open(std::fs::File::open(capture).expect("the capture")).expect("a capture");
    let mut meter = SeriesMeter::new(0);
    let (mut rows, mut now) = (Vec::new(), None);
    while let Some(packet) = reader.next().expect("a complete capture") {
        let ts = packet.ts.expect("a timestamp");
        if now != Some(ts.secs()) {
            rows.extend(meter.tick(Timestamp::from_secs_nanos(ts.secs(), 0)));
            now = Some(ts.secs());
        }
        let headers = wire::Headers::of(packet.data, packet.wire_len, packet.link_type);
        let tcp = (headers.protocol() == Some(wire::IpProtocol::TCP))
            .then(|| wire::Tcp::parse(packet.data, headers.l4().into()).ok())
            .flatten();
        let kind = if tcp.is_some() { TrafficClass::Tcp } else { TrafficClass::Other };
        let flags = tcp.map(|tcp| tcp.flags());
        meter.packet(ts, packet.wire_len, Direction::In, kind, false, flags, 0, 0);
    }
    rows.extend(meter.finish());
    (rows, meter)
}

fn tshark_series(capture: &Path, mut tshark: std::process::Command) -> Series {
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
fn time_series_of_real_captures_agree_with_tshark() {
    const NAME: &str = "time_series_of_real_captures_agree_with_tshark";
    let Some(traces) = testkit::traces(NAME) else { return };
    for (capture, jumps) in [("mercury/emix.pcap", true), ("zeek/ticks-dns-1hr.pcap", false)] {
        let Some(tshark) = testkit::tool(NAME, "tshark") else { return };
        let capture = traces.join(capture);
        let (mut rows, meter) = our_series(&capture);
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
        assert_eq!(series, tshark_series(&capture, tshark), "{}", capture.display());
        let counts = meter.counts();
        assert_eq!(jumps, counts.gaps > 0, "{counts:?}");
        // Large jumps of the timestamps are gaps, so the number of rows of zeros is limited.
        assert!(silent as u64 <= series.len() as u64 * SeriesMeter::SILENCE_MAX && reported >= series.len() + silent);
    }
}
