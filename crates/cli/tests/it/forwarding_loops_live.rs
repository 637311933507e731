//! Packets that are forwarded do not come back: one engine that forwards to its own port, and two that forward to each
//! other's.
//!
//! A shared port (TPACKET) shows what leaves by it as well, so each forwarded packet is captured again.

use crate::common;
use crate::workspace;

use common::{Running, until};
use std::time::Duration;
use testkit::{RawReader, RawSender};
use workspace::Ground;

/// It is quiet when nothing came for so long; a packet that circles comes by every millisecond or two.
const A_WHILE: Duration = Duration::from_millis(500);

/// Numbered ARP requests, which every packaged wall lets through.
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

/// The requests that still arrive until it is quiet.
fn heard(reader: &mut RawReader) -> Vec<Vec<u8>> {
    // If packets circled, it would never be quiet.
    std::iter::from_fn(|| reader.next(A_WHILE)).take(2000).filter(|frame| is_request(frame)).collect()
}

/// The requests that arrive: at least so many, and those that follow until it is quiet.
fn heard_at_least(reader: &mut RawReader, count: usize) -> Vec<Vec<u8>> {
    let mut all = reader.at_least(count, Duration::ZERO, is_request);
    all.extend(heard(reader));
    all
}

#[test]
fn a_packet_forwarded_to_the_port_it_came_from_leaves_once() {
    let Some(ground) = Ground::new("a_packet_forwarded_to_the_port_it_came_from_leaves_once") else { return };
    let engine = ground.engine("netgrain record -i eth1 --store /data/store --source-kind tpacket");
    let sent = requests(20);
    for program in ["main = forward \"eth1\"", "main = when (is_incoming .||. is_outgoing) (forward \"eth1\")"] {
        ground.yes(&format!("netgrain group create -i eth1 back '{program}'"));
        let mut reader = RawReader::new(&ground.feed);
        // On a busy machine a group may be said to be late: it gets what comes after it has joined the ring.
        until("the group gets what comes", || {
            RawSender::new(&ground.feed).send(&[vec![0xff; 60]]);
            ground.books("back")["received"].as_u64() > Some(0)
        });
        heard(&mut reader);
        let before = ground.books("back");
        RawSender::new(&ground.feed).send(&sent);
        // The reader hears the sender of its own port, too.
        let mut back = heard_at_least(&mut reader, 2 * sent.len());
        back.sort_unstable();
        back.dedup();
        assert_eq!(back, sent, "{program}");
        // On a busy machine the last packets are judged after they were heard.
        let received = |books: &serde_json::Value| books["received"].as_u64().expect("a number");
        until("all are judged", || received(&ground.books("back")) >= received(&before) + 40);
        let books = ground.books("back");
        let more = |at: &str| {
            let number = |books: &serde_json::Value| books.pointer(at).and_then(serde_json::Value::as_u64);
            number(&books).unwrap_or_else(|| panic!("no {at}: {books}")) - number(&before).unwrap_or(0)
        };
        assert_eq!((more("/received"), more("/interfaces/0/sent")), (40, 20), "in and out, once: {books}");
        // Who does not ask for the direction is spared by the group, who does by the port.
        let spared = more("/forward_own") + more("/interfaces/0/own_traffic");
        assert_eq!(spared, 20, "{books}");
        ground.yes("netgrain group delete -i eth1 back");
    }
    engine.end();
}

#[test]
fn two_packaged_walls_back_to_back_let_a_packet_through_once() {
    let Some(ground) = Ground::new("two_packaged_walls_back_to_back_let_a_packet_through_once") else { return };
    let engine = ground.engine("netgrain record -i eth1 --store /data/store --source-kind tpacket");
    let mut other: Running =
        ground.spawn("exec netgrain record -i eth2 --store /data/store --source-kind tpacket >other.said 2>&1");
    until("the other engine's groups", || ground.run("netgrain group list -i eth2").status != Some(2));
    ground.yes("netgrain group create -i eth1 wall -f examples/groups/stateless-firewall.ng");
    ground.yes("sed 's/bridge \"eth2\"/bridge \"eth1\"/' examples/groups/stateless-firewall.ng > back.ng");
    ground.yes("netgrain group create -i eth2 wall -f back.ng");
    let sent = requests(20);
    let mut far = RawReader::new(&ground.sink);
    RawSender::new(&ground.feed).send(&sent);
    assert_eq!(heard_at_least(&mut far, sent.len()), sent, "each once, in order");
    assert_eq!(heard(&mut far), [] as [Vec<u8>; 0], "and then it is quiet");
    let (mut near, back) = (RawReader::new(&ground.feed), requests(30));
    RawSender::new(&ground.sink).send(&back[20..]);
    let mut answers = heard_at_least(&mut near, 10);
    answers.dedup();
    assert_eq!(answers, back[20..], "the way back");
    common::signal(&other.0, "INT");
    other.0.wait().expect("it ends");
    engine.end();
}
