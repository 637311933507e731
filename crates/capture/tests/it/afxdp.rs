//! AF_XDP on veth pairs in a network namespace of the test's own. Each test is skipped by name where it cannot run.

use base::{Cause, Note, Prng};
use netgrain_capture as capture;

use capture::afxdp::{
    AfXdp, AfXdpConfig, AttachMode, BusyPoll, DispatcherError, TransmitConfig, Transmitter, XdpMode, open,
};
use capture::{Counts, Polled, Source, SourceError};
use std::time::{Duration, Instant};
use testkit::{Port, RawReader, RawSender, Sandbox, VethOptions};

const QUIET: Duration = Duration::from_millis(50);
/// Long enough for a loaded machine; a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// A pair of ports that carry frames: until the kernel has noticed the carrier, what a port is given to send is
/// dropped.
fn veth(sandbox: &Sandbox, options: VethOptions) -> (Port, Port) {
    let (a, b) = sandbox.veth_with("a", "b", options);
    settle(sandbox, &[&a, &b]);
    (a, b)
}

fn settle(sandbox: &Sandbox, ports: &[&Port]) {
    const OPERATIONAL: u8 = 6;
    let (mut netlink, until) = (sandbox.netlink(), Instant::now() + PATIENCE);
    while !ports.iter().all(|p| netlink.link_by_index(p.index).expect("port").operstate == OPERATIONAL) {
        assert!(Instant::now() < until, "the ports come up");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Rings small enough to be filled by a test, memory small enough to be had anywhere.
fn small(port: &Port) -> AfXdpConfig {
    AfXdpConfig { receive_ring: 1024, chunks: 2048, ..AfXdpConfig::new(&port.name) }
}

fn open_one(config: &AfXdpConfig) -> AfXdp {
    let mut sources = open(config).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(sources.len(), 1);
    sources.pop().expect("one source")
}

/// Frames that differ in every byte, and tell their number.
fn frame(number: u64, len: usize) -> Vec<u8> {
    let mut random = Prng::new(number);
    let mut bytes: Vec<u8> = (0..len).map(|_| random.next_u64() as u8).collect();
    // Unicast, locally administered, to nobody; an EtherType for experiments.
    bytes[0] = 0x02;
    bytes[6] = 0x02;
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    bytes[14..22].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn number_of(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes[14..22].try_into().expect("eight bytes"))
}

/// Polls until `count` frames have come, or patience ends.
fn collect(source: &mut AfXdp, count: usize) -> Vec<Vec<u8>> {
    let until = Instant::now() + PATIENCE;
    let mut frames = Vec::new();
    while frames.len() < count && Instant::now() < until {
        source.poll(64, QUIET, |f| frames.push(f.bytes.to_vec())).expect("poll");
    }
    if frames.len() < count {
        eprintln!("{} of {count} frames came; {:?}", frames.len(), source.counts());
    }
    frames
}

/// Stops, drains, and answers the numbers of the frames that came and the final counts.
fn finish(source: &mut AfXdp) -> (Vec<u64>, Counts) {
    source.stop();
    let mut numbers = Vec::new();
    let until = Instant::now() + PATIENCE;
    while source.poll(64, QUIET, |f| numbers.push(number_of(f.bytes))).expect("poll") != Polled::End {
        assert!(Instant::now() < until, "a stopped source ends");
    }
    (numbers, source.counts().expect("counts"))
}

fn lost(counts: &Counts) -> u64 {
    counts.lost.iter().sum()
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    let Some(_sandbox) = Sandbox::new("an_interface_that_is_not_there_is_named") else { return };
    let error = open(&AfXdpConfig::new("nowhere")).err().expect("an error").to_string();
    assert!(error.starts_with("nowhere: cannot find the interface"), "{error}");
}

#[test]
fn a_queue_that_is_not_there_is_named() {
    let Some(sandbox) = Sandbox::new("a_queue_that_is_not_there_is_named") else { return };
    let (a, _) = veth(&sandbox, VethOptions::default());
    let error = open(&AfXdpConfig { queues: Some(vec![3]), ..small(&a) }).err().expect("an error").to_string();
    assert_eq!(error, "a: queue 3 does not exist; a has 1, counted from 0");
}

#[test]
fn a_ring_that_is_no_power_of_two_is_refused_with_one_that_is() {
    let Some(sandbox) = Sandbox::new("a_ring_that_is_no_power_of_two_is_refused_with_one_that_is") else { return };
    let (a, _) = veth(&sandbox, VethOptions::default());
    let error = open(&AfXdpConfig { receive_ring: 1000, ..small(&a) }).err().expect("an error").to_string();
    assert_eq!(error, "a: the receive ring must be a power of two, not 1000; try 1024");
}

#[test]
fn a_busy_interface_says_which_program_has_it() {
    let Some(sandbox) = Sandbox::new("a_busy_interface_says_which_program_has_it") else { return };
    let (a, _) = veth(&sandbox, VethOptions::default());
    let _first = open_one(&small(&a));
    let error = open(&small(&a)).err().expect("an error").to_string();
    assert!(error.starts_with("a: the interface is busy: another XDP program is attached (id "), "{error}");
}

#[test]
fn a_port_takes_frames_for_other_hosts_for_as_long_as_it_is_captured() {
    let Some(sandbox) = Sandbox::new("a_port_takes_frames_for_other_hosts_for_as_long_as_it_is_captured") else {
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
fn jumbo_frames_span_chunks_and_arrive_whole() {
    let Some(sandbox) = Sandbox::new("jumbo_frames_span_chunks_and_arrive_whole") else { return };
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
fn a_frame_too_long_for_a_chunk_is_counted_when_multi_buffer_is_off() {
    let Some(sandbox) = Sandbox::new("a_frame_too_long_for_a_chunk_is_counted_when_multi_buffer_is_off") else {
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
fn a_queue_without_a_socket_is_left_to_the_kernel() {
    let Some(sandbox) = Sandbox::new("a_queue_without_a_socket_is_left_to_the_kernel") else { return };
    let (a, b) = veth(&sandbox, VethOptions { queues: 2, ..VethOptions::default() });
    let mut source = open_one(&AfXdpConfig { queues: Some(vec![1]), ..small(&b) });
    let mut kernel = RawReader::new(&b);
    for queue in [0, 1] {
        let mut wire = Transmitter::open(&TransmitConfig::new(&a.name, queue)).expect("transmitter");
        let count = wire.send(50, |i, place| put(place, &frame(u64::from(queue) * 100 + i as u64, 60))).expect("send");
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
fn after_stop_frames_pass_to_the_kernel_and_after_drop_the_program_is_gone() {
    let test = "after_stop_frames_pass_to_the_kernel_and_after_drop_the_program_is_gone";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = veth(&sandbox, VethOptions::default());
    let (wire, mut kernel) = (RawSender::new(&a), RawReader::new(&b));
    let mut source = open_one(&small(&b));
    wire.send(&[frame(0, 60), frame(1, 60)]);
    source.stop();
    wire.send(&[frame(2, 60)]);
    let (numbers, counts) = finish(&mut source);
    assert_eq!((numbers, counts.seen, counts.notes[Note::Passed as usize]), (vec![0, 1], Some(2), 1));
    assert_eq!(source.poll(1, Duration::ZERO, |_| {}).expect("poll"), Polled::End, "for ever");
    drop(source);
    wire.send(&[frame(3, 60)]);
    assert_eq!(kernel.at_least(2, QUIET, |_| true).iter().map(|f| number_of(f)).collect::<Vec<_>>(), [2, 3]);
    // And again from the start.
    let mut source = open_one(&small(&b));
    wire.send(&[frame(4, 60)]);
    let (numbers, counts) = finish(&mut source);
    assert_eq!((numbers, counts.seen), (vec![4], Some(1)));
}

#[test]
fn generic_mode_delivers_the_same() {
    let Some(sandbox) = Sandbox::new("generic_mode_delivers_the_same") else { return };
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
fn a_loopback_port_gets_generic_mode_by_itself() {
    let Some(_sandbox) = Sandbox::new("a_loopback_port_gets_generic_mode_by_itself") else { return };
    let lo = Port { name: "lo".to_owned(), index: 1 };
    let source = open_one(&AfXdpConfig { multi_buffer: Some(false), ..small(&lo) });
    assert!(source.info().description.contains("generic XDP"), "{}", source.info().description);
}

/// The reader stands still; the receive ring takes its size and every frame beyond that is counted, once.
#[test]
fn a_full_receive_ring_is_counted_frame_by_frame() {
    let Some(sandbox) = Sandbox::new("a_full_receive_ring_is_counted_frame_by_frame") else { return };
    let (a, b) = veth(&sandbox, VethOptions::default());
    for xdp in [AttachMode::Only(XdpMode::Native), AttachMode::Only(XdpMode::Generic)] {
        let mut source = open_one(&AfXdpConfig { receive_ring: 64, chunks: 256, xdp, ..small(&b) });
        let sent: Vec<Vec<u8>> = (0..500).map(|i| frame(i, 60)).collect();
        RawSender::new(&a).send(&sent);
        let (numbers, counts) = finish(&mut source);
        assert_eq!(numbers, (0..64).collect::<Vec<_>>());
        assert_eq!(counts.seen, Some(500));
        assert_eq!((counts.lost[Cause::ReceiveFull as usize], lost(&counts)), (436, 436), "{xdp:?}");
        // In native mode the driver counts the same frames once more, which is why its drops are not added.
        let driver = sandbox.netlink().link_by_index(b.index).expect("port").stats.rx_dropped;
        assert_eq!(driver, 436, "after {xdp:?}");
    }
}

#[test]
fn an_empty_fill_ring_is_counted_frame_by_frame() {
    let Some(sandbox) = Sandbox::new("an_empty_fill_ring_is_counted_frame_by_frame") else { return };
    let (a, b) = veth(&sandbox, VethOptions::default());
    let mut source = open_one(&AfXdpConfig { receive_ring: 256, chunks: 64, ..small(&b) });
    let sent: Vec<Vec<u8>> = (0..500).map(|i| frame(i, 60)).collect();
    RawSender::new(&a).send(&sent);
    let (numbers, counts) = finish(&mut source);
    assert_eq!(numbers, (0..64).collect::<Vec<_>>());
    assert_eq!((counts.seen, counts.lost[Cause::FillEmpty as usize], lost(&counts)), (Some(500), 436, 436));
}

#[test]
fn jumbo_frames_that_find_no_room_are_counted_once_each() {
    let Some(sandbox) = Sandbox::new("jumbo_frames_that_find_no_room_are_counted_once_each") else { return };
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

/// Rings of random size, bursts of random length, a reader that reads or does not: the books balance every time.
#[test]
fn the_books_balance_whatever_the_reader_does() {
    let test = "the_books_balance_whatever_the_reader_does";
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
        assert!(numbers.is_sorted(), "in order");
        assert_eq!((counts.seen, numbers.len() as u64 + lost(&counts)), (Some(sent), sent), "{counts:?}");
    }
}

#[test]
fn two_queues_are_two_sources_with_one_memory_or_two() {
    let Some(sandbox) = Sandbox::new("two_queues_are_two_sources_with_one_memory_or_two") else { return };
    let (a, b) = veth(&sandbox, VethOptions { queues: 2, ..VethOptions::default() });
    for shared_memory in [false, true] {
        let mut sources = open(&AfXdpConfig { shared_memory, ..small(&b) }).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(sources.iter().map(|s| s.info().queue).collect::<Vec<_>>(), [0, 1]);
        // More frames than there are chunks, so that the chunks of one queue must not end up with the other.
        for round in 0..5u64 {
            for queue in [0u16, 1] {
                let mut wire = Transmitter::open(&TransmitConfig::new(&a.name, queue)).expect("transmitter");
                let base = u64::from(queue) * 1_000_000 + round * 800;
                wire.send(800, |i, place| put(place, &frame(base + i as u64, 300))).expect("send");
                assert!(wire.flush().expect("flush"));
                let expected: Vec<Vec<u8>> = (0..800).map(|i| frame(base + i, 300)).collect();
                assert_eq!(collect(&mut sources[usize::from(queue)], 800), expected, "queue {queue} round {round}");
            }
        }
        let (_, counts) = finish(&mut sources[0]);
        assert_eq!((counts.seen, lost(&counts)), (Some(4000), 0));
        // The second goes on when the first, which registered the memory, has gone.
        sources.remove(0);
        let mut wire = Transmitter::open(&TransmitConfig::new(&a.name, 1)).expect("transmitter");
        assert_eq!(wire.send(3000, |i, place| put(place, &frame(i as u64, 60))).expect("send"), 3000);
        let mut second = sources.pop().expect("the second");
        let (numbers, counts) = finish(&mut second);
        assert_eq!((counts.seen, numbers.len() as u64 + lost(&counts)), (Some(7000), 3000), "{counts:?}");
        assert_eq!(numbers[..1024], (0..1024).collect::<Vec<_>>());
    }
}

/// The program is exchanged 200 times while another thread sends; every frame arrives, in order.
#[test]
fn replacing_the_program_under_traffic_loses_nothing() {
    let Some(sandbox) = Sandbox::new("replacing_the_program_under_traffic_loses_nothing") else { return };
    let (a, b) = veth(&sandbox, VethOptions::default());
    let mut source = open_one(&AfXdpConfig { receive_ring: 32_768, chunks: 65_536, ..small(&b) });
    let steer = std::sync::Arc::clone(source.open_dispatcher());
    let numbers = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut wire = Transmitter::open(&TransmitConfig::new(&a.name, 0)).expect("transmitter");
            for batch in 0..400u64 {
                wire.send(50, |i, place| put(place, &frame(batch * 50 + i as u64, 60))).expect("send");
            }
            assert!(wire.flush().expect("flush"));
            wire.counts().expect("counts")
        });
        let code = steer.code();
        let mut numbers = Vec::new();
        for _ in 0..200 {
            steer.replace("netgrain_next", &code).expect("replace");
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
fn code_that_the_verifier_refuses_comes_back_with_its_log_and_changes_nothing() {
    let test = "code_that_the_verifier_refuses_comes_back_with_its_log_and_changes_nothing";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = veth(&sandbox, VethOptions::default());
    let mut source = open_one(&small(&b));
    let mut asm = bpf::Asm::new();
    asm.mov_reg(bpf::Reg::R0, bpf::Reg::R7);
    asm.exit();
    match source.open_dispatcher().replace("broken", &asm.finish().expect("code")) {
        Err(DispatcherError::Load(refusal)) => assert!(refusal.log.contains("R7 !read_ok"), "{}", refusal.log),
        other => panic!("{other:?}"),
    }
    RawSender::new(&a).send(&[frame(5, 60)]);
    assert_eq!(finish(&mut source).0, [5]);
}

#[test]
fn busy_polling_delivers_the_same() {
    let Some(sandbox) = Sandbox::new("busy_polling_delivers_the_same") else { return };
    let (a, b) = veth(&sandbox, VethOptions::default());
    let busy_poll = Some(BusyPoll { micros: 20, budget: 64 });
    let mut source = open_one(&AfXdpConfig { busy_poll, ..small(&b) });
    let sent: Vec<Vec<u8>> = (0..700).map(|i| frame(i, 100)).collect();
    RawSender::new(&a).send(&sent);
    let mut numbers = Vec::new();
    let until = Instant::now() + PATIENCE;
    while numbers.len() < 700 && Instant::now() < until {
        source.poll(64, Duration::ZERO, |f| numbers.push(number_of(f.bytes))).expect("poll");
    }
    assert_eq!(numbers, (0..700).collect::<Vec<_>>());
    let (_, counts) = finish(&mut source);
    assert_eq!((counts.seen, lost(&counts)), (Some(700), 0));
}

#[test]
fn a_port_that_is_down_is_idle_and_comes_back() {
    let Some(sandbox) = Sandbox::new("a_port_that_is_down_is_idle_and_comes_back") else { return };
    let (a, b) = veth(&sandbox, VethOptions::default());
    let mut source = open_one(&small(&b));
    let wire = RawSender::new(&a);
    for round in 0..3 {
        sandbox.set_up(&b, false);
        for _ in 0..3 {
            assert_eq!(source.poll(64, Duration::from_millis(1), |_| {}).expect("down is not gone"), Polled::Idle);
        }
        sandbox.set_up(&b, true);
        settle(&sandbox, &[&a, &b]);
        wire.send(&[frame(round, 60)]);
        assert_eq!(collect(&mut source, 1).len(), 1, "round {round}");
    }
    let (_, counts) = finish(&mut source);
    assert_eq!((counts.seen, lost(&counts)), (Some(3), 0));
}

#[test]
fn a_port_that_goes_away_is_gone_after_its_last_frames() {
    let Some(sandbox) = Sandbox::new("a_port_that_goes_away_is_gone_after_its_last_frames") else { return };
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
    assert!(source.poll(1, QUIET, |_| {}).is_err(), "and stays gone");
    assert_eq!(numbers, [0, 1]);
    let (rest, counts) = finish(&mut source);
    assert_eq!((rest.len(), counts.seen, lost(&counts)), (0, Some(2), 0));
}

/// A port deleted under traffic: frames that were sent to a socket which the kernel had just unbound are told as well.
#[test]
fn the_books_balance_when_a_port_is_deleted_under_traffic() {
    let Some(sandbox) = Sandbox::new("the_books_balance_when_a_port_is_deleted_under_traffic") else { return };
    let (a, b) = veth(&sandbox, VethOptions::default());
    let mut source = open_one(&AfXdpConfig::new(&b.name));
    let mut handed_over = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut wire = Transmitter::open(&TransmitConfig::new(&a.name, 0)).expect("transmitter");
            while wire.send(64, |i, place| put(place, &frame(i as u64, 60))).is_ok() {}
        });
        let some = collect(&mut source, 1000).len() as u64;
        sandbox.netlink().delete_link(b.index).expect("delete");
        some
    });
    let error = loop {
        match source.poll(64, QUIET, |_| handed_over += 1) {
            Ok(_) => (),
            Err(e) => break e,
        }
    };
    assert!(matches!(error, SourceError::Gone { .. }), "{error}");
    let before = source.counts().expect("counts");
    let (rest, counts) = finish(&mut source);
    assert_eq!((rest.len(), before), (0, counts), "nothing changes any more");
    assert_eq!(counts.seen, Some(handed_over + lost(&counts)), "{counts:?}");
}

#[test]
fn a_port_that_moves_to_another_namespace_is_gone() {
    let Some(sandbox) = Sandbox::new("a_port_that_moves_to_another_namespace_is_gone") else { return };
    let (_, b) = veth(&sandbox, VethOptions::default());
    let mut source = open_one(&small(&b));
    let mut netlink = sandbox.netlink();
    {
        let other = Sandbox::new("a_port_that_moves_to_another_namespace_is_gone").expect("a second namespace");
        netlink.move_to(b.index, std::os::fd::AsFd::as_fd(other.namespace())).expect("move");
    }
    assert!(matches!(source.poll(1, QUIET, |_| {}), Err(SourceError::Gone { .. })));
}

#[test]
fn sending_where_nothing_can_be_sent_says_why() {
    let Some(sandbox) = Sandbox::new("sending_where_nothing_can_be_sent_says_why") else { return };
    let (a, b) = veth(&sandbox, VethOptions::default());
    let refusal =
        |name: &str, queue| Transmitter::open(&TransmitConfig::new(name, queue)).err().expect("refused").to_string();
    assert!(refusal("nowhere", 0).starts_with("nowhere: cannot find the interface"));
    assert!(refusal(&a.name, 7).contains("queue 7 may be switched off"), "{}", refusal(&a.name, 7));
    let mut wire = Transmitter::open(&TransmitConfig::new(&a.name, 0)).expect("transmitter");
    assert!(refusal(&a.name, 0).contains("another AF_XDP socket has queue 0"), "{}", refusal(&a.name, 0));
    sandbox.set_up(&a, false);
    let error = wire.send(1, |_, place| put(place, &frame(0, 60))).expect_err("down");
    assert!(error.to_string().contains("ip link set a up"), "{error}");
    sandbox.netlink().delete_link(b.index).expect("delete");
    let error = wire.send(1, |_, place| put(place, &frame(0, 60))).expect_err("gone");
    assert!(matches!(error, SourceError::Gone { .. }), "{error}");
}

#[test]
fn jumbo_frames_are_sent_in_pieces() {
    let Some(sandbox) = Sandbox::new("jumbo_frames_are_sent_in_pieces") else { return };
    let (a, b) = veth(&sandbox, VethOptions { mtu: 9000, ..VethOptions::default() });
    let mut source = open_one(&small(&b));
    let mut wire =
        Transmitter::open(&TransmitConfig { frame_max: 9014, frames: 16, ..TransmitConfig::new(&a.name, 0) })
            .expect("transmitter");
    let lengths = [60, 4095, 4096, 4097, 8192, 8193, 9014, 60, 9014];
    // More rounds than places, so that every place is used by frames of different numbers of pieces.
    for round in 0..10 {
        let sent: Vec<Vec<u8>> =
            lengths.iter().enumerate().map(|(i, &len)| frame(round * 10 + i as u64, len)).collect();
        assert_eq!(wire.send(sent.len(), |i, place| put(place, &sent[i])).expect("send"), sent.len());
        assert_eq!(collect(&mut source, sent.len()), sent);
    }
    assert!(wire.flush().expect("flush"));
    let counts = wire.counts().expect("counts");
    assert_eq!((counts.sent, counts.dropped, counts.under_way, counts.invalid), (90, 0, 0, 0));
}

/// With its receive loop in a thread of its own, the peer falls behind and its ring of 256 places fills up.
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
    // The folder /sys shows the ports of the namespace that mounted it.
    let script = format!("mount -t sysfs none /sys && echo 1 > /sys/class/net/{}/threaded", b.name);
    if !unshare.args(["-m", "sh", "-c", &script]).status().expect("unshare").success() {
        testkit::skip(test, "the receive loop cannot be given a thread");
        return;
    }
    let mut wire = Transmitter::open(&TransmitConfig::new(&a.name, 0)).expect("transmitter");
    let mut put_in = 0;
    for _ in 0..200 {
        put_in += wire.send(128, |i, place| put(place, &frame(i as u64, 60))).expect("send") as u64;
    }
    assert!(wire.flush().expect("flush"));
    let counts = wire.counts().expect("counts");
    // The thread has taken everything from the peer's ring once the program has seen what was sent.
    let until = Instant::now() + PATIENCE;
    while source.counts().expect("counts").seen != Some(counts.sent) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    let (numbers, received) = finish(&mut source);
    assert_eq!(numbers.len() as u64 + lost(&received), received.seen.expect("a count"));
    let dropped_by_driver = sandbox.netlink().link_by_index(a.index).expect("port").stats.tx_dropped;
    assert_eq!(counts.dropped, dropped_by_driver);
    check(put_in, counts, received.seen.expect("a count"));
}

#[test]
fn what_the_driver_dropped_is_not_reported_as_sent() {
    with_a_slow_peer("what_the_driver_dropped_is_not_reported_as_sent", None, |put_in, counts, seen| {
        assert_eq!((counts.sent + counts.dropped, counts.sent), (put_in, seen), "{counts:?}");
    });
}

#[test]
fn with_a_queueing_discipline_nothing_is_dropped() {
    with_a_slow_peer("with_a_queueing_discipline_nothing_is_dropped", Some("pfifo"), |put_in, counts, seen| {
        assert_eq!((counts.sent, counts.dropped, seen), (put_in, 0, put_in), "{counts:?}");
    });
}

fn put(place: &mut [u8], frame: &[u8]) -> usize {
    place[..frame.len()].copy_from_slice(frame);
    frame.len()
}
