//! Machine code in memory: writable while it is made, executable afterwards, never both, and gone with its last owner.

use crate::emit::{self, PARAMETERS, Task};
use crate::host::{Context, Host};
use crate::packet::{Packet, Verdict};
use crate::refusal::Refusal;
use cranelift_codegen::ir::{AbiParam, types};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::FunctionBuilderContext;
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module, ModuleError, default_libcall_names};
use lang::ir::{Inst, MAX_KEY_WORDS, Program};
use std::fmt;
use std::sync::Mutex;

type Batch = unsafe extern "C" fn(*mut Context, *const Packet<'_>, *mut Verdict, u64, u64);

/// The functions of one program.
pub(crate) struct Code {
    judge: Batch,
    fetch: Option<Batch>,
    bytes: usize,
    /// Holds the memory of the functions. Only ever opened by `drop`; the lock is for the compiler's eyes.
    module: Mutex<Option<JITModule>>,
}

impl Code {
    /// Of a verified program, of which `program` is a simpler form. Addresses of its sets are put into the code, so it must stay
    /// where it is for as long as the code is run.
    pub fn of(program: &Program) -> Result<Self, Refusal> {
        let mut code = Self { judge: nothing, fetch: None, bytes: 0, module: Mutex::new(Some(module()?)) };
        let Some(module) = code.module.get_mut().ok().and_then(|m| m.as_mut()) else { return Ok(code) };
        let mut bytes = 0;
        let mut define = |task, name: &str, module: &mut JITModule| -> Result<FuncId, ModuleError> {
            let mut context = module.make_context();
            context.func.signature.params.extend([AbiParam::new(types::I64); PARAMETERS]);
            let id = module.declare_function(name, Linkage::Local, &context.func.signature)?;
            emit::emit(program, task, module, &mut context.func, &mut FunctionBuilderContext::new())?;
            module.define_function(id, &mut context)?;
            bytes += context.compiled_code().map_or(0, |c| c.code_buffer().len());
            Ok(id)
        };
        let judge = define(Task::Judge, "judge", module)?;
        let fetch = if asks_tables(program) { Some(define(Task::Fetch, "fetch", module)?) } else { None };
        module.finalize_definitions()?;
        // SAFETY: the function was defined above with these parameters, the platform's calling convention and no result.
        let function = |id, module: &JITModule| unsafe {
            std::mem::transmute::<*const u8, Batch>(module.get_finalized_function(id))
        };
        (code.judge, code.fetch) = (function(judge, module), fetch.map(|id| function(id, module)));
        code.bytes = bytes;
        Ok(code)
    }

    /// Bytes of machine code.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there is something to fetch ahead.
    pub const fn has_fetch(&self) -> bool {
        self.fetch.is_some()
    }

    /// Asks for the memory that judging these packets will need.
    ///
    /// # Safety
    /// As for [`Code::judge`], but that nothing is written.
    pub unsafe fn fetch(&self, context: &mut Context, packets: &[Packet<'_>]) {
        if let Some(fetch) = self.fetch {
            // SAFETY: the caller's promise; no verdict is written by this function.
            unsafe { fetch(context, packets.as_ptr(), std::ptr::null_mut(), packets.len() as u64, 0) };
        }
    }

    /// Judges packets, of which the first has number `first` among those judged together.
    ///
    /// # Safety
    /// The context's tables are as many as the program has maps, in their order and made for them; its counters are
    /// [`lang::ir::COUNTERS`]; its list of acts exists; nobody else uses any of them meanwhile. The packets' facts are known as far
    /// as the program looks.
    pub unsafe fn judge(&self, context: &mut Context, packets: &[Packet<'_>], verdicts: &mut [Verdict], first: usize) {
        let count = packets.len().min(verdicts.len()) as u64;
        // SAFETY: the code reads `count` packets and writes as many verdicts; the rest is the caller's promise.
        unsafe { (self.judge)(context, packets.as_ptr(), verdicts.as_mut_ptr(), count, first as u64) };
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

/// In place of a function while there is none.
unsafe extern "C" fn nothing(_: *mut Context, _: *const Packet<'_>, _: *mut Verdict, _: u64, _: u64) {}

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
    for host in [Host::Act, Host::Member] {
        builder.symbol(emit::symbol(host, 0), host.address(0));
    }
    for words in 1..=MAX_KEY_WORDS as u8 {
        for host in [Host::Has, Host::Get, Host::Put, Host::Add, Host::Delete, Host::Fetch] {
            builder.symbol(emit::symbol(host, words), host.address(words));
        }
    }
    Ok(JITModule::new(builder))
}

fn asks_tables(program: &Program) -> bool {
    program.blocks.iter().flat_map(|b| &b.code).any(|inst| {
        matches!(
            inst,
            Inst::Has { .. } | Inst::MapGet { .. } | Inst::MapPut { .. } | Inst::MapAdd { .. } | Inst::MapDelete { .. }
        )
    })
}
