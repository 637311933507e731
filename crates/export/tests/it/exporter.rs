//! The exporter: no collector delays the meter, and every record is counted once.

use crate::common;

use base::Prng;
use flow::Record;
use netgrain_export::element::PEN;
use netgrain_export::file::{FileError, Reader};
use netgrain_export::ipfix::Item;
use netgrain_export::{
    Clock, Counts, ExportKind, Exporter, Fields, MESSAGE_MAX, Protocol, Settings, StartError, Subscriber, Target,
    Unsent,
};
use std::net::{TcpListener, UdpSocket};
use std::time::{Duration, Instant};

fn records(test: &str, count: usize) -> Vec<Record> {
    let mut prng = Prng::new(testkit::seed(test));
    (0..count).map(|_| common::plausible(&mut prng)).collect()
}

fn settings(target: &str) -> Settings {
    let mut settings = Settings::new(target.parse().expect("a target"));
    settings.grace = Duration::from_millis(300);
    settings.batch_delay = Duration::from_millis(20);
    // With these fields, the decoder returns records equal to the exported records.
    settings.encode.fields = Fields::Full;
    settings
}

fn unsent(counts: &Counts, cause: Unsent) -> u64 {
    counts.unsent[cause as usize]
}

fn all_accounted(counts: &Counts, offered: u64) {
    assert_eq!(counts.offered, offered, "{counts:?}");
    assert_eq!(counts.sent + counts.unsent.iter().sum::<u64>(), offered, "{counts:?}");
}

#[test]
fn invalid_settings_are_rejected_at_the_start() {
    let mut nothing = settings("udp:127.0.0.1");
    (nothing.flows, nothing.series) = (false, false);
    assert!(matches!(Exporter::start(nothing), Err(StartError::Nothing)));
    let mut file = settings("file:flows");
    file.protocol = Protocol::NetflowV9;
    assert!(matches!(Exporter::start(file), Err(StartError::Netflow(Target::File(_)))));
}

#[test]
fn an_unreachable_collector_loses_records_without_delaying_the_meter() {
    // A port that was just free: no process listens on it.
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
    let mut settings = settings(&format!("tcp:{free}"));
    settings.queue = 100;
    let exporter = Exporter::start(settings).expect("it starts");
    let mut handle = exporter.handle();
    for record in records("an_unreachable_collector_loses_records_without_delaying_the_meter", 1000) {
        flow::Sink::record(&mut handle, &record);
    }
    let counts = exporter.finish();
    all_accounted(&counts, 1000);
    assert_eq!(counts.sent, 0);
    assert!(counts.error.is_some_and(|t| t.contains("refused")), "the error is reported");
    assert!(!handle.flow(&records("after the end", 1)[0]), "no offer is accepted after the end");
    let counts = handle.counts();
    assert_eq!(unsent(&counts, Unsent::Stopped), 1);
    all_accounted(&counts, 1001);
}

/// If each offer waited for the timeout, and not only the first offer to the unresponsive collector, this test would
/// take an hour and a half.
#[test]
fn a_replay_waits_once_for_a_dead_collector_not_for_each_record() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
    let mut settings = settings(&format!("tcp:{free}"));
    (settings.queue, settings.offer_timeout) = (100, Duration::from_millis(500));
    let exporter = Exporter::start(settings).expect("it starts");
    let some = records("a_replay_waits_once_for_a_dead_collector_not_for_each_record", 100);
    let accepted = (0..100).flat_map(|_| &some).filter(|record| exporter.handle().flow(record)).count();
    assert_eq!(accepted, 100, "the capacity of the queue");
    let counts = exporter.finish();
    all_accounted(&counts, 10_000);
    assert_eq!(unsent(&counts, Unsent::Unreachable), 10_000);
}

