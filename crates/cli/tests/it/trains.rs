//! Trains of `netgrain gen` and their evaluation by `netgrain owd`: in files with exact times, in files with planted
//! delays, losses, duplicates and reordering, and live between interfaces of a network namespace.

use crate::common;

use base::{Prng, Timestamp};
use common::{Running, arg, netgrain, objects, run, run_command};
use pcap::classic::{Resolution, Writer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use testkit::{Port, RawReader, RawSender, Sandbox, TempDir};

/// A packet of a capture: its time and its bytes.
type Packet = (u64, Vec<u8>);

fn packets_of(file: &Path) -> Vec<Packet> {
    let bytes = std::fs::read(file).expect("a capture");
    let number = |at: usize| u64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")));
    let (mut at, mut all) = (24, Vec::new());
    while at < bytes.len() {
        let len = number(at + 8) as usize;
        all.push((number(at) * 1_000_000_000 + number(at + 4), bytes[at + 16..at + 16 + len].to_vec()));
        at += 16 + len;
    }
    all
}

fn write(file: &Path, packets: &[Packet]) {
    let mut out = Writer::new(std::fs::File::create(file).expect("a file"), Resolution::Nanos, 1).expect("a header");
    for (time, data) in packets {
        out.write(Timestamp::from_nanos(*time), data.len() as u32, data).expect("a packet");
    }
    out.finish().expect("the file is complete");
}

/// The report of the only session.
fn report(args: &[&str]) -> Value {
    let output = run(&[&["owd", "--json"], args].concat());
    assert_eq!(output.status, Some(0), "{output:?}");
    let mut all = objects(&output.out);
    assert_eq!(all.len(), 1, "{output:?}");
    all.remove(0)
}

fn trains(file: &Path, spec: &str) -> Vec<Packet> {
    let output = run(&["gen", "-w", arg(file), spec]);
    assert_eq!(output.status, Some(0), "{output:?}");
    packets_of(file)
}

#[test]
fn invalid_requests_for_trains_say_what_to_do() {
    let dir = TempDir::new("trains-invalid");
    let (file, other) = (dir.join("t.pcap"), dir.join("other.pcap"));
    let _ = run(&["gen", "-w", arg(&other), "60", "--packets", "10"]);
    let (file, other) = (arg(&file), arg(&other));
    for (args, advice) in [
        (&["gen", "-w", file, "train,gap=1"][..], "10us"),
        (&["owd", "-r", other, "-i", "nosuch0"], "the captures have packets of other.pcap"),
        (&["gen", "-w", file, "train,size=64"], "from 90 to 9014"),
        (&["gen", "-w", file, "train", "--rate", "1kpps"], "gap="),
        (&["gen", "-i", "lo", "train", "--method", "af-xdp"], "--launch"),
        (&["gen", "-i", "lo", "60", "--launch", "busy-wait"], "begins with train"),
        (&["gen", "-i", "no-such-link", "train"], "ip link"),
        (&["owd"], "name an interface with -i"),
        (&["owd", "-i", "a", "-i", "b"], "give one -i"),
        (&["owd", "-r", other, "--clock", "good"], "20us"),
        (&["owd", "-r", other, "--sent", "7"], "--session"),
        (&["owd", "-r", file, "nonsense"], "nonsense"),
    ] {
        let output = run(args);
        assert_eq!(output.status, Some(2), "{args:?}: {output:?}");
        assert!(output.err.contains(advice), "{args:?}: {output:?}");
    }
    let output = run(&["owd", "-r", other]);
    assert_eq!(output.status, Some(1));
    assert!(output.err.contains("no packet of a train in 10 packets"), "{output:?}");
}

#[test]
fn a_train_in_a_file_has_its_exact_gaps_and_no_delay() {
    let dir = TempDir::new("trains-file");
    let file = dir.join("t.pcap");
    let spec = "train,trains=2,train-gap=1s,bursts=3,burst-gap=5ms,per-burst=11,gap=8us,size=1000,session=77";
    let packets = trains(&file, spec);
    assert_eq!(packets.len(), 66);
    let gaps: Vec<u64> = packets.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    for (i, gap) in gaps.iter().enumerate() {
        let expected = match (i + 1) % 33 {
            0 => 1_000_000_000,
            n if n % 11 == 0 => 5_000_000,
            _ => 8000,
        };
        assert_eq!(*gap, expected, "gap {i}");
    }
    let report = report(&["-r", arg(&file), "--clock", "same"]);
    for (key, value) in [("received", 66), ("lost", 0), ("reordered", 0), ("session", 77), ("bursts_complete", 6)] {
        assert_eq!(report[key], value, "{key}");
    }
    assert_eq!((&report["delay_ns"]["max"], &report["departure_place"]), (&0.into(), &"schedule".into()));
    assert_eq!(report["arrival_dispersion_ns"]["max"], 80_000);
    // 10 packets of 1000 bytes in 80 µs are 1 Gb/s.
    assert_eq!(report["bandwidth_bits_per_second"]["min"], 1_000_000_000);
    let text = run(&["owd", "-r", arg(&file), "--clock", "same"]);
    assert!(text.out.contains("66 received, 0 lost") && text.out.contains("bandwidth (median) 1.00 Gb/s"), "{text:?}");
}

#[test]
fn planted_delays_losses_duplicates_and_reordering_are_found_exactly() {
    let dir = TempDir::new("trains-planted");
    let file = dir.join("t.pcap");
    let seed = testkit::seed("planted_delays_losses_duplicates_and_reordering_are_found_exactly");
    let mut prng = Prng::new(seed);
    let sent = trains(&file, "train,bursts=50,per-burst=40,gap=100us,burst-gap=1ms,size=100:300");
    // Offset, drift and a queueing delay of up to 300 µs, which reorders packets.
    let (offset, ppm) = (123_456_789_012, 25);
    let mut received = Vec::new();
    let (mut lost, mut duplicates, mut queueing) = (0, 0, Vec::new());
    for (time, data) in &sent {
        if prng.below(20) == 0 {
            lost += 1;
            continue;
        }
        let at = |queue: u64| time + offset + (time - sent[0].0) * ppm / 1_000_000 + 40_000 + queue;
        let queue = prng.below(300_000);
        queueing.push(queue);
        received.push((at(queue), data.clone()));
        if prng.below(30) == 0 {
            duplicates += 1;
            received.push((at(queue) + 1 + prng.below(5_000_000), data.clone()));
        }
    }
    received.sort_by_key(|packet| packet.0);
    write(&file, &received);
    let report = report(&["-r", arg(&file)]);
    let first = |packets: &[Packet]| packets.iter().map(number).min().expect("a packet");
    let last = received.iter().map(number).max().expect("a packet");
    // Packets lost before the first and after the last arrival are not in the capture.
    let unseen = first(&received) + (sent.len() as u64 - 1 - last);
    assert_eq!(report["lost"], lost - unseen, "seed {seed}");
    assert_eq!(report["duplicates"], duplicates, "seed {seed}");
    assert_eq!(report["unique"], sent.len() as u64 - lost, "seed {seed}");
    let (mut highest, mut reordered, mut seen) = (0, 0, std::collections::HashSet::new());
    for n in received.iter().map(number).filter(|n| seen.insert(*n)).collect::<Vec<_>>() {
        reordered += u64::from(n < highest);
        highest = highest.max(n);
    }
    assert_eq!(report["reordered"], reordered, "seed {seed}");
    assert!(reordered > 100, "the plan reorders packets");
    assert_eq!((&report["clocks"], &report["delay_error_ns"]), (&"unknown".into(), &Value::Null));
    let skew = report["drift_free"]["skew_ppm"].as_f64().expect("a skew");
    assert!((skew - ppm as f64).abs() < 20.0, "seed {seed}: {skew} ppm over 0.2 s");
    // The delay above the smallest delay is the planted queueing delay, within the error of the skew.
    queueing.sort_unstable();
    let planted = queueing[queueing.len() / 2] as f64;
    let measured = report["drift_free"]["delay_ns"]["p50"].as_f64().expect("a median");
    assert!((measured - planted).abs() < 6000.0, "seed {seed}: {measured}, planted {planted}");
    let counted = self::report(&["-r", arg(&file), "--session", "1", "--sent", &sent.len().to_string()]);
    assert_eq!(counted["lost"], lost, "seed {seed}");
}

/// The sequence number of a packet between IPv4 addresses.
fn number(packet: &Packet) -> u64 {
    u64::from_be_bytes(packet.1[42 + 24..42 + 32].try_into().expect("eight bytes"))
}

#[test]
fn the_rows_of_the_packets_have_the_times_of_the_capture() {
    let dir = TempDir::new("trains-rows");
    let file = dir.join("t.pcap");
    let mut packets = trains(&file, "train,per-burst=5,session=9");
    packets.iter_mut().enumerate().for_each(|(i, packet)| packet.0 += 1000 * (i as u64 + 1));
    packets.swap(1, 2);
    packets[2].0 = packets[1].0 + 1;
    write(&file, &packets);
    let output = run(&["owd", "-r", arg(&file), "--csv"]);
    let lines: Vec<Vec<&str>> = output.out.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), 6, "{output:?}");
    assert!(lines.iter().all(|line| line.len() == 17), "{output:?}");
    let column = |name: &str| lines[0].iter().position(|column| *column == name).expect("a column");
    let values = |name: &str| lines[1..].iter().map(|line| line[column(name)]).collect::<Vec<_>>();
    assert_eq!(values("sequence"), ["0", "2", "1", "3", "4"]);
    assert_eq!(values("kind"), ["in-order", "in-order", "reordered", "in-order", "in-order"]);
    assert_eq!(values("delay_ns"), ["1000", "3000", "103001", "4000", "5000"]);
    assert_eq!(values("variation_ns"), ["", "", "102001", "1000", "1000"]);
}

