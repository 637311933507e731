//! Tests of the C loops over flow records and series rows. The layout of the structures and the results equal those in
//! Rust, every wrong use returns an error, and the live mode works.

extern crate columns as netgrain_columns;

#[path = "../../columns/examples/flows.rs"]
#[allow(dead_code, reason = "only its main function is unused")]
mod flows;
#[path = "../../columns/examples/series.rs"]
#[allow(dead_code, reason = "only its main function is unused")]
mod series_example;

mod common;

use base::Timestamp;
use common::{Link, compile, example, run_source, stdout};
use flow::{
    DirectionStats as FlowSide, Encapsulation, EndReason, InitialPacket as FlowEarly, Key, PacketLocation, Record,
    TcpState,
};
use netgrain::{Direction, Flow, InitialPacket, Second, Stats, Volume};
use series::Row;
use std::io::{BufRead, BufReader};
use std::mem::offset_of;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use testkit::TempDir;
use wire::{IpProtocol, MacAddr, TunnelKind};

const START: u64 = 1_700_000_000;
/// The id of the first record; each further record has the next id.
const FIRST_ID: u64 = 0xabc0_0000_0000_0000;

/// The n-th record; each field has a different value if possible.
fn record(n: u64, first: Timestamp) -> Record {
    let side = |packets: u64| FlowSide {
        first,
        last: first.after(Duration::from_millis(packets)),
        packets,
        bytes: packets * 100,
        ip_bytes: packets * 86,
        length: flow::Stats { min: 86, max: 86, sum: packets * 86, squares: u128::from(packets) * 86 * 86 },
        flags: [1, 2, 3, 4, 5, 6, 7, 8],
        ttl: (61, 64),
        mac: Some(MacAddr([2, 0, 0, 0, 0, 7])),
        ..FlowSide::default()
    };
    let v6 = n.is_multiple_of(3);
    let address = |last: u8| -> IpAddr {
        match v6 {
            true => [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, last].into(),
            false => [10, 0, 0, last].into(),
        }
    };
    Record {
        id: FIRST_ID + n,
        key: Key {
            src: address(1),
            dst: address(2),
            src_port: 40_000 + n as u16,
            dst_port: if n.is_multiple_of(2) { 53 } else { 80 },
            protocol: if n.is_multiple_of(2) { IpProtocol::UDP } else { IpProtocol::TCP },
        },
        encapsulation: Encapsulation { vlans: [Some(12), None], mpls: None, tunnel: Some((TunnelKind::Vxlan, 77)) },
        interface: 0,
        flow_start: first,
        record_index: 0,
        // In the forward direction, the tunnel sequence numbers wrapped around. The packets of the reverse direction
        // have no tunnel sequence numbers.
        directions: [FlowSide { tunnel_sequence: Some((4_000_000_000, n as u32)), ..side(n + 1) }, side(n + 2)],
        end_reason: EndReason::EndOfFlow,
        tcp_state: TcpState::Closed,
        syn_rtt: Some(1234),
        ack_rtt: None,
        initial_packets: vec![FlowEarly { offset_ns: 5, length: 86, flags: 2, reverse: true }; 2],
        payload: [b"GET".to_vec(), Vec::new()],
        location: Some(PacketLocation { queue: 3, first: 1000 + n, last: 2000 }),
        lost: 9,
    }
}

fn row(second: u64, packets: u64) -> Row {
    let mut row = Row { second, direction: series::Direction::In, ..Row::default() };
    (row.total.packets, row.total.bytes, row.flows_new, row.peak_1ms.bytes) = (packets, packets * 100, 3, 1500);
    row.classes[series::TrafficClass::Udp as usize].packets = packets;
    (row.ledger.offered, row.ledger.stored) = (packets + 3, packets - 1);
    (row.ledger.lost[0], row.ledger.lost[3], row.ledger.notes[4]) = (1, 3, 7);
    (row.tunnel_numbered, row.tunnel_missing, row.tunnel_late) = (20, 5, 2);
    row
}

fn writer(store: &Path, interface: &str) -> columns::Writer {
    columns::Writer::new(columns::Config { wait_when_full: true, ..columns::Config::new(store, interface) })
        .expect("threads")
}

/// A store of two interfaces, with flow records and series rows from [`START`] on.
fn store(test: &str) -> TempDir {
    let store = TempDir::new(test);
    for (name, count) in [("eth1", 40), ("eth2", 10)] {
        let mut writer = writer(store.path(), name);
        for n in 0..count {
            writer.record(&record(n, Timestamp::from_secs_nanos(START + n, 5)));
            writer.row(&row(START + n, n + 1));
        }
        writer.finish();
    }
    store
}

