//! Runs many programs over many packets on a back end, and compares the results with the model.

use crate::case::{Case, Packet};
use crate::report::{AgreementCounts, Report};
use crate::semantics::{self, PacketOutcome, ProgramContext, ProgramState};
use crate::shrink::shrink;
use crate::{frames, writer};
use base::Prng;
use ir::{Facts, Prefix};
use ir::{Program, Set, VerdictKind};
use lang::term::ActionTerm;
use lang::{clusters, compile_for};
use std::cell::Cell;
use std::fmt::Write;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;
use wire::link;

/// A test case with its compiled program.
#[derive(Clone, Debug)]
pub struct CompiledCase {
    /// The IR.
    pub program: Program,
    /// The term of the program, from which its IR was compiled.
    pub term: ActionTerm,
    /// The environment of the program.
    pub world: ProgramContext,
}

/// A back end that runs programs.
pub trait BackEnd {
    /// The name in reports.
    fn name(&self) -> &'static str;

    /// True if the back end can receive this packet.
    fn accepts(&self, _packet: &Packet) -> bool {
        true
    }

    /// The facts that the source of the packet supplies; some back ends can supply only a part of them.
    fn source(&self, packet: &Packet) -> Facts {
        packet.facts
    }

    /// Loads the program.
    ///
    /// # Errors
    /// The back end refuses the program; the error is the type of the refusal.
    fn load<'a>(&'a self, compiled: &'a CompiledCase) -> Result<Box<dyn Execution + 'a>, String>;
}

/// A program that is loaded into a back end.
pub trait Execution {
    /// Evaluates packets, in order.
    fn evaluate(&mut self, packets: &[Packet]) -> Vec<ExecutionResult>;

    /// The state of the program (counters and map entries) at the packet time `now`. For a split program, the result is
    /// the state of the first half, then the state of the second half.
    fn state(&mut self, now: u64) -> Vec<StateSnapshot>;

    /// Number of stages in the first half of the program; 0 if the program is not split.
    fn first_stages(&self) -> usize {
        0
    }
}

/// The result of an execution for one packet.
#[derive(Clone, Debug)]
pub struct ExecutionResult {
    /// The verdict and the actions.
    pub outcome: PacketOutcome,
    /// True if the first half of a split program determined the verdict of the packet.
    pub first_half: bool,
    /// The sequence number of the packet at its worker, on which `steer_rrobin` depends.
    pub number: u64,
}

/// The state between packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateSnapshot {
    /// Counters of the group.
    pub counters: Vec<u64>,
    /// The contents of each map.
    pub maps: Vec<MapContents>,
}

/// The contents of a map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapContents {
    /// For each entry of the map, its key and the number stored under this key, in order of the keys.
    pub entries: Vec<(Vec<u64>, u64)>,
    /// Number of new entries that were refused because the map was full.
    pub refused: u64,
}

/// A difference between the results of an execution and the results of the model.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// The report, which contains everything that is needed to reproduce the difference.
    pub report: String,
    /// The smallest failing case.
    pub smallest: Case,
}

/// A series of test cases, which the seed determines.
#[derive(Clone, Debug)]
pub struct Trial {
    seed: u64,
    cases: u64,
    /// Packets of capture files, by link type; empty if packets are generated.
    real: Vec<(u16, Vec<Packet>)>,
}

/// The addresses of the interface, the same in all cases.
const HOST: [&str; 3] = ["10.0.0.2/32", "192.168.1.7/32", "2001:db8::2/128"];
/// Number of packets in a case.
const PACKETS: u64 = 24;
/// Maximum number of stages of most programs; some programs have up to eight times as many.
const STAGES: u64 = 6;

enum TrialResult {
    /// The front end refused the program.
    NoProgram(String),
    /// The back end refused the program.
    Refused(String),
    Same(AgreementCounts),
    Differs(String),
}

