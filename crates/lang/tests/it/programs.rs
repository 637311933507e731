//! Tests of the results of programs: the sixteen examples of the PFQ thesis and of its code, further properties of
//! programs, and error messages.

use ir::interp::{Action, Execution, Interpreter, ProgramState};
use ir::{ANY_CLASS, Placement, UserSpaceReason, VerdictKind, placement};
use ir::{Facts, Field, Key};
use netgrain_lang::compile;
use wire::build::{Frame, tunnel};
use wire::{FlowHasher, Headers, IpProtocol, link};

const KEY: u64 = 0x1234_5678_9abc_def0;

struct World {
    program: ir::Program,
    memory: ProgramState,
    sequence: u64,
    time: u64,
}

fn world(text: &str) -> World {
    let compiled = compile(text).unwrap_or_else(|e| panic!("{}", e.show(text, "test")));
    let memory = ProgramState::of(&compiled.program, KEY);
    World { program: compiled.program, memory, sequence: 0, time: 0 }
}

impl World {
    fn run(&mut self, frame: &[u8]) -> Execution {
        let mut facts = Facts::of(frame, frame.len() as u32, link::ETHERNET);
        (facts.sequence, facts.time) = (self.sequence, self.time);
        self.sequence += 1;
        Interpreter::new(&self.program).run(frame, &facts, &mut self.memory)
    }
}

fn bytes(frame: Frame) -> Vec<u8> {
    let mut bytes = vec![0; frame.header_len() + 20];
    frame.fill(&mut bytes);
    bytes
}

fn tcp(src: [u8; 4], sport: u16, dst: [u8; 4], dport: u16) -> Vec<u8> {
    bytes(Frame::tcp4(src, sport, dst, dport))
}

fn udp(src: [u8; 4], sport: u16, dst: [u8; 4], dport: u16) -> Vec<u8> {
    bytes(Frame::udp4(src, sport, dst, dport))
}

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];

fn arp() -> Vec<u8> {
    let mut frame = udp(A, 1, B, 2);
    frame[12..14].copy_from_slice(&[8, 6]);
    frame
}

#[test]
fn example_1_steer_p2p_is_symmetric_and_drops_frames_without_ip() {
    let mut w = world("main = ip >-> steer_p2p");
    assert_eq!(w.run(&arp()).kind, VerdictKind::Drop);
    let (there, back) = (w.run(&tcp(A, 1, B, 2)), w.run(&udp(B, 7, A, 9)));
    assert_eq!((there.kind, there.hash), (VerdictKind::Steer, back.hash));
    assert_ne!(there.hash, w.run(&tcp(A, 1, [10, 0, 0, 3], 2)).hash);
    assert!(w.run(&udp(A, 1, [255; 4], 2)).is_for_all());
}

#[test]
fn example_2_tcp_is_copied_and_all_ip_is_steered() {
    let mut w = world("main = ip >-> when is_tcp (forward \"eth1\") >-> steer_flow");
    assert_eq!(w.program.egress_interfaces, ["eth1"]);
    let out = w.run(&tcp(A, 1, B, 2));
    assert_eq!((out.kind, &out.actions[..]), (VerdictKind::Steer, &[Action::Forward(0)][..]));
    assert_eq!(w.run(&udp(A, 1, B, 2)).actions, []);
}

#[test]
fn example_3_steer_local_net_steers_by_subnet() {
    let mut w = world("main = steer_local_net \"131.114.0.0\" 16 24");
    let (x, y) = ([131, 114, 9, 1], [131, 114, 9, 77]);
    assert_eq!(w.run(&tcp(x, 1, A, 2)).hash, w.run(&tcp(B, 1, y, 2)).hash, "addresses of one /24 have one member");
    assert_eq!(w.run(&tcp(x, 1, y, 2)).kind, VerdictKind::DoubleSteer);
    assert_eq!(w.run(&tcp(A, 1, B, 2)).kind, VerdictKind::Drop);
}

