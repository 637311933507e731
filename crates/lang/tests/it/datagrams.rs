//! Tests of fragment tracking. Fragments must be steered like the unfragmented packets of their flow, in any order of
//! arrival and in any tunnel. The tracker must give the same results as a model and must not exceed its capacity.

use base::Prng;
use ir::fragment_tracker::{CAPACITY, Counts, NONE, TIMEOUT};
use ir::interp::{Execution, Interpreter, ProgramState};
use ir::{ANY_CLASS, FragmentScope, Program, VerdictKind};
use ir::{Facts, FragmentTracker};
use netgrain_lang::compile;
use std::collections::HashMap;
use testkit::fragments;
use wire::build::{Frame, tunnel};
use wire::{EtherType, IpProtocol, link};

const A: [u8; 4] = [10, 45, 0, 1];
const B: [u8; 4] = [8, 8, 8, 8];
const GATES: [[u8; 4]; 2] = [[172, 16, 0, 1], [172, 16, 0, 2]];

/// A program and its state.
struct World {
    program: Program,
    memory: ProgramState,
    time: u64,
}

fn world(text: &str) -> World {
    let program = compile(text).unwrap_or_else(|e| panic!("{}", e.show(text, "test"))).program;
    World { memory: ProgramState::of(&program, 7), program, time: 0 }
}

impl World {
    fn run(&mut self, frame: &[u8]) -> Execution {
        let facts = Facts { time: self.time, ..Facts::of(frame, frame.len() as u32, link::ETHERNET) };
        Interpreter::new(&self.program).run(frame, &facts, &mut self.memory)
    }

    fn hash(&mut self, frame: &[u8]) -> u32 {
        let out = self.run(frame);
        assert_eq!(out.kind, VerdictKind::Steer);
        out.hash
    }
}

fn written(frame: Frame<'_>) -> Vec<u8> {
    frame.write(&mut [0; 1000]).expect("room").to_vec()
}

/// Two packets of a TCP flow, one of each direction.
fn tcp(payload: usize) -> [Vec<u8>; 2] {
    let payload = vec![1; payload];
    [(A, 4000, B, 443), (B, 443, A, 4000)].map(|(a, p, b, q)| written(Frame::tcp4(a, p, b, q).payload(&payload)))
}

fn raw(frame: &[u8]) -> &[u8] {
    &frame[14..]
}

/// A function that encapsulates a frame, or the IP packet of the frame, in a tunnel.
type Encapsulation = fn(&[u8]) -> Vec<u8>;

const TUNNELS: [(&str, Encapsulation); 7] = [
    ("VXLAN", |inner| {
        let payload = [&tunnel::vxlan(7)[..], inner].concat();
        written(Frame::udp4(GATES[0], 50_000, GATES[1], 4789).payload(&payload))
    }),
    ("GENEVE over IPv6", |inner| {
        let payload = [&tunnel::geneve(EtherType(0x6558), 7, &[])[..], inner].concat();
        written(Frame::udp6([0x20; 16], 50_000, [0x21; 16], 6081).payload(&payload))
    }),
    ("GRE", |inner| {
        let payload = [&tunnel::gre(EtherType::IPV4, None, Some(9), None)[..], raw(inner)].concat();
        written(Frame::ip4(GATES[0], GATES[1], IpProtocol::GRE).payload(&payload))
    }),
    ("IP in IP", |inner| written(Frame::ip4(GATES[1], GATES[0], IpProtocol::IPV4).payload(raw(inner)))),
    ("IP in IPv6", |inner| written(Frame::ip6([0x20; 16], [0x21; 16], IpProtocol::IPV4).payload(raw(inner)))),
    ("GTP", |inner| {
        let payload = [&tunnel::gtp_u(5, None, &[], raw(inner).len())[..], raw(inner)].concat();
        written(Frame::udp4(GATES[0], 2152, GATES[1], 2152).payload(&payload))
    }),
    ("VXLAN in GRE", |inner| {
        let payload = [&tunnel::vxlan(7)[..], inner].concat();
        let middle = written(Frame::udp4([172, 17, 0, 1], 50_000, [172, 17, 0, 2], 4789).payload(&payload));
        let payload = [&tunnel::gre(EtherType::IPV4, None, None, None)[..], raw(&middle)].concat();
        written(Frame::ip4(GATES[0], GATES[1], IpProtocol::GRE).payload(&payload))
    }),
];

