//! Conversions: which information they preserve, which losses they count, and which inputs they reject.

use crate::support;

use base::{Prng, Timestamp};
use filter::Filter;
use netgrain_convert::{Error, Format, Plan, Slice, Split};
use pcap::{Direction, raw};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use support::{Packet, converted, one, packets, pcap, pcapng, random, raw};
use wire::EtherType;
use wire::build::Frame;

fn to(format: Format) -> Plan {
    Plan { format, ..Plan::default() }
}

#[test]
fn pcap_rejects_several_link_types_and_recommends_pcapng() {
    let other = Packet { interface: 1, link_type: 101, ..Packet::new(5, b"raw ip") };
    let file = pcapng(&[Packet::new(1, b"ethernet"), other]);
    let error = converted(&[&file], &to(Format::Pcap)).expect_err("two link types");
    assert!(matches!(error, Error::LinkTypes { first: 1, other: 101, .. }), "{error:?}");
    assert!(error.to_string().contains("input 0") && error.to_string().contains("write pcapng"), "{error}");
    let (_, output) = one(&file, &to(Format::PcapNg));
    assert_eq!(packets(&output), packets(&file));
    // If the interval or the filter of the plan excludes a packet, the link type of the packet is not checked.
    let early = Plan { to: Timestamp::from_nanos(1), ..to(Format::Pcap) };
    assert_eq!(one(&file, &early).0.written, 1);
}

#[test]
fn raw_rejects_other_link_types_and_files_too_small_for_a_packet() {
    let file = pcapng(&[Packet { link_type: 101, ..Packet::new(1, b"raw ip") }]);
    let error = converted(&[&file], &to(Format::Raw)).expect_err("not Ethernet");
    assert!(matches!(error, Error::NotEthernet { link_type: 101, .. }), "{error:?}");
    let split = Split { bytes: Some(raw::MIN_FILE - 1), ..Split::default() };
    let small = converted(&[&pcap(&[])], &Plan { split, ..to(Format::Raw) }).expect_err("too small");
    assert!(small.to_string().contains(&raw::MIN_FILE.to_string()), "{small}");
}

#[test]
fn a_truncated_input_is_converted_up_to_the_damage_and_reported() {
    let all = random(&mut Prng::new(1), 20);
    let (whole, second) = (pcap(&all[..10]), pcap(&all[10..]));
    let (report, memory) =
        converted(&[&whole[..whole.len() - 1], &second], &to(Format::Pcap)).expect("a conversion up to the damage");
    assert_eq!((report.read, report.written), (19, 19));
    let [broken] = &report.damaged_inputs[..] else { panic!("{report:?}") };
    assert!(broken.input == "input 0" && broken.reason.contains("cut short"), "{broken:?}");
    let warning =
        |text: &String| text.contains("input 0") && text.contains("everything before this byte was converted");
    assert!(report.warnings(Format::Pcap).iter().any(warning));
    assert_eq!(packets(&memory.files[0]), [&all[..9], &all[10..]].concat());
}

#[test]
fn information_that_a_format_cannot_hold_is_counted_by_name() {
    let first = Packet { direction: Direction::Inbound, drops: 3, ..Packet::new(1_700_000_000_000_000_001, &[1; 60]) };
    let second = Packet { interface: 1, ..Packet::new(1_700_000_000_000_001_000, &[2; 70]) };
    let file = pcapng(&[first, second]);

    let (report, _) = one(&file, &to(Format::PcapNg));
    assert_eq!(report.format_losses, Default::default());
    assert!(report.warnings(Format::PcapNg).is_empty());
    let (report, pcap) = one(&file, &to(Format::PcapMicros));
    let losses = report.format_losses;
    assert_eq!((losses.without_nanos, losses.without_direction, losses.drops, losses.interfaces), (1, 1, 3, 2));
    assert_eq!(report.warnings(Format::PcapMicros).len(), 4, "{:?}", report.warnings(Format::PcapMicros));
    assert_eq!(packets(&pcap)[0].ts.nanos(), 1_700_000_000_000_000_000);
    let (report, _) = one(&file, &to(Format::Pcap));
    assert_eq!((report.format_losses.without_nanos, report.format_losses.drops), (0, 3));

    let long = Packet { wire_len: 80_000, ..Packet::new(1_700_000_000_000_000_000, &[3; 70_000]) };
    let (report, raw) = one(&support::pcap(&[Packet::new(0, &[4; 60]), long]), &to(Format::Raw));
    assert_eq!(
        (report.format_losses.over_long, report.format_losses.wire_len, report.format_losses.clamped),
        (1, 1, 1)
    );
    let read = support::raw_packets(&raw);
    assert_eq!(read[1].data.len(), usize::from(raw::MAX_CAPLEN));
    assert_eq!(read[0].ts.nanos(), 1, "in RAW, a timestamp of 0 marks padding");
}