#[test]
fn stop_waiting_ends_the_wait_of_offers() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
    let mut settings = settings(&format!("tcp:{free}"));
    (settings.queue, settings.offer_timeout) = (10, Duration::from_secs(24 * 3600));
    let stop_waiting = settings.stop_waiting.clone();
    let exporter = Exporter::start(settings).expect("it starts");
    let handle = exporter.handle();
    let some = records("stop_waiting_ends_the_wait_of_offers", 20);
    let waiting = std::thread::spawn(move || some.iter().filter(|record| handle.flow(record)).count());
    while exporter.counts().offered < 11 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(exporter.counts().unsent, [0; Unsent::COUNT], "the eleventh waits");
    stop_waiting.store(true, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(waiting.join().expect("it ends"), 10);
    all_accounted(&exporter.finish(), 20);
}

#[test]
fn a_file_of_two_successive_exporters_has_the_records_of_both() {
    let test = "a_file_of_two_successive_exporters_has_the_records_of_both";
    let directory = testkit::TempDir::new(test);
    let path = directory.join("flows.ipfix");
    let some = records(test, 200);
    let start = || {
        let mut settings = settings(&format!("file:{}", path.display()));
        // When the next exporter starts, the last offered records still wait until their message is full.
        (settings.batch_delay, settings.grace) = (Duration::from_secs(60), Duration::from_secs(60));
        Exporter::start(settings).expect("it starts")
    };
    let before = start();
    some[..100].iter().for_each(|r| assert!(before.handle().flow(r)));
    while before.counts().sent == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let after = start();
    some[100..].iter().for_each(|r| assert!(after.handle().flow(r)));
    before.leave();
    all_accounted(&after.finish(), 100);
    assert_eq!(before.finish().sent, 100);
    let mut reader = Reader::new(std::fs::File::open(&path).expect("the file"), PEN);
    let mut flows = Vec::new();
    while let Some(item) = reader.next_item().expect("whole messages") {
        if let Item::Flow(record) = item {
            flows.push(record);
        }
    }
    assert_eq!(flows, some);
}

#[test]
fn a_peer_that_does_not_read_only_fills_the_queue() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut settings = settings(&format!("tcp:{}", listener.local_addr().expect("its address")));
    settings.queue = 64;
    let exporter = Exporter::start(settings).expect("it starts");
    let handle = exporter.handle();
    let (_silent, _) = listener.accept().expect("it connects");
    let some = records("a_peer_that_does_not_read_only_fills_the_queue", 100);
    // Offers records until the socket buffers of the peer, which does not read, are full, and until the queue is full
    // too. If an offer waited for the collector, no offer would be rejected.
    let mut offered = 0;
    while unsent(&handle.counts(), Unsent::QueueFull) < 1000 {
        for record in &some {
            handle.flow(record);
            offered += 1;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    let counts = exporter.finish();
    all_accounted(&counts, offered);
    assert!(counts.sent > 0 && unsent(&counts, Unsent::QueueFull) >= 1000);
}

/// Ends an exporter whose collector receives nothing. The I/O timeout is a day; the end must not wait for this timeout.
fn ends_without_its_collector(settings: Settings) -> Counts {
    let exporter = Exporter::start(settings).expect("it starts");
    let handle = exporter.handle();
    let mut prng = Prng::new(testkit::seed("ends_without_its_collector"));
    // Waits until no record has been sent for a while. Then the socket buffers of the peer, which does not read, are
    // full, and further records fill the queue.
    let (mut sent, mut since) = (0, Instant::now());
    while since.elapsed() < Duration::from_secs(3) {
        handle.flow(&common::plausible(&mut prng));
        let counts = handle.counts();
        if counts.sent != sent || unsent(&counts, Unsent::QueueFull) == 0 {
            (sent, since) = (counts.sent, Instant::now());
        }
    }
    let (sender, reported) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(exporter.finish()));
    reported.recv_timeout(Duration::from_secs(120)).expect("the end does not wait for the collector")
}

#[test]
fn a_collector_that_never_reads_does_not_delay_the_end() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut settings = settings(&format!("tcp:{}", listener.local_addr().expect("its address")));
    (settings.queue, settings.io_timeout) = (64, Duration::from_secs(24 * 3600));
    let counts = ends_without_its_collector(settings);
    all_accounted(&counts, counts.offered);
    assert!(unsent(&counts, Unsent::Unreachable) > 0, "{counts:?}");
    assert_eq!(counts.sessions, 1, "there is no reconnection to an unresponsive collector at the end");
}

