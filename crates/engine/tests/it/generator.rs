//! How the generator chooses its way onto a port, on a private pair of ports. Skipped by name without the privilege.

use netgrain_engine as engine;

use capture::tpacket::{self, TpacketConfig};
use capture::{Polled, Source};
use engine::{Generator, Method, Sent, private_pair};
use r#gen::Spec;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const FRAMES: u64 = 5000;

fn spec(text: &str) -> Spec {
    Spec { packets: Some(FRAMES), ..format!("{text},truth").parse().expect("a specification") }
}

/// Runs `story` on a thread of its own, in a network of its own with the ports `a` and `b`.
fn on_a_private_pair(test: &str, story: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let story = || match private_pair("a", "b", 1500) {
            Ok(()) => story(),
            Err(error) => testkit::skip(test, &format!("no network of its own: {error}; run as root")),
        };
        scope.spawn(story).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

fn open(text: &str, method: Method) -> Generator {
    Generator::open(&spec(text), "a", 0, method).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn live_frames_are_refused_to_traffic_that_is_not_for_them() {
    on_a_private_pair("live_frames_are_refused_to_traffic_that_is_not_for_them", || {
        for text in ["imix", "60,order=heavy"] {
            let refused = Generator::open(&spec(text), "a", 0, Method::LiveFrames).err().expect("a refusal");
            assert!(refused.to_string().starts_with("a: live frames have one size"), "{text}: {refused}");
        }
    });
}

#[test]
fn the_way_is_chosen_by_traffic_and_port() {
    on_a_private_pair("the_way_is_chosen_by_traffic_and_port", || {
        assert_eq!(open("60", Method::Auto).description(), "live frames on a");
        assert_eq!(open("imix", Method::Auto).description(), "AF_XDP transmit on a queue 0");
        assert_eq!(open("60,rate=1kpps", Method::Auto).description(), "AF_XDP transmit on a queue 0");
        assert_eq!(open("60,rate=1kpps", Method::LiveFrames).description(), "live frames on a");
        assert_eq!(open("60", Method::AfXdp).description(), "AF_XDP transmit on a queue 0");
        sys::ethtool::Offload::Gro.set("b", false).expect("GRO off");
        let generator = open("60", Method::Auto);
        let why = generator.description();
        assert!(
            why.starts_with("AF_XDP transmit on a queue 0 (no live frames: a: the peer does not accept XDP"),
            "{why}"
        );
    });
}

/// The receiver has no XDP program, so the pair's GRO handles the frames: as many must arrive as were sent, none
/// longer.
#[test]
fn both_ways_send_exactly_what_they_say_and_nothing_is_merged() {
    on_a_private_pair("both_ways_send_exactly_what_they_say_and_nothing_is_merged", || {
        let flat = "200,flows=1";
        for (method, text) in
            [(Method::LiveFrames, flat), (Method::AfXdp, flat), (Method::LiveFrames, "200,flows=1,rate=50kpps")]
        {
            let mut source = tpacket::open(&TpacketConfig::new("b")).unwrap_or_else(|e| panic!("{e}")).remove(0);
            let sent = open(text, method).run(&AtomicBool::new(false), |_| ()).unwrap_or_else(|e| panic!("{e}"));
            let expected = Sent { made: FRAMES, sent: FRAMES, dropped: 0, bytes: 200 * FRAMES, nanos: sent.nanos };
            assert_eq!(sent, expected, "{method:?} {text}");
            source.stop();
            let mut lengths = Vec::new();
            while source.poll(512, Duration::from_millis(20), |f| lengths.push(f.wire_len)).expect("poll")
                != Polled::End
            {}
            assert_eq!(lengths, vec![200; FRAMES as usize], "{method:?}");
        }
    });
}
