//! Tests of properties of TPACKET_V3: its configuration, interfaces that are set down or removed, directions, fanout
//! groups, and frames that the kernel merged. `conformance.rs` tests the properties that all sources share.

use crate::common;

use base::{Cause, Prng};
use common::{Delivered, Memory, WAIT, config, frame, lost, numbered, open_one, read, stop_and_drain};
use netgrain_capture::file::{File, Options};
use netgrain_capture::tpacket::{self, Fanout, Tpacket, TpacketConfig};
use netgrain_capture::{Polled, Source, SourceError, TimestampSource};
use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use sys::netlink::Address;
use testkit::{Port, RawReader, RawSender, Sandbox, TempDir, VethOptions};

/// The error of opening `config`.
fn open_error(config: &TpacketConfig) -> SourceError {
    tpacket::open(config).map(drop).expect_err("an error")
}

/// Polls until the source fails. Returns the sequence numbers of the frames that were delivered before the failure, and
/// the error.
fn poll_until_error(source: &mut Tpacket) -> (Vec<u32>, SourceError) {
    let mut numbers = Vec::new();
    let begun = SystemTime::now();
    loop {
        match source.poll(64, WAIT, |f| numbers.push(number_of(f.bytes))) {
            Err(error) => return (numbers, error),
            Ok(polled) => {
                assert_ne!(polled, Polled::End);
                assert!(
                    begun.elapsed().is_ok_and(|t| t.as_secs() < 120),
                    "the source did not report the deleted interface"
                );
            }
        }
    }
}

/// The sequence number in an untagged frame of [`common::frame`].
fn number_of(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[14..18].try_into().expect("four bytes"))
}

fn numbers(delivered: &[Delivered]) -> Vec<u32> {
    delivered.iter().map(|t| number_of(&t.bytes)).collect()
}

#[test]
fn a_configuration_out_of_range_is_rejected_with_the_range() {
    let good = TpacketConfig::new("lo");
    let bad = [
        (TpacketConfig { threads: 0, ..good.clone() }, "the range is 1 to 64"),
        (TpacketConfig { threads: 65, ..good.clone() }, "the range is 1 to 64"),
        (TpacketConfig { block_bytes: 64 << 10, ..good.clone() }, "128 KiB"),
        (TpacketConfig { block_bytes: (1 << 20) + 4096, ..good.clone() }, "steps of 64.0 KiB"),
        (TpacketConfig { block_bytes: 8 << 20, ..good.clone() }, "4.00 MiB"),
        (TpacketConfig { blocks: 1, ..good.clone() }, "at least 2"),
        (TpacketConfig { retire: Duration::ZERO, ..good.clone() }, "1 ms to 10ms"),
        (TpacketConfig { retire: Duration::from_millis(11), ..good }, "1 ms to 10ms"),
    ];
    for (config, advice) in bad {
        let error = open_error(&config);
        assert!(matches!(error, SourceError::Unsupported { .. }) && error.to_string().contains(advice), "{error}");
    }
}

#[test]
fn a_missing_interface_is_reported_by_name() {
    let Some(_sandbox) = Sandbox::new("a_missing_interface_is_reported_by_name") else { return };
    let error = open_error(&TpacketConfig::new("nothing0"));
    assert!(error.to_string().starts_with("nothing0: cannot find the interface: No such device"), "{error}");
}

#[test]
fn frames_are_delivered_before_the_error_of_a_deleted_interface() {
    let Some(sandbox) = Sandbox::new("frames_are_delivered_before_the_error_of_a_deleted_interface") else { return };
    let (a, b) = sandbox.veth("a", "b");
    let mut source = open_one(&config(&b, Memory::Usual));
    RawSender::new(&a).send(&numbered(0..40, |_| 80));
    sandbox.netlink().delete_link(b.index).expect("delete");
    let (numbers, error) = poll_until_error(&mut source);
    assert_eq!(numbers, (0..40).collect::<Vec<_>>());
    assert!(matches!(&error, SourceError::Gone { name } if name == "b"), "{error}");
    assert!(matches!(source.poll(1, WAIT, |_| ()), Err(SourceError::Gone { .. })), "the error is permanent");
    let counts = source.counts().expect("counts after the deletion");
    assert_eq!((counts.seen, lost(&counts)), (Some(40), 0));
    source.stop();
    assert_eq!(source.poll(1, WAIT, |_| ()).expect("a stopped source ends"), Polled::End);
}

