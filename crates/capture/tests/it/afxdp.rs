//! AF_XDP on veth pairs in a network namespace of the test. A test that cannot run reports that it is skipped.

use base::{Cause, Note, Prng, Timestamp};
use netgrain_capture as capture;

use capture::afxdp::{
    AfXdp, AfXdpConfig, AttachMode, BusyPoll, DispatcherError, TransmitConfig, Transmitter, XdpMode, XdpTimestamps,
    open,
};
use capture::{Counts, Polled, Source, SourceError, TimestampSource};
use std::time::{Duration, Instant};
use testkit::{Port, RawReader, RawSender, Sandbox, VethOptions};

const QUIET: Duration = Duration::from_millis(50);
/// The time after which a wait has failed; long enough for a loaded machine.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// A veth pair with carrier. Before the kernel has detected the carrier, it drops frames that are sent on an interface.
fn veth(sandbox: &Sandbox, options: VethOptions) -> (Port, Port) {
    let (a, b) = sandbox.veth_with("a", "b", options);
    wait_for_carrier(sandbox, &[&a, &b]);
    (a, b)
}

fn wait_for_carrier(sandbox: &Sandbox, ports: &[&Port]) {
    const OPERATIONAL: u8 = 6;
    let (mut netlink, until) = (sandbox.netlink(), Instant::now() + WAIT_MAX);
    while !ports.iter().all(|p| netlink.link_by_index(p.index).expect("port").operstate == OPERATIONAL) {
        assert!(Instant::now() < until, "the interfaces come up");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Rings small enough to be filled by a test, and UMEM small enough for any machine.
fn small(port: &Port) -> AfXdpConfig {
    AfXdpConfig { receive_ring: 1024, chunks: 2048, ..AfXdpConfig::new(&port.name) }
}

fn open_one(config: &AfXdpConfig) -> AfXdp {
    let mut sources = open(config).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(sources.len(), 1);
    sources.pop().expect("one source")
}

/// A frame of pseudorandom bytes that contains its number.
fn frame(number: u64, len: usize) -> Vec<u8> {
    let mut random = Prng::new(number);
    let mut bytes: Vec<u8> = (0..len).map(|_| random.next_u64() as u8).collect();
    // Unicast, locally administered, not the address of any host; the local experimental EtherType.
    bytes[0] = 0x02;
    bytes[6] = 0x02;
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    bytes[14..22].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn number_of(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes[14..22].try_into().expect("eight bytes"))
}

/// Polls until `count` frames have arrived or [`WAIT_MAX`] has passed.
fn collect(source: &mut AfXdp, count: usize) -> Vec<Vec<u8>> {
    let until = Instant::now() + WAIT_MAX;
    let mut frames = Vec::new();
    while frames.len() < count && Instant::now() < until {
        source.poll(64, QUIET, |f| frames.push(f.bytes.to_vec())).expect("poll");
    }
    if frames.len() < count {
        eprintln!("{} of {count} frames arrived; {:?}", frames.len(), source.counts());
    }
    frames
}

/// Stops and drains the source. Returns the numbers of the frames that arrived, and the final counters of the source.
fn finish(source: &mut AfXdp) -> (Vec<u64>, Counts) {
    source.stop();
    let mut numbers = Vec::new();
    let until = Instant::now() + WAIT_MAX;
    while source.poll(64, QUIET, |f| numbers.push(number_of(f.bytes))).expect("poll") != Polled::End {
        assert!(Instant::now() < until, "a stopped source ends");
    }
    (numbers, source.counts().expect("counts"))
}

fn lost(counts: &Counts) -> u64 {
    counts.lost.iter().sum()
}

#[test]
fn a_missing_interface_is_reported_by_name() {
    let Some(_sandbox) = Sandbox::new("a_missing_interface_is_reported_by_name") else { return };
    let error = open(&AfXdpConfig::new("nowhere")).err().expect("an error").to_string();
    assert!(error.starts_with("nowhere: cannot find the interface"), "{error}");
}

#[test]
fn a_missing_queue_is_reported_by_number() {
    let Some(sandbox) = Sandbox::new("a_missing_queue_is_reported_by_number") else { return };
    let (a, _) = veth(&sandbox, VethOptions::default());
    let error = open(&AfXdpConfig { queues: Some(vec![3]), ..small(&a) }).err().expect("an error").to_string();
    assert_eq!(error, "a: queue 3 does not exist; a has 1 queue(s), counted from 0");
}

#[test]
fn a_ring_size_that_is_no_power_of_two_is_rejected_with_advice() {
    let Some(sandbox) = Sandbox::new("a_ring_size_that_is_no_power_of_two_is_rejected_with_advice") else { return };
    let (a, _) = veth(&sandbox, VethOptions::default());
    let error = open(&AfXdpConfig { receive_ring: 1000, ..small(&a) }).err().expect("an error").to_string();
    assert_eq!(error, "a: the receive ring must be a power of two, not 1000; try 1024");
}

#[test]
fn a_busy_interface_is_reported_with_its_xdp_program() {
    let Some(sandbox) = Sandbox::new("a_busy_interface_is_reported_with_its_xdp_program") else { return };
    let (a, _) = veth(&sandbox, VethOptions::default());
    let _first = open_one(&small(&a));
    let error = open(&small(&a)).err().expect("an error").to_string();
    assert!(error.starts_with("a: the interface is busy: another XDP program is attached (id "), "{error}");
}

#[test]
fn an_interface_is_promiscuous_only_while_it_is_captured() {
    let Some(sandbox) = Sandbox::new("an_interface_is_promiscuous_only_while_it_is_captured") else {
        return;
    };
    let (_, b) = veth(&sandbox, VethOptions::default());
    let promiscuity = || sandbox.netlink().link(&b.name).expect("the port").promiscuity;
    assert_eq!(promiscuity(), 0);
    let source = open_one(&small(&b));
    assert_eq!(promiscuity(), 1);
    drop(source);
    assert_eq!(promiscuity(), 0);
}

#[test]
fn frames_arrive_byte_for_byte_in_order() {
    let Some(sandbox) = Sandbox::new("frames_arrive_byte_for_byte_in_order") else { return };
    let (a, b) = veth(&sandbox, VethOptions::default());
    let mut source = open_one(&small(&b));
    let description = &source.info().description;
    assert!(description.starts_with("AF_XDP b queue 0: copy mode, native XDP, need-wakeup"), "{description}");
    let sent: Vec<Vec<u8>> = (0..900).map(|i| frame(i, 60 + (i as usize * 37) % 1455)).collect();
    RawSender::new(&a).send(&sent);
    assert_eq!(collect(&mut source, sent.len()), sent);
    let (rest, counts) = finish(&mut source);
    assert_eq!((rest.len(), counts.seen, lost(&counts)), (0, Some(900), 0));
}

#[test]
fn jumbo_frames_span_chunks_and_arrive_complete() {
    let Some(sandbox) = Sandbox::new("jumbo_frames_span_chunks_and_arrive_complete") else { return };
    let (a, b) = veth(&sandbox, VethOptions { mtu: 9000, ..VethOptions::default() });
    for xdp in [AttachMode::Only(XdpMode::Native), AttachMode::Only(XdpMode::Generic)] {
        let mut source = open_one(&AfXdpConfig { xdp, ..small(&b) });
        assert!(source.info().description.contains("multi-buffer"), "{}", source.info().description);
        let lengths = [60, 1514, 3519, 3520, 3521, 3839, 3840, 3841, 4096, 7680, 7681, 8999, 9000, 9014, 60];
        let sent: Vec<Vec<u8>> = lengths.iter().enumerate().map(|(i, &len)| frame(i as u64, len)).collect();
        RawSender::new(&a).send(&sent);
        let received = collect(&mut source, sent.len());
        assert_eq!(received.iter().map(Vec::len).collect::<Vec<_>>(), lengths, "{xdp:?}");
        assert_eq!(received, sent, "{xdp:?}");
        let (_, counts) = finish(&mut source);
        assert_eq!((counts.seen, lost(&counts)), (Some(15), 0));
    }
}

#[test]
fn without_multi_buffer_a_frame_longer_than_a_chunk_is_counted() {
    let Some(sandbox) = Sandbox::new("without_multi_buffer_a_frame_longer_than_a_chunk_is_counted") else {
        return;
    };
    let (a, b) = veth(&sandbox, VethOptions { mtu: 9000, ..VethOptions::default() });
    let only = AttachMode::Only(XdpMode::Generic);
    let mut source = open_one(&AfXdpConfig { multi_buffer: Some(false), xdp: only, ..small(&b) });
    RawSender::new(&a).send(&[frame(0, 1500), frame(1, 9000), frame(2, 1500)]);
    let (numbers, counts) = finish(&mut source);
    assert_eq!(numbers, [0, 2]);
    assert_eq!((counts.seen, counts.lost[Cause::FillEmpty as usize], lost(&counts)), (Some(3), 1, 1));
}

#[test]
fn frames_of_a_queue_without_a_socket_pass_to_the_kernel() {
    let Some(sandbox) = Sandbox::new("frames_of_a_queue_without_a_socket_pass_to_the_kernel") else { return };
    let (a, b) = veth(&sandbox, VethOptions { queues: 2, ..VethOptions::default() });
    let mut source = open_one(&AfXdpConfig { queues: Some(vec![1]), ..small(&b) });
    let mut kernel = RawReader::new(&b);
    for queue in [0, 1] {
        let mut wire = Transmitter::open(&TransmitConfig::new(&a.name, queue)).expect("transmitter");
        let count =
            wire.send(50, |i, buffer| put(buffer, &frame(u64::from(queue) * 100 + i as u64, 60))).expect("send");
        assert!(count == 50 && wire.flush().expect("flush"));
    }
    assert_eq!(
        kernel.at_least(50, QUIET, |_| true).iter().map(|f| number_of(f)).collect::<Vec<_>>(),
        (0..50).collect::<Vec<_>>()
    );
    let (numbers, counts) = finish(&mut source);
    assert_eq!(numbers, (100..150).collect::<Vec<_>>());
    assert_eq!((counts.seen, lost(&counts), counts.notes[Note::Passed as usize]), (Some(50), 0, 50));
}

#[test]
fn after_stop_frames_pass_to_the_kernel_and_drop_detaches_the_program() {
    let test = "after_stop_frames_pass_to_the_kernel_and_drop_detaches_the_program";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = veth(&sandbox, VethOptions::default());
    let (wire, mut kernel) = (RawSender::new(&a), RawReader::new(&b));
    let mut source = open_one(&small(&b));
    wire.send(&[frame(0, 60), frame(1, 60)]);
    source.stop();
    wire.send(&[frame(2, 60)]);
    let (numbers, counts) = finish(&mut source);
    assert_eq!((numbers, counts.seen, counts.notes[Note::Passed as usize]), (vec![0, 1], Some(2), 1));
    assert_eq!(source.poll(1, Duration::ZERO, |_| {}).expect("poll"), Polled::End, "the end is final");
    drop(source);
    wire.send(&[frame(3, 60)]);
    assert_eq!(kernel.at_least(2, QUIET, |_| true).iter().map(|f| number_of(f)).collect::<Vec<_>>(), [2, 3]);
    // After the source was dropped, the interface can be opened again.
    let mut source = open_one(&small(&b));
    wire.send(&[frame(4, 60)]);
    let (numbers, counts) = finish(&mut source);
    assert_eq!((numbers, counts.seen), (vec![4], Some(1)));
}

#[test]
fn generic_mode_delivers_the_same_frames() {
    let Some(sandbox) = Sandbox::new("generic_mode_delivers_the_same_frames") else { return };
    let (a, b) = veth(&sandbox, VethOptions::default());
    let mut source = open_one(&AfXdpConfig { xdp: AttachMode::Only(XdpMode::Generic), ..small(&b) });
    assert!(source.info().description.contains("copy mode, generic XDP"), "{}", source.info().description);
    let sent: Vec<Vec<u8>> = (0..300).map(|i| frame(i, 60 + i as usize)).collect();
    RawSender::new(&a).send(&sent);
    assert_eq!(collect(&mut source, sent.len()), sent);
    let (_, counts) = finish(&mut source);
    assert_eq!((counts.seen, lost(&counts)), (Some(300), 0));
}

#[test]
fn the_loopback_interface_is_attached_in_generic_mode() {
    let Some(_sandbox) = Sandbox::new("the_loopback_interface_is_attached_in_generic_mode") else { return };
    let lo = Port { name: "lo".to_owned(), index: 1 };
    let source = open_one(&AfXdpConfig { multi_buffer: Some(false), ..small(&lo) });
    assert!(source.info().description.contains("generic XDP"), "{}", source.info().description);
}

/// Nothing reads the source: frames beyond the size of the receive ring are lost and counted once.
#[test]
fn each_frame_lost_to_a_full_receive_ring_is_counted() {
    let Some(sandbox) = Sandbox::new("each_frame_lost_to_a_full_receive_ring_is_counted") else { return };
    let (a, b) = veth(&sandbox, VethOptions::default());
    for xdp in [AttachMode::Only(XdpMode::Native), AttachMode::Only(XdpMode::Generic)] {
        let mut source = open_one(&AfXdpConfig { receive_ring: 64, chunks: 256, xdp, ..small(&b) });
        let sent: Vec<Vec<u8>> = (0..500).map(|i| frame(i, 60)).collect();
        RawSender::new(&a).send(&sent);
        let (numbers, counts) = finish(&mut source);
        assert_eq!(numbers, (0..64).collect::<Vec<_>>());
        assert_eq!(counts.seen, Some(500));
        assert_eq!((counts.lost[Cause::ReceiveFull as usize], lost(&counts)), (436, 436), "{xdp:?}");
        // In native mode the driver counts these lost frames too, so the source does not add the driver's drops to its
        // own count.
        let driver = sandbox.netlink().link_by_index(b.index).expect("port").stats.rx_dropped;
        assert_eq!(driver, 436, "after {xdp:?}");
    }
}

#[test]
fn each_frame_lost_to_an_empty_fill_ring_is_counted() {
    let Some(sandbox) = Sandbox::new("each_frame_lost_to_an_empty_fill_ring_is_counted") else { return };
    let (a, b) = veth(&sandbox, VethOptions::default());
    let mut source = open_one(&AfXdpConfig { receive_ring: 256, chunks: 64, ..small(&b) });
    let sent: Vec<Vec<u8>> = (0..500).map(|i| frame(i, 60)).collect();
    RawSender::new(&a).send(&sent);
    let (numbers, counts) = finish(&mut source);
    assert_eq!(numbers, (0..64).collect::<Vec<_>>());
    assert_eq!((counts.seen, counts.lost[Cause::FillEmpty as usize], lost(&counts)), (Some(500), 436, 436));
}

#[test]
fn each_lost_jumbo_frame_is_counted_once() {
    let Some(sandbox) = Sandbox::new("each_lost_jumbo_frame_is_counted_once") else { return };
    let (a, b) = veth(&sandbox, VethOptions { mtu: 9000, ..VethOptions::default() });
    for (receive_ring, chunks) in [(64, 256), (256, 64)] {
        let mut source = open_one(&AfXdpConfig { receive_ring, chunks, ..small(&b) });
        let sent: Vec<Vec<u8>> = (0..100).map(|i| frame(i, if i % 3 == 0 { 60 } else { 9000 })).collect();
        RawSender::new(&a).send(&sent);
        let (numbers, counts) = finish(&mut source);
        assert!(numbers.is_sorted() && numbers.len() < 100);
        assert_eq!((counts.seen, numbers.len() as u64 + lost(&counts)), (Some(100), 100), "{counts:?}");
    }
}

/// The accounting balances for rings of random size, bursts of random length, and random reads.
#[test]
fn the_accounting_balances_for_random_bursts_and_reads() {
    let test = "the_accounting_balances_for_random_bursts_and_reads";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = veth(&sandbox, VethOptions::default());
    let wire = RawSender::new(&a);
    let mut random = Prng::new(testkit::seed(test));
    for _ in 0..12 {
        let (receive_ring, chunks) = (16 << random.below(5), 64 << random.below(4));
        let mut source =
            open_one(&AfXdpConfig { receive_ring: receive_ring as u32, chunks: chunks as u32, ..small(&b) });
        let (mut sent, mut numbers) = (0u64, Vec::new());
        for _ in 0..random.below(12) {
            let burst: Vec<Vec<u8>> =
                (0..random.below(300)).map(|i| frame(sent + i, 60 + (i as usize * 7) % 1400)).collect();
            wire.send(&burst);
            sent += burst.len() as u64;
            if random.below(3) > 0 {
                let budget = 1 + random.below(200) as usize;
                source.poll(budget, Duration::ZERO, |f| numbers.push(number_of(f.bytes))).expect("poll");
            }
        }
        let (rest, counts) = finish(&mut source);
        numbers.extend(rest);
        assert!(numbers.is_sorted(), "frames are out of order");
        assert_eq!((counts.seen, numbers.len() as u64 + lost(&counts)), (Some(sent), sent), "{counts:?}");
    }
}

#[test]
fn two_queues_are_two_sources_with_shared_or_separate_umem() {
    let Some(sandbox) = Sandbox::new("two_queues_are_two_sources_with_shared_or_separate_umem") else { return };
    let (a, b) = veth(&sandbox, VethOptions { queues: 2, ..VethOptions::default() });
    for shared_memory in [false, true] {
        let mut sources = open(&AfXdpConfig { shared_memory, ..small(&b) }).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(sources.iter().map(|s| s.info().queue).collect::<Vec<_>>(), [0, 1]);
        // The test sends more frames than there are chunks. If chunks of one queue were returned to the other queue,
        // the first queue would lack them.
        for round in 0..5u64 {
            for queue in [0u16, 1] {
                let mut wire = Transmitter::open(&TransmitConfig::new(&a.name, queue)).expect("transmitter");
                let base = u64::from(queue) * 1_000_000 + round * 800;
                wire.send(800, |i, buffer| put(buffer, &frame(base + i as u64, 300))).expect("send");
                assert!(wire.flush().expect("flush"));
                let expected: Vec<Vec<u8>> = (0..800).map(|i| frame(base + i, 300)).collect();
                assert_eq!(collect(&mut sources[usize::from(queue)], 800), expected, "queue {queue} round {round}");
            }
        }
        let (_, counts) = finish(&mut sources[0]);
        assert_eq!((counts.seen, lost(&counts)), (Some(4000), 0));
        // The second source continues after the first, which registered the UMEM, is dropped.
        sources.remove(0);
        let mut wire = Transmitter::open(&TransmitConfig::new(&a.name, 1)).expect("transmitter");
        assert_eq!(wire.send(3000, |i, buffer| put(buffer, &frame(i as u64, 60))).expect("send"), 3000);
        let mut second = sources.pop().expect("the second");
        let (numbers, counts) = finish(&mut second);
        assert_eq!((counts.seen, numbers.len() as u64 + lost(&counts)), (Some(7000), 3000), "{counts:?}");
        assert_eq!(numbers[..1024], (0..1024).collect::<Vec<_>>());
    }
}

/// The program is replaced 200 times while another thread sends; every frame arrives in order.
#[test]
fn replacing_the_program_under_traffic_loses_no_frame() {
    let Some(sandbox) = Sandbox::new("replacing_the_program_under_traffic_loses_no_frame") else { return };
    let (a, b) = veth(&sandbox, VethOptions::default());
    let mut source = open_one(&AfXdpConfig { receive_ring: 32_768, chunks: 65_536, ..small(&b) });
    let dispatcher = std::sync::Arc::clone(source.open_dispatcher());
    let numbers = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut wire = Transmitter::open(&TransmitConfig::new(&a.name, 0)).expect("transmitter");
            for batch in 0..400u64 {
                wire.send(50, |i, buffer| put(buffer, &frame(batch * 50 + i as u64, 60))).expect("send");
            }
            assert!(wire.flush().expect("flush"));
            wire.counts().expect("counts")
        });
        let code = dispatcher.code();
        let mut numbers = Vec::new();
        for _ in 0..200 {
            dispatcher.replace("netgrain_next", &code).expect("replace");
            source.poll(4096, Duration::ZERO, |f| numbers.push(number_of(f.bytes))).expect("poll");
        }
        let sent = sender.join().expect("sender");
        assert_eq!((sent.sent + sent.dropped, sent.under_way, sent.invalid), (20_000, 0, 0));
        let (rest, counts) = finish(&mut source);
        numbers.extend(rest);
        assert_eq!((counts.seen, lost(&counts)), (Some(sent.sent), 0));
        assert_eq!(numbers.len() as u64, sent.sent);
        numbers
    });
    assert!(numbers.is_sorted());
}

