//! Compiled filters over bytes alone: capture filters and member filters. A matcher takes frames directly from memory,
//! without a [`crate::Packet`] for each, and writes one byte per frame, so a member filter costs little more than its
//! comparisons.

use crate::code::Code;
use crate::frame::Frame;
use crate::packet::ParseDepth;
use crate::refusal::Refusal;
use crate::specialisations::Specialisations;
use crate::task::Task;
use ::ir::{Inst, Meta, Program, Start};

/// A compiled filter.
#[derive(Debug)]
pub struct Matcher {
    code: Code,
    /// The source of the code; boxed, because the code contains addresses of its sets.
    _form: Box<Specialisations>,
}

impl Matcher {
    /// Compiles a filter.
    ///
    /// # Errors
    /// [`Refusal::NoFilter`] if the program is more than a filter over bytes; otherwise as
    /// [`crate::Executable::native`].
    pub fn of(program: &Program) -> Result<Self, Refusal> {
        program.verify()?;
        let form = Box::new(Specialisations::of(program, Start::Fresh));
        if let Some(more) = form.whole.blocks.iter().flat_map(|b| &b.code).find_map(more_than_bytes) {
            return Err(Refusal::NoFilter(more));
        }
        Ok(Self { code: Code::of(&[(Task::Match, &form)])?, _form: form })
    }

    /// Writes 1 for each frame that matches, and 0 for others. A frame matches if the program does not drop it.
    ///
    /// # Panics
    /// If `matched` and `frames` differ in length.
    pub fn matches(&self, frames: &[Frame<'_>], matched: &mut [u8]) {
        assert_eq!(frames.len(), matched.len(), "one result for each frame");
        self.code.matches(frames, matched);
    }
}

/// The reason why an instruction is not allowed in a filter over bytes: it needs other input, or has an effect. `None`
/// if the instruction is allowed.
fn more_than_bytes(inst: &Inst) -> Option<&'static str> {
    match inst {
        _ if ParseDepth::of_inst(inst) != ParseDepth::Bytes => Some("reads results of the header parser"),
        Inst::Meta { meta: Meta::WireLen | Meta::CapLen, .. } => None,
        Inst::Meta { .. } => Some("reads facts from the capture source"),
        Inst::Has { .. } | Inst::MapGet { .. } | Inst::MapPut { .. } | Inst::MapAdd { .. } | Inst::MapDelete { .. } => {
            Some("uses flow maps")
        }
        Inst::Count { .. } | Inst::Forward { .. } | Inst::Kernel | Inst::Log(_) => Some("has effects"),
        Inst::Get { var: ::ir::Var::Mark, .. } => Some("reads the mark"),
        _ => None,
    }
}