#[test]
fn flows_and_rows_have_the_same_layout_in_c_and_rust() {
    let test = "flows_and_rows_have_the_same_layout_in_c_and_rust";
    let mut prints = String::new();
    let mut rust_layout = Vec::new();
    macro_rules! layout {
        ($c:literal, $rust:ty, $($field:ident)+) => {
            $(prints += &format!("printf(\"%zu \", offsetof({}, {}));", $c, stringify!($field));
              rust_layout.push(offset_of!($rust, $field).to_string());)+
            prints += &format!("printf(\"%zu \", sizeof({}));", $c);
            rust_layout.push(size_of::<$rust>().to_string());
        };
    }
    layout!("netgrain_stats", Stats, min max sum mean deviation);
    layout!(
        "netgrain_direction", Direction, first last packets bytes ip_bytes payload_bytes payload_packets length iat
        iat_count tcp_flags
    );
    layout!(
        "netgrain_direction", Direction, zero_window retransmitted retransmitted_bytes out_of_order ttl_min ttl_max
        dscp_min
    );
    layout!("netgrain_direction", Direction, dscp_max mac has_mac reserved);
    layout!("netgrain_initial_packet", InitialPacket, offset_ns length flags reverse reserved);
    layout!(
        "netgrain_flow", Flow, size record_index id interface_name flow_start first last src dst src_port dst_port
        ip_version
    );
    layout!("netgrain_flow", Flow, protocol end_reason tcp_state vlan vlan_inner mpls tunnel tunnel_id queue position);
    layout!(
        "netgrain_flow", Flow, position_span syn_rtt_ns ack_rtt_ns lost initial_packets payload payload_len
        initial_packet_count reserved directions
    );
    layout!("netgrain_flow", Flow, tunnel_seq_first tunnel_seq_last);
    layout!("netgrain_volume", Volume, packets bytes);
    layout!("netgrain_second", Second, size direction second interface_name total tcp udp icmp sctp other_ip arp other);
    layout!("netgrain_second", Second, ipv6 sizes syn syn_ack fin rst flows_active flows_new flows_ended sources);
    layout!(
        "netgrain_second", Second, destinations peak_1ms peak_10ms ledger tunnel_numbered tunnel_missing tunnel_late
    );
    layout!("netgrain_second", Second, losses notes loss_count note_count duplicate timestamp_packets);
    layout!("netgrain_second", Second, timestamp_deviation_ns clock_synchronised clock_unsynchronised);
    layout!("netgrain_second", Second, clock_maximum_error_us clock_rate clock_step_forward_ns clock_step_back_ns);
    // Each constant of the C header has the value of its Rust enum variant.
    for (name, number) in [
        ("END_IDLE_TIMEOUT", EndReason::IdleTimeout as u32),
        ("END_ACTIVE_TIMEOUT", EndReason::ActiveTimeout as u32),
        ("END_OF_FLOW", EndReason::EndOfFlow as u32),
        ("END_FORCED_END", EndReason::ForcedEnd as u32),
        ("END_LACK_OF_RESOURCES", EndReason::LackOfResources as u32),
        ("TCP_NONE", TcpState::None as u32),
        ("TCP_MIDSTREAM", TcpState::Midstream as u32),
        ("TCP_SYN_SENT", TcpState::SynSent as u32),
        ("TCP_SYN_RECEIVED", TcpState::SynReceived as u32),
        ("TCP_ESTABLISHED", TcpState::Established as u32),
        ("TCP_HALF_CLOSED", TcpState::HalfClosed as u32),
        ("TCP_CLOSED", TcpState::Closed as u32),
        ("TCP_RESET", TcpState::Reset as u32),
        ("TUNNEL_GRE", TunnelKind::Gre as u32),
        ("TUNNEL_NVGRE", TunnelKind::Nvgre as u32),
        ("TUNNEL_ERSPAN1", TunnelKind::Erspan1 as u32),
        ("TUNNEL_ERSPAN2", TunnelKind::Erspan2 as u32),
        ("TUNNEL_ERSPAN3", TunnelKind::Erspan3 as u32),
        ("TUNNEL_VXLAN", TunnelKind::Vxlan as u32),
        ("TUNNEL_GENEVE", TunnelKind::Geneve as u32),
        ("TUNNEL_GTP_U", TunnelKind::GtpU as u32),
        ("TUNNEL_IP_IN_IP", TunnelKind::IpInIp as u32),
        ("TUNNEL_TEREDO", TunnelKind::Teredo as u32),
        ("IN", series::Direction::In as u32),
        ("OUT", series::Direction::Out as u32),
    ] {
        prints += &format!("printf(\"%d \", NETGRAIN_{name});");
        rust_layout.push(number.to_string());
    }
    let source = format!("#include \"netgrain.h\"\n#include <stdio.h>\nint main(void) {{ {prints} return 0; }}\n");
    let Some(reported) = run_source(test, "cc", "-std=c99", &source) else { return };
    assert_eq!(reported.trim(), rust_layout.join(" "));
}

