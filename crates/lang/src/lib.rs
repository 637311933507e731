//! Layer 1: the packet language. A program is a small pure function that decides what happens to a packet and which
//! members of the group get it. The program is type-checked and verified before it runs.
//!
//! * [`term`]: programs with all functions applied; [`lower`] translates terms to the intermediate representation (IR,
//!   crate `netgrain-ir`).
//! * [`packet_filter`]: translates tcpdump filters (`netgrain-filter`) to the IR.
//!
//! Back ends depend on `netgrain-ir` alone, not on this crate.
#![forbid(unsafe_code)]

mod eval;
pub mod lower;
pub mod packet_filter;
mod similar;
pub mod syntax;
pub mod table;
pub mod term;
pub mod types;

pub use syntax::{Error, headline};

use ir::{Key, Program};
use types::BindingInfo;

/// A program that passed all checks.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The program in the IR.
    pub program: Program,
    /// The term: the program with all functions applied.
    pub term: term::ActionTerm,
    /// The bindings of the program, in an order in which each binding comes after the bindings that it uses.
    pub bindings: Vec<BindingInfo>,
}

/// Checks a program and translates it to the IR.
///
/// # Errors
/// The first error, its position, and a proposal for a correction.
///
/// ```
/// use ir::{Facts, VerdictKind, interp::{Interpreter, ProgramState}};
/// use netgrain_lang::compile;
/// use wire::{build::Frame, link};
/// let compiled = compile("main = ip >-> when is_tcp (forward \"eth1\") >-> steer_flow")?;
/// let mut bytes = [0; 60];
/// let frame = Frame::udp4([10, 0, 0, 1], 5353, [10, 0, 0, 2], 53).fill(&mut bytes);
/// let facts = Facts::of(frame, 60, link::ETHERNET);
/// let out = Interpreter::new(&compiled.program).run(frame, &facts, &mut ProgramState::of(&compiled.program, 7));
/// assert_eq!((out.kind, out.actions), (VerdictKind::Steer, vec![]));
/// # Ok::<(), netgrain_lang::Error>(())
/// ```
pub fn compile(text: &str) -> Result<Compiled, Error> {
    compile_for(text, wire::link::ETHERNET)
}

/// [`compile`] for frames of a link type (as pcap numbers it): the offsets in tcpdump filters depend on the link type.
///
/// # Errors
/// The errors of [`compile`]; also an error if a filter tests a field that frames of this link type do not have.
pub fn compile_for(text: &str, link_type: u16) -> Result<Compiled, Error> {
    compiled(text, link_type).map_err(|e| {
        if let (Some(module), true) = (syntax::imported(text), e.is_unknown_name) {
            let else_ = e.help.map(|help| format!("; otherwise: {help}")).unwrap_or_default();
            let help = format!("modules are not imported: copy the definitions of `{module}` into the program{else_}");
            return Error { help: Some(help), ..e };
        }
        // A user of tcpdump may have passed a filter in place of a program. Then the error shows how to write the
        // filter in a program.
        match filter::LinkFilter::parse(text, link_type) {
            Ok(filter) if !filter.text().is_empty() => {
                let help = format!("put a tcpdump filter in quotes: `main = bpf {:?}`", filter.text());
                Error { help: Some(help), ..e }
            }
            _ => e,
        }
    })
}

fn compiled(text: &str, link_type: u16) -> Result<Compiled, Error> {
    let parsed = syntax::parse(text)?;
    let bindings = types::infer(&parsed)?;
    let term = eval::evaluate(text, &parsed, link_type)?;
    let program = lowered(text, &term)?;
    let main = syntax::entry(&parsed).map_or(0..0, |b| b.span.clone());
    if let Some(i) =
        (1..program.maps.len()).find(|i| program.maps[..*i].iter().any(|m| m.name == program.maps[*i].name))
    {
        let map = &program.maps[i];
        let both = |m: &ir::Map| m.name == map.name && m.key.is_outside() != map.key.is_outside();
        return Err(if program.maps[..i].iter().any(both) {
            let what = format!(
                "`{}` is used for the outermost packet in one place and for the innermost in another",
                map.name
            );
            Error::new(main, what).help("outer and inner packets would share entries: define a map for each kind")
        } else {
            let what = format!("two different maps have the name `{}`", map.name);
            Error::new(main, what).help("bind each map to its own name: `flows = flow_map 0 key_5tuple`")
        });
    }
    program.verify().map_err(|e| Error::new(main, format!("the program cannot run: {e}")))?;
    Ok(Compiled { program, term, bindings })
}

/// Lowers the term in two passes. The first pass yields the list of flow maps. If the term steers by the common key of
/// the maps, the second pass lowers it again with that key.
fn lowered(text: &str, act: &term::ActionTerm) -> Result<Program, Error> {
    const NAME: &str = "steer_common";
    let program = lower::lower(act);
    if !act.any(&|act| *act == term::ActionTerm::Steer(term::Steering::Common)) {
        return Ok(program);
    }
    let clusters = clusters(&[&program]);
    let [(common, _)] = clusters[..] else {
        let at = text.find(NAME).unwrap_or(0);
        let span = at..(at + NAME.len()).min(text.len());
        return Err(if clusters.is_empty() {
            Error::new(
                span,
                format!("`{NAME}` uses the keys of the program's flow maps, and the program has no flow map"),
            )
            .help("write the key: `steer_key key_5tuple`")
        } else {
            let name = |i: &usize| program.maps[*i].name.as_str();
            let line = |(key, maps): &(Key, Vec<usize>)| {
                format!("{key} for {}", maps.iter().map(name).collect::<Vec<_>>().join(", "))
            };
            let lines = clusters.iter().map(line).collect::<Vec<_>>().join("; ");
            Error::new(span, format!("the keys of the flow maps have no field in common: {lines}"))
                .help("write a separate program, with its own members, for each key")
        });
    };
    Ok(lower::lower_by(act, Some(common)))
}

/// Returns the keys by which packets can be spread over workers so that no two workers use the same map entry. If one
/// common key is sufficient for all flow maps of these programs, the result contains one key with all maps. Otherwise
/// it contains several keys, each with the maps for which it is sufficient. The maps of all programs are numbered in
/// one sequence, in the order of the programs.
pub fn clusters(programs: &[&Program]) -> Vec<(Key, Vec<usize>)> {
    let keys: Vec<Key> = programs.iter().flat_map(|p| &p.maps).map(|m| m.key).collect();
    ir::key::clusters(&keys)
}
