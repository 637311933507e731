//! `include/netgrain.h` agrees with the library: constants, layout and packets are the same, and wrong arguments return
//! errors and do not crash the program.

extern crate query as netgrain_query;

#[path = "../../query/examples/packets.rs"]
#[allow(dead_code, reason = "only its main function is unused")]
mod packets;

mod common;

use base::Prng;
use common::{Link, compile, run_source, stdout};
use netgrain::{Cost, Error, Origin, Packet, Query, Tally};
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::TempDir;

fn example(test: &str, link: Link, directory: &TempDir) -> Option<PathBuf> {
    compile(test, "cc", "-std=c11", &common::example("packets"), link, directory)
}

/// A capture of Ethernet frames: UDP with random ports, with timestamps 1 ms apart.
fn capture(path: &Path, count: u64) {
    let mut prng = Prng::new(count);
    let mut file = Vec::new();
    // Nanosecond pcap: file header, then records, written independently of the pcap crate.
    file.extend(0xa1b2_3c4du32.to_le_bytes());
    file.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0]);
    for i in 0..count {
        let mut bytes = [0; 100];
        let ports = (prng.below(60_000) as u16, [53, 80][prng.below(2) as usize]);
        let frame = wire::build::Frame::udp4([10, 0, 0, 1], ports.0, [10, 0, 0, 2], ports.1).fill(&mut bytes[..60]);
        for word in [1_700_000_000 + (i / 1000) as u32, (i % 1000) as u32 * 1_000_000, frame.len() as u32, 100] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    std::fs::write(path, file).expect("a file");
}

#[test]
fn structures_have_the_same_layout_in_c_and_rust() {
    let test = "structures_have_the_same_layout_in_c_and_rust";
    let mut prints = String::new();
    let mut rust_layout = Vec::new();
    macro_rules! layout {
        ($c:literal, $rust:ty, $($field:ident),+) => {
            $(prints += &format!("printf(\"%zu \", offsetof({}, {}));", $c, stringify!($field));
              rust_layout.push(offset_of!($rust, $field));)+
            prints += &format!("printf(\"%zu \", sizeof({}));", $c);
            rust_layout.push(size_of::<$rust>());
        };
    }
    layout!("netgrain_error", Error, code, text);
    layout!("netgrain_query", Query, version, flags, from, to, filter, interfaces, interface_count);
    layout!("netgrain_packet", Packet, ts, data, caplen, wire_len, link_type, origin, lost);
    layout!("netgrain_origin", Origin, interface_name, filter, timestamp_source, queue, link_type, snaplen);
    layout!("netgrain_tally", Tally, offered, stored, stored_bytes, filtered, duplicate, lost);
    layout!("netgrain_cost", Cost, files, files_skipped, blocks, blocks_skipped_time, blocks_skipped_keys, blocks_read);
    layout!("netgrain_cost", Cost, bytes, bytes_read, index_bytes_read, packets, matched, from_ring);
    prints += "printf(\"%d %d \", NETGRAIN_API_VERSION == netgrain_api_version(), NETGRAIN_TEXT);";
    prints += "puts(netgrain_version());";
    let source = format!("#include \"netgrain.h\"\n#include <stdio.h>\nint main(void) {{ {prints} return 0; }}\n");
    let Some(reported) = run_source(test, "cc", "-std=c99", &source) else { return };
    let rust_layout: Vec<String> = rust_layout.iter().map(ToString::to_string).collect();
    assert_eq!(reported.trim(), format!("{} 1 512 {}", rust_layout.join(" "), env!("CARGO_PKG_VERSION")));
}

