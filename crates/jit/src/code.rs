//! Machine code in memory: writable while it is made, executable afterwards, never both, and gone with its last owner.

use crate::emit::{self, PARAMETERS, Task};
use crate::host::{Context, HostCall};
use crate::matcher::Frame;
use crate::memory::Memory;
use crate::packet::{Packet, Verdict};
use crate::refusal::Refusal;
use crate::specialisations::Specialisations;
use cranelift_codegen::ir::{AbiParam, types};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::FunctionBuilderContext;
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{Linkage, Module, default_libcall_names};
use lang::ir::{Inst, MAX_KEY_WORDS, Program};
use std::fmt;
use std::sync::Mutex;

/// Context, packets, verdicts, how many, and the number of the first.
type Batch = unsafe extern "C" fn(*mut Context, *mut u8, *mut u8, u64, u64);

/// The functions of one program.
pub(crate) struct Code {
    /// By task.
    functions: [Option<Batch>; 4],
    bytes: usize,
    /// Holds the memory of the functions. Only ever opened by `drop`; the lock is for the compiler's eyes.
    module: Mutex<Option<JITModule>>,
}

impl Code {
    /// For these tasks, each of the form of a verified program. Addresses of its sets are put into the code, so it must stay
    /// where it is for as long as the code is run.
    pub fn of(tasks: &[(Task, &Specialisations)]) -> Result<Self, Refusal> {
        let mut code = Self { functions: [None; 4], bytes: 0, module: Mutex::new(Some(module()?)) };
        let Some(module) = code.module.get_mut().ok().and_then(|m| m.as_mut()) else { return Ok(code) };
        let mut made = Vec::new();
        for (task, form) in tasks {
            let mut context = module.make_context();
            context.func.signature.params.extend([AbiParam::new(types::I64); PARAMETERS]);
            let id = module.declare_function(&format!("{task:?}"), Linkage::Local, &context.func.signature)?;
            emit::emit(form, *task, module, &mut context.func, &mut FunctionBuilderContext::new())?;
            module.define_function(id, &mut context)?;
            code.bytes += context.compiled_code().map_or(0, |c| c.code_buffer().len());
            made.push((*task, id));
        }
        module.finalize_definitions()?;
        for (task, id) in made {
            let function = module.get_finalized_function(id);
            // SAFETY: the function was defined above with these parameters, the platform's calling convention and no result.
            code.functions[task as usize] = Some(unsafe { std::mem::transmute::<*const u8, Batch>(function) });
        }
        Ok(code)
    }

    /// Bytes of machine code.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there are keys to announce.
    pub const fn has_prefetch(&self) -> bool {
        self.functions[Task::Prefetch as usize].is_some()
    }

    /// Announces to the tables the keys that judging these packets will ask them about.
    ///
    /// # Safety
    /// As for [`Code::judge`], but that nothing is written.
    pub unsafe fn prefetch(&self, context: &mut Context, packets: &mut [Packet<'_>], first: usize) {
        if let Some(scout) = self.functions[Task::Prefetch as usize] {
            let (count, first) = (packets.len() as u64, first as u64);
            // SAFETY: the caller's promise; no verdict is written by this function.
            unsafe { scout(context, packets.as_mut_ptr().cast(), std::ptr::null_mut(), count, first) };
        }
    }

    /// Judges packets ([`Task::Evaluate`] or [`Task::Resume`]), of which the first has number `first` among those judged together.
    ///
    /// # Safety
    /// The context's tables are as many as the program has maps, in their order and made for them; its counters are
    /// [`lang::ir::COUNTERS`]; its lists of acts and traces exist; nobody else uses any of them meanwhile. Its memory of datagrams exists too.
    pub unsafe fn judge(
        &self,
        task: Task,
        context: &mut Context,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Verdict],
        first: usize,
    ) {
        let count = packets.len().min(verdicts.len()) as u64;
        if let Some(judge) = self.functions[task as usize] {
            // SAFETY: the code reads `count` packets and writes as many verdicts; the rest is the caller's promise.
            unsafe { judge(context, packets.as_mut_ptr().cast(), verdicts.as_mut_ptr().cast(), count, first as u64) };
        }
    }

    /// Says of each frame whether it matches, as 0 or 1.
    pub fn matches(&self, frames: &[Frame<'_>], matched: &mut [u8]) {
        let count = frames.len().min(matched.len()) as u64;
        if let Some(matches) = self.functions[Task::Match as usize] {
            // SAFETY: the code reads `count` frames, of which it changes none, and writes as many bytes; code for this task uses no
            // context, since a program that needs one is refused.
            unsafe { matches(std::ptr::null_mut(), frames.as_ptr().cast_mut().cast(), matched.as_mut_ptr(), count, 0) };
        }
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Code({} bytes)", self.bytes)
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        if let Some(module) = self.module.get_mut().ok().and_then(Option::take) {
            // SAFETY: the functions are reached only through this value, which nobody else has any more.
            unsafe { module.free_memory() };
        }
    }
}

fn module() -> Result<JITModule, Refusal> {
    let mut flags = settings::builder();
    for (name, value) in [
        ("opt_level", "speed"),
        // What its own verifier could find is a bug of ours: tests look for it, packets do not wait for it.
        ("enable_verifier", if cfg!(debug_assertions) { "true" } else { "false" }),
        ("use_colocated_libcalls", "false"),
        ("is_pic", "false"),
    ] {
        flags.set(name, value).map_err(|e| Refusal::Host(e.to_string()))?;
    }
    let isa = cranelift_native::builder().map_err(|e| Refusal::Host(e.to_owned()))?;
    let isa = isa.finish(settings::Flags::new(flags)).map_err(|e| Refusal::Host(e.to_string()))?;
    let mut builder = JITBuilder::with_isa(isa, default_libcall_names());
    builder.memory_provider(Box::<Memory>::default());
    for host in [HostCall::Act, HostCall::Trace, HostCall::Member, HostCall::ParseDepth, HostCall::Datagram] {
        builder.symbol(emit::symbol(host, 0), host.address(0));
    }
    for words in 1..=MAX_KEY_WORDS as u8 {
        for host in [HostCall::Has, HostCall::Get, HostCall::Put, HostCall::Add, HostCall::Delete, HostCall::Announce] {
            builder.symbol(emit::symbol(host, words), host.address(words));
        }
    }
    Ok(JITModule::new(builder))
}

/// Whether it asks tables.
pub(crate) fn uses_tables(program: &Program) -> bool {
    program.blocks.iter().flat_map(|b| &b.code).any(|inst| {
        matches!(
            inst,
            Inst::Has { .. } | Inst::MapGet { .. } | Inst::MapPut { .. } | Inst::MapAdd { .. } | Inst::MapDelete { .. }
        )
    })
}