#[test]
fn fragments_have_the_hash_of_their_flow() {
    for text in ["main = steer_flow", "main = ip >-> outer steer_flow", "main = steer_key key_5tuple"] {
        let mut w = world(text);
        let whole = w.hash(&tcp(0)[0]);
        for (id, frame) in (0..).zip(tcp(300)) {
            for part in fragments(&frame, id, 96) {
                assert_eq!(w.hash(&part), whole, "{text}");
            }
        }
        assert_eq!(w.memory.datagrams.counts(), Counts { datagrams: 2, matched: 6, ..Counts::default() });
    }
}

#[test]
fn ipv6_fragments_have_the_hash_of_their_flow() {
    let mut w = world("main = steer_flow");
    let frame = |len| written(Frame::udp6([1; 8], 5, [2; 8], 6).payload(&vec![0; len]));
    let whole = w.hash(&frame(0));
    assert!(fragments(&frame(300), 0x1234_5678, 64).iter().all(|part| w.hash(part) == whole));
}

#[test]
fn fragments_of_tunnel_packets_follow_the_inner_flow() {
    let forms = ["steer_flow", "steer_p2p", "steer_key key_3tuple", "steer_local_ip 10.45.0.0/16", "double_steer_ip"];
    for form in forms {
        let mut w = world(&format!("main = {form}"));
        let outcome = |out: &Execution| (out.kind, out.classes, out.hash, out.hash2);
        let [bare, back] = tcp(0).map(|frame| outcome(&w.run(&frame)));
        for (id, (name, encapsulate)) in (0..).zip(TUNNELS) {
            for (frame, expected) in tcp(500).iter().zip([bare, back]) {
                let outer = encapsulate(frame);
                assert_eq!(outcome(&w.run(&outer)), expected, "{form}, {name}, whole");
                for (i, part) in fragments(&outer, id, 160).iter().enumerate() {
                    assert_eq!(outcome(&w.run(part)), expected, "{form}, {name}, part {i}");
                }
            }
        }
    }
}

#[test]
fn packets_fragmented_inside_and_outside_a_tunnel_follow_their_flow() {
    let mut w = world("main = steer_flow");
    let whole = w.hash(&tcp(0)[0]);
    for (name, encapsulate) in TUNNELS {
        for (id, part) in (0..).zip(fragments(&tcp(700)[1], 99, 320)) {
            let outer = encapsulate(&part);
            for (i, part) in fragments(&outer, 100 + id, 88).iter().enumerate() {
                assert_eq!(w.hash(part), whole, "{name}, inner part {id}, part {i} of it");
            }
        }
        // The next tunnel uses the same identifications again, so the datagrams of this tunnel must expire first.
        w.time += TIMEOUT + 1;
    }
}

#[test]
fn packets_fragmented_between_two_tunnels_follow_their_flow() {
    let mut w = world("main = steer_flow");
    let inner = &tcp(400)[0];
    let payload = [&tunnel::vxlan(7)[..], inner].concat();
    let middle = written(Frame::udp4([172, 17, 0, 1], 50_000, [172, 17, 0, 2], 4789).payload(&payload));
    let whole = w.hash(inner);
    for part in fragments(&middle, 5, 160) {
        let payload = [&tunnel::gre(EtherType::IPV4, None, None, None)[..], raw(&part)].concat();
        let outer = written(Frame::ip4(GATES[0], GATES[1], IpProtocol::GRE).payload(&payload));
        assert_eq!(w.hash(&outer), whole);
    }
}

