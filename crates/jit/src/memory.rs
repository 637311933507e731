//! Memory for machine code: pages are first writable and then executable, never both ([`CodePages`]), so that native
//! programs also run in a service with `MemoryDenyWriteExecute=yes`.

use cranelift_jit::{BranchProtection, JITMemoryKind, JITMemoryProvider};
use cranelift_module::{ModuleError, ModuleResult};
use std::io;
use sys::code_pages::CodePages;

/// Size of a memory allocation in bytes; the code of most programs is smaller.
const PART: usize = 16 << 10;

/// The memory provider for Cranelift's JIT module: it allocates pages for code.
#[derive(Default)]
pub(crate) struct Memory {
    parts: Vec<CodePages>,
}

impl JITMemoryProvider for Memory {
    fn allocate(&mut self, size: usize, align: u64, kind: JITMemoryKind) -> io::Result<*mut u8> {
        if !matches!(kind, JITMemoryKind::Executable) {
            // The data of compiled programs is in the context, so the programs have no data sections.
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the program requests memory for a data section"));
        }
        let align = align as usize;
        let room = self.parts.last_mut().and_then(|part| part.take(size, align));
        let place = match room {
            Some(place) => Some(place),
            None => {
                let mut part = CodePages::new(size.max(PART))?;
                let place = part.take(size, align);
                self.parts.push(part);
                place
            }
        };
        place.map(|p| p.as_ptr()).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "the module requests an alignment greater than a page")
        })
    }

    unsafe fn free_memory(&mut self) {
        self.parts.clear();
    }

    fn finalize(&mut self, _: BranchProtection) -> ModuleResult<()> {
        for part in &mut self.parts {
            let (base, len) = part.range();
            // SAFETY: the range is mapped memory. On processors whose instruction cache does not follow writes, this
            // call invalidates the cache for the range.
            let reported = unsafe { icache::clear_cache(base.cast(), len) };
            let finished = reported.and_then(|()| part.finish());
            finished.map_err(|e| ModuleError::Allocation { err: e })?;
        }
        icache::pipeline_flush_mt().map_err(|e| ModuleError::Allocation { err: e })
    }
}