impl Trial {
    /// A trial of `cases` cases, the first of which has this seed. The environment variable `NETGRAIN_ROUNDS` overrides
    /// `cases`.
    pub fn new(seed: u64, cases: u64) -> Self {
        let cases = std::env::var("NETGRAIN_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(cases);
        Self { seed, cases, real: vec![] }
    }

    /// Uses packets of capture files instead of generated packets.
    #[must_use]
    pub fn over(self, real: Vec<(u16, Vec<Packet>)>) -> Self {
        Self { real, ..self }
    }

    /// Generates the case with this number in the trial.
    pub fn case(&self, number: u64) -> Case {
        let mut prng = Prng::new(self.seed.wrapping_add(number));
        // A case has either timestamps that go back or maps that refuse entries, not both. Otherwise the back end and
        // the model could differ: a full map removes expired entries, but for a packet with an earlier timestamp these
        // entries would not have expired.
        let back = prng.below(2) == 0;
        let stages = if prng.below(20) == 0 { 8 * STAGES } else { STAGES };
        let source = writer::write(&mut prng, stages, number, back);
        let hash_key = prng.next_u64();
        let (link_type, packets) = if self.real.is_empty() {
            let other = frames::LINKS[prng.below(frames::LINKS.len() as u64) as usize];
            let link_type = if prng.below(8) == 0 { other } else { link::ETHERNET };
            (link_type, frames::packets(&mut prng, link_type, PACKETS, back))
        } else {
            self.captured_packets(&mut prng)
        };
        Case { source, packets, link_type, hash_key }
    }

    /// Selects consecutive packets of the capture files, and gives each a slightly later timestamp than the previous
    /// one.
    fn captured_packets(&self, prng: &mut Prng) -> (u16, Vec<Packet>) {
        let mut at = prng.below(self.real.iter().map(|r| r.1.len() as u64).sum()) as usize;
        let (link_type, all) = self
            .real
            .iter()
            .find(|r| {
                at < r.1.len() || {
                    at -= r.1.len();
                    false
                }
            })
            .expect("`at` is less than the number of packets");
        let mut time = 1_000_000_000;
        let packets = all[at..].iter().take(PACKETS as usize).map(|packet| {
            time += prng.below(frames::GAP);
            Packet { facts: Facts { time, ..packet.facts }, ..packet.clone() }
        });
        (*link_type, packets.collect())
    }

    /// Runs all cases.
    ///
    /// # Panics
    /// The results of the back end and of the model differ; the panic message contains the smallest failing case.
    pub fn run(&self, back_end: &dyn BackEnd) -> Report {
        self.find(back_end).unwrap_or_else(|failure| panic!("{}", failure.report))
    }

    /// Runs all cases like [`Trial::run`], but returns the first difference as an error.
    ///
    /// # Errors
    /// The results of the back end and of the model differ; the error contains the first failing case in reduced form.
    pub fn find(&self, back_end: &dyn BackEnd) -> Result<Report, Box<Mismatch>> {
        let mut report = Report::default();
        for number in 0..self.cases {
            let case = self.case(number);
            report.cases += 1;
            match case.verdict(back_end) {
                TrialResult::NoProgram(why) if is_to_be_refused(&why, case.link_type) => report.rejected += 1,
                TrialResult::NoProgram(why) => {
                    let fails = |c: &Case| matches!(c.verdict(back_end), TrialResult::NoProgram(w) if w == why);
                    let smallest = shrink(case, &fails);
                    let report = format!(
                        "seed {}, case {number}: the front end rejected the program: {why}\n\n{}",
                        self.seed, smallest.source
                    );
                    return Err(Box::new(Mismatch { report, smallest }));
                }
                TrialResult::Refused(why) => *report.refused.entry(why).or_default() += 1,
                TrialResult::Same(agreed) => report.note(&case, &agreed),
                TrialResult::Differs(_) => {
                    let smallest = shrink(case, &|c| matches!(c.verdict(back_end), TrialResult::Differs(_)));
                    let TrialResult::Differs(why) = smallest.verdict(back_end) else {
                        unreachable!("it failed just now")
                    };
                    return Err(Box::new(Mismatch {
                        report: self.described(number, back_end, &smallest, &why),
                        smallest,
                    }));
                }
            }
        }
        Ok(report)
    }

    fn described(&self, number: u64, back_end: &dyn BackEnd, case: &Case, why: &str) -> String {
        let mut out = format!("seed {}, case {number}, {}: {why}\n\n{}\n\n", self.seed, back_end.name(), case.source);
        for (i, packet) in case.packets.iter().enumerate() {
            let hex: String = packet.bytes.iter().map(|b| format!("{b:02x}")).collect();
            let facts = back_end.source(packet);
            let _ = writeln!(
                out,
                "packet {i}, link {}, time {}, on the wire {}, mark {}, queue {}, ingress {}, rss {:#x}, outgoing {}: \
                 {hex}",
                case.link_type,
                facts.time,
                facts.wire_len,
                facts.mark,
                facts.queue,
                facts.ingress,
                facts.rss,
                facts.outgoing
            );
        }
        let _ = writeln!(out, "hash key {:#x}", case.hash_key);
        if let Ok(compiled) = case.compiled() {
            let _ = writeln!(out, "{}", compiled.program);
        }
        out
    }
}

/// True if the front end may refuse a generated program with this message. For link types other than Ethernet, every
/// message is accepted. For Ethernet, a refusal with any other message is an error of the front end.
fn is_to_be_refused(why: &str, link_type: u16) -> bool {
    const RIGHTLY: [&str; 7] = [
        "keys of the flow maps have no field in common",
        "uses the keys of the program's flow maps, and the program has no flow map",
        "is used for the outermost packet in one place and for the innermost in another",
        "forwards of one packet",
        " registers; at most",
        // Messages about tcpdump filters that libpcap refuses too.
        "`bpf`: ",
        "`matches`: ",
    ];
    RIGHTLY.iter().any(|r| why.contains(r)) || link_type != link::ETHERNET
}

impl Case {
    /// Compiles the program.
    ///
    /// # Errors
    /// The front end refuses the program; the error is its message.
    pub fn compiled(&self) -> Result<CompiledCase, String> {
        let text = self.source.text();
        let compiled = compile_for(&text, self.link_type).map_err(|e| e.what)?;
        let mut program = compiled.program;
        let goes_on = self.packets.is_sorted_by_key(|p| p.facts.time);
        if !goes_on && program.maps.iter().any(|m| (m.capacity as usize) < self.packets.len()) {
            return Err("timestamps go back, and a full map has removed entries that would be present again".to_owned());
        }
        let host: Vec<Prefix> = HOST.iter().filter_map(|net| Prefix::parse(net)).collect();
        let addresses = Set::of_prefixes(host.iter().copied());
        program.sets.iter_mut().filter(|s| **s == Set::Host).for_each(|s| s.clone_from(&addresses));
        let common = clusters(&[&program]).first().map(|c| c.0);
        let (hash_key, link_type) = (self.hash_key, self.link_type);
        let egress_interfaces = program.egress_interfaces.clone();
        Ok(CompiledCase {
            term: compiled.term,
            program,
            world: ProgramContext { hash_key, link_type, host, egress_interfaces, common },
        })
    }