#[test]
fn every_wrong_use_is_an_error_with_code_and_text() {
    let test = "every_wrong_use_is_an_error_with_code_and_text";
    let source = r#"
#include "netgrain.h"
#include <stdio.h>
#include <string.h>
static netgrain_error e;
static void show(int failed) { printf("%d %d %s\n", failed, (int)e.code, e.text); memset(&e, 0, sizeof e); }
int main(void) {
    netgrain_query q = NETGRAIN_QUERY_ALL, other = NETGRAIN_QUERY_ALL;
    const char *missing[] = {"/no/such/file.pcap"}, *null[] = {NULL}, *binary[] = {"\xff\xfe"};
    netgrain_packet p; netgrain_origin o; netgrain_cost c; uint64_t t;
    show(netgrain_open_store(NULL, &q, &e) == NULL);
    show(netgrain_open_store("/no/such/store", NULL, &e) == NULL);
    other.version = 99; show(netgrain_open_store("/no/such/store", &other, &e) == NULL);
    other = q; other.flags = 64; show(netgrain_open_store("/no/such/store", &other, &e) == NULL);
    other = q; other.filter = "hots 1.2.3.4"; show(netgrain_open_files(missing, 1, &other, &e) == NULL);
    other = q; other.interface_count = 2; show(netgrain_open_store("/no/such/store", &other, &e) == NULL);
    other = q; other.from = 2; other.to = 1; show(netgrain_open_files(missing, 1, &other, &e) == NULL);
    show(netgrain_open_files(NULL, 0, &q, &e) == NULL);
    show(netgrain_open_files(null, 1, &q, &e) == NULL);
    show(netgrain_open_files(binary, 1, &q, &e) == NULL);
    show(netgrain_next(NULL, &p, &e));
    show(netgrain_get_origin(NULL, 0, &o, &e));
    show((int)netgrain_loop(NULL, 0, NULL, NULL, &e));
    show(netgrain_time("soon", &t, &e));
    show(netgrain_check_filter("port http and", &e));
    /* Without an error structure, and with NULL for every argument. */
    netgrain_open_store(NULL, NULL, NULL); netgrain_next(NULL, NULL, NULL); netgrain_get_cost(NULL, &c);
    netgrain_get_cost(NULL, NULL); netgrain_stop(NULL); netgrain_close(NULL);
    printf("%d\n", netgrain_warning(NULL, 0) == NULL && netgrain_warnings(NULL) == 0 && netgrain_origins(NULL) == 0);
    return 0;
}
"#;
    let Some(reported) = run_source(test, "cc", "-std=c99", source) else { return };
    let expected = [
        "1 1 the store is NULL",
        "1 1 the query is NULL",
        "1 1 the program uses version 99",
        "1 1 the flags 0x40",
        "1 2 filter: `hots` at column 1: did you mean `host`?",
        "1 1 the list is NULL although its count is 2",
        "1 3 the interval ends",
        "1 1 the list of files is empty",
        "1 1 a file is NULL",
        "1 1 a file is not UTF-8",
        "-1 1 the handle is NULL",
        "-1 1 the handle is NULL",
        "-1 1 the handle is NULL",
        "-1 3 \"soon\"",
        "-1 2 filter: ",
        "1",
    ];
    for (line, start) in reported.lines().zip(expected) {
        assert!(line.starts_with(start), "{line} should begin with {start}");
    }
    assert_eq!(reported.lines().count(), expected.len(), "{reported}");
}

#[test]
fn a_loop_can_be_limited_continued_and_stopped_but_not_reentered() {
    let test = "a_loop_can_be_limited_continued_and_stopped_but_not_reentered";
    let directory = TempDir::new(test);
    let path = directory.join("in.pcap");
    capture(&path, 100);
    let source = r#"
#include "netgrain.h"
#include <stdio.h>
static netgrain *n; static netgrain_error e; static uint64_t last; static int disorder;
static int take(void *user, const netgrain_packet *p) {
    int *left = (int *)user;
    if (p->ts < last || p->caplen != 60 || p->wire_len != 100 || p->link_type != 1) disorder++;
    last = p->ts;
    return --*left == 0;
}
static int reenter(void *user, const netgrain_packet *p) {
    netgrain_packet other; (void)user; (void)p;
    int got = netgrain_next(n, &other, &e);
    printf("%d %d\n", got, (int)e.code);
    netgrain_stop(n);
    return 0;
}
int main(int argc, char **argv) {
    netgrain_query q = NETGRAIN_QUERY_ALL; netgrain_packet p; netgrain_origin o;
    const char *files[] = {PATH}; int left = 7; (void)argc; (void)argv;
    n = netgrain_open_files(files, 1, &q, &e);
    if (!n) { puts(e.text); return 0; }
    printf("%d\n", (int)netgrain_loop(n, 10, take, (left = 1000, &left), &e));
    printf("%d\n", (int)netgrain_loop(n, 0, take, (left = 7, &left), &e));
    printf("%d\n", netgrain_next(n, &p, &e));
    printf("%d %d\n", netgrain_get_origin(n, 0, &o, &e), netgrain_get_origin(n, 99, &o, &e));
    printf("%d\n", (int)netgrain_loop(n, 0, reenter, NULL, &e));
    printf("%d %d\n", netgrain_next(n, &p, &e), disorder);
    netgrain_close(n);
    q.from = UINT64_C(1700000000000000000); q.to = q.from + 4999999; q.filter = "udp";
    n = netgrain_open_files(files, 1, &q, &e);
    printf("%d\n", (int)netgrain_loop(n, 0, take, (left = 1000, last = 0, &left), &e));
    netgrain_close(n);
    return 0;
}
"#
    .replace("PATH", &format!("\"{}\"", path.display()));
    let Some(reported) = run_source(test, "cc", "-std=c99", &source) else { return };
    assert_eq!(reported.lines().collect::<Vec<_>>(), ["10", "7", "1", "0 -1", "-1 6", "1", "0 0", "5"]);
}

