//! `include/netgrain_listen.h` agrees with the Rust code: the constants and the layout are equal, and a C program and a
//! Rust program read the same packets.
#![cfg(not(loom))]

mod support;

#[path = "../examples/count.rs"]
#[allow(dead_code, reason = "the tests do not call its main")]
mod count;

use base::{DuplicateClass, Timestamp, TimestampMethod};
use netgrain_ring::{AnnotatedPosition, Annotations, Control, Desc, Mode, RECORD_HEADER, STREAM_POSITION_MAX, flag};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::mem::offset_of;
use std::path::Path;
use std::process::{Command, Stdio};
use support::{Engine, compile, config, frame, until, workspace};
use testkit::TempDir;

const HEADER: &str = include_str!("../../../include/netgrain_listen.h");
const SOCKET: &str = "NETGRAIN_TEST_SOCKET";
const MODE: &str = "NETGRAIN_TEST_MODE";

/// Returns each `#define NGL_…` of the C header whose value is a plain number.
fn defines() -> BTreeMap<&'static str, u64> {
    let lines = HEADER.lines().filter_map(|l| l.strip_prefix("#define NGL_"));
    lines.filter_map(|l| l.split_once(' ')).filter_map(|(k, v)| Some((k, number(v)?))).collect()
}

/// The value of a C or Rust expression that is a plain number; `None` for any other expression.
fn number(text: &str) -> Option<u64> {
    let text = text.split("/*").next()?.trim().trim_end_matches(';').trim();
    match text.split_once(" << ") {
        Some((n, shift)) => Some(number(n)? << number(shift)?),
        None => text.replace('_', "").parse().ok(),
    }
}

/// `const NAME: T = number;` within `mod NAME { … }` of a Rust source, or outside of all modules.
fn constants<'a>(source: &'a str, module: Option<&str>) -> BTreeMap<&'a str, u64> {
    let from = module.map_or(0, |m| source.find(&format!("mod {m} {{")).expect("the module exists"));
    let text = &source[from..];
    let text = module.map_or(text, |_| &text[..text.find("\n}").expect("the end of the module")]);
    let indent = if module.is_some() { "    " } else { "" };
    let lines = text.lines().filter_map(|l| l.strip_prefix(indent)).map(|l| l.trim_start_matches("pub "));
    let pairs = lines.filter_map(|l| l.strip_prefix("const ")?.split_once(": "));
    pairs.filter_map(|(name, rest)| Some((name, number(rest.split_once(" = ")?.1)?))).collect()
}

#[test]
fn the_c_header_has_the_constants_of_the_layout() {
    let c = defines();
    let layout = include_str!("../src/layout.rs");
    let at = constants(layout, Some("at"));
    assert!(at.len() >= 24, "offsets found: {at:?}");
    for (name, offset) in &at {
        assert_eq!(c.get(format!("AT_{name}").as_str()), Some(offset), "NGL_AT_{name}");
    }
    assert_eq!(c.keys().filter(|k| k.starts_with("AT_")).count(), at.len(), "the header defines no other offset");
    let desc = include_str!("../src/desc.rs");
    for (name, bit) in constants(desc, Some("flag")) {
        assert_eq!(c.get(format!("FLAG_{name}").as_str()), Some(&bit), "NGL_FLAG_{name}");
    }
    let kinds = constants(desc, Some("kind"));
    assert_eq!(kinds.len(), 9);
    for (name, kind) in kinds {
        assert_eq!(c.get(format!("KIND_{name}").as_str()), Some(&kind), "NGL_KIND_{name}");
    }
    for method in TimestampMethod::ALL {
        let name = format!("METHOD_{}", method.name().to_uppercase());
        assert_eq!(c.get(name.as_str()), Some(&(method as u64)), "NGL_{name}");
    }
    for class in DuplicateClass::ALL {
        let name = format!("DUPLICATE_{}", class.name().to_uppercase());
        assert_eq!(c.get(name.as_str()), Some(&(class as u64)), "NGL_{name}");
    }
    let layout = constants(layout, None);
    assert_eq!((c["VERSION"], c["PAGE"], c["NAME"]), (layout["VERSION"], layout["PAGE"], layout["NAME"]));
    let attach = constants(include_str!("../src/attach.rs"), None);
    assert_eq!((c["ACCEPT"], c["RING"], c["RINGS_MAX"]), (attach["ACCEPT"], attach["RING"], attach["RINGS_MAX"]));
    assert_eq!(c["RECORD_HEADER"], RECORD_HEADER as u64);
    assert_eq!(c["PACKET_MAX"], netgrain_ring::CAPLEN_MAX as u64);
    assert!(c["CAUSES"] >= base::Cause::COUNT as u64);
    assert_eq!(c["FLAG_CONTROL"], u64::from(flag::CONTROL));
}

