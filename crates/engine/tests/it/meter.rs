//! Tests that all data types agree about the same packets: every stored packet is metered, and every metered packet is
//! in a series row and in a flow record. Neither the number of shards or queues nor live or replayed capture changes
//! the result.

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

/// The flow records and series rows of a meter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordsAndRows {
    pub records: Vec<Record>,
    pub rows: Vec<Row>,
}

/// A sink that collects all flow records and series rows for the test.
#[derive(Clone, Default)]
struct CollectingSink(Arc<Mutex<RecordsAndRows>>);

impl CollectingSink {
    fn collected(&self) -> RecordsAndRows {
        self.0.lock().expect("no panic").clone()
    }
}

impl Sink for CollectingSink {
    fn kind(&self) -> &'static str {
        "test"
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

pub fn metered(plan: Plan, shards: usize) -> Plan {
    Plan { meter: Some(MeterPlan { shards, ..MeterPlan::new(3) }), ..plan }
}

fn start_with(plan: &Plan, collector: &CollectingSink) -> Capture {
    let sink: Box<dyn Sink> = Box::new(collector.clone());
    let store = plan.store.as_ref().map(|s| s.dir.clone());
    Capture::claimed(plan, &store, |_| Ok(vec![sink])).unwrap_or_else(|e| panic!("{e}"))
}

/// Runs a plan to its end, and asserts that packets, flow records and series rows agree.
pub fn run(plan: &Plan) -> (RecordsAndRows, Ended) {
    let collector = CollectingSink::default();
    let ended = common::end(start_with(plan, &collector), plan);
    (assert_data_types_agree(&collector, &ended), ended)
}

/// Asserts that packets, flow records and series rows agree, by the counts of the report and by the flow records and
/// series rows. Returns the flow records and series rows.
fn assert_data_types_agree(collector: &CollectingSink, ended: &Ended) -> RecordsAndRows {
    let (data, meter) = (collector.collected(), meter(ended));
    assert_eq!(ended.report.faults, [""; 0]);
    assert!(meter.ended);
    let in_rows: u64 = data.rows.iter().map(|row| row.total.packets).sum();
    let in_records: u64 = data.records.iter().map(Record::packets).sum();
    let stored: u64 = data.rows.iter().map(|row| row.ledger.stored).sum();
    let offered: u64 = data.rows.iter().map(|row| row.ledger.offered).sum();
    let counts = &ended.report.counts;
    assert_eq!((stored, offered), (counts.stored, counts.offered), "sums of the ledger terms in the rows");
    let marked: u64 = data.rows.iter().map(|row| row.duplicate.packets).sum();
    let apart = meter.unmetered + marked;
    assert_eq!(in_rows + apart, counts.stored, "packets in the rows");
    assert_eq!(in_records + meter.without_flow + apart, counts.stored, "packets in the flow records");
    for row in &data.rows {
        assert_eq!(row.ledger.residue(), 0, "{row:?}");
        let methods: u64 = row.timestamps.methods.iter().sum();
        assert_eq!(methods, row.ledger.stored, "each stored packet has one timestamp method: {row:?}");
        assert_eq!(row.interface, 3);
    }
    data
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
fn every_stored_packet_is_in_a_row_and_in_a_flow_record() {
    let dir = TempDir::new("every_stored_packet_is_in_a_row_and_in_a_flow_record");
    let plan = Plan { packets: Some(50_000), ..plan(sim("imix,flows=700,rate=20kpps"), &dir.join("store")) };
    let (data, ended) = run(&metered(plan, 1));
    assert_eq!((ended.report.counts.stored, meter(&ended).unmetered), (50_000, 0));
    let seconds: Vec<u64> = data.rows.iter().map(|row| row.second - START.secs()).collect();
    assert_eq!(seconds, [0, 1, 2], "20 000 packets per second");
    assert_eq!(data.rows.iter().map(|row| row.flows_new).sum::<u64>(), 700);
    assert_eq!(data.records.len(), 700);
    assert!(data.records.iter().all(|r| r.location.is_some() && r.interface == 3));
}

/// Returns an ERSPAN frame with this sequence number. It contains a packet of one of seven flows, or ARP.
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
        .expect("a buffer of sufficient size")
        .to_vec()
}

#[test]
fn missing_tunnel_sequence_numbers_are_in_their_second_for_any_shards() {
    let dir = TempDir::new("missing_tunnel_sequence_numbers");
    let path = dir.join("mirror.pcap");
    // In the first second ten packets arrive, two of them out of order. In the next second ten packets arrive, whose
    // sequence numbers begin 500 numbers later.
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
    // The flow of 10.0.0.3 contains the fourth, the twelfth and the last packet.
    let third = one.records.iter().find(|r| r.key.src == std::net::IpAddr::from([10, 0, 0, 3])).expect("the record");
    assert_eq!(third.directions[0].tunnel_sequence, Some((u32::MAX - 2, 514)));
    for shards in [2, 8] {
        let (many, ended) = of(shards);
        assert!(many == one, "records or rows differ with {shards} shards");
        assert_eq!(meter(&ended).tunnels, tunnels);
    }
}

#[test]
fn filtered_packets_are_in_the_ledger_of_the_rows_and_in_no_flow() {
    let dir = TempDir::new("filtered_packets_are_in_the_ledger");
    let capture_plan = plan(sim("imix,flows=50,rate=1kpps"), &dir.join("store"));
    let capture_plan = Plan { filter: Some("tcp".into()), duration: None, packets: Some(500), ..capture_plan };
    let capture_plan = Plan { source: sim("imix,flows=50,rate=1kpps,duration=3s"), ..capture_plan };
    let (data, ended) = run(&metered(capture_plan, 1));
    let filtered: u64 = data.rows.iter().map(|row| row.ledger.filtered).sum();
    assert_eq!(filtered, ended.report.counts.filtered);
    assert!(filtered > 0, "the simulation must contain packets other than TCP: {:?}", ended.report.counts);
}

#[test]
fn without_a_store_records_are_equal_but_have_no_packet_location() {
    let dir = TempDir::new("without_a_store_records_are_equal");
    let source = || sim("imix,flows=90,rate=5kpps");
    let stored = Plan { packets: Some(9000), ..plan(source(), &dir.join("store")) };
    let without_store = Plan { store: None, ..stored.clone() };
    let (with, _) = run(&metered(stored, 1));
    let (mut without, _) = run(&metered(without_store, 1));
    assert!(without.records.iter().all(|r| r.location.is_none()));
    for (record, other) in without.records.iter_mut().zip(&with.records) {
        record.location = other.location;
    }
    assert!(without == with, "records or rows differ without a store");
}

#[test]
fn flows_continue_over_several_files_as_one_stream() {
    let dir = TempDir::new("several_files_are_one_stream");
    let packet = |i: u64| {
        let mut bytes = [0; 100];
        let frame = Frame::udp4([10, 0, 0, 1], 5000, [10, 0, 0, 2], 53).fill(&mut bytes).to_vec();
        (START.after(Duration::from_secs(i)), frame)
    };
    let paths: Vec<PathBuf> = (0..3).map(|i| dir.join(format!("{i}.pcap"))).collect();
    for (i, path) in paths.iter().enumerate() {
        common::write_capture(path, (0..5).map(|n| packet(i as u64 * 5 + n)).collect::<Vec<_>>());
    }
    let (data, ended) = run(&metered(plan(files(&paths), &dir.join("store")), 1));
    assert_eq!((ended.report.counts.stored, ended.report.interface.as_str()), (15, "0.pcap"));
    assert_eq!(data.records.len(), 1, "one flow of 15 seconds");
    assert_eq!((data.records[0].packets(), data.records[0].end_reason), (15, EndReason::ForcedEnd));
    assert_eq!(data.rows.len(), 15);
}

#[test]
fn a_second_file_of_another_link_type_is_rejected_and_the_first_is_stored() {
    let dir = TempDir::new("a_second_file_of_another_link_type");
    let (first, second) = (dir.join("first.pcap"), dir.join("second.pcapng"));
    common::write_capture(
        &first,
        (0..5).map(|i| (START.after(Duration::from_secs(i)), frame(1, 60, &[]))).collect::<Vec<_>>(),
    );
    let mut out = pcap::ng::Writer::new(std::fs::File::create(&second).expect("a file"), "test", "").expect("a header");
    let radio = out.interface("radio", 127).expect("an interface");
    out.packet(radio, START, 60, &frame(2, 60, &[]), pcap::ng::PacketOptions::default()).expect("a packet");
    out.finish().expect("the end");
    let (data, ended) = run(&metered(plan(files(&[first, second.clone()]), &dir.join("store")), 1));
    let error = ended.outcome.expect_err("an error").to_string();
    assert!(error.contains("second.pcapng") && error.contains("link type 127"), "{error}");
    assert_eq!(data.rows.iter().map(|row| row.total.packets).sum::<u64>(), 5);
}

/// One interface has two queues, each with its own ring. Every flow has packets on both queues.
#[test]
fn the_packets_of_two_queues_are_metered_in_order_of_time() {
    let test = "the_packets_of_two_queues_are_metered_in_order_of_time";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let dir = TempDir::new(test);
    let (a, b) = sandbox.veth_with("qa", "qb", VethOptions::default());
    let capture_plan = netgrain_engine::InterfacePlan { queues: Some(2), ..port(&b.name, SourceKind::Tpacket) };
    let capture_plan = metered(plan(SourcePlan::Interface(capture_plan), &dir.join("store")), 2);
    let collector = CollectingSink::default();
    let capture = start_with(&capture_plan, &collector);
    let sent = packets_of_flows(200, 4000);
    for some in sent.chunks(500) {
        RawSender::new(&a).send(some);
    }
    until_offered(&capture, sent.len() as u64);
    let ended = stop(capture, &capture_plan);
    let data = assert_data_types_agree(&collector, &ended);
    assert_eq!(meter(&ended).unmetered, 0);
    assert_eq!(data.records.len(), 200, "one record for both directions");
    for record in &data.records {
        assert_eq!((record.directions[0].packets, record.directions[1].packets), (10, 10), "{:?}", record.key);
    }
    let queues = ended.report.queues.iter().filter(|q| q.counts.stored > 0).count();
    if queues < 2 {
        testkit::skip(test, "the kernel passed all packets to one queue, so no packets were merged");
    }
}

/// Returns packets of `flows` flows in rotation, with alternating directions.
fn packets_of_flows(flows: usize, packets: usize) -> Vec<Vec<u8>> {
    let one = |i: usize| {
        let (flow, back) = (i % flows, i / flows % 2 == 1);
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
fn a_replay_makes_the_records_and_rows_of_the_recording() {
    let test = "a_replay_makes_the_records_and_rows_of_the_recording";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let dir = TempDir::new(test);
    let (a, b) = sandbox.veth("ra", "rb");
    let capture_plan = metered(plan(SourcePlan::Interface(port(&b.name, SourceKind::AfXdp)), &dir.join("live")), 1);
    let collector = CollectingSink::default();
    let capture = start_with(&capture_plan, &collector);
    let sent = packets_of_flows(30, 900);
    for some in sent.chunks(300) {
        RawSender::new(&a).send(some);
        std::thread::sleep(Duration::from_millis(700));
    }
    until_offered(&capture, sent.len() as u64);
    let ended = stop(capture, &capture_plan);
    let live = assert_data_types_agree(&collector, &ended);
    let of_packets = live.rows.iter().filter(|row| row.total.packets > 0);
    for row in of_packets.clone() {
        let times = &row.timestamps;
        assert_eq!(times.methods[base::TimestampMethod::Poll as usize], row.ledger.stored);
        assert_eq!(times.synchronised + times.unsynchronised, 1, "the state of the clock is known: {row:?}");
        assert!(times.clock_rate.abs_diff(1_000_000_000) <= 500_000, "{row:?}");
    }
    assert!(of_packets.count() > 1);
    let recorded: Vec<PathBuf> = ended.files.iter().map(|f| f.path.clone()).collect();
    let (replayed, _) = run(&metered(plan(files(&recorded), &dir.join("replayed")), 2));
    assert!(live.records == replayed.records, "the replay makes other records");
    // Only the recording has series rows for the seconds without packets after the last packet, and only its rows
    // contain the ledger of the capture and the state of the clock.
    let timestamps = series::TimestampCounters::default();
    let comparable = |data: &RecordsAndRows| -> Vec<Row> {
        let rows = data.rows.iter().filter(|row| row.total.packets > 0);
        rows.map(|row| Row { ledger: base::Tally::default(), timestamps, ..*row }).collect()
    };
    assert_eq!(comparable(&live), comparable(&replayed));
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
            assert!(many.records == one.records, "{}: records differ with {shards} shards", input.display());
            assert!(many.rows == one.rows, "{}: rows differ with {shards} shards", input.display());
        }
    }
    eprintln!("{} captures, {packets} packets, {flows} flow records", inputs.len());
    assert!(flows > 1000, "the captures must contain more than 1000 flows");
}

#[test]
fn the_store_has_the_records_and_rows_of_the_meter() {
    let dir = TempDir::new("the_store_has_the_records_and_rows_of_the_meter");
    let store = dir.join("store");
    let capture_plan = Plan { packets: Some(30_000), ..plan(sim("imix,flows=300,rate=1kpps"), &store) };
    let capture_plan = metered(capture_plan, 1);
    let collector = CollectingSink::default();
    let sinks = |label: &str| -> Result<Vec<Box<dyn Sink>>, _> {
        Ok(vec![Box::new(StoreSink::new(&store, label, true)?), Box::new(collector.clone())])
    };
    let mut capture = Capture::claimed(&capture_plan, &Some(store.clone()), sinks).unwrap_or_else(|e| panic!("{e}"));
    capture.wait().expect("a run without an error");
    let report = capture.report();
    let stored = &report.meter.as_ref().expect("a meter").sinks[0];
    let data = collector.collected();
    assert_eq!((stored.records, stored.rows, stored.lost), (data.records.len() as u64, data.rows.len() as u64, 0));
    let query = columns::Query::new(&store);
    let mut records: Vec<Record> = columns::flows(&query).expect("a result").collect();
    let rows: Vec<Row> = columns::series(&query).expect("a result").collect();
    assert_eq!(rows, data.rows);
    let mut expected = data.records;
    let order = |r: &Record| (r.id, r.record_index);
    records.sort_by_key(order);
    expected.sort_by_key(order);
    assert!(records == expected, "the store contains other records than the meter made");
}

#[test]
fn the_number_of_files_depends_on_the_days_of_a_capture_not_on_replays() {
    const DAY: u64 = 86_400;
    let dir = TempDir::new("the_number_of_files_depends_on_the_days");
    let midnight = Timestamp::from_secs_nanos(START.secs() / DAY * DAY, 0);
    // One file has one packet per hour over six days. The other file has one packet per second, alternating between two
    // days.
    let hours: Vec<u64> = (0..144).map(|hour| hour * 3600 + 60).collect();
    let alternating: Vec<u64> = (0..300).map(|i| i % 2 * 3 * DAY + 60 + i).collect();
    for (name, seconds, days) in [("hours.pcap", hours, 6), ("alternating.pcap", alternating, 2)] {
        let (path, store) = (dir.join(name), dir.join(name.strip_suffix(".pcap").unwrap_or(name)));
        let frames = packets_of_flows(seconds.len(), seconds.len()).into_iter();
        let packets =
            seconds.iter().zip(frames).map(|(second, frame)| (midnight.after(Duration::from_secs(*second)), frame));
        common::write_capture(&path, packets.collect::<Vec<_>>());
        let capture_plan = metered(plan(files(std::slice::from_ref(&path)), &store), 1);
        let query = columns::Query::new(&store);
        for time in 1..=3 {
            let sinks = |label: &str| -> Result<Vec<Box<dyn Sink>>, _> {
                Ok(vec![Box::new(StoreSink::new(&store, label, true)?)])
            };
            let mut capture =
                Capture::claimed(&capture_plan, &Some(store.clone()), sinks).unwrap_or_else(|e| panic!("{e}"));
            capture.wait().expect("a run without an error");
            for kind in [columns::DataFileKind::Flows, columns::DataFileKind::Series] {
                let count = columns::files(&store, name, kind).expect("a listing").len();
                // A day may have one more file if its file is sealed before the day is complete.
                assert!(count <= time * (days + 1), "{name}, {kind:?}: {count} files after {time} replays");
            }
            let packets: u64 = columns::flows(&query).expect("a result").map(|record| record.packets()).sum();
            let rows: u64 = columns::series(&query).expect("a result").map(|row| row.total.packets).sum();
            assert_eq!((packets, rows), ((time * seconds.len()) as u64, (time * seconds.len()) as u64), "{name}");
        }
    }
}

/// The capture has two bursts two hours apart. The seconds between the bursts have no series rows.
#[test]
fn the_row_before_a_gap_contains_the_number_of_active_flows() {
    let dir = TempDir::new("the_last_second_before_a_gap");
    let path = dir.join("gap.pcap");
    let later = Duration::from_secs(7200);
    let burst = |after: Duration| {
        let frames = packets_of_flows(5, 50).into_iter().enumerate();
        frames.map(move |(i, frame)| (START.after(after + Duration::from_millis(i as u64)), frame))
    };
    common::write_capture(&path, burst(Duration::ZERO).chain(burst(later)).collect::<Vec<_>>());
    let (data, _) = run(&metered(plan(files(std::slice::from_ref(&path)), &dir.join("store")), 1));
    let reported: Vec<_> = data
        .rows
        .iter()
        .map(|row| (row.second - START.secs(), row.flows_active, row.flows_new, row.flows_ended))
        .collect();
    assert_eq!(reported, [(0, 5, 5, 0), (7200, 5, 5, 5)]);
}

/// A sink that blocks its meter from the first series row on until the test releases it, like a stalled disk.
struct Slow {
    collector: CollectingSink,
    is_blocking: Arc<AtomicBool>,
    released: Arc<AtomicBool>,
}

impl Sink for Slow {
    fn kind(&self) -> &'static str {
        "slow"
    }

