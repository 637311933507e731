//! Runs an example program on frames, as machine code and in the interpreter, and compares the results with the
//! expected results.

use super::frames::ParsedFrame;
use ir::Facts;
use ir::interp::Action;
use ir::{ANY_CLASS, VerdictKind};
use netgrain_jit::{Executable, Packet, Verdict, Worker};
use std::collections::HashMap;
use std::path::Path;
use std::time::Instant;
use wire::link;

/// The expected recipients of a packet. For a steered packet, the value is a key: packets with equal keys must have
/// equal hashes, so that they are delivered to the same member. Packets with different keys must have different hashes,
/// with rare exceptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    None,
    /// All members of these classes.
    All(u64),
    /// The member that this key selects.
    One(Vec<u8>),
    /// The two members that these keys select.
    Two(Vec<u8>, Vec<u8>),
    /// The member in this slot.
    Slot(u32),
}

/// The mask of all classes except the class `management`.
pub const ALL_CLASSES: u64 = u64::MAX >> 1;

/// The expected result of an example program for a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    pub to: To,
    /// Copies through these interfaces.
    pub out: Vec<&'static str>,
    pub host: bool,
    pub mark: u32,
    /// The counter that is incremented.
    pub counts: Option<usize>,
}

impl From<To> for Expected {
    fn from(to: To) -> Self {
        Self { to, out: vec![], host: false, mark: 0, counts: None }
    }
}

/// The number of packets for each kind of delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryCounts {
    pub none: usize,
    pub all: usize,
    pub one: usize,
    pub two: usize,
}

/// An example program, loaded into every back end that this host supports.
pub struct Trial {
    name: String,
    egress_interfaces: Vec<String>,
    workers: Vec<(&'static str, Worker)>,
    hashes: HashMap<Vec<u8>, u32>,
    names: HashMap<u32, Vec<u8>>,
    counted: [u64; 64],
    /// The number of steered packets whose hash is also the hash of another key. Random hashes of two keys are equal
    /// with a probability of 2⁻³².
    collisions: usize,
}

impl Trial {
    /// Loads the example program from this file. If the host refuses machine code, only the interpreter runs, and the
    /// output names `test` and the part that it skipped.
    pub fn new(test: &str, file: &str) -> Self {
        Self::with_replacement(test, file, "", "")
    }

    /// Loads the example program after replacing `word` by `other` in its text.
    pub fn with_replacement(test: &str, file: &str, word: &str, other: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/groups").join(file);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let text = if word.is_empty() { text } else { text.replace(word, other) };
        let program = lang::compile(&text).unwrap_or_else(|e| panic!("{}", e.show(&text, file))).program;
        let begun = Instant::now();
        let mut executables =
            vec![("interpreted", Executable::interpreted(program.clone()).expect("the program is valid"))];
        match Executable::native(program.clone(), || begun.elapsed()) {
            Ok(executable) => executables.push(("native", executable)),
            Err(refusal) => testkit::skip(test, &format!("as machine code: {refusal}")),
        }
        let worker = |executable: &Executable| executable.worker(0x5eed).expect("the maps fit into memory");
        Self {
            name: file.to_owned(),
            egress_interfaces: program.egress_interfaces,
            workers: executables.iter().map(|(how, executable)| (*how, worker(executable))).collect(),
            hashes: HashMap::new(),
            names: HashMap::new(),
            counted: [0; 64],
            collisions: 0,
        }
    }

