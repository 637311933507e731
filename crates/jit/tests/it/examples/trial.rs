//! One example over frames: as machine code and interpreted, against what is wished of it.

use super::frames::Known;
use ir::Facts;
use ir::interp::Action;
use ir::{ANY_CLASS, VerdictKind};
use netgrain_jit::{Executable, Packet, Verdict, Worker};
use std::collections::HashMap;
use std::path::Path;
use std::time::Instant;
use wire::link;

/// Who is to get a packet. What steers is named; packets are with one member exactly where the names are the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    Nobody,
    /// Everybody in these classes.
    All(u64),
    One(Vec<u8>),
    Two(Vec<u8>, Vec<u8>),
    Place(u32),
}

/// All classes but that of controllers.
pub const EVERY: u64 = u64::MAX >> 1;

/// What an example is to do with a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    pub to: To,
    /// Copies out of these ports.
    pub out: Vec<&'static str>,
    pub host: bool,
    pub mark: u32,
    /// The counter that goes up.
    pub counts: Option<usize>,
}

impl From<To> for Wish {
    fn from(to: To) -> Self {
        Self { to, out: vec![], host: false, mark: 0, counts: None }
    }
}

/// How often each kind of fate was met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Met {
    pub nobody: usize,
    pub all: usize,
    pub one: usize,
    pub two: usize,
}

/// An example, ready to run in every way there is here.
pub struct Trial {
    name: String,
    devices: Vec<String>,
    workers: Vec<(&'static str, Worker)>,
    hashes: HashMap<Vec<u8>, u32>,
    names: HashMap<u32, Vec<u8>>,
    counted: [u64; 64],
    /// Different names with the same hash, which happens once in four thousand million pairs.
    collisions: usize,
}

impl Trial {
    /// The example of this file. Where the host refuses machine code, only the interpreter runs, and `test` skips the
    /// other half.
    pub fn new(test: &str, file: &str) -> Self {
        Self::where_it_says(test, file, "", "")
    }

    /// The same, with something else for a word that it has for its readers to change.
    pub fn where_it_says(test: &str, file: &str, word: &str, other: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/groups").join(file);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let text = if word.is_empty() { text } else { text.replace(word, other) };
        let program = lang::compile(&text).unwrap_or_else(|e| panic!("{}", e.show(&text, file))).program;
        let begun = Instant::now();
        let mut judges = vec![("interpreted", Executable::interpreted(program.clone()).expect("it is fit"))];
        match Executable::native(program.clone(), || begun.elapsed()) {
            Ok(judge) => judges.push(("native", judge)),
            Err(refusal) => testkit::skip(test, &format!("as machine code: {refusal}")),
        }
        let worker = |judge: &Executable| judge.worker(0x5eed).expect("there is memory for its maps");
        Self {
            name: file.to_owned(),
            devices: program.devices,
            workers: judges.iter().map(|(how, judge)| (*how, worker(judge))).collect(),
            hashes: HashMap::new(),
            names: HashMap::new(),
            counted: [0; 64],
            collisions: 0,
        }
    }

    /// Shows it frames, in order, of which `wish` says what is to become of them.
    pub fn over(&mut self, frames: &[Known], mut options: impl FnMut(&Known) -> Wish) -> Met {
        let mut met = Met::default();
        for batch in frames.chunks(64) {
            let wishes: Vec<Wish> = batch.iter().map(&mut options).collect();
            for w in &wishes {
                match w.to {
                    To::Nobody => met.nobody += 1,
                    To::All(_) => met.all += 1,
                    To::One(_) | To::Place(_) => met.one += 1,
                    To::Two(..) => met.two += 1,
                }
                self.counted.iter_mut().enumerate().for_each(|(i, n)| *n += u64::from(w.counts == Some(i)));
            }
            for i in 0..self.workers.len() {
                let (verdicts, acts) = self.judged(i, batch);
                for (at, (frame, options)) in batch.iter().zip(&wishes).enumerate() {
                    self.holds(self.workers[i].0, frame, &verdicts[at], &acts[at], options);
                }
                assert_eq!(self.workers[i].1.counters(), &self.counted, "{}, {}", self.name, self.workers[i].0);
            }
        }
        // Of n names, n²/2³³ pairs meet by chance.
        let n = self.names.len() as f64;
        let chance = n * n / 8.6e9;
        assert!((self.collisions as f64) < 4.0 + 10.0 * chance, "{}: {} collisions of {n}", self.name, self.collisions);
        met
    }

    /// What one way of running says: verdicts, and the ports that each packet leaves by.
    fn judged(&mut self, i: usize, batch: &[Known]) -> (Vec<Verdict>, Vec<Vec<String>>) {
        let facts = |k: &Known| Facts { time: k.time, ..Facts::of(&k.bytes, k.bytes.len() as u32, link::ETHERNET) };
        let mut packets: Vec<_> = batch.iter().map(|k| Packet::seen(&k.bytes, facts(k))).collect();
        let mut verdicts = vec![Verdict::default(); batch.len()];
        let worker = &mut self.workers[i].1;
        worker.evaluate(&mut packets, &mut verdicts);
        let mut acts = vec![Vec::new(); batch.len()];
        for act in worker.actions() {
            if let Action::Forward(device) = act.action {
                acts[act.packet as usize].push(self.devices[usize::from(device)].clone());
            }
        }
        (verdicts, acts)
    }

    fn holds(&mut self, how: &str, frame: &Known, verdict: &Verdict, out: &[String], options: &Wish) {
        let context =
            format!("{}, {how}: {options:?}\n{:?}\n{:02x?}\n{verdict:?}", self.name, frame.plain, frame.bytes);
        assert_eq!(
            (out, verdict.kernel(), verdict.mark),
            (&to_text(&options.out)[..], options.host, options.mark),
            "{context}"
        );
        let kind = match &options.to {
            To::Nobody => VerdictKind::Drop,
            To::All(classes) => {
                assert_eq!(verdict.classes, *classes, "{context}");
                VerdictKind::Copy
            }
            To::Place(place) => {
                assert_eq!(verdict.hash, *place, "{context}");
                VerdictKind::Pick
            }
            To::One(name) => {
                self.steers(verdict.hash, name, &context);
                VerdictKind::Steer
            }
            To::Two(one, other) => {
                self.steers(verdict.hash, one, &context);
                self.steers(verdict.hash2, other, &context);
                VerdictKind::DoubleSteer
            }
        };
        assert_eq!(verdict.kind(), kind, "{context}");
    }

    /// The same name always has the same hash, and different ones different ones.
    fn steers(&mut self, hash: u32, name: &[u8], context: &str) {
        let first = *self.hashes.entry(name.to_vec()).or_insert(hash);
        assert_eq!(first, hash, "what belongs together is parted: {context}");
        let other = self.names.entry(hash).or_insert_with(|| name.to_vec());
        self.collisions += usize::from(other != name);
    }
}

fn to_text(of: &[&str]) -> Vec<String> {
    of.iter().map(|s| (*s).to_owned()).collect()
}

const _: () = assert!(EVERY == ANY_CLASS);
