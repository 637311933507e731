//! Tests of the Enif-lang programs that are printed in Bonelli's thesis (2017, §4.10 and §4.11), and of programs for
//! older versions of PFQ.

use ir::Facts;
use ir::VerdictKind;
use ir::interp::{Action, Execution, Interpreter, ProgramState};
use netgrain_lang::{compile, syntax};
use wire::build::Frame;
use wire::link;

struct World {
    program: ir::Program,
    memory: ProgramState,
}

fn world(text: &str) -> World {
    let compiled = compile(text).unwrap_or_else(|e| panic!("{}", e.show(text, "printed")));
    let memory = ProgramState::of(&compiled.program, 7);
    World { program: compiled.program, memory }
}

impl World {
    fn run(&mut self, frame: Frame<'_>) -> Execution {
        let mut bytes = [0; 80];
        let bytes = frame.fill(&mut bytes);
        let facts = Facts::of(bytes, bytes.len() as u32, link::ETHERNET);
        Interpreter::new(&self.program).run(bytes, &facts, &mut self.memory)
    }
}

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];

fn tcp(port: u16) -> Frame<'static> {
    Frame::tcp4(A, 4000, B, port)
}

fn udp(port: u16) -> Frame<'static> {
    Frame::udp4(A, 4000, B, port)
}

#[test]
fn the_udp_counter_runs_as_printed() {
    let mut w = world(
        "udpCounter = counter 0\n\
         enif_main :: Packet -> Action ()\n\
         enif_main pkt =\n    \
             when (is_udp pkt) $ modifyCounter udpCounter (+1)\n",
    );
    for frame in [udp(53), tcp(80), udp(5)] {
        assert_eq!(w.run(frame).kind, VerdictKind::Copy);
    }
    assert_eq!(w.memory.counters[0], 2);
}

/// The text is as printed in the thesis, except that an unmatched closing parenthesis is removed.
const TAGS: &str = "\
http = dst_port 80
pass_to_kernel =
   when (has_state http_traffic)
        kernel
