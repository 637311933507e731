//! Compares cutter and writer with a simple model, on a volume with injected failures of all kinds.

use crate::common;

use base::{Cause, Prng};
use common::{Outcome, SECOND, Stream, check_published, config, run};
use index::{Index, Tail};
use netgrain_recorder::writer::Event;
use ring::{BLOCK, RECORD_HEADER};
use std::sync::Arc;
use std::time::Duration;
use store::device::{Content, Device, Fault, MemoryDevice, Surviving};

/// Runs the recorder without interference; the run must end by itself.
fn run_to_end(stream: &Stream, device: &MemoryDevice, prng: &mut Prng) -> Outcome {
    let outcome = run(stream, device.clone(), config(), prng, |_, _, _| true);
    assert!(outcome.done, "the writer has not ended: {:?}", outcome.events);
    outcome
}

fn check_all(stream: &Stream, device: &MemoryDevice, outcome: &Outcome, note: &str) {
    let found = check_published(stream, &device.files(), note);
    assert_eq!(found, (0..stream.segments.len()).collect::<Vec<_>>(), "{note}: files");
    assert_eq!(device.files().len(), 2 * found.len(), "{note}: unexpected files");
    assert_eq!(outcome.totals.ledger.to_ledger(), stream.ledger(), "{note}: ledger");
    assert_eq!(outcome.released, stream.segments.last().map_or(0, |s| s.end), "{note}: released");
    assert_eq!(outcome.descriptors, stream.descs.len() as u64, "{note}: descriptors released");
}

#[test]
fn a_full_volume_loses_nothing_when_space_comes_back() {
    let mut prng = Prng::new(1);
    let stream = Stream::random(0, 2000, &mut prng);
    let device = MemoryDevice::new(2);
    device.set_fault(Fault { capacity: Some(BLOCK), ..Fault::default() });
    let mut stuck_at = None;
    let outcome = run(&stream, device.clone(), config(), &mut prng, |step, writer, _| {
        if step == 2000 {
            stuck_at = Some(writer.released());
        }
        if step == 3000 {
            assert_eq!(Some(writer.released()), stuck_at, "memory was released while the volume refused");
            device.set_fault(Fault::default());
        }
        true
    });
    assert!(outcome.done);
    let text: Vec<String> = outcome.events.iter().map(ToString::to_string).collect();
    let troubles = text.iter().filter(|t| t.contains("free space on the volume")).count();
    assert_eq!(troubles, 1, "one message per failure: {text:#?}");
    assert!(text.iter().any(|t| t.contains("accepts writes again")), "{text:#?}");
    check_all(&stream, &device, &outcome, "after ENOSPC");
}

#[test]
fn random_streams_survive_random_faults_byte_for_byte() {
    let seed = testkit::seed("random_streams_survive_random_faults_byte_for_byte");
    for round in 0..24 {
        let mut prng = Prng::new(seed ^ round);
        let stream = Stream::random(prng.below(1 << 30) * BLOCK, 300 + prng.below(2000), &mut prng);
        let device = MemoryDevice::new(prng.next_u64());
        device.set_fault(Fault {
            io_error: prng.below(2) * prng.below(300),
            short: prng.below(2) * prng.below(500),
            slow: prng.below(2) == 0,
            ..Fault::default()
        });
        let outcome = run(&stream, device.clone(), config(), &mut prng, |_, _, _| true);
        assert!(outcome.done, "seed {seed} round {round}");
        check_all(&stream, &device, &outcome, &format!("seed {seed} round {round}"));
    }
}

#[test]
fn a_power_failure_at_any_call_leaves_published_files_intact() {
    let seed = testkit::seed("a_power_failure_at_any_call_leaves_published_files_intact");
    let mut prng = Prng::new(seed);
    let mut stream = Stream::new(0);
    for _ in 0..4 {
        for _ in 0..30 {
            stream.packet(&mut prng, 60_000, 0);
        }
        stream.tick();
        stream.segment();
    }
    stream.end();
    let device = MemoryDevice::new(seed);
    run_to_end(&stream, &device, &mut prng);
    let calls = device.calls();
    let mut most = 0;
    for at in 0..calls {
        let device = MemoryDevice::new(seed);
        device.set_fault(Fault { crash_at: Some(at), slow: at % 2 == 1, ..Fault::default() });
        run(&stream, device.clone(), config(), &mut prng, |_, _, _| !device.crashed());
        for _ in 0..4 {
            let found = check_published(&stream, &device.surviving(&mut prng), &format!("seed {seed}, call {at}"));
            most = most.max(found.len());
        }
    }
    assert_eq!(most, stream.segments.len(), "the last crashes happen after all files were published");
}