    fn record(&mut self, record: &Record) {
        self.collector.record(record);
    }

    fn row(&mut self, row: &Row) {
        self.collector.row(row);
        self.is_blocking.store(true, Ordering::SeqCst);
        while !self.released.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn tick(&mut self, _: Timestamp) {}

    fn finish(&mut self) {}

    fn report(&self) -> SinkReport {
        SinkReport::default()
    }
}

/// A ring of 64 MiB has space for 66 000 of these packets, and 10 000 arrive per second. The meter is blocked until it
/// is two thirds of the ring behind, and must then shed load. The recorder, which reads the same ring, stores every
/// packet.
#[test]
fn a_blocked_meter_skips_and_counts_packets_that_are_all_stored() {
    let dir = TempDir::new("a_blocked_meter");
    let capture_plan =
        Plan { ring: Some(64 << 20), ..plan(common::sim("1000,flows=100,rate=10kpps"), &dir.join("store")) };
    let capture_plan = metered(capture_plan, 2);
    let (collector, is_blocking, released) = (CollectingSink::default(), Arc::default(), Arc::default());
    let slow =
        Slow { collector: collector.clone(), is_blocking: Arc::clone(&is_blocking), released: Arc::clone(&released) };
    let store = capture_plan.store.as_ref().map(|s| s.dir.clone());
    let capture =
        Capture::claimed(&capture_plan, &store, |_| Ok(vec![Box::new(slow)])).unwrap_or_else(|e| panic!("{e}"));
    common::until("the first row", || is_blocking.load(Ordering::SeqCst));
    let since = capture.report().counts.offered;
    common::until("two thirds of a ring", || capture.report().counts.offered > since + 42_000);
    released.store(true, Ordering::SeqCst);
    let released_at = capture.report().counts.offered;
    let metered = |capture: &Capture| capture.report().meter.map_or(0, |meter| meter.packets);
    common::until("later packets are metered", || {
        capture.report().counts.offered > released_at + 20_000 && metered(&capture) > 10_000
    });
    let ended = stop(capture, &capture_plan);
    let (data, meter) = (assert_data_types_agree(&collector, &ended), meter(&ended));
    let counts = &ended.report.counts;
    assert_eq!((counts.stored, counts.lost_total), (counts.offered, 0), "no packet is lost");
    assert_eq!(ended.packets().count() as u64, counts.offered, "every packet is in the files");
    assert!(meter.unmetered > 10_000, "at least a part of the ring must be skipped; packets: {}", meter.unmetered);
    assert!(meter.packets > 10_000, "packets before and after the block must be metered; packets: {}", meter.packets);
    assert!(!ended.report.is_healthy(), "a report with unmetered packets is unhealthy");
    // The ledger in the series rows counts all packets, although the packet counts of the rows lack the skipped
    // packets. The flow records contain the number of skipped packets.
    let short = data.rows.iter().filter(|row| row.total.packets < row.ledger.stored).count();
    assert!(short > 0 && data.records.iter().any(|record| record.lost > 0), "{short} rows");
}

/// Packets with random timestamps within an hour are all metered.
#[test]
fn out_of_order_timestamps_lose_no_packet_in_any_data_type() {
    let test = "out_of_order_timestamps_lose_no_packet_in_any_data_type";
    let (dir, mut random) = (TempDir::new(test), Prng::new(testkit::seed(test)));
    let frames = packets_of_flows(40, 600);
    let path = dir.join("back.pcap");
    let at = |random: &mut Prng| START.after(Duration::from_millis(random.below(3_600_000)));
    common::write_capture(&path, frames.into_iter().map(|f| (at(&mut random), f)).collect::<Vec<_>>());
    let one = run(&metered(plan(files(std::slice::from_ref(&path)), &dir.join("1")), 1)).0;
    let many = run(&metered(plan(files(std::slice::from_ref(&path)), &dir.join("8")), 8)).0;
    assert!(one == many, "records or rows differ with 8 shards");
}
