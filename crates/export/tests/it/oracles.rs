//! Other programs read the exported messages: nfcapd and nfdump each flow, tshark without errors.

use crate::common;

use base::{Prng, Timestamp};
use flow::Record;
use netgrain_export::encode::Message;
use netgrain_export::{Config, Encode, Exporter, Fields, Protocol, Settings, ipfix, netflow9};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The messages of an export of 300 plausible flow records (and series rows if `rows` is true), and the flow records.
fn exported(encoder: &mut dyn Encode, prng: &mut Prng, rows: bool) -> (Vec<Vec<u8>>, Vec<Record>) {
    let now = Timestamp::from_secs_nanos(common::DAY + 3600, 0);
    let (mut messages, mut records) = (Vec::new(), Vec::new());
    let mut out = |m: Message<'_>| messages.push(m.bytes.to_vec());
    encoder.interface(1, "mirror1");
    for _ in 0..300 {
        let record = common::plausible(prng);
        encoder.record(&record, now, &mut out).expect("it fits");
        records.push(record);
        if rows {
            encoder.row(&common::row(prng), now, &mut out).expect("it fits");
        }
    }
    encoder.flush(now, &mut out);
    (messages, records)
}

/// The fields that nfdump prints for a flow: times in milliseconds, addresses, protocol, ports, flags, packets and
/// bytes of both directions, VLAN, interface, class of service.
const FORMAT: &str = "fmt:%ts|%te|%sa|%da|%pr|%sp|%dp|%flg|%ipkt|%ibyt|%opkt|%obyt|%svln|%in|%tos";

const PRINT: [&str; 5] = ["-q", "-N", "-6", "-o", FORMAT];

/// The lines that nfdump should print for these records: one per record, or one per direction.
fn expected(records: &[Record], each_way: bool) -> BTreeMap<String, usize> {
    let mut lines = BTreeMap::new();
    for record in records {
        let seen: Vec<usize> = (0..2).filter(|s| record.directions[*s].packets > 0).collect();
        let from = if each_way { &seen[..] } else { &seen[..1] };
        for side in from {
            let reverse = if each_way || seen.len() == 1 { None } else { Some(1 - side) };
            *lines.entry(line(record, *side, reverse)).or_default() += 1;
        }
    }
    lines
}

fn line(record: &Record, side: usize, reverse: Option<usize>) -> String {
    let key = &record.key;
    let icmp = matches!((key.src.is_ipv6(), key.protocol.0), (false, 1) | (true, 58));
    let (mut ips, mut ports) = ([key.src, key.dst], [key.src_port.to_string(), key.dst_port.to_string()]);
    if side == 1 {
        ips.reverse();
        ports.reverse();
    }
    if icmp {
        // nfdump prints type and code in place of the port.
        ports = ["0".into(), format!("{}.{}", key.dst_port >> 8, key.dst_port & 255)];
    }
    let s = &record.directions[side];
    let time = |t: Timestamp| t.to_string().replace('T', " ")[..23].to_owned();
    let flags: String = (0..8).rev().map(|b| if s.flags[b] > 0 { b"FSRPAUEC"[b] as char } else { '.' }).collect();
    let reverse = reverse.map_or((0, 0), |b| (record.directions[b].packets, record.directions[b].ip_bytes));
    let (vlan, tos) = (record.encapsulation.vlans[0].unwrap_or(0), s.dscp.0 << 2);
    let [first, last] = [time(s.first), time(s.last)];
    let flow_key = format!("{}|{}|{}|{}|{}", ips[0], ips[1], key.protocol.0, ports[0], ports[1]);
    let counts = format!("{}|{}|{}|{}", s.packets, s.ip_bytes, reverse.0, reverse.1);
    format!("{first}|{last}|{flow_key}|{flags}|{counts}|{vlan}|{}|{tos}", record.interface)
}

/// nfcapd, which is killed at the end of its test.
struct Collector(Child);