/// Programs that were compiled with the first version of the header read fields at these offsets, on 64-bit machines.
#[test]
fn the_offsets_of_older_fields_do_not_change() {
    macro_rules! places {
        ($rust:ty, $($field:ident)+) => { [$(offset_of!($rust, $field)),+] };
    }
    assert_eq!(
        places!(
            Flow, size record_index id interface_name flow_start first last src dst src_port dst_port ip_version
            protocol end_reason tcp_state
        ),
        [0, 4, 8, 16, 24, 32, 40, 48, 64, 80, 82, 84, 85, 86, 87]
    );
    assert_eq!(
        places!(
            Flow, vlan vlan_inner mpls tunnel tunnel_id queue position position_span syn_rtt_ns ack_rtt_ns lost
            initial_packets
        ),
        [88, 92, 96, 100, 104, 108, 112, 120, 128, 136, 144, 152]
    );
    assert_eq!(places!(Flow, payload payload_len initial_packet_count reserved directions), [160, 176, 184, 188, 192]);
    assert_eq!(
        (size_of::<Direction>(), offset_of!(Flow, tunnel_seq_first)),
        (256, 704),
        "new fields come after the old ones"
    );
    assert_eq!(
        places!(
            Second, size direction second interface_name total tcp udp icmp sctp other_ip arp other ipv6 sizes syn
            syn_ack
        ),
        [0, 4, 8, 16, 24, 40, 56, 72, 88, 104, 120, 136, 152, 168, 224, 232]
    );
    assert_eq!(
        places!(Second, fin rst flows_active flows_new flows_ended sources destinations peak_1ms peak_10ms ledger),
        [240, 248, 256, 264, 272, 280, 288, 296, 312, 328]
    );
    assert_eq!(offset_of!(Second, tunnel_numbered), 376, "new fields come after the old ones");
}

#[test]
fn a_program_can_test_which_fields_an_older_library_lacks() {
    let test = "a_program_can_test_which_fields_an_older_library_lacks";
    // The sizes of the structures in the first version of the library.
    let source = r#"
#include "netgrain.h"
#include <stdio.h>
int main(void) {
    netgrain_flow flow = {0}; netgrain_second second = {0};
    const netgrain_flow *f = &flow; const netgrain_second *s = &second;
    flow.size = 704; second.size = 376;
    printf("%d %d %d\n", NETGRAIN_HAS(f, directions), NETGRAIN_HAS(f, tunnel_seq_first),
           NETGRAIN_HAS(f, tunnel_seq_last));
    printf("%d %d %d\n", NETGRAIN_HAS(s, ledger), NETGRAIN_HAS(s, tunnel_numbered), NETGRAIN_HAS(s, note_count));
    flow.size = sizeof flow; second.size = sizeof second;
    printf("%d %d\n", NETGRAIN_HAS(f, tunnel_seq_last), NETGRAIN_HAS(s, note_count));
    return 0;
}
"#;
    let Some(reported) = run_source(test, "cc", "-std=c99", source) else { return };
    assert_eq!(reported.lines().collect::<Vec<_>>(), ["1 0 0", "1 0 0", "1 1"]);
}