    /// Runs the example program on these frames, in order, and compares the results with `expected`.
    pub fn over(
        &mut self,
        frames: &[ParsedFrame],
        mut expected: impl FnMut(&ParsedFrame) -> Expected,
    ) -> DeliveryCounts {
        let mut counts = DeliveryCounts::default();
        for batch in frames.chunks(64) {
            let all_expected: Vec<Expected> = batch.iter().map(&mut expected).collect();
            for w in &all_expected {
                match w.to {
                    To::None => counts.none += 1,
                    To::All(_) => counts.all += 1,
                    To::One(_) | To::Slot(_) => counts.one += 1,
                    To::Two(..) => counts.two += 1,
                }
                self.counted.iter_mut().enumerate().for_each(|(i, n)| *n += u64::from(w.counts == Some(i)));
            }
            for i in 0..self.workers.len() {
                let (verdicts, forwards) = self.evaluate(i, batch);
                for (at, (frame, expected)) in batch.iter().zip(&all_expected).enumerate() {
                    self.check(self.workers[i].0, frame, &verdicts[at], &forwards[at], expected);
                }
                assert_eq!(self.workers[i].1.counters(), &self.counted, "{}, {}", self.name, self.workers[i].0);
            }
        }
        // Among n random 32-bit hashes, about n²/2³³ pairs of equal hashes are expected.
        let n = self.names.len() as f64;
        let chance = n * n / 8.6e9;
        assert!((self.collisions as f64) < 4.0 + 10.0 * chance, "{}: {} collisions of {n}", self.name, self.collisions);
        counts
    }

    /// The results of one back end for a batch: the verdicts, and for each packet the interfaces through which it is
    /// forwarded.
    fn evaluate(&mut self, i: usize, batch: &[ParsedFrame]) -> (Vec<Verdict>, Vec<Vec<String>>) {
        let facts =
            |k: &ParsedFrame| Facts { time: k.time, ..Facts::of(&k.bytes, k.bytes.len() as u32, link::ETHERNET) };
        let mut packets: Vec<_> = batch.iter().map(|k| Packet::with_facts(&k.bytes, facts(k))).collect();
        let mut verdicts = vec![Verdict::default(); batch.len()];
        let worker = &mut self.workers[i].1;
        worker.evaluate(&mut packets, &mut verdicts);
        let mut forwards = vec![Vec::new(); batch.len()];
        for act in worker.actions() {
            if let Action::Forward(interface) = act.action {
                forwards[act.packet as usize].push(self.egress_interfaces[usize::from(interface)].clone());
            }
        }
        (verdicts, forwards)
    }

    fn check(&mut self, how: &str, frame: &ParsedFrame, verdict: &Verdict, out: &[String], expected: &Expected) {
        let context =
            format!("{}, {how}: {expected:?}\n{:?}\n{:02x?}\n{verdict:?}", self.name, frame.plain, frame.bytes);
        assert_eq!(
            (out, verdict.kernel(), verdict.mark),
            (&to_text(&expected.out)[..], expected.host, expected.mark),
            "{context}"
        );
        let kind = match &expected.to {
            To::None => VerdictKind::Drop,
            To::All(classes) => {
                assert_eq!(verdict.classes, *classes, "{context}");
                VerdictKind::Copy
            }
            To::Slot(place) => {
                assert_eq!(verdict.hash, *place, "{context}");
                VerdictKind::Pick
            }
            To::One(name) => {
                self.check_hash(verdict.hash, name, &context);
                VerdictKind::Steer
            }
            To::Two(one, other) => {
                self.check_hash(verdict.hash, one, &context);
                self.check_hash(verdict.hash2, other, &context);
                VerdictKind::DoubleSteer
            }
        };
        assert_eq!(verdict.kind(), kind, "{context}");
    }

    /// Checks that packets with equal keys have equal hashes, and counts different keys with equal hashes.
    fn check_hash(&mut self, hash: u32, name: &[u8], context: &str) {
        let first = *self.hashes.entry(name.to_vec()).or_insert(hash);
        assert_eq!(first, hash, "packets with the same key have different hashes: {context}");
        let other = self.names.entry(hash).or_insert_with(|| name.to_vec());
        self.collisions += usize::from(other != name);
    }
}

fn to_text(of: &[&str]) -> Vec<String> {
    of.iter().map(|s| (*s).to_owned()).collect()
}

const _: () = assert!(ALL_CLASSES == ANY_CLASS);
