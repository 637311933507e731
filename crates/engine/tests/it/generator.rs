//! Tests of the transmit method that the generator chooses, on a veth pair in a network namespace. Without the
//! privilege the tests report that they are skipped.

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

/// Runs `test_body` on a new thread in a new network namespace with the interfaces `a` and `b`.
fn on_a_private_pair(test: &str, test_body: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let test_body = || match private_pair("a", "b", 1500) {
            Ok(()) => test_body(),
            Err(error) => testkit::skip(test, &format!("cannot create a network namespace: {error}; run as root")),
        };
        scope.spawn(test_body).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

fn open(text: &str, method: Method) -> Generator {
    Generator::open(&spec(text), "a", 0, method).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn live_frames_reject_unsuitable_traffic() {
    on_a_private_pair("live_frames_reject_unsuitable_traffic", || {
        for text in ["imix", "60,order=heavy"] {
            let error = Generator::open(&spec(text), "a", 0, Method::LiveFrames).err().expect("an error");
            assert!(error.to_string().starts_with("a: live frames have one size"), "{text}: {error}");
        }
    });
}

#[test]
fn the_transmit_method_depends_on_traffic_and_interface() {
    on_a_private_pair("the_transmit_method_depends_on_traffic_and_interface", || {
        assert_eq!(open("60", Method::Auto).description(), "live frames on a");
        assert_eq!(open("imix", Method::Auto).description(), "AF_XDP transmit on a queue 0");
        assert_eq!(open("60,rate=1kpps", Method::Auto).description(), "AF_XDP transmit on a queue 0");
        assert_eq!(open("60,rate=1kpps", Method::LiveFrames).description(), "live frames on a");
        assert_eq!(open("60", Method::AfXdp).description(), "AF_XDP transmit on a queue 0");
        sys::ethtool::Offload::Gro.set("b", false).expect("GRO off");
        let generator = open("60", Method::Auto);
        let description = generator.description();
        assert!(
            description.starts_with("AF_XDP transmit on a queue 0 (no live frames: a: the peer does not accept XDP"),
            "{description}"
        );
    });
}

/// The receiving interface has no XDP program, so the frames pass GRO, which must not merge them.
#[test]
fn both_transmit_methods_send_the_reported_frames_unmerged() {
    on_a_private_pair("both_transmit_methods_send_the_reported_frames_unmerged", || {
        let one_flow = "200,flows=1";
        for (method, text) in
            [(Method::LiveFrames, one_flow), (Method::AfXdp, one_flow), (Method::LiveFrames, "200,flows=1,rate=50kpps")]
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