#[test]
fn examples_4_and_5_set_marks() {
    let mut w = world("main = conditional is_udp (mark 42) kernel >-> steer_flow");
    let (u, t) = (w.run(&udp(A, 1, B, 2)), w.run(&tcp(A, 1, B, 2)));
    assert_eq!((u.mark, u.kernel, u.kind), (42, false, VerdictKind::Steer));
    assert_eq!((t.mark, t.kernel, t.kind), (0, true, VerdictKind::Steer));
    let mut w = world("main = when is_tcp (mark 42) >-> steer_p2p");
    assert_eq!([w.run(&tcp(A, 1, B, 2)).mark, w.run(&udp(A, 1, B, 2)).mark], [42, 0]);
}

#[test]
fn examples_6_to_8_forward_and_pass_to_the_kernel() {
    let out = world("main = forward \"eth2\" >-> drop").run(&arp());
    assert_eq!((out.kind, out.kernel, out.actions), (VerdictKind::Drop, false, vec![Action::Forward(0)]));
    let out = world("main = forward \"eth1\" >-> kernel").run(&arp());
    assert_eq!((out.kind, out.class(), out.kernel), (VerdictKind::Copy, Some(0), true));
    let mut w = world("main = when (has_port 80) kernel");
    let seen = [(5, 80), (80, 5), (5, 6)].map(|(s, d)| w.run(&tcp(A, s, B, d)).kernel);
    assert_eq!(seen, [true, true, false], "`has_port` tests source and destination");
}

fn rtp(src: u16, dst: u16, kind: u8) -> Vec<u8> {
    let mut frame = udp(A, src, B, dst);
    frame[42] = 0x80;
    frame[43] = kind;
    frame
}

#[test]
fn examples_9_and_10_steer_voip() {
    let mut w = world("main = conditional is_sip (classify 2 >-> broadcast) steer_rtp");
    assert_eq!(w.run(&udp(A, 5060, B, 5060)).classes, ANY_CLASS);
    let (media, report) = (w.run(&rtp(4000, 6000, 8)), w.run(&rtp(4001, 6001, 200)));
    assert_eq!((media.kind, media.hash), (VerdictKind::Steer, report.hash), "RTCP follows its RTP");
    assert_eq!(w.run(&rtp(4000, 6000, 0x80 | 40)).kind, VerdictKind::Drop, "the marker bit is no payload type");
    assert_eq!(w.run(&tcp(A, 4000, B, 6000)).kind, VerdictKind::Drop);
    let mut w = world("main = conditional is_rtp (classify 1 >-> steer_rtp) (classify 2)");
    let (media, rest) = (w.run(&rtp(4000, 6000, 8)), w.run(&arp()));
    assert_eq!((media.kind, media.class()), (VerdictKind::Steer, Some(1)));
    assert_eq!((rest.kind, rest.class()), (VerdictKind::Copy, Some(2)));
}

#[test]
fn examples_11_and_12_layout_and_tunnels() {
    assert_eq!(world("main = do\n  tcp\n  steer_flow\n").program, world("main = do { tcp ; steer_flow }").program);
    let mut w = world("main = do\n  trace\n  shift (do trace\n            log_msg \"x\")\n  trace\n");
    let inner = tcp(A, 1, B, 2);
    let payload = [&tunnel::vxlan(7)[..], &inner].concat();
    let mut outer = [0; 200];
    let vxlan = Frame::udp4([1; 4], 50_000, [2; 4], 4789).payload(&payload).write(&mut outer).unwrap().to_vec();
    assert_eq!(w.run(&vxlan).actions.len(), 4);
    let plain = w.run(&inner);
    assert_eq!((plain.kind, plain.actions.len()), (VerdictKind::Drop, 1), "`shift` drops a packet without a tunnel");
    let (inside, outside) = (world("main = steer_flow").run(&inner), world("main = steer_flow").run(&vxlan));
    assert_eq!(inside.hash, outside.hash, "a tunnelled flow has the hash of the flow without the tunnel");
    assert_eq!(world("main = tcp").run(&vxlan).kind, VerdictKind::Drop);
    assert_eq!(world("main = shift tcp").run(&vxlan).kind, VerdictKind::Copy);
    assert_ne!(world("main = outer steer_flow").run(&vxlan).hash, outside.hash);
}

