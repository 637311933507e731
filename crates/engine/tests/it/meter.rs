//! All data types of the same packets: what is stored is metered, what is metered is in a row and in a flow, and
//! neither the number of shards nor of queues nor whether it is live or replayed makes a difference.

use crate::common;

use base::{Prng, Timestamp};
use capture::auto::SourceKind;
use common::{Ended, frame, plan, port, stop, until_offered, walk};
use flow::{EndReason, Record};
use meter::{MeterPlan, MeterReport, Sink, SinkReport, StoreSink};
use netgrain_engine::{Capture, Plan, SourcePlan};
use series::Row;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::{RawSender, Sandbox, TempDir, VethOptions};
use wire::build::{Frame, tunnel};
use wire::{EtherType, IpProtocol};

const START: Timestamp = Timestamp::from_secs_nanos(1_700_000_000, 0);

/// What a meter made.
#[derive(Clone, Debug, Default, PartialEq)]
struct Made {
    records: Vec<Record>,
    rows: Vec<Row>,
}

/// Keeps everything for the test.
#[derive(Clone, Default)]
struct Ear(Arc<Mutex<Made>>);

impl Ear {
    fn made(&self) -> Made {
        self.0.lock().expect("no panic").clone()
    }
}

impl Sink for Ear {
    fn kind(&self) -> &'static str {
        "ear"
    }

    fn record(&mut self, record: &Record) {
        self.0.lock().expect("no panic").records.push(record.clone());
    }

    fn row(&mut self, row: &Row) {
        self.0.lock().expect("no panic").rows.push(*row);
    }

    fn tick(&mut self, _: Timestamp) {}

    fn finish(&mut self) {}

    fn report(&self) -> SinkReport {
        SinkReport::default()
    }
}

fn metered(plan: Plan, shards: usize) -> Plan {
    Plan { meter: Some(MeterPlan { shards, ..MeterPlan::new(3) }), ..plan }
}

fn begin(plan: &Plan, ear: &Ear) -> Capture {
    let sink: Box<dyn Sink> = Box::new(ear.clone());
    let store = plan.store.as_ref().map(|s| s.dir.clone());
    Capture::claimed(plan, &store, |_| Ok(vec![sink])).unwrap_or_else(|e| panic!("{e}"))
}

/// Runs to the end, and checks what must hold of every run.
fn run(plan: &Plan) -> (Made, Ended) {
    let ear = Ear::default();
    let ended = common::end(begin(plan, &ear), plan);
    (agreed(&ear, &ended), ended)
}

/// The data types agree, by the report's counts and by what came out.
fn agreed(ear: &Ear, ended: &Ended) -> Made {
    let (made, meter) = (ear.made(), meter(ended));
    assert_eq!(ended.report.faults, [""; 0]);
    assert!(meter.ended);
    let in_rows: u64 = made.rows.iter().map(|row| row.total.packets).sum();
    let in_records: u64 = made.records.iter().map(Record::packets).sum();
    let stored: u64 = made.rows.iter().map(|row| row.ledger.stored).sum();
    let offered: u64 = made.rows.iter().map(|row| row.ledger.offered).sum();
    let counts = &ended.report.counts;
    assert_eq!((stored, offered), (counts.stored, counts.offered), "the ledger in the rows");
    assert_eq!(in_rows + meter.unmetered, counts.stored, "the rows");
    assert_eq!(in_records + meter.without_flow + meter.unmetered, counts.stored, "the flow records");
    for row in &made.rows {
        assert_eq!(row.ledger.residue(), 0, "{row:?}");
        assert_eq!(row.interface, 3);
    }
    made
}

fn meter(ended: &Ended) -> MeterReport {
    ended.report.meter.clone().expect("a meter")
}

fn sim(spec: &str) -> SourcePlan {
    SourcePlan::Sim { spec: spec.parse().expect("a specification"), start: Some(START), name: None }
}

fn files(paths: &[PathBuf]) -> SourcePlan {
    SourcePlan::Files { paths: paths.to_vec(), options: capture::file::Options::default(), name: None }
}

