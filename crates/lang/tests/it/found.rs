//! Regression tests for bugs that random programs have found (crate `difftest`). Each test contains the smallest
//! failing program.

use ir::Facts;
use ir::VerdictKind;
use ir::interp::{Execution, Interpreter, ProgramState};
use netgrain_lang::compile;
use wire::build::{Frame, tunnel};
use wire::{IpProtocol, link};

/// The result of a program for a frame.
fn run(text: &str, frame: &[u8]) -> Execution {
    let program = compile(text).unwrap_or_else(|e| panic!("{}", e.show(text, "program"))).program;
    let facts = Facts::of(frame, frame.len() as u32, link::ETHERNET);
    Interpreter::new(&program).run(frame, &facts, &mut ProgramState::of(&program, 7))
}

fn kind(text: &str, frame: &[u8]) -> VerdictKind {
    run(text, frame).kind
}

/// The bug was that a frame that ends before its ethertype was treated as a frame with ethertype 0.
#[test]
fn a_frame_without_ethertype_does_not_match_ethertype_0() {
    for text in ["main = l3_proto 0", "main = filter (is_l3_proto 0)", "main = filter (eth_type .== 0)"] {
        assert_eq!(kind(text, &[2]), VerdictKind::Drop, "{text}");
    }
    assert_eq!(kind("main = unless (is_l3_proto 0) drop", &[2]), VerdictKind::Drop);
}

/// The bug was that a UDP tunnel whose header begins beyond byte 255 was not decoded, although the meter decodes such a
/// tunnel, and although GRE tunnels at that offset were decoded.
#[test]
fn a_tunnel_header_beyond_byte_255_is_decoded() {
    let write = |frame: Frame<'_>| frame.write(&mut [0; 1000]).expect("room").to_vec();
    let inner = write(Frame::tcp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 80));
    let payload = [&tunnel::vxlan(7)[..], &inner].concat();
    let options = [(IpProtocol::DEST_OPTIONS, &[0; 126][..]); 2];
    let around = Frame::udp6([0x20; 16], 5, [0x21; 16], 4789).payload(&payload);
    let (near, far) = (write(around), write(around.extensions(&options)));
    let flow = "main = steer_flow";
    assert_eq!(run(flow, &far).hash, run(flow, &inner).hash);
    assert_eq!(run(flow, &far).hash, run(flow, &near).hash);
    assert_eq!(kind("main = shift (tcp >-> port 80)", &far), VerdictKind::Copy);
    // Predicates ignore transport headers beyond byte 255 (docs/reference/packet-language.md).
    assert_eq!((kind("main = udp", &near), kind("main = udp", &far)), (VerdictKind::Copy, VerdictKind::Drop));
}

/// The bug was that a map that is derived from another map got the name of that map. A program with both maps was
/// rejected with the advice to bind each map to its own name, although each had a name.
#[test]
fn a_derived_map_has_the_name_of_its_own_binding() {
    let names = |text: &str| {
        let program = compile(text).unwrap_or_else(|e| panic!("{}", e.show(text, "program"))).program;
        program.maps.into_iter().map(|m| m.name).collect::<Vec<_>>()
    };
    let both = "all = flow_map 0 key_ip_src\nnow = for_ms 5 all\nmain = incr_fstate all >-> incr_fstate now";
    assert_eq!(names(both), ["all", "now"]);
    let other =
        "a = flow_map 0 key_ip_src\nb = a\nid x = x\nmain = incr_fstate a >-> incr_fstate b >-> incr_fstate (id a)";
    assert_eq!(names(other), ["a"], "a second name for a map does not create another map");
    assert_eq!(names("a = flow_map 0 key_vlan\nmain = incr_fstate (up_to 5 a) >-> incr_fstate a"), ["flow_map a", "a"]);
}

/// A fragment that follows a steered fragment is steered like that fragment. The bug was that such a fragment was still
/// assigned to all classes if its own headers alone would deliver it to all classes.
#[test]
fn a_fragment_that_follows_another_gets_its_classes_too() {
    let program = compile("main = steer_p2p").expect("a program").program;
    let mut memory = ProgramState::of(&program, 7);
    let mut run = |frame: Frame<'_>| {
        let bytes = frame.write(&mut [0; 200]).expect("room").to_vec();
        let facts = Facts::of(&bytes, bytes.len() as u32, link::ETHERNET);
        Interpreter::new(&program).run(&bytes, &facts, &mut memory)
    };
    let inner = Frame::tcp4([10, 0, 0, 5], 1, [255; 4], 80).raw().write(&mut [0; 60]).expect("room").to_vec();
    let around = Frame::ip4([192, 0, 2, 1], [192, 0, 2, 2], IpProtocol::IPV4);
    let alone = run(around.payload(&inner));
    let later = run(around.payload(&[0; 8]).fragment(9, 1480, false));
    let first = run(around.payload(&inner).fragment(9, 0, true));
    assert_eq!((alone.kind, later.kind), (VerdictKind::Copy, VerdictKind::Steer));
    assert_ne!(alone.classes, later.classes);
    assert_eq!(first, later);
}

/// The bug was that a later fragment that follows a dropped first fragment retained a hash, which `steer_local_ip` had
/// computed from the addresses of the later fragment itself.
#[test]
fn a_fragment_that_follows_a_dropped_fragment_has_no_hash() {
    let program = compile("main = steer_local_ip 224.0.0.0/4").expect("a program").program;
    let mut memory = ProgramState::of(&program, 7);
    let mut run = |frame: Frame<'_>| {
        let bytes = frame.write(&mut [0; 200]).expect("room").to_vec();
        let facts = Facts::of(&bytes, bytes.len() as u32, link::ETHERNET);
        Interpreter::new(&program).run(&bytes, &facts, &mut memory)
    };
    let inner = Frame::tcp4([10, 0, 0, 5], 1, [10, 0, 0, 6], 80).raw().write(&mut [0; 60]).expect("room").to_vec();
    let around = Frame::ip4([192, 0, 2, 1], [239, 0, 0, 2], IpProtocol::IPV4);
    let first = run(around.payload(&inner).fragment(9, 0, true));
    let later = run(around.payload(&[0; 8]).fragment(9, 1480, false));
    assert_eq!((first.kind, first.hash), (VerdictKind::Drop, 0));
    assert_eq!(later, first);
}