/// A C program prints every quantity of a series row with its name in docs/reference/time-series.md.
#[test]
fn every_quantity_of_a_row_is_available_in_c() {
    let test = "every_quantity_of_a_row_is_available_in_c";
    let store = TempDir::new(test);
    let mut row = row(START, 1);
    for (n, quantity) in series::quantities().iter().enumerate() {
        *quantity.of_mut(&mut row) = 1000 + n as u64;
    }
    let mut writer = writer(store.path(), "eth1");
    writer.row(&row);
    writer.finish();
    let mut prints = String::new();
    let mut print = |name: &str, value: &str| {
        prints += &format!("printf(\"%s %\" PRIu64 \"\\n\", \"{name}\", (uint64_t)({value}));\n");
    };
    for quantity in series::quantities() {
        let name = &*quantity.name;
        let sizes = ["size_to_60", "size_to_123", "size_to_251", "size_to_507", "size_to_1019", "size_to_1514"];
        let value = match name {
            "packets" | "bytes" => format!("s->total.{name}"),
            "size_over_1514" => "s->sizes[6]".to_owned(),
            "offered" | "stored" | "stored_bytes" | "filtered" | "duplicate" => format!("s->ledger.{name}"),
            _ if name.starts_with("lost_") || name.starts_with("note_") => continue,
            _ if method_number(name).is_some() => {
                format!("s->timestamp_packets[{}]", method_number(name).expect("a method"))
            }
            _ if sizes.contains(&name) => format!("s->sizes[{}]", sizes.iter().position(|s| *s == name).expect("one")),
            _ => match name.strip_prefix("tcp_") {
                Some(flag @ ("syn" | "syn_ack" | "fin" | "rst")) => format!("s->{flag}"),
                _ => match name.rsplit_once('_') {
                    Some((of, what @ ("packets" | "bytes"))) => format!("s->{of}.{what}"),
                    _ => format!("s->{name}"),
                },
            },
        };
        print(name, &value);
    }
    let source = r#"
#include "netgrain.h"
#include <inttypes.h>
#include <stdio.h>
int main(void) {
    static netgrain_error e; netgrain_query q = NETGRAIN_QUERY_ALL; const netgrain_second *s;
    uint32_t i; uint64_t sum = 0;
    netgrain_series *m = netgrain_series_open(STORE, &q, &e);
    if (!m || netgrain_series_next(m, &s, &e) != 1) { puts(e.text); return 0; }
    PRINTS
    for (i = 0; i < s->loss_count; i++) printf("lost_%s %" PRIu64 "\n", netgrain_loss_name(i), s->losses[i]);
    for (i = 0; i < s->note_count; i++) printf("note_%s %" PRIu64 "\n", netgrain_note_name(i), s->notes[i]);
    for (i = 0; i < s->loss_count; i++) sum += s->losses[i];
    printf("%d %d %d\n", sum == s->ledger.lost, netgrain_loss_name(s->loss_count) == NULL,
           netgrain_note_name(s->note_count) == NULL);
    netgrain_series_close(m);
    return 0;
}
"#
    .replace("STORE", &format!("\"{}\"", store.path().display()))
    .replace("PRINTS", &prints);
    let Some(reported) = run_source(test, "cc", "-std=c99", &source) else { return };
    let mut expected: Vec<String> =
        series::quantities().iter().map(|quantity| format!("{} {}", quantity.name, quantity.of(&row))).collect();
    expected.push("1 1 1".to_owned());
    // The program prints the losses and notes after all other numbers.
    let mut reported: Vec<&str> = reported.lines().collect();
    expected.sort();
    reported.sort_unstable();
    assert_eq!(reported, expected);
}

/// The number of the method if this is the name of the number of packets by timestamp method.
fn method_number(name: &str) -> Option<u8> {
    let method = name.strip_prefix("timestamp_")?;
    base::TimestampMethod::ALL.into_iter().find(|known| known.name() == method).map(|known| known as u8)
}