#[test]
fn fragments_in_any_order_get_the_same_hash() {
    let mut w = world("main = steer_flow");
    let whole = w.hash(&tcp(0)[0]);
    let parts = fragments(&tcp(300)[0], 1, 96);
    let alone = w.hash(&parts[2]);
    assert_ne!(alone, whole, "the first fragment with the ports has not arrived yet");
    assert!(
        [0, 3, 1, 0].iter().all(|i| w.hash(&parts[*i]) == alone),
        "the first fragment follows, also if it is repeated"
    );
    assert_eq!(w.memory.datagrams.counts(), Counts { datagrams: 1, matched: 2, orphaned: 1, ..Counts::default() });
}

#[test]
fn fragments_of_a_dropped_datagram_are_not_steered_by_the_outer_addresses() {
    // The addresses of the tunnel endpoints are in the network for which the program steers; the inner addresses are
    // not.
    let [[a, b, ..], _] = GATES;
    let text = format!("main = steer_local_net \"{a}.{b}.0.0\" 16 32");
    let unknown_client = written(Frame::tcp4([9; 4], 1, [8; 4], 2).payload(&[0; 600]));
    let outer = written(Frame::ip4(GATES[0], GATES[1], IpProtocol::IPV4).payload(raw(&unknown_client)));
    let parts = fragments(&outer, 3, 160);
    let mut w = world(&text);
    assert_eq!(w.run(&outer).kind, VerdictKind::Drop);
    assert!(
        parts.iter().all(|part| w.run(part).kind == VerdictKind::Drop),
        "the fragments are dropped like the whole packet"
    );
    // If a later fragment arrives first, it is steered by its own addresses, and the other fragments are steered to the
    // same member.
    let mut w = world(&text);
    let kinds: Vec<_> = [1, 0, 2].iter().map(|i| w.run(&parts[*i]).kind).collect();
    assert!(kinds[0] != VerdictKind::Drop && kinds.iter().all(|kind| *kind == kinds[0]), "{kinds:?}");
}

#[test]
fn a_new_first_fragment_renews_the_timeout_of_its_identification() {
    let mut w = world("main = steer_flow");
    let whole = w.hash(&tcp(0)[0]);
    let parts = fragments(&tcp(300)[0], 7, 96);
    assert_eq!(w.hash(&parts[0]), whole);
    w.time += TIMEOUT - 1;
    assert_eq!(w.hash(&parts[0]), whole, "another datagram of the flow");
    w.time += 2;
    assert!(parts[1..].iter().all(|part| w.hash(part) == whole));
}

#[test]
fn a_reused_identification_begins_a_new_datagram() {
    let mut w = world("main = steer_flow");
    let other = |len| written(Frame::tcp4(A, 4001, B, 443).payload(&vec![1; len]));
    let hashes = [w.hash(&tcp(0)[0]), w.hash(&other(0))];
    for (frame, hash) in [(tcp(300)[0].clone(), hashes[0]), (other(300), hashes[1])] {
        assert!(fragments(&frame, 1, 96).iter().all(|part| w.hash(part) == hash));
    }
    // When `TIMEOUT` has passed, a later fragment is no longer assigned to the datagram.
    let later = &fragments(&other(300), 1, 96)[1];
    w.time += TIMEOUT;
    assert_eq!(w.hash(later), hashes[1]);
    w.time += 1;
    assert_ne!(w.hash(later), hashes[1]);
}

#[test]
fn each_form_of_steering_is_tracked_separately() {
    let mut w = world("main = steer_p2p >-> steer_flow >-> mark 1 >-> conditional is_more_frag steer_p2p unit");
    let pair = world("main = steer_p2p").hash(&tcp(0)[0]);
    let flow = world("main = steer_flow").hash(&tcp(0)[0]);
    let parts = fragments(&tcp(300)[0], 1, 160);
    assert_eq!((w.hash(&parts[0]), w.hash(&parts[1])), (flow, pair));
}

