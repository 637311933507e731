//! The sending loop with a simulated clock.

use crate::support::{Case, Packet, capture, numbered};
use base::Prng;
use netgrain_replay::control::Command;
use netgrain_replay::{Pace, ReplayError, Rewrite};
use std::time::Duration;

const MS: u64 = 1_000_000;

/// Random packets with intervals from 0 to several milliseconds.
fn packets(prng: &mut Prng, count: u64) -> Vec<Packet> {
    let mut ts = 1_795_257_720_000 * MS;
    let packet = |number| {
        ts += [0, prng.below(1000), prng.below(300_000), prng.below(5 * MS)][prng.below(4) as usize];
        (ts, numbered(number as u32, 60 + prng.below(1455) as usize))
    };
    (0..count).map(packet).collect()
}

#[test]
fn an_output_that_fails_ends_the_replay_with_its_error_and_all_counts() {
    let packets: Vec<Packet> = (0..100).map(|n| (u64::from(n) * MS, numbered(n, 60))).collect();
    let mut case = Case::new(&packets, "original");
    case.simulation.fails_after = 40;
    let (report, outcome, sent) = case.run();
    assert!(matches!(outcome, Err(ReplayError::Output(_))));
    assert_eq!((sent.len(), report.sent, report.unsent), (40, 40, 60));
}

#[test]
fn frames_leave_when_they_are_due_in_their_order() {
    let seed = testkit::seed("frames_leave_when_they_are_due_in_their_order");
    let mut prng = Prng::new(seed);
    for (speed, factor) in [("original", 1.0), ("2x", 2.0), ("0.25x", 0.25)] {
        let packets = packets(&mut prng, 2000);
        let (report, outcome, sent) = Case::new(&packets, speed).run();
        assert!(outcome.is_ok());
        let origin = sent[0].1;
        for ((ts, bytes), (output, at, frame)) in packets.iter().zip(&sent) {
            let due = ((ts - packets[0].0) as f64 / factor) as u64;
            // A frame that is not overdue leaves at most one reading of the clock after its due time. A batch of
            // overdue frames needs 100 ns for each frame.
            let late = (at - origin) as i64 - due as i64;
            assert!((-80..20_000).contains(&late), "{speed}: {late} ns late, seed {seed}");
            assert!(*output == 0 && frame == bytes);
        }
        assert_eq!((sent.len(), report.passes), (2000, 1));
        assert!(report.duration_error_nanos().abs() < 20_000, "{report:?}");
        assert_eq!(report.gap_errors.gaps, 1999);
        assert!(report.gap_errors.p50_nanos < 200, "{report:?}");
        assert!(report.is_complete());
    }
}

#[test]
fn rates_space_the_frames() {
    let packets: Vec<Packet> = (0..50).map(|n| (7, numbered(n, 100))).collect();
    for (speed, gap) in [("1kpps", MS), ("400kbit", 2 * MS)] {
        let (report, _, sent) = Case::new(&packets, speed).run();
        for (number, (_, at, _)) in sent.iter().enumerate() {
            let late = at - sent[0].1 - (number as u64 * gap).min(at - sent[0].1);
            assert!(late < 1000, "{speed}: frame {number} is {late} ns late");
        }
        assert_eq!(report.scheduled_nanos, 49 * gap);
    }
    let (report, _, sent) = Case::new(&packets, "flat").run();
    assert_eq!((sent.len(), report.gap_errors.gaps, report.scheduled_nanos), (50, 0, 0));
}

#[test]
fn overdue_frames_are_sent_at_once_until_the_replay_is_on_time() {
    // Sending a frame takes 2 ms, but a frame is due every millisecond. After 100 frames, the next frame is due about a
    // second later, so the replay is on time again.
    let mut packets: Vec<Packet> = (0..100).map(|n| (u64::from(n) * MS, numbered(n, 60))).collect();
    packets.push((1100 * MS, numbered(100, 60)));
    let mut case = Case::new(&packets, "original");
    case.simulation.cost = 2 * MS;
    let (report, _, sent) = case.run();
    assert!((report.duration_error_nanos()).abs() < 1000, "{report:?}");
    assert!(report.late_max_nanos > 50 * MS);
    assert_eq!(sent.len(), 101);
}

