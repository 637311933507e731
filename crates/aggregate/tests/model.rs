//! Compares aggregations with a simple model: maps with texts as keys, in which every group is stored and which are
//! sorted at the end.

use base::{Prng, Timestamp};
use flow::{DirectionStats, Encapsulation, EndReason, Key, Record, TcpState};
use netgrain_aggregate::{Aggregation, Aggregator, Field, Measure, MergeRule, Plan, ReportError, Value, terms};
use std::collections::BTreeMap;
use std::net::IpAddr;
use wire::{IpProtocol, TunnelKind};

fn random_direction(prng: &mut Prng, at: Timestamp) -> DirectionStats {
    let packets = prng.below(4) * prng.below(100);
    let mut random_direction = DirectionStats {
        first: at,
        last: Timestamp::from_nanos(at.nanos() + prng.below(1 << 36)),
        packets,
        bytes: packets * (60 + prng.below(1400)),
        ip_bytes: packets * 50,
        payload_bytes: packets * prng.below(30),
        retransmitted: prng.below(3),
        retransmitted_bytes: prng.below(3000),
        out_of_order: prng.below(5),
        zero_window: prng.below(2),
        ..DirectionStats::default()
    };
    random_direction.flags = [0; 8].map(|_: u64| prng.below(6));
    if packets == 0 { DirectionStats::default() } else { random_direction }
}

/// A random flow record. Its hosts and ports are among a few, so that most groups have several records.
fn random_record(prng: &mut Prng, id: u64) -> Record {
    let v6 = prng.below(4) == 0;
    let host = |prng: &mut Prng| -> IpAddr {
        match v6 {
            false => [10, 0, prng.below(3) as u8, prng.below(4) as u8].into(),
            true => [0x2001, 0xdb8, 0, prng.below(3) as u16, 0, 0, 0, prng.below(4) as u16].into(),
        }
    };
    let (src, dst) = (host(prng), host(prng));
    let protocol = [IpProtocol::TCP, IpProtocol::UDP, IpProtocol::ICMP][prng.below(3) as usize];
    let (src_port, dst_port) =
        if protocol.has_ports() { (prng.below(5) as u16, prng.below(5) as u16) } else { (0, 0x800) };
    let encapsulation = Encapsulation {
        vlans: [[None, None], [Some(0), None], [Some(4095), Some(7)]][prng.below(3) as usize],
        mpls: [None, Some(0), Some(0xf_ffff)][prng.below(3) as usize],
        tunnel: [None, Some((TunnelKind::Vxlan, 0)), Some((TunnelKind::Teredo, u32::MAX))][prng.below(3) as usize],
    };
    let start = Timestamp::from_nanos((1 << 60) + prng.below(1 << 40));
    let (mut forward, reverse) = (random_direction(prng, start), random_direction(prng, start));
    if forward.packets + reverse.packets == 0 {
        forward = DirectionStats { first: start, last: start, packets: 1, bytes: 60, ..DirectionStats::default() };
    }
    Record {
        id,
        key: Key { src, dst, src_port, dst_port, protocol },
        encapsulation,
        interface: prng.below(3) as u16,
        flow_start: start,
        record_index: 0,
        directions: [forward, reverse],
        end_reason: [EndReason::IdleTimeout, EndReason::EndOfFlow, EndReason::ForcedEnd][prng.below(3) as usize],
        tcp_state: [TcpState::None, TcpState::Established, TcpState::Reset][prng.below(3) as usize],
        syn_rtt: (prng.below(2) == 0).then(|| prng.below(1 << 30)),
        ack_rtt: None,
        initial_packets: Vec::new(),
        payload: [Vec::new(), Vec::new()],
        location: None,
        lost: 0,
    }
}

/// Random records; some flows have several records.
fn random_records(prng: &mut Prng, count: u64) -> Vec<Record> {
    let mut all = Vec::new();
    for id in 0..count {
        let mut one = random_record(prng, id);
        while prng.below(5) == 0 {
            all.push(Record { end_reason: EndReason::ActiveTimeout, ..one.clone() });
            let next = random_record(prng, id);
            one = Record { record_index: one.record_index + 1, directions: next.directions, ..one };
        }
        all.push(one);
    }
    // A further record of a flow that began before the interval.
    all.push(Record { id: u64::MAX, record_index: 3, ..random_record(prng, u64::MAX) });
    all
}