#[test]
fn a_store_has_the_results_of_its_capture() {
    let dir = TempDir::new("trains-store");
    let (file, store) = (dir.join("t.pcap"), dir.join("store"));
    let mut packets = trains(&file, "train,bursts=20,session=3");
    let mut prng = Prng::new(3);
    packets.iter_mut().for_each(|packet| packet.0 += 50_000 + prng.below(40_000));
    packets.retain(|_| prng.below(50) > 0);
    packets.sort_by_key(|packet| packet.0);
    write(&file, &packets);
    let recorded = run(&["record", "-r", arg(&file), "--store", arg(&store), "--name", "a"]);
    assert_eq!(recorded.status, Some(0), "{recorded:?}");
    let mut of_store = report(&["--store", arg(&store), "-i", "a", "--clock", "30us"]);
    let of_file = report(&["-r", arg(&file), "--clock", "30us"]);
    assert_eq!((&of_store["interface"], &of_store["clocks"]), (&"a".into(), &"synchronised".into()));
    of_store["interface"] = of_file["interface"].clone();
    assert_eq!(of_store, of_file);
}

#[test]
fn a_parquet_file_has_a_row_for_each_packet() {
    let test = "a_parquet_file_has_a_row_for_each_packet";
    let Some(mut python) = testkit::python_with(test, "pyarrow") else { return };
    let dir = TempDir::new("trains-parquet");
    let (file, parquet) = (dir.join("t.pcap"), dir.join("t.parquet"));
    let packets = trains(&file, "train,bursts=7,per-burst=10000,gap=1us");
    let output = run(&["owd", "-r", arg(&file), "--clock", "same", "--parquet", arg(&parquet)]);
    assert!(output.out.contains("70 000 received") && output.err.contains("70 000 packets into"), "{output:?}");
    let script = "import sys, pyarrow.parquet as p, pyarrow.compute as c; t = p.read_table(sys.argv[1]); \
                  print(t.num_rows, t.num_columns, c.sum(t['sequence']), c.min(t['departure_ns']), \
                  c.max(t['arrival_ns']), t['variation_ns'].null_count, c.max(t['delay_ns']), t['kind'][0])";
    let read = run_command(python.args(["-c", script, arg(&parquet)]));
    let sum: u64 = (0..70_000).sum();
    let expected = format!("70000 17 {sum} {} {} 1 0 in-order", packets[0].0, packets[69_999].0);
    assert_eq!(read.out.trim(), expected, "{read:?}");
    let again = run(&["owd", "-r", arg(&file), "--parquet", arg(&parquet)]);
    assert_eq!(again.status, Some(2), "an existing file is not overwritten without --force: {again:?}");
}

