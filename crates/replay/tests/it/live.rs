//! Replays on veth interfaces in a network namespace: order, content and counts. Times are not asserted.

use crate::support::{Packet, capture, numbered, plain, stream_of};
use base::Prng;
use netgrain_replay::control::SignalFlags;
use netgrain_replay::{
    Control, Interface, Method, Outputs, Pace, Preparation, Preparer, ReadAhead, Report, Rewrite, Rewriter,
    SecondInterface, SystemClock, replay,
};
use std::time::Duration;
use testkit::{RawReader, Sandbox};

/// The time without frames after which no more frames are expected.
const QUIET: Duration = Duration::from_millis(300);

fn replay_all(captures: Vec<Vec<u8>>, mut interfaces: Vec<Interface>, preparation: Preparation, pace: Pace) -> Report {
    let control = Control::new(pace, SignalFlags::default());
    let mut preparation = preparation;
    for (longest, interface) in preparation.longest.iter_mut().zip(&interfaces) {
        *longest = interface.longest();
    }
    let preparer = Preparer::new(preparation, Rewriter::new(Rewrite::default()));
    let input = ReadAhead::start(stream_of(captures), 1, preparer, 1 << 20).unwrap();
    let names = interfaces.iter().map(|i| (i.name().to_owned(), i.method().to_owned())).collect();
    let outputs = Outputs { outputs: &mut interfaces, names };
    let (report, outcome) = replay(input, outputs, None, &control, SystemClock, |_| {});
    outcome.unwrap();
    assert_eq!((report.packets.residue(), report.frames), (0, report.sent + report.dropped + report.unsent));
    report
}

fn is_ours(frame: &[u8]) -> bool {
    frame.get(6..12) == Some(&[2, 0, 0, 0, 0, 1])
}

#[test]
fn an_interface_that_is_down_or_missing_is_refused_with_advice() {
    let Some(sandbox) = Sandbox::new("an_interface_that_is_down_or_missing_is_refused_with_advice") else { return };
    let (a, _b) = sandbox.veth("replaya", "replayb");
    for method in [Method::Auto, Method::AfXdp, Method::PacketSocket] {
        let error = Interface::open("nosuch", 0, method).map(drop).unwrap_err().to_string();
        assert!(error.contains("nosuch"), "{error}");
    }
    sandbox.set_up(&a, false);
    let error = Interface::open(&a.name, 0, Method::Auto).map(drop).unwrap_err().to_string();
    assert!(error.contains("ip link set replaya up"), "{error}");
}

#[test]
fn all_frames_arrive_in_order_by_both_methods_and_at_every_pace() {
    let test = "all_frames_arrive_in_order_by_both_methods_and_at_every_pace";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, b) = sandbox.veth("replaya", "replayb");
    let mut prng = Prng::new(11);
    let mut ts = 0;
    let packets: Vec<Packet> = (0..2000)
        .map(|number| {
            ts += prng.below(200_000);
            (ts, numbered(number, 60 + prng.below(1455) as usize))
        })
        .collect();
    let too_long = (ts, numbered(9999, 1515));
    let all = [&packets[..], &[too_long]].concat();
    for method in [Method::AfXdp, Method::PacketSocket] {
        for pace in ["original", "20kpps", "100Mbit", "flat"] {
            let mut reader = RawReader::new(&b);
            let interface = Interface::open(&a.name, 0, method).unwrap();
            let report = replay_all(vec![capture(&all)], vec![interface], plain(), pace.parse().unwrap());
            assert_eq!((report.packets.over_mtu, report.frames, report.unsent), (1, 2000, 0), "{method:?} {pace}");
            // A veth interface may drop frames when the ring of its peer is full; they are counted.
            let received = reader.at_least(report.sent as usize, QUIET, is_ours);
            assert_eq!(received.len() as u64, report.sent, "{method:?} {pace}");
            let mut expected = packets.iter().map(|(_, bytes)| bytes);
            assert!(received.iter().all(|frame| expected.any(|packet| packet == frame)), "{method:?} {pace}");
            if method == Method::PacketSocket {
                assert_eq!(report.dropped, 0, "{report:?}");
            }
        }
    }
}

#[test]
fn two_interfaces_get_the_two_inputs() {
    let Some(sandbox) = Sandbox::new("two_interfaces_get_the_two_inputs") else { return };
    let (a, b) = sandbox.veth("replaya", "replayb");
    let (c, d) = sandbox.veth("replayc", "replayd");
    let side = |first: u32| -> Vec<Packet> {
        (0..300).map(|n| (u64::from(n) * 20_000 + u64::from(first), numbered(first + n, 60))).collect()
    };
    let (left, right) = (side(0), side(10_000));
    let (mut at_b, mut at_d) = (RawReader::new(&b), RawReader::new(&d));
    let interfaces = [&a, &c].map(|port| Interface::open(&port.name, 0, Method::PacketSocket).unwrap()).into();
    let preparation = Preparation { second: Some(SecondInterface::OtherInputs), ..plain() };
    let report = replay_all(vec![capture(&left), capture(&right)], interfaces, preparation, Pace::ORIGINAL);
    assert_eq!(report.interfaces.iter().map(|i| (i.sent, i.bytes)).collect::<Vec<_>>(), [(300, 18_000); 2]);
    for (reader, packets) in [(&mut at_b, left), (&mut at_d, right)] {
        let received = reader.at_least(300, QUIET, is_ours);
        assert!(received.iter().eq(packets.iter().map(|(_, bytes)| bytes)));
    }
}