#[test]
fn every_packet_that_is_stored_is_in_a_row_and_in_a_flow() {
    let dir = TempDir::new("every_packet_that_is_stored_is_in_a_row_and_in_a_flow");
    let plan = Plan { packets: Some(50_000), ..plan(sim("imix,flows=700,rate=20kpps"), &dir.join("store")) };
    let (made, ended) = run(&metered(plan, 1));
    assert_eq!((ended.report.counts.stored, meter(&ended).unmetered), (50_000, 0));
    let seconds: Vec<u64> = made.rows.iter().map(|row| row.second - START.secs()).collect();
    assert_eq!(seconds, [0, 1, 2], "20 000 packets a second");
    assert_eq!(made.rows.iter().map(|row| row.flows_new).sum::<u64>(), 700);
    assert_eq!(made.records.len(), 700);
    assert!(made.records.iter().all(|r| r.location.is_some() && r.interface == 3));
}

/// A mirror sends a frame of one of seven conversations, or ARP, with this number.
fn mirrored(number: u32, which: usize) -> Vec<u8> {
    let mut inner = [0; 60];
    let frame = match which {
        0 => Frame::ethernet(EtherType::ARP),
        _ => Frame::udp4([10, 0, 0, which as u8], 5000, [10, 0, 1, 1], 53),
    };
    frame.fill(&mut inner);
    let gre = tunnel::gre(EtherType::ERSPAN, None, None, Some(number));
    let payload = [&gre[..], &tunnel::erspan2(9), &inner].concat();
    let mut outer = [0; 200];
    Frame::ip4([192, 0, 2, 1], [192, 0, 2, 2], IpProtocol::GRE)
        .payload(&payload)
        .write(&mut outer)
        .expect("room")
        .to_vec()
}

#[test]
fn what_a_mirror_lost_is_in_the_second_in_which_it_was_seen_however_many_shards_there_are() {
    let dir = TempDir::new("what_a_mirror_lost_is_in_the_second_in_which_it_was_seen");
    let path = dir.join("mirror.pcap");
    // Ten packets in the first second, of which two come late; ten in the next, after a gap of five hundred.
    let first = [0, 1, 4, 2, 3, 5, 6, 7, 8, 9].map(|n| (0, (u32::MAX - 4).wrapping_add(n)));
    let second = std::array::from_fn::<_, 10, _>(|n| (1, 505 + n as u32));
    let stamped = first.into_iter().chain(second).enumerate().map(|(at, (second, number))| {
        (START.after(Duration::from_secs(second) + Duration::from_millis(at as u64)), mirrored(number, at % 8))
    });
    common::write_capture(&path, stamped.collect::<Vec<_>>());
    let of = |shards: usize| {
        let store = dir.join(format!("store-{shards}"));
        run(&metered(plan(files(std::slice::from_ref(&path)), &store), shards))
    };
    let (one, ended) = of(1);
    let reported = |row: &Row| (row.tunnel_numbered, row.tunnel_missing, row.tunnel_late);
    assert_eq!(one.rows.iter().map(reported).collect::<Vec<_>>(), [(10, 2, 2), (10, 500, 0)]);
    let tunnels = meter(&ended).tunnels;
    assert_eq!((tunnels.numbered, tunnels.sessions, tunnels.missing, tunnels.late), (20, 1, 502, 2));
    assert_eq!((tunnels.duplicate, tunnels.out_of_window, tunnels.restarts, tunnels.evicted), (0, 0, 0, 0));
    // The third conversation has the numbers of the fourth, the twelfth and the last packet.
    let third = one.records.iter().find(|r| r.key.src == std::net::IpAddr::from([10, 0, 0, 3])).expect("it is there");
    assert_eq!(third.directions[0].tunnel_sequence, Some((u32::MAX - 2, 514)));
    for shards in [2, 8] {
        let (many, ended) = of(shards);
        assert!(many == one, "other records or rows with {shards} shards");
        assert_eq!(meter(&ended).tunnels, tunnels);
    }
}

#[test]
fn what_the_filter_refuses_is_in_the_ledger_of_the_rows_and_in_no_flow() {
    let dir = TempDir::new("what_the_filter_refuses_is_in_the_ledger_of_the_rows");
    let wanted = plan(sim("imix,flows=50,rate=1kpps"), &dir.join("store"));
    let wanted = Plan { filter: Some("tcp".into()), duration: None, packets: Some(500), ..wanted };
    let wanted = Plan { source: sim("imix,flows=50,rate=1kpps,duration=3s"), ..wanted };
    let (made, ended) = run(&metered(wanted, 1));
    let filtered: u64 = made.rows.iter().map(|row| row.ledger.filtered).sum();
    assert_eq!(filtered, ended.report.counts.filtered);
    assert!(filtered > 0, "the simulation has more than TCP, or none: {:?}", ended.report.counts);
}