#[test]
fn two_sessions_and_damaged_packets_are_separated() {
    let dir = TempDir::new("trains-sessions");
    let (one, two, both) = (dir.join("1.pcap"), dir.join("2.pcap"), dir.join("both.pcap"));
    let mut packets = trains(&one, "train,session=1");
    packets.extend(trains(&two, "train,session=2,from=[2001:db8::1]:5,to=[2001:db8::2]:6"));
    packets[3].1[60] ^= 1;
    packets.sort_by_key(|packet| packet.0);
    write(&both, &packets);
    let output = run(&["owd", "-r", arg(&both), "--json"]);
    let all = objects(&output.out);
    let figures: Vec<_> =
        all.iter().map(|o| (o["session"].as_u64(), o["received"].as_u64(), o["lost"].as_u64())).collect();
    assert_eq!(figures, [(Some(1), Some(99), Some(1)), (Some(2), Some(100), Some(0))]);
    assert!(output.err.contains("1 packet with a wrong UDP checksum"), "{output:?}");
    assert_eq!(report(&["-r", arg(&both), "--session", "2"])["source"], "2001:db8::1");
    assert_eq!(report(&["-r", arg(&both), "--", "dst", "port", "6"])["destination_port"], 6);
}

/// Starts `netgrain owd` on an interface, and waits until it captures.
fn receiver(port: &Port, more: &[&str]) -> (Running, std::io::BufReader<std::process::ChildStderr>) {
    Running::start(&mut netgrain(&[&["owd", "-i", &port.name, "--json"], more].concat()))
}