#[test]
fn a_later_fragment_without_its_first_is_steered_by_addresses() {
    let mut w = world("main = steer_flow");
    let mut buffer = [0; 200];
    let mut inside = |frame: Frame<'_>| {
        let mut buffer = [0; 300];
        let inner = frame.write(&mut buffer).unwrap().to_vec();
        let payload = [&tunnel::vxlan(7)[..], &inner].concat();
        let around = Frame::udp4([1; 4], 50_000, [2; 4], 4789).payload(&payload);
        w.run(around.write(&mut buffer).unwrap()).hash
    };
    let alone = inside(Frame::ip4(B, A, IpProtocol::UDP).fragment(9, 32, false).payload(&[0; 24]));
    assert_eq!(alone, inside(Frame::ip4(A, B, IpProtocol::UDP).fragment(10, 32, false).payload(&[0; 24])));
    let bare = Frame::ip4(A, B, IpProtocol::UDP).fragment(11, 32, false).payload(&[0; 24]);
    assert_eq!(
        alone,
        w.run(bare.write(&mut buffer).unwrap()).hash,
        "the hash of the addresses does not depend on direction or tunnel"
    );
}

#[test]
fn examples_13_to_15_conditions() {
    let mut w = world("main = if not is_tcp then drop else filter (ip_ttl .> 10)");
    let mut low = tcp(A, 1, B, 2);
    low[22] = 9;
    assert_eq!(
        [&udp(A, 1, B, 2), &low, &tcp(A, 1, B, 2)].map(|f| w.run(f).kind),
        [VerdictKind::Drop, VerdictKind::Drop, VerdictKind::Copy]
    );
    let mut w = world("main = par udp icmp >-> log_msg \"u or i\"");
    assert_eq!([w.run(&udp(A, 1, B, 2)).actions.len(), w.run(&tcp(A, 1, B, 2)).actions.len()], [1, 0]);
    let mut w = world("main = filter ((ip_ttl .< 9) .&&. (not is_tcp .^^. is_udp)) >-> inc 3");
    let mut low_icmp = udp(A, 1, B, 2);
    (low_icmp[22], low_icmp[23]) = (8, 1);
    let mut low_udp = udp(A, 1, B, 2);
    low_udp[22] = 8;
    assert_eq!(
        [&low_icmp, &low_udp, &low].map(|f| w.run(f).kind),
        [VerdictKind::Copy, VerdictKind::Drop, VerdictKind::Drop]
    );
    assert_eq!(w.memory.counters[3], 1);
}

#[test]
fn example_16_steer_key_is_symmetric() {
    let mut w = world("main = steer_key key_5tuple");
    assert_eq!(w.run(&tcp(A, 1, B, 2)).hash, w.run(&tcp(B, 2, A, 1)).hash);
    assert_ne!(w.run(&tcp(A, 1, B, 2)).hash, w.run(&tcp(A, 2, B, 1)).hash);
    let mut w = world("main = steer_key (key_ip_src <> key_ip_dst)");
    assert_eq!(w.run(&tcp(A, 1, B, 2)).hash, w.run(&udp(B, 9, A, 8)).hash);
    assert_eq!(w.run(&arp()).kind, VerdictKind::Drop);
}