#[test]
fn stopping_while_the_volume_refuses_counts_what_was_not_written() {
    let seed = testkit::seed("stopping_while_the_volume_refuses_counts_what_was_not_written");
    for round in 0..24 {
        let mut prng = Prng::new(seed ^ round);
        let stream = Stream::random(0, 1500, &mut prng);
        let device = MemoryDevice::new(round);
        let fails_from = 1 + prng.below(40);
        let outcome = run(&stream, device.clone(), config(), &mut prng, |step, writer, now| {
            if step == fails_from {
                // The volume is full, but existing files can still be truncated and renamed.
                let used = device.files().values().map(Vec::len).sum::<usize>() as u64;
                device.set_fault(Fault { capacity: Some(used), slow: round % 2 == 0, ..Fault::default() });
            }
            if step == 500 {
                writer.stop(now);
            }
            true
        });
        let note = format!("seed {seed} round {round}");
        assert!(outcome.done, "{note}: {:?}", &outcome.events[outcome.events.len().saturating_sub(6)..]);
        check_published(&stream, &device.files(), &note);
        let (got, model) = (outcome.totals.ledger.total(), stream.ledger().total());
        assert_eq!(got.residue(), 0, "{note}");
        assert_eq!(got.offered, model.offered, "{note}");
        let disk = got.lost[Cause::Disk as usize] - model.lost[Cause::Disk as usize];
        assert_eq!(got.stored + disk, model.stored, "{note}");
        let reported: u64 =
            outcome.events.iter().map(|e| if let Event::GaveUp { packets } = e { *packets } else { 0 }).sum();
        assert_eq!(reported, disk, "{note}");
        let mut after = outcome.events.iter().skip_while(|event| !matches!(event, Event::GaveUp { .. }));
        assert!(!after.any(|event| matches!(event, Event::Recovered { .. })), "{note}: the volume is full");
        assert_eq!(outcome.descriptors, stream.descs.len() as u64, "{note}");
        if outcome.totals.hidden == 0 {
            let in_files: u64 = device
                .files()
                .iter()
                .filter(|(path, _)| path.extension().is_some_and(|e| e == "ngi"))
                .map(|(_, bytes)| match Index::parse(bytes).expect("a published index").tail {
                    Tail::Complete(f) => f.rows.iter().map(|r| r.tally.stored).sum(),
                    Tail::Open { .. } => 0,
                })
                .sum();
            assert_eq!(in_files, got.stored, "{note}: packets counted as stored are in published files");
        }
    }
}

#[test]
fn a_failed_sync_leaves_the_file_hidden_with_all_its_bytes() {
    let mut prng = Prng::new(4);
    let mut stream = Stream::new(0);
    for _ in 0..100 {
        stream.packet(&mut prng, 1000, 0);
    }
    stream.end();
    let device = MemoryDevice::new(4);
    device.set_fault(Fault { sync_error: 1000, ..Fault::default() });
    let outcome = run_to_end(&stream, &device, &mut prng);
    assert_eq!((outcome.totals.published, outcome.totals.hidden), (0, 1));
    assert!(outcome.events.iter().any(|e| e.to_string().contains("netgrain repair")), "{:?}", outcome.events);
    assert!(device.files().values().any(|bytes| bytes == stream.at(0, stream.segments[0].end)));
    assert_eq!(outcome.totals.ledger.total().residue(), 0);
}