#[test]
fn code_that_the_verifier_rejects_gives_its_log_and_changes_nothing() {
    let test = "code_that_the_verifier_rejects_gives_its_log_and_changes_nothing";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = veth(&sandbox, VethOptions::default());
    let mut source = open_one(&small(&b));
    let mut asm = bpf::Asm::new();
    asm.mov_reg(bpf::Reg::R0, bpf::Reg::R7);
    asm.exit();
    match source.open_dispatcher().replace("broken", &asm.finish().expect("code")) {
        Err(DispatcherError::Load(open_error)) => assert!(open_error.log.contains("R7 !read_ok"), "{}", open_error.log),
        other => panic!("{other:?}"),
    }
    RawSender::new(&a).send(&[frame(5, 60)]);
    assert_eq!(finish(&mut source).0, [5]);
}

#[test]
fn busy_polling_delivers_the_same_frames() {
    let Some(sandbox) = Sandbox::new("busy_polling_delivers_the_same_frames") else { return };
    let (a, b) = veth(&sandbox, VethOptions::default());
    let busy_poll = Some(BusyPoll { micros: 20, budget: 64 });
    let mut source = open_one(&AfXdpConfig { busy_poll, ..small(&b) });
    let sent: Vec<Vec<u8>> = (0..700).map(|i| frame(i, 100)).collect();
    RawSender::new(&a).send(&sent);
    let mut numbers = Vec::new();
    let until = Instant::now() + WAIT_MAX;
    while numbers.len() < 700 && Instant::now() < until {
        source.poll(64, Duration::ZERO, |f| numbers.push(number_of(f.bytes))).expect("poll");
    }
    assert_eq!(numbers, (0..700).collect::<Vec<_>>());
    let (_, counts) = finish(&mut source);
    assert_eq!((counts.seen, lost(&counts)), (Some(700), 0));
}