#[test]
fn a_store_is_queried_by_interface_and_a_thread_stops_a_following_query() {
    let test = "a_store_is_queried_by_interface_and_a_thread_stops_a_following_query";
    let directory = TempDir::new(test);
    // One packet file for each of two interfaces, with the directory and name that a recorder would use. The files have
    // no index, which causes a warning.
    for (interface, count) in [("eth7", 3000), ("eth8", 500)] {
        let hour = directory.join(format!("{interface}/2023/11/14/22"));
        std::fs::create_dir_all(&hour).expect("directories");
        capture(&hour.join("20231114T221320.000000000Z.pcap"), count);
    }
    let source = r#"
#define _POSIX_C_SOURCE 200809L
#include "netgrain.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
static netgrain_error e;
static netgrain *open_it(const netgrain_query *q) {
    netgrain *n = netgrain_open_store(STORE, q, &e);
    if (!n) puts(e.text);
    return n;
}
static int take(void *user, const netgrain_packet *p) { (void)user; (void)p; return 0; }
static void *stop(void *n) {
    struct timespec t = {0, 50000000};
    nanosleep(&t, NULL);
    netgrain_stop((netgrain *)n);
    return NULL;
}
int main(void) {
    const char *eth7[] = {"eth7"}, *none[] = {"eth9"};
    netgrain_query q = NETGRAIN_QUERY_ALL; netgrain_origin o; netgrain *n; netgrain_packet p; pthread_t t; int got;
    if (!(n = open_it(&q))) return 0;
    printf("%d\n", (int)netgrain_loop(n, 0, take, NULL, &e));
    printf("%d %d\n", (int)netgrain_origins(n), netgrain_warnings(n) > 0 && strlen(netgrain_warning(n, 0)) > 0);
    netgrain_close(n);
    q.interfaces = eth7; q.interface_count = 1; netgrain_time("2023-11-14T22:13:21Z", &q.from, &e);
    q.to = q.from + 999999999; q.flags = NETGRAIN_NO_RING | NETGRAIN_LOW_PRIORITY;
    if (!(n = open_it(&q))) return 0;
    printf("%d", (int)netgrain_loop(n, 0, take, NULL, &e));
    got = netgrain_get_origin(n, 0, &o, &e);
    printf(" %d %s\n", got, o.interface_name);
    netgrain_close(n);
    q.interfaces = none;
    n = netgrain_open_store(STORE, &q, &e);
    if (n) { got = netgrain_next(n, &p, &e); netgrain_close(n); }
    printf("%d\n", (int)e.code);
    memset(&q, 0, sizeof q); q.version = NETGRAIN_API_VERSION; q.to = UINT64_MAX; q.flags = NETGRAIN_FOLLOW;
    if (!(n = open_it(&q))) return 0;
    pthread_create(&t, NULL, stop, n);
    while ((got = netgrain_next(n, &p, &e)) > 0) { }
    pthread_join(t, NULL);
    printf("%d\n", got);
    netgrain_close(n);
    return 0;
}
"#
    .replace("STORE", &format!("\"{}\"", directory.path().display()));
    let Some(reported) = run_source(test, "cc", "-std=c11", &source) else { return };
    assert_eq!(reported.lines().collect::<Vec<_>>(), ["3500", "2 1", "1000 0 eth7", "4", "0"]);
}

