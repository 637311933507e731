//! Why a program does not run natively here. Whoever gets one runs it in the interpreter instead, which means the same.

use cranelift_codegen::CodegenError;
use cranelift_module::ModuleError;
use lang::ir::VerifyError;
use std::fmt;

/// See the module.
#[derive(Debug)]
pub enum Refusal {
    /// The program is not fit to run, in any way.
    Unfit(VerifyError),
    /// There is no back end for this processor.
    Host(String),
    /// The host gives no executable memory.
    Memory(String),
    /// The program is too large for the compiler.
    TooLarge,
    /// A matcher was asked for, and the program is more than a filter over bytes.
    NoFilter(
        /// What it does.
        &'static str,
    ),
    /// There is no memory for a map.
    Map {
        /// The map's name.
        name: String,
        /// Most entries it was to have.
        capacity: u32,
        /// What the system said.
        error: std::io::Error,
    },
    /// The compiler found a fault in its input, which is a bug of ours.
    Bug(String),
}

impl From<VerifyError> for Refusal {
    fn from(e: VerifyError) -> Self {
        Self::Unfit(e)
    }
}

impl From<ModuleError> for Refusal {
    fn from(e: ModuleError) -> Self {
        match e {
            ModuleError::Allocation { err } => Self::Memory(err.to_string()),
            // The only thing that this back end does besides compiling is to ask for executable memory.
            ModuleError::Backend(e) => Self::Memory(format!("{e:#}")),
            ModuleError::Compilation(CodegenError::CodeTooLarge | CodegenError::ImplLimitExceeded) => Self::TooLarge,
            ModuleError::Compilation(CodegenError::Unsupported(what)) => Self::Host(what),
            other => Self::Bug(format!("{other:?}")),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unfit(e) => write!(f, "the program is not fit to run: {e}"),
            Self::Host(why) => write!(f, "no native code for this processor ({why}); the program can be interpreted"),
            Self::Memory(why) => {
                write!(f, "no executable memory ({why}); the program can be interpreted")
            }
            Self::NoFilter(what) => write!(f, "the program {what}, so it is no filter over bytes; make it a judge"),
            Self::TooLarge => f.write_str("the program is too large for native code; it can be interpreted"),
            Self::Map { name, capacity, error } => {
                write!(f, "map {name:?}: no memory for {capacity} entries ({error}); make it smaller")
            }
            Self::Bug(what) => {
                write!(f, "the compiler refused its input ({what}); please report this; the program can be interpreted")
            }
        }
    }
}

impl std::error::Error for Refusal {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unfit(e) => Some(e),
            Self::Map { error, .. } => Some(error),
            _ => None,
        }
    }
}