#[test]
fn without_a_store_there_are_the_same_records_but_nowhere_to_find_their_packets() {
    let dir = TempDir::new("without_a_store_there_are_the_same_records");
    let source = || sim("imix,flows=90,rate=5kpps");
    let stored = Plan { packets: Some(9000), ..plan(source(), &dir.join("store")) };
    let bare = Plan { store: None, ..stored.clone() };
    let (with, _) = run(&metered(stored, 1));
    let (mut without, _) = run(&metered(bare, 1));
    assert!(without.records.iter().all(|r| r.location.is_none()));
    for (record, other) in without.records.iter_mut().zip(&with.records) {
        record.location = other.location;
    }
    assert!(without == with, "other records or rows");
}

#[test]
fn several_files_are_one_stream_and_flows_go_on_in_the_next() {
    let dir = TempDir::new("several_files_are_one_stream");
    let talk = |i: u64| {
        let mut bytes = [0; 100];
        let frame = Frame::udp4([10, 0, 0, 1], 5000, [10, 0, 0, 2], 53).fill(&mut bytes).to_vec();
        (START.after(Duration::from_secs(i)), frame)
    };
    let paths: Vec<PathBuf> = (0..3).map(|i| dir.join(format!("{i}.pcap"))).collect();
    for (i, path) in paths.iter().enumerate() {
        common::write_capture(path, (0..5).map(|n| talk(i as u64 * 5 + n)).collect::<Vec<_>>());
    }
    let (made, ended) = run(&metered(plan(files(&paths), &dir.join("store")), 1));
    assert_eq!((ended.report.counts.stored, ended.report.interface.as_str()), (15, "0.pcap"));
    assert_eq!(made.records.len(), 1, "one conversation of 15 seconds");
    assert_eq!((made.records[0].packets(), made.records[0].end_reason), (15, EndReason::ForcedEnd));
    assert_eq!(made.rows.len(), 15);
}

#[test]
fn a_file_of_another_link_type_behind_the_first_is_refused_by_name_and_the_first_is_kept() {
    let dir = TempDir::new("a_file_of_another_link_type_behind_the_first");
    let (first, second) = (dir.join("first.pcap"), dir.join("second.pcapng"));
    common::write_capture(
        &first,
        (0..5).map(|i| (START.after(Duration::from_secs(i)), frame(1, 60, &[]))).collect::<Vec<_>>(),
    );
    let mut out = pcap::ng::Writer::new(std::fs::File::create(&second).expect("a file"), "test", "").expect("a header");
    let radio = out.interface("radio", 127).expect("an interface");
    out.packet(radio, START, 60, &frame(2, 60, &[]), pcap::ng::PacketOptions::default()).expect("a packet");
    out.finish().expect("the end");
    let (made, ended) = run(&metered(plan(files(&[first, second.clone()]), &dir.join("store")), 1));
    let said = ended.outcome.expect_err("refused").to_string();
    assert!(said.contains("second.pcapng") && said.contains("link type 127"), "{said}");
    assert_eq!(made.rows.iter().map(|row| row.total.packets).sum::<u64>(), 5);
}

/// Two threads of one port, each with its own ring: the conversations are whole, whichever queue a packet came by.
#[test]
fn the_queues_of_a_port_come_together_in_one_order_of_time() {
    let test = "the_queues_of_a_port_come_together_in_one_order_of_time";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let dir = TempDir::new(test);
    let (a, b) = sandbox.veth_with("qa", "qb", VethOptions::default());
    let wanted = netgrain_engine::InterfacePlan { queues: Some(2), ..port(&b.name, SourceKind::Tpacket) };
    let wanted = metered(plan(SourcePlan::Interface(wanted), &dir.join("store")), 2);
    let ear = Ear::default();
    let capture = begin(&wanted, &ear);
    let sent = conversations(200, 4000);
    for some in sent.chunks(500) {
        RawSender::new(&a).send(some);
    }
    until_offered(&capture, sent.len() as u64);
    let ended = stop(capture, &wanted);
    let made = agreed(&ear, &ended);
    assert_eq!(meter(&ended).unmetered, 0);
    assert_eq!(made.records.len(), 200, "one record for both directions");
    for record in &made.records {
        assert_eq!((record.directions[0].packets, record.directions[1].packets), (10, 10), "{:?}", record.key);
    }
    let queues = ended.report.queues.iter().filter(|q| q.counts.stored > 0).count();
    if queues < 2 {
        testkit::skip(test, "the kernel gave everything to one queue, so nothing had to be merged");
    }
}

