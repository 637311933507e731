//! Tests of the verdicts, counters and properties of programs.

use crate::{compile, compile_for, evaluate, frames, instance, passed, queues, source};
use group::{Delivery, IngressInterface, Packet, Verdict};
use ring::Desc;
use wire::{build::Frame, link};

#[test]
fn a_program_steers_marks_forwards_and_drops() {
    let text = "main = ip >-> when is_tcp (mark 42 >-> forward \"eth1\") >-> steer_flow";
    let out = evaluate(&mut instance(text), &frames());
    let [tcp, udp] = [out[0], out[1]];
    assert!(matches!((tcp.delivery, udp.delivery), (Delivery::Steer(a), Delivery::Steer(b)) if a != b));
    assert_eq!((tcp.mark, udp.mark), (42, 5));
    assert_eq!((tcp.forwards.as_slice(), udp.forwards.as_slice()), (&[0][..], &[][..]));
    assert_eq!(compile(text).ports(), ["eth1"]);
    let mut counting = instance("main = inc 3 >-> dec 4 >-> udp");
    let out = evaluate(&mut counting, &frames());
    assert_eq!((out[0].delivery, out[1].delivery), (Delivery::Drop, Delivery::Copy));
    assert_eq!(counting.counters(), [2, u64::MAX - 1, 0]);
}

#[test]
fn programs_read_hash_and_queue_from_the_descriptor() {
    let out = evaluate(&mut instance("main = steer_rss"), &frames()[..1]);
    assert_eq!(out[0].delivery, Delivery::Steer(77), "the flow hash of the ring replaces the hash of the NIC");
    let out = evaluate(&mut instance("main = steer_rx_queue"), &frames()[..1]);
    assert_eq!(out[0].delivery, Delivery::Pick(2));
    let mut round_robin = instance("main = steer_rrobin");
    evaluate(&mut round_robin, &frames());
    let out = evaluate(&mut round_robin, &frames());
    assert_eq!(
        (out[0].delivery, out[1].delivery),
        (Delivery::Pick(2), Delivery::Pick(3)),
        "the round robin continues over batches"
    );
}

#[test]
fn both_directions_of_a_flow_are_steered_to_the_same_member() {
    let (mut forward, mut reverse) = ([0; 60], [0; 60]);
    Frame::tcp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 443).fill(&mut forward);
    Frame::tcp4([10, 0, 0, 2], 443, [10, 0, 0, 1], 1).fill(&mut reverse);
    let out = evaluate(&mut instance("main = steer_flow"), &[forward, reverse]);
    assert_eq!(out[0].delivery, out[1].delivery);
    assert!(matches!(out[0].delivery, Delivery::Steer(_)));
}

#[test]
fn a_program_reports_its_execution_and_its_partition_keys() {
    let about = compile("a = flow_map 0 key_5tuple\nb = flow_map 0 key_3tuple\nmain = incr_fstate a >-> incr_fstate b")
        .about(1);
    assert_eq!(about.partition_by, ["ip_src, ip_dst, ip_proto for a, b"]);
    assert!(about.execution == "native" || about.reason.is_some(), "{about:?}");
    let about =
        compile("a = flow_map 0 key_ip_src\nb = flow_map 0 key_vlan\nmain = incr_fstate a >-> incr_fstate b").about(1);
    assert_eq!((about.partition_by.len(), about.notes.len()), (2, 1), "{about:?}");
    let about = compile("main = ip_host").about(1);
    assert!(about.notes[0].contains("nosuch0 has no addresses"), "{about:?}");
}

#[test]
fn log_lines_beyond_the_limit_are_counted() {
    let mut logging = instance("main = log_msg \"seen\" >-> log_packet >-> log_buff >-> trace");
    assert_eq!(passed(&evaluate(&mut logging, &[frames()[0]; 5])), 5);
    assert_eq!(logging.counters(), [20], "20 lines are counted, and 10 of them were written");
}

#[test]
fn programs_can_read_the_direction_of_a_packet() {
    let text = "main = when is_outgoing (mark 1) >-> when is_incoming (mark 2)";
    let mut instance = instance(text);
    let mut mark = |flags| {
        let desc = Desc { flags, ..Desc::default() };
        let mut out = [Verdict::default()];
        instance.evaluate(&[Packet { desc: &desc, bytes: &frames()[0], wire_len: 60 }], &mut out);
        out[0].mark
    };
    assert_eq!((mark(ring::flag::OUTGOING), mark(0)), (1, 2));
    assert!(compile(text).reads_direction() && !compile("main = forward \"eth1\"").reads_direction());
}

#[test]
fn the_memory_of_maps_is_computed_without_an_instance() {
    assert_eq!(compile("main = ip").memory(), 0);
    let small = compile("m = up_to 1000 (flow_map 0 key_5tuple)\nmain = incr_fstate m").memory();
    assert_eq!(small, 2048 * 64);
    let large = compile("m = up_to 67108864 (flow_map 0 key_5tuple)\nmain = incr_fstate m").memory();
    assert_eq!(large, 8 << 30);
}

#[test]
fn an_error_is_one_line_with_the_position_in_the_program() {
    let error = compile_for(link::ETHERNET, "main = ip >-> forward eth1", &source())
        .err()
        .expect("an invalid program")
        .to_string();
    assert!(error.starts_with("program, line 1, column 23: ") && error.lines().count() == 1, "{error}");
}

#[test]
fn a_capture_filter_applies_to_the_link_type_of_the_frames() {
    let cooked = |text: &str| compile_for(link::LINUX_SLL, text, &source());
    assert!(cooked("main = bpf \"tcp port 80\"").is_ok());
    let error = cooked("main = bpf \"vlan 5\"").err().expect("an invalid program").to_string();
    assert!(
        error.starts_with("program, line 1, column 8: ") && error.contains("VLAN tags are not supported"),
        "{error}"
    );
}

#[test]
fn a_program_reports_that_it_passes_packets_to_the_host() {
    assert!(compile("main = kernel").passes_to_host());
    assert!(!compile("main = ip").passes_to_host());
}

#[test]
fn packets_to_addresses_of_the_interface_match_as_packets_to_this_host() {
    // The loopback interface of every machine has the address 127.0.0.1, or has no address.
    let loopback = IngressInterface { name: "lo".into(), number: 3 };
    let program = compile_for(link::ETHERNET, "main = ip_host", &loopback).expect("a valid program");
    if program.about(1).notes[0].contains("no addresses") {
        return testkit::skip(
            "packets_to_addresses_of_the_interface_match_as_packets_to_this_host",
            "the loopback interface is down",
        );
    }
    let mut here = [0; 60];
    Frame::udp4([10, 0, 0, 1], 1, [127, 0, 0, 1], 53).fill(&mut here);
    let mut instance = program.instances(&queues(1), "g").expect("an instance").remove(0);
    let out = evaluate(&mut instance, &[here, frames()[1]]);
    assert_eq!((out[0].delivery, out[1].delivery), (Delivery::Copy, Delivery::Drop));
}