/// The value of a field as text, seen from the source or from the destination.
fn field_text(field: Field, r: &Record, from_destination: bool) -> String {
    let masked = |a: IpAddr, v4: u8, v6: u8| match a {
        IpAddr::V4(a) => {
            let kept = u64::from(a.to_bits()) >> (32 - v4) << (32 - v4);
            Value::Address(std::net::Ipv4Addr::from_bits(kept as u32).into(), v4).to_string()
        }
        IpAddr::V6(a) => {
            let mut octets = a.octets();
            (usize::from(v6)..128).for_each(|bit| octets[bit / 8] &= !(0x80 >> (bit % 8)));
            Value::Address(octets.into(), v6).to_string()
        }
    };
    let k = r.key;
    match field {
        Field::Flow => format!("{}", r.id),
        Field::Src(p) => masked(k.src, p.v4, p.v6),
        Field::Dst(p) => masked(k.dst, p.v4, p.v6),
        Field::Host(p) => masked(if from_destination { k.dst } else { k.src }, p.v4, p.v6),
        Field::SrcPort => k.src_port.to_string(),
        Field::DstPort => k.dst_port.to_string(),
        Field::Port if k.protocol == IpProtocol::ICMP => "0".into(),
        Field::Port => if from_destination { k.dst_port } else { k.src_port }.to_string(),
        Field::Protocol => k.protocol.to_string(),
        Field::Vlan => Value::Vlan(r.encapsulation.vlans).to_string(),
        Field::Mpls => Value::Mpls(r.encapsulation.mpls).to_string(),
        Field::Tunnel => Value::Tunnel(r.encapsulation.tunnel).to_string(),
        Field::Interface => r.interface.to_string(),
        Field::End => Value::End(Some(r.end_reason)).to_string(),
        Field::State => Value::State(Some(r.tcp_state)).to_string(),
    }
}

/// All groups, and the totals.
type Model = (BTreeMap<Vec<String>, Vec<u64>>, Vec<u64>);

fn model(fields: &[Field], measures: &[Measure], records: &[Record]) -> Model {
    let counts_both_ends = fields.iter().any(|f| matches!(f, Field::Host(_) | Field::Port));
    let join = |sum: &mut Vec<u64>, next: Vec<u64>| match sum.is_empty() {
        true => *sum = next,
        false => sum.iter_mut().zip(next).zip(measures).for_each(|((a, b), m)| match m.join() {
            MergeRule::Sum => *a += b,
            MergeRule::Max => *a = b.max(*a),
            MergeRule::Min => *a = b.min(*a),
        }),
    };
    let mut groups: BTreeMap<Vec<String>, Vec<u64>> = BTreeMap::new();
    let mut totals = Vec::new();
    for r in records {
        let amounts = |from_destination| measures.iter().map(|m| m.of(r, from_destination)).collect::<Vec<_>>();
        join(&mut totals, amounts(false));
        let key = |from_destination| fields.iter().map(|f| field_text(*f, r, from_destination)).collect::<Vec<_>>();
        join(groups.entry(key(false)).or_default(), amounts(false));
        if counts_both_ends && key(true) != key(false) {
            join(groups.entry(key(true)).or_default(), amounts(true));
        }
    }
    (groups, totals)
}

/// Checks that a result agrees with the model: all groups, or the greatest `keep` groups.
fn check_result(report: &Aggregation, (groups, totals): &Model, keep: usize) {
    assert_eq!((&report.totals, report.groups), (totals, groups.len() as u64));
    assert_eq!(report.lines.len(), keep.min(groups.len()));
    for line in &report.lines {
        let key: Vec<String> = line.values.iter().map(ToString::to_string).collect();
        assert_eq!(groups.get(&key), Some(&line.amounts), "{key:?}");
    }
    let mut ranked: Vec<u64> = groups.values().map(|amounts| amounts[report.by]).collect();
    ranked.sort_unstable_by(|a, b| b.cmp(a));
    let result: Vec<u64> = report.lines.iter().map(|l| l.amounts[report.by]).collect();
    assert_eq!(result, ranked[..result.len()]);
}

fn aggregate(plan: &Plan, records: &[Record]) -> Result<Aggregation, ReportError> {
    let mut groups = Aggregator::new(plan.clone());
    records.iter().try_for_each(|r| groups.add(r))?;
    groups.finish()
}

fn random_fields(prng: &mut Prng) -> Vec<Field> {
    let one = ["src", "src/24", "dst/31/60", "dst", "sport", "dport"];
    let any = ["proto", "vlan", "mpls", "tunnel", "interface", "end", "state", "flow"];
    let counts_both_ends = ["host", "host/24/64", "host/0/0", "port"];
    let ends: &[&str] = if prng.below(2) == 0 { &one } else { &counts_both_ends };
    let mut words: Vec<&str> = Vec::new();
    for _ in 0..prng.below(5) {
        let from: &[&str] = if prng.below(2) == 0 { ends } else { &any };
        let word = from[prng.below(from.len() as u64) as usize];
        if !words.iter().any(|w| w.split('/').next() == word.split('/').next()) {
            words.push(word);
        }
    }
    words.into_iter().map(|w| Field::parse(w).expect(w)).collect()
}

