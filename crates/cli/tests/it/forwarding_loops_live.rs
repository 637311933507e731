//! An engine does not forward packets that an engine has forwarded already. The tests have one engine that forwards to
//! the interface that it captures, and two engines of which each forwards to the interface of the other.
//!
//! TPACKET also captures the packets that the host sends through an interface, so each forwarded packet is captured
//! again.

use crate::common;
use crate::workspace;

use common::{Running, until};
use std::time::Duration;
use testkit::{RawReader, RawSender};
use workspace::Testbed;

/// If no packet arrives within this time, the test expects no further packets. If packets were forwarded in a loop, one
/// would arrive every 1 to 2 ms.
const QUIET: Duration = Duration::from_millis(500);

/// Numbered ARP requests, which every packaged firewall passes.
fn requests(count: u8) -> Vec<Vec<u8>> {
    let request = |n| {
        let mut frame = vec![0; 80];
        frame[..6].fill(0xff);
        frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
        frame[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        frame[79] = n;
        frame
    };
    (0..count).map(request).collect()
}

fn is_request(frame: &[u8]) -> bool {
    frame.len() == 80 && frame[12..14] == [8, 6]
}

/// Reads packets until none arrives for [`QUIET`], and returns the ARP requests among them.
fn received(reader: &mut RawReader) -> Vec<Vec<u8>> {
    // If packets loop, the limit of 2000 packets ends the test.
    std::iter::from_fn(|| reader.next(QUIET)).take(2000).filter(|frame| is_request(frame)).collect()
}

/// Waits for at least `count` ARP requests, then reads packets until none arrives for [`QUIET`]; returns all ARP
/// requests.
fn received_at_least(reader: &mut RawReader, count: usize) -> Vec<Vec<u8>> {
    let mut all = reader.at_least(count, Duration::ZERO, is_request);
    all.extend(received(reader));
    all
}

#[test]
fn a_packet_forwarded_to_its_own_interface_is_sent_once() {
    let Some(testbed) = Testbed::new("a_packet_forwarded_to_its_own_interface_is_sent_once") else { return };
    let engine = testbed.engine("netgrain record -i eth1 --store /data/store --source-kind tpacket");
    let sent = requests(20);
    for program in ["main = forward \"eth1\"", "main = when (is_incoming .||. is_outgoing) (forward \"eth1\")"] {
        testbed.run_ok(&format!("netgrain group create -i eth1 back '{program}'"));
        let mut reader = RawReader::new(&testbed.feed);
        // On a busy machine the group may join the ring late; the group receives only packets that arrive after that.
        until("the group receives packets", || {
            RawSender::new(&testbed.feed).send(&[vec![0xff; 60]]);
            testbed.stats("back")["received"].as_u64() > Some(0)
        });
        received(&mut reader);
        let before = testbed.stats("back");
        RawSender::new(&testbed.feed).send(&sent);
        // The reader also receives the packets that are sent on its own interface.
        let mut back = received_at_least(&mut reader, 2 * sent.len());
        back.sort_unstable();
        back.dedup();
        assert_eq!(back, sent, "{program}");
        // On a busy machine the group may count the last packets after this reader has received them.
        let count = |stats: &serde_json::Value| stats["received"].as_u64().expect("a number");
        until("the group has processed all packets", || count(&testbed.stats("back")) >= count(&before) + 40);
        let stats = testbed.stats("back");
        let more = |at: &str| {
            let number = |stats: &serde_json::Value| stats.pointer(at).and_then(serde_json::Value::as_u64);
            number(&stats).unwrap_or_else(|| panic!("no {at}: {stats}")) - number(&before).unwrap_or(0)
        };
        assert_eq!(
            (more("/received"), more("/interfaces/0/sent")),
            (40, 20),
            "each packet once in each direction: {stats}"
        );
        // If the packet program does not test the direction of packets, the group skips packets that the engine has
        // sent (counter `forward_own`). If the program tests it, the egress interface skips them (counter
        // `own_traffic`).
        let skipped = more("/forward_own") + more("/interfaces/0/own_traffic");
        assert_eq!(skipped, 20, "{stats}");
        testbed.run_ok("netgrain group delete -i eth1 back");
    }
    engine.end();
}

#[test]
fn two_packaged_firewalls_in_series_forward_a_packet_once() {
    let Some(testbed) = Testbed::new("two_packaged_firewalls_in_series_forward_a_packet_once") else { return };
    let engine = testbed.engine("netgrain record -i eth1 --store /data/store --source-kind tpacket");
    let mut other: Running =
        testbed.spawn("exec netgrain record -i eth2 --store /data/store --source-kind tpacket >other.log 2>&1");
    until("the other engine accepts group requests", || testbed.run("netgrain group list -i eth2").status != Some(2));
    testbed.run_ok("netgrain group create -i eth1 wall -f examples/groups/stateless-firewall.ng");
    testbed.run_ok("sed 's/bridge \"eth2\"/bridge \"eth1\"/' examples/groups/stateless-firewall.ng > back.ng");
    testbed.run_ok("netgrain group create -i eth2 wall -f back.ng");
    let sent = requests(20);
    let mut far = RawReader::new(&testbed.sink);
    RawSender::new(&testbed.feed).send(&sent);
    assert_eq!(received_at_least(&mut far, sent.len()), sent, "each packet once, in order");
    assert_eq!(received(&mut far), [] as [Vec<u8>; 0], "no further packet");
    let (mut near, back) = (RawReader::new(&testbed.feed), requests(30));
    RawSender::new(&testbed.sink).send(&back[20..]);
    let mut replies = received_at_least(&mut near, 10);
    replies.dedup();
    assert_eq!(replies, back[20..], "the reverse direction");
    common::signal(&other.0, "INT");
    other.0.wait().expect("the process ends");
    engine.end();
}
