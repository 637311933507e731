//! Reads the packet program of the interfaces from a file.

use crate::load_error::UnreadableProgram;
use interface_program::ProgramPlan;
use std::path::Path;

/// Reads the packet program from a file.
///
/// # Errors
/// The file cannot be read.
pub fn read_program(path: &Path) -> Result<ProgramPlan, UnreadableProgram> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(ProgramPlan { name: path.display().to_string(), text }),
        Err(error) => Err(UnreadableProgram { path: path.to_owned(), error }),
    }
}
