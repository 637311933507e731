//! Tests a recorder that is stopped while the volume refuses writes: after recovery, the store contains exactly the
//! packets that the recorder counted as stored.

use crate::common;

use base::{Cause, Prng};
use common::{Stream, check, check_clean, config, recover, run};
use netgrain_recorder::Config;
use std::time::Duration;
use store::device::{Fault, MemoryDevice};

/// A stream in which every block ends within a packet, with one or more seconds between packets.
fn stream(prng: &mut Prng, packets: u64) -> Stream {
    let mut stream = Stream::new(0);
    for packet in 0..packets {
        stream.now += SECOND_PART;
        let caplen = 900 + prng.below(300) as u16;
        stream.packet(prng, caplen, 0);
        if packet % 700 == 699 {
            stream.tick();
        }
        if packet % 900 == 13 {
            stream.lose(Cause::RingFull, 3);
        }
    }
    stream.end();
    stream
}

const SECOND_PART: u64 = common::SECOND / 1000;

#[test]
fn a_stop_on_a_full_volume_counts_exactly_what_recovery_finds() {
    let test = "a_stop_on_a_full_volume_counts_exactly_what_recovery_finds";
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let stream = stream(&mut prng, 6000);
    let (mut hidden, mut lost) = (0, 0);
    for round in 0..40 {
        // The capacity is a random number of bytes between less than a block and nearly all data, so that writes of
        // packets or writes of the index fail.
        let capacity = (200 << 10) + prng.below(6 << 20);
        let note = format!("seed {seed}, round {round}, {capacity} bytes");
        let device = MemoryDevice::new(seed ^ round);
        let full = |capacity| Fault { capacity: Some(capacity), slow: round % 2 == 1, ..Fault::default() };
        device.set_fault(full(capacity));
        let config = Config { allocate: 0, grace: Duration::from_millis(50), ..config() };
        let outcome = run(&stream, device.clone(), config, &mut prng, |_, writer, now| {
            writer.stop(now);
            if round % 3 > 0 && writer.retry_at().is_some() {
                // Other users take all freed space, so that there is no space for a sealed index either.
                device.set_fault(full(0));
            }
            true
        });
        assert!(outcome.done, "{note}: the recorder has not ended");
        let reported = outcome.totals.ledger.total();
        assert_eq!((reported.residue(), reported.offered), (0, stream.ledger().total().offered), "{note}");
        device.set_fault(Fault::default());
        let events = recover(device.clone());
        let files = device.files();
        check_clean(&files, &events, &note);
        let published = check(&stream, &files, &note);
        assert_eq!(published.tally.stored, reported.stored, "{note}: {events:#?}");
        assert!(!files.keys().any(|p| p.to_string_lossy().ends_with(".damaged")), "{note}: {:?}", files.keys());
        if published.files > 0 && outcome.totals.hidden > 0 {
            hidden += 1;
            // Recovery counts the truncated packet as lost by a crash, because it cannot distinguish a file that the
            // recorder ended early from the file of a crashed recorder.
            let given_up = published.tally.lost[Cause::Disk as usize] + published.tally.lost[Cause::Crash as usize];
            assert_eq!(given_up, reported.lost[Cause::Disk as usize], "{note}: {events:#?}");
            assert_eq!(published.tally.offered, reported.offered, "{note}");
            lost += given_up;
        }
    }
    assert!(hidden > 5 && lost > 0, "seed {seed}: {hidden} files were left hidden, with {lost} packets lost");
}