#[test]
fn the_layout_of_a_descriptor_is_the_same_in_c_and_rust() {
    let directory = TempDir::new("c_layout");
    let source = directory.join("layout.c");
    let fields = ["annotated_pos", "ts", "hash", "mark", "caplen", "wire_len", "queue", "flags", "l3", "l4"];
    let prints: String = fields.iter().map(|f| format!("printf(\"%zu \", offsetof(ngl_desc, {f}));")).collect();
    let text = format!(
        "#include \"netgrain_listen.h\"\n#include <inttypes.h>\n#include <stddef.h>\n\
         int main(void) {{ {prints} printf(\"%zu %d %\" PRIu64 \" %\" PRIu64 \" %d\", sizeof(ngl_desc), \
         NGL_DESC_BYTES, NGL_MAGIC, NGL_BLOCK, NGL_HELLO); return 0; }}\n"
    );
    std::fs::write(&source, text).expect("a file");
    let test = "the_layout_of_a_descriptor_is_the_same_in_c_and_rust";
    let Some(program) = compile(test, "cc", &["-std=c11", "-O2"], &source, &directory) else { return };
    let out = Command::new(program).output().expect("the program runs");
    let ours = [
        offset_of!(Desc, annotated_pos),
        offset_of!(Desc, ts),
        offset_of!(Desc, hash),
        offset_of!(Desc, mark),
        offset_of!(Desc, caplen),
        offset_of!(Desc, wire_len),
        offset_of!(Desc, queue),
        offset_of!(Desc, flags),
        offset_of!(Desc, l3),
        offset_of!(Desc, l4),
        size_of::<Desc>(),
        netgrain_ring::DESC_BYTES,
        u64::from_le_bytes(*b"NGRING1\0") as usize,
        netgrain_ring::BLOCK as usize,
        24 + 64,
    ];
    let ours: Vec<String> = ours.iter().map(ToString::to_string).collect();
    assert_eq!(String::from_utf8_lossy(&out.stdout), ours.join(" "));
}

#[test]
fn c_reads_positions_annotations_and_numbers_of_descriptors_like_rust() {
    let test = "c_reads_positions_annotations_and_numbers_of_descriptors_like_rust";
    let directory = TempDir::new("c_annotations");
    let source = directory.join("annotations.c");
    let text = "#include \"netgrain_listen.h\"\n#include <inttypes.h>\n\
         int main(int n, char **words) { for (int i = 1; i < n; i++) {\n\
         ngl_desc d = {0}; d.annotated_pos = strtoull(words[i], NULL, 10);\n\
         printf(\"%\" PRIu64 \" %u %u %\" PRIu64 \" \", ngl_pos(&d), ngl_timestamp_method(&d),\n\
         ngl_duplicate_class(&d), ngl_number(&d)); } return 0; }\n";
    std::fs::write(&source, text).expect("a file");
    let Some(program) = compile(test, "cc", &["-std=c11", "-O2"], &source, &directory) else { return };
    let annotations = Annotations::new(TimestampMethod::Schedule, Some(DuplicateClass::Fragment));
    let packet = AnnotatedPosition::new(STREAM_POSITION_MAX).with_annotations(annotations);
    let packet = Desc { annotated_pos: packet, ..Desc::default() };
    let filtered = Desc::control(Control::Filtered { packets: u64::MAX }, Timestamp::ZERO);
    let words = [packet, filtered].map(|d| d.to_words()[0].to_string());
    let out = Command::new(program).args(&words).output().expect("the program runs");
    let max = STREAM_POSITION_MAX;
    let ours = format!("{max} 9 5 {} {max} 15 7 {} ", words[0], u64::MAX);
    assert_eq!(String::from_utf8_lossy(&out.stdout), ours);
}

#[test]
fn the_c_header_compiles_as_cpp() {
    let directory = TempDir::new("c_plus_plus");
    let source = directory.join("plus.cc");
    let text = "#include \"netgrain_listen.h\"\n#include <cstdio>\n\
         int main(int, char **argv) { ngl_error e; ngl *n = ngl_attach(argv[0], NGL_LOSSY, \"x\", &e);\n\
         if (!n) { std::puts(e.text); return e.failure; }\n\
         ngl_desc d[4]; unsigned char b[64]; ngl_ring *r = n->ring; ngl_next(r, d, 4); ngl_packet(r, d, b, 64);\n\
         ngl_record(r, d, b, 64); ngl_report(r); ngl_read_accounting(r); ngl_expired(r); ngl_ended(r); \
         ngl_connected(r);\n\
         ngl_close(n); return 0; }\n";
    std::fs::write(&source, text).expect("a file");
    let Some(program) = compile("the_c_header_compiles_as_cpp", "c++", &["-std=c++11", "-O2"], &source, &directory)
    else {
        return;
    };
    let out = Command::new(program).output().expect("it runs");
    assert_eq!(out.status.code(), Some(1), "the path is not the socket of an engine");
    assert!(String::from_utf8_lossy(&out.stdout).starts_with("no engine listens on this socket: "));
}