#[test]
fn steer_flow_yields_the_hash_of_the_descriptor() {
    let name = "steer_flow_yields_the_hash_of_the_descriptor";
    let Some(traces) = testkit::traces(name) else { return };
    let mut w = world("main = outer steer_flow");
    let hasher = FlowHasher::new(KEY);
    let mut compared = [0; 2];
    for p in testkit::captures::collect(&traces, 300) {
        let headers = Headers::of(&p.bytes, p.wire_len, link::ETHERNET);
        let out = w.run(&p.bytes[..]);
        let facts = Facts::of(&p.bytes, p.bytes.len() as u32, link::ETHERNET);
        if headers.protocol().is_none() {
            assert_eq!(out.kind, VerdictKind::Drop);
        } else if facts.outer.fragment != 0 {
            // Later fragments must have the hash of their first fragment, which includes the ports. (The hash in the
            // descriptor of a fragment does not include ports.)
            assert_eq!(out.kind, VerdictKind::Steer);
        } else if facts.outer == ir::facts::LayerFacts::of_headers(&headers) {
            assert_eq!(out.hash, hasher.hash(&p.bytes, &headers), "{:02x?}", p.bytes);
            compared[usize::from(facts.outer.family == 6)] += 1;
        }
    }
    assert!(compared.iter().all(|n| *n > 100), "{compared:?}");
}

/// The rows are those of the table in §2.6 of the PFQ thesis, which defines the semantics of PFQ programs. Each row
/// contains the verdict record before a stage, the stage, and the verdict record after it.
#[test]
fn stages_compose_as_in_the_semantics_of_pfq() {
    let starts = ["unit", "broadcast", "classify 5", "steer_flow", "double_steer_ip", "drop"];
    let record = |text: &str| {
        let out = world(&format!("main = {text}")).run(&tcp(A, 1, B, 2));
        (out.kind, if out.kind == VerdictKind::Drop { 0 } else { out.classes })
    };
    for start in starts {
        let (kind, classes) = record(start);
        let dropped = kind == VerdictKind::Drop;
        let after = |next| record(&format!("{start} >-> {next}"));
        let expect = |kind, classes| if dropped { (VerdictKind::Drop, 0) } else { (kind, classes) };
        assert_eq!(after("unit"), expect(kind, classes), "{start}");
        assert_eq!(after("drop"), (VerdictKind::Drop, 0), "{start}");
        assert_eq!(after("broadcast"), expect(VerdictKind::Copy, ANY_CLASS), "{start}");
        assert_eq!(after("classify 7"), expect(kind, 1 << 7), "{start}");
        assert_eq!(after("steer_p2p"), expect(VerdictKind::Steer, classes), "{start}");
        assert_eq!(after("double_steer_ip"), expect(VerdictKind::DoubleSteer, classes), "{start}");
        assert_eq!(after("inv udp"), expect(VerdictKind::Copy, classes), "{start}");
        assert_eq!(after("inv tcp"), (VerdictKind::Drop, 0), "{start}");
    }
}

const KNOCKING: &str = r#"
-- Port knocking: 5123, 6234, 7345, 8456, then 22.
auth_flow   = flow_map 0 TUPLE_5
knock_table = flow_map 1 TUPLE_3

next_if pred = if pred then incr_fstate knock_table else set_fstate knock_table 0

knock n = next_if (tcp_dest .== n) >-> drop

main =
  if get_fstate auth_flow
    then kernel
    else case get_fstate knock_table of
      0 -> knock 5123
      1 -> knock 6234
      2 -> knock 7345
      3 -> knock 8456
      4 -> if tcp_dest .== 22
             then set_fstate auth_flow 1 >-> kernel
             else set_fstate knock_table 0 >-> drop
      _ -> drop
"#;

