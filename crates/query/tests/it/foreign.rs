//! Tests of queries on foreign captures: queries select the same packets as tcpdump, and return them in order of time,
//! for every format and any order of packets in the file.

use crate::captures;

use base::{Prng, Timestamp};
use captures::{KINDS, Kind, Packet};
use filter::Filter;
use netgrain_query::indexes::{IndexState, Mismatch};
use netgrain_query::{Query, QuerySource, Results, indexes, run};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use testkit::TempDir;

/// Returns all packets of a result, read one by one or in batches.
fn all(results: &mut Results, batches: bool) -> Vec<Packet> {
    let mut out = Vec::new();
    if !batches {
        while let Some(f) = results.next().expect("a result") {
            out.push(Packet { ts: f.ts, wire_len: f.wire_len, data: f.data.to_vec() });
        }
        return out;
    }
    while let Some(batch) = results.next_batch().expect("a result") {
        let file = [&pcap::FILE_HEADER_NS, batch.records].concat();
        let mut reader = pcap::Reader::open(&file[..]).expect("records of pcap");
        let before = out.len();
        while let Some(p) = reader.next().expect("whole records") {
            out.push(Packet { ts: p.ts.expect("a stamp"), wire_len: p.wire_len, data: p.data.to_vec() });
        }
        assert_eq!((out.len() - before) as u64, batch.packets);
        assert_eq!(out[before].ts, batch.first);
    }
    out
}

fn new_query(filter: &str, from: Timestamp, to: Timestamp) -> Query {
    Query { filter: Filter::parse(filter).expect("a filter"), from, to, ..Query::default() }
}

fn query_file(path: &Path, query: Query) -> Results {
    run(&QuerySource::Files(vec![path.to_owned()]), query).expect("a capture")
}

/// A few thousand generated packets.
fn made(count: u64, prng: &mut Prng) -> Vec<Packet> {
    let packet = |i: u64| {
        let mut data = vec![0; 14 + prng.below(1400) as usize];
        prng.fill(&mut data);
        data[12..14].copy_from_slice(&[0x88, 0xb5]);
        let ts = Timestamp::from_nanos(1_700_000_000_000_000_000 + i * 1_000_003);
        Packet { ts, wire_len: data.len() as u32, data }
    };
    (0..count).map(packet).collect()
}

fn index(path: &Path) -> indexes::IndexBuild {
    indexes::make(path, None, &AtomicBool::new(false)).expect("an index").expect("not stopped")
}

#[test]
fn files_that_cannot_be_queried_are_refused_with_advice() {
    let dir = TempDir::new("foreign-refused");
    let refused = |path: PathBuf| match run(&QuerySource::Files(vec![path.clone()]), Query::default()) {
        Err(e) => {
            let text = e.to_string();
            assert!(text.starts_with(path.to_str().expect("text")), "{text}");
            text
        }
        Ok(_) => panic!("{} was accepted", path.display()),
    };
    for (name, bytes, advice) in [
        ("x.pcap.gz", &[0x1f, 0x8b, 8, 0][..], "x.pcap.gz -w "),
        ("x.pcap.gz", &[0x1f, 0x8b, 8, 0], "/x.pcap), or"),
        ("x.pcapng.zst", &[0x28, 0xb5, 0x2f, 0xfd], "/x.pcapng), or"),
        ("packed.pcap", &[0x28, 0xb5, 0x2f, 0xfd], "packed.pcap -w NEW.pcap)"),
        ("x.pcap.bz2", b"BZh9", "bzip2 -dk"),
        ("empty", &[], "the file is empty"),
        ("text", b"this is no capture at all, but a text", "not a capture"),
        ("cut", &pcap::FILE_HEADER_NS[..20], "24 bytes"),
    ] {
        std::fs::write(dir.join(name), bytes).expect("a file");
        assert!(refused(dir.join(name)).contains(advice), "{name}");
    }
    assert!(refused(dir.path().to_owned()).contains("--store"));
    assert!(refused(dir.join("none")).contains("no such file"));
}

