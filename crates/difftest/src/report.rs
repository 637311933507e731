//! Statistics of a trial. With them, a test can check that the trial covered enough programs, packets and functions.

use crate::case::Case;
use crate::source::{Expr, Node, Source};
use lang::table;
use std::collections::{BTreeMap, BTreeSet};

/// Statistics of a trial.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Generated programs.
    pub cases: usize,
    /// Number of programs that the front end refused for an expected reason.
    pub rejected: usize,
    /// Programs that ran.
    pub ran: usize,
    /// Number of programs that the back end refused, by the type of the refusal.
    pub refused: BTreeMap<String, usize>,
    /// Evaluated packets.
    pub packets: usize,
    /// Number of packets for which the first half of a split program determined the verdict.
    pub first_half: usize,
    /// Number of packets, by the kind of their verdict.
    pub kinds: [usize; 5],
    /// Number of flow map entries, summed over all maps of all programs at the end of their runs.
    pub entries: usize,
    /// For each function of the packet language: the number of programs that ran and used the function.
    pub functions: BTreeMap<&'static str, usize>,
    /// For each function of the packet language: the number of split programs whose first half used the function and
    /// determined the verdict of at least one packet.
    pub functions_first: BTreeMap<&'static str, usize>,
}

impl Report {
    pub(crate) fn note(&mut self, case: &Case, agreed: &AgreementCounts) {
        self.ran += 1;
        self.packets += agreed.packets;
        self.first_half += agreed.first_half;
        self.entries += agreed.entries;
        self.kinds.iter_mut().zip(agreed.kinds).for_each(|(all, n)| *all += n);
        for name in functions(&case.source) {
            *self.functions.entry(name).or_default() += 1;
        }
        for name in functions_of_texts(&case.source, &agreed.first_stages) {
            *self.functions_first.entry(name).or_default() += 1;
        }
    }

    /// Returns the functions of the packet language that fewer than `least` programs of the trial used. Functions in
    /// `excused` are not returned.
    pub fn missing(
        counts: &BTreeMap<&'static str, usize>,
        least: usize,
        excused: &[&str],
    ) -> Vec<(&'static str, usize)> {
        let all = table::PARTS.iter().flat_map(|p| p.1).map(|f| f.name).filter(|n| !excused.contains(n));
        all.map(|n| (n, counts.get(n).copied().unwrap_or(0))).filter(|n| n.1 < least).collect()
    }
}

/// The functions of the packet language that a program uses, by their current names.
fn functions(source: &Source) -> BTreeSet<&'static str> {
    fn collect(e: &Expr, all: &mut BTreeSet<&'static str>) {
        if let Node::Call(name, _) = &e.node {
            all.extend(table::find(name).map(|f| f.name));
        }
        e.args.iter().for_each(|a| collect(a, all));
    }
    let mut all = BTreeSet::new();
    source.bodies().for_each(|b| collect(b, &mut all));
    all
}

/// The functions of the packet language that the stages with these texts use, directly or through bindings that the
/// texts name.
fn functions_of_texts(source: &Source, texts: &[String]) -> BTreeSet<&'static str> {
    let text = texts.join("\n");
    let words = |text: &str| -> BTreeSet<String> {
        text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '\'')).map(str::to_owned).collect()
    };
    let mut known = words(&text);
    let mut signs: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    let whole = source.text();
    for line in whole.lines().rev() {
        let name = line.split_whitespace().next().unwrap_or("");
        if name != "main" && known.contains(name) && line.contains(" = ") {
            known.extend(words(line));
            signs.extend(line.split_whitespace().map(str::to_owned));
        }
    }
    let named = known.iter().filter_map(|w| table::find(w));
    let signed = signs.iter().filter_map(|s| table::operator(s));
    named.chain(signed).map(|f| f.name).collect()
}

/// Statistics of one test case in which back end and model have the same results.
#[derive(Default)]
pub(crate) struct AgreementCounts {
    pub packets: usize,
    pub first_half: usize,
    /// Source texts of the stages in the first half of a split program. Empty if the first half determined the verdict
    /// of no packet.
    pub first_stages: Vec<String>,
    pub kinds: [usize; 5],
    pub entries: usize,
}
