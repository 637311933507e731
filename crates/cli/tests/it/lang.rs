//! `netgrain lang`: check, explain, format and run programs.

use crate::common;

use common::{Output, arg, run};
use testkit::TempDir;

const STEERED: &str = "main = ip >-> when is_tcp (forward \"eth1\") >-> steer_flow";

#[track_caller]
fn succeeds(output: &Output) -> &str {
    assert_eq!((output.status, output.err.as_str()), (Some(0), ""), "{output:?}");
    &output.out
}

#[test]
fn a_program_is_checked_and_an_error_shows_its_line_and_what_to_write() {
    assert!(succeeds(&run(&["lang", "check", "-e", STEERED])).starts_with("program: 3 stages, "));
    let wrong = run(&["lang", "check", "-e", "main = ip >-> forward eth1"]);
    assert_eq!((wrong.status, wrong.out.as_str()), (Some(2), ""), "{wrong:?}");
    assert!(wrong.err.contains("1 | main = ip >-> forward eth1\n  |                       ^^^^\n"), "{}", wrong.err);
    let last = wrong.err.lines().last().unwrap();
    assert_eq!(last, "netgrain: program:1:23: `eth1` is not known; put the text in quotes: `forward \"eth1\"`");
    let json = run(&["lang", "check", "--json", "-e", "main = steer_flw"]);
    assert_eq!(json.status, Some(2));
    let object: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&object["ok"], &object["column"]), (&false.into(), &8.into()), "{object}");
    let missing = run(&["lang", "check", "/nowhere/program"]);
    assert!(missing.status == Some(2) && missing.err.starts_with("netgrain: /nowhere/program: "), "{missing:?}");
}

#[test]
fn explain_shows_types_effects_placement_and_costs() {
    let output = run(&["lang", "explain", "-e", STEERED]);
    let out = succeeds(&output);
    assert!(out.starts_with("main : Act"), "{out}");
    let stages: Vec<_> = out.lines().filter(|l| l.starts_with("kernel ") || l.starts_with("user ")).collect();
    assert!(stages.len() == 3 && stages.iter().all(|s| s.starts_with("kernel ")), "{out}");
    assert!(stages[1].contains("undecided: packets that are copied"), "{out}");
    let object: serde_json::Value =
        serde_json::from_str(succeeds(&run(&["lang", "explain", "--json", "-e", STEERED]))).unwrap();
    assert_eq!(object["stages"][1]["stage"], "when is_tcp (forward \"eth1\")", "{object}");
    assert!(succeeds(&run(&["lang", "explain", "--ir", "-e", STEERED])).contains("forward \"eth1\""));
}

#[test]
fn lang_run_counts_the_verdicts_of_a_capture() {
    let dir = TempDir::new("lang-run");
    let (file, program) = (dir.join("frames.pcap"), dir.join("program"));
    assert_eq!(run(&["gen", "-w", arg(&file), "imix,flows=10", "--packets", "500"]).status, Some(0));
    std::fs::write(&program, "m = flow_map 0 key_5tuple\nmain = do\n  ip\n  incr_fstate m\n  inc 3\n  steer_flow\n")
        .unwrap();
    let output = run(&["lang", "run", "-r", arg(&file), "--json", arg(&program)]);
    let object: serde_json::Value = serde_json::from_str(succeeds(&output)).unwrap();
    assert_eq!(
        (&object["packets"], &object["kinds"]["steer"], &object["counters"]["3"]),
        (&500.into(), &500.into(), &500.into()),
        "{object}"
    );
    assert_eq!(object["maps"][0]["flows"], 10, "{object}");
    let lines = run(&["lang", "run", "-r", arg(&file), "--print", "-c", "7", "-e", "main = drop"]);
    assert_eq!(succeeds(&lines).lines().filter(|l| l.ends_with(" drop")).count(), 7);
}

#[test]
fn a_pcap_filter_is_compiled_for_the_link_type_of_the_capture() {
    let dir = TempDir::new("lang-raw");
    let file = dir.join("raw.pcap");
    // One packet of raw IP (link type 101): an IPv4 header and the ports of TCP.
    let mut packet = [0; 40];
    (packet[0], packet[3], packet[9], packet[32]) = (0x45, 40, 6, 0x50);
    packet[22..24].copy_from_slice(&80_u16.to_be_bytes());
    let words = [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 65_535, 101, 0, 0, 40, 40];
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).chain(packet).collect();
    std::fs::write(&file, &bytes).unwrap();
    for program in ["main = bpf \"tcp port 80\"", "main = tcp >-> port 80"] {
        let passed = run(&["lang", "run", "-r", arg(&file), "--print", "-e", program]);
        assert!(succeeds(&passed).starts_with("1 copy"), "{passed:?}");
    }
    let rejected = run(&["lang", "run", "-r", arg(&file), "-e", "main = bpf \"vlan 5\""]);
    assert!(rejected.status == Some(2) && rejected.out.is_empty(), "{rejected:?}");
    assert!(rejected.err.contains("VLAN tags are not supported"), "{rejected:?}");
    // The complete packets of a truncated capture are counted, and the truncation is reported.
    std::fs::write(&file, [&bytes[..], &bytes[24..60]].concat()).unwrap();
    let cut = run(&["lang", "run", "-r", arg(&file), "-e", "main = tcp"]);
    assert!(cut.status == Some(2) && cut.out.starts_with("1 packets") && cut.err.contains("raw.pcap"), "{cut:?}");
}