#[test]
fn recorded_losses_are_preserved_across_filters_and_files() {
    let lost = |ts, drops, data: &[u8]| Packet { drops, ..Packet::new(ts, data) };
    let file = pcapng(&[lost(1, 5, &[1; 60]), lost(2, 7, &[1; 90]), lost(3, 0, &[1; 60]), lost(4, 2, &[1; 90])]);
    let plan = Plan {
        filter: Filter::parse("less 60").expect("a filter"),
        split: Split { packets: Some(1), ..Split::default() },
        ..to(Format::PcapNg)
    };
    let (report, memory) = converted(&[&file], &plan).expect("converted");
    let drops: Vec<u64> = memory.files.iter().flat_map(|f| packets(f)).map(|p| p.drops).collect();
    assert_eq!(drops, [5, 7]);
    assert_eq!(report.format_losses.drops, 2, "losses after the last written packet have no packet to be added to");
}

#[test]
fn information_that_a_format_can_hold_is_identical_after_a_round_trip() {
    let seed = testkit::seed("information_that_a_format_can_hold_is_identical_after_a_round_trip");
    let mut prng = Prng::new(seed);
    for round in 0..30 {
        let many = prng.below(60) as usize;
        let plain = random(&mut prng, many);
        let first = pcap(&plain);
        for by in [Format::PcapNg, Format::Raw, Format::Pcap] {
            // A RAW file without packets has no bytes, so it is no capture file.
            if by == Format::Raw && plain.is_empty() {
                continue;
            }
            let (_, middle) = one(&first, &to(by));
            let input =
                if by == Format::Raw { pcap::Format::Raw } else { pcap::Reader::open(&middle[..]).unwrap().format() };
            let mut back = netgrain_convert::Memory::default();
            let input = netgrain_convert::Input::open_as("middle", &middle[..], input).expect("a capture");
            netgrain_convert::convert(vec![input], &to(Format::Pcap), &mut back).expect("converted");
            assert_eq!(back.files[0], first, "seed {seed}, round {round}, by {by}");
        }
        let with_metadata: Vec<Packet> = plain
            .into_iter()
            .map(|p| Packet {
                interface: prng.below(3) as u32,
                direction: [Direction::Unknown, Direction::Inbound, Direction::Outbound][prng.below(3) as usize],
                drops: prng.below(2) * prng.below(1000),
                ..p
            })
            .collect();
        let (_, again) = one(&pcapng(&with_metadata), &to(Format::PcapNg));
        let (_, twice) = one(&again, &to(Format::PcapNg));
        assert_eq!(again, twice, "seed {seed}, round {round}: pcapng of netgrain is converted without a change");
        let without_numbers = |packets: Vec<Packet>| -> Vec<Packet> {
            packets.into_iter().map(|p| Packet { interface: 0, ..p }).collect()
        };
        assert_eq!(without_numbers(packets(&again)), without_numbers(with_metadata), "seed {seed}, round {round}");
    }
}

#[test]
fn interface_descriptions_are_preserved_except_by_anonymisation() {
    let section = |names: &[&str], first: u64| {
        let mut file = pcap::ng::Writer::new(Vec::new(), "a test", "").expect("memory");
        for name in names {
            let comment = "at 10.1.2.3";
            let options = pcap::ng::InterfaceOptions { name, comment, link_type: 1, ..Default::default() };
            file.describe(&options).expect("memory");
        }
        for number in 0..names.len() as u32 {
            let ts = Timestamp::from_nanos(first + u64::from(number));
            file.packet(number, ts, 60, &[0; 60], Default::default()).expect("memory");
        }
        file.finish().expect("memory")
    };
    // The second section describes eth0 identically, and another interface as number 1.
    let file = [section(&["eth0", "eth1"], 1), section(&["eth0", "wlan0"], 3)].concat();
    let has = |file: &[u8], text: &str| file.windows(text.len()).filter(|w| *w == text.as_bytes()).count();
    let (_, out) = one(&file, &to(Format::PcapNg));
    assert_eq!(packets(&out).iter().map(|p| p.interface).collect::<Vec<_>>(), [0, 1, 0, 2]);
    assert_eq!((has(&out, "eth0"), has(&out, "eth1"), has(&out, "wlan0"), has(&out, "10.1.2.3")), (1, 1, 1, 3));
    let split = Split { packets: Some(1), ..Split::default() };
    let (_, memory) = converted(&[&file], &Plan { split, ..to(Format::PcapNg) }).expect("converted");
    let names = ["eth0", "eth1", "eth0", "wlan0"];
    assert!(memory.files.iter().zip(names).all(|(file, name)| has(file, name) == 1 && has(file, "10.1.2.3") == 1));
    assert_eq!(one(&file, &to(Format::Pcap)).0.format_losses.interfaces, 3);
    let key = netgrain_convert::anonymise::Key::new([5; 32]);
    let anonymise = Some(netgrain_convert::Anonymiser::new(key));
    let (_, out) = one(&file, &Plan { anonymise, ..to(Format::PcapNg) });
    assert_eq!((has(&out, "eth0"), has(&out, "10.1.2.3")), (0, 0));
}