#[test]
fn trains_between_two_interfaces_arrive_complete_with_a_histogram_of_their_gaps() {
    let test = "trains_between_two_interfaces_arrive_complete_with_a_histogram_of_their_gaps";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("va", "vb");
    let (running, err) = receiver(&b, &["--packets", "300", "--clock", "same"]);
    let spec = "train,bursts=6,per-burst=50,gap=20us,burst-gap=2ms,size=100:1514,session=5";
    let sent = run(&["gen", "-i", &a.name, spec, "--json"]);
    assert_eq!(sent.status, Some(0), "{sent:?}");
    assert!(sent.err.contains("busy wait") && sent.err.contains("no launch times"), "{sent:?}");
    let sent = objects(&sent.out).remove(0);
    let counted = |key: &str| sent[key].as_u64().expect("a number");
    assert_eq!(counted("made"), counted("sent") + counted("refused") + counted("unlaunched"));
    assert_eq!((counted("sent"), counted("bytes")), (300, 150 * (100 + 1514)));
    let inside = &sent["gap_error_inside_bursts_ns"];
    assert_eq!((&inside["count"], &sent["gap_error_between_bursts_ns"]["count"]), (&294.into(), &5.into()));
    let buckets = inside["histogram"].as_array().expect("buckets");
    assert_eq!(buckets.iter().map(|bucket| bucket["count"].as_u64().expect("a count")).sum::<u64>(), 294);
    let received = running.end(err);
    assert_eq!(received.status, Some(0), "{received:?}");
    let received = objects(&received.out).remove(0);
    for (key, value) in [("unique", 300), ("lost", 0), ("session", 5), ("duplicates", 0), ("bursts_complete", 6)] {
        assert_eq!(received[key], value, "{key}: {received}");
    }
    assert_eq!((&received["interface"], &received["departure_place"]), (&"vb".into(), &"before-send".into()));
    // The kernel takes the arrival time after the sender has read its clock. The sender's clock is fitted to the time
    // stamp counter and may be ahead by its error.
    let earliest = received["delay_ns"]["min"].as_i64().expect("a delay");
    assert!(earliest > -1_000_000, "{received}");
}

#[test]
fn a_receiver_with_a_limit_takes_exactly_this_number_of_packets() {
    let test = "a_receiver_with_a_limit_takes_exactly_this_number_of_packets";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("va", "vb");
    let (running, err) = receiver(&b, &["--packets", "10", "--clock", "same"]);
    let sent = run(&["gen", "-i", &a.name, "train,bursts=6,per-burst=50,gap=0,burst-gap=0", "--json"]);
    assert_eq!(sent.status, Some(0), "{sent:?}");
    let received = running.end(err);
    let report = objects(&received.out).remove(0);
    assert_eq!((&report["received"], &report["clock_steps"]), (&10.into(), &0.into()), "{received:?}");
}