#[test]
fn port_knocking_accepts_only_the_right_sequence() {
    let mut w = world(KNOCKING);
    let names: Vec<_> = w.program.maps.iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names, ["auth_flow", "knock_table"], "a map has the name of its binding");
    let mut knock = |ports: &[u16]| ports.iter().map(|p| w.run(&tcp(A, 999, B, *p)).kernel).collect::<Vec<_>>();
    assert_eq!(knock(&[22, 5123, 6234, 9, 7345, 22]), [false; 6], "a wrong port resets the sequence");
    assert_eq!(knock(&[5123, 6234, 7345, 8456, 22, 22]), [false, false, false, false, true, true]);
    assert_eq!(knock(&[23]), [false], "another flow does not pass");
    let common = netgrain_lang::clusters(&[&w.program]);
    assert_eq!(common, [(Key::of(&[Field::IpSrc, Field::IpDst, Field::IpProto]), vec![0, 1])]);
}

#[test]
fn maps_count_expire_and_are_bounded() {
    let mut w = world(
        "syns = for_ms 1000 (up_to 2 (flow_map 0 key_ip_src))\nmain = do\n  add_fstate syns 1\n  filter (get_fstate \
         syns .<= 2)\n",
    );
    let kinds = [0, 10, 20, 1_000_000_001].map(|t| {
        w.time = t;
        w.run(&tcp(A, 1, B, 2)).kind
    });
    assert_eq!(kinds, [VerdictKind::Copy, VerdictKind::Copy, VerdictKind::Drop, VerdictKind::Copy]);
    assert_eq!(w.run(&tcp(B, 1, A, 2)).kind, VerdictKind::Copy);
    w.run(&tcp([9; 4], 1, A, 2));
    assert_eq!((w.memory.tables[0].entries(w.time).len(), w.memory.tables[0].refused()), (2, 1));
    assert_eq!(w.run(&arp()).kind, VerdictKind::Drop, "a packet without a flow has no number to compare");
    let mut w = world("c = counter 0\nmain = when is_udp $ modifyCounter c (+1)");
    w.run(&udp(A, 1, B, 2));
    w.run(&tcp(A, 1, B, 2));
    assert_eq!(w.memory.counters[0], 1);
    for down in ["(-2)", "(- 2)"] {
        let mut w = world(&format!("c = counter 0\nmain = inc 0 >-> inc 0 >-> modifyCounter c {down}"));
        w.run(&tcp(A, 1, B, 2));
        assert_eq!(w.memory.counters[0], 0, "{down}");
    }
}

#[test]
fn a_minus_directly_after_a_value_is_a_subtraction() {
    for (text, number) in [("5-1", 4), ("5 - 1", 4), ("(5)-1", 4), ("2*3-1", 5)] {
        assert_eq!(world(&format!("main = mark ({text})")).run(&arp()).mark, number, "{text}");
    }
    assert_eq!(world("f x = mark (x-1)\nmain = f 3").run(&arp()).mark, 2);
    assert_eq!(
        world("main = filter (vlan_id [-1])").run(&arp()).kind,
        VerdictKind::Drop,
        "elsewhere the minus is a sign"
    );
}

#[test]
fn steer_common_uses_the_common_key_of_all_maps() {
    let maps = "a = flow_map 0 key_5tuple\nb = flow_map 1 (key_ip_src <> key_vlan)\n";
    let mut w = world(&format!("{maps}main = incr_fstate a >-> incr_fstate b >-> steer_common"));
    let mut hash = |frame: &[u8]| w.run(frame).hash;
    let first = hash(&tcp(A, 1, B, 2));
    assert_eq!(
        [hash(&udp(A, 7, [9; 4], 9)), hash(&tcp(A, 1, B, 2))],
        [first; 2],
        "packets of one sender have one hash"
    );
    assert_ne!(first, hash(&tcp(B, 2, A, 1)), "the common key is not symmetric");
    assert_eq!(w.run(&arp()).kind, VerdictKind::Drop);
    let same = |text: &str, by: &str| {
        let [one, other] = [text, by].map(|steer| {
            let text = format!("a = flow_map 0 key_5tuple\nmain = {steer} >-> incr_fstate a");
            world(&text).run(&tcp(A, 1, B, 2)).hash
        });
        assert_eq!(one, other, "{text}");
    };
    same("steer_common", "steer_key key_5tuple");
    same("src steer_common", "steer_key key_5tuple");
    let outside = "a = flow_map 0 key_ip_src\nmain = outer (incr_fstate a) >-> ";
    let by = |steer: &str| world(&format!("{outside}{steer}")).program.blocks;
    assert_eq!(by("steer_common"), by("outer (steer_key key_ip_src)"));
}