#[test]
fn sip_fragments_are_broadcast_and_rtp_fragments_follow_their_call() {
    let mut w = world("main = steer_voip");
    let sip = [b"INVITE sip:a@b SIP/2.0\r\n".to_vec(), vec![b'x'; 400]].concat();
    let sip = written(Frame::udp4(A, 5060, B, 5060).payload(&sip));
    for part in fragments(&sip, 1, 160) {
        let out = w.run(&part);
        assert_eq!((out.kind, out.classes), (VerdictKind::Copy, ANY_CLASS));
    }
    let media = |len| [vec![0x80, 8, 0, 1], vec![0; len]].concat();
    let rtp = |len| written(Frame::udp4(A, 4000, B, 6000).payload(&media(len)));
    let whole = w.hash(&rtp(20));
    assert!(fragments(&rtp(400), 2, 160).iter().all(|part| w.hash(part) == whole));
    let neither = written(Frame::udp4(A, 9, B, 9).payload(&[0; 400]));
    assert!(fragments(&neither, 3, 160).iter().all(|part| w.run(part).kind == VerdictKind::Drop));
    // This datagram has the same identification (2) as the RTP datagram above, so it replaces the entry of the RTP
    // datagram in the tracker.
    assert!(fragments(&neither, 2, 160).iter().all(|part| w.run(part).kind == VerdictKind::Drop));
    assert_eq!(w.run(&fragments(&rtp(400), 4, 160)[1]).kind, VerdictKind::Drop, "the first fragment is unknown");
}

#[test]
fn gtp_user_fragments_are_steered_and_control_fragments_broadcast() {
    let mut w = world("main = steer_gtp_usr 10.45.0.0 16");
    let (_, gtp) = TUNNELS[5];
    let whole = w.hash(&gtp(&tcp(0)[0]));
    for (id, frame) in (0..).zip(tcp(500)) {
        assert!(fragments(&gtp(&frame), id, 160).iter().all(|part| w.hash(part) == whole));
    }
    let unknown_client = written(Frame::tcp4([9; 4], 1, B, 2).payload(&[0; 500]));
    assert!(fragments(&gtp(&unknown_client), 7, 160).iter().all(|part| w.run(part).kind == VerdictKind::Drop));
    let control = written(Frame::udp4(GATES[0], 2123, GATES[1], 2123).payload(&[0x48; 500]));
    assert!(fragments(&control, 8, 160).iter().all(|part| w.run(part).classes == ANY_CLASS));
}

/// A model of the tracker without a capacity limit. For each datagram and each form (a steering function or a query of
/// ports), it stores the hash or the ports that all fragments get, the hash or the ports of the first fragment, and the
/// time of the entry.
#[derive(Default)]
struct Model(HashMap<(u8, u32, u32), (u64, u64, u64)>);

impl Model {
    fn number(&mut self, key: (u8, u32, u32), is_first: bool, number: u64, now: u64) -> u64 {
        let known = self.0.get(&key).copied().filter(|e| now.abs_diff(e.2) <= TIMEOUT);
        let new = match (known, is_first) {
            (Some((all, _, _)), false) => return all,
            (Some((all, 0, since)), true) if number != 0 => (all, number, since),
            (Some((all, first, _)), true) if number != 0 && first == number => (all, number, now),
            (_, true) => (number, number, now),
            (None, false) => (if number == NONE { 0 } else { number }, 0, now),
        };
        if new.0 == 0 {
            self.0.remove(&key);
        } else {
            self.0.insert(key, new);
        }
        new.0
    }
}

