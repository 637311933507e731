//! Stores machine code in memory. The memory is writable during compilation and executable afterwards, never both at
//! the same time. Dropping [`Code`] frees the memory.

use crate::emit;
use crate::frame::Frame;
use crate::host::{Context, HostCall};
use crate::memory::Memory;
use crate::packet::{Packet, Verdict};
use crate::refusal::Refusal;
use crate::specialisations::Specialisations;
use crate::task::{PARAMETERS, Task};
use ::ir::{Inst, MAX_KEY_WORDS, Program};
use cranelift_codegen::ir::{AbiParam, types};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::FunctionBuilderContext;
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{Linkage, Module, default_libcall_names};
use std::fmt;
use std::sync::Mutex;

/// The signature of a compiled function. The parameters are: context, packets, verdicts, number of packets, and index
/// of the first packet in the batch.
type Batch = unsafe extern "C" fn(*mut Context, *mut u8, *mut u8, u64, u64);

/// The compiled functions of one program.
pub(crate) struct Code {
    /// Indexed by [`Task`].
    functions: [Option<Batch>; 4],
    bytes: usize,
    /// The Cranelift module that owns the memory of the functions. Only `drop` accesses it; the mutex serves only to
    /// make the type `Sync`.
    module: Mutex<Option<JITModule>>,
}

impl Code {
    /// Compiles one function for each task; each task is passed together with the specialisations of the verified
    /// program for which the function is compiled. The code contains the memory addresses of the program's address
    /// sets, so the specialisations must not move while the code can run.
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
            // SAFETY: the function was defined above with these parameters, the platform's calling convention and no
            // return value.
            code.functions[task as usize] = Some(unsafe { std::mem::transmute::<*const u8, Batch>(function) });
        }
        Ok(code)
    }

    /// Size of the machine code in bytes.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// True if the code contains a prefetch function.
    pub const fn has_prefetch(&self) -> bool {
        self.functions[Task::Prefetch as usize].is_some()
    }

    /// Runs the prefetch function: the function announces to each flow map the keys that the evaluation of these
    /// packets will look up.
    ///
    /// # Safety
    /// The conditions of [`Code::evaluate`] apply, except that this function writes no verdicts.
    pub unsafe fn prefetch(&self, context: &mut Context, packets: &mut [Packet<'_>], first: usize) {
        if let Some(prefetch) = self.functions[Task::Prefetch as usize] {
            let (count, first) = (packets.len() as u64, first as u64);
            // SAFETY: the caller guarantees the conditions of this function; the prefetch function writes no verdict.
            unsafe { prefetch(context, packets.as_mut_ptr().cast(), std::ptr::null_mut(), count, first) };
        }
    }

    /// Evaluates packets ([`Task::Evaluate`] or [`Task::Resume`]); `first` is the index in the batch of the first of
    /// these packets.
    ///
    /// # Safety
    /// The context points to one table for each map of the program, in the order of the maps and created for them; to
    /// [`::ir::COUNTERS`] counters; to lists of actions and traces; and to a fragment tracker. No other code uses any
    /// of these during the call, except that other workers may use the fragment tracker.
    pub unsafe fn evaluate(
        &self,
        task: Task,
        context: &mut Context,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Verdict],
        first: usize,
    ) {
        let count = packets.len().min(verdicts.len()) as u64;
        if let Some(evaluate) = self.functions[task as usize] {
            // SAFETY: the code reads `count` packets and writes `count` verdicts; the caller guarantees the other
            // conditions.
            unsafe {
                evaluate(context, packets.as_mut_ptr().cast(), verdicts.as_mut_ptr().cast(), count, first as u64)
            };
        }
    }

    /// Writes a byte per frame to `matched`: 1 if the frame matches, otherwise 0.
    pub fn matches(&self, frames: &[Frame<'_>], matched: &mut [u8]) {
        let count = frames.len().min(matched.len()) as u64;
        if let Some(matches) = self.functions[Task::Match as usize] {
            // SAFETY: the code reads `count` frames, does not change them, and writes `count` bytes. It uses no
            // context, because programs that need a context are refused.
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
            // SAFETY: the functions can be called only through this value, which is being dropped.
            unsafe { module.free_memory() };
        }
    }
}

fn module() -> Result<JITModule, Refusal> {
    let mut flags = settings::builder();
    for (name, value) in [
        ("opt_level", "speed"),
        // Cranelift's verifier can fail only because of bugs of this crate. It runs in debug builds, and so in tests,
        // and costs no compile time in release builds.
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
    let fixed = [
        HostCall::Act,
        HostCall::Trace,
        HostCall::Member,
        HostCall::ParseDepth,
        HostCall::Datagram,
        HostCall::Duplicate,
    ];
    for host in fixed {
        builder.symbol(emit::symbol(host, 0), host.address(0));
    }
    for words in 1..=MAX_KEY_WORDS as u8 {
        for host in [HostCall::Has, HostCall::Get, HostCall::Put, HostCall::Add, HostCall::Delete, HostCall::Announce] {
            builder.symbol(emit::symbol(host, words), host.address(words));
        }
    }
    Ok(JITModule::new(builder))
}

/// True if the program accesses flow maps.
pub(crate) fn uses_tables(program: &Program) -> bool {
    program.blocks.iter().flat_map(|b| &b.code).any(|inst| {
        matches!(
            inst,
            Inst::Has { .. } | Inst::MapGet { .. } | Inst::MapPut { .. } | Inst::MapAdd { .. } | Inst::MapDelete { .. }
        )
    })
}