/// Packets of so many conversations in turn, each direction in turn.
fn conversations(many: usize, packets: usize) -> Vec<Vec<u8>> {
    let one = |i: usize| {
        let (flow, back) = (i % many, i / many % 2 == 1);
        let (client, server) = ([10, 1, (flow / 250) as u8, (flow % 250) as u8], [10, 2, 0, 1]);
        let mut bytes = [0; 120];
        let frame = if back {
            Frame::udp4(server, 53, client, 4000 + flow as u16)
        } else {
            Frame::udp4(client, 4000 + flow as u16, server, 53)
        };
        frame.fill(&mut bytes).to_vec()
    };
    (0..packets).map(one).collect()
}

#[test]
fn a_replay_of_what_was_recorded_makes_the_same_records_and_rows_as_the_recording_did() {
    let test = "a_replay_of_what_was_recorded_makes_the_same_records_and_rows";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let dir = TempDir::new(test);
    let (a, b) = sandbox.veth("ra", "rb");
    let wanted = metered(plan(SourcePlan::Interface(port(&b.name, SourceKind::AfXdp)), &dir.join("live")), 1);
    let ear = Ear::default();
    let capture = begin(&wanted, &ear);
    let sent = conversations(30, 900);
    for some in sent.chunks(300) {
        RawSender::new(&a).send(some);
        std::thread::sleep(Duration::from_millis(700));
    }
    until_offered(&capture, sent.len() as u64);
    let ended = stop(capture, &wanted);
    let live = agreed(&ear, &ended);
    let recorded: Vec<PathBuf> = ended.files.iter().map(|f| f.path.clone()).collect();
    let (again, _) = run(&metered(plan(files(&recorded), &dir.join("again")), 2));
    assert!(live.records == again.records, "other records");
    // Silence after the last packet, and what the ledger says of how packets came, only the recording knows.
    let bare = |made: &Made| -> Vec<Row> {
        let rows = made.rows.iter().filter(|row| row.total.packets > 0);
        rows.map(|row| Row { ledger: base::Tally::default(), ..*row }).collect()
    };
    assert_eq!(bare(&live), bare(&again));
}

#[test]
fn real_captures_give_the_same_records_and_rows_with_1_2_and_8_shards() {
    let test = "real_captures_give_the_same_records_and_rows_with_1_2_and_8_shards";
    let Some(traces) = testkit::traces(test) else { return };
    let dir = TempDir::new(test);
    let inputs: Vec<_> = walk(&traces).into_iter().filter(|p| p.to_string_lossy().contains(".pcap")).collect();
    let (mut flows, mut packets) = (0, 0);
    for (i, input) in inputs.iter().enumerate() {
        let store = |n: usize| dir.join(format!("{i}-{n}"));
        let of = |shards: usize| run(&metered(plan(files(std::slice::from_ref(input)), &store(shards)), shards));
        let (one, ended) = of(1);
        (flows, packets) = (flows + one.records.len(), packets + ended.report.counts.stored);
        for shards in [2, 8] {
            let (many, _) = of(shards);
            assert!(many.records == one.records, "{}: other records with {shards} shards", input.display());
            assert!(many.rows == one.rows, "{}: other rows with {shards} shards", input.display());
        }
    }
    eprintln!("{} captures, {packets} packets, {flows} flow records", inputs.len());
    assert!(flows > 1000, "the captures have conversations");
}