#[test]
fn a_pause_moves_all_later_frames_by_its_length() {
    let packets: Vec<Packet> = (0..10).map(|n| (u64::from(n) * 100 * MS, numbered(n, 60))).collect();
    let mut case = Case::new(&packets, "original");
    case.simulation.commands = vec![(450 * MS, Command::Pause), (2000 * MS, Command::Resume)];
    let (report, _, sent) = case.run();
    let at: Vec<u64> = sent.iter().map(|(_, at, _)| (at - sent[0].1 + MS / 2) / MS).collect();
    assert_eq!(at[..5], [0, 100, 200, 300, 400]);
    for (number, at) in at[5..].iter().enumerate() {
        assert!((2049..=2052).contains(&(at - 100 * number as u64)), "{at}");
    }
    assert!((1540 * MS..1560 * MS).contains(&report.paused_nanos), "{report:?}");
    assert!(report.duration_error_nanos().abs() < 10_000, "pauses are no error of the duration: {report:?}");
    assert!(report.gap_errors.max_nanos < 10_000, "pauses are no error of a gap: {report:?}");
}

#[test]
fn a_stop_of_the_process_is_a_pause_of_the_length_of_the_stop() {
    let packets: Vec<Packet> = (0..10).map(|n| (u64::from(n) * 100 * MS, numbered(n, 60))).collect();
    // The first stop ends long after the waiting frame is due, the second stop ends before.
    for (begin, length) in [(450 * MS, 2000 * MS), (410 * MS, 30 * MS)] {
        let mut case = Case::new(&packets, "original");
        case.simulation.stops = vec![(begin, length)];
        let (report, _, sent) = case.run();
        let at: Vec<u64> = sent.iter().map(|(_, at, _)| at - sent[0].1).collect();
        for (number, at) in at.iter().enumerate() {
            let due = number as u64 * 100 * MS + if number >= 5 { length } else { 0 };
            assert!(at.abs_diff(due) < 2 * MS, "frame {number} at {at} ns, due at {due} ns");
        }
        assert!(report.paused_nanos.abs_diff(length) < 2 * MS, "{report:?}");
        assert!(report.duration_error_nanos().abs() < 10_000, "{report:?}");
    }
}

#[test]
fn sigcont_without_a_stop_changes_nothing() {
    let packets: Vec<Packet> = (0..100).map(|n| (u64::from(n) * MS, numbered(n, 60))).collect();
    // With 100 Mpps each frame is overdue, with 1kpps the loop sleeps, and with `flat` no frame has a due time.
    for (pace, cost) in [("original", 100), ("100Mpps", 5000), ("1kpps", 100), ("flat", 5000)] {
        let run = |stops: &[(u64, u64)]| {
            let mut case = Case::new(&packets, pace);
            (case.simulation.stops, case.simulation.cost) = (stops.to_vec(), cost);
            case.run()
        };
        let (plain, _, _) = run(&[]);
        let (report, outcome, sent) = run(&[(1000, 0), (200_000, 0), (400_000, 0), (41 * MS, 0)]);
        assert!(outcome.is_ok() && sent.len() == 100);
        // A sleep takes 60 µs longer than requested, which cannot be distinguished from a stop of this length. The
        // clock is not read while a batch of 64 frames is passed, so the time of a batch can count too.
        let most = if cost > 1000 { 4 * 64 * cost } else { 4 * 70_000 };
        assert!(report.paused_nanos <= most, "{pace}: {report:?}");
        assert!((report.nanos + report.paused_nanos).abs_diff(plain.nanos) <= most, "{pace}: {report:?}\n{plain:?}");
    }
}

#[test]
fn a_stop_of_a_flat_replay_is_no_part_of_its_duration() {
    let packets: Vec<Packet> = (0..1000).map(|n| (0, numbered(n, 60))).collect();
    let mut case = Case::new(&packets, "flat");
    (case.simulation.stops, case.simulation.cost) = (vec![(3 * MS, 5000 * MS)], 10_000);
    let (report, _, _) = case.run();
    assert!((9 * MS..11 * MS).contains(&report.nanos), "{report:?}");
    assert!(report.paused_nanos.abs_diff(5000 * MS) < MS, "{report:?}");
}

#[test]
fn a_flat_replay_lasts_until_the_last_frame_is_passed() {
    let packets: Vec<Packet> = (0..10).map(|n| (0, numbered(n, 60))).collect();
    let (report, _, _) = Case::new(&packets, "flat").run();
    // All frames are one batch, and each frame takes 100 ns.
    assert!((1000..2000).contains(&report.nanos), "{report:?}");
}