#[test]
fn the_community_id_equals_that_of_other_programs() {
    let test = "the_community_id_equals_that_of_other_programs";
    let store = TempDir::new(test);
    let mut writer = writer(store.path(), "eth1");
    // Keys and Community IDs from the tests of `wire` and from the specification (corelight/community-id-spec): TCP, an
    // ICMP echo (type 8, code 0), and IPv6.
    let keys = [
        ("128.232.110.120", "66.35.250.204", 34_855, 80, IpProtocol::TCP, "1:LQU9qZlK+B5F3KDmev6m5PMibrg="),
        ("192.168.0.89", "192.168.0.1", 0, 8 << 8, IpProtocol::ICMP, "1:X0snYXpgwiv9TZtqg64sgzUn6Dk="),
        ("2001:db8::2", "2001:db8::1", 443, 50_000, IpProtocol::TCP, "1:YXqXufkGr4i6TbJJYF83fvyDLZ8="),
    ];
    for (n, (src, dst, src_port, dst_port, protocol, _)) in keys.into_iter().enumerate() {
        let [src, dst] = [src, dst].map(|text| text.parse().expect("an address"));
        let key = Key { src, dst, src_port, dst_port, protocol };
        writer.record(&Record { key, ..record(n as u64, Timestamp::from_secs_nanos(START + n as u64, 5)) });
    }
    writer.finish();
    let source = r#"
#include "netgrain.h"
#include <stdio.h>
#include <string.h>
static netgrain_error e;
static int print_id(void *user, const netgrain_flow *f) {
    char text[NETGRAIN_COMMUNITY_ID]; (void)user;
    memset(text, 'x', sizeof text);
    printf("%d", netgrain_community_id(f, text, &e)); printf(" %s\n", text);
    return 0;
}
int main(void) {
    netgrain_query q = NETGRAIN_QUERY_ALL; netgrain_flow none = {0}; char text[NETGRAIN_COMMUNITY_ID];
    netgrain_flows *n = netgrain_flows_open(STORE, &q, 0, &e);
    if (!n || netgrain_flows_loop(n, 0, print_id, NULL, &e) != 3) { puts(e.text); return 0; }
    netgrain_flows_close(n);
    printf("%d", netgrain_community_id(NULL, text, &e)); printf(" %d %s\n", (int)e.code, e.text);
    printf("%d", netgrain_community_id(&none, NULL, &e)); printf(" %d %s\n", (int)e.code, e.text);
    printf("%d", netgrain_community_id(&none, text, &e)); printf(" %d %s\n", (int)e.code, e.text);
    return 0;
}
"#
    .replace("STORE", &format!("\"{}\"", store.path().display()));
    let Some(reported) = run_source(test, "cc", "-std=c99", &source) else { return };
    let lines: Vec<&str> = reported.lines().collect();
    assert_eq!(lines[..3], keys.map(|key| format!("0 {}", key.5)));
    assert_eq!(
        lines[3..],
        [
            "-1 1 the flow is NULL",
            "-1 1 the pointer for the Community ID is NULL",
            "-1 1 the flow has IP version 0: pass a flow that netgrain returned"
        ]
    );
}

#[test]
fn every_wrong_use_of_flows_and_series_is_an_error_with_code_and_text() {
    let test = "every_wrong_use_of_flows_and_series_is_an_error_with_code_and_text";
    let store = store(test);
    let source = r#"
#include "netgrain.h"
#include <stdio.h>
#include <string.h>
static netgrain_error e;
static netgrain_flows *n;
static void show(int failed) { printf("%d %d %s\n", failed, (int)e.code, e.text); memset(&e, 0, sizeof e); }
static int reenter(void *user, const netgrain_flow *f) {
    const netgrain_flow *other; (void)user; (void)f;
    show(netgrain_flows_next(n, &other, &e));
    netgrain_flows_stop(n);
    return 0;
}
int main(void) {
    netgrain_query q = NETGRAIN_QUERY_ALL, other = NETGRAIN_QUERY_ALL;
    const char *none[] = {"eth9"};
    const netgrain_flow *f; const netgrain_second *s; netgrain_series *m;
    show(netgrain_flows_open(NULL, &q, 0, &e) == NULL);
    show(netgrain_flows_open("/no/such/store", NULL, 0, &e) == NULL);
    show(netgrain_flows_open("/no/such/store", &q, 0, &e) == NULL);
    other.version = 99; show(netgrain_series_open(STORE, &other, &e) == NULL);
    other = q; other.filter = "hots 1.2.3.4"; show(netgrain_flows_open(STORE, &other, 0, &e) == NULL);
    other = q; other.filter = "less 64"; show(netgrain_flows_open(STORE, &other, 0, &e) == NULL);
    other = q; other.filter = "udp"; show(netgrain_series_open(STORE, &other, &e) == NULL);
    other = q; other.from = 2; other.to = 1; show(netgrain_flows_open(STORE, &other, 0, &e) == NULL);
    other = q; other.flags = NETGRAIN_FOLLOW | NETGRAIN_NO_RING; show(netgrain_series_open(STORE, &other, &e) == NULL);
    other = q; other.interfaces = none; other.interface_count = 1;
    show(netgrain_series_open(STORE, &other, &e) == NULL);
    show(netgrain_flows_next(NULL, &f, &e));
    show(netgrain_series_next(NULL, &s, &e));
    n = netgrain_flows_open(STORE, &q, 0, &e);
    if (!n) { puts(e.text); return 0; }
    show(netgrain_flows_next(n, NULL, &e));
    show((int)netgrain_flows_loop(n, 0, NULL, NULL, &e));
    printf("%d\n", (int)netgrain_flows_loop(n, 0, reenter, NULL, &e));
    printf("%d", netgrain_flows_next(n, &f, &e)); printf(" %d\n", f == NULL);
    netgrain_flows_close(n);
    m = netgrain_series_open(STORE, &q, &e);
    if (!m) { puts(e.text); return 0; }
    show(netgrain_series_next(m, NULL, &e));
    show((int)netgrain_series_loop(m, 0, NULL, NULL, &e));
    netgrain_series_stop(m);
    printf("%d\n", netgrain_series_next(m, &s, &e));
    netgrain_series_close(m);
    netgrain_flows_stop(NULL); netgrain_flows_close(NULL); netgrain_series_stop(NULL); netgrain_series_close(NULL);
    printf("%d\n", netgrain_flows_warning(NULL, 0) == NULL && netgrain_series_warnings(NULL) == 0);
    return 0;
}
"#
    .replace("STORE", &format!("\"{}\"", store.path().display()));
    let Some(reported) = run_source(test, "cc", "-std=c99", &source) else { return };
    let expected = [
        "1 1 the store is NULL",
        "1 1 the query is NULL",
        "1 5 /no/such/store",
        "1 1 the program uses version 99",
        "1 2 filter: `hots` at column 1: did you mean `host`?",
        "1 2 filter: `less` at column 1: packets of one flow differ in length",
        "1 2 filter: a time series counts all packets of an interface",
        "1 3 the interval ends",
        "1 1 NETGRAIN_FOLLOW needs growing data",
        "1 4 ",
        "-1 1 the handle is NULL",
        "-1 1 the handle is NULL",
        "-1 1 the pointer for the flow is NULL",
        "-1 1 the callback is NULL",
        "-1 6 the handle is in use by its callback, or an earlier call found a bug",
        "1",
        "0 1",
        "-1 1 the pointer for the second is NULL",
        "-1 1 the callback is NULL",
        "0",
        "1",
    ];
    for (line, start) in reported.lines().zip(expected) {
        assert!(line.starts_with(start), "{line} should begin with {start}");
    }
    assert_eq!(reported.lines().count(), expected.len(), "{reported}");
}

