//! The same flows in nfcapd's files, and the same question put to nfdump.

use base::Timestamp;
use export::encode::Message;
use export::{Config, Encode, Fields, ipfix};
use flow::Record;
use std::collections::HashMap;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PORT: u16 = 19_995;

/// Collects `records` flows of this set, again and again, asks for the greatest sources, and holds them against the truth:
/// what each source sent, in bytes of IP, which is what NetFlow counts.
pub fn compare(folder: &Path, set: &mut [Record], records: u64, truth: &HashMap<IpAddr, (u64, u64)>) {
    std::fs::create_dir_all(folder).expect("a folder");
    let place = folder.to_string_lossy().into_owned();
    let port = PORT.to_string();
    let mut nfcapd = Command::new("nfcapd")
        .args(["-w", &place, "-b", "127.0.0.1", "-p", &port, "-B", "8000000", "-T", "all"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("nfcapd is installed");
    while waiting().is_none() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let mut encoder = ipfix::Encoder::new(Config { fields: Fields::Standard, ..Config::default() });
    let now = Timestamp::from_secs_nanos(crate::common::START + 3600, 0);
    let mut sent = 0u64;
    let mut send = |message: Message<'_>| {
        socket.send_to(message.bytes, ("127.0.0.1", PORT)).expect("sent");
        sent += 1;
        // Nothing may be lost on the way: nfcapd is waited for.
        while sent.is_multiple_of(64) && waiting().is_some_and(|(bytes, _)| bytes > 60_000) {
            std::thread::sleep(Duration::from_micros(200));
        }
    };
    for i in 0..records {
        let record = &mut set[i as usize % crate::SET];
        // One direction: what nfdump sums of two is a matter of its version.
        record.sides[1] = flow::Side::default();
        encoder.record(record, now, &mut send).expect("it fits");
    }
    encoder.flush(now, &mut send);
    while waiting().is_some_and(|(bytes, _)| bytes > 0) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let lost = waiting().map_or(0, |(_, lost)| lost);
    Command::new("kill").args(["-TERM", &nfcapd.id().to_string()]).status().expect("kill");
    nfcapd.wait().expect("nfcapd ends");
    let bytes: u64 =
        std::fs::read_dir(folder).expect("a folder").flatten().filter_map(|e| Some(e.metadata().ok()?.len())).sum();
    println!("nfcapd: {lost} messages lost, {:.1} bytes per record", bytes as f64 / records as f64);
    for _ in 0..2 {
        let started = Instant::now();
        let out = Command::new("nfdump")
            .args(["-R", &place, "-s", "srcip/bytes", "-n", "10", "-N", "-o", "csv"])
            .output()
            .expect("nfdump is installed");
        let took = started.elapsed().as_secs_f64();
        let text = String::from_utf8_lossy(&out.stdout);
        let (mut same, mut lines) = (0, 0);
        for line in text.lines() {
            let cells: Vec<&str> = line.split(',').map(str::trim).collect();
            let Some((place, address)) =
                cells.iter().enumerate().find_map(|(i, c)| Some((i, c.parse::<IpAddr>().ok()?)))
            else {
                continue;
            };
            lines += 1;
            let wanted = truth.get(&address).map_or(0, |(_, bytes)| *bytes).to_string();
            same += u64::from(cells[place..].contains(&wanted.as_str()));
        }
        crate::report("nfdump, top talkers", records, took);
        println!("{same} of its {lines} lines are as they should be");
    }
}

/// Bytes that wait for nfcapd, and messages that it lost; none before it listens.
fn waiting() -> Option<(u64, u64)> {
    let table = std::fs::read_to_string("/proc/net/udp").ok()?;
    let line = table.lines().find(|line| line.contains(&format!(":{PORT:04X} 00000000:0000")))?;
    let cells: Vec<&str> = line.split_whitespace().collect();
    Some((u64::from_str_radix(cells.get(4)?.split(':').nth(1)?, 16).ok()?, cells.last()?.parse().ok()?))
}
