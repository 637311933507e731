//! Many programs over many packets through one back end, beside what they mean.

use crate::report::Report;
use crate::semantics::{self, PacketOutcome, ProgramContext, ProgramState};
use crate::shrink::shrink;
use crate::source::Source;
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

/// A packet and what its source says of it: [`Facts`] without what its bytes say.
#[derive(Clone, Debug, PartialEq)]
pub struct Packet {
    /// What was captured of it.
    pub bytes: Vec<u8>,
    /// Time, length on the wire, port and the like.
    pub facts: Facts,
}

/// A program and packets for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The program.
    pub source: Source,
    /// Packets, one after the other.
    pub packets: Vec<Packet>,
    /// The link they come from, as pcap numbers it.
    pub link_type: u16,
    /// The secret of the hashes.
    pub hash_key: u64,
}

/// A case of which the program was checked and translated.
#[derive(Clone, Debug)]
pub struct CompiledCase {
    /// What runs.
    pub program: Program,
    /// What it was made of.
    pub term: ActionTerm,
    /// What it may know beside its packets.
    pub world: ProgramContext,
}

/// What executes programs.
pub trait BackEnd {
    /// Its name for people.
    fn name(&self) -> &'static str;

    /// Whether such a packet can come to it.
    fn takes(&self, _packet: &Packet) -> bool {
        true
    }

    /// What its source says of a packet, where it cannot say just anything.
    fn source(&self, packet: &Packet) -> Facts {
        packet.facts
    }

    /// The program, ready to judge.
    ///
    /// # Errors
    /// The type of the refusal.
    fn load<'a>(&'a self, ready: &'a CompiledCase) -> Result<Box<dyn Execution + 'a>, String>;
}

/// A program in a back end.
pub trait Execution {
    /// Judges packets, in order.
    fn judge(&mut self, packets: &[Packet]) -> Vec<ExecutionResult>;

    /// What it remembers at `now`: of a program in two halves the memory of each, the first half's first.
    fn remembered(&mut self, now: u64) -> Vec<StateSnapshot>;

    /// How many stages are the first half; 0 where there are no halves.
    fn first_stages(&self) -> usize {
        0
    }
}

/// What an execution made of a packet.
#[derive(Clone, Debug)]
pub struct ExecutionResult {
    /// What became of it.
    pub outcome: PacketOutcome,
    /// Whether the first half decided it, with its own memory.
    pub first_half: bool,
    /// Which packet of its worker it was, as `steer_rrobin` counts.
    pub number: u64,
}

/// What is remembered from packet to packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateSnapshot {
    /// Counters of the group.
    pub counters: Vec<u64>,
    /// What is in each map.
    pub maps: Vec<MapContents>,
}

/// What is in a map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapContents {
    /// Keys and numbers, in order of the keys.
    pub entries: Vec<(Vec<u64>, u64)>,
    /// How many entries were refused because it was full.
    pub refused: u64,
}

/// Where an execution is not what is meant.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// All that is needed to see it again.
    pub said: String,
    /// The smallest case that was found.
    pub least: Case,
}

/// A series of cases, the same for the same seed.
#[derive(Clone, Debug)]
pub struct Trial {
    seed: u64,
    cases: u64,
    /// Packets of captures, by the link type.
    real: Vec<(u16, Vec<Packet>)>,
}

/// The hosts of the port in all cases.
const HOST: [&str; 3] = ["10.0.0.2/32", "192.168.1.7/32", "2001:db8::2/128"];
/// Packets of a case.
const PACKETS: u64 = 24;
/// Stages of a program, at most; of some, eight times as many.
const STAGES: u64 = 6;

enum TrialResult {
    /// The front end refused it.
    NoProgram(String),
    /// The back end did.
    Refused(String),
    Same(AgreementCounts),
    Differs(String),
}

/// What was the same.
#[derive(Default)]
pub(crate) struct AgreementCounts {
    pub packets: usize,
    pub first_half: usize,
    /// Texts of the stages of the first half, if it decided packets.
    pub first_stages: Vec<String>,
    pub kinds: [usize; 5],
    pub entries: usize,
}