#[test]
fn files_of_the_same_moment_never_overwrite_each_other() {
    let mut prng = Prng::new(5);
    let device = MemoryDevice::new(5);
    for round in 1..=3 {
        let mut stream = Stream::new(0);
        stream.packet(&mut prng, 100 * round, 0);
        stream.segment();
        stream.packet(&mut prng, 10 * round, 0);
        stream.end();
        run_to_end(&stream, &device, &mut prng);
    }
    let names: Vec<String> = device.files().keys().map(|p| p.display().to_string()).collect();
    assert_eq!(names.len(), 12, "{names:#?}");
    assert!(names.contains(&"store/eth1/2026/11/21/19/20261121T194000.000000000Z_5.pcap".to_owned()), "{names:#?}");
}

#[test]
fn a_partial_sealed_index_of_a_dead_recorder_is_replaced() {
    let mut prng = Prng::new(12);
    let mut stream = Stream::new(0);
    stream.packet(&mut prng, 100, 0);
    stream.end();
    let mut device = MemoryDevice::new(12);
    let left = "store/eth1/2026/11/21/19/.20261121T194000.000000000Z.sealed.ngi.partial";
    let file = device.create(left.as_ref(), Content::Index).expect("a new file");
    device.put(file, 0, &[0x5a; 5000]).expect("enough space");
    device.close(file);
    let outcome = run_to_end(&stream, &device, &mut prng);
    check_all(&stream, &device, &outcome, "after a recorder was killed while sealing");
}

#[test]
fn records_of_any_length_fit_at_the_ends_of_blocks_and_segments() {
    let mut prng = Prng::new(6);
    // `left` is the space that the last record leaves in the block: enough for two headers and a packet, none, or
    // negative if the record crosses the end of the block.
    for left in -70i64..=120 {
        let mut stream = Stream::new(0);
        while stream.room() > 70_000 {
            stream.packet(&mut prng, 1000, 0);
        }
        let last = stream.room() as i64 - left - RECORD_HEADER as i64;
        stream.packet(&mut prng, u16::try_from(last.min(65_535)).expect("between 0 and 65535"), 0);
        if left % 3 == 0 {
            stream.tick();
        }
        if left % 2 == 0 {
            stream.segment();
        } else {
            stream.packet(&mut prng, 44, 0);
        }
        stream.packet(&mut prng, 0, 0);
        stream.lose(Cause::RingFull, 3);
        stream.end();
        let device = MemoryDevice::new(7);
        let outcome = run_to_end(&stream, &device, &mut prng);
        check_all(&stream, &device, &outcome, &format!("{left} bytes left"));
    }
}

#[test]
fn positions_beyond_two_to_the_31_32_and_55_are_handled() {
    for power in [31, 32, 55] {
        let mut prng = Prng::new(power);
        let stream = Stream::random((1 << power) - 2 * BLOCK, 1500, &mut prng);
        assert!(stream.pos() > 1 << power);
        let device = MemoryDevice::new(power);
        let outcome = run_to_end(&stream, &device, &mut prng);
        check_all(&stream, &device, &outcome, &format!("2^{power}"));
    }
}

#[test]
fn silence_gives_a_file_with_a_row_for_each_second() {
    let mut stream = Stream::new(0);
    for _ in 0..60 {
        stream.tick();
    }
    stream.segment();
    stream.end();
    let device = MemoryDevice::new(1);
    let outcome = run_to_end(&stream, &device, &mut Prng::new(1));
    check_all(&stream, &device, &outcome, "silence");
    let files = device.files();
    let (path, bytes) = files.iter().find(|(p, _)| p.ends_with("20261121T194000.000000000Z.pcap")).expect("the file");
    assert_eq!(bytes.len(), 24);
    let index = Index::parse(&files[&path.with_extension("ngi")]).expect("its index");
    let Tail::Complete(footer) = index.tail else { panic!("no footer") };
    assert_eq!(footer.rows.iter().count(), 60);
    assert!(footer.rows.iter().all(|r| r.tally.is_empty()));
    assert_eq!(footer.end.nanos(), common::START + 60 * SECOND);
}

