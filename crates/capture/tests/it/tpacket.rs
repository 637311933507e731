//! What is particular to TPACKET_V3: its configuration, the life of the port below it, directions, groups, and frames
//! that the kernel merged. What every source keeps is in `conformance.rs`.

use crate::common;

use base::{Cause, Prng};
use common::{Memory, Taken, WAIT, config, frame, lost, numbered, open_one, read, stop_and_drain};
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

/// The error that opening `config` gives.
fn refused(config: &TpacketConfig) -> SourceError {
    tpacket::open(config).map(drop).expect_err("must be refused")
}

/// Polls until the source fails, and says what it handed over before.
fn until_it_fails(source: &mut Tpacket) -> (Vec<u32>, SourceError) {
    let mut numbers = Vec::new();
    let begun = SystemTime::now();
    loop {
        match source.poll(64, WAIT, |f| numbers.push(number_of(f.bytes))) {
            Err(error) => return (numbers, error),
            Ok(polled) => {
                assert_ne!(polled, Polled::End);
                assert!(begun.elapsed().is_ok_and(|t| t.as_secs() < 120), "the port went and nobody noticed");
            }
        }
    }
}

/// The number in an untagged frame of [`common::frame`].
fn number_of(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[14..18].try_into().expect("four bytes"))
}

fn numbers(taken: &[Taken]) -> Vec<u32> {
    taken.iter().map(|t| number_of(&t.bytes)).collect()
}

#[test]
fn a_configuration_out_of_range_says_what_is_possible() {
    let good = TpacketConfig::new("lo");
    let bad = [
        (TpacketConfig { threads: 0, ..good.clone() }, "between 1 and 64"),
        (TpacketConfig { threads: 65, ..good.clone() }, "between 1 and 64"),
        (TpacketConfig { block_bytes: 64 << 10, ..good.clone() }, "128 KiB"),
        (TpacketConfig { block_bytes: (1 << 20) + 4096, ..good.clone() }, "steps of 64.0 KiB"),
        (TpacketConfig { block_bytes: 8 << 20, ..good.clone() }, "4.00 MiB"),
        (TpacketConfig { blocks: 1, ..good.clone() }, "at least 2"),
        (TpacketConfig { retire: Duration::ZERO, ..good.clone() }, "1 ms to 10ms"),
        (TpacketConfig { retire: Duration::from_millis(11), ..good }, "1 ms to 10ms"),
    ];
    for (config, advice) in bad {
        let error = refused(&config);
        assert!(matches!(error, SourceError::Unsupported { .. }) && error.to_string().contains(advice), "{error}");
    }
}

#[test]
fn a_port_that_does_not_exist_is_named() {
    let Some(_sandbox) = Sandbox::new("a_port_that_does_not_exist_is_named") else { return };
    let error = refused(&TpacketConfig::new("nothing0"));
    assert!(error.to_string().starts_with("nothing0: cannot find the interface: No such device"), "{error}");
}

#[test]
fn frames_are_handed_over_before_the_departure_of_their_port() {
    let Some(sandbox) = Sandbox::new("frames_are_handed_over_before_the_departure_of_their_port") else { return };
    let (a, b) = sandbox.veth("a", "b");
    let mut source = open_one(&config(&b, Memory::Usual));
    RawSender::new(&a).send(&numbered(0..40, |_| 80));
    sandbox.netlink().delete_link(b.index).expect("delete");
    let (got, error) = until_it_fails(&mut source);
    assert_eq!(got, (0..40).collect::<Vec<_>>());
    assert!(matches!(&error, SourceError::Gone { name } if name == "b"), "{error}");
    assert!(matches!(source.poll(1, WAIT, |_| ()), Err(SourceError::Gone { .. })), "and it stays gone");
    let counts = source.counts().expect("counts outlive the port");
    assert_eq!((counts.seen, lost(&counts)), (Some(40), 0));
    source.stop();
    assert_eq!(source.poll(1, WAIT, |_| ()).expect("a stopped source ends"), Polled::End);
}

#[test]
fn a_port_that_moves_to_another_namespace_is_gone() {
    let Some(sandbox) = Sandbox::new("a_port_that_moves_to_another_namespace_is_gone") else { return };
    let (_, b) = sandbox.veth("a", "b");
    let mut source = open_one(&config(&b, Memory::Usual));
    let other = Sandbox::new("a_port_that_moves_to_another_namespace_is_gone").expect("a second sandbox");
    let elsewhere = other.namespace().as_fd().try_clone_to_owned().expect("a second descriptor");
    drop(other);
    sandbox.netlink().move_to(b.index, elsewhere.as_fd()).expect("move");
    assert!(matches!(until_it_fails(&mut source).1, SourceError::Gone { .. }));
}