#[test]
fn the_tracker_agrees_with_an_unbounded_table_on_random_fragments() {
    let seed = testkit::seed("the_tracker_agrees_with_an_unbounded_table_on_random_fragments");
    let mut prng = Prng::new(seed);
    let (datagrams, mut model) = (FragmentTracker::new(seed), Model::default());
    let mut now = 1_000_000_000;
    let (mut found, mut none) = (0, 0);
    for step in 0..100_000 {
        let (host, id, form) = (prng.below(4) as u8, prng.below(40) as u32, prng.below(3) as u32);
        let is_first = prng.below(2) == 0;
        let part = Frame::ip4([10, 0, 0, host], B, IpProtocol::UDP).payload(&[0; 32]);
        let frame = written(part.fragment(id as u16, if is_first { 0 } else { 64 }, true));
        let facts = Facts { time: now, ..Facts::of(&frame, frame.len() as u32, link::ETHERNET) };
        let number = [0, 1, 2, 3, NONE][prng.below(5) as usize];
        let parts = [FragmentScope::Outer, FragmentScope::Inner, FragmentScope::Enclosing][prng.below(3) as usize];
        let got = datagrams.number(&frame, &facts, parts, form, number);
        let known = model.number((host, id, form), is_first, number, now);
        assert_eq!(got, if known == NONE { 0 } else { known }, "seed {seed}, step {step}");
        found += u32::from(got != number);
        none += u32::from(got == 0);
        now = if prng.below(50) == 0 { now - prng.below(1 << 20) } else { now + prng.below(TIMEOUT / 100) };
    }
    assert!(found > 10_000 && none > 1000, "{found} {none}");
}

#[test]
fn the_tracker_is_bounded_and_counts_evicted_datagrams() {
    let datagrams = FragmentTracker::new(1);
    let of = |n: u32| {
        let [_, a, b, c] = n.to_be_bytes();
        let first = written(Frame::udp4([10, a, b, c], 1, B, 2).fragment(7, 0, true).payload(&[0; 32]));
        let facts = Facts::of(&first, first.len() as u32, link::ETHERNET);
        datagrams.number(&first, &facts, FragmentScope::Outer, 0, u64::from(n) + 1)
    };
    let many = 3 * CAPACITY as u32;
    assert!((0..many).all(|n| of(n) == u64::from(n) + 1), "each first fragment keeps its own number");
    let Counts { datagrams: kept, evicted: displaced, .. } = datagrams.counts();
    assert_eq!((kept, datagrams.counts().held()), (many.into(), u64::from(many) - displaced));
    let lost = u64::from(many) - CAPACITY as u64;
    assert!((lost..lost + CAPACITY as u64 / 100).contains(&displaced), "{displaced} of {many} datagrams were evicted");
}

/// This program counts the packets of each flow and sets the mark of a packet to the count of its flow, up to 5.
const COUNTED: &str = "flows = flow_map 0 (both_ways key_5tuple)
main = incr_fstate flows >-> case_of (get_fstate flows) \
[1 ~> mark 1, 2 ~> mark 2, 3 ~> mark 3, 4 ~> mark 4, 5 ~> mark 5]";

#[test]
fn all_fragments_use_the_map_entry_of_their_flow() {
    let mut w = world(COUNTED);
    let [there, back] = tcp(300);
    assert_eq!(w.run(&tcp(0)[0]).mark, 1);
    let marks: Vec<u32> = fragments(&there, 1, 112).iter().map(|part| w.run(part).mark).collect();
    assert_eq!(marks, [2, 3, 4], "each fragment is counted");
    assert_eq!(w.run(&fragments(&back, 1, 112)[0]).mark, 5, "both directions are one flow");
    // This packet belongs to another flow between the same hosts.
    let other = written(Frame::tcp4(A, 4001, B, 443).payload(&[1; 300]));
    let marks: Vec<u32> = fragments(&other, 2, 112).iter().map(|part| w.run(part).mark).collect();
    assert_eq!(marks, [1, 2, 3]);
    // Fragments of ICMP, a protocol without ports, are counted in the flow map too.
    let ping = written(Frame::icmp4(A, B, 8, 0, [0; 4]).payload(&[0; 300]));
    let marks: Vec<u32> = fragments(&ping, 3, 160).iter().map(|part| w.run(part).mark).collect();
    assert_eq!(marks, [1, 2]);
}

#[test]
fn a_datagram_whose_later_fragment_comes_first_has_one_map_entry() {
    let mut w = world(COUNTED);
    assert_eq!(w.run(&tcp(0)[0]).mark, 1);
    let parts = fragments(&tcp(300)[0], 1, 96);
    let marks: Vec<u32> = [2, 0, 1, 3].iter().map(|i| w.run(&parts[*i]).mark).collect();
    assert_eq!(marks, [1, 2, 3, 4], "all fragments use the entry without ports");
    assert_eq!(w.run(&tcp(0)[0]).mark, 2);
}