#[test]
fn an_idle_week_takes_few_bytes_and_gaps_are_not_silence() {
    const WEEK: usize = 7 * 86_400;
    let mut prng = Prng::new(11);
    let mut stream = Stream::new(0);
    for second in 0..WEEK {
        if second == 5000 {
            // Simulates ten seconds without a recorder.
            stream.now += 10 * SECOND;
        }
        stream.tick();
    }
    stream.packet(&mut prng, 100, 0);
    stream.tick();
    stream.packet(&mut prng, 100, 0);
    stream.end();
    let device = MemoryDevice::new(1);
    let outcome = run_to_end(&stream, &device, &mut prng);
    let files = device.files();
    let bytes = files.iter().find(|(p, _)| p.extension().is_some_and(|e| e == "ngi")).expect("an index").1;
    // 900 bytes are enough for header, summary, ledger rows, and the sub-blocks and timestamps of one block.
    assert!(bytes.len() < 900, "{} bytes of index for two packets", bytes.len());
    let index = Index::parse(bytes).expect("a valid index");
    let Tail::Complete(footer) = index.tail else { panic!("no footer") };
    for rows in [&footer.rows, &index.entries[0].rows, &outcome.totals.ledger] {
        assert_eq!(rows.runs().count(), 4, "{rows:?}");
        // The first packet adds no row, because its second already has the row of a tick.
        assert_eq!(rows.iter().count(), WEEK + 1);
        let first = common::START / SECOND + 1;
        let watched = |second: u64| rows.runs().any(|r| (r.second..r.second + r.seconds).contains(&(first + second)));
        assert!(watched(4999) && !watched(5000) && !watched(5009) && watched(5010));
    }
}

#[test]
fn the_next_tick_writes_a_packet_and_no_stale_bytes_after_it() {
    let mut prng = Prng::new(9);
    let mut stream = Stream::new(0);
    stream.packet(&mut prng, 500, 0);
    stream.tick();
    let end = stream.pos();
    // The producer of the test writes more bytes into the same page of the ring, without publishing these bytes yet.
    stream.packet(&mut prng, 3000, 0);
    stream.descs.pop();
    let device = MemoryDevice::new(9);
    run(&stream, device.clone(), config(), &mut prng, |step, _, _| step < 50);
    let files = device.files();
    let hidden = |ending: &str| {
        let name = format!(".20261121T194000.000000000Z.{ending}.partial");
        files.iter().find(|(p, _)| p.ends_with(&name)).expect("the hidden file").1
    };
    let data = hidden("pcap");
    assert_eq!(data[..end as usize], *stream.at(0, end));
    assert!(data[end as usize..].iter().all(|b| *b == 0), "stale bytes after the last packet");
    let index = Index::parse(hidden("ngi")).expect("an open index");
    assert!(matches!(index.tail, Tail::Open { .. }));
    assert_eq!((index.entries.len(), index.entries[0].tally().stored), (1, 1));
}

#[test]
fn a_jump_in_the_stream_is_an_error_and_the_packets_before_it_are_published() {
    let mut prng = Prng::new(10);
    let mut stream = Stream::new(0);
    stream.packet(&mut prng, 100, 0);
    let mut jump = stream.descs[1];
    jump.annotated_pos = ring::AnnotatedPosition::new(jump.pos() + 1);
    let memory = stream.memory();
    let mut cutter = netgrain_recorder::cutter::Cutter::new(memory);
    let mut jobs = Vec::new();
    stream.descs.push(jump);
    let error = cutter.read_descriptors(&stream.descs, &mut jobs).expect_err("a jump");
    assert!(error.to_string().contains("from position 140 to 25"), "{error}");
    cutter.finish(&mut jobs);
    let device = MemoryDevice::new(10);
    let mut writer = netgrain_recorder::Writer::new(device.clone(), config());
    jobs.into_iter().for_each(|job| writer.accept(job));
    for _ in 0..50 {
        writer.step(Duration::ZERO, Duration::ZERO);
    }
    stream.descs.pop();
    stream.end();
    assert!(writer.is_done());
    assert_eq!(check_published(&stream, &device.files(), "jump"), [0]);
}

