//! The way out: whatever the collector does, the meter is not held up, and every record is counted once.

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
    // So that records come back as they were.
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
fn what_cannot_be_exported_is_refused_at_the_start() {
    let mut nothing = settings("udp:127.0.0.1");
    (nothing.flows, nothing.series) = (false, false);
    assert!(matches!(Exporter::start(nothing), Err(StartError::Nothing)));
    let mut file = settings("file:flows");
    file.protocol = Protocol::NetflowV9;
    assert!(matches!(Exporter::start(file), Err(StartError::Netflow(Target::File(_)))));
}

#[test]
fn a_collector_that_is_not_there_costs_records_but_no_time() {
    // A port that was free a moment ago: nobody listens.
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
    let mut settings = settings(&format!("tcp:{free}"));
    settings.queue = 100;
    let exporter = Exporter::start(settings).expect("it starts");
    let mut handle = exporter.handle();
    for record in records("a_collector_that_is_not_there_costs_records_but_no_time", 1000) {
        flow::Sink::record(&mut handle, &record);
    }
    let counts = exporter.finish();
    all_accounted(&counts, 1000);
    assert_eq!(counts.sent, 0);
    assert!(counts.error.is_some_and(|t| t.contains("refused")), "it says what is wrong");
    assert!(!handle.flow(&records("after the end", 1)[0]), "nothing is taken after the end");
    let counts = handle.counts();
    assert_eq!(unsent(&counts, Unsent::Stopped), 1);
    all_accounted(&counts, 1001);
}

/// Were patience with each offer instead of with the collector, this would take an hour and a half.
#[test]
fn who_can_wait_waits_for_a_dead_collector_once_and_not_for_each_record() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
    let mut settings = settings(&format!("tcp:{free}"));
    (settings.queue, settings.offer_timeout) = (100, Duration::from_millis(500));
    let exporter = Exporter::start(settings).expect("it starts");
    let some = records("who_can_wait_waits_for_a_dead_collector_once_and_not_for_each_record", 100);
    let taken = (0..100).flat_map(|_| &some).filter(|record| exporter.handle().flow(record)).count();
    assert_eq!(taken, 100, "what the queue holds");
    let counts = exporter.finish();
    all_accounted(&counts, 10_000);
    assert_eq!(unsent(&counts, Unsent::Unreachable), 10_000);
}

#[test]
fn who_waits_for_a_collector_stops_waiting_when_told_to_hurry() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
    let mut settings = settings(&format!("tcp:{free}"));
    (settings.queue, settings.offer_timeout) = (10, Duration::from_secs(24 * 3600));
    let hurry = settings.stop_waiting.clone();
    let exporter = Exporter::start(settings).expect("it starts");
    let handle = exporter.handle();
    let some = records("who_waits_for_a_collector_stops_waiting_when_told_to_hurry", 20);
    let waiting = std::thread::spawn(move || some.iter().filter(|record| handle.flow(record)).count());
    while exporter.counts().offered < 11 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(exporter.counts().unsent, [0; Unsent::COUNT], "the eleventh waits");
    hurry.store(true, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(waiting.join().expect("it ends"), 10);
    all_accounted(&exporter.finish(), 20);
}