#[test]
fn fmt_formats_a_program_and_functions_prints_the_function_table() {
    let dir = TempDir::new("lang-fmt");
    let file = dir.join("program");
    std::fs::write(&file, "main =   ip  >->drop   -- all\n\n").unwrap();
    assert_eq!(succeeds(&run(&["lang", "fmt", arg(&file)])), "main = ip >-> drop   -- all\n");
    assert_eq!(succeeds(&run(&["lang", "fmt", "--write", arg(&file)])), "");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "main = ip >-> drop   -- all\n");
    assert!(succeeds(&run(&["lang", "functions"])).contains("| `steer_flow` |"));
}

#[test]
fn explain_names_headers_only_for_programs_that_read_them() {
    let [drops, reads] = ["main = drop", "main = tcp"].map(|program| run(&["lang", "explain", "-e", program]));
    assert!(!succeeds(&drops).contains("passed to user space"), "{drops:?}");
    assert!(succeeds(&reads).contains("headers the kernel part does not parse"), "{reads:?}");
    assert!(reads.out.contains("the program of a group runs in user space"), "{reads:?}");
}

#[test]
fn trace_prints_the_state_at_the_time_of_the_call() {
    let dir = TempDir::new("lang-trace");
    let file = dir.join("frames.pcap");
    assert_eq!(run(&["gen", "-w", arg(&file), "imix,flows=1", "--packets", "1"]).status, Some(0));
    let program = "main = trace >-> classify 4 >-> mark 7 >-> log_msg \"seen\" >-> log_packet >-> trace";
    let output = run(&["lang", "run", "-r", arg(&file), "--print", "-e", program]);
    let line = succeeds(&output).lines().next().expect("a line");
    let [first, second, packet, last] = line.split("log \"").skip(1).collect::<Vec<_>>()[..] else {
        panic!("not four logs: {line}")
    };
    assert!(first.starts_with("copy class 0 hash 00000000 00000000 mark 0 state 0\""), "{line}");
    assert!(second.starts_with("seen\"") && packet.contains(" length "), "{line}");
    assert!(last.starts_with("copy class 4 hash 00000000 00000000 mark 7 state 0\""), "{line}");
}

/// The output of `lang repl` with these lines as its input.
fn repl(lines: &str) -> Output {
    let mut command = common::netgrain(&["lang", "repl"]);
    let dir = TempDir::new("repl");
    let file = dir.join("lines");
    std::fs::write(&file, lines).expect("written");
    common::run_command(command.stdin(std::fs::File::open(&file).expect("the file")))
}

#[test]
fn the_repl_reads_lines_until_an_expression_is_complete() {
    let output = repl(
        "main = do\n  tcp\n  steer_flow\nweb = has_port 80 .||.\n  has_port 443\n:t web\n:t forward\n:q\nnosuch\n",
    );
    let out = succeeds(&output);
    assert!(out.contains(" tcp\n") && out.contains(" steer_flow"), "both stages of one program: {out}");
    assert!(out.contains("web : Pred\nweb : Pred\nforward : Interface -> Act\n"), "{out}");
    let again = repl("web = has_port 80\nweb = has_port 8080\nwhen web drop\n");
    assert!(
        succeeds(&again).contains("stage\n") && again.out.contains("when web drop"),
        "the second definition is used: {again:?}"
    );
}

#[test]
fn the_repl_shows_errors_in_the_lines_as_entered() {
    let output = repl("web = has_port 80\nwhen (is_tcp\n .&&. web) dorp\nx = forward 3\nmain = do\n  tcp\n  nosuch\n");
    for shown in [
        "--> line:2:12\n  |\n2 |  .&&. web) dorp\n  |            ^^^^\n",
        "--> line:1:13\n  |\n1 | x = forward 3\n",
        "--> line:3:3\n  |\n3 |   nosuch\n",
    ] {
        assert!(output.err.contains(shown), "{shown}: {}", output.err);
    }
}