#[test]
fn a_changed_speed_applies_to_the_frame_that_waits() {
    let packets: Vec<Packet> = (0..10).map(|n| (u64::from(n) * 1000 * MS, numbered(n, 60))).collect();
    let mut case = Case::new(&packets, "original");
    let command = |text: &str| text.parse::<Command>().unwrap();
    case.simulation.commands =
        vec![(1500 * MS, command("speed 2x")), (2750 * MS, command("speed 10pps")), (2950 * MS, command("speed flat"))];
    let (report, _, sent) = case.run();
    let at: Vec<u64> = sent.iter().map(|(_, at, _)| (at - sent[0].1 + MS / 2) / (10 * MS)).collect();
    // Due times: 0 s and 1 s with the original pace; 1.5 s, 2.0 s and 2.5 s with 2x; then every 100 ms from 2.75 s on;
    // the rest at once.
    assert_eq!(at[..7], [0, 100, 150, 200, 250, 275, 285]);
    assert!(at[7..].iter().all(|at| (290..=296).contains(at)), "{at:?}");
    assert_eq!(report.speed, "flat");
}

#[test]
fn a_stop_ends_the_replay_and_the_frames_that_were_read_count_as_unsent() {
    let packets: Vec<Packet> = (0..1000).map(|n| (u64::from(n) * MS, numbered(n, 60))).collect();
    let mut case = Case::new(&packets, "original");
    case.passes = 0;
    case.simulation.commands = vec![(2500 * MS, Command::Stop)];
    let (report, outcome, sent) = case.run();
    assert!(outcome.is_ok() && report.stopped && !report.is_complete());
    assert!((2490..=2502).contains(&sent.len()), "{} frames", sent.len());
    assert_eq!(report.passes, 2);
}

#[test]
fn an_output_that_takes_few_frames_at_once_gets_all_in_order() {
    let packets: Vec<Packet> = (0..500).map(|n| (5, numbered(n, 60))).collect();
    let mut case = Case::new(&packets, "flat");
    case.simulation.room = 3;
    let (_, _, sent) = case.run();
    assert!(sent.iter().map(|(_, _, bytes)| bytes).eq(packets.iter().map(|(_, bytes)| bytes)));
}

#[test]
fn passes_and_copies_multiply_the_frames() {
    let mut prng = Prng::new(6);
    let packets = packets(&mut prng, 700);
    let mut case = Case::new(&packets, "flat");
    (case.passes, case.rewrite) = (3, Rewrite { copies: 11, ..Rewrite::default() });
    let (report, _, sent) = case.run();
    assert_eq!((report.packets.replayed, report.frames, report.passes), (2100, 2100 * 11, 3));
    // The frames have no addresses, so all copies are equal.
    let expected = (0..3).flat_map(|_| packets.iter()).flat_map(|(_, bytes)| (0..11).map(move |_| bytes));
    assert!(sent.iter().map(|(_, _, bytes)| bytes).eq(expected));
}

#[test]
fn a_capture_without_frames_ends_even_without_a_limit_of_passes() {
    let mut case = Case::new(&[], "original");
    case.passes = 0;
    let (report, outcome, sent) = case.run();
    assert!(outcome.is_ok() && sent.is_empty() && report.is_complete());
}

#[test]
fn long_gaps_are_shortened_on_request_and_steps_back_are_counted() {
    let times = [0, 10, 1_000_000, 500, 501];
    let packets: Vec<Packet> = times.iter().map(|ms| (ms * MS, numbered(1, 60))).collect();
    let mut case = Case::new(&packets, "original");
    case.max_gap = Some(Duration::from_millis(50));
    let (report, _, sent) = case.run();
    let at: Vec<u64> = sent.iter().map(|(_, at, _)| (at - sent[0].1 + MS / 2) / MS).collect();
    assert_eq!(at, [0, 10, 60, 60, 61]);
    assert_eq!((report.shortened_gaps, report.out_of_order, report.steps_back), (1, 0, 1));
}

#[test]
fn a_damaged_file_is_sent_up_to_the_damage_and_reported_once() {
    let packets: Vec<Packet> = (0..5).map(|n| (u64::from(n), numbered(n, 60))).collect();
    let mut case = Case::new(&packets, "flat");
    let mut bytes = capture(&packets);
    bytes.truncate(bytes.len() - 1);
    (case.captures, case.passes, case.pace) = (vec![bytes], 2, Pace::FLAT);
    let (report, outcome, sent) = case.run();
    assert!(outcome.is_ok());
    assert_eq!((sent.len(), report.damaged.len()), (8, 1));
    assert!(!report.is_complete());
}

#[test]
fn an_input_that_is_no_capture_is_an_error() {
    let mut case = Case::new(&[], "original");
    case.captures = vec![b"no capture".to_vec()];
    let (_, outcome, _) = case.run();
    assert!(outcome.is_err_and(|e| e.to_string().starts_with("capture 0: ")));
}