#[test]
fn an_excerpt_of_a_long_line_shows_the_part_around_the_error() {
    let text = format!("main = {}steer_flw{}", "ip >-> ".repeat(5000), " >-> ip".repeat(5000));
    let shown = compile(&text).unwrap_err().show(&text, "x");
    assert!(shown.len() < 1000 && shown.contains("…") && shown.contains("steer_flw"), "{shown}");
    let lines: Vec<Vec<char>> = shown.lines().map(|l| l.chars().collect()).collect();
    let marks = (0..lines[4].len()).filter(|i| lines[4][*i] == '^');
    assert_eq!(marks.map(|i| lines[3][i]).collect::<String>(), "steer_flw");
}

#[test]
fn a_symmetric_key_has_one_entry_for_both_directions() {
    let count = |key: &str| {
        let mut w = world(&format!("m = flow_map 0 {key}\nmain = incr_fstate m"));
        w.run(&tcp(A, 1, B, 2));
        w.run(&tcp(B, 2, A, 1));
        w.memory.tables[0].entries(0).len()
    };
    assert_eq!([count("key_5tuple"), count("(both_ways key_5tuple)"), count("key_3tuple")], [2, 1, 2]);
}

#[test]
fn programs_for_pfq_and_haskell_syntax_compile() {
    for text in [
        "import Network.PFQ.Lang\nimport qualified Data.Bits as B -- bits\nmain :: Function (Qbuff -> Action \
         Qbuff)\nmain = ip >-> steer_ip",
        "dns = has_port 53\nmain = do\n  ip\n  conditional dns\n    broadcast\n    steer_p2p\n",
        "main = filter (ip_tos ./= 0) >> when' is_udp (class' 3)",
        "main = addr (\"192.168.0.0\", 24) >-> unit",
        "main = addr 192.168.0.0/24 >-> src_addr fe80::/10",
        "main = filter (9 >. ip_ttl) {- nine is more -}",
        "main = filter (any_bit tcp_flags 0x12)",
        "main = bpf \"tcp port 80 or vlan and udp\"",
        "f::Act\nf = drop\nmain::Act\nmain = f",
        "main = filter (vlan_id [1, 2, -1])",
        "twice f = f >-> f\nmain = twice (inc 1) >-> (\\n -> classify n) 4",
        "main = bloom_filter 1024 [\"10.0.0.1\", 10.1.0.0] 16",
        "main = when (has_mark 7 .||. has_state 3) $ do\n  log_packet\n  tee \"eth1\" is_tcp\n",
        "main = case_of get_state $ with\n  [ 0 ~> inc 1 >-> drop\n  , 1 ~> do\n      inc 2\n      kernel\n  ]",
    ] {
        world(text);
    }
}

