//! `netgrain lang`: programs checked, explained, made tidy and tried out.

mod common;

use common::{Said, arg, run};
use testkit::TempDir;

const STEERED: &str = "main = ip >-> when is_tcp (forward \"eth1\") >-> steer_flow";

#[track_caller]
fn yes(said: &Said) -> &str {
    assert_eq!((said.status, said.err.as_str()), (Some(0), ""), "{said:?}");
    &said.out
}

#[test]
fn a_program_is_checked_and_an_error_shows_its_line_and_what_to_write() {
    assert!(yes(&run(&["lang", "check", "-e", STEERED])).starts_with("program: 3 stages, "));
    let wrong = run(&["lang", "check", "-e", "main = ip >-> forward eth1"]);
    assert_eq!((wrong.status, wrong.out.as_str()), (Some(2), ""), "{wrong:?}");
    assert!(wrong.err.contains("1 | main = ip >-> forward eth1\n  |                       ^^^^\n"), "{}", wrong.err);
    let last = wrong.err.lines().last().unwrap();
    assert_eq!(last, "netgrain: program:1:23: `eth1` is not known; a text stands in quotes: `forward \"eth1\"`");
    let json = run(&["lang", "check", "--json", "-e", "main = steer_flw"]);
    assert_eq!(json.status, Some(2));
    let object: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&object["ok"], &object["column"]), (&false.into(), &8.into()), "{object}");
    let missing = run(&["lang", "check", "/nowhere/program"]);
    assert!(missing.status == Some(2) && missing.err.starts_with("netgrain: /nowhere/program: "), "{missing:?}");
}

#[test]
fn explain_shows_types_effects_placement_and_costs() {
    let said = run(&["lang", "explain", "-e", STEERED]);
    let out = yes(&said);
    assert!(out.starts_with("main : Act"), "{out}");
    let stages: Vec<_> = out.lines().filter(|l| l.starts_with("kernel ") || l.starts_with("user ")).collect();
    assert!(stages.len() == 3 && stages.iter().all(|s| s.starts_with("kernel ")), "{out}");
    assert!(stages[1].contains("leaves packets that are copied"), "{out}");
    let object: serde_json::Value =
        serde_json::from_str(yes(&run(&["lang", "explain", "--json", "-e", STEERED]))).unwrap();
    assert_eq!(object["stages"][1]["stage"], "when is_tcp (forward \"eth1\")", "{object}");
    assert!(yes(&run(&["lang", "explain", "--ir", "-e", STEERED])).contains("forward \"eth1\""));
}

#[test]
fn a_capture_is_run_and_its_fates_add_up() {
    let dir = TempDir::new("lang-run");
    let (file, program) = (dir.join("frames.pcap"), dir.join("program"));
    assert_eq!(run(&["gen", "-w", arg(&file), "imix,flows=10", "--packets", "500"]).status, Some(0));
    std::fs::write(&program, "m = flow_map 0 key_5tuple\nmain = do\n  ip\n  incr_fstate m\n  inc 3\n  steer_flow\n")
        .unwrap();
    let said = run(&["lang", "run", "-r", arg(&file), "--json", arg(&program)]);
    let object: serde_json::Value = serde_json::from_str(yes(&said)).unwrap();
    assert_eq!(
        (&object["packets"], &object["kinds"]["steer"], &object["counters"]["3"]),
        (&500.into(), &500.into(), &500.into()),
        "{object}"
    );
    assert_eq!(object["maps"][0]["flows"], 10, "{object}");
    let lines = run(&["lang", "run", "-r", arg(&file), "--print", "-c", "7", "-e", "main = drop"]);
    assert_eq!(yes(&lines).lines().filter(|l| l.ends_with(" drop")).count(), 7);
}

#[test]
fn a_filter_of_tcpdump_is_made_for_the_link_of_the_capture() {
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
        assert!(yes(&passed).starts_with("1 copy"), "{passed:?}");
    }
    let refused = run(&["lang", "run", "-r", arg(&file), "-e", "main = bpf \"vlan 5\""]);
    assert!(refused.status == Some(2) && refused.out.is_empty(), "{refused:?}");
    assert!(refused.err.contains("no VLAN tag"), "{refused:?}");
    // Of a capture that was cut, what is there counts, and the cut is said.
    std::fs::write(&file, [&bytes[..], &bytes[24..60]].concat()).unwrap();
    let cut = run(&["lang", "run", "-r", arg(&file), "-e", "main = tcp"]);
    assert!(cut.status == Some(2) && cut.out.starts_with("1 packets") && cut.err.contains("raw.pcap"), "{cut:?}");
}

#[test]
fn fmt_tidies_and_functions_are_the_page() {
    let dir = TempDir::new("lang-fmt");
    let file = dir.join("program");
    std::fs::write(&file, "main =   ip  >->drop   -- all\n\n").unwrap();
    assert_eq!(yes(&run(&["lang", "fmt", arg(&file)])), "main = ip >-> drop   -- all\n");
    assert_eq!(yes(&run(&["lang", "fmt", "--write", arg(&file)])), "");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "main = ip >-> drop   -- all\n");
    assert!(yes(&run(&["lang", "functions"])).contains("| `steer_flow` |"));
}