#[test]
fn every_field_of_records_and_rows_has_its_value_in_c() {
    let test = "every_field_of_records_and_rows_has_its_value_in_c";
    let store = store(test);
    let source = r#"
#include "netgrain.h"
#include <inttypes.h>
#include <stdio.h>
static netgrain_error e;
int main(void) {
    netgrain_query q = NETGRAIN_QUERY_ALL; const netgrain_flow *f; const netgrain_second *s;
    const char *eth2[] = {"eth2"};
    netgrain_flows *n; netgrain_series *m; int i;
    q.interfaces = eth2; q.interface_count = 1; q.from = UINT64_C(1700000001000000000);
    if (!(n = netgrain_flows_open(STORE, &q, 0, &e)) || netgrain_flows_next(n, &f, &e) != 1) { puts(e.text); return 0; }
    printf("%d %d %" PRIu64 " %" PRIx64 " %s %d\n", f->size == sizeof *f, NETGRAIN_HAS(f, directions),
           (uint64_t)f->record_index, f->id, f->interface_name,
           f->flow_start == f->first && f->first == f->directions[0].first);
    printf("%d.%d.%d.%d %d %d %d %d %d %d\n", f->src[0], f->src[1], f->dst[2], f->dst[3], f->src[4], f->src_port,
           f->dst_port, f->ip_version, f->protocol, f->end_reason);
    printf("%d %d %d %d %d %d %d\n", f->tcp_state, (int)f->vlan, (int)f->vlan_inner, (int)f->mpls, (int)f->tunnel,
           (int)f->tunnel_id, (int)f->queue);
    printf("%d %d %d %d %d\n", (int)f->position, (int)f->position_span, (int)f->syn_rtt_ns,
           f->ack_rtt_ns == NETGRAIN_NONE, (int)f->lost);
    printf("%d %d %d %d %d %.3s %d\n", (int)f->initial_packet_count, (int)f->initial_packets[1].offset_ns,
           f->initial_packets[1].length, f->initial_packets[1].flags, f->initial_packets[1].reverse,
           (const char *)f->payload[0], (int)f->payload_len[1]);
    for (i = 0; i < 2; i++) {
        const netgrain_direction *d = &f->directions[i];
        printf("%d %d %d %.1f %.1f %d %d %d %d %02x %d\n", (int)d->packets, (int)d->bytes, (int)d->ip_bytes,
               d->length.mean, d->length.deviation, (int)d->tcp_flags[0], (int)d->tcp_flags[7], d->ttl_min,
               d->ttl_max, d->mac[5], d->has_mac);
    }
    printf("%d %" PRIu64 " %" PRIu64 " %d %d\n", NETGRAIN_HAS(f, tunnel_seq_last), f->tunnel_seq_first[0],
           f->tunnel_seq_last[0], f->tunnel_seq_first[1] == NETGRAIN_NONE, f->tunnel_seq_last[1] == NETGRAIN_NONE);
    netgrain_flows_close(n);
    if (!(m = netgrain_series_open(STORE, &q, &e)) || netgrain_series_next(m, &s, &e) != 1) { puts(e.text); return 0; }
    printf("%d %" PRIu64 " %s %d %d %d %d\n", s->size == sizeof *s, s->second, s->interface_name, (int)s->direction,
           (int)s->total.packets, (int)s->total.bytes, (int)s->udp.packets);
    printf("%d %d %d %d %d %d\n", (int)s->flows_new, (int)s->peak_1ms.bytes, (int)s->peak_10ms.packets,
           (int)s->ledger.offered, (int)s->ledger.stored, (int)s->ledger.lost);
    printf("%d %d %d %d\n", NETGRAIN_HAS(s, note_count), (int)s->tunnel_numbered, (int)s->tunnel_missing,
           (int)s->tunnel_late);
    printf("%d %d %s %d %d %s\n", (int)s->loss_count, (int)s->losses[3], netgrain_loss_name(3), (int)s->note_count,
           (int)s->notes[4], netgrain_note_name(4));
    netgrain_series_close(m);
    return 0;
}
"#
    .replace("STORE", &format!("\"{}\"", store.path().display()));
    let Some(reported) = run_source(test, "cc", "-std=c99", &source) else { return };
    let expected = [
        "1 1 0 abc0000000000001 eth2 1",
        "10.0.0.2 0 40001 80 4 6 3",
        "6 12 -1 -1 6 77 3",
        "1001 999 1234 1 9",
        "2 5 86 2 1 GET 0",
        "2 200 172 86.0 0.0 1 8 61 64 07 1",
        "3 300 258 86.0 0.0 1 8 61 64 07 1",
        "1 4000000000 1 1 1",
        "1 1700000001 eth2 0 2 200 2",
        "3 1500 0 5 1 4",
        "1 20 5 2",
        "7 3 ring_full 11 7 outgoing",
    ];
    assert_eq!(reported.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn the_c_examples_print_the_same_as_the_rust_examples() {
    let test = "the_c_examples_print_the_same_as_the_rust_examples";
    let (directory, store) = (TempDir::new("data-programs"), store(test));
    let store = store.path().display().to_string();
    let compiled = |name: &str, link| compile(test, "cc", "-std=c11", &example(name), link, &directory);
    for link in [Link::Shared, Link::Static] {
        let Some(program) = compiled("flows", link) else { return };
        for (rest, records) in [
            (vec![], 50),
            (vec!["udp port 53"], 25),
            (vec!["src host 10.0.0.1 and tcp", "2023-11-14T22:13:22Z", "2023-11-14T22:13:26Z"], 2),
            (vec!["host 10.9.9.9"], 0),
        ] {
            let args: Vec<String> = [store.as_str()].iter().chain(&rest).map(|arg| (*arg).to_owned()).collect();
            let mut reported = Vec::new();
            flows::run(&args, &mut reported).expect("a result");
            let out = Command::new(&program).args(&args).output().expect("it runs");
            assert_eq!(stdout(&out), String::from_utf8(reported).expect("text"), "{rest:?}");
            assert_eq!(stdout(&out).lines().count(), records + 1, "{rest:?}: {out:?}");
            // Flow ids are printed as decimal numbers, as `netgrain packets --flow` reads them.
            let id = |line: &str| line.split(' ').next().and_then(|id| id.parse().ok());
            let ids: Vec<_> = stdout(&out).lines().take(records).map(id).collect();
            assert!(ids.iter().all(|id| id.is_some_and(|id: u64| (FIRST_ID..FIRST_ID + 50).contains(&id))), "{ids:?}");
            assert_eq!(out.status.code(), Some(if records > 0 { 0 } else { 1 }));
        }
        let Some(program) = compiled("series", link) else { return };
        for (rest, rows) in
            [(vec![], 50), (vec!["2023-11-14T22:13:22Z", "2023-11-14T22:13:25Z"], 8), (vec!["2024-01-01"], 0)]
        {
            let args: Vec<String> = [store.as_str()].iter().chain(&rest).map(|arg| (*arg).to_owned()).collect();
            let mut reported = Vec::new();
            series_example::run(&args, &mut reported).expect("a result");
            let out = Command::new(&program).args(&args).output().expect("it runs");
            assert_eq!(stdout(&out), String::from_utf8(reported).expect("text"), "{rest:?}");
            assert_eq!(stdout(&out).lines().count(), rows + 1, "{rest:?}: {out:?}");
        }
    }
}

#[test]
fn the_examples_report_invalid_arguments() {
    let test = "the_examples_report_invalid_arguments";
    let (directory, store) = (TempDir::new("data-wrong"), store(test));
    let store = store.path().to_str().expect("characters");
    for name in ["flows", "series"] {
        let Some(program) = compile(test, "cc", "-std=c11", &example(name), Link::Shared, &directory) else { return };
        let is_flows = name == "flows";
        for (args, expected) in [
            (vec![], if is_flows { "usage: flows" } else { "usage: series" }),
            (vec![store, "soon"], if is_flows { "`soon`" } else { "\"soon\"" }),
            (vec!["/no/such/store"], "/no/such/store"),
        ] {
            let out = Command::new(&program).args(&args).output().expect("it runs");
            let err = String::from_utf8_lossy(&out.stderr).into_owned();
            assert!(out.status.code() == Some(2) && err.lines().count() == 1 && err.contains(expected), "{out:?}");
            let args: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
            let run = if is_flows { flows::run } else { series_example::run };
            let error = run(&args, &mut Vec::new()).expect_err("an error").to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}

#[test]
fn live_programs_get_each_record_and_row_once_and_end_on_sigint() {
    let test = "live_programs_get_each_record_and_row_once_and_end_on_sigint";
    let (directory, store) = (TempDir::new("data-live"), TempDir::new(test));
    let now = || Timestamp::ZERO.after(SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock"));
    let mut writer = writer(store.path(), "eth1");
    let flush = |writer: &mut columns::Writer, step: u64| {
        writer.tick(Timestamp::from_secs_nanos(START + step, 0));
        for _ in 0..120_000 {
            if writer.counts().journaled == writer.counts().submitted {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("{:?}", writer.counts());
    };
    // One record and one series row exist before the programs start; more follow, and a file is sealed meanwhile.
    writer.record(&record(0, now()));
    writer.row(&row(now().secs() - 10, 1));
    flush(&mut writer, 0);
    let [first_id, second_id] = [FIRST_ID, FIRST_ID + 1].map(|id| id.to_string());
    for (name, first, later) in [("flows", &*first_id, &*second_id), ("series", "packets 1", "packets 2")] {
        let Some(program) = compile(test, "cc", "-std=c11", &example(name), Link::Shared, &directory) else { return };
        let Some(mut kill) = testkit::tool(test, "kill") else { return };
        // A program that misses a record would wait for it without end. The end of its query interval (TO) ends the
        // program in that case, so that the test ends too.
        let to = (now().secs() + 120).to_string();
        let rest = if name == "flows" { vec!["", "0", &to] } else { vec!["0", &to] };
        let mut child = Command::new(program)
            .arg("--live")
            .arg(store.path())
            .args(rest)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
        let line = lines.next().expect("a line");
        assert!(line.contains(first), "{name}: {line}");
        match name {
            "flows" => writer.record(&record(1, now())),
            _ => writer.row(&row(now().secs() - 5, 2)),
        }
        flush(&mut writer, if name == "flows" { 1000 } else { 8000 });
        let line = lines.next().expect("a line");
        assert!(line.contains(later), "{name}: {line}");
        // Two more polls must not return any data again.
        std::thread::sleep(Duration::from_millis(1200));
        assert!(kill.args(["-INT", &child.id().to_string()]).status().expect("it runs").success());
        let rest: Vec<String> = lines.collect();
        let count = if name == "flows" { "records 2 " } else { "rows 2 " };
        assert!(rest.len() == 1 && rest[0].starts_with(count), "{name}: {rest:?}");
        assert_eq!(child.wait().expect("it ends").code(), Some(0));
    }
    writer.finish();
}