#[test]
fn losses_recorded_by_skipped_packets_are_preserved_by_anonymisation() {
    let mut file = pcap::ng::Writer::new(Vec::new(), "a test", "").expect("memory");
    let options = pcap::ng::InterfaceOptions { name: "eth0", link_type: 1, ..Default::default() };
    let eth0 = file.describe(&options).expect("memory");
    for (ts, drops) in [(1, None), (2, Some(7)), (3, None)] {
        let options = pcap::ng::PacketOptions { drops, ..Default::default() };
        let len = if drops.is_some() { 90 } else { 60 };
        file.packet(eth0, Timestamp::from_nanos(ts), len, &vec![0; len as usize], options).expect("memory");
    }
    let file = file.finish().expect("memory");
    let key = netgrain_convert::anonymise::Key::new([5; 32]);
    let anonymise = Some(netgrain_convert::Anonymiser::new(key));
    for anonymise in [None, anonymise] {
        let filter = Filter::parse("less 60").expect("a filter");
        let plan = Plan { filter, anonymise, ..to(Format::PcapNg) };
        let (report, out) = one(&file, &plan);
        assert_eq!(packets(&out).iter().map(|p| p.drops).collect::<Vec<_>>(), [0, 7], "{plan:?}");
        assert_eq!((report.filtered, report.format_losses.drops), (1, 0), "{plan:?}");
    }
}

#[test]
fn random_conversions_equal_a_simple_reference() {
    let seed = testkit::seed("random_conversions_equal_a_simple_reference");
    let mut prng = Prng::new(seed);
    for round in 0..150 {
        let inputs: Vec<Vec<Packet>> = (0..1 + prng.below(4))
            .map(|_| {
                let many = prng.below(50) as usize;
                random(&mut prng, many)
            })
            .collect();
        let moment = |prng: &mut Prng| Timestamp::from_nanos(1_700_000_000_000_000_000 + prng.below(15_000_000_000));
        let mut plan = Plan {
            format: [Format::Pcap, Format::PcapNg][prng.below(2) as usize],
            snaplen: prng.below(2) as u32 * prng.below(200) as u32,
            ..Plan::default()
        };
        if prng.below(2) == 0 {
            (plan.from, plan.to) = (moment(&mut prng), moment(&mut prng));
        }
        let longest = prng.below(1500) as u32;
        plan.filter = Filter::parse(&format!("less {longest}")).expect("a filter");
        match prng.below(4) {
            0 => plan.split.every = Some(Duration::from_millis(1 + prng.below(3000))),
            1 => plan.split.packets = Some(1 + prng.below(20)),
            2 => plan.split.bytes = Some(1 + prng.below(4000)),
            _ => {}
        }

        // The reference: all packets in one list, sorted stably, then filtered and truncated.
        let mut expected: Vec<Packet> = inputs.concat();
        expected.sort_by_key(|p| p.ts);
        expected.retain(|p| p.ts >= plan.from && p.ts <= plan.to && p.wire_len <= longest);
        for p in &mut expected {
            p.data.truncate(if plan.snaplen == 0 { usize::MAX } else { plan.snaplen as usize });
        }

        let files: Vec<Vec<u8>> = inputs.iter().map(|i| if prng.below(2) == 0 { pcap(i) } else { pcapng(i) }).collect();
        let files: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
        let (report, memory) = converted(&files, &plan).expect("converted");
        let parts: Vec<Vec<Packet>> = memory.files.iter().map(|f| packets(f)).collect();
        let all: Vec<Packet> = parts.concat().into_iter().map(|p| Packet { interface: 0, ..p }).collect();
        assert_eq!(all, expected, "seed {seed}, round {round}, {plan:?}");
        assert_eq!((report.out_of_order, report.late), (0, 0));
        check_split(&plan, &parts, &memory.files, &memory.firsts);
    }
}