#[test]
fn more_groups_than_the_limit_is_an_error_with_advice() {
    let mut prng = Prng::new(testkit::seed("more_groups_than_the_limit_is_an_error_with_advice"));
    let records = random_records(&mut prng, 300);
    let fields = Plan::fields_of("src,dst").expect("fields");
    let plan = Plan::new(&fields, &[], Measure::Bytes).expect("a plan");
    let groups = model(&fields, &[Measure::Bytes], &records).0.len();
    assert!(groups > 100);
    let refused = aggregate(&plan.clone().limit(groups - 1), &records).expect_err("one group more than the limit");
    assert_eq!(refused, ReportError::TooManyGroups { limit: groups - 1 });
    assert!(refused.to_string().contains("shorter interval"));
    assert_eq!(aggregate(&plan.limit(groups), &records).expect("exactly the limit").groups, groups as u64);
}

#[test]
fn aggregations_and_merged_aggregations_agree_with_the_model() {
    let seed = testkit::seed("aggregations_and_merged_aggregations_agree_with_the_model");
    let mut prng = Prng::new(seed);
    for round in 0..150 {
        let many = 1 + prng.below(2000);
        let records = random_records(&mut prng, many);
        let fields = random_fields(&mut prng);
        let mut measures: Vec<Measure> = Measure::ALL.into_iter().filter(|_| prng.below(3) == 0).collect();
        let by = Measure::ALL[prng.below(Measure::ALL.len() as u64) as usize];
        let keep = if prng.below(2) == 0 { usize::MAX } else { prng.below(30) as usize };
        let plan = Plan::new(&fields, &measures, by).expect("a plan").keep(keep).seed(prng.next_u64());
        if !measures.contains(&by) {
            measures.push(by);
        }
        let expected = model(&fields, &measures, &records);
        let whole = aggregate(&plan, &records).expect("few groups");
        let result = std::panic::catch_unwind(|| check_result(&whole, &expected, keep));
        assert!(result.is_ok(), "seed {seed}, round {round}: {fields:?} by {by:?}");

        // The records are distributed among three aggregators, which are merged in random order.
        let mut parts: Vec<Aggregator> = (0..3).map(|_| Aggregator::new(plan.clone())).collect();
        records.iter().for_each(|r| parts[prng.below(3) as usize].add(r).expect("few groups"));
        let mut all = parts.swap_remove(prng.below(3) as usize);
        parts.into_iter().for_each(|part| all.merge(part).expect("few groups"));
        assert_eq!(all.finish().expect("few groups"), whole, "seed {seed}, round {round}: {fields:?} by {by:?}");
    }
}

#[test]
fn a_ranking_of_flows_needs_no_table_of_all_flows() {
    let seed = testkit::seed("a_ranking_of_flows_needs_no_table_of_all_flows");
    let mut prng = Prng::new(seed);
    let records = random_records(&mut prng, 30_000);
    let fields = Plan::fields_of("flow,src,dst").expect("fields");
    let in_parts = records.iter().filter(|r| r.record_index > 0 || r.end_reason == EndReason::ActiveTimeout).count();
    let plan = Plan::new(&fields, &[], Measure::Packets).expect("a plan").keep(10).limit(in_parts);
    let report = aggregate(&plan, &records).expect("only flows in several records are in the table");
    check_result(&report, &model(&fields, &[Measure::Packets], &records), 10);
}

#[test]
fn only_sums_have_shares() {
    let mut prng = Prng::new(testkit::seed("only_sums_have_shares"));
    let records = random_records(&mut prng, 500);
    let fields = Plan::fields_of("proto").expect("fields");
    let plan = Plan::new(&fields, &[Measure::Bytes, Measure::Duration], Measure::Bytes).expect("a plan");
    let report = aggregate(&plan, &records).expect("few groups");
    let all: f64 = report.lines.iter().filter_map(|l| report.share(l, 0)).sum();
    assert!((all - 1.0).abs() < 1e-9, "{all}");
    assert_eq!(report.share(&report.lines[0], 1), None);
    let none = aggregate(&plan, &[]).expect("an empty result");
    assert_eq!((none.groups, none.lines.len(), none.totals[0]), (0, 0, 0));
}

#[test]
fn filters_match_records_by_their_terms() {
    let mut prng = Prng::new(testkit::seed("filters_match_records_by_their_terms"));
    let mut r = random_record(&mut prng, 1);
    r.key = Key {
        src: [10, 0, 0, 1].into(),
        dst: [10, 0, 0, 2].into(),
        src_port: 9,
        dst_port: 53,
        protocol: IpProtocol::UDP,
    };
    let matches = |text: &str, r: &Record| filter::FlowFilter::parse(text).expect(text).matches(&terms(r));
    assert!(
        matches("dst port 53 and src 10.0.0.1", &r) && !matches("src port 53", &r) && !matches("not src 10.0.0.1", &r)
    );
    r.directions[0].packets = 3;
    r.directions[1].packets = 0;
    assert!(matches("packets = 3 and dst packets = 0", &r) && !matches("packets > 3", &r));
    r.directions[0].flags = [0, 1, 0, 0, 2, 0, 0, 0];
    r.directions[1].flags = [0; 8];
    assert!(matches("flags SA and not flags any FR", &r) && !matches("dst flags any S", &r));
}
