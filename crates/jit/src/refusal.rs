//! The reasons why a program cannot run as machine code on this host. The caller then uses the interpreter, which has
//! the same semantics.

use ::ir::VerifyError;
use cranelift_codegen::CodegenError;
use cranelift_module::ModuleError;
use std::fmt;

/// The reason why a program cannot run as machine code.
#[derive(Debug)]
pub enum Refusal {
    /// The program failed verification, so neither machine code nor the interpreter can run it.
    Unfit(VerifyError),
    /// The compiler has no code generator for this processor.
    Host(String),
    /// The host does not grant executable memory.
    Memory(String),
    /// The program is larger than the compiler permits.
    TooLarge,
    /// The program was to be compiled as a filter over packet bytes, but uses an operation that such a filter must not
    /// contain.
    NoFilter(
        /// The operation that a filter over packet bytes must not contain.
        &'static str,
    ),
    /// The memory for a flow map could not be allocated.
    Map {
        /// The map's name.
        name: String,
        /// The capacity of the map, in entries.
        capacity: u32,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// The compiler rejected its input, which is a bug in netgrain.
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
            // The only cause of this error is that executable memory could not be allocated.
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
            Self::Unfit(e) => write!(f, "the program failed verification: {e}"),
            Self::Host(why) => write!(f, "no native code for this processor ({why}); the program can be interpreted"),
            Self::Memory(why) => {
                write!(f, "no executable memory ({why}); the program can be interpreted")
            }
            Self::NoFilter(what) => {
                write!(f, "the program {what}, so it is not a filter over packet bytes; compile it as an executable")
            }
            Self::TooLarge => f.write_str("the program is too large for native code; it can be interpreted"),
            Self::Map { name, capacity, error } => {
                write!(f, "map {name:?}: no memory for {capacity} entries ({error}); reduce its capacity")
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