#[test]
fn a_power_failure_loses_no_packet_older_than_two_seconds() {
    let seed = testkit::seed("a_power_failure_loses_no_packet_older_than_two_seconds");
    let mut prng = Prng::new(seed);
    let mut stream = Stream::new(0);
    for packet in 0..400 {
        stream.now += SECOND / 10;
        let caplen = 60 + prng.below(30_000) as u16;
        stream.packet(&mut prng, caplen, 0);
        if packet % 10 == 9 {
            stream.tick();
        }
    }
    let memory = stream.memory();
    let mut cutter = netgrain_recorder::cutter::Cutter::new(Arc::clone(&memory) as Arc<dyn store::Bytes>);
    let device = MemoryDevice::new(seed);
    device.set_fault(Fault { slow: true, ..Fault::default() });
    let mut writer = netgrain_recorder::Writer::new(device.clone(), config());
    // For each time at which bytes were written: the stream position up to which the stream was then on the volume.
    let mut written: Vec<(Duration, u64)> = Vec::new();
    let (mut now, mut checks) = (Duration::ZERO, 0);
    // There is no end descriptor among the descriptors, so the packet file stays open.
    for batch in stream.descs.chunks(4) {
        let mut jobs = Vec::new();
        cutter.read_descriptors(batch, &mut jobs).expect("a valid stream");
        jobs.into_iter().for_each(|job| writer.accept(job));
        for _ in 0..5 {
            now += Duration::from_millis(20);
            writer.step(now, Duration::ZERO);
        }
        written.push((now, writer.released().pos));
        let Some((_, safe)) = written.iter().rev().find(|(at, _)| *at + Duration::from_secs(2) <= now) else {
            continue;
        };
        // Three states of the volume after a power failure: only the synced content, which survives any power failure,
        // and two random states, in which some of the later writes have survived too, perhaps torn at any byte.
        for files in [device.synced(), device.surviving(&mut prng), device.surviving(&mut prng)] {
            let end = stream.base + verified_bytes(&files);
            assert!(end >= *safe, "seed {seed}, {now:?}: {safe} was written two seconds ago, {end} has survived");
            checks += usize::from(end > stream.base);
        }
    }
    assert!(checks > 30, "only {checks} files were checked");
}

/// Number of bytes of the open file whose checksums in the valid index entries are correct.
fn verified_bytes(files: &Surviving) -> u64 {
    let is = |path: &str, ending: &str| path.ends_with(ending) && !path.contains(store::names::PREPARED);
    let open = |ending: &str| files.iter().find(|(path, _)| is(&path.to_string_lossy(), ending)).map(|(_, b)| b);
    let (Some(packets), Some(index)) = (open(".pcap.partial"), open(".ngi.partial")) else { return 0 };
    let Ok(reader) = index::Reader::open(&&index[..]) else { return 0 };
    let holds = |at: u64, bytes: u32, crc: u32| {
        let bytes = packets.get(at as usize..).and_then(|b| b.get(..bytes as usize));
        bytes.is_some_and(|bytes| crc32c::crc32c(bytes) == crc)
    };
    let mut end = 0;
    for block in reader.blocks() {
        let at = u64::from(block.number) * BLOCK;
        if holds(at, block.bytes, block.crc) {
            end = at + u64::from(block.bytes);
            continue;
        }
        let earlier = reader.earlier().iter().filter(|e| e.block == block.number && holds(at, e.bytes, e.crc));
        return earlier.map(|e| at + u64::from(e.bytes)).max().unwrap_or(end);
    }
    end
}

/// A segment without packets and ledger rows consists of its file header. If the header cannot be written before the
/// recorder gives up, no such file is published.
#[test]
fn a_segment_whose_header_cannot_be_written_is_not_published() {
    for fails_from in 0..30 {
        let mut prng = Prng::new(fails_from);
        let mut stream = Stream::new(0);
        stream.packet(&mut prng, 60, 0);
        (0..4).for_each(|_| stream.segment());
        stream.end();
        let device = MemoryDevice::new(fails_from);
        let outcome = run(&stream, device.clone(), config(), &mut prng, |step, writer, now| {
            if step == fails_from {
                let used = device.files().values().map(Vec::len).sum::<usize>() as u64;
                device.set_fault(Fault { capacity: Some(used), slow: true, ..Fault::default() });
            }
            if step == 500 {
                writer.stop(now);
            }
            true
        });
        assert!(outcome.done, "from step {fails_from}");
        check_published(&stream, &device.files(), &format!("from step {fails_from}"));
    }
}