#[test]
fn an_interface_that_is_down_is_idle_until_it_is_up() {
    let Some(sandbox) = Sandbox::new("an_interface_that_is_down_is_idle_until_it_is_up") else { return };
    let (a, b) = veth(&sandbox, VethOptions::default());
    let mut source = open_one(&small(&b));
    let wire = RawSender::new(&a);
    for round in 0..3 {
        sandbox.set_up(&b, false);
        for _ in 0..3 {
            assert_eq!(source.poll(64, Duration::from_millis(1), |_| {}).expect("down is not gone"), Polled::Idle);
        }
        sandbox.set_up(&b, true);
        wait_for_carrier(&sandbox, &[&a, &b]);
        wire.send(&[frame(round, 60)]);
        assert_eq!(collect(&mut source, 1).len(), 1, "round {round}");
    }
    let (_, counts) = finish(&mut source);
    assert_eq!((counts.seen, lost(&counts)), (Some(3), 0));
}

#[test]
fn a_deleted_interface_gives_its_last_frames_before_the_error_gone() {
    let Some(sandbox) = Sandbox::new("a_deleted_interface_gives_its_last_frames_before_the_error_gone") else { return };
    let (a, b) = veth(&sandbox, VethOptions::default());
    let mut source = open_one(&small(&b));
    RawSender::new(&a).send(&[frame(0, 60), frame(1, 60)]);
    sandbox.netlink().delete_link(b.index).expect("delete");
    let mut numbers = Vec::new();
    let error = loop {
        match source.poll(1, QUIET, |f| numbers.push(number_of(f.bytes))) {
            Ok(Polled::Frames(_)) => (),
            Ok(other) => panic!("{other:?}"),
            Err(e) => break e,
        }
    };
    assert!(matches!(error, SourceError::Gone { ref name } if name == "b"), "{error}");
    assert!(source.poll(1, QUIET, |_| {}).is_err(), "the error is permanent");
    assert_eq!(numbers, [0, 1]);
    let (rest, counts) = finish(&mut source);
    assert_eq!((rest.len(), counts.seen, lost(&counts)), (0, Some(2), 0));
}

