//! The id of a function of the running kernel that eBPF programs may call (kfunc).

use ebpf::btf::{self, BtfError};
use std::fmt;
use std::io;
use sys::sysfs::Tree;

/// The kernel's BTF below the root directory. A kernel without `CONFIG_DEBUG_INFO_BTF` has no such file.
const KERNEL_BTF: &str = "sys/kernel/btf/vmlinux";

/// The reasons why the id of a kernel function is not known.
#[derive(Debug)]
pub enum KernelFunctionError {
    /// The kernel's BTF cannot be read.
    Read(io::Error),
    /// The kernel's BTF has another format.
    Format(BtfError),
    /// This kernel has no function of this name.
    Missing,
}

/// The BTF id of the function `name` of the running kernel. Reads some megabytes.
///
/// # Errors
/// [`KernelFunctionError`].
pub fn kernel_function(name: &str) -> Result<u32, KernelFunctionError> {
    let btf = std::fs::read(Tree::default().path(KERNEL_BTF)).map_err(KernelFunctionError::Read)?;
    btf::function_id(&btf, name).map_err(KernelFunctionError::Format)?.ok_or(KernelFunctionError::Missing)
}

impl fmt::Display for KernelFunctionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(e) => write!(f, "/{KERNEL_BTF} cannot be read ({e}); the kernel needs CONFIG_DEBUG_INFO_BTF"),
            Self::Format(e) => write!(f, "/{KERNEL_BTF}: {e}"),
            Self::Missing => f.write_str("this kernel does not have the function; Linux 6.3 and later do"),
        }
    }
}

impl std::error::Error for KernelFunctionError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_that_does_not_exist_is_missing_and_not_a_wrong_id() {
        match kernel_function("netgrain_has_no_such_function") {
            Err(KernelFunctionError::Missing | KernelFunctionError::Read(_)) => (),
            other => panic!("{other:?}"),
        }
    }
}
