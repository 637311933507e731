//! Checks the text of a program: it must be valid in the packet language, and must not contain operations that are
//! impossible at an interface.

use crate::error::{ImpossibleOperation, ProgramError};
use ir::{Effect, Program};

/// A program of the packet language that runs for every packet before the packet enters the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramPlan {
    /// The name of the program, which is the name of its file.
    pub name: String,
    /// The source text.
    pub text: String,
}

/// The properties of a packet source that a program depends on.
#[derive(Clone, Debug)]
pub struct ProgramContext {
    /// The interface name.
    pub interface: String,
    /// How the packets arrive.
    pub access: Access,
    /// The link type of the frames.
    pub link_type: u16,
    /// The key of the flow hash, equal on all queues.
    pub hash_key: u64,
}

/// The way in which the packets of a source reach the program, which determines what the program can do with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The packets arrive from an interface that only this engine reads (AF_XDP).
    Owned,
    /// The packets arrive from an interface whose packets the host gets as well.
    Shared,
    /// The packets are read from a file, or simulated.
    Replayed,
}

/// Compiles a program to the intermediate representation. Fails if the interface cannot run the program.
pub(crate) fn compile(plan: &ProgramPlan, context: &ProgramContext) -> Result<Program, ProgramError> {
    let ProgramPlan { name, text } = plan;
    let program = lang::compile_for(text, context.link_type).map_err(|error| {
        let (line, column) = error.place(text);
        ProgramError::Language { name: name.clone(), error, line, column }
    })?;
    let program = program.program;
    match impossible(&program, context) {
        None => Ok(program),
        Some(operation) => Err(ProgramError::Impossible { name: name.clone(), operation }),
    }
}

fn impossible(program: &Program, context: &ProgramContext) -> Option<ImpossibleOperation> {
    let effects = program.effects();
    let text = |stage: usize| program.stages[stage].text.clone();
    if effects.has(Effect::Log) {
        return Some(ImpossibleOperation::Log);
    }
    match context.access {
        Access::Replayed if effects.has(Effect::Forward) || effects.has(Effect::Kernel) => {
            Some(ImpossibleOperation::SendReplayed)
        }
        Access::Shared if program.egress_interfaces.contains(&context.interface) => {
            Some(ImpossibleOperation::SendToItself(context.interface.clone()))
        }
        Access::Owned => {
            if let Some(stage) = ir::copies_to_stack(program) {
                return Some(ImpossibleOperation::CopyToHost(text(stage)));
            }
            let placement = ir::placement(program);
            let mut in_user_space = (0..program.stages.len()).filter(|stage| !placement[*stage].is_kernel());
            let stage = in_user_space.find(|stage| program.effects_of(*stage).has(Effect::Kernel))?;
            Some(ImpossibleOperation::PassFromUserSpace(text(stage)))
        }
        _ => None,
    }
}