/// The source also counts the frames that arrived at a socket just after the kernel had unbound the socket.
#[test]
fn the_accounting_balances_when_an_interface_is_deleted_under_traffic() {
    let Some(sandbox) = Sandbox::new("the_accounting_balances_when_an_interface_is_deleted_under_traffic") else {
        return;
    };
    let (a, b) = veth(&sandbox, VethOptions::default());
    let mut source = open_one(&AfXdpConfig::new(&b.name));
    let mut delivered = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut wire = Transmitter::open(&TransmitConfig::new(&a.name, 0)).expect("transmitter");
            while wire.send(64, |i, buffer| put(buffer, &frame(i as u64, 60))).is_ok() {}
        });
        let some = collect(&mut source, 1000).len() as u64;
        sandbox.netlink().delete_link(b.index).expect("delete");
        some
    });
    let error = loop {
        match source.poll(64, QUIET, |_| delivered += 1) {
            Ok(_) => (),
            Err(e) => break e,
        }
    };
    assert!(matches!(error, SourceError::Gone { .. }), "{error}");
    let before = source.counts().expect("counts");
    let (rest, counts) = finish(&mut source);
    assert_eq!((rest.len(), before), (0, counts), "the counts are final");
    assert_eq!(counts.seen, Some(delivered + lost(&counts)), "{counts:?}");
}