#[test]
fn later_fragments_of_a_tunnel_have_the_key_of_the_outer_packet() {
    let inner = &tcp(500)[0];
    for (id, (name, encapsulate)) in (0..).zip(TUNNELS) {
        let mut w = world(COUNTED);
        let parts = fragments(&encapsulate(inner), id, 160);
        assert_eq!(
            (w.run(inner).mark, w.run(&parts[0]).mark),
            (1, 2),
            "{name}: the first fragment contains the inner headers"
        );
        let marks: Vec<u32> = parts[1..].iter().map(|part| w.run(part).mark).collect();
        assert_eq!(marks[..2], [1, 2], "{name}: the later fragments belong to the flow of the outer packet");
        // If the inner packet is fragmented and the tunnel packets are not, the fragments are counted in the flow of
        // the inner packet.
        let marks: Vec<u32> = fragments(inner, 7, 320).iter().map(|part| w.run(&encapsulate(part)).mark).collect();
        assert_eq!(marks, [3, 4], "{name}");
    }
    // In a program with `outer`, the flow key contains the ports of the outermost packet.
    let mut w = world(&COUNTED.replace("main = ", "main = outer (").replace("mark 5]", "mark 5])"));
    let (_, vxlan) = TUNNELS[0];
    let marks: Vec<u32> = fragments(&vxlan(inner), 1, 160).iter().map(|part| w.run(part).mark).collect();
    assert_eq!(marks, [1, 2, 3, 4]);
}

#[test]
fn fragments_steered_by_steer_common_share_no_entry_between_members() {
    let mut w = world("flows = flow_map 0 key_5tuple\nmain = incr_fstate flows >-> steer_common");
    let whole = w.hash(&tcp(0)[0]);
    let parts = fragments(&tcp(300)[0], 1, 96);
    assert!(parts.iter().all(|part| w.hash(part) == whole));
    // All packets of the flow were steered to the same member, so the flow map contains one entry.
    assert_eq!(w.memory.tables[0].len(), 1);
    let parts = fragments(&tcp(300)[0], 2, 96);
    let alone = w.hash(&parts[1]);
    assert!(alone != whole && [0, 2, 3].iter().all(|i| w.hash(&parts[*i]) == alone));
    assert_eq!(w.memory.tables[0].len(), 2, "one entry at each of two members");
}

#[test]
fn flow_port_matches_all_fragments_of_a_flow_also_in_tunnels() {
    let mut w = world("main = filter (flow_port 443)");
    let mut outer = world("main = outer (filter (flow_port 443))");
    let mut src = world("main = src (filter (flow_port 443))");
    let passes = |w: &mut World, frame: &[u8]| w.run(frame).kind != VerdictKind::Drop;
    let [there, back] = tcp(500);
    let other = written(Frame::tcp4(A, 80, B, 444).payload(&[1; 500]));
    for (id, (name, encapsulate)) in (0..).zip(TUNNELS) {
        for part in fragments(&encapsulate(&there), id, 160) {
            assert!(passes(&mut w, &part) && !passes(&mut outer, &part), "{name}");
        }
        assert!(fragments(&encapsulate(&other), 100 + id, 160).iter().all(|part| !passes(&mut w, part)), "{name}");
    }
    for (id, frame) in (200..).zip([&there, &back]) {
        for part in fragments(frame, id, 160) {
            let from = passes(&mut src, &part);
            assert!(passes(&mut w, &part) && passes(&mut outer, &part) && from == (frame == &back));
        }
    }
    assert!(!passes(&mut w, &fragments(&there, 300, 160)[1]), "the first fragment is unknown");
    let error = compile("main = filter (flow_port 0)").expect_err("no port");
    assert!(error.what.contains("no flow has port 0"), "{error:?}");
}
