//! Compiled filters that use only packet bytes: capture filters and member filters. A matcher reads frames directly
//! from memory, without creating a [`crate::Packet`] for each frame, and writes one byte per frame. So a member filter
//! takes little more time than its comparisons alone.

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
    /// The specialisations from which the code was compiled. They are boxed, because the code contains the memory
    /// addresses of their address sets.
    _form: Box<Specialisations>,
}

impl Matcher {
    /// Compiles a filter.
    ///
    /// # Errors
    /// [`Refusal::NoFilter`] if the program needs other input than packet bytes or has effects; otherwise the errors of
    /// [`crate::Executable::native`].
    pub fn of(program: &Program) -> Result<Self, Refusal> {
        program.verify()?;
        let form = Box::new(Specialisations::of(program, Start::Fresh));
        if let Some(more) = form.whole.blocks.iter().flat_map(|b| &b.code).find_map(more_than_bytes) {
            return Err(Refusal::NoFilter(more));
        }
        Ok(Self { code: Code::of(&[(Task::Match, &form)])?, _form: form })
    }

    /// Writes a byte per frame to `matched`: 1 if the frame matches, otherwise 0. A frame matches if the program does
    /// not drop it.
    ///
    /// # Panics
    /// `matched` and `frames` have different lengths.
    pub fn matches(&self, frames: &[Frame<'_>], matched: &mut [u8]) {
        assert_eq!(frames.len(), matched.len(), "there must be one result for each frame");
        self.code.matches(frames, matched);
    }
}

/// The reason why a filter over packet bytes must not contain this instruction: the instruction needs other input, or
/// has an effect. `None` if the instruction is allowed.
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