#[test]
fn an_interface_that_moves_to_another_namespace_is_gone() {
    let Some(sandbox) = Sandbox::new("an_interface_that_moves_to_another_namespace_is_gone") else { return };
    let (_, b) = veth(&sandbox, VethOptions::default());
    let mut source = open_one(&small(&b));
    let mut netlink = sandbox.netlink();
    {
        let other = Sandbox::new("an_interface_that_moves_to_another_namespace_is_gone").expect("a second namespace");
        netlink.move_to(b.index, std::os::fd::AsFd::as_fd(other.namespace())).expect("move");
    }
    assert!(matches!(source.poll(1, QUIET, |_| {}), Err(SourceError::Gone { .. })));
}

#[test]
fn a_transmitter_reports_why_it_cannot_send() {
    let Some(sandbox) = Sandbox::new("a_transmitter_reports_why_it_cannot_send") else { return };
    let (a, b) = veth(&sandbox, VethOptions::default());
    let open_error =
        |name: &str, queue| Transmitter::open(&TransmitConfig::new(name, queue)).err().expect("refused").to_string();
    assert!(open_error("nowhere", 0).starts_with("nowhere: cannot find the interface"));
    assert!(open_error(&a.name, 7).contains("queue 7 may be disabled"), "{}", open_error(&a.name, 7));
    let mut wire = Transmitter::open(&TransmitConfig::new(&a.name, 0)).expect("transmitter");
    assert!(open_error(&a.name, 0).contains("another AF_XDP socket uses queue 0"), "{}", open_error(&a.name, 0));
    sandbox.set_up(&a, false);
    let error = wire.send(1, |_, buffer| put(buffer, &frame(0, 60))).expect_err("down");
    assert!(error.to_string().contains("ip link set a up"), "{error}");
    sandbox.netlink().delete_link(b.index).expect("delete");
    let error = wire.send(1, |_, buffer| put(buffer, &frame(0, 60))).expect_err("gone");
    assert!(matches!(error, SourceError::Gone { .. }), "{error}");
}