mirror_to_port =
   when (has_state other_traffic)
        (forward \"eth2\")
process = if (not is_tcp)
           then drop
           else do pass_to_kernel
                   mirror_to_port
http_traffic = 1
other_traffic = 2
enif_main :: Packet -> Action ()
enif_main pkt = do
 if (http pkt)
       then put_state http_traffic
       else put_state other_traffic
 process
";

#[test]
fn the_http_tagger_runs_as_printed() {
    let mut w = world(TAGS);
    let (web, other, not) = (w.run(tcp(80)), w.run(tcp(81)), w.run(udp(80)));
    assert_eq!((web.kernel, &web.actions[..]), (true, &[][..]));
    assert_eq!((other.kernel, &other.actions[..]), (false, &[Action::Forward(0)][..]));
    assert_eq!((not.kind, not.kernel), (VerdictKind::Drop, false));
}

/// The program differs from the printed program; a table in docs/reference/packet-language.md lists the changes.
const KNOCKING: &str = "\
auth_flow = flow_map 0 TUPLE_5
knock_table = flow_map 1 TUPLE_3
next_if pred =
   if pred
    then incr_fstate knock_table
    else set_fstate knock_table 0
enif_main :: Packet -> Action IO ()
enif_main pkt =
  if (get_fstate auth_flow)
 then kernel
 else case_of (get_fstate knock_table) $ with
  [ 0 ~> next_if (tcp_dest .== 5123) >-> drop
   , 1 ~> next_if (tcp_dest .== 6234) >-> drop
   , 2 ~> next_if (tcp_dest .== 7345) >-> drop
   , 3 ~> next_if (tcp_dest .== 8456) >-> drop
   , 4 ~> do
           next_if (tcp_dest .== 22)
           when (get_fstate knock_table .== 5)
            (set_fstate auth_flow 1 >-> kernel)
    ]
";

#[test]
fn port_knocking_runs_with_three_changed_words() {
    for text in [KNOCKING.to_owned(), KNOCKING.replace("tcp_dest .==", "dst_port")] {
        let mut w = world(&text);
        let mut knock = |ports: &[u16]| ports.iter().map(|p| w.run(tcp(*p)).kernel).collect::<Vec<_>>();
        assert_eq!(knock(&[22, 5123, 6234, 9, 7345, 22]), [false; 6], "a wrong port resets the sequence");
        assert_eq!(knock(&[5123, 6234, 7345, 8456, 22, 22]), [false, false, false, false, true, true]);
    }
}

#[test]
fn the_flow_tracker_counts_flows() {
    let mut w = world(
        "flowMap = up_to 1000000 (flow_map 0 TUPLE_5)\n\
         enif_main :: Packet -> Action IO ()\n\
         enif_main pkt = incr_fstate flowMap\n",
    );
    for frame in [tcp(80), udp(53), tcp(80)] {
        w.run(frame);
    }
    assert_eq!((w.program.maps[0].name.as_str(), w.memory.tables[0].entries(0).len()), ("flowMap", 2));
}

#[test]
fn naming_the_packet_parameter_changes_nothing() {
    let plain = world("web = has_port 80\nmain = ip >-> when (web .&&. is_tcp) (mark 3) >-> steer_flow").program;
    for named in [
        "web p = has_port 80 p\nmain pkt = ip pkt >-> when (web pkt .&&. is_tcp pkt) (mark 3 pkt) >-> steer_flow pkt",
        "web p = has_port 80 p\nmain = ip >-> when (web .&&. is_tcp) (mark 3) >-> steer_flow",
        "web p = has_port 80 p\nrest p = steer_flow p\nenif_main p = do\n  ip p\n  when (web p .&&. is_tcp) $ mark \
         3\n  rest p",
        "web _ = has_port 80\nmain = (\\p -> ip p) >=> when (web .&&. is_tcp) (mark 3) >=> steer_flow",
    ] {
        assert_eq!(world(named).program.blocks, plain.blocks, "{named}");
    }
    assert_eq!(world("ttl p = ip_ttl p\nmain p = filter (ttl p .> 9)").run(tcp(1)).kind, VerdictKind::Copy);
    for (text, message) in [
        ("main pkt = forward pkt", "`forward` takes an interface name here, but this is the packet"),
        ("main pkt = pkt", "`main` takes an action here"),
        ("main a b = ip", "`b` is one too many"),
        ("main pkt = when (is_tcp 3) drop", "takes no "),
        ("f p = is_tcp p\nmain = when (f 80) drop", "`f` takes the packet here, but this is a number"),
        ("enif_main pkt = pkt >-> drop", "takes an action here"),
    ] {
        let error = compile(text).unwrap_err().show(text, "x");
        assert!(error.contains(message), "{error}");
    }
    let both = world("enif_main pkt = drop\nmain = ip").program;
    assert_eq!(both.blocks, world("main = ip").program.blocks, "`main` has priority over `enif_main`");
}

#[test]
fn a_filter_is_usable_as_a_predicate() {
    let kinds = |text: &str| {
        let mut w = world(text);
        [tcp(80), tcp(81), udp(80)].map(|frame| w.run(frame).kind == VerdictKind::Copy)
    };
    assert_eq!(kinds("main = filter (tcp .&&. port 80)"), [true, false, false]);
    assert_eq!(kinds("main = filter (not (port 80))"), [false, true, false]);
    assert_eq!(kinds("main = if ip >-> port 80 then unit else drop"), [true, false, true]);
    assert_eq!(kinds("main = filter (udp `or` port 81)"), [false, true, true]);
}

#[test]
fn the_oldest_names_for_class_delivery_work() {
    let outcome = |text: &str| {
        let out = world(text).run(tcp(80));
        (out.kind, out.class())
    };
    assert_eq!(outcome("main = deliver 3"), (VerdictKind::Copy, Some(3)));
    assert_eq!(outcome("main = steer_flow >-> deliver 3"), (VerdictKind::Copy, Some(3)), "the later choice wins");
    assert_eq!(outcome("main = deliver 3 >-> steer_flow"), (VerdictKind::Steer, Some(3)));
    assert_eq!(outcome("main = dispatch 4"), (VerdictKind::Steer, Some(4)));
    assert_eq!(outcome("main = class_steering 4"), outcome("main = dispatch 4"));
    assert_eq!(outcome("main = broadcast >-> dispatch 4 >-> steer_link"), (VerdictKind::Steer, Some(4)));
    let hash = |text: &str| world(text).run(tcp(80)).hash;
    assert_eq!(hash("main = dispatch 4"), hash("main = classify 4 >-> steer_flow"));
    assert_eq!(hash("main = dispatch 4 >-> steer_p2p"), hash("main = steer_p2p"));
    let gone = compile("main = crc16").unwrap_err();
    assert!(gone.help.is_some_and(|h| h.contains("bench")));
}

#[test]
fn fractions_are_probabilities() {
    let bits = |text: &str| {
        let text = format!("main = bloom_filter ({text}) [\"10.0.0.1\"] 32");
        compile(&text).unwrap_or_else(|e| panic!("{}", e.show(&text, "x"))).term
    };
    for same in ["bloomCalcM 4 1e-3", "bloomCalcM 4 1000", "bloomCalcM 4 1.0e-3"] {
        assert_eq!(
            format!("{:?}", bits(same)).replace(same, ""),
            format!("{:?}", bits("bloomCalcM 4 0.001")).replace("bloomCalcM 4 0.001", "")
        );
    }
    // `bloomCalcM n p` is ⌈-4 n / ln(1 - p^(1/4))⌉, which is 82 for n = 4 hosts and a probability p of 0.001.
    let mark = |n: u64| world(&format!("main = mark (bloomCalcM 4 0.001 - {n})")).run(tcp(1)).mark;
    let expected = (-16.0 / (1.0_f64 - 0.001_f64.powf(0.25)).ln()).ceil() as u32;
    assert_eq!((mark(0), mark(1)), (expected, expected - 1));
    for (text, message) in [
        ("main = mark 0.5", "`mark` takes a number here, but this is a probability"),
        ("main = mark (bloomCalcM 4 1.5)", "1.5 is not a probability"),
        ("main = mark (bloomCalcM 4 0)", "0 is not a probability"),
        ("main = addr 10.0.0/8", "`10.0.0` is not a number"),
        ("main = mark 1e", "`1e` is not a number"),
        ("main = mark 1.5x", "`1.5x` is not a number"),
    ] {
        let error = compile(text).unwrap_err().show(text, "x");
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn a_function_in_backquotes_is_an_infix_operator() {
    let same = |a: &str, b: &str| assert_eq!(world(a).program.blocks, world(b).program.blocks, "{a}");
    same("main = filter (ip_tos `any_bit` 3)", "main = filter (any_bit ip_tos 3)");
    same("main = filter (ip_tos `any_bit` 3 .&&. is_tcp)", "main = filter ((any_bit ip_tos 3) .&&. is_tcp)");
    same(
        "both f g = f >-> g\nmain = ip `both` mark 3 `both` drop",
        "both f g = f >-> g\nmain = ip >-> mark 3 >-> drop",
    );
    same("main = is_tcp `when` mark 3 >-> drop", "main = (when is_tcp (mark 3)) >-> drop");
    assert_eq!(syntax::format("main = filter (ip_tos  `any_bit`  3)").unwrap(), "main = filter (ip_tos `any_bit` 3)\n");
    for (text, message) in [
        ("main = filter (ip_tos `any_bt` 3)", "did you mean `any_bit`?"),
        ("main = filter (ip_tos `3` 3)", "between two backquotes"),
        ("main = filter (`any_bit` 3)", "found `any_bit`"),
    ] {
        let error = compile(text).unwrap_err().show(text, "x");
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn a_byte_order_mark_is_ignored() {
    let text = "\u{feff}-- a program\nmain = do\n  ip\n  steer_flow\nother = drop\n";
    assert_eq!(world(text).program, world(text.trim_start_matches('\u{feff}')).program);
    assert_eq!(syntax::headline(text), "main = do");
    assert_eq!(syntax::format(text).unwrap(), text);
    let error = compile("\u{feff}main = steer_flw").unwrap_err();
    assert!(error.help.is_some_and(|h| h.contains("steer_flow")));
}
