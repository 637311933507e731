//! Files in HPCAP's RAW format.

use crate::common;

use base::Prng;
use common::{FakeFeed, SECOND, Stream, config, read_all};
use index::{Index, Tail};
use netgrain_recorder::{Config, Format, Recorder};
use ring::BLOCK;
use std::path::PathBuf;
use store::DiskDevice;

#[test]
fn raw_files_have_their_size_and_hold_every_packet_in_order() {
    let test = "raw_files_have_their_size_and_hold_every_packet_in_order";
    let seed = testkit::seed(test);
    for (round, file_bytes) in [(0, BLOCK), (1, 3 * BLOCK), (2, 2 * BLOCK + 4096), (3, 64 * BLOCK)] {
        let stream = Stream::random(0, 2500, &mut Prng::new(seed ^ round));
        let dir = testkit::TempDir::new(test);
        let config = Config {
            store: dir.path().to_owned(),
            allocate: file_bytes,
            format: Format::Raw { file_bytes },
            ..config()
        };
        let mut feed = FakeFeed::new(&stream);
        let recorder = Recorder::new(config, DiskDevice::new(16));
        let summary = recorder.run(&mut feed, |e| eprintln!("{e}")).expect("a thread");
        let note = format!("seed {seed} round {round}");
        assert_eq!(summary.ledger.total().offered, stream.ledger().total().offered, "{note}");
        assert_eq!(summary.ledger.total().stored, stream.ledger().total().stored, "{note}");
        assert_eq!(feed.released.1, stream.descs.len() as u64, "{note}");

        let mut files: Vec<(Index, PathBuf, Vec<u8>)> = Vec::new();
        for (path, bytes) in read_all(dir.path()).into_iter().filter(|(p, _)| p.extension().is_some_and(|e| e == "raw"))
        {
            let index = std::fs::read(path.with_extension("ngi")).expect("an index");
            files.push((Index::parse(&index).expect("a valid index"), path, bytes));
        }
        files.sort_by_key(|(index, ..)| index.header.first_pos);
        let mut expected = stream.descs.iter().filter(|d| d.is_packet());
        let last = files.len() - 1;
        for (i, (index, path, bytes)) in files.iter().enumerate() {
            assert!(i == last || bytes.len() as u64 == file_bytes, "{note}: {} bytes", bytes.len());
            let Tail::Complete(footer) = &index.tail else { panic!("{note}: {} has no footer", path.display()) };
            assert_eq!(footer.bytes, bytes.len() as u64, "{note}");
            for (entry, block) in index.entries.iter().zip(bytes.chunks(BLOCK as usize)) {
                assert_eq!(entry.crc, crc32c::crc32c(block), "{note}: block {}", entry.block);
            }
            let mut reader = pcap::Reader::open_as(&bytes[..], pcap::Format::Raw).expect("RAW");
            while let Some(packet) = reader.next().unwrap_or_else(|e| panic!("{note}: {}: {e}", path.display())) {
                let d = expected.next().expect("no more packets than were sent");
                let caplen = d.caplen.min(pcap::raw::MAX_CAPLEN);
                assert_eq!(packet.ts, Some(d.timestamp()), "{note}");
                assert_eq!(packet.data, &stream.at(d.pos() + 16, d.end())[..usize::from(caplen)], "{note}");
            }
        }
        assert_eq!(expected.count(), 0, "{note}: packets are missing");
    }
}

#[test]
fn the_clock_ends_a_raw_file_but_the_size_of_a_segment_does_not() {
    let test = "the_clock_ends_a_raw_file_but_the_size_of_a_segment_does_not";
    let mut prng = Prng::new(7);
    let mut stream = Stream::new(0);
    let mut spans = Vec::new();
    for span in 0..4 {
        stream.now = stream.now.next_multiple_of(60 * SECOND);
        if span > 0 {
            // The start time of the segment is a full minute, not the timestamp of its first packet.
            stream.segment();
        }
        let packets = 20 + 3 * span;
        for i in 0..packets {
            stream.now += SECOND / 3 + 1;
            if i == 10 {
                // This segment begins in the middle of a minute, as after a previous segment that has reached the
                // segment size.
                stream.segment();
            }
            stream.packet(&mut prng, 60_000, 0);
        }
        spans.push(packets);
    }
    stream.end();
    let dir = testkit::TempDir::new(test);
    let file_bytes = 64 * BLOCK;
    let config = Config { store: dir.path().to_owned(), format: Format::Raw { file_bytes }, ..config() };
    let mut feed = FakeFeed::new(&stream);
    let summary = Recorder::new(config, DiskDevice::plain()).run(&mut feed, |e| eprintln!("{e}")).expect("a thread");
    assert_eq!((summary.published, summary.ledger.total()), (4, stream.ledger().total()));
    assert_eq!(feed.released.1, stream.descs.len() as u64);
    let mut found = Vec::new();
    for (path, bytes) in read_all(dir.path()).iter().filter(|(p, _)| p.extension().is_some_and(|e| e == "raw")) {
        let index = Index::parse(&std::fs::read(path.with_extension("ngi")).expect("an index")).expect("a valid index");
        let mut reader = pcap::Reader::open_as(&bytes[..], pcap::Format::Raw).expect("RAW");
        let mut packets = 0;
        while reader.next().expect("whole records").is_some() {
            packets += 1;
        }
        assert_eq!(index.entries.iter().map(|e| e.tally().stored).sum::<u64>(), packets, "{}", path.display());
        found.push(packets);
    }
    assert_eq!(found, spans, "the files are in order of time");
}