impl Drop for Collector {
    fn drop(&mut self) {
        // nfcapd has already ended, unless the test failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs nfcapd on a loopback port of a new network namespace, calls `send`, and returns the output of nfdump.
pub fn nfdump(test: &str, send: impl FnOnce(SocketAddr), arguments: &[&str]) -> Option<String> {
    let (mut nfcapd, mut nfdump) = (testkit::tool(test, "nfcapd")?, testkit::tool(test, "nfdump")?);
    let _sandbox = testkit::Sandbox::new(test)?;
    let directory = testkit::TempDir::new(test);
    let port = 9995;
    let collector = nfcapd
        .args(["-w", &directory.path().to_string_lossy(), "-b", "127.0.0.1", "-p", &port.to_string(), "-T", "all"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("nfcapd starts");
    let mut collector = Collector(collector);
    // nfcapd can receive messages as soon as the kernel lists its port.
    let listens = || std::fs::read_to_string("/proc/thread-self/net/udp").is_ok_and(|t| t.contains(":270B"));
    let deadline = Instant::now() + Duration::from_secs(120);
    while !listens() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(listens(), "nfcapd does not listen");
    send(([127, 0, 0, 1], port).into());
    // In `/proc/net/udp`, the line of nfcapd's socket has the number of bytes that nfcapd has not yet read.
    let has_read = || {
        let sockets = std::fs::read_to_string("/proc/thread-self/net/udp").expect("sockets");
        sockets.lines().any(|line| line.contains(":270B ") && line.contains(":00000000 00:"))
    };
    while !has_read() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(has_read(), "nfcapd has not read all datagrams");
    std::thread::sleep(Duration::from_millis(300));
    // nfcapd writes its file when it is terminated.
    let ended = Command::new("kill").args(["-TERM", &collector.0.id().to_string()]).status().expect("kill");
    assert!(ended.success());
    collector.0.wait().expect("nfcapd ends");
    let out = nfdump
        .env("TZ", "UTC")
        .args(["-R", &directory.path().to_string_lossy()])
        .args(arguments)
        .output()
        .expect("nfdump runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Some(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// The lines without their blanks.
fn counted(text: &str) -> BTreeMap<String, usize> {
    let mut lines = BTreeMap::new();
    for line in text.lines().filter(|l| l.contains('|')) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        *lines.entry(cells.join("|")).or_default() += 1;
    }
    lines
}

fn agree(test: &str, encoder: &mut dyn Encode, each_way: bool) {
    let mut prng = Prng::new(testkit::seed(test));
    let (messages, records) = exported(encoder, &mut prng, false);
    let Some(text) = nfdump(test, |to| send(&messages, to), &PRINT) else { return };
    same(&text, &records, each_way);
}

fn send(messages: &[Vec<u8>], to: SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for message in messages {
        socket.send_to(message, to).expect("sent");
        // The test sends slowly, because the receive buffer of nfcapd is small and its thread may wait for a CPU.
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn same(text: &str, records: &[Record], each_way: bool) {
    let (got, want) = (counted(text), expected(records, each_way));
    for (line, times) in &want {
        let near = || got.keys().filter(|g| g[..23] == line[..23]).cloned().collect::<Vec<_>>().join("\n");
        assert_eq!(got.get(line), Some(times), "expected: {line}\nlines of the same time:\n{}", near());
    }
    assert_eq!(got.len(), want.len());
}

#[test]
fn nfdump_reads_every_flow_of_our_ipfix() {
    let config = Config { fields: Fields::Full, ..Config::default() };
    agree("nfdump_reads_every_flow_of_our_ipfix", &mut ipfix::Encoder::new(config), false);
}

#[test]
fn nfdump_reads_every_flow_of_our_biflow_ipfix() {
    let config = Config { fields: Fields::Biflow, ..Config::default() };
    agree("nfdump_reads_every_flow_of_our_biflow_ipfix", &mut ipfix::Encoder::new(config), false);
}

#[test]
fn nfdump_reads_every_direction_of_our_standard_ipfix() {
    let test = "nfdump_reads_every_direction_of_our_standard_ipfix";
    agree(test, &mut ipfix::Encoder::new(Config::default()), true);
}

#[test]
fn nfdump_reads_every_direction_of_our_netflow9() {
    agree("nfdump_reads_every_direction_of_our_netflow9", &mut netflow9::Encoder::new(Config::default()), true);
}

#[test]
fn nfdump_reads_every_record_of_the_exporter() {
    let test = "nfdump_reads_every_record_of_the_exporter";
    for protocol in [Protocol::Ipfix, Protocol::NetflowV9] {
        let mut prng = Prng::new(testkit::seed(test));
        // The messages fit into nfcapd's receive buffer.
        let records: Vec<Record> = (0..60).map(|_| common::plausible(&mut prng)).collect();
        let send = |to: SocketAddr| {
            let mut settings = Settings::new(format!("udp:{to}").parse().expect("a target"));
            settings.protocol = protocol;
            let exporter = Exporter::start(settings).expect("it starts");
            records.iter().for_each(|r| assert!(exporter.handle().flow(r)));
            let counts = exporter.finish();
            assert_eq!((counts.offered, counts.sent), (60, 60), "{counts:?}");
        };
        let Some(text) = nfdump(test, send, &PRINT) else { return };
        same(&text, &records, true);
    }
}

#[test]
fn netflow9_keeps_times_across_jumps_of_years() {
    let test = "netflow9_keeps_times_across_jumps_of_years";
    let mut prng = Prng::new(testkit::seed(test));
    let mut encoder = netflow9::Encoder::new(Config::default());
    let (mut messages, mut records) = (Vec::new(), Vec::new());
    let mut out = |m: Message<'_>| messages.push(m.bytes.to_vec());
    // The records have times in 1999, in 2026, 49 days later, in 2040 and in 2014, in this order. They are exported in
    // 2026.
    let jumps = [946_000_000, common::DAY, common::DAY + 49 * 86_400, 2_220_000_000, 1_400_000_000];
    let now = Timestamp::from_secs_nanos(common::DAY, 0);
    for begin in jumps {
        for _ in 0..10 {
            let mut record = common::plausible(&mut prng);
            for side in record.directions.iter_mut().filter(|s| s.packets > 0) {
                let moved = |t: Timestamp| Timestamp::from_nanos(t.nanos() - (common::DAY - 1) * 1_000_000_000);
                let begin = Duration::from_secs(begin);
                (side.first, side.last) = (moved(side.first).after(begin), moved(side.last).after(begin));
            }
            encoder.record(&record, now, &mut out).expect("it fits");
            records.push(record);
        }
    }
    encoder.flush(now, &mut out);
    let sequences: Vec<u32> = messages.iter().map(|m| u32::from_be_bytes([m[12], m[13], m[14], m[15]])).collect();
    assert_eq!(sequences, (0..messages.len() as u32).collect::<Vec<_>>(), "v9 counts messages");
    let Some(text) = nfdump(test, |to| send(&messages, to), &PRINT) else { return };
    same(&text, &records, true);
}

/// The messages as datagrams in a capture, one microsecond apart.
fn capture(messages: &[Vec<u8>], port: u16) -> Vec<u8> {
    let mut file = Vec::new();
    // Classic pcap of raw IP packets (link type 101).
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65535, 101] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    for (i, message) in messages.iter().enumerate() {
        let udp_len = message.len() as u16 + 8;
        let mut packet = vec![0x45, 0];
        packet.extend_from_slice(&(udp_len + 20).to_be_bytes());
        packet.extend_from_slice(&[0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
        for half in [4000, port, udp_len, 0] {
            packet.extend_from_slice(&half.to_be_bytes());
        }
        packet.extend_from_slice(message);
        for word in [common::DAY as u32, i as u32, packet.len() as u32, packet.len() as u32] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(&packet);
    }
    file
}

/// The errors that tshark reports for these messages, and the requested fields, one line per message.
fn tshark(test: &str, messages: &[Vec<u8>], options: &[&str], fields: &[&str]) -> Option<(String, String)> {
    let directory = testkit::TempDir::new(test);
    let path = directory.join("messages.pcap");
    std::fs::write(&path, capture(messages, 4739)).expect("the capture is written");
    let read = |arguments: &[&str]| {
        let mut tshark = testkit::tool(test, "tshark")?;
        tshark.args(["-r", &path.to_string_lossy(), "-d", "udp.port==4739,cflow", "-T", "fields"]);
        let out = tshark.args(options).args(arguments).output().expect("tshark runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        Some(String::from_utf8_lossy(&out.stdout).into_owned())
    };
    let errors = read(&["-Y", "_ws.expert || _ws.malformed", "-e", "frame.number", "-e", "_ws.expert.message"])?;
    let mut columns = vec!["-E", "occurrence=a", "-E", "aggregator= "];
    columns.extend(fields.iter().flat_map(|f| ["-e", f]));
    Some((errors, read(&columns)?))
}

fn check_with_tshark(test: &str, encoder: &mut dyn Encode, options: &[&str]) {
    let mut prng = Prng::new(testkit::seed(test));
    let (messages, records) = exported(encoder, &mut prng, true);
    let Some((errors, fields)) = tshark(test, &messages, options, &["cflow.flow_id", "cflow.if_name"]) else {
        return;
    };
    assert_eq!(errors, "");
    let printed: BTreeSet<&str> = fields.split_whitespace().collect();
    for record in &records {
        assert!(printed.contains(&*record.id.to_string()), "flow {} is not in the output of tshark", record.id);
    }
    assert!(printed.contains("mirror1"));
}

#[test]
fn tshark_reports_no_error_in_our_ipfix() {
    // Wireshark accepts templates of at most 60 fields by default.
    let options = ["-o", "cflow.max_template_fields:200"];
    let mut encoder = ipfix::Encoder::new(Config { fields: Fields::Full, ..Config::default() });
    check_with_tshark("tshark_reports_no_error_in_our_ipfix", &mut encoder, &options);
}

#[test]
fn tshark_reports_no_error_in_our_standard_ipfix() {
    let mut encoder = ipfix::Encoder::new(Config { fields: Fields::Standard, ..Config::default() });
    check_with_tshark("tshark_reports_no_error_in_our_standard_ipfix", &mut encoder, &[]);
}

#[test]
fn tshark_reports_no_error_in_our_biflow_ipfix() {
    let mut encoder = ipfix::Encoder::new(Config { fields: Fields::Biflow, ..Config::default() });
    check_with_tshark("tshark_reports_no_error_in_our_biflow_ipfix", &mut encoder, &[]);
}

#[test]
fn tshark_reports_no_error_in_our_netflow9() {
    let mut encoder = netflow9::Encoder::new(Config::default());
    check_with_tshark("tshark_reports_no_error_in_our_netflow9", &mut encoder, &[]);
}