#[test]
fn unsupported_link_types_of_any_interface_cause_a_warning_with_and_without_index() {
    const WIFI: u16 = 105;
    let dir = TempDir::new("foreign-link-types");
    for link_types in [[pcap::ETHERNET, WIFI], [WIFI, pcap::ETHERNET], [WIFI, WIFI], [pcap::ETHERNET; 2]] {
        let path = dir.join(format!("{}-{}.pcapng", link_types[0], link_types[1]));
        let mut out = pcap::ng::Writer::new(Vec::new(), "", "").expect("memory");
        for (name, link_type) in ["one", "two"].into_iter().zip(link_types) {
            out.interface(name, link_type).expect("memory");
        }
        for (n, p) in made(200, &mut Prng::new(7)).iter().enumerate() {
            out.packet(n as u32 % 2, p.ts, p.wire_len, &p.data, Default::default()).expect("memory");
        }
        std::fs::write(&path, out.finish().expect("memory")).expect("a file");
        let warnings = |filter| {
            let mut results = query_file(&path, new_query(filter, Timestamp::ZERO, Timestamp::MAX));
            all(&mut results, false);
            results.warnings().to_vec()
        };
        let unsupported = link_types.iter().filter(|link_type| **link_type == WIFI).count();
        let count = format!("{} packets have link type 105", 100 * unsupported);
        let read = warnings("tcp");
        assert_eq!(read.iter().filter(|text| text.contains(&count)).count(), usize::from(unsupported > 0), "{read:?}");
        index(&path);
        let indexed = warnings("tcp");
        let expected = if unsupported == 2 { &count } else { "the packets of some interfaces have link type 105" };
        let found = indexed.iter().filter(|text| text.contains(expected)).count();
        assert_eq!((indexed.len(), found), (read.len(), usize::from(unsupported > 0)), "{link_types:?}: {indexed:?}");
        assert!(warnings("").is_empty(), "{link_types:?}");
    }
}

#[test]
fn a_truncated_capture_gives_its_complete_records_and_a_warning() {
    let dir = TempDir::new("foreign-cut");
    let mut prng = Prng::new(testkit::seed("foreign-cut"));
    let packets = made(4000, &mut prng);
    for kind in KINDS {
        let (path, bytes) = (dir.join("cut"), kind.bytes(&packets));
        let cut = bytes.len() / 2 + prng.below(bytes.len() as u64 / 3) as usize;
        std::fs::write(&path, &bytes[..cut]).expect("a file");
        let mut results = query_file(&path, Query::default());
        let found = all(&mut results, false);
        // The result must equal the packets that a plain reader reads from the truncated file.
        let mut reader = pcap::Reader::open(&bytes[..cut]).expect("a capture");
        let mut whole = 0;
        while let Ok(Some(_)) = reader.next() {
            whole += 1;
        }
        assert_eq!(found[..], packets[..whole].iter().map(|p| stamped(p, kind)).collect::<Vec<_>>()[..], "{kind:?}");
        let warnings = results.warnings();
        assert!(!results.is_complete() && warnings[0].contains("it was cut short"), "{kind:?} {cut}: {warnings:?}");
    }
}

fn stamped(p: &Packet, kind: Kind) -> Packet {
    Packet { ts: kind.stamp(p.ts), ..p.clone() }
}

#[test]
fn several_captures_are_merged_by_time_and_filtered_by_interface() {
    let dir = TempDir::new("foreign-several");
    let mut prng = Prng::new(testkit::seed("foreign-several"));
    let mut packets = made(6000, &mut prng);
    let mut parts = vec![Vec::new(); KINDS.len()];
    for p in &mut packets {
        // The timestamps are whole microseconds, so that they are the same in every format.
        p.ts = Kind::Micros.stamp(p.ts);
        parts[prng.below(KINDS.len() as u64) as usize].push(p.clone());
    }
    let paths: Vec<PathBuf> = (0..KINDS.len()).map(|i| dir.join(format!("{i}.cap"))).collect();
    for ((kind, part), path) in KINDS.iter().zip(&parts).zip(&paths) {
        kind.write(path, part);
    }
    let mut results = run(&QuerySource::Files(paths.clone()), Query::default()).expect("captures");
    assert_eq!(all(&mut results, true), packets);
    let names: Vec<&str> = results.origins().iter().map(|o| &o.interface[..]).collect();
    for name in ["0.cap", "5.cap", "eth0", "eth1", "eth2"] {
        assert!(names.contains(&name), "{name} is not among {names:?}");
    }
    let only = Query { interfaces: vec!["eth2".into()], ..Query::default() };
    let found = all(&mut run(&QuerySource::Files(paths), only).expect("captures"), false);
    assert!(!found.is_empty() && found.len() < parts[3].len() && found.iter().all(|p| parts[3].contains(p)));
}