#[test]
fn errors_name_the_cause_and_the_correction() {
    for (text, message, help) in [
        ("main = forward 3", "`forward` takes an interface name here, but this is a number", "`forward \"eth1\"`"),
        ("main = forward eth1", "`eth1` is not known", "`forward \"eth1\"`"),
        ("main = when is_tcp forward \"eth1\"", "`when` takes an action here, but this is a function", "(forward …)"),
        ("main = conditional is_udp mark 42 kernel", "`conditional` takes an action here", "(mark …)"),
        ("sterr", "expected `=`", "sterr: did you mean `steer_"),
        ("main = sterr", "`sterr` is not known", "did you mean `steer_"),
        ("web >-> drop", "expected `=`", "write `web = …`"),
        ("main = steer_flw", "`steer_flw` is not known", "did you mean `steer_flow`?"),
        ("main = is_tcp >-> drop", "takes an action here, but this is a predicate", "filter"),
        ("main = filter (ip_ttl .< 9 .||. is_tcp)", "takes a", "put each comparison into parentheses"),
        ("a = b\nb = a\nmain = a", "refers to itself", "flow_map"),
        ("x = drop\n", "there is no `main`", "main = "),
        ("main = classify 64", "64 is out of range", ""),
        ("main = addr \"10.0.0\"", "is not an address", "10.0.0.0/8"),
        ("main = drop drop", "takes no ", "`>->`"),
        ("main = bpf \"prot 80\"", "did you mean `port`?", ""),
        ("main = if is_tcp then drop", "expected `else`", "when"),
        ("main = do\n  x <- drop\n  unit", "expected ", "cannot bind a value"),
        ("main = \"x", "does not end", "close it"),
        ("main = deliver 3 4", "`deliver` takes 1 value", "`>->`"),
        ("main = let x = 1 in drop", "not part of the language", "binding"),
        ("main = port 70000", "out of range", ""),
        ("main = steer_key", "an action", ""),
        ("main = bpf 80", "`bpf` takes a text in quotes", "quotes"),
        ("main = steer_local_ip 16", "takes an address", ""),
        (
            "import qualified MyRules as M\nmain = web >-> drop",
            "`web` is not known",
            "copy the definitions of `MyRules`",
        ),
        ("main = steer_common", "the program has no flow map", "`steer_key key_5tuple`"),
        (
            "a = flow_map 0 key_ip_src\nb = flow_map 1 key_vlan\nmain = incr_fstate a >-> incr_fstate b >-> \
             steer_common",
            "no field in common: ip_src for a; vlan for b",
            "a separate program",
        ),
        ("main = steer_field 0 5", "must be from 1 to 4", ""),
        ("m = idle_after 0 (flow_map 0 key_5tuple)\nmain = incr_fstate m", "at once", ""),
        ("m = up_to 0 (flow_map 0 key_5tuple)\nmain = incr_fstate m", "1 to 67108864 flows", ""),
        ("a = drop\na = unit\nmain = a", "bound twice", ""),
        ("main = case ip_proto of { _ -> drop; 6 -> kernel; _ -> unit }", "never reached: `_` comes before", "last"),
        ("main = case ip_proto of { 6 -> drop; 0x6 -> kernel }", "never reached: an arm for 6", ""),
        ("main = case ip_proto of { -1 -> drop; _ -> unit }", "no property is negative", ""),
        ("main = addr 10.0.0.0/33", "`10.0.0.0/33` is neither an address", "prefix length of up to 32"),
        ("main = addr 10.0.0.256", "`10.0.0.256` is neither an address", "up to 255"),
        ("main = addr 2001:db8::/129", "`2001:db8::/129` is neither an address", "prefix length of up to 128"),
        ("c = counter 0\nmain = modifyCounter c 1", "takes a change", ""),
        ("main = has_port 80", "`main` takes an action here, but this is a predicate", "`filter (…)`"),
        ("steer tcp port 80", "expected `=`", "`main = bpf \"…\" >-> steer_flow`"),
        ("steer tcp port 80", "expected `=`", "only in `netgrain group`"),
        ("copy udp", "expected `=`", "`main = bpf \"…\"`"),
        ("m = flow_map 0 ip_src\nmain = incr_fstate m", "`ip_src` is not known", "`key_ip_src`"),
        ("m = flow_map 0 ip_proto\nmain = incr_fstate m", "takes a key here", "`key_ip_proto`"),
        ("main = classify 63", "class 63 is reserved for management", "0 to 62"),
        ("main = deliver 63", "class 63 is reserved for management", "0 to 62"),
        ("main = dispatch 63", "class 63 is reserved for management", "0 to 62"),
        ("main = case ip_proto of\n", "expected an arm such as `0 -> drop`", ""),
        ("main = case ip_proto of {}", "expected an arm such as `0 -> drop`", ""),
        ("main = case_of ip_proto $ with []", "has no arm", "`[0 ~> drop]`"),
    ] {
        let error = compile(text).expect_err(text);
        let shown = error.show(text, "x");
        assert!(shown.contains(message) && shown.contains(help), "`{text}`\n{shown}");
    }
}