    fn verdict(&self, back_end: &dyn BackEnd) -> TrialResult {
        let compiled = match self.compiled() {
            Ok(compiled) => compiled,
            Err(why) => return TrialResult::NoProgram(why),
        };
        let taken = self.packets.iter().filter(|p| back_end.accepts(p));
        let packets: Vec<Packet> =
            taken.map(|p| Packet { facts: back_end.source(p), bytes: p.bytes.clone() }).collect();
        let tried = quietly(|| compared(&compiled, &packets, back_end));
        tried.unwrap_or_else(|panic| {
            let message = panic.downcast_ref::<String>().map(String::as_str);
            let message = message.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("an unknown message");
            TrialResult::Differs(format!("the execution panicked: {message}"))
        })
    }
}

thread_local! {
    /// True while [`quietly`] runs a function on this thread; a panic of that function is caught and not printed.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Runs a function and returns its result or its panic. The panic message is not printed, because the reduction of a
/// case may run thousands of failing candidates.
fn quietly<T>(what: impl FnOnce() -> T) -> std::thread::Result<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_CAUGHT.get() {
                usual(info);
            }
        }));
    });
    let before = IS_CAUGHT.replace(true);
    let outcome = panic::catch_unwind(AssertUnwindSafe(what));
    IS_CAUGHT.set(before);
    outcome
}

/// Runs the program on the back end and on the model, and compares the results.
fn compared(compiled: &CompiledCase, packets: &[Packet], back_end: &dyn BackEnd) -> TrialResult {
    let mut execution = match back_end.load(compiled) {
        Ok(execution) => execution,
        Err(why) => return TrialResult::Refused(why),
    };
    let seen = execution.evaluate(packets);
    let now = packets.last().map_or(0, |p| p.facts.time);
    let state = execution.state(now);
    let (stages, first) = (semantics::stages(&compiled.term), execution.first_stages());
    let mut memories = vec![ProgramState::default(); state.len()];
    let mut agreed = AgreementCounts { packets: packets.len(), ..AgreementCounts::default() };
    if seen.len() != packets.len() {
        return TrialResult::Differs(format!(
            "the back end returned {} results for {} packets",
            seen.len(),
            packets.len()
        ));
    }
    for (i, (packet, seen)) in packets.iter().zip(&seen).enumerate() {
        let (head, rest) = stages.split_at(if seen.first_half { first } else { 0 });
        let mut expected = PacketOutcome::start(packet.facts.mark);
        expected = semantics::run(head, expected, packet, seen.number, &compiled.world, &mut memories[0]);
        if expected.kind != VerdictKind::Drop {
            let last = memories.len() - 1;
            expected = semantics::run(rest, expected, packet, seen.number, &compiled.world, &mut memories[last]);
        }
        if !expected.is(&seen.outcome) {
            return TrialResult::Differs(format!(
                "packet {i}: expected\n  {expected:x?}\nfound\n  {:x?}",
                seen.outcome
            ));
        }
        agreed.kinds[expected.kind as usize] += 1;
        agreed.first_half += usize::from(seen.first_half);
    }
    if agreed.first_half > 0 {
        agreed.first_stages = compiled.program.stages[..first].iter().map(|s| s.text.clone()).collect();
    }
    for (half, (memory, state)) in memories.iter().zip(&state).enumerate() {
        let map = |m: &ir::Map| {
            let table = memory.tables.get(&m.name);
            table.map_or_else(MapContents::default, |t| MapContents { entries: t.entries(now), refused: t.refused })
        };
        let maps: Vec<_> = compiled.program.maps.iter().map(map).collect();
        agreed.entries += maps.iter().map(|m| m.entries.len()).sum::<usize>();
        let expected = StateSnapshot { counters: memory.counters.to_vec(), maps };
        if expected != *state {
            return TrialResult::Differs(format!("state {half}: expected\n  {expected:x?}\nfound\n  {state:x?}"));
        }
    }
    TrialResult::Same(agreed)
}