#[test]
fn losses_recorded_in_a_capture_are_reported_with_the_next_packet() {
    let dir = TempDir::new("foreign-lost");
    let mut prng = Prng::new(testkit::seed("foreign-lost"));
    let packets = made(3000, &mut prng);
    let mut out = pcap::ng::Writer::new(Vec::new(), "", "").expect("memory");
    out.interface("eth0", pcap::ETHERNET).expect("memory");
    let mut lost = 0;
    for p in &packets {
        let drops = (prng.below(10) == 0).then(|| prng.below(5));
        lost += drops.unwrap_or(0);
        let options = pcap::ng::PacketOptions { drops, ..Default::default() };
        out.packet(0, p.ts, p.wire_len, &p.data, options).expect("memory");
    }
    // Every query of this test selects the last packet too, so that it reports all losses before that packet.
    let last = &packets[2999];
    let path = dir.join("lost.pcapng");
    std::fs::write(&path, out.finish().expect("memory")).expect("a file");
    for filter in ["", "less 700", "less 50"] {
        let filter = if filter.is_empty() { String::new() } else { format!("{filter} or len = {}", last.wire_len) };
        let mut results = query_file(&path, new_query(&filter, Timestamp::ZERO, Timestamp::MAX));
        let mut reported = 0;
        while let Some(found) = results.next().expect("a result") {
            reported += found.lost;
        }
        assert_eq!(reported, lost, "{filter}");
    }
}

#[test]
fn results_match_tcpdump_for_any_filter_interval_format_and_order() {
    let test = "results_match_tcpdump_for_any_filter_interval_format_and_order";
    let Some(traces) = testkit::traces(test) else { return };
    if testkit::tool(test, "tcpdump").is_none() {
        return;
    }
    let dir = TempDir::new("foreign-tcpdump");
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let mut packets = Vec::new();
    captures::collect(&traces, &mut packets);
    assert!(packets.len() > 10_000, "only {} packets", packets.len());
    captures::disorder(&mut packets, &mut prng);
    let mut selected_in_all = 0;
    let paths: Vec<PathBuf> = KINDS.iter().map(|kind| dir.join(format!("{kind:?}.cap"))).collect();
    for (kind, path) in KINDS.iter().zip(&paths) {
        kind.write(path, &packets);
    }
    let mut skipped = 0;
    for round in 0..30 {
        if round == 15 {
            // From this round on the captures have indexes, and every second query is given the path of an index
            // instead of a capture.
            paths.iter().for_each(|path| drop(index(path)));
        }
        let filter = if round == 0 { String::new() } else { captures::filter(&packets, &mut prng) };
        let chosen = captures::tcpdump(&dir, &packets, &filter);
        let mut moment = || packets[prng.below(packets.len() as u64) as usize].ts;
        let (a, b) = if round % 3 == 0 { (Timestamp::ZERO, Timestamp::MAX) } else { (moment(), moment()) };
        let (from, to) = (a.min(b), a.max(b));
        for (kind, path) in KINDS.iter().zip(&paths) {
            let mut expected: Vec<Packet> = chosen.iter().map(|i| stamped(&packets[*i], *kind)).collect();
            expected.retain(|p| from <= p.ts && p.ts <= to);
            expected.sort_by_key(|p| p.ts);
            let index_path = indexes::path(path, None);
            let asked = if round >= 15 && round % 2 == 0 { &index_path } else { path };
            let mut results = query_file(asked, new_query(&filter, from, to));
            let found = all(&mut results, round % 2 == 1);
            skipped += results.cost().blocks_skipped_keys + results.cost().blocks_skipped_time;
            let differs = found.iter().zip(&expected).position(|(a, b)| a != b);
            assert_eq!(
                (found.len(), differs),
                (expected.len(), None),
                "seed {seed} round {round} {kind:?} `{filter}` {from} {to}"
            );
            assert!(results.is_complete(), "{:?}", results.warnings());
            selected_in_all += found.len();
        }
    }
    assert!(skipped > 100, "only {skipped} blocks were skipped");
    assert!(selected_in_all > 10_000, "the filters selected only {selected_in_all} packets");
}