/// Checks that every file respects the limits of the split, and that no file was ended too early.
fn check_split(plan: &Plan, parts: &[Vec<Packet>], files: &[Vec<u8>], firsts: &[Timestamp]) {
    if plan.split.is_none() {
        return assert_eq!(parts.len(), 1);
    }
    assert!(parts.iter().all(|p| !p.is_empty()), "a split created a file without packets");
    for (i, part) in parts.iter().enumerate() {
        if let Some(span) = plan.split.every {
            assert!(part.iter().all(|p| p.ts.floor_to(span) == firsts[i]), "file {i} has packets of two spans");
            assert!(i == 0 || firsts[i] > firsts[i - 1]);
        }
        if let Some(many) = plan.split.packets {
            assert!(part.len() as u64 == many || i == parts.len() - 1 && part.len() as u64 <= many);
        }
        if let Some(bytes) = plan.split.bytes {
            assert!(files[i].len() as u64 <= bytes || part.len() == 1, "file {i} has {} bytes", files[i].len());
        }
    }
}

#[test]
fn raw_files_of_a_split_have_exactly_the_size_except_the_last() {
    let all = random(&mut Prng::new(3), 2000);
    let bytes = raw::MIN_FILE + 17;
    let split = Split { bytes: Some(bytes), ..Split::default() };
    let (_, memory) = converted(&[&pcap(&all)], &Plan { split, ..to(Format::Raw) }).expect("converted");
    let (last, full) = memory.files.split_last().expect("files");
    assert!(full.len() > 3 && full.iter().all(|f| f.len() as u64 == bytes) && (last.len() as u64) < bytes);
    assert_eq!(memory.files.iter().flat_map(|f| packets(f)).collect::<Vec<_>>(), all);
    // Without a split, the RAW file is not padded.
    assert_eq!(one(&pcap(&all), &to(Format::Raw)).1, raw(&all));
}

#[test]
fn a_packet_too_late_for_its_file_is_in_the_open_file_and_is_counted() {
    let file =
        pcap(&[Packet::new(500, b"a"), Packet::new(1500, b"b"), Packet::new(700, b"c"), Packet::new(2500, b"d")]);
    let every = Some(Duration::from_nanos(1000));
    let plan = Plan { split: Split { every, ..Split::default() }, ..Plan::default() };
    let (report, memory) = converted(&[&file], &plan).expect("converted");
    let sizes: Vec<usize> = memory.files.iter().map(|f| packets(f).len()).collect();
    assert_eq!((sizes, report.late, report.out_of_order), (vec![1, 2, 1], 1, 1));
    let firsts: Vec<u64> = memory.firsts.iter().map(|t| t.nanos()).collect();
    assert_eq!(firsts, [0, 1000, 2000]);
    // With sorting, the packet is written to the file of its own time interval.
    let (report, memory) = converted(&[&file], &Plan { sort: Some(1 << 20), ..plan }).expect("converted");
    let sizes: Vec<usize> = memory.files.iter().map(|f| packets(f).len()).collect();
    assert_eq!((sizes, report.late, report.out_of_order), (vec![2, 1, 1], 0, 0));
}

#[test]
fn sorting_with_too_little_memory_counts_the_packets_out_of_order() {
    let mut all = random(&mut Prng::new(4), 300);
    let first = all.remove(0);
    all.push(first);
    let (report, out) = one(&pcap(&all), &Plan { sort: Some(10_000), ..Plan::default() });
    assert_eq!((report.written, report.late), (300, 1));
    assert_eq!(packets(&out).windows(2).filter(|w| w[1].ts < w[0].ts).count(), 1);
    let (report, out) = one(&pcap(&all), &Plan { sort: Some(1 << 20), ..Plan::default() });
    assert_eq!(report.late, 0);
    assert!(packets(&out).is_sorted_by_key(|p| p.ts));
}