#[test]
fn jumbo_frames_are_sent_in_several_chunks() {
    let Some(sandbox) = Sandbox::new("jumbo_frames_are_sent_in_several_chunks") else { return };
    let (a, b) = veth(&sandbox, VethOptions { mtu: 9000, ..VethOptions::default() });
    let mut source = open_one(&small(&b));
    let mut wire =
        Transmitter::open(&TransmitConfig { frame_max: 9014, frames: 16, ..TransmitConfig::new(&a.name, 0) })
            .expect("transmitter");
    let lengths = [60, 4095, 4096, 4097, 8192, 8193, 9014, 60, 9014];
    // There are enough rounds that every buffer is used for frames of different numbers of chunks.
    for round in 0..10 {
        let sent: Vec<Vec<u8>> =
            lengths.iter().enumerate().map(|(i, &len)| frame(round * 10 + i as u64, len)).collect();
        assert_eq!(wire.send(sent.len(), |i, buffer| put(buffer, &sent[i])).expect("send"), sent.len());
        assert_eq!(collect(&mut source, sent.len()), sent);
    }
    assert!(wire.flush().expect("flush"));
    let counts = wire.counts().expect("counts");
    assert_eq!((counts.sent, counts.dropped, counts.under_way, counts.invalid), (90, 0, 0, 0));
}

