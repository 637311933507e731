//! Faults that random programs found (crate `difftest`), each with the smallest program that showed it.

use ir::Facts;
use ir::VerdictKind;
use ir::interp::{Execution, Interpreter, ProgramState};
use netgrain_lang::compile;
use wire::build::{Frame, tunnel};
use wire::{IpProtocol, link};

/// What becomes of a frame.
fn judged(text: &str, frame: &[u8]) -> Execution {
    let program = compile(text).unwrap_or_else(|e| panic!("{}", e.show(text, "program"))).program;
    let facts = Facts::of(frame, frame.len() as u32, link::ETHERNET);
    Interpreter::new(&program).run(frame, &facts, &mut ProgramState::of(&program, 7))
}

fn kind(text: &str, frame: &[u8]) -> VerdictKind {
    judged(text, frame).kind
}

/// A frame that ends before its ethertype was taken for one whose ethertype is 0.
#[test]
fn what_has_no_ethertype_has_not_the_ethertype_0() {
    for text in ["main = l3_proto 0", "main = filter (is_l3_proto 0)", "main = filter (eth_type .== 0)"] {
        assert_eq!(kind(text, &[2]), VerdictKind::Drop, "{text}");
    }
    assert_eq!(kind("main = unless (is_l3_proto 0) drop", &[2]), VerdictKind::Drop);
}

/// A tunnel in UDP of which the header begins behind byte 255 was not looked into, though the meter does, and though
/// one in GRE was.
#[test]
fn a_tunnel_far_inside_is_a_tunnel() {
    let write = |frame: Frame<'_>| frame.write(&mut [0; 1000]).expect("room").to_vec();
    let inner = write(Frame::tcp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 80));
    let payload = [&tunnel::vxlan(7)[..], &inner].concat();
    let options = [(IpProtocol::DEST_OPTIONS, &[0; 126][..]); 2];
    let around = Frame::udp6([0x20; 16], 5, [0x21; 16], 4789).payload(&payload);
    let (near, far) = (write(around), write(around.extensions(&options)));
    let flow = "main = steer_flow";
    assert_eq!(judged(flow, &far).hash, judged(flow, &inner).hash);
    assert_eq!(judged(flow, &far).hash, judged(flow, &near).hash);
    assert_eq!(kind("main = shift (tcp >-> port 80)", &far), VerdictKind::Copy);
    // A transport header so far inside is not there for questions, as docs/reference/packet-language.md says.
    assert_eq!((kind("main = udp", &near), kind("main = udp", &far)), (VerdictKind::Copy, VerdictKind::Drop));
}

/// A map that is made of another kept the other's name, so that a program with both was refused, with the advice to do
/// what it had done.
#[test]
fn a_map_made_of_another_has_the_name_of_its_own_binding() {
    let names = |text: &str| {
        let program = compile(text).unwrap_or_else(|e| panic!("{}", e.show(text, "program"))).program;
        program.maps.into_iter().map(|m| m.name).collect::<Vec<_>>()
    };
    let both = "all = flow_map 0 key_ip_src\nnow = for_ms 5 all\nmain = incr_fstate all >-> incr_fstate now";
    assert_eq!(names(both), ["all", "now"]);
    let other =
        "a = flow_map 0 key_ip_src\nb = a\nid x = x\nmain = incr_fstate a >-> incr_fstate b >-> incr_fstate (id a)";
    assert_eq!(names(other), ["a"], "another name makes no other map");
    assert_eq!(names("a = flow_map 0 key_vlan\nmain = incr_fstate (up_to 5 a) >-> incr_fstate a"), ["flow_map a", "a"]);
}

/// A fragment that would go to everybody by itself, and follows one that did not, kept the classes of everybody.
#[test]
fn a_fragment_goes_where_the_one_before_it_went_and_nowhere_else() {
    let program = compile("main = steer_p2p").expect("a program").program;
    let mut memory = ProgramState::of(&program, 7);
    let mut judged = |frame: Frame<'_>| {
        let bytes = frame.write(&mut [0; 200]).expect("room").to_vec();
        let facts = Facts::of(&bytes, bytes.len() as u32, link::ETHERNET);
        Interpreter::new(&program).run(&bytes, &facts, &mut memory)
    };
    let inner = Frame::tcp4([10, 0, 0, 5], 1, [255; 4], 80).raw().write(&mut [0; 60]).expect("room").to_vec();
    let around = Frame::ip4([192, 0, 2, 1], [192, 0, 2, 2], IpProtocol::IPV4);
    let alone = judged(around.payload(&inner));
    let later = judged(around.payload(&[0; 8]).fragment(9, 1480, false));
    let first = judged(around.payload(&inner).fragment(9, 0, true));
    assert_eq!((alone.kind, later.kind), (VerdictKind::Copy, VerdictKind::Steer));
    assert_ne!(alone.classes, later.classes);
    assert_eq!(first, later);
}

/// A later fragment whose own addresses are local, and which follows one that is for nobody, kept the hash that it had
/// for itself.
#[test]
fn a_fragment_that_follows_one_for_nobody_leaves_nothing_behind() {
    let program = compile("main = steer_local_ip 224.0.0.0/4").expect("a program").program;
    let mut memory = ProgramState::of(&program, 7);
    let mut judged = |frame: Frame<'_>| {
        let bytes = frame.write(&mut [0; 200]).expect("room").to_vec();
        let facts = Facts::of(&bytes, bytes.len() as u32, link::ETHERNET);
        Interpreter::new(&program).run(&bytes, &facts, &mut memory)
    };
    let inner = Frame::tcp4([10, 0, 0, 5], 1, [10, 0, 0, 6], 80).raw().write(&mut [0; 60]).expect("room").to_vec();
    let around = Frame::ip4([192, 0, 2, 1], [239, 0, 0, 2], IpProtocol::IPV4);
    let first = judged(around.payload(&inner).fragment(9, 0, true));
    let later = judged(around.payload(&[0; 8]).fragment(9, 1480, false));
    assert_eq!((first.kind, first.hash), (VerdictKind::Drop, 0));
    assert_eq!(later, first);
}