#[test]
fn an_index_that_does_not_match_its_capture_is_not_used() {
    let dir = TempDir::new("foreign-stale");
    let mut prng = Prng::new(testkit::seed("foreign-stale"));
    let packets = made(5000, &mut prng);
    let path = dir.join("x.pcap");
    Kind::Nanos.write(&path, &packets);
    let made = index(&path);
    assert_eq!((made.path.clone(), made.damage), (dir.join("x.pcap.ngi"), None));
    assert_eq!((made.summary.tally.stored, made.capture_bytes), (5000, made.summary.bytes));
    let everything = |note: &str| {
        let mut results = query_file(&path, Query::default());
        let found = all(&mut results, true);
        assert!(results.is_complete(), "{:?}", results.warnings());
        let warnings = results.warnings();
        match note {
            "" => assert!(warnings.is_empty(), "{warnings:?}"),
            _ => assert!(warnings.len() == 1 && warnings[0].contains(note), "{note}: {warnings:?}"),
        }
        found
    };
    assert_eq!(everything(""), packets);
    let fits = |state: IndexState| matches!(state, IndexState::Current(_));
    assert!(fits(indexes::index_state(&path, None).expect("a capture")));
    let verify = || indexes::verify(&path, None, &AtomicBool::new(false)).expect("a capture");
    assert!(fits(verify()));

    // The capture is replaced by a newer capture of the same length, with other content and another modification time.
    let mut other = packets.clone();
    other.iter_mut().for_each(|p| p.ts = p.ts.after(std::time::Duration::from_secs(7)));
    let modified = std::fs::metadata(&path).expect("there").modified().expect("a time");
    Kind::Nanos.write(&path, &other);
    assert_eq!(everything("was changed or replaced after it was indexed"), other);
    // If the modification time was set back, the checksums reveal the change.
    let file = std::fs::File::options().write(true).open(&path).expect("the capture");
    file.set_modified(modified).expect("the modification time");
    assert!(fits(indexes::index_state(&path, None).expect("a capture")));
    assert!(matches!(verify(), IndexState::Stale(Mismatch::Bytes { .. })));
    // Longer.
    let longer = made_longer(&path, &other);
    assert_eq!(everything("the length of the capture has changed"), longer);
    // The test damages the header of the index.
    let mut bytes = std::fs::read(&made.path).expect("the index");
    bytes[20] ^= 1;
    std::fs::write(&made.path, &bytes).expect("damaged");
    assert_eq!(everything("x.pcap.ngi"), longer);
    assert!(indexes::remove(&path, None).is_err(), "a file that is not recognised as an index is not removed");
    index(&path);
    assert_eq!(everything(""), longer);
    assert!(indexes::remove(&path, None).expect("removed") && !made.path.exists());
    assert!(!indexes::remove(&path, None).expect("nothing to remove"));
    let left: Vec<_> = std::fs::read_dir(dir.path()).expect("a directory").collect();
    assert_eq!(left.len(), 1, "unexpected files: {left:?}");
}

fn made_longer(path: &Path, packets: &[Packet]) -> Vec<Packet> {
    let mut longer = packets.to_vec();
    longer.push(packets[packets.len() - 1].clone());
    Kind::Nanos.write(path, &longer);
    longer
}