/// A peer whose receive loop runs in a kernel thread falls behind, and its ring of 256 entries fills up.
fn with_a_slow_peer(
    test: &str,
    discipline: Option<&str>,
    check: impl FnOnce(u64, capture::afxdp::TransmitCounts, u64),
) {
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = veth(&sandbox, VethOptions::default());
    if let Some(discipline) = discipline {
        let Some(mut tc) = testkit::tool(test, "tc") else { return };
        assert!(tc.args(["qdisc", "add", "dev", &a.name, "root", discipline]).status().expect("tc").success());
    }
    let mut source = open_one(&AfXdpConfig::new(&b.name));
    let Some(mut unshare) = testkit::tool(test, "unshare") else { return };
    // A mount of /sys shows the interfaces of the namespace that mounted it, so the command mounts /sys again.
    let script = format!("mount -t sysfs none /sys && echo 1 > /sys/class/net/{}/threaded", b.name);
    if !unshare.args(["-m", "sh", "-c", &script]).status().expect("unshare").success() {
        testkit::skip(test, "NAPI threads cannot be enabled");
        return;
    }
    let mut wire = Transmitter::open(&TransmitConfig::new(&a.name, 0)).expect("transmitter");
    let mut submitted = 0;
    for _ in 0..200 {
        submitted += wire.send(128, |i, buffer| put(buffer, &frame(i as u64, 60))).expect("send") as u64;
    }
    assert!(wire.flush().expect("flush"));
    let counts = wire.counts().expect("counts");
    // The peer's ring is empty when the XDP program has counted every sent frame.
    let until = Instant::now() + WAIT_MAX;
    while source.counts().expect("counts").seen != Some(counts.sent) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    let (numbers, received) = finish(&mut source);
    assert_eq!(numbers.len() as u64 + lost(&received), received.seen.expect("a count"));
    let dropped_by_driver = sandbox.netlink().link_by_index(a.index).expect("port").stats.tx_dropped;
    assert_eq!(counts.dropped, dropped_by_driver);
    check(submitted, counts, received.seen.expect("a count"));
}

#[test]
fn frames_that_the_driver_drops_are_not_reported_as_sent() {
    with_a_slow_peer("frames_that_the_driver_drops_are_not_reported_as_sent", None, |submitted, counts, seen| {
        assert_eq!((counts.sent + counts.dropped, counts.sent), (submitted, seen), "{counts:?}");
    });
}

#[test]
fn with_a_queueing_discipline_no_frame_is_dropped() {
    with_a_slow_peer("with_a_queueing_discipline_no_frame_is_dropped", Some("pfifo"), |submitted, counts, seen| {
        assert_eq!((counts.sent, counts.dropped, seen), (submitted, 0, submitted), "{counts:?}");
    });
}

fn put(buffer: &mut [u8], frame: &[u8]) -> usize {
    buffer[..frame.len()].copy_from_slice(frame);
    frame.len()
}

/// Frames that a source with these timestamps delivers; each frame has a time between the two returned times.
fn stamped_frames(config: &AfXdpConfig, a: &Port, len: usize) -> (Vec<Option<Timestamp>>, Timestamp, Timestamp) {
    let mut source = open_one(config);
    let from = sys::clock::realtime();
    RawSender::new(a).send(&(0..100).map(|n| frame(n, len)).collect::<Vec<_>>());
    let (mut stamps, until) = (Vec::new(), Instant::now() + WAIT_MAX);
    while stamps.len() < 100 && Instant::now() < until {
        source.poll(64, QUIET, |f| stamps.push(f.stamp)).expect("poll");
    }
    assert_eq!(stamps.len(), 100);
    (stamps, from, sys::clock::realtime())
}

