//! Tests of tunnels: steering and flow maps must use the correct packet (the innermost, or the outermost inside
//! `outer`). Also tests filters for link types other than Ethernet.

use ir::interp::{Execution, Interpreter, ProgramState};
use ir::{Facts, Field, Key};
use ir::{Program, VerdictKind};
use netgrain_lang::{clusters, compile};
use wire::build::{Frame, tunnel};
use wire::{EtherType, IpProtocol, link};

fn program(text: &str) -> Program {
    compile(text).unwrap_or_else(|e| panic!("{}", e.show(text, "test"))).program
}

fn run(program: &Program, frame: &[u8]) -> Execution {
    let facts = Facts::of(frame, frame.len() as u32, link::ETHERNET);
    Interpreter::new(program).run(frame, &facts, &mut ProgramState::of(program, 7))
}

fn written(frame: Frame<'_>) -> Vec<u8> {
    frame.write(&mut [0; 600]).expect("room").to_vec()
}

const GATES: [[u8; 4]; 2] = [[172, 16, 0, 1], [172, 16, 0, 2]];
const USER: [u8; 4] = [10, 1, 2, 3];
const FAR: [u8; 4] = [8, 8, 8, 8];

/// An extension header: its type, and the bytes between its length field and its next-type field.
type Extension = (u8, &'static [u8]);

/// A user's packet inside GTP-U, with the extension headers of [`tunnel::gtp_u`].
fn gtp(sequence: Option<u16>, extensions: &[Extension], user: &[u8]) -> Vec<u8> {
    let payload = [&tunnel::gtp_u(5, sequence, extensions, user.len())[..], user].concat();
    written(Frame::udp4(GATES[0], 2152, GATES[1], 2152).payload(&payload))
}

#[test]
fn a_subscribers_own_tunnels_do_not_change_the_steering() {
    let users = program("main = steer_gtp_usr 10.0.0.0 8");
    let plain = written(Frame::udp4(USER, 1, FAR, 53).raw().payload(&[0; 8]));
    let hash = run(&users, &gtp(None, &[], &plain)).hash;
    let private = written(Frame::udp4([192, 168, 1, 1], 1, [192, 168, 1, 2], 53).raw().payload(&[0; 8]));
    let in_gre = [&tunnel::gre(EtherType::IPV4, None, None, None)[..], &private].concat();
    let six = written(Frame::tcp6([0x20; 16], 1, [0x21; 16], 443).raw().payload(&[0; 8]));
    let own = [
        written(Frame::ip4(USER, FAR, IpProtocol::GRE).raw().payload(&in_gre)),
        written(Frame::ip4(USER, FAR, IpProtocol::IPV4).raw().payload(&private)),
        written(Frame::ip4(FAR, USER, IpProtocol::IPV6).raw().payload(&six)),
        plain,
    ];
    let extensions: [(Option<u16>, &[Extension]); 4] =
        [(None, &[]), (Some(9), &[]), (None, &[(0x85, &[0; 2])]), (Some(9), &[(0xc0, &[1, 2]), (0x85, &[0; 6])])];
    for (i, user) in own.iter().enumerate() {
        for (sequence, extensions) in extensions {
            let out = run(&users, &gtp(sequence, extensions, user));
            assert_eq!((out.kind, out.hash), (VerdictKind::Steer, hash), "user packet {i}, extensions {extensions:?}");
        }
    }
    let unknown_client = written(Frame::udp4([9; 4], 1, FAR, 53).raw().payload(&[0; 8]));
    assert_eq!(run(&users, &gtp(None, &[], &unknown_client)).kind, VerdictKind::Drop);
    let only_inside = written(Frame::ip4([9; 4], FAR, IpProtocol::IPV4).raw().payload(&own[3]));
    assert_eq!(
        run(&users, &gtp(None, &[], &only_inside)).kind,
        VerdictKind::Drop,
        "the tunnel inside GTP is not the subscriber's"
    );
}

#[test]
fn ipv6_subscribers_inside_gtp_are_steered() {
    let users = program("main = steer_gtp_usr 2001:db8:: 32");
    let mut src = [0; 16];
    src[..5].copy_from_slice(&[0x20, 1, 0xd, 0xb8, 7]);
    let user = written(Frame::tcp6(src, 1, [0x21; 16], 443).raw().payload(&[0; 8]));
    assert_eq!(run(&users, &gtp(Some(1), &[], &user)).kind, VerdictKind::Steer);
    let whole = gtp(Some(1), &[], &user);
    let hash = run(&users, &whole).hash;
    let mut steered = 0;
    for len in 42..whole.len() {
        let facts = Facts::of(&whole[..len], whole.len() as u32, link::ETHERNET);
        let out = Interpreter::new(&users).run(&whole[..len], &facts, &mut ProgramState::of(&users, 7));
        match out.kind {
            VerdictKind::Drop => (),
            // If the packet is so short that it cannot be distinguished from a control message, it is delivered to all
            // classes, like control messages.
            VerdictKind::Copy => assert!(len < 42 + 10, "cut at {len}"),
            _ => assert_eq!((out.kind, out.hash), (VerdictKind::Steer, hash), "cut at {len}"),
        }
        steered += usize::from(out.kind == VerdictKind::Steer);
    }
    assert!(steered > 0, "no truncated packet was steered");
}

#[test]
fn keys_of_outer_and_inner_packets_form_separate_clusters() {
    let p = program(
        "m = flow_map 0 key_ip_src\nn = flow_map 1 key_ip_src\nmain = ip >-> incr_fstate m >-> outer (incr_fstate n)",
    );
    let key = Key::of(&[Field::IpSrc]);
    assert_eq!(clusters(&[&p]), [(key, vec![0]), (key.outside(), vec![1])]);
    assert_eq!(p.maps[1].key.to_string(), "outer ip_src");
    let both =
        program("m = flow_map 0 key_5tuple\nn = flow_map 1 key_ip_src\nmain = outer (incr_fstate m >-> incr_fstate n)");
    assert_eq!(
        clusters(&[&both]),
        [(key.outside(), vec![0, 1])],
        "both keys of the outermost packet have a common field"
    );
    let frames = program(
        "m = flow_map 0 (key_vlan <> key_ip_src)\nn = flow_map 1 (key_vlan <> key_ip_dst)\nmain = incr_fstate m >-> \
         outer (incr_fstate n)",
    );
    assert_eq!(
        clusters(&[&frames]),
        [(Key::of(&[Field::Vlan]), vec![0, 1])],
        "the VLAN tag is the same for all nested packets"
    );
}

#[test]
fn a_map_is_for_either_the_outermost_or_the_innermost_packet() {
    let text = "m = flow_map 0 key_ip_src\nmain = incr_fstate m >-> outer (filter (get_fstate m .< 3))";
    let message = compile(text).unwrap_err().show(text, "x");
    assert!(message.contains("`m` is used for the outermost packet"), "{message}");
    assert!(message.contains("a map for each"), "{message}");
    let twice = "m = flow_map 0 key_vlan\nmain = incr_fstate m >-> outer (incr_fstate m)";
    assert_eq!(program(twice).maps.len(), 1, "the VLAN tag is the same for both packets");
}

#[test]
fn the_common_key_is_commutative_and_contained_in_both_keys() {
    // The test compares every two of these keys. A key has any of the five fields, of the innermost or of the outermost
    // packet, for one or for both directions.
    let fields = [Field::Vlan, Field::EthSrc, Field::IpSrc, Field::IpDst, Field::EthType];
    let keys: Vec<Key> = (0..1 << fields.len())
        .flat_map(|bits: u32| {
            let some: Vec<Field> =
                fields.iter().enumerate().filter(|(i, _)| bits >> i & 1 == 1).map(|f| *f.1).collect();
            let key = Key::of(&some);
            [key, key.outside(), key.both_ways(), key.both_ways().outside()]
        })
        .collect();
    for a in &keys {
        for b in &keys {
            let common = a.common(*b);
            assert_eq!(common, b.common(*a), "{a} and {b}");
            assert!(common.fields().all(|f| a.has(f) && b.has(f)), "{a} and {b}");
            let of_ip = common.fields().any(|f| !matches!(f, Field::Vlan | Field::EthSrc));
            assert!(
                !of_ip || [a, b, &common].iter().all(|k| k.is_outside() == common.is_outside()),
                "{a} and {b}: {common}"
            );
        }
    }
}

#[test]
fn a_tcpdump_filter_is_rejected_for_frames_of_another_link_type() {
    let filtered = program("main = when (matches \"tcp port 80\") (mark 1) >-> bpf \"udp\"");
    assert_eq!(filtered.fits_link(link::ETHERNET), Ok(()));
    for (link_type, name) in
        [(link::RAW_IP, "IP without a link header"), (link::LINUX_SLL, "Linux cooked"), (147, "link type 147")]
    {
        let message = filtered.fits_link(link_type).unwrap_err().to_string();
        assert!(message.contains("\"tcp port 80\"") && message.contains(name), "{message}");
    }
    let (head, tail) = filtered.split(1);
    assert!(head.fits_link(101).is_err() && tail.fits_link(101).is_err());
    assert_eq!(program("main = tcp >-> port 80 >-> steer_flow").fits_link(link::RAW_IP), Ok(()));
}
