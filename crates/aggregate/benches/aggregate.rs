//! Measures how many records one thread aggregates per second. The records are in memory: one record whose fields are
//! overwritten, as in a scan of the store. Run it with `cargo bench -p netgrain-aggregate`.

use base::{Prng, Timestamp};
use flow::{DirectionStats, Encapsulation, EndReason, Key, Record, TcpState};
use netgrain_aggregate::{Aggregator, Measure, Plan};
use std::net::IpAddr;
use std::time::Instant;
use wire::IpProtocol;

/// Records of a run.
const RECORDS: usize = 4_000_000;

/// Number of source hosts, and number of destination hosts; most of the records belong to a few of the hosts.
const HOSTS: u64 = 100_000;

fn host(prng: &mut Prng) -> IpAddr {
    let skewed = (prng.unit().powi(3) * HOSTS as f64) as u32;
    std::net::Ipv4Addr::from_bits(0x0a00_0000 + skewed).into()
}

fn main() {
    let mut prng = Prng::new(1);
    let made: Vec<(u64, IpAddr, IpAddr, u16, u64)> = (0..RECORDS)
        .map(|_| (prng.next_u64(), host(&mut prng), host(&mut prng), prng.below(1000) as u16, 1 + prng.below(100)))
        .collect();
    let at = Timestamp::from_secs_nanos(1_795_257_720, 0);
    let mut record = Record {
        id: 0,
        key: Key { src: made[0].1, dst: made[0].2, src_port: 1, dst_port: 1, protocol: IpProtocol::TCP },
        encapsulation: Encapsulation::default(),
        interface: 0,
        flow_start: at,
        record_index: 0,
        directions: [DirectionStats { first: at, last: at, ..DirectionStats::default() }; 2],
        end_reason: EndReason::IdleTimeout,
        tcp_state: TcpState::None,
        syn_rtt: None,
        ack_rtt: None,
        initial_packets: Vec::new(),
        payload: [Vec::new(), Vec::new()],
        location: None,
        lost: 0,
    };
    let shown = [Measure::Flows, Measure::Packets, Measure::Bytes];
    println!(
        "{RECORDS} records, {HOSTS} sources and destinations; flows, packets and bytes of each group, top 10 by bytes"
    );
    for group in ["proto", "src", "src/24", "host", "dst,dport", "src,dst,proto", "flow,src,dst,sport,dport,proto"] {
        let fields = Plan::fields_of(group).expect("fields");
        let plan = Plan::new(&fields, &shown, Measure::Bytes).expect("a plan").keep(10).limit(RECORDS * 2).seed(7);
        let begun = Instant::now();
        let mut groups = Aggregator::new(plan);
        for (id, src, dst, port, packets) in &made {
            (record.id, record.key.src, record.key.dst, record.key.dst_port) = (*id, *src, *dst, *port);
            (record.directions[0].packets, record.directions[0].bytes) = (*packets, *packets * 700);
            groups.add(&record).expect("within the limit");
        }
        let report = groups.finish().expect("within the limit");
        let seconds = begun.elapsed().as_secs_f64();
        println!(
            "{group:<32} {:>9} groups {:>6.1} M records/s  {:>4.0} ns each",
            report.groups,
            RECORDS as f64 / seconds / 1e6,
            seconds * 1e9 / RECORDS as f64
        );
    }
}