#[test]
fn the_header_compiles_as_cpp() {
    let source = "#include \"netgrain.h\"\n#include <cstdio>\n\
        static int take(void *, const netgrain_packet *) { return 0; }\n\
        int main() { netgrain_error e; netgrain_query q = NETGRAIN_QUERY_ALL;\n\
        netgrain *n = netgrain_open_store(\"/no/such/store\", &q, &e);\n\
        std::printf(\"%d\\n\", n ? (int)netgrain_loop(n, 0, take, nullptr, &e) : -2); netgrain_close(n); return 0; }\n";
    let Some(reported) = run_source("the_header_compiles_as_cpp", "c++", "-std=c++11", source) else { return };
    assert!(reported.trim().parse::<i32>().expect("a number") <= 0, "{reported}");
}

#[test]
fn the_c_example_agrees_with_the_rust_example_and_tcpdump() {
    let test = "the_c_example_agrees_with_the_rust_example_and_tcpdump";
    let directory = TempDir::new(test);
    let (Some(traces), Some(shared)) = (testkit::traces(test), example(test, Link::Shared, &directory)) else { return };
    let Some(linked) = example(test, Link::Static, &directory) else { return };
    let mut found = 0;
    for (name, filter) in [
        ("mercury/emix.pcap", "tcp"),
        ("mercury/emix.pcap", "udp port 53"),
        ("mercury/emix.pcap", "not tcp and greater 200"),
        ("zeek/ticks-dns-1hr.pcap", "host 10.0.0.1 or udp"),
    ] {
        let path = traces.join(name);
        if !path.is_file() {
            testkit::skip(test, &format!("{} does not exist", path.display()));
            continue;
        }
        let Some(mut tcpdump) = testkit::tool(test, "tcpdump") else { return };
        let out = tcpdump.args(["-n", "-t", "-r"]).arg(&path).arg(filter).output().expect("it runs");
        // tcpdump prints one line per packet; for some packets it prints more lines, which begin with a blank.
        let reported = stdout(&out).lines().filter(|l| !l.starts_with([' ', '\t'])).count() as u64;
        let args = [path.display().to_string(), filter.to_owned()];
        let rust = packets::count(&args).expect("a result");
        for program in [&shared, &linked] {
            let out = Command::new(program).args(&args).output().expect("it runs");
            assert_eq!(stdout(&out), rust.lines.join("\n") + "\n", "{name}: {filter}");
            assert!(
                stdout(&out).contains(&format!("packets {reported} bytes")),
                "{name}: {filter}: tcpdump prints {reported}"
            );
            assert_eq!(out.status.code(), Some(if reported > 0 { 0 } else { 1 }));
        }
        found += reported;
    }
    assert!(found > 1000, "only {found} packets");
}

#[test]
fn the_examples_report_invalid_arguments() {
    let test = "the_examples_report_invalid_arguments";
    let directory = TempDir::new(test);
    let Some(program) = example(test, Link::Shared, &directory) else { return };
    let path = directory.join("in.pcap");
    capture(&path, 10);
    let path = path.to_str().expect("characters");
    for (args, expected) in [
        (vec![], "usage: packets"),
        (vec![path, "hots 1.2.3.4"], "did you mean `host`?"),
        (vec![path, "", "soon"], "\"soon\""),
        (vec!["/no/such/file.pcap"], "/no/such/file.pcap"),
    ] {
        let out = Command::new(&program).args(&args).output().expect("it runs");
        let err = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.code() == Some(2) && err.lines().count() == 1 && err.contains(expected), "{out:?}");
        let args: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
        assert!(packets::count(&args).err().expect("an error").to_string().contains(expected));
    }
    let none = Command::new(&program).args([path, "tcp"]).output().expect("it runs");
    assert_eq!(none.status.code(), Some(1));
}