#[test]
#[ignore = "runs in the child process in which the Rust example counts"]
fn the_rust_example_counts() {
    let (Some(socket), Ok(mode)) = (std::env::var_os(SOCKET), std::env::var(MODE)) else { return };
    let mode = if mode == "lossless" { Mode::Lossless } else { Mode::Lossy };
    count::count(Path::new(&socket), mode).expect("attached");
}

/// The last line that a counting program printed.
fn last_line(child: std::process::Child) -> String {
    let out = child.wait_with_output().expect("the program ends");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let line = text.lines().rev().find(|l| l.contains("packets ")).unwrap_or_else(|| panic!("no count in {text:?}"));
    line[line.find("packets ").expect("just found")..].to_owned()
}

fn start(mut command: Command) -> std::process::Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
}

fn start_both(program: &Path, engine: &Engine, mode: &str) -> [std::process::Child; 2] {
    let mut c = Command::new(program);
    c.arg(&engine.path).arg(mode);
    let mut rust = Command::new(std::env::current_exe().expect("this program"));
    rust.args(["--exact", "the_rust_example_counts", "--ignored", "--nocapture"]);
    rust.env(SOCKET, &engine.path).env(MODE, mode);
    let both = [start(c), start(rust)];
    until("both listeners are attached", || engine.registry.listeners().len() == 2);
    both
}

#[test]
fn c_and_rust_examples_count_the_packets_correctly() {
    const PACKETS: u64 = 50_000;
    let test = "c_and_rust_examples_count_the_packets_correctly";
    let directory = TempDir::new("c_counts");
    let source = workspace().join("examples/c/count.c");
    let Some(program) = compile(test, "cc", &["-std=c11", "-O2"], &source, &directory) else { return };
    // The ring holds all packets, so that no listener needs to be fast.
    let mut engine = Engine::start("counts", netgrain_ring::Config { bytes: 64 << 20, ..config() });
    let both = start_both(&program, &engine, "lossless");
    engine.feed(PACKETS);
    let tally = engine.finish();

    let (mut bytes, mut octets, mut sum) = (Vec::new(), 0, 0u64);
    for n in 0..PACKETS {
        frame(n, &mut bytes);
        octets += bytes.len() as u64;
        sum += bytes.iter().map(|b| u64::from(*b)).sum::<u64>();
    }
    assert_eq!((tally.stored, tally.stored_bytes), (PACKETS, octets));
    let right = format!("packets {PACKETS} bytes {octets} missed 0 overwritten 0 sum {sum}");
    assert_eq!(both.map(last_line), [right.clone(), right]);
}

#[test]
fn an_overtaken_c_listener_counts_the_missed_packets_exactly() {
    let test = "an_overtaken_c_listener_counts_the_missed_packets_exactly";
    let directory = TempDir::new("c_lapped");
    let source = workspace().join("examples/c/count.c");
    let Some(program) = compile(test, "cc", &["-std=c11", "-O2"], &source, &directory) else { return };
    let mut engine = Engine::start("lapped", config());
    let mut command = Command::new(program);
    command.arg(&engine.path);
    let mut child = start(command);
    // The program prints its first line after it has attached.
    let mut lines = BufReader::new(child.stdout.as_mut().expect("a pipe")).lines();
    let first = lines.next().expect("a line").expect("its output");
    assert_eq!(first, "packets 0 bytes 0 missed 0 overwritten 0 sum 0");
    send_signal(&child, "STOP");
    engine.feed(100_000);
    let tally = engine.finish();
    send_signal(&child, "CONT");
    let last = last_line(child);
    let words: Vec<&str> = last.split(' ').collect();
    let (packets, missed): (u64, u64) = (words[1].parse().expect("packets"), words[5].parse().expect("missed"));
    assert_eq!(packets + missed, tally.stored, "{last}");
    assert!(missed > 0, "the program was stopped for several rounds of the ring: {last}");
}

fn send_signal(child: &std::process::Child, signal: &str) {
    let kill = format!("kill -{signal} {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success());
}