#[test]
fn the_program_writes_the_kernels_time_before_each_frame() {
    let Some(sandbox) = Sandbox::new("the_program_writes_the_kernels_time_before_each_frame") else { return };
    let (a, b) = veth(&sandbox, VethOptions { mtu: 9000, ..VethOptions::default() });
    for (xdp, len) in [(XdpMode::Native, 60), (XdpMode::Native, 8000), (XdpMode::Generic, 60)] {
        let config = AfXdpConfig { timestamps: XdpTimestamps::Kernel, xdp: AttachMode::Only(xdp), ..small(&b) };
        let (stamps, from, to) = stamped_frames(&config, &a, len);
        let stamps: Vec<Timestamp> = stamps.into_iter().flatten().collect();
        assert!(stamps.is_sorted() && stamps.len() == 100, "{xdp:?}, {len} bytes: {} timestamps", stamps.len());
        assert!(stamps[0] >= from && stamps[99] <= to, "{xdp:?}: {stamps:?} not from {from:?} to {to:?}");
    }
}

#[test]
fn a_program_that_reads_timestamps_of_the_nic_is_attached_and_finds_none_on_veth() {
    let test = "a_program_that_reads_timestamps_of_the_nic_is_attached_and_finds_none_on_veth";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = veth(&sandbox, VethOptions::default());
    let config = AfXdpConfig { timestamps: XdpTimestamps::Hardware, ..small(&b) };
    let info = open_one(&config).info().clone();
    if !sys::netlink::netdev::xdp_features(b.index).is_ok_and(|features| features.has_receive_timestamp) {
        testkit::skip(test, "this kernel's veth has no metadata functions");
        return;
    }
    assert_eq!((info.timestamp_source, info.timestamp_fallback), (TimestampSource::Hardware, None));
    let (stamps, ..) = stamped_frames(&config, &a, 60);
    assert!(stamps.iter().all(Option::is_none), "{stamps:?}");
}

#[test]
fn the_reason_is_named_if_timestamps_of_the_nic_are_not_available() {
    let Some(sandbox) = Sandbox::new("the_reason_is_named_if_timestamps_of_the_nic_are_not_available") else { return };
    let (a, b) = veth(&sandbox, VethOptions::default());
    let config = AfXdpConfig { timestamps: XdpTimestamps::Hardware, ..small(&b) };
    let generic = AfXdpConfig { xdp: AttachMode::Only(XdpMode::Generic), ..config.clone() };
    for (config, reason) in [
        (generic, "generic XDP has no timestamps of the NIC"),
        (AfXdpConfig { programmed: true, ..config }, "a program of the packet language runs on the interface"),
    ] {
        let info = open_one(&config).info().clone();
        assert_eq!(info.timestamp_source, TimestampSource::Engine);
        assert!(info.timestamp_fallback.is_some_and(|text| text.starts_with(reason)), "{reason}");
        let (stamps, ..) = stamped_frames(&config, &a, 60);
        assert!(stamps.iter().all(Option::is_none), "{stamps:?}");
    }
}

#[test]
fn frames_with_launch_times_arrive_unchanged_on_an_interface_that_ignores_them() {
    let test = "frames_with_launch_times_arrive_unchanged_on_an_interface_that_ignores_them";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = veth(&sandbox, VethOptions::default());
    let mut source = open_one(&small(&b));
    let config = TransmitConfig { launch_times: true, frames: 64, ..TransmitConfig::new(&a.name, 0) };
    let mut out = Transmitter::open(&config).unwrap_or_else(|e| panic!("{e}"));
    let lengths = [60, 700, 1514];
    let expected: Vec<Vec<u8>> = (0..300).map(|n| frame(n, lengths[n as usize % 3])).collect();
    for (number, frame) in expected.iter().enumerate() {
        let fill = |place: &mut [u8]| {
            place[..frame.len()].copy_from_slice(frame);
            frame.len()
        };
        if number % 2 == 0 {
            assert!(out.send_at(number as u64, fill).expect("sent"));
        } else {
            assert_eq!(out.send(1, |_, place| fill(place)).expect("sent"), 1);
        }
    }
    assert!(out.flush().expect("flushed"));
    assert_eq!(collect(&mut source, 300), expected);
    let counts = out.counts().expect("counts");
    assert_eq!((counts.sent, counts.dropped, counts.invalid), (300, 0, 0));
}
