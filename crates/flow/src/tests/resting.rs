//! Flows at rest: that they are woken as what they were, and how little they take.

use super::model::secs;
use super::traffic::{Owned, Plan, Traffic};
use super::{all, at};
use crate::entry::{Entry, bit};
use crate::pool::NONE;
use crate::record::Record;
use crate::{Config, Meter, Packet};
use base::{Prng, Timestamp};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wire::tcp_flags::{ACK, PSH, SYN};
use wire::{Decoded, IpProtocol};

/// What one flow takes: its entry, its links on the wheel, its place in a table of as many flows as were asked for, and
/// what its form has besides.
fn bytes(meter: &Meter, flow: u32) -> usize {
    let hot = &meter.flows[flow].hot;
    let v6 = if hot.has(bit::V6) { 24 } else { 0 };
    let chunk = |chunk: u32| if chunk == NONE { 0 } else { 72 };
    let form = match hot.bits & bit::RESTS {
        0 => chunk(hot.more),
        bit::PAIR => 128 + chunk(meter.pairs[hot.more].chunk()),
        bit::FULL => 448 + chunk(meter.fulls[hot.more].chunk),
        _ if hot.more == NONE => 0,
        _ => size_of_val(meter.rest.slab.of(hot.more)),
    };
    size_of::<Entry>() + 8 + 11 + v6 + form
}

/// Bytes of all flows of a meter, and of how many packets each was.
fn all_bytes(meter: &Meter) -> Vec<usize> {
    let used = (0..meter.flows.len() as u32).filter(|f| meter.flows[*f].hot.has(bit::USED));
    used.map(|flow| bytes(meter, flow)).collect()
}

/// A meter in which flows last for days, and rest after a second.
fn patient() -> Meter {
    let day = secs(86_400);
    Meter::new(Config { idle: 7 * day, linger: 7 * day, active: None, rest: secs(1), ..Config::default() }, 0)
}

/// Lets time pass until all flows are at rest that can be.
fn settle(meter: &mut Meter) {
    let mut out: Vec<Record> = Vec::new();
    let mut idle_for = 0;
    for second in 1.. {
        let before = meter.counts().resting;
        let now = meter.second.expect("there were packets") + 1;
        // Many ticks in each second: each packs a few.
        (0..2000).for_each(|_| meter.tick(Timestamp::from_secs_nanos(now, 0), &mut out));
        idle_for = if meter.counts().resting == before { idle_for + 1 } else { 0 };
        if idle_for > 3 && second > 5 {
            break;
        }
    }
    assert!(out.is_empty(), "no flow ended");
}

fn mean(bytes: &[usize]) -> f64 {
    bytes.iter().sum::<usize>() as f64 / bytes.len() as f64
}

/// A conversation of so many packets: requests, answers in full segments and acknowledgements, as a server sees them; one
/// in so many is sent again.
fn talk(prng: &mut Prng, n: u32, packets: u32, again: Option<u64>, v6: bool) -> Vec<Owned> {
    let mut next = [prng.next_u64() as u32, prng.next_u64() as u32];
    let mut now = f64::from(n) / 1000.0;
    let port = (n % 60_000) as u16;
    let (mut out, mut burst) = (Vec::new(), 0);
    for i in 0..packets {
        let side = match i {
            0 | 2 => 0,
            1 => 1,
            _ if burst > 0 => 1,
            _ => usize::from(prng.below(3) > 0),
        };
        burst = if burst > 0 { burst - 1 } else { prng.below(4) };
        let payload = match (i, side) {
            (0..3, _) => 0,
            (_, 0) => [0, 0, 100 + prng.below(500) as u32][prng.below(3) as usize],
            _ => [0, 1448, 1448, 1448, prng.below(1448) as u32][prng.below(5) as usize],
        };
        let flags = match i {
            0 => SYN,
            1 => SYN | ACK,
            _ if payload > 0 && payload < 1448 => ACK | PSH,
            _ => ACK,
        };
        let is_again = again.is_some_and(|one_in| payload > 0 && i == 3 || payload > 0 && prng.below(one_in) == 0);
        let seq = if is_again { next[side].wrapping_sub(payload) } else { next[side] };
        let ends = if side == 0 { (1, 2, (port, 443)) } else { (2, 1, (443, port)) };
        let plan = Plan { v6, ..Plan::tcp(ends.0, ends.1, ends.2, flags, seq).carrying(payload) };
        let mut owned = plan.frame(at(now));
        owned.position = 24 + (now * 1e8) as u64;
        out.push(owned);
        next[side] = seq.wrapping_add(payload + (flags & SYN).count_ones());
        // Within a burst microseconds, between them as long as a network or a person takes.
        now += match prng.below(3) {
            0 => prng.below(50_000) as f64 / 1e9,
            1 => prng.below(60_000_000) as f64 / 1e9,
            _ => prng.below(400_000_000) as f64 / 1e9,
        };
    }
    out
}

#[test]
fn a_flow_at_rest_takes_at_most_256_bytes_on_average_however_long_it_is() {
    let seed = testkit::seed("a_flow_at_rest_takes_at_most_256_bytes_on_average_however_long_it_is");
    let mut prng = Prng::new(seed);
    for (v6, again) in [(false, None), (false, Some(20)), (true, None), (true, Some(20))] {
        for packets in [1, 2, 5, 10, 11, 20, 100, 1000] {
            let mut all: Vec<Owned> = (0..200).flat_map(|n| talk(&mut prng, n, packets, again, v6)).collect();
            all.sort_by_key(|p| p.ts);
            let (mut meter, mut out) = (patient(), Vec::<Record>::new());
            // Nobody rests before the end.
            meter.rest = crate::rest::Rest::new(0, 1000, crate::NoHints);
            all.chunks(64).for_each(|p| meter.push(&p.iter().map(Owned::lend).collect::<Vec<_>>(), &mut out));
            let awake = all_bytes(&meter);
            meter.rest = crate::rest::Rest::new(1_000_000_000, 1000, crate::NoHints);
            settle(&mut meter);
            let resting = all_bytes(&meter);
            let most = resting.iter().max().expect("there are flows");
            println!(
                "{packets:>5} packets, IPv{}, {}: {:.0} bytes, at rest {:.0}, at most {most}",
                if v6 { 6 } else { 4 },
                if again.is_some() { "some sent again" } else { "all in order" },
                mean(&awake),
                mean(&resting),
            );
            assert_eq!(awake.len(), 200, "seed {seed}");
            assert!(packets <= 10 || meter.counts().resting == 200, "seed {seed}: {packets} packets");
        }
    }
}