#[test]
fn a_port_that_is_down_is_silent_and_capture_resumes_when_it_is_up() {
    let Some(sandbox) = Sandbox::new("a_port_that_is_down_is_silent_and_capture_resumes_when_it_is_up") else { return };
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
fn a_port_that_goes_while_it_is_down_is_noticed() {
    let Some(sandbox) = Sandbox::new("a_port_that_goes_while_it_is_down_is_noticed") else { return };
    let (_, b) = sandbox.veth("a", "b");
    sandbox.set_up(&b, false);
    let mut source = open_one(&config(&b, Memory::Usual));
    assert_eq!(source.poll(64, WAIT, |_| ()).expect("down is not an error"), Polled::Idle);
    sandbox.netlink().delete_link(b.index).expect("delete");
    assert!(matches!(until_it_fails(&mut source).1, SourceError::Gone { .. }));
}

#[test]
fn a_new_name_does_not_disturb_a_capture() {
    let Some(sandbox) = Sandbox::new("a_new_name_does_not_disturb_a_capture") else { return };
    let (a, b) = sandbox.veth("a", "b");
    let mut source = open_one(&config(&b, Memory::Usual));
    let sender = RawSender::new(&a);
    sender.send(&numbered(0..10, |_| 60));
    sandbox.netlink().rename(b.index, "renamed").expect("rename");
    sender.send(&numbered(10..20, |_| 60));
    assert_eq!(numbers(&read(&mut source, 20)), (0..20).collect::<Vec<_>>());
}

#[test]
fn a_larger_mtu_does_not_make_super_frames() {
    let Some(sandbox) = Sandbox::new("a_larger_mtu_does_not_make_super_frames") else { return };
    let (a, b) = sandbox.veth("a", "b");
    let mut source = open_one(&config(&b, Memory::Usual));
    let mut netlink = sandbox.netlink();
    for port in [&a, &b] {
        netlink.set_mtu(port.index, 9000).expect("mtu");
    }
    let sent = numbered(0..20, |n| 1400 + n as usize * 400);
    RawSender::new(&a).send(&sent);
    let taken = read(&mut source, 20);
    assert!(taken.iter().zip(&sent).all(|(t, s)| t.bytes == *s && !t.super_frame));
    assert_eq!(taken.len(), 20);
}

#[test]
fn one_frame_on_a_quiet_port_does_not_wait_for_a_full_block() {
    let Some(sandbox) = Sandbox::new("one_frame_on_a_quiet_port_does_not_wait_for_a_full_block") else { return };
    let (a, b) = sandbox.veth("a", "b");
    let mut source = open_one(&config(&b, Memory::Usual));
    let sender = RawSender::new(&a);
    for number in 0..5 {
        sender.send(&numbered(number..number + 1, |_| 60));
        assert_eq!(numbers(&read(&mut source, 1)), [number]);
    }
}

#[test]
fn a_port_is_promiscuous_for_as_long_as_it_is_captured() {
    let Some(sandbox) = Sandbox::new("a_port_is_promiscuous_for_as_long_as_it_is_captured") else { return };
    let (_, b) = sandbox.veth("a", "b");
    let promiscuity = || sandbox.netlink().link("b").expect("b").promiscuity;
    let modest = open_one(&TpacketConfig { promiscuous: false, ..config(&b, Memory::Tiny) });
    assert_eq!(promiscuity(), 0);
    let curious = open_one(&config(&b, Memory::Tiny));
    assert_eq!(promiscuity(), 1);
    drop((modest, curious));
    assert_eq!(promiscuity(), 0);
}

#[test]
fn each_direction_is_there_once_and_named() {
    let Some(sandbox) = Sandbox::new("each_direction_is_there_once_and_named") else { return };
    let (a, b) = sandbox.veth("a", "b");
    let mut source = open_one(&config(&b, Memory::Usual));
    RawSender::new(&a).send(&numbered(0..20, |_| 60));
    // What this host sends never had its tag taken out; it must look the same.
    RawSender::new(&b).send(&[frame(100, 64, &[]), frame(101, 68, &[(0x8100, 5)])]);
    let taken = read(&mut source, 22);
    assert_eq!(numbers(&taken[..21]), (0..20).chain([100]).collect::<Vec<_>>());
    assert_eq!(taken[21].bytes, frame(101, 68, &[(0x8100, 5)]));
    assert!(taken.iter().enumerate().all(|(i, t)| t.outgoing == (i >= 20)));
    assert!(stop_and_drain(&mut source).is_empty());
}

#[test]
fn a_loopback_frame_is_taken_once() {
    let Some(sandbox) = Sandbox::new("a_loopback_frame_is_taken_once") else { return };
    let lo = Port { name: "lo".to_owned(), index: sandbox.netlink().link("lo").expect("lo").index };
    for threads in [1, 2] {
        let mut sources = tpacket::open(&TpacketConfig { threads, ..config(&lo, Memory::Usual) }).expect("open");
        RawSender::new(&lo).send(&numbered(0..30, |_| 60));
        let mut taken: Vec<_> = sources.iter_mut().flat_map(|s| numbers(&stop_and_drain(s))).collect();
        taken.sort_unstable();
        assert_eq!(taken, (0..30).collect::<Vec<_>>(), "{threads} threads");
    }
}

#[test]
fn the_port_stays_with_the_host() {
    let Some(sandbox) = Sandbox::new("the_port_stays_with_the_host") else { return };
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
fn a_group_takes_each_frame_once_and_keeps_conversations_together() {
    let test = "a_group_takes_each_frame_once_and_keeps_conversations_together";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("a", "b");
    let three = TpacketConfig { threads: 3, fanout: Fanout::Hash, ..config(&b, Memory::Usual) };
    let mut sources = tpacket::open(&three).expect("open");
    // A second group on the same port must not mix with the first.
    let mut others = tpacket::open(&three).expect("open a second group");

    let mut prng = Prng::new(testkit::seed(test));
    let sent: Vec<Vec<u8>> = (0..3000).map(|n| ipv4(prng.below(60) as u8, 0, prng.below(2) == 0, n)).collect();
    RawSender::new(&a).send(&sent);
    let mut home = HashMap::new();
    let mut all = Vec::new();
    let mut shares = Vec::new();
    for (thread, source) in sources.iter_mut().enumerate() {
        assert_eq!(usize::from(source.info().queue), thread);
        let taken = stop_and_drain(source);
        shares.push(taken.len());
        for t in taken {
            // The lower address of the two is the conversation's.
            let flow = t.bytes[29];
            assert_eq!(*home.entry(flow).or_insert(thread), thread, "conversation {flow} in two threads");
            all.push(t.bytes);
        }
        let counts = source.counts().expect("counts");
        assert_eq!((counts.seen, lost(&counts)), (Some(shares[thread] as u64), 0));
    }
    all.sort_unstable_by_key(|f| u32::from_be_bytes(f[42..46].try_into().expect("four bytes")));
    assert_eq!(all, sent);
    assert!(shares.iter().all(|s| *s > 0), "sixty conversations leave no thread idle: {shares:?}");
    assert_eq!(others.iter_mut().map(|s| stop_and_drain(s).len()).sum::<usize>(), sent.len());
}

/// Sends numbered frames from a thread of its own until told to stop, which then returns how many. Returns once it
/// sends.
fn send_until(stop: &Arc<AtomicBool>, port: &Port) -> std::thread::JoinHandle<u32> {
    let (stop, sender) = (Arc::clone(stop), RawSender::new(port));
    let (begun, wait) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mut next = 0;
        while !stop.load(Ordering::Relaxed) {
            sender.send(&(next..next + 8).map(|n| ipv4((n % 40) as u8, 0, false, n)).collect::<Vec<_>>());
            next += 8;
            // Nobody listens any more after the first; that is no failure.
            let _ = begun.send(());
        }
        next
    });
    wait.recv().expect("the sender begins");
    thread
}