#[test]
fn a_collector_that_never_answers_does_not_delay_the_end() {
    let test = "a_collector_that_never_answers_does_not_delay_the_end";
    let Some(sandbox) = testkit::Sandbox::new(test) else { return };
    // The link address of the collector is configured but no host has it, so all frames are lost.
    let ip = |arguments: &[&str]| {
        let out = testkit::tool(test, "ip")?.args(arguments).output().expect("ip runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        Some(())
    };
    let set_up = || {
        ip(&["link", "add", "nowhere", "type", "veth", "peer", "name", "peer0"])?;
        ip(&["address", "add", "192.0.2.1/24", "dev", "nowhere"])?;
        ["nowhere", "peer0"].iter().try_for_each(|port| ip(&["link", "set", port, "up"]))?;
        let neighbour = ["192.0.2.2", "lladdr", "02:00:00:00:00:99", "nud", "permanent", "dev", "nowhere"];
        ip(&[&["neighbour", "add"], &neighbour[..]].concat())
    };
    if set_up().is_none() {
        return;
    }
    let mut settings = settings("tcp:192.0.2.2:4739");
    (settings.queue, settings.io_timeout) = (64, Duration::from_secs(24 * 3600));
    let counts = ends_without_its_collector(settings);
    all_accounted(&counts, counts.offered);
    assert_eq!((counts.sent, counts.sessions), (0, 0));
    drop(sandbox);
}

#[test]
fn a_late_collector_receives_all_waiting_records() {
    let address = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
    let mut settings = settings(&format!("tcp:{address}"));
    settings.grace = Duration::from_secs(60);
    let exporter = Exporter::start(settings).expect("it starts");
    let some = records("a_late_collector_receives_all_waiting_records", 500);
    for record in &some {
        assert!(exporter.handle().flow(record));
    }
    while exporter.counts().error.is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let listener = TcpListener::bind(address).expect("the collector starts");
    let collector = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("it connects");
        let (mut reader, mut flows) = (Reader::new(stream, PEN), Vec::new());
        while let Some(item) = reader.next_item().expect("whole messages") {
            if let Item::Flow(record) = item {
                flows.push(record);
            }
        }
        flows
    });
    let counts = exporter.finish();
    all_accounted(&counts, 500);
    assert_eq!(counts.sent, 500);
    assert_eq!(collector.join().expect("the collector"), some);
}

#[test]
fn after_a_disconnect_the_exporter_reconnects_and_sends_templates() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut settings = settings(&format!("tcp:{}", listener.local_addr().expect("its address")));
    settings.grace = Duration::from_secs(20);
    let exporter = Exporter::start(settings).expect("it starts");
    let handle = exporter.handle();
    let some = records("after_a_disconnect_the_exporter_reconnects_and_sends_templates", 50);
    let (first, _) = listener.accept().expect("it connects");
    drop(first);
    let collector = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("it reconnects");
        let mut reader = Reader::new(stream, PEN);
        let mut flows = 0u64;
        while let Some(item) = reader.next_item().expect("whole messages") {
            flows += u64::from(matches!(item, Item::Flow(_)));
        }
        (flows, reader.arrived())
    });
    let mut offered = 0;
    while handle.counts().sessions < 2 {
        handle.flow(&some[offered % some.len()]);
        offered += 1;
        std::thread::sleep(Duration::from_millis(5));
    }
    for record in &some {
        handle.flow(record);
    }
    let counts = exporter.finish();
    all_accounted(&counts, (offered + some.len()) as u64);
    let (flows, arrived) = collector.join().expect("the collector");
    assert!(flows >= some.len() as u64 && flows <= counts.sent, "{flows} of {counts:?}");
    assert_eq!((arrived.missed, arrived.without_template), (0, 0), "a new session has its own sequence numbers");
}