#[test]
fn placement_is_the_longest_kernel_prefix_that_decides_packets() {
    let kernel = |text: &str| {
        let places = placement(&world(text).program);
        (places.iter().filter(|p| p.is_kernel()).count(), places.len())
    };
    assert_eq!(kernel("main = ip >-> steer_flow"), (2, 2));
    assert_eq!(kernel("main = ip >-> mark 3 >-> outer steer_flow"), (3, 3));
    assert_eq!(kernel("main = unless is_tcp (bridge \"eth1\") >-> inc 1 >-> log_packet"), (2, 3));
    assert_eq!(kernel("m = flow_map 0 key_5tuple\nmain = outer (incr_fstate m) >-> detour"), (2, 2));
    assert_eq!(kernel("main = ip >-> forward \"eth1\" >-> steer_flow"), (1, 3), "`forward` would copy each packet");
    assert_eq!(kernel("main = ip >-> inc 1 >-> when is_tcp log_packet"), (2, 3), "a counter changes before the log");
    assert_eq!(kernel("main = ip >-> steer_rrobin"), (1, 2));
}

#[test]
fn placement_names_the_packets_left_undecided() {
    let places = placement(&world("main = ip >-> when is_tcp (forward \"eth1\") >-> steer_flow").program);
    const STEERED: [&str; 2] = ["packets that may contain a tunnel", "fragments, which user space tracks"];
    let of = |undecided: &[&'static str]| Placement::Kernel { undecided: undecided.to_vec() };
    assert_eq!(places, [of(&[]), of(&["packets that are copied"]), of(&STEERED)]);
}

#[test]
fn no_map_is_shared_by_kernel_and_user_space() {
    let text = "m = flow_map 0 key_5tuple\nmain = incr_fstate m >-> when (get_fstate m .> 3) log_packet";
    let places = placement(&world(text).program);
    assert!(matches!(&places[0], Placement::User(UserSpaceReason::SharedMap(map)) if map == "m"), "{places:?}");
}

#[test]
fn each_trace_contains_the_record_at_that_point() {
    let mut w =
        world("main = trace >-> mark 7 >-> trace >-> classify 4 >-> kernel >-> steer_to 3 >-> trace >-> broadcast");
    let traces: Vec<_> = w.run(&udp(A, 1, B, 2)).traces.iter().map(ToString::to_string).collect();
    assert_eq!(
        traces,
        [
            "copy class 0 hash 00000000 00000000 mark 0 state 0",
            "copy class 0 hash 00000000 00000000 mark 7 state 0",
            "pick class 4 hash 00000003 00000000 mark 7 state 0 kernel",
        ]
    );
    let mut w = world("main = par (classify 1 >-> trace >-> drop) (put_state 2 >-> shift trace)");
    let inner = udp(A, 1, B, 2);
    let payload = [&tunnel::vxlan(7)[..], &inner].concat();
    let mut outer = [0; 200];
    let vxlan = w.run(Frame::udp4([1; 4], 50_000, [2; 4], 4789).payload(&payload).write(&mut outer).unwrap());
    let traces: Vec<_> = vxlan.traces.iter().map(|so_far| (so_far.classes, so_far.state)).collect();
    assert_eq!(traces, [(2, 0), (1, 2)], "`par` restores the classes before the next action");
}