#[test]
fn a_group_that_opens_and_stops_under_load_takes_no_frame_twice_and_balances() {
    let test = "a_group_that_opens_and_stops_under_load_takes_no_frame_twice_and_balances";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("a", "b");
    for round in 0..5 {
        let stop = Arc::new(AtomicBool::new(false));
        let sending = send_until(&stop, &a);
        let mut sources = tpacket::open(&TpacketConfig { threads: 4, ..config(&b, Memory::Usual) }).expect("open");
        let mut seen = HashSet::new();
        for source in &mut sources {
            let mut taken = read(source, 200);
            taken.extend(stop_and_drain(source));
            let counts = source.counts().expect("counts");
            assert_eq!(counts.seen, Some(taken.len() as u64 + lost(&counts)), "round {round}: {counts:?}");
            for t in taken {
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
fn every_way_of_dealing_takes_every_frame() {
    let Some(sandbox) = Sandbox::new("every_way_of_dealing_takes_every_frame") else { return };
    let (a, b) = sandbox.veth("a", "b");
    for fanout in [Fanout::Hash, Fanout::Cpu, Fanout::Queue] {
        let config = TpacketConfig { threads: 3, fanout, ..config(&b, Memory::Usual) };
        let mut sources = tpacket::open(&config).unwrap_or_else(|e| panic!("{fanout:?}: {e}"));
        RawSender::new(&a).send(&numbered(0..500, |_| 60));
        let mut taken: Vec<_> = sources.iter_mut().flat_map(|s| numbers(&stop_and_drain(s))).collect();
        taken.sort_unstable();
        assert_eq!(taken, (0..500).collect::<Vec<_>>(), "{fanout:?}");
    }
}

#[test]
fn fragments_stay_as_they_were_on_the_wire() {
    let Some(sandbox) = Sandbox::new("fragments_stay_as_they_were_on_the_wire") else { return };
    let (a, b) = sandbox.veth("a", "b");
    let mut sources = tpacket::open(&TpacketConfig { threads: 2, ..config(&b, Memory::Usual) }).expect("open");
    // More fragments, then the last one, 24 bytes further on.
    let sent = [ipv4(9, 0x2000, false, 1), ipv4(9, 0x0003, false, 2)];
    RawSender::new(&a).send(&sent);
    let mut taken: Vec<_> = sources.iter_mut().flat_map(stop_and_drain).map(|t| t.bytes).collect();
    taken.sort_by_key(|f| f[45]);
    assert_eq!(taken, sent);
}

#[test]
fn a_group_of_a_port_that_is_down_opens_or_says_why_not() {
    let Some(sandbox) = Sandbox::new("a_group_of_a_port_that_is_down_opens_or_says_why_not") else { return };
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
fn merged_segments_are_called_super_frames() {
    const SENT: usize = 1 << 20;
    let test = "merged_segments_are_called_super_frames";
    let Some(inner) = Sandbox::new(test) else { return };
    let (_, b) = inner.veth_with("a", "b", VethOptions { offloads: true, ..VethOptions::default() });
    let a = Port { name: "a".to_owned(), index: inner.netlink().link("a").expect("a").index };
    let ours = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    let outer = Sandbox::new(test).expect("a second sandbox");
    let theirs = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

    // `b` goes to the outer sandbox, so that the two ends are two hosts; both may ask for addresses.
    inner.namespace().enter().expect("back inside");
    let mut netlink = inner.netlink();
    netlink.move_to(b.index, outer.namespace().as_fd()).expect("move");
    netlink.set_no_arp(a.index, false).expect("address resolution on");
    netlink.add_address(&Address { link: a.index, ip: ours, prefix: 24 }).expect("address of a");
    let listener = TcpListener::bind((ours, 7)).expect("listen");
    let mut source = open_one(&TpacketConfig { blocks: 64, ..config(&a, Memory::Usual) });

    outer.namespace().enter().expect("to the other host");
    let mut netlink = outer.netlink();
    let b = netlink.link("b").expect("b has moved");
    netlink.set_no_arp(b.index, false).expect("address resolution on");
    netlink.set_up(b.index, true).expect("up");
    netlink.add_address(&Address { link: b.index, ip: theirs, prefix: 24 }).expect("address of b");
    let server = std::thread::spawn(move || {
        let mut got = Vec::new();
        listener.accept().expect("accept").0.read_to_end(&mut got).expect("read");
        got.len()
    });
    let mut stream = TcpStream::connect((ours, 7)).expect("connect");
    stream.write_all(&vec![1; SENT]).expect("write");
    drop(stream);
    assert_eq!(server.join().expect("server"), SENT);

    let taken = stop_and_drain(&mut source);
    let supers: Vec<_> = taken.iter().filter(|t| t.super_frame).collect();
    assert!(!supers.is_empty(), "a veth pair hands segments over unmerged only when told to");
    assert!(supers.iter().all(|t| t.bytes.len() > 1514 && t.bytes.len() == t.wire_len as usize && !t.outgoing));
    assert!(taken.iter().all(|t| t.super_frame || t.wire_len <= 1514));
    let counts = source.counts().expect("counts");
    assert_eq!((counts.seen, lost(&counts)), (Some(taken.len() as u64), 0));
}

#[test]
fn the_description_says_how_frames_are_taken() {
    let Some(sandbox) = Sandbox::new("the_description_says_how_frames_are_taken") else { return };
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
fn losses_after_a_pause_are_counted_and_capture_goes_on() {
    let Some(sandbox) = Sandbox::new("losses_after_a_pause_are_counted_and_capture_goes_on") else { return };
    let (a, b) = sandbox.veth("a", "b");
    let mut source = open_one(&config(&b, Memory::Tiny));
    let sender = RawSender::new(&a);
    let mut handed = 0;
    let mut before = 0;
    for round in 0..4 {
        sender.send(&numbered(0..5000, |_| 200));
        // How much lies in the ring depends on when the kernel retired its two blocks; take all of it.
        while let Polled::Frames(n) = source.poll(64, Duration::ZERO, |_| ()).expect("poll") {
            handed += n as u64;
        }
        let counts = source.counts().expect("counts");
        let full = counts.lost[Cause::ReceiveFull as usize];
        assert!(full > before, "round {round}: 5000 frames do not fit into 256 KiB");
        assert_eq!(counts.seen, Some(5000 * (round + 1)));
        before = full;
    }
    handed += stop_and_drain(&mut source).len() as u64;
    let counts = source.counts().expect("counts");
    assert_eq!(handed + lost(&counts), 20_000);
}

/// All files below `folder`, in the order of their names.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> =
        std::fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path()).collect();
    entries.sort();
    entries.into_iter().flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[test]
fn tcpdump_beside_us_sees_the_same_frames() {
    let test = "tcpdump_beside_us_sees_the_same_frames";
    let Some(mut tcpdump) = testkit::tool(test, "tcpdump") else { return };
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("a", "b");
    let mut sent = numbered(0..300, |n| 60 + n as usize);
    for tags in [&[(0x8100, 7)][..], &[(0x88a8, 7), (0x8100, 8)], &[(0x9100, 7), (0x8100, 8)]] {
        sent.extend((0..50).map(|n| frame(n, 100 + n as usize, tags)));
    }
    let folder = TempDir::new(test);
    let path = folder.join("tcpdump.pcap");
    let count = sent.len().to_string();
    let mut child = tcpdump
        .args(["-i", "b", "-n", "-Z", "root", "-B", "16384", "-s", "0", "-c", &count, "-w"])
        .arg(&path)
        .stderr(Stdio::piped())
        .spawn()
        .expect("tcpdump starts");
    let mut says = BufReader::new(child.stderr.take().expect("its messages")).lines();
    let listens = says.by_ref().map_while(Result::ok).find(|line| line.contains("listening on"));
    assert!(listens.is_some(), "tcpdump ended before it listened");

    let mut source = open_one(&config(&b, Memory::Usual));
    RawSender::new(&a).send(&sent);
    let ours = read(&mut source, sent.len());
    let messages: Vec<String> = says.map_while(Result::ok).collect();
    assert!(child.wait().expect("tcpdump ends").success(), "{messages:?}");
    let theirs = read(&mut File::open(&path, Options::default()).expect("its file"), sent.len());
    assert_eq!((ours.len(), theirs.len()), (sent.len(), sent.len()), "{messages:?}");
    for (i, (our, their)) in ours.iter().zip(&theirs).enumerate() {
        assert_eq!((&our.bytes, our.wire_len), (&their.bytes, their.wire_len), "frame {i}");
        assert_eq!(our.bytes, sent[i], "frame {i}");
    }
}

#[test]
fn real_captures_cross_the_wire_unchanged() {
    let test = "real_captures_cross_the_wire_unchanged";
    let Some(folder) = testkit::traces(test) else { return };
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("a", "b");
    let sender = RawSender::new(&a);
    let mut source = open_one(&config(&b, Memory::Usual));
    let mut total = 0;
    for path in files_below(&folder) {
        let Ok(mut file) = File::open(&path, Options::default()) else { continue };
        if file.info().link_type != 1 {
            continue;
        }
        loop {
            let mut sent = Vec::new();
            let polled = file.poll(400, Duration::ZERO, |f| {
                // What a port of MTU 1500 can send; the kernel drops frames that end within their tag.
                if f.bytes.len() == f.wire_len as usize && (18..=1514).contains(&f.bytes.len()) {
                    sent.push(f.bytes.to_vec());
                }
            });
            if !matches!(polled, Ok(Polled::Frames(_))) {
                break;
            }
            sender.send(&sent);
            for (i, (got, frame)) in read(&mut source, sent.len()).iter().zip(&sent).enumerate() {
                assert_eq!(&got.bytes, frame, "{}: frame {} of this kind", path.display(), total + i);
            }
            total += sent.len();
        }
    }
    assert!(stop_and_drain(&mut source).is_empty(), "the host answered to a frame that was not for it");
    let counts = source.counts().expect("counts");
    assert_eq!((counts.seen, lost(&counts)), (Some(total as u64), 0));
    assert!(total > 10_000, "only {total} frames in {}", folder.display());
}