#[test]
fn what_is_stored_beside_the_packets_is_what_was_made() {
    let dir = TempDir::new("what_is_stored_beside_the_packets_is_what_was_made");
    let store = dir.join("store");
    let wanted = Plan { packets: Some(30_000), ..plan(sim("imix,flows=300,rate=1kpps"), &store) };
    let wanted = metered(wanted, 1);
    let ear = Ear::default();
    let egresses = |label: &str| -> Result<Vec<Box<dyn Sink>>, _> {
        Ok(vec![Box::new(StoreSink::new(&store, label, true)?), Box::new(ear.clone())])
    };
    let mut capture = Capture::claimed(&wanted, &Some(store.clone()), egresses).unwrap_or_else(|e| panic!("{e}"));
    capture.wait().expect("a good end");
    let report = capture.report();
    let kept = &report.meter.as_ref().expect("a meter").sinks[0];
    let made = ear.made();
    assert_eq!((kept.records, kept.rows, kept.lost), (made.records.len() as u64, made.rows.len() as u64, 0));
    let query = columns::Query::new(&store);
    let mut records: Vec<Record> = columns::flows(&query).expect("an answer").collect();
    let rows: Vec<Row> = columns::series(&query).expect("an answer").collect();
    assert_eq!(rows, made.rows);
    let mut expected = made.records;
    let order = |r: &Record| (r.id, r.record_index);
    records.sort_by_key(order);
    expected.sort_by_key(order);
    assert!(records == expected, "other records come back");
}

#[test]
fn a_capture_of_days_leaves_files_by_its_days_and_not_by_its_hours_or_turns_however_often_it_is_replayed() {
    const DAY: u64 = 86_400;
    let dir = TempDir::new("a_capture_of_days_leaves_files_by_its_days");
    let begins = Timestamp::from_secs_nanos(START.secs() / DAY * DAY, 0);
    // A packet each hour of six days; and each second, by turns in two days.
    let hours: Vec<u64> = (0..144).map(|hour| hour * 3600 + 60).collect();
    let turns: Vec<u64> = (0..300).map(|i| i % 2 * 3 * DAY + 60 + i).collect();
    for (name, seconds, days) in [("hours.pcap", hours, 6), ("turns.pcap", turns, 2)] {
        let (path, store) = (dir.join(name), dir.join(name.strip_suffix(".pcap").unwrap_or(name)));
        let frames = conversations(seconds.len(), seconds.len()).into_iter();
        let packets =
            seconds.iter().zip(frames).map(|(second, frame)| (begins.after(Duration::from_secs(*second)), frame));
        common::write_capture(&path, packets.collect::<Vec<_>>());
        let wanted = metered(plan(files(std::slice::from_ref(&path)), &store), 1);
        let query = columns::Query::new(&store);
        for time in 1..=3 {
            let egresses = |label: &str| -> Result<Vec<Box<dyn Sink>>, _> {
                Ok(vec![Box::new(StoreSink::new(&store, label, true)?)])
            };
            let mut capture =
                Capture::claimed(&wanted, &Some(store.clone()), egresses).unwrap_or_else(|e| panic!("{e}"));
            capture.wait().expect("a good end");
            for kind in [columns::DataFileKind::Flows, columns::DataFileKind::Series] {
                let count = columns::files(&store, name, kind).expect("a listing").len();
                // The day that is not over when the second one begins may have another.
                assert!(count <= time * (days + 1), "{name}, {kind:?}: {count} files after {time} times");
            }
            let packets: u64 = columns::flows(&query).expect("an answer").map(|record| record.packets()).sum();
            let rows: u64 = columns::series(&query).expect("an answer").map(|row| row.total.packets).sum();
            assert_eq!((packets, rows), ((time * seconds.len()) as u64, (time * seconds.len()) as u64), "{name}");
        }
    }
}

/// Two bursts with two hours between them, of which nobody knows whether anything was watched.
#[test]
fn the_last_second_before_a_gap_says_how_many_flows_there_were() {
    let dir = TempDir::new("the_last_second_before_a_gap");
    let path = dir.join("gap.pcap");
    let later = Duration::from_secs(7200);
    let burst = |after: Duration| {
        let frames = conversations(5, 50).into_iter().enumerate();
        frames.map(move |(i, frame)| (START.after(after + Duration::from_millis(i as u64)), frame))
    };
    common::write_capture(&path, burst(Duration::ZERO).chain(burst(later)).collect::<Vec<_>>());
    let (made, _) = run(&metered(plan(files(std::slice::from_ref(&path)), &dir.join("store")), 1));
    let reported: Vec<_> = made
        .rows
        .iter()
        .map(|row| (row.second - START.secs(), row.flows_active, row.flows_new, row.flows_ended))
        .collect();
    assert_eq!(reported, [(0, 5, 5, 0), (7200, 5, 5, 5)]);
}