#[test]
fn a_file_that_changes_hands_has_what_both_exporters_wrote() {
    let test = "a_file_that_changes_hands_has_what_both_exporters_wrote";
    let folder = testkit::TempDir::new(test);
    let path = folder.join("flows.ipfix");
    let some = records(test, 200);
    let start = || {
        let mut settings = settings(&format!("file:{}", path.display()));
        // What was offered last waits for its message to be full when the next exporter comes.
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
fn a_peer_that_does_not_read_fills_the_queue_and_no_more() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut settings = settings(&format!("tcp:{}", listener.local_addr().expect("its address")));
    settings.queue = 64;
    let exporter = Exporter::start(settings).expect("it starts");
    let handle = exporter.handle();
    let (_silent, _) = listener.accept().expect("it connects");
    let some = records("a_peer_that_does_not_read_fills_the_queue_and_no_more", 100);
    // Until what the kernel takes for a peer that does not read is full, and then the queue. Were an offer ever to wait
    // for the collector, none would be refused.
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

/// Has an exporter with a collector that takes nothing end, with a patience of a day: the end does not wait for it.
fn ends_without_its_collector(settings: Settings) -> Counts {
    let exporter = Exporter::start(settings).expect("it starts");
    let handle = exporter.handle();
    let mut prng = Prng::new(testkit::seed("ends_without_its_collector"));
    // Until nothing has been taken for a while: what the kernel takes for a peer that does not read is full, and then
    // the queue.
    let (mut sent, mut since) = (0, Instant::now());
    while since.elapsed() < Duration::from_secs(3) {
        handle.flow(&common::plausible(&mut prng));
        let counts = handle.counts();
        if counts.sent != sent || unsent(&counts, Unsent::QueueFull) == 0 {
            (sent, since) = (counts.sent, Instant::now());
        }
    }
    let (say, reported) = std::sync::mpsc::channel();
    std::thread::spawn(move || say.send(exporter.finish()));
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
    assert_eq!(counts.sessions, 1, "a collector that hangs at the end is not tried again");
}

#[test]
fn a_collector_that_never_answers_does_not_delay_the_end() {
    let test = "a_collector_that_never_answers_does_not_delay_the_end";
    let Some(sandbox) = testkit::Sandbox::new(test) else { return };
    // Its link address is known and nothing is there: what is sent vanishes.
    let ip = |arguments: &[&str]| {
        let out = testkit::tool(test, "ip")?.args(arguments).output().expect("ip runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        Some(())
    };
    let set_up = || {
        ip(&["link", "add", "nowhere", "type", "veth", "peer", "name", "nobody"])?;
        ip(&["address", "add", "192.0.2.1/24", "dev", "nowhere"])?;
        ["nowhere", "nobody"].iter().try_for_each(|port| ip(&["link", "set", port, "up"]))?;
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
fn a_collector_that_comes_late_gets_everything_that_waited() {
    let address = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
    let mut settings = settings(&format!("tcp:{address}"));
    settings.grace = Duration::from_secs(60);
    let exporter = Exporter::start(settings).expect("it starts");
    let some = records("a_collector_that_comes_late_gets_everything_that_waited", 500);
    for record in &some {
        assert!(exporter.handle().flow(record));
    }
    while exporter.counts().error.is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let listener = TcpListener::bind(address).expect("the collector comes");
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
fn a_collector_that_breaks_off_is_found_again_with_templates() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut settings = settings(&format!("tcp:{}", listener.local_addr().expect("its address")));
    settings.grace = Duration::from_secs(20);
    let exporter = Exporter::start(settings).expect("it starts");
    let handle = exporter.handle();
    let some = records("a_collector_that_breaks_off_is_found_again_with_templates", 50);
    let (first, _) = listener.accept().expect("it connects");
    drop(first);
    let collector = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("it comes back");
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
    assert_eq!((arrived.missed, arrived.without_template), (0, 0), "a new session has a sequence of its own");
}

#[test]
fn a_message_that_no_datagram_holds_is_too_large() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let mut settings = settings(&format!("udp:{}", socket.local_addr().expect("its address")));
    settings.encode.message = MESSAGE_MAX;
    (settings.batch_delay, settings.offer_timeout) = (Duration::from_secs(60), Duration::from_secs(60));
    let exporter = Exporter::start(settings).expect("it starts");
    let handle = exporter.handle();
    let mut prng = Prng::new(testkit::seed("a_message_that_no_datagram_holds_is_too_large"));
    // A datagram holds 65507 bytes; one message in some twenty is filled beyond that.
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
fn at_a_port_where_nobody_listens_nothing_arrives_and_that_is_counted() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = socket.local_addr().expect("its address");
    drop(socket);
    let exporter = Exporter::start(settings(&format!("udp:{address}"))).expect("it starts");
    let handle = exporter.handle();
    let some = records("at_a_port_where_nobody_listens_nothing_arrives_and_that_is_counted", 100);
    for record in &some {
        handle.flow(record);
    }
    let counts = exporter.finish();
    all_accounted(&counts, 100);
    // On this machine each datagram is answered, the last one too.
    assert_eq!((counts.sent, unsent(&counts, Unsent::Unreachable)), (0, 100), "{counts:?}");
    assert!(counts.error.is_some_and(|t| t.contains("refused")), "it says what is wrong");
}

/// A second's flows end all at once: 3000 records are 4 MB of the kernel's memory, and a socket has 0.2 MB if nobody
/// asks for more.
#[test]
fn a_burst_goes_out_so_evenly_that_an_ordinary_receive_buffer_holds_it() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let mut settings = settings(&format!("udp:{}", socket.local_addr().expect("its address")));
    settings.grace = Duration::from_secs(30);
    let exporter = Exporter::start(settings).expect("it starts");
    let handle = exporter.handle();
    for record in records("a_burst_goes_out_so_evenly_that_an_ordinary_receive_buffer_holds_it", 3000) {
        assert!(handle.flow(&record), "nothing is given up for it");
    }
    let reported = std::thread::spawn(move || exporter.finish());
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    let (mut received, mut message) = (0, vec![0; MESSAGE_MAX]);
    loop {
        // Once the exporter has ended, all that it sent is in the receive buffer.
        let is_over = reported.is_finished();
        match socket.recv(&mut message) {
            Ok(_) => received += 1,
            Err(_) if is_over => break,
            Err(_) => continue,
        }
        // As slow as a collector that shares its processor.
        if received % 10 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let counts = reported.join().expect("a thread");
    all_accounted(&counts, 3000);
    assert_eq!((counts.sent, counts.messages), (3000, received), "{counts:?}");
}

#[test]
fn groups_have_listeners_by_interface_and_kind() {
    let test = "groups_have_listeners_by_interface_and_kind";
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
        let hear = |subscriber: &mut Subscriber| {
            let mut items = Vec::new();
            while let Some((_, item)) = subscriber.next_item(Duration::from_millis(200)).expect("it hears") {
                items.push(item);
            }
            assert_eq!(subscriber.arrived().0.missed, 0);
            let name = Item::Interface { number: interface, name: format!("port{interface}") };
            assert!(items.contains(&name), "a group says the name of its own interface");
            items
        };
        let i = usize::from(interface);
        let (got_flows, got_rows) = (hear(&mut flows[i]), hear(&mut series[i]));
        let got: Vec<&Record> =
            got_flows.iter().filter_map(|i| if let Item::Flow(r) = i { Some(r) } else { None }).collect();
        assert_eq!(got, some.iter().filter(|r| r.interface == interface).collect::<Vec<_>>());
        let got: Vec<_> = got_rows.iter().filter_map(|i| if let Item::Row(r) = i { Some(*r) } else { None }).collect();
        assert_eq!(got, rows.iter().filter(|r| r.interface == interface).copied().collect::<Vec<_>>());
    }
}

#[test]
fn a_file_is_continued_behind_its_last_whole_message() {
    let test = "a_file_is_continued_behind_its_last_whole_message";
    let folder = testkit::TempDir::new(test);
    let path = folder.join("flows.ipfix");
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
    // A crash in the middle of the next message.
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
    // Somebody else's file is left alone.
    std::fs::write(&path, b"this is not a file of flow records").expect("another file");
    let exporter = Exporter::start(settings(&format!("file:{}", path.display()))).expect("it starts");
    exporter.handle().flow(&some[0]);
    let counts = exporter.finish();
    assert_eq!(unsent(&counts, Unsent::Unreachable), 1);
    assert!(counts.error.is_some_and(|t| t.contains("no IPFIX")));
    assert_eq!(std::fs::read(&path).expect("it is there"), b"this is not a file of flow records");
}

#[test]
fn what_is_read_again_is_exported_as_it_was() {
    let test = "what_is_read_again_is_exported_as_it_was";
    let folder = testkit::TempDir::new(test);
    let some = records(test, 300);
    let files = ["one", "two"].map(|name| {
        let path = folder.join(name);
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