#[test]
fn a_message_longer_than_a_datagram_is_counted_as_too_large() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let mut settings = settings(&format!("udp:{}", socket.local_addr().expect("its address")));
    settings.encode.message = MESSAGE_MAX;
    (settings.batch_delay, settings.offer_timeout) = (Duration::from_secs(60), Duration::from_secs(60));
    let exporter = Exporter::start(settings).expect("it starts");
    let handle = exporter.handle();
    let mut prng = Prng::new(testkit::seed("a_message_longer_than_a_datagram_is_counted_as_too_large"));
    // A datagram holds 65507 bytes; about one message in twenty is longer.
    let mut offered = 0;
    while unsent(&handle.counts(), Unsent::TooLarge) == 0 && offered < 100_000 {
        handle.flow(&common::plausible(&mut prng));
        offered += 1;
    }
    let counts = exporter.finish();
    all_accounted(&counts, offered);
    assert!(unsent(&counts, Unsent::TooLarge) > 0, "{counts:?}");
}

#[test]
fn records_to_a_closed_port_are_counted_as_unreachable() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = socket.local_addr().expect("its address");
    drop(socket);
    let exporter = Exporter::start(settings(&format!("udp:{address}"))).expect("it starts");
    let handle = exporter.handle();
    let some = records("records_to_a_closed_port_are_counted_as_unreachable", 100);
    for record in &some {
        handle.flow(record);
    }
    let counts = exporter.finish();
    all_accounted(&counts, 100);
    // No process listens on the port, so on the local host each datagram causes an ICMP error, also the last datagram.
    assert_eq!((counts.sent, unsent(&counts, Unsent::Unreachable)), (0, 100), "{counts:?}");
    assert!(counts.error.is_some_and(|t| t.contains("refused")), "the error is reported");
}

/// All flows that end within a second arrive at once: 3000 records take 4 MB of kernel memory, and the default receive
/// buffer of a socket has 0.2 MB.
#[test]
fn a_burst_is_paced_so_that_a_default_receive_buffer_suffices() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let mut settings = settings(&format!("udp:{}", socket.local_addr().expect("its address")));
    settings.grace = Duration::from_secs(30);
    let exporter = Exporter::start(settings).expect("it starts");
    let handle = exporter.handle();
    for record in records("a_burst_is_paced_so_that_a_default_receive_buffer_suffices", 3000) {
        assert!(handle.flow(&record), "no record is rejected");
    }
    let reported = std::thread::spawn(move || exporter.finish());
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    let (mut received, mut message) = (0, vec![0; MESSAGE_MAX]);
    loop {
        // After the exporter has ended, all sent datagrams are in the receive buffer.
        let is_over = reported.is_finished();
        match socket.recv(&mut message) {
            Ok(_) => received += 1,
            Err(_) if is_over => break,
            Err(_) => continue,
        }
        // Reads as slowly as a collector that shares its CPU with other processes.
        if received % 10 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let counts = reported.join().expect("a thread");
    all_accounted(&counts, 3000);
    assert_eq!((counts.sent, counts.messages), (3000, received), "{counts:?}");
}

#[test]
fn each_multicast_group_has_the_records_of_one_interface_and_kind() {
    let test = "each_multicast_group_has_the_records_of_one_interface_and_kind";
    let Some(_sandbox) = testkit::Sandbox::new(test) else { return };
    let port = 4739;
    let listen = |kind, interface| Subscriber::multicast(kind, interface, port, "lo", PEN).expect("it listens");
    let mut flows: Vec<Subscriber> = (0..4).map(|i| listen(ExportKind::Flows, i)).collect();
    let mut series: Vec<Subscriber> = (0..4).map(|i| listen(ExportKind::Series, i)).collect();
    let mut settings = settings("multicast:lo");
    settings.interfaces = (0..4).map(|i| (i, format!("port{i}"))).collect();
    let exporter = Exporter::start(settings).expect("it starts");
    let handle = exporter.handle();
    let mut prng = Prng::new(testkit::seed(test));
    let some = records(test, 60);
    let rows: Vec<_> = (0..40).map(|_| common::row(&mut prng)).collect();
    some.iter().for_each(|r| assert!(handle.flow(r)));
    rows.iter().for_each(|r| assert!(handle.row(r)));
    let counts = exporter.finish();
    all_accounted(&counts, 100);
    assert_eq!(counts.sent, 100, "{counts:?}");
    for interface in 0..4u16 {
        let receive = |subscriber: &mut Subscriber| {
            let mut items = Vec::new();
            while let Some((_, item)) = subscriber.next_item(Duration::from_millis(200)).expect("received") {
                items.push(item);
            }
            assert_eq!(subscriber.arrived().0.missed, 0);
            let name = Item::Interface { number: interface, name: format!("port{interface}") };
            assert!(items.contains(&name), "a group has the name of its interface");
            items
        };
        let i = usize::from(interface);
        let (received_flows, received_rows) = (receive(&mut flows[i]), receive(&mut series[i]));
        let received_items: Vec<&Record> =
            received_flows.iter().filter_map(|i| if let Item::Flow(r) = i { Some(r) } else { None }).collect();
        assert_eq!(received_items, some.iter().filter(|r| r.interface == interface).collect::<Vec<_>>());
        let received_items: Vec<_> =
            received_rows.iter().filter_map(|i| if let Item::Row(r) = i { Some(*r) } else { None }).collect();
        assert_eq!(received_items, rows.iter().filter(|r| r.interface == interface).copied().collect::<Vec<_>>());
    }
}