#[test]
fn a_sender_without_launch_times_or_with_too_long_frames_says_what_to_do() {
    let test = "a_sender_without_launch_times_or_with_too_long_frames_says_what_to_do";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, _b) = sandbox.veth("va", "vb");
    let output = run(&["gen", "-i", &a.name, "train", "--launch", "launch-time"]);
    assert_eq!(output.status, Some(2), "{output:?}");
    assert!(output.err.contains("tc qdisc replace dev va root etf") && output.err.contains("noqueue"), "{output:?}");
    let output = run(&["gen", "-i", &a.name, "train,size=1515"]);
    assert_eq!(output.status, Some(2), "{output:?}");
    assert!(output.err.contains("ip link set va mtu 1501"), "{output:?}");
}

#[test]
fn a_delay_that_a_forwarder_adds_is_measured() {
    let test = "a_delay_that_a_forwarder_adds_is_measured";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let ((a, b), (c, d)) = (sandbox.veth("va", "vb"), sandbox.veth("vc", "vd"));
    let (running, err) = receiver(&d, &["--packets", "200", "--clock", "same"]);
    // The forwarder keeps each packet for 5 to 9 ms, so packets with gaps of 1 ms overtake each other.
    let delay = |sequence: u64| Duration::from_millis(5 + sequence * 7 % 5);
    let mut reader = RawReader::new(&b);
    let (sender, from) = (RawSender::new(&c), b.name.clone());
    let forwarder = std::thread::spawn(move || {
        let mut waiting: BTreeMap<(Instant, u64), Vec<u8>> = BTreeMap::new();
        let (mut received, mut forwarded) = (0, 0);
        while forwarded < 200 {
            let now = Instant::now();
            while let Some(first) = waiting.first_entry().filter(|first| first.key().0 <= now) {
                sender.send(&[first.remove()]);
                forwarded += 1;
            }
            let Some(frame) = reader.next(Duration::from_micros(200)) else { continue };
            let sequence = number(&(0, frame.clone()));
            waiting.insert((Instant::now() + delay(sequence), sequence), frame);
            received += 1;
            assert!(received <= 200, "{from}: more packets than were sent");
        }
    });
    let sent = run(&["gen", "-i", &a.name, "train,per-burst=200,gap=1ms"]);
    assert_eq!(sent.status, Some(0), "{sent:?}");
    forwarder.join().expect("the forwarder ends");
    let received = running.end(err);
    let report = objects(&received.out).remove(0);
    assert_eq!((&report["unique"], &report["lost"]), (&200.into(), &0.into()), "{received:?}");
    assert!(report["reordered"].as_u64().is_some_and(|reordered| reordered > 0), "{received:?}");
    // No packet can be faster than the forwarder. The sender's clock may be ahead of the system clock by its error.
    let delays = &report["delay_ns"];
    for (key, planted) in [("min", 5), ("p50", 7), ("p99", 9)] {
        let measured = delays[key].as_i64().expect("a delay");
        assert!(measured > planted * 1_000_000 - 1_000_000, "{key}: {received:?}");
    }
}

#[test]
fn the_dispersion_behind_a_shaper_shows_its_bandwidth() {
    let test = "the_dispersion_behind_a_shaper_shows_its_bandwidth";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let Some(mut tc) = testkit::tool(test, "tc") else { return };
    let (a, b) = sandbox.veth("va", "vb");
    // The token bucket lets two frames pass at once, and then one frame in 0.8 ms.
    let shaper = ["qdisc", "add", "dev", &a.name, "root", "tbf", "rate", "10mbit", "burst", "2000", "limit", "200000"];
    if !run_command(tc.args(shaper)).err.is_empty() {
        return testkit::skip(test, "this kernel has no tbf");
    }
    let (running, err) = receiver(&b, &["--packets", "150", "--clock", "same"]);
    let sent = run(&["gen", "-i", &a.name, "train,bursts=3,per-burst=50,gap=0,burst-gap=100ms,size=1000"]);
    assert_eq!(sent.status, Some(0), "{sent:?}");
    let received = running.end(err);
    let report = objects(&received.out).remove(0);
    assert_eq!((&report["bursts_complete"], &report["lost"]), (&3.into(), &0.into()), "{received:?}");
    // 49 packets are timed, of which 47 wait for tokens. A machine under load makes the dispersion longer.
    let bandwidth = report["bandwidth_bits_per_second"]["max"].as_f64().expect("a bandwidth");
    assert!(bandwidth < 10e6 * 49.0 / 47.0 * 1.01, "{received:?}");
}