#[test]
fn slices_end_after_their_header_and_keep_the_wire_length() {
    let tcp6 = Frame::tcp6([1; 8], 1, [2; 8], 2).payload(b"payload");
    let udp4 = Frame::udp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 2).payload(b"payload");
    for (frame, ends) in [
        (udp4, [14, 34, 42]),
        (udp4.tag(EtherType::VLAN, 5), [18, 38, 46]),
        (udp4.tag(EtherType::QINQ, 5).tag(EtherType::VLAN, 6), [22, 42, 50]),
        (tcp6, [14, 54, 74]),
    ] {
        let mut bytes = [0; 200];
        let bytes = frame.fill(&mut bytes);
        for (slice, end) in [Slice::L2, Slice::L3, Slice::L4].into_iter().zip(ends) {
            let plan = Plan { slice: Some(slice), ..Plan::default() };
            let (report, out) = one(&pcap(&[Packet::new(1, bytes)]), &plan);
            let out = &packets(&out)[0];
            assert_eq!((out.data.as_slice(), out.wire_len), (&bytes[..end], bytes.len() as u32), "{slice:?}");
            assert_eq!(report.cut, 1);
        }
    }
    // Frames of unsupported link types are not truncated, ARP is kept completely, and a smaller snaplen has priority.
    let unsupported = Packet { link_type: 147, ..Packet::new(1, &[7; 50]) };
    let arp: Vec<u8> = [&[0xff; 12][..], &[8, 6], &[1; 46]].concat();
    let plan = || Plan { slice: Some(Slice::L4), ..Plan::default() };
    assert_eq!(packets(&one(&pcap(&[unsupported]), &plan()).1)[0].data.len(), 50);
    assert_eq!(packets(&one(&pcap(&[Packet::new(1, &arp)]), &plan()).1)[0].data.len(), 14 + 28);
    let short = Plan { snaplen: 20, ..plan() };
    assert_eq!(packets(&one(&pcap(&[Packet::new(1, &arp)]), &short).1)[0].data.len(), 20);
}

#[test]
fn without_packets_there_is_an_empty_capture_or_no_file_of_a_split() {
    let file = pcapng(&[Packet { link_type: 101, ..Packet::new(5, b"raw ip") }]);
    let none = || Plan { from: Timestamp::from_nanos(6), ..Plan::default() };
    let (report, out) = one(&file, &none());
    assert_eq!((report.outside, report.written), (1, 0));
    assert_eq!(pcap::Reader::open(&out[..]).expect("a header").link_type(), 101);
    let split = Split { packets: Some(1), ..Split::default() };
    assert_eq!(converted(&[&file], &Plan { split, ..none() }).expect("converted").0.files, 0);
}

#[test]
fn stopping_early_leaves_a_complete_file() {
    let stop = Arc::new(AtomicBool::new(true));
    let (report, out) = one(&pcap(&[Packet::new(1, b"a")]), &Plan { stop: Some(stop), ..Plan::default() });
    assert!(report.stopped && packets(&out).is_empty());
}

#[test]
fn damaged_captures_never_panic_and_every_packet_is_counted() {
    let test = "damaged_captures_never_panic_and_every_packet_is_counted";
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let mut files = vec![pcapng(&random(&mut prng, 20)), pcap(&random(&mut prng, 20)), raw(&random(&mut prng, 20))];
    for path in support::captures(test).unwrap_or_default().iter().step_by(5) {
        files.push(std::fs::read(path).expect("a file"));
    }
    files.retain(|f| f.len() < 100_000);
    let mut broken = 0;
    for round in 0..1500 {
        let damaged: Vec<Vec<u8>> = (0..1 + prng.below(3))
            .map(|_| {
                let mut file = files[prng.below(files.len() as u64) as usize].clone();
                for _ in 0..prng.below(8) {
                    let at = prng.below(file.len() as u64) as usize;
                    file[at] = prng.next_u64() as u8;
                }
                file.truncate(if prng.below(4) == 0 { prng.below(file.len() as u64 + 1) as usize } else { file.len() });
                file
            })
            .filter(|file| netgrain_convert::Input::open("damaged", &file[..]).is_ok())
            .collect();
        let inputs: Vec<&[u8]> = damaged.iter().map(Vec::as_slice).collect();
        let key = netgrain_convert::anonymise::Key::new([5; 32]);
        let plan = Plan {
            format: [Format::Pcap, Format::PcapMicros, Format::PcapNg, Format::Raw][prng.below(4) as usize],
            slice: [None, Some(Slice::L2), Some(Slice::L3), Some(Slice::L4)][prng.below(4) as usize],
            sort: (prng.below(3) == 0).then_some(5000),
            anonymise: (prng.below(2) == 0).then(|| netgrain_convert::Anonymiser::new(key)),
            split: Split { packets: Some(1 + prng.below(30)), ..Split::default() },
            ..Plan::default()
        };
        // `converted` asserts that every packet is counted. If the inputs have several link types, an error is a valid
        // result.
        match converted(&inputs, &plan) {
            Ok((report, _)) => broken += report.damaged_inputs.len(),
            Err(Error::LinkTypes { .. } | Error::NotEthernet { .. }) => {}
            Err(other) => panic!("seed {seed}, round {round}: {other}"),
        }
    }
    assert!(broken > 50, "only {broken} damaged inputs");
}