#[test]
fn an_index_in_a_separate_directory_can_stand_for_its_capture() {
    let dir = TempDir::new("foreign-into");
    let mut prng = Prng::new(testkit::seed("foreign-into"));
    let into = dir.join("indexes");
    std::fs::create_dir(&into).expect("a directory");
    let mut asked = Vec::new();
    let mut expected = Vec::new();
    for (name, kind) in [("a", Kind::Ng), ("b", Kind::Raw)] {
        std::fs::create_dir(dir.join(name)).expect("a directory");
        let (path, packets) = (dir.join(name).join("x.cap"), made(2000, &mut prng));
        kind.write(&path, &packets);
        let made = indexes::make(&path, Some(&into), &AtomicBool::new(false)).expect("an index").expect("not stopped");
        assert_eq!(made.path.parent(), Some(into.as_path()));
        asked.push(made.path);
        expected.extend(packets);
    }
    assert_ne!(asked[0], asked[1]);
    expected.sort_by_key(|p| p.ts);
    let mut results = run(&QuerySource::Files(asked), Query::default()).expect("captures");
    let found = all(&mut results, false);
    assert_eq!(found.len(), expected.len());
    assert!(found.iter().map(|p| p.ts).eq(expected.iter().map(|p| p.ts)), "not in order");
    assert!(results.cost().index_bytes_read > 0, "{:?}", results.cost());
}

#[test]
fn a_truncated_indexed_capture_causes_a_warning_in_each_query() {
    let dir = TempDir::new("foreign-cut-indexed");
    let mut prng = Prng::new(testkit::seed("foreign-cut-indexed"));
    let packets = made(4000, &mut prng);
    for kind in KINDS {
        let (path, bytes) = (dir.join("cut"), kind.bytes(&packets));
        std::fs::write(&path, &bytes[..bytes.len() - 5]).expect("a file");
        let made = index(&path);
        assert!(made.damage.expect("damage").contains("it was cut short"));
        let mut results = query_file(&path, Query::default());
        let expected: Vec<Packet> = packets[..packets.len() - 1].iter().map(|p| stamped(p, kind)).collect();
        assert_eq!(all(&mut results, true), expected, "{kind:?}");
        assert!(
            !results.is_complete()
                && results.warnings()[0].contains("truncated or damaged from here on, as it was when it was indexed"),
            "{:?}",
            results.warnings()
        );
    }
}

/// Captures and indexes with changed bytes: a query returns any result, uses bounded memory, and ends.
#[test]
fn mutated_captures_and_indexes_do_no_harm() {
    let test = "mutated_captures_and_indexes_do_no_harm";
    let dir = TempDir::new("foreign-fuzz");
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let packets = made(2500, &mut prng);
    let rounds = std::env::var("NETGRAIN_FUZZ_ITERS").ok().and_then(|r| r.parse().ok()).unwrap_or(1) * 120;
    let mut answered = 0;
    for round in 0..rounds {
        let kind = KINDS[round % KINDS.len()];
        let path = dir.join("fuzz.cap");
        let mut bytes = kind.bytes(&packets);
        let with_index = prng.below(2) == 0;
        let mut mutate = |bytes: &mut Vec<u8>| {
            for _ in 0..=prng.below(6) {
                // A third of the changes are near the begin of the file, where the headers are; the others are
                // anywhere.
                let most = if prng.below(3) == 0 { 200 } else { bytes.len() as u64 };
                let at = prng.below(most.min(bytes.len() as u64)) as usize;
                match prng.below(5) {
                    0 => bytes[at] ^= 1 << prng.below(8),
                    1 => bytes[at] = prng.next_u64() as u8,
                    2 => bytes[at] = 0xff,
                    3 if at > 1000 => bytes.truncate(at),
                    _ => drop(bytes.splice(at..at, [0, 0, 0, 7])),
                }
            }
        };
        if !with_index {
            mutate(&mut bytes);
        }
        std::fs::write(&path, &bytes).expect("a file");
        if with_index {
            let made = index(&path);
            let mut bytes = std::fs::read(&made.path).expect("an index");
            mutate(&mut bytes);
            std::fs::write(&made.path, &bytes).expect("a file");
        }
        let place = QuerySource::Files(vec![path.clone()]);
        if let Ok(mut results) = run(&place, new_query("less 700", Timestamp::ZERO, Timestamp::MAX)) {
            let mut before = Timestamp::ZERO;
            while let Some(found) = results.next().expect("damage causes a warning only") {
                assert!(found.ts >= before && found.wire_len <= 700, "seed {seed} round {round}");
                before = found.ts;
                answered += 1;
            }
        }
        let _ = std::fs::remove_file(indexes::path(&path, None));
    }
    assert!(answered > 0);
}