#[test]
fn an_interface_that_moves_to_another_namespace_is_gone() {
    let Some(sandbox) = Sandbox::new("an_interface_that_moves_to_another_namespace_is_gone") else { return };
    let (_, b) = sandbox.veth("a", "b");
    let mut source = open_one(&config(&b, Memory::Usual));
    let other = Sandbox::new("an_interface_that_moves_to_another_namespace_is_gone").expect("a second sandbox");
    let namespace = other.namespace().as_fd().try_clone_to_owned().expect("a second descriptor");
    drop(other);
    sandbox.netlink().move_to(b.index, namespace.as_fd()).expect("move");
    assert!(matches!(poll_until_error(&mut source).1, SourceError::Gone { .. }));
}

#[test]
fn capture_resumes_when_an_interface_that_was_down_is_up() {
    let Some(sandbox) = Sandbox::new("capture_resumes_when_an_interface_that_was_down_is_up") else { return };
    let (a, b) = sandbox.veth("a", "b");
    sandbox.set_up(&b, false);
    let mut source = open_one(&config(&b, Memory::Usual));
    for _ in 0..3 {
        assert_eq!(source.poll(64, WAIT, |_| ()).expect("down is not an error"), Polled::Idle);
    }
    let sender = RawSender::new(&a);
    for round in 0..3 {
        sandbox.set_up(&b, true);
        sandbox.wait_until_running(&a);
        sender.send(&numbered(round * 10..round * 10 + 10, |_| 60));
        assert_eq!(numbers(&read(&mut source, 10)), (round * 10..round * 10 + 10).collect::<Vec<_>>());
        sandbox.set_up(&b, false);
        for _ in 0..3 {
            assert_eq!(source.poll(64, WAIT, |_| ()).expect("down is not an error"), Polled::Idle);
        }
    }
    assert!(stop_and_drain(&mut source).is_empty());
    assert_eq!(source.counts().expect("counts").seen, Some(30));
}

#[test]
fn the_deletion_of_an_interface_that_is_down_is_reported() {
    let Some(sandbox) = Sandbox::new("the_deletion_of_an_interface_that_is_down_is_reported") else { return };
    let (_, b) = sandbox.veth("a", "b");
    sandbox.set_up(&b, false);
    let mut source = open_one(&config(&b, Memory::Usual));
    assert_eq!(source.poll(64, WAIT, |_| ()).expect("down is not an error"), Polled::Idle);
    sandbox.netlink().delete_link(b.index).expect("delete");
    assert!(matches!(poll_until_error(&mut source).1, SourceError::Gone { .. }));
}

#[test]
fn capture_continues_after_the_interface_is_renamed() {
    let Some(sandbox) = Sandbox::new("capture_continues_after_the_interface_is_renamed") else { return };
    let (a, b) = sandbox.veth("a", "b");
    let mut source = open_one(&config(&b, Memory::Usual));
    let sender = RawSender::new(&a);
    sender.send(&numbered(0..10, |_| 60));
    sandbox.netlink().rename(b.index, "renamed").expect("rename");
    sender.send(&numbered(10..20, |_| 60));
    assert_eq!(numbers(&read(&mut source, 20)), (0..20).collect::<Vec<_>>());
}