/// Holds its meter up, as a disk that stalls would, from the first second on until it is let go.
struct Slow {
    ear: Ear,
    held: Arc<AtomicBool>,
    letting_go: Arc<AtomicBool>,
}

impl Sink for Slow {
    fn kind(&self) -> &'static str {
        "slow"
    }

    fn record(&mut self, record: &Record) {
        self.ear.record(record);
    }

    fn row(&mut self, row: &Row) {
        self.ear.row(row);
        self.held.store(true, Ordering::SeqCst);
        while !self.letting_go.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn tick(&mut self, _: Timestamp) {}

    fn finish(&mut self) {}

    fn report(&self) -> SinkReport {
        SinkReport::default()
    }
}

/// A ring of 64 MiB holds 66 000 such packets, and 10 000 come each second. The meter is held up until two thirds of it
/// are behind, and then has to let packets go; the recorder, which reads the same ring, stores every one.
#[test]
fn a_meter_that_is_held_up_lets_packets_go_and_counts_them_and_every_packet_is_stored() {
    let dir = TempDir::new("a_meter_that_is_held_up");
    let wanted = Plan { ring: Some(64 << 20), ..plan(common::sim("1000,flows=100,rate=10kpps"), &dir.join("store")) };
    let wanted = metered(wanted, 2);
    let (ear, held, letting_go) = (Ear::default(), Arc::default(), Arc::default());
    let slow = Slow { ear: ear.clone(), held: Arc::clone(&held), letting_go: Arc::clone(&letting_go) };
    let store = wanted.store.as_ref().map(|s| s.dir.clone());
    let capture = Capture::claimed(&wanted, &store, |_| Ok(vec![Box::new(slow)])).unwrap_or_else(|e| panic!("{e}"));
    common::until("the first row", || held.load(Ordering::SeqCst));
    let since = capture.report().counts.offered;
    common::until("two thirds of a ring", || capture.report().counts.offered > since + 42_000);
    letting_go.store(true, Ordering::SeqCst);
    let let_go_at = capture.report().counts.offered;
    let metered = |capture: &Capture| capture.report().meter.map_or(0, |meter| meter.packets);
    common::until("packets that came later are metered", || {
        capture.report().counts.offered > let_go_at + 20_000 && metered(&capture) > 10_000
    });
    let ended = stop(capture, &wanted);
    let (made, meter) = (agreed(&ear, &ended), meter(&ended));
    let counts = &ended.report.counts;
    assert_eq!((counts.stored, counts.lost_total), (counts.offered, 0), "packets come first");
    assert_eq!(ended.packets().count() as u64, counts.offered, "and they are in the files");
    assert!(meter.unmetered > 10_000, "a third of a ring and more: {}", meter.unmetered);
    assert!(meter.packets > 10_000, "what came before and after is metered: {}", meter.packets);
    assert!(!ended.report.is_healthy(), "it is said");
    // The rows have the whole ledger, although not every packet is in their sums; the records know that something is
    // missing.
    let short = made.rows.iter().filter(|row| row.total.packets < row.ledger.stored).count();
    assert!(short > 0 && made.records.iter().any(|record| record.lost > 0), "{short} rows");
}

/// What is asked of a meter in disorder is that nothing is lost: packets of random moments over an hour.
#[test]
fn time_that_goes_back_and_forth_loses_no_packet_of_any_data_type() {
    let test = "time_that_goes_back_and_forth_loses_no_packet_of_any_data_type";
    let (dir, mut random) = (TempDir::new(test), Prng::new(testkit::seed(test)));
    let frames = conversations(40, 600);
    let path = dir.join("back.pcap");
    let at = |random: &mut Prng| START.after(Duration::from_millis(random.below(3_600_000)));
    common::write_capture(&path, frames.into_iter().map(|f| (at(&mut random), f)).collect::<Vec<_>>());
    let one = run(&metered(plan(files(std::slice::from_ref(&path)), &dir.join("1")), 1)).0;
    let many = run(&metered(plan(files(std::slice::from_ref(&path)), &dir.join("8")), 8)).0;
    assert!(one == many, "other records or rows with 8 shards");
}