impl Trial {
    /// So many cases (`$NETGRAIN_ROUNDS` says how many else), from this seed on.
    pub fn new(seed: u64, cases: u64) -> Self {
        let cases = std::env::var("NETGRAIN_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(cases);
        Self { seed, cases, real: vec![] }
    }

    /// Over packets of captures instead of made ones.
    #[must_use]
    pub fn over(self, real: Vec<(u16, Vec<Packet>)>) -> Self {
        Self { real, ..self }
    }

    /// The case of this number.
    pub fn case(&self, number: u64) -> Case {
        let mut prng = Prng::new(self.seed.wrapping_add(number));
        // Time that goes back and maps that refuse: what is taken out to make room does not come back, so it is one or the other.
        let back = prng.below(2) == 0;
        let stages = if prng.below(20) == 0 { 8 * STAGES } else { STAGES };
        let source = writer::write(&mut prng, stages, number, back);
        let hash_key = prng.next_u64();
        let (link_type, packets) = if self.real.is_empty() {
            let other = frames::LINKS[prng.below(frames::LINKS.len() as u64) as usize];
            let link_type = if prng.below(8) == 0 { other } else { link::ETHERNET };
            (link_type, frames::packets(&mut prng, link_type, PACKETS, back))
        } else {
            self.some_of_the_real(&mut prng)
        };
        Case { source, packets, link_type, hash_key }
    }

    /// A few packets that follow each other in the captures, each a little later than the one before.
    fn some_of_the_real(&self, prng: &mut Prng) -> (u16, Vec<Packet>) {
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
            .expect("a packet of this number");
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
    /// With the smallest failing case that was found, if the back end and the meaning differ.
    pub fn run(&self, back_end: &dyn BackEnd) -> Report {
        self.find(back_end).unwrap_or_else(|failure| panic!("{}", failure.said))
    }

    /// The same; what differs is handed back.
    ///
    /// # Errors
    /// The first failure, made smaller.
    pub fn find(&self, back_end: &dyn BackEnd) -> Result<Report, Box<Mismatch>> {
        let mut report = Report::default();
        for number in 0..self.cases {
            let case = self.case(number);
            report.cases += 1;
            match case.verdict(back_end) {
                TrialResult::NoProgram(why) if is_to_be_refused(&why, case.link_type) => report.not_programs += 1,
                TrialResult::NoProgram(why) => {
                    let fails = |c: &Case| matches!(c.verdict(back_end), TrialResult::NoProgram(w) if w == why);
                    let least = shrink(case, &fails);
                    let said =
                        format!("seed {}, case {number}: a program is refused: {why}\n\n{}", self.seed, least.source);
                    return Err(Box::new(Mismatch { said, least }));
                }
                TrialResult::Refused(why) => *report.refused.entry(why).or_default() += 1,
                TrialResult::Same(agreed) => report.note(&case, &agreed),
                TrialResult::Differs(_) => {
                    let least = shrink(case, &|c| matches!(c.verdict(back_end), TrialResult::Differs(_)));
                    let TrialResult::Differs(why) = least.verdict(back_end) else { unreachable!("it failed just now") };
                    return Err(Box::new(Mismatch { said: self.shown(number, back_end, &least, &why), least }));
                }
            }
        }
        Ok(report)
    }

    fn shown(&self, number: u64, back_end: &dyn BackEnd, case: &Case, why: &str) -> String {
        let mut out = format!("seed {}, case {number}, {}: {why}\n\n{}\n\n", self.seed, back_end.name(), case.source);
        for (i, packet) in case.packets.iter().enumerate() {
            let hex: String = packet.bytes.iter().map(|b| format!("{b:02x}")).collect();
            let facts = back_end.source(packet);
            let _ = writeln!(
                out,
                "packet {i}, link {}, time {}, on the wire {}, mark {}, queue {}, ingress {}, rss {:#x}, outgoing {}: {hex}",
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
        if let Ok(ready) = case.ready() {
            let _ = writeln!(out, "{}", ready.program);
        }
        out
    }
}

/// What the front end refuses of what is written at random, and rightly.
fn is_to_be_refused(why: &str, link_type: u16) -> bool {
    const RIGHTLY: [&str; 7] = [
        "flow maps have nothing in common",
        "goes by the keys of the program's flow maps, and there is none",
        "is asked about the outermost packet and, elsewhere, about the innermost",
        "`forward` on one way",
        "more registers",
        // Of filters of tcpdump, as libpcap does.
        "`bpf`: ",
        "`matches`: ",
    ];
    RIGHTLY.iter().any(|r| why.contains(r)) || link_type != link::ETHERNET
}

impl Case {
    /// Checks and translates the program.
    ///
    /// # Errors
    /// What the front end says.
    pub fn ready(&self) -> Result<CompiledCase, String> {
        let text = self.source.text();
        let compiled = compile_for(&text, self.link_type).map_err(|e| e.what)?;
        let mut program = compiled.program;
        let goes_on = self.packets.is_sorted_by_key(|p| p.facts.time);
        if !goes_on && program.maps.iter().any(|m| (m.capacity as usize) < self.packets.len()) {
            return Err("what a full map took out does not come back when time does".to_owned());
        }
        let host: Vec<Prefix> = HOST.iter().filter_map(|net| Prefix::parse(net)).collect();
        let addresses = Set::of_prefixes(host.iter().copied());
        program.sets.iter_mut().filter(|s| **s == Set::Host).for_each(|s| s.clone_from(&addresses));
        let common = clusters(&[&program]).first().map(|c| c.0);
        let (hash_key, link_type, devices) = (self.hash_key, self.link_type, program.devices.clone());
        Ok(CompiledCase {
            term: compiled.term,
            program,
            world: ProgramContext { hash_key, link_type, host, devices, common },
        })
    }

    fn verdict(&self, back_end: &dyn BackEnd) -> TrialResult {
        let ready = match self.ready() {
            Ok(ready) => ready,
            Err(why) => return TrialResult::NoProgram(why),
        };
        let taken = self.packets.iter().filter(|p| back_end.takes(p));
        let packets: Vec<Packet> =
            taken.map(|p| Packet { facts: back_end.source(p), bytes: p.bytes.clone() }).collect();
        let tried = quietly(|| compared(&ready, &packets, back_end));
        tried.unwrap_or_else(|panic| {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("something");
            TrialResult::Differs(format!("it panics: {said}"))
        })
    }
}

thread_local! {
    /// Whether a panic of this thread is caught and told by whoever caught it.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// What it comes to, or with what it panics. While a case is made smaller that can be thousands of times, so nothing is printed.
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

/// Runs the program in both ways.
fn compared(ready: &CompiledCase, packets: &[Packet], back_end: &dyn BackEnd) -> TrialResult {
    let mut execution = match back_end.load(ready) {
        Ok(execution) => execution,
        Err(why) => return TrialResult::Refused(why),
    };
    let seen = execution.judge(packets);
    let now = packets.last().map_or(0, |p| p.facts.time);
    let remembered = execution.remembered(now);
    let (stages, first) = (semantics::stages(&ready.term), execution.first_stages());
    let mut memories = vec![ProgramState::default(); remembered.len()];
    let mut agreed = AgreementCounts { packets: packets.len(), ..AgreementCounts::default() };
    if seen.len() != packets.len() {
        return TrialResult::Differs(format!("{} answers to {} packets", seen.len(), packets.len()));
    }
    for (i, (packet, seen)) in packets.iter().zip(&seen).enumerate() {
        let (head, rest) = stages.split_at(if seen.first_half { first } else { 0 });
        let mut meant = PacketOutcome::start(packet.facts.mark);
        meant = semantics::run(head, meant, packet, seen.number, &ready.world, &mut memories[0]);
        if meant.kind != VerdictKind::Drop {
            let last = memories.len() - 1;
            meant = semantics::run(rest, meant, packet, seen.number, &ready.world, &mut memories[last]);
        }
        if !meant.is(&seen.outcome) {
            return TrialResult::Differs(format!(
                "packet {i} is meant to be\n  {meant:x?}\nand is\n  {:x?}",
                seen.outcome
            ));
        }
        agreed.kinds[meant.kind as usize] += 1;
        agreed.first_half += usize::from(seen.first_half);
    }
    if agreed.first_half > 0 {
        agreed.first_stages = ready.program.stages[..first].iter().map(|s| s.text.clone()).collect();
    }
    for (half, (memory, remembered)) in memories.iter().zip(&remembered).enumerate() {
        let map = |m: &ir::Map| {
            let table = memory.tables.get(&m.name);
            table.map_or_else(MapContents::default, |t| MapContents { entries: t.entries(now), refused: t.refused })
        };
        let maps: Vec<_> = ready.program.maps.iter().map(map).collect();
        agreed.entries += maps.iter().map(|m| m.entries.len()).sum::<usize>();
        let meant = StateSnapshot { counters: memory.counters.to_vec(), maps };
        if meant != *remembered {
            return TrialResult::Differs(format!(
                "memory {half} is meant to be\n  {meant:x?}\nand is\n  {remembered:x?}"
            ));
        }
    }
    TrialResult::Same(agreed)
}