#[test]
fn with_a_larger_mtu_frames_are_not_super_frames() {
    let Some(sandbox) = Sandbox::new("with_a_larger_mtu_frames_are_not_super_frames") else { return };
    let (a, b) = sandbox.veth("a", "b");
    let mut source = open_one(&config(&b, Memory::Usual));
    let mut netlink = sandbox.netlink();
    for port in [&a, &b] {
        netlink.set_mtu(port.index, 9000).expect("mtu");
    }
    let sent = numbered(0..20, |n| 1400 + n as usize * 400);
    RawSender::new(&a).send(&sent);
    let delivered = read(&mut source, 20);
    assert!(delivered.iter().zip(&sent).all(|(t, s)| t.bytes == *s && !t.super_frame));
    assert_eq!(delivered.len(), 20);
}

#[test]
fn a_single_frame_is_delivered_before_its_block_is_full() {
    let Some(sandbox) = Sandbox::new("a_single_frame_is_delivered_before_its_block_is_full") else { return };
    let (a, b) = sandbox.veth("a", "b");
    let mut source = open_one(&config(&b, Memory::Usual));
    let sender = RawSender::new(&a);
    for number in 0..5 {
        sender.send(&numbered(number..number + 1, |_| 60));
        assert_eq!(numbers(&read(&mut source, 1)), [number]);
    }
}

#[test]
fn an_interface_is_promiscuous_only_during_a_promiscuous_capture() {
    let Some(sandbox) = Sandbox::new("an_interface_is_promiscuous_only_during_a_promiscuous_capture") else { return };
    let (_, b) = sandbox.veth("a", "b");
    let promiscuity = || sandbox.netlink().link("b").expect("b").promiscuity;
    let not_promiscuous = open_one(&TpacketConfig { promiscuous: false, ..config(&b, Memory::Tiny) });
    assert_eq!(promiscuity(), 0);
    let second = open_one(&config(&b, Memory::Tiny));
    assert_eq!(promiscuity(), 1);
    drop((not_promiscuous, second));
    assert_eq!(promiscuity(), 0);
}

#[test]
fn each_direction_is_captured_once_and_marked() {
    let Some(sandbox) = Sandbox::new("each_direction_is_captured_once_and_marked") else { return };
    let (a, b) = sandbox.veth("a", "b");
    let mut source = open_one(&config(&b, Memory::Usual));
    RawSender::new(&a).send(&numbered(0..20, |_| 60));
    // The kernel removes VLAN tags of received frames only. The source must deliver the tagged frames that this host
    // sends in the same form.
    RawSender::new(&b).send(&[frame(100, 64, &[]), frame(101, 68, &[(0x8100, 5)])]);
    let delivered = read(&mut source, 22);
    assert_eq!(numbers(&delivered[..21]), (0..20).chain([100]).collect::<Vec<_>>());
    assert_eq!(delivered[21].bytes, frame(101, 68, &[(0x8100, 5)]));
    assert!(delivered.iter().enumerate().all(|(i, t)| t.outgoing == (i >= 20)));
    assert!(stop_and_drain(&mut source).is_empty());
}

#[test]
fn a_loopback_frame_is_captured_once() {
    let Some(sandbox) = Sandbox::new("a_loopback_frame_is_captured_once") else { return };
    let lo = Port { name: "lo".to_owned(), index: sandbox.netlink().link("lo").expect("lo").index };
    for threads in [1, 2] {
        let mut sources = tpacket::open(&TpacketConfig { threads, ..config(&lo, Memory::Usual) }).expect("open");
        RawSender::new(&lo).send(&numbered(0..30, |_| 60));
        let mut delivered: Vec<_> = sources.iter_mut().flat_map(|s| numbers(&stop_and_drain(s))).collect();
        delivered.sort_unstable();
        assert_eq!(delivered, (0..30).collect::<Vec<_>>(), "{threads} threads");
    }
}

#[test]
fn the_host_still_receives_the_frames_of_the_interface() {
    let Some(sandbox) = Sandbox::new("the_host_still_receives_the_frames_of_the_interface") else { return };
    let (a, b) = sandbox.veth("a", "b");
    let mut reader = RawReader::new(&b);
    let mut source = open_one(&config(&b, Memory::Usual));
    let frames = numbered(0..50, |_| 60);
    RawSender::new(&a).send(&frames);
    assert_eq!(read(&mut source, 50).len(), 50);
    assert_eq!(reader.at_least(50, Duration::from_millis(50), |_| true), frames);
}