#[test]
fn a_file_is_continued_after_its_last_complete_message() {
    let test = "a_file_is_continued_after_its_last_complete_message";
    let directory = testkit::TempDir::new(test);
    let path = directory.join("flows.ipfix");
    let some = records(test, 200);
    let run = |records: &[Record]| {
        let mut settings = settings(&format!("file:{}", path.display()));
        settings.clock = Clock::Data;
        settings.offer_timeout = Duration::from_secs(60);
        let exporter = Exporter::start(settings).expect("it starts");
        records.iter().for_each(|r| assert!(exporter.handle().flow(r)));
        let counts = exporter.finish();
        all_accounted(&counts, records.len() as u64);
        counts
    };
    assert_eq!(run(&some[..120]).sent, 120);
    let whole = std::fs::read(&path).expect("the file");
    // Simulates a crash in the middle of the next message.
    std::fs::write(&path, [&whole[..], &whole[..1000]].concat()).expect("it is torn");
    let read = || {
        let mut reader = Reader::new(std::fs::File::open(&path).expect("the file"), PEN);
        let mut flows = Vec::new();
        loop {
            match reader.next_item() {
                Ok(Some(Item::Flow(record))) => flows.push(record),
                Ok(Some(_)) => (),
                Ok(None) => return (flows, None),
                Err(error) => return (flows, Some(error)),
            }
        }
    };
    let (flows, error) = read();
    assert_eq!(flows, some[..120]);
    assert!(matches!(error, Some(FileError::Torn { offset }) if offset == whole.len() as u64), "{error:?}");
    assert_eq!(run(&some[120..]).sent, 80);
    let (flows, error) = read();
    assert!(error.is_none(), "{error:?}");
    assert_eq!(flows, some);
    // A file of another format is not changed.
    std::fs::write(&path, b"this is not a file of flow records").expect("another file");
    let exporter = Exporter::start(settings(&format!("file:{}", path.display()))).expect("it starts");
    exporter.handle().flow(&some[0]);
    let counts = exporter.finish();
    assert_eq!(unsent(&counts, Unsent::Unreachable), 1);
    assert!(counts.error.is_some_and(|t| t.contains("no IPFIX message")));
    assert_eq!(std::fs::read(&path).expect("the file"), b"this is not a file of flow records");
}

#[test]
fn repeated_exports_of_the_same_records_are_equal() {
    let test = "repeated_exports_of_the_same_records_are_equal";
    let directory = testkit::TempDir::new(test);
    let some = records(test, 300);
    let files = ["one", "two"].map(|name| {
        let path = directory.join(name);
        let mut settings = settings(&format!("file:{}", path.display()));
        (settings.clock, settings.offer_timeout) = (Clock::Data, Duration::from_secs(60));
        settings.batch_delay = Duration::from_secs(60);
        let exporter = Exporter::start(settings).expect("it starts");
        some.iter().for_each(|r| assert!(exporter.handle().flow(r)));
        exporter.finish();
        std::fs::read(path).expect("the file")
    });
    assert!(!files[0].is_empty() && files[0] == files[1]);
}