/// An IPv4 packet in an Ethernet frame; `fragment` is the field of flags and offset.
fn ipv4(flow: u8, fragment: u16, swapped: bool, number: u32) -> Vec<u8> {
    let (mut src, mut dst) = ([10, 0, 0, flow], [10, 0, 1, flow]);
    let (mut sport, mut dport) = (1000 + u16::from(flow), 53u16);
    if swapped {
        (src, dst, sport, dport) = (dst, src, dport, sport);
    }
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    bytes.extend([0x45, 0, 0, 44, 0, flow]);
    bytes.extend(fragment.to_be_bytes());
    bytes.extend([64, 17, 0, 0]);
    bytes.extend(src);
    bytes.extend(dst);
    let sum: u32 = bytes[14..34].chunks(2).map(|c| u32::from(u16::from_be_bytes([c[0], c[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    bytes[24..26].copy_from_slice(&(!(((folded & 0xffff) + (folded >> 16)) as u16)).to_be_bytes());
    bytes.extend(sport.to_be_bytes());
    bytes.extend(dport.to_be_bytes());
    bytes.extend([0, 24, 0, 0]);
    bytes.extend(number.to_be_bytes());
    bytes.resize(60, 0);
    bytes
}

#[test]
fn a_fanout_group_captures_each_frame_once_and_keeps_flows_together() {
    let test = "a_fanout_group_captures_each_frame_once_and_keeps_flows_together";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("a", "b");
    let three = TpacketConfig { threads: 3, fanout: Fanout::Hash, ..config(&b, Memory::Usual) };
    let mut sources = tpacket::open(&three).expect("open");
    // A second fanout group on the same interface must be independent of the first fanout group.
    let mut others = tpacket::open(&three).expect("open a second group");

    let mut prng = Prng::new(testkit::seed(test));
    let sent: Vec<Vec<u8>> = (0..3000).map(|n| ipv4(prng.below(60) as u8, 0, prng.below(2) == 0, n)).collect();
    RawSender::new(&a).send(&sent);
    let mut thread_of = HashMap::new();
    let mut all = Vec::new();
    let mut shares = Vec::new();
    for (thread, source) in sources.iter_mut().enumerate() {
        assert_eq!(usize::from(source.info().queue), thread);
        let delivered = stop_and_drain(source);
        shares.push(delivered.len());
        for t in delivered {
            // The last byte of the source address is the number of the flow, in both directions.
            let flow = t.bytes[29];
            assert_eq!(*thread_of.entry(flow).or_insert(thread), thread, "flow {flow} in two threads");
            all.push(t.bytes);
        }
        let counts = source.counts().expect("counts");
        assert_eq!((counts.seen, lost(&counts)), (Some(shares[thread] as u64), 0));
    }
    all.sort_unstable_by_key(|f| u32::from_be_bytes(f[42..46].try_into().expect("four bytes")));
    assert_eq!(all, sent);
    assert!(shares.iter().all(|s| *s > 0), "every thread gets some of the 60 flows: {shares:?}");
    assert_eq!(others.iter_mut().map(|s| stop_and_drain(s).len()).sum::<usize>(), sent.len());
}

/// Sends numbered frames from a thread until `stop` is set; the thread returns their number. This function returns when
/// the first frames are sent.
fn send_until(stop: &Arc<AtomicBool>, port: &Port) -> std::thread::JoinHandle<u32> {
    let (stop, sender) = (Arc::clone(stop), RawSender::new(port));
    let (begun, wait) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mut next = 0;
        while !stop.load(Ordering::Relaxed) {
            sender.send(&(next..next + 8).map(|n| ipv4((n % 40) as u8, 0, false, n)).collect::<Vec<_>>());
            next += 8;
            // `send_until` receives only the first of these messages and then drops the receiver, so later calls fail.
            let _ = begun.send(());
        }
        next
    });
    wait.recv().expect("the sender begins");
    thread
}

#[test]
fn a_fanout_group_under_load_captures_no_frame_twice_and_balances() {
    let test = "a_fanout_group_under_load_captures_no_frame_twice_and_balances";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("a", "b");
    for round in 0..5 {
        let stop = Arc::new(AtomicBool::new(false));
        let sending = send_until(&stop, &a);
        let mut sources = tpacket::open(&TpacketConfig { threads: 4, ..config(&b, Memory::Usual) }).expect("open");
        let mut seen = HashSet::new();
        for source in &mut sources {
            let mut delivered = read(source, 200);
            delivered.extend(stop_and_drain(source));
            let counts = source.counts().expect("counts");
            assert_eq!(counts.seen, Some(delivered.len() as u64 + lost(&counts)), "round {round}: {counts:?}");
            for t in delivered {
                let number = u32::from_be_bytes(t.bytes[42..46].try_into().expect("four bytes"));
                assert!(seen.insert(number), "round {round}: frame {number} twice");
            }
        }
        stop.store(true, Ordering::Relaxed);
        let sent = sending.join().expect("sender");
        assert!(seen.iter().all(|n| *n < sent));
    }
}

#[test]
fn every_fanout_mode_captures_every_frame() {
    let Some(sandbox) = Sandbox::new("every_fanout_mode_captures_every_frame") else { return };
    let (a, b) = sandbox.veth("a", "b");
    for fanout in [Fanout::Hash, Fanout::Cpu, Fanout::Queue] {
        let config = TpacketConfig { threads: 3, fanout, ..config(&b, Memory::Usual) };
        let mut sources = tpacket::open(&config).unwrap_or_else(|e| panic!("{fanout:?}: {e}"));
        RawSender::new(&a).send(&numbered(0..500, |_| 60));
        let mut delivered: Vec<_> = sources.iter_mut().flat_map(|s| numbers(&stop_and_drain(s))).collect();
        delivered.sort_unstable();
        assert_eq!(delivered, (0..500).collect::<Vec<_>>(), "{fanout:?}");
    }
}

#[test]
fn fragments_are_captured_unchanged() {
    let Some(sandbox) = Sandbox::new("fragments_are_captured_unchanged") else { return };
    let (a, b) = sandbox.veth("a", "b");
    let mut sources = tpacket::open(&TpacketConfig { threads: 2, ..config(&b, Memory::Usual) }).expect("open");
    // The first packet has the flag "more fragments". The last fragment begins 24 bytes further on.
    let sent = [ipv4(9, 0x2000, false, 1), ipv4(9, 0x0003, false, 2)];
    RawSender::new(&a).send(&sent);
    let mut delivered: Vec<_> = sources.iter_mut().flat_map(stop_and_drain).map(|t| t.bytes).collect();
    delivered.sort_by_key(|f| f[45]);
    assert_eq!(delivered, sent);
}

#[test]
fn a_fanout_group_of_an_interface_that_is_down_opens_or_reports_why() {
    let Some(sandbox) = Sandbox::new("a_fanout_group_of_an_interface_that_is_down_opens_or_reports_why") else {
        return;
    };
    let (a, b) = sandbox.veth("a", "b");
    sandbox.set_up(&b, false);
    match tpacket::open(&TpacketConfig { threads: 2, ..config(&b, Memory::Usual) }) {
        Err(error) => assert!(error.to_string().contains("must be up"), "{error}"),
        Ok(mut sources) => {
            sandbox.set_up(&b, true);
            sandbox.wait_until_running(&a);
            RawSender::new(&a).send(&numbered(0..50, |_| 60));
            assert_eq!(sources.iter_mut().map(|s| stop_and_drain(s).len()).sum::<usize>(), 50);
        }
    }
}

#[test]
fn merged_segments_are_marked_as_super_frames() {
    const SENT: usize = 1 << 20;
    let test = "merged_segments_are_marked_as_super_frames";
    let Some(inner) = Sandbox::new(test) else { return };
    let (_, b) = inner.veth_with("a", "b", VethOptions { offloads: true, ..VethOptions::default() });
    let a = Port { name: "a".to_owned(), index: inner.netlink().link("a").expect("a").index };
    let ip_a = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    let outer = Sandbox::new(test).expect("a second sandbox");
    let ip_b = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

    // `b` moves to the network namespace of the outer sandbox, so that the two ends of the veth pair are two hosts,
    // which resolve the addresses of each other.
    inner.namespace().enter().expect("back inside");
    let mut netlink = inner.netlink();
    netlink.move_to(b.index, outer.namespace().as_fd()).expect("move");
    netlink.set_no_arp(a.index, false).expect("address resolution on");
    netlink.add_address(&Address { link: a.index, ip: ip_a, prefix: 24 }).expect("address of a");
    let listener = TcpListener::bind((ip_a, 7)).expect("listen");
    let mut source = open_one(&TpacketConfig { blocks: 64, ..config(&a, Memory::Usual) });

    outer.namespace().enter().expect("to the other host");
    let mut netlink = outer.netlink();
    let b = netlink.link("b").expect("b has moved");
    netlink.set_no_arp(b.index, false).expect("address resolution on");
    netlink.set_up(b.index, true).expect("up");
    netlink.add_address(&Address { link: b.index, ip: ip_b, prefix: 24 }).expect("address of b");
    let server = std::thread::spawn(move || {
        let mut received = Vec::new();
        listener.accept().expect("accept").0.read_to_end(&mut received).expect("read");
        received.len()
    });
    let mut stream = TcpStream::connect((ip_a, 7)).expect("connect");
    stream.write_all(&vec![1; SENT]).expect("write");
    drop(stream);
    assert_eq!(server.join().expect("server"), SENT);

    let delivered = stop_and_drain(&mut source);
    let supers: Vec<_> = delivered.iter().filter(|t| t.super_frame).collect();
    assert!(!supers.is_empty(), "with offloads a veth pair delivers merged segments");
    assert!(supers.iter().all(|t| t.bytes.len() > 1514 && t.bytes.len() == t.wire_len as usize && !t.outgoing));
    assert!(delivered.iter().all(|t| t.super_frame || t.wire_len <= 1514));
    let counts = source.counts().expect("counts");
    assert_eq!((counts.seen, lost(&counts)), (Some(delivered.len() as u64), 0));
}

#[test]
fn the_description_names_the_settings_of_the_capture() {
    let Some(sandbox) = Sandbox::new("the_description_names_the_settings_of_the_capture") else { return };
    let (_, b) = sandbox.veth("a", "b");
    let sources = tpacket::open(&TpacketConfig { threads: 2, ..config(&b, Memory::Tiny) }).expect("open");
    let info = sources[1].info();
    assert_eq!(
        info.description,
        "TPACKET_V3 b 2/2: shared with the host, 256 KiB ring of 2 blocks, 4 ms, kernel timestamps, promiscuous"
    );
    assert_eq!(
        (info.name.as_str(), info.queue, info.link_type, info.timestamp_source),
        ("b", 1, 1, TimestampSource::Kernel)
    );
}

#[test]
fn losses_during_a_pause_are_counted_and_the_capture_continues() {
    let Some(sandbox) = Sandbox::new("losses_during_a_pause_are_counted_and_the_capture_continues") else { return };
    let (a, b) = sandbox.veth("a", "b");
    let mut source = open_one(&config(&b, Memory::Tiny));
    let sender = RawSender::new(&a);
    let mut count = 0;
    let mut before = 0;
    for round in 0..4 {
        sender.send(&numbered(0..5000, |_| 200));
        // The number of frames in the ring depends on the times at which the kernel retired its two blocks. This loop
        // reads all frames.
        while let Polled::Frames(n) = source.poll(64, Duration::ZERO, |_| ()).expect("poll") {
            count += n as u64;
        }
        let counts = source.counts().expect("counts");
        let full = counts.lost[Cause::ReceiveFull as usize];
        assert!(full > before, "round {round}: 5000 frames do not fit into 256 KiB");
        assert_eq!(counts.seen, Some(5000 * (round + 1)));
        before = full;
    }
    count += stop_and_drain(&mut source).len() as u64;
    let counts = source.counts().expect("counts");
    assert_eq!(count + lost(&counts), 20_000);
}

/// All files below `directory` in order of their names.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> =
        std::fs::read_dir(directory).expect("a directory").map(|e| e.expect("an entry").path()).collect();
    entries.sort();
    entries.into_iter().flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[test]
fn tcpdump_captures_the_same_frames() {
    let test = "tcpdump_captures_the_same_frames";
    let Some(mut tcpdump) = testkit::tool(test, "tcpdump") else { return };
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("a", "b");
    let mut sent = numbered(0..300, |n| 60 + n as usize);
    for tags in [&[(0x8100, 7)][..], &[(0x88a8, 7), (0x8100, 8)], &[(0x9100, 7), (0x8100, 8)]] {
        sent.extend((0..50).map(|n| frame(n, 100 + n as usize, tags)));
    }
    let directory = TempDir::new(test);
    let path = directory.join("tcpdump.pcap");
    let count = sent.len().to_string();
    let mut child = tcpdump
        .args(["-i", "b", "-n", "-Z", "root", "-B", "16384", "-s", "0", "-c", &count, "-w"])
        .arg(&path)
        .stderr(Stdio::piped())
        .spawn()
        .expect("tcpdump starts");
    let mut messages = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let listening = messages.by_ref().map_while(Result::ok).find(|line| line.contains("listening on"));
    assert!(listening.is_some(), "tcpdump ended before it listened");

    let mut source = open_one(&config(&b, Memory::Usual));
    RawSender::new(&a).send(&sent);
    let delivered = read(&mut source, sent.len());
    let messages: Vec<String> = messages.map_while(Result::ok).collect();
    assert!(child.wait().expect("tcpdump ends").success(), "{messages:?}");
    let of_tcpdump = read(&mut File::open(&path, Options::default()).expect("the file of tcpdump"), sent.len());
    assert_eq!((delivered.len(), of_tcpdump.len()), (sent.len(), sent.len()), "{messages:?}");
    for (i, (frame, other)) in delivered.iter().zip(&of_tcpdump).enumerate() {
        assert_eq!((&frame.bytes, frame.wire_len), (&other.bytes, other.wire_len), "frame {i}");
        assert_eq!(frame.bytes, sent[i], "frame {i}");
    }
}

#[test]
fn frames_of_real_captures_are_captured_unchanged() {
    let test = "frames_of_real_captures_are_captured_unchanged";
    let Some(directory) = testkit::traces(test) else { return };
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("a", "b");
    let sender = RawSender::new(&a);
    let mut source = open_one(&config(&b, Memory::Usual));
    let mut total = 0;
    for path in files_below(&directory) {
        let Ok(mut file) = File::open(&path, Options::default()) else { continue };
        if file.info().link_type != 1 {
            continue;
        }
        loop {
            let mut sent = Vec::new();
            let polled = file.poll(400, Duration::ZERO, |f| {
                // Frames that an interface with MTU 1500 can send; the kernel drops frames that end within their VLAN
                // tag.
                if f.bytes.len() == f.wire_len as usize && (18..=1514).contains(&f.bytes.len()) {
                    sent.push(f.bytes.to_vec());
                }
            });
            if !matches!(polled, Ok(Polled::Frames(_))) {
                break;
            }
            sender.send(&sent);
            for (i, (received, frame)) in read(&mut source, sent.len()).iter().zip(&sent).enumerate() {
                assert_eq!(&received.bytes, frame, "{}: Ethernet frame {}", path.display(), total + i);
            }
            total += sent.len();
        }
    }
    assert!(stop_and_drain(&mut source).is_empty(), "the host replied to a frame for another host");
    let counts = source.counts().expect("counts");
    assert_eq!((counts.seen, lost(&counts)), (Some(total as u64), 0));
    assert!(total > 10_000, "only {total} frames in {}", directory.display());
}
